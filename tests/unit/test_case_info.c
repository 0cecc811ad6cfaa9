// SPDX-License-Identifier: MIT
/* A hostile model_info.json, and a process that lies about one: refused with a reason. */
#include <errno.h>

#include "test_dir.h"
#include "case_info.h"

#define TENSORS                                                                                    \
	"\"inputs\": [{\"name\": \"x\", \"dtype\": \"F32\", \"shape\": [\"2T\", 64]}],"            \
	"\"outputs\": [{\"name\": \"y\", \"dtype\": \"F32\", \"shape\": [\"R\", 64]}]"
#define HEAD                                                                                       \
	"\"format\": 1, \"name\": \"tiny\", \"family\": \"test\", \"weights\": \"bf16\","          \
	"\"limits\": {\"tokens\": 16, \"seqs\": 4, \"rows\": 8, \"blocks\": 4, \"context\": 128}," \
	"\"vocab\": 64, \"layers\": 1, \"topk\": 1, \"programs\": [\"step\"],"                     \
	"\"kv\": {\"block_size\": 32, \"block_bytes\": 8192, \"dtype\": \"bf16\"},"
#define CHIP                                                                                       \
	"{\"kcore\": \"chip0/kcore.bin\", \"kcore_bytes\": 1248, \"param\": \"chip0/param.bin\","  \
	"\"param_bytes\": 12544, \"param_crc32c\": 5, \"scratch_bytes\": 8, \"io_bytes\": 6}"
#define VISION                                                                                     \
	"\"vision\": {\"limits\": {\"tokens\": 16, \"seqs\": 4, \"rows\": 8, \"blocks\": 4},"      \
	"\"chips\": [{\"kcore\": \"v\", \"kcore_bytes\": 1248, \"scratch_bytes\": 8,"              \
	"\"io_bytes\": 6}], " TENSORS "}"

static const char text[] = "{" HEAD "\"tp\": 1, \"chips\": [" CHIP "], " TENSORS "," VISION "}";

static struct case_said said, right;
static char err[400];

static int parse(const char *json)
{
	*err = '\0';
	return case_said_parse(json, strlen(json), &said, err, sizeof(err));
}

static int set_up(void **state)
{
	if (parse(text) || said.error)
		fail_msg("%s%s", err, said.message);
	right = said;
	return 0;
}

/* The text that is right, with the first @from replaced. */
static void check_text(const char *from, const char *to, const char *words)
{
	const char *at = strstr(text, from);
	char *bad;
	int r;

	assert_non_null(at);
	assert_true(asprintf(&bad, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
	r = parse(bad);
	free(bad);
	if (!r && !said.error)
		fail_msg("\"%s\" was taken", to);
	assert_says(r ? err : said.message, words);
}

TEST_WITH(refuses_hostile_files, set_up, NULL)
{
	static const struct {
		const char *from, *to, *words;
	} cases[] = {
		{"\"tp\": 1", "\"tp\": NaN", "model_info.json is not JSON: line 1, column "},
		{"\"tp\": 1", "\"tp\": Infinity", "is not JSON"},
		{"\"tp\": 1", "\"tp\": 1e999", "tp is inf; it must be from 1 to 8"},
		{"\"tp\": 1", "\"tp\": 1e-999", "tp is 0; it must be from 1 to 8"},
		{"\"tp\": 1", "\"tp\": 18446744073709551617", "tp is 1.8446744073709552e+19;"},
		{"\"tp\": 1", "\"tp\": 1.0000000000000002", "tp is 1.0000000000000002;"},
		{"\"tp\": 1", "\"tp\": true", "tp is not a number"},
		{"\"tp\": 1", "\"tp\": [1]", "tp is not a number"},
		/* Of a key that occurs twice the first counts, here and for the facts. */
		{"\"tp\": 1", "\"tp\": 9, \"tp\": 1", "tp is 9; it must be from 1 to 8"},
		{"\"tiny\"", "\"\\ud800\"", "is not JSON"},
		{"\"tiny\"", "\"\\udc00\\ud800\"", "is not JSON"},
		{"\"tiny\"", "\"\xff\"", "is not JSON"},
		{"\"tiny\"", "\"a\\u0085b\"", "name has a control character"},
		{"\"tiny\"", "\"a\\u001bb\"", "name has a control character"},
		{"\"bf16\"", "\"a weight type that is long\"",
		 "weights is not a string of 1 to 15 bytes"},
		{"\"kv\": {", "\"kv\": [], \"k\": {", "kv is not an object"},
		{"chip0/param.bin", "chip0/\\u0000/../param.bin", "chips[0].param is \""},
		{"chip0/param.bin", "chip0/../../param.bin", "must be a file below the case dir"},
		{"\"2T\"", "\"0T\"", "inputs[0].shape[0] is neither"},
		{"\"2T\"", "\"99999999999999999999T\"", "inputs[0].shape[0] is neither"},
		{"\"2T\"", "4294967296", "inputs[0].shape[0] is neither"},
		{"\"vision\": {\"limits\"", "\"vision\": {\"limit\"", "vision.limits is missing"},
		{"\"vision\": {\"limits\": {\"tokens\": 16",
		 "\"vision\": {\"limits\": {\"tokens\": 0",
		 "vision.limits.tokens is 0; it must be from 1 to 1048576"},
		{"\"v\"", "\"/v\"", "vision.chips[0].kcore is \"/v\"; it must be a file below"},
	};
	char *large = malloc(CASE_INFO_BYTES + 1);

	assert_non_null(large);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_text(cases[i].from, cases[i].to, cases[i].words);
	for (size_t n = 0; n + 1 < sizeof(text); n++) {
		assert_int_equal(case_said_parse(text, n, &said, err, sizeof(err)), -EINVAL);
		assert_says(err, "model_info.json is not JSON: ");
	}
	assert_int_equal(parse("[]"), -EINVAL);
	assert_says(err, "model_info.json is not a JSON object");
	for (const char *c = "[{\" 9"; *c; c++) {
		memset(large, *c, CASE_INFO_BYTES + 1);
		assert_int_equal(case_said_parse(large, CASE_INFO_BYTES, &said, err, sizeof(err)),
				 -EINVAL);
		assert_says(err, "model_info.json is not ");
		assert_int_equal(
			case_said_parse(large, CASE_INFO_BYTES + 1, &said, err, sizeof(err)),
			-EFBIG);
		assert_says(err, "has 1048577 bytes; the limit is 1048576");
	}
	free(large);
}

/* Facts are taken from invalid ones, too, so that what does not match can be told. */
TEST(takes_facts)
{
	assert_int_equal(parse("{\"tp\": 3, \"family\": \"x\", \"programs\": [\"y\"], \"chips\": "
			       "[{\"kcore\": \"a\", \"kcore_bytes\": 1e99, \"param\": 5}, 7]}"),
			 0);
	assert_int_equal(said.error, -EINVAL);
	assert_says(said.message, "format is missing");
	assert_int_equal(said.facts.tp, 3);
	assert_true(said.facts.lacks_step);
	assert_int_equal(said.facts.n_files, 1);
	assert_int_equal(said.facts.file[0].bytes, 0);
	case_said_tame(&said);
	assert_int_equal(said.facts.n_files, 1);
}

/* What a process sends that parses as it should, with one value changed. */
#define CHECK_LIE(member, value, words)                                                            \
	do {                                                                                       \
		said = right;                                                                      \
		said.member = value;                                                               \
		case_said_tame(&said);                                                             \
		assert_int_equal(said.error, -EINVAL);                                             \
		assert_says(said.message, words);                                                  \
		assert_int_equal(said.info.tp, 0);                                                 \
	} while (0)

TEST_WITH(refuses_lies, set_up, NULL)
{
	said = right;
	case_said_tame(&said);
	assert_memory_equal(&said, &right, sizeof(said));

	CHECK_LIE(info.tp, 0, "tp is 0; it must be from 1 to 8");
	CHECK_LIE(info.tp, 9, "tp is 9; it must be from 1 to 8");
	CHECK_LIE(info.tp, 2, "chips[1].kcore is not a string of 1 to 127 bytes");
	CHECK_LIE(info.max_tokens, UINT32_MAX, "limits.tokens is 4294967295; it must be");
	CHECK_LIE(info.kv_block_bytes, UINT64_MAX, "kv.block_bytes is 1.8446744073709552e+19;");
	CHECK_LIE(info.block_size, 1025, "kv.block_size is 1025; it must be from 1 to 1024");
	CHECK_LIE(info.topk, 129, "topk is 129; it must be from 1 to 128");
	CHECK_LIE(info.normalize, 2, "normalize is neither");
	CHECK_LIE(info.name[0], '\0', "name is not a string");
	CHECK_LIE(info.name[0], '\x80', "name is not valid UTF-8");
	CHECK_LIE(info.name[0], '\n', "name has a control character");
	CHECK_LIE(info.pooling[0], 'x', "pooling is \"x\"; it must be last, mean or cls");
	CHECK_LIE(info.chip[0].kcore[0], '/', "chips[0].kcore is \"/hip0/kcore.bin\"; it must be");
	CHECK_LIE(info.chip[0].kcore_bytes, 1ull << 40, "chips[0].kcore_bytes is 1099511627776;");
	CHECK_LIE(info.chip[0].param_bytes, 0, "chips[0].param_bytes is 0; it must be");
	CHECK_LIE(info.n_programs, 9, "programs is not an array of 1 to 8 entries");
	CHECK_LIE(info.n_programs, UINT32_MAX, "programs is not an array of 1 to 8 entries");
	CHECK_LIE(info.n_inputs, 33, "inputs is not an array of 1 to 32 entries");
	CHECK_LIE(info.n_outputs, UINT32_MAX, "outputs is not an array of 1 to 32 entries");
	CHECK_LIE(info.n_outputs, 2, "outputs[1].name is not a string");
	CHECK_LIE(info.input[0].dtype, TXDA_W4, "inputs[0].dtype ");
	CHECK_LIE(info.input[0].dtype, 200, "inputs[0].dtype 200 is not known");
	CHECK_LIE(info.input[0].ndim, 5, "inputs[0].shape is not an array of 1 to 4");
	CHECK_LIE(info.input[0].dim[1].sym, 6, "inputs[0].shape[1] is neither");
	CHECK_LIE(info.input[0].dim[1].mul, 0, "inputs[0].shape[1] is neither");
	CHECK_LIE(info.vision.present, 7, "vision is neither");
	CHECK_LIE(info.vision.max_rows, 0, "vision.limits.rows is 0; it must be");
	CHECK_LIE(info.vision.n_inputs, 99, "inputs is not an array");
	CHECK_LIE(info.vision.chip[0].kcore[0], '/', "vision.chips[0].kcore is \"/\"");
	CHECK_LIE(error, -EFAULT, "");
}

TEST_WITH(tames, set_up, NULL)
{
	memset(&said, 0xff, sizeof(said));
	case_said_tame(&said);
	assert_int_equal(said.error, -EINVAL);
	assert_int_equal(strlen(said.message), sizeof(said.message) - 1);
	assert_int_equal(said.facts.n_files, 2 * CASE_MAX_CHIPS);
	assert_int_equal(strlen(said.facts.file[3].name), sizeof(said.facts.file[3].name) - 1);
	assert_int_equal(said.facts.experts, CASE_EXPERTS_UNKNOWN);
	assert_int_equal(strlen(said.facts.kv), sizeof(said.facts.kv) - 1);

	/* No text goes on behind its array. */
	said = right;
	memset(said.info.name, 'x', sizeof(said.info.name));
	case_said_tame(&said);
	assert_says(said.message, "name is not a string of 1 to 127 bytes");
	said = right;
	memset(said.info.pooling, 'x', sizeof(said.info.pooling));
	case_said_tame(&said);
	assert_says(said.message, "pooling is \"xxxxxxxx\"");

	/* Files are checked under the names under which they are opened. */
	said = right;
	strcpy(said.facts.file[0].name, "harmless");
	case_said_tame(&said);
	assert_int_equal(said.error, 0);
	assert_string_equal(said.facts.file[0].name, "chip0/kcore.bin");
}

static int asked;

static int refuse(int fd, struct case_said *ret, char *why, size_t len)
{
	char start[2];

	asked++;
	assert_int_equal(read(fd, start, 2), 2);
	assert_memory_equal(start, "{\"", 2);
	snprintf(why, len, "no");
	return -EIO;
}

/* Whoever must not parse them does not. */
TEST_WITH(has_another_read, test_dir_make, test_dir_remove)
{
	int fd = open(test_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	put("model_info.json", text, 0644);
	assert_int_equal(case_said_read(fd, &said, err, sizeof(err)), 0);
	assert_int_equal(said.error, 0);
	assert_int_equal(asked, 0);
	case_info_use(refuse);
	assert_int_equal(case_said_read(fd, &said, err, sizeof(err)), -EIO);
	assert_string_equal(err, "no");
	assert_int_equal(asked, 1);
	assert_int_equal(truncate(at("model_info.json"), 100 << 20), 0);
	assert_int_equal(case_said_read(fd, &said, err, sizeof(err)), -EFBIG);
	assert_int_equal(asked, 1);
	case_info_use(NULL);
	close(fd);
}

TEST_MAIN
