// SPDX-License-Identifier: MIT
/*
 * Stands in for libtxda, engine and compiler, so that the server and the table of models can be
 * tested alone: every checkpoint loads at once, and the answer to a prompt is the prompt again and
 * again, a token every FAKE_TOKEN_US microseconds (default 0) for each request. A constraint is
 * kept: where the prompt's token may not come, the middle one of those that may does. A forward
 * call gets a row in a token's time, of numbers that tell its token and its position.
 *
 * FAKE_LOAD_MS delays a load, FAKE_LOAD_ERROR makes it fail; FAKE_LOST_AFTER=N loses the chips
 * after N tokens, once. There are FAKE_CHIPS (1) chips of FAKE_CHIP_MB (1024), each model has
 * FAKE_WEIGHT_MB (100), vectors of FAKE_HIDDEN (16) numbers and up to 64 MiB of KV cache.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "beam.h"
#include "beam_run.h"
#include "clock.h"
#include "engine.h"
#include "cache.h"
#include "cache_room.h"
#include "txda.h"

#define MAX_REQUESTS 8192
#define MAX_CHIPS    8
#define KV_BLOCK     ((uint64_t)64 << 10)
#define KV_BLOCKS    1024
#define VOCAB	     4096
#define CONTEXT	     2048

/* ---- libtxda --------------------------------------------------------------------------------- */

struct txda_device {
	unsigned index;
};
struct txda_group {
	struct txda_device *device;
};

static char place; /* of the one context */
static struct txda_device devices[MAX_CHIPS];
static pthread_mutex_t chips_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t used_bytes[MAX_CHIPS];
static atomic_bool was_lost; /* a new chip is a better one */

static long env_number(const char *name)
{
	const char *value = getenv(name);

	return value ? strtol(value, NULL, 10) : 0;
}

static long env_or(const char *name, long otherwise)
{
	return getenv(name) ? env_number(name) : otherwise;
}

static unsigned n_chips(void)
{
	long n = env_or("FAKE_CHIPS", 1);

	return n > 0 && n <= MAX_CHIPS ? (unsigned)n : 1;
}

int txda_context_new(const struct txda_context_options *options, struct txda_context **ret_context)
{
	(void)options;
	for (unsigned i = 0; i < MAX_CHIPS; i++)
		devices[i].index = i;
	*ret_context = (struct txda_context *)&place;
	return 0;
}

struct txda_context *txda_context_ref(struct txda_context *context)
{
	return context;
}

struct txda_context *txda_context_unref(struct txda_context *context)
{
	(void)context;
	return NULL;
}

/* Nothing ever happens to chips that are not there. */
int txda_context_event_fd(struct txda_context *context)
{
	static int fd = -1;

	(void)context;
	if (fd < 0)
		fd = eventfd(0, EFD_CLOEXEC);
	return fd;
}

int txda_context_event(struct txda_context *context, struct txda_event *ret_event)
{
	(void)context;
	(void)ret_event;
	return -EAGAIN;
}

const char *txda_context_error(struct txda_context *context)
{
	(void)context;
	return "";
}

const char *txda_context_backend(struct txda_context *context)
{
	(void)context;
	return "fake";
}

int txda_context_device_count(struct txda_context *context)
{
	(void)context;
	return (int)n_chips();
}

int txda_device_get(struct txda_context *context, unsigned index, struct txda_device **ret_device)
{
	(void)context;
	*ret_device = &devices[index];
	return 0;
}

struct txda_device *txda_device_unref(struct txda_device *device)
{
	(void)device;
	return NULL;
}

int txda_device_info(struct txda_device *device, struct txda_device_info *ret_info)
{
	*ret_info = TXDA_INIT(struct txda_device_info);
	ret_info->index = ret_info->physical = device->index;
	snprintf(ret_info->name, sizeof(ret_info->name), "fake");
	ret_info->mem_bytes = (uint64_t)env_or("FAKE_CHIP_MB", 1024) << 20;
	return 0;
}

int txda_device_status(struct txda_device *device, struct txda_device_status *ret_status)
{
	*ret_status = TXDA_INIT(struct txda_device_status);
	ret_status->temp_mc = INT32_MIN;
	ret_status->power_mw = ret_status->clock_khz = ret_status->utilisation_permille =
		UINT32_MAX;
	pthread_mutex_lock(&chips_lock);
	ret_status->mem_used_bytes = used_bytes[device->index];
	pthread_mutex_unlock(&chips_lock);
	return 0;
}

int txda_group_new(struct txda_context *context, const struct txda_group_options *options,
		   struct txda_group **ret_group)
{
	struct txda_group *group;

	(void)context;
	if (options->replica >= n_chips())
		return -ENODEV;
	group = malloc(sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->device = &devices[options->replica];
	*ret_group = group;
	return 0;
}

struct txda_group *txda_group_unref(struct txda_group *group)
{
	free(group);
	return NULL;
}

unsigned txda_group_size(struct txda_group *group)
{
	(void)group;
	return 1;
}

struct txda_device *txda_group_device(struct txda_group *group, unsigned rank)
{
	(void)rank;
	return group->device;
}

int txda_model_plan(struct txda_context *context, const char *path,
		    struct txda_model_plan *ret_plan)
{
	(void)context;
	(void)path;
	*ret_plan = TXDA_INIT(struct txda_model_plan);
	ret_plan->tp = 1;
	ret_plan->weight_bytes = (uint64_t)env_or("FAKE_WEIGHT_MB", 100) << 20;
	ret_plan->kv_block_bytes = KV_BLOCK;
	ret_plan->kv_blocks_at_limit = KV_BLOCKS;
	return 0;
}

/* ---- engine ---------------------------------------------------------------------------------- */

struct engine {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	int fd;
	bool stop, lost;
	struct engine_request *requests[MAX_REQUESTS];
	unsigned n;
	struct engine_request *ready[MAX_REQUESTS]; /* oldest first */
	unsigned n_ready;
	unsigned max_queue;
	struct engine_stats stats;
	long token_us, lost_after;
	struct txda_device *device;
	uint64_t bytes;
	unsigned kv_blocks;
};

#define MAX_HIDDEN 4096

static unsigned n_hidden(void)
{
	long n = env_or("FAKE_HIDDEN", 16);

	return n > 0 && n <= MAX_HIDDEN ? (unsigned)n : 16;
}

/* Requests are the engine's own (request.c); it does no beam search. */
int beam_run_new(struct engine_request *r, const struct beam_options *options,
		 struct beam_run **ret)
{
	(void)r;
	(void)options;
	*ret = NULL;
	return 0;
}

void beam_run_free(struct beam_run *b)
{
	(void)b; /* NULL */
}

static void put_ready(struct engine *e, struct engine_request *r)
{
	const uint64_t one = 1;

	if (!atomic_exchange(&r->on_ready_list, true))
		e->ready[e->n_ready++] = engine_request_ref(r);
	if (write(e->fd, &one, sizeof(one)) < 0)
		abort();
}

static bool is_stop(const struct engine_sampling *s, int32_t token)
{
	for (unsigned i = 0; !s->ignore_eos && i < s->n_stop_tokens; i++)
		if (s->stop_tokens[i] == token)
			return true;
	return false;
}

static bool mask_has(const struct engine_mask *m, int32_t token)
{
	if (!m->bits && !m->list)
		return true;
	if (m->bits)
		return m->bits[token / 32] >> (token % 32) & 1;
	for (unsigned i = 0; i < m->n; i++)
		if (m->list[i] == token)
			return true;
	return false;
}

/* The token @wanted, or one that may come in its place; -1: none. */
static int32_t within_mask(const struct engine_mask *m, int32_t wanted)
{
	unsigned skip = m->n / 2;

	if (mask_has(m, wanted))
		return wanted;
	for (int32_t t = 0; t < VOCAB; t++)
		if (mask_has(m, t) && !skip--)
			return t;
	return -1;
}

/* The next token by the request's constraint; what it does to the request. */
static enum engine_finish constrained(struct engine_request *r, int32_t *token)
{
	struct engine_constraint *c = r->constraint;
	struct engine_mask mask;
	int result = c->ops->mask(c, &mask);

	if (!result && !mask.n && mask.end && r->sampling.n_stop_tokens) {
		*token = r->sampling.stop_tokens[0];
		return ENGINE_RUNNING;
	}
	*token = result ? -1 : within_mask(&mask, *token);
	if (*token >= 0)
		result = c->ops->accept(c, *token);
	if (*token < 0 || result < 0) {
		r->error = -EPROTO;
		snprintf(r->error_text, sizeof(r->error_text), "%s",
			 result ? c->ops->error(c) : "no token may come");
		return ENGINE_FINISH_ERROR;
	}
	return result ? ENGINE_FINISH_COMPLETE : ENGINE_RUNNING;
}

/* A vector that tells the last token, or of the mean all of them. */
static enum engine_finish embed(struct engine_request *r)
{
	const struct engine_pooling *p = &r->pooling;
	unsigned first = p->how == ENGINE_POOL_MEAN ? 0 : r->n_prompt - 1;
	double square = 0;

	for (unsigned i = first; i < r->n_prompt; i++)
		for (unsigned k = 0; k < p->dimensions; k++)
			r->embedding[k] += (float)((r->prompt[i] >> k % 12 & 1) + 1);
	for (unsigned k = 0; k < p->dimensions; k++)
		square += r->embedding[k] * r->embedding[k];
	for (unsigned k = 0; k < p->dimensions && p->normalize; k++)
		r->embedding[k] = (float)(r->embedding[k] / sqrt(square));
	r->started_ns = r->first_token_ns = r->last_token_ns = clock_ns();
	return ENGINE_FINISH_COMPLETE;
}

static enum engine_finish give_row(struct engine_request *r)
{
	struct engine_sink *sink = r->sink;
	unsigned position = sink->rows[r->n_taken];
	float logits[VOCAB], hidden[MAX_HIDDEN];
	int error;

	for (unsigned t = 0; t < VOCAB; t++)
		logits[t] = (float)(((unsigned)r->prompt[position] * 31 + position * 7 + t) % 4099);
	for (unsigned k = 0; k < n_hidden(); k++)
		hidden[k] = (float)((r->prompt[position] >> k & 1) + 1);
	if (!r->started_ns)
		r->started_ns = clock_ns();
	error = sink->ops->row(sink, r->n_taken, logits, sink->hidden ? hidden : NULL);
	if (error) {
		r->error = error;
		snprintf(r->error_text, sizeof(r->error_text), "%s", sink->ops->error(sink));
		return ENGINE_FINISH_ERROR;
	}
	r->first_token_ns = r->last_token_ns = clock_ns();
	return ++r->n_taken == sink->n_rows ? ENGINE_FINISH_COMPLETE : ENGINE_RUNNING;
}

/* One token for @r; true when it ended. */
static bool step(struct engine *e, struct engine_request *r)
{
	unsigned n = atomic_load(&r->n_tokens);
	enum engine_finish how = ENGINE_RUNNING;
	int32_t token = r->prompt[n % r->n_prompt];

	if (e->lost) {
		how = ENGINE_FINISH_ERROR;
		r->error = -EIO;
		snprintf(r->error_text, sizeof(r->error_text), "the fake chip was pulled out");
	} else if (atomic_load(&r->cancelled)) {
		how = ENGINE_FINISH_CANCELLED;
	} else if (r->deadline_ns && clock_ns() >= r->deadline_ns) {
		how = ENGINE_FINISH_TIMEOUT;
		r->error = -ETIMEDOUT;
	} else if (r->pooling.how) {
		how = embed(r);
	} else if (r->sink) {
		how = give_row(r);
	} else if (!r->constraint || (how = constrained(r, &token)) != ENGINE_FINISH_ERROR) {
		r->tokens[n] = token;
		if (r->logprobs)
			r->logprobs[n] = (struct engine_logprob){token, -0.25f};
		for (int k = 0; k < r->sampling.logprobs; k++)
			r->top[n * (unsigned)r->sampling.logprobs + (unsigned)k] =
				(struct engine_logprob){k ? (token + k) % VOCAB : token,
							-0.25f - (float)k};
		if (!n)
			r->started_ns = r->first_token_ns = clock_ns();
		r->last_token_ns = clock_ns();
		atomic_store_explicit(&r->n_tokens, n + 1, memory_order_release);
		e->stats.generation_tokens++;
		if (is_stop(&r->sampling, token) && n + 1 >= r->sampling.min_tokens)
			how = ENGINE_FINISH_STOP;
		else if (!how && n + 1 == r->sampling.max_tokens)
			how = ENGINE_FINISH_LENGTH;
		if (e->lost_after && e->stats.generation_tokens >= (uint64_t)e->lost_after)
			e->lost = true;
	}
	if (how != ENGINE_RUNNING) {
		e->stats.finished[how]++;
		atomic_store_explicit(&r->finish, how, memory_order_release);
	}
	put_ready(e, r);
	return how != ENGINE_RUNNING;
}

static void *run(void *arg)
{
	struct engine *e = arg;

	pthread_mutex_lock(&e->lock);
	while (!e->stop) {
		if (!e->n) {
			pthread_cond_wait(&e->wake, &e->lock);
			continue;
		}
		for (unsigned i = 0; i < e->n;) {
			struct engine_request *r = e->requests[i];

			if (step(e, r)) {
				e->requests[i] = e->requests[--e->n];
				engine_request_unref(r);
			} else {
				i++;
			}
		}
		pthread_mutex_unlock(&e->lock);
		if (e->token_us)
			usleep((useconds_t)e->token_us);
		pthread_mutex_lock(&e->lock);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

/* The load takes its time, and tells how far it is. */
static void pretend_to_load(const struct engine_options *options)
{
	long ms = env_number("FAKE_LOAD_MS");

	for (long done = 0; done < ms; done += 10) {
		options->load_progress(options->load_progress_arg, (uint64_t)done, (uint64_t)ms);
		usleep(10000);
	}
}

/* Weights and as many KV blocks as there is room for. */
static int take_memory(struct engine *e, const struct engine_options *options, char *err,
		       size_t errlen)
{
	uint64_t weights = (uint64_t)env_or("FAKE_WEIGHT_MB", 100) << 20, room, blocks;
	struct txda_device_info info;
	int error = 0;

	txda_device_info(e->device, &info);
	pthread_mutex_lock(&chips_lock);
	room = info.mem_bytes - used_bytes[e->device->index];
	if (room < weights + options->kv_reserve_bytes + KV_BLOCK) {
		snprintf(err, errlen, "the fake chip is full");
		error = -ENOMEM;
	} else {
		blocks = (room - weights - options->kv_reserve_bytes) / KV_BLOCK;
		e->kv_blocks = (unsigned)(blocks < options->max_kv_blocks ? blocks
									  : options->max_kv_blocks);
		e->bytes = weights + (uint64_t)e->kv_blocks * KV_BLOCK;
		used_bytes[e->device->index] += e->bytes;
	}
	pthread_mutex_unlock(&chips_lock);
	return error;
}

int engine_new(struct txda_group *group, const struct engine_options *options, struct engine **ret,
	       char *err, size_t errlen)
{
	struct engine *e = calloc(1, sizeof(*e));
	const char *wrong = getenv("FAKE_LOAD_ERROR");
	int error = wrong ? -EINVAL : 0;

	if (!e)
		return -ENOMEM;
	pretend_to_load(options);
	e->device = group->device;
	if (wrong)
		snprintf(err, errlen, "%s", wrong);
	else
		error = take_memory(e, options, err, errlen);
	if (error) {
		free(e);
		return error;
	}
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->wake, NULL);
	e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	e->max_queue = options->max_queue ? options->max_queue : 1024;
	e->token_us = env_number("FAKE_TOKEN_US");
	e->lost_after = atomic_load(&was_lost) ? 0 : env_number("FAKE_LOST_AFTER");
	if (pthread_create(&e->thread, NULL, run, e))
		return -EAGAIN;
	*ret = e;
	return 0;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	pthread_cond_signal(&e->wake);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	while (e->n)
		engine_request_unref(e->requests[--e->n]);
	while (e->n_ready)
		engine_request_unref(e->ready[--e->n_ready]);
	if (e->lost)
		atomic_store(&was_lost, true);
	pthread_mutex_lock(&chips_lock);
	used_bytes[e->device->index] -= e->bytes;
	pthread_mutex_unlock(&chips_lock);
	close(e->fd);
	free(e);
}

/* Each token of the prompt but the first is as probable as any other. */
static void score_prompt(struct engine_request *r)
{
	unsigned top = r->sampling.logprobs > 0 ? (unsigned)r->sampling.logprobs : 0;

	for (unsigned i = 1; r->prompt_lp && i < r->n_prompt; i++)
		r->prompt_lp[i] = -0.5f;
	for (unsigned i = 0; r->prompt_top && i < r->n_prompt * top; i++)
		r->prompt_top[i] = (struct engine_logprob){(int32_t)(5 + i % top), -0.25f};
}

int engine_submit(struct engine *e, struct engine_request *r, char *err, size_t errlen)
{
	unsigned n = 1;
	int result = 0;

	for (struct engine_request *f = r->forks; f; f = f->fork_next)
		n++;
	pthread_mutex_lock(&e->lock);
	if (e->lost) {
		snprintf(err, errlen, "the fake chip was pulled out");
		result = -EIO;
	} else if (e->n + n > e->max_queue || e->n + n > MAX_REQUESTS) {
		snprintf(err, errlen, "%u requests wait; the limit is %u", e->n, e->max_queue);
		result = -EAGAIN;
	} else {
		for (struct engine_request *f = r; f; f = f == r ? r->forks : f->fork_next) {
			score_prompt(f);
			f->queued_ns = clock_ns();
			e->requests[e->n++] = engine_request_ref(f);
		}
		pthread_cond_signal(&e->wake);
	}
	pthread_mutex_unlock(&e->lock);
	return result;
}

void engine_cancel(struct engine *e, struct engine_request *r)
{
	(void)e;
	atomic_store(&r->cancelled, true);
}

int engine_ready_fd(struct engine *e)
{
	return e->fd;
}

struct engine_request *engine_take_ready(struct engine *e)
{
	struct engine_request *first = NULL;
	uint64_t count;

	pthread_mutex_lock(&e->lock);
	if (read(e->fd, &count, sizeof(count)) < 0)
		count = 0;
	while (e->n_ready) {
		struct engine_request *r = e->ready[--e->n_ready];

		r->ready_next = first;
		first = r;
		atomic_store(&r->on_ready_list, false);
	}
	pthread_mutex_unlock(&e->lock);
	return first;
}

int engine_weights(struct engine *e, bool draft, unsigned rank, struct txda_weights **ret)
{
	(void)e;
	(void)draft;
	(void)rank;
	(void)ret;
	return -ENOENT; /* there is nothing to keep */
}

void engine_limits(struct engine *e, struct engine_limits *ret)
{
	*ret = (struct engine_limits){
		.vocab = VOCAB,
		.max_context = CONTEXT,
		.block_size = 16,
		.kv_blocks = e->kv_blocks,
		.kv_block_bytes = KV_BLOCK,
		.hidden = n_hidden(),
		.pooling = {ENGINE_POOL_LAST, n_hidden(), true},
	};
}

void engine_stats(struct engine *e, struct engine_stats *ret)
{
	pthread_mutex_lock(&e->lock);
	*ret = e->stats;
	ret->running = e->n;
	ret->lost = e->lost;
	if (e->lost)
		snprintf(ret->error, sizeof(ret->error), "the fake chip was pulled out");
	pthread_mutex_unlock(&e->lock);
}

/* ---- the cache of compiled models ------------------------------------------------------------ */

/* Nothing has to be compiled: a checkpoint is as good as a case dir. */
int cache_find(const char *wanted, char *path, size_t len, char *err, size_t errlen)
{
	(void)err;
	(void)errlen;
	snprintf(path, len, "%s", wanted ? wanted : "");
	return 0;
}

int cache_get(const char *cache, const struct cache_source *source, bool again,
	      const struct child_options *options, char *case_dir, size_t len,
	      struct cache_use **ret, char *err, size_t errlen)
{
	(void)cache;
	(void)again;
	(void)options;
	(void)err;
	(void)errlen;
	snprintf(case_dir, len, "%s", source->path);
	*ret = NULL;
	return 0;
}

void cache_release(struct cache_use *use)
{
	(void)use; /* nothing was held */
}
