// SPDX-License-Identifier: MIT
/*
 * Any bytes as model_info.json or, when they start like one, as kcore.bin: what is accepted must be
 * safe to follow. The checksum of a program is made right first, or nothing would come past it.
 */
#include "fuzz.h"
#include "case_info.h"
#include "crc32c.h"
#include "isa_names.h"
#include "program.h"

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

/* What is accepted has names that end, files below the case dir and shapes of known types. */
static void follow_info(const struct case_info *c)
{
	char err[256];

	for (unsigned i = 0; i < c->tp; i++)
		if (strstr(c->chip[i].kcore, "..") == c->chip[i].kcore || *c->chip[i].param == '/')
			abort();
	for (unsigned i = 0; i < c->n_programs; i++)
		sink += strlen(c->program[i]);
	for (unsigned i = 0; i < c->n_inputs; i++)
		sink += strlen(c->input[i].name) + isa_dtype_bytes(c->input[i].dtype) +
			c->input[i].dim[c->input[i].ndim - 1].mul;
	/* The daemon accepts what its confined process has read. */
	if (case_info_check(c, err, sizeof(err)) < 0)
		abort();
}

/* What the daemon takes from a confined process that sends anything: @lie lies over the truth. */
static void follow_said(struct case_said *said, const uint8_t *lie, size_t size)
{
	uint32_t at = crc32c(0, lie, size);

	for (unsigned i = 0; i < 4; i++, at = at * 1664525 + 1013904223)
		((uint8_t *)said)[at % sizeof(*said)] ^= (uint8_t)(at >> 24 | 1);
	case_said_tame(said);
	for (unsigned i = 0; i < said->facts.n_files; i++)
		sink += strlen(said->facts.file[i].name);
	sink += strlen(said->facts.family) + strlen(said->message);
	if (!said->error)
		follow_info(&said->info);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint32_t magic = TXDA_PROGRAM_MAGIC;
	static struct case_said said;
	char err[256] = "";

	if (size >= 4 && !memcmp(data, &magic, 4)) {
		follow_program(data, size);
		return 0;
	}
	if (case_said_parse((const char *)data, size, &said, err, sizeof(err)) < 0) {
		if (!err[0])
			abort();
		return 0;
	}
	if (said.error ? !said.message[0] : 0)
		abort();
	if (!said.error)
		follow_info(&said.info);
	follow_said(&said, data, size);
	return 0;
}
