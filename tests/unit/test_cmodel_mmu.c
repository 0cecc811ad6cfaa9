// SPDX-License-Identifier: MIT
/* Address spaces: mapping, cutting, resolving; and unmapping what streams use. */
#include "cm_fixture.h"
#include "core/mmu.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define VA 0x1000000ull
#define RW (CM_MAP_READ | CM_MAP_WRITE)

static struct fix f;

static int setup(void **state)
{
	fix_new(&f, 1, 2);
	return 0;
}

static int teardown(void **state)
{
	fix_free(&f);
	return 0;
}

static int new_file(size_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

TEST(test_map_checks)
{
	int fd = new_file(16384), ro;
	struct cm_vm *vm;
	char path[64];

	assert_int_equal(cm_vm_new(f.c[0].chip, &vm), 0);
	assert_int_equal(cm_vm_map(vm, VA + 1, fd, 0, 4096, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 1, 4096, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, 4097, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, 0, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, 4096, 0), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, 4096, 4), -EINVAL);
	assert_int_equal(cm_vm_map(vm, CM_VA_BYTES, fd, 0, 4096, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, CM_VA_BYTES - 4096, fd, 0, 8192, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, UINT64_MAX - 4095, fd, 0, 8192, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 12288, 8192, RW), -ERANGE);
	assert_int_equal(cm_vm_map(vm, VA, fd, UINT64_MAX - 4095, 4096, RW), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, -1, 0, 4096, RW), -EBADF);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY);
	assert_true(ro >= 0);
	assert_int_equal(cm_vm_map(vm, VA, ro, 0, 4096, RW), -EACCES);
	assert_int_equal(cm_vm_map(vm, VA, ro, 0, 4096, CM_MAP_READ), 0);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, 4096, RW), -EEXIST);
	assert_int_equal(cm_vm_map(vm, VA - 4096, fd, 0, 8192, RW), -EEXIST);
	assert_int_equal(cm_vm_map(vm, CM_VA_BYTES - 4096, fd, 0, 4096, RW), 0);
	assert_non_null(cm_vm_resolve(vm, CM_VA_BYTES - 1, 1, RW));
	assert_null(cm_vm_resolve(vm, CM_VA_BYTES - 1, 2, RW));
	cm_vm_free(vm);
	close(ro);
	close(fd);
}

TEST(test_resolve)
{
	int fd = new_file(65536);
	struct cm_vm *vm;
	uint8_t *host;

	assert_int_equal(cm_vm_new(f.c[0].chip, &vm), 0);
	/* Three neighbours, from the file's end to its start; the middle one read-only; a gap; one
	 * more. */
	assert_int_equal(cm_vm_map(vm, VA + 8192, fd, 0, 8192, RW), 0);
	assert_int_equal(cm_vm_map(vm, VA, fd, 8192, 4096, RW), 0);
	assert_int_equal(cm_vm_map(vm, VA + 4096, fd, 16384, 4096, CM_MAP_READ), 0);
	assert_int_equal(cm_vm_map(vm, VA + 20480, fd, 32768, 4096, RW), 0);
	host = cm_vm_resolve(vm, VA, 16384, CM_MAP_READ);
	assert_non_null(host);
	host[0] = 1;
	host[8192] = 2;
	assert_int_equal(pwrite(fd, "\3", 1, 16384), 1);
	assert_int_equal(host[4096], 3);
	assert_null(cm_vm_resolve(vm, VA, 4097, CM_MAP_WRITE));
	assert_non_null(cm_vm_resolve(vm, VA, 4096, CM_MAP_WRITE));
	assert_null(cm_vm_resolve(vm, VA + 4096, 1, CM_MAP_WRITE));
	assert_null(cm_vm_resolve(vm, VA, 16385, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm, VA - 1, 2, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm, VA, 0, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm, VA, UINT64_MAX, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm, UINT64_MAX, 1, CM_MAP_READ));

	/* A hole across all three. */
	assert_int_equal(cm_vm_unmap(vm, VA, 0), -EINVAL);
	assert_int_equal(cm_vm_unmap(vm, VA + 16384, 4096), -ENOENT);
	assert_int_equal(cm_vm_unmap(vm, VA + 4096, 8192), 0);
	assert_non_null(cm_vm_resolve(vm, VA, 4096, RW));
	assert_null(cm_vm_resolve(vm, VA, 4097, CM_MAP_READ));
	assert_null(cm_vm_resolve(vm, VA + 8192, 1, CM_MAP_READ));
	assert_non_null(cm_vm_resolve(vm, VA + 12288, 4096, RW));
	/* A hole in the middle of one range leaves two. */
	assert_int_equal(cm_vm_map(vm, VA + 0x100000, fd, 0, 65536, RW), 0);
	assert_int_equal(cm_vm_unmap(vm, VA + 0x101000, 4096), 0);
	assert_non_null(cm_vm_resolve(vm, VA + 0x100000, 4096, RW));
	assert_null(cm_vm_resolve(vm, VA + 0x101000, 1, RW));
	assert_non_null(cm_vm_resolve(vm, VA + 0x102000, 65536 - 8192, RW));
	assert_int_equal(cm_vm_map(vm, VA + 0x101000, fd, 0, 4096, RW), 0);
	assert_non_null(cm_vm_resolve(vm, VA + 0x100000, 65536, RW));
	/* Everything at once. */
	assert_int_equal(cm_vm_unmap(vm, 0, CM_VA_BYTES), 0);
	assert_int_equal(cm_vm_unmap(vm, 0, CM_VA_BYTES), -ENOENT);
	cm_vm_free(vm);
	close(fd);
}

TEST(test_many_ranges)
{
	int fd = new_file(4096);
	struct cm_vm *vm;

	assert_int_equal(cm_vm_new(f.c[0].chip, &vm), 0);
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(
			cm_vm_map(vm, VA + (uint64_t)(i * 7919 % 500) * 8192, fd, 0, 4096, RW), 0);
	for (unsigned i = 0; i < 500; i++) {
		assert_non_null(cm_vm_resolve(vm, VA + i * 8192ull, 4096, RW));
		assert_null(cm_vm_resolve(vm, VA + i * 8192ull, 4097, RW));
	}
	for (unsigned i = 0; i < 500; i += 2)
		assert_int_equal(cm_vm_unmap(vm, VA + i * 8192ull, 4096), 0);
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(!cm_vm_resolve(vm, VA + i * 8192ull, 4096, RW), i % 2 == 0);
	cm_vm_free(vm);
	close(fd);
}

/* The stream goes on until its memory is taken away; then it faults. One that was through before
 * that counts for nothing. */
TEST(test_unmap_under_way)
{
	struct cm_vm *vm = f.c[0].vm;
	int fd = cm_chip_dram_fd(f.c[0].chip);

	for (unsigned faults = 0, tries = 1; faults < 20; tries++) {
		struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
		struct fix_stream s = fix_stream(&f.c[0]);
		struct txda_pkt_fill p = {.dst = VA, .bytes = 8 << 20, .value = tries};
		struct txda_fault fault;
		int r;

		assert_true(tries < 1000);
		assert_int_equal(cm_vm_map(vm, VA, fd, 8 << 20, 8 << 20, RW), 0);
		for (unsigned n = 0; n < 100; n++)
			fix_put(&s, TXDA_PKT_FILL, 0, &p, sizeof(p));
		fix_signal(&s, fix_word_va(30), tries);
		assert_int_equal(fix_submit(q, &s), 0);
		while (cm_queue_progress(q) < 2)
			;
		assert_int_equal(cm_vm_unmap(vm, VA, 8 << 20), 0);
		r = fix_wait(&f, q, fix_word(&f.c[0], 30), tries);
		if (r) {
			assert_int_equal(r, -EIO);
			assert_int_equal(cm_queue_fault(q, &fault), 0);
			assert_int_equal(fault.code, TXDA_FAULT_PAGE);
			assert_int_equal(fault.va, VA);
			faults++;
		}
		cm_queue_free(q);
	}
}

TEST(test_options)
{
	struct cm_options bad[] = {
		{.chips = 0, .mem_bytes = 2 << 20},
		{.chips = CM_MAX_CHIPS + 1, .mem_bytes = 2 << 20},
		{.chips = 1, .mem_bytes = 0},
		{.chips = 1, .mem_bytes = 1 << 20},
		{.chips = 1, .mem_bytes = 2 << 20, .cores = 1025},
		{.chips = 1, .mem_bytes = 2 << 20, .isa = "mmx"},
		{.chips = 1, .mem_bytes = 2 << 20, .faults = "flood"},
	};
	struct cm_machine *m = NULL;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(cm_machine_new(&bad[i], &m), -EINVAL);
	assert_null(m);
	assert_int_equal(cm_machine_chips(f.m), 1);
	assert_int_equal(cm_machine_cores(f.m), 2);
	assert_string_equal(cm_machine_isa(f.m), "c");
	assert_null(cm_machine_chip(f.m, 1));
	assert_int_equal(cm_chip_dram_bytes(f.c[0].chip), FIX_MEM);
	/* Nobody can take the chip's memory away. */
	assert_int_equal(ftruncate(cm_chip_dram_fd(f.c[0].chip), 0), -1);
	assert_int_equal(fcntl(cm_chip_dram_fd(f.c[0].chip), F_GET_SEALS) & F_SEAL_SHRINK,
			 F_SEAL_SHRINK);
}

/* ---- files that may lose pages ------------------------------------------------------------------ */

#define LOSABLE	   (CM_MAP_READ | CM_MAP_LOSABLE)
#define FILE_BYTES (4ull << 20)

static int new_numbers(void)
{
	int fd = new_file(FILE_BYTES);

	for (uint32_t i = 0; i < FILE_BYTES / 4096; i++)
		assert_int_equal(pwrite(fd, &i, sizeof(i), i * 4096), sizeof(i));
	return fd;
}

/* A stream that copies the whole mapping at @va to DRAM. */
static struct fix_stream copy_all(uint64_t va)
{
	struct fix_stream s = fix_stream(&f.c[0]);
	struct txda_pkt_copy p = {.src = va, .dst = FIX_VA + FIX_DATA, .bytes = FILE_BYTES};

	fix_put(&s, TXDA_PKT_COPY, 0, &p, sizeof(p));
	return s;
}

static void expect_numbers(uint64_t va)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = copy_all(va);

	memset(f.c[0].mem + FIX_DATA, 0xff, FILE_BYTES);
	assert_int_equal(fix_run(&f, q, &s), 0);
	for (uint32_t i = 0; i < FILE_BYTES / 4096; i++)
		assert_memory_equal(f.c[0].mem + FIX_DATA + i * 4096, &i, sizeof(i));
	cm_queue_free(q);
}

static void expect_page_fault(uint64_t va)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = copy_all(va);
	struct txda_fault fault;

	fix_expect_fault(&f, q, &s, TXDA_FAULT_PAGE, &fault);
	assert_int_equal(fault.va, va);
	cm_queue_free(q);
}

static _Atomic bool failing;

/* The callback for a fault describes it while another thread, which unmaps, waits for the leader. */
static void describe(void *arg, const struct txda_fault *fault)
{
	struct cm_vm *vm = arg;
	char text[200];

	atomic_store(&failing, true);
	while (!atomic_load(&vm->mmu->lead->pausers))
		sched_yield();
	cm_fault_text(vm, fault, text, sizeof(text));
}

static void *unmap_meanwhile(void *arg)
{
	while (!atomic_load(&failing))
		sched_yield();
	return cm_vm_unmap(arg, VA, FILE_BYTES) ? arg : NULL;
}

TEST(test_fault_while_unmapped)
{
	const struct cm_queue_ops ops = {.faulted = describe};
	struct fix_stream s = fix_stream(&f.c[0]);
	struct cm_vm *vm = f.c[0].vm;
	int fd = new_numbers();
	struct txda_pkt bad;
	struct cm_queue *q;
	pthread_t thread;
	void *failed;

	assert_int_equal(cm_vm_map(vm, VA, fd, 0, FILE_BYTES, RW), 0);
	assert_int_equal(cm_queue_new(vm, CM_QUEUE_COPY, &ops, vm, &q), 0);
	assert_int_equal(pthread_create(&thread, NULL, unmap_meanwhile, vm), 0);
	fix_put(&s, TXDA_PKT_COUNT, 0, &bad, sizeof(bad));
	assert_int_equal(fix_submit(q, &s), 0);
	assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 9), 1), -EIO);
	pthread_join(thread, &failed);
	assert_null(failed);
	cm_queue_free(q);
	close(fd);
}

/*
 * What a process sends does what it would have done without the handler. In a child each, before
 * there is a mapping that installs it here.
 */
TEST(test_sent_signal)
{
	void (*const action[])(int) = {SIG_DFL, SIG_IGN};

	for (unsigned i = 0; i < 2; i++) {
		int fd = new_numbers(), status;
		pid_t pid = fork();

		if (!pid) {
			signal(SIGBUS, action[i]);
			if (cm_vm_map(f.c[0].vm, VA, fd, 0, FILE_BYTES, LOSABLE))
				_exit(1);
			raise(SIGBUS);
			raise(SIGBUS);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, i ? 0 : SIGBUS);
		close(fd);
	}
}

TEST(test_lost_pages)
{
	struct cm_vm *vm = f.c[0].vm;
	int fd = new_numbers(), other = new_numbers();
	struct sigaction handler;

	assert_int_equal(cm_vm_map(vm, VA, fd, 0, FILE_BYTES, LOSABLE | CM_MAP_WRITE), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, CM_MAP_PRIVATE, 0, FILE_BYTES, LOSABLE), -EINVAL);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, FILE_BYTES + 4096, LOSABLE), -ERANGE);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, FILE_BYTES, LOSABLE), 0);
	assert_int_equal(cm_vm_map(vm, 2 * VA, other, 0, FILE_BYTES, LOSABLE), 0);
	/* Cancelled work is not left in the middle of that handler. */
	assert_int_equal(sigaction(SIGBUS, NULL, &handler), 0);
	assert_int_equal(sigismember(&handler.sa_mask, SIGURG), 1);
	expect_numbers(VA);
	assert_int_equal(ftruncate(fd, FILE_BYTES / 2 + 1), 0);
	expect_page_fault(VA);
	/* Also when the file has its pages again, and nobody else is affected. */
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	expect_page_fault(VA);
	assert_null(cm_vm_resolve(vm, VA, 4096, CM_MAP_READ));
	expect_numbers(2 * VA);
	assert_int_equal(cm_vm_unmap(vm, VA, FILE_BYTES), 0);
	assert_int_equal(cm_vm_map(vm, VA, other, 0, FILE_BYTES, LOSABLE), 0);
	expect_numbers(VA);
	/* A declared loss is one, too. */
	cm_vm_lose(vm, VA, FILE_BYTES);
	expect_page_fault(VA);
	assert_int_equal(cm_vm_unmap(vm, VA, FILE_BYTES), 0);
	assert_int_equal(cm_vm_unmap(vm, 2 * VA, FILE_BYTES), 0);
	close(fd);
	close(other);
}

/* Replaced while streams read it; afterwards the file may go. */
TEST(test_replace)
{
	struct cm_vm *vm = f.c[0].vm;
	int fd = new_numbers();
	const uint64_t half = FILE_BYTES / 2;
	uint8_t *copy =
		mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(copy != MAP_FAILED);
	assert_int_equal(pread(fd, copy, FILE_BYTES, 0), FILE_BYTES);
	assert_int_equal(cm_vm_map(vm, VA, fd, 0, FILE_BYTES, LOSABLE), 0);
	assert_int_equal(cm_vm_replace(vm, 2 * VA, copy, half), -EFAULT);
	assert_int_equal(cm_vm_replace(vm, VA + half, copy, FILE_BYTES), -EFAULT);
	/* One that the system refuses changes nothing. */
	assert_int_equal(cm_vm_replace(vm, VA, cm_vm_resolve(vm, VA, half, CM_MAP_READ), half),
			 -EINVAL);
	expect_numbers(VA);
	assert_int_equal(cm_vm_replace(vm, VA, copy, half), 0);
	expect_numbers(VA);
	assert_int_equal(cm_vm_replace(vm, VA + half, copy + half, half), 0);
	cm_vm_replaced(vm, VA, FILE_BYTES);
	assert_int_equal(ftruncate(fd, 0), 0);
	expect_numbers(VA);
	/* Ordinary memory is not replaced, nor what has lost pages. */
	assert_int_equal(cm_vm_replace(vm, VA, f.c[0].mem, half), -EFAULT);
	cm_vm_lose(vm, VA, FILE_BYTES);
	expect_numbers(VA);
	assert_int_equal(cm_vm_unmap(vm, VA, FILE_BYTES), 0);
	close(fd);
}

TEST_MAIN_ALL(setup, teardown)
