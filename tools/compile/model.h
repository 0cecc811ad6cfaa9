/* SPDX-License-Identifier: MIT */
/*
 * A model to compile: its config, its source of weights, and its identity. From a Hugging Face
 * directory, a GGUF file, or synthetic.
 */
#ifndef TXDA_COMPILE_MODEL_H
#define TXDA_COMPILE_MODEL_H

#include "config.h"
#include "gguf_model.h"
#include "options.h"
#include "source.h"

/* A file that is copied to the case dir unchanged, as it was when the model was opened. */
struct model_file {
	char *name; /* below the directory */
	struct file_identity identity;
};

struct model {
	char *path; /* NULL: synthetic */
	char name[128];
	char *config_text;
	size_t config_bytes;
	struct model_config config;
	struct source source;
	struct gguf_file made[GGUF_FILES]; /* files derived from a GGUF file, besides config.json */
	bool embedding;	 /* sentence-transformers: the result is a vector of the text */
	char pooling[8]; /* "last", "mean" or "cls" */
	bool normalize;	 /* to length 1 */
	/*
	 * Hash of the location, names, owners, sizes and times of its files, of config and tensor
	 * headers.
	 */
	char source_hash[33];
	struct model_file *copied; /* [n_copied], config.json first; of a directory */
	unsigned n_copied;
	char *compiled; /* the case dir in param_dir, where safetensors lie beside config.json;
			   else NULL */
};

/*
 * A directory, or a GGUF file, or a directory with one and without a config.json. -EEXIST: its
 * param_dir is a case dir, and there are no safetensors to compile.
 */
int model_open(const char *path, struct model *ret, struct tool_error *error);
/* "qwen3-0.6b" and others: a known shape with random weights. */
int model_open_synthetic(const char *name, struct model *ret, struct tool_error *error);
/* A config.json's text with random weights. */
int model_open_text(const char *name, const char *config, struct model *ret,
		    struct tool_error *error);
void model_close(struct model *m);
/* "qwen3-0.6b, …" in @buf. Returns buf. */
char *model_synthetic_list(char *buf, size_t len);

/* Fills in what depends on the model (tp, max_context, topk, name) and checks every limit. */
int model_resolve_options(const struct model *m, struct compile_options *o,
			  struct tool_error *error);

/* Changes with the source, the resolved options and the compiler: the name of a cached case dir. */
void model_cache_key(const struct model *m, const struct compile_options *o, char key[33]);

#endif /* TXDA_COMPILE_MODEL_H */
