/* SPDX-License-Identifier: MIT */
/*
 * A context: one opened backend, the chips that this process may use, events, the weights that its
 * models share.
 *
 * Ownership: every handle below a context holds a reference to it (directly or through its parent),
 * so the last handle released frees it. Devices live in the context and share its reference count.
 * Its parts have files of their own, which include this one; open.c creates and frees all of them.
 * Threads: fields are constant after txda_context_new() unless a lock is named.
 */
#ifndef TXDA_CONTEXT_H
#define TXDA_CONTEXT_H

#include <pthread.h>
#include <sys/types.h>

#include "backend.h"
#include "spec.h"
#include "telemetry.h"

#define TXDA__EVENTS 64

struct txda_weights;
struct txda__space;

/* device.h; @lock protects the members after it. */
struct txda_device {
	struct txda_context *context;
	unsigned index;	   /* index in this process */
	unsigned physical; /* physical number in the backend */
	pthread_mutex_t lock;
	struct txda__space *space; /* the current one (txda__space_get()), or NULL */
};

/* events.h */
struct txda__events {
	pthread_mutex_t lock;
	struct txda_event ring[TXDA__EVENTS];
	unsigned head, count; /* the oldest is ring[head] */
	int fd;		      /* an eventfd */
	/* protects what follows, and the backend while its events are taken; taken before @lock */
	pthread_mutex_t backend_lock;
	int both; /* epoll of @fd and the backend's events_fd, or -1 */
};

/* monitor.h */
struct txda__monitor {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* on CLOCK_MONOTONIC */
	bool stop;	     /* under lock */
	atomic_uint pokes;   /* rises with each */
	atomic_bool asleep;
	struct txda__telemetry telemetry;
	_Atomic uint32_t utilisation[TXDA__MAX_CHIPS]; /* per thousand, or UINT32_MAX */
};

/* weights.h */
struct txda__weights_table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct txda_weights *first;
};

struct txda_context {
	atomic_uint refs;
	uint64_t id; /* unique in this process, never reused; > 0 */
	pid_t pid;   /* of the process that made it */
	struct txda__backend *backend;
	/* increases when a chip is added; entries below the number are complete */
	atomic_uint n_devices;
	struct txda_device device[TXDA__MAX_CHIPS];
	char *visible; /* TXDA_VISIBLE_DEVICES, or NULL */
	/* CHIP_MAP: entries, or as n_devices when there is none */
	atomic_uint n_logical;
	unsigned logical[TXDA__MAX_CHIPS]; /* logical chip of a topology map -> device index */
	bool renamed;			   /* CHIP_MAP was given */
	char name[64];
	struct txda__events events;
	struct txda__weights_table weights;
	struct txda__monitor monitor;
};

/*
 * Whether this process got the context by fork(). Its threads are not here, its locks may be held,
 * and the memory that it shares with chips is the parent's: of an object whose last reference goes
 * here, only the memory is freed that no lock protects.
 */
bool txda__inherited(const struct txda_context *context);
/* Likewise, with a message recorded: the call that asks gives -EPERM. */
bool txda__forked(struct txda_context *context);

/* ---- for a backend whose chips are hot-plugged; one thread at a time (events.h) -------------- */

/* The device with chip number @physical, or UINT32_MAX. */
unsigned txda__context_find(struct txda_context *context, unsigned physical);
/*
 * open.c: a chip was added; makes it a device if this process may see it. Returns its index, or UINT32_MAX.
 * If it has the number of a lost chip it takes over that device; objects still on the lost chip
 * stay lost.
 */
unsigned txda__context_admit(struct txda_context *context, const struct txda_device_info *info);

#endif /* TXDA_CONTEXT_H */
