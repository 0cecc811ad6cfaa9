// SPDX-License-Identifier: MIT
/* Options from the command line and from files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options.h"
#include "tool_line.h"
#include "utf8.h"

/* What true or false says of a switch, as its text; false: it is neither. */
static bool read_switch(const char *word, const char **ret_text)
{
	bool on = !strcasecmp(word, "true");

	if (!on && strcasecmp(word, "false") != 0)
		return false;
	*ret_text = on ? NULL : "no";
	return true;
}

/* The value of an option that takes none: a switch without "no-" may have true or false. */
static bool set_switch(struct option_given *given, const char *value)
{
	return given->row->type->negatable && !given->text && read_switch(value, &given->text);
}

/* Says that @what takes no value; @value is the one that it has. */
static void refuse_value(const struct option_given *given, const char *what, const char *value,
			 char *err, size_t errlen)
{
	if (given->row->type->negatable && !given->text)
		snprintf(err, errlen, "%s takes no value but true or false, not '%.200s'", what,
			 value);
	else
		snprintf(err, errlen, "%s takes no value", what);
}

int options_next(const struct option_table *t, int argc, char **argv, int *at,
		 struct option_given *ret, char *err, size_t errlen)
{
	const char *arg, *equals;
	char name[OPTIONS_NAME_MAX], option[OPTIONS_NAME_MAX + 2];
	struct option_given given = {0};

	if (*at >= argc)
		return 0;
	arg = argv[(*at)++];
	if (!strcmp(arg, "-h"))
		arg = "--help";
	if (!strcmp(arg, "-V"))
		arg = "--version";
	if (strncmp(arg, "--", 2) != 0 || !arg[2]) {
		if (*arg == '-')
			snprintf(err, errlen, "unknown option %.200s", arg);
		else
			snprintf(err, errlen, "unexpected argument '%.200s'%s", arg, t->words);
		return -1;
	}
	arg += 2;
	equals = strchr(arg, '=');
	if (equals && (size_t)(equals - arg) < sizeof(name)) {
		snprintf(name, sizeof(name), "%.*s", (int)(equals - arg), arg);
		arg = name;
	}
	given.row = options_find_begun(t, arg, &given.text, err, errlen);
	if (!given.row)
		return -1;
	if (!given.row->type->takes_value && equals && !set_switch(&given, equals + 1)) {
		snprintf(option, sizeof(option), "--%s", arg);
		refuse_value(&given, option, equals + 1, err, errlen);
		return -1;
	}
	/* Nothing else may stand there. */
	if (!given.row->type->takes_value && !equals && *at < argc)
		*at += set_switch(&given, argv[*at]);
	if (given.row->type->takes_value) {
		given.text = equals ? equals + 1 : *at < argc ? argv[(*at)++] : NULL;
		snprintf(option, sizeof(option), "--%s", given.row->name);
		if (!equals && !tool_is_value(option, "hV", given.text, err, errlen))
			return -1;
		if (!*given.text) {
			snprintf(err, errlen, "%s: the value is empty", option);
			return -1;
		}
	}
	*ret = given;
	return 1;
}

static char *trim(char *s)
{
	size_t len;

	s += strspn(s, " \t\r\n");
	for (len = strlen(s); len && strchr(" \t\r\n", s[len - 1]); len--)
		;
	s[len] = 0;
	return s;
}

/* 1: an option; 0: the line is empty or a comment; -1: an error. */
static int read_line(const struct option_table *t, char *line, struct option_given *ret, char *err,
		     size_t errlen)
{
	char *name = trim(line), *value, near[OPTIONS_NAME_MAX], quoted[OPTIONS_NAME_MAX + 2];

	if (!*name || *name == '#')
		return 0;
	value = strchr(name, '=');
	if (value)
		*value++ = 0;
	name = trim(name);
	value = value ? trim(value) : NULL;
	ret->row = options_find(t, name, &ret->text);
	if (!ret->row && options_nearest(t, name, near))
		snprintf(err, errlen, "unknown setting '%s'; did you mean '%s'?", name, near);
	else if (!ret->row)
		snprintf(err, errlen, "unknown setting '%.200s'", name);
	else if (ret->row->type->takes_value && (!value || !*value))
		snprintf(err, errlen, "'%s' has no value", name);
	else if (!ret->row->type->takes_value && value && !set_switch(ret, value)) {
		snprintf(quoted, sizeof(quoted), "'%.*s'", OPTIONS_NAME_MAX - 1, name);
		refuse_value(ret, quoted, value, err, errlen);
	} else {
		if (value && ret->row->type->takes_value)
			ret->text = value;
		return 1;
	}
	return -1;
}

static bool read_lines(const struct option_table *t, const char *path, char *text, size_t len,
		       bool (*take)(void *arg, const struct option_given *given, char *err,
				    size_t errlen),
		       void *arg, unsigned *line, char *err, size_t errlen)
{
	char *end = text + len;

	text += utf8_mark(text, len);
	for (*line = 1; text < end; (*line)++) {
		char *newline = memchr(text, '\n', (size_t)(end - text));
		char *next = newline ? newline + 1 : end;
		size_t size = (size_t)(next - text) - (newline != NULL);
		struct option_given given = {.file = path, .line = *line};
		int r;

		if (size > OPTIONS_LINE_MAX) {
			snprintf(err, errlen, "the line has %zu bytes, the limit is %d", size,
				 OPTIONS_LINE_MAX);
			return false;
		}
		if (memchr(text, 0, size)) {
			snprintf(err, errlen, "the line contains a NUL byte");
			return false;
		}
		text[size] = 0;
		r = read_line(t, text, &given, err, errlen);
		if (r < 0 || (r && !take(arg, &given, err, errlen)))
			return false;
		text = next;
	}
	return true;
}

/* Reads the whole file, plus one spare byte; NULL: see @err. */
static char *read_all(const char *path, size_t *ret_len, char *err, size_t errlen)
{
	FILE *file = fopen(path, "re");
	char *text = malloc(OPTIONS_FILE_MAX + 2);

	if (file && text) {
		*ret_len = fread(text, 1, OPTIONS_FILE_MAX + 1, file);
		if (*ret_len <= OPTIONS_FILE_MAX && !ferror(file)) {
			fclose(file);
			return text;
		}
	}
	if (file && text && !ferror(file))
		snprintf(err, errlen, "%.500s has more than %u bytes", path, OPTIONS_FILE_MAX);
	else
		snprintf(err, errlen, "cannot read %.500s: %s", path, strerror(errno));
	if (file)
		fclose(file);
	free(text);
	return NULL;
}

bool options_read_file(const struct option_table *t, const char *path,
		       bool (*take)(void *arg, const struct option_given *given, char *err,
				    size_t errlen),
		       void *arg, char *err, size_t errlen)
{
	char why[OPTIONS_ERROR / 2];
	unsigned line;
	size_t len;
	char *text = read_all(path, &len, err, errlen);
	bool ok;

	if (!text)
		return false;
	ok = read_lines(t, path, text, len, take, arg, &line, why, sizeof(why));
	if (!ok)
		snprintf(err, errlen, "%.400s, line %u: %s", path, line, why);
	free(text);
	return ok;
}
