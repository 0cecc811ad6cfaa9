// SPDX-License-Identifier: MIT
/* Images in a prompt: places, keys, what is refused. */
#include <errno.h>

#include "unit.h"
#include "images.h"

#define TOKEN 99

static const struct image_tower tower = {
	.kind = IMAGE_MERGE,
	.patch = 2,
	.frames = 1,
	.channels = 3,
	.merge = 2,
	.image_token = TOKEN,
	.max_units = 64,
	.max_spans = 4,
	.max_windows = 64,
	.max_rows = 64,
};

static struct engine_image *new_image(uint32_t height, uint32_t width, uint8_t hash)
{
	const struct image_size size = {height, width};
	uint8_t digest[ENGINE_IMAGE_HASH];
	struct engine_image *image;
	float *pixels =
		calloc((size_t)height * width, image_patch_elements(&tower) * sizeof(float));
	char err[200];

	for (unsigned i = 0; i < sizeof(digest); i++)
		digest[i] = (uint8_t)(hash + i);
	assert_non_null(pixels);
	assert_int_equal(engine_image_new(&tower, size, pixels, digest, &image, err, sizeof(err)),
			 0);
	free(pixels);
	return image;
}

/* All of the hash of each image in a block, and where it lies there, is in the block's key. */
static void check_keys(struct engine_images *i)
{
	static const struct {
		unsigned first, n;
	} blocks[] = {{0, 2}, {2, 2}, {4, 2}, {1, 2}, {0, 6}, {3, 3}, {4, 1}};
	int32_t keys[7][ENGINE_IMAGES_KEY_WORDS], other[ENGINE_IMAGES_KEY_WORDS],
		none[ENGINE_IMAGES_KEY_WORDS] = {0};

	for (unsigned k = 0; k < 7; k++) {
		engine_images_key(i, blocks[k].first, blocks[k].n, keys[k]);
		assert_memory_not_equal(keys[k], none, sizeof(none));
		for (unsigned j = 0; j < k; j++) {
			/* The same token at the same place of a block: text behind it is in the tokens. */
			if (blocks[j].first != blocks[k].first || blocks[j].n == 6)
				assert_memory_not_equal(keys[k], keys[j], sizeof(none));
		}
	}
	engine_images_key(i, 0, 1, other);
	assert_memory_equal(other, none, sizeof(none));
	engine_images_key(i, 5, 9, other);
	assert_memory_equal(other, none, sizeof(none));
	engine_images_key(NULL, 0, 6, other);
	assert_memory_equal(other, none, sizeof(none));
	/* One bit anywhere in the hash of an image of one token. */
	for (unsigned bit = 0; bit < 8 * ENGINE_IMAGE_HASH; bit++) {
		i->image[1]->hash[bit / 8] ^= (uint8_t)(1 << bit % 8);
		engine_images_key(i, 4, 2, other);
		assert_memory_not_equal(other, keys[2], sizeof(none));
		i->image[1]->hash[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

TEST(test_places)
{
	const int32_t prompt[] = {5, TOKEN, TOKEN, 6, TOKEN, 7};
	struct engine_image *images[] = {new_image(2, 4, 10), new_image(2, 2, 200)};
	struct engine_images *i;
	char err[200];
	unsigned row = 9;

	assert_int_equal(images[0]->tokens, 2);
	assert_int_equal(engine_images_new(&tower, images, 2, prompt, 6, &i, err, sizeof(err)), 0);
	assert_null(engine_images_at(i, 0, &row));
	assert_ptr_equal(engine_images_at(i, 1, &row), images[0]);
	assert_int_equal(row, 0);
	assert_ptr_equal(engine_images_at(i, 2, &row), images[0]);
	assert_int_equal(row, 1);
	assert_null(engine_images_at(i, 3, &row));
	assert_ptr_equal(engine_images_at(i, 4, &row), images[1]);
	assert_int_equal(row, 0);
	assert_null(engine_images_at(i, 5, &row));
	/* Behind an image of 1 x 2 tokens, text goes on at the larger side. */
	assert_int_equal(i->positions[3][0], 3);
	assert_int_equal(i->positions[5][0], 5);
	assert_int_equal(i->delta, 0);
	check_keys(i);
	engine_images_unref(engine_images_ref(i));
	engine_images_unref(i);
	engine_image_unref(images[0]);
	engine_image_unref(images[1]);
}

TEST(test_refused)
{
	const int32_t few[] = {TOKEN, 5}, none[] = {5, 6}, many[] = {TOKEN, TOKEN, 5, TOKEN};
	struct engine_image *image = new_image(2, 4, 1);
	uint8_t hash[ENGINE_IMAGE_HASH] = {0};
	struct engine_images *i;
	float pixel = 0;
	char err[200];

	assert_int_equal(engine_images_new(&tower, &image, 1, few, 2, &i, err, sizeof(err)),
			 -EINVAL);
	assert_int_equal(engine_images_new(&tower, &image, 1, none, 2, &i, err, sizeof(err)),
			 -EINVAL);
	assert_int_equal(engine_images_new(&tower, &image, 1, many, 4, &i, err, sizeof(err)),
			 -EINVAL);
	engine_image_unref(image);
	assert_int_equal(engine_image_new(&tower, (struct image_size){3, 4}, &pixel, hash, &image,
					  err, sizeof(err)),
			 -EINVAL);
	assert_int_equal(engine_image_new(&tower, (struct image_size){64, 64}, &pixel, hash, &image,
					  err, sizeof(err)),
			 -E2BIG);
}

TEST_MAIN
