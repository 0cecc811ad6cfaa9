/* SPDX-License-Identifier: MIT */
/*
 * Tokens and syntax tree of a template; shared by the parser's files. The tree lives in the
 * template's arena and is read-only after parsing.
 */
#ifndef TXDA_TEXT_JINJA_AST_H
#define TXDA_TEXT_JINJA_AST_H

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
	TOKEN_BIGINT, /* its decimal digits */
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
	const char *data; /* DATA, NAME, STRING (decoded), BIGINT: text; else the source */
	size_t length;
	union {
		int64_t integer;
		double real;
	};
};

enum { JINJA_MAX_BRACKETS = 256 };

/* Splits the source into tokens, one at a time. */
struct jinja_lexer {
	struct jinja_run *run;
	const char *source; /* lines end with \n, terminated */
	size_t length;
	size_t at;
	unsigned int line;
	uint8_t mode; /* TOKEN_DATA, or TOKEN_..._END of the current tag */
	bool at_tag;  /* the text before the tag at `at` was returned */
	unsigned int n_brackets;
	char brackets[JINJA_MAX_BRACKETS]; /* the closing brackets of the open ones */
};

void jinja_lex_start(struct jinja_lexer *lx, struct jinja_run *run, const char *source,
		     size_t length);
/* After the end every token is TOKEN_EOF. */
void jinja_lex(struct jinja_lexer *lx, struct jinja_token *ret);

/* Types of nodes, each with the members of struct jinja_node that it uses. */
enum jinja_node_type {
	/* expressions */
	NODE_CONST,	/* constant */
	NODE_NAME,	/* name; a: the default, when it is a parameter of a macro */
	NODE_LIST,	/* list */
	NODE_TUPLE,	/* list */
	NODE_DICT,	/* list: key, value, key, value, ... */
	NODE_CONDITION, /* a if b else c (or NULL) */
	NODE_BINARY,	/* a op b; op: a token type */
	NODE_AND,	/* a, b */
	NODE_OR,	/* a, b */
	NODE_NOT,	/* a */
	NODE_NEGATE,	/* a */
	NODE_POSITIVE,	/* a */
	NODE_COMPARE,	/* a, then list of NODE_OPERAND */
	NODE_OPERAND,	/* op: jinja_compare_op; a */
	NODE_CONCAT,	/* list */
	NODE_ATTRIBUTE, /* a.name; also a target of assignments: namespace.name */
	NODE_ITEM,	/* a[b] */
	NODE_SLICE,	/* a:b:c, each may be NULL */
	NODE_CALL,	/* a(arguments) */
	NODE_FILTER,	/* a|name(arguments), builtin; a is NULL: what a block captured */
	NODE_TEST,	/* a is name(arguments), builtin; flag: `is not` */
	NODE_KEYWORD,	/* name=a, among arguments */
	/* statements */
	NODE_TEXT,	   /* text */
	NODE_OUTPUT,	   /* a */
	NODE_IF,	   /* a, body, otherwise (a lone NODE_ELIF is the next arm) */
	NODE_ELIF,	   /* the same */
	NODE_FOR,	   /* for a in b if c (or NULL), body, otherwise; flag: recursive */
	NODE_SET,	   /* a = b */
	NODE_SET_BLOCK,	   /* a = body|b (filters or NULL) */
	NODE_WITH,	   /* list of NODE_SET, body */
	NODE_MACRO,	   /* name, list of NODE_NAME, body, op: jinja_macro_uses */
	NODE_CALL_BLOCK,   /* a: the call; the rest as in MACRO */
	NODE_FILTER_BLOCK, /* body|a */
	NODE_SCOPE,	   /* body with its own scope: `generation` */
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

enum jinja_macro_uses {
	MACRO_CALLER = 1,
	MACRO_VARARGS = 2,
	MACRO_KWARGS = 4,
};

struct jinja_node;
struct jinja_builtin;

struct jinja_nodes {
	struct jinja_node **items;
	uint32_t n;
	uint32_t capacity;
};

/* Arguments of CALL, FILTER, TEST: list, keywords (NODE_KEYWORD), b: *args, c: **kwargs, or NULL */
struct jinja_node {
	uint8_t type; /* enum jinja_node_type */
	uint8_t op;
	bool flag;
	unsigned int line;
	union {
		struct jinja_value constant;
		struct jinja_str text;
		struct {
			struct jinja_str *name;		     /* interned: compared by address */
			const struct jinja_builtin *builtin; /* NULL: there is none of that name */
		};
	};
	struct jinja_node *a, *b, *c;
	struct jinja_nodes list;
	union {
		struct jinja_nodes body;
		struct jinja_nodes keywords;
	};
	struct jinja_nodes otherwise;
};

/* By name; NULL: there is none. */
const struct jinja_builtin *jinja_find_filter(const struct jinja_str *name);
const struct jinja_builtin *jinja_find_test(const struct jinja_str *name);

/* Names that the evaluator binds itself. */
struct jinja_names {
	struct jinja_str *loop, *caller, *varargs, *kwargs;
};

struct txda_template {
	struct jinja_arena arena;
	struct jinja_dict symbols; /* interned names: key is the name itself */
	struct jinja_names names;
	struct jinja_nodes body;
};

/* Shared by jinja_parser.c (statements) and jinja_expression.c. */
struct jinja_parser {
	struct jinja_run run;
	struct txda_template *template;
	struct jinja_lexer lexer;
	struct jinja_token token; /* the current one */
	struct jinja_token next;
	unsigned int depth;
	unsigned int loop_depth;
	struct jinja_node *macro; /* innermost one being parsed; NULL outside */
};

enum jinja_tuple_mode {
	TUPLE_FULL,	    /* everything */
	TUPLE_NO_CONDITION, /* no `x if y`: before a loop's own `if` */
	TUPLE_PARENTHESES,  /* inside ( ), may be empty */
};

/* All throw on a syntax error. */
__attribute__((format(printf, 2, 3))) _Noreturn void jinja_parse_fail(struct jinja_parser *p,
								      const char *format, ...);
void jinja_parse_enter(struct jinja_parser *p);		      /* one level deeper, up to a limit */
void *jinja_parse_alloc(struct jinja_parser *p, size_t size); /* cleared */
struct jinja_node *jinja_new_node(struct jinja_parser *p, enum jinja_node_type type,
				  unsigned int line);
void jinja_push_node(struct jinja_parser *p, struct jinja_nodes *nodes, struct jinja_node *node);
void jinja_advance(struct jinja_parser *p);
bool jinja_token_is(const struct jinja_token *token, const char *name);
bool jinja_skip_name(struct jinja_parser *p, const char *name);
bool jinja_skip(struct jinja_parser *p, enum jinja_token_type type);
void jinja_expect(struct jinja_parser *p, enum jinja_token_type type, const char *what);
struct jinja_str *jinja_expect_name(struct jinja_parser *p);

struct jinja_node *jinja_parse_expression(struct jinja_parser *p);
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, enum jinja_tuple_mode mode,
				     const char *end_name);
struct jinja_node *jinja_parse_primary(struct jinja_parser *p);
/* `a|b|c` after @input; @with_first: the first filter has no `|` before it, as in filter blocks. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, bool with_first,
				       struct jinja_node *input);

#endif
