/* SPDX-License-Identifier: MIT */
/*
 * Events of this machine's chips: nodes that appear and disappear, from udev, and health, from the
 * driver's netlink family (txda_netlink.h). No chip is opened.
 *
 * Without that family (older kernel, or no permission) only node events are reported. When messages
 * were lost, the nodes are rescanned; lost health messages are not recovered. Without a running
 * udevd the kernel's own uevents are used.
 *
 * Messages come from the kernel or from root, but are parsed as untrusted.
 * Threads: a listener is not used concurrently.
 */
#ifndef TXDA_LISTENER_H
#define TXDA_LISTENER_H

#include "nodes.h"

struct txda__listener;

struct txda__node_event {
	enum txda_event_kind kind;
	uint64_t time_ns;
	struct txda__node node; /* the chip; for health events perhaps only its bus */
	/* of a fault, and of a reset because of a client's queue */
	int pid; /* 0: not known */
	unsigned queue_id;
	char text[192]; /* without the chip's name */
};

/* Nodes that exist when it is made are not reported. */
int txda__listener_new(struct txda__listener **ret_listener);
/*
 * A listener without sockets that only reports what txda__listener_push() feeds it, and knows
 * @nodes.
 */
int txda__listener_blank(const struct txda__node *nodes, unsigned n,
			 struct txda__listener **ret_listener);
void txda__listener_push(struct txda__listener *listener, const struct txda__node_event *event);
/* Reports how the nodes that exist now, at most TXDA__MAX_CHIPS, differ from the known ones. */
void txda__listener_found(struct txda__listener *listener, const struct txda__node *now,
			  unsigned n);
void txda__listener_free(struct txda__listener *listener);
/* Readable when there may be events. */
int txda__listener_fd(struct txda__listener *listener);
/* True and the next event, or false when there is none. Never blocks. */
bool txda__listener_next(struct txda__listener *listener, struct txda__node_event *ret_event);
/* The nodes that exist according to the events taken by _next(). Returns how many. */
unsigned txda__listener_nodes(struct txda__listener *listener, const struct txda__node **ret_nodes);

/* Feeds one health message: its attributes in netlink format. False if it is malformed. */
struct nlattr;
bool txda__node_event_parse(struct nlattr *attributes, int bytes,
			    struct txda__node_event *ret_event);

#endif /* TXDA_LISTENER_H */
