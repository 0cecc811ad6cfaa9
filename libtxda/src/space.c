// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "space.h"

/* The first 2 MiB stay unmapped, so that null pointers with small offsets fault. */
#define VA_START (2ull << 20)
#define VA_END	 (1ull << 40)

static const struct txda__backend_ops *ops_of(const struct txda__space *space)
{
	return space->context->backend->ops;
}

static int make_space(struct txda_device *device, struct txda__space **ret_space)
{
	struct txda__backend *backend = device->context->backend;
	struct txda__space *space = calloc(1, sizeof(*space));
	uint64_t end;
	int r;

	if (!space)
		return txda__fail(device->context, -ENOMEM, "out of memory");
	atomic_init(&space->refs, 1);
	space->context = device->context;
	space->index = device->index;
	r = backend->ops->vm_new(backend, device->physical, &space->vm, &end);
	if (r < 0) {
		free(space);
		return r;
	}
	if (end > VA_END)
		end = VA_END;
	r = txda__vas_init(&space->vas, VA_START, end - VA_START);
	if (r < 0) {
		backend->ops->vm_free(space->vm);
		free(space);
		return txda__fail(device->context, r, "out of memory");
	}
	pthread_mutex_init(&space->lock, NULL);
	*ret_space = space;
	return 0;
}

static void free_ranges(struct txda__range *range)
{
	while (range) {
		struct txda__range *next = range->next;

		free(range);
		range = next;
	}
}

/*
 * Gives back ranges whose queues have passed their marks. Those that were released meanwhile are
 * next: the marks are set to the last fences of now. The lock is held.
 */
static void reuse(struct txda__space *space)
{
	while (space->marked || space->released) {
		for (struct txda__progress *q = space->queues; q; q = q->next)
			if (__atomic_load_n(q->word, __ATOMIC_ACQUIRE) < q->mark &&
			    !atomic_load(&q->ended))
				return;
		for (struct txda__range *r = space->marked; r; r = r->next)
			txda__vas_release(&space->vas, r->va, r->bytes);
		free_ranges(space->marked);
		space->marked = space->released;
		space->released = NULL;
		for (struct txda__progress *q = space->queues; q; q = q->next)
			q->mark = atomic_load(&q->last);
	}
}

struct txda__space *txda__space_ref(struct txda__space *space)
{
	txda__ref(&space->refs);
	return space;
}

void txda__space_put(struct txda__space *space)
{
	if (!space || !txda__unref(&space->refs) || txda__inherited(space->context))
		return;
	ops_of(space)->vm_free(space->vm);
	pthread_mutex_destroy(&space->lock);
	free_ranges(space->marked);
	free_ranges(space->released);
	txda__vas_free(&space->vas);
	free(space);
}

int txda__space_get(struct txda_device *device, struct txda__space **ret_space)
{
	const struct txda__backend_ops *ops = device->context->backend->ops;
	struct txda__space *lost = NULL;
	int r = 0;

	pthread_mutex_lock(&device->lock);
	if (device->space && ops->vm_lost && ops->vm_lost(device->space->vm)) {
		lost = device->space;
		device->space = NULL;
	}
	if (!device->space)
		r = make_space(device, &device->space);
	if (r >= 0)
		*ret_space = txda__space_ref(device->space);
	pthread_mutex_unlock(&device->lock);
	txda__space_put(lost);
	return r;
}

int txda__space_take(struct txda__space *space, uint64_t bytes, uint64_t align,
		     struct txda__range **ret_range)
{
	struct txda__range *range = calloc(1, sizeof(*range));
	int r;

	if (!range)
		return txda__fail(space->context, -ENOMEM, "out of memory");
	range->bytes = bytes;
	pthread_mutex_lock(&space->lock);
	reuse(space);
	r = txda__vas_take(&space->vas, bytes, align, &range->va);
	pthread_mutex_unlock(&space->lock);
	if (r < 0) {
		free(range);
		return txda__fail(space->context, -ENOMEM,
				  r == -ENOMEM ? "out of memory"
					       : "no room for the buffer in the address space of "
						 "the chip");
	}
	*ret_range = range;
	return 0;
}

void txda__space_release(struct txda__space *space, struct txda__range *range)
{
	if (txda__inherited(space->context)) {
		free(range);
		return;
	}
	pthread_mutex_lock(&space->lock);
	range->next = space->released;
	space->released = range;
	reuse(space);
	pthread_mutex_unlock(&space->lock);
}

void txda__space_add_queue(struct txda__space *space, struct txda__progress *queue)
{
	pthread_mutex_lock(&space->lock);
	queue->next = space->queues;
	space->queues = queue;
	pthread_mutex_unlock(&space->lock);
}

void txda__space_remove_queue(struct txda__space *space, struct txda__progress *queue)
{
	struct txda__progress **at = &space->queues;

	pthread_mutex_lock(&space->lock);
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	pthread_mutex_unlock(&space->lock);
}

/* A slot that no member uses; all members' locks are held. */
static int find_slot(struct txda__space *const *space, unsigned n, unsigned *ret_slot)
{
	unsigned taken = 0, leaving = 0;

	for (unsigned i = 0; i < n; i++) {
		taken |= space[i]->group_slots;
		leaving |= space[i]->leaving;
	}
	for (unsigned slot = 0; slot < TXDA__GROUP_SLOTS; slot++)
		if (!(taken & (1u << slot))) {
			*ret_slot = slot;
			return 0;
		}
	return txda__fail(space[0]->context, -EBUSY,
			  "the %u chips have %u groups for models that span chips; no more fit (%d "
			  "models are freed, but their groups stay until the chips have no work)",
			  n, TXDA__GROUP_SLOTS, __builtin_popcount(leaving));
}

/* Leaves the groups that are to be left, as far as they can be. The lock is held. */
static void leave(struct txda__space *space)
{
	for (unsigned slot = 0; slot < TXDA__GROUP_SLOTS; slot++) {
		unsigned bit = 1u << slot;

		if (space->leaving & bit && ops_of(space)->vm_leave(space->vm, slot) >= 0) {
			space->leaving &= ~bit;
			space->group_slots &= ~bit;
		}
	}
}

int txda__spaces_join(struct txda__space *const *space, unsigned n, unsigned *ret_slot)
{
	struct txda__space *by_index[TXDA__MAX_CHIPS] = {NULL};
	struct txda__vm *vm[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned slot;
	int r;

	for (unsigned i = 0; i < n; i++) {
		by_index[space[i]->index] = space[i];
		vm[i] = space[i]->vm;
	}
	/* Locked in chip order, regardless of ranks, so that two groups cannot deadlock. */
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		if (by_index[i])
			pthread_mutex_lock(&by_index[i]->lock);
	for (unsigned i = 0; i < n; i++)
		leave(space[i]);
	r = find_slot(space, n, &slot);
	if (r >= 0)
		r = ops_of(space[0])->vm_join(vm, n, slot);
	for (unsigned i = 0; i < n && r >= 0; i++)
		space[i]->group_slots |= 1u << slot;
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		if (by_index[i])
			pthread_mutex_unlock(&by_index[i]->lock);
	if (r >= 0)
		*ret_slot = slot;
	return r;
}

void txda__space_leave(struct txda__space *space, unsigned slot)
{
	if (txda__inherited(space->context))
		return;
	pthread_mutex_lock(&space->lock);
	space->leaving |= 1u << slot;
	leave(space);
	pthread_mutex_unlock(&space->lock);
}
