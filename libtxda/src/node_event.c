// SPDX-License-Identifier: MIT
/* Converts the driver's health messages to text. */
#include <netlink/attr.h>
#include <stdarg.h>
#include <string.h>

#include "clock.h"
#include "fault.h"
#include "listener.h"
#include "sysfs.h"
#include "txda_netlink.h"

/* A client's name and process id. */
#define CLIENT_BYTES 60

static const struct nla_policy dev_policy[TXDA_A_DEV_MAX + 1] = {
	[TXDA_A_DEV_MINOR] = {.type = NLA_U32},	     [TXDA_A_DEV_PCI_NAME] = {.type = NLA_UNSPEC},
	[TXDA_A_DEV_SERIAL] = {.type = NLA_UNSPEC},  [TXDA_A_DEV_CARD] = {.type = NLA_U64},
	[TXDA_A_DEV_CARD_INDEX] = {.type = NLA_U32}, [TXDA_A_DEV_FAULTS] = {.type = NLA_U64},
	[TXDA_A_DEV_RESETS] = {.type = NLA_U64},
};

static const struct nla_policy event_policy[TXDA_A_EVENT_MAX + 1] = {
	[TXDA_A_EVENT_DEV] = {.type = NLA_NESTED},
	[TXDA_A_EVENT_KIND] = {.type = NLA_U32},
	[TXDA_A_EVENT_TIME_NS] = {.type = NLA_U64},
	[TXDA_A_EVENT_PID] = {.type = NLA_U32},
	[TXDA_A_EVENT_CLIENT] = {.type = NLA_UNSPEC},
	[TXDA_A_EVENT_QUEUE_ID] = {.type = NLA_U32},
	[TXDA_A_EVENT_FAULT_CODE] = {.type = NLA_U32},
	[TXDA_A_EVENT_OP] = {.type = NLA_U32},
	[TXDA_A_EVENT_TENSOR] = {.type = NLA_U32},
	[TXDA_A_EVENT_VA] = {.type = NLA_U64},
	[TXDA_A_EVENT_DETAIL] = {.type = NLA_U64},
	[TXDA_A_EVENT_ECC_CORRECTED] = {.type = NLA_U32},
	[TXDA_A_EVENT_ECC_UNCORRECTED] = {.type = NLA_U32},
	[TXDA_A_EVENT_TEMP_MC] = {.type = NLA_U32},
	[TXDA_A_EVENT_THROTTLE] = {.type = NLA_U32},
	[TXDA_A_EVENT_PORT] = {.type = NLA_U32},
	[TXDA_A_EVENT_PORT_STATE] = {.type = NLA_U32},
	[TXDA_A_EVENT_FW_STATE] = {.type = NLA_U32},
	[TXDA_A_EVENT_FW_VERSION] = {.type = NLA_U32},
	[TXDA_A_EVENT_UID] = {.type = NLA_U32},
	[TXDA_A_EVENT_CLIENT_ID] = {.type = NLA_U64},
	[TXDA_A_EVENT_REASON] = {.type = NLA_UNSPEC},
	[TXDA_A_EVENT_BANNED_MS] = {.type = NLA_U32},
};

/* A string attribute need not be NUL-terminated (libnl expects it to be). */
static void copy_string(struct nlattr *attribute, char *to, size_t size)
{
	size_t n = attribute ? (size_t)nla_len(attribute) : 0;

	n = n < size ? n : size - 1;
	if (n)
		memcpy(to, nla_data(attribute), n);
	to[n] = '\0';
	for (char *s = to; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			*s = '?';
}

static uint32_t u32_or(struct nlattr *attribute, uint32_t other)
{
	return attribute ? nla_get_u32(attribute) : other;
}

static uint64_t u64_or(struct nlattr *attribute, uint64_t other)
{
	return attribute ? nla_get_u64(attribute) : other;
}

static bool parse_node(struct nlattr *nest, struct txda__node *node)
{
	struct nlattr *a[TXDA_A_DEV_MAX + 1];

	if (nla_parse_nested(a, TXDA_A_DEV_MAX, nest, dev_policy) < 0 || !a[TXDA_A_DEV_PCI_NAME])
		return false;
	copy_string(a[TXDA_A_DEV_PCI_NAME], node->bus, sizeof(node->bus));
	copy_string(a[TXDA_A_DEV_SERIAL], node->serial, sizeof(node->serial));
	if (a[TXDA_A_DEV_MINOR])
		snprintf(node->node, sizeof(node->node), "/dev/accel/accel%u",
			 nla_get_u32(a[TXDA_A_DEV_MINOR]));
	node->card = u64_or(a[TXDA_A_DEV_CARD], 0);
	node->card_index = u32_or(a[TXDA_A_DEV_CARD_INDEX], 0);
	return true;
}

/* Of an event for administrators: the process, as "name pid"; false: the event names none. */
static bool describe_client(struct nlattr **a, struct txda__node_event *event,
			    char text[CLIENT_BYTES])
{
	char name[CLIENT_BYTES - 12];

	event->pid = (int)u32_or(a[TXDA_A_EVENT_PID], 0);
	event->queue_id = u32_or(a[TXDA_A_EVENT_QUEUE_ID], 0);
	copy_string(a[TXDA_A_EVENT_CLIENT], name, sizeof(name));
	if (event->pid <= 0)
		return false;
	snprintf(text, CLIENT_BYTES, "%s %d", name[0] ? name : "process", event->pid);
	return true;
}

static void describe_fault(struct nlattr **a, struct txda__node_event *event)
{
	struct txda_fault fault = {
		.code = u32_or(a[TXDA_A_EVENT_FAULT_CODE], TXDA_FAULT_HANG),
		.op = u32_or(a[TXDA_A_EVENT_OP], TXDA_NONE),
		.tensor = u32_or(a[TXDA_A_EVENT_TENSOR], TXDA_NONE),
		.va = u64_or(a[TXDA_A_EVENT_VA], 0),
		.detail = u64_or(a[TXDA_A_EVENT_DETAIL], 0),
	};
	char words[96], client[CLIENT_BYTES];

	/* What everybody hears: not whose, and not what. */
	if (!a[TXDA_A_EVENT_PID] && !a[TXDA_A_EVENT_FAULT_CODE]) {
		snprintf(event->text, sizeof(event->text), "a queue faulted or hung");
		return;
	}
	txda__fault_text(&fault, NULL, words, sizeof(words));
	if (describe_client(a, event, client))
		snprintf(event->text, sizeof(event->text), "%s: %s", client, words);
	else
		snprintf(event->text, sizeof(event->text), "%s", words);
}

static void describe_reset(struct nlattr **a, struct txda__node_event *event)
{
	char reason[48], client[CLIENT_BYTES], by[CLIENT_BYTES + 28] = "", ban[32] = "";
	uint32_t ban_ms = u32_or(a[TXDA_A_EVENT_BANNED_MS], 0);

	copy_string(a[TXDA_A_EVENT_REASON], reason, sizeof(reason));
	if (describe_client(a, event, client)) {
		if (a[TXDA_A_EVENT_UID])
			snprintf(by, sizeof(by), ", by %s of user %u", client,
				 nla_get_u32(a[TXDA_A_EVENT_UID]));
		else
			snprintf(by, sizeof(by), ", by %s", client);
	}
	if (ban_ms)
		snprintf(ban, sizeof(ban), ", banned for %u s", ban_ms / 1000 + !!(ban_ms % 1000));
	snprintf(event->text, sizeof(event->text), "was reset%s%s%s%s", *reason ? ": " : "", reason,
		 by, ban);
}

static void describe_thermal(struct nlattr **a, struct txda__node_event *event)
{
	uint32_t why = u32_or(a[TXDA_A_EVENT_THROTTLE], 0);
	const char *state = why & TXDA_NL_THROTTLE_THERMAL ? "throttled, too hot"
			    : why			   ? "throttled, power limit exceeded"
							   : "at full speed";

	if (a[TXDA_A_EVENT_TEMP_MC])
		snprintf(event->text, sizeof(event->text), "%s at %d degrees Celsius", state,
			 (int32_t)nla_get_u32(a[TXDA_A_EVENT_TEMP_MC]) / 1000);
	else
		snprintf(event->text, sizeof(event->text), "%s", state);
}

static void describe_firmware(struct nlattr **a, struct txda__node_event *event)
{
	static const char *const name[] = {"not loaded", "booting", "ready", "failed"};
	uint32_t state = u32_or(a[TXDA_A_EVENT_FW_STATE], UINT32_MAX);
	char version[24] = "";

	if (a[TXDA_A_EVENT_FW_VERSION])
		txda__version_text(nla_get_u32(a[TXDA_A_EVENT_FW_VERSION]), version,
				   sizeof(version));
	snprintf(event->text, sizeof(event->text), "firmware %s%s%s", version, *version ? " " : "",
		 state < ARRAY_SIZE(name) ? name[state] : "changed");
}

static bool describe(uint32_t kind, struct nlattr **a, struct txda__node_event *event)
{
	static const char *const port_state[] = {"down", "training", "up"};
	uint32_t state;

	switch (kind) {
	case TXDA_NL_EVENT_FAULT:
		event->kind = TXDA_EVENT_FAULT;
		describe_fault(a, event);
		return true;
	case TXDA_NL_EVENT_RESET:
		event->kind = TXDA_EVENT_RESET;
		describe_reset(a, event);
		return true;
	case TXDA_NL_EVENT_ECC:
		event->kind = TXDA_EVENT_ECC;
		snprintf(event->text, sizeof(event->text),
			 "%u corrected and %u uncorrected memory errors so far",
			 u32_or(a[TXDA_A_EVENT_ECC_CORRECTED], 0),
			 u32_or(a[TXDA_A_EVENT_ECC_UNCORRECTED], 0));
		return true;
	case TXDA_NL_EVENT_THERMAL:
		event->kind = TXDA_EVENT_THERMAL;
		describe_thermal(a, event);
		return true;
	case TXDA_NL_EVENT_LINK:
		event->kind = TXDA_EVENT_LINK;
		state = u32_or(a[TXDA_A_EVENT_PORT_STATE], UINT32_MAX);
		snprintf(event->text, sizeof(event->text), "port %u is %s",
			 u32_or(a[TXDA_A_EVENT_PORT], 0),
			 state < ARRAY_SIZE(port_state) ? port_state[state]
							: "in an unknown state");
		return true;
	case TXDA_NL_EVENT_FIRMWARE:
		event->kind = TXDA_EVENT_FIRMWARE;
		describe_firmware(a, event);
		return true;
	default: return false; /* udev reports nodes; event kinds of later drivers are ignored */
	}
}

bool txda__node_event_parse(struct nlattr *attributes, int bytes,
			    struct txda__node_event *ret_event)
{
	struct nlattr *a[TXDA_A_EVENT_MAX + 1];
	struct txda__node_event event = {0};

	if (nla_parse(a, TXDA_A_EVENT_MAX, attributes, bytes, event_policy) < 0 ||
	    !a[TXDA_A_EVENT_DEV] || !a[TXDA_A_EVENT_KIND] ||
	    !parse_node(a[TXDA_A_EVENT_DEV], &event.node) ||
	    !describe(nla_get_u32(a[TXDA_A_EVENT_KIND]), a, &event))
		return false;
	event.time_ns = u64_or(a[TXDA_A_EVENT_TIME_NS], clock_ns());
	*ret_event = event;
	return true;
}
