// SPDX-License-Identifier: MIT
#include "determinism.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS DETERMINISM_TOKENS
#define OTHERS DETERMINISM_OTHERS
#define TAIL   20 /* tokens decoded one by one */

struct run {
	struct runner *r;
	int32_t tokens[OTHERS + 1][TOKENS];
	unsigned lengths[OTHERS + 1];
	unsigned rows[TOKENS];
	float *expected, *got, *spare; /* [TOKENS, V]; the last for one row */
	struct tool_error *error;
};

static int report(struct run *d, const char *what)
{
	const size_t v = d->r->info.vocab;
	unsigned i;

	for (i = 0; i < TOKENS; i++) {
		if (memcmp(d->got + i * v, d->expected + i * v, v * sizeof(float)))
			break;
	}
	if (i < TOKENS)
		printf("%-28s the logits of token %u are others\n", what, i);
	else
		printf("%-28s the same bits\n", what);
	memset(d->got, 0, TOKENS * v * sizeof(float));
	return i < TOKENS;
}

static struct runner_part request(struct run *d, float *logits)
{
	return (struct runner_part){
		.tokens = d->tokens[0],
		.n = TOKENS,
		.rows = d->rows,
		.n_rows = TOKENS,
		.logits = logits,
	};
}

static int in_pieces(struct run *d, unsigned chunk)
{
	struct runner_part part = request(d, d->got);
	char what[64];
	int r;

	r = runner_sequence(d->r, &part, chunk, d->error);
	snprintf(what, sizeof(what), "in pieces of %u:", chunk);
	return r ? r : report(d, what);
}

/* The whole request as one part of a batch, in the middle. */
static int among_others(struct run *d)
{
	struct runner_part parts[OTHERS + 1];
	unsigned i, row = 0;
	int r;

	for (i = 0; i <= OTHERS; i++) {
		/* The request has slot 0 and comes after half of the others. */
		unsigned slot = i == OTHERS / 2 ? 0 : i < OTHERS / 2 ? i + 1 : i;

		parts[i] = (struct runner_part){
			.slot = slot,
			.tokens = d->tokens[slot],
			.n = d->lengths[slot],
			.rows = &row,
			.n_rows = 1,
			.logits = d->spare,
		};
	}
	parts[OTHERS / 2] = request(d, d->got);
	r = runner_step(d->r, parts, OTHERS + 1, d->error);
	return r ? r : report(d, "among 16 others:");
}

/* A prompt, then the rest token by token beside others that do the same. */
static int decoding_beside(struct run *d)
{
	const size_t v = d->r->info.vocab;
	struct runner_part parts[OTHERS + 1];
	unsigned i, t, row = 0;
	int r;

	parts[0] = request(d, d->got);
	parts[0].n = parts[0].n_rows = TOKENS - TAIL;
	r = runner_sequence(d->r, &parts[0], 0, d->error);
	for (t = 0; t < TAIL && !r; t++) {
		for (i = 0; i <= OTHERS; i++)
			parts[i] = (struct runner_part){
				.slot = i,
				.tokens = &d->tokens[i][i ? t : TOKENS - TAIL + t],
				.n = 1,
				.position = i ? t : TOKENS - TAIL + t,
				.rows = &row,
				.n_rows = 1,
				.logits = i ? d->spare : d->got + (TOKENS - TAIL + t) * v,
			};
		r = runner_step(d->r, parts, OTHERS + 1, d->error);
	}
	return r ? r : report(d, "decoding beside 16 others:");
}

static void make_up(struct run *d)
{
	uint32_t seed = 12345;
	unsigned i, t;

	for (i = 0; i <= OTHERS; i++) {
		d->lengths[i] = i ? TAIL + i * 37 % (TOKENS - TAIL) : TOKENS;
		for (t = 0; t < TOKENS; t++) {
			seed = seed * 1664525u + 1013904223u;
			d->tokens[i][t] = (int32_t)((seed >> 8) % d->r->info.vocab);
		}
	}
	for (t = 0; t < TOKENS; t++)
		d->rows[t] = t;
}

static int run_all(struct run *d)
{
	static const unsigned chunks[] = {1, 7, 64};
	struct runner_part part = request(d, d->expected);
	int r, bad = 0;
	unsigned i;

	r = runner_sequence(d->r, &part, 0, d->error);
	if (r)
		return r;
	r = among_others(d);
	for (i = 0; i < 3 && r >= 0; i++) {
		bad |= r;
		r = in_pieces(d, chunks[i]);
	}
	if (r >= 0) {
		bad |= r;
		r = decoding_beside(d);
	}
	return r < 0 ? r : bad | r;
}

int determinism_run(struct runner *r, struct tool_error *error)
{
	struct run *d = calloc(1, sizeof(*d));
	const size_t v = r->info.vocab;
	int ret = -ENOMEM;

	if (d) {
		d->r = r;
		d->error = error;
		d->expected = malloc(TOKENS * v * sizeof(float));
		d->got = calloc(TOKENS * v, sizeof(float));
		d->spare = malloc(v * sizeof(float));
		make_up(d);
	}
	if (d && d->expected && d->got && d->spare)
		ret = run_all(d);
	else
		tool_fail(error, ret, "no memory for logits");
	if (d) {
		free(d->expected);
		free(d->got);
		free(d->spare);
	}
	free(d);
	return ret;
}
