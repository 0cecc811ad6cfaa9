// SPDX-License-Identifier: MIT
/*
 * Strings marked by the filter `safe`. With escaping off they print like any other, but adding to
 * one escapes what is added, as Python's Markup does; templates in the wild depend on it.
 */
#include <string.h>

#include "jinja_text.h"

int jinja_keep_safe(struct jinja_value self, int rc, struct jinja_value *ret)
{
	if (!rc && ret->kind == JINJA_STRING)
		ret->safe = self.kind == JINJA_STRING && self.safe;
	return rc;
}

int jinja_escape(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret)
{
	static const char chars[] = "&<>'\"";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
	size_t mark, i, plain = 0;
	struct jinja_str *s;
	int rc;

	if (v.kind == JINJA_STRING && v.safe) {
		*ret = v;
		return 0;
	}
	rc = jinja_to_str(r, v, &s);
	mark = r->out.length;
	for (i = 0; !rc && i < s->length; i++) {
		const char *known = s->data[i] ? strchr(chars, s->data[i]) : NULL;

		if (!known)
			continue;
		rc = jinja_write(r, s->data + plain, i - plain);
		if (!rc)
			rc = jinja_write_text(r, names[known - chars]);
		plain = i + 1;
	}
	if (!rc)
		rc = jinja_write(r, s->data + plain, s->length - plain);
	if (!rc)
		rc = jinja_captured(r, mark, ret);
	if (!rc)
		ret->safe = true;
	return rc;
}

/* Methods that take their arguments as they are. */
static bool takes_plain_arguments(const char *name)
{
	static const char *const names[] = {"split",	"rsplit", "splitlines", "startswith",
					    "endswith", "find",	  "rfind",	"index",
					    "rindex",	"count",  "format"};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* The strings of a sequence (join) or a lone string, escaped. */
static int escape_argument(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret)
{
	struct jinja_seq *items, *escaped;
	struct jinja_value item;
	size_t i;
	int rc;

	*ret = v;
	if (v.kind == JINJA_STRING)
		return jinja_escape(r, v, ret);
	if (v.kind != JINJA_SEQ)
		return 0;
	rc = jinja_iterate(r, v, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, items->n, &escaped);
	for (i = 0; !rc && i < items->n; i++) {
		rc = jinja_escape(r, items->items[i], &item);
		if (!rc)
			rc = jinja_append(r, escaped, item);
	}
	if (!rc)
		*ret = jinja_seq_value(escaped);
	return rc;
}

static void mark_result(struct jinja_value *v)
{
	size_t i;

	if (v->kind == JINJA_STRING)
		v->safe = true;
	if (v->kind != JINJA_SEQ)
		return;
	for (i = 0; i < v->seq->n; i++) /* fresh from split() and the like */
		if (v->seq->items[i].kind == JINJA_STRING)
			v->seq->items[i].safe = true;
}

int jinja_call_safe_method(struct jinja_render *r, const struct jinja_bound *method,
			   const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_args escaped = *args;
	struct jinja_value *positional;
	size_t i;
	int rc = 0;

	if (!takes_plain_arguments(method->builtin->name) && args->n) {
		rc = jinja_alloc(r, args->n * sizeof(*positional), &positional);
		for (i = 0; !rc && i < args->n; i++)
			rc = escape_argument(r, args->positional[i], &positional[i]);
		if (!rc)
			escaped.positional = positional;
	}
	if (!rc)
		rc = method->builtin->call(r, method->self, &escaped, ret);
	if (!rc)
		mark_result(ret);
	return rc;
}
