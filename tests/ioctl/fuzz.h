/* SPDX-License-Identifier: MIT */
/*
 * The parts of the fuzzer: fuzz.c starts and kills processes, fuzz_ops.c has the grammar of the
 * ioctls, fuzz_gen.c random values and what is alive.
 *
 * A process has files, what it holds in each, other descriptors and mappings, all shared by its
 * threads: one closes what another one uses. Numbers in the pools may be stale at any time.
 */
#ifndef TXDA_FUZZ_H
#define TXDA_FUZZ_H

#include "common.h"

/* ---- Random values -------------------------------------------------------------------------- */

struct rng {
	uint64_t state;
};

uint64_t rnd(struct rng *r);
/* Below @n, which is above 0. */
uint32_t below(struct rng *r, uint32_t n);
static inline bool one_in(struct rng *r, uint32_t n)
{
	return !below(r, n);
}
/* Small, at a limit, or anything. */
uint32_t any32(struct rng *r);
uint64_t any64(struct rng *r);
/* Mostly one of the bits in @mask, sometimes others. */
uint32_t any_flags(struct rng *r, uint32_t mask);

/* ---- What is alive -------------------------------------------------------------------------- */

#define POOL_MAX  24
#define FILES_MAX 5
#define FDS_MAX	  24
#define MAPS_MAX  24

struct pool {
	uint32_t value[POOL_MAX];
	uint32_t n;
};

/* One open file of a node. */
struct file {
	int fd; /* -1: closed */
	struct pool vms, bos, queues, syncobjs;
};

/* A mapping: its address plus its size in pages; 0: none. One word, so that one thread takes it. */
typedef uintptr_t map_t;

static inline void *map_at(map_t map)
{
	return (void *)(map & ~(uintptr_t)(PAGE - 1));
}

static inline size_t map_bytes(map_t map)
{
	return (map & (PAGE - 1)) * PAGE;
}

struct world {
	struct file file[FILES_MAX];
	int fds[FDS_MAX]; /* dma-bufs, sync_files, syncobjs, eventfds; -1: none */
	map_t map[MAPS_MAX];
	unsigned int nodes;
};

void world_init(struct world *w, unsigned int nodes);

void pool_add(struct pool *pool, struct rng *r, uint32_t value);
/* One that was alive, or rubbish. */
uint32_t pool_any(const struct pool *pool, struct rng *r);

struct file *any_file(struct world *w, struct rng *r);
/* One of the descriptors, of any kind. */
int any_fd(struct world *w, struct rng *r);
/* Takes the place of an older one, which is closed or unmapped. */
void keep_fd(struct world *w, struct rng *r, int fd);
void keep_map(struct world *w, struct rng *r, void *at, uint32_t pages);

/* Virtual addresses in a few places, so that mappings and jobs meet. */
uint64_t any_va(struct rng *r);

/* An array as the grammar has it, or one that is wrong. */
struct drm_txda_array any_array(struct rng *r, const void *at, uint32_t count, uint32_t stride);

/*
 * The ioctl, with some of its bytes, its size or its address changed now and then. 0 or -errno.
 */
int issue(struct rng *r, int fd, unsigned long request, void *arg);

/* What came of the driver's own ioctls, in all processes. */
struct tally {
	uint64_t steps;
	uint64_t calls[DRM_TXDA_NUM_IOCTLS];
	uint64_t good[DRM_TXDA_NUM_IOCTLS];
};

extern struct tally *tally;

/* Runs @fn where a fault of memory ends no more than @fn. */
void with_faults(void (*fn)(void *arg), void *arg);

/* ---- Grammar -------------------------------------------------------------------------------- */

/* One step: some operation. */
void step(struct world *w, struct rng *r);

#endif
