// SPDX-License-Identifier: MIT
/*
 * Calls of built-ins; tests, global functions, and the methods of dictionaries, lists and cyclers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jinja_render.h"

enum { MAX_RANGE = 100000 }; /* as jinja2's sandbox */

struct param {
	struct jinja_str name;
	char type;
	bool optional;
};

/* "old:s new:s count:i?" */
static size_t parse_params(const char *text, struct param out[JINJA_MAX_PARAMS])
{
	size_t n = 0;

	while (*text && n < JINJA_MAX_PARAMS) {
		size_t length = strcspn(text, ":");

		out[n].name = (struct jinja_str){text, length, length};
		out[n].type = text[length + 1];
		out[n].optional = text[length + 2] == '?';
		text += strcspn(text, " ");
		text += *text == ' ';
		n++;
	}
	return n;
}

static struct jinja_value convert(struct jinja_call *c, const struct param *p, struct jinja_value v)
{
	const char *what = c->builtin->name;
	int64_t i;

	switch (p->type) {
	case 'b': return jinja_bool(jinja_truth(v));
	case 't': return jinja_str_value(jinja_to_str(c->r, v));
	case 'v': return v;
	default: break;
	}
	if (v.kind == JINJA_NONE && p->optional)
		return (struct jinja_value){.kind = JINJA_ABSENT};
	jinja_need_defined(c->r, v);
	if (p->type == 'i') {
		if (!jinja_as_int(v, &i))
			jinja_fail(c->r, "%s: an integer is required, not '%s'", what,
				   jinja_type_name(v));
		return jinja_int(i);
	}
	if (v.kind != JINJA_STRING)
		jinja_fail(c->r, "%s: a string is required, not '%s'", what, jinja_type_name(v));
	return p->type == 'e' && c->self.safe ? jinja_escape(c->r, v) : v;
}

static void bind(struct jinja_call *c, const char *text)
{
	const struct jinja_args *args = c->args;
	const char *what = c->builtin->name;
	struct param params[JINJA_MAX_PARAMS];
	size_t n = parse_params(text, params), i, k;

	if (!n && (args->n || args->n_keywords))
		jinja_fail(c->r, "%s takes no arguments", what);
	if (args->n > n)
		jinja_fail(c->r, "%s takes at most %zu arguments, %zu given", what, n, args->n);
	for (i = 0; i < args->n; i++)
		c->arg[i] = args->positional[i];
	for (k = 0; k < args->n_keywords; k++) {
		const struct jinja_str *name = args->keywords[k].name;

		for (i = 0; i < n && !jinja_str_equal(name, &params[i].name); i++)
			;
		if (i == n)
			jinja_fail(c->r, "%s has no argument '%.*s'", what, JINJA_SHOW(name));
		if (c->arg[i].kind != JINJA_ABSENT)
			jinja_fail(c->r, "%s got two values for argument '%.*s'", what,
				   JINJA_SHOW(name));
		c->arg[i] = args->keywords[k].value;
	}
	for (i = 0; i < n; i++) {
		if (c->arg[i].kind != JINJA_ABSENT)
			c->arg[i] = convert(c, &params[i], c->arg[i]);
		else if (!params[i].optional)
			jinja_fail(c->r, "%s needs argument '%.*s'", what,
				   JINJA_SHOW(&params[i].name));
	}
}

struct jinja_value jinja_call_builtin(struct jinja_render *r, const struct jinja_builtin *builtin,
				      struct jinja_value self, const struct jinja_args *args)
{
	struct jinja_call c = {.r = r, .builtin = builtin, .self = self, .args = args};
	char input = builtin->params[0];
	struct jinja_value v;
	size_t i;

	if (input != '*')
		bind(&c, builtin->params + (input == '$' || input == '#'));
	if (input == '$' || input == '#') {
		c.self = jinja_str_value(jinja_to_str(r, self));
		c.self.safe = self.safe;
	}
	v = builtin->call(&c);
	if (input != '#' || !self.safe)
		return v;
	if (v.kind == JINJA_STRING)
		v.safe = true;
	for (i = 0; v.kind == JINJA_SEQ && i < v.seq->n; i++) /* new from split() and the like */
		v.seq->items[i].safe = v.seq->items[i].kind == JINJA_STRING;
	return v;
}

static const struct jinja_builtin *find(const struct jinja_builtin *table,
					const struct jinja_str *name)
{
	for (; table->name; table++)
		if (jinja_str_is(name, table->name))
			return table;
	return NULL;
}

/* Tests. If the kind alone decides, `mode` is a mask of kinds. */

#define KIND(name) (1 << JINJA_##name)

static struct jinja_value test_kind(struct jinja_call *c)
{
	return jinja_bool(c->builtin->mode & 1 << c->self.kind);
}

static struct jinja_value test_boolean(struct jinja_call *c)
{
	return jinja_bool(c->self.kind == JINJA_BOOL && c->self.boolean == c->builtin->mode);
}

/* Has a length and items: not generators or the views of a dict. */
static struct jinja_value test_sequence(struct jinja_call *c)
{
	return jinja_bool(c->builtin->mode & 1 << c->self.kind || jinja_is_indexed(c->self));
}

static struct jinja_value test_escaped(struct jinja_call *c)
{
	return jinja_bool(c->self.kind == JINJA_STRING && c->self.safe);
}

static struct jinja_value test_sameas(struct jinja_call *c)
{
	struct jinja_value a = c->self, b = c->arg[0];

	if (a.kind != b.kind)
		return jinja_bool(false);
	if (a.kind == JINJA_SEQ || a.kind == JINJA_DICT)
		return jinja_bool(a.dict == b.dict); /* the same object */
	return jinja_bool(jinja_equal(c->r, a, b));
}

/* odd, even; divisibleby has an argument */
static struct jinja_value test_remainder(struct jinja_call *c)
{
	struct jinja_value divisor = jinja_given(c, 0) ? c->arg[0] : jinja_int(2);
	struct jinja_value rest = jinja_binary(c->r, TOKEN_MOD, c->self, divisor);

	return jinja_bool(jinja_equal(c->r, rest, jinja_int(c->builtin->mode)));
}

static struct jinja_value test_compare(struct jinja_call *c)
{
	return jinja_bool(
		jinja_compare(c->r, (enum jinja_compare_op)c->builtin->mode, c->self, c->arg[0]));
}

static struct jinja_value test_case(struct jinja_call *c)
{
	const char *name = c->builtin->mode ? "isupper" : "islower";
	const struct jinja_str method = {name, strlen(name), 0};

	return jinja_call_builtin(c->r, find(jinja_string_methods, &method), c->self, c->args);
}

static struct jinja_value test_filter(struct jinja_call *c)
{
	return jinja_bool(c->self.kind == JINJA_STRING && jinja_find_filter(c->self.string));
}

static struct jinja_value test_test(struct jinja_call *c)
{
	return jinja_bool(c->self.kind == JINJA_STRING && jinja_find_test(c->self.string));
}

static const struct jinja_builtin tests[] = {
	{"defined", test_kind, "", ~KIND(UNDEFINED)},
	{"undefined", test_kind, "", KIND(UNDEFINED)},
	{"none", test_kind, "", KIND(NONE)},
	{"boolean", test_kind, "", KIND(BOOL)},
	{"true", test_boolean, "", true},
	{"false", test_boolean, "", false},
	{"integer", test_kind, "", KIND(INT) | KIND(BIGINT)},
	{"float", test_kind, "", KIND(FLOAT)},
	{"number", test_kind, "", KIND(INT) | KIND(BIGINT) | KIND(FLOAT) | KIND(BOOL)},
	{"string", test_kind, "", KIND(STRING)},
	{"mapping", test_kind, "", KIND(DICT)},
	{"sequence", test_sequence, "", KIND(STRING) | KIND(DICT) | KIND(UNDEFINED)},
	{"iterable", test_kind, "",
	 KIND(STRING) | KIND(SEQ) | KIND(DICT) | KIND(UNDEFINED) | KIND(LOOP)},
	{"callable", test_kind, "",
	 KIND(UNDEFINED) | KIND(CALLABLE) | KIND(MACRO) | KIND(LOOP) | KIND(JOINER)},
	{"escaped", test_escaped, "", 0},
	{"sameas", test_sameas, "other:v", 0},
	{"odd", test_remainder, "", 1},
	{"even", test_remainder, "", 0},
	{"divisibleby", test_remainder, "num:v", 0},
	{"lower", test_case, "$", 0},
	{"upper", test_case, "$", 1},
	{"filter", test_filter, "", 0},
	{"test", test_test, "", 0},
	{"in", test_compare, "seq:v", COMPARE_IN},
	{"eq", test_compare, "other:v", COMPARE_EQ},
	{"equalto", test_compare, "other:v", COMPARE_EQ},
	{"==", test_compare, "other:v", COMPARE_EQ},
	{"ne", test_compare, "other:v", COMPARE_NE},
	{"!=", test_compare, "other:v", COMPARE_NE},
	{"lt", test_compare, "other:v", COMPARE_LT},
	{"lessthan", test_compare, "other:v", COMPARE_LT},
	{"<", test_compare, "other:v", COMPARE_LT},
	{"le", test_compare, "other:v", COMPARE_LE},
	{"<=", test_compare, "other:v", COMPARE_LE},
	{"gt", test_compare, "other:v", COMPARE_GT},
	{"greaterthan", test_compare, "other:v", COMPARE_GT},
	{">", test_compare, "other:v", COMPARE_GT},
	{"ge", test_compare, "other:v", COMPARE_GE},
	{">=", test_compare, "other:v", COMPARE_GE},
	{NULL, NULL, NULL, 0},
};

/* Global functions */

static struct jinja_value global_range(struct jinja_call *c)
{
	bool two = c->arg[1].kind != JINJA_ABSENT;
	int64_t start = two ? c->arg[0].integer : 0, step = jinja_int_arg(c, 2, 1);
	int64_t stop = c->arg[two].integer;
	struct jinja_seq *seq;
	uint64_t n = 0, i;

	if (!step)
		jinja_fail(c->r, "range: the step must not be zero");
	if (step > 0 && start < stop)
		n = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
	else if (step < 0 && start > stop)
		n = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
	if (n > MAX_RANGE)
		jinja_fail(c->r, "range: %" PRIu64 " items, the limit is %d", n, MAX_RANGE);
	jinja_charge(c->r, n / 4);
	seq = jinja_new_seq(c->r, JINJA_RANGE, (size_t)n);
	for (i = 0; i < n; i++)
		seq->items[i] = jinja_int((int64_t)((uint64_t)start + i * (uint64_t)step));
	seq->n = (size_t)n;
	memcpy(seq->range, (int64_t[3]){start, stop, step}, sizeof(seq->range));
	return jinja_seq_value(seq);
}

/* dict and namespace */
static struct jinja_value global_dict(struct jinja_call *c)
{
	struct jinja_value v =
		jinja_dict_value(jinja_dict_from_args(c->r, c->builtin->name, c->args));

	v.kind = (uint8_t)c->builtin->mode;
	return v;
}

static struct jinja_value global_raise(struct jinja_call *c)
{
	const struct jinja_str *message = c->arg[0].string;

	jinja_throw(&c->r->run, TXDA_TEMPLATE_RAISED, "%.*s",
		    (int)(message->length < 4096 ? message->length : 4096), message->data);
}

/*
 * The length of the conversion that starts with the % at @at, and its last character in *ret_code;
 * 0: there is none. glibc's flags, a width of up to two digits and the modifiers E and O may come
 * before that, such as - for no padding.
 */
static size_t conversion_length(const struct jinja_str *format, size_t at, char *ret_code)
{
	static const char flags[] = "_-0^#", digits[] = "0123456789", modifiers[] = "EO";
	const char *text = format->data + at;
	size_t left = format->length - at, n = 1, last;

	while (n < left && n < 4 && text[n] && strchr(flags, text[n]))
		n++;
	for (last = n + 2; n < left && n < last && text[n] && strchr(digits, text[n]);)
		n++;
	if (n < left && text[n] && strchr(modifiers, text[n]))
		n++;
	*ret_code = n < left ? text[n] : '\0';
	return *ret_code ? n + 1 : 0;
}

/*
 * One conversion at a time: the format comes from the template, and unknown conversions are
 * undefined in C.
 */
static struct jinja_value global_strftime_now(struct jinja_call *c)
{
	static const char known[] = "aAbBcdHIjmMpSUwWxXyYuVGDeFTRhnrtCgklPs%";
	const struct jinja_str *format = c->arg[0].string;
	size_t mark = c->r->out.len, i, n;
	time_t seconds = time(NULL);
	struct tm now = {0};

	if (c->r->now)
		now = *c->r->now;
	else if (seconds == (time_t)-1 || !localtime_r(&seconds, &now))
		jinja_fail(c->r, "strftime_now: there is no local time");
	for (i = 0; i < format->length; i += n) {
		char conversion[12], text[256], code;

		n = format->data[i] == '%' ? conversion_length(format, i, &code) : 0;
		if (n && strchr(known, code)) {
			snprintf(conversion, sizeof(conversion), "%.*s", (int)n, format->data + i);
			jinja_write(c->r, text, strftime(text, sizeof(text), conversion, &now));
		} else if (n && (code == 'z' || code == 'Z' || (code == 'f' && n == 2))) {
			/* Python's own: microseconds; its now() knows no time zone */
			jinja_write_text(c->r, code == 'f' ? "000000" : "");
		} else {
			n = 1;
			jinja_write(c->r, format->data + i, 1);
		}
	}
	return jinja_captured(c->r, mark);
}

static struct jinja_value new_cycle(struct jinja_call *c, const struct jinja_value *items, size_t n)
{
	struct jinja_cycle *cycle = jinja_alloc(c->r, 1, sizeof(*cycle));

	*cycle = (struct jinja_cycle){.n = n};
	cycle->items = jinja_alloc(c->r, n, sizeof(*items));
	memcpy(cycle->items, items, n * sizeof(*items));
	return (struct jinja_value){.kind = (uint8_t)c->builtin->mode, .cycle = cycle};
}

static struct jinja_value global_cycler(struct jinja_call *c)
{
	if (!c->args->n || c->args->n_keywords)
		jinja_fail(c->r, "cycler() needs values");
	return new_cycle(c, c->args->positional, c->args->n);
}

static struct jinja_value global_joiner(struct jinja_call *c)
{
	if (c->arg[0].kind == JINJA_ABSENT)
		c->arg[0] = jinja_literal(c->r, ", ");
	return new_cycle(c, c->arg, 1);
}

static const struct jinja_builtin globals[] = {
	{"range", global_range, "start:i stop:i? step:i?", 0},
	{"dict", global_dict, "*", JINJA_DICT},
	{"namespace", global_dict, "*", JINJA_NAMESPACE},
	{"raise_exception", global_raise, "message:t", 0},
	{"strftime_now", global_strftime_now, "format:s", 0},
	{"cycler", global_cycler, "*", JINJA_CYCLER},
	{"joiner", global_joiner, "sep:v?", JINJA_JOINER},
	{NULL, NULL, NULL, 0},
};

/* Methods */

static struct jinja_value dict_view(struct jinja_call *c)
{
	return jinja_seq_value(
		jinja_dict_items(c->r, c->self.dict, (enum jinja_flavor)c->builtin->mode));
}

static struct jinja_value dict_get(struct jinja_call *c)
{
	struct jinja_value *found = jinja_dict_get(c->r, c->self.dict, c->arg[0]);

	if (found)
		return *found;
	return c->arg[1].kind == JINJA_ABSENT ? jinja_none() : c->arg[1];
}

/* Values are immutable, so a copy is the same object. */
static struct jinja_value method_copy(struct jinja_call *c)
{
	return c->self;
}

static const struct jinja_builtin dict_methods[] = {
	{"items", dict_view, "", JINJA_ITEMS},
	{"keys", dict_view, "", JINJA_KEYS},
	{"values", dict_view, "", JINJA_VALUES},
	{"get", dict_get, "key:v default:v?", 0},
	{"copy", method_copy, "", 0},
	{NULL, NULL, NULL, 0},
};

/* index and count */
static struct jinja_value list_search(struct jinja_call *c)
{
	const struct jinja_seq *seq = c->self.seq;
	bool first_only = c->builtin->mode;
	int64_t count = 0;
	size_t i;

	jinja_charge(c->r, seq->n / 4);
	for (i = 0; i < seq->n; i++) {
		if (!jinja_equal(c->r, seq->items[i], c->arg[0]))
			continue;
		if (first_only)
			return jinja_int((int64_t)i);
		count++;
	}
	if (first_only)
		jinja_fail(c->r, "index: the value is not in the list");
	return jinja_int(count);
}

static const struct jinja_builtin list_methods[] = {
	{"index", list_search, "value:v", true},
	{"count", list_search, "value:v", false},
	{"copy", method_copy, "", 0},
	{NULL, NULL, NULL, 0},
};

static struct jinja_value cycler_next(struct jinja_call *c)
{
	struct jinja_cycle *cycle = c->self.cycle;
	struct jinja_value v = cycle->items[cycle->position];

	cycle->position = (cycle->position + 1) % cycle->n;
	return v;
}

static struct jinja_value cycler_reset(struct jinja_call *c)
{
	c->self.cycle->position = 0;
	return jinja_none();
}

static const struct jinja_builtin cycler_methods[] = {
	{"next", cycler_next, "", 0},
	{"reset", cycler_reset, "", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin *jinja_find_filter(const struct jinja_str *name)
{
	const struct jinja_builtin *found = find(jinja_string_filters, name);

	return found ? found : find(jinja_sequence_filters, name);
}

const struct jinja_builtin *jinja_find_test(const struct jinja_str *name)
{
	return find(tests, name);
}

const struct jinja_builtin *jinja_find_global(const struct jinja_str *name)
{
	return find(globals, name);
}

const struct jinja_builtin *jinja_find_method(struct jinja_value object,
					      const struct jinja_str *name)
{
	switch (object.kind) {
	case JINJA_STRING: return find(jinja_string_methods, name);
	case JINJA_DICT: return find(dict_methods, name);
	case JINJA_SEQ:
		return jinja_is_indexed(object) && object.seq->flavor != JINJA_GROUP
			       ? find(list_methods, name)
			       : NULL;
	case JINJA_LOOP: return find(jinja_loop_methods, name);
	case JINJA_CYCLER: return find(cycler_methods, name);
	default: return NULL;
	}
}
