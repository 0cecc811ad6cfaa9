// SPDX-License-Identifier: MIT
/* Any bytes as a GGUF file: of what opens, every tensor lies within the file and can be read, and the
 * metadata becomes a config and a tokeniser or an error in words. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "gguf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const struct gguf *g, const uint8_t *data, size_t size)
{
	const struct gguf_tensor *t;
	volatile uint8_t sum = 0;

	for (size_t i = 0; (t = gguf_at(g, i)); i++) {
		if (t->data < data || (size_t)(t->data - data) > size ||
		    t->bytes > size - (size_t)(t->data - data))
			abort();
		for (size_t j = 0; j < t->bytes; j++)
			sum = (uint8_t)(sum + t->data[j]);
	}
}

static void read_model(const struct gguf_model *m)
{
	static struct model_config config;
	struct gguf_file files[GGUF_FILES] = {{0}};
	struct tool_error error = {{0}};
	struct source_tensor t;
	char *text;
	float first;

	if (gguf_config(m, &text, &error)) {
		if (!error.text[0])
			abort();
	} else {
		config_parse(text, strlen(text), &config, &error);
		free(text);
	}
	error.text[0] = '\0';
	if (gguf_tokenizer(gguf_model_file(m), files, &error) && !error.text[0])
		abort();
	for (unsigned i = 0; i < GGUF_FILES; i++)
		free(files[i].text);
	if (!gguf_model_find(m, "model.layers.0.mlp.experts.1.up_proj.weight", 4, 32, &t, &error))
		source_read(&t, 3, 31, 1, &first);
	if (!gguf_model_find(m, "model.embed_tokens.weight", 8, 32, &t, &error))
		source_read(&t, 7, 31, 1, &first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tool_error error = {{0}};
	struct gguf_model *m;
	struct gguf *g;

	if (gguf_open_memory(data, size, &g, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	read_tensors(g, data, size);
	if (gguf_model_new(g, &m, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	read_model(m);
	gguf_model_free(m);
	return 0;
}
