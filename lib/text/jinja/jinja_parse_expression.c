// SPDX-License-Identifier: MIT
/*
 * Recursive-descent parser of expressions; the grammar and its precedences are jinja2's. Names such
 * as `if` or `in` are no reserved words: where an operand is expected they are variables.
 */
#include <errno.h>
#include <string.h>

#include "jinja_ast.h"

enum { MAX_PARSE_DEPTH = 200 };

static int enter(struct jinja_parser *p)
{
	if (p->depth >= MAX_PARSE_DEPTH)
		return jinja_set_error(p->error, TXDA_TEMPLATE_LIMIT, p->token->line,
				       "expressions nested deeper than %d", MAX_PARSE_DEPTH);
	p->depth++;
	return 0;
}

static int parse_unary(struct jinja_parser *p, bool with_filter, struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	bool negate = p->token->type == TOKEN_SUB;
	struct jinja_node *node = NULL;
	int rc = enter(p);

	if (rc)
		return rc;
	if (negate || p->token->type == TOKEN_ADD) {
		p->token++;
		rc = parse_unary(p, false, &node);
		if (!rc)
			rc = jinja_new_two(p, negate ? NODE_NEGATE : NODE_POSITIVE, line, node,
					   NULL, &node);
	} else {
		rc = jinja_parse_primary(p, &node);
	}
	if (!rc)
		rc = jinja_parse_postfix(p, &node);
	if (!rc && with_filter)
		rc = jinja_parse_filters_and_tests(p, &node);
	p->depth--;
	*ret = node;
	return rc;
}

typedef int (*operand_fn)(struct jinja_parser *p, struct jinja_node **ret);

/* Left-associative operators first..last of one precedence. */
static int parse_binary(struct jinja_parser *p, operand_fn operand, uint8_t first, uint8_t last,
			struct jinja_node **ret)
{
	struct jinja_node *left = NULL, *right;
	int rc = operand(p, &left);

	while (!rc && p->token->type >= first && p->token->type <= last) {
		const struct jinja_token *op = p->token++;

		rc = operand(p, &right);
		if (!rc)
			rc = jinja_new_two(p, NODE_BINARY, op->line, left, right, &left);
		if (!rc)
			left->op = op->type;
	}
	*ret = left;
	return rc;
}

static int parse_filtered(struct jinja_parser *p, struct jinja_node **ret)
{
	return parse_unary(p, true, ret);
}

static int parse_power(struct jinja_parser *p, struct jinja_node **ret)
{
	return parse_binary(p, parse_filtered, TOKEN_POW, TOKEN_POW, ret);
}

static int parse_product(struct jinja_parser *p, struct jinja_node **ret)
{
	return parse_binary(p, parse_power, TOKEN_MUL, TOKEN_MOD, ret);
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *concat = NULL, *part = NULL;
	int rc = parse_product(p, &part);

	if (rc || p->token->type != TOKEN_TILDE) {
		*ret = part;
		return rc;
	}
	rc = jinja_new_node(p, NODE_CONCAT, p->token->line, &concat);
	if (!rc)
		rc = jinja_push_node(p, &concat->list, part);
	while (!rc && jinja_skip(p, TOKEN_TILDE)) {
		rc = parse_product(p, &part);
		if (!rc)
			rc = jinja_push_node(p, &concat->list, part);
	}
	*ret = concat;
	return rc;
}

static int parse_sum(struct jinja_parser *p, struct jinja_node **ret)
{
	return parse_binary(p, parse_concat, TOKEN_ADD, TOKEN_SUB, ret);
}

static bool skip_comparison(struct jinja_parser *p, uint8_t *ret_op)
{
	static const uint8_t ops[] = {
		[TOKEN_EQ] = COMPARE_EQ, [TOKEN_NE] = COMPARE_NE, [TOKEN_GT] = COMPARE_GT,
		[TOKEN_GE] = COMPARE_GE, [TOKEN_LT] = COMPARE_LT, [TOKEN_LE] = COMPARE_LE,
	};

	if (p->token->type >= TOKEN_EQ && p->token->type <= TOKEN_LE) {
		*ret_op = ops[p->token->type];
		p->token++;
		return true;
	}
	if (jinja_skip_name(p, "in")) {
		*ret_op = COMPARE_IN;
		return true;
	}
	if (jinja_at_name(p, "not") && p->token[1].type == TOKEN_NAME && p->token[1].length == 2 &&
	    !memcmp(p->token[1].data, "in", 2)) {
		*ret_op = COMPARE_NOT_IN;
		p->token += 2;
		return true;
	}
	return false;
}

static int parse_compare(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *first = NULL, *right, *operand, *node = NULL;
	unsigned int line = p->token->line;
	uint8_t op;
	int rc = parse_sum(p, &first);

	while (!rc && skip_comparison(p, &op)) {
		if (!node) {
			rc = jinja_new_node(p, NODE_COMPARE, line, &node);
			if (rc)
				return rc;
			node->compare.first = first;
		}
		rc = parse_sum(p, &right);
		if (!rc)
			rc = jinja_new_two(p, NODE_COMPARE, line, right, NULL, &operand);
		if (rc)
			return rc;
		operand->op = op;
		rc = jinja_push_node(p, &node->compare.rest, operand);
	}
	*ret = node ? node : first;
	return rc;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	int rc;

	if (!jinja_skip_name(p, "not"))
		return parse_compare(p, ret);
	rc = enter(p);
	if (rc)
		return rc;
	rc = parse_not(p, ret);
	p->depth--;
	return rc ? rc : jinja_new_two(p, NODE_NOT, line, *ret, NULL, ret);
}

static int parse_and(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *left = NULL, *right;
	int rc = parse_not(p, &left);

	while (!rc && jinja_skip_name(p, "and")) {
		rc = parse_not(p, &right);
		if (!rc)
			rc = jinja_new_two(p, NODE_AND, left->line, left, right, &left);
	}
	*ret = left;
	return rc;
}

static int parse_or(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *left = NULL, *right;
	int rc = parse_and(p, &left);

	while (!rc && jinja_skip_name(p, "or")) {
		rc = parse_and(p, &right);
		if (!rc)
			rc = jinja_new_two(p, NODE_OR, left->line, left, right, &left);
	}
	*ret = left;
	return rc;
}

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *value = NULL, *test, *other, *node;
	int rc = enter(p);

	if (rc)
		return rc;
	rc = parse_or(p, &value);
	while (!rc && jinja_skip_name(p, "if")) {
		other = NULL;
		rc = parse_or(p, &test);
		if (!rc && jinja_skip_name(p, "else"))
			rc = jinja_parse_expression(p, &other);
		if (!rc)
			rc = jinja_new_node(p, NODE_CONDITION, value->line, &node);
		if (rc)
			break;
		node->three.a = test;
		node->three.b = value;
		node->three.c = other;
		value = node;
	}
	p->depth--;
	*ret = value;
	return rc;
}

int jinja_parse_tuple(struct jinja_parser *p, enum jinja_tuple_mode mode, const char *end_name,
		      struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	struct jinja_node *tuple = NULL, *item = NULL;
	int rc = 0;

	for (;;) {
		if (p->token->type == TOKEN_VARIABLE_END || p->token->type == TOKEN_BLOCK_END ||
		    p->token->type == TOKEN_RPAREN || (end_name && jinja_at_name(p, end_name)))
			break;
		rc = mode == TUPLE_NO_CONDITION ? parse_or(p, &item)
						: jinja_parse_expression(p, &item);
		if (rc)
			return rc;
		if (!tuple && p->token->type != TOKEN_COMMA) {
			*ret = item;
			return 0;
		}
		if (!tuple)
			rc = jinja_new_node(p, NODE_TUPLE, line, &tuple);
		if (!rc)
			rc = jinja_push_node(p, &tuple->list, item);
		if (rc)
			return rc;
		if (!jinja_skip(p, TOKEN_COMMA))
			break;
	}
	if (!tuple) {
		if (mode != TUPLE_PARENTHESES)
			return jinja_parse_fail(p, "expected an expression");
		rc = jinja_new_node(p, NODE_TUPLE, line, &tuple);
	}
	*ret = tuple;
	return rc;
}
