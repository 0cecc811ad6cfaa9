// SPDX-License-Identifier: MIT
#include "fuzz.h"

#include <setjmp.h>
#include <sys/ioctl.h>

/* ---- Random values -------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t rnd(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t below(struct rng *r, uint32_t n)
{
	return (uint32_t)(rnd(r) % n);
}

uint32_t any32(struct rng *r)
{
	switch (below(r, 5)) {
	case 0: return below(r, 8);
	case 1: return below(r, 130);
	case 2: return (1u << below(r, 32)) + below(r, 3) - 1;
	case 3: return UINT32_MAX - below(r, 3);
	default: return (uint32_t)rnd(r);
	}
}

uint64_t any64(struct rng *r)
{
	switch (below(r, 6)) {
	case 0: return any32(r);
	case 1: return (1ull << below(r, 64)) + below(r, 3) - 1;
	case 2: return UINT64_MAX - below(r, 10000);
	case 3: return (uint64_t)below(r, 64) * PAGE;
	case 4: return any_va(r);
	default: return rnd(r);
	}
}

uint32_t any_flags(struct rng *r, uint32_t mask)
{
	if (one_in(r, 12))
		return any32(r);
	return (uint32_t)rnd(r) & (uint32_t)rnd(r) & mask;
}

/* ---- What is alive -------------------------------------------------------------------------- */

void world_init(struct world *w, unsigned int nodes)
{
	memset(w, 0, sizeof(*w));
	w->nodes = nodes;
	for (int i = 0; i < FILES_MAX; i++)
		w->file[i].fd = -1;
	for (int i = 0; i < FDS_MAX; i++)
		w->fds[i] = -1;
}

void pool_add(struct pool *pool, struct rng *r, uint32_t value)
{
	uint32_t n = __atomic_load_n(&pool->n, __ATOMIC_RELAXED);

	if (n < POOL_MAX) {
		pool->value[n] = value;
		__atomic_store_n(&pool->n, n + 1, __ATOMIC_RELAXED);
	} else {
		pool->value[below(r, POOL_MAX)] = value;
	}
}

uint32_t pool_any(const struct pool *pool, struct rng *r)
{
	uint32_t n = __atomic_load_n(&pool->n, __ATOMIC_RELAXED);

	if (!n || one_in(r, 16))
		return any32(r);
	/* The last ones are the most likely to be alive. */
	return pool->value[one_in(r, 2) ? n - 1 - below(r, n < 4 ? n : 4) : below(r, n)];
}

struct file *any_file(struct world *w, struct rng *r)
{
	return &w->file[below(r, FILES_MAX)];
}

int any_fd(struct world *w, struct rng *r)
{
	if (one_in(r, 10))
		return w->file[below(r, FILES_MAX)].fd;
	return one_in(r, 20) ? (int)any32(r) : w->fds[below(r, FDS_MAX)];
}

void keep_fd(struct world *w, struct rng *r, int fd)
{
	int old = __atomic_exchange_n(&w->fds[below(r, FDS_MAX)], fd, __ATOMIC_RELAXED);

	if (old > 2)
		close(old);
}

void keep_map(struct world *w, struct rng *r, void *at, uint32_t pages)
{
	map_t old = __atomic_exchange_n(&w->map[below(r, MAPS_MAX)], (map_t)at | pages,
					__ATOMIC_RELAXED);

	if (old)
		munmap(map_at(old), map_bytes(old));
}

uint64_t any_va(struct rng *r)
{
	uint64_t va = (1ull << 32) + (uint64_t)below(r, 12) * MIB;

	if (one_in(r, 4))
		va += (uint64_t)below(r, 300) * PAGE;
	if (one_in(r, 12))
		va += below(r, PAGE);
	if (one_in(r, 30))
		va = rnd(r);
	return va;
}

struct drm_txda_array any_array(struct rng *r, const void *at, uint32_t count, uint32_t stride)
{
	struct drm_txda_array array = array_of(at, count, stride);

	switch (below(r, 100)) {
	case 0: array.stride = any32(r); break;
	case 1: array.count = any32(r); break;
	case 2: array.array = any64(r); break;
	}
	return array;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static _Thread_local sigjmp_buf *way_out;

static void on_fault(int sig)
{
	if (way_out)
		siglongjmp(*way_out, sig);
	signal(sig, SIG_DFL);
	raise(sig);
}

void with_faults(void (*fn)(void *arg), void *arg)
{
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
	sigjmp_buf out;

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	if (!sigsetjmp(out, 1)) {
		way_out = &out;
		fn(arg);
	}
	way_out = NULL;
}

/*
 * Buffers of gigabytes would only exhaust the machine's memory: a size above 8 MiB becomes so large
 * that no machine has it.
 */
static void be_modest(struct drm_txda_bo_create *bo)
{
	if (bo->size > 8 * MIB && bo->size < 1ull << 46)
		bo->size |= 1ull << 46;
}

/* Core DRM allocates as many as it is asked for, and warns when that is absurd. */
static void count_modestly(unsigned long request, void *arg)
{
	struct drm_syncobj_array *array = arg;
	struct drm_syncobj_timeline_array *timeline = arg;

	if (request == DRM_IOCTL_SYNCOBJ_SIGNAL || request == DRM_IOCTL_SYNCOBJ_RESET)
		array->count_handles %= 1000;
	if (request == DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL || request == DRM_IOCTL_SYNCOBJ_QUERY)
		timeline->count_handles %= 1000;
}

/* No process has memory at addresses with this bit. */
static const uint64_t never = 1ull << 63;

static void keep_answer(const struct drm_txda_answer *was, struct drm_txda_answer *answer)
{
	if (answer->pointer != was->pointer)
		answer->pointer |= never;
}

/*
 * The client says where the kernel and the chip write: a changed address that happens to be valid
 * would overwrite this process. It is replaced by one that is never valid.
 */
static void keep_whole(unsigned long request, const void *before, void *arg)
{
	if (request == DRM_IOCTL_TXDA_DEV_QUERY) {
		keep_answer(&((const struct drm_txda_dev_query *)before)->answer,
			    &((struct drm_txda_dev_query *)arg)->answer);
	} else if (request == DRM_IOCTL_TXDA_VM_GET_STATE) {
		keep_answer(&((const struct drm_txda_vm_get_state *)before)->fault,
			    &((struct drm_txda_vm_get_state *)arg)->fault);
	} else if (request == DRM_IOCTL_TXDA_QUEUE_GET_STATE) {
		keep_answer(&((const struct drm_txda_queue_get_state *)before)->fault,
			    &((struct drm_txda_queue_get_state *)arg)->fault);
	} else if (request == DRM_IOCTL_TXDA_BO_FROM_USERPTR) {
		const struct drm_txda_bo_from_userptr *was = before;
		struct drm_txda_bo_from_userptr *user = arg;

		if (user->va / PAGE != was->va / PAGE)
			user->va |= never;
		if (user->size > was->size)
			user->size |= never;
	} else if (request == DRM_IOCTL_SYNCOBJ_QUERY) {
		const struct drm_syncobj_timeline_array *was = before;
		struct drm_syncobj_timeline_array *query = arg;

		if (query->points != was->points || query->count_handles > was->count_handles)
			query->points |= never;
	} else if (request == DRM_IOCTL_VERSION) {
		struct drm_version *version = arg;

		if (memcmp(before, arg, sizeof(*version)))
			version->name = version->date = version->desc = (char *)(uintptr_t)never;
	}
}

static void *at_an_edge(struct rng *r, const void *arg, size_t bytes)
{
	static _Thread_local char *area;
	char *at;

	if (!area) {
		area = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		mprotect(area + PAGE, PAGE, PROT_NONE);
	}
	if (one_in(r, 3))
		return (void *)(uintptr_t)any64(r);
	at = area + PAGE - (one_in(r, 2) ? bytes : below(r, (uint32_t)bytes + 1));
	memcpy(at, arg, (size_t)(area + PAGE - at));
	return at;
}

static void count(unsigned long request, int err)
{
	unsigned int id = _IOC_NR(request) - DRM_COMMAND_BASE;

	if (id >= DRM_TXDA_NUM_IOCTLS)
		return;
	__atomic_add_fetch(&tally->calls[id], 1, __ATOMIC_RELAXED);
	if (!err)
		__atomic_add_fetch(&tally->good[id], 1, __ATOMIC_RELAXED);
}

int issue(struct rng *r, int fd, unsigned long request, void *arg)
{
	size_t bytes = _IOC_SIZE(request);
	uint8_t copy[512];
	void *at = arg;
	int ret;

	memcpy(copy, arg, bytes);
	if (one_in(r, 8)) {
		for (uint32_t i = below(r, 3) + 1; i; i--)
			((uint8_t *)arg)[below(r, (uint32_t)bytes)] = (uint8_t)rnd(r);
	}
	keep_whole(request, copy, arg);
	if (request == DRM_IOCTL_TXDA_BO_CREATE)
		be_modest(arg);
	count_modestly(request, arg);
	if (one_in(r, 60)) {
		/* Another size: a client that is older, newer, or lies. */
		uint32_t size = below(r, 200);

		memset(copy, one_in(r, 2) ? 0 : 0xa5, sizeof(copy));
		memcpy(copy, arg, bytes);
		at = copy;
		request = _IOC(one_in(r, 4) ? below(r, 4) : _IOC_DIR(request), _IOC_TYPE(request),
			       _IOC_NR(request), size);
	} else if (one_in(r, 60)) {
		at = at_an_edge(r, arg, bytes);
	}
	ret = ioctl(fd, request, at);
	ret = ret < 0 ? -errno : 0;
	count(request, ret);
	return ret;
}
