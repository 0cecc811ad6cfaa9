/* SPDX-License-Identifier: MIT */
/*
 * Results of measurements and their output: a line of text or an object of the JSON document each,
 * with the machine's limits at that time and the ratio to the same measurement of an earlier run.
 */
#ifndef TXDA_BENCH_REPORT_H
#define TXDA_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "ceiling.h"
#include "runner.h"

struct report {
	bool json, ops;
	unsigned threads;    /* that measure ceilings: see report_threads() */
	bool begun;	     /* JSON: an object was printed */
	cJSON *earlier;	     /* --compare: the output of an earlier run with --json; NULL: none */
	struct ceiling last; /* what was measured last, and when */
	double last_s;
};

struct result {
	const char *what; /* "prefill", "decode", "image" or "first token" */
	unsigned batch;	  /* sequences */
	unsigned tokens;  /* of a step and sequence, or of the image */
	unsigned context; /* decode: keys that each sequence sees */
	double seconds;	  /* median of a step */
	double cpu;	  /* least processor time of a step: chips in this process are threads */
	double tokens_per_s;
	double gbs, gflops;
	struct ceiling before, after;
	uint64_t chip_bytes; /* that the chips read in a step */
};

/* Runs one step; *ret_seconds is its duration. 0 or -errno. */
typedef int (*report_step)(void *arg, double *ret_seconds);

/*
 * Times @steps steps (256 at most) after one that is not timed, between two measurements of the
 * ceilings; fills in x->seconds, chip_bytes, before and after.
 */
int report_time(struct report *report, const struct runner *r, struct result *x, report_step step,
		void *arg, unsigned steps);
void report_print(struct report *report, const struct runner *r, const struct result *x);

/*
 * Runs one more step with a timeline and prints it, summed up by op. @timing: where the step
 * expects the address of an array with an element for each op of @model.
 */
int report_ops(struct txda_model *model, struct txda_op_timing **timing, report_step step,
	       void *arg);

/*
 * Prints @before and the beginning of an object of JSON, with the model; and the model's name and
 * weights as two values of CSV (RFC 4180). A case dir may have any text for them.
 */
void report_json_model(const char *before, const struct runner *r);
void report_csv_model(const struct runner *r);

/* Reads the output of an earlier run with --json. Errors are reported on stderr. */
int report_load_earlier(struct report *report, const char *path);

/* As many as the device has cores, at most one per online CPU, which is also what 0 cores give. */
unsigned report_threads(unsigned cores);

#endif
