// SPDX-License-Identifier: MIT
#include "pretok.h"
#include "text_unicode.h"

#include <errno.h>

/* The work of one step on one piece of text. */
struct cut {
	struct pretok_run *run;
	unsigned index; /* of the step */
	const char *text;
	size_t len;
	bool first;

	/* State of the behaviours that merge parts. */
	bool pending;
	bool previous_match;
	size_t start, end;
};

static int run_step(struct pretok_run *run, unsigned index, const char *text, size_t len,
		    bool first);

/* Passes [start, end) to the next step. */
static inline int emit_piece(struct cut *cut, size_t start, size_t end)
{
	struct pretok_run *run = cut->run;

	if (start == end)
		return 0;
	if (cut->index + 1 == run->pretok->n_steps)
		return run->emit(run->arg, cut->text + start, end - start);
	return run_step(run, cut->index + 1, cut->text + start, end - start,
			cut->first && start == 0);
}

static int flush(struct cut *cut)
{
	if (!cut->pending)
		return 0;
	cut->pending = false;
	return emit_piece(cut, cut->start, cut->end);
}

/* Handles the next part, a match or the gap before one, for the behaviours that merge. */
static int merge_part(struct cut *cut, size_t start, size_t end, bool is_match)
{
	bool join;
	int ret = 0;

	switch (cut->run->pretok->steps[cut->index].behavior) {
	case PRETOK_MERGED_WITH_PREVIOUS: join = is_match && !cut->previous_match; break;
	case PRETOK_MERGED_WITH_NEXT: join = !is_match && cut->previous_match; break;
	default: join = is_match == cut->previous_match; break;
	}
	if (cut->pending && join) {
		cut->end = end;
	} else {
		ret = flush(cut);
		cut->pending = true;
		cut->start = start;
		cut->end = end;
	}
	cut->previous_match = is_match;
	return ret;
}

static inline int part(struct cut *cut, size_t start, size_t end, bool is_match)
{
	const struct pretok_step *step = &cut->run->pretok->steps[cut->index];

	is_match ^= step->invert;
	switch (step->behavior) {
	case PRETOK_ISOLATED: return emit_piece(cut, start, end);
	case PRETOK_REMOVED: return is_match ? 0 : emit_piece(cut, start, end);
	default: return merge_part(cut, start, end, is_match);
	}
}

static int find_literal(const struct pretok_step *step, const struct cut *cut, size_t from,
			size_t *ret_start, size_t *ret_end)
{
	const char *hit = memmem(cut->text + from, cut->len - from, step->text, step->text_len);

	if (!hit)
		return 0;
	*ret_start = (size_t)(hit - cut->text);
	*ret_end = *ret_start + step->text_len;
	return 1;
}

static bool is_wanted(enum pretok_matcher matcher, uint32_t cp)
{
	switch (matcher) {
	case PRETOK_SPACE: return unicode_is_space(cp);
	case PRETOK_PUNCTUATION: return unicode_is_punctuation(cp);
	default: return unicode_is_numeric(cp);
	}
}

static int find_char(const struct pretok_step *step, const struct cut *cut, size_t from,
		     size_t *ret_start, size_t *ret_end)
{
	unsigned size;

	for (size_t at = from; at < cut->len; at += size) {
		uint32_t cp = utf8_decode((const uint8_t *)cut->text + at, &size);

		if (is_wanted(step->matcher, cp)) {
			*ret_start = at;
			*ret_end = at + size;
			return 1;
		}
	}
	return 0;
}

static int find(const struct pretok_step *step, const struct cut *cut, size_t from,
		size_t *ret_start, size_t *ret_end)
{
	switch (step->matcher) {
	case PRETOK_LITERAL: return find_literal(step, cut, from, ret_start, ret_end);
	case PRETOK_REGEX:
		return pretok_regex_find(step->regex, &cut->run->match, cut->text, cut->len, from,
					 ret_start, ret_end);
	default: return find_char(step, cut, from, ret_start, ret_end);
	}
}

static size_t next_char(const char *text, size_t at)
{
	return at + utf8_lead_len((uint8_t)text[at]);
}

/* Walks the matches of a PRETOK_SPLIT step. */
static int split(struct cut *cut)
{
	const struct pretok_step *step = &cut->run->pretok->steps[cut->index];
	size_t done = 0, from = 0;
	int ret = 0;

	while (!ret && from < cut->len) {
		size_t start = from, end = 0;

		if (step->fast.on && from == done)
			end = pretok_fast_match(&step->fast, cut->text, cut->len, from);
		if (!end) {
			ret = find(step, cut, from, &start, &end);
			if (ret < 0)
				return ret;
			if (!ret)
				break;
			ret = 0;
		}
		if (start == end) {
			/* An empty match separates, but not directly after another match. */
			if (start > done) {
				ret = part(cut, done, start, false);
				if (!ret)
					ret = part(cut, start, start, true);
				done = start;
			}
			if (start >= cut->len)
				break;
			from = next_char(cut->text, start);
			continue;
		}
		if (start > done)
			ret = part(cut, done, start, false);
		if (!ret)
			ret = part(cut, start, end, true);
		done = from = end;
	}
	if (!ret && done < cut->len)
		ret = part(cut, done, cut->len, false);
	return ret ? ret : flush(cut);
}

static int replace_spaces(const struct cut *cut, const struct pretok_step *step,
			  struct text_buf *buf)
{
	size_t at = 0;

	while (at < cut->len) {
		const char *space = memchr(cut->text + at, ' ', cut->len - at);
		size_t end = space ? (size_t)(space - cut->text) : cut->len;

		if (!text_buf_add(buf, cut->text + at, end - at) ||
		    (space && !text_buf_add(buf, step->text, step->text_len)))
			return -ENOMEM;
		at = end + 1;
	}
	return 0;
}

static int rewrite(const struct cut *cut, const struct pretok_step *step, struct text_buf *buf)
{
	if (step->kind == PRETOK_REPLACE_SPACES)
		return replace_spaces(cut, step, buf);
	if (!text_buf_add(buf, step->text, step->text_len) ||
	    !text_buf_add(buf, cut->text, cut->len))
		return -ENOMEM;
	return 0;
}

static bool applies(const struct cut *cut, const struct pretok_step *step)
{
	if (step->kind == PRETOK_REPLACE_SPACES)
		return memchr(cut->text, ' ', cut->len) != NULL;
	if (step->kind == PRETOK_PREPEND_FIRST && !cut->first)
		return false;
	return cut->len < step->text_len || memcmp(cut->text, step->text, step->text_len);
}

static int run_step(struct pretok_run *run, unsigned index, const char *text, size_t len,
		    bool first)
{
	const struct pretok_step *step = &run->pretok->steps[index];
	struct cut cut = {.run = run, .index = index, .text = text, .len = len, .first = first};
	int ret;

	if (step->kind == PRETOK_SPLIT)
		return split(&cut);
	if (applies(&cut, step)) {
		struct text_buf *buf = &run->bufs[index];

		buf->len = 0;
		ret = rewrite(&cut, step, buf);
		if (ret)
			return ret;
		cut.text = buf->data;
		cut.len = buf->len;
	}
	return emit_piece(&cut, 0, cut.len);
}

int pretok_run_piece(struct pretok_run *run, const char *text, size_t len, bool first)
{
	if (!len)
		return 0;
	if (!run->pretok->n_steps)
		return run->emit(run->arg, text, len);
	return run_step(run, 0, text, len, first);
}

void pretok_run_free(struct pretok_run *run)
{
	pretok_match_free(&run->match);
	for (unsigned i = 0; i < PRETOK_MAX_STEPS; i++)
		free(run->bufs[i].data);
}

/* ---- loading --------------------------------------------------------------------------------- */

#define GPT2_PATTERN                                                                               \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* The next step, with a copy of @text (may be NULL); NULL after an error. */
static struct pretok_step *add_step(struct pretok *pretok, const struct json_at *at,
				    enum pretok_kind kind, const char *text)
{
	struct pretok_step *step;

	if (pretok->byte_level)
		json_fail(at->errors, "%s: ByteLevel must be the last step", at->path);
	else if (pretok->n_steps == PRETOK_MAX_STEPS)
		json_fail(at->errors, "%s: more than %d steps", at->path, PRETOK_MAX_STEPS);
	if (at->errors->code)
		return NULL;
	step = &pretok->steps[pretok->n_steps++];
	step->kind = kind;
	if (text) {
		step->text = json_copy(at->errors, text);
		step->text_len = strlen(text);
	}
	return step;
}

static void add_split(struct pretok *pretok, const struct json_at *at, enum pretok_matcher matcher,
		      enum pretok_behavior behavior, bool invert, const char *text)
{
	struct pretok_step *step = add_step(pretok, at, PRETOK_SPLIT, text);

	if (!step)
		return;
	step->matcher = matcher;
	step->behavior = behavior;
	step->invert = invert;
}

static void add_regex(struct pretok *pretok, const struct json_at *at,
		      enum pretok_behavior behavior, bool invert, const char *pattern)
{
	struct pretok_step *step = add_step(pretok, at, PRETOK_SPLIT, NULL);
	char why[160] = "";
	int ret;

	if (!step)
		return;
	step->matcher = PRETOK_REGEX;
	step->behavior = behavior;
	step->invert = invert;
	ret = pretok_regex_new(pattern, &step->regex, why, sizeof(why));
	if (ret == -EINVAL)
		json_fail(at->errors, "%s.pattern.Regex: %s", at->path, why);
	else if (ret)
		json_no_memory(at->errors);
	else if (behavior == PRETOK_ISOLATED && !invert)
		pretok_fast_known(pattern, &step->fast);
}

static enum pretok_behavior load_behavior(const struct json_at *at)
{
	static const char *const names[] = {
		[PRETOK_ISOLATED] = "Isolated",
		[PRETOK_REMOVED] = "Removed",
		[PRETOK_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
		[PRETOK_MERGED_WITH_NEXT] = "MergedWithNext",
		[PRETOK_CONTIGUOUS] = "Contiguous",
	};
	const char *behavior = json_get_string(at, "behavior");

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(behavior, names[i]))
			return i;
	json_unsupported(at, "behavior", json_get(at->json, "behavior"));
	return PRETOK_ISOLATED;
}

static void load_split(struct pretok *pretok, const struct json_at *at)
{
	enum pretok_behavior behavior = load_behavior(at);
	bool invert = json_get_bool(at, "invert", false), is_regex;
	const char *pattern = json_get_pattern(at, &is_regex);

	if (is_regex)
		add_regex(pretok, at, behavior, invert, pattern);
	else
		add_split(pretok, at, PRETOK_LITERAL, behavior, invert, pattern);
}

static void load_byte_level(struct pretok *pretok, const struct json_at *at)
{
	bool prefix_space = json_get_bool(at, "add_prefix_space", true);
	bool use_regex = json_get_bool(at, "use_regex", true);

	if (pretok->byte_level)
		json_fail(at->errors, "%s: ByteLevel occurs twice", at->path);
	if (prefix_space)
		add_step(pretok, at, PRETOK_PREPEND, " ");
	if (use_regex)
		add_regex(pretok, at, PRETOK_ISOLATED, false, GPT2_PATTERN);
	pretok->byte_level = true;
}

static void load_metaspace(struct pretok *pretok, const struct json_at *at)
{
	const cJSON *scheme = json_get(at->json, "prepend_scheme");
	const char *replacement = json_get_string(at, "replacement"), *when = "always";
	bool cut = json_get_bool(at, "split", true);

	/* "prepend_scheme", or the older add_prefix_space */
	if (!json_get_bool(at, "add_prefix_space", true))
		when = "never";
	if (scheme)
		when = json_get_string(at, "prepend_scheme");
	if (strcmp(when, "never") && strcmp(when, "first") && strcmp(when, "always"))
		json_unsupported(at, "prepend_scheme", scheme);
	if (!*replacement)
		json_fail(at->errors, "%s.replacement is empty", at->path);
	add_step(pretok, at, PRETOK_REPLACE_SPACES, replacement);
	if (strcmp(when, "never"))
		add_step(pretok, at, strcmp(when, "first") ? PRETOK_PREPEND : PRETOK_PREPEND_FIRST,
			 replacement);
	if (cut)
		add_split(pretok, at, PRETOK_LITERAL, PRETOK_MERGED_WITH_NEXT, false, replacement);
}

static void load_step(void *arg, const struct json_at *at, const char *type)
{
	struct pretok *pretok = arg;

	if (!strcmp(type, "Split"))
		load_split(pretok, at);
	else if (!strcmp(type, "ByteLevel"))
		load_byte_level(pretok, at);
	else if (!strcmp(type, "Digits"))
		add_split(pretok, at, PRETOK_NUMERIC,
			  json_get_bool(at, "individual_digits", false) ? PRETOK_ISOLATED
									: PRETOK_CONTIGUOUS,
			  false, NULL);
	else if (!strcmp(type, "Metaspace"))
		load_metaspace(pretok, at);
	else if (!strcmp(type, "WhitespaceSplit"))
		add_split(pretok, at, PRETOK_SPACE, PRETOK_REMOVED, false, NULL);
	else if (!strcmp(type, "Punctuation"))
		add_split(pretok, at, PRETOK_PUNCTUATION,
			  json_get(at->json, "behavior") ? load_behavior(at) : PRETOK_ISOLATED,
			  false, NULL);
	else
		json_unsupported(at, "type", json_get(at->json, "type"));
}

int pretok_load(struct pretok *pretok, const cJSON *json, struct json_errors *errors)
{
	return json_each_step(json, "pre_tokenizer", "pretokenizers", load_step, pretok, errors);
}

void pretok_free(struct pretok *pretok)
{
	for (unsigned i = 0; i < pretok->n_steps; i++) {
		pretok_regex_free(pretok->steps[i].regex);
		free(pretok->steps[i].text);
	}
}
