// SPDX-License-Identifier: MIT
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "clock.h"
#include "report.h"
#include "runner.h"
#include "tool_line.h"

#define MAX_LIST 16

static const char usage[] =
	"Usage: txda-bench model [options] [MODEL...]\n"
	"\n"
	"Time to first token (FTL) and tokens per second after it (TPS), by shape. MODEL: a case "
	"dir, a\n"
	"checkpoint's directory or the name of a synthetic model (qwen3-0.6b).\n"
	"\n"
	"  --batch LIST       sequences processed together (1,4,16)\n"
	"  --input LIST       tokens of each prompt (128,1024)\n"
	"  --output LIST      tokens generated (64)\n"
	"  --tp LIST          tensor-parallel degree of models that are compiled here (1)\n"
	"  --weights LIST     their weight types (keep; bf16 for synthetic models)\n"
	"  --dir DIR          directory for compiled models\n"
	"  --csv              comma-separated values\n"
	"  --json             one JSON object per line\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option options[] = {
	{"batch", required_argument, NULL, 'b'},
	{"input", required_argument, NULL, 'i'},
	{"output", required_argument, NULL, 'o'},
	{"tp", required_argument, NULL, 't'},
	{"weights", required_argument, NULL, 'w'},
	{"dir", required_argument, NULL, 'd'},
	{"csv", no_argument, NULL, 'c'},
	{"json", no_argument, NULL, 'j'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-bench model", usage, options, "");

struct list {
	const char *word[MAX_LIST];
	unsigned number[MAX_LIST];
	unsigned n;
};

struct options {
	struct list batch, input, output, tp, weights;
	const char *dir;
	bool csv, json;
};

static bool parse_list(bool numbers, struct list *ret)
{
	char *save, *word, *end;

	ret->n = 0;
	for (word = strtok_r(line.value, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		unsigned long v = numbers ? strtoul(word, &end, 10) : 1;

		if (ret->n == MAX_LIST || (numbers && (*end || v < 1 || v > 1u << 20))) {
			tool_refuse(&line, "--%s is a list of at most %d %s, \"%s\" is wrong",
				    line.name, MAX_LIST,
				    numbers ? "numbers from 1 to 1048576" : "words", word);
			return false;
		}
		ret->word[ret->n] = word;
		ret->number[ret->n++] = (unsigned)v;
	}
	if (!ret->n)
		tool_refuse(&line, "--%s: the list is empty", line.name);
	return ret->n > 0;
}

/* Prompts of @input tokens each, in steps as large as the model takes them. */
static int prefill(struct runner *r, unsigned batch, unsigned input)
{
	unsigned most = r->info.max_tokens / batch, left = input;
	double ignored;
	int err = most ? 0 : -E2BIG;

	while (left && !err) {
		unsigned n = left < most ? left : most;

		/* A step of one token is a decode; the last chunk must not be one by accident. */
		if (left > n && left - n == 1 && n > 2)
			n--;
		err = runner_step(r, n, &ignored);
		left -= n;
	}
	return err;
}

struct shape {
	unsigned batch, input, output;
};

static int generate(struct runner *r, const struct shape *s, double *ret_ftl, double *ret_tps)
{
	double start, first, ignored;
	int err = runner_start(r, s->batch, s->input + s->output);

	if (err)
		return err;
	start = clock_s();
	err = prefill(r, s->batch, s->input);
	first = clock_s();
	for (unsigned i = 1; i < s->output && !err; i++)
		err = runner_step(r, 1, &ignored);
	*ret_ftl = first - start;
	*ret_tps = s->output > 1 ? s->batch * (s->output - 1) / (clock_s() - first) : 0;
	return err;
}

static int measure(const struct options *o, struct runner *r, const struct shape *s)
{
	struct shape warm = *s;
	double ftl, tps;
	int err;

	warm.output = s->output < 4 ? s->output : 4;
	err = generate(r, &warm, &ftl, &tps);
	if (!err)
		err = generate(r, s, &ftl, &tps);
	if (err == -E2BIG)
		return 0; /* reported on stderr; the other shapes may fit */
	if (err)
		return err;
	if (o->json) {
		report_json_model("", r);
		printf(",\"batch\":%u,\"input\":%u,\"output\":%u,\"ftl_ms\":%.3f,\"tps\":%.2f}\n",
		       s->batch, s->input, s->output, ftl * 1e3, tps);
	} else if (o->csv) {
		report_csv_model(r);
		printf(",%u,%u,%u,%u,%.3f,%.2f\n", r->info.tp, s->batch, s->input, s->output,
		       ftl * 1e3, tps);
	} else {
		printf("%-16s %-6s %3u %6u %7u %7u %11.2f %10.1f\n", r->info.name, r->info.weights,
		       r->info.tp, s->batch, s->input, s->output, ftl * 1e3, tps);
	}
	fflush(stdout);
	return 0;
}

static unsigned largest(const struct list *l)
{
	unsigned most = 0;

	for (unsigned i = 0; i < l->n; i++)
		most = l->number[i] > most ? l->number[i] : most;
	return most;
}

static int measure_model(const struct options *o, const char *dir)
{
	struct runner r;
	int err = runner_open(&r, dir,
			      largest(&o->batch) * (largest(&o->input) + largest(&o->output) + 64));

	for (unsigned b = 0; b < o->batch.n; b++)
		for (unsigned i = 0; i < o->input.n; i++)
			for (unsigned k = 0; k < o->output.n && !err; k++) {
				const struct shape s = {o->batch.number[b], o->input.number[i],
							o->output.number[k]};

				err = measure(o, &r, &s);
			}
	runner_close(&r);
	return err;
}

static int measure_all(const struct options *o, const char *model)
{
	char dir[CASE_PATH];
	int err = 0;

	for (unsigned w = 0; w < o->weights.n; w++)
		for (unsigned t = 0; t < o->tp.n && !err; t++) {
			const struct case_options made = {
				.dir = o->dir, .weights = o->weights.word[w], .tp = o->tp.word[t]};

			err = case_find(model, &made, dir);
			if (!err)
				err = measure_model(o, dir);
			if (!strcmp(dir, model)) /* a case dir has fixed options */
				return err;
		}
	return err;
}

int model_main(int argc, char **argv)
{
	struct options o = {.batch = {.number = {1, 4, 16}, .n = 3},
			    .input = {.number = {128, 1024}, .n = 2},
			    .output = {.number = {64}, .n = 1},
			    .tp = {.word = {"1"}, .n = 1},
			    .weights = {.word = {"keep"}, .n = 1}};
	int c, err = 0;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		bool ok = true;

		switch (c) {
		case 'b': ok = parse_list(true, &o.batch); break;
		case 'i': ok = parse_list(true, &o.input); break;
		case 'o': ok = parse_list(true, &o.output); break;
		case 't': ok = parse_list(true, &o.tp); break;
		case 'w': ok = parse_list(false, &o.weights); break;
		case 'd': o.dir = line.value; break;
		case 'c': o.csv = true; break;
		default: o.json = true; break;
		}
		if (!ok)
			return line.status;
	}
	if (c < 0)
		return line.status;
	own_autogroup();
	if (o.csv)
		printf("model,weights,tp,batch,input,output,ftl_ms,tps\n");
	else if (!o.json)
		printf("%-16s %-6s %3s %6s %7s %7s %11s %10s\n", "model", "", "tp", "batch",
		       "input", "output", "FTL ms", "TPS");
	if (!line.n_words) {
		if (!strcmp(o.weights.word[0], "keep"))
			o.weights.word[0] = "bf16";
		err = measure_all(&o, "qwen3-0.6b");
	}
	for (char **word = line.words; *word && !err; word++)
		err = measure_all(&o, *word);
	return err ? 1 : 0;
}
