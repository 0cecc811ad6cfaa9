/* SPDX-License-Identifier: MIT */
/*
 * State of one render and the operations on values. Errors are thrown (see jinja_value.h), so
 * results are simply returned.
 */
#ifndef TXDA_TEXT_JINJA_RENDER_H
#define TXDA_TEXT_JINJA_RENDER_H

#include "jinja_ast.h"
#include "text_buf.h"

struct jinja_binding {
	const struct jinja_str *name; /* interned */
	struct jinja_value value;
};

struct jinja_scope {
	struct jinja_scope *parent; /* NULL: followed by the context and the globals */
	struct jinja_binding *bindings;
	uint32_t n;
	uint32_t capacity;
	bool captured; /* a macro may still refer to it: must not be reused */
};

struct jinja_macro {
	const struct jinja_node *node; /* MACRO or CALL_BLOCK */
	struct jinja_scope *scope;     /* where it was defined */
};

struct jinja_loop {
	const struct jinja_node *node;
	struct jinja_scope *scope; /* around the loop */
	struct jinja_seq *source;
	size_t source_at;	    /* items of source that went through the filter */
	struct jinja_seq *items;    /* those that passed; source itself without a filter */
	size_t index;		    /* from 0 */
	unsigned int depth;	    /* recursion, from 0 */
	struct jinja_value changed; /* last value of loop.changed() */
};

struct jinja_render {
	struct jinja_run run;
	const struct txda_template *template;
	struct jinja_arena arena;
	/* The output so far; strings are built at its end and cut off again (jinja_captured()). */
	struct text_buf out;
	struct txda_template_limits limits;
	uint64_t steps;
	unsigned int depth;
	struct jinja_scope *scope;
	struct jinja_dict *context;
	const struct tm *now;
};

/*
 * Filters, tests, methods and global functions. All are built-ins of one type, found by name in
 * tables; the table also declares their arguments, which are checked in one place.
 */

struct jinja_kwarg {
	const struct jinja_str *name;
	struct jinja_value value;
};

struct jinja_call;

/* Evaluated arguments of a call. */
struct jinja_args {
	const struct jinja_value *positional;
	size_t n;
	const struct jinja_kwarg *keywords;
	size_t n_keywords;
};

/*
 * @params: names with types, separated by spaces, "old:s new:s count:i?". A `?` marks optional
 * arguments; an omitted one is JINJA_ABSENT (an integer or string given as None likewise).
 *
 *   v  any value              s  string           i  integer (a bool counts)
 *   t  any value, as str()    b  any value, as    e  string; escaped when the object of
 *                                a bool              the method is marked safe
 *
 * An optional prefix states how the input is converted:
 *
 *   $  it is turned into a string by str()
 *   #  the same, and if it is marked safe, so is the result
 *   *  nothing is checked, the function looks at c->args itself
 */
struct jinja_builtin {
	const char *name;
	struct jinja_value (*call)(struct jinja_call *c);
	const char *params;
	int mode; /* distinguishes built-ins that share a function */
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

const struct jinja_builtin *jinja_find_global(const struct jinja_str *name);
const struct jinja_builtin *jinja_find_method(struct jinja_value object,
					      const struct jinja_str *name);

/* Checks the arguments and calls it. */
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

/* Errors and limits */
#define jinja_fail(r, ...) jinja_throw(&(r)->run, TXDA_TEMPLATE_RUNTIME, __VA_ARGS__)
_Noreturn void jinja_fail_limit(struct jinja_render *r, const char *what, uint64_t limit);
/* Using an undefined value is an error that states why it is undefined. */
void jinja_need_defined(struct jinja_render *r, struct jinja_value v);
void jinja_charge(struct jinja_render *r, uint64_t steps);
void jinja_charge_bytes(struct jinja_render *r, size_t bytes);
/* Enters one level of nesting; jinja_leave() on the way back, unless an error was thrown. */
void jinja_enter(struct jinja_render *r);
void jinja_leave(struct jinja_render *r);

/* Creating values */
void *jinja_alloc(struct jinja_render *r, size_t n, size_t size); /* @n times @size bytes */
struct jinja_value jinja_string(struct jinja_render *r, const char *data, size_t length);
struct jinja_value jinja_literal(struct jinja_render *r, const char *text);
struct jinja_value jinja_substring(struct jinja_render *r, const struct jinja_str *s, size_t start,
				   size_t end);
struct jinja_seq *jinja_new_seq(struct jinja_render *r, enum jinja_flavor flavor, size_t capacity);
void jinja_append(struct jinja_render *r, struct jinja_seq *seq, struct jinja_value v);
void jinja_append_all(struct jinja_render *r, struct jinja_seq *seq,
		      const struct jinja_value *values, size_t n);
struct jinja_value jinja_pair(struct jinja_render *r, struct jinja_value a, struct jinja_value b);
struct jinja_dict *jinja_new_dict(struct jinja_render *r);
/* The hash of a key, whose @depth is 0 but for items of tuples; false: it cannot be a key. */
bool jinja_hash(struct jinja_render *r, struct jinja_value key, unsigned int depth, uint64_t *ret);
/* An unhashable key is an error. */
void jinja_dict_set(struct jinja_render *r, struct jinja_dict *dict, struct jinja_value key,
		    struct jinja_value value);
/* NULL: there is no such key */
struct jinja_value *jinja_dict_get(struct jinja_render *r, const struct jinja_dict *dict,
				   struct jinja_value key);
/* The keys, values or pairs of a dict, as a sequence of that flavor */
struct jinja_seq *jinja_dict_items(struct jinja_render *r, const struct jinja_dict *dict,
				   enum jinja_flavor flavor);
/* dict(mapping or pairs, **keywords), as `dict()` and `namespace()` take them */
struct jinja_dict *jinja_dict_from_args(struct jinja_render *r, const char *what,
					const struct jinja_args *args);
__attribute__((format(printf, 2, 3))) struct jinja_value jinja_undefined(struct jinja_render *r,
									 const char *format, ...);

/* Output and texts under construction */
void jinja_write(struct jinja_render *r, const char *data, size_t length);
void jinja_write_text(struct jinja_render *r, const char *text);
__attribute__((format(printf, 2, 3))) void jinja_writef(struct jinja_render *r, const char *format,
							...); /* truncated to 399 bytes */
void jinja_write_char(struct jinja_render *r, uint32_t c);
void jinja_write_str(struct jinja_render *r, struct jinja_value v);  /* Python's str() */
void jinja_write_repr(struct jinja_render *r, struct jinja_value v); /* Python's repr() */
void jinja_write_float(struct jinja_render *r, double f);
/* Cuts off what was written since r->out.len was @mark and returns it as a string. */
struct jinja_value jinja_captured(struct jinja_render *r, size_t mark);
struct jinja_str *jinja_to_str(struct jinja_render *r, struct jinja_value v); /* str(v) */
struct jinja_value jinja_escape(struct jinja_render *r,
				struct jinja_value v); /* for HTML, marked */
struct jinja_value jinja_filter_tojson(struct jinja_call *c);
struct jinja_value jinja_filter_format(struct jinja_call *c);
struct jinja_value jinja_method_format(struct jinja_call *c); /* str.format() */
/* printf-style; @arguments is a tuple, a dict or one value */
struct jinja_value jinja_percent_format(struct jinja_render *r, struct jinja_value format,
					struct jinja_value arguments);

/* Comparing */
bool jinja_equal(struct jinja_render *r, struct jinja_value a, struct jinja_value b);
bool jinja_compare(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		   struct jinja_value b);
/* Stable sort of items by keys (as many), ascending or descending. */
void jinja_sort(struct jinja_render *r, struct jinja_value *items, struct jinja_value *keys,
		size_t n, bool descending);

/* Operators; @op is a token type */
struct jinja_value jinja_binary(struct jinja_render *r, uint8_t op, struct jinja_value a,
				struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_render *r, struct jinja_value v);

/* Integers beyond 64 bits: jinja_bigint.c. */

/* From decimal text of such an integer. */
struct jinja_value jinja_bigint(struct jinja_render *r, const char *text, size_t len);
/* @f without its fraction; one that is not finite fails. */
struct jinja_value jinja_whole(struct jinja_render *r, double f);
/* Operators for any two integers; a result that fits into 64 bits is not a BIGINT. */
struct jinja_value jinja_big_binary(struct jinja_render *r, uint8_t op, struct jinja_value a,
				    struct jinja_value b);
/* -1, 0, 1 */
int jinja_big_order(struct jinja_render *r, struct jinja_value a, struct jinja_value b);

/* Parts of values */
struct jinja_seq *jinja_iterate(struct jinja_render *r, struct jinja_value v);
int64_t jinja_length(struct jinja_render *r, struct jinja_value v);
struct jinja_value jinja_attribute(struct jinja_render *r, struct jinja_value object,
				   const struct jinja_str *name);
struct jinja_value jinja_item(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value key);
/* start, stop, step: None or integers */
struct jinja_value jinja_slice(struct jinja_render *r, struct jinja_value object,
			       const struct jinja_value part[3]);
/* "a.0.b" or an integer, as filters take it */
struct jinja_value jinja_path(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value path);
struct jinja_value jinja_loop_attribute(struct jinja_render *r, struct jinja_loop *loop,
					const struct jinja_str *name);

/* Evaluating (jinja_eval.c) and executing (jinja_exec.c) */
struct jinja_value jinja_eval(struct jinja_render *r, const struct jinja_node *node);
/* Arguments of a call; *@caller (may be NULL) becomes the keyword argument `caller`. */
struct jinja_args jinja_eval_args(struct jinja_render *r, const struct jinja_node *call,
				  const struct jinja_value *caller);
struct jinja_value jinja_apply_filter(struct jinja_render *r, const struct jinja_node *node,
				      struct jinja_value input);
struct jinja_value jinja_call(struct jinja_render *r, struct jinja_value callee,
			      const struct jinja_args *args);
struct jinja_value jinja_call_macro(struct jinja_render *r, const struct jinja_macro *macro,
				    const struct jinja_args *args);
struct jinja_value jinja_call_loop(struct jinja_render *r, struct jinja_loop *loop,
				   const struct jinja_args *args);
struct jinja_value jinja_get_variable(struct jinja_render *r, const struct jinja_str *name);

/* How a statement ends: normally, or with a jump. */
enum jinja_flow { JINJA_NEXT, JINJA_BREAK, JINJA_CONTINUE };
enum jinja_flow jinja_exec(struct jinja_render *r, const struct jinja_nodes *nodes);
void jinja_push_scope(struct jinja_render *r, struct jinja_scope *parent); /* sets r->scope */

#endif
