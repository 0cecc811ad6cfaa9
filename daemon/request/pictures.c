// SPDX-License-Identifier: MIT
#include "pictures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode_apart.h"
#include "clock.h"
#include "exchange.h"
#include "pictures_source.h"
#include "processor.h"
#include "service.h"
#include "sha256.h"

#define PARAM	       "messages"
#define DECODE_SECONDS 20
#define LOW_SIDE       512 /* of a picture with the detail "low", as OpenAI has it */

/* A picture while it is being read and prepared. */
struct picture {
	struct exchange *x;
	unsigned index; /* of the request's */
	bool low;	/* requested with low detail */
	uint8_t *file;
	uint64_t bytes;
	struct image_picture decoded;
	struct image_parts parts;
	float *pixels;
	uint64_t until_ns; /* time limit of decoding, for all pictures of the request */
	uint64_t taken;	   /* bytes of the budget that are needed only meanwhile */
};

/* ---- pixels ---------------------------------------------------------------------------------- */

static bool refuse(const struct picture *p, int error, const char *why, struct api_error *e)
{
	switch (error) {
	case -EINVAL:
	case -ENOTSUP:
	case -E2BIG:
		return api_error_set(e, 400, "invalid_image", PARAM, "picture %u: %s", p->index,
				     why);
	case -ETIMEDOUT:
	case -EPIPE:
		return api_error_set(e, 400, "invalid_image", PARAM,
				     "picture %u cannot be decoded: %s", p->index,
				     error == -EPIPE ? "it takes too much memory, or is broken"
						     : "it takes too long");
	default:
		return api_error_set(e, 500, NULL, PARAM, "picture %u cannot be decoded: %s",
				     p->index, strerror(-error));
	}
}

/* Counts pixels against the user's limit for open requests. */
static bool take_pixels(struct exchange *x, uint64_t pixels, struct api_error *e)
{
	uint64_t limit = x->service->config->max_user_pixels;

	x->pictures.pixels += pixels;
	if (atomic_fetch_add(&x->account->pixels, pixels) + pixels <= limit || !limit)
		return true;
	if (x->pictures.pixels > limit)
		return api_error_set(e, 400, NULL, PARAM,
				     "messages has images of %llu pixels; the limit is %llu "
				     "(--max-user-pixels)",
				     (unsigned long long)x->pictures.pixels,
				     (unsigned long long)limit);
	return api_error_set(e, 429, "overloaded", PARAM,
			     "the user's requests have images of %llu pixels; the limit is %llu "
			     "(--max-user-pixels)",
			     (unsigned long long)atomic_load(&x->account->pixels),
			     (unsigned long long)limit);
}

static bool take_images(struct exchange *x, unsigned n, struct api_error *e)
{
	const struct config *c = x->service->config;

	if (n > c->max_images)
		return api_error_set(e, 400, NULL, PARAM,
				     "messages has %u images; the limit is %u (--max-images)", n,
				     c->max_images);
	x->pictures.taken = n;
	if (atomic_fetch_add(&x->account->images, n) + n <= c->max_user_images ||
	    !c->max_user_images)
		return true;
	return api_error_set(e, n > c->max_user_images ? 400 : 429,
			     n > c->max_user_images ? NULL : "overloaded", PARAM,
			     "the user's requests have %u images; the limit is %u "
			     "(--max-user-images)",
			     atomic_load(&x->account->images), c->max_user_images);
}

/* Memory for the decoder's answer, taken before it is read. */
struct decoding {
	struct picture *p;
	struct api_error *e;
};

static bool may_take(void *arg, uint32_t width, uint32_t height)
{
	const struct decoding *d = arg;
	uint64_t bytes = image_picture_bytes(width, height);

	if (!exchange_take(d->p->x, bytes, PARAM, d->e))
		return false;
	d->p->taken += bytes;
	return take_pixels(d->p->x, (uint64_t)width * height, d->e);
}

/* False: the client has left, or the time limit of its request has passed. */
static bool is_wanted(const struct exchange *x, struct api_error *e)
{
	if (atomic_load(&x->caller.gone))
		return api_error_set(e, 503, "cancelled", NULL, "the request was cancelled");
	if (x->deadline_ns && clock_ns() >= x->deadline_ns)
		return api_error_set(e, 504, "timeout", PARAM,
				     "the request timed out before its images were read");
	return true;
}

static bool decode(struct picture *p, struct api_error *e)
{
	struct decoding decoding = {p, e};
	const struct image_child_options options = {
		.end_ns = p->until_ns,
		.low_ns = p->x->caller.low_ns,
		.may_take = may_take,
		.arg = &decoding,
		.gone = &p->x->caller.gone,
	};
	char err[256] = "";
	int r = image_decode_apart(p->file, p->bytes, p->x->service->config->max_image_pixels,
				   &options, &p->decoded, err, sizeof(err));

	if (!r || r == -EDQUOT)
		return !r;
	if ((r == -ETIMEDOUT || r == -ECANCELED) && !is_wanted(p->x, e))
		return false;
	return refuse(p, r, err, e);
}

/* Shrinks a picture of low detail first, keeping its proportions. */
static bool shrink(struct picture *p, struct api_error *e)
{
	const uint32_t w = p->decoded.width, h = p->decoded.height, longer = w > h ? w : h;
	struct image_picture small;
	uint32_t width, height;

	if (!p->low || longer <= LOW_SIDE)
		return true;
	width = (uint32_t)((uint64_t)w * LOW_SIDE / longer);
	height = (uint32_t)((uint64_t)h * LOW_SIDE / longer);
	if (image_resize(&p->decoded, width ? width : 1, height ? height : 1,
			 p->x->text->processor.filter, &small))
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	free(p->decoded.rgb);
	p->decoded = small;
	return true;
}

/* Checks the sizes at which the model sees it against the limits. */
static bool check_size(struct picture *p, struct api_error *e)
{
	const struct model_text *t = p->x->text;
	unsigned limit = p->x->service->config->max_image_tokens;
	uint64_t tokens = 0;
	char err[256] = "";
	int r = image_process_size(&t->processor, &t->tower, p->decoded.width, p->decoded.height,
				   &p->parts, err, sizeof(err));

	if (r)
		return refuse(p, r, err, e);
	for (uint32_t i = 0; i < image_parts_count(&p->parts); i++)
		tokens += image_tokens(&t->tower, image_part(&p->parts, i));
	if (limit && tokens > limit)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u has %llu tokens; the limit is %u "
				     "(--max-image-tokens)",
				     p->index, (unsigned long long)tokens, limit);
	return true;
}

/*
 * Identifies part @i for the cache: the hash covers the file, the processing and the part's index.
 */
static void hash_part(const struct picture *p, const uint8_t file[ENGINE_IMAGE_HASH], uint32_t i,
		      uint8_t ret[ENGINE_IMAGE_HASH])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_update(&h, file, ENGINE_IMAGE_HASH);
	sha256_update(&h, &p->low, sizeof(p->low));
	sha256_update(&h, &p->parts, sizeof(p->parts));
	sha256_update(&h, &i, sizeof(i));
	sha256_final(&h, ret);
}

/* Creates the engine's images of its parts, after those of the previous pictures. */
static bool add_parts(struct picture *p, struct api_error *e)
{
	const struct image_tower *t = &p->x->text->tower;
	struct pictures *all = &p->x->pictures;
	uint32_t n = image_parts_count(&p->parts);
	struct engine_image **images =
		realloc(all->images, (all->n_images + n) * sizeof(struct engine_image *));
	uint8_t file[ENGINE_IMAGE_HASH], hash[ENGINE_IMAGE_HASH];
	const float *pixels = p->pixels;
	struct sha256 h;
	char err[256] = "";

	if (!images)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	all->images = images;
	sha256_init(&h);
	sha256_update(&h, p->file, p->bytes);
	sha256_final(&h, file);
	for (uint32_t i = 0; i < n; i++) {
		const struct image_size size = image_part(&p->parts, i);
		int r;

		hash_part(p, file, i, hash);
		r = engine_image_new(t, size, pixels, hash, &images[all->n_images], err,
				     sizeof(err));
		if (r)
			return refuse(p, r, err, e);
		all->n_images++;
		pixels += image_units(t, size) * image_unit_elements(t);
	}
	all->parts[all->n++] = p->parts;
	return true;
}

/* Creates what the engine needs and keeps with the request: pixels, then embeddings. */
static bool prepare(struct picture *p, struct api_error *e)
{
	const struct model_text *t = p->x->text;
	uint64_t pixels = 0, embeds = 0, plans = 0;
	char err[256] = "";
	bool ok;
	int r;

	for (uint32_t i = 0; i < image_parts_count(&p->parts); i++) {
		const struct image_size size = image_part(&p->parts, i);

		pixels += image_units(&t->tower, size) * image_unit_elements(&t->tower) *
			  sizeof(float);
		embeds += image_tokens(&t->tower, size) * t->embeds;
		plans += image_plan_bytes(&t->tower, size);
	}
	/* While it is prepared there are two copies of the pixels. */
	if (!exchange_take(p->x, 2 * pixels + embeds + plans, PARAM, e))
		return false;
	r = image_process(&t->processor, &t->tower, &p->decoded, &p->parts, &p->pixels, err,
			  sizeof(err));
	if (r)
		return refuse(p, r, err, e);
	ok = add_parts(p, e);
	exchange_return(p->x, pixels);
	return ok;
}

static bool read_picture(struct exchange *x, const cJSON *image, uint64_t until_ns,
			 struct api_error *e)
{
	const char *detail =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(image, "detail"));
	const char *url = cJSON_GetStringValue(
		cJSON_IsObject(image) ? cJSON_GetObjectItemCaseSensitive(image, "url") : image);
	struct picture p = {
		.x = x,
		.index = x->pictures.n,
		.low = detail && !strcmp(detail, "low"),
		.until_ns = until_ns,
	};
	bool ok = picture_source_read(x, p.index, url, &p.file, &p.bytes, &p.taken, e) &&
		  decode(&p, e) && shrink(&p, e) && check_size(&p, e) && prepare(&p, e);

	exchange_return(x, p.taken);
	free(p.file);
	free(p.decoded.rgb);
	free(p.pixels);
	return ok;
}

bool pictures_arrive(struct exchange *x, struct api_error *e)
{
	const struct http_peer *peer = http_conn_peer(x->conn);
	struct identity *who;
	int n;

	if (peer->tcp)
		return true;
	if (x->service->config->image_dirs.n && peer->uid != USER_UNKNOWN) {
		who = calloc(1, sizeof(*who));
		if (!who)
			return api_error_set(e, 500, NULL, NULL, "out of memory");
		who->uid = peer->uid;
		who->gid = peer->gid;
		n = http_conn_groups(x->conn, who->groups, IDENTITY_GROUPS);
		who->n_groups = n > 0 ? (unsigned)n : 0;
		who->more_groups = n < 0;
		x->pictures.who = who;
	}
	return exchange_take_fds(x, e);
}

bool pictures_read(struct exchange *x, struct api_error *e)
{
	const struct model_text *t = x->text;
	unsigned n = x->params.n_images;
	uint64_t until_ns = clock_ns() + DECODE_SECONDS * 1000000000ull;
	const cJSON *image;

	if (!n)
		return true;
	if (!t->tower.max_units)
		return api_error_set(e, 400, "unsupported_value", PARAM,
				     "the model does not support images%s%s",
				     *t->image_error ? ": " : "", t->image_error);
	if (x->deadline_ns && x->deadline_ns < until_ns)
		until_ns = x->deadline_ns;
	if (!take_images(x, n, e))
		return false;
	x->pictures.parts = calloc(n, sizeof(*x->pictures.parts));
	if (!x->pictures.parts)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	cJSON_ArrayForEach(image, x->params.images) {
		if (!is_wanted(x, e) || !read_picture(x, image, until_ns, e))
			return false;
	}
	return true;
}
