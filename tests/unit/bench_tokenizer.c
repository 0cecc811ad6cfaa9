// SPDX-License-Identifier: MIT
/*
 * How fast text becomes tokens, on one core: bench_tokenizer MODEL_DIR TEXT encodes the text
 * (repeated up to 4 MB) and then hostile ones of 1 and of 2 MB, whose times should have a ratio of
 * two.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer.h"

#define MB ((size_t)1 << 20)

/* Of this thread: others on the machine do not count. */
static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Seconds for the best of @times; *ret_n: tokens. */
static double encode(const struct txda_tokenizer *tok, const char *text, size_t len, unsigned times,
		     size_t *ret_n)
{
	double best = 1e9;

	while (times--) {
		uint32_t *ids;
		double start = now_s();
		int r = txda_tokenizer_encode(tok, text, len, 0, &ids, ret_n);

		if (r) {
			fprintf(stderr, "bench_tokenizer: encoding fails: %s\n", strerror(-r));
			exit(1);
		}
		free(ids);
		start = now_s() - start;
		best = start < best ? start : best;
	}
	return best;
}

/* @len bytes of @part again and again, whole parts only. */
static char *repeat(const char *part, size_t part_len, size_t len, size_t *ret_len)
{
	char *text = malloc(len + part_len);
	size_t n = 0;

	if (!text)
		exit(1);
	do {
		memcpy(text + n, part, part_len);
		n += part_len;
	} while (n + part_len <= len);
	*ret_len = n;
	return text;
}

static void prose(const struct txda_tokenizer *tok, const char *path)
{
	char *part = malloc(4 * MB), *text;
	FILE *f = fopen(path, "rb");
	size_t len, n, tokens;
	double s;

	if (!f || !part || !(n = fread(part, 1, 4 * MB, f))) {
		perror(path);
		exit(1);
	}
	fclose(f);
	/* Not in the middle of a character. */
	while (n > 1 && (part[n - 1] & 0x80))
		n--;
	text = repeat(part, n, 4 * MB, &len);
	s = encode(tok, text, len, 5, &tokens);
	printf("%s: %.1f MB/s, %.2f M tokens/s, %.2f bytes a token\n", path, (double)len / 1e6 / s,
	       (double)tokens / 1e6 / s, (double)len / (double)tokens);
	free(text);
	free(part);
}

static void hostile(const struct txda_tokenizer *tok)
{
	static const char *const parts[] = {
		"a",   " ",	    "\n", "ab",	  "0", "!", "\xf0\x9f\x98\x80", "\xe4\xb8\xad",
		" \n", "a\xcc\x81", "'s", "<|im_"};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		double s[2];
		size_t tokens;

		for (unsigned k = 0; k < 2; k++) {
			size_t len;
			char *text = repeat(parts[i], strlen(parts[i]), (k + 1) * MB, &len);

			s[k] = encode(tok, text, len, 2, &tokens);
			free(text);
		}
		printf("part %2zu (%zu bytes): 1 MB in %6.1f ms, 2 MB in %6.1f ms: %.2f times\n", i,
		       strlen(parts[i]), s[0] * 1e3, s[1] * 1e3, s[1] / s[0]);
	}
}

int main(int argc, char **argv)
{
	struct txda_tokenizer *tok;
	char err[256] = "";

	if (argc != 3) {
		fprintf(stderr, "usage: bench_tokenizer MODEL_DIR TEXT\n");
		return 2;
	}
	if (txda_tokenizer_load(argv[1], &tok, err, sizeof(err))) {
		fprintf(stderr, "bench_tokenizer: %s\n", err);
		return 1;
	}
	prose(tok, argv[2]);
	hostile(tok);
	txda_tokenizer_free(tok);
	return 0;
}
