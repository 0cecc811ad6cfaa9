// SPDX-License-Identifier: MIT
#include "tool_line.h"
#include "number.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR 1024 /* room for messages */

/* ---- parts ----------------------------------------------------------------------------------- */

struct tool_search tool_search(const char *word)
{
	return (struct tool_search){.word = word, .near = nearest_to(word), .found = -1};
}

void tool_search_take(struct tool_search *s, const char *name, int id)
{
	bool exact = !strcmp(name, s->word);

	if (nearest_take(&s->near, name))
		snprintf(s->similar, sizeof(s->similar), "%s", name);
	if (s->exact || !*s->word || strncmp(name, s->word, strlen(s->word)) != 0)
		return;
	if (!exact && s->found >= 0) {
		s->ambiguous |= s->found != id;
		snprintf(s->other, sizeof(s->other), "%s", name);
		return;
	}
	s->exact = exact;
	s->found = id;
	snprintf(s->name, sizeof(s->name), "%s", name);
}

int tool_search_end(const struct tool_search *s, char *err, size_t errlen)
{
	if (s->exact || (s->found >= 0 && !s->ambiguous))
		return s->found;
	if (s->ambiguous)
		snprintf(err, errlen, "--%.200s is ambiguous: --%s or --%s", s->word, s->name,
			 s->other);
	else if (*s->similar)
		snprintf(err, errlen, "unknown option --%.200s; did you mean --%s?", s->word,
			 s->similar);
	else
		snprintf(err, errlen, "unknown option --%.200s", s->word);
	return -1;
}

bool tool_is_value(const char *option, const char *letters, const char *next, char *err,
		   size_t errlen)
{
	bool is_long = next && !strncmp(next, "--", 2) && isalpha((unsigned char)next[2]);
	bool is_short = next && next[0] == '-' && next[1] && !next[2] && strchr(letters, next[1]);

	if (next && !is_long && !is_short)
		return true;
	if (next)
		snprintf(err, errlen, "%s needs a value (if it is '%.200s': %s%s%.200s)", option,
			 next, option, option[1] == '-' ? "=" : "", next);
	else
		snprintf(err, errlen, "%s needs a value", option);
	return false;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* The value is line->value or, if that is NULL, the next argument. Returns as tool_option(). */
static int take_value(struct tool_line *line, int argc, char **argv, const struct option *o,
		      const char *option)
{
	char letters[80], err[ERROR];

	snprintf(letters, sizeof(letters), "hV%s", line->letters);
	snprintf(err, sizeof(err), "%s: the value is empty", option);
	if (!line->value) {
		line->value = line->at < argc ? argv[line->at++] : NULL;
		if (!tool_is_value(option, letters, line->value, err, sizeof(err)))
			line->value = NULL;
	}
	if (line->value && (*line->value || o->has_arg == TOOL_TEXT))
		return o->val;
	tool_refuse(line, "%s", err);
	return -1;
}

/* "NAME" or "NAME=VALUE", after the dashes. */
static int next_long(struct tool_line *line, int argc, char **argv, char *arg)
{
	char *equals = strchr(arg, '=');
	char *name = strndup(arg, equals ? (size_t)(equals - arg) : strlen(arg));
	struct tool_search s = tool_search(name ? name : "");
	const struct option *o = line->options;
	char err[ERROR], option[NEAREST_MAX + 3];
	int i;

	for (i = 0; o[i].name; i++)
		tool_search_take(&s, o[i].name, i);
	i = tool_search_end(&s, err, sizeof(err));
	free(name);
	if (i >= 0) {
		o += i;
		line->name = o->name;
		snprintf(option, sizeof(option), "--%s", o->name);
		line->value = equals ? equals + 1 : NULL;
		if (o->has_arg)
			return take_value(line, argc, argv, o, option);
		if (!equals)
			return o->val;
		snprintf(err, sizeof(err), "%s takes no value", option);
	}
	tool_refuse(line, "%s", err);
	return -1;
}

static int next_letter(struct tool_line *line, int argc, char **argv)
{
	const struct option *o = line->options;
	char *cluster = line->cluster++;
	const char option[] = {'-', *cluster, '\0'};
	bool known = strchr("hV", *cluster) || strchr(line->letters, *cluster);

	while (o->name && o->val != *cluster)
		o++;
	if (!known || !o->name) {
		for (o = line->options; o->name && strcmp(o->name, cluster) != 0;)
			o++;
		tool_refuse(line, "unknown option -%.200s%s%s%s", cluster,
			    o->name ? "; did you mean --" : "", o->name ? o->name : "",
			    o->name ? "?" : "");
		return -1;
	}
	line->name = o->name;
	line->value = NULL;
	if (!o->has_arg)
		return o->val;
	line->cluster = NULL;
	line->value = cluster[1] ? cluster + 1 : NULL;
	return take_value(line, argc, argv, o, option);
}

static int next_option(struct tool_line *line, int argc, char **argv)
{
	if (line->cluster && *line->cluster)
		return next_letter(line, argc, argv);
	line->at += !line->at;
	while (line->at < argc && !(line->command && line->ended)) {
		char *arg = argv[line->at++];

		if (line->ended || *arg != '-' || !arg[1]) {
			argv[++line->n_words] = arg;
			line->ended |= line->command;
		} else if (arg[1] != '-') {
			line->cluster = arg + 1;
			return next_letter(line, argc, argv);
		} else if (arg[2]) {
			return next_long(line, argc, argv, arg + 2);
		} else {
			line->ended = true;
		}
	}
	while (line->at < argc)
		argv[++line->n_words] = argv[line->at++];
	line->words = argv + 1;
	if (line->n_words + 1 < argc)
		line->words[line->n_words] = NULL;
	return 0;
}

int tool_option(struct tool_line *line, int argc, char **argv)
{
	int id = next_option(line, argc, argv);

	if (id == 'h')
		fputs(line->usage, stdout);
	else if (id == 'V')
		printf("%.*s %s\n", (int)strcspn(line->program, " "), line->program, line->version);
	else
		return id;
	line->status = EXIT_SUCCESS;
	return -1;
}

int tool_refuse(struct tool_line *line, const char *format, ...)
{
	char text[ERROR];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* What somebody else has given must not put control characters on a terminal. */
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7F)
			*c = '?';
	fprintf(stderr, "%.*s: %s\nTry '%s --help'.\n", (int)strcspn(line->program, " "),
		line->program, text, line->program);
	line->status = TOOL_USAGE;
	return TOOL_USAGE;
}

bool tool_number(struct tool_line *line, unsigned min, unsigned max, unsigned *ret)
{
	uint64_t value;

	if (number_parse(line->value, max, &value) && value >= min) {
		*ret = (unsigned)value;
		return true;
	}
	tool_refuse(line, "--%s %s: must be a number from %u to %u", line->name, line->value, min,
		    max);
	return false;
}

int tool_word(struct tool_line *line, const char *const *words)
{
	char all[ERROR / 2] = "";
	size_t n = 0;

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], line->value))
			return i;
		if (n < sizeof(all))
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s",
					      !i	     ? ""
					      : words[i + 1] ? ", "
							     : " or ",
					      words[i]);
	}
	tool_refuse(line, "--%s %s: must be %s", line->name, line->value, all);
	return -1;
}
