/* SPDX-License-Identifier: MIT */
/*
 * model_info.json of a case dir (docs/case-dir.md), checked.
 *
 * The file is untrusted: every number is checked for type and range, every name for its form, and
 * file names must stay below the case dir. Unknown keys are skipped, so that later versions may add
 * some; `format` distinguishes incompatible versions.
 *
 * A process that must not parse others' JSON has another one do it (case_info_use()). What that one
 * sends has the form of struct case_said and is checked like the file: plain numbers and texts,
 * without pointers.
 *
 * Errors: -EINVAL with a message in @err that names the key and its value; -EFBIG; those of open()
 * and read().
 * Threads: any, except case_info_use().
 */
#ifndef TXDA_BASE_CASE_INFO_H
#define TXDA_BASE_CASE_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "txda_isa.h"

#define CASE_INFO_NAME	  "model_info.json"
#define CASE_INFO_BYTES	  ((size_t)1 << 20) /* of the file */
#define CASE_MAX_CHIPS	  8
#define CASE_MAX_TENSORS  32
#define CASE_MAX_PROGRAMS 8

struct case_chip {
	char kcore[128], param[128]; /* relative to the case dir */
	uint64_t kcore_bytes, param_bytes, scratch_bytes, io_bytes;
	uint32_t param_crc32c;
};

struct case_tensor {
	char name[64];
	uint8_t dtype; /* enum txda_dtype */
	uint8_t ndim;
	struct txda_dim dim[4];
};

struct case_vision_chip {
	char kcore[128];
	uint64_t kcore_bytes, scratch_bytes, io_bytes;
};

/* The program `vision`: the fields of the case that differ for it. */
struct case_vision {
	uint32_t present; /* 0 or 1 */
	uint32_t max_tokens, max_seqs, max_rows, max_blocks;
	struct case_vision_chip chip[CASE_MAX_CHIPS];
	uint32_t n_inputs, n_outputs;
	struct case_tensor input[CASE_MAX_TENSORS], output[CASE_MAX_TENSORS];
};

struct case_info {
	char name[128], family[32], weights[16];
	uint32_t tp;
	uint32_t max_tokens, max_seqs, max_rows, max_blocks, max_context;
	uint32_t vocab, layers, topk;
	uint32_t block_size;
	uint64_t kv_block_bytes; /* per chip */
	char pooling[8];	 /* "": none */
	uint32_t normalize;	 /* 0 or 1 */
	struct case_chip chip[CASE_MAX_CHIPS];
	uint32_t n_programs;
	char program[CASE_MAX_PROGRAMS][32];
	uint32_t n_inputs, n_outputs;
	struct case_tensor input[CASE_MAX_TENSORS], output[CASE_MAX_TENSORS];
	struct case_vision vision;
};

/* Replaces files, limits and tensors by those of the program `vision`, which must be present. */
void case_info_to_vision(struct case_info *c);

/* From the parsed file. */
int case_info_take(const cJSON *root, struct case_info *ret, char *err, size_t errlen);
/* Whether one from another process is what case_info_take() could have made. -EINVAL */
int case_info_check(const struct case_info *c, char *err, size_t errlen);

enum case_experts {
	CASE_EXPERTS_UNKNOWN,
	CASE_EXPERTS_IN_PARTS, /* each chip has a part of each */
	CASE_EXPERTS_WHOLE,    /* each chip has some of them */
};

/* How a case dir was compiled, as far as it is stated; 0 and "": it is not. */
struct case_facts {
	uint32_t tp, vocab, hidden, layers;
	char family[64], weights[16], kv[16];
	uint32_t experts;    /* of enum case_experts */
	uint32_t lacks_step; /* its programs are stated, without "step" */
	uint32_t n_files;
	struct {
		char name[128];
		uint64_t bytes;	    /* 0: not stated */
	} file[2 * CASE_MAX_CHIPS]; /* programs and weights */
};

/* What a model_info.json says. */
struct case_said {
	struct case_facts facts; /* also those of an invalid one */
	int32_t error;		 /* 0; -EINVAL: info is not valid, and message says why */
	char message[300];
	struct case_info info;
};

/* Parses the file in this process; @text need not be NUL-terminated. -EINVAL: no JSON object. */
int case_said_parse(const char *text, size_t bytes, struct case_said *ret, char *err,
		    size_t errlen);
/* The same in two steps; the caller frees *ret_root. */
int case_said_json(const char *text, size_t bytes, cJSON **ret_root, char *err, size_t errlen);
int case_said_take(const cJSON *root, struct case_said *ret, char *err, size_t errlen);
/*
 * Sanitises what another process sent: texts get a NUL, and numbers out of range become an error.
 */
void case_said_tame(struct case_said *said);

/* Reads the open file, which has at most CASE_INFO_BYTES. */
typedef int case_info_reader(int fd, struct case_said *ret, char *err, size_t errlen);
/* From now on this process has @reader read all such files. Call it before threads start. */
void case_info_use(case_info_reader *reader);

/* Opens (owned.h) and reads the file of the case dir @dir_fd; @err does not name the directory. */
int case_said_read(int dir_fd, struct case_said *ret, char *err, size_t errlen);

#endif /* TXDA_BASE_CASE_INFO_H */
