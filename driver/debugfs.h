/* SPDX-License-Identifier: GPL-2.0 */
/*
 * debugfs files of a node, for debugging by people: chip, queues, vms, buffers, irqs, users,
 * firmware_log. Their format is not stable. They are removed by drm_dev_unplug().
 */
#ifndef TXDA_DEBUGFS_H
#define TXDA_DEBUGFS_H

struct txda_device;

/* Call after the node is registered. */
void txda_debugfs_init(struct txda_device *tdev);

#endif /* TXDA_DEBUGFS_H */
