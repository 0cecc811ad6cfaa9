// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

struct summary {
	double mean, p50, p90, p99, max;
};

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Sorts v; percentiles by the nearest rank. */
static struct summary summarise(float *v, size_t n)
{
	struct summary s = {0};

	if (!n)
		return s;
	qsort(v, n, sizeof(*v), compare);
	for (size_t i = 0; i < n; i++)
		s.mean += (double)v[i] / (double)n;
	s.p50 = (double)v[(n - 1) * 50 / 100];
	s.p90 = (double)v[(n - 1) * 90 / 100];
	s.p99 = (double)v[(n - 1) * 99 / 100];
	s.max = (double)v[n - 1];
	return s;
}

static void print_text(const char *what, const struct summary *s)
{
	printf("  %-22s %9.2f %9.2f %9.2f %9.2f %9.2f\n", what, s->mean * 1e3, s->p50 * 1e3,
	       s->p90 * 1e3, s->p99 * 1e3, s->max * 1e3);
}

static void print_json(const char *what, const struct summary *s)
{
	printf(",\"%s_ms\":{\"mean\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}",
	       what, s->mean * 1e3, s->p50 * 1e3, s->p90 * 1e3, s->p99 * 1e3, s->max * 1e3);
}

void serve_report(const struct serve_options *o, struct serve_record *records, unsigned n,
		  struct serve_gaps *gaps, const struct serve_full *full, double seconds)
{
	float *ttft = calloc(n + 1, sizeof(*ttft)), *e2e = calloc(n + 1, sizeof(*e2e));
	uint64_t prompt = 0, cached = 0, output = 0, chunks = 0;
	double full_rate = 0;
	struct summary first, gap, all;
	size_t n_first = 0, n_done = 0;

	if (!ttft || !e2e) {
		fprintf(stderr, "txda-bench: out of memory\n");
		free(ttft);
		free(e2e);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct serve_record *r = &records[i];

		if (r->first > 0)
			ttft[n_first++] = (float)(r->first - r->start);
		if (!r->done)
			continue;
		e2e[n_done++] = (float)(r->end - r->start);
		prompt += r->prompt_tokens;
		cached += r->cached_tokens;
		output += r->output_tokens;
		chunks += r->chunks;
	}
	if (full->seconds > 0 && chunks && n_done == n)
		full_rate = (double)full->chunks / full->seconds * (double)output / (double)chunks;
	first = summarise(ttft, n_first);
	gap = summarise(gaps->s, gaps->n);
	all = summarise(e2e, n_done);
	if (o->json) {
		printf("{\"schema_version\":1,\"requests\":%u,\"completed\":%zu,\"seconds\":%.3f,"
		       "\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"output_tokens\":%llu,"
		       "\"requests_per_s\":%.3f,\"output_tokens_per_s\":%.2f",
		       n, n_done, seconds, (unsigned long long)prompt, (unsigned long long)cached,
		       (unsigned long long)output, (double)n_done / seconds,
		       (double)output / seconds);
		if (full_rate > 0)
			printf(",\"full_seconds\":%.3f,\"full_output_tokens_per_s\":%.2f",
			       full->seconds, full_rate);
		print_json("ttft", &first);
		print_json("itl", &gap);
		print_json("e2e", &all);
		printf("}\n");
	} else {
		printf("%zu of %u requests in %.2f s: %.2f requests/s, %.1f output tokens/s, %.1f "
		       "prompt tokens/s\n",
		       n_done, n, seconds, (double)n_done / seconds, (double)output / seconds,
		       (double)prompt / seconds);
		if (full_rate > 0)
			printf("%.1f output tokens/s in the %.2f s in which all clients had an "
			       "answer coming\n",
			       full_rate, full->seconds);
		printf("%llu prompt tokens, of these %llu from the prefix cache; %llu output "
		       "tokens\n\n",
		       (unsigned long long)prompt, (unsigned long long)cached,
		       (unsigned long long)output);
		printf("  %-22s %9s %9s %9s %9s %9s\n", "milliseconds", "mean", "p50", "p90", "p99",
		       "max");
		print_text("time to first token", &first);
		print_text("inter-token latency", &gap);
		print_text("end to end", &all);
	}
	free(ttft);
	free(e2e);
}

int serve_write_csv(FILE *f, const struct serve_record *records, unsigned n)
{
	fprintf(f, "request,status,start_s,ttft_ms,e2e_ms,prompt_tokens,cached_tokens,"
		   "output_tokens,chunks\n");
	for (unsigned i = 0; i < n; i++) {
		const struct serve_record *r = &records[i];

		fprintf(f, "%u,%d,%.6f,%.3f,%.3f,%u,%u,%u,%u\n", i, r->done ? r->status : 0,
			r->start - records[0].start,
			r->first > 0 ? (r->first - r->start) * 1e3 : -1.0,
			r->end > 0 ? (r->end - r->start) * 1e3 : -1.0, r->prompt_tokens,
			r->cached_tokens, r->output_tokens, r->chunks);
	}
	errno = 0;
	if (!fflush(f) && !ferror(f))
		return 0;
	return errno ? -errno : -EIO;
}
