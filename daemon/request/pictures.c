// SPDX-License-Identifier: MIT
#include "pictures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "decode_apart.h"
#include "clock.h"
#include "exchange.h"
#include "processor.h"
#include "server_internal.h"
#include "sha256.h"

#define PARAM	       "messages"
#define DECODE_SECONDS 20

/* One picture on its way. */
struct picture {
	struct exchange *x;
	unsigned index; /* of the request's */
	uint8_t *file;
	size_t bytes;
	struct image_picture decoded;
	struct image_parts parts; /* one: load_images() takes no towers of slices */
	float *pixels;
	uint64_t taken; /* bytes of the budget, for the way alone */
};

/* ---- data: URIs ------------------------------------------------------------------------------ */

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes all of @text, padded or not; false: it is no base64. @out has 3 bytes for each 4. */
static bool decode_base64(const char *text, size_t len, uint8_t *out, size_t *ret_bytes)
{
	uint32_t bits = 0;
	size_t n = 0;

	for (unsigned i = 0; i < 2 && len && text[len - 1] == '='; i++)
		len--;
	if (len % 4 == 1)
		return false;
	for (size_t i = 0; i < len; i++) {
		int value = base64_value(text[i]);

		if (value < 0)
			return false;
		bits = bits << 6 | (uint32_t)value;
		if (i % 4)
			out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
	*ret_bytes = n;
	return true;
}

static bool read_uri(struct picture *p, const char *uri, struct api_error *e)
{
	const char *comma = strchr(uri, ','), mark[] = ";base64";
	size_t len;

	if (strncasecmp(uri, "data:", 5) != 0)
		return api_error_set(e, 400, "unsupported_value", PARAM,
				     "picture %u: the URL is \"%.40s\"; only data: is taken",
				     p->index, uri);
	if (!comma || (size_t)(comma - uri) < 5 + strlen(mark) ||
	    strncasecmp(comma - strlen(mark), mark, strlen(mark)) != 0)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the URL must be data:TYPE;base64,DATA", p->index);
	len = strlen(++comma);
	p->taken = len;
	if (!exchange_take(p->x, p->taken, PARAM, e)) {
		p->taken = 0;
		return false;
	}
	p->file = malloc(len + 1);
	if (!p->file)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	if (!decode_base64(comma, len, p->file, &p->bytes))
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the data of the URL is no base64", p->index);
	if (!p->bytes)
		return api_error_set(e, 400, NULL, PARAM, "picture %u is empty", p->index);
	return true;
}

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

static bool decode(struct picture *p, struct api_error *e)
{
	const struct image_child_options options = {.seconds = DECODE_SECONDS};
	uint64_t bytes;
	char err[256] = "";
	int r = image_decode_apart(p->file, p->bytes, p->x->server->config->max_image_pixels,
				   &options, &p->decoded, err, sizeof(err));

	if (r)
		return refuse(p, r, err, e);
	bytes = image_picture_bytes(p->decoded.width, p->decoded.height);
	if (!exchange_take(p->x, bytes, PARAM, e))
		return false;
	p->taken += bytes;
	return true;
}

/* The size that the model sees it in, and whether that is within the limits. */
static bool check_size(struct picture *p, struct api_error *e)
{
	const struct model_text *t = p->x->text;
	unsigned limit = p->x->server->config->max_image_tokens;
	uint64_t tokens;
	char err[256] = "";
	int r = image_process_size(&t->processor, &t->tower, p->decoded.width, p->decoded.height,
				   &p->parts, err, sizeof(err));

	if (r)
		return refuse(p, r, err, e);
	tokens = image_tokens(&t->tower, p->parts.whole);
	if (limit && tokens > limit)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u has %llu tokens; the limit is %u "
				     "(--max-image-tokens)",
				     p->index, (unsigned long long)tokens, limit);
	return true;
}

/* What the engine needs of it, and keeps as long as the request: pixels, then embeddings. */
static bool prepare(struct picture *p, struct engine_image **ret, struct api_error *e)
{
	const struct model_text *t = p->x->text;
	uint64_t pixels = image_units(&t->tower, p->parts.whole) * image_unit_elements(&t->tower) *
			  sizeof(float);
	uint8_t hash[ENGINE_IMAGE_HASH];
	struct sha256 h;
	char err[256] = "";
	int r;

	/* On the way there are two copies. */
	if (!exchange_take(p->x, 2 * pixels + image_tokens(&t->tower, p->parts.whole) * t->embeds,
			   PARAM, e))
		return false;
	r = image_process(&t->processor, &t->tower, &p->decoded, &p->parts, &p->pixels, err,
			  sizeof(err));
	if (r)
		return refuse(p, r, err, e);
	sha256_init(&h);
	sha256_update(&h, p->file, p->bytes);
	sha256_final(&h, hash);
	r = engine_image_new(&t->tower, p->parts.whole, p->pixels, hash, ret, err, sizeof(err));
	exchange_return(p->x, pixels);
	return !r || refuse(p, r, err, e);
}

static bool read_picture(struct exchange *x, unsigned index, const char *uri,
			 struct engine_image **ret, struct api_error *e)
{
	struct picture p = {.x = x, .index = index};
	bool ok = read_uri(&p, uri, e) && decode(&p, e) && check_size(&p, e) && prepare(&p, ret, e);

	exchange_return(x, p.taken);
	free(p.file);
	free(p.decoded.rgb);
	free(p.pixels);
	return ok;
}

bool pictures_read(struct exchange *x, struct api_error *e)
{
	const struct model_text *t = x->text;
	unsigned n = x->params.n_images, limit = x->server->config->max_images;
	const cJSON *uri;

	if (!n)
		return true;
	if (!t->tower.max_units)
		return api_error_set(e, 400, "unsupported_value", PARAM,
				     "the model takes no images%s%s", *t->image_error ? ": " : "",
				     t->image_error);
	if (n > limit)
		return api_error_set(e, 400, NULL, PARAM,
				     "messages has %u images; the limit is %u (--max-images)", n,
				     limit);
	x->images = calloc(n, sizeof(struct engine_image *));
	if (!x->images)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	cJSON_ArrayForEach(uri, x->params.images) {
		if (atomic_load(&x->caller.gone))
			return api_error_set(e, 503, "cancelled", NULL,
					     "the request was cancelled");
		if (x->deadline_ns && clock_ns() >= x->deadline_ns)
			return api_error_set(e, 504, "timeout", PARAM,
					     "the request's time was over before its images were "
					     "read");
		if (!read_picture(x, x->n_images, uri->valuestring, &x->images[x->n_images], e))
			return false;
		x->n_images++;
	}
	return true;
}

void pictures_free(struct exchange *x)
{
	for (unsigned i = 0; i < x->n_images; i++)
		engine_image_unref(x->images[i]);
	free(x->images);
}
