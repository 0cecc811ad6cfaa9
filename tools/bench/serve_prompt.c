// SPDX-License-Identifier: MIT
/* Prompts: made-up prose, one common word about a token, the same for the same seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"
#include "hash.h"

static const char *const words[] = {
	"the",	  "king",    "of",    "a",	"small",  "house",    "went",  "into",
	"wood",	  "and",     "said",  "to",	"his",	  "daughter", "that",  "she",
	"should", "find",    "water", "but",	"when",	  "night",    "came",  "there",
	"was",	  "nothing", "left",  "in",	"garden", "so",	      "they",  "took",
	"old",	  "horse",   "over",  "hill",	"where",  "wind",     "had",   "made",
	"stone",  "road",    "long",  "before", "man",	  "could",    "see",   "light",
	"from",	  "window",  "then",  "child",	"asked",  "for",      "bread", "who",
	"gave",	  "it",	     "with",  "good",	"heart",  "again",    "came",  "morning",
};

double serve_random(uint64_t *state)
{
	*state += HASH_GOLDEN;
	return (double)(hash_spread(*state) >> 11) * 0x1p-53;
}

static char *put_words(char *at, uint64_t state, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		size_t count = sizeof(words) / sizeof(words[0]);
		const char *word = words[(size_t)(serve_random(&state) * (double)count)];

		at = stpcpy(at, word);
		*at++ = i % 12 == 11 ? ',' : ' ';
	}
	*at = 0;
	return at;
}

char *serve_prompt(const struct serve_options *o, unsigned index, const char *history)
{
	size_t room = (size_t)(o->prefix_words + o->prompt_words) * 16 + 16;
	char *text, *at;

	if (history)
		room += strlen(history);
	text = at = malloc(room);
	if (!text)
		return NULL;
	if (o->workload == SERVE_SHARED_PREFIX)
		at = put_words(at, o->seed, o->prefix_words);
	if (history)
		at = stpcpy(at, history);
	/* A separate random sequence for each request, far from that of the prefix. */
	put_words(at, o->seed ^ ((uint64_t)index + 1) << 32, o->prompt_words);
	return text;
}
