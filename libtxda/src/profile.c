// SPDX-License-Identifier: MIT
#include "isa_names.h"
#include "model.h"

int txda__profile_start(struct txda_model *model, struct txda_op_timing *timing, uint64_t fence)
{
	bool busy;

	pthread_mutex_lock(&model->lock);
	busy = model->timing;
	if (!busy) {
		model->timing = timing;
		model->timing_fence = fence;
	}
	pthread_mutex_unlock(&model->lock);
	if (busy)
		return txda__fail(txda__model_context(model), -EBUSY,
				  "a launch with a timeline is in flight: sync it first");
	return 0;
}

void txda__profile_cancel(struct txda_model *model)
{
	pthread_mutex_lock(&model->lock);
	model->timing = NULL;
	pthread_mutex_unlock(&model->lock);
}

void txda__profile_collect(struct txda_model *model, uint64_t fence)
{
	const struct txda__rank *rank = &model->rank[0];

	pthread_mutex_lock(&model->lock);
	if (model->timing && fence >= model->timing_fence) {
		for (uint32_t i = 0; i < rank->program.header->n_ops; i++)
			model->timing[i] = (struct txda_op_timing){rank->timeline[i].start_ns,
								   rank->timeline[i].end_ns};
		model->timing = NULL;
	}
	pthread_mutex_unlock(&model->lock);
}

int txda_model_op_count(struct txda_model *model)
{
	return txda__forked(txda__model_context(model)) ? -EPERM
							: (int)model->rank[0].program.header->n_ops;
}

int txda_model_op(struct txda_model *model, unsigned index, const char **ret_opcode,
		  const char **ret_label)
{
	const struct txda__program *p = &model->rank[0].program;

	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	if (index >= p->header->n_ops)
		return txda__fail(txda__model_context(model), -ENOENT,
				  "op %u does not exist; model %.60s has %u", index,
				  model->info.name, p->header->n_ops);
	*ret_opcode = isa_opcode_name(p->op[index].op);
	*ret_label = txda__program_string(p, p->op[index].label);
	return 0;
}
