// SPDX-License-Identifier: MIT
/*
 * Global functions, and the methods of the objects that they make.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jinja_render.h"

enum { MAX_RANGE = 100000 }; /* as jinja2's sandbox */

static int global_range(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	int64_t start = 0, stop = 0, step = 1;
	uint64_t distance, n = 0, i;
	struct jinja_seq *seq;
	int rc = 0;

	(void)self;
	if (args->n < 1 || args->n > 3 || args->n_keywords)
		return jinja_fail(r, "range() takes one to three integers");
	if (args->n > 1)
		rc = jinja_arg_int(r, args->positional[0], "range", &start);
	if (!rc)
		rc = jinja_arg_int(r, args->positional[args->n > 1], "range", &stop);
	if (!rc && args->n == 3)
		rc = jinja_arg_int(r, args->positional[2], "range", &step);
	if (rc)
		return rc;
	if (!step)
		return jinja_fail(r, "range: the step must not be zero");
	if (step > 0 && start < stop) {
		distance = (uint64_t)stop - (uint64_t)start;
		n = (distance - 1) / (uint64_t)step + 1;
	} else if (step < 0 && start > stop) {
		distance = (uint64_t)start - (uint64_t)stop;
		n = (distance - 1) / (0 - (uint64_t)step) + 1;
	}
	if (n > MAX_RANGE)
		return jinja_fail(r, "range: %" PRIu64 " items, the limit is %d", n, MAX_RANGE);
	rc = jinja_new_seq(r, JINJA_RANGE, (size_t)n, &seq);
	if (rc)
		return rc;
	for (i = 0; i < n; i++)
		seq->items[i] = jinja_int((int64_t)((uint64_t)start + i * (uint64_t)step));
	seq->n = (size_t)n;
	seq->range[0] = start;
	seq->range[1] = stop;
	seq->range[2] = step;
	*ret = jinja_seq_value(seq);
	return jinja_charge(r, n / 4);
}

static int global_dict(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_dict *dict;
	int rc = jinja_dict_from_args(r, "dict", args, &dict);

	(void)self;
	if (!rc)
		*ret = jinja_dict_value(dict);
	return rc;
}

static int global_namespace(struct jinja_render *r, struct jinja_value self,
			    const struct jinja_args *args, struct jinja_value *ret)
{
	int rc = global_dict(r, self, args, ret);

	if (!rc)
		ret->kind = JINJA_NAMESPACE;
	return rc;
}

static int global_raise(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_str *message;
	int rc = JINJA_BIND(r, args, "raise_exception", 1, arg, "message");

	(void)self;
	(void)ret;
	if (!rc)
		rc = jinja_to_str(r, arg[0], &message);
	if (rc)
		return rc;
	return jinja_set_error(r->error, TXDA_TEMPLATE_RAISED, r->line, "%.*s",
			       (int)(message->length < 4096 ? message->length : 4096),
			       message->data);
}

static int local_time(struct jinja_render *r, struct tm *ret)
{
	time_t now;

	if (r->now) {
		*ret = *r->now;
		return 0;
	}
	now = time(NULL);
	if (now == (time_t)-1 || !localtime_r(&now, ret))
		return jinja_fail(r, "strftime_now: there is no local time");
	return 0;
}

/* One conversion at a time: the format is the template's, and C leaves unknown ones undefined. */
static int global_strftime_now(struct jinja_render *r, struct jinja_value self,
			       const struct jinja_args *args, struct jinja_value *ret)
{
	static const char known[] = "aAbBcdHIjmMpSUwWxXyYuVGDeFTRhnrtCgklPs%";
	size_t mark = r->out.length, i;
	struct jinja_value arg[1];
	struct jinja_str *format;
	struct tm now;
	int rc = JINJA_BIND(r, args, "strftime_now", 1, arg, "format");

	(void)self;
	if (!rc)
		rc = jinja_arg_str(r, arg[0], "strftime_now", &format);
	if (!rc)
		rc = local_time(r, &now);
	for (i = 0; !rc && i < format->length; i++) {
		char conversion[4] = "%", text[256];
		size_t n = i + 1;
		char pad = n < format->length && format->data[n] == '-' ? '-' : '\0';
		char c;

		n += pad != '\0';
		c = n < format->length ? format->data[n] : '\0';
		if (format->data[i] == '%' && c == 'f') { /* microseconds: Python's own */
			rc = jinja_write_text(r, "000000");
			i = n;
		} else if (format->data[i] == '%' && (c == 'z' || c == 'Z')) {
			i = n; /* Python's now() knows no time zone */
		} else if (format->data[i] == '%' && c && strchr(known, c)) {
			conversion[1] = pad ? pad : c;
			conversion[2] = pad ? c : '\0';
			n = strftime(text, sizeof(text), conversion, &now);
			rc = jinja_write(r, text, n);
			i += pad ? 2 : 1;
		} else {
			rc = jinja_write(r, format->data + i, 1);
		}
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int new_cycle(struct jinja_render *r, const struct jinja_value *items, size_t n,
		     enum jinja_kind kind, struct jinja_value *ret)
{
	struct jinja_cycle *cycle;
	int rc = jinja_alloc(r, sizeof(*cycle), &cycle);

	if (rc)
		return rc;
	*cycle = (struct jinja_cycle){.n = n};
	rc = jinja_alloc(r, n * sizeof(*items), &cycle->items);
	if (rc)
		return rc;
	memcpy(cycle->items, items, n * sizeof(*items));
	*ret = (struct jinja_value){.kind = (uint8_t)kind, .cycle = cycle};
	return 0;
}

static int global_cycler(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	(void)self;
	if (!args->n || args->n_keywords)
		return jinja_fail(r, "cycler() needs values");
	return new_cycle(r, args->positional, args->n, JINJA_CYCLER, ret);
}

static int global_joiner(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	int rc = JINJA_BIND(r, args, "joiner", 0, arg, "sep");

	(void)self;
	if (!rc && arg[0].kind == JINJA_ABSENT)
		rc = jinja_literal(r, ", ", &arg[0]);
	return rc ? rc : new_cycle(r, arg, 1, JINJA_JOINER, ret);
}

const struct jinja_builtin jinja_globals[] = {
	{"range", global_range},
	{"dict", global_dict},
	{"namespace", global_namespace},
	{"raise_exception", global_raise},
	{"strftime_now", global_strftime_now},
	{"cycler", global_cycler},
	{"joiner", global_joiner},
	{NULL, NULL},
};

static int cycler_next(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "next");

	if (rc)
		return rc;
	*ret = self.cycle->items[self.cycle->position];
	self.cycle->position = (self.cycle->position + 1) % self.cycle->n;
	return 0;
}

static int cycler_reset(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "reset");

	if (rc)
		return rc;
	self.cycle->position = 0;
	*ret = jinja_none();
	return 0;
}

const struct jinja_builtin jinja_cycler_methods[] = {
	{"next", cycler_next},
	{"reset", cycler_reset},
	{NULL, NULL},
};
