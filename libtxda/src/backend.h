/* SPDX-License-Identifier: MIT */
/*
 * What a backend does for the library: chips, memory, address spaces, queues. Nothing above this
 * table knows which one runs.
 *
 * The library decides device addresses (vas.h), lays out streams and appends a SIGNAL of the
 * queue's fence word to each, so a fence is passed when that word has its value, whatever the
 * backend; a backend only has to help to wait for it.
 *
 * Errors: 0 or -errno; a backend notes the reason with txda__fail() on its context. ret_ arguments
 * stay untouched on failure.
 * Threads: as txda.h says of the objects on top. One address space may be bound and unbound by
 * several threads at once, each with ranges of its own.
 */
#ifndef TXDA_BACKEND_H
#define TXDA_BACKEND_H

#include "internal.h"

struct txda_fault;    /* of txda_isa.h */
struct txda__backend; /* one per context */
struct txda__vm;      /* an address space of one chip */
struct txda__mem;     /* memory that an address space can map */
struct txda__hwqueue; /* a command queue in an address space */

/* Called by any thread, with no lock of the library held by the backend. */
struct txda__queue_events {
	void (*passed)(void *arg);  /* a fence was passed (see ops->signals) */
	void (*faulted)(void *arg); /* the queue stopped: ops->queue_fault() has the reason */
	void *arg;
};

struct txda__backend_ops {
	const char *name; /* "cmodel", "drm" */
	/* chips live in this process: publish them in the runtime directory */
	bool simulated;
	/* passed() is called for SIGNAL packets that raise an interrupt, and only for these */
	bool signals;

	int (*open)(struct txda_context *context, const char *spec,
		    struct txda__backend **ret_backend);
	void (*close)(struct txda__backend *backend);

	/*
	 * Chips by their physical number, 0 to count - 1. info and status are complete but for
	 * .index.
	 */
	unsigned (*chips)(struct txda__backend *backend);
	int (*info)(struct txda__backend *backend, unsigned chip, struct txda_device_info *info);
	int (*status)(struct txda__backend *backend, unsigned chip,
		      struct txda_device_status *status);
	unsigned (*distance)(struct txda__backend *backend, unsigned a, unsigned b);
	/* Complete, with the physical number of the other chip. -ENOENT past the last port. */
	int (*link)(struct txda__backend *backend, unsigned chip, unsigned port,
		    struct txda_link_info *ret_info);

	/* The library may use the addresses from 2 MiB to *@ret_end. */
	int (*vm_new)(struct txda__backend *backend, unsigned chip, struct txda__vm **ret_vm,
		      uint64_t *ret_end);
	void (*vm_free)(struct txda__vm *vm);
	/*
	 * Whether what was in it is gone, by a reset or with its chip. NULL: it cannot be but by
	 * its queues' failing.
	 */
	bool (*vm_lost)(struct txda__vm *vm);
	/*
	 * A number that is another one when what the chip's memory holds may be gone. NULL: memory
	 * keeps what it holds as long as somebody has it; 0.
	 */
	int (*vm_memory_id)(struct txda__vm *vm, uint64_t *ret_id);
	/*
	 * Group slot @slot of each of the @size address spaces, one a chip, becomes its place in a
	 * new group; ranks are positions in @vm.
	 */
	int (*vm_join)(struct txda__vm *const *vm, unsigned size, unsigned slot);
	/* Its group of that slot is over. */
	void (*vm_leave)(struct txda__vm *vm, unsigned slot);

	/*
	 * Zeroed memory for one address space, @bytes a multiple of the page; @flags TXDA__MEM_*.
	 * -ENOMEM notes what was wanted and what is free.
	 */
	int (*mem_new)(struct txda__vm *vm, uint64_t bytes, enum txda_memory memory, unsigned flags,
		       struct txda__mem **ret_mem);
	/* Takes over nothing: the caller keeps @fd. @flags TXDA__IMPORT_*. */
	int (*mem_import)(struct txda__vm *vm, int fd, unsigned flags, struct txda__mem **ret_mem,
			  uint64_t *ret_bytes);
	int (*mem_export)(struct txda__mem *mem, int *ret_fd);
	/* Of TXDA__MEM_KEEP: it is filled, nobody who gets it by an export can change it. */
	int (*mem_freeze)(struct txda__mem *mem);
	void (*mem_free)(struct txda__mem *mem); /* unbound before */
	/* Maps the whole memory at @va of its address space; @read_only for the device. */
	int (*mem_bind)(struct txda__mem *mem, uint64_t va, bool read_only);
	/* waits until nothing that runs can touch it */
	void (*mem_unbind)(struct txda__mem *mem);
	/* The host's view of bound memory, the same each time. -ENOTSUP: there is none. */
	int (*mem_map)(struct txda__mem *mem, void **ret_ptr);
	/*
	 * Copies between bound memory and @host, for a backend whose memory has no host's view or a
	 * slow one; NULL: through the view. Several threads at once.
	 */
	int (*mem_write)(struct txda__mem *mem, uint64_t offset, const void *host, uint64_t bytes);
	int (*mem_read)(struct txda__mem *mem, uint64_t offset, void *host, uint64_t bytes);
	/*
	 * Stores one piece (a few MiB) of a file. Returns the bytes stored, fewer only at the
	 * file's end. Several threads at once; each error's reason is noted in the thread.
	 */
	int64_t (*mem_load)(struct txda__mem *mem, uint64_t offset, int fd, uint64_t fd_offset,
			    uint64_t bytes);

	int (*queue_new)(struct txda__vm *vm, enum txda_queue_class queue_class,
			 const struct txda__queue_events *events, struct txda__hwqueue **ret_queue);
	void (*queue_free)(struct txda__hwqueue *queue);
	/*
	 * Runs the stream at [va, va + bytes), whose last packet signals @fence. -EAGAIN: too many
	 * in flight. -EIO, -ENODEV.
	 */
	int (*queue_submit)(struct txda__hwqueue *queue, uint64_t va, uint64_t bytes,
			    uint64_t fence, bool wait_soon);
	/*
	 * Waits until *@word (the host's view of the fence word) is >= @fence. -ETIMEDOUT, -EIO,
	 * -ENODEV.
	 */
	int (*queue_wait)(struct txda__hwqueue *queue, const uint64_t *word, uint64_t fence,
			  uint64_t deadline_ns);
	/*
	 * Writes @fd, an eventfd, when @fence is passed or the queue fails. NULL: passed() tells of
	 * every fence by itself.
	 */
	int (*queue_arm)(struct txda__hwqueue *queue, uint64_t fence, int fd);
	/*
	 * 0 when the queue runs, else -EIO or -ENODEV and the fault. @buf gets the fault in words,
	 * or "" where the library finds them (fault.h).
	 */
	int (*queue_fault)(struct txda__hwqueue *queue, struct txda_fault *ret_fault, char *buf,
			   size_t len);

	/*
	 * An fd that is readable when chips may have had events, and the function that takes them and
	 * reports them with txda__event(). NULL: a thread of the library or the backend does.
	 */
	int (*events_fd)(struct txda__backend *backend);
	void (*take_events)(struct txda__backend *backend);
};

/* What memory is for. */
#define TXDA__MEM_PRIVATE  (1u << 0) /* never exported */
#define TXDA__MEM_LARGE	   (1u << 1) /* large pages are worth their price */
#define TXDA__MEM_UNMAPPED (1u << 2) /* no host's view is wanted */
/* The host uses it as much as the device: device memory may then be host memory. */
#define TXDA__MEM_SHARED (1u << 3)
/* Filled once, then frozen and exported: it may outlive the process. */
#define TXDA__MEM_KEEP (1u << 4)

#define TXDA__IMPORT_READ_ONLY (1u << 0)
/*
 * Frozen memory of this very chip (-EXDEV: it is not, -EPERM: not frozen), which from now on takes
 * room there as if it had been made by this process.
 */
#define TXDA__IMPORT_KEPT (1u << 1)

/* The first member of a backend's own struct. */
struct txda__backend {
	const struct txda__backend_ops *ops;
	struct txda_context *context; /* borrowed: the context owns the backend */
};

extern const struct txda__backend_ops txda__backend_cmodel;
extern const struct txda__backend_ops txda__backend_drm;

/* Chips with a node of the kernel driver that this process could open, or -errno. */
int txda__drm_count(void);

#endif /* TXDA_BACKEND_H */
