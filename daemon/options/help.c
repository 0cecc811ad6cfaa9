// SPDX-License-Identifier: MIT
#include <string.h>

#include "options.h"

#define WIDTH  100
#define INDENT 30

/* "--[no-]NAME, --ALIAS VALUE" */
static void left_side(const struct option_row *row, char *ret, size_t len)
{
	const char *no = row->type->negatable ? "[no-]" : "";
	size_t at = (size_t)snprintf(ret, len, "  --%s%s", no, row->name);
	const char *alias = row->aliases;

	while (alias && *alias && at < len) {
		size_t n = strcspn(alias, " ");

		at += (size_t)snprintf(ret + at, len - at, ", --%s%.*s", no, (int)n, alias);
		alias += n + strspn(alias + n, " ");
	}
	if (row->metavar && at < len)
		at += (size_t)snprintf(ret + at, len - at, " %s", row->metavar);
	else if (row->type->takes_value)
		for (unsigned i = 0; row->words && row->words[i] && at < len; i++)
			at += (size_t)snprintf(ret + at, len - at, "%s%s", i ? "|" : " ",
					       row->words[i]);
}

/* Prints words starting at column @at; further lines are indented. */
static size_t put_words(const char *text, size_t at, FILE *out)
{
	while (*text) {
		size_t len = strcspn(text, " ");

		if (at > INDENT && at + 1 + len > WIDTH) {
			fprintf(out, "\n%*s", INDENT, "");
			at = INDENT;
		} else if (at > INDENT) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, len, out);
		at += len;
		text += len + strspn(text + len, " ");
	}
	return at;
}

static void put_row(const struct option_row *row, FILE *out)
{
	char left[256], initial[64];
	size_t at;

	left_side(row, left, sizeof(left));
	at = strlen(left);
	if (at > INDENT - 2)
		fprintf(out, "%s\n%*s", left, INDENT, "");
	else
		fprintf(out, "%-*s", INDENT, left);
	at = put_words(row->help, INDENT, out);
	/* The words that do not fit on the left side. */
	for (unsigned i = 0; row->metavar && row->words && row->words[i]; i++) {
		snprintf(initial, sizeof(initial), "%s%s", row->words[i],
			 row->words[i + 1] ? "," : "");
		at = put_words(initial, at, out);
	}
	if (row->initial) {
		snprintf(initial, sizeof(initial), "(default: %s)", row->initial);
		put_words(initial, at, out);
	}
	fputc('\n', out);
}

void options_help(const struct option_table *t, FILE *out)
{
	fprintf(out, "Usage: %s %s\n", t->program, t->about);
	for (const struct option_row *row = t->rows; row < t->rows + t->n; row++) {
		if (row->scope == OPTION_HEADING)
			fprintf(out, "\n%s\n", row->help);
		else
			put_row(row, out);
	}
}
