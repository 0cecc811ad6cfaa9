// SPDX-License-Identifier: MIT
#include "collective.h"

#include <string.h>

#define PART_ELEMENTS  16384u
#define BLOCK_ELEMENTS 256u

struct work {
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
	const struct work *w = arg;
	uint64_t at = (uint64_t)part * PART_ELEMENTS;
	uint64_t end = w->count - at > PART_ELEMENTS ? at + PART_ELEMENTS : w->count;
	float sum[BLOCK_ELEMENTS];
	uint16_t half[BLOCK_ELEMENTS];

	(void)phase;
	(void)core;
	/* A block is read from all ranks before it is written to any, so that dst may be src. */
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
	const struct work *w = arg;
	unsigned rank = part / w->parts_per_rank;
	uint64_t at = (uint64_t)(part % w->parts_per_rank) * PART_ELEMENTS;
	uint64_t n = w->count - at > PART_ELEMENTS ? PART_ELEMENTS : w->count - at;

	(void)phase;
	(void)core;
	for (unsigned r = 0; r < w->size; r++)
		memmove(w->dst[r] + (rank * w->count + at) * w->element,
			w->src[rank] + at * w->element, n * w->element);
}

bool cm_collective_is_sound(const struct txda_pkt_collective *p, unsigned size, unsigned rank)
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

/* The memory of one member; false: fault. */
static bool resolve(const struct cm_collective *c, unsigned rank, struct work *w)
{
	const struct txda_pkt_collective *p = c->pkt;
	uint64_t bytes = p->count * w->element, bad_va = 0;
	uint64_t dst_bytes = p->hdr.op == TXDA_PKT_ALL_GATHER ? bytes * w->size : bytes;

	w->src[rank] = cm_vm_find(c->vm, p->src, bytes, CM_MAP_READ, &bad_va);
	if (w->src[rank])
		w->dst[rank] = cm_vm_find(c->vm, p->dst, dst_bytes, CM_MAP_WRITE, &bad_va);
	if (w->src[rank] && w->dst[rank])
		return true;
	*c->fault = cm_fault(TXDA_FAULT_PAGE, bad_va, p->hdr.op);
	return false;
}

/*
 * The memory of all members at the same time: resolving one may evict another (cm_mmu.evictions).
 */
static bool resolve_all(const struct cm_collective *member, struct work *w, unsigned *ret_guilty)
{
	const struct cm_mmu *mmu = member[0].vm->mmu;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = mmu->evictions;

		for (unsigned i = 0; i < w->size; i++) {
			if (!resolve(&member[i], i, w)) {
				*ret_guilty = i;
				return false;
			}
		}
		if (evictions == mmu->evictions)
			return true;
	}
	return false;
}

static bool agree(const struct cm_collective *member, unsigned size)
{
	const struct txda_pkt_collective *p = member[0].pkt;

	for (unsigned i = 1; i < size; i++) {
		const struct txda_pkt_collective *other = member[i].pkt;

		if (other->hdr.op != p->hdr.op || other->count != p->count ||
		    other->dtype != p->dtype)
			return false;
	}
	return true;
}

enum cm_result cm_collective_run(struct cm_pool *pool, const struct cm_collective *member,
				 unsigned size, unsigned *ret_guilty)
{
	const struct txda_pkt_collective *p = member[0].pkt;
	bool gather = p->hdr.op == TXDA_PKT_ALL_GATHER;
	unsigned parts = (unsigned)((p->count + PART_ELEMENTS - 1) / PART_ELEMENTS);
	struct work w = {
		.size = size,
		.count = p->count,
		.element = p->dtype == TXDA_F32 ? 4 : 2,
		.parts_per_rank = parts,
	};
	struct cm_cancel cancel = {.n = size};
	bool done;

	for (unsigned i = 0; i < size; i++)
		cancel.flag[i] = member[i].cancel;
	*ret_guilty = size;
	if (!agree(member, size))
		return CM_FAULT;
	if (!p->count)
		return CM_DONE;
	if (!resolve_all(member, &w, ret_guilty))
		return CM_FAULT;
	cm_account(pool, member[0].vm->chip, false);
	done = cm_pool_run(pool, gather ? gather_part : reduce_part, &w, 0,
			   gather ? parts * size : parts, &cancel);
	cm_account_flush(pool);
	if (!done)
		return CM_FAULT;
	for (unsigned i = 0; i < size; i++) {
		struct cm_activity *a = &member[i].vm->chip->activity;

		cm_count(&a->bytes_read, p->count * w.element);
		cm_count(&a->bytes_written, p->count * w.element * (gather ? size : 1));
		for (unsigned r = 0; r < size; r++)
			cm_chip_count_c2c(member[i].vm->chip, member[r].vm->chip,
					  p->count * w.element);
	}
	return CM_DONE;
}
