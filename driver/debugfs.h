/* SPDX-License-Identifier: GPL-2.0 */
/*
 * debugfs files of a node, for people: chip, queues, vms, buffers, irqs. Their form may change at
 * any time. They go with drm_dev_unplug().
 */
#ifndef TXDA_DEBUGFS_H
#define TXDA_DEBUGFS_H

struct txda_device;

/* After the node is registered. */
void txda_debugfs_init(struct txda_device *tdev);

#endif /* TXDA_DEBUGFS_H */
