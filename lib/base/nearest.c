// SPDX-License-Identifier: MIT
#include "nearest.h"

#include <stddef.h>
#include <string.h>

/* Edit distance: letters inserted, deleted, changed, or swapped with the next one. */
static unsigned edits(const char *a, size_t m, const char *b, size_t n)
{
	unsigned d[3][NEAREST_MAX + 1];

	for (size_t j = 0; j <= n; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= m; i++) {
		unsigned *now = d[i % 3], *above = d[(i + 2) % 3], *before = d[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned least = above[j - 1] + (a[i - 1] != b[j - 1]);

			least = above[j] + 1 < least ? above[j] + 1 : least;
			least = now[j - 1] + 1 < least ? now[j - 1] + 1 : least;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < least)
				least = before[j - 2] + 1;
			now[j] = least;
		}
	}
	return d[m % 3][n];
}

struct nearest nearest_to(const char *word)
{
	/* A word that differs in more than a third of its letters is a different one. */
	return (struct nearest){word, (unsigned)(strnlen(word, NEAREST_MAX) / 3 + 1)};
}

bool nearest_take(struct nearest *n, const char *name)
{
	size_t len = strnlen(n->word, NEAREST_MAX + 1), name_len = strnlen(name, NEAREST_MAX + 1);
	unsigned count;

	if (len > NEAREST_MAX || name_len > NEAREST_MAX)
		return false;
	count = edits(n->word, len, name, name_len);
	if (count >= n->least)
		return false;
	n->least = count;
	return true;
}
