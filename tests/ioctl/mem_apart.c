// SPDX-License-Identifier: MIT
/*
 * Two processes do not see each other's memory. One writes a secret to all kinds of memory and
 * ends, or is killed at any moment; the other reads whatever it can reach, by CPU and chip.
 */
#include "args.h"

#include <time.h>

#define SECRET 0x5ec7e75eu

static void must_not_have(const uint32_t *word, uint64_t bytes, const char *where)
{
	for (uint64_t i = 0; i < bytes / 4; i++) {
		if (word[i] == SECRET)
			fail("%s has the secret at byte %#llx", where, (unsigned long long)i * 4);
	}
}

static void fill(uint32_t *word, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		word[i] = SECRET;
}

static uint64_t device_left(int fd)
{
	struct drm_txda_memory_info info = must_memory(fd);

	return info.device_bytes - info.device_used;
}

/* A good part of it, but not so much that a small machine is busy for minutes. */
static uint64_t share_of(uint64_t bytes)
{
	return (bytes < 512 * MIB ? bytes / 2 : 256 * MIB) / MIB * MIB;
}

/* The secret in host and device memory, by CPU and chip, with many page tables and labels. */
static void keep_secrets(uint64_t device_bytes)
{
	static const uint64_t sizes[] = {PAGE, 5 * PAGE, MIB, 2 * MIB, 9 * MIB, 32 * MIB};
	struct client c = must_client(0);
	uint64_t va = VA, used = 0;

	for (unsigned int i = 0; used < device_bytes; i++) {
		uint64_t bytes = sizes[i % ARRAY_SIZE(sizes)];
		uint32_t handle, place = i % 5 == 4 ? HOST : DEVICE;
		bool hidden = i % 3 == 2;

		must(bo_create(c.fd, bytes, place, hidden ? DRM_TXDA_BO_NO_MMAP : 0,
			       i % 2 ? c.vm : 0, &handle));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, va, bytes));
		if (hidden)
			must(dev_fill(&c, va, bytes, SECRET));
		else
			fill(must_map(c.fd, handle, bytes), bytes);
		used += bytes;
		va += bytes + PAGE;
	}
}

/* Allocates @bytes of device memory in pieces of all sizes, and some of the host's. */
static void read_buffers(uint64_t bytes)
{
	static const uint64_t sizes[] = {64 * MIB, 3 * MIB, 16 * PAGE, PAGE, 2 * MIB};
	struct client c = must_client(0);
	struct mem m = must_mem(c.fd, c.vm, 64 * MIB);
	uint64_t used = 0;

	must_not_have(m.cpu, m.bytes, "host memory");
	for (unsigned int i = 0; used < bytes; i++) {
		uint64_t size = sizes[i % ARRAY_SIZE(sizes)];
		uint32_t handle;
		void *cpu;

		if (i % 2) {
			must(bo_create(c.fd, size, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle));
			must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, size));
			must(dev_copy(&c, m.va, VA, size));
			must_not_have(m.cpu, size, "what the chip sees of a new buffer");
		} else {
			must(bo_create(c.fd, size, DEVICE, 0, 0, &handle));
			cpu = must_map(c.fd, handle, size);
			must_not_have(cpu, size, "a new buffer in device memory");
			must(munmap(cpu, size) ? -errno : 0);
		}
		used += size;
	}
}

/* By a process of its own, which gives it all back. */
static void read_new_buffers(uint64_t bytes)
{
	pid_t pid = must_fork();

	if (!pid) {
		read_buffers(bytes);
		_exit(0);
	}
	must_end(pid);
}

/* Killed in the middle of allocations, binds and work of the chip. */
TEST(after_a_kill)
{
	int fd = must_open(0);
	uint64_t share = share_of(device_left(fd)), used = must_memory(fd).device_used;

	srand(1);
	for (int round = 0; round < 12; round++) {
		const struct timespec moment = {.tv_nsec = rand() % 300 * 1000000l};
		pid_t pid = must_fork();

		if (!pid) {
			close(fd);
			for (;;)
				keep_secrets(share / 4);
		}
		nanosleep(&moment, NULL);
		must_kill(pid);
		must_settle(fd, used);
		if (round % 4 == 3) {
			read_new_buffers(share + 64 * MIB);
			must_settle(fd, used);
		}
	}
}

/* While the other one lives: its addresses, handles and offsets are nothing to anybody else. */
TEST(at_its_side)
{
	int ready[2], done[2];
	struct client c;
	uint32_t handle;
	char byte;
	pid_t pid;

	must(pipe(ready) ? -errno : 0);
	must(pipe(done) ? -errno : 0);
	pid = must_fork();
	if (!pid) {
		struct client a = must_client(0);
		struct mem m[8];

		for (unsigned int i = 0; i < ARRAY_SIZE(m); i++) {
			m[i] = must_mem_in(a.fd, a.vm, 4 * MIB, i % 2 ? HOST : DEVICE);
			fill(m[i].cpu, m[i].bytes);
		}
		for (unsigned int i = 0; i < ARRAY_SIZE(m); i++)
			check(write(ready[1], &m[i].va, sizeof(m[i].va)) == sizeof(m[i].va));
		check(read(done[0], &byte, 1) == 1);
		/* And nobody has changed anything. */
		for (unsigned int i = 0; i < ARRAY_SIZE(m); i++)
			check(is_filled(m[i].cpu, m[i].bytes, SECRET));
		_exit(0);
	}

	c = must_client(0);
	struct mem out = must_mem(c.fd, c.vm, PAGE);

	for (int i = 0; i < 8; i++) {
		uint64_t va;

		check(read(ready[0], &va, sizeof(va)) == sizeof(va));
		/* The process's own first addresses are those of its own buffers. */
		if (va < out.va + PAGE)
			continue;
		check(dev_copy(&c, out.va, va, PAGE));
		must_new_queue(&c);
		check(dev_fill(&c, va, PAGE, 0));
		must_new_queue(&c);
	}
	must_not_have(out.cpu, PAGE, "what the chip copied");
	for (handle = 1; handle < 200; handle++) {
		struct drm_txda_bo_mmap_offset arg = {.handle = handle};

		if (handle == out.handle || handle == c.stream.mem.handle)
			continue;
		must_fail(call(c.fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg), ENOENT);
	}
	/* DRM hands offsets out from 4 GiB on; those of this file are known. */
	for (uint64_t offset = 1ull << 32; offset < (1ull << 32) + 256 * MIB; offset += PAGE) {
		void *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, c.fd, (off_t)offset);

		if (at == MAP_FAILED) {
			check(errno == EINVAL || errno == EACCES);
			continue;
		}
		must_not_have(at, PAGE, "a mapping at a guessed offset");
		munmap(at, PAGE);
	}
	check(write(done[1], &byte, 1) == 1);
	must_end(pid);
}

/* Every page that an address space can name, by strides: nothing but what was mapped is there. */
TEST(sweep)
{
	struct client c = must_client(0);
	struct mem out = must_mem(c.fd, c.vm, PAGE);
	struct drm_txda_device_info info = {0};
	uint64_t seed = 7;

	must(query(c.fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	for (int i = 0; i < 200; i++) {
		uint64_t va;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		/* Small addresses, the kernel's own layout, and anything at all. */
		va = i < 64    ? (uint64_t)i * PAGE
		     : i < 104 ? 1ull << (i - 64 + 12)
			       : (seed >> 11) % (1ull << info.va_bits);
		va = va / 8 * 8;
		if (va + 8 > c.stream.mem.va && va < out.va + PAGE)
			continue;
		if (!dev_copy(&c, out.va, va, 8))
			fail("the chip reads %#llx", (unsigned long long)va);
		must_new_queue(&c);
	}
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
