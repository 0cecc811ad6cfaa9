// SPDX-License-Identifier: MIT
#include "rope.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "config_keys.h"

static const char *const type_names[] = {
	[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear",	[ROPE_LLAMA3] = "llama3",
	[ROPE_YARN] = "yarn",	    [ROPE_DYNAMIC] = "dynamic",
};

static int parse_type(const cJSON *scaling, struct rope_config *rope, struct tool_error *error)
{
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(scaling, "rope_type");
	unsigned i;

	if (!type || cJSON_IsNull(type))
		type = cJSON_GetObjectItemCaseSensitive(scaling, "type");
	rope->type = ROPE_DEFAULT;
	if (!type || cJSON_IsNull(type))
		return 0;
	if (!cJSON_IsString(type))
		return tool_fail(error, -EINVAL, "rope_type: not a string");
	/* Several coordinates (vision.h) with the usual frequencies. */
	if (!strcmp(type->valuestring, "mrope"))
		return 0;
	for (i = 0; i < sizeof(type_names) / sizeof(type_names[0]); i++) {
		if (!strcmp(type_names[i], type->valuestring)) {
			rope->type = i;
			return 0;
		}
	}
	return tool_fail(error, -ENOTSUP,
			 "rope_type: \"%.64s\" is not supported (default, linear, llama3, yarn, "
			 "dynamic are)",
			 type->valuestring);
}

static int parse_yarn(const cJSON *scaling, uint32_t max_position, struct rope_config *rope,
		      struct tool_error *error)
{
	const double zero = 0, fast = 32, slow = 1;
	double ratio;
	int r;

	if (!rope->original_max_position)
		rope->original_max_position = max_position;
	/* Without a factor it is the ratio of the two lengths. */
	ratio = fmax(1, (double)max_position / rope->original_max_position);
	r = config_double(scaling, "factor", 1, 1e6, &ratio, &rope->factor, error);
	if (!r)
		r = config_double(scaling, "beta_fast", 1e-3, 1e6, &fast, &rope->beta_fast, error);
	if (!r)
		r = config_double(scaling, "beta_slow", 1e-3, 1e6, &slow, &rope->beta_slow, error);
	if (!r)
		r = config_double(scaling, "attention_factor", 0, 1e3, &zero,
				  &rope->attention_factor, error);
	if (!r)
		r = config_double(scaling, "mscale", 0, 1e3, &zero, &rope->mscale, error);
	if (!r)
		r = config_double(scaling, "mscale_all_dim", 0, 1e3, &zero, &rope->mscale_all_dim,
				  error);
	if (!r)
		r = config_bool(scaling, "truncate", true, &rope->truncate, error);
	return r;
}

static int parse_llama3(const cJSON *scaling, struct rope_config *rope, struct tool_error *error)
{
	int r;

	if (!rope->original_max_position)
		return tool_fail(
			error, -EINVAL,
			"original_max_position_embeddings: missing, rope_type llama3 needs it");
	r = config_double(scaling, "low_freq_factor", 1e-6, 1e6, NULL, &rope->low_freq_factor,
			  error);
	if (!r)
		r = config_double(scaling, "high_freq_factor", 1e-6, 1e6, NULL,
				  &rope->high_freq_factor, error);
	if (!r && !(rope->high_freq_factor > rope->low_freq_factor))
		r = tool_fail(error, -EINVAL,
			      "high_freq_factor: %g is not above low_freq_factor %g",
			      rope->high_freq_factor, rope->low_freq_factor);
	return r;
}

/* The object with the scaling of one kind of layer, or NULL; *key: its name. */
static const cJSON *find_scaling(const cJSON *config, const struct rope_keys *keys,
				 const char **key)
{
	const cJSON *all, *own;

	*key = "rope_parameters";
	all = cJSON_GetObjectItemCaseSensitive(config, *key);
	own = keys->kind ? cJSON_GetObjectItemCaseSensitive(all, keys->kind) : NULL;
	if (own)
		return cJSON_IsNull(own) ? NULL : own;
	if (all && !cJSON_IsNull(all) && !keys->without_scaling)
		return all;
	*key = "rope_scaling";
	own = cJSON_GetObjectItemCaseSensitive(config, *key);
	return !own || cJSON_IsNull(own) || keys->without_scaling ? NULL : own;
}

/* A configuration may have both spellings if they say the same. */
static int check_both(const cJSON *scaling, const cJSON *parameters, struct tool_error *error)
{
	struct rope_config a = {0}, b = {0};
	const cJSON *item;
	int r = parse_type(scaling, &a, error);

	if (!r)
		r = parse_type(parameters, &b, error);
	if (!r && a.type != b.type)
		r = tool_fail(error, -EINVAL, "rope_type: %s, but rope_parameters say %s",
			      type_names[a.type], type_names[b.type]);
	cJSON_ArrayForEach(item, scaling) {
		if (r || !strcmp(item->string, "type") || !strcmp(item->string, "rope_type"))
			continue;
		if (!cJSON_Compare(item, cJSON_GetObjectItemCaseSensitive(parameters, item->string),
				   true))
			r = tool_fail(error, -EINVAL, "%.64s: differs from rope_parameters",
				      item->string);
	}
	return r ? tool_fail_within(error, r, "rope_scaling") : 0;
}

/*
 * Rotations by kind of layer are only read where keys->kind is one of them; other objects within
 * would be ignored.
 */
static int check_kinds(const cJSON *scaling, const char *key, bool kinds, const char *model_type,
		       struct tool_error *error)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, scaling) {
		if (cJSON_IsObject(item) &&
		    !(kinds && (!strcmp(item->string, "full_attention") ||
				!strcmp(item->string, "sliding_attention"))))
			return tool_fail(error, -ENOTSUP,
					 "%s: %.64s: not supported for the model_type %s", key,
					 item->string, model_type);
	}
	return 0;
}

int rope_check(const cJSON *config, bool kinds, const char *model_type, struct tool_error *error)
{
	const cJSON *parameters = config_find(config, "rope_parameters");
	const cJSON *scaling = config_find(config, "rope_scaling"), *own;
	int r = check_kinds(parameters, "rope_parameters", kinds, model_type, error);

	if (!r)
		r = check_kinds(scaling, "rope_scaling", false, model_type, error);
	if (r || !cJSON_IsObject(parameters) || !cJSON_IsObject(scaling))
		return r;
	own = config_find(parameters, "full_attention");
	return check_both(scaling, own ? own : parameters, error);
}

int rope_parse(const cJSON *config, const struct rope_keys *keys, uint32_t max_position,
	       struct rope_config *ret, struct tool_error *error)
{
	const char *key;
	const cJSON *scaling = find_scaling(config, keys, &key);
	struct rope_config rope = {.factor = 1};
	uint32_t original = 0;
	const double default_theta = keys->base > 0 ? keys->base : 10000, none = 0;
	double theta;
	int r;

	if (scaling && !cJSON_IsObject(scaling))
		return tool_fail(error, -EINVAL, "%s: not an object", key);
	/* rope_theta is beside rope_scaling, or in rope_parameters. */
	r = config_double(config, keys->theta, 1e-3, 1e12, &default_theta, &theta, error);
	if (!r)
		r = config_double(scaling, "rope_theta", 1e-3, 1e12, &theta, &rope.theta, error);
	if (!r)
		r = config_double(config, "partial_rotary_factor", 0, 1, &none, &rope.partial,
				  error);
	if (!r)
		r = config_double(scaling, "partial_rotary_factor", 0, 1, &rope.partial,
				  &rope.partial, error);
	if (!r)
		r = parse_type(scaling, &rope, error);
	/* Some have it beside rope_scaling. */
	if (!r && (rope.type == ROPE_YARN || rope.type == ROPE_LLAMA3))
		r = config_u32(config, "original_max_position_embeddings", 1, 1u << 28, 0,
			       &original, error);
	if (!r)
		r = config_u32(scaling, "original_max_position_embeddings", 1, 1u << 28, original,
			       &rope.original_max_position, error);
	if (!r && rope.type == ROPE_YARN)
		r = parse_yarn(scaling, max_position, &rope, error);
	else if (!r && rope.type != ROPE_DEFAULT)
		r = config_double(scaling, "factor", 1, 1e6, NULL, &rope.factor, error);
	if (!r && rope.type == ROPE_LLAMA3)
		r = parse_llama3(scaling, &rope, error);
	if (r)
		return tool_fail_within(error, r, "%s", key);
	*ret = rope;
	return 0;
}

/* Interpolates between wavelengths that are kept and those that are stretched by the factor. */
static float llama3_frequency(const struct rope_config *rope, float f)
{
	float original = (float)rope->original_max_position, factor = (float)rope->factor;
	float low = (float)rope->low_freq_factor, high = (float)rope->high_freq_factor;
	float wavelength = (float)(2 * M_PI) / f, smooth;

	if (wavelength > original / low)
		return f / factor;
	if (wavelength < original / high)
		return f;
	smooth = (original / wavelength - low) / (high - low);
	return (1 - smooth) * (f / factor) + smooth * f;
}

/* The dimension at which a rotation turns @rotations times within the original context. */
static double yarn_dimension(const struct rope_config *rope, double rotations, double dim)
{
	return dim * log(rope->original_max_position / (rotations * 2 * M_PI)) /
	       (2 * log(rope->theta));
}

static double yarn_mscale(double scale, double mscale)
{
	return scale <= 1 ? 1 : 0.1 * mscale * log(scale) + 1;
}

static double yarn_attention_factor(const struct rope_config *rope)
{
	if (rope->attention_factor > 0)
		return rope->attention_factor;
	if (rope->mscale > 0 && rope->mscale_all_dim > 0)
		return yarn_mscale(rope->factor, rope->mscale) /
		       yarn_mscale(rope->factor, rope->mscale_all_dim);
	return yarn_mscale(rope->factor, 1);
}

static void yarn_frequencies(const struct rope_config *rope, uint32_t pairs, float *inv_freq)
{
	double dim = 2.0 * pairs, low = yarn_dimension(rope, rope->beta_fast, dim);
	double high = yarn_dimension(rope, rope->beta_slow, dim);
	uint32_t i;

	if (rope->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, dim - 1);
	if (low == high)
		high += 0.001;
	for (i = 0; i < pairs; i++) {
		float power = powf((float)rope->theta, (float)(2 * i) / (float)dim);
		float ramp = ((float)i - (float)low) / (float)(high - low);
		float keep;

		ramp = fminf(fmaxf(ramp, 0), 1);
		keep = 1 - ramp;
		inv_freq[i] =
			1.0f / ((float)rope->factor * power) * (1 - keep) + 1.0f / power * keep;
	}
}

void rope_compute(const struct rope_config *rope, uint32_t pairs, uint32_t max_position,
		  float *inv_freq, struct txda_op_rope_table *ret)
{
	struct txda_op_rope_table table = {.scale = 1};
	uint32_t i;

	for (i = 0; i < pairs; i++)
		inv_freq[i] = 1.0f / powf((float)rope->theta, (float)(2 * i) / (float)(2 * pairs));
	switch (rope->type) {
	case ROPE_DEFAULT: break;
	case ROPE_LINEAR:
		for (i = 0; i < pairs; i++)
			inv_freq[i] /= (float)rope->factor;
		break;
	case ROPE_LLAMA3:
		for (i = 0; i < pairs; i++)
			inv_freq[i] = llama3_frequency(rope, inv_freq[i]);
		break;
	case ROPE_YARN:
		yarn_frequencies(rope, pairs, inv_freq);
		table.scale = (float)yarn_attention_factor(rope);
		break;
	case ROPE_DYNAMIC:
		/* A function of the position: the chip computes it beyond the trained length. */
		table.base = (float)rope->theta;
		table.factor = (float)rope->factor;
		table.dynamic_from = max_position;
		break;
	}
	*ret = table;
}
