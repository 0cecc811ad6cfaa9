/* SPDX-License-Identifier: MIT */
/*
 * txda-bench serve: loads a server of OpenAI's API and measures latencies and throughput as its
 * clients see them. Any such server will do (on a Unix socket, or TCP on this machine), so that
 * others can be compared with the same requests.
 *
 * Closed loop: each of a number of clients sends its next request when the last one has ended. Open
 * loop: requests arrive at a mean rate, with exponential gaps (a Poisson process), whether or not
 * earlier ones have ended.
 *
 * All random numbers are derived from the seed: the same command sends the same requests.
 */
#ifndef TXDA_BENCH_SERVE_H
#define TXDA_BENCH_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum serve_workload {
	SERVE_RANDOM,	     /* prompts without a common prefix */
	SERVE_SHARED_PREFIX, /* all prompts begin with the same text */
	SERVE_MULTI_TURN,    /* conversations: a prompt continues the last one and its answer */
};

struct serve_options {
	const char *socket; /* path, or NULL: @host */
	const char *key;    /* of a TCP server, or NULL */
	const char *host;   /* ADDRESS:PORT */
	const char *model;  /* as a JSON string */
	enum serve_workload workload;
	unsigned requests, concurrency;
	double rate; /* requests per second; 0: closed loop */
	unsigned prompt_words, prefix_words, turns;
	unsigned output_tokens;
	double temperature;
	uint64_t seed;
	const char *csv; /* path: a line per request; NULL: none */
	bool json;
};

/* The result of a request; times are CLOCK_MONOTONIC seconds. */
struct serve_record {
	double start, first, end;
	unsigned prompt_tokens, cached_tokens, output_tokens, chunks;
	int status; /* of HTTP; 0: the connection failed */
	bool done;  /* the stream was complete */
};

/*
 * The time during which all clients of a closed loop were receiving answers, and the number of
 * chunks in that time.
 */
struct serve_full {
	double seconds;
	uint64_t chunks;
};

/* Gaps between the chunks of all answers, for the percentiles. */
struct serve_gaps {
	float *s;
	size_t n, cap;
};

int serve_main(int argc, char **argv);

/* serve_prompt.c: the prompt of request @index as JSON string contents; free() it. */
char *serve_prompt(const struct serve_options *o, unsigned index, const char *history);
/* The next pseudo-random number in [0, 1). */
double serve_random(uint64_t *state);

/* serve_report.c */
void serve_report(const struct serve_options *o, struct serve_record *records, unsigned n,
		  struct serve_gaps *gaps, const struct serve_full *full, double seconds);
/* 0 or -errno. */
int serve_write_csv(FILE *f, const struct serve_record *records, unsigned n);

#endif
