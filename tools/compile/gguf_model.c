// SPDX-License-Identifier: MIT
/* Finds tensors of a GGUF file by the names used in checkpoints. */
#include "gguf_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml.h"
#include "gguf_name.h"
#include "safetensors.h"

#define NAME_BYTES 128

struct named {
	char name[NAME_BYTES];
	const struct gguf_tensor *tensor;
	const struct gguf *file;
	bool used; /* the graph has read it */
};

struct gguf_model {
	struct gguf **files;
	unsigned n_files;
	struct named *list; /* by name */
	size_t n;
};

/*
 * Names without ".weight" and ".bias"; those of a layer follow "blk.%u." and "model.layers.%u.".
 * Entries with @naming apply only to architectures of that kind, and come first.
 */
struct name_pair {
	const char *theirs, *ours, *naming;
	bool bare; /* ours has no suffix */
};

static const struct name_pair of_model[] = {
	{"token_embd", "model.embed_tokens"},
	{"output_norm", "model.norm"},
	{"output", "lm_head"},
	{"rope_freqs", "rope_freqs"},
};
static const struct name_pair of_layer[] = {
	{"ffn_norm", "pre_feedforward_layernorm", "gemma"},
	{"post_ffw_norm", "post_feedforward_layernorm", "gemma"},
	{"post_attention_norm", "post_self_attn_layernorm", "glm4"},
	{"post_ffw_norm", "post_mlp_layernorm", "glm4"},
	{"ffn_up", "mlp.gate_up_proj", "glm4"},
	{"ffn_gate_inp", "mlp.router", "gpt-oss"},
	{"ffn_gate_shexp", "mlp.shared_experts.gate_proj", "deepseek"},
	{"ffn_up_shexp", "mlp.shared_experts.up_proj", "deepseek"},
	{"ffn_down_shexp", "mlp.shared_experts.down_proj", "deepseek"},
	{"attn_norm", "input_layernorm"},
	{"attn_q", "self_attn.q_proj"},
	{"attn_k", "self_attn.k_proj"},
	{"attn_v", "self_attn.v_proj"},
	{"attn_output", "self_attn.o_proj"},
	{"attn_q_norm", "self_attn.q_norm"},
	{"attn_k_norm", "self_attn.k_norm"},
	{"attn_sinks", "self_attn.sinks", .bare = true},
	{"attn_q_a", "self_attn.q_a_proj"},
	{"attn_q_a_norm", "self_attn.q_a_layernorm"},
	{"attn_q_b", "self_attn.q_b_proj"},
	{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
	{"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
	{"attn_kv_b", "self_attn.kv_b_proj"},
	{"attn_k_b", "self_attn.heads.*.k_b"},
	{"attn_v_b", "self_attn.heads.*.v_b"},
	{"ffn_norm", "post_attention_layernorm"},
	{"post_attention_norm", "post_attention_layernorm"},
	{"ffn_gate", "mlp.gate_proj"},
	{"ffn_up", "mlp.up_proj"},
	{"ffn_down", "mlp.down_proj"},
	{"ffn_gate_inp", "mlp.gate"},
	{"exp_probs_b", "mlp.gate.e_score_correction_bias", .bare = true},
	{"ffn_gate_exps", "mlp.experts.*.gate_proj"},
	{"ffn_up_exps", "mlp.experts.*.up_proj"},
	{"ffn_down_exps", "mlp.experts.*.down_proj"},
	{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
	{"ffn_up_shexp", "mlp.shared_expert.up_proj"},
	{"ffn_down_shexp", "mlp.shared_expert.down_proj"},
	{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
	{"nextn.eh_proj", "eh_proj"},
	{"nextn.enorm", "enorm"},
	{"nextn.hnorm", "hnorm"},
	{"nextn.embed_tokens", "embed_tokens"},
	{"nextn.shared_head_head", "shared_head.head"},
	{"nextn.shared_head_norm", "shared_head.norm"},
};

static const struct name_pair *find_pair(const struct name_pair *list, size_t n, const char *name,
					 const char *suffix, const char *naming)
{
	for (size_t i = 0; i < n; i++) {
		const char *theirs = list[i].theirs, *of = list[i].naming;

		if ((!of || (naming && !strcmp(of, naming))) &&
		    (size_t)(suffix - name) == strlen(theirs) &&
		    !memcmp(name, theirs, strlen(theirs)))
			return &list[i];
	}
	return NULL;
}

/* "blk.3.attn_q.bias" -> "model.layers.3.self_attn.q_proj.bias" */
static bool translate(const char *name, const char *naming, char *to)
{
	const char *suffix = strrchr(name, '.');
	const struct name_pair *pair;
	unsigned layer;
	int used = 0;

	if (!suffix || (strcmp(suffix, ".weight") && strcmp(suffix, ".bias")))
		return false;
	if (sscanf(name, "blk.%5u.%n", &layer, &used) == 1 && used) {
		pair = find_pair(of_layer, sizeof(of_layer) / sizeof(of_layer[0]), name + used,
				 suffix, naming);
		if (pair)
			snprintf(to, NAME_BYTES, "model.layers.%u.%s%s", layer, pair->ours,
				 pair->bare ? "" : suffix);
	} else {
		pair = find_pair(of_model, sizeof(of_model) / sizeof(of_model[0]), name, suffix,
				 naming);
		if (pair)
			snprintf(to, NAME_BYTES, "%s%s", pair->ours, suffix);
	}
	return pair != NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int name_tensors(struct gguf_model *m, size_t n, struct tool_error *error)
{
	const struct gguf_architecture *a = gguf_architecture(m->files[0], error);
	const struct gguf_tensor *t;

	if (!a)
		return -ENOTSUP;
	m->list = calloc(n + 1, sizeof(*m->list));
	if (!m->list)
		return tool_fail(error, -ENOMEM, "no memory for %zu tensors", n);
	for (unsigned f = 0; f < m->n_files; f++) {
		for (size_t i = 0; (t = gguf_at(m->files[f], i)); i++) {
			struct named *to = &m->list[m->n];

			if (!translate(t->name, a->naming, to->name))
				return tool_fail(error, -ENOTSUP,
						 "tensor \"%.128s\" is not known in %s", t->name,
						 a->name);
			to->tensor = t;
			to->file = m->files[f];
			m->n++;
		}
	}
	qsort(m->list, m->n, sizeof(*m->list), by_name);
	for (size_t i = 1; i < m->n; i++) {
		if (!by_name(&m->list[i - 1], &m->list[i]))
			return tool_fail(error, -EINVAL, "tensor \"%.128s\" is in %s, too",
					 m->list[i].tensor->name, gguf_name(m->list[i].file));
	}
	return 0;
}

/* Checks that a key of a part has @value; single files need not have the key. */
static int check_key(const struct gguf_model *m, const struct gguf *g, const char *key,
		     size_t value, struct tool_error *error)
{
	const struct gguf_value *v = gguf_get(g, key);
	double found = v && !v->array && v->type != GGUF_STRING ? gguf_number(v, 0) : -1;

	if (!v ? m->n_files == 1 : found >= 0 && found == (double)value)
		return 0;
	/* Programs that merge parts write a count of 0. */
	if (m->n_files == 1 && found == 0)
		return 0;
	if (!v)
		return tool_fail(error, -EINVAL, "%s: missing in a file of %u", key, m->n_files);
	if (m->n_files == 1 && found > 1)
		return tool_fail(error, -EINVAL,
				 "%s: %g, but its name does not end as those of parts do, "
				 "-00001-of-%05.0f.gguf",
				 key, found, found);
	return tool_fail(error, -EINVAL, "%s: %g, expected %zu", key, found, value);
}

static int check_parts(const struct gguf_model *m, size_t n_tensors, struct tool_error *error)
{
	int r = 0;

	for (unsigned i = 0; i < m->n_files && !r; i++) {
		const struct gguf *g = m->files[i];

		r = check_key(m, g, "split.count", m->n_files, error);
		if (!r)
			r = check_key(m, g, "split.no", i, error);
		if (!r)
			r = check_key(m, g, "split.tensors.count", n_tensors, error);
		if (r)
			tool_fail_within(error, r, "%s", gguf_name(g));
	}
	return r;
}

int gguf_model_new(struct gguf *const *files, unsigned n, struct gguf_model **ret,
		   struct tool_error *error)
{
	struct gguf_model *m = calloc(1, sizeof(*m));
	size_t n_tensors = 0;
	int r;

	if (m)
		m->files = calloc(n, sizeof(*m->files));
	if (!m || !m->files) {
		for (unsigned i = 0; i < n; i++)
			gguf_close(files[i]);
		free(m);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	for (; m->n_files < n; m->n_files++) {
		m->files[m->n_files] = files[m->n_files];
		for (size_t i = 0; gguf_at(files[m->n_files], i); i++)
			n_tensors++;
	}
	r = check_parts(m, n_tensors, error);
	if (!r) {
		r = name_tensors(m, n_tensors, error);
		if (r)
			tool_fail_within(error, r, "%s", gguf_name(files[0]));
	}
	if (r)
		gguf_model_free(m);
	else
		*ret = m;
	return r;
}

/* A part added by another user must not be read with the owner's rights. */
static int check_owner(const struct gguf *first, const struct gguf *g, struct tool_error *error)
{
	unsigned owner = (unsigned)gguf_identity(first)->owner;
	unsigned found = (unsigned)gguf_identity(g)->owner;

	if (found == owner)
		return 0;
	return tool_fail(error, -EPERM, "%s belongs to user %u, %s to user %u", gguf_name(g), found,
			 gguf_name(first), owner);
}

int gguf_model_open(int dirfd, const char *name, struct gguf_model **ret, struct tool_error *error)
{
	unsigned parts = gguf_name_parts(name), n = parts ? parts : 1, i;
	struct gguf **files = calloc(n, sizeof(*files));
	char *part = strdup(name);
	int r = files && part ? 0 : tool_fail(error, -ENOMEM, "no memory");

	for (i = 0; i < n && !r; i++) {
		if (parts)
			gguf_name_set_part(part, i + 1);
		r = gguf_open(dirfd, part, &files[i], error);
		if (!r && dirfd == AT_FDCWD)
			r = check_owner(files[0], files[i], error);
	}
	if (!r)
		r = gguf_model_new(files, n, ret, error);
	else
		for (i = 0; files && i < n; i++)
			gguf_close(files[i]);
	free(files);
	free(part);
	return r;
}

void gguf_model_free(struct gguf_model *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n_files; i++)
		gguf_close(m->files[i]);
	free(m->files);
	free(m->list);
	free(m);
}

struct gguf *gguf_model_file(const struct gguf_model *m, unsigned index)
{
	return index < m->n_files ? m->files[index] : NULL;
}

int gguf_model_unchanged(const struct gguf_model *m, struct tool_error *error)
{
	int r = 0;

	for (unsigned i = 0; i < m->n_files && !r; i++)
		r = gguf_unchanged(m->files[i], error);
	return r;
}

/* Behind it is a number of @name: one of the matrices in a tensor. NULL: there is none. */
static const char *find_number(const char *name)
{
	static const char *const before[] = {".experts.", ".heads."};

	for (unsigned i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		const char *at = strstr(name, before[i]);

		if (at)
			return at + strlen(before[i]);
	}
	return NULL;
}

/* Finds the tensor, and which of its matrices if @name is that of one expert or head. */
static struct named *look_up(const struct gguf_model *m, const char *name, uint64_t *ret_index)
{
	const char *at = find_number(name), *rest;
	struct named want;
	unsigned index = 0;
	int used = 0;

	if (strlen(name) >= sizeof(want.name))
		return NULL;
	strcpy(want.name, name);
	if (at) {
		if (sscanf(at, "%9u%n", &index, &used) != 1)
			return NULL;
		rest = at + used;
		snprintf(want.name + (at - name), sizeof(want.name) - (size_t)(at - name), "*%s",
			 rest);
	}
	*ret_index = index;
	return m->n ? bsearch(&want, m->list, m->n, sizeof(*m->list), by_name) : NULL;
}

const struct gguf_tensor *gguf_model_tensor(const struct gguf_model *m, const char *name)
{
	uint64_t index;
	const struct named *found = look_up(m, name, &index);

	return found ? found->tensor : NULL;
}

bool gguf_model_has(const struct gguf_model *m, const char *name)
{
	return gguf_model_tensor(m, name) != NULL;
}

int gguf_model_find(const struct gguf_model *m, const char *name, uint64_t rows, uint64_t cols,
		    struct source_tensor *ret, struct tool_error *error)
{
	const uint64_t want[2] = {rows ? rows : cols, cols};
	uint64_t index, n = rows ? rows : 1, per;
	struct named *named = look_up(m, name, &index);
	const struct gguf_tensor *t;
	char expected[64], found[128];
	bool fits;

	safetensors_shape(rows ? 2 : 1, want, expected, sizeof(expected));
	if (!named)
		return tool_fail(error, -ENOENT, "tensor \"%s\" %s is missing", name, expected);
	named->used = true;
	t = named->tensor;
	/* Vectors of experts are the rows of a matrix. */
	if (find_number(name) && !rows) {
		per = t->dim[1];
		fits = t->dim[2] == 1;
	} else {
		per = t->dim[2];
		fits = t->dim[1] == n && (per == 1 || find_number(name));
	}
	if (t->dim[0] != cols || !fits || t->dim[3] != 1 || index >= per) {
		const uint64_t dim[4] = {t->dim[3], t->dim[2], t->dim[1], t->dim[0]};

		return tool_fail(error, -EINVAL,
				 "tensor \"%s\" (\"%.64s\", %llu): expected the shape %s, found %s",
				 name, t->name, (unsigned long long)index, expected,
				 safetensors_shape(4, dim, found, sizeof(found)));
	}
	*ret = ggml_tensor(t->type, n, cols, t->data + t->bytes / per * index);
	return 0;
}

/* The two halves of a layer's attn_kv_b, which files may have beside it. */
static bool has_halves(const struct gguf_model *m, const char *name)
{
	static const char whole[] = ".self_attn.kv_b_proj.weight";
	const char *at = strstr(name, whole);
	char half[NAME_BYTES];

	if (!at || strcmp(at, whole) != 0)
		return false;
	snprintf(half, sizeof(half), "%.*s.self_attn.heads.0.k_b.weight", (int)(at - name), name);
	return gguf_model_has(m, half);
}

bool gguf_model_next_unused(const struct gguf_model *m, size_t *at, const char **ret_name,
			    const char **ret_stored)
{
	while (*at < m->n) {
		const struct named *t = &m->list[(*at)++];

		if (t->used || has_halves(m, t->name))
			continue;
		*ret_name = t->name;
		*ret_stored = t->tensor->name;
		return true;
	}
	return false;
}
