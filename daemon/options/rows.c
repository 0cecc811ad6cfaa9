// SPDX-License-Identifier: MIT
#include <string.h>

#include "nearest.h"
#include "options.h"
#include "tool_line.h"

/* Iterates over the names of the rows. */
struct spelling {
	const struct option_row *row;
	const char *aliases; /* remaining rows */
	bool negated;	     /* the name with "no-" was returned last */
	char name[OPTIONS_NAME_MAX];
};

/* "--NAME" of the row, of each alias, and each with "no-"; false: no more names. */
static bool next_spelling(const struct option_table *t, struct spelling *s)
{
	const struct option_row *end = t->rows + t->n;
	size_t len;

	if (s->row && s->row->type->negatable && !s->negated) {
		memmove(s->name + 3, s->name, sizeof(s->name) - 3);
		memcpy(s->name, "no-", 3);
		s->negated = true;
		return true;
	}
	s->negated = false;
	if (s->row && s->aliases && *s->aliases) {
		len = strcspn(s->aliases, " ");
		snprintf(s->name, sizeof(s->name), "%.*s", (int)len, s->aliases);
		s->aliases += len + strspn(s->aliases + len, " ");
		return true;
	}
	for (s->row = s->row ? s->row + 1 : t->rows;
	     s->row < end && s->row->scope == OPTION_HEADING; s->row++)
		;
	if (s->row >= end)
		return false;
	s->aliases = s->row->aliases;
	snprintf(s->name, sizeof(s->name), "%s", s->row->name);
	return true;
}

/* Replaces underscores by dashes; false: longer than any option's name. */
static bool plain_name(const char *name, char *ret)
{
	size_t len = strlen(name);

	if (len >= OPTIONS_NAME_MAX)
		return false;
	for (size_t i = 0; i <= len; i++)
		ret[i] = name[i] == '_' ? '-' : name[i];
	return true;
}

const struct option_row *options_find(const struct option_table *t, const char *name,
				      const char **ret_text)
{
	struct spelling s = {0};
	char plain[OPTIONS_NAME_MAX];

	if (!plain_name(name, plain))
		return NULL;
	while (next_spelling(t, &s)) {
		if (!strcmp(s.name, plain)) {
			*ret_text = s.negated ? "no" : NULL;
			return s.row;
		}
	}
	return NULL;
}

const struct option_row *options_find_begun(const struct option_table *t, const char *name,
					    const char **ret_text, char *err, size_t errlen)
{
	struct spelling s = {0};
	char plain[OPTIONS_NAME_MAX];
	struct tool_search search = tool_search(plain_name(name, plain) ? plain : name);
	int id;

	while (next_spelling(t, &s))
		tool_search_take(&search, s.name, (int)(s.row - t->rows) * 2 + s.negated);
	id = tool_search_end(&search, err, errlen);
	*ret_text = id & 1 ? "no" : NULL;
	return id < 0 ? NULL : t->rows + id / 2;
}

bool options_nearest(const struct option_table *t, const char *name, char *ret)
{
	struct spelling s = {0};
	char plain[OPTIONS_NAME_MAX];
	struct nearest near;

	if (!plain_name(name, plain))
		return false;
	near = nearest_to(plain);
	*ret = 0;
	while (next_spelling(t, &s))
		if (nearest_take(&near, s.name))
			memcpy(ret, s.name, sizeof(s.name));
	return *ret != 0;
}

static void *member(const struct option_row *row, void *base)
{
	return (char *)base + row->offset;
}

static const void *const_member(const struct option_row *row, const void *base)
{
	return (const char *)base + row->offset;
}

bool option_set(const struct option_row *row, void *base, const char *text, char *err,
		size_t errlen)
{
	return row->type->parse(row, text, member(row, base), err, errlen);
}

bool option_same(const struct option_row *row, const void *a, const void *b)
{
	const void *x = const_member(row, a), *y = const_member(row, b);

	return row->type->same ? row->type->same(x, y) : !memcmp(x, y, row->size);
}

bool option_copy(const struct option_row *row, const void *from, void *to)
{
	if (row->type->copy)
		return row->type->copy(const_member(row, from), member(row, to));
	memcpy(member(row, to), const_member(row, from), row->size);
	return true;
}

void option_clear(const struct option_row *row, void *base)
{
	if (row->type->clear)
		row->type->clear(member(row, base));
}

struct option_shown option_show(const struct option_row *row, const void *base)
{
	if (!row->type->show)
		return (struct option_shown){0};
	return row->type->show(row, member(row, (void *)base));
}

bool options_initial(const struct option_table *t, enum option_scope scope, void *base, char *err,
		     size_t errlen)
{
	for (const struct option_row *row = t->rows; row < t->rows + t->n; row++)
		if (row->scope == scope && row->initial &&
		    !option_set(row, base, row->initial, err, errlen))
			return false;
	return true;
}

bool options_copy(const struct option_table *t, enum option_scope scope, const void *from, void *to)
{
	bool ok = true;

	for (const struct option_row *row = t->rows; row < t->rows + t->n; row++)
		if (row->scope == scope)
			ok &= option_copy(row, from, to);
	return ok;
}

void options_clear(const struct option_table *t, enum option_scope scope, void *base)
{
	for (const struct option_row *row = t->rows; row < t->rows + t->n; row++)
		if (row->scope == scope)
			option_clear(row, base);
}
