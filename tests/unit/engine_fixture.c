// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "engine_fixture.h"

/* The build wraps these calls. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

atomic_uint engine_allocations;

void *__wrap_malloc(size_t size)
{
	atomic_fetch_add(&engine_allocations, 1);
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	atomic_fetch_add(&engine_allocations, 1);
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
	atomic_fetch_add(&engine_allocations, 1);
	return __real_realloc(ptr, size);
}

struct engine *open_engine(const struct engine_options *options)
{
	struct engine *e = NULL;
	char err[256] = "";

	assert_int_equal(engine_new(fake_group(0), options, &e, err, sizeof(err)), 0);
	return e;
}

struct engine_sampling greedy(unsigned max_tokens)
{
	return (struct engine_sampling){.top_p = 1, .logprobs = -1, .max_tokens = max_tokens};
}

atomic_int n_constraints;

static struct engine_request **made;
static unsigned n_made;

void drop_later(struct engine_request *r)
{
	made = realloc(made, (n_made + 1) * sizeof(struct engine_request *));
	assert_non_null(made);
	made[n_made++] = r;
}

int drop_requests(void **state)
{
	while (n_made)
		engine_request_unref(made[--n_made]);
	free(made);
	made = NULL;
	assert_int_equal(atomic_load(&n_constraints), 0);
	return 0;
}

struct engine_request *new_request(const int32_t *prompt, unsigned n,
				   const struct engine_sampling *s, bool prompt_lp)
{
	struct engine_request *r = NULL;

	assert_int_equal(engine_request_new(prompt, n, s, prompt_lp, &r), 0);
	drop_later(r);
	return r;
}

void submit(struct engine *e, struct engine_request *r)
{
	char err[256] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), 0);
}

struct engine_request *submit_new(struct engine *e, const int32_t *prompt, unsigned n,
				  const struct engine_sampling *s)
{
	struct engine_request *r = new_request(prompt, n, s, false);

	submit(e, r);
	return r;
}

void expect_refusal(struct engine *e, struct engine_request *r, int error, const char *words)
{
	char err[256] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), error);
	assert_says(err, words);
}

/* Takes news until @n more requests have finished. */
void wait_finished(struct engine *e, unsigned n)
{
	struct pollfd fd = {.fd = engine_ready_fd(e), .events = POLLIN};

	while (n) {
		struct engine_request *r, *next;

		assert_int_equal(poll(&fd, 1, 20000), 1);
		for (r = engine_take_ready(e); r; r = next) {
			next = r->ready_next;
			/* A finished one may come once more with news from before. */
			if (atomic_load(&r->finish) && !r->client) {
				r->client = r;
				n--;
			}
			engine_request_unref(r);
		}
	}
}

void run(struct engine *e, struct engine_request *r)
{
	submit(e, r);
	wait_finished(e, 1);
}

struct engine_request *run_new(struct engine *e, const int32_t *prompt, unsigned n,
			       const struct engine_sampling *s)
{
	struct engine_request *r = submit_new(e, prompt, n, s);

	wait_finished(e, 1);
	return r;
}

void random_prompt(int32_t *prompt, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		prompt[i] = rand() % 97;
}

/* What greedy decoding gives, straight from the model. */
void expect_greedy(const struct engine_request *r)
{
	int32_t all[256];
	float logits[97];
	unsigned n = r->n_prompt;

	memcpy(all, r->prompt, n * sizeof(*all));
	for (unsigned i = 0; i < atomic_load(&r->n_tokens); i++) {
		unsigned best = 0;

		fake_model_logits(all, n, logits);
		for (unsigned t = 1; t < 97; t++)
			best = logits[t] > logits[best] ? t : best;
		assert_int_equal(r->tokens[i], best);
		all[n++] = r->tokens[i];
	}
}

void expect_finish(const struct engine_request *r, enum engine_finish finish)
{
	assert_int_equal(atomic_load(&r->finish), finish);
}

void close_engine_with_stats(struct engine *e, struct engine_stats *ret)
{
	struct engine_stats stats;
	struct timespec t = {0, 1000000};

	/* It publishes after it has told the client. */
	for (unsigned i = 0; i < 1000; i++) {
		engine_stats(e, &stats);
		if (!stats.running && !stats.waiting && stats.kv_usage == 0)
			break;
		nanosleep(&t, NULL);
	}
	assert_int_equal(stats.running, 0);
	assert_int_equal(stats.waiting, 0);
	assert_true(stats.kv_usage == 0);
	engine_free(e);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(atomic_load(&fake_model_violations), 0);
	*ret = stats;
}

void close_engine(struct engine *e)
{
	struct engine_stats stats;

	close_engine_with_stats(e, &stats);
}

/* ---- a constraint ---------------------------------------------------------------------------- */

static bool constraint_allows(const struct test_constraint *c, int32_t token)
{
	return c->free || ((unsigned)token * 7 + c->n * 5 + c->key) % 3 != 0;
}

static int constraint_mask(struct engine_constraint *base, struct engine_mask *ret)
{
	struct test_constraint *c = (struct test_constraint *)base;

	if (c->wait)
		c->wait(c);
	if (c->fail_mask_at && c->n >= c->fail_mask_at)
		return -E2BIG;
	*ret = (struct engine_mask){.end = c->free || c->n % 4 == 3};
	if (c->free)
		return 0;
	memset(c->bits, 0, sizeof(c->bits));
	for (int32_t t = 0; t < 97; t++) {
		if (!constraint_allows(c, t))
			continue;
		c->bits[t / 32] |= 1u << (t % 32);
		c->tokens[ret->n++] = t;
	}
	if (c->list)
		ret->list = c->tokens;
	else
		ret->bits = c->bits;
	return 0;
}

static int constraint_accept(struct engine_constraint *base, int32_t token)
{
	struct test_constraint *c = (struct test_constraint *)base;

	if (c->fail_accept_at && c->n >= c->fail_accept_at)
		return -EINVAL;
	if (!constraint_allows(c, token))
		abort();
	return ++c->n == c->length;
}

static const char *constraint_error(struct engine_constraint *c)
{
	return "the test's constraint fails";
}

static void constraint_free(struct engine_constraint *c)
{
	atomic_fetch_sub(&n_constraints, 1);
	free(c);
}

struct test_constraint *constrain(struct engine_request *r, unsigned key, unsigned length)
{
	static const struct engine_constraint_ops ops = {
		.mask = constraint_mask,
		.accept = constraint_accept,
		.error = constraint_error,
		.free = constraint_free,
	};
	struct test_constraint *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->base.ops = &ops;
	c->key = key;
	c->list = key % 2;
	c->length = length;
	r->constraint = &c->base;
	atomic_fetch_add(&n_constraints, 1);
	return c;
}

int small_model(void **state)
{
	fake_model_config = fake_model_small();
	return 0;
}
