/* SPDX-License-Identifier: MIT */
/*
 * What happens to the chips of this machine: nodes that come and go, from udev, and their health,
 * from the driver's netlink family (txda_netlink.h). No chip is opened.
 *
 * A kernel without that family, or a process that may not listen to it, hears of nodes only. When
 * messages were lost, what they would have said of nodes is found by looking; of health, nothing.
 * Where no udevd runs the kernel's own uevents are taken.
 *
 * Messages come from the kernel or from root, but are parsed as if from anybody.
 * Threads: a listener is not used concurrently.
 */
#ifndef TXDA_LISTENER_H
#define TXDA_LISTENER_H

#include "nodes.h"

struct txda__listener;

struct txda__node_event {
	enum txda_event_kind kind;
	uint64_t time_ns;
	struct txda__node node; /* the chip; health: what is known of it, bus at least */
	/* of a fault */
	int pid; /* 0: not known */
	unsigned queue_id;
	char text[160]; /* without the chip's name */
};

/* Nodes that exist when it is made are not reported. */
int txda__listener_new(struct txda__listener **ret_listener);
/* One that hears nothing but what txda__listener_push() tells it, and knows @nodes. */
int txda__listener_blank(const struct txda__node *nodes, unsigned n,
			 struct txda__listener **ret_listener);
void txda__listener_push(struct txda__listener *listener, const struct txda__node_event *event);
void txda__listener_free(struct txda__listener *listener);
/* Readable when there may be events. */
int txda__listener_fd(struct txda__listener *listener);
/* True and the next event, or false when there is none. Never waits. */
bool txda__listener_next(struct txda__listener *listener, struct txda__node_event *ret_event);
/* The nodes that are there, as far as was told by _next(). Returns how many. */
unsigned txda__listener_nodes(struct txda__listener *listener, const struct txda__node **ret_nodes);

/* One health message: its attributes, as netlink sends them. False if it makes no sense. */
struct nlattr;
bool txda__node_event_parse(struct nlattr *attributes, int bytes,
			    struct txda__node_event *ret_event);

#endif /* TXDA_LISTENER_H */
