// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "beam_run.h"
#include "engine_internal.h"
#include "images.h"
#include "token_counts.h"

#define MAX_LENGTH     (1u << 24) /* maximum number of tokens: no model's context is longer */
#define MAX_DIMENSIONS (1u << 20) /* maximum dimensions of a vector */

/* Reserves room for @n entries of @size bytes; returns their offset. */
static size_t room(size_t *total, size_t n, size_t size)
{
	size_t at = (*total + 15) & ~(size_t)15;

	*total = at + n * size;
	return at;
}

/* Counts the prompt's tokens, if penalties need it. */
static void begin_counts(struct engine_request *r, void *memory, unsigned max)
{
	r->counts = token_counts_init(memory, max);
	if (r->sampling.repetition_penalty == 0 || r->sampling.repetition_penalty == 1)
		return;
	for (unsigned i = 0; i < r->n_prompt; i++)
		token_counts_add(r->counts, r->prompt[i], false);
}

/* @pooling: NULL, or the requested pooling. */
static int new_request(const int32_t *prompt, unsigned n_prompt,
		       const struct engine_sampling *sampling, bool prompt_logprobs,
		       const struct engine_pooling *pooling, struct engine_request **ret)
{
	size_t total = sizeof(struct engine_request), seq, copy, tokens, logprobs, top, prompt_lp;
	size_t prompt_top;
	size_t biases, counts, n_biases = sampling->n_biases, pooled, embedding;
	size_t dimensions = pooling ? pooling->dimensions : 0;
	size_t n_logprobs = sampling->logprobs >= 0 ? sampling->max_tokens : 0;
	size_t width = sampling->logprobs > 0 ? (size_t)sampling->logprobs : 0;
	size_t n_top = width * sampling->max_tokens;
	size_t n_prompt_top = prompt_logprobs ? width * n_prompt : 0;
	struct engine_request *r;
	unsigned n_counts;
	char *base;

	if (n_prompt > MAX_LENGTH || sampling->max_tokens > MAX_LENGTH ||
	    sampling->logprobs > ENGINE_MAX_LOGPROBS || n_biases > ENGINE_MAX_BIASES ||
	    dimensions > MAX_DIMENSIONS)
		return -E2BIG;
	seq = room(&total, 1, sizeof(struct engine_seq));
	copy = room(&total, n_prompt, sizeof(*prompt));
	tokens = room(&total, sampling->max_tokens, sizeof(*r->tokens));
	logprobs = room(&total, n_logprobs, sizeof(*r->logprobs));
	top = room(&total, n_top, sizeof(*r->top));
	prompt_lp = room(&total, prompt_logprobs ? n_prompt : 0, sizeof(*r->prompt_lp));
	prompt_top = room(&total, n_prompt_top, sizeof(*r->prompt_top));
	biases = room(&total, n_biases, sizeof(*sampling->biases));
	n_counts = sampler_needs_counts(sampling) ? n_prompt + sampling->max_tokens : 0;
	counts = room(&total, 1, n_counts ? token_counts_size(n_counts) : 0);
	pooled = room(&total, dimensions, sizeof(*r->pooled));
	embedding = room(&total, dimensions, sizeof(*r->embedding));
	base = calloc(1, total);
	if (!base)
		return -ENOMEM;
	r = (struct engine_request *)base;
	r->sampling = *sampling;
	r->n_prompt = n_prompt;
	r->prompt_logprobs = prompt_logprobs;
	r->prompt = (int32_t *)(base + copy);
	if (n_prompt)
		memcpy(base + copy, prompt, n_prompt * sizeof(*prompt));
	r->tokens = (int32_t *)(base + tokens);
	r->logprobs = n_logprobs ? (struct engine_logprob *)(base + logprobs) : NULL;
	r->top = n_top ? (struct engine_logprob *)(base + top) : NULL;
	r->prompt_lp = prompt_logprobs && n_prompt ? (float *)(base + prompt_lp) : NULL;
	r->prompt_top = n_prompt_top ? (struct engine_logprob *)(base + prompt_top) : NULL;
	if (r->prompt_lp)
		r->prompt_lp[0] = NAN;
	r->sampling.biases = (struct engine_bias *)(base + biases);
	if (n_biases)
		memcpy(base + biases, sampling->biases, n_biases * sizeof(*sampling->biases));
	if (n_counts)
		begin_counts(r, base + counts, n_counts);
	if (pooling) {
		r->pooling = *pooling;
		r->pooled = (double *)(base + pooled);
		r->embedding = (float *)(base + embedding);
	}
	r->seq = (struct engine_seq *)(base + seq);
	r->seq->request = r;
	r->seq->job.request = r;
	atomic_init(&r->refs, 1);
	*ret = r;
	return 0;
}

int engine_request_new(const int32_t *prompt, unsigned n_prompt,
		       const struct engine_sampling *sampling, bool prompt_logprobs,
		       struct engine_request **ret)
{
	return new_request(prompt, n_prompt, sampling, prompt_logprobs, NULL, ret);
}

int engine_embedding_new(const int32_t *prompt, unsigned n_prompt,
			 const struct engine_pooling *pooling, struct engine_request **ret)
{
	/* The scheduler expects a token to generate, which is never chosen. */
	const struct engine_sampling one = {.top_p = 1, .logprobs = -1, .max_tokens = 1};

	if (!pooling->how || !pooling->dimensions)
		return -EINVAL;
	return new_request(prompt, n_prompt, &one, false, pooling, ret);
}

int engine_forward_new(const int32_t *prompt, unsigned n_prompt, struct engine_sink *sink,
		       struct engine_request **ret)
{
	const struct engine_sampling one = {.top_p = 1, .logprobs = -1, .max_tokens = 1};
	int error;

	if (!sink->n_rows || !n_prompt || sink->rows[sink->n_rows - 1] != n_prompt - 1)
		return -EINVAL;
	for (unsigned i = 1; i < sink->n_rows; i++) {
		if (sink->rows[i] <= sink->rows[i - 1])
			return -EINVAL;
	}
	error = new_request(prompt, n_prompt, &one, false, NULL, ret);
	if (!error)
		(*ret)->sink = sink;
	return error;
}

int engine_beam_new(const int32_t *prompt, unsigned n_prompt, const struct beam_options *options,
		    struct engine_request **ret)
{
	const struct engine_sampling one = {.top_p = 1, .logprobs = -1, .max_tokens = 1};
	struct engine_request *r;
	int error;

	if (options->width > ENGINE_MAX_BEAMS || options->max_tokens > MAX_LENGTH ||
	    options->n_top > ENGINE_MAX_LOGPROBS)
		return -E2BIG;
	error = new_request(prompt, n_prompt, &one, false, NULL, &r);
	if (error)
		return error;
	error = beam_search_new(options, &r->search);
	if (!error)
		error = beam_run_new(r, options, &r->beams);
	if (error)
		engine_request_unref(r);
	else
		*ret = r;
	return error;
}

struct engine_request *engine_request_ref(struct engine_request *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
	return r;
}

void engine_request_unref(struct engine_request *r)
{
	if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (r->constraint)
		r->constraint->ops->free(r->constraint);
	if (r->sink)
		r->sink->ops->free(r->sink);
	engine_images_unref(r->images);
	beam_search_free(r->search);
	beam_run_free(r->beams);
	free(r);
}

/* ---- the ready list -------------------------------------------------------------------------- */

/*
 * The engine thread pushes, one client thread takes all: a lock-free stack. A request is pushed if
 * its flag was clear; the client clears the flag before it reads the results, so no event is
 * missed.
 */
bool ready_push(struct ready_list *list, struct engine_request *r)
{
	struct engine_request *head;

	if (atomic_exchange(&r->on_ready_list, true))
		return false;
	engine_request_ref(r);
	head = atomic_load(&list->head);
	do {
		r->push_next = head;
	} while (!atomic_compare_exchange_weak(&list->head, &head, r));
	return !head;
}

struct engine_request *ready_take(struct ready_list *list)
{
	struct engine_request *r = atomic_exchange(&list->head, NULL), *oldest = NULL, *next;

	for (; r; r = next) {
		next = r->push_next;
		r->ready_next = oldest;
		oldest = r;
		atomic_exchange(&r->on_ready_list, false);
	}
	return oldest;
}
