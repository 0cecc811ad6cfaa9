/* SPDX-License-Identifier: MIT */
/*
 * The model table of the daemon: which names are served, from which directories, on which chips,
 * and in which state.
 *
 * A name stands for a Hugging Face directory or a case dir. The former is compiled into the cache
 * on first use by txda-compile, as a child process, unless its config.json names a case dir
 * (param_dir.h). Loads run one after the other in a loader thread, one load per model however many
 * ask for it.
 *
 * Threads: every function may be called from any thread, but residency_dispatch() from one at a
 * time, the client thread: callbacks run in it and nowhere else, never inside residency_acquire(),
 * and without a lock held, so that a callback may call anything here but residency_dispatch() and
 * residency_free(). Nothing but residency_free() waits for a load.
 *
 * Use by a server:
 *	watch residency_fd(); when it is readable call residency_dispatch()
 *	residency_acquire(name): 0 → use residency_engine(model); -EINPROGRESS → go on in the callback
 *	watch engine_ready_fd() of an engine from its first acquire on, hold that reference until no
 *	request is in flight and the fd is no longer watched, then residency_release()
 *
 * A model whose chips were lost stays LOST while anyone holds it (acquire: -EIO); when the last
 * holder has released it, the next acquire loads it anew.
 *
 * Memory: a load that has no room for the weights and a least KV cache ends with -ENOSPC. Which
 * models go for it is the server's to decide, as it knows who is idle: residency_make_room() says
 * which of them suffice. What was unloaded or put to sleep comes back with the next acquire, with
 * the same bits.
 *
 * With a keeper (keeper.h) the weights of resident models outlive the process, but not an unload. A
 * model goes to the chips that have its weights already, where it needs no room for them.
 *
 * Errors: 0 or -errno; the words in err.
 */
#ifndef TXDA_RESIDENCY_H
#define TXDA_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

struct keeper;
struct txda_context;
struct residency;
struct residency_model; /* one name of the table; lives as long as the residency */

enum residency_state {
	RESIDENCY_COLD = 0, /* nothing is known but the path */
	RESIDENCY_PLANNED,  /* a case dir is there, its sizes are known */
	RESIDENCY_LOADING,  /* queued, compiling or loading */
	RESIDENCY_RESIDENT,
	RESIDENCY_DRAINING, /* running requests end, new ones are refused */
	RESIDENCY_LOST,	    /* its chips failed */
	RESIDENCY_ASLEEP,   /* off the chips; its weights are held in host memory */
};

const char *residency_state_name(enum residency_state state); /* "cold", ... */

/* How a model is compiled and run. */
struct residency_model_options {
	bool kv_int8;	    /* of Hugging Face directories: keys and values as int8 */
	bool whole_experts; /* likewise: a chip has whole experts rather than a part of each */
	/* case_dir and load_progress are set here. max_kv_blocks 0: shared out among the models of
	 * a chip. */
	struct engine_options engine;
};

struct residency_options {
	struct txda_context *context; /* referenced */
	const char *cache_dir; /* NULL: $CACHE_DIRECTORY, $XDG_CACHE_HOME/txda, $HOME/.cache/txda,
				  /var/cache/txda */
	bool private_cache;    /* nothing is taken from the cache, and nothing stays in it */
	const char *compiler;  /* NULL: txda-compile beside this executable, or in PATH */
	unsigned compile_seconds; /* longest run of the compiler; 0: 3600 */
	uint64_t
		compile_memory; /* address space of the compiler in bytes; 0: no limit of its own */
	struct keeper *keeper;	/* borrowed; NULL: weights go with the process */
	/* Of models that get none of their own (residency_set_options()). */
	struct residency_model_options model;
};

/* Starts the loader thread. */
int residency_new(const struct residency_options *options, struct residency **ret, char *err,
		  size_t errlen);
/* After the models of the start were added: what is kept of others is given up. */
void residency_settle_kept(struct residency *r);
/* Waits for a load under way (its compiler is killed), frees every engine. Waiters' callbacks do
 * not run any more. NULL is accepted. */
void residency_free(struct residency *r);
/* Refuses acquires with -ESHUTDOWN, drains every engine, fails the waiters. Does not wait; idle
 * once residency_idle() says so. */
void residency_shutdown(struct residency *r);
bool residency_idle(struct residency *r); /* no load under way and nobody holds a model */

/*
 * Adds a name. @tp 0: as the directory says (case dir) or the compiler decides. @weights: "bf16",
 * "w8", ... or NULL: as they are; both only apply to what is compiled, and must agree with a case
 * dir's. -EEXIST: the name is taken. -ENOENT, -ENOTDIR, -EINVAL: not a model's directory, or not as
 * wanted. -EPERM: the case dir that it names is not its owner's.
 */
int residency_add(struct residency *r, const char *name, const char *path, unsigned tp,
		  const char *weights, char *err, size_t errlen);

/*
 * Gives a model that was added, and is not asked for yet, a small one that proposes tokens for it
 * (speculative decoding): a Hugging Face directory or a case dir for as many chips. It overrides
 * its options' engine.speculation. "mtp": the model's own layer that predicts further tokens,
 * compiled from the model's directory; of a case dir it is named as a case dir of its own. -ENOENT,
 * -ENOTDIR, -EINVAL as above.
 */
int residency_set_draft(struct residency *r, const char *name, const char *path, char *err,
			size_t errlen);

/* What a model is to be, for residency_check(). 0, NULL and false: as it is. */
struct residency_wish {
	const char *path, *draft; /* as of residency_add() and residency_set_draft() */
	unsigned tp;
	const char *weights;
	bool kv_int8, whole_experts;
};
/*
 * Whether a model of that kind could be added now: looks at its directories and its case dir's
 * files, for as long as that takes, and changes nothing. Errors as residency_add(). Threads: any.
 */
int residency_check(struct txda_context *context, const struct residency_wish *wish, char *err,
		    size_t errlen);

/* Before the first acquire. -ENOENT. -EINVAL: the model's case dir was compiled otherwise. */
int residency_set_options(struct residency *r, const char *name,
			  const struct residency_model_options *options, char *err, size_t errlen);

/*
 * Before the first acquire: chips for at most @bytes of KV cache on each (0: what is left), and,
 * with @family, a group of its own: models of one family are replicas and go to different groups.
 * -ENOENT.
 */
int residency_set_limits(struct residency *r, const char *name, uint64_t kv_bytes,
			 const char *family, char *err, size_t errlen);

#define RESIDENCY_MAX_CHIPS 64

/* Which chips a model may go to. Neither a map nor devices: groups of neighbours among all chips. */
struct residency_chips {
	char map[64];			       /* as txda_group_options.map; "": none */
	unsigned devices[RESIDENCY_MAX_CHIPS]; /* groups are as many of them at a time, in order */
	unsigned n_devices;		       /* 0: none */
};

/* Before the first acquire. -ENOENT. */
int residency_set_chips(struct residency *r, const char *name, const struct residency_chips *chips,
			char *err, size_t errlen);

/*
 * Takes a name out of the table; it may be added again at once. What it stood for is freed when its
 * last holder has released it, and takes requests until then. A load is called off. -ENOENT.
 */
int residency_remove(struct residency *r, const char *name, char *err, size_t errlen);

/*
 * Called in residency_dispatch() when the model is resident (@error 0; the callee holds a
 * reference, residency_release() drops it) or could not be loaded (@error -errno, @text says why).
 */
typedef void residency_ready_fn(void *arg, int error, const char *text,
				struct residency_model *model);

/*
 * Takes a reference to a resident model: 0 and *ret_model. Else queues the load, if none is under
 * way, and returns -EINPROGRESS; @ready then runs exactly once, unless it is called off. -ENOENT:
 * no such name. -EIO: lost. -EBUSY: draining, and still held. -ESHUTDOWN.
 */
int residency_acquire(struct residency *r, const char *name, residency_ready_fn *ready, void *arg,
		      struct residency_model **ret_model, char *err, size_t errlen);
/*
 * Compiles and plans a model without loading it: 0 if its plan is known already, else as
 * residency_acquire(), but @ready gets no reference.
 */
int residency_prepare(struct residency *r, const char *name, residency_ready_fn *ready, void *arg,
		      char *err, size_t errlen);
/* Calls off every wait with this @arg: its callback does not run any more (client thread only).
 * Returns how many there were. */
unsigned residency_call_off(struct residency *r, void *arg);
void residency_release(struct residency *r, struct residency_model *model);

/* Starts the load of a model without waiting for it; 0 also when it is resident or loading. */
int residency_load(struct residency *r, const char *name, char *err, size_t errlen);
/*
 * Drains the model, frees it when its last holder has released it; 0 also when it is not loaded. A
 * load is called off: those who wait for it get -ECANCELED; what the loader is at ends soon, or
 * is thrown away when it is done. The next acquire loads anew. Gives up the host copy of a sleeper.
 */
int residency_unload(struct residency *r, const char *name, char *err, size_t errlen);
/*
 * As residency_unload(), but a resident model's weights stay in host memory, so that waking it is
 * a copy. -EINVAL: it is neither resident nor asleep.
 */
int residency_sleep(struct residency *r, const char *name, char *err, size_t errlen);

/* Borrowed: for what chips there are. */
struct txda_context *residency_context(struct residency *r);

/* Readable when callbacks wait. */
int residency_fd(struct residency *r);
void residency_dispatch(struct residency *r);

/* Of a model that the caller holds. The engine and the text stay valid until residency_release().
 */
struct engine *residency_engine(struct residency_model *model);
const char *residency_name(struct residency_model *model);
const char *residency_case_dir(struct residency_model *model);
/* Where tokenizer.json and the like lie: the case dir, or the model's directory that names it. */
const char *residency_text_dir(struct residency_model *model);

struct residency_info {
	char name[256];
	char path[1024];     /* as it was added */
	char case_dir[1024]; /* "" until it is known */
	char phase[32];	     /* while loading: "queued", "compiling", "loading" */
	char error[512];     /* of the last failed load or the loss; "" if none */
	enum residency_state state;
	double progress;	    /* 0..1 of the phase; 1 when resident */
	uint64_t weight_bytes;	    /* per chip; 0 until planned */
	uint64_t kv_bytes;	    /* per chip; 0 unless resident */
	unsigned tp;		    /* 0 until it is known */
	unsigned max_context;	    /* 0 unless resident */
	uint64_t host_bytes;	    /* asleep: weights in host memory, all chips' */
	bool adopted;		    /* resident: its weights were there when the daemon started */
	bool host_locked;	    /* that memory cannot be swapped or dropped */
	unsigned n_chips, chips[8]; /* resident: its chips, by index */
	unsigned holders;
	uint64_t added_s; /* CLOCK_REALTIME seconds of residency_add(): "created" of the OpenAI API
			   */
	uint64_t load_ns; /* how long the last load took, compilation included; 0: none yet */
};
/* Copies at most @max entries in the order of residency_add(); returns how many models there are.
 */
unsigned residency_list(struct residency *r, struct residency_info *infos, unsigned max);
/* -ENOENT */
int residency_find(struct residency *r, const char *name, struct residency_info *ret);

#define RESIDENCY_MAX_GROUPS 64

/* What a load would take and find; nothing is loaded or compiled for it. */
struct residency_plan {
	bool exact;    /* false: not compiled yet, weight_bytes is the checkpoint's size */
	bool resident; /* it has its memory already */
	bool fits;     /* now, without an eviction */
	bool leaving;  /* memory is being given back right now */
	unsigned tp;   /* 0: not known yet */
	/* Per chip, a draft model included. */
	uint64_t weight_bytes, scratch_bytes, io_bytes, overhead_bytes;
	uint64_t kv_block_bytes, kv_blocks_min, kv_blocks_max; /* it needs, it can use */
	uint64_t need_bytes;				       /* with kv_blocks_min */
	unsigned n_groups;
	struct residency_group {
		unsigned n_chips, chips[8];
		uint64_t free_bytes, total_bytes; /* of the chip that has least free */
		uint64_t need_bytes; /* less than above where its weights are already */
		bool lost, taken;    /* a chip failed; a replica is there */
	} groups[RESIDENCY_MAX_GROUPS];
	unsigned n_victims; /* !fits: the idle models that have to go; 0: none would help */
	unsigned victims[RESIDENCY_MAX_GROUPS]; /* indices into @idle */
};
/*
 * Plans the load of a model. @idle [n_idle]: names of models that may be evicted for it, the first
 * ones rather; the fewest that suffice become victims. -ENOENT; -ENOSPC: it fits nowhere, err says
 * value and limit (and *ret is filled); -EIO: every group has lost a chip. Asks the chips for
 * their memory: cheap, but not free.
 */
int residency_make_room(struct residency *r, const char *name, const char *const *idle,
			unsigned n_idle, struct residency_plan *ret, char *err, size_t errlen);

#endif
