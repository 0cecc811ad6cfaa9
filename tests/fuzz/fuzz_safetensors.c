// SPDX-License-Identifier: MIT
/* Any bytes as a safetensors file: of what opens, every tensor lies within the file and can be
 * read. */
#include "fuzz.h"
#include "../memory_file.h"
#include "json.h"
#include "safetensors.h"

static void read_tensor(const struct safetensors *st, const char *name)
{
	const struct safetensors_file *file = safetensors_file(st, 0);
	const struct safetensors_tensor *t = safetensors_find(st, name);
	const uint8_t *begin = file->map, *at;
	volatile uint8_t sum = 0;
	size_t offset;

	if (!t || strcmp(t->name, name))
		abort();
	at = t->data;
	offset = (size_t)(at - begin);
	if (at < begin || offset > file->bytes || t->bytes > file->bytes - offset)
		abort();
	for (size_t i = 0; i < t->bytes; i++)
		sum = (uint8_t)(sum + at[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tool_error error = {{0}};
	const struct safetensors_file *file;
	struct safetensors *st;
	cJSON *header, *entry;

	if (safetensors_open_fd(memory_file(data, size), "input", &st, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	file = safetensors_file(st, 0);
	if (tool_json_parse(file->header, file->header_bytes, &header, &error))
		abort();
	cJSON_ArrayForEach(entry, header) {
		if (strcmp(entry->string, "__metadata__"))
			read_tensor(st, entry->string);
	}
	cJSON_Delete(header);
	safetensors_metadata(st, "cases");
	safetensors_close(st);
	return 0;
}
