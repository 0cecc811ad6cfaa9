// SPDX-License-Identifier: MIT
#include "fuzz.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <linux/dma-buf.h>
#include <linux/sync_file.h>

#define SYNCS_MAX 4

static uint32_t any_syncs(struct file *f, struct rng *r, struct drm_txda_sync *syncs)
{
	uint32_t n = one_in(r, 2) ? 0 : below(r, one_in(r, 4) ? SYNCS_MAX + 1 : 2);

	for (uint32_t i = 0; i < n; i++) {
		bool timeline = one_in(r, 2);

		/* A wait is refused unless somebody has signalled before. */
		syncs[i] = (struct drm_txda_sync){
			.flags = (one_in(r, 4) ? DRM_TXDA_SYNC_WAIT : DRM_TXDA_SYNC_SIGNAL) |
				 (timeline ? DRM_TXDA_SYNC_TIMELINE : 0),
			.handle = pool_any(&f->syncobjs, r),
			.point = timeline ? 1 + below(r, 20) : 0,
		};
		if (one_in(r, 40))
			syncs[i].flags = any32(r);
		if (one_in(r, 40))
			syncs[i].point = any64(r);
	}
	return n;
}

/* ---- Files ---------------------------------------------------------------------------------- */

static void op_open(struct world *w, struct file *f, struct rng *r)
{
	char path[64];
	int fd, old;

	if (f->fd >= 0 && !one_in(r, 30))
		return;
	snprintf(path, sizeof(path), "/dev/accel/accel%u", below(r, w->nodes));
	fd = open(path, O_RDWR | O_CLOEXEC | (one_in(r, 4) ? O_NONBLOCK : 0));
	if (fd < 0)
		return;
	f->vms.n = f->bos.n = f->queues.n = f->syncobjs.n = 0;
	old = __atomic_exchange_n(&f->fd, fd, __ATOMIC_RELAXED);
	if (old > 2)
		close(old);
}

static void op_close(struct world *w, struct file *f, struct rng *r)
{
	int old;

	(void)w;
	if (!one_in(r, 20))
		return;
	old = __atomic_exchange_n(&f->fd, -1, __ATOMIC_RELAXED);
	if (old > 2)
		close(old);
}

static void op_file_calls(struct world *w, struct file *f, struct rng *r)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN | POLLOUT};
	char path[64], text[4096];
	int fd;

	(void)w;
	switch (below(r, 5)) {
	case 0: poll(&p, 1, 0); break;
	case 1:
		/* A read of a DRM file waits for events, of which there are none. */
		if (fcntl(f->fd, F_GETFL) & O_NONBLOCK)
			(void)!read(f->fd, text, sizeof(text));
		break;
	case 2: lseek(f->fd, (off_t)any64(r), SEEK_SET); break;
	case 3: keep_fd(w, r, dup(f->fd)); break;
	default:
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", f->fd);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			(void)!read(fd, text, sizeof(text));
			close(fd);
		}
	}
}

/* A random ioctl number and size, in the driver's range and in all of DRM's. */
static void op_raw(struct world *w, struct file *f, struct rng *r)
{
	uint8_t arg[256];
	uint32_t nr = one_in(r, 2) ? DRM_COMMAND_BASE + below(r, 20) : below(r, 256);

	(void)w;
	for (size_t i = 0; i < sizeof(arg); i++)
		arg[i] = one_in(r, 3) ? (uint8_t)rnd(r) : 0;
	/* Not by this way: a wait could last for ever, and sizes are no matter of luck. */
	if ((nr >= _IOC_NR(DRM_IOCTL_SYNCOBJ_CREATE) && nr <= _IOC_NR(DRM_IOCTL_SYNCOBJ_EVENTFD)) ||
	    nr == _IOC_NR(DRM_IOCTL_TXDA_BO_CREATE))
		return;
	ioctl(f->fd,
	      _IOC(below(r, 4), one_in(r, 20) ? below(r, 256) : DRM_IOCTL_BASE, nr,
		   below(r, sizeof(arg))),
	      arg);
}

/* @to: as many bytes as an answer can have. */
static struct drm_txda_answer any_answer(struct rng *r, void *to)
{
	struct drm_txda_answer answer = {
		.size = one_in(r, 3) ? any32(r) : below(r, DRM_TXDA_MAX_ANSWER_BYTES),
		.pad = one_in(r, 20) ? any32(r) : 0,
		.pointer = one_in(r, 5) ? 0 : (uintptr_t)to,
	};

	if (answer.size > DRM_TXDA_MAX_ANSWER_BYTES && answer.pointer)
		answer.pointer = 1;
	return answer;
}

static void op_query(struct world *w, struct file *f, struct rng *r)
{
	uint8_t answer[DRM_TXDA_MAX_ANSWER_BYTES];
	struct drm_txda_dev_query arg = {
		.type = one_in(r, 10) ? any32(r) : below(r, 9),
		.index = one_in(r, 3) ? below(r, 10) : 0,
		.answer = any_answer(r, answer),
	};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg);
}

static void op_core(struct world *w, struct file *f, struct rng *r)
{
	struct drm_version version = {0};
	struct drm_get_cap cap = {.capability = any64(r)};
	struct drm_gem_close gem = {.handle = pool_any(&f->bos, r)};
	struct {
		uint64_t bytes, name;
	} client = {below(r, 80), (uintptr_t) "fuzz\0\n\xff"};
	char text[64];

	(void)w;
	switch (below(r, 5)) {
	case 0:
		version.name_len = version.date_len = version.desc_len = sizeof(text);
		version.name = version.date = version.desc = text;
		issue(r, f->fd, DRM_IOCTL_VERSION, &version);
		break;
	case 1: issue(r, f->fd, DRM_IOCTL_GET_CAP, &cap); break;
	case 2:
		issue(r, f->fd, _IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, 0xd1, 16), &client);
		break;
	default: issue(r, f->fd, DRM_IOCTL_GEM_CLOSE, &gem);
	}
}

/* ---- Address spaces ------------------------------------------------------------------------- */

static void op_vm_create(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_vm_create arg = {.va_range = one_in(r, 4) ? any64(r) : 0};

	(void)w;
	if (!one_in(r, 3) && f->vms.n)
		return;
	if (!issue(r, f->fd, DRM_IOCTL_TXDA_VM_CREATE, &arg))
		pool_add(&f->vms, r, arg.id);
}

static void op_vm_destroy(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_vm_destroy arg = {.id = pool_any(&f->vms, r)};

	(void)w;
	if (one_in(r, 4))
		issue(r, f->fd, DRM_IOCTL_TXDA_VM_DESTROY, &arg);
}

static void op_vm_state(struct world *w, struct file *f, struct rng *r)
{
	uint8_t answer[DRM_TXDA_MAX_ANSWER_BYTES];
	struct drm_txda_vm_get_state arg = {
		.id = pool_any(&f->vms, r),
		.fault = any_answer(r, answer),
	};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg);
}

static void op_bind(struct world *w, struct file *f, struct rng *r)
{
	static const uint32_t kinds[] = {
		DRM_TXDA_BIND_MAP,   DRM_TXDA_BIND_MAP,	      DRM_TXDA_BIND_MAP,
		DRM_TXDA_BIND_UNMAP, DRM_TXDA_BIND_SYNC_ONLY,
	};
	struct drm_txda_sync syncs[6][SYNCS_MAX];
	struct drm_txda_bind_op ops[6];
	struct drm_txda_vm_bind arg = {
		.vm_id = pool_any(&f->vms, r),
		.flags = any_flags(r, DRM_TXDA_VM_BIND_ASYNC),
	};
	uint32_t n = one_in(r, 3) ? below(r, 6) + 1 : 1;

	(void)w;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t kind = kinds[below(r, ARRAY_SIZE(kinds))];
		bool map = kind == DRM_TXDA_BIND_MAP, none = kind == DRM_TXDA_BIND_SYNC_ONLY;
		uint32_t n_syncs =
			arg.flags & DRM_TXDA_VM_BIND_ASYNC ? any_syncs(f, r, syncs[i]) : 0;

		ops[i] = (struct drm_txda_bind_op){
			.flags = kind | (map && one_in(r, 6) ? DRM_TXDA_BIND_READONLY : 0),
			.bo = map ? pool_any(&f->bos, r) : 0,
			.bo_offset = map && one_in(r, 12) ? (uint64_t)below(r, 64) * PAGE : 0,
			.va = none ? 0 : any_va(r),
			.size = none ? 0 : (uint64_t)(below(r, one_in(r, 6) ? 1024 : 3) + 1) * PAGE,
			.syncs = any_array(r, syncs[i], n_syncs, sizeof(syncs[0][0])),
		};
		if (one_in(r, 60))
			((uint8_t *)&ops[i])[below(r, sizeof(ops[i]))] = (uint8_t)rnd(r);
	}
	arg.ops = any_array(r, ops, n, sizeof(ops[0]));
	issue(r, f->fd, DRM_IOCTL_TXDA_VM_BIND, &arg);
}

static void op_group(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_member members[4];
	struct drm_txda_vm_set_group arg = {
		.vm_id = pool_any(&f->vms, r),
		.slot = below(r, 18),
	};
	uint32_t n = below(r, 4);

	for (uint32_t i = 0; i < n; i++) {
		struct file *other = i ? any_file(w, r) : f;

		members[i] = (struct drm_txda_member){
			.fd = one_in(r, 12) ? any_fd(w, r) : other->fd,
			.vm_id = i ? pool_any(&other->vms, r) : arg.vm_id,
		};
	}
	arg.members = any_array(r, members, n, sizeof(members[0]));
	issue(r, f->fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &arg);
}

/* ---- Buffers -------------------------------------------------------------------------------- */

static void op_bo_create(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_bo_create arg = {
		.size = one_in(r, 12) ? any64(r)
				      : (uint64_t)(below(r, one_in(r, 8) ? 1024 : 20) + 1) * PAGE,
		.places = one_in(r, 12) ? any32(r) : 1 + below(r, 3),
		.flags = any_flags(r, DRM_TXDA_BO_NO_MMAP | DRM_TXDA_BO_WRITE_COMBINE),
		.vm_id = one_in(r, 3) ? pool_any(&f->vms, r) : 0,
	};

	(void)w;
	if (!issue(r, f->fd, DRM_IOCTL_TXDA_BO_CREATE, &arg))
		pool_add(&f->bos, r, arg.handle);
}

static void op_bo_info(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_bo_query_info arg = {.handle = pool_any(&f->bos, r)};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &arg);
}

static void op_bo_label(struct world *w, struct file *f, struct rng *r)
{
	static const char long_label[] =
		"0123456789012345678901234567890123456789012345678901234567890123456789";
	struct drm_txda_bo_set_label arg = {
		.handle = pool_any(&f->bos, r),
		.label = one_in(r, 4) ? 0 : (uintptr_t)long_label + below(r, sizeof(long_label)),
	};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &arg);
}

/* An idle buffer can do little, so most become useful again. */
static void op_bo_advise(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_bo_advise arg = {
		.handle = pool_any(&f->bos, r),
		.advice = one_in(r, 2) ? DRM_TXDA_WILLNEED : below(r, 4),
		.pad = one_in(r, 40),
	};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_BO_ADVISE, &arg);
}

static void op_userptr(struct world *w, struct file *f, struct rng *r)
{
	map_t map = w->map[below(r, MAPS_MAX)];
	struct drm_txda_bo_from_userptr arg = {
		.va = (uintptr_t)map_at(map),
		.size = map ? map_bytes(map) : PAGE,
		.flags = any_flags(r, DRM_TXDA_USERPTR_READONLY),
		.vm_id = one_in(r, 3) ? pool_any(&f->vms, r) : 0,
	};

	if (one_in(r, 3)) {
		uint32_t pages = below(r, 16) + 1;
		void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
				(one_in(r, 2) ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS, -1, 0);

		if (at != MAP_FAILED) {
			arg.va = (uintptr_t)at;
			arg.size = pages * PAGE;
			keep_map(w, r, at, pages);
		}
	}
	if (!issue(r, f->fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg))
		pool_add(&f->bos, r, arg.handle);
}

static void op_mmap(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_bo_mmap_offset arg = {.handle = pool_any(&f->bos, r)};
	uint32_t pages = below(r, 20) + 1;
	void *at;

	if (issue(r, f->fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg) && !one_in(r, 10))
		return;
	if (one_in(r, 10))
		arg.offset += (uint64_t)below(r, 40) * PAGE;
	at = mmap(NULL, pages * PAGE, one_in(r, 6) ? PROT_READ : PROT_READ | PROT_WRITE,
		  one_in(r, 10) ? MAP_PRIVATE : MAP_SHARED, f->fd, (off_t)arg.offset);
	if (at != MAP_FAILED)
		keep_map(w, r, at, pages);
}

static void op_prime(struct world *w, struct file *f, struct rng *r)
{
	struct drm_prime_handle arg = {0};
	int fd;

	switch (below(r, 4)) {
	case 0:
	case 1:
		arg.handle = pool_any(&f->bos, r);
		arg.flags = any_flags(r, DRM_CLOEXEC | DRM_RDWR);
		arg.fd = -1;
		if (!issue(r, f->fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &arg))
			keep_fd(w, r, arg.fd);
		break;
	case 2:
		arg.fd = any_fd(w, r);
		if (!issue(r, f->fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg))
			pool_add(&f->bos, r, arg.handle);
		break;
	default: {
		struct dma_buf_sync sync = {.flags = below(r, 8)};
		void *at;

		fd = any_fd(w, r);
		ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
		at = mmap(NULL, PAGE * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (at != MAP_FAILED)
			keep_map(w, r, at, 2);
	}
	}
}

/* ---- Contents ------------------------------------------------------------------------------- */

struct scribble {
	map_t map;
	struct rng *r;
};

static uint32_t any_packet(struct rng *r, uint64_t *to)
{
	union {
		struct txda_pkt hdr;
		struct txda_pkt_copy copy;
		struct txda_pkt_fill fill;
		struct txda_pkt_fence fence;
		struct txda_pkt_timestamp time;
		struct txda_pkt_exec exec;
		struct txda_pkt_collective collective;
		uint64_t words[14];
	} pkt = {0};
	uint32_t bytes = sizeof(pkt.hdr);

	pkt.hdr.op = (uint16_t)below(r, TXDA_PKT_COUNT + 1);
	switch (pkt.hdr.op) {
	case TXDA_PKT_COPY:
		bytes = sizeof(pkt.copy);
		pkt.copy.dst = any_va(r);
		pkt.copy.src = any_va(r);
		pkt.copy.bytes = one_in(r, 20) ? any64(r) : below(r, 100000);
		break;
	case TXDA_PKT_FILL:
		bytes = sizeof(pkt.fill);
		pkt.fill.dst = any_va(r) & ~3ull;
		pkt.fill.bytes = below(r, 100000) & ~3u;
		break;
	case TXDA_PKT_SIGNAL:
	case TXDA_PKT_WAIT:
		bytes = sizeof(pkt.fence);
		pkt.hdr.flags = pkt.hdr.op == TXDA_PKT_SIGNAL && one_in(r, 2) ? TXDA_SIGNAL_IRQ : 0;
		pkt.fence.va = any_va(r) & ~7ull;
		pkt.fence.value = below(r, 3);
		break;
	case TXDA_PKT_TIMESTAMP:
		bytes = sizeof(pkt.time);
		pkt.time.va = any_va(r) & ~7ull;
		break;
	case TXDA_PKT_EXEC:
		bytes = sizeof(pkt.exec);
		pkt.exec.program_va = any_va(r) & ~63ull;
		pkt.exec.bindings_va = any_va(r) & ~7ull;
		pkt.exec.program_bytes = below(r, 10000);
		pkt.exec.group = one_in(r, 2) ? TXDA_NONE : below(r, 17);
		break;
	case TXDA_PKT_ALL_REDUCE:
	case TXDA_PKT_ALL_GATHER:
		bytes = sizeof(pkt.collective);
		pkt.collective.dst = any_va(r) & ~3ull;
		pkt.collective.src = any_va(r) & ~3ull;
		pkt.collective.count = below(r, 1000);
		pkt.collective.dtype = below(r, 2);
		pkt.collective.group = below(r, 17);
		break;
	}
	pkt.hdr.bytes = bytes;
	if (one_in(r, 12))
		((uint8_t *)&pkt)[below(r, bytes)] = (uint8_t)rnd(r);
	memcpy(to, &pkt, bytes);
	return bytes / 8;
}

/* Packets from the start of a mapping on, or just a look at it. */
static void scribble(void *arg)
{
	struct scribble *s = arg;
	struct rng *r = s->r;
	volatile uint64_t *at = map_at(s->map);
	uint32_t words = (uint32_t)(map_bytes(s->map) / 8);
	uint64_t packet[16];

	if (one_in(r, 4)) {
		(void)at[below(r, words)];
		return;
	}
	for (uint32_t pos = 0, n = below(r, 6) + 1; n && pos < words - 16; n--) {
		uint32_t count = any_packet(r, packet);

		for (uint32_t i = 0; i < count; i++)
			at[pos + i] = packet[i];
		pos += count;
	}
}

static void op_scribble(struct world *w, struct file *f, struct rng *r)
{
	struct scribble s = {w->map[below(r, MAPS_MAX)], r};

	(void)f;
	if (s.map)
		with_faults(scribble, &s);
}

static void op_munmap(struct world *w, struct file *f, struct rng *r)
{
	map_t old;

	(void)f;
	if (!one_in(r, 3))
		return;
	old = __atomic_exchange_n(&w->map[below(r, MAPS_MAX)], 0, __ATOMIC_RELAXED);
	/* In part, at times. */
	if (old)
		munmap(map_at(old), one_in(r, 4) ? PAGE : map_bytes(old));
}

/* ---- Queues --------------------------------------------------------------------------------- */

static void op_queue_create(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_queue_create arg = {
		.vm_id = pool_any(&f->vms, r),
		.class_ = below(r, 2),
		.priority = below(r, 3),
		.flags = one_in(r, 3) ? DRM_TXDA_QUEUE_SHARE : 0,
		.timeout_ms = one_in(r, 10) ? any32(r) : 1 + below(r, 400),
	};

	(void)w;
	if (!f->vms.n && !one_in(r, 10)) {
		op_vm_create(w, f, r);
		return;
	}
	if (f->queues.n && !one_in(r, 4))
		return;
	if (!issue(r, f->fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &arg))
		pool_add(&f->queues, r, arg.id);
}

static void op_queue_destroy(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_queue_destroy arg = {.id = pool_any(&f->queues, r)};

	(void)w;
	if (one_in(r, 4))
		issue(r, f->fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &arg);
}

static void op_queue_state(struct world *w, struct file *f, struct rng *r)
{
	uint8_t answer[DRM_TXDA_MAX_ANSWER_BYTES];
	struct drm_txda_queue_get_state arg = {
		.id = pool_any(&f->queues, r),
		.fault = any_answer(r, answer),
	};

	(void)w;
	issue(r, f->fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &arg);
}

static void op_submit(struct world *w, struct file *f, struct rng *r)
{
	struct drm_txda_sync syncs[8][SYNCS_MAX];
	struct drm_txda_job jobs[8];
	struct drm_txda_queue_submit arg = {.queue_id = pool_any(&f->queues, r)};
	uint32_t n = one_in(r, 4) ? below(r, 8) + 1 : 1;

	if (!f->queues.n && !one_in(r, 10)) {
		op_queue_create(w, f, r);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		bool empty = one_in(r, 3);

		jobs[i] = (struct drm_txda_job){
			.stream_va = empty ? 0 : (1ull << 32) + (uint64_t)below(r, 12) * MIB,
			.stream_bytes = empty ? 0 : 8 * (below(r, 30) + 1),
			.syncs = any_array(r, syncs[i], any_syncs(f, r, syncs[i]),
					   sizeof(syncs[0][0])),
		};
		if (one_in(r, 40))
			((uint8_t *)&jobs[i])[below(r, sizeof(jobs[i]))] = (uint8_t)rnd(r);
	}
	arg.jobs = any_array(r, jobs, n, sizeof(jobs[0]));
	/* A dead queue is given up, sooner or later. */
	if (issue(r, f->fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &arg) == -EIO && one_in(r, 3)) {
		struct drm_txda_queue_destroy dead = {.id = arg.queue_id};

		ioctl(f->fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &dead);
		f->queues.n = 0;
	}
}

/* ---- Syncobjs ------------------------------------------------------------------------------- */

static void op_syncobj(struct world *w, struct file *f, struct rng *r)
{
	struct drm_syncobj_create create = {.flags = any_flags(r, 1)};
	struct drm_syncobj_destroy destroy = {.handle = pool_any(&f->syncobjs, r)};
	uint32_t handles[2] = {pool_any(&f->syncobjs, r), pool_any(&f->syncobjs, r)};
	uint64_t points[2] = {below(r, 20), any64(r)};
	struct drm_syncobj_array array = {.handles = (uintptr_t)handles,
					  .count_handles = 1 + below(r, 2)};
	struct drm_syncobj_timeline_array timeline = {
		.handles = (uintptr_t)handles,
		.points = (uintptr_t)points,
		.count_handles = 1 + below(r, 2),
	};
	struct drm_syncobj_transfer transfer = {
		.src_handle = handles[0],
		.dst_handle = handles[1],
		.src_point = below(r, 5),
		.dst_point = below(r, 20),
	};

	(void)w;
	switch (below(r, 9)) {
	case 0:
	case 1:
		if (!issue(r, f->fd, DRM_IOCTL_SYNCOBJ_CREATE, &create))
			pool_add(&f->syncobjs, r, create.handle);
		break;
	case 2: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy); break;
	case 3: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_RESET, &array); break;
	case 4: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_SIGNAL, &array); break;
	case 5: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, &timeline); break;
	case 6: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_QUERY, &timeline); break;
	default: issue(r, f->fd, DRM_IOCTL_SYNCOBJ_TRANSFER, &transfer);
	}
}

static void op_syncobj_wait(struct world *w, struct file *f, struct rng *r)
{
	uint32_t handles[2] = {pool_any(&f->syncobjs, r), pool_any(&f->syncobjs, r)};
	uint64_t points[2] = {below(r, 20), below(r, 20)};
	struct drm_syncobj_timeline_wait arg = {
		.handles = (uintptr_t)handles,
		.points = (uintptr_t)points,
		.timeout_nsec = now_ns() + below(r, 20000000),
		.count_handles = 1 + below(r, 2),
		.flags = below(r, 16),
	};
	struct drm_syncobj_eventfd event = {
		.handle = handles[0], .point = points[0], .flags = below(r, 8)};

	if (one_in(r, 3)) {
		event.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		keep_fd(w, r, event.fd);
		issue(r, f->fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &event);
		return;
	}
	/* As it is: with another deadline it could last for ever. */
	ioctl(f->fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &arg);
}

static void op_syncobj_fd(struct world *w, struct file *f, struct rng *r)
{
	struct drm_syncobj_handle arg = {
		.handle = pool_any(&f->syncobjs, r), .flags = below(r, 2), .fd = -1};
	struct sync_merge_data merge = {.name = "fuzz"};
	struct sync_fence_info fences[4];
	struct sync_file_info info = {.num_fences = below(r, 5),
				      .sync_fence_info = (uintptr_t)fences};

	switch (below(r, 4)) {
	case 0:
		if (!issue(r, f->fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &arg))
			keep_fd(w, r, arg.fd);
		break;
	case 1:
		arg.fd = any_fd(w, r);
		arg.handle = one_in(r, 2) ? arg.handle : 0;
		if (!issue(r, f->fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &arg) && !arg.flags)
			pool_add(&f->syncobjs, r, arg.handle);
		break;
	case 2:
		merge.fd2 = any_fd(w, r);
		if (!ioctl(any_fd(w, r), SYNC_IOC_MERGE, &merge))
			keep_fd(w, r, merge.fence);
		break;
	default: ioctl(any_fd(w, r), SYNC_IOC_FILE_INFO, &info);
	}
}

/* ---- Processes ------------------------------------------------------------------------------ */

/* A copy of all files and mappings lives for a moment. */
static void op_fork(struct world *w, struct file *f, struct rng *r)
{
	pid_t pid;

	(void)f;
	if (!one_in(r, 60))
		return;
	pid = fork();
	if (!pid) {
		struct rng own = {rnd(r)};

		for (int i = 0; i < 10; i++)
			step(w, &own);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static const struct {
	void (*run)(struct world *w, struct file *f, struct rng *r);
	uint32_t weight;
} ops[] = {
	{op_open, 4},	       {op_close, 1},	    {op_file_calls, 2}, {op_raw, 3},
	{op_query, 2},	       {op_core, 3},	    {op_vm_create, 3},	{op_vm_destroy, 1},
	{op_vm_state, 1},      {op_bind, 10},	    {op_group, 3},	{op_bo_create, 6},
	{op_bo_info, 1},       {op_bo_label, 1},    {op_userptr, 3},	{op_mmap, 6},
	{op_prime, 5},	       {op_scribble, 12},   {op_munmap, 2},	{op_queue_create, 4},
	{op_queue_destroy, 2}, {op_queue_state, 2}, {op_submit, 14},	{op_syncobj, 8},
	{op_syncobj_wait, 3},  {op_syncobj_fd, 5},  {op_fork, 2},	{op_bo_advise, 5},
};

void step(struct world *w, struct rng *r)
{
	uint32_t total = 0, at;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		total += ops[i].weight;
	at = below(r, total);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (at < ops[i].weight) {
			ops[i].run(w, any_file(w, r), r);
			return;
		}
		at -= ops[i].weight;
	}
}
