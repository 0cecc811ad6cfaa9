// SPDX-License-Identifier: MIT
/*
 * Buffers: memory, its limits, loading, passing between processes.
 *
 * Run as `test_libtxda_buffer import FD` it is the other process: it imports the memory behind the
 * fd, checks and changes it.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "libtxda_test.h"

static const char *self;

TEST(test_memory)
{
	struct txda_context *context = open_context("chips=2,mem=64M,cores=1");
	struct txda_buffer *a, *b = NULL;
	struct txda_device *device;
	unsigned char *ptr;
	char text[16];
	void *map;

	ok(context, txda_device_get(context, 1, &device));
	ok(context, txda_buffer_new(device, 10000, TXDA_MEMORY_DEVICE, 0, &a));
	assert_int_equal(txda_buffer_bytes(a), 10000);
	assert_int_equal(txda_buffer_va(a) % 4096, 0);
	assert_int_equal(used_bytes(context, 1), 12288);
	assert_int_equal(used_bytes(context, 0), 0);
	ok(context, txda_buffer_map(a, &map));
	ptr = map;
	for (unsigned i = 0; i < 10000; i++)
		assert_int_equal(ptr[i], 0);
	ok(context, txda_buffer_write(a, 9990, "0123456789", 10));
	ok(context, txda_buffer_read(a, 9993, text, 3));
	assert_memory_equal(text, "345", 3);
	assert_memory_equal(ptr + 9990, "0123456789", 10);
	assert_int_equal(txda_buffer_write(a, 9991, "0123456789", 10), -ERANGE);
	fails(context, txda_buffer_read(a, UINT64_MAX, text, 2), -ERANGE, "of a buffer of 10000");

	/* Host memory is not the chip's. */
	ok(context, txda_buffer_new(device, 100ull << 20, TXDA_MEMORY_HOST, 0, &b));
	assert_int_equal(used_bytes(context, 1), 12288);
	b = txda_buffer_unref(b);
	assert_null(b);
	assert_int_equal(txda_buffer_new(device, 64ull << 20, TXDA_MEMORY_DEVICE, 0, &b), -ENOMEM);
	assert_null(b);
	assert_says(txda_context_error(context), "chip 1: 64.0 MiB (67108864 bytes) requested");
	assert_says(txda_context_error(context), "(67096576 bytes) of 64.0 MiB free");
	assert_int_equal(txda_buffer_new(device, 0, TXDA_MEMORY_DEVICE, 0, &b), -EINVAL);
	assert_int_equal(txda_buffer_new(device, UINT64_MAX, TXDA_MEMORY_DEVICE, 0, &b), -EINVAL);
	assert_int_equal(txda_buffer_new(device, 1, TXDA_MEMORY_DEVICE, 4, &b), -EINVAL);
	assert_int_equal(txda_buffer_new(device, 1, 7, 0, &b), -EINVAL);

	/*
	 * A chip's memory can be filled to the last page, and what was freed comes back as zeros.
	 */
	ok(context, txda_buffer_new(device, (64ull << 20) - 12288, TXDA_MEMORY_DEVICE, 0, &b));
	assert_int_equal(used_bytes(context, 1), 64 << 20);
	ok(context, txda_buffer_write(b, 5000, "secret", 6));
	txda_buffer_unref(b);
	txda_buffer_unref(a);
	assert_int_equal(used_bytes(context, 1), 0);
	ok(context, txda_buffer_new(device, 64ull << 20, TXDA_MEMORY_DEVICE, 0, &b));
	assert_int_equal(txda_buffer_va(b) % (2 << 20), 0);
	ok(context, txda_buffer_read(b, 5000, text, 6));
	assert_memory_equal(text, "\0\0\0\0\0\0", 6);
	txda_context_unref(context);
	txda_device_unref(device);
	txda_buffer_unref(b); /* it kept all that it needs */
}

TEST(test_load)
{
	struct txda_context *context = open_context("mem=256M,cores=1");
	const uint64_t bytes = (70ull << 20) + 12345;
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct txda_device *device;
	struct txda_buffer *buffer;
	uint32_t *words;
	void *map;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(words, MAP_FAILED);
	for (uint64_t i = 0; i < bytes / 4; i++)
		words[i] = (uint32_t)(i * 2654435761u);
	device = device_of(context, 0);
	/* read-only or not, private or not */
	for (unsigned flags = 0; flags < 4; flags++) {
		int export = -1;

		ok(context,
		   txda_buffer_new(device, bytes + 100, TXDA_MEMORY_DEVICE, flags, &buffer));
		if (flags & TXDA_BUFFER_PRIVATE) {
			assert_int_equal(txda_buffer_export(buffer, &export), -ENOTSUP);
			assert_int_equal(export, -1);
		}
		ok(context, txda_buffer_load(buffer, 100, fd, 0, bytes));
		ok(context, txda_buffer_map(buffer, &map));
		assert_memory_equal((char *)map + 100, words, bytes);
		ok(context, txda_buffer_load(buffer, 3, fd, 4001, 777));
		assert_memory_equal((char *)map + 3, (char *)words + 4001, 777);
		ok(context, txda_buffer_load(buffer, 3, fd, 4001, 0));
		assert_int_equal(txda_buffer_load(buffer, 101, fd, 0, bytes), -ERANGE);
		fails(context, txda_buffer_load(buffer, 0, fd, 1, bytes), -ENODATA,
		      "the file ends before");
		assert_int_equal(txda_buffer_load(buffer, 0, fd, UINT64_MAX, 1), -EINVAL);
		assert_int_equal(txda_buffer_load(buffer, 0, -1, 0, 1), -EBADF);
		txda_buffer_unref(buffer);
	}
	munmap(words, bytes);
	close(fd);
	txda_context_unref(context);
}

static int run_other(int fd)
{
	char number[16];
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", fd);
	pid = fork();
	if (!pid) {
		fcntl(fd, F_SETFD, 0);
		execl(self, self, "import", number, (char *)NULL);
		_exit(99);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(test_share)
{
	struct txda_context *context = open_context("chips=2,mem=64M,cores=1");
	struct txda_buffer *buffer, *peer = NULL;
	struct txda_device *device, *other;
	char text[8];
	int fd, plain;

	device = device_of(context, 0);
	other = device_of(context, 1);
	ok(context, txda_buffer_new(device, 8192, TXDA_MEMORY_DEVICE, 0, &buffer));
	ok(context, txda_buffer_write(buffer, 100, "hello", 6));
	ok(context, txda_buffer_export(buffer, &fd));
	assert_true(ftruncate(fd, 4096) < 0); /* sealed */
	assert_true(ftruncate(fd, 16384) < 0);
	assert_int_equal(run_other(fd), 0);
	ok(context, txda_buffer_read(buffer, 100, text, 6));
	assert_string_equal(text, "world");

	/* Another chip of the same process; the memory outlives the buffer that it came from. */
	ok(context, txda_buffer_import(other, fd, 0, &peer));
	assert_int_equal(txda_buffer_bytes(peer), 8192);
	assert_int_equal(used_bytes(context, 1), 0);
	txda_buffer_unref(buffer);
	assert_int_equal(used_bytes(context, 0), 0);
	ok(context, txda_buffer_read(peer, 100, text, 6));
	assert_string_equal(text, "world");
	txda_buffer_unref(peer);
	close(fd);

	/* What could shrink under the mapping, or is no memory at all, is refused. */
	peer = NULL;
	plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(plain, 4096), 0);
	fails(context, txda_buffer_import(device, plain, 0, &peer), -EPERM,
	      "not sealed against shrinking");
	assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
	assert_int_equal(txda_buffer_import(device, plain, 0, &peer), -EACCES);
	ok(context, txda_buffer_import(device, plain, TXDA_BUFFER_READ_ONLY, &peer));
	ok(context, txda_buffer_read(peer, 0, text, 4));
	assert_int_equal(txda_buffer_write(peer, 0, text, 4), -EACCES);
	fails(context, txda_buffer_load(peer, 0, plain, 0, 4), -EACCES, "imported to be read only");
	txda_buffer_unref(peer);
	close(plain);
	plain = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(plain, 5000), 0);
	assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(txda_buffer_import(device, plain, 0, &peer), -EINVAL);
	close(plain);
	plain = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(txda_buffer_import(device, plain, 0, &peer), -EINVAL);
	close(plain);
	assert_int_equal(txda_buffer_import(device, -1, 0, &peer), -EBADF);
	txda_context_unref(context);
}

/* Who gets a descriptor to read from can do no more, also a process of another user. */
TEST(test_share_read_only)
{
	struct txda_context *context = open_context("chips=2,mem=64M,cores=1");
	struct txda_buffer *buffer, *peer = NULL;
	struct txda_device *device = device_of(context, 0);
	struct stat st;
	char text[8];
	int fd = -1, again;
	void *map;

	/* In either case the flag of the buffer is about the chip only. */
	for (unsigned flags = 0; flags <= TXDA_BUFFER_READ_ONLY; flags++) {
		ok(context, txda_buffer_new(device, 8192, TXDA_MEMORY_DEVICE, flags, &buffer));
		ok(context, txda_buffer_write(buffer, 100, "hello", 6));
		fails(context, txda_buffer_share(buffer, 2, &fd), -EINVAL,
		      "unknown share flags 0x2");
		assert_int_equal(fd, -1);
		ok(context, txda_buffer_share(buffer, TXDA_SHARE_READ_ONLY, &fd));
		assert_true(write(fd, "x", 1) < 0);
		assert_true(ftruncate(fd, 0) < 0);
		assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
				 MAP_FAILED);
		map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(map, MAP_FAILED);
		assert_true(mprotect(map, 8192, PROT_READ | PROT_WRITE) < 0);
		munmap(map, 8192);
		/* Others cannot open it again to write. */
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0644);
		assert_int_equal(run_other(fd), 2);
		for (unsigned chip = 0; chip < 2; chip++) {
			fails(context, txda_buffer_import(device_of(context, chip), fd, 0, &peer),
			      -EACCES, "does not allow writing");
			ok(context, txda_buffer_import(device_of(context, chip), fd,
						       TXDA_BUFFER_READ_ONLY, &peer));
			ok(context, txda_buffer_read(peer, 100, text, 6));
			assert_string_equal(text, "hello");
			assert_int_equal(txda_buffer_write(peer, 0, text, 4), -EACCES);
			/* Nor does it come back by another export. */
			ok(context, txda_buffer_export(peer, &again));
			assert_true(write(again, "x", 1) < 0);
			close(again);
			txda_buffer_unref(peer);
		}
		close(fd);
		fd = -1;
		ok(context, txda_buffer_share(buffer, 0, &again));
		assert_int_equal(run_other(again), 0);
		close(again);
		ok(context, txda_buffer_read(buffer, 100, text, 6));
		assert_string_equal(text, "world");
		txda_buffer_unref(buffer);
	}
	ok(context,
	   txda_buffer_new(device, 8192, TXDA_MEMORY_DEVICE, TXDA_BUFFER_PRIVATE, &buffer));
	assert_int_equal(txda_buffer_share(buffer, TXDA_SHARE_READ_ONLY, &fd), -ENOTSUP);
	txda_buffer_unref(buffer);
	txda_context_unref(context);
}

static int import_as_other(int fd)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;
	struct txda_device *device;
	struct txda_buffer *buffer;
	char text[8];

	options.backend = "cmodel";
	options.cmodel = "mem=64M,cores=1";
	if (txda_context_new(&options, &context) < 0 || txda_device_get(context, 0, &device) < 0)
		return 1;
	if (txda_buffer_import(device, fd, 0, &buffer) < 0 || txda_buffer_bytes(buffer) != 8192)
		return 2;
	if (txda_buffer_read(buffer, 100, text, 6) < 0 || strcmp(text, "hello"))
		return 3;
	if (txda_buffer_write(buffer, 100, "world", 6) < 0)
		return 4;
	txda_buffer_unref(buffer);
	txda_device_unref(device);
	txda_context_unref(context);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "import"))
		return import_as_other(atoi(argv[2]));
	self = argv[0];
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_tests(argv[0], NULL, NULL);
}
