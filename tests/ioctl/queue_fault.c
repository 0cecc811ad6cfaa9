// SPDX-License-Identifier: MIT
/*
 * What happens to a queue, and to no other, when its job faults, hangs, or is stopped while it runs.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

static uint32_t must_queue_with(uint32_t timeout_ms)
{
	uint32_t queue;

	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COMPUTE, DRM_TXDA_PRIORITY_NORMAL, timeout_ms,
			     &queue));
	return queue;
}

/* A stream that waits for a word of memory. */
static struct stream must_block(struct mem *ret_word)
{
	struct stream s = must_stream(fd, vm);

	*ret_word = must_mem(fd, vm, 8);
	put_nop(&s);
	put_wait(&s, ret_word->va, 1);
	return s;
}

/* Submits @s and returns the syncobj that it signals. */
static uint32_t must_submit(uint32_t queue, const struct stream *s)
{
	uint32_t done = must_syncobj(fd);
	struct drm_txda_sync sync = signals(done);

	must(submit(fd, queue, s ? s->mem.va : 0, s ? s->bytes : 0, &sync, 1));
	return done;
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
	uint32_t before = must_submit(queue, NULL), guilty = must_submit(queue, bad);
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

static void fault_page(void)
{
	struct drm_txda_fault fault;
	uint32_t innocent;
	struct stream s;

	setup();
	innocent = must_queue(fd, vm);
	s = must_stream(fd, vm);
	put_nop(&s);
	put_fill(&s, 0x7000, 64, 1);
	fault = must_fault(must_queue(fd, vm), innocent, &s);
	check_equal(fault.code, TXDA_FAULT_PAGE);
	check_equal(fault.va, 0x7000);
	check_equal(fault.packet_va, s.mem.va + sizeof(struct txda_pkt));
}

static void fault_read_only(void)
{
	struct drm_txda_fault fault;
	uint32_t innocent, handle;
	struct stream s;

	setup();
	innocent = must_queue(fd, vm);
	must(bo_create(fd, PAGE, DRM_TXDA_PLACE_HOST, 0, vm, &handle));
	must(bind_one(fd, vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, handle, 0, 0x10000,
		      PAGE));
	s = must_stream(fd, vm);
	put_fill(&s, 0x10000, 64, 1);
	fault = must_fault(must_queue(fd, vm), innocent, &s);
	check_equal(fault.code, TXDA_FAULT_PAGE);
	check_equal(fault.va, 0x10000);
}

static void fault_stream(void)
{
	struct stream nowhere = {.mem = {.va = 0x40000000}, .bytes = 64}, past;
	struct drm_txda_fault fault;
	uint32_t innocent;

	setup();
	innocent = must_queue(fd, vm);
	fault = must_fault(must_queue(fd, vm), innocent, &nowhere);
	check_equal(fault.code, TXDA_FAULT_PAGE);
	/* Begins in a buffer and ends behind it. */
	past = must_stream(fd, vm);
	past.mem.va += PAGE - 8;
	past.bytes = 16;
	fault = must_fault(must_queue(fd, vm), innocent, &past);
	check_equal(fault.code, TXDA_FAULT_PAGE);
}

static void fault_packet(void)
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

/* A launch has no business on a copy queue, nor one whose program is rubbish anywhere. */
static void fault_exec(void)
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
static void fault_many(void)
{
	uint32_t queues[8], vms[8], done[8];
	struct drm_txda_sync sync;

	setup();
	for (uint32_t i = 0; i < 8; i++) {
		struct stream s;

		vms[i] = must_vm(fd);
		must(queue_create_as(fd, vms[i], i & 1, 0, 0, &queues[i]));
		s = must_stream(fd, vms[i]);
		put_fill(&s, 0x10000 * (i + 1), 64, 1);
		done[i] = must_syncobj(fd);
		sync = signals(done[i]);
		must(submit(fd, queues[i], s.mem.va, s.bytes, &sync, 1));
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

/* The same hardware queue serves the next client, who learns nothing of what happened before. */
static void fault_then_reuse(void)
{
	setup();
	for (int i = 0; i < 40; i++) {
		uint32_t queue = must_queue(fd, vm), other;
		struct stream s = must_stream(fd, vm);
		struct drm_txda_queue_get_state now;

		put_fill(&s, 0x7000, 64, 1);
		must_submit(queue, &s);
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

static void hang(void)
{
	uint32_t queue, innocent, guilty, behind, before;
	struct drm_txda_fault fault;
	struct mem word;
	struct stream s;

	setup();
	queue = must_queue_with(SHORT_MS);
	innocent = must_queue_with(LONG_MS);
	s = must_block(&word);
	before = must_submit(queue, NULL);
	guilty = must_submit(queue, &s);
	behind = must_submit(queue, NULL);
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

/* A wait that somebody ends in time is none. */
static void hang_not(void)
{
	struct mem word;
	struct stream s;
	uint32_t queue, done;

	setup();
	queue = must_queue_with(LONG_MS);
	s = must_block(&word);
	done = must_submit(queue, &s);
	must_fail(syncobj_wait(fd, done, 0, SECOND / 4), ETIME);
	*(volatile uint64_t *)word.cpu = 1;
	must(fence_status(fd, done));
	check_equal(must_state(fd, queue).state, 0);
}

/* Works for many times its limit, and is left to it. A busy machine may stop for half a second. */
static void hang_but_progress(void)
{
	const uint32_t limit_ms = 800;
	uint32_t packets = 2000;

	setup();
	for (;;) {
		struct mem to = must_mem_in(fd, vm, MIB, DRM_TXDA_PLACE_DEVICE);
		struct mem mem = must_mem(fd, vm, packets * sizeof(struct txda_pkt_fill));
		struct stream s = {.mem = mem};
		uint32_t queue = must_queue_with(limit_ms), done;
		int64_t begin = now_ns();

		for (uint32_t i = 0; i < packets; i++)
			put_fill(&s, to.va, to.bytes, i);
		done = must_submit(queue, &s);
		must(fence_status(fd, done));
		check_equal(must_state(fd, queue).state, 0);
		check_equal(*(volatile uint32_t *)to.cpu, packets - 1);
		/* Else it took no longer than its limit, and proves nothing. */
		if (now_ns() - begin > 4 * (int64_t)limit_ms * 1000000)
			return;
		must(queue_destroy(fd, queue));
		packets *= 2;
		if (packets * sizeof(struct txda_pkt_fill) > TXDA_STREAM_MAX_BYTES)
			skip("this machine is too fast");
	}
}

/* One queue waits for what hangs in another: it gets its turn when that one is dead. */
static void hang_of_another(void)
{
	struct drm_txda_sync syncs[2];
	uint32_t queue, waits, guilty, done;
	struct mem word;
	struct stream s;

	setup();
	queue = must_queue_with(SHORT_MS);
	waits = must_queue_with(LONG_MS);
	s = must_block(&word);
	guilty = must_submit(queue, &s);
	done = must_syncobj(fd);
	syncs[0] = wait_for(guilty);
	syncs[1] = signals(done);
	must(submit(fd, waits, 0, 0, syncs, 2));
	must(fence_status(fd, done));
	must_fail(fence_status(fd, guilty), ETIME);
	check_equal(must_state(fd, waits).state, 0);
}

static void hang_many(void)
{
	uint32_t queues[6], done[6], innocent;
	struct mem word;
	struct stream s;

	setup();
	innocent = must_queue_with(LONG_MS);
	s = must_block(&word);
	for (int i = 0; i < 6; i++) {
		queues[i] = must_queue_with(SHORT_MS);
		done[i] = must_submit(queues[i], &s);
	}
	for (int i = 0; i < 6; i++) {
		must_fail(fence_status(fd, done[i]), ETIME);
		check_dead(queues[i], DRM_TXDA_QUEUE_TIMEDOUT);
	}
	must_work(innocent);
}

/* An op of the chip that hangs, rather than a packet that waits. */
static void hang_injected(void)
{
	uint32_t queue, innocent, guilty;
	struct mem to;
	struct stream s;

	setup();
	queue = must_queue_with(SHORT_MS);
	innocent = must_queue_with(LONG_MS);
	to = must_mem_in(fd, vm, MIB, DRM_TXDA_PLACE_DEVICE);
	s = must_stream(fd, vm);
	put_fill(&s, to.va, to.bytes, 1);
	vmhost("inject hang:chip=0");
	guilty = must_submit(queue, &s);
	must_fail(fence_status(fd, guilty), ETIME);
	check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
	must_work(innocent);
	vmhost("inject clear:chip=0");
	must(submit_wait(fd, must_queue(fd, vm), s.mem.va, s.bytes));
}

/* The command processor itself hangs: the chip is reset, and all others are innocent. */
static void hang_of_chip(void)
{
	struct drm_txda_reset_info before = {0}, after = {0};
	uint32_t queue, innocent, guilty, lost, idle;
	struct drm_txda_vm_get_state space;
	struct mem word, word2;
	struct stream s, s2;
	uint64_t progress;

	setup();
	must(query(fd, DRM_TXDA_QUERY_RESET, &before, sizeof(before)));
	/* A hardware queue that had another owner. */
	idle = must_queue(fd, vm);
	must_work(idle);
	must(queue_destroy(fd, idle));
	idle = must_queue(fd, vm);
	check_equal(must_state(fd, idle).progress, 0);
	must_work(idle);
	progress = must_state(fd, idle).progress;
	check(progress);
	queue = must_queue_with(SHORT_MS);
	innocent = must_queue_with(LONG_MS);
	s = must_block(&word);
	s2 = must_block(&word2);
	lost = must_submit(innocent, &s2);
	vmhost("liveness-stop 0");
	guilty = must_submit(queue, &s);
	must_fail(fence_status(fd, guilty), ETIME);
	must_fail(fence_status(fd, lost), EIO);
	check_dead(queue, DRM_TXDA_QUEUE_TIMEDOUT);
	check_dead(innocent, DRM_TXDA_QUEUE_INNOCENT);
	check_dead(idle, DRM_TXDA_QUEUE_INNOCENT);
	must(query(fd, DRM_TXDA_QUERY_RESET, &after, sizeof(after)));
	check(after.chip_resets > before.chip_resets);
	/* What it did it has done, though the chip counts from 0 again. */
	check_equal(must_state(fd, idle).progress, progress);

	/* Address space and buffers are as they were. */
	space = (struct drm_txda_vm_get_state){.id = vm};
	must(call(fd, DRM_IOCTL_TXDA_VM_GET_STATE, &space));
	check_equal(space.state, DRM_TXDA_VM_USABLE);
	must(queue_destroy(fd, queue));
	must(queue_destroy(fd, innocent));
	must_work(must_queue(fd, vm));
}

/* ---- The end of queues with work ------------------------------------------------------------ */

static void destroy_in_flight(void)
{
	setup();
	for (int i = 0; i < 20; i++) {
		uint32_t queue = must_queue(fd, vm), running, behind, waiting, gate_queue, gate;
		struct drm_txda_sync syncs[2];
		struct mem word, gate_word;
		struct stream s = must_block(&word), gate_stream = must_block(&gate_word);

		gate_queue = must_queue(fd, vm);
		gate = must_submit(gate_queue, &gate_stream);
		running = must_submit(queue, &s);
		behind = must_submit(queue, NULL);
		waiting = must_syncobj(fd);
		syncs[0] = wait_for(gate);
		syncs[1] = signals(waiting);
		must(submit(fd, queue, 0, 0, syncs, 2));

		must(queue_destroy(fd, queue));
		must_fail(fence_status(fd, running), ECANCELED);
		must_fail(fence_status(fd, behind), ECANCELED);
		/* This one ends when its wait does. */
		must_fail(syncobj_wait(fd, waiting, 0, 0), ETIME);
		*(volatile uint64_t *)gate_word.cpu = 1;
		must(fence_status(fd, gate));
		must_fail(fence_status(fd, waiting), ECANCELED);
		must(queue_destroy(fd, gate_queue));
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
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		uint32_t queue;
		struct stream s;
		struct mem word;

		setup();
		queue = must_queue_with(LONG_MS);
		s = fill ? must_long_fill(fd, vm) : must_block(&word);
		must_submit(queue, &s);
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
static void interrupt_long(void)
{
	struct drm_txda_reset_info before, after;
	uint32_t queue;
	int status;

	setup();
	queue = must_queue_with(LONG_MS);
	must(query(fd, DRM_TXDA_QUERY_RESET, &before, sizeof(before)));
	for (int round = 0; round < 4; round++) {
		bool slow = round & 1, fill = round < 2;
		pid_t pid = must_busy_client(fill, slow), done;

		must_work(queue);
		must(kill(pid, SIGINT));
		while (!(done = waitpid(pid, &status, WNOHANG)))
			must_work(queue);
		check(done == pid && WIFSIGNALED(status));
	}
	must(query(fd, DRM_TXDA_QUERY_RESET, &after, sizeof(after)));
	check_equal(after.chip_resets, before.chip_resets);
	check_equal(must_state(fd, queue).state, 0);
	must_work(queue);
}

/* Fences outlive queue, address space and file. */
static void close_in_flight(void)
{
	int files[3];
	struct mem word;
	struct stream s;
	uint32_t queue, done;
	char *page;

	setup();
	queue = must_queue(fd, vm);
	s = must_block(&word);
	done = must_submit(queue, NULL);
	must(fence_status(fd, done));
	files[0] = must_sync_file(fd, done);
	files[1] = must_sync_file(fd, must_submit(queue, &s));
	files[2] = must_sync_file(fd, must_submit(queue, NULL));
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

static void eventfd_on_fault(void)
{
	struct drm_syncobj_eventfd arg = {0};
	uint32_t queue, done;
	struct pollfd p;
	struct stream s;

	setup();
	queue = must_queue(fd, vm);
	s = must_stream(fd, vm);
	put_fill(&s, 0x7000, 64, 1);
	done = must_syncobj(fd);
	arg.handle = done;
	arg.fd = eventfd(0, EFD_CLOEXEC);
	check(arg.fd >= 0);
	must(call(fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &arg));
	must(submit(fd, queue, s.mem.va, s.bytes,
		    &(struct drm_txda_sync){.flags = DRM_TXDA_SYNC_SIGNAL, .handle = done}, 1));
	p = (struct pollfd){.fd = arg.fd, .events = POLLIN};
	check(poll(&p, 1, (int)(PATIENCE / 1000000)) == 1);
	must_fail(fence_status(fd, done), EIO);
}

/* One process of a storm: good and bad jobs without end. */
static void storm(unsigned int seed)
{
	setup();
	for (;;) {
		uint32_t queue = must_queue_with(1 + seed % 1000), done;
		struct mem word;
		struct stream s = must_block(&word);

		for (int i = 0; i < 50; i++) {
			struct stream bad = {.mem = {.va = 0x7000}, .bytes = 64};

			seed = seed * 1103515245 + 12345;
			done = must_syncobj(fd);
			switch (seed >> 16 & 15) {
			case 0: submit(fd, queue, s.mem.va, s.bytes, NULL, 0); break;
			case 1: submit(fd, queue, bad.mem.va, bad.bytes, NULL, 0); break;
			case 2: submit_wait(fd, queue, 0, 0); break;
			default:
				submit(fd, queue, 0, 0,
				       &(struct drm_txda_sync){.flags = DRM_TXDA_SYNC_SIGNAL,
							       .handle = done},
				       1);
			}
		}
		must(queue_destroy(fd, queue));
	}
}

static void kill_storm(void)
{
	pid_t pids[6] = {0};

	setup();
	for (unsigned int round = 0; round < 60; round++) {
		pid_t *pid = &pids[round % 6];
		int status;

		if (*pid) {
			kill(*pid, SIGKILL);
			check(waitpid(*pid, &status, 0) == *pid);
			if (!WIFSIGNALED(status))
				fail("a process of the storm ended by itself");
		}
		*pid = fork();
		check(*pid >= 0);
		if (!*pid)
			storm(round * 7919);
		usleep(30000);
		if (round % 6 == 5) {
			must_work(must_queue_with(LONG_MS));
			close(fd);
			setup();
		}
	}
	for (int i = 0; i < 6; i++) {
		kill(pids[i], SIGKILL);
		check(waitpid(pids[i], NULL, 0) == pids[i]);
	}
	must_work(must_queue(fd, vm));
}

/* For a case that puts the machine to sleep: a job that does not end is no reason not to. */
static int stay_busy(void)
{
	uint32_t queue, done;
	struct stream s;
	struct mem word;

	setup();
	queue = must_queue_with(600000);
	s = must_block(&word);
	done = must_submit(queue, &s);
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
	static const struct test tests[] = {
		{"fault-page", fault_page},
		{"fault-read-only", fault_read_only},
		{"fault-stream", fault_stream},
		{"fault-packet", fault_packet},
		{"fault-exec", fault_exec},
		{"fault-many", fault_many},
		{"fault-then-reuse", fault_then_reuse},
		{"hang", hang},
		{"hang-not", hang_not},
		{"hang-but-progress", hang_but_progress},
		{"hang-of-another", hang_of_another},
		{"hang-many", hang_many},
		{"hang-injected", hang_injected},
		{"hang-of-chip", hang_of_chip},
		{"destroy-in-flight", destroy_in_flight},
		{"interrupt-long", interrupt_long},
		{"close-in-flight", close_in_flight},
		{"eventfd-on-fault", eventfd_on_fault},
		{"kill-storm", kill_storm},
	};

	if (argc == 2 && !strcmp(argv[1], "--busy"))
		return stay_busy();
	return run_tests(tests, ARRAY_SIZE(tests), argc, argv);
}
