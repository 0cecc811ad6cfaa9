// SPDX-License-Identifier: MIT
#include "ceiling.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MAX_BUFFER   (256ull << 20) /* per thread; much larger than its caches */
#define MIN_BUFFER   (64ull << 20)  /* with many threads */
#define ALL_BUFFERS  (8ull << 30)
#define MAX_THREADS  1024
#define PASSES	     5
#define PASS_SECONDS 0.02 /* of instructions */

struct worker {
	pthread_t thread;
	void (*work)(struct worker *w);
	const uint8_t *buffer;
	pthread_barrier_t *barrier;
	double start[PASSES], end[PASSES];
	uint64_t done; /* bytes or instructions of all passes so far */
	uint64_t after[PASSES];
	volatile uint64_t sink;
};

static uint8_t *buffers[MAX_THREADS];
static size_t buffer_bytes; /* of each */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void read_avx512(struct worker *w)
{
	__m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
			_mm512_setzero_si512()};

	for (size_t i = 0; i < buffer_bytes; i += 256) {
		_mm_prefetch((const char *)w->buffer + i + 2048, _MM_HINT_T0);
		_mm_prefetch((const char *)w->buffer + i + 2048 + 64, _MM_HINT_T0);
		_mm_prefetch((const char *)w->buffer + i + 2048 + 128, _MM_HINT_T0);
		_mm_prefetch((const char *)w->buffer + i + 2048 + 192, _MM_HINT_T0);
		for (int j = 0; j < 4; j++)
			s[j] = _mm512_xor_si512(s[j], _mm512_load_si512(w->buffer + i + j * 64));
	}
	for (int j = 0; j < 4; j++)
		w->sink += (uint64_t)_mm512_reduce_add_epi64(s[j]);
	w->done += buffer_bytes;
}

#define DOT_STEPS 10000 /* between two reads of the clock */

/*
 * Independent sums, enough to hide the latency of two units: 20 where there are 32 registers.
 * Written as instructions on named registers, since a compiler may fold, reorder or spill anything
 * else.
 */
#define DOT(I, A, B, R) I " %%" A ", %%" B ", %%" R "\n"
#define DOT_4(I, A, B, R, N0, N1, N2, N3)                                                          \
	DOT(I, A, B, R N0) DOT(I, A, B, R N1) DOT(I, A, B, R N2) DOT(I, A, B, R N3)
#define DOT_12(I, A, B, R)                                                                         \
	DOT_4(I, A, B, R, "0", "1", "2", "3")                                                      \
	DOT_4(I, A, B, R, "4", "5", "6", "7") DOT_4(I, A, B, R, "8", "9", "10", "11")
#define DOT_20(I, A, B, R)                                                                         \
	DOT_12(I, A, B, R)                                                                         \
	DOT_4(I, A, B, R, "16", "17", "18", "19") DOT_4(I, A, B, R, "20", "21", "22", "23")

#define DOT_WORK(NAME, INSN, REG, SUMS, TARGET, ...)                                               \
	__attribute__((target(TARGET))) static void NAME(struct worker *w)                         \
	{                                                                                          \
		double end = clock_s() + PASS_SECONDS;                                             \
                                                                                                   \
		do {                                                                               \
			for (int n = 0; n < DOT_STEPS; n++)                                        \
				__asm__ volatile(DOT_##SUMS(INSN, REG "14", REG "15", REG)         \
						 :                                                 \
						 :                                                 \
						 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", \
						   "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",        \
						   "xmm11", ##__VA_ARGS__);                        \
			w->done += DOT_STEPS * SUMS;                                               \
		} while (clock_s() < end);                                                         \
	}

#define HIGH_REGISTERS "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23"

DOT_WORK(fma_avx512, "vfmadd231ps", "zmm", 20, "avx512f", HIGH_REGISTERS)
DOT_WORK(dot_bf16, "vdpbf16ps", "zmm", 20, "avx512f", HIGH_REGISTERS)
DOT_WORK(dot_vnni, "vpdpbusd", "zmm", 20, "avx512f", HIGH_REGISTERS)
DOT_WORK(fma_avx2, "vfmadd231ps", "ymm", 12, "avx2")
DOT_WORK(madd_avx2, "vpmaddwd", "ymm", 12, "avx2")
DOT_WORK(dot_avxvnni, "%{vex%} vpdpbusd", "ymm", 12, "avx2")

/*
 * Tiles (AMX): four sums from two tiles of 16 rows by two of 16 columns, as a product holds them.
 * 16 x 16 x 32 products of bf16, or twice as many of int8, an instruction.
 */
#define TILE_STEPS 1000
#define TILE_SUMS  4

#define TILE_WORK(NAME, INSN)                                                                      \
	static void NAME(struct worker *w)                                                         \
	{                                                                                          \
		static const struct {                                                              \
			uint8_t palette, rest[15];                                                 \
			uint16_t row_bytes[16];                                                    \
			uint8_t rows[16];                                                          \
		} __attribute__((aligned(64))) all = {1,                                           \
						      {0},                                         \
						      {64, 64, 64, 64, 64, 64, 64, 64},            \
						      {16, 16, 16, 16, 16, 16, 16, 16}};           \
                                                                                                   \
		double end = clock_s() + PASS_SECONDS;                                             \
                                                                                                   \
		__asm__ volatile("ldtilecfg %0" ::"m"(all));                                       \
		do {                                                                               \
			for (int n = 0; n < TILE_STEPS; n++)                                       \
				__asm__ volatile(INSN " %%tmm6, %%tmm4, %%tmm0\n" INSN             \
						      " %%tmm7, %%tmm4, %%tmm1\n" INSN             \
						      " %%tmm6, %%tmm5, %%tmm2\n" INSN             \
						      " %%tmm7, %%tmm5, %%tmm3" ::);               \
			w->done += TILE_STEPS * TILE_SUMS;                                         \
		} while (clock_s() < end);                                                         \
		__asm__ volatile("tilerelease" ::);                                                \
	}

TILE_WORK(tile_bf16, "tdpbf16ps")
TILE_WORK(tile_int8, "tdpbsud")

__attribute__((target("avx2"))) static void read_avx2(struct worker *w)
{
	__m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
			_mm256_setzero_si256()};
	uint64_t out[4];

	for (size_t i = 0; i < buffer_bytes; i += 128)
		for (int j = 0; j < 4; j++)
			s[j] = _mm256_xor_si256(
				s[j], _mm256_load_si256((const __m256i *)(w->buffer + i + j * 32)));
	for (int j = 0; j < 4; j++) {
		_mm256_storeu_si256((__m256i *)out, s[j]);
		w->sink += out[0] ^ out[1] ^ out[2] ^ out[3];
	}
	w->done += buffer_bytes;
}

#endif

static void read_plain(struct worker *w)
{
	const uint64_t *p = (const uint64_t *)w->buffer;
	uint64_t s[4] = {0};

	for (size_t i = 0; i < buffer_bytes / 8; i += 4)
		for (int j = 0; j < 4; j++)
			s[j] ^= p[i + j];
	w->sink += s[0] ^ s[1] ^ s[2] ^ s[3];
	w->done += buffer_bytes;
}

#define FRESH_BYTES (64ull << 20)

static void copy_fresh(struct worker *w)
{
	void *p =
		mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	madvise(p, FRESH_BYTES, MADV_HUGEPAGE);
	memcpy(p, w->buffer, FRESH_BYTES);
	munmap(p, FRESH_BYTES);
	w->done += FRESH_BYTES;
}

static void *thread_main(void *arg)
{
	struct worker *w = arg;

	for (int pass = 0; pass < PASSES; pass++) {
		pthread_barrier_wait(w->barrier);
		w->start[pass] = clock_s();
		w->work(w);
		w->end[pass] = clock_s();
		w->after[pass] = w->done;
	}
	return NULL;
}

/*
 * Units of work per nanosecond in the fastest pass; a pass lasts from the first thread's start to
 * the last one's end.
 */
static double best_rate(unsigned threads, void (*work)(struct worker *w))
{
	struct worker w[MAX_THREADS] = {0};
	pthread_barrier_t barrier;
	double best = 0;

	pthread_barrier_init(&barrier, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		w[i].work = work;
		w[i].buffer = buffers[i];
		w[i].barrier = &barrier;
		/* The barrier needs all of them. */
		while (pthread_create(&w[i].thread, NULL, thread_main, &w[i]))
			;
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(w[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	for (int pass = 0; pass < PASSES; pass++) {
		double start = w[0].start[pass], end = w[0].end[pass], rate;
		uint64_t done = 0;

		for (unsigned i = 0; i < threads; i++) {
			start = w[i].start[pass] < start ? w[i].start[pass] : start;
			end = w[i].end[pass] > end ? w[i].end[pass] : end;
			done += w[i].after[pass] - (pass ? w[i].after[pass - 1] : 0);
		}
		rate = (double)done * 1e-9 / (end - start);
		best = rate > best ? rate : best;
	}
	return best;
}

/* Each thread fills its own buffers, so that their pages are local to its CPU. */
static void fill(struct worker *w)
{
	if (!w->buffer[0])
		memset((uint8_t *)w->buffer, 1, buffer_bytes);
}

static int make_buffers(unsigned threads)
{
	bool fresh = false;

	if (!buffer_bytes) {
		buffer_bytes = ALL_BUFFERS / threads & ~(MIN_BUFFER - 1);
		buffer_bytes = buffer_bytes > MAX_BUFFER ? MAX_BUFFER : buffer_bytes;
		buffer_bytes = buffer_bytes < MIN_BUFFER ? MIN_BUFFER : buffer_bytes;
	}
	for (unsigned i = 0; i < threads; i++) {
		void *p;

		if (buffers[i])
			continue;
		p = mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		if (p == MAP_FAILED)
			return -errno;
		madvise(p, buffer_bytes, MADV_HUGEPAGE);
		buffers[i] = p;
		fresh = true;
	}
	if (fresh)
		best_rate(threads, fill);
	return 0;
}

void ceiling_free(void)
{
	for (unsigned i = 0; i < MAX_THREADS; i++) {
		if (buffers[i])
			munmap(buffers[i], buffer_bytes);
		buffers[i] = NULL;
	}
}

/* The device model's path whose instructions are timed; "": the best ones. */
static char path[32];

void ceiling_for(const char *name)
{
	static const char *const known[] = {"amx", "avx512bf16", "avx512", "avxvnni", "avx2"};

	path[0] = 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i]))
			snprintf(path, sizeof(path), "%s", name);
}

#if defined(__x86_64__)
static bool wanted(const char *name)
{
	return !path[0] || !strcmp(path, name);
}

static void best_bf16(struct ceiling *c, double gflops, const char *by)
{
	if (gflops > c->bf16_gflops) {
		c->bf16_gflops = gflops;
		c->bf16_by = by;
	}
}

static void measure_dots(unsigned threads, struct ceiling *c)
{
	const bool avx512 = __builtin_cpu_supports("avx512f") &&
			    __builtin_cpu_supports("avx512vnni"),
		   dots = avx512 && __builtin_cpu_supports("avx512bf16");

	if (wanted("amx") && cpu_use_tiles()) {
		best_bf16(c, 16384 * best_rate(threads, tile_bf16), "tdpbf16ps");
		c->int8_gops = 32768 * best_rate(threads, tile_int8);
		c->int8_by = "tdpbsud";
	} else if (avx512 && (wanted("avx512") || wanted("avx512bf16"))) {
		if (wanted("avx512"))
			best_bf16(c, 32 * best_rate(threads, fma_avx512), "vfmadd231ps zmm");
		if (wanted("avx512bf16") && dots)
			best_bf16(c, 64 * best_rate(threads, dot_bf16), "vdpbf16ps zmm");
		c->int8_gops = 128 * best_rate(threads, dot_vnni);
		c->int8_by = "vpdpbusd zmm";
	} else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
		best_bf16(c, 16 * best_rate(threads, fma_avx2), "vfmadd231ps ymm");
		if (wanted("avxvnni") && cpu_has_avx_vnni()) {
			c->int8_gops = 64 * best_rate(threads, dot_avxvnni);
			c->int8_by = "vpdpbusd ymm";
		} else {
			c->int8_gops = 32 * best_rate(threads, madd_avx2);
			c->int8_by = "vpmaddwd ymm";
		}
	}
}
#endif

int ceiling_measure(unsigned threads, struct ceiling *ret)
{
	struct ceiling c = {.bf16_by = "unknown", .int8_by = "unknown"};
	void (*reader)(struct worker * w) = read_plain;
	int err;

	threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
	err = make_buffers(threads);
	if (err)
		return err;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		reader = read_avx512;
	else if (__builtin_cpu_supports("avx2"))
		reader = read_avx2;
	measure_dots(threads, &c);
#endif
	c.read_gbs = best_rate(threads, reader);
	*ret = c;
	return 0;
}

int ceiling_fresh_copy(unsigned threads, double *ret_gbs)
{
	int err;

	threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
	err = make_buffers(threads);
	if (err)
		return err;
	*ret_gbs = best_rate(threads, copy_fresh);
	return 0;
}
