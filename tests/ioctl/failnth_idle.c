// SPDX-License-Identifier: MIT
/*
 * Steps of ioctl_failnth: idle buffers. What fails leaves a buffer where it is and as it is, with its
 * contents; they move and come back when nothing fails any more.
 */
#include "dmem.h"
#include "failnth.h"

/*
 * The limit has room for one of the two, beside what all steps have. A page is a chance or more, so
 * there are few of them.
 */
#define IDLE_BYTES   (24ull * PAGE)
#define PUSHER_BYTES (32ull * PAGE)
#define LIMIT_BYTES  (52ull * PAGE)
#define NO_LIMIT     (1ull << 50)

static uint32_t place_of(struct world *w, uint32_t handle)
{
	return must_info(w->client.fd, handle).place;
}

/* A buffer with contents that no address space maps. */
static struct mem must_filled(struct world *w, uint32_t place, uint32_t value)
{
	struct mem m = {.bytes = IDLE_BYTES};
	uint32_t *word;

	must(bo_create(w->client.fd, m.bytes, place, 0, 0, &m.handle));
	m.cpu = must_map(w->client.fd, m.handle, m.bytes);
	word = m.cpu;
	for (size_t i = 0; i < m.bytes / 4; i++)
		word[i] = value;
	return m;
}

/* Ends the step: the buffer comes back with @value in it, or what it had was dropped. */
static void must_return(struct world *w, struct mem *m, uint32_t value)
{
	must_limit(must_group(), "dmem.max", NO_LIMIT);
	must(advise(w->client.fd, m->handle, DRM_TXDA_WILLNEED));
	check(is_filled(m->cpu, m->bytes, value));
	must(munmap_mem(m));
}

/* ---- Declaring a buffer idle, and its return from there ------------------------------------- */

static void prepare_idle(struct world *w)
{
	w->idle = must_filled(w, DEVICE, 0x1d1e);
}

static int run_advise(struct world *w)
{
	static const uint32_t advice[] = {DRM_TXDA_COLD, DRM_TXDA_DONTNEED, DRM_TXDA_WILLNEED};
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(advice); i++)
		err = advise(w->client.fd, w->idle.handle, advice[i]);
	return err;
}

static void after_advise(struct world *w, int err)
{
	(void)err;
	must(advise(w->client.fd, w->idle.handle, DRM_TXDA_WILLNEED));
	check(is_filled(w->idle.cpu, w->idle.bytes, 0x1d1e));
	must(munmap_mem(&w->idle));
}

/* ---- Moving contents away ------------------------------------------------------------------- */

/* The group has no room for another buffer, unless the idle one moves. */
static void prepare_move(struct world *w)
{
	const char *group = must_group();

	must_limit(group, "dmem.max", NO_LIMIT);
	must_enter(group);
	w->idle = must_filled(w, DEVICE, 0xc01d);
	must(advise(w->client.fd, w->idle.handle, DRM_TXDA_COLD));
	must_limit(group, "dmem.max", LIMIT_BYTES);
}

static int push(struct world *w)
{
	int err = bo_create(w->client.fd, PUSHER_BYTES, DEVICE, 0, 0, &w->handle);

	/* What cannot be moved for want of memory stays, and there is no room. */
	if (err == -ENOSPC && place_of(w, w->idle.handle) == DEVICE)
		return -ENOMEM;
	return err;
}

static void after_move(struct world *w, int err)
{
	if (!err)
		check_equal(place_of(w, w->idle.handle), HOST);
	must_return(w, &w->idle, 0xc01d);
}

/* ---- Contents that come back ---------------------------------------------------------------- */

static void prepare_return(struct world *w)
{
	prepare_move(w);
	must(push(w));
	check_equal(place_of(w, w->idle.handle), HOST);
	must(gem_close(w->client.fd, w->handle));
}

static int run_return(struct world *w)
{
	return advise(w->client.fd, w->idle.handle, DRM_TXDA_WILLNEED);
}

static void after_return(struct world *w, int err)
{
	/* With -EFAULT it is back, and only the answer was lost. */
	if (err == -ENOMEM)
		check_equal(place_of(w, w->idle.handle), HOST);
	must_return(w, &w->idle, 0xc01d);
}

/* Another one has to move for it. */
static void prepare_swap(struct world *w)
{
	prepare_move(w);
	must(push(w));
	w->other = (struct mem){.handle = w->handle, .bytes = PUSHER_BYTES};
	must(advise(w->client.fd, w->other.handle, DRM_TXDA_COLD));
}

static int run_swap(struct world *w)
{
	int err = advise(w->client.fd, w->idle.handle, DRM_TXDA_WILLNEED);

	if (err == -ENOSPC && place_of(w, w->other.handle) == DEVICE)
		return -ENOMEM;
	return err;
}

static void after_swap(struct world *w, int err)
{
	if (!err)
		check_equal(place_of(w, w->other.handle), HOST);
	must_return(w, &w->idle, 0xc01d);
	must(advise(w->client.fd, w->other.handle, DRM_TXDA_WILLNEED));
}

/* ---- Host memory that was taken ------------------------------------------------------------- */

static void prepare_shrink(struct world *w)
{
	struct drm_txda_memory_info before = must_memory(w->client.fd);
	int drop = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	check(drop >= 0);
	w->idle = must_filled(w, HOST, 0xd0d0);
	must(advise(w->client.fd, w->idle.handle, DRM_TXDA_DONTNEED));
	check(write(drop, "2", 1) == 1);
	close(drop);
	check_equal(must_memory(w->client.fd).host_used, before.host_used);
}

static void after_shrink(struct world *w, int err)
{
	(void)err;
	must(advise(w->client.fd, w->idle.handle, DRM_TXDA_WILLNEED));
	check(is_filled(w->idle.cpu, w->idle.bytes, 0));
	must(munmap_mem(&w->idle));
}

const struct step failnth_idle_steps[] = {
	{"advise", prepare_idle, run_advise, after_advise},
	{"advise-shrunk", prepare_shrink, run_return, after_shrink},
	{"advise-move", prepare_move, push, after_move},
	{"advise-return", prepare_return, run_return, after_return},
	{"advise-swap", prepare_swap, run_swap, after_swap},
};

const size_t failnth_n_idle_steps = ARRAY_SIZE(failnth_idle_steps);
