// SPDX-License-Identifier: MIT
/*
 * Encoding images: in which order parts of an image and steps are launched, what is remembered of
 * them and for whom. The program `vision` is made up here: its embeddings are the hash of its pixels
 * if all of its ops ran in order.
 */
#include <errno.h>

#include <txda_isa.h>

#include "clock.h"
#include "encoder.h"
#include "engine_fixture.h"

#define TOKEN  96
#define HIDDEN 3
#define N_OPS  9
#define EVENTS 4096

struct event {
	bool vision;
	unsigned first, n; /* ops */
};

static struct event events[EVENTS];
static unsigned n_events;

/* ---- the program, and what a step takes of it ---- */

static struct {
	float pixels;  /* the first of them */
	unsigned done; /* ops that ran for them */
	uint64_t fence;
} vision;
static char vision_model; /* its address is the model */
static float step_embeds[256 * HIDDEN];
static int32_t step_rows[256];
static float shown[64]; /* what steps took, in order */
static unsigned n_shown;

enum { STEP_ROWS = 1000, STEP_EMBEDS, VISION_EMBEDS };

/* The build lets calls of NAME be calls of __wrap_NAME. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int __real_txda_model_load(struct txda_group *group, const struct txda_model_options *options,
			   struct txda_model **ret);
struct txda_model *__real_txda_model_unref(struct txda_model *m);
int __real_txda_model_find(struct txda_model *m, const char *name, unsigned *ret);
int __real_txda_model_tensor(struct txda_model *m, unsigned index, struct txda_tensor_info *ret);
int __real_txda_model_tensor_ptr(struct txda_model *m, unsigned rank, const char *name, void **ret);
int __real_txda_model_run(struct txda_model *m, const struct txda_step *step, uint64_t *ret);
int __real_txda_model_sync(struct txda_model *m, uint64_t fence, uint64_t deadline);

static bool is_vision(const struct txda_model *m)
{
	return (const char *)m == &vision_model;
}

int __wrap_txda_model_load(struct txda_group *group, const struct txda_model_options *options,
			   struct txda_model **ret)
{
	if (!options->program)
		return __real_txda_model_load(group, options, ret);
	assert_string_equal(options->program, "vision");
	*ret = (struct txda_model *)&vision_model;
	return 0;
}

struct txda_model *__wrap_txda_model_unref(struct txda_model *m)
{
	return is_vision(m) ? NULL : __real_txda_model_unref(m);
}

int __wrap_txda_model_op_count(struct txda_model *m)
{
	assert_true(is_vision(m));
	return N_OPS;
}

int __wrap_txda_model_find(struct txda_model *m, const char *name, unsigned *ret)
{
	bool embeds = !strcmp(name, "image_embeds");

	if (!is_vision(m) && !embeds && strcmp(name, "image_rows") != 0)
		return __real_txda_model_find(m, name, ret);
	*ret = is_vision(m) ? VISION_EMBEDS : embeds ? STEP_EMBEDS : STEP_ROWS;
	return is_vision(m) && !embeds ? -ENOENT : 0;
}

int __wrap_txda_model_tensor(struct txda_model *m, unsigned index, struct txda_tensor_info *ret)
{
	if (index < STEP_ROWS)
		return __real_txda_model_tensor(m, index, ret);
	*ret = (struct txda_tensor_info){
		.size = sizeof(*ret),
		.kind = index == VISION_EMBEDS ? TXDA_TENSOR_OUTPUT : TXDA_TENSOR_INPUT,
		.dtype = index == STEP_ROWS ? TXDA_I32 : TXDA_F32,
		.bytes = index == STEP_ROWS ? sizeof(step_rows) : sizeof(step_embeds),
		.ndim = index == STEP_ROWS ? 1 : 2,
		.dim = {256, HIDDEN},
	};
	return 0;
}

int __wrap_txda_model_tensor_ptr(struct txda_model *m, unsigned rank, const char *name, void **ret)
{
	if (!strcmp(name, "image_rows"))
		*ret = step_rows;
	else if (!strcmp(name, "image_embeds"))
		*ret = step_embeds;
	else
		return __real_txda_model_tensor_ptr(m, rank, name, ret);
	return 0;
}

int __wrap_txda_model_set_input(struct txda_model *m, const char *name, const void *data,
				uint64_t bytes)
{
	assert_true(is_vision(m) && bytes);
	if (!strcmp(name, "pixels")) {
		memcpy(&vision.pixels, data, sizeof(vision.pixels));
		vision.done = 0;
	}
	return 0;
}

int __wrap_txda_model_get_output(struct txda_model *m, const char *name, void *data, uint64_t bytes)
{
	assert_true(is_vision(m));
	assert_string_equal(name, "image_embeds");
	assert_int_equal(vision.done, N_OPS);
	for (uint64_t i = 0; i < bytes / sizeof(float); i++)
		((float *)data)[i] = vision.pixels + (float)i;
	return 0;
}

int __wrap_txda_model_run(struct txda_model *m, const struct txda_step *step, uint64_t *ret)
{
	unsigned n = step->n_ops ? step->n_ops : N_OPS;

	assert_true(n_events < EVENTS);
	events[n_events++] = (struct event){is_vision(m), step->first_op, n};
	for (unsigned t = 0; !is_vision(m) && t < step->tokens; t++) {
		for (unsigned i = 0; step_rows[t] >= 0 && i < HIDDEN; i++)
			shown[n_shown++] = step_embeds[(unsigned)step_rows[t] * HIDDEN + i];
	}
	if (!is_vision(m))
		return __real_txda_model_run(m, step, ret);
	assert_int_equal(step->first_op, vision.done);
	assert_true(n <= N_OPS - vision.done);
	vision.done += n;
	*ret = ++vision.fence;
	return 0;
}

int __wrap_txda_model_sync(struct txda_model *m, uint64_t fence, uint64_t deadline)
{
	if (!is_vision(m))
		return __real_txda_model_sync(m, fence, deadline);
	assert_int_equal(fence, vision.fence);
	return 0;
}

/* ---- images ---- */

static struct image_tower tower = {
	.kind = IMAGE_MERGE,
	.patch = 1,
	.frames = 1,
	.channels = 3,
	.merge = 1,
	.image_token = 96,
	.max_units = 16,
	.max_spans = 1,
	.max_windows = 16,
	.max_rows = 16,
};

static int each(void **state)
{
	n_events = n_shown = 0;
	return small_model(state);
}

/* An image of @tokens, which are its pixels' number. */
static struct engine_image *new_image(unsigned tokens, float pixels)
{
	const struct image_size size = {1, tokens};
	uint8_t hash[ENGINE_IMAGE_HASH] = {0};
	float values[16 * 3] = {pixels};
	struct engine_image *image;
	char err[200];

	memcpy(hash, &pixels, sizeof(pixels));
	assert_int_equal(engine_image_new(&tower, size, values, hash, &image, err, sizeof(err)), 0);
	return image;
}

/* A prompt with the images in it, two words before each. */
static struct engine_request *show(const struct engine_sampling *s, user_id uid, unsigned n,
				   struct engine_image **images)
{
	struct engine_request *r;
	int32_t prompt[100];
	unsigned len = 0;
	char err[200];

	for (unsigned i = 0; i < n; i++) {
		prompt[len++] = 5;
		prompt[len++] = 6;
		for (unsigned t = 0; t < images[i]->tokens; t++)
			prompt[len++] = TOKEN;
	}
	r = new_request(prompt, len, s, false);
	r->uid = uid;
	assert_int_equal(
		engine_images_new(&tower, images, n, prompt, len, &r->images, err, sizeof(err)), 0);
	for (unsigned i = 0; i < n; i++)
		engine_image_unref(images[i]);
	return r;
}

static struct engine *open_seeing(unsigned max_stall_ms)
{
	struct engine_options options = {
		.case_dir = "/case", .tower = &tower, .max_stall_ms = max_stall_ms};
	struct engine *e = open_engine(&options);
	struct engine_limits limits;

	engine_limits(e, &limits);
	tower = limits.tower;
	return e;
}

/* ---- the order of launches ---- */

/* Steps before event @end. */
static unsigned count_steps(unsigned end)
{
	unsigned n = 0;

	for (unsigned i = 0; i < end; i++)
		n += !events[i].vision;
	return n;
}

TEST(divides_images)
{
	enum { STREAM = 120 };
	struct engine_sampling s = greedy(STREAM), one = greedy(1);
	struct engine_image *images[2];
	struct engine_request *stream, *r;
	unsigned at = 0, last = 0, parts = 0;
	struct engine_stats stats;
	int32_t word = 7;
	struct engine *e = open_seeing(200);

	s.ignore_eos = true;
	stream = new_request(&word, 1, &s, false);
	stream->uid = 1;
	submit(e, stream);
	images[0] = new_image(4, 100);
	images[1] = new_image(2, 200);
	r = show(&one, 2, 2, images);
	submit(e, r);
	wait_finished(e, 2);
	expect_finish(r, ENGINE_FINISH_LENGTH);
	for (unsigned i = 0; i < n_events; i++) {
		if (!events[i].vision)
			continue;
		/* As long as the stream runs, it has a step between two launches. */
		if (i && events[i - 1].vision)
			assert_true(count_steps(i) >= STREAM);
		else if (count_steps(i) && count_steps(i) < STREAM)
			assert_true(!parts ? events[i].n == 1 : events[i].n <= 2 * last);
		assert_int_equal(events[i].first, at);
		at = (at + events[i].n) % N_OPS;
		last = events[i].n;
		parts++;
	}
	assert_int_equal(at, 0);
	/* What the step took is what came out. */
	assert_int_equal(n_shown, 6 * HIDDEN);
	for (unsigned i = 0; i < 6 * HIDDEN; i++)
		assert_true(shown[i] ==
			    (i < 4 * HIDDEN ? 100 + (float)i : 200 + (float)(i - 4 * HIDDEN)));
	close_engine_with_stats(e, &stats);
	assert_int_equal(stats.images, 2);
	assert_int_equal(stats.encode_launches, parts);
}

TEST(runs_whole_images)
{
	struct engine_sampling one = greedy(1);
	struct engine_image *image;
	struct engine *e = open_seeing(200);

	/* Nobody runs beside them. */
	for (unsigned i = 0; i < 2; i++) {
		struct engine_request *r;

		image = new_image(3, (float)i);
		r = show(&one, 1, 1, &image);
		run(e, r);
	}
	assert_int_equal(n_events, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_true(events[i].vision == (i % 2 == 0) && events[i].n == N_OPS);
	close_engine(e);
}

/* A picture is encoded once for a user, and once for each of its salts. */
TEST(keeps_salts_apart)
{
	static const uint64_t salts[] = {0, 0, 5, 5, 7, 0};
	struct engine_sampling one = greedy(1);
	struct engine *e = open_seeing(200);
	struct engine_stats stats;

	for (unsigned i = 0; i < ARRAY_SIZE(salts); i++) {
		struct engine_image *image = new_image(3, 8);
		struct engine_request *r = show(&one, 1, 1, &image);

		r->salt = salts[i];
		run(e, r);
	}
	close_engine_with_stats(e, &stats);
	assert_int_equal(stats.images, 3);
	assert_int_equal(stats.cached_images, 3);
}

/* ---- the encoder alone ---- */

static struct encoder *open_encoder(void)
{
	struct engine_options options = {.case_dir = "/case", .tower = &tower};
	struct encoder *e;
	char err[200];

	assert_int_equal(encoder_new(fake_group(0), &options, &e, err, sizeof(err)), 0);
	assert_memory_equal(encoder_tower(e), &tower, sizeof(tower));
	assert_int_equal(encoder_check(e, HIDDEN + 1, 0, err, sizeof(err)), -EINVAL);
	assert_int_equal(encoder_check(e, HIDDEN, 0, err, sizeof(err)), 0);
	return e;
}

/* Images of a request, without the request. */
static struct engine_images *hold(struct engine_image *image)
{
	int32_t prompt[16];
	struct engine_images *images;
	char err[200];

	for (unsigned i = 0; i < image->tokens; i++)
		prompt[i] = TOKEN;
	assert_int_equal(engine_images_new(&tower, &image, 1, prompt, image->tokens, &images, err,
					   sizeof(err)),
			 0);
	engine_image_unref(image);
	return images;
}

static const atomic_bool never;
static const struct launch_limits limits = {.most_ns = UINT64_MAX, .stopping = &never};

/* One launch; whether the image is done. */
static bool launch(struct encoder *e, struct engine_images *images, user_id uid, uint64_t most_ns)
{
	bool encoded;
	char err[200];

	assert_true(encoder_wants(images));
	assert_int_equal(encoder_begin(e, images, most_ns, err, sizeof(err)), 0);
	assert_int_equal(encoder_wait(e, uid, clock_ns(), &limits, &encoded, err, sizeof(err)), 0);
	assert_true(encoded != encoder_wants(images));
	return encoded;
}

TEST(remembers)
{
	struct encoder *e = open_encoder();
	struct engine_images *a = hold(new_image(3, 1)), *same = hold(new_image(3, 1)),
			     *b = hold(new_image(3, 2));

	assert_int_equal(encoder_recall(e, 1, a), 0);
	assert_true(launch(e, a, 1, 0));
	/* Nobody else's, no other image's. */
	assert_int_equal(encoder_recall(e, 2, same), 0);
	assert_int_equal(encoder_recall(e, 1, b), 0);
	assert_int_equal(encoder_recall(e, 1, same), 1);
	assert_false(encoder_wants(same));
	assert_ptr_equal(same->image[0], a->image[0]);
	engine_images_unref(same);
	engine_images_unref(b);
	/* The least recently used one goes for the one above the limit. */
	for (unsigned i = 0; i < ENCODER_CACHE_IMAGES; i++) {
		b = hold(new_image(1, (float)(10 + i)));
		assert_true(launch(e, b, 1, 0));
		engine_images_unref(b);
	}
	b = hold(new_image(3, 1));
	assert_int_equal(encoder_recall(e, 1, b), 0);
	engine_images_unref(b);
	b = hold(new_image(1, 10));
	assert_int_equal(encoder_recall(e, 1, b), 1);
	engine_images_unref(b);
	engine_images_unref(a);
	encoder_free(e);
}

TEST(begins_anew)
{
	struct encoder *e = open_encoder();
	struct engine_images *a = hold(new_image(3, 1)), *b = hold(new_image(2, 2));
	unsigned parts = 1;

	/* The request of a half done image goes; another one's begins with its own first op. */
	assert_false(launch(e, a, 1, 1));
	engine_images_unref(a);
	while (!launch(e, b, 1, 1))
		parts++;
	assert_int_equal(n_events, 1 + parts);
	assert_int_equal(events[1].first, 0);
	assert_true(b->image[0]->embeds[0] == 2);
	/* One that is left half done is freed with the encoder. */
	a = hold(new_image(3, 3));
	assert_false(launch(e, a, 1, 1));
	engine_images_unref(a);
	engine_images_unref(b);
	encoder_free(e);
}

TEST_MAIN_EACH(each, drop_requests)
