// SPDX-License-Identifier: MIT
#include "step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <txda_isa.h>

#include "clock.h"

/* Finds a tensor with at least @elements elements of 4 bytes; *ret_bytes: its total size. */
static int find_tensor(struct step_slot *slot, const char *name, enum txda_tensor_kind kind,
		       unsigned dtype, uint64_t elements, uint64_t *ret_bytes, char *err,
		       size_t errlen)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	unsigned index;
	int error = txda_model_find(slot->model, name, &index);

	if (!error)
		error = txda_model_tensor(slot->model, index, &info);
	if (error) {
		snprintf(err, errlen, "the program has no tensor '%s'", name);
		return -EINVAL;
	}
	if (info.kind != kind || info.dtype != dtype || info.bytes < elements * 4) {
		snprintf(err, errlen,
			 "tensor '%s' is an %s of type %u with %llu bytes; needed is an %s of type "
			 "%u with %llu",
			 name, info.kind == TXDA_TENSOR_INPUT ? "input" : "output", info.dtype,
			 (unsigned long long)info.bytes,
			 kind == TXDA_TENSOR_INPUT ? "input" : "output", dtype,
			 (unsigned long long)elements * 4);
		return -EINVAL;
	}
	*ret_bytes = info.bytes;
	return 0;
}

static int map_tensor(struct step_slot *slot, unsigned rank, const char *name, void *ret_ptr,
		      char *err, size_t errlen)
{
	void *ptr;
	int error = txda_model_tensor_ptr(slot->model, rank, name, &ptr);

	if (error) {
		snprintf(err, errlen, "cannot map tensor '%s' of rank %u: %s", name, rank,
			 txda_context_error(slot->context));
		return error;
	}
	memcpy(ret_ptr, &ptr, sizeof(ptr));
	return 0;
}

static int map_inputs(struct step_slot *slot, const struct txda_model_info *info, char *err,
		      size_t errlen)
{
	uint64_t t = info->max_tokens, s = info->max_seqs, bytes;
	const struct {
		const char *name;
		uint64_t elements;
		size_t offset;
	} inputs[] = {
		{"tokens", t, offsetof(struct step_inputs, tokens)},
		{"positions", t, offsetof(struct step_inputs, positions)},
		{"spans", 2 * s, offsetof(struct step_inputs, spans)},
		{"context", s, offsetof(struct step_inputs, context)},
		{"rows", info->max_rows, offsetof(struct step_inputs, rows)},
	};

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		int error = find_tensor(slot, inputs[i].name, TXDA_TENSOR_INPUT, TXDA_I32,
					inputs[i].elements, &bytes, err, errlen);

		for (unsigned rank = 0; !error && rank < slot->n_ranks; rank++)
			error = map_tensor(slot, rank, inputs[i].name,
					   (char *)&slot->inputs[rank] + inputs[i].offset, err,
					   errlen);
		if (error)
			return error;
	}
	return 0;
}

/* Maps the inputs of each group of layers: slots to which keys are written, and block tables. */
static int map_groups(struct step_slot *slot, const struct txda_model_info *info,
		      unsigned *ret_max_blocks, char *err, size_t errlen)
{
	uint64_t seqs = info->max_seqs, bytes;
	char slots[24] = "slots", table[24] = "block_table";
	int error = 0;

	*ret_max_blocks = UINT32_MAX;
	for (unsigned g = 0; g < slot->n_groups && !error; g++) {
		if (g) {
			snprintf(slots, sizeof(slots), "slots_%u", g);
			snprintf(table, sizeof(table), "block_table_%u", g);
		}
		error = find_tensor(slot, slots, TXDA_TENSOR_INPUT, TXDA_I32, info->max_tokens,
				    &bytes, err, errlen);
		if (!error)
			error = find_tensor(slot, table, TXDA_TENSOR_INPUT, TXDA_I32, seqs, &bytes,
					    err, errlen);
		if (!error && bytes / 4 / seqs < *ret_max_blocks)
			*ret_max_blocks = (unsigned)(bytes / 4 / seqs);
		for (unsigned rank = 0; !error && rank < slot->n_ranks; rank++) {
			struct step_inputs *in = &slot->inputs[rank];

			error = map_tensor(slot, rank, slots, &in->slots[g], err, errlen);
			if (!error)
				error = map_tensor(slot, rank, table, &in->block_table[g], err,
						   errlen);
		}
	}
	if (!error && slot->state_blocks)
		error = find_tensor(slot, "state_table", TXDA_TENSOR_INPUT, TXDA_I32,
				    seqs * (1 + 3ull * slot->state_blocks), &bytes, err, errlen);
	for (unsigned rank = 0; !error && slot->state_blocks && rank < slot->n_ranks; rank++)
		error = map_tensor(slot, rank, "state_table", &slot->inputs[rank].state_table, err,
				   errlen);
	return error;
}

static int map_outputs(struct step_slot *slot, const struct txda_model_info *info, char *err,
		       size_t errlen)
{
	uint64_t r = info->max_rows, bytes;
	const struct {
		const char *name;
		unsigned dtype;
		uint64_t elements;
		void *ptr;
	} outputs[] = {
		{"logits", TXDA_F32, r * info->vocab, &slot->logits},
		{"topk_ids", TXDA_I32, r * info->topk, &slot->topk_ids},
		{"topk_logits", TXDA_F32, r * info->topk, &slot->topk_logits},
		{"lse", TXDA_F32, r, &slot->lse},
	};

	for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
		int error = find_tensor(slot, outputs[i].name, TXDA_TENSOR_OUTPUT, outputs[i].dtype,
					outputs[i].elements, &bytes, err, errlen);

		if (!error)
			error = map_tensor(slot, 0, outputs[i].name, outputs[i].ptr, err, errlen);
		if (error)
			return error;
	}
	return 0;
}

/* Hidden states [@rows, columns], which not every program has; otherwise *ret_columns stays 0. */
static int find_hidden(struct step_slot *slot, const char *name, enum txda_tensor_kind kind,
		       uint64_t rows, unsigned *ret_columns, char *err, size_t errlen)
{
	struct txda_tensor_info tensor = TXDA_INIT(struct txda_tensor_info);
	unsigned index;
	uint64_t bytes;
	int error;

	if (txda_model_find(slot->model, name, &index))
		return 0;
	error = txda_model_tensor(slot->model, index, &tensor);
	if (!error && (tensor.ndim != 2 || !tensor.dim[1] || tensor.dim[1] > 1u << 20))
		error = -EINVAL;
	if (error) {
		snprintf(err, errlen, "tensor '%s' has the shape %s; needed are rows and columns",
			 name, tensor.shape);
		return error;
	}
	error = find_tensor(slot, name, kind, TXDA_F32, rows * tensor.dim[1], &bytes, err, errlen);
	if (!error)
		*ret_columns = (unsigned)tensor.dim[1];
	return error;
}

static int map_hidden(struct step_slot *slot, const struct txda_model_info *info, char *err,
		      size_t errlen)
{
	int error;

	error = find_hidden(slot, "hidden", TXDA_TENSOR_OUTPUT, info->max_rows, &slot->n_hidden,
			    err, errlen);
	if (!error)
		error = find_hidden(slot, "states", TXDA_TENSOR_OUTPUT, info->max_tokens,
				    &slot->n_states, err, errlen);
	if (!error)
		error = find_hidden(slot, "hidden_before", TXDA_TENSOR_INPUT, info->max_tokens,
				    &slot->n_before, err, errlen);
	if (!error && slot->n_hidden)
		error = map_tensor(slot, 0, "hidden", &slot->hidden, err, errlen);
	if (!error && slot->n_states)
		error = map_tensor(slot, 0, "states", &slot->states, err, errlen);
	for (unsigned rank = 0; !error && slot->n_before && rank < slot->n_ranks; rank++)
		error = map_tensor(slot, rank, "hidden_before", &slot->inputs[rank].hidden_before,
				   err, errlen);
	return error;
}

/* Inputs of vision models besides tokens. */
static int map_images(struct step_slot *slot, const struct txda_model_info *info, char *err,
		      size_t errlen)
{
	uint64_t t = info->max_tokens, bytes;
	unsigned index;
	int error;

	error = find_tensor(slot, "positions", TXDA_TENSOR_INPUT, TXDA_I32, t, &bytes, err, errlen);
	if (error)
		return error;
	slot->axes = (unsigned)(bytes / 4 / t);
	if (txda_model_find(slot->model, "image_rows", &index))
		return 0;
	error = find_tensor(slot, "image_rows", TXDA_TENSOR_INPUT, TXDA_I32, t, &bytes, err,
			    errlen);
	if (!error)
		error = find_hidden(slot, "image_embeds", TXDA_TENSOR_INPUT, t, &slot->n_embeds,
				    err, errlen);
	if (!error)
		error = find_hidden(slot, "image_deepstack", TXDA_TENSOR_INPUT, t,
				    &slot->n_deepstack, err, errlen);
	for (unsigned rank = 0; !error && rank < slot->n_ranks; rank++) {
		struct step_inputs *in = &slot->inputs[rank];

		error = map_tensor(slot, rank, "image_rows", &in->image_rows, err, errlen);
		if (!error && slot->n_embeds)
			error = map_tensor(slot, rank, "image_embeds", &in->image_embeds, err,
					   errlen);
		if (!error && slot->n_deepstack)
			error = map_tensor(slot, rank, "image_deepstack", &in->image_deepstack, err,
					   errlen);
	}
	return error;
}

static int alloc_filled(struct step_slot *slot, const struct txda_model_info *info, char *err,
			size_t errlen)
{
	size_t t = info->max_tokens, s = info->max_seqs;
	struct step_inputs *in = &slot->filled;
	int32_t *at;

	at = calloc((2 + slot->axes + slot->n_groups) * t + 3 * s + info->max_rows + info->topk,
		    sizeof(*at));
	slot->row_logits = calloc(info->topk, sizeof(*slot->row_logits));
	slot->items = calloc(s, sizeof(*slot->items));
	slot->memory = at;
	if (!at || !slot->row_logits || !slot->items) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	in->tokens = at;
	in->positions = in->tokens + t;
	in->slots[0] = in->positions + slot->axes * t;
	for (unsigned g = 1; g < slot->n_groups; g++)
		in->slots[g] = in->slots[g - 1] + t;
	in->image_rows = in->slots[slot->n_groups - 1] + t;
	in->spans = in->image_rows + t;
	in->context = in->spans + 2 * s;
	in->rows = in->context + s;
	slot->row_ids = in->rows + info->max_rows;
	return 0;
}

int step_init(struct step_slot *slot, struct txda_model *model, struct txda_context *context,
	      const struct txda_model_info *info, unsigned *ret_max_blocks, char *err,
	      size_t errlen)
{
	unsigned max_blocks;
	int error;

	*slot = (struct step_slot){
		.model = model,
		.context = context,
		.n_ranks = info->tp,
		.block_size = info->block_size,
		.vocab = info->vocab,
		.topk = info->topk,
		.n_groups = info->kv_groups ? info->kv_groups : 1,
		.state_blocks = info->state_blocks,
	};
	if (!info->tp || info->tp > TXDA_MAX_CHIPS_PER_GROUP || !info->max_tokens ||
	    !info->max_seqs || !info->max_rows || !info->block_size || !info->vocab ||
	    info->vocab > INT32_MAX || !info->topk || !info->kv_blocks || !info->max_context ||
	    info->kv_blocks > INT32_MAX / info->block_size || slot->n_groups > KV_MAX_GROUPS) {
		snprintf(err, errlen,
			 "the model's limits are invalid: tp %u, tokens %u, seqs %u, rows %u, "
			 "context %u, "
			 "block size %u, blocks %u in %u groups, vocabulary %u, topk %u",
			 info->tp, info->max_tokens, info->max_seqs, info->max_rows,
			 info->max_context, info->block_size, info->kv_blocks, slot->n_groups,
			 info->vocab, info->topk);
		return -EINVAL;
	}
	error = map_inputs(slot, info, err, errlen);
	if (!error)
		error = map_groups(slot, info, &max_blocks, err, errlen);
	if (!error)
		error = map_outputs(slot, info, err, errlen);
	if (!error)
		error = map_hidden(slot, info, err, errlen);
	if (!error)
		error = map_images(slot, info, err, errlen);
	if (!error)
		error = alloc_filled(slot, info, err, errlen);
	if (error)
		return error;
	*ret_max_blocks = max_blocks;
	return 0;
}

void step_fini(struct step_slot *slot)
{
	free(slot->items);
	free(slot->memory);
	free(slot->row_logits);
	slot->items = NULL;
	slot->memory = NULL;
	slot->row_logits = NULL;
}

static int32_t token_at(const struct sched_seq *seq, unsigned position)
{
	if (position < seq->n_prompt)
		return seq->prompt[position];
	if (position < seq->n_total)
		return seq->generated[position - seq->n_prompt];
	return seq->draft[position - seq->n_total];
}

/* Whether the sequence's images are part of the step: draft models use only text. */
static bool shows_images(const struct step_slot *slot, const struct sched_seq *seq)
{
	return seq->images && slot->sees;
}

/* The block of positions [i * block_size, ...) of a group of layers. */
static uint32_t block_at(const struct step_slot *slot, const struct sched_seq *seq, unsigned group,
			 unsigned i)
{
	if (slot->borrows)
		return seq->cache.blocks[0][i] * slot->n_groups + group;
	return seq->cache.blocks[group][i];
}

/* KV blocks in which the item's sequence has tokens after the step. */
static unsigned used_blocks(const struct step_slot *slot, const struct sched_item *item)
{
	return (item->first + item->tokens + slot->block_size - 1) / slot->block_size;
}

/*
 * The index of token @t of the step, which is at @position of its sequence, and whether it is an
 * image token.
 */
static void place_token(struct step_slot *slot, const struct sched_seq *seq, unsigned t,
			unsigned position)
{
	const struct engine_images *images = seq->images;
	int32_t *to = slot->filled.positions + (size_t)t * slot->axes;
	unsigned row;

	for (unsigned a = 0; a < slot->axes; a++)
		to[a] = !images || slot->axes != 3    ? (int32_t)position
			: position < images->n_prompt ? images->positions[position][a]
						      : (int32_t)position + images->delta;
	slot->filled.image_rows[t] =
		shows_images(slot, seq) && engine_images_at(images, position, &row) ? (int32_t)t
										    : -1;
}

/* Fills in one sequence's part of the inputs. */
static void fill_item(struct step_slot *slot, unsigned i)
{
	const struct step_inputs *in = &slot->filled;
	const struct sched_item *item = &slot->items[i];
	const struct sched_seq *seq = item->seq;
	unsigned size = slot->block_size, first = item->first, end = first + item->tokens;
	unsigned token = slot->n_tokens;

	in->spans[2 * i] = (int32_t)token;
	in->spans[2 * i + 1] = (int32_t)item->tokens;
	in->context[i] = (int32_t)end;
	for (unsigned j = 0; j < item->rows; j++)
		in->rows[slot->n_rows++] = (int32_t)(token + item->first_row - first + j);
	for (unsigned j = item->drafts + 1; item->sample && j > 0; j--)
		in->rows[slot->n_rows++] = (int32_t)(token + item->tokens - j);
	for (unsigned position = first; position < end; position++, token++) {
		in->tokens[token] = token_at(seq, position + slot->token_shift);
		place_token(slot, seq, token, position);
		for (unsigned g = 0; g < slot->n_groups; g++)
			in->slots[g][token] =
				(int32_t)(block_at(slot, seq, g, position / size) * size +
					  position % size);
	}
	slot->n_tokens = token;
}

void step_fill(struct step_slot *slot)
{
	if (!slot->n_filled)
		slot->n_tokens = slot->n_rows = 0;
	for (; slot->n_filled < slot->n_items; slot->n_filled++)
		fill_item(slot, slot->n_filled);
}

void step_patch(struct step_slot *slot)
{
	const struct step_inputs *in = &slot->filled;

	for (unsigned i = 0; i < slot->n_filled; i++) {
		const struct sched_item *item = &slot->items[i];

		if (item->tokens == 1)
			in->tokens[in->spans[2 * i]] =
				token_at(item->seq, item->first + slot->token_shift);
	}
}

/* Copies the embeddings of the item's image tokens. */
static void copy_images(struct step_slot *slot, const struct sched_item *item, size_t token,
			const struct step_inputs *to)
{
	size_t n = slot->n_embeds, k = slot->n_deepstack;

	for (unsigned i = 0; i < item->tokens; i++, token++) {
		const struct engine_image *image;
		unsigned row;

		image = engine_images_at(item->seq->images, item->first + i, &row);
		if (!image)
			continue;
		memcpy(to->image_embeds + token * n, image->embeds + row * n, n * sizeof(float));
		if (k)
			memcpy(to->image_deepstack + token * k, image->deepstack + row * k,
			       k * sizeof(float));
		slot->bytes_written += (n + k) * sizeof(float);
	}
}

/*
 * The chip does not use entries past a sequence's context or out of its layers' reach, so old contents
 * may stay.
 */
static void copy_tables(struct step_slot *slot, unsigned i, const struct step_inputs *to)
{
	const struct sched_item *item = &slot->items[i];
	unsigned used = used_blocks(slot, item);

	for (unsigned g = 0; g < slot->n_groups; g++) {
		int32_t *row = to->block_table[g] + (size_t)i * slot->n_blocks;
		unsigned first = slot->borrows ? 0 : item->seq->cache.first[g];

		for (unsigned b = first; b < used; b++)
			row[b] = (int32_t)block_at(slot, item->seq, g, b);
		slot->bytes_written += (used - first) * sizeof(*row);
	}
	if (slot->state_blocks) {
		size_t words = 1 + 3 * (size_t)slot->state_blocks;

		kv_seq_states(slot->kv, &item->seq->cache, to->state_table + i * words);
		slot->bytes_written += words * sizeof(*to->state_table);
	}
}

static void copy_inputs(struct step_slot *slot, const struct step_inputs *to)
{
	const struct step_inputs *from = &slot->filled;
	size_t tokens = slot->n_tokens * sizeof(int32_t), seqs = slot->n_items * sizeof(int32_t);

	memcpy(to->tokens, from->tokens, tokens);
	memcpy(to->positions, from->positions, tokens * slot->axes);
	for (unsigned g = 0; g < slot->n_groups; g++)
		memcpy(to->slots[g], from->slots[g], tokens);
	memcpy(to->spans, from->spans, 2 * seqs);
	memcpy(to->context, from->context, seqs);
	memcpy(to->rows, from->rows, slot->n_rows * sizeof(int32_t));
	if (to->image_rows)
		memcpy(to->image_rows, from->image_rows, tokens);
	for (unsigned i = 0; i < slot->n_items; i++) {
		copy_tables(slot, i, to);
		if (shows_images(slot, slot->items[i].seq))
			copy_images(slot, &slot->items[i], (size_t)from->spans[2 * i], to);
	}
	slot->bytes_written += (1 + slot->axes + slot->n_groups) * tokens +
			       (to->image_rows ? tokens : 0) + 3 * seqs +
			       slot->n_rows * sizeof(int32_t);
}

int step_run(struct step_slot *slot, char *err, size_t errlen)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	int error;

	slot->n_blocks = 0;
	for (unsigned i = 0; i < slot->n_items; i++) {
		unsigned used = used_blocks(slot, &slot->items[i]);

		slot->n_blocks = used > slot->n_blocks ? used : slot->n_blocks;
	}
	for (unsigned rank = 0; rank < slot->n_ranks; rank++)
		copy_inputs(slot, &slot->inputs[rank]);
	step.tokens = slot->n_tokens;
	step.seqs = slot->n_items;
	step.rows = slot->n_rows;
	step.blocks = slot->n_blocks;
	step.flags = TXDA_SUBMIT_WAIT_SOON;
	error = txda_model_run(slot->model, &step, &slot->fence);
	if (error)
		snprintf(err, errlen, "the step could not be submitted: %s (%s)",
			 txda_context_error(slot->context), strerror(-error));
	return error;
}

int step_wait(struct step_slot *slot, uint64_t start_ns, const struct launch_limits *limits,
	      char *err, size_t errlen)
{
	int error = launch_wait(slot->model, slot->fence, start_ns, limits);

	if (error == -ETIMEDOUT)
		snprintf(err, errlen, "a step of %u tokens did not end within %llu ms",
			 slot->n_tokens, (unsigned long long)((clock_ns() - start_ns) / 1000000));
	else if (error)
		snprintf(err, errlen, "the step failed: %s (%s)", txda_context_error(slot->context),
			 strerror(-error));
	return error;
}

void step_row(struct step_slot *slot, unsigned row, struct sampler_row *ret)
{
	size_t k = slot->topk;

	memcpy(slot->row_ids, slot->topk_ids + row * k, k * sizeof(*slot->row_ids));
	memcpy(slot->row_logits, slot->topk_logits + row * k, k * sizeof(*slot->row_logits));
	*ret = (struct sampler_row){
		.logits = slot->logits + (size_t)row * slot->vocab,
		.topk_ids = slot->row_ids,
		.topk_logits = slot->row_logits,
		.lse = slot->lse[row],
		.vocab = slot->vocab,
		.k = slot->topk,
	};
	slot->bytes_read +=
		k * (sizeof(*slot->row_ids) + sizeof(*slot->row_logits)) + sizeof(*slot->lse);
}

const float *step_logits(struct step_slot *slot, unsigned row)
{
	slot->bytes_read += slot->vocab * sizeof(*slot->logits);
	return slot->logits + (size_t)row * slot->vocab;
}

const float *step_hidden(struct step_slot *slot, unsigned row)
{
	slot->bytes_read += slot->n_hidden * sizeof(*slot->hidden);
	return slot->hidden + (size_t)row * slot->n_hidden;
}
