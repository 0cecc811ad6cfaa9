// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "duration.h"
#include "number.h"
#include "options.h"

static bool parse_flag(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	(void)row;
	(void)err;
	(void)errlen;
	*(bool *)member = !text || strcmp(text, "no") != 0;
	return true;
}

static bool parse_moot(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	(void)text;
	return parse_flag(row, NULL, member, err, errlen);
}

static bool parse_bytes(const struct option_row *row, const char *text, void *member, char *err,
			size_t errlen)
{
	uint64_t n;

	if (!number_parse_size(text, row->max, &n) || n < row->min) {
		snprintf(err, errlen, "--%s must be a number between %llu and %llu, not %.200s",
			 row->name, (unsigned long long)row->min, (unsigned long long)row->max,
			 text);
		return false;
	}
	*(uint64_t *)member = n;
	return true;
}

static bool parse_unsigned(const struct option_row *row, const char *text, void *member, char *err,
			   size_t errlen)
{
	uint64_t n;

	if (!parse_bytes(row, text, &n, err, errlen))
		return false;
	*(unsigned *)member = (unsigned)n;
	return true;
}

static bool parse_octal(const struct option_row *row, const char *text, void *member, char *err,
			size_t errlen)
{
	char *end;
	unsigned long n = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || n > row->max) {
		snprintf(err, errlen, "--%s must be an octal number up to 0%llo, not %.200s",
			 row->name, (unsigned long long)row->max, text);
		return false;
	}
	*(mode_t *)member = (mode_t)n;
	return true;
}

static bool parse_seconds(const struct option_row *row, const char *text, void *member, char *err,
			  size_t errlen)
{
	if (duration_parse(text, member))
		return true;
	snprintf(err, errlen, "--%s must be seconds, a time like 5m or 2h, or -1, not %.200s",
		 row->name, text);
	return false;
}

/* Whether the word is one of those in "a|b". */
static bool is_one_of(const char *word, const char *names)
{
	size_t len = strlen(word);

	for (const char *name = names; name; name = strchr(name, '|')) {
		name += *name == '|';
		if (!strncmp(name, word, len) && (!name[len] || name[len] == '|'))
			return len && !memchr(word, '|', len);
	}
	return false;
}

/* "error, warning, info or debug" */
static void join_words(const char *const *words, char *ret, size_t len)
{
	char joined[256] = "";
	const char *last;
	size_t at = 0;

	for (unsigned i = 0; words[i] && at < sizeof(joined); i++)
		at += (size_t)snprintf(joined + at, sizeof(joined) - at, "%s%s", i ? "|" : "",
				       words[i]);
	last = strrchr(joined, '|');
	at = 0;
	for (const char *c = joined; *c && at < len; c++)
		at += (size_t)snprintf(ret + at, len - at,
				       *c != '|'   ? "%c"
				       : c == last ? " or "
						   : ", ",
				       *c);
}

static bool find_word(const struct option_row *row, const char *text, unsigned *ret, char *err,
		      size_t errlen)
{
	char all[512];

	for (unsigned i = 0; row->words[i]; i++) {
		if (is_one_of(text, row->words[i])) {
			*ret = i;
			return true;
		}
	}
	join_words(row->words, all, sizeof(all));
	snprintf(err, errlen, "--%s must be %s, not %.200s", row->name, all, text);
	return false;
}

static bool parse_choice(const struct option_row *row, const char *text, void *member, char *err,
			 size_t errlen)
{
	return find_word(row, text, member, err, errlen);
}

static bool copy_text(const void *from, void *to)
{
	const char *text = *(char *const *)from;
	char *copy = text ? strdup(text) : NULL;

	*(char **)to = copy;
	return !text || copy;
}

static void clear_text(void *member)
{
	free(*(char **)member);
	*(char **)member = NULL;
}

static bool parse_text(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	unsigned which;
	char *copy;

	if (row->words && !find_word(row, text, &which, err, errlen))
		return false;
	if (!copy_text(&text, &copy)) {
		snprintf(err, errlen, "out of memory");
		return false;
	}
	clear_text(member);
	*(char **)member = copy;
	return true;
}

static bool same_text(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return x && y ? !strcmp(x, y) : x == y;
}

/* ---- formatting ------------------------------------------------------------------------------ */

static struct option_shown show_flag(const struct option_row *row, const void *member)
{
	(void)row;
	return (struct option_shown){OPTION_SHOWS_FLAG, .number = *(const bool *)member};
}

static struct option_shown show_unsigned(const struct option_row *row, const void *member)
{
	(void)row;
	return (struct option_shown){OPTION_SHOWS_NUMBER, .number = *(const unsigned *)member};
}

static struct option_shown show_64(const struct option_row *row, const void *member)
{
	(void)row;
	return (struct option_shown){OPTION_SHOWS_NUMBER, .number = *(const int64_t *)member};
}

static struct option_shown show_text(const struct option_row *row, const void *member)
{
	const char *text = *(char *const *)member;

	(void)row;
	if (!text)
		return (struct option_shown){0};
	return (struct option_shown){OPTION_SHOWS_TEXT, .text = text, .len = strlen(text)};
}

static struct option_shown show_choice(const struct option_row *row, const void *member)
{
	const char *word = row->words[*(const unsigned *)member];

	return (struct option_shown){OPTION_SHOWS_TEXT, .text = word, .len = strcspn(word, "|")};
}

const struct option_type option_action = {0};
const struct option_type option_value = {.takes_value = true};
const struct option_type option_flag = {
	.negatable = true,
	.size = sizeof(bool),
	.parse = parse_flag,
	.show = show_flag,
};
const struct option_type option_ignored = {
	.negatable = true,
	.size = sizeof(bool),
	.parse = parse_moot,
};
const struct option_type option_unsigned = {
	.takes_value = true,
	.size = sizeof(unsigned),
	.parse = parse_unsigned,
	.show = show_unsigned,
};
const struct option_type option_bytes = {
	.takes_value = true,
	.size = sizeof(uint64_t),
	.parse = parse_bytes,
	.show = show_64,
};
const struct option_type option_octal = {
	.takes_value = true,
	.size = sizeof(mode_t),
	.parse = parse_octal,
};
const struct option_type option_seconds = {
	.takes_value = true,
	.size = sizeof(int64_t),
	.parse = parse_seconds,
	.show = show_64,
};
const struct option_type option_text = {
	.takes_value = true,
	.size = sizeof(char *),
	.parse = parse_text,
	.same = same_text,
	.copy = copy_text,
	.clear = clear_text,
	.show = show_text,
};
const struct option_type option_choice = {
	.takes_value = true,
	.size = sizeof(unsigned),
	.parse = parse_choice,
	.show = show_choice,
};
