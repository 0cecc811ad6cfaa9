// SPDX-License-Identifier: MIT
/*
 * Buffers that files, chips and drivers share through PRIME, and a peer's memory over C2C.
 */
#include "args.h"

#include <sys/ioctl.h>

#include <linux/udmabuf.h>

/* ---- One chip ------------------------------------------------------------------------------- */

/* Through the same node it is the same buffer. */
TEST(same_node)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct client a = must_client(0), b = must_client(0);
		struct drm_txda_bo_query_info info;
		uint32_t handle, imported, *cpu;
		int buf, again;

		must(bo_create(a.fd, 2 * MIB, places[i], 0, 0, &handle));
		buf = must_export(a.fd, handle);
		check_equal(must_import(a.fd, buf), handle);
		again = must_export(a.fd, handle);
		check_equal(must_import(a.fd, again), handle);

		imported = must_import(b.fd, buf);
		info = must_info(b.fd, imported);
		check_equal(info.size, 2 * MIB);
		check_equal(info.place, places[i]);
		check_equal(info.flags, 0);
		must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 2 * MIB));
		must(dev_fill(&b, VA, 2 * MIB, 0x11112222));
		cpu = must_map(a.fd, handle, 2 * MIB);
		check(is_filled(cpu, 2 * MIB, 0x11112222));
		/* The first owner goes. */
		close(a.fd);
		close(buf);
		close(again);
		must(dev_fill(&b, VA, PAGE, 7));
		check(is_filled(cpu, PAGE, 7));
		check_equal(must_import(b.fd, must_export(b.fd, imported)), imported);
	}
}

/* A read-only dma-buf is read by the CPU and any chip; exporting it again grants no more. */
static void must_only_read(struct client *owner, uint32_t place, struct client *reader)
{
	struct mem back = must_mem(reader->fd, reader->vm, MIB);
	uint32_t handle, imported, *cpu;
	int buf = -1;

	must(bo_create(owner->fd, MIB, place, 0, 0, &handle));
	cpu = must_map(owner->fd, handle, MIB);
	for (uint32_t i = 0; i < MIB / 4; i++)
		cpu[i] = i * 5;
	must(to_fd(owner->fd, handle, 0, &buf));
	imported = must_import(reader->fd, buf);
	check_equal(must_import(reader->fd, buf), imported);
	check_equal(must_info(reader->fd, imported).place, place);
	check_equal(must_info(reader->fd, imported).size, MIB);

	must_fail(bind_one(reader->fd, reader->vm, DRM_TXDA_BIND_MAP, imported, 0, VA, MIB),
		  EACCES);
	must(bind_one(reader->fd, reader->vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, imported,
		      0, VA, MIB));
	must(dev_copy(reader, back.va, VA, MIB));
	check(!memcmp(back.cpu, cpu, MIB));
	check(dev_fill(reader, VA, PAGE, 1));
	must_new_queue(reader);

	{
		struct drm_txda_bo_mmap_offset arg = {.handle = imported};
		uint32_t *seen;

		must(call(reader->fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg));
		check(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, reader->fd,
			   (off_t)arg.offset) == MAP_FAILED);
		check_equal(errno, EACCES);
		seen = mmap(NULL, MIB, PROT_READ, MAP_SHARED, reader->fd, (off_t)arg.offset);
		check(seen != MAP_FAILED);
		check_equal(seen[7], 35);
		check(mprotect(seen, MIB, PROT_READ | PROT_WRITE));
		munmap(seen, MIB);
	}

	/* Given on it is the same dma-buf, and the owner keeps what he had. */
	close(buf);
	buf = must_export(reader->fd, imported);
	check(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0) == MAP_FAILED);
	check_equal(must_import(owner->fd, buf), handle);
	must(bind_one(owner->fd, owner->vm, DRM_TXDA_BIND_MAP, handle, 0, VA, MIB));
	must(dev_fill(owner, VA, MIB, 0x77));
	must(gem_close(reader->fd, imported));
	close(buf);
	must(dev_copy(reader, back.va, VA, MIB));
	check(is_filled(back.cpu, MIB, 0x77));
}

static void must_only_read_from(unsigned int chip)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct client a = must_client(0), b = must_client(chip);

		must_only_read(&a, places[i], &b);
	}
}

TEST(read_only)
{
	must_only_read_from(0);
}

TEST(read_only_peer)
{
	must_only_read_from(1);
}

TEST(refused)
{
	int fd = must_open(0), file = memfd_create("no dma-buf", MFD_CLOEXEC), buf;
	uint32_t vm = must_vm(fd), handle;

	must(bo_create(fd, PAGE, HOST, 0, vm, &handle));
	must_fail(to_fd(fd, handle, DRM_RDWR, &buf), EPERM);
	must(bo_create(fd, PAGE, DEVICE, 0, vm, &handle));
	must_fail(to_fd(fd, handle, DRM_RDWR, &buf), EPERM);
	must_fail(to_fd(fd, 0, DRM_RDWR, &buf), ENOENT);
	must_fail(to_fd(fd, handle + 50, DRM_RDWR, &buf), ENOENT);
	must_fail(from_fd(fd, file, &handle), EINVAL);
	must_fail(from_fd(fd, -1, &handle), EBADF);
	must_fail(from_fd(fd, fd, &handle), EINVAL);
}

/* The CPU maps a dma-buf directly, unless the buffer has no CPU access. */
TEST(map_buf)
{
	int fd = must_open(0), buf;
	uint32_t handle;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		uint32_t *a, *b;

		must(bo_create(fd, 3 * MIB, places[i], 0, 0, &handle));
		buf = must_export(fd, handle);
		a = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0);
		check(a != MAP_FAILED);
		a[0] = 5;
		/* The node's own offset comes later and changes nothing. */
		b = must_map(fd, handle, 3 * MIB);
		check_equal(b[0], 5);
		b[MIB / 2] = 6;
		check_equal(a[MIB / 2], 6);
		b = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 2 * MIB);
		check(b != MAP_FAILED);
		check_equal(b[0], 6);
		check(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, buf, 3 * MIB - PAGE) ==
		      MAP_FAILED);
		check(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, buf, 3 * MIB) == MAP_FAILED);
		close(buf);
		must(gem_close(fd, handle));
		check_equal(a[0], 5);
	}

	must(bo_create(fd, PAGE, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &handle));
	buf = must_export(fd, handle);
	check(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, buf, 0) == MAP_FAILED);
	check_equal(errno, EPERM);
	/* One that was exported for reading. */
	must(bo_create(fd, PAGE, DEVICE, 0, 0, &handle));
	must(to_fd(fd, handle, 0, &buf));
	check(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0) == MAP_FAILED);
	check(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, buf, 0) != MAP_FAILED);
}

/* ---- Other drivers -------------------------------------------------------------------------- */

TEST(foreign_importer)
{
	int vgem = -1, fd = must_open(0), buf;
	uint32_t handle;

	for (int i = 0; i < 8 && vgem < 0; i++) {
		char path[32], name[16] = "";
		struct drm_version version = {.name = name, .name_len = sizeof(name) - 1};

		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		vgem = open(path, O_RDWR | O_CLOEXEC);
		if (vgem >= 0 &&
		    (call(vgem, DRM_IOCTL_VERSION, &version) || strcmp(name, "vgem"))) {
			close(vgem);
			vgem = -1;
		}
	}
	if (vgem < 0)
		skip("there is no vgem to import into");

	must(bo_create(fd, MIB, HOST, 0, 0, &handle));
	must_import(vgem, must_export(fd, handle));
	must(bo_create(fd, MIB, DEVICE, 0, 0, &handle));
	buf = must_export(fd, handle);
	must_fail(from_fd(vgem, buf, &handle), EOPNOTSUPP);
}

/* A dma-buf of @pages pages from a memory file, whose memory is at *@ret_cpu. */
static int must_udmabuf(uint64_t pages, uint32_t **ret_cpu)
{
	struct udmabuf_create arg = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = pages * PAGE};
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), buf;

	if (dev < 0)
		skip("there is no /dev/udmabuf");
	arg.memfd = (uint32_t)memfd_create("udmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(ftruncate((int)arg.memfd, (off_t)(pages * PAGE)) ? -errno : 0);
	must(fcntl((int)arg.memfd, F_ADD_SEALS, F_SEAL_SHRINK) ? -errno : 0);
	*ret_cpu = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, (int)arg.memfd, 0);
	check(*ret_cpu != MAP_FAILED);
	buf = ioctl(dev, UDMABUF_CREATE, &arg);
	check(buf >= 0);
	close(dev);
	return buf;
}

TEST(foreign_exporter)
{
	const uint64_t bytes = 700 * PAGE;
	struct client c = must_client(0);
	uint32_t *cpu, *mapped, handle;
	int buf = must_udmabuf(700, &cpu);
	struct mem m = must_mem(c.fd, c.vm, bytes);
	struct drm_txda_bo_query_info info;

	for (uint32_t i = 0; i < bytes / 4; i++)
		cpu[i] = i ^ 0x5555;
	handle = must_import(c.fd, buf);
	info = must_info(c.fd, handle);
	check_equal(info.size, bytes);
	check_equal(info.place, HOST);
	check_equal(info.flags, DRM_TXDA_BO_IMPORTED);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, bytes));
	must(dev_copy(&c, m.va, VA, bytes));
	check(!memcmp(m.cpu, cpu, bytes));
	must(dev_fill(&c, VA + 350 * PAGE, 350 * PAGE, 3));
	check(is_filled(cpu + 350 * PAGE / 4, 350 * PAGE, 3));
	/* The exporter maps it for the CPU. */
	mapped = must_map(c.fd, handle, bytes);
	check_equal(mapped[1], 1 ^ 0x5555);
	/* Given on, it is the exporter's. */
	check_equal(must_import(c.fd, must_export(c.fd, handle)), handle);
	must(gem_close(c.fd, handle));
	close(buf);
	must(dev_fill(&c, VA, PAGE, 4));
	check(is_filled(cpu, PAGE, 4));
	check(is_filled(mapped, PAGE, 4));
}

/* ---- Two chips ------------------------------------------------------------------------------ */

TEST(peer_host)
{
	struct client a = must_client(0), b = must_client(1);
	struct drm_txda_bo_query_info info;
	uint32_t handle, imported, *cpu;

	must(bo_create(a.fd, 5 * MIB, HOST, 0, 0, &handle));
	imported = must_import(b.fd, must_export(a.fd, handle));
	info = must_info(b.fd, imported);
	check_equal(info.place, HOST);
	check_equal(info.flags, DRM_TXDA_BO_IMPORTED);
	must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 5 * MIB));
	must(bind_one(a.fd, a.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 5 * MIB));
	cpu = must_map(b.fd, imported, 5 * MIB);
	must(dev_fill(&a, VA, 5 * MIB, 0xaaaa));
	check(is_filled(cpu, 5 * MIB, 0xaaaa));
	must(dev_fill(&b, VA, 5 * MIB, 0xbbbb));
	check(is_filled(cpu, 5 * MIB, 0xbbbb));
}

TEST(peer_device)
{
	const uint64_t bytes = 9 * MIB + 3 * PAGE;
	struct client a = must_client(0), b = must_client(1);
	struct mem back = must_mem(b.fd, b.vm, bytes);
	struct drm_txda_memory_info before = must_memory(b.fd);
	struct drm_txda_bo_query_info info;
	uint32_t handle, imported, *cpu, *through;
	int buf;

	must(bo_create(a.fd, bytes, DEVICE, 0, 0, &handle));
	cpu = must_map(a.fd, handle, bytes);
	for (uint32_t i = 0; i < bytes / 4; i++)
		cpu[i] = i * 3;
	buf = must_export(a.fd, handle);
	imported = must_import(b.fd, buf);
	check_equal(must_import(b.fd, buf), imported);
	info = must_info(b.fd, imported);
	check_equal(info.size, bytes);
	check_equal(info.place, DEVICE);
	check_equal(info.flags, DRM_TXDA_BO_IMPORTED);
	/* It is the other chip's memory, and counts there. */
	check_equal(must_memory(b.fd).device_used, before.device_used);
	check_equal(must_memory(b.fd).client_device_used, 0);

	must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, bytes));
	must(dev_copy(&b, back.va, VA, bytes));
	check(!memcmp(back.cpu, cpu, bytes));
	must(dev_fill(&b, VA + 5 * PAGE, bytes - 5 * PAGE, 0xc2c));
	check(is_filled(cpu + 5 * PAGE / 4, bytes - 5 * PAGE, 0xc2c));
	check_equal(cpu[4 * PAGE / 4], 4 * PAGE / 4 * 3);
	/* The CPU sees it through either node, and through the dma-buf. */
	through = must_map(b.fd, imported, bytes);
	through[1] = 99;
	check_equal(cpu[1], 99);
	check_equal(must_import(b.fd, must_export(b.fd, imported)), imported);
	check_equal(must_import(a.fd, must_export(b.fd, imported)), handle);

	/* Read-only holds over C2C too. */
	must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, imported, 0, VA,
		      bytes));
	check(dev_fill(&b, VA, PAGE, 1));
	must_new_queue(&b);

	/* The mapping keeps the memory, whoever else lets go of it. */
	close(a.fd);
	close(buf);
	must(gem_close(b.fd, imported));
	must(dev_copy(&b, back.va, VA, bytes));
	check_equal(((uint32_t *)back.cpu)[1], 99);
}

/* Exactly 4 MiB go from the first chip to the second and 1 MiB comes back: perf counts that. */
TEST(peer_traffic)
{
	struct client a = must_client(0), b = must_client(1);
	struct mem near = must_mem_in(a.fd, a.vm, 4 * MIB, DEVICE);
	uint32_t handle, imported;

	must(bo_create(b.fd, 4 * MIB, DEVICE, 0, 0, &handle));
	imported = must_import(a.fd, must_export(b.fd, handle));
	must(bind_one(a.fd, a.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 4 * MIB));
	must(dev_fill(&a, near.va, 4 * MIB, 0xc2c));
	must(dev_copy(&a, VA, near.va, 4 * MIB));
	must(dev_copy(&a, near.va, VA + MIB, MIB));
	check(is_filled(near.cpu, 4 * MIB, 0xc2c));
}

TEST(peer_gives_back)
{
	struct client a = must_client(0), b = must_client(1);
	uint64_t used = must_memory(a.fd).device_used;
	uint32_t handle, imported;
	int buf;

	for (int i = 0; i < 10; i++) {
		must(bo_create(a.fd, 4 * MIB, DEVICE, 0, 0, &handle));
		buf = must_export(a.fd, handle);
		imported = must_import(b.fd, buf);
		must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 4 * MIB));
		must(gem_close(a.fd, handle));
		must(gem_close(b.fd, imported));
		close(buf);
		check_equal(must_memory(a.fd).device_used, used + 4 * MIB);
		must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 4 * MIB));
		must_settle(a.fd, used);
	}
}

/* Every chip of the card copies from every other one that a port leads to. */
TEST(peer_all)
{
	unsigned int n = node_count();
	uint32_t handle, *cpu;
	struct client c[8];
	int buf[8];

	if (n < 2)
		skip("one chip has no peers");
	check(n <= ARRAY_SIZE(c));
	for (unsigned int i = 0; i < n; i++) {
		c[i] = must_client(i);
		must(bo_create(c[i].fd, MIB, DEVICE, 0, 0, &handle));
		cpu = must_map(c[i].fd, handle, MIB);
		for (uint32_t k = 0; k < MIB / 4; k++)
			cpu[k] = i << 24 | k;
		buf[i] = must_export(c[i].fd, handle);
	}
	for (unsigned int i = 0; i < n; i++) {
		struct mem m = must_mem(c[i].fd, c[i].vm, MIB);

		for (unsigned int k = 0; k < n; k++) {
			uint32_t *word = m.cpu;
			int err;

			handle = must_import(c[i].fd, buf[k]);
			err = bind_one(c[i].fd, c[i].vm, DRM_TXDA_BIND_MAP, handle, 0, VA, MIB);
			if (err == -EXDEV) {
				fprintf(stderr, "  no port from chip %u to chip %u\n", i, k);
				continue;
			}
			must(err);
			must(dev_copy(&c[i], m.va, VA, MIB));
			check_equal(word[0], k << 24);
			check_equal(word[MIB / 4 - 1], k << 24 | (MIB / 4 - 1));
		}
	}
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
