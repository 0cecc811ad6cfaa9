// SPDX-License-Identifier: MIT
#include "work.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "api_value.h"
#include "chat_template.h"
#include "grammar.h"
#include "grammar_build.h"
#include "json_strict.h"
#include "owned.h"
#include "processor.h"
#include "sha256.h"
#include "text_tree.h"
#include "tokenizer.h"

#define MAX_CONFIG    ((size_t)16 << 20)
#define MAX_PROCESSOR ((size_t)1 << 20) /* maximum size of an image processor's file */

/* ---- the model ------------------------------------------------------------------------------- */

static double read_default(const cJSON *config, const char *name)
{
	const cJSON *item = api_member(config, name);

	return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static void add_stop_token(struct text_loaded *l, const cJSON *item)
{
	int64_t id;

	if (l->n_stop_tokens < TEXT_STOP_TOKENS && api_value_int(item, &id) && id >= 0 &&
	    id <= INT32_MAX)
		l->stop_tokens[l->n_stop_tokens++] = (int32_t)id;
}

/* An id or an array of ids. */
static void add_stop_tokens(struct text_loaded *l, const cJSON *config)
{
	const cJSON *eos = api_member(config, "eos_token_id"), *item;

	if (cJSON_IsNumber(eos))
		add_stop_token(l, eos);
	if (cJSON_IsArray(eos))
		cJSON_ArrayForEach(item, eos)
			add_stop_token(l, item);
}

static int load_json(const char *dir, const char *name, size_t max_bytes, cJSON **ret, char *err,
		     size_t errlen)
{
	char path[1200];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return txda_json_load(path, max_bytes, ret, err, errlen);
}

/* The same for a file that may be missing. */
static int load_json_if_there(const char *dir, const char *name, size_t max_bytes, cJSON **ret,
			      char *err, size_t errlen)
{
	int r = load_json(dir, name, max_bytes, ret, err, errlen);

	return r == -ENOENT ? 0 : r;
}

static int load_configs(struct text_loaded *l, const char *dir)
{
	cJSON *generation = NULL, *config = NULL;
	int r = load_json_if_there(dir, "generation_config.json", MAX_CONFIG, &generation,
				   l->message, sizeof(l->message));

	if (!r)
		r = load_json_if_there(dir, "config.json", MAX_CONFIG, &config, l->message,
				       sizeof(l->message));
	l->repetition_penalty = read_default(generation, "repetition_penalty");
	/* Without sampling the other settings have no effect. */
	l->temperature = cJSON_IsFalse(api_member(generation, "do_sample"))
				 ? 0
				 : read_default(generation, "temperature");
	l->top_p = read_default(generation, "top_p");
	l->min_p = read_default(generation, "min_p");
	l->top_k = read_default(generation, "top_k");
	add_stop_tokens(l, generation);
	if (!l->n_stop_tokens)
		add_stop_tokens(l, config);
	cJSON_Delete(generation);
	cJSON_Delete(config);
	return r;
}

/* Without a usable image processor the model still accepts text. */
static bool load_images(struct text_loaded *l, const char *dir, const struct image_tower *tower,
			struct image_values *ret)
{
	struct image_processor processor;
	cJSON *all = NULL, *alone = NULL;
	const cJSON *config;
	int r = load_json_if_there(dir, "processor_config.json", MAX_PROCESSOR, &all,
				   l->image_error, sizeof(l->image_error));

	config = image_processor_within(all);
	if (!r && !config) {
		r = load_json(dir, "preprocessor_config.json", MAX_PROCESSOR, &alone,
			      l->image_error, sizeof(l->image_error));
		config = alone;
	}
	if (!r)
		r = image_processor_parse(config, tower, &processor, l->image_error,
					  sizeof(l->image_error));
	cJSON_Delete(all);
	cJSON_Delete(alone);
	if (!r)
		image_processor_export(&processor, ret);
	return !r;
}

int text_model_read(struct text_model *m, const char *dir, const struct image_tower *tower,
		    struct text_buf *out)
{
	struct text_loaded l = {0};
	struct image_values images;
	struct sha256 files;
	bool has_images = false;
	size_t tables;

	sha256_init(&files);
	owned_watch(&files);
	l.error = txda_tokenizer_load(dir, &m->tokenizer, l.message, sizeof(l.message));
	if (!l.error)
		l.error = load_configs(&l, dir);
	/* Many models have no template; completions work without one. */
	if (!l.error && txda_chat_template_load(dir, &m->chat, l.chat_error, sizeof(l.chat_error)))
		m->chat = NULL;
	if (!l.error && tower)
		has_images = load_images(&l, dir, tower, &images);
	owned_watch(NULL);
	sha256_final(&files, l.files);
	l.has_chat = m->chat != NULL;
	if (m->chat) {
		l.calls = txda_chat_template_capabilities(m->chat)->calls;
		l.reasoning = txda_chat_template_capabilities(m->chat)->reasoning;
	}
	out->len = 0;
	if (!text_buf_add(out, &l, sizeof(l)))
		return -ENOMEM;
	l.images = (struct text_part){(uint32_t)out->len, has_images ? sizeof(images) : 0};
	if (has_images && !text_buf_add(out, &images, sizeof(images)))
		return -ENOMEM;
	tables = out->len;
	if (!l.error && txda_tokenizer_export(m->tokenizer, out))
		return -ENOMEM;
	if (out->len > TEXT_MESSAGE_MAX)
		return -EFBIG;
	l.tables = (struct text_part){(uint32_t)tables, (uint32_t)(out->len - tables)};
	l.size = (uint32_t)out->len;
	memcpy(out->data, &l, sizeof(l));
	return 0;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static int encode(const struct text_model *m, const struct text_job *job, const char *text,
		  size_t len, struct text_done *done, struct text_buf *out)
{
	unsigned flags = job->flags & TEXT_ADD_SPECIAL ? TXDA_ENCODE_ADD_SPECIAL : 0;
	uint32_t *ids;
	size_t n;
	int r = txda_tokenizer_encode(m->tokenizer, text, len, flags, &ids, &n);

	if (r)
		return r;
	done->n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
	if (n <= job->max_ids && !text_buf_add(out, ids, n * sizeof(*ids)))
		r = -ENOMEM;
	free(ids);
	return r;
}

/*
 * Stands behind the text of the last message, which the model is to continue, while the template is
 * rendered. The white space at its end, of a kind that no template writes, shows whether the
 * template trims the text.
 */
static const char final_mark[] = "txda-final-message-ends-here\v";

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/*
 * Appends the mark to the last message: to its text, or as or to the last of its parts. *ret_blank:
 * bytes of white space that the text ends with, without one that is nothing else: what is before the
 * mark of a trimmed text is the template's then.
 */
static int mark_final_message(cJSON *messages, size_t *ret_blank)
{
	cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
	cJSON *content = cJSON_GetObjectItemCaseSensitive(last, "content"), *text = content;
	char *marked = NULL;
	size_t len, n;
	bool ok;

	if (cJSON_IsArray(content)) {
		cJSON *part = cJSON_GetArrayItem(content, cJSON_GetArraySize(content) - 1);

		text = cJSON_GetObjectItemCaseSensitive(part, "text");
		if (!cJSON_IsString(text)) {
			part = cJSON_CreateObject();
			cJSON_AddStringToObject(part, "type", "text");
			text = cJSON_AddStringToObject(part, "text", "");
			if (!text || !cJSON_AddItemToArray(content, part)) {
				cJSON_Delete(part);
				return -ENOMEM;
			}
		}
	}
	if (!cJSON_IsString(text))
		return -EPROTO;
	len = strlen(text->valuestring);
	for (n = 0; n < len && is_blank(text->valuestring[len - 1 - n]); n++)
		;
	*ret_blank = n < len ? n : 0;
	if (asprintf(&marked, "%s%s", text->valuestring, final_mark) < 0)
		return -ENOMEM;
	ok = cJSON_SetValuestring(text, marked);
	free(marked);
	return ok ? 0 : -ENOMEM;
}

/* Cuts the prompt where the mark is, and the text's @blank at its end if the template trims. */
static int cut_at_final_mark(char *text, size_t *len, size_t blank)
{
	size_t n = sizeof(final_mark) - 2, at = *len; /* without the white space */

	while (at + n > *len || memcmp(text + at, final_mark, n) != 0) {
		if (!at--)
			return -EPROTO;
	}
	if (text[at + n] != final_mark[n])
		for (; blank && at && is_blank(text[at - 1]); blank--)
			at--;
	*len = at;
	return 0;
}

static bool ends_with(const char *text, size_t len, const char *mark)
{
	size_t n = strlen(mark);

	while (len && strchr(" \t\r\n", text[len - 1]))
		len--;
	return len >= n && !memcmp(text + len - n, mark, n);
}

/* Whether the request has this variable of its own, which a client's does not replace. */
static bool is_own(const char *name)
{
	static const char *const names[] = {"messages", "tools", "documents",
					    "add_generation_prompt"};
	unsigned i = 0;

	while (i < sizeof(names) / sizeof(names[0]) && strcmp(names[i], name))
		i++;
	return i < sizeof(names) / sizeof(names[0]);
}

/* Lists the variables, and the tools, that the template ignores. */
static void list_unread(const struct text_model *m, const cJSON *tools, const cJSON *variables,
			struct text_done *done)
{
	bool with_tools = cJSON_GetArraySize(tools) > 0;
	const cJSON *item;
	size_t n = 0;

	if (with_tools && !txda_chat_template_mentions(m->chat, true, "tools"))
		n = (size_t)snprintf(done->message, sizeof(done->message), "tools\n");
	cJSON_ArrayForEach(item, variables) {
		if ((is_own(item->string) ||
		     !txda_chat_template_mentions(m->chat, with_tools, item->string)) &&
		    n < sizeof(done->message))
			n += (size_t)snprintf(done->message + n, sizeof(done->message) - n, "%s\n",
					      item->string);
	}
}

/* parts 0 to 2: trees of messages, tools, variables */
static int chat(const struct text_model *m, const struct text_job *job, cJSON *const trees[3],
		struct text_done *done, struct text_buf *out)
{
	const struct txda_chat_request request = {
		.messages = trees[0],
		.tools = trees[1],
		.variables = trees[2],
		.add_generation_prompt = job->flags & TEXT_ADD_GENERATION_PROMPT,
	};
	const char *think = reply_think(job->reasoning),
		   *think_end = reply_think_end(job->reasoning);
	bool continued = job->flags & TEXT_CONTINUE_FINAL;
	struct txda_template_error error = {0};
	char *text = NULL;
	size_t len, blank = 0;
	int r;

	if (!m->chat || !trees[0])
		return -EINVAL;
	r = continued ? mark_final_message(trees[0], &blank) : 0;
	if (!r) {
		r = txda_chat_template_render(m->chat, &request, &error, &text, &len);
		if (r && r != -ENOMEM)
			r = -EPROTO;
	}
	if (!r && continued)
		r = cut_at_final_mark(text, &len, blank);
	if (r) {
		snprintf(done->message, sizeof(done->message), "%s",
			 *error.message ? error.message
					: "the last message has no text in the prompt that "
					  "continue_final_message could continue");
		free(text);
		return r;
	}
	list_unread(m, trees[1], trees[2], done);
	if (think && ends_with(text, len, think))
		done->flags |= TEXT_ENDS_IN_THINK;
	if (think_end && ends_with(text, len, think_end))
		done->flags |= TEXT_ENDS_BEHIND_THINK;
	r = encode(m, job, text, len, done, out);
	free(text);
	return r;
}

/* ---- grammars -------------------------------------------------------------------------------- */

static int build(const struct text_model *m, const struct api_params *p, const struct text_job *job,
		 struct text_done *done, struct text_buf *out)
{
	struct grammar_builder *b = grammar_builder_new();
	struct grammar *g = NULL;
	uint32_t root = 0;
	int r;

	if (!b)
		return -ENOMEM;
	form_grammar(b, p, (enum reply_tools)job->tools, (enum reply_reasoning)job->reasoning,
		     m->tokenizer, &root);
	r = grammar_build(b, root, &g, done->message, sizeof(done->message));
	grammar_builder_free(b);
	if (r)
		return r == -ENOMEM ? r : -EPROTO;
	r = grammar_export(g, out);
	grammar_unref(g);
	return r;
}

static int grammar(const struct text_model *m, const struct text_job *job, const cJSON *tree,
		   const char *whitespace, const char *name, struct text_done *done,
		   struct text_buf *out)
{
	const struct api_params p = {
		.format = {.form = (enum api_form)job->form,
			   .value = tree,
			   .strict = job->flags & TEXT_STRICT,
			   .compact = job->flags & TEXT_COMPACT,
			   .whitespace = job->flags & TEXT_HAS_WHITESPACE ? whitespace : NULL},
		.tools = tree,
		.tool_choice = (enum api_tool_choice)job->tool_choice,
		.tool_name = name,
		.parallel_tools = job->flags & TEXT_PARALLEL_TOOLS,
	};

	if (job->form > API_FORM_CHOICE || job->tool_choice > API_TOOLS_NAMED ||
	    job->tools >= REPLY_TOOLS_COUNT)
		return -EINVAL;
	return build(m, &p, job, done, out);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A part as a string: the NUL after it is not counted. */
static const char *part_text(const struct text_job *job, unsigned i, const char *data)
{
	const struct text_part *p = &job->parts[i];

	return p->length && !data[p->offset + p->length - 1] ? data + p->offset : "";
}

static int do_job(const struct text_model *m, const struct text_job *job, const char *data,
		  struct text_done *done, struct text_buf *out)
{
	const struct text_part *parts = job->parts;
	unsigned n_trees = job->kind == TEXT_JOB_CHAT ? 3 : job->kind == TEXT_JOB_GRAMMAR;
	cJSON *trees[3] = {NULL};
	bool known = job->kind <= TEXT_JOB_GRAMMAR && job->reasoning < REPLY_REASONING_COUNT;
	int r = known ? 0 : -EINVAL;

	for (unsigned i = 0; i < n_trees && !r; i++)
		r = text_tree_read(data + parts[i].offset, parts[i].length, &trees[i]);
	if (!r && job->kind == TEXT_JOB_ENCODE)
		r = encode(m, job, data + parts[0].offset, parts[0].length, done, out);
	else if (!r && job->kind == TEXT_JOB_CHAT)
		r = chat(m, job, trees, done, out);
	else if (!r)
		r = grammar(m, job, trees[0], part_text(job, 1, data), part_text(job, 2, data),
			    done, out);
	for (unsigned i = 0; i < n_trees; i++)
		cJSON_Delete(trees[i]);
	return r;
}

int text_work(const struct text_model *m, const char *data, size_t size, struct text_buf *out)
{
	struct text_done done = {0};
	struct text_job job;

	if (size < sizeof(job))
		return -EINVAL;
	memcpy(&job, data, sizeof(job));
	if (job.size != size)
		return -EINVAL;
	for (unsigned i = 0; i < TEXT_JOB_PARTS; i++) {
		if (job.parts[i].length && !text_part_fits(&job.parts[i], sizeof(job), job.size))
			return -EINVAL;
	}
	out->len = 0;
	if (!text_buf_add(out, &done, sizeof(done)))
		return -ENOMEM;
	done.error = do_job(m, &job, data, &done, out);
	if (!done.error && out->len > TEXT_MESSAGE_MAX)
		done.error = -E2BIG;
	if (done.error)
		out->len = sizeof(done);
	done.size = (uint32_t)out->len;
	done.part = (struct text_part){sizeof(done), done.size - (uint32_t)sizeof(done)};
	memcpy(out->data, &done, sizeof(done));
	return 0;
}
