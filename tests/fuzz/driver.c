// SPDX-License-Identifier: MIT
/*
 * A main() for fuzz targets where libFuzzer is not at hand: `fuzz_x SEEDFILE N` runs the seed, then
 * N mutations of it, from a fixed-seed generator, so that a failure can be repeated. With
 * TXDA_FUZZ_SAVE=FILE each input is written there before it runs; after a crash the file holds the
 * input that did it.
 */
#include "fuzz.h"

/* Mutations may grow the seed by this much. */
#define GROWTH 256

static uint64_t state = 0x9E3779B97F4A7C15ull;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t below(size_t n)
{
	return n ? (size_t)(next_random() % n) : 0;
}

/* One change to the @len bytes at @buf (room for @cap); returns the new length. */
static size_t mutate(uint8_t *buf, size_t len, size_t cap)
{
	static const char spice[] = "{}[]\":,\\u0e-+.\x00\xff\xe2\x96\x81\xf0\x9f";
	size_t at = below(len), n = 1 + below(16);

	if (!len || (len < cap && next_random() % 8 == 0)) {
		memmove(buf + at + 1, buf + at, len - at);
		buf[at] = (uint8_t)spice[below(sizeof(spice) - 1)];
		return len + 1;
	}
	if (n > len - at)
		n = len - at;
	switch (next_random() % 7) {
	case 0: buf[at] ^= (uint8_t)(1u << below(8)); return len;
	case 1: buf[at] = (uint8_t)next_random(); return len;
	case 2: buf[at] = (uint8_t)spice[below(sizeof(spice) - 1)]; return len;
	case 3: memmove(buf + at, buf + at + n, len - at - n); return len - n;
	case 4: memmove(buf + below(len - n + 1), buf + at, n); return len;
	case 5:
		if (len + n > cap)
			return len;
		memmove(buf + at + n, buf + at, len - at);
		return len + n;
	default: return next_random() % 16 ? len : at;
	}
}

static void save(const char *path, const uint8_t *data, size_t len)
{
	FILE *file = fopen(path, "wb");

	if (!file || fwrite(data, 1, len, file) != len)
		perror(path);
	if (file)
		fclose(file);
}

/* The target gets a block of just the right size, so that a sanitizer sees any step beyond it. */
static void run(const uint8_t *data, size_t len)
{
	const char *save_path = getenv("TXDA_FUZZ_SAVE");
	uint8_t *exact = malloc(len ? len : 1);

	if (!exact)
		return;
	memcpy(exact, data, len);
	if (save_path)
		save(save_path, data, len);
	LLVMFuzzerTestOneInput(exact, len);
	free(exact);
}

static uint8_t *read_seed(const char *path, size_t *ret_len)
{
	FILE *file = fopen(path, "rb");
	uint8_t *seed = NULL;
	long size = -1;

	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	if (size >= 0 && !fseek(file, 0, SEEK_SET))
		seed = malloc((size_t)size + GROWTH);
	if (seed && fread(seed, 1, (size_t)size, file) != (size_t)size) {
		free(seed);
		seed = NULL;
	}
	if (file)
		fclose(file);
	if (!seed)
		perror(path);
	*ret_len = (size_t)size;
	return seed;
}

int main(int argc, char **argv)
{
	uint8_t *seed, *buf;
	size_t seed_len;
	long runs;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SEEDFILE N\n", argv[0]);
		return 2;
	}
	runs = strtol(argv[2], NULL, 10);
	seed = read_seed(argv[1], &seed_len);
	if (!seed)
		return 1;
	buf = malloc(seed_len + GROWTH);
	if (!buf) {
		free(seed);
		return 1;
	}
	run(seed, seed_len);
	for (long i = 0; i < runs; i++) {
		size_t len = seed_len, changes = 1 + below(8);

		memcpy(buf, seed, seed_len);
		while (changes--)
			len = mutate(buf, len, seed_len + GROWTH);
		run(buf, len);
	}
	printf("%ld mutations of %s (%zu bytes)\n", runs, argv[1], seed_len);
	free(buf);
	free(seed);
	return 0;
}
