/* SPDX-License-Identifier: MIT */
/*
 * Builds a grammar: automata over bytes, composed of pieces.
 *
 * A piece has a start and an end node. A piece is used only once, since joining changes it. What
 * occurs in several places becomes a rule that each place calls.
 *
 * Errors are sticky: after the first one further calls are valid but have no effect, and
 * grammar_build() returns it.
 *
 * One thread at a time.
 */
#ifndef TXDA_GRAMMAR_BUILD_H
#define TXDA_GRAMMAR_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;
struct grammar_builder;

#define GRAMMAR_UNLIMITED UINT32_MAX /* of grammar_repeat() */

struct grammar_piece {
	uint32_t start, end; /* nodes */
};

/* A set of code points as ascending ranges that do not touch. */
struct grammar_range {
	uint32_t first, last;
};

#define GRAMMAR_MAX_RANGES 512
struct grammar_set {
	struct grammar_range ranges[GRAMMAR_MAX_RANGES];
	unsigned n;
	bool full; /* ranges were lost; the builder refuses it */
};

struct grammar_builder *grammar_builder_new(void); /* NULL: out of memory */
void grammar_builder_free(struct grammar_builder *b);

/* Records the first error; @error: -EINVAL, -E2BIG or -ENOMEM. */
void grammar_fail(struct grammar_builder *b, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool grammar_failed(const struct grammar_builder *b);
/* Records for grammar_skipped() what of the source is not enforced. Each text once. */
void grammar_skip(struct grammar_builder *b, const char *what);

/* A single node, to be joined by grammar_link(): for loops and shared ends. */
uint32_t grammar_node(struct grammar_builder *b);
void grammar_link(struct grammar_builder *b, uint32_t from, uint32_t to);

struct grammar_piece grammar_empty(struct grammar_builder *b);
struct grammar_piece grammar_never(struct grammar_builder *b); /* matches nothing at all */
struct grammar_piece grammar_bytes(struct grammar_builder *b, const char *bytes, size_t len);
struct grammar_piece grammar_text(struct grammar_builder *b, const char *text);
struct grammar_piece grammar_byte(struct grammar_builder *b, unsigned first, unsigned last);
/* The character @c, which is not a surrogate. */
struct grammar_piece grammar_character(struct grammar_builder *b, uint32_t c);
/* One character of the set, as UTF-8. Surrogates are left out. */
struct grammar_piece grammar_char(struct grammar_builder *b, const struct grammar_set *set);
/* The control token @id. */
struct grammar_piece grammar_token(struct grammar_builder *b, uint32_t id);
/* One of the @n strings; the array is sorted in place. */
struct grammar_bytes {
	const char *bytes;
	size_t len;
};
struct grammar_piece grammar_one_of(struct grammar_builder *b, struct grammar_bytes *strings,
				    size_t n);

struct grammar_piece grammar_seq(struct grammar_builder *b, struct grammar_piece first,
				 struct grammar_piece second);
struct grammar_piece grammar_either(struct grammar_builder *b, struct grammar_piece one,
				    struct grammar_piece other);
struct grammar_piece grammar_optional(struct grammar_builder *b, struct grammar_piece piece);
struct grammar_piece grammar_star(struct grammar_builder *b, struct grammar_piece piece);
struct grammar_piece grammar_plus(struct grammar_builder *b, struct grammar_piece piece);
/* min to max times; the piece becomes a rule if counting needs one. */
struct grammar_piece grammar_repeat(struct grammar_builder *b, struct grammar_piece piece,
				    uint32_t min, uint32_t max);

/* A rule, to be defined once. @name is copied, for error messages. */
uint32_t grammar_rule(struct grammar_builder *b, const char *name);
void grammar_define(struct grammar_builder *b, uint32_t rule, struct grammar_piece piece);
bool grammar_is_defined(const struct grammar_builder *b, uint32_t rule);
struct grammar_piece grammar_call(struct grammar_builder *b, uint32_t rule);

/*
 * Checks everything and builds the grammar whose texts are those of @root. After this the builder
 * can only be freed. -EINVAL: the builder's error, an undefined rule, a rule that begins with
 * itself, a grammar that matches nothing. -E2BIG, -ENOMEM. @err has the message.
 */
int grammar_build(struct grammar_builder *b, uint32_t root, struct grammar **ret, char *err,
		  size_t errlen);

/* ---- sets ------------------------------------------------------------------------------------ */

static inline void grammar_set_clear(struct grammar_set *set)
{
	set->n = 0;
	set->full = false;
}

void grammar_set_add(struct grammar_set *set, uint32_t first, uint32_t last);
void grammar_set_invert(struct grammar_set *set); /* within U+0000 to U+10FFFF */
void grammar_set_remove(struct grammar_set *set, uint32_t first, uint32_t last);
bool grammar_set_has(const struct grammar_set *set, uint32_t c);

#endif
