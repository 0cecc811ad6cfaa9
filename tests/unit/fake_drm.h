/* SPDX-License-Identifier: MIT */
/*
 * A kernel driver in this process, for tests of the DRM backend: it serves the ioctls of
 * drm/txda_drm.h with chips of the device model. What it refuses, the real one refuses.
 *
 * Files are descriptors of one large memfd, in which each buffer is a range, so that mmap() works
 * as on a node. A job is over when a SIGNAL that the fake submits behind it has run.
 * Threads: any, but for the functions here.
 */
#ifndef FAKE_DRM_H
#define FAKE_DRM_H

#include "backend_drm.h"

#define FAKE_CHIPS	4
#define FAKE_CHIP_BYTES (64ull << 20)

/* @chips of one card, all linked, and puts itself behind the backend. */
void fake_drm_start(unsigned chips);
/* Everything must be gone: open files, buffers, dma-bufs, address spaces, queues, syncobjs. */
void fake_drm_end(void);

/* The chip at @slot is pulled; another one is put into the slot. News are told. */
void fake_drm_unplug(unsigned slot);
void fake_drm_plug(unsigned slot);
/* What a function reset leaves: address spaces are lost, queues fail. */
void fake_drm_reset(unsigned slot);
/* Tells the backend, when it listens. */
void fake_drm_tell(const struct txda__node_event *event);
/* cm_inject() */
void fake_drm_inject(const char *spec);

struct fake_drm_knobs {
	/* the ioctl number @fail_after from now fails with @fail_error (0: none does) */
	unsigned fail_after;
	int fail_error;
	unsigned long fail_request; /* of these only; 0: of all */
	unsigned reset_at;    /* slot 0 is reset at the ioctl with that number from now; 0: none */
	bool no_advice;	      /* a kernel before version 1.2 */
	bool no_links;	      /* ports are down, and all cards are different */
	uint32_t known_bytes; /* an old kernel: its query structs end there; 0: all */
	const char *device;   /* directory of attributes of all chips; NULL: there is none */
	int version_major;
	uint64_t mappable_bytes; /* of a chip's memory; what is beyond has no mmap */
	int open_error;
	/* the queue from which on those that do not share are refused, 0: none; it counts down to 1 */
	unsigned own_queues;
	unsigned submit_depth; /* jobs in flight of a queue; 0: as many as they like */
};
extern struct fake_drm_knobs fake_drm;

/* ioctls with that number so far; all of them for 0. */
unsigned long fake_drm_calls(unsigned long request);
unsigned fake_drm_handles(void); /* GEM handles of all files */

#endif /* FAKE_DRM_H */
