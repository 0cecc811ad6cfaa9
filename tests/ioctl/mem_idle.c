// SPDX-License-Identifier: MIT
/*
 * BO_ADVISE: who may declare a buffer idle, what nobody can do with an idle one, and what becomes of
 * its contents when memory is short, while the chip works, is reset, or its owner changes its mind.
 *
 * Memory is made short again and again. With the argument "hold" the program takes all but a little
 * of the first chip's memory until it is killed, so that the tests have little to fill. Tests of
 * limits need a control group (dmem.h).
 */
#include "args.h"
#include "dmem.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* What "hold" leaves for the tests. */
#define HELD_BACK (64 * MIB)

/* Whether the contents are there. */
static uint32_t must_advise(int fd, uint32_t handle, uint32_t advice)
{
	struct drm_txda_bo_advise arg = {.handle = handle, .advice = advice, .retained = 7};

	must(call(fd, DRM_IOCTL_TXDA_BO_ADVISE, &arg));
	check(arg.retained <= 1);
	return arg.retained;
}

static uint32_t place_of(int fd, uint32_t handle)
{
	return must_info(fd, handle).place;
}

static void put_words(uint32_t *at, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes / 4; i++)
		at[i] = seed * 2654435761u + (uint32_t)i;
}

static void check_words(const uint32_t *at, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes / 4; i++)
		if (at[i] != seed * 2654435761u + (uint32_t)i)
			fail("word %zu of %zu is %#x, expected %#x", i, bytes / 4, at[i],
			     seed * 2654435761u + (uint32_t)i);
}

/* A buffer that the CPU has mapped and filled, and no address space maps. */
static struct mem must_words(int fd, uint64_t bytes, uint32_t place, uint32_t seed)
{
	struct mem m = {.bytes = bytes};

	must(bo_create(fd, bytes, place, 0, 0, &m.handle));
	m.cpu = must_map(fd, m.handle, bytes);
	put_words(m.cpu, bytes, seed);
	return m;
}

/* All of the chip's memory that there is, so that idle buffers lose theirs. */
struct filling {
	uint32_t handle[256];
	uint32_t n;
};

static void must_fill(int fd, struct filling *f, uint64_t least)
{
	uint64_t bytes = 1ull << 40;

	f->n = 0;
	while (bytes >= least) {
		int err = bo_create(fd, bytes, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &f->handle[f->n]);

		if (err == -ENOSPC) {
			bytes /= 2;
			continue;
		}
		must(err);
		f->n++;
		check(f->n < ARRAY_SIZE(f->handle));
	}
	check(f->n);
}

static void must_empty(int fd, struct filling *f)
{
	while (f->n)
		must(gem_close(fd, f->handle[--f->n]));
}

/* ---- Arguments, and who may ----------------------------------------------------------------- */

TEST(bad)
{
	static const struct bad wrong[] = {
		BAD(struct drm_txda_bo_advise, handle, 0, ENOENT),
		BAD(struct drm_txda_bo_advise, handle, 9999, ENOENT),
		BAD(struct drm_txda_bo_advise, advice, 3, EINVAL),
		BAD(struct drm_txda_bo_advise, advice, UINT32_MAX, EINVAL),
		BAD(struct drm_txda_bo_advise, pad, 1, EINVAL),
	};
	struct drm_txda_bo_advise good = {.advice = DRM_TXDA_COLD};
	int fd = must_open(0);

	must(bo_create(fd, PAGE, DEVICE, 0, 0, &good.handle));
	must_refuse(fd, DRM_IOCTL_TXDA_BO_ADVISE, &good, sizeof(good), wrong, ARRAY_SIZE(wrong));
	must_fault(fd, DRM_IOCTL_TXDA_BO_ADVISE, &good, sizeof(good));
}

TEST(mapped_or_idle)
{
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), handle;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		for (uint32_t vm_id = 0; vm_id <= vm; vm_id += vm) {
			must(bo_create(fd, 4 * PAGE, places[i], 0, vm_id, &handle));
			must(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * PAGE));
			must_fail(advise(fd, handle, DRM_TXDA_COLD), EBUSY);
			must_fail(advise(fd, handle, DRM_TXDA_DONTNEED), EBUSY);
			check_equal(must_advise(fd, handle, DRM_TXDA_WILLNEED), 1);

			/* Two pieces are left; each counts. */
			must(bind_one(fd, vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA + PAGE, PAGE));
			must(bind_one(fd, vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, PAGE));
			must_fail(advise(fd, handle, DRM_TXDA_COLD), EBUSY);
			must(bind_one(fd, vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 4 * PAGE));

			check_equal(must_advise(fd, handle, DRM_TXDA_COLD), 1);
			must_fail(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, PAGE), EBUSY);
			check_equal(must_advise(fd, handle, DRM_TXDA_DONTNEED), 1);
			must_fail(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, PAGE), EBUSY);
			check_equal(must_advise(fd, handle, DRM_TXDA_COLD), 1);
			check_equal(must_advise(fd, handle, DRM_TXDA_WILLNEED), 1);
			must(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * PAGE));
			must(bind_one(fd, vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 4 * PAGE));
			must(gem_close(fd, handle));
		}
	}
}

/* An address space that goes lets go of its buffers. */
TEST(vm_goes)
{
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), handle;

	must(bo_create(fd, 4 * PAGE, DEVICE, 0, 0, &handle));
	must(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * PAGE));
	must_fail(advise(fd, handle, DRM_TXDA_COLD), EBUSY);
	must(vm_destroy(fd, vm));
	must_advise(fd, handle, DRM_TXDA_COLD);
}

TEST(shared)
{
	struct drm_txda_bo_from_userptr user = {.size = PAGE};
	int fd = must_open(0), buf;
	uint32_t handle;
	void *page;

	must(bo_create(fd, PAGE, DEVICE, 0, 0, &handle));
	must_advise(fd, handle, DRM_TXDA_DONTNEED);
	must_fail(to_fd(fd, handle, DRM_RDWR, &buf), EBUSY);
	must_advise(fd, handle, DRM_TXDA_WILLNEED);
	buf = must_export(fd, handle);
	must_fail(advise(fd, handle, DRM_TXDA_DONTNEED), EPERM);
	check_equal(must_advise(fd, handle, DRM_TXDA_WILLNEED), 1);

	/* By another file, and by another chip. */
	for (unsigned int chip = 0; chip < 2 && chip < node_count(); chip++) {
		int other = must_open(chip);
		uint32_t imported = must_import(other, buf);

		must_fail(advise(other, imported, DRM_TXDA_COLD), EPERM);
		must(gem_close(other, imported));
	}
	close(buf);
	must_fail(advise(fd, handle, DRM_TXDA_DONTNEED), EPERM);

	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	user.va = (uintptr_t)page;
	must(call(fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &user));
	must_fail(advise(fd, user.handle, DRM_TXDA_COLD), EPERM);
}

/* ---- What becomes of contents --------------------------------------------------------------- */

TEST(cpu_waits)
{
	int fd = must_open(0);

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct mem m = must_words(fd, 3 * MIB, places[i], 5);

		check(can_read(m.cpu));
		must_advise(fd, m.handle, DRM_TXDA_COLD);
		check(!can_read(m.cpu));
		must_advise(fd, m.handle, DRM_TXDA_DONTNEED);
		check(!can_read(m.cpu));
		check_equal(must_advise(fd, m.handle, DRM_TXDA_WILLNEED), 1);
		check(can_read(m.cpu));
		check_words(m.cpu, m.bytes, 5);
	}
}

TEST(moves)
{
	int fd = must_open(0);
	struct mem cold = must_words(fd, 6 * MIB + PAGE, DEVICE, 1);
	struct mem used = must_words(fd, 2 * MIB, DEVICE, 2);
	struct drm_txda_memory_info before = must_memory(fd), after;
	struct filling f;

	check_equal(must_advise(fd, cold.handle, DRM_TXDA_COLD), 1);
	check_equal(place_of(fd, cold.handle), DEVICE);
	must_fill(fd, &f, PAGE);
	check_equal(place_of(fd, cold.handle), HOST);
	check_equal(place_of(fd, used.handle), DEVICE);
	check_words(used.cpu, used.bytes, 2);
	after = must_memory(fd);
	check_equal(after.client_host_used, before.client_host_used + cold.bytes);
	check_equal(after.host_used, before.host_used + cold.bytes);

	/* There is no room, and it stays idle. */
	must_fail(advise(fd, cold.handle, DRM_TXDA_WILLNEED), ENOSPC);
	check_equal(place_of(fd, cold.handle), HOST);
	check(!can_read(cold.cpu));
	must_empty(fd, &f);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_equal(place_of(fd, cold.handle), DEVICE);
	check_words(cold.cpu, cold.bytes, 1);
	after = must_memory(fd);
	check_equal(after.client_device_used, before.client_device_used);
	check_equal(after.host_used, before.host_used);
}

TEST(drops)
{
	int fd = must_open(0);
	struct mem first = must_words(fd, 4 * MIB, DEVICE, 1);
	struct mem second = must_words(fd, 4 * MIB, DEVICE, 2);
	struct drm_txda_memory_info before;
	struct filling f;

	must_advise(fd, first.handle, DRM_TXDA_DONTNEED);
	must_advise(fd, second.handle, DRM_TXDA_COLD);
	must_fill(fd, &f, PAGE);
	before = must_memory(fd);
	/* What was moved can be dropped, too. */
	check_equal(must_advise(fd, second.handle, DRM_TXDA_DONTNEED), 0);
	check_equal(must_memory(fd).host_used, before.host_used - second.bytes);
	must_empty(fd, &f);
	check_equal(must_advise(fd, first.handle, DRM_TXDA_COLD), 0);
	check_equal(must_advise(fd, first.handle, DRM_TXDA_WILLNEED), 0);
	check_equal(must_advise(fd, first.handle, DRM_TXDA_WILLNEED), 1);
	check_equal(must_advise(fd, second.handle, DRM_TXDA_WILLNEED), 0);
	check(is_filled(first.cpu, first.bytes, 0));
	check(is_filled(second.cpu, second.bytes, 0));
}

/* One that may be dropped goes before one that must be moved, however long idle that is. */
TEST(drops_before_it_moves)
{
	int fd = must_open(0);
	struct mem cold = must_words(fd, 4 * MIB, DEVICE, 1);
	struct mem waste = must_words(fd, 4 * MIB, DEVICE, 2);
	struct filling f;
	uint32_t handle;

	must_fill(fd, &f, PAGE);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_advise(fd, waste.handle, DRM_TXDA_DONTNEED);
	must(bo_create(fd, 4 * MIB, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle));
	check_equal(place_of(fd, cold.handle), DEVICE);
	check_equal(must_advise(fd, waste.handle, DRM_TXDA_COLD), 0);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_words(cold.cpu, cold.bytes, 1);
}

/* Host memory goes when the machine's is short; here somebody says that it is. */
TEST(shrinks)
{
	int fd = must_open(0), drop;
	struct mem waste = must_words(fd, 3 * MIB, HOST, 1);
	struct mem cold = must_words(fd, 3 * MIB, HOST, 2);
	struct drm_txda_memory_info before = must_memory(fd);

	drop = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	if (drop < 0)
		skip("only root can make memory short");
	must_advise(fd, waste.handle, DRM_TXDA_DONTNEED);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	check(write(drop, "2", 1) == 1);
	close(drop);
	check_equal(must_memory(fd).host_used, before.host_used - waste.bytes);
	check_equal(must_advise(fd, waste.handle, DRM_TXDA_WILLNEED), 0);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_equal(must_memory(fd).host_used, before.host_used);
	check(is_filled(waste.cpu, waste.bytes, 0));
	check_words(cold.cpu, cold.bytes, 2);
}

/* DRAM is lost in a reset of the function, but not what has left it before. */
TEST(outlives_reset)
{
	struct mem cold, waste;
	int fd = must_open(0), reset;
	struct filling f;
	struct stat st;
	char path[96];

	must(fstat(fd, &st) ? -errno : 0);
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/device/reset", major(st.st_rdev),
		 minor(st.st_rdev));
	reset = open(path, O_WRONLY | O_CLOEXEC);
	if (reset < 0)
		skip("only root resets functions");
	cold = must_words(fd, 4 * MIB, DEVICE, 4);
	waste = must_words(fd, MIB, DEVICE, 5);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_advise(fd, waste.handle, DRM_TXDA_DONTNEED);
	must_fill(fd, &f, 16 * PAGE);
	check(write(reset, "1", 1) == 1);
	must_empty(fd, &f);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_words(cold.cpu, cold.bytes, 4);
	check_equal(must_advise(fd, waste.handle, DRM_TXDA_WILLNEED), 0);
	check(is_filled(waste.cpu, waste.bytes, 0));
	close(reset);
}

/* ---- Limits of control groups --------------------------------------------------------------- */

/* A group at its limit makes room with its own idle buffers, while the chip has plenty. */
TEST(group_limit)
{
	const char *group = must_group();
	int fd = must_open(0);
	struct mem other = must_words(fd, 2 * MIB, DEVICE, 9);
	struct mem used, cold, waste;
	uint32_t handle, last;

	must_advise(fd, other.handle, DRM_TXDA_DONTNEED);
	must_limit(group, "dmem.max", 8 * MIB);
	must_enter(group);
	used = must_words(fd, 2 * MIB, DEVICE, 1);
	cold = must_words(fd, 3 * MIB, DEVICE, 2);
	waste = must_words(fd, 3 * MIB, DEVICE, 3);
	must_fail(bo_create(fd, 2 * MIB, DEVICE, 0, 0, &handle), ENOSPC);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_advise(fd, waste.handle, DRM_TXDA_DONTNEED);

	/* First what may be dropped, then what must move; and no more than necessary. */
	must(bo_create(fd, 2 * MIB, DEVICE, 0, 0, &handle));
	check_equal(place_of(fd, waste.handle), HOST);
	check_equal(place_of(fd, cold.handle), DEVICE);
	must(bo_create(fd, 2 * MIB, DEVICE, 0, 0, &last));
	check_equal(place_of(fd, cold.handle), HOST);

	/* Nothing is left to make room with, of this group. */
	must_fail(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &handle), ENOSPC);
	must_fail(advise(fd, cold.handle, DRM_TXDA_WILLNEED), ENOSPC);
	check_equal(must_advise(fd, other.handle, DRM_TXDA_COLD), 1);
	check_words(used.cpu, used.bytes, 1);

	/* What comes back makes room as well. */
	must_advise(fd, last, DRM_TXDA_DONTNEED);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_equal(place_of(fd, last), HOST);
	check_words(cold.cpu, cold.bytes, 2);
	check_equal(must_advise(fd, waste.handle, DRM_TXDA_COLD), 0);
	check_words(used.cpu, used.bytes, 1);
	must_limit(group, "dmem.max", UINT64_MAX / 2);
}

/* A full chip takes from groups what they have beyond their protection. */
TEST(group_protected)
{
	const char *group = must_group();
	int fd = must_open(0);
	struct filling f;
	struct mem cold;

	must_limit(group, "dmem.min", 8 * MIB);
	must_enter(group);
	cold = must_words(fd, 4 * MIB, DEVICE, 1);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_enter("/sys/fs/cgroup");
	must_fill(fd, &f, PAGE);
	check_equal(place_of(fd, cold.handle), DEVICE);

	must_empty(fd, &f);
	must_limit(group, "dmem.min", 0);
	/* What is asked to be spared if possible is not possible here. */
	must_limit(group, "dmem.low", 8 * MIB);
	must_fill(fd, &f, PAGE);
	check_equal(place_of(fd, cold.handle), HOST);
	must_empty(fd, &f);
	must_limit(group, "dmem.low", 0);
	check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
	check_words(cold.cpu, cold.bytes, 1);
}

/* ---- All at once ---------------------------------------------------------------------------- */

#define RACE_BYTES (2 * MIB)
#define RACE_TURNS 12

static struct race {
	pthread_barrier_t ready;
	uint32_t shared;
	bool over;
} racing;

/* Its buffer is idle, comes back, and the chip reads it; again and again. */
static void *race_user(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg, moved = 0;
	struct client c = must_client(0);
	struct mem m = must_words(c.fd, RACE_BYTES, DEVICE, seed);
	struct mem seen = must_mem(c.fd, c.vm, RACE_BYTES);

	pthread_barrier_wait(&racing.ready);
	for (uint32_t i = 0; i < RACE_TURNS; i++) {
		int err;

		must_advise(c.fd, m.handle, DRM_TXDA_COLD);
		for (uint32_t n = 0; n < 100 && place_of(c.fd, m.handle) == DEVICE; n++)
			usleep(1000);
		moved += place_of(c.fd, m.handle) == HOST;
		while ((err = advise(c.fd, m.handle, DRM_TXDA_WILLNEED)) == -ENOSPC)
			usleep(1000);
		must(err);
		/* Page tables need room as well. */
		while ((err = bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, 0, VA,
				       RACE_BYTES)) == -ENOSPC)
			usleep(1000);
		must(err);
		must(dev_copy(&c, seen.va, VA, RACE_BYTES));
		check_words(seen.cpu, RACE_BYTES, seed);
		seed += 7;
		put_words(m.cpu, RACE_BYTES, seed);
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, RACE_BYTES));
	}
	return (void *)(uintptr_t)moved;
}

/* Memory is short every now and then. */
static void *race_filler(void *arg)
{
	struct filling f;
	int fd = must_open(0);

	(void)arg;
	pthread_barrier_wait(&racing.ready);
	while (!__atomic_load_n(&racing.over, __ATOMIC_RELAXED)) {
		must_fill(fd, &f, MIB / 4);
		must_empty(fd, &f);
		usleep(2000);
	}
	return NULL;
}

/* Two threads that give contradicting advice on a buffer, and use it. */
static void *race_quarrel(void *arg)
{
	int fd = *(int *)arg;

	for (uint32_t i = 0; !__atomic_load_n(&racing.over, __ATOMIC_RELAXED); i++) {
		int err = advise(fd, racing.shared, i % 3);

		if (err && err != -EBUSY && err != -ENOSPC)
			fail("%s", strerror_of(err));
		usleep(200);
	}
	return NULL;
}

TEST(race)
{
	int fd = must_open(0);
	pthread_t user[2], filler, quarrel[2];
	uintptr_t moved = 0;

	must(bo_create(fd, MIB, DEVICE, 0, 0, &racing.shared));
	check(!pthread_barrier_init(&racing.ready, NULL, 3));
	check(!pthread_create(&filler, NULL, race_filler, NULL));
	for (uintptr_t i = 0; i < 2; i++) {
		check(!pthread_create(&user[i], NULL, race_user, (void *)(i * 1000 + 1)));
		check(!pthread_create(&quarrel[i], NULL, race_quarrel, &fd));
	}
	for (uint32_t i = 0; i < 2; i++) {
		void *count;

		pthread_join(user[i], &count);
		moved += (uintptr_t)count;
	}
	__atomic_store_n(&racing.over, true, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(quarrel[i], NULL);
	pthread_join(filler, NULL);
	printf("moved %u times\n", (unsigned int)moved);
	check(moved);
}

/* ---- What makes no room ----------------------------------------------------------------------- */

/* Nobody's memory is taken for a buffer that could not have its place if all of it were free. */
TEST(never_fits)
{
	int fd = must_open(0);
	struct drm_txda_memory_info memory = must_memory(fd);
	struct mem cold = must_words(fd, MIB, DEVICE, 1);
	uint32_t handle;

	check(memory.device_mappable < memory.device_bytes);
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_fail(bo_create(fd, memory.device_mappable + MIB, DEVICE, 0, 0, &handle), ENOSPC);
	must_fail(bo_create(fd, memory.device_bytes + MIB, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle),
		  ENOSPC);
	check_equal(place_of(fd, cold.handle), DEVICE);
}

/* Nor for one that the aperture has no room for beside what is in use. */
TEST(no_room_in_aperture)
{
	int fd = must_open(0);
	struct mem cold = must_words(fd, MIB, DEVICE, 1);
	uint32_t handle;

	for (uint64_t bytes = 1ull << 40; bytes >= MIB; bytes /= 2)
		while (!bo_create(fd, bytes, DEVICE, 0, 0, &handle))
			;
	must_advise(fd, cold.handle, DRM_TXDA_COLD);
	must_fail(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &handle), ENOSPC);
	check_equal(place_of(fd, cold.handle), DEVICE);
}

/* Contents move for somebody who may not write files of their size, or any. */
TEST(file_size_limit)
{
	static const rlim_t limits[] = {0, MIB / 4, MIB / 4 + 4096};
	struct filling f;
	struct mem cold;
	int fd = must_open(0);

	for (uint32_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit old, limit;

		cold = must_words(fd, MIB, DEVICE, i);
		must_advise(fd, cold.handle, DRM_TXDA_COLD);
		check(!getrlimit(RLIMIT_FSIZE, &old));
		limit = (struct rlimit){limits[i], old.rlim_max};
		check(!setrlimit(RLIMIT_FSIZE, &limit));
		must_fill(fd, &f, MIB / 4);
		check(!setrlimit(RLIMIT_FSIZE, &old));
		check_equal(place_of(fd, cold.handle), HOST);
		must_empty(fd, &f);
		check_equal(must_advise(fd, cold.handle, DRM_TXDA_WILLNEED), 1);
		check_words(cold.cpu, cold.bytes, i);
		must(gem_close(fd, cold.handle));
	}
}

static void hold(void)
{
	int fd = must_open(0);
	struct drm_txda_memory_info memory = must_memory(fd);
	uint64_t left = memory.device_bytes - memory.device_used;
	uint32_t handle;

	for (uint64_t bytes = 1ull << 40; bytes >= MIB; bytes /= 2)
		while (left >= bytes + HELD_BACK &&
		       !bo_create(fd, bytes, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle))
			left -= bytes;
	check(left < 2 * HELD_BACK);
	puts("held");
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "hold"))
		hold();
	return run_tests(argc, argv);
}
