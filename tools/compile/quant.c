// SPDX-License-Identifier: MIT
#include "quant.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "floats.h"
#include "ggml.h"
#include "source.h"

#define NAME_BYTES 320

/* ---- reading --------------------------------------------------------------------------------- */

static uint32_t load32(const uint8_t *p)
{
	uint32_t u;

	memcpy(&u, p, 4);
	return u;
}

/* TXDA_U8: bits of exponent. */
static float load_float(const uint8_t *p, uint8_t dtype, uint64_t at)
{
	uint16_t h;

	if (dtype == TXDA_U8)
		return exponent_to_float(p[at]);
	if (dtype == TXDA_F32)
		return float_from_bits(load32(p + at * 4));
	memcpy(&h, p + at * 2, 2);
	return dtype == TXDA_BF16 ? bf16_to_float(h) : f16_to_float(h);
}

uint32_t quant_group(const struct source_tensor *t, uint64_t col)
{
	/* A transposed matrix has the blocks of rows along its columns. */
	if (t->transposed)
		return (uint32_t)((col + t->first_row) / t->block_rows);
	if (t->g_idx)
		return load32(t->g_idx + col * 4);
	return (uint32_t)(col / t->group);
}

float quant_scale(const struct source_tensor *t, uint64_t row, uint32_t group)
{
	uint64_t at;

	if (t->format == SOURCE_GGML)
		return ggml_scale(t, row, group);
	if (t->transposed)
		at = (uint64_t)group * t->n_groups + row / t->group;
	else if (t->format == SOURCE_GPTQ || t->format == SOURCE_AWQ)
		at = (uint64_t)group * t->rows + row;
	else
		at = row / t->block_rows * t->n_groups + group;
	if (t->format == SOURCE_MX4)
		return exponent_to_float(t->scales[at]);
	return load_float(t->scales, t->scale_dtype, at);
}

/* Of the 8 columns in a word of AWQ, the one in nibble i is 0, 2, 4, 6, 1, 3, 5, 7. */
static unsigned awq_shift(uint64_t n)
{
	return (unsigned)(n % 8 / 2 + (n & 1) * 4) * 4;
}

int quant_zero(const struct source_tensor *t, uint64_t row, uint32_t group)
{
	uint32_t mask = (1u << t->bits) - 1, per = 32 / t->bits;
	uint64_t words = (t->rows + per - 1) / per;

	if (t->format == SOURCE_F8 || t->format == SOURCE_MX4 ||
	    (t->format == SOURCE_GGML && t->block_type == GGML_MXFP4))
		return 0;
	if (!t->zeros)
		return 1 << (t->bits - 1);
	switch (t->format) {
	case SOURCE_GPTQ:
		return (int)(((load32(t->zeros + (group * words + row / per) * 4) >>
			       row % per * t->bits) +
			      t->zero_plus_one) &
			     mask);
	case SOURCE_AWQ:
		return (int)(load32(t->zeros + (group * words + row / 8) * 4) >> awq_shift(row) &
			     15);
	case SOURCE_PACKED: /* [ceil(N / per), groups] */
		return (int)(load32(t->zeros + (row / per * t->n_groups + group) * 4) >>
				     row % per * t->bits &
			     mask);
	default: return (int8_t)t->zeros[row / t->block_rows * t->n_groups + group] + 128;
	}
}

void quant_codes(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
		 uint8_t *codes)
{
	uint32_t mask = (1u << t->bits) - 1, per = 32 / t->bits;
	uint64_t i;

	switch (t->format) {
	case SOURCE_GPTQ:
		for (i = col; i < col + n; i++)
			*codes++ = (uint8_t)(load32(t->data + (i / per * t->rows + row) * 4) >>
						     i % per * t->bits &
					     mask);
		break;
	case SOURCE_AWQ:
		for (i = col; i < col + n; i++)
			*codes++ = load32(t->data + (i * (t->rows / 8) + row / 8) * 4) >>
					   awq_shift(row) &
				   15;
		break;
	case SOURCE_PACKED: {
		uint64_t words = (t->cols + per - 1) / per;

		for (i = col; i < col + n; i++)
			*codes++ = (uint8_t)(load32(t->data + (row * words + i / per) * 4) >>
						     i % per * t->bits &
					     mask);
		break;
	}
	case SOURCE_MX4:
		for (i = col; i < col + n; i++)
			*codes++ = t->data[(row * t->cols + i) / 2] >> (i & 1) * 4 & 15;
		break;
	case SOURCE_GGML: ggml_codes(t, row, col, n, codes); break;
	case SOURCE_INT8:
		for (i = col; i < col + n; i++)
			*codes++ = t->data[row * t->cols + i] ^ 0x80;
		break;
	default:
		if (t->transposed) {
			for (i = col; i < col + n; i++)
				*codes++ = t->data[(t->first_row + i) * t->rows + row];
			break;
		}
		memcpy(codes, t->data + row * t->cols + col, n);
	}
}

void quant_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst)
{
	uint8_t codes[512];

	if (t->format == SOURCE_GGML) {
		ggml_read(t, row, col, n, dst);
		return;
	}
	while (n) {
		uint64_t step = n < sizeof(codes) ? n : sizeof(codes), i;

		quant_codes(t, row, col, step, codes);
		for (i = 0; i < step; i++) {
			uint32_t g = quant_group(t, col + i);

			dst[i] = quant_scale(t, row, g) *
				 (t->format == SOURCE_F8 ? f8_to_float(codes[i])
				  : t->format == SOURCE_MX4
					  ? mx4_to_float(codes[i])
					  : (float)(codes[i] - quant_zero(t, row, g)));
		}
		n -= step;
		col += step;
		dst += step;
	}
}

bool quant_symmetric(const struct source_tensor *t)
{
	uint64_t row;
	uint32_t g;

	for (g = 0; t->zeros && g < t->n_groups; g++) {
		for (row = 0; row < t->rows; row++) {
			if (quant_zero(t, row, g) != 1 << (t->bits - 1))
				return false;
		}
	}
	return true;
}

/* ---- finding --------------------------------------------------------------------------------- */

struct finder {
	const struct source *s;
	const struct quant_config *q;
	const char *name;
	struct tool_error *error;
};

static const struct safetensors_tensor *look(const struct finder *f, const char *suffix)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%s.%s", f->name, suffix);
	return safetensors_find(f->s->checkpoint, name);
}

static int bad_shape(const struct finder *f, const struct safetensors_tensor *t, uint64_t d0,
		     uint64_t d1)
{
	const uint64_t want[2] = {d0, d1};
	char a[64], b[128];

	return tool_fail(f->error, -EINVAL, "tensor \"%.200s\": expected the shape %s, found %s",
			 t->name, safetensors_shape(d1 ? 2 : 1, want, a, sizeof(a)),
			 safetensors_shape(t->ndim, t->dim, b, sizeof(b)));
}

static int take_copy(const struct finder *f, const struct safetensors_tensor *t,
		     const uint8_t **ret)
{
	const void *copy;
	int r = safetensors_copy(f->s->checkpoint, t, &copy, f->error);

	if (!r)
		*ret = copy;
	return r;
}

/*
 * NAME.suffix of one of two types and the shape [d0, d1], or [d0] if d1 is 0. Data is mapped; data
 * that is checked or used for decisions is copied.
 */
static int need(const struct finder *f, const char *suffix, enum safetensors_dtype a,
		enum safetensors_dtype b, uint64_t d0, uint64_t d1, bool copy, const uint8_t **ret)
{
	const struct safetensors_tensor *t = look(f, suffix);

	if (!t)
		return tool_fail(f->error, -ENOENT, "tensor \"%.200s.%s\" is missing", f->name,
				 suffix);
	if (t->dtype != a && t->dtype != b)
		return tool_fail(f->error, -EINVAL, "tensor \"%.200s\": dtype %s, expected %s",
				 t->name, safetensors_dtype_name(t->dtype),
				 safetensors_dtype_name(a));
	if (t->ndim != (d1 ? 2 : 1) || t->dim[0] != d0 || (d1 && t->dim[1] != d1))
		return bad_shape(f, t, d0, d1);
	*ret = safetensors_use(f->s->checkpoint, t);
	return copy ? take_copy(f, t, ret) : 0;
}

/* Scales: finite floats, as many as required; a scalar or [n] is accepted for [n, 1]. */
static int need_scales(const struct finder *f, const char *suffix, uint64_t d0, uint64_t d1,
		       struct source_tensor *t)
{
	const struct safetensors_tensor *s = look(f, suffix);
	uint64_t n = 1, i;
	int r;

	if (!s)
		return tool_fail(f->error, -ENOENT, "tensor \"%.200s.%s\" is missing", f->name,
				 suffix);
	switch (s->dtype) {
	case SAFETENSORS_F32: t->scale_dtype = TXDA_F32; break;
	case SAFETENSORS_BF16: t->scale_dtype = TXDA_BF16; break;
	case SAFETENSORS_F16: t->scale_dtype = TXDA_F16; break;
	case SAFETENSORS_F8_E8M0: t->scale_dtype = TXDA_U8; break;
	default:
		return tool_fail(f->error, -ENOTSUP,
				 "tensor \"%.200s\": dtype %s is not supported (F32, BF16, F16 and "
				 "F8_E8M0 are)",
				 s->name, safetensors_dtype_name(s->dtype));
	}
	for (i = 0; i < s->ndim; i++)
		n *= s->dim[i];
	if (s->ndim > 2 || n != d0 * d1 || (s->ndim == 2 && s->dim[0] != d0) ||
	    (s->ndim == 1 && d1 != 1 && d0 != 1))
		return bad_shape(f, s, d0, d1);
	r = take_copy(f, s, &t->scales);
	if (r)
		return r;
	for (i = 0; i < n; i++) {
		float v = load_float(t->scales, t->scale_dtype, i);

		if (!isfinite(v))
			return tool_fail(f->error, -ERANGE,
					 "tensor \"%.200s\": scale %llu is not finite", s->name,
					 (unsigned long long)i);
	}
	return 0;
}

static void set_groups(struct source_tensor *t, uint32_t group)
{
	t->group = group && group < t->cols ? group : (uint32_t)t->cols;
	t->n_groups = (uint32_t)((t->cols + t->group - 1) / t->group);
	t->block_rows = 1;
}

/*
 * The bits of matrices that may have others than the rule: @dim elements along a dimension of
 * @cols columns in words.
 */
static uint32_t bits_of(const struct finder *f, const struct safetensors_tensor *t, unsigned dim,
			uint64_t cols)
{
	for (uint32_t bits = 4; f->q->mixed && t && t->ndim == 2 && bits <= 8; bits *= 2) {
		if (t->dim[dim] == (cols + 32 / bits - 1) / (32 / bits))
			return bits;
	}
	return f->q->bits;
}

/* Likewise their groups, by the number of scales along dimension @dim. */
static void find_groups(const struct finder *f, const char *scales, unsigned dim,
			struct source_tensor *t)
{
	const struct safetensors_tensor *s = f->q->mixed ? look(f, scales) : NULL;
	uint64_t n = s && s->ndim == 2 ? s->dim[dim] : 0;

	set_groups(t, f->q->group);
	if (n && n != t->n_groups && t->cols % n == 0)
		set_groups(t, (uint32_t)(t->cols / n));
}

/* Each column's group must exist; groups in order need no list. */
static int check_g_idx(const struct finder *f, struct source_tensor *t)
{
	bool in_order = true;
	uint64_t i;

	for (i = 0; i < t->cols; i++) {
		uint32_t g = load32(t->g_idx + i * 4);

		if (g >= t->n_groups)
			return tool_fail(f->error, -ERANGE,
					 "tensor \"%.200s.g_idx\": group %d of column %llu, there "
					 "are %u",
					 f->name, (int)g, (unsigned long long)i, t->n_groups);
		in_order &= g == i / t->group;
	}
	if (in_order)
		t->g_idx = NULL;
	return 0;
}

/* The group of each column, if the checkpoint has them. */
static int find_g_idx(const struct finder *f, const char *suffix, struct source_tensor *t)
{
	int r;

	if (!look(f, suffix))
		return 0;
	r = need(f, suffix, SAFETENSORS_I32, SAFETENSORS_U32, t->cols, 0, true, &t->g_idx);
	return r ? r : check_g_idx(f, t);
}

static int find_gptq(const struct finder *f, struct source_tensor *t)
{
	uint32_t bits = bits_of(f, look(f, "qweight"), 0, t->cols), per;
	int r;

	t->format = SOURCE_GPTQ;
	t->bits = (uint8_t)bits;
	t->zero_plus_one = f->q->zero_plus_one;
	per = 32 / bits;
	if (t->cols % per)
		return tool_fail(f->error, -EINVAL,
				 "\"%.200s\": %llu columns are not a multiple of %u", f->name,
				 (unsigned long long)t->cols, per);
	find_groups(f, "scales", 0, t);
	r = need(f, "qweight", SAFETENSORS_I32, SAFETENSORS_U32, t->cols / per, t->rows, false,
		 &t->data);
	if (!r)
		r = need_scales(f, "scales", t->n_groups, t->rows, t);
	if (!r && (f->q->zeros || look(f, "qzeros")))
		r = need(f, "qzeros", SAFETENSORS_I32, SAFETENSORS_U32, t->n_groups,
			 (t->rows + per - 1) / per, true, &t->zeros);
	return r ? r : find_g_idx(f, "g_idx", t);
}

static int find_awq(const struct finder *f, struct source_tensor *t)
{
	int r;

	t->format = SOURCE_AWQ;
	t->bits = 4;
	if (t->rows % 8)
		return tool_fail(f->error, -EINVAL, "\"%.200s\": %llu rows are not a multiple of 8",
				 f->name, (unsigned long long)t->rows);
	set_groups(t, f->q->group);
	r = need(f, "qweight", SAFETENSORS_I32, SAFETENSORS_U32, t->cols, t->rows / 8, false,
		 &t->data);
	if (!r)
		r = need_scales(f, "scales", t->n_groups, t->rows, t);
	if (!r && (f->q->zeros || look(f, "qzeros")))
		r = need(f, "qzeros", SAFETENSORS_I32, SAFETENSORS_U32, t->n_groups, t->rows / 8,
			 true, &t->zeros);
	return r;
}

static int find_packed(const struct finder *f, struct source_tensor *t)
{
	uint32_t bits = bits_of(f, look(f, "weight_packed"), 1, t->cols), per = 32 / bits;
	int r;

	t->format = SOURCE_PACKED;
	t->bits = (uint8_t)bits;
	find_groups(f, "weight_scale", 1, t);
	r = need(f, "weight_packed", SAFETENSORS_I32, SAFETENSORS_U32, t->rows,
		 (t->cols + per - 1) / per, false, &t->data);
	if (!r)
		r = need_scales(f, "weight_scale", t->rows, t->n_groups, t);
	if (!r && (f->q->zeros || look(f, "weight_zero_point")))
		r = need(f, "weight_zero_point", SAFETENSORS_I32, SAFETENSORS_U32,
			 (t->rows + per - 1) / per, t->n_groups, true, &t->zeros);
	return r ? r : find_g_idx(f, "weight_g_idx", t);
}

/* One for each scale, in their shape. */
static int need_zeros8(const struct finder *f, uint64_t d0, uint64_t d1, struct source_tensor *t)
{
	const struct safetensors_tensor *z = look(f, "weight_zero_point");

	if (!z)
		return tool_fail(f->error, -ENOENT,
				 "tensor \"%.200s.weight_zero_point\" is missing", f->name);
	if (z->dtype != SAFETENSORS_I8)
		return tool_fail(f->error, -EINVAL, "tensor \"%.200s\": dtype %s, expected I8",
				 z->name, safetensors_dtype_name(z->dtype));
	if (z->bytes != d0 * d1 || z->ndim > 2 || (z->ndim == 2 && z->dim[0] != d0))
		return bad_shape(f, z, d0, d1);
	return take_copy(f, z, &t->zeros);
}

static int find_int8(const struct finder *f, struct source_tensor *t)
{
	uint64_t rows = t->rows;
	int r;

	t->format = SOURCE_INT8;
	t->bits = 8;
	find_groups(f, "weight_scale", 1, t);
	r = need(f, "weight", SAFETENSORS_I8, SAFETENSORS_I8, t->rows, t->cols, false, &t->data);
	if (!r) {
		const struct safetensors_tensor *s = look(f, "weight_scale");

		/* one scale for the whole matrix */
		if (s && (s->ndim == 0 || (s->ndim == 1 && s->dim[0] == 1))) {
			t->block_rows = (uint32_t)t->rows;
			rows = 1;
		}
		r = need_scales(f, "weight_scale", rows, t->n_groups, t);
	}
	if (!r && (f->q->zeros || look(f, "weight_zero_point")))
		r = need_zeros8(f, rows, t->n_groups, t);
	return r ? r : find_g_idx(f, "weight_g_idx", t);
}

static int find_f8(const struct finder *f, struct source_tensor *t)
{
	const char *suffix = look(f, "weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
	const struct safetensors_tensor *s = look(f, suffix);
	int r;

	t->format = SOURCE_F8;
	t->bits = 8;
	r = need(f, "weight", SAFETENSORS_F8_E4M3, SAFETENSORS_F8_E4M3, t->rows, t->cols, false,
		 &t->data);
	if (r)
		return r;
	set_groups(t, 0);
	t->block_rows = (uint32_t)t->rows;
	if (s && s->ndim == 2 && f->q->block_rows) {
		set_groups(t, f->q->block_cols);
		t->block_rows = f->q->block_rows;
	} else if (s && s->ndim && s->dim[0] == t->rows && t->rows > 1) {
		t->block_rows = 1;
	}
	return need_scales(f, suffix, (t->rows + t->block_rows - 1) / t->block_rows, t->n_groups,
			   t);
}

/* NAME_blocks [n, rows, cols / 32, 16] or NAME_scales [n, rows, cols / 32]: those of matrix
 * @index. */
static int find_mx4_part(const struct finder *f, const char *suffix, uint32_t n, uint32_t index,
			 const uint64_t *dim, unsigned ndim, bool copy, const uint8_t **ret)
{
	const struct safetensors_tensor *t;
	char name[NAME_BYTES], a[64], b[128];
	uint64_t bytes = 1;
	unsigned i;
	int r;

	snprintf(name, sizeof(name), "%s%s", f->name, suffix);
	t = safetensors_find(f->s->checkpoint, name);
	if (!t)
		return tool_fail(f->error, -ENOENT, "tensor \"%.200s\" is missing", name);
	if (t->dtype != SAFETENSORS_U8)
		return tool_fail(f->error, -EINVAL, "tensor \"%.200s\": dtype %s, expected %s",
				 name, safetensors_dtype_name(t->dtype),
				 safetensors_dtype_name(SAFETENSORS_U8));
	if (t->ndim != ndim || memcmp(t->dim, dim, ndim * sizeof(*dim)))
		return tool_fail(f->error, -EINVAL,
				 "tensor \"%.200s\": expected the shape %s, found %s", name,
				 safetensors_shape(ndim, dim, a, sizeof(a)),
				 safetensors_shape(t->ndim, t->dim, b, sizeof(b)));
	for (i = 1; i < ndim; i++)
		bytes *= dim[i];
	*ret = safetensors_use(f->s->checkpoint, t);
	r = copy ? take_copy(f, t, ret) : 0;
	*ret += (index < n ? index : 0) * bytes;
	return r;
}

static int find_mx4(const struct finder *f, uint32_t n, uint32_t index, struct source_tensor *t)
{
	const uint64_t dim[4] = {n, t->rows, t->cols / 32, 16};
	uint64_t i;
	int r;

	t->format = SOURCE_MX4;
	t->bits = 4;
	if (t->cols % 32)
		return tool_fail(
			f->error, -EINVAL,
			"\"%.200s\": %llu columns are not a multiple of 32, the block of MXFP4",
			f->name, (unsigned long long)t->cols);
	set_groups(t, 32);
	r = find_mx4_part(f, "_blocks", n, index, dim, 4, false, &t->data);
	if (!r)
		r = find_mx4_part(f, "_scales", n, index, dim, 3, true, &t->scales);
	for (i = 0; !r && i < t->rows * t->n_groups; i++) {
		if (t->scales[i] == 255)
			return tool_fail(f->error, -ERANGE,
					 "tensor \"%.200s_scales\": scale %llu of matrix %u is no "
					 "number",
					 f->name, (unsigned long long)i, index);
	}
	return r;
}

int quant_find_stacked(const struct source *s, const char *name, uint32_t n, uint32_t index,
		       uint64_t rows, uint64_t cols, bool in_first, struct source_tensor *ret,
		       struct tool_error *error)
{
	struct finder f = {.s = s, .name = name, .error = error};
	struct source_tensor t = {.rows = rows, .cols = cols};
	char blocks[NAME_BYTES];
	int r;

	snprintf(blocks, sizeof(blocks), "%s_blocks", name);
	if (!s->checkpoint || !source_has(s, blocks))
		return source_find_stacked(s, name, n, index, rows, cols, in_first, ret, error);
	r = find_mx4(&f, n, index, &t);
	if (!r)
		*ret = t;
	return r;
}

bool quant_has(const struct source *s, const char *name)
{
	static const char *const suffixes[] = {"weight", "qweight", "weight_packed"};
	char full[NAME_BYTES];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(full, sizeof(full), "%s.%s", name, suffixes[i]);
		if (source_has(s, full))
			return true;
	}
	return false;
}

int quant_find(const struct source *s, const struct quant_config *q, const char *name,
	       uint64_t rows, uint64_t cols, struct source_tensor *ret, struct tool_error *error)
{
	struct finder f = {s, q, name, error};
	struct source_tensor t = {.rows = rows, .cols = cols};
	const struct safetensors_tensor *w;
	char full[NAME_BYTES];
	int r;

	snprintf(full, sizeof(full), "%s.weight", name);
	/* In a GGUF file the tensor's type gives its format. */
	if (!s->checkpoint)
		return source_find(s, full, rows, cols, ret, error);
	w = safetensors_find(s->checkpoint, full);
	if (look(&f, "qweight")) {
		if (q->method == QUANT_GPTQ)
			r = find_gptq(&f, &t);
		else if (q->method == QUANT_AWQ)
			r = find_awq(&f, &t);
		else
			r = tool_fail(error, -EINVAL,
				      "tensor \"%.200s.qweight\": config.json has no "
				      "quantization_config of gptq or awq",
				      name);
	} else if (look(&f, "weight_packed") && q->method == QUANT_COMPRESSED) {
		r = find_packed(&f, &t);
	} else if (w && w->dtype == SAFETENSORS_I8 && q->method == QUANT_COMPRESSED) {
		r = find_int8(&f, &t);
	} else if (w && w->dtype == SAFETENSORS_F8_E4M3) {
		r = find_f8(&f, &t);
	} else {
		return source_find(s, full, rows, cols, ret, error);
	}
	if (!r)
		*ret = t;
	return r;
}
