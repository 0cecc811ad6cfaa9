/* SPDX-License-Identifier: MIT */
/*
 * What tests of the ioctls share: they talk to nodes of the driver through nothing but system calls.
 *
 * A program is tests and a call of run_tests(). Each test runs in a child process of its
 * own and has passed when it returns; a check that fails says where and ends it. With names as
 * arguments only those tests run. Exit status 1 when one failed, 77 when there is no node.
 *
 * The thin wrappers return 0 or -errno; those named must_… end the test instead of failing.
 */
#ifndef TXDA_TEST_IOCTL_H
#define TXDA_TEST_IOCTL_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drm/txda_drm.h"
#include "txda_isa.h"
#include "txda_regs.h"

/* The oldest libdrm that this builds with does not have it. */
#ifndef DRM_IOCTL_SYNCOBJ_EVENTFD
struct drm_syncobj_eventfd {
	__u32 handle;
	__u32 flags;
	__u64 point;
	__s32 fd;
	__u32 pad;
};
#define DRM_IOCTL_SYNCOBJ_EVENTFD DRM_IOWR(0xCF, struct drm_syncobj_eventfd)
#endif

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define PAGE	      4096u
#define MIB	      (1ull << 20)

/* ---- Tests ---------------------------------------------------------------------------------- */

/*
 * A test. They run in the order of the source: gcc and clang put the constructors of one file into
 * .init_array in that order, and a program has its tests in one file.
 */
#define TEST(name)                                                                                 \
	static void name(void);                                                                    \
	__attribute__((constructor)) static void add_##name(void)                                  \
	{                                                                                          \
		add_test(#name, name);                                                             \
	}                                                                                          \
	static void name(void)

void add_test(const char *name, void (*run)(void));
/* In names as arguments "-" is "_". One that is no test's fails before any test runs. */
int run_tests(int argc, char **argv);

__attribute__((noreturn, format(printf, 3, 4))) void fail_at(const char *file, int line,
							     const char *format, ...);

#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail("%s", #condition);                                                    \
	} while (0)

#define check_equal(a, b)                                                                          \
	do {                                                                                       \
		unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b);     \
		if (a_ != b_)                                                                      \
			fail("%s is %llu (%#llx), %s is %llu (%#llx)", #a, a_, a_, #b, b_, b_);    \
	} while (0)

/* @call: an int, 0 or -errno. */
#define must(call)                                                                                 \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_)                                                                          \
			fail("%s: %s", #call, strerror_of(err_));                                  \
	} while (0)

#define must_fail(call, error)                                                                     \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_ != -(error))                                                              \
			fail("%s: %s, expected %s", #call, strerror_of(err_),                      \
			     strerror_of(-(error)));                                               \
	} while (0)

const char *strerror_of(int err);

/* Ends the test as one that cannot be done here. */
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *format, ...);

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* Runs "vmhost WORDS" of the rig, which reaches the device model. Skips where there is no rig. */
__attribute__((format(printf, 1, 2))) void vmhost(const char *format, ...);

/* Waits for the condition, with patience. */
#define must_become(condition)                                                                     \
	do {                                                                                       \
		int64_t end_ = now_ns() + PATIENCE;                                                \
		while (!(condition)) {                                                             \
			if (now_ns() > end_)                                                       \
				fail("%s does not come", #condition);                              \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

/* 0 in the child. It has to end well, or by SIGKILL. */
pid_t must_fork(void);
void must_end(pid_t pid);
void must_kill(pid_t pid);

/* Whether the debugfs file @name of a chip has a line with @text. For root. */
bool is_in_debugfs(const char *name, const char *text);

/* ---- Nodes ---------------------------------------------------------------------------------- */

/* An ioctl that is done again when a signal came. */
int call(int fd, unsigned long request, void *arg);

/* How many nodes this driver has. */
unsigned int node_count(void);
/* Opens the node of the chip that is number @i by its place on the card. */
int must_open(unsigned int i);

int query(int fd, uint32_t type, void *answer, uint32_t bytes);
/* How often the chip was reset. */
uint64_t chip_resets(int fd);
int query_port(int fd, uint32_t port, struct drm_txda_port_info *ret_info);
struct drm_txda_answer answer_of(void *to, uint32_t bytes);
/*
 * The struct drm_txda_answer at offset @at of the good argument: what it may be, and what not. The
 * kernel's struct has @known bytes.
 */
void must_answer(int fd, unsigned long request, const void *good, size_t bytes, size_t at,
		 uint32_t known);

/* ---- Memory --------------------------------------------------------------------------------- */

int vm_create(int fd, uint32_t *ret_vm);
int vm_destroy(int fd, uint32_t vm);
uint32_t must_vm(int fd);
/* DRM_TXDA_VM_*. */
uint32_t vm_state(int fd, uint32_t vm);

int bo_create(int fd, uint64_t bytes, uint32_t places, uint32_t flags, uint32_t vm,
	      uint32_t *ret_handle);
int gem_close(int fd, uint32_t handle);
void *must_map(int fd, uint32_t handle, uint64_t bytes);
/* One synchronous operation. @kind: DRM_TXDA_BIND_*. */
int bind_one(int fd, uint32_t vm, uint32_t kind, uint32_t handle, uint64_t offset, uint64_t va,
	     uint64_t bytes);
/* Asynchronous ones. */
int bind_async(int fd, uint32_t vm, const struct drm_txda_bind_op *ops, uint32_t count);
struct drm_txda_array array_of(const void *elements, uint32_t count, uint32_t stride);

/* A buffer that is mapped everywhere. */
struct mem {
	uint32_t handle;
	uint64_t va;
	uint64_t bytes;
	void *cpu;
};

/* In host memory; each at a VA that no other of the process has. */
struct mem must_mem(int fd, uint32_t vm, uint64_t bytes);
struct mem must_mem_in(int fd, uint32_t vm, uint64_t bytes, uint32_t place);

/* ---- Queues --------------------------------------------------------------------------------- */

int queue_create_as(int fd, uint32_t vm, uint32_t class, uint32_t priority, uint32_t timeout_ms,
		    uint32_t *ret_queue);
int queue_destroy(int fd, uint32_t queue);
uint32_t must_queue(int fd, uint32_t vm);
/* For compute, whose jobs have so long. */
uint32_t must_queue_for(int fd, uint32_t vm, uint32_t timeout_ms);
struct drm_txda_queue_get_state must_state(int fd, uint32_t queue);
struct drm_txda_fault must_fault_of(int fd, uint32_t queue);

int submit_jobs(int fd, uint32_t queue, const struct drm_txda_job *jobs, uint32_t count);
/* One job. @syncs may be NULL when @n_syncs is 0. */
int submit(int fd, uint32_t queue, uint64_t va, uint32_t bytes, const struct drm_txda_sync *syncs,
	   uint32_t n_syncs);
/* The same, signals a fence and waits for it; the status of fence_status(). */
int submit_wait(int fd, uint32_t queue, uint64_t va, uint32_t bytes);
struct stream;
/* Submits @s, NULL: an empty job, and returns the syncobj that it signals. */
uint32_t must_submit(int fd, uint32_t queue, const struct stream *s);

/* Command packets, one after the other in @mem. */
struct stream {
	struct mem mem;
	uint32_t bytes;
};

struct stream must_stream(int fd, uint32_t vm);
void put_nop(struct stream *s);
void put_copy(struct stream *s, uint64_t dst, uint64_t src, uint64_t bytes);
void put_fill(struct stream *s, uint64_t dst, uint64_t bytes, uint32_t value);
void put_signal(struct stream *s, uint64_t va, uint64_t value);
void put_wait(struct stream *s, uint64_t va, uint64_t value);
void put_collective(struct stream *s, uint16_t op, uint64_t dst, uint64_t src, uint64_t count,
		    uint32_t dtype, uint32_t group);
/* A fill of 64 GiB: one buffer of device memory, mapped many times in a row. */
struct stream must_long_fill(int fd, uint32_t vm);
/* A stream that waits for a word of memory to be 1. */
struct stream must_block(int fd, uint32_t vm, struct mem *ret_word);
/* A job that holds others up until gate_open(), and the queue that it is on. */
struct gate {
	uint32_t queue;
	uint32_t fence; /* binary; signals when the gate opens */
	struct mem word;
};

struct gate must_gate(int fd, uint32_t vm);
void gate_open(const struct gate *gate);
/* Whatever bytes; a multiple of 8. */
void put_bytes(struct stream *s, const void *bytes, uint32_t count);

/* ---- Syncobjs ------------------------------------------------------------------------------- */

#define SECOND 1000000000ll
/* Longer than any job that ends takes, even on a debug kernel in an emulated machine. */
#define PATIENCE (240 * SECOND)

uint32_t must_syncobj(int fd);
void syncobj_destroy(int fd, uint32_t handle);
struct drm_txda_sync wait_for(uint32_t handle);
struct drm_txda_sync signals(uint32_t handle);
struct drm_txda_sync wait_for_point(uint32_t handle, uint64_t point);
struct drm_txda_sync signals_point(uint32_t handle, uint64_t point);

/* 0, -ETIME, or another -errno. A point of 0: a binary syncobj. @timeout_ns from now. */
int syncobj_wait(int fd, uint32_t handle, uint64_t point, int64_t timeout_ns);
int syncobj_signal(int fd, uint32_t handle);
int syncobj_signal_point(int fd, uint32_t handle, uint64_t point);
int syncobj_reset(int fd, uint32_t handle);
uint64_t must_last_point(int fd, uint32_t handle);
/* A sync_file with the fence of a binary syncobj. */
int must_sync_file(int fd, uint32_t handle);
/* Another handle for the same syncobj in the file @to. */
uint32_t must_share_syncobj(int from, uint32_t handle, int to);

/*
 * Waits for the fence of a binary syncobj and tells how it ended: 0, or the negative error that it
 * signalled with.
 */
int fence_status(int fd, uint32_t handle);
/* The same of a sync_file, without waiting; 1: it has not signalled. */
int sync_file_status(int sync_file);

#endif
