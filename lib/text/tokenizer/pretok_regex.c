// SPDX-License-Identifier: MIT
#include "pretok_regex.h"
#include "text_buf.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdio.h>

/* A model's expression is one line of text; longer ones are refused. */
#define PATTERN_MAX 65536

/* Maximum steps of one search. Splitting expressions need a few for each byte. */
#define MATCH_LIMIT 50000000u

/* Without the JIT, memory for backtracking in KiB; (?:a|b)+c on 8 MB would need 1.3 GB. */
#define HEAP_LIMIT 32768

#define JIT_STACK_START 32768
#define JIT_STACK_MAX	(8u << 20)

/* Unicode's White_Space property, and its complement. */
#define SPACE_SET                                                                                  \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"                           \
	"\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE_SET                                                                              \
	"\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"               \
	"\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"             \
	"\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Alphabetic, marks, decimal numbers, connector punctuation. */
#define WORD_SET                                                                                   \
	"\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"                \
	"\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

struct pretok_regex {
	pcre2_code *code;
};

struct rewriter {
	const char *in;
	size_t at;
	struct text_buf out;
	char *err;
	size_t errlen;
};

static int refuse(struct rewriter *rw, size_t at, const char *why)
{
	if (rw->err && rw->errlen)
		snprintf(rw->err, rw->errlen, "%s at \"%.20s\"", why, rw->in + at);
	return -EINVAL;
}

static int put(struct rewriter *rw, const char *string)
{
	return text_buf_add_string(&rw->out, string) ? 0 : -ENOMEM;
}

static int put_from(struct rewriter *rw, size_t len)
{
	if (!text_buf_add(&rw->out, rw->in + rw->at, len))
		return -ENOMEM;
	rw->at += len;
	return 0;
}

/* Unicode's general categories. */
static const char categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
				     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
				     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
#define N_CATEGORIES (sizeof(categories) / sizeof(categories[0]))

/* The categories that "\p{Lu}" or "\p{L}" at @here stands for, as bits; 0: something else. */
static uint32_t categories_at(const char *here)
{
	uint32_t bits = 0;
	size_t len;

	if (strncmp(here, "\\p{", 3))
		return 0;
	len = strcspn(here + 3, "}");
	for (size_t i = 0; (len == 1 || len == 2) && i < N_CATEGORIES; i++)
		if (!memcmp(categories[i], here + 3, len))
			bits |= 1u << i;
	return bits;
}

static bool is_script(const char *name, size_t len)
{
	char pattern[64];
	PCRE2_SIZE at;
	pcre2_code *code;
	int n, error;

	if (len != strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"))
		return false;
	n = snprintf(pattern, sizeof(pattern), "\\p{sc:%.*s}", (int)len, name);
	if (n >= (int)sizeof(pattern))
		return false;
	code = pcre2_compile((PCRE2_SPTR)pattern, (size_t)n, PCRE2_UTF, &error, &at, NULL);
	pcre2_code_free(code);
	return code != NULL;
}

/*
 * \p{..}, \P{..}, \x{..} unchanged, except for scripts: in PCRE2 \p{Han} includes characters that
 * are shared with other scripts.
 */
static int rewrite_braced(struct rewriter *rw)
{
	const char *here = rw->in + rw->at;
	size_t len = 2, sign;

	if (here[2] != '{')
		return put_from(rw, len);
	len = strcspn(here, "}");
	if (!here[len])
		return refuse(rw, rw->at, "a brace is not closed");
	sign = 3 + (here[3] == '^');
	if (here[1] != 'x' && len < 64 && is_script(here + sign, len - sign)) {
		int ret = put_from(rw, sign);

		return ret || put(rw, "sc:") ? -ENOMEM : put_from(rw, len + 1 - sign);
	}
	return put_from(rw, len + 1);
}

static int rewrite_escape(struct rewriter *rw, bool in_class)
{
	size_t start = rw->at;
	char c = rw->in[start + 1];

	switch (c) {
	case '\0': return refuse(rw, start, "a backslash stands alone");
	case 'p':
	case 'P':
	case 'x': return rewrite_braced(rw);
	case 's': rw->at += 2; return put(rw, in_class ? SPACE_SET : "[" SPACE_SET "]");
	case 'S': rw->at += 2; return put(rw, in_class ? NOT_SPACE_SET : "[^" SPACE_SET "]");
	case 'w': rw->at += 2; return put(rw, in_class ? WORD_SET : "[" WORD_SET "]");
	case 'W':
		if (in_class)
			return refuse(rw, start, "\\W inside brackets is not supported");
		rw->at += 2;
		return put(rw, "[^" WORD_SET "]");
	case 'h': rw->at += 2; return put(rw, in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
	case 'v': rw->at += 2; return put(rw, "\\x{b}");
	case 'n':
	case 'r':
	case 't':
	case 'f':
	case 'a':
	case 'e':
	case 'd':
	case 'D': return put_from(rw, 2);
	case 'A':
	case 'z':
		if (!in_class)
			return put_from(rw, 2);
		break;
	default:
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
			return put_from(rw, (c & 0x80) ? 1 : 2);
	}
	return refuse(rw, start, "this escape is not supported");
}

/*
 * The contents of brackets, up to the closing one, or up to && if @ret_categories is given: the
 * categories before it, 0 if there is anything else.
 */
static int rewrite_members(struct rewriter *rw, size_t start, uint32_t *ret_categories)
{
	bool others = false;
	uint32_t bits = 0;
	int ret = 0;

	while (!ret && rw->in[rw->at] != ']') {
		const char *here = rw->in + rw->at;
		uint32_t more = categories_at(here);

		if (!*here)
			return refuse(rw, start, "a bracket is not closed");
		if (ret_categories && !strncmp(here, "&&", 2)) {
			*ret_categories = others ? 0 : bits;
			return 0;
		}
		if (!strncmp(here, "&&", 2) || *here == '[')
			return refuse(rw, rw->at, "sets inside brackets are not supported");
		bits |= more;
		others |= !more;
		ret = *here == '\\' ? rewrite_escape(rw, true) : put_from(rw, 1);
	}
	return ret;
}

/* [\p{Lu}\p{Lo}&&[^..]] from && on: all that is neither in another category nor in the second set. */
static int rewrite_difference(struct rewriter *rw, size_t start, size_t out_start, uint32_t bits)
{
	int ret;

	if (!bits || strncmp(rw->in + rw->at, "&&[^", 4))
		return refuse(rw, start, "&& of other than \\p{..} and [^..] is not supported");
	rw->out.len = out_start;
	ret = put(rw, "[^");
	for (size_t i = 0; !ret && i < N_CATEGORIES; i++) {
		char property[8];

		snprintf(property, sizeof(property), "\\p{%.2s}", categories[i]);
		if (!(bits & 1u << i))
			ret = put(rw, property);
	}
	rw->at += 4;
	if (!ret)
		ret = rewrite_members(rw, start, NULL);
	if (!ret && rw->in[rw->at + 1] != ']')
		return refuse(rw, start, "sets inside brackets are not supported");
	rw->at++;
	return ret ? ret : put_from(rw, 1);
}

static int rewrite_class(struct rewriter *rw)
{
	size_t start = rw->at, out_start = rw->out.len;
	bool negated = rw->in[start + 1] == '^';
	uint32_t bits = 0;
	int ret = put_from(rw, negated ? 2 : 1);

	if (!ret && rw->in[rw->at] == ']')
		return refuse(rw, start, "an empty set is not supported");
	if (!ret)
		ret = rewrite_members(rw, start, &bits);
	if (!ret && rw->in[rw->at] == '&')
		return rewrite_difference(rw, start, out_start, negated ? 0 : bits);
	return ret ? ret : put_from(rw, 1);
}

static int rewrite_group(struct rewriter *rw)
{
	static const char *const known[] = {
		"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
	const char *here = rw->in + rw->at;

	if (here[1] == '*')
		return refuse(rw, rw->at, "this group is not supported");
	if (here[1] != '?')
		return put_from(rw, 1);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(here, known[i], strlen(known[i])))
			return put_from(rw, strlen(known[i]));
	return refuse(rw, rw->at, "this group is not supported");
}

/* {n}, {n,}, {n,m}. The two engines disagree about other uses of braces. */
static int rewrite_braces(struct rewriter *rw)
{
	const char *here = rw->in + rw->at;
	size_t len = 1 + strspn(here + 1, "0123456789");

	if (len == 1)
		return refuse(rw, rw->at, "a brace that is not a quantifier is not supported");
	if (here[len] == ',')
		len += 1 + strspn(here + len + 1, "0123456789");
	if (here[len] != '}')
		return refuse(rw, rw->at, "a brace that is not a quantifier is not supported");
	if (here[len + 1] == '+')
		return refuse(rw, rw->at, "a quantified quantifier is not supported");
	return put_from(rw, len + 1);
}

static int rewrite(struct rewriter *rw)
{
	int ret = 0;

	while (!ret && rw->in[rw->at]) {
		switch (rw->in[rw->at]) {
		case '\\': ret = rewrite_escape(rw, false); break;
		case '[': ret = rewrite_class(rw); break;
		case '(': ret = rewrite_group(rw); break;
		case '{': ret = rewrite_braces(rw); break;
		default: ret = put_from(rw, 1);
		}
	}
	return ret;
}

static int compile(struct pretok_regex *regex, const struct text_buf *pattern, char *err,
		   size_t errlen)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR why[128];
	PCRE2_SIZE at;
	int code;

	if (!context)
		return -ENOMEM;
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	pcre2_set_parens_nest_limit(context, 64);
	regex->code =
		pcre2_compile((PCRE2_SPTR)pattern->data, pattern->len,
			      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
			      &code, &at, context);
	pcre2_compile_context_free(context);
	if (!regex->code) {
		pcre2_get_error_message(code, why, sizeof(why));
		if (err && errlen)
			snprintf(err, errlen, "%s", (const char *)why);
		return -EINVAL;
	}
	/* If there is no JIT, pcre2_match() interprets. */
	pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
	return 0;
}

int pretok_regex_new(const char *pattern, struct pretok_regex **ret_regex, char *err, size_t errlen)
{
	struct rewriter rw = {.in = pattern, .err = err, .errlen = errlen};
	struct pretok_regex *regex;
	int ret;

	if (strlen(pattern) > PATTERN_MAX) {
		if (err && errlen)
			snprintf(err, errlen, "%zu bytes are more than the limit of %d",
				 strlen(pattern), PATTERN_MAX);
		return -EINVAL;
	}
	regex = calloc(1, sizeof(*regex));
	if (!regex)
		return -ENOMEM;
	ret = rewrite(&rw);
	if (!ret && !text_buf_end(&rw.out))
		ret = -ENOMEM;
	if (!ret)
		ret = compile(regex, &rw.out, err, errlen);
	free(rw.out.data);
	if (ret) {
		pretok_regex_free(regex);
		return ret;
	}
	*ret_regex = regex;
	return 0;
}

void pretok_regex_free(struct pretok_regex *regex)
{
	if (!regex)
		return;
	pcre2_code_free(regex->code);
	free(regex);
}

static bool prepare(struct pretok_match *match)
{
	if (!match->data)
		match->data = pcre2_match_data_create(1, NULL);
	if (!match->context) {
		match->context = pcre2_match_context_create(NULL);
		if (match->context) {
			pcre2_set_match_limit(match->context, MATCH_LIMIT);
			pcre2_set_depth_limit(match->context, MATCH_LIMIT);
			pcre2_set_heap_limit(match->context, HEAP_LIMIT);
		}
	}
	return match->data && match->context;
}

/*
 * The JIT's own 32 KiB were not enough: allocates a stack that grows. False if there already is
 * one.
 */
static bool grow_stack(struct pretok_match *match)
{
	if (match->stack)
		return false;
	match->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
	if (match->stack)
		pcre2_jit_stack_assign(match->context, NULL, match->stack);
	return match->stack != NULL;
}

int pretok_regex_find(const struct pretok_regex *regex, struct pretok_match *match,
		      const char *text, size_t len, size_t from, size_t *ret_start, size_t *ret_end)
{
	PCRE2_SIZE *ends;
	int n;

	if (!prepare(match))
		return -ENOMEM;
	do {
		n = pcre2_match(regex->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK,
				match->data, match->context);
	} while (n == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack(match));
	if (n == PCRE2_ERROR_NOMATCH)
		return 0;
	if (n == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (n < 0)
		return -EOVERFLOW;
	ends = pcre2_get_ovector_pointer(match->data);
	*ret_start = ends[0];
	*ret_end = ends[1];
	return 1;
}

void pretok_match_free(struct pretok_match *match)
{
	pcre2_match_data_free(match->data);
	pcre2_match_context_free(match->context);
	pcre2_jit_stack_free(match->stack);
}
