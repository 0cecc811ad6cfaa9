// SPDX-License-Identifier: MIT
/*
 * Parser of expressions; the grammar and its precedences are jinja2's. Names such as `if` or `in`
 * are not reserved: where an operand is expected they are variables.
 */
#include <string.h>

#include "jinja_ast.h"

enum { MAX_KEYWORDS = 255 };

/*
 * From lowest to highest precedence. All operators of a level associate to the left, including **.
 */
enum level {
	LEVEL_OR,
	LEVEL_AND,
	LEVEL_NOT,
	LEVEL_COMPARE,
	LEVEL_SUM,
	LEVEL_CONCAT,
	LEVEL_PRODUCT,
	LEVEL_POWER,
};

struct operator
{
	uint8_t token; /* TOKEN_NAME: see operator_at() */
	uint8_t level;
	uint8_t node;
	uint8_t op; /* of the node */
};

static const struct operator operators[] = {
	{TOKEN_EQ, LEVEL_COMPARE, NODE_COMPARE, COMPARE_EQ},
	{TOKEN_NE, LEVEL_COMPARE, NODE_COMPARE, COMPARE_NE},
	{TOKEN_GT, LEVEL_COMPARE, NODE_COMPARE, COMPARE_GT},
	{TOKEN_GE, LEVEL_COMPARE, NODE_COMPARE, COMPARE_GE},
	{TOKEN_LT, LEVEL_COMPARE, NODE_COMPARE, COMPARE_LT},
	{TOKEN_LE, LEVEL_COMPARE, NODE_COMPARE, COMPARE_LE},
	{TOKEN_ADD, LEVEL_SUM, NODE_BINARY, TOKEN_ADD},
	{TOKEN_SUB, LEVEL_SUM, NODE_BINARY, TOKEN_SUB},
	{TOKEN_TILDE, LEVEL_CONCAT, NODE_CONCAT, 0},
	{TOKEN_MUL, LEVEL_PRODUCT, NODE_BINARY, TOKEN_MUL},
	{TOKEN_DIV, LEVEL_PRODUCT, NODE_BINARY, TOKEN_DIV},
	{TOKEN_FLOORDIV, LEVEL_PRODUCT, NODE_BINARY, TOKEN_FLOORDIV},
	{TOKEN_MOD, LEVEL_PRODUCT, NODE_BINARY, TOKEN_MOD},
	{TOKEN_POW, LEVEL_POWER, NODE_BINARY, TOKEN_POW},
};

static const struct operator operator_or = {TOKEN_NAME, LEVEL_OR, NODE_OR, 0};
static const struct operator operator_and = {TOKEN_NAME, LEVEL_AND, NODE_AND, 0};
static const struct operator operator_in = {TOKEN_NAME, LEVEL_COMPARE, NODE_COMPARE, COMPARE_IN};
static const struct operator operator_not_in = {TOKEN_NAME, LEVEL_COMPARE, NODE_COMPARE,
						COMPARE_NOT_IN};

static const struct operator* operator_at(const struct jinja_parser *p)
{
	size_t i;

	if (p->token.type == TOKEN_NAME) {
		if (jinja_token_is(&p->token, "or"))
			return &operator_or;
		if (jinja_token_is(&p->token, "and"))
			return &operator_and;
		if (jinja_token_is(&p->token, "in"))
			return &operator_in;
		if (jinja_token_is(&p->token, "not") && jinja_token_is(&p->next, "in"))
			return &operator_not_in;
		return NULL;
	}
	for (i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
		if (operators[i].token == p->token.type)
			return &operators[i];
	return NULL;
}

static struct jinja_node *new_pair(struct jinja_parser *p, enum jinja_node_type type,
				   unsigned int line, struct jinja_node *a, struct jinja_node *b)
{
	struct jinja_node *node = jinja_new_node(p, type, line);

	node->a = a;
	node->b = b;
	return node;
}

static struct jinja_node *new_constant(struct jinja_parser *p, unsigned int line,
				       struct jinja_value value)
{
	struct jinja_node *node = jinja_new_node(p, NODE_CONST, line);

	node->constant = value;
	return node;
}

/* Adjacent literals are one string. */
static struct jinja_node *parse_string(struct jinja_parser *p)
{
	struct jinja_str *s = jinja_parse_alloc(p, sizeof(*s));
	unsigned int line = p->token.line;

	*s = (struct jinja_str){p->token.data, p->token.length, 0};
	for (jinja_advance(p); p->token.type == TOKEN_STRING; jinja_advance(p)) {
		char *joined = jinja_parse_alloc(p, s->length + p->token.length);

		memcpy(joined, s->data, s->length);
		memcpy(joined + s->length, p->token.data, p->token.length);
		s->data = joined;
		s->length += p->token.length;
	}
	s->chars = jinja_count_chars(s, s->length); /* now: constants are shared by threads */
	return new_constant(p, line, jinja_str_value(s));
}

static struct jinja_node *parse_bigint(struct jinja_parser *p, const struct jinja_token *token)
{
	struct jinja_str *s = jinja_parse_alloc(p, sizeof(*s));
	struct jinja_value v = jinja_str_value(s);

	*s = (struct jinja_str){token->data, token->length, token->length};
	v.kind = JINJA_BIGINT;
	return new_constant(p, token->line, v);
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
	const struct jinja_names *names = &p->template->names;
	const struct jinja_token *token = &p->token;
	unsigned int line = token->line;
	struct jinja_value value = {.kind = JINJA_ABSENT};
	struct jinja_node *node;

	if (jinja_token_is(token, "true") || jinja_token_is(token, "True"))
		value = jinja_bool(true);
	else if (jinja_token_is(token, "false") || jinja_token_is(token, "False"))
		value = jinja_bool(false);
	else if (jinja_token_is(token, "none") || jinja_token_is(token, "None"))
		value = jinja_none();
	if (value.kind != JINJA_ABSENT) {
		jinja_advance(p);
		return new_constant(p, line, value);
	}
	node = jinja_new_node(p, NODE_NAME, line);
	node->name = jinja_expect_name(p);
	if (p->macro)
		p->macro->op |= (node->name == names->caller ? MACRO_CALLER : 0) |
				(node->name == names->varargs ? MACRO_VARARGS : 0) |
				(node->name == names->kwargs ? MACRO_KWARGS : 0);
	return node;
}

/* A list, or a dictionary, whose items are pairs. */
static struct jinja_node *parse_items(struct jinja_parser *p, bool pairs)
{
	struct jinja_node *node = jinja_new_node(p, pairs ? NODE_DICT : NODE_LIST, p->token.line);
	uint8_t end = pairs ? TOKEN_RBRACE : TOKEN_RBRACKET;

	jinja_advance(p);
	while (p->token.type != end) {
		if (node->list.n)
			jinja_expect(p, TOKEN_COMMA,
				     pairs ? "',' in the dictionary" : "',' in the list");
		if (p->token.type == end)
			break;
		jinja_push_node(p, &node->list, jinja_parse_expression(p));
		if (!pairs)
			continue;
		jinja_expect(p, TOKEN_COLON, "':' in the dictionary");
		jinja_push_node(p, &node->list, jinja_parse_expression(p));
	}
	jinja_advance(p);
	return node;
}

struct jinja_node *jinja_parse_primary(struct jinja_parser *p)
{
	const struct jinja_token token = p->token;
	struct jinja_node *node;

	switch (token.type) {
	case TOKEN_NAME: return parse_name(p);
	case TOKEN_STRING: return parse_string(p);
	case TOKEN_INTEGER:
		jinja_advance(p);
		return new_constant(p, token.line, jinja_int(token.integer));
	case TOKEN_BIGINT: jinja_advance(p); return parse_bigint(p, &token);
	case TOKEN_FLOAT:
		jinja_advance(p);
		return new_constant(p, token.line, jinja_float(token.real));
	case TOKEN_LPAREN:
		jinja_advance(p);
		node = jinja_parse_tuple(p, TUPLE_PARENTHESES, NULL);
		jinja_expect(p, TOKEN_RPAREN, "')'");
		return node;
	case TOKEN_LBRACKET: return parse_items(p, false);
	case TOKEN_LBRACE: return parse_items(p, true);
	default: jinja_parse_fail(p, "expected an expression");
	}
}

/* One of start:stop:step, which may be missing. */
static struct jinja_node *parse_slice_part(struct jinja_parser *p)
{
	if (p->token.type == TOKEN_COLON || p->token.type == TOKEN_RBRACKET ||
	    p->token.type == TOKEN_COMMA)
		return NULL;
	return jinja_parse_expression(p);
}

/* An index or a slice. */
static struct jinja_node *parse_subscribed(struct jinja_parser *p)
{
	unsigned int line = p->token.line;
	struct jinja_node *start = parse_slice_part(p), *slice;

	if (p->token.type != TOKEN_COLON) {
		if (!start)
			jinja_parse_fail(p, "expected an index");
		return start;
	}
	jinja_advance(p);
	slice = new_pair(p, NODE_SLICE, line, start, parse_slice_part(p));
	if (jinja_skip(p, TOKEN_COLON))
		slice->c = parse_slice_part(p);
	return slice;
}

static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *object)
{
	unsigned int line = p->token.line;
	struct jinja_node *index, *tuple = NULL;

	jinja_advance(p);
	index = parse_subscribed(p);
	while (p->token.type != TOKEN_RBRACKET) {
		if (!tuple) {
			tuple = jinja_new_node(p, NODE_TUPLE, line);
			jinja_push_node(p, &tuple->list, index);
		}
		jinja_expect(p, TOKEN_COMMA, "',' or ']'");
		jinja_push_node(p, &tuple->list, parse_subscribed(p));
	}
	jinja_advance(p);
	return new_pair(p, NODE_ITEM, line, object, tuple ? tuple : index);
}

static struct jinja_node *parse_attribute(struct jinja_parser *p, struct jinja_node *object)
{
	unsigned int line = p->token.line;
	struct jinja_node *node;

	jinja_advance(p);
	if (p->token.type == TOKEN_INTEGER) {
		node = new_constant(p, line, jinja_int(p->token.integer));
		jinja_advance(p);
		return new_pair(p, NODE_ITEM, line, object, node);
	}
	node = new_pair(p, NODE_ATTRIBUTE, line, object, NULL);
	node->name = jinja_expect_name(p);
	return node;
}

static void parse_keyword(struct jinja_parser *p, struct jinja_node *call)
{
	struct jinja_node *keyword = jinja_new_node(p, NODE_KEYWORD, p->token.line);
	uint32_t i;

	if (call->keywords.n == MAX_KEYWORDS)
		jinja_parse_fail(p, "more than %d keyword arguments", MAX_KEYWORDS);
	keyword->name = jinja_expect_name(p);
	for (i = 0; i < call->keywords.n; i++)
		if (call->keywords.items[i]->name == keyword->name)
			jinja_parse_fail(p, "keyword argument repeated");
	jinja_advance(p); /* the `=`, seen by the caller */
	keyword->a = jinja_parse_expression(p);
	jinja_push_node(p, &call->keywords, keyword);
}

static void parse_argument(struct jinja_parser *p, struct jinja_node *call)
{
	if (call->c)
		jinja_parse_fail(p, "an argument follows **");
	if (jinja_skip(p, TOKEN_POW)) {
		call->c = jinja_parse_expression(p);
	} else if (p->token.type == TOKEN_NAME && p->next.type == TOKEN_ASSIGN) {
		parse_keyword(p, call);
	} else {
		if (call->b)
			jinja_parse_fail(p, "an argument follows *");
		if (jinja_skip(p, TOKEN_MUL)) {
			call->b = jinja_parse_expression(p);
			return;
		}
		if (call->keywords.n)
			jinja_parse_fail(p, "a positional argument follows a keyword argument");
		jinja_push_node(p, &call->list, jinja_parse_expression(p));
	}
}

static void parse_arguments(struct jinja_parser *p, struct jinja_node *call)
{
	bool first = true;

	jinja_expect(p, TOKEN_LPAREN, "'('");
	for (; p->token.type != TOKEN_RPAREN; first = false) {
		if (!first)
			jinja_expect(p, TOKEN_COMMA, "',' or ')'");
		if (p->token.type == TOKEN_RPAREN)
			break;
		parse_argument(p, call);
	}
	jinja_advance(p);
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *callee)
{
	struct jinja_node *node = new_pair(p, NODE_CALL, p->token.line, callee, NULL);

	parse_arguments(p, node);
	return node;
}

/* What may follow an operand: `.a`, `[b]`, `(c)`. */
static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *node)
{
	for (;;) {
		if (p->token.type == TOKEN_DOT)
			node = parse_attribute(p, node);
		else if (p->token.type == TOKEN_LBRACKET)
			node = parse_subscript(p, node);
		else if (p->token.type == TOKEN_LPAREN)
			node = parse_call(p, node);
		else
			return node;
	}
}

static struct jinja_node *new_apply(struct jinja_parser *p, enum jinja_node_type type,
				    struct jinja_node *input)
{
	struct jinja_node *node = new_pair(p, type, p->token.line, input, NULL);

	node->name = jinja_expect_name(p);
	node->builtin =
		type == NODE_FILTER ? jinja_find_filter(node->name) : jinja_find_test(node->name);
	return node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, bool with_first,
				       struct jinja_node *input)
{
	while (with_first || jinja_skip(p, TOKEN_PIPE)) {
		input = new_apply(p, NODE_FILTER, input);
		if (p->token.type == TOKEN_LPAREN)
			parse_arguments(p, input);
		with_first = false;
	}
	return input;
}

/* Whether the current token begins the argument of `x is test argument`. */
static bool at_test_argument(const struct jinja_parser *p)
{
	switch (p->token.type) {
	case TOKEN_NAME:
		return !jinja_token_is(&p->token, "else") && !jinja_token_is(&p->token, "or") &&
		       !jinja_token_is(&p->token, "and");
	case TOKEN_STRING:
	case TOKEN_INTEGER:
	case TOKEN_BIGINT:
	case TOKEN_FLOAT:
	case TOKEN_LBRACKET:
	case TOKEN_LBRACE: return true;
	default: return false;
	}
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *input)
{
	struct jinja_node *node;
	bool negated;

	jinja_advance(p);
	negated = jinja_skip_name(p, "not");
	node = new_apply(p, NODE_TEST, input);
	node->flag = negated;
	if (p->token.type == TOKEN_LPAREN) {
		parse_arguments(p, node);
	} else if (at_test_argument(p)) {
		if (jinja_token_is(&p->token, "is"))
			jinja_parse_fail(p, "tests cannot be chained with 'is'");
		jinja_push_node(p, &node->list, parse_postfix(p, jinja_parse_primary(p)));
	}
	return node;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filters)
{
	uint8_t sign = p->token.type;
	unsigned int line = p->token.line;
	struct jinja_node *node;

	jinja_parse_enter(p);
	if (sign == TOKEN_SUB || sign == TOKEN_ADD) {
		jinja_advance(p);
		node = new_pair(p, sign == TOKEN_SUB ? NODE_NEGATE : NODE_POSITIVE, line,
				parse_unary(p, false), NULL);
	} else {
		node = jinja_parse_primary(p);
	}
	node = parse_postfix(p, node);
	while (with_filters) {
		if (p->token.type == TOKEN_PIPE)
			node = jinja_parse_filters(p, false, node);
		else if (jinja_token_is(&p->token, "is"))
			node = parse_test(p, node);
		else if (p->token.type == TOKEN_LPAREN)
			node = parse_call(p, node);
		else
			break;
	}
	p->depth--;
	return node;
}

/* Operators that bind at least as tightly as @loosest, and their operands. */
static struct jinja_node *parse_operators(struct jinja_parser *p, enum level loosest)
{
	struct jinja_node *left, *right, *chain = NULL; /* chain: `a < b < c` and `a ~ b ~ c` */
	const struct operator* op;
	unsigned int line = p->token.line, op_line;

	if (loosest <= LEVEL_NOT && jinja_skip_name(p, "not")) {
		jinja_parse_enter(p);
		left = new_pair(p, NODE_NOT, line, parse_operators(p, LEVEL_NOT), NULL);
		p->depth--;
	} else {
		left = parse_unary(p, true);
	}
	while ((op = operator_at(p)) && op->level >= loosest) {
		op_line = op->level <= LEVEL_COMPARE ? line : p->token.line;
		jinja_advance(p);
		if (op == &operator_not_in)
			jinja_advance(p);
		right = parse_operators(p, op->level + 1);
		if (op->node != NODE_COMPARE && op->node != NODE_CONCAT) {
			left = new_pair(p, op->node, op_line, left, right);
			left->op = op->op;
			continue;
		}
		if (op->node == NODE_COMPARE) {
			right = new_pair(p, NODE_OPERAND, op_line, right, NULL);
			right->op = op->op;
		}
		if (!chain || left != chain || chain->type != op->node) {
			chain = new_pair(p, op->node, op_line, left, NULL);
			left = chain;
			if (op->node == NODE_CONCAT)
				jinja_push_node(p, &chain->list, chain->a);
		}
		jinja_push_node(p, &chain->list, right);
	}
	return left;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p)
{
	struct jinja_node *value;

	jinja_parse_enter(p);
	value = parse_operators(p, LEVEL_OR);
	while (jinja_skip_name(p, "if")) {
		struct jinja_node *node = jinja_new_node(p, NODE_CONDITION, value->line);

		node->a = value;
		node->b = parse_operators(p, LEVEL_OR);
		if (jinja_skip_name(p, "else"))
			node->c = jinja_parse_expression(p);
		value = node;
	}
	p->depth--;
	return value;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, enum jinja_tuple_mode mode,
				     const char *end_name)
{
	struct jinja_node *tuple = NULL, *item;
	unsigned int line = p->token.line;

	while (p->token.type != TOKEN_VARIABLE_END && p->token.type != TOKEN_BLOCK_END &&
	       p->token.type != TOKEN_RPAREN &&
	       !(end_name && jinja_token_is(&p->token, end_name))) {
		item = mode == TUPLE_NO_CONDITION ? parse_operators(p, LEVEL_OR)
						  : jinja_parse_expression(p);
		if (!tuple && p->token.type != TOKEN_COMMA)
			return item;
		if (!tuple)
			tuple = jinja_new_node(p, NODE_TUPLE, line);
		jinja_push_node(p, &tuple->list, item);
		if (!jinja_skip(p, TOKEN_COMMA))
			break;
	}
	if (!tuple) {
		if (mode != TUPLE_PARENTHESES)
			jinja_parse_fail(p, "expected an expression");
		tuple = jinja_new_node(p, NODE_TUPLE, line);
	}
	return tuple;
}
