/* SPDX-License-Identifier: MIT */
/*
 * Model families. A family is one small file: it reads what is particular to it from config.json
 * into struct model_config and names its tensors; the graph is put together from shared blocks
 * (graph.h) by what the config then says. To add one, write family_NAME.c and name it in family.c.
 */
#ifndef TXDA_COMPILE_FAMILY_H
#define TXDA_COMPILE_FAMILY_H

#include <cjson/cJSON.h>

#include "config.h"

/* Tensor names of a checkpoint; %u is the layer. A weight NAME has NAME.weight and, if the config
 * says so, NAME.bias. */
struct family_names {
	const char *embed, *final_norm, *head;
	const char *input_norm, *post_attention_norm;
	const char *q, *k, *v, *o;
	const char *q_norm, *k_norm;
	const char *gate, *up, *down;
};

struct family {
	const char *model_type; /* config.json's */
	const struct family_names *names;
	int (*parse)(const cJSON *json, struct model_config *c, struct tool_error *error);
};

extern const struct family family_llama, family_qwen2, family_qwen3, family_internlm3;

/* The names that all families so far share. */
extern const struct family_names family_names_llama;

const struct family *family_find(const char *model_type);
/* "llama, qwen2, …" in @buf. Returns buf. */
char *family_list(char *buf, size_t len);

/*
 * use_sliding_window, sliding_window, max_window_layers and layer_types of the Qwen families, whose
 * layers may differ.
 */
int family_parse_window(const cJSON *json, struct model_config *c, struct tool_error *error);

#endif /* TXDA_COMPILE_FAMILY_H */
