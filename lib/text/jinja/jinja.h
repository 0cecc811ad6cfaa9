/* SPDX-License-Identifier: MIT */
/*
 * The language of chat templates: a sandboxed interpreter of the Jinja dialect that checkpoints
 * use.
 *
 * A template is parsed once into an immutable tree and rendered many times, from any number of
 * threads at once. A render owns all its memory and shares nothing; nothing a template does
 * outlives it.
 *
 * Environment: trim_blocks and lstrip_blocks on, one trailing newline of the source dropped, no
 * escaping, values printed as by Python, `tojson` as Python's json.dumps(ensure_ascii=False), lists
 * and dictionaries immutable. Extensions: `break`, `continue`, a `generation` block that outputs
 * its body, `raise_exception(message)` and `strftime_now(format)`. Inheritance, includes and
 * imports are refused when parsed.
 *
 * Both the template and the variables may be hostile: a render has limits on steps, memory, output
 * and nesting (struct txda_template_limits). At the default nesting a render needs less than 512
 * KiB of stack.
 *
 * Numbers: integers have up to 4300 digits, as many as Python prints; a literal in a template has
 * up to 511. cJSON keeps numbers as doubles, so `1.0` and `1` look alike;
 * txda_template_mark_numbers() preserves the difference.
 */
#ifndef TXDA_TEXT_JINJA_H
#define TXDA_TEXT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cjson/cJSON.h>

struct txda_template;

enum txda_template_error_kind {
	TXDA_TEMPLATE_OK = 0,
	TXDA_TEMPLATE_SYNTAX,  /* the template cannot be parsed (-EINVAL) */
	TXDA_TEMPLATE_RUNTIME, /* an operation failed while rendering (-EINVAL) */
	TXDA_TEMPLATE_RAISED,  /* raise_exception() was called; message is its text (-EPROTO) */
	TXDA_TEMPLATE_LIMIT,   /* a limit was exceeded (-E2BIG) */
	TXDA_TEMPLATE_MEMORY,  /* the machine is out of memory (-ENOMEM) */
};

struct txda_template_error {
	enum txda_template_error_kind kind;
	unsigned int line;  /* line of the template, from 1; 0: unknown */
	char message[1024]; /* UTF-8, without the line, truncated if longer */
};

struct txda_template_limits {
	uint64_t steps;	    /* evaluated nodes, plus a share for the bytes that they process */
	size_t memory;	    /* bytes of all values, live or dead, in one render */
	size_t output;	    /* bytes of output, including text under construction */
	unsigned int depth; /* nested expressions, statements and macro calls */
};

#define TXDA_TEMPLATE_MAX_SOURCE ((size_t)1 << 20) /* bytes of a template */

/* Used by renders without explicit limits: 20 M steps, 256 MiB, 64 MiB, 600 deep. */
extern const struct txda_template_limits txda_template_default_limits;

struct txda_template_options {
	const struct tm *now;			   /* for strftime_now(); NULL: the local time */
	const struct txda_template_limits *limits; /* NULL: the default */
};

/*
 * Parses @source (@length bytes of UTF-8, need not be terminated, not kept). Returns 0, -EINVAL
 * (syntax), -E2BIG (too large or nested too deeply) or -ENOMEM; @error may be NULL.
 */
int txda_template_parse(const char *source, size_t length, struct txda_template_error *error,
			struct txda_template **ret_template);

void txda_template_free(struct txda_template *template);

/* Whether the template uses @name anywhere, as a variable or otherwise. */
bool txda_template_mentions(const struct txda_template *template, const char *name);

/*
 * Renders with the members of @context (a cJSON object, read only) as variables. On success
 * *@ret_text is a terminated string for the caller to free(), *@ret_length its length (the text may
 * hold no NUL of its own unless a template literal does). Thread-safe. @options, @error and
 * @ret_length may be NULL.
 */
int txda_template_render(const struct txda_template *template, const cJSON *context,
			 const struct txda_template_options *options,
			 struct txda_template_error *error, char **ret_text, size_t *ret_length);

/*
 * Records in @root, which cJSON parsed from @text, the literals of numbers whose spelling a double
 * cannot represent: `1.0`, `1e3`, integers beyond 2^53. The literal is stored in the valuestring of
 * the number's node, which cJSON itself ignores for numbers, copies in cJSON_Duplicate() and frees
 * in cJSON_Delete(); the render reads it. Returns 0, -EINVAL if the text does not match the tree,
 * -ENOMEM.
 */
int txda_template_mark_numbers(cJSON *root, const char *text, size_t length);

#endif
