// SPDX-License-Identifier: MIT
/*
 * nl_events dump | nl_events listen SECONDS GROUP - the generic netlink family of the driver as it is:
 * its chips, or what happens to them, one line of KEY=VALUE each. "listen" first prints "ready"; it
 * ends after SECONDS.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "txda_netlink.h"

enum form { FORM_U32, FORM_S32, FORM_U64, FORM_STRING };

struct attribute {
	const char *name;
	enum form form;
};

static const struct attribute device_attributes[TXDA_A_DEV_MAX + 1] = {
	[TXDA_A_DEV_MINOR] = {"minor", FORM_U32},
	[TXDA_A_DEV_PCI_NAME] = {"pci", FORM_STRING},
	[TXDA_A_DEV_SERIAL] = {"serial", FORM_STRING},
	[TXDA_A_DEV_CARD] = {"card", FORM_U64},
	[TXDA_A_DEV_CARD_INDEX] = {"card_index", FORM_U32},
	[TXDA_A_DEV_FAULTS] = {"faults", FORM_U64},
	[TXDA_A_DEV_RESETS] = {"resets", FORM_U64},
};

static const struct attribute event_attributes[TXDA_A_EVENT_MAX + 1] = {
	[TXDA_A_EVENT_KIND] = {"kind", FORM_U32},
	[TXDA_A_EVENT_TIME_NS] = {"time", FORM_U64},
	[TXDA_A_EVENT_PID] = {"pid", FORM_U32},
	[TXDA_A_EVENT_CLIENT] = {"client", FORM_STRING},
	[TXDA_A_EVENT_QUEUE_ID] = {"queue", FORM_U32},
	[TXDA_A_EVENT_FAULT_CODE] = {"code", FORM_U32},
	[TXDA_A_EVENT_OP] = {"op", FORM_U32},
	[TXDA_A_EVENT_TENSOR] = {"tensor", FORM_U32},
	[TXDA_A_EVENT_VA] = {"va", FORM_U64},
	[TXDA_A_EVENT_DETAIL] = {"detail", FORM_U64},
	[TXDA_A_EVENT_ECC_CORRECTED] = {"ecc_corrected", FORM_U32},
	[TXDA_A_EVENT_ECC_UNCORRECTED] = {"ecc_uncorrected", FORM_U32},
	[TXDA_A_EVENT_TEMP_MC] = {"temp", FORM_S32},
	[TXDA_A_EVENT_THROTTLE] = {"throttle", FORM_U32},
	[TXDA_A_EVENT_PORT] = {"port", FORM_U32},
	[TXDA_A_EVENT_PORT_STATE] = {"port_state", FORM_U32},
	[TXDA_A_EVENT_FW_STATE] = {"fw_state", FORM_U32},
	[TXDA_A_EVENT_FW_VERSION] = {"fw_version", FORM_U32},
	[TXDA_A_EVENT_UID] = {"uid", FORM_U32},
	[TXDA_A_EVENT_CLIENT_ID] = {"client_id", FORM_U64},
	[TXDA_A_EVENT_REASON] = {"reason", FORM_STRING},
	[TXDA_A_EVENT_BANNED_MS] = {"banned_ms", FORM_U32},
};

static const char *const kinds[] = {
	[TXDA_NL_EVENT_FAULT] = "fault",   [TXDA_NL_EVENT_RESET] = "reset",
	[TXDA_NL_EVENT_ECC] = "ecc",	   [TXDA_NL_EVENT_THERMAL] = "thermal",
	[TXDA_NL_EVENT_LINK] = "link",	   [TXDA_NL_EVENT_ADD] = "add",
	[TXDA_NL_EVENT_REMOVE] = "remove", [TXDA_NL_EVENT_FIRMWARE] = "firmware",
};

static void print_attributes(struct nlattr **attr, const struct attribute *known, int max)
{
	for (int i = 1; i <= max; i++) {
		if (!attr[i] || !known[i].name)
			continue;
		printf(" %s=", known[i].name);
		switch (known[i].form) {
		case FORM_U32: printf("%" PRIu32, nla_get_u32(attr[i])); break;
		case FORM_S32: printf("%" PRId32, (int32_t)nla_get_u32(attr[i])); break;
		case FORM_U64: printf("%" PRIu64, nla_get_u64(attr[i])); break;
		case FORM_STRING: printf("%s", nla_get_string(attr[i])); break;
		}
	}
}

static void print_event(struct nlattr **attr)
{
	struct nlattr *device[TXDA_A_DEV_MAX + 1];
	uint32_t kind = attr[TXDA_A_EVENT_KIND] ? nla_get_u32(attr[TXDA_A_EVENT_KIND]) : 0;

	printf("event %s",
	       kind < sizeof(kinds) / sizeof(kinds[0]) && kinds[kind] ? kinds[kind] : "unknown");
	print_attributes(attr, event_attributes, TXDA_A_EVENT_MAX);
	if (attr[TXDA_A_EVENT_DEV] &&
	    !nla_parse_nested(device, TXDA_A_DEV_MAX, attr[TXDA_A_EVENT_DEV], NULL))
		print_attributes(device, device_attributes, TXDA_A_DEV_MAX);
	printf("\n");
}

static int on_message(struct nl_msg *msg, void *arg)
{
	struct nlattr *attr[TXDA_A_EVENT_MAX + 1];
	struct nlmsghdr *header = nlmsg_hdr(msg);

	(void)arg;
	if (genlmsg_parse(header, 0, attr, TXDA_A_EVENT_MAX, NULL) < 0)
		return NL_SKIP;
	if (((struct genlmsghdr *)nlmsg_data(header))->cmd == TXDA_CMD_EVENT_NTF) {
		print_event(attr);
	} else {
		printf("device");
		print_attributes(attr, device_attributes, TXDA_A_DEV_MAX);
		printf("\n");
	}
	fflush(stdout);
	return NL_OK;
}

static int dump(struct nl_sock *sock, int family)
{
	int err = genl_send_simple(sock, family, TXDA_CMD_DEV_GET, TXDA_FAMILY_VERSION, NLM_F_DUMP);

	return err < 0 ? err : nl_recvmsgs_default(sock);
}

static int listen_for(struct nl_sock *sock, long seconds, const char *name)
{
	int group = genl_ctrl_resolve_grp(sock, TXDA_FAMILY_NAME, name);
	struct pollfd fd = {.events = POLLIN};
	time_t end = time(NULL) + seconds;
	int err;

	if (group < 0)
		return group;
	err = nl_socket_add_membership(sock, group);
	if (err)
		return err;
	nl_socket_disable_seq_check(sock);
	fd.fd = nl_socket_get_fd(sock);
	printf("ready\n");
	fflush(stdout);
	while (time(NULL) < end) {
		if (poll(&fd, 1, 200) <= 0)
			continue;
		err = nl_recvmsgs_default(sock);
		if (err == -NLE_NOMEM)
			printf("overrun\n");
		else if (err < 0)
			return err;
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool listening = argc == 4 && !strcmp(argv[1], "listen");
	struct nl_sock *sock;
	int family, err;

	if (!listening && (argc != 2 || strcmp(argv[1], "dump"))) {
		fprintf(stderr, "usage: nl_events dump | nl_events listen SECONDS GROUP\n");
		return 2;
	}
	sock = nl_socket_alloc();
	if (!sock)
		return 1;
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, on_message, NULL);
	err = genl_connect(sock);
	family = err ? err : genl_ctrl_resolve(sock, TXDA_FAMILY_NAME);
	if (family < 0) {
		fprintf(stderr, "family %s: %s\n", TXDA_FAMILY_NAME, nl_geterror(family));
		return 1;
	}
	err = listening ? listen_for(sock, atol(argv[2]), argv[3]) : dump(sock, family);
	if (err < 0)
		fprintf(stderr, "%s\n", nl_geterror(err));
	nl_socket_free(sock);
	return err < 0;
}
