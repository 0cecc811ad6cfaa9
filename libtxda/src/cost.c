// SPDX-License-Identifier: MIT
/* Computes the cost of a launch from the programs of all ranks. */
#include "model.h"

#include <stdio.h>
#include <string.h>

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
		info->flops_per_token += flops * (out->dim[0].sym ? out->dim[0].mul : 1);
}

/* Rows see those of the whole image. Windows are small: their attention is not counted. */
static bool whole_images(const struct txda__program *p, const struct txda_op *op)
{
	const struct txda_tensor *spans = tensor_of(p, op->in[1]);

	return spans && spans->dim[0].sym == TXDA_SYM_S;
}

/* Of the experts, each token uses some; a head-wise product uses all its matrices. */
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
		/* this chip's share, rounded up: part of an expert is read as a whole */
		uint64_t chosen = (uint64_t)ids->dim[1].mul * matrices;

		chosen = (chosen + op->moe_linear.n_experts - 1) / op->moe_linear.n_experts;
		matrices = chosen < matrices ? chosen : matrices;
	}
	info->step_weight_bytes += matrices * txda_tile_panels(w->layout, n) *
				   txda_tile_panel_bytes(w->dtype, k, w->group);
	info->flops_per_token += matrices * 2 * n * k;
}

static uint32_t find_input(const struct txda__program *p, const char *name)
{
	for (uint32_t s = 0; s < p->header->n_slots; s++)
		if (p->slot[s].kind == TXDA_SLOT_INPUT &&
		    !strcmp(txda__program_string(p, p->slot[s].name), name))
			return p->io_tensor[s];
	return TXDA_NONE;
}

/* The tensor that has the blocks of a group of layers, or TXDA_NONE. */
static uint32_t group_table(const struct txda__program *p, unsigned group)
{
	char name[24] = "block_table";

	if (group)
		snprintf(name, sizeof(name), "block_table_%u", group);
	return find_input(p, name);
}

unsigned txda__state_blocks(const struct txda__program *p)
{
	uint32_t table = find_input(p, "state_table");

	return table == TXDA_NONE || p->tensor[table].ndim != 2 ? 0
								: p->tensor[table].dim[1].mul / 3;
}

/* How far back the op that has the tensor @table reads it; 0: to the beginning. */
static unsigned op_reach(const struct txda_op *op)
{
	if (op->op != TXDA_OP_ATTENTION || !op->attention.window ||
	    op->attention.window > INT32_MAX)
		return 0;
	return op->attention.window + TXDA_ATTENTION_TILE - 1;
}

unsigned txda__kv_groups(const struct txda__program *p, unsigned reach[TXDA_MAX_KV_GROUPS])
{
	unsigned n = 0;

	for (uint32_t table; n < TXDA_MAX_KV_GROUPS && (table = group_table(p, n)) != TXDA_NONE;
	     n++) {
		bool all = false;

		reach[n] = 0;
		for (uint32_t i = 0; i < p->header->n_ops; i++)
			for (unsigned j = 0; j < ARRAY_SIZE(p->op[i].in); j++) {
				unsigned r = op_reach(&p->op[i]);

				if (p->op[i].in[j] != table)
					continue;
				all = all || !r;
				reach[n] = r > reach[n] ? r : reach[n];
			}
		reach[n] = all ? 0 : reach[n];
	}
	return n;
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
			else if (op->op == TXDA_OP_SPAN_ATTENTION && whole_images(p, op))
				info->flops_per_key += 4ull * op->span_attention.n_heads *
						       op->span_attention.head_dim;
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
