/* SPDX-License-Identifier: MIT */
/*
 * Metrics for Prometheus (text format 0.0.4): the server's own counters, those per model, and their
 * formatting. Names are vLLM's with the prefix txda_, so that dashboards need only that change.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_METRICS_METRICS_H
#define TXDA_METRICS_METRICS_H

#include <stdint.h>

#include "json_out.h"

struct engine_stats;

#define METRICS_MAX_BUCKETS 24

enum metrics_histogram {
	METRICS_TIME_TO_FIRST_TOKEN,
	METRICS_INTER_TOKEN_LATENCY,
	METRICS_E2E_LATENCY,
	METRICS_QUEUE_TIME,
	METRICS_PREFILL_TIME,
	METRICS_DECODE_TIME,
	METRICS_PROMPT_TOKENS,
	METRICS_GENERATION_TOKENS,
	METRICS_N_HISTOGRAMS,
};

enum metrics_reason {
	METRICS_STOP,
	METRICS_LENGTH,
	METRICS_ABORT, /* the client disconnected */
	METRICS_ERROR,
	METRICS_TIMEOUT, /* its deadline passed */
	METRICS_N_REASONS,
};

struct metrics_model {
	struct {
		uint64_t buckets[METRICS_MAX_BUCKETS +
				 1]; /* not cumulative; the last one: above all bounds */
		uint64_t count;
		double sum;
	} histograms[METRICS_N_HISTOGRAMS];
	uint64_t finished[METRICS_N_REASONS];
	uint64_t loads, load_failures;
	uint64_t adoptions;  /* loads that found their weights on the chips */
	double load_seconds; /* of all loads */
	uint64_t unloads[3]; /* by an administrator, idle, evicted */
};

/* Adds @times observations of @value (seconds or tokens). */
void metrics_observe(struct metrics_model *m, enum metrics_histogram which, double value,
		     uint64_t times);

struct metrics_source {
	const char *name; /* of the model */
	const struct metrics_model *model;
	const struct engine_stats *stats; /* NULL: no engine */
	bool ready, pinned;
	const char *state;
	unsigned replicas;		 /* that are ready */
	unsigned parked;		 /* requests that wait for the load */
	uint64_t weight_bytes, kv_bytes; /* per chip */
};

struct metrics_server {
	uint64_t connections; /* open connections */
	uint64_t unknown;     /* those over TCP without a valid key so far */
	uint64_t evicted;     /* those closed to make room for new ones */
	uint64_t turned_away; /* requests over TCP without a valid key */
	uint64_t held_bytes;
	uint64_t kept_bytes;
	uint64_t loop_json_bytes; /* bytes written by the event loop's thread */
	uint64_t descriptors;	  /* of clients */
	uint64_t responses[6];	  /* by first digit of the status */
	double start_time;	  /* seconds since the epoch */
};

/* A chip; unknown values are NAN. */
struct metrics_chip {
	unsigned index;
	char serial[32];
	double up; /* 0: lost, 1 */
	double utilisation, memory_used, memory, power_watts, temperature_celsius, clock_hertz;
	double ecc_corrected, ecc_uncorrected, faults;
};

/* A user's current and total values. */
struct metrics_user {
	char user[64]; /* uid, or the name of a key's user */
	uint64_t connections, requests, held_bytes, images, pixels;
	uint64_t prompt_tokens, generation_tokens, images_read, loads, waits, surplus;
	uint64_t unlogged;
	uint64_t responses[6]; /* by first digit of the status */
};

void metrics_write_users(struct json_out *o, const struct metrics_user *users, unsigned n);

void metrics_write_chips(struct json_out *o, const struct metrics_chip *chips, unsigned n);

void metrics_write(struct json_out *o, const struct metrics_source *sources, unsigned n,
		   const struct metrics_server *server);

#endif
