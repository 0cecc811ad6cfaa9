// SPDX-License-Identifier: MIT
#include "runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

/* IN_SLOTS and IN_TABLE: of group 0 of the layers; two further of each next group. */
enum {
	IN_TOKENS,
	IN_POSITIONS,
	IN_SPANS,
	IN_CONTEXT,
	IN_ROWS,
	IN_IMAGE,
	IN_SLOTS,
	IN_TABLE,
};

static const char *const input_names[] = {"tokens", "positions",  "spans", "context",
					  "rows",   "image_rows", "slots", "block_table"};

static int fail(struct runner *r, const char *what, int err)
{
	const char *why = txda_context_error(r->context);

	/* The reason names a model's directory itself. */
	if (!strncmp(why, what, strlen(what)))
		fprintf(stderr, "txda-bench: %s\n", why);
	else
		fprintf(stderr, "txda-bench: %s: %s\n", what, why[0] ? why : strerror(-err));
	return err;
}

/* Addresses of the inputs, including those that only some models have. */
static int find_inputs(struct runner *r)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	char name[24];
	unsigned index;
	void *p;
	int err;

	err = txda_model_find(r->model, "positions", &index);
	if (!err)
		err = txda_model_tensor(r->model, index, &info);
	if (err)
		return fail(r, "positions", err);
	r->axes = info.ndim > 1 ? (unsigned)info.dim[1] : 1;
	r->sees = !txda_model_find(r->model, "image_rows", &index);
	r->n_in = IN_SLOTS + 2 * kv_layout(r->kv)->n_groups;
	for (unsigned rank = 0; rank < r->info.tp; rank++)
		for (unsigned i = 0; i < r->n_in; i++) {
			unsigned g = i < IN_SLOTS ? 0 : (i - IN_SLOTS) / 2;

			if (i == IN_IMAGE && !r->sees)
				continue;
			if (g)
				snprintf(name, sizeof(name), "%s_%u", input_names[i - 2 * g], g);
			else
				snprintf(name, sizeof(name), "%s", input_names[i]);
			err = txda_model_tensor_ptr(r->model, rank, name, &p);
			if (err)
				return fail(r, name, err);
			r->in[rank][i] = p;
		}
	for (unsigned rank = 0; r->info.state_blocks && rank < r->info.tp; rank++) {
		err = txda_model_tensor_ptr(r->model, rank, "state_table", &p);
		if (err)
			return fail(r, "state_table", err);
		r->state_table[rank] = p;
	}
	err = txda_model_tensor_ptr(r->model, 0, "topk_ids", &p);
	if (err)
		return fail(r, "topk_ids", err);
	r->topk_ids = p;
	return 0;
}

static int make_cache(struct runner *r)
{
	const struct txda_model_info *info = &r->info;
	struct kv_layout layout = {
		.block_size = info->block_size,
		.key_words = info->block_size,
		.max_blocks = (info->max_context + info->block_size - 1) / info->block_size,
		.n_groups = info->kv_groups,
		.ahead = info->max_tokens,
		.state_blocks = info->state_blocks,
	};
	int err;

	memcpy(layout.reach, info->kv_reach, sizeof(layout.reach));
	err = kv_new(info->kv_blocks, &layout, &r->kv);
	if (!err)
		r->entries = calloc(MAX_SEQS, kv_seq_entries(r->kv) * sizeof(*r->entries));
	if (!err && !r->entries)
		err = -ENOMEM;
	return err ? fail(r, "no memory for block tables", err) : 0;
}

int runner_open(struct runner *r, const char *case_dir, unsigned max_tokens)
{
	struct txda_context_options co = TXDA_INIT(struct txda_context_options);
	struct txda_group_options go = TXDA_INIT(struct txda_group_options);
	struct txda_model_options mo = TXDA_INIT(struct txda_model_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	char cmodel[64];
	int err;

	memset(r, 0, sizeof(*r));
	co.name = "benchmark";
	err = txda_model_plan(NULL, case_dir, &plan);
	if (err)
		return fail(r, case_dir, err);
	if (plan.tp > 1) {
		snprintf(cmodel, sizeof(cmodel), "chips=%u", plan.tp);
		co.cmodel = cmodel;
	}
	err = txda_context_new(&co, &r->context);
	if (err)
		return fail(r, "cannot open a device", err);
	go.tp = plan.tp;
	err = txda_group_new(r->context, &go, &r->group);
	if (err)
		return fail(r, "cannot make a group", err);
	mo.path = case_dir;
	mo.max_kv_blocks = (max_tokens / 16 + 256) * (plan.kv_groups ? plan.kv_groups : 1) +
			   3 * 64 * plan.state_blocks;
	r->load_s = clock_s();
	err = txda_model_load(r->group, &mo, &r->model);
	if (err)
		return fail(r, case_dir, err);
	r->load_s = clock_s() - r->load_s;
	r->info = TXDA_INIT(struct txda_model_info);
	txda_model_info(r->model, &r->info);
	err = make_cache(r);
	return err ? err : find_inputs(r);
}

void runner_close(struct runner *r)
{
	txda_model_unref(r->model);
	txda_group_unref(r->group);
	txda_context_unref(r->context);
	kv_free(r->kv);
	free(r->entries);
	memset(r, 0, sizeof(*r));
}

int runner_start(struct runner *r, unsigned seqs, unsigned tokens)
{
	const struct kv_layout *l = kv_layout(r->kv);

	if (seqs > MAX_SEQS || seqs > r->info.max_seqs || seqs > r->info.max_rows ||
	    tokens > r->info.max_context || kv_layout_need(l, tokens) * seqs > r->info.kv_blocks) {
		fprintf(stderr,
			"txda-bench: %u sequences of %u tokens do not fit: the model takes %u "
			"sequences, %u positions, %u KV blocks\n",
			seqs, tokens, r->info.max_seqs, r->info.max_context, r->info.kv_blocks);
		return -E2BIG;
	}
	r->seqs = seqs;
	r->columns = (tokens + l->block_size - 1) / l->block_size;
	for (unsigned s = 0; s < MAX_SEQS; s++)
		kv_seq_drop(r->kv, &r->cache[s], false);
	for (unsigned s = 0; s < seqs; s++) {
		kv_seq_init(r->kv, &r->cache[s], r->entries + s * kv_seq_entries(r->kv));
		r->length[s] = 0;
		r->next[s] = (int32_t)(s * 31 + 7) % (int32_t)r->info.vocab;
	}
	return 0;
}

/* Coordinates of token @t, which is at @pos of its sequence, and its row of the embeddings. */
static void place(struct runner *r, unsigned t, unsigned pos)
{
	const struct runner_image *i = r->image;

	for (unsigned a = 0; a < r->axes; a++)
		r->in[0][IN_POSITIONS][t * r->axes + a] =
			i && r->axes == 3 ? i->positions[pos][a] : (int32_t)pos;
	if (r->sees)
		r->in[0][IN_IMAGE][t] =
			i && pos >= i->first && pos - i->first < i->tokens ? (int32_t)t : -1;
}

static void fill(struct runner *r, unsigned n)
{
	static const int32_t key[1024]; /* no lookups: each block has an owner of its own */
	const unsigned groups = kv_layout(r->kv)->n_groups, bs = r->info.block_size;
	int32_t **in = r->in[0];
	unsigned t = 0;

	for (unsigned s = 0; s < r->seqs; s++) {
		struct kv_seq *cache = &r->cache[s];

		in[IN_SPANS][2 * s] = (int32_t)t;
		in[IN_SPANS][2 * s + 1] = (int32_t)n;
		/* runner_start() saw that there are enough. */
		kv_seq_grow(r->kv, cache, r->length[s] + n);
		for (unsigned rank = 0; r->info.state_blocks && rank < r->info.tp; rank++)
			kv_seq_states(r->kv, cache,
				      r->state_table[rank] + s * (1 + 3 * r->info.state_blocks));
		for (unsigned g = 0; g < groups; g++)
			memcpy(in[IN_TABLE + 2 * g] + s * r->columns, cache->blocks[g],
			       r->columns * sizeof(**in));
		for (unsigned i = 0; i < n; i++, t++) {
			unsigned pos = r->length[s] + i;

			in[IN_TOKENS][t] = n == 1 ? r->next[s]
						  : (int32_t)((pos * 2654435761u + s * 40503u) %
							      r->info.vocab);
			place(r, t, pos);
			for (unsigned g = 0; g < groups; g++)
				in[IN_SLOTS + 2 * g][t] =
					(int32_t)(cache->blocks[g][pos / bs] * bs + pos % bs);
		}
		r->length[s] += n;
		while ((cache->n_committed + 1) * bs <= r->length[s])
			kv_seq_commit(r->kv, cache, ++r->n_committed, key, false);
		kv_seq_moved(cache);
		in[IN_CONTEXT][s] = (int32_t)r->length[s];
		in[IN_ROWS][s] = (int32_t)t - 1;
	}
	for (unsigned rank = 1; rank < r->info.tp; rank++) {
		const unsigned size[] = {
			t,	 r->axes * t,	  2 * r->seqs, r->seqs,
			r->seqs, r->sees ? t : 0, t,	       r->seqs * r->columns};

		for (unsigned i = 0; i < r->n_in; i++) {
			unsigned kind = i < IN_SLOTS ? i : IN_SLOTS + (i - IN_SLOTS) % 2;

			if (size[kind])
				memcpy(r->in[rank][i], in[i], size[kind] * sizeof(int32_t));
		}
	}
}

int runner_step(struct runner *r, unsigned n, double *ret_seconds)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	uint64_t fence;
	double t;
	int err;

	if (n * r->seqs > r->info.max_tokens) {
		fprintf(stderr, "txda-bench: a step of %u tokens; the model takes %u\n",
			n * r->seqs, r->info.max_tokens);
		return -E2BIG;
	}
	fill(r, n);
	step.tokens = n * r->seqs;
	step.seqs = step.rows = r->seqs;
	step.blocks = r->columns;
	step.flags = TXDA_SUBMIT_WAIT_SOON;
	step.timing = r->timing;
	t = clock_s();
	err = txda_model_run(r->model, &step, &fence);
	if (!err)
		err = txda_model_sync(r->model, fence, TXDA_FOREVER);
	if (err)
		return fail(r, "a step failed", err);
	*ret_seconds = clock_s() - t;
	for (unsigned s = 0; s < r->seqs; s++)
		r->next[s] = r->topk_ids[s * r->info.topk];
	return 0;
}

int runner_take_image(struct runner *r, struct txda_model *vision, const struct runner_image *image)
{
	static const char *const names[] = {"image_embeds", "image_deepstack"};
	int err = 0;

	for (unsigned i = 0; i < 2 && !err; i++) {
		struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
		unsigned index;

		if (txda_model_find(r->model, names[i], &index) ||
		    txda_model_tensor(r->model, index, &info))
			continue; /* few models have the second */
		for (unsigned rank = 0; rank < r->info.tp && !err; rank++) {
			void *p;

			err = txda_model_tensor_ptr(r->model, rank, names[i], &p);
			if (!err)
				err = txda_model_get_output(
					vision, names[i], (float *)p + image->first * info.dim[1],
					image->tokens * info.dim[1] * sizeof(float));
		}
	}
	r->image = image;
	return err;
}
