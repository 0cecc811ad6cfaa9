// SPDX-License-Identifier: MIT
/* Tensors of a GGUF file under the names of checkpoints. */
#include "gguf_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml.h"
#include "safetensors.h"

#define NAME_BYTES 128

struct named {
	char name[NAME_BYTES];
	const struct gguf_tensor *tensor;
};

struct gguf_model {
	struct gguf *file;
	struct named *list; /* by name */
	size_t n;
};

/* Names without ".weight" and ".bias"; those of a layer follow "blk.%u." and "model.layers.%u.". */
static const struct {
	const char *theirs, *ours;
} of_model[] =
	{
		{"token_embd", "model.embed_tokens"},
		{"output_norm", "model.norm"},
		{"output", "lm_head"},
		{"rope_freqs", "rope_freqs"},
},
  of_layer[] = {
	  {"attn_norm", "input_layernorm"},
	  {"attn_q", "self_attn.q_proj"},
	  {"attn_k", "self_attn.k_proj"},
	  {"attn_v", "self_attn.v_proj"},
	  {"attn_output", "self_attn.o_proj"},
	  {"attn_q_norm", "self_attn.q_norm"},
	  {"attn_k_norm", "self_attn.k_norm"},
	  {"ffn_norm", "post_attention_layernorm"},
	  {"ffn_gate", "mlp.gate_proj"},
	  {"ffn_up", "mlp.up_proj"},
	  {"ffn_down", "mlp.down_proj"},
	  {"ffn_gate_inp", "mlp.gate"},
	  {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
	  {"ffn_up_exps", "mlp.experts.*.up_proj"},
	  {"ffn_down_exps", "mlp.experts.*.down_proj"},
	  {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
	  {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
	  {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
	  {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};

static bool is_stem(const char *name, const char *suffix, const char *stem)
{
	size_t n = strlen(stem);

	return (size_t)(suffix - name) == n && !memcmp(name, stem, n);
}

/* "blk.3.attn_q.bias" -> "model.layers.3.self_attn.q_proj.bias" */
static bool translate(const char *name, char *to)
{
	const char *suffix = strrchr(name, '.'), *rest = name;
	unsigned layer;
	int used = 0;
	size_t i;

	if (!suffix || (strcmp(suffix, ".weight") && strcmp(suffix, ".bias")))
		return false;
	if (sscanf(name, "blk.%5u.%n", &layer, &used) == 1 && used) {
		rest = name + used;
		for (i = 0; i < sizeof(of_layer) / sizeof(of_layer[0]); i++) {
			if (is_stem(rest, suffix, of_layer[i].theirs)) {
				snprintf(to, NAME_BYTES, "model.layers.%u.%s%s", layer,
					 of_layer[i].ours, suffix);
				return true;
			}
		}
		return false;
	}
	for (i = 0; i < sizeof(of_model) / sizeof(of_model[0]); i++) {
		if (is_stem(rest, suffix, of_model[i].theirs)) {
			snprintf(to, NAME_BYTES, "%s%s", of_model[i].ours, suffix);
			return true;
		}
	}
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int name_tensors(struct gguf_model *m, struct tool_error *error)
{
	const struct gguf_tensor *t;
	size_t n = 0;

	while (gguf_at(m->file, n))
		n++;
	m->list = calloc(n + 1, sizeof(*m->list));
	if (!m->list)
		return tool_fail(error, -ENOMEM, "no memory for %zu tensors", n);
	for (; (t = gguf_at(m->file, m->n)); m->n++) {
		if (!translate(t->name, m->list[m->n].name))
			return tool_fail(error, -ENOTSUP,
					 "tensor \"%.128s\" is none that is known of any family",
					 t->name);
		m->list[m->n].tensor = t;
	}
	qsort(m->list, m->n, sizeof(*m->list), by_name);
	return 0;
}

int gguf_model_new(struct gguf *g, struct gguf_model **ret, struct tool_error *error)
{
	struct gguf_model *m = calloc(1, sizeof(*m));
	int r;

	if (!m) {
		gguf_close(g);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	m->file = g;
	r = name_tensors(m, error);
	if (r)
		gguf_model_free(m);
	else
		*ret = m;
	return r;
}

void gguf_model_free(struct gguf_model *m)
{
	if (!m)
		return;
	gguf_close(m->file);
	free(m->list);
	free(m);
}

struct gguf *gguf_model_file(const struct gguf_model *m)
{
	return m->file;
}

/* The tensor, and which matrix of it when @name is of one expert. */
static const struct gguf_tensor *look_up(const struct gguf_model *m, const char *name,
					 uint64_t *ret_index)
{
	static const char experts[] = ".experts.";
	const char *at = strstr(name, experts), *rest;
	struct named want;
	const struct named *found;
	unsigned index = 0;
	int used = 0;

	if (strlen(name) >= sizeof(want.name))
		return NULL;
	strcpy(want.name, name);
	if (at) {
		at += sizeof(experts) - 1;
		if (sscanf(at, "%9u%n", &index, &used) != 1)
			return NULL;
		rest = at + used;
		snprintf(want.name + (at - name), sizeof(want.name) - (size_t)(at - name), "*%s",
			 rest);
	}
	*ret_index = index;
	found = m->n ? bsearch(&want, m->list, m->n, sizeof(*m->list), by_name) : NULL;
	return found ? found->tensor : NULL;
}

bool gguf_model_has(const struct gguf_model *m, const char *name)
{
	uint64_t index;

	return look_up(m, name, &index) != NULL;
}

int gguf_model_find(const struct gguf_model *m, const char *name, uint64_t rows, uint64_t cols,
		    struct source_tensor *ret, struct tool_error *error)
{
	const uint64_t want[2] = {rows ? rows : cols, cols};
	uint64_t index, n = rows ? rows : 1;
	const struct gguf_tensor *t = look_up(m, name, &index);
	char expected[64], found[128];

	safetensors_shape(rows ? 2 : 1, want, expected, sizeof(expected));
	if (!t)
		return tool_fail(error, -ENOENT, "tensor \"%s\" %s is missing", name, expected);
	if (t->dim[0] != cols || t->dim[1] != n || t->dim[3] != 1 || index >= t->dim[2] ||
	    (t->dim[2] != 1 && !strstr(name, ".experts."))) {
		const uint64_t dim[4] = {t->dim[3], t->dim[2], t->dim[1], t->dim[0]};

		return tool_fail(error, -EINVAL,
				 "tensor \"%s\" (\"%.64s\", %llu): expected the shape %s, found %s",
				 name, t->name, (unsigned long long)index, expected,
				 safetensors_shape(4, dim, found, sizeof(found)));
	}
	*ret = ggml_tensor(t->type, n, cols, t->data + t->bytes / t->dim[2] * index);
	return 0;
}
