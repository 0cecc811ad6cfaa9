// SPDX-License-Identifier: MIT
/* Any bytes as a safetensors file: of what opens, every tensor lies within the file and can be
 * read. */
#include "safetensors.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tool_error error = {{0}};
	const struct safetensors_tensor *t;
	struct safetensors *st;
	volatile uint8_t sum = 0;
	size_t i, j;

	if (safetensors_open_memory(data, size, &st, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	for (i = 0; (t = safetensors_at(st, i)); i++) {
		const uint8_t *p = t->data;

		if (p < data || (size_t)(p - data) > size || t->bytes > size - (size_t)(p - data))
			abort();
		if (safetensors_find(st, t->name) != t)
			abort();
		for (j = 0; j < t->bytes; j++)
			sum = (uint8_t)(sum + p[j]);
	}
	safetensors_metadata(st, "cases");
	safetensors_close(st);
	return 0;
}
