/* SPDX-License-Identifier: MIT */
/*
 * Guest memory: the regions that the client has mapped with DMA_MAP, by bus address.
 *
 * Each region is a piece of a file that the server maps as a whole, for rings and completion words;
 * address spaces of the model map pieces of it once more, for what streams use. Regions that come
 * without a file (ROMs, a client without shared memory) are kept, so that they can be unmapped, but
 * the chip cannot reach them: DMA_READ and DMA_WRITE messages are not sent.
 *
 * A file that is too short is refused. One that shrinks later would be a SIGBUS: see sigbus.h.
 *
 * Ownership: the table owns the descriptors and mappings of its regions.
 * Threads: the device's lock, also while a pointer of vu_guest_at() is used. Removal is in two
 * steps, so that the caller can drop translations in between: after vu_guest_remove() no new ones
 * can be made, vu_guest_release() then closes the files.
 */
#ifndef VU_GUEST_H
#define VU_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VU_GUEST_MAX_REGIONS 4096

struct vu_guest_region {
	uint64_t address, bytes;
	uint64_t offset; /* into the file */
	int fd;		 /* -1: cannot be reached */
	bool readable, writeable;
	uint8_t *host; /* NULL: cannot be reached */
};

struct vu_guest {
	struct vu_guest_region *region; /* sorted by address, disjoint */
	size_t n, cap;
};

/* Regions that vu_guest_remove() has removed from the table. */
struct vu_guest_removed {
	struct vu_guest_region *region;
	size_t n;
	uint64_t bytes; /* of all */
};

/*
 * Takes over @region->fd, on success only. -EINVAL: not whole pages or out of bounds; -EEXIST:
 * overlaps; -ERANGE: the file is too short; -ENOSPC: too many regions; or why mmap() failed.
 */
int vu_guest_add(struct vu_guest *g, const struct vu_guest_region *region);
/*
 * Removes the regions within [address, address + bytes). -EINVAL: one is only partly within, then
 * nothing is removed; -ENOENT: none; -ENOMEM.
 */
int vu_guest_remove(struct vu_guest *g, uint64_t address, uint64_t bytes,
		    struct vu_guest_removed *ret);
/* Removes all of them. */
void vu_guest_remove_all(struct vu_guest *g, struct vu_guest_removed *ret);
void vu_guest_release(struct vu_guest_removed *removed);

/* The region of a bus address, if the chip can reach it; else NULL. */
const struct vu_guest_region *vu_guest_find(const struct vu_guest *g, uint64_t address);
/* The host address of [address, address + bytes) in one region; else NULL. */
void *vu_guest_at(const struct vu_guest *g, uint64_t address, uint64_t bytes, bool write);

#endif /* VU_GUEST_H */
