// SPDX-License-Identifier: MIT
#include "exec.h"
#include "c2c.h"
#include "pool.h"
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define OPS_PER_FLUSH 16 /* ops between looks at the clock */

static enum cm_result fail(struct cm_queue *q, uint32_t code, uint64_t va, uint64_t detail)
{
	cm_queue_fail_with(q, code, va, detail);
	return CM_FAULT;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void context_free(struct cm_context *ctx)
{
	cm_program_put(ctx->program);
	free(ctx);
}

void cm_exec_release(struct cm_queue *q)
{
	while (q->contexts) {
		struct cm_context *ctx = q->contexts;

		q->contexts = ctx->next;
		context_free(ctx);
	}
	q->context = NULL;
}

/* Finds or makes the queue's context of the program and puts it first; frees what is not used any
 * more. */
static struct cm_context *context_get(struct cm_queue *q, struct cm_program *p)
{
	struct cm_context *found = NULL, **link = &q->contexts;
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
		found->launch.cores = q->machine->cores;
		found->launch.fault = &found->fault;
	}
	found->next = q->contexts;
	q->contexts = found;
	return found;
}

static void set_scratch(struct cm_machine *m, struct cm_context *ctx)
{
	struct cm_launch *l = &ctx->launch;

	l->shared = m->shared.ptr;
	l->shared_bytes = m->shared.bytes;
	l->core_bytes = m->core[0].bytes;
	for (unsigned i = 0; i < m->cores; i++)
		l->core[i] = m->core[i].ptr;
	ctx->scratch_generation = m->scratch_generation;
}

/* ---- resolving ------------------------------------------------------------------------------- */

/* Where tensors without elements point: they have an address like any other. */
static _Alignas(64) uint8_t nothing[64];

static bool resolve_profile(struct cm_queue *q, struct cm_context *ctx);

/* The host addresses of the bindings; false: the queue has faulted. */
static bool resolve_bindings_once(struct cm_queue *q, struct cm_context *ctx)
{
	for (uint32_t i = 0; i < ctx->program->hdr->n_slots; i++) {
		const struct txda_binding *b = &ctx->binding[i];
		unsigned access = CM_MAP_READ;
		uint64_t bad_va = 0;

		ctx->base[i] = NULL;
		if (!b->bytes)
			continue;
		if (b->va % 64) {
			fail(q, TXDA_FAULT_BINDING, b->va, i);
			return false;
		}
		if (ctx->program->written >> i & 1)
			access |= CM_MAP_WRITE;
		ctx->base[i] = cm_vm_find(q->vm, b->va, b->bytes, access, &bad_va);
		if (!ctx->base[i]) {
			fail(q, TXDA_FAULT_PAGE, bad_va, i);
			return false;
		}
	}
	return true;
}

/*
 * The same, all at one time: in a translated space the last one may have pushed out the first.
 * @refresh: also the program and the profile of the launch that goes on.
 */
static bool resolve_bindings(struct cm_queue *q, struct cm_context *ctx, bool refresh)
{
	const struct cm_program *p = ctx->program;
	uint64_t bad_va = p->va;

	for (unsigned tries = 0; tries < CM_FIND_TRIES; tries++) {
		uint64_t generation = q->vm->generation;

		/* An unmapped program ends even though the chip has a copy. */
		if (refresh && !cm_vm_find(q->vm, p->va, p->bytes, CM_MAP_READ, &bad_va)) {
			fail(q, TXDA_FAULT_PAGE, bad_va, 0);
			return false;
		}
		if (!resolve_bindings_once(q, ctx) || (refresh && !resolve_profile(q, ctx)))
			return false;
		if (generation == q->vm->generation)
			return true;
	}
	fail(q, TXDA_FAULT_PAGE, bad_va, 0);
	return false;
}

/* Shape and address of one tensor for this launch; false: the queue has faulted. */
static bool resolve_tensor(struct cm_queue *q, struct cm_context *ctx, uint32_t index)
{
	const struct txda_tensor *t = &ctx->program->tensor[index];
	const struct txda_binding *b = &ctx->binding[t->slot];
	struct cm_tensor *out = &ctx->tensor[index];
	struct cm_extent e;

	if (cm_tensor_extent(t, ctx->sym, ctx->precise, &e) &&
	    (!e.bytes || e.offset + e.bytes <= b->bytes)) {
		cm_tensor_describe(t, index, &e, ctx->precise, out);
		/* A slot that is not there is no trouble for a tensor that has no elements. */
		out->ptr = e.bytes ? ctx->base[t->slot] + e.offset : nothing;
		out->va = b->va + e.offset;
		return true;
	}
	ctx->fault = (struct txda_fault){
		.code = TXDA_FAULT_BINDING,
		.op = TXDA_NONE,
		.tensor = index,
		.opcode = TXDA_NONE,
		.va = b->va,
		.detail = t->slot,
	};
	cm_queue_fail(q, &ctx->fault);
	return false;
}

static bool resolve_profile(struct cm_queue *q, struct cm_context *ctx)
{
	const struct txda_pkt_exec *p = &q->pkt.exec;
	uint64_t bytes = (uint64_t)ctx->program->hdr->n_ops * sizeof(struct txda_op_time),
		 bad_va = 0;

	ctx->profile = NULL;
	if (!(p->hdr.flags & TXDA_EXEC_PROFILE) || !bytes)
		return true;
	ctx->profile = cm_vm_find(q->vm, p->profile_va, bytes, CM_MAP_WRITE, &bad_va);
	if (ctx->profile)
		return true;
	fail(q, TXDA_FAULT_PAGE, bad_va, 0);
	return false;
}

/* Makes the context that of these bindings and symbols with as little work as it takes. */
static bool resolve(struct cm_queue *q, struct cm_context *ctx, const struct txda_binding *binding,
		    const uint32_t *sym, bool precise)
{
	const struct cm_program *p = ctx->program;
	size_t binding_bytes = p->hdr->n_slots * sizeof(*binding);
	bool same = ctx->valid && ctx->vm_generation == q->vm->generation &&
		    ctx->precise == precise && !memcmp(ctx->binding, binding, binding_bytes);

	if (same && !memcmp(ctx->sym, sym, sizeof(ctx->sym)))
		return true;
	ctx->valid = false;
	memcpy(ctx->sym, sym, sizeof(ctx->sym));
	if (same) {
		for (uint32_t i = 0; i < p->n_symbolic; i++) {
			if (!resolve_tensor(q, ctx, p->symbolic[i]))
				return false;
		}
	} else {
		memcpy(ctx->binding, binding, binding_bytes);
		ctx->precise = ctx->launch.precise = precise;
		if (!resolve_bindings(q, ctx, false))
			return false;
		for (uint32_t i = 0; i < p->hdr->n_tensors; i++) {
			if (!resolve_tensor(q, ctx, i))
				return false;
		}
		ctx->vm_generation = q->vm->generation;
	}
	ctx->valid = true;
	return true;
}

bool cm_exec_refresh(struct cm_queue *q)
{
	struct cm_context *ctx = q->context;

	/* Also of a member that waits for its collective: a program that was loaded meanwhile may
	 * have moved the scratch. */
	if (ctx->scratch_generation != q->machine->scratch_generation)
		set_scratch(q->machine, ctx);
	if (ctx->vm_generation == q->vm->generation)
		return true;
	ctx->valid = false;
	/* Tensors keep their place in the address space, so their addresses stay right. */
	if (!resolve_bindings(q, ctx, true))
		return false;
	ctx->vm_generation = q->vm->generation;
	ctx->valid = true;
	return true;
}

/* ---- launching ------------------------------------------------------------------------------- */

static bool check_packet(struct cm_queue *q)
{
	const struct txda_pkt_exec *p = &q->pkt.exec;
	bool profile = p->hdr.flags & TXDA_EXEC_PROFILE;

	if (p->reserved || p->bindings_va % 8 || p->profile_va % 8 || profile != !!p->profile_va) {
		fail(q, TXDA_FAULT_PACKET, q->stream.va + q->pos, p->hdr.op);
		return false;
	}
	return true;
}

/* Whether the launch fits the program: bindings, group, symbols. */
static bool check_launch(struct cm_queue *q, const struct cm_program *program)
{
	const struct txda_pkt_exec *p = &q->pkt.exec;
	const struct txda_program *h = program->hdr;
	const struct cm_group_slot *slot = NULL;

	if (p->n_bindings != h->n_slots) {
		fail(q, TXDA_FAULT_BINDING, p->bindings_va, p->n_bindings);
		return false;
	}
	if (p->group != TXDA_NONE)
		slot = cm_c2c_group(q, p->group);
	if (p->group != TXDA_NONE || h->group_size > 1) {
		if (!slot || slot->group->size != h->group_size || slot->rank != h->rank) {
			fail(q, TXDA_FAULT_COLLECTIVE, 0, p->group);
			return false;
		}
	}
	for (unsigned i = 0; i < TXDA_SYM_COUNT; i++) {
		if (p->sym[i] > h->sym_max[i]) {
			fail(q, TXDA_FAULT_SYMBOL, 0, i);
			return false;
		}
	}
	return true;
}

static bool read_bindings(struct cm_queue *q, struct txda_binding *ret, uint32_t n)
{
	uint64_t bad_va = 0;
	const void *src;

	if (!n)
		return true;
	src = cm_vm_find(q->vm, q->pkt.exec.bindings_va, n * sizeof(*ret), CM_MAP_READ, &bad_va);
	if (!src) {
		fail(q, TXDA_FAULT_PAGE, bad_va, 0);
		return false;
	}
	memcpy(ret, src, n * sizeof(*ret));
	return true;
}

enum cm_result cm_exec_begin(struct cm_queue *q)
{
	const struct txda_pkt_exec *p = &q->pkt.exec;
	struct txda_binding binding[TXDA_PROGRAM_MAX_SLOTS];
	struct txda_fault fault = {.op = TXDA_NONE, .tensor = TXDA_NONE, .opcode = TXDA_NONE};
	struct cm_program *program;
	struct cm_context *ctx;

	q->context = NULL;
	if (!check_packet(q))
		return CM_FAULT;
	if (cm_program_get(q->vm, p->program_va, p->program_bytes, p->hdr.flags & TXDA_EXEC_RELOAD,
			   &program, &fault)) {
		cm_queue_fail(q, &fault);
		return CM_FAULT;
	}
	if (!check_launch(q, program) || !read_bindings(q, binding, program->hdr->n_slots))
		return CM_FAULT;
	ctx = context_get(q, program);
	if (!ctx)
		return fail(q, TXDA_FAULT_PROGRAM, program->va, program->hdr->n_tensors);
	if (!resolve(q, ctx, binding, p->sym, p->hdr.flags & TXDA_EXEC_PRECISE) ||
	    !resolve_profile(q, ctx))
		return CM_FAULT;
	q->context = ctx;
	q->op = 0;
	return program->hdr->n_ops ? CM_AGAIN : CM_DONE;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void exec_part(const void *arg, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_launch *l = arg;

	cm_op_impl(l->op->op)->run(l, phase, part, core);
}

void cm_exec_run(struct cm_queue *q)
{
	struct cm_launch *l = &q->context->launch;

	for (unsigned phase = 0; phase < l->phases && phase < CM_MAX_PHASES; phase++)
		cm_pool_run(q->machine, exec_part, l, phase, l->parts[phase], &q->cancel);
}

void cm_exec_count(struct cm_queue *q)
{
	const struct cm_launch *l = &q->context->launch;
	const struct cm_op_impl *impl = cm_op_impl(l->op->op);
	struct cm_activity *a = &q->chip->activity;
	uint64_t read = 0, written = 0;

	if (impl->traffic) {
		impl->traffic(l, &read, &written);
		cm_count(&a->bytes_read, read);
		cm_count(&a->bytes_written, written);
	}
	cm_count(&a->ops, 1);
}

void cm_exec_fail(struct cm_queue *q)
{
	struct cm_context *ctx = q->context;

	ctx->fault.op = q->op;
	ctx->fault.opcode = ctx->launch.op->op;
	cm_queue_fail(q, &ctx->fault);
}

/* Points the launch at the tensors of the current op. */
static void set_op(struct cm_queue *q, struct cm_context *ctx)
{
	const struct txda_op *op = &ctx->program->op[q->op];
	struct cm_launch *l = &ctx->launch;

	l->op = op;
	for (unsigned i = 0; i < 6; i++)
		l->in[i] = op->in[i] == TXDA_NONE ? NULL : &ctx->tensor[op->in[i]];
	for (unsigned i = 0; i < 3; i++)
		l->out[i] = op->out[i] == TXDA_NONE ? NULL : &ctx->tensor[op->out[i]];
	l->phases = 0;
	ctx->fault = (struct txda_fault){.tensor = TXDA_NONE};
}

static enum cm_result run_op(struct cm_queue *q, struct cm_context *ctx)
{
	const struct cm_op_impl *impl = cm_op_impl(ctx->launch.op->op);
	struct cm_launch *l = &ctx->launch;

	l->group_size = 1;
	l->rank = 0;
	l->peer[0] = l;
	if (impl->check(l)) {
		cm_exec_fail(q);
		return CM_FAULT;
	}
	impl->plan(l);
	cm_exec_run(q);
	cm_exec_count(q);
	return CM_DONE;
}

static bool is_collective(uint32_t opcode)
{
	return opcode == TXDA_OP_ALL_REDUCE || opcode == TXDA_OP_ALL_GATHER;
}

enum cm_result cm_exec_step(struct cm_queue *q)
{
	struct cm_context *ctx = q->context;
	bool group = false, again = q->waits_in || q->met;
	enum cm_result result = CM_DONE;

	if (!cm_exec_refresh(q))
		return CM_FAULT;
	if (!again) {
		set_op(q, ctx);
		if (q->chip->injected)
			result = cm_inject_before(q, false);
		if (result != CM_DONE)
			return result;
		if (ctx->profile)
			ctx->start_ns = cm_now_ns();
	}
	group = is_collective(ctx->launch.op->op) && q->pkt.exec.group != TXDA_NONE;
	cm_account(q->machine, q->chip, false);
	result = group ? cm_c2c_op(q) : run_op(q, ctx);
	if (result != CM_DONE)
		return result;
	if (ctx->profile)
		ctx->profile[q->op] = (struct txda_op_time){ctx->start_ns, cm_now_ns()};
	if (++q->op < ctx->program->hdr->n_ops) {
		/* A long launch shows in the sensors as it goes. */
		if (q->op % OPS_PER_FLUSH == 0)
			cm_account_flush(q->machine);
		cm_queue_step(q);
		return CM_AGAIN;
	}
	cm_account_flush(q->machine);
	cm_cp_wrote(q->machine);
	return CM_DONE;
}
