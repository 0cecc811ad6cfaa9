// SPDX-License-Identifier: MIT
/* Rings: entries, completions, interrupts, faults, stops; what a driver may get wrong. */
#include "vfio_fixture.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <sys/mman.h>
#include <time.h>

#define DATA	   VF_VA(VF_DATA)
#define COPY_QUEUE 32

static struct vf f;
static struct vf_chip *const c = &f.c[0];

static int setup(void **state)
{
	vf_start(&f, 1, VU_IRQ_MODE_MSIX);
	vf_space(c, 1);
	return 0;
}

static int teardown(void **state)
{
	vf_free(&f);
	return 0;
}

static uint32_t queue_reg(unsigned q, uint32_t reg)
{
	return vf_read(c, TXDA_REG_QUEUE(q) + reg);
}

static void set_queue(unsigned q, uint32_t reg, uint32_t value)
{
	vf_write(c, TXDA_REG_QUEUE(q) + reg, value);
}

static void restart(void)
{
	vf_queue_stop(c, 0);
	vf_queue_start(c, 0, 1);
}

static struct txda_fault expect_fault(unsigned q, uint32_t code)
{
	struct txda_fault fault;

	assert_true(vf_becomes(c, q, TXDA_QUEUE_FAULTED));
	assert_true(vf_read(c, TXDA_REG_IRQ_EVENTS) & TXDA_IRQ_FAULT);
	vf_write(c, TXDA_REG_IRQ_EVENTS, TXDA_IRQ_FAULT);
	fault = vf_fault(c);
	assert_int_equal(fault.code, code);
	assert_int_equal(fault.queue, q);
	return fault;
}

/* ---- work ------------------------------------------------------------------------------------ */

TEST(test_run)
{
	struct vf_stream s;
	uint64_t *word;

	for (unsigned i = 0; i < 2; i++) {
		unsigned q = i ? COPY_QUEUE : 0;

		vf_queue_start(c, q, 1);
		assert_int_equal(queue_reg(q, TXDA_QUEUE_HEAD), 0);
		s = vf_stream(c);
		vf_put_fill(&s, DATA, 65536, 0x01020304 + i);
		vf_put_copy(&s, DATA + 0x100000, DATA, 65536);
		vf_put_fence(&s, TXDA_PKT_SIGNAL, 0, DATA + 0x200000, 99 + i);
		assert_true(vf_run(&f, c, q, &s));
		assert_int_equal(queue_reg(q, TXDA_QUEUE_HEAD), 1);
		assert_int_equal(*(uint32_t *)(c->dram + VF_DATA + 0x100000 + 65532),
				 0x01020304 + i);
		word = (uint64_t *)(c->dram + VF_DATA + 0x200000);
		assert_int_equal(*word, 99 + i);
		assert_true(vf_read64(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_PROGRESS_LO) >= 3);
		assert_int_equal(vf_read64(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_PACKET_LO), 0);
	}
	assert_true(vf_read64(c, TXDA_REG_BUSY_COPY_LO) > 0);
	assert_true(vf_read64(c, TXDA_REG_DRAM_WRITTEN_LO) >= 4 * 65536);
	/* A reset starts the counters anew. */
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_read64(c, TXDA_REG_DRAM_WRITTEN_LO), 0);
	assert_int_equal(vf_read64(c, TXDA_REG_BUSY_COPY_LO), 0);
	assert_int_equal(vf_boot(c), TXDA_FW_READY);
	vf_space(c, 1);
}

/* The ring in device memory, as small as it may be, and around its end a few times. */
TEST(test_local_ring)
{
	const uint64_t ring = VF_DATA + 0x300000, done = VF_DATA + 0x310000;
	volatile uint64_t *word = (volatile uint64_t *)(c->dram + done);

	vf_queue_start_at(c, 2, ring, done);
	for (uint32_t i = 0; i < 50; i++) {
		const struct txda_ring_entry e = {.seqno = i + 1};

		memcpy(c->dram + ring + i % 16 * sizeof(e), &e, sizeof(e));
		set_queue(2, TXDA_QUEUE_DOORBELL, i + 1);
		for (unsigned n = 0; *word != i + 1 && n < 100000; n++)
			assert_int_equal(queue_reg(2, TXDA_QUEUE_STATE), TXDA_QUEUE_RUNNING);
		assert_int_equal(*word, i + 1);
	}
	assert_int_equal(queue_reg(2, TXDA_QUEUE_HEAD), 50);
	vf_queue_stop(c, 2);
}

/* More entries than the model takes at once, all behind one doorbell; a fence tells their order. */
TEST(test_many_entries)
{
	const unsigned n = 2000;
	struct vf_stream gate;
	uint64_t *word = (uint64_t *)(c->dram + VF_DATA), last = 0;

	*word = 0;
	vf_queue_set_up(c, 0, 1, 11);
	set_queue(0, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	gate = vf_stream(c);
	vf_put_fence(&gate, TXDA_PKT_WAIT, 0, DATA, 1);
	for (unsigned i = 0; i < n; i++) {
		struct txda_ring_entry e = {.seqno = ++c->queue[0].seqno, .flags = TXDA_RING_IRQ};

		if (!i) {
			e.stream_va = VF_VA(gate.off);
			e.stream_bytes = (uint32_t)gate.bytes;
		}
		vf_enter(&f, c, 0, &e);
		last = e.seqno;
	}
	vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, UINT64_MAX);
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 1);
	vf_is_interrupted(c, 1);
	vf_ring(c, 0);
	assert_true(vf_begins(c, 0, &gate));
	assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 0);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_DOORBELL), n);
	assert_false(vf_is_interrupted(c, 1));
	/* The host opens the gate by a plain store; nobody tells the chip. */
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	assert_true(vf_interrupted(c, 1));
	assert_true(vf_done(&f, c, 0, last));
	assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), n);
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 0);
}

TEST(test_interrupts)
{
	struct vf_stream s = vf_stream(c);

	vf_queue_start(c, 5, 1);
	vf_queue_start(c, 6, 1);
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 3ull << 5);
	/* Only where it is asked for; the completion is there before the message. */
	assert_true(vf_run(&f, c, 5, NULL));
	assert_false(vf_is_interrupted(c, 6));
	for (unsigned i = 0; i < 50; i++) {
		uint64_t seqno = vf_submit(&f, c, 5, NULL, TXDA_RING_IRQ);

		assert_true(vf_interrupted(c, 6));
		assert_true(*vf_completion(&f, c, 5) >= seqno);
		assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_LO), 1 << 5);
		vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, 1 << 5);
	}
	/* SIGNAL raises the same source. */
	vf_put_fence(&s, TXDA_PKT_SIGNAL, TXDA_SIGNAL_IRQ, DATA, 7);
	assert_true(vf_run(&f, c, 6, &s));
	assert_true(vf_interrupted(c, 7));
	assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_LO), 1 << 6);
}

/* Two queues wait for each other's fences. */
TEST(test_fences)
{
	struct vf_stream a = vf_stream(c), b = vf_stream(c);
	uint64_t first;

	memset(c->dram + VF_DATA, 0, 4096);
	vf_queue_start(c, 0, 1);
	vf_queue_start(c, COPY_QUEUE, 1);
	vf_put_fence(&a, TXDA_PKT_WAIT, 0, DATA, 1);
	vf_put_fence(&a, TXDA_PKT_SIGNAL, 0, DATA + 8, 1);
	vf_put_fence(&b, TXDA_PKT_SIGNAL, 0, DATA, 1);
	vf_put_fence(&b, TXDA_PKT_WAIT, 0, DATA + 8, 1);
	first = vf_submit(&f, c, 0, &a, 0);
	assert_true(vf_run(&f, c, COPY_QUEUE, &b));
	assert_true(vf_done(&f, c, 0, first));
}

/* With queues of all priorities at work each of them gets on. */
TEST(test_priorities)
{
	uint64_t last[3];

	for (unsigned q = 0; q < 3; q++) {
		vf_queue_set_up(c, q, 1, 8);
		set_queue(q, TXDA_QUEUE_PRIORITY, q);
		set_queue(q, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
		assert_int_equal(queue_reg(q, TXDA_QUEUE_PRIORITY), q);
	}
	for (unsigned i = 0; i < 200; i++) {
		for (unsigned q = 0; q < 3; q++) {
			struct vf_stream s = vf_stream(c);

			vf_put_fill(&s, DATA + q * 0x10000, 4096, i);
			last[q] = vf_submit(&f, c, q, &s, 0);
		}
	}
	for (unsigned q = 0; q < 3; q++)
		assert_true(vf_done(&f, c, q, last[q]));
	/* A change needs a queue that is off. */
	set_queue(0, TXDA_QUEUE_PRIORITY, 1);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_PRIORITY), 0);
}

/* ---- stops ----------------------------------------------------------------------------------- */

TEST(test_stop)
{
	struct vf_stream gate = vf_stream(c), s = vf_stream(c);
	uint64_t seqno;

	memset(c->dram + VF_DATA, 0, 8192);
	vf_queue_start(c, 0, 1);
	vf_put_fence(&gate, TXDA_PKT_WAIT, 0, DATA, 1);
	vf_put_fill(&s, DATA + 4096, 4096, 1);
	seqno = vf_submit(&f, c, 0, &gate, 0);
	vf_submit(&f, c, 0, &s, 0);
	vf_queue_stop(c, 0);
	*(uint64_t *)(c->dram + VF_DATA) = 1;
	/* The rest is dropped, and another run has nothing of it. */
	vf_queue_start(c, 0, 1);
	assert_true(*vf_completion(&f, c, 0) < seqno);
	assert_true(vf_run(&f, c, 0, NULL));
	assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 1);
	assert_int_equal(c->dram[VF_DATA + 4096], 0);
	/* One that an injected fault has hung stops as well. */
	assert_int_equal(cm_inject(f.m->cm, "hang"), 0);
	seqno = vf_submit(&f, c, 0, &s, 0);
	assert_true(vf_begins(c, 0, &s));
	vf_queue_stop(c, 0);
	assert_true(*vf_completion(&f, c, 0) < seqno);
	vf_queue_start(c, 0, 1);
	assert_true(vf_run(&f, c, 0, &s));
	/* Twice, and nonsense, do nothing. */
	vf_queue_stop(c, 0);
	vf_queue_stop(c, 0);
	set_queue(0, TXDA_QUEUE_CTRL, 3);
	set_queue(0, TXDA_QUEUE_CTRL, UINT32_MAX);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
}

/* A queue is stopped while others go on. */
TEST(test_stop_among_others)
{
	struct vf_stream s = vf_stream(c);
	uint64_t last = 0;

	vf_put_fill(&s, DATA, 1 << 20, 5);
	vf_queue_set_up(c, 0, 1, 8);
	set_queue(0, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	for (unsigned i = 0; i < 100; i++)
		last = vf_submit(&f, c, 0, &s, 0);
	for (unsigned i = 0; i < 30; i++) {
		vf_queue_start(c, 1, 1);
		vf_submit(&f, c, 1, &s, 0);
		vf_queue_stop(c, 1);
	}
	assert_true(vf_done(&f, c, 0, last));
}

/* ---- faults ---------------------------------------------------------------------------------- */

TEST(test_faults)
{
	struct vf_stream ok = vf_stream(c), bad = vf_stream(c);
	struct txda_fault fault;
	uint64_t first;

	vf_queue_start(c, 0, 1);
	vf_queue_start(c, 1, 1);
	vf_put_fill(&ok, DATA, 4096, 1);
	vf_put_fill(&bad, DATA, 4096, 1);
	vf_put_fill(&bad, 0x7000, 4096, 1);
	vf_submit(&f, c, 0, &ok, 0);
	first = vf_submit(&f, c, 0, &bad, 0);
	vf_submit(&f, c, 0, &ok, 0);
	fault = expect_fault(0, TXDA_FAULT_PAGE);
	assert_int_equal(fault.vmid, 1);
	assert_int_equal(fault.va, 0x7000);
	assert_int_equal(fault.packet_va, VF_VA(bad.off) + sizeof(struct txda_pkt_fill));
	/* The guilty entry is at HEAD; what came before is done, what comes after is not. */
	assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 1);
	assert_int_equal(*vf_completion(&f, c, 0), first - 1);
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 0);
	/* Others go on. START is for queues that are off. */
	assert_true(vf_run(&f, c, 1, &ok));
	set_queue(0, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_FAULTED);
	restart();
	assert_true(vf_run(&f, c, 0, &ok));
}

TEST(test_fault_records)
{
	struct vf_stream bad = vf_stream(c);
	uint64_t seen = 0;

	vf_put_fill(&bad, 0x7000, 4096, 1);
	for (unsigned q = 0; q < VU_QUEUES; q++) {
		vf_queue_start(c, q, 1);
		vf_submit(&f, c, q, &bad, 0);
	}
	for (unsigned q = 0; q < VU_QUEUES; q++)
		assert_true(vf_becomes(c, q, TXDA_QUEUE_FAULTED));
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 64);
	/* A queue that faults once more before its record was taken adds none. */
	restart();
	vf_submit(&f, c, 0, &bad, 0);
	assert_true(vf_becomes(c, 0, TXDA_QUEUE_FAULTED));
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 64);
	vf_write(c, TXDA_REG_FAULT_ACK, 0);
	vf_write(c, TXDA_REG_FAULT_ACK, 2);
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 64);
	while (vf_read(c, TXDA_REG_FAULT_COUNT))
		seen |= 1ull << vf_fault(c).queue;
	assert_int_equal(seen, UINT64_MAX);
	vf_write(c, TXDA_REG_FAULT_ACK, 1);
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 0);
	assert_int_equal(vf_read(c, TXDA_REG_FAULT_RECORD), 0);
}

TEST(test_bad_entries)
{
	const struct txda_ring_entry bad[] = {
		{.stream_va = VF_VA(VF_STREAMS), .stream_bytes = 8, .reserved = 1},
		{.stream_va = VF_VA(VF_STREAMS), .stream_bytes = 8, .flags = 2},
		{.stream_va = VF_VA(VF_STREAMS) + 4, .stream_bytes = 8},
		{.stream_va = VF_VA(VF_STREAMS), .stream_bytes = 12},
		{.stream_va = VF_VA(VF_STREAMS), .stream_bytes = TXDA_STREAM_MAX_BYTES + 8},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		vf_queue_start(c, 0, 1);
		for (unsigned n = 0; n < 3; n++)
			vf_submit(&f, c, 0, NULL, 0);
		vf_enter(&f, c, 0, &bad[i]);
		vf_ring(c, 0);
		expect_fault(0, TXDA_FAULT_PACKET);
		assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 3);
		assert_true(vf_done(&f, c, 0, c->queue[0].seqno));
		vf_queue_stop(c, 0);
	}
}

TEST(test_bad_doorbells)
{
	struct vf_stream gate = vf_stream(c);
	uint32_t bad[] = {65, 66, 0x80000000, UINT32_MAX, 1};

	memset(c->dram + VF_DATA, 0, 8);
	vf_put_fence(&gate, TXDA_PKT_WAIT, 0, DATA, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		vf_queue_start(c, 0, 1);
		vf_submit(&f, c, 0, &gate, 0);
		vf_submit(&f, c, 0, NULL, 0);
		assert_true(vf_begins(c, 0, &gate));
		set_queue(0, TXDA_QUEUE_DOORBELL, bad[i]);
		assert_int_equal(expect_fault(0, TXDA_FAULT_PACKET).detail, bad[i]);
		assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 0);
		vf_queue_stop(c, 0);
		/* Of a queue that is off a doorbell is nothing. */
		set_queue(0, TXDA_QUEUE_DOORBELL, bad[i]);
		assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
	}
}

/* The queue's ring or completion word is nowhere. */
static void expect_no_start(void)
{
	set_queue(0, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	expect_fault(0, TXDA_FAULT_PAGE);
}

TEST(test_bad_set_up)
{
	uint32_t at = TXDA_REG_QUEUE(0);

	vf_queue_set_up(c, 0, 1, 6);
	/* Refused: the value stays what it was. */
	set_queue(0, TXDA_QUEUE_RING_LOG2, 3);
	set_queue(0, TXDA_QUEUE_RING_LOG2, 17);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_RING_LOG2), 6);
	set_queue(0, TXDA_QUEUE_VMID, 64);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_VMID), 1);
	set_queue(0, TXDA_QUEUE_PRIORITY, 3);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_PRIORITY), TXDA_PRIORITY_NORMAL);
	vf_write64(c, at + TXDA_QUEUE_RING_LO, VF_SYSTEM(8));
	vf_write64(c, at + TXDA_QUEUE_RING_LO, 2ull << 62 | 4096);
	vf_write64(c, at + TXDA_QUEUE_RING_LO, 1ull << 60 | 4096);
	assert_int_equal(vf_read64(c, at + TXDA_QUEUE_RING_LO), VF_SYSTEM(0));
	vf_write64(c, at + TXDA_QUEUE_COMPLETION_LO, VF_SYSTEM(4));
	assert_int_equal(vf_read64(c, at + TXDA_QUEUE_COMPLETION_LO), VF_SYSTEM(VF_COMPLETIONS));
	/* Nowhere: found at the start. */
	vf_write64(c, at + TXDA_QUEUE_RING_LO, VF_SYSTEM(VF_GUEST_BYTES));
	set_queue(0, TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_equal(expect_fault(0, TXDA_FAULT_PAGE).va, VF_SYSTEM(VF_GUEST_BYTES));
	vf_queue_stop(c, 0);
	vf_write64(c, at + TXDA_QUEUE_RING_LO, VF_MEM - 4096 + 4096);
	expect_no_start();
	vf_queue_stop(c, 0);
	vf_queue_set_up(c, 0, 1, 6);
	vf_write64(c, at + TXDA_QUEUE_COMPLETION_LO, VF_SYSTEM(VF_GUEST_BYTES));
	expect_no_start();
	vf_queue_stop(c, 0);
	/* Bus mastering off: system memory is nowhere. */
	vf_queue_set_up(c, 0, 1, 6);
	vf_set_config16(c, PCI_COMMAND, PCI_COMMAND_MEMORY);
	expect_no_start();
	vf_enable(c);
	vf_queue_stop(c, 0);
	/* A running queue keeps its set-up. */
	vf_queue_start(c, 0, 1);
	set_queue(0, TXDA_QUEUE_VMID, 2);
	vf_write64(c, at + TXDA_QUEUE_RING_LO, 0);
	assert_int_equal(queue_reg(0, TXDA_QUEUE_VMID), 1);
	assert_int_equal(vf_read64(c, at + TXDA_QUEUE_RING_LO), VF_SYSTEM(0));
	assert_true(vf_run(&f, c, 0, NULL));
}

/* Memory that goes away under a running queue. */
TEST(test_lost_memory)
{
	uint64_t before;

	/* The completion word, between submission and end. */
	vf_queue_start(c, 0, 1);
	assert_true(vf_run(&f, c, 0, NULL));
	before = *vf_completion(&f, c, 0);
	vf_set_config16(c, PCI_COMMAND, PCI_COMMAND_MEMORY);
	vf_submit(&f, c, 0, NULL, 0);
	expect_fault(0, TXDA_FAULT_PAGE);
	assert_int_equal(*vf_completion(&f, c, 0), before);
	vf_enable(c);
	vf_queue_stop(c, 0);
	/* The ring. */
	vf_queue_start(c, 0, 1);
	vf_queue_start_at(c, 1, VF_DATA, VF_DATA + 0x10000);
	assert_int_equal(vf_dma_unmap(c, VF_GUEST, VF_GUEST_BYTES), 0);
	vf_submit(&f, c, 0, NULL, 0);
	expect_fault(0, TXDA_FAULT_PAGE);
	/* A queue in device memory does not care. */
	memset(c->dram + VF_DATA, 0, 4096);
	*(uint64_t *)(c->dram + VF_DATA + 16) = 1234;
	set_queue(1, TXDA_QUEUE_DOORBELL, 1);
	for (unsigned i = 0; i < 100000 && !queue_reg(1, TXDA_QUEUE_HEAD); i++)
		;
	assert_int_equal(*(uint64_t *)(c->dram + VF_DATA + 0x10000), 1234);
	assert_int_equal(vf_dma_map(c, VF_GUEST, VF_GUEST_BYTES, f.guest_fd, 0, 3), 0);
	restart();
	assert_true(vf_run(&f, c, 0, NULL));
}

static bool is_faulted(struct vu_queue *q)
{
	bool faulted;

	pthread_mutex_lock(&q->device->lock);
	faulted = q->state == TXDA_QUEUE_FAULTED;
	pthread_mutex_unlock(&q->device->lock);
	return faulted;
}

/* The client leaves in the middle of work, and comes back. */
TEST(test_client_leaves)
{
	struct vf_stream gate = vf_stream(c);
	uint64_t root = c->root[1];

	memset(c->dram + VF_DATA, 0, 8);
	vf_put_fence(&gate, TXDA_PKT_WAIT, 0, DATA, 1);
	vf_queue_start(c, 0, 1);
	vf_submit(&f, c, 0, &gate, 0);
	vf_submit(&f, c, 0, NULL, 0);
	vf_disconnect(c);
	/* The completion word is gone when the stream is done. */
	*(uint64_t *)(c->d->dram + VF_DATA) = 1;
	while (!is_faulted(&c->d->queue[0]))
		;
	vf_attach(&f, c);
	c->root[1] = root;
	assert_int_equal(queue_reg(0, TXDA_QUEUE_HEAD), 0);
	expect_fault(0, TXDA_FAULT_PAGE);
	restart();
	*vf_completion(&f, c, 0) = 0;
	assert_true(vf_run(&f, c, 0, &gate));
}

TEST_MAIN_EACH(setup, teardown)
