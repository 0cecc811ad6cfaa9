// SPDX-License-Identifier: MIT
#include <libudev.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "clock.h"
#include "listener.h"
#include "spec.h"
#include "txda_netlink.h"

#define BACKLOG 64 /* events handled per poll of the sockets */
/* Those, and all nodes gone and others in their place: no node's event may be dropped. */
#define ROOM (BACKLOG + 2 * TXDA__MAX_CHIPS)

struct txda__listener {
	int fd; /* epoll of the two below */
	struct udev *udev;
	struct udev_monitor *monitor;
	struct nl_sock *health; /* NULL: not available */
	bool from_kernel;	/* no udevd is running */
	unsigned n_nodes;
	struct txda__node node[TXDA__MAX_CHIPS]; /* known to exist */
	unsigned head, n_events;
	struct txda__node_event events[ROOM]; /* a ring */
};

void txda__listener_push(struct txda__listener *l, const struct txda__node_event *event)
{
	if (l->n_events < ROOM)
		l->events[(l->head + l->n_events++) % ROOM] = *event;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void push_node_event(struct txda__listener *l, const struct txda__node *node, bool added)
{
	struct txda__node_event event = {.kind = added ? TXDA_EVENT_DEVICE_ADDED
						       : TXDA_EVENT_DEVICE_REMOVED,
					 .time_ns = clock_ns(),
					 .node = *node};

	if (*node->serial)
		snprintf(event.text, sizeof(event.text), "%s, serial %s, %s", node->node,
			 node->serial, added ? "was added" : "is gone");
	else
		snprintf(event.text, sizeof(event.text), "%s %s", node->node,
			 added ? "was added" : "is gone");
	txda__listener_push(l, &event);
}

static struct txda__node *find_node(struct txda__listener *l, const char *name)
{
	for (unsigned i = 0; i < l->n_nodes; i++)
		if (!strcmp(l->node[i].node, name))
			return &l->node[i];
	return NULL;
}

static void node_removed(struct txda__listener *l, struct txda__node *node)
{
	struct txda__node last = l->node[l->n_nodes - 1];

	push_node_event(l, node, false);
	*node = last;
	l->n_nodes--;
}

static void node_added(struct txda__listener *l, const struct txda__node *node)
{
	struct txda__node *before = find_node(l, node->node);

	if (before && before->incarnation == node->incarnation)
		return;
	if (before)
		node_removed(l, before); /* its message was lost, and the name was reused */
	if (l->n_nodes == TXDA__MAX_CHIPS)
		return;
	l->node[l->n_nodes++] = *node;
	push_node_event(l, node, true);
}

void txda__listener_found(struct txda__listener *l, const struct txda__node *now, unsigned n)
{
	for (unsigned i = 0; i < l->n_nodes;) {
		unsigned j = 0;

		while (j < n && (strcmp(now[j].node, l->node[i].node) ||
				 now[j].incarnation != l->node[i].incarnation))
			j++;
		if (j == n)
			node_removed(l, &l->node[i]);
		else
			i++;
	}
	for (unsigned j = 0; j < n; j++)
		node_added(l, &now[j]);
}

/* Messages were lost. */
static void resync(struct txda__listener *l)
{
	struct txda__node *now = calloc(TXDA__MAX_CHIPS, sizeof(*now));
	int n = now ? txda__nodes(now, TXDA__MAX_CHIPS) : -1;

	if (n >= 0)
		txda__listener_found(l, now, (unsigned)n);
	free(now);
}

static void take_uevent(struct txda__listener *l, struct udev_device *device)
{
	const char *action = udev_device_get_action(device);
	const char *name = udev_device_get_devnode(device);
	struct txda__node node, *known;

	if (!action || !name)
		return;
	if (!strcmp(action, "remove")) {
		known = find_node(l, name);
		if (known)
			node_removed(l, known);
	} else if (!strcmp(action, "add") && txda__node_read(device, &node)) {
		node_added(l, &node);
	}
}

static void take_uevents(struct txda__listener *l)
{
	struct udev_device *device;

	while (l->monitor && l->n_events < BACKLOG / 2) {
		errno = 0;
		device = udev_monitor_receive_device(l->monitor);
		if (!device && errno != ENOBUFS)
			break;
		if (device)
			take_uevent(l, device);
		else
			resync(l);
		udev_device_unref(device);
	}
}

static int start_monitor(struct txda__listener *l)
{
	l->from_kernel = access("/run/udev/control", F_OK) < 0;
	l->udev = udev_new();
	l->monitor =
		l->udev ? udev_monitor_new_from_netlink(l->udev, l->from_kernel ? "kernel" : "udev")
			: NULL;
	if (!l->monitor)
		return -ENOMEM;
	return udev_monitor_filter_add_match_subsystem_devtype(l->monitor, "accel", NULL) < 0 ||
			       udev_monitor_enable_receiving(l->monitor) < 0
		       ? -EIO
		       : 0;
}

/* ---- health ---------------------------------------------------------------------------------- */

static int take_message(struct nl_msg *message, void *arg)
{
	struct genlmsghdr *header = genlmsg_hdr(nlmsg_hdr(message));
	struct txda__listener *l = arg;
	struct txda__node_event event;

	if (header->cmd == TXDA_CMD_EVENT_NTF &&
	    txda__node_event_parse(genlmsg_attrdata(header, 0), genlmsg_attrlen(header, 0), &event))
		txda__listener_push(l, &event);
	return NL_OK;
}

/*
 * The group whose events name the processes of faults, if this process may join it, else the public
 * one.
 */
static bool join_health(struct nl_sock *socket)
{
	static const char *const groups[] = {TXDA_MCGRP_CLIENTS, TXDA_MCGRP_EVENTS};

	for (unsigned i = 0; i < ARRAY_SIZE(groups); i++) {
		int group = genl_ctrl_resolve_grp(socket, TXDA_FAMILY_NAME, groups[i]);

		if (group >= 0 && nl_socket_add_membership(socket, group) >= 0)
			return true;
	}
	return false;
}

/* Joins the netlink family if it exists; without it there are no health events. */
static void start_health(struct txda__listener *l)
{
	struct nl_sock *socket = nl_socket_alloc();
	struct epoll_event event = {.events = EPOLLIN};

	if (!socket)
		return;
	nl_socket_disable_seq_check(socket);
	if (genl_connect(socket) < 0)
		goto out_free;
	if (!join_health(socket) || nl_socket_set_nonblocking(socket) < 0 ||
	    nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, take_message, l) < 0 ||
	    epoll_ctl(l->fd, EPOLL_CTL_ADD, nl_socket_get_fd(socket), &event) < 0)
		goto out_free;
	l->health = socket;
	return;

out_free:
	nl_socket_free(socket);
}

static void take_health(struct txda__listener *l)
{
	/*
	 * 0: a datagram was read. Messages lost to an overflow are not recovered; the next call
	 * continues.
	 */
	for (unsigned i = 0; l->health && l->n_events < BACKLOG / 2 && i < BACKLOG; i++) {
		int r = nl_recvmsgs_default(l->health);

		if (r < 0 && r != -NLE_NOMEM)
			break;
	}
}

/* ---- both ------------------------------------------------------------------------------------ */

int txda__listener_blank(const struct txda__node *nodes, unsigned n,
			 struct txda__listener **ret_listener)
{
	struct txda__listener *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->fd < 0) {
		free(l);
		return -errno;
	}
	for (; l->n_nodes < n && l->n_nodes < TXDA__MAX_CHIPS; l->n_nodes++)
		l->node[l->n_nodes] = nodes[l->n_nodes];
	*ret_listener = l;
	return 0;
}

int txda__listener_new(struct txda__listener **ret_listener)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct txda__listener *l;
	int n, r;

	r = txda__listener_blank(NULL, 0, &l);
	if (r < 0)
		return r;
	r = start_monitor(l);
	if (r >= 0 && epoll_ctl(l->fd, EPOLL_CTL_ADD, udev_monitor_get_fd(l->monitor), &event) < 0)
		r = -errno;
	if (r < 0) {
		txda__listener_free(l);
		return r;
	}
	start_health(l);
	/*
	 * After the monitor, so that no node is missed; one that appears in between is known
	 * already.
	 */
	n = txda__nodes(l->node, TXDA__MAX_CHIPS);
	l->n_nodes = n < 0 ? 0 : (unsigned)n;
	*ret_listener = l;
	return 0;
}

void txda__listener_free(struct txda__listener *l)
{
	if (!l)
		return;
	if (l->health)
		nl_socket_free(l->health);
	udev_monitor_unref(l->monitor);
	udev_unref(l->udev);
	close(l->fd);
	free(l);
}

int txda__listener_fd(struct txda__listener *listener)
{
	return listener->fd;
}

bool txda__listener_next(struct txda__listener *l, struct txda__node_event *ret_event)
{
	if (!l->n_events) {
		take_uevents(l);
		/* The module may have been loaded later. */
		if (l->monitor && !l->health && l->n_events)
			start_health(l);
		take_health(l);
	}
	if (!l->n_events)
		return false;
	*ret_event = l->events[l->head];
	l->head = (l->head + 1) % ROOM;
	l->n_events--;
	return true;
}

unsigned txda__listener_nodes(struct txda__listener *listener, const struct txda__node **ret_nodes)
{
	*ret_nodes = listener->node;
	return listener->n_nodes;
}
