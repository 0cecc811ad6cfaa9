// SPDX-License-Identifier: MIT
/* The name that was probably meant. */
#include "unit.h"
#include "nearest.h"

static const char *among(const char *word, const char *const *names)
{
	struct nearest near = nearest_to(word);
	const char *found = NULL;

	for (; *names; names++)
		if (nearest_take(&near, *names))
			found = *names;
	return found;
}

TEST(what_was_meant_is_found)
{
	static const char *const names[] = {"temperature", "top_p", "top_k",  "min_p",
					    "model",	   "mode",  "/clear", NULL};
	static const struct {
		const char *word, *meant;
	} words[] = {
		{"temperature", "temperature"},
		{"tempreture", "temperature"},	/* changed, and left out */
		{"tempertaure", "temperature"}, /* swapped */
		{"temperatures", "temperature"},
		{"emperature", "temperature"},
		{"thermometer", NULL},
		{"top_p", "top_p"},
		{"top_", "top_p"}, /* the first of two that are as near */
		{"top_x", "top_p"},
		{"modle", "model"},
		{"mods", "mode"},
		{"/claer", "/clear"},
		{"mo", NULL},
		{"xyzzy", NULL},
		{"x", NULL},
		{"", NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		const char *found = among(words[i].word, names);

		if (words[i].meant ? !found || strcmp(found, words[i].meant) != 0 : found != NULL)
			fail_msg("%s: %s, not %s", words[i].word, found ? found : "nothing",
				 words[i].meant ? words[i].meant : "nothing");
	}
}

/* Up to the longest name, whichever of the two is long, and whatever bytes there are. */
TEST(long_words_are_like_none)
{
	char word[4 * NEAREST_MAX], name[NEAREST_MAX + 2];
	const char *names[] = {name, NULL};

	memset(name, '\xff', sizeof(name));
	name[NEAREST_MAX] = 0;
	for (size_t len = 0; len < sizeof(word); len++) {
		memset(word, '\xff', len);
		word[len] = 0;
		/* What is missing is no more than a third of the word. */
		assert_int_equal(among(word, names) == name,
				 len <= NEAREST_MAX && NEAREST_MAX - len <= len / 3);
	}
	name[NEAREST_MAX] = 'x';
	name[NEAREST_MAX + 1] = 0;
	memset(word, '\xff', NEAREST_MAX);
	word[NEAREST_MAX] = 0;
	assert_null(among(word, names));
}

TEST_MAIN
