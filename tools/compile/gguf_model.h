/* SPDX-License-Identifier: MIT */
/*
 * A GGUF file, or several that form one model (gguf_name.h): converts the metadata of the first
 * file to config.json and the tokeniser's files, and finds tensors by the names that the families
 * use (family.h).
 */
#ifndef TXDA_COMPILE_GGUF_MODEL_H
#define TXDA_COMPILE_GGUF_MODEL_H

#include "gguf.h"
#include "source_tensor.h"

struct gguf_model;
struct model_config;

enum gguf_routing {
	GGUF_ROUTING_NONE,     /* no experts */
	GGUF_ROUTING_PLAIN,    /* experts in all layers, by softmax */
	GGUF_ROUTING_DEEPSEEK, /* first layers without, groups, a scale, by sigmoid or softmax */
};

/* The value of general.architecture. */
struct gguf_architecture {
	const char *name, *model_type;
	bool neighbours; /* rows of queries and keys are ordered to rotate neighbours */
	enum gguf_routing routing;
	bool biased;	    /* only queries, keys and values may have biases */
	bool alternating;   /* every second layer has the window of attention.sliding_window */
	bool latent;	    /* latent attention */
	bool ahead;	    /* may have layers that predict further tokens */
	bool whole_norms;   /* norms are stored as 1 + weight, unlike in checkpoints */
	const char *naming; /* kind of architecture in which names have other meanings; or NULL */
	double rotating;    /* share of a head that rotates */
};

/* NULL: not supported; the error lists those that are. */
const struct gguf_architecture *gguf_architecture(const struct gguf *g, struct tool_error *error);

/*
 * Opens the file @name, or all parts if it is one of several; @dirfd as for gguf_open(); with
 * AT_FDCWD all parts must belong to one user. Errors name the file.
 */
int gguf_model_open(int dirfd, const char *name, struct gguf_model **ret, struct tool_error *error);
/* From @n files in their order, which the model takes over, also on failure. */
int gguf_model_new(struct gguf *const *files, unsigned n, struct gguf_model **ret,
		   struct tool_error *error);
void gguf_model_free(struct gguf_model *m);
/* NULL after the last one. */
struct gguf *gguf_model_file(const struct gguf_model *m, unsigned index);
/* -ESTALE: the size or times of a file have changed since. */
int gguf_model_unchanged(const struct gguf_model *m, struct tool_error *error);

/* As source_find(), for any format; one expert's matrix is a part of the tensor of all. */
int gguf_model_find(const struct gguf_model *m, const char *name, uint64_t rows, uint64_t cols,
		    struct source_tensor *ret, struct tool_error *error);
/*
 * For source_next_unused(): tensors that gguf_model_find() was never asked for, except matrices that
 * the file also has in halves.
 */
bool gguf_model_next_unused(const struct gguf_model *m, size_t *at, const char **ret_name,
			    const char **ret_stored);
/* The tensor as stored in its file, or NULL. */
const struct gguf_tensor *gguf_model_tensor(const struct gguf_model *m, const char *name);
bool gguf_model_has(const struct gguf_model *m, const char *name);

/* The text of a config.json; to be freed. */
int gguf_config(const struct gguf_model *m, char **ret, struct tool_error *error);
/* Adjusts @c for differences between such files and checkpoints with the same config.json. */
void gguf_adapt(const struct gguf_model *m, struct model_config *c);

/* A file for the text side; text NULL: there is none. To be freed. */
struct gguf_file {
	const char *name;
	char *text;
	size_t bytes;
};
#define GGUF_FILES 2
/* tokenizer.json or tokenizer.model, tokenizer_config.json. */
int gguf_tokenizer(const struct gguf *g, struct gguf_file *ret, struct tool_error *error);

#endif /* TXDA_COMPILE_GGUF_MODEL_H */
