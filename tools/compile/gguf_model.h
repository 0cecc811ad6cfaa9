/* SPDX-License-Identifier: MIT */
/*
 * A GGUF file as a model: its metadata in the words of config.json and the tokeniser's files, its
 * tensors under the names that the families know (family.h).
 */
#ifndef TXDA_COMPILE_GGUF_MODEL_H
#define TXDA_COMPILE_GGUF_MODEL_H

#include "gguf.h"
#include "source.h"

struct gguf_model;

/* @g is the model's from here on, also on failure. */
int gguf_model_new(struct gguf *g, struct gguf_model **ret, struct tool_error *error);
void gguf_model_free(struct gguf_model *m);
struct gguf *gguf_model_file(const struct gguf_model *m);

/* As source_find(), of any format; one expert's matrix is a part of the tensor of all. */
int gguf_model_find(const struct gguf_model *m, const char *name, uint64_t rows, uint64_t cols,
		    struct source_tensor *ret, struct tool_error *error);
bool gguf_model_has(const struct gguf_model *m, const char *name);

/* The text of a config.json; free(). */
int gguf_config(const struct gguf_model *m, char **ret, struct tool_error *error);
/* Whether rows of queries and keys are in the order in which neighbours rotate. */
bool gguf_rope_interleaved(const struct gguf_model *m);

/* A file for the text side; text NULL: there is none. free() the text. */
struct gguf_file {
	const char *name;
	char *text;
	size_t bytes;
};
#define GGUF_FILES 2
/* tokenizer.json or tokenizer.model, tokenizer_config.json. */
int gguf_tokenizer(const struct gguf *g, struct gguf_file *ret, struct tool_error *error);

#endif /* TXDA_COMPILE_GGUF_MODEL_H */
