// SPDX-License-Identifier: MIT
/* The DRM backend on a kernel that is a fake: buffers, copies, and who shares them. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "drm_context.h"

static struct txda_context *context;

static void begin(unsigned chips)
{
	fake_drm_start(chips);
	context = open_fake();
}

static int end(void **state)
{
	txda_context_unref(context);
	fake_drm_end();
	return 0;
}

static struct txda_device *chip(unsigned index)
{
	return device_of(context, index);
}

static void fill(unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		bytes[i] = (unsigned char)(seed >> 16);
	}
}

/* Sizes around those of the lanes' halves, at odd places. */
TEST(test_copies)
{
	static const uint64_t size[] = {
		1, 7, 1023, 1024, 4096, 1 << 20, (1 << 20) + 1, 3 << 20, (4 << 20) - 77};
	unsigned char *in = malloc(5 << 20), *out = malloc(5 << 20);
	struct txda_buffer *buffer;
	unsigned char *view;

	for (unsigned beyond = 0; beyond < 2; beyond++) {
		/* The second time no view is possible. */
		begin(1);
		fake_drm.mappable_bytes = beyond ? 4096 : 0;
		ok(context, txda_buffer_new(chip(0), 5 << 20, TXDA_MEMORY_DEVICE,
					    TXDA_BUFFER_PRIVATE, &buffer));
		for (unsigned i = 0; i < ARRAY_SIZE(size); i++) {
			uint64_t offset = i * 1237;

			fill(in, size[i], i + 1);
			memset(out, 0x55, size[i] + 1);
			ok(context, txda_buffer_write(buffer, offset, in, size[i]));
			ok(context, txda_buffer_read(buffer, offset, out, size[i]));
			assert_memory_equal(in, out, size[i]);
			assert_int_equal(out[size[i]], 0x55);
		}
		assert_int_equal(txda_buffer_map(buffer, (void **)&view), beyond ? -ENOTSUP : 0);
		if (!beyond)
			assert_memory_equal(view + 8 * 1237, in, size[8]);
		assert_int_equal(txda_buffer_write(buffer, 5 << 20, in, 1), -ERANGE);
		txda_buffer_unref(buffer);
		end(state);
	}
	free(in);
	free(out);
}

TEST_WITH(test_load, NULL, end)
{
	enum { BYTES = (20 << 20) + 123 };
	unsigned char *in = malloc(BYTES), *out = malloc(BYTES);
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct txda_buffer *buffer;

	fill(in, BYTES, 42);
	assert_int_equal(write(fd, in, BYTES), BYTES);
	begin(1);
	for (unsigned memory = TXDA_MEMORY_DEVICE; memory <= TXDA_MEMORY_HOST; memory++) {
		ok(context, txda_buffer_new(chip(0), BYTES, memory, 0, &buffer));
		ok(context, txda_buffer_load(buffer, 0, fd, 0, BYTES));
		ok(context, txda_buffer_read(buffer, 0, out, BYTES));
		assert_memory_equal(in, out, BYTES);
		ok(context, txda_buffer_load(buffer, 100, fd, 3, 5 << 20));
		ok(context, txda_buffer_read(buffer, 0, out, BYTES));
		assert_memory_equal(in, out, 100);
		assert_memory_equal(in + 3, out + 100, 5 << 20);
		assert_memory_equal(in + (6 << 20), out + (6 << 20), BYTES - (6 << 20));
		assert_int_equal(txda_buffer_load(buffer, 0, fd, 100, BYTES), -ENODATA);
		txda_buffer_unref(buffer);
	}
	/* A copy that fails, then one that works again. */
	ok(context, txda_buffer_new(chip(0), 4 << 20, TXDA_MEMORY_DEVICE, 0, &buffer));
	fake_drm_inject("page:chip=0");
	fails(context, txda_buffer_write(buffer, 0, in, 3 << 20), -EIO,
	      "chip 0: copying failed: page fault");
	ok(context, txda_buffer_write(buffer, 0, in, 3 << 20));
	ok(context, txda_buffer_read(buffer, 0, out, 3 << 20));
	assert_memory_equal(in, out, 3 << 20);
	txda_buffer_unref(buffer);
	close(fd);
	free(in);
	free(out);
}

TEST_WITH(test_room, NULL, end)
{
	struct txda_buffer *buffer, *second = NULL;

	begin(1);
	ok(context,
	   txda_buffer_new(chip(0), FAKE_CHIP_BYTES - 8192, TXDA_MEMORY_DEVICE, 0, &buffer));
	fails(context, txda_buffer_new(chip(0), 8193, TXDA_MEMORY_DEVICE, 0, &second), -ENOMEM,
	      "12.0 KiB (12288 bytes) requested, 8.00 KiB (8192 ");
	assert_null(second);
	assert_int_equal(used_bytes(context, 0), FAKE_CHIP_BYTES - 8192);
	txda_buffer_unref(buffer);
	assert_int_equal(used_bytes(context, 0), 0);
}

TEST_WITH(test_sharing, NULL, end)
{
	unsigned char data[5000], back[5000];
	struct txda_buffer *a, *b, *c;
	int fd;

	begin(2);
	fill(data, sizeof(data), 7);
	ok(context, txda_buffer_new(chip(0), sizeof(data), TXDA_MEMORY_DEVICE, 0, &a));
	ok(context, txda_buffer_write(a, 0, data, sizeof(data)));
	ok(context, txda_buffer_export(a, &fd));
	/* On the same chip it is the same handle, which lives until its last user goes. */
	ok(context, txda_buffer_import(chip(0), fd, 0, &b));
	ok(context, txda_buffer_import(chip(1), fd, TXDA_BUFFER_READ_ONLY, &c));
	assert_int_equal(txda_buffer_bytes(b), 8192);
	txda_buffer_unref(a);
	ok(context, txda_buffer_read(b, 0, back, sizeof(back)));
	assert_memory_equal(data, back, sizeof(data));
	ok(context, txda_buffer_read(c, 0, back, sizeof(back)));
	assert_memory_equal(data, back, sizeof(data));
	txda_buffer_unref(b);
	assert_int_equal(fake_drm_calls(DRM_IOCTL_GEM_CLOSE), 1);
	txda_buffer_unref(c);
	fake_drm.no_links = true;
	ok(context, txda_buffer_new(chip(0), 4096, TXDA_MEMORY_DEVICE, 0, &a));
	close(fd);
	ok(context, txda_buffer_export(a, &fd));
	fails(context, txda_buffer_import(chip(1), fd, 0, &b), -EXDEV, "to which there is no link");
	txda_buffer_unref(a);
	close(fd);

	ok(context, txda_buffer_new(chip(0), 4096, TXDA_MEMORY_DEVICE, TXDA_BUFFER_PRIVATE, &a));
	assert_int_equal(txda_buffer_export(a, &fd), -ENOTSUP);
	txda_buffer_unref(a);
}

/* A buffer has one dma-buf, whose rights are those that it was made with. */
TEST_WITH(test_share_read_only, NULL, end)
{
	struct txda_buffer *a, *b = NULL;
	int fd = -1, other = -1;
	char text[8];

	begin(2);
	ok(context, txda_buffer_new(chip(0), 8192, TXDA_MEMORY_DEVICE, 0, &a));
	ok(context, txda_buffer_write(a, 0, "payload", 8));
	ok(context, txda_buffer_share(a, TXDA_SHARE_READ_ONLY, &fd));
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	for (unsigned i = 0; i < 2; i++) {
		fails(context, txda_buffer_import(chip(i), fd, 0, &b), -EACCES,
		      "does not allow writing");
		ok(context, txda_buffer_import(chip(i), fd, TXDA_BUFFER_READ_ONLY, &b));
		ok(context, txda_buffer_read(b, 0, text, 8));
		assert_string_equal(text, "payload");
		assert_int_equal(txda_buffer_write(b, 0, "x", 1), -EACCES);
		txda_buffer_unref(b);
	}
	fails(context, txda_buffer_export(a, &other), -EBUSY, "shared for reading only");
	assert_int_equal(other, -1);
	close(fd);
	ok(context, txda_buffer_export(a, &fd));
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	fails(context, txda_buffer_share(a, TXDA_SHARE_READ_ONLY, &other), -EBUSY,
	      "shared for writing");
	ok(context, txda_buffer_import(chip(1), fd, 0, &b));
	ok(context, txda_buffer_write(b, 0, "changed", 8));
	ok(context, txda_buffer_read(a, 0, text, 8));
	assert_string_equal(text, "changed");
	txda_buffer_unref(b);
	/* Who imports it to read may pass on what it got. */
	ok(context, txda_buffer_import(chip(1), fd, TXDA_BUFFER_READ_ONLY, &b));
	ok(context, txda_buffer_export(b, &other));
	close(other);
	txda_buffer_unref(b);
	close(fd);
	txda_buffer_unref(a);
}

/* What an error of the kernel's limits is attributed to. */
static void check_limits(int fd)
{
	struct txda_buffer *buffer;
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	limit.rlim_cur = 65536;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	fake_drm.fail_request = DRM_IOCTL_TXDA_BO_FROM_USERPTR;
	fake_drm.fail_error = -EDQUOT;
	fails(context, txda_buffer_import(chip(0), fd, 0, &buffer), -EDQUOT, "LimitMEMLOCK");
	/* The limit of locked memory is to blame only where there is one. */
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (limit.rlim_cur == RLIM_INFINITY) {
		fake_drm.fail_error = -EDQUOT;
		fake_drm.fail_after = 0;
		fails(context, txda_buffer_import(chip(0), fd, 0, &buffer), -EDQUOT, "this user");
	}
	fake_drm.fail_request = DRM_IOCTL_TXDA_BO_CREATE;
	fake_drm.fail_error = -EDQUOT;
	fake_drm.fail_after = 0;
	fails(context, txda_buffer_new(chip(0), 4096, TXDA_MEMORY_DEVICE, 0, &buffer), -EDQUOT,
	      "this user");
}

TEST_WITH(test_memfd, NULL, end)
{
	unsigned char data[5000], back[5000];
	struct txda_buffer *a, *host;
	void *view;
	int fd;

	begin(2);
	fill(data, sizeof(data), 7);
	/* A memfd of somebody's: its pages, not a copy. */
	fd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(txda_buffer_import(chip(0), fd, 0, &host), -EPERM);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ok(context, txda_buffer_import(chip(0), fd, 0, &host));
	assert_int_equal(pwrite(fd, data, sizeof(data), 0), sizeof(data));
	ok(context, txda_buffer_map(host, &view));
	assert_memory_equal(view, data, sizeof(data));
	ok(context, txda_buffer_new(chip(0), sizeof(data), TXDA_MEMORY_DEVICE, 0, &a));
	{
		struct txda_queue *queue;
		uint64_t fence;

		ok(context, txda_queue_new(chip(0), TXDA_QUEUE_COPY, &queue));
		ok(context, txda_queue_copy(queue, a, 0, host, 0, sizeof(data), &fence));
		ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
		txda_queue_unref(queue);
	}
	ok(context, txda_buffer_read(a, 0, back, sizeof(back)));
	assert_memory_equal(data, back, sizeof(data));
	txda_buffer_unref(a);
	txda_buffer_unref(host);
	check_limits(fd);
	close(fd);
	fd = open("/dev/null", O_RDONLY);
	assert_int_equal(txda_buffer_import(chip(0), fd, 0, &host), -EINVAL);
	close(fd);
}

/* At the same addresses again, with the contents that the kernel has kept. */
TEST_WITH(test_advice, NULL, end)
{
	unsigned char data[5000], back[5000];
	static const unsigned char zeros[5000];
	struct txda_buffer *buffer;
	uint64_t va;
	void *view;
	bool kept;
	int fd;

	fill(data, sizeof(data), 3);
	begin(1);
	ok(context, txda_buffer_new(chip(0), sizeof(data), TXDA_MEMORY_DEVICE, 0, &buffer));
	va = txda_buffer_va(buffer);
	ok(context, txda_buffer_write(buffer, 0, data, sizeof(data)));
	assert_int_equal(txda_buffer_advise(buffer, 3, &kept), -EINVAL);
	assert_int_equal(txda_buffer_advise(buffer, -1, &kept), -EINVAL);

	kept = false;
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, &kept));
	assert_true(kept);
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_COLD, &kept));
	assert_true(kept);
	assert_int_equal(txda_buffer_read(buffer, 0, back, 1), -EBUSY);
	assert_int_equal(txda_buffer_write(buffer, 0, back, 1), -EBUSY);
	assert_int_equal(txda_buffer_load(buffer, 0, STDIN_FILENO, 0, 1), -EBUSY);
	fails(context, txda_buffer_map(buffer, &view), -EBUSY, "idle");
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, NULL));
	assert_int_equal(txda_buffer_va(buffer), va);
	ok(context, txda_buffer_read(buffer, 0, back, sizeof(back)));
	assert_memory_equal(back, data, sizeof(data));

	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_DONTNEED, NULL));
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, &kept));
	assert_false(kept);
	ok(context, txda_buffer_read(buffer, 0, back, sizeof(back)));
	assert_memory_equal(back, zeros, sizeof(zeros));
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, &kept));
	assert_true(kept);

	/* It stays usable when it cannot become idle, and idle when there is no room for it. */
	fake_drm.fail_request = DRM_IOCTL_TXDA_BO_ADVISE;
	fake_drm.fail_error = -EBUSY;
	fake_drm.fail_after = 0;
	assert_int_equal(txda_buffer_advise(buffer, TXDA_ADVICE_COLD, &kept), -EBUSY);
	ok(context, txda_buffer_write(buffer, 0, data, sizeof(data)));
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_COLD, &kept));
	fake_drm.fail_error = -ENOSPC;
	fake_drm.fail_after = 0;
	assert_int_equal(txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, &kept), -ENOMEM);
	assert_int_equal(txda_buffer_map(buffer, &view), -EBUSY);
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_WILLNEED, &kept));
	ok(context, txda_buffer_read(buffer, 0, back, sizeof(back)));
	assert_memory_equal(back, data, sizeof(data));

	/* A kernel that takes no memory away; and who shares memory does not decide alone. */
	fake_drm.no_advice = true;
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_DONTNEED, &kept));
	assert_true(kept);
	ok(context, txda_buffer_read(buffer, 0, back, sizeof(back)));
	assert_memory_equal(back, data, sizeof(data));
	fake_drm.no_advice = false;
	ok(context, txda_buffer_export(buffer, &fd));
	assert_int_equal(txda_buffer_advise(buffer, TXDA_ADVICE_COLD, &kept), -ENOTSUP);
	ok(context, txda_buffer_read(buffer, 0, back, sizeof(back)));
	close(fd);
	txda_buffer_unref(buffer);

	ok(context, txda_buffer_new(chip(0), 4096, TXDA_MEMORY_DEVICE, 0, &buffer));
	ok(context, txda_buffer_advise(buffer, TXDA_ADVICE_COLD, &kept));
	txda_buffer_unref(buffer);
}

TEST_MAIN
