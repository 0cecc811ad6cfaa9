// SPDX-License-Identifier: MIT
/*
 * A machine whose DMA goes through bounce buffers (swiotlb=force): chip and CPU would see different
 * copies of host memory, so there is none; device memory works.
 */
#include "common.h"

#include <sys/ioctl.h>

#include <linux/udmabuf.h>

TEST(host_memory)
{
	int fd = must_open(0);
	uint32_t handle;

	must_fail(bo_create(fd, PAGE, DRM_TXDA_PLACE_HOST, 0, 0, &handle), EOPNOTSUPP);
	must_fail(bo_create(fd, MIB, DRM_TXDA_PLACE_HOST, DRM_TXDA_BO_WRITE_COMBINE, 0, &handle),
		  EOPNOTSUPP);
}

TEST(user_memory)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_txda_bo_from_userptr arg = {.va = (uintptr_t)at, .size = PAGE};

	check(at != MAP_FAILED);
	must_fail(call(must_open(0), DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg), EOPNOTSUPP);
}

/* Host memory of another driver. */
TEST(imported_memory)
{
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	int memfd = memfd_create("bounce", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct udmabuf_create create = {.memfd = (__u32)memfd, .size = PAGE};
	struct drm_prime_handle arg = {0};

	if (device < 0)
		skip("there is no /dev/udmabuf");
	check(!ftruncate(memfd, PAGE) && !fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	arg.fd = ioctl(device, UDMABUF_CREATE, &create);
	check(arg.fd >= 0);
	must_fail(call(must_open(0), DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg), EOPNOTSUPP);
}

TEST(device_memory)
{
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), queue = must_queue(fd, vm);
	struct mem mem = must_mem_in(fd, vm, MIB, DRM_TXDA_PLACE_DEVICE);
	struct stream s = {.mem = must_mem_in(fd, vm, PAGE, DRM_TXDA_PLACE_DEVICE)};
	const uint32_t *word = mem.cpu;

	put_fill(&s, mem.va, MIB, 0x0badcafe);
	must(submit_wait(fd, queue, s.mem.va, s.bytes));
	for (uint32_t i = 0; i < MIB / 4; i++)
		check_equal(word[i], 0x0badcafe);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
