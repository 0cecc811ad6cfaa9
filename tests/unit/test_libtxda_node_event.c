// SPDX-License-Identifier: MIT
/* Health messages as the driver sends them, and as nobody should; faults in words. */
#include <drm/txda_drm.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include "fault.h"
#include "libtxda_test.h"
#include "listener.h"
#include "spec.h"
#include "txda_netlink.h"

static struct nl_msg *message(unsigned kind)
{
	struct nl_msg *msg = nlmsg_alloc();
	struct nlattr *nest;

	assert_non_null(nlmsg_put(msg, 0, 0, 100, 0, 0));
	nest = nla_nest_start(msg, TXDA_A_EVENT_DEV);
	nla_put_u32(msg, TXDA_A_DEV_MINOR, 3);
	nla_put_string(msg, TXDA_A_DEV_PCI_NAME, "0000:02:00.0");
	/* without a NUL */
	nla_put(msg, TXDA_A_DEV_SERIAL, 16, "0123456789abcdef");
	nla_put_u64(msg, TXDA_A_DEV_CARD, 1ull << 63);
	nla_put_u32(msg, TXDA_A_DEV_CARD_INDEX, 1);
	nla_nest_end(msg, nest);
	nla_put_u32(msg, TXDA_A_EVENT_KIND, kind);
	nla_put_u64(msg, TXDA_A_EVENT_TIME_NS, 77);
	return msg;
}

/* Parses and frees it. */
static bool parse(struct nl_msg *msg, struct txda__node_event *event)
{
	struct nlmsghdr *header = nlmsg_hdr(msg);
	bool good =
		txda__node_event_parse(nlmsg_attrdata(header, 0), nlmsg_attrlen(header, 0), event);

	nlmsg_free(msg);
	return good;
}

TEST(test_clients)
{
	struct txda__node_event event = {0};
	struct nl_msg *msg;

	msg = message(TXDA_NL_EVENT_FAULT);
	nla_put_u32(msg, TXDA_A_EVENT_PID, 4711);
	nla_put_string(msg, TXDA_A_EVENT_CLIENT, "evil\033[2J");
	nla_put_u32(msg, TXDA_A_EVENT_QUEUE_ID, 5);
	nla_put_u32(msg, TXDA_A_EVENT_FAULT_CODE, TXDA_FAULT_PAGE);
	nla_put_u32(msg, TXDA_A_EVENT_OP, 12);
	nla_put_u64(msg, TXDA_A_EVENT_VA, 0x1000);
	nla_put_u32(msg, 99, 1); /* of a newer driver */
	assert_true(parse(msg, &event));
	assert_int_equal(event.kind, TXDA_EVENT_FAULT);
	assert_int_equal(event.time_ns, 77);
	assert_string_equal(event.node.bus, "0000:02:00.0");
	assert_string_equal(event.node.node, "/dev/accel/accel3");
	assert_string_equal(event.node.serial, "0123456789abcdef");
	assert_true(event.node.card == 1ull << 63);
	assert_int_equal(event.node.card_index, 1);
	assert_int_equal(event.pid, 4711);
	assert_int_equal(event.queue_id, 5);
	assert_string_equal(event.text, "evil?[2J 4711: page fault in op 12, address 0x1000");

	/* as everybody hears of it */
	event = (struct txda__node_event){0};
	assert_true(parse(message(TXDA_NL_EVENT_FAULT), &event));
	assert_string_equal(event.text, "a queue faulted or hung");
	assert_int_equal(event.pid, 0);

	event = (struct txda__node_event){0};
	assert_true(parse(message(TXDA_NL_EVENT_RESET), &event));
	assert_int_equal(event.kind, TXDA_EVENT_RESET);
	assert_string_equal(event.text, "was reset");
	assert_int_equal(event.pid, 0);
	/* as everybody hears of it, and as an administrator does */
	msg = message(TXDA_NL_EVENT_RESET);
	nla_put_string(msg, TXDA_A_EVENT_REASON, "a queue does not stop");
	assert_true(parse(msg, &event));
	assert_string_equal(event.text, "was reset: a queue does not stop");
	msg = message(TXDA_NL_EVENT_RESET);
	nla_put_u32(msg, TXDA_A_EVENT_PID, 4711);
	nla_put_string(msg, TXDA_A_EVENT_CLIENT, "evil\033[2J");
	nla_put_u32(msg, TXDA_A_EVENT_UID, 1000);
	nla_put_u64(msg, TXDA_A_EVENT_CLIENT_ID, 12);
	nla_put_u32(msg, TXDA_A_EVENT_QUEUE_ID, 5);
	nla_put_string(msg, TXDA_A_EVENT_REASON, "a queue does not stop");
	nla_put_u32(msg, TXDA_A_EVENT_BANNED_MS, 60000);
	assert_true(parse(msg, &event));
	assert_string_equal(event.text,
			    "was reset: a queue does not stop, by evil?[2J 4711 of user 1000, "
			    "banned for 60 s");
	assert_int_equal(event.pid, 4711);
	assert_int_equal(event.queue_id, 5);
}

TEST(test_health)
{
	struct txda__node_event event = {0};
	struct nl_msg *msg;

	msg = message(TXDA_NL_EVENT_ECC);
	nla_put_u32(msg, TXDA_A_EVENT_ECC_CORRECTED, 3);
	nla_put_u32(msg, TXDA_A_EVENT_ECC_UNCORRECTED, 1);
	assert_true(parse(msg, &event));
	assert_int_equal(event.kind, TXDA_EVENT_ECC);
	assert_says(event.text, "3 corrected and 1 uncorrected");

	msg = message(TXDA_NL_EVENT_THERMAL);
	nla_put_u32(msg, TXDA_A_EVENT_TEMP_MC, (uint32_t)-4000);
	nla_put_u32(msg, TXDA_A_EVENT_THROTTLE, TXDA_NL_THROTTLE_THERMAL);
	assert_true(parse(msg, &event));
	assert_int_equal(event.kind, TXDA_EVENT_THERMAL);
	assert_string_equal(event.text, "throttled, too hot at -4 degrees Celsius");
	assert_true(parse(message(TXDA_NL_EVENT_THERMAL), &event));
	assert_string_equal(event.text, "at full speed");

	msg = message(TXDA_NL_EVENT_LINK);
	nla_put_u32(msg, TXDA_A_EVENT_PORT, 2);
	nla_put_u32(msg, TXDA_A_EVENT_PORT_STATE, DRM_TXDA_PORT_DOWN);
	assert_true(parse(msg, &event));
	assert_int_equal(event.kind, TXDA_EVENT_LINK);
	assert_string_equal(event.text, "port 2 is down");

	msg = message(TXDA_NL_EVENT_FIRMWARE);
	nla_put_u32(msg, TXDA_A_EVENT_FW_STATE, DRM_TXDA_FIRMWARE_FAILED);
	nla_put_u32(msg, TXDA_A_EVENT_FW_VERSION, 0x01022a);
	assert_true(parse(msg, &event));
	assert_int_equal(event.kind, TXDA_EVENT_FIRMWARE);
	assert_string_equal(event.text, "firmware 1.2.42 failed");
}

/* A message that is no event leaves the result alone. */
TEST(test_nonsense)
{
	struct txda__node_event event = {.pid = -1};
	struct nl_msg *msg;
	struct nlattr *nest;

	/* nodes are udev's */
	assert_false(parse(message(TXDA_NL_EVENT_ADD), &event));
	assert_false(parse(message(TXDA_NL_EVENT_REMOVE), &event));
	assert_false(parse(message(0), &event));
	assert_false(parse(message(1000), &event));
	assert_false(txda__node_event_parse(NULL, 0, &event));

	msg = nlmsg_alloc();
	nlmsg_put(msg, 0, 0, 100, 0, 0);
	nla_put_u32(msg, TXDA_A_EVENT_KIND, TXDA_NL_EVENT_RESET);
	assert_false(parse(msg, &event)); /* no chip */

	msg = nlmsg_alloc();
	nlmsg_put(msg, 0, 0, 100, 0, 0);
	nest = nla_nest_start(msg, TXDA_A_EVENT_DEV);
	nla_put_u32(msg, TXDA_A_DEV_MINOR, 3);
	nla_nest_end(msg, nest);
	nla_put_u32(msg, TXDA_A_EVENT_KIND, TXDA_NL_EVENT_RESET);
	assert_false(parse(msg, &event)); /* nor its address */

	msg = message(TXDA_NL_EVENT_ECC);
	nla_put(msg, TXDA_A_EVENT_ECC_CORRECTED, 2, "xy"); /* too short */
	assert_false(parse(msg, &event));
	assert_int_equal(event.pid, -1);
}

/* Any bytes: no access beyond them (a sanitizer looks), and texts that end. */
TEST(test_random)
{
	struct nl_msg *msg = message(TXDA_NL_EVENT_FAULT);
	struct nlmsghdr *header;
	unsigned seed = 1, good = 0;
	int length;
	char *copy;

	nla_put_string(msg, TXDA_A_EVENT_CLIENT, "client");
	header = nlmsg_hdr(msg);
	length = nlmsg_attrlen(header, 0);
	for (unsigned i = 0; i < 50000; i++) {
		struct txda__node_event event = {0};
		int cut;

		seed = seed * 1103515245 + 12345;
		cut = (int)((seed >> 8) % (unsigned)(length + 1));
		copy = malloc((size_t)cut + 1);
		memcpy(copy, nlmsg_attrdata(header, 0), (size_t)cut);
		for (unsigned j = 0; cut && j < 1 + i % 4; j++) {
			seed = seed * 1103515245 + 12345;
			copy[(seed >> 16) % (unsigned)cut] = (char)(seed >> 8);
		}
		if (txda__node_event_parse((struct nlattr *)copy, cut, &event)) {
			good++;
			assert_true(strlen(event.text) < sizeof(event.text));
			assert_true(strlen(event.node.bus) < sizeof(event.node.bus));
		}
		free(copy);
	}
	assert_true(good > 100);
	nlmsg_free(msg);
}

TEST(test_fault_text)
{
	struct txda_fault fault = {.code = TXDA_FAULT_INDEX,
				   .op = 3,
				   .tensor = 7,
				   .va = 0x2000,
				   .packet_va = 0x40,
				   .detail = 12345678901ull};
	char text[200], small[9];

	txda__fault_text(&fault, NULL, text, sizeof(text));
	assert_string_equal(text, "index out of range, index 12345678901 in op 3, tensor 7, "
				  "address 0x2000, packet at 0x40");
	txda__fault_text(&fault, NULL, small, sizeof(small));
	assert_string_equal(small, "index ou");
	fault = (struct txda_fault){.code = 1000, .op = TXDA_NONE, .tensor = TXDA_NONE};
	txda__fault_text(&fault, NULL, text, sizeof(text));
	assert_string_equal(text, "unknown fault 1000");
}

/* All chips went, and others came, while messages were lost: each is reported. */
TEST(test_found)
{
	struct txda__node *nodes = calloc(TXDA__MAX_CHIPS, sizeof(*nodes));
	unsigned removed = 0, added = 0;
	struct txda__listener *listener;
	struct txda__node_event event;

	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++) {
		snprintf(nodes[i].node, sizeof(nodes[i].node), "/dev/accel/accel%u", i);
		nodes[i].incarnation = 1000 + i;
	}
	assert_int_equal(txda__listener_blank(nodes, TXDA__MAX_CHIPS, &listener), 0);
	txda__listener_found(listener, nodes, TXDA__MAX_CHIPS);
	assert_false(txda__listener_next(listener, &event));
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		nodes[i].incarnation += 1000;
	txda__listener_found(listener, nodes, TXDA__MAX_CHIPS);
	while (txda__listener_next(listener, &event)) {
		removed += event.kind == TXDA_EVENT_DEVICE_REMOVED;
		added += event.kind == TXDA_EVENT_DEVICE_ADDED;
	}
	assert_int_equal(removed, TXDA__MAX_CHIPS);
	assert_int_equal(added, TXDA__MAX_CHIPS);
	txda__listener_free(listener);
	free(nodes);
}

TEST_MAIN
