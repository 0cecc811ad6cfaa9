// SPDX-License-Identifier: MIT
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "json_strict.h"
#include "stats.h"
#include "tower.h"

#define MAX_INFO (1u << 20) /* bytes of a model_info.json */
#define STEPS	 3
#define PROMPTS	 3

struct tower {
	const struct runner *step;
	struct txda_model *model; /* the program `vision` */
	struct txda_model_info info;
	struct image_tower t;
	struct image_size size;
	struct image_plan plan;
	unsigned hidden, deep; /* elements of an embedding; of what later layers of the text take */
	struct txda_op_timing *timing;
};

static int fail(const struct tower *w, const char *what, int err)
{
	const char *why = txda_context_error(w->step->context);

	fprintf(stderr, "txda-bench: %s: %s\n", what, why[0] ? why : strerror(-err));
	return err;
}

/* 1: there is none. */
static int read_tower(const char *case_dir, struct image_tower *ret)
{
	char path[4200], err[300];
	const cJSON *vision;
	cJSON *info;
	int r;

	snprintf(path, sizeof(path), "%s/model_info.json", case_dir);
	r = txda_json_load(path, MAX_INFO, &info, err, sizeof(err));
	if (!r) {
		vision = cJSON_GetObjectItemCaseSensitive(info, "vision");
		r = vision ? image_tower_parse(vision, ret, err, sizeof(err)) : 1;
		cJSON_Delete(info);
	}
	if (r < 0)
		fprintf(stderr, "txda-bench: %s\n", err);
	return r;
}

static unsigned output_columns(struct tower *w, const char *name)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	unsigned index;

	if (txda_model_find(w->model, name, &index) || txda_model_tensor(w->model, index, &info))
		return 0;
	return (unsigned)info.dim[1];
}

/* Patches along a side of @pixels, rounded to whole tokens as processors do. */
static uint32_t patches(const struct image_tower *t, unsigned pixels)
{
	uint32_t token = t->patch * t->merge, n = (pixels + token / 2) / token;

	return (n ? n : 1) * t->merge;
}

/* With synthetic pixels, in the range that processors produce. */
static int set_inputs(struct tower *w)
{
	size_t n = (size_t)w->plan.rows * image_patch_elements(&w->t);
	float *pixels = malloc(n * sizeof(*pixels));
	struct image_input inputs[IMAGE_INPUTS];
	unsigned n_inputs;
	uint32_t x = 1;
	int err = 0;

	if (!pixels)
		return fail(w, "the inputs of an image", -ENOMEM);
	for (size_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		pixels[i] = (float)(int32_t)x * 0x1p-30f;
	}
	n_inputs = image_plan_inputs(&w->t, &w->plan, pixels, inputs);
	for (unsigned i = 0; i < n_inputs && !err; i++)
		err = txda_model_set_input(w->model, inputs[i].name, inputs[i].data,
					   inputs[i].bytes);
	free(pixels);
	return err ? fail(w, "the inputs of an image", err) : 0;
}

static int tower_open(struct tower *w, const char *case_dir, const struct image_options *o)
{
	struct txda_model_options mo = TXDA_INIT(struct txda_model_options);
	char err[200];
	int r;

	mo.path = case_dir;
	mo.program = "vision";
	r = txda_model_load(w->step->group, &mo, &w->model);
	if (r)
		return fail(w, case_dir, r);
	w->info = TXDA_INIT(struct txda_model_info);
	txda_model_info(w->model, &w->info);
	w->hidden = output_columns(w, "image_embeds");
	w->deep = output_columns(w, "image_deepstack");
	w->size = (struct image_size){patches(&w->t, o->height), patches(&w->t, o->width)};
	r = image_plan_make(&w->t, &w->size, 1, &w->plan, err, sizeof(err));
	if (r) {
		fprintf(stderr, "txda-bench: %s\n", err);
		return r;
	}
	return set_inputs(w);
}

static int encode(void *arg, double *ret_seconds)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct tower *w = arg;
	double start = clock_s();
	uint64_t fence;
	int err;

	step.tokens = w->plan.units;
	step.seqs = w->plan.spans;
	step.blocks = w->t.window ? w->plan.windows : 1;
	step.rows = w->plan.tokens;
	step.flags = TXDA_SUBMIT_WAIT_SOON;
	step.timing = w->timing;
	err = txda_model_run(w->model, &step, &fence);
	if (!err)
		err = txda_model_sync(w->model, fence, TXDA_FOREVER);
	*ret_seconds = clock_s() - start;
	return err ? fail(w, "an image failed", err) : 0;
}

static double flops(const struct tower *w)
{
	const struct image_plan *p = &w->plan;
	double pairs = 0; /* rows that attend to each other */

	for (uint32_t i = 0; i < p->spans; i++)
		pairs += (double)p->image_spans[2 * i + 1] * p->image_spans[2 * i + 1];
	return (double)p->units * (double)w->info.flops_per_token +
	       (double)p->tokens * (double)w->info.flops_per_row +
	       pairs * (double)w->info.flops_per_key;
}

/* ---- the first token ------------------------------------------------------------------------- */

/* A prompt of @n tokens, with or without the image after the first. */
static int first_token(struct tower *w, struct runner *r, unsigned n,
		       const struct runner_image *image, double *ret_seconds)
{
	double start, ignored;
	int err = runner_start(r, 1, n + 1);

	start = clock_s();
	if (!err && image)
		err = encode(w, &ignored);
	if (!err && image) {
		err = runner_take_image(r, w->model, image);
		if (err)
			return fail(w, "an image's embeddings", err);
	}
	if (!err)
		err = runner_step(r, n, &ignored);
	r->image = NULL;
	*ret_seconds = clock_s() - start;
	return err;
}

static int prompt_positions(const struct tower *w, unsigned n, int32_t (*positions)[3])
{
	int32_t *ids = calloc(n, sizeof(*ids)), delta;
	char err[200];
	int r;

	if (!ids)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		ids[i] = i && i <= w->plan.tokens ? (int32_t)w->t.image_token
						  : (int32_t)(w->t.image_token ? 0 : 1);
	r = image_prompt_positions(&w->t, ids, n, &w->size, 1, positions, &delta, err, sizeof(err));
	if (r)
		fprintf(stderr, "txda-bench: %s\n", err);
	free(ids);
	return r;
}

static int bench_first_token(struct report *report, struct tower *w, struct runner *r,
			     unsigned text)
{
	unsigned n = w->plan.tokens + (text ? text : 1);
	struct runner_image image = {.first = 1, .tokens = w->plan.tokens};
	double with[PROMPTS], without[PROMPTS], ignored, seconds, plain;
	int32_t(*positions)[3];
	int err;

	if (n > r->info.max_tokens) {
		fprintf(stderr,
			"txda-bench: no first token of the image: %u tokens; a step takes %u\n", n,
			r->info.max_tokens);
		return 0;
	}
	positions = calloc(n, sizeof(*positions));
	err = positions ? prompt_positions(w, n, positions) : -ENOMEM;
	image.positions = (const int32_t(*)[3])positions;
	if (!err)
		err = first_token(w, r, n, &image, &ignored); /* warm-up */
	for (unsigned i = 0; i < PROMPTS && !err; i++) {
		err = first_token(w, r, n, NULL, &without[i]);
		if (!err)
			err = first_token(w, r, n, &image, &with[i]);
	}
	free(positions);
	if (err)
		return err;
	seconds = stats_median(with, PROMPTS);
	plain = stats_median(without, PROMPTS);
	if (report->json) {
		report_json_model(",\n", r);
		printf(",\"what\":\"first token\","
		       "\"batch\":1,\"tokens\":%u,\"context\":0,\"step_ms\":%.4f,"
		       "\"text_ms\":%.4f}",
		       n, seconds * 1e3, plain * 1e3);
	} else {
		printf("          first token of %u tokens: with the image %.2f ms, text alone "
		       "%.2f ms: %.2f times\n",
		       n, seconds * 1e3, plain * 1e3, seconds / plain);
	}
	return 0;
}

int image_bench(struct report *report, struct runner *r, const char *case_dir,
		const struct image_options *o)
{
	struct result x = {.what = "image", .batch = 1};
	struct tower w = {.step = r};
	int err = read_tower(case_dir, &w.t);

	if (err)
		return err < 0 ? err : 0;
	if (w.t.kind != IMAGE_MERGE) {
		fprintf(stderr, "txda-bench: --image needs a vision tower that merges patches; "
				"this one takes tiles or slices\n");
		return 0;
	}
	err = tower_open(&w, case_dir, o);
	if (!err)
		err = report_time(report, r, &x, encode, &w, STEPS);
	if (!err) {
		x.tokens = w.plan.tokens;
		x.tokens_per_s = x.tokens / x.seconds;
		x.gflops = flops(&w) / x.seconds * 1e-9;
		report_print(report, r, &x);
		if (report->ops && !report->json)
			err = report_ops(w.model, &w.timing, encode, &w);
	}
	if (!err)
		err = bench_first_token(report, &w, r, o->text);
	image_plan_free(&w.plan);
	txda_model_unref(w.model);
	return err;
}
