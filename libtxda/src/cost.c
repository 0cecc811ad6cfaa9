// SPDX-License-Identifier: MIT
/* What a launch costs, read off the programs of all ranks. */
#include "model.h"

static const struct txda_tensor *tensor_of(const struct txda__program *p, uint32_t index)
{
	return index < p->header->n_tensors ? &p->tensor[index] : NULL;
}

static void add_linear(const struct txda__program *p, const struct txda_op *op,
		       struct txda_model_info *info)
{
	const struct txda_tensor *w = tensor_of(p, op->in[1]), *out = tensor_of(p, op->out[0]);
	uint64_t n, k, flops;

	if (!w || !out || w->ndim != 2 || w->dim[0].sym || w->dim[1].sym)
		return;
	n = w->dim[0].mul;
	k = w->dim[1].mul;
	flops = 2 * n * k;
	info->step_weight_bytes +=
		txda_tile_panels(w->layout, n) * txda_tile_panel_bytes(w->dtype, k, w->group);
	if (out->dim[0].sym == TXDA_SYM_R)
		info->flops_per_row += flops;
	else
		info->flops_per_token += flops;
}

void txda__model_cost(const struct txda_model *model, struct txda_model_info *info)
{
	for (unsigned r = 0; r < model->tp; r++) {
		const struct txda__program *p = &model->rank[r].program;

		for (uint32_t i = 0; i < p->header->n_ops; i++) {
			const struct txda_op *op = &p->op[i];

			if (op->op == TXDA_OP_LINEAR)
				add_linear(p, op, info);
			else if (op->op == TXDA_OP_ATTENTION)
				info->flops_per_key +=
					4ull * op->attention.n_heads * op->attention.head_dim;
		}
	}
}
