// SPDX-License-Identifier: MIT
#include "exec.h"

#include <stdlib.h>
#include <string.h>

#define OPS_PER_FLUSH 16 /* ops between reads of the clock */

static bool fail(struct cm_exec *e, uint32_t code, uint64_t va, uint64_t detail)
{
	*e->fault = cm_fault(code, va, detail);
	return false;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void context_free(struct cm_context *ctx)
{
	cm_program_put(ctx->program);
	free(ctx);
}

void cm_exec_fini(struct cm_exec *e)
{
	while (e->contexts) {
		struct cm_context *ctx = e->contexts;

		e->contexts = ctx->next;
		context_free(ctx);
	}
	e->context = NULL;
}

/*
 * Finds or creates the program's context and moves it to the front; frees those not needed any
 * more.
 */
static struct cm_context *context_get(struct cm_exec *e, struct cm_program *p)
{
	struct cm_context *found = NULL, **link = &e->contexts;
	unsigned others = 0;

	/* The common case: the same program again. */
	if (*link && (*link)->program == p)
		return *link;
	while (*link) {
		struct cm_context *ctx = *link;

		if (ctx->program == p) {
			*link = ctx->next;
			found = ctx;
		} else if (ctx->program->dropped || ++others >= CM_MAX_CONTEXTS) {
			*link = ctx->next;
			context_free(ctx);
		} else {
			link = &ctx->next;
		}
	}
	if (!found) {
		found = calloc(1, sizeof(*found) + p->hdr->n_tensors * sizeof(*found->tensor));
		if (!found)
			return NULL;
		found->program = p;
		p->refs++;
		found->launch.cores = e->pool->cores;
		found->launch.fault = &found->fault;
	}
	found->next = e->contexts;
	e->contexts = found;
	return found;
}

static void set_scratch(const struct cm_pool *pool, struct cm_context *ctx)
{
	struct cm_launch *l = &ctx->launch;

	l->shared = pool->shared.ptr;
	l->shared_bytes = pool->shared.bytes;
	l->core_bytes = pool->core[0].bytes;
	l->core = pool->core_ptr;
	ctx->scratch_generation = pool->scratch_generation;
}

/* ---- resolving ------------------------------------------------------------------------------- */

/* Address of tensors without elements. */
static _Alignas(64) uint8_t nothing[64];

static bool resolve_profile(struct cm_exec *e, struct cm_context *ctx);

/* The host addresses of the bindings; false: fault. */
static bool resolve_bindings_once(struct cm_exec *e, struct cm_context *ctx)
{
	for (uint32_t i = 0; i < ctx->program->hdr->n_slots; i++) {
		const struct txda_binding *b = &ctx->binding[i];
		unsigned access = CM_MAP_READ;
		uint64_t bad_va = 0;

		ctx->base[i] = NULL;
		if (!b->bytes)
			continue;
		if (b->va % 64)
			return fail(e, TXDA_FAULT_BINDING, b->va, i);
		if (ctx->program->written >> i & 1)
			access |= CM_MAP_WRITE;
		ctx->base[i] = cm_vm_find(e->vm, b->va, b->bytes, access, &bad_va);
		if (!ctx->base[i])
			return fail(e, TXDA_FAULT_PAGE, bad_va, i);
	}
	return true;
}

/*
 * The same, all at the same time: in a translated space the last one may have evicted the first.
 * @refresh: also the program and the profile of the launch in progress.
 */
static bool resolve_bindings(struct cm_exec *e, struct cm_context *ctx, bool refresh)
{
	const struct cm_program *p = ctx->program;
	uint64_t bad_va = p->va;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t generation = e->vm->generation;

		/* A launch fails if its program is unmapped, although the chip has a copy. */
		if (refresh && !cm_vm_find(e->vm, p->va, p->bytes, CM_MAP_READ, &bad_va))
			return fail(e, TXDA_FAULT_PAGE, bad_va, 0);
		if (!resolve_bindings_once(e, ctx) || (refresh && !resolve_profile(e, ctx)))
			return false;
		if (generation == e->vm->generation)
			return true;
	}
	return fail(e, TXDA_FAULT_PAGE, bad_va, 0);
}

/* Shape and address of one tensor for this launch; false: fault. */
static bool resolve_tensor(struct cm_exec *e, struct cm_context *ctx, uint32_t index)
{
	const struct txda_tensor *t = &ctx->program->tensor[index];
	const struct txda_binding *b = &ctx->binding[t->slot];
	struct cm_tensor *out = &ctx->tensor[index];
	struct cm_extent x;

	if (!cm_tensor_extent(t, ctx->sym, ctx->precise, &x) ||
	    (x.bytes && x.offset + x.bytes > b->bytes)) {
		fail(e, TXDA_FAULT_BINDING, b->va, t->slot);
		e->fault->tensor = index;
		return false;
	}
	cm_tensor_describe(t, index, &x, ctx->precise, out);
	/* A tensor without elements needs no binding. */
	out->ptr = x.bytes ? ctx->base[t->slot] + x.offset : nothing;
	out->va = b->va + x.offset;
	return true;
}

static bool resolve_profile(struct cm_exec *e, struct cm_context *ctx)
{
	const struct txda_pkt_exec *p = e->packet;
	uint64_t bytes = (uint64_t)ctx->program->hdr->n_ops * sizeof(struct txda_op_time),
		 bad_va = 0;

	ctx->profile = NULL;
	if (!(p->hdr.flags & TXDA_EXEC_PROFILE) || !bytes)
		return true;
	ctx->profile = cm_vm_find(e->vm, p->profile_va, bytes, CM_MAP_WRITE, &bad_va);
	if (ctx->profile)
		return true;
	return fail(e, TXDA_FAULT_PAGE, bad_va, 0);
}

/* Resolves the context for these bindings and symbols, as far as they differ from the last ones. */
static bool resolve(struct cm_exec *e, struct cm_context *ctx, const struct txda_binding *binding,
		    const uint32_t *sym, bool precise)
{
	const struct cm_program *p = ctx->program;
	size_t binding_bytes = p->hdr->n_slots * sizeof(*binding);
	bool same = ctx->valid && ctx->vm_generation == e->vm->generation &&
		    ctx->precise == precise && !memcmp(ctx->binding, binding, binding_bytes);

	if (same && !memcmp(ctx->sym, sym, sizeof(ctx->sym)))
		return true;
	ctx->valid = false;
	memcpy(ctx->sym, sym, sizeof(ctx->sym));
	if (same) {
		for (uint32_t i = 0; i < p->n_symbolic; i++) {
			if (!resolve_tensor(e, ctx, p->symbolic[i]))
				return false;
		}
	} else {
		memcpy(ctx->binding, binding, binding_bytes);
		ctx->precise = ctx->launch.precise = precise;
		if (!resolve_bindings(e, ctx, false))
			return false;
		for (uint32_t i = 0; i < p->hdr->n_tensors; i++) {
			if (!resolve_tensor(e, ctx, i))
				return false;
		}
		ctx->vm_generation = e->vm->generation;
	}
	ctx->valid = true;
	return true;
}

bool cm_exec_refresh(struct cm_exec *e)
{
	struct cm_context *ctx = e->context;

	/*
	 * Also for a member that waits for its collective: a program loaded meanwhile may have
	 * moved the scratch.
	 */
	if (ctx->scratch_generation != e->pool->scratch_generation)
		set_scratch(e->pool, ctx);
	if (ctx->vm_generation == e->vm->generation)
		return true;
	ctx->valid = false;
	/* Tensors keep their place in the address space, so their addresses stay right. */
	if (!resolve_bindings(e, ctx, true))
		return false;
	ctx->vm_generation = e->vm->generation;
	ctx->valid = true;
	return true;
}

/* ---- launching ------------------------------------------------------------------------------- */

static bool check_packet(struct cm_exec *e, uint64_t packet_va)
{
	const struct txda_pkt_exec *p = e->packet;
	bool profile = p->hdr.flags & TXDA_EXEC_PROFILE, part = p->hdr.flags & TXDA_EXEC_PART;

	if (p->reserved || part != !!p->n_ops || (!part && p->first_op) || p->bindings_va % 8 ||
	    p->profile_va % 8 || profile != !!p->profile_va)
		return fail(e, TXDA_FAULT_PACKET, packet_va, p->hdr.op);
	return true;
}

/* Whether the launch fits the program: bindings, group, symbols. */
static bool check_launch(struct cm_exec *e, const struct cm_program *program)
{
	const struct txda_pkt_exec *p = e->packet;
	const struct txda_program *h = program->hdr;
	const struct cm_group_slot *slot = NULL;

	if (p->n_bindings != h->n_slots)
		return fail(e, TXDA_FAULT_BINDING, p->bindings_va, p->n_bindings);
	if (p->group != TXDA_NONE)
		slot = cm_c2c_group(e->member, p->group);
	if (p->group != TXDA_NONE || h->group_size > 1) {
		if (!slot || slot->group->size != h->group_size || slot->rank != h->rank)
			return fail(e, TXDA_FAULT_COLLECTIVE, 0, p->group);
	}
	for (unsigned i = 0; i < TXDA_SYM_COUNT; i++) {
		if (p->sym[i] > h->sym_max[i])
			return fail(e, TXDA_FAULT_SYMBOL, 0, i);
	}
	if (p->first_op > h->n_ops || p->n_ops > h->n_ops - p->first_op)
		return fail(e, TXDA_FAULT_PROGRAM, p->program_va, p->first_op);
	return true;
}

static bool read_bindings(struct cm_exec *e, struct txda_binding *ret, uint32_t n)
{
	uint64_t bad_va = 0;
	const void *src;

	if (!n)
		return true;
	src = cm_vm_find(e->vm, e->packet->bindings_va, n * sizeof(*ret), CM_MAP_READ, &bad_va);
	if (!src)
		return fail(e, TXDA_FAULT_PAGE, bad_va, 0);
	memcpy(ret, src, n * sizeof(*ret));
	return true;
}

enum cm_result cm_exec_begin(struct cm_exec *e, const struct txda_pkt_exec *p, uint64_t packet_va)
{
	struct txda_binding binding[TXDA_PROGRAM_MAX_SLOTS];
	struct cm_program *program;
	struct cm_context *ctx;

	e->context = NULL;
	e->packet = p;
	/* First of all: whatever fails below, the other members wait for this launch. */
	(void)cm_c2c_group(e->member, p->group);
	if (!check_packet(e, packet_va))
		return CM_FAULT;
	*e->fault = cm_fault(TXDA_FAULT_NONE, 0, 0);
	if (cm_program_get(e->vm, e->pool, p->program_va, p->program_bytes,
			   p->hdr.flags & TXDA_EXEC_RELOAD, &program, e->fault))
		return CM_FAULT;
	if (!check_launch(e, program) || !read_bindings(e, binding, program->hdr->n_slots))
		return CM_FAULT;
	ctx = context_get(e, program);
	if (!ctx)
		return cm_fail(e->fault, TXDA_FAULT_PROGRAM, program->va, program->hdr->n_tensors);
	if (!resolve(e, ctx, binding, p->sym, p->hdr.flags & TXDA_EXEC_PRECISE) ||
	    !resolve_profile(e, ctx))
		return CM_FAULT;
	e->context = ctx;
	e->op = p->first_op;
	e->end = p->n_ops ? p->first_op + p->n_ops : program->hdr->n_ops;
	return e->op < e->end ? CM_AGAIN : CM_DONE;
}

/* ---- ops ------------------------------------------------------------------------------------- */

enum cm_result cm_exec_fail(struct cm_exec *e)
{
	*e->fault = e->context->fault;
	e->fault->op = e->op;
	e->fault->opcode = e->context->launch.op->op;
	return CM_FAULT;
}

static void count_peers(const struct cm_exec *e)
{
	const struct cm_launch *l = &e->context->launch;

	if (!e->vm->has_peers)
		return;
	for (unsigned i = 0; i < 6; i++) {
		if (l->in[i])
			cm_vm_count_c2c(e->vm, l->in[i]->va, l->in[i]->bytes, false);
	}
	for (unsigned i = 0; i < 3; i++) {
		if (l->out[i])
			cm_vm_count_c2c(e->vm, l->out[i]->va, l->out[i]->bytes, true);
	}
}

/* What the ranks of a collective send each other: ALL_GATHER has its result at rank 0 alone. */
static void count_meeting(struct cm_exec *const *rank, unsigned size)
{
	const struct cm_launch *l = &rank[0]->context->launch;
	uint64_t bytes = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	unsigned receivers = l->op->op == TXDA_OP_ALL_GATHER ? 1 : size;

	for (unsigned from = 0; from < size; from++) {
		for (unsigned to = 0; to < receivers; to++)
			cm_chip_count_c2c(rank[from]->vm->chip, rank[to]->vm->chip, bytes);
	}
}

/* Adds the traffic of the launch to the counters. */
static void count(const struct cm_exec *e)
{
	const struct cm_launch *l = &e->context->launch;
	const struct cm_op_impl *impl = cm_op_impl(l->op->op);
	struct cm_activity *a = &e->vm->chip->activity;
	uint64_t read = 0, written = 0;

	if (impl->traffic) {
		impl->traffic(l, &read, &written);
		cm_count(&a->bytes_read, read);
		cm_count(&a->bytes_written, written);
	}
	cm_count(&a->ops, 1);
	count_peers(e);
}

static void run_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_exec *e = arg;

	cm_op_run(&e->context->launch, phase, part, core);
	/* The leader has a part of each long op, and alone it needs no lock for this. */
	if (core == e->pool->lead_core)
		atomic_store_explicit(e->progress,
				      atomic_load_explicit(e->progress, memory_order_relaxed) + 1,
				      memory_order_relaxed);
}

/* Parts have numbers of 32 bits; sequences times heads may be more. */
static int check_parts(const struct cm_launch *l)
{
	for (unsigned i = 0; i < l->phases && i < CM_MAX_PHASES; i++)
		if (l->parts[i] > UINT32_MAX)
			return cm_bad(l, TXDA_FAULT_SHAPE, NULL, 0, l->parts[i]);
	return 0;
}

/* Checks the launch of rank @phase, and plans that of rank 0, which does the work of all. */
static void check_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	struct cm_context *ctx = ((const struct cm_exec *)arg)->context;
	const struct cm_op_impl *impl = cm_op_impl(ctx->launch.op->op);

	(void)part;
	(void)core;
	ctx->sound = !impl->check(&ctx->launch);
	if (ctx->sound && !phase) {
		impl->plan(&ctx->launch);
		ctx->sound = !check_parts(&ctx->launch);
	}
}

/* The launch of each rank. CM_FAULT without *ret_guilty: they were cancelled. */
static enum cm_result check_all(struct cm_exec *const *rank, unsigned n,
				const struct cm_cancel *cancel, unsigned *ret_guilty)
{
	for (unsigned i = 0; i < n; i++) {
		/* A large table of indices takes a while. */
		if (!cm_pool_run(rank[i]->pool, check_part, rank[i], i, 1, cancel))
			return CM_FAULT;
		if (rank[i]->context->sound)
			continue;
		*ret_guilty = i;
		return cm_exec_fail(rank[i]);
	}
	return CM_DONE;
}

/* Runs the launch, which has been checked, on the pool. False: cancelled. */
static bool run_phases(struct cm_exec *e, const struct cm_cancel *cancel)
{
	const struct cm_launch *l = &e->context->launch;
	bool done = true;

	for (unsigned phase = 0; done && phase < l->phases && phase < CM_MAX_PHASES; phase++)
		done = cm_pool_run(e->pool, run_part, e, phase, (unsigned)l->parts[phase], cancel);
	return done;
}

void cm_exec_prepare(struct cm_exec *e)
{
	struct cm_context *ctx = e->context;
	const struct txda_op *op = &ctx->program->op[e->op];
	struct cm_launch *l = &ctx->launch;

	l->op = op;
	for (unsigned i = 0; i < 6; i++)
		l->in[i] = op->in[i] == TXDA_NONE ? NULL : &ctx->tensor[op->in[i]];
	for (unsigned i = 0; i < 3; i++)
		l->out[i] = op->out[i] == TXDA_NONE ? NULL : &ctx->tensor[op->out[i]];
	l->phases = 0;
	ctx->fault = (struct txda_fault){.tensor = TXDA_NONE};
}

enum cm_result cm_exec_run(struct cm_exec *e)
{
	const struct cm_cancel cancel = {1, {e->cancel}};
	struct cm_context *ctx = e->context;
	struct cm_launch *l = &ctx->launch;
	unsigned guilty = 1;

	if (ctx->profile)
		ctx->start_ns = clock_ns();
	cm_account(e->pool, e->vm->chip, false);
	if (e->packet->group != TXDA_NONE &&
	    (l->op->op == TXDA_OP_ALL_REDUCE || l->op->op == TXDA_OP_ALL_GATHER))
		return CM_MEET;
	l->group_size = 1;
	l->rank = 0;
	l->peer[0] = l;
	if (check_all(&e, 1, &cancel, &guilty) != CM_DONE)
		return guilty ? CM_PARK : CM_FAULT;
	if (!run_phases(e, &cancel))
		return CM_PARK;
	count(e);
	return CM_DONE;
}

enum cm_result cm_exec_next(struct cm_exec *e)
{
	struct cm_context *ctx = e->context;

	cm_account(e->pool, e->vm->chip, false);
	if (ctx->profile)
		ctx->profile[e->op] = (struct txda_op_time){ctx->start_ns, clock_ns()};
	e->op++;
	/* The sensors show a long launch while it runs. */
	if (e->op == e->end || e->op % OPS_PER_FLUSH == 0)
		cm_account_flush(e->pool);
	return e->op < e->end ? CM_AGAIN : CM_DONE;
}

/* The tensors of all ranks at the same time: resolving one may evict another (cm_mmu.evictions). */
static bool refresh_all(struct cm_exec *const *rank, unsigned size, unsigned *ret_guilty)
{
	const struct cm_mmu *mmu = rank[0]->vm->mmu;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t evictions = mmu->evictions;

		for (unsigned i = 0; i < size; i++) {
			if (!cm_exec_refresh(rank[i])) {
				*ret_guilty = i;
				return false;
			}
		}
		if (evictions == mmu->evictions)
			return true;
	}
	return false;
}

enum cm_result cm_exec_meet(struct cm_exec *const *rank, unsigned size, unsigned *ret_guilty)
{
	const struct cm_launch *peer[TXDA_MAX_GROUP] = {NULL}, *first = &rank[0]->context->launch;
	struct cm_cancel cancel = {.n = size};

	*ret_guilty = size;
	if (!refresh_all(rank, size, ret_guilty))
		return CM_FAULT;
	for (unsigned i = 0; i < size; i++) {
		peer[i] = &rank[i]->context->launch;
		if (peer[i]->op->op != first->op->op || peer[i]->precise != first->precise)
			return CM_FAULT;
	}
	for (unsigned i = 0; i < size; i++) {
		struct cm_launch *l = &rank[i]->context->launch;

		l->group_size = size;
		l->rank = i;
		memcpy(l->peer, peer, sizeof(l->peer));
		cancel.flag[i] = rank[i]->cancel;
	}
	if (check_all(rank, size, &cancel, ret_guilty) != CM_DONE || !run_phases(rank[0], &cancel))
		return CM_FAULT;
	for (unsigned i = 0; i < size; i++)
		count(rank[i]);
	count_meeting(rank, size);
	return CM_DONE;
}
