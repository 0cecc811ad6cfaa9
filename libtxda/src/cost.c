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

/* Of the experts, one token chooses some; heads have all their matrices. */
static void add_moe_linear(const struct txda__program *p, const struct txda_op *op,
			   struct txda_model_info *info)
{
	const struct txda_tensor *w = tensor_of(p, op->in[1]), *ids = tensor_of(p, op->in[2]);
	uint64_t matrices, n, k;

	if (!w || w->ndim != 3 || w->dim[0].sym || w->dim[1].sym || w->dim[2].sym)
		return;
	matrices = w->dim[0].mul;
	n = w->dim[1].mul;
	k = w->dim[2].mul;
	if (ids && ids->ndim == 2 && op->moe_linear.n_experts) {
		/* of this chip's share, rounded up: a part of an expert is read as a whole */
		uint64_t chosen = (uint64_t)ids->dim[1].mul * matrices;

		chosen = (chosen + op->moe_linear.n_experts - 1) / op->moe_linear.n_experts;
		matrices = chosen < matrices ? chosen : matrices;
	}
	info->step_weight_bytes += matrices * txda_tile_panels(w->layout, n) *
				   txda_tile_panel_bytes(w->dtype, k, w->group);
	info->flops_per_token += matrices * 2 * n * k;
}

void txda__model_cost(const struct txda_model *model, struct txda_model_info *info)
{
	for (unsigned r = 0; r < model->tp; r++) {
		const struct txda__program *p = &model->rank[r].program;

		for (uint32_t i = 0; i < p->header->n_ops; i++) {
			const struct txda_op *op = &p->op[i];

			if (op->op == TXDA_OP_LINEAR)
				add_linear(p, op, info);
			else if (op->op == TXDA_OP_MOE_LINEAR)
				add_moe_linear(p, op, info);
			else if (op->op == TXDA_OP_DELTA_CONV || op->op == TXDA_OP_DELTA_RULE)
				info->stateful = true;
			else if (op->op == TXDA_OP_MLA_ATTENTION)
				info->flops_per_key +=
					2ull * op->mla_attention.n_heads *
					(2ull * op->mla_attention.latent + op->mla_attention.rope);
			else if (op->op == TXDA_OP_ATTENTION)
				info->flops_per_key +=
					4ull * op->attention.n_heads * op->attention.head_dim;
		}
	}
}
