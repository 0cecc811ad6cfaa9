// SPDX-License-Identifier: MIT
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "beam_run.h"
#include "clock.h"
#include "engine_internal.h"
#include "forward.h"

static void wake_engine(struct engine *e)
{
	if (!atomic_load(&e->asleep))
		return;
	pthread_mutex_lock(&e->sleep_lock);
	pthread_cond_signal(&e->wake);
	pthread_mutex_unlock(&e->sleep_lock);
}

static void note_mask(void *engine)
{
	struct engine *e = engine;

	atomic_fetch_add(&e->masks_done, 1);
	wake_engine(e);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

static int load_model(struct engine *e, struct txda_group *group,
		      const struct engine_options *options, struct txda_model_info *info, char *err,
		      size_t errlen)
{
	struct txda_model_options model_options = TXDA_INIT(struct txda_model_options);
	int error;

	model_options.path = options->case_dir;
	model_options.max_kv_blocks = options->max_kv_blocks;
	model_options.kv_reserve_bytes = options->kv_reserve_bytes;
	model_options.progress = options->load_progress;
	model_options.progress_arg = options->load_progress_arg;
	model_options.keep_weights = options->keep_weights;
	model_options.map_weights = options->map_weights;
	model_options.verify_weights = true;
	error = txda_model_load(group, &model_options, &e->model);
	if (!error)
		error = txda_model_info(e->model, info);
	if (error)
		snprintf(err, errlen, "cannot load %s: %s (%s)", options->case_dir,
			 txda_context_error(options->context), strerror(-error));
	return error;
}

static unsigned at_most(unsigned wanted, unsigned normal, unsigned limit)
{
	unsigned value = wanted ? wanted : normal;

	return value < limit ? value : limit;
}

/* The engine's limits: the minimum of the program's, the memory's and the options'. */
static void set_limits(struct engine *e, const struct engine_options *options,
		       const struct txda_model_info *info, struct kv_layout *layout)
{
	struct engine_limits *l = &e->limits;
	unsigned context;

	l->vocab = info->vocab;
	l->block_size = info->block_size;
	l->kv_blocks = info->kv_blocks;
	l->kv_block_bytes = info->kv_block_bytes;
	l->max_num_batched_tokens =
		at_most(options->max_num_batched_tokens, 2048, info->max_tokens);
	l->max_num_seqs = at_most(options->max_num_seqs, 256, info->max_seqs);
	l->max_num_seqs = at_most(l->max_num_seqs, 0, info->max_rows);
	l->max_num_seqs = at_most(l->max_num_seqs, 0, l->max_num_batched_tokens);
	layout->ahead = l->max_num_batched_tokens;
	context = kv_layout_fit(layout, info->kv_blocks);
	l->max_context = context < info->max_context ? context : info->max_context;
	l->max_context = at_most(options->max_context, l->max_context, l->max_context);
	l->hidden = e->slots[0].n_hidden;
	l->pooling = (struct engine_pooling){
		.how = !strcmp(info->pooling, "mean")  ? ENGINE_POOL_MEAN
		       : !strcmp(info->pooling, "cls") ? ENGINE_POOL_CLS
						       : ENGINE_POOL_LAST,
		.dimensions = l->hidden,
		.normalize = !*info->pooling || info->normalize,
	};
	if (e->encoder) {
		l->tower = *encoder_tower(e->encoder);
		l->embeds = (e->slots[0].n_embeds + e->slots[0].n_deepstack) * sizeof(float);
	}
	e->max_queue = at_most(options->max_queue, 1024, 1u << 20);
	e->launch.most_ns = (options->step_seconds ? options->step_seconds : 600) * NS_PER_S;
	e->launch.stopping = &e->stopping;
	e->max_stall_ns = options->max_stall_ms * (NS_PER_S / 1000);
	e->prefix_caching = options->prefix_caching;
	e->deadline_ns = UINT64_MAX;
}

static int build(struct engine *e, const struct engine_options *options,
		 const struct txda_model_info *info, char *err, size_t errlen)
{
	struct kv_layout layout = {
		.block_size = info->block_size,
		.key_words = info->block_size + (e->encoder ? ENGINE_IMAGES_KEY_WORDS : 0),
		.n_groups = info->kv_groups ? info->kv_groups : 1,
		.state_blocks = info->state_blocks,
	};
	struct scheduler_options plan;
	int error;

	for (unsigned i = 0; i < 2; i++) {
		error = step_init(&e->slots[i], e->model, options->context, info,
				  &layout.max_blocks, err, errlen);
		if (error)
			return error;
	}
	if (e->slots[0].n_before) {
		snprintf(err, errlen, "%s is a prediction layer (--mtp), not a model by itself",
			 options->case_dir);
		return -EINVAL;
	}
	if (e->encoder) {
		error = encoder_check(e->encoder, e->slots[0].n_embeds, e->slots[0].n_deepstack,
				      err, errlen);
		if (error)
			return error;
		e->slots[0].sees = e->slots[1].sees = true;
	}
	if (info->stateful && !info->state_blocks) {
		snprintf(err, errlen,
			 "%s is from an older version, with states in KV blocks: recompile it",
			 options->case_dir);
		return -EINVAL;
	}
	for (unsigned g = 0; g < layout.n_groups; g++) {
		if (!info->state_blocks || !info->kv_reach[g])
			continue;
		snprintf(err, errlen,
			 "%s has both states and attention within a window, which no model has",
			 options->case_dir);
		return -EINVAL;
	}
	/* A draft model uses the blocks of group 0 and attends to all positions. */
	for (unsigned g = options->speculation == ENGINE_SPECULATE_MODEL; g < layout.n_groups; g++)
		layout.reach[g] = info->kv_reach[g];
	set_limits(e, options, info, &layout);
	plan = (struct scheduler_options){
		.max_seqs = e->limits.max_num_seqs,
		.max_users = e->max_queue + 2 * e->limits.max_num_seqs,
		.max_tokens = e->limits.max_num_batched_tokens,
		.max_rows = info->max_rows,
		.max_context = e->limits.max_context,
		.max_stall_ns = e->max_stall_ns,
		.max_decode_ns = options->max_decode_ms * (NS_PER_S / 1000),
		.fair_time = options->fair_time,
		.prefix_caching = options->prefix_caching,
	};
	error = kv_new(info->kv_blocks, &layout, &e->kv);
	if (!error)
		error = scheduler_new(&plan, e->kv, &e->scheduler);
	e->slots[0].kv = e->slots[1].kv = e->kv;
	if (!error)
		error = sampler_new(info->vocab, info->topk, &e->sampler);
	if (!error)
		error = mask_workers_new(plan.max_users, note_mask, e, &e->masks);
	if (!error) {
		e->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		error = e->ready_fd < 0 ? -errno : 0;
	}
	if (error)
		snprintf(err, errlen, "cannot set up the engine: %s", strerror(-error));
	return error;
}

static int start_thread(struct engine *e, char *err, size_t errlen)
{
	sigset_t all, old;
	int error;

	/* Signals are handled by the daemon's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = -pthread_create(&e->thread, NULL, engine_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		snprintf(err, errlen, "cannot start the engine thread: %s", strerror(-error));
	else
		e->thread_runs = true;
	return error;
}

int engine_new(struct txda_group *group, const struct engine_options *options, struct engine **ret,
	       char *err, size_t errlen)
{
	struct txda_model_info info = TXDA_INIT(struct txda_model_info);
	struct engine *e = calloc(1, sizeof(*e));
	pthread_condattr_t monotonic;
	int error;

	if (!e) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	e->ready_fd = -1;
	TAILQ_INIT(&e->encodes);
	pthread_mutex_init(&e->sleep_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&e->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&e->stats_lock, NULL);
	error = encoder_new(group, options, &e->encoder, err, errlen);
	if (!error)
		error = load_model(e, group, options, &info, err, errlen);
	if (!error)
		error = build(e, options, &info, err, errlen);
	if (!error && options->speculation && info.stateful) {
		snprintf(err, errlen,
			 "speculation is not possible: layers of the model keep a state, in which "
			 "proposals that are not kept would stay");
		error = -EINVAL;
	}
	if (!error && options->speculation)
		error = draft_new(group, options, &e->launch, &info, &e->slots[0], &e->draft, err,
				  errlen);
	if (!error)
		error = start_thread(e, err, errlen);
	if (error) {
		engine_free(e);
		return error;
	}
	*ret = e;
	return 0;
}

void engine_free(struct engine *e)
{
	struct engine_request *r, *next;

	if (!e)
		return;
	atomic_store(&e->stopping, true);
	if (e->thread_runs) {
		wake_engine(e);
		pthread_join(e->thread, NULL);
	}
	mask_workers_free(e->masks);
	for (r = ready_take(&e->ready); r; r = next) {
		next = r->ready_next;
		engine_request_unref(r);
	}
	if (e->ready_fd >= 0)
		close(e->ready_fd);
	draft_free(e->draft);
	sampler_free(e->sampler);
	scheduler_free(e->scheduler);
	kv_free(e->kv);
	step_fini(&e->slots[0]);
	step_fini(&e->slots[1]);
	encoder_free(e->encoder);
	txda_model_unref(e->model);
	pthread_mutex_destroy(&e->sleep_lock);
	pthread_cond_destroy(&e->wake);
	pthread_mutex_destroy(&e->stats_lock);
	free(e);
}

/* ---- the client side ------------------------------------------------------------------------- */

static int check_pooling(const struct engine *e, const struct engine_request *r, char *err,
			 size_t errlen)
{
	if (!r->pooling.how)
		return 0;
	if (!e->limits.hidden) {
		snprintf(err, errlen,
			 "the model has no hidden states output: it is not an embedding model and "
			 "was compiled without --hidden");
		return -EOPNOTSUPP;
	}
	if (r->pooling.dimensions > e->limits.hidden) {
		snprintf(err, errlen, "%u dimensions were requested; the model's vectors have %u",
			 r->pooling.dimensions, e->limits.hidden);
		return -EINVAL;
	}
	return 0;
}

static int check_images(const struct engine *e, const struct engine_request *r, char *err,
			size_t errlen)
{
	if (!r->images || (e->encoder && r->images->n_prompt == r->n_prompt &&
			   !memcmp(&r->images->tower, &e->limits.tower, sizeof(e->limits.tower))))
		return 0;
	snprintf(err, errlen, "the images were prepared for another model");
	return -EOPNOTSUPP;
}

static int check(const struct engine *e, const struct engine_request *r, char *err, size_t errlen)
{
	int error;

	if (!r->n_prompt) {
		snprintf(err, errlen, "the prompt is empty");
		return -EINVAL;
	}
	if (r->n_prompt > e->limits.max_context) {
		snprintf(err, errlen, "the prompt has %u tokens, more than the context of %u",
			 r->n_prompt, e->limits.max_context);
		return -E2BIG;
	}
	error = sampler_check(&r->sampling, err, errlen);
	if (!error)
		error = check_pooling(e, r, err, errlen);
	if (!error)
		error = forward_check(e, r, err, errlen);
	if (!error)
		error = beam_run_check(e, r, err, errlen);
	if (!error)
		error = check_images(e, r, err, errlen);
	if (error)
		return error;
	for (unsigned i = 0; i < r->n_prompt; i++) {
		if (r->prompt[i] < 0 || (unsigned)r->prompt[i] >= e->limits.vocab) {
			snprintf(err, errlen,
				 "token %d at position %u is not in the vocabulary of %u",
				 r->prompt[i], i, e->limits.vocab);
			return -EINVAL;
		}
	}
	return 0;
}

int engine_submit(struct engine *e, struct engine_request *r, char *err, size_t errlen)
{
	struct engine_seq *head;
	unsigned queued, limit, n = 0;

	for (struct engine_request *f = r; f; f = f == r ? r->forks : f->fork_next, n++) {
		int error = check(e, f, err, errlen);

		if (error)
			return error;
	}
	if (atomic_load(&e->lost)) {
		snprintf(err, errlen, "%s", e->lost_text);
		return -EIO;
	}
	if (atomic_load(&e->stopping)) {
		snprintf(err, errlen, "the engine is being stopped");
		return -ESHUTDOWN;
	}
	limit = e->max_queue + (r->beyond_queue ? e->limits.max_num_seqs : 0);
	queued = atomic_fetch_add(&e->n_submitted, n) + atomic_load(&e->n_waiting);
	if (queued + n > limit) {
		atomic_fetch_sub(&e->n_submitted, n);
		snprintf(err, errlen, "%u requests are waiting already; the limit is %u", queued,
			 limit);
		return -EAGAIN;
	}
	for (struct engine_request *f = r; f; f = f == r ? r->forks : f->fork_next) {
		engine_request_ref(f);
		f->queued_ns = clock_ns();
	}
	head = atomic_load(&e->submitted);
	do {
		r->seq->submit_next = head;
	} while (!atomic_compare_exchange_weak(&e->submitted, &head, r->seq));
	wake_engine(e);
	return 0;
}

void engine_cancel(struct engine *e, struct engine_request *r)
{
	if (atomic_exchange(&r->cancelled, true))
		return;
	atomic_fetch_add(&e->cancels, 1);
	wake_engine(e);
}

int engine_ready_fd(struct engine *e)
{
	return e->ready_fd;
}

struct engine_request *engine_take_ready(struct engine *e)
{
	uint64_t count;

	/* Before taking the list, so that later events make the fd readable again. */
	if (read(e->ready_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return NULL;
	return ready_take(&e->ready);
}

void engine_limits(struct engine *e, struct engine_limits *ret)
{
	*ret = e->limits;
}

void engine_stats(struct engine *e, struct engine_stats *ret)
{
	pthread_mutex_lock(&e->stats_lock);
	*ret = e->published;
	pthread_mutex_unlock(&e->stats_lock);
	ret->waiting += atomic_load(&e->n_submitted);
	if (!ret->lost && atomic_load(&e->lost)) {
		ret->lost = true;
		memcpy(ret->error, e->lost_text, sizeof(ret->error));
	}
}
