// SPDX-License-Identifier: MIT
/* Parses the variants of quantization_config. */
#include "quant_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_keys.h"
#include "json.h"

static const char *text_of(const cJSON *json, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));

	return text ? text : "";
}

static bool has(const cJSON *json, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

	return item && !cJSON_IsNull(item);
}

/* -1 and 0 mean one group for all columns. */
static int parse_group(const cJSON *json, const char *key, struct quant_config *q,
		       struct tool_error *error)
{
	const double all = -1;
	double d;
	int r = config_double(json, key, -1, 1u << 20, &all, &d, error);

	if (!r && d != floor(d))
		r = tool_fail(error, -EINVAL, "%s: %g is not a whole number", key, d);
	if (!r)
		q->group = d < 1 ? 0 : (uint32_t)d;
	return r;
}

/* @key: true if codes are symmetric, as they usually are. */
static int parse_symmetry(const cJSON *json, const char *key, struct quant_config *q,
			  struct tool_error *error)
{
	bool symmetric;
	int r = config_bool(json, key, true, &symmetric, error);

	q->zeros = !r && !symmetric;
	return r;
}

static int check_bits(uint32_t bits, bool eight, struct tool_error *error)
{
	if (bits == 4 || (eight && bits == 8))
		return 0;
	return tool_fail(error, -ENOTSUP, "bits: %u is not supported, only %s", bits,
			 eight ? "4 and 8 are" : "4 is");
}

static int parse_gptq(const cJSON *json, struct quant_config *q, struct tool_error *error)
{
	const char *format =
		text_of(json, has(json, "checkpoint_format") ? "checkpoint_format" : "format");
	int r = config_u32(json, "bits", 1, 32, CONFIG_REQUIRED, &q->bits, error);

	if (!r)
		r = check_bits(q->bits, true, error);
	if (!r)
		r = parse_group(json, "group_size", q, error);
	if (!r)
		r = parse_symmetry(json, "sym", q, error);
	if (!r && *format && strcmp(format, "gptq") && strcmp(format, "gptq_v2"))
		r = tool_fail(
			error, -ENOTSUP,
			"checkpoint_format: \"%.64s\" is not supported (gptq and gptq_v2 are)",
			format);
	q->zero_plus_one = strcmp(format, "gptq_v2") != 0;
	/* Expressions for names, whose matrices tell by their shapes. */
	q->mixed = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "dynamic")) > 0;
	return r;
}

static int parse_awq(const cJSON *json, struct quant_config *q, struct tool_error *error)
{
	const char *version = text_of(json, "version");
	int r = config_u32(json, has(json, "w_bit") ? "w_bit" : "bits", 1, 32, 4, &q->bits, error);

	if (!r)
		r = check_bits(q->bits, false, error);
	if (!r)
		r = parse_group(json, has(json, "q_group_size") ? "q_group_size" : "group_size", q,
				error);
	if (!r)
		r = config_bool(json, "zero_point", true, &q->zeros, error);
	if (!r && *version && strcmp(version, "gemm") && strcmp(version, "GEMM"))
		r = tool_fail(error, -ENOTSUP, "version: \"%.64s\" is not supported, only gemm is",
			      version);
	return r;
}

static int parse_fp8(const cJSON *json, struct quant_config *q, struct tool_error *error)
{
	const cJSON *block = cJSON_GetObjectItemCaseSensitive(json, "weight_block_size"),
		    *n = cJSON_GetArrayItem(block, 0), *k = cJSON_GetArrayItem(block, 1);
	const char *format = text_of(json, "fmt");

	q->bits = 8;
	if (*format && strcmp(format, "e4m3") && strcmp(format, "float8_e4m3fn"))
		return tool_fail(error, -ENOTSUP, "fmt: \"%.64s\" is not supported, only e4m3 is",
				 format);
	if (!block || cJSON_IsNull(block))
		return 0;
	if (cJSON_GetArraySize(block) != 2 || !cJSON_IsNumber(n) || !cJSON_IsNumber(k) ||
	    !(n->valuedouble >= 1 && n->valuedouble <= 1 << 20) ||
	    !(k->valuedouble >= 1 && k->valuedouble <= 1 << 20))
		return tool_fail(error, -EINVAL,
				 "weight_block_size: not two numbers in [1, 1048576]");
	q->block_rows = (uint32_t)n->valuedouble;
	q->block_cols = (uint32_t)k->valuedouble;
	return 0;
}

/* NVIDIA's ModelOpt. Its FP8 has a scale for each tensor. */
static int parse_modelopt(const cJSON *json, struct quant_config *q, struct tool_error *error)
{
	const char *algorithm = text_of(json, "quant_algo");

	/* Perhaps only the cache is to be. */
	if (!has(json, "quant_algo")) {
		q->method = QUANT_NONE;
		return 0;
	}
	q->bits = 8;
	return !strcmp(algorithm, "FP8")
		       ? 0
		       : tool_fail(error, -ENOTSUP,
				   "quant_algo: \"%.64s\" is not supported, only FP8 is",
				   algorithm);
}

/*
 * Rotations of weights are part of the stored ones; those of activations are computed at run time.
 */
static int check_transforms(const cJSON *json, struct tool_error *error)
{
	const cJSON *groups = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(json, "transform_config"), "config_groups");
	const cJSON *group, *apply;

	cJSON_ArrayForEach(group, groups) {
		cJSON_ArrayForEach(apply, cJSON_GetObjectItemCaseSensitive(group, "apply")) {
			const char *location = text_of(apply, "location");

			if (strcmp(location, "weight_input") && strcmp(location, "weight_output"))
				return tool_fail(error, -ENOTSUP,
						 "transform_config: %.64s: location: \"%.64s\" is "
						 "not supported (weight_input and weight_output "
						 "are)",
						 group->string ? group->string : "", location);
		}
	}
	return 0;
}

static int parse_block(const cJSON *weights, struct quant_config *q, struct tool_error *error)
{
	const cJSON *block = cJSON_GetObjectItemCaseSensitive(weights, "block_structure");
	const cJSON *n = cJSON_GetArrayItem(block, 0), *k = cJSON_GetArrayItem(block, 1);

	if (!cJSON_IsNumber(n) || !cJSON_IsNumber(k) ||
	    !(n->valuedouble >= 1 && n->valuedouble <= 1 << 20) ||
	    !(k->valuedouble >= 1 && k->valuedouble <= 1 << 20))
		return tool_fail(error, -EINVAL,
				 "block_structure: not two numbers in [1, 1048576]");
	q->block_rows = (uint32_t)n->valuedouble;
	q->block_cols = (uint32_t)k->valuedouble;
	return 0;
}

/* One of config_groups; @format: of all groups, unless it has its own. */
static int parse_scheme(const cJSON *group, const char *format, struct quant_config *q,
			struct tool_error *error)
{
	static const char *const formats[] = {"pack-quantized", "int-quantized", "naive-quantized",
					      "float-quantized"};
	const cJSON *weights = cJSON_GetObjectItemCaseSensitive(group, "weights");
	const char *strategy = text_of(weights, "strategy");
	bool known;
	int r;

	if (*text_of(group, "format"))
		format = text_of(group, "format");
	known = !*format;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]) && !known; i++)
		known = !strcmp(format, formats[i]);
	if (!known)
		return tool_fail(error, -ENOTSUP,
				 "format: \"%.64s\" is not supported (pack-quantized, "
				 "int-quantized and float-quantized are)",
				 format);
	if (*strategy && strcmp(strategy, "group") && strcmp(strategy, "channel") &&
	    strcmp(strategy, "tensor") && strcmp(strategy, "block"))
		return tool_fail(error, -ENOTSUP, "strategy: \"%.64s\" is not supported", strategy);
	r = config_u32(weights, "num_bits", 1, 32, 8, &q->bits, error);
	if (!r)
		r = check_bits(q->bits, true, error);
	if (!r)
		r = parse_symmetry(weights, "symmetric", q, error);
	if (!r && !strcmp(strategy, "block"))
		r = parse_block(weights, q, error);
	else if (!r && !strcmp(strategy, "group"))
		r = parse_group(weights, "group_size", q, error);
	return r;
}

/*
 * config_groups: most checkpoints have one for all linear layers. Of several the first one is the
 * rule; matrices of the others tell by their shapes.
 */
static int parse_compressed(const cJSON *json, struct quant_config *q, struct tool_error *error)
{
	const cJSON *groups = cJSON_GetObjectItemCaseSensitive(json, "config_groups"), *group;
	const char *format = text_of(json, "format");
	unsigned n = 0;
	int r = check_transforms(json, error);

	/* Then each group has its own. */
	if (!strcmp(format, "mixed-precision"))
		format = "";
	cJSON_ArrayForEach(group, groups) {
		struct quant_config one = *q;

		if (r || !cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(group, "weights")))
			continue;
		r = parse_scheme(group, format, &one, error);
		if (r)
			r = tool_fail_within(error, r, "%.64s", group->string ? group->string : "");
		else if (!n++)
			*q = one;
	}
	if (!r && !n)
		r = tool_fail(error, -EINVAL, "config_groups: no group with weights");
	q->mixed = n > 1;
	q->zeros &= !q->mixed;
	return r;
}

/* @method: used if the config does not name one. */
static int parse_method(const cJSON *json, const char *method, struct quant_config *ret,
			struct tool_error *error)
{
	struct quant_config q = {0};
	int r;

	if (*text_of(json, "quant_method"))
		method = text_of(json, "quant_method");
	if (!strcmp(method, "gptq")) {
		q.method = QUANT_GPTQ;
		r = parse_gptq(json, &q, error);
	} else if (!strcmp(method, "awq")) {
		q.method = QUANT_AWQ;
		r = parse_awq(json, &q, error);
	} else if (!strcmp(method, "fp8")) {
		q.method = QUANT_FP8;
		r = parse_fp8(json, &q, error);
	} else if (!strcmp(method, "compressed-tensors")) {
		q.method = QUANT_COMPRESSED;
		r = parse_compressed(json, &q, error);
	} else if (!strcmp(method, "modelopt")) {
		q.method = QUANT_FP8;
		r = parse_modelopt(json, &q, error);
	} else if (!strcmp(method, "mxfp4")) {
		q.method = QUANT_MXFP4;
		r = 0;
	} else {
		r = tool_fail(error, -ENOTSUP,
			      "quant_method \"%.64s\" is not supported (gptq, awq, fp8, mxfp4, "
			      "compressed-tensors and modelopt are)",
			      method);
	}
	if (!r)
		*ret = q;
	return r;
}

int quant_parse(const cJSON *config, struct quant_config *ret, struct tool_error *error)
{
	const char *key =
		has(config, "quantization_config") ? "quantization_config" : "compression_config";
	const cJSON *json = cJSON_GetObjectItemCaseSensitive(config, key);
	int r;

	if (!json || cJSON_IsNull(json)) {
		*ret = (struct quant_config){0};
		return 0;
	}
	r = parse_method(json, "", ret, error);
	return r ? tool_fail_within(error, r, "%s", key) : 0;
}

int quant_parse_file(const char *text, size_t bytes, const char *method, struct quant_config *ret,
		     struct tool_error *error)
{
	const cJSON *within;
	cJSON *json;
	int r = tool_json_parse(text, bytes, &json, error);

	if (r)
		return r;
	within = cJSON_GetObjectItemCaseSensitive(json, "quantization");
	if (!cJSON_IsObject(json))
		r = tool_fail(error, -EINVAL, "not a JSON object");
	else
		r = parse_method(within ? within : json, method, ret, error);
	cJSON_Delete(json);
	return r;
}
