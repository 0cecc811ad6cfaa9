// SPDX-License-Identifier: MIT
#include "gguf_name.h"

#include <stdio.h>
#include <string.h>

#define DIGITS 5
/* "-00002-of-00003.gguf" and ".gguf" */
#define TAIL   (1 + DIGITS + 4 + DIGITS + SUFFIX)
#define SUFFIX 5

/* The number at @p; 0: not a number. */
static unsigned number(const char *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DIGITS; i++) {
		if (p[i] < '0' || p[i] > '9')
			return 0;
		n = 10 * n + (unsigned)(p[i] - '0');
	}
	return n;
}

unsigned gguf_name_parts(const char *path)
{
	size_t n = strlen(path);
	const char *tail = path + n - TAIL;
	unsigned part, parts;

	if (n <= TAIL || tail[-1] == '/' || tail[0] != '-' || memcmp(tail + 6, "-of-", 4) ||
	    strcmp(tail + 15, ".gguf"))
		return 0;
	part = number(tail + 1);
	parts = number(tail + 10);
	return part && part <= parts && parts <= GGUF_MAX_PARTS ? parts : 0;
}

void gguf_name_set_part(char *path, unsigned part)
{
	char digits[16];

	snprintf(digits, sizeof(digits), "%05u", part);
	memcpy(path + strlen(path) - TAIL + 1, digits, DIGITS);
}

bool gguf_name_same(const char *a, const char *b)
{
	size_t n = strlen(a);

	return gguf_name_parts(a) && gguf_name_parts(b) && strlen(b) == n &&
	       !memcmp(a, b, n - TAIL + 1) && !strcmp(a + n - TAIL + 6, b + n - TAIL + 6);
}

void gguf_name_cut(char *path)
{
	size_t n = strlen(path);

	if (gguf_name_parts(path))
		path[n - TAIL] = '\0';
	else if (n > SUFFIX && !strcmp(path + n - SUFFIX, ".gguf"))
		path[n - SUFFIX] = '\0';
}
