/* SPDX-License-Identifier: MIT */
/* Members of struct model_config by their names, for tables of cases (case_file.h). */
#ifndef TXDA_TESTS_CONFIG_MEMBERS_H
#define TXDA_TESTS_CONFIG_MEMBERS_H

#include <math.h>

#include "unit.h"
#include "config.h"
#include "family.h"

/* A member by its name, or the first one of an array. */
#define MEMBER_OF(name, m)                                                                         \
	{                                                                                          \
		name, offsetof(struct model_config, m), sizeof(((struct model_config *)0)->m),     \
			_Generic(((struct model_config *)0)->m, float                              \
				 : true, double                                                    \
				 : true, default                                                   \
				 : false)                                                          \
	}
#define MEMBER(m)  MEMBER_OF(#m, m)
#define MEMBERS(m) MEMBER_OF(#m, m[0])

static const struct member {
	const char *name;
	size_t at, bytes;
	bool is_float;
} members[] = {
	MEMBER(attention_cap),
	MEMBER(attention_gate),
	MEMBERS(delta.layer),
	MEMBER(embed_by_root),
	MEMBER(gelu),
	MEMBER(head_dim),
	MEMBER(hidden_size),
	MEMBER(intermediate_size),
	MEMBERS(layer_window),
	MEMBER(logit_cap),
	MEMBER(max_position),
	MEMBER(mlp_bias),
	MEMBER(moe.bias),
	MEMBER(moe.correction_bias),
	MEMBER(moe.inner),
	MEMBERS(moe.layer),
	MEMBER(moe.n_experts),
	MEMBER(moe.n_groups),
	MEMBER(moe.normalise),
	MEMBER(moe.scale),
	MEMBER(moe.shared_gate),
	MEMBER(moe.shared_inner),
	MEMBER(moe.sigmoid),
	MEMBER(moe.top_groups),
	MEMBER(moe.top_k),
	MEMBER(mrope.interleaved),
	MEMBERS(mrope.section),
	MEMBER(n_heads),
	MEMBER(n_kv_heads),
	MEMBER(mla.latent),
	MEMBER(mla.mscale),
	MEMBER(mla.nope),
	MEMBER(mla.q_lora),
	MEMBER(mla.rope),
	MEMBER(mla.v),
	MEMBER(n_layers),
	MEMBER(norm_plus_one),
	MEMBER(o_bias),
	MEMBER(parallel_size),
	MEMBER(qk_norm),
	MEMBER(qkv_bias),
	MEMBER(quant.bits),
	MEMBER(quant.method),
	MEMBER(quant.mixed),
	MEMBER(quant.zeros),
	MEMBER(query_scalar),
	MEMBER(rms_norm_eps),
	MEMBER(rope.factor),
	MEMBER(rope.original_max_position),
	MEMBER(rope.theta),
	MEMBER(rope.truncate),
	MEMBER(rope.type),
	MEMBER(rope_dim),
	MEMBER(rope_interleaved),
	MEMBER(rope_window.factor),
	MEMBER(rope_window.theta),
	MEMBER(rope_window.type),
	MEMBER(sliding_window),
	MEMBER(swiglu_limit),
	MEMBER(tie_word_embeddings),
	MEMBER(two_ropes),
	MEMBER(vision.act),
	MEMBERS(vision.deep),
	MEMBER(vision.depth),
	MEMBER(vision.eps),
	MEMBER(vision.family),
	MEMBER(vision.merge),
	MEMBER(vision.merge_eps),
	MEMBER(vision.n_deep),
	MEMBER(vision.n_pinpoints),
	MEMBER(vision.out),
	MEMBER(vision.rope_theta),
	MEMBER(vision.rows),
	MEMBER(vision.shrink),
	MEMBER(vision.side),
	MEMBERS(vision.whole),
	MEMBER(vision.window),
	MEMBER(vocab_size),
};

static const struct {
	const char *name;
	double value;
} constants[] = {
	{"ROPE_DEFAULT", ROPE_DEFAULT},	  {"ROPE_LINEAR", ROPE_LINEAR},
	{"ROPE_YARN", ROPE_YARN},	  {"QUANT_AWQ", QUANT_AWQ},
	{"QUANT_GPTQ", QUANT_GPTQ},	  {"QUANT_MXFP4", QUANT_MXFP4},
	{"TXDA_ACT_SILU", TXDA_ACT_SILU}, {"TXDA_ACT_GELU_TANH", TXDA_ACT_GELU_TANH},
};

static inline double number_of(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		if (!strcmp(constants[i].name, text))
			return constants[i].value;
	}
	if (end == text || *end)
		fail_msg("%s is no value", text);
	return value;
}

static inline double member_of(const struct model_config *c, const char *name)
{
	size_t len = strcspn(name, "["), index = name[len] ? strtoul(name + len + 1, NULL, 10) : 0;
	const struct member *m = members;
	union {
		uint8_t u8;
		uint32_t u32;
		uint64_t u64;
		float f;
		double d;
	} got;

	if (!strcmp(name, "context"))
		return config_default_context(c);
	while (strncmp(m->name, name, len) || m->name[len])
		if (++m == members + ARRAY_SIZE(members))
			fail_msg("%s is no member", name);
	memcpy(&got, (const char *)c + m->at + index * m->bytes, m->bytes);
	switch (m->bytes) {
	case 1: return got.u8;
	case 4: return m->is_float ? (double)got.f : got.u32;
	default: return m->is_float ? got.d : (double)got.u64;
	}
}

static inline void expect_member(const char *text, const struct model_config *c, const char *name,
				 const char *want)
{
	const char *is = !strcmp(name, "family")       ? c->family->model_type
			 : !strcmp(name, "model_type") ? c->model_type
			 : !strcmp(name, "param_dir")  ? c->param_dir
						       : NULL;
	bool about = want[0] == '~';
	double got, number;

	if (is) {
		if (strcmp(is, want))
			fail_msg("%s: %s is %s, not %s", text, name, is, want);
		return;
	}
	got = member_of(c, name);
	number = number_of(want + about);
	if (about ? !(fabs(got - number) <= 1e-6 * fabs(number))
		  : got != number && got != (double)(float)number)
		fail_msg("%s: %s is %.9g, not %s", text, name, got, want);
}

/*
 * @want: "NAME=VALUE NAME=VALUE", with "~" before a value that is near enough. @text is the
 * configuration's name in messages.
 */
static inline void expect_members(const char *text, const struct model_config *c, char *want)
{
	for (char *name; (name = strsep(&want, " "));) {
		char *value = strchr(name, '=');

		assert_non_null(value);
		*value = '\0';
		expect_member(text, c, name, value + 1);
	}
}

#endif
