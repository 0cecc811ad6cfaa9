// SPDX-License-Identifier: MIT
/*
 * A model as two programs, by libtxda alone: one for prompts, one that goes on token by token.
 *
 *	txda-compile MODEL -o P --program prefill --inputs embeds
 *	txda-compile MODEL -o D --program decode --inputs embeds --share P
 *	two_programs P D 11 7 1205
 *
 * Prints the token ids that the model says after these. The two programs have
 *
 *	the weights in common: --share makes param.bin one file, which the library loads once,
 *	the KV cache: txda_model_options.share_kv,
 *	the input `inputs_embeds`: declared by the second one (dummies), bound to the first one's.
 *
 * Tokens become embeddings on the host: row t of the case dir's embed.bin. A case dir without
 * --inputs embeds takes tokens; with one case dir instead of two that program does both parts. All
 * of these say the same.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <txda.h>

#define GENERATE 16

/* The embedding's table of a case dir: float32, or bfloat16 as its size tells. */
struct table {
	void *rows;
	unsigned hidden; /* 0: the program takes tokens */
	int wide;	 /* elements are float32 */
};

struct chat {
	struct txda_context *context;
	struct txda_group *group;
	struct txda_model *prefill, *decode;
	struct txda_model_info info;
	struct table table;
	unsigned n; /* tokens whose keys and values are in the cache */
};

__attribute__((noreturn)) static void fail(const struct chat *c, const char *what)
{
	const char *why = txda_context_error(c->context);

	fprintf(stderr, "two_programs: %s: %s\n", what, why && *why ? why : "failed");
	exit(1);
}

/* ---- embeddings on the host ------------------------------------------------------------------ */

static void read_table(struct chat *c, const char *case_dir)
{
	struct txda_tensor_info tensor = TXDA_INIT(struct txda_tensor_info);
	struct table *t = &c->table;
	char path[1024];
	unsigned index;
	size_t elements;
	long bytes;
	FILE *f;

	if (txda_model_find(c->prefill, "inputs_embeds", &index))
		return;
	if (txda_model_tensor(c->prefill, index, &tensor))
		fail(c, "inputs_embeds");
	t->hidden = (unsigned)tensor.dim[1];
	elements = (size_t)c->info.vocab * t->hidden;
	snprintf(path, sizeof(path), "%s/embed.bin", case_dir);
	f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < 0) {
		perror(path);
		exit(1);
	}
	t->wide = (size_t)bytes == 4 * elements;
	if (!t->wide && (size_t)bytes != 2 * elements) {
		fprintf(stderr, "%s: %ld bytes are not a table of %u rows of %u\n", path, bytes,
			c->info.vocab, t->hidden);
		exit(1);
	}
	rewind(f);
	t->rows = malloc((size_t)bytes);
	if (!t->rows || fread(t->rows, 1, (size_t)bytes, f) != (size_t)bytes) {
		perror(path);
		exit(1);
	}
	fclose(f);
}

static void embed(const struct table *t, int32_t token, float *to)
{
	size_t row = (size_t)token * t->hidden;

	if (t->wide) {
		memcpy(to, (const float *)t->rows + row, t->hidden * sizeof(*to));
		return;
	}
	for (unsigned i = 0; i < t->hidden; i++) {
		/* A bfloat16 is the upper half of a float32. */
		uint32_t bits = (uint32_t)((const uint16_t *)t->rows)[row + i] << 16;

		memcpy(&to[i], &bits, sizeof(bits));
	}
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void set(const struct chat *c, struct txda_model *m, const char *name, const void *data,
		size_t bytes)
{
	if (txda_model_set_input(m, name, data, bytes))
		fail(c, name);
}

static void set_tokens(const struct chat *c, struct txda_model *m, const int32_t *tokens,
		       unsigned n)
{
	float *rows;

	if (!c->table.hidden) {
		set(c, m, "tokens", tokens, n * sizeof(*tokens));
		return;
	}
	rows = malloc((size_t)n * c->table.hidden * sizeof(*rows));
	if (!rows)
		fail(c, "out of memory");
	for (unsigned i = 0; i < n; i++)
		embed(&c->table, tokens[i], rows + (size_t)i * c->table.hidden);
	/* Of the decode program this is the prefill program's tensor. */
	set(c, m, "inputs_embeds", rows, (size_t)n * c->table.hidden * sizeof(*rows));
	free(rows);
}

/* Runs tokens [n] behind those before; returns the likeliest next one. */
static int32_t run(struct chat *c, struct txda_model *m, const int32_t *tokens, unsigned n)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	unsigned end = c->n + n, blocks = (end + c->info.block_size - 1) / c->info.block_size;
	int32_t *at = malloc((n + blocks) * sizeof(*at)), *table = at + n;
	int32_t span[2] = {0, (int32_t)n}, context = (int32_t)end, row = (int32_t)n - 1, next;
	struct timespec now;
	uint64_t fence;

	if (!at)
		fail(c, "out of memory");
	set_tokens(c, m, tokens, n);
	/* One sequence, which has the blocks 0, 1, 2 ...: a token's slot is its position. */
	for (unsigned i = 0; i < n; i++)
		at[i] = (int32_t)(c->n + i);
	for (unsigned i = 0; i < blocks; i++)
		table[i] = (int32_t)i;
	set(c, m, "positions", at, n * sizeof(*at));
	set(c, m, "slots", at, n * sizeof(*at));
	set(c, m, "spans", span, sizeof(span));
	set(c, m, "context", &context, sizeof(context));
	set(c, m, "block_table", table, blocks * sizeof(*table));
	set(c, m, "rows", &row, sizeof(row));
	free(at);
	step.tokens = n;
	step.seqs = step.rows = 1;
	step.blocks = blocks;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (txda_model_run(m, &step, &fence) ||
	    txda_model_sync(m, fence, ((uint64_t)now.tv_sec + 60) * 1000000000u) ||
	    txda_model_get_output(m, "topk_ids", &next, sizeof(next)))
		fail(c, "step");
	c->n = end;
	return next;
}

/* ---- both programs --------------------------------------------------------------------------- */

static uint64_t used_bytes(const struct chat *c)
{
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);

	if (txda_device_status(txda_group_device(c->group, 0), &status))
		fail(c, "status");
	return status.mem_used_bytes;
}

static void load(struct chat *c, const char *prefill, const char *decode)
{
	static const char *const shared[] = {"inputs_embeds", NULL};
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_buffer *buffer;
	uint64_t before, offset;

	options.path = prefill;
	options.max_kv_blocks = 64;
	if (txda_model_load(c->group, &options, &c->prefill))
		fail(c, prefill);
	c->info = TXDA_INIT(struct txda_model_info);
	if (txda_model_info(c->prefill, &c->info))
		fail(c, prefill);
	read_table(c, prefill);
	if (!decode) {
		c->decode = txda_model_ref(c->prefill);
		return;
	}
	before = used_bytes(c);
	options.path = decode;
	options.share_kv = c->prefill;
	options.dummies = c->table.hidden ? shared : NULL;
	if (txda_model_load(c->group, &options, &c->decode))
		fail(c, decode);
	for (unsigned rank = 0; rank < c->info.tp && c->table.hidden; rank++) {
		if (txda_model_tensor_buffer(c->prefill, rank, shared[0], &buffer, &offset) ||
		    txda_model_bind(c->decode, rank, shared[0], buffer, offset))
			fail(c, shared[0]);
	}
	fprintf(stderr, "weights %llu KiB, the second program takes %llu KiB more\n",
		(unsigned long long)c->info.weight_bytes / 1024,
		(unsigned long long)(used_bytes(c) - before) / 1024);
}

static void open_chips(struct chat *c, const char *case_dir)
{
	struct txda_group_options options = TXDA_INIT(struct txda_group_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);

	if (txda_context_new(NULL, &c->context) || txda_model_plan(c->context, case_dir, &plan))
		fail(c, case_dir);
	options.tp = plan.tp;
	if (txda_group_new(c->context, &options, &c->group))
		fail(c, "no chips");
}

int main(int argc, char **argv)
{
	unsigned first = 2, n;
	struct chat c = {0};
	int32_t prompt[256], next;
	char *end;

	/* A second argument that is not a number is the decode program. */
	if (argc > 2 && (strtol(argv[2], &end, 10), *end))
		first = 3;
	n = argc > (int)first ? (unsigned)argc - first : 0;
	if (!n || n > 256) {
		fprintf(stderr, "usage: two_programs PREFILL_CASE [DECODE_CASE] TOKEN... (256)\n");
		return 2;
	}
	open_chips(&c, argv[1]);
	load(&c, argv[1], first == 3 ? argv[2] : NULL);
	for (unsigned i = 0; i < n; i++) {
		long token = strtol(argv[first + i], &end, 10);

		if (*end || token < 0 || token >= (long)c.info.vocab) {
			fprintf(stderr, "two_programs: token %s: the vocabulary has %u\n",
				argv[first + i], c.info.vocab);
			return 2;
		}
		prompt[i] = (int32_t)token;
	}
	next = run(&c, c.prefill, prompt, n);
	for (unsigned i = 0; i < GENERATE; i++) {
		printf("%d%c", next, i + 1 < GENERATE ? ' ' : '\n');
		if (i + 1 < GENERATE)
			next = run(&c, c.decode, &next, 1);
	}
	txda_model_unref(c.decode);
	txda_model_unref(c.prefill);
	txda_group_unref(c.group);
	txda_context_unref(c.context);
	free(c.table.rows);
	return 0;
}
