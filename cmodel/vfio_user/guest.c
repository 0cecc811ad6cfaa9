// SPDX-License-Identifier: MIT
#include "guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array.h"

#define PAGE 4096ull

/* The first region that ends above @address. */
static size_t first_region(const struct vu_guest *g, uint64_t address)
{
	size_t lo = 0, hi = g->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (g->region[mid].address + (g->region[mid].bytes - 1) < address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int check_file(const struct vu_guest_region *r)
{
	struct stat st;

	if (fstat(r->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size < 0 || r->offset > (uint64_t)st.st_size ||
	    r->bytes > (uint64_t)st.st_size - r->offset)
		return -ERANGE;
	return 0;
}

static int map_region(struct vu_guest_region *r)
{
	int prot = (r->readable ? PROT_READ : 0) | (r->writeable ? PROT_WRITE : 0), ret;
	void *host;

	if (r->offset > INT64_MAX || r->bytes > INT64_MAX - r->offset)
		return -EINVAL;
	ret = check_file(r);
	if (ret)
		return ret;
	/* x86 has no write-only mappings, and the model needs none. */
	host = mmap(NULL, r->bytes, prot | PROT_READ, MAP_SHARED, r->fd, (off_t)r->offset);
	if (host == MAP_FAILED)
		return -errno;
	r->host = host;
	return 0;
}

int vu_guest_add(struct vu_guest *g, const struct vu_guest_region *region)
{
	struct vu_guest_region r = *region;
	size_t at;
	int ret;

	if (!r.bytes || r.address % PAGE || r.bytes % PAGE || r.offset % PAGE ||
	    r.bytes - 1 > UINT64_MAX - r.address)
		return -EINVAL;
	at = first_region(g, r.address);
	if (at < g->n && g->region[at].address <= r.address + (r.bytes - 1))
		return -EEXIST;
	if (g->n == VU_GUEST_MAX_REGIONS)
		return -ENOSPC;
	if (!array_grow(&g->region, &g->cap, g->n + 1, sizeof(*g->region)))
		return -ENOMEM;
	r.host = NULL;
	if (r.fd >= 0 && (r.readable || r.writeable)) {
		ret = map_region(&r);
		if (ret)
			return ret;
	}
	memmove(g->region + at + 1, g->region + at, (g->n - at) * sizeof(r));
	g->region[at] = r;
	g->n++;
	return 0;
}

int vu_guest_remove(struct vu_guest *g, uint64_t address, uint64_t bytes,
		    struct vu_guest_removed *ret)
{
	struct vu_guest_removed removed = {0};
	size_t from, to;
	uint64_t last;

	if (!bytes || bytes - 1 > UINT64_MAX - address)
		return -EINVAL;
	last = address + (bytes - 1);
	from = first_region(g, address);
	for (to = from; to < g->n && g->region[to].address <= last; to++) {
		const struct vu_guest_region *r = &g->region[to];

		if (r->address < address || r->address + (r->bytes - 1) > last)
			return -EINVAL;
		removed.bytes += r->bytes;
	}
	if (from == to)
		return -ENOENT;
	removed.n = to - from;
	removed.region = malloc(removed.n * sizeof(*removed.region));
	if (!removed.region)
		return -ENOMEM;
	memcpy(removed.region, g->region + from, removed.n * sizeof(*removed.region));
	memmove(g->region + from, g->region + to, (g->n - to) * sizeof(*g->region));
	g->n -= removed.n;
	*ret = removed;
	return 0;
}

void vu_guest_remove_all(struct vu_guest *g, struct vu_guest_removed *ret)
{
	*ret = (struct vu_guest_removed){.region = g->region, .n = g->n};
	for (size_t i = 0; i < g->n; i++)
		ret->bytes += g->region[i].bytes;
	*g = (struct vu_guest){0};
}

void vu_guest_release(struct vu_guest_removed *removed)
{
	for (size_t i = 0; i < removed->n; i++) {
		struct vu_guest_region *r = &removed->region[i];

		if (r->host)
			munmap(r->host, r->bytes);
		if (r->fd >= 0)
			close(r->fd);
	}
	free(removed->region);
	*removed = (struct vu_guest_removed){0};
}

const struct vu_guest_region *vu_guest_find(const struct vu_guest *g, uint64_t address)
{
	size_t at = first_region(g, address);

	if (at == g->n || g->region[at].address > address || !g->region[at].host)
		return NULL;
	return &g->region[at];
}

void *vu_guest_at(const struct vu_guest *g, uint64_t address, uint64_t bytes, bool write)
{
	const struct vu_guest_region *r = vu_guest_find(g, address);

	if (!r || address - r->address > r->bytes || bytes > r->bytes - (address - r->address) ||
	    !(write ? r->writeable : r->readable))
		return NULL;
	return r->host + (address - r->address);
}
