/* SPDX-License-Identifier: MIT */
/*
 * libtxda: the TX8 accelerators from user space.
 *
 * Conventions
 * - Functions return 0 or a positive result on success and -errno on failure; errno itself is no
 *   part of the contract. Results come through trailing ret_* arguments, which stay untouched on
 *   failure.
 * - Handles are opaque and reference-counted: _new() or _open() gives one reference, _ref() adds
 *   one, _unref() drops one and accepts NULL (both return the handle or NULL). A child keeps its
 *   parent alive.
 * - Option structs start with their size, so that they may grow: use TXDA_INIT(options). Members
 *   that the library does not know, and reserved ones, must be 0, or -E2BIG.
 * - Every wait takes an absolute CLOCK_MONOTONIC deadline in nanoseconds: 0 polls, TXDA_FOREVER
 *   never gives up.
 * - Threads: a function may be called from any thread; "not concurrently" marks those of which one
 *   thread at a time may call one, for the same handle. What a handle or a call refers to must stay
 *   until the call has returned.
 * - fork(): a child cannot use what it inherits. Calls on a context of its parent, or on objects of
 *   it, give -EPERM; _unref() frees memory of the child and leaves the chips alone. A new context
 *   works.
 * - The reason of the last failure as text: txda_context_error(), per context and per thread of
 *   the caller.
 *
 * Environment
 *   TXDA_BACKEND=auto|drm|cmodel         auto: drm if there is a TX8 node, else the device model in
 *                                        this process
 *   TXDA_CMODEL=chips=4,mem=8G,cores=2,pin=1,numa=interleave,isa=auto,spin=100us,faults=SPEC
 *                                        cores: by default one per CPU, see txda(7); pin: each on
 *                                        a CPU of its own; numa: pages from all memory nodes in
 *                                        turns, or local ones
 *   OMP_NUM_THREADS=4                    the device model's cores, where TXDA_CMODEL names none
 *   TXDA_VISIBLE_DEVICES=0,2             physical chips this process may use, by index, serial or
 *                                        PCI address; renumbered from 0
 *   CHIP_MAP=1,0  or  TXDA_CHIP_MAP      logical chip i of a topology map is the i-th visible chip
 *                                        named here
 */
#ifndef TXDA_H
#define TXDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define TXDA_FOREVER UINT64_MAX
#ifdef __cplusplus
/* lets C callers write TXDA_INIT(txda_step), without the keyword struct */
#define TXDA_INIT(type) (type{sizeof(type)})
#else
#define TXDA_INIT(type) ((type){.size = sizeof(type)})
#endif
#define TXDA_MAX_CHIPS_PER_GROUP 8
#define TXDA_MAX_KV_GROUPS	 8

struct txda_context;
struct txda_device;
struct txda_group;
struct txda_buffer;
struct txda_queue;
struct txda_model;
struct txda_weights;

/* The version of the library at run time, such as "0.1.0". */
const char *txda_version(void);

/* ---- context: opens a backend ---------------------------------------------------------------- */

struct txda_context_options {
	size_t size;
	const char *backend;	     /* NULL: $TXDA_BACKEND, else "auto" */
	const char *cmodel;	     /* NULL: $TXDA_CMODEL */
	const char *visible_devices; /* NULL: $TXDA_VISIBLE_DEVICES */
	const char *chip_map;	     /* NULL: $TXDA_CHIP_MAP, $CHIP_MAP */
	/* shown to txda-smi as the process's purpose; NULL: the command's name */
	const char *name;
};

int txda_context_new(const struct txda_context_options *options, struct txda_context **ret_context);
struct txda_context *txda_context_ref(struct txda_context *context);
struct txda_context *txda_context_unref(struct txda_context *context);
/*
 * The message of this thread's last failed call on the context or its children; "" if none, or if
 * calls of this thread on four other contexts have failed since. Never NULL. @context may be NULL
 * (failed txda_context_new).
 */
const char *txda_context_error(struct txda_context *context);
const char *txda_context_backend(struct txda_context *context); /* "cmodel" or "drm" */

/* ---- devices --------------------------------------------------------------------------------- */

#define TXDA_CAP_CMODEL	      (1ull << 0) /* a device model: sensor values are estimates */
#define TXDA_CAP_PRECISE      (1ull << 1) /* precise mode */
#define TXDA_CAP_HOST_VISIBLE (1ull << 2) /* device memory can be mapped by the host */

struct txda_device_info {
	size_t size;
	unsigned index;	   /* index in this process */
	unsigned physical; /* index on the machine */
	char name[64];	   /* "TX8 (cmodel, avx512)" */
	char serial[32];
	char bus[32];  /* PCI address, or "cmodel:PID:INDEX" */
	char node[64]; /* "/dev/accel/accel0", or "" */
	uint64_t caps; /* TXDA_CAP_* */
	uint64_t mem_bytes;
	unsigned cores;
	char driver[16];   /* version of the kernel driver, or "" */
	char firmware[16]; /* version of the chip's firmware, or "" */
	uint32_t reserved;
};

struct txda_device_status {
	size_t size;
	uint64_t mem_used_bytes;
	uint64_t busy_ns; /* a counter that only increases; utilisation is its rate */
	/* Likewise, for simulated chips only, else 0: perf(1) has them for real ones. */
	uint64_t copy_busy_ns, bytes_read, bytes_written;
	uint32_t power_mw;
	int32_t temp_mc; /* INT32_MIN: unknown */
	uint32_t clock_khz;
	uint32_t ecc_corrected, ecc_uncorrected;
	uint32_t faults;
	bool lost;
	/*
	 * Simulated chips: in about the last second. Real ones: since the last call for this chip
	 * that was at least 0.25 s ago. UINT32_MAX: unknown, as for power and clock.
	 */
	uint32_t utilisation_permille;
};

/*
 * The number of devices. It increases when the event of an added chip is taken
 * (txda_context_event()) and the process may see the chip, and never decreases: a removed chip is
 * marked lost and keeps its index until it returns.
 */
int txda_context_device_count(struct txda_context *context);
int txda_device_get(struct txda_context *context, unsigned index, struct txda_device **ret_device);
struct txda_device *txda_device_ref(struct txda_device *device);
struct txda_device *txda_device_unref(struct txda_device *device);
int txda_device_info(struct txda_device *device, struct txda_device_info *ret_info);
int txda_device_status(struct txda_device *device, struct txda_device_status *ret_status);
/* Hops between two chips: 0 the same, 1 the same card or a direct link, 2 through the host. */
int txda_device_distance(struct txda_device *a, struct txda_device *b);

enum txda_link_state {
	TXDA_LINK_DOWN = 0,
	TXDA_LINK_TRAINING = 1,
	TXDA_LINK_UP = 2,
};

struct txda_link_info {
	size_t size;
	enum txda_link_state state;
	unsigned speed_mbps; /* megabytes per second, each direction */
	unsigned device;     /* chip at the other end; UINT_MAX: not visible to this process */
	unsigned port;	     /* port number at the other end */
};
/*
 * The current state of a chip-to-chip port. -ENOENT: the chip has no such port. Chips simulated in
 * this process have none: each can reach all others.
 */
int txda_device_link(struct txda_device *device, unsigned port, struct txda_link_info *ret_info);

/* ---- groups and topology maps ---------------------------------------------------------------- */

/*
 * A group is an ordered set of chips that runs one copy of a model; rank i is its i-th chip. A map
 * divides the visible chips into groups: "C4TP2" is {0,1},{2,3}, and so is "C4TP2B1", whose batch
 * suffix is ignored; "0,1;2,3" spells out the same map; NULL or "auto" groups neighbours. CHIP_MAP
 * is applied first.
 */
struct txda_group_options {
	size_t size;
	/* chips; 0: as many as the map's group has, 1 without a map */
	unsigned tp;
	const unsigned *devices; /* [tp] indices, or NULL: group @replica of the map */
	const char *map;	 /* named or spelled map; NULL: auto */
	unsigned replica;	 /* which group of the map */
	uint32_t reserved;
};

int txda_group_new(struct txda_context *context, const struct txda_group_options *options,
		   struct txda_group **ret_group);
struct txda_group *txda_group_ref(struct txda_group *group);
struct txda_group *txda_group_unref(struct txda_group *group);
unsigned txda_group_size(struct txda_group *group);
struct txda_device *txda_group_device(struct txda_group *group, unsigned rank); /* borrowed */
/*
 * Explains the choice of chips in text, one reason per line; NUL-terminated, truncated to @len.
 * Returns the full length.
 */
int txda_group_explain(struct txda_group *group, char *buf, size_t len);

/* ---- buffers --------------------------------------------------------------------------------- */

enum txda_memory {
	TXDA_MEMORY_DEVICE = 0,
	TXDA_MEMORY_HOST = 1, /* host pages that the device can access */
};

#define TXDA_BUFFER_READ_ONLY (1u << 0) /* the device only reads it; imported: so does the host */
#define TXDA_BUFFER_PRIVATE   (1u << 1) /* never exported: may use larger pages */

int txda_buffer_new(struct txda_device *device, uint64_t bytes, enum txda_memory memory,
		    unsigned flags, struct txda_buffer **ret_buffer);
struct txda_buffer *txda_buffer_ref(struct txda_buffer *buffer);
/*
 * The memory is freed with the last reference; copies and models that use it have their own. A
 * queued stream of txda_queue_submit() that uses it faults: its addresses belong to no other buffer
 * until everything that was in the chip's queues has passed.
 */
struct txda_buffer *txda_buffer_unref(struct txda_buffer *buffer);
uint64_t txda_buffer_bytes(struct txda_buffer *buffer);
uint64_t txda_buffer_va(struct txda_buffer *buffer); /* device address */
/*
 * The host mapping, valid while the buffer lives; the same pointer each time. -ENOTSUP if the
 * buffer cannot be mapped. Access to mapped device memory of a real chip raises SIGBUS after the
 * chip was removed; host memory stays accessible.
 */
int txda_buffer_map(struct txda_buffer *buffer, void **ret_ptr);
/* Copies between host memory and the buffer, through a mapping or the copy queue; synchronous. */
int txda_buffer_write(struct txda_buffer *buffer, uint64_t offset, const void *src, uint64_t bytes);
int txda_buffer_read(struct txda_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes);
/* Reads @bytes of @fd at @fd_offset directly into the buffer; used to load weights. */
int txda_buffer_load(struct txda_buffer *buffer, uint64_t offset, int fd, uint64_t fd_offset,
		     uint64_t bytes);
/*
 * An fd (memfd or dma-buf) that another process or device may import; the caller closes it.
 * TXDA_BUFFER_READ_ONLY restricts what a chip may do with this buffer, and nobody else. With
 * TXDA_SHARE_READ_ONLY whoever gets the fd may only read: its import fails with -EACCES unless it
 * says TXDA_BUFFER_READ_ONLY, too. A memfd keeps other users from writing; this user's processes can
 * do as they like with each other. -EBUSY: on a real chip all fds of a buffer that are open at the
 * same time have the same rights. txda_buffer_export() is txda_buffer_share() without flags.
 */
#define TXDA_SHARE_READ_ONLY (1u << 0)
int txda_buffer_share(struct txda_buffer *buffer, unsigned flags, int *ret_fd);
int txda_buffer_export(struct txda_buffer *buffer, int *ret_fd);
int txda_buffer_import(struct txda_device *device, int fd, unsigned flags,
		       struct txda_buffer **ret_buffer);

enum txda_advice {
	TXDA_ADVICE_WILLNEED = 0, /* in use, as created */
	TXDA_ADVICE_COLD = 1,	  /* idle: contents may move to host memory */
	TXDA_ADVICE_DONTNEED = 2, /* idle: contents may be dropped */
};

/*
 * Whether the buffer is in use. When memory is short, the kernel takes that of idle buffers. While
 * a buffer is idle, streams that use it fault, txda_buffer_map(), copies, bindings and launches fail
 * with -EBUSY, and its host mapping must not be accessed. TXDA_ADVICE_WILLNEED makes it usable again, at the same
 * addresses; -ENOMEM: there is no room, and it stays idle. *@ret_kept (may be NULL): its contents
 * are what they were, else zeros. -EBUSY: work that uses it is not finished. -ENOTSUP: imported or
 * exported. Device models have no memory of their own, so there it only returns that all is kept.
 */
int txda_buffer_advise(struct txda_buffer *buffer, enum txda_advice advice, bool *ret_kept);

/* ---- queues and fences ----------------------------------------------------------------------- */

enum txda_queue_class {
	TXDA_QUEUE_COMPUTE = 0,
	TXDA_QUEUE_COPY = 1,
};

/*
 * The queue has hardware for itself. When the chip has none left, or this user has half of it, the
 * queue takes turns with others in the same position, where the kernel's driver knows how: each
 * waits for its turn, users share the time fairly, and a stream that takes longer than the driver's
 * time limit while others wait fails its queue. A stream that waits for what another such queue is
 * to do keeps its turn, and may fail by that limit.
 */
int txda_queue_new(struct txda_device *device, enum txda_queue_class queue_class,
		   struct txda_queue **ret_queue);
struct txda_queue *txda_queue_ref(struct txda_queue *queue);
struct txda_queue *txda_queue_unref(struct txda_queue *queue);
/*
 * Runs the packets (txda_isa.h) at @packets, which are copied; the queue appends a fence of its
 * own. A queue's fence values increase by one, starting from 1. -EAGAIN when too many streams are
 * in flight: wait for an earlier fence. Not concurrently on one queue.
 */
/* the caller waits immediately, so no other thread need be woken for it */
#define TXDA_SUBMIT_WAIT_SOON (1u << 0)
int txda_queue_submit(struct txda_queue *queue, const void *packets, size_t bytes, unsigned flags,
		      uint64_t *ret_fence);
/*
 * 0 when the queue has passed @fence, -ETIMEDOUT, -EIO after a fault (txda_queue_fault()), -ENODEV
 * if the chip is lost, -EINVAL if the queue has not given out that fence.
 */
int txda_queue_wait(struct txda_queue *queue, uint64_t fence, uint64_t deadline_ns);
/* The last fence that the queue has passed, 0 at first. Waits for no work of the chip. */
int txda_queue_passed(struct txda_queue *queue, uint64_t *ret_fence);
/*
 * An eventfd, owned by the queue, that becomes readable when a fence passes or the queue fails
 * (read it to clear it).
 */
int txda_queue_fd(struct txda_queue *queue);
/* Describes the fault as text, "" if none. Returns its length. */
int txda_queue_fault(struct txda_queue *queue, char *buf, size_t len);
/*
 * One copy between two buffers of the chip, or within one; the ranges must not overlap. The queue
 * holds references to both until the fence has passed: its next call after that drops them, such as
 * txda_queue_wait(). If the queue fails, it keeps them until it is freed. Errors as
 * txda_queue_submit(); -ENODEV also if the chip was reset between the making of the three; -EACCES:
 * @dst is TXDA_BUFFER_READ_ONLY; -EBUSY: one of them is idle.
 */
int txda_queue_copy(struct txda_queue *queue, struct txda_buffer *dst, uint64_t dst_offset,
		    struct txda_buffer *src, uint64_t src_offset, uint64_t bytes,
		    uint64_t *ret_fence);

/* ---- models ---------------------------------------------------------------------------------- */

/*
 * A model is a case dir on a group: per chip a program, weights, a KV cache, scratch and tensors.
 * Weights are shared: models of one context that load the same param.bin onto the same device hold
 * one copy, reference-counted.
 */
struct txda_model_options {
	size_t size;
	const char *path;    /* case dir */
	const char *program; /* NULL: the first program of model_info.json */
	/* 0: as many as fit into the free memory, up to max_kv_blocks */
	unsigned kv_blocks;
	unsigned max_kv_blocks;	   /* 0: unlimited */
	uint64_t kv_reserve_bytes; /* memory to leave free per chip when kv_blocks is 0 */
	/* use this model's KV cache (same group and geometry), also if that model has failed */
	struct txda_model *share_kv;
	/*
	 * NULL-terminated names of inputs or outputs that are declared but bound later with
	 * txda_model_bind()
	 */
	const char *const *dummies;
	bool precise;	     /* run in precise mode */
	bool verify_weights; /* check param.bin against its hash while loading */
	void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
	void *progress_arg;
	bool keep_weights;	      /* they can be exported: txda_weights_export() */
	unsigned kv_blocks_per_group; /* 0: see kv_blocks; else this many for each of kv_groups */
	/*
	 * Nobody but this user can write to the case dir, so chips that are simulated in this process
	 * may use the pages of param.bin itself, after checking its hash, and copy them in the
	 * background. Not with keep_weights. A process that truncates the file meanwhile makes
	 * launches fail; to notice that, the library handles SIGBUS and passes on what is not its own.
	 */
	bool map_weights;
	uint8_t reserved[7];
	uint64_t deadline_ns; /* the load then gives -ETIMEDOUT; 0: no limit */
	/*
	 * NULL, or called with progress_arg by the loading thread every few MiB and while it waits for
	 * another load of the same weights: other than 0 ends the load with -ECANCELED.
	 */
	int (*cancel)(void *arg);
};

int txda_model_load(struct txda_group *group, const struct txda_model_options *options,
		    struct txda_model **ret_model);
struct txda_model *txda_model_ref(struct txda_model *model);
struct txda_model *txda_model_unref(struct txda_model *model);

/*
 * Exact memory of one chip for a case dir before anything is loaded. Inputs and outputs (io_bytes)
 * are in host memory with real chips. @context, for the text of errors, may be NULL.
 */
struct txda_model_plan {
	size_t size;
	unsigned tp;
	/* For the rank that needs most; including the program `vision` if there is one. */
	uint64_t weight_bytes, scratch_bytes, io_bytes;
	uint64_t kv_block_bytes;
	uint64_t kv_blocks_at_limit; /* for max_seqs sequences of max_context tokens */
	unsigned kv_groups;	     /* groups of layers with blocks of their own */
	unsigned state_blocks;	     /* as in txda_model_info */
};
int txda_model_plan(struct txda_context *context, const char *path,
		    struct txda_model_plan *ret_plan);
/*
 * Likewise for a load with these options, of which path, program, dummies and precise count. With a
 * program it is for that one alone.
 */
int txda_model_plan_load(struct txda_context *context, const struct txda_model_options *options,
			 struct txda_model_plan *ret_plan);

/*
 * The name of program @index of a case dir, as for txda_model_options.program; NUL-terminated,
 * truncated to @len. Returns the full length; -ENOENT: the case dir has fewer programs.
 */
int txda_model_program(struct txda_context *context, const char *path, unsigned index, char *buf,
		       size_t len);

struct txda_model_info {
	size_t size;
	char name[128];
	char family[32];
	unsigned tp;
	unsigned max_tokens;	 /* T: maximum number of tokens per step */
	unsigned max_seqs;	 /* S */
	unsigned max_rows;	 /* R */
	unsigned max_context;	 /* positions */
	unsigned block_size;	 /* tokens per KV block */
	unsigned kv_blocks;	 /* blocks of this instance */
	uint64_t kv_block_bytes; /* per chip */
	unsigned vocab;
	unsigned topk; /* k of the top-k outputs */
	unsigned n_layers;
	uint64_t weight_bytes; /* per chip, for the rank with the most */
	char weights[16];      /* "bf16", "f16", "w8", "w4" */
	/*
	 * The cost of a launch, summed over all chips, for capacity planning and benchmarks. A
	 * multiply-add counts as 2 flops. For the program `vision`, a token is a resulting one,
	 * for example four rows.
	 */
	uint64_t step_weight_bytes; /* weights read by every launch that computes logits */
	uint64_t flops_per_token;   /* linear layers */
	uint64_t flops_per_row;	    /* computing the logits of one token */
	uint64_t flops_per_key;	    /* attention: per token and key it attends to */
	/* Embedding models: how the rows of `hidden` become one vector, "last", "mean" or "cls" */
	char pooling[8]; /* "": not known from the checkpoint */
	bool normalize;	 /* the vector is normalised to length 1 */
	/*
	 * Some layers keep a recurrent state instead of keys: a token that was run cannot be undone,
	 * except by continuing from a snapshot.
	 */
	bool stateful;
	/*
	 * Layers that keep keys form groups. For each block_size positions of a sequence, a group has
	 * its own block, from a pool that all groups share, and its own inputs: `slots` and
	 * `block_table` for group 0, `slots_1` and `block_table_1` for the next and so on.
	 */
	unsigned kv_groups;
	/* How many positions of a group a token reads, including its own; 0: all before it. */
	unsigned kv_reach[TXDA_MAX_KV_GROUPS];
	/* Stateful models: blocks of a sequence's state, from the same pool (input `state_table`). */
	unsigned state_blocks;
	uint32_t reserved;
};
int txda_model_info(struct txda_model *model, struct txda_model_info *ret_info);
struct txda_group *txda_model_group(struct txda_model *model); /* borrowed */

enum txda_tensor_kind { TXDA_TENSOR_INPUT = 0, TXDA_TENSOR_OUTPUT = 1 };

struct txda_tensor_info {
	size_t size;
	char name[64];
	enum txda_tensor_kind kind;
	unsigned dtype; /* enum txda_dtype of txda_isa.h */
	unsigned ndim;
	uint64_t dim[4]; /* with all symbols at their limits */
	char shape[64];	 /* with symbols: "[T, 4096]" */
	uint64_t bytes;	 /* with all symbols at their limits */
};
int txda_model_tensor_count(struct txda_model *model);
int txda_model_tensor(struct txda_model *model, unsigned index, struct txda_tensor_info *ret_info);
int txda_model_find(struct txda_model *model, const char *name, unsigned *ret_index);

/*
 * Not concurrently for one model: set_input, get_output, bind and txda_model_run().
 *
 * Inputs exist once per chip; set_input copies to all chips. Outputs are those of the first chip that
 * has them. Both are -EBUSY while a launch of the model is in flight. tensor_ptr gives the host
 * mapping, so that callers can access the data in place (rank by rank) without a copy; they take
 * care themselves that no launch is in flight.
 */
int txda_model_set_input(struct txda_model *model, const char *name, const void *data,
			 uint64_t bytes);
int txda_model_get_output(struct txda_model *model, const char *name, void *data, uint64_t bytes);
int txda_model_tensor_ptr(struct txda_model *model, unsigned rank, const char *name,
			  void **ret_ptr);
/*
 * Binds a tensor to memory provided by the caller: another model's tensor (dummy tensors) or a
 * buffer of that chip. -EBUSY: a launch is in flight, which may use what is replaced; -ENODEV: the
 * chip was reset between the making of the two.
 */
int txda_model_bind(struct txda_model *model, unsigned rank, const char *name,
		    struct txda_buffer *buffer, uint64_t offset);
/* The buffer behind a tensor, borrowed. */
int txda_model_tensor_buffer(struct txda_model *model, unsigned rank, const char *name,
			     struct txda_buffer **ret_buffer, uint64_t *ret_offset);

/* One launch. Sizes above the limits of txda_model_info are refused with -E2BIG. */
struct txda_step {
	size_t size;
	unsigned tokens; /* T >= 1 */
	unsigned seqs;	 /* S >= 1 */
	unsigned rows;	 /* R; 0: no logits are computed */
	unsigned blocks; /* B: columns of the block table */
	unsigned flags;	 /* TXDA_SUBMIT_WAIT_SOON */
	/*
	 * [op count] of rank 0, filled by the txda_model_sync() that completes this launch; or
	 * NULL. It must stay until a sync of this launch, or of a later one, returns something other
	 * than -ETIMEDOUT, or the model is freed.
	 */
	struct txda_op_timing *timing;
	/*
	 * Some ops alone, n_ops of txda_model_op_count() from first_op on; n_ops 0: all. A long program
	 * can be run in parts, one launch after the other with the same sizes and inputs. Without
	 * timing.
	 */
	unsigned first_op, n_ops;
};
/* Not concurrently for one model. */
int txda_model_run(struct txda_model *model, const struct txda_step *step, uint64_t *ret_fence);
/*
 * Waits for a launch on all chips. Errors as txda_queue_wait(); txda_context_error() describes the
 * fault.
 */
int txda_model_sync(struct txda_model *model, uint64_t fence, uint64_t deadline_ns);
/* The last launch that all chips have passed, 0 at first. Waits for no work of the chips. */
int txda_model_passed(struct txda_model *model, uint64_t *ret_fence);
/* As txda_queue_fd(); becomes readable when a launch passes on one of the chips. */
int txda_model_fd(struct txda_model *model);

/* ---- weights that outlive a process ---------------------------------------------------------- */

/*
 * The weights of one chip, as shared by the models of a context. With keep_weights their memory can
 * be passed as an fd to another process (a memfd with simulated chips, else a dma-buf of the chip's
 * memory), or held by some process for one that starts later. A model of the same file that is
 * loaded there finds the weights on the chip: nothing is copied and no memory is allocated.
 *
 *	txda_model_weights(model, rank, &w); txda_weights_info(w, &info); txda_weights_export(w, &fd);
 *	... in the other process, for the same chip:
 *	txda_weights_import(device, fd, &info, &w); txda_model_load(...); txda_weights_unref(w);
 *
 * The importer relies on the exporter's @info: it must be passed on unchanged.
 */
struct txda_weights_info {
	size_t size;
	uint64_t bytes;	 /* of param.bin */
	uint32_t crc32c; /* as its case dir says */
	bool imported;
	uint64_t file_device, file_inode, file_mtime_ns, file_ctime_ns; /* of param.bin */
	/* identifies the contents of the chip's memory; changes when they may be lost (a reset) */
	uint64_t memory_id;
};
/* The weights of a rank, with a reference; -ENOENT: its program has none. */
int txda_model_weights(struct txda_model *model, unsigned rank, struct txda_weights **ret_weights);
struct txda_weights *txda_weights_ref(struct txda_weights *weights);
struct txda_weights *txda_weights_unref(struct txda_weights *weights);
int txda_weights_info(struct txda_weights *weights, struct txda_weights_info *ret_info);
/*
 * An fd through which the contents cannot be changed; the caller closes it. -ENOTSUP: loaded
 * without keep_weights, perhaps by another model.
 */
int txda_weights_export(struct txda_weights *weights, int *ret_fd);
/*
 * The caller keeps @fd. The weights stay on the chip as long as the reference or a model does.
 * -ESTALE: the chip was reset since; -EXDEV: they are not in this chip's memory; -EPERM: a memfd
 * that is not sealed; -EINVAL: the size differs; -EEXIST: the context has them already; -ENOMEM:
 * with simulated chips, whose memory belongs to a process, there is no room.
 */
int txda_weights_import(struct txda_device *device, int fd, const struct txda_weights_info *info,
			struct txda_weights **ret_weights);
/*
 * Whether loading this case dir would use them for @rank now. -ESTALE: its file is a different one,
 * or the chip was reset.
 */
int txda_weights_check(struct txda_weights *weights, const char *path, unsigned rank);

/* ---- profiling ------------------------------------------------------------------------------- */

struct txda_op_timing {
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
};
int txda_model_op_count(struct txda_model *model);
/* "LINEAR" and "layers.0.attn.qkv"; valid while the model lives. */
int txda_model_op(struct txda_model *model, unsigned index, const char **ret_opcode,
		  const char **ret_label);

/* ---- events ---------------------------------------------------------------------------------- */

enum txda_event_kind {
	TXDA_EVENT_DEVICE_ADDED = 1,
	TXDA_EVENT_DEVICE_REMOVED = 2,
	TXDA_EVENT_FAULT = 3, /* a queue faulted */
	TXDA_EVENT_RESET = 4,
	TXDA_EVENT_ECC = 5,
	TXDA_EVENT_THERMAL = 6,
	TXDA_EVENT_LINK = 7,
	TXDA_EVENT_FIRMWARE = 8,
};

struct txda_event {
	size_t size;
	enum txda_event_kind kind;
	unsigned device; /* index, or UINT_MAX for a chip without an index yet */
	uint64_t time_ns;
	char text[192];
	uint32_t dropped; /* older ones that are lost: at most 64 wait to be taken */
	uint32_t reserved;
};
/* Readable when there may be an event. Owned by the context; poll it, do not read it. */
int txda_context_event_fd(struct txda_context *context);
/*
 * Takes the next event; -EAGAIN if there is none. With real chips, this call is what checks the
 * chips' state: a process that never calls it learns only of its own faults.
 */
int txda_context_event(struct txda_context *context, struct txda_event *ret_event);

/* ---- every process's chips (txda-smi) -------------------------------------------------------- */

/*
 * The chips on this machine, real ones and those simulated by other processes, and their users.
 * Reads only sysfs, hwmon, fdinfo and the telemetry pages of the runtime directory; never opens or
 * wakes a device.
 */
struct txda_process_info {
	size_t size;
	int pid;
	char command[64];
	char purpose[64]; /* txda_context_options.name */
	uint64_t mem_bytes;
	uint64_t busy_ns;
};
struct txda_survey;
int txda_survey_new(struct txda_survey **ret_survey);
struct txda_survey *txda_survey_unref(struct txda_survey *survey);
int txda_survey_chips(struct txda_survey *survey);
int txda_survey_chip(struct txda_survey *survey, unsigned index, struct txda_device_info *ret_info,
		     struct txda_device_status *ret_status);
int txda_survey_processes(struct txda_survey *survey, unsigned chip);
int txda_survey_process(struct txda_survey *survey, unsigned chip, unsigned index,
			struct txda_process_info *ret_info);

/* ---- the whole machine's events (txda-smi events) -------------------------------------------- */

/*
 * Events of all real chips of this machine, whichever process uses them: nodes that appear and
 * disappear, faults of all processes, health. Opens no device.
 */
struct txda_watch_event {
	size_t size;
	enum txda_event_kind kind;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	char bus[32];	  /* PCI address */
	char node[64];	  /* "/dev/accel/accel0" */
	char serial[32];
	int pid;	/* the process whose queue faulted or had the chip reset, else 0 */
	char text[192]; /* without the chip's name */
	uint32_t reserved;
};
struct txda_watch;
int txda_watch_new(struct txda_watch **ret_watch);
struct txda_watch *txda_watch_unref(struct txda_watch *watch);
/* Readable when there may be an event. Owned by the watch; poll it, do not read it. */
int txda_watch_fd(struct txda_watch *watch);
/* Takes the next event; -EAGAIN if there is none. */
int txda_watch_event(struct txda_watch *watch, struct txda_watch_event *ret_event);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif /* TXDA_H */
