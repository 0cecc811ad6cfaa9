// SPDX-License-Identifier: MIT
/*
 * node_fault NODE COUNT [hang] - lose COUNT queues: each gets a copy queue on one address space of
 * its own and a job whose stream is not mapped, or with "hang" one that waits for what never comes.
 * The queue must die of it, with the state that belongs to that, and nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <xf86drm.h>
#include "drm/txda_drm.h"
#include "txda_isa.h"

#define STREAM_VA  0x100000ull
#define MISSING_VA 0x700000ull
#define PAGE_BYTES 4096
#define JOB_NS	   60000000000ll

struct client {
	int fd;
	uint32_t vm, syncobj;
	uint8_t *page;
	bool hang;
};

static int command(int fd, unsigned long request, void *arg)
{
	return drmIoctl(fd, request, arg) ? -errno : 0;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int client_open(struct client *c, const char *node)
{
	struct drm_txda_bo_create bo = {.size = PAGE_BYTES, .places = DRM_TXDA_PLACE_HOST};
	struct drm_txda_bo_mmap_offset offset = {0};
	struct drm_txda_bind_op op = {
		.flags = DRM_TXDA_BIND_MAP, .va = STREAM_VA, .size = PAGE_BYTES};
	struct drm_txda_vm_bind bind = {
		.ops = {.stride = sizeof(op), .count = 1, .array = (uintptr_t)&op}};
	struct drm_txda_vm_create vm = {0};
	int err;

	c->fd = open(node, O_RDWR | O_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	err = command(c->fd, DRM_IOCTL_TXDA_BO_CREATE, &bo);
	if (err)
		return err;
	offset.handle = bo.handle;
	err = command(c->fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &offset);
	if (err)
		return err;
	c->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd,
		       (off_t)offset.offset);
	if (c->page == MAP_FAILED)
		return -errno;
	err = command(c->fd, DRM_IOCTL_TXDA_VM_CREATE, &vm);
	if (err)
		return err;
	c->vm = vm.id;
	bind.vm_id = vm.id;
	op.bo = bo.handle;
	err = command(c->fd, DRM_IOCTL_TXDA_VM_BIND, &bind);
	if (err)
		return err;
	return drmSyncobjCreate(c->fd, 0, &c->syncobj) ? -errno : 0;
}

/* A wait for a word of this page that stays 0. */
static void write_stream(struct client *c)
{
	struct txda_pkt_fence wait = {
		.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
		.va = STREAM_VA + PAGE_BYTES / 2,
		.value = 1,
	};

	memcpy(c->page, &wait, sizeof(wait));
}

static int check_state(struct client *c, uint32_t id)
{
	struct drm_txda_fault fault = {0};
	struct drm_txda_queue_get_state state = {
		.id = id,
		.fault = {.size = sizeof(fault), .pointer = (uintptr_t)&fault},
	};
	uint32_t wanted = c->hang ? DRM_TXDA_QUEUE_TIMEDOUT : DRM_TXDA_QUEUE_FATAL_FAULT;
	uint32_t code = c->hang ? TXDA_FAULT_HANG : TXDA_FAULT_PAGE;
	int err;

	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &state);
	if (err)
		return err;
	if (state.state != wanted || fault.code != code || fault.queue_id != id ||
	    state.completed) {
		fprintf(stderr, "state %#x, fault %u of queue %u at %#llx, %llu jobs completed\n",
			state.state, fault.code, fault.queue_id, (unsigned long long)fault.va,
			(unsigned long long)state.completed);
		return -EPROTO;
	}
	return 0;
}

static int lose_queue(struct client *c)
{
	struct drm_txda_queue_create queue = {
		.vm_id = c->vm,
		.class_ = DRM_TXDA_QUEUE_COPY,
		.priority = DRM_TXDA_PRIORITY_NORMAL,
	};
	struct drm_txda_sync sync = {.flags = DRM_TXDA_SYNC_SIGNAL, .handle = c->syncobj};
	struct drm_txda_job job = {
		.stream_va = c->hang ? STREAM_VA : MISSING_VA,
		.stream_bytes = sizeof(struct txda_pkt_fence),
		.syncs = {.stride = sizeof(sync), .count = 1, .array = (uintptr_t)&sync},
	};
	struct drm_txda_queue_submit submit = {
		.jobs = {.stride = sizeof(job), .count = 1, .array = (uintptr_t)&job},
	};
	struct drm_txda_queue_destroy destroy = {0};
	int err;

	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &queue);
	if (err)
		return err;
	submit.queue_id = queue.id;
	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &submit);
	if (err)
		return err;
	if (drmSyncobjWait(c->fd, &c->syncobj, 1, now_ns() + JOB_NS, 0, NULL))
		return -errno;
	err = check_state(c, queue.id);
	if (err)
		return err;
	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &submit);
	if (err != -EIO) {
		fprintf(stderr, "a dead queue answers a job with %d\n", err);
		return -EPROTO;
	}
	destroy.id = queue.id;
	return command(c->fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &destroy);
}

int main(int argc, char **argv)
{
	struct client c = {.fd = -1};
	long count, i;
	int err;

	if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "hang"))) {
		fprintf(stderr, "usage: node_fault NODE COUNT [hang]\n");
		return 2;
	}
	c.hang = argc == 4;
	count = atol(argv[2]);
	err = client_open(&c, argv[1]);
	if (!err)
		write_stream(&c);
	for (i = 0; !err && i < count; i++)
		err = lose_queue(&c);
	if (err) {
		fprintf(stderr, "%s: queue %ld: %s\n", argv[1], i, strerror(-err));
		return 1;
	}
	printf("lost %ld\n", i);
	return 0;
}
