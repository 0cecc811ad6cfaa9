// SPDX-License-Identifier: MIT
/*
 * Jobs that wait for one another through syncobjs: binary and timeline, across queues, files and
 * chips, and fences that others hold when their maker is gone.
 */
#include "common.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <linux/sync_file.h>

static int fd;
static uint32_t vm;

static void setup(void)
{
	fd = must_open(0);
	vm = must_vm(fd);
}

/* Nothing that waits behind the gate has ended. */
static void check_closed(uint32_t handle, uint64_t point)
{
	must_fail(syncobj_wait(fd, handle, point, SECOND / 50), ETIME);
}

/* An empty job that waits for one and signals the other. */
static void must_chain(uint32_t queue, struct drm_txda_sync first, struct drm_txda_sync second)
{
	must(submit(fd, queue, 0, 0, (struct drm_txda_sync[]){first, second}, 2));
}

/* One that has only the one. */
static int submit_one(uint32_t queue, struct drm_txda_sync sync)
{
	return submit(fd, queue, 0, 0, &sync, 1);
}

/* ---- Binary --------------------------------------------------------------------------------- */

TEST(binary)
{
	uint32_t queue, done, obj;
	struct gate gate;

	setup();
	gate = must_gate(fd, vm);
	queue = must_queue(fd, vm);
	done = must_syncobj(fd);
	must_chain(queue, wait_for(gate.fence), signals(done));
	check_closed(done, 0);
	/* One syncobj is waited for and signalled by the same job. */
	obj = must_share_syncobj(fd, gate.fence, fd);
	must_chain(must_queue(fd, vm), signals(obj), wait_for(obj));
	check_closed(gate.fence, 0);
	gate_open(&gate);
	must(fence_status(fd, gate.fence));
	must(fence_status(fd, done));
	/* What has signalled may be waited for again and again. */
	for (int i = 0; i < 10; i++)
		must_chain(queue, wait_for(gate.fence), signals(done));
	must(fence_status(fd, done));
	/* A reset syncobj has no fence. */
	must(syncobj_reset(fd, done));
	must_fail(submit_one(queue, wait_for(done)), ENOENT);
	must(syncobj_signal(fd, done));
	must(submit_one(queue, wait_for(done)));
}

/* Within one call a job may wait for what one before it signals, and for nothing after it. */
TEST(same_call)
{
	struct drm_txda_job jobs[4] = {0};
	struct drm_txda_sync first[2], second[2], third, last;
	uint32_t queue, a, b, t, done;

	setup();
	queue = must_queue(fd, vm);
	a = must_syncobj(fd);
	b = must_syncobj(fd);
	t = must_syncobj(fd);
	done = must_syncobj(fd);
	first[0] = signals(a);
	first[1] = signals_point(t, 5);
	second[0] = wait_for(a);
	second[1] = signals(b);
	third = wait_for_point(t, 5);
	last = signals(done);
	jobs[0].syncs = array_of(first, 2, sizeof(first[0]));
	jobs[1].syncs = array_of(second, 2, sizeof(first[0]));
	jobs[2].syncs = array_of(&third, 1, sizeof(first[0]));
	jobs[3].syncs = array_of(&last, 1, sizeof(first[0]));
	must(submit_jobs(fd, queue, jobs, 4));
	must(fence_status(fd, done));
	check_equal(must_last_point(fd, t), 5);

	/* A point above, and an element that comes later. */
	must(syncobj_reset(fd, a));
	third = wait_for_point(t, 7);
	must_fail(submit_jobs(fd, queue, jobs, 4), ENOENT);
	third = wait_for_point(t, 5);
	must(syncobj_reset(fd, b));
	first[0] = wait_for(b);
	must_fail(submit_jobs(fd, queue, jobs, 4), ENOENT);
	check_equal(must_last_point(fd, t), 5);
	check_equal(must_state(fd, queue).submitted, 4);
}

/*
 * Within one call, a wait for a point of a timeline that others have work on: the point comes when
 * theirs have.
 */
TEST(same_call_behind_others)
{
	struct drm_txda_job jobs[2] = {0};
	struct drm_txda_sync first, second[2];
	uint32_t t, done;
	struct gate gate;

	setup();
	gate = must_gate(fd, vm);
	t = must_syncobj(fd);
	done = must_syncobj(fd);
	must_chain(must_queue(fd, vm), wait_for(gate.fence), signals_point(t, 1));
	first = signals_point(t, 2);
	second[0] = wait_for_point(t, 2);
	second[1] = signals(done);
	jobs[0].syncs = array_of(&first, 1, sizeof(first));
	jobs[1].syncs = array_of(second, 2, sizeof(first));
	must(submit_jobs(fd, must_queue(fd, vm), jobs, 2));
	check_closed(done, 0);
	/* But a binary signal leaves nothing of what was before. */
	first = signals(gate.fence);
	second[0] = wait_for(gate.fence);
	must(submit_jobs(fd, must_queue(fd, vm), jobs, 2));
	must(fence_status(fd, done));
	gate_open(&gate);
	must(syncobj_wait(fd, t, 2, PATIENCE));
}

/* Many operations of a call, each with as many waits as it can have; the last one tells of the end. */
TEST(many_waits)
{
	const uint32_t n = 1024;
	struct drm_txda_sync syncs[DRM_TXDA_MAX_SYNCS], last[DRM_TXDA_MAX_SYNCS];
	struct drm_txda_bind_op *ops = calloc(n, sizeof(*ops));
	uint32_t handle;

	check(ops);
	setup();
	handle = must_syncobj(fd);
	must(syncobj_signal(fd, handle));
	for (uint32_t i = 0; i < DRM_TXDA_MAX_SYNCS; i++)
		last[i] = syncs[i] = wait_for(handle);
	last[DRM_TXDA_MAX_SYNCS - 1] = signals(must_syncobj(fd));
	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct drm_txda_bind_op){
			.flags = DRM_TXDA_BIND_SYNC_ONLY,
			.syncs = array_of(i == n - 1 ? last : syncs, DRM_TXDA_MAX_SYNCS,
					  sizeof(syncs[0])),
		};
	must(bind_async(fd, vm, ops, n));
	must(fence_status(fd, last[DRM_TXDA_MAX_SYNCS - 1].handle));
	free(ops);
}

/* Asynchronous binds that wait are as many as are left over for one address space, then one waits. */
TEST(many_binds)
{
	const uint32_t n = 1024;
	struct drm_txda_bind_op *ops = calloc(n, sizeof(*ops));
	struct drm_txda_sync sync, done;
	uint32_t flooded;
	struct gate gate;
	uint32_t calls = 0;
	int err;

	setup();
	gate = must_gate(fd, vm);
	flooded = must_vm(fd);
	sync = wait_for(gate.fence);
	check(ops);
	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct drm_txda_bind_op){
			.flags = DRM_TXDA_BIND_SYNC_ONLY,
			.syncs = array_of(&sync, 1, sizeof(sync)),
		};
	while (!(err = bind_async(fd, flooded, ops, n)))
		check(++calls < 64);
	must_fail(err, EBUSY);
	/* Enough for the largest call. */
	check(calls >= DRM_TXDA_MAX_BIND_OPS / n);
	/* Other address spaces have their own. */
	done = signals(must_syncobj(fd));
	ops[0].syncs = array_of(&done, 1, sizeof(done));
	must(bind_async(fd, vm, ops, 1));
	must(fence_status(fd, done.handle));
	gate_open(&gate);
	/* What is done is cleaned up a moment later. */
	must_become((err = bind_async(fd, flooded, ops, 1)) != -EBUSY);
	must(err);
	free(ops);
}

/* The same syncobj, again and again, among others that fill the books. */
TEST(same_call_many)
{
	enum { JOBS = 64, OWN = 31 };
	struct drm_txda_sync syncs[JOBS][2 * OWN + 2];
	struct drm_txda_job jobs[JOBS] = {0};
	uint32_t queue, others[OWN], ring, t;

	setup();
	queue = must_queue(fd, vm);
	ring = must_syncobj(fd);
	t = must_syncobj(fd);
	for (uint32_t i = 0; i < OWN; i++)
		others[i] = must_syncobj(fd);
	for (uint32_t i = 0; i < JOBS; i++) {
		uint32_t n = 0;

		/* What the job before signals, whatever it is, and what it does not signal yet. */
		for (uint32_t k = 0; i && k < OWN; k++)
			syncs[i][n++] = wait_for(others[k]);
		if (i)
			syncs[i][n++] = wait_for_point(t, i);
		for (uint32_t k = 0; k < OWN; k++)
			syncs[i][n++] = signals(others[k]);
		syncs[i][n++] = i == JOBS - 1 ? signals(ring) : signals_point(t, i + 1);
		jobs[i].syncs = array_of(syncs[i], n, sizeof(syncs[0][0]));
	}
	must(submit_jobs(fd, queue, jobs, JOBS));
	must(fence_status(fd, ring));
	check_equal(must_last_point(fd, t), JOBS - 1);
	syncs[5][OWN] = wait_for_point(t, 100);
	must_fail(submit_jobs(fd, queue, jobs, JOBS), ENOENT);
	check_equal(must_state(fd, queue).submitted, JOBS);
}

/* ---- Timelines ------------------------------------------------------------------------------ */

TEST(timeline)
{
	uint32_t queue, t;
	struct gate gate;

	setup();
	gate = must_gate(fd, vm);
	queue = must_queue(fd, vm);
	t = must_syncobj(fd);
	for (uint64_t point = 1; point <= 10; point++) {
		if (point == 4)
			must_chain(queue, wait_for(gate.fence), signals_point(t, point));
		else
			must(submit_one(queue, signals_point(t, point)));
	}
	must(syncobj_wait(fd, t, 3, PATIENCE));
	check_equal(must_last_point(fd, t), 3);
	check_closed(t, 4);
	gate_open(&gate);
	must(syncobj_wait(fd, t, 10, PATIENCE));
	check_equal(must_last_point(fd, t), 10);
	/* Points that were skipped over count as their successors. */
	must(submit_one(queue, signals_point(t, 100)));
	must(submit_one(queue, wait_for_point(t, 50)));
	must_fail(submit_one(queue, wait_for_point(t, 101)), ENOENT);
	must(syncobj_signal_point(fd, t, 200));
	must(submit_one(queue, wait_for_point(t, 101)));
	/* A syncobj that only ever was binary has no points. */
	must_fail(submit_one(queue, wait_for_point(gate.fence, 1)), ENOENT);
}

/* Two queues hand work to and fro; every step checks what the last one left. */
TEST(ping_pong)
{
	const uint32_t steps = 400;
	struct drm_txda_sync syncs[2];
	struct mem words, seen;
	uint32_t queues[2], t;

	setup();
	queues[0] = must_queue(fd, vm);
	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COPY, 0, 0, &queues[1]));
	t = must_syncobj(fd);
	words = must_mem_in(fd, vm, PAGE, DRM_TXDA_PLACE_DEVICE);
	seen = must_mem(fd, vm, steps * 8);
	for (uint32_t i = 0; i < steps; i++) {
		struct stream s = must_stream(fd, vm);

		put_copy(&s, seen.va + i * 8, words.va, 8);
		put_signal(&s, words.va, i + 1);
		syncs[0] = wait_for_point(t, i);
		syncs[1] = signals_point(t, i + 1);
		must(submit(fd, queues[i % 2], s.mem.va, s.bytes, i ? syncs : syncs + 1,
			    i ? 2 : 1));
	}
	must(syncobj_wait(fd, t, steps, PATIENCE));
	for (uint32_t i = 0; i < steps; i++)
		check_equal(((uint64_t *)seen.cpu)[i], i);
}

/* A queue's own timeline, with more in flight than is looked at one by one. */
TEST(deep_timeline)
{
	const uint32_t steps = 900;
	uint32_t queue, t;
	struct gate gate;

	setup();
	gate = must_gate(fd, vm);
	queue = must_queue(fd, vm);
	t = must_syncobj(fd);
	must_chain(queue, wait_for(gate.fence), signals_point(t, 1));
	for (uint32_t i = 1; i < steps; i++)
		must_chain(queue, wait_for_point(t, i), signals_point(t, i + 1));
	check_closed(t, 1);
	gate_open(&gate);
	must(syncobj_wait(fd, t, steps, PATIENCE));
	check_equal(must_state(fd, queue).completed, steps);
}

/* Points of a timeline copied from one syncobj to another, and merged through a sync_file. */
TEST(transfer)
{
	uint32_t t, copy, done;
	struct gate gate;

	setup();
	gate = must_gate(fd, vm);
	t = must_syncobj(fd);
	copy = must_syncobj(fd);
	done = must_syncobj(fd);
	must_chain(must_queue(fd, vm), wait_for(gate.fence), signals_point(t, 3));
	for (uint64_t point = 1; point <= 300; point++) {
		struct drm_syncobj_transfer arg = {
			.src_handle = t, .dst_handle = copy, .src_point = 3, .dst_point = point};

		must(call(fd, DRM_IOCTL_SYNCOBJ_TRANSFER, &arg));
	}
	must_chain(must_queue(fd, vm), wait_for_point(copy, 300), signals(done));
	check_closed(done, 0);
	gate_open(&gate);
	must(fence_status(fd, done));
}

TEST(merged)
{
	struct sync_merge_data merge = {.name = "two"};
	struct drm_syncobj_handle handle = {
		.flags = DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE};
	struct gate gates[2];
	uint32_t both, done;
	int file;

	setup();
	gates[0] = must_gate(fd, vm);
	gates[1] = must_gate(fd, vm);
	both = must_syncobj(fd);
	done = must_syncobj(fd);
	file = must_sync_file(fd, gates[0].fence);
	merge.fd2 = must_sync_file(fd, gates[1].fence);
	must(call(file, SYNC_IOC_MERGE, &merge));
	handle.fd = merge.fence;
	handle.handle = both;
	must(call(fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &handle));
	must_chain(must_queue(fd, vm), wait_for(both), signals(done));
	gate_open(&gates[1]);
	must(fence_status(fd, gates[1].fence));
	check_closed(done, 0);
	gate_open(&gates[0]);
	must(fence_status(fd, done));
}

TEST(event)
{
	struct drm_syncobj_eventfd arg = {.point = 2};
	uint64_t count;
	struct pollfd p;
	uint32_t queue;

	setup();
	queue = must_queue(fd, vm);
	arg.handle = must_syncobj(fd);
	arg.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	check(arg.fd >= 0);
	must(call(fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &arg));
	must(submit_one(queue, signals_point(arg.handle, 1)));
	must(syncobj_wait(fd, arg.handle, 1, PATIENCE));
	check(read(arg.fd, &count, sizeof(count)) < 0 && errno == EAGAIN);
	must(submit_one(queue, signals_point(arg.handle, 2)));
	p = (struct pollfd){.fd = arg.fd, .events = POLLIN};
	check(poll(&p, 1, (int)(PATIENCE / 1000000)) == 1);
	check(read(arg.fd, &count, sizeof(count)) == sizeof(count) && count == 1);
}

/* ---- Across files and chips ----------------------------------------------------------------- */

/* Work goes round through files of two chips. */
TEST(across_chips)
{
	const uint32_t steps = 60;
	struct drm_txda_sync syncs[2];
	uint32_t queues[4], handles[4];
	int files[4];

	for (unsigned int i = 0; i < 4; i++) {
		files[i] = must_open(i % 2);
		queues[i] = must_queue(files[i], must_vm(files[i]));
		handles[i] = i ? must_share_syncobj(files[0], handles[0], files[i])
			       : must_syncobj(files[0]);
	}
	for (uint32_t step = 0; step < steps; step++) {
		uint32_t i = step % 4;

		syncs[0] = wait_for_point(handles[i], step);
		syncs[1] = signals_point(handles[i], step + 1);
		must(submit(files[i], queues[i], 0, 0, step ? syncs : syncs + 1, step ? 2 : 1));
	}
	must(syncobj_wait(files[3], handles[3], steps, PATIENCE));
	for (unsigned int i = 0; i < 4; i++)
		check_equal(must_state(files[i], queues[i]).completed, steps / 4);
}

/* A fence is good for whoever holds it, when queue, file and process of its maker are long gone. */
TEST(outlives)
{
	struct sync_file_info info = {0};
	struct sync_fence_info fence;
	int pipes[2], files[2];
	uint32_t shared, own;
	pid_t pid;

	setup();
	shared = must_syncobj(fd);
	own = must_syncobj(fd);
	check(!pipe(pipes));
	pid = must_fork();
	if (!pid) {
		int other = must_open(0);
		uint32_t space = must_vm(other), queue = must_queue(other, space);
		uint32_t handle = must_share_syncobj(fd, shared, other);
		struct mem word;
		struct stream s = must_block(other, space, &word);
		struct drm_txda_sync sync = signals(handle);

		must(submit(other, queue, s.mem.va, s.bytes, &sync, 1));
		check(write(pipes[1], "x", 1) == 1);
		pause();
	}
	check(read(pipes[0], &(char){0}, 1) == 1);
	files[0] = must_sync_file(fd, shared);
	/* Somebody waits for it with a job of his own. */
	must_chain(must_queue(fd, vm), wait_for(shared), signals(own));
	check_closed(own, 0);
	must_kill(pid);
	must(fence_status(fd, own));
	must_fail(fence_status(fd, shared), ECANCELED);

	/* Its names can still be asked for. */
	info.num_fences = 1;
	info.sync_fence_info = (uintptr_t)&fence;
	must(call(files[0], SYNC_IOC_FILE_INFO, &info));
	check_equal(info.num_fences, 1);
	check(fence.driver_name[0] && fence.obj_name[0]);
	check_equal(fence.status, -ECANCELED);
}

/* ---- Threads -------------------------------------------------------------------------------- */

#define THREADS 4

struct worker {
	pthread_t thread;
	uint32_t queue, timeline, steps;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 1; i <= w->steps; i++) {
		uint32_t own = must_syncobj(fd);

		must_chain(w->queue, signals_point(w->timeline, i), signals(own));
		must(submit_one(w->queue, wait_for(own)));
		if (i % 8 == 0)
			must(syncobj_wait(fd, own, 0, PATIENCE));
		syncobj_destroy(fd, own);
	}
	must(syncobj_wait(fd, w->timeline, w->steps, PATIENCE));
	return NULL;
}

/* Threads on one file: some share a queue. */
TEST(threads)
{
	struct worker workers[THREADS];
	uint32_t shared;

	setup();
	shared = must_queue(fd, vm);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.queue = i < 2 ? shared : must_queue(fd, vm),
			.timeline = must_syncobj(fd),
			.steps = 100,
		};
		check(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
	}
	for (int i = 0; i < THREADS; i++)
		check(!pthread_join(workers[i].thread, NULL));
	check_equal(must_state(fd, shared).submitted, 400);
}

/*
 * Holds fences, one that signalled well and one with an error, and nothing else of the driver, until
 * there is something to read; then looks at them.
 */
static int hold(void)
{
	struct drm_txda_sync sync;
	struct stream s;
	uint32_t queue;
	int files[2];

	setup();
	queue = must_queue(fd, vm);
	s = must_stream(fd, vm);
	put_fill(&s, 0x7000, 8, 0);
	for (int i = 0; i < 2; i++) {
		sync = signals(must_syncobj(fd));
		must(submit(fd, queue, i ? s.mem.va : 0, i ? s.bytes : 0, &sync, 1));
		check_equal(fence_status(fd, sync.handle), i ? -EIO : 0);
		files[i] = must_sync_file(fd, sync.handle);
	}
	munmap(s.mem.cpu, s.mem.bytes);
	close(fd);
	printf("held\n");
	fflush(stdout);
	(void)!read(0, &(char){0}, 1);
	check_equal(sync_file_status(files[0]), 0);
	check_equal(sync_file_status(files[1]), -EIO);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--hold"))
		return hold();
	return run_tests(argc, argv);
}
