// SPDX-License-Identifier: MIT
#include "vram.h"

#include "device.h"

int txda_vram_alloc(struct txda_device *tdev, u64 bytes, unsigned flags,
		    struct dmem_cgroup_pool_state *group, struct txda_vram_block **ret_block)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	unsigned page = 0;

	assert(bytes == SZ_4K && flags & TXDA_VRAM_MAPPABLE);
	while (page < vram->mm.size / SZ_4K && vram->mm.taken[page])
		page++;
	if (page == vram->mm.size / SZ_4K)
		return -ENOSPC;
	block = calloc(1, sizeof(*block));
	vram->mm.taken[page] = true;
	vram->used.counter += SZ_4K;
	block->tdev = tdev;
	block->bytes = (u64)page * SZ_4K; /* where it is: nobody asks how long it is */
	*ret_block = block;
	return 0;
}

void txda_vram_free(struct txda_vram_block *block)
{
	block->tdev->vram.mm.taken[block->bytes / SZ_4K] = false;
	block->tdev->vram.used.counter -= SZ_4K;
	free(block);
}

void txda_vram_quarantine(struct txda_vram_block *block)
{
	kunit_complain(kunit_now, __FILE__, __LINE__, "no flush was stuck");
	txda_vram_free(block);
}

u64 txda_vram_offset(const struct txda_vram_block *block)
{
	return block->bytes;
}

/* Bit by bit: a reference for the checksum that the kernel computes by tables. */
u32 crc32c(u32 crc, const void *from, size_t bytes)
{
	const u8 *at = from;

	while (bytes--) {
		crc ^= *at++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

struct kunit *kunit_now;

void kunit_complain(struct kunit *test, const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, test->name, what);
	test->failed = true;
}

void *kunit_kzalloc(struct kunit *test, size_t bytes, int gfp)
{
	void *p = calloc(1, bytes);

	assert(test->n_memory < sizeof(test->memory) / sizeof(test->memory[0]));
	test->memory[test->n_memory++] = p;
	return p;
}

int kunit_main(struct kunit_suite **suites, unsigned count)
{
	unsigned failed = 0, ran = 0;

	for (unsigned i = 0; i < count; i++) {
		for (struct kunit_case *c = suites[i]->test_cases; c->run; c++) {
			struct kunit test = {.name = c->name};

			kunit_now = &test;
			c->run(&test);
			while (test.n_memory)
				free(test.memory[--test.n_memory]);
			printf("%s %s.%s\n", test.failed ? "FAIL" : "OK", suites[i]->name, c->name);
			failed += test.failed;
			ran++;
		}
	}
	return failed || !ran;
}
