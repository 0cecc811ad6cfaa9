// SPDX-License-Identifier: MIT
/* Stop strings: compared with a search in the whole text, for every way to cut it into pieces. */

#include "unit.h"
#include "stop.h"

/* Feeds @text cut as the bits of @cuts say; the result in @out. Returns whether a stop string
 * matched. */
static bool run(struct stop_matcher *m, const char *text, unsigned cuts, char *out)
{
	size_t len = strlen(text), start = 0, n;
	const char *piece;
	int r = 0;

	*out = 0;
	for (size_t i = 1; i <= len && !r; i++) {
		if (i < len && !(cuts >> (i - 1) & 1))
			continue;
		r = stop_feed(m, text + start, i - start, &piece, &n);
		assert_true(r >= 0);
		strncat(out, piece, n);
		start = i;
	}
	if (!r) {
		stop_flush(m, &piece, &n);
		strncat(out, piece, n);
	}
	assert_int_equal(stop_matched(m), r);
	return r;
}

/* The match that ends first, of those the longest. */
static bool expect(const char *text, const char *const *strings, unsigned n, char *out)
{
	size_t len = strlen(text);

	for (size_t end = 1; end <= len; end++) {
		size_t longest = 0;

		for (unsigned i = 0; i < n; i++) {
			size_t k = strlen(strings[i]);

			if (k <= end && k > longest && !memcmp(text + end - k, strings[i], k))
				longest = k;
		}
		if (longest) {
			memcpy(out, text, end - longest);
			out[end - longest] = 0;
			return true;
		}
	}
	strcpy(out, text);
	return false;
}

static void check_all_cuts(const char *text, const char *const *strings, unsigned n)
{
	size_t len = strlen(text);
	char wanted[64], out[64];
	bool match = expect(text, strings, n, wanted);

	for (unsigned cuts = 0; cuts < 1u << (len ? len - 1 : 0); cuts++) {
		struct stop_matcher *m = stop_new(strings, n);

		assert_non_null(m);
		if (run(m, text, cuts, out) != match || strcmp(out, wanted))
			fail_msg("\"%s\" cut by %x: \"%s\", not \"%s\"", text, cuts, out, wanted);
		stop_free(m);
	}
}

TEST(test_cuts)
{
	check_all_cuts("abcabcabd!", (const char *const[]){"abcabd"}, 1);
	check_all_cuts("aaaaaab", (const char *const[]){"aaab"}, 1);
	check_all_cuts("xxyzyzyw", (const char *const[]){"xyz12", "yzyw", "zy"}, 3);
	check_all_cuts("hello\n\nyou", (const char *const[]){"\n\n", "you"}, 2);
	check_all_cuts("no stop he", (const char *const[]){"here", "stopp"}, 2);
	check_all_cuts("anything", NULL, 0);
	check_all_cuts("abab", (const char *const[]){"b", "ab", "bab", "abab"}, 4);
	check_all_cuts("\xe2\x96\x81x\xe2\x96\x82y", (const char *const[]){"\xe2\x96\x82"}, 1);
}

TEST(test_all_short_texts)
{
	/* Each text of 7 letters a or b against each pair of strings of up to 3. */
	for (unsigned t = 0; t < 128; t++) {
		char text[8] = "", one[4], two[4];

		for (unsigned i = 0; i < 7; i++)
			text[i] = t >> i & 1 ? 'b' : 'a';
		for (unsigned a = 0; a < 64; a += 5) {
			snprintf(one, sizeof(one), "%.*s", 1 + (int)(a & 1) + (int)(a >> 1 & 1),
				 (const char[]){a & 4 ? 'b' : 'a', a & 8 ? 'b' : 'a',
						a & 16 ? 'b' : 'a', 0});
			snprintf(two, sizeof(two), "%.*s", 3,
				 (const char[]){a & 16 ? 'b' : 'a', a & 32 ? 'b' : 'a',
						a & 4 ? 'b' : 'a', 0});
			check_all_cuts(text, (const char *const[]){one, two}, 2);
		}
	}
}

TEST(test_held_back)
{
	struct stop_matcher *m = stop_new((const char *const[]){"STOP"}, 1);
	const char *text;
	size_t len;

	assert_int_equal(stop_feed(m, "abcST", 5, &text, &len), 0);
	assert_int_equal(len, 3);
	assert_int_equal(stop_feed(m, "X", 1, &text, &len), 0);
	assert_memory_equal(text, "STX", len);
	assert_int_equal(stop_feed(m, "S", 1, &text, &len), 0);
	assert_int_equal(len, 0);
	assert_int_equal(stop_feed(m, "TOPmore", 7, &text, &len), 1);
	assert_int_equal(len, 0);
	stop_match_text(m, &text, &len);
	assert_memory_equal(text, "STOP", len);
	assert_int_equal(stop_feed(m, "more", 4, &text, &len), 1);
	assert_int_equal(len, 0);
	stop_free(m);
}

TEST_MAIN
