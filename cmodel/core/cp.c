// SPDX-License-Identifier: MIT
#include "cp.h"
#include "collective.h"
#include "inject.h"

#include <string.h>

#define PACKETS_PER_TURN 64 /* cheap ones per turn, for fairness to the other queues */

/* Minimum and maximum polling interval of a WAIT in a translated space. */
#define POLL_MIN_NS 20000u
#define POLL_MAX_NS 1000000u

struct packet_rule {
	uint32_t bytes;	 /* 0: any */
	uint16_t flags;	 /* defined ones */
	bool copy_queue; /* allowed on copy queues */
};

static const struct packet_rule packet_rules[TXDA_PKT_COUNT] = {
	[TXDA_PKT_NOP] = {0, 0, true},
	[TXDA_PKT_COPY] = {sizeof(struct txda_pkt_copy), 0, true},
	[TXDA_PKT_COPY_2D] = {sizeof(struct txda_pkt_copy_2d), 0, true},
	[TXDA_PKT_FILL] = {sizeof(struct txda_pkt_fill), 0, true},
	[TXDA_PKT_EXEC] = {sizeof(struct txda_pkt_exec),
			   TXDA_EXEC_RELOAD | TXDA_EXEC_PRECISE | TXDA_EXEC_PROFILE |
				   TXDA_EXEC_PART,
			   false},
	[TXDA_PKT_SIGNAL] = {sizeof(struct txda_pkt_fence), TXDA_SIGNAL_IRQ, true},
	[TXDA_PKT_WAIT] = {sizeof(struct txda_pkt_fence), 0, true},
	[TXDA_PKT_TIMESTAMP] = {sizeof(struct txda_pkt_timestamp), 0, true},
	[TXDA_PKT_ALL_REDUCE] = {sizeof(struct txda_pkt_collective), 0, false},
	[TXDA_PKT_ALL_GATHER] = {sizeof(struct txda_pkt_collective), 0, false},
};

/* ---- streams --------------------------------------------------------------------------------- */

static bool ring_is_empty(struct cm_queue *q)
{
	return atomic_load(&q->head) == atomic_load(&q->tail);
}

/* The stream's memory; false: the queue has faulted. */
static bool stream_resolve(struct cm_queue *q)
{
	uint64_t bad = 0;

	q->stream_ptr = cm_vm_find(q->vm, q->stream.va, q->stream.bytes, CM_MAP_READ, &bad);
	q->stream_generation = q->vm->generation;
	if (q->stream_ptr)
		return true;
	cm_queue_fail_with(q, TXDA_FAULT_PAGE, bad, 0);
	return false;
}

static bool stream_begin(struct cm_queue *q)
{
	q->stream = q->ring[atomic_load(&q->head) % CM_QUEUE_DEPTH];
	q->in_stream = true;
	q->pos = 0;
	q->busy = CM_BUSY_NONE;
	if (q->stream.va % 8 || q->stream.bytes % 8 || q->stream.bytes > TXDA_STREAM_MAX_BYTES) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, q->stream.va, q->stream.bytes);
		return false;
	}
	return !q->stream.bytes || stream_resolve(q);
}

/* Notifies the embedder; false: the queue has faulted. */
static bool stream_completed(struct cm_queue *q)
{
	struct txda_fault fault = {.op = TXDA_NONE, .tensor = TXDA_NONE, .opcode = TXDA_NONE};

	if (q->ops.completed(q->arg, &fault))
		return true;
	cm_queue_fail(q, &fault);
	return false;
}

/* Likewise. */
static bool stream_end_if_done(struct cm_queue *q)
{
	if (!q->in_stream || q->busy != CM_BUSY_NONE || q->pos != q->stream.bytes)
		return true;
	q->in_stream = false;
	atomic_store_explicit(&q->packet_va, 0, memory_order_relaxed);
	/* First, so that the callback finds room for more. */
	atomic_store(&q->head, atomic_load(&q->head) + 1);
	return !q->ops.completed || stream_completed(q);
}

/* ---- fences ---------------------------------------------------------------------------------- */

/* The 64-bit word of a fence or timestamp packet; NULL: CM_FAULT. */
static uint64_t *word_at(struct cm_queue *q, uint64_t va, unsigned access)
{
	uint64_t *word = NULL, bad = 0;

	if (va % 8) {
		cm_fail(&q->why, TXDA_FAULT_PACKET, va, q->pkt.hdr.op);
		return NULL;
	}
	word = cm_vm_find(q->vm, va, sizeof(*word), access, &bad);
	if (!word)
		cm_fail(&q->why, TXDA_FAULT_PAGE, bad, 0);
	return word;
}

static enum cm_result run_signal(struct cm_queue *q)
{
	const struct txda_pkt_fence *p = &q->pkt.fence;
	uint64_t *word = word_at(q, p->va, CM_MAP_WRITE);

	if (!word)
		return CM_FAULT;
	/* Ordered before the check for sleepers; a sleeper counts itself, then checks the word. */
	__atomic_store_n(word, p->value, __ATOMIC_SEQ_CST);
	cm_ready_wrote(q->queues->ready);
	if ((p->hdr.flags & TXDA_SIGNAL_IRQ) && q->ops.signalled)
		q->ops.signalled(q->arg, p->va, p->value);
	cm_lead_wake_waiters(q->queues->lead);
	return CM_DONE;
}

static enum cm_result run_wait(struct cm_queue *q)
{
	uint64_t *word = word_at(q, q->pkt.fence.va, CM_MAP_READ);

	if (!word)
		return CM_FAULT;
	if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= q->pkt.fence.value)
		return CM_DONE;
	if (q->vm->translate) {
		/* The host may write the word without a cm_kick(), which is for embedders. */
		q->poll_step_ns = q->busy != CM_BUSY_WAIT ? POLL_MIN_NS : q->poll_step_ns * 2;
		if (q->poll_step_ns > POLL_MAX_NS)
			q->poll_step_ns = POLL_MAX_NS;
		q->poll_ns = clock_ns() + q->poll_step_ns;
	}
	q->busy = CM_BUSY_WAIT;
	return CM_PARK;
}

static enum cm_result run_timestamp(struct cm_queue *q)
{
	uint64_t *word = word_at(q, q->pkt.timestamp.va, CM_MAP_WRITE);

	if (!word)
		return CM_FAULT;
	__atomic_store_n(word, cm_chip_time_ns(q->chip), __ATOMIC_RELEASE);
	cm_ready_wrote(q->queues->ready);
	return CM_DONE;
}

/* ---- meetings -------------------------------------------------------------------------------- */

/*
 * Fails the members that have not faulted themselves. Where one has, or is cancelled, or a link is
 * down, the others are innocent; where they only disagree all are guilty.
 */
static void fail_members(struct cm_queue *const *q, const struct cm_group *g)
{
	bool innocent = false;

	for (unsigned i = 0; i < g->size; i++)
		innocent |= cm_queue_is_faulted(q[i]) || atomic_load(&q[i]->cancel) ||
			    cm_chip_link_down(q[i]->chip);
	for (unsigned i = 0; i < g->size; i++) {
		if (innocent)
			cm_queue_fail_innocent(q[i], g->id);
		else
			cm_queue_fail_with(q[i], TXDA_FAULT_COLLECTIVE, 0, g->id);
	}
}

/* Does the work of all members, whose packets are of the same kind. */
static enum cm_result meet(struct cm_queue *const *q, unsigned size, unsigned *ret_guilty)
{
	struct cm_collective packet[TXDA_MAX_GROUP];
	struct cm_exec *exec[TXDA_MAX_GROUP];

	for (unsigned i = 0; i < size; i++) {
		exec[i] = &q[i]->exec;
		packet[i] = (struct cm_collective){q[i]->vm, &q[i]->pkt.collective, &q[i]->why,
						   &q[i]->cancel};
	}
	if (q[0]->busy == CM_BUSY_EXEC)
		return cm_exec_meet(exec, size, ret_guilty);
	return cm_collective_run(q[0]->queues->pool, packet, size, ret_guilty);
}

/* Runs the meeting of @member, by rank, and lets their queues continue. */
static void hold_meeting(const struct cm_group *g, struct cm_member *const *member)
{
	struct cm_queue *q[TXDA_MAX_GROUP] = {NULL};
	unsigned guilty = g->size;
	bool ok = true;

	for (unsigned i = 0; i < g->size; i++) {
		q[i] = cm_queue_of(member[i]);
		ok &= q[i]->busy == q[0]->busy && !cm_chip_link_down(q[i]->chip);
	}
	if (ok)
		ok = meet(q, g->size, &guilty) == CM_DONE;
	if (!ok) {
		if (guilty < g->size)
			cm_queue_fail(q[guilty], &q[guilty]->why);
		fail_members(q, g);
		return;
	}
	for (unsigned i = 0; i < g->size; i++) {
		member[i]->met = true;
		cm_ready_activate(q[i]->queues->ready, q[i]->slot);
	}
}

/* Whether the queue's meeting is over (CM_DONE), has not happened yet (CM_PARK) or has failed. */
static enum cm_result meeting_result(struct cm_queue *q)
{
	if (cm_queue_is_faulted(q))
		return CM_FAULT;
	if (!q->member.met)
		return CM_PARK;
	q->member.met = false;
	return CM_DONE;
}

/* Joins the line, and runs the meetings that this makes possible. */
static enum cm_result arrive(struct cm_queue *q, const struct cm_group_slot *slot)
{
	struct cm_member *member[TXDA_MAX_GROUP];
	struct cm_group *g = slot->group;

	if (!cm_c2c_arrive(&q->member, slot)) {
		cm_queue_fail_innocent(q, g->id);
		return CM_FAULT;
	}
	while (cm_c2c_meeting(g, member))
		hold_meeting(g, member);
	return meeting_result(q);
}

static enum cm_result run_collective(struct cm_queue *q)
{
	const struct txda_pkt_collective *p = &q->pkt.collective;
	const struct cm_group_slot *slot;

	if (q->member.waits_in || q->member.met)
		return meeting_result(q);
	slot = cm_c2c_group(&q->member, p->group);
	if (!slot)
		return cm_fail(&q->why, TXDA_FAULT_COLLECTIVE, 0, p->group);
	if (!cm_collective_is_sound(p, slot->group->size, slot->rank))
		return cm_fail(&q->why, TXDA_FAULT_PACKET, q->stream.va + q->pos, p->hdr.op);
	return arrive(q, slot);
}

/* The same for the current op of a launch. */
static enum cm_result run_collective_op(struct cm_queue *q)
{
	const struct cm_group_slot *slot = cm_c2c_group(&q->member, q->pkt.exec.group);

	/* The group existed when the launch began, but may have been dissolved since. */
	if (!slot || slot->group->size != q->exec.context->program->hdr->group_size)
		return cm_fail(&q->why, TXDA_FAULT_COLLECTIVE, 0, q->pkt.exec.group);
	return arrive(q, slot);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Runs the next slice. */
static enum cm_result run_transfer(struct cm_queue *q)
{
	struct cm_transfer *t = &q->transfer;
	enum cm_result result = CM_DONE;

	/* A transfer that is slowed down is resumed once more after its last slice. */
	if (t->done < t->total) {
		if (q->chip->injected)
			result = cm_inject_before(q);
		if (result != CM_DONE)
			return result;
		result = cm_transfer_step(t, &q->cancel, &q->why);
		if (result == CM_FAULT)
			return result;
		if (q->chip->injected && cm_inject_after_transfer(q) == CM_PARK)
			result = CM_PARK;
	}
	if (result == CM_DONE)
		cm_ready_wrote(q->queues->ready);
	else
		cm_queue_step(q);
	return result;
}

/* Runs the next op. */
static enum cm_result run_exec(struct cm_queue *q)
{
	struct cm_exec *e = &q->exec;
	enum cm_result result = CM_DONE;

	if (!cm_exec_refresh(e))
		return CM_FAULT;
	if (q->member.waits_in || q->member.met) {
		result = meeting_result(q);
	} else {
		cm_exec_prepare(e);
		if (q->chip->injected)
			result = cm_inject_before(q);
		if (result == CM_DONE)
			result = cm_exec_run(e);
		if (result == CM_MEET)
			result = run_collective_op(q);
	}
	if (result != CM_DONE)
		return result;
	/* Fails if the launch uses what was lost; else it has not read it. */
	if (cm_vm_close_lost(q->vm) && !cm_exec_refresh(e))
		return CM_FAULT;
	result = cm_exec_next(e);
	if (result == CM_DONE)
		cm_ready_wrote(q->queues->ready);
	else
		cm_queue_step(q);
	return result;
}

/* Copies the next packet to q->pkt, each byte once, and checks its frame. */
static enum cm_result packet_fetch(struct cm_queue *q)
{
	uint64_t left = q->stream.bytes - q->pos, va = q->stream.va + q->pos;
	const struct packet_rule *rule;
	struct txda_pkt hdr;
	const uint8_t *at;

	if (q->stream_generation != q->vm->generation && !stream_resolve(q))
		return CM_FAULT;
	at = q->stream_ptr + q->pos;
	memcpy(&hdr, at, sizeof(hdr));
	if (hdr.op >= TXDA_PKT_COUNT)
		return cm_fail(&q->why, TXDA_FAULT_PACKET, va, hdr.op);
	rule = &packet_rules[hdr.op];
	if (hdr.bytes < sizeof(hdr) || hdr.bytes % 8 || hdr.bytes > left ||
	    (rule->bytes && hdr.bytes != rule->bytes))
		return cm_fail(&q->why, TXDA_FAULT_PACKET, va, hdr.bytes);
	if ((hdr.flags & ~rule->flags) || (q->class == CM_QUEUE_COPY && !rule->copy_queue))
		return cm_fail(&q->why, TXDA_FAULT_PACKET, va, hdr.op);
	q->pkt.hdr = hdr;
	if (rule->bytes)
		memcpy((uint8_t *)&q->pkt + sizeof(hdr), at + sizeof(hdr),
		       rule->bytes - sizeof(hdr));
	return CM_DONE;
}

static enum cm_result packet_begin(struct cm_queue *q)
{
	uint64_t va = q->stream.va + q->pos;
	enum cm_result result = packet_fetch(q);

	if (result != CM_DONE)
		return result;
	atomic_store_explicit(&q->packet_va, va, memory_order_relaxed);
	switch (q->pkt.hdr.op) {
	case TXDA_PKT_COPY:
	case TXDA_PKT_COPY_2D:
	case TXDA_PKT_FILL:
		result = cm_transfer_begin(&q->transfer, q->queues->pool, q->vm, &q->pkt.hdr,
					   &q->why);
		if (result != CM_AGAIN)
			return result;
		q->busy = CM_BUSY_TRANSFER;
		return run_transfer(q);
	case TXDA_PKT_EXEC:
		result = cm_exec_begin(&q->exec, &q->pkt.exec, va);
		if (result != CM_AGAIN)
			return result;
		q->busy = CM_BUSY_EXEC;
		return run_exec(q);
	case TXDA_PKT_SIGNAL: return run_signal(q);
	case TXDA_PKT_WAIT: return run_wait(q);
	case TXDA_PKT_TIMESTAMP: return run_timestamp(q);
	case TXDA_PKT_ALL_REDUCE:
	case TXDA_PKT_ALL_GATHER: q->busy = CM_BUSY_COLLECTIVE; return run_collective(q);
	default: return CM_DONE;
	}
}

static enum cm_result packet_step(struct cm_queue *q)
{
	switch (q->busy) {
	case CM_BUSY_WAIT: return run_wait(q);
	case CM_BUSY_TRANSFER: return run_transfer(q);
	case CM_BUSY_EXEC: return run_exec(q);
	case CM_BUSY_COLLECTIVE: return run_collective(q);
	default: return packet_begin(q);
	}
}

/*
 * Whether the queue's turn ends with this packet: it took time, or another thread may wait for it.
 */
static bool ends_turn(const struct cm_queue *q)
{
	switch (q->pkt.hdr.op) {
	case TXDA_PKT_NOP:
	case TXDA_PKT_WAIT:
	case TXDA_PKT_TIMESTAMP: return false;
	default: return true;
	}
}

static void turn(struct cm_queue *q)
{
	struct cm_ready *ready = q->queues->ready;

	/* It is about to be freed: what follows a cancelled packet does not run. */
	if (atomic_load_explicit(&q->cancel, memory_order_relaxed)) {
		cm_ready_park(ready, q->slot, UINT64_MAX, q->poll_ns);
		return;
	}
	if (q->resume_ns) {
		if (q->resume_ns == UINT64_MAX || clock_ns() < q->resume_ns) {
			cm_ready_park(ready, q->slot, q->resume_ns, q->poll_ns);
			return;
		}
		q->resume_ns = 0;
	}
	q->poll_ns = 0;
	for (unsigned n = 0; n < PACKETS_PER_TURN; n++) {
		enum cm_result result;

		if (!stream_end_if_done(q))
			return;
		if (!q->in_stream) {
			if (ring_is_empty(q))
				break;
			if (!stream_begin(q))
				return;
			continue;
		}
		result = packet_step(q);
		if (result == CM_PARK)
			cm_ready_park(ready, q->slot, q->resume_ns, q->poll_ns);
		if (result == CM_FAULT)
			cm_queue_fail(q, &q->why);
		if (result != CM_DONE)
			return;
		q->pos += q->pkt.hdr.bytes;
		q->busy = CM_BUSY_NONE;
		cm_queue_step(q);
		if (ends_turn(q))
			break;
	}
	if (!stream_end_if_done(q))
		return;
	if (!q->in_stream && ring_is_empty(q)) {
		cm_ready_deactivate(ready, q->slot);
		/* A stream submitted meanwhile has set the bit before it was cleared. */
		if (!ring_is_empty(q))
			cm_ready_activate(ready, q->slot);
	}
}

bool cm_cp_turn(void *queues)
{
	struct cm_queues *qs = queues;
	bool shared;
	unsigned slot = cm_ready_next(qs->ready, &shared);
	uint64_t from;

	if (slot == CM_NO_SLOT) {
		cm_account(qs->pool, NULL, false);
		return false;
	}
	from = shared ? clock_ns() : 0;
	turn(qs->queue[slot]);
	if (shared)
		cm_ready_charge(qs->ready, slot, clock_ns() - from);
	return true;
}
