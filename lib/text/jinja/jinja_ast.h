/* SPDX-License-Identifier: MIT */
/*
 * Tokens and syntax tree of a template. The tree lives in the template's arena and is read-only
 * after parsing.
 */
#ifndef TXDA_TEXT_JINJA_AST_H
#define TXDA_TEXT_JINJA_AST_H

#include "jinja.h"
#include "jinja_value.h"

enum jinja_token_type {
	TOKEN_EOF,
	TOKEN_DATA,
	TOKEN_VARIABLE_BEGIN,
	TOKEN_VARIABLE_END,
	TOKEN_BLOCK_BEGIN,
	TOKEN_BLOCK_END,
	TOKEN_NAME,
	TOKEN_STRING,
	TOKEN_INTEGER,
	TOKEN_FLOAT,
	TOKEN_ADD,
	TOKEN_SUB,
	TOKEN_MUL,
	TOKEN_DIV,
	TOKEN_FLOORDIV,
	TOKEN_MOD,
	TOKEN_POW,
	TOKEN_TILDE,
	TOKEN_LPAREN,
	TOKEN_RPAREN,
	TOKEN_LBRACKET,
	TOKEN_RBRACKET,
	TOKEN_LBRACE,
	TOKEN_RBRACE,
	TOKEN_EQ,
	TOKEN_NE,
	TOKEN_GT,
	TOKEN_GE,
	TOKEN_LT,
	TOKEN_LE,
	TOKEN_ASSIGN,
	TOKEN_DOT,
	TOKEN_COLON,
	TOKEN_PIPE,
	TOKEN_COMMA,
	TOKEN_SEMICOLON,
};

struct jinja_token {
	uint8_t type; /* enum jinja_token_type */
	unsigned int line;
	const char *data; /* DATA, NAME, STRING (decoded): text; else the source */
	size_t length;
	union {
		int64_t integer;
		double real;
	};
};

struct jinja_tokens {
	struct jinja_token *items; /* malloc'd, ends with TOKEN_EOF */
	size_t n;
	size_t capacity;
};

/*
 * Cut @source into tokens; texts live in @arena. Returns 0 or -errno with @error filled in. The
 * caller frees tokens->items in either case.
 */
int jinja_lex(const char *source, size_t length, struct jinja_arena *arena,
	      struct jinja_tokens *tokens, struct txda_template_error *error);

/* Fill in @error and return the -errno that belongs to @kind. */
__attribute__((format(printf, 4, 5))) int jinja_set_error(struct txda_template_error *error,
							  enum txda_template_error_kind kind,
							  unsigned int line, const char *format,
							  ...);

enum jinja_node_type {
	/* expressions */
	NODE_CONST,
	NODE_NAME,
	NODE_LIST,
	NODE_TUPLE,
	NODE_DICT,
	NODE_CONDITION,
	NODE_BINARY,
	NODE_AND,
	NODE_OR,
	NODE_NOT,
	NODE_NEGATE,
	NODE_POSITIVE,
	NODE_COMPARE,
	NODE_CONCAT,
	NODE_ATTRIBUTE,
	NODE_ITEM,
	NODE_SLICE,
	NODE_CALL,
	NODE_FILTER,
	NODE_TEST,
	/* targets of assignments, besides NAME and TUPLE */
	NODE_NAMESPACE_ATTRIBUTE,
	/* statements */
	NODE_TEXT,
	NODE_OUTPUT,
	NODE_IF,
	NODE_FOR,
	NODE_SET,
	NODE_SET_BLOCK,
	NODE_WITH,
	NODE_MACRO,
	NODE_CALL_BLOCK,
	NODE_FILTER_BLOCK,
	NODE_SCOPE, /* a body with its own scope: `generation` */
	NODE_BREAK,
	NODE_CONTINUE,
};

enum jinja_compare_op {
	COMPARE_EQ,
	COMPARE_NE,
	COMPARE_LT,
	COMPARE_LE,
	COMPARE_GT,
	COMPARE_GE,
	COMPARE_IN,
	COMPARE_NOT_IN,
};

struct jinja_node;
struct jinja_builtin;

struct jinja_nodes {
	struct jinja_node **items;
	uint32_t n;
	uint32_t capacity;
};

struct jinja_keyword {
	struct jinja_str *name;
	struct jinja_node *value;
};

struct jinja_arguments {
	struct jinja_nodes positional;
	struct jinja_keyword *keywords;
	uint32_t n_keywords;
	uint32_t keyword_capacity;
	struct jinja_node *star;      /* *sequence or NULL */
	struct jinja_node *star_star; /* **mapping or NULL */
};

/* What a macro and the body of a call block have in common. */
struct jinja_signature {
	struct jinja_str *name;	       /* interned */
	struct jinja_nodes parameters; /* NODE_NAME */
	struct jinja_nodes defaults;   /* of the last parameters */
	struct jinja_nodes body;
	bool uses_caller;
	bool uses_varargs;
	bool uses_kwargs;
};

struct jinja_node {
	uint8_t type;	/* enum jinja_node_type */
	uint8_t op;	/* BINARY: token type; COMPARE operand: jinja_compare_op */
	bool negated;	/* TEST */
	bool recursive; /* FOR */
	unsigned int line;
	union {
		struct jinja_value constant; /* CONST */
		struct jinja_str *name;	     /* NAME: interned, compared by address */
		struct jinja_nodes list;     /* LIST, TUPLE, CONCAT; DICT: key, value */
		struct {		     /* CONDITION, SLICE (start, stop, step) */
			struct jinja_node *a, *b, *c;
		} three;
		struct { /* BINARY, AND, OR, NOT (left), ITEM */
			struct jinja_node *left, *right;
		} two;
		struct { /* COMPARE: operands carry their op */
			struct jinja_node *first;
			struct jinja_nodes rest;
		} compare;
		struct { /* ATTRIBUTE, NAMESPACE_ATTRIBUTE */
			struct jinja_node *object;
			struct jinja_str *name;
		} attribute;
		struct { /* CALL */
			struct jinja_node *callee;
			struct jinja_arguments arguments;
		} call;
		struct {			  /* FILTER, TEST */
			struct jinja_node *input; /* NULL: what a filter block captured */
			struct jinja_str *name;
			const struct jinja_builtin *builtin; /* NULL: there is none */
			struct jinja_arguments arguments;
		} apply;
		struct { /* TEXT */
			const char *data;
			size_t length;
		} text;
		struct jinja_node *expression; /* OUTPUT */
		struct {		       /* IF */
			struct jinja_node *test;
			struct jinja_nodes body;
			struct jinja_nodes arms; /* `elif`: IF with test and body only */
			struct jinja_nodes otherwise;
		} branch;
		struct { /* FOR */
			struct jinja_node *target;
			struct jinja_node *iterable;
			struct jinja_node *filter; /* or NULL */
			struct jinja_nodes body;
			struct jinja_nodes otherwise;
		} loop;
		struct { /* SET; SET_BLOCK: value: filter or NULL */
			struct jinja_node *target;
			struct jinja_node *value;
			struct jinja_nodes body;
		} set;
		struct { /* WITH */
			struct jinja_nodes targets;
			struct jinja_nodes values;
			struct jinja_nodes body;
		} with;
		struct jinja_signature macro; /* MACRO */
		struct {		      /* CALL_BLOCK */
			struct jinja_node *call;
			struct jinja_signature caller;
		} call_block;
		struct { /* FILTER_BLOCK, SCOPE (no filter) */
			struct jinja_node *filter;
			struct jinja_nodes body;
		} block;
	};
};

/* Names that the evaluator itself binds. */
struct jinja_names {
	struct jinja_str *loop, *caller, *varargs, *kwargs;
};

struct txda_template {
	struct jinja_arena arena;
	struct jinja_dict symbols; /* interned names: key is the name itself */
	struct jinja_names names;
	struct jinja_nodes body;
};

/*
 * Parser state, shared by jinja_parser.c (statements), jinja_parse_expression.c and
 * jinja_parse_primary.c.
 */
struct jinja_parser {
	struct txda_template *template;
	struct txda_template_error *error;
	const struct jinja_token *token; /* the current one; never past TOKEN_EOF */
	unsigned int depth;
	unsigned int loop_depth;
	struct jinja_signature *macro; /* innermost one being parsed */
};

enum jinja_tuple_mode {
	TUPLE_FULL,	    /* everything */
	TUPLE_NO_CONDITION, /* no `x if y`: before a loop's own `if` */
	TUPLE_PARENTHESES,  /* inside ( ), may be empty */
};

__attribute__((format(printf, 2, 3))) int jinja_parse_fail(struct jinja_parser *p,
							   const char *format, ...);
void *jinja_parse_alloc(struct jinja_parser *p, size_t size);
int jinja_new_node(struct jinja_parser *p, enum jinja_node_type type, unsigned int line,
		   struct jinja_node **ret);
int jinja_push_node(struct jinja_parser *p, struct jinja_nodes *nodes, struct jinja_node *node);
int jinja_intern(struct jinja_parser *p, const char *data, size_t length, struct jinja_str **ret);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_skip_name(struct jinja_parser *p, const char *name);
bool jinja_skip(struct jinja_parser *p, enum jinja_token_type type);
int jinja_expect(struct jinja_parser *p, enum jinja_token_type type, const char *what);
int jinja_expect_name(struct jinja_parser *p, struct jinja_str **ret);

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **ret);
int jinja_parse_tuple(struct jinja_parser *p, enum jinja_tuple_mode mode, const char *end_name,
		      struct jinja_node **ret);
int jinja_parse_primary(struct jinja_parser *p, struct jinja_node **ret);
int jinja_new_two(struct jinja_parser *p, enum jinja_node_type type, unsigned int line,
		  struct jinja_node *left, struct jinja_node *right, struct jinja_node **ret);
/* Extend *@node by what stands behind it: `.a`, `[b]`, `(c)`; then `|d`, `is e`. */
int jinja_parse_postfix(struct jinja_parser *p, struct jinja_node **node);
int jinja_parse_filters_and_tests(struct jinja_parser *p, struct jinja_node **node);
/* `a|b|c` after @input; with_first: the first `|` is left out, as in filter blocks. */
int jinja_parse_filters(struct jinja_parser *p, bool with_first, struct jinja_node *input,
			struct jinja_node **ret);

#endif
