/* SPDX-License-Identifier: MIT */
/*
 * What the files of the fake kernel share: its tables, and the ioctls by concern. fake_drm.c is the
 * kernel (nodes, calls, plugging), fake_drm_object.c its buffers and handles, fake_drm_mem.c and
 * fake_drm_queue.c what a client does with memory and with queues.
 */
#ifndef FAKE_DRM_INTERNAL_H
#define FAKE_DRM_INTERNAL_H

#include "fake_drm.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmodel.h"
#include "txda_isa.h"

#define MAX_FILES   16
#define MAX_OBJECTS 1024
#define MAX_FENCES  1024
#define MODEL_CHIPS 16	     /* each that is plugged in is another one */
#define MAX_JOBS    32	     /* of a queue, in flight */
#define PAGE_BYTES  65536ull /* of the fake in each address space: words, then streams */
#define MAX_WORDS   64
#define PRIVATE_VA  (CM_VA_BYTES - (1ull << 20)) /* the fake's own page in each address space */

/* Built without NDEBUG in mind: a test that goes on after this means nothing. */
#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct buffer {
	bool exported;
	unsigned refs; /* handles, exported fds, mappings */
	uint64_t offset, bytes;
	unsigned slot, chip; /* whose memory it takes */
	bool device, no_mmap;
	int user_fd; /* userptr: what is mapped there; -1: none */
};

/* A dma-buf: a pipe, told by its inode, whose other end tells when nobody has it any more. */
struct dmabuf {
	struct buffer *buffer; /* NULL: free */
	bool writable;
	ino_t inode;
	int end;
};

enum kind { FREE, HANDLE, VM, QUEUE, SYNCOBJ };

struct file;

struct object {
	enum kind kind;
	struct file *file;
	uint32_t id;
	struct buffer *buffer; /* HANDLE */
	bool read_only;	       /* HANDLE: imported so */
	uint32_t vm_id;	       /* HANDLE: private to; QUEUE */
	struct cm_vm *vm;
	uint64_t *page; /* VM: the fake's own */
	bool lost;
	struct buffer *page_buffer;
	struct cm_queue *queue;
	unsigned n_queues;		      /* VM: so far */
	uint64_t group[DRM_TXDA_GROUP_SLOTS]; /* VM: the one in the slot, or 0 */
	unsigned index;			      /* QUEUE: of its word in the page */
	uint64_t *word;
	uint64_t submitted;
	uint32_t timeline;	     /* QUEUE: of its last job */
	uint64_t point;		     /* SYNCOBJ: the last that was submitted ... */
	struct object *by;	     /* ... to this queue */
	uint64_t job_of[MAX_FENCES]; /* SYNCOBJ: number of the job that signals a point */
};

struct file {
	int fd; /* -1: free */
	unsigned slot, chip;
	uint32_t last_id;
};

struct fake_kernel {
	struct cm_machine *machine;
	unsigned n_slots, n_chips;
	unsigned chip[FAKE_CHIPS]; /* in the slot */
	bool there[FAKE_CHIPS];
	atomic_bool gone[MODEL_CHIPS];
	uint64_t used[MODEL_CHIPS];
	int memory;
	uint64_t memory_end;
	struct file file[MAX_FILES];
	struct object *object[MAX_OBJECTS];
	struct dmabuf dmabuf[MAX_FILES];
	unsigned long resets[MODEL_CHIPS];
	unsigned long n_calls;
	struct {
		unsigned long request, n;
	} calls[64];
	uint64_t last_group;
	struct txda__listener *listener;
};
extern struct fake_kernel fake;

/* Tables; outside of the model's own locks. */
extern pthread_mutex_t fake_lock;
/* What callbacks of the model touch: who waits for words. */
extern pthread_mutex_t fake_word_lock;
extern pthread_cond_t fake_word_changed;

/* An open file of the process. With fake_lock, as everything that has a struct file. */
struct file *fake_file(int fd);
/* The object of that kind and number, or NULL. */
struct object *fake_find(struct file *file, enum kind kind, uint32_t id);
struct object *fake_make(struct file *file, enum kind kind);
/* Frees an object. The model's parts without a lock of ours that its callbacks take. */
void fake_drop(struct object *o);
struct buffer *fake_buffer(uint64_t bytes);
/*
 * The buffer's dma-buf, which lives as long as somebody has an fd of it, with the rights that it was
 * made with; and the buffer of an fd.
 */
int fake_dmabuf(struct buffer *buffer, bool writable);
struct buffer *fake_dmabuf_find(int fd);
/* The kernel's struct of @bytes at @from goes to where @answer says. */
void fake_answer(struct drm_txda_answer *answer, const void *from, uint32_t bytes);
/* The group in that slot ends, for all its members. */
void fake_dissolve(uint64_t group, uint32_t slot);
/* Frees what was kept by dma-bufs that were closed everywhere. */
void fake_reap(void);

/* Of a queue: jobs that are done. */
uint64_t fake_jobs_done(const struct object *queue);
/* Signalled, for good or bad. With fake_word_lock, as the next two. */
bool fake_is_signalled(struct object *syncobj, uint64_t point);
/* Tells who waits for what is signalled by now. */
void fake_wake(void);
/* An eventfd, which stays the caller's, is told of the point. */
void fake_watch(struct object *syncobj, uint64_t point, int fd);

struct fake_ioctl {
	unsigned long request;
	int (*serve)(struct file *file, void *arg);
};
/* Each ends with a request 0. */
extern const struct fake_ioctl fake_mem_ioctls[], fake_queue_ioctls[];

#endif /* FAKE_DRM_INTERNAL_H */
