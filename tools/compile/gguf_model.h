/* SPDX-License-Identifier: MIT */
/*
 * A GGUF file, or several that are one model (gguf_name.h), as a model: metadata, which is the first
 * file's, in the words of config.json and the tokeniser's files, tensors under the names that the
 * families know (family.h).
 */
#ifndef TXDA_COMPILE_GGUF_MODEL_H
#define TXDA_COMPILE_GGUF_MODEL_H

#include "config.h"
#include "gguf.h"
#include "source.h"

struct gguf_model;

/* The value of general.architecture. */
struct gguf_architecture {
	const char *name, *model_type;
	bool neighbours; /* rows of queries and keys are in the order in which neighbours rotate */
	bool experts;
	bool biased;	    /* queries, keys and values alone may have biases */
	bool whole_norms;   /* norms are as they multiply, where checkpoints lack 1 */
	const char *naming; /* kin in which names mean something else; or NULL */
	double rotating;    /* share of a head */
};

/* NULL, and the error says which are supported. */
const struct gguf_architecture *gguf_architecture(const struct gguf *g, struct tool_error *error);

/* The file @name, or all parts if it is one of several; @dirfd as gguf_open() has it, and with AT_FDCWD
 * all of them belong to one user. Errors name the file. */
int gguf_model_open(int dirfd, const char *name, struct gguf_model **ret, struct tool_error *error);
/* Of @n files in their order, which are the model's from here on, also on failure. */
int gguf_model_new(struct gguf *const *files, unsigned n, struct gguf_model **ret,
		   struct tool_error *error);
void gguf_model_free(struct gguf_model *m);
/* NULL behind the last one. */
struct gguf *gguf_model_file(const struct gguf_model *m, unsigned index);
/* -ESTALE: a file was written since. */
int gguf_model_unchanged(const struct gguf_model *m, struct tool_error *error);

/* As source_find(), of any format; one expert's matrix is a part of the tensor of all. */
int gguf_model_find(const struct gguf_model *m, const char *name, uint64_t rows, uint64_t cols,
		    struct source_tensor *ret, struct tool_error *error);
/* The tensor as it is in its file, or NULL. */
const struct gguf_tensor *gguf_model_tensor(const struct gguf_model *m, const char *name);
bool gguf_model_has(const struct gguf_model *m, const char *name);

/* The text of a config.json; free(). */
int gguf_config(const struct gguf_model *m, char **ret, struct tool_error *error);
/* What such files have otherwise than checkpoints of the same config.json. */
void gguf_adapt(const struct gguf_model *m, struct model_config *c);

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
