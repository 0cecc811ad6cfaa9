/* SPDX-License-Identifier: MIT */
/*
 * "Did you mean": finds the name most similar to a misspelt word. The words come from users and
 * clients; a word that is longer than any name is similar to none.
 *
 *	struct nearest near = nearest_to(word);
 *
 *	for (...)
 *		if (nearest_take(&near, names[i]))
 *			found = names[i];
 */
#ifndef TXDA_BASE_NEAREST_H
#define TXDA_BASE_NEAREST_H

#include <stdbool.h>

#define NEAREST_MAX 63 /* bytes of a word or name; longer ones are similar to none */

struct nearest {
	const char *word;
	unsigned least; /* edit distance to stay below */
};

struct nearest nearest_to(const char *word);
/* Whether @name is similar to the word, and more so than all names passed before. */
bool nearest_take(struct nearest *n, const char *name);

#endif
