// SPDX-License-Identifier: MIT
#include "respond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>

#include "tokenizer.h"
#include "utf8.h"

#define TURN_BYTES ((size_t)256 << 10) /* of a whole answer per job, approximate */

struct answer_shape {
	const char *object, *chunk; /* the member "object" of an answer, of an event */
	bool reasoning;		    /* the usage counts reasoning tokens */
	void (*choice)(struct json_out *o, const struct exchange *x, const struct choice *c);
	/* The first event, if there is one; text; the last event's part in place of text. */
	void (*first)(struct json_out *o, const struct exchange *x, struct choice *c);
	void (*text)(struct json_out *o, const struct choice *c);
	void (*last)(struct json_out *o);
};

/* "id" to "system_fingerprint": the members that all objects start with. */
static void put_preamble(struct json_out *o, const struct exchange *x, bool chunk)
{
	json_begin(o, '{');
	json_put_string(o, "id", x->id);
	json_put_string(o, "object", chunk ? x->shape->chunk : x->shape->object);
	json_put_int(o, "created", x->created);
	json_put_string(o, "model", x->model_name);
	json_put_string(o, "system_fingerprint", x->fingerprint);
}

static void put_usage(struct json_out *o, const struct exchange *x)
{
	uint64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		prompt += x->prompts[i].n;
	for (unsigned i = 0; i < x->n_choices; i++) {
		const struct choice *c = &x->choices[i];

		/* While streaming, the tokens consumed so far. */
		completion += c->finish_reason ? c->completion_tokens : c->seen;
		reasoning += c->reasoning_tokens;
		if (!i || c->prompt_index != c[-1].prompt_index)
			cached += c->input.cached_tokens;
	}
	json_key(o, "usage");
	json_begin(o, '{');
	json_put_uint(o, "prompt_tokens", prompt);
	json_put_uint(o, "completion_tokens", completion);
	json_put_uint(o, "total_tokens", prompt + completion);
	json_key(o, "prompt_tokens_details");
	json_begin(o, '{');
	json_put_uint(o, "cached_tokens", cached);
	json_end(o, '}');
	if (x->text->reasoning && x->shape->reasoning) {
		json_key(o, "completion_tokens_details");
		json_begin(o, '{');
		json_put_uint(o, "reasoning_tokens", reasoning);
		json_end(o, '}');
	}
	json_end(o, '}');
}

static double finite_logprob(float logprob)
{
	return logprob >= -9999.0f ? (double)logprob : -9999.0;
}

static const char *token_bytes(const struct choice *c, int32_t token, size_t *ret_len)
{
	const char *bytes = txda_tokenizer_bytes(c->text_side->tokenizer, (uint32_t)token, ret_len);

	if (!bytes)
		*ret_len = 0;
	return bytes ? bytes : "";
}

static const struct engine_logprob *top_of(const struct choice *c, unsigned i)
{
	return c->input.top + (size_t)i * c->input.n_top;
}

/* ---- log probabilities of a chat ------------------------------------------------------------- */

static void put_chat_token(struct json_out *o, const struct choice *c,
			   const struct engine_logprob *lp)
{
	size_t len;
	const char *bytes = token_bytes(c, lp->token, &len);

	json_key(o, "token");
	json_string_len(o, bytes, len);
	json_key(o, "logprob");
	json_number(o, finite_logprob(lp->logprob));
	json_key(o, "bytes");
	json_begin(o, '[');
	for (size_t i = 0; i < len; i++)
		json_uint(o, (unsigned char)bytes[i]);
	json_end(o, ']');
}

/* @whole: of a whole answer, which has the object also if no token is shown. */
static void put_chat_logprobs(struct json_out *o, const struct choice *c, unsigned from,
			      unsigned to, bool whole)
{
	json_key(o, "logprobs");
	if (!c->marks || (from == to && !whole)) {
		json_null(o);
		return;
	}
	json_begin(o, '{');
	json_key(o, "content");
	json_begin(o, '[');
	for (unsigned i = from; i < to; i++) {
		json_begin(o, '{');
		put_chat_token(o, c, &c->input.logprobs[i]);
		json_key(o, "top_logprobs");
		json_begin(o, '[');
		for (unsigned k = 0; k < c->input.n_top; k++) {
			json_begin(o, '{');
			put_chat_token(o, c, &top_of(c, i)[k]);
			json_end(o, '}');
		}
		json_end(o, ']');
		json_end(o, '}');
	}
	json_end(o, ']');
	json_put_null(o, "refusal");
	json_end(o, '}');
}

/* ---- log probabilities of a completion ------------------------------------------------------- */

/* A token as a string; bytes that are not a valid character are written as "bytes:\xe2\x96". */
static const char *token_string(const struct choice *c, int32_t token, char *buf, size_t buf_len,
				size_t *ret_len)
{
	size_t len, at;
	const char *bytes = token_bytes(c, token, &len);

	*ret_len = len;
	if (utf8_valid_prefix((const uint8_t *)bytes, len) == len)
		return bytes;
	at = (size_t)snprintf(buf, buf_len, "bytes:");
	for (size_t i = 0; i < len && at + 5 < buf_len; i++)
		at += (size_t)snprintf(buf + at, buf_len - at, "\\x%02x", (unsigned char)bytes[i]);
	*ret_len = at;
	return buf;
}

/*
 * {"token": logprob, ...}: the best ones, @top[n_top], and @own, the one that is there. Tokens with
 * the same text share the first entry.
 */
static void put_top_object(struct json_out *o, const struct choice *c,
			   const struct engine_logprob *top, const struct engine_logprob *own)
{
	unsigned n = c->input.n_top < API_MAX_LOGPROBS ? c->input.n_top : API_MAX_LOGPROBS;
	const struct engine_logprob *entries[API_MAX_LOGPROBS + 1];
	char names[API_MAX_LOGPROBS + 1][80];

	json_begin(o, '{');
	for (unsigned k = 0; k <= n; k++) {
		size_t len;
		const char *name;
		bool known = false;

		entries[k] = k < n ? &top[k] : own;
		name = token_string(c, entries[k]->token, names[k], sizeof(names[k]), &len);
		if (name != names[k])
			snprintf(names[k], sizeof(names[k]), "%.*s", (int)(len < 64 ? len : 64),
				 name);
		for (unsigned j = 0; j < k; j++)
			known = known || entries[j]->token == entries[k]->token ||
				!strcmp(names[j], names[k]);
		if (known)
			continue;
		json_key(o, names[k]);
		json_number(o, finite_logprob(entries[k]->logprob));
	}
	json_end(o, '}');
}

static unsigned characters(const char *text, size_t len)
{
	unsigned n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xC0) != 0x80;
	return n;
}

enum column {
	COLUMN_TOKENS,
	COLUMN_LOGPROBS,
	COLUMN_TOP,
	COLUMN_OFFSETS,
};

/* At place @i of the prompt; nothing comes before the first token, so nothing is known of it. */
static void put_prompt_top(struct json_out *o, const struct choice *c, unsigned i)
{
	const struct choice_input *in = &c->input;

	if (i && in->prompt_logprobs && in->prompt_top) {
		const struct engine_logprob own = {c->prompt->ids[i], in->prompt_logprobs[i]};

		put_top_object(o, c, in->prompt_top + (size_t)i * in->n_top, &own);
	} else {
		json_null(o);
	}
}

/* The echoed prompt, and how far its tokens have been followed in it. */
struct echo {
	const char *text;
	size_t len, at;
};

/*
 * Returns the characters of the echo that the prompt's token @i stands for. Special tokens that were
 * put around the text, or are omitted from it, are not in the echo; nor is the space that some
 * tokenizers put before the text.
 */
static unsigned follow_echo(struct echo *e, const struct choice *c, unsigned i)
{
	int32_t id = c->prompt->ids[i];
	size_t len, left = e->len - e->at;
	const char *bytes = token_bytes(c, id, &len);

	if (txda_tokenizer_is_special(c->text_side->tokenizer, (uint32_t)id) &&
	    (len > left || memcmp(e->text + e->at, bytes, len)))
		return 0;
	if (!e->at && len && bytes[0] == ' ' && (!left || e->text[0] != ' ')) {
		bytes++;
		len--;
	}
	e->at += len < left ? len : left;
	return characters(bytes, len);
}

static void put_prompt_column(struct json_out *o, const struct choice *c, enum column column,
			      struct echo echo)
{
	unsigned offset = 0;

	for (unsigned i = 0; i < c->prompt->n; i++) {
		char buf[80];
		size_t len;
		const char *text = token_string(c, c->prompt->ids[i], buf, sizeof(buf), &len);

		switch (column) {
		case COLUMN_TOKENS: json_string_len(o, text, len); break;
		case COLUMN_LOGPROBS:
			if (i && c->input.prompt_logprobs)
				json_number(o, finite_logprob(c->input.prompt_logprobs[i]));
			else
				json_null(o);
			break;
		case COLUMN_TOP: put_prompt_top(o, c, i); break;
		case COLUMN_OFFSETS: json_uint(o, offset); break;
		}
		offset += follow_echo(&echo, c, i);
	}
}

static void put_column(struct json_out *o, const struct choice *c, enum column column,
		       unsigned from, unsigned to, const struct echo *echo, unsigned base)
{
	json_begin(o, '[');
	if (echo)
		put_prompt_column(o, c, column, *echo);
	for (unsigned i = from; i < to; i++) {
		char buf[80];
		size_t len;
		const char *text;

		switch (column) {
		case COLUMN_TOKENS:
			text = token_string(c, c->input.logprobs[i].token, buf, sizeof(buf), &len);
			json_string_len(o, text, len);
			break;
		case COLUMN_LOGPROBS:
			json_number(o, finite_logprob(c->input.logprobs[i].logprob));
			break;
		case COLUMN_TOP: put_top_object(o, c, top_of(c, i), &c->input.logprobs[i]); break;
		case COLUMN_OFFSETS: json_uint(o, base + c->marks[i].character); break;
		}
	}
	json_end(o, ']');
}

/*
 * @whole: of a whole answer, which has the object also if no token is shown. @echo: NULL: without the
 * prompt. @base: characters before the first generated token.
 */
static void put_completion_logprobs(struct json_out *o, const struct choice *c, unsigned from,
				    unsigned to, bool whole, const struct echo *echo, unsigned base)
{
	json_key(o, "logprobs");
	if (!c->marks || (from == to && !whole && !echo)) {
		json_null(o);
		return;
	}
	json_begin(o, '{');
	json_key(o, "tokens");
	put_column(o, c, COLUMN_TOKENS, from, to, echo, base);
	json_key(o, "token_logprobs");
	put_column(o, c, COLUMN_LOGPROBS, from, to, echo, base);
	json_key(o, "top_logprobs");
	if (c->input.n_top)
		put_column(o, c, COLUMN_TOP, from, to, echo, base);
	else
		json_null(o);
	json_key(o, "text_offset");
	put_column(o, c, COLUMN_OFFSETS, from, to, echo, base);
	json_end(o, '}');
}

/* ---- echo ------------------------------------------------------------------------------------ */

/* The prompt as text: as sent, or decoded. *ret_free must be freed. */
static const char *echo_text(const struct exchange *x, const struct choice *c, size_t *ret_len,
			     char **ret_free)
{
	const struct api_prompt *prompt;

	*ret_free = NULL;
	*ret_len = 0;
	if (!x->params.echo)
		return "";
	prompt = &x->params.prompts[c->prompt_index];
	if (prompt->text) {
		*ret_len = strlen(prompt->text);
		return prompt->text;
	}
	if (txda_tokenizer_decode(c->text_side->tokenizer, (const uint32_t *)c->prompt->ids,
				  c->prompt->n, x->params.skip_special, ret_free, ret_len))
		return "";
	return *ret_free;
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void put_text(struct json_out *o, const char *key, const struct json_out *text)
{
	json_key(o, key);
	json_string_len(o, text->data ? text->data : "", text->len);
}

/* The unsent parts of calls; complete calls have no index. */
static void put_calls(struct json_out *o, const struct choice *c, bool whole)
{
	json_key(o, "tool_calls");
	json_begin(o, '[');
	for (unsigned i = 0; i < c->n_calls; i++) {
		const struct choice_call *call = &c->calls[i];
		bool first = whole || !call->begun;

		if (!first && !call->arguments.len)
			continue;
		json_begin(o, '{');
		if (!whole) {
			json_put_uint(o, "index", i);
		}
		if (first) {
			json_put_string(o, "id", call->id);
			json_put_string(o, "type", "function");
		}
		json_key(o, "function");
		json_begin(o, '{');
		if (first)
			json_put_string(o, "name", call->name);
		put_text(o, "arguments", &call->arguments);
		json_end(o, '}');
		json_end(o, '}');
	}
	json_end(o, ']');
}

static bool calls_have_output(const struct choice *c)
{
	for (unsigned i = 0; i < c->n_calls; i++)
		if (!c->calls[i].begun || c->calls[i].arguments.len)
			return true;
	return false;
}

static void put_chat_choice(struct json_out *o, const struct exchange *x, const struct choice *c)
{
	(void)x;
	json_key(o, "message");
	json_begin(o, '{');
	json_put_string(o, "role", "assistant");
	if (c->text.len || !c->n_calls)
		put_text(o, "content", &c->text);
	else
		json_put_null(o, "content");
	if (c->reasoning.len)
		put_text(o, "reasoning_content", &c->reasoning);
	if (c->n_calls)
		put_calls(o, c, true);
	json_put_null(o, "refusal");
	json_end(o, '}');
	put_chat_logprobs(o, c, 0, c->shown_to, true);
}

static void put_completion_choice(struct json_out *o, const struct exchange *x,
				  const struct choice *c)
{
	char *owned, *whole;
	size_t len;
	const char *echo = echo_text(x, c, &len, &owned);
	const struct echo whole_echo = {echo, len, 0};

	json_key(o, "text");
	whole = malloc(len + c->text.len + 1);
	if (!whole) {
		o->failed = true;
		free(owned);
		return;
	}
	memcpy(whole, echo, len);
	if (c->text.len)
		memcpy(whole + len, c->text.data, c->text.len);
	json_string_len(o, whole, len + c->text.len);
	put_completion_logprobs(o, c, 0, c->shown_to, true, x->params.echo ? &whole_echo : NULL,
				characters(echo, len));
	free(whole);
	free(owned);
}

/*
 * Clients know no values of finish_reason but OpenAI's, so a deadline is told beside it. @c NULL:
 * it has not finished.
 */
static void put_finish(struct json_out *o, const struct choice *c)
{
	if (!c) {
		json_put_null(o, "finish_reason");
		return;
	}
	json_put_string(o, "finish_reason", c->finish_reason);
	if (c->late)
		json_put_string(o, "stop_reason", "timeout");
}

static void put_choice(struct json_out *o, const struct exchange *x, unsigned index)
{
	const struct choice *c = x->choices;

	/* With best_of, choices are in the order of their rank. */
	while (c < x->choices + x->n_choices && c->index != index)
		c++;
	if (c == x->choices + x->n_choices)
		return;
	json_begin(o, '{');
	json_put_uint(o, "index", index);
	x->shape->choice(o, x, c);
	put_finish(o, c);
	json_end(o, '}');
}

void respond_whole(struct exchange *x)
{
	size_t before = evbuffer_get_length(x->answer);
	struct json_out *o = &x->out;

	if (!x->cursor) {
		put_preamble(o, x, false);
		json_key(o, "choices");
		json_begin(o, '[');
	}
	while (x->cursor < x->n_prompts * x->params.n) {
		put_choice(o, x, x->cursor++);
		x->more = evbuffer_get_length(x->answer) - before > TURN_BYTES;
		if (x->more)
			return;
	}
	json_end(o, ']');
	put_usage(o, x);
	json_end(o, '}');
	x->complete = true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_event(struct json_out *o, const struct exchange *x, const struct choice *c)
{
	json_raw_string(o, "data: ");
	o->comma = false;
	put_preamble(o, x, true);
	json_key(o, "choices");
	json_begin(o, '[');
	json_begin(o, '{');
	json_put_uint(o, "index", c->index);
}

static void end_event(struct json_out *o, const struct exchange *x, const struct choice *c)
{
	put_finish(o, c);
	json_end(o, '}');
	json_end(o, ']');
	if (x->params.continuous_usage)
		put_usage(o, x);
	else if (x->params.include_usage)
		json_put_null(o, "usage");
	json_end(o, '}');
	json_raw_string(o, "\n\n");
}

static void put_chat_first(struct json_out *o, const struct exchange *x, struct choice *c)
{
	begin_event(o, x, c);
	json_key(o, "delta");
	json_begin(o, '{');
	json_put_string(o, "role", "assistant");
	json_put_string(o, "content", "");
	json_end(o, '}');
	json_put_null(o, "logprobs");
	end_event(o, x, NULL);
}

static void put_completion_first(struct json_out *o, const struct exchange *x, struct choice *c)
{
	char *owned;
	size_t len;
	const char *echo;

	if (!x->params.echo)
		return;
	echo = echo_text(x, c, &len, &owned);
	c->echo_characters = characters(echo, len);
	begin_event(o, x, c);
	json_key(o, "text");
	json_string_len(o, echo, len);
	put_completion_logprobs(o, c, 0, 0, false, &(struct echo){echo, len, 0}, 0);
	end_event(o, x, NULL);
	free(owned);
}

static void put_chat_text(struct json_out *o, const struct choice *c)
{
	json_key(o, "delta");
	json_begin(o, '{');
	if (c->reasoning.len)
		put_text(o, "reasoning_content", &c->reasoning);
	if (c->text.len || (!c->reasoning.len && !c->n_calls))
		put_text(o, "content", &c->text);
	if (calls_have_output(c))
		put_calls(o, c, false);
	json_end(o, '}');
	put_chat_logprobs(o, c, c->shown_from, c->shown_to, false);
}

static void put_completion_text(struct json_out *o, const struct choice *c)
{
	put_text(o, "text", &c->text);
	put_completion_logprobs(o, c, c->shown_from, c->shown_to, false, NULL, c->echo_characters);
}

static void put_chat_last(struct json_out *o)
{
	json_key(o, "delta");
	json_begin(o, '{');
	json_end(o, '}');
}

static void put_completion_last(struct json_out *o)
{
	json_put_string(o, "text", "");
}

const struct answer_shape shape_chat = {
	.object = "chat.completion",
	.chunk = "chat.completion.chunk",
	.reasoning = true,
	.choice = put_chat_choice,
	.first = put_chat_first,
	.text = put_chat_text,
	.last = put_chat_last,
};

const struct answer_shape shape_completion = {
	.object = "text_completion",
	.chunk = "text_completion",
	.choice = put_completion_choice,
	.first = put_completion_first,
	.text = put_completion_text,
	.last = put_completion_last,
};

void respond_first(struct json_out *o, const struct exchange *x, struct choice *c)
{
	x->shape->first(o, x, c);
}

void respond_text(struct json_out *o, const struct exchange *x, const struct choice *c)
{
	begin_event(o, x, c);
	x->shape->text(o, c);
	end_event(o, x, NULL);
}

void respond_finish(struct json_out *o, const struct exchange *x, const struct choice *c)
{
	begin_event(o, x, c);
	x->shape->last(o);
	json_put_null(o, "logprobs");
	end_event(o, x, c);
}

void respond_usage(struct json_out *o, const struct exchange *x)
{
	json_raw_string(o, "data: ");
	o->comma = false;
	put_preamble(o, x, true);
	json_key(o, "choices");
	json_begin(o, '[');
	json_end(o, ']');
	put_usage(o, x);
	json_end(o, '}');
	json_raw_string(o, "\n\n");
}

void respond_error(struct json_out *o, const struct api_error *e)
{
	json_raw_string(o, "data: ");
	o->comma = false;
	api_error_write(e, o);
	json_raw_string(o, "\n\n");
}

void respond_done(struct json_out *o)
{
	json_raw_string(o, "data: [DONE]\n\n");
}
