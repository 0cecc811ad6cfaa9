// SPDX-License-Identifier: MIT
/*
 * BO_CREATE, BO_QUERY_INFO, BO_SET_LABEL, BO_MMAP_OFFSET and mmap(): what they take and refuse,
 * what is in new buffers, and how long they live.
 */
#include "args.h"

/* ---- BO_CREATE, BO_QUERY_INFO --------------------------------------------------------------- */

TEST(create)
{
	static const struct {
		uint64_t size, rounded;
		uint32_t places, flags, place;
	} good[] = {
		{1, PAGE, HOST, 0, HOST},
		{1, PAGE, DEVICE, 0, DEVICE},
		{PAGE, PAGE, HOST | DEVICE, 0, DEVICE},
		{PAGE + 1, 2 * PAGE, DEVICE, DRM_TXDA_BO_NO_MMAP, DEVICE},
		{3 * MIB - 5, 3 * MIB, HOST, DRM_TXDA_BO_WRITE_COMBINE, HOST},
		{5 * MIB, 5 * MIB, HOST, DRM_TXDA_BO_NO_MMAP | DRM_TXDA_BO_WRITE_COMBINE, HOST},
		{70 * MIB, 70 * MIB, DEVICE, 0, DEVICE},
	};
	int fd = must_open(0);
	uint32_t vm = must_vm(fd);

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		for (uint32_t vm_id = 0; vm_id <= vm; vm_id += vm) {
			struct drm_txda_bo_create arg = {
				.size = good[i].size,
				.places = good[i].places,
				.flags = good[i].flags,
				.vm_id = vm_id,
			};
			struct drm_txda_bo_query_info info;

			must(call(fd, DRM_IOCTL_TXDA_BO_CREATE, &arg));
			check_equal(arg.size, good[i].rounded);
			check(arg.handle);
			info = must_info(fd, arg.handle);
			check_equal(info.size, good[i].rounded);
			check_equal(info.place, good[i].place);
			check_equal(info.flags, good[i].flags);
			check_equal(info.vm_id, vm_id);
			must(gem_close(fd, arg.handle));
		}
	}
}

TEST(create_bad)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_bo_create, size, 0, EINVAL),
		BAD(struct drm_txda_bo_create, size, UINT64_MAX, EINVAL),
		BAD(struct drm_txda_bo_create, size, UINT64_MAX - PAGE + 1, EINVAL),
		BAD(struct drm_txda_bo_create, size, 1ull << 63, EINVAL),
		BAD(struct drm_txda_bo_create, size, 1ull << 62, ENOSPC),
		BAD(struct drm_txda_bo_create, size, 1ull << 45, ENOSPC),
		BAD(struct drm_txda_bo_create, places, 0, EINVAL),
		BAD(struct drm_txda_bo_create, places, 4, EINVAL),
		BAD(struct drm_txda_bo_create, places, HOST | 1u << 31, EINVAL),
		BAD(struct drm_txda_bo_create, flags, DRM_TXDA_BO_USERPTR, EINVAL),
		BAD(struct drm_txda_bo_create, flags, DRM_TXDA_BO_IMPORTED, EINVAL),
		BAD(struct drm_txda_bo_create, flags, 1u << 4, EINVAL),
		BAD(struct drm_txda_bo_create, flags, 1u << 31, EINVAL),
		BAD(struct drm_txda_bo_create, vm_id, 99, ENOENT),
		BAD(struct drm_txda_bo_create, vm_id, UINT32_MAX, ENOENT),
	};
	struct drm_txda_bo_create good = {.size = PAGE, .places = HOST};
	int fd = must_open(0);

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		good.places = places[i];
		must_refuse(fd, DRM_IOCTL_TXDA_BO_CREATE, &good, sizeof(good), bad,
			    ARRAY_SIZE(bad));
	}
	must_fault(fd, DRM_IOCTL_TXDA_BO_CREATE, &good, sizeof(good));
}

/* Device before host; -ENOSPC only when neither has room. */
TEST(create_where_there_is_room)
{
	int fd = must_open(0);
	struct drm_txda_memory_info memory = must_memory(fd);
	uint64_t left = memory.device_bytes - memory.device_used, bytes;
	uint32_t handle, n = 0;

	for (bytes = 1ull << 62; bytes >= MIB;) {
		int err = bytes > left
				  ? -ENOSPC
				  : bo_create(fd, bytes, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle);

		if (err == -ENOSPC) {
			bytes /= 2;
			continue;
		}
		must(err);
		left -= bytes;
		n++;
	}
	check(n);
	must_fail(bo_create(fd, 4 * MIB, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle), ENOSPC);
	must(bo_create(fd, 4 * MIB, DEVICE | HOST, 0, 0, &handle));
	check_equal(must_info(fd, handle).place, HOST);
	memory = must_memory(fd);
	check(memory.client_host_used >= 4 * MIB);
	check(memory.client_device_used + 8 * MIB > memory.device_bytes - 64 * MIB);
}

TEST(accounting)
{
	int fd = must_open(0), other = must_open(0);
	struct drm_txda_memory_info before = must_memory(fd), after;
	uint32_t a, b;

	check_equal(before.client_device_used, 0);
	check_equal(before.client_host_used, 0);
	check(before.device_mappable && before.device_mappable <= before.device_bytes);
	must(bo_create(fd, 3 * MIB, DEVICE, 0, 0, &a));
	must(bo_create(fd, 2 * MIB, HOST, 0, 0, &b));
	after = must_memory(fd);
	check_equal(after.client_device_used, 3 * MIB);
	check_equal(after.client_host_used, 2 * MIB);
	check_equal(after.device_used, before.device_used + 3 * MIB);
	check_equal(after.host_used, before.host_used + 2 * MIB);
	after = must_memory(other);
	check_equal(after.client_device_used, 0);
	check_equal(after.device_used, before.device_used + 3 * MIB);
	must(gem_close(fd, a));
	must(gem_close(fd, b));
	after = must_memory(fd);
	check_equal(after.client_device_used + after.client_host_used, 0);
	check_equal(after.device_used, before.device_used);
	check_equal(after.host_used, before.host_used);
}

TEST(query_bad)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_bo_query_info, handle, 0, ENOENT),
		BAD(struct drm_txda_bo_query_info, handle, 1000, ENOENT),
		BAD(struct drm_txda_bo_query_info, handle, UINT32_MAX, ENOENT),
	};
	struct drm_txda_bo_query_info good = {0};
	int fd = must_open(0), other = must_open(0);

	must(bo_create(fd, PAGE, HOST, 0, 0, &good.handle));
	must_refuse(fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &good, sizeof(good));
	must_fail(call(other, DRM_IOCTL_TXDA_BO_QUERY_INFO, &good), ENOENT);
	must(gem_close(fd, good.handle));
	must_fail(call(fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &good), ENOENT);
	must_fail(gem_close(fd, good.handle), EINVAL);
}

/* The id of an address space that is gone does not come back as another's. */
TEST(query_after_vm)
{
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), handle;

	must(bo_create(fd, PAGE, HOST, 0, vm, &handle));
	must(vm_destroy(fd, vm));
	check_equal(must_info(fd, handle).vm_id, 0);
	check_equal(must_vm(fd), vm);
	check_equal(must_info(fd, handle).vm_id, 0);
	must_fail(bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, PAGE), EINVAL);
}

/* ---- BO_SET_LABEL --------------------------------------------------------------------------- */

static int set_label(int fd, uint32_t handle, const char *label)
{
	struct drm_txda_bo_set_label arg = {.handle = handle, .label = (uintptr_t)label};

	return call(fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &arg);
}

TEST(label)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_bo_set_label, pad, 1, EINVAL),
		BAD(struct drm_txda_bo_set_label, handle, 0, ENOENT),
		BAD(struct drm_txda_bo_set_label, handle, 4242, ENOENT),
		BAD(struct drm_txda_bo_set_label, label, 8, EFAULT),
		BAD(struct drm_txda_bo_set_label, label, UINT64_MAX, EFAULT),
		BAD(struct drm_txda_bo_set_label, label, 1ull << 63, EFAULT),
	};
	struct drm_txda_bo_set_label good = {.label = (uintptr_t) "weights of layer 3"};
	char longest[DRM_TXDA_MAX_LABEL + 1] = "", *edge;
	int fd = must_open(0);

	must(bo_create(fd, PAGE, HOST, 0, 0, &good.handle));
	must_refuse(fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &good, sizeof(good));
	must(call(fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &good));
	if (!geteuid())
		check(is_in_debugfs("buffers", "weights of layer 3"));

	/* One byte more, and the longest. */
	memset(longest, 'x', sizeof(longest) - 1);
	must_fail(set_label(fd, good.handle, longest), E2BIG);
	if (!geteuid())
		check(is_in_debugfs("buffers", "weights of layer 3"));
	longest[sizeof(longest) - 2] = 0;
	must(set_label(fd, good.handle, longest));
	if (!geteuid())
		check(is_in_debugfs("buffers", longest) &&
		      !is_in_debugfs("buffers", "weights of layer 3"));
	must(set_label(fd, good.handle, ""));
	/* A string without an end, right before memory that is not there. */
	edge = at_the_edge(8);
	memset(edge, 'y', 8);
	must_fail(set_label(fd, good.handle, edge), EFAULT);
	must(set_label(fd, good.handle, NULL));
}

/* ---- New buffers are zero ------------------------------------------------------------------- */

TEST(zero)
{
	static const uint64_t sizes[] = {
		PAGE, 16 * PAGE, 17 * PAGE, 2 * MIB - PAGE, 2 * MIB, 7 * MIB + PAGE, 66 * MIB,
	};
	int fd = must_open(0);

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(places); i++) {
			uint64_t bytes = sizes[i / 2];
			uint32_t handle,
				flags = round == 2 && i % 2 == 0 ? DRM_TXDA_BO_WRITE_COMBINE : 0;
			uint32_t *cpu;

			must(bo_create(fd, bytes, places[i % 2], flags, 0, &handle));
			cpu = must_map(fd, handle, bytes);
			check(is_filled(cpu, bytes, 0));
			memset(cpu, 0xee, bytes);
			check(is_filled(cpu, bytes, 0xeeeeeeee));
			must(munmap(cpu, bytes) ? -errno : 0);
			must(gem_close(fd, handle));
		}
	}
}

/* The chip reads zeros from new buffers that no CPU has mapped. */
TEST(zero_for_the_chip)
{
	struct client c = must_client(0);
	struct mem out = must_mem(c.fd, c.vm, 4 * MIB);

	for (int round = 0; round < 4; round++) {
		uint32_t handle;

		must(bo_create(c.fd, 4 * MIB, DEVICE, DRM_TXDA_BO_NO_MMAP, c.vm, &handle));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * MIB));
		memset(out.cpu, 0xff, 4 * MIB);
		must(dev_copy(&c, out.va, VA, 4 * MIB));
		check(is_filled(out.cpu, 4 * MIB, 0));
		must(dev_fill(&c, VA, 4 * MIB, 0xdddddddd));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 4 * MIB));
		must(gem_close(c.fd, handle));
	}
}

TEST(write_combined)
{
	struct client c = must_client(0);
	struct mem out = must_mem(c.fd, c.vm, MIB);
	uint32_t handle, *cpu;

	must(bo_create(c.fd, MIB, HOST, DRM_TXDA_BO_WRITE_COMBINE, c.vm, &handle));
	cpu = must_map(c.fd, handle, MIB);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, MIB));
	for (uint32_t i = 0; i < MIB / 4; i++)
		cpu[i] = i * 7;
	must(dev_copy(&c, out.va, VA, MIB));
	check(!memcmp(out.cpu, cpu, MIB));
	must(dev_fill(&c, VA, MIB, 9));
	check(is_filled(cpu, MIB, 9));
}

/* ---- BO_MMAP_OFFSET and mmap() -------------------------------------------------------------- */

static int mmap_offset(int fd, uint32_t handle, uint64_t *ret_offset)
{
	struct drm_txda_bo_mmap_offset arg = {.handle = handle};
	int err = call(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg);

	*ret_offset = arg.offset;
	return err;
}

static int try_map(int fd, uint64_t bytes, int prot, int flags, uint64_t offset, void **ret_at)
{
	*ret_at = mmap(NULL, bytes, prot, flags, fd, (off_t)offset);
	return *ret_at == MAP_FAILED ? -errno : 0;
}

TEST(map_bad)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_bo_mmap_offset, pad, 1, EINVAL),
		BAD(struct drm_txda_bo_mmap_offset, handle, 0, ENOENT),
		BAD(struct drm_txda_bo_mmap_offset, handle, 555, ENOENT),
	};
	struct drm_txda_bo_mmap_offset good = {0};
	int fd = must_open(0), other = must_open(0), rw = PROT_READ | PROT_WRITE;
	uint64_t offset, none;
	uint32_t hidden;
	void *at;

	must(bo_create(fd, 4 * PAGE, DEVICE, 0, 0, &good.handle));
	must_refuse(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &good, sizeof(good));
	must_fail(mmap_offset(other, good.handle, &offset), ENOENT);
	must(mmap_offset(fd, good.handle, &offset));
	check(offset && offset % PAGE == 0);

	must(bo_create(fd, PAGE, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &hidden));
	must_fail(mmap_offset(fd, hidden, &none), EPERM);
	must(bo_create(fd, PAGE, HOST, DRM_TXDA_BO_NO_MMAP, 0, &hidden));
	must_fail(mmap_offset(fd, hidden, &none), EPERM);

	/* Neither more than there is, nor at another place, nor a copy, nor by others. */
	must_fail(try_map(fd, 5 * PAGE, rw, MAP_SHARED, offset, &at), EINVAL);
	must_fail(try_map(fd, PAGE, rw, MAP_SHARED, offset + PAGE, &at), EINVAL);
	must_fail(try_map(fd, 4 * PAGE, rw, MAP_SHARED, offset - PAGE, &at), EINVAL);
	must_fail(try_map(fd, PAGE, rw, MAP_SHARED, 0, &at), EINVAL);
	must_fail(try_map(fd, PAGE, rw, MAP_SHARED, (1ull << 47), &at), EINVAL);
	must_fail(try_map(fd, 4 * PAGE, rw, MAP_PRIVATE, offset, &at), EINVAL);
	must_fail(try_map(fd, 4 * PAGE, PROT_READ, MAP_PRIVATE, offset, &at), EINVAL);
	must_fail(try_map(other, 4 * PAGE, rw, MAP_SHARED, offset, &at), EACCES);
	must(try_map(fd, 4 * PAGE, rw, MAP_SHARED, offset, &at));
	check(is_filled(at, 4 * PAGE, 0));
	must(gem_close(fd, good.handle));
	must_fail(try_map(fd, 4 * PAGE, rw, MAP_SHARED, offset, &at), EACCES);
}

/* Handle, file and half of the mapping may go. */
TEST(map_lives)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int fd = must_open(0), other = must_open(0);
		uint64_t used = must_memory(other).device_used;
		uint32_t handle, *cpu;

		must(bo_create(fd, 8 * MIB, places[i], 0, 0, &handle));
		cpu = must_map(fd, handle, 8 * MIB);
		cpu[0] = 1;
		must(gem_close(fd, handle));
		close(fd);
		cpu[MIB] = 2;
		must(munmap(cpu, 4 * MIB) ? -errno : 0);
		check_equal(cpu[MIB], 2);
		must(munmap(cpu + 3 * MIB / 2, MIB) ? -errno : 0);
		check_equal(cpu[MIB], 2);
		check_equal(cpu[2 * MIB - 1], 0);
		/* It cannot grow over what is behind it. */
		check(mremap(cpu + MIB, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE) == MAP_FAILED);
		if (places[i] == DEVICE)
			check_equal(must_memory(other).device_used, used + 8 * MIB);
		must(munmap(cpu + MIB, 4 * MIB) ? -errno : 0);
		must_settle(other, used);
	}
}

TEST(map_over_fork)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int fd = must_open(0);
		uint32_t handle;
		volatile uint32_t *cpu;
		pid_t pid;

		must(bo_create(fd, 4 * MIB, places[i], 0, 0, &handle));
		cpu = must_map(fd, handle, 4 * MIB);
		cpu[0] = 11;
		pid = must_fork();
		if (!pid) {
			/* One page that the parent has touched, one that nobody has. */
			if (cpu[0] != 11)
				_exit(1);
			cpu[0] = 12;
			cpu[MIB / 2] = 13;
			_exit(0);
		}
		must_end(pid);
		check_equal(cpu[0], 12);
		check_equal(cpu[MIB / 2], 13);
	}
}

/* Touched in no order at all, through two mappings. */
TEST(map_everywhere)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const uint64_t bytes = 33 * MIB + 5 * PAGE, pages = bytes / PAGE;
		int fd = must_open(0);
		uint32_t handle, *a, *b;

		must(bo_create(fd, bytes, places[i], 0, 0, &handle));
		a = must_map(fd, handle, bytes);
		b = must_map(fd, handle, bytes);
		for (uint64_t k = 0; k < pages; k++)
			a[k * 3571 % pages * PAGE / 4] = (uint32_t)(k * 3571 % pages) + 1;
		for (uint64_t k = 0; k < pages; k++)
			check_equal(b[k * PAGE / 4], k + 1);
	}
}

static void stopped(int signal_number)
{
	_exit(signal_number);
}

/* Permissions of a mapping are the CPU's. */
TEST(map_read_only)
{
	int fd = must_open(0), status;
	uint64_t offset;
	uint32_t handle;
	void *at;
	pid_t pid;

	must(bo_create(fd, PAGE, DEVICE, 0, 0, &handle));
	must(mmap_offset(fd, handle, &offset));
	must(try_map(fd, PAGE, PROT_READ, MAP_SHARED, offset, &at));
	check(is_filled(at, PAGE, 0));
	pid = must_fork();
	if (!pid) {
		/* A signal that nobody handles would be in the kernel's log. */
		signal(SIGSEGV, stopped);
		*(volatile uint32_t *)at = 1;
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == SIGSEGV);
}

/* System calls read from and write to such memory. */
TEST(map_and_pipe)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int fd = must_open(0), ends[2];
		uint32_t handle;
		char *cpu;

		must(bo_create(fd, 2 * PAGE, places[i], 0, 0, &handle));
		cpu = must_map(fd, handle, 2 * PAGE);
		must(pipe(ends) ? -errno : 0);
		memset(cpu, 0x44, PAGE);
		check(write(ends[1], cpu, PAGE) == PAGE);
		check(read(ends[0], cpu + PAGE, PAGE) == PAGE);
		check(is_filled(cpu, 2 * PAGE, 0x44444444));
	}
}

/* A user's buffers are limited, counted over all files; root's are not. */
TEST(create_until_enough)
{
	int fds[2] = {must_open(0), must_open(0)};
	uint32_t handle, last = 0, n = 0;
	int err;

	if (!geteuid())
		skip("root has no limit");
	while (!(err = bo_create(fds[n % 2], PAGE, DEVICE, 0, 0, &handle))) {
		last = handle;
		check(++n < 1u << 20);
	}
	must_fail(err, EDQUOT);
	must_fail(bo_create(must_open(0), PAGE, HOST, 0, 0, &handle), EDQUOT);
	must(gem_close(fds[(n - 1) % 2], last));
	must(bo_create(fds[0], PAGE, HOST, 0, 0, &handle));
	close(fds[0]);
	must(bo_create(fds[1], PAGE, HOST, 0, 0, &handle));
}

static long page_tables_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[128];
	long kib = -1;

	check(status);
	while (kib < 0 && fgets(line, sizeof(line), status))
		sscanf(line, "VmPTE: %ld kB", &kib);
	fclose(status);
	check(kib >= 0);
	return kib;
}

static bool maps_huge_pages(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
	char line[64] = "";

	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	return strstr(line, "[always]");
}

/* A huge page of the CPU needs no table: 64 MiB of small ones would need 32 of 4 KiB. */
TEST(map_huge)
{
	const uint64_t bytes = 64 * MIB;
	int fd = must_open(0);
	uint32_t handle;
	uint64_t *at;
	long before, after;
	char *room;
	pid_t pid;

	must(bo_create(fd, bytes, DEVICE, 0, 0, &handle));
	at = must_map(fd, handle, bytes);
	check_equal((uintptr_t)at % (2 * MIB), 0);
	before = page_tables_kib();
	for (uint64_t i = 0; i < bytes; i += MIB) {
		check_equal(at[i / 8], 0);
		at[i / 8] = i + 1;
	}
	after = page_tables_kib();
	if (maps_huge_pages() && after - before > 64)
		fail("page tables have grown by %ld KiB", after - before);

	/* Parts of a huge page: without rights, gone, and in a child. */
	must(mprotect((char *)at + MIB, PAGE, PROT_READ) ? -errno : 0);
	check_equal(at[MIB / 8], MIB + 1);
	must(munmap((char *)at + 5 * MIB, PAGE) ? -errno : 0);
	check_equal(at[4 * MIB / 8], 4 * MIB + 1);
	at[(6 * MIB - 8) / 8] = 77;
	pid = must_fork();
	if (!pid)
		_exit(at[8 * MIB / 8] == 8 * MIB + 1 && at[(6 * MIB - 8) / 8] == 77 ? 0 : 1);
	must_end(pid);
	/* To where no huge page fits. */
	room = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(room != MAP_FAILED);
	at = mremap((char *)at + 32 * MIB, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
		    room + PAGE);
	check((char *)at == room + PAGE);
	for (uint64_t i = 0; i < 4 * MIB; i += MIB)
		check_equal(at[i / 8], 32 * MIB + i + 1);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
