/* SPDX-License-Identifier: MIT */
/*
 * "Did you mean": which of some names is most like a word that is none of them. The words are
 * people's and clients'; one that is longer than any name is like none.
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

#define NEAREST_MAX 63 /* bytes of a word or name; longer ones are like none */

struct nearest {
	const char *word;
	unsigned least; /* edits that are too many */
};

struct nearest nearest_to(const char *word);
/* Whether @name is like the word, and more so than all that were taken before. */
bool nearest_take(struct nearest *n, const char *name);

#endif
