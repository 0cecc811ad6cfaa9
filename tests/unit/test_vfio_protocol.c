// SPDX-License-Identifier: MIT
/* The protocol: greeting, information, memory, interrupts, accesses; and what peers get wrong. */
#include "vfio_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <linux/pci_regs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

static struct vf f;
static struct vf_chip *const c = &f.c[0];

/* Each of these tests connects by itself. */
static int setup(void **state)
{
	vf_new(&f, 1, VU_IRQ_MODE_MSIX, 0);
	return 0;
}

static int teardown(void **state)
{
	vf_free(&f);
	return 0;
}

static int ask(uint16_t command, const void *body, size_t bytes)
{
	return vf_call(c, command, body, bytes, NULL, 0, NULL, 0, NULL);
}

/* The reply comes in place of the request. */
static int answer(uint16_t command, void *body, size_t bytes)
{
	return vf_call(c, command, body, bytes, NULL, 0, body, bytes, NULL);
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int say_hello(uint16_t major, uint16_t minor, const char *json, size_t json_bytes, char *ret,
		     size_t room, uint32_t *ret_bytes)
{
	uint8_t ask[1024] = {0};
	struct vu_version version = {major, minor};
	char say[1024] = {0};
	int err;

	memcpy(ask, &version, sizeof(version));
	memcpy(ask + sizeof(version), json, json_bytes);
	memset(say, 0x5a, sizeof(say));
	err = vf_call(c, VU_VERSION, ask, sizeof(version) + json_bytes, NULL, 0, say, sizeof(say),
		      NULL);
	memcpy(ret, say + sizeof(version), room);
	*ret_bytes = 0;
	for (unsigned i = 0; i < sizeof(say); i++) {
		if ((uint8_t)say[i] != 0x5a)
			*ret_bytes = i + 1;
	}
	return err;
}

TEST(test_greeting)
{
	static const char json[] =
		"{\"capabilities\":{\"max_msg_fds\":16,\"x\":\"                  "
		"                      \"}}";
	struct vu_device_info info = {.argsz = sizeof(info)};
	char say[512];
	uint32_t bytes;

	vf_connect(c);
	/* Nothing before the greeting. */
	assert_int_equal(ask(VU_DEVICE_GET_INFO, &info, sizeof(info)), EPROTO);
	assert_int_equal(ask(VU_VERSION, "", 1), EINVAL);
	assert_int_equal(say_hello(1, 0, "", 0, say, sizeof(say), &bytes), EPROTO);
	/* The answer is not longer than the question, has a NUL and names the limits. */
	assert_int_equal(say_hello(0, 1, json, sizeof(json), say, sizeof(say), &bytes), 0);
	assert_true(bytes <= sizeof(struct vu_version) + sizeof(json));
	assert_non_null(strstr(say, "\"max_msg_fds\":16"));
	assert_int_equal(say_hello(0, 1, json, sizeof(json), say, sizeof(say), &bytes), EINVAL);
	assert_int_equal(answer(VU_DEVICE_GET_INFO, &info, sizeof(info)), 0);
	vf_disconnect(c);

	/* With little room for the answer. */
	for (size_t n = 0; n < sizeof(json); n++) {
		vf_connect(c);
		assert_int_equal(say_hello(0, 0, json, n, say, sizeof(say), &bytes), 0);
		assert_true(bytes <= sizeof(struct vu_version) + n);
		if (bytes > sizeof(struct vu_version))
			assert_non_null(memchr(say, 0, n));
		vf_disconnect(c);
	}
}

static int region_info(uint32_t index, uint32_t argsz, uint8_t *say, int *ret_fd)
{
	struct vu_region_info ask = {.argsz = argsz, .index = index};

	memset(say, 0, 128);
	return vf_call(c, VU_DEVICE_GET_REGION_INFO, &ask, sizeof(ask), NULL, 0, say, 128, ret_fd);
}

TEST(test_information)
{
	struct vu_device_info device = {.argsz = sizeof(device)};
	struct vu_irq_info irq = {.argsz = sizeof(irq)};
	uint8_t say[128];
	struct vu_region_info info;
	int fd;

	vf_attach(&f, c);
	assert_int_equal(answer(VU_DEVICE_GET_INFO, &device, sizeof(device)), 0);
	assert_int_equal(device.flags, VU_DEVICE_PCI | VU_DEVICE_RESETTABLE);
	assert_int_equal(device.regions, 9);
	assert_int_equal(device.irqs, 5);
	for (uint32_t i = 0; i < 9; i++) {
		static const uint64_t bytes[9] = {0x10000, 0, VF_MEM, 0, 0, 0, 0, 4096, 0};

		assert_int_equal(region_info(i, sizeof(info), say, &fd), 0);
		memcpy(&info, say, sizeof(info));
		assert_int_equal(info.argsz, sizeof(info));
		assert_int_equal(info.index, i);
		assert_int_equal(info.bytes, bytes[i]);
		assert_int_equal(info.flags, !bytes[i] ? 0 : i == 2 ? 7 : 3);
		assert_int_equal(info.offset, 0);
		assert_int_equal(fd >= 0, i == 2);
		if (fd >= 0)
			close(fd);
	}
	assert_int_equal(region_info(9, sizeof(info), say, NULL), EINVAL);
	assert_int_equal(region_info(UINT32_MAX, sizeof(info), say, NULL), EINVAL);
	for (uint32_t i = 0; i < 5; i++) {
		irq.index = i;
		assert_int_equal(answer(VU_DEVICE_GET_IRQ_INFO, &irq, sizeof(irq)), 0);
		assert_int_equal(irq.count, i == VU_IRQ_MSIX ? 17 : i == VU_IRQ_ERR);
	}
	irq.index = 5;
	assert_int_equal(ask(VU_DEVICE_GET_IRQ_INFO, &irq, sizeof(irq)), EINVAL);
	/* Commands that are not for servers, or not there. */
	assert_int_equal(ask(VU_DMA_READ, &irq, sizeof(irq)), EOPNOTSUPP);
	assert_int_equal(ask(0, NULL, 0), EOPNOTSUPP);
	assert_int_equal(ask(16, NULL, 0), EOPNOTSUPP);
	assert_int_equal(ask(0xffff, NULL, 0), EOPNOTSUPP);
}

/* A BAR that is larger than the DRAM is mapped in part. */
TEST(test_sparse)
{
	uint8_t say[128], byte = 0;
	struct vu_region_info info;
	struct vu_sparse_mmap sparse;
	int fd;

	vf_free(&f);
	vf_new(&f, 1, VU_IRQ_MODE_MSIX, 2 * VF_MEM);
	vf_attach(&f, c);
	vf_enable(c);
	assert_int_equal(region_info(2, sizeof(info), say, &fd), 0);
	memcpy(&info, say, sizeof(info));
	assert_int_equal(info.flags, 15);
	assert_int_equal(info.argsz, 64);
	assert_int_equal(info.bytes, 2 * VF_MEM);
	close(fd);
	assert_int_equal(region_info(2, 64, say, &fd), 0);
	memcpy(&info, say, sizeof(info));
	assert_int_equal(info.cap_offset, 32);
	memcpy(&sparse, say + 32, sizeof(sparse));
	assert_int_equal(sparse.id, 1);
	assert_int_equal(sparse.areas, 1);
	assert_int_equal(sparse.offset, 0);
	assert_int_equal(sparse.bytes, VF_MEM);
	close(fd);
	/* By message: DRAM, and nothing behind it. */
	assert_int_equal(vf_region_write(c, 2, VF_MEM - 1, "\x42", 1), 0);
	assert_int_equal(c->dram[VF_MEM - 1], 0x42);
	assert_int_equal(vf_region_read(c, 2, VF_MEM - 1, &byte, 1), 0);
	assert_int_equal(byte, 0x42);
	assert_int_equal(vf_region_write(c, 2, VF_MEM, "\x42", 1), 0);
	assert_int_equal(vf_region_read(c, 2, VF_MEM, &byte, 1), 0);
	assert_int_equal(byte, 0xff);
	assert_int_equal(vf_region_read(c, 2, 2 * VF_MEM, &byte, 1), EINVAL);
}

TEST(test_memory)
{
	const uint32_t rw = VU_DMA_READABLE | VU_DMA_WRITEABLE;
	struct vu_dma_unmap all = {sizeof(all), VU_DMA_UNMAP_ALL, 0, 0};
	int fd, fds[2], pipe_fds[2];
	unsigned before;

	vf_attach(&f, c);
	fd = memfd_create("more", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 65536), 0);
	assert_int_equal(pipe(pipe_fds), 0);
	before = open_fds();
	assert_int_equal(vf_dma_map(c, 0, 0, fd, 0, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, 1, 4096, fd, 0, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, 0, 4097, fd, 0, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, 0, 4096, fd, 1, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, 0, 4096, fd, 0, 4), EINVAL);
	assert_int_equal(vf_dma_map(c, 0, 4096, fd, 65536, rw), ERANGE);
	assert_int_equal(vf_dma_map(c, 0, 69632, fd, 0, rw), ERANGE);
	assert_int_equal(vf_dma_map(c, 0, 4096, fd, UINT64_MAX - 4095, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, UINT64_MAX - 4095, 8192, fd, 0, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, 0, 4096, pipe_fds[0], 0, rw), EINVAL);
	assert_int_equal(vf_dma_map(c, VF_GUEST - 4096, 8192, fd, 0, rw), EEXIST);
	assert_int_equal(vf_dma_map(c, VF_GUEST + VF_GUEST_BYTES - 4096, 4096, fd, 0, rw), EEXIST);
	fds[0] = fds[1] = fd;
	{
		const struct vu_dma_map ask = {sizeof(ask), rw, 0, 0, 4096};

		assert_int_equal(vf_call(c, VU_DMA_MAP, &ask, sizeof(ask), fds, 2, NULL, 0, NULL),
				 EINVAL);
	}
	assert_int_equal(open_fds(), before);
	/* The last page there is, one without a file, neighbours. */
	assert_int_equal(vf_dma_map(c, UINT64_MAX - 4095, 4096, fd, 0, rw), 0);
	assert_int_equal(vf_dma_map(c, 0, 4096, -1, 0, VU_DMA_READABLE), 0);
	assert_int_equal(vf_dma_map(c, 4096, 4096, fd, 4096, VU_DMA_READABLE), 0);
	assert_int_equal(vf_dma_map(c, 8192, 4096, fd, 8192, 0), 0);
	assert_int_equal(open_fds(), before + 3);
	/* Only whole regions go. */
	assert_int_equal(vf_dma_unmap(c, 0x20000, 4096), ENOENT);
	assert_int_equal(vf_dma_unmap(c, 0, 0), EINVAL);
	assert_int_equal(vf_dma_unmap(c, VF_GUEST, VF_GUEST_BYTES / 2), EINVAL);
	assert_int_equal(vf_dma_unmap(c, VF_GUEST + 4096, VF_GUEST_BYTES), EINVAL);
	assert_int_equal(vf_dma_unmap(c, UINT64_MAX, 2), EINVAL);
	assert_int_equal(vf_dma_unmap(c, 0, 12288), 0);
	assert_int_equal(open_fds(), before + 1);
	assert_int_equal(vf_dma_unmap(c, UINT64_MAX - 4095, 4096), 0);
	all.bytes = 1;
	assert_int_equal(ask(VU_DMA_UNMAP, &all, sizeof(all)), EINVAL);
	all.bytes = 0;
	assert_int_equal(answer(VU_DMA_UNMAP, &all, sizeof(all)), 0);
	assert_int_equal(all.bytes, VF_GUEST_BYTES);
	assert_int_equal(open_fds(), before - 1);
	close(fd);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TEST(test_vectors)
{
	const uint32_t bind = VU_IRQ_DATA_EVENTFD | VU_IRQ_ACTION_TRIGGER, none = VU_IRQ_DATA_NONE;
	const struct {
		uint32_t index, flags, start, count, n_fds;
	} bad[] = {
		{5, bind, 0, 1, 1},
		{VU_IRQ_MSI, bind, 0, 1, 1},
		{VU_IRQ_MSIX, bind, 17, 1, 1},
		{VU_IRQ_MSIX, bind, 16, 2, 2},
		{VU_IRQ_MSIX, bind, 1, UINT32_MAX, 2},
		{VU_IRQ_MSIX, bind, 0, 3, 2},
		{VU_IRQ_MSIX, bind, 0, 0, 0},
		{VU_IRQ_MSIX, bind | VU_IRQ_ACTION_MASK, 0, 1, 1},
		{VU_IRQ_MSIX, bind | VU_IRQ_DATA_NONE, 0, 1, 1},
		{VU_IRQ_MSIX, bind | 0x40, 0, 1, 1},
		{VU_IRQ_MSIX, VU_IRQ_DATA_BOOL | VU_IRQ_ACTION_TRIGGER, 0, 1, 0},
	};
	const uint32_t trigger = none | VU_IRQ_ACTION_TRIGGER;
	int fd = eventfd(0, EFD_CLOEXEC), fds[16], file = memfd_create("no", MFD_CLOEXEC);
	unsigned before;

	vf_attach(&f, c);
	vf_enable(c);
	before = open_fds();
	for (unsigned i = 0; i < 16; i++)
		fds[i] = fd;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		if (vf_set_irqs(c, bad[i].index, bad[i].flags, bad[i].start, bad[i].count, fds,
				bad[i].n_fds) != EINVAL)
			fail_msg("set %u is taken", i);
	/* Something that could block the chip when it is written to. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, bind, 0, 1, &file, 1), EINVAL);
	assert_int_equal(open_fds(), before);
	/* Replaced: the old one is closed. None: the vector is taken away. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, bind, 0, 16, fds, 16), 0);
	assert_int_equal(open_fds(), before);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, bind, 0, 1, NULL, 0), 0);
	assert_int_equal(open_fds(), before - 1);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, bind, 0, 1, &c->vector[0], 1), 0);
	/* The client's own trigger, masked and not. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, trigger, 0, 1, NULL, 0), 0);
	assert_true(vf_is_interrupted(c, 0));
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, none | VU_IRQ_ACTION_MASK, 0, 17, NULL, 0), 0);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, trigger, 0, 1, NULL, 0), 0);
	assert_false(vf_is_interrupted(c, 0));
	assert_int_equal(vf_read(c, TXDA_MSIX_PBA), 1);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, none | VU_IRQ_ACTION_UNMASK, 0, 17, NULL, 0),
			 0);
	assert_true(vf_is_interrupted(c, 0));
	assert_int_equal(vf_read(c, TXDA_MSIX_PBA), 0);
	/* All of them off. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, trigger, 0, 0, NULL, 0), 0);
	assert_int_equal(open_fds(), before - 17);
	/* The error interrupt takes one and gives it back. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_ERR, bind, 0, 1, &fd, 1), 0);
	assert_int_equal(open_fds(), before - 16);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_ERR, bind, 0, 2, fds, 2), EINVAL);
	assert_int_equal(vf_set_irqs(c, VU_IRQ_ERR, trigger, 0, 0, NULL, 0), 0);
	assert_int_equal(open_fds(), before - 17);
	close(fd);
	close(file);
}

TEST(test_accesses)
{
	uint8_t *buf = calloc(1, VU_MAX_TRANSFER + 1);
	struct vu_region_rw rw = {0, VU_REGION_BAR0, 4};

	vf_attach(&f, c);
	vf_enable(c);
	assert_non_null(buf);
	assert_int_equal(vf_region_read(c, 1, 0, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, 9, 0, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, UINT32_MAX, 0, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, 0, 0, buf, 0), EINVAL);
	assert_int_equal(vf_region_read(c, 0, 0xfffe, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, 0, UINT64_MAX, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, 7, 4093, buf, 4), EINVAL);
	assert_int_equal(vf_region_read(c, 7, 0, buf, 4096), 0);
	assert_int_equal(buf[0], 0xf4);
	assert_int_equal(buf[1], 0x1a);
	/* As large as it goes, and one more. */
	assert_int_equal(vf_region_write(c, 2, 4096, buf, VU_MAX_TRANSFER), 0);
	assert_memory_equal(c->dram + 4096, buf, 4096);
	assert_int_equal(vf_region_read(c, 2, 4096, buf, VU_MAX_TRANSFER), 0);
	assert_int_equal(vf_region_read(c, 2, 0, buf, VU_MAX_TRANSFER + 1), EINVAL);
	/* More promised than sent. */
	rw.count = 8;
	assert_int_equal(ask(VU_REGION_WRITE, &rw, sizeof(rw)), EINVAL);
	free(buf);
}

/* What a peer may send that is no message. The server hangs up and takes the next client. */
TEST(test_bad_frames)
{
	static const uint32_t sizes[] = {0, 1, 15, VU_MAX_MESSAGE + 1, UINT32_MAX};
	unsigned before;
	char byte;

	before = open_fds();
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct vu_header h = {.command = VU_VERSION, .bytes = sizes[i]};

		vf_connect(c);
		assert_int_equal(send(c->sock, &h, sizeof(h), MSG_NOSIGNAL), sizeof(h));
		assert_int_equal(recv(c->sock, &byte, 1, 0), 0);
		vf_disconnect(c);
	}
	/* Cut off in the header and in the body. */
	for (unsigned n = 1; n < 20; n++) {
		struct vu_header h = {.command = VU_VERSION, .bytes = 32};
		uint8_t bytes[32] = {0};

		memcpy(bytes, &h, sizeof(h));
		vf_connect(c);
		assert_int_equal(send(c->sock, bytes, n, MSG_NOSIGNAL), n);
		shutdown(c->sock, SHUT_WR);
		assert_int_equal(recv(c->sock, &byte, 1, 0), 0);
		vf_disconnect(c);
	}
	/* More descriptors than a message may have. */
	{
		struct vu_header h = {.command = VU_DMA_MAP, .bytes = sizeof(h)};
		struct iovec iov = {&h, sizeof(h)};
		char control[CMSG_SPACE(20 * sizeof(int))] __attribute__((aligned(8))) = {0};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control,
				     .msg_controllen = sizeof(control)};
		struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);

		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(20 * sizeof(int));
		for (unsigned i = 0; i < 20; i++)
			memcpy(CMSG_DATA(cm) + i * sizeof(int), &f.guest_fd, sizeof(int));
		vf_connect(c);
		assert_int_equal(sendmsg(c->sock, &msg, MSG_NOSIGNAL), sizeof(h));
		assert_int_equal(recv(c->sock, &byte, 1, 0), 0);
		vf_disconnect(c);
	}
	assert_int_equal(open_fds(), before);
	vf_attach(&f, c);
}

/* Sends a write of the power limit that nobody waits for. */
static void send_write(uint32_t flags, uint32_t region, uint32_t value)
{
	uint8_t bytes[sizeof(struct vu_header) + sizeof(struct vu_region_rw) + sizeof(value)];
	const struct vu_header h = {
		.id = 77, .command = VU_REGION_WRITE, .bytes = sizeof(bytes), .flags = flags};
	const struct vu_region_rw rw = {TXDA_REG_POWER_LIMIT_MW, region, sizeof(value)};

	memcpy(bytes, &h, sizeof(h));
	memcpy(bytes + sizeof(h), &rw, sizeof(rw));
	memcpy(bytes + sizeof(h) + sizeof(rw), &value, sizeof(value));
	assert_int_equal(send(c->sock, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
}

/* Writes that want no reply get none; replies to nothing are ignored. */
TEST(test_no_reply)
{
	vf_attach(&f, c);
	vf_enable(c);
	send_write(VU_NO_REPLY, VU_REGION_BAR0, 50000);
	assert_int_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 50000);
	/* An error is not told either. */
	send_write(VU_NO_REPLY, 9, 60000);
	send_write(VU_TYPE_REPLY, VU_REGION_BAR0, 60000);
	assert_int_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 50000);
}

/* A client that comes back finds the device as it was, and its memory and vectors gone. */
TEST(test_reconnect)
{
	unsigned before;

	before = open_fds();
	for (unsigned i = 0; i < 20; i++) {
		vf_attach(&f, c);
		vf_enable(c);
		if (i)
			assert_int_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 50000 + i - 1);
		vf_write(c, TXDA_REG_POWER_LIMIT_MW, 50000 + i);
		c->dram[1000] = (uint8_t)i;
		vf_disconnect(c);
		assert_int_equal(c->d->guest.n, 0);
		assert_int_equal(open_fds(), before);
	}
	vf_attach(&f, c);
	assert_int_equal(c->dram[1000], 19);
}

TEST_MAIN_EACH(setup, teardown)
