// SPDX-License-Identifier: MIT
/*
 * The compute kernels against programs and clients that mean harm: shapes and modes at the edges of
 * what check() takes, and index tensors that another thread writes between check() and run(). All
 * memory is exactly as large as its tensor, for AddressSanitizer to see what goes beyond.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check.h"
#include "clock.h"
#include "ops.h"
#include "unit.h"

#define CORES	    2u
#define MAX_TENSORS 16u

struct bench {
	struct cm_launch l;
	void *core[CORES];
	struct txda_op op;
	struct txda_fault fault;
	struct cm_tensor tensor[MAX_TENSORS];
	unsigned n;
};

static void bench_init(struct bench *b, unsigned opcode)
{
	memset(b, 0, sizeof(*b));
	b->op.op = (uint16_t)opcode;
	b->l.op = &b->op;
	b->l.fault = &b->fault;
	b->l.cores = CORES;
	b->l.core = b->core;
	b->l.group_size = 1;
	b->l.peer[0] = &b->l;
}

static struct cm_tensor *add(struct bench *b, uint8_t dtype, uint8_t layout, unsigned ndim,
			     uint64_t d0, uint64_t d1, uint64_t bytes)
{
	struct cm_tensor *t = &b->tensor[b->n++];

	assert_true(b->n <= MAX_TENSORS);
	*t = (struct cm_tensor){.ptr = aligned_alloc(64, bytes ? (bytes + 63) & ~63ull : 64),
				.dim = {d0, ndim > 1 ? d1 : 1, 1, 1},
				.bytes = bytes,
				.ndim = (uint8_t)ndim,
				.dtype = dtype,
				.layout = layout};
	assert_non_null(t->ptr);
	memset(t->ptr, 0, bytes);
	return t;
}

static struct cm_tensor *add_rows(struct bench *b, uint8_t dtype, uint64_t d0, uint64_t d1)
{
	return add(b, dtype, TXDA_ROWS, 2, d0, d1, d0 * d1 * (dtype == TXDA_BF16 ? 2 : 4));
}

static struct cm_tensor *add_vector(struct bench *b, uint8_t dtype, uint64_t n)
{
	return add(b, dtype, TXDA_ROWS, 1, n, 1, n * 4);
}

static void bench_free(struct bench *b)
{
	for (unsigned i = 0; i < b->n; i++)
		free(b->tensor[i].ptr);
	free(b->l.shared);
	for (unsigned i = 0; i < CORES; i++)
		free(b->core[i]);
}

static void provide(struct bench *b)
{
	struct cm_op_need need = {0};

	cm_op_impl(b->op.op)->need(&b->l, &need);
	b->l.shared_bytes = need.shared_bytes;
	b->l.core_bytes = need.core_bytes;
	b->l.shared = aligned_alloc(64, (need.shared_bytes + 64) & ~63ull);
	assert_non_null(b->l.shared);
	for (unsigned i = 0; i < CORES; i++) {
		b->core[i] = aligned_alloc(64, (need.core_bytes + 64) & ~63ull);
		assert_non_null(b->core[i]);
		memset(b->core[i], 0, need.core_bytes);
	}
}

static int check(struct bench *b)
{
	return cm_op_impl(b->op.op)->check(&b->l);
}

static void plan_and_run(struct bench *b)
{
	cm_op_impl(b->op.op)->plan(&b->l);
	for (unsigned phase = 0; phase < b->l.phases; phase++)
		for (unsigned part = 0; part < b->l.parts[phase]; part++)
			cm_op_run(&b->l, phase, part, part % CORES);
}

/* A width that is a symbol, and 0 in this launch: nothing has a row, not even a vector. */
TEST(test_no_width)
{
	static const unsigned opcodes[] = {TXDA_OP_RMSNORM, TXDA_OP_GATHER_ROWS,
					   TXDA_OP_ALL_REDUCE};

	for (unsigned i = 0; i < 3; i++) {
		struct bench b;

		bench_init(&b, opcodes[i]);
		b.l.in[0] = add_rows(&b, TXDA_F32, 100, 0);
		if (opcodes[i] == TXDA_OP_RMSNORM)
			b.l.in[1] = add_vector(&b, TXDA_F32, 0);
		if (opcodes[i] == TXDA_OP_GATHER_ROWS)
			b.l.in[1] = add_vector(&b, TXDA_I32, 100);
		b.l.out[0] = add_vector(&b, TXDA_F32, 100);
		assert_int_equal(check(&b), -EINVAL);
		assert_int_equal(b.fault.code, TXDA_FAULT_SHAPE);
		/* As it should be: two dimensions, and nothing to do. */
		b.l.out[0] = add_rows(&b, TXDA_F32, 100, 0);
		assert_int_equal(check(&b), 0);
		provide(&b);
		plan_and_run(&b);
		bench_free(&b);
	}
}

/* ---- attention and its cache ----------------------------------------------------------------- */

enum { DIM = 32, BLOCK = 16, BLOCKS = 8 };

/* @tokens by @seqs sequences, one head. */
static void attention(struct bench *b, uint64_t tokens, uint64_t seqs, uint64_t cols, bool precise)
{
	uint64_t layer = txda_kv_layer_bytes(1, DIM, BLOCK);

	bench_init(b, TXDA_OP_ATTENTION);
	b->l.precise = precise;
	b->l.in[0] = add_rows(b, precise ? TXDA_F32 : TXDA_BF16, tokens, DIM);
	b->l.in[1] = add(b, TXDA_BF16, TXDA_KV_PAGED, 2, BLOCKS, layer,
			 BLOCKS * layer * (precise ? 2 : 1));
	b->l.in[2] = add_rows(b, TXDA_I32, seqs, cols);
	b->l.in[3] = add_rows(b, TXDA_I32, seqs, 2);
	b->l.in[4] = add_vector(b, TXDA_I32, seqs);
	b->l.out[0] = add_rows(b, precise ? TXDA_F32 : TXDA_BF16, tokens, DIM);
	b->op.attention = (struct txda_op_attention){
		.n_heads = 1, .n_kv_heads = 1, .head_dim = DIM, .block_size = BLOCK, .scale = 1};
}

static void set_span(struct bench *b, uint64_t s, uint32_t first, uint32_t n, uint32_t context)
{
	((uint32_t *)b->l.in[3]->ptr)[2 * s] = first;
	((uint32_t *)b->l.in[3]->ptr)[2 * s + 1] = n;
	((uint32_t *)b->l.in[4]->ptr)[s] = context;
}

/* Precise mode doubles what is an activation; what is not is too small for float32. */
TEST(test_precise_types)
{
	struct bench b;

	for (unsigned i = 0; i < 4; i++) {
		struct cm_tensor *cache, *q, *out;

		attention(&b, 4, 1, 1, true);
		set_span(&b, 0, 0, 4, 16);
		cache = (struct cm_tensor *)b.l.in[1];
		q = (struct cm_tensor *)b.l.in[0];
		out = (struct cm_tensor *)b.l.out[0];
		if (i == 1)
			cache->bytes /= 2;
		if (i == 2)
			q->dtype = TXDA_BF16, q->bytes /= 2;
		if (i == 3)
			out->dtype = TXDA_BF16, out->bytes /= 2;
		assert_int_equal(check(&b), i ? -EINVAL : 0);
		if (i)
			assert_int_equal(b.fault.code, TXDA_FAULT_SHAPE);
		bench_free(&b);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct cm_tensor *cache;

		bench_init(&b, TXDA_OP_ROPE_KV);
		b.l.precise = true;
		b.l.in[0] = add_rows(&b, TXDA_F32, 4, 3 * DIM);
		b.l.in[1] = add_rows(&b, TXDA_F32, 4, DIM);
		b.l.in[2] = add_vector(&b, TXDA_I32, 4);
		b.l.out[0] = add_rows(&b, TXDA_F32, 4, DIM);
		cache = add(&b, TXDA_BF16, TXDA_KV_PAGED, 2, BLOCKS,
			    txda_kv_layer_bytes(1, DIM, BLOCK),
			    2 * BLOCKS * txda_kv_layer_bytes(1, DIM, BLOCK));
		b.l.out[1] = cache;
		b.op.rope_kv = (struct txda_op_rope_kv){
			.n_heads = 1, .n_kv_heads = 1, .head_dim = DIM, .block_size = BLOCK};
		if (i)
			cache->bytes /= 2;
		assert_int_equal(check(&b), i ? -EINVAL : 0);
		bench_free(&b);
	}
}

/* A context is an int32: one that is not would run over the end of the positions, for ever. */
TEST(test_endless_context)
{
	struct bench b;

	attention(&b, 1, 1, 1, false);
	/* A table that long; nobody is to look at it. */
	((struct cm_tensor *)b.l.in[2])->dim[1] = 1u << 28;
	b.op.attention.window = 1;
	set_span(&b, 0, 0, 1, 0xffffffc5);
	assert_int_equal(check(&b), -EINVAL);
	assert_int_equal(b.fault.code, TXDA_FAULT_INDEX);
	assert_int_equal(b.fault.detail, 0xffffffc5);
	bench_free(&b);
}

/* After check() every sequence claims all tokens: more work than there is room for. */
TEST(test_greedy_spans)
{
	enum { TOKENS = 512, SEQS = 64 };
	struct bench b;

	attention(&b, TOKENS, SEQS, TOKENS / BLOCK, false);
	for (uint32_t s = 0; s < SEQS; s++)
		set_span(&b, s, s * TOKENS / SEQS, TOKENS / SEQS, TOKENS);
	assert_int_equal(check(&b), 0);
	provide(&b);
	for (uint32_t s = 0; s < SEQS; s++)
		set_span(&b, s, 0, TOKENS, TOKENS);
	plan_and_run(&b);
	/* Those that overlap an earlier one have become nothing. */
	assert_int_equal(b.l.parts[0], TOKENS / 16);
	bench_free(&b);
}

/* ---- layers beside attention ----------------------------------------------------------------- */

enum { ROWS = 8, COLS = 40, LISTED = 6, HEADS = 2, KEY = 24, CHANNELS = 2 * KEY + HEADS * 20 };

/* A cache of @blocks blocks of @bytes each, in a tensor with room for BLOCKS. */
static struct cm_tensor *add_cache(struct bench *b, uint64_t blocks, uint64_t bytes)
{
	struct cm_tensor *t = add(b, TXDA_BF16, TXDA_KV_PAGED, 2, BLOCKS, (bytes + 63) & ~63ull,
				  BLOCKS * ((bytes + 63) & ~63ull) * (1 + b->l.precise));

	t->dim[0] = blocks;
	return t;
}

/* Block table (or as wide a state table), spans and contexts of two sequences, from input @at on. */
static void add_batch(struct bench *b, unsigned at)
{
	b->l.in[at] = add_rows(b, TXDA_I32, 2, COLS);
	b->l.in[at + 1] = add_rows(b, TXDA_I32, 2, 2);
	b->l.in[at + 2] = add_vector(b, TXDA_I32, 2);
}

static unsigned batch_at(const struct bench *b)
{
	return b->op.op == TXDA_OP_ATTENTION || b->op.op == TXDA_OP_DELTA_CONV ? 2 : 3;
}

static void batch_op(struct bench *b, unsigned opcode, uint64_t blocks, bool precise)
{
	bench_init(b, opcode);
	b->l.precise = precise;
	b->l.in[0] = add_rows(b, TXDA_F32, ROWS,
			      opcode == TXDA_OP_ATTENTION      ? DIM
			      : opcode == TXDA_OP_INDEX_SELECT ? HEADS * KEY
							       : CHANNELS);
	add_batch(b, batch_at(b));
	switch (opcode) {
	case TXDA_OP_ATTENTION:
		b->l.in[1] = add_cache(b, blocks, txda_kv_layer_bytes(1, DIM, BLOCK));
		b->l.out[0] = add_rows(b, TXDA_F32, ROWS, DIM);
		b->op.attention = (struct txda_op_attention){.n_heads = 1,
							     .n_kv_heads = 1,
							     .head_dim = DIM,
							     .block_size = BLOCK,
							     .scale = 1};
		break;
	case TXDA_OP_INDEX_SELECT:
		b->l.in[1] = add_rows(b, TXDA_F32, ROWS, HEADS);
		b->l.in[2] = add_cache(b, blocks, txda_index_layer_bytes(KEY, BLOCK));
		b->l.out[0] = add_rows(b, TXDA_I32, ROWS, LISTED);
		b->l.out[1] = add_rows(b, TXDA_I32, ROWS, LISTED + 1);
		b->op.index_select = (struct txda_op_index_select){.n_heads = HEADS,
								   .dim = KEY,
								   .block_size = BLOCK,
								   .keys = LISTED,
								   .out_col = 1};
		break;
	case TXDA_OP_DELTA_CONV:
		b->l.in[1] = add_rows(b, TXDA_F32, CHANNELS, 4);
		b->l.out[0] = add_rows(b, TXDA_F32, ROWS, CHANNELS);
		b->l.out[1] = add_cache(b, blocks, txda_conv_state_bytes(CHANNELS, 4));
		b->op.delta_conv = (struct txda_op_delta_conv){.first = 0};
		break;
	default:
		b->l.in[1] = add_rows(b, TXDA_F32, ROWS, 2 * HEADS);
		b->l.in[2] = add_rows(b, TXDA_F32, 2, HEADS);
		b->l.out[0] = add_rows(b, TXDA_F32, ROWS, HEADS * 20);
		b->l.out[1] = add_cache(b, blocks, HEADS * txda_delta_state_bytes(KEY, 20));
		b->op.delta_rule = (struct txda_op_delta_rule){.n_k_heads = 1,
							       .n_v_heads = HEADS,
							       .k_dim = KEY,
							       .v_dim = 20,
							       .per_block = HEADS};
	}
}

static const unsigned batch_ops[] = {TXDA_OP_ATTENTION, TXDA_OP_INDEX_SELECT, TXDA_OP_DELTA_CONV,
				     TXDA_OP_DELTA_RULE};

/* A cache without blocks suits an empty batch, and one that has tokens since check(), too. */
TEST(test_no_blocks)
{
	for (unsigned i = 0; i < 4; i++) {
		const uint32_t batch[] = {0, ROWS, ROWS};
		const struct cm_tensor *cache;
		struct bench b;

		batch_op(&b, batch_ops[i], 0, false);
		cache = i < 2 ? b.l.in[i + 1] : b.l.out[1];
		memset(cache->ptr, 0x3c, cache->bytes);
		memset(b.l.out[0]->ptr, 0x3c, b.l.out[0]->bytes);
		assert_int_equal(check(&b), 0);
		provide(&b);
		memcpy(b.l.in[batch_at(&b) + 1]->ptr, batch, 8);
		memcpy(b.l.in[batch_at(&b) + 2]->ptr, batch + 2, 4);
		plan_and_run(&b);
		for (uint64_t at = 0; at < cache->bytes; at++)
			assert_int_equal(((uint8_t *)cache->ptr)[at], 0x3c);
		/* Nothing was attended to, nothing is listed. */
		for (uint64_t at = 0; at < b.l.out[0]->bytes; at++)
			assert_int_equal(((uint8_t *)b.l.out[0]->ptr)[at],
					 batch_ops[i] == TXDA_OP_INDEX_SELECT ? 0xff : 0x3c);
		bench_free(&b);
	}
}

/* Spans that overlap since check(): the token is of the first that has it. */
TEST(test_overlapping_spans)
{
	static const uint32_t apart[] = {0, ROWS, ROWS, 0}, ctx[] = {ROWS, 0};
	struct bench b;

	batch_op(&b, TXDA_OP_INDEX_SELECT, BLOCKS, false);
	memcpy(b.l.in[4]->ptr, apart, sizeof(apart));
	memcpy(b.l.in[5]->ptr, ctx, sizeof(ctx));
	((uint32_t *)b.l.in[3]->ptr)[COLS] = 1; /* the second one's block */
	assert_int_equal(check(&b), 0);
	provide(&b);
	((uint32_t *)b.l.in[4]->ptr)[2] = 0;
	((uint32_t *)b.l.in[4]->ptr)[3] = ROWS;
	((uint32_t *)b.l.in[5]->ptr)[1] = ROWS;
	plan_and_run(&b);
	assert_int_equal(((uint32_t *)b.l.out[0]->ptr)[0], 0);
	bench_free(&b);
}

/* ---- somebody else writes -------------------------------------------------------------------- */

#define MAX_TARGETS 3u

/* A thread that writes values, some good and some bad, to index tensors. */
struct writer {
	struct {
		uint32_t *word;
		uint64_t n;
		uint32_t limit; /* good values are below */
	} target[MAX_TARGETS];
	unsigned n;
	atomic_bool started, stop;
	pthread_t thread;
};

static void *write_for_ever(void *arg)
{
	static const uint32_t bad[] = {0xffffffff, 0x80000000, 0x7fffffff, 0x10000, 600};
	struct writer *w = arg;
	uint64_t rng = 1;

	atomic_store(&w->started, true);
	while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		unsigned at;
		uint32_t value;

		rng = rng * 6364136223846793005ull + 1442695040888963407ull;
		at = (unsigned)(rng >> 60) % w->n;
		value = (uint32_t)(rng >> 32) % w->target[at].limit;
		/* Bad ones stay for a moment only, so that check() is often content. */
		__atomic_store_n(&w->target[at].word[(rng >> 20) % w->target[at].n],
				 bad[(rng >> 50) % 5], __ATOMIC_RELAXED);
		__atomic_store_n(&w->target[at].word[(rng >> 20) % w->target[at].n], value,
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static struct writer writer;
static struct bench bench, *const b = &bench;

static void begin(unsigned opcode, bool precise)
{
	writer.n = 0;
	bench_init(b, opcode);
	b->l.precise = precise;
}

static void target(const struct cm_tensor *t, uint32_t limit)
{
	writer.target[writer.n].word = t->ptr;
	writer.target[writer.n].n = t->bytes / 4;
	writer.target[writer.n++].limit = limit;
}

/* Launches while the thread writes. What comes out is nobody's business; where it goes is. */
static void run_against(void)
{
	unsigned ran = 0, content = 0;
	uint64_t end, read, written;

	provide(b);
	writer.started = writer.stop = false;
	assert_int_equal(pthread_create(&writer.thread, NULL, write_for_ever, &writer), 0);
	while (!atomic_load(&writer.started))
		sched_yield();
	for (end = clock_ms() + 150; clock_ms() < end; ran++) {
		/* Whatever check() says: that is what a change right after it would amount to. */
		content += check(b) == 0;
		plan_and_run(b);
		cm_op_impl(b->op.op)->traffic(&b->l, &read, &written);
	}
	atomic_store(&writer.stop, true);
	pthread_join(writer.thread, NULL);
	print_message("check() was content %u times of %u\n", content, ran);
	bench_free(b);
}

TEST(test_writer_rows)
{
	begin(TXDA_OP_EMBED, false);
	b->l.in[0] = add_vector(b, TXDA_I32, 4);
	b->l.in[1] = add(b, TXDA_F16, TXDA_TILE32, 2, 40, 8, 2 * 8 * 64);
	b->l.out[0] = add_rows(b, TXDA_F32, 4, 8);
	b->op.embed = (struct txda_op_embed){.first = 8, .vocab = 64, .scale = 1};
	target(b->l.in[0], 64);
	run_against();

	begin(TXDA_OP_GATHER_ROWS, false);
	b->l.in[0] = add_rows(b, TXDA_F32, 40, 8);
	b->l.in[1] = add_vector(b, TXDA_I32, 4);
	b->l.out[0] = add_rows(b, TXDA_F32, 4, 8);
	target(b->l.in[1], 40);
	run_against();
}

TEST(test_writer_rope)
{
	uint64_t layer = txda_kv_layer_bytes(1, DIM, BLOCK);

	begin(TXDA_OP_ROPE_TABLE, false);
	b->l.in[0] = add_vector(b, TXDA_I32, 4);
	b->l.in[1] = add_vector(b, TXDA_F32, 4);
	b->l.out[0] = add_rows(b, TXDA_F32, 4, 8);
	b->op.rope_table = (struct txda_op_rope_table){
		.scale = 1, .base = 10000, .factor = 2, .dynamic_from = 16, .max_position = 100};
	target(b->l.in[0], 100);
	run_against();

	for (unsigned precise = 0; precise < 2; precise++) {
		begin(TXDA_OP_ROPE_KV, precise);
		b->l.in[0] = add_rows(b, TXDA_F32, 4, 3 * DIM);
		b->l.in[1] = add_rows(b, TXDA_F32, 4, DIM);
		b->l.in[2] = add_vector(b, TXDA_I32, 4);
		b->l.out[0] = add_rows(b, TXDA_F32, 4, DIM);
		b->l.out[1] = add(b, TXDA_BF16, TXDA_KV_PAGED, 2, BLOCKS, layer,
				  BLOCKS * layer * (1 + precise));
		b->op.rope_kv = (struct txda_op_rope_kv){
			.n_heads = 1, .n_kv_heads = 1, .head_dim = DIM, .block_size = BLOCK};
		target(b->l.in[2], BLOCKS * BLOCK);
		run_against();
	}
}

TEST(test_writer_attention)
{
	for (unsigned precise = 0; precise < 2; precise++) {
		writer.n = 0;
		attention(b, 8, 2, 40, precise);
		set_span(b, 0, 0, 3, 600);
		set_span(b, 1, 4, 3, 40);
		target(b->l.in[2], BLOCKS);
		target(b->l.in[3], 8);
		target(b->l.in[4], 640);
		run_against();
	}
}

TEST(test_writer_batches)
{
	static const uint32_t spans[] = {0, 3, 4, 3}, ctx[] = {600, 40};

	/* The first has a test of its own. */
	for (unsigned i = 1; i < 4; i++)
		for (unsigned precise = 0; precise < 2; precise++) {
			writer.n = 0;
			batch_op(b, batch_ops[i], BLOCKS, precise);
			memcpy(b->l.in[batch_at(b) + 1]->ptr, spans, sizeof(spans));
			memcpy(b->l.in[batch_at(b) + 2]->ptr, ctx, sizeof(ctx));
			target(b->l.in[batch_at(b)], BLOCKS);
			target(b->l.in[batch_at(b) + 1], ROWS);
			target(b->l.in[batch_at(b) + 2], COLS * BLOCK);
			run_against();
		}
}

TEST(test_writer_slots)
{
	for (unsigned precise = 0; precise < 2; precise++) {
		begin(TXDA_OP_INDEX_STORE, precise);
		b->l.in[0] = add_rows(b, TXDA_F32, ROWS, HEADS * KEY);
		b->l.in[1] = add_rows(b, TXDA_F32, ROWS, 8);
		b->l.in[2] = add_vector(b, TXDA_I32, ROWS);
		b->l.in[3] = add_rows(b, TXDA_F32, ROWS, KEY);
		b->l.in[4] = add_vector(b, TXDA_F32, KEY);
		b->l.in[5] = add_vector(b, TXDA_F32, KEY);
		b->l.out[0] = add_rows(b, TXDA_F32, ROWS, HEADS * KEY);
		b->l.out[1] = add_cache(b, BLOCKS, txda_index_layer_bytes(KEY, BLOCK));
		b->op.index_store = (struct txda_op_index_store){
			.n_heads = HEADS, .dim = KEY, .block_size = BLOCK, .eps = 1e-6f};
		target(b->l.in[2], BLOCKS * BLOCK);
		run_against();

		begin(TXDA_OP_MLA_SPARSE, precise);
		b->l.in[0] = add_rows(b, TXDA_F32, ROWS, HEADS * KEY);
		b->l.in[1] = add_rows(b, TXDA_F32, ROWS, HEADS * 8);
		b->l.in[2] = add_cache(b, BLOCKS, txda_mla_layer_bytes(KEY, 8, BLOCK));
		b->l.in[3] = add_rows(b, TXDA_I32, ROWS, LISTED);
		b->l.out[0] = add_rows(b, TXDA_F32, ROWS, HEADS * KEY);
		b->op.mla_attention = (struct txda_op_mla_attention){.n_heads = HEADS,
								     .latent = KEY,
								     .rope = 8,
								     .block_size = BLOCK,
								     .scale = 1};
		target(b->l.in[3], BLOCKS * BLOCK);
		run_against();
	}
}

TEST(test_writer_images)
{
	begin(TXDA_OP_SPAN_ATTENTION, false);
	b->l.in[0] = add_rows(b, TXDA_F32, 40, 3 * DIM);
	b->l.in[1] = add_rows(b, TXDA_I32, 2, 2);
	b->l.out[0] = add_rows(b, TXDA_F32, 40, DIM);
	b->op.span_attention =
		(struct txda_op_span_attention){.n_heads = 1, .head_dim = DIM, .scale = 1};
	target(b->l.in[1], 41);
	run_against();

	begin(TXDA_OP_INTERPOLATE, false);
	b->l.in[0] = add_rows(b, TXDA_F32, ROWS, DIM);
	b->l.in[1] = add_rows(b, TXDA_F32, 40, DIM);
	b->l.in[2] = add_rows(b, TXDA_I32, ROWS, 4);
	b->l.in[3] = add_rows(b, TXDA_F32, ROWS, 4);
	b->l.out[0] = add_rows(b, TXDA_F32, ROWS, DIM);
	target(b->l.in[2], 40);
	run_against();

	begin(TXDA_OP_MERGE_ROWS, false);
	b->l.in[0] = add_rows(b, TXDA_F32, ROWS, DIM);
	b->l.in[1] = add_rows(b, TXDA_F32, 40, DIM + 4);
	b->l.in[2] = add_vector(b, TXDA_I32, ROWS);
	b->l.out[0] = add_rows(b, TXDA_F32, ROWS, DIM);
	b->op.merge_rows = (struct txda_op_merge_rows){.col = 4};
	target(b->l.in[2], 40);
	run_against();

	begin(TXDA_OP_ROPE_TABLE, false);
	b->l.in[0] = add_rows(b, TXDA_I32, ROWS, 3);
	b->l.in[1] = add_vector(b, TXDA_F32, 4);
	b->l.in[2] = add_vector(b, TXDA_I32, 4);
	b->l.out[0] = add_rows(b, TXDA_F32, ROWS, 8);
	b->op.rope_table = (struct txda_op_rope_table){.scale = 1, .max_position = 100};
	target(b->l.in[0], 100);
	target(b->l.in[2], 3);
	run_against();
}

static int choose_path(void **state)
{
	const char *name;

	return cm_ops_init("auto", &name);
}

TEST_MAIN_ALL(choose_path, NULL)
