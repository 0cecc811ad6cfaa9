/* SPDX-License-Identifier: MIT */
/*
 * model_info.json of a case dir (docs/case-dir.md), checked.
 *
 * The file is untrusted: every number is checked for type and range, every name for its form, and
 * file names must stay below the case dir. Unknown keys are skipped, so that later versions may add
 * some; `format` distinguishes incompatible versions.
 * Errors: -EINVAL with a message in @err that names the key and its value; -EFBIG; those of open()
 * and read().
 * Threads: pure functions.
 */
#ifndef TXDA_CASE_INFO_H
#define TXDA_CASE_INFO_H

#include "internal.h"
#include "txda_isa.h"

#define TXDA__CASE_MAX_BYTES	(1u << 20) /* of model_info.json */
#define TXDA__CASE_MAX_TENSORS	32
#define TXDA__CASE_MAX_PROGRAMS 8

struct txda__case_chip {
	char kcore[128], param[128]; /* relative to the case dir */
	uint64_t kcore_bytes, param_bytes, scratch_bytes, io_bytes;
	uint32_t param_crc32c;
};

struct txda__case_tensor {
	char name[64];
	uint8_t dtype; /* enum txda_dtype */
	uint8_t ndim;
	struct txda_dim dim[4];
};

/* The program `vision`: the fields of the case that differ for it. */
struct txda__case_vision {
	bool present;
	unsigned max_tokens, max_seqs, max_rows, max_blocks;
	struct {
		char kcore[128];
		uint64_t kcore_bytes, scratch_bytes, io_bytes;
	} chip[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned n_inputs, n_outputs;
	struct txda__case_tensor input[TXDA__CASE_MAX_TENSORS], output[TXDA__CASE_MAX_TENSORS];
};

struct txda__case {
	char name[128], family[32], weights[16];
	unsigned tp;
	unsigned max_tokens, max_seqs, max_rows, max_blocks, max_context;
	unsigned vocab, layers, topk;
	unsigned block_size;
	uint64_t kv_block_bytes; /* per chip */
	char pooling[8];	 /* "": none */
	bool normalize;
	struct txda__case_chip chip[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned n_programs;
	char program[TXDA__CASE_MAX_PROGRAMS][32];
	unsigned n_inputs, n_outputs;
	struct txda__case_tensor input[TXDA__CASE_MAX_TENSORS], output[TXDA__CASE_MAX_TENSORS];
	struct txda__case_vision vision;
};

/* Replaces files, limits and tensors by those of the program `vision`, which must be present. */
void txda__case_to_vision(struct txda__case *c);

/* @text need not be NUL-terminated. */
int txda__case_parse(const char *text, size_t bytes, struct txda__case *ret_case, char *err,
		     size_t errlen);
/* Reads DIR/model_info.json. *ret_dir_fd is the case dir; the caller closes it. */
int txda__case_open(const char *path, int *ret_dir_fd, struct txda__case *ret_case, char *err,
		    size_t errlen);
/* Opens a regular file below the case dir, which must have @bytes. */
int txda__case_file(int dir_fd, const char *name, uint64_t bytes, int *ret_fd, char *err,
		    size_t errlen);
/*
 * Reads a whole file of @bytes, at most @max. The caller frees *ret_data, which is 64-byte aligned.
 */
int txda__case_read(int dir_fd, const char *name, uint64_t bytes, uint64_t max, void **ret_data,
		    char *err, size_t errlen);

#endif /* TXDA_CASE_INFO_H */
