// SPDX-License-Identifier: MIT
/*
 * `for` and the `loop` object.
 *
 * A loop's filter runs as late as possible, as a generator would: an item is tested when its round
 * comes, or when loop.last, loop.nextitem or loop.length ask for what is ahead.
 */
#include "jinja_render.h"

#include <string.h>

/* Does the loop have item @index? Runs the filter as far as needed. */
static int has_item(struct jinja_render *r, struct jinja_loop *loop, size_t index, bool *ret)
{
	struct jinja_scope *scope = r->scope;
	unsigned int line = r->line;
	struct jinja_value test;
	int rc = 0;

	while (!rc && loop->items->n <= index && loop->source_at < loop->source->n) {
		struct jinja_value item = loop->source->items[loop->source_at++];

		rc = jinja_push_scope(r, loop->scope);
		if (!rc)
			rc = jinja_assign(r, loop->node->loop.target, item);
		if (!rc)
			rc = jinja_eval(r, loop->node->loop.filter, &test);
		if (!rc && jinja_truth(test))
			rc = jinja_append(r, loop->items, item);
	}
	if (rc)
		return rc;
	r->scope = scope;
	r->line = line;
	*ret = index < loop->items->n;
	return 0;
}

static int run_body(struct jinja_render *r, struct jinja_loop *loop, struct jinja_value loop_value)
{
	const struct jinja_node *node = loop->node;
	int rc = jinja_charge(r, 1); /* an empty body costs as well */

	if (rc)
		return rc;
	/* a fresh scope each round; the memory of the last one serves again if nobody holds it */
	if (loop->index == 0 || r->scope->captured)
		rc = jinja_push_scope(r, loop->scope);
	else
		r->scope->n = 0;
	if (!rc)
		rc = jinja_assign(r, node->loop.target, loop->items->items[loop->index]);
	if (!rc)
		rc = jinja_set_variable(r, r->template->names.loop, loop_value);
	return rc ? rc : jinja_exec(r, &node->loop.body);
}

static int run_loop(struct jinja_render *r, const struct jinja_node *node,
		    struct jinja_value iterable, unsigned int depth)
{
	struct jinja_scope *outer = r->scope;
	struct jinja_value value = {.kind = JINJA_LOOP};
	struct jinja_loop *loop;
	bool more;
	int rc = jinja_alloc(r, sizeof(*loop), &loop);

	if (rc)
		return rc;
	*loop = (struct jinja_loop){.node = node, .scope = outer, .depth = depth};
	value.loop = loop;
	rc = jinja_iterate(r, iterable, &loop->source);
	if (!rc && node->loop.filter) {
		rc = jinja_new_seq(r, JINJA_LIST, 0, &loop->items);
	} else if (!rc) {
		loop->items = loop->source;
		loop->source_at = loop->source->n;
	}
	for (; !rc; loop->index++) {
		rc = has_item(r, loop, loop->index, &more);
		if (rc || !more)
			break;
		rc = run_body(r, loop, value);
		if (rc == JINJA_CONTINUE)
			rc = 0;
	}
	r->scope = outer;
	if (rc == JINJA_BREAK)
		return 0;
	if (!rc && loop->index == 0)
		return jinja_exec(r, &node->loop.otherwise);
	return rc;
}

int jinja_exec_for(struct jinja_render *r, const struct jinja_node *node)
{
	struct jinja_value iterable;
	int rc = jinja_eval(r, node->loop.iterable, &iterable);

	return rc ? rc : run_loop(r, node, iterable, 0);
}

int jinja_call_loop(struct jinja_render *r, struct jinja_loop *loop, const struct jinja_args *args,
		    struct jinja_value *ret)
{
	struct jinja_scope *scope = r->scope;
	size_t mark = r->out.length;
	int rc;

	if (!loop->node->recursive)
		return jinja_fail(r, "a loop must have the 'recursive' marker to be called");
	if (args->n != 1 || args->n_keywords)
		return jinja_fail(r, "loop() takes what it shall iterate");
	r->scope = loop->scope;
	rc = run_loop(r, loop->node, args->positional[0], loop->depth + 1);
	r->scope = scope;
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int loop_neighbour(struct jinja_render *r, struct jinja_loop *loop, bool next,
			  struct jinja_value *ret)
{
	bool there = loop->index > 0;
	int rc = 0;

	if (next)
		rc = has_item(r, loop, loop->index + 1, &there);
	if (rc)
		return rc;
	if (!there)
		return jinja_undefined(r, ret, "there is no %s item", next ? "next" : "previous");
	*ret = loop->items->items[next ? loop->index + 1 : loop->index - 1];
	return 0;
}

int jinja_loop_attribute(struct jinja_render *r, struct jinja_loop *loop,
			 const struct jinja_str *name, struct jinja_value *ret)
{
	int64_t index = (int64_t)loop->index;
	bool there;
	int rc;

	if (jinja_str_is(name, "index"))
		*ret = jinja_int(index + 1);
	else if (jinja_str_is(name, "index0"))
		*ret = jinja_int(index);
	else if (jinja_str_is(name, "first"))
		*ret = jinja_bool(index == 0);
	else if (jinja_str_is(name, "depth"))
		*ret = jinja_int((int64_t)loop->depth + 1);
	else if (jinja_str_is(name, "depth0"))
		*ret = jinja_int((int64_t)loop->depth);
	else if (jinja_str_is(name, "previtem") || jinja_str_is(name, "nextitem"))
		return loop_neighbour(r, loop, name->data[0] == 'n', ret);
	else if (jinja_str_is(name, "last")) {
		rc = has_item(r, loop, loop->index + 1, &there);
		if (!rc)
			*ret = jinja_bool(!there);
		return rc;
	} else {
		rc = has_item(r, loop, SIZE_MAX, &there); /* all of them */
		if (rc)
			return rc;
		if (jinja_str_is(name, "length"))
			*ret = jinja_int((int64_t)loop->items->n);
		else if (jinja_str_is(name, "revindex"))
			*ret = jinja_int((int64_t)loop->items->n - index);
		else if (jinja_str_is(name, "revindex0"))
			*ret = jinja_int((int64_t)loop->items->n - index - 1);
		else
			return jinja_undefined(r, ret, "'loop' has no attribute '%.*s'",
					       (int)(name->length < 60 ? name->length : 60),
					       name->data);
	}
	return 0;
}

static int loop_cycle(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	if (!args->n || args->n_keywords)
		return jinja_fail(r, "loop.cycle() needs values");
	*ret = args->positional[self.loop->index % args->n];
	return 0;
}

static int loop_changed(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *seq;
	bool equal = false;
	size_t i;
	int rc = jinja_new_seq(r, JINJA_TUPLE, args->n, &seq);

	if (rc)
		return rc;
	for (i = 0; i < args->n; i++)
		seq->items[i] = args->positional[i];
	seq->n = args->n;
	if (self.loop->changed.kind != JINJA_ABSENT)
		rc = jinja_equal(r, self.loop->changed, jinja_seq_value(seq), &equal);
	if (rc)
		return rc;
	self.loop->changed = jinja_seq_value(seq);
	*ret = jinja_bool(!equal);
	return 0;
}

const struct jinja_builtin jinja_loop_methods[] = {
	{"cycle", loop_cycle},
	{"changed", loop_changed},
	{NULL, NULL},
};
