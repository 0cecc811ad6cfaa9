// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "context.h"
#include "events.h"

int txda__events_init(struct txda__events *events)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	memset(events, 0, sizeof(*events));
	pthread_mutex_init(&events->lock, NULL);
	pthread_mutex_init(&events->backend_lock, NULL);
	events->fd = fd;
	events->both = -1;
	return 0;
}

void txda__events_fini(struct txda__events *events)
{
	if (events->both >= 0)
		close(events->both);
	close(events->fd);
	pthread_mutex_destroy(&events->backend_lock);
	pthread_mutex_destroy(&events->lock);
}

void txda__event(struct txda_context *context, enum txda_event_kind kind, unsigned device,
		 const char *format, ...)
{
	struct txda__events *events = &context->events;
	struct txda_event event = {.size = sizeof(event), .kind = kind, .device = device};
	uint64_t one = 1;
	va_list ap;

	event.time_ns = clock_ns();
	va_start(ap, format);
	vsnprintf(event.text, sizeof(event.text), format, ap);
	va_end(ap);

	pthread_mutex_lock(&events->lock);
	if (events->count == TXDA__EVENTS) {
		uint32_t dropped = events->ring[events->head].dropped + 1;

		events->head = (events->head + 1) % TXDA__EVENTS;
		events->count--;
		events->ring[events->head].dropped += dropped;
	}
	events->ring[(events->head + events->count++) % TXDA__EVENTS] = event;
	if (write(events->fd, &one, sizeof(one)) < 0)
		one = 0; /* the counter is full, so the fd is readable, which is enough */
	pthread_mutex_unlock(&events->lock);
}

/* An fd that is readable when either of the two is. */
static int join_fds(int a, int b)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd = epoll_create1(EPOLL_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	if (epoll_ctl(fd, EPOLL_CTL_ADD, a, &event) < 0 ||
	    epoll_ctl(fd, EPOLL_CTL_ADD, b, &event) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int txda_context_event_fd(struct txda_context *context)
{
	struct txda__events *events = &context->events;
	struct txda__backend *backend = context->backend;
	int fd;

	if (txda__forked(context))
		return -EPERM;
	if (!backend->ops->events_fd)
		return events->fd;
	pthread_mutex_lock(&events->backend_lock);
	fd = events->both;
	if (fd < 0) {
		fd = backend->ops->events_fd(backend);
		if (fd >= 0)
			fd = events->both = join_fds(events->fd, fd);
	}
	pthread_mutex_unlock(&events->backend_lock);
	/* If the backend's events fail, those of this process still work. */
	return fd < 0 ? events->fd : fd;
}

static void take_backend_events(struct txda_context *context)
{
	struct txda__backend *backend = context->backend;

	if (!backend->ops->take_events)
		return;
	pthread_mutex_lock(&context->events.backend_lock);
	backend->ops->take_events(backend);
	pthread_mutex_unlock(&context->events.backend_lock);
}

int txda_context_event(struct txda_context *context, struct txda_event *ret_event)
{
	struct txda__events *events = &context->events;
	struct txda_event event;
	uint64_t drained;
	int r;

	if (txda__forked(context))
		return -EPERM;
	take_backend_events(context);
	pthread_mutex_lock(&events->lock);
	if (!events->count) {
		pthread_mutex_unlock(&events->lock);
		return -EAGAIN;
	}
	event = events->ring[events->head];
	r = txda__copy_out(context, ret_event, &event, sizeof(event), "txda_event");
	if (r >= 0) {
		events->head = (events->head + 1) % TXDA__EVENTS;
		if (--events->count == 0 && read(events->fd, &drained, sizeof(drained)) < 0)
			drained = 0; /* the counter was 0 */
	}
	pthread_mutex_unlock(&events->lock);
	return r;
}
