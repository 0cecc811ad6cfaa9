/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * Generic netlink family "txda": health events of all chips, and a list of them.
 *
 * txda_netlink.yaml is the contract, in the kernel's own form, and says what each attribute means;
 * this header has the same names and numbers. Values only ever grow at the end. A receiver skips
 * attributes and commands that it does not know, and expects no attribute but DEV and KIND of an
 * event and PCI_NAME of a chip.
 */
#ifndef TXDA_NETLINK_H
#define TXDA_NETLINK_H

#define TXDA_FAMILY_NAME    "txda"
#define TXDA_FAMILY_VERSION 1

#define TXDA_MCGRP_EVENTS "events"
/* The same events, with those attributes that tell of other processes; wants CAP_SYS_ADMIN. */
#define TXDA_MCGRP_CLIENTS "clients"

/* What happened. */
enum txda_nl_event {
	TXDA_NL_EVENT_FAULT = 1,
	TXDA_NL_EVENT_RESET,
	TXDA_NL_EVENT_ECC,
	TXDA_NL_EVENT_THERMAL,
	TXDA_NL_EVENT_LINK,
	TXDA_NL_EVENT_ADD,
	TXDA_NL_EVENT_REMOVE,
	TXDA_NL_EVENT_FIRMWARE,
};

/* Why the chip runs slower than it could. */
enum txda_nl_throttle {
	TXDA_NL_THROTTLE_POWER = 1,
	TXDA_NL_THROTTLE_THERMAL = 2,
};

/* One chip. */
enum {
	TXDA_A_DEV_PAD = 1,
	TXDA_A_DEV_MINOR,      /* u32 */
	TXDA_A_DEV_PCI_NAME,   /* string */
	TXDA_A_DEV_SERIAL,     /* string */
	TXDA_A_DEV_CARD,       /* u64 */
	TXDA_A_DEV_CARD_INDEX, /* u32 */
	TXDA_A_DEV_FAULTS,     /* u64 */
	TXDA_A_DEV_RESETS,     /* u64 */

	__TXDA_A_DEV_MAX,
	TXDA_A_DEV_MAX = (__TXDA_A_DEV_MAX - 1)
};

/* One event. */
enum {
	TXDA_A_EVENT_PAD = 1,
	TXDA_A_EVENT_DEV,	      /* nest of TXDA_A_DEV_* */
	TXDA_A_EVENT_KIND,	      /* u32, enum txda_nl_event */
	TXDA_A_EVENT_TIME_NS,	      /* u64 */
	TXDA_A_EVENT_PID,	      /* u32 */
	TXDA_A_EVENT_CLIENT,	      /* string */
	TXDA_A_EVENT_QUEUE_ID,	      /* u32 */
	TXDA_A_EVENT_FAULT_CODE,      /* u32 */
	TXDA_A_EVENT_OP,	      /* u32 */
	TXDA_A_EVENT_TENSOR,	      /* u32 */
	TXDA_A_EVENT_VA,	      /* u64 */
	TXDA_A_EVENT_DETAIL,	      /* u64 */
	TXDA_A_EVENT_ECC_CORRECTED,   /* u32 */
	TXDA_A_EVENT_ECC_UNCORRECTED, /* u32 */
	TXDA_A_EVENT_TEMP_MC,	      /* s32 */
	TXDA_A_EVENT_THROTTLE,	      /* u32 */
	TXDA_A_EVENT_PORT,	      /* u32 */
	TXDA_A_EVENT_PORT_STATE,      /* u32 */
	TXDA_A_EVENT_FW_STATE,	      /* u32 */
	TXDA_A_EVENT_FW_VERSION,      /* u32 */
	TXDA_A_EVENT_UID,	      /* u32 */
	TXDA_A_EVENT_CLIENT_ID,	      /* u64 */
	TXDA_A_EVENT_REASON,	      /* string */
	TXDA_A_EVENT_BANNED_MS,	      /* u32 */

	__TXDA_A_EVENT_MAX,
	TXDA_A_EVENT_MAX = (__TXDA_A_EVENT_MAX - 1)
};

enum txda_cmd {
	TXDA_CMD_DEV_GET = 1,
	TXDA_CMD_EVENT_NTF,

	__TXDA_CMD_MAX,
	TXDA_CMD_MAX = (__TXDA_CMD_MAX - 1)
};

#endif /* TXDA_NETLINK_H */
