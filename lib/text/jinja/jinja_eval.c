// SPDX-License-Identifier: MIT
/*
 * Evaluation of expressions, and calls.
 */
#include "jinja_text.h"

#include <string.h>

static int eval_list(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	enum jinja_flavor flavor = node->type == NODE_LIST ? JINJA_LIST : JINJA_TUPLE;
	struct jinja_seq *seq;
	uint32_t i;
	int rc = jinja_new_seq(r, flavor, node->list.n, &seq);

	for (i = 0; !rc && i < node->list.n; i++) {
		rc = jinja_eval(r, node->list.items[i], &seq->items[i]);
		if (!rc)
			seq->n = i + 1;
	}
	if (!rc)
		*ret = jinja_seq_value(seq);
	return rc;
}

static int eval_dict(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	struct jinja_dict *dict;
	struct jinja_value key, value;
	uint32_t i;
	int rc = jinja_new_dict(r, &dict);

	for (i = 0; !rc && i < node->list.n; i += 2) {
		rc = jinja_eval(r, node->list.items[i], &key);
		if (!rc)
			rc = jinja_eval(r, node->list.items[i + 1], &value);
		if (!rc)
			rc = jinja_dict_set(r, dict, key, value);
	}
	if (!rc)
		*ret = jinja_dict_value(dict);
	return rc;
}

static int eval_condition(struct jinja_render *r, const struct jinja_node *node,
			  struct jinja_value *ret)
{
	struct jinja_value test;
	int rc = jinja_eval(r, node->three.a, &test);

	if (rc)
		return rc;
	if (jinja_truth(test))
		return jinja_eval(r, node->three.b, ret);
	if (node->three.c)
		return jinja_eval(r, node->three.c, ret);
	return jinja_undefined(r, ret, "the condition of an if-expression without else is false");
}

static int eval_binary(struct jinja_render *r, const struct jinja_node *node,
		       struct jinja_value *ret)
{
	struct jinja_value a, b;
	int rc = jinja_eval(r, node->two.left, &a);

	if (!rc)
		rc = jinja_eval(r, node->two.right, &b);
	if (rc)
		return rc;
	r->line = node->line;
	return jinja_binary(r, node->op, a, b, ret);
}

/* `and` and `or` give one of their operands. */
static int eval_logic(struct jinja_render *r, const struct jinja_node *node,
		      struct jinja_value *ret)
{
	struct jinja_value left;
	int rc = jinja_eval(r, node->two.left, &left);

	if (rc)
		return rc;
	if (jinja_truth(left) == (node->type == NODE_AND))
		return jinja_eval(r, node->two.right, ret);
	*ret = left;
	return 0;
}

static int eval_unary(struct jinja_render *r, const struct jinja_node *node,
		      struct jinja_value *ret)
{
	struct jinja_value v;
	int rc = jinja_eval(r, node->two.left, &v);

	if (rc)
		return rc;
	if (node->type == NODE_NOT) {
		*ret = jinja_bool(!jinja_truth(v));
		return 0;
	}
	if (node->type == NODE_NEGATE)
		return jinja_negate(r, v, ret);
	if (!jinja_is_number(v))
		return v.kind == JINJA_UNDEFINED
			       ? jinja_fail_undefined(r, v)
			       : jinja_fail(r, "bad operand type for unary +: '%s'",
					    jinja_type_name(v));
	*ret = v.kind == JINJA_BOOL ? jinja_int(v.boolean) : v;
	return 0;
}

static int eval_compare(struct jinja_render *r, const struct jinja_node *node,
			struct jinja_value *ret)
{
	struct jinja_value left, right;
	bool result = true;
	uint32_t i;
	int rc = jinja_eval(r, node->compare.first, &left);

	for (i = 0; !rc && result && i < node->compare.rest.n; i++) {
		const struct jinja_node *operand = node->compare.rest.items[i];

		rc = jinja_eval(r, operand->two.left, &right);
		r->line = node->line;
		if (!rc)
			rc = jinja_compare(r, operand->op, left, right, &result);
		left = right;
	}
	if (!rc)
		*ret = jinja_bool(result);
	return rc;
}

static int eval_concat(struct jinja_render *r, const struct jinja_node *node,
		       struct jinja_value *ret)
{
	size_t mark = r->out.length;
	struct jinja_value v;
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < node->list.n; i++) {
		rc = jinja_eval(r, node->list.items[i], &v);
		if (!rc)
			rc = jinja_write_str(r, v);
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int eval_item(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	const struct jinja_node *index = node->two.right;
	const struct jinja_node *bounds[3];
	struct jinja_value object, key, part[3];
	int i, rc = jinja_eval(r, node->two.left, &object);

	if (rc)
		return rc;
	if (index->type != NODE_SLICE) {
		rc = jinja_eval(r, index, &key);
		r->line = node->line;
		return rc ? rc : jinja_item(r, object, key, ret);
	}
	bounds[0] = index->three.a;
	bounds[1] = index->three.b;
	bounds[2] = index->three.c;
	for (i = 0; i < 3; i++) {
		part[i] = jinja_none();
		if (bounds[i])
			rc = jinja_eval(r, bounds[i], &part[i]);
		if (rc)
			return rc;
	}
	r->line = node->line;
	return jinja_slice(r, object, part, ret);
}

/* Room for the arguments; star and star_star are evaluated already. */
static int alloc_args(struct jinja_render *r, const struct jinja_arguments *arguments,
		      const struct jinja_seq *star, const struct jinja_dict *star_star,
		      struct jinja_value **ret_values, struct jinja_kwarg **ret_keywords)
{
	size_t n = arguments->positional.n + (star ? star->n : 0);
	size_t n_keywords = arguments->n_keywords + (star_star ? star_star->n : 0) + 1;
	int rc = jinja_alloc(r, n * sizeof(**ret_values), ret_values);

	return rc ? rc : jinja_alloc(r, n_keywords * sizeof(**ret_keywords), ret_keywords);
}

static int eval_stars(struct jinja_render *r, const struct jinja_arguments *arguments,
		      struct jinja_seq **ret_star, struct jinja_dict **ret_star_star)
{
	struct jinja_value v;
	size_t i;
	int rc = 0;

	if (arguments->star) {
		rc = jinja_eval(r, arguments->star, &v);
		if (!rc)
			rc = jinja_iterate(r, v, ret_star);
	}
	if (!rc && arguments->star_star) {
		rc = jinja_eval(r, arguments->star_star, &v);
		if (rc)
			return rc;
		if (v.kind != JINJA_DICT)
			return jinja_fail(r, "argument after ** must be a mapping, not %s",
					  jinja_type_name(v));
		for (i = 0; i < v.dict->n; i++)
			if (v.dict->entries[i].key.kind != JINJA_STRING)
				return jinja_fail(r, "keywords must be strings");
		*ret_star_star = v.dict;
	}
	return rc;
}

int jinja_eval_args(struct jinja_render *r, const struct jinja_arguments *arguments,
		    const struct jinja_value *caller, struct jinja_args *ret)
{
	struct jinja_seq *star = NULL;
	struct jinja_dict *star_star = NULL;
	struct jinja_value *values = NULL;
	struct jinja_kwarg *keywords = NULL;
	size_t n = arguments->positional.n, n_keywords = arguments->n_keywords, i;
	int rc;

	*ret = (struct jinja_args){0};
	if (!n && !n_keywords && !arguments->star && !arguments->star_star && !caller)
		return 0;
	rc = eval_stars(r, arguments, &star, &star_star);
	if (!rc)
		rc = alloc_args(r, arguments, star, star_star, &values, &keywords);
	for (i = 0; !rc && i < n; i++)
		rc = jinja_eval(r, arguments->positional.items[i], &values[i]);
	for (i = 0; !rc && i < n_keywords; i++) {
		keywords[i].name = arguments->keywords[i].name;
		rc = jinja_eval(r, arguments->keywords[i].value, &keywords[i].value);
	}
	if (rc)
		return rc;
	for (i = 0; star && i < star->n; i++)
		values[n++] = star->items[i];
	for (i = 0; star_star && i < star_star->n; i++)
		keywords[n_keywords++] = (struct jinja_kwarg){star_star->entries[i].key.string,
							      star_star->entries[i].value};
	if (caller)
		keywords[n_keywords++] = (struct jinja_kwarg){r->template->names.caller, *caller};
	*ret = (struct jinja_args){values, n, keywords, n_keywords};
	return 0;
}

static int call_joiner(struct jinja_render *r, struct jinja_cycle *joiner, struct jinja_value *ret)
{
	if (joiner->position++)
		*ret = joiner->items[0];
	else
		return jinja_literal(r, "", ret);
	return 0;
}

int jinja_call(struct jinja_render *r, struct jinja_value callee, const struct jinja_args *args,
	       struct jinja_value *ret)
{
	switch (callee.kind) {
	case JINJA_CALLABLE:
		if (callee.callable->self.kind == JINJA_STRING && callee.callable->self.safe)
			return jinja_call_safe_method(r, callee.callable, args, ret);
		return callee.callable->builtin->call(r, callee.callable->self, args, ret);
	case JINJA_MACRO: return jinja_call_macro(r, callee.macro, args, ret);
	case JINJA_LOOP: return jinja_call_loop(r, callee.loop, args, ret);
	case JINJA_JOINER: return call_joiner(r, callee.cycle, ret);
	case JINJA_UNDEFINED: return jinja_fail_undefined(r, callee);
	default: return jinja_fail(r, "'%s' object is not callable", jinja_type_name(callee));
	}
}

static int eval_call(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	struct jinja_value callee;
	struct jinja_args args;
	int rc = jinja_eval(r, node->call.callee, &callee);

	if (!rc)
		rc = jinja_eval_args(r, &node->call.arguments, NULL, &args);
	r->line = node->line;
	return rc ? rc : jinja_call(r, callee, &args, ret);
}

static int fail_unknown(struct jinja_render *r, const char *what, const struct jinja_str *name)
{
	return jinja_fail(r, "no %s named '%.*s'", what,
			  (int)(name->length < 80 ? name->length : 80), name->data);
}

int jinja_apply_filter(struct jinja_render *r, const struct jinja_node *node,
		       struct jinja_value input, struct jinja_value *ret)
{
	const struct jinja_node *inner = node->apply.input;
	struct jinja_args args;
	int rc = jinja_enter(r);

	if (rc)
		return rc;
	if (inner && inner->type == NODE_FILTER)
		rc = jinja_apply_filter(r, inner, input, &input);
	else if (inner)
		rc = jinja_eval(r, inner, &input);
	r->line = node->line;
	if (!rc && !node->apply.builtin)
		rc = fail_unknown(r, "filter", node->apply.name);
	if (!rc)
		rc = jinja_eval_args(r, &node->apply.arguments, NULL, &args);
	if (!rc)
		rc = jinja_charge(r, 1);
	r->line = node->line;
	if (!rc)
		rc = node->apply.builtin->call(r, input, &args, ret);
	jinja_leave(r);
	return rc;
}

static int eval_test(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	struct jinja_value input, result;
	struct jinja_args args;
	int rc = jinja_eval(r, node->apply.input, &input);

	if (!rc && !node->apply.builtin)
		rc = fail_unknown(r, "test", node->apply.name);
	if (!rc)
		rc = jinja_eval_args(r, &node->apply.arguments, NULL, &args);
	r->line = node->line;
	if (!rc)
		rc = node->apply.builtin->call(r, input, &args, &result);
	if (!rc)
		*ret = jinja_bool(jinja_truth(result) != node->negated);
	return rc;
}

static int eval_node(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	struct jinja_value object;
	int rc;

	switch (node->type) {
	case NODE_LIST:
	case NODE_TUPLE: return eval_list(r, node, ret);
	case NODE_DICT: return eval_dict(r, node, ret);
	case NODE_CONDITION: return eval_condition(r, node, ret);
	case NODE_BINARY: return eval_binary(r, node, ret);
	case NODE_AND:
	case NODE_OR: return eval_logic(r, node, ret);
	case NODE_NOT:
	case NODE_NEGATE:
	case NODE_POSITIVE: return eval_unary(r, node, ret);
	case NODE_COMPARE: return eval_compare(r, node, ret);
	case NODE_CONCAT: return eval_concat(r, node, ret);
	case NODE_ATTRIBUTE:
		rc = jinja_eval(r, node->attribute.object, &object);
		r->line = node->line;
		return rc ? rc : jinja_attribute(r, object, node->attribute.name, ret);
	case NODE_ITEM: return eval_item(r, node, ret);
	case NODE_CALL: return eval_call(r, node, ret);
	case NODE_FILTER: return jinja_apply_filter(r, node, jinja_none(), ret);
	case NODE_TEST: return eval_test(r, node, ret);
	default: /* a slice in a tuple of indices */
		return jinja_fail(r, "a slice cannot stand here");
	}
}

int jinja_eval(struct jinja_render *r, const struct jinja_node *node, struct jinja_value *ret)
{
	struct jinja_value v;
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	r->line = node->line;
	if (node->type == NODE_CONST) {
		*ret = node->constant;
		return 0;
	}
	if (node->type == NODE_NAME)
		return jinja_get_variable(r, node->name, ret);
	rc = jinja_enter(r);
	if (rc)
		return rc;
	rc = eval_node(r, node, &v);
	jinja_leave(r);
	if (!rc)
		*ret = v;
	return rc;
}
