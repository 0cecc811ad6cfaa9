// SPDX-License-Identifier: MIT
#include "model_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_value.h"
#include "constraint.h"
#include "detok.h"
#include "grammar.h"
#include "hash.h"
#include "pictures_place.h"
#include "structured.h"
#include "text_buf.h"
#include "text_process.h"
#include "text_tree.h"
#include "tokenizer.h"

/* ---- loading --------------------------------------------------------------------------------- */

static bool has_token(const int32_t *tokens, unsigned n, int32_t token)
{
	unsigned i = 0;

	while (i < n && tokens[i] != token)
		i++;
	return i < n;
}

static void add_stop_token(struct model_text *t, int64_t id)
{
	if (id < 0 || id >= t->vocab ||
	    t->n_stop_tokens == sizeof(t->stop_tokens) / sizeof(t->stop_tokens[0]) ||
	    has_token(t->stop_tokens, t->n_stop_tokens, (int32_t)id))
		return;
	t->stop_tokens[t->n_stop_tokens++] = (int32_t)id;
}

/* A default from generation_config.json, if present and sensible. */
static double choose(double value, double min, double max, double otherwise)
{
	return value >= min && value <= max ? value : otherwise;
}

static void take_defaults(struct model_text *t, const struct text_loaded *l)
{
	uint32_t eos = txda_tokenizer_eos(t->tokenizer);

	t->repetition_penalty = choose(l->repetition_penalty, 0.01, 100, 1);
	t->temperature = choose(l->temperature, 0, 2, 1);
	t->top_p = choose(l->top_p, 0, 1, 1);
	t->min_p = choose(l->min_p, 0, 1, 0);
	t->top_k = (unsigned)choose(l->top_k, 0, INT32_MAX, 0);
	for (unsigned i = 0; i < l->n_stop_tokens; i++)
		add_stop_token(t, l->stop_tokens[i]);
	if (eos != TXDA_TOKEN_NONE)
		add_stop_token(t, eos);
}

/* ---- format of replies ----------------------------------------------------------------------- */

bool model_text_tool_parser(const char *name, enum reply_tools *ret)
{
	*ret = REPLY_NO_TOOLS;
	return !strcmp(name, "auto") || reply_tools_named(name, ret);
}

bool model_text_reasoning_parser(const char *name, enum reply_reasoning *ret)
{
	*ret = REPLY_NO_REASONING;
	return !strcmp(name, "auto") || reply_reasoning_named(name, ret);
}

static int32_t find_token(const struct model_text *t, const char *piece)
{
	uint32_t id = txda_tokenizer_piece_id(t->tokenizer, piece, strlen(piece));

	return id != TXDA_TOKEN_NONE && id < t->vocab ? (int32_t)id : -1;
}

/*
 * A chat template shows the marks that the model was trained on (@l has them). If it shows none,
 * the vocabulary's special tokens decide.
 */
static enum reply_tools guess_tools(const struct model_text *t, const struct text_loaded *l)
{
	enum reply_tools tools =
		l->calls < REPLY_TOOLS_COUNT ? (enum reply_tools)l->calls : REPLY_NO_TOOLS;

	for (unsigned i = 1; i < REPLY_TOOLS_COUNT && !tools; i++) {
		if (find_token(t, reply_format(i)->marks[0]) >= 0)
			tools = i;
	}
	return tools;
}

static enum reply_reasoning guess_reasoning(const struct model_text *t, const struct text_loaded *l)
{
	if (l->reasoning && l->reasoning < REPLY_REASONING_COUNT)
		return (enum reply_reasoning)l->reasoning;
	return find_token(t, reply_think_end(REPLY_THINK)) >= 0 ? REPLY_THINK : REPLY_NO_REASONING;
}

static void choose_parsers(struct model_text *t, const struct model_text_options *options,
			   const struct text_loaded *l)
{
	const char *tools = options->tool_parser ? options->tool_parser : "auto";
	const char *reasoning = options->reasoning_parser ? options->reasoning_parser : "auto";
	const char *think;

	if (!strcmp(tools, "auto"))
		t->tools = guess_tools(t, l);
	else
		model_text_tool_parser(tools, &t->tools);
	if (!strcmp(reasoning, "auto"))
		t->reasoning = guess_reasoning(t, l);
	else
		model_text_reasoning_parser(reasoning, &t->reasoning);
	think = reply_think(t->reasoning);
	t->think = think ? find_token(t, think) : -1;
	t->think_end = think ? find_token(t, reply_think_end(t->reasoning)) : -1;
}

static bool is_mark_of(const struct model_text *t, enum reply_tools tools, uint32_t token)
{
	const char *const *marks = reply_format(tools)->marks;

	for (unsigned i = 0; i < REPLY_MAX_MARKS && marks[i]; i++) {
		if ((int32_t)token == find_token(t, marks[i]))
			return true;
	}
	return false;
}

bool model_text_is_mark(const struct model_text *t, enum reply_tools tools, uint32_t token)
{
	if (t->reasoning && ((int32_t)token == t->think || (int32_t)token == t->think_end))
		return true;
	return is_mark_of(t, tools, token) ||
	       (t->reasoning == REPLY_CHANNELS && is_mark_of(t, REPLY_HARMONY, token));
}

enum reply_tools model_text_tools(const struct model_text *t, const struct api_params *p)
{
	if (p->kind != API_CHAT || p->tool_choice == API_TOOLS_NONE)
		return REPLY_NO_TOOLS;
	if (p->tool_choice == API_TOOLS_AUTO)
		return t->tools;
	/* A forced call is written as JSON. */
	return t->tools == REPLY_NO_TOOLS   ? REPLY_HERMES
	       : t->tools == REPLY_PYTHONIC ? REPLY_LLAMA
					    : t->tools;
}

bool model_text_grammar(const struct model_text *t, struct api_params *p,
			const struct text_caller *caller, struct account *a, struct grammar **ret,
			struct api_error *e)
{
	return structured_compile(t->structured, t, p, caller, a, ret, e);
}

int model_text_constrain(const struct model_text *t, const struct api_params *p,
			 const struct prompt_tokens *prompt, struct grammar *grammar,
			 struct engine_request *r)
{
	bool reasons = t->reasoning && !prompt->reasoned;
	const struct constraint_options options = {
		.in_reasoning = prompt->in_reasoning,
		.think = reasons ? t->think : -1,
		.think_end = reasons ? t->think_end : -1,
		.vocab = t->vocab,
		.budget = p->thinking_budget,
	};

	if (!grammar && (p->thinking_budget == API_NO_BUDGET || options.think_end < 0))
		return 0;
	return constraint_new(grammar, structured_vocab(t->structured), &options, &r->constraint);
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Without a usable image processor the model still accepts text. */
static void take_images(struct model_text *t, const struct engine_limits *limits,
			const struct text_loaded *l)
{
	struct image_values v;

	snprintf(t->image_error, sizeof(t->image_error), "%s", l->image_error);
	if (!limits->tower.max_units || !l->images.length)
		return;
	if (l->images.length == sizeof(v)) {
		memcpy(&v, (const char *)l + l->images.offset, sizeof(v));
		if (!image_processor_import(&v, &limits->tower, &t->processor)) {
			t->tower = limits->tower;
			t->embeds = limits->embeds;
			return;
		}
	}
	snprintf(t->image_error, sizeof(t->image_error),
		 "the values of the image processor are invalid");
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Takes over the data that the process has read, after checking it. */
static int take_loaded(struct model_text *t, const char *dir,
		       const struct model_text_options *options, const struct text_loaded *l,
		       char *err, size_t errlen)
{
	int r = txda_tokenizer_import((const char *)l + l->tables.offset, l->tables.length,
				      &t->tokenizer);

	if (r) {
		snprintf(err, errlen, "the tables of the tokeniser in %.400s are invalid", dir);
		return r;
	}
	if (options->must_fit && txda_tokenizer_vocab_size(t->tokenizer) > t->vocab) {
		snprintf(err, errlen,
			 "the tokeniser in %.400s has %zu tokens, the compiled model a vocabulary "
			 "of %u: they are not of one model",
			 dir, txda_tokenizer_vocab_size(t->tokenizer), t->vocab);
		return -EINVAL;
	}
	take_defaults(t, l);
	choose_parsers(t, options, l);
	t->has_chat = l->has_chat;
	snprintf(t->chat_error, sizeof(t->chat_error), "%s", l->chat_error);
	r = structured_new(t->tokenizer, t->vocab, &t->structured);
	if (r)
		snprintf(err, errlen, "the vocabulary of %s cannot be used for grammars: %s", dir,
			 strerror(-r));
	return r;
}

int model_text_load(const char *dir, const struct engine_limits *limits,
		    const struct model_text_options *options, struct model_text **ret, char *err,
		    size_t errlen)
{
	struct text_process_options process = options->process;
	struct model_text *t = calloc(1, sizeof(*t));
	struct text_loaded *l = NULL;
	int r;

	if (!t) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	t->max_context = limits->max_context;
	t->vocab = limits->vocab;
	if (limits->tower.max_units) {
		process.tower = &limits->tower;
		process.tower_bytes = sizeof(limits->tower);
	}
	r = text_process_start(dir, &process, &t->process, &l, err, errlen);
	if (!r)
		take_images(t, limits, l);
	if (!r)
		r = take_loaded(t, dir, options, l, err, errlen);
	free(l);
	if (r)
		model_text_free(t);
	else
		*ret = t;
	return r;
}

void model_text_free(struct model_text *t)
{
	if (!t)
		return;
	text_process_free(t->process);
	structured_free(t->structured);
	txda_tokenizer_free(t->tokenizer);
	free(t);
}

/* ---- encoding -------------------------------------------------------------------------------- */

static bool encode_error(int r, const char *param, struct api_error *e)
{
	switch (r) {
	case -ENOMEM: return api_error_set(e, 500, NULL, NULL, "out of memory");
	case -EILSEQ: return api_error_set(e, 400, NULL, param, "%s is not valid UTF-8", param);
	default:
		return api_error_set(e, 400, NULL, param, "%s cannot be turned into tokens: %s",
				     param, strerror(-r));
	}
}

bool model_text_call(const struct model_text *t, struct text_job *job,
		     const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		     const struct text_caller *caller, const char *param, struct text_done **ret,
		     struct api_error *e)
{
	char err[256] = "";
	int r = text_process_call(t->process, job, parts, max_answer, caller, ret, err,
				  sizeof(err));

	switch (r) {
	case 0: return true;
	case -ENOMEM:
	case -E2BIG: return encode_error(r, param, e);
	case -ETIMEDOUT:
		return api_error_set(e, 504, "timeout", param,
				     "%s took too long to process; the limit is %u s", param,
				     text_process_seconds(t->process));
	case -ECANCELED:
		return api_error_set(e, 503, "cancelled", NULL, "the request was cancelled");
	case -EIO:
		return api_error_set(e, 503, "model_lost", "model",
				     "cannot create a process to read %s: %s", param, err);
	default:
		return api_error_set(e, 500, NULL, param, "the process that read %s %s", param,
				     r == -EPIPE ? "ended" : "failed");
	}
}

bool model_text_take_ids(const struct model_text *t, const struct text_done *done, uint32_t max_ids,
			 struct prompt_tokens *ret)
{
	uint32_t n = done->n <= max_ids ? done->n : 0;
	size_t vocab = txda_tokenizer_vocab_size(t->tokenizer), bytes = n * sizeof(*ret->ids);

	if (done->part.length != bytes || done->n > INT32_MAX)
		return false;
	ret->ids = malloc(bytes + 1);
	if (!ret->ids)
		return false;
	memcpy(ret->ids, (const char *)done + done->part.offset, bytes);
	for (uint32_t i = 0; i < n; i++)
		if (ret->ids[i] < 0 || (size_t)ret->ids[i] >= vocab)
			return false;
	ret->n = done->n;
	return true;
}

/*
 * Lets the text process tokenise parts. If there are more tokens than the engine accepts, only
 * their number is returned.
 */
static bool encode_parts(const struct model_text *t, struct api_params *p, struct text_job *job,
			 const struct text_bytes parts[TEXT_JOB_PARTS],
			 const struct text_caller *caller, const char *param,
			 struct prompt_tokens *ret, struct api_error *e)
{
	bool counts = p->kind == API_TOKENIZE;
	struct text_done *done;
	bool ok;

	job->max_ids = counts ? MODEL_TEXT_MAX_IDS : t->max_context;
	if (p->add_special)
		job->flags |= TEXT_ADD_SPECIAL;
	if (!model_text_call(t, job, parts, job->max_ids * sizeof(int32_t), caller, param, &done,
			     e))
		return false;
	if (done->error == -EPROTO)
		ok = api_error_set(e, 400, NULL, param,
				   "the chat template refuses the messages: %s", done->message);
	else if (done->error)
		ok = encode_error(done->error, param, e);
	else if (counts && done->n > MODEL_TEXT_MAX_IDS)
		ok = api_error_set(e, 400, NULL, param, "%s has %u tokens; the limit is %u", param,
				   done->n, MODEL_TEXT_MAX_IDS);
	else
		ok = model_text_take_ids(t, done, job->max_ids, ret) ||
		     api_error_set(e, 500, NULL, param, "the tokens of %s are invalid", param);
	if (ok)
		api_params_unread(p, done->message);
	ret->in_reasoning = t->reasoning && done->flags & TEXT_ENDS_IN_THINK;
	ret->reasoned = done->flags & TEXT_ENDS_BEHIND_THINK;
	free(done);
	return ok;
}

static bool encode_chat(const struct model_text *t, struct api_params *p,
			const struct pictures *pictures, const struct text_caller *caller,
			struct prompt_tokens *ret, struct api_error *e)
{
	const cJSON *trees[TEXT_JOB_PARTS] = {p->messages, p->tools, p->template_kwargs};
	struct text_buf bytes[TEXT_JOB_PARTS] = {{0}};
	struct text_bytes parts[TEXT_JOB_PARTS];
	struct text_job job = {.kind = TEXT_JOB_CHAT, .reasoning = t->reasoning};
	bool ok = true;

	if (!t->has_chat)
		return api_error_set(
			e, 400, "no_chat_template", "messages",
			"the model has no usable chat template (%s); use /v1/completions",
			t->chat_error);
	for (unsigned i = 0; i < TEXT_JOB_PARTS; i++) {
		ok = ok && text_tree_write(trees[i], &bytes[i]);
		parts[i] = (struct text_bytes){bytes[i].data, bytes[i].len};
	}
	if (p->add_generation_prompt)
		job.flags |= TEXT_ADD_GENERATION_PROMPT;
	if (p->continue_final_message)
		job.flags |= TEXT_CONTINUE_FINAL;
	/* The template itself writes the tokens that begin a text. */
	ok = ok ? encode_parts(t, p, &job, parts, caller, "messages", ret, e)
		: encode_error(-ENOMEM, "messages", e);
	if (ok && pictures->n)
		ok = pictures_place(t, p, pictures, caller, ret, e);
	for (unsigned i = 0; i < TEXT_JOB_PARTS; i++)
		free(bytes[i].data);
	return ok;
}

/* The member that contains the prompt. */
static const char *prompt_name(const struct api_params *p)
{
	switch (p->kind) {
	case API_CHAT: return "messages";
	case API_EMBEDDING: return p->messages ? "messages" : "input";
	case API_DETOKENIZE: return "tokens";
	default: return p->messages ? "messages" : "prompt";
	}
}

static bool encode_prompt(const struct model_text *t, struct api_params *p,
			  struct api_prompt *prompt, const struct text_caller *caller,
			  const char *name, struct prompt_tokens *ret, struct api_error *e)
{
	if (prompt->text) {
		const struct text_bytes text[TEXT_JOB_PARTS] = {
			{prompt->text, strlen(prompt->text)}};
		struct text_job job = {.kind = TEXT_JOB_ENCODE};

		return encode_parts(t, p, &job, text, caller, name, ret, e);
	}
	ret->ids = prompt->ids;
	ret->n = prompt->n_ids;
	prompt->ids = NULL;
	return true;
}

/* A tokeniser may have tokens, of a text or of the template, for which the model has no rows. */
static bool check_vocab(const struct model_text *t, const struct prompt_tokens *prompt,
			const char *param, struct api_error *e)
{
	for (unsigned i = 0; i < prompt->n; i++) {
		const char *piece;
		size_t len = 0;

		if ((unsigned)prompt->ids[i] < t->vocab)
			continue;
		piece = txda_tokenizer_piece(t->tokenizer, (uint32_t)prompt->ids[i], &len);
		return api_error_set(
			e, 400, NULL, param, "%s has the token id %d%s%.*s%s; the limit is %u",
			param, prompt->ids[i], len ? ", \"" : "", (int)(len < 100 ? len : 100),
			len ? piece : "", len ? "\"" : "", t->vocab - 1);
	}
	return true;
}

/*
 * The prompt must fit into the context with at least one generated token, and with the number of
 * tokens explicitly requested.
 */
static bool check_context(const struct model_text *t, const struct api_params *p,
			  const struct prompt_tokens *prompt, const char *param,
			  struct api_error *e)
{
	unsigned context = t->max_context, limit = p->kind == API_EMBEDDING ? context : context - 1;

	if (!prompt->n)
		return api_error_set(e, 400, NULL, param,
				     "%s is empty: the model needs at least one token", param);
	if (prompt->n > limit)
		return api_error_set(
			e, 400, "context_length_exceeded", param,
			"%s has %u tokens; the limit is %u, as the model's context is %u tokens",
			param, prompt->n, limit, context);
	if (p->max_tokens_given && p->max_tokens > context - prompt->n)
		return api_error_set(e, 400, "context_length_exceeded", "max_tokens",
				     "max_tokens is %u, but the model's context is %u tokens and "
				     "%s has %u; the limit is %u",
				     p->max_tokens, context, param, prompt->n, context - prompt->n);
	return true;
}

static bool check_ids(const struct model_text *t, const struct api_params *p, struct api_error *e)
{
	for (unsigned i = 0; i < p->n_stop_tokens; i++)
		if ((unsigned)p->stop_tokens[i] >= t->vocab)
			return api_error_set(e, 400, NULL, "stop_token_ids",
					     "stop_token_ids has the id %d; the limit is %u",
					     p->stop_tokens[i], t->vocab - 1);
	for (unsigned i = 0; i < p->n_biases; i++)
		if ((unsigned)p->biases[i].token >= t->vocab)
			return api_error_set(e, 400, NULL, "logit_bias",
					     "logit_bias has the id %d; the limit is %u",
					     p->biases[i].token, t->vocab - 1);
	return true;
}

/* Determines how many tokens may be generated; @room is what the shortest prompt leaves. */
static bool settle_max_tokens(struct api_params *p, unsigned room, struct api_error *e)
{
	/*
	 * The model's configured default; otherwise a chat may use the rest of the context and a
	 * completion gets OpenAI's default of 16, or the room there is.
	 */
	if (!p->max_tokens_given && p->default_max_tokens)
		p->max_tokens = p->default_max_tokens < room ? p->default_max_tokens : room;
	else if (!p->max_tokens_given && (p->kind == API_CHAT || p->max_tokens > room))
		p->max_tokens = room;
	if (p->min_tokens > p->max_tokens)
		return api_error_set(e, 400, NULL, "min_tokens",
				     "min_tokens is %u; the limit is %u", p->min_tokens,
				     p->max_tokens);
	return true;
}

bool model_text_encode(const struct model_text *t, struct api_params *p,
		       const struct pictures *pictures, const struct text_caller *caller,
		       struct prompt_tokens *ret, struct api_error *e)
{
	bool generates = p->kind == API_CHAT || p->kind == API_COMPLETION;
	unsigned n = p->messages ? 1 : p->n_prompts, room = 0, context = t->max_context;

	if (!check_ids(t, p, e))
		return false;
	if (generates && p->thinking_budget != API_NO_BUDGET && t->think_end < 0)
		api_fields_ignore(p->ignored, "",
				  api_member(p->root, "thinking_budget") ? "thinking_budget"
									 : "thinking_token_budget");
	for (unsigned i = 0; i < n; i++) {
		char buf[API_PROMPT_NAME];
		const char *name = api_prompt_name(p, prompt_name(p), i, buf);
		bool ok = p->messages
				  ? encode_chat(t, p, pictures, caller, &ret[i], e)
				  : encode_prompt(t, p, &p->prompts[i], caller, name, &ret[i], e);

		if (!ok)
			return false;
		if ((generates || p->kind == API_EMBEDDING) &&
		    !check_context(t, p, &ret[i], name, e))
			return false;
		if (p->kind != API_TOKENIZE && !check_vocab(t, &ret[i], name, e))
			return false;
		if (context > ret[i].n && context - ret[i].n > room)
			room = context - ret[i].n;
	}
	return !generates || settle_max_tokens(p, room, e);
}

void prompt_tokens_free(struct prompt_tokens *p)
{
	txda_detok_free(p->detok);
	engine_images_unref(p->images);
	free(p->ids);
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* The first choice uses the seed itself; further ones use numbers derived from it (splitmix64). */
static uint64_t derive_seed(uint64_t seed, unsigned k)
{
	return k ? hash_spread(seed + k * HASH_GOLDEN) : seed;
}

bool model_text_stops(const struct model_text *t, const struct api_params *p, int32_t token)
{
	return (!p->ignore_eos && has_token(t->stop_tokens, t->n_stop_tokens, token)) ||
	       has_token(p->stop_tokens, p->n_stop_tokens, token);
}

void model_text_sampling(const struct model_text *t, const struct api_params *p, uint64_t seed,
			 unsigned k, struct engine_bias *biases, struct engine_sampling *ret)
{
	double top_p = isnan(p->top_p) ? t->top_p : p->top_p;
	/* Log probabilities are needed to rank the choices of best_of. */
	int logprobs = p->logprobs < 0 && p->best_of > p->n ? 0 : p->logprobs;

	*ret = (struct engine_sampling){
		.temperature = (float)(isnan(p->temperature) ? t->temperature : p->temperature),
		/* 0 means only the best token, like the smallest share. */
		.top_p = top_p > 1e-6 ? (float)top_p : 1e-6f,
		.min_p = (float)(isnan(p->min_p) ? t->min_p : p->min_p),
		.top_k = (int)(p->top_k < 0 ? t->top_k : p->top_k),
		.seed = derive_seed(seed, k),
		.logprobs = logprobs,
		.max_tokens = p->max_tokens ? p->max_tokens : 1,
		.min_tokens = p->min_tokens,
		.ignore_eos = p->ignore_eos && !p->n_stop_tokens,
		.repetition_penalty = (float)(isnan(p->repetition_penalty) ? t->repetition_penalty
									   : p->repetition_penalty),
		.presence_penalty = (float)p->presence_penalty,
		.frequency_penalty = (float)p->frequency_penalty,
		.n_biases = p->n_biases,
		.biases = biases,
	};
	for (unsigned i = 0; i < p->n_biases; i++)
		biases[i] = (struct engine_bias){p->biases[i].token, p->biases[i].bias};
	for (unsigned i = 0; i < t->n_stop_tokens && !p->ignore_eos; i++)
		ret->stop_tokens[ret->n_stop_tokens++] = t->stop_tokens[i];
	for (unsigned i = 0; i < p->n_stop_tokens; i++)
		ret->stop_tokens[ret->n_stop_tokens++] = p->stop_tokens[i];
}
