// SPDX-License-Identifier: MIT
#include "case_info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "isa_names.h"
#include "set_error.h"
#include "utf8.h"

#define FORMAT	       1
#define COUNT(a)       (sizeof(a) / sizeof((a)[0]))
#define AT(type, name) offsetof(type, name), sizeof(((type *)NULL)->name)

/* Where messages go. */
struct reader {
	char *err;
	size_t errlen;
};

/* ---- what is allowed, of the file and of what another process has read ------------------------ */

struct number {
	const char *object, *key; /* "": no further object */
	uint64_t min, max;
	size_t at, bytes; /* in the structure: of uint32_t or uint64_t */
};

static const struct number case_numbers[] = {
	{"", "tp", 1, CASE_MAX_CHIPS, AT(struct case_info, tp)},
	{"limits", "tokens", 1, 1u << 20, AT(struct case_info, max_tokens)},
	{"limits", "seqs", 1, 1u << 20, AT(struct case_info, max_seqs)},
	{"limits", "rows", 1, 1u << 20, AT(struct case_info, max_rows)},
	{"limits", "blocks", 1, 1u << 24, AT(struct case_info, max_blocks)},
	{"limits", "context", 1, 1u << 30, AT(struct case_info, max_context)},
	{"kv", "block_size", 1, 1024, AT(struct case_info, block_size)},
	{"kv", "block_bytes", 1, 1ull << 40, AT(struct case_info, kv_block_bytes)},
	{"", "vocab", 1, 1u << 24, AT(struct case_info, vocab)},
	{"", "layers", 1, 1u << 16, AT(struct case_info, layers)},
	{"", "topk", 1, TXDA_TOPK_MAX, AT(struct case_info, topk)},
};

static const struct number chip_numbers[] = {
	{"", "param_crc32c", 0, UINT32_MAX, AT(struct case_chip, param_crc32c)},
	{"", "kcore_bytes", sizeof(struct txda_program), TXDA_PROGRAM_MAX_BYTES,
	 AT(struct case_chip, kcore_bytes)},
	{"", "param_bytes", 1, 1ull << 40, AT(struct case_chip, param_bytes)},
	{"", "scratch_bytes", 0, 1ull << 40, AT(struct case_chip, scratch_bytes)},
	{"", "io_bytes", 0, 1ull << 40, AT(struct case_chip, io_bytes)},
};

static const struct number vision_numbers[] = {
	{"limits", "tokens", 1, 1u << 20, AT(struct case_vision, max_tokens)},
	{"limits", "seqs", 1, 1u << 20, AT(struct case_vision, max_seqs)},
	{"limits", "rows", 1, 1u << 24, AT(struct case_vision, max_rows)},
	{"limits", "blocks", 1, 1u << 24, AT(struct case_vision, max_blocks)},
};

static const struct number vision_chip_numbers[] = {
	{"", "kcore_bytes", sizeof(struct txda_program), TXDA_PROGRAM_MAX_BYTES,
	 AT(struct case_vision_chip, kcore_bytes)},
	{"", "scratch_bytes", 0, 1ull << 40, AT(struct case_vision_chip, scratch_bytes)},
	{"", "io_bytes", 0, 1ull << 40, AT(struct case_vision_chip, io_bytes)},
};

struct text {
	const char *key;
	size_t at, bytes;
};

static const struct text case_texts[] = {
	{"name", AT(struct case_info, name)},
	{"family", AT(struct case_info, family)},
	{"weights", AT(struct case_info, weights)},
};

static int check_range(const struct reader *r, const char *where, const struct number *n,
		       double value)
{
	/* All whole numbers up to 2^53 are exact, and no limit is above. NaN fails, too. */
	if (value >= (double)n->min && value <= (double)n->max && value == (double)(uint64_t)value)
		return 0;
	return set_error(-EINVAL, r->err, r->errlen,
			 "%s%s%s%s is %.17g; it must be from %llu to %llu", where, n->object,
			 *n->object ? "." : "", n->key, value, (unsigned long long)n->min,
			 (unsigned long long)n->max);
}

static int check_numbers(const struct reader *r, const char *where, const struct number *numbers,
			 size_t n, const void *from)
{
	for (size_t i = 0; i < n; i++) {
		const char *at = (const char *)from + numbers[i].at;
		uint64_t wide = 0;
		uint32_t narrow;

		if (numbers[i].bytes == sizeof(wide)) {
			memcpy(&wide, at, sizeof(wide));
		} else {
			memcpy(&narrow, at, sizeof(narrow));
			wide = narrow;
		}
		if (check_range(r, where, &numbers[i], (double)wide) < 0)
			return -EINVAL;
	}
	return 0;
}

/* A text in an array of @size bytes. */
static int check_text(const struct reader *r, const char *where, const char *key, const char *text,
		      size_t size)
{
	size_t len = strnlen(text, size);

	if (!len || len == size)
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s%s is not a string of 1 to %zu bytes", where, key, size - 1);
	if (utf8_valid_prefix((const uint8_t *)text, len) != len)
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is not valid UTF-8", where, key);
	for (size_t i = 0; i < len; i++)
		if (utf8_control(text + i))
			return set_error(-EINVAL, r->err, r->errlen, "%s%s has a control character",
					 where, key);
	return 0;
}

/* A path below the case dir: neither ".." nor an absolute path. */
static bool is_relative(const char *path)
{
	for (const char *s = path;;) {
		size_t len = strcspn(s, "/");

		if (!len || (len == 1 && s[0] == '.') || (len == 2 && !memcmp(s, "..", 2)))
			return false;
		if (!s[len])
			return true;
		s += len + 1;
	}
}

/* The name of a file, in an array of @size bytes. */
static int check_file(const struct reader *r, const char *where, const char *key, const char *name,
		      size_t size)
{
	if (check_text(r, where, key, name, size) < 0)
		return -EINVAL;
	if (is_relative(name))
		return 0;
	return set_error(-EINVAL, r->err, r->errlen,
			 "%s%s is \"%.60s\"; it must be a file below the case dir", where, key,
			 name);
}

static int check_chip(const struct reader *r, const char *where, const struct case_chip *chip)
{
	if (check_file(r, where, "kcore", chip->kcore, sizeof(chip->kcore)) < 0 ||
	    check_file(r, where, "param", chip->param, sizeof(chip->param)) < 0)
		return -EINVAL;
	return check_numbers(r, where, chip_numbers, COUNT(chip_numbers), chip);
}

static int check_vision_chip(const struct reader *r, const char *where,
			     const struct case_vision_chip *chip)
{
	if (check_file(r, where, "kcore", chip->kcore, sizeof(chip->kcore)) < 0)
		return -EINVAL;
	return check_numbers(r, where, vision_chip_numbers, COUNT(vision_chip_numbers), chip);
}

/* Entry @n of @key, after valid ones. */
static int check_tensor(const struct reader *r, const char *key, const struct case_tensor *tensors,
			unsigned n)
{
	const struct case_tensor *t = &tensors[n];
	char where[40];

	snprintf(where, sizeof(where), "%s[%u].", key, n);
	if (check_text(r, where, "name", t->name, sizeof(t->name)) < 0)
		return -EINVAL;
	if (!isa_dtype_bytes(t->dtype))
		return set_error(-EINVAL, r->err, r->errlen, "%sdtype %u is not known", where,
				 t->dtype);
	if (t->ndim < 1 || t->ndim > COUNT(t->dim))
		return set_error(-EINVAL, r->err, r->errlen,
				 "%sshape is not an array of 1 to %zu entries", where,
				 COUNT(t->dim));
	for (unsigned i = 0; i < t->ndim; i++)
		if (t->dim[i].sym > TXDA_SYM_N || !t->dim[i].mul)
			return set_error(-EINVAL, r->err, r->errlen,
					 "%sshape[%u] is neither a number nor one of T, S, R, B, N",
					 where, i);
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(tensors[i].name, t->name))
			return set_error(-EINVAL, r->err, r->errlen, "%sname \"%s\" occurs twice",
					 where, t->name);
	return 0;
}

static int check_count(const struct reader *r, const char *key, int n, unsigned min, unsigned max)
{
	if (n >= (int)min && n <= (int)max)
		return 0;
	return set_error(-EINVAL, r->err, r->errlen, "%s is not an array of %u to %u entries", key,
			 min, max);
}

static int check_tensors(const struct reader *r, const char *key, const struct case_tensor *tensors,
			 uint32_t n)
{
	if (check_count(r, key, n > INT32_MAX ? -1 : (int)n, 1, CASE_MAX_TENSORS) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (check_tensor(r, key, tensors, i) < 0)
			return -EINVAL;
	return 0;
}

static int check_pooling(const struct reader *r, const char *pooling, size_t size)
{
	static const char *const ways[] = {"", "last", "mean", "cls"};

	for (size_t i = 0; i < COUNT(ways); i++)
		if (!strncmp(pooling, ways[i], size))
			return 0;
	return set_error(-EINVAL, r->err, r->errlen,
			 "pooling is \"%.*s\"; it must be last, mean or cls", (int)size, pooling);
}

/* 0 or 1. */
static int check_flag(const struct reader *r, const char *key, uint32_t value)
{
	return value < 2
		       ? 0
		       : set_error(-EINVAL, r->err, r->errlen, "%s is neither true nor false", key);
}

static int check_programs(const struct reader *r, const struct case_info *c)
{
	if (check_count(r, "programs", c->n_programs > INT32_MAX ? -1 : (int)c->n_programs, 1,
			CASE_MAX_PROGRAMS) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < c->n_programs; i++)
		if (check_text(r, "", "programs[]", c->program[i], sizeof(c->program[i])) < 0)
			return -EINVAL;
	return 0;
}

static int check_vision(const struct reader *r, const struct case_info *c)
{
	const struct case_vision *v = &c->vision;
	char where[32];

	if (check_flag(r, "vision", v->present) < 0)
		return -EINVAL;
	if (!v->present)
		return 0;
	if (check_numbers(r, "vision.", vision_numbers, COUNT(vision_numbers), v) < 0 ||
	    check_tensors(r, "inputs", v->input, v->n_inputs) < 0 ||
	    check_tensors(r, "outputs", v->output, v->n_outputs) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < c->tp; i++) {
		snprintf(where, sizeof(where), "vision.chips[%u].", i);
		if (check_vision_chip(r, where, &v->chip[i]) < 0)
			return -EINVAL;
	}
	return 0;
}

int case_info_check(const struct case_info *c, char *err, size_t errlen)
{
	const struct reader reader = {err, errlen}, *r = &reader;
	char where[24];

	for (size_t i = 0; i < COUNT(case_texts); i++)
		if (check_text(r, "", case_texts[i].key, (const char *)c + case_texts[i].at,
			       case_texts[i].bytes) < 0)
			return -EINVAL;
	if (check_numbers(r, "", case_numbers, COUNT(case_numbers), c) < 0 ||
	    check_flag(r, "normalize", c->normalize) < 0 ||
	    check_pooling(r, c->pooling, sizeof(c->pooling)) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < c->tp; i++) {
		snprintf(where, sizeof(where), "chips[%u].", i);
		if (check_chip(r, where, &c->chip[i]) < 0)
			return -EINVAL;
	}
	if (check_programs(r, c) < 0 || check_tensors(r, "inputs", c->input, c->n_inputs) < 0 ||
	    check_tensors(r, "outputs", c->output, c->n_outputs) < 0)
		return -EINVAL;
	return check_vision(r, c);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int get(const struct reader *r, const cJSON *object, const char *where, const char *key,
	       const cJSON **ret)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	if (!item)
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is missing", where, key);
	*ret = item;
	return 0;
}

static int get_object(const struct reader *r, const cJSON *object, const char *where,
		      const char *key, const cJSON **ret)
{
	if (get(r, object, where, key, ret) < 0)
		return -EINVAL;
	if (!cJSON_IsObject(*ret))
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is not an object", where, key);
	return 0;
}

static int read_number(const struct reader *r, const cJSON *object, const char *where,
		       const struct number *n, void *to)
{
	const cJSON *item;
	char inner[64];
	uint64_t wide;
	uint32_t narrow;

	snprintf(inner, sizeof(inner), "%s%s%s", where, n->object, *n->object ? "." : "");
	if ((*n->object && get_object(r, object, where, n->object, &object) < 0) ||
	    get(r, object, inner, n->key, &item) < 0)
		return -EINVAL;
	if (!cJSON_IsNumber(item))
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is not a number", inner, n->key);
	if (check_range(r, where, n, item->valuedouble) < 0)
		return -EINVAL;
	wide = (uint64_t)item->valuedouble;
	narrow = (uint32_t)wide;
	if (n->bytes == sizeof(wide))
		memcpy((char *)to + n->at, &wide, sizeof(wide));
	else
		memcpy((char *)to + n->at, &narrow, sizeof(narrow));
	return 0;
}

static int read_numbers(const struct reader *r, const cJSON *object, const char *where,
			const struct number *numbers, size_t n, void *to)
{
	for (size_t i = 0; i < n; i++)
		if (read_number(r, object, where, &numbers[i], to) < 0)
			return -EINVAL;
	return 0;
}

static int copy_text(const struct reader *r, const cJSON *item, const char *where, const char *key,
		     char *text, size_t size)
{
	if (!cJSON_IsString(item) || strlen(item->valuestring) >= size)
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s%s is not a string of 1 to %zu bytes", where, key, size - 1);
	strcpy(text, item->valuestring);
	return check_text(r, where, key, text, size);
}

static int get_text(const struct reader *r, const cJSON *object, const char *where, const char *key,
		    char *text, size_t size)
{
	const cJSON *item;

	if (get(r, object, where, key, &item) < 0)
		return -EINVAL;
	return copy_text(r, item, where, key, text, size);
}

static int get_array(const struct reader *r, const cJSON *object, const char *key, unsigned min,
		     unsigned max, const cJSON **ret)
{
	if (get(r, object, "", key, ret) < 0)
		return -EINVAL;
	return check_count(r, key, cJSON_IsArray(*ret) ? cJSON_GetArraySize(*ret) : -1, min, max);
}

static int read_chip(const struct reader *r, const cJSON *object, unsigned rank,
		     struct case_chip *chip)
{
	char where[24];

	snprintf(where, sizeof(where), "chips[%u].", rank);
	if (!cJSON_IsObject(object))
		return set_error(-EINVAL, r->err, r->errlen, "chips[%u] is not an object", rank);
	if (get_text(r, object, where, "kcore", chip->kcore, sizeof(chip->kcore)) < 0 ||
	    get_text(r, object, where, "param", chip->param, sizeof(chip->param)) < 0 ||
	    read_numbers(r, object, where, chip_numbers, COUNT(chip_numbers), chip) < 0)
		return -EINVAL;
	return check_chip(r, where, chip);
}

static int read_chips(const struct reader *r, const cJSON *root, struct case_info *c)
{
	const cJSON *array, *item;
	unsigned rank = 0;

	if (get_array(r, root, "chips", 1, CASE_MAX_CHIPS, &array) < 0)
		return -EINVAL;
	if ((unsigned)cJSON_GetArraySize(array) != c->tp)
		return set_error(-EINVAL, r->err, r->errlen, "tp is %u, but chips has %d entries",
				 c->tp, cJSON_GetArraySize(array));
	cJSON_ArrayForEach(item, array) {
		if (read_chip(r, item, rank, &c->chip[rank]) < 0)
			return -EINVAL;
		rank++;
	}
	return 0;
}

/* The types allowed for inputs and outputs: block-quantised types are for weights only. */
static bool parse_dtype(const char *text, uint8_t *ret)
{
	for (unsigned i = 0; i < TXDA_DTYPE_COUNT; i++)
		if (isa_dtype_bytes(i) && !strcasecmp(text, isa_dtype_name(i))) {
			*ret = (uint8_t)i;
			return true;
		}
	return false;
}

/* A number, or a symbol such as "T", optionally with a factor before it ("2T"). */
static bool parse_dim(const cJSON *item, struct txda_dim *ret)
{
	static const char symbols[] = "-TSRBN"; /* indexed by enum txda_symbol */
	const char *s, *at;
	char *end;
	unsigned long mul;

	if (cJSON_IsNumber(item)) {
		if (!(item->valuedouble >= 1 && item->valuedouble <= UINT32_MAX))
			return false;
		*ret = (struct txda_dim){TXDA_SYM_NONE, (uint32_t)item->valuedouble};
		return (double)ret->mul == item->valuedouble;
	}
	if (!cJSON_IsString(item))
		return false;
	s = item->valuestring;
	mul = 1;
	if (*s >= '1' && *s <= '9') {
		mul = strtoul(s, &end, 10);
		s = end;
	}
	at = *s && *s != '-' ? strchr(symbols, *s) : NULL;
	if (!at || s[1] || mul > UINT32_MAX)
		return false;
	*ret = (struct txda_dim){(uint32_t)(at - symbols), (uint32_t)mul};
	return true;
}

static int read_tensor(const struct reader *r, const cJSON *item, const char *where,
		       struct case_tensor *t)
{
	const cJSON *shape, *dim;
	char dtype[16];

	if (get_text(r, item, where, "name", t->name, sizeof(t->name)) < 0 ||
	    get_text(r, item, where, "dtype", dtype, sizeof(dtype)) < 0 ||
	    get(r, item, where, "shape", &shape) < 0)
		return -EINVAL;
	if (!parse_dtype(dtype, &t->dtype))
		return set_error(-EINVAL, r->err, r->errlen, "%sdtype \"%s\" is not known", where,
				 dtype);
	if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) < 1 ||
	    cJSON_GetArraySize(shape) > (int)COUNT(t->dim))
		return set_error(-EINVAL, r->err, r->errlen,
				 "%sshape is not an array of 1 to %zu entries", where,
				 COUNT(t->dim));
	cJSON_ArrayForEach(dim, shape)
		if (!parse_dim(dim, &t->dim[t->ndim++]))
			return set_error(-EINVAL, r->err, r->errlen,
					 "%sshape[%u] is neither a number nor one of T, S, R, B, N",
					 where, t->ndim - 1u);
	return 0;
}

static int read_tensors(const struct reader *r, const cJSON *root, const char *key,
			struct case_tensor *tensors, uint32_t *ret_count)
{
	const cJSON *array, *item;
	char where[40];
	unsigned n = 0;

	if (get_array(r, root, key, 1, CASE_MAX_TENSORS, &array) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, array) {
		snprintf(where, sizeof(where), "%s[%u].", key, n);
		if (!cJSON_IsObject(item))
			return set_error(-EINVAL, r->err, r->errlen, "%s[%u] is not an object", key,
					 n);
		if (read_tensor(r, item, where, &tensors[n]) < 0 ||
		    check_tensor(r, key, tensors, n) < 0)
			return -EINVAL;
		n++;
	}
	*ret_count = n;
	return 0;
}

static int read_programs(const struct reader *r, const cJSON *root, struct case_info *c)
{
	const cJSON *array, *item;

	if (get_array(r, root, "programs", 1, CASE_MAX_PROGRAMS, &array) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, array)
		if (copy_text(r, item, "", "programs[]", c->program[c->n_programs++],
			      sizeof(c->program[0])) < 0)
			return -EINVAL;
	return 0;
}

/* Fields that only embedding models have. */
static int read_pooling(const struct reader *r, const cJSON *root, struct case_info *c)
{
	const cJSON *normalize = cJSON_GetObjectItemCaseSensitive(root, "normalize");

	if (normalize && !cJSON_IsBool(normalize))
		return set_error(-EINVAL, r->err, r->errlen, "normalize is neither true nor false");
	c->normalize = cJSON_IsTrue(normalize) ? 1 : 0;
	if (!cJSON_GetObjectItemCaseSensitive(root, "pooling"))
		return 0;
	if (get_text(r, root, "", "pooling", c->pooling, sizeof(c->pooling)) < 0)
		return -EINVAL;
	return check_pooling(r, c->pooling, sizeof(c->pooling));
}

static int read_vision_chip(const struct reader *r, const cJSON *object, unsigned rank,
			    struct case_vision_chip *chip)
{
	char where[32];

	snprintf(where, sizeof(where), "vision.chips[%u].", rank);
	if (!cJSON_IsObject(object))
		return set_error(-EINVAL, r->err, r->errlen, "vision.chips[%u] is not an object",
				 rank);
	if (get_text(r, object, where, "kcore", chip->kcore, sizeof(chip->kcore)) < 0 ||
	    read_numbers(r, object, where, vision_chip_numbers, COUNT(vision_chip_numbers), chip) <
		    0)
		return -EINVAL;
	return check_vision_chip(r, where, chip);
}

/* Fields that only vision models have. */
static int read_vision(const struct reader *r, const cJSON *root, struct case_info *c)
{
	struct case_vision *v = &c->vision;
	const cJSON *object, *chips, *item;
	unsigned rank = 0;

	if (!cJSON_GetObjectItemCaseSensitive(root, "vision"))
		return 0;
	if (get_object(r, root, "", "vision", &object) < 0 ||
	    read_numbers(r, object, "vision.", vision_numbers, COUNT(vision_numbers), v) < 0 ||
	    get_array(r, object, "chips", c->tp, c->tp, &chips) < 0 ||
	    read_tensors(r, object, "inputs", v->input, &v->n_inputs) < 0 ||
	    read_tensors(r, object, "outputs", v->output, &v->n_outputs) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, chips) {
		if (read_vision_chip(r, item, rank, &v->chip[rank]) < 0)
			return -EINVAL;
		rank++;
	}
	v->present = 1;
	return 0;
}

static int read_root(const struct reader *r, const cJSON *root, struct case_info *c)
{
	static const struct number format = {"", "format", 0, UINT32_MAX, 0, sizeof(uint32_t)};
	uint32_t version;

	if (!cJSON_IsObject(root))
		return set_error(-EINVAL, r->err, r->errlen, "the document is not an object");
	if (read_number(r, root, "", &format, &version) < 0)
		return -EINVAL;
	if (version != FORMAT)
		return set_error(-EINVAL, r->err, r->errlen, "format is %u; this library reads %d",
				 version, FORMAT);
	for (size_t i = 0; i < COUNT(case_texts); i++)
		if (get_text(r, root, "", case_texts[i].key, (char *)c + case_texts[i].at,
			     case_texts[i].bytes) < 0)
			return -EINVAL;
	if (read_numbers(r, root, "", case_numbers, COUNT(case_numbers), c) < 0 ||
	    read_pooling(r, root, c) < 0 || read_chips(r, root, c) < 0 ||
	    read_programs(r, root, c) < 0 ||
	    read_tensors(r, root, "inputs", c->input, &c->n_inputs) < 0 ||
	    read_tensors(r, root, "outputs", c->output, &c->n_outputs) < 0 ||
	    read_vision(r, root, c) < 0)
		return -EINVAL;
	return 0;
}

int case_info_take(const cJSON *root, struct case_info *ret, char *err, size_t errlen)
{
	const struct reader reader = {err, errlen};
	struct case_info *c = calloc(1, sizeof(*c));
	int r = c ? read_root(&reader, root, c) : set_error(-ENOMEM, err, errlen, "out of memory");

	if (r >= 0)
		*ret = *c;
	free(c);
	return r;
}

void case_info_to_vision(struct case_info *c)
{
	const struct case_vision *v = &c->vision;

	c->max_tokens = v->max_tokens;
	c->max_seqs = v->max_seqs;
	c->max_rows = v->max_rows;
	c->max_blocks = v->max_blocks;
	for (unsigned r = 0; r < c->tp; r++) {
		memcpy(c->chip[r].kcore, v->chip[r].kcore, sizeof(c->chip[r].kcore));
		c->chip[r].kcore_bytes = v->chip[r].kcore_bytes;
		c->chip[r].scratch_bytes = v->chip[r].scratch_bytes;
		c->chip[r].io_bytes = v->chip[r].io_bytes;
	}
	c->n_inputs = v->n_inputs;
	c->n_outputs = v->n_outputs;
	memcpy(c->input, v->input, sizeof(c->input));
	memcpy(c->output, v->output, sizeof(c->output));
}
