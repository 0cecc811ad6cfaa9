// SPDX-License-Identifier: MIT
/*
 * Latent attention by itself: what MLA_STORE leaves in the cache and what MLA_ATTENTION makes of
 * it, on every SIMD path of this CPU against plain loops in double; rows whose bits do not depend
 * on their company; cells that were never written; refusals.
 */
#include "ops_fixture.h"

struct mla_case {
	unsigned heads, latent, rope, bs, seqs;
	const unsigned *context, *n;
	bool precise, inter, i8;
};

struct mla {
	struct run store, att;
	struct cm_tensor *q_rope, *table, *slots, *kv, *norm, *q_out, *cache;
	struct cm_tensor *q_latent, *blocks, *spans, *ctx, *out;
	unsigned tokens, cols;
	float **latents; /* [seq][position][latent + rope]: what must be in the cache */
};

/* Block b of sequence s. */
static unsigned block_of(const struct mla_case *c, unsigned s, unsigned b)
{
	return b * c->seqs + (c->seqs - 1 - s) + 1;
}

static void mla_new(struct mla *m, const struct mla_case *c)
{
	uint64_t layer = c->i8 ? txda_mla8_layer_bytes(c->latent, c->rope, c->bs)
			       : txda_mla_layer_bytes(c->latent, c->rope, c->bs);
	uint64_t stride = layer + 192;
	unsigned blocks;

	memset(m, 0, sizeof(*m));
	for (unsigned s = 0; s < c->seqs; s++) {
		unsigned n = (c->context[s] + c->bs - 1) / c->bs;

		m->cols = n > m->cols ? n : m->cols;
	}
	blocks = m->cols * c->seqs + 1;
	m->cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, blocks, stride, blocks * stride * 2);
	m->cache->bytes = blocks * stride * (c->precise ? 2 : 1);
	memset(m->cache->ptr, 0xff, m->cache->bytes); /* NaN wherever nothing is stored */
	m->norm = f32(c->latent, 0);
	m->latents = calloc(c->seqs, sizeof(*m->latents));
}

/* What int8 with one scale leaves of x[n]. */
static void to_int8(float *x, unsigned n)
{
	float most = 0;

	for (unsigned i = 0; i < n; i++)
		most = fmaxf(most, fabsf(x[i]));
	for (unsigned i = 0; i < n && most > 0; i++)
		x[i] = rintf(x[i] * (127.0f / most)) * (most / 127.0f);
}

/* Stores positions [0, context) of sequence @s as @chunk tokens a launch. */
static void mla_fill(struct mla *m, const struct mla_case *c, unsigned s, unsigned chunk)
{
	unsigned width = c->latent + c->rope;

	m->latents[s] = calloc((size_t)c->context[s] * width, sizeof(float));
	for (unsigned at = 0; at < c->context[s]; at += chunk) {
		unsigned n = c->context[s] - at < chunk ? c->context[s] - at : chunk;
		struct cm_tensor *q = f32(n, (uint64_t)c->heads * c->rope),
				 *table = f32(n, c->rope), *slots = i32(n, 0), *kv = f32(n, width),
				 *out = f32(n, (uint64_t)c->heads * c->rope);
		struct run r = {.l = {.in = {q, table, slots, kv, m->norm},
				      .out = {out, m->cache},
				      .precise = c->precise}};

		for (unsigned i = 0; i < n; i++) {
			unsigned p = at + i;
			const float *x = (const float *)kv->ptr + i * width;
			const float *cs = (const float *)table->ptr + i * c->rope,
				    *sn = cs + c->rope / 2;
			float *want = m->latents[s] + (size_t)p * width;
			double sum = 0;

			ints(slots)[i] = (int32_t)(block_of(c, s, p / c->bs) * c->bs + p % c->bs);
			for (unsigned d = 0; d < c->latent; d++)
				sum += (double)x[d] * x[d];
			sum = 1 / sqrt(sum / c->latent + 1e-6);
			for (unsigned d = 0; d < c->latent; d++)
				want[d] = (float)(x[d] * sum) * floats(m->norm)[d];
			for (unsigned d = 0; d < c->rope / 2; d++) {
				unsigned a = c->latent + (c->inter ? 2 * d : d),
					 b = c->latent + (c->inter ? 2 * d + 1 : d + c->rope / 2);

				want[a] = x[a] * cs[d] - x[b] * sn[d];
				want[b] = x[b] * cs[d] + x[a] * sn[d];
			}
			if (c->i8) {
				to_int8(want, c->latent);
				to_int8(want + c->latent, c->rope);
			}
		}
		r.op.mla_store = (struct txda_op_mla_store){c->heads,
							    c->latent,
							    c->rope,
							    c->bs,
							    128,
							    1e-6f,
							    (c->inter ? TXDA_ROPE_INTERLEAVED : 0) |
								    (c->i8 ? TXDA_KV_INT8 : 0)};
		assert_int_equal(run_op(&r, TXDA_OP_MLA_STORE, 2), 0);
		for (unsigned i = 0; i < n * c->heads; i++) {
			const float *x = (const float *)q->ptr + i * c->rope,
				    *y = (const float *)out->ptr + i * c->rope;
			const float *cs = (const float *)table->ptr + i / c->heads * c->rope;

			for (unsigned d = 0; d < c->rope / 2; d++) {
				unsigned a = c->inter ? 2 * d : d,
					 b = c->inter ? 2 * d + 1 : d + c->rope / 2;

				assert_true(fabsf(y[a] - (x[a] * cs[d] -
							  x[b] * cs[c->rope / 2 + d])) < 1e-6f);
			}
		}
		drop(q), drop(table), drop(slots), drop(kv), drop(out);
	}
}

static void mla_free(struct mla *m, const struct mla_case *c)
{
	for (unsigned s = 0; s < c->seqs; s++)
		free(m->latents[s]);
	free(m->latents);
	drop(m->cache), drop(m->norm), drop(m->q_latent), drop(m->q_rope), drop(m->blocks);
	drop(m->spans), drop(m->ctx), drop(m->out);
}

/* The last n[s] tokens of each sequence ask. */
static void mla_ask(struct mla *m, const struct mla_case *c, unsigned cores)
{
	m->tokens = 0;
	for (unsigned s = 0; s < c->seqs; s++)
		m->tokens += c->n[s];
	m->q_latent = f32(m->tokens, (uint64_t)c->heads * c->latent);
	m->q_rope = f32(m->tokens, (uint64_t)c->heads * c->rope);
	m->out = f32(m->tokens, (uint64_t)c->heads * c->latent);
	m->blocks = i32(c->seqs, m->cols);
	m->blocks->ndim = 2;
	m->spans = i32(c->seqs, 2);
	m->ctx = i32(c->seqs, 0);
	for (unsigned s = 0, at = 0; s < c->seqs; at += c->n[s++]) {
		ints(m->spans)[2 * s] = (int32_t)at;
		ints(m->spans)[2 * s + 1] = (int32_t)c->n[s];
		ints(m->ctx)[s] = (int32_t)c->context[s];
		for (unsigned b = 0; b < m->cols; b++)
			ints(m->blocks)[s * m->cols + b] = (int32_t)block_of(c, s, b);
	}
	m->att = (struct run){
		.l = {.in = {m->q_latent, m->q_rope, m->cache, m->blocks, m->spans, m->ctx},
		      .out = {m->out},
		      .precise = c->precise}};
	m->att.op.mla_attention = (struct txda_op_mla_attention){
		c->heads, c->latent, c->rope, c->bs, 128, 0.3f, c->i8 ? TXDA_KV_INT8 : 0};
	assert_int_equal(run_op(&m->att, TXDA_OP_MLA_ATTENTION, cores), 0);
}

static double mla_error(const struct mla *m, const struct mla_case *c)
{
	unsigned width = c->latent + c->rope, at = 0;
	double e = 0, norm = 0;

	for (unsigned s = 0; s < c->seqs; at += c->n[s++])
		for (unsigned i = 0; i < c->n[s] * c->heads; i++) {
			unsigned token = at + i / c->heads, row = token * c->heads + i % c->heads,
				 keys = c->context[s] - c->n[s] + i / c->heads + 1;
			const float *ql = (const float *)m->q_latent->ptr + (size_t)row * c->latent,
				    *qr = (const float *)m->q_rope->ptr + (size_t)row * c->rope,
				    *got = (const float *)m->out->ptr + (size_t)row * c->latent;
			double *score = malloc(keys * sizeof(*score)), max = -1e300, sum = 0;

			for (unsigned p = 0; p < keys; p++) {
				const float *k = m->latents[s] + (size_t)p * width;

				score[p] = 0;
				for (unsigned d = 0; d < c->latent; d++)
					score[p] += (double)ql[d] * k[d];
				for (unsigned d = 0; d < c->rope; d++)
					score[p] += (double)qr[d] * k[c->latent + d];
				score[p] *= 0.3f;
				max = score[p] > max ? score[p] : max;
			}
			for (unsigned p = 0; p < keys; p++)
				sum += score[p] = exp(score[p] - max);
			for (unsigned d = 0; d < c->latent; d++) {
				double v = 0;

				for (unsigned p = 0; p < keys; p++)
					v += score[p] / sum * m->latents[s][(size_t)p * width + d];
				e += (got[d] - v) * (got[d] - v);
				norm += v * v;
			}
			free(score);
		}
	return sqrt(e / norm);
}

TEST(test_latent)
{
	static const unsigned c1[] = {1, 40, 130}, n1[] = {1, 3, 1}, c2[] = {1100, 64, 600},
			      n2[] = {1, 64, 2}, c3[] = {17, 33, 5}, n3[] = {17, 33, 5};
	static const struct mla_case cases[] = {
		{4, 64, 32, 16, 3, c1, n1, false, true},
		{16, 512, 64, 64, 3, c2, n2, false, true},
		{3, 40, 6, 32, 3, c3, n3, false, false},
		{1, 1, 2, 16, 3, c1, n1, false, true},
		{5, 96, 10, 128, 3, c1, n1, false, true},
		{4, 64, 32, 16, 3, c1, n1, true, true},
		{3, 40, 6, 32, 3, c3, n3, true, false},
		{4, 64, 32, 16, 3, c1, n1, false, true, true},
		{16, 512, 64, 64, 3, c2, n2, false, true, true},
		{3, 40, 6, 32, 3, c3, n3, false, false, true},
		{1, 1, 2, 16, 3, c1, n1, false, true, true},
		{4, 64, 32, 16, 3, c1, n1, true, true, true},
		{3, 40, 6, 32, 3, c3, n3, true, false, true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct mla_case *c = &cases[i];
		struct mla m;
		double err;

		mla_new(&m, c);
		for (unsigned s = 0; s < c->seqs; s++)
			mla_fill(&m, c, s, s + 7);
		mla_ask(&m, c, 3);
		err = mla_error(&m, c);
		/* With int8 an element near the middle of two codes may take the other one. */
		if (!(err < (!c->precise ? 6e-3 : c->i8 ? 1e-3 : 2e-6)))
			fail_msg("%s: case %d: error %g", cm_simd->name, (int)i, err);
		mla_free(&m, c);
	}
}

/* A sequence alone, and its tokens one after another, give the same bits. */
static void latent_alone(bool i8)
{
	static const unsigned context[] = {9, 530, 77}, n[] = {9, 4, 1};
	const struct mla_case c = {6, 48, 16, 16, 3, context, n, false, true, i8};
	struct mla m;

	mla_new(&m, &c);
	for (unsigned s = 0; s < c.seqs; s++)
		mla_fill(&m, &c, s, 50);
	mla_ask(&m, &c, 2);
	for (unsigned s = 0, at = 0; s < c.seqs; at += n[s++])
		for (unsigned i = 0; i < n[s]; i++) {
			size_t width = (size_t)c.heads * c.latent;
			struct cm_tensor q = *m.q_latent, qr = *m.q_rope, out = *m.out,
					 blocks = *m.blocks, spans = *m.spans, ctx = *m.ctx;
			int32_t span[2] = {0, 1}, len = (int32_t)(context[s] - n[s] + i + 1);
			struct run one = m.att;

			q.dim[0] = qr.dim[0] = out.dim[0] = blocks.dim[0] = spans.dim[0] =
				ctx.dim[0] = 1;
			q.ptr = (float *)m.q_latent->ptr + (at + i) * width;
			qr.ptr = (float *)m.q_rope->ptr + (size_t)(at + i) * c.heads * c.rope;
			out.ptr = mem(width * 4);
			blocks.ptr = (int32_t *)m.blocks->ptr + s * m.cols;
			spans.ptr = span;
			ctx.ptr = &len;
			one.l.in[0] = &q;
			one.l.in[1] = &qr;
			one.l.in[3] = &blocks;
			one.l.in[4] = &spans;
			one.l.in[5] = &ctx;
			one.l.out[0] = &out;
			assert_int_equal(run_op(&one, TXDA_OP_MLA_ATTENTION, 5), 0);
			assert_memory_equal(out.ptr, (float *)m.out->ptr + (at + i) * width,
					    width * 4);
			free(out.ptr);
		}
	mla_free(&m, &c);
}

TEST(test_latent_alone)
{
	latent_alone(false);
	latent_alone(true);
}

TEST(test_latent_refuses)
{
	static const unsigned context[] = {20}, n[] = {2};
	const struct mla_case c = {2, 32, 16, 16, 1, context, n, false, true};
	struct txda_op_mla_attention *p;
	struct mla m;

	mla_new(&m, &c);
	mla_fill(&m, &c, 0, 20);
	mla_ask(&m, &c, 1);
	p = &m.att.op.mla_attention;
#define BAD(...) REFUSED(m.att, TXDA_OP_MLA_ATTENTION, __VA_ARGS__)
	BAD(p->n_heads, 0, PROGRAM);
	BAD(p->n_heads, 3, SHAPE);
	BAD(p->latent, 0, PROGRAM);
	BAD(p->latent, 0xfffffff0u, PROGRAM);
	BAD(p->rope, 0xfffffffeu, PROGRAM);
	BAD(p->rope, 3, PROGRAM);
	BAD(p->block_size, 17, PROGRAM);
	BAD(p->layer_offset, 1ull << 40, SHAPE);
	BAD(p->layer_offset, 32, SHAPE);
	BAD(p->flags, TXDA_ROPE_INTERLEAVED, PROGRAM);
	BAD(ints(m.blocks)[1], 1000, INDEX);
	BAD(ints(m.spans)[1], 3, INDEX);
	BAD(ints(m.ctx)[0], 1, INDEX);
	BAD(ints(m.ctx)[0], 4000, INDEX);
	assert_int_equal(run_op(&m.att, TXDA_OP_MLA_ATTENTION, 1), 0);
	mla_free(&m, &c);
}

OPS_MAIN(false)
