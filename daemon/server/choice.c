// SPDX-License-Identifier: MIT
#include "choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "detok.h"
#include "stop.h"

int choice_init(struct choice *c, const struct engine_sampling *sampling)
{
	const struct api_params *p = c->params;
	/* uint32_t and int32_t may alias, and ids are not negative. */
	const uint32_t *before = (const uint32_t *)c->prompt->ids;

	json_out_init(&c->text);
	c->stop = stop_new(p->stop, p->n_stop);
	if (p->logprobs >= 0)
		c->marks = calloc(sampling->max_tokens, sizeof(*c->marks));
	if (!c->stop || (p->logprobs >= 0 && !c->marks) ||
	    txda_detok_new(c->text_side->tokenizer, p->skip_special, before, c->prompt->n,
			   &c->detok))
		return -ENOMEM;
	return engine_request_new(c->prompt->ids, c->prompt->n, sampling,
				  p->echo && p->logprobs >= 0, &c->request);
}

void choice_clear(struct choice *c)
{
	if (c->request)
		engine_request_unref(c->request);
	txda_detok_free(c->detok);
	stop_free(c->stop);
	json_out_free(&c->text);
	free(c->marks);
	c->request = NULL;
	c->detok = NULL;
	c->stop = NULL;
	c->marks = NULL;
}

static unsigned count_characters(const char *text, size_t len)
{
	unsigned n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xC0) != 0x80;
	return n;
}

/* Text from the detokeniser on its way through the stop strings. 1: one matched. */
static int feed_text(struct choice *c, const char *text, size_t len)
{
	const char *out;
	size_t out_len;
	int r;

	c->fed_bytes += len;
	c->fed_characters += count_characters(text, len);
	r = stop_feed(c->stop, text, len, &out, &out_len);
	if (r < 0)
		return r;
	json_raw(&c->text, out, out_len);
	c->released += out_len;
	if (r && c->params->include_stop) {
		stop_match_text(c->stop, &out, &out_len);
		json_raw(&c->text, out, out_len);
		c->released += out_len;
	}
	return c->text.failed ? -ENOMEM : r;
}

/* The tokens that begin in the released text are shown with it; at the end those of no text, too.
 */
static void show_tokens(struct choice *c, unsigned limit)
{
	bool all = c->finish_reason && !stop_matched(c->stop);

	while (c->marks && c->shown_to < limit && (all || c->marks[c->shown_to].byte < c->released))
		c->shown_to++;
}

static bool is_stop_token(const struct engine_sampling *s, int32_t token)
{
	for (unsigned i = 0; !s->ignore_eos && i < s->n_stop_tokens; i++)
		if (s->stop_tokens[i] == token)
			return true;
	return false;
}

static int take_token(struct choice *c, int32_t token)
{
	const char *text;
	size_t len;
	int r;

	if (c->marks)
		c->marks[c->seen] =
			(struct token_mark){.byte = c->fed_bytes, .character = c->fed_characters};
	r = txda_detok_feed(c->detok, (uint32_t)token, &text, &len);
	if (r)
		return r;
	c->seen++;
	return feed_text(c, text, len);
}

/* The engine ended: gives out what was held back. */
static int finish(struct choice *c, enum engine_finish how, unsigned shown)
{
	const char *text;
	size_t len;
	int r = txda_detok_flush(c->detok, &text, &len);

	if (r)
		return r;
	r = feed_text(c, text, len);
	if (r < 0)
		return r;
	if (!r) {
		stop_flush(c->stop, &text, &len);
		json_raw(&c->text, text, len);
		c->released += len;
	}
	c->finish_reason = r || how == ENGINE_FINISH_STOP ? "stop" : "length";
	c->completion_tokens = atomic_load_explicit(&c->request->n_tokens, memory_order_acquire);
	/* A prompt without an answer was asked for; the engine makes one token at least. */
	if (c->params->max_tokens_given && !c->params->max_tokens)
		c->completion_tokens = 0;
	show_tokens(c, shown);
	return c->text.failed ? -ENOMEM : 0;
}

int choice_advance(struct choice *c, unsigned max)
{
	struct engine_request *r = c->request;
	enum engine_finish how =
		(enum engine_finish)atomic_load_explicit(&r->finish, memory_order_acquire);
	unsigned n = atomic_load_explicit(&r->n_tokens, memory_order_acquire), limit = n, taken = 0;
	bool echo_only = c->params->max_tokens_given && !c->params->max_tokens;

	if (c->finish_reason)
		return 0;
	/* A stop token is not shown. While the engine runs, the last token may turn out to be the
	 * one that ended it. */
	if (n && ((how == ENGINE_FINISH_STOP) ||
		  (how == ENGINE_RUNNING && is_stop_token(&r->sampling, r->tokens[n - 1]))))
		limit--;
	if (echo_only)
		limit = 0;
	for (; c->seen < limit && taken < max; taken++) {
		int result = take_token(c, r->tokens[c->seen]);

		if (result < 0)
			return result;
		if (result) {
			c->finish_reason = "stop";
			c->completion_tokens = c->seen;
			show_tokens(c, c->seen);
			return (int)taken + 1;
		}
	}
	show_tokens(c, c->seen);
	if (c->seen == limit && (how == ENGINE_FINISH_STOP || how == ENGINE_FINISH_LENGTH)) {
		int result = finish(c, how, limit);

		if (result)
			return result;
	}
	return (int)taken;
}

void choice_sent(struct choice *c)
{
	json_out_clear(&c->text);
	c->shown_from = c->shown_to;
	c->begun = true;
}
