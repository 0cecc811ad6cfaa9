// SPDX-License-Identifier: GPL-2.0
#include "events.h"

#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/user_namespace.h>
#include <drm/drm_file.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>
#include <net/genetlink.h>

#include "device.h"
#include "file.h"
#include "queue.h"

#define TXDA_EVENTS_PER_SECOND 20
#define TXDA_EVENT_KINDS       (TXDA_NL_EVENT_FIRMWARE + 1)

/**
 * struct txda_event_rate - How many events of a kind were sent in the current second.
 */
struct txda_event_rate {
	/** @start_ns: Start of that second. */
	u64 start_ns;

	/** @count: Events in it. */
	u32 count;
};

/**
 * struct txda_events - Event state of a chip.
 */
struct txda_events {
	/** @lock: Protects @rate and the last reported values. */
	spinlock_t lock;

	/** @rate: By kind. */
	struct txda_event_rate rate[TXDA_EVENT_KINDS];

	/** @ecc_uncorrected: Value at the last report. */
	u64 ecc_uncorrected;

	/** @port_state: State of each port at the last report. */
	u32 port_state[TXDA_MAX_PORTS];
};

/* All chips that are bound; under txda_devices_lock. */
static LIST_HEAD(txda_devices);
static DEFINE_MUTEX(txda_devices_lock);

enum { TXDA_GROUP_EVENTS, TXDA_GROUP_CLIENTS, TXDA_GROUP_COUNT };

static const struct genl_multicast_group txda_nl_groups[] = {
	[TXDA_GROUP_EVENTS] = {.name = TXDA_MCGRP_EVENTS},
	[TXDA_GROUP_CLIENTS] = {.name = TXDA_MCGRP_CLIENTS, .flags = GENL_MCAST_CAP_SYS_ADMIN},
};

static int txda_nl_dump(struct sk_buff *skb, struct netlink_callback *cb);

static const struct genl_small_ops txda_nl_ops[] = {
	{
		.cmd = TXDA_CMD_DEV_GET,
		.validate = GENL_DONT_VALIDATE_DUMP,
		.dumpit = txda_nl_dump,
	},
};

static struct genl_family txda_nl_family __ro_after_init = {
	.name = TXDA_FAMILY_NAME,
	.version = TXDA_FAMILY_VERSION,
	.module = THIS_MODULE,
	.small_ops = txda_nl_ops,
	.n_small_ops = ARRAY_SIZE(txda_nl_ops),
	.resv_start_op = TXDA_CMD_MAX + 1,
	.mcgrps = txda_nl_groups,
	.n_mcgrps = ARRAY_SIZE(txda_nl_groups),
};

/* ---- Messages ------------------------------------------------------------------------------- */

static int txda_nl_put_device(struct sk_buff *skb, struct txda_device *tdev)
{
	char serial[DRM_TXDA_SERIAL_BYTES + 1];

	memcpy(serial, tdev->info.serial, DRM_TXDA_SERIAL_BYTES);
	serial[DRM_TXDA_SERIAL_BYTES] = '\0';

	if (nla_put_u32(skb, TXDA_A_DEV_MINOR, tdev->drm.accel->index) ||
	    nla_put_string(skb, TXDA_A_DEV_PCI_NAME, pci_name(tdev->pdev)) ||
	    nla_put_string(skb, TXDA_A_DEV_SERIAL, serial) ||
	    nla_put_u64_64bit(skb, TXDA_A_DEV_CARD, tdev->card, TXDA_A_DEV_PAD) ||
	    nla_put_u32(skb, TXDA_A_DEV_CARD_INDEX, tdev->card_index) ||
	    nla_put_u64_64bit(skb, TXDA_A_DEV_FAULTS, atomic64_read(&tdev->queues.resets),
			      TXDA_A_DEV_PAD) ||
	    nla_put_u64_64bit(skb, TXDA_A_DEV_RESETS, atomic64_read(&tdev->reset.chip_resets),
			      TXDA_A_DEV_PAD))
		return -EMSGSIZE;
	return 0;
}

static int txda_nl_dump_one(struct sk_buff *skb, struct netlink_callback *cb,
			    struct txda_device *tdev)
{
	void *header;

	header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &txda_nl_family,
			     NLM_F_MULTI, TXDA_CMD_DEV_GET);
	if (!header)
		return -EMSGSIZE;
	if (txda_nl_put_device(skb, tdev)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

static int txda_nl_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct txda_device *tdev;
	long at = 0;

	mutex_lock(&txda_devices_lock);
	list_for_each_entry(tdev, &txda_devices, link) {
		if (at++ < cb->args[0])
			continue;
		/* Remaining devices go into the next message. */
		if (txda_nl_dump_one(skb, cb, tdev))
			break;
		cb->args[0] = at;
	}
	mutex_unlock(&txda_devices_lock);
	return skb->len;
}

/**
 * struct txda_event_message - An event for one multicast group, under construction.
 */
struct txda_event_message {
	/** @skb: The message, or NULL when nobody listens. */
	struct sk_buff *skb;

	/** @header: Of the message. */
	void *header;

	/** @failed: An attribute did not fit. */
	bool failed;
};

/**
 * struct txda_event - One event for all multicast groups.
 */
struct txda_event {
	/** @message: By group. */
	struct txda_event_message message[TXDA_GROUP_COUNT];
};

/* False: over the rate limit, so neither message nor log line is written. */
static bool txda_event_due(struct txda_device *tdev, enum txda_nl_event kind)
{
	struct txda_events *events = tdev->events;
	struct txda_event_rate *rate = &events->rate[kind];
	u64 now = ktime_get_ns();
	bool due;

	spin_lock(&events->lock);
	if (now - rate->start_ns >= NSEC_PER_SEC) {
		rate->start_ns = now;
		rate->count = 0;
	}
	due = rate->count < TXDA_EVENTS_PER_SECOND;
	rate->count += due;
	spin_unlock(&events->lock);
	return due;
}

static void txda_event_begin_message(struct txda_device *tdev, enum txda_nl_event kind, u64 time_ns,
				     unsigned int group, struct txda_event_message *message)
{
	struct nlattr *nest;

	if (!genl_has_listeners(&txda_nl_family, &init_net, group))
		return;
	message->skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!message->skb)
		return;
	message->header = genlmsg_put(message->skb, 0, 0, &txda_nl_family, 0, TXDA_CMD_EVENT_NTF);
	if (!message->header) {
		message->failed = true;
		return;
	}
	nest = nla_nest_start(message->skb, TXDA_A_EVENT_DEV);
	if (!nest || txda_nl_put_device(message->skb, tdev)) {
		message->failed = true;
		return;
	}
	nla_nest_end(message->skb, nest);
	if (nla_put_u32(message->skb, TXDA_A_EVENT_KIND, kind) ||
	    nla_put_u64_64bit(message->skb, TXDA_A_EVENT_TIME_NS, time_ns, TXDA_A_EVENT_PAD))
		message->failed = true;
}

static void txda_event_begin(struct txda_device *tdev, enum txda_nl_event kind, u64 time_ns,
			     struct txda_event *event)
{
	unsigned int group;

	*event = (struct txda_event){};
	for (group = 0; group < TXDA_GROUP_COUNT; group++)
		txda_event_begin_message(tdev, kind, time_ns, group, &event->message[group]);
}

/* Private data of a client: who it is, and what its jobs are. */
static bool txda_event_is_private(int attr)
{
	switch (attr) {
	case TXDA_A_EVENT_PID:
	case TXDA_A_EVENT_CLIENT:
	case TXDA_A_EVENT_UID:
	case TXDA_A_EVENT_CLIENT_ID:
	case TXDA_A_EVENT_BANNED_MS:
	case TXDA_A_EVENT_QUEUE_ID:
	case TXDA_A_EVENT_FAULT_CODE:
	case TXDA_A_EVENT_OP:
	case TXDA_A_EVENT_TENSOR:
	case TXDA_A_EVENT_VA:
	case TXDA_A_EVENT_DETAIL:
		return true;
	default:
		return false;
	}
}

/* The message after @message (NULL: the first) that carries the attribute, or NULL. */
static struct txda_event_message *txda_event_next(struct txda_event *event, int attr,
						  struct txda_event_message *message)
{
	for (message = message ? message + 1 : event->message;
	     message < event->message + TXDA_GROUP_COUNT; message++) {
		if (message == &event->message[TXDA_GROUP_EVENTS] && txda_event_is_private(attr))
			continue;
		if (message->skb && !message->failed)
			return message;
	}
	return NULL;
}

static void txda_event_u32(struct txda_event *event, int attr, u32 value)
{
	struct txda_event_message *message = NULL;

	while ((message = txda_event_next(event, attr, message)))
		message->failed = nla_put_u32(message->skb, attr, value);
}

static void txda_event_u64(struct txda_event *event, int attr, u64 value)
{
	struct txda_event_message *message = NULL;

	while ((message = txda_event_next(event, attr, message)))
		message->failed = nla_put_u64_64bit(message->skb, attr, value, TXDA_A_EVENT_PAD);
}

static void txda_event_string(struct txda_event *event, int attr, const char *value)
{
	struct txda_event_message *message = NULL;

	while ((message = txda_event_next(event, attr, message)))
		message->failed = nla_put_string(message->skb, attr, value);
}

static void txda_event_send(struct txda_event *event)
{
	struct txda_event_message *message;
	unsigned int group;

	for (group = 0; group < TXDA_GROUP_COUNT; group++) {
		message = &event->message[group];
		if (!message->skb)
			continue;
		if (message->failed) {
			nlmsg_free(message->skb);
			continue;
		}
		genlmsg_end(message->skb, message->header);
		/* A listener that is too slow is told by ENOBUFS. */
		genlmsg_multicast(&txda_nl_family, message->skb, 0, group, GFP_KERNEL);
	}
}

/* ---- Clients' queues, resets ---------------------------------------------------------------- */

static void txda_event_client(struct txda_event *event, const struct txda_client *client,
			      u32 queue_id)
{
	txda_event_u32(event, TXDA_A_EVENT_PID, client->pid);
	txda_event_string(event, TXDA_A_EVENT_CLIENT, client->comm);
	txda_event_u32(event, TXDA_A_EVENT_UID, from_kuid_munged(&init_user_ns, client->uid));
	txda_event_u64(event, TXDA_A_EVENT_CLIENT_ID, client->id);
	txda_event_u32(event, TXDA_A_EVENT_QUEUE_ID, queue_id);
}

void txda_events_fault(struct txda_device *tdev, const struct drm_txda_fault *fault,
		       const struct txda_client *client)
{
	struct txda_event event;

	if (!txda_event_due(tdev, TXDA_NL_EVENT_FAULT))
		return;
	drm_info(&tdev->drm, "queue %u of %s[%d] faulted: code %u, op %u, tensor %u, va %#llx\n",
		 fault->queue_id, client->comm, client->pid, fault->code, fault->op, fault->tensor,
		 fault->va);

	txda_event_begin(tdev, TXDA_NL_EVENT_FAULT, fault->time_ns, &event);
	txda_event_client(&event, client, fault->queue_id);
	txda_event_u32(&event, TXDA_A_EVENT_FAULT_CODE, fault->code);
	txda_event_u32(&event, TXDA_A_EVENT_OP, fault->op);
	txda_event_u32(&event, TXDA_A_EVENT_TENSOR, fault->tensor);
	txda_event_u64(&event, TXDA_A_EVENT_VA, fault->va);
	txda_event_u64(&event, TXDA_A_EVENT_DETAIL, fault->detail);
	txda_event_send(&event);
}

void txda_events_hang(struct txda_device *tdev, u32 queue_id, const struct txda_client *client)
{
	struct txda_event event;

	if (!txda_event_due(tdev, TXDA_NL_EVENT_FAULT))
		return;
	drm_info(&tdev->drm, "queue %u of %s[%d] stopped: hang\n", queue_id, client->comm,
		 client->pid);

	txda_event_begin(tdev, TXDA_NL_EVENT_FAULT, ktime_get_ns(), &event);
	txda_event_client(&event, client, queue_id);
	txda_event_send(&event);
}

void txda_events_reset(struct txda_device *tdev, const char *reason,
		       const struct txda_queue *culprit, u32 ban_ms)
{
	struct txda_event event;

	if (!txda_event_due(tdev, TXDA_NL_EVENT_RESET))
		return;
	if (culprit)
		drm_notice(&tdev->drm, "the chip was reset: %s, queue %u of %s[%d]\n", reason,
			   culprit->id, culprit->client.comm, culprit->client.pid);
	else
		drm_notice(&tdev->drm, "the chip was reset: %s\n", reason);

	txda_event_begin(tdev, TXDA_NL_EVENT_RESET, ktime_get_ns(), &event);
	if (culprit)
		txda_event_client(&event, &culprit->client, culprit->id);
	txda_event_string(&event, TXDA_A_EVENT_REASON, reason);
	if (ban_ms)
		txda_event_u32(&event, TXDA_A_EVENT_BANNED_MS, ban_ms);
	txda_event_send(&event);
}

/* ---- Events of the chip --------------------------------------------------------------------- */

static void txda_events_ecc(struct txda_device *tdev)
{
	u64 corrected, uncorrected;
	struct txda_event event;
	bool worse;

	if (txda_ras_get(tdev, TXDA_RAS_ECC_CORRECTED, &corrected) ||
	    txda_ras_get(tdev, TXDA_RAS_ECC_UNCORRECTED, &uncorrected) ||
	    !txda_event_due(tdev, TXDA_NL_EVENT_ECC))
		return;
	spin_lock(&tdev->events->lock);
	worse = uncorrected != tdev->events->ecc_uncorrected;
	tdev->events->ecc_uncorrected = uncorrected;
	spin_unlock(&tdev->events->lock);
	if (worse)
		drm_warn(&tdev->drm, "memory errors: %llu corrected, %llu uncorrected\n", corrected,
			 uncorrected);

	txda_event_begin(tdev, TXDA_NL_EVENT_ECC, ktime_get_ns(), &event);
	txda_event_u32(&event, TXDA_A_EVENT_ECC_CORRECTED, min_t(u64, corrected, U32_MAX));
	txda_event_u32(&event, TXDA_A_EVENT_ECC_UNCORRECTED, min_t(u64, uncorrected, U32_MAX));
	txda_event_send(&event);
}

static u32 txda_events_throttle(u32 reasons)
{
	return (reasons & TXDA_THROTTLE_POWER ? TXDA_NL_THROTTLE_POWER : 0) |
	       (reasons & TXDA_THROTTLE_THERMAL ? TXDA_NL_THROTTLE_THERMAL : 0);
}

static void txda_events_thermal(struct txda_device *tdev)
{
	s32 temp = txda_read(tdev, TXDA_REG_TEMP_MC);
	u32 throttle = txda_read(tdev, TXDA_REG_THROTTLE);
	struct txda_event event;

	if (!txda_device_alive(tdev) || !txda_event_due(tdev, TXDA_NL_EVENT_THERMAL))
		return;
	drm_info(&tdev->drm, "%d millidegrees, %s\n", temp,
		 throttle ? "throttled" : "not throttled any more");

	txda_event_begin(tdev, TXDA_NL_EVENT_THERMAL, ktime_get_ns(), &event);
	/* The bytes of a signed 32-bit value are the same. */
	txda_event_u32(&event, TXDA_A_EVENT_TEMP_MC, temp);
	txda_event_u32(&event, TXDA_A_EVENT_THROTTLE, txda_events_throttle(throttle));
	txda_event_send(&event);
}

static void txda_events_port(struct txda_device *tdev, u32 port)
{
	u32 state = txda_device_port_state(tdev, port);
	struct txda_event event;
	bool changed;

	if (!txda_device_alive(tdev))
		return;
	spin_lock(&tdev->events->lock);
	changed = state != tdev->events->port_state[port];
	tdev->events->port_state[port] = state;
	spin_unlock(&tdev->events->lock);
	if (!changed || !txda_event_due(tdev, TXDA_NL_EVENT_LINK))
		return;
	drm_info(&tdev->drm, "C2C port %u is %s\n", port,
		 state == DRM_TXDA_PORT_UP	   ? "up"
		 : state == DRM_TXDA_PORT_TRAINING ? "training"
						   : "down");

	txda_event_begin(tdev, TXDA_NL_EVENT_LINK, ktime_get_ns(), &event);
	txda_event_u32(&event, TXDA_A_EVENT_PORT, port);
	txda_event_u32(&event, TXDA_A_EVENT_PORT_STATE, state);
	txda_event_send(&event);
}

static void txda_events_firmware(struct txda_device *tdev)
{
	u32 state = txda_device_firmware_state(tdev);
	u32 version = txda_read(tdev, TXDA_REG_FW_VERSION);
	struct txda_event event;

	if (!txda_device_alive(tdev) || !txda_event_due(tdev, TXDA_NL_EVENT_FIRMWARE))
		return;
	txda_event_begin(tdev, TXDA_NL_EVENT_FIRMWARE, ktime_get_ns(), &event);
	txda_event_u32(&event, TXDA_A_EVENT_FW_STATE, state);
	txda_event_u32(&event, TXDA_A_EVENT_FW_VERSION, version);
	txda_event_send(&event);
}

void txda_events_irq(struct txda_device *tdev, u32 events)
{
	u32 port;

	if (events & TXDA_IRQ_ECC)
		txda_events_ecc(tdev);
	if (events & TXDA_IRQ_THERMAL)
		txda_events_thermal(tdev);
	if (events & TXDA_IRQ_FIRMWARE)
		txda_events_firmware(tdev);
	for (port = 0; (events & TXDA_IRQ_LINK) && port < tdev->n_ports; port++)
		txda_events_port(tdev, port);
}

/* ---- Coming and going ----------------------------------------------------------------------- */

static void txda_events_presence(struct txda_device *tdev, enum txda_nl_event kind)
{
	struct txda_event event;

	txda_event_begin(tdev, kind, ktime_get_ns(), &event);
	txda_event_send(&event);
}

void txda_events_add(struct txda_device *tdev)
{
	mutex_lock(&txda_devices_lock);
	list_add_tail(&tdev->link, &txda_devices);
	mutex_unlock(&txda_devices_lock);
	txda_events_presence(tdev, TXDA_NL_EVENT_ADD);
}

void txda_events_remove(struct txda_device *tdev)
{
	mutex_lock(&txda_devices_lock);
	list_del(&tdev->link);
	mutex_unlock(&txda_devices_lock);
	txda_events_presence(tdev, TXDA_NL_EVENT_REMOVE);
}

int txda_events_init(struct txda_device *tdev)
{
	u32 port;

	tdev->events = drmm_kzalloc(&tdev->drm, sizeof(*tdev->events), GFP_KERNEL);
	if (!tdev->events)
		return -ENOMEM;
	spin_lock_init(&tdev->events->lock);
	for (port = 0; port < tdev->n_ports; port++)
		tdev->events->port_state[port] = txda_device_port_state(tdev, port);
	return 0;
}

int txda_events_register(void)
{
	return genl_register_family(&txda_nl_family);
}

void txda_events_unregister(void)
{
	genl_unregister_family(&txda_nl_family);
}
