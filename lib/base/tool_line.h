/* SPDX-License-Identifier: MIT */
/*
 * The command line of a program. Every program has --help, --version, -h and -V, takes a long option
 * by an unambiguous beginning of its name, too, with its value after '=' or in the next argument, and
 * reports errors on stderr in one form:
 *
 *	txda-smi: unknown option --josn; did you mean --json?
 *	Try 'txda-smi --help'.
 *
 * For main programs:
 *
 *	static struct tool_line line = TOOL_LINE("txda-x", usage, options, "in");
 *
 *	while ((id = tool_option(&line, argc, argv)) > 0)
 *		take(id, line.value);
 *	if (id < 0)
 *		return line.status;
 *
 * Threads: each struct is one thread's.
 */
#ifndef TXDA_BASE_TOOL_LINE_H
#define TXDA_BASE_TOOL_LINE_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

#include "nearest.h"

#define TOOL_USAGE 2 /* exit status of a wrong command line */

/* In an option's .has_arg: a value that may be empty. With required_argument it may not. */
#define TOOL_TEXT optional_argument

#define TOOL_OPTIONS_END                                                                           \
	{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'},                     \
	{                                                                                          \
		0                                                                                  \
	}

#define TOOL_LINE(program, usage, options, letters)                                                \
	{                                                                                          \
		program, TXDA_VERSION, usage, options, letters                                     \
	}

struct tool_line {
	const char *program; /* with the mode, as in "txda-bench serve" */
	const char *version;
	const char *usage;	      /* all of --help */
	const struct option *options; /* up to TOOL_OPTIONS_END; .val is the id, from 1 on */
	const char *letters;	      /* ids that are short options, too, besides h and V */
	bool command;		      /* the first word ends the options: it begins a command */

	/* Results. */
	const char *name; /* the last option's */
	char *value;	  /* its value; NULL: it has none */
	char **words;	  /* of argv that are no options, which is changed; NULL at the end */
	int n_words;
	int status; /* exit status after -1 */

	char *cluster; /* private: letters that are left of the last argument */
	int at;
	bool ended;
};

/* The next option's id; 0: no more, and the words are complete; -1: end with line.status. */
int tool_option(struct tool_line *line, int argc, char **argv);

/* Reports what is wrong with the command line; returns TOOL_USAGE, as line.status is then. */
int tool_refuse(struct tool_line *line, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The last option's value: a whole number from @min to @max; the index of one of @words, up to NULL.
 * False, -1: it is none, which is reported.
 */
bool tool_number(struct tool_line *line, unsigned min, unsigned max, unsigned *ret);
int tool_word(struct tool_line *line, const char *const *words);

/* ---- parts, for other tables of options ---- */

/* Finds the option of a given name: the exact one, or the only one that begins so. */
struct tool_search {
	const char *word; /* without dashes */
	struct nearest near;
	int found; /* id; -1: none */
	bool exact, ambiguous;
	char name[NEAREST_MAX + 1], other[NEAREST_MAX + 1], similar[NEAREST_MAX + 1];
};

struct tool_search tool_search(const char *word);
void tool_search_take(struct tool_search *s, const char *name, int id);
/* The id; -1: @err says that there is none, or more than one. */
int tool_search_end(const struct tool_search *s, char *err, size_t errlen);

/*
 * Whether @next can be the value of @option, which has none after '=': it is not NULL, and no option
 * itself. @letters: the short ones. Else @err says so.
 */
bool tool_is_value(const char *option, const char *letters, const char *next, char *err,
		   size_t errlen);

#endif
