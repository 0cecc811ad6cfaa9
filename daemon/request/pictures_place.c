// SPDX-License-Identifier: MIT
#include "pictures_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "engine.h"
#include "model_text.h"
#include "text_buf.h"
#include "text_process.h"
#include "tokenizer.h"

#define PARAM "messages"

static bool out_of_memory(struct api_error *e)
{
	return api_error_set(e, 500, NULL, NULL, "out of memory");
}

/* ---- pictures that are cut into slices -------------------------------------------------------- */

/*
 * Writes picture @k of the prompt as MiniCPM-V's processor does, one image token for each part: its
 * number, the whole picture, then its slices row by row.
 */
static bool write_picture(const struct model_text *t, unsigned k, const struct image_parts *parts,
			  struct text_buf *to)
{
	size_t len;
	const char *token = txda_tokenizer_piece(t->tokenizer, t->tower.image_token, &len);
	bool ok = token != NULL;
	char number[48];

	snprintf(number, sizeof(number), "<image_id>%u</image_id>", k);
	if (t->processor.number)
		ok = ok && text_buf_add_string(to, number);
	ok = ok && text_buf_add_string(to, "<image>") && text_buf_add(to, token, len) &&
	     text_buf_add_string(to, "</image>");
	for (uint32_t i = 0; ok && i < parts->rows * parts->columns; i++) {
		if (i && i % parts->columns == 0)
			ok = text_buf_add_string(to, "\n");
		ok = ok && text_buf_add_string(to, "<slice>") && text_buf_add(to, token, len) &&
		     text_buf_add_string(to, "</slice>");
	}
	return ok;
}

static unsigned count(const struct prompt_tokens *p, int32_t token)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n; i++)
		n += p->ids[i] == token;
	return n;
}

/* Tokenises picture @k, with one image token for each part. */
static bool encode_picture(const struct model_text *t, unsigned k, const struct image_parts *parts,
			   const struct text_caller *caller, struct prompt_tokens *ret,
			   struct api_error *e)
{
	struct text_buf text = {0};
	bool ok = write_picture(t, k, parts, &text);
	/* A text has no more tokens than bytes. */
	struct text_job job = {.kind = TEXT_JOB_ENCODE, .max_ids = (uint32_t)text.len};
	const struct text_bytes of[TEXT_JOB_PARTS] = {{text.data, text.len}};
	struct text_done *done = NULL;

	if (!ok)
		out_of_memory(e);
	ok = ok &&
	     model_text_call(t, &job, of, text.len * sizeof(int32_t), caller, PARAM, &done, e);
	if (ok && (done->error || !model_text_take_ids(t, done, job.max_ids, ret) ||
		   count(ret, (int32_t)t->tower.image_token) != image_parts_count(parts)))
		ok = api_error_set(e, 500, NULL, PARAM,
				   "the tokeniser has no tokens for the places of %u parts of "
				   "picture %u",
				   image_parts_count(parts), k);
	free(done);
	free(text.data);
	return ok;
}

/* Replaces the image token that the template wrote for each picture by the picture's own tokens. */
static bool splice(const struct model_text *t, const struct pictures *pictures,
		   const struct text_caller *caller, struct prompt_tokens *prompt,
		   struct api_error *e)
{
	const int32_t token = (int32_t)t->tower.image_token;
	struct prompt_tokens *own = calloc(pictures->n, sizeof(*own));
	unsigned n = prompt->n, k = 0, at = 0;
	int32_t *ids = NULL;
	bool ok = own || out_of_memory(e);

	for (; ok && k < pictures->n; k++) {
		ok = encode_picture(t, k, &pictures->parts[k], caller, &own[k], e);
		n += own[k].n;
	}
	if (ok) {
		ids = malloc((size_t)n * sizeof(*ids));
		ok = ids || out_of_memory(e);
	}
	k = 0;
	for (unsigned i = 0; ok && i < prompt->n; i++) {
		if (prompt->ids[i] != token) {
			ids[at++] = prompt->ids[i];
			continue;
		}
		memcpy(ids + at, own[k].ids, own[k].n * sizeof(*ids));
		at += own[k++].n;
	}
	for (k = 0; own && k < pictures->n; k++)
		free(own[k].ids);
	free(own);
	if (ok) {
		free(prompt->ids);
		prompt->ids = ids;
		prompt->n = at;
	}
	return ok;
}

/* ---- all pictures ----------------------------------------------------------------------------- */

/* Repeats each image token as many times as its image has tokens. */
static bool repeat(const struct model_text *t, const struct pictures *pictures,
		   struct prompt_tokens *prompt, unsigned more, struct api_error *e)
{
	const int32_t token = (int32_t)t->tower.image_token;
	int32_t *ids = malloc(((size_t)prompt->n + more) * sizeof(*ids));
	unsigned found = 0, at = 0;
	char err[256] = "";

	if (!ids)
		return out_of_memory(e);
	for (unsigned i = 0; i < prompt->n; i++) {
		unsigned n = prompt->ids[i] == token ? pictures->images[found++]->tokens : 1;

		while (n--)
			ids[at++] = prompt->ids[i];
	}
	free(prompt->ids);
	prompt->ids = ids;
	prompt->n = at;
	return !engine_images_new(&t->tower, pictures->images, pictures->n_images, ids, at,
				  &prompt->images, err, sizeof(err)) ||
	       api_error_set(e, 500, NULL, PARAM, "the images cannot be placed: %s", err);
}

bool pictures_place(const struct model_text *t, const struct api_params *p,
		    const struct pictures *pictures, const struct text_caller *caller,
		    struct prompt_tokens *prompt, struct api_error *e)
{
	unsigned found, more = 0;

	for (unsigned i = 0; i < pictures->n_images; i++)
		more += pictures->images[i]->tokens - 1;
	if (prompt->n > (p->kind == API_TOKENIZE ? MODEL_TEXT_MAX_IDS : t->max_context)) {
		prompt->n += more;
		return true;
	}
	found = count(prompt, (int32_t)t->tower.image_token);
	if (found != pictures->n)
		return api_error_set(
			e, 400, NULL, PARAM,
			"messages has %u images, but the prompt that the chat template "
			"makes of them has places for %u",
			pictures->n, found);
	if (t->tower.kind == IMAGE_SLICES && !splice(t, pictures, caller, prompt, e))
		return false;
	return repeat(t, pictures, prompt, more, e);
}

void pictures_free(struct pictures *p, struct account *account)
{
	for (unsigned i = 0; i < p->n_images; i++)
		engine_image_unref(p->images[i]);
	free(p->images);
	free(p->parts);
	free(p->who);
	atomic_fetch_sub(&account->images, p->taken);
	atomic_fetch_sub(&account->pixels, p->pixels);
}
