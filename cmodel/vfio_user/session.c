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

/* The body as a struct of this size at least; NULL: it is shorter. */
static void *body_as(const struct vu_message *m, size_t bytes)
{
	return m->body_bytes >= bytes ? m->body : NULL;
}

static void answer(struct vu_reply *r, const void *body, size_t bytes)
{
	memcpy(r->body, body, bytes);
	r->body_bytes = (uint32_t)bytes;
}

/* Moves a descriptor from the message to the caller; -1: there is none. */
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
	const struct vu_version *ask = body_as(m, sizeof(*ask));
	struct vu_version *say = (void *)r->body;
	size_t room;
	int n;

	if (!ask || s->greeted)
		return EINVAL;
	if (ask->major != 0)
		return EPROTO;
	/* QEMU has a buffer of its own request's size for the answer. */
	room = m->body_bytes - sizeof(*say);
	*say = (struct vu_version){.major = 0, .minor = 0};
	n = snprintf(say->json, room,
		     "{\"capabilities\":{\"max_msg_fds\":%u,\"max_data_xfer_size\":%u}}",
		     VU_MAX_FDS, VU_MAX_TRANSFER);
	if ((size_t)n >= room)
		n = snprintf(say->json, room, "{}");
	/* All of it is optional. */
	if ((size_t)n >= room)
		n = -1;
	r->body_bytes = (uint32_t)sizeof(*say) + (uint32_t)(n + 1);
	s->greeted = true;
	return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int handle_dma_map(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_dma_map *ask = body_as(m, sizeof(*ask));
	struct vu_device *d = s->device;
	struct vu_guest_region region;
	int err;

	(void)r;
	if (!ask || m->n_fds > 1 || (ask->flags & ~(VU_DMA_READABLE | VU_DMA_WRITEABLE)))
		return EINVAL;
	region = (struct vu_guest_region){
		.address = ask->address,
		.bytes = ask->bytes,
		.offset = ask->offset,
		.fd = m->n_fds ? m->fd[0] : -1,
		.readable = ask->flags & VU_DMA_READABLE,
		.writeable = ask->flags & VU_DMA_WRITEABLE,
	};
	pthread_mutex_lock(&d->lock);
	err = vu_guest_add(&d->guest, &region);
	pthread_mutex_unlock(&d->lock);
	if (!err)
		take_fd(m, 0);
	vu_log(VU_LOG_DEBUG, (int)d->index, "map 0x%llx, 0x%llx bytes%s: %d",
	       (unsigned long long)ask->address, (unsigned long long)ask->bytes,
	       region.fd < 0 ? " without a file" : "", err);
	return -err;
}

static int handle_dma_unmap(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_dma_unmap *ask = body_as(m, sizeof(*ask));
	struct vu_device *d = s->device;
	struct vu_guest_removed removed = {0};
	struct vu_dma_unmap say;
	int err = 0;

	if (!ask || (ask->flags & ~VU_DMA_UNMAP_ALL))
		return EINVAL;
	say = *ask;
	say.argsz = sizeof(say);
	if ((ask->flags & VU_DMA_UNMAP_ALL) && (ask->address || ask->bytes))
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (ask->flags & VU_DMA_UNMAP_ALL)
		vu_guest_remove_all(&d->guest, &removed);
	else
		err = vu_guest_remove(&d->guest, ask->address, ask->bytes, &removed);
	pthread_mutex_unlock(&d->lock);
	vu_log(VU_LOG_DEBUG, (int)d->index, "unmap 0x%llx, 0x%llx bytes: %d",
	       (unsigned long long)ask->address, (unsigned long long)ask->bytes, err);
	if (err)
		return -err;
	vu_device_forget_translations(d);
	say.bytes = removed.bytes;
	vu_guest_release(&removed);
	answer(r, &say, sizeof(say));
	return 0;
}

/* ---- information ----------------------------------------------------------------------------- */

static int handle_info(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_device_info say = {
		.argsz = sizeof(say),
		.flags = VU_DEVICE_RESETTABLE | VU_DEVICE_PCI,
		.regions = VU_REGION_COUNT,
		.irqs = VU_IRQ_INDEX_COUNT,
	};

	(void)s;
	if (!body_as(m, sizeof(say)))
		return EINVAL;
	answer(r, &say, sizeof(say));
	return 0;
}

static int handle_region_info(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_info *ask = body_as(m, sizeof(*ask));
	struct vu_device *d = s->device;
	struct {
		struct vu_region_info info;
		struct vu_sparse_mmap sparse;
	} say = {.info = {.argsz = sizeof(say.info)}};
	size_t bytes = sizeof(say.info);

	if (!ask || ask->index >= VU_REGION_COUNT)
		return EINVAL;
	say.info.index = ask->index;
	say.info.flags = VU_REGION_READABLE | VU_REGION_WRITABLE;
	switch (ask->index) {
	case VU_REGION_BAR0: say.info.bytes = TXDA_BAR_REGS_BYTES; break;
	case VU_REGION_CONFIG: say.info.bytes = VU_CONFIG_BYTES; break;
	case VU_REGION_BAR2:
		say.info.bytes = d->bar_bytes;
		say.info.flags |= VU_REGION_MAPPABLE;
		r->fd = d->dram_fd;
		if (d->bar_bytes <= d->dram_bytes)
			break;
		/* Beyond the end of the DRAM there is nothing to map. */
		say.info.flags |= VU_REGION_CAPS;
		say.info.argsz = sizeof(say);
		say.sparse = (struct vu_sparse_mmap){
			.id = VU_CAP_SPARSE_MMAP, .version = 1, .areas = 1, .bytes = d->dram_bytes};
		/*
		 * Also in a short reply: QEMU reads the offset before it asks for the capability.
		 */
		say.info.cap_offset = sizeof(say.info);
		if (ask->argsz >= sizeof(say))
			bytes = sizeof(say);
		break;
	default: say.info.flags = 0; break;
	}
	answer(r, &say, bytes);
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
	const struct vu_irq_info *ask = body_as(m, sizeof(*ask));
	struct vu_irq_info say;

	if (!ask || ask->index >= VU_IRQ_INDEX_COUNT)
		return EINVAL;
	say = (struct vu_irq_info){
		.argsz = sizeof(say),
		.index = ask->index,
		.count = irq_count(s->device, ask->index),
	};
	if (say.count)
		say.flags = VU_IRQ_INFO_EVENTFD;
	if (say.count && say.index != VU_IRQ_ERR)
		say.flags |= VU_IRQ_INFO_MASKABLE;
	answer(r, &say, sizeof(say));
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

/* The one interrupt of VU_IRQ_ERR: its eventfd is kept and never written to. */
static int set_error_irq(struct vu_device *d, const struct vu_irq_set *ask, struct vu_message *m)
{
	uint32_t data = ask->flags & VU_IRQ_DATA_MASK;

	if (!(ask->flags & VU_IRQ_ACTION_TRIGGER) || data == VU_IRQ_DATA_BOOL || m->n_fds > 1)
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (data == VU_IRQ_DATA_EVENTFD || !ask->count)
		vu_irq_set_error_fd(&d->irq, take_fd(m, 0));
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* Binds vectors [start, start + count) to the descriptors of the message, or to none. */
static int bind_vectors(struct vu_device *d, const struct vu_irq_set *ask, struct vu_message *m)
{
	if (m->n_fds && m->n_fds != ask->count)
		return EINVAL;
	for (unsigned i = 0; i < m->n_fds; i++) {
		if (!is_eventfd(m->fd[i]))
			return EINVAL;
	}
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < ask->count; i++)
		vu_irq_set_fd(&d->irq, ask->start + i, take_fd(m, i));
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
	const struct vu_irq_set *ask = body_as(m, sizeof(*ask));
	struct vu_device *d = s->device;
	uint32_t data, action, have;

	(void)r;
	if (!ask || ask->index >= VU_IRQ_INDEX_COUNT ||
	    (ask->flags & ~(VU_IRQ_DATA_MASK | VU_IRQ_ACTIONS)))
		return EINVAL;
	data = ask->flags & VU_IRQ_DATA_MASK;
	action = ask->flags & VU_IRQ_ACTIONS;
	have = irq_count(d, ask->index);
	if (__builtin_popcount(data) != 1 || __builtin_popcount(action) != 1 || ask->start > have ||
	    ask->count > have - ask->start)
		return EINVAL;
	if (ask->index == VU_IRQ_ERR)
		return set_error_irq(d, ask, m);
	if (data == VU_IRQ_DATA_EVENTFD)
		return action == VU_IRQ_ACTION_TRIGGER && ask->count ? bind_vectors(d, ask, m)
								     : EINVAL;
	if (data == VU_IRQ_DATA_BOOL && m->body_bytes - sizeof(*ask) < ask->count)
		return EINVAL;
	pthread_mutex_lock(&d->lock);
	if (!ask->count && data == VU_IRQ_DATA_NONE && action == VU_IRQ_ACTION_TRIGGER && have)
		vu_irq_release(&d->irq);
	for (uint32_t i = 0; i < ask->count; i++) {
		if (data == VU_IRQ_DATA_NONE || ask->data[i])
			act_on_vector(d, action, ask->start + i);
	}
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* Whether [offset, offset + count) lies in the region, which must exist. */
static bool access_is_sound(const struct vu_device *d, const struct vu_region_rw *ask)
{
	uint64_t bytes;

	switch (ask->region) {
	case VU_REGION_BAR0: bytes = TXDA_BAR_REGS_BYTES; break;
	case VU_REGION_BAR2: bytes = d->bar_bytes; break;
	case VU_REGION_CONFIG: bytes = VU_CONFIG_BYTES; break;
	default: return false;
	}
	return ask->count && ask->count <= VU_MAX_TRANSFER && ask->offset < bytes &&
	       ask->count <= bytes - ask->offset;
}

static int handle_region_read(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_rw *ask = body_as(m, sizeof(*ask));
	struct vu_region_rw *say = (void *)r->body;

	if (!ask || !access_is_sound(s->device, ask))
		return EINVAL;
	*say = *ask;
	if (ask->region == VU_REGION_CONFIG)
		vu_device_config_read(s->device, ask->offset, say->data, ask->count);
	else
		vu_device_bar_read(s->device, ask->region, ask->offset, say->data, ask->count);
	r->body_bytes = (uint32_t)sizeof(*say) + ask->count;
	return 0;
}

static int handle_region_write(struct vu_session *s, struct vu_message *m, struct vu_reply *r)
{
	const struct vu_region_rw *ask = body_as(m, sizeof(*ask));

	if (!ask || !access_is_sound(s->device, ask) || m->body_bytes - sizeof(*ask) < ask->count)
		return EINVAL;
	if (ask->region == VU_REGION_CONFIG)
		vu_device_config_write(s->device, ask->offset, ask->data, ask->count);
	else
		vu_device_bar_write(s->device, ask->region, ask->offset, ask->data, ask->count);
	answer(r, ask, sizeof(*ask));
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

/* Commands that are not listed are answered with EOPNOTSUPP. */
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
