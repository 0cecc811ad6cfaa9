// SPDX-License-Identifier: MIT
/* The library in one function: lists the chips, loads a model, runs one step. first CASE_DIR [TOKEN] */
#include <stdio.h>
#include <stdlib.h>
#include <txda.h>

int main(int argc, char **argv)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct txda_context *context = NULL;
	struct txda_group *group = NULL;
	struct txda_device *chip;
	struct txda_model *model = NULL;
	/* One sequence of one token, at position 0, in slot 0 of KV block 0; its row gives the logits. */
	int32_t token = argc > 2 ? atoi(argv[2]) : 0, zero = 0, one = 1, span[] = {0, 1}, next;
	uint64_t fence;
	int status = 1;

	options.path = argc > 1 ? argv[1] : "";
	step.tokens = step.seqs = step.rows = step.blocks = 1;
	if (txda_context_new(NULL, &context))
		goto fail;
	for (int i = 0; !txda_device_get(context, i, &chip); i++, txda_device_unref(chip))
		if (!txda_device_info(chip, &info))
			printf("chip %u: %s, %u MiB\n", i, info.name,
			       (unsigned)(info.mem_bytes >> 20));
	if (txda_group_new(context, NULL, &group) || txda_model_load(group, &options, &model) ||
	    txda_model_set_input(model, "tokens", &token, sizeof(token)) ||
	    txda_model_set_input(model, "positions", &zero, sizeof(zero)) ||
	    txda_model_set_input(model, "slots", &zero, sizeof(zero)) ||
	    txda_model_set_input(model, "spans", span, sizeof(span)) ||
	    txda_model_set_input(model, "context", &one, sizeof(one)) ||
	    txda_model_set_input(model, "block_table", &zero, sizeof(zero)) ||
	    txda_model_set_input(model, "rows", &zero, sizeof(zero)) ||
	    txda_model_run(model, &step, &fence) || txda_model_sync(model, fence, TXDA_FOREVER) ||
	    txda_model_get_output(model, "topk_ids", &next, sizeof(next)))
		goto fail;
	printf("after token %d the likeliest is %d\n", token, next);
	status = 0;
fail:
	if (status)
		fprintf(stderr, "first: %s\n", txda_context_error(context));
	txda_model_unref(model);
	txda_group_unref(group);
	txda_context_unref(context);
	return status;
}
