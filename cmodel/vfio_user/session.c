// SPDX-License-Identifier: MIT
#include "session.h"
#include "access.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const command_names[VU_COMMAND_COUNT] = {
	[VU_VERSION] = "VERSION",
	[VU_DMA_MAP] = "DMA_MAP",
	[VU_DMA_UNMAP] = "DMA_UNMAP",
	[VU_DEVICE_GET_INFO] = "DEVICE_GET_INFO",
	[VU_DEVICE_GET_REGION_INFO] = "DEVICE_GET_REGION_INFO",
	[VU_DEVICE_GET_REGION_IO_FDS] = "DEVICE_GET_REGION_IO_FDS",
	[VU_DEVICE_GET_IRQ_INFO] = "DEVICE_GET_IRQ_INFO",
	[VU_DEVICE_SET_IRQS] = "DEVICE_SET_IRQS",
	[VU_REGION_READ] = "REGION_READ",
	[VU_REGION_WRITE] = "REGION_WRITE",
	[VU_DEVICE_RESET] = "DEVICE_RESET",
};

/* The body as a struct of at least this size; NULL: it is shorter. */
static void *body_as(const struct vu_message *m, size_t bytes)
{
	return m->body_bytes >= bytes ? m->body : NULL;
}

static void answer(struct vu_reply *r, const void *body, size_t bytes)
{
	memcpy(r->body, body, bytes);
	r->body_bytes = (uint32_t)bytes;
}

/* Passes a descriptor of the message to the caller; -1: there is none. */
static int take_fd(struct vu_message *m, unsigned i)
{
	int fd = i < m->n_fds ? m->fd[i] : -1;

	if (i < m->n_fds)
		m->fd[i] = -1;
	return fd;
}

/* ---- greeting -------------------------------------------------------------------------------- */

static int handle_version(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_version *in = body_as(m, sizeof(*in));
	struct vu_version *out = (void *)r->body;
	size_t room;
	int n;

	if (!in || s->greeted)
		return EINVAL;
	if (in->major != 0)
		return EPROTO;
	/* QEMU's buffer for the answer has the size of its request. */
	room = m->body_bytes - sizeof(*out);
	*out = (struct vu_version){.major = 0, .minor = 0};
	n = snprintf(out->json, room,
		     "{\"capabilities\":{\"max_msg_fds\":%u,\"max_data_xfer_size\":%u}}",
		     VU_MAX_FDS, VU_MAX_TRANSFER);
	if ((size_t)n >= room)
		n = snprintf(out->json, room, "{}");
	/* All of this is optional. */
	if ((size_t)n >= room)
		n = -1;
	r->body_bytes = (uint32_t)sizeof(*out) + (uint32_t)(n + 1);
	s->greeted = true;
	return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int handle_dma_map(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_dma_map *in = body_as(m, sizeof(*in));
	struct vu_device *d = s->device;
	struct vu_guest_region region;
	int err;

	(void)r;
	if (!in || m->n_fds > 1 || (in->flags & ~(VU_DMA_READABLE | VU_DMA_WRITEABLE)))
		return EINVAL;
	region = (struct vu_guest_region){
		.address = in->address,
		.bytes = in->bytes,
		.offset = in->offset,
		.fd = m->n_fds ? m->fd[0] : -1,
		.readable = in->flags & VU_DMA_READABLE,
		.writeable = in->flags & VU_DMA_WRITEABLE,
	};
	pthread_mutex_lock(&d->lock);
	err = vu_guest_add(&d->guest, &region);
	pthread_mutex_unlock(&d->lock);
	if (!err)
		take_fd(m, 0);
	vu_log(VU_LOG_DEBUG, (int)d->index, "map 0x%llx, 0x%llx bytes%s: %d",
	       (unsigned long long)in->address, (unsigned long long)in->bytes,
	       region.fd < 0 ? " without a file" : "", err);
	return -err;
}

static int handle_dma_unmap(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_dma_unmap *in = body_as(m, sizeof(*in));
	struct vu_device *d = s->device;
	struct vu_guest_removed removed = {0};
	struct vu_dma_unmap out;
	int err = 0;

	if (!in || (in->flags & ~VU_DMA_UNMAP_ALL))
		return EINVAL;
	out = *in;
	out.argsz = sizeof(out);
	if ((in->flags & VU_DMA_UNMAP_ALL) && (in->address || in->bytes))
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (in->flags & VU_DMA_UNMAP_ALL)
		vu_guest_remove_all(&d->guest, &removed);
	else
		err = vu_guest_remove(&d->guest, in->address, in->bytes, &removed);
	pthread_mutex_unlock(&d->lock);
	vu_log(VU_LOG_DEBUG, (int)d->index, "unmap 0x%llx, 0x%llx bytes: %d",
	       (unsigned long long)in->address, (unsigned long long)in->bytes, err);
	if (err)
		return -err;
	vu_device_forget_translations(d);
	out.bytes = removed.bytes;
	vu_guest_release(&removed);
	answer(r, &out, sizeof(out));
	return 0;
}

/* ---- information ----------------------------------------------------------------------------- */

static int handle_info(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_device_info out = {
		.argsz = sizeof(out),
		.flags = VU_DEVICE_RESETTABLE | VU_DEVICE_PCI,
		.regions = VU_REGION_COUNT,
		.irqs = VU_IRQ_INDEX_COUNT,
	};

	(void)s;
	if (!body_as(m, sizeof(out)))
		return EINVAL;
	answer(r, &out, sizeof(out));
	return 0;
}

static int handle_region_info(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_info *in = body_as(m, sizeof(*in));
	struct vu_device *d = s->device;
	struct {
		struct vu_region_info info;
		struct vu_sparse_mmap sparse;
	} out = {.info = {.argsz = sizeof(out.info)}};
	size_t bytes = sizeof(out.info);

	if (!in || in->index >= VU_REGION_COUNT)
		return EINVAL;
	out.info.index = in->index;
	out.info.flags = VU_REGION_READABLE | VU_REGION_WRITABLE;
	switch (in->index) {
	case VU_REGION_BAR0: out.info.bytes = TXDA_BAR_REGS_BYTES; break;
	case VU_REGION_CONFIG: out.info.bytes = VU_CONFIG_BYTES; break;
	case VU_REGION_BAR2:
		out.info.bytes = d->bar_bytes;
		out.info.flags |= VU_REGION_MAPPABLE;
		r->fd = d->dram_fd;
		if (d->bar_bytes <= d->dram_bytes)
			break;
		/* There is nothing to map beyond the end of the DRAM. */
		out.info.flags |= VU_REGION_CAPS;
		out.info.argsz = sizeof(out);
		out.sparse = (struct vu_sparse_mmap){
			.id = VU_CAP_SPARSE_MMAP, .version = 1, .areas = 1, .bytes = d->dram_bytes};
		/*
		 * Also in a short reply: QEMU reads the offset before it requests the capability.
		 */
		out.info.cap_offset = sizeof(out.info);
		if (in->argsz >= sizeof(out))
			bytes = sizeof(out);
		break;
	default: out.info.flags = 0; break;
	}
	answer(r, &out, bytes);
	return 0;
}

static unsigned irq_count(const struct vu_device *d, uint32_t index)
{
	bool msix = d->irq.mode == VU_IRQ_MODE_MSIX;

	if (index == VU_IRQ_ERR)
		return 1;
	return index == (msix ? VU_IRQ_MSIX : VU_IRQ_MSI) ? d->irq.n_vectors : 0;
}

static int handle_irq_info(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_irq_info *in = body_as(m, sizeof(*in));
	struct vu_irq_info out;

	if (!in || in->index >= VU_IRQ_INDEX_COUNT)
		return EINVAL;
	out = (struct vu_irq_info){
		.argsz = sizeof(out),
		.index = in->index,
		.count = irq_count(s->device, in->index),
	};
	if (out.count)
		out.flags = VU_IRQ_INFO_EVENTFD;
	if (out.count && out.index != VU_IRQ_ERR)
		out.flags |= VU_IRQ_INFO_MASKABLE;
	answer(r, &out, sizeof(out));
	return 0;
}

/* ---- interrupts ------------------------------------------------------------------------------ */

/* Only non-blocking eventfds: they are written to in the middle of ops. */
static bool is_eventfd(int fd)
{
	static const char want[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(want)];
	ssize_t n;
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target));
	if (n != (ssize_t)sizeof(want) - 1 || memcmp(target, want, sizeof(want) - 1))
		return false;
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* The only interrupt of VU_IRQ_ERR: its eventfd is kept and never written to. */
static int set_error_irq(struct vu_device *d, const struct vu_irq_set *in, struct vu_message *m)
{
	uint32_t data = in->flags & VU_IRQ_DATA_MASK;

	if (!(in->flags & VU_IRQ_ACTION_TRIGGER) || data == VU_IRQ_DATA_BOOL || m->n_fds > 1)
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (data == VU_IRQ_DATA_EVENTFD || !in->count)
		vu_irq_set_error_fd(&d->irq, take_fd(m, 0));
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* Binds vectors [start, start + count) to the descriptors of the message, or to none. */
static int bind_vectors(struct vu_device *d, const struct vu_irq_set *in, struct vu_message *m)
{
	if (m->n_fds && m->n_fds != in->count)
		return EINVAL;
	for (unsigned i = 0; i < m->n_fds; i++) {
		if (!is_eventfd(m->fd[i]))
			return EINVAL;
	}
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < in->count; i++)
		vu_irq_set_fd(&d->irq, in->start + i, take_fd(m, i));
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static void act_on_vector(struct vu_device *d, uint32_t action, unsigned vector)
{
	switch (action) {
	case VU_IRQ_ACTION_MASK: vu_irq_mask(&d->irq, vector, true); break;
	case VU_IRQ_ACTION_UNMASK: vu_irq_mask(&d->irq, vector, false); break;
	default: vu_irq_trigger(&d->irq, vector); break;
	}
}

static int handle_set_irqs(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_irq_set *in = body_as(m, sizeof(*in));
	struct vu_device *d = s->device;
	uint32_t data, action, have;

	(void)r;
	if (!in || in->index >= VU_IRQ_INDEX_COUNT ||
	    (in->flags & ~(VU_IRQ_DATA_MASK | VU_IRQ_ACTIONS)))
		return EINVAL;
	data = in->flags & VU_IRQ_DATA_MASK;
	action = in->flags & VU_IRQ_ACTIONS;
	have = irq_count(d, in->index);
	if (__builtin_popcount(data) != 1 || __builtin_popcount(action) != 1 || in->start > have ||
	    in->count > have - in->start)
		return EINVAL;
	if (in->index == VU_IRQ_ERR)
		return set_error_irq(d, in, m);
	if (data == VU_IRQ_DATA_EVENTFD)
		return action == VU_IRQ_ACTION_TRIGGER && in->count ? bind_vectors(d, in, m)
								    : EINVAL;
	if (data == VU_IRQ_DATA_BOOL && m->body_bytes - sizeof(*in) < in->count)
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (!in->count && data == VU_IRQ_DATA_NONE && action == VU_IRQ_ACTION_TRIGGER && have)
		vu_irq_release(&d->irq);
	for (uint32_t i = 0; i < in->count; i++) {
		if (data == VU_IRQ_DATA_NONE || in->data[i])
			act_on_vector(d, action, in->start + i);
	}
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* Whether [offset, offset + count) lies in the region, which must exist. */
static bool access_is_sound(const struct vu_device *d, const struct vu_region_rw *in)
{
	uint64_t bytes;

	switch (in->region) {
	case VU_REGION_BAR0: bytes = TXDA_BAR_REGS_BYTES; break;
	case VU_REGION_BAR2: bytes = d->bar_bytes; break;
	case VU_REGION_CONFIG: bytes = VU_CONFIG_BYTES; break;
	default: return false;
	}
	return in->count && in->count <= VU_MAX_TRANSFER && in->offset < bytes &&
	       in->count <= bytes - in->offset;
}

static int handle_region_read(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_rw *in = body_as(m, sizeof(*in));
	struct vu_region_rw *out = (void *)r->body;

	if (!in || !access_is_sound(s->device, in))
		return EINVAL;
	*out = *in;
	if (in->region == VU_REGION_CONFIG)
		vu_device_config_read(s->device, in->offset, out->data, in->count);
	else
		vu_device_bar_read(s->device, in->region, in->offset, out->data, in->count);
	r->body_bytes = (uint32_t)sizeof(*out) + in->count;
	return 0;
}

static int handle_region_write(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_rw *in = body_as(m, sizeof(*in));

	if (!in || !access_is_sound(s->device, in) || m->body_bytes - sizeof(*in) < in->count)
		return EINVAL;
	if (in->region == VU_REGION_CONFIG)
		vu_device_config_write(s->device, in->offset, in->data, in->count);
	else
		vu_device_bar_write(s->device, in->region, in->offset, in->data, in->count);
	answer(r, in, sizeof(*in));
	return 0;
}

static int handle_reset(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	(void)m;
	(void)r;
	vu_device_power_cycle(s->device);
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef int (*handler_fn)(struct vu_session *s, struct vu_message *m, struct vu_reply *r);

/* Other commands are answered with EOPNOTSUPP. */
static const handler_fn handlers[VU_COMMAND_COUNT] = {
	[VU_VERSION] = handle_version,
	[VU_DMA_MAP] = handle_dma_map,
	[VU_DMA_UNMAP] = handle_dma_unmap,
	[VU_DEVICE_GET_INFO] = handle_info,
	[VU_DEVICE_GET_REGION_INFO] = handle_region_info,
	[VU_DEVICE_GET_IRQ_INFO] = handle_irq_info,
	[VU_DEVICE_SET_IRQS] = handle_set_irqs,
	[VU_REGION_READ] = handle_region_read,
	[VU_REGION_WRITE] = handle_region_write,
	[VU_DEVICE_RESET] = handle_reset,
};

void vu_session_handle(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	uint16_t command = m->header.command;
	handler_fn handler = command < VU_COMMAND_COUNT ? handlers[command] : NULL;

	r->error = 0;
	r->body_bytes = 0;
	r->fd = -1;
	if (!handler)
		r->error = EOPNOTSUPP;
	else if (!s->greeted && command != VU_VERSION)
		r->error = EPROTO;
	else
		r->error = handler(s, m, r);
	if (r->error)
		vu_log(VU_LOG_DEBUG, (int)s->device->index, "%s (%u), %u bytes: %s",
		       handler ? command_names[command] : "command", command, m->header.bytes,
		       strerror(r->error));
}

int vu_session_run(struct vu_device *d, int sock)
{
	struct vu_session s = {.device = d};
	struct vu_message m;
	struct vu_reply r;
	int err;

	err = vu_message_init(&m, &r);
	if (err)
		return err;
	vu_device_attach(d);
	while (!err) {
		err = vu_proto_receive(sock, &m);
		/* The server sends no commands, so it expects no replies. */
		if (err || (m.header.flags & VU_TYPE_MASK) == VU_TYPE_REPLY) {
			vu_message_close_fds(&m);
			continue;
		}
		pthread_mutex_lock(&d->op_lock);
		vu_session_handle(&s, &m, &r);
		pthread_mutex_unlock(&d->op_lock);
		vu_message_close_fds(&m);
		if (!(m.header.flags & VU_NO_REPLY))
			err = vu_proto_reply(sock, &m, &r);
	}
	pthread_mutex_lock(&d->op_lock);
	vu_device_detach(d);
	pthread_mutex_unlock(&d->op_lock);
	vu_message_free(&m, &r);
	return err == -ECONNRESET ? 0 : err;
}
