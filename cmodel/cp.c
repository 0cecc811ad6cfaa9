// SPDX-License-Identifier: MIT
/* The command processor: takes the runnable queues in turn, decodes their packets, runs them. */
#include "internal.h"
#include "c2c.h"
#include "exec.h"
#include "lead.h"

#include <string.h>

#define PACKETS_PER_TURN 64 /* cheap ones; fair to the other queues */

/* A WAIT in a translated space looks at its word so often, at first and at last. */
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
			   TXDA_EXEC_RELOAD | TXDA_EXEC_PRECISE | TXDA_EXEC_PROFILE, false},
	[TXDA_PKT_SIGNAL] = {sizeof(struct txda_pkt_fence), TXDA_SIGNAL_IRQ, true},
	[TXDA_PKT_WAIT] = {sizeof(struct txda_pkt_fence), 0, true},
	[TXDA_PKT_TIMESTAMP] = {sizeof(struct txda_pkt_timestamp), 0, true},
	[TXDA_PKT_ALL_REDUCE] = {sizeof(struct txda_pkt_collective), 0, false},
	[TXDA_PKT_ALL_GATHER] = {sizeof(struct txda_pkt_collective), 0, false},
};

/* ---- which queue is next --------------------------------------------------------------------- */

void cm_cp_activate(struct cm_queue *q)
{
	atomic_fetch_or(&q->machine->active[q->slot / 64], 1ull << q->slot % 64);
}

static void deactivate(struct cm_queue *q)
{
	atomic_fetch_and(&q->machine->active[q->slot / 64], ~(1ull << q->slot % 64));
}

static bool is_parked(const struct cm_queue *q)
{
	return q->machine->parked[q->slot / 64] >> q->slot % 64 & 1;
}

static void unpark(struct cm_queue *q)
{
	struct cm_machine *m = q->machine;

	if (!is_parked(q))
		return;
	m->parked[q->slot / 64] &= ~(1ull << q->slot % 64);
	atomic_store(&m->n_parked, atomic_load(&m->n_parked) - 1);
}

/* @ns 0: not needed. */
static void set_timer(struct cm_machine *m, uint64_t ns)
{
	uint64_t timer = atomic_load(&m->timer_ns);

	if (ns && (!timer || ns < timer))
		atomic_store(&m->timer_ns, ns);
}

static void park(struct cm_queue *q)
{
	struct cm_machine *m = q->machine;

	if (!is_parked(q)) {
		m->parked[q->slot / 64] |= 1ull << q->slot % 64;
		atomic_store(&m->n_parked, atomic_load(&m->n_parked) + 1);
	}
	set_timer(m, q->resume_ns == UINT64_MAX ? 0 : q->resume_ns);
	set_timer(m, q->poll_ns);
	deactivate(q);
}

void cm_cp_forget(struct cm_queue *q)
{
	unpark(q);
	deactivate(q);
}

void cm_cp_wrote(struct cm_machine *m)
{
	/* Giving up the lead orders this for whoever leads next. */
	if (atomic_load_explicit(&m->n_parked, memory_order_relaxed))
		atomic_store_explicit(&m->repoll, 1, memory_order_relaxed);
}

/* Has another look at all queues that wait; those that still do park again and set the timer anew.
 */
static void unpark_all(struct cm_machine *m)
{
	/* An exchange, so that what a cm_kick() was about is seen. */
	atomic_exchange(&m->repoll, 0);
	atomic_store(&m->timer_ns, 0);
	if (!atomic_load(&m->n_parked))
		return;
	for (unsigned i = 0; i < CM_QUEUE_WORDS; i++) {
		if (m->parked[i])
			atomic_fetch_or(&m->active[i], m->parked[i]);
		m->parked[i] = 0;
	}
	atomic_store(&m->n_parked, 0);
}

static struct cm_queue *next_queue(struct cm_machine *m)
{
	unsigned word = m->next_slot / 64, bit = m->next_slot % 64;

	/* The first word twice: its upper bits at the start, its lower ones at the end. */
	for (unsigned i = 0; i <= CM_QUEUE_WORDS; i++) {
		uint64_t bits = atomic_load(&m->active[word]);

		if (i == 0)
			bits &= ~0ull << bit;
		if (bits) {
			unsigned slot = word * 64 + (unsigned)__builtin_ctzll(bits);

			m->next_slot = (slot + 1) % CM_MAX_QUEUES;
			return m->queue[slot];
		}
		word = (word + 1) % CM_QUEUE_WORDS;
	}
	return NULL;
}

/* The next one among those of a priority, each priority going round on its own. */
static struct cm_queue *next_of(struct cm_machine *m, enum cm_queue_priority priority)
{
	unsigned from = m->ranked_next[priority], word = from / 64;

	for (unsigned i = 0; i <= CM_QUEUE_WORDS; i++) {
		uint64_t bits = atomic_load(&m->active[word]);

		if (priority == CM_PRIORITY_NORMAL)
			bits &= ~(m->ranked[CM_PRIORITY_LOW][word] |
				  m->ranked[CM_PRIORITY_HIGH][word]);
		else
			bits &= m->ranked[priority][word];
		if (i == 0)
			bits &= ~0ull << from % 64;
		if (bits) {
			unsigned slot = word * 64 + (unsigned)__builtin_ctzll(bits);

			m->ranked_next[priority] = (slot + 1) % CM_MAX_QUEUES;
			return m->queue[slot];
		}
		word = (word + 1) % CM_QUEUE_WORDS;
	}
	return NULL;
}

/* Likewise where priorities differ. */
static struct cm_queue *next_ranked(struct cm_machine *m)
{
	static const enum cm_queue_priority falling[] = {CM_PRIORITY_HIGH, CM_PRIORITY_NORMAL,
							 CM_PRIORITY_LOW};
	unsigned turn = m->ranked_turn++ % 8;
	struct cm_queue *q = NULL;

	if (turn == 3)
		q = next_of(m, CM_PRIORITY_NORMAL);
	else if (turn == 7)
		q = next_of(m, CM_PRIORITY_LOW);
	for (unsigned i = 0; !q && i < CM_PRIORITIES; i++)
		q = next_of(m, falling[i]);
	return q;
}

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

/* Tells the embedder; false: the queue has faulted. */
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

/* ---- packets --------------------------------------------------------------------------------- */

/* Copies the next packet to q->pkt, each byte once, and checks its frame. */
static bool packet_fetch(struct cm_queue *q)
{
	uint64_t left = q->stream.bytes - q->pos;
	const struct packet_rule *rule;
	struct txda_pkt hdr;
	const uint8_t *at;

	if (q->stream_generation != q->vm->generation && !stream_resolve(q))
		return false;
	at = q->stream_ptr + q->pos;
	memcpy(&hdr, at, sizeof(hdr));
	if (hdr.op >= TXDA_PKT_COUNT) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, q->stream.va + q->pos, hdr.op);
		return false;
	}
	rule = &packet_rules[hdr.op];
	if (hdr.bytes < sizeof(hdr) || hdr.bytes % 8 || hdr.bytes > left ||
	    (rule->bytes && hdr.bytes != rule->bytes)) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, q->stream.va + q->pos, hdr.bytes);
		return false;
	}
	if ((hdr.flags & ~rule->flags) || (q->class == CM_QUEUE_COPY && !rule->copy_queue)) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, q->stream.va + q->pos, hdr.op);
		return false;
	}
	q->pkt.hdr = hdr;
	if (rule->bytes)
		memcpy((uint8_t *)&q->pkt + sizeof(hdr), at + sizeof(hdr),
		       rule->bytes - sizeof(hdr));
	return true;
}

/* The 64-bit word of a fence or timestamp packet; NULL: the queue has faulted. */
static uint64_t *word_at(struct cm_queue *q, uint64_t va, unsigned access)
{
	uint64_t *word, bad = 0;

	if (va % 8) {
		cm_queue_fail_with(q, TXDA_FAULT_PACKET, va, q->pkt.hdr.op);
		return NULL;
	}
	word = cm_vm_find(q->vm, va, sizeof(*word), access, &bad);
	if (!word)
		cm_queue_fail_with(q, TXDA_FAULT_PAGE, bad, 0);
	return word;
}

static enum cm_result run_signal(struct cm_queue *q)
{
	const struct txda_pkt_fence *p = &q->pkt.fence;
	uint64_t *word = word_at(q, p->va, CM_MAP_WRITE);

	if (!word)
		return CM_FAULT;
	/* Ordered before the look for sleepers; a sleeper counts itself, then looks at the word. */
	__atomic_store_n(word, p->value, __ATOMIC_SEQ_CST);
	cm_cp_wrote(q->machine);
	if ((p->hdr.flags & TXDA_SIGNAL_IRQ) && q->ops.signalled)
		q->ops.signalled(q->arg, p->va, p->value);
	cm_lead_wake_waiters(q->machine);
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
		/* The host may write the word and has no way to tell: cm_kick() is for embedders.
		 */
		q->poll_step_ns = q->busy != CM_BUSY_WAIT ? POLL_MIN_NS : q->poll_step_ns * 2;
		if (q->poll_step_ns > POLL_MAX_NS)
			q->poll_step_ns = POLL_MAX_NS;
		q->poll_ns = cm_now_ns() + q->poll_step_ns;
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
	cm_cp_wrote(q->machine);
	return CM_DONE;
}

static enum cm_result packet_begin(struct cm_queue *q)
{
	enum cm_result result;

	if (!packet_fetch(q))
		return CM_FAULT;
	atomic_store_explicit(&q->packet_va, q->stream.va + q->pos, memory_order_relaxed);
	switch (q->pkt.hdr.op) {
	case TXDA_PKT_COPY:
	case TXDA_PKT_COPY_2D:
	case TXDA_PKT_FILL:
		result = cm_transfer_begin(q);
		if (result == CM_AGAIN) {
			q->busy = CM_BUSY_TRANSFER;
			result = cm_transfer_step(q);
		}
		return result;
	case TXDA_PKT_EXEC:
		result = cm_exec_begin(q);
		if (result == CM_AGAIN) {
			q->busy = CM_BUSY_EXEC;
			result = cm_exec_step(q);
		}
		return result;
	case TXDA_PKT_SIGNAL: return run_signal(q);
	case TXDA_PKT_WAIT: return run_wait(q);
	case TXDA_PKT_TIMESTAMP: return run_timestamp(q);
	case TXDA_PKT_ALL_REDUCE:
	case TXDA_PKT_ALL_GATHER: q->busy = CM_BUSY_COLLECTIVE; return cm_c2c_packet(q);
	default: return CM_DONE;
	}
}

static enum cm_result packet_step(struct cm_queue *q)
{
	switch (q->busy) {
	case CM_BUSY_WAIT: return run_wait(q);
	case CM_BUSY_TRANSFER: return cm_transfer_step(q);
	case CM_BUSY_EXEC: return cm_exec_step(q);
	case CM_BUSY_COLLECTIVE: return cm_c2c_packet(q);
	default: return packet_begin(q);
	}
}

/* Whether the queue's turn ends with this packet: it took time, or somebody may wait for it. */
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
	if (q->resume_ns) {
		if (q->resume_ns == UINT64_MAX || cm_now_ns() < q->resume_ns) {
			park(q);
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
			park(q);
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
		deactivate(q);
		/* A stream that came in between has set the bit before it was cleared. */
		if (!ring_is_empty(q))
			cm_cp_activate(q);
	}
}

bool cm_cp_turn(struct cm_machine *m)
{
	uint64_t timer = atomic_load_explicit(&m->timer_ns, memory_order_relaxed);
	struct cm_queue *q;

	if (atomic_load_explicit(&m->repoll, memory_order_relaxed) ||
	    (timer && cm_now_ns() >= timer))
		unpark_all(m);
	q = m->n_ranked ? next_ranked(m) : next_queue(m);
	if (!q) {
		cm_account(m, NULL, false);
		return false;
	}
	unpark(q);
	turn(q);
	return true;
}
