/* SPDX-License-Identifier: MIT */
/* What the engine's tests share: an engine over a model without a chip, requests, what they must
 * give. */
#ifndef TXDA_TESTS_ENGINE_FIXTURE_H
#define TXDA_TESTS_ENGINE_FIXTURE_H

#include <stdatomic.h>

#include "unit.h"
#include "engine.h"
#include "fake_model.h"

#define MAX_PROMPT 100

extern atomic_uint engine_allocations; /* of the whole program so far */

int small_model(void **state); /* a test's setup: fake_model_small() */
/* A test's teardown: drops the requests that it made, with all that belongs to them. */
int drop_requests(void **state);
/* Lets that one be dropped then, too; new_request() does. */
void drop_later(struct engine_request *r);

struct engine *open_engine(const struct engine_options *options);
/* Waits until nothing runs and no block is held, and checks that nothing leaked or went wrong. */
void close_engine(struct engine *e);
void close_engine_with_stats(struct engine *e, struct engine_stats *ret);

struct engine_sampling greedy(unsigned max_tokens);
struct engine_request *new_request(const int32_t *prompt, unsigned n,
				   const struct engine_sampling *s, bool prompt_lp);
void submit(struct engine *e, struct engine_request *r);
/* A new one, submitted. */
struct engine_request *submit_new(struct engine *e, const int32_t *prompt, unsigned n,
				  const struct engine_sampling *s);
/* Submits it, which is refused with that error and words. */
void expect_refusal(struct engine *e, struct engine_request *r, int error, const char *words);
/* Takes news until @n more requests have finished. */
void wait_finished(struct engine *e, unsigned n);
void run(struct engine *e, struct engine_request *r);
struct engine_request *run_new(struct engine *e, const int32_t *prompt, unsigned n,
			       const struct engine_sampling *s);
void random_prompt(int32_t *prompt, unsigned n);
/* What greedy decoding gives, straight from the model. */
void expect_greedy(const struct engine_request *r);
void expect_finish(const struct engine_request *r, enum engine_finish finish);

/*
 * A constraint for tests: of tokens whose number and place say so, as bits or as a list, up to a
 * length. It fails where it is told to.
 */
struct test_constraint {
	struct engine_constraint base;
	unsigned n, key, length, fail_mask_at, fail_accept_at;
	bool list, free;			 /* free: every token may come, and the end */
	void (*wait)(struct test_constraint *c); /* before each mask; NULL: not */
	uint32_t bits[4];
	int32_t tokens[97];
};
extern atomic_int n_constraints; /* that live */
struct test_constraint *constrain(struct engine_request *r, unsigned key, unsigned length);

#endif
