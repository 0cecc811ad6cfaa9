// SPDX-License-Identifier: MIT
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "gguf_name.h"
#include "json.h"
#include "owned.h"
#include "param_dir.h"
#include "sha256.h"
#include "text_files.h"
#include "utf8.h"

/*
 * Models whose files look the same are still different models: the compiled model of one user must
 * not be served as another's.
 */
static void hash_place(struct model *m, int dirfd, struct sha256 *h)
{
	char *real = realpath(m->path, NULL);
	struct file_identity dir;
	struct stat s;

	sha256_string(h, real ? real : m->path);
	free(real);
	if (!fstat(dirfd, &s)) {
		/*
		 * The directory's times would also change with files that do not belong to the
		 * model.
		 */
		dir = tool_identity(&s);
		sha256_u64(h, dir.dev);
		sha256_u64(h, dir.inode);
		sha256_u64(h, dir.owner);
	}
	for (unsigned i = 0; i < m->n_copied; i++) {
		sha256_string(h, m->copied[i].name);
		sha256_update(h, &m->copied[i].identity, sizeof(m->copied[i].identity));
	}
}

static void hash_gguf(const struct model *m, struct sha256 *h)
{
	char *real = realpath(m->path, NULL);
	const struct gguf *g;
	const void *header;
	size_t bytes;

	sha256_string(h, real ? real : m->path);
	free(real);
	for (unsigned i = 0; (g = gguf_model_file(m->source.gguf, i)); i++) {
		sha256_update(h, gguf_identity(g), sizeof(struct file_identity));
		header = gguf_header(g, &bytes);
		sha256_u64(h, bytes);
		sha256_update(h, header, bytes);
	}
}

/* Takes over @name. */
static int add_copied(struct model *m, int dirfd, char *name, struct tool_error *error)
{
	struct model_file *more = realloc(m->copied, (m->n_copied + 1) * sizeof(*more));
	struct stat s;

	if (more)
		m->copied = more;
	if (more && name && !fstatat(dirfd, name, &s, 0)) {
		more[m->n_copied++] = (struct model_file){name, tool_identity(&s)};
		return 0;
	}
	free(name);
	return more && name ? 0 : tool_fail(error, -ENOMEM, "no memory");
}

/* A model may have no tokeniser, but not one that is not known. */
static int check_tokenizer(int dirfd, struct tool_error *error)
{
	static const char *const known[] = {"tokenizer.json", "tokenizer.model", "tiktoken.model"},
				 *const others[] = {"tekken.json",   "tokenizer.model.v3",
						    "spiece.model",  "vocab.json",
						    "qwen.tiktoken", "vocab.txt"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (faccessat(dirfd, known[i], F_OK, 0) >= 0)
			return 0;
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (faccessat(dirfd, others[i], F_OK, 0) >= 0)
			return tool_fail(error, -ENOTSUP,
					 "the tokeniser is a %s, which is not supported "
					 "(tokenizer.json, tokenizer.model and tiktoken.model are)",
					 others[i]);
	}
	return 0;
}

/* What the case dir's texts are made of, as far as it is there. */
static int find_copied(struct model *m, int dirfd, struct tool_error *error)
{
	char **more, err[200];
	int n = text_files_templates(dirfd, &more, err, sizeof(err));
	int r = check_tokenizer(dirfd, error);

	for (const char *const *name = text_files; *name && n >= 0 && !r; name++)
		r = add_copied(m, dirfd, strdup(*name), error);
	for (int i = 0; i < n; i++) {
		if (r)
			free(more[i]);
		else
			r = add_copied(m, dirfd, more[i], error);
	}
	free(more);
	if (n < 0)
		r = tool_fail(error, n, "%s", err);
	if (!r && (!m->n_copied || strcmp(m->copied[0].name, text_files[0]) != 0))
		r = tool_fail(error, -ESTALE, "%s is gone", text_files[0]);
	return r ? tool_fail_within(error, r, "%s", m->path) : 0;
}

/* @dirfd: the model's directory; -1: it is a GGUF file, or synthetic. */
static void hash_source(struct model *m, int dirfd)
{
	const struct safetensors *st = m->source.checkpoint;
	struct sha256 h;
	unsigned i;

	sha256_init(&h);
	if (dirfd >= 0)
		hash_place(m, dirfd, &h);
	if (m->source.gguf)
		hash_gguf(m, &h);
	sha256_u64(&h, m->config_bytes);
	sha256_update(&h, m->config_text, m->config_bytes);
	for (i = 0; st && i < safetensors_files(st); i++) {
		const struct safetensors_file *f = safetensors_file(st, i);

		sha256_string(&h, f->name);
		sha256_update(&h, &f->identity, sizeof(f->identity));
		sha256_u64(&h, f->header_bytes);
		sha256_update(&h, f->header, f->header_bytes);
	}
	sha256_u64(&h, m->config.quant.method);
	sha256_u64(&h, m->config.quant.bits);
	sha256_u64(&h, m->config.quant.group);
	sha256_u64(&h, m->config.quant.zero_plus_one);
	sha256_string(&h, m->embedding ? m->pooling : "");
	sha256_u64(&h, m->normalize);
	sha256_hex128(&h, m->source_hash);
}

/* The directory's own name, also for ".", as a case dir may have it: see check_name(). */
static void name_from_path(const char *path, char *name, size_t len)
{
	char *real = realpath(path, NULL), *slash = real ? strrchr(real, '/') : NULL;
	size_t n, at = 0;

	snprintf(name, len, "%s", slash && slash[1] ? slash + 1 : "model");
	for (n = strlen(name); (at += utf8_valid_prefix((uint8_t *)name + at, n - at)) < n;)
		name[at++] = '_';
	utf8_tame(name, '_');
	free(real);
}

/* Reads a JSON file in the model's directory; *ret is NULL if there is none. */
static int read_json(int dirfd, const char *name, cJSON **ret, struct tool_error *error)
{
	size_t bytes;
	char *text;
	int r;

	*ret = NULL;
	if (faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = tool_read_file(dirfd, name, CONFIG_MAX_BYTES, &text, &bytes, error);
	if (r)
		return r;
	r = tool_json_parse(text, bytes, ret, error);
	free(text);
	return r ? tool_fail_within(error, r, "%s", name) : 0;
}

/* The steps from hidden states to a vector, of which some models have more than are computed. */
static int check_modules(const cJSON *modules, bool *normalize, struct tool_error *error)
{
	static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
	const cJSON *item;

	cJSON_ArrayForEach(item, modules) {
		const char *type = cJSON_GetStringValue(config_find(item, "type")), *name;
		size_t i = 0;

		type = type ? type : "";
		name = strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
		while (i < 3 && strcmp(name, known[i]) != 0)
			i++;
		if (i == 3)
			return tool_fail(error, -ENOTSUP,
					 "modules.json: type: \"%.128s\" is not supported "
					 "(Transformer, Pooling and Normalize are)",
					 type);
		*normalize |= i == 2;
	}
	return 0;
}

/* One of the modes, as a name or as a flag; the last token if there is none. */
static int find_pooling(const cJSON *pooling, char *ret, size_t len, struct tool_error *error)
{
	static const char prefix[] = "pooling_mode_";
	static const struct {
		const char *theirs, *ours;
	} modes[] = {{"mean_tokens", "mean"},
		     {"mean", "mean"},
		     {"cls_token", "cls"},
		     {"cls", "cls"},
		     {"lasttoken", "last"}};
	const cJSON *item;
	const char *found = NULL;

	snprintf(ret, len, "last");
	if (pooling && !cJSON_IsObject(pooling))
		return tool_fail(error, -EINVAL, "1_Pooling/config.json: not an object");
	cJSON_ArrayForEach(item, pooling) {
		const char *mode = NULL;
		size_t i = 0;

		if (!strcmp(item->string, "pooling_mode"))
			mode = cJSON_GetStringValue(item);
		else if (cJSON_IsTrue(item) && !strncmp(item->string, prefix, strlen(prefix)))
			mode = item->string + strlen(prefix);
		if (!mode)
			continue;
		while (i < sizeof(modes) / sizeof(modes[0]) && strcmp(mode, modes[i].theirs) != 0)
			i++;
		if (i == sizeof(modes) / sizeof(modes[0]))
			return tool_fail(error, -ENOTSUP,
					 "1_Pooling/config.json: %.64s: \"%.64s\" is not supported "
					 "(mean_tokens, cls_token and lasttoken are)",
					 item->string, mode);
		if (found && strcmp(found, modes[i].ours) != 0)
			return tool_fail(error, -ENOTSUP,
					 "1_Pooling/config.json: %.64s: together with another mode",
					 item->string);
		found = modes[i].ours;
		snprintf(ret, len, "%s", found);
	}
	return 0;
}

/* The layout of sentence-transformers: modules.json, and the pooling of tokens to one vector. */
static int read_pooling(struct model *m, int dirfd, struct tool_error *error)
{
	cJSON *modules, *pooling = NULL;
	int r = read_json(dirfd, "modules.json", &modules, error);

	m->embedding = cJSON_IsArray(modules);
	if (!r)
		r = check_modules(modules, &m->normalize, error);
	if (!r && m->embedding)
		r = read_json(dirfd, "1_Pooling/config.json", &pooling, error);
	if (!r)
		r = find_pooling(pooling, m->pooling, sizeof(m->pooling), error);
	cJSON_Delete(modules);
	cJSON_Delete(pooling);
	return r ? tool_fail_within(error, r, "%s", m->path) : 0;
}

/* Some quantised checkpoints describe their quantisation in a separate file. */
static int read_quantisation(struct model *m, int dirfd, struct tool_error *error)
{
	static const struct {
		const char *name, *method;
	} files[] = {
		{"quantize_config.json", "gptq"},
		{"quant_config.json", "awq"},
		{"hf_quant_config.json", "modelopt"},
	};
	unsigned i;

	for (i = 0; i < 3 && m->config.quant.method == QUANT_NONE; i++) {
		size_t bytes;
		char *text;
		int r;

		if (faccessat(dirfd, files[i].name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		r = tool_read_file(dirfd, files[i].name, CONFIG_MAX_BYTES, &text, &bytes, error);
		if (r)
			return r;
		r = quant_parse_file(text, bytes, files[i].method, &m->config.quant, error);
		free(text);
		if (r)
			return tool_fail_within(error, r, "%s/%s", m->path, files[i].name);
	}
	return 0;
}

/*
 * For a model whose param_dir is a case dir: the safetensors that it may have beside config.json.
 */
static int own_weights(struct model *m, int dirfd, const char *case_dir, unsigned tp, char *buf,
		       size_t len, struct tool_error *error)
{
	if (faccessat(dirfd, "model.safetensors", F_OK, 0) < 0 &&
	    faccessat(dirfd, "model.safetensors.index.json", F_OK, 0) < 0)
		return tool_fail(error, -EEXIST,
				 "there is nothing to compile: %.100s has no safetensors, and its "
				 "param_dir %.200s is a case dir for %u chip%s, which txdad serves "
				 "as it is",
				 m->path, case_dir, tp, tp == 1 ? "" : "s");
	m->compiled = strdup(case_dir);
	if (!m->compiled)
		return tool_fail(error, -ENOMEM, "no memory");
	if ((size_t)snprintf(buf, len, "%s", m->path) >= len)
		return tool_fail(error, -ENAMETOOLONG, "%.200s: too long a path", m->path);
	return 0;
}

/* The directory of the safetensors: the model's, or param_dir relative to it. */
static int weight_dir(const struct model *m, char *buf, size_t len, struct tool_error *error)
{
	const char *dir = m->config.param_dir;
	int n;

	if (strstr(dir, ".."))
		return tool_fail(error, -EINVAL, "config.json: param_dir: \"%.200s\" has \"..\"",
				 dir);
	if (dir[0] == '/')
		n = snprintf(buf, len, "%s", dir);
	else
		n = snprintf(buf, len, "%s%s%s", m->path, dir[0] ? "/" : "", dir);
	if (n < 0 || (size_t)n >= len)
		return tool_fail(error, -ENAMETOOLONG, "config.json: param_dir: too long a path");
	return 0;
}

/*
 * The owner of config.json names the location of the weights, which must belong to them or to root.
 */
static int check_weight_dir(int dirfd, const char *path, struct tool_error *error)
{
	struct stat own, st;
	char err[400];
	int r;

	if (stat(path, &st) || fstat(dirfd, &own))
		return 0; /* opening it reports why */
	r = owned_check(&st, own.st_uid, path, err, sizeof(err));
	return r ? tool_fail(error, r, "config.json: param_dir: %s", err) : 0;
}

static int find_weights(struct model *m, int dirfd, char *buf, size_t len, struct tool_error *error)
{
	struct case_facts facts = {0};
	struct config_facts config;
	char case_dir[4096] = "", err[480];
	int r;

	config_facts_read(m->path, &config);
	r = param_dir_find(m->path, &config, case_dir, sizeof(case_dir), &facts, err, sizeof(err));
	if (r > 0)
		return own_weights(m, dirfd, case_dir, facts.tp, buf, len, error);
	return r < 0 ? tool_fail(error, r, "%s", err) : weight_dir(m, buf, len, error);
}

static bool is_gguf(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, ".gguf");
}

/* The only GGUF file of a directory, or one of the parts of a model. */
static int find_gguf(int dirfd, char *name, size_t len, struct tool_error *error)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;

	*name = '\0';
	if (!d) {
		r = tool_fail(error, -errno, "%s", strerror(errno));
		if (copy >= 0)
			close(copy);
		return r;
	}
	while (!r && (entry = readdir(d))) {
		if (!is_gguf(entry->d_name))
			continue;
		if (*name && !gguf_name_same(name, entry->d_name))
			r = tool_fail(error, -EINVAL,
				      "neither a config.json nor one GGUF file, but %.200s and "
				      "%.200s",
				      name, entry->d_name);
		snprintf(name, len, "%s", entry->d_name);
	}
	closedir(d);
	return r;
}

/* @name below @dirfd, which may be AT_FDCWD. */
static int open_gguf(const char *path, int dirfd, const char *name, struct model *ret,
		     struct tool_error *error)
{
	struct model m = {.path = strdup(path)};
	int r;

	if (!m.path)
		return tool_fail(error, -ENOMEM, "no memory");
	r = gguf_model_open(dirfd, name, &m.source.gguf, error);
	if (r) {
		model_close(&m);
		return dirfd == AT_FDCWD ? r : tool_fail_within(error, r, "%s", path);
	}
	r = gguf_config(m.source.gguf, &m.config_text, error);
	if (!r) {
		m.config_bytes = strlen(m.config_text);
		r = config_parse(m.config_text, m.config_bytes, &m.config, error);
	}
	if (!r)
		r = gguf_tokenizer(gguf_model_file(m.source.gguf, 0), m.made, error);
	if (r) {
		model_close(&m);
		return tool_fail_within(error, r, "%s", path);
	}
	gguf_adapt(m.source.gguf, &m.config);
	name_from_path(path, m.name, sizeof(m.name));
	gguf_name_cut(m.name);
	hash_source(&m, -1);
	*ret = m;
	return 0;
}

int model_open(const char *path, struct model *ret, struct tool_error *error)
{
	struct model m = {0};
	char dir[4096], gguf[NAME_MAX + 1];
	struct stat st;
	int dirfd, r;

	/* Whatever its name: the target of a link need not have the suffix. */
	if (!stat(path, &st) && S_ISREG(st.st_mode))
		return open_gguf(path, AT_FDCWD, path, ret, error);
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0) {
		r = -errno;
		return tool_fail(error, r, "%s: %s", path, strerror(-r));
	}
	if (faccessat(dirfd, "config.json", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = find_gguf(dirfd, gguf, sizeof(gguf), error);
		if (r)
			tool_fail_within(error, r, "%s", path);
		else if (*gguf)
			r = open_gguf(path, dirfd, gguf, ret, error);
		if (r || *gguf) {
			close(dirfd);
			return r;
		}
	}
	r = tool_read_file(dirfd, "config.json", CONFIG_MAX_BYTES, &m.config_text, &m.config_bytes,
			   error);
	if (r) {
		tool_fail_within(error, r, "%s", path);
		goto out;
	}
	r = config_parse(m.config_text, m.config_bytes, &m.config, error);
	if (r) {
		tool_fail_within(error, r, "%s/config.json", path);
		goto out;
	}
	m.path = strdup(path);
	r = m.path ? find_weights(&m, dirfd, dir, sizeof(dir), error)
		   : tool_fail(error, -ENOMEM, "no memory");
	if (!r)
		r = check_weight_dir(dirfd, dir, error);
	if (!r)
		r = read_quantisation(&m, dirfd, error);
	if (!r)
		r = safetensors_open_dir(dir, &m.source.checkpoint, error);
	if (!r)
		r = read_pooling(&m, dirfd, error);
	if (!r)
		r = find_copied(&m, dirfd, error);
	if (!r) {
		name_from_path(path, m.name, sizeof(m.name));
		hash_source(&m, dirfd);
	}
out:
	close(dirfd);
	if (r)
		model_close(&m);
	else
		*ret = m;
	return r;
}

void model_close(struct model *m)
{
	free(m->path);
	free(m->compiled);
	free(m->config_text);
	safetensors_close(m->source.checkpoint);
	gguf_model_free(m->source.gguf);
	for (unsigned i = 0; i < GGUF_FILES; i++)
		free(m->made[i].text);
	for (unsigned i = 0; i < m->n_copied; i++)
		free(m->copied[i].name);
	free(m->copied);
	memset(m, 0, sizeof(*m));
}

/* Well-known shapes, for a synthetic config.json. */
static const struct shape {
	const char *name, *model_type;
	unsigned hidden, layers, heads, kv_heads, head_dim, inner, vocab, positions;
	bool tied;
	double eps, theta;
	const char *rope_scaling;
	const char *more; /* keys of experts, latent attention, images, or NULL */
} synthetic[] = {
	{"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6, "null"},
	{"qwen3-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, true, 1e-6, 1e6, "null"},
	{"llama3-1b", "llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, true, 1e-5, 5e5,
	 "{\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1,"
	 " \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}"},
	{"llama2-7b", "llama", 4096, 32, 32, 32, 128, 11008, 32000, 4096, false, 1e-5, 1e4, "null"},
	/*
	 * Some layers of Qwen3-30B-A3B, and DeepSeek-V3's with the dimensions of V2-Lite, both with
	 * a smaller vocabulary.
	 */
	{"qwen3-moe-scaled", "qwen3_moe", 2048, 4, 32, 4, 128, 6144, 16384, 40960, false, 1e-6, 1e6,
	 "null",
	 "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768,"
	 " \"norm_topk_prob\": true"},
	{"deepseek-v3-scaled", "deepseek_v3", 2048, 4, 16, 16, 192, 10944, 16384, 32768, false,
	 1e-6, 1e4, "null",
	 "\"kv_lora_rank\": 512, \"q_lora_rank\": 768, \"qk_nope_head_dim\": 128,"
	 " \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"n_routed_experts\": 64,"
	 " \"n_shared_experts\": 1, \"num_experts_per_tok\": 8, \"n_group\": 8,"
	 " \"topk_group\": 4, \"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1,"
	 " \"num_nextn_predict_layers\": 0"},
	{"qwen2.5-vl-3b", "qwen2_5_vl", 2048, 36, 16, 2, 128, 11008, 151936, 128000, true, 1e-6,
	 1e6, "{\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}",
	 "\"image_token_id\": 151655, \"vision_config\": {\"depth\": 32, \"hidden_size\": 1280,"
	 " \"intermediate_size\": 3420, \"num_heads\": 16, \"out_hidden_size\": 2048,"
	 " \"patch_size\": 14, \"spatial_merge_size\": 2, \"temporal_patch_size\": 2,"
	 " \"window_size\": 112, \"fullatt_block_indexes\": [7, 15, 23, 31]}"},
};

static char *synthetic_config(const struct shape *s)
{
	char *text;
	int n;

	n = asprintf(
		&text,
		"{\n\"model_type\": \"%s\", \"torch_dtype\": \"bfloat16\",\n"
		"\"hidden_size\": %u, \"num_hidden_layers\": %u, \"intermediate_size\": %u,\n"
		"\"num_attention_heads\": %u, \"num_key_value_heads\": %u, \"head_dim\": %u,\n"
		"\"vocab_size\": %u, \"max_position_embeddings\": %u, \"rms_norm_eps\": %g,\n"
		"\"tie_word_embeddings\": %s, \"rope_theta\": %g, \"rope_scaling\": %s%s%s\n}\n",
		s->model_type, s->hidden, s->layers, s->inner, s->heads, s->kv_heads, s->head_dim,
		s->vocab, s->positions, s->eps, s->tied ? "true" : "false", s->theta,
		s->rope_scaling, s->more ? ",\n" : "", s->more ? s->more : "");
	return n < 0 ? NULL : text;
}

char *model_synthetic_list(char *buf, size_t len)
{
	size_t i, at = 0;

	for (i = 0; i < sizeof(synthetic) / sizeof(synthetic[0]) && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "",
				       synthetic[i].name);
	return buf;
}

/* @text is taken over by the model. */
static int open_text(const char *name, char *text, struct model *ret, struct tool_error *error)
{
	struct model m = {.config_text = text};
	int r;

	if (!text)
		return tool_fail(error, -ENOMEM, "no memory");
	m.config_bytes = strlen(text);
	r = config_parse(m.config_text, m.config_bytes, &m.config, error);
	if (r) {
		model_close(&m);
		return r;
	}
	snprintf(m.name, sizeof(m.name), "synthetic-%s", name);
	hash_source(&m, -1);
	*ret = m;
	return 0;
}

int model_open_text(const char *name, const char *config, struct model *ret,
		    struct tool_error *error)
{
	return open_text(name, strdup(config), ret, error);
}

int model_open_synthetic(const char *name, struct model *ret, struct tool_error *error)
{
	char known[256];
	size_t i;

	for (i = 0; i < sizeof(synthetic) / sizeof(synthetic[0]); i++) {
		if (!strcmp(synthetic[i].name, name))
			return open_text(name, synthetic_config(&synthetic[i]), ret, error);
	}
	return tool_fail(error, -EINVAL, "--synthetic: \"%.64s\" is unknown (%s are known)", name,
			 model_synthetic_list(known, sizeof(known)));
}

static int check_limit(const char *option, uint32_t value, uint32_t min, uint32_t max,
		       struct tool_error *error)
{
	if (value < min || value > max)
		return tool_fail(error, -ERANGE, "%s: %u is not in [%u, %u]", option, value, min,
				 max);
	return 0;
}

/* 32, or more, until the keys of a block take as much memory as the largest piece of a state. */
static uint32_t default_block_size(const struct model_config *c)
{
	const struct delta_config *d = &c->delta;
	uint64_t piece, head, kv = 0;
	uint32_t size = 32, i;

	if (!d->n_k_heads)
		return size;
	piece = txda_conv_state_bytes(2 * d->n_k_heads * d->k_dim + d->n_v_heads * d->v_dim,
				      d->kernel);
	head = txda_delta_state_bytes(d->k_dim, d->v_dim);
	piece = head > piece ? head : piece;
	for (i = 0; i < c->n_layers; i++)
		kv += d->layer[i] ? 0 : txda_kv_layer_bytes(c->n_kv_heads, c->head_dim, 1);
	while (size < 1024 && piece > kv * size)
		size *= 2;
	return size;
}

/* What readers of a case dir accept: lib/base/case_info.c. */
static int check_name(const char *name, struct tool_error *error)
{
	size_t len = strlen(name);

	if (!len || len > 127)
		return tool_fail(error, -EINVAL, "--name: not 1 to 127 bytes");
	if (utf8_valid_prefix((const uint8_t *)name, len) != len)
		return tool_fail(error, -EINVAL, "--name: not valid UTF-8");
	for (; *name; name++)
		if (utf8_control(name))
			return tool_fail(error, -EINVAL, "--name: has a control character");
	return 0;
}

int model_resolve_options(const struct model *m, struct compile_options *o,
			  struct tool_error *error)
{
	const struct model_config *c = &m->config;
	int r;

	if (!o->tp)
		o->tp = c->parallel_size ? c->parallel_size : 1;
	if (!o->block_size)
		o->block_size = default_block_size(c);
	if (!o->max_context)
		o->max_context = config_default_context(c);
	if (o->topk > c->vocab_size)
		o->topk = c->vocab_size;
	o->hidden |= m->embedding;
	if (!o->name)
		o->name = m->name;
	if (o->role == PROGRAM_DECODE)
		o->max_tokens = o->max_seqs;
	if (o->role != PROGRAM_STEP)
		o->max_rows = o->max_seqs;
	if (o->mtp && (o->role != PROGRAM_STEP || o->embeds))
		return tool_fail(error, -EINVAL,
				 "--mtp is a program of its own and takes tokens: not with --%s",
				 o->embeds ? "inputs embeds" : "program");
	if (o->group && o->group != 32 && o->group != 64 && o->group != 128)
		return tool_fail(error, -EINVAL, "--group: %u is not 32, 64 or 128", o->group);
	if (!txda_is_block_size(o->block_size))
		return tool_fail(error, -EINVAL,
				 "--block-size: %u is not 16, 32, 64, 128, 256, 512 or 1024",
				 o->block_size);
	r = check_name(o->name, error);
	if (!r)
		r = check_limit("--tp", o->tp, 1, TXDA_MAX_GROUP, error);
	if (!r)
		r = check_limit("--max-tokens", o->max_tokens, 1, 1u << 17, error);
	if (!r)
		r = check_limit("--max-seqs", o->max_seqs, 1, 1u << 16, error);
	if (!r)
		r = check_limit("--max-rows", o->max_rows, 1, 1u << 16, error);
	if (!r)
		r = check_limit("--max-context", o->max_context, 1, 1u << 28, error);
	if (!r)
		r = check_limit("--topk", o->topk, 1, TXDA_TOPK_MAX, error);
	if (!r)
		r = check_limit("--max-image-tokens", o->max_image_tokens, 1, 1u << 16, error);
	return r;
}

/*
 * The compiler's own file: two builds of one version may generate different programs. If it cannot
 * be read only the version is used.
 */
static void add_compiler(struct sha256 *h)
{
	FILE *f = fopen("/proc/self/exe", "re");
	unsigned char block[16384];
	size_t n;

	while (f && (n = fread(block, 1, sizeof(block), f)) > 0)
		sha256_update(h, block, n);
	if (f)
		fclose(f);
}

void model_cache_key(const struct model *m, const struct compile_options *o, char key[33])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_string(&h, COMPILE_VERSION);
	add_compiler(&h);
	sha256_u64(&h, (uint64_t)TXDA_ISA_MAJOR << 16 | TXDA_ISA_MINOR);
	sha256_string(&h, m->source_hash);
	sha256_string(&h, weight_mode_name(o->weights));
	sha256_string(&h, o->name);
	sha256_u64(&h, o->tp);
	sha256_u64(&h, o->expert_parallel);
	sha256_u64(&h, o->kv_int8);
	sha256_u64(&h, o->hidden);
	sha256_u64(&h, o->states);
	sha256_u64(&h, o->keys);
	sha256_u64(&h, o->role);
	sha256_u64(&h, o->embeds);
	sha256_u64(&h, o->mtp);
	sha256_u64(&h, o->ignore_unused);
	sha256_u64(&h, o->group);
	sha256_u64(&h, o->block_size);
	sha256_u64(&h, o->max_tokens);
	sha256_u64(&h, o->max_seqs);
	sha256_u64(&h, o->max_rows);
	sha256_u64(&h, o->max_context);
	sha256_u64(&h, o->topk);
	sha256_u64(&h, o->max_image_tokens);
	sha256_hex128(&h, key);
}
