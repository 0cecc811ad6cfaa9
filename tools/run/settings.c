// SPDX-License-Identifier: MIT
#include "settings.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct setting {
	const char *name;
	size_t offset; /* in struct ask_options */
} settings[] = {
	{"max-tokens", offsetof(struct ask_options, max_tokens)},
	{"temperature", offsetof(struct ask_options, temperature)},
	{"top-p", offsetof(struct ask_options, top_p)},
	{"top-k", offsetof(struct ask_options, top_k)},
	{"seed", offsetof(struct ask_options, seed)},
};

static bool same_name(const char *a, const char *b)
{
	while (*a && (*a == *b || (*a == '-' && *b == '_'))) {
		a++;
		b++;
	}
	return !*a && !*b;
}

static const struct setting *find(const char *name)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (same_name(settings[i].name, name))
			return &settings[i];
	return NULL;
}

bool settings_known(const char *name)
{
	return find(name) != NULL;
}

bool settings_set(struct ask_options *o, const char *name, const char *value)
{
	const struct setting *s = find(name);
	char *end;

	strtod(value, &end);
	if (*value && (end == value || *end || *value == '+' ||
		       strspn(value, "0123456789+-.eE") != strlen(value))) {
		fprintf(stderr, "txda-run: --%s must be a number, not '%s'\n", s->name, value);
		return false;
	}
	if (strlen(value) >= ASK_NUMBER_LEN) {
		fprintf(stderr, "txda-run: --%s has %zu characters; the limit is %d\n", s->name,
			strlen(value), ASK_NUMBER_LEN - 1);
		return false;
	}
	strcpy((char *)o + s->offset, value);
	return true;
}

void settings_show(const struct ask_options *o, FILE *file)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		const char *value = (const char *)o + settings[i].offset;

		fprintf(file, "  %-14s%s\n", settings[i].name, *value ? value : "(the model's)");
	}
	fprintf(file, "  %-14s%s\n", "stats", o->stats ? "on" : "off");
}
