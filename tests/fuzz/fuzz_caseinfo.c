// SPDX-License-Identifier: MIT
/*
 * Any bytes as model_info.json or, when they start like one, as kcore.bin: what is accepted must be
 * safe to follow. The checksum of a program is made right first, or nothing would come past it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "case_info.h"
#include "crc32c.h"
#include "isa_names.h"
#include "program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* so that what is read is read */

static void follow_program(const uint8_t *data, size_t size)
{
	struct txda_program *header = aligned_alloc(64, (size + 63) & ~(size_t)63);
	struct txda__program p;
	char err[256] = "", shape[64];

	if (!header)
		return;
	memcpy(header, data, size);
	if (size >= sizeof(*header)) {
		header->bytes = size;
		header->crc32c = 0;
		header->crc32c = crc32c(0, header, size);
	}
	if (txda__program_check(header, size, &p, err, sizeof(err)) < 0) {
		if (!err[0])
			abort();
		free(header);
		return;
	}
	for (uint32_t i = 0; i < p.header->n_slots; i++) {
		sink += strlen(txda__program_string(&p, p.slot[i].name)) + p.slot[i].bytes;
		if (p.slot[i].kind < TXDA_SLOT_INPUT)
			continue;
		sink += txda__program_tensor_bytes(&p, &p.tensor[p.io_tensor[i]]);
		txda__program_shape(&p.tensor[p.io_tensor[i]], shape, sizeof(shape));
	}
	for (uint32_t i = 0; i < p.header->n_ops; i++)
		sink += strlen(txda__program_string(&p, p.op[i].label)) +
			strlen(isa_opcode_name(p.op[i].op));
	free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint32_t magic = TXDA_PROGRAM_MAGIC;
	static struct txda__case info;
	char err[256] = "";

	if (size >= 4 && !memcmp(data, &magic, 4))
		follow_program(data, size);
	else if (txda__case_parse((const char *)data, size, &info, err, sizeof(err)) < 0 && !err[0])
		abort();
	return 0;
}
