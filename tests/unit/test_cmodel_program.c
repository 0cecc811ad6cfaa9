// SPDX-License-Identifier: MIT
/* Launches of programs, and programs that lie. */
#include "cm_fixture.h"
#include "core/machine.h"

#include <errno.h>
#include <sys/mman.h>

#define H	8u /* columns */
#define W_OFF	(FIX_DATA + 0x00000)
#define X_OFF	(FIX_DATA + 0x10000)
#define Y_OFF	(FIX_DATA + 0x20000)
#define ROW_OFF (FIX_DATA + 0x30000)
#define G_OFF	(FIX_DATA + 0x40000)
#define PROFILE (FIX_DATA + 0x50000)

static struct fix f;
static struct fix_program prog;
static struct txda_pkt_exec pkt;

enum { T_W, T_X, T_Y, T_ROW, T_G };

static float *floats(uint64_t off)
{
	return (float *)(f.c[0].mem + off);
}

static void make_program(void)
{
	fix_rows_program(&prog, H);
}

static void place(void)
{
	fix_place(&prog, &f.c[0], 0, &pkt);
	fix_bind(&f.c[0], &pkt, 0, FIX_RO + W_OFF, H * 4);
	fix_bind(&f.c[0], &pkt, 1, FIX_RO + X_OFF, 64 * H * 4);
	fix_bind(&f.c[0], &pkt, 2, FIX_VA + Y_OFF, 0x8000);
	fix_bind(&f.c[0], &pkt, 3, FIX_VA + ROW_OFF, 64);
	fix_bind(&f.c[0], &pkt, 4, FIX_VA + G_OFF, 16 * H * 4);
	pkt.sym[TXDA_SYM_T] = 3;
	pkt.sym[TXDA_SYM_R] = 2;
	for (unsigned i = 0; i < H; i++)
		floats(W_OFF)[i] = (float)i / 8;
	for (unsigned i = 0; i < 64 * H; i++)
		floats(X_OFF)[i] = (float)i;
	memset(f.c[0].mem + ROW_OFF, 0, 64);
	((uint32_t *)(f.c[0].mem + ROW_OFF))[0] = 2;
	memset(f.c[0].mem + G_OFF, 0xff, 16 * H * 4);
}

static int setup(void **state)
{
	fix_new(&f, 1, 2);
	make_program();
	place();
	return 0;
}

static int teardown(void **state)
{
	fix_free(&f);
	return 0;
}

static int launch(struct cm_queue *q, uint16_t flags)
{
	struct fix_stream s = fix_stream(&f.c[0]);

	fix_put(&s, TXDA_PKT_EXEC, flags, &pkt, sizeof(pkt));
	return fix_run(&f, q, &s);
}

static void expect_rows(float more)
{
	for (unsigned i = 0; i < H; i++) {
		assert_true(floats(G_OFF)[i] == (float)(2 * H + i) + (float)i / 8 + more);
		assert_true(floats(G_OFF)[H + i] == (float)i + (float)i / 8 + more);
	}
}

/* Launches on a queue of its own; the launch must fault. */
static struct txda_fault launch_fault(uint16_t flags, uint32_t code)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	struct fix_stream s = fix_stream(&f.c[0]);
	struct txda_fault fault;

	fix_put(&s, TXDA_PKT_EXEC, flags, &pkt, sizeof(pkt));
	fix_expect_fault(&f, q, &s, code, &fault);
	assert_int_equal(fault.packet_va, FIX_VA + s.off);
	cm_queue_free(q);
	return fault;
}

TEST(test_launch)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	struct cm_sensors before, after;

	cm_chip_sensors(f.c[0].chip, &before);
	assert_int_equal(launch(q, 0), 0);
	expect_rows(0);
	/* The limits, again the same, other bindings, nothing at all. */
	pkt.sym[TXDA_SYM_T] = 64;
	((uint32_t *)(f.c[0].mem + ROW_OFF))[1] = 63;
	assert_int_equal(launch(q, 0), 0);
	assert_true(floats(G_OFF)[H] == 63 * H);
	floats(X_OFF)[63 * H] = -1;
	assert_int_equal(launch(q, 0), 0);
	assert_true(floats(G_OFF)[H] == -1);
	fix_bind(&f.c[0], &pkt, 4, FIX_VA + G_OFF + 0x1000, 16 * H * 4);
	assert_int_equal(launch(q, 0), 0);
	assert_true(floats(G_OFF + 0x1000)[H] == -1);
	pkt.sym[TXDA_SYM_T] = 0;
	pkt.sym[TXDA_SYM_R] = 0;
	fix_bind(&f.c[0], &pkt, 4, 0, 0);
	assert_int_equal(launch(q, 0), 0);
	cm_chip_sensors(f.c[0].chip, &after);
	assert_int_equal(after.ops - before.ops, 10);
	assert_true(after.busy_ns > before.busy_ns);
	assert_true(after.bytes_read > before.bytes_read);
	cm_queue_free(q);
	place();
}

TEST(test_precise)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);

	floats(Y_OFF)[16] = 5;
	assert_int_equal(launch(q, TXDA_EXEC_PRECISE), 0);
	expect_rows(1000);
	/* The activation has moved to twice its offset. */
	assert_true(floats(Y_OFF)[32] == 1000);
	assert_true(floats(Y_OFF)[16] == 5);
	assert_int_equal(launch(q, 0), 0);
	expect_rows(0);
	assert_true(floats(Y_OFF)[16] == 0);
	cm_queue_free(q);
	/* It needs twice the room. */
	fix_bind(&f.c[0], &pkt, 2, FIX_VA + Y_OFF, 64 + 3 * H * 4);
	assert_int_equal(launch_fault(TXDA_EXEC_PRECISE, TXDA_FAULT_BINDING).detail, 2);
	place();
}

TEST(test_profile)
{
	struct txda_op_time *time = (void *)(f.c[0].mem + PROFILE);
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	uint64_t before = cm_chip_time_ns(f.c[0].chip);

	pkt.profile_va = FIX_VA + PROFILE;
	assert_int_equal(launch(q, TXDA_EXEC_PROFILE), 0);
	assert_true(before <= time[0].start_ns && time[0].start_ns <= time[0].end_ns);
	assert_true(time[0].end_ns <= time[1].start_ns && time[1].start_ns <= time[1].end_ns);
	assert_true(time[1].end_ns <= cm_chip_time_ns(f.c[0].chip));
	cm_queue_free(q);
	launch_fault(0, TXDA_FAULT_PACKET);
	pkt.profile_va = 0;
	launch_fault(TXDA_EXEC_PROFILE, TXDA_FAULT_PACKET);
	pkt.profile_va = FIX_RO + PROFILE;
	launch_fault(TXDA_EXEC_PROFILE, TXDA_FAULT_PAGE);
	pkt.profile_va = FIX_VA + FIX_MEM - 16;
	assert_int_equal(launch_fault(TXDA_EXEC_PROFILE, TXDA_FAULT_PAGE).va, FIX_VA + FIX_MEM);
	place();
}

/* Ops one launch after the other leave what one launch of all does. */
TEST(test_parts)
{
	static const uint32_t wrong[][2] = {{0, 3}, {1, 2},	     {2, 1},
					    {3, 1}, {UINT32_MAX, 2}, {1, UINT32_MAX}};
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	struct cm_sensors before, after;

	cm_chip_sensors(f.c[0].chip, &before);
	pkt.n_ops = 1;
	assert_int_equal(launch(q, TXDA_EXEC_PART), 0);
	/* The second one has not run. */
	assert_int_equal(((uint32_t *)(f.c[0].mem + G_OFF))[0], UINT32_MAX);
	pkt.first_op = 1;
	assert_int_equal(launch(q, TXDA_EXEC_PART), 0);
	expect_rows(0);
	cm_chip_sensors(f.c[0].chip, &after);
	assert_int_equal(after.ops - before.ops, 2);
	place();
	pkt.n_ops = 2;
	assert_int_equal(launch(q, TXDA_EXEC_PART), 0);
	expect_rows(0);
	cm_queue_free(q);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		pkt.first_op = wrong[i][0];
		pkt.n_ops = wrong[i][1];
		launch_fault(TXDA_EXEC_PART, TXDA_FAULT_PROGRAM);
		launch_fault(0, TXDA_FAULT_PACKET);
	}
	pkt.n_ops = 0;
	launch_fault(TXDA_EXEC_PART, TXDA_FAULT_PACKET);
	launch_fault(0, TXDA_FAULT_PACKET);
	pkt.first_op = 0;
	place();
}

TEST(test_cache)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	struct fix_program other;

	assert_int_equal(launch(q, 0), 0);
	/* The chip goes on with its copy until it is told, or the range is unmapped. */
	memset(f.c[0].mem + FIX_PROGRAM, 0xff, FIX_PROG_BYTES);
	assert_int_equal(launch(q, 0), 0);
	expect_rows(0);
	launch_fault(TXDA_EXEC_RELOAD, TXDA_FAULT_PROGRAM);
	launch_fault(0, TXDA_FAULT_PROGRAM);
	place();
	assert_int_equal(launch(q, 0), 0);
	assert_int_equal(launch(q, TXDA_EXEC_RELOAD), 0);
	expect_rows(0);
	/* Many programs, more than a queue and the cache remember. */
	for (unsigned i = 0; i < 40; i++) {
		other = prog;
		other.hdr = (void *)other.image;
		fix_place(&other, &f.c[0], (i % 20) * FIX_PROG_BYTES, &pkt);
		pkt.bindings_va = FIX_VA + FIX_BINDINGS;
		pkt.sym[TXDA_SYM_T] = 3;
		pkt.sym[TXDA_SYM_R] = 2;
		assert_int_equal(launch(q, 0), 0);
	}
	cm_queue_free(q);
	place();
}

TEST(test_unmapped_program)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	int fd = cm_chip_dram_fd(f.c[0].chip);

	assert_int_equal(
		cm_vm_map(f.c[0].vm, 0x30000000, fd, FIX_PROGRAM, FIX_PROG_BYTES, CM_MAP_READ), 0);
	pkt.program_va = 0x30000000;
	assert_int_equal(launch(q, 0), 0);
	expect_rows(0);
	assert_int_equal(cm_vm_unmap(f.c[0].vm, 0x30000000 + 4096, 4096), 0);
	assert_int_equal(launch(q, 0), -EIO);
	cm_queue_free(q);
	assert_int_equal(launch_fault(0, TXDA_FAULT_PAGE).va, 0x30000000 + 4096);
	assert_int_equal(cm_vm_unmap(f.c[0].vm, 0x30000000, 4096), 0);
	place();
}

TEST(test_bad_launches)
{
	struct txda_fault fault;
	char text[256];

	pkt.reserved = 1;
	launch_fault(0, TXDA_FAULT_PACKET);
	place();
	pkt.n_bindings = 4;
	launch_fault(0, TXDA_FAULT_BINDING);
	pkt.n_bindings = 0xffffffff;
	launch_fault(0, TXDA_FAULT_BINDING);
	place();
	pkt.program_va += 8;
	launch_fault(0, TXDA_FAULT_PROGRAM);
	pkt.program_va = UINT64_MAX - 63;
	launch_fault(0, TXDA_FAULT_PAGE);
	place();
	for (unsigned i = 0; i < 4; i++) {
		static const uint32_t bytes[] = {0, 1, sizeof(struct txda_program), 0xffffffff};

		pkt.program_bytes = bytes[i];
		launch_fault(0, TXDA_FAULT_PROGRAM);
	}
	place();
	pkt.group = 0;
	launch_fault(0, TXDA_FAULT_COLLECTIVE);
	pkt.group = 16;
	launch_fault(0, TXDA_FAULT_COLLECTIVE);
	place();
	pkt.sym[TXDA_SYM_T] = 65;
	assert_int_equal(launch_fault(0, TXDA_FAULT_SYMBOL).detail, TXDA_SYM_T);
	place();
	pkt.sym[0] = 1;
	launch_fault(0, TXDA_FAULT_SYMBOL);
	place();
	pkt.sym[7] = 1;
	launch_fault(0, TXDA_FAULT_SYMBOL);
	place();
	pkt.bindings_va += 4;
	launch_fault(0, TXDA_FAULT_PACKET);
	pkt.bindings_va = FIX_VA + FIX_MEM - 8;
	launch_fault(0, TXDA_FAULT_PAGE);
	place();

	fix_bind(&f.c[0], &pkt, 1, FIX_VA + X_OFF + 32, 64 * H * 4);
	assert_int_equal(launch_fault(0, TXDA_FAULT_BINDING).detail, 1);
	fix_bind(&f.c[0], &pkt, 1, FIX_VA + X_OFF, 3 * H * 4 - 1);
	fault = launch_fault(0, TXDA_FAULT_BINDING);
	assert_int_equal(fault.detail, 1);
	assert_int_equal(fault.tensor, T_X);
	cm_fault_text(f.c[0].vm, &fault, text, sizeof(text));
	assert_non_null(strstr(text, "slot 1"));
	assert_non_null(strstr(text, "tensor 1 \"x\""));
	fix_bind(&f.c[0], &pkt, 1, 0, 0);
	launch_fault(0, TXDA_FAULT_BINDING);
	fix_bind(&f.c[0], &pkt, 1, FIX_VA + X_OFF, FIX_MEM);
	assert_int_equal(launch_fault(0, TXDA_FAULT_PAGE).va, FIX_VA + FIX_MEM);
	fix_bind(&f.c[0], &pkt, 1, UINT64_MAX - 63, 4096);
	launch_fault(0, TXDA_FAULT_PAGE);
	place();
	/* What is written must be writable. */
	fix_bind(&f.c[0], &pkt, 2, FIX_RO + Y_OFF, 0x8000);
	assert_int_equal(launch_fault(0, TXDA_FAULT_PAGE).va, FIX_RO + Y_OFF);
	place();
}

TEST(test_index_fault)
{
	struct txda_fault fault;
	char text[256], tiny[12];

	((uint32_t *)(f.c[0].mem + ROW_OFF))[1] = 3;
	fault = launch_fault(0, TXDA_FAULT_INDEX);
	assert_int_equal(fault.op, 1);
	assert_int_equal(fault.opcode, TXDA_OP_GATHER_ROWS);
	assert_int_equal(fault.tensor, T_ROW);
	assert_int_equal(fault.detail, 3);
	assert_int_equal(fault.va, FIX_VA + ROW_OFF + 4);
	cm_fault_text(f.c[0].vm, &fault, text, sizeof(text));
	assert_non_null(
		strstr(text, "index out of range, index 3 in op 1 GATHER_ROWS \"select\", tensor 3 "
			     "\"row_index\", address 0x10430004"));
	cm_fault_text(f.c[0].vm, &fault, tiny, sizeof(tiny));
	assert_string_equal(tiny, "index out o");
	/* Names are what a terminal can show. */
	f.c[0].mem[FIX_PROGRAM + prog.hdr->strings_off + prog.op[1].label] = '\033';
	cm_fault_text(f.c[0].vm, &fault, text, sizeof(text));
	assert_non_null(strstr(text, "\"?elect\""));
	/* Without the program there are no names, and no trouble. */
	memset(f.c[0].mem + FIX_PROGRAM, 0xff, FIX_PROG_BYTES);
	cm_fault_text(f.c[0].vm, &fault, text, sizeof(text));
	assert_null(strstr(text, "select"));
	assert_non_null(strstr(text, "GATHER_ROWS"));
	fault.packet_va = UINT64_MAX - 3;
	fault.code = 12345;
	cm_fault_text(NULL, &fault, text, sizeof(text));
	assert_non_null(strstr(text, "fault 12345"));
	place();
}

/* A program with one lie. */
#define LIE(where, value)                                                                          \
	do {                                                                                       \
		make_program();                                                                    \
		(where) = (value);                                                                 \
		expect_bad(&(where), __LINE__);                                                    \
	} while (0)

/* The program must be refused, and the record must point at the field. */
static void expect_bad(const void *field, int line)
{
	uint64_t off = (uint64_t)((const uint8_t *)field - prog.image);
	struct txda_fault fault;

	if (field != &prog.hdr->crc32c)
		fix_seal(&prog);
	place();
	fault = launch_fault(TXDA_EXEC_RELOAD, TXDA_FAULT_PROGRAM);
	if (fault.va != FIX_VA + FIX_PROGRAM + off)
		fail_msg("line %d: the fault is at %llu, not %llu", line,
			 (unsigned long long)(fault.va - FIX_VA - FIX_PROGRAM),
			 (unsigned long long)off);
}

TEST(test_bad_headers)
{
	LIE(prog.hdr->magic, 0);
	LIE(prog.hdr->major, 2);
	LIE(prog.hdr->minor, TXDA_ISA_MINOR + 1);
	LIE(prog.hdr->bytes, FIX_PROG_BYTES + 1);
	LIE(prog.hdr->bytes, UINT64_MAX);
	LIE(prog.hdr->crc32c, prog.hdr->crc32c ^ 1);
	LIE(prog.hdr->n_slots, 65);
	LIE(prog.hdr->n_slots, 0xffffffff);
	LIE(prog.hdr->group_size, 0);
	LIE(prog.hdr->group_size, 9);
	LIE(prog.hdr->rank, 1);
	LIE(prog.hdr->sym_max[0], 1);
	LIE(prog.hdr->sym_max[6], 1);
	LIE(prog.hdr->reserved[7], 1);
	LIE(prog.hdr->slots_off, 257);
	LIE(prog.hdr->slots_off, 0); /* the header itself */
	LIE(prog.hdr->slots_off, FIX_PROG_BYTES - 8);
	LIE(prog.hdr->slots_off, 0xfffffff8);
	LIE(prog.hdr->slots_off, 512); /* the tensors */
	LIE(prog.hdr->tensors_off, 2048);
	LIE(prog.hdr->ops_off, 6144);
	LIE(prog.hdr->ops_off, 0xfffffff8);
	LIE(prog.hdr->strings_off, 0xfffffff8);
	LIE(prog.hdr->strings_bytes, 0);
	LIE(prog.hdr->strings_bytes, 3); /* does not end with NUL */
	LIE(prog.hdr->name, 0xffffffff);

	/* Counts too large for the file: the table's place is wrong. */
	make_program();
	prog.hdr->n_tensors = 0xffffffff;
	expect_bad(&prog.hdr->tensors_off, __LINE__);
	make_program();
	prog.hdr->n_ops = 0xffffffff;
	expect_bad(&prog.hdr->ops_off, __LINE__);
	make_program();
	prog.hdr->strings_bytes = 0xffffffff;
	expect_bad(&prog.hdr->strings_off, __LINE__);
	make_program();
	place();
}

TEST(test_bad_records)
{
	struct txda_tensor *t = (void *)(prog.image + 512);
	struct txda_op *op = (void *)(prog.image + 2048);

	LIE(prog.slot[1].name, prog.hdr->strings_bytes);
	LIE(prog.slot[1].kind, TXDA_SLOT_KIND_COUNT);
	LIE(prog.slot[1].bytes, UINT64_MAX);
	LIE(t[1].name, 0xffffffff);
	LIE(t[1].slot, 5);
	LIE(t[1].dtype, TXDA_DTYPE_COUNT);
	LIE(t[1].layout, TXDA_LAYOUT_COUNT);
	LIE(t[1].offset, 32);
	LIE(t[1].offset, UINT64_MAX - 63);
	LIE(t[1].offset, 64); /* beyond the slot */
	LIE(t[1].ndim, 0);
	LIE(t[1].ndim, 5);
	LIE(t[1].flags, 2);
	LIE(t[1].group, 32);
	LIE(t[1].reserved[2], 1);
	LIE(t[1].dim[0].sym, TXDA_SYM_COUNT);
	LIE(t[1].dim[0].sym, 6);
	LIE(t[1].dim[1].mul, 0);
	LIE(t[1].dim[2].mul, 1);
	LIE(t[1].dim[3].sym, 1);
	LIE(op[0].op, TXDA_OP_COUNT);
	LIE(op[0].op, 0xffff);
	LIE(op[0].flags, 1);
	LIE(op[0].label, 0xffffffff);
	LIE(op[0].reserved, 1);
	LIE(op[0].in[0], 5);
	LIE(op[0].in[0], TXDA_NONE);
	LIE(op[0].in[2], 0);
	LIE(op[0].out[0], 0xfffffffe);
	LIE(op[0].out[0], TXDA_NONE);
	LIE(op[0].out[0], T_W); /* weights are not written */
	LIE(op[0].raw[1], 1);
	LIE(op[1].raw[0], 1);
	LIE(op[1].raw[19], 1);

	/* Extents that overflow, at the limits of the symbols. */
	make_program();
	t[1].dim[0].mul = t[1].dim[1].mul = 0xffffffff;
	expect_bad(&t[1].offset, __LINE__);
	make_program();
	prog.hdr->sym_max[TXDA_SYM_T] = 0xffffffff;
	expect_bad(&t[1].offset, __LINE__);
	/* Layouts that the tensor cannot have. */
	make_program();
	t[1].dtype = TXDA_W8;
	t[1].group = 32;
	expect_bad(&t[1].dtype, __LINE__);
	make_program();
	t[1].dtype = TXDA_W4;
	expect_bad(&t[1].group, __LINE__);
	make_program();
	t[1].layout = TXDA_TILE32;
	expect_bad(&t[1].ndim, __LINE__);
	make_program();
	t[0].layout = TXDA_TILE32;
	t[0].dtype = TXDA_I32;
	expect_bad(&t[0].dtype, __LINE__);
	make_program();
	t[1].layout = TXDA_KV_PAGED;
	expect_bad(&t[1].slot, __LINE__);
	make_program();
	place();
}

TEST(test_bad_shapes)
{
	struct txda_fault fault;
	char text[256];

	prog.tensor[T_W].dim[0].mul = 7;
	fix_seal(&prog);
	place();
	fault = launch_fault(TXDA_EXEC_RELOAD, TXDA_FAULT_SHAPE);
	assert_int_equal(fault.op, 0);
	assert_int_equal(fault.tensor, T_W);
	cm_fault_text(f.c[0].vm, &fault, text, sizeof(text));
	assert_non_null(
		strstr(text, "in op 0 RMSNORM \"layers.0.norm\", tensor 0 \"norm.weight\""));
	make_program();
	place();
}

/* Scratch at the limits is more than the machine gives. */
TEST(test_too_much_scratch)
{
	prog.tensor[T_X].dim[1].mul = 1u << 30;
	prog.slot[1].bytes = 64ull << 32;
	fix_seal(&prog);
	place();
	launch_fault(TXDA_EXEC_RELOAD, TXDA_FAULT_PROGRAM);
	make_program();
	place();
}

/* Pages of @s that are in memory. */
static unsigned resident(const struct cm_scratch *s)
{
	unsigned char page[64];
	unsigned n = 0;

	assert_true(s->mapped <= sizeof(page) * CM_PAGE);
	if (!s->ptr)
		return 0;
	assert_int_equal(mincore(s->ptr, s->mapped - CM_PAGE, page), 0);
	for (uint64_t i = 0; i < s->mapped / CM_PAGE - 1; i++)
		n += page[i] & 1;
	return n;
}

/* Pages of scratch that the cores have touched. */
static unsigned resident_cores(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f.m->pool.cores; i++)
		n += resident(&f.m->pool.core[i]);
	return n;
}

/* A queue of an address space of its own, which has launched a program with @columns on @rows. */
static struct cm_queue *launch_wide(struct cm_vm **ret_vm, unsigned columns, unsigned rows)
{
	const uint64_t at = FIX_DATA + 0x100000 * columns / 16384;
	struct fix_stream s = fix_stream(&f.c[0]);
	struct fix_chip c = f.c[0];
	struct txda_pkt_exec wide;
	struct cm_queue *q;

	assert_int_equal(cm_vm_new(c.chip, &c.vm), 0);
	assert_int_equal(cm_vm_map(c.vm, FIX_VA, cm_chip_dram_fd(c.chip), 0, FIX_MEM,
				   CM_MAP_READ | CM_MAP_WRITE),
			 0);
	fix_rows_program(&prog, columns);
	fix_place(&prog, &c, 0, &wide);
	fix_bind(&c, &wide, 0, FIX_VA + at, columns * 4);
	fix_bind(&c, &wide, 1, FIX_VA + at + 0x80000, rows * columns * 4);
	fix_bind(&c, &wide, 2, FIX_VA + at + 0x100000, 64 + rows * columns * 4);
	fix_bind(&c, &wide, 3, FIX_VA + ROW_OFF, 64);
	fix_bind(&c, &wide, 4, FIX_VA + at + 0x180000, columns * 4);
	wide.sym[TXDA_SYM_T] = rows;
	wide.sym[TXDA_SYM_R] = 0;
	assert_int_equal(cm_queue_new(c.vm, CM_QUEUE_COMPUTE, NULL, NULL, &q), 0);
	fix_put(&s, TXDA_PKT_EXEC, 0, &wide, sizeof(wide));
	assert_int_equal(fix_run(&f, q, &s), 0);
	*ret_vm = c.vm;
	return q;
}

/* Scratch that no loaded program needs goes back to the system. */
TEST(test_scratch_returns)
{
	enum { COLUMNS = 16384, PAGES = COLUMNS * 4 / CM_PAGE };
	struct cm_queue *small, *large;
	struct cm_vm *small_vm, *large_vm;

	teardown(NULL);
	setup(NULL);
	small = launch_wide(&small_vm, H, 1);
	large = launch_wide(&large_vm, COLUMNS, 2);
	assert_true(resident_cores() >= PAGES);
	cm_queue_free(large);
	cm_vm_free(large_vm);
	/* the small one's page of each core is left */
	assert_true(resident_cores() <= f.m->pool.cores);
	large = launch_wide(&large_vm, COLUMNS, 2);
	assert_true(resident_cores() >= PAGES);
	/* the other way round */
	cm_queue_free(small);
	cm_vm_free(small_vm);
	assert_true(resident_cores() >= PAGES);
	cm_queue_free(large);
	cm_vm_free(large_vm);
	assert_int_equal(resident_cores(), 0);
	make_program();
	place();
}

TEST_MAIN_ALL(setup, teardown)
