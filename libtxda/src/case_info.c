// SPDX-License-Identifier: MIT
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "case_info.h"
#include "isa_names.h"
#include "set_error.h"

#define FORMAT 1

/* The current position in the document, for messages. */
struct reader {
	char *err;
	size_t errlen;
};

static int get(const struct reader *r, const cJSON *object, const char *where, const char *key,
	       const cJSON **ret)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	if (!item)
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is missing", where, key);
	*ret = item;
	return 0;
}

static int get_number(const struct reader *r, const cJSON *object, const char *where,
		      const char *key, uint64_t min, uint64_t max, uint64_t *ret)
{
	const cJSON *item;
	double value;

	if (get(r, object, where, key, &item) < 0)
		return -EINVAL;
	if (!cJSON_IsNumber(item))
		return set_error(-EINVAL, r->err, r->errlen, "%s%s is not a number", where, key);
	value = item->valuedouble;
	/* Checked before the conversion; all whole numbers up to 2^53 are exact. NaN fails too. */
	if (!(value >= 0 && value <= 9007199254740992.0) || value != (double)(uint64_t)value ||
	    (uint64_t)value < min || (uint64_t)value > max)
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s%s is %.17g; it must be from %llu to %llu", where, key, value,
				 (unsigned long long)min, (unsigned long long)max);
	*ret = (uint64_t)value;
	return 0;
}

static int get_unsigned(const struct reader *r, const cJSON *object, const char *where,
			const char *key, unsigned min, unsigned max, unsigned *ret)
{
	uint64_t value;

	if (get_number(r, object, where, key, min, max, &value) < 0)
		return -EINVAL;
	*ret = (unsigned)value;
	return 0;
}

static int copy_text(const struct reader *r, const cJSON *item, const char *where, const char *key,
		     char *text, size_t size)
{
	if (!cJSON_IsString(item) || !item->valuestring[0] || strlen(item->valuestring) >= size)
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s%s is not a string of 1 to %zu bytes", where, key, size - 1);
	strcpy(text, item->valuestring);
	for (const char *s = text; *s; s++)
		if ((unsigned char)*s < ' ')
			return set_error(-EINVAL, r->err, r->errlen, "%s%s has a control character",
					 where, key);
	return 0;
}

static int get_text(const struct reader *r, const cJSON *object, const char *where, const char *key,
		    char *text, size_t size)
{
	const cJSON *item;

	if (get(r, object, where, key, &item) < 0)
		return -EINVAL;
	return copy_text(r, item, where, key, text, size);
}

static int get_object(const struct reader *r, const cJSON *object, const char *key,
		      const cJSON **ret)
{
	if (get(r, object, "", key, ret) < 0)
		return -EINVAL;
	if (!cJSON_IsObject(*ret))
		return set_error(-EINVAL, r->err, r->errlen, "%s is not an object", key);
	return 0;
}

static int get_array(const struct reader *r, const cJSON *object, const char *key, unsigned min,
		     unsigned max, const cJSON **ret)
{
	int n;

	if (get(r, object, "", key, ret) < 0)
		return -EINVAL;
	n = cJSON_IsArray(*ret) ? cJSON_GetArraySize(*ret) : -1;
	if (n < (int)min || n > (int)max)
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s is not an array of %u to %u entries", key, min, max);
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

static int read_chip(const struct reader *r, const cJSON *object, unsigned rank,
		     struct txda__case_chip *chip)
{
	const struct {
		const char *key;
		uint64_t min, max, *value;
	} number[] = {
		{"kcore_bytes", sizeof(struct txda_program), TXDA_PROGRAM_MAX_BYTES,
		 &chip->kcore_bytes},
		{"param_bytes", 1, 1ull << 40, &chip->param_bytes},
		{"scratch_bytes", 0, 1ull << 40, &chip->scratch_bytes},
		{"io_bytes", 0, 1ull << 40, &chip->io_bytes},
	};
	uint64_t crc;
	char where[24];

	snprintf(where, sizeof(where), "chips[%u].", rank);
	if (!cJSON_IsObject(object))
		return set_error(-EINVAL, r->err, r->errlen, "chips[%u] is not an object", rank);
	if (get_text(r, object, where, "kcore", chip->kcore, sizeof(chip->kcore)) < 0 ||
	    get_text(r, object, where, "param", chip->param, sizeof(chip->param)) < 0 ||
	    get_number(r, object, where, "param_crc32c", 0, UINT32_MAX, &crc) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < ARRAY_SIZE(number); i++)
		if (get_number(r, object, where, number[i].key, number[i].min, number[i].max,
			       number[i].value) < 0)
			return -EINVAL;
	if (!is_relative(chip->kcore) || !is_relative(chip->param))
		return set_error(-EINVAL, r->err, r->errlen,
				 "%s%s is \"%.60s\"; it must be a file below the case dir", where,
				 is_relative(chip->kcore) ? "param" : "kcore",
				 is_relative(chip->kcore) ? chip->param : chip->kcore);
	chip->param_crc32c = (uint32_t)crc;
	return 0;
}

static int read_chips(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	const cJSON *array, *item;
	unsigned rank = 0;

	if (get_unsigned(r, root, "", "tp", 1, TXDA_MAX_CHIPS_PER_GROUP, &c->tp) < 0 ||
	    get_array(r, root, "chips", 1, TXDA_MAX_CHIPS_PER_GROUP, &array) < 0)
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

static int read_tensors(const struct reader *r, const cJSON *root, const char *key,
			struct txda__case_tensor *tensor, unsigned *ret_count)
{
	const cJSON *array, *item, *shape, *dim;
	char dtype[16], where[40];
	unsigned n = 0;

	if (get_array(r, root, key, 1, TXDA__CASE_MAX_TENSORS, &array) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, array) {
		struct txda__case_tensor *t = &tensor[n];

		snprintf(where, sizeof(where), "%s[%u].", key, n);
		if (!cJSON_IsObject(item))
			return set_error(-EINVAL, r->err, r->errlen, "%s[%u] is not an object", key,
					 n);
		if (get_text(r, item, where, "name", t->name, sizeof(t->name)) < 0 ||
		    get_text(r, item, where, "dtype", dtype, sizeof(dtype)) < 0 ||
		    get(r, item, where, "shape", &shape) < 0)
			return -EINVAL;
		if (!parse_dtype(dtype, &t->dtype))
			return set_error(-EINVAL, r->err, r->errlen, "%sdtype \"%s\" is not known",
					 where, dtype);
		if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) < 1 ||
		    cJSON_GetArraySize(shape) > 4)
			return set_error(-EINVAL, r->err, r->errlen,
					 "%sshape is not an array of 1 to 4 entries", where);
		t->ndim = 0;
		cJSON_ArrayForEach(dim, shape)
			if (!parse_dim(dim, &t->dim[t->ndim++]))
				return set_error(-EINVAL, r->err, r->errlen,
						 "%sshape[%u] is neither a "
						 "number nor one of T, S, "
						 "R, B, N",
						 where, t->ndim - 1u);
		for (unsigned i = 0; i < n; i++)
			if (!strcmp(tensor[i].name, t->name))
				return set_error(-EINVAL, r->err, r->errlen,
						 "%sname \"%s\" occurs twice", where, t->name);
		n++;
	}
	*ret_count = n;
	return 0;
}

static int read_programs(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	const cJSON *array, *item;

	if (get_array(r, root, "programs", 1, TXDA__CASE_MAX_PROGRAMS, &array) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, array)
		if (copy_text(r, item, "", "programs[]", c->program[c->n_programs++],
			      sizeof(c->program[0])) < 0)
			return -EINVAL;
	return 0;
}

static int read_geometry(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	const cJSON *limits, *kv;

	if (get_object(r, root, "limits", &limits) < 0 || get_object(r, root, "kv", &kv) < 0 ||
	    get_unsigned(r, limits, "limits.", "tokens", 1, 1u << 20, &c->max_tokens) < 0 ||
	    get_unsigned(r, limits, "limits.", "seqs", 1, 1u << 20, &c->max_seqs) < 0 ||
	    get_unsigned(r, limits, "limits.", "rows", 1, 1u << 20, &c->max_rows) < 0 ||
	    get_unsigned(r, limits, "limits.", "blocks", 1, 1u << 24, &c->max_blocks) < 0 ||
	    get_unsigned(r, limits, "limits.", "context", 1, 1u << 30, &c->max_context) < 0 ||
	    get_unsigned(r, kv, "kv.", "block_size", 1, 1024, &c->block_size) < 0 ||
	    get_number(r, kv, "kv.", "block_bytes", 1, 1ull << 40, &c->kv_block_bytes) < 0 ||
	    get_unsigned(r, root, "", "vocab", 1, 1u << 24, &c->vocab) < 0 ||
	    get_unsigned(r, root, "", "layers", 1, 1u << 16, &c->layers) < 0 ||
	    get_unsigned(r, root, "", "topk", 1, TXDA_TOPK_MAX, &c->topk) < 0)
		return -EINVAL;
	return 0;
}

/* Fields that only embedding models have. */
static int read_pooling(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	const cJSON *normalize = cJSON_GetObjectItemCaseSensitive(root, "normalize");

	if (normalize && !cJSON_IsBool(normalize))
		return set_error(-EINVAL, r->err, r->errlen, "normalize is neither true nor false");
	c->normalize = cJSON_IsTrue(normalize);
	if (!cJSON_GetObjectItemCaseSensitive(root, "pooling"))
		return 0;
	if (get_text(r, root, "", "pooling", c->pooling, sizeof(c->pooling)) < 0)
		return -EINVAL;
	if (strcmp(c->pooling, "last") && strcmp(c->pooling, "mean") && strcmp(c->pooling, "cls"))
		return set_error(-EINVAL, r->err, r->errlen,
				 "pooling is \"%s\"; it must be last, mean or cls", c->pooling);
	return 0;
}

static int read_vision_chip(const struct reader *r, const cJSON *object, unsigned rank,
			    struct txda__case_vision *v)
{
	char where[32], *kcore = v->chip[rank].kcore;

	snprintf(where, sizeof(where), "vision.chips[%u].", rank);
	if (!cJSON_IsObject(object))
		return set_error(-EINVAL, r->err, r->errlen, "vision.chips[%u] is not an object",
				 rank);
	if (get_text(r, object, where, "kcore", kcore, sizeof(v->chip[rank].kcore)) < 0 ||
	    get_number(r, object, where, "kcore_bytes", sizeof(struct txda_program),
		       TXDA_PROGRAM_MAX_BYTES, &v->chip[rank].kcore_bytes) < 0 ||
	    get_number(r, object, where, "scratch_bytes", 0, 1ull << 40,
		       &v->chip[rank].scratch_bytes) < 0 ||
	    get_number(r, object, where, "io_bytes", 0, 1ull << 40, &v->chip[rank].io_bytes) < 0)
		return -EINVAL;
	if (!is_relative(kcore))
		return set_error(-EINVAL, r->err, r->errlen,
				 "%skcore is \"%.60s\"; it must be a file below the case dir",
				 where, kcore);
	return 0;
}

/* Fields that only vision models have. */
static int read_vision(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	struct txda__case_vision *v = &c->vision;
	const cJSON *object, *limits, *chips, *item;
	unsigned rank = 0;

	if (!cJSON_GetObjectItemCaseSensitive(root, "vision"))
		return 0;
	if (get_object(r, root, "vision", &object) < 0 ||
	    get_object(r, object, "limits", &limits) < 0 ||
	    get_unsigned(r, limits, "vision.limits.", "tokens", 1, 1u << 20, &v->max_tokens) < 0 ||
	    get_unsigned(r, limits, "vision.limits.", "seqs", 1, 1u << 20, &v->max_seqs) < 0 ||
	    get_unsigned(r, limits, "vision.limits.", "rows", 1, 1u << 24, &v->max_rows) < 0 ||
	    get_unsigned(r, limits, "vision.limits.", "blocks", 1, 1u << 24, &v->max_blocks) < 0 ||
	    get_array(r, object, "chips", c->tp, c->tp, &chips) < 0 ||
	    read_tensors(r, object, "inputs", v->input, &v->n_inputs) < 0 ||
	    read_tensors(r, object, "outputs", v->output, &v->n_outputs) < 0)
		return -EINVAL;
	cJSON_ArrayForEach(item, chips) {
		if (read_vision_chip(r, item, rank++, v) < 0)
			return -EINVAL;
	}
	v->present = true;
	return 0;
}

void txda__case_to_vision(struct txda__case *c)
{
	const struct txda__case_vision *v = &c->vision;

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

static int read_root(const struct reader *r, const cJSON *root, struct txda__case *c)
{
	unsigned format;

	if (!cJSON_IsObject(root))
		return set_error(-EINVAL, r->err, r->errlen, "the document is not an object");
	if (get_unsigned(r, root, "", "format", 0, UINT32_MAX, &format) < 0)
		return -EINVAL;
	if (format != FORMAT)
		return set_error(-EINVAL, r->err, r->errlen, "format is %u; this library reads %d",
				 format, FORMAT);
	if (get_text(r, root, "", "name", c->name, sizeof(c->name)) < 0 ||
	    get_text(r, root, "", "family", c->family, sizeof(c->family)) < 0 ||
	    get_text(r, root, "", "weights", c->weights, sizeof(c->weights)) < 0 ||
	    read_geometry(r, root, c) < 0 || read_pooling(r, root, c) < 0 ||
	    read_chips(r, root, c) < 0 || read_programs(r, root, c) < 0 ||
	    read_tensors(r, root, "inputs", c->input, &c->n_inputs) < 0 ||
	    read_tensors(r, root, "outputs", c->output, &c->n_outputs) < 0 ||
	    read_vision(r, root, c) < 0)
		return -EINVAL;
	return 0;
}

int txda__case_parse(const char *text, size_t bytes, struct txda__case *ret_case, char *err,
		     size_t errlen)
{
	const struct reader reader = {err, errlen};
	const char *end = NULL;
	struct txda__case *c;
	cJSON *root;
	int r;

	if (bytes > TXDA__CASE_MAX_BYTES)
		return set_error(-EFBIG, err, errlen,
				 "model_info.json has %zu bytes; the limit is %u", bytes,
				 TXDA__CASE_MAX_BYTES);
	root = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
	if (!root)
		return set_error(-EINVAL, err, errlen,
				 "model_info.json is not JSON: error near byte %zu",
				 end ? (size_t)(end - text) : 0);
	for (; end < text + bytes && *end; end++)
		if (!strchr(" \t\r\n", *end)) {
			cJSON_Delete(root);
			return set_error(-EINVAL, err, errlen,
					 "model_info.json has data after its end, at byte %zu",
					 (size_t)(end - text));
		}
	c = calloc(1, sizeof(*c));
	r = c ? read_root(&reader, root, c) : set_error(-ENOMEM, err, errlen, "out of memory");
	if (r >= 0)
		*ret_case = *c;
	free(c);
	cJSON_Delete(root);
	return r;
}
