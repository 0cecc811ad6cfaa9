// SPDX-License-Identifier: MIT
/*
 * Execution of statements, scopes and macros.
 *
 * Scopes: the template, each round of a loop, and the bodies of macros, calls, `with`, `filter`,
 * block sets and `generation` have a scope of their own; `if` has none. A name is looked up from
 * the inside out, then among the variables of the render, then among the global functions.
 */
#include "jinja_render.h"

#include <string.h>

int jinja_push_scope(struct jinja_render *r, struct jinja_scope *parent)
{
	struct jinja_scope *scope;
	int rc = jinja_alloc(r, sizeof(*scope), &scope);

	if (rc)
		return rc;
	*scope = (struct jinja_scope){.parent = parent};
	r->scope = scope;
	return 0;
}

void jinja_capture_scope(struct jinja_scope *scope)
{
	for (; scope && !scope->captured; scope = scope->parent)
		scope->captured = true;
}

int jinja_set_variable(struct jinja_render *r, const struct jinja_str *name, struct jinja_value v)
{
	struct jinja_scope *scope = r->scope;
	uint32_t i;

	for (i = 0; i < scope->n; i++) {
		if (scope->bindings[i].name == name) {
			scope->bindings[i].value = v;
			return 0;
		}
	}
	if (scope->n == scope->capacity) {
		uint32_t capacity = scope->capacity * 2 + 4;
		struct jinja_binding *bindings;
		int rc = jinja_alloc(r, capacity * sizeof(*bindings), &bindings);

		if (rc)
			return rc;
		if (scope->n)
			memcpy(bindings, scope->bindings, scope->n * sizeof(*bindings));
		scope->bindings = bindings;
		scope->capacity = capacity;
	}
	scope->bindings[scope->n++] = (struct jinja_binding){name, v};
	return jinja_charge(r, scope->n / 16);
}

int jinja_get_variable(struct jinja_render *r, const struct jinja_str *name,
		       struct jinja_value *ret)
{
	const struct jinja_builtin *global;
	const struct jinja_scope *scope;
	struct jinja_value *found;
	struct jinja_bound *bound;
	uint32_t i;
	int rc;

	for (scope = r->scope; scope; scope = scope->parent) {
		for (i = 0; i < scope->n; i++) {
			if (scope->bindings[i].name == name) {
				*ret = scope->bindings[i].value;
				return jinja_charge(r, i / 16);
			}
		}
	}
	found = jinja_dict_find(&r->arena, r->context, name->data, name->length);
	if (found) {
		*ret = *found;
		return 0;
	}
	global = jinja_find_builtin(jinja_globals, name->data, name->length);
	if (!global)
		return jinja_undefined(r, ret, "'%.*s' is undefined",
				       (int)(name->length < 80 ? name->length : 80), name->data);
	rc = jinja_alloc(r, sizeof(*bound), &bound);
	if (rc)
		return rc;
	*bound = (struct jinja_bound){global, jinja_none()};
	*ret = (struct jinja_value){.kind = JINJA_CALLABLE, .callable = bound};
	return 0;
}

static int assign_attribute(struct jinja_render *r, const struct jinja_node *target,
			    struct jinja_value v)
{
	struct jinja_value object, key = {.kind = JINJA_STRING};
	int rc = jinja_get_variable(r, target->attribute.object->name, &object);

	if (rc)
		return rc;
	if (object.kind != JINJA_NAMESPACE)
		return jinja_fail(r, "cannot assign attribute on non-namespace object");
	key.string = target->attribute.name;
	return jinja_dict_set(r, object.dict, key, v);
}

static int assign_tuple(struct jinja_render *r, const struct jinja_nodes *targets,
			struct jinja_value v)
{
	struct jinja_seq *values;
	uint32_t i;
	int rc = jinja_iterate(r, v, &values);

	if (rc)
		return rc;
	if (values->n != targets->n)
		return jinja_fail(r, "%s values to unpack (expected %u, got %zu)",
				  values->n < targets->n ? "not enough" : "too many", targets->n,
				  values->n);
	for (i = 0; !rc && i < targets->n; i++)
		rc = jinja_assign(r, targets->items[i], values->items[i]);
	return rc;
}

int jinja_assign(struct jinja_render *r, const struct jinja_node *target, struct jinja_value v)
{
	int rc;

	if (target->type == NODE_NAME)
		return jinja_set_variable(r, target->name, v);
	rc = jinja_enter(r);
	if (rc)
		return rc;
	if (target->type == NODE_NAMESPACE_ATTRIBUTE)
		rc = assign_attribute(r, target, v);
	else
		rc = assign_tuple(r, &target->list, v);
	jinja_leave(r);
	return rc;
}

static int new_macro(struct jinja_render *r, const struct jinja_signature *signature,
		     struct jinja_value *ret)
{
	struct jinja_macro *macro;
	int rc = jinja_alloc(r, sizeof(*macro), &macro);

	if (rc)
		return rc;
	*macro = (struct jinja_macro){signature, r->scope};
	jinja_capture_scope(r->scope);
	*ret = (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
	return 0;
}

/* What no parameter took: *varargs, and through @extra the keywords. */
static int bind_rest(struct jinja_render *r, const struct jinja_signature *s,
		     const struct jinja_args *args, struct jinja_dict *extra)
{
	const struct jinja_names *names = &r->template->names;
	struct jinja_seq *varargs;
	size_t i;
	int rc = 0;

	if (s->uses_varargs) {
		rc = jinja_new_seq(r, JINJA_TUPLE, 0, &varargs);
		for (i = s->parameters.n; !rc && i < args->n; i++)
			rc = jinja_append(r, varargs, args->positional[i]);
		if (!rc)
			rc = jinja_set_variable(r, names->varargs, jinja_seq_value(varargs));
	} else if (args->n > s->parameters.n) {
		return jinja_fail(r, "macro '%.*s' takes at most %u arguments, %zu given",
				  (int)(s->name->length < 60 ? s->name->length : 60), s->name->data,
				  s->parameters.n, args->n);
	}
	if (!rc && s->uses_kwargs)
		rc = jinja_set_variable(r, names->kwargs, jinja_dict_value(extra));
	return rc;
}

static int bind_keywords(struct jinja_render *r, const struct jinja_signature *s,
			 const struct jinja_args *args, struct jinja_dict *extra)
{
	const struct jinja_names *names = &r->template->names;
	bool has_caller = false;
	size_t i, k;
	int rc = 0;

	for (k = 0; !rc && k < args->n_keywords; k++) {
		const struct jinja_kwarg *keyword = &args->keywords[k];
		struct jinja_value name = {.kind = JINJA_STRING};

		name.string = (struct jinja_str *)keyword->name;
		for (i = 0; i < s->parameters.n; i++) {
			const struct jinja_str *p = s->parameters.items[i]->name;

			if (p->length == keyword->name->length &&
			    !memcmp(p->data, keyword->name->data, p->length))
				break;
		}
		if (i < s->parameters.n && i < args->n)
			return jinja_fail(r, "macro '%.*s' got two values for one argument",
					  (int)(s->name->length < 60 ? s->name->length : 60),
					  s->name->data);
		if (i < s->parameters.n) {
			rc = jinja_set_variable(r, s->parameters.items[i]->name, keyword->value);
		} else if (keyword->name == names->caller && s->uses_caller) {
			has_caller = true;
			rc = jinja_set_variable(r, names->caller, keyword->value);
		} else if (s->uses_kwargs) {
			rc = jinja_dict_set(r, extra, name, keyword->value);
		} else {
			return jinja_fail(
				r, "macro '%.*s' has no argument '%.*s'",
				(int)(s->name->length < 60 ? s->name->length : 60), s->name->data,
				(int)(keyword->name->length < 60 ? keyword->name->length : 60),
				keyword->name->data);
		}
	}
	if (!rc && s->uses_caller && !has_caller) {
		struct jinja_value none;

		rc = jinja_undefined(r, &none, "no caller defined");
		if (!rc)
			rc = jinja_set_variable(r, names->caller, none);
	}
	return rc;
}

/* Parameters without an argument: the default, evaluated inside the macro, or undefined. */
static int bind_defaults(struct jinja_render *r, const struct jinja_signature *s)
{
	uint32_t first_default = s->parameters.n - s->defaults.n, i, k;
	int rc = 0;

	for (i = 0; !rc && i < s->parameters.n; i++) {
		const struct jinja_str *name = s->parameters.items[i]->name;
		struct jinja_value v;

		for (k = 0; k < r->scope->n && r->scope->bindings[k].name != name; k++)
			;
		if (k < r->scope->n)
			continue;
		if (i >= first_default)
			rc = jinja_eval(r, s->defaults.items[i - first_default], &v);
		else
			rc = jinja_undefined(r, &v, "parameter '%.*s' was not provided",
					     (int)(name->length < 60 ? name->length : 60),
					     name->data);
		if (!rc)
			rc = jinja_set_variable(r, name, v);
	}
	return rc;
}

int jinja_call_macro(struct jinja_render *r, struct jinja_macro *macro,
		     const struct jinja_args *args, struct jinja_value *ret)
{
	const struct jinja_signature *s = macro->signature;
	struct jinja_scope *caller_scope = r->scope;
	size_t mark = r->out.length, i;
	struct jinja_dict *extra;
	int rc = jinja_push_scope(r, macro->scope);

	if (!rc)
		rc = jinja_new_dict(r, &extra);
	for (i = 0; !rc && i < args->n && i < s->parameters.n; i++)
		rc = jinja_set_variable(r, s->parameters.items[i]->name, args->positional[i]);
	if (!rc)
		rc = bind_keywords(r, s, args, extra);
	if (!rc)
		rc = bind_rest(r, s, args, extra);
	if (!rc)
		rc = bind_defaults(r, s);
	if (!rc)
		rc = jinja_exec(r, &s->body);
	r->scope = caller_scope;
	return rc ? rc : jinja_captured(r, mark, ret);
}

/* Run a body in a scope of its own; what it writes is cut off into *ret. */
static int capture_body(struct jinja_render *r, const struct jinja_nodes *body,
			struct jinja_value *ret)
{
	struct jinja_scope *outer = r->scope;
	size_t mark = r->out.length;
	struct jinja_value text;
	int flow, rc = jinja_push_scope(r, outer);

	if (rc)
		return rc;
	flow = jinja_exec(r, body);
	r->scope = outer;
	if (flow < 0)
		return flow;
	rc = jinja_captured(r, mark, &text);
	if (rc)
		return rc;
	*ret = text;
	return flow;
}

static int exec_set_block(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v;
	int rc = capture_body(r, &node->set.body, &v);

	if (rc)
		return rc;
	if (node->set.value)
		rc = jinja_apply_filter(r, node->set.value, v, &v);
	return rc ? rc : jinja_assign(r, node->set.target, v);
}

static int exec_filter_block(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v;
	int rc = capture_body(r, &node->block.body, &v);

	if (!rc)
		rc = jinja_apply_filter(r, node->block.filter, v, &v);
	return rc ? rc : jinja_write_str(r, v);
}

static int exec_in_scope(struct jinja_render *r, const struct jinja_nodes *body)
{
	struct jinja_scope *outer = r->scope;
	int rc = jinja_push_scope(r, outer);

	if (!rc)
		rc = jinja_exec(r, body);
	r->scope = outer;
	return rc;
}

static int exec_with(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_scope *outer = r->scope, *inner;
	struct jinja_value v;
	uint32_t i;
	int rc = jinja_push_scope(r, outer);

	inner = r->scope;
	for (i = 0; !rc && i < node->with.targets.n; i++) {
		r->scope = outer;
		rc = jinja_eval(r, node->with.values.items[i], &v);
		r->scope = inner;
		if (!rc)
			rc = jinja_assign(r, node->with.targets.items[i], v);
	}
	if (!rc)
		rc = jinja_exec(r, &node->with.body);
	r->scope = outer;
	return rc;
}

static int exec_call_block(struct jinja_render *r, const struct jinja_node *node)
{
	const struct jinja_node *call = node->call_block.call;
	struct jinja_value caller, callee, result;
	struct jinja_args args;
	int rc = new_macro(r, &node->call_block.caller, &caller);

	if (!rc)
		rc = jinja_eval(r, call->call.callee, &callee);
	if (!rc)
		rc = jinja_eval_args(r, &call->call.arguments, &caller, &args);
	r->line = node->line;
	if (!rc)
		rc = jinja_call(r, callee, &args, &result);
	return rc ? rc : jinja_write_str(r, result);
}

static int exec_if(struct jinja_render *r, const struct jinja_node *node)
{
	const struct jinja_node *arm = node;
	struct jinja_value test;
	uint32_t i = 0;

	for (;;) {
		int rc = jinja_eval(r, arm->branch.test, &test);

		if (rc)
			return rc;
		if (jinja_truth(test))
			return jinja_exec(r, &arm->branch.body);
		if (i == node->branch.arms.n)
			return jinja_exec(r, &node->branch.otherwise);
		arm = node->branch.arms.items[i++];
	}
}

static int exec_node(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value v;
	int rc;

	switch (node->type) {
	case NODE_TEXT: return jinja_write(r, node->text.data, node->text.length);
	case NODE_OUTPUT:
		rc = jinja_eval(r, node->expression, &v);
		return rc ? rc : jinja_write_str(r, v);
	case NODE_IF: return exec_if(r, node);
	case NODE_FOR: return jinja_exec_for(r, node);
	case NODE_SET:
		rc = jinja_eval(r, node->set.value, &v);
		return rc ? rc : jinja_assign(r, node->set.target, v);
	case NODE_SET_BLOCK: return exec_set_block(r, node);
	case NODE_WITH: return exec_with(r, node);
	case NODE_MACRO:
		rc = new_macro(r, &node->macro, &v);
		return rc ? rc : jinja_set_variable(r, node->macro.name, v);
	case NODE_CALL_BLOCK: return exec_call_block(r, node);
	case NODE_FILTER_BLOCK: return exec_filter_block(r, node);
	case NODE_SCOPE: return exec_in_scope(r, &node->block.body);
	default: return node->type == NODE_BREAK ? JINJA_BREAK : JINJA_CONTINUE;
	}
}

int jinja_exec(struct jinja_render *r, const struct jinja_nodes *nodes)
{
	uint32_t i;
	int rc = jinja_enter(r);

	if (rc)
		return rc;
	for (i = 0; !rc && i < nodes->n; i++) {
		r->line = nodes->items[i]->line;
		rc = jinja_charge(r, 1);
		if (!rc)
			rc = exec_node(r, nodes->items[i]);
	}
	jinja_leave(r);
	return rc;
}
