/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the compute kernels share: random tensors and tiles, and a runner that does
 * what the executor does. Each test program has a copy of its own.
 */
#ifndef OPS_FIXTURE_H
#define OPS_FIXTURE_H

#include <errno.h>
#include <math.h>

#include "check.h"
#include "ops.h"
#include "simd.h"
#include "unit.h"
#include "vec.h"

/*
 * OPS_STEPS= is how many times as far apart the combinations of flags are that are tried: under a
 * sanitizer or an emulator all of them take minutes, and types and shapes decide which memory an op
 * touches.
 */
static inline unsigned flag_steps(void)
{
	const char *steps = getenv("OPS_STEPS");

	return steps ? (unsigned)strtoul(steps, NULL, 10) : 1;
}

#define OPS_HELPER __attribute__((unused)) static

OPS_HELPER uint64_t rng = 1;

OPS_HELPER float frand(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (float)(int32_t)(rng >> 32) * 0x1p-31f;
}

OPS_HELPER void *mem(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);

	assert_non_null(p);
	memset(p, 0, (bytes + 64 + 63) / 64 * 64);
	return p;
}

OPS_HELPER struct cm_tensor *tensor(uint8_t dtype, uint8_t layout, uint16_t group, uint64_t d0,
				    uint64_t d1, size_t bytes)
{
	struct cm_tensor *t = calloc(1, sizeof(*t));

	*t = (struct cm_tensor){.ptr = mem(bytes),
				.dim = {d0, d1 ? d1 : 1, 1, 1},
				.ndim = d1 ? 2 : 1,
				.dtype = dtype,
				.layout = layout,
				.group = group,
				.bytes = bytes};
	return t;
}

OPS_HELPER struct cm_tensor *f32(uint64_t d0, uint64_t d1)
{
	struct cm_tensor *t = tensor(TXDA_F32, TXDA_ROWS, 0, d0, d1, d0 * (d1 ? d1 : 1) * 4);

	for (uint64_t i = 0; i < d0 * (d1 ? d1 : 1); i++)
		((float *)t->ptr)[i] = frand();
	return t;
}

OPS_HELPER struct cm_tensor *bf16(uint64_t d0, uint64_t d1)
{
	struct cm_tensor *t = tensor(TXDA_BF16, TXDA_ROWS, 0, d0, d1, d0 * d1 * 2);

	for (uint64_t i = 0; i < d0 * d1; i++)
		((uint16_t *)t->ptr)[i] = cm_f32_to_bf16(frand());
	return t;
}

OPS_HELPER struct cm_tensor *i32(uint64_t d0, uint64_t d1)
{
	return tensor(TXDA_I32, TXDA_ROWS, 0, d0, d1, d0 * (d1 ? d1 : 1) * 4);
}

OPS_HELPER void drop(struct cm_tensor *t)
{
	if (t)
		free(t->ptr);
	free(t);
}

OPS_HELPER uint16_t to_f16(float f)
{
	/* values of the tests are normal numbers in float16's range */
	uint32_t u;

	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16 & 0x8000) |
	       (uint16_t)((((u >> 23 & 255) - 112) << 10 | (u >> 13 & 0x3ff)));
}

/* Random tiles; padding (rows past n, K past the end) as the format says. */
OPS_HELPER struct cm_tensor *tiles(uint8_t dtype, uint8_t layout, uint16_t group, uint64_t n,
				   uint64_t k)
{
	uint64_t panels = txda_tile_panels(layout, n),
		 bytes = txda_tile_panel_bytes(dtype, k, group);
	struct cm_tensor *t = tensor(dtype, layout, group, n, k, panels * bytes);
	uint8_t *p = t->ptr;
	float step = dtype == TXDA_W8 || dtype == TXDA_W8Z ? 1024
		     : txda_is_two_level(dtype)		   ? 4096
							   : 64;

	for (uint64_t i = 0; i < panels * bytes / 2; i++) {
		float f = frand();

		((uint16_t *)p)[i] = dtype == TXDA_BF16 ? cm_f32_to_bf16(f)
				     : group		? to_f16((f + 2) / step)
							: to_f16(f < 0 ? f - 0.01f : f + 0.01f);
	}
	if (dtype == TXDA_F32)
		for (uint64_t i = 0; i < panels * bytes / 4; i++)
			((float *)p)[i] = frand();
	if (group) {
		uint64_t gb = txda_tile_group_bytes(dtype, group);
		unsigned head = txda_tile_group_header(dtype);

		for (uint64_t i = 0; i < panels * bytes; i++)
			if (i % bytes % gb >= head) {
				p[i] = (uint8_t)(rng = rng * 6364136223846793005ull + 1, rng >> 40);
				if (dtype == TXDA_F8 && (p[i] & 0x7f) == 0x7f)
					p[i] = 0; /* NaN */
			}
		for (uint64_t at = 0; at < panels * bytes && dtype == TXDA_MX4; at += gb)
			for (unsigned c = 0; c < 32; c++)
				((uint16_t *)(p + at))[c] =
					cm_f32_to_bf16(ldexpf(1, (int)(frand() * 4) - 6));
		for (uint64_t at = 0;
		     at < panels * bytes && head == 128 && !txda_is_two_level(dtype); at += gb)
			for (unsigned c = 0; c < 32; c++) {
				if (dtype == TXDA_F8)
					((float *)(p + at))[c] = (frand() + 2) / 256;
				else
					((int16_t *)(p + at + 64))[c] =
						(int16_t)(frand() *
							  (dtype == TXDA_W4Z ? 8.9f : 128));
			}
	}
	/* an odd K: the pair's second element meets a zero activation, but must be finite */
	return t;
}

struct run {
	struct cm_launch l;
	struct txda_op op;
	struct txda_fault fault;
	void *core[64];
};

OPS_HELPER int run_op(struct run *r, unsigned opcode, unsigned cores)
{
	const struct cm_op_impl *impl = cm_op_impl(opcode);
	struct cm_op_need need = {0};
	int err;

	r->op.op = (uint16_t)opcode;
	r->l.op = &r->op;
	r->l.fault = &r->fault;
	r->l.cores = cores;
	if (!r->l.group_size) {
		r->l.group_size = 1;
		r->l.peer[0] = &r->l;
	}
	assert_true(cores <= ARRAY_SIZE(r->core));
	err = impl->check(&r->l);
	if (err)
		return err;
	impl->need(&r->l, &need);
	r->l.shared = mem(need.shared_bytes);
	r->l.shared_bytes = need.shared_bytes;
	for (unsigned i = 0; i < cores; i++)
		r->core[i] = mem(need.core_bytes);
	r->l.core = r->core;
	r->l.core_bytes = need.core_bytes;
	impl->plan(&r->l);
	assert_true(r->l.phases <= CM_MAX_PHASES);
	for (unsigned ph = 0; ph < r->l.phases; ph++)
		for (unsigned p = r->l.parts[ph]; p-- > 0;) /* any order will do */
			cm_op_run(&r->l, ph, p, p % cores);
	free(r->l.shared);
	for (unsigned i = 0; i < cores; i++)
		free(r->core[i]);
	return 0;
}

/* check() of @run, a struct run, refuses a launch whose @field has this value. */
#define REFUSED(run, opcode, field, value, code_)                                                  \
	do {                                                                                       \
		__typeof__(field) was = (field);                                                   \
                                                                                                   \
		(field) = (value);                                                                 \
		(run).fault.code = 0;                                                              \
		assert_int_equal(run_op(&(run), opcode, 1), -EINVAL);                              \
		assert_int_equal((run).fault.code, TXDA_FAULT_##code_);                            \
		(field) = was;                                                                     \
	} while (0)

OPS_HELPER inline int32_t *ints(const struct cm_tensor *t)
{
	return t->ptr;
}

OPS_HELPER inline float *floats(const struct cm_tensor *t)
{
	return t->ptr;
}

OPS_HELPER double rel_error(const float *a, const double *b, size_t n)
{
	double e = 0, s = 0;

	for (size_t i = 0; i < n; i++) {
		e += (a[i] - b[i]) * (a[i] - b[i]);
		s += b[i] * b[i];
	}
	return sqrt(e / (s + 1e-30));
}

OPS_HELPER float *as_f32(const struct cm_tensor *t)
{
	uint64_t n = t->dim[0] * t->dim[1];
	float *f = malloc(n * 4 + 4);

	for (uint64_t i = 0; i < n; i++)
		f[i] = t->dtype == TXDA_F32 ? ((float *)t->ptr)[i]
					    : cm_bf16_to_f32(((uint16_t *)t->ptr)[i]);
	return f;
}

/* Whether the path has products of its own for the type, not only those of the path beneath. */
OPS_HELPER bool is_of_path(uint8_t dtype)
{
	return strncmp(cm_simd->name, "avxvnni", 7) ||
	       (dtype != TXDA_BF16 && dtype != TXDA_F16 && dtype != TXDA_F32 && dtype != TXDA_F8 &&
		dtype != TXDA_MX4);
}

/* ---- one run of the tests a SIMD path ---- */

#ifdef VNNI_EMULATED
/* The path avxvnni with its instructions as functions (vnni_emulated.h). */
void cm_simd_put_avxvnni_emulated(struct cm_simd *s);
#endif
#ifdef CM_AVX512
/* The path amx with its tile instructions as functions (tiles_emulated.h). */
void cm_simd_put_amx_emulated(struct cm_simd *s);
#endif

/* OPS_PATHS= names the paths to be tested, where all take too long. */
OPS_HELPER bool is_chosen(const char *path)
{
	const char *paths = getenv("OPS_PATHS");
	char word[32];

	for (int n; paths && sscanf(paths, " %31s%n", word, &n) == 1; paths += n)
		if (!strcmp(word, path))
			return true;
	return !getenv("OPS_PATHS");
}

/* Chooses @base, and has @put make of it a path whose instructions this CPU need not have. */
OPS_HELPER int choose_emulated(const char *base, void (*put)(struct cm_simd *s))
{
	static struct cm_simd emulated;
	const char *name;
	int ret = cm_ops_init(base, &name);

	if (!ret) {
		put(&emulated);
		cm_simd = &emulated;
	}
	return ret;
}

/* The path that the tests run on. */
OPS_HELPER const char *ops_path;

OPS_HELPER int choose_path(void **state)
{
	const char *name;

#ifdef VNNI_EMULATED
	if (!strcmp(ops_path, "avxvnni_emulated"))
		return choose_emulated("avx2", cm_simd_put_avxvnni_emulated);
#endif
#ifdef CM_AVX512
	if (!strcmp(ops_path, "amx_emulated"))
		return choose_emulated("avx512bf16", cm_simd_put_amx_emulated);
#endif
	if (strstr(ops_path, "_emulated"))
		return -ENOTSUP;
	return cm_ops_init(ops_path, &name);
}

OPS_HELPER int leave_path(void **state)
{
	cm_ops_exit();
	return 0;
}

/* Runs all tests of the program on a path. */
OPS_HELPER int run_path(const char *path)
{
	int ret;

	if (!is_chosen(path)) {
		printf("%s: not in OPS_PATHS\n", path);
		return 0;
	}
	ops_path = path;
	ret = choose_path(NULL);
	if (ret == -ENOTSUP) {
		printf("this CPU has no %s: that path is not tested here\n", path);
		return 0;
	}
	if (ret) {
		printf("%s: error %d\n", path, ret);
		return 1;
	}
	cm_ops_exit();
	return run_unit_tests(path, choose_path, leave_path);
}

/*
 * main() of a program whose tests run on every path. Of the path avx2 AVX-VNNI changes only products of
 * integers, so that the rest is not run again for it.
 */
#define OPS_MAIN(has_products)                                                                     \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return run_paths(argc > 1 ? argv[1] : NULL, has_products);                         \
	}

OPS_HELPER int run_paths(const char *pattern, bool has_products)
{
	static const char *const paths[] = {"c",      "avx2",	    "avxvnni", "avxvnni_emulated",
					    "avx512", "avx512bf16", "amx",     "amx_emulated",
					    "neon",   "neonbf16"};
	int failed = 0;

	choose_unit_tests(pattern);
	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++)
		if (has_products || strncmp(paths[i], "avxvnni", 7))
			failed += run_path(paths[i]);
	return failed;
}

#endif /* OPS_FIXTURE_H */
