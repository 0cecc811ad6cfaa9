// SPDX-License-Identifier: MIT
/*
 * Chip events of a context. There is no background thread: events are read and handled by the
 * thread that asks the context for them. So an added chip becomes a device of the context when its
 * event is taken, never in the middle of another operation.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend_drm.h"
#include "events.h"

/* The chip of an event, with a reference; a removed chip is matched by its node. */
static struct drm_chip *find_chip(struct drm *drm, const struct txda__node *node)
{
	struct drm_chip *found = NULL;

	pthread_mutex_lock(&drm->lock);
	for (unsigned i = 0; i < drm->n_chips; i++) {
		struct drm_chip *chip = drm->chip[i];

		if (!strcmp(chip->node.bus, node->bus) &&
		    (!node->incarnation || chip->node.incarnation == node->incarnation))
			found = chip; /* the last match: earlier ones are lost */
	}
	if (found)
		txda__ref(&found->refs);
	pthread_mutex_unlock(&drm->lock);
	return found;
}

/* A number for an added chip: that of the lost chip that it replaces, or a new one. */
static bool find_place(struct drm *drm, const struct txda__node *node, unsigned *ret_index)
{
	bool full = drm->n_chips == TXDA__MAX_CHIPS;

	for (unsigned i = 0; i < drm->n_chips; i++) {
		const struct drm_chip *chip = drm->chip[i];
		bool same = !strcmp(chip->node.bus, node->bus) ||
			    (*node->serial && !strcmp(chip->node.serial, node->serial));

		if (atomic_load(&chip->lost) && (same || full)) {
			*ret_index = i;
			return true;
		}
	}
	*ret_index = drm->n_chips;
	return !full;
}

static void chip_added(struct drm *drm, const struct txda__node_event *event)
{
	struct txda_context *context = drm->base.context;
	struct drm_chip *chip, *before = NULL;
	unsigned index, device;

	chip = find_chip(drm, &event->node);
	if (chip) {
		txda__drm_chip_put(chip);
		return;
	}
	if (!find_place(drm, &event->node, &index))
		return;
	if (txda__drm_chip_open(drm, &event->node, index, &chip) < 0) {
		txda__event(context, TXDA_EVENT_DEVICE_ADDED, UINT32_MAX, "%s: %s", event->text,
			    txda_context_error(context));
		return;
	}
	pthread_mutex_lock(&drm->lock);
	if (index < drm->n_chips)
		before = drm->chip[index];
	else
		drm->n_chips++;
	drm->chip[index] = chip;
	pthread_mutex_unlock(&drm->lock);
	if (before)
		txda__drm_chip_put(before);
	device = txda__context_admit(context, &chip->info);
	if (device != UINT32_MAX)
		txda__event(context, TXDA_EVENT_DEVICE_ADDED, device, "chip %u: %s", device,
			    event->text);
}

static void chip_removed(struct drm *drm, const struct txda__node_event *event)
{
	struct txda_context *context = drm->base.context;
	struct drm_chip *chip = find_chip(drm, &event->node);
	unsigned device;

	if (!chip)
		return;
	atomic_store(&chip->lost, true);
	device = txda__context_find(context, chip->index);
	if (device != UINT32_MAX)
		txda__event(context, TXDA_EVENT_DEVICE_REMOVED, device, "chip %u: %s", device,
			    event->text);
	txda__drm_chip_put(chip);
}

/*
 * A queue faulted, perhaps one of ours: such a queue reports the fault itself, with names, also
 * when nobody waits for it. The event has only the process id, so ask each of our queues for its
 * state.
 */
static bool our_fault(struct drm_chip *chip, const struct txda__node_event *event)
{
	bool ours = false;

	if (event->pid != getpid())
		return false;
	pthread_mutex_lock(&chip->lock);
	for (struct txda__hwqueue *queue = chip->queues; queue; queue = queue->next)
		if (queue->id == event->queue_id) {
			queue->events.faulted(queue->events.arg);
			ours = true;
		}
	pthread_mutex_unlock(&chip->lock);
	return ours;
}

static void chip_health(struct drm *drm, const struct txda__node_event *event)
{
	struct txda_context *context = drm->base.context;
	struct drm_chip *chip = find_chip(drm, &event->node);
	unsigned device;

	if (!chip)
		return;
	device = txda__context_find(context, chip->index);
	if (device != UINT32_MAX && !(event->kind == TXDA_EVENT_FAULT && our_fault(chip, event)))
		txda__event(context, event->kind, device, "chip %u: %s", device, event->text);
	txda__drm_chip_put(chip);
}

static void take(struct drm *drm, const struct txda__node_event *event)
{
	switch (event->kind) {
	case TXDA_EVENT_DEVICE_ADDED: chip_added(drm, event); break;
	case TXDA_EVENT_DEVICE_REMOVED: chip_removed(drm, event); break;
	default: chip_health(drm, event); break;
	}
}

/* Chips that appeared or disappeared between opening the backend and opening the listener. */
static void catch_up(struct drm *drm)
{
	const struct txda__node *node;
	unsigned n = txda__listener_nodes(drm->listener, &node);
	struct txda__node_event event = {0};

	for (unsigned i = 0; i < drm->n_chips; i++) {
		struct drm_chip *chip = drm->chip[i];
		unsigned j = 0;

		while (j < n && node[j].incarnation != chip->node.incarnation)
			j++;
		if (j < n)
			continue;
		event.node = chip->node;
		snprintf(event.text, sizeof(event.text), "%s is gone", chip->node.node);
		chip_removed(drm, &event);
	}
	for (unsigned j = 0; j < n; j++) {
		event.node = node[j];
		snprintf(event.text, sizeof(event.text), "%s was added", node[j].node);
		chip_added(drm, &event);
	}
}

static bool listening(struct drm *drm)
{
	if (!drm->listener && !drm->deaf) {
		drm->deaf = txda__drm_kernel->listen(&drm->listener) < 0;
		if (!drm->deaf)
			catch_up(drm);
	}
	return drm->listener;
}

int txda__drm_events_fd(struct txda__backend *backend)
{
	struct drm *drm = (struct drm *)backend;

	if (!listening(drm))
		return txda__fail(backend->context, -EIO, "cannot listen for events of chips");
	return txda__listener_fd(drm->listener);
}

void txda__drm_events(struct txda__backend *backend)
{
	struct drm *drm = (struct drm *)backend;
	struct txda__node_event event;

	if (!listening(drm))
		return;
	while (txda__listener_next(drm->listener, &event))
		take(drm, &event);
}

void txda__drm_events_end(struct drm *drm)
{
	txda__listener_free(drm->listener);
}
