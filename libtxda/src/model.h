/* SPDX-License-Identifier: MIT */
/*
 * Models: a case dir on the chips of a group.
 *
 * Each rank has a program, weights (shared, weights.h), one buffer for all inputs and outputs,
 * scratch, a KV cache, a queue, and one prepared EXEC packet: a launch writes the sizes of the step
 * into it and submits it on each rank, so nothing is allocated. Bindings are in memory that the
 * chip reads at each launch.
 * Ownership: a model holds its group; the KV cache may be shared by several models, and bound
 * tensors may belong to others.
 * Threads: one thread at a time sets inputs, binds and runs; any thread may sync.
 */
#ifndef TXDA_MODEL_H
#define TXDA_MODEL_H

#include "case_file.h"
#include "group.h"
#include "program.h"
#include "queue.h"

#define TXDA__MAX_IO	TXDA_PROGRAM_MAX_SLOTS
#define TXDA__MAX_STEPS 128 /* maximum number of launches of one model in flight */

struct txda__rank {
	struct txda_device *device;
	void *kcore; /* the file's contents, which program points into */
	struct txda__program program;
	bool doubled[TXDA_PROGRAM_MAX_SLOTS]; /* precise mode: memory for activations */
	struct txda_weights *weights;
	struct txda_buffer *code;    /* the program as the chip reads it */
	struct txda_buffer *control; /* bindings, then the timeline */
	struct txda_buffer *scratch, *io, *kv;
	struct txda_binding *binding;	     /* [n_slots], host mapping in control */
	const struct txda_op_time *timeline; /* [n_ops], likewise */
	/* a reference each; NULL: not bound */
	struct txda_buffer *slot_buffer[TXDA_PROGRAM_MAX_SLOTS];
	uint64_t slot_offset[TXDA_PROGRAM_MAX_SLOTS];
	struct txda_pkt_exec exec;
	struct txda_queue *queue;
	struct txda__space *joined; /* space in which group_slot is ours; or NULL */
	unsigned group_slot;
};

/* An input or output by name, with its slot on each rank. */
struct txda__io {
	const char *name; /* index in the first rank's program that has it */
	enum txda_tensor_kind kind;
	unsigned first_rank;
	int slot[TXDA_MAX_CHIPS_PER_GROUP]; /* -1: not in this rank's program */
};

struct txda_model {
	atomic_uint refs;
	struct txda_group *group;
	struct case_info info;
	bool precise;
	unsigned tp;
	struct txda__rank rank[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned n_io;
	struct txda__io io[TXDA__MAX_IO];
	unsigned kv_blocks;
	uint64_t kv_block_bytes[TXDA_MAX_CHIPS_PER_GROUP];
	bool broken;		       /* a launch reached only some of the ranks */
	pthread_mutex_t lock;	       /* protects what follows */
	int fd;			       /* or -1 */
	struct txda_op_timing *timing; /* of launch timing_fence, or NULL */
	uint64_t timing_fence;
};

static inline struct txda_context *txda__model_context(const struct txda_model *model)
{
	return model->group->context;
}

/* Bytes of a slot as bound by this model; KV: of one block. */
static inline uint64_t txda__slot_bytes(const struct txda__rank *rank, unsigned slot)
{
	return rank->program.slot[slot].bytes << rank->doubled[slot];
}

/* The slot of that kind, or -1 if there is none. */
int txda__find_slot(const struct txda__program *program, unsigned kind);
/* Slots that take twice the size in precise mode. */
void txda__mark_doubled(struct txda__rank *rank);
/* Reads and checks the program of each rank against the case. The message names the rank. */
int txda__load_programs(struct txda_context *context, const struct case_info *info, int dir_fd,
			const char *wanted, struct txda__rank *rank);
/*
 * Space for all inputs and outputs, each 64-byte aligned, except those in @dummies (may be
 * NULL).
 */
uint64_t txda__io_bytes(const struct txda__rank *rank, const char *const *dummies);
bool txda__is_dummy(const char *name, const char *const *dummies);
/* Binds a slot to memory; takes a reference and drops the previous one. */
void txda__bind_slot(struct txda__rank *rank, unsigned slot, struct txda_buffer *buffer,
		     uint64_t offset, uint64_t bytes);
/*
 * 0 when no launch is in flight, so that tensors may be written or bound; -EBUSY, or why a launch
 * has failed. Reads two words a rank.
 */
int txda__model_check_idle(struct txda_model *model);
/* Fills in the costs in @info (cost.c). */
void txda__model_cost(const struct txda_model *model, struct txda_model_info *info);
/* Blocks of a sequence's state; 0: the program keeps none. */
unsigned txda__state_blocks(const struct txda__program *p);
/* Groups of layers with block tables of their own, and how far back each reads; 0: all. */
unsigned txda__kv_groups(const struct txda__program *p, unsigned reach[TXDA_MAX_KV_GROUPS]);
/* Frees a model, also a partly built one. */
void txda__model_free(struct txda_model *model);

/* ---- profile.c ------------------------------------------------------------------------------- */

/*
 * Requests a timeline of the launch that will have @fence from rank 0. -EBUSY while one is in
 * progress.
 */
int txda__profile_start(struct txda_model *model, struct txda_op_timing *timing, uint64_t fence);
/* That launch was not submitted, or failed. */
void txda__profile_cancel(struct txda_model *model);
/* Launch @fence has passed: delivers its timeline. */
void txda__profile_collect(struct txda_model *model, uint64_t fence);

#endif /* TXDA_MODEL_H */
