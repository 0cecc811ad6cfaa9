// SPDX-License-Identifier: MIT
#include "clock.h"
#include "cm_fixture.h"
#include "crc32c.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static int interrupt_signal;

void fix_interrupt(void)
{
	struct sigaction action = {.sa_handler = cm_interrupted,
				   .sa_flags = SA_RESTART | SA_NODEFER};

	interrupt_signal = SIGURG;
	assert_int_equal(sigaction(interrupt_signal, &action, NULL), 0);
}

void fix_new(struct fix *f, unsigned chips, unsigned cores)
{
	struct cm_options opt = {.chips = chips,
				 .mem_bytes = FIX_MEM,
				 .cores = cores,
				 .interrupt = interrupt_signal};

	memset(f, 0, sizeof(*f));
	assert_int_equal(cm_machine_new(&opt, &f->m), 0);
	for (unsigned i = 0; i < chips; i++) {
		struct fix_chip *c = &f->c[i];
		int fd;

		c->chip = cm_machine_chip(f->m, i);
		fd = cm_chip_dram_fd(c->chip);
		c->mem = mmap(NULL, FIX_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(c->mem, MAP_FAILED);
		assert_int_equal(cm_vm_new(c->chip, &c->vm), 0);
		assert_int_equal(
			cm_vm_map(c->vm, FIX_VA, fd, 0, FIX_MEM, CM_MAP_READ | CM_MAP_WRITE), 0);
		assert_int_equal(cm_vm_map(c->vm, FIX_RO, fd, 0, FIX_MEM, CM_MAP_READ), 0);
	}
}

void fix_free(struct fix *f)
{
	unsigned chips = cm_machine_chips(f->m);

	cm_machine_free(f->m);
	for (unsigned i = 0; i < chips; i++)
		munmap(f->c[i].mem, FIX_MEM);
}

struct cm_queue *fix_queue(struct fix *f, unsigned chip, enum cm_queue_class class)
{
	struct cm_queue *q = NULL;

	assert_int_equal(cm_queue_new(f->c[chip].vm, class, NULL, NULL, &q), 0);
	return q;
}

/* ---- streams --------------------------------------------------------------------------------- */

struct fix_stream fix_stream(struct fix_chip *c)
{
	/* Streams go round in their part of DRAM; none is larger than a page. */
	c->stream = (c->stream + 4096) % FIX_FENCES;
	return (struct fix_stream){c, FIX_STREAMS + c->stream, 0};
}

void fix_put(struct fix_stream *s, uint16_t op, uint16_t flags, void *packet, size_t bytes)
{
	*(struct txda_pkt *)packet = (struct txda_pkt){op, flags, (uint32_t)bytes};
	memcpy(s->c->mem + s->off + s->bytes, packet, bytes);
	s->bytes += bytes;
}

void fix_signal(struct fix_stream *s, uint64_t va, uint64_t value)
{
	struct txda_pkt_fence p = {.va = va, .value = value};

	fix_put(s, TXDA_PKT_SIGNAL, 0, &p, sizeof(p));
}

void fix_wait_packet(struct fix_stream *s, uint64_t va, uint64_t value)
{
	struct txda_pkt_fence p = {.va = va, .value = value};

	fix_put(s, TXDA_PKT_WAIT, 0, &p, sizeof(p));
}

int fix_submit(struct cm_queue *q, const struct fix_stream *s)
{
	return cm_queue_submit(q, FIX_VA + s->off, s->bytes, false);
}

uint64_t *fix_word(struct fix_chip *c, unsigned i)
{
	return (uint64_t *)(c->mem + FIX_FENCES + i * 64);
}

uint64_t fix_word_va(unsigned i)
{
	return FIX_VA + FIX_FENCES + i * 64;
}

int fix_wait(struct fix *f, struct cm_queue *q, const uint64_t *word, uint64_t value)
{
	return cm_wait(f->m, q, word, value, clock_ns() + 10000000000u);
}

int fix_run(struct fix *f, struct cm_queue *q, struct fix_stream *s)
{
	int ret;

	fix_signal(s, fix_word_va(1000), ++f->fence);
	ret = fix_submit(q, s);
	return ret ? ret : fix_wait(f, q, fix_word(s->c, 1000), f->fence);
}

void fix_expect_fault(struct fix *f, struct cm_queue *q, struct fix_stream *s, uint32_t code,
		      struct txda_fault *ret)
{
	struct txda_fault fault;

	assert_int_equal(fix_run(f, q, s), -EIO);
	assert_int_equal(cm_queue_state(q), CM_QUEUE_FAULTED);
	assert_int_equal(cm_queue_fault(q, &fault), 0);
	assert_int_equal(fault.code, code);
	assert_int_equal(fix_submit(q, s), -EIO);
	if (ret)
		*ret = fault;
}

/* ---- programs -------------------------------------------------------------------------------- */

void fix_program_init(struct fix_program *p, unsigned group_size, unsigned rank)
{
	memset(p, 0, sizeof(*p));
	p->hdr = (void *)p->image;
	*p->hdr = (struct txda_program){
		.magic = TXDA_PROGRAM_MAGIC,
		.major = TXDA_ISA_MAJOR,
		.minor = TXDA_ISA_MINOR,
		.bytes = FIX_PROG_BYTES,
		.slots_off = 256,
		.tensors_off = 512,
		.ops_off = 2048,
		.strings_off = 6144,
		.strings_bytes = 1,
		.group_size = group_size,
		.rank = rank,
		.sym_max = {0, 64, 16, 16, 16, 16},
	};
	p->slot = (void *)(p->image + p->hdr->slots_off);
	p->tensor = (void *)(p->image + p->hdr->tensors_off);
	p->op = (void *)(p->image + p->hdr->ops_off);
	p->strings = (char *)p->image + p->hdr->strings_off;
}

static uint32_t fix_name(struct fix_program *p, const char *name)
{
	uint32_t at = p->hdr->strings_bytes;

	strcpy(p->strings + at, name);
	p->hdr->strings_bytes += (uint32_t)strlen(name) + 1;
	return at;
}

uint32_t fix_slot(struct fix_program *p, const char *name, uint32_t kind, uint64_t bytes)
{
	p->slot[p->hdr->n_slots] = (struct txda_slot){fix_name(p, name), kind, bytes};
	return p->hdr->n_slots++;
}

uint32_t fix_tensor(struct fix_program *p, const char *name, uint32_t slot, uint32_t dtype,
		    uint64_t offset, struct txda_dim d0, struct txda_dim d1)
{
	p->tensor[p->hdr->n_tensors] = (struct txda_tensor){
		.name = fix_name(p, name),
		.slot = (uint16_t)slot,
		.dtype = (uint8_t)dtype,
		.offset = offset,
		.ndim = d1.mul ? 2 : 1,
		.dim = {d0, d1},
	};
	return p->hdr->n_tensors++;
}

struct txda_op *fix_op(struct fix_program *p, const char *label, uint16_t opcode)
{
	struct txda_op *op = &p->op[p->hdr->n_ops++];

	*op = (struct txda_op){.op = opcode, .label = fix_name(p, label)};
	for (unsigned i = 0; i < 6; i++)
		op->in[i] = TXDA_NONE;
	for (unsigned i = 0; i < 3; i++)
		op->out[i] = TXDA_NONE;
	return op;
}

void fix_seal(struct fix_program *p)
{
	p->hdr->crc32c = 0;
	p->hdr->crc32c = crc32c(0, p->image, sizeof(p->image));
}

void fix_place(const struct fix_program *p, struct fix_chip *c, uint64_t at,
	       struct txda_pkt_exec *ret)
{
	memcpy(c->mem + FIX_PROGRAM + at, p->image, sizeof(p->image));
	*ret = (struct txda_pkt_exec){
		.program_va = FIX_VA + FIX_PROGRAM + at,
		.bindings_va = FIX_VA + FIX_BINDINGS + at,
		.program_bytes = sizeof(p->image),
		.n_bindings = p->hdr->n_slots,
		.group = TXDA_NONE,
	};
}

void fix_bind(struct fix_chip *c, const struct txda_pkt_exec *p, unsigned i, uint64_t va,
	      uint64_t bytes)
{
	struct txda_binding b = {va, bytes};

	memcpy(c->mem + (p->bindings_va - FIX_VA) + i * sizeof(b), &b, sizeof(b));
}

void fix_rows_program(struct fix_program *p, uint32_t columns)
{
	const struct txda_dim t = FIX_SYM(TXDA_SYM_T, 1), r = FIX_SYM(TXDA_SYM_R, 1),
			      h = FIX_CONST(columns);
	uint32_t slot[5], tensor[5];
	struct txda_op *op;

	fix_program_init(p, 1, 0);
	slot[0] = fix_slot(p, "weights", TXDA_SLOT_WEIGHTS, columns * 4);
	slot[1] = fix_slot(p, "x", TXDA_SLOT_INPUT, 64 * columns * 4);
	slot[2] = fix_slot(p, "scratch", TXDA_SLOT_SCRATCH, 64 + 64 * columns * 4);
	slot[3] = fix_slot(p, "rows", TXDA_SLOT_INPUT, 64);
	slot[4] = fix_slot(p, "out", TXDA_SLOT_OUTPUT, 16 * columns * 4);
	tensor[0] = fix_tensor(p, "norm.weight", slot[0], TXDA_F32, 0, h, FIX_NO_DIM);
	tensor[1] = fix_tensor(p, "x", slot[1], TXDA_F32, 0, t, h);
	tensor[2] = fix_tensor(p, "hidden", slot[2], TXDA_F32, 64, t, h);
	p->tensor[tensor[2]].flags = TXDA_TENSOR_ACTIVATION;
	tensor[3] = fix_tensor(p, "row_index", slot[3], TXDA_I32, 0, r, FIX_NO_DIM);
	tensor[4] = fix_tensor(p, "out", slot[4], TXDA_F32, 0, r, h);
	op = fix_op(p, "layers.0.norm", TXDA_OP_RMSNORM);
	op->in[0] = tensor[1];
	op->in[1] = tensor[0];
	op->out[0] = tensor[2];
	op = fix_op(p, "select", TXDA_OP_GATHER_ROWS);
	op->in[0] = tensor[2];
	op->in[1] = tensor[3];
	op->out[0] = tensor[4];
	fix_seal(p);
}
