// SPDX-License-Identifier: MIT
#include "tokenizer_normalize.h"

#include <errno.h>
#include <stdio.h>

/* Sequences inside sequences. */

struct loader {
	struct normalizer *normalizer;
	const struct json_errors *errors;
};

static int load_prepend(const struct loader *ld, struct normalize_step *step, const cJSON *json,
			const char *path)
{
	const char *text;
	int ret = json_get_string(json, path, "prepend", &text, ld->errors);

	if (ret)
		return ret;
	step->kind = NORMALIZE_PREPEND;
	step->text = strdup(text);
	return step->text ? 0 : -ENOMEM;
}

static int load_replace(const struct loader *ld, struct normalize_step *step, const cJSON *json,
			const char *path)
{
	const char *pattern, *content;
	char why[160] = "";
	bool is_regex;
	int ret;

	step->kind = NORMALIZE_REPLACE;
	ret = json_get_pattern(json, path, &pattern, &is_regex, ld->errors);
	if (!ret)
		ret = json_get_string(json, path, "content", &content, ld->errors);
	if (ret)
		return ret;
	step->text = strdup(content);
	if (!step->text)
		return -ENOMEM;
	if (!is_regex) {
		step->pattern = strdup(pattern);
		return step->pattern ? 0 : -ENOMEM;
	}
	ret = pretok_regex_new(pattern, &step->regex, why, sizeof(why));
	return ret == -EINVAL ? json_fail(ld->errors, "%s.pattern.Regex: %s", path, why) : ret;
}

static int load_strip(const struct loader *ld, struct normalize_step *step, const cJSON *json,
		      const char *path)
{
	int ret;

	step->kind = NORMALIZE_STRIP;
	ret = json_get_bool(json, path, "strip_left", true, &step->left, ld->errors);
	if (!ret)
		ret = json_get_bool(json, path, "strip_right", true, &step->right, ld->errors);
	return ret;
}

static int load_step(void *arg, const cJSON *json, const char *path, const char *type)
{
	const struct loader *ld = arg;
	struct normalizer *normalizer = ld->normalizer;
	struct normalize_step *step;

	if (normalizer->n_steps == NORMALIZE_MAX_STEPS)
		return json_fail(ld->errors, "%s: more than %d steps", path, NORMALIZE_MAX_STEPS);
	step = &normalizer->steps[normalizer->n_steps++];
	if (!strcmp(type, "NFC") || !strcmp(type, "NFD") || !strcmp(type, "NFKC") ||
	    !strcmp(type, "NFKD")) {
		step->kind = NORMALIZE_UNICODE;
		step->compat = type[2] == 'K';
		step->compose = type[strlen(type) - 1] == 'C';
		return 0;
	}
	if (!strcmp(type, "Prepend"))
		return load_prepend(ld, step, json, path);
	if (!strcmp(type, "Replace"))
		return load_replace(ld, step, json, path);
	if (!strcmp(type, "Strip"))
		return load_strip(ld, step, json, path);
	step->kind = NORMALIZE_LOWERCASE;
	if (!strcmp(type, "Lowercase"))
		return 0;
	return json_unsupported(ld->errors, path, "type", json_get(json, "type"));
}

int normalizer_load(struct normalizer *normalizer, const cJSON *json,
		    const struct json_errors *errors)
{
	struct loader ld = {.normalizer = normalizer, .errors = errors};

	return json_each_step(json, "normalizer", "normalizers", load_step, &ld, errors);
}

void normalizer_free(struct normalizer *normalizer)
{
	for (unsigned i = 0; i < normalizer->n_steps; i++) {
		pretok_regex_free(normalizer->steps[i].regex);
		free(normalizer->steps[i].pattern);
		free(normalizer->steps[i].text);
	}
}
