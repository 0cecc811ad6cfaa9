// SPDX-License-Identifier: MIT
/*
 * Quantised checkpoints of every format and odd group sizes, made here code by code, against the
 * same model with the float32 weights that the codes mean: one chip and several, precise and not.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>

#include "floats.h"
#include "runner.h"
#include "unit.h"

#define TOKENS 21
#define HIDDEN 96
#define INNER  136
#define HEADS  4
#define KV     2
#define DIM    20
#define VOCAB  88

enum format { PLAIN, GPTQ, AWQ, FP8, PACKED, INT8 };

struct quant_case {
	const char *name;
	enum format format;
	unsigned bits, group; /* columns that share a scale; 0: all */
	bool act_order, zeros, v2;
	unsigned block_rows; /* FP8: 0 a tensor, 1 a row */
	bool one_scale;	     /* int8: of a tensor */
	/* of down_proj and k_proj, if not 0 */
	unsigned other_bits, other_group;
	const char *config;
};

#define QUANT(method, rest) ", \"quantization_config\": {\"quant_method\": \"" method "\"" rest "}"
#define GROUPS(rest)                                                                               \
	", \"config_groups\": {\"group_0\": {\"weights\": {" rest ", \"symmetric\": true}}}"

static const struct quant_case cases[] = {
	{"gptq, 32", GPTQ, 4, 32, .config = QUANT("gptq", ", \"bits\": 4, \"group_size\": 32")},
	{"gptq, one group", GPTQ, 4, 0, .zeros = true,
	 .config = QUANT("gptq", ", \"bits\": 4, \"group_size\": -1")},
	{"gptq, groups of 24", GPTQ, 4, 24, .zeros = true,
	 .config = QUANT("gptq", ", \"bits\": 4, \"group_size\": 24")},
	{"gptq, act-order, version 2", GPTQ, 4, 32, true, true, true,
	 .config = QUANT("gptq", ", \"bits\": 4, \"group_size\": 32, \"desc_act\": true, "
				 "\"checkpoint_format\": \"gptq_v2\"")},
	{"gptq, 8 bits", GPTQ, 8, 64, .config = QUANT("gptq", ", \"bits\": 8, \"group_size\": 64")},
	{"gptq, 8 bits, act-order, odd groups", GPTQ, 8, 20, true, true,
	 .config = QUANT("gptq", ", \"bits\": 8, \"group_size\": 20, \"desc_act\": true")},
	{"gptq, mixed", GPTQ, 4, 32, .zeros = true, .other_bits = 8, .other_group = 8,
	 .config = QUANT("gptq",
			 ", \"bits\": 4, \"group_size\": 32, \"dynamic\": {\"+:.*(down|k)_proj\": "
			 "{\"bits\": 8, \"group_size\": 8}}")},
	{"awq, 16", AWQ, 4, 16, .zeros = true,
	 .config = QUANT("awq", ", \"bits\": 4, \"group_size\": 16, \"version\": \"gemm\"")},
	{"awq, 128, older keys", AWQ, 4, 128, .zeros = true,
	 .config = QUANT("awq", ", \"w_bit\": 4, \"q_group_size\": 128, \"version\": \"GEMM\"")},
	{"fp8, blocks", FP8, 8, 128, .block_rows = 128,
	 .config = QUANT("fp8", ", \"weight_block_size\": [128, 128]")},
	{"fp8, odd blocks", FP8, 8, 40, .block_rows = 24,
	 .config = QUANT("fp8", ", \"weight_block_size\": [24, 40]")},
	{"fp8, one scale", FP8, 8, 0, .config = QUANT("fp8", "")},
	{"compressed-tensors, 4 bits", PACKED, 4, 32,
	 .config = QUANT("compressed-tensors",
			 ", \"format\": \"pack-quantized\"" GROUPS(
				 "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 32"))},
	{"compressed-tensors, int8", INT8, 8, 0,
	 .config = QUANT("compressed-tensors",
			 ", \"format\": \"int-quantized\"" GROUPS(
				 "\"num_bits\": 8, \"strategy\": \"channel\""))},
	{"compressed-tensors, int8, zero points", INT8, 8, 0, .zeros = true,
	 .config = QUANT("compressed-tensors",
			 ", \"format\": \"int-quantized\"" GROUPS(
				 "\"num_bits\": 8, \"strategy\": \"channel\""))},
	{"compressed-tensors, int8, act-order", INT8, 8, 24, true, true,
	 .config = QUANT("compressed-tensors",
			 ", \"format\": \"int-quantized\"" GROUPS(
				 "\"num_bits\": 8, \"strategy\": \"group\", \"group_size\": 24"))},
	{"compressed-tensors, int8, one scale and zero point", INT8, 8, 0, .zeros = true,
	 .one_scale = true,
	 .config =
		 QUANT("compressed-tensors", ", \"format\": \"int-quantized\"" GROUPS(
						     "\"num_bits\": 8, \"strategy\": \"tensor\""))},
	{"compressed-tensors, fp8 rows", FP8, 8, 0, .block_rows = 1,
	 .config = QUANT("compressed-tensors",
			 ", \"format\": \"float-quantized\"" GROUPS(
				 "\"num_bits\": 8, \"strategy\": \"channel\""))},
};

static uint64_t rng;

static uint32_t next(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33);
}

static float unit(void)
{
	return (float)next() / 1073741824.0f - 1;
}

/* ---- a safetensors file that grows ---- */

struct file {
	char header[1 << 16];
	size_t header_bytes;
	uint8_t *data;
	size_t bytes;
};

static uint8_t *add(struct file *f, const char *name, const char *suffix, const char *dtype,
		    unsigned size, unsigned d0, unsigned d1)
{
	size_t n = (size_t)(d0 ? d0 : 1) * (d1 ? d1 : 1) * size;
	char shape[32] = "";

	if (d0)
		snprintf(shape, sizeof(shape), d1 ? "%u,%u" : "%u", d0, d1);
	f->header_bytes += (size_t)snprintf(
		f->header + f->header_bytes, sizeof(f->header) - f->header_bytes,
		"%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
		"\"data_offsets\":[%zu,%zu]}",
		f->header_bytes ? "," : "", name, suffix, dtype, shape, f->bytes, f->bytes + n);
	f->data = realloc(f->data, f->bytes + n);
	memset(f->data + f->bytes, 0, n);
	f->bytes += n;
	return f->data + f->bytes - n;
}

static void save(struct file *f, const char *dir)
{
	uint64_t n = f->header_bytes + 2;
	char path[512];
	FILE *out;

	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(&n, 8, 1, out);
	fprintf(out, "{%s}", f->header);
	fwrite(f->data, 1, f->bytes, out);
	assert_int_equal(fclose(out), 0);
	free(f->data);
}

/* ---- weights ---- */

static void put_nibble(uint8_t *words, unsigned bits, size_t index, unsigned shift_index,
		       unsigned v)
{
	uint32_t u;

	memcpy(&u, words + index * 4, 4);
	u |= v << shift_index * bits;
	memcpy(words + index * 4, &u, 4);
}

static void put_half(uint8_t *to, size_t i, float f)
{
	uint16_t h = float_to_f16(f);

	memcpy(to + 2 * i, &h, 2);
}

static float half(float f)
{
	return f16_to_float(float_to_f16(f));
}

/* The value of an E4M3 code, from its definition. */
static double e4m3(uint8_t v)
{
	double m = (v & 7) / 8.0, x = v >> 3 & 15 ? ldexp(1 + m, (v >> 3 & 15) - 7) : ldexp(m, -6);

	return v & 0x80 ? -x : x;
}

struct matrix {
	unsigned n, k, groups, *group_of, *code; /* code[n][k] */
	float *scale, *value;			 /* scale[groups][n], value[n][k] */
	unsigned *zero;				 /* [groups][n] */
};

static struct matrix make_matrix(const struct quant_case *c, unsigned n, unsigned k)
{
	unsigned group = c->group && c->group < k ? c->group : k, middle = 1u << (c->bits - 1);
	struct matrix m = {n, k, (k + group - 1) / group};

	m.group_of = calloc(k, sizeof(*m.group_of));
	m.code = calloc((size_t)n * k, sizeof(*m.code));
	m.value = calloc((size_t)n * k, sizeof(*m.value));
	m.scale = calloc((size_t)m.groups * n, sizeof(*m.scale));
	m.zero = calloc((size_t)m.groups * n, sizeof(*m.zero));
	for (unsigned i = 0; i < k; i++)
		m.group_of[i] = i / group;
	for (unsigned i = k; c->act_order && i-- > 1;) {
		unsigned j = next() % (i + 1), t = m.group_of[i];

		m.group_of[i] = m.group_of[j];
		m.group_of[j] = t;
	}
	for (unsigned i = 0; i < m.groups * n; i++) {
		m.scale[i] = half((0.6f + 0.4f * unit()) / (float)(middle * sqrt(k)));
		m.zero[i] = c->zeros ? middle - 3 + next() % 7 : middle;
	}
	for (unsigned i = 1; c->one_scale && i < m.groups * n; i++) {
		m.scale[i] = m.scale[0];
		m.zero[i] = m.zero[0];
	}
	for (unsigned r = 0; c->format == FP8 && r < n; r++)
		for (unsigned g = 0; g < m.groups; g++) {
			/* rows of a block share it */
			unsigned from = c->block_rows ? r / c->block_rows * c->block_rows : 0;

			m.scale[g * n + r] = m.scale[g * n + from];
		}
	for (unsigned i = 0; i < n * k; i++) {
		unsigned at = m.group_of[i % k] * n + i / k;

		m.code[i] = next() % (2 * middle);
		if (c->format == FP8) {
			m.code[i] &= 0xbf; /* no NaN, and not too wide a range */
			m.value[i] = (float)(e4m3((uint8_t)m.code[i]) * m.scale[at] * 40);
		} else {
			m.value[i] = m.scale[at] * (float)((int)m.code[i] - (int)m.zero[at]);
		}
	}
	for (unsigned i = 0; c->format == FP8 && i < m.groups * n; i++)
		m.scale[i] *= 40;
	return m;
}

static void free_matrix(struct matrix *m)
{
	free(m->group_of), free(m->code), free(m->value), free(m->scale), free(m->zero);
}

static void add_gptq(struct file *f, const struct quant_case *c, const char *name,
		     const struct matrix *m)
{
	unsigned per = 32 / c->bits, zw = (m->n + per - 1) / per, mask = (1u << c->bits) - 1;
	uint8_t *p = add(f, name, ".qweight", "I32", 4, m->k / per, m->n);

	for (unsigned i = 0; i < m->n * m->k; i++)
		put_nibble(p, c->bits, (size_t)(i % m->k / per) * m->n + i / m->k, i % m->k % per,
			   m->code[i]);
	p = add(f, name, ".qzeros", "I32", 4, m->groups, zw);
	for (unsigned i = 0; i < m->groups * m->n; i++)
		put_nibble(p, c->bits, (size_t)(i / m->n) * zw + i % m->n / per, i % m->n % per,
			   (m->zero[i] - !c->v2) & mask);
	p = add(f, name, ".scales", "F16", 2, m->groups, m->n);
	for (unsigned i = 0; i < m->groups * m->n; i++)
		put_half(p, i, m->scale[i]);
	p = add(f, name, ".g_idx", "I32", 4, m->k, 0);
	memcpy(p, m->group_of, m->k * 4);
}

static void add_awq(struct file *f, const char *name, const struct matrix *m)
{
	static const unsigned order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* column in nibble i */
	uint8_t *w = add(f, name, ".qweight", "I32", 4, m->k, m->n / 8), *z, *s;

	for (unsigned k = 0; k < m->k; k++)
		for (unsigned n = 0; n < m->n; n += 8)
			for (unsigned i = 0; i < 8; i++)
				put_nibble(w, 4, (size_t)k * (m->n / 8) + n / 8, i,
					   m->code[(n + order[i]) * m->k + k]);
	z = add(f, name, ".qzeros", "I32", 4, m->groups, m->n / 8);
	for (unsigned g = 0; g < m->groups; g++)
		for (unsigned n = 0; n < m->n; n += 8)
			for (unsigned i = 0; i < 8; i++)
				put_nibble(z, 4, (size_t)g * (m->n / 8) + n / 8, i,
					   m->zero[g * m->n + n + order[i]]);
	s = add(f, name, ".scales", "F16", 2, m->groups, m->n);
	for (unsigned i = 0; i < m->groups * m->n; i++)
		put_half(s, i, m->scale[i]);
}

static void add_fp8(struct file *f, const struct quant_case *c, const char *name,
		    const struct matrix *m)
{
	uint8_t *p = add(f, name, ".weight", "F8_E4M3", 1, m->n, m->k);
	unsigned rows = c->block_rows ? (m->n + c->block_rows - 1) / c->block_rows : 1;

	for (unsigned i = 0; i < m->n * m->k; i++)
		p[i] = (uint8_t)m->code[i];
	if (!c->block_rows)
		p = add(f, name, ".weight_scale", "F32", 4, 0, 0);
	else
		p = add(f, name, c->block_rows == 1 ? ".weight_scale" : ".weight_scale_inv", "F32",
			4, rows, m->groups);
	for (unsigned r = 0; r < rows; r++)
		for (unsigned g = 0; g < m->groups; g++)
			memcpy(p + (r * m->groups + g) * 4,
			       &m->scale[g * m->n + r * (c->block_rows ? c->block_rows : 0)], 4);
}

static void add_packed(struct file *f, const char *name, const struct matrix *m)
{
	unsigned words = (m->k + 7) / 8;
	uint8_t *p = add(f, name, ".weight_packed", "I32", 4, m->n, words);

	for (unsigned i = 0; i < m->n * m->k; i++)
		put_nibble(p, 4, (size_t)(i / m->k) * words + i % m->k / 8, i % 8, m->code[i]);
	p = add(f, name, ".weight_scale", "F16", 2, m->n, m->groups);
	for (unsigned i = 0; i < m->groups * m->n; i++)
		put_half(p, (size_t)(i % m->n) * m->groups + i / m->n, m->scale[i]);
}

static void add_int8(struct file *f, const struct quant_case *c, const char *name,
		     const struct matrix *m)
{
	unsigned rows = c->one_scale ? 1 : m->n, g = c->one_scale ? 0 : m->groups;
	uint8_t *p = add(f, name, ".weight", "I8", 1, m->n, m->k);

	for (unsigned i = 0; i < m->n * m->k; i++)
		p[i] = (uint8_t)(m->code[i] - 128);
	p = add(f, name, ".weight_scale", "F16", 2, rows, g);
	for (unsigned i = 0; i < rows * m->groups; i++)
		put_half(p, i, m->scale[i % m->groups * m->n + i / m->groups]);
	if (c->zeros) {
		p = add(f, name, ".weight_zero_point", "I8", 1, rows, g);
		for (unsigned i = 0; i < rows * m->groups; i++)
			p[i] = (uint8_t)(m->zero[i % m->groups * m->n + i / m->groups] - 128);
	}
	if (c->act_order) {
		p = add(f, name, ".weight_g_idx", "I32", 4, m->k, 0);
		memcpy(p, m->group_of, m->k * 4);
	}
}

static void add_floats(struct file *f, const char *name, const float *v, unsigned n, unsigned k)
{
	uint8_t *p = add(f, name, ".weight", "F32", 4, n, k);

	memcpy(p, v, (size_t)n * (k ? k : 1) * 4);
}

static void add_matrix(struct file *f, struct file *plain, const struct quant_case *c,
		       const char *name, unsigned n, unsigned k)
{
	struct quant_case own = *c;
	struct matrix m;

	if (c->other_bits && (strstr(name, "down_proj") || strstr(name, "k_proj"))) {
		own.bits = c->other_bits;
		own.group = c->other_group;
	}
	m = make_matrix(&own, n, k);
	add_floats(plain, name, m.value, n, k);
	switch (c->format) {
	case GPTQ: add_gptq(f, &own, name, &m); break;
	case AWQ: add_awq(f, name, &m); break;
	case FP8: add_fp8(f, c, name, &m); break;
	case PACKED: add_packed(f, name, &m); break;
	default: add_int8(f, c, name, &m); break;
	}
	free_matrix(&m);
}

static void add_random(struct file *f, struct file *plain, const char *name, unsigned n, unsigned k)
{
	float *v = calloc((size_t)n * (k ? k : 1), sizeof(*v));

	for (size_t i = 0; i < (size_t)n * (k ? k : 1); i++)
		v[i] = k ? unit() / sqrtf((float)k) * 2 : 1 + unit() / 8;
	add_floats(f, name, v, n, k);
	add_floats(plain, name, v, n, k);
	free(v);
}

static void write_config(const char *dir, const char *quant)
{
	char path[512];
	FILE *out;

	snprintf(path, sizeof(path), "%s/config.json", dir);
	out = fopen(path, "w");
	assert_non_null(out);
	fprintf(out,
		"{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, "
		"\"num_hidden_layers\": 2, \"num_attention_heads\": %d, \"num_key_value_heads\": "
		"%d, "
		"\"head_dim\": %d, \"vocab_size\": %d%s}",
		HIDDEN, INNER, HEADS, KV, DIM, VOCAB, quant);
	assert_int_equal(fclose(out), 0);
}

/* The checkpoint in dir, and what its codes mean in plain_dir. */
static char dir[32], plain_dir[32];

static int make_dirs(void **state)
{
	strcpy(dir, "/tmp/txda-quant-XXXXXX");
	strcpy(plain_dir, dir);
	return mkdtemp(dir) && mkdtemp(plain_dir) ? 0 : -1;
}

static int remove_dirs(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s %s", dir, plain_dir);
	return system(command);
}

static void make_checkpoint(const struct quant_case *c)
{
	static const struct {
		const char *name;
		unsigned n, k;
	} matrices[] = {
		{"self_attn.q_proj", HEADS * DIM, HIDDEN},
		{"self_attn.k_proj", KV * DIM, HIDDEN},
		{"self_attn.v_proj", KV * DIM, HIDDEN},
		{"self_attn.o_proj", HIDDEN, HEADS * DIM},
		{"mlp.gate_proj", INNER, HIDDEN},
		{"mlp.up_proj", INNER, HIDDEN},
		{"mlp.down_proj", HIDDEN, INNER},
	};
	struct file *f = calloc(1, sizeof(*f)), *plain = calloc(1, sizeof(*plain));
	char name[64];

	add_random(f, plain, "model.embed_tokens", VOCAB, HIDDEN);
	add_random(f, plain, "lm_head", VOCAB, HIDDEN);
	add_random(f, plain, "model.norm", HIDDEN, 0);
	for (unsigned l = 0; l < 2; l++) {
		snprintf(name, sizeof(name), "model.layers.%u.input_layernorm", l);
		add_random(f, plain, name, HIDDEN, 0);
		snprintf(name, sizeof(name), "model.layers.%u.post_attention_layernorm", l);
		add_random(f, plain, name, HIDDEN, 0);
		for (unsigned i = 0; i < ARRAY_SIZE(matrices); i++) {
			snprintf(name, sizeof(name), "model.layers.%u.%s", l, matrices[i].name);
			add_matrix(f, plain, c, name, matrices[i].n, matrices[i].k);
		}
	}
	save(f, dir);
	save(plain, plain_dir);
	free(f);
	free(plain);
	write_config(dir, c->config);
	write_config(plain_dir, "");
}

/* ---- running ---- */

static float *logits_of(const struct quant_case *c, const char *from, unsigned tp, bool precise)
{
	struct runner_options o = {
		.path = from,
		.compile = COMPILE_OPTIONS_DEFAULT,
		.precise = precise,
		.slots = 1,
		.context = TOKENS + 3,
	};
	struct tool_error error = {{0}};
	struct runner_part part = {.n = TOKENS, .n_rows = TOKENS};
	int32_t tokens[TOKENS];
	unsigned rows[TOKENS];
	struct runner *r;

	o.compile.tp = tp;
	o.compile.max_context = 64;
	o.compile.jobs = 1;
	if (runner_open(&o, &r, &error))
		fail_msg("%s, %u chips: %s", c->name, tp, error.text);
	for (unsigned i = 0; i < TOKENS; i++) {
		tokens[i] = (int32_t)(i * 31 % VOCAB);
		rows[i] = i;
	}
	part.tokens = tokens;
	part.rows = rows;
	part.logits = malloc((size_t)TOKENS * VOCAB * sizeof(float));
	if (runner_sequence(r, &part, 0, &error))
		fail_msg("%s, %u chips: %s", c->name, tp, error.text);
	runner_close(r);
	return part.logits;
}

static void expect_near(const struct quant_case *c, const char *what, float *got, const float *want,
			double limit)
{
	double e = 0, n = 0;

	for (unsigned i = 0; i < TOKENS * VOCAB; i++) {
		e += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		n += (double)want[i] * want[i];
	}
	e = sqrt(e / n);
	if (!(e <= limit))
		fail_msg("%s: %s: error %g, the limit is %g", c->name, what, e, limit);
	free(got);
}

TEST(test_formats)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct quant_case *c = &cases[i];
		float *want;

		rng = i + 1;
		make_checkpoint(c);
		want = logits_of(c, plain_dir, 1, true);
		expect_near(c, "precise", logits_of(c, dir, 1, true), want, 1e-5);
		expect_near(c, "two chips", logits_of(c, dir, 2, true), want, 1e-5);
		expect_near(c, "three chips", logits_of(c, dir, 3, true), want, 1e-5);
		expect_near(c, "rounded", logits_of(c, dir, 1, false), want, 1.5e-2);
		expect_near(c, "rounded, four chips", logits_of(c, dir, 4, false), want, 1.5e-2);
		free(want);
	}
}

/* The file's first @from becomes @to, of the same length. */
static void damage(const char *from, const char *to)
{
	char path[512], *text, *at;
	FILE *f;
	long n;

	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	f = fopen(path, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	n = ftell(f);
	text = malloc((size_t)n);
	rewind(f);
	assert_int_equal(fread(text, 1, (size_t)n, f), n);
	at = memmem(text, (size_t)n, from, strlen(from));
	assert_non_null(at);
	assert_int_equal(strlen(from), strlen(to));
	memcpy(at, to, strlen(to));
	rewind(f);
	assert_int_equal(fwrite(text, 1, (size_t)n, f), n);
	fclose(f);
	free(text);
}

/* The checkpoint in dir does not open, and this is why. */
static int expect_refused(const char *name, unsigned context, const char *words)
{
	struct runner_options o = {
		.path = dir, .compile = COMPILE_OPTIONS_DEFAULT, .slots = 1, .context = context};
	struct tool_error error = {{0}};
	struct runner *r;
	int ret;

	o.compile.max_context = 64;
	ret = runner_open(&o, &r, &error);
	assert_true(ret < 0);
	if (!strstr(error.text, words))
		fail_msg("%s: \"%s\" does not say \"%s\"", name, error.text, words);
	return ret;
}

/* Checkpoints that lie get an error that names the tensor. */
TEST(test_hostile)
{
	static const struct {
		unsigned format; /* of cases[] */
		const char *from, *to, *error;
	} lies[] = {
		{0, "q_proj.scales", "q_proj.scalex", "q_proj.scales\" is missing"},
		{0, "q_proj.qweight\":{\"dtype\":\"I32\"", "q_proj.qweight\":{\"dtype\":\"F32\"",
		 "dtype F32, expected I32"},
		{0, "q_proj.scales\":{\"dtype\":\"F16\"", "q_proj.scales\":{\"dtype\":\"I16\"",
		 "dtype I16 is not supported"},
		{0, "\"shape\":[12,80]", "\"shape\":[80,12]", "expected the shape [12, 80]"},
		{0, "\"shape\":[3,80]", "\"shape\":[80,3]", "expected the shape [3, 80]"},
		{7, "\"shape\":[96,10]", "\"shape\":[10,96]", "expected the shape [96, 10]"},
		{7, "q_proj.qzeros", "q_proj.qzerox", "q_proj.qzeros\" is missing"},
		{9, "weight_scale_inv\":{\"dtype\":\"F32\"",
		 "weight_scale_inv\":{\"dtype\":\"I32\"", "dtype I32 is not supported"},
		{9, "q_proj.weight_scale_inv", "q_proj.weight_scale_xyz",
		 "weight_scale\" is missing"},
		{12, "q_proj.weight_packed", "q_proj.weight_pucked",
		 "q_proj.weight\" [80, 96] is missing"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		make_checkpoint(&cases[lies[i].format]);
		damage(lies[i].from, lies[i].to);
		expect_refused(cases[lies[i].format].name, 16, lies[i].error);
	}
}

/* Sequences longer than the model's limit. */
TEST(test_context)
{
	make_checkpoint(&cases[0]);
	assert_int_equal(
		expect_refused(cases[0].name, 65, "65 positions are needed, its limit is 64"),
		-ERANGE);
}

/* Groups that do not exist, scales that are no numbers. */
TEST(test_hostile_data)
{
	const struct quant_case *c = &cases[3];

	for (int lie = 0; lie < 2; lie++) {
		struct matrix m = make_matrix(c, 80, 96);
		struct file *f = calloc(1, sizeof(*f)), *p = calloc(1, sizeof(*p));

		add_random(f, p, "model.embed_tokens", VOCAB, HIDDEN);
		add_random(f, p, "model.layers.0.input_layernorm", HIDDEN, 0);
		if (lie)
			m.scale[5] = NAN;
		else
			m.group_of[0] = 7;
		add_gptq(f, c, "model.layers.0.self_attn.q_proj", &m);
		save(f, dir);
		write_config(dir, c->config);
		expect_refused(c->name, 16,
			       lie ? "is not finite" : "group 7 of column 0, there are 3");
		free_matrix(&m);
		free(p->data);
		free(f);
		free(p);
	}
}

TEST_MAIN_ALL(make_dirs, remove_dirs)
