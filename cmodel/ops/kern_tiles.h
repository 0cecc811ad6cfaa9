/* SPDX-License-Identifier: MIT */
/*
 * Matrix products in tiles (Intel AMX): LINEAR with bf16 and int8 activations, and the two products
 * of attention. Included by path.c for the path that has them, which is avx512bf16 otherwise.
 *
 * A tile has up to 16 rows of 64 bytes. C += A B, with A as rows of activations and B as 16 pairs
 * (bf16) or quads (int8) of K times 16 columns, which is how weights, keys and values lie in memory
 * anyway. TDPBF16PS sums the products of one step of K by itself and then adds that to C: the bits
 * of a row depend on neither the other rows nor their number, but differ from those of VDPBF16PS.
 * TDPBSUD is exact, so int8 has the bits of the other AVX-512 paths.
 *
 * The instructions are macros, so that a test can run this file with functions in their place on a
 * CPU without tiles. Each clobbers memory: the compiler sees no tile.
 */
#if defined(CM_TILES)
#if !defined(TILE_CONFIG)
#define TILE_CONFIG(c) __asm__ volatile("ldtilecfg %0" ::"m"(*(c)) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t)   __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, p, stride)                                                                    \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((long)(stride)) : "memory")
/* Without keeping the lines in the first-level cache. */
#define TILE_LOAD_PASSING(t, p, step)                                                              \
	__asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"(p), "r"((long)(step)) : "memory")
#define TILE_STORE(t, p, stride)                                                                   \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((long)(stride))         \
			 : "memory")
#define TILE_BF16(c, a, b)                                                                         \
	__asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
/* signed A, unsigned B */
#define TILE_I8(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#endif

struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} __attribute__((aligned(64)));

/* What this thread's tiles are configured for; 0: not configured, so that no tiles are saved. */
static __thread unsigned tiles_for;

enum { FOR_WHOLE_STEPS = 1 << 8, FOR_HALF_STEPS = 2 << 8, FOR_ATTENTION = 3 << 8 };

static void tiles_set(struct tile_config *c, unsigned tile, unsigned rows, unsigned row_bytes)
{
	c->rows[tile] = (uint8_t)rows;
	c->row_bytes[tile] = (uint16_t)row_bytes;
}

/* Products of @rows rows: C 0 to 3 (rows 0 to 15 times two halves of a panel, then 16 to 31), A 4
 * and 5, B 6 and 7. */
static void tiles_for_rows(unsigned kind, unsigned rows)
{
	const unsigned step = kind == FOR_HALF_STEPS ? 8 : 16; /* words of K */
	struct tile_config c = {.palette = 1};

	if (tiles_for == (kind | rows))
		return;
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = i ? (rows > 16 ? rows - 16 : 0) : (rows < 16 ? rows : 16);

		if (!n)
			continue;
		tiles_set(&c, 2 * i, n, 64);
		tiles_set(&c, 2 * i + 1, n, 64);
		tiles_set(&c, 4 + i, n, 4 * step);
	}
	tiles_set(&c, 6, step, 64);
	tiles_set(&c, 7, step, 64);
	TILE_CONFIG(&c);
	tiles_for = kind | rows;
}

static void rest(void)
{
	if (tiles_for)
		TILE_RELEASE();
	tiles_for = 0;
}

/*
 * Prefetches the next weights while @lines of them are used. With several blocks of rows that is
 * the next panel, into the second-level cache, as the first has no room; with one it is what will
 * be used soon. Then memory bandwidth is the limit: fetch_ahead() with a step that the compiler
 * does not know reads a tenth faster than a loop, or than a known step, whose lines the compiler
 * reorders.
 */
V_INLINE void tile_ahead(const struct cm_panel *p, const uint8_t **ahead, const unsigned lines)
{
	const uint8_t *to = *ahead + lines * p->pace;

	if (p->pace >= 64) {
		fetch_ahead(ahead, p->pace, lines);
		return;
	}
	for (; *ahead < to; *ahead += 64)
		_mm_prefetch((const char *)*ahead, _MM_HINT_T1);
	*ahead = to;
}

/* ---- bf16 ---- */

/* Rows as tile A; @passing: there are many blocks of them, and weights should stay in the first
 * cache. */
#define LOAD_ROWS(A, p)                                                                            \
	do {                                                                                       \
		if (passing)                                                                       \
			TILE_LOAD_PASSING(A, p, 64);                                               \
		else                                                                               \
			TILE_LOAD(A, p, 64);                                                       \
	} while (0)

/*
 * One step of 16 pairs of K. Wide: the low halves of the rows follow the high ones. What comes next
 * is prefetched in two halves, which keeps memory busier than all of it at once.
 */
V_INLINE void tile_step(const bool two, const bool wide, const bool passing, const uint8_t *w,
			const uint32_t *a, const struct cm_panel *p, const uint8_t **ahead)
{
	tile_ahead(p, ahead, 16);
	LOAD_ROWS(4, a);
	TILE_LOAD(6, w, 128);
	TILE_BF16(0, 4, 6);
	tile_ahead(p, ahead, 16);
	TILE_LOAD(7, w + 64, 128);
	TILE_BF16(1, 4, 7);
	if (two) {
		LOAD_ROWS(5, a + 256);
		TILE_BF16(2, 5, 6);
		TILE_BF16(3, 5, 7);
	}
	if (!wide)
		return;
	a += 16 * p->mr;
	LOAD_ROWS(4, a);
	TILE_BF16(0, 4, 6);
	TILE_BF16(1, 4, 7);
	if (two) {
		LOAD_ROWS(5, a + 256);
		TILE_BF16(2, 5, 6);
		TILE_BF16(3, 5, 7);
	}
}
#undef LOAD_ROWS

V_INLINE void tile_rows(const bool two, const bool wide, const bool passing,
			const struct cm_panel *p)
{
	const uint8_t *w = p->w, *ahead = p->ahead;
	const uint32_t *a = p->a;
	float *acc = p->acc;
	size_t n = p->n;

	if (p->first) {
		TILE_ZERO(0);
		TILE_ZERO(1);
		if (two) {
			TILE_ZERO(2);
			TILE_ZERO(3);
		}
	} else {
		TILE_LOAD(0, acc, 128);
		TILE_LOAD(1, acc + 16, 128);
		if (two) {
			TILE_LOAD(2, acc + 512, 128);
			TILE_LOAD(3, acc + 528, 128);
		}
	}
	for (; n >= 16; n -= 16, w += 2048, a += (wide ? 32 : 16) * p->mr)
		tile_step(two, wide, passing, w, a, p, &ahead);
	if (n) { /* the next panel is not this part's */
		uint8_t last[2048] __attribute__((aligned(64)));

		memcpy(last, w, n * 128);
		memset(last + n * 128, 0, sizeof(last) - n * 128);
		tile_step(two, wide, passing, last, a, p, &ahead);
	}
	TILE_STORE(0, acc, 128);
	TILE_STORE(1, acc + 16, 128);
	if (two) {
		TILE_STORE(2, acc + 512, 128);
		TILE_STORE(3, acc + 528, 128);
	}
}

static void tile_panel_bf16(const struct cm_panel *p)
{
	tiles_for_rows(FOR_WHOLE_STEPS, p->mr);
	if (p->mr > 16 && p->pace < 64 && p->wide)
		tile_rows(true, true, true, p);
	else if (p->mr > 16 && p->pace < 64)
		tile_rows(true, false, true, p);
	else if (p->mr > 16 && p->wide)
		tile_rows(true, true, false, p);
	else if (p->mr > 16)
		tile_rows(true, false, false, p);
	else if (p->wide)
		tile_rows(false, true, false, p);
	else
		tile_rows(false, false, false, p);
}

/* u32[ceil(K/32)][mr][16] pairs, or [..][2][mr][16]; zeros past the end. */
static void tile_pack_bf16(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
			   bool wide)
{
	for (size_t i = 0; i < k; i += 32, block += (wide ? 32 : 16) * mr) {
		uint16_t *h = (uint16_t *)(block + 16 * m), *l = h + 32 * mr;
		const float *in = x + i;
		float tail[32] = {0};

		if (i + 32 > k) {
			memcpy(tail, in, (k - i) * sizeof(float));
			in = tail;
		}
		for (unsigned j = 0; j < 32; j += VL) {
			vf v = v_load(in + j);

			v_store_bf16(h + j, v);
			if (wide)
				v_store_bf16(l + j, v - v_load_bf16(h + j));
		}
	}
}

/* ---- int8: with few rows VPDPBUSD is faster, and gives the same bits ---- */

/* Nibbles of @blocks times 32 K as bytes, as W8 has them. */
V_INLINE void tile_nibbles(const unsigned blocks, uint8_t *to, const uint8_t *w)
{
	const __m512i low = _mm512_set1_epi8(15);

	for (unsigned j = 0; j < 4 * blocks; j++, w += 128, to += 256)
		for (unsigned i = 0; i < 128; i += 64) {
			__m512i v = _mm512_load_si512(w + i);

			_mm512_store_si512(to + i, _mm512_and_si512(v, low));
			_mm512_store_si512(to + 128 + i,
					   _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
		}
}

/*
 * A run is @run blocks of 32 of K with common scales, whose int32 sums are scaled once: one block, in
 * one step of 32 of K (half a tile), or I8_RUN blocks, in steps of 64. Of a packed row it takes
 * RUN_WORDS words; after those of all rows follow the rows' scales, then what the zero points add.
 */
#define RUN_WORDS(run)	(8 * (run))
#define STEP_WORDS(run) ((run) == 1 ? 8u : 16u)
#define RUN_STEPS(run)	(RUN_WORDS(run) / STEP_WORDS(run))

/* Runs whose sums are scaled together, so that float32 sums are loaded and stored less often. */
#define I8_TOGETHER 2

/* The int32 sums of a run, [rows][32], and their factors. */
struct tile_sums {
	const int32_t *at;
	const uint32_t *a; /* scales and zeros of the packed rows */
	__m512 s[2];	   /* scales of the weights */
};

/* Scales the sums of rows [m, end) in the same order as i8_rows() does. */
V_INLINE void tile_scale(const unsigned runs, const struct tile_sums *t, const unsigned rows,
			 float *acc, unsigned m, unsigned end)
{
	for (acc += m * 32; runs && m < end; m++, acc += 32) {
		__m512 c[2] = {_mm512_loadu_ps(acc), _mm512_loadu_ps(acc + 16)};

		EACH(b, runs) {
			__m512 x = _mm512_set1_ps(((const float *)t[b].a)[m]);
			__m512i z = _mm512_set1_epi32((int)t[b].a[rows + m]);

			EACH(v, 2) {
				__m512i d = _mm512_load_si512(t[b].at + m * 32 + v * 16);

				c[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(d, z)),
						       _mm512_mul_ps(t[b].s[v], x), c[v]);
			}
		}
		_mm512_storeu_ps(acc, c[0]);
		_mm512_storeu_ps(acc + 16, c[1]);
	}
}

/* Where the next run is read from. */
struct tile_at {
	const uint8_t *w, *ahead;
	const uint32_t *a;
	unsigned left; /* runs of the group */
	__m512 s[2];
};

/*
 * The int8 products of one run with the weights at @w as bytes. Between the instructions, @half of
 * the rows of @runs earlier runs are scaled, a part at a time: a CPU's window of instructions is
 * shorter than a run, so that otherwise scaling would not overlap with the products.
 */
V_INLINE void tile_run_i8(const int bits, const bool two, const unsigned run, int32_t *sums,
			  const uint8_t *w, const struct cm_panel *p, struct tile_at *at,
			  const unsigned runs, const struct tile_sums *t, const unsigned rows,
			  const unsigned half)
{
	const unsigned steps = RUN_STEPS(run), parts = 4 * steps, lines = 2 * (unsigned)bits * run;

#define SCALE_PART(i)                                                                              \
	tile_scale(runs, t, rows, p->acc, (half * parts + 4 * step + (i)) * rows / (2 * parts),    \
		   (half * parts + 4 * step + (i) + 1) * rows / (2 * parts))
	EACH(step, steps) {
		const unsigned words = STEP_WORDS(run);
		const uint32_t *a = at->a + step * rows * words;
		const bool first = step == 0, last = step + 1 == steps;

		tile_ahead(p, &at->ahead, lines / (2 * steps));
		if (first)
			TILE_ZERO(0);
		TILE_LOAD(4, a, 4 * words);
		TILE_LOAD(6, w, 128);
		TILE_I8(0, 4, 6);
		SCALE_PART(0);
		if (first)
			TILE_ZERO(1);
		TILE_LOAD(7, w + 64, 128);
		TILE_I8(1, 4, 7);
		SCALE_PART(1);
		tile_ahead(p, &at->ahead, lines / (2 * steps));
		if (two) {
			if (first)
				TILE_ZERO(2);
			TILE_LOAD(5, a + 16 * words, 4 * words);
			TILE_I8(2, 5, 6);
		}
		if (last)
			TILE_STORE(0, sums, 128);
		SCALE_PART(2);
		if (two) {
			if (first)
				TILE_ZERO(3);
			TILE_I8(3, 5, 7);
		}
		if (last)
			TILE_STORE(1, sums + 16, 128);
		SCALE_PART(3);
		w += 128 * words;
	}
#undef SCALE_PART
	if (two) {
		TILE_STORE(2, sums + 512, 128);
		TILE_STORE(3, sums + 528, 128);
	}
}

/* Multiplies the next run; its sums go to where @t points. */
V_INLINE void tile_next_i8(const int bits, const bool two, const unsigned run, const unsigned rows,
			   const struct cm_panel *p, struct tile_at *at, struct tile_sums *t,
			   const unsigned runs, const struct tile_sums *waiting,
			   const unsigned half)
{
	uint8_t bytes[4096] __attribute__((aligned(64)));

	if (!at->left) {
		at->left = p->group / (32 * run);
		EACH(v, 2)
			at->s[v] = _mm512_cvtph_ps(
				_mm256_load_si256((const __m256i *)(at->w + v * 32)));
		at->w += 64;
		tile_ahead(p, &at->ahead, 1);
	}
	at->left--;
	if (bits == 4)
		tile_nibbles(run, bytes, at->w);
	t->a = at->a + RUN_WORDS(run) * rows;
	EACH(v, 2)
		t->s[v] = at->s[v];
	tile_run_i8(bits, two, run, (int32_t *)t->at, bits == 4 ? bytes : at->w, p, at, runs,
		    waiting, rows, half);
	at->w += 128 * bits * run;
	at->a += 10 * run * rows;
}

/* The same for runs at the ends of a panel, beside which no earlier sums are scaled. Functions: inlined,
 * most of the code would be copies of them. */
#define TILE_ALONE_I8(bits, two, run)                                                              \
	static __attribute__((noinline)) void tile_alone_##bits##_##two##_##run(                   \
		const unsigned rows, const struct cm_panel *p, struct tile_at *at,                 \
		struct tile_sums *t)                                                               \
	{                                                                                          \
		tile_next_i8(bits, two, run, rows, p, at, t, 0, NULL, 0);                          \
	}
TILE_ALONE_I8(8, true, 1)
TILE_ALONE_I8(8, false, 1)
TILE_ALONE_I8(8, true, 4)
TILE_ALONE_I8(8, false, 4)
TILE_ALONE_I8(4, true, 1)
TILE_ALONE_I8(4, false, 1)
TILE_ALONE_I8(4, true, 4)
TILE_ALONE_I8(4, false, 4)

V_INLINE void tile_rows_i8(const int bits, const bool two, const unsigned run,
			   void (*const alone)(unsigned rows, const struct cm_panel *p,
					       struct tile_at *at, struct tile_sums *t),
			   const unsigned rows, const struct cm_panel *p)
{
	int32_t sums[2][I8_TOGETHER][1024] __attribute__((aligned(64)));
	struct tile_at at = {.w = p->w, .ahead = p->ahead, .a = p->a};
	struct tile_sums t[2][I8_TOGETHER];
	/* The last run may end past K, where activations are 0 and groups of weights are whole. */
	const size_t all = (p->n + run - 1) / run;
	size_t n = 0;

	EACH(i, 2)
		EACH(b, I8_TOGETHER)
			t[i][b].at = sums[i][b];
	for (unsigned m = 0; p->first && m < 2 * rows; m++)
		_mm512_storeu_ps(p->acc + m * 16, _mm512_setzero_ps());
	for (; n + I8_TOGETHER <= all; n += I8_TOGETHER) {
		const size_t turn = n / I8_TOGETHER % 2;
		struct tile_sums *now = t[turn];

		EACH(half, I8_TOGETHER) {
			if (n)
				tile_next_i8(bits, two, run, rows, p, &at, &now[half], I8_TOGETHER,
					     t[!turn], half);
			else
				alone(rows, p, &at, &now[half]);
		}
	}
	if (n)
		tile_scale(I8_TOGETHER, t[!(n / I8_TOGETHER % 2)], rows, p->acc, 0, rows);
	if (n < all) {
		alone(rows, p, &at, t[0]);
		tile_scale(1, t[0], rows, p->acc, 0, rows);
	}
}

#define TILE_PANEL_RUN(bits, run, p)                                                               \
	do {                                                                                       \
		tiles_for_rows(run == 1 ? FOR_HALF_STEPS : FOR_WHOLE_STEPS, p->mr);                \
		if (p->mr == 32)                                                                   \
			tile_rows_i8(bits, true, run, tile_alone_##bits##_true_##run, 32, p);      \
		else if (p->mr > 16)                                                               \
			tile_rows_i8(bits, true, run, tile_alone_##bits##_true_##run, p->mr, p);   \
		else                                                                               \
			tile_rows_i8(bits, false, run, tile_alone_##bits##_false_##run, p->mr, p); \
	} while (0)

#define TILE_PANEL_I8(bits)                                                                        \
	static void tile_panel_w##bits(const struct cm_panel *p)                                   \
	{                                                                                          \
		if (p->mr <= CM_MR_I8)                                                             \
			cm_simd_avx512bf16.panel_w##bits(p);                                       \
		else if (p->group >= TXDA_I8_GROUP)                                                \
			TILE_PANEL_RUN(bits, 4, p);                                                \
		else                                                                               \
			TILE_PANEL_RUN(bits, 1, p);                                                \
	}
_Static_assert(I8_RUN == 4, "the functions above have that number");
TILE_PANEL_I8(8)
TILE_PANEL_I8(4)

static void tile_pack_i8(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
			 unsigned zero, unsigned group)
{
	const unsigned run = group >= TXDA_I8_GROUP ? I8_RUN : 1, words = STEP_WORDS(run);

	if (mr <= CM_MR_I8) {
		cm_simd_avx512bf16.pack_i8(block, mr, m, x, k, zero, group);
		return;
	}
	for (size_t i = 0; i < k; i += TXDA_I8_GROUP) {
		float tmp[TXDA_I8_GROUP];
		const float *in = i8_group(x, i, k, tmp);
		const float max = top_of(in, TXDA_I8_GROUP);

		/* The last blocks of a run may be zeros. */
		for (size_t b = 0; b < I8_RUN && i + 32 * b < k; b += run) {
			int32_t all = 0;
			float scale = 0;

			for (unsigned j = 0; j < run; j++) {
				uint32_t *to =
					block + (j * 8 / words * mr + m) * words + j * 8 % words;
				int32_t sum;

				scale = quant_block((int8_t *)to, &sum, in + 32 * (b + j), max);
				all += sum;
			}
			block += RUN_WORDS(run) * mr;
			memcpy(&block[m], &scale, 4);
			block[mr + m] = (uint32_t)(-(int)zero * all);
			block += 2 * run * mr;
		}
	}
}
#endif
