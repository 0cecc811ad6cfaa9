// SPDX-License-Identifier: MIT
/* /tokenize and /detokenize, which need no engine. */
#include <stdlib.h>

#include "exchange.h"
#include "pictures.h"
#include "tokenizer.h"

/*
 * Memory for the answer is taken from the budget before it is written: numbers, and for token_strs
 * the text again.
 */
static bool encode_text(struct exchange *x, struct api_error *e)
{
	uint64_t n;

	if (!pictures_read(x, e) || !exchange_encode_prompts(x, e))
		return false;
	n = x->prompts[0].n;
	return exchange_take(x, x->params.token_strings ? n * 16 + x->body_len * 4 : n * 12,
			     "prompt", e);
}

static bool encode_tokens(struct exchange *x, struct api_error *e)
{
	uint64_t bytes = 0;
	size_t len;

	if (!exchange_encode_prompts(x, e))
		return false;
	for (unsigned i = 0; i < x->prompts[0].n; i++)
		if (txda_tokenizer_bytes(x->text->tokenizer, (uint32_t)x->prompts[0].ids[i], &len))
			bytes += len;
	/* Size as text, and as JSON. */
	return exchange_take(x, 4 * bytes, "tokens", e);
}

static bool write_text(struct exchange *x)
{
	const struct prompt_tokens *p = &x->prompts[0];
	struct json_out *o = &x->out;
	size_t len = 0;
	char *text = NULL;

	if (txda_tokenizer_decode(x->text->tokenizer, (const uint32_t *)p->ids, p->n, false, &text,
				  &len))
		return false;
	json_begin(o, '{');
	json_key(o, "prompt");
	json_string_len(o, text, len);
	json_end(o, '}');
	free(text);
	x->complete = true;
	return true;
}

static bool write_tokens(struct exchange *x)
{
	const struct prompt_tokens *p = &x->prompts[0];
	struct json_out *o = &x->out;

	json_begin(o, '{');
	json_put_uint(o, "count", p->n);
	json_put_uint(o, "max_model_len", x->text->max_context);
	json_key(o, "tokens");
	json_begin(o, '[');
	for (unsigned i = 0; i < p->n; i++)
		json_int(o, p->ids[i]);
	json_end(o, ']');
	json_key(o, "token_strs");
	if (x->params.token_strings) {
		json_begin(o, '[');
		for (unsigned i = 0; i < p->n; i++) {
			const char *piece =
				txda_tokenizer_piece(x->text->tokenizer, (uint32_t)p->ids[i], NULL);

			json_string(o, piece ? piece : "");
		}
		json_end(o, ']');
	} else {
		json_null(o);
	}
	json_end(o, '}');
	x->complete = true;
	return true;
}

const struct request_kind kind_tokenize = {
	.name = "tokenize",
	.id = "tok",
	.prompt = "prompt",
	.arrive = pictures_arrive,
	.encode = encode_text,
	.output = write_tokens,
};

const struct request_kind kind_detokenize = {
	.name = "detokenize",
	.id = "tok",
	.prompt = "tokens",
	.encode = encode_tokens,
	.output = write_text,
};
