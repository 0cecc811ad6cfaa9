// SPDX-License-Identifier: MIT
#include "program.h"
#include "crc32c.h"

#include <stdlib.h>
#include <string.h>

struct loader {
	struct cm_program *p;
	struct txda_fault *fault;
};

/* The program is invalid at @at, a place in its image; @detail: usually the value there. */
static int bad(const struct loader *l, const void *at, uint64_t detail)
{
	l->fault->code = TXDA_FAULT_PROGRAM;
	l->fault->va = l->p->va + (uint64_t)((const uint8_t *)at - l->p->image);
	l->fault->detail = detail;
	return -1;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static uint64_t element_bytes(uint32_t dtype)
{
	switch (dtype) {
	case TXDA_F32:
	case TXDA_I32: return 4;
	case TXDA_BF16:
	case TXDA_F16: return 2;
	case TXDA_I64: return 8;
	case TXDA_U8: return 1;
	default: return 0;
	}
}

static bool is_doubled(const struct txda_tensor *t, bool precise)
{
	return precise && (t->flags & TXDA_TENSOR_ACTIVATION);
}

static uint32_t dtype_of(const struct txda_tensor *t, bool precise)
{
	return is_doubled(t, precise) && t->dtype == TXDA_BF16 && t->layout == TXDA_ROWS ? TXDA_F32
											 : t->dtype;
}

bool cm_tensor_extent(const struct txda_tensor *t, const uint32_t *sym, bool precise,
		      struct cm_extent *ret)
{
	struct cm_extent e = {.dim = {1, 1, 1, 1}, .offset = t->offset};
	uint64_t elements = 1, end;

	for (unsigned i = 0; i < t->ndim; i++) {
		e.dim[i] = t->dim[i].mul;
		if (t->dim[i].sym)
			e.dim[i] *= sym[t->dim[i].sym];
		if (__builtin_mul_overflow(elements, e.dim[i], &elements))
			return false;
	}
	if (is_doubled(t, precise)) {
		if (__builtin_mul_overflow(e.offset, 2, &e.offset))
			return false;
		/* A cache counts bytes of bf16 blocks in its second dimension, in both modes. */
		if (t->layout == TXDA_KV_PAGED && __builtin_mul_overflow(elements, 2, &elements))
			return false;
	}
	if (t->layout == TXDA_TILE32 || t->layout == TXDA_TILE32_GATED) {
		const uint64_t *dim = e.dim + (t->ndim == 3);

		if (__builtin_mul_overflow(txda_tile_panels(t->layout, dim[0]),
					   txda_tile_panel_bytes(t->dtype, dim[1], t->group),
					   &e.bytes) ||
		    (t->ndim == 3 && __builtin_mul_overflow(e.bytes, e.dim[0], &e.bytes)))
			return false;
	} else if (t->layout == TXDA_KV_PAGED) {
		e.bytes = elements;
	} else if (__builtin_mul_overflow(elements, element_bytes(dtype_of(t, precise)),
					  &e.bytes)) {
		return false;
	}
	if (__builtin_add_overflow(e.offset, e.bytes, &end) || end > CM_VA_BYTES)
		return false;
	*ret = e;
	return true;
}

void cm_tensor_describe(const struct txda_tensor *t, uint32_t index, const struct cm_extent *extent,
			bool precise, struct cm_tensor *ret)
{
	*ret = (struct cm_tensor){
		.dim = {extent->dim[0], extent->dim[1], extent->dim[2], extent->dim[3]},
		.bytes = extent->bytes,
		.ndim = t->ndim,
		.dtype = (uint8_t)dtype_of(t, precise),
		.layout = t->layout,
		.group = t->group,
		.index = index,
	};
}

/* ---- the frame ------------------------------------------------------------------------------- */

struct table {
	uint64_t off, bytes;
};

static bool tables_overlap(const struct table *a, const struct table *b)
{
	return a->bytes && b->bytes && a->off < b->off + b->bytes && b->off < a->off + a->bytes;
}

static int check_tables(const struct loader *l)
{
	const struct txda_program *h = l->p->hdr;
	const __u32 *const field[4] = {&h->slots_off, &h->tensors_off, &h->ops_off,
				       &h->strings_off};
	const struct table t[5] = {
		{h->slots_off, (uint64_t)h->n_slots * sizeof(struct txda_slot)},
		{h->tensors_off, (uint64_t)h->n_tensors * sizeof(struct txda_tensor)},
		{h->ops_off, (uint64_t)h->n_ops * sizeof(struct txda_op)},
		{h->strings_off, h->strings_bytes},
		{0, sizeof(*h)},
	};

	for (unsigned i = 0; i < 4; i++) {
		if (t[i].off % 8 || t[i].off > l->p->bytes || t[i].bytes > l->p->bytes - t[i].off)
			return bad(l, field[i], t[i].off);
		for (unsigned j = i + 1; j < 5; j++) {
			if (tables_overlap(&t[i], &t[j]))
				return bad(l, field[i], t[i].off);
		}
	}
	return 0;
}

static int check_header(const struct loader *l)
{
	const struct txda_program *h = l->p->hdr;
	struct txda_program zeroed = *h;
	uint32_t crc;

	if (h->magic != TXDA_PROGRAM_MAGIC)
		return bad(l, &h->magic, h->magic);
	if (h->major != TXDA_ISA_MAJOR)
		return bad(l, &h->major, h->major);
	if (h->minor > TXDA_ISA_MINOR)
		return bad(l, &h->minor, h->minor);
	if (h->bytes != l->p->bytes)
		return bad(l, &h->bytes, h->bytes);
	zeroed.crc32c = 0;
	crc = crc32c(0, &zeroed, sizeof(zeroed));
	crc = crc32c(crc, l->p->image + sizeof(*h), l->p->bytes - sizeof(*h));
	if (h->crc32c != crc)
		return bad(l, &h->crc32c, h->crc32c);
	if (h->n_slots > TXDA_PROGRAM_MAX_SLOTS)
		return bad(l, &h->n_slots, h->n_slots);
	if (!h->group_size || h->group_size > TXDA_MAX_GROUP)
		return bad(l, &h->group_size, h->group_size);
	if (h->rank >= h->group_size)
		return bad(l, &h->rank, h->rank);
	for (unsigned i = 0; i < TXDA_SYM_COUNT; i++) {
		if (h->sym_max[i] && (i == TXDA_SYM_NONE || i > TXDA_SYM_N))
			return bad(l, &h->sym_max[i], h->sym_max[i]);
	}
	for (unsigned i = 0; i < sizeof(h->reserved) / sizeof(*h->reserved); i++) {
		if (h->reserved[i])
			return bad(l, &h->reserved[i], h->reserved[i]);
	}
	if (check_tables(l))
		return -1;
	if (!h->strings_bytes || l->p->image[h->strings_off + h->strings_bytes - 1])
		return bad(l, &h->strings_bytes, h->strings_bytes);
	if (h->name >= h->strings_bytes)
		return bad(l, &h->name, h->name);
	return 0;
}

/* ---- records --------------------------------------------------------------------------------- */

static int check_slots(const struct loader *l)
{
	for (uint32_t i = 0; i < l->p->hdr->n_slots; i++) {
		const struct txda_slot *s = &l->p->slot[i];

		if (s->name >= l->p->hdr->strings_bytes)
			return bad(l, &s->name, s->name);
		if (s->kind >= TXDA_SLOT_KIND_COUNT)
			return bad(l, &s->kind, s->kind);
		if (s->bytes > CM_VA_BYTES)
			return bad(l, &s->bytes, s->bytes);
	}
	return 0;
}

/* Type, layout and dimensions must go together. */
static int check_layout(const struct loader *l, const struct txda_tensor *t)
{
	bool tile = t->layout == TXDA_TILE32 || t->layout == TXDA_TILE32_GATED;
	bool quantised = txda_is_grouped(t->dtype);

	/* A power of two from 32 to 256, or none. */
	if (quantised ? t->group < 32 || t->group > 256 || (t->group & (t->group - 1)) : t->group)
		return bad(l, &t->group, t->group);
	if (tile) {
		if (!txda_tile_panel_bytes(t->dtype, 1, t->group))
			return bad(l, &t->dtype, t->dtype);
		if (t->flags)
			return bad(l, &t->flags, t->flags);
		if ((t->ndim != 2 && t->ndim != 3) || t->dim[0].sym || t->dim[1].sym ||
		    t->dim[2].sym)
			return bad(l, &t->ndim, t->ndim);
		if (t->layout == TXDA_TILE32_GATED && t->dim[t->ndim - 2].mul % 2)
			return bad(l, &t->dim[0].mul, t->dim[0].mul);
	} else if (quantised) {
		return bad(l, &t->dtype, t->dtype);
	} else if (t->layout == TXDA_KV_PAGED) {
		if (t->ndim != 2 || t->dim[1].sym)
			return bad(l, &t->ndim, t->ndim);
		if (l->p->slot[t->slot].kind != TXDA_SLOT_KV)
			return bad(l, &t->slot, t->slot);
	}
	return 0;
}

static int check_tensor(const struct loader *l, const struct txda_tensor *t)
{
	const struct txda_program *h = l->p->hdr;
	const struct txda_slot *slot;
	struct cm_extent e, precise;
	uint64_t limit;

	if (t->name >= h->strings_bytes)
		return bad(l, &t->name, t->name);
	if (t->slot >= h->n_slots)
		return bad(l, &t->slot, t->slot);
	if (t->dtype >= TXDA_DTYPE_COUNT)
		return bad(l, &t->dtype, t->dtype);
	if (t->layout >= TXDA_LAYOUT_COUNT)
		return bad(l, &t->layout, t->layout);
	if (t->offset % 64)
		return bad(l, &t->offset, t->offset);
	if (!t->ndim || t->ndim > 4)
		return bad(l, &t->ndim, t->ndim);
	if (t->flags & ~TXDA_TENSOR_ACTIVATION)
		return bad(l, &t->flags, t->flags);
	for (unsigned i = 0; i < 3; i++) {
		if (t->reserved[i])
			return bad(l, &t->reserved[i], t->reserved[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		const struct txda_dim *d = &t->dim[i];

		if (i < t->ndim ? d->sym > TXDA_SYM_N : d->sym != 0)
			return bad(l, &d->sym, d->sym);
		if (i < t->ndim ? !d->mul : d->mul)
			return bad(l, &d->mul, d->mul);
	}
	if (check_layout(l, t))
		return -1;
	/* At the limits it must fit its slot, so that no launch within the limits can overflow. */
	slot = &l->p->slot[t->slot];
	limit = slot->bytes;
	if (slot->kind == TXDA_SLOT_KV &&
	    __builtin_mul_overflow(limit, h->sym_max[TXDA_SYM_N], &limit))
		return bad(l, &slot->bytes, slot->bytes);
	if (!cm_tensor_extent(t, h->sym_max, false, &e) ||
	    !cm_tensor_extent(t, h->sym_max, true, &precise) || e.offset + e.bytes > limit)
		return bad(l, &t->offset, t->offset);
	return 0;
}

static int check_tensors(const struct loader *l)
{
	uint32_t n = l->p->hdr->n_tensors;

	l->p->symbolic = malloc((n ? n : 1) * sizeof(*l->p->symbolic));
	if (!l->p->symbolic)
		return bad(l, &l->p->hdr->n_tensors, n);
	for (uint32_t i = 0; i < n; i++) {
		const struct txda_tensor *t = &l->p->tensor[i];

		if (check_tensor(l, t)) {
			l->fault->tensor = i;
			return -1;
		}
		if (t->dim[0].sym || t->dim[1].sym || t->dim[2].sym || t->dim[3].sym)
			l->p->symbolic[l->p->n_symbolic++] = i;
	}
	return 0;
}

/* Requirements of the instruction set on each op, for all launches. */
struct op_rule {
	uint8_t param_words; /* of txda_op.raw that it uses */
	uint8_t in, out;     /* tensors that must be given, a bit each */
};

static const struct op_rule op_rules[TXDA_OP_COUNT] = {
	[TXDA_OP_EMBED] = {sizeof(struct txda_op_embed) / 4, 3, 1},
	[TXDA_OP_RMSNORM] = {sizeof(struct txda_op_rmsnorm) / 4, 3, 1},
	[TXDA_OP_LINEAR] = {sizeof(struct txda_op_linear) / 4, 3, 1},
	[TXDA_OP_ROPE_TABLE] = {sizeof(struct txda_op_rope_table) / 4, 3, 1},
	[TXDA_OP_ROPE_KV] = {sizeof(struct txda_op_rope_kv) / 4, 7, 3},
	[TXDA_OP_ATTENTION] = {sizeof(struct txda_op_attention) / 4, 31, 1},
	[TXDA_OP_GATHER_ROWS] = {0, 3, 1},
	[TXDA_OP_TOPK] = {sizeof(struct txda_op_topk) / 4, 1, 7},
	[TXDA_OP_ALL_REDUCE] = {0, 1, 1},
	[TXDA_OP_ALL_GATHER] = {0, 1, 0},
	[TXDA_OP_SILU_MUL] = {sizeof(struct txda_op_silu_mul) / 4, 1, 1},
	[TXDA_OP_ROUTE] = {sizeof(struct txda_op_route) / 4, 1, 3},
	[TXDA_OP_MOE_LINEAR] = {sizeof(struct txda_op_moe_linear) / 4, 3, 1},
	[TXDA_OP_MOE_COMBINE] = {sizeof(struct txda_op_moe_combine) / 4, 7, 1},
	[TXDA_OP_MLA_STORE] = {sizeof(struct txda_op_mla_store) / 4, 31, 3},
	[TXDA_OP_MLA_ATTENTION] = {sizeof(struct txda_op_mla_attention) / 4, 63, 1},
	[TXDA_OP_INDEX_STORE] = {offsetof(struct txda_op_index_store, reserved) / 4, 63, 3},
	[TXDA_OP_INDEX_SELECT] = {offsetof(struct txda_op_index_select, reserved) / 4, 63, 1},
	[TXDA_OP_MLA_SPARSE] = {sizeof(struct txda_op_mla_attention) / 4, 15, 1},
	[TXDA_OP_DELTA_CONV] = {sizeof(struct txda_op_delta_conv) / 4, 31, 3},
	[TXDA_OP_DELTA_RULE] = {sizeof(struct txda_op_delta_rule) / 4, 63, 3},
	[TXDA_OP_GATE] = {sizeof(struct txda_op_gate) / 4, 3, 1},
	[TXDA_OP_LAYERNORM] = {sizeof(struct txda_op_layernorm) / 4, 3, 1},
	[TXDA_OP_INTERPOLATE] = {0, 15, 1},
	[TXDA_OP_SPAN_ATTENTION] = {sizeof(struct txda_op_span_attention) / 4, 3, 1},
	[TXDA_OP_MERGE_ROWS] = {sizeof(struct txda_op_merge_rows) / 4, 7, 1},
};

/*
 * Whether tensor @index may be operand @place of an op that has @n of them; those in @required, a
 * bit each, must be given.
 */
static bool operand_fits(const struct loader *l, uint32_t index, unsigned place, unsigned n,
			 uint8_t required)
{
	if (index == TXDA_NONE)
		return !(required >> place & 1);
	return place < n && index < l->p->hdr->n_tensors;
}

static int check_op(const struct loader *l, const struct txda_op *op)
{
	const struct txda_program *h = l->p->hdr;
	const struct cm_op_impl *impl = op->op < TXDA_OP_COUNT ? cm_op_impl(op->op) : NULL;
	const struct op_rule *rule;

	if (!impl)
		return bad(l, &op->op, op->op);
	rule = &op_rules[op->op];
	l->fault->opcode = op->op;
	if (op->flags)
		return bad(l, &op->flags, op->flags);
	if (op->label >= h->strings_bytes)
		return bad(l, &op->label, op->label);
	if (op->reserved)
		return bad(l, &op->reserved, op->reserved);
	for (unsigned i = 0; i < 6; i++) {
		if (!operand_fits(l, op->in[i], i, impl->n_in, rule->in))
			return bad(l, &op->in[i], op->in[i]);
	}
	for (unsigned i = 0; i < 3; i++) {
		const struct txda_tensor *t;

		if (!operand_fits(l, op->out[i], i, impl->n_out, rule->out))
			return bad(l, &op->out[i], op->out[i]);
		if (op->out[i] == TXDA_NONE)
			continue;
		t = &l->p->tensor[op->out[i]];
		if (l->p->slot[t->slot].kind == TXDA_SLOT_WEIGHTS) {
			l->fault->tensor = op->out[i];
			return bad(l, &op->out[i], op->out[i]);
		}
		l->p->written |= 1ull << t->slot;
	}
	for (unsigned i = rule->param_words; i < sizeof(op->raw) / sizeof(*op->raw); i++) {
		if (op->raw[i])
			return bad(l, &op->raw[i], op->raw[i]);
	}
	return 0;
}

static int check_ops(const struct loader *l)
{
	for (uint32_t i = 0; i < l->p->hdr->n_ops; i++) {
		l->fault->op = i;
		l->fault->opcode = TXDA_NONE;
		if (check_op(l, &l->p->op[i]))
			return -1;
	}
	l->fault->op = TXDA_NONE;
	l->fault->opcode = TXDA_NONE;
	return 0;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* The requirements of the ops at the limits of the symbols. */
static void sum_need(const struct cm_program *p, unsigned cores, bool precise,
		     struct cm_tensor *tensor, struct cm_op_need *need)
{
	struct cm_launch l = {
		.precise = precise,
		.cores = cores,
		.group_size = p->hdr->group_size,
		.rank = p->hdr->rank,
	};

	for (uint32_t i = 0; i < p->hdr->n_tensors; i++) {
		struct cm_extent e;

		cm_tensor_extent(&p->tensor[i], p->hdr->sym_max, precise, &e);
		cm_tensor_describe(&p->tensor[i], i, &e, precise, &tensor[i]);
	}
	for (unsigned i = 0; i < l.group_size; i++)
		l.peer[i] = &l;
	for (uint32_t i = 0; i < p->hdr->n_ops; i++) {
		const struct cm_op_impl *impl = cm_op_impl(p->op[i].op);
		struct cm_op_need n = {0};

		l.op = &p->op[i];
		for (unsigned j = 0; j < 6; j++)
			l.in[j] = l.op->in[j] == TXDA_NONE ? NULL : &tensor[l.op->in[j]];
		for (unsigned j = 0; j < 3; j++)
			l.out[j] = l.op->out[j] == TXDA_NONE ? NULL : &tensor[l.op->out[j]];
		if (impl->need)
			impl->need(&l, &n);
		/* Ops run one after another, so they share. */
		if (n.shared_bytes > need->shared_bytes)
			need->shared_bytes = n.shared_bytes;
		if (n.core_bytes > need->core_bytes)
			need->core_bytes = n.core_bytes;
	}
}

static int provide_scratch(const struct loader *l, struct cm_pool *pool)
{
	const struct txda_program *h = l->p->hdr;
	struct cm_tensor *tensor = calloc(h->n_tensors ? h->n_tensors : 1, sizeof(*tensor));
	struct cm_op_need need = {0};

	if (!tensor)
		return bad(l, &h->n_tensors, h->n_tensors);
	sum_need(l->p, pool->cores, false, tensor, &need);
	sum_need(l->p, pool->cores, true, tensor, &need);
	free(tensor);
	l->p->need = (struct cm_scratch_need){need.shared_bytes, need.core_bytes, NULL};
	if (cm_pool_scratch(pool, &l->p->need))
		return bad(l, h->sym_max, need.shared_bytes);
	l->p->pool = pool;
	return 0;
}

/* ---- loading and the cache ------------------------------------------------------------------- */

void cm_program_put(struct cm_program *p)
{
	if (--p->refs)
		return;
	if (p->pool)
		cm_pool_scratch_end(p->pool, &p->need);
	free(p->image);
	free(p->symbolic);
	free(p);
}

static int load(const struct loader *l, struct cm_pool *pool, const void *src)
{
	struct cm_program *p = l->p;

	/* A private copy: it cannot change after the checks. */
	memcpy(p->image, src, p->bytes);
	p->hdr = (const void *)p->image;
	if (check_header(l))
		return -1;
	p->slot = (const void *)(p->image + p->hdr->slots_off);
	p->tensor = (const void *)(p->image + p->hdr->tensors_off);
	p->op = (const void *)(p->image + p->hdr->ops_off);
	p->strings = (const char *)(p->image + p->hdr->strings_off);
	if (check_slots(l) || check_tensors(l) || check_ops(l))
		return -1;
	return provide_scratch(l, pool);
}

static int program_new(struct cm_vm *vm, struct cm_pool *pool, uint64_t va, uint64_t bytes,
		       struct cm_program **ret, struct txda_fault *fault)
{
	struct cm_program *p;
	uint64_t bad_va = va;
	struct loader l;
	const void *src;

	fault->code = TXDA_FAULT_PROGRAM;
	fault->va = va;
	fault->detail = bytes;
	if (va % 64 || bytes < sizeof(struct txda_program) || bytes > TXDA_PROGRAM_MAX_BYTES)
		return -1;
	src = cm_vm_find(vm, va, bytes, CM_MAP_READ, &bad_va);
	if (!src) {
		fault->code = TXDA_FAULT_PAGE;
		fault->va = bad_va;
		return -1;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -1;
	p->refs = 1;
	p->va = va;
	p->bytes = bytes;
	p->image = malloc(bytes);
	l = (struct loader){p, fault};
	if (!p->image || load(&l, pool, src)) {
		cm_program_put(p);
		return -1;
	}
	*ret = p;
	return 0;
}

static void cache_remove(struct cm_vm *vm, struct cm_program **link)
{
	struct cm_program *p = *link;

	*link = p->next;
	vm->program_bytes -= p->bytes;
	p->dropped = true;
	cm_program_put(p);
}

/* Drops the least recently used programs. */
static void cache_trim(struct cm_vm *vm)
{
	while (vm->program_bytes > CM_PROGRAM_CACHE_BYTES && vm->programs->next) {
		struct cm_program **link = &vm->programs;

		while ((*link)->next)
			link = &(*link)->next;
		cache_remove(vm, link);
	}
}

int cm_program_get(struct cm_vm *vm, struct cm_pool *pool, uint64_t va, uint64_t bytes, bool reload,
		   struct cm_program **ret, struct txda_fault *fault)
{
	struct cm_program *p;

	for (struct cm_program **link = &vm->programs; (p = *link); link = &p->next) {
		if (p->va != va || p->bytes != bytes)
			continue;
		if (reload) {
			cache_remove(vm, link);
			break;
		}
		*link = p->next;
		p->next = vm->programs;
		vm->programs = p;
		*ret = p;
		return 0;
	}
	if (program_new(vm, pool, va, bytes, &p, fault))
		return -1;
	p->next = vm->programs;
	vm->programs = p;
	vm->program_bytes += bytes;
	cache_trim(vm);
	*ret = p;
	return 0;
}

void cm_program_drop(struct cm_vm *vm, uint64_t va, uint64_t end)
{
	struct cm_program **link = &vm->programs;

	while (*link) {
		if ((*link)->va < end && va < (*link)->va + (*link)->bytes)
			cache_remove(vm, link);
		else
			link = &(*link)->next;
	}
}
