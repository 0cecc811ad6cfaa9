// SPDX-License-Identifier: MIT
/*
 * Access to values (iteration, length, attributes, items, slices), evaluation of expressions, and
 * calls. Attributes and items follow jinja2's sandbox: `a.b` tries the object's methods, then its
 * items; `a['b']` the other way around. Missing ones are undefined, and so are those that the
 * sandbox hides.
 */
#include "jinja_render.h"

#include <string.h>

static struct jinja_seq *chars_of(struct jinja_render *r, const struct jinja_str *s)
{
	struct jinja_seq *seq = jinja_new_seq(r, JINJA_LIST, 0);
	size_t at = 0, n;
	uint32_t c;

	jinja_charge(r, s->length);
	for (; at < s->length; at += n) {
		n = jinja_decode(s, at, &c);
		jinja_append(r, seq, jinja_substring(r, s, at, at + n));
	}
	return seq;
}

struct jinja_seq *jinja_iterate(struct jinja_render *r, struct jinja_value v)
{
	struct jinja_seq *rest;

	switch (v.kind) {
	case JINJA_SEQ:
		if (!jinja_is_generator(v))
			return v.seq;
		rest = jinja_new_seq(r, JINJA_LIST, 0);
		rest->n = rest->capacity = v.seq->n - v.seq->position;
		if (rest->n)
			rest->items = v.seq->items + v.seq->position;
		v.seq->position = v.seq->n;
		return rest;
	case JINJA_DICT: return jinja_dict_items(r, v.dict, JINJA_KEYS);
	case JINJA_STRING: return chars_of(r, v.string);
	case JINJA_UNDEFINED: return jinja_new_seq(r, JINJA_LIST, 0);
	default: jinja_fail(r, "'%s' object is not iterable", jinja_type_name(v));
	}
}

int64_t jinja_length(struct jinja_render *r, struct jinja_value v)
{
	switch (v.kind) {
	case JINJA_STRING:
		jinja_charge_bytes(r, v.string->length);
		return (int64_t)jinja_str_chars(v.string);
	case JINJA_DICT: return (int64_t)v.dict->n;
	case JINJA_UNDEFINED: return 0;
	case JINJA_SEQ:
		if (!jinja_is_generator(v))
			return (int64_t)v.seq->n;
		/* fall through */
	default: jinja_fail(r, "object of type '%s' has no len()", jinja_type_name(v));
	}
}

/* Names that exist in Python and are hidden by the immutable sandbox. */
static bool is_forbidden(struct jinja_value object, const struct jinja_str *name)
{
	static const char *const of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
					       "sort",	 "extend", "remove", NULL};
	static const char *const of_dicts[] = {"clear",	     "pop",    "popitem",
					       "setdefault", "update", NULL};
	static const char *const none[] = {NULL};
	const char *const *names = jinja_is_list(object)       ? of_lists
				   : object.kind == JINJA_DICT ? of_dicts
							       : none;

	for (; *names; names++)
		if (jinja_str_is(name, *names))
			return true;
	return name->length > 4 && !memcmp(name->data, "__", 2) &&
	       !memcmp(name->data + name->length - 2, "__", 2);
}

/* Python's getattr(); ABSENT: there is no such attribute. */
static struct jinja_value own_attribute(struct jinja_render *r, struct jinja_value object,
					const struct jinja_str *name)
{
	const struct jinja_builtin *method = jinja_find_method(object, name);
	struct jinja_bound *bound;
	struct jinja_value *member;

	if (method) {
		bound = jinja_alloc(r, 1, sizeof(*bound));
		*bound = (struct jinja_bound){method, object};
		return (struct jinja_value){.kind = JINJA_CALLABLE, .callable = bound};
	}
	if (object.kind == JINJA_NAMESPACE) {
		jinja_charge_bytes(r, name->length);
		member = jinja_dict_find(&r->arena, object.dict, name);
		if (member)
			return *member;
	} else if (object.kind == JINJA_LOOP) {
		return jinja_loop_attribute(r, object.loop, name);
	} else if (object.kind == JINJA_CYCLER && jinja_str_is(name, "current")) {
		return object.cycle->items[object.cycle->position];
	} else if (object.kind == JINJA_MACRO && jinja_str_is(name, "name")) {
		return jinja_str_value(object.macro->node->name);
	} else if (object.kind == JINJA_SEQ && object.seq->flavor == JINJA_GROUP) {
		if (jinja_str_is(name, "grouper") || jinja_str_is(name, "list"))
			return object.seq->items[jinja_str_is(name, "list")];
	}
	if (object.kind != JINJA_NAMESPACE && is_forbidden(object, name))
		return jinja_undefined(r, "attribute '%.*s' of '%s' object is unsafe",
				       JINJA_SHOW(name), jinja_type_name(object));
	return (struct jinja_value){.kind = JINJA_ABSENT};
}

static struct jinja_value missing(struct jinja_render *r, struct jinja_value object,
				  struct jinja_value key)
{
	const char *type = object.kind == JINJA_NONE ? "None" : jinja_type_name(object);

	if (key.kind == JINJA_STRING)
		return jinja_undefined(r, "'%s%s' has no attribute '%.*s'", type,
				       object.kind == JINJA_NONE ? "" : " object",
				       JINJA_SHOW(key.string));
	if (key.kind == JINJA_INT)
		return jinja_undefined(r, "%s object has no element %lld", type,
				       (long long)key.integer);
	return jinja_undefined(r, "%s object has no such element", type);
}

static struct jinja_value char_at(struct jinja_render *r, struct jinja_value s, int64_t index)
{
	size_t at = jinja_str_offset(s.string, (size_t)index);
	struct jinja_value v;
	uint32_t c;

	jinja_charge_bytes(r, at);
	v = jinja_substring(r, s.string, at, at + jinja_decode(s.string, at, &c));
	v.safe = s.safe;
	return v;
}

/* object[key] without falling back to attributes; ABSENT: not found, for whatever reason */
static struct jinja_value own_item(struct jinja_render *r, struct jinja_value object,
				   struct jinja_value key)
{
	const struct jinja_value none = {.kind = JINJA_ABSENT};
	int64_t index, count;
	uint64_t hash;

	if (object.kind == JINJA_DICT) {
		struct jinja_entry *entry = NULL;

		if (jinja_hash(r, key, 0, &hash))
			entry = jinja_dict_find_hash(object.dict, hash, key);
		return entry ? entry->value : none;
	}
	if (!jinja_as_int(key, &index) ||
	    (!jinja_is_indexed(object) && object.kind != JINJA_STRING))
		return none;
	count = object.kind == JINJA_STRING ? (int64_t)jinja_str_chars(object.string)
					    : (int64_t)object.seq->n;
	if (index < 0)
		index += count;
	if (index < 0 || index >= count)
		return none;
	return object.kind == JINJA_STRING ? char_at(r, object, index) : object.seq->items[index];
}

struct jinja_value jinja_attribute(struct jinja_render *r, struct jinja_value object,
				   const struct jinja_str *name)
{
	struct jinja_value v;

	jinja_need_defined(r, object);
	v = own_attribute(r, object, name);
	if (v.kind == JINJA_ABSENT)
		v = own_item(r, object, jinja_str_value(name));
	return v.kind == JINJA_ABSENT ? missing(r, object, jinja_str_value(name)) : v;
}

struct jinja_value jinja_item(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value key)
{
	struct jinja_value v;

	jinja_need_defined(r, object);
	v = own_item(r, object, key);
	if (v.kind == JINJA_ABSENT && key.kind == JINJA_STRING)
		v = own_attribute(r, object, key.string);
	return v.kind == JINJA_ABSENT ? missing(r, object, key) : v;
}

/* A part of a slice, @standard where it is None. */
static int64_t slice_part(struct jinja_render *r, struct jinja_value v, int64_t standard)
{
	int64_t index = standard;

	if (v.kind != JINJA_NONE && !jinja_as_int(v, &index))
		jinja_fail(r, "slice indices must be integers or None, not '%s'",
			   jinja_type_name(v));
	return index;
}

/* Like Python's slice.indices(): a bound between @low and @high, @standard where it is None. */
static int64_t bound(struct jinja_render *r, struct jinja_value v, int64_t count, int64_t low,
		     int64_t high, int64_t standard)
{
	int64_t index = slice_part(r, v, standard);

	if (v.kind == JINJA_NONE)
		return standard;
	if (index < 0)
		index = index < -count ? low : index + count;
	if (index < low)
		return low;
	return index > high ? high : index;
}

static struct jinja_value take_chars(struct jinja_render *r, struct jinja_str *s, int64_t start,
				     int64_t step, int64_t n)
{
	size_t *offsets, at = 0, used = 0, chars = jinja_str_chars(s), i;
	char *data;
	uint32_t c;

	jinja_charge_bytes(r, s->length);
	if (step == 1)
		return jinja_substring(r, s, jinja_str_offset(s, (size_t)start),
				       jinja_str_offset(s, (size_t)(start + n)));
	offsets = jinja_alloc(r, chars + 1, sizeof(*offsets));
	data = jinja_alloc(r, 1, s->length);
	for (i = 0; i < chars; i++, at += jinja_decode(s, at, &c))
		offsets[i] = at;
	offsets[chars] = s->length;
	for (; n > 0; n--, start += step) {
		size_t size = offsets[start + 1] - offsets[start];

		memcpy(data + used, s->data + offsets[start], size);
		used += size;
	}
	return jinja_string(r, data, used);
}

static struct jinja_seq *take_items(struct jinja_render *r, const struct jinja_seq *from,
				    int64_t start, int64_t step, int64_t n)
{
	enum jinja_flavor flavor = from->flavor == JINJA_GROUP ? JINJA_TUPLE : from->flavor;
	struct jinja_seq *seq = jinja_new_seq(r, flavor, (size_t)n);
	int64_t i;

	jinja_charge(r, (uint64_t)n / 4);
	for (i = 0; i < n; i++)
		seq->items[i] = from->items[start + i * step];
	seq->n = (size_t)n;
	return seq;
}

struct jinja_value jinja_slice(struct jinja_render *r, struct jinja_value object,
			       const struct jinja_value part[3])
{
	int64_t start, stop, step, count, n = 0;
	struct jinja_value v;
	struct jinja_seq *seq;

	jinja_need_defined(r, object);
	if (object.kind != JINJA_STRING && !jinja_is_indexed(object))
		jinja_fail(r, "'%s' object cannot be sliced", jinja_type_name(object));
	count = jinja_length(r, object);
	step = slice_part(r, part[2], 1);
	if (!step)
		jinja_fail(r, "slice step cannot be zero");
	if (step < -count - 1)
		step = -count - 1; /* the same items, without overflow below */
	if (step > count + 1)
		step = count + 1;
	if (step > 0) {
		start = bound(r, part[0], count, 0, count, 0);
		stop = bound(r, part[1], count, 0, count, count);
		if (stop > start)
			n = (stop - start - 1) / step + 1;
	} else {
		start = bound(r, part[0], count, -1, count - 1, count - 1);
		stop = bound(r, part[1], count, -1, count - 1, -1);
		if (start > stop)
			n = (start - stop - 1) / -step + 1;
	}
	if (object.kind == JINJA_STRING) {
		v = take_chars(r, object.string, start, step, n);
		v.safe = object.safe;
		return v;
	}
	seq = take_items(r, object.seq, start, step, n);
	if (seq->flavor == JINJA_RANGE) {
		/* unsigned: a bound that is never reached may exceed 64 bits */
		uint64_t first = (uint64_t)object.seq->range[0];
		uint64_t every = (uint64_t)object.seq->range[2];

		seq->range[0] = (int64_t)(first + (uint64_t)start * every);
		seq->range[1] = (int64_t)(first + (uint64_t)stop * every);
		seq->range[2] = (int64_t)(every * (uint64_t)step);
	}
	return jinja_seq_value(seq);
}

struct jinja_value jinja_path(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value path)
{
	const struct jinja_str *s = path.string;
	size_t at = 0, end, i;

	if (path.kind != JINJA_STRING)
		return jinja_item(r, object, path);
	for (; at <= s->length; at = end + 1) {
		int64_t index = 0;

		for (end = at; end < s->length && s->data[end] != '.';)
			end++;
		for (i = at; i < end && i - at < 18 && s->data[i] >= '0' && s->data[i] <= '9'; i++)
			index = index * 10 + (s->data[i] - '0');
		object = jinja_item(r, object,
				    i == end && end > at ? jinja_int(index)
							 : jinja_substring(r, s, at, end));
	}
	return object;
}

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
	/* b is *args and c is **kwargs, also of filters and tests, whose input is a */
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
	case JINJA_JOINER: /* the first call gives "", later ones the separator */
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
	case NODE_OR: /* the value is one of the operands, as in Python */
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
	default: /* a slice in a tuple of indices */ jinja_fail(r, "a slice is not allowed here");
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
