// SPDX-License-Identifier: MIT
/*
 * Parser of operands: literals, names, and what follows them (attributes, items, calls, filters,
 * tests).
 */
#include <errno.h>
#include <string.h>

#include "jinja_ast.h"
#include "jinja_builtin.h"

enum { MAX_KEYWORDS = 255 };

int jinja_new_two(struct jinja_parser *p, enum jinja_node_type type, unsigned int line,
		  struct jinja_node *left, struct jinja_node *right, struct jinja_node **ret)
{
	int rc = jinja_new_node(p, type, line, ret);

	if (!rc) {
		(*ret)->two.left = left;
		(*ret)->two.right = right;
	}
	return rc;
}

static int new_constant(struct jinja_parser *p, unsigned int line, struct jinja_value value,
			struct jinja_node **ret)
{
	int rc = jinja_new_node(p, NODE_CONST, line, ret);

	if (!rc)
		(*ret)->constant = value;
	return rc;
}

/* Adjacent literals are one string. */
static int parse_string(struct jinja_parser *p, struct jinja_node **ret)
{
	const struct jinja_token *first = p->token;
	struct jinja_value value = {.kind = JINJA_STRING};
	size_t length = 0;
	const char *data = first->data;

	for (; p->token->type == TOKEN_STRING; p->token++)
		length += p->token->length;
	if (p->token - first > 1) {
		char *joined = jinja_parse_alloc(p, length);
		const struct jinja_token *t;

		if (!joined)
			return -ENOMEM;
		data = joined;
		for (t = first; t < p->token; t++) {
			memcpy(joined, t->data, t->length);
			joined += t->length;
		}
	}
	value.string = jinja_parse_alloc(p, sizeof(*value.string));
	if (!value.string)
		return -ENOMEM;
	/* counted now: constants are shared by threads */
	*value.string = (struct jinja_str){data, length, jinja_utf8_count(data, length)};
	return new_constant(p, first->line, value, ret);
}

static int parse_name(struct jinja_parser *p, struct jinja_node **ret)
{
	static const struct {
		const char *name;
		uint8_t kind;
		bool boolean;
	} constants[] = {
		{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},
		{"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
		{"none", JINJA_NONE, false},  {"None", JINJA_NONE, false},
	};
	unsigned int line = p->token->line;
	struct jinja_value value = {0};
	struct jinja_str *name;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		if (!jinja_skip_name(p, constants[i].name))
			continue;
		value.kind = constants[i].kind;
		value.boolean = constants[i].boolean;
		return new_constant(p, line, value, ret);
	}
	rc = jinja_expect_name(p, &name);
	if (rc)
		return rc;
	if (p->macro) {
		p->macro->uses_caller |= name == p->template->names.caller;
		p->macro->uses_varargs |= name == p->template->names.varargs;
		p->macro->uses_kwargs |= name == p->template->names.kwargs;
	}
	rc = jinja_new_node(p, NODE_NAME, line, ret);
	if (!rc)
		(*ret)->name = name;
	return rc;
}

static int parse_list(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *list = NULL, *item;
	int rc = jinja_new_node(p, NODE_LIST, p->token->line, &list);

	p->token++;
	while (!rc && p->token->type != TOKEN_RBRACKET) {
		if (list->list.n)
			rc = jinja_expect(p, TOKEN_COMMA, "',' in the list");
		if (rc || p->token->type == TOKEN_RBRACKET)
			break;
		rc = jinja_parse_expression(p, &item);
		if (!rc)
			rc = jinja_push_node(p, &list->list, item);
	}
	if (!rc)
		rc = jinja_expect(p, TOKEN_RBRACKET, "']'");
	*ret = list;
	return rc;
}

static int parse_dict(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *dict = NULL, *key, *value;
	int rc = jinja_new_node(p, NODE_DICT, p->token->line, &dict);

	p->token++;
	while (!rc && p->token->type != TOKEN_RBRACE) {
		if (dict->list.n)
			rc = jinja_expect(p, TOKEN_COMMA, "',' in the dictionary");
		if (rc || p->token->type == TOKEN_RBRACE)
			break;
		rc = jinja_parse_expression(p, &key);
		if (!rc)
			rc = jinja_expect(p, TOKEN_COLON, "':' in the dictionary");
		if (!rc)
			rc = jinja_parse_expression(p, &value);
		if (!rc)
			rc = jinja_push_node(p, &dict->list, key);
		if (!rc)
			rc = jinja_push_node(p, &dict->list, value);
	}
	if (!rc)
		rc = jinja_expect(p, TOKEN_RBRACE, "'}'");
	*ret = dict;
	return rc;
}

int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **ret)
{
	const struct jinja_token *token = p->token;
	int rc;

	switch (token->type) {
	case TOKEN_NAME: return parse_name(p, ret);
	case TOKEN_STRING: return parse_string(p, ret);
	case TOKEN_INTEGER:
		p->token++;
		return new_constant(p, token->line, jinja_int(token->integer), ret);
	case TOKEN_FLOAT:
		p->token++;
		return new_constant(p, token->line, jinja_float(token->real), ret);
	case TOKEN_LPAREN:
		p->token++;
		rc = jinja_parse_tuple(p, TUPLE_PARENTHESES, NULL, ret);
		return rc ? rc : jinja_expect(p, TOKEN_RPAREN, "')'");
	case TOKEN_LBRACKET: return parse_list(p, ret);
	case TOKEN_LBRACE: return parse_dict(p, ret);
	default: return jinja_parse_fail(p, "expected an expression");
	}
}

/* One of start:stop:step, which may be missing. */
static int parse_slice_part(struct jinja_parser *p, struct jinja_node **ret)
{
	if (p->token->type == TOKEN_COLON || p->token->type == TOKEN_RBRACKET ||
	    p->token->type == TOKEN_COMMA)
		return 0;
	return jinja_parse_expression(p, ret);
}

static int parse_subscribed(struct jinja_parser *p, struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	struct jinja_node *start = NULL, *stop = NULL, *step = NULL;
	int rc;

	if (p->token->type != TOKEN_COLON) {
		rc = jinja_parse_expression(p, &start);
		if (rc)
			return rc;
		if (p->token->type != TOKEN_COLON) {
			*ret = start;
			return 0;
		}
	}
	p->token++;
	rc = parse_slice_part(p, &stop);
	if (!rc && jinja_skip(p, TOKEN_COLON))
		rc = parse_slice_part(p, &step);
	if (!rc)
		rc = jinja_new_node(p, NODE_SLICE, line, ret);
	if (rc)
		return rc;
	(*ret)->three.a = start;
	(*ret)->three.b = stop;
	(*ret)->three.c = step;
	return 0;
}

static int parse_subscript(struct jinja_parser *p, struct jinja_node *object,
			   struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	struct jinja_node *tuple = NULL, *item = NULL;
	size_t n = 0;
	int rc = 0;

	p->token++;
	while (p->token->type != TOKEN_RBRACKET) {
		if (n)
			rc = jinja_expect(p, TOKEN_COMMA, "',' or ']'");
		if (!rc && n == 1) {
			rc = jinja_new_node(p, NODE_TUPLE, line, &tuple);
			if (!rc)
				rc = jinja_push_node(p, &tuple->list, item);
		}
		if (!rc)
			rc = parse_subscribed(p, &item);
		if (!rc && tuple)
			rc = jinja_push_node(p, &tuple->list, item);
		if (rc)
			return rc;
		n++;
	}
	if (!n)
		return jinja_parse_fail(p, "expected an index");
	p->token++;
	return jinja_new_two(p, NODE_ITEM, line, object, tuple ? tuple : item, ret);
}

static int parse_attribute(struct jinja_parser *p, struct jinja_node *object,
			   struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	struct jinja_node *index;
	int rc;

	p->token++;
	if (p->token->type == TOKEN_INTEGER) {
		rc = new_constant(p, line, jinja_int(p->token->integer), &index);
		p->token++;
		return rc ? rc : jinja_new_two(p, NODE_ITEM, line, object, index, ret);
	}
	rc = jinja_new_node(p, NODE_ATTRIBUTE, line, ret);
	if (rc)
		return rc;
	(*ret)->attribute.object = object;
	return jinja_expect_name(p, &(*ret)->attribute.name);
}

static int push_keyword(struct jinja_parser *p, struct jinja_arguments *arguments)
{
	struct jinja_keyword *keyword;
	uint32_t i;
	int rc;

	if (arguments->n_keywords == MAX_KEYWORDS)
		return jinja_parse_fail(p, "too many keyword arguments");
	if (arguments->n_keywords == arguments->keyword_capacity) {
		uint32_t capacity = arguments->keyword_capacity * 2 + 2;

		keyword = jinja_parse_alloc(p, capacity * sizeof(*keyword));
		if (!keyword)
			return -ENOMEM;
		if (arguments->n_keywords)
			memcpy(keyword, arguments->keywords,
			       arguments->n_keywords * sizeof(*keyword));
		arguments->keywords = keyword;
		arguments->keyword_capacity = capacity;
	}
	keyword = &arguments->keywords[arguments->n_keywords];
	rc = jinja_expect_name(p, &keyword->name);
	for (i = 0; !rc && i < arguments->n_keywords; i++)
		if (arguments->keywords[i].name == keyword->name)
			return jinja_parse_fail(p, "keyword argument repeated");
	p->token++; /* the `=`, seen by the caller */
	if (!rc)
		rc = jinja_parse_expression(p, &keyword->value);
	if (!rc)
		arguments->n_keywords++;
	return rc;
}

static int parse_argument(struct jinja_parser *p, struct jinja_arguments *arguments)
{
	struct jinja_node *value;
	int rc;

	if (arguments->star_star)
		return jinja_parse_fail(p, "an argument follows **");
	if (jinja_skip(p, TOKEN_POW))
		return jinja_parse_expression(p, &arguments->star_star);
	if (p->token->type == TOKEN_NAME && p->token[1].type == TOKEN_ASSIGN)
		return push_keyword(p, arguments);
	if (arguments->star)
		return jinja_parse_fail(p, "an argument follows *");
	if (jinja_skip(p, TOKEN_MUL))
		return jinja_parse_expression(p, &arguments->star);
	if (arguments->n_keywords)
		return jinja_parse_fail(p, "a positional argument follows a keyword argument");
	rc = jinja_parse_expression(p, &value);
	return rc ? rc : jinja_push_node(p, &arguments->positional, value);
}

static int parse_arguments(struct jinja_parser *p, struct jinja_arguments *arguments)
{
	bool first = true;
	int rc = jinja_expect(p, TOKEN_LPAREN, "'('");

	while (!rc && p->token->type != TOKEN_RPAREN) {
		if (!first)
			rc = jinja_expect(p, TOKEN_COMMA, "',' or ')'");
		if (rc || p->token->type == TOKEN_RPAREN)
			break;
		rc = parse_argument(p, arguments);
		first = false;
	}
	return rc ? rc : jinja_expect(p, TOKEN_RPAREN, "')'");
}

static int parse_call(struct jinja_parser *p, struct jinja_node *callee, struct jinja_node **ret)
{
	int rc = jinja_new_node(p, NODE_CALL, p->token->line, ret);

	if (rc)
		return rc;
	(*ret)->call.callee = callee;
	return parse_arguments(p, &(*ret)->call.arguments);
}

int jinja_parse_postfix(struct jinja_parser *p, struct jinja_node **node)
{
	int rc = 0;

	while (!rc) {
		if (p->token->type == TOKEN_DOT)
			rc = parse_attribute(p, *node, node);
		else if (p->token->type == TOKEN_LBRACKET)
			rc = parse_subscript(p, *node, node);
		else if (p->token->type == TOKEN_LPAREN)
			rc = parse_call(p, *node, node);
		else
			break;
	}
	return rc;
}

static int new_apply(struct jinja_parser *p, enum jinja_node_type type, struct jinja_node *input,
		     struct jinja_node **ret)
{
	int rc = jinja_new_node(p, type, p->token->line, ret);

	if (rc)
		return rc;
	(*ret)->apply.input = input;
	return jinja_expect_name(p, &(*ret)->apply.name);
}

int jinja_parse_filters(struct jinja_parser *p, bool with_first, struct jinja_node *input,
			struct jinja_node **ret)
{
	struct jinja_node *node = input;

	while (with_first || jinja_skip(p, TOKEN_PIPE)) {
		int rc = new_apply(p, NODE_FILTER, node, &node);

		if (!rc && p->token->type == TOKEN_LPAREN)
			rc = parse_arguments(p, &node->apply.arguments);
		if (rc)
			return rc;
		node->apply.builtin =
			jinja_find_filter(node->apply.name->data, node->apply.name->length);
		with_first = false;
	}
	*ret = node;
	return 0;
}

/* Does the current token begin the argument of `x is test argument`? */
static bool at_test_argument(const struct jinja_parser *p)
{
	switch (p->token->type) {
	case TOKEN_NAME:
		return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") &&
		       !jinja_at_name(p, "and");
	case TOKEN_STRING:
	case TOKEN_INTEGER:
	case TOKEN_FLOAT:
	case TOKEN_LBRACKET:
	case TOKEN_LBRACE: return true;
	default: return false;
	}
}

static int parse_test(struct jinja_parser *p, struct jinja_node *input, struct jinja_node **ret)
{
	struct jinja_node *node, *argument;
	bool negated;
	int rc;

	p->token++;
	negated = jinja_skip_name(p, "not");
	rc = new_apply(p, NODE_TEST, input, &node);
	if (rc)
		return rc;
	node->negated = negated;
	node->apply.builtin = jinja_find_test(node->apply.name->data, node->apply.name->length);
	if (p->token->type == TOKEN_LPAREN) {
		rc = parse_arguments(p, &node->apply.arguments);
	} else if (at_test_argument(p)) {
		if (jinja_at_name(p, "is"))
			return jinja_parse_fail(p, "tests cannot be chained with 'is'");
		rc = jinja_parse_primary(p, &argument);
		if (!rc)
			rc = jinja_parse_postfix(p, &argument);
		if (!rc)
			rc = jinja_push_node(p, &node->apply.arguments.positional, argument);
	}
	*ret = node;
	return rc;
}

int jinja_parse_filters_and_tests(struct jinja_parser *p, struct jinja_node **node)
{
	int rc = 0;

	while (!rc) {
		if (p->token->type == TOKEN_PIPE)
			rc = jinja_parse_filters(p, false, *node, node);
		else if (jinja_at_name(p, "is"))
			rc = parse_test(p, *node, node);
		else if (p->token->type == TOKEN_LPAREN)
			rc = parse_call(p, *node, node);
		else
			break;
	}
	return rc;
}
