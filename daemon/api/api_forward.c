// SPDX-License-Identifier: MIT
/* Parses the body of a forward call: which tensors are where. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "api_params.h"
#include "api_value.h"

#define MAX_FDS	   16
#define MAX_OFFSET (INT64_MAX / 2)
#define MAX_DIM	   ((int64_t)1 << 31)

static const struct {
	const char *name;
	unsigned bytes;
} dtypes[] = {
	[API_INT32] = {"int32", 4},
	[API_INT64] = {"int64", 8},
	[API_FLOAT32] = {"float32", 4},
};

const char *api_dtype_name(enum api_dtype dtype)
{
	return dtypes[dtype].name;
}

unsigned api_dtype_bytes(enum api_dtype dtype)
{
	return dtypes[dtype].bytes;
}

/* Reports an error about a tensor's member. */
static bool wrong(const char *tensor, const char *member, const char *wanted, const cJSON *value,
		  struct api_error *e)
{
	char param[96], shown[96] = "";

	snprintf(param, sizeof(param), "%s.%s", tensor, member);
	if (!value)
		return api_error_set(e, 400, NULL, param, "%s is missing; it must be %s", param,
				     wanted);
	return api_error_set(e, 400, NULL, param, "%s must be %s, not %s", param, wanted,
			     api_describe(value, shown, sizeof(shown)));
}

static bool parse_integer(const cJSON *object, const char *tensor, const char *member, int64_t max,
			  int64_t *ret, struct api_error *e)
{
	const cJSON *value = api_member(object, member);
	char wanted[80];
	int64_t n;

	if (value && api_value_int(value, &n) && n >= 0 && n <= max) {
		*ret = n;
		return true;
	}
	snprintf(wanted, sizeof(wanted), "an integer between 0 and %lld", (long long)max);
	return wrong(tensor, member, wanted, value, e);
}

static bool parse_shape(const cJSON *object, const char *name, unsigned n_dims,
			struct api_tensor *t, struct api_error *e)
{
	const cJSON *shape = api_member(object, "shape"), *item;
	char wanted[96];

	snprintf(wanted, sizeof(wanted), "an array of %u integer%s between 1 and %lld", n_dims,
		 n_dims > 1 ? "s" : "", (long long)MAX_DIM);
	if (cJSON_IsArray(shape) && cJSON_GetArraySize(shape) != (int)n_dims)
		return api_error_set(e, 400, NULL, name, "%s.shape must be %s, not of %d", name,
				     wanted, cJSON_GetArraySize(shape));
	if (!cJSON_IsArray(shape))
		return wrong(name, "shape", wanted, shape, e);
	cJSON_ArrayForEach(item, shape) {
		int64_t n;

		if (!api_value_int(item, &n) || n < 1 || n > MAX_DIM)
			return wrong(name, "shape", wanted, item, e);
		t->shape[t->n_dims++] = (uint64_t)n;
	}
	return true;
}

static bool parse_dtype(const cJSON *object, const char *name, bool ids, struct api_tensor *t,
			struct api_error *e)
{
	const cJSON *dtype = api_member(object, "dtype");

	t->dtype = ids ? API_INT32 : API_FLOAT32;
	if (!dtype)
		return true;
	for (unsigned i = ids ? API_INT32 : API_FLOAT32; i <= (ids ? API_INT64 : API_FLOAT32);
	     i++) {
		if (cJSON_IsString(dtype) && !strcmp(dtype->valuestring, dtypes[i].name)) {
			t->dtype = (enum api_dtype)i;
			return true;
		}
	}
	return wrong(name, "dtype", ids ? "\"int32\" or \"int64\"" : "\"float32\"", dtype, e);
}

static bool parse_tensor(const cJSON *root, const char *name, bool ids, struct api_tensor *t,
			 struct api_error *e)
{
	const cJSON *object = api_member(root, name);
	int64_t fd = 0, offset = 0;
	char shown[96];
	unsigned bytes;

	if (!object)
		return true;
	if (!cJSON_IsObject(object))
		return api_error_set(e, 400, NULL, name, "%s must be an object, not %s", name,
				     api_describe(object, shown, sizeof(shown)));
	if (!parse_integer(object, name, "fd", MAX_FDS - 1, &fd, e) ||
	    (api_member(object, "offset") &&
	     !parse_integer(object, name, "offset", MAX_OFFSET, &offset, e)) ||
	    !parse_dtype(object, name, ids, t, e) || !parse_shape(object, name, ids ? 1 : 2, t, e))
		return false;
	bytes = dtypes[t->dtype].bytes;
	if (offset % bytes)
		return api_error_set(e, 400, NULL, name,
				     "%s.offset is %lld; it must be a multiple of %u, the size of "
				     "%s",
				     name, (long long)offset, bytes, dtypes[t->dtype].name);
	t->given = true;
	t->fd = (unsigned)fd;
	t->offset = (uint64_t)offset;
	return true;
}

static bool parse_rows(struct api_params *p, struct api_error *e)
{
	const cJSON *rows = api_member(p->root, "rows"), *item;
	char shown[96];
	int64_t n, last = -1;

	if (!rows || (cJSON_IsString(rows) && !strcmp(rows->valuestring, "last")))
		return true;
	if (cJSON_IsString(rows) && !strcmp(rows->valuestring, "all")) {
		p->rows = API_ROWS_ALL;
		return true;
	}
	if (!cJSON_IsArray(rows) || !rows->child)
		return api_error_set(
			e, 400, NULL, "rows",
			"rows must be \"last\", \"all\" or an array of one position or more, "
			"not %s",
			api_describe(rows, shown, sizeof(shown)));
	p->rows = API_ROWS_LIST;
	p->row_list = calloc((size_t)cJSON_GetArraySize(rows), sizeof(*p->row_list));
	if (!p->row_list)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	cJSON_ArrayForEach(item, rows) {
		if (!api_value_int(item, &n) || n <= last || (uint64_t)n >= p->input_ids.shape[0])
			return api_error_set(
				e, 400, NULL, "rows",
				"rows must hold rising positions below %llu, the length of "
				"input_ids, not %s",
				(unsigned long long)p->input_ids.shape[0],
				api_describe(item, shown, sizeof(shown)));
		p->row_list[p->n_row_list++] = (unsigned)n;
		last = n;
	}
	return true;
}

bool api_parse_forward(struct api_params *p, struct api_error *e)
{
	p->n = p->best_of = 1;
	if (!parse_tensor(p->root, "input_ids", true, &p->input_ids, e) ||
	    !parse_tensor(p->root, "logits", false, &p->logits, e) ||
	    !parse_tensor(p->root, "hidden_states", false, &p->hidden_states, e))
		return false;
	if (!p->input_ids.given)
		return api_error_set(e, 400, NULL, "input_ids",
				     "input_ids is missing: an object with fd and shape");
	if (!p->logits.given && !p->hidden_states.given)
		return api_error_set(e, 400, NULL, "logits",
				     "logits or hidden_states is required as an output");
	return parse_rows(p, e);
}
