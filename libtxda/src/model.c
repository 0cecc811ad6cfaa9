// SPDX-License-Identifier: MIT
/* A loaded model: tensors by name, their memory, its properties. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#include "buffer.h"
#include "space.h"
#include "weights.h"

static void free_rank(struct txda__rank *rank)
{
	rank->queue = txda_queue_unref(rank->queue); /* first: it stops all work */
	if (rank->joined)
		txda__space_leave(rank->joined, rank->group_slot);
	txda__space_put(rank->joined);
	for (unsigned i = 0; i < TXDA_PROGRAM_MAX_SLOTS; i++)
		txda_buffer_unref(rank->slot_buffer[i]);
	txda_buffer_unref(rank->kv);
	txda_buffer_unref(rank->io);
	txda_buffer_unref(rank->scratch);
	txda_buffer_unref(rank->control);
	txda_buffer_unref(rank->code);
	txda_weights_unref(rank->weights);
	free(rank->kcore);
}

void txda__model_free(struct txda_model *model)
{
	/* Frees all queues before any memory: ranks access each other's memory in collectives. */
	for (unsigned r = 0; r < model->tp; r++)
		model->rank[r].queue = txda_queue_unref(model->rank[r].queue);
	for (unsigned r = 0; r < model->tp; r++)
		free_rank(&model->rank[r]);
	if (!txda__inherited(txda__model_context(model))) {
		if (model->fd >= 0)
			close(model->fd);
		pthread_mutex_destroy(&model->lock);
	}
	txda_group_unref(model->group);
	free(model);
}

struct txda_model *txda_model_ref(struct txda_model *model)
{
	if (model)
		txda__ref(&model->refs);
	return model;
}

struct txda_model *txda_model_unref(struct txda_model *model)
{
	if (model && txda__unref(&model->refs))
		txda__model_free(model);
	return NULL;
}

struct txda_group *txda_model_group(struct txda_model *model)
{
	return model->group;
}

int txda_model_info(struct txda_model *model, struct txda_model_info *ret_info)
{
	const struct case_info *c = &model->info;
	struct txda_model_info info = {
		.tp = model->tp,
		.max_tokens = c->max_tokens,
		.max_seqs = c->max_seqs,
		.max_rows = c->max_rows,
		.max_context = c->max_context,
		.block_size = c->block_size,
		.kv_blocks = model->kv_blocks,
		.vocab = c->vocab,
		.topk = c->topk,
		.n_layers = c->layers,
		.normalize = c->normalize,
	};

	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	memcpy(info.name, c->name, sizeof(info.name));
	memcpy(info.family, c->family, sizeof(info.family));
	memcpy(info.weights, c->weights, sizeof(info.weights));
	memcpy(info.pooling, c->pooling, sizeof(info.pooling));
	txda__model_cost(model, &info);
	info.kv_groups = txda__kv_groups(&model->rank[0].program, info.kv_reach);
	info.state_blocks = txda__state_blocks(&model->rank[0].program);
	for (unsigned r = 0; r < model->tp; r++) {
		if (c->chip[r].param_bytes > info.weight_bytes)
			info.weight_bytes = c->chip[r].param_bytes;
		if (model->kv_block_bytes[r] > info.kv_block_bytes)
			info.kv_block_bytes = model->kv_block_bytes[r];
	}
	return txda__copy_out(txda__model_context(model), ret_info, &info, sizeof(info),
			      "txda_model_info");
}

/* ---- tensors --------------------------------------------------------------------------------- */

int txda_model_tensor_count(struct txda_model *model)
{
	return txda__forked(txda__model_context(model)) ? -EPERM : (int)model->n_io;
}

int txda_model_find(struct txda_model *model, const char *name, unsigned *ret_index)
{
	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	for (unsigned i = 0; i < model->n_io; i++)
		if (!strcmp(model->io[i].name, name)) {
			*ret_index = i;
			return 0;
		}
	return txda__fail(txda__model_context(model), -ENOENT,
			  "model %.60s has no input or output \"%.60s\"", model->info.name, name);
}

int txda_model_tensor(struct txda_model *model, unsigned index, struct txda_tensor_info *ret_info)
{
	struct txda_context *context = txda__model_context(model);
	struct txda_tensor_info info = {0};
	const struct txda_tensor *t;
	const struct txda__rank *rank;
	const struct txda__io *io;
	bool wide;

	if (txda__forked(context))
		return -EPERM;
	if (index >= model->n_io)
		return txda__fail(context, -ENOENT, "tensor %u does not exist; model %.60s has %u",
				  index, model->info.name, model->n_io);
	io = &model->io[index];
	rank = &model->rank[io->first_rank];
	t = &rank->program.tensor[rank->program.io_tensor[io->slot[io->first_rank]]];
	wide = model->precise && t->flags & TXDA_TENSOR_ACTIVATION && t->dtype == TXDA_BF16;
	snprintf(info.name, sizeof(info.name), "%s", io->name);
	info.kind = io->kind;
	info.dtype = wide ? TXDA_F32 : t->dtype;
	info.ndim = t->ndim;
	for (unsigned i = 0; i < t->ndim; i++)
		info.dim[i] = txda__program_dim(&rank->program, &t->dim[i]);
	txda__program_shape(t, info.shape, sizeof(info.shape));
	info.bytes = txda__program_tensor_bytes(&rank->program, t) << wide;
	return txda__copy_out(context, ret_info, &info, sizeof(info), "txda_tensor_info");
}

/* The slot of a tensor in a rank's program. */
static int find_slot(struct txda_model *model, unsigned rank, const char *name, unsigned *ret_slot)
{
	struct txda_context *context = txda__model_context(model);
	unsigned index;
	int ret;

	if (rank >= model->tp)
		return txda__fail(context, -EINVAL, "rank %u does not exist; model %.60s has %u",
				  rank, model->info.name, model->tp);
	ret = txda_model_find(model, name, &index);
	if (ret < 0)
		return ret;
	if (model->io[index].slot[rank] < 0)
		return txda__fail(context, -ENOENT, "rank %u has no tensor \"%.60s\"", rank, name);
	*ret_slot = (unsigned)model->io[index].slot[rank];
	return 0;
}

int txda_model_tensor_buffer(struct txda_model *model, unsigned rank, const char *name,
			     struct txda_buffer **ret_buffer, uint64_t *ret_offset)
{
	unsigned slot;
	int ret = find_slot(model, rank, name, &slot);

	if (ret < 0)
		return ret;
	if (!model->rank[rank].slot_buffer[slot])
		return txda__fail(txda__model_context(model), -ENXIO,
				  "tensor \"%.60s\" of rank %u is not bound yet", name, rank);
	*ret_buffer = model->rank[rank].slot_buffer[slot];
	if (ret_offset)
		*ret_offset = model->rank[rank].slot_offset[slot];
	return 0;
}

int txda_model_tensor_ptr(struct txda_model *model, unsigned rank, const char *name, void **ret_ptr)
{
	struct txda_buffer *buffer;
	uint64_t offset;
	void *ptr;
	int ret;

	ret = txda_model_tensor_buffer(model, rank, name, &buffer, &offset);
	if (ret >= 0)
		ret = txda_buffer_map(buffer, &ptr);
	if (ret >= 0)
		*ret_ptr = (char *)ptr + offset;
	return ret;
}

void txda__bind_slot(struct txda__rank *rank, unsigned slot, struct txda_buffer *buffer,
		     uint64_t offset, uint64_t bytes)
{
	struct txda_buffer *before = rank->slot_buffer[slot];

	rank->slot_buffer[slot] = txda_buffer_ref(buffer);
	rank->slot_offset[slot] = offset;
	rank->binding[slot] = (struct txda_binding){buffer->va + offset, bytes};
	txda_buffer_unref(before);
}

int txda_model_bind(struct txda_model *model, unsigned rank, const char *name,
		    struct txda_buffer *buffer, uint64_t offset)
{
	struct txda_context *context = txda__model_context(model);
	uint64_t bytes;
	unsigned slot;
	int ret;

	ret = find_slot(model, rank, name, &slot);
	if (ret >= 0)
		ret = txda__model_check_idle(model);
	if (ret < 0)
		return ret;
	bytes = txda__slot_bytes(&model->rank[rank], slot);
	if (buffer->device != model->rank[rank].device)
		return txda__fail(
			context, -EXDEV,
			"tensor \"%.60s\" of rank %u is on chip %u, the buffer on chip %u", name,
			rank, model->rank[rank].device->index, buffer->device->index);
	ret = txda__buffer_check_space(buffer, model->rank[rank].control->space);
	if (ret >= 0)
		ret = txda__buffer_check_used(buffer);
	if (ret < 0)
		return ret;
	if (offset % 64 || !txda__range_ok(offset, bytes, buffer->bytes))
		return txda__fail(context, -ERANGE,
				  "tensor \"%.60s\" wants %llu bytes on a 64-byte border; offset "
				  "%llu of a buffer of %llu is given",
				  name, (unsigned long long)bytes, (unsigned long long)offset,
				  (unsigned long long)buffer->bytes);
	if (buffer->read_only && model->rank[rank].program.slot[slot].kind == TXDA_SLOT_OUTPUT)
		return txda__fail(context, -EACCES,
				  "output \"%.60s\" cannot be a buffer that the chip only reads",
				  name);
	txda__bind_slot(&model->rank[rank], slot, buffer, offset, bytes);
	return 0;
}

static int find_bytes(struct txda_model *model, const char *name, enum txda_tensor_kind kind,
		      uint64_t bytes, unsigned *ret_index)
{
	struct txda_context *context = txda__model_context(model);
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	int ret;

	ret = txda_model_find(model, name, ret_index);
	if (ret >= 0)
		ret = txda_model_tensor(model, *ret_index, &info);
	if (ret < 0)
		return ret;
	if (info.kind != kind)
		return txda__fail(context, -EINVAL, "\"%.60s\" is an %s", name,
				  info.kind == TXDA_TENSOR_INPUT ? "input" : "output");
	if (bytes > info.bytes)
		return txda__fail(context, -E2BIG,
				  "\"%.60s\" %s has %llu bytes at most; %llu are given", name,
				  info.shape, (unsigned long long)info.bytes,
				  (unsigned long long)bytes);
	return 0;
}

int txda_model_set_input(struct txda_model *model, const char *name, const void *data,
			 uint64_t bytes)
{
	struct txda_buffer *buffer;
	uint64_t offset;
	unsigned index;
	void *ptr;
	int ret;

	ret = find_bytes(model, name, TXDA_TENSOR_INPUT, bytes, &index);
	if (ret >= 0)
		ret = txda__model_check_idle(model);
	for (unsigned r = 0; r < model->tp && ret >= 0; r++) {
		if (model->io[index].slot[r] < 0)
			continue;
		ret = txda_model_tensor_buffer(model, r, name, &buffer, &offset);
		if (ret >= 0)
			ret = txda__buffer_check_write(buffer);
		if (ret >= 0)
			ret = txda_buffer_map(buffer, &ptr);
		if (ret >= 0)
			memcpy((char *)ptr + offset, data, bytes);
	}
	return ret;
}

int txda_model_get_output(struct txda_model *model, const char *name, void *data, uint64_t bytes)
{
	unsigned index;
	void *ptr;
	int ret;

	ret = find_bytes(model, name, TXDA_TENSOR_OUTPUT, bytes, &index);
	if (ret >= 0)
		ret = txda__model_check_idle(model);
	if (ret >= 0)
		ret = txda_model_tensor_ptr(model, model->io[index].first_rank, name, &ptr);
	if (ret >= 0)
		memcpy(data, ptr, bytes);
	return ret;
}
