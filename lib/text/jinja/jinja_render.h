/* SPDX-License-Identifier: MIT */
/*
 * State of one render and the operations on values. All functions return 0 or -errno with r->error
 * filled in; results go through the last argument, which stays untouched on failure.
 */
#ifndef TXDA_TEXT_JINJA_RENDER_H
#define TXDA_TEXT_JINJA_RENDER_H

#include "jinja_ast.h"
#include "jinja_builtin.h"

struct jinja_binding {
	const struct jinja_str *name; /* interned */
	struct jinja_value value;
};

struct jinja_scope {
	struct jinja_scope *parent; /* NULL: the context and the globals come next */
	struct jinja_binding *bindings;
	uint32_t n;
	uint32_t capacity;
	bool captured; /* a macro may still look in here: not to be reused */
};

struct jinja_macro {
	const struct jinja_signature *signature;
	struct jinja_scope *scope; /* where it was defined */
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
	const struct txda_template *template;
	struct jinja_arena arena;
	/* Output so far; also where texts are built, and cut off again (jinja_captured()). */
	struct jinja_buffer out;
	struct txda_template_error *error;
	struct txda_template_limits limits;
	uint64_t steps;
	unsigned int depth;
	unsigned int line;
	struct jinja_scope *scope;
	struct jinja_dict *context;
	const struct tm *now;
};

/* Errors and limits */
__attribute__((format(printf, 2, 3))) int jinja_fail(struct jinja_render *r, const char *format,
						     ...);
int jinja_fail_limit(struct jinja_render *r, const char *what, uint64_t limit);
int jinja_charge(struct jinja_render *r, uint64_t steps);
int jinja_charge_bytes(struct jinja_render *r, size_t bytes);
/* One level deeper; what succeeded must be followed by jinja_leave(). */
int jinja_enter(struct jinja_render *r);
void jinja_leave(struct jinja_render *r);
/* Using an undefined value is an error; says which. */
int jinja_fail_undefined(struct jinja_render *r, struct jinja_value v);

/* Making values */
int jinja_alloc(struct jinja_render *r, size_t size, void *ret_pointer);
int jinja_string(struct jinja_render *r, const char *data, size_t length, struct jinja_value *ret);
int jinja_literal(struct jinja_render *r, const char *text, struct jinja_value *ret);
int jinja_substring(struct jinja_render *r, const struct jinja_str *s, size_t start, size_t end,
		    struct jinja_value *ret);
int jinja_new_seq(struct jinja_render *r, enum jinja_flavor flavor, size_t capacity,
		  struct jinja_seq **ret);
int jinja_append(struct jinja_render *r, struct jinja_seq *seq, struct jinja_value v);
int jinja_pair(struct jinja_render *r, struct jinja_value a, struct jinja_value b,
	       struct jinja_value *ret);
int jinja_new_dict(struct jinja_render *r, struct jinja_dict **ret);
int jinja_dict_set(struct jinja_render *r, struct jinja_dict *dict, struct jinja_value key,
		   struct jinja_value value);
/* *ret is NULL when there is no such key. An unhashable key is an error. */
int jinja_dict_get(struct jinja_render *r, const struct jinja_dict *dict, struct jinja_value key,
		   struct jinja_value **ret);
/* dict(mapping or pairs, **keywords), as `dict()` and `namespace()` take them */
int jinja_dict_from_args(struct jinja_render *r, const char *what, const struct jinja_args *args,
			 struct jinja_dict **ret);
__attribute__((format(printf, 3, 4))) int
jinja_undefined(struct jinja_render *r, struct jinja_value *ret, const char *format, ...);

/* Output and texts under construction */
int jinja_write(struct jinja_render *r, const char *data, size_t length);
int jinja_write_text(struct jinja_render *r, const char *text);
int jinja_write_char(struct jinja_render *r, uint32_t c);
int jinja_write_str(struct jinja_render *r, struct jinja_value v);  /* Python's str() */
int jinja_write_repr(struct jinja_render *r, struct jinja_value v); /* Python's repr() */
int jinja_write_float(struct jinja_render *r, double f);
/* Cut what was written since r->out.length was @mark off into a string. */
int jinja_captured(struct jinja_render *r, size_t mark, struct jinja_value *ret);
/* str(v) as a string */
int jinja_to_str(struct jinja_render *r, struct jinja_value v, struct jinja_str **ret);

/* json.dumps(). indent: NULL for one line. */
struct jinja_json_style {
	const struct jinja_str *indent;
	const struct jinja_str *item_separator;
	const struct jinja_str *key_separator;
	bool ensure_ascii;
	bool sort_keys;
};
int jinja_write_json(struct jinja_render *r, struct jinja_value v,
		     const struct jinja_json_style *style);
int jinja_filter_tojson(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret);

/* Comparing */
int jinja_equal(struct jinja_render *r, struct jinja_value a, struct jinja_value b, bool *ret);
int jinja_order(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		struct jinja_value b, bool *ret);
int jinja_contains(struct jinja_render *r, struct jinja_value container, struct jinja_value v,
		   bool *ret);
int jinja_compare(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		  struct jinja_value b, bool *ret);
/* Stable sort of items by keys (as many), ascending or descending. */
int jinja_sort(struct jinja_render *r, struct jinja_value *items, struct jinja_value *keys,
	       size_t n, bool descending);

/* Operators; @op is a token type */
int jinja_binary(struct jinja_render *r, uint8_t op, struct jinja_value a, struct jinja_value b,
		 struct jinja_value *ret);
int jinja_negate(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret);
/*
 * printf-style formatting; @safe: the format is marked safe; @arguments is a tuple, a dict or one
 * value
 */
int jinja_percent_format(struct jinja_render *r, const struct jinja_str *format, bool safe,
			 struct jinja_value arguments, struct jinja_value *ret);
/* str.format() */
int jinja_method_format(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret);

/* Parts of values */
int jinja_iterate(struct jinja_render *r, struct jinja_value v, struct jinja_seq **ret);
int jinja_length(struct jinja_render *r, struct jinja_value v, int64_t *ret);
int jinja_attribute(struct jinja_render *r, struct jinja_value object, const struct jinja_str *name,
		    struct jinja_value *ret);
int jinja_item(struct jinja_render *r, struct jinja_value object, struct jinja_value key,
	       struct jinja_value *ret);
/* start, stop, step: None or integers */
int jinja_slice(struct jinja_render *r, struct jinja_value object, const struct jinja_value part[3],
		struct jinja_value *ret);
/* "a.0.b" or an integer, as filters take it; @path is a string or an integer */
int jinja_path(struct jinja_render *r, struct jinja_value object, struct jinja_value path,
	       struct jinja_value *ret);
int jinja_loop_attribute(struct jinja_render *r, struct jinja_loop *loop,
			 const struct jinja_str *name, struct jinja_value *ret);

/*
 * Match @args with parameters by name; out[i].kind is JINJA_ABSENT for what was not given. The
 * first @required must be given. @what names the callee in errors.
 */
int jinja_bind(struct jinja_render *r, const struct jinja_args *args, const char *what,
	       size_t required, const char *const *names, size_t n, struct jinja_value *out);

#define JINJA_BIND(r, args, what, required, out, ...)                                              \
	jinja_bind(r, args, what, required, (const char *const[]){__VA_ARGS__},                    \
		   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), out)

int jinja_no_args(struct jinja_render *r, const struct jinja_args *args, const char *what);
/* The argument as that type; an absent one leaves *ret alone. */
int jinja_arg_int(struct jinja_render *r, struct jinja_value v, const char *what, int64_t *ret);
int jinja_arg_str(struct jinja_render *r, struct jinja_value v, const char *what,
		  struct jinja_str **ret);
void jinja_arg_bool(struct jinja_value v, bool *ret);

/* Calling and evaluating */
int jinja_call(struct jinja_render *r, struct jinja_value callee, const struct jinja_args *args,
	       struct jinja_value *ret);
int jinja_call_macro(struct jinja_render *r, struct jinja_macro *macro,
		     const struct jinja_args *args, struct jinja_value *ret);
int jinja_call_loop(struct jinja_render *r, struct jinja_loop *loop, const struct jinja_args *args,
		    struct jinja_value *ret);
int jinja_eval(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret);
/* The arguments of a call; *extra (may be NULL) becomes the keyword argument `caller`. */
int jinja_eval_args(struct jinja_render *r, const struct jinja_arguments *arguments,
		    const struct jinja_value *caller, struct jinja_args *ret);
int jinja_apply_filter(struct jinja_render *r, const struct jinja_node *node,
		       struct jinja_value input, struct jinja_value *ret);

/* Besides 0 and -errno, statements may end with a jump. */
enum { JINJA_BREAK = 1, JINJA_CONTINUE = 2 };
int jinja_exec(struct jinja_render *r, const struct jinja_nodes *nodes);
int jinja_exec_for(struct jinja_render *r, const struct jinja_node *node);
int jinja_assign(struct jinja_render *r, const struct jinja_node *target, struct jinja_value v);

/* Scopes */
int jinja_push_scope(struct jinja_render *r, struct jinja_scope *parent); /* sets r->scope */
int jinja_set_variable(struct jinja_render *r, const struct jinja_str *name, struct jinja_value v);
int jinja_get_variable(struct jinja_render *r, const struct jinja_str *name,
		       struct jinja_value *ret);
void jinja_capture_scope(struct jinja_scope *scope);

struct cJSON;
int jinja_from_cjson(struct jinja_render *r, const struct cJSON *json, struct jinja_value *ret);

#endif
