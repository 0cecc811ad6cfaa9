// SPDX-License-Identifier: MIT
/*
 * node_load [-s SECONDS] [-p MS] [-k] [-g] NODE - keep a chip at work through nothing but ioctls: fill
 * device memory, copy it to host memory, look whether it came, again and again, with pauses of MS (0)
 * milliseconds: an emulated processor that always computes delays what waits for it.
 *
 * Work that is lost (a reset, a fault of the chip, removal) is counted and begun anew on the same
 * file, as a program that wants to survive would. Device memory that no job touches must keep what
 * it had as long as nothing is lost. It ends after SECONDS (10) and one job at least, at SIGINT, or
 * when the chip is gone; with -k it then keeps the file and its mappings, touches the mappings of
 * device memory, which must kill nothing but the access, and waits for the end of its input.
 *
 * With -g the chip may be gone before anything is done. Prints
 * "jobs N lost N gone 0|1". Exit status 1 when wrong data came, or an error that no loss explains.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
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

#define HOST_VA	     0x100000ull
#define DEVICE_VA    0x40000000ull
#define WORK_BYTES   (1u << 20) /* of device memory, what jobs fill; then what stays */
#define DEVICE_BYTES (2u << 20)
#define CHUNK	     (64u << 10)
#define HOST_BYTES   (2 * CHUNK) /* what is copied back, then the stream */
#define JOB_NS	     30000000000ll
#define GONE_NS	     10000000000ll

struct client {
	int fd;
	uint32_t vm, queue, syncobj;
	uint32_t device_bo, host_bo;
	uint8_t *device, *host;
	unsigned long jobs, lost;
	useconds_t pause_us; /* after each job */
};

struct stream {
	struct txda_pkt_fill fill;
	struct txda_pkt_copy copy;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int command(int fd, unsigned long request, void *arg)
{
	return drmIoctl(fd, request, arg) ? -errno : 0;
}

static int make_bo(struct client *c, uint32_t places, uint64_t size, uint32_t *ret_bo,
		   uint8_t **ret_map)
{
	struct drm_txda_bo_create create = {.size = size, .places = places};
	struct drm_txda_bo_mmap_offset offset = {0};
	void *map;
	int err;

	err = command(c->fd, DRM_IOCTL_TXDA_BO_CREATE, &create);
	if (err)
		return err;
	*ret_bo = create.handle;
	offset.handle = create.handle;
	err = command(c->fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &offset);
	if (err)
		return err;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, (off_t)offset.offset);
	if (map == MAP_FAILED)
		return -errno;
	*ret_map = map;
	return 0;
}

static int bind_bo(struct client *c, uint32_t bo, uint64_t va, uint64_t size)
{
	struct drm_txda_bind_op op = {.flags = DRM_TXDA_BIND_MAP, .bo = bo, .va = va, .size = size};
	struct drm_txda_vm_bind bind = {
		.vm_id = c->vm,
		.ops = {.stride = sizeof(op), .count = 1, .array = (uintptr_t)&op},
	};

	return command(c->fd, DRM_IOCTL_TXDA_VM_BIND, &bind);
}

/* What outlives a lost queue: an address space and buffers. */
static int client_open(struct client *c, const char *node)
{
	struct drm_txda_vm_create vm = {0};
	int err;

	c->fd = open(node, O_RDWR | O_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	err = make_bo(c, DRM_TXDA_PLACE_DEVICE, DEVICE_BYTES, &c->device_bo, &c->device);
	if (!err)
		err = make_bo(c, DRM_TXDA_PLACE_HOST, HOST_BYTES, &c->host_bo, &c->host);
	if (!err)
		err = drmSyncobjCreate(c->fd, 0, &c->syncobj) ? -errno : 0;
	if (!err)
		err = command(c->fd, DRM_IOCTL_TXDA_VM_CREATE, &vm);
	if (err)
		return err;
	c->vm = vm.id;
	return 0;
}

/* What a loss takes: the queue, and after a function reset the address space. */
static int client_begin(struct client *c)
{
	struct drm_txda_queue_create queue = {.class_ = DRM_TXDA_QUEUE_COPY,
					      .priority = DRM_TXDA_PRIORITY_NORMAL};
	struct drm_txda_queue_destroy destroy = {.id = c->queue};
	struct drm_txda_vm_destroy old = {.id = c->vm};
	struct drm_txda_vm_create vm = {0};
	int err;

	if (c->queue) {
		err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &destroy);
		if (err)
			return err;
		c->queue = 0;
	}
	if (c->vm) {
		err = command(c->fd, DRM_IOCTL_TXDA_VM_DESTROY, &old);
		if (err)
			return err;
		c->vm = 0;
	}
	err = command(c->fd, DRM_IOCTL_TXDA_VM_CREATE, &vm);
	if (err)
		return err;
	c->vm = vm.id;
	err = bind_bo(c, c->device_bo, DEVICE_VA, DEVICE_BYTES);
	if (!err)
		err = bind_bo(c, c->host_bo, HOST_VA, HOST_BYTES);
	if (err)
		return err;
	queue.vm_id = c->vm;
	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &queue);
	if (err)
		return err;
	c->queue = queue.id;
	return 0;
}

static int submit(struct client *c, uint32_t value, uint64_t at)
{
	struct stream *stream = (struct stream *)(c->host + CHUNK);
	struct drm_txda_sync sync = {.flags = DRM_TXDA_SYNC_SIGNAL, .handle = c->syncobj};
	struct drm_txda_job job = {
		.stream_va = HOST_VA + CHUNK,
		.stream_bytes = sizeof(*stream),
		.syncs = {.stride = sizeof(sync), .count = 1, .array = (uintptr_t)&sync},
	};
	struct drm_txda_queue_submit args = {
		.queue_id = c->queue,
		.jobs = {.stride = sizeof(job), .count = 1, .array = (uintptr_t)&job},
	};

	*stream = (struct stream){
		.fill =
			{
				.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(stream->fill)},
				.dst = DEVICE_VA + at,
				.bytes = CHUNK,
				.value = value,
			},
		.copy =
			{
				.hdr = {.op = TXDA_PKT_COPY, .bytes = sizeof(stream->copy)},
				.dst = HOST_VA,
				.src = DEVICE_VA + at,
				.bytes = CHUNK,
			},
	};
	return command(c->fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &args);
}

/* Whether a queue has died, which explains whatever went wrong with its job. */
static int queue_died(struct client *c, bool *ret_died)
{
	struct drm_txda_queue_get_state state = {.id = c->queue};
	int err;

	err = command(c->fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &state);
	if (!err)
		*ret_died = state.state != 0;
	return err;
}

/* One job. 1: the work was lost; -ENODEV: the chip is gone. */
static int one_job(struct client *c, uint32_t value)
{
	uint64_t at = (uint64_t)value * CHUNK % WORK_BYTES;
	bool died = false;
	int err;

	err = submit(c, value, at);
	if (err == -EIO)
		return 1;
	if (err)
		return err;
	if (drmSyncobjWait(c->fd, &c->syncobj, 1, now_ns() + JOB_NS, 0, NULL))
		return -errno;
	if (drmSyncobjReset(c->fd, &c->syncobj, 1))
		return -errno;
	err = queue_died(c, &died);
	if (err)
		return err;
	if (died)
		return 1;
	for (uint32_t i = 0; i < CHUNK / 4; i++) {
		uint32_t word = ((volatile uint32_t *)c->host)[i];

		if (word != value) {
			fprintf(stderr, "word %u is %#x, not %#x\n", i, word, value);
			return -EILSEQ;
		}
	}
	return 0;
}

static sigjmp_buf bus_error;

static void on_bus_error(int signal)
{
	(void)signal;
	siglongjmp(bus_error, 1);
}

/*
 * Device memory of a chip that is gone: each access is a SIGBUS, and nothing else. The kernel
 * refuses ioctls before it takes mappings away.
 */
static bool device_memory_is_gone(struct client *c)
{
	int64_t end_ns = now_ns() + GONE_NS;
	volatile uint32_t at = 0;

	while (at < DEVICE_BYTES) {
		if (sigsetjmp(bus_error, 1)) {
			at += 4096;
			continue;
		}
		*(volatile uint8_t *)(c->device + at);
		if (now_ns() >= end_ns)
			return false;
		usleep(10000);
	}
	return true;
}

static uint32_t kept_word(uint32_t i)
{
	return i * 2654435761u ^ 0x5bd1e995u;
}

static int write_kept(struct client *c)
{
	volatile uint32_t *word = (volatile uint32_t *)(c->device + WORK_BYTES);

	if (sigsetjmp(bus_error, 1))
		return -ENODEV;
	for (uint32_t i = 0; i < (DEVICE_BYTES - WORK_BYTES) / 4; i++)
		word[i] = kept_word(i);
	return 0;
}

static int check_kept(struct client *c)
{
	volatile uint32_t *word = (volatile uint32_t *)(c->device + WORK_BYTES);

	if (sigsetjmp(bus_error, 1))
		return -ENODEV;
	for (uint32_t i = 0; i < (DEVICE_BYTES - WORK_BYTES) / 4; i++) {
		uint32_t has = word[i];

		if (has != kept_word(i)) {
			fprintf(stderr, "device memory: word %u is %#x, not %#x\n", i, has,
				kept_word(i));
			return -EILSEQ;
		}
	}
	return 0;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* Sets up work; the chip may be lost meanwhile, and again. */
static int begin(struct client *c, int64_t end_ns)
{
	int err;

	do
		err = client_begin(c);
	while (err == -EIO && now_ns() < end_ns && !interrupted);
	return err;
}

static int run(struct client *c, const char *node, int64_t end_ns)
{
	uint32_t value = (uint32_t)getpid() << 16;
	int err;

	err = client_open(c, node);
	if (!err)
		err = write_kept(c);
	if (!err)
		err = begin(c, end_ns);
	while (!err) {
		err = one_job(c, value++);
		if (err > 0) {
			c->lost++;
			err = begin(c, end_ns);
		} else if (!err) {
			c->jobs++;
		}
		if (now_ns() >= end_ns || interrupted)
			break;
		if (!err && c->pause_us)
			usleep(c->pause_us);
	}
	if (!err && !c->lost)
		err = check_kept(c);
	return err;
}

int main(int argc, char **argv)
{
	struct sigaction bus = {.sa_handler = on_bus_error, .sa_flags = SA_NODEFER};
	struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
	struct client c = {.fd = -1};
	int64_t seconds = 10;
	bool keep = false, may_be_gone = false, gone;
	int option, err;
	char byte;

	while ((option = getopt(argc, argv, "s:p:kg")) != -1) {
		switch (option) {
		case 's': seconds = atoll(optarg); break;
		case 'p': c.pause_us = (useconds_t)atoi(optarg) * 1000; break;
		case 'k': keep = true; break;
		case 'g': may_be_gone = true; break;
		default: return 2;
		}
	}
	if (optind != argc - 1) {
		fprintf(stderr, "usage: node_load [-s SECONDS] [-p MS] [-k] [-g] NODE\n");
		return 2;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGINT, &interrupt, NULL);
	err = run(&c, argv[optind], now_ns() + seconds * 1000000000ll);
	gone = err == -ENODEV || (may_be_gone && c.fd < 0 && (err == -ENOENT || err == -ENXIO));
	if (gone && c.device && !device_memory_is_gone(&c)) {
		fprintf(stderr, "device memory is still mapped\n");
		err = -EFAULT;
	}
	printf("jobs %lu lost %lu gone %d\n", c.jobs, c.lost, gone);
	fflush(stdout);
	if (gone && keep)
		while (read(STDIN_FILENO, &byte, 1) > 0)
			;
	if (err && !gone)
		fprintf(stderr, "%s: %s\n", argv[optind], strerror(-err));
	return (err && !gone) || err == -EFAULT;
}
