// SPDX-License-Identifier: MIT
#include "encoder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <txda.h>

#include "clock.h"
#include "engine_options.h"

struct kept_image {
	uint64_t owner;
	struct engine_image *image; /* a reference */
	TAILQ_ENTRY(kept_image) link;
};

struct encoder {
	struct txda_model *model;
	struct txda_context *context; /* borrowed, for messages; may be NULL */
	struct image_tower tower;
	unsigned hidden, deep;
	struct engine_image *running; /* a reference; NULL: none */
	unsigned n_ops, next_op;  /* of the program; those before next_op are done for running */
	unsigned last_ops;	  /* in the last launch */
	uint64_t fence, begun_ns; /* of the last launch */
	double op_row_ns;	  /* time of an op, for each row */
	TAILQ_HEAD(kept_list, kept_image) kept; /* in order of use, the most recent first */
	uint64_t kept_bytes;
	unsigned n_kept;
};

/* ---- life ------------------------------------------------------------------------------------ */

int encoder_new(struct txda_group *group, const struct engine_options *options,
		struct encoder **ret, char *err, size_t errlen)
{
	struct txda_model_options model_options = TXDA_INIT(struct txda_model_options);
	struct encoder *e;
	int error;

	*ret = NULL;
	if (!options->tower)
		return 0;
	e = calloc(1, sizeof(*e));
	if (!e) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	e->tower = *options->tower;
	e->context = options->context;
	TAILQ_INIT(&e->kept);
	model_options.path = options->case_dir;
	model_options.program = "vision";
	/* With the model's options, so that the model finds its weights loaded. */
	model_options.progress = options->load_progress;
	model_options.progress_arg = options->load_progress_arg;
	model_options.keep_weights = options->keep_weights;
	model_options.map_weights = options->map_weights;
	model_options.verify_weights = true;
	error = txda_model_load(group, &model_options, &e->model);
	if (error) {
		snprintf(err, errlen, "cannot load the program vision of %s: %s (%s)",
			 options->case_dir, txda_context_error(e->context), strerror(-error));
		free(e);
		return error;
	}
	e->n_ops = (unsigned)txda_model_op_count(e->model);
	*ret = e;
	return 0;
}

static void forget(struct encoder *e, struct kept_image *k)
{
	TAILQ_REMOVE(&e->kept, k, link);
	e->n_kept--;
	e->kept_bytes -= (uint64_t)k->image->tokens * (e->hidden + e->deep) * sizeof(float);
	engine_image_unref(k->image);
	free(k);
}

void encoder_free(struct encoder *e)
{
	struct kept_image *k;

	if (!e)
		return;
	while ((k = TAILQ_FIRST(&e->kept)))
		forget(e, k);
	engine_image_unref(e->running);
	txda_model_unref(e->model);
	free(e);
}

const struct image_tower *encoder_tower(const struct encoder *e)
{
	return &e->tower;
}

/* Columns of an output [rows, columns] of `vision`; 0: not present. */
static unsigned columns(struct encoder *e, const char *name)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	unsigned index;

	if (txda_model_find(e->model, name, &index) || txda_model_tensor(e->model, index, &info) ||
	    info.kind != TXDA_TENSOR_OUTPUT || info.ndim != 2 || info.dim[1] > 1u << 20)
		return 0;
	return (unsigned)info.dim[1];
}

int encoder_check(struct encoder *e, unsigned hidden, unsigned deep, char *err, size_t errlen)
{
	unsigned own = columns(e, "image_embeds"), own_deep = columns(e, "image_deepstack");

	if (!hidden || own != hidden || own_deep != deep) {
		snprintf(err, errlen,
			 "the program vision makes embeddings of %u and %u numbers, the step takes "
			 "%u and %u",
			 own, own_deep, hidden, deep);
		return -EINVAL;
	}
	e->hidden = hidden;
	e->deep = deep;
	return 0;
}

/* ---- cache ----------------------------------------------------------------------------------- */

static void remember(struct encoder *e, uint64_t owner, struct engine_image *image)
{
	uint64_t bytes = (uint64_t)image->tokens * (e->hidden + e->deep) * sizeof(float);
	struct kept_image *k = bytes <= ENCODER_CACHE_BYTES ? malloc(sizeof(*k)) : NULL;

	if (!k)
		return;
	*k = (struct kept_image){.owner = owner, .image = engine_image_ref(image)};
	TAILQ_INSERT_HEAD(&e->kept, k, link);
	e->n_kept++;
	e->kept_bytes += bytes;
	while (e->kept_bytes > ENCODER_CACHE_BYTES || e->n_kept > ENCODER_CACHE_IMAGES)
		forget(e, TAILQ_LAST(&e->kept, kept_list));
}

static struct kept_image *find(struct encoder *e, uint64_t owner, const struct engine_image *image)
{
	struct kept_image *k;

	TAILQ_FOREACH(k, &e->kept, link) {
		if (k->owner == owner && !memcmp(k->image->hash, image->hash, sizeof(image->hash)))
			break;
	}
	return k;
}

unsigned encoder_recall(struct encoder *e, uint64_t owner, struct engine_images *images)
{
	unsigned n = 0;

	for (unsigned i = 0; i < images->n; i++) {
		struct kept_image *k =
			images->image[i]->embeds ? NULL : find(e, owner, images->image[i]);

		if (!k)
			continue;
		engine_image_unref(images->image[i]);
		images->image[i] = engine_image_ref(k->image);
		TAILQ_REMOVE(&e->kept, k, link);
		TAILQ_INSERT_HEAD(&e->kept, k, link);
		n++;
	}
	return n;
}

/* ---- launches -------------------------------------------------------------------------------- */

static struct engine_image *next_image(const struct engine_images *images)
{
	for (unsigned i = 0; i < images->n; i++) {
		if (!images->image[i]->embeds)
			return images->image[i];
	}
	return NULL;
}

bool encoder_wants(const struct engine_images *images)
{
	return next_image(images) != NULL;
}

static int set_inputs(struct encoder *e, const struct engine_image *image)
{
	struct image_input inputs[IMAGE_INPUTS];
	unsigned n = image_plan_inputs(&e->tower, &image->plan, image->pixels, inputs);
	int error = 0;

	for (unsigned i = 0; i < n && !error; i++)
		error = txda_model_set_input(e->model, inputs[i].name, inputs[i].data,
					     inputs[i].bytes);
	return error;
}

static int explain_error(const struct encoder *e, int error, char *err, size_t errlen)
{
	snprintf(err, errlen, "an image could not be encoded: %s (%s)",
		 txda_context_error(e->context), strerror(-error));
	return error;
}

/* Number of ops of the next launch, so that by measured times it takes at most @most_ns. */
static unsigned choose_ops(const struct encoder *e, uint64_t most_ns)
{
	double ops = (double)most_ns / (e->op_row_ns * e->running->plan.rows);
	unsigned left = e->n_ops - e->next_op;

	if (!most_ns)
		return left;
	/*
	 * A measurement of few ops says little about many: at most doubles the number; starts with
	 * one.
	 */
	if (ops > 2.0 * e->last_ops)
		ops = 2.0 * e->last_ops;
	return ops < 1 ? 1 : ops < left ? (unsigned)ops : left;
}

int encoder_begin(struct encoder *e, const struct engine_images *images, uint64_t most_ns,
		  char *err, size_t errlen)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct engine_image *image = next_image(images);
	int error = 0;

	/* The work done for an image whose request is gone is discarded. */
	if (image != e->running) {
		engine_image_unref(e->running);
		e->running = engine_image_ref(image);
		e->next_op = 0;
		error = set_inputs(e, image);
	}
	step.tokens = image->plan.units;
	step.seqs = image->plan.spans;
	step.blocks = e->tower.window ? image->plan.windows : 1;
	step.rows = image->plan.tokens;
	step.first_op = e->next_op;
	step.n_ops = e->last_ops = choose_ops(e, most_ns);
	e->begun_ns = clock_ns();
	if (!error)
		error = txda_model_run(e->model, &step, &e->fence);
	return error ? explain_error(e, error, err, errlen) : 0;
}

/* Stores the result in the image; its pixels are not needed any more. */
static int take_outputs(struct encoder *e, struct engine_image *image)
{
	size_t bytes = (size_t)image->tokens * e->hidden * sizeof(float),
	       deep = (size_t)image->tokens * e->deep * sizeof(float);
	float *embeds = malloc(bytes), *deepstack = deep ? malloc(deep) : NULL;
	int error = -ENOMEM;

	if (embeds && (deepstack || !deep))
		error = txda_model_get_output(e->model, "image_embeds", embeds, bytes);
	if (!error && deep)
		error = txda_model_get_output(e->model, "image_deepstack", deepstack, deep);
	if (error) {
		free(embeds);
		free(deepstack);
		return error;
	}
	image->embeds = embeds;
	image->deepstack = deepstack;
	image_plan_free(&image->plan);
	image->plan = (struct image_plan){0};
	free(image->pixels);
	image->pixels = NULL;
	return 0;
}

/* Measures the time per op and row. A slow launch raises the estimate, which then decays. */
static void measure(struct encoder *e)
{
	double now = (double)(clock_ns() - e->begun_ns) / e->last_ops / e->running->plan.rows,
	       before = e->op_row_ns * 7 / 8;

	e->op_row_ns = now > before ? now : before;
}

int encoder_wait(struct encoder *e, uint64_t owner, uint64_t start_ns,
		 const struct launch_limits *limits, bool *ret_encoded, char *err, size_t errlen)
{
	int error = launch_wait(e->model, e->fence, start_ns, limits);

	if (error == -ETIMEDOUT) {
		snprintf(err, errlen, "an image was not encoded within %llu ms",
			 (unsigned long long)((clock_ns() - start_ns) / 1000000));
		return error;
	}
	*ret_encoded = false;
	measure(e);
	e->next_op += e->last_ops;
	if (!error && e->next_op < e->n_ops)
		return 0;
	if (!error)
		error = take_outputs(e, e->running);
	if (error)
		explain_error(e, error, err, errlen);
	else
		remember(e, owner, e->running);
	*ret_encoded = !error;
	engine_image_unref(e->running);
	e->running = NULL;
	return error;
}
