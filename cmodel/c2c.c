// SPDX-License-Identifier: MIT
#include "c2c.h"
#include "exec.h"
#include "lead.h"
#include "pool.h"
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

static void line_append(struct cm_group *g, unsigned rank, struct cm_queue *q)
{
	struct cm_queue **link = &g->line[rank];

	while (*link)
		link = &(*link)->group_next;
	*link = q;
	q->group_next = NULL;
	q->waits_in = g;
}

static void line_remove(struct cm_queue *q)
{
	struct cm_group *g = q->waits_in;

	for (unsigned rank = 0; g && rank < g->size; rank++) {
		struct cm_queue **link = &g->line[rank];

		while (*link && *link != q)
			link = &(*link)->group_next;
		if (*link)
			*link = q->group_next;
	}
	q->waits_in = NULL;
	q->group_next = NULL;
}

static struct cm_queue *line_pop(struct cm_group *g, unsigned rank)
{
	struct cm_queue *q = g->line[rank];

	g->line[rank] = q->group_next;
	q->group_next = NULL;
	q->waits_in = NULL;
	return q;
}

/* All who wait in the group fault: somebody will not come. */
static void fail_waiting(struct cm_group *g)
{
	struct cm_queue *all = NULL;

	/* First out of their lines, so that one's fault does not start over with the others. */
	for (unsigned rank = 0; rank < g->size; rank++) {
		while (g->line[rank]) {
			struct cm_queue *q = line_pop(g, rank);

			q->group_next = all;
			all = q;
		}
	}
	while (all) {
		struct cm_queue *q = all;

		all = q->group_next;
		q->group_next = NULL;
		cm_queue_fail_innocent(q, g->id);
	}
}

static bool uses(const struct cm_queue *q, unsigned slot)
{
	return q->groups_used >> slot & 1 && q->vm->group[slot].group;
}

void cm_c2c_poison(struct cm_queue *q)
{
	line_remove(q);
	q->met = false;
	if (!q->groups_used || q->group_poisoned)
		return;
	q->group_poisoned = true;
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (uses(q, i))
			q->vm->group[i].group->poisoned++;
	}
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (uses(q, i))
			fail_waiting(q->vm->group[i].group);
	}
}

void cm_c2c_leave(struct cm_queue *q)
{
	bool unfinished = q->in_stream || atomic_load(&q->head) != atomic_load(&q->tail);

	line_remove(q);
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (!uses(q, i))
			continue;
		if (q->group_poisoned)
			q->vm->group[i].group->poisoned--;
		else if (unfinished)
			fail_waiting(q->vm->group[i].group);
	}
	q->groups_used = 0;
}

void cm_c2c_unset(struct cm_vm *vm, unsigned slot)
{
	struct cm_machine *m = vm->chip->machine;
	struct cm_group *g = vm->group[slot].group;

	if (!g)
		return;
	fail_waiting(g);
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		struct cm_queue *q = m->queue[i];

		if (!q || q->vm != vm || !uses(q, slot))
			continue;
		if (q->group_poisoned)
			g->poisoned--;
		q->groups_used &= ~(1u << slot);
	}
	g->member[vm->group[slot].rank] = NULL;
	vm->group[slot] = (struct cm_group_slot){0};
	if (!--g->members) {
		struct cm_group **link = &m->groups;

		while (*link != g)
			link = &(*link)->next;
		*link = g->next;
		free(g);
	}
}

static struct cm_group *group_find(struct cm_machine *m, uint64_t id)
{
	struct cm_group *g = m->groups;

	while (g && g->id != id)
		g = g->next;
	return g;
}

/* Makes @vm the member @rank of group @id in @slot, which is free. */
static int set_group(struct cm_vm *vm, unsigned slot, uint64_t id, unsigned rank, unsigned size)
{
	struct cm_machine *m = vm->chip->machine;
	struct cm_group *g = group_find(m, id);

	if (g && g->size != size)
		return -EINVAL;
	if (g && g->member[rank])
		return -EEXIST;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		g->id = id;
		g->size = size;
		g->next = m->groups;
		m->groups = g;
	}
	g->member[rank] = vm;
	g->members++;
	vm->group[slot] = (struct cm_group_slot){g, rank};
	return 0;
}

int cm_vm_set_group(struct cm_vm *vm, unsigned slot, uint64_t id, unsigned rank, unsigned size)
{
	struct cm_machine *m = vm->chip->machine;
	int ret = 0;

	if (slot >= CM_GROUP_SLOTS || size > TXDA_MAX_GROUP || (size && rank >= size))
		return -EINVAL;
	cm_pause(m);
	cm_c2c_unset(vm, slot);
	if (size)
		ret = set_group(vm, slot, id, rank, size);
	cm_resume(m);
	return ret;
}

const struct cm_group_slot *cm_c2c_group(struct cm_queue *q, uint32_t slot)
{
	if (slot >= CM_GROUP_SLOTS || !q->vm->group[slot].group)
		return NULL;
	q->groups_used |= 1u << slot;
	return &q->vm->group[slot];
}

/* ---- the work of packets --------------------------------------------------------------------- */

#define PART_ELEMENTS  16384u
#define BLOCK_ELEMENTS 256u

struct packet_work {
	unsigned size;
	uint64_t count;	  /* elements of each source */
	uint64_t element; /* bytes */
	const uint8_t *src[TXDA_MAX_GROUP];
	uint8_t *dst[TXDA_MAX_GROUP];
	unsigned parts_per_rank;
};

static float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Rounds to nearest even; NaN stays NaN. */
static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Adds n elements to @sum, or starts it when @first. */
static void add_block(float *sum, const uint8_t *src, uint64_t n, uint64_t element, bool first)
{
	for (uint64_t i = 0; i < n; i++) {
		float x;

		if (element == 4) {
			memcpy(&x, src + i * 4, 4);
		} else {
			uint16_t half;

			memcpy(&half, src + i * 2, 2);
			x = float_of((uint32_t)half << 16);
		}
		sum[i] = first ? x : sum[i] + x;
	}
}

static void reduce_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	const struct packet_work *w = arg;
	uint64_t at = (uint64_t)part * PART_ELEMENTS;
	uint64_t end = w->count - at > PART_ELEMENTS ? at + PART_ELEMENTS : w->count;
	float sum[BLOCK_ELEMENTS];
	uint16_t half[BLOCK_ELEMENTS];

	(void)phase;
	(void)core;
	/* A block is read from all ranks before it is written to any, so dst may be src. */
	for (; at < end; at += BLOCK_ELEMENTS) {
		uint64_t n = end - at < BLOCK_ELEMENTS ? end - at : BLOCK_ELEMENTS;
		const void *out = sum;

		for (unsigned r = 0; r < w->size; r++)
			add_block(sum, w->src[r] + at * w->element, n, w->element, r == 0);
		if (w->element == 2) {
			for (uint64_t i = 0; i < n; i++)
				half[i] = to_bf16(sum[i]);
			out = half;
		}
		for (unsigned r = 0; r < w->size; r++)
			memcpy(w->dst[r] + at * w->element, out, n * w->element);
	}
}

static void gather_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	const struct packet_work *w = arg;
	unsigned rank = part / w->parts_per_rank;
	uint64_t at = (uint64_t)(part % w->parts_per_rank) * PART_ELEMENTS;
	uint64_t n = w->count - at > PART_ELEMENTS ? PART_ELEMENTS : w->count - at;

	(void)phase;
	(void)core;
	for (unsigned r = 0; r < w->size; r++)
		memmove(w->dst[r] + (rank * w->count + at) * w->element,
			w->src[rank] + at * w->element, n * w->element);
}

/* The memory of one member's packet; false: its queue has faulted. */
static bool packet_resolve(struct cm_queue *q, unsigned rank, struct packet_work *w)
{
	const struct txda_pkt_collective *p = &q->pkt.collective;
	uint64_t bytes = p->count * w->element, bad_va = 0;
	uint64_t dst_bytes = p->hdr.op == TXDA_PKT_ALL_GATHER ? bytes * w->size : bytes;

	w->src[rank] = cm_vm_find(q->vm, p->src, bytes, CM_MAP_READ, &bad_va);
	if (w->src[rank])
		w->dst[rank] = cm_vm_find(q->vm, p->dst, dst_bytes, CM_MAP_WRITE, &bad_va);
	if (w->src[rank] && w->dst[rank])
		return true;
	cm_queue_fail_with(q, TXDA_FAULT_PAGE, bad_va, p->hdr.op);
	return false;
}

/*
 * Fails the members that have not faulted themselves. Where one has, or a link is down, the others
 * are innocent; where they only disagree all are guilty.
 */
static void fail_members(struct cm_queue *const *member, unsigned size, uint64_t id)
{
	bool innocent = false;

	for (unsigned i = 0; i < size; i++)
		innocent |= atomic_load(&member[i]->state) == CM_QUEUE_FAULTED ||
			    cm_chip_link_down(member[i]->chip);
	for (unsigned i = 0; i < size; i++) {
		if (innocent)
			cm_queue_fail_innocent(member[i], id);
		else
			cm_queue_fail_with(member[i], TXDA_FAULT_COLLECTIVE, 0, id);
	}
}

/* The memory of all members at the same time. */
static bool resolve_all(struct cm_queue *const *member, struct packet_work *w)
{
	struct cm_machine *m = member[0]->machine;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = m->evictions;

		for (unsigned i = 0; i < w->size; i++) {
			if (!packet_resolve(member[i], i, w))
				return false;
		}
		if (evictions == m->evictions)
			return true;
	}
	return false;
}

static bool meet_packets(struct cm_queue *const *member, unsigned size)
{
	const struct txda_pkt_collective *p = &member[0]->pkt.collective;
	struct packet_work w = {.size = size, .count = p->count};
	struct cm_machine *m = member[0]->machine;
	uint64_t parts = (p->count + PART_ELEMENTS - 1) / PART_ELEMENTS;
	bool gather = p->hdr.op == TXDA_PKT_ALL_GATHER;

	w.element = p->dtype == TXDA_F32 ? 4 : 2;
	for (unsigned i = 0; i < size; i++) {
		const struct txda_pkt_collective *other = &member[i]->pkt.collective;

		if (other->hdr.op != p->hdr.op || other->count != p->count ||
		    other->dtype != p->dtype)
			return false;
	}
	if (!p->count)
		return true;
	if (!resolve_all(member, &w))
		return false;
	w.parts_per_rank = (unsigned)parts;
	cm_account(m, member[0]->chip, false);
	cm_pool_run(m, gather ? gather_part : reduce_part, &w, 0,
		    (unsigned)(gather ? parts * size : parts), NULL);
	cm_account_flush(m);
	for (unsigned i = 0; i < size; i++) {
		cm_count(&member[i]->chip->activity.bytes_read, p->count * w.element);
		cm_count(&member[i]->chip->activity.bytes_written,
			 p->count * w.element * (gather ? size : 1));
	}
	return true;
}

/* ---- meetings -------------------------------------------------------------------------------- */

/* The tensors of all members at the same time. */
static bool refresh_all(struct cm_queue *const *member, unsigned size)
{
	struct cm_machine *m = member[0]->machine;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = m->evictions;

		for (unsigned i = 0; i < size; i++) {
			if (!cm_exec_refresh(member[i]))
				return false;
		}
		if (evictions == m->evictions)
			return true;
	}
	return false;
}

static bool meet_ops(struct cm_queue *const *member, unsigned size)
{
	const struct cm_launch *peer[TXDA_MAX_GROUP] = {NULL};
	struct cm_launch *first = &member[0]->context->launch;
	const struct cm_op_impl *impl = cm_op_impl(first->op->op);

	if (!refresh_all(member, size))
		return false;
	for (unsigned i = 0; i < size; i++) {
		peer[i] = &member[i]->context->launch;
		if (peer[i]->op->op != first->op->op || peer[i]->precise != first->precise)
			return false;
	}
	for (unsigned i = 0; i < size; i++) {
		struct cm_launch *l = &member[i]->context->launch;

		l->group_size = size;
		l->rank = i;
		memcpy(l->peer, peer, sizeof(l->peer));
	}
	for (unsigned i = 0; i < size; i++) {
		if (impl->check(&member[i]->context->launch)) {
			cm_exec_fail(member[i]);
			return false;
		}
	}
	impl->plan(first);
	cm_exec_run(member[0]);
	for (unsigned i = 0; i < size; i++)
		cm_exec_count(member[i]);
	return true;
}

/* The first of each line meet. */
static void meet(struct cm_group *g)
{
	struct cm_queue *member[TXDA_MAX_GROUP] = {NULL};
	bool ok = true;

	for (unsigned i = 0; i < g->size; i++) {
		member[i] = line_pop(g, i);
		ok &= member[i]->busy == member[0]->busy && !cm_chip_link_down(member[i]->chip);
	}
	if (ok)
		ok = member[0]->busy == CM_BUSY_EXEC ? meet_ops(member, g->size)
						     : meet_packets(member, g->size);
	if (!ok) {
		fail_members(member, g->size, g->id);
		return;
	}
	for (unsigned i = 0; i < g->size; i++) {
		member[i]->met = true;
		cm_cp_activate(member[i]);
	}
}

static bool all_lines_have_one(const struct cm_group *g)
{
	for (unsigned i = 0; i < g->size; i++) {
		if (!g->line[i])
			return false;
	}
	return true;
}

/* Whether the queue's meeting is over, still to come, or failed. */
static enum cm_result state_of(struct cm_queue *q)
{
	if (atomic_load(&q->state) == CM_QUEUE_FAULTED)
		return CM_FAULT;
	if (!q->met)
		return CM_PARK;
	q->met = false;
	return CM_DONE;
}

/* Whether somebody is known not to come. */
static bool is_closed(const struct cm_group *g)
{
	for (unsigned i = 0; i < g->size; i++) {
		if (g->member[i] && atomic_load(&g->member[i]->chip->lost))
			return true;
	}
	return g->poisoned;
}

static enum cm_result arrive(struct cm_queue *q, const struct cm_group_slot *slot)
{
	struct cm_group *g = slot->group;

	if (is_closed(g) || cm_chip_link_down(q->chip)) {
		cm_queue_fail_innocent(q, g->id);
		return CM_FAULT;
	}
	line_append(g, slot->rank, q);
	while (all_lines_have_one(g))
		meet(g);
	return state_of(q);
}

enum cm_result cm_c2c_op(struct cm_queue *q)
{
	const struct cm_group_slot *slot;

	if (q->waits_in || q->met)
		return state_of(q);
	slot = cm_c2c_group(q, q->pkt.exec.group);
	/* The group was there when the launch began, but may have been taken away since. */
	if (!slot || slot->group->size != q->context->program->hdr->group_size) {
		cm_queue_fail_with(q, TXDA_FAULT_COLLECTIVE, 0, q->pkt.exec.group);
		return CM_FAULT;
	}
	return arrive(q, slot);
}

/* What can be said about a packet before the others are there. */
static bool packet_is_sound(const struct txda_pkt_collective *p, unsigned size, unsigned rank)
{
	uint64_t element = p->dtype == TXDA_F32 ? 4 : 2, bytes, total, gap;

	if ((p->dtype != TXDA_F32 && p->dtype != TXDA_BF16) || p->src % element || p->dst % element)
		return false;
	if (p->count > CM_VA_BYTES / element / TXDA_MAX_GROUP)
		return false;
	bytes = p->count * element;
	total = p->hdr.op == TXDA_PKT_ALL_GATHER ? bytes * size : bytes;
	/* In place: ALL_REDUCE onto its source, ALL_GATHER from its own place in the result. */
	if (p->src == p->dst + total / size * (p->hdr.op == TXDA_PKT_ALL_GATHER ? rank : 0))
		return true;
	gap = p->src > p->dst ? p->src - p->dst : p->dst - p->src;
	return gap >= (p->src > p->dst ? total : bytes);
}

enum cm_result cm_c2c_packet(struct cm_queue *q)
{
	const struct txda_pkt_collective *p = &q->pkt.collective;
	const struct cm_group_slot *slot;

	if (q->waits_in || q->met)
		return state_of(q);
	slot = cm_c2c_group(q, p->group);
	if (!slot) {
		cm_queue_fail_with(q, TXDA_FAULT_COLLECTIVE, 0, p->group);
		return CM_FAULT;
	}
	if (!packet_is_sound(p, slot->group->size, slot->rank)) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, q->stream.va + q->pos, p->hdr.op);
		return CM_FAULT;
	}
	return arrive(q, slot);
}
