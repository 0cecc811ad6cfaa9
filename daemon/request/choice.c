// SPDX-License-Identifier: MIT
#include "choice.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "detok.h"
#include "reply_parser.h"
#include "stop.h"
#include "tokenizer.h"

/*
 * ---- contents of the reply
 * ---------------------------------------------------------------------------
 */

static int on_reasoning(void *arg, const char *text, size_t len)
{
	struct choice *c = arg;

	if (c->params->include_reasoning)
		json_raw(&c->reasoning, text, len);
	return c->reasoning.failed ? -ENOMEM : 0;
}

static int on_content(void *arg, const char *text, size_t len)
{
	struct choice *c = arg;

	/* By the grammar a forced call's reply has no content: it is markup that was cut off. */
	if (c->params->tool_choice >= API_TOOLS_REQUIRED)
		return 0;
	json_raw(&c->text, text, len);
	c->spoke = true;
	return c->text.failed ? -ENOMEM : 0;
}

/*
 * The model's own id, if it wrote one, since its template will show that id to it again. Otherwise
 * an id that cannot be guessed, so that a model cannot interfere with the client's own ids.
 * Mistral's templates accept nine letters and digits only.
 */
static void make_id(struct choice_call *call, enum reply_tools tools, const struct reply_call *made)
{
	static const char signs[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	bool mistral = tools == REPLY_MISTRAL || tools == REPLY_MISTRAL_LIST;
	uint64_t words[2] = {0};

	if (made->id && made->id_len && made->id_len < sizeof(call->id)) {
		memcpy(call->id, made->id, made->id_len);
		call->id[made->id_len] = '\0';
		return;
	}
	if (getrandom(words, sizeof(words), 0) != sizeof(words))
		words[0] = (uintptr_t)call;
	if (!mistral) {
		snprintf(call->id, sizeof(call->id), "call_%016llx%08x",
			 (unsigned long long)words[0], (unsigned)words[1]);
		return;
	}
	for (unsigned i = 0; i < 9; i++, words[0] /= sizeof(signs) - 1)
		call->id[i] = signs[words[0] % (sizeof(signs) - 1)];
	call->id[9] = '\0';
}

static int on_call(void *arg, const struct reply_call *call)
{
	struct choice *c = arg;
	unsigned index = call->index;
	struct choice_call *calls;

	if (index && (!c->params->parallel_tools || index >= API_MAX_TOOLS)) {
		c->too_many = true;
		return -ECANCELED;
	}
	calls = realloc(c->calls, (index + 1) * sizeof(*calls));
	if (!calls)
		return -ENOMEM;
	c->calls = calls;
	calls[index] = (struct choice_call){.name = strndup(call->name, call->name_len)};
	if (!calls[index].name)
		return -ENOMEM;
	make_id(&calls[index], c->tools, call);
	c->n_calls = index + 1;
	c->spoke = true;
	return 0;
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	struct choice *c = arg;

	json_raw(&c->calls[index].arguments, text, len);
	c->calls[index].has_arguments = true;
	return c->calls[index].arguments.failed ? -ENOMEM : 0;
}

static int make_parser(struct choice *c)
{
	const struct model_text *t = c->text_side;
	const struct reply_sink sink = {
		.reasoning = on_reasoning,
		.content = on_content,
		.call = on_call,
		.arguments = on_arguments,
		.arg = c,
	};
	const struct reply_options options = {
		.tools = c->tools,
		.reasoning = c->prompt->reasoned ? REPLY_NO_REASONING : t->reasoning,
		.in_reasoning = c->prompt->in_reasoning,
		.functions = c->params->tools,
	};

	if (c->params->kind != API_CHAT || (!options.tools && !options.reasoning))
		return 0;
	c->parser = reply_parser_new(&options, &sink);
	return c->parser ? 0 : -ENOMEM;
}

/* ---- life ------------------------------------------------------------------------------------ */

int choice_init(struct choice *c, unsigned max_tokens)
{
	const struct api_params *p = c->params;
	struct prompt_tokens *prompt = c->prompt;
	int r;

	c->tools = model_text_tools(c->text_side, p);
	json_out_init(&c->text);
	json_out_init(&c->reasoning);
	c->stop = stop_new(p->stop, p->n_stop);
	if (p->logprobs >= 0)
		c->marks = calloc(max_tokens, sizeof(*c->marks));
	if (!c->stop || (p->logprobs >= 0 && !c->marks) || make_parser(c))
		return -ENOMEM;
	/*
	 * Marks of the reply format may be control tokens: then take_token() drops the other
	 * control tokens. (uint32_t and int32_t may alias, and ids are not negative.)
	 */
	if (!prompt->detok) {
		r = txda_detok_new(c->text_side->tokenizer, p->skip_special && !c->parser,
				   (const uint32_t *)prompt->ids, prompt->n, &prompt->detok);
		if (r)
			return r;
	}
	return txda_detok_copy(prompt->detok, &c->detok);
}

void choice_clear(struct choice *c)
{
	for (unsigned i = 0; i < c->n_calls; i++) {
		free(c->calls[i].name);
		json_out_free(&c->calls[i].arguments);
	}
	free(c->calls);
	txda_detok_free(c->detok);
	stop_free(c->stop);
	reply_parser_free(c->parser);
	json_out_free(&c->text);
	json_out_free(&c->reasoning);
	free(c->marks);
	*c = (struct choice){0};
}

/* ---- text ------------------------------------------------------------------------------------ */

static unsigned count_characters(const char *text, size_t len)
{
	unsigned n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xC0) != 0x80;
	return n;
}

/* Handles text that passed the stop strings. 1: no more text is wanted. */
static int release(struct choice *c, const char *text, size_t len)
{
	int r = 0;

	c->released += len;
	if (!c->parser)
		json_raw(&c->text, text, len);
	else if (len)
		r = reply_parser_feed(c->parser, text, len);
	if (c->text.failed)
		return -ENOMEM;
	return r == -ECANCELED && c->too_many ? 1 : r;
}

/*
 * Passes detokenised text through the stop strings, which are inactive before min_tokens. 1: the
 * text ends.
 */
static int feed_text(struct choice *c, const char *text, size_t len)
{
	const char *out;
	size_t out_len;
	int r, stopped;

	c->fed_bytes += len;
	c->fed_characters += count_characters(text, len);
	if (c->params->n_stop && c->seen <= c->params->min_tokens)
		return release(c, text, len);
	stopped = stop_feed(c->stop, text, len, &out, &out_len);
	if (stopped < 0)
		return stopped;
	r = release(c, out, out_len);
	if (!r && stopped && c->params->include_stop) {
		stop_match_text(c->stop, &out, &out_len);
		r = release(c, out, out_len);
	}
	return r ? r : stopped;
}

/*
 * Tokens are shown together with the released text that they begin in; at the end also those
 * without text.
 */
static void show_tokens(struct choice *c, unsigned limit)
{
	bool all = c->finish_reason && !stop_matched(c->stop);

	while (c->marks && c->shown_to < limit && (all || c->marks[c->shown_to].byte < c->released))
		c->shown_to++;
}

/*
 * In a completion every counted token has an entry, also those without text that ended it: clients
 * add up an answer's log probability, and compare their number with the usage.
 */
static void show_counted(struct choice *c)
{
	if (!c->marks || c->params->kind != API_COMPLETION)
		return;
	for (unsigned i = c->seen; i < c->completion_tokens; i++)
		c->marks[i] =
			(struct token_mark){.byte = c->fed_bytes, .character = c->fed_characters};
	c->shown_to = c->completion_tokens;
}

/*
 * Counts reasoning tokens: up to the token that ends reasoning, or with channels up to the first
 * other message.
 */
static void count_reasoning(struct choice *c, int32_t token)
{
	const struct model_text *t = c->text_side;

	if (!t->reasoning || c->params->kind != API_CHAT || c->reasoned)
		return;
	if (t->reasoning == REPLY_CHANNELS) {
		c->reasoned = c->spoke;
		c->reasoning_tokens += !c->spoke;
		return;
	}
	if (!c->seen && !c->prompt->in_reasoning && token != t->think)
		c->reasoned = true;
	else
		c->reasoning_tokens++;
	if (token == t->think_end)
		c->reasoned = true;
}

static int take_token(struct choice *c, int32_t token)
{
	const char *text = "";
	size_t len = 0;
	int r = 0;

	if (c->marks)
		c->marks[c->seen] =
			(struct token_mark){.byte = c->fed_bytes, .character = c->fed_characters};
	if (!c->parser || !c->params->skip_special ||
	    !txda_tokenizer_is_special(c->text_side->tokenizer, (uint32_t)token) ||
	    model_text_is_mark(c->text_side, c->tools, (uint32_t)token))
		r = txda_detok_feed(c->detok, (uint32_t)token, &text, &len);
	if (r)
		return r;
	count_reasoning(c, token);
	c->seen++;
	return feed_text(c, text, len);
}

/*
 * The finish reason of an answer with calls is tool_calls, unless the call was forced by name or was
 * cut off in its arguments, which then cannot be used.
 */
static const char *reason_of(const struct choice *c, bool stopped)
{
	if (!stopped)
		return "length";
	if (!c->n_calls || c->params->tool_choice == API_TOOLS_NAMED ||
	    reply_parser_in_arguments(c->parser))
		return "stop";
	return "tool_calls";
}

/* A call without arguments gets an empty object, so that clients can parse it as JSON. */
static int complete_calls(struct choice *c)
{
	int r = 0;

	for (unsigned i = 0; i < c->n_calls && !r; i++)
		if (!c->calls[i].has_arguments)
			r = on_arguments(c, i, "{}", 2);
	return r;
}

/* There are no more tokens: releases the text that was held back. */
static int finish(struct choice *c, enum engine_finish how, unsigned n, unsigned shown)
{
	bool late = how == ENGINE_FINISH_TIMEOUT;
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
		r = release(c, text, len);
	}
	if (r >= 0 && c->parser && !c->too_many) {
		int flushed;

		if (!r && (how == ENGINE_FINISH_LENGTH || late))
			reply_parser_cut_off(c->parser);
		flushed = reply_parser_flush(c->parser);
		r = flushed && !c->too_many ? flushed : r;
	}
	if (r >= 0 && how != ENGINE_FINISH_LENGTH && !late && complete_calls(c))
		r = -ENOMEM;
	if (r < 0)
		return r;
	c->finish_reason =
		reason_of(c, r || how == ENGINE_FINISH_STOP || how == ENGINE_FINISH_COMPLETE);
	c->late = late && !r;
	/* No generated tokens were requested; the engine generates at least one. */
	c->completion_tokens = c->params->max_tokens_given && !c->params->max_tokens ? 0 : n;
	show_tokens(c, shown);
	show_counted(c);
	return c->text.failed ? -ENOMEM : 0;
}

/* The text ended at token c->seen - 1: at a stop string, or because no further calls are wanted. */
static int cut(struct choice *c)
{
	int r = c->parser && !c->too_many ? reply_parser_flush(c->parser) : 0;

	if (r && !c->too_many)
		return r;
	if (complete_calls(c))
		return -ENOMEM;
	c->finish_reason = reason_of(c, true);
	c->completion_tokens = c->seen;
	show_tokens(c, c->seen);
	show_counted(c);
	return 0;
}

/* Consumes tokens up to @limit, at most @max; returns how many, or an error. */
static int take_tokens(struct choice *c, unsigned limit, unsigned max)
{
	unsigned taken = 0;

	for (; c->seen < limit && taken < max; taken++) {
		int r = take_token(c, c->input.tokens[c->seen]);

		if (r > 0)
			r = cut(c);
		if (r < 0)
			return r;
		if (c->finish_reason)
			return (int)taken + 1;
	}
	show_tokens(c, c->seen);
	return (int)taken;
}

int choice_advance(struct choice *c, unsigned max)
{
	enum engine_finish how = c->input.how;
	unsigned n = c->input.n, limit = n;
	int taken, error;

	if (c->finish_reason)
		return 0;
	/*
	 * A stop token has no text. While the engine runs, the last token may turn out to be one.
	 */
	if (n && (how == ENGINE_FINISH_STOP ||
		  (how == ENGINE_RUNNING &&
		   model_text_stops(c->text_side, c->params, c->input.tokens[n - 1]))))
		limit--;
	if (c->params->max_tokens_given && !c->params->max_tokens)
		limit = 0;
	taken = take_tokens(c, limit, max);
	if (taken < 0 || c->finish_reason || c->seen < limit || how == ENGINE_RUNNING ||
	    how == ENGINE_FINISH_CANCELLED || how == ENGINE_FINISH_ERROR)
		return taken;
	error = finish(c, how, n, limit);
	return error ? error : taken;
}

/*
 * ---- state of sending
 * --------------------------------------------------------------------------------
 */

bool choice_has_output(const struct choice *c)
{
	bool calls = false;

	for (unsigned i = 0; i < c->n_calls && !calls; i++)
		calls = !c->calls[i].begun || c->calls[i].arguments.len;
	return c->text.len || c->reasoning.len || calls || c->shown_from < c->shown_to;
}

void choice_sent(struct choice *c)
{
	json_out_clear(&c->text);
	json_out_clear(&c->reasoning);
	for (unsigned i = 0; i < c->n_calls; i++) {
		json_out_clear(&c->calls[i].arguments);
		c->calls[i].begun = true;
	}
	c->shown_from = c->shown_to;
	c->begun = true;
}

void choice_rate(struct choice *c)
{
	double sum = 0;

	for (unsigned i = 0; i < c->completion_tokens; i++)
		sum += c->input.logprobs[i].logprob;
	c->score = c->completion_tokens ? sum / c->completion_tokens : -INFINITY;
}
