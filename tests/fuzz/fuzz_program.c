// SPDX-License-Identifier: MIT
/* Any bytes as kcore.bin, with a checksum that fits: what the checker accepts can be walked without
 * harm. */
#include "fuzz.h"
#include "crc32c.h"
#include "program_view.h"

static void walk(const struct program_view *v)
{
	char shape[96];
	size_t sum = 0;
	uint32_t i;

	for (i = 0; i < v->header->n_tensors; i++) {
		sum += strlen(program_name(v, v->tensors[i].name));
		sum += strlen(program_shape(&v->tensors[i], shape, sizeof(shape)));
		sum += program_tensor_bytes(v, &v->tensors[i]);
	}
	for (i = 0; i < v->header->n_ops; i++)
		sum += strlen(program_name(v, v->ops[i].label));
	if (sum == SIZE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t at = offsetof(struct txda_program, crc32c);
	struct tool_error error = {{0}};
	struct program_view v;
	uint64_t bytes = size;
	uint8_t *copy;
	uint32_t crc;

	if (size < sizeof(struct txda_program))
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	memcpy(copy + offsetof(struct txda_program, bytes), &bytes, sizeof(bytes));
	memset(copy + at, 0, 4);
	crc = crc32c(0, copy, size);
	memcpy(copy + at, &crc, 4);
	if (!program_view(copy, size, &v, &error))
		walk(&v);
	else if (!error.text[0])
		abort();
	free(copy);
	return 0;
}
