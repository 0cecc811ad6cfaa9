// SPDX-License-Identifier: MIT
/* --dump prints each op of the instruction set with all of its operands and parameters: those in the
 * comments and structs of txda_isa.h. */
#include <ctype.h>
#include <fcntl.h>

#include "test_dir.h"
#include "compile.h"
#include "files.h"
#include "isa_names.h"
#include "op_text.h"
#include "program.h"
#include "program_view.h"

static struct tool_error error;
static char *isa; /* txda_isa.h */

static int set_up(void **state)
{
	char path[512];
	size_t bytes;

	snprintf(path, sizeof(path), "%s/txda_isa.h", getenv("TXDA_UAPI"));
	return test_dir_make(state) ||
	       tool_read_file(AT_FDCWD, path, 1 << 20, &isa, &bytes, &error);
}

static int tear_down(void **state)
{
	free(isa);
	return test_dir_remove(state);
}

/* The next line from *@pos on, without its newline; false: there is none. */
static bool next_line(const char **pos, char line[256])
{
	size_t n = strcspn(*pos, "\n");

	if (!**pos)
		return false;
	snprintf(line, 256, "%.*s", (int)n, *pos);
	*pos += n + ((*pos)[n] == '\n');
	return true;
}

static bool begins(const char *line, const char *with)
{
	return !strncmp(line, with, strlen(with));
}

/* The lines of the struct of an op; NULL: it has no parameters. */
static const char *struct_of(unsigned opcode)
{
	char name[64];
	const char *pos;

	snprintf(name, sizeof(name), "struct txda_op_%s {\n",
		 opcode == TXDA_OP_MLA_SPARSE ? "mla_attention" : isa_opcode_name(opcode));
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	pos = strstr(isa, name);
	return pos ? pos + strlen(name) : NULL;
}

TEST(parameters_are_printed)
{
	unsigned structs = 0;

	for (unsigned opcode = 0; opcode < TXDA_OP_COUNT; opcode++) {
		const char *pos = struct_of(opcode);
		struct txda_op op = {.op = (uint16_t)opcode};
		char text[OP_TEXT_BYTES], other[OP_TEXT_BYTES], line[256], type[16], name[64];
		unsigned word = 0, fields = 0, printed = 0;

		for (unsigned i = 0; i < ARRAY_SIZE(op.raw); i++)
			op.raw[i] = 0x3fc00000; /* 1.5 */
		op_text(&op, text);
		structs += !!pos;
		while (pos && next_line(&pos, line) && !begins(line, "};")) {
			const bool wide = strstr(line, "__u64");
			char label[70];

			if (sscanf(line, " %15[_a-z0-9] %63[_a-z0-9];", type, name) != 2)
				continue;
			word = wide ? (word + 1) / 2 * 2 : word;
			snprintf(label, sizeof(label), " %s ", name);
			for (unsigned bit = 0; bit < (wide ? 64 : 32); bit++) {
				op.raw[word + bit / 32] ^= 1u << bit % 32;
				op_text(&op, other);
				op.raw[word + bit / 32] ^= 1u << bit % 32;
				if (!strcmp(name, "reserved"))
					assert_string_equal(other, text);
				else if (!strcmp(other, text))
					fail_msg("%s: bit %u of %s is not printed",
						 isa_opcode_name(opcode), bit, name);
			}
			if (strcmp(name, "reserved")) {
				fields++;
				if (!begins(text, label + 1) && !strstr(text, label))
					fail_msg("%s: no %s in %s", isa_opcode_name(opcode), name,
						 text);
			}
			word += wide ? 2 : 1;
		}
		for (const char *c = text; *c; c++)
			printed += c == text || *c == ',';
		assert_int_equal(printed, fields);
	}
	/* all but GATHER_ROWS, ALL_REDUCE, ALL_GATHER and INTERPOLATE */
	assert_int_equal(structs, TXDA_OP_COUNT - 4);
}

/* Operands that the comments name: [0] and so on in the lines behind "in:" and "out:". */
static void find_operands(bool found[TXDA_OP_COUNT][9])
{
	const char *pos = isa;
	unsigned opcode = TXDA_OP_COUNT, from = 9;
	char line[256];

	while (next_line(&pos, line)) {
		if (!begins(line, " *   "))
			from = 9;
		for (unsigned i = 0; i < TXDA_OP_COUNT; i++) {
			char title[40];

			snprintf(title, sizeof(title), " * %s: ", isa_opcode_name(i));
			if (begins(line, title))
				opcode = i;
		}
		if (begins(line, " *   in:"))
			from = 0;
		if (begins(line, " *   out:"))
			from = 6;
		for (const char *c = line; from < 9 && (c = strchr(c, '[')); c++)
			if (isdigit((unsigned char)c[1]) && c[2] == ']')
				found[opcode][from + (unsigned)(c[1] - '0')] = true;
	}
}

TEST(operands_are_named)
{
	static bool found[TXDA_OP_COUNT][9];

	find_operands(found);
	for (unsigned opcode = 0; opcode < TXDA_OP_COUNT; opcode++) {
		assert_true(found[opcode][0] && found[opcode][6]);
		for (unsigned i = 0; i < 9; i++)
			if (!!op_operand_name(opcode, i) != found[opcode][i])
				fail_msg("%s: operand %u is %s", isa_opcode_name(opcode), i,
					 found[opcode][i] ? "not printed" : "none");
	}
}

TEST(floats_and_flags)
{
	struct txda_op op = {.op = TXDA_OP_ROPE_KV};
	char text[OP_TEXT_BYTES];

	op.rope_kv = (struct txda_op_rope_kv){4, 2, 64, 32, 1ull << 40, 1e-6f, 0x13};
	assert_string_equal(op_text(&op, text),
			    "n_heads 4, n_kv_heads 2, head_dim 64, block_size 32, "
			    "layer_offset 1099511627776, eps 1e-06, flags INTERLEAVED|INT8|0x10");
	op = (struct txda_op){.op = TXDA_OP_LINEAR};
	op.linear = (struct txda_op_linear){TXDA_ACT_SOFTCAP, 0, 0, 7, 0.1f + 0x1p-27f};
	assert_string_equal(op_text(&op, text),
			    "act SOFTCAP, eps 0, flags 0, out_col 7, limit 0.10000001");
}

/* A program of one op, printed. */
TEST(dump_prints_ops)
{
	static const uint32_t sym_max[TXDA_SYM_COUNT] = {0, 64, 8, 8, 4, 1000};
	struct program *p = program_new("step", 1, 0, sym_max);
	uint32_t scratch = program_add_slot(p, "scratch", TXDA_SLOT_SCRATCH, 0);
	struct txda_op *op = program_add_op(p, TXDA_OP_SILU_MUL, program_label(p, "mul"));
	char *text;
	void *data;
	size_t bytes;
	int out, fd;

	op->in[0] = program_add_scratch(p, scratch, "gates", TXDA_F32, PROGRAM_SYM(T), 48);
	op->out[0] = program_add_scratch(p, scratch, "y", TXDA_F32, PROGRAM_SYM(T), 24);
	op->silu_mul.act = TXDA_ACT_SWIGLU_CLAMPED;
	op->silu_mul.limit = 7;
	assert_int_equal(program_finish(p, &data, &bytes, &error), 0);
	program_free(p);
	fd = open(at("kcore.bin"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, data, bytes), bytes);
	close(fd);
	free(data);

	fflush(stdout);
	out = dup(STDOUT_FILENO);
	fd = open(at("text"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	dup2(fd, STDOUT_FILENO);
	assert_int_equal(compile_dump(at("kcore.bin"), &error), 0);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(fd);
	assert_int_equal(tool_read_file(AT_FDCWD, at("text"), 1 << 20, &text, &bytes, &error), 0);
	assert_non_null(strstr(text, "0  SILU_MUL mul  act SWIGLU_CLAMPED, limit 7\n"));
	assert_non_null(strstr(text, "12288 bytes, activation\n"));
	assert_non_null(strstr(text, "in  x "));
	assert_non_null(strstr(text, "out out "));
	free(text);
}

TEST_MAIN_ALL(set_up, tear_down)
