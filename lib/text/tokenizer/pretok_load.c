// SPDX-License-Identifier: MIT
#include "pretok.h"

#include <errno.h>
#include <stdio.h>

#define GPT2_PATTERN                                                                               \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Sequences inside sequences. */

struct loader {
	struct pretok *pretok;
	const struct json_errors *errors;
};

static int add_step(const struct loader *ld, const char *path, struct pretok_step **ret_step)
{
	struct pretok *pretok = ld->pretok;

	if (pretok->byte_level) {
		json_fail(ld->errors, "%s: nothing may follow ByteLevel", path);
		return -EINVAL;
	}
	if (pretok->n_steps == PRETOK_MAX_STEPS) {
		json_fail(ld->errors, "%s: more than %d steps", path, PRETOK_MAX_STEPS);
		return -EINVAL;
	}
	*ret_step = &pretok->steps[pretok->n_steps++];
	return 0;
}

static int set_text(struct pretok_step *step, const char *text)
{
	step->text = strdup(text);
	step->text_len = strlen(text);
	return step->text ? 0 : -ENOMEM;
}

static int set_regex(const struct loader *ld, const char *path, struct pretok_step *step,
		     const char *pattern)
{
	char why[160] = "";
	int ret = pretok_regex_new(pattern, &step->regex, why, sizeof(why));

	if (ret == -EINVAL)
		return json_fail(ld->errors, "%s.pattern.Regex: %s", path, why);
	step->matcher = PRETOK_REGEX;
	if (step->behavior == PRETOK_ISOLATED && !step->invert)
		pretok_fast_known(pattern, &step->fast);
	return ret;
}

static int load_split(const struct loader *ld, const cJSON *json, const char *path)
{
	static const char *const names[] = {
		[PRETOK_ISOLATED] = "Isolated",
		[PRETOK_REMOVED] = "Removed",
		[PRETOK_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
		[PRETOK_MERGED_WITH_NEXT] = "MergedWithNext",
		[PRETOK_CONTIGUOUS] = "Contiguous",
	};
	const char *pattern, *behavior;
	struct pretok_step *step;
	unsigned i = 0;
	bool is_regex;
	int ret;

	ret = add_step(ld, path, &step);
	if (!ret)
		ret = json_get_string(json, path, "behavior", &behavior, ld->errors);
	if (!ret)
		ret = json_get_bool(json, path, "invert", false, &step->invert, ld->errors);
	if (!ret)
		ret = json_get_pattern(json, path, &pattern, &is_regex, ld->errors);
	if (ret)
		return ret;
	while (i < sizeof(names) / sizeof(names[0]) && strcmp(behavior, names[i]))
		i++;
	if (i == sizeof(names) / sizeof(names[0]))
		return json_unsupported(ld->errors, path, "behavior", json_get(json, "behavior"));
	step->behavior = i;
	if (is_regex)
		return set_regex(ld, path, step, pattern);
	step->matcher = PRETOK_LITERAL;
	return set_text(step, pattern);
}

static int load_byte_level(const struct loader *ld, const cJSON *json, const char *path)
{
	bool prefix_space, use_regex;
	struct pretok_step *step;
	int ret;

	ret = json_get_bool(json, path, "add_prefix_space", true, &prefix_space, ld->errors);
	if (!ret)
		ret = json_get_bool(json, path, "use_regex", true, &use_regex, ld->errors);
	if (!ret && ld->pretok->byte_level)
		ret = json_fail(ld->errors, "%s: ByteLevel stands there twice", path);
	if (!ret && prefix_space) {
		ret = add_step(ld, path, &step);
		if (!ret) {
			step->kind = PRETOK_PREPEND;
			ret = set_text(step, " ");
		}
	}
	if (!ret && use_regex) {
		ret = add_step(ld, path, &step);
		if (!ret)
			ret = set_regex(ld, path, step, GPT2_PATTERN);
	}
	ld->pretok->byte_level = true;
	return ret;
}

static int load_digits(const struct loader *ld, const cJSON *json, const char *path)
{
	struct pretok_step *step;
	bool individual;
	int ret;

	ret = json_get_bool(json, path, "individual_digits", false, &individual, ld->errors);
	if (!ret)
		ret = add_step(ld, path, &step);
	if (ret)
		return ret;
	step->matcher = PRETOK_NUMERIC;
	step->behavior = individual ? PRETOK_ISOLATED : PRETOK_CONTIGUOUS;
	return 0;
}

static int load_whitespace_split(const struct loader *ld, const char *path)
{
	struct pretok_step *step;
	int ret = add_step(ld, path, &step);

	if (ret)
		return ret;
	step->matcher = PRETOK_SPACE;
	step->behavior = PRETOK_REMOVED;
	return 0;
}

/* "prepend_scheme", or the older add_prefix_space; true when something is to be prepended. */
static int load_prepend_scheme(const struct loader *ld, const cJSON *json, const char *path,
			       bool *ret_prepend, enum pretok_kind *ret_kind)
{
	const cJSON *scheme = json_get(json, "prepend_scheme");
	const char *name = "always";
	bool add_prefix_space;
	int ret;

	ret = json_get_bool(json, path, "add_prefix_space", true, &add_prefix_space, ld->errors);
	if (!ret && scheme)
		ret = json_get_string(json, path, "prepend_scheme", &name, ld->errors);
	else if (!add_prefix_space)
		name = "never";
	if (ret)
		return ret;
	*ret_prepend = strcmp(name, "never") != 0;
	*ret_kind = strcmp(name, "first") ? PRETOK_PREPEND : PRETOK_PREPEND_FIRST;
	if (*ret_prepend && strcmp(name, "first") && strcmp(name, "always"))
		return json_unsupported(ld->errors, path, "prepend_scheme", scheme);
	return 0;
}

static int load_metaspace(const struct loader *ld, const cJSON *json, const char *path)
{
	enum pretok_kind kind;
	struct pretok_step *step;
	const char *replacement;
	bool prepend, cut;
	int ret;

	ret = json_get_string(json, path, "replacement", &replacement, ld->errors);
	if (!ret && !*replacement)
		ret = json_fail(ld->errors, "%s.replacement is empty", path);
	if (!ret)
		ret = json_get_bool(json, path, "split", true, &cut, ld->errors);
	if (!ret)
		ret = load_prepend_scheme(ld, json, path, &prepend, &kind);
	if (!ret)
		ret = add_step(ld, path, &step);
	if (!ret) {
		step->kind = PRETOK_REPLACE_SPACES;
		ret = set_text(step, replacement);
	}
	if (!ret && prepend) {
		ret = add_step(ld, path, &step);
		if (!ret) {
			step->kind = kind;
			ret = set_text(step, replacement);
		}
	}
	if (!ret && cut) {
		ret = add_step(ld, path, &step);
		if (!ret) {
			step->matcher = PRETOK_LITERAL;
			step->behavior = PRETOK_MERGED_WITH_NEXT;
			ret = set_text(step, replacement);
		}
	}
	return ret;
}

static int load_step(void *arg, const cJSON *json, const char *path, const char *type)
{
	const struct loader *ld = arg;

	if (!strcmp(type, "Split"))
		return load_split(ld, json, path);
	if (!strcmp(type, "ByteLevel"))
		return load_byte_level(ld, json, path);
	if (!strcmp(type, "Digits"))
		return load_digits(ld, json, path);
	if (!strcmp(type, "Metaspace"))
		return load_metaspace(ld, json, path);
	if (!strcmp(type, "WhitespaceSplit"))
		return load_whitespace_split(ld, path);
	return json_unsupported(ld->errors, path, "type", json_get(json, "type"));
}

int pretok_load(struct pretok *pretok, const cJSON *json, const struct json_errors *errors)
{
	struct loader ld = {.pretok = pretok, .errors = errors};

	return json_each_step(json, "pre_tokenizer", "pretokenizers", load_step, &ld, errors);
}

void pretok_free(struct pretok *pretok)
{
	for (unsigned i = 0; i < pretok->n_steps; i++) {
		pretok_regex_free(pretok->steps[i].regex);
		free(pretok->steps[i].text);
	}
}
