// SPDX-License-Identifier: MIT
/* make_program FILE: writes a small program with each op, the seed of fuzz_exec. It runs without a
 * fault. */
#include "fuzz_exec.h"
#include "txda_isa.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TOKENS	    4u
#define SEQS	    2u
#define HIDDEN	    64u
#define HEADS	    2u
#define HEAD_DIM    16u
#define QKV	    ((HEADS + 2) * HEAD_DIM)
#define VOCAB	    40u
#define BLOCK	    16u
#define BLOCK_BYTES (HEAD_DIM * BLOCK * 2 * 2)
#define EXPERTS	    2u
#define LATENT	    16u
#define ROPE	    8u
#define KEYS	    3u

static struct txda_slot slot[FUZZ_SLOTS];
static struct txda_tensor tensor[112];
static struct txda_op op[48];
static char strings[4096];
static struct txda_program h = {
	.magic = TXDA_PROGRAM_MAGIC,
	.major = TXDA_ISA_MAJOR,
	.minor = TXDA_ISA_MINOR,
	.n_slots = FUZZ_SLOTS,
	.strings_bytes = 1,
	.group_size = 1,
	/* Room for the double size of precise mode. */
	.sym_max = {0, TOKENS, SEQS, SEQS, 2, 4},
};
static uint64_t used[FUZZ_SLOTS];

#define SYM(s, m) ((struct txda_dim){TXDA_SYM_##s, (m)})
#define DIM(m)	  ((struct txda_dim){TXDA_SYM_NONE, (m)})
#define NO	  ((struct txda_dim){0, 0})

static uint32_t name(const char *text)
{
	uint32_t at = h.strings_bytes;

	strcpy(strings + at, text);
	h.strings_bytes += (uint32_t)strlen(text) + 1;
	return at;
}

static uint32_t add(const char *text, uint16_t in_slot, uint8_t dtype, struct txda_dim d0,
		    struct txda_dim d1)
{
	struct txda_tensor *t = &tensor[h.n_tensors];

	*t = (struct txda_tensor){
		.name = name(text),
		.slot = in_slot,
		.dtype = dtype,
		.offset = used[in_slot],
		.ndim = d1.mul ? 2 : 1,
		.flags = in_slot == FUZZ_SCRATCH ? TXDA_TENSOR_ACTIVATION : 0,
		.dim = {d0, d1},
	};
	/* More than any tensor here takes; tensors of an INPUT slot all see its first bytes. */
	if (in_slot == FUZZ_WEIGHTS || in_slot == FUZZ_SCRATCH || in_slot == FUZZ_OUTPUT)
		used[in_slot] += in_slot == FUZZ_WEIGHTS ? 8192 : 2048;
	return h.n_tensors++;
}

static uint32_t tiles(const char *text, uint8_t dtype, uint8_t layout, uint32_t n, uint32_t k)
{
	uint32_t i = add(text, FUZZ_WEIGHTS, dtype, DIM(n), DIM(k));

	tensor[i].layout = layout;
	tensor[i].group = txda_is_grouped(dtype) ? 32 : 0;
	return i;
}

static uint32_t stack(const char *text, uint8_t dtype, uint8_t layout, uint32_t n, uint32_t k)
{
	uint32_t i = tiles(text, dtype, layout, n, k);

	tensor[i].ndim = 3;
	tensor[i].dim[2] = tensor[i].dim[1];
	tensor[i].dim[1] = tensor[i].dim[0];
	tensor[i].dim[0] = DIM(EXPERTS);
	return i;
}

static struct txda_op *run(const char *label, uint16_t opcode, const uint32_t *in, unsigned n_in,
			   uint32_t out)
{
	struct txda_op *o = &op[h.n_ops++];

	*o = (struct txda_op){.op = opcode, .label = name(label)};
	for (unsigned i = 0; i < 6; i++)
		o->in[i] = i < n_in ? in[i] : TXDA_NONE;
	for (unsigned i = 0; i < 3; i++)
		o->out[i] = i ? TXDA_NONE : out;
	return o;
}

#define IN(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4

/* Experts over x. */
static void make_experts(uint32_t x, uint32_t norm)
{
	const struct txda_dim T = SYM(T, 1), chosen = SYM(T, 2), hidden = DIM(HIDDEN);
	uint32_t w_route = tiles("w_route", TXDA_F8, TXDA_TILE32, EXPERTS, HIDDEN);
	uint32_t biases = add("biases", FUZZ_WEIGHTS, TXDA_F32, DIM(EXPERTS), hidden);
	uint32_t w_in = stack("w_in", TXDA_MX4, TXDA_TILE32_GATED, HIDDEN, HIDDEN);
	uint32_t w_out = stack("w_out", TXDA_BF16, TXDA_TILE32, HIDDEN, HIDDEN / 2);
	uint32_t scores = add("scores", FUZZ_SCRATCH, TXDA_F32, T, DIM(EXPERTS));
	uint32_t ids = add("ids", FUZZ_SCRATCH, TXDA_I32, T, DIM(2));
	uint32_t weights = add("weights", FUZZ_SCRATCH, TXDA_F32, T, DIM(2));
	uint32_t inner = add("inner", FUZZ_SCRATCH, TXDA_BF16, chosen, DIM(HIDDEN / 2));
	uint32_t y = add("experts", FUZZ_SCRATCH, TXDA_F32, chosen, hidden);
	uint32_t half = add("half", FUZZ_SCRATCH, TXDA_F32, T, DIM(HIDDEN / 2));
	struct txda_op *o;

	o = run("route", TXDA_OP_LINEAR, IN(x, w_route, TXDA_NONE, norm), scores);
	o->linear.eps = 1e-5f;
	o = run("choose", TXDA_OP_ROUTE, IN(scores), ids);
	o->out[1] = weights;
	o->route = (struct txda_op_route){2, 1, 1, TXDA_ROUTE_NORMALISE, 1};
	o = run("in", TXDA_OP_MOE_LINEAR, IN(x, w_in, ids, norm, TXDA_NONE, biases), inner);
	o->moe_linear =
		(struct txda_op_moe_linear){TXDA_ACT_SWIGLU_CLAMPED, 1e-5f, 0, 0, 0, EXPERTS, 7};
	o = run("out", TXDA_OP_MOE_LINEAR, IN(inner, w_out, ids), y);
	o->moe_linear.n_experts = EXPERTS;
	o = run("combine", TXDA_OP_MOE_COMBINE, IN(y, ids, weights, x), x);
	o->moe_combine = (struct txda_op_moe_combine){0, EXPERTS};
	o = run("silu", TXDA_OP_SILU_MUL, IN(x), half);
	o->silu_mul.act = TXDA_ACT_GELU_GATED;
}

/* Latent attention in the same cache: whatever is in scratch will do. */
static void make_latent(uint32_t tokens, uint32_t slots, uint32_t blocks, uint32_t spans,
			uint32_t context, uint32_t cache)
{
	const struct txda_dim T = SYM(T, 1);
	uint32_t freq = add("latent_freq", FUZZ_WEIGHTS, TXDA_F32, DIM(ROPE / 2), NO);
	uint32_t norm = add("latent_norm", FUZZ_WEIGHTS, TXDA_F32, DIM(LATENT), NO);
	uint32_t table = add("latent_table", FUZZ_SCRATCH, TXDA_F32, T, DIM(ROPE));
	uint32_t q = add("q_rope", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS * ROPE));
	uint32_t kv = add("kv", FUZZ_SCRATCH, TXDA_F32, T, DIM(LATENT + ROPE));
	uint32_t turned = add("turned", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS * ROPE));
	uint32_t latent = add("q_latent", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS * LATENT));
	uint32_t out = add("latents", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS * LATENT));
	uint32_t q_index = add("q_index", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS * LATENT));
	uint32_t weights = add("index_weights", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEADS));
	uint32_t k_index = add("k_index", FUZZ_SCRATCH, TXDA_F32, T, DIM(LATENT));
	uint32_t list = add("list", FUZZ_SCRATCH, TXDA_I32, T, DIM(KEYS));
	struct txda_op *o;

	o = run("latent_rope", TXDA_OP_ROPE_TABLE, IN(tokens, freq), table);
	o->rope_table = (struct txda_op_rope_table){1, 10000, 1, 0, 128};
	o = run("store", TXDA_OP_MLA_STORE, IN(q, table, slots, kv, norm), turned);
	o->out[1] = cache;
	o->mla_store = (struct txda_op_mla_store){HEADS, LATENT, ROPE, BLOCK, 0, 1e-6f, 1};
	o = run("latent", TXDA_OP_MLA_ATTENTION, IN(latent, turned, cache, blocks, spans, context),
		out);
	o->mla_attention = (struct txda_op_mla_attention){HEADS, LATENT, ROPE, BLOCK, 0, 0.25f};
	o = run("index_store", TXDA_OP_INDEX_STORE, IN(q_index, table, slots, k_index, norm, norm),
		q_index);
	o->out[1] = cache;
	o->index_store = (struct txda_op_index_store){HEADS, LATENT, BLOCK, 0, 512, 1e-6f};
	o = run("index", TXDA_OP_INDEX_SELECT, IN(q_index, weights, cache, blocks, spans, context),
		list);
	o->index_select = (struct txda_op_index_select){HEADS, LATENT, BLOCK, KEYS, 512};
	o = run("sparse", TXDA_OP_MLA_SPARSE, IN(latent, turned, cache, list), out);
	o->mla_attention = (struct txda_op_mla_attention){HEADS, LATENT, ROPE, BLOCK, 0, 0.25f};
}

/* A gated delta net with a key head of 4 and two of 4 for values, over two tokens. */
static void make_delta(uint32_t spans, uint32_t context, uint32_t cache)
{
	const struct txda_dim T = SYM(T, 1);
	uint32_t states = add("states", FUZZ_INDICES, TXDA_I32, SYM(S, 1), DIM(7));
	uint32_t kernel = add("kernel", FUZZ_SCRATCH, TXDA_F32, DIM(16), DIM(2));
	uint32_t decays = add("decays", FUZZ_SCRATCH, TXDA_F32, DIM(2), DIM(2));
	uint32_t x = add("channels", FUZZ_SCRATCH, TXDA_F32, T, DIM(16));
	uint32_t mixed = add("mixed", FUZZ_SCRATCH, TXDA_F32, T, DIM(16));
	uint32_t ba = add("ba", FUZZ_SCRATCH, TXDA_F32, T, DIM(4));
	uint32_t out = add("delta", FUZZ_SCRATCH, TXDA_F32, T, DIM(8));
	struct txda_op *o;

	o = run("conv", TXDA_OP_DELTA_CONV, IN(x, kernel, states, spans, context), mixed);
	o->out[1] = cache;
	o->delta_conv = (struct txda_op_delta_conv){0, 0, 512};
	o = run("rule", TXDA_OP_DELTA_RULE, IN(mixed, ba, decays, states, spans, context), out);
	o->out[1] = cache;
	o->delta_rule = (struct txda_op_delta_rule){1, 2, 4, 4, 576, 0, 1};
	o = run("gate", TXDA_OP_GATE, IN(out, out), out);
	o->gate.flags = TXDA_GATE_SILU;
}

/* What towers do, over whatever is in scratch. */
static void make_tower(uint32_t x, uint32_t tokens, uint32_t spans, uint32_t norm)
{
	const struct txda_dim T = SYM(T, 1), hidden = DIM(HIDDEN);
	uint32_t bias = add("shift", FUZZ_WEIGHTS, TXDA_F32, hidden, NO);
	uint32_t places = add("places", FUZZ_WEIGHTS, TXDA_F32, DIM(4), hidden);
	uint32_t taps = add("taps", FUZZ_SCRATCH, TXDA_I32, T, DIM(2));
	uint32_t shares = add("shares", FUZZ_SCRATCH, TXDA_F32, T, DIM(2));
	uint32_t axes = add("axes", FUZZ_WEIGHTS, TXDA_I32, DIM(HIDDEN / 4), NO);
	uint32_t freq = add("tower_freq", FUZZ_WEIGHTS, TXDA_F32, DIM(HIDDEN / 4), NO);
	uint32_t table = add("tower_table", FUZZ_SCRATCH, TXDA_F32, T, DIM(HIDDEN / 2));
	uint32_t qkv = add("tower_qkv", FUZZ_SCRATCH, TXDA_F32, T, DIM(3 * HIDDEN));
	struct txda_op *o;

	o = run("layernorm", TXDA_OP_LAYERNORM, IN(x, norm, bias), x);
	o->layernorm = (struct txda_op_layernorm){1e-6f, TXDA_ACT_GELU};
	run("places", TXDA_OP_INTERPOLATE, IN(x, places, taps, shares), x);
	o = run("axes", TXDA_OP_ROPE_TABLE, IN(taps, freq, axes), table);
	o->rope_table = (struct txda_op_rope_table){1, 0, 0, 0, 128};
	o = run("both ways", TXDA_OP_SPAN_ATTENTION, IN(qkv, spans, table), x);
	o->span_attention = (struct txda_op_span_attention){2, HIDDEN / 2, 0.25f};
	o = run("merge", TXDA_OP_MERGE_ROWS, IN(x, x, tokens), x);
	o->merge_rows.flags = TXDA_MERGE_ADD;
}

static void make(void)
{
	const struct txda_dim T = SYM(T, 1), S = SYM(S, 1), R = SYM(R, 1), hidden = DIM(HIDDEN);
	uint32_t tokens = add("tokens", FUZZ_INDICES, TXDA_I32, T, NO);
	uint32_t slots = add("slots", FUZZ_INDICES, TXDA_I32, T, NO);
	uint32_t rows = add("rows", FUZZ_INDICES, TXDA_I32, R, NO);
	uint32_t blocks = add("blocks", FUZZ_INDICES, TXDA_I32, S, SYM(B, 1));
	uint32_t spans = add("spans", FUZZ_SPANS, TXDA_I32, S, DIM(2));
	uint32_t context = add("context", FUZZ_CONTEXT, TXDA_I32, S, NO);
	uint32_t cache = add("cache", FUZZ_KV, TXDA_BF16, SYM(N, 1), DIM(BLOCK_BYTES));
	uint32_t table = tiles("embed", TXDA_BF16, TXDA_TILE32, VOCAB, HIDDEN);
	uint32_t norm = add("norm", FUZZ_WEIGHTS, TXDA_F32, hidden, NO);
	uint32_t bias = add("bias", FUZZ_WEIGHTS, TXDA_F32, DIM(QKV), NO);
	uint32_t freq = add("inv_freq", FUZZ_WEIGHTS, TXDA_F32, DIM(HEAD_DIM / 2), NO);
	uint32_t sinks = add("sinks", FUZZ_WEIGHTS, TXDA_F32, DIM(HEADS), NO);
	uint32_t w_qkv = tiles("w_qkv", TXDA_W8, TXDA_TILE32, QKV, HIDDEN);
	uint32_t w_o = tiles("w_o", TXDA_F16, TXDA_TILE32, HIDDEN, HEADS * HEAD_DIM);
	uint32_t w_up = tiles("w_up", TXDA_W4, TXDA_TILE32_GATED, 2 * HIDDEN, HIDDEN);
	uint32_t w_head = tiles("w_head", TXDA_F32, TXDA_TILE32, 32, HIDDEN);
	uint32_t x = add("x", FUZZ_SCRATCH, TXDA_F32, T, hidden);
	uint32_t y = add("y", FUZZ_SCRATCH, TXDA_BF16, T, hidden);
	uint32_t qkv = add("qkv", FUZZ_SCRATCH, TXDA_F32, T, DIM(QKV));
	uint32_t rope = add("rope", FUZZ_SCRATCH, TXDA_F32, T, DIM(HEAD_DIM));
	uint32_t q = add("q", FUZZ_SCRATCH, TXDA_BF16, T, DIM(HEADS * HEAD_DIM));
	uint32_t att = add("attention", FUZZ_SCRATCH, TXDA_BF16, T, DIM(HEADS * HEAD_DIM));
	uint32_t up = add("up", FUZZ_SCRATCH, TXDA_F32, T, hidden);
	uint32_t last = add("last", FUZZ_SCRATCH, TXDA_F32, R, hidden);
	uint32_t logits = add("logits", FUZZ_SCRATCH, TXDA_F32, R, DIM(32));
	uint32_t all = add("all", FUZZ_OUTPUT, TXDA_F32, R, DIM(32));
	uint32_t top = add("top", FUZZ_OUTPUT, TXDA_I32, R, DIM(4));
	uint32_t value = add("value", FUZZ_OUTPUT, TXDA_F32, R, DIM(4));
	uint32_t lse = add("lse", FUZZ_OUTPUT, TXDA_F32, R, NO);
	struct txda_op *o;

	tensor[cache].layout = TXDA_KV_PAGED;
	tensor[cache].flags = TXDA_TENSOR_ACTIVATION;
	o = run("embed", TXDA_OP_EMBED, IN(tokens, table), x);
	o->embed = (struct txda_op_embed){0, VOCAB, 1};
	o = run("rope", TXDA_OP_ROPE_TABLE, IN(tokens, freq), rope);
	o->rope_table = (struct txda_op_rope_table){1, 10000, 1, 0, 128};
	o = run("norm", TXDA_OP_RMSNORM, IN(x, norm), y);
	o->rmsnorm.eps = 1e-5f;
	o = run("qkv", TXDA_OP_LINEAR, IN(x, w_qkv, bias, norm), qkv);
	o->linear.eps = 1e-5f;
	o = run("rope_kv", TXDA_OP_ROPE_KV, IN(qkv, rope, slots), q);
	o->out[1] = cache;
	o->rope_kv = (struct txda_op_rope_kv){HEADS, 1, HEAD_DIM, BLOCK, 0, 1e-5f, 0};
	o = run("attention", TXDA_OP_ATTENTION, IN(q, cache, blocks, spans, context, sinks), att);
	o->attention =
		(struct txda_op_attention){HEADS, 1, HEAD_DIM, BLOCK, 0, 0.25f, .softcap = 30};
	run("o", TXDA_OP_LINEAR, IN(att, w_o, TXDA_NONE, TXDA_NONE, x), x);
	o = run("up", TXDA_OP_LINEAR, IN(x, w_up, TXDA_NONE, norm), up);
	o->linear = (struct txda_op_linear){TXDA_ACT_SILU_GATED, 1e-5f};
	make_experts(x, norm);
	make_latent(tokens, slots, blocks, spans, context, cache);
	make_delta(spans, context, cache);
	make_tower(x, tokens, spans, norm);
	run("reduce", TXDA_OP_ALL_REDUCE, IN(up, x), x);
	run("gather", TXDA_OP_GATHER_ROWS, IN(x, rows), last);
	o = run("head", TXDA_OP_LINEAR, IN(last, w_head), logits);
	o->linear = (struct txda_op_linear){.act = TXDA_ACT_SOFTCAP, .limit = 20};
	run("all", TXDA_OP_ALL_GATHER, IN(logits), all);
	o = run("top", TXDA_OP_TOPK, IN(all), top);
	o->topk.k = 4;
	o->out[1] = value;
	o->out[2] = lse;
}

static uint32_t round_up(uint32_t at)
{
	return (at + 7) & ~7u;
}

static int put(FILE *file, uint32_t at, const void *data, size_t bytes)
{
	return fseek(file, at, SEEK_SET) || fwrite(data, 1, bytes, file) != bytes;
}

int main(int argc, char **argv)
{
	static const char *const names[FUZZ_SLOTS] = {"weights", "kv",	    "scratch", "indices",
						      "spans",	 "context", "output"};
	static const uint32_t kinds[FUZZ_SLOTS] = {
		TXDA_SLOT_WEIGHTS, TXDA_SLOT_KV,    TXDA_SLOT_SCRATCH, TXDA_SLOT_INPUT,
		TXDA_SLOT_INPUT,   TXDA_SLOT_INPUT, TXDA_SLOT_OUTPUT};
	FILE *file = argc == 2 ? fopen(argv[1], "wb") : NULL;
	int bad;

	if (!file) {
		perror(argc == 2 ? argv[1] : "usage: make_program FILE");
		return 1;
	}
	h.name = name("seed");
	for (unsigned i = 0; i < FUZZ_SLOTS; i++)
		slot[i] = (struct txda_slot){name(names[i]), kinds[i],
					     i == FUZZ_KV ? BLOCK_BYTES : FUZZ_SLOT_BYTES};
	make();
	h.slots_off = sizeof(h);
	h.tensors_off = h.slots_off + h.n_slots * (uint32_t)sizeof(*slot);
	h.ops_off = h.tensors_off + h.n_tensors * (uint32_t)sizeof(*tensor);
	h.strings_off = h.ops_off + h.n_ops * (uint32_t)sizeof(*op);
	h.bytes = round_up(h.strings_off + h.strings_bytes);
	/* The length and the checksum are for fuzz_exec to put right. */
	bad = put(file, 0, &h, sizeof(h)) ||
	      put(file, h.slots_off, slot, h.n_slots * sizeof(*slot)) ||
	      put(file, h.tensors_off, tensor, h.n_tensors * sizeof(*tensor)) ||
	      put(file, h.ops_off, op, h.n_ops * sizeof(*op)) ||
	      put(file, h.strings_off, strings, h.strings_bytes);
	if (fclose(file) || bad) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}
