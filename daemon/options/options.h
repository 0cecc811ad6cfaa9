/* SPDX-License-Identifier: MIT */
/*
 * Options as a table: one row tells an option's names, type, scope, place in a struct, range, what
 * a reload does about it, and its help. The command line, option files, --help, defaults, copies
 * and the comparison of a reload all come from the rows.
 *
 * Names are written with dashes in the table; underscores in what people type are the same. A flag
 * NAME is also --no-NAME.
 *
 * Functions return false with a message in @err, which names the value at fault and what is
 * allowed. Threads: pure functions, but for options_help().
 */
#ifndef TXDA_OPTIONS_H
#define TXDA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_NAME_MAX 48   /* of a name, with "no-" and the end */
#define OPTIONS_LINE_MAX 4096 /* bytes of a line of a file */
#define OPTIONS_FILE_MAX (1u << 20)
#define OPTIONS_ERROR	 1024 /* room for messages */

struct option_row;

/* A value to be shown. @text is the member's, the row's, or static. */
struct option_shown {
	enum { OPTION_SHOWS_NOTHING, OPTION_SHOWS_FLAG, OPTION_SHOWS_NUMBER, OPTION_SHOWS_TEXT } as;
	int64_t number; /* a flag's: 0 or 1 */
	const char *text;
	size_t len;
};

/* Of values. @text of a flag: NULL is on, "no" is off. */
struct option_type {
	bool takes_value, negatable;
	size_t size; /* of the member; 0: the row's own business */
	bool (*parse)(const struct option_row *row, const char *text, void *member, char *err,
		      size_t errlen);
	/* NULL: bytes are compared and copied, nothing is to be freed. */
	bool (*same)(const void *a, const void *b);
	bool (*copy)(const void *from, void *to);
	void (*clear)(void *member);
	/* NULL: it is not shown. */
	struct option_shown (*show)(const struct option_row *row, const void *member);
};

extern const struct option_type option_action; /* no value, no member */
extern const struct option_type option_value;  /* a value, no member: the caller's business */
extern const struct option_type option_flag;   /* bool */
extern const struct option_type option_moot; /* bool: given, on or off; .note says why it is moot */
extern const struct option_type option_unsigned; /* unsigned, from min to max; K, M, G */
extern const struct option_type option_bytes;	 /* uint64_t, likewise */
extern const struct option_type option_octal;	 /* mode_t, up to max */
extern const struct option_type option_seconds;	 /* int64_t: 90, 5m, 2h; -1: for ever */
extern const struct option_type option_text;	 /* char *; one of .words if there are any */
extern const struct option_type option_choice;	 /* unsigned: which of .words */

enum option_scope {
	OPTION_HEADING,	   /* no option: .help begins a section of --help */
	OPTION_DAEMON,	   /* of the daemon */
	OPTION_EACH_MODEL, /* of the model before it; before the first one, of all */
	OPTION_ONE_MODEL,  /* of the model before it, which there must be */
	OPTION_COMMAND,	   /* of the command line, not in files */
};

/* What becomes of a change when the settings are read again. */
enum option_reload {
	OPTION_RESTART,	   /* nothing: it takes a restart */
	OPTION_AT_ONCE,	   /* it counts from then on */
	OPTION_LOADS_ANEW, /* the model is loaded anew */
};

struct option_row {
	const char *name;
	const struct option_type *type;
	enum option_scope scope;
	size_t offset, size; /* of the member, in the struct that goes with the scope */
	enum option_reload reload;
	const char *metavar; /* NULL: the words */
	const char *help;
	const char *initial;	  /* NULL: zero, and --help tells no default */
	const char *aliases;	  /* with spaces between, or NULL */
	uint64_t min, max;	  /* of numbers */
	const char *const *words; /* up to NULL; "a|b" in one means the same by two names */
	const char *note;	  /* of what is moot: why */
};

struct option_table {
	const char *program, *about; /* what --help begins with */
	const struct option_row *rows;
	unsigned n;
};

/* ---- rows ---- */

/* The row of that name; NULL: there is none. *@ret_text is "no" for --no-NAME, else NULL. */
const struct option_row *options_find(const struct option_table *t, const char *name,
				      const char **ret_text);
/* Likewise, but the beginning of one option's name will do, as with getopt_long(). */
const struct option_row *options_find_begun(const struct option_table *t, const char *name,
					    const char **ret_text, char *err, size_t errlen);

/* The name that is most like @name, if any is like it; @ret[OPTIONS_NAME_MAX]. */
bool options_nearest(const struct option_table *t, const char *name, char *ret);

/* Each works on the member of @base that the row is about. */
bool option_set(const struct option_row *row, void *base, const char *text, char *err,
		size_t errlen);
bool option_same(const struct option_row *row, const void *a, const void *b);
bool option_copy(const struct option_row *row, const void *from, void *to);
void option_clear(const struct option_row *row, void *base);
struct option_shown option_show(const struct option_row *row, const void *base);

/* The same for all rows of a scope; false: out of memory. Copies are to be cleared in any case. */
bool options_initial(const struct option_table *t, enum option_scope scope, void *base, char *err,
		     size_t errlen);
bool options_copy(const struct option_table *t, enum option_scope scope, const void *from,
		  void *to);
void options_clear(const struct option_table *t, enum option_scope scope, void *base);

/* ---- where options come from ---- */

/* One that was given. @text: its value, or as above for flags. */
struct option_given {
	const struct option_row *row;
	const char *text;
	const char *file; /* NULL: the command line */
	unsigned line;
};

/*
 * The next option of the command line; *@at begins with 1. 1: one; 0: the end; -1: something else,
 * which is passed over.
 */
int options_next(const struct option_table *t, int argc, char **argv, int *at,
		 struct option_given *ret, char *err, size_t errlen);

/*
 * Reads a file: an option a line, as "NAME = VALUE" or "NAME"; '#' begins a comment line. @take
 * gets each; messages say which line of which file.
 */
bool options_read_file(const struct option_table *t, const char *path,
		       bool (*take)(void *arg, const struct option_given *given, char *err,
				    size_t errlen),
		       void *arg, char *err, size_t errlen);

void options_help(const struct option_table *t, FILE *out);

#endif /* TXDA_OPTIONS_H */
