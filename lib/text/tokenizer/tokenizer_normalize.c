// SPDX-License-Identifier: MIT
#include "tokenizer_normalize.h"
#include "array.h"
#include "text_unicode.h"

#include <errno.h>

/* No character has a longer decomposition (U+FDFA: 18). */
#define DECOMPOSITION_MAX 32

/* Runs of combining marks up to this length are sorted by insertion. */
#define SHORT_RUN 16

bool normalize_nfc_inert(uint32_t cp)
{
	if (cp < 0x300)
		return true;
	if (cp < 0x4E00)
		return (cp >= 0x388 && cp < 0x483) || (cp >= 0x48A && cp < 0x591) ||
		       (cp >= 0x5D0 && cp < 0x5EB) || (cp >= 0x620 && cp < 0x64B) ||
		       (cp >= 0xE01 && cp < 0xE38) || (cp >= 0x2010 && cp < 0x20D0) ||
		       (cp >= 0x2190 && cp < 0x2329) || (cp >= 0x2460 && cp < 0x2ADC) ||
		       (cp >= 0x3000 && cp < 0x302A) || (cp >= 0x3041 && cp < 0x3099) ||
		       (cp >= 0x309B && cp < 0x4E00);
	return cp < 0xA000 || (cp >= 0xAC00 && cp < 0xD7A4) || (cp >= 0xFF01 && cp < 0xFF9E) ||
	       (cp >= 0x1F000 && cp < 0x1FB00);
}

static bool inert(const struct normalize_step *step, uint32_t cp)
{
	if (cp < 0x80)
		return true;
	return step->compose && !step->compat && normalize_nfc_inert(cp);
}

static unsigned combining_class(int32_t cp)
{
	return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class & 0xFF;
}

/* Sorts @n marks by combining class, stably, in O(n). */
static int sort_marks(struct normalize_run *run, int32_t *marks, size_t n)
{
	size_t starts[256] = {0}, sum = 0;

	if (n <= SHORT_RUN) {
		for (size_t i = 1; i < n; i++) {
			int32_t mark = marks[i];
			unsigned class = combining_class(mark);
			size_t at = i;

			for (; at && combining_class(marks[at - 1]) > class; at--)
				marks[at] = marks[at - 1];
			marks[at] = mark;
		}
		return 0;
	}
	if (!array_grow(&run->sorted, &run->n_sorted, n, sizeof(*run->sorted)))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		starts[combining_class(marks[i])]++;
	for (size_t i = 0; i < 256; i++) {
		size_t count = starts[i];

		starts[i] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n; i++)
		run->sorted[starts[combining_class(marks[i])]++] = marks[i];
	memcpy(marks, run->sorted, n * sizeof(*marks));
	return 0;
}

static int order_canonically(struct normalize_run *run, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t end = i;
		int ret;

		while (end < n && combining_class(run->cps[end]))
			end++;
		ret = end - i > 1 ? sort_marks(run, run->cps + i, end - i) : 0;
		if (ret)
			return ret;
		i = end + 1;
	}
	return 0;
}

/*
 * Composes the @n characters of run->cps and returns how many remain, or a negative value. U+11A7,
 * which never composes, begins a new text each time: utf8proc takes it for the final consonant
 * "none" of the syllable before it and drops it.
 */
static utf8proc_ssize_t compose(struct normalize_run *run, size_t n)
{
	size_t used = 0;

	for (size_t start = 0, end; start < n; start = end) {
		utf8proc_ssize_t made;

		for (end = start + 1; end < n && run->cps[end] != 0x11A7;)
			end++;
		made = utf8proc_normalize_utf32(run->cps + start, (utf8proc_ssize_t)(end - start),
						UTF8PROC_STABLE | UTF8PROC_COMPOSE);
		if (made < 0)
			return made;
		memmove(run->cps + used, run->cps + start, (size_t)made * sizeof(*run->cps));
		used += (size_t)made;
	}
	return (utf8proc_ssize_t)used;
}

/* Normalises @len bytes between inert characters and appends them to @out. */
static int normalize_region(const struct normalize_step *step, struct normalize_run *run,
			    const char *text, size_t len, struct text_buf *out)
{
	int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (step->compat ? UTF8PROC_COMPAT : 0);
	utf8proc_ssize_t n = 0;
	int boundclass = 0, ret;
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		uint32_t cp = utf8_decode((const uint8_t *)text + i, &size);
		utf8proc_ssize_t made;

		if (!array_grow(&run->cps, &run->n_cps, (size_t)n + DECOMPOSITION_MAX,
				sizeof(*run->cps)))
			return -ENOMEM;
		made = utf8proc_decompose_char((utf8proc_int32_t)cp, run->cps + n,
					       DECOMPOSITION_MAX, options, &boundclass);
		if (made < 0 || made > DECOMPOSITION_MAX)
			return -EOVERFLOW;
		n += made;
	}
	ret = order_canonically(run, (size_t)n);
	if (ret)
		return ret;
	if (step->compose)
		n = compose(run, (size_t)n);
	if (n < 0 || !text_buf_reserve(out, (size_t)n * 4))
		return -ENOMEM;
	for (utf8proc_ssize_t i = 0; i < n; i++)
		out->len += utf8_encode((uint32_t)run->cps[i], (uint8_t *)out->data + out->len);
	return 0;
}

static int unicode_step(const struct normalize_step *step, struct normalize_run *run,
			const char *text, size_t len, struct text_buf *out)
{
	size_t copied = 0, base = 0; /* base: the last inert character's start */
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		uint32_t cp = utf8_decode((const uint8_t *)text + i, &size);
		int ret;

		if (inert(step, cp)) {
			base = i;
			continue;
		}
		for (i += size; i < len; i += size) {
			cp = utf8_decode((const uint8_t *)text + i, &size);
			if (inert(step, cp))
				break;
		}
		if (!text_buf_add(out, text + copied, base - copied))
			return -ENOMEM;
		ret = normalize_region(step, run, text + base, i - base, out);
		if (ret)
			return ret;
		copied = base = i;
		size = 0;
	}
	return text_buf_add(out, text + copied, len - copied) ? 0 : -ENOMEM;
}

static bool all_inert(const struct normalize_step *step, const char *text, size_t len)
{
	uint64_t word;
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		if (len - i >= 8) {
			memcpy(&word, text + i, 8);
			if (!(word & 0x8080808080808080ull)) {
				size = 8;
				continue;
			}
		}
		if (!inert(step, utf8_decode((const uint8_t *)text + i, &size)))
			return false;
	}
	return true;
}

static int replace_step(const struct normalize_step *step, struct normalize_run *run,
			const char *text, size_t len, struct text_buf *out)
{
	size_t pattern_len = step->pattern ? strlen(step->pattern) : 0;
	size_t done = 0, from = 0, start, end;

	while (from <= len) {
		const char *hit;
		int found;

		if (step->regex) {
			found = pretok_regex_find(step->regex, &run->match, text, len, from, &start,
						  &end);
			if (found < 0)
				return found;
		} else {
			hit = memmem(text + from, len - from, step->pattern, pattern_len);
			found = hit != NULL;
			start = hit ? (size_t)(hit - text) : 0;
			end = start + pattern_len;
		}
		if (!found)
			break;
		if (start == end && start && start == done) {
			/* An empty match directly after another one does not count. */
			if (start == len)
				break;
			from = start + utf8_lead_len((uint8_t)text[start]);
			continue;
		}
		if (!text_buf_add(out, text + done, start - done) ||
		    !text_buf_add_string(out, step->text))
			return -ENOMEM;
		done = end;
		from = end > start ? end
				   : end + (end < len ? utf8_lead_len((uint8_t)text[end]) : 1);
	}
	return text_buf_add(out, text + done, len - done) ? 0 : -ENOMEM;
}

static int lowercase_step(const char *text, size_t len, struct text_buf *out)
{
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		uint32_t cp = utf8_decode((const uint8_t *)text + i, &size);

		if (!text_buf_reserve(out, 4))
			return -ENOMEM;
		/* The only capital letter whose lower case has two characters. */
		if (cp == 0x130) {
			if (!text_buf_add(out, "i\xCC\x87", 3))
				return -ENOMEM;
			continue;
		}
		cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
		out->len += utf8_encode(cp, (uint8_t *)out->data + out->len);
	}
	return 0;
}

static void strip_step(const struct normalize_step *step, const char **text, size_t *len)
{
	const uint8_t *s = (const uint8_t *)*text;
	size_t start = 0, end = *len;
	unsigned size;

	while (step->left && start < end && unicode_is_space(utf8_decode(s + start, &size)))
		start += size;
	while (step->right && end > start) {
		size_t last = end - 1;

		while ((s[last] & 0xC0) == 0x80)
			last--;
		if (!unicode_is_space(utf8_decode(s + last, &size)))
			break;
		end = last;
	}
	*text += start;
	*len = end - start;
}

static int run_step(const struct normalize_step *step, struct normalize_run *run, const char *text,
		    size_t len, struct text_buf *out)
{
	switch (step->kind) {
	case NORMALIZE_UNICODE: return unicode_step(step, run, text, len, out);
	case NORMALIZE_REPLACE: return replace_step(step, run, text, len, out);
	case NORMALIZE_LOWERCASE: return lowercase_step(text, len, out);
	default:
		return text_buf_add_string(out, step->text) && text_buf_add(out, text, len)
			       ? 0
			       : -ENOMEM;
	}
}

int normalize(const struct normalizer *normalizer, struct normalize_run *run, const char *text,
	      size_t len, const char **ret_text, size_t *ret_len)
{
	unsigned which = 0;

	for (unsigned i = 0; i < normalizer->n_steps && len; i++) {
		const struct normalize_step *step = &normalizer->steps[i];
		struct text_buf *out = &run->bufs[which];
		int ret;

		if (step->kind == NORMALIZE_STRIP) {
			strip_step(step, &text, &len);
			continue;
		}
		if (step->kind == NORMALIZE_UNICODE && all_inert(step, text, len))
			continue;
		out->len = 0;
		ret = run_step(step, run, text, len, out);
		if (ret)
			return ret;
		text = out->data;
		len = out->len;
		which ^= 1;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

void normalize_run_free(struct normalize_run *run)
{
	free(run->bufs[0].data);
	free(run->bufs[1].data);
	pretok_match_free(&run->match);
	free(run->cps);
	free(run->sorted);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void load_replace(struct normalize_step *step, const struct json_at *at)
{
	char why[160] = "";
	bool is_regex;
	const char *pattern = json_get_pattern(at, &is_regex);
	int ret;

	step->text = json_copy(at->errors, json_get_string(at, "content"));
	if (!is_regex) {
		step->pattern = json_copy(at->errors, pattern);
		return;
	}
	ret = pretok_regex_new(pattern, &step->regex, why, sizeof(why));
	if (ret == -EINVAL)
		json_fail(at->errors, "%s.pattern.Regex: %s", at->path, why);
	else if (ret)
		json_no_memory(at->errors);
}

static void load_step(void *arg, const struct json_at *at, const char *type)
{
	struct normalizer *normalizer = arg;
	struct normalize_step *step;

	if (normalizer->n_steps == NORMALIZE_MAX_STEPS) {
		json_fail(at->errors, "%s: more than %d steps", at->path, NORMALIZE_MAX_STEPS);
		return;
	}
	step = &normalizer->steps[normalizer->n_steps++];
	if (!strcmp(type, "NFC") || !strcmp(type, "NFD") || !strcmp(type, "NFKC") ||
	    !strcmp(type, "NFKD")) {
		step->kind = NORMALIZE_UNICODE;
		step->compat = type[2] == 'K';
		step->compose = type[strlen(type) - 1] == 'C';
	} else if (!strcmp(type, "Prepend")) {
		step->kind = NORMALIZE_PREPEND;
		step->text = json_copy(at->errors, json_get_string(at, "prepend"));
	} else if (!strcmp(type, "Replace")) {
		step->kind = NORMALIZE_REPLACE;
		load_replace(step, at);
	} else if (!strcmp(type, "Strip")) {
		step->kind = NORMALIZE_STRIP;
		step->left = json_get_bool(at, "strip_left", true);
		step->right = json_get_bool(at, "strip_right", true);
	} else {
		step->kind = NORMALIZE_LOWERCASE;
		if (strcmp(type, "Lowercase"))
			json_unsupported(at, "type", json_get(at->json, "type"));
	}
}

int normalizer_load(struct normalizer *normalizer, const cJSON *json, struct json_errors *errors)
{
	return json_each_step(json, "normalizer", "normalizers", load_step, normalizer, errors);
}

void normalizer_free(struct normalizer *normalizer)
{
	for (unsigned i = 0; i < normalizer->n_steps; i++) {
		pretok_regex_free(normalizer->steps[i].regex);
		free(normalizer->steps[i].pattern);
		free(normalizer->steps[i].text);
	}
}
