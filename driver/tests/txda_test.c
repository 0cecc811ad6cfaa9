// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of code that needs no chip: page tables, runs, firmware images and log, error
 * counters, bans, fair shares. A kernel with CONFIG_KUNIT runs them when it loads the module;
 * tests/kunit builds them for user space.
 */
#include <kunit/test.h>
#include <linux/crc32c.h>
#include <linux/firmware.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "ban.h"
#include "fair.h"
#include "device.h"
#include "firmware.h"
#include "fwlog.h"
#include "mmu.h"
#include "ras.h"
#include "runs.h"
#include "txda_firmware.h"

#define TXDA_TEST_DRAM	 SZ_16M
#define TXDA_TEST_FAMILY 8

/* A chip whose registers and DRAM are memory. */
static struct txda_device *txda_test_device(struct kunit *test)
{
	struct txda_device *tdev = kunit_kzalloc(test, sizeof(*tdev), GFP_KERNEL);
	void *regs = kunit_kzalloc(test, TXDA_BAR_REGS_BYTES, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, tdev);
	KUNIT_ASSERT_NOT_NULL(test, regs);
	tdev->regs = (void __iomem __force *)regs;
	raw_spin_lock_init(&tdev->pair_lock);
	tdev->info.family = TXDA_TEST_FAMILY;
	tdev->info.max_vms = 1;
	tdev->dram_reserved = SZ_2M;
	tdev->dram_bytes = TXDA_TEST_DRAM - SZ_2M;
	tdev->n_ports = 2;
	txda_write(tdev, TXDA_REG_MAGIC, TXDA_MAGIC);
	txda_write(tdev, TXDA_REG_VERSION, TXDA_REGS_MAJOR << 16 | TXDA_REGS_MINOR);
	txda_ras_init(tdev);
	txda_fwlog_init(tdev);
	return tdev;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static void txda_test_runs_merge(struct kunit *test)
{
	struct txda_runs *runs = txda_runs_new(2);
	u64 addr, bytes;

	KUNIT_ASSERT_NOT_NULL(test, runs);
	txda_runs_add(runs, SZ_1M, SZ_4K);
	txda_runs_add(runs, SZ_1M + SZ_4K, SZ_4K);
	txda_runs_add(runs, SZ_4K, SZ_8K);
	KUNIT_EXPECT_EQ(test, runs->count, 2);
	KUNIT_EXPECT_EQ(test, runs->bytes, SZ_16K);

	txda_runs_find(runs, SZ_8K - 1, &addr, &bytes);
	KUNIT_EXPECT_EQ(test, addr, SZ_1M + SZ_8K - 1);
	KUNIT_EXPECT_EQ(test, bytes, 1);
	txda_runs_find(runs, SZ_8K, &addr, &bytes);
	KUNIT_EXPECT_EQ(test, addr, SZ_4K);
	KUNIT_EXPECT_EQ(test, bytes, SZ_8K);
	kvfree(runs);
}

/* Whether a single segment of @len bytes at @addr is accepted for @bytes of a buffer. */
static int txda_test_sgt(struct kunit *test, u64 addr, u32 len, u64 bytes)
{
	struct txda_runs *runs;
	struct sg_table sgt;
	int err;

	KUNIT_ASSERT_EQ(test, sg_alloc_table(&sgt, 1, GFP_KERNEL), 0);
	sg_dma_address(sgt.sgl) = addr;
	sg_dma_len(sgt.sgl) = len;
	err = txda_runs_from_sgt(&sgt, bytes, &runs);
	if (!err) {
		KUNIT_EXPECT_EQ(test, runs->bytes, bytes);
		kvfree(runs);
	}
	sg_free_table(&sgt);
	return err;
}

static void txda_test_runs_hostile(struct kunit *test)
{
	const u64 end = BIT_ULL(52);

	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, SZ_1M, SZ_8K, SZ_8K), 0);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, SZ_1M, SZ_8K, SZ_4K), 0);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, end - SZ_4K, SZ_4K, SZ_4K), 0);
	/* Too short, not whole pages, and beyond what a page table entry can hold. */
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, SZ_1M, SZ_4K, SZ_8K), -EINVAL);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, SZ_1M, 100, 100), -EINVAL);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, SZ_1M + 512, SZ_4K, SZ_4K), -EINVAL);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, end, SZ_4K, SZ_4K), -EINVAL);
	KUNIT_EXPECT_EQ(test, txda_test_sgt(test, end - SZ_4K, SZ_8K, SZ_8K), -EINVAL);
}

static struct kunit_case txda_runs_cases[] = {
	KUNIT_CASE(txda_test_runs_merge),
	KUNIT_CASE(txda_test_runs_hostile),
	{},
};

static struct kunit_suite txda_runs_suite = {
	.name = "txda_runs",
	.test_cases = txda_runs_cases,
};

/* ---- Counters of errors --------------------------------------------------------------------- */

static void txda_test_ras_wrap(struct kunit *test)
{
	struct txda_total count = {};

	KUNIT_EXPECT_EQ(test, txda_total_add(&count, 3), 3);
	KUNIT_EXPECT_EQ(test, txda_total_add(&count, 3), 3);
	KUNIT_EXPECT_EQ(test, txda_total_add(&count, U32_MAX), U32_MAX);
	/* A reset of which the driver was not notified. */
	KUNIT_EXPECT_EQ(test, txda_total_add(&count, 2), 2 + (u64)U32_MAX);
}

static void txda_test_ras_reset(struct kunit *test)
{
	struct txda_device *tdev = txda_test_device(test);
	u64 total = 0;

	txda_write(tdev, TXDA_REG_ECC_CORRECTED, 5);
	txda_write(tdev, TXDA_REG_PORT(1) + TXDA_PORT_ERRORS, 7);
	txda_ras_save(tdev);
	txda_ras_restart(tdev);
	/* By the next read there are more errors than before the reset. */
	txda_write(tdev, TXDA_REG_ECC_CORRECTED, 6);
	txda_write(tdev, TXDA_REG_PORT(1) + TXDA_PORT_ERRORS, 0);
	KUNIT_EXPECT_EQ(test, txda_ras_get(tdev, TXDA_RAS_ECC_CORRECTED, &total), 0);
	KUNIT_EXPECT_EQ(test, total, 11);
	KUNIT_EXPECT_EQ(test, txda_ras_get(tdev, TXDA_RAS_PORT + 1, &total), 0);
	KUNIT_EXPECT_EQ(test, total, 7);

	/* A removed chip reads as all ones, which is not a count. */
	txda_write(tdev, TXDA_REG_MAGIC, U32_MAX);
	txda_write(tdev, TXDA_REG_ECC_CORRECTED, U32_MAX);
	KUNIT_EXPECT_EQ(test, txda_ras_get(tdev, TXDA_RAS_ECC_CORRECTED, &total), -ENODEV);
	KUNIT_EXPECT_EQ(test, tdev->ras.count[TXDA_RAS_ECC_CORRECTED].total, 11);
}

static struct kunit_case txda_ras_cases[] = {
	KUNIT_CASE(txda_test_ras_wrap),
	KUNIT_CASE(txda_test_ras_reset),
	{},
};

static struct kunit_suite txda_ras_suite = {
	.name = "txda_ras",
	.test_cases = txda_ras_cases,
};

/* ---- Firmware ------------------------------------------------------------------------------- */

struct txda_test_image {
	struct txda_firmware h;
	u8 payload[64];
};

static void txda_test_image_fill(struct txda_test_image *image)
{
	*image = (struct txda_test_image){};
	image->h.magic = TXDA_FIRMWARE_MAGIC;
	image->h.header_version = TXDA_FIRMWARE_HEADER_VERSION;
	image->h.header_bytes = sizeof(image->h);
	image->h.bytes = sizeof(*image);
	image->h.payload_bytes = sizeof(image->payload);
	image->h.chip_family = TXDA_TEST_FAMILY;
	image->h.regs_version = TXDA_REGS_MAJOR << 16;
	image->h.carveout_bytes = SZ_4M;
}

/* An image of @bytes with a valid checksum. */
static int txda_test_image_check(struct txda_device *tdev, struct txda_test_image *image,
				 size_t bytes)
{
	struct firmware fw = {.data = (const u8 *)image, .size = bytes};

	image->h.crc32c = 0;
	image->h.crc32c = ~crc32c(~0u, image, sizeof(*image));
	return txda_fw_check(tdev, &fw);
}

static void txda_test_fw_accepts(struct kunit *test)
{
	struct txda_device *tdev = txda_test_device(test);
	struct txda_test_image image;
	struct firmware fw = {.data = (const u8 *)&image, .size = sizeof(image)};

	txda_test_image_fill(&image);
	KUNIT_EXPECT_EQ(test, txda_test_image_check(tdev, &image, sizeof(image)), 0);
	image.payload[3] ^= 1;
	KUNIT_EXPECT_EQ(test, txda_fw_check(tdev, &fw), -EINVAL);
}

#define TXDA_TEST_FW_BAD(member, value, err)                                                       \
	do {                                                                                       \
		txda_test_image_fill(&image);                                                      \
		image.h.member = value;                                                            \
		KUNIT_EXPECT_EQ(test, txda_test_image_check(tdev, &image, sizeof(image)), err);    \
	} while (0)

static void txda_test_fw_hostile(struct kunit *test)
{
	struct txda_device *tdev = txda_test_device(test);
	struct txda_test_image image;
	size_t bytes;

	TXDA_TEST_FW_BAD(magic, 0, -EINVAL);
	TXDA_TEST_FW_BAD(header_version, TXDA_FIRMWARE_HEADER_VERSION + 1, -EPROTO);
	TXDA_TEST_FW_BAD(header_bytes, sizeof(image.h) + 8, -EINVAL);
	TXDA_TEST_FW_BAD(bytes, sizeof(image) + 8, -EINVAL);
	TXDA_TEST_FW_BAD(chip_family, TXDA_TEST_FAMILY + 1, -EPROTO);
	TXDA_TEST_FW_BAD(regs_version, (TXDA_REGS_MAJOR + 1) << 16, -EPROTO);
	TXDA_TEST_FW_BAD(regs_version, TXDA_REGS_MAJOR << 16 | 0xffff, -EPROTO);
	TXDA_TEST_FW_BAD(driver_version, U32_MAX, -EPROTO);
	TXDA_TEST_FW_BAD(carveout_bytes, SZ_4M + SZ_4K, -EINVAL);
	TXDA_TEST_FW_BAD(carveout_bytes, TXDA_TEST_DRAM / 2 + SZ_2M, -E2BIG);
	TXDA_TEST_FW_BAD(carveout_bytes, U64_MAX - SZ_2M + 1, -E2BIG);

	/* Truncated anywhere. */
	txda_test_image_fill(&image);
	for (bytes = 0; bytes < sizeof(image); bytes++)
		KUNIT_EXPECT_EQ(test, txda_test_image_check(tdev, &image, bytes), -EINVAL);

	/* Larger than the chip's reserved memory, which its log is in, too. */
	tdev->dram_reserved = sizeof(image) + sizeof(struct txda_fw_log_entry) - 1;
	txda_write(tdev, TXDA_REG_FW_LOG_ENTRIES, 1);
	txda_fwlog_init(tdev);
	txda_test_image_fill(&image);
	KUNIT_EXPECT_EQ(test, txda_test_image_check(tdev, &image, sizeof(image)), -E2BIG);
}

static struct kunit_case txda_fw_cases[] = {
	KUNIT_CASE(txda_test_fw_accepts),
	KUNIT_CASE(txda_test_fw_hostile),
	{},
};

static struct kunit_suite txda_fw_suite = {
	.name = "txda_firmware",
	.test_cases = txda_fw_cases,
};

/* ---- Page tables ---------------------------------------------------------------------------- */

/* An unused address space of a chip with 2 MiB of DRAM: no flush waits for anything. */
static struct txda_pt *txda_test_pt_init(struct kunit *test)
{
	struct txda_device *tdev = txda_test_device(test);
	struct txda_user *user = kunit_kzalloc(test, sizeof(*user), GFP_KERNEL);
	struct txda_pt *pt = kunit_kzalloc(test, sizeof(*pt), GFP_KERNEL);
	void *dram = kunit_kzalloc(test, SZ_2M, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_ASSERT_NOT_NULL(test, pt);
	KUNIT_ASSERT_NOT_NULL(test, dram);
	tdev->dram_bytes = SZ_2M;
	tdev->dram_mappable = SZ_2M;
	tdev->vram.aperture = (void __iomem __force *)dram;
	tdev->vram.aperture_bytes = SZ_2M;
	INIT_LIST_HEAD(&tdev->vram.live);
	INIT_LIST_HEAD(&tdev->vram.limbo);
	mutex_init(&tdev->vram.lock);
	mutex_init(&tdev->mmu.lock);
	KUNIT_ASSERT_EQ(test, txda_buddy_init(&tdev->vram.mm, SZ_2M, SZ_4K), 0);
	user->tdev = tdev;
	refcount_set(&user->ref, 1);
	KUNIT_ASSERT_EQ(test, txda_pt_init(tdev, user, pt), 0);
	return pt;
}

static void txda_test_pt_fini(struct kunit *test, struct txda_pt *pt)
{
	KUNIT_EXPECT_FALSE(test, txda_pt_fini(pt));
	KUNIT_EXPECT_EQ(test, atomic64_read(&pt->tdev->vram.used), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&pt->user->count[TXDA_USER_TABLES]), 0);
	txda_buddy_fini(&pt->tdev->vram.mm);
}

/* Where the chip translates @va to, by the contents of its DRAM; U64_MAX: not mapped. */
static u64 txda_test_pt_walk(struct txda_pt *pt, u64 va)
{
	u64 pte = txda_pt_root(pt);
	u32 level = TXDA_PT_LEVELS, shift;

	while (level--) {
		shift = TXDA_PAGE_SHIFT + level * TXDA_PT_SHIFT;
		pte = readq(pt->tdev->vram.aperture + (pte & TXDA_PTE_ADDR_MASK) +
			    8 * ((va >> shift) & (TXDA_PT_ENTRIES - 1)));
		if (!(pte & TXDA_PTE_VALID))
			return U64_MAX;
		if (pte & TXDA_PTE_LEAF)
			return (pte & TXDA_PTE_ADDR_MASK) + (va & (BIT(shift) - 1));
	}
	return U64_MAX;
}

static void txda_test_pt_map(struct kunit *test, struct txda_pt *pt, u64 va, u64 bytes, u64 addr)
{
	struct txda_pt_reserve reserve;
	struct txda_pt_need need = {};

	txda_pt_reserve_init(&reserve);
	txda_pt_need_run(&need, va, bytes, addr);
	KUNIT_EXPECT_EQ(test, txda_pt_prepare_map(pt, va, bytes, &need, &reserve), 0);
	KUNIT_EXPECT_TRUE(test, (u32)atomic_read(&pt->user->count[TXDA_USER_TABLES]) >=
					pt->tables + need.leaves);
	KUNIT_EXPECT_EQ(test, txda_pt_map(pt, &reserve, va, bytes, addr, TXDA_PTE_READ), 0);
	txda_pt_reserve_free(&reserve);
	/* Those that were not needed are given back. */
	KUNIT_EXPECT_EQ(test, (u32)atomic_read(&pt->user->count[TXDA_USER_TABLES]), pt->tables);
	txda_pt_write_tables(pt);
}

static void txda_test_pt_unmap(struct kunit *test, struct txda_pt *pt, u64 va, u64 bytes)
{
	struct txda_pt_reserve reserve;

	txda_pt_reserve_init(&reserve);
	KUNIT_EXPECT_EQ(test, txda_pt_prepare_unmap(pt, va, bytes, &reserve), 0);
	KUNIT_EXPECT_EQ(test, txda_pt_unmap(pt, &reserve, va, bytes), 0);
	KUNIT_EXPECT_TRUE(test, pt->dirty_start <= va && pt->dirty_end >= va + bytes);
	KUNIT_EXPECT_EQ(test, txda_pt_flush(pt, &reserve), -ENODEV);
	txda_pt_reserve_free(&reserve);
	txda_pt_write_tables(pt);
}

static void txda_test_pt_split(struct kunit *test)
{
	struct txda_pt *pt = txda_test_pt_init(test);
	const u64 va = 3ull * SZ_2M, addr = 5ull * SZ_2M;

	/* A small page, a huge one, a small one: two tables below the three on the path. */
	txda_test_pt_map(test, pt, va - SZ_4K, SZ_2M + SZ_8K, addr - SZ_4K);
	KUNIT_EXPECT_EQ(test, pt->tables, 5);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va - SZ_4K - 1), U64_MAX);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va - SZ_4K), addr - SZ_4K);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_1M + 7), addr + SZ_1M + 7);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_2M + 1), addr + SZ_2M + 1);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_2M + SZ_4K), U64_MAX);

	/* A hole in the huge page: a table replaces it, and all other translations stay. */
	txda_test_pt_unmap(test, pt, va + SZ_1M, SZ_4K);
	KUNIT_EXPECT_EQ(test, pt->tables, 6);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_1M - 1), addr + SZ_1M - 1);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_1M), U64_MAX);
	KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + SZ_1M + SZ_4K), addr + SZ_1M + SZ_4K);

	txda_test_pt_unmap(test, pt, va - SZ_4K, SZ_2M + SZ_8K);
	KUNIT_EXPECT_EQ(test, pt->tables, 1);
	txda_test_pt_fini(test, pt);
}

/* For random mappings: the prepared tables are enough, and none is left behind. */
static void txda_test_pt_reserve(struct kunit *test)
{
	struct txda_pt *pt = txda_test_pt_init(test);
	u32 seed = 1, i;

	for (i = 0; i < 300; i++) {
		u64 va, bytes, addr, cut;

		seed = seed * 1664525 + 1013904223;
		bytes = (u64)SZ_4K * (1 + (seed >> 8) % 2048);
		va = ((u64)(seed & 0xff) << 38) + (u64)SZ_4K * (seed >> 16);
		/* Half of them can use huge pages. */
		addr = va + (seed & 0x80 ? SZ_4K : 0);
		cut = ALIGN_DOWN(bytes / 3, SZ_4K);
		txda_test_pt_map(test, pt, va, bytes, addr);
		KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va), addr);
		KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + bytes - 1), addr + bytes - 1);
		KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + bytes), U64_MAX);
		if (cut) {
			txda_test_pt_unmap(test, pt, va + cut, cut);
			KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + cut), U64_MAX);
			KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + cut - 1), addr + cut - 1);
			KUNIT_EXPECT_EQ(test, txda_test_pt_walk(pt, va + 2 * cut), addr + 2 * cut);
		}
		txda_test_pt_unmap(test, pt, va, bytes);
		KUNIT_EXPECT_EQ(test, pt->tables, 1);
	}
	txda_test_pt_fini(test, pt);
}

static struct kunit_case txda_pt_cases[] = {
	KUNIT_CASE(txda_test_pt_split),
	KUNIT_CASE(txda_test_pt_reserve),
	{},
};

static struct kunit_suite txda_pt_suite = {
	.name = "txda_pt",
	.test_cases = txda_pt_cases,
};

/* ---- Firmware's log ------------------------------------------------------------------------- */

#define TXDA_TEST_MESSAGES 8

/**
 * struct txda_test_log - What was shown.
 */
struct txda_test_log {
	/** @lines: How many lines. */
	u32 lines;

	/** @room: For so many. */
	u32 room;

	/** @last: The last one. */
	char last[192];
};

static bool txda_test_log_put(void *arg, const char *line)
{
	struct txda_test_log *log = arg;

	log->lines++;
	snprintf(log->last, sizeof(log->last), "%s", line);
	return log->lines < log->room;
}

/* Shows at most @max messages to a reader that has @room for so many lines; how many it got. */
static u32 txda_test_log_show_in(struct txda_device *tdev, struct txda_test_log *log, u32 max,
				 u32 room)
{
	*log = (struct txda_test_log){.room = room};
	txda_fwlog_show(tdev, max, txda_test_log_put, log);
	return log->lines;
}

static u32 txda_test_log_show(struct txda_device *tdev, struct txda_test_log *log, u32 max)
{
	return txda_test_log_show_in(tdev, log, max, U32_MAX);
}

/* A chip that has a log and, in all of its DRAM, the aperture. Returns the ring. */
static struct txda_fw_log_entry *txda_test_log_of(struct kunit *test, struct txda_device *tdev)
{
	u8 *dram = kunit_kzalloc(test, SZ_2M, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, dram);
	tdev->vram.aperture = (void __iomem __force *)dram;
	tdev->vram.aperture_bytes = SZ_2M;
	txda_write(tdev, TXDA_REG_FW_LOG_ENTRIES, TXDA_TEST_MESSAGES);
	txda_fwlog_init(tdev);
	KUNIT_EXPECT_EQ(test, tdev->fwlog.at,
			SZ_2M - TXDA_TEST_MESSAGES * sizeof(struct txda_fw_log_entry));
	return (struct txda_fw_log_entry *)(dram + tdev->fwlog.at);
}

static void txda_test_log_add(struct txda_device *tdev, struct txda_fw_log_entry *ring, u64 number,
			      const char *text)
{
	struct txda_fw_log_entry *entry = &ring[(number - 1) % TXDA_TEST_MESSAGES];

	*entry = (struct txda_fw_log_entry){
		.number = number,
		.time_ns = 12ull * NSEC_PER_SEC + 345678000,
		.level = TXDA_FW_LOG_WARNING,
	};
	memcpy(entry->text, text, min(strlen(text), sizeof(entry->text)));
	txda_write_pair(tdev, TXDA_REG_FW_LOG_COUNT_LO, number);
}

static void txda_test_log_shows(struct kunit *test)
{
	struct txda_device *tdev = txda_test_device(test);
	struct txda_fw_log_entry *ring = txda_test_log_of(test, tdev);
	struct txda_test_log log;
	u64 i;

	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 0);
	for (i = 1; i <= 5; i++)
		txda_test_log_add(tdev, ring, i, "text");
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 5);
	KUNIT_EXPECT_TRUE(test, !strcmp(log.last, "[   12.345678] warning: text\n"));
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 3), 3);
	KUNIT_EXPECT_EQ(test, txda_test_log_show_in(tdev, &log, 100, 2), 2);
	for (; i <= 20; i++)
		txda_test_log_add(tdev, ring, i, i == 20 ? "last" : "text");
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), TXDA_TEST_MESSAGES);
	KUNIT_EXPECT_TRUE(test, !strcmp(log.last, "[   12.345678] warning: last\n"));

	/* One that is being written, and those that a function reset cleared. */
	ring[(20 - 1) % TXDA_TEST_MESSAGES].number = 0;
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), TXDA_TEST_MESSAGES - 1);
	memset(ring, 0, TXDA_TEST_MESSAGES * sizeof(*ring));
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 0);
}

static void txda_test_log_hostile(struct kunit *test)
{
	static const u32 bad[] = {3, TXDA_FW_LOG_MAX_ENTRIES + 1, 2 * TXDA_FW_LOG_MAX_ENTRIES,
				  SZ_2M / sizeof(struct txda_fw_log_entry) * 2, U32_MAX};
	struct txda_device *tdev = txda_test_device(test);
	struct txda_fw_log_entry *ring = txda_test_log_of(test, tdev);
	char text[sizeof(ring->text) + 1] = "a\n\x1b[31m\xff";
	struct txda_test_log log;
	u32 i;

	/* Text that would do something to a terminal, a level nobody knows, no zero at the end. */
	txda_test_log_add(tdev, ring, 1, text);
	ring->level = 200;
	txda_test_log_show(tdev, &log, 100);
	KUNIT_EXPECT_TRUE(test, !strcmp(log.last, "[   12.345678] unknown level: a??[31m?\n"));
	memset(text, 'x', sizeof(text) - 1);
	txda_test_log_add(tdev, ring, 1, text);
	txda_test_log_show(tdev, &log, 100);
	KUNIT_EXPECT_EQ(test, strlen(log.last),
			strlen("[   12.345678] warning: ") + sizeof(ring->text) + 1);

	/* A count that is nonsense, a chip that is gone. */
	txda_write_pair(tdev, TXDA_REG_FW_LOG_COUNT_LO, U64_MAX);
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 0);
	ring[0].number = U64_MAX;
	ring[TXDA_TEST_MESSAGES - 2].number = U64_MAX;
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, U32_MAX), 1);
	txda_write(tdev, TXDA_REG_MAGIC, U32_MAX);
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, U32_MAX), 0);
	txda_write(tdev, TXDA_REG_MAGIC, TXDA_MAGIC);

	/* A log beyond the aperture, or beyond the reserved part. */
	tdev->vram.aperture_bytes = SZ_2M - 1;
	KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 0);
	tdev->vram.aperture_bytes = SZ_2M;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		txda_write(tdev, TXDA_REG_FW_LOG_ENTRIES, bad[i]);
		txda_fwlog_init(tdev);
		KUNIT_EXPECT_EQ(test, tdev->fwlog.at, tdev->dram_reserved);
		KUNIT_EXPECT_EQ(test, txda_test_log_show(tdev, &log, 100), 0);
	}
}

static struct kunit_case txda_log_cases[] = {
	KUNIT_CASE(txda_test_log_shows),
	KUNIT_CASE(txda_test_log_hostile),
	{},
};

static struct kunit_suite txda_log_suite = {
	.name = "txda_log",
	.test_cases = txda_log_cases,
};

/* ---- Bans ----------------------------------------------------------------------------------- */

#define TXDA_TEST_SECOND 1000000000ull
#define TXDA_TEST_BAN	 (100 * TXDA_TEST_SECOND)

static u64 txda_test_at(u64 seconds)
{
	return seconds * TXDA_TEST_SECOND;
}

/* Three resets within a minute begin a ban; fewer do not. */
static void txda_test_ban_begins(struct kunit *test)
{
	struct txda_ban ban = {};

	KUNIT_EXPECT_TRUE(test, txda_ban_is_over(&ban, 0));
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 7, txda_test_at(10), TXDA_TEST_BAN));
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 7, txda_test_at(40), TXDA_TEST_BAN));
	/* The first is more than a minute ago. */
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 7, txda_test_at(71), TXDA_TEST_BAN));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 7, 1, txda_test_at(72)), 0);
	KUNIT_EXPECT_FALSE(test, txda_ban_is_over(&ban, txda_test_at(72)));
	KUNIT_EXPECT_TRUE(test, txda_ban_count(&ban, 7, txda_test_at(100), TXDA_TEST_BAN));
	KUNIT_EXPECT_EQ(test, ban.resets, 4);
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 7, 1, txda_test_at(101)), txda_test_at(99));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 7, 1, txda_test_at(200)), 0);
	KUNIT_EXPECT_FALSE(test, txda_ban_is_over(&ban, txda_test_at(199)));
	KUNIT_EXPECT_TRUE(test, txda_ban_is_over(&ban, txda_test_at(200)));
}

/* Old files that did nothing are spared, new ones are not. */
static void txda_test_ban_files(struct kunit *test)
{
	struct txda_ban ban = {};
	const u64 now = txda_test_at(61);

	/* Too long ago to matter: file 4. */
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 4, txda_test_at(1) - 1, TXDA_TEST_BAN));
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 5, txda_test_at(20), TXDA_TEST_BAN));
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 6, txda_test_at(61), TXDA_TEST_BAN));
	KUNIT_EXPECT_TRUE(test, txda_ban_count(&ban, 6, now, TXDA_TEST_BAN));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 5, 1, now), TXDA_TEST_BAN);
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 6, 1, now), TXDA_TEST_BAN);
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 4, 1, now), 0);
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 9, txda_test_at(20) - 1, now), 0);
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 9, txda_test_at(20), now), TXDA_TEST_BAN);

	/* Another reset, by a file that was spared. */
	KUNIT_EXPECT_TRUE(test, txda_ban_count(&ban, 9, txda_test_at(100), TXDA_TEST_BAN));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 8, 1, txda_test_at(161)), txda_test_at(39));
	/* The next ban starts from a clean state. */
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 9, txda_test_at(300), TXDA_TEST_BAN));
	KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 9, txda_test_at(300), TXDA_TEST_BAN));
	KUNIT_EXPECT_TRUE(test, txda_ban_count(&ban, 9, txda_test_at(300), TXDA_TEST_BAN));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 8, 1, txda_test_at(301)), 0);
}

/* The administrator has disabled bans. */
static void txda_test_ban_off(struct kunit *test)
{
	struct txda_ban ban = {};
	u32 i;

	for (i = 0; i < 10; i++)
		KUNIT_EXPECT_FALSE(test, txda_ban_count(&ban, 7, txda_test_at(10 + i), 0));
	KUNIT_EXPECT_EQ(test, txda_ban_left(&ban, 7, U64_MAX, txda_test_at(19)), 0);
	KUNIT_EXPECT_TRUE(test, txda_ban_count(&ban, 7, txda_test_at(20), TXDA_TEST_BAN));
}

static struct kunit_case txda_ban_cases[] = {
	KUNIT_CASE(txda_test_ban_begins),
	KUNIT_CASE(txda_test_ban_files),
	KUNIT_CASE(txda_test_ban_off),
	{},
};

static struct kunit_suite txda_ban_suite = {
	.name = "txda_ban",
	.test_cases = txda_ban_cases,
};

/* ---- Fair shares ---------------------------------------------------------------------------- */

#define TXDA_TEST_MS 1000000ull

static struct txda_fair_queue *txda_test_fair_run(struct txda_fair *fair, u64 ns)
{
	struct txda_fair_queue *queue = txda_fair_pick(fair);

	txda_fair_charge(fair, queue, ns);
	return queue;
}

/* Lets the queue with an entry in @turns count its turns, @total of them, each @ns long. */
static void txda_test_fair_turns(struct txda_fair *fair, struct txda_fair_queue *queues, u32 *turns,
				 u32 total, u64 ns)
{
	struct txda_fair_queue *queue;

	while (total--) {
		queue = txda_test_fair_run(fair, ns);
		turns[queue - queues]++;
		txda_fair_wait(fair, queue);
	}
}

/* A user with many queues has no more than one with a single queue, and none of them starves. */
static void txda_test_fair_users(struct kunit *test)
{
	struct txda_fair_user users[2] = {};
	struct txda_fair_queue queues[5];
	u32 turns[5] = {}, i;
	struct txda_fair fair;

	txda_fair_init(&fair);
	KUNIT_EXPECT_TRUE(test, txda_fair_is_empty(&fair));
	KUNIT_EXPECT_TRUE(test, !txda_fair_pick(&fair));
	for (i = 0; i < 5; i++) {
		txda_fair_queue_init(&queues[i], &users[i == 4], TXDA_FAIR_WEIGHT);
		txda_fair_wait(&fair, &queues[i]);
		txda_fair_wait(&fair, &queues[i]);
	}
	KUNIT_EXPECT_FALSE(test, txda_fair_is_empty(&fair));
	txda_test_fair_turns(&fair, queues, turns, 80, TXDA_TEST_MS);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, turns[i], 10);
	KUNIT_EXPECT_EQ(test, turns[4], 40);
}

/* Time counts, not jobs: who runs long ones has fewer. */
static void txda_test_fair_time(struct kunit *test)
{
	struct txda_fair_user users[2] = {};
	struct txda_fair_queue queues[2], *queue;
	u32 turns[2] = {}, i;
	struct txda_fair fair;

	txda_fair_init(&fair);
	for (i = 0; i < 2; i++) {
		txda_fair_queue_init(&queues[i], &users[i], TXDA_FAIR_WEIGHT);
		txda_fair_wait(&fair, &queues[i]);
	}
	for (i = 0; i < 99; i++) {
		queue = txda_fair_pick(&fair);
		turns[queue - queues]++;
		txda_fair_charge(&fair, queue, queue == queues ? 10 * TXDA_TEST_MS : TXDA_TEST_MS);
		txda_fair_wait(&fair, queue);
	}
	KUNIT_EXPECT_EQ(test, turns[0], 9);
	KUNIT_EXPECT_EQ(test, turns[1], 90);
}

/* Priorities and nice values are weights. */
static void txda_test_fair_weights(struct kunit *test)
{
	struct txda_fair_user users[2] = {};
	struct txda_fair_queue queues[2];
	u32 turns[2] = {}, i;
	struct txda_fair fair;

	KUNIT_EXPECT_EQ(test, txda_fair_weight(1, 0), 1024);
	KUNIT_EXPECT_EQ(test, txda_fair_weight(0, 0), 128);
	KUNIT_EXPECT_EQ(test, txda_fair_weight(2, 0), 8192);
	KUNIT_EXPECT_EQ(test, txda_fair_weight(1, 1), 819);
	KUNIT_EXPECT_EQ(test, txda_fair_weight(1, -1), 1280);
	KUNIT_EXPECT_TRUE(test, txda_fair_weight(0, 19) >= 1);
	KUNIT_EXPECT_TRUE(test, txda_fair_weight(2, -20) > txda_fair_weight(2, -19));

	txda_fair_init(&fair);
	for (i = 0; i < 2; i++) {
		txda_fair_queue_init(&queues[i], &users[i], txda_fair_weight(i, 0));
		txda_fair_wait(&fair, &queues[i]);
	}
	txda_test_fair_turns(&fair, queues, turns, 90, TXDA_TEST_MS);
	KUNIT_EXPECT_EQ(test, turns[0], 10);
	KUNIT_EXPECT_EQ(test, turns[1], 80);
}

/* Who comes late, or was idle for long, takes no more than half of what follows. */
static void txda_test_fair_late(struct kunit *test)
{
	struct txda_fair_user users[2] = {};
	struct txda_fair_queue queues[2];
	u32 turns[2] = {}, i;
	struct txda_fair fair;

	txda_fair_init(&fair);
	for (i = 0; i < 2; i++)
		txda_fair_queue_init(&queues[i], &users[i], TXDA_FAIR_WEIGHT);
	txda_fair_wait(&fair, &queues[0]);
	txda_test_fair_turns(&fair, queues, turns, 1000, TXDA_TEST_MS);
	KUNIT_EXPECT_EQ(test, turns[0], 1000);
	txda_fair_wait(&fair, &queues[1]);
	txda_test_fair_turns(&fair, queues, turns, 100, TXDA_TEST_MS);
	/* One turn of grace: the first of the other is charged when it is over. */
	KUNIT_EXPECT_TRUE(test, turns[1] >= 50 && turns[1] <= 51);

	/* Its second queue starts level with the first. */
	txda_fair_leave(&queues[0]);
	txda_fair_leave(&queues[1]);
	txda_fair_leave(&queues[1]);
	KUNIT_EXPECT_TRUE(test, txda_fair_is_empty(&fair));
	txda_fair_queue_init(&queues[0], &users[1], TXDA_FAIR_WEIGHT);
	txda_fair_wait(&fair, &queues[1]);
	txda_fair_wait(&fair, &queues[0]);
	turns[0] = 0;
	turns[1] = 0;
	txda_test_fair_turns(&fair, queues, turns, 100, TXDA_TEST_MS);
	KUNIT_EXPECT_TRUE(test, turns[0] >= 50 && turns[0] <= 51);
}

/* 100 turns of two queues, which are not waiting, are 50 of each. */
static void txda_test_fair_halves(struct kunit *test, struct txda_fair *fair,
				  struct txda_fair_queue *queues)
{
	u32 turns[2] = {};

	txda_fair_wait(fair, &queues[0]);
	txda_fair_wait(fair, &queues[1]);
	txda_test_fair_turns(fair, queues, turns, 100, TXDA_TEST_MS);
	KUNIT_EXPECT_TRUE(test, turns[0] >= 49 && turns[0] <= 51);
	txda_fair_leave(&queues[0]);
	txda_fair_leave(&queues[1]);
}

/* Who had the hardware for long because nobody else wanted it is level with who comes then. */
static void txda_test_fair_alone(struct kunit *test)
{
	struct txda_fair_queue queues[2];
	struct txda_fair fair;
	u32 n_users, i;

	for (n_users = 1; n_users <= 2; n_users++) {
		struct txda_fair_user users[2] = {};

		txda_fair_init(&fair);
		for (i = 0; i < 2; i++)
			txda_fair_queue_init(&queues[i], &users[i % n_users], TXDA_FAIR_WEIGHT);
		txda_fair_wait(&fair, &queues[0]);
		KUNIT_EXPECT_TRUE(test, txda_fair_pick(&fair) == queues);
		for (i = 0; i < 1000; i++)
			txda_fair_charge(&fair, &queues[0], TXDA_TEST_MS);
		txda_test_fair_halves(test, &fair, queues);

		/* Two at once, for which there is hardware, one of them with longer jobs. */
		for (i = 0; i < 1000; i++) {
			txda_fair_charge(&fair, &queues[0], TXDA_TEST_MS);
			txda_fair_charge(&fair, &queues[1], 10 * TXDA_TEST_MS);
		}
		txda_test_fair_halves(test, &fair, queues);
	}
}

/* A long job of the least weight does not keep its user, or its queue, waiting without end. */
static void txda_test_fair_lead(struct kunit *test)
{
	struct txda_fair_queue queues[3], *queue;
	struct txda_fair_user users[2] = {};
	u64 had[3] = {}, lead = TXDA_FAIR_MAX_LEAD_NS;
	struct txda_fair fair;
	u32 i;

	txda_fair_init(&fair);
	for (i = 0; i < 3; i++) {
		txda_fair_queue_init(&queues[i], &users[i / 2], i ? TXDA_FAIR_WEIGHT : 1);
		txda_fair_wait(&fair, &queues[i]);
	}
	queue = txda_fair_pick(&fair);
	KUNIT_EXPECT_TRUE(test, queue == queues);
	KUNIT_EXPECT_FALSE(test, txda_fair_is_ahead(&fair, &users[0]));
	txda_fair_charge(&fair, queue, 10 * NSEC_PER_SEC);
	KUNIT_EXPECT_TRUE(test, txda_fair_is_ahead(&fair, &users[0]));
	KUNIT_EXPECT_FALSE(test, txda_fair_is_ahead(&fair, &users[1]));
	txda_fair_wait(&fair, queue);
	/* The other user, then the user's other queue. */
	while (had[0] + had[1] + had[2] < 10 * lead && !had[0]) {
		queue = txda_test_fair_run(&fair, NSEC_PER_SEC);
		had[queue - queues] += NSEC_PER_SEC;
		txda_fair_wait(&fair, queue);
		KUNIT_EXPECT_TRUE(test, queue == &queues[2] || had[2] >= lead);
	}
	KUNIT_EXPECT_EQ(test, had[0], NSEC_PER_SEC);
	KUNIT_EXPECT_TRUE(test, had[1] >= lead && had[1] <= lead + NSEC_PER_SEC);
	KUNIT_EXPECT_TRUE(test, had[2] >= 2 * lead && had[2] <= 2 * lead + 2 * NSEC_PER_SEC);
}

/* Who was idle for so long that the times wrapped starts level all the same. */
static void txda_test_fair_wrap(struct kunit *test)
{
	struct txda_fair_user user = {};
	struct txda_fair_queue queue;
	struct txda_fair fair;

	txda_fair_init(&fair);
	fair.level = BIT_ULL(63) + 1;
	user.level = BIT_ULL(63) + 2;
	txda_fair_queue_init(&queue, &user, TXDA_FAIR_WEIGHT);
	txda_fair_wait(&fair, &queue);
	KUNIT_EXPECT_EQ(test, user.time, fair.level);
	KUNIT_EXPECT_EQ(test, queue.time, user.level);
}

/* Of users that had the same time, who has waited for longer is next, whatever its queues had. */
static void txda_test_fair_tie(struct kunit *test)
{
	struct txda_fair_user users[2] = {};
	struct txda_fair_queue queues[2];
	struct txda_fair fair;
	u32 i;

	txda_fair_init(&fair);
	for (i = 0; i < 2; i++) {
		txda_fair_queue_init(&queues[i], &users[i], TXDA_FAIR_WEIGHT);
		queues[i].time = 2 - i;
		txda_fair_wait(&fair, &queues[i]);
	}
	KUNIT_EXPECT_TRUE(test, txda_fair_pick(&fair) == queues);
}

static struct kunit_case txda_fair_cases[] = {
	KUNIT_CASE(txda_test_fair_users),
	KUNIT_CASE(txda_test_fair_time),
	KUNIT_CASE(txda_test_fair_weights),
	KUNIT_CASE(txda_test_fair_late),
	KUNIT_CASE(txda_test_fair_alone),
	KUNIT_CASE(txda_test_fair_lead),
	KUNIT_CASE(txda_test_fair_wrap),
	KUNIT_CASE(txda_test_fair_tie),
	{},
};

static struct kunit_suite txda_fair_suite = {
	.name = "txda_fair",
	.test_cases = txda_fair_cases,
};

kunit_test_suites(&txda_runs_suite, &txda_ras_suite, &txda_fw_suite, &txda_log_suite,
		  &txda_pt_suite, &txda_ban_suite, &txda_fair_suite);
