// SPDX-License-Identifier: MIT
/* txda-bench: measures how fast a model runs, in fractions of the machine's limits. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "ceiling.h"
#include "device.h"
#include "image.h"
#include "model.h"
#include "beside.h"
#include "report.h"
#include "runner.h"
#include "serve.h"
#include "stats.h"
#include "tool_line.h"
#include "tool_run.h"

static const char usage[] =
	"Usage: txda-bench [options] [CASE...]\n"
	"       txda-bench model [options] [MODEL...]     (see txda-bench model --help)\n"
	"       txda-bench serve --model NAME [options]   (see txda-bench serve --help)\n"
	"       txda-bench device [options]               (see txda-bench device --help)\n"
	"\n"
	"Runs each compiled model without a server and compares it with the machine's ceilings, "
	"measured\n"
	"immediately before and after. Without CASE: synthetic models of Qwen3-0.6B's shape.\n"
	"\n"
	"  --synthetic NAME   the synthetic model (qwen3-0.6b)\n"
	"  --weights LIST     its weight types (bf16,w8,w4)\n"
	"  --tp N             its tensor-parallel degree (1)\n"
	"  --dir DIR          directory for synthetic models ($XDG_CACHE_HOME/txda/bench or "
	"~/.cache/txda/bench)\n"
	"  --prompt LIST      prefill lengths (512)\n"
	"  --gen N            decode steps timed (16)\n"
	"  --batch LIST       sequences decoded together (1,16)\n"
	"  --context LIST     cached tokens of each sequence (64)\n"
	"  --sweep            all of these: prompts of 512 and 2048, batches of 1 to 64, contexts "
	"of 128\n"
	"                     and 4096\n"
	"  --image WxH        image size in pixels, for vision models (1024x1024)\n"
	"  --compare FILE     ratios to an earlier run's --json output in FILE\n"
	"  --peer CMD         a llama-bench command to run alternately, for ratios to it\n"
	"  --ops              time of a step by op\n"
	"  --json             one JSON document on standard output\n"
	"  --ceilings         only measure the machine's ceilings\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option options[] = {
	{"synthetic", required_argument, NULL, 's'},
	{"weights", required_argument, NULL, 'w'},
	{"tp", required_argument, NULL, 't'},
	{"dir", required_argument, NULL, 'd'},
	{"prompt", required_argument, NULL, 'p'},
	{"gen", required_argument, NULL, 'g'},
	{"batch", required_argument, NULL, 'b'},
	{"context", required_argument, NULL, 'x'},
	{"sweep", no_argument, NULL, 'S'},
	{"image", required_argument, NULL, 'i'},
	{"compare", required_argument, NULL, 'C'},
	{"peer", required_argument, NULL, 'P'},
	{"json", no_argument, NULL, 'j'},
	{"ops", no_argument, NULL, 'o'},
	{"ceilings", no_argument, NULL, 'c'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-bench", usage, options, "");

#define MAX_NUMBERS 16
#define PREFILLS    3 /* timed steps of a prompt */
#define PEER_ROUNDS 3

struct numbers {
	unsigned v[MAX_NUMBERS], n;
};

struct options {
	const char *synthetic, *weights, *dir, *tp, *peer, *compare;
	struct numbers prompt, batch, context;
	unsigned gen;
	struct image_options image;
	struct report report;
	bool ceilings;
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
			"txda-bench: cannot raise the scheduling priority (%s); other processes "
			"may disturb the figures\n",
			strerror(errno));
	close(fd);
}

/* ---- one model ---- */

static double flops(const struct runner *r, unsigned seqs, unsigned n, unsigned context)
{
	const struct txda_model_info *i = &r->info;
	double keys = (double)n * (context - n) + n * (n + 1.0) / 2;

	return seqs * ((double)n * (double)i->flops_per_token + (double)i->flops_per_row +
		       keys * (double)i->flops_per_key);
}

/* A timed step: @tokens per sequence. */
struct shape {
	struct runner *r;
	unsigned tokens;
};

static int prefill_step(void *arg, double *ret_seconds)
{
	const struct shape *s = arg;
	int err = runner_start(s->r, 1, s->tokens + 1);

	return err ? err : runner_step(s->r, s->tokens, ret_seconds);
}

static int decode_step(void *arg, double *ret_seconds)
{
	const struct shape *s = arg;

	return runner_step(s->r, 1, ret_seconds);
}

static int bench_prefill(struct options *o, struct runner *r, unsigned prompt)
{
	struct result x = {.what = "prefill", .batch = 1, .tokens = prompt};
	struct shape s = {r, prompt};
	int err;

	err = report_time(&o->report, r, &x, prefill_step, &s, PREFILLS);
	if (err)
		return err == -E2BIG ? 0 : err; /* reported on stderr; others may fit */
	x.tokens_per_s = prompt / x.seconds;
	x.gflops = flops(r, 1, prompt, prompt) / x.seconds * 1e-9;
	report_print(&o->report, r, &x);
	return o->report.ops && !o->report.json ? report_ops(r->model, &r->timing, prefill_step, &s)
						: 0;
}

/* Fills the cache of all sequences with @context tokens each, in steps as large as the model takes. */
static int fill_context(struct runner *r, unsigned context)
{
	unsigned most = r->info.max_tokens / r->seqs, left = context;
	double ignored;
	int err = most ? 0 : -E2BIG;

	while (left && !err) {
		unsigned n = left < most ? left : most;

		err = runner_step(r, n, &ignored);
		left -= n;
	}
	return err;
}

/* *single: tokens per second of one sequence, once that is known. */
static int bench_decode(struct options *o, struct runner *r, unsigned batch, unsigned context,
			double *single)
{
	struct result x = {.what = "decode", .batch = batch, .tokens = 1, .context = context};
	struct shape s = {r, 1};
	int err;

	err = runner_start(r, batch, context + o->gen + 3);
	if (!err)
		err = fill_context(r, context);
	if (!err)
		err = report_time(&o->report, r, &x, decode_step, &s, o->gen);
	if (err)
		return err == -E2BIG ? 0 : err;
	x.tokens_per_s = batch / x.seconds;
	x.gbs = (double)r->info.step_weight_bytes / x.seconds * 1e-9;
	x.gflops = flops(r, batch, 1, context + o->gen / 2) / x.seconds * 1e-9;
	report_print(&o->report, r, &x);
	if (o->report.ops && !o->report.json)
		err = report_ops(r->model, &r->timing, decode_step, &s);
	if (batch == 1)
		*single = x.tokens_per_s;
	else if (*single > 0 && !o->report.json)
		printf("          %4u sequences decode %.1f times as fast as one\n", batch,
		       x.tokens_per_s / *single);
	return err;
}

/* ---- beside another engine ---- */

/* Tokens per second of a prompt, or of generation after the first token. */
static int own_rate(const struct options *o, struct runner *r, unsigned prompt, double *ret)
{
	struct shape s = {r, prompt ? prompt : 1};
	double seconds, sum = 0;
	int err;

	if (prompt) {
		err = prefill_step(&s, &seconds);
		*ret = prompt / seconds;
		return err;
	}
	err = runner_start(r, 1, o->gen + 2);
	for (unsigned i = 0; i < o->gen && !err; i++, sum += seconds)
		err = decode_step(&s, &seconds);
	*ret = o->gen / sum;
	return err;
}

static int bench_beside(struct options *o, struct runner *r, unsigned prompt)
{
	double own[PEER_ROUNDS], peer[PEER_ROUNDS], a, b;
	int err = own_rate(o, r, prompt, &a); /* warm-up */

	for (unsigned i = 0; i < PEER_ROUNDS && !err; i++) {
		err = own_rate(o, r, prompt, &own[i]);
		if (!err)
			err = beside_run(o->peer, prompt, prompt ? 0 : o->gen, &peer[i]);
	}
	if (err)
		return err == -E2BIG ? 0 : err;
	a = stats_median(own, PEER_ROUNDS);
	b = stats_median(peer, PEER_ROUNDS);
	if (o->report.json) {
		report_json_model(o->report.begun ? ",\n" : "", r);
		printf(",\"what\":\"peer\","
		       "\"prompt\":%u,\"gen\":%u,\"tokens_per_s\":%.2f,"
		       "\"peer_tokens_per_s\":%.2f}",
		       prompt, prompt ? 0 : o->gen, a, b);
		o->report.begun = true;
	} else {
		printf("  %-7s %4u tokens    %9.1f tok/s, the peer %.1f: %.2f times as fast\n",
		       prompt ? "prefill" : "decode", prompt ? prompt : o->gen, a, b, a / b);
		fflush(stdout);
	}
	return 0;
}

static unsigned largest(const struct numbers *n)
{
	unsigned most = 0;

	for (unsigned i = 0; i < n->n; i++)
		most = n->v[i] > most ? n->v[i] : most;
	return most;
}

static int bench_shapes(struct options *o, struct runner *r, const char *dir)
{
	int err = 0;

	for (unsigned p = 0; p < o->prompt.n && !err; p++)
		err = bench_prefill(o, r, o->prompt.v[p]);
	for (unsigned c = 0; c < o->context.n && !err; c++) {
		double single = 0;

		for (unsigned b = 0; b < o->batch.n && !err; b++)
			err = bench_decode(o, r, o->batch.v[b], o->context.v[c], &single);
	}
	for (unsigned p = 0; p <= o->prompt.n && o->peer && !err; p++)
		err = bench_beside(o, r, p < o->prompt.n ? o->prompt.v[p] : 0);
	return err ? err : image_bench(&o->report, r, dir, &o->image);
}

static int bench_model(struct options *o, const char *dir)
{
	unsigned tokens = largest(&o->batch) * (largest(&o->context) + o->gen + 64);
	double loaded, copy;
	struct runner r;
	int err;

	if (tokens < largest(&o->prompt) + 64)
		tokens = largest(&o->prompt) + 64;
	err = runner_open(&r, dir, tokens);
	if (!err && !o->report.json) {
		loaded = (double)r.info.weight_bytes * r.info.tp * 1e-9;
		printf("%s: %s, tp %u, %.2f GB of weights loaded in %.2f s (%.1f GB/s", r.info.name,
		       r.info.weights, r.info.tp, loaded, r.load_s, loaded / r.load_s);
		if (!ceiling_fresh_copy(o->report.threads, &copy))
			printf("; memcpy into fresh memory %.1f GB/s", copy);
		printf(")\n");
	}
	if (!err)
		err = bench_shapes(o, &r, dir);
	runner_close(&r);
	return err;
}

static int bench_synthetic(struct options *o, const char *weights)
{
	const struct case_options made = {.dir = o->dir, .weights = weights, .tp = o->tp};
	char dir[CASE_PATH];
	int err = case_find(o->synthetic, &made, dir);

	return err ? err : bench_model(o, dir);
}

/* "TX8 (cmodel, avx512bf16)": products are compared with the peak of that path's instructions. */
static void choose_ceiling(const char *device)
{
	char path[32];

	ceiling_for(sscanf(device, "TX8 (cmodel, %31[^)])", path) == 1 ? path : "");
}

/* The first chip, and the time from submission to fence of an empty stream, -1 if there is none. */
static int ask_device(struct txda_device_info *info, double *ret_us)
{
	struct txda_context_options co = TXDA_INIT(struct txda_context_options);
	struct txda_context *context = NULL;
	struct txda_device *device;
	int err;

	co.name = "benchmark";
	err = txda_context_new(&co, &context);
	if (!err)
		err = txda_device_get(context, 0, &device);
	if (err) {
		fprintf(stderr, "txda-bench: cannot open a device: %s\n",
			txda_context_error(context));
	} else {
		txda_device_info(device, info);
		txda_device_unref(device);
		*ret_us = device_round_trip_us(context);
	}
	txda_context_unref(context);
	return err;
}

static int print_machine(struct options *o)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct ceiling c;
	double us;
	int err = ask_device(&info, &us);

	if (err)
		return err;
	choose_ceiling(info.name);
	o->report.threads = report_threads(info.cores);
	err = ceiling_measure(o->report.threads, &c);
	if (err) {
		fprintf(stderr, "txda-bench: no memory to measure ceilings\n");
	} else if (o->report.json) {
		printf("{\"schema_version\":1,\"cpus\":%u,\"device\":\"%s\",\"read_gb_per_s\":%.2f,"
		       "\"bf16_gflops\":%.1f,\"int8_gops\":%.1f,"
		       "\"empty_stream_us\":%.3f,\n\"results\":[\n",
		       o->report.threads, info.name, c.read_gbs, c.bf16_gflops, c.int8_gops, us);
	} else {
		printf("machine: %u CPUs, read %.1f GB/s, bf16 %.0f Gflop/s (%s), int8 %.0f Gop/s "
		       "(%s)\n",
		       o->report.threads, c.read_gbs, c.bf16_gflops, c.bf16_by, c.int8_gops,
		       c.int8_by);
		printf("device:  %s, empty stream submit to fence %.2f us\n", info.name, us);
	}
	return err;
}

/* Numbers from 1 to @max, separated by commas. */
static bool parse_numbers(struct numbers *ret, unsigned max)
{
	char *save, *word;

	ret->n = 0;
	for (word = strtok_r(line.value, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (ret->n == MAX_NUMBERS) {
			tool_refuse(&line, "--%s: more than %u numbers", line.name, MAX_NUMBERS);
			return false;
		}
		if (!stats_number(&line, word, 1, max, &ret->v[ret->n++]))
			return false;
	}
	if (!ret->n)
		tool_refuse(&line, "--%s: the list is empty", line.name);
	return ret->n > 0;
}

/* "1024x768" */
static bool parse_image(struct image_options *ret)
{
	char *text = line.value, *x = strchr(text, 'x');

	if (!x) {
		tool_refuse(&line, "--image: \"%s\" is not WIDTHxHEIGHT", text);
		return false;
	}
	*x = 0;
	return stats_number(&line, text, 1, 16384, &ret->width) &&
	       stats_number(&line, x + 1, 1, 16384, &ret->height);
}

/* Returns -1, or the exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	int c;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		bool ok = true;
		unsigned tp;

		switch (c) {
		case 's': o->synthetic = line.value; break;
		case 'w': o->weights = line.value; break;
		case 't':
			o->tp = line.value;
			ok = tool_number(&line, 1, 8, &tp);
			break;
		case 'd': o->dir = line.value; break;
		case 'p': ok = parse_numbers(&o->prompt, 65536); break;
		case 'g': ok = tool_number(&line, 1, 256, &o->gen); break;
		case 'b': ok = parse_numbers(&o->batch, 256); break;
		case 'x': ok = parse_numbers(&o->context, 1u << 20); break;
		case 'S':
			o->prompt = (struct numbers){{512, 2048}, 2};
			o->batch = (struct numbers){{1, 2, 4, 8, 16, 32, 64}, 7};
			o->context = (struct numbers){{128, 4096}, 2};
			break;
		case 'i': ok = parse_image(&o->image); break;
		case 'C': o->compare = line.value; break;
		case 'P': o->peer = line.value; break;
		case 'j': o->report.json = true; break;
		case 'o': o->report.ops = true; break;
		default: o->ceilings = true; break;
		}
		if (!ok)
			return line.status;
	}
	return c ? line.status : -1;
}

/* The case dirs @dirs, or if there are none the synthetic model with each kind of weights. */
static int bench_all(struct options *o, char *const *dirs)
{
	char *list, *save, *word;
	int err = 0;

	if (*dirs) {
		for (; *dirs && !err; dirs++)
			err = bench_model(o, *dirs);
		return err;
	}
	list = strdup(o->weights);
	for (word = list ? strtok_r(list, ",", &save) : NULL; word && !err;
	     word = strtok_r(NULL, ",", &save))
		err = bench_synthetic(o, word);
	free(list);
	return err;
}

static int run_tool(int argc, char **argv)
{
	struct options o = {.synthetic = "qwen3-0.6b",
			    .weights = "bf16,w8,w4",
			    .tp = "1",
			    .prompt = {{512}, 1},
			    .gen = 16,
			    .batch = {{1, 16}, 2},
			    .context = {{64}, 1},
			    .image = {1024, 1024, 32}};
	int err;

	if (argc > 1 && !strcmp(argv[1], "model"))
		return model_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "serve"))
		return serve_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "device"))
		return device_main(argc - 1, argv + 1);
	err = parse_options(&o, argc, argv);
	if (err >= 0)
		return err;
	if (o.compare && report_load_earlier(&o.report, o.compare))
		return 1;
	own_autogroup();
	err = print_machine(&o);
	if (!err) {
		err = o.ceilings ? 0 : bench_all(&o, line.words);
		if (o.report.json)
			printf("\n]}\n");
	}
	cJSON_Delete(o.report.earlier);
	ceiling_free();
	return err ? 1 : 0;
}

int main(int argc, char **argv)
{
	return tool_run("txda-bench", run_tool, argc, argv, EXIT_FAILURE);
}
