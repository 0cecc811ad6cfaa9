/* SPDX-License-Identifier: MIT */
/*
 * The DRM backend: chips behind nodes of the kernel driver (drm/txda_drm.h).
 *
 * backend_drm.c handles chips, backend_drm_mem.c memory, backend_drm_copy.c copies to memory that
 * the host does not map, backend_drm_queue.c queues and fences, backend_drm_events.c events.
 *
 * Lost chips. Once a chip is unplugged every ioctl on its node returns -ENODEV; the first caller
 * that sees this marks the chip, and from then on its objects fail with -ENODEV while those of
 * other chips keep working. Objects of a lost chip are freed normally.
 * Ownership: a chip lives until its last address space is freed, also when another chip has taken
 * over its number.
 * Threads: as stated in backend.h.
 * Locks, outer first: drm.lock; chip.lock; copier.lock. None is held during an ioctl that may wait
 * for the chip.
 */
#ifndef TXDA_BACKEND_DRM_H
#define TXDA_BACKEND_DRM_H

#include <drm/txda_drm.h>
#include <errno.h>
#include <string.h>

#include "context.h"
#include "listener.h"

/*
 * The interface to the kernel: its nodes and the operations on one. Tests substitute a fake kernel.
 * ioctl returns 0 or -errno and restarts after a signal, as the requests allow.
 */
struct txda__drm_kernel {
	int (*nodes)(struct txda__node *ret, unsigned max);
	bool (*exists)(const char *node); /* may be absent in a container */
	int (*open)(const char *node);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	int (*listen)(struct txda__listener **ret_listener);
};

extern const struct txda__drm_kernel txda__drm_kernel_real;
extern const struct txda__drm_kernel *txda__drm_kernel;

struct drm_chip {
	struct drm *drm;
	atomic_uint refs;
	unsigned index; /* physical number */
	int fd;
	atomic_bool lost;
	struct txda__node node;
	struct txda_device_info info;
	uint64_t card;
	unsigned card_index;
	uint32_t n_ports;
	pthread_mutex_t lock; /* protects what follows */
	struct drm_bo *bos;   /* objects that may be shared between handles */
	struct txda__hwqueue *queues;
	struct {
		uint64_t time_ns; /* 0: not yet */
		uint64_t busy_ns; /* until then */
		uint32_t permille;
	} seen; /* of utilisation */
	struct {
		uint64_t busy_ns;
		uint32_t ecc_corrected, ecc_uncorrected, faults;
	} counted; /* the last values; a chip that is down or lost gives none */
};

struct drm {
	struct txda__backend base;
	pthread_mutex_t lock; /* protects what follows */
	unsigned n_chips;
	struct drm_chip *chip[TXDA__MAX_CHIPS];
	/*
	 * the members below belong to the thread that takes events, under backend_lock of
	 * events.h
	 */
	struct txda__listener *listener; /* created by the first call of events_fd(), else NULL */
	bool deaf;			 /* creating it failed */
};

/*
 * A GEM handle. The kernel gives a file one handle per buffer, however often it is imported, so the
 * handle is closed when its last user is gone.
 */
struct drm_bo {
	struct drm_bo *next; /* in chip.bos, under its lock */
	unsigned refs;	     /* likewise */
	uint32_t handle;
};

/*
 * A staging buffer in host memory that the chip can access, for copies; its two halves
 * alternate.
 */
#define DRM_LANES      8
#define DRM_LANE_BYTES (1u << 20) /* size of a half */

struct drm_lane {
	bool busy;	 /* under copier.lock */
	uint32_t handle; /* 0: not created yet */
	uint64_t va;
	void *control; /* a page: streams and fence words of the halves */
	char *half[2];
	uint64_t point[2]; /* timeline point of the last copy, 0: none */
};

struct drm_copier {
	pthread_mutex_t lock;	  /* protects what follows, except the contents of a busy lane */
	pthread_cond_t idle;	  /* a lane is free */
	uint32_t queue, timeline; /* 0: not created yet */
	uint64_t last;		  /* timeline point of the last submission */
	unsigned n_busy;
	bool broken; /* the queue failed: it is recreated when no lane is busy */
	struct drm_lane lane[DRM_LANES];
};

struct txda__vm {
	struct drm_chip *chip; /* a reference */
	uint32_t id;
	uint64_t end; /* addresses from here on are used by the backend itself */
	struct drm_copier copier;
};

struct txda__mem {
	struct txda__vm *vm;
	struct drm_bo *bo;
	uint64_t bytes, va;
	bool host; /* in host memory: cached, and accessible even without the chip */
	bool mappable;
	bool read_only;	      /* read-only for the host; memory of another owner */
	bool bound;	      /* at va */
	bool bound_read_only; /* read-only for the device */
	bool frozen;	      /* exported read-only */
	int fd;		      /* dma-buf that it was imported from, or -1 */
	void *user;	      /* memfd that it was imported from, mapped, or NULL */
	pthread_mutex_t lock; /* protects view */
	void *view;
};

struct txda__hwqueue {
	struct txda__hwqueue *next; /* in chip.queues */
	struct txda__vm *vm;
	uint32_t id; /* 0: stopped */
	uint32_t timeline;
	struct txda__queue_events events;
};

/* ---- backend_drm.c --------------------------------------------------------------------------- */

/* An ioctl on the chip's node; marks the chip as lost when it is gone. */
int txda__drm_ioctl(struct drm_chip *chip, unsigned long request, void *arg);
/* DEV_QUERY; fields that an older kernel does not know read as zeros. */
int txda__drm_query(struct drm_chip *chip, enum drm_txda_query type, void *ret, uint32_t bytes);
/* The chip with that number, with a reference; NULL if there is none. */
struct drm_chip *txda__drm_chip_get(struct drm *drm, unsigned index);
void txda__drm_chip_put(struct drm_chip *chip);
/* Opens a node. *@ret_chip gets one reference. */
int txda__drm_chip_open(struct drm *drm, const struct txda__node *node, unsigned index,
			struct drm_chip **ret_chip);

static inline struct drm_txda_answer txda__drm_answer(void *ret, uint32_t bytes)
{
	return (struct drm_txda_answer){.size = bytes, .pointer = (uintptr_t)ret};
}

/*
 * For an ioctl that creates something: -EDQUOT is about the user's share of the chip, not about a
 * disk.
 */
static inline const char *txda__drm_reason(int error)
{
	return error == -EDQUOT ? "this user has reached its limit on the chip" : strerror(-error);
}

static inline struct txda_context *drm_context(const struct drm_chip *chip)
{
	return chip->drm->base.context;
}

/* ---- backend_drm_mem.c ------------------------------------------------------------------------------- */

int txda__drm_mem_new(struct txda__vm *vm, uint64_t bytes, enum txda_memory memory, unsigned flags,
		      struct txda__mem **ret_mem);
int txda__drm_mem_import(struct txda__vm *vm, int fd, unsigned flags, struct txda__mem **ret_mem,
			 uint64_t *ret_bytes);
int txda__drm_mem_export(struct txda__mem *mem, bool read_only, int *ret_fd);
int txda__drm_mem_freeze(struct txda__mem *mem);
void txda__drm_mem_free(struct txda__mem *mem);
int txda__drm_mem_bind(struct txda__mem *mem, uint64_t va, bool read_only);
void txda__drm_mem_unbind(struct txda__mem *mem);
int txda__drm_mem_advise(struct txda__mem *mem, enum txda_advice advice, bool *ret_kept);
int txda__drm_mem_map(struct txda__mem *mem, void **ret_ptr);
/* Synchronous: maps the bytes from @offset of a handle at @va. */
int txda__drm_vm_map(struct txda__vm *vm, uint32_t handle, uint64_t offset, uint64_t va,
		     uint64_t bytes, bool read_only);
int txda__drm_vm_unmap(struct txda__vm *vm, uint64_t va, uint64_t bytes);
/* The host mapping of a handle. */
int txda__drm_bo_map(struct drm_chip *chip, uint32_t handle, uint64_t bytes, void **ret_ptr);
void txda__drm_handle_close(struct drm_chip *chip, uint32_t handle);

/* ---- backend_drm_copy.c ------------------------------------------------------------------------------ */

#define DRM_COPIER_VA_BYTES (256ull << 20) /* at the end of an address space */

void txda__drm_copier_init(struct drm_copier *copier);
void txda__drm_copier_fini(struct txda__vm *vm);
int txda__drm_mem_write(struct txda__mem *mem, uint64_t offset, const void *host, uint64_t bytes);
int txda__drm_mem_read(struct txda__mem *mem, uint64_t offset, void *host, uint64_t bytes);
int64_t txda__drm_mem_load(struct txda__mem *mem, uint64_t offset, int fd, uint64_t fd_offset,
			   uint64_t bytes);

/* ---- backend_drm_queue.c ----------------------------------------------------------------------------- */

int txda__drm_queue_new(struct txda__vm *vm, enum txda_queue_class queue_class,
			const struct txda__queue_events *events, struct txda__hwqueue **ret_queue);
void txda__drm_queue_free(struct txda__hwqueue *queue);
void txda__drm_queue_stop(struct txda__hwqueue *queue);
int txda__drm_queue_submit(struct txda__hwqueue *queue, uint64_t va, uint64_t bytes, uint64_t fence,
			   bool wait_soon);
int txda__drm_queue_wait(struct txda__hwqueue *queue, const uint64_t *word, uint64_t fence,
			 uint64_t deadline_ns);
int txda__drm_queue_arm(struct txda__hwqueue *queue, uint64_t fence, int fd);
int txda__drm_queue_fault(struct txda__hwqueue *queue, struct txda_fault *ret_fault, char *buf,
			  size_t len);
/* A queue with a timeline of its own. */
int txda__drm_hwqueue_create(struct txda__vm *vm, uint32_t class_, uint32_t *ret_id,
			     uint32_t *ret_timeline);
void txda__drm_hwqueue_destroy(struct drm_chip *chip, uint32_t id, uint32_t timeline);
/* As queue_fault() in backend.h. */
int txda__drm_hwqueue_fault(struct drm_chip *chip, uint32_t id, struct txda_fault *ret_fault,
			    char *buf, size_t len);
/* Submits one stream, which signals @point. -EBUSY: too many in flight; -EIO: the queue is dead. */
int txda__drm_hwqueue_submit(struct drm_chip *chip, uint32_t id, uint32_t timeline, uint64_t va,
			     uint64_t bytes, uint64_t point);
/* 0: @point is signalled, with success or an error; -ETIME: timeout. */
int txda__drm_timeline_wait(struct drm_chip *chip, uint32_t timeline, uint64_t point,
			    uint64_t deadline_ns);

/* ---- backend_drm_events.c ------------------------------------------------------------------------------ */

int txda__drm_events_fd(struct txda__backend *backend);
void txda__drm_events(struct txda__backend *backend);
void txda__drm_events_end(struct drm *drm);

#endif /* TXDA_BACKEND_DRM_H */
