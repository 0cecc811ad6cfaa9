/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The chip's counters for perf: "perf stat -e txda_0/compute_busy/,txda_0/dram_read/" counts on the
 * chip behind accel0. The events are those of the whole chip, not of one process, so opening them
 * takes what other system-wide events take (CAP_PERFMON, or kernel.perf_event_paranoid below 1).
 *
 * A PMU belongs to the number of an accel node, not to a chip: it is made for the first chip with
 * that number and stays until the module goes, since open events hold the module and nothing else.
 * Without a chip, and while a reset keeps the registers out of reach, its events stand still; the
 * next chip with that number goes on with them. A reset of the chip takes nothing from a count.
 *
 * Threads: any. Events are read with interrupts off.
 */
#ifndef TXDA_PMU_H
#define TXDA_PMU_H

struct txda_device;

#ifdef CONFIG_PERF_EVENTS
/* After the node has its number. A chip without counters in perf serves as well: the log tells. */
void txda_pmu_add(struct txda_device *tdev);
/* Before the registers go out of reach, and when they are back. Before txda_pmu_add() nothing. */
void txda_pmu_close(struct txda_device *tdev);
void txda_pmu_open(struct txda_device *tdev);
/* Before the chip is reset: what was counted since the last look is not lost. And after it was. */
void txda_pmu_save(struct txda_device *tdev);
void txda_pmu_restart(struct txda_device *tdev);
/* When no chip is bound any more. */
void txda_pmus_exit(void);
#else
static inline void txda_pmu_add(struct txda_device *tdev)
{
}

static inline void txda_pmu_close(struct txda_device *tdev)
{
}

static inline void txda_pmu_open(struct txda_device *tdev)
{
}

static inline void txda_pmu_save(struct txda_device *tdev)
{
}

static inline void txda_pmu_restart(struct txda_device *tdev)
{
}

static inline void txda_pmus_exit(void)
{
}
#endif

#endif /* TXDA_PMU_H */
