// SPDX-License-Identifier: MIT
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "json_out.h"
#include "json_strict.h"
#include "stats.h"

#define RECENT_SECONDS 0.5
#define MAX_STEPS      256
#define MAX_EARLIER    (16u << 20) /* bytes of the file of an earlier run */

unsigned report_threads(unsigned cores)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned cpus = n > 0 ? (unsigned)n : 1;

	return cores && cores < cpus ? cores : cpus;
}

/* Bytes read by the model's chips so far, from their counters. */
static uint64_t bytes_read(const struct runner *r)
{
	uint64_t bytes = 0;

	for (unsigned rank = 0; rank < r->info.tp; rank++) {
		struct txda_device_status status = TXDA_INIT(struct txda_device_status);

		if (!txda_device_status(txda_group_device(r->group, rank), &status))
			bytes += status.bytes_read;
	}
	return bytes;
}

/* Processor seconds used by all threads of this process. */
static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int report_time(struct report *report, const struct runner *r, struct result *x, report_step step,
		void *arg, unsigned steps)
{
	double v[MAX_STEPS], ignored, cpu;
	uint64_t before;
	int err;

	steps = steps > MAX_STEPS ? MAX_STEPS : steps;
	/* The measurement after the previous step is also the one before this step. */
	if (clock_s() - report->last_s > RECENT_SECONDS &&
	    ceiling_measure(report->threads, &report->last))
		return -ENOMEM;
	x->before = report->last;
	err = step(arg, &ignored); /* warm-up */
	before = bytes_read(r);
	for (unsigned i = 0; i < steps && !err; i++) {
		cpu = cpu_s();
		err = step(arg, &v[i]);
		cpu = cpu_s() - cpu;
		x->cpu = !i || cpu < x->cpu ? cpu : x->cpu;
	}
	if (err)
		return err;
	x->chip_bytes = (bytes_read(r) - before) / steps;
	x->seconds = stats_median(v, steps);
	err = ceiling_measure(report->threads, &report->last);
	x->after = report->last;
	report->last_s = clock_s();
	return err;
}

/* ---- an earlier run -------------------------------------------------------------------------- */

int report_load_earlier(struct report *report, const char *path)
{
	char why[256];
	int err = txda_json_load(path, MAX_EARLIER, &report->earlier, why, sizeof(why));

	if (!err && !cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(report->earlier, "results"))) {
		snprintf(why, sizeof(why), "%s: not what txda-bench --json prints", path);
		err = -EINVAL;
	}
	if (err)
		fprintf(stderr, "txda-bench: --compare: %s\n", why);
	return err;
}

static bool same_word(const cJSON *object, const char *key, const char *word)
{
	const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return own && !strcmp(own, word);
}

static double number(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* The same measurement of the earlier run, or NULL. */
static const cJSON *find_earlier(const struct report *report, const struct runner *r,
				 const struct result *x)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(report->earlier, "results"), *item;

	cJSON_ArrayForEach(item, list) {
		if (same_word(item, "model", r->info.name) &&
		    same_word(item, "weights", r->info.weights) &&
		    same_word(item, "what", x->what) && number(item, "tp") == r->info.tp &&
		    number(item, "batch") == x->batch && number(item, "tokens") == x->tokens &&
		    number(item, "context") == x->context)
			return item;
	}
	return NULL;
}

static void compare(const struct report *report, const struct runner *r, const struct result *x,
		    double roof)
{
	const cJSON *earlier = find_earlier(report, r, x);
	double seconds = number(earlier, "step_ms") * 1e-3, cpu = number(earlier, "cpu_ms") * 1e-3,
	       before = number(earlier, "roofline");

	if (!(seconds > 0 && cpu > 0 && before > 0))
		printf("          not in the earlier run\n");
	else
		printf("          %.2f times as fast as in the earlier run, by processor time "
		       "%.2f; of "
		       "the roofline %.2f times as much\n",
		       seconds / x->seconds, cpu / x->cpu, roof / before);
}

/* ---- printing -------------------------------------------------------------------------------- */

static bool int8_weights(const char *weights)
{
	return !strcmp(weights, "w8") || !strcmp(weights, "w4");
}

void report_json_model(const char *before, const struct runner *r)
{
	struct json_out o;

	json_out_init(&o);
	json_begin(&o, '{');
	json_put_string(&o, "model", r->info.name);
	json_put_string(&o, "weights", r->info.weights);
	json_put_uint(&o, "tp", r->info.tp);
	fputs(before, stdout);
	fwrite(o.data, 1, o.len, stdout);
	json_out_free(&o);
}

static void put_csv(const char *text)
{
	bool quote = strpbrk(text, ",\"\r\n");

	if (quote)
		putchar('"');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	if (quote)
		putchar('"');
}

void report_csv_model(const struct runner *r)
{
	put_csv(r->info.name);
	putchar(',');
	put_csv(r->info.weights);
}

static void print_json(struct report *report, const struct runner *r, const struct result *x,
		       double read, double peak, double roof)
{
	report_json_model(report->begun ? ",\n" : "", r);
	printf(",\"what\":\"%s\",\"batch\":%u,"
	       "\"tokens\":%u,\"context\":%u,\"step_ms\":%.4f,\"cpu_ms\":%.4f,\"tokens_per_s\":%."
	       "2f,"
	       "\"weight_gb_per_s\":%.2f,\"read_ceiling_gb_per_s\":%.2f,\"gflops\":%.1f,"
	       "\"dot_ceiling_gflops\":%.1f,\"roofline\":%.3f,\"chip_bytes_read\":%llu,"
	       "\"weight_bytes\":%llu}",
	       x->what, x->batch, x->tokens, x->context, x->seconds * 1e3, x->cpu * 1e3,
	       x->tokens_per_s, x->gbs, read, x->gflops, peak, roof,
	       (unsigned long long)x->chip_bytes,
	       (unsigned long long)r->info.weight_bytes * r->info.tp);
	report->begun = true;
}

void report_print(struct report *report, const struct runner *r, const struct result *x)
{
	/* Towers have bf16 weights, regardless of the text model's type. */
	bool decode = !strcmp(x->what, "decode"), image = !strcmp(x->what, "image"),
	     int8 = int8_weights(r->info.weights) && !image;
	double read = (x->before.read_gbs + x->after.read_gbs) / 2;
	/* peak rates do not change: a lower value was a disturbed measurement */
	double peak = int8 ? fmax(x->before.int8_gops, x->after.int8_gops)
			   : fmax(x->before.bf16_gflops, x->after.bf16_gflops);
	/*
	 * The minimum time of a step, given memory bandwidth and peak rates, as a fraction of the
	 * measured time.
	 */
	double roof = fmax((double)x->chip_bytes * 1e-9 / (read * x->seconds), x->gflops / peak);

	if (report->json) {
		print_json(report, r, x, read, peak, roof);
		return;
	}
	if (decode)
		printf("  decode  %4u at once   %9.2f ms  %9.1f tok/s   %7.1f GB/s    = %3.0f%% of "
		       "the bandwidth %.1f; roofline %.0f%%; context %u; %.3g MB read, weights "
		       "%.3g MB\n",
		       x->batch, x->seconds * 1e3, x->tokens_per_s, x->gbs, 100 * x->gbs / read,
		       read, 100 * roof, x->context, (double)x->chip_bytes / 1e6,
		       (double)r->info.weight_bytes * r->info.tp / 1e6);
	else
		printf("  %-7s %4u tokens    %9.2f ms  %9.1f tok/s   %7.1f Gflop/s = %3.0f%% of "
		       "the %s peak %.0f; roofline %.0f%%\n",
		       x->what, x->tokens, x->seconds * 1e3, x->tokens_per_s, x->gflops,
		       100 * x->gflops / peak, int8 ? "int8" : "bf16", peak, 100 * roof);
	if (report->earlier)
		compare(report, r, x, roof);
	fflush(stdout);
}

/* ---- where the time goes --------------------------------------------------------------------- */

struct op_sum {
	char name[80];
	unsigned calls;
	uint64_t ns;
};

/* "layers.3.mlp.down" is one of the calls of "layers.mlp.down". */
static void op_name(const char *opcode, const char *label, char *buf, size_t len)
{
	size_t n = (size_t)snprintf(buf, len, "%s ", opcode);

	for (; *label && n + 1 < len; label++) {
		if (*label == '.' && label[1] >= '0' && label[1] <= '9') {
			label++;
			while (label[1] >= '0' && label[1] <= '9')
				label++;
			continue;
		}
		buf[n++] = *label;
	}
	buf[n] = 0;
}

static int by_time(const void *a, const void *b)
{
	const struct op_sum *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_ops(struct txda_model *model, const struct txda_op_timing *timing, int count,
		      struct op_sum *sum, double seconds)
{
	uint64_t busy = 0, span = timing[count - 1].end_ns - timing[0].start_ns;
	int sums = 0;

	for (int i = 0; i < count; i++) {
		uint64_t ns = timing[i].end_ns - timing[i].start_ns;
		const char *opcode, *label;
		char name[80];
		int j;

		txda_model_op(model, (unsigned)i, &opcode, &label);
		op_name(opcode, label, name, sizeof(name));
		for (j = 0; j < sums && strcmp(sum[j].name, name); j++)
			;
		if (j == sums)
			memcpy(sum[sums++].name, name, sizeof(name));
		sum[j].calls++;
		sum[j].ns += ns;
		busy += ns;
	}
	qsort(sum, (size_t)sums, sizeof(*sum), by_time);
	for (int i = 0; i < sums; i++)
		printf("    %-44s %4u calls %10.1f us %5.1f%%\n", sum[i].name, sum[i].calls,
		       (double)sum[i].ns * 1e-3, 100.0 * (double)sum[i].ns / (double)span);
	printf("    %-44s            %10.1f us %5.1f%%   (step %.1f us)\n", "between ops",
	       (double)(span - busy) * 1e-3, 100.0 * (double)(span - busy) / (double)span,
	       seconds * 1e6);
}

int report_ops(struct txda_model *model, struct txda_op_timing **timing, report_step step,
	       void *arg)
{
	int count = txda_model_op_count(model), err;
	struct op_sum *sum = calloc((size_t)count + 1, sizeof(*sum));
	struct txda_op_timing *all = calloc((size_t)count + 1, sizeof(*all));
	double seconds;

	*timing = all;
	err = all && sum ? step(arg, &seconds) : -ENOMEM;
	*timing = NULL;
	if (!err)
		print_ops(model, all, count, sum, seconds);
	free(all);
	free(sum);
	return err;
}
