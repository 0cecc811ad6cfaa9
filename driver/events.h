/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The generic-netlink family "txda": a dump of devices, and events as they happen.
 *
 * See uapi/txda_netlink.yaml. Events are sent from any context that may allocate with GFP_KERNEL;
 * one that cannot be sent is dropped, never retried. Important events are also written to the
 * kernel log. A client whose queues fault constantly must flood neither, so events are rate-limited
 * per kind and chip.
 *
 * The family lives in the initial network namespace: process ids and names are of the host.
 */
#ifndef TXDA_EVENTS_H
#define TXDA_EVENTS_H

#include <linux/types.h>

#include "drm/txda_drm.h"
#include "txda_netlink.h"

struct txda_client;
struct txda_device;
struct txda_queue;

/* In module init. */
int txda_events_register(void);
void txda_events_unregister(void);

/* In probe; freed with the DRM device. */
int txda_events_init(struct txda_device *tdev);

/* Adds the device to dumps or removes it; sends the add and remove events. */
void txda_events_add(struct txda_device *tdev);
void txda_events_remove(struct txda_device *tdev);

/* A client's queue faulted. */
void txda_events_fault(struct txda_device *tdev, const struct drm_txda_fault *fault,
		       const struct txda_client *client);
/* A client's queue was stopped for a hang. */
void txda_events_hang(struct txda_device *tdev, u32 queue_id, const struct txda_client *client);
/*
 * The whole chip was reset. @culprit: the queue because of which, or NULL. @ban_ms: for how long
 * its client is banned now, 0: it is not.
 */
void txda_events_reset(struct txda_device *tdev, const char *reason,
		       const struct txda_queue *culprit, u32 ban_ms);
/* Reads the sensors and ports named by the bits of TXDA_REG_IRQ_EVENTS and reports them. */
void txda_events_irq(struct txda_device *tdev, u32 events);

#endif /* TXDA_EVENTS_H */
