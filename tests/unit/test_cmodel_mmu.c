// SPDX-License-Identifier: MIT
/* Address spaces: mapping, cutting, resolving; and unmapping what streams use. */
#include "cm_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define VA 0x1000000ull
#define RW (CM_MAP_READ | CM_MAP_WRITE)

static struct fix f;

static int setup(void **state)
{
	(void)state;
	fix_new(&f, 1, 2);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
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

static void test_map_checks(void **state)
{
	int fd = new_file(16384), ro;
	struct cm_vm *vm;
	char path[64];

	(void)state;
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

static void test_resolve(void **state)
{
	int fd = new_file(65536);
	struct cm_vm *vm;
	uint8_t *host;

	(void)state;
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

static void test_many_ranges(void **state)
{
	int fd = new_file(4096);
	struct cm_vm *vm;

	(void)state;
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
static void test_unmap_under_way(void **state)
{
	struct cm_vm *vm = f.c[0].vm;
	int fd = cm_chip_dram_fd(f.c[0].chip);

	(void)state;
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

static void test_options(void **state)
{
	struct cm_options bad[] = {
		{.chips = 0, .mem_bytes = 2 << 20},
		{.chips = CM_MAX_CHIPS + 1, .mem_bytes = 2 << 20},
		{.chips = 1, .mem_bytes = 0},
		{.chips = 1, .mem_bytes = 1 << 20},
		{.chips = 1, .mem_bytes = 2 << 20, .cores = 65},
		{.chips = 1, .mem_bytes = 2 << 20, .isa = "mmx"},
		{.chips = 1, .mem_bytes = 2 << 20, .faults = "flood"},
	};
	struct cm_machine *m = NULL;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map_checks),  cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_many_ranges), cmocka_unit_test(test_unmap_under_way),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests_name("cmodel address spaces", tests, setup, teardown);
}
