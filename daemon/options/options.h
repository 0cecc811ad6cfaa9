/* SPDX-License-Identifier: MIT */
/*
 * Options as a table: a row has an option's names, type, scope, offset in a struct, range, effect
 * of a reload, and help. The command line, option files, --help, defaults, copies and the
 * comparison for a reload are all derived from the rows.
 *
 * Names are written with dashes in the table; users may type underscores instead. A flag NAME also
 * has --no-NAME, and may be followed by true or false: --NAME false, --NAME=false, and in files
 * NAME = false.
 *
 * Functions return false with a message in @err that names the invalid value and what is allowed.
 * Threads: pure functions, except options_help().
 */
#ifndef TXDA_OPTIONS_H
#define TXDA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_NAME_MAX 48   /* of a name, with "no-" and the NUL */
#define OPTIONS_LINE_MAX 4096 /* bytes of a line of a file */
#define OPTIONS_FILE_MAX (1u << 20)
#define OPTIONS_ERROR	 1024 /* room for messages */

struct option_row;

/* Formats a value. @text is the member's, the row's, or static. */
struct option_shown {
	enum { OPTION_SHOWS_NOTHING, OPTION_SHOWS_FLAG, OPTION_SHOWS_NUMBER, OPTION_SHOWS_TEXT } as;
	int64_t number; /* a flag's: 0 or 1 */
	const char *text;
	size_t len;
};

/* Operations on values. @text of a flag: NULL is on, "no" is off. */
struct option_type {
	bool takes_value, negatable;
	size_t size; /* size of the member; 0: handled by the row's own functions */
	bool (*parse)(const struct option_row *row, const char *text, void *member, char *err,
		      size_t errlen);
	/* NULL: bytes are compared and copied, nothing is to be freed. */
	bool (*same)(const void *a, const void *b);
	bool (*copy)(const void *from, void *to);
	void (*clear)(void *member);
	/* NULL: it is not displayed. */
	struct option_shown (*show)(const struct option_row *row, const void *member);
};

extern const struct option_type option_action;	 /* no value, no member */
extern const struct option_type option_value;	 /* a value, no member: handled by the caller */
extern const struct option_type option_flag;	 /* bool */
extern const struct option_type option_ignored;	 /* bool without effect: .note says why */
extern const struct option_type option_unsigned; /* unsigned, from min to max; K, M, G */
extern const struct option_type option_bytes;	 /* uint64_t, likewise */
extern const struct option_type option_octal;	 /* mode_t, up to max */
extern const struct option_type option_seconds;	 /* int64_t: 90, 5m, 2h; -1: forever */
extern const struct option_type option_text;	 /* char *; one of .words if there are any */
extern const struct option_type option_choice;	 /* unsigned: index into .words */

enum option_scope {
	OPTION_HEADING,	   /* not an option: .help is the heading of a section of --help */
	OPTION_DAEMON,	   /* applies to the daemon */
	OPTION_EACH_MODEL, /* applies to the preceding model; before the first one, to all */
	OPTION_ONE_MODEL,  /* applies to the preceding model, which is required */
	OPTION_COMMAND,	   /* on the command line only, not in files */
};

/* The effect of a change when the settings are reloaded. */
enum option_reload {
	OPTION_RESTART,	   /* none: it takes a restart */
	OPTION_AT_ONCE,	   /* it applies from then on */
	OPTION_LOADS_ANEW, /* the model is reloaded */
};

struct option_row {
	const char *name;
	const struct option_type *type;
	enum option_scope scope;
	size_t offset, size; /* offset of the member, in the struct of the scope */
	enum option_reload reload;
	const char *metavar; /* NULL: the words */
	const char *help;
	const char *initial;	  /* NULL: zero, and --help shows no default */
	const char *aliases;	  /* separated by spaces, or NULL */
	uint64_t min, max;	  /* of numbers */
	const char *const *words; /* up to NULL; "a|b" in one means the same by two names */
	const char *note;	  /* for options without effect: why */
};

struct option_table {
	const char *program, *about; /* first line of --help */
	const char *words;	     /* follows the message about an argument that is no option */
	const struct option_row *rows;
	unsigned n;
};

/* ---- rows ---- */

/* The row of that name; NULL: there is none. *@ret_text is "no" for --no-NAME, else NULL. */
const struct option_row *options_find(const struct option_table *t, const char *name,
				      const char **ret_text);
/* The same, but an unambiguous prefix is enough, as with getopt_long(). */
const struct option_row *options_find_begun(const struct option_table *t, const char *name,
					    const char **ret_text, char *err, size_t errlen);

/* The name most similar to @name, if any is similar; @ret[OPTIONS_NAME_MAX]. */
bool options_nearest(const struct option_table *t, const char *name, char *ret);

/* Each operates on the member of @base that belongs to the row. */
bool option_set(const struct option_row *row, void *base, const char *text, char *err,
		size_t errlen);
bool option_same(const struct option_row *row, const void *a, const void *b);
bool option_copy(const struct option_row *row, const void *from, void *to);
void option_clear(const struct option_row *row, void *base);
struct option_shown option_show(const struct option_row *row, const void *base);

/* The same for all rows of a scope; false: out of memory. Copies must be cleared in any case. */
bool options_initial(const struct option_table *t, enum option_scope scope, void *base, char *err,
		     size_t errlen);
bool options_copy(const struct option_table *t, enum option_scope scope, const void *from,
		  void *to);
void options_clear(const struct option_table *t, enum option_scope scope, void *base);

/* ---- where options come from ---- */

/* One option that was given. @text: its value, or as above for flags. */
struct option_given {
	const struct option_row *row;
	const char *text;
	const char *file; /* NULL: the command line */
	unsigned line;
};

/*
 * The next option of the command line; *@at starts at 1. 1: an option; 0: the end; -1: an error,
 * and the argument is skipped.
 */
int options_next(const struct option_table *t, int argc, char **argv, int *at,
		 struct option_given *ret, char *err, size_t errlen);

/*
 * Reads a file: one option per line, as "NAME = VALUE" or "NAME"; '#' starts a comment line. @take
 * gets each; messages name the file and line.
 */
bool options_read_file(const struct option_table *t, const char *path,
		       bool (*take)(void *arg, const struct option_given *given, char *err,
				    size_t errlen),
		       void *arg, char *err, size_t errlen);

void options_help(const struct option_table *t, FILE *out);

#endif /* TXDA_OPTIONS_H */
