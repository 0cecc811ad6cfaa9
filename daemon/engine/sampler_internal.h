/* SPDX-License-Identifier: MIT */
/*
 * Shared by the sampler's files: sampler.c (the choice), sampler_list.c (the list of best tokens),
 * sampler_row.c (the full row).
 */
#ifndef TXDA_ENGINE_SAMPLER_INTERNAL_H
#define TXDA_ENGINE_SAMPLER_INTERNAL_H

#include "sampler.h"

#define N_BUCKETS 2048 /* buckets for the tail's weights, by logarithm */

struct ranked {
	double weight;
	int32_t token;
};

/* For qsort(): the largest weight first, ties by token number. */
int sampler_by_rank(const void *a, const void *b);

/* A token with its logit after bias and penalties. */
struct adjusted {
	int32_t token;
	float logit;
	float raw;   /* value on the chip */
	bool listed; /* it is in the list */
};

struct sampler {
	uint64_t bytes_read;
	unsigned vocab, k;
	float *fetched; /* [vocab] the row's logits, once read */
	/* State of the current choice. */
	struct sampler_row *row;
	const struct engine_sampling *p;
	struct sampler_rules rules;
	/*
	 * The best allowed tokens; weights relative to the best, after temperature.
	 */
	unsigned n_list;
	int32_t *list;	    /* [vocab] */
	float *list_logits; /* [vocab] */
	double *list_sum;   /* [vocab + 1]; [i]: total weight of the first i */
	bool whole;	    /* there are no others */
	float floor;	    /* upper bound of the logits of other tokens */
	unsigned n_adjusted;
	struct adjusted *adjusted; /* [vocab] */
	uint32_t *adjusted_at;	   /* [vocab] its number + 1; 0: not adjusted */
	/* The full row. */
	double *weights;       /* [vocab], 0 for tokens of the list and masked ones */
	struct ranked *sorted; /* [vocab] the bucket that contains a limit */
	double bucket_sum[N_BUCKETS];
	unsigned bucket_count[N_BUCKETS];
};

/* Copies the row's logits from the chip unless that was done. */
void sampler_fetch(struct sampler *s, struct sampler_row *row);
/* One logit as on the chip. */
static inline float sampler_read(struct sampler *s, const struct sampler_row *row, int32_t token)
{
	s->bytes_read += row->fetched ? 0 : sizeof(*row->logits);
	return row->logits[token];
}

/* Whether the token is allowed. */
bool sampler_allows(const struct sampler *s, int32_t token);
/* Its adjusted logit. */
static inline float sampler_logit(struct sampler *s, int32_t token)
{
	uint32_t at = s->adjusted_at[token];

	return at ? s->adjusted[at - 1].logit : sampler_read(s, s->row, token);
}

/*
 * Builds the list; -EDOM: the device's list is invalid. sampler_drop_list() must be called in any
 * case.
 */
int sampler_make_list(struct sampler *s);
void sampler_drop_list(struct sampler *s);
/* Computes the list's weights after temperature. */
void sampler_weigh_list(struct sampler *s);
/* How many of the list's best tokens reach @mass; n_list + 1 if all do not. */
unsigned sampler_list_reach(const struct sampler *s, double mass);
/* The first of the list's best @n whose cumulative weight exceeds @target. */
unsigned sampler_list_draw(const struct sampler *s, unsigned n, double target);
/* Chooses using only the list; false if it is not sufficient. */
bool sampler_choose_from_list(struct sampler *s, double u, int32_t *ret_token);
/* -EDOM, -ENOENT */
int sampler_choose_from_row(struct sampler *s, double u, int32_t *ret_token);

#endif
