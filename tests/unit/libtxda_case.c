// SPDX-License-Identifier: MIT
#include "libtxda_case.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"
#include "txda.h"
#include "txda_isa.h"

enum { SLOT_WEIGHTS, SLOT_KV, SLOT_SCRATCH, SLOT_X, SLOT_ROWS, SLOT_Y, N_SLOTS };
enum { T_W, T_S, T_SUM, T_X, T_ROWS, T_Y, N_TENSORS };

/* One buffer with everything, in the order of the header. */
struct image {
	struct txda_program header;
	struct txda_slot slot[N_SLOTS];
	struct txda_tensor tensor[N_TENSORS];
	struct txda_op op[3];
	char strings[256];
};

static uint32_t add_string(struct image *image, const char *text)
{
	uint32_t at = image->header.strings_bytes;

	strcpy(image->strings + at, text);
	image->header.strings_bytes += (uint32_t)strlen(text) + 1;
	return at;
}

static struct txda_tensor tensor(struct image *image, const char *name, unsigned slot,
				 uint64_t offset, unsigned dtype, unsigned sym, unsigned width)
{
	struct txda_tensor t = {.name = add_string(image, name),
				.slot = (uint16_t)slot,
				.dtype = (uint8_t)dtype,
				.offset = offset,
				.flags = slot == SLOT_SCRATCH ? TXDA_TENSOR_ACTIVATION : 0};

	if (sym)
		t.dim[t.ndim++] = (struct txda_dim){sym, 1};
	if (width)
		t.dim[t.ndim++] = (struct txda_dim){0, width};
	return t;
}

static struct txda_op op(struct image *image, unsigned opcode, const char *label, uint32_t in0,
			 uint32_t in1, uint32_t out)
{
	struct txda_op o = {.op = (uint16_t)opcode, .label = add_string(image, label)};

	memset(o.in, 0xff, sizeof(o.in));
	memset(o.out, 0xff, sizeof(o.out));
	o.in[0] = in0;
	o.in[1] = in1;
	o.out[0] = out;
	return o;
}

void case_seal(void *program, size_t bytes)
{
	struct txda_program *header = program;

	header->crc32c = 0;
	header->crc32c = crc32c(0, program, bytes);
}

void *case_program(unsigned tp, unsigned rank, size_t *ret_bytes)
{
	struct image *image = calloc(1, sizeof(*image));
	struct txda_program *h = &image->header;
	uint32_t n = 0;

	*h = (struct txda_program){
		.magic = TXDA_PROGRAM_MAGIC,
		.major = TXDA_ISA_MAJOR,
		.minor = TXDA_ISA_MINOR,
		.bytes = sizeof(*image),
		.n_slots = rank ? SLOT_Y : N_SLOTS,
		.n_tensors = rank ? T_Y : N_TENSORS,
		.slots_off = offsetof(struct image, slot),
		.tensors_off = offsetof(struct image, tensor),
		.ops_off = offsetof(struct image, op),
		.strings_off = offsetof(struct image, strings),
		.group_size = tp,
		.rank = rank,
		.sym_max = {0, CASE_T, 4, CASE_R, 4, CASE_N},
	};
	h->name = add_string(image, "step");
	image->slot[SLOT_WEIGHTS] =
		(struct txda_slot){add_string(image, "weights"), TXDA_SLOT_WEIGHTS, CASE_H * 4};
	image->slot[SLOT_KV] =
		(struct txda_slot){add_string(image, "kv"), TXDA_SLOT_KV, CASE_KV_BYTES};
	image->slot[SLOT_SCRATCH] =
		(struct txda_slot){add_string(image, "scratch"), TXDA_SLOT_SCRATCH, CASE_SCRATCH};
	image->slot[SLOT_X] = (struct txda_slot){0, TXDA_SLOT_INPUT, CASE_T * CASE_H * 4};
	image->slot[SLOT_ROWS] = (struct txda_slot){0, TXDA_SLOT_INPUT, CASE_R * 4};
	image->slot[SLOT_Y] = (struct txda_slot){0, TXDA_SLOT_OUTPUT, CASE_R * CASE_H * 4};
	image->tensor[T_W] = tensor(image, "w", SLOT_WEIGHTS, 0, TXDA_F32, 0, CASE_H);
	image->tensor[T_S] = tensor(image, "s", SLOT_SCRATCH, 0, TXDA_F32, TXDA_SYM_T, CASE_H);
	image->tensor[T_SUM] =
		tensor(image, "sum", SLOT_SCRATCH, CASE_SCRATCH / 2, TXDA_F32, TXDA_SYM_T, CASE_H);
	image->tensor[T_X] = tensor(image, "x", SLOT_X, 0, TXDA_F32, TXDA_SYM_T, CASE_H);
	image->tensor[T_ROWS] = tensor(image, "rows", SLOT_ROWS, 0, TXDA_I32, TXDA_SYM_R, 0);
	image->tensor[T_Y] = tensor(image, "y", SLOT_Y, 0, TXDA_F32, TXDA_SYM_R, CASE_H);
	for (unsigned i = T_X; i < N_TENSORS; i++)
		image->slot[image->tensor[i].slot].name = image->tensor[i].name;

	image->op[n] = op(image, TXDA_OP_RMSNORM, "the.norm", T_X, T_W, T_S);
	image->op[n++].rmsnorm.eps = 1e-6f;
	if (tp > 1)
		image->op[n++] = op(image, TXDA_OP_ALL_REDUCE, "the.sum", T_S, TXDA_NONE, T_SUM);
	if (!rank)
		image->op[n++] = op(image, TXDA_OP_GATHER_ROWS, "the.rows", tp > 1 ? T_SUM : T_S,
				    T_ROWS, T_Y);
	h->n_ops = n;
	case_seal(image, sizeof(*image));
	*ret_bytes = sizeof(*image);
	return image;
}

float case_weight(unsigned i)
{
	return (float)(i % 7) + 0.5f;
}

static void *case_param(void)
{
	unsigned char *param = malloc(CASE_PARAM);

	for (unsigned i = 0; i < CASE_PARAM; i++)
		param[i] = (unsigned char)(i * 31);
	for (unsigned i = 0; i < CASE_H; i++) {
		float w = case_weight(i);

		memcpy(param + i * 4, &w, 4);
	}
	return param;
}

char *case_info(unsigned tp)
{
	void *param = case_param();
	uint32_t crc = crc32c(0, param, CASE_PARAM);
	char *text = malloc(8192);
	int at;

	free(param);
	at = snprintf(text, 8192,
		      "{\"format\": 1, \"compiler\": \"by hand\", \"name\": \"tiny\", \"family\": "
		      "\"test\",\n"
		      " \"source_hash\": \"0\", \"weights\": \"bf16\", \"tp\": %u,\n"
		      " \"limits\": {\"tokens\": %d, \"seqs\": 4, \"rows\": %d, \"blocks\": 4, "
		      "\"context\": 128},\n"
		      " \"vocab\": 64, \"layers\": 1, \"topk\": 1,\n"
		      " \"kv\": {\"block_size\": 32, \"block_bytes\": %d, \"dtype\": \"bf16\"},\n"
		      " \"chips\": [",
		      tp, CASE_T, CASE_R, CASE_KV_BYTES);
	for (unsigned r = 0; r < tp; r++)
		at += snprintf(text + at, 8192 - (size_t)at,
			       "%s{\"kcore\": \"chip%u/kcore.bin\", \"kcore_bytes\": %zu, "
			       "\"param\": \"chip%u/param.bin\",\n"
			       "  \"param_bytes\": %d, \"param_crc32c\": %u, \"scratch_bytes\": "
			       "%d, \"io_bytes\": %d}",
			       r ? ",\n  " : "", r, sizeof(struct image), r, CASE_PARAM, crc,
			       CASE_SCRATCH, 6400);
	snprintf(
		text + at, 8192 - (size_t)at,
		"],\n \"programs\": [\"step\"],\n"
		" \"inputs\": [{\"name\": \"x\", \"dtype\": \"F32\", \"shape\": [\"T\", 64]},\n"
		"  {\"name\": \"rows\", \"dtype\": \"I32\", \"shape\": [\"R\"]}],\n"
		" \"outputs\": [{\"name\": \"y\", \"dtype\": \"F32\", \"shape\": [\"R\", 64]}]}\n");
	return text;
}

void case_put(const char *path, const char *name, const void *data, size_t bytes)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", path, name);
	file = fopen(full, "w");
	if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
		perror(full);
		exit(1);
	}
}

void case_write(unsigned tp, char **ret_path)
{
	const char *tmp = getenv("TMPDIR");
	char *path = malloc(512), *info = case_info(tp), name[64];
	void *param = case_param(), *program;
	size_t bytes;

	snprintf(path, 400, "%s/txda-case-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(path)) {
		perror(path);
		exit(1);
	}
	for (unsigned r = 0; r < tp; r++) {
		char full[512];

		snprintf(full, sizeof(full), "%.400s/chip%u", path, r);
		mkdir(full, 0755);
		program = case_program(tp, r, &bytes);
		snprintf(name, sizeof(name), "chip%u/kcore.bin", r);
		case_put(path, name, program, bytes);
		snprintf(name, sizeof(name), "chip%u/param.bin", r);
		case_put(path, name, param, CASE_PARAM);
		free(program);
	}
	case_put(path, "model_info.json", info, strlen(info));
	free(info);
	free(param);
	*ret_path = path;
}

void case_remove(char *path)
{
	char command[512];

	snprintf(command, sizeof(command), "rm -r '%.400s'", path);
	if (system(command))
		exit(1);
	free(path);
}

int case_run(struct txda_model *model, float y[CASE_R][CASE_H])
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	int32_t rows[CASE_R] = {0, 3, 5, 7, 1, 2, 15, 15};
	float x[CASE_T][CASE_H];
	uint64_t fence;
	int r;

	for (unsigned t = 0; t < CASE_T; t++)
		for (unsigned i = 0; i < CASE_H; i++)
			x[t][i] = (float)((t * 31 + i * 17) % 97) / 13 - 3;
	step.tokens = CASE_T;
	step.seqs = 1;
	step.rows = CASE_R;
	r = txda_model_set_input(model, "x", x, sizeof(x));
	if (r >= 0)
		r = txda_model_set_input(model, "rows", rows, sizeof(rows));
	if (r >= 0)
		r = txda_model_run(model, &step, &fence);
	if (r >= 0)
		r = txda_model_sync(model, fence, TXDA_FOREVER);
	if (r >= 0)
		r = txda_model_get_output(model, "y", y, sizeof(float) * CASE_R * CASE_H);
	return r;
}
