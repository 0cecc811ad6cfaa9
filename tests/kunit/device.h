/* SPDX-License-Identifier: MIT */
/*
 * In place of driver/device.h: of struct txda_device what the tests need.
 */
#ifndef KUNIT_DEVICE_H
#define KUNIT_DEVICE_H

#include "drm/txda_drm.h"
#include "fwlog.h"
#include "mmu.h"
#include "ras.h"
#include "txda_regs.h"
#include "vram.h"

enum txda_user_kind { TXDA_USER_TABLES, TXDA_USER_KINDS };

struct txda_user {
	struct txda_device *tdev;
	refcount_t ref;
	atomic_t count[TXDA_USER_KINDS];
};

struct txda_device {
	int drm;
	u8 *regs;
	raw_spinlock_t pair_lock;
	struct drm_txda_device_info info;
	u32 n_ports;
	u64 dram_reserved, dram_bytes, dram_mappable;
	struct txda_fwlog fwlog;
	struct txda_ras ras;
	struct txda_vram vram;
	struct txda_mmu mmu;
};

static inline u32 txda_read(struct txda_device *tdev, u32 reg)
{
	return readl(tdev->regs + reg);
}

static inline void txda_write(struct txda_device *tdev, u32 reg, u32 value)
{
	writel(value, tdev->regs + reg);
}

static inline void txda_write_pair(struct txda_device *tdev, u32 reg, u64 value)
{
	txda_write(tdev, reg, value);
	txda_write(tdev, reg + 4, value >> 32);
}

static inline u64 txda_read_pair(struct txda_device *tdev, u32 reg)
{
	return txda_read(tdev, reg) | (u64)txda_read(tdev, reg + 4) << 32;
}

static inline int txda_user_charge(struct txda_user *user, enum txda_user_kind kind)
{
	atomic_inc_return(&user->count[kind]);
	return 0;
}

static inline void txda_user_uncharge(struct txda_user *user, enum txda_user_kind kind)
{
	atomic_dec(&user->count[kind]);
}

static inline void txda_reset_schedule(struct txda_device *tdev, const char *reason)
{
	kunit_complain(kunit_now, __FILE__, __LINE__, reason);
}

static inline bool txda_device_alive(struct txda_device *tdev)
{
	return txda_read(tdev, TXDA_REG_MAGIC) == TXDA_MAGIC;
}

#endif
