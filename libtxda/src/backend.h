/* SPDX-License-Identifier: MIT */
/*
 * The interface of a backend: chips, memory, address spaces, queues. Code above this table does not
 * depend on which backend runs.
 *
 * The library assigns device addresses (vas.h), builds streams and appends to each a SIGNAL of the
 * queue's fence word, so a fence is passed when that word has its value, whatever the backend; a
 * backend only implements waiting for it.
 *
 * Errors: 0 or -errno; a backend records the message with txda__fail() on its context. ret_
 * arguments stay untouched on failure.
 * Threads: as stated in txda.h for the objects on top. Several threads may bind and unbind in one
 * address space at once, each in its own ranges.
 */
#ifndef TXDA_BACKEND_H
#define TXDA_BACKEND_H

#include "internal.h"

struct txda_fault;    /* of txda_isa.h */
struct txda__backend; /* one per context */
struct txda__vm;      /* an address space of one chip */
struct txda__mem;     /* memory that an address space can map */
struct txda__hwqueue; /* a command queue in an address space */

/* Callbacks, called by any thread with no lock of the library held by the backend. */
struct txda__queue_events {
	void (*passed)(void *arg);  /* a fence was passed (see ops->signals) */
	void (*faulted)(void *arg); /* the queue stopped: ops->queue_fault() has the reason */
	void *arg;
};

struct txda__backend_ops {
	const char *name; /* "cmodel", "drm" */
	/* chips are simulated in this process: publish them in the runtime directory */
	bool simulated;
	/* passed() is called for SIGNAL packets that raise an interrupt, and only for these */
	bool signals;

	int (*open)(struct txda_context *context, const char *spec,
		    struct txda__backend **ret_backend);
	void (*close)(struct txda__backend *backend);

	/*
	 * Chips by physical number, 0 to count - 1. info and status are filled in completely except
	 * for .index.
	 */
	unsigned (*chips)(struct txda__backend *backend);
	int (*info)(struct txda__backend *backend, unsigned chip, struct txda_device_info *info);
	int (*status)(struct txda__backend *backend, unsigned chip,
		      struct txda_device_status *status);
	unsigned (*distance)(struct txda__backend *backend, unsigned a, unsigned b);
	/*
	 * Filled in completely, with the physical number of the other chip. -ENOENT past the last
	 * port.
	 */
	int (*link)(struct txda__backend *backend, unsigned chip, unsigned port,
		    struct txda_link_info *ret_info);

	/* The library may use the addresses from 2 MiB to *@ret_end. */
	int (*vm_new)(struct txda__backend *backend, unsigned chip, struct txda__vm **ret_vm,
		      uint64_t *ret_end);
	void (*vm_free)(struct txda__vm *vm);
	/*
	 * Whether its contents are lost, because of a reset or with the chip. NULL: contents are
	 * lost only when the space's queues fail.
	 */
	bool (*vm_lost)(struct txda__vm *vm);
	/*
	 * A number that changes when the contents of the chip's memory may be lost. NULL: memory
	 * keeps its contents as long as somebody holds it; the number is 0.
	 */
	int (*vm_memory_id)(struct txda__vm *vm, uint64_t *ret_id);
	/*
	 * Puts the @size address spaces, one per chip, into a new group, each in its group slot
	 * @slot; ranks are positions in @vm.
	 */
	int (*vm_join)(struct txda__vm *const *vm, unsigned size, unsigned slot);
	/* Removes the space's group from that slot. -EBUSY: a member works; the group stays. */
	int (*vm_leave)(struct txda__vm *vm, unsigned slot);

	/*
	 * Zeroed memory for one address space, @bytes a multiple of the page size; @flags
	 * TXDA__MEM_*. -ENOMEM: the message states how much was requested and how much is free.
	 */
	int (*mem_new)(struct txda__vm *vm, uint64_t bytes, enum txda_memory memory, unsigned flags,
		       struct txda__mem **ret_mem);
	/* The caller keeps ownership of @fd. @flags TXDA__IMPORT_*. */
	int (*mem_import)(struct txda__vm *vm, int fd, unsigned flags, struct txda__mem **ret_mem,
			  uint64_t *ret_bytes);
	/* @read_only: the fd gives no right to write. -EBUSY: it cannot differ from one that exists. */
	int (*mem_export)(struct txda__mem *mem, bool read_only, int *ret_fd);
	/*
	 * Memory that is the file's own pages, which the device reads only; @bytes is the file's
	 * size. mem_load() of the whole file checks that they can be read. NULL: not supported.
	 */
	int (*mem_from_file)(struct txda__vm *vm, int fd, uint64_t bytes,
			     struct txda__mem **ret_mem);
	/*
	 * Replaces a chunk (a multiple of 2 MiB, or the last) of bound memory of a file by a copy
	 * of its own, while the device may use it. -EBADMSG: the file's checksum there is not @crc;
	 * -ECANCELED: @stop became true. One thread at a time.
	 */
	int (*mem_own)(struct txda__mem *mem, uint64_t offset, uint64_t bytes, uint32_t crc,
		       const atomic_bool *stop);
	/* All chunks were replaced; or, unless @good, nobody may use the memory any more. */
	void (*mem_owned)(struct txda__mem *mem, bool good);
	/*
	 * For TXDA__MEM_KEEP: the memory is filled; from now on nobody can change it through an
	 * exported fd.
	 */
	int (*mem_freeze)(struct txda__mem *mem);
	void (*mem_free)(struct txda__mem *mem); /* must be unbound */
	/* Maps all of the memory at @va of its address space; @read_only applies to the device. */
	int (*mem_bind)(struct txda__mem *mem, uint64_t va, bool read_only);
	/* waits until no running work can access it */
	void (*mem_unbind)(struct txda__mem *mem);
	/*
	 * Unbinds it and lets the kernel take its memory; TXDA_ADVICE_WILLNEED: binds it again, where
	 * it was. Returns 1 if it is unbound now; an error changes nothing. NULL: advice has no
	 * effect. *@ret_kept is set in any case.
	 */
	int (*mem_advise)(struct txda__mem *mem, enum txda_advice advice, bool *ret_kept);
	/* The host mapping of bound memory, the same each time. -ENOTSUP: there is none. */
	int (*mem_map)(struct txda__mem *mem, void **ret_ptr);
	/*
	 * Copies between bound memory and @host, for a backend whose memory has no host mapping or
	 * a slow one; NULL: copies go through the mapping. Several threads at once.
	 */
	int (*mem_write)(struct txda__mem *mem, uint64_t offset, const void *host, uint64_t bytes);
	int (*mem_read)(struct txda__mem *mem, uint64_t offset, void *host, uint64_t bytes);
	/*
	 * Loads one chunk (a few MiB) of a file. Returns the bytes loaded, fewer only at the file's
	 * end. Several threads at once; error messages are recorded per thread.
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
	 * Waits until *@word (the host mapping of the fence word) is >= @fence. -ETIMEDOUT, -EIO,
	 * -ENODEV.
	 */
	int (*queue_wait)(struct txda__hwqueue *queue, const uint64_t *word, uint64_t fence,
			  uint64_t deadline_ns);
	/*
	 * Ends the queue's work at once: waits fail, and nothing is submitted any more. NULL: streams
	 * that wait for other chips disturb nobody.
	 */
	void (*queue_stop)(struct txda__hwqueue *queue);
	/*
	 * Writes to @fd, an eventfd, when @fence is passed or the queue fails. NULL: passed() is
	 * called for every fence anyway.
	 */
	int (*queue_arm)(struct txda__hwqueue *queue, uint64_t fence, int fd);
	/*
	 * 0 while the queue runs, else -EIO or -ENODEV and the fault. @buf gets a description, or
	 * "" if the library is to write it (fault.h).
	 */
	int (*queue_fault)(struct txda__hwqueue *queue, struct txda_fault *ret_fault, char *buf,
			   size_t len);

	/*
	 * An fd that is readable when chips may have had events, and the function that reads them
	 * and reports them with txda__event(). NULL: a thread of the library or the backend does
	 * that.
	 */
	int (*events_fd)(struct txda__backend *backend);
	void (*take_events)(struct txda__backend *backend);
};

/* Purpose and properties of memory. */
#define TXDA__MEM_PRIVATE  (1u << 0) /* never exported */
#define TXDA__MEM_LARGE	   (1u << 1) /* large pages are worth their cost */
#define TXDA__MEM_UNMAPPED (1u << 2) /* no host mapping is needed */
/*
 * The host accesses it as often as the device does, so a backend may place device memory in host
 * memory.
 */
#define TXDA__MEM_SHARED (1u << 3)
/* Filled once, then frozen and exported: it may outlive the process. */
#define TXDA__MEM_KEEP (1u << 4)

#define TXDA__IMPORT_READ_ONLY (1u << 0)
/*
 * Frozen memory of the same chip (-EXDEV: another chip's, -EPERM: not frozen); it is accounted
 * there as if this process had allocated it.
 */
#define TXDA__IMPORT_KEPT (1u << 1)

/* The first member of a backend's own struct. */
struct txda__backend {
	const struct txda__backend_ops *ops;
	struct txda_context *context; /* borrowed: the context owns the backend */
};

extern const struct txda__backend_ops txda__backend_cmodel;
extern const struct txda__backend_ops txda__backend_drm;

/* The number of chips with a node of the kernel driver that this process could open, or -errno. */
int txda__drm_count(void);

#endif /* TXDA_BACKEND_H */
