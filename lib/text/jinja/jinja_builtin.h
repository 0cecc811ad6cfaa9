/* SPDX-License-Identifier: MIT */
/*
 * Filters, tests, methods and global functions: all are built-ins of one shape, found by name in
 * tables.
 */
#ifndef TXDA_TEXT_JINJA_BUILTIN_H
#define TXDA_TEXT_JINJA_BUILTIN_H

#include "jinja_value.h"

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
 * @self: input of a filter or test, object of a method, nothing for a global function. 0 or -errno.
 */
typedef int (*jinja_builtin_fn)(struct jinja_render *r, struct jinja_value self,
				const struct jinja_args *args, struct jinja_value *ret);

struct jinja_builtin {
	const char *name;
	jinja_builtin_fn call;
};

struct jinja_bound {
	const struct jinja_builtin *builtin;
	struct jinja_value self;
};

/* Each table ends with a NULL name. */
extern const struct jinja_builtin jinja_string_filters[];
extern const struct jinja_builtin jinja_number_filters[];
extern const struct jinja_builtin jinja_sequence_filters[];
extern const struct jinja_builtin jinja_select_filters[];
extern const struct jinja_builtin jinja_tests[];
extern const struct jinja_builtin jinja_string_methods[];
extern const struct jinja_builtin jinja_string_tests[]; /* methods isdigit() and the like */
extern const struct jinja_builtin jinja_dict_methods[];
extern const struct jinja_builtin jinja_list_methods[];
extern const struct jinja_builtin jinja_loop_methods[];
extern const struct jinja_builtin jinja_cycler_methods[];
extern const struct jinja_builtin jinja_globals[];

const struct jinja_builtin *jinja_find_builtin(const struct jinja_builtin *table, const char *name,
					       size_t length);
const struct jinja_builtin *jinja_find_filter(const char *name, size_t length);
const struct jinja_builtin *jinja_find_test(const char *name, size_t length);

#endif
