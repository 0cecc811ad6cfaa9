// SPDX-License-Identifier: MIT
/*
 * Any bytes as a program (with length and checksum put right, so that more is looked at), launched
 * on the device model with its real kernels: it runs or the queue faults, with a record that can be
 * put into words.
 *
 * Few changes of bytes get past the loader. So the first input, a program that runs, is kept, and
 * each later one also chooses a few fields of that program's tables that get other values, such as
 * might do harm.
 */
#include "fuzz.h"
#include "fuzz_exec.h"
#include "cmodel.h"
#include "crc32c.h"

#include <sys/mman.h>
#include <unistd.h>

#define MEM	     (16ull << 20)
#define VA	     0x10000000ull
#define STREAM	     0x000000ull /* offsets in DRAM */
#define FENCE	     0x010000ull
#define BINDINGS     0x020000ull
#define PROGRAM	     0x100000ull
#define PROGRAM_ROOM (4ull << 20)
#define SLOTS	     0x800000ull
#define SLOTS_VA                                                                                   \
	0x40000000ull /* slot i is mapped here + i * SLOT_STRIDE, with nothing around it \
				    */
#define SLOT_STRIDE 0x1000000ull
#define TIMEOUT_NS  20000000000ull

static struct cm_machine *machine;
static struct cm_vm *vm;
static struct cm_queue *queue;
static uint8_t *mem;
static uint64_t fence;

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "fuzz_exec: %s\n", what);
		abort();
	}
}

static void start(void)
{
	struct cm_options opt = {
		.chips = 1, .mem_bytes = MEM, .cores = 2, .isa = getenv("TXDA_FUZZ_ISA")};
	int fd;

	check(!cm_machine_new(&opt, &machine), "no machine");
	fd = cm_chip_dram_fd(cm_machine_chip(machine, 0));
	mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(mem != MAP_FAILED, "no memory");
	check(!cm_vm_new(cm_machine_chip(machine, 0), &vm), "no address space");
	check(!cm_vm_map(vm, VA, fd, 0, MEM, CM_MAP_READ | CM_MAP_WRITE), "no mapping");
	for (uint64_t i = 0; i < TXDA_PROGRAM_MAX_SLOTS; i++)
		check(!cm_vm_map(vm, SLOTS_VA + i * SLOT_STRIDE, fd, SLOTS + i * FUZZ_SLOT_BYTES,
				 FUZZ_SLOT_BYTES, CM_MAP_READ | CM_MAP_WRITE),
		      "no mapping of a slot");
	check(!cm_vm_set_group(vm, 0, 1, 0, 1), "no group");
}

/* The contents of all slots, the same for each run; and their bindings. */
static void set_slots(unsigned n)
{
	struct txda_binding *b = (void *)(mem + BINDINGS);

	memset(mem + SLOTS, 0, (size_t)FUZZ_SLOTS * FUZZ_SLOT_BYTES);
	for (uint32_t i = 0; i < FUZZ_SLOT_BYTES / 8; i++)
		((uint32_t *)(mem + SLOTS + FUZZ_SPANS * FUZZ_SLOT_BYTES))[2 * i] = i;
	for (uint32_t i = 0; i < FUZZ_SLOT_BYTES / 8; i++)
		((uint32_t *)(mem + SLOTS + FUZZ_SPANS * FUZZ_SLOT_BYTES))[2 * i + 1] = 1;
	for (uint32_t i = 0; i < FUZZ_SLOT_BYTES / 4; i++)
		((uint32_t *)(mem + SLOTS + FUZZ_CONTEXT * FUZZ_SLOT_BYTES))[i] = 2;
	for (unsigned i = 0; i < n; i++)
		b[i] = (struct txda_binding){SLOTS_VA + i * SLOT_STRIDE, FUZZ_SLOT_BYTES};
}

/* Symbols at the program's limits or, by a bit of @random each, one below. */
static void set_symbols(struct txda_pkt_exec *p, const struct txda_program *h, uint32_t random)
{
	for (unsigned i = 0; i < TXDA_SYM_COUNT; i++)
		p->sym[i] = h->sym_max[i] && (random >> i & 1) ? h->sym_max[i] - 1 : h->sym_max[i];
}

/* Whether it ran to its end. */
static bool launch(const struct txda_program *h, size_t size)
{
	uint32_t crc = h->crc32c;
	struct txda_pkt_exec p = {
		.hdr = {TXDA_PKT_EXEC, TXDA_EXEC_RELOAD, sizeof(p)},
		.program_va = VA + PROGRAM,
		.bindings_va = VA + BINDINGS,
		.program_bytes = (uint32_t)size,
		.n_bindings = h->n_slots,
		.group = TXDA_NONE,
	};
	struct txda_pkt_fence s = {{TXDA_PKT_SIGNAL, 0, sizeof(s)}, VA + FENCE, ++fence};
	struct txda_fault fault;
	char text[256];
	int ret;

	if (crc % 4 == 0)
		p.hdr.flags |= TXDA_EXEC_PRECISE;
	/* The symbols' bits are not those that choose the mode. */
	set_symbols(&p, h, crc % 8 < 4 ? 0 : crc >> 8);
	memcpy(mem + STREAM, &p, sizeof(p));
	memcpy(mem + STREAM + sizeof(p), &s, sizeof(s));
	if (!queue)
		check(!cm_queue_new(vm, CM_QUEUE_COMPUTE, NULL, NULL, &queue), "no queue");
	check(!cm_queue_submit(queue, VA + STREAM, sizeof(p) + sizeof(s), true),
	      "the queue takes no stream");
	ret = cm_wait(machine, queue, (uint64_t *)(mem + FENCE), fence,
		      cm_chip_time_ns(cm_machine_chip(machine, 0)) + TIMEOUT_NS);
	if (getenv("TXDA_FUZZ_VERBOSE")) {
		printf("%d", ret);
		if (!cm_queue_fault(queue, &fault))
			printf(" %s", cm_fault_text(vm, &fault, text, sizeof(text)));
		printf("\n");
	}
	if (!ret)
		return true;
	/* A program that is too slow is no error; it is cut short here. */
	if (!cm_queue_fault(queue, &fault)) {
		check(fault.code > TXDA_FAULT_NONE && fault.code < TXDA_FAULT_CODE_COUNT,
		      "a fault without a code");
		cm_fault_text(vm, &fault, text, sizeof(text));
	}
	cm_queue_free(queue);
	queue = NULL;
	return false;
}

static bool run_program(const uint8_t *data, size_t size)
{
	struct txda_program *h = (void *)(mem + PROGRAM);

	memcpy(mem + PROGRAM, data, size);
	h->bytes = size;
	h->crc32c = 0;
	h->crc32c = crc32c(0, h, size);
	set_slots(h->n_slots < TXDA_PROGRAM_MAX_SLOTS ? h->n_slots : TXDA_PROGRAM_MAX_SLOTS);
	return launch(h, size);
}

/* ---- changed fields -------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16) % n;
}

/* A value for a field that holds @old. */
static uint32_t other_value(uint32_t old)
{
	switch (below(8)) {
	case 0: return below(40);
	case 1: return old + 1 - 2 * below(2);
	case 2: return old << (1 + below(4));
	case 3: return old >> (1 + below(4));
	case 4: return 1u << below(32);
	case 5: return 0xffffffffu >> below(32);
	case 6: return old ^ 1u << below(32);
	default: return below(2) ? 0 : 0x7fc00000; /* NaN */
	}
}

/* Changes one field of a tensor, an op, a limit or a slot. */
static void change_field(uint8_t *image, const struct txda_program *h)
{
	struct txda_tensor *t = (void *)(image + h->tensors_off + below(h->n_tensors) * sizeof(*t));
	struct txda_op *op = (void *)(image + h->ops_off + below(h->n_ops) * sizeof(*op));
	uint32_t *limit = &((struct txda_program *)(void *)image)->sym_max[1 + below(5)];
	unsigned i = below(4);

	switch (below(12)) {
	case 0: t->dim[i].mul = other_value(t->dim[i].mul); break;
	case 1: t->dim[i % 2].mul = 1 + below(200); break;
	case 2: t->dim[i % 2].sym = below(6); break;
	case 3: t->ndim = (uint8_t)below(5); break;
	case 4: t->dtype = (uint8_t)below(TXDA_DTYPE_COUNT); break;
	case 5: t->layout = (uint8_t)below(TXDA_LAYOUT_COUNT); break;
	case 6: t->offset = below(1000) * 64; break;
	case 7: t->flags ^= TXDA_TENSOR_ACTIVATION; break;
	case 8: op->in[below(5)] = below(8) ? below(h->n_tensors) : TXDA_NONE; break;
	case 9: op->out[below(3)] = below(8) ? below(h->n_tensors) : TXDA_NONE; break;
	case 10: op->raw[below(8)] = other_value(op->raw[below(8)]); break;
	default: *limit = other_value(*limit); break;
	}
}

static void run_changed(const uint8_t *base, size_t base_size, const uint8_t *data, size_t size)
{
	uint8_t *image = malloc(base_size);

	if (!image)
		return;
	random_state = 0x9e3779b97f4a7c15ull ^ crc32c(0, data, size);
	for (unsigned runs = 0; runs < 4; runs++) {
		memcpy(image, base, base_size);
		for (unsigned n = 1 + below(3); n; n--)
			change_field(image, (const void *)base);
		run_program(image, base_size);
	}
	free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *base;
	static size_t base_size;
	const struct txda_program *h;
	bool ran;

	if (!machine)
		start();
	if (size < sizeof(struct txda_program) || size > PROGRAM_ROOM)
		return 0;
	ran = run_program(data, size);
	h = (const void *)(mem + PROGRAM);
	if (base) {
		run_changed(base, base_size, data, size);
	} else if (ran && h->n_tensors && h->n_ops) {
		/* Its tables are where they say. */
		base = malloc(size);
		check(base != NULL, "no memory");
		memcpy(base, data, size);
		base_size = size;
	}
	return 0;
}
