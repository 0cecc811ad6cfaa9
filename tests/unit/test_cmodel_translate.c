// SPDX-License-Identifier: MIT
/* Translated address spaces: what is asked for when, kept how long, and what happens when there is
 * no room. */
#include "cm_fixture.h"
#include "core/machine.h"

#include <errno.h>

#define PAGE  4096ull
#define TV    0x40000000ull /* VA TV + x is offset x of DRAM, unless a test says something else */
#define CHIPS 2
#define H     256u /* columns */

#define W_OFF	(FIX_DATA + 0x000000)
#define X_OFF	(FIX_DATA + 0x100000)
#define Y_OFF	(FIX_DATA + 0x200000)
#define ROW_OFF (FIX_DATA + 0x300000)
#define G_OFF	(FIX_DATA + 0x400000)

/* What stands behind the addresses of one chip's space; odd things begin at FIX_DATA. */
struct tables {
	int fd;
	uint64_t pages;	    /* in one answer, aligned to as many */
	uint64_t shift;	    /* added to the offset */
	uint64_t hole, end; /* VAs that are not mapped */
	unsigned flags;
	unsigned asked; /* leader */
	uint64_t wrong; /* the answer is so far beside the question */
};

static struct fix f;
static struct tables tables[CHIPS];
static struct cm_vm *vm[CHIPS];
static struct cm_queue *q[CHIPS];

static int translate(void *arg, uint64_t va, struct cm_translation *ret)
{
	struct tables *t = arg;
	uint64_t bytes = t->pages * PAGE, first = va - va % bytes;

	bool data = va >= TV + FIX_DATA;

	t->asked++;
	if (va < TV || va >= TV + FIX_MEM || (va >= t->hole && va < t->end))
		return -EFAULT;
	*ret = (struct cm_translation){.va = first,
				       .bytes = bytes,
				       .fd = t->fd,
				       .offset = first - TV,
				       .flags = CM_MAP_READ | CM_MAP_WRITE};
	if (data) {
		ret->va += t->wrong;
		ret->offset += t->shift;
		ret->flags = t->flags;
	}
	return 0;
}

static int setup(void **state)
{
	fix_new(&f, CHIPS, 2);
	for (unsigned i = 0; i < CHIPS; i++) {
		tables[i] = (struct tables){.fd = cm_chip_dram_fd(f.c[i].chip),
					    .pages = 1,
					    .flags = CM_MAP_READ | CM_MAP_WRITE};
		assert_int_equal(cm_vm_new(f.c[i].chip, &vm[i]), 0);
		cm_vm_set_translate(vm[i], translate, &tables[i]);
		assert_int_equal(cm_queue_new(vm[i], CM_QUEUE_COMPUTE, NULL, NULL, &q[i]), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	fix_free(&f);
	return 0;
}

static void limit_pieces(size_t limit)
{
	cm_machine_hold(f.m);
	f.m->mmu.max_pieces = limit;
	cm_machine_release(f.m);
}

static uint64_t evictions(void)
{
	uint64_t n;

	cm_machine_hold(f.m);
	n = f.m->mmu.evictions;
	cm_machine_release(f.m);
	return n;
}

/* Changes the tables while the chip is not looking. */
static void set_tables(unsigned chip, struct tables t)
{
	cm_machine_hold(f.m);
	tables[chip] = t;
	cm_machine_release(f.m);
}

static struct tables get_tables(unsigned chip)
{
	struct tables t;

	cm_machine_hold(f.m);
	t = tables[chip];
	cm_machine_release(f.m);
	return t;
}

/* As fix_run(), through the translated space. */
static int run(unsigned chip, struct fix_stream *s)
{
	int ret;

	fix_signal(s, TV + (fix_word_va(1000) - FIX_VA), ++f.fence);
	ret = cm_queue_submit(q[chip], TV + s->off, s->bytes, false);
	return ret ? ret : fix_wait(&f, q[chip], fix_word(&f.c[chip], 1000), f.fence);
}

static int fill(uint64_t va, uint64_t bytes, uint32_t value)
{
	struct fix_stream s = fix_stream(&f.c[0]);
	struct txda_pkt_fill p = {.dst = va, .bytes = bytes, .value = value};

	fix_put(&s, TXDA_PKT_FILL, 0, &p, sizeof(p));
	return run(0, &s);
}

static uint32_t word(uint64_t off)
{
	return *(uint32_t *)(f.c[0].mem + off);
}

static void expect_fault(uint64_t va)
{
	struct txda_fault fault;

	assert_int_equal(cm_queue_fault(q[0], &fault), 0);
	assert_int_equal(fault.code, TXDA_FAULT_PAGE);
	assert_int_equal(fault.va, va);
	cm_queue_free(q[0]);
	assert_int_equal(cm_queue_new(vm[0], CM_QUEUE_COMPUTE, NULL, NULL, &q[0]), 0);
}

/* ---- what is kept -----------------------------------------------------------------------------
 */

TEST(test_keeps_and_forgets)
{
	const uint64_t va = TV + FIX_DATA;
	struct tables t = get_tables(0);
	unsigned asked;

	/* An embedder that has tables does not map. */
	assert_int_equal(cm_vm_map(vm[0], va, t.fd, 0, PAGE, CM_MAP_READ), -EINVAL);
	assert_null(cm_vm_resolve(vm[0], va, 4, CM_MAP_READ));
	assert_int_equal(fill(va, 4 * PAGE, 1), 0);
	assert_non_null(cm_vm_resolve(vm[0], va, 4 * PAGE, CM_MAP_READ));
	asked = get_tables(0).asked;
	assert_int_equal(fill(va, 4 * PAGE, 2), 0);
	/* Only the stream is on another page than before. */
	assert_int_equal(get_tables(0).asked, asked + 1);
	/* A change is seen when it is told of, and where it is told of. */
	t.shift = 0x100000;
	set_tables(0, t);
	assert_int_equal(fill(va, 2 * PAGE, 3), 0);
	assert_int_equal(word(FIX_DATA), 3);
	cm_vm_forget(vm[0], va + PAGE, PAGE);
	assert_int_equal(fill(va, 2 * PAGE, 4), 0);
	assert_int_equal(word(FIX_DATA), 4);
	assert_int_equal(word(FIX_DATA + PAGE), 3);
	assert_int_equal(word(FIX_DATA + PAGE + 0x100000), 4);
	/* No failure is kept. */
	t.shift = 0;
	t.hole = va;
	t.end = va + PAGE;
	set_tables(0, t);
	cm_vm_forget(vm[0], 0, UINT64_MAX);
	assert_int_equal(fill(va, 2 * PAGE, 5), -EIO);
	expect_fault(va);
	t.hole = t.end = 0;
	set_tables(0, t);
	assert_int_equal(fill(va, 2 * PAGE, 5), 0);
	assert_int_equal(word(FIX_DATA + PAGE), 5);
	/* Ranges that are nothing, or are beyond the space. */
	cm_vm_forget(vm[0], va, 0);
	cm_vm_forget(vm[0], CM_VA_BYTES, PAGE);
	cm_vm_forget(vm[0], UINT64_MAX, UINT64_MAX);
	assert_non_null(cm_vm_resolve(vm[0], va, 2 * PAGE, CM_MAP_READ));
	cm_vm_forget(vm[0], va + 1, 1);
	assert_null(cm_vm_resolve(vm[0], va, 4, CM_MAP_READ));
	assert_non_null(cm_vm_resolve(vm[0], va + PAGE, PAGE, CM_MAP_READ));
}

TEST(test_answers)
{
	const uint64_t va = TV + FIX_DATA;
	struct tables t = get_tables(0);

	/* Long ones fill what was forgotten in their middle, and no more. */
	t.pages = 512;
	set_tables(0, t);
	assert_int_equal(fill(va, 3 * PAGE, 1), 0);
	t.shift = 0x100000;
	set_tables(0, t);
	cm_vm_forget(vm[0], va + PAGE, PAGE);
	assert_int_equal(fill(va, 3 * PAGE, 2), 0);
	assert_int_equal(word(FIX_DATA), 2);
	assert_int_equal(word(FIX_DATA + PAGE), 1);
	assert_int_equal(word(FIX_DATA + PAGE + 0x100000), 2);
	assert_int_equal(word(FIX_DATA + 2 * PAGE), 2);
	/* Rights count; those of neighbours stay apart. */
	t.shift = 0;
	t.pages = 1;
	t.flags = CM_MAP_READ;
	set_tables(0, t);
	cm_vm_forget(vm[0], va, PAGE);
	assert_int_equal(fill(va, PAGE, 3), -EIO);
	expect_fault(va);
	assert_non_null(cm_vm_resolve(vm[0], va, 2 * PAGE, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm[0], va, 2 * PAGE, CM_MAP_WRITE));
	/* Beside the question, with no rights at all, without a file. */
	t.flags = CM_MAP_READ | CM_MAP_WRITE;
	t.wrong = PAGE;
	set_tables(0, t);
	assert_int_equal(fill(TV + FIX_DATA + 0x800000, PAGE, 3), -EIO);
	expect_fault(TV + FIX_DATA + 0x800000);
	t.wrong = 0;
	t.flags = 0;
	set_tables(0, t);
	assert_int_equal(fill(TV + FIX_DATA + 0x800000, PAGE, 3), -EIO);
	expect_fault(TV + FIX_DATA + 0x800000);
	t.flags = CM_MAP_READ | CM_MAP_WRITE;
	t.fd = -1;
	set_tables(0, t);
	assert_int_equal(fill(TV + FIX_DATA + 0x800000, PAGE, 3), -EIO);
	assert_int_equal(cm_queue_state(q[0]), CM_QUEUE_FAULTED);
}

/* ---- programs while there is little room -------------------------------------------------------
 */

static void bind(unsigned chip, const struct txda_pkt_exec *p, unsigned i, uint64_t off,
		 uint64_t bytes)
{
	fix_bind(&f.c[chip], p, i, TV + off, bytes);
}

/* Places a program for the translated space of @chip. */
static struct txda_pkt_exec place(unsigned chip, const struct fix_program *prog)
{
	struct txda_pkt_exec p;

	fix_place(prog, &f.c[chip], 0, &p);
	return p;
}

static int launch(unsigned chip, struct txda_pkt_exec p)
{
	struct fix_stream s = fix_stream(&f.c[chip]);

	p.program_va += TV - FIX_VA;
	p.bindings_va += TV - FIX_VA;
	fix_put(&s, TXDA_PKT_EXEC, 0, &p, sizeof(p));
	return run(chip, &s);
}

static float *floats(unsigned chip, uint64_t off)
{
	return (float *)(f.c[chip].mem + off);
}

/* The launch needs 44 pages, and something else was looked up before it, more each time. */
TEST(test_programs)
{
	static struct fix_program prog;
	struct txda_pkt_exec p;
	uint64_t before;

	fix_rows_program(&prog, H);
	p = place(0, &prog);
	bind(0, &p, 0, W_OFF, H * 4);
	bind(0, &p, 1, X_OFF, 64 * H * 4);
	bind(0, &p, 2, Y_OFF, 64 + 64 * H * 4);
	bind(0, &p, 3, ROW_OFF, 64);
	bind(0, &p, 4, G_OFF, 16 * H * 4);
	p.sym[TXDA_SYM_T] = 64;
	p.sym[TXDA_SYM_R] = 16;
	for (unsigned i = 0; i < 64 * H; i++)
		floats(0, X_OFF)[i] = (float)i;
	for (unsigned i = 0; i < H; i++)
		floats(0, W_OFF)[i] = 1;
	for (unsigned i = 0; i < 16; i++)
		((uint32_t *)(f.c[0].mem + ROW_OFF))[i] = 4 * i;
	limit_pieces(60);
	before = evictions();
	for (unsigned n = 1; n < 60; n++) {
		floats(0, X_OFF)[0] = (float)n;
		assert_int_equal(fill(TV + FIX_DATA + 0x800000, n % 50 * PAGE, n), 0);
		assert_int_equal(launch(0, p), 0);
		assert_true(floats(0, G_OFF)[0] == (float)(n + 1));
		for (unsigned i = 1; i < 16 * H; i++)
			assert_true(floats(0, G_OFF)[i] == (float)(i % H + i / H * 4 * H) + 1);
	}
	assert_true(evictions() > before + 20);
	/* More than there is room for: a fault, not a loop. */
	limit_pieces(30);
	assert_int_equal(launch(0, p), -EIO);
	expect_fault(TV + FIX_PROGRAM);
	assert_int_equal(fill(TV + FIX_DATA + 0x800000, 50 * PAGE, 1), -EIO);
	assert_int_equal(cm_queue_state(q[0]), CM_QUEUE_FAULTED);
	cm_queue_free(q[0]);
	assert_int_equal(cm_queue_new(vm[0], CM_QUEUE_COMPUTE, NULL, NULL, &q[0]), 0);
	limit_pieces(60);
	assert_int_equal(launch(0, p), 0);
	/* A program that is gone does not run, even if the chip has a copy. */
	{
		struct tables t = get_tables(0);

		t.hole = TV + FIX_PROGRAM;
		t.end = t.hole + 0x10000;
		set_tables(0, t);
		cm_vm_forget(vm[0], t.hole, 0x10000);
		assert_int_equal(launch(0, p), -EIO);
		expect_fault(TV + FIX_PROGRAM);
	}
}

/* y = sum of the ranks' x, of members that share the room. */
TEST(test_groups)
{
	static struct fix_program prog;
	const struct txda_dim t = FIX_SYM(TXDA_SYM_T, 1), h = FIX_CONST(H);
	struct txda_pkt_exec p[CHIPS];
	uint32_t in, out;
	struct txda_op *op;
	uint64_t before;

	for (unsigned i = 0; i < CHIPS; i++) {
		fix_program_init(&prog, CHIPS, i);
		in = fix_slot(&prog, "x", TXDA_SLOT_INPUT, 64 * H * 4);
		out = fix_slot(&prog, "y", TXDA_SLOT_OUTPUT, 64 * H * 4);
		fix_tensor(&prog, "x", in, TXDA_F32, 0, t, h);
		fix_tensor(&prog, "y", out, TXDA_F32, 0, t, h);
		op = fix_op(&prog, "sum", TXDA_OP_ALL_REDUCE);
		op->in[0] = 0;
		op->out[0] = 1;
		fix_seal(&prog);
		p[i] = place(i, &prog);
		p[i].group = 3;
		p[i].sym[TXDA_SYM_T] = 64;
		bind(i, &p[i], 0, X_OFF, 64 * H * 4);
		bind(i, &p[i], 1, Y_OFF, 64 * H * 4);
		assert_int_equal(cm_vm_set_group(vm[i], 3, 77, i, CHIPS), 0);
		for (unsigned k = 0; k < 64 * H; k++)
			floats(i, X_OFF)[k] = (float)(k * (i + 1));
	}
	limit_pieces(90);
	before = evictions();
	for (unsigned n = 1; n < 60; n++) {
		struct txda_pkt_exec first = p[n % 2];
		struct fix_stream s = fix_stream(&f.c[n % 2]);

		assert_int_equal(fill(TV + FIX_DATA + 0x800000, n % 50 * PAGE, n), 0);
		first.program_va += TV - FIX_VA;
		first.bindings_va += TV - FIX_VA;
		fix_put(&s, TXDA_PKT_EXEC, 0, &first, sizeof(first));
		fix_signal(&s, TV + (fix_word_va(7) - FIX_VA), n);
		assert_int_equal(cm_queue_submit(q[n % 2], TV + s.off, s.bytes, false), 0);
		assert_int_equal(launch(1 - n % 2, p[1 - n % 2]), 0);
		assert_int_equal(fix_wait(&f, q[n % 2], fix_word(&f.c[n % 2], 7), n), 0);
		for (unsigned k = 0; k < 64 * H; k++) {
			assert_true(floats(0, Y_OFF)[k] == (float)(3 * k));
			assert_true(floats(1, Y_OFF)[k] == (float)(3 * k));
		}
		memset(f.c[0].mem + Y_OFF, 0, 64 * H * 4);
		memset(f.c[1].mem + Y_OFF, 0, 64 * H * 4);
	}
	assert_true(evictions() > before + 20);
}

TEST_MAIN_EACH(setup, teardown)
