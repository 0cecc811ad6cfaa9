// SPDX-License-Identifier: MIT
/* txda-bench: how fast a model runs, as fractions of what the machine can do. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "ceiling.h"
#include "clock.h"
#include "device.h"
#include "model.h"
#include "runner.h"
#include "serve.h"
#include "stats.h"
#include "txda_isa.h"

static const char usage[] =
	"usage: txda-bench [options] [CASE...]\n"
	"       txda-bench model [options] [MODEL...]     (see txda-bench model --help)\n"
	"       txda-bench serve --model NAME [options]   (see txda-bench serve --help)\n"
	"       txda-bench device [options]               (see txda-bench device --help)\n"
	"\n"
	"Runs each compiled model without a server and compares it with the machine's ceilings, "
	"measured\n"
	"right before and after. Without CASE: synthetic models of Qwen3-0.6B's shape.\n"
	"\n"
	"  --synthetic NAME   the made-up model (qwen3-0.6b)\n"
	"  --weights LIST     its weight types (bf16,w8,w4)\n"
	"  --tp N             its chips (1)\n"
	"  --dir DIR          where made-up models are kept ($XDG_CACHE_HOME/txda/bench or "
	"~/.cache/txda/bench)\n"
	"  --prompt N         prefill length (512)\n"
	"  --gen N            decode steps timed (16)\n"
	"  --batch LIST       sequences decoded at once (1,16)\n"
	"  --ops              where the time of a step goes, by op\n"
	"  --json             one JSON document on standard output\n"
	"  --ceilings         measure the machine and nothing else\n"
	"  -h, --help\n"
	"      --version\n";

struct options {
	const char *synthetic, *weights, *dir, *tp;
	unsigned prompt, gen, batch[8], n_batch;
	bool json, ceilings, ops;
};

struct result {
	const char *what;
	unsigned batch;
	double seconds; /* median of a step */
	double tokens_per_s;
	double gbs, gflops;
	struct ceiling before, after;
	uint64_t chip_bytes; /* that the chips read in a step */
};

void own_autogroup(void)
{
	int fd;

	setsid();
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "-15", 3) < 0 && write(fd, "0", 1) < 0)
		fprintf(stderr,
			"txda-bench: no own scheduling priority (%s); neighbours may disturb\n",
			strerror(errno));
	close(fd);
}

/* ---- the machine by itself ---- */

static unsigned cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (unsigned)n : 1;
}

/* ---- one model ---- */

/* What the model's chips have read so far, by their own counters. */
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

static int timed(struct runner *r, struct result *res, unsigned n, unsigned steps)
{
	double v[256], ignored;
	uint64_t before;
	int err;

	steps = steps > 256 ? 256 : steps;
	if (ceiling_measure(cpus(), &res->before))
		return -ENOMEM;
	err = runner_step(r, n, &ignored); /* warm-up */
	before = bytes_read(r);
	for (unsigned i = 0; i < steps && !err; i++) {
		if (n > 1) {
			err = runner_start(r, r->seqs, n + 1);
			if (err)
				return err;
		}
		err = runner_step(r, n, &v[i]);
	}
	if (err)
		return err;
	res->chip_bytes = (bytes_read(r) - before) / steps;
	res->seconds = stats_median(v, steps);
	res->batch = r->seqs;
	return ceiling_measure(cpus(), &res->after);
}

static double flops(const struct runner *r, unsigned seqs, unsigned n, unsigned context)
{
	const struct txda_model_info *i = &r->info;
	double keys = (double)n * (context - n) + n * (n + 1.0) / 2;

	return seqs * ((double)n * (double)i->flops_per_token + (double)i->flops_per_row +
		       keys * (double)i->flops_per_key);
}

static double mean(double a, double b)
{
	return (a + b) / 2;
}

static bool int8_weights(const char *weights)
{
	return !strcmp(weights, "w8") || !strcmp(weights, "w4");
}

/* The least time of a step that memory and units allow, as a share of the time it took. */
static double roofline(const struct result *x, double read, double peak)
{
	return fmax((double)x->chip_bytes * 1e-9 / (read * x->seconds), x->gflops / peak);
}

static void print_result(const struct options *o, const struct runner *r, const struct result *x,
			 bool *first)
{
	double read = mean(x->before.read_gbs, x->after.read_gbs);
	bool int8 = int8_weights(r->info.weights);
	/* what the units can do does not change; a low reading was a disturbed one */
	double peak = int8 ? fmax(x->before.int8_gops, x->after.int8_gops)
			   : fmax(x->before.bf16_gflops, x->after.bf16_gflops);
	double roof = roofline(x, read, peak);
	bool prefill = !strcmp(x->what, "prefill");

	if (o->json) {
		printf("%s{\"model\":\"%s\",\"weights\":\"%s\",\"tp\":%u,\"what\":\"%s\",\"batch\":"
		       "%u,\"step_ms\":%.4f,\"tokens_per_s\":%.2f,"
		       "\"weight_gb_per_s\":%.2f,\"read_ceiling_gb_per_s\":%.2f,\"gflops\":%.1f,"
		       "\"dot_ceiling_gflops\":%.1f,\"roofline\":%.3f,\"chip_bytes_read\":%llu,"
		       "\"weight_bytes\":%llu}",
		       *first ? "" : ",\n", r->info.name, r->info.weights, r->info.tp, x->what,
		       x->batch, x->seconds * 1e3, x->tokens_per_s, x->gbs, read, x->gflops, peak,
		       roof, (unsigned long long)x->chip_bytes,
		       (unsigned long long)r->info.weight_bytes * r->info.tp);
		*first = false;
		return;
	}
	if (prefill)
		printf("  prefill %4u tokens    %9.2f ms  %9.1f tok/s   %7.1f Gflop/s = %3.0f%% of "
		       "the %s peak %.0f; roofline %.0f%%\n",
		       o->prompt, x->seconds * 1e3, x->tokens_per_s, x->gflops,
		       100 * x->gflops / peak, int8 ? "int8" : "bf16", peak, 100 * roof);
	else
		printf("  decode  %4u at once   %9.2f ms  %9.1f tok/s   %7.1f GB/s    = %3.0f%% of "
		       "the bandwidth %.1f; roofline %.0f%%; %.3g MB read, weights %.3g MB\n",
		       x->batch, x->seconds * 1e3, x->tokens_per_s, x->gbs, 100 * x->gbs / read,
		       read, 100 * roof, (double)x->chip_bytes / 1e6,
		       (double)r->info.weight_bytes * r->info.tp / 1e6);
	fflush(stdout);
}

/* ---- where the time goes ---- */

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

/* One more step with a timeline, summed up by op. */
static int print_ops(struct runner *r, unsigned n)
{
	int count = txda_model_op_count(r->model), sums = 0, err;
	struct op_sum *sum = calloc((size_t)count + 1, sizeof(*sum));
	uint64_t busy = 0, span;
	double seconds;

	r->timing = calloc((size_t)count + 1, sizeof(*r->timing));
	err = r->timing && sum ? runner_step(r, n, &seconds) : -ENOMEM;
	for (int i = 0; i < count && !err; i++) {
		const char *opcode, *label;
		char name[80];
		int j;

		txda_model_op(r->model, (unsigned)i, &opcode, &label);
		op_name(opcode, label, name, sizeof(name));
		for (j = 0; j < sums && strcmp(sum[j].name, name); j++)
			;
		if (j == sums)
			memcpy(sum[sums++].name, name, sizeof(name));
		sum[j].calls++;
		sum[j].ns += r->timing[i].end_ns - r->timing[i].start_ns;
		busy += r->timing[i].end_ns - r->timing[i].start_ns;
	}
	if (!err) {
		span = r->timing[count - 1].end_ns - r->timing[0].start_ns;
		qsort(sum, (size_t)sums, sizeof(*sum), by_time);
		for (int i = 0; i < sums; i++)
			printf("    %-44s %4u calls %10.1f us %5.1f%%\n", sum[i].name, sum[i].calls,
			       (double)sum[i].ns * 1e-3, 100.0 * (double)sum[i].ns / (double)span);
		printf("    %-44s            %10.1f us %5.1f%%   (step %.1f us)\n", "between ops",
		       (double)(span - busy) * 1e-3, 100.0 * (double)(span - busy) / (double)span,
		       seconds * 1e6);
	}
	free(r->timing);
	free(sum);
	r->timing = NULL;
	return err;
}

static int bench_prefill(const struct options *o, struct runner *r, bool *first)
{
	struct result x = {.what = "prefill"};
	int err = runner_start(r, 1, o->prompt + 1);

	if (!err)
		err = timed(r, &x, o->prompt, 3);
	if (err)
		return err;
	x.tokens_per_s = o->prompt / x.seconds;
	x.gflops = flops(r, 1, o->prompt, o->prompt) / x.seconds * 1e-9;
	print_result(o, r, &x, first);
	if (!o->ops || o->json)
		return 0;
	err = runner_start(r, 1, o->prompt + 1);
	return err ? err : print_ops(r, o->prompt);
}

/* *single: tokens per second of one sequence, once that is known. */
static int bench_decode(const struct options *o, struct runner *r, unsigned batch, double *single,
			bool *first)
{
	struct result x = {.what = "decode"};
	unsigned start = 64;
	double ignored;
	int err;

	while (start > 1 && start * batch > r->info.max_tokens)
		start /= 2;
	err = runner_start(r, batch, start + o->gen + 3);
	if (!err)
		err = runner_step(r, start, &ignored);
	if (!err)
		err = timed(r, &x, 1, o->gen);
	if (err)
		return err;
	x.tokens_per_s = x.batch / x.seconds;
	x.gbs = (double)r->info.step_weight_bytes / x.seconds * 1e-9;
	x.gflops = flops(r, x.batch, 1, start + o->gen / 2) / x.seconds * 1e-9;
	print_result(o, r, &x, first);
	if (o->ops && !o->json)
		err = print_ops(r, 1);
	if (batch == 1)
		*single = x.tokens_per_s;
	else if (*single > 0 && !o->json)
		printf("          %4u sequences decode %.1f times as fast as one\n", batch,
		       x.tokens_per_s / *single);
	return err;
}

static int bench_model(const struct options *o, const char *dir, bool *first)
{
	double single = 0, loaded, copy;
	struct runner r;
	int err = runner_open(&r, dir, 20 * (o->prompt + o->gen + 64));

	if (!err && !o->json) {
		loaded = (double)r.info.weight_bytes * r.info.tp * 1e-9;
		printf("%s: %s, tp %u, %.2f GB of weights loaded in %.2f s (%.1f GB/s", r.info.name,
		       r.info.weights, r.info.tp, loaded, r.load_s, loaded / r.load_s);
		if (!ceiling_fresh_copy(cpus(), &copy))
			printf("; memcpy into fresh memory %.1f GB/s", copy);
		printf(")\n");
	}
	if (!err)
		err = bench_prefill(o, &r, first);
	for (unsigned b = 0; b < o->n_batch && !err; b++)
		err = bench_decode(o, &r, o->batch[b], &single, first);
	runner_close(&r);
	return err;
}

static int bench_synthetic(const struct options *o, const char *weights, bool *first)
{
	const struct case_options options = {.dir = o->dir, .weights = weights, .tp = o->tp};
	char dir[CASE_PATH];
	int err = case_find(o->synthetic, &options, dir);

	return err ? err : bench_model(o, dir, first);
}

static void print_machine(const struct options *o)
{
	struct txda_context_options co = TXDA_INIT(struct txda_context_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_context *context;
	struct txda_device *device;
	struct ceiling c;
	double us = -1;

	if (ceiling_measure(cpus(), &c))
		return;
	co.name = "benchmark";
	if (!txda_context_new(&co, &context)) {
		if (!txda_device_get(context, 0, &device)) {
			txda_device_info(device, &info);
			txda_device_unref(device);
		}
		us = device_round_trip_us(context);
		txda_context_unref(context);
	}
	if (o->json) {
		printf("{\"schema_version\":1,\"cpus\":%u,\"device\":\"%s\",\"read_gb_per_s\":%.2f,"
		       "\"bf16_gflops\":%.1f,\"int8_gops\":%.1f,"
		       "\"empty_stream_us\":%.3f,\n\"results\":[\n",
		       cpus(), info.name, c.read_gbs, c.bf16_gflops, c.int8_gops, us);
		return;
	}
	printf("machine: %u CPUs, read %.1f GB/s, bf16 %.0f Gflop/s (%s), int8 %.0f Gop/s (%s)\n",
	       cpus(), c.read_gbs, c.bf16_gflops, c.bf16_by, c.int8_gops, c.int8_by);
	printf("device:  %s, empty stream submit to fence %.2f us\n", info.name, us);
}

static bool parse_batches(struct options *o, char *list)
{
	char *save, *word;

	o->n_batch = 0;
	for (word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (o->n_batch == sizeof(o->batch) / sizeof(o->batch[0])) {
			fprintf(stderr, "txda-bench: more than %u batch sizes\n", o->n_batch);
			return false;
		}
		if (!stats_number(word, 1, 256, &o->batch[o->n_batch++]))
			return false;
	}
	return o->n_batch > 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"synthetic", required_argument, NULL, 's'},
		{"weights", required_argument, NULL, 'w'},
		{"tp", required_argument, NULL, 't'},
		{"dir", required_argument, NULL, 'd'},
		{"prompt", required_argument, NULL, 'p'},
		{"gen", required_argument, NULL, 'g'},
		{"batch", required_argument, NULL, 'b'},
		{"json", no_argument, NULL, 'j'},
		{"ops", no_argument, NULL, 'o'},
		{"ceilings", no_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	struct options o = {.synthetic = "qwen3-0.6b",
			    .weights = "bf16,w8,w4",
			    .tp = "1",
			    .prompt = 512,
			    .gen = 16,
			    .batch = {1, 16},
			    .n_batch = 2};
	bool first = true;
	int c, err = 0;

	if (argc > 1 && !strcmp(argv[1], "model"))
		return model_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "serve"))
		return serve_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "device"))
		return device_main(argc - 1, argv + 1);
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) >= 0) {
		bool ok = true;
		unsigned tp;

		switch (c) {
		case 's': o.synthetic = optarg; break;
		case 'w': o.weights = optarg; break;
		case 't':
			o.tp = optarg;
			ok = stats_number(optarg, 1, 8, &tp);
			break;
		case 'd': o.dir = optarg; break;
		case 'p': ok = stats_number(optarg, 2, 65536, &o.prompt); break;
		case 'g': ok = stats_number(optarg, 1, 256, &o.gen); break;
		case 'b': ok = parse_batches(&o, optarg); break;
		case 'j': o.json = true; break;
		case 'o': o.ops = true; break;
		case 'c': o.ceilings = true; break;
		case 'h': fputs(usage, stdout); return 0;
		case 'V': printf("txda-bench %s\n", txda_version()); return 0;
		default: ok = false;
		}
		if (!ok) {
			fprintf(stderr, "Try 'txda-bench --help'.\n");
			return 2;
		}
	}
	own_autogroup();
	print_machine(&o);
	if (!o.ceilings && optind < argc) {
		for (int i = optind; i < argc && !err; i++)
			err = bench_model(&o, argv[i], &first);
	} else if (!o.ceilings) {
		char *list = strdup(o.weights), *save, *word;

		for (word = list ? strtok_r(list, ",", &save) : NULL; word && !err;
		     word = strtok_r(NULL, ",", &save))
			err = bench_synthetic(&o, word, &first);
		free(list);
	}
	if (o.json)
		printf("\n]}\n");
	ceiling_free();
	return err ? 1 : 0;
}
