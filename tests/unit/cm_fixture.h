/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the device model share: a machine whose chips each have one address space with
 * DRAM mapped in it, streams and programs written by hand, and kernels whose work can be seen
 * (cm_fake_ops.c).
 */
#ifndef CM_FIXTURE_H
#define CM_FIXTURE_H

#include "cmodel.h"
#include "unit.h"

#define FIX_MEM	  (16ull << 20) /* DRAM of a chip */
#define FIX_VA	  0x10000000ull /* all of it is mapped here, readable and writable */
#define FIX_RO	  0x20000000ull /* and here, readable only */
#define FIX_CHIPS 4

/* Offsets in DRAM (and from FIX_VA) that the tests use. */
#define FIX_STREAMS  0x000000ull
#define FIX_FENCES   0x100000ull
#define FIX_PROGRAM  0x200000ull
#define FIX_BINDINGS 0x300000ull
#define FIX_DATA     0x400000ull

struct fix_chip {
	struct cm_chip *chip;
	struct cm_vm *vm;
	uint8_t *mem;	 /* DRAM as the host sees it */
	uint64_t stream; /* where the next stream goes */
};

struct fix {
	struct cm_machine *m;
	struct fix_chip c[FIX_CHIPS];
	uint64_t fence; /* the last value that fix_run() signalled */
};

/* A machine with @chips chips and @cores cores. */
void fix_new(struct fix *f, unsigned chips, unsigned cores);
/* The machines that follow end cancelled ops by a signal. */
void fix_interrupt(void);
/* Whether the path is one with tile instructions. */
void fix_use_tiles(bool use);
void fix_free(struct fix *f);
struct cm_queue *fix_queue(struct fix *f, unsigned chip, enum cm_queue_class class);

/* A stream that is being written to DRAM. */
struct fix_stream {
	struct fix_chip *c;
	uint64_t off, bytes;
};

struct fix_stream fix_stream(struct fix_chip *c);
/* Appends a packet of @bytes whose header (op, flags, bytes) is filled in here. */
void fix_put(struct fix_stream *s, uint16_t op, uint16_t flags, void *packet, size_t bytes);
void fix_signal(struct fix_stream *s, uint64_t va, uint64_t value);
void fix_wait_packet(struct fix_stream *s, uint64_t va, uint64_t value);
int fix_submit(struct cm_queue *q, const struct fix_stream *s);
/* Submits the stream with a SIGNAL at its end and waits: 0 or -EIO. */
int fix_run(struct fix *f, struct cm_queue *q, struct fix_stream *s);
/* Waits up to 10 seconds. */
int fix_wait(struct fix *f, struct cm_queue *q, const uint64_t *word, uint64_t value);
uint64_t *fix_word(struct fix_chip *c, unsigned i); /* fence @i, and its VA: */
uint64_t fix_word_va(unsigned i);
/* Runs the stream, which must fault with @code; the record in *@ret when given. */
void fix_expect_fault(struct fix *f, struct cm_queue *q, struct fix_stream *s, uint32_t code,
		      struct txda_fault *ret);

/* ---- programs ------------------------------------------------------------------------------- */

#define FIX_PROG_BYTES 8192

/* A program image with fixed places for its tables. */
struct fix_program {
	_Alignas(64) uint8_t image[FIX_PROG_BYTES];
	struct txda_program *hdr;
	struct txda_slot *slot;	    /* up to 8 */
	struct txda_tensor *tensor; /* up to 16 */
	struct txda_op *op;	    /* up to 16 */
	char *strings;
};

void fix_program_init(struct fix_program *p, unsigned group_size, unsigned rank);
uint32_t fix_slot(struct fix_program *p, const char *name, uint32_t kind, uint64_t bytes);
/* A row-major tensor [d0, d1]; an extent is mul * sym. d1.mul 0: one dimension. */
uint32_t fix_tensor(struct fix_program *p, const char *name, uint32_t slot, uint32_t dtype,
		    uint64_t offset, struct txda_dim d0, struct txda_dim d1);
struct txda_op *fix_op(struct fix_program *p, const char *label, uint16_t opcode);
/* Sets the checksum. */
void fix_seal(struct fix_program *p);
/* Writes the image to DRAM at FIX_PROGRAM + @at and fills a packet that launches it. */
void fix_place(const struct fix_program *p, struct fix_chip *c, uint64_t at,
	       struct txda_pkt_exec *ret);
/*
 * hidden[t] = x[t] + norm.weight; out[r] = hidden[row_index[r]], with tensors and slots in this order:
 * weights, x, scratch, rows, out. T is up to 64, R up to 16.
 */
void fix_rows_program(struct fix_program *p, uint32_t columns);
/* Binding @i of the packet that fix_place() made. */
void fix_bind(struct fix_chip *c, const struct txda_pkt_exec *p, unsigned i, uint64_t va,
	      uint64_t bytes);

#define FIX_SYM(s, m) ((struct txda_dim){(s), (m)})
#define FIX_CONST(m)  ((struct txda_dim){0, (m)})
#define FIX_NO_DIM    ((struct txda_dim){0, 0})

/* ---- cm_fake_ops.c -------------------------------------------------------------------------- */

/*
 *	RMSNORM      out[m][h] = x[m][h] + weight[h], a part a row; in precise mode 1000 more
 *	GATHER_ROWS  as in the instruction set, one part
 *	ALL_REDUCE   as in the instruction set, a part a row
 *	LINEAR       counts its parts: see fake_linear_*
 */
/* What plan() of LINEAR sets from now on. */
void fake_linear_shape(unsigned phases, const uint64_t *parts);
/* Shapes by chance from now on. */
void fake_linear_random(uint64_t seed);
/* Each part of LINEAR takes so many turns of an empty loop. */
void fake_linear_spin(unsigned turns);
/* Errors seen: parts run twice or never, out of phase, for another launch or in a wrong mode of floats. */
unsigned fake_linear_errors(void);
uint64_t fake_linear_launches(void);

/* Where LINEAR, and in parts ALL_REDUCE, have no end. */
enum fake_endless { FAKE_NOWHERE, FAKE_CHECK, FAKE_PLAN, FAKE_RUN };
void fake_endless(enum fake_endless where);
/* How many cores have come there since. */
unsigned fake_stuck(void);

#endif /* CM_FIXTURE_H */
