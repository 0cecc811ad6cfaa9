// SPDX-License-Identifier: MIT
/*
 * Parser of statements, and the template object.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_ast.h"

enum {
	MAX_PARSE_DEPTH = 200,
	TREE_MEMORY = 64 << 20, /* of one template */
};

void jinja_parse_fail(struct jinja_parser *p, const char *format, ...)
{
	const struct jinja_token *token = &p->token;
	char message[256];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	p->run.line = token->line;
	if (token->type == TOKEN_EOF)
		jinja_throw(&p->run, TXDA_TEMPLATE_SYNTAX, "%s, found the end of the template",
			    message);
	if (token->type == TOKEN_DATA)
		jinja_throw(&p->run, TXDA_TEMPLATE_SYNTAX, "%s, found text", message);
	jinja_throw(&p->run, TXDA_TEMPLATE_SYNTAX, "%s, found '%.*s'", message,
		    (int)(token->length < 40 ? token->length : 40), token->data);
}

void jinja_parse_enter(struct jinja_parser *p)
{
	p->run.line = p->token.line;
	if (p->depth >= MAX_PARSE_DEPTH)
		jinja_throw(&p->run, TXDA_TEMPLATE_LIMIT,
			    "expressions and blocks nested deeper than %d", MAX_PARSE_DEPTH);
	p->depth++;
}

void *jinja_parse_alloc(struct jinja_parser *p, size_t size)
{
	p->run.line = p->token.line;
	return memset(jinja_arena_alloc(&p->run, size), 0, size);
}

struct jinja_node *jinja_new_node(struct jinja_parser *p, enum jinja_node_type type,
				  unsigned int line)
{
	struct jinja_node *node = jinja_parse_alloc(p, sizeof(*node));

	node->type = (uint8_t)type;
	node->line = line;
	return node;
}

void jinja_push_node(struct jinja_parser *p, struct jinja_nodes *nodes, struct jinja_node *node)
{
	if (nodes->n == nodes->capacity) {
		uint32_t capacity = nodes->capacity * 2 + 2;
		struct jinja_node **items = jinja_parse_alloc(p, capacity * sizeof(*items));

		if (nodes->n)
			memcpy(items, nodes->items, nodes->n * sizeof(*items));
		nodes->items = items;
		nodes->capacity = capacity;
	}
	nodes->items[nodes->n++] = node;
}

static struct jinja_str *intern(struct jinja_parser *p, const char *data, size_t length)
{
	struct jinja_arena *arena = &p->template->arena;
	struct jinja_str name = {data, length, 0}, *copy;
	struct jinja_value *known = jinja_dict_find(arena, &p->template->symbols, &name);

	if (known)
		return known->string;
	copy = jinja_parse_alloc(p, sizeof(*copy));
	*copy = name;
	copy->chars = jinja_count_chars(copy, length);
	jinja_dict_insert(&p->run, &p->template->symbols, jinja_hash_bytes(arena, data, length),
			  jinja_str_value(copy), jinja_str_value(copy));
	return copy;
}

void jinja_advance(struct jinja_parser *p)
{
	p->token = p->next;
	jinja_lex(&p->lexer, &p->next);
}

bool jinja_token_is(const struct jinja_token *token, const char *name)
{
	return token->type == TOKEN_NAME && token->length == strlen(name) &&
	       !memcmp(token->data, name, token->length);
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
	bool there = jinja_token_is(&p->token, name);

	if (there)
		jinja_advance(p);
	return there;
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token_type type)
{
	bool there = p->token.type == type;

	if (there)
		jinja_advance(p);
	return there;
}

void jinja_expect(struct jinja_parser *p, enum jinja_token_type type, const char *what)
{
	if (!jinja_skip(p, type))
		jinja_parse_fail(p, "expected %s", what);
}

struct jinja_str *jinja_expect_name(struct jinja_parser *p)
{
	struct jinja_str *name;

	if (p->token.type != TOKEN_NAME)
		jinja_parse_fail(p, "expected a name");
	name = intern(p, p->token.data, p->token.length);
	jinja_advance(p);
	return name;
}

static void parse_statement(struct jinja_parser *p, struct jinja_nodes *nodes);

/* Statements up to a tag with a name of @ends (separated by spaces; NULL: up to the end). */
static void parse_until(struct jinja_parser *p, const char *ends, struct jinja_nodes *nodes)
{
	struct jinja_node *node;

	for (;;) {
		unsigned int line = p->token.line;
		const char *end;
		size_t n;

		switch (p->token.type) {
		case TOKEN_EOF:
			if (ends)
				jinja_parse_fail(p, "expected a tag '%.*s'",
						 (int)strcspn(ends, " "), ends);
			return;
		case TOKEN_DATA:
			node = jinja_new_node(p, NODE_TEXT, line);
			node->text = (struct jinja_str){p->token.data, p->token.length, 0};
			jinja_push_node(p, nodes, node);
			jinja_advance(p);
			break;
		case TOKEN_VARIABLE_BEGIN:
			jinja_advance(p);
			node = jinja_new_node(p, NODE_OUTPUT, line);
			node->a = jinja_parse_tuple(p, TUPLE_FULL, NULL);
			jinja_expect(p, TOKEN_VARIABLE_END, "the end '}}'");
			jinja_push_node(p, nodes, node);
			break;
		default: /* TOKEN_BLOCK_BEGIN: the lexer returns nothing else here */
			jinja_advance(p);
			for (end = ends; end && *end; end += n + (end[n] == ' ')) {
				n = strcspn(end, " ");
				if (p->token.type == TOKEN_NAME && p->token.length == n &&
				    !memcmp(p->token.data, end, n))
					return;
			}
			parse_statement(p, nodes);
			jinja_expect(p, TOKEN_BLOCK_END, "the end '%}'");
		}
	}
}

/*
 * The rest of an opening tag and the body after it; afterwards the current token is the name of the
 * closing tag.
 */
static void parse_body(struct jinja_parser *p, const char *ends, struct jinja_nodes *nodes)
{
	jinja_skip(p, TOKEN_COLON);
	jinja_expect(p, TOKEN_BLOCK_END, "the end '%}'");
	jinja_parse_enter(p);
	parse_until(p, ends, nodes);
	p->depth--;
}

/* A body with one possible closing tag, which is skipped. */
static void parse_simple_body(struct jinja_parser *p, const char *end, struct jinja_nodes *nodes)
{
	parse_body(p, end, nodes);
	jinja_advance(p);
}

/* A name, or `namespace.attribute` where @with_namespace, or a parenthesised tuple of these. */
static struct jinja_node *parse_target_item(struct jinja_parser *p, bool with_namespace);

static struct jinja_node *parse_target(struct jinja_parser *p, bool with_namespace,
				       const char *end_name)
{
	unsigned int line = p->token.line;
	struct jinja_node *tuple, *item = parse_target_item(p, with_namespace);

	if (p->token.type != TOKEN_COMMA)
		return item;
	tuple = jinja_new_node(p, NODE_TUPLE, line);
	jinja_push_node(p, &tuple->list, item);
	while (jinja_skip(p, TOKEN_COMMA)) {
		if (p->token.type != TOKEN_NAME && p->token.type != TOKEN_LPAREN)
			break;
		if (end_name && jinja_token_is(&p->token, end_name))
			break;
		jinja_push_node(p, &tuple->list, parse_target_item(p, with_namespace));
	}
	return tuple;
}

static struct jinja_node *parse_target_item(struct jinja_parser *p, bool with_namespace)
{
	struct jinja_node *node, *object;

	if (jinja_skip(p, TOKEN_LPAREN)) {
		jinja_parse_enter(p);
		node = parse_target(p, with_namespace, NULL);
		p->depth--;
		jinja_expect(p, TOKEN_RPAREN, "')'");
		return node;
	}
	if (p->token.type != TOKEN_NAME)
		jinja_parse_fail(p, "expected a name to assign to");
	object = jinja_parse_primary(p);
	if (object->type != NODE_NAME)
		jinja_parse_fail(p, "cannot assign to a constant");
	if (!with_namespace || !jinja_skip(p, TOKEN_DOT))
		return object;
	node = jinja_new_node(p, NODE_ATTRIBUTE, object->line);
	node->a = object;
	node->name = jinja_expect_name(p);
	return node;
}

static void parse_if(struct jinja_parser *p, struct jinja_node *node)
{
	for (;;) {
		struct jinja_node *arm;

		node->a = jinja_parse_tuple(p, TUPLE_NO_CONDITION, NULL);
		parse_body(p, "endif else elif", &node->body);
		if (!jinja_token_is(&p->token, "elif"))
			break;
		arm = jinja_new_node(p, NODE_ELIF, p->token.line);
		jinja_advance(p);
		jinja_push_node(p, &node->otherwise, arm);
		node = arm;
	}
	if (!jinja_skip_name(p, "endif")) {
		jinja_advance(p);
		parse_simple_body(p, "endif", &node->otherwise);
	}
}

static void parse_for(struct jinja_parser *p, struct jinja_node *node)
{
	node->a = parse_target(p, false, "in");
	if (!jinja_skip_name(p, "in"))
		jinja_parse_fail(p, "expected 'in'");
	node->b = jinja_parse_tuple(p, TUPLE_NO_CONDITION, "recursive");
	if (jinja_skip_name(p, "if"))
		node->c = jinja_parse_expression(p);
	node->flag = jinja_skip_name(p, "recursive");
	p->loop_depth++;
	parse_body(p, "endfor else", &node->body);
	p->loop_depth--;
	if (!jinja_skip_name(p, "endfor")) {
		jinja_advance(p);
		parse_simple_body(p, "endfor", &node->otherwise);
	}
}

static void parse_set(struct jinja_parser *p, struct jinja_node *node)
{
	node->a = parse_target(p, true, NULL);
	if (jinja_skip(p, TOKEN_ASSIGN)) {
		node->b = jinja_parse_tuple(p, TUPLE_FULL, NULL);
		return;
	}
	node->type = NODE_SET_BLOCK;
	node->b = jinja_parse_filters(p, false, NULL);
	parse_simple_body(p, "endset", &node->body);
}

static void parse_with(struct jinja_parser *p, struct jinja_node *node)
{
	while (p->token.type != TOKEN_BLOCK_END) {
		struct jinja_node *set = jinja_new_node(p, NODE_SET, p->token.line);

		if (node->list.n)
			jinja_expect(p, TOKEN_COMMA, "','");
		set->a = parse_target_item(p, false);
		jinja_expect(p, TOKEN_ASSIGN, "'='");
		set->b = jinja_parse_expression(p);
		jinja_push_node(p, &node->list, set);
	}
	parse_simple_body(p, "endwith", &node->body);
}

static void parse_parameters(struct jinja_parser *p, struct jinja_node *macro)
{
	struct jinja_node *parameter = NULL;

	jinja_expect(p, TOKEN_LPAREN, "'('");
	while (p->token.type != TOKEN_RPAREN) {
		bool after_default = parameter && parameter->a;

		if (parameter)
			jinja_expect(p, TOKEN_COMMA, "','");
		parameter = parse_target_item(p, false);
		if (parameter->type != NODE_NAME)
			jinja_parse_fail(p, "a parameter must be a name");
		if (jinja_skip(p, TOKEN_ASSIGN))
			parameter->a = jinja_parse_expression(p);
		else if (after_default)
			jinja_parse_fail(p, "a parameter without default follows one with");
		jinja_push_node(p, &macro->list, parameter);
	}
	jinja_advance(p);
}

/*
 * The body of a macro, which cannot break out of an outer loop. What it uses of enum
 * jinja_macro_uses an enclosing macro uses as well.
 */
static void parse_macro_body(struct jinja_parser *p, const char *end, struct jinja_node *macro)
{
	struct jinja_node *outer = p->macro;
	unsigned int loop_depth = p->loop_depth;

	p->macro = macro;
	p->loop_depth = 0;
	parse_simple_body(p, end, &macro->body);
	p->loop_depth = loop_depth;
	p->macro = outer;
	if (outer)
		outer->op |= macro->op;
}

static void parse_macro(struct jinja_parser *p, struct jinja_node *node)
{
	node->name = jinja_expect_name(p);
	parse_parameters(p, node);
	parse_macro_body(p, "endmacro", node);
}

static void parse_call_block(struct jinja_parser *p, struct jinja_node *node)
{
	node->name = p->template->names.caller;
	if (p->token.type == TOKEN_LPAREN)
		parse_parameters(p, node);
	node->a = jinja_parse_expression(p);
	if (node->a->type != NODE_CALL)
		jinja_parse_fail(p, "expected a call");
	parse_macro_body(p, "endcall", node);
}

static void parse_filter_block(struct jinja_parser *p, struct jinja_node *node)
{
	node->a = jinja_parse_filters(p, true, NULL);
	parse_simple_body(p, "endfilter", &node->body);
}

static void parse_generation(struct jinja_parser *p, struct jinja_node *node)
{
	parse_simple_body(p, "endgeneration", &node->body);
}

static void parse_jump(struct jinja_parser *p, struct jinja_node *node)
{
	(void)node;
	if (!p->loop_depth)
		jinja_parse_fail(p, "break and continue are only allowed in a loop");
}

/* {% print a, b %} becomes several outputs; its own scope has no effect. */
static void parse_print(struct jinja_parser *p, struct jinja_node *node)
{
	while (p->token.type != TOKEN_BLOCK_END) {
		struct jinja_node *output = jinja_new_node(p, NODE_OUTPUT, p->token.line);

		output->a = jinja_parse_expression(p);
		jinja_push_node(p, &node->body, output);
		if (p->token.type != TOKEN_BLOCK_END)
			jinja_expect(p, TOKEN_COMMA, "','");
	}
}

static void parse_statement(struct jinja_parser *p, struct jinja_nodes *nodes)
{
	static const struct {
		const char *name;
		enum jinja_node_type type;
		void (*parse)(struct jinja_parser *p, struct jinja_node *node);
	} statements[] = {
		{"if", NODE_IF, parse_if},
		{"for", NODE_FOR, parse_for},
		{"set", NODE_SET, parse_set},
		{"macro", NODE_MACRO, parse_macro},
		{"with", NODE_WITH, parse_with},
		{"call", NODE_CALL_BLOCK, parse_call_block},
		{"break", NODE_BREAK, parse_jump},
		{"continue", NODE_CONTINUE, parse_jump},
		{"filter", NODE_FILTER_BLOCK, parse_filter_block},
		{"generation", NODE_SCOPE, parse_generation},
		{"print", NODE_SCOPE, parse_print},
	};
	static const char *const refused[] = {"extends", "include",    "import", "from",
					      "block",	 "autoescape", "do"};
	struct jinja_node *node;
	size_t i;

	if (p->token.type != TOKEN_NAME)
		jinja_parse_fail(p, "expected the name of a tag");
	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		if (!jinja_token_is(&p->token, statements[i].name))
			continue;
		node = jinja_new_node(p, statements[i].type, p->token.line);
		if (statements[i].parse != parse_jump) /* which names its tag in an error */
			jinja_advance(p);
		statements[i].parse(p, node);
		if (statements[i].parse == parse_jump)
			jinja_advance(p);
		jinja_push_node(p, nodes, node);
		return;
	}
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (jinja_token_is(&p->token, refused[i]))
			jinja_parse_fail(p, "tag not supported in chat templates");
	jinja_parse_fail(p, "unknown tag");
}

static int parse_template(struct jinja_parser *p, const char *source, size_t length)
{
	struct jinja_names *names = &p->template->names;

	if (setjmp(p->run.escape))
		return jinja_error_code(p->run.error->kind);
	if (length > TXDA_TEMPLATE_MAX_SOURCE)
		jinja_throw(&p->run, TXDA_TEMPLATE_LIMIT, "template of %zu bytes, the limit is %zu",
			    length, TXDA_TEMPLATE_MAX_SOURCE);
	jinja_lex_start(&p->lexer, &p->run, source, length);
	names->loop = intern(p, "loop", 4);
	names->caller = intern(p, "caller", 6);
	names->varargs = intern(p, "varargs", 7);
	names->kwargs = intern(p, "kwargs", 6);
	jinja_advance(p);
	jinja_advance(p);
	parse_until(p, NULL, &p->template->body);
	return 0;
}

int txda_template_parse(const char *source, size_t length, struct txda_template_error *error,
			struct txda_template **ret_template)
{
	struct txda_template *template = calloc(1, sizeof(*template));
	struct txda_template_error own_error;
	struct jinja_parser p = {.template = template};
	int rc;

	p.run.error = error ? error : &own_error;
	*p.run.error = (struct txda_template_error){0};
	if (!template) {
		p.run.error->kind = TXDA_TEMPLATE_MEMORY;
		return -ENOMEM;
	}
	jinja_arena_init(&template->arena, TREE_MEMORY);
	p.run.arena = &template->arena;
	rc = parse_template(&p, source, length);
	if (rc)
		txda_template_free(template);
	else
		*ret_template = template;
	return rc;
}

void txda_template_free(struct txda_template *template)
{
	if (!template)
		return;
	jinja_arena_free(&template->arena);
	free(template);
}

bool txda_template_mentions(const struct txda_template *template, const char *name)
{
	const struct jinja_str s = {name, strlen(name), 0};

	return jinja_dict_find(&template->arena, &template->symbols, &s) != NULL;
}
