// SPDX-License-Identifier: GPL-2.0
#include "pmu.h"

#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/xarray.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "device.h"
#include "total.h"

/* Numbers of events: the low byte of perf_event_attr.config. */
enum txda_pmu_event {
	TXDA_PMU_COMPUTE_BUSY,
	TXDA_PMU_COPY_BUSY,
	TXDA_PMU_DRAM_READ,
	TXDA_PMU_DRAM_WRITTEN,
	TXDA_PMU_C2C_SENT,
	TXDA_PMU_C2C_RECEIVED,
	TXDA_PMU_EVENTS
};

static const u32 txda_pmu_regs[TXDA_PMU_EVENTS] = {
	[TXDA_PMU_COMPUTE_BUSY] = TXDA_REG_BUSY_COMPUTE_LO,
	[TXDA_PMU_COPY_BUSY] = TXDA_REG_BUSY_COPY_LO,
	[TXDA_PMU_DRAM_READ] = TXDA_REG_DRAM_READ_LO,
	[TXDA_PMU_DRAM_WRITTEN] = TXDA_REG_DRAM_WRITTEN_LO,
	[TXDA_PMU_C2C_SENT] = TXDA_REG_C2C_SENT_LO,
	[TXDA_PMU_C2C_RECEIVED] = TXDA_REG_C2C_RECEIVED_LO,
};

/**
 * struct txda_pmu - The PMU of one accel number.
 */
struct txda_pmu {
	/** @base: What perf knows. */
	struct pmu base;

	/** @name: Of @base: txda_ and the number. */
	char name[16];

	/** @has_c2c: It has the events of C2C traffic, since its first chip counts that. */
	bool has_c2c;

	/** @lock: Protects what follows, and serialises reads of the chip's counters. */
	raw_spinlock_t lock;

	/** @tdev: The chip, while its registers can be read. */
	struct txda_device *tdev;

	/** @count: By event, of all chips that had this number since the module was loaded. */
	struct txda_total count[TXDA_PMU_EVENTS];
};

/* struct txda_pmu by number. Several chips may be bound at the same time. */
static DEFINE_XARRAY(txda_pmus);
static DEFINE_MUTEX(txda_pmus_lock);

/* ---- The chip's counters -------------------------------------------------------------------- */

static bool txda_pmu_is_c2c(u64 id)
{
	return id == TXDA_PMU_C2C_SENT || id == TXDA_PMU_C2C_RECEIVED;
}

static bool txda_pmu_counts(const struct txda_device *tdev, enum txda_pmu_event id)
{
	return tdev->counts_c2c || !txda_pmu_is_c2c(id);
}

static void txda_pmu_update(struct txda_pmu *pmu, enum txda_pmu_event id)
{
	u64 value;

	lockdep_assert_held(&pmu->lock);
	if (!pmu->tdev || !txda_pmu_counts(pmu->tdev, id))
		return;
	value = txda_read_pair(pmu->tdev, txda_pmu_regs[id]);
	if (txda_device_alive(pmu->tdev))
		txda_total_add(&pmu->count[id], value);
}

static u64 txda_pmu_total(struct txda_pmu *pmu, enum txda_pmu_event id)
{
	unsigned long flags;
	u64 total;

	raw_spin_lock_irqsave(&pmu->lock, flags);
	txda_pmu_update(pmu, id);
	total = pmu->count[id].total;
	raw_spin_unlock_irqrestore(&pmu->lock, flags);
	return total;
}

/* Attaches @tdev, or detaches the current chip (NULL) after adding up what it has counted. */
static void txda_pmu_set(struct txda_pmu *pmu, struct txda_device *tdev)
{
	unsigned long flags;
	u32 id;

	raw_spin_lock_irqsave(&pmu->lock, flags);
	for (id = 0; id < TXDA_PMU_EVENTS; id++) {
		txda_pmu_update(pmu, id);
		if (tdev && !pmu->tdev && txda_pmu_counts(tdev, id))
			pmu->count[id].seen = txda_read_pair(tdev, txda_pmu_regs[id]);
	}
	pmu->tdev = tdev;
	raw_spin_unlock_irqrestore(&pmu->lock, flags);
}

void txda_pmu_close(struct txda_device *tdev)
{
	if (tdev->pmu)
		txda_pmu_set(tdev->pmu, NULL);
}

void txda_pmu_open(struct txda_device *tdev)
{
	if (tdev->pmu)
		txda_pmu_set(tdev->pmu, tdev);
}

void txda_pmu_save(struct txda_device *tdev)
{
	u32 id;

	for (id = 0; tdev->pmu && id < TXDA_PMU_EVENTS; id++)
		txda_pmu_total(tdev->pmu, id);
}

void txda_pmu_restart(struct txda_device *tdev)
{
	struct txda_pmu *pmu = tdev->pmu;
	unsigned long flags;
	u32 id;

	if (!pmu)
		return;
	raw_spin_lock_irqsave(&pmu->lock, flags);
	for (id = 0; pmu->tdev && id < TXDA_PMU_EVENTS; id++)
		txda_total_restart(&pmu->count[id]);
	raw_spin_unlock_irqrestore(&pmu->lock, flags);
}

/* ---- What perf calls ------------------------------------------------------------------------ */

static struct txda_pmu *to_txda_pmu(struct perf_event *event)
{
	return container_of(event->pmu, struct txda_pmu, base);
}

static int txda_pmu_event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (event->cpu < 0 || is_sampling_event(event))
		return -EINVAL;
	if (txda_pmu_is_c2c(event->attr.config) && !to_txda_pmu(event)->has_c2c)
		return -EINVAL;
	return event->attr.config < TXDA_PMU_EVENTS ? 0 : -EINVAL;
}

static void txda_pmu_event_read(struct perf_event *event)
{
	u64 now = txda_pmu_total(to_txda_pmu(event), event->attr.config);
	s64 before = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - before, &event->count);
}

static void txda_pmu_event_start(struct perf_event *event, int flags)
{
	u64 now = txda_pmu_total(to_txda_pmu(event), event->attr.config);

	local64_set(&event->hw.prev_count, now);
	event->hw.state = 0;
}

static void txda_pmu_event_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	txda_pmu_event_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int txda_pmu_event_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		txda_pmu_event_start(event, flags);
	return 0;
}

static void txda_pmu_event_del(struct perf_event *event, int flags)
{
	txda_pmu_event_stop(event, PERF_EF_UPDATE);
}

/* ---- What perf's tools read ----------------------------------------------------------------- */

PMU_FORMAT_ATTR(event, "config:0-7");

static struct attribute *txda_pmu_format_attrs[] = {&format_attr_event.attr, NULL};

static const struct attribute_group txda_pmu_format_group = {
	.name = "format",
	.attrs = txda_pmu_format_attrs,
};

PMU_EVENT_ATTR_STRING(compute_busy, txda_pmu_compute, "event=0x00");
PMU_EVENT_ATTR_STRING(compute_busy.unit, txda_pmu_compute_unit, "ns");
PMU_EVENT_ATTR_STRING(copy_busy, txda_pmu_copy, "event=0x01");
PMU_EVENT_ATTR_STRING(copy_busy.unit, txda_pmu_copy_unit, "ns");
PMU_EVENT_ATTR_STRING(dram_read, txda_pmu_read, "event=0x02");
PMU_EVENT_ATTR_STRING(dram_read.unit, txda_pmu_read_unit, "MiB");
PMU_EVENT_ATTR_STRING(dram_read.scale, txda_pmu_read_scale, "9.5367431640625e-7");
PMU_EVENT_ATTR_STRING(dram_written, txda_pmu_written, "event=0x03");
PMU_EVENT_ATTR_STRING(dram_written.unit, txda_pmu_written_unit, "MiB");
PMU_EVENT_ATTR_STRING(dram_written.scale, txda_pmu_written_scale, "9.5367431640625e-7");

PMU_EVENT_ATTR_STRING(c2c_sent, txda_pmu_sent, "event=0x04");
PMU_EVENT_ATTR_STRING(c2c_sent.unit, txda_pmu_sent_unit, "MiB");
PMU_EVENT_ATTR_STRING(c2c_sent.scale, txda_pmu_sent_scale, "9.5367431640625e-7");
PMU_EVENT_ATTR_STRING(c2c_received, txda_pmu_received, "event=0x05");
PMU_EVENT_ATTR_STRING(c2c_received.unit, txda_pmu_received_unit, "MiB");
PMU_EVENT_ATTR_STRING(c2c_received.scale, txda_pmu_received_scale, "9.5367431640625e-7");

/* The first that a chip without counters of C2C traffic does not have. */
#define TXDA_PMU_FIRST_C2C_ATTR 10

static struct attribute *txda_pmu_event_attrs[] = {&txda_pmu_compute.attr.attr,
						   &txda_pmu_compute_unit.attr.attr,
						   &txda_pmu_copy.attr.attr,
						   &txda_pmu_copy_unit.attr.attr,
						   &txda_pmu_read.attr.attr,
						   &txda_pmu_read_unit.attr.attr,
						   &txda_pmu_read_scale.attr.attr,
						   &txda_pmu_written.attr.attr,
						   &txda_pmu_written_unit.attr.attr,
						   &txda_pmu_written_scale.attr.attr,
						   &txda_pmu_sent.attr.attr,
						   &txda_pmu_sent_unit.attr.attr,
						   &txda_pmu_sent_scale.attr.attr,
						   &txda_pmu_received.attr.attr,
						   &txda_pmu_received_unit.attr.attr,
						   &txda_pmu_received_scale.attr.attr,
						   NULL};

static umode_t txda_pmu_event_mode(struct kobject *kobj, struct attribute *attr, int n)
{
	struct pmu *base = dev_get_drvdata(kobj_to_dev(kobj));

	if (n >= TXDA_PMU_FIRST_C2C_ATTR && !container_of(base, struct txda_pmu, base)->has_c2c)
		return 0;
	return attr->mode;
}

static const struct attribute_group txda_pmu_event_group = {
	.name = "events",
	.attrs = txda_pmu_event_attrs,
	.is_visible = txda_pmu_event_mode,
};

static const struct attribute_group *txda_pmu_groups[] = {&txda_pmu_format_group,
							  &txda_pmu_event_group, NULL};

/* ---- PMUs ----------------------------------------------------------------------------------- */

static struct txda_pmu *txda_pmu_new(u32 number, bool has_c2c)
{
	struct txda_pmu *pmu = kzalloc_obj(*pmu, GFP_KERNEL);
	int err;

	if (!pmu)
		return ERR_PTR(-ENOMEM);
	raw_spin_lock_init(&pmu->lock);
	pmu->has_c2c = has_c2c;
	snprintf(pmu->name, sizeof(pmu->name), "txda_%u", number);
	pmu->base = (struct pmu){
		.module = THIS_MODULE,
		.task_ctx_nr = perf_invalid_context,
		/*
		 * One CPU counts for the whole machine; perf migrates its events when it goes
		 * offline.
		 */
		.scope = PERF_PMU_SCOPE_SYS_WIDE,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.attr_groups = txda_pmu_groups,
		.event_init = txda_pmu_event_init,
		.add = txda_pmu_event_add,
		.del = txda_pmu_event_del,
		.start = txda_pmu_event_start,
		.stop = txda_pmu_event_stop,
		.read = txda_pmu_event_read,
	};
	/* Nothing may fail after registration: from then on there may be open events. */
	err = xa_reserve(&txda_pmus, number, GFP_KERNEL);
	if (err)
		goto err_pmu;
	err = perf_pmu_register(&pmu->base, pmu->name, -1);
	if (err)
		goto err_reserve;
	xa_store(&txda_pmus, number, pmu, GFP_KERNEL);
	return pmu;

err_reserve:
	xa_release(&txda_pmus, number);
err_pmu:
	kfree(pmu);
	return ERR_PTR(err);
}

void txda_pmu_add(struct txda_device *tdev)
{
	u32 number = tdev->drm.accel->index;
	struct txda_pmu *pmu;

	mutex_lock(&txda_pmus_lock);
	pmu = xa_load(&txda_pmus, number) ?: txda_pmu_new(number, tdev->counts_c2c);
	mutex_unlock(&txda_pmus_lock);
	if (IS_ERR(pmu)) {
		drm_warn(&tdev->drm, "no counters for perf: %pe\n", pmu);
		return;
	}
	/* A reset that is in progress closes and opens the PMU itself. */
	down_read(&tdev->reset.bars_lock);
	tdev->pmu = pmu;
	if (!tdev->reset.bars_off)
		txda_pmu_open(tdev);
	up_read(&tdev->reset.bars_lock);
}

void txda_pmus_exit(void)
{
	struct txda_pmu *pmu;
	unsigned long number;

	xa_for_each(&txda_pmus, number, pmu) {
		perf_pmu_unregister(&pmu->base);
		kfree(pmu);
	}
	xa_destroy(&txda_pmus);
}
