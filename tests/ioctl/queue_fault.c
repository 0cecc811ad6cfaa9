// SPDX-License-Identifier: MIT
/*
 * What happens to a queue, and to no other, when its job faults, hangs, or is stopped while it runs.
 */
#include "common.h"

#include <poll.h>
#include <sys/eventfd.h>

/* The limit of queues that are to hang. Others have LONG_MS, however slow the machine is. */
#define SHORT_MS 400
#define LONG_MS	 60000

static int fd;
static uint32_t vm;

static void setup(void)
{
	fd = must_open(0);
	vm = must_vm(fd);
}

/* Another queue of the same address space does its work. */
static void must_work(uint32_t queue)
{
	struct mem word = must_mem(fd, vm, 8);
	struct stream s = must_stream(fd, vm);

	put_signal(&s, word.va, 7);
	must(submit_wait(fd, queue, s.mem.va, s.bytes));
	check_equal(*(volatile uint64_t *)word.cpu, 7);
}

static void check_dead(uint32_t queue, uint32_t state)
{
	struct drm_txda_queue_get_state now = must_state(fd, queue);
	uint32_t obj = must_syncobj(fd);
	struct drm_txda_sync sync = signals(obj);

	check_equal(now.state, state);
	must_fail(submit(fd, queue, 0, 0, &sync, 1), EIO);
	must_fail(syncobj_wait(fd, obj, 0, 0), ETIME);
	check_equal(must_state(fd, queue).submitted, now.submitted);
}

/* ---- Faults --------------------------------------------------------------------------------- */

/* The guilty job and two behind it; @innocent goes on. Returns the fault. */
static struct drm_txda_fault must_fault(uint32_t queue, uint32_t innocent, const struct stream *bad)
{
	struct drm_txda_fault fault, told;
	struct drm_txda_vm_get_state space = {.id = vm, .fault = answer_of(&told, sizeof(told))};
	uint32_t before = must_submit(fd, queue, NULL), guilty = must_submit(fd, queue, bad);
	uint32_t behind = must_syncobj(fd), last = must_syncobj(fd);
	struct drm_txda_sync sync = signals(behind);
	int err;

	/* The queue may be dead before these come. */
	err = submit(fd, queue, 0, 0, &sync, 1);
	check(!err || err == -EIO);
	if (!err) {
		sync = signals(last);
		err = submit(fd, queue, 0, 0, &sync, 1);
		check(!err || err == -EIO);
		must_fail(fence_status(fd, behind), ECANCELED);
		if (!err)
			must_fail(fence_status(fd, last), ECANCELED);
	}
	must(fence_status(fd, before));
	must_fail(fence_status(fd, guilty), EIO);
	check_dead(queue, DRM_TXDA_QUEUE_FATAL_FAULT);

	check_equal(must_state(fd, queue).completed, 1);
	fault = must_fault_of(fd, queue);
	check_equal(fault.queue_id, queue);
	check(fault.time_ns);
	must(call(fd, DRM_IOCTL_TXDA_VM_GET_STATE, &space));
	check_equal(space.state, DRM_TXDA_VM_USABLE);
	check(!memcmp(&told, &fault, sizeof(fault)));

	check_equal(must_state(fd, innocent).state, 0);
	must_work(innocent);
	must(queue_destroy(fd, queue));
	return fault;
}

/* Page faults: unmapped or read-only pages, streams outside a buffer. */
TEST(fault_page)
{
	struct stream nop_then_fill, fill, nowhere = {.mem = {.va = 0x40000000}, .bytes = 64}, past;
	struct drm_txda_fault fault;
	uint32_t innocent, handle;

	setup();
	innocent = must_queue(fd, vm);
	nop_then_fill = must_stream(fd, vm);
	put_nop(&nop_then_fill);
	put_fill(&nop_then_fill, 0x7000, 64, 1);
	fault = must_fault(must_queue(fd, vm), innocent, &nop_then_fill);
	check_equal(fault.code, TXDA_FAULT_PAGE);
	check_equal(fault.va, 0x7000);
	check_equal(fault.packet_va, nop_then_fill.mem.va + sizeof(struct txda_pkt));

	must(bo_create(fd, PAGE, DRM_TXDA_PLACE_HOST, 0, vm, &handle));
	must(bind_one(fd, vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, handle, 0, 0x10000,
		      PAGE));
	fill = must_stream(fd, vm);
	put_fill(&fill, 0x10000, 64, 1);
	fault = must_fault(must_queue(fd, vm), innocent, &fill);
	check_equal(fault.code, TXDA_FAULT_PAGE);
	check_equal(fault.va, 0x10000);

	check_equal(must_fault(must_queue(fd, vm), innocent, &nowhere).code, TXDA_FAULT_PAGE);
	/* Begins in a buffer and ends behind it. */
	past = must_stream(fd, vm);
	past.mem.va += PAGE - 8;
	past.bytes = 16;
	check_equal(must_fault(must_queue(fd, vm), innocent, &past).code, TXDA_FAULT_PAGE);
}

TEST(fault_packet)
{
	static const struct txda_pkt bad[] = {
		{TXDA_PKT_COUNT, 0, 8}, {UINT16_MAX, 0, 8},
		{TXDA_PKT_NOP, 1, 8},	{TXDA_PKT_NOP, 0, 0},
		{TXDA_PKT_NOP, 0, 16},	{TXDA_PKT_COPY, 0, 8},
		{TXDA_PKT_NOP, 0, 7},	{TXDA_PKT_NOP, 0, UINT32_MAX},
	};
	uint32_t innocent;

	setup();
	innocent = must_queue(fd, vm);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct stream s = must_stream(fd, vm);
		struct drm_txda_fault fault;

		put_bytes(&s, &bad[i], sizeof(bad[i]));
		fault = must_fault(must_queue(fd, vm), innocent, &s);
		check_equal(fault.code, TXDA_FAULT_PACKET);
		check_equal(fault.packet_va, s.mem.va);
	}
}

/* A launch faults on a copy queue, and on any queue if its program is garbage. */
TEST(fault_exec)
{
	struct txda_pkt_exec pkt = {.hdr = {TXDA_PKT_EXEC, 0, sizeof(pkt)}, .group = TXDA_NONE};
	uint32_t innocent, copy;
	struct stream s;

	setup();
	innocent = must_queue(fd, vm);
	s = must_stream(fd, vm);
	pkt.program_va = s.mem.va + 1024;
	pkt.program_bytes = 1024;
	put_bytes(&s, &pkt, sizeof(pkt));
	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COPY, 0, 0, &copy));
	must_fault(copy, innocent, &s);
	must_fault(must_queue(fd, vm), innocent, &s);
}

/* All at once, in address spaces of their own: each gets its own fault. */
TEST(fault_many)
{
	uint32_t queues[8], done[8];

	setup();
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t space = must_vm(fd);
		struct stream s = must_stream(fd, space);

		must(queue_create_as(fd, space, i & 1, 0, 0, &queues[i]));
		put_fill(&s, 0x10000 * (i + 1), 64, 1);
		done[i] = must_submit(fd, queues[i], &s);
	}
	for (uint32_t i = 0; i < 8; i++) {
		struct drm_txda_fault fault;

		must_fail(fence_status(fd, done[i]), EIO);
		check_equal(must_state(fd, queues[i]).state, DRM_TXDA_QUEUE_FATAL_FAULT);
		fault = must_fault_of(fd, queues[i]);
		check_equal(fault.queue_id, queues[i]);
		check_equal(fault.va, 0x10000 * (i + 1));
	}
	must_work(must_queue(fd, vm));
}

/* An eventfd is told of a fence that ends with an error, too. */
TEST(eventfd_on_fault)
{
	struct drm_syncobj_eventfd arg = {.fd = eventfd(0, EFD_CLOEXEC)};
	struct pollfd p = {.fd = arg.fd, .events = POLLIN};
	struct drm_txda_sync sync;
	struct stream s;

	setup();
	check(arg.fd >= 0);
	arg.handle = must_syncobj(fd);
	must(call(fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &arg));
	s = must_stream(fd, vm);
	put_fill(&s, 0x7000, 64, 1);
	sync = signals(arg.handle);
	must(submit(fd, must_queue(fd, vm), s.mem.va, s.bytes, &sync, 1));
	check(poll(&p, 1, (int)(PATIENCE / 1000000)) == 1);
	must_fail(fence_status(fd, arg.handle), EIO);
}

/* A hardware queue that faulted serves its next owner, who sees no trace of the fault. */
TEST(fault_then_reuse)
{
	setup();
	for (int i = 0; i < 40; i++) {
		uint32_t queue = must_queue(fd, vm), other;
		struct stream s = must_stream(fd, vm);
		struct drm_txda_queue_get_state now;

		put_fill(&s, 0x7000, 64, 1);
		must_submit(fd, queue, &s);
		/* Sometimes before the fault was seen. */
		if (i & 1)
			usleep(2000);
		must(queue_destroy(fd, queue));
		other = must_queue(fd, vm);
		must_work(other);
		now = must_state(fd, other);
		check_equal(now.state, 0);
		check_equal(must_fault_of(fd, other).code, 0);
		check_equal(now.submitted, 1);
		must(queue_destroy(fd, other));
	}
}

/* ---- Hangs ---------------------------------------------------------------------------------- */

TEST(hang)
{
	uint32_t queue, innocent, guilty, behind, before;
	struct drm_txda_fault fault;
	struct mem word;
	struct stream s;

	setup();
	queue = must_queue_for(fd, vm, SHORT_MS);
	innocent = must_queue_for(fd, vm, LONG_MS);
	s = must_block(fd, vm, &word);
	before = must_submit(fd, queue, NULL);
	guilty = must_submit(fd, queue, &s);
	behind = must_submit(fd, queue, NULL);
	/* Others work all the time. */
	while (syncobj_wait(fd, guilty, 0, 0))
		must_work(innocent);
	must(fence_status(fd, before));
	must_fail(fence_status(fd, guilty), ETIME);
	must_fail(fence_status(fd, behind), ECANCELED);
	check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
	fault = must_fault_of(fd, queue);
	check_equal(fault.code, TXDA_FAULT_HANG);
	check_equal(fault.packet_va, s.mem.va + sizeof(struct txda_pkt));
	check_equal(fault.queue_id, queue);
	check_equal(must_state(fd, innocent).state, 0);
	must_work(innocent);
	must_work(must_queue(fd, vm));
}

/* Works for many times its limit, and is left to it. A busy machine may stop for half a second. */
TEST(hang_but_progress)
{
	const uint32_t limit_ms = 800;
	uint32_t packets = 2000;

	setup();
	for (;;) {
		struct mem to = must_mem_in(fd, vm, MIB, DRM_TXDA_PLACE_DEVICE);
		struct mem mem = must_mem(fd, vm, packets * sizeof(struct txda_pkt_fill));
		struct stream s = {.mem = mem};
		uint32_t queue = must_queue_for(fd, vm, limit_ms), done;
		int64_t begin = now_ns();

		for (uint32_t i = 0; i < packets; i++)
			put_fill(&s, to.va, to.bytes, i);
		done = must_submit(fd, queue, &s);
		must(fence_status(fd, done));
		check_equal(must_state(fd, queue).state, 0);
		check_equal(*(volatile uint32_t *)to.cpu, packets - 1);
		/* A job that took no longer than its limit proves nothing. */
		if (now_ns() - begin > 4 * (int64_t)limit_ms * 1000000)
			return;
		must(queue_destroy(fd, queue));
		packets *= 2;
		if (packets * sizeof(struct txda_pkt_fill) > TXDA_STREAM_MAX_BYTES)
			skip("this machine is too fast");
	}
}

/* Waits for the end of the queue's job. Returns for how long its progress was seen to stand still. */
static int64_t watch_progress(uint32_t queue, uint32_t job)
{
	int64_t since = now_ns(), longest = 0;
	uint64_t progress = 0, now;

	while (syncobj_wait(fd, job, 0, 0)) {
		now = must_state(fd, queue).progress;
		if (now != progress)
			since = now_ns();
		progress = now;
		if (now_ns() - since > longest)
			longest = now_ns() - since;
		usleep(5000);
	}
	return longest;
}

/* One that makes progress for ever ends as well, as others wait for its fence. */
TEST(hang_for_ever)
{
	const uint32_t limit_ms = 500,
		       packets = TXDA_STREAM_MAX_BYTES / sizeof(struct txda_pkt_fill);
	uint32_t queue, innocent, guilty;
	struct stream s = {0};
	int64_t still;
	struct mem to;

	setup();
	innocent = must_queue_for(fd, vm, LONG_MS);
	to = must_mem_in(fd, vm, 64 * MIB, DRM_TXDA_PLACE_DEVICE);
	s.mem = must_mem(fd, vm, TXDA_STREAM_MAX_BYTES);
	for (uint32_t i = 0; i < packets; i++)
		put_fill(&s, to.va, to.bytes, i);
	for (int tries = 0; tries < 5; tries++) {
		queue = must_queue_for(fd, vm, limit_ms);
		guilty = must_submit(fd, queue, &s);
		still = watch_progress(queue, guilty);
		must_fail(fence_status(fd, guilty), ETIME);
		check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
		must_work(innocent);
		/* On a busy machine it may have been stopped because it did not go on. */
		if (still < limit_ms * 1000000 / 2)
			return;
		must(queue_destroy(fd, queue));
	}
	skip("this machine is too slow");
}

/* A job that waits for a hung job of another queue runs when that queue is dead. */
TEST(hang_of_another)
{
	struct drm_txda_sync syncs[2];
	uint32_t queue, waits, guilty, done;
	struct mem word;
	struct stream s;

	setup();
	queue = must_queue_for(fd, vm, SHORT_MS);
	waits = must_queue_for(fd, vm, LONG_MS);
	s = must_block(fd, vm, &word);
	guilty = must_submit(fd, queue, &s);
	done = must_syncobj(fd);
	syncs[0] = wait_for(guilty);
	syncs[1] = signals(done);
	must(submit(fd, waits, 0, 0, syncs, 2));
	must(fence_status(fd, done));
	must_fail(fence_status(fd, guilty), ETIME);
	check_equal(must_state(fd, waits).state, 0);
}

/* Several queues that hang at once end each by itself. */
TEST(hang_many)
{
	uint32_t queues[6], done[6], innocent;
	struct mem word;
	struct stream s;

	setup();
	innocent = must_queue_for(fd, vm, LONG_MS);
	s = must_block(fd, vm, &word);
	for (int i = 0; i < 6; i++) {
		queues[i] = must_queue_for(fd, vm, SHORT_MS);
		done[i] = must_submit(fd, queues[i], &s);
	}
	for (int i = 0; i < 6; i++) {
		must_fail(fence_status(fd, done[i]), ETIME);
		check_dead(queues[i], DRM_TXDA_QUEUE_TIMEDOUT);
	}
	must_work(innocent);
}

/* An op of the chip that hangs, rather than a packet that waits. */
TEST(hang_injected)
{
	uint32_t queue, innocent, guilty;
	struct mem to;
	struct stream s;

	setup();
	queue = must_queue_for(fd, vm, SHORT_MS);
	innocent = must_queue_for(fd, vm, LONG_MS);
	to = must_mem_in(fd, vm, MIB, DRM_TXDA_PLACE_DEVICE);
	s = must_stream(fd, vm);
	put_fill(&s, to.va, to.bytes, 1);
	vmhost("inject hang:chip=0");
	guilty = must_submit(fd, queue, &s);
	must_fail(fence_status(fd, guilty), ETIME);
	check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
	must_work(innocent);
	vmhost("inject clear:chip=0");
	must(submit_wait(fd, must_queue(fd, vm), s.mem.va, s.bytes));
}

/* The command processor itself hangs: the chip is reset, and all others are innocent. */
TEST(hang_of_chip)
{
	uint32_t queue, innocent, guilty, lost, idle;
	struct mem word, word2;
	struct stream s, s2;
	uint64_t progress, resets;

	setup();
	resets = chip_resets(fd);
	/* A hardware queue that had another owner. */
	idle = must_queue(fd, vm);
	must_work(idle);
	must(queue_destroy(fd, idle));
	idle = must_queue(fd, vm);
	check_equal(must_state(fd, idle).progress, 0);
	must_work(idle);
	progress = must_state(fd, idle).progress;
	check(progress);
	queue = must_queue_for(fd, vm, SHORT_MS);
	innocent = must_queue_for(fd, vm, LONG_MS);
	s = must_block(fd, vm, &word);
	s2 = must_block(fd, vm, &word2);
	lost = must_submit(fd, innocent, &s2);
	vmhost("liveness-stop 0");
	guilty = must_submit(fd, queue, &s);
	must_fail(fence_status(fd, guilty), ETIME);
	must_fail(fence_status(fd, lost), EIO);
	check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
	check_dead(innocent, DRM_TXDA_QUEUE_INNOCENT);
	check_dead(idle, DRM_TXDA_QUEUE_INNOCENT);
	check(chip_resets(fd) > resets);
	/* Its progress is kept, though the chip counts from 0 again. */
	check_equal(must_state(fd, idle).progress, progress);

	/* Address space and buffers are as they were. */
	check_equal(vm_state(fd, vm), DRM_TXDA_VM_USABLE);
	must(queue_destroy(fd, queue));
	must(queue_destroy(fd, innocent));
	must_work(must_queue(fd, vm));
}

/* ---- The end of queues with work ------------------------------------------------------------ */

TEST(destroy_in_flight)
{
	setup();
	for (int i = 0; i < 20; i++) {
		uint32_t queue = must_queue(fd, vm), running, behind, waiting = must_syncobj(fd);
		struct gate gate = must_gate(fd, vm);
		struct mem word;
		struct stream s = must_block(fd, vm, &word);

		running = must_submit(fd, queue, &s);
		behind = must_submit(fd, queue, NULL);
		must(submit(fd, queue, 0, 0,
			    (struct drm_txda_sync[]){wait_for(gate.fence), signals(waiting)}, 2));

		must(queue_destroy(fd, queue));
		must_fail(fence_status(fd, running), ECANCELED);
		must_fail(fence_status(fd, behind), ECANCELED);
		/* This one ends when its wait does. */
		must_fail(syncobj_wait(fd, waiting, 0, 0), ETIME);
		gate_open(&gate);
		must(fence_status(fd, gate.fence));
		must_fail(fence_status(fd, waiting), ECANCELED);
		must(queue_destroy(fd, gate.queue));
	}
	must_work(must_queue(fd, vm));
}

/* A client in the middle of @s, which then waits for its end by a signal. @slow: the end is slow. */
static pid_t must_busy_client(bool fill, bool slow)
{
	int ready[2];
	char byte = 0;
	pid_t pid;

	must(pipe(ready));
	pid = must_fork();
	if (!pid) {
		uint32_t queue;
		struct stream s;
		struct mem word;

		setup();
		queue = must_queue_for(fd, vm, LONG_MS);
		s = fill ? must_long_fill(fd, vm) : must_block(fd, vm, &word);
		must_submit(fd, queue, &s);
		/* Within its packet: a fill makes progress there. */
		while (!must_state(fd, queue).progress)
			;
		if (slow)
			vmhost("slow-stop 0");
		check(write(ready[1], &byte, 1) == 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("the client ended by itself");
	close(ready[0]);
	return pid;
}

/* Ctrl-C in long packets, again and again: others work meanwhile, and the chip is not reset. */
TEST(interrupt_long)
{
	uint64_t resets;
	uint32_t queue;
	int status;

	setup();
	resets = chip_resets(fd);
	queue = must_queue_for(fd, vm, LONG_MS);
	for (int round = 0; round < 4; round++) {
		bool slow = round & 1, fill = round < 2;
		pid_t pid = must_busy_client(fill, slow), done;

		must_work(queue);
		must(kill(pid, SIGINT));
		while (!(done = waitpid(pid, &status, WNOHANG)))
			must_work(queue);
		check(done == pid && WIFSIGNALED(status));
	}
	check_equal(chip_resets(fd), resets);
	check_equal(must_state(fd, queue).state, 0);
	must_work(queue);
}

/* Fences outlive queue, address space and file. */
TEST(close_in_flight)
{
	int files[3];
	struct mem word;
	struct stream s;
	uint32_t queue, done;
	char *page;

	setup();
	queue = must_queue(fd, vm);
	s = must_block(fd, vm, &word);
	done = must_submit(fd, queue, NULL);
	must(fence_status(fd, done));
	files[0] = must_sync_file(fd, done);
	files[1] = must_sync_file(fd, must_submit(fd, queue, &s));
	files[2] = must_sync_file(fd, must_submit(fd, queue, NULL));
	page = word.cpu;
	close(fd);
	/* The mappings hold the file. */
	check_equal(sync_file_status(files[1]), 1);
	munmap(page, PAGE);
	munmap(s.mem.cpu, PAGE);
	for (int i = 1; i < 3; i++) {
		struct pollfd p = {.fd = files[i], .events = POLLIN};

		check(poll(&p, 1, (int)(PATIENCE / 1000000)) == 1);
		must_fail(sync_file_status(files[i]), ECANCELED);
	}
	must(sync_file_status(files[0]));

	setup();
	must_work(must_queue(fd, vm));
}

/* For a case that puts the machine to sleep: a job that does not end is no reason not to. */
static int stay_busy(void)
{
	uint32_t queue, done;
	struct stream s;
	struct mem word;

	setup();
	queue = must_queue_for(fd, vm, 600000);
	s = must_block(fd, vm, &word);
	done = must_submit(fd, queue, &s);
	while (!must_state(fd, queue).progress)
		;
	puts("busy");
	fflush(stdout);
	must_fail(fence_status(fd, done), EIO);
	check_dead(queue, DRM_TXDA_QUEUE_INNOCENT);
	must_work(must_queue(fd, vm));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--busy"))
		return stay_busy();
	return run_tests(argc, argv);
}
