/* SPDX-License-Identifier: MIT */
/*
 * Filters, tests, methods and global functions. All are built-ins of one shape, found by name in
 * tables; what arguments they take stands in the table and is checked in one place.
 */
#ifndef TXDA_TEXT_JINJA_BUILTIN_H
#define TXDA_TEXT_JINJA_BUILTIN_H

#include "jinja_value.h"

struct jinja_render;
struct jinja_call;

struct jinja_kwarg {
	const struct jinja_str *name;
	struct jinja_value value;
};

/* Evaluated arguments of a call. */
struct jinja_args {
	const struct jinja_value *positional;
	size_t n;
	const struct jinja_kwarg *keywords;
	size_t n_keywords;
};

/*
 * @params: names with types, separated by spaces, "old:s new:s count:i?". A `?` marks what may be
 * left out; then the argument is JINJA_ABSENT (an integer or string given as None likewise).
 *
 *   v  any value              s  string           i  integer (a bool counts)
 *   t  any value, as str()    b  any value, as    e  string; escaped when the object of
 *                                a bool              the method is marked safe
 *
 * In front may stand what becomes of the input:
 *
 *   $  it is turned into a string by str()
 *   #  the same, and if it is marked safe, so is the result
 *   *  nothing is checked, the function looks at c->args itself
 */
struct jinja_builtin {
	const char *name;
	struct jinja_value (*call)(struct jinja_call *c);
	const char *params;
	int mode; /* tells apart what shares a function */
};

enum { JINJA_MAX_PARAMS = 4 };

/* A call in progress. */
struct jinja_call {
	struct jinja_render *r;
	const struct jinja_builtin *builtin;
	struct jinja_value self; /* input of a filter or test, object of a method */
	struct jinja_value arg[JINJA_MAX_PARAMS];
	const struct jinja_args *args; /* as given */
};

struct jinja_bound {
	const struct jinja_builtin *builtin;
	struct jinja_value self;
};

/* Each table ends with a NULL name. */
extern const struct jinja_builtin jinja_string_filters[];
extern const struct jinja_builtin jinja_sequence_filters[];
extern const struct jinja_builtin jinja_string_methods[];
extern const struct jinja_builtin jinja_loop_methods[];

const struct jinja_builtin *jinja_find_filter(const struct jinja_str *name);
const struct jinja_builtin *jinja_find_test(const struct jinja_str *name);
const struct jinja_builtin *jinja_find_global(const struct jinja_str *name);
const struct jinja_builtin *jinja_find_method(struct jinja_value object,
					      const struct jinja_str *name);

/* Check the arguments and call. */
struct jinja_value jinja_call_builtin(struct jinja_render *r, const struct jinja_builtin *builtin,
				      struct jinja_value self, const struct jinja_args *args);

static inline bool jinja_given(const struct jinja_call *c, unsigned int i)
{
	return c->arg[i].kind != JINJA_ABSENT && c->arg[i].kind != JINJA_NONE;
}

static inline bool jinja_flag(const struct jinja_call *c, unsigned int i)
{
	return jinja_truth(c->arg[i]);
}

static inline int64_t jinja_int_arg(const struct jinja_call *c, unsigned int i, int64_t standard)
{
	int64_t value = standard;

	jinja_as_int(c->arg[i], &value);
	return value;
}

/* NULL: not given */
static inline struct jinja_str *jinja_str_arg(const struct jinja_call *c, unsigned int i)
{
	return jinja_given(c, i) ? c->arg[i].string : NULL;
}

#endif
