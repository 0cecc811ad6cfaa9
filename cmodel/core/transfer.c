// SPDX-License-Identifier: MIT
#include "transfer.h"
#include "txda_regs.h"

#include <string.h>

#define SLICE_BYTES (uint64_t) TXDA_PIECE_BYTES
#define SLICE_ROWS  (uint64_t) TXDA_PIECE_ROWS
#define PART_BYTES  (256ull << 10)

struct slice {
	uint8_t *dst;
	const uint8_t *src;
	uint64_t dst_pitch, src_pitch, row_bytes;
	uint64_t from, to; /* of the bytes of all rows, one after another */
	bool fill;
	uint32_t value;
};

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
static uint8_t *find_side(struct cm_vm *vm, uint64_t va, struct side s, unsigned access,
			  uint64_t *ret_bad)
{
	uint8_t *host = NULL;

	*ret_bad = va;
	/* With a pitch of nearly 2^64 the sum would wrap around. */
	if (s.from < CM_VA_BYTES)
		host = cm_vm_find(vm, va + s.from, s.bytes, access, ret_bad);
	return host ? host - s.from : NULL;
}

/*
 * The host addresses of a transfer. All of it must be mapped; in a translated space, where a whole
 * one could be more than the host has mappings for, only what [from, to) of its bytes touch.
 */
static bool find_both(const struct cm_transfer *t, uint64_t from, uint64_t to, uint8_t **ret_dst,
		      const uint8_t **ret_src, struct txda_fault *ret)
{
	struct side dst = {0, t->dst_span}, src = {0, t->src_span};
	uint64_t bad = t->dst;

	if (t->vm->translate) {
		dst = side_of(t, t->dst_pitch, from, to);
		src = side_of(t, t->src_pitch, from, to);
	}
	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = t->vm->mmu->evictions;

		*ret_src = NULL;
		*ret_dst = find_side(t->vm, t->dst, dst, CM_MAP_WRITE, &bad);
		if (*ret_dst && !t->fill)
			*ret_src = find_side(t->vm, t->src, src, CM_MAP_READ, &bad);
		if (!*ret_dst || (!t->fill && !*ret_src))
			break;
		if (evictions == t->vm->mmu->evictions)
			return true;
	}
	*ret = cm_fault(TXDA_FAULT_PAGE, bad, t->op);
	return false;
}

static uint64_t slice_bytes(const struct cm_transfer *t)
{
	uint64_t most = SLICE_BYTES;

	/* Rows of a few bytes take as long as much longer ones. */
	if (t->row_bytes < SLICE_BYTES / SLICE_ROWS)
		most = t->row_bytes * SLICE_ROWS;
	return t->total - t->done < most ? t->total - t->done : most;
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

/* Reads the packet into @t; false: it is invalid. */
static bool decode(struct cm_transfer *t, const struct txda_pkt *pkt)
{
	const struct txda_pkt_copy *copy = (const void *)pkt;
	const struct txda_pkt_copy_2d *copy_2d = (const void *)pkt;
	const struct txda_pkt_fill *fill = (const void *)pkt;

	switch (pkt->op) {
	case TXDA_PKT_COPY:
		t->dst = copy->dst;
		t->src = copy->src;
		t->total = t->row_bytes = t->dst_span = t->src_span = copy->bytes;
		return t->dst < t->src ? t->src - t->dst >= t->total : t->dst - t->src >= t->total;
	case TXDA_PKT_COPY_2D:
		t->dst = copy_2d->dst;
		t->src = copy_2d->src;
		t->dst_pitch = copy_2d->dst_pitch;
		t->src_pitch = copy_2d->src_pitch;
		t->row_bytes = copy_2d->row_bytes;
		t->total = copy_2d->rows * t->row_bytes;
		if (!copy_2d->rows || !t->row_bytes)
			return true;
		/* If rows of the destination overlapped, the result would depend on their order. */
		return (copy_2d->rows <= 1 || t->dst_pitch >= t->row_bytes) &&
		       span_of(t->dst_pitch, copy_2d->rows, t->row_bytes, &t->dst_span) &&
		       span_of(t->src_pitch, copy_2d->rows, t->row_bytes, &t->src_span);
	default:
		t->fill = true;
		t->dst = fill->dst;
		t->value = fill->value;
		t->total = t->row_bytes = t->dst_span = fill->bytes;
		return t->dst % 4 == 0 && t->total % 4 == 0 && !fill->reserved;
	}
}

enum cm_result cm_transfer_begin(struct cm_transfer *t, struct cm_pool *pool, struct cm_vm *vm,
				 const struct txda_pkt *pkt, struct txda_fault *ret)
{
	uint8_t *dst;
	const uint8_t *src;

	*t = (struct cm_transfer){.pool = pool, .vm = vm, .op = pkt->op};
	if (!decode(t, pkt))
		return cm_fail(ret, TXDA_FAULT_PACKET, t->dst, pkt->op);
	if (!t->total)
		return CM_DONE;
	return find_both(t, 0, slice_bytes(t), &dst, &src, ret) ? CM_AGAIN : CM_FAULT;
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

		/* Not memcpy: rows of COPY_2D may overlap their source, which must not be undefined
		 * behaviour of this process. */
		if (s->fill)
			fill_words(dst, n, s->value);
		else
			memmove(dst, s->src + row * s->src_pitch + col, n);
		at += n;
		row++;
		col = 0;
	}
}

/* Counts the bytes [from, to) of the transfer on one side as traffic between chips. */
static void count_side(const struct cm_transfer *t, uint64_t va, uint64_t pitch, uint64_t from,
		       uint64_t to, bool write)
{
	/* One range, however many rows. */
	if (t->vm->has_peers && (pitch == t->row_bytes || t->row_bytes == t->total)) {
		cm_vm_count_c2c(t->vm, va + from, to - from, write);
		return;
	}
	while (t->vm->has_peers && from < to) {
		uint64_t col = from % t->row_bytes, n = t->row_bytes - col;

		if (n > to - from)
			n = to - from;
		cm_vm_count_c2c(t->vm, va + from / t->row_bytes * pitch + col, n, write);
		from += n;
	}
}

enum cm_result cm_transfer_step(struct cm_transfer *t, const _Atomic bool *flag,
				struct txda_fault *ret)
{
	const struct cm_cancel cancel = {1, {flag}};
	struct cm_activity *a = &t->vm->chip->activity;
	uint64_t bytes = slice_bytes(t);
	struct slice s = {
		.dst_pitch = t->dst_pitch,
		.src_pitch = t->src_pitch,
		.row_bytes = t->row_bytes,
		.from = t->done,
		.to = t->done + bytes,
		.fill = t->fill,
		.value = t->value,
	};

	/* Nothing is left when an injection has parked the queue after its last slice. */
	if (!bytes)
		return CM_DONE;
	if (!find_both(t, t->done, t->done + bytes, &s.dst, &s.src, ret))
		return CM_FAULT;
	cm_account(t->pool, t->vm->chip, true);
	if (!cm_pool_run(t->pool, slice_part, &s, 0,
			 (unsigned)((bytes + PART_BYTES - 1) / PART_BYTES), &cancel))
		return CM_PARK;
	/* At once: a thread that waits for the copy may read the sensors next. */
	cm_account_flush(t->pool);
	if (cm_vm_close_lost(t->vm) && !find_both(t, t->done, t->done + bytes, &s.dst, &s.src, ret))
		return CM_FAULT;
	t->done += bytes;
	cm_count(&a->bytes_written, bytes);
	count_side(t, t->dst, t->dst_pitch, s.from, s.to, true);
	if (!t->fill) {
		cm_count(&a->bytes_read, bytes);
		count_side(t, t->src, t->src_pitch, s.from, s.to, false);
	}
	return t->done < t->total ? CM_AGAIN : CM_DONE;
}
