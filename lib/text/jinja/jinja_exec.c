// SPDX-License-Identifier: MIT
/*
 * Execution of statements, scopes, macros and loops.
 *
 * Scopes: the template, each round of a loop and its `else`, and the bodies of macros, calls,
 * `with`, `filter`, block sets and `generation` have a scope of their own; `if` has none. A name is
 * looked up from the inside out, then among the variables of the render, then among the global
 * functions.
 *
 * A loop's filter runs as late as possible, as a generator would: an item is tested in its round,
 * or when loop.last, loop.nextitem or loop.length need the items ahead.
 */
#include "jinja_render.h"

#include <string.h>

void jinja_push_scope(struct jinja_render *r, struct jinja_scope *parent)
{
	struct jinja_scope *scope = jinja_alloc(r, 1, sizeof(*scope));

	*scope = (struct jinja_scope){.parent = parent};
	r->scope = scope;
}

static struct jinja_binding *find_binding(const struct jinja_scope *scope,
					  const struct jinja_str *name)
{
	uint32_t i;

	for (i = 0; i < scope->n; i++)
		if (scope->bindings[i].name == name)
			return &scope->bindings[i];
	return NULL;
}

static void set_variable(struct jinja_render *r, const struct jinja_str *name, struct jinja_value v)
{
	struct jinja_scope *scope = r->scope;
	struct jinja_binding *binding = find_binding(scope, name);

	if (binding) {
		binding->value = v;
		return;
	}
	if (scope->n == scope->capacity) {
		uint32_t capacity = scope->capacity * 2 + 4;
		struct jinja_binding *bindings = jinja_alloc(r, capacity, sizeof(*bindings));

		if (scope->n)
			memcpy(bindings, scope->bindings, scope->n * sizeof(*bindings));
		scope->bindings = bindings;
		scope->capacity = capacity;
	}
	scope->bindings[scope->n++] = (struct jinja_binding){name, v};
	jinja_charge(r, scope->n / 16);
}

struct jinja_value jinja_get_variable(struct jinja_render *r, const struct jinja_str *name)
{
	const struct jinja_builtin *global;
	const struct jinja_scope *scope;
	struct jinja_value *found;
	struct jinja_bound *bound;

	for (scope = r->scope; scope; scope = scope->parent) {
		struct jinja_binding *binding = find_binding(scope, name);

		jinja_charge(r, scope->n / 16);
		if (binding)
			return binding->value;
	}
	jinja_charge_bytes(r, name->length);
	found = jinja_dict_find(&r->arena, r->context, name);
	if (found)
		return *found;
	global = jinja_find_global(name);
	if (!global)
		return jinja_undefined(r, "'%.*s' is undefined", JINJA_SHOW(name));
	bound = jinja_alloc(r, 1, sizeof(*bound));
	*bound = (struct jinja_bound){global, jinja_none()};
	return (struct jinja_value){.kind = JINJA_CALLABLE, .callable = bound};
}

static void assign(struct jinja_render *r, const struct jinja_node *target, struct jinja_value v)
{
	const struct jinja_nodes *targets = &target->list;
	struct jinja_value object;
	struct jinja_seq *values;
	uint32_t i;

	if (target->type == NODE_NAME) {
		set_variable(r, target->name, v);
		return;
	}
	if (target->type == NODE_ATTRIBUTE) {
		object = jinja_get_variable(r, target->a->name);
		if (object.kind != JINJA_NAMESPACE)
			jinja_fail(r, "cannot assign attribute on non-namespace object");
		jinja_dict_set(r, object.dict, jinja_str_value(target->name), v);
		return;
	}
	jinja_enter(r);
	values = jinja_iterate(r, v);
	if (values->n != targets->n)
		jinja_fail(r, "%s values to unpack (expected %u, got %zu)",
			   values->n < targets->n ? "not enough" : "too many", targets->n,
			   values->n);
	for (i = 0; i < targets->n; i++)
		assign(r, targets->items[i], values->items[i]);
	jinja_leave(r);
}

static struct jinja_value new_macro(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_macro *macro = jinja_alloc(r, 1, sizeof(*macro));
	struct jinja_scope *scope;

	*macro = (struct jinja_macro){node, r->scope};
	for (scope = r->scope; scope && !scope->captured; scope = scope->parent)
		scope->captured = true;
	return (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
}

static void bind_keyword(struct jinja_render *r, const struct jinja_node *macro,
			 const struct jinja_kwarg *keyword, size_t n_positional,
			 struct jinja_dict *extra)
{
	const struct jinja_names *names = &r->template->names;
	uint32_t i = 0;

	while (i < macro->list.n && !jinja_str_equal(macro->list.items[i]->name, keyword->name))
		i++;
	if (i < macro->list.n && i < n_positional)
		jinja_fail(r, "macro '%.*s' got two values for one argument",
			   JINJA_SHOW(macro->name));
	if (i < macro->list.n)
		set_variable(r, macro->list.items[i]->name, keyword->value);
	else if (keyword->name == names->caller && macro->op & MACRO_CALLER)
		set_variable(r, names->caller, keyword->value);
	else if (macro->op & MACRO_KWARGS)
		jinja_dict_set(r, extra, jinja_str_value(keyword->name), keyword->value);
	else
		jinja_fail(r, "macro '%.*s' has no argument '%.*s'", JINJA_SHOW(macro->name),
			   JINJA_SHOW(keyword->name));
}

/* The scope of a call: parameters, then varargs, kwargs and caller where the body uses them. */
static void bind_arguments(struct jinja_render *r, const struct jinja_node *macro,
			   const struct jinja_args *args)
{
	const struct jinja_names *names = &r->template->names;
	const struct jinja_nodes *parameters = &macro->list;
	struct jinja_dict *extra = jinja_new_dict(r);
	struct jinja_seq *varargs;
	size_t i;

	for (i = 0; i < args->n && i < parameters->n; i++)
		set_variable(r, parameters->items[i]->name, args->positional[i]);
	for (i = 0; i < args->n_keywords; i++)
		bind_keyword(r, macro, &args->keywords[i], args->n, extra);
	if (macro->op & MACRO_CALLER && !find_binding(r->scope, names->caller))
		set_variable(r, names->caller, jinja_undefined(r, "no caller defined"));
	if (macro->op & MACRO_VARARGS) {
		varargs = jinja_new_seq(r, JINJA_TUPLE, 0);
		if (args->n > parameters->n)
			jinja_append_all(r, varargs, args->positional + parameters->n,
					 args->n - parameters->n);
		set_variable(r, names->varargs, jinja_seq_value(varargs));
	} else if (args->n > parameters->n) {
		jinja_fail(r, "macro '%.*s' takes at most %u arguments, %zu given",
			   JINJA_SHOW(macro->name), parameters->n, args->n);
	}
	if (macro->op & MACRO_KWARGS)
		set_variable(r, names->kwargs, jinja_dict_value(extra));
	/* defaults are evaluated inside the macro, and may use the parameters before them */
	for (i = 0; i < parameters->n; i++) {
		const struct jinja_node *parameter = parameters->items[i];

		if (find_binding(r->scope, parameter->name))
			continue;
		set_variable(r, parameter->name,
			     parameter->a ? jinja_eval(r, parameter->a)
					  : jinja_undefined(r, "parameter '%.*s' was not provided",
							    JINJA_SHOW(parameter->name)));
	}
}

struct jinja_value jinja_call_macro(struct jinja_render *r, const struct jinja_macro *macro,
				    const struct jinja_args *args)
{
	struct jinja_scope *outer = r->scope;
	size_t mark = r->out.len;

	jinja_push_scope(r, macro->scope);
	bind_arguments(r, macro->node, args);
	jinja_exec(r, &macro->node->body);
	r->scope = outer;
	return jinja_captured(r, mark);
}

static enum jinja_flow exec_in_scope(struct jinja_render *r, const struct jinja_nodes *body)
{
	struct jinja_scope *outer = r->scope;
	enum jinja_flow flow;

	jinja_push_scope(r, outer);
	flow = jinja_exec(r, body);
	r->scope = outer;
	return flow;
}

/* Passes a body's output through @filter, if any, and assigns it to @target, or else writes it. */
static enum jinja_flow exec_captured(struct jinja_render *r, const struct jinja_nodes *body,
				     const struct jinja_node *filter,
				     const struct jinja_node *target)
{
	size_t mark = r->out.len;
	enum jinja_flow flow = exec_in_scope(r, body);
	struct jinja_value v = jinja_captured(r, mark);

	if (flow != JINJA_NEXT) /* as if the rest of the statement had been skipped */
		return flow;
	if (filter)
		v = jinja_apply_filter(r, filter, v);
	if (target)
		assign(r, target, v);
	else
		jinja_write_str(r, v);
	return JINJA_NEXT;
}

static enum jinja_flow exec_with(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_scope *outer = r->scope, *inner;
	enum jinja_flow flow;
	uint32_t i;

	jinja_push_scope(r, outer);
	inner = r->scope;
	for (i = 0; i < node->list.n; i++) {
		struct jinja_value v;

		r->scope = outer;
		v = jinja_eval(r, node->list.items[i]->b);
		r->scope = inner;
		assign(r, node->list.items[i]->a, v);
	}
	flow = jinja_exec(r, &node->body);
	r->scope = outer;
	return flow;
}

static void exec_call_block(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value caller = new_macro(r, node);
	struct jinja_value callee = jinja_eval(r, node->a->a);
	struct jinja_args args = jinja_eval_args(r, node->a, &caller);

	r->run.line = node->line;
	jinja_write_str(r, jinja_call(r, callee, &args));
}

static enum jinja_flow exec_if(struct jinja_render *r, const struct jinja_node *arm)
{
	while (!jinja_truth(jinja_eval(r, arm->a))) {
		if (!arm->otherwise.n || arm->otherwise.items[0]->type != NODE_ELIF)
			return jinja_exec(r, &arm->otherwise);
		arm = arm->otherwise.items[0];
	}
	return jinja_exec(r, &arm->body);
}

/* Whether the loop has item @index. Runs the filter as far as needed. */
static bool has_item(struct jinja_render *r, struct jinja_loop *loop, size_t index)
{
	struct jinja_scope *scope = r->scope;
	unsigned int line = r->run.line;

	while (loop->items->n <= index && loop->source_at < loop->source->n) {
		struct jinja_value item = loop->source->items[loop->source_at++];

		jinja_push_scope(r, loop->scope);
		assign(r, loop->node->a, item);
		if (jinja_truth(jinja_eval(r, loop->node->c)))
			jinja_append(r, loop->items, item);
	}
	r->scope = scope;
	r->run.line = line;
	return index < loop->items->n;
}

static enum jinja_flow run_loop(struct jinja_render *r, const struct jinja_node *node,
				struct jinja_value iterable, unsigned int depth)
{
	struct jinja_scope *outer = r->scope;
	struct jinja_loop *loop = jinja_alloc(r, 1, sizeof(*loop));
	const struct jinja_value value = {.kind = JINJA_LOOP, .loop = loop};
	enum jinja_flow flow = JINJA_NEXT;
	bool completed = false;

	*loop = (struct jinja_loop){.node = node, .scope = outer, .depth = depth};
	loop->source = jinja_iterate(r, iterable);
	loop->items = node->c ? jinja_new_seq(r, JINJA_LIST, 0) : loop->source;
	loop->source_at = node->c ? 0 : loop->source->n;
	for (; flow != JINJA_BREAK && has_item(r, loop, loop->index); loop->index++) {
		jinja_charge(r, 1); /* also for an empty body */
		/*
		 * Each round has a new scope, in the memory of the last one unless a macro refers
		 * to that.
		 */
		if (loop->index == 0 || r->scope->captured)
			jinja_push_scope(r, outer);
		else
			r->scope->n = 0;
		assign(r, node->a, loop->items->items[loop->index]);
		set_variable(r, r->template->names.loop, value);
		flow = jinja_exec(r, &node->body);
		completed |= flow == JINJA_NEXT;
	}
	r->scope = outer;
	/* jinja2 also runs it if every round ended in a jump */
	return !completed ? exec_in_scope(r, &node->otherwise) : JINJA_NEXT;
}

struct jinja_value jinja_call_loop(struct jinja_render *r, struct jinja_loop *loop,
				   const struct jinja_args *args)
{
	struct jinja_scope *scope = r->scope;
	size_t mark = r->out.len;

	if (!loop->node->flag)
		jinja_fail(r, "a loop must have the 'recursive' marker to be called");
	if (args->n != 1 || args->n_keywords)
		jinja_fail(r, "loop() takes one argument, the items of the inner loop");
	r->scope = loop->scope;
	run_loop(r, loop->node, args->positional[0], loop->depth + 1);
	r->scope = scope;
	return jinja_captured(r, mark);
}

struct jinja_value jinja_loop_attribute(struct jinja_render *r, struct jinja_loop *loop,
					const struct jinja_str *name)
{
	int64_t index = (int64_t)loop->index, length;

	if (jinja_str_is(name, "index"))
		return jinja_int(index + 1);
	if (jinja_str_is(name, "index0"))
		return jinja_int(index);
	if (jinja_str_is(name, "first"))
		return jinja_bool(index == 0);
	if (jinja_str_is(name, "last"))
		return jinja_bool(!has_item(r, loop, loop->index + 1));
	if (jinja_str_is(name, "depth"))
		return jinja_int((int64_t)loop->depth + 1);
	if (jinja_str_is(name, "depth0"))
		return jinja_int((int64_t)loop->depth);
	if (jinja_str_is(name, "previtem"))
		return index ? loop->items->items[index - 1]
			     : jinja_undefined(r, "there is no previous item");
	if (jinja_str_is(name, "nextitem"))
		return has_item(r, loop, loop->index + 1)
			       ? loop->items->items[index + 1]
			       : jinja_undefined(r, "there is no next item");
	has_item(r, loop, SIZE_MAX); /* all of them */
	length = (int64_t)loop->items->n;
	if (jinja_str_is(name, "length"))
		return jinja_int(length);
	if (jinja_str_is(name, "revindex"))
		return jinja_int(length - index);
	if (jinja_str_is(name, "revindex0"))
		return jinja_int(length - index - 1);
	return jinja_undefined(r, "'loop' has no attribute '%.*s'", JINJA_SHOW(name));
}

static struct jinja_value loop_cycle(struct jinja_call *c)
{
	if (!c->args->n || c->args->n_keywords)
		jinja_fail(c->r, "loop.cycle() needs values");
	return c->args->positional[c->self.loop->index % c->args->n];
}

static struct jinja_value loop_changed(struct jinja_call *c)
{
	struct jinja_loop *loop = c->self.loop;
	struct jinja_value last = loop->changed;
	struct jinja_seq *seq = jinja_new_seq(c->r, JINJA_TUPLE, c->args->n);

	jinja_append_all(c->r, seq, c->args->positional, c->args->n);
	loop->changed = jinja_seq_value(seq);
	return jinja_bool(last.kind == JINJA_ABSENT || !jinja_equal(c->r, last, loop->changed));
}

const struct jinja_builtin jinja_loop_methods[] = {
	{"cycle", loop_cycle, "*", 0},
	{"changed", loop_changed, "*", 0},
	{NULL, NULL, NULL, 0},
};

static enum jinja_flow exec_node(struct jinja_render *r, const struct jinja_node *node)
{
	switch (node->type) {
	case NODE_TEXT: jinja_write(r, node->text.data, node->text.length); break;
	case NODE_OUTPUT: jinja_write_str(r, jinja_eval(r, node->a)); break;
	case NODE_IF: return exec_if(r, node);
	case NODE_FOR: return run_loop(r, node, jinja_eval(r, node->b), 0);
	case NODE_SET: assign(r, node->a, jinja_eval(r, node->b)); break;
	case NODE_SET_BLOCK: return exec_captured(r, &node->body, node->b, node->a);
	case NODE_WITH: return exec_with(r, node);
	case NODE_MACRO: set_variable(r, node->name, new_macro(r, node)); break;
	case NODE_CALL_BLOCK: exec_call_block(r, node); break;
	case NODE_FILTER_BLOCK: return exec_captured(r, &node->body, node->a, NULL);
	case NODE_SCOPE: return exec_in_scope(r, &node->body);
	case NODE_BREAK: return JINJA_BREAK;
	default: return JINJA_CONTINUE;
	}
	return JINJA_NEXT;
}

enum jinja_flow jinja_exec(struct jinja_render *r, const struct jinja_nodes *nodes)
{
	enum jinja_flow flow = JINJA_NEXT;
	uint32_t i;

	jinja_enter(r);
	for (i = 0; flow == JINJA_NEXT && i < nodes->n; i++) {
		r->run.line = nodes->items[i]->line;
		jinja_charge(r, 1);
		flow = exec_node(r, nodes->items[i]);
	}
	jinja_leave(r);
	return flow;
}
