// SPDX-License-Identifier: MIT
#include "ops.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "check.h"
#include "cpu.h"
#include "simd.h"
#include "vec.h"

const struct cm_simd *cm_simd = &cm_simd_c;

static const struct cm_op_impl *const impls[TXDA_OP_COUNT] = {
	[TXDA_OP_EMBED] = &cm_op_embed,
	[TXDA_OP_RMSNORM] = &cm_op_rmsnorm,
	[TXDA_OP_LINEAR] = &cm_op_linear,
	[TXDA_OP_ROPE_TABLE] = &cm_op_rope_table,
	[TXDA_OP_ROPE_KV] = &cm_op_rope_kv,
	[TXDA_OP_ATTENTION] = &cm_op_attention,
	[TXDA_OP_GATHER_ROWS] = &cm_op_gather_rows,
	[TXDA_OP_TOPK] = &cm_op_topk,
	[TXDA_OP_ALL_REDUCE] = &cm_op_all_reduce,
	[TXDA_OP_ALL_GATHER] = &cm_op_all_gather,
	[TXDA_OP_SILU_MUL] = &cm_op_silu_mul,
	[TXDA_OP_ROUTE] = &cm_op_route,
	[TXDA_OP_MOE_LINEAR] = &cm_op_moe_linear,
	[TXDA_OP_MOE_COMBINE] = &cm_op_moe_combine,
	[TXDA_OP_MLA_STORE] = &cm_op_mla_store,
	[TXDA_OP_MLA_ATTENTION] = &cm_op_mla_attention,
	[TXDA_OP_INDEX_STORE] = &cm_op_index_store,
	[TXDA_OP_INDEX_SELECT] = &cm_op_index_select,
	[TXDA_OP_MLA_SPARSE] = &cm_op_mla_sparse,
	[TXDA_OP_DELTA_CONV] = &cm_op_delta_conv,
	[TXDA_OP_DELTA_RULE] = &cm_op_delta_rule,
	[TXDA_OP_GATE] = &cm_op_gate,
	[TXDA_OP_LAYERNORM] = &cm_op_layernorm,
	[TXDA_OP_INTERPOLATE] = &cm_op_interpolate,
	[TXDA_OP_SPAN_ATTENTION] = &cm_op_span_attention,
	[TXDA_OP_MERGE_ROWS] = &cm_op_merge_rows,
};

const struct cm_op_impl *cm_op_impl(unsigned opcode)
{
	return opcode < TXDA_OP_COUNT ? impls[opcode] : NULL;
}

#if defined(__x86_64__)
/* By CPUID rather than the compilers' built-ins, whose lists of names differ. */
static bool cpu_bit(unsigned leaf, unsigned sub, unsigned reg, unsigned bit)
{
	unsigned r[4];

	return __get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3]) && (r[reg] >> bit & 1);
}

enum { EAX, EBX, ECX, EDX };

/* The registers that the system saves: SSE and AVX, and the three parts of AVX-512. */
static bool saves_registers(unsigned mask)
{
	unsigned lo, hi;

	if (!cpu_bit(1, 0, ECX, 27))
		return false;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (lo & mask) == mask;
}

static bool has_avx2(void)
{
	return saves_registers(0x6) && cpu_bit(7, 0, EBX, 5) && cpu_bit(1, 0, ECX, 12) &&
	       cpu_bit(1, 0, ECX, 29); /* AVX2, FMA, F16C */
}

static bool has_avxvnni(void)
{
	return has_avx2() && cpu_has_avx_vnni();
}

static struct cm_simd avxvnni;

#ifdef CM_AVX512
static bool has_avx512(void)
{
	return has_avx2() && saves_registers(0xe6) && cpu_bit(7, 0, EBX, 16) &&
	       cpu_bit(7, 0, EBX, 17) && cpu_bit(7, 0, EBX, 30) && cpu_bit(7, 0, EBX, 31) &&
	       cpu_bit(7, 0, ECX, 11); /* F, DQ, BW, VL, VNNI */
}

static bool has_avx512bf16(void)
{
	return has_avx512() && cpu_bit(7, 1, EAX, 5) && cpu_bit(7, 0, ECX, 1); /* BF16, VBMI */
}

static bool has_amx(void)
{
	return has_avx512bf16() && cpu_use_tiles();
}

/* Intel's cores run VDPBF16PS at half the rate of FMA (measured), AMD's at twice (reported). */
static bool slow_bf16(void)
{
	unsigned max, name[3];

	return __get_cpuid(0, &max, &name[0], &name[2], &name[1]) &&
	       !memcmp(name, "GenuineIntel", sizeof(name));
}

static struct cm_simd amx;
#endif
#elif defined(__aarch64__)
static bool has_neon(void)
{
	return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

static bool has_neonbf16(void)
{
	const unsigned long both = HWCAP2_BF16 | HWCAP2_I8MM;

	return has_neon() && (getauxval(AT_HWCAP2) & both) == both;
}
#endif

static bool always(void)
{
	return true;
}

/* The path of another architecture, or one that was left out of the build. */
static bool never(void)
{
	return false;
}

/* Best last. The choice depends on the CPU only, never on timing: a machine must always give the
 * same bits. */
static const struct {
	const char *name;
	bool (*has)(void);
	const struct cm_simd *simd;
	void (*fill)(struct cm_simd *s); /* fills *@simd when it is chosen; or NULL */
} paths[] = {
	{"c", always, &cm_simd_c, NULL},
#if defined(__x86_64__)
	{"avx2", has_avx2, &cm_simd_avx2, NULL},
	{"avxvnni", has_avxvnni, &avxvnni, cm_simd_put_avxvnni},
#else
	{"avx2", never, NULL, NULL},	 {"avxvnni", never, NULL, NULL},
#endif
#ifdef CM_AVX512
	{"avx512", has_avx512, &cm_simd_avx512, NULL},
	{"avx512bf16", has_avx512bf16, &cm_simd_avx512bf16, NULL},
	{"amx", has_amx, &amx, cm_simd_put_amx},
#else
	{"avx512", never, NULL, NULL},	 {"avx512bf16", never, NULL, NULL},
	{"amx", never, NULL, NULL},
#endif
#if defined(__aarch64__)
	{"neon", has_neon, &cm_simd_neon, NULL},
	{"neonbf16", has_neonbf16, &cm_simd_neonbf16, NULL},
#else
	{"neon", never, NULL, NULL},	 {"neonbf16", never, NULL, NULL},
#endif
};

/* The index of the path, or -errno. */
static int find_path(const char *isa)
{
	bool any = !isa || !strcmp(isa, "auto");

	for (unsigned i = sizeof(paths) / sizeof(paths[0]); i-- > 0;) {
		if (!any && strcmp(isa, paths[i].name))
			continue;
		if (!paths[i].has()) {
			if (any)
				continue;
			return -ENOTSUP;
		}
#ifdef CM_AVX512
		if (any && paths[i].simd == &cm_simd_avx512bf16 && slow_bf16())
			continue;
#endif
		return (int)i;
	}
	return -EINVAL;
}

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;

int cm_ops_init(const char *isa, const char **ret_name)
{
	int i = find_path(isa), ret = 0;

	if (i < 0)
		return i;
	pthread_mutex_lock(&users_lock);
	/* Cores of another machine in this process may be reading it. */
	if (users && cm_simd != paths[i].simd) {
		ret = -EBUSY;
	} else {
		if (!users && paths[i].fill)
			paths[i].fill((struct cm_simd *)paths[i].simd);
		if (!users)
			cm_simd = paths[i].simd;
		users++;
		cm_linear_seed();
		*ret_name = paths[i].name;
	}
	pthread_mutex_unlock(&users_lock);
	return ret;
}

void cm_ops_exit(void)
{
	pthread_mutex_lock(&users_lock);
	users--;
	pthread_mutex_unlock(&users_lock);
}

bool cm_ops_use_tiles(void)
{
	return cm_simd->tiles;
}

void cm_ops_rest(void)
{
	if (cm_simd->rest)
		cm_simd->rest();
}

int cm_bad(const struct cm_launch *l, uint32_t code, const struct cm_tensor *t, uint64_t va,
	   uint64_t detail)
{
	l->fault->code = code;
	l->fault->tensor = t ? t->index : TXDA_NONE;
	l->fault->va = va;
	l->fault->detail = detail;
	return -EINVAL;
}

int cm_may(const struct cm_launch *l, const struct cm_tensor *t, unsigned dtypes, uint64_t d0,
	   uint64_t d1)
{
	if (!t)
		return 0;
	if (t->layout != TXDA_ROWS || !(dtypes & DT(t->dtype)) ||
	    t->ndim != (d1 == CM_VECTOR ? 1 : 2) || (d0 != CM_ANY && t->dim[0] != d0) ||
	    (d1 != CM_VECTOR && d1 != CM_ANY && t->dim[1] != d1))
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t->va, 0);
	return 0;
}

int cm_want(const struct cm_launch *l, const struct cm_tensor *t, unsigned dtypes, uint64_t d0,
	    uint64_t d1)
{
	return t ? cm_may(l, t, dtypes, d0, d1) : cm_bad(l, TXDA_FAULT_SHAPE, NULL, 0, 0);
}

/* Weight tiles of @ndim dimensions; the first of three counts matrices. */
static int want_tiles(const struct cm_launch *l, const struct cm_tensor *t, unsigned ndim,
		      uint64_t n, uint64_t k, bool gated)
{
	const uint64_t *dim;

	if (!t)
		return cm_bad(l, TXDA_FAULT_SHAPE, NULL, 0, 0);
	dim = t->dim + ndim - 2;
	if (t->layout != (gated ? TXDA_TILE32_GATED : TXDA_TILE32) || !(DT_WEIGHT & DT(t->dtype)) ||
	    t->ndim != ndim || (n != CM_ANY && dim[0] != n) || (k != CM_ANY && dim[1] != k) ||
	    (gated && dim[0] % 2) ||
	    (txda_is_grouped(t->dtype) && t->group != 32 && t->group != 64 && t->group != 128 &&
	     t->group != 256))
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t->va, 0);
	return 0;
}

int cm_want_tiles(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t k,
		  bool gated)
{
	return want_tiles(l, t, 2, n, k, gated);
}

int cm_want_stack(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t k,
		  bool gated)
{
	return want_tiles(l, t, 3, n, k, gated);
}

int cm_want_limit(const struct cm_launch *l, uint32_t act, float limit)
{
	if (txda_is_limited(act) ? !(limit > 0 && isfinite(limit)) : limit != 0)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, act);
	return 0;
}

int cm_want_index(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t limit,
		  uint32_t also)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t v = cm_index_at(t, i);

		if (v >= limit && (v != also || also != TXDA_NONE))
			return cm_bad(l, TXDA_FAULT_INDEX, t, t->va + i * 4, v);
	}
	return 0;
}

/* E4M3, bias 7: there is no infinity, and one NaN of each sign. */
static float f8_value(uint8_t v)
{
	unsigned e = v >> 3 & 15, m = v & 7;
	float f;

	if ((v & 0x7f) == 0x7f)
		return NAN;
	f = e ? ldexpf((float)(8 + m), (int)e - 10) : ldexpf((float)m, -9);
	return v & 0x80 ? -f : f;
}

static const float mx4_value[16] = {0,	   0.5f,  1,  1.5f,  2,	 3,  4,	 6,
				    -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static float quant_get(const struct cm_tensor *w, const uint8_t *panel, unsigned c, uint64_t k)
{
	uint32_t g = w->group, in = (uint32_t)(k % g);
	const uint8_t *group = panel + k / g * txda_tile_group_bytes(w->dtype, g);
	const uint8_t *q = group + txda_tile_group_header(w->dtype);
	int16_t zero = 0;
	uint16_t h;
	float scale;

	if (w->dtype == TXDA_F8) {
		memcpy(&scale, group + 4 * c, 4);
		return scale *
		       f8_value(q[in / 4 * 128 + c / 4 * 16 + in % 4 / 2 * 8 + c % 4 * 2 + in % 2]);
	}
	memcpy(&h, group + 2 * c, 2);
	scale = cm_f16_to_f32(h);
	if (w->dtype == TXDA_W8Z || w->dtype == TXDA_W4Z)
		memcpy(&zero, group + 64 + 2 * c, 2);
	if (w->dtype == TXDA_W8 || w->dtype == TXDA_W8Z)
		return scale * (float)(q[in / 4 * 128 + c * 4 + in % 4] - 128 - zero);
	in = q[in / 8 * 128 + c * 4 + in % 4] >> (in & 4) & 15;
	if (w->dtype == TXDA_MX4)
		return cm_bf16_to_f32(h) * mx4_value[in];
	return scale * (float)((int)in - 8 - zero);
}

static float two_level_get(const struct cm_tensor *w, const uint8_t *panel, unsigned c, uint64_t k)
{
	unsigned in = (unsigned)(k % w->group), e = in % 32, at = c * 4 + e % 4;
	const uint8_t *group = panel + k / w->group * txda_tile_group_bytes(w->dtype, w->group);
	const uint8_t *block = group + txda_tile_group_header(w->dtype) +
			       in / 32 * txda_tile_block_bytes(w->dtype);
	const uint8_t *q = block + 64, *high = q + 512;
	int code = q[e / 8 * 128 + at] >> (e & 4) & 15;
	uint16_t d, dmin;

	memcpy(&d, group + 2 * c, 2);
	memcpy(&dmin, group + 64 + 2 * c, 2);
	if (w->dtype == TXDA_W6S) {
		code |= (high[e / 16 * 128 + at] >> e % 16 / 4 * 2 & 3) << 4;
		return cm_f16_to_f32(d) * (float)(int8_t)block[e / 16 * 32 + c] *
		       (float)(code - 32);
	}
	if (w->dtype == TXDA_W5M)
		code |= (high[at] >> e / 4 & 1) << 4;
	return cm_f16_to_f32(d) * (float)block[c] * (float)code -
	       cm_f16_to_f32(dmin) * (float)block[32 + c];
}

float cm_tile_get(const struct cm_tensor *w, uint64_t n, uint64_t k)
{
	uint64_t half = w->dim[0] / 2, p = n / 32;
	unsigned c = (unsigned)(n % 32);
	const uint8_t *panel;

	if (w->layout == TXDA_TILE32_GATED) {
		uint64_t j = n < half ? n : n - half;

		p = j / 16;
		c = (unsigned)(j % 16) + (n < half ? 0 : 16);
	}
	panel = (const uint8_t *)w->ptr + p * txda_tile_panel_bytes(w->dtype, w->dim[1], w->group);
	switch (w->dtype) {
	case TXDA_F32: return ((const float *)panel)[k * 32 + c];
	case TXDA_BF16:
		return cm_bf16_to_f32(((const uint16_t *)panel)[k / 2 * 64 + c * 2 + k % 2]);
	case TXDA_F16: return cm_f16_to_f32(((const uint16_t *)panel)[k * 32 + c]);
	default:
		return txda_is_two_level(w->dtype) ? two_level_get(w, panel, c, k)
						   : quant_get(w, panel, c, k);
	}
}

void cm_tile_row(const struct cm_tensor *w, uint64_t n, float *out)
{
	for (uint64_t k = 0; k < w->dim[1]; k++)
		out[k] = cm_tile_get(w, n, k);
}

void cm_precise_norm(float *out, const float *x, const float *w, size_t n, float eps)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += (double)x[i] * x[i];
	s = 1.0 / sqrt(s / (double)n + eps);
	for (size_t i = 0; i < n; i++)
		out[i] = (float)(x[i] * s) * w[i];
}
