// SPDX-License-Identifier: MIT
/*
 * DELTA_CONV, DELTA_RULE and GATE: layers whose cache is a state.
 *
 * DELTA_CONV has two phases: first all outputs, which read the state of before, then the states. A
 * part of DELTA_RULE is one head of one sequence, which goes through its tokens in order.
 *
 * The leader copies spans and contexts before the cores start: the client's memory may change
 * meanwhile. Block numbers are read when they are needed and brought into range.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define TOKENS_PER_PART 8

struct seq {
	uint32_t first, n; /* tokens of the step */
	uint32_t position; /* of the first */
	uint32_t kept;	   /* tokens of the step before the snapshot; 0: there is none */
};

/* Which state of a sequence: before the step, after it, a snapshot in between. */
enum which { FROM, TO, SNAPSHOT };

/* The batch of both ops. */
struct batch {
	const struct cm_tensor *cache, *table, *spans, *ctx;
	uint64_t tokens, layer_offset;
	uint64_t first, blocks; /* first block of the op's part of a state; blocks of a state */
};

static struct batch batch_of(const struct cm_launch *l)
{
	bool conv = l->op->op == TXDA_OP_DELTA_CONV;
	const struct cm_tensor *const *in = l->in + (conv ? 2 : 3);

	return (struct batch){
		.cache = l->out[1],
		.table = in[0],
		.spans = in[1],
		.ctx = in[2],
		.tokens = l->in[0]->dim[0],
		.layer_offset =
			conv ? l->op->delta_conv.layer_offset : l->op->delta_rule.layer_offset,
		.first = conv ? l->op->delta_conv.first : l->op->delta_rule.first,
		.blocks = in[0]->dim[1] / 3,
	};
}

/* @bytes in each of @n blocks of the state. */
static int want_states(const struct cm_launch *l, const struct batch *b, uint64_t bytes, uint64_t n)
{
	const struct cm_tensor *t = b->cache, *table = b->table;
	uint64_t end = 0;

	if (!t || t->layout != TXDA_KV_PAGED || t->ndim != 2)
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t ? t->va : 0, 0);
	if (cm_want_room(l, t, bytes, b->layer_offset) ||
	    cm_want(l, table, DT(TXDA_I32), CM_ANY, CM_ANY) ||
	    cm_want(l, b->spans, DT(TXDA_I32), table->dim[0], 2) ||
	    cm_want(l, b->ctx, DT(TXDA_I32), table->dim[0], CM_VECTOR))
		return -EINVAL;
	if (table->dim[1] % 3 != 1 || b->first + n > table->dim[1] / 3)
		return cm_bad(l, TXDA_FAULT_SHAPE, table, table->va, table->dim[1]);
	for (uint64_t s = 0; s < table->dim[0]; s++) {
		uint64_t first = cm_index_at(b->spans, 2 * s),
			 tokens = cm_index_at(b->spans, 2 * s + 1), c = cm_index_at(b->ctx, s);

		if (first < end || first + tokens > b->tokens)
			return cm_bad(l, TXDA_FAULT_INDEX, b->spans, b->spans->va + s * 8, first);
		end = first + tokens;
		if (c < tokens || c > INT32_MAX)
			return cm_bad(l, TXDA_FAULT_INDEX, b->ctx, b->ctx->va + s * 4, c);
		for (uint64_t i = 1; tokens && i < table->dim[1]; i++) {
			uint64_t at = s * table->dim[1] + i;

			if (cm_index_at(table, at) >= t->dim[0])
				return cm_bad(l, TXDA_FAULT_INDEX, table, table->va + at * 4,
					      cm_index_at(table, at));
		}
	}
	return 0;
}

/* Copies the batch; sequences that became invalid since check() get no tokens. */
static void copy_batch(const struct cm_launch *l, const struct batch *b)
{
	struct seq *seq = l->shared;
	uint64_t end = 0;

	for (uint64_t s = 0; s < b->table->dim[0]; s++) {
		uint64_t first = cm_index_at(b->spans, 2 * s), n = cm_index_at(b->spans, 2 * s + 1),
			 context = cm_index_at(b->ctx, s),
			 kept = cm_index_at(b->table, s * b->table->dim[1]);

		if (first < end || first + n > b->tokens || context < n || context > INT32_MAX ||
		    !b->cache->dim[0])
			n = 0;
		else
			end = first + n;
		kept = n && kept > context - n && kept <= context ? kept - (context - n) : 0;
		seq[s] = (struct seq){(uint32_t)first, (uint32_t)n, (uint32_t)(context - n),
				      (uint32_t)kept};
	}
}

/* The op's part of a state of sequence @s, in its block number @i. */
static float *state_at(const struct cm_launch *l, const struct batch *b, uint64_t s,
		       enum which which, uint64_t i)
{
	uint64_t block =
		cm_index_at(b->table, s * b->table->dim[1] + 1 + which * b->blocks + b->first + i);

	block = block < b->cache->dim[0] ? block : 0;
	return (float *)((uint8_t *)b->cache->ptr +
			 (block * b->cache->dim[1] + b->layer_offset) * (l->precise ? 2 : 1));
}

/* Whether the state after the first @n tokens of the step is stored to @which. */
static bool goes_to(const struct seq *seq, enum which which, uint32_t n)
{
	return n == (which == TO ? seq->n : seq->kept);
}

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

/* ---- DELTA_CONV ---- */

static int conv_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *w = l->in[1];
	struct batch b = batch_of(l);

	if (l->op->delta_conv.reserved)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, l->op->delta_conv.reserved);
	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, w, DT(TXDA_F32), x->dim[1], CM_ANY) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), x->dim[0], x->dim[1]))
		return -EINVAL;
	if (w->dim[1] < 2 || w->dim[1] > TXDA_DELTA_MAX_KERNEL || x->dim[1] > 1u << 24)
		return cm_bad(l, TXDA_FAULT_SHAPE, w, w->va, w->dim[1]);
	return want_states(l, &b, txda_conv_state_bytes((uint32_t)x->dim[1], (uint32_t)w->dim[1]),
			   1);
}

static void conv_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes =
		align64(l->in[2]->dim[0] * sizeof(struct seq)) + align64(l->in[0]->dim[0] * 4);
	need->core_bytes = l->in[0]->dim[1] * TXDA_DELTA_MAX_KERNEL * 4;
}

/* The sequence of each token, in scratch after the sequences; UINT32_MAX: none. */
static uint32_t *owners(const struct cm_launch *l)
{
	return (uint32_t *)((uint8_t *)l->shared + align64(l->in[2]->dim[0] * sizeof(struct seq)));
}

static void conv_plan(struct cm_launch *l)
{
	struct batch b = batch_of(l);
	const struct seq *seq = l->shared;
	uint32_t *owner = owners(l);

	l->phases = 0;
	if (!b.tokens || !b.table->dim[0])
		return;
	copy_batch(l, &b);
	memset(owner, 0xff, b.tokens * 4);
	for (uint64_t s = 0; s < b.table->dim[0]; s++)
		for (uint32_t i = 0; i < seq[s].n; i++)
			owner[seq[s].first + i] = (uint32_t)s;
	l->parts[l->phases++] = cm_div_up(b.tokens, TOKENS_PER_PART);
	l->parts[l->phases++] = b.table->dim[0];
}

/* Row @i of the step's rows of @seq; those before come from the state @old, then there are
 * zeros. */
static const float *conv_row(const struct cm_launch *l, const struct seq *seq, const float *old,
			     int64_t i)
{
	const uint64_t channels = l->in[0]->dim[1];
	const int64_t kept = (int64_t)l->in[1]->dim[1] - 1;

	if (i >= 0)
		return (const float *)l->in[0]->ptr + (seq->first + (uint64_t)i) * channels;
	return old && -i <= kept && -i <= (int64_t)seq->position
		       ? old + (uint64_t)(kept + i) * channels
		       : NULL;
}

static void conv_token(const struct cm_launch *l, const struct batch *b, uint64_t t)
{
	const uint32_t s = owners(l)[t];
	const struct seq *seq = (const struct seq *)l->shared + s;
	const uint64_t channels = l->in[0]->dim[1], kernel = l->in[1]->dim[1];
	float *out = (float *)l->out[0]->ptr + t * channels;
	const float *weight = l->in[1]->ptr, *row[TXDA_DELTA_MAX_KERNEL], *old = NULL;

	if (s == UINT32_MAX)
		return;
	if (seq->position)
		old = state_at(l, b, s, FROM, 0);
	for (uint64_t j = 0; j < kernel; j++)
		row[j] = conv_row(l, seq, old,
				  (int64_t)(t - seq->first) - (int64_t)(kernel - 1 - j));
	for (uint64_t c = 0; c < channels; c++) {
		double sum = 0;

		for (uint64_t j = 0; j < kernel; j++)
			sum += row[j] ? (double)weight[c * kernel + j] * row[j][c] : 0;
		out[c] = (float)(sum / (1 + exp(-sum)));
	}
}

/* Stores to a state of the sequence the last rows of its first @n tokens of the step. */
static void conv_store(const struct cm_launch *l, const struct seq *seq, const float *old,
		       uint32_t n, float *to)
{
	const uint64_t channels = l->in[0]->dim[1], kept = l->in[1]->dim[1] - 1;

	for (uint64_t j = 0; j < kept; j++, to += channels) {
		const float *row = conv_row(l, seq, old, (int64_t)n - (int64_t)(kept - j));

		if (row)
			memcpy(to, row, channels * 4);
		else
			memset(to, 0, channels * 4);
	}
}

/* The states after the tokens of one sequence. @old is a copy, since they may overwrite it. */
static void conv_states(const struct cm_launch *l, const struct batch *b, uint32_t s, float *old)
{
	const struct seq *seq = (const struct seq *)l->shared + s;
	const uint64_t channels = l->in[0]->dim[1], kept = l->in[1]->dim[1] - 1;

	if (!seq->n)
		return;
	if (seq->position)
		memcpy(old, state_at(l, b, s, FROM, 0), channels * kept * 4);
	if (seq->kept)
		conv_store(l, seq, old, seq->kept, state_at(l, b, s, SNAPSHOT, 0));
	conv_store(l, seq, old, seq->n, state_at(l, b, s, TO, 0));
}

static void conv_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	struct batch b = batch_of(l);
	uint64_t t = (uint64_t)part * TOKENS_PER_PART, end = t + TOKENS_PER_PART;

	if (phase) {
		conv_states(l, &b, part, l->core[core]);
		return;
	}
	for (; t < end && t < b.tokens; t++)
		conv_token(l, &b, t);
}

static void conv_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	uint64_t row = l->in[0]->dim[1] * 4, kept = l->in[1]->dim[1] - 1;

	*read = l->in[0]->dim[0] * row + l->in[2]->dim[0] * kept * row;
	*written = *read;
}

const struct cm_op_impl cm_op_delta_conv = {
	.n_in = 5,
	.n_out = 2,
	.check = conv_check,
	.need = conv_need,
	.plan = conv_plan,
	.run = conv_run,
	.traffic = conv_traffic,
};

/* ---- DELTA_RULE ---- */

static uint64_t padded(const struct cm_launch *l)
{
	return TXDA_KV_DIM((uint64_t)l->op->delta_rule.v_dim);
}

static int rule_check(const struct cm_launch *l)
{
	const struct txda_op_delta_rule *p = &l->op->delta_rule;
	const struct cm_tensor *x = l->in[0];
	struct batch b = batch_of(l);
	uint64_t width;

	if (!p->n_k_heads || p->n_v_heads > 65536 || p->n_v_heads < p->n_k_heads ||
	    p->n_v_heads % p->n_k_heads || !p->k_dim || p->k_dim > TXDA_DELTA_MAX_DIM ||
	    !p->v_dim || p->v_dim > TXDA_DELTA_MAX_DIM)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->n_v_heads);
	width = (uint64_t)p->n_v_heads * p->v_dim;
	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, 2ull * p->n_k_heads * p->k_dim + width) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), x->dim[0], 2ull * p->n_v_heads) ||
	    cm_want(l, l->in[2], DT(TXDA_F32), 2, p->n_v_heads) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), x->dim[0], width))
		return -EINVAL;
	if (!p->per_block || p->per_block > p->n_v_heads)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->per_block);
	return want_states(l, &b, p->per_block * txda_delta_state_bytes(p->k_dim, p->v_dim),
			   cm_div_up(p->n_v_heads, p->per_block));
}

static void rule_need(const struct cm_launch *l, struct cm_op_need *need)
{
	const struct txda_op_delta_rule *p = &l->op->delta_rule;
	uint64_t k = p->k_dim & 1023u, v = padded(l) & 1023u; /* larger ones are refused */

	need->shared_bytes = align64(l->in[3]->dim[0] * sizeof(struct seq));
	need->core_bytes = align64(k * v * 4) + align64((2 * k + 3 * v) * 4);
}

static void rule_plan(struct cm_launch *l)
{
	struct batch b = batch_of(l);

	l->phases = 0;
	if (!b.tokens || !b.table->dim[0])
		return;
	copy_batch(l, &b);
	l->parts[l->phases++] = b.table->dim[0] * l->op->delta_rule.n_v_heads;
}

/* out = x / sqrt(sum of its squares + 1e-6) / @root */
static void unit(float *out, const float *x, unsigned n, double root)
{
	double sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	sum = 1 / (sqrt(sum + 1e-6) * root);
	for (unsigned i = 0; i < n; i++)
		out[i] = (float)(x[i] * sum);
}

static double softplus(double x)
{
	return x > 30 ? x : log1p(exp(x));
}

/* Data of one head: its state, with rows of v_dim rounded up to 16, and a token's vectors. */
struct head {
	float *s, *q, *k, *v, *out, *tmp;
};

static void precise_step(const struct txda_op_delta_rule *p, const struct head *w, uint64_t pad,
			 double decay, double beta)
{
	for (unsigned d = 0; d < p->v_dim; d++) {
		double sum = 0, delta;

		for (unsigned i = 0; i < p->k_dim; i++)
			sum += w->s[i * pad + d] * decay * w->k[i];
		delta = (w->v[d] - sum) * beta;
		sum = 0;
		for (unsigned i = 0; i < p->k_dim; i++) {
			double x = w->s[i * pad + d] * decay + w->k[i] * delta;

			w->s[i * pad + d] = (float)x;
			sum += x * w->q[i];
		}
		w->out[d] = (float)sum;
	}
}

static void rule_token(const struct cm_launch *l, const struct head *w, uint64_t t, unsigned h)
{
	const struct txda_op_delta_rule *p = &l->op->delta_rule;
	const unsigned kh = h / (p->n_v_heads / p->n_k_heads);
	const float *x = (const float *)l->in[0]->ptr + t * l->in[0]->dim[1],
		    *ba = (const float *)l->in[1]->ptr + t * 2 * p->n_v_heads, *c = l->in[2]->ptr;
	double beta = 1 / (1 + exp(-(double)ba[h])),
	       decay = exp(c[h] * softplus((double)ba[p->n_v_heads + h] + c[p->n_v_heads + h]));

	unit(w->q, x + kh * p->k_dim, p->k_dim, sqrt(p->k_dim));
	unit(w->k, x + (p->n_k_heads + kh) * p->k_dim, p->k_dim, 1);
	memcpy(w->v, x + 2ull * p->n_k_heads * p->k_dim + (uint64_t)h * p->v_dim, p->v_dim * 4);
	if (l->precise)
		precise_step(p, w, padded(l), decay, beta);
	else
		cm_simd->delta_step(w->s, p->k_dim, (unsigned)padded(l), w->q, w->k, w->v,
				    (float)decay, (float)beta, w->out, w->tmp);
	memcpy((float *)l->out[0]->ptr + (t * p->n_v_heads + h) * p->v_dim, w->out, p->v_dim * 4);
}

static void rule_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct txda_op_delta_rule *p = &l->op->delta_rule;
	const unsigned s = part / p->n_v_heads, h = part % p->n_v_heads;
	const struct seq *seq = (const struct seq *)l->shared + s;
	const uint64_t pad = padded(l), in = h / p->per_block,
		       own = h % p->per_block * txda_delta_state_bytes(p->k_dim, p->v_dim) / 4;
	struct batch b = batch_of(l);
	struct head w = {.s = l->core[core]};

	(void)phase;
	if (!seq->n)
		return;
	w.q = (float *)((uint8_t *)w.s + align64(p->k_dim * pad * 4));
	w.k = w.q + p->k_dim;
	w.v = w.k + p->k_dim;
	w.out = w.v + pad;
	w.tmp = w.out + pad;
	memset(w.s, 0, p->k_dim * pad * 4);
	memset(w.v, 0, pad * 4);
	for (unsigned i = 0; seq->position && i < p->k_dim; i++)
		memcpy(w.s + i * pad, state_at(l, &b, s, FROM, in) + own + i * p->v_dim,
		       p->v_dim * 4);
	for (uint32_t i = 0; i < seq->n; i++) {
		rule_token(l, &w, seq->first + i, h);
		for (enum which to = TO; to <= SNAPSHOT; to++)
			for (unsigned j = 0; goes_to(seq, to, i + 1) && j < p->k_dim; j++)
				memcpy(state_at(l, &b, s, to, in) + own + j * p->v_dim,
				       w.s + j * pad, p->v_dim * 4);
	}
}

static void rule_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct txda_op_delta_rule *p = &l->op->delta_rule;
	uint64_t states =
		l->in[3]->dim[0] * p->n_v_heads * txda_delta_state_bytes(p->k_dim, p->v_dim);

	*read = l->in[0]->dim[0] * l->in[0]->dim[1] * 4 + states;
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * 4 + states;
}

const struct cm_op_impl cm_op_delta_rule = {
	.n_in = 6,
	.n_out = 2,
	.check = rule_check,
	.need = rule_need,
	.plan = rule_plan,
	.run = rule_run,
	.traffic = rule_traffic,
};

/* ---- GATE ---- */

static int gate_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0];

	if (l->op->gate.flags & ~TXDA_GATE_SILU)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, l->op->gate.flags);
	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), x->dim[0], x->dim[1]) ||
	    cm_may(l, l->in[2], DT(TXDA_F32), CM_ANY, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), x->dim[0], x->dim[1]))
		return -EINVAL;
	if (l->in[2] && (!l->in[2]->dim[0] || x->dim[1] % l->in[2]->dim[0]))
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[2], l->in[2]->va, l->in[2]->dim[0]);
	return 0;
}

static void gate_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes = 0;
	need->core_bytes = l->in[0]->dim[1] * 4;
}

static void gate_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = cm_div_up(l->in[0]->dim[0], TOKENS_PER_PART);
}

static void gate_row(const struct cm_launch *l, const float *x, const float *gate, float *normed,
		     float *out)
{
	const uint64_t width = l->in[0]->dim[1];
	const bool silu = l->op->gate.flags & TXDA_GATE_SILU;

	if (l->in[2]) {
		uint64_t dim = l->in[2]->dim[0];

		for (uint64_t i = 0; i < width; i += dim)
			cm_precise_norm(normed + i, x + i, l->in[2]->ptr, dim, l->op->gate.eps);
		x = normed;
	}
	for (uint64_t i = 0; i < width; i++) {
		double g = gate[i];

		out[i] = (float)(x[i] * (silu ? g : 1) / (1 + exp(-g)));
	}
}

static void gate_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t t = (uint64_t)part * TOKENS_PER_PART, end = t + TOKENS_PER_PART,
		 width = l->in[0]->dim[1];

	(void)phase;
	for (; t < end && t < l->in[0]->dim[0]; t++)
		gate_row(l, (const float *)l->in[0]->ptr + t * width,
			 (const float *)l->in[1]->ptr + t * width, l->core[core],
			 (float *)l->out[0]->ptr + t * width);
}

static void gate_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*written = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	*read = 2 * *written;
}

const struct cm_op_impl cm_op_gate = {
	.n_in = 3,
	.n_out = 1,
	.check = gate_check,
	.need = gate_need,
	.plan = gate_plan,
	.run = gate_run,
	.traffic = gate_traffic,
};
