// SPDX-License-Identifier: MIT
/*
 * The post-processor: for one text all of its kinds come to "these ids in front, those behind".
 */
#include "tokenizer_internal.h"

#include <errno.h>
#include <stdio.h>

/* Sequences inside sequences. */

struct loader {
	struct txda_tokenizer *tok;
	const struct json_errors *errors;
};

static bool list_add(struct id_list *list, uint32_t id)
{
	if (list->n == TEMPLATE_MAX)
		return false;
	list->ids[list->n++] = id;
	return true;
}

/* Puts a processor's ids around what the ones before it have put. */
static int wrap(const struct loader *ld, const char *path, const struct id_list *prefix,
		const struct id_list *suffix)
{
	struct txda_tokenizer *tok = ld->tok;
	struct id_list front = *prefix;

	for (unsigned i = 0; i < tok->prefix.n; i++)
		if (!list_add(&front, tok->prefix.ids[i]))
			return json_fail(ld->errors, "%s: more than %d tokens", path, TEMPLATE_MAX);
	tok->prefix = front;
	for (unsigned i = 0; i < suffix->n; i++)
		if (!list_add(&tok->suffix, suffix->ids[i]))
			return json_fail(ld->errors, "%s: more than %d tokens", path, TEMPLATE_MAX);
	return 0;
}

/* The ids of a special token of a template. */
static int add_template_token(const struct loader *ld, const cJSON *json, const char *path,
			      const cJSON *item, struct id_list *list)
{
	const cJSON *name = json_get(json_get(item, "SpecialToken"), "id"), *entry, *ids, *id;
	uint32_t value;

	if (!cJSON_IsString(name))
		return json_unsupported(ld->errors, path, "single", item);
	entry = json_get(json_get(json, "special_tokens"), name->valuestring);
	ids = json_get(entry, "ids");
	if (!cJSON_IsArray(ids))
		return json_fail(ld->errors, "%s.special_tokens has no ids for \"%.80s\"", path,
				 name->valuestring);
	cJSON_ArrayForEach(id, ids)
	{
		if (!json_is_number(id, UINT32_MAX, &value) ||
		    !string_table_has(&ld->tok->pieces, value))
			return json_unsupported(ld->errors, path, "special_tokens", entry);
		if (!list_add(list, value))
			return json_fail(ld->errors, "%s: more than %d tokens", path, TEMPLATE_MAX);
	}
	return 0;
}

static int load_template(const struct loader *ld, const cJSON *json, const char *path)
{
	const cJSON *single = json_get(json, "single"), *item;
	struct id_list prefix = {.n = 0}, suffix = {.n = 0};
	bool seen = false;

	if (!cJSON_IsArray(single))
		return json_unsupported(ld->errors, path, "single", single);
	cJSON_ArrayForEach(item, single)
	{
		const cJSON *sequence = json_get(json_get(item, "Sequence"), "id");
		int ret;

		if (!sequence) {
			ret = add_template_token(ld, json, path, item, seen ? &suffix : &prefix);
			if (ret)
				return ret;
			continue;
		}
		if (seen || !cJSON_IsString(sequence) || strcmp(sequence->valuestring, "A"))
			return json_unsupported(ld->errors, path, "single", single);
		seen = true;
	}
	if (!seen)
		return json_unsupported(ld->errors, path, "single", single);
	return wrap(ld, path, &prefix, &suffix);
}

/* ["</s>", 2] */
static int load_named_id(const struct loader *ld, const cJSON *json, const char *path,
			 const char *key, struct id_list *list)
{
	const cJSON *pair = json_get(json, key);
	uint32_t id;

	if (!cJSON_IsArray(pair) || !pair->child ||
	    !json_is_number(pair->child->next, UINT32_MAX, &id) ||
	    !string_table_has(&ld->tok->pieces, id))
		return json_unsupported(ld->errors, path, key, pair);
	list_add(list, id);
	return 0;
}

static int load_roberta(const struct loader *ld, const cJSON *json, const char *path)
{
	struct id_list prefix = {.n = 0}, suffix = {.n = 0};
	int ret = load_named_id(ld, json, path, "cls", &prefix);

	if (!ret)
		ret = load_named_id(ld, json, path, "sep", &suffix);
	return ret ? ret : wrap(ld, path, &prefix, &suffix);
}

static int load_step(void *arg, const cJSON *json, const char *path, const char *type)
{
	const struct loader *ld = arg;

	if (!strcmp(type, "TemplateProcessing"))
		return load_template(ld, json, path);
	if (!strcmp(type, "RobertaProcessing"))
		return load_roberta(ld, json, path);
	/* It only moves offsets. */
	if (!strcmp(type, "ByteLevel"))
		return 0;
	return json_unsupported(ld->errors, path, "type", json_get(json, "type"));
}

/* "bos_token": "<s>" or {"content": "<s>", ...}. A name that is no token is as none. */
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
 * add_bos_token and add_eos_token. The Llama classes make their template from these two, whatever
 * tokenizer.json says; for the others they count where tokenizer.json puts nothing.
 */
static int apply_config(const struct loader *ld, const cJSON *config)
{
	const char *where = "tokenizer_config.json";
	struct txda_tokenizer *tok = ld->tok;
	const cJSON *class = json_get(config, "tokenizer_class");
	const cJSON *add_bos = json_get(config, "add_bos_token");
	bool bos, eos;
	int ret;

	ret = json_get_bool(config, where, "add_bos_token", false, &bos, ld->errors);
	if (!ret)
		ret = json_get_bool(config, where, "add_eos_token", false, &eos, ld->errors);
	if (ret)
		return ret;
	if (add_bos && cJSON_IsString(class) && strstr(class->valuestring, "Llama"))
		tok->prefix.n = tok->suffix.n = 0;
	else if (tok->prefix.n || tok->suffix.n)
		return 0;
	if (bos && tok->bos != TXDA_TOKEN_NONE)
		list_add(&tok->prefix, tok->bos);
	if (eos && tok->eos != TXDA_TOKEN_NONE)
		list_add(&tok->suffix, tok->eos);
	return 0;
}

int tokenizer_load_post(struct txda_tokenizer *tok, const cJSON *post, const cJSON *config,
			const struct json_errors *errors)
{
	struct loader ld = {.tok = tok, .errors = errors};
	int ret = json_each_step(post, "post_processor", "processors", load_step, &ld, errors);

	tok->bos = config_token(tok, config, "bos_token");
	tok->eos = config_token(tok, config, "eos_token");
	return ret || !config ? ret : apply_config(&ld, config);
}
