// SPDX-License-Identifier: MIT
#include "images.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"

int engine_image_new(const struct image_tower *t, struct image_size size, const float *pixels,
		     const uint8_t hash[ENGINE_IMAGE_HASH], struct engine_image **ret, char *err,
		     size_t errlen)
{
	struct engine_image *i = calloc(1, sizeof(*i));
	int error = -ENOMEM;

	snprintf(err, errlen, "out of memory");
	if (!i)
		return error;
	atomic_init(&i->refs, 1);
	memcpy(i->hash, hash, sizeof(i->hash));
	i->size = size;
	error = image_plan_make(t, &size, 1, &i->plan, err, errlen);
	if (!error) {
		i->tokens = i->plan.tokens;
		i->pixels =
			malloc((size_t)i->plan.rows * image_patch_elements(t) * sizeof(*i->pixels));
		if (i->pixels) {
			image_plan_pixels(t, &i->plan, pixels, i->pixels);
			*ret = i;
			return 0;
		}
		snprintf(err, errlen, "out of memory");
		error = -ENOMEM;
	}
	engine_image_unref(i);
	return error;
}

struct engine_image *engine_image_ref(struct engine_image *i)
{
	atomic_fetch_add_explicit(&i->refs, 1, memory_order_relaxed);
	return i;
}

void engine_image_unref(struct engine_image *i)
{
	if (!i || atomic_fetch_sub_explicit(&i->refs, 1, memory_order_acq_rel) != 1)
		return;
	image_plan_free(&i->plan);
	free(i->pixels);
	free(i->embeds);
	free(i->deepstack);
	free(i);
}

/* Finds the first position of each image. The runs of image tokens are known to match. */
static void place(struct engine_images *i, const int32_t *prompt)
{
	unsigned position = 0;

	for (unsigned k = 0; k < i->n; k++) {
		while (prompt[position] != (int32_t)i->tower.image_token)
			position++;
		i->first[k] = position;
		position += i->image[k]->tokens;
	}
}

int engine_images_new(const struct image_tower *t, struct engine_image *const *images, unsigned n,
		      const int32_t *prompt, unsigned n_prompt, struct engine_images **ret,
		      char *err, size_t errlen)
{
	struct engine_images *i = calloc(1, sizeof(*i));
	struct image_size *sizes = calloc(n, sizeof(*sizes));
	int error = -ENOMEM;

	snprintf(err, errlen, "out of memory");
	if (i) {
		atomic_init(&i->refs, 1);
		i->tower = *t;
		i->n_prompt = n_prompt;
		i->image = calloc(n, sizeof(struct engine_image *));
		i->first = calloc(n, sizeof(*i->first));
		i->positions = calloc(n_prompt, sizeof(*i->positions));
	}
	if (i && sizes && i->image && i->first && i->positions) {
		for (unsigned k = 0; k < n; k++) {
			i->image[i->n++] = engine_image_ref(images[k]);
			sizes[k] = images[k]->size;
		}
		error = image_prompt_positions(t, prompt, n_prompt, sizes, n, i->positions,
					       &i->delta, err, errlen);
	}
	free(sizes);
	if (error) {
		engine_images_unref(i);
		return error;
	}
	place(i, prompt);
	*ret = i;
	return 0;
}

struct engine_images *engine_images_ref(struct engine_images *i)
{
	if (i)
		atomic_fetch_add_explicit(&i->refs, 1, memory_order_relaxed);
	return i;
}

void engine_images_unref(struct engine_images *i)
{
	if (!i || atomic_fetch_sub_explicit(&i->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (unsigned k = 0; k < i->n; k++)
		engine_image_unref(i->image[k]);
	free(i->image);
	free(i->first);
	free(i->positions);
	free(i);
}

/* The first image that ends after @position, or n. */
static unsigned find(const struct engine_images *i, unsigned position)
{
	unsigned low = 0, high = i->n;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (i->first[middle] + i->image[middle]->tokens > position)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct engine_image *engine_images_at(const struct engine_images *i, unsigned position,
					    unsigned *ret_row)
{
	unsigned k = find(i, position);

	if (k == i->n || i->first[k] > position)
		return NULL;
	*ret_row = position - i->first[k];
	return i->image[k];
}

void engine_images_key(const struct engine_images *i, unsigned first, unsigned n,
		       int32_t ret[ENGINE_IMAGES_KEY_WORDS])
{
	unsigned k = i ? find(i, first) : 0;
	uint8_t hash[ENGINE_IMAGE_HASH] = {0};
	struct sha256 h;

	if (i && k < i->n && i->first[k] < first + n) {
		sha256_init(&h);
		for (; k < i->n && i->first[k] < first + n; k++) {
			/* Its start, relative to the first position. */
			const uint32_t place = i->first[k] - first;

			sha256_update(&h, i->image[k]->hash, sizeof(i->image[k]->hash));
			sha256_update(&h, &place, sizeof(place));
		}
		sha256_final(&h, hash);
	}
	memcpy(ret, hash, sizeof(hash));
}
