// SPDX-License-Identifier: MIT
/*
 * forward_reference CASE_DIR TOKEN... - the logits behind each token, by libtxda alone and in one
 * step, as bytes on stdout: what a forward call of the daemon must give to the bit.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <txda.h>

static struct txda_context *context;

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "forward_reference: %s: %s\n", what, txda_context_error(context));
	exit(1);
}

static struct txda_model *load(const char *case_dir, struct txda_model_info *info)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	struct txda_group *group;
	struct txda_model *model;

	check(txda_context_new(NULL, &context), "chips");
	check(txda_model_plan(context, case_dir, &plan), case_dir);
	group_options.tp = plan.tp;
	check(txda_group_new(context, &group_options, &group), "group");
	options.path = case_dir;
	options.max_kv_blocks = 64;
	check(txda_model_load(group, &options, &model), case_dir);
	check(txda_model_info(model, info), "info");
	txda_group_unref(group);
	return model;
}

int main(int argc, char **argv)
{
	struct txda_model_info info = TXDA_INIT(struct txda_model_info);
	struct txda_step step = TXDA_INIT(struct txda_step);
	int32_t tokens[256], positions[256], table[256], span[2] = {0}, end;
	unsigned n = argc > 2 ? (unsigned)argc - 2 : 0;
	struct txda_model *m;
	struct timespec now;
	uint64_t fence;
	size_t bytes;
	float *rows;

	if (!n || n > 256)
		return 2;
	m = load(argv[1], &info);
	for (unsigned i = 0; i < n; i++) {
		tokens[i] = (int32_t)strtol(argv[2 + i], NULL, 10);
		positions[i] = table[i] = (int32_t)i;
	}
	span[1] = end = (int32_t)n;
	step.tokens = step.rows = n;
	step.seqs = 1;
	step.blocks = (n + info.block_size - 1) / info.block_size;
	check(txda_model_set_input(m, "tokens", tokens, n * sizeof(int32_t)), "tokens");
	check(txda_model_set_input(m, "positions", positions, n * sizeof(int32_t)), "positions");
	check(txda_model_set_input(m, "slots", positions, n * sizeof(int32_t)), "slots");
	check(txda_model_set_input(m, "rows", positions, n * sizeof(int32_t)), "rows");
	check(txda_model_set_input(m, "spans", span, sizeof(span)), "spans");
	check(txda_model_set_input(m, "context", &end, sizeof(end)), "context");
	check(txda_model_set_input(m, "block_table", table, step.blocks * sizeof(int32_t)),
	      "block_table");
	clock_gettime(CLOCK_MONOTONIC, &now);
	check(txda_model_run(m, &step, &fence), "run");
	check(txda_model_sync(m, fence, ((uint64_t)now.tv_sec + 60) * 1000000000u), "sync");
	bytes = (size_t)n * info.vocab * sizeof(*rows);
	rows = malloc(bytes);
	if (!rows)
		return 1;
	check(txda_model_get_output(m, "logits", rows, bytes), "logits");
	if (fwrite(rows, 1, bytes, stdout) != bytes)
		return 1;
	free(rows);
	txda_model_unref(m);
	txda_context_unref(context);
	return 0;
}
