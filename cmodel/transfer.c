// SPDX-License-Identifier: MIT
/*
 * COPY, COPY_2D and FILL. A transfer goes in slices, between which other queues have their turn;
 * the cores share a slice in parts.
 */
#include "internal.h"
#include "pool.h"

#include <string.h>

#define SLICE_BYTES (8ull << 20)
#define PART_BYTES  (256ull << 10)

struct slice {
	uint8_t *dst;
	const uint8_t *src;
	uint64_t dst_pitch, src_pitch, row_bytes;
	uint64_t from, to; /* of the bytes of all rows, one after another */
	bool fill;
	uint32_t value;
};

static enum cm_result bad_packet(struct cm_queue *q, uint64_t va)
{
	cm_queue_fail_with(q, TXDA_FAULT_PACKET, va, q->pkt.hdr.op);
	return CM_FAULT;
}

/* A range of bytes that a transfer touches on one side. */
struct side {
	uint64_t from, bytes;
};

/* What the bytes [from, to) of the transfer touch of a side with this pitch. */
static struct side side_of(const struct cm_transfer *t, uint64_t pitch, uint64_t from, uint64_t to)
{
	uint64_t first = from / t->row_bytes, last = (to - 1) / t->row_bytes;

	if (first == last)
		return (struct side){first * pitch + from % t->row_bytes, to - from};
	return (struct side){first * pitch, (last - first) * pitch + t->row_bytes};
}

/* The host address of byte 0 of a side, of which [s.from, s.from + s.bytes) is mapped. */
static uint8_t *find_side(struct cm_queue *q, uint64_t va, struct side s, unsigned access,
			  uint64_t *ret_bad)
{
	uint8_t *host = NULL;

	*ret_bad = va;
	/* A pitch of nearly 2^64 would come back to where it started. */
	if (s.from < CM_VA_BYTES)
		host = cm_vm_find(q->vm, va + s.from, s.bytes, access, ret_bad);
	return host ? host - s.from : NULL;
}

/*
 * The host addresses of a transfer. All of it must be mapped; in a translated space, where a whole
 * one could be more than the host has mappings for, only what [from, to) of its bytes touch.
 */
static bool find_both(struct cm_queue *q, uint64_t from, uint64_t to, uint8_t **ret_dst,
		      const uint8_t **ret_src)
{
	const struct cm_transfer *t = &q->transfer;
	struct side dst = {0, t->dst_span}, src = {0, t->src_span};
	uint64_t bad = t->dst;

	if (q->vm->translate) {
		dst = side_of(t, t->dst_pitch, from, to);
		src = side_of(t, t->src_pitch, from, to);
	}
	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = q->machine->evictions;

		*ret_src = NULL;
		*ret_dst = find_side(q, t->dst, dst, CM_MAP_WRITE, &bad);
		if (*ret_dst && !t->fill)
			*ret_src = find_side(q, t->src, src, CM_MAP_READ, &bad);
		if (!*ret_dst || (!t->fill && !*ret_src))
			break;
		if (evictions == q->machine->evictions)
			return true;
	}
	cm_queue_fail_with(q, TXDA_FAULT_PAGE, bad, q->pkt.hdr.op);
	return false;
}

static uint64_t slice_bytes(const struct cm_transfer *t)
{
	return t->total - t->done < SLICE_BYTES ? t->total - t->done : SLICE_BYTES;
}

/* The bytes from the first row's start to the last row's end; false on overflow. */
static bool span_of(uint64_t pitch, uint64_t rows, uint64_t row_bytes, uint64_t *ret)
{
	uint64_t span;

	if (__builtin_mul_overflow(pitch, rows - 1, &span) ||
	    __builtin_add_overflow(span, row_bytes, &span))
		return false;
	*ret = span;
	return true;
}

enum cm_result cm_transfer_begin(struct cm_queue *q)
{
	struct cm_transfer *t = &q->transfer;
	const union cm_packet *p = &q->pkt;
	uint8_t *dst;
	const uint8_t *src;

	*t = (struct cm_transfer){0};
	switch (p->hdr.op) {
	case TXDA_PKT_COPY:
		t->dst = p->copy.dst;
		t->src = p->copy.src;
		t->total = t->row_bytes = t->dst_span = t->src_span = p->copy.bytes;
		if (t->dst < t->src ? t->src - t->dst < t->total : t->dst - t->src < t->total)
			return bad_packet(q, t->dst);
		break;
	case TXDA_PKT_COPY_2D:
		t->dst = p->copy_2d.dst;
		t->src = p->copy_2d.src;
		t->dst_pitch = p->copy_2d.dst_pitch;
		t->src_pitch = p->copy_2d.src_pitch;
		t->row_bytes = p->copy_2d.row_bytes;
		if (!p->copy_2d.rows || !t->row_bytes)
			return CM_DONE;
		/* Rows of the destination that overlap would make the result a matter of order. */
		if ((p->copy_2d.rows > 1 && t->dst_pitch < t->row_bytes) ||
		    !span_of(t->dst_pitch, p->copy_2d.rows, t->row_bytes, &t->dst_span) ||
		    !span_of(t->src_pitch, p->copy_2d.rows, t->row_bytes, &t->src_span))
			return bad_packet(q, t->dst);
		t->total = p->copy_2d.rows * t->row_bytes;
		break;
	default:
		t->fill = true;
		t->dst = p->fill.dst;
		t->value = p->fill.value;
		t->total = t->row_bytes = t->dst_span = p->fill.bytes;
		if (t->dst % 4 || t->total % 4 || p->fill.reserved)
			return bad_packet(q, t->dst);
		break;
	}
	if (!t->total)
		return CM_DONE;
	return find_both(q, 0, slice_bytes(t), &dst, &src) ? CM_AGAIN : CM_FAULT;
}

static void fill_words(uint8_t *dst, uint64_t bytes, uint32_t value)
{
	uint32_t *word = (uint32_t *)dst;

	for (uint64_t i = 0; i < bytes / 4; i++)
		word[i] = value;
}

static void slice_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	const struct slice *s = arg;
	uint64_t at = s->from + part * PART_BYTES;
	uint64_t end = s->to - at > PART_BYTES ? at + PART_BYTES : s->to;
	uint64_t row = at / s->row_bytes, col = at % s->row_bytes;

	(void)phase;
	(void)core;
	while (at < end) {
		uint64_t n = s->row_bytes - col < end - at ? s->row_bytes - col : end - at;
		uint8_t *dst = s->dst + row * s->dst_pitch + col;

		/* Not memcpy: rows of COPY_2D may overlap their source, and only the client is to
		 * suffer. */
		if (s->fill)
			fill_words(dst, n, s->value);
		else
			memmove(dst, s->src + row * s->src_pitch + col, n);
		at += n;
		row++;
		col = 0;
	}
}

enum cm_result cm_transfer_step(struct cm_queue *q)
{
	struct cm_transfer *t = &q->transfer;
	struct cm_activity *a = &q->chip->activity;
	uint64_t bytes = slice_bytes(t);
	struct slice s;

	/* A slow transfer is resumed once more after its last slice. */
	if (!bytes) {
		cm_cp_wrote(q->machine);
		return CM_DONE;
	}
	if (q->chip->injected) {
		enum cm_result result = cm_inject_before(q, true);

		if (result != CM_DONE)
			return result;
	}
	s = (struct slice){
		.dst_pitch = t->dst_pitch,
		.src_pitch = t->src_pitch,
		.row_bytes = t->row_bytes,
		.from = t->done,
		.to = t->done + bytes,
		.fill = t->fill,
		.value = t->value,
	};
	/* Each time: the memory may have been unmapped between two slices. */
	if (!find_both(q, t->done, t->done + bytes, &s.dst, &s.src))
		return CM_FAULT;
	cm_account(q->machine, q->chip, true);
	cm_pool_run(q->machine, slice_part, &s, 0,
		    (unsigned)((bytes + PART_BYTES - 1) / PART_BYTES), &q->cancel);
	/* Now, not when the pool turns to something else: who waits for the copy may read the
	 * sensors next. */
	cm_account_flush(q->machine);
	t->done += bytes;
	cm_count(&a->bytes_written, bytes);
	if (!t->fill)
		cm_count(&a->bytes_read, bytes);
	if (q->chip->injected && cm_inject_after_transfer(q) == CM_PARK) {
		/* Slowed down: the packet ends when the queue runs again, even if all bytes are
		 * there. */
		cm_queue_step(q);
		return CM_PARK;
	}
	if (t->done < t->total) {
		cm_queue_step(q);
		return CM_AGAIN;
	}
	cm_cp_wrote(q->machine);
	return CM_DONE;
}
