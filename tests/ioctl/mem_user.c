// SPDX-License-Identifier: MIT
/*
 * BO_FROM_USERPTR: the caller's own memory as a buffer, and what it is charged for.
 */
#include "args.h"

#include <pthread.h>
#include <sys/resource.h>

static int from_userptr(int fd, const void *at, uint64_t bytes, uint32_t flags, uint32_t vm,
			uint32_t *ret_handle)
{
	struct drm_txda_bo_from_userptr arg = {
		.va = (uintptr_t)at,
		.size = bytes,
		.flags = flags,
		.vm_id = vm,
	};
	int err = call(fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg);

	if (!err)
		*ret_handle = arg.handle;
	return err;
}

static char *must_anonymous(uint64_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED);
	return at;
}

TEST(copies)
{
	struct client c = must_client(0);
	char *memory = must_anonymous(4 * MIB + 3 * PAGE);
	struct drm_txda_bo_query_info info = {0};
	const uint64_t bytes = 4 * MIB + 2 * PAGE;
	uint32_t *word = (uint32_t *)(memory + PAGE);
	struct mem m = must_mem(c.fd, c.vm, bytes);

	for (uint32_t vm = 0; vm <= c.vm; vm += c.vm) {
		memset(memory, 0x10 + (int)vm, 4 * MIB + 3 * PAGE);
		must(from_userptr(c.fd, memory + PAGE, bytes, 0, vm, &info.handle));
		must(call(c.fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &info));
		check_equal(info.size, bytes);
		check_equal(info.place, HOST);
		check_equal(info.flags, DRM_TXDA_BO_USERPTR);
		check_equal(info.vm_id, vm);
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, info.handle, 0, VA, bytes));
		must(dev_copy(&c, m.va, VA, bytes));
		check(!memcmp(m.cpu, word, bytes));
		must(dev_fill(&c, VA, bytes, 0x600df00d));
		check(is_filled(word, bytes, 0x600df00d));
		/* Not the page before. */
		check_equal(memory[PAGE - 1], 0x10 + (int)vm);
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, bytes));
		must(gem_close(c.fd, info.handle));
	}
}

TEST(bad)
{
	static const struct bad wrong[] = {
		BAD(struct drm_txda_bo_from_userptr, size, 0, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, size, 1, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, size, PAGE + 8, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, size, UINT64_MAX, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, size, -(uint64_t)PAGE, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, size, 1ull << 63, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, size, 3 * PAGE, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, va, 8, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, va, 0, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, va, PAGE, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, va, 1ull << 63, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, va, -(uint64_t)PAGE, EFAULT),
		BAD(struct drm_txda_bo_from_userptr, flags, 2, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, flags, 1u << 31, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, pad, 1, EINVAL),
		BAD(struct drm_txda_bo_from_userptr, vm_id, 31, ENOENT),
	};
	char *memory = must_anonymous(3 * PAGE);
	struct drm_txda_bo_from_userptr good = {.va = (uintptr_t)memory, .size = 2 * PAGE};
	int fd = must_open(0);

	must(munmap(memory + 2 * PAGE, PAGE) ? -errno : 0);
	must_refuse(fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &good, sizeof(good), wrong,
		    ARRAY_SIZE(wrong));
	must_fault(fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &good, sizeof(good));
	must(call(fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &good));
	check(good.handle);
}

TEST(read_only)
{
	struct client c = must_client(0);
	char *memory = must_anonymous(2 * PAGE);
	struct mem m = must_mem(c.fd, c.vm, 2 * PAGE);
	uint32_t handle;

	memset(memory, 0x21, 2 * PAGE);
	must(mprotect(memory, 2 * PAGE, PROT_READ) ? -errno : 0);
	must_fail(from_userptr(c.fd, memory, 2 * PAGE, 0, 0, &handle), EFAULT);
	must(from_userptr(c.fd, memory, 2 * PAGE, DRM_TXDA_USERPTR_READONLY, 0, &handle));
	must_fail(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 2 * PAGE), EACCES);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, handle, 0, VA,
		      2 * PAGE));
	must(dev_copy(&c, m.va, VA, 2 * PAGE));
	check(is_filled(m.cpu, 2 * PAGE, 0x21212121));
	check(dev_fill(&c, VA, PAGE, 0));
	check(is_filled(memory, 2 * PAGE, 0x21212121));
}

TEST(holes)
{
	int fd = must_open(0);
	char *memory = must_anonymous(16 * PAGE);
	uint32_t handle;

	must(mprotect(memory + 5 * PAGE, PAGE, PROT_NONE) ? -errno : 0);
	must_fail(from_userptr(fd, memory, 16 * PAGE, 0, 0, &handle), EFAULT);
	must(mprotect(memory + 5 * PAGE, PAGE, PROT_READ) ? -errno : 0);
	must_fail(from_userptr(fd, memory, 16 * PAGE, 0, 0, &handle), EFAULT);
	must(from_userptr(fd, memory, 16 * PAGE, DRM_TXDA_USERPTR_READONLY, 0, &handle));
	must(munmap(memory + 5 * PAGE, PAGE) ? -errno : 0);
	must_fail(from_userptr(fd, memory, 16 * PAGE, DRM_TXDA_USERPTR_READONLY, 0, &handle),
		  EFAULT);
	check_equal(pinned_kib(), 64);
}

/* Neither mapped by offset nor given away, nor made of a mapping of a buffer. */
TEST(no_more_than_that)
{
	int fd = must_open(0);
	char *memory = must_anonymous(PAGE);
	struct drm_txda_bo_mmap_offset offset = {0};
	uint32_t handle;
	void *cpu;
	int buf;

	must(from_userptr(fd, memory, PAGE, 0, 0, &offset.handle));
	must_fail(call(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &offset), EPERM);
	must_fail(to_fd(fd, offset.handle, DRM_RDWR, &buf), EPERM);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		must(bo_create(fd, PAGE, places[i], 0, 0, &handle));
		cpu = must_map(fd, handle, PAGE);
		memset(cpu, 0, PAGE);
		must_fail(from_userptr(fd, cpu, PAGE, 0, 0, &handle), EFAULT);
	}
}

/* Files on disk cannot be written behind their file system's back; memory files can. */
TEST(files)
{
	char path[] = "/tmp/txda-userptr-XXXXXX";
	int fd = must_open(0), file = mkstemp(path), memfd = memfd_create("userptr", MFD_CLOEXEC);
	uint32_t handle;
	char *at;

	check(file >= 0 && memfd >= 0);
	must(unlink(path) ? -errno : 0);
	must(ftruncate(memfd, 4 * PAGE) ? -errno : 0);
	at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	check(at != MAP_FAILED);
	must(from_userptr(fd, at, 4 * PAGE, 0, 0, &handle));

	must(ftruncate(file, 4 * PAGE) ? -errno : 0);
	at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	check(at != MAP_FAILED);
	must(from_userptr(fd, at, 4 * PAGE, 0, 0, &handle));
}

TEST(files_on_disk)
{
	const char *dir = getenv("TXDA_TEST_DISK");
	char path[256];
	int fd = must_open(0), file;
	uint32_t handle;
	char *at;

	if (!dir)
		skip("TXDA_TEST_DISK names no directory of a file system on a disk");
	snprintf(path, sizeof(path), "%s/userptr", dir);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	check(file >= 0);
	must(unlink(path) ? -errno : 0);
	must(ftruncate(file, 4 * PAGE) ? -errno : 0);
	at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	check(at != MAP_FAILED);
	must_fail(from_userptr(fd, at, 4 * PAGE, 0, 0, &handle), EOPNOTSUPP);
	check_equal(pinned_kib(), 0);
}

/* RLIMIT_MEMLOCK limits users without privileges. */
TEST(limit)
{
	const struct rlimit low = {64 * PAGE, 64 * PAGE};
	int fd = must_open(0);
	char *memory = must_anonymous(128 * PAGE);
	uint32_t a, b;
	pid_t pid;

	must(setrlimit(RLIMIT_MEMLOCK, &low) ? -errno : 0);
	if (!geteuid())
		must(setresuid(12345, 12345, 12345) ? -errno : 0);
	check_equal(pinned_kib(), 0);
	must_fail(from_userptr(fd, memory, 65 * PAGE, 0, 0, &a), EDQUOT);
	check_equal(pinned_kib(), 0);
	must(from_userptr(fd, memory, 40 * PAGE, 0, 0, &a));
	check_equal(pinned_kib(), 160);
	/* Each pin counts, also of pages that are pinned already. */
	must_fail(from_userptr(fd, memory, 25 * PAGE, 0, 0, &b), EDQUOT);
	/* As does what other processes of the user have pinned. */
	pid = must_fork();
	if (!pid) {
		must_fail(from_userptr(fd, memory, 25 * PAGE, 0, 0, &b), EDQUOT);
		must(from_userptr(fd, memory, 24 * PAGE, 0, 0, &b));
		check_equal(pinned_kib(), 96);
		must(gem_close(fd, b));
		_exit(0);
	}
	must_end(pid);
	must(from_userptr(fd, memory, 24 * PAGE, 0, 0, &b));
	check_equal(pinned_kib(), 256);
	/* A failure gives back what it took. */
	must(gem_close(fd, b));
	must(munmap(memory + 100 * PAGE, PAGE) ? -errno : 0);
	must_fail(from_userptr(fd, memory + 90 * PAGE, 20 * PAGE, 0, 0, &b), EFAULT);
	check_equal(pinned_kib(), 160);
	must(gem_close(fd, a));
	check_equal(pinned_kib(), 0);
	must(from_userptr(fd, memory, 64 * PAGE, 0, 0, &a));
	close(fd);
	check_equal(pinned_kib(), 0);
}

/* The buffer holds its pages, wherever the mapping goes; the charge stays with who made it. */
TEST(outlives_mapping)
{
	struct client c = must_client(0);
	char *memory = must_anonymous(8 * PAGE);
	struct mem m = must_mem(c.fd, c.vm, 8 * PAGE);
	uint32_t handle;
	pid_t pid;

	memset(memory, 0x35, 8 * PAGE);
	must(from_userptr(c.fd, memory, 8 * PAGE, 0, 0, &handle));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 8 * PAGE));
	must(gem_close(c.fd, handle));
	check_equal(pinned_kib(), 32);
	must(munmap(memory, 8 * PAGE) ? -errno : 0);
	must(dev_copy(&c, m.va, VA, 8 * PAGE));
	check(is_filled(m.cpu, 8 * PAGE, 0x35353535));

	/* A child has the file too, but is charged for nothing, and its end changes nothing. */
	pid = must_fork();
	if (!pid)
		_exit(pinned_kib() != 0);
	must_end(pid);
	check_equal(pinned_kib(), 32);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 8 * PAGE));
	check_equal(pinned_kib(), 0);
}

/* Who made it is gone, its file lives on in another process. */
TEST(outlives_process)
{
	struct client c = must_client(0);
	struct mem m = must_mem(c.fd, c.vm, PAGE);
	pid_t pid = must_fork();

	if (!pid) {
		char *memory = must_anonymous(PAGE);
		uint32_t handle;

		memset(memory, 0x46, PAGE);
		must(from_userptr(c.fd, memory, PAGE, 0, 0, &handle));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, PAGE));
		_exit(0);
	}
	must_end(pid);
	must(dev_copy(&c, m.va, VA, PAGE));
	check(is_filled(m.cpu, PAGE, 0x46464646));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, PAGE));
}

#define LOAD_BYTES (64ull * PAGE)
#define LOAD_TURNS 24

static struct load {
	char *memory;
	uint32_t turns;
	bool over;
} load;

/* Takes the pages out of the mapping in every way there is. */
static void *load_mapping(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&load.over, __ATOMIC_RELAXED)) {
		int status;
		pid_t pid;

		switch (__atomic_fetch_add(&load.turns, 1, __ATOMIC_RELAXED) % 6) {
		case 0: madvise(load.memory, LOAD_BYTES, MADV_DONTNEED); break;
		case 1: memset(load.memory, 0x77, LOAD_BYTES); break;
		case 2:
			mprotect(load.memory, LOAD_BYTES, PROT_NONE);
			mprotect(load.memory, LOAD_BYTES, PROT_READ | PROT_WRITE);
			break;
		case 3: madvise(load.memory, LOAD_BYTES, MADV_PAGEOUT); break;
		case 4:
			pid = fork();
			if (!pid) {
				memset(load.memory, 0x66, LOAD_BYTES);
				_exit(0);
			}
			check(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
			break;
		default:
			check(mmap(load.memory, LOAD_BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == load.memory);
		}
	}
	return NULL;
}

/* The chip works on the pages that the buffer was made of, whatever becomes of the mapping. */
TEST(under_load)
{
	struct client c = must_client(0);
	struct mem m = must_mem(c.fd, c.vm, LOAD_BYTES);
	pthread_t thread;
	uint32_t handle;

	load.memory = must_anonymous(LOAD_BYTES);
	memset(load.memory, 0x21, LOAD_BYTES);
	must(from_userptr(c.fd, load.memory, LOAD_BYTES, 0, 0, &handle));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, LOAD_BYTES));
	check(!pthread_create(&thread, NULL, load_mapping, NULL));
	/* The other thread has replaced the mapping before the chip begins, and does so again. */
	while (__atomic_load_n(&load.turns, __ATOMIC_RELAXED) < 6)
		usleep(1000);
	for (uint32_t i = 0; i < LOAD_TURNS; i++) {
		must(dev_fill(&c, VA, LOAD_BYTES, 0x1000 + i));
		must(dev_copy(&c, m.va, VA, LOAD_BYTES));
		check(is_filled(m.cpu, LOAD_BYTES, 0x1000 + i));
	}
	__atomic_store_n(&load.over, true, __ATOMIC_RELAXED);
	check(!pthread_join(thread, NULL));
	memset(load.memory, 0x55, LOAD_BYTES);
	must(dev_copy(&c, m.va, VA, LOAD_BYTES));
	check(is_filled(m.cpu, LOAD_BYTES, 0x1000 + LOAD_TURNS - 1));
	check(is_filled(load.memory, LOAD_BYTES, 0x55555555));
	check_equal(pinned_kib(), LOAD_BYTES >> 10);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, LOAD_BYTES));
	must(gem_close(c.fd, handle));
	check_equal(pinned_kib(), 0);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
