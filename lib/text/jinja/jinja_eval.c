// SPDX-License-Identifier: MIT
/*
 * Evaluation of expressions, and calls.
 */
#include "jinja_render.h"

#include <string.h>

static struct jinja_value eval_list(struct jinja_render *r, const struct jinja_node *node)
{
	enum jinja_flavor flavor = node->type == NODE_LIST ? JINJA_LIST : JINJA_TUPLE;
	struct jinja_seq *seq = jinja_new_seq(r, flavor, node->list.n);

	for (; seq->n < node->list.n; seq->n++)
		seq->items[seq->n] = jinja_eval(r, node->list.items[seq->n]);
	return jinja_seq_value(seq);
}

static struct jinja_value eval_dict(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_dict *dict = jinja_new_dict(r);
	uint32_t i;

	for (i = 0; i < node->list.n; i += 2) {
		struct jinja_value key = jinja_eval(r, node->list.items[i]);

		jinja_dict_set(r, dict, key, jinja_eval(r, node->list.items[i + 1]));
	}
	return jinja_dict_value(dict);
}

static struct jinja_value eval_condition(struct jinja_render *r, const struct jinja_node *node)
{
	if (jinja_truth(jinja_eval(r, node->b)))
		return jinja_eval(r, node->a);
	if (node->c)
		return jinja_eval(r, node->c);
	return jinja_undefined(r, "the condition of an if-expression without else is false");
}

static struct jinja_value eval_binary(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value a = jinja_eval(r, node->a), b = jinja_eval(r, node->b);

	r->run.line = node->line;
	return jinja_binary(r, node->op, a, b);
}

static struct jinja_value eval_unary(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v = jinja_eval(r, node->a);

	r->run.line = node->line;
	if (node->type == NODE_NOT)
		return jinja_bool(!jinja_truth(v));
	if (node->type == NODE_NEGATE)
		return jinja_negate(r, v);
	jinja_need_defined(r, v);
	if (!jinja_is_number(v))
		jinja_fail(r, "bad operand type for unary +: '%s'", jinja_type_name(v));
	return v.kind == JINJA_BOOL ? jinja_int(v.boolean) : v;
}

static struct jinja_value eval_compare(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value left = jinja_eval(r, node->a), right;
	bool result = true;
	uint32_t i;

	for (i = 0; result && i < node->list.n; i++) {
		right = jinja_eval(r, node->list.items[i]->a);
		r->run.line = node->line;
		result = jinja_compare(r, node->list.items[i]->op, left, right);
		left = right;
	}
	return jinja_bool(result);
}

static struct jinja_value eval_concat(struct jinja_render *r, const struct jinja_node *node)
{
	size_t mark = r->out.len;
	uint32_t i;

	for (i = 0; i < node->list.n; i++)
		jinja_write_str(r, jinja_eval(r, node->list.items[i]));
	return jinja_captured(r, mark);
}

static struct jinja_value eval_item(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value object = jinja_eval(r, node->a), part[3];
	const struct jinja_node *index = node->b;

	if (index->type != NODE_SLICE) {
		part[0] = jinja_eval(r, index);
		r->run.line = node->line;
		return jinja_item(r, object, part[0]);
	}
	part[0] = index->a ? jinja_eval(r, index->a) : jinja_none();
	part[1] = index->b ? jinja_eval(r, index->b) : jinja_none();
	part[2] = index->c ? jinja_eval(r, index->c) : jinja_none();
	r->run.line = node->line;
	return jinja_slice(r, object, part);
}

static struct jinja_dict *eval_star_star(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v = jinja_eval(r, node);
	size_t i;

	if (v.kind != JINJA_DICT)
		jinja_fail(r, "argument after ** must be a mapping, not %s", jinja_type_name(v));
	for (i = 0; i < v.dict->n; i++)
		if (v.dict->entries[i].key.kind != JINJA_STRING)
			jinja_fail(r, "keywords must be strings");
	return v.dict;
}

struct jinja_args jinja_eval_args(struct jinja_render *r, const struct jinja_node *call,
				  const struct jinja_value *caller)
{
	/* a filter's and a test's `a` is their input; b and c are the stars of all */
	struct jinja_seq *star = call->b ? jinja_iterate(r, jinja_eval(r, call->b)) : NULL;
	struct jinja_dict *star_star = call->c ? eval_star_star(r, call->c) : NULL;
	size_t n = call->list.n + (star ? star->n : 0), i, k;
	size_t n_keywords = call->keywords.n + (star_star ? star_star->n : 0) + (caller != NULL);
	struct jinja_value *values;
	struct jinja_kwarg *keywords;

	if (!n && !n_keywords)
		return (struct jinja_args){0};
	values = jinja_alloc(r, n, sizeof(*values));
	keywords = jinja_alloc(r, n_keywords, sizeof(*keywords));
	for (i = 0; i < call->list.n; i++)
		values[i] = jinja_eval(r, call->list.items[i]);
	for (k = 0; k < call->keywords.n; k++)
		keywords[k] = (struct jinja_kwarg){call->keywords.items[k]->name,
						   jinja_eval(r, call->keywords.items[k]->a)};
	if (star && star->n)
		memcpy(values + i, star->items, star->n * sizeof(*values));
	for (i = 0; star_star && i < star_star->n; i++)
		keywords[k++] = (struct jinja_kwarg){star_star->entries[i].key.string,
						     star_star->entries[i].value};
	if (caller)
		keywords[k++] = (struct jinja_kwarg){r->template->names.caller, *caller};
	return (struct jinja_args){values, n, keywords, n_keywords};
}

struct jinja_value jinja_call(struct jinja_render *r, struct jinja_value callee,
			      const struct jinja_args *args)
{
	switch (callee.kind) {
	case JINJA_CALLABLE:
		return jinja_call_builtin(r, callee.callable->builtin, callee.callable->self, args);
	case JINJA_MACRO: return jinja_call_macro(r, callee.macro, args);
	case JINJA_LOOP: return jinja_call_loop(r, callee.loop, args);
	case JINJA_JOINER: /* its separator, but for the first time */
		return callee.cycle->position++ ? callee.cycle->items[0] : jinja_literal(r, "");
	default:
		jinja_need_defined(r, callee);
		jinja_fail(r, "'%s' object is not callable", jinja_type_name(callee));
	}
}

static struct jinja_value eval_call(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value callee = jinja_eval(r, node->a);
	struct jinja_args args = jinja_eval_args(r, node, NULL);

	r->run.line = node->line;
	return jinja_call(r, callee, &args);
}

struct jinja_value jinja_apply_filter(struct jinja_render *r, const struct jinja_node *node,
				      struct jinja_value input)
{
	struct jinja_args args;

	jinja_enter(r);
	if (node->a && node->a->type == NODE_FILTER)
		input = jinja_apply_filter(r, node->a, input);
	else if (node->a)
		input = jinja_eval(r, node->a);
	jinja_charge(r, 1);
	r->run.line = node->line;
	if (!node->builtin)
		jinja_fail(r, "no filter named '%.*s'", JINJA_SHOW(node->name));
	args = jinja_eval_args(r, node, NULL);
	r->run.line = node->line;
	input = jinja_call_builtin(r, node->builtin, input, &args);
	jinja_leave(r);
	return input;
}

static struct jinja_value eval_test(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value input = jinja_eval(r, node->a);
	struct jinja_args args;

	r->run.line = node->line;
	if (!node->builtin)
		jinja_fail(r, "no test named '%.*s'", JINJA_SHOW(node->name));
	args = jinja_eval_args(r, node, NULL);
	r->run.line = node->line;
	input = jinja_call_builtin(r, node->builtin, input, &args);
	return jinja_bool(jinja_truth(input) != node->flag);
}

static struct jinja_value eval_node(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v;

	switch (node->type) {
	case NODE_LIST:
	case NODE_TUPLE: return eval_list(r, node);
	case NODE_DICT: return eval_dict(r, node);
	case NODE_CONDITION: return eval_condition(r, node);
	case NODE_BINARY: return eval_binary(r, node);
	case NODE_AND:
	case NODE_OR: /* give one of their operands */
		v = jinja_eval(r, node->a);
		return jinja_truth(v) == (node->type == NODE_AND) ? jinja_eval(r, node->b) : v;
	case NODE_NOT:
	case NODE_NEGATE:
	case NODE_POSITIVE: return eval_unary(r, node);
	case NODE_COMPARE: return eval_compare(r, node);
	case NODE_CONCAT: return eval_concat(r, node);
	case NODE_ATTRIBUTE:
		v = jinja_eval(r, node->a);
		r->run.line = node->line;
		return jinja_attribute(r, v, node->name);
	case NODE_ITEM: return eval_item(r, node);
	case NODE_CALL: return eval_call(r, node);
	case NODE_FILTER: return jinja_apply_filter(r, node, jinja_none());
	case NODE_TEST: return eval_test(r, node);
	default: /* a slice in a tuple of indices */ jinja_fail(r, "a slice cannot stand here");
	}
}

struct jinja_value jinja_eval(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v;

	jinja_charge(r, 1);
	r->run.line = node->line;
	if (node->type == NODE_CONST)
		return node->constant;
	if (node->type == NODE_NAME)
		return jinja_get_variable(r, node->name);
	jinja_enter(r);
	v = eval_node(r, node);
	jinja_leave(r);
	return v;
}
