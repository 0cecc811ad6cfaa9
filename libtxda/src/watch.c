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
	struct txda__news news;

	if (!txda__listener_next(watch->listener, &news))
		return -EAGAIN;
	event.kind = news.kind;
	event.time_ns = news.time_ns;
	memcpy(event.bus, news.node.bus, sizeof(event.bus));
	memcpy(event.node, news.node.node, sizeof(event.node));
	memcpy(event.serial, news.node.serial, sizeof(event.serial));
	event.pid = news.pid;
	memcpy(event.text, news.text, sizeof(news.text));
	return txda__copy_out(NULL, ret_event, &event, sizeof(event), "txda_watch_event");
}
