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
	MAX_BLOCK_DEPTH = 200,
	TREE_MEMORY = 64 << 20, /* of one template */
};

static int parse_statement(struct jinja_parser *p, struct jinja_nodes *nodes);

int jinja_parse_fail(struct jinja_parser *p, const char *format, ...)
{
	const struct jinja_token *token = p->token;
	char message[256], found[64];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	switch (token->type) {
	case TOKEN_EOF: snprintf(found, sizeof(found), "the end of the template"); break;
	case TOKEN_DATA: snprintf(found, sizeof(found), "text"); break;
	default:
		snprintf(found, sizeof(found), "'%.*s'",
			 (int)(token->length < 40 ? token->length : 40), token->data);
	}
	return jinja_set_error(p->error, TXDA_TEMPLATE_SYNTAX, token->line, "%s, found %s", message,
			       found);
}

void *jinja_parse_alloc(struct jinja_parser *p, size_t size)
{
	void *memory = jinja_arena_alloc(&p->template->arena, size);

	if (!memory && p->template->arena.exhausted)
		jinja_set_error(p->error, TXDA_TEMPLATE_LIMIT, p->token->line,
				"the template needs more than %zu bytes", p->template->arena.limit);
	else if (!memory)
		jinja_set_error(p->error, TXDA_TEMPLATE_MEMORY, p->token->line, "out of memory");
	else
		memset(memory, 0, size);
	return memory;
}

int jinja_new_node(struct jinja_parser *p, enum jinja_node_type type, unsigned int line,
		   struct jinja_node **ret)
{
	struct jinja_node *node = jinja_parse_alloc(p, sizeof(*node));

	if (!node)
		return -ENOMEM;
	node->type = (uint8_t)type;
	node->line = line;
	*ret = node;
	return 0;
}

int jinja_push_node(struct jinja_parser *p, struct jinja_nodes *nodes, struct jinja_node *node)
{
	if (nodes->n == nodes->capacity) {
		uint32_t capacity = nodes->capacity * 2 + 2;
		struct jinja_node **items = jinja_parse_alloc(p, capacity * sizeof(*items));

		if (!items)
			return -ENOMEM;
		if (nodes->n)
			memcpy(items, nodes->items, nodes->n * sizeof(*items));
		nodes->items = items;
		nodes->capacity = capacity;
	}
	nodes->items[nodes->n++] = node;
	return 0;
}

int jinja_intern(struct jinja_parser *p, const char *data, size_t length, struct jinja_str **ret)
{
	struct jinja_arena *arena = &p->template->arena;
	struct jinja_value *known = jinja_dict_find(arena, &p->template->symbols, data, length);
	struct jinja_value name = {.kind = JINJA_STRING};
	uint64_t hash = jinja_hash_bytes(arena, data, length);

	if (known) {
		*ret = known->string;
		return 0;
	}
	name.string = jinja_parse_alloc(p, sizeof(*name.string));
	if (!name.string)
		return -ENOMEM;
	*name.string = (struct jinja_str){data, length, jinja_utf8_count(data, length)};
	if (jinja_dict_insert(arena, &p->template->symbols, hash, name, name))
		return jinja_set_error(p->error, TXDA_TEMPLATE_MEMORY, p->token->line,
				       "no memory for another name");
	*ret = name.string;
	return 0;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
	return p->token->type == TOKEN_NAME && p->token->length == strlen(name) &&
	       !memcmp(p->token->data, name, p->token->length);
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
	if (!jinja_at_name(p, name))
		return false;
	p->token++;
	return true;
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token_type type)
{
	if (p->token->type != type)
		return false;
	p->token++;
	return true;
}

int jinja_expect(struct jinja_parser *p, enum jinja_token_type type, const char *what)
{
	return jinja_skip(p, type) ? 0 : jinja_parse_fail(p, "expected %s", what);
}

int jinja_expect_name(struct jinja_parser *p, struct jinja_str **ret)
{
	if (p->token->type != TOKEN_NAME)
		return jinja_parse_fail(p, "expected a name");
	p->token++;
	return jinja_intern(p, p->token[-1].data, p->token[-1].length, ret);
}

/*
 * Statements up to a tag whose name is in @ends (NULL-terminated; NULL: the end of the template).
 */
static int parse_until(struct jinja_parser *p, const char *const *ends, struct jinja_nodes *nodes)
{
	int rc = 0;

	while (!rc) {
		const struct jinja_token *token = p->token;
		struct jinja_node *node;
		size_t i;

		switch (token->type) {
		case TOKEN_EOF:
			return ends ? jinja_parse_fail(p, "expected a tag '%s'", ends[0]) : 0;
		case TOKEN_DATA:
			p->token++;
			rc = jinja_new_node(p, NODE_TEXT, token->line, &node);
			if (rc)
				break;
			node->text.data = token->data;
			node->text.length = token->length;
			rc = jinja_push_node(p, nodes, node);
			break;
		case TOKEN_VARIABLE_BEGIN:
			p->token++;
			rc = jinja_new_node(p, NODE_OUTPUT, token->line, &node);
			if (!rc)
				rc = jinja_parse_tuple(p, TUPLE_FULL, NULL, &node->expression);
			if (!rc)
				rc = jinja_expect(p, TOKEN_VARIABLE_END, "the end '}}'");
			if (!rc)
				rc = jinja_push_node(p, nodes, node);
			break;
		default: /* TOKEN_BLOCK_BEGIN: the lexer lets nothing else stand here */
			p->token++;
			for (i = 0; ends && ends[i]; i++)
				if (jinja_at_name(p, ends[i]))
					return 0;
			rc = parse_statement(p, nodes);
			if (!rc)
				rc = jinja_expect(p, TOKEN_BLOCK_END, "the end '%}'");
		}
	}
	return rc;
}

/*
 * The rest of an opening tag and the body behind it; the current token is the name of the closing
 * tag then.
 */
static int parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_nodes *nodes)
{
	int rc;

	jinja_skip(p, TOKEN_COLON);
	rc = jinja_expect(p, TOKEN_BLOCK_END, "the end '%}'");
	if (rc)
		return rc;
	if (p->depth >= MAX_BLOCK_DEPTH)
		return jinja_set_error(p->error, TXDA_TEMPLATE_LIMIT, p->token->line,
				       "blocks nested deeper than %d", MAX_BLOCK_DEPTH);
	p->depth++;
	rc = parse_until(p, ends, nodes);
	p->depth--;
	return rc;
}

/* A body with one possible closing tag, which is skipped. */
static int parse_simple_body(struct jinja_parser *p, const char *end, struct jinja_nodes *nodes)
{
	int rc = parse_body(p, (const char *const[]){end, NULL}, nodes);

	if (!rc)
		p->token++;
	return rc;
}

/* A name, or `namespace.attribute` where @with_namespace, or a parenthesised tuple of these. */
static int parse_target_item(struct jinja_parser *p, bool with_namespace, struct jinja_node **ret);

static int parse_target(struct jinja_parser *p, bool with_namespace, const char *end_name,
			struct jinja_node **ret)
{
	unsigned int line = p->token->line;
	struct jinja_node *tuple = NULL, *item;
	int rc = parse_target_item(p, with_namespace, &item);

	if (rc || p->token->type != TOKEN_COMMA) {
		*ret = item;
		return rc;
	}
	rc = jinja_new_node(p, NODE_TUPLE, line, &tuple);
	if (!rc)
		rc = jinja_push_node(p, &tuple->list, item);
	while (!rc && jinja_skip(p, TOKEN_COMMA)) {
		if (p->token->type != TOKEN_NAME && p->token->type != TOKEN_LPAREN)
			break;
		if (end_name && jinja_at_name(p, end_name))
			break;
		rc = parse_target_item(p, with_namespace, &item);
		if (!rc)
			rc = jinja_push_node(p, &tuple->list, item);
	}
	*ret = tuple;
	return rc;
}

static int parse_target_item(struct jinja_parser *p, bool with_namespace, struct jinja_node **ret)
{
	struct jinja_node *node;
	int rc;

	*ret = NULL;
	if (jinja_skip(p, TOKEN_LPAREN)) {
		if (p->depth >= MAX_BLOCK_DEPTH)
			return jinja_parse_fail(p, "targets nested too deeply");
		p->depth++;
		rc = parse_target(p, with_namespace, NULL, ret);
		p->depth--;
		return rc ? rc : jinja_expect(p, TOKEN_RPAREN, "')'");
	}
	if (p->token->type != TOKEN_NAME)
		return jinja_parse_fail(p, "expected a name to assign to");
	rc = jinja_parse_primary(p, &node);
	if (rc)
		return rc;
	if (node->type != NODE_NAME)
		return jinja_parse_fail(p, "cannot assign to a constant");
	if (with_namespace && jinja_skip(p, TOKEN_DOT)) {
		struct jinja_node *object = node;

		rc = jinja_new_node(p, NODE_NAMESPACE_ATTRIBUTE, object->line, &node);
		if (rc)
			return rc;
		node->attribute.object = object;
		rc = jinja_expect_name(p, &node->attribute.name);
	}
	*ret = node;
	return rc;
}

static int parse_if(struct jinja_parser *p, struct jinja_node **ret)
{
	static const char *const ends[] = {"endif", "else", "elif", NULL};
	struct jinja_node *node = NULL, *arm;
	int rc = jinja_new_node(p, NODE_IF, p->token->line, &node);

	*ret = arm = node;
	while (!rc) {
		p->token++;
		rc = jinja_parse_tuple(p, TUPLE_NO_CONDITION, NULL, &arm->branch.test);
		if (!rc)
			rc = parse_body(p, ends, &arm->branch.body);
		if (rc || !jinja_at_name(p, "elif"))
			break;
		rc = jinja_new_node(p, NODE_IF, p->token->line, &arm);
		if (!rc)
			rc = jinja_push_node(p, &node->branch.arms, arm);
	}
	if (rc || !jinja_at_name(p, "else")) {
		p->token += !rc; /* endif */
		return rc;
	}
	p->token++;
	return parse_simple_body(p, "endif", &node->branch.otherwise);
}

static int parse_for(struct jinja_parser *p, struct jinja_node **ret)
{
	static const char *const ends[] = {"endfor", "else", NULL};
	struct jinja_node *node;
	int rc = jinja_new_node(p, NODE_FOR, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	p->token++;
	rc = parse_target(p, false, "in", &node->loop.target);
	if (!rc && !jinja_skip_name(p, "in"))
		rc = jinja_parse_fail(p, "expected 'in'");
	if (!rc)
		rc = jinja_parse_tuple(p, TUPLE_NO_CONDITION, "recursive", &node->loop.iterable);
	if (!rc && jinja_skip_name(p, "if"))
		rc = jinja_parse_expression(p, &node->loop.filter);
	if (rc)
		return rc;
	node->recursive = jinja_skip_name(p, "recursive");
	p->loop_depth++;
	rc = parse_body(p, ends, &node->loop.body);
	p->loop_depth--;
	if (rc)
		return rc;
	p->token++;
	if (p->token[-1].length == strlen("endfor"))
		return 0;
	return parse_simple_body(p, "endfor", &node->loop.otherwise);
}

static int parse_set(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *node;
	int rc = jinja_new_node(p, NODE_SET, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	p->token++;
	rc = parse_target(p, true, NULL, &node->set.target);
	if (rc)
		return rc;
	if (jinja_skip(p, TOKEN_ASSIGN))
		return jinja_parse_tuple(p, TUPLE_FULL, NULL, &node->set.value);
	node->type = NODE_SET_BLOCK;
	rc = jinja_parse_filters(p, false, NULL, &node->set.value);
	return rc ? rc : parse_simple_body(p, "endset", &node->set.body);
}

static int parse_with(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *node, *target, *value;
	int rc = jinja_new_node(p, NODE_WITH, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	p->token++;
	while (!rc && p->token->type != TOKEN_BLOCK_END) {
		if (node->with.targets.n)
			rc = jinja_expect(p, TOKEN_COMMA, "','");
		if (!rc)
			rc = parse_target_item(p, false, &target);
		if (!rc)
			rc = jinja_expect(p, TOKEN_ASSIGN, "'='");
		if (!rc)
			rc = jinja_parse_expression(p, &value);
		if (!rc)
			rc = jinja_push_node(p, &node->with.targets, target);
		if (!rc)
			rc = jinja_push_node(p, &node->with.values, value);
	}
	return rc ? rc : parse_simple_body(p, "endwith", &node->with.body);
}

static int parse_parameters(struct jinja_parser *p, struct jinja_signature *macro)
{
	struct jinja_node *node;
	int rc = jinja_expect(p, TOKEN_LPAREN, "'('");

	while (!rc && p->token->type != TOKEN_RPAREN) {
		if (macro->parameters.n)
			rc = jinja_expect(p, TOKEN_COMMA, "','");
		if (!rc)
			rc = parse_target_item(p, false, &node);
		if (!rc && node->type != NODE_NAME)
			rc = jinja_parse_fail(p, "a parameter must be a name");
		if (!rc)
			rc = jinja_push_node(p, &macro->parameters, node);
		if (rc)
			return rc;
		if (jinja_skip(p, TOKEN_ASSIGN)) {
			rc = jinja_parse_expression(p, &node);
			if (!rc)
				rc = jinja_push_node(p, &macro->defaults, node);
		} else if (macro->defaults.n) {
			rc = jinja_parse_fail(p, "a parameter without default follows one with");
		}
	}
	return rc ? rc : jinja_expect(p, TOKEN_RPAREN, "')'");
}

/*
 * The body of a macro: loops outside do not reach in. What it uses, the macro around it uses as
 * well.
 */
static int parse_macro_body(struct jinja_parser *p, const char *end, struct jinja_signature *macro)
{
	struct jinja_signature *outer = p->macro;
	unsigned int loop_depth = p->loop_depth;
	int rc;

	p->macro = macro;
	p->loop_depth = 0;
	rc = parse_simple_body(p, end, &macro->body);
	p->loop_depth = loop_depth;
	p->macro = outer;
	if (outer) {
		outer->uses_caller |= macro->uses_caller;
		outer->uses_varargs |= macro->uses_varargs;
		outer->uses_kwargs |= macro->uses_kwargs;
	}
	return rc;
}

static int parse_macro(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *node;
	int rc = jinja_new_node(p, NODE_MACRO, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	p->token++;
	rc = jinja_expect_name(p, &node->macro.name);
	if (!rc)
		rc = parse_parameters(p, &node->macro);
	return rc ? rc : parse_macro_body(p, "endmacro", &node->macro);
}

static int parse_call_block(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *node;
	int rc = jinja_new_node(p, NODE_CALL_BLOCK, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	node->call_block.caller.name = p->template->names.caller;
	p->token++;
	if (p->token->type == TOKEN_LPAREN)
		rc = parse_parameters(p, &node->call_block.caller);
	if (!rc)
		rc = jinja_parse_expression(p, &node->call_block.call);
	if (!rc && node->call_block.call->type != NODE_CALL)
		rc = jinja_parse_fail(p, "expected a call");
	return rc ? rc : parse_macro_body(p, "endcall", &node->call_block.caller);
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node **ret)
{
	struct jinja_node *node;
	int rc = jinja_new_node(p, NODE_FILTER_BLOCK, p->token->line, &node);

	if (rc)
		return rc;
	*ret = node;
	p->token++;
	rc = jinja_parse_filters(p, true, NULL, &node->block.filter);
	return rc ? rc : parse_simple_body(p, "endfilter", &node->block.body);
}

static int parse_generation(struct jinja_parser *p, struct jinja_node **ret)
{
	int rc = jinja_new_node(p, NODE_SCOPE, p->token->line, ret);

	if (rc)
		return rc;
	p->token++;
	return parse_simple_body(p, "endgeneration", &(*ret)->block.body);
}

static int parse_jump(struct jinja_parser *p, struct jinja_node **ret)
{
	bool is_break = jinja_at_name(p, "break");

	if (!p->loop_depth)
		return jinja_parse_fail(p, "break and continue belong into a loop");
	p->token++;
	return jinja_new_node(p, is_break ? NODE_BREAK : NODE_CONTINUE, p->token->line, ret);
}

/* {% print a, b %} is as many outputs. */
static int parse_print(struct jinja_parser *p, struct jinja_nodes *nodes)
{
	int rc = 0;

	p->token++;
	while (!rc && p->token->type != TOKEN_BLOCK_END) {
		struct jinja_node *node;

		rc = jinja_new_node(p, NODE_OUTPUT, p->token->line, &node);
		if (!rc)
			rc = jinja_parse_expression(p, &node->expression);
		if (!rc)
			rc = jinja_push_node(p, nodes, node);
		if (!rc && p->token->type != TOKEN_BLOCK_END)
			rc = jinja_expect(p, TOKEN_COMMA, "','");
	}
	return rc;
}

static int parse_statement(struct jinja_parser *p, struct jinja_nodes *nodes)
{
	static const struct {
		const char *name;
		int (*parse)(struct jinja_parser *p, struct jinja_node **ret);
	} statements[] = {
		{"if", parse_if},
		{"for", parse_for},
		{"set", parse_set},
		{"macro", parse_macro},
		{"with", parse_with},
		{"call", parse_call_block},
		{"break", parse_jump},
		{"continue", parse_jump},
		{"filter", parse_filter_block},
		{"generation", parse_generation},
	};
	static const char *const refused[] = {"extends", "include",    "import", "from",
					      "block",	 "autoescape", "do"};
	struct jinja_node *node;
	size_t i;
	int rc;

	if (p->token->type != TOKEN_NAME)
		return jinja_parse_fail(p, "expected the name of a tag");
	if (jinja_at_name(p, "print"))
		return parse_print(p, nodes);
	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		if (!jinja_at_name(p, statements[i].name))
			continue;
		rc = statements[i].parse(p, &node);
		return rc ? rc : jinja_push_node(p, nodes, node);
	}
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (jinja_at_name(p, refused[i]))
			return jinja_parse_fail(p, "tag not supported in chat templates");
	return jinja_parse_fail(p, "unknown tag");
}

static int intern_own_names(struct jinja_parser *p)
{
	struct jinja_names *names = &p->template->names;
	int rc = jinja_intern(p, "loop", 4, &names->loop);

	if (!rc)
		rc = jinja_intern(p, "caller", 6, &names->caller);
	if (!rc)
		rc = jinja_intern(p, "varargs", 7, &names->varargs);
	return rc ? rc : jinja_intern(p, "kwargs", 6, &names->kwargs);
}

int txda_template_parse(const char *source, size_t length, struct txda_template_error *error,
			struct txda_template **ret_template)
{
	struct txda_template *template;
	struct jinja_tokens tokens = {0};
	struct txda_template_error own_error;
	struct jinja_parser p;
	int rc;

	if (!error)
		error = &own_error;
	*error = (struct txda_template_error){0};
	p = (struct jinja_parser){.error = error};
	if (length > TXDA_TEMPLATE_MAX_SOURCE)
		return jinja_set_error(error, TXDA_TEMPLATE_LIMIT, 0,
				       "template of %zu bytes, the limit is %zu", length,
				       TXDA_TEMPLATE_MAX_SOURCE);
	template = calloc(1, sizeof(*template));
	if (!template)
		return jinja_set_error(error, TXDA_TEMPLATE_MEMORY, 0, "out of memory");
	jinja_arena_init(&template->arena, TREE_MEMORY);
	p.template = template;
	rc = jinja_lex(source, length, &template->arena, &tokens, error);
	if (!rc) {
		p.token = tokens.items;
		rc = intern_own_names(&p);
	}
	if (!rc)
		rc = parse_until(&p, NULL, &template->body);
	free(tokens.items);
	if (rc) {
		txda_template_free(template);
		/* an allocation deep in the parser reports only that it failed */
		return error->kind == TXDA_TEMPLATE_LIMIT ? -E2BIG : rc;
	}
	*ret_template = template;
	return 0;
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
	return jinja_dict_find(&template->arena, &template->symbols, name, strlen(name)) != NULL;
}
