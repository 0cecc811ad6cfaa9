// SPDX-License-Identifier: MIT
/*
 * Everything that memory's ioctls do, from many threads on the same few objects. No call has to
 * succeed; the kernel has to stand it, and in the end nothing is left.
 */
#include "args.h"

#include <pthread.h>

#define THREADS 6
#define ROUNDS	250
#define SLOTS	8

/* Shared by all threads, and not locked: whatever is in there may be gone. */
static int fds[2];
static volatile uint32_t handles[2][SLOTS], vms[2][SLOTS], queues[2][SLOTS], syncobjs[2][SLOTS];

static uint32_t rnd(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33) % below;
}

static void make_buffer(uint64_t *seed, int f, uint32_t slot)
{
	static const uint64_t sizes[] = {PAGE, 3 * PAGE, 2 * MIB, 2 * MIB + PAGE};
	uint32_t handle, vm = rnd(seed, 3) ? 0 : vms[f][rnd(seed, SLOTS)];

	if (!bo_create(fds[f], sizes[rnd(seed, 4)], 1 + rnd(seed, 3), rnd(seed, 4), vm, &handle))
		handles[f][slot] = handle;
}

static void make_user_buffer(uint64_t *seed, int f, uint32_t slot)
{
	void *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_txda_bo_from_userptr arg = {
		.va = (uintptr_t)at,
		.size = 2 * PAGE,
		.flags = rnd(seed, 2),
	};

	if (!call(fds[f], DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg))
		handles[f][slot] = arg.handle;
	munmap(at, 2 * PAGE);
}

static void touch(uint64_t *seed, int f, uint32_t slot)
{
	struct drm_txda_bo_query_info info = {.handle = handles[f][slot]};
	struct drm_txda_bo_mmap_offset arg = {.handle = handles[f][slot]};
	volatile char *at;

	if (call(fds[f], DRM_IOCTL_TXDA_BO_QUERY_INFO, &info) ||
	    call(fds[f], DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg))
		return;
	at = mmap(NULL, info.size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[f], (off_t)arg.offset);
	if (at == MAP_FAILED)
		return;
	for (int i = 0; i < 3; i++)
		at[rnd(seed, (uint32_t)info.size)] = 1;
	munmap((void *)at, info.size);
}

static void share(uint64_t *seed, int f, uint32_t slot)
{
	struct drm_prime_handle in = {0}, out = {
						  .handle = handles[f][slot],
						  .flags = DRM_CLOEXEC | DRM_RDWR,
					  };

	if (call(fds[f], DRM_IOCTL_PRIME_HANDLE_TO_FD, &out))
		return;
	in.fd = out.fd;
	if (!call(fds[!f], DRM_IOCTL_PRIME_FD_TO_HANDLE, &in))
		handles[!f][rnd(seed, SLOTS)] = in.handle;
	close(out.fd);
}

static void change(uint64_t *seed, int f)
{
	struct drm_txda_sync syncs[2] = {
		wait_for(syncobjs[f][rnd(seed, SLOTS)]),
		signals(syncobjs[f][rnd(seed, SLOTS)]),
	};
	struct drm_txda_bind_op ops[3] = {0};
	struct drm_txda_vm_bind arg = {
		.vm_id = vms[f][rnd(seed, SLOTS)],
		.flags = rnd(seed, 2) ? DRM_TXDA_VM_BIND_ASYNC : 0,
		.ops = array_of(ops, 1 + rnd(seed, 3), sizeof(ops[0])),
	};

	for (int i = 0; i < 3; i++) {
		ops[i].va = VA + rnd(seed, 1024) * PAGE;
		ops[i].size = PAGE << rnd(seed, 10);
		if (rnd(seed, 3)) {
			ops[i].bo = handles[f][rnd(seed, SLOTS)];
			ops[i].flags = rnd(seed, 4) ? 0 : DRM_TXDA_BIND_READONLY;
		} else {
			ops[i].flags = DRM_TXDA_BIND_UNMAP;
		}
		if (arg.flags)
			ops[i].syncs = array_of(&syncs[rnd(seed, 2)], 1, sizeof(syncs[0]));
	}
	call(fds[f], DRM_IOCTL_TXDA_VM_BIND, &arg);
}

static void run(uint64_t *seed, int f)
{
	struct drm_txda_sync sync = signals(syncobjs[f][rnd(seed, SLOTS)]);

	/* Rarely a good stream; its fault is as good a test. */
	submit(fds[f], queues[f][rnd(seed, SLOTS)], VA + rnd(seed, 1024) * PAGE, rnd(seed, 4) * 8,
	       &sync, 1);
}

static void one_step(uint64_t *seed)
{
	uint32_t slot = rnd(seed, SLOTS), id;
	int f = (int)rnd(seed, 2);

	switch (rnd(seed, 16)) {
	case 0:
		if (!vm_create(fds[f], &id))
			vms[f][slot] = id;
		break;
	case 1: vm_destroy(fds[f], vms[f][slot]); break;
	case 2:
	case 3: make_buffer(seed, f, slot); break;
	case 4: make_user_buffer(seed, f, slot); break;
	case 5:
	case 6: gem_close(fds[f], handles[f][slot]); break;
	case 7: share(seed, f, slot); break;
	case 8:
	case 9: touch(seed, f, slot); break;
	case 10:
		if (!queue_create_as(fds[f], vms[f][slot], rnd(seed, 2), 1, 0, &id))
			queues[f][slot] = id;
		break;
	case 11: queue_destroy(fds[f], queues[f][slot]); break;
	case 12: run(seed, f); break;
	default: change(seed, f);
	}
}

static void *racer(void *seed)
{
	uint64_t state = (uintptr_t)seed;

	for (int i = 0; i < ROUNDS; i++)
		one_step(&state);
	return NULL;
}

static void race(uint64_t seed)
{
	pthread_t threads[THREADS];

	for (int f = 0; f < 2; f++) {
		fds[f] = must_open(node_count() > 1 ? (unsigned int)f : 0);
		for (uint32_t i = 0; i < SLOTS; i++)
			syncobjs[f][i] = must_syncobj(fds[f]);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, racer, (void *)(seed * THREADS + i + 1)));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

TEST(races)
{
	int fd = must_open(0);
	uint64_t used = must_memory(fd).device_used;

	for (uint64_t seed = 0; seed < 3; seed++) {
		pid_t pid = must_fork();

		if (!pid) {
			close(fd);
			race(seed);
			_exit(0);
		}
		must_end(pid);
		must_settle(fd, used);
	}
	/* The chip is as good as before. */
	struct client c = must_client(0);

	must(submit_wait(c.fd, c.queue, 0, 0));
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
