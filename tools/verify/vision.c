// SPDX-License-Identifier: MIT
#include "vision.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode_apart.h"
#include "clock.h"
#include "files.h"
#include "json.h"

#define INFO_BYTES     (1u << 20)
#define MAX_IMAGES     1000
#define PICTURE_BYTES  (16u << 20)
#define PICTURE_PIXELS (16u << 20)
#define RUN_SECONDS    600

static int read_json(int dir, const char *name, cJSON **ret, struct tool_error *error)
{
	char *text = NULL;
	size_t bytes;
	int r = tool_read_file(dir, name, INFO_BYTES, &text, &bytes, error);

	if (!r)
		r = tool_json_parse(text, bytes, ret, error);
	free(text);
	return r;
}

int vision_open(const char *case_dir, struct image_tower *ret,
		struct image_processor *ret_processor, struct tool_error *error)
{
	int dir = open(case_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	cJSON *info = NULL, *all = NULL, *alone = NULL;
	const cJSON *config;
	char err[200];

	if (dir < 0)
		return tool_fail(error, -errno, "%s: %s", case_dir, strerror(errno));
	r = read_json(dir, "model_info.json", &info, error);
	if (!r && image_tower_parse(cJSON_GetObjectItemCaseSensitive(info, "vision"), ret, err,
				    sizeof(err)))
		r = tool_fail(error, -EINVAL, "model_info.json: %s", err);
	/* Pixels of golden files need no processor. */
	if (!r && !faccessat(dir, "processor_config.json", F_OK, 0))
		r = read_json(dir, "processor_config.json", &all, error);
	config = image_processor_within(all);
	if (!r && !config && !faccessat(dir, "preprocessor_config.json", F_OK, 0)) {
		r = read_json(dir, "preprocessor_config.json", &alone, error);
		config = alone;
	}
	if (!r && config && image_processor_parse(config, ret, ret_processor, err, sizeof(err)))
		r = tool_fail(error, -EINVAL, "%s: %s",
			      alone ? "preprocessor_config.json" : "processor_config.json", err);
	close(dir);
	cJSON_Delete(info);
	cJSON_Delete(all);
	cJSON_Delete(alone);
	return r;
}

void vision_case_free(struct vision_case *c)
{
	free(c->embeds);
	free(c->deepstack);
	free(c->positions);
	free(c->rows);
	*c = (struct vision_case){0};
}

static const struct safetensors_tensor *find(const struct safetensors *st, unsigned index,
					     const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "case%u.%s", index, what);
	return safetensors_find(st, name);
}

/* The sizes of a case's images; none when it has only text. */
static int read_sizes(const struct image_tower *t, const struct safetensors *st, unsigned index,
		      struct image_size **ret, unsigned *ret_n, struct tool_error *error)
{
	static const char *const names[] = {
		[IMAGE_MERGE] = "image_grid_thw",
		[IMAGE_TILES] = "image_sizes",
		[IMAGE_SLICES] = "target_sizes",
	};
	const struct safetensors_tensor *from = find(st, index, names[t->kind]);
	const unsigned columns = t->kind == IMAGE_MERGE ? 3 : 2;
	unsigned i;

	*ret_n = 0;
	if (!from && !find(st, index, "pixel_values"))
		return 0;
	if (!from || from->dtype != SAFETENSORS_I32 || from->ndim != 2 || !from->dim[0] ||
	    from->dim[0] > MAX_IMAGES || from->dim[1] != columns)
		return tool_fail(error, -EINVAL, "case%u.%s: missing, or of another type or shape",
				 index, names[t->kind]);
	*ret = calloc(from->dim[0], sizeof(**ret));
	if (!*ret)
		return tool_fail(error, -ENOMEM, "no memory");
	for (i = 0; i < from->dim[0]; i++) {
		const char *row = (const char *)from->data + 4 * columns * (size_t)i;

		memcpy(&(*ret)[i], row + 4 * (columns - 2), 8);
	}
	*ret_n = (unsigned)from->dim[0];
	return 0;
}

/* Of SLICES the file has a line of pixels through all patches after another. */
static void copy_lines(const struct image_tower *t, const uint8_t *from, uint64_t patches,
		       float *to)
{
	const uint32_t side = t->patch, lines = t->channels * side;

	for (uint64_t i = 0; i < patches * lines; i++)
		memcpy(to + i * side, from + (i % lines * patches + i / lines) * side * sizeof(*to),
		       side * sizeof(*to));
}

/* The pixels of all images, without the tiles that fill shorter ones up. */
static int read_pixels(const struct image_tower *t, const struct safetensors *st, unsigned index,
		       const struct image_size *sizes, unsigned n, float **ret,
		       struct tool_error *error)
{
	const struct safetensors_tensor *p = find(st, index, "pixel_values");
	bool tiles = t->kind == IMAGE_TILES;
	uint64_t unit = image_unit_elements(t), units = 0, most = 0, at = 0;
	unsigned i;

	for (i = 0; i < n; i++) {
		units += image_units(t, sizes[i]);
		most = image_units(t, sizes[i]) > most ? image_units(t, sizes[i]) : most;
	}
	if (!p || p->dtype != SAFETENSORS_F32 || units > t->max_units ||
	    p->bytes != (tiles ? n * most : units) * unit * 4)
		return tool_fail(error, -EINVAL,
				 "case%u.pixel_values: missing, or not the pixels of %u images of "
				 "%llu units",
				 index, n, (unsigned long long)units);
	*ret = malloc(p->bytes);
	if (!*ret)
		return tool_fail(error, -ENOMEM, "no memory");
	if (t->kind == IMAGE_SLICES) {
		copy_lines(t, p->data, units * t->merge * t->merge, *ret);
		return 0;
	}
	for (i = 0; i < n; i++) {
		uint64_t own = image_units(t, sizes[i]);

		memcpy(*ret + at * unit, (const char *)p->data + (tiles ? i * most : at) * unit * 4,
		       own * unit * 4);
		at += own;
	}
	return 0;
}

static int run(struct runner *r, const struct image_tower *t, const struct image_plan *p,
	       const float *pixels, struct vision_case *c, struct tool_error *error)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct image_input inputs[IMAGE_INPUTS];
	unsigned n = image_plan_inputs(t, p, pixels, inputs);
	uint64_t fence;
	int ret = 0;

	for (unsigned i = 0; i < n && ret >= 0; i++)
		ret = txda_model_set_input(r->vision, inputs[i].name, inputs[i].data,
					   inputs[i].bytes);
	step.tokens = p->units;
	step.seqs = p->spans;
	step.blocks = t->window ? p->windows : 1;
	step.rows = p->tokens;
	if (ret >= 0)
		ret = txda_model_run(r->vision, &step, &fence);
	if (ret >= 0)
		ret = txda_model_sync(r->vision, fence, clock_ns() + RUN_SECONDS * 1000000000ull);
	if (ret >= 0)
		ret = txda_model_get_output(r->vision, "image_embeds", c->embeds,
					    (size_t)p->tokens * r->hidden * sizeof(float));
	if (ret >= 0 && r->deep)
		ret = txda_model_get_output(r->vision, "image_deepstack", c->deepstack,
					    (size_t)p->tokens * r->deep * sizeof(float));
	return ret < 0 ? tool_fail(error, ret, "vision: %s", txda_context_error(r->context)) : 0;
}

/* The worst relative error of rows [n][width], which lie @stride apart in @got. */
static double worst_row(const float *got, size_t stride, const float *want, unsigned n,
			unsigned width)
{
	double worst = 0;

	for (unsigned i = 0; i < n; i++) {
		double off = 0, norm = 0;

		for (unsigned k = 0; k < width; k++) {
			double d = (double)got[i * stride + k] - want[(size_t)i * width + k];

			off += d * d;
			norm += (double)want[(size_t)i * width + k] * want[(size_t)i * width + k];
		}
		off = sqrt(off / (norm > 0 ? norm : 1));
		worst = off <= worst ? worst : off == off ? off : INFINITY;
	}
	return worst;
}

static int compare(const struct runner *r, const struct safetensors *st, unsigned index,
		   struct vision_case *c, struct tool_error *error)
{
	unsigned taps = r->hidden ? r->deep / r->hidden : 0;

	for (unsigned k = 0; k <= taps; k++) {
		const struct safetensors_tensor *want;
		char name[32] = "image_embeds";
		float *copy;
		double worst;

		if (k)
			snprintf(name, sizeof(name), "deepstack%u", k - 1);
		want = find(st, index, name);
		if (k && !want)
			continue; /* not every case has them */
		if (!want || want->dtype != SAFETENSORS_F32 || want->ndim != 2 ||
		    want->dim[0] != c->n_embeds || want->dim[1] != r->hidden)
			return tool_fail(error, -EINVAL, "case%u.%s: not F32 [%u, %u]", index, name,
					 c->n_embeds, r->hidden);
		copy = malloc(want->bytes);
		if (!copy)
			return tool_fail(error, -ENOMEM, "no memory");
		memcpy(copy, want->data, want->bytes);
		worst = k ? worst_row(c->deepstack + (k - 1) * r->hidden, r->deep, copy,
				      c->n_embeds, r->hidden)
			  : worst_row(c->embeds, r->hidden, copy, c->n_embeds, r->hidden);
		free(copy);
		if (k)
			c->deepstack_error = fmax(c->deepstack_error, worst);
		else
			c->embeds_error = worst;
	}
	return 0;
}

/* Rows of the tokens, and positions, which must be those of the file. */
static int place(const struct image_tower *t, const struct safetensors *st, unsigned index,
		 const int32_t *ids, unsigned n_ids, const struct image_size *sizes, unsigned n,
		 struct vision_case *c, struct tool_error *error)
{
	const struct safetensors_tensor *want = find(st, index, "position_ids");
	char err[200];
	int32_t row = 0;

	if (image_prompt_positions(t, ids, n_ids, sizes, n, c->positions, &c->images.delta, err,
				   sizeof(err)))
		return tool_fail(error, -EINVAL, "case%u: %s", index, err);
	for (unsigned i = 0; i < n_ids; i++)
		c->rows[i] = ids[i] == (int32_t)t->image_token ? row++ : -1;
	if (want && (want->dtype != SAFETENSORS_I32 || want->ndim != 2 || want->dim[0] != 3 ||
		     want->dim[1] != n_ids))
		return tool_fail(error, -EINVAL, "case%u.position_ids: not I32 [3, %u]", index,
				 n_ids);
	for (unsigned i = 0; want && i < 3 * n_ids; i++) {
		int32_t value;

		memcpy(&value, (const char *)want->data + 4 * (size_t)i, 4);
		if (value != c->positions[i % n_ids][i / n_ids])
			return tool_fail(error, -EINVAL,
					 "case%u.position_ids: token %u is at %d, not at %d", index,
					 i % n_ids, value, c->positions[i % n_ids][i / n_ids]);
	}
	return 0;
}

/* The decoded picture NAME of images/NAME; false: the file does not have it. */
static bool copy_picture(const struct safetensors *st, const char *name, struct image_picture *ret)
{
	const struct safetensors_tensor *t;
	char full[96];

	snprintf(full, sizeof(full), "image.%s", name);
	t = safetensors_find(st, full);
	if (!t || t->dtype != SAFETENSORS_U8 || t->ndim != 3 || t->dim[2] != 3 || !t->dim[0] ||
	    !t->dim[1] || t->dim[0] > 65535 || t->dim[1] > 65535)
		return false;
	*ret = (struct image_picture){(uint32_t)t->dim[1], (uint32_t)t->dim[0], malloc(t->bytes)};
	if (ret->rgb)
		memcpy(ret->rgb, t->data, t->bytes);
	return ret->rgb != NULL;
}

/*
 * A picture as the reference decoded it or, where that is plain, from its file beside the golden
 * one. 1: there is none; the caller frees its pixels.
 */
static int open_picture(const struct safetensors *st, const char *golden, const char *path,
			struct image_picture *ret, struct tool_error *error)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
		   *slash = strrchr(golden, '/');
	char *data = NULL, full[4096], err[200];
	size_t bytes;
	int r;

	if (copy_picture(st, name, ret))
		return 0;
	r = snprintf(full, sizeof(full), "%.*simages/%s", slash ? (int)(slash + 1 - golden) : 0,
		     golden, name);
	if (r >= (int)sizeof(full) || access(full, F_OK))
		return 1;
	r = tool_read_file(AT_FDCWD, full, PICTURE_BYTES, &data, &bytes, error);
	if (!r && image_decode_apart(data, bytes, PICTURE_PIXELS, NULL, ret, err, sizeof(err)))
		r = tool_fail(error, -EINVAL, "%s: %s", full, err);
	free(data);
	return r;
}

/* One picture through lib/image, against what the reference made of it: the first of @n images,
 * whose pixels are at @want. Returns how many of them it is. */
static int check_picture(const struct runner *r, const struct image_picture *picture,
			 const struct image_size *sizes, unsigned n, const float *want,
			 struct vision_case *c, struct tool_error *error)
{
	struct image_parts parts;
	uint64_t units = 0;
	uint32_t count, i;
	float *pixels;
	char err[200];
	int ret =
		image_process(&r->processor, &r->tower, picture, &parts, &pixels, err, sizeof(err));

	if (ret)
		return tool_fail(error, ret, "%s", err);
	count = image_parts_count(&parts);
	for (i = 0; !ret && i < count; i++) {
		struct image_size own = image_part(&parts, i);

		units += image_units(&r->tower, own);
		if (i >= n || own.height != sizes[i].height || own.width != sizes[i].width)
			ret = tool_fail(error, -EINVAL,
					"image %u of %u of a picture is %u x %u, not %u x %u", i,
					count, own.height, own.width, i < n ? sizes[i].height : 0,
					i < n ? sizes[i].width : 0);
	}
	for (uint64_t k = 0; !ret && k < units * image_unit_elements(&r->tower); k++)
		c->pixels_error = fmax(c->pixels_error, fabs((double)pixels[k] - want[k]));
	c->n_pictures++;
	free(pixels);
	return ret ? ret : (int)count;
}

static int check_pictures(const struct runner *r, const struct safetensors *st, unsigned index,
			  const char *golden, const struct image_size *sizes, unsigned n,
			  const float *want, struct vision_case *c, struct tool_error *error)
{
	const struct image_tower *t = &r->tower;
	char name[32];
	const char *text;
	cJSON *list;
	unsigned i = 0;
	int ret = 0;

	snprintf(name, sizeof(name), "case%u.images", index);
	text = safetensors_metadata(st, name);
	list = text ? cJSON_Parse(text) : NULL;
	for (int k = 0; i < n && ret >= 0 && r->processor.scale > 0; k++) {
		const char *path = cJSON_GetStringValue(cJSON_GetArrayItem(list, k));
		struct image_picture picture = {0};

		ret = path ? open_picture(st, golden, path, &picture, error) : 1;
		if (!ret)
			ret = check_picture(r, &picture, sizes + i, n - i, want, c, error);
		else if (ret > 0 && t->kind == IMAGE_SLICES)
			break; /* it may be any number of images */
		free(picture.rgb);
		for (int of = 0; of < ret; of++)
			want += image_units(t, sizes[i++]) * image_unit_elements(t);
	}
	cJSON_Delete(list);
	return ret < 0 ? ret : 0;
}

static int encode(struct runner *r, const struct safetensors *st, unsigned index,
		  const char *golden, const struct image_size *sizes, unsigned n,
		  struct vision_case *c, struct tool_error *error)
{
	struct image_plan plan;
	float *pixels = NULL, *rows;
	char err[200];
	int ret = image_plan_make(&r->tower, sizes, n, &plan, err, sizeof(err));

	if (ret)
		return tool_fail(error, ret, "case%u: %s", index, err);
	rows = malloc(((size_t)plan.rows * image_patch_elements(&r->tower) + 1) * sizeof(*rows));
	c->n_embeds = plan.tokens;
	c->embeds = calloc((size_t)plan.tokens + 1, r->hidden * sizeof(float));
	c->deepstack = calloc((size_t)plan.tokens + 1, (r->deep + 1) * sizeof(float));
	if (!rows || !c->embeds || !c->deepstack)
		ret = tool_fail(error, -ENOMEM, "no memory");
	if (!ret)
		ret = read_pixels(&r->tower, st, index, sizes, n, &pixels, error);
	if (!ret)
		ret = check_pictures(r, st, index, golden, sizes, n, pixels, c, error);
	if (!ret) {
		image_plan_pixels(&r->tower, &plan, pixels, rows);
		ret = run(r, &r->tower, &plan, rows, c, error);
	}
	if (!ret)
		ret = compare(r, st, index, c, error);
	free(rows);
	free(pixels);
	image_plan_free(&plan);
	return ret;
}

int vision_case(struct runner *r, const struct safetensors *st, const char *golden, unsigned index,
		const int32_t *ids, unsigned n_ids, struct vision_case *ret,
		struct tool_error *error)
{
	struct vision_case c = {0};
	struct image_size *sizes = NULL;
	unsigned n = 0;
	int e;

	e = read_sizes(&r->tower, st, index, &sizes, &n, error);
	c.positions = calloc(n_ids + 1u, sizeof(*c.positions));
	c.rows = calloc(n_ids + 1u, sizeof(*c.rows));
	if (!e && (!c.positions || !c.rows))
		e = tool_fail(error, -ENOMEM, "no memory");
	if (!e && n)
		e = encode(r, st, index, golden, sizes, n, &c, error);
	if (!e)
		e = place(&r->tower, st, index, ids, n_ids, sizes, n, &c, error);
	free(sizes);
	if (e) {
		vision_case_free(&c);
		return e;
	}
	c.images.n = n_ids;
	c.images.positions = c.positions;
	c.images.rows = c.rows;
	c.images.embeds = c.embeds;
	c.images.deepstack = c.deepstack;
	*ret = c;
	return 0;
}
