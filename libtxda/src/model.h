/* SPDX-License-Identifier: MIT */
/*
 * Models: a case dir on the chips of a group.
 *
 * Each rank has a program, weights (shared, weights.h), one buffer for all inputs and outputs,
 * scratch, a KV cache and a queue of its own, and one EXEC packet that is ready to go: a launch
 * writes the sizes of the step into it and submits it on each rank, so nothing is allocated.
 * Bindings live in memory that the chip reads at each launch.
 * Ownership: a model holds its group; the KV cache may belong to several models, bound tensors to
 * somebody else.
 * Threads: one thread at a time sets inputs, binds and runs; any thread may sync.
 */
#ifndef TXDA_MODEL_H
#define TXDA_MODEL_H

#include "case_info.h"
#include "group.h"
#include "program.h"
#include "queue.h"

#define TXDA__MAX_IO	TXDA_PROGRAM_MAX_SLOTS
#define TXDA__MAX_STEPS 128 /* launches of one model in flight */

struct txda__rank {
	struct txda_device *device;
	void *kcore; /* the file, which program points into */
	struct txda__program program;
	bool doubled[TXDA_PROGRAM_MAX_SLOTS]; /* precise mode: holds activations */
	struct txda_weights *weights;
	struct txda_buffer *code;    /* the program as the chip reads it */
	struct txda_buffer *control; /* bindings, then the timeline */
	struct txda_buffer *scratch, *io, *kv;
	struct txda_binding *binding;	     /* [n_slots], the host's view of control */
	const struct txda_op_time *timeline; /* [n_ops], likewise */
	/* a reference each; NULL: not bound */
	struct txda_buffer *slot_buffer[TXDA_PROGRAM_MAX_SLOTS];
	uint64_t slot_offset[TXDA_PROGRAM_MAX_SLOTS];
	struct txda_pkt_exec exec;
	struct txda_queue *queue;
	struct txda__space *joined; /* group_slot of it is ours; or NULL */
	unsigned group_slot;
};

/* An input or output by name, with the slot that it is in on each rank. */
struct txda__io {
	const char *name; /* in the first rank's program that has it */
	enum txda_tensor_kind kind;
	unsigned first_rank;
	int slot[TXDA_MAX_CHIPS_PER_GROUP]; /* -1: this rank has none */
};

struct txda_model {
	atomic_uint refs;
	struct txda_group *group;
	struct txda__case info;
	bool precise;
	unsigned tp;
	struct txda__rank rank[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned n_io;
	struct txda__io io[TXDA__MAX_IO];
	unsigned kv_blocks;
	uint64_t kv_block_bytes[TXDA_MAX_CHIPS_PER_GROUP];
	bool broken; /* a launch reached only some ranks */
	/* the fence of the last launch, the same on all ranks */
	uint64_t last;
	pthread_mutex_t lock;	       /* guards what follows */
	int fd;			       /* or -1 */
	struct txda_op_timing *timing; /* of launch timing_fence, or NULL */
	uint64_t timing_fence;
};

static inline struct txda_context *txda__model_context(const struct txda_model *model)
{
	return model->group->context;
}

/* Bytes of a slot as this model binds it; KV: of one block. */
static inline uint64_t txda__slot_bytes(const struct txda__rank *rank, unsigned slot)
{
	return rank->program.slot[slot].bytes << rank->doubled[slot];
}

/* The slot of that kind, or -1. */
int txda__find_slot(const struct txda__program *program, unsigned kind);
/* Which slots precise mode doubles. */
void txda__mark_doubled(struct txda__rank *rank);
/* Reads and checks the program of each rank against the case. The message names the rank. */
int txda__load_programs(struct txda_context *context, const struct txda__case *info, int dir_fd,
			const char *wanted, struct txda__rank *rank);
/* 64-byte aligned room of all inputs and outputs but for those in @dummies (may be NULL). */
uint64_t txda__io_bytes(const struct txda__rank *rank, const char *const *dummies);
bool txda__is_dummy(const char *name, const char *const *dummies);
/* Points a slot at memory; takes a reference and drops the one before. */
void txda__bind_slot(struct txda__rank *rank, unsigned slot, struct txda_buffer *buffer,
		     uint64_t offset, uint64_t bytes);
/* Fills the costs of @info (cost.c). */
void txda__model_cost(const struct txda_model *model, struct txda_model_info *info);
/* Frees a model in any state of being made. */
void txda__model_free(struct txda_model *model);

/* ---- profile.c ------------------------------------------------------------------------------- */

/* Asks rank 0 for a timeline of the launch that will have @fence. -EBUSY while one is under way. */
int txda__profile_start(struct txda_model *model, struct txda_op_timing *timing, uint64_t fence);
/* That launch was not made, or failed. */
void txda__profile_cancel(struct txda_model *model);
/* Launch @fence has passed: gives its timeline to whom it is for. */
void txda__profile_collect(struct txda_model *model, uint64_t fence);

#endif /* TXDA_MODEL_H */
