// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "context.h"
#include "internal.h"

/*
 * Messages are kept per thread, for the contexts that the thread used last: no lock and nothing to
 * free, since they end with the thread. Contexts are identified by a serial number, since addresses
 * may be reused.
 */
#define MESSAGES 4

struct message {
	uint64_t context_id;
	bool used;
	char text[TXDA__ERROR_BYTES];
};

static _Thread_local struct message messages[MESSAGES];
static _Thread_local unsigned next_message;

static struct message *find_message(uint64_t id)
{
	for (unsigned i = 0; i < MESSAGES; i++)
		if (messages[i].used && messages[i].context_id == id)
			return &messages[i];
	return NULL;
}

static struct message *take_message(struct txda_context *context)
{
	uint64_t id = context ? context->id : 0;
	struct message *m = find_message(id);

	if (!m) {
		m = &messages[next_message++ % MESSAGES];
		m->context_id = id;
		m->used = true;
		m->text[0] = '\0';
	}
	return m;
}

void txda__note(struct txda_context *context, const char *format, ...)
{
	struct message *m = take_message(context);
	char text[TXDA__ERROR_BYTES];
	va_list ap;

	/* Formatted into a separate buffer first: an argument may be the old message. */
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	memcpy(m->text, text, sizeof(text));
}

void txda__note_prefix(struct txda_context *context, const char *format, ...)
{
	struct message *m = take_message(context);
	char text[TXDA__ERROR_BYTES];
	size_t len, more;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	len = strlen(text);
	if (len + 3 < sizeof(text)) {
		more = strnlen(m->text, sizeof(text) - len - 3);
		memcpy(text + len, ": ", 2);
		memcpy(text + len + 2, m->text, more);
		text[len + 2 + more] = '\0';
	}
	memcpy(m->text, text, sizeof(text));
}

const char *txda_context_error(struct txda_context *context)
{
	struct message *m = find_message(context ? context->id : 0);

	return m ? m->text : "";
}

const char *txda__bytes(uint64_t bytes, char buf[24])
{
	static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	unsigned i = 0;

	if (bytes < 1024) {
		snprintf(buf, 24, "%u bytes", (unsigned)bytes);
		return buf;
	}
	while (value >= 1024 && i + 1 < ARRAY_SIZE(unit)) {
		value /= 1024;
		i++;
	}
	snprintf(buf, 24, value < 10 ? "%.2f %s" : "%.1f %s", value, unit[i]);
	return buf;
}

/*
 * A member in the padding at a struct's end would not change its size, so libraries and programs of
 * other versions would not notice it.
 */
#define ENDS_WITH(type, member)                                                                    \
	static_assert(offsetof(struct type, member) + sizeof(((struct type *)0)->member) ==        \
			      sizeof(struct type),                                                 \
		      #type " has padding at its end")
ENDS_WITH(txda_context_options, name);
ENDS_WITH(txda_device_info, reserved);
ENDS_WITH(txda_device_status, utilisation_permille);
ENDS_WITH(txda_link_info, port);
ENDS_WITH(txda_group_options, reserved);
ENDS_WITH(txda_model_options, cancel);
ENDS_WITH(txda_model_plan, state_blocks);
ENDS_WITH(txda_model_info, reserved);
ENDS_WITH(txda_tensor_info, bytes);
ENDS_WITH(txda_step, n_ops);
ENDS_WITH(txda_weights_info, memory_id);
ENDS_WITH(txda_event, reserved);
ENDS_WITH(txda_process_info, busy_ns);
ENDS_WITH(txda_watch_event, reserved);

int txda__check_reserved(struct txda_context *context, const void *reserved, size_t bytes,
			 const char *what)
{
	const unsigned char *byte = reserved;

	for (size_t i = 0; i < bytes; i++)
		if (byte[i])
			return txda__fail(context, -E2BIG,
					  "%s has options that libtxda %s does not know", what,
					  txda_version());
	return 0;
}

int txda__copy_in(struct txda_context *context, void *dst, size_t known, const void *src,
		  const char *what)
{
	size_t size;

	memset(dst, 0, known);
	if (!src)
		return 0;
	memcpy(&size, src, sizeof(size));
	if (size < sizeof(size_t) || size > 65536)
		return txda__fail(context, -EINVAL,
				  "%s.size is %zu: start from TXDA_INIT(struct %s)", what, size,
				  what);
	memcpy(dst, src, size < known ? size : known);
	return size <= known ? 0
			     : txda__check_reserved(context, (const char *)src + known,
						    size - known, what);
}

int txda__copy_out(struct txda_context *context, void *dst, const void *src, size_t known,
		   const char *what)
{
	size_t size;

	if (!dst)
		return txda__fail(context, -EINVAL, "no %s to fill", what);
	memcpy(&size, dst, sizeof(size));
	if (size < sizeof(size_t) || size > 65536)
		return txda__fail(context, -EINVAL,
				  "%s.size is %zu: start from TXDA_INIT(struct %s)", what, size,
				  what);
	if (size > known)
		size = known;
	memcpy((char *)dst + sizeof(size_t), (const char *)src + sizeof(size_t),
	       size - sizeof(size_t));
	return 0;
}
