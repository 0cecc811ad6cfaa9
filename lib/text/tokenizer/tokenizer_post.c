// SPDX-License-Identifier: MIT
/*
 * The post-processor: for a single text all of its kinds reduce to a list of ids before it and one
 * after it.
 */
#include "tokenizer_internal.h"

#include <errno.h>
#include <stdio.h>

static void list_add(const struct json_at *at, struct id_list *list, uint32_t id)
{
	if (list->n == TEMPLATE_MAX)
		json_fail(at->errors, "%s: more than %d tokens", at->path, TEMPLATE_MAX);
	else
		list->ids[list->n++] = id;
}

/* Adds a processor's ids around those of the previous processors. */
static void wrap(struct txda_tokenizer *tok, const struct json_at *at, struct id_list *prefix,
		 const struct id_list *suffix)
{
	for (unsigned i = 0; i < tok->prefix.n; i++)
		list_add(at, prefix, tok->prefix.ids[i]);
	tok->prefix = *prefix;
	for (unsigned i = 0; i < suffix->n; i++)
		list_add(at, &tok->suffix, suffix->ids[i]);
}

/* The ids of a special token of a template. */
static void add_template_token(const struct txda_tokenizer *tok, const struct json_at *at,
			       const cJSON *item, struct id_list *list)
{
	const cJSON *name = json_get(json_get(item, "SpecialToken"), "id"), *entry, *ids, *id;
	uint32_t value;

	if (!cJSON_IsString(name)) {
		json_unsupported(at, "single", item);
		return;
	}
	entry = json_get(json_get(at->json, "special_tokens"), name->valuestring);
	ids = json_get(entry, "ids");
	if (!cJSON_IsArray(ids))
		json_fail(at->errors, "%s.special_tokens has no ids for \"%.80s\"", at->path,
			  name->valuestring);
	cJSON_ArrayForEach(id, ids) {
		if (json_is_number(id, UINT32_MAX, &value) && string_table_has(&tok->pieces, value))
			list_add(at, list, value);
		else
			json_unsupported(at, "special_tokens", entry);
	}
}

static void load_template(struct txda_tokenizer *tok, const struct json_at *at)
{
	const cJSON *single = json_get(at->json, "single"), *item;
	struct id_list prefix = {.n = 0}, suffix = {.n = 0};
	bool seen = false;

	if (cJSON_IsArray(single)) {
		cJSON_ArrayForEach(item, single) {
			const cJSON *sequence = json_get(json_get(item, "Sequence"), "id");

			if (!sequence)
				add_template_token(tok, at, item, seen ? &suffix : &prefix);
			else if (seen || !cJSON_IsString(sequence) ||
				 strcmp(sequence->valuestring, "A"))
				json_unsupported(at, "single", single);
			seen |= sequence != NULL;
		}
	}
	if (!seen)
		json_unsupported(at, "single", single);
	wrap(tok, at, &prefix, &suffix);
}

/* ["</s>", 2] */
static void load_named_id(const struct txda_tokenizer *tok, const struct json_at *at,
			  const char *key, struct id_list *list)
{
	const cJSON *pair = json_get(at->json, key);
	uint32_t id;

	if (cJSON_IsArray(pair) && pair->child &&
	    json_is_number(pair->child->next, UINT32_MAX, &id) &&
	    string_table_has(&tok->pieces, id))
		list_add(at, list, id);
	else
		json_unsupported(at, key, pair);
}

static void load_step(void *arg, const struct json_at *at, const char *type)
{
	struct id_list prefix = {.n = 0}, suffix = {.n = 0};
	struct txda_tokenizer *tok = arg;

	if (!strcmp(type, "TemplateProcessing")) {
		load_template(tok, at);
	} else if (!strcmp(type, "RobertaProcessing")) {
		load_named_id(tok, at, "cls", &prefix);
		load_named_id(tok, at, "sep", &suffix);
		wrap(tok, at, &prefix, &suffix);
	} else if (strcmp(type, "ByteLevel")) { /* this one only changes offsets */
		json_unsupported(at, "type", json_get(at->json, "type"));
	}
}

/* "bos_token": "<s>" or {"content": "<s>", ...}. An unknown name counts as absent. */
static uint32_t config_token(const struct txda_tokenizer *tok, const cJSON *config, const char *key)
{
	const cJSON *value = json_get(config, key);

	if (cJSON_IsObject(value))
		value = json_get(value, "content");
	if (!cJSON_IsString(value))
		return TXDA_TOKEN_NONE;
	return txda_tokenizer_piece_id(tok, value->valuestring, strlen(value->valuestring));
}

/*
 * add_bos_token and add_eos_token. The Llama classes derive their template from these two,
 * regardless of tokenizer.json; for others they apply if tokenizer.json adds nothing.
 */
static void apply_config(struct txda_tokenizer *tok, const struct json_at *at)
{
	const cJSON *class = json_get(at->json, "tokenizer_class");
	const cJSON *add_bos = json_get(at->json, "add_bos_token");
	bool bos = json_get_bool(at, "add_bos_token", false);
	bool eos = json_get_bool(at, "add_eos_token", false);

	if (add_bos && cJSON_IsString(class) && strstr(class->valuestring, "Llama"))
		tok->prefix.n = tok->suffix.n = 0;
	else if (tok->prefix.n || tok->suffix.n)
		return;
	if (bos && tok->bos != TXDA_TOKEN_NONE)
		list_add(at, &tok->prefix, tok->bos);
	if (eos && tok->eos != TXDA_TOKEN_NONE)
		list_add(at, &tok->suffix, tok->eos);
}

int tokenizer_load_post(struct txda_tokenizer *tok, const cJSON *post, const cJSON *config,
			struct json_errors *errors)
{
	json_each_step(post, "post_processor", "processors", load_step, tok, errors);
	tok->bos = config_token(tok, config, "bos_token");
	tok->eos = config_token(tok, config, "eos_token");
	if (config)
		apply_config(tok, &(struct json_at){errors, config, "tokenizer_config.json"});
	return errors->code;
}
