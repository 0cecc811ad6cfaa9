// SPDX-License-Identifier: MIT
/* Page tables: walks, huge pages, apertures, flushes, and what keeps a chip in its place. */
#include "vfio_fixture.h"
#include "core/machine.h"
#include "sigbus.h"
#include "walk.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <sys/mman.h>

#define DATA VF_VA(VF_DATA)
#define HUGE (2ull << 20)
#define VA   0x200000000ull /* nothing is mapped here but by a test */

static struct vf f;
static struct vf_chip *const c = &f.c[0];

static int setup(void **state)
{
	vf_start(&f, 2, VU_IRQ_MODE_MSIX);
	for (unsigned i = 0; i < 2; i++) {
		vf_space(&f.c[i], 1);
		vf_queue_start(&f.c[i], 0, 1);
	}
	return 0;
}

static int teardown(void **state)
{
	vf_free(&f);
	return 0;
}

static bool fill(uint64_t va, uint64_t bytes, uint32_t value)
{
	struct vf_stream s = vf_stream(c);

	vf_put_fill(&s, va, bytes, value);
	return vf_run(&f, c, 0, &s);
}

static bool copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
	struct vf_stream s = vf_stream(c);

	vf_put_copy(&s, dst, src, bytes);
	return vf_run(&f, c, 0, &s);
}

static void restart(struct vf_chip *chip)
{
	vf_queue_stop(chip, 0);
	vf_queue_start(chip, 0, 1);
}

/* The last piece of work has faulted at @va; the queue is started again. */
static void expect_page_fault(uint64_t va)
{
	struct txda_fault fault;

	assert_true(vf_becomes(c, 0, TXDA_QUEUE_FAULTED));
	fault = vf_fault(c);
	assert_int_equal(fault.code, TXDA_FAULT_PAGE);
	assert_int_equal(fault.va, va);
	restart(c);
}

/* Filling the range faults at @at. */
static void fill_faults(uint64_t va, uint64_t bytes, uint64_t at)
{
	assert_false(fill(va, bytes, 1));
	expect_page_fault(at);
}

static uint32_t dram32(uint64_t offset)
{
	return *(uint32_t *)(c->dram + offset);
}

static uint64_t local(uint64_t address)
{
	return vf_pte(TXDA_APERTURE_LOCAL, address, VF_RW);
}

/* ---- walks ----------------------------------------------------------------------------------- */

TEST_WITH(test_pages, setup, teardown)
{
	/* Not mapped, mapped without a flush, at another place without and with one. */
	fill_faults(VA, 4096, VA);
	vf_map(c, 1, VA, 4096, local(VF_DATA));
	assert_true(fill(VA, 4096, 0x11111111));
	assert_int_equal(dram32(VF_DATA), 0x11111111);
	vf_map(c, 1, VA, 4096, local(VF_DATA + 8192));
	vf_flush(c, 1, VA, 4096);
	assert_true(fill(VA, 4096, 0x22222222));
	assert_int_equal(dram32(VF_DATA), 0x11111111);
	assert_int_equal(dram32(VF_DATA + 8192), 0x22222222);
	/* Taken away. */
	*vf_entry(c, 1, VA, 0) = 0;
	vf_flush(c, 1, VA, 4096);
	fill_faults(VA, 4096, VA);
	/* Across pages that lie anywhere, one missing. */
	for (unsigned i = 0; i < 16; i++)
		vf_map(c, 1, VA + i * 4096, 4096, local(VF_DATA + (15 - i) * 4096));
	assert_true(fill(VA, 16 * 4096, 3));
	assert_int_equal(dram32(VF_DATA + 15 * 4096), 3);
	*vf_entry(c, 1, VA + 7 * 4096, 0) = 0;
	vf_flush(c, 1, VA + 7 * 4096, 4096);
	fill_faults(VA, 16 * 4096, VA + 7 * 4096);
	assert_int_equal(dram32(VF_DATA + 15 * 4096), 3);
	/* The rest is still there. */
	assert_true(fill(VA, 7 * 4096, 5));
	assert_true(fill(VA + 8 * 4096, 8 * 4096, 5));
}

TEST_WITH(test_rights, setup, teardown)
{
	vf_map(c, 1, VA, 4096, vf_pte(TXDA_APERTURE_LOCAL, VF_DATA, TXDA_PTE_READ));
	vf_map(c, 1, VA + 4096, 4096, vf_pte(TXDA_APERTURE_LOCAL, VF_DATA + 4096, TXDA_PTE_WRITE));
	vf_map(c, 1, VA + 8192, 4096, vf_pte(TXDA_APERTURE_LOCAL, VF_DATA + 8192, 0));
	fill_faults(VA, 4096, VA);
	assert_true(copy(VA + 4096, VA, 4096));
	assert_false(copy(DATA + 0x10000, VA + 4096, 4096));
	expect_page_fault(VA + 4096);
	fill_faults(VA + 8192, 4096, VA + 8192);
	/* More rights need a flush: the old entry was valid. */
	*vf_entry(c, 1, VA, 0) |= TXDA_PTE_WRITE;
	vf_flush(c, 1, VA, 4096);
	assert_true(fill(VA, 4096, 1));
	*vf_entry(c, 1, VA, 0) &= ~TXDA_PTE_WRITE;
	vf_flush(c, 1, VA, 4096);
	fill_faults(VA, 4096, VA);
}

TEST_WITH(test_huge, setup, teardown)
{
	uint64_t *entry = vf_entry(c, 1, VA, 1);

	for (unsigned i = 0; i < 4; i++)
		entry[i] = local(VF_DATA + i * HUGE) | TXDA_PTE_VALID | TXDA_PTE_LEAF;
	assert_true(fill(VA, 4 * HUGE, 7));
	assert_int_equal(dram32(VF_DATA), 7);
	assert_int_equal(dram32(VF_DATA + 4 * HUGE - 4), 7);
	assert_true(fill(VA + 2 * HUGE + 4096, 4096, 8));
	assert_int_equal(dram32(VF_DATA + 2 * HUGE + 4096), 8);
	fill_faults(VA + 4 * HUGE - 4096, 8192, VA + 4 * HUGE);
	/* One of them becomes a table of small pages. */
	entry[1] = 0;
	vf_map(c, 1, VA + HUGE, HUGE, local(VF_DATA + 8 * HUGE));
	vf_flush(c, 1, VA + HUGE, HUGE);
	assert_true(fill(VA, 4 * HUGE, 10));
	assert_int_equal(dram32(VF_DATA + 8 * HUGE), 10);
	assert_int_equal(dram32(VF_DATA + HUGE), 7);
	/* It ends with the DRAM, though the page does not. */
	entry[5] = local(VF_MEM - HUGE) | TXDA_PTE_VALID | TXDA_PTE_LEAF;
	entry[6] = entry[5] + HUGE;
	assert_true(fill(VA + 5 * HUGE, HUGE, 11));
	fill_faults(VA + 6 * HUGE, 4096, VA + 6 * HUGE);
}

TEST_WITH(test_nonsense, setup, teardown)
{
	const uint64_t good = local(VF_DATA) | TXDA_PTE_VALID | TXDA_PTE_LEAF;
	const uint64_t bad[] = {
		good & ~TXDA_PTE_LEAF,
		good | 1ull << 7,
		good | 1ull << 11,
		good | 1ull << 56,
		good | 1ull << 63,
		good | TXDA_PTE_APERTURE_MASK,
		good | 1ull << TXDA_PTE_PORT_SHIFT,
		(good & ~TXDA_PTE_ADDR_MASK) | VF_MEM,
		good | TXDA_PTE_ADDR_MASK,
		(good & ~TXDA_PTE_APERTURE_MASK) | 2ull << TXDA_PTE_APERTURE_SHIFT |
			15ull << TXDA_PTE_PORT_SHIFT,
	};
	uint64_t *leaf = vf_entry(c, 1, VA, 0), *dir = vf_entry(c, 1, VA, 1), was = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		*leaf = bad[i];
		vf_flush(c, 1, VA, 4096);
		fill_faults(VA, 4096, VA);
	}
	*leaf = good;
	/* Directories: flags, outside of DRAM, a loop, a huge page that is not aligned, a leaf too
	 * high up. */
	was = *dir;
	{
		const uint64_t bad_dir[] = {
			was | TXDA_PTE_READ,
			was | TXDA_PTE_WRITE,
			was | TXDA_PTE_COHERENT,
			was | 1ull << 52,
			was | 1ull << 62,
			VF_MEM | TXDA_PTE_VALID,
			TXDA_PTE_ADDR_MASK | TXDA_PTE_VALID,
			c->root[1] | TXDA_PTE_VALID,
			good | 4096,
		};

		for (unsigned i = 0; i < ARRAY_SIZE(bad_dir); i++) {
			*dir = bad_dir[i];
			vf_flush(c, 1, VA, HUGE);
			fill_faults(VA, 4096, VA);
		}
	}
	*dir = was;
	assert_true(fill(VA, 4096, 1));
	for (unsigned level = 2; level < 4; level++) {
		uint64_t *up = vf_entry(c, 1, VA ^ 1ull << 35, level);

		was = *up;
		*up = (good & ~TXDA_PTE_ADDR_MASK) | TXDA_PTE_VALID;
		vf_flush(c, 1, 0, 0xffffffffull << 12);
		assert_false(fill(VA ^ 1ull << 35, 4096, 1));
		vf_fault(c);
		*up = was;
		vf_flush(c, 1, 0, 0xffffffffull << 12);
		restart(c);
	}
	/* Addresses that have no entry at all. */
	fill_faults(CM_VA_BYTES, 4096, CM_VA_BYTES);
	fill_faults(UINT64_MAX - 4095, 4092, UINT64_MAX - 4095);
}

/* What a walk makes of neighbours, without a chip. */
TEST(test_runs)
{
	static uint64_t table[4][512] __attribute__((aligned(4096)));
	const struct vu_walk w = {(const uint8_t *)table, sizeof(table), 48};
	struct vu_run r;

	memset(table, 0, sizeof(table));
	for (unsigned l = 0; l < 3; l++)
		table[l][0] = (l + 1) * 4096 | TXDA_PTE_VALID;
	for (uint64_t i = 0; i < 512; i++)
		table[3][i] = i << 12 | TXDA_PTE_VALID | TXDA_PTE_LEAF | TXDA_PTE_READ;
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 0, &r), 0);
	assert_int_equal(r.bytes, HUGE);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 300 << 12, &r), 0);
	assert_int_equal(r.va, 0);
	assert_int_equal(r.address, 0);
	assert_int_equal(r.bytes, HUGE);
	/* Cut by rights, a hole, another place. */
	table[3][100] |= TXDA_PTE_WRITE;
	table[3][400] = 0;
	table[3][350] += 4096;
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 300 << 12, &r), 0);
	assert_int_equal(r.va, 101 << 12);
	assert_int_equal(r.address, 101 << 12);
	assert_int_equal(r.bytes, 249 << 12);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 100 << 12, &r), 0);
	assert_int_equal(r.bytes, 4096);
	assert_int_equal(r.rights, VF_RW);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 360 << 12, &r), 0);
	assert_int_equal(r.va, 351 << 12);
	assert_int_equal(r.bytes, 49 << 12);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 400 << 12, &r), -EFAULT);
	/* At address 0 it does not go on below. */
	for (uint64_t i = 0; i < 512; i++)
		table[3][i] =
			((i - 5) & 0xffff) << 12 | TXDA_PTE_VALID | TXDA_PTE_LEAF | TXDA_PTE_READ;
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 6 << 12, &r), 0);
	assert_int_equal(r.va, 5 << 12);
	assert_int_equal(r.address, 0);
	/* Roots. */
	assert_int_equal(vu_walk(&w, 0, 0, &r), -EFAULT);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID | 2, 0, &r), -EINVAL);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID | sizeof(table), 0, &r), -EINVAL);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID | 1ull << 60, 0, &r), -EINVAL);
	assert_int_equal(vu_walk(&w, TXDA_PTE_VALID, 1ull << 48, &r), -EFAULT);
}

/* ---- system memory --------------------------------------------------------------------------- */

TEST_WITH(test_system, setup, teardown)
{
	vf_map(c, 1, VA, 1 << 20,
	       vf_pte(TXDA_APERTURE_SYSTEM, VF_GUEST + VF_GUEST_DATA, VF_RW) | TXDA_PTE_COHERENT);
	assert_true(fill(VA, 1 << 20, 0x5555));
	assert_int_equal(*(uint32_t *)(f.guest + VF_GUEST_DATA + (1 << 20) - 4), 0x5555);
	memset(f.guest + VF_GUEST_DATA, 0x66, 4096);
	assert_true(copy(DATA, VA, 4096));
	assert_int_equal(dram32(VF_DATA), 0x66666666);
	/* Where the guest has nothing. */
	vf_map(c, 1, VA + (1 << 20), 8192,
	       vf_pte(TXDA_APERTURE_SYSTEM, VF_GUEST + VF_GUEST_BYTES - 4096, VF_RW));
	assert_true(fill(VA + (1 << 20), 4096, 1));
	fill_faults(VA + (1 << 20), 8192, VA + (1 << 20) + 4096);
	vf_map(c, 1, VA + (2 << 20), 8192, vf_pte(TXDA_APERTURE_SYSTEM, VF_GUEST - 4096, VF_RW));
	fill_faults(VA + (2 << 20), 8192, VA + (2 << 20));
	assert_true(fill(VA + (2 << 20) + 4096, 4096, 1));
}

/*
 * Whether the stream is done rather than at fault. The queue needs no system memory itself: ring and
 * completion word are in DRAM.
 */
#define LOCAL_RING (VF_DATA + 20 * 1024 * 1024)

static bool run_local(unsigned q, const struct vf_stream *s)
{
	const struct txda_ring_entry e = {
		.stream_va = VF_VA(s->off), .stream_bytes = (uint32_t)s->bytes, .seqno = 1};
	bool done;

	memset(c->dram + LOCAL_RING, 0, 8192);
	vf_queue_start_at(c, q, LOCAL_RING, LOCAL_RING + 4096);
	memcpy(c->dram + LOCAL_RING, &e, sizeof(e));
	vf_write(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_DOORBELL, 1);
	while (!vf_read(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_HEAD) &&
	       vf_queue_state(c, q) == TXDA_QUEUE_RUNNING)
		;
	done = vf_queue_state(c, q) == TXDA_QUEUE_RUNNING;
	assert_int_equal(*(uint64_t *)(c->dram + LOCAL_RING + 4096), done);
	vf_queue_stop(c, q);
	return done;
}

TEST_WITH(test_bus_master, setup, teardown)
{
	struct vf_stream local = vf_stream(c), system = vf_stream(c);

	vf_map(c, 1, VA, 4096, vf_pte(TXDA_APERTURE_SYSTEM, VF_GUEST + VF_GUEST_DATA, VF_RW));
	vf_put_fill(&local, DATA, 4096, 1);
	vf_put_fill(&system, VA, 4096, 1);
	/* What was looked up before it went off does not work either. */
	assert_true(run_local(3, &system));
	vf_set_config16(c, PCI_COMMAND, PCI_COMMAND_MEMORY);
	*(uint32_t *)(f.guest + VF_GUEST_DATA) = 0;
	assert_true(run_local(3, &local));
	assert_false(run_local(3, &system));
	assert_int_equal(*(uint32_t *)(f.guest + VF_GUEST_DATA), 0);
	assert_int_equal(vf_fault(c).va, VA);
	vf_enable(c);
	assert_true(run_local(3, &system));
}

/* Read-only memory, and memory without a file. */
TEST_WITH(test_system_rights, setup, teardown)
{
	int fd = memfd_create("rom", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(pwrite(fd, "\x77\x77\x77\x77", 4, 4096), 4);
	assert_int_equal(vf_dma_map(c, 0x1000, 4096, fd, 4096, VU_DMA_READABLE), 0);
	assert_int_equal(vf_dma_map(c, 0x2000, 4096, -1, 0, VU_DMA_READABLE | VU_DMA_WRITEABLE), 0);
	vf_map(c, 1, VA, 8192, vf_pte(TXDA_APERTURE_SYSTEM, 0x1000, VF_RW));
	assert_true(copy(DATA, VA, 4));
	assert_int_equal(dram32(VF_DATA), 0x77777777);
	fill_faults(VA, 4096, VA);
	assert_false(copy(DATA, VA + 4096, 4));
	expect_page_fault(VA + 4096);
	close(fd);
}

/* A client that takes away what it has lent harms itself and nobody else. */
TEST_WITH(test_shrunk_file, setup, teardown)
{
	int fd = memfd_create("shrinks", MFD_CLOEXEC);

	assert_int_equal(vu_sigbus_install(), 0);
	assert_int_equal(ftruncate(fd, HUGE), 0);
	assert_int_equal(vf_dma_map(c, 0x10000000, HUGE, fd, 0, 3), 0);
	vf_map(c, 1, VA, HUGE, vf_pte(TXDA_APERTURE_SYSTEM, 0x10000000, VF_RW));
	assert_true(fill(VA, HUGE, 0x31313131));
	assert_true(copy(DATA, VA, HUGE));
	assert_int_equal(dram32(VF_DATA + HUGE - 4), 0x31313131);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_true(copy(DATA, VA, HUGE));
	assert_int_equal(dram32(VF_DATA), 0x31313131);
	assert_int_equal(dram32(VF_DATA + HUGE - 4), 0);
	/* A ring and a completion word there. */
	vf_queue_start_at(c, 5, 1ull << 62 | 0x10010000, 1ull << 62 | 0x10020000);
	vf_write(c, TXDA_REG_QUEUE(5) + TXDA_QUEUE_DOORBELL, 1);
	while (!vf_read(c, TXDA_REG_QUEUE(5) + TXDA_QUEUE_HEAD))
		;
	assert_int_equal(vf_dma_unmap(c, 0x10000000, HUGE), 0);
	close(fd);
}

/*
 * Submits work that fills the 2 MiB at @va many times, then waits for a gate to be opened and fills
 * them once more; and waits until it is seen at @host that it has begun. The first is under way for
 * a while, the last is there even when the chip is quick.
 */
#define GATE (VF_DATA + 15 * HUGE)

static uint64_t keep_busy(uint64_t va, const uint32_t *host)
{
	struct vf_stream s = vf_stream(c);
	uint64_t seqno;

	*(uint64_t *)(c->dram + GATE) = 0;
	for (unsigned n = 0; n < 90; n++)
		vf_put_fill(&s, va, HUGE, n + 1);
	vf_put_fence(&s, TXDA_PKT_WAIT, 0, VF_VA(GATE), 1);
	vf_put_fill(&s, va, HUGE, 1000);
	seqno = vf_submit(&f, c, 0, &s, 0);
	while (!__atomic_load_n(host, __ATOMIC_RELAXED))
		;
	return seqno;
}

static void open_gate(void)
{
	__atomic_store_n((uint64_t *)(c->dram + GATE), 1, __ATOMIC_RELEASE);
}

/* When DMA_UNMAP is answered nothing of the chip reaches the memory any more. */
TEST_WITH(test_unmap, setup, teardown)
{
	int fd = memfd_create("more", MFD_CLOEXEC);
	uint32_t *host;
	uint64_t seqno;

	assert_int_equal(ftruncate(fd, HUGE), 0);
	host = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(host, MAP_FAILED);
	vf_map(c, 1, VA, HUGE, vf_pte(TXDA_APERTURE_SYSTEM, 0x10000000, VF_RW));
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(vf_dma_map(c, 0x10000000, HUGE, fd, 0, 3), 0);
		seqno = keep_busy(VA, host);
		assert_int_equal(vf_dma_unmap(c, 0x10000000, HUGE), 0);
		memset(host, 0, HUGE);
		open_gate();
		assert_false(vf_done(&f, c, 0, seqno));
		assert_int_equal(*host, 0);
		expect_page_fault(VA);
		/* The rest of guest memory is found again. */
		assert_true(fill(DATA, 4096, 1));
	}
	munmap(host, HUGE);
	close(fd);
}

/* ---- flushes while the chip works ------------------------------------------------------------ */

TEST_WITH(test_flush_under_way, setup, teardown)
{
	uint64_t *entry = vf_entry(c, 1, VA, 1);
	const uint64_t pte = local(VF_DATA) | TXDA_PTE_VALID | TXDA_PTE_LEAF;

	for (unsigned i = 0; i < 50; i++) {
		uint64_t seqno;

		*entry = pte;
		memset(c->dram + VF_DATA, 0, 4096);
		seqno = keep_busy(VA, (uint32_t *)(c->dram + VF_DATA));
		*entry = 0;
		vf_flush(c, 1, VA, HUGE);
		memset(c->dram + VF_DATA, 0, 4096);
		open_gate();
		assert_false(vf_done(&f, c, 0, seqno));
		assert_int_equal(dram32(VF_DATA), 0);
		expect_page_fault(VA);
	}
}

TEST_WITH(test_flush_registers, setup, teardown)
{
	uint32_t at = TXDA_REG_VM(1);

	vf_map(c, 1, VA, 8192, local(VF_DATA));
	assert_true(fill(VA, 8192, 1));
	*vf_entry(c, 1, VA, 0) = *vf_entry(c, 1, VA + 4096, 0) = 0;
	/* No pages: nothing is flushed. */
	vf_flush(c, 1, VA, 0);
	assert_true(fill(VA, 8192, 2));
	/* The second page alone. */
	vf_flush(c, 1, VA + 4096, 4096);
	assert_true(fill(VA, 4096, 3));
	fill_faults(VA + 4096, 4096, VA + 4096);
	/* Values that overflow, of an address space that nobody uses, and everything. */
	vf_write64(c, at + TXDA_VM_FLUSH_PAGE_LO, UINT64_MAX);
	vf_write(c, at + TXDA_VM_FLUSH_COUNT, 0xfffffffe);
	vf_write(c, at + TXDA_VM_FLUSH, 1);
	vf_flush(c, 63, 0, 0xffffffffull << 12);
	vf_write64(c, at + TXDA_VM_FLUSH_PAGE_LO, 0);
	vf_write(c, at + TXDA_VM_FLUSH_COUNT, 0xffffffff);
	vf_write(c, at + TXDA_VM_FLUSH, 2);
	assert_true(fill(DATA, 4096, 4));
	vf_write(c, at + TXDA_VM_FLUSH, 1);
	fill_faults(VA, 4096, VA);
}

/* Another root is another world at once. */
TEST_WITH(test_roots, setup, teardown)
{
	uint64_t root;

	vf_map(c, 1, VA, 4096, local(VF_DATA));
	assert_true(fill(VA, 4096, 1));
	root = c->root[1];
	c->root[1] = 0;
	vf_space(c, 1);
	vf_map(c, 1, VA, 4096, local(VF_DATA + 4096));
	assert_true(fill(VA, 4096, 2));
	assert_int_equal(dram32(VF_DATA), 1);
	assert_int_equal(dram32(VF_DATA + 4096), 2);
	vf_write64(c, TXDA_REG_VM(1) + TXDA_VM_ROOT_LO, 0);
	assert_false(fill(VA, 4096, 3));
	assert_true(vf_becomes(c, 0, TXDA_QUEUE_FAULTED));
	vf_fault(c);
	vf_write64(c, TXDA_REG_VM(1) + TXDA_VM_ROOT_LO, root | TXDA_PTE_VALID);
	restart(c);
	assert_true(fill(VA, 4096, 4));
	assert_int_equal(dram32(VF_DATA), 4);
	/* VMIDs do not see each other. */
	vf_space(c, 2);
	vf_queue_start(c, 1, 2);
	{
		struct vf_stream s = vf_stream(c);

		vf_put_fill(&s, VA, 4096, 5);
		assert_false(vf_run(&f, c, 1, &s));
		assert_int_equal(vf_fault(c).vmid, 2);
	}
}

/* ---- many pages ------------------------------------------------------------------------------ */

/* The thread that leads the machine counts them. */
static uint64_t evictions(void)
{
	uint64_t n;

	cm_machine_hold(f.m->cm);
	n = f.m->cm->mmu.evictions;
	cm_machine_release(f.m->cm);
	return n;
}

static size_t limit_mappings(size_t limit)
{
	size_t was;

	cm_machine_hold(f.m->cm);
	was = f.m->cm->mmu.max_pieces;
	f.m->cm->mmu.max_pieces = limit;
	cm_machine_release(f.m->cm);
	return was;
}

/* Maps pages of @bytes at @va to as many at VF_DATA + @to, no two neighbours next to each other. */
static void map_scattered(uint64_t va, uint64_t to, uint64_t bytes)
{
	uint64_t pages = bytes / 4096;

	for (uint64_t i = 0; i < pages; i++)
		vf_map(c, 1, va + i * 4096, 4096, local(VF_DATA + to + i * 7 % pages * 4096));
}

static void expect_words(uint64_t from, uint64_t bytes, uint32_t value)
{
	for (uint64_t at = 0; at < bytes; at += 4096)
		assert_int_equal(dram32(VF_DATA + from + at), value);
}

/* More host mappings than there may be: what is kept gives way, and all of it is still right. */
TEST_WITH(test_eviction, setup, teardown)
{
	const uint64_t bytes = 4 * HUGE, piece = 16 * 4096;
	size_t was;

	map_scattered(VA, 0, bytes);
	was = limit_mappings(300);
	for (uint64_t at = 0; at < bytes; at += piece)
		assert_true(fill(VA + at, piece, (uint32_t)(at / piece)));
	for (uint64_t i = 0; i < bytes / 4096; i++)
		assert_int_equal(dram32(VF_DATA + i * 7 % (bytes / 4096) * 4096), i / 16);
	assert_true(evictions() >= bytes / 4096 / 300);
	/* More at once than there is room for. */
	assert_false(fill(VA, bytes, 1));
	assert_true(vf_becomes(c, 0, TXDA_QUEUE_FAULTED));
	assert_int_equal(vf_fault(c).code, TXDA_FAULT_PAGE);
	restart(c);
	limit_mappings(was);
	assert_true(fill(VA, bytes, 99));
	expect_words(0, bytes, 99);
}

/* The same in the middle of looking up what one slice of a long transfer needs. */
TEST_WITH(test_eviction_within, setup, teardown)
{
	const uint64_t half = 12ull << 20;
	size_t was;

	/* Slices of 8 MiB are 2048 pages a side: here the third one's. */
	map_scattered(VA, 0, 2 * half);
	was = limit_mappings(5000);
	assert_true(fill(VA, 2 * half, 55));
	expect_words(0, 2 * half, 55);
	assert_int_equal(evictions(), 1);
	/* Here that of the second slice's source, when its destination has been found. */
	map_scattered(VA, 0, half);
	map_scattered(VA + half, half, half);
	vf_flush(c, 1, VA, 2 * half);
	limit_mappings(5500);
	assert_true(fill(VA + half, half, 66));
	vf_flush(c, 1, VA, 2 * half);
	assert_true(copy(VA, VA + half, half));
	expect_words(0, half, 66);
	assert_true(evictions() > 1);
	limit_mappings(was);
}

/* And of what a stream is in: its first pages are still there when it begins. */
TEST_WITH(test_evicted_stream, setup, teardown)
{
	const uint64_t pages = 200;
	struct txda_ring_entry e = {.stream_va = VA, .stream_bytes = (uint32_t)(pages * 4096)};
	const struct txda_pkt nop = {TXDA_PKT_NOP, 0, 4096};
	uint64_t before;
	size_t was;

	map_scattered(VA, 0, pages * 4096);
	map_scattered(VA + HUGE, pages * 4096, pages * 4096);
	for (uint64_t i = 0; i < pages; i++)
		memcpy(c->dram + VF_DATA + i * 4096, &nop, sizeof(nop));
	assert_true(fill(VA + HUGE, pages * 4096, 1));
	was = limit_mappings(300);
	before = evictions();
	e.seqno = ++c->queue[0].seqno;
	vf_enter(&f, c, 0, &e);
	vf_ring(c, 0);
	assert_true(vf_done(&f, c, 0, e.seqno));
	assert_int_equal(evictions(), before + 1);
	limit_mappings(was);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Injects faults, which the links notice. */
static void inject(const char *spec)
{
	uint64_t lost;

	assert_int_equal(cm_inject(f.m->cm, spec), 0);
	vu_machine_poll(f.m, &lost);
}

TEST_WITH(test_peer, setup, teardown)
{
	struct vf_chip *peer = &f.c[1];

	vf_map(c, 1, VA, HUGE, vf_pte(TXDA_APERTURE_C2C, VF_DATA, VF_RW));
	assert_true(fill(VA, HUGE, 0x77));
	assert_int_equal(*(uint32_t *)(peer->dram + VF_DATA + HUGE - 4), 0x77);
	assert_int_equal(dram32(VF_DATA), 0);
	/* No port behind that number; beyond the peer's DRAM. */
	vf_map(c, 1, VA + HUGE, 4096,
	       vf_pte(TXDA_APERTURE_C2C, VF_DATA, VF_RW) | 1ull << TXDA_PTE_PORT_SHIFT);
	fill_faults(VA + HUGE, 4096, VA + HUGE);
	vf_map(c, 1, VA + 2 * HUGE, 4096, vf_pte(TXDA_APERTURE_C2C, VF_MEM, VF_RW));
	fill_faults(VA + 2 * HUGE, 4096, VA + 2 * HUGE);
	/* Link down, and up again. */
	inject("link-down:chip=1");
	fill_faults(VA, 4096, VA);
	inject("clear");
	assert_true(fill(VA, 4096, 0x78));
	assert_int_equal(*(uint32_t *)(peer->dram + VF_DATA), 0x78);
	/* A peer that has gone. */
	inject("lost:chip=1");
	fill_faults(VA, 4096, VA);
}

static void set_group(struct vf_chip *chip, uint64_t id, uint32_t rank, uint32_t routes)
{
	uint32_t at = TXDA_REG_VM(1) + TXDA_VM_GROUP(3);

	vf_write(chip, at + TXDA_GROUP_RANK_SIZE, 2 << 8 | rank);
	vf_write(chip, at + TXDA_GROUP_ROUTES, routes);
	vf_write64(chip, at + TXDA_GROUP_ID_LO, id);
}

/* Submits a collective; it has been begun when this returns, or could not be. */
static uint64_t reduce(struct vf_chip *chip)
{
	struct txda_pkt_collective p = {
		.dst = DATA + 4096, .src = DATA, .count = 1024, .dtype = TXDA_F32, .group = 3};
	const uint32_t packet = TXDA_REG_QUEUE(0) + TXDA_QUEUE_PACKET_LO;
	const uint32_t head = TXDA_REG_QUEUE(0) + TXDA_QUEUE_HEAD;
	struct vf_stream s = vf_stream(chip);
	uint64_t seqno;

	for (unsigned i = 0; i < 1024; i++)
		((float *)(chip->dram + VF_DATA))[i] = (float)(i + chip->d->index * 1000);
	vf_put(&s, TXDA_PKT_ALL_REDUCE, 0, &p, sizeof(p));
	seqno = vf_submit(&f, chip, 0, &s, 0);
	while (vf_read64(chip, packet) != VF_VA(s.off) && !vf_read(chip, head) &&
	       vf_queue_state(chip, 0) == TXDA_QUEUE_RUNNING)
		;
	return seqno;
}

/* A reduction in a group of both chips, to its end. */
static void reduce_both(struct vf_chip *peer)
{
	uint64_t a, b;

	set_group(c, 0x1234567890, 0, 0x0f);
	set_group(peer, 0x1234567890, 1, 0xf0);
	a = reduce(c);
	b = reduce(peer);
	assert_true(vf_done(&f, c, 0, a));
	assert_true(vf_done(&f, peer, 0, b));
}

static void expect_collective_fault(uint32_t state)
{
	assert_true(vf_becomes(c, 0, state));
	assert_int_equal(vf_fault(c).code, TXDA_FAULT_COLLECTIVE);
}

TEST_WITH(test_groups, setup, teardown)
{
	struct vf_chip *peer = &f.c[1];

	reduce_both(peer);
	for (unsigned i = 0; i < 1024; i++) {
		assert_true(((float *)(c->dram + VF_DATA + 4096))[i] == (float)(2 * i + 1000));
		assert_true(((float *)(peer->dram + VF_DATA + 4096))[i] == (float)(2 * i + 1000));
	}
	/* A member that waits is lost, not guilty, when the other's link is gone. */
	reduce(c);
	assert_int_equal(cm_inject(f.m->cm, "link-down:chip=1"), 0);
	reduce(peer);
	assert_true(vf_becomes(c, 0, TXDA_QUEUE_LOST));
	assert_true(vf_becomes(peer, 0, TXDA_QUEUE_LOST));
	assert_int_equal(vf_fault(c).code, TXDA_FAULT_COLLECTIVE);
	assert_int_equal(cm_inject(f.m->cm, "clear"), 0);
	restart(c);
	restart(peer);
	/* A chip reset of one of them. */
	reduce(c);
	vf_write(peer, TXDA_REG_RESET, TXDA_RESET_CHIP);
	/* It has left the group: the meeting cannot be any more. */
	expect_collective_fault(TXDA_QUEUE_LOST);
	restart(c);
	/* Routes that lead nowhere are no group. */
	set_group(c, 0x1234567890, 0, 0x00);
	reduce(c);
	expect_collective_fault(TXDA_QUEUE_FAULTED);
}

/* ---- traffic between chips ------------------------------------------------------------------- */

static void expect_traffic(struct vf_chip *chip, uint64_t sent, uint64_t received)
{
	assert_int_equal(vf_read64(chip, TXDA_REG_C2C_SENT_LO), sent);
	assert_int_equal(vf_read64(chip, TXDA_REG_C2C_RECEIVED_LO), received);
}

TEST_WITH(test_traffic, setup, teardown)
{
	struct txda_pkt_copy_2d rows = {.dst = DATA + HUGE,
					.src = VA,
					.dst_pitch = 300,
					.src_pitch = 10000,
					.row_bytes = 300,
					.rows = 5};
	struct vf_chip *peer = &f.c[1];
	struct vf_stream s = vf_stream(c);

	assert_true(vf_read(c, TXDA_REG_CAPS) & TXDA_CHIP_C2C_TRAFFIC);
	/* The chip's own page between the peer's: two of three pages go through the port. */
	vf_map(c, 1, VA, HUGE, vf_pte(TXDA_APERTURE_C2C, VF_DATA, VF_RW));
	vf_map(c, 1, VA + 4096, 4096, local(VF_DATA));
	assert_true(fill(DATA, HUGE, 1));
	expect_traffic(c, 0, 0);
	assert_true(fill(VA, 3 * 4096, 1));
	expect_traffic(c, 8192, 0);
	expect_traffic(peer, 0, 8192);
	assert_true(copy(DATA + HUGE, VA + 4096, 4097));
	expect_traffic(c, 8192, 1);
	expect_traffic(peer, 1, 8192);
	/* Rows begin at 0, 10000, 20000 and so on: all are the peer's, and count as what they are. */
	vf_put(&s, TXDA_PKT_COPY_2D, 0, &rows, sizeof(rows));
	assert_true(vf_run(&f, c, 0, &s));
	expect_traffic(c, 8192, 1501);
	expect_traffic(peer, 1501, 8192);
	/* Each counts since its own reset. */
	vf_write(peer, TXDA_REG_RESET, TXDA_RESET_CHIP);
	expect_traffic(peer, 0, 0);
	expect_traffic(c, 8192, 1501);
}

TEST_WITH(test_group_traffic, setup, teardown)
{
	struct vf_chip *peer = &f.c[1];

	reduce_both(peer);
	expect_traffic(c, 4096, 4096);
	expect_traffic(peer, 4096, 4096);
}

TEST_MAIN
