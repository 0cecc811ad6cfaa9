// SPDX-License-Identifier: GPL-2.0
#include "copy.h"

#include <linux/dma-mapping.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "device.h"
#include "hwq.h"
#include "mmu.h"
#include "reset.h"
#include "txda_isa.h"
#include "vram.h"

/* Address of the command page; the staging area follows it. */
#define TXDA_COPY_CMD_VA     SZ_2M
#define TXDA_COPY_CMD_BYTES  SZ_4K
#define TXDA_COPY_HOST_BYTES (TXDA_COPY_CMD_BYTES + TXDA_COPY_STAGE_BYTES)
#define TXDA_COPY_STAGE_VA   (TXDA_COPY_CMD_VA + TXDA_COPY_CMD_BYTES)

#define TXDA_COPY_SLICE SZ_64M
#define TXDA_COPY_LOOK	(HZ / 2)
#define TXDA_COPY_LOOKS 10

/**
 * struct txda_copy - The kernel's copy queue.
 */
struct txda_copy {
	/** @lock: One job at a time; the command page. */
	struct mutex lock;

	/** @pt: The address space. */
	struct txda_pt pt;

	/** @hwq: The queue. */
	struct txda_hwq *hwq;

	/** @host: Command page and staging area. */
	void *host;

	/** @dma: Their bus address. */
	dma_addr_t dma;

	/** @seqno: Of the last job. */
	u64 seqno;

	/** @wait: For the end of the job. */
	wait_queue_head_t wait;

	/** @dead: The queue could not be stopped. Cleared by the next reset. */
	bool dead;
};

/* Hard interrupt context. */
static void txda_copy_complete(struct txda_hwq *hwq)
{
	struct txda_copy *copy = hwq->priv;

	wake_up_all(&copy->wait);
}

/* Returns 0 while the job may still finish, else the error why it will not. */
static int txda_copy_wait(struct txda_device *tdev, struct txda_copy *copy)
{
	u64 progress = txda_hwq_progress(copy->hwq), now;
	u32 looks = 0;

	while (!wait_event_timeout(copy->wait, txda_hwq_done(copy->hwq) >= copy->seqno,
				   TXDA_COPY_LOOK)) {
		if (!txda_device_alive(tdev))
			return -ENODEV;
		if (txda_hwq_state(copy->hwq) != TXDA_QUEUE_RUNNING)
			return -EIO;
		now = txda_hwq_progress(copy->hwq);
		if (now != progress)
			looks = 0;
		else if (++looks == TXDA_COPY_LOOKS)
			return -ETIMEDOUT;
		progress = now;
	}
	return 0;
}

/* After a failed job: stops the queue, so that it writes nothing more, and sets it up again. */
static int txda_copy_recover(struct txda_device *tdev, struct txda_copy *copy, int err)
{
	/* The chip was reset under it: it is brought up again, or removed. */
	bool cut = READ_ONCE(tdev->reset.stopping);

	if (err != -ENODEV && !cut)
		drm_err(&tdev->drm, "the kernel's copy queue failed: %pe\n", ERR_PTR(err));
	if (!txda_hwq_stop(copy->hwq) && (cut || !txda_hwq_restart(copy->hwq)))
		return -EIO;

	copy->dead = true;
	txda_reset_schedule(tdev, "the kernel's copy queue does not stop");
	return -ETIMEDOUT;
}

/* Runs the packet in the command page. */
static int txda_copy_run(struct txda_device *tdev, struct txda_copy *copy, u32 bytes)
{
	int err;

	lockdep_assert_held(&copy->lock);

	if (copy->dead)
		return -EIO;
	txda_hwq_push(copy->hwq, TXDA_COPY_CMD_VA, bytes, ++copy->seqno);
	err = txda_copy_wait(tdev, copy);
	if (err)
		err = txda_copy_recover(tdev, copy, err);
	return err;
}

int txda_copy_clear(struct txda_device *tdev, u64 offset, u64 bytes)
{
	struct txda_copy *copy = tdev->copy;
	u64 end = offset + bytes;
	int err = 0;

	while (offset < end && !err) {
		struct txda_pkt_fill fill = {
			.hdr.op = TXDA_PKT_FILL,
			.hdr.bytes = sizeof(fill),
			.dst = TXDA_COPY_DRAM_VA + offset,
			.bytes = min_t(u64, end - offset, TXDA_COPY_SLICE),
		};

		mutex_lock(&copy->lock);
		memcpy(copy->host, &fill, sizeof(fill));
		err = txda_copy_run(tdev, copy, sizeof(fill));
		mutex_unlock(&copy->lock);
		offset += fill.bytes;
	}
	return err;
}

static int txda_copy_copy(struct txda_device *tdev, u64 dst, u64 src, u64 bytes)
{
	struct txda_copy *copy = tdev->copy;
	struct txda_pkt_copy packet = {
		.hdr.op = TXDA_PKT_COPY,
		.hdr.bytes = sizeof(packet),
		.dst = dst,
		.src = src,
		.bytes = bytes,
	};
	int err;

	if (WARN_ON_ONCE(bytes > TXDA_COPY_STAGE_BYTES))
		return -EINVAL;
	mutex_lock(&copy->lock);
	memcpy(copy->host, &packet, sizeof(packet));
	err = txda_copy_run(tdev, copy, sizeof(packet));
	mutex_unlock(&copy->lock);

	return err;
}

void *txda_copy_stage(struct txda_device *tdev)
{
	return tdev->copy->host + TXDA_COPY_CMD_BYTES;
}

int txda_copy_out(struct txda_device *tdev, u64 offset, u64 bytes)
{
	return txda_copy_copy(tdev, TXDA_COPY_STAGE_VA, TXDA_COPY_DRAM_VA + offset, bytes);
}

int txda_copy_in(struct txda_device *tdev, u64 offset, u64 bytes)
{
	return txda_copy_copy(tdev, TXDA_COPY_DRAM_VA + offset, TXDA_COPY_STAGE_VA, bytes);
}

static int txda_copy_map_one(struct txda_pt *pt, u64 va, u64 bytes, u64 addr, u64 flags)
{
	struct txda_pt_reserve reserve;
	struct txda_pt_need need = {};
	int err;

	txda_pt_reserve_init(&reserve);
	txda_pt_need_run(&need, va, bytes, addr);
	err = txda_pt_prepare_map(pt, va, bytes, &need, &reserve);
	if (!err)
		err = txda_pt_map(pt, &reserve, va, bytes, addr,
				  flags | TXDA_PTE_READ | TXDA_PTE_WRITE);
	txda_pt_reserve_free(&reserve);
	return err;
}

static int txda_copy_map(struct txda_device *tdev, struct txda_copy *copy)
{
	const u64 local = (u64)TXDA_APERTURE_LOCAL << TXDA_PTE_APERTURE_SHIFT;
	const u64 system = (u64)TXDA_APERTURE_SYSTEM << TXDA_PTE_APERTURE_SHIFT;
	u64 dram = tdev->vram.mm.size;
	int err;

	if (dram > (1ull << tdev->info.va_bits) - TXDA_COPY_DRAM_VA) {
		drm_err(&tdev->drm, "%llu bytes of DRAM do not fit into %u bits of address\n", dram,
			tdev->info.va_bits);
		return -ENODEV;
	}
	copy->pt.online = true;
	err = txda_copy_map_one(&copy->pt, TXDA_COPY_DRAM_VA, dram, 0, local);
	if (!err)
		err = txda_copy_map_one(&copy->pt, TXDA_COPY_CMD_VA, TXDA_COPY_HOST_BYTES,
					copy->dma, TXDA_PTE_COHERENT | system);
	copy->pt.online = false;
	return err;
}

int txda_copy_init(struct txda_device *tdev)
{
	struct device *dev = &tdev->pdev->dev;
	struct txda_copy *copy;
	int err;

	copy = kzalloc_obj(*copy, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	mutex_init(&copy->lock);
	init_waitqueue_head(&copy->wait);

	copy->host = dma_alloc_coherent(dev, TXDA_COPY_HOST_BYTES, &copy->dma, GFP_KERNEL);
	if (!copy->host) {
		err = -ENOMEM;
		goto err_free;
	}
	err = txda_pt_init(tdev, NULL, &copy->pt);
	if (err)
		goto err_dma;
	err = txda_copy_map(tdev, copy);
	if (err)
		goto err_pt;
	err = txda_hwq_get(tdev, TXDA_CLASS_COPY, copy->pt.vmid, TXDA_PRIORITY_HIGH,
			   txda_copy_complete, copy, &copy->hwq);
	if (err)
		goto err_pt;

	tdev->copy = copy;
	return 0;

err_pt:
	copy->pt.online = true;
	txda_pt_fini(&copy->pt);
err_dma:
	dma_free_coherent(dev, TXDA_COPY_HOST_BYTES, copy->host, copy->dma);
err_free:
	mutex_destroy(&copy->lock);
	kfree(copy);
	return err;
}

void txda_copy_fini(struct txda_device *tdev)
{
	struct txda_copy *copy = tdev->copy;
	int idx;

	if (!copy)
		return;
	tdev->copy = NULL;
	copy->pt.online = drm_dev_enter(&tdev->drm, &idx);
	if (copy->pt.online)
		txda_hwq_stop(copy->hwq);
	txda_hwq_put(copy->hwq);
	txda_pt_fini(&copy->pt);
	if (copy->pt.online)
		drm_dev_exit(idx);
	dma_free_coherent(&tdev->pdev->dev, TXDA_COPY_HOST_BYTES, copy->host, copy->dma);
	mutex_destroy(&copy->lock);
	kfree(copy);
}

int txda_copy_restart(struct txda_device *tdev)
{
	struct txda_copy *copy = tdev->copy;
	int err;

	mutex_lock(&copy->lock);
	txda_mmu_rewrite(&copy->pt);
	err = txda_hwq_restart(copy->hwq);
	copy->dead = !!err;
	mutex_unlock(&copy->lock);

	return err;
}
