// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "listener.h"

struct txda_watch {
	struct txda__listener *listener;
};

int txda_watch_new(struct txda_watch **ret_watch)
{
	struct txda_watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return txda__fail(NULL, -ENOMEM, "out of memory");
	r = txda__listener_new(&watch->listener);
	if (r < 0) {
		free(watch);
		return txda__fail(NULL, r, "cannot listen for events of chips: %s", strerror(-r));
	}
	*ret_watch = watch;
	return 0;
}

struct txda_watch *txda_watch_unref(struct txda_watch *watch)
{
	if (watch)
		txda__listener_free(watch->listener);
	free(watch);
	return NULL;
}

int txda_watch_fd(struct txda_watch *watch)
{
	return txda__listener_fd(watch->listener);
}

int txda_watch_event(struct txda_watch *watch, struct txda_watch_event *ret_event)
{
	struct txda_watch_event event = {0};
	struct txda__node_event source;

	if (!txda__listener_next(watch->listener, &source))
		return -EAGAIN;
	event.kind = source.kind;
	event.time_ns = source.time_ns;
	memcpy(event.bus, source.node.bus, sizeof(event.bus));
	memcpy(event.node, source.node.node, sizeof(event.node));
	memcpy(event.serial, source.node.serial, sizeof(event.serial));
	event.pid = source.pid;
	memcpy(event.text, source.text, sizeof(source.text));
	return txda__copy_out(NULL, ret_event, &event, sizeof(event), "txda_watch_event");
}
