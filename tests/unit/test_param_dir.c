// SPDX-License-Identifier: MIT
/* Which case dir a checkpoint's config.json leads to, and which ones it must not. */
#include <math.h>

#include <errno.h>
#include <limits.h>

#include "test_dir.h"
#include "param_dir.h"

#define OTHER 4321 /* a user who owns nothing else */

static char case_dir[PATH_MAX], err[512];
static struct case_facts facts;

static const char info[] =
	"{\"format\": 1, \"family\": \"qwen3\", \"weights\": \"w8\", \"tp\": 2,"
	" \"whole_experts\": false, \"vocab\": 512, \"hidden_size\": 64, \"layers\": 3,"
	" \"kv\": {\"dtype\": \"bf16\"}, \"programs\": [\"step\"], \"chips\": ["
	"{\"kcore\": \"chip0/kcore.bin\", \"kcore_bytes\": 4, \"param\": \"chip0/param.bin\","
	" \"param_bytes\": 5},"
	"{\"kcore\": \"chip1/kcore.bin\", \"kcore_bytes\": 4, \"param\": \"chip1/param.bin\","
	" \"param_bytes\": 5}]}";

static void put_case(const char *dir)
{
	assert_int_equal(mkdir(dir, 0755), 0);
	put(in(dir, "model_info.json"), info, 0644);
	for (unsigned i = 0; i < 2; i++) {
		const char *chip = in(dir, i ? "chip1" : "chip0");

		assert_int_equal(mkdir(chip, 0755), 0);
		put(in(chip, "kcore.bin"), "code", 0644);
		put(in(chip, "param.bin"), "tiles", 0644);
	}
}

/* In a directory of its own: the model "m" with the case dir "m/case". */
static int set_up(void **state)
{
	umask(022);
	assert_int_equal(test_dir_make(state), 0);
	assert_int_equal(chmod(test_dir, 0755), 0);
	assert_int_equal(chdir(test_dir), 0);
	assert_int_equal(mkdir("m", 0755), 0);
	put_case("m/case");
	return 0;
}

static int tear_down(void **state)
{
	return chdir("/") || test_dir_remove(state);
}

static int look(size_t len)
{
	struct config_facts config;

	config_facts_read("m", &config);
	return param_dir_find("m", &config, case_dir, len, &facts, err, sizeof(err));
}

static int find_in(const char *config)
{
	err[0] = '\0';
	put("m/config.json", config, 0644);
	return look(sizeof(case_dir));
}

static void check(const char *config, int wanted, const char *words)
{
	int r = find_in(config);

	if (r != wanted || !strstr(err, words))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", config, r, err, wanted, words);
}

/* The same with the config that is right. */
static void check_right(int wanted, const char *words)
{
	check("{\"param_dir\": \"case\"}", wanted, words);
}

TEST(finds)
{
	static const char *const configs[] = {
		"{\"param_dir\": \"case\"}",
		"{\"param_dir\": \"./case/\"}",
		"{\"param_dir\": \"link\"}",
		"{\"param_dir\": \"case\", \"model_type\": \"qwen3\", \"vocab_size\": 512,"
		" \"hidden_size\": 64, \"num_hidden_layers\": 3,"
		" \"tensor_parallel\": {\"use_tp\": true, \"parallel_size\": 2}}",
		"{\"param_dir\": \"case\", \"tensor_parallel\": {}}",
		"{\"param_dir\": \"case\", \"tensor_parallel\": null, \"vocab_size\": null}",
	};
	char wanted[128], absolute[256];

	assert_int_equal(symlink("case", "m/link"), 0);
	snprintf(wanted, sizeof(wanted), "%s/m/case", test_dir);
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		check(configs[i], 1, "");
		assert_string_equal(case_dir, wanted);
	}
	put_case("elsewhere");
	snprintf(absolute, sizeof(absolute), "{\"param_dir\": \"%s/elsewhere\"}", test_dir);
	check(absolute, 1, "");
	assert_true(facts.tp == 2 && facts.vocab == 512 && facts.hidden == 64 &&
		    facts.layers == 3 && facts.experts == CASE_EXPERTS_IN_PARTS);
	assert_string_equal(facts.family, "qwen3");
	assert_string_equal(facts.weights, "w8");
	assert_string_equal(facts.kv, "bf16");
	assert_int_equal(look(5), -ENAMETOOLONG);
}

/* Nothing of this is a case dir; the compiler has the last word. */
TEST(leaves_the_rest)
{
	static const char *const configs[] = {
		"",
		"[",
		"[]",
		"{}",
		"{\"param_dir\": null}",
		"{\"param_dir\": 5}",
		"{\"param_dir\": [\"case\"]}",
		"{\"param_dir\": {\"case\": \"case\"}}",
		"{\"param_dir\": \"\"}",
		"{\"param_dir\": \".\"}",
		"{\"param_dir\": \"/\"}",
		"{\"param_dir\": \"none\"}",
		"{\"param_dir\": \"case\\u0000\"}",
		"{\"param_dir\": \"config.json\"}",
		"{\"param_dir\": \"case/model_info.json\"}",
		"{\"param_dir\": \"../m/case\"}",
		"{\"param_dir\": \"case/..\"}",
		"{\"param_dir\": \"/proc/self/cwd/../m/case\"}",
		"{\"param_dir\": \"loop\"}",
		"{\"param_dir\": \"other\"}",
		"{\"param_dir\": \"case\", \"param_dir\": \"case\"}",
		"{\"param_dir\": \"/dev/null\"}",
		"{\"param_dir\": \"fifo\"}",
	};
	char *deep = malloc(100000), *large = malloc((1 << 20) + 2);

	assert_int_equal(symlink("loop", "m/loop"), 0);
	assert_int_equal(mkfifo("m/fifo", 0644), 0);
	/* What it leads to leads on: that is not followed. */
	assert_int_equal(mkdir("m/other", 0755), 0);
	put("m/other/config.json", "{\"param_dir\": \"../case\"}", 0644);
	for (size_t i = 0; i < ARRAY_SIZE(configs); i++)
		check(configs[i], 0, "");
	memset(deep, 'x', 99999);
	deep[99999] = '\0';
	memcpy(deep, "{\"param_dir\": \"", 15);
	memcpy(deep + 99990, "\"}", 3);
	check(deep, 0, "");
	free(deep);
	/* No tree is made of what is large. */
	memset(large, ' ', (1 << 20) + 1);
	large[(1 << 20) + 1] = '\0';
	memcpy(large, "{\"param_dir\": \"case\"}", 21);
	check(large, 0, "");
	large[1 << 20] = '\0';
	check(large, 1, "");
	free(large);
	/* Safetensors there are what param_dir is for otherwise. */
	put("m/case/model.safetensors", "", 0644);
	check_right(0, "");
	assert_int_equal(unlink("m/config.json"), 0);
	assert_int_equal(mkfifo("m/config.json", 0644), 0);
	assert_int_equal(look(9), 0);
}

TEST(compares)
{
	static const struct {
		const char *config, *words;
	} cases[] = {
		{"\"vocab_size\": 513", "vocab_size is 513, but in its param_dir"},
		{"\"vocab_size\": \"512\"", "vocab_size is 0"},
		{"\"hidden_size\": 1e300", "hidden_size is 1"},
		{"\"num_hidden_layers\": 2", "num_hidden_layers is 2"},
		{"\"model_type\": \"llama\"", "\"llama\""},
		{"\"tensor_parallel\": 2", "tensor_parallel is not an object"},
		{"\"tensor_parallel\": {\"use_tp\": 1}", "use_tp true or false"},
		{"\"tensor_parallel\": {\"use_tp\": false}", "compiled for 2 chips"},
		{"\"tensor_parallel\": {\"use_tp\": true}", "parallel_size is 0"},
		{"\"tensor_parallel\": {\"use_tp\": true, \"parallel_size\": 4}",
		 "parallel_size is 4, but its param_dir"},
		{"\"tensor_parallel\": {\"use_tp\": true, \"parallel_size\": 2.5}",
		 "parallel_size is 2.5"},
	};
	char config[256];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(config, sizeof(config), "{\"param_dir\": \"case\", %s}", cases[i].config);
		check(config, -EINVAL, cases[i].words);
	}
}

TEST(checks_files)
{
	put("m/case/chip1/param.bin", "tile", 0644);
	check_right(-EINVAL, "chip1/param.bin has 4 bytes; model_info.json says 5");
	unlink("m/case/chip1/param.bin");
	check_right(-ENOENT, "chip1/param.bin");
	assert_int_equal(mkfifo("m/case/chip1/param.bin", 0644), 0);
	check_right(-EINVAL, "not a regular file");
	unlink("m/case/chip1/param.bin");
	assert_int_equal(symlink("/dev/zero", "m/case/chip1/param.bin"), 0);
	check_right(-EINVAL, "not a regular file");
	unlink("m/case/chip1/param.bin");
	assert_int_equal(symlink("param.bin", "m/case/chip1/param.bin"), 0);
	check_right(-ELOOP, "param.bin");
	unlink("m/case/chip1/param.bin");
	assert_int_equal(symlink("../chip0/param.bin", "m/case/chip1/param.bin"), 0);
	check_right(1, "");

	assert_int_equal(chmod("m/case/chip0/kcore.bin", 0666), 0);
	check_right(-EPERM, "chip0/kcore.bin can be written by everybody (mode 0666)");
	assert_int_equal(chmod("m/case/chip0/kcore.bin", 0644), 0);
	assert_int_equal(chmod("m/case/chip0", 0777), 0);
	check_right(-EPERM, "chip0 can be written by everybody");
	assert_int_equal(chmod("m/case/chip0", 01777), 0);
	check_right(1, "");
	assert_int_equal(chmod("m/case", 0757), 0);
	check_right(-EPERM, "m/case can be written");
	assert_int_equal(chmod("m/case", 0755), 0);
	assert_int_equal(mkfifo("m/tokenizer.json", 0644), 0);
	check_right(-EINVAL, "tokenizer.json is not a regular file");
	unlink("m/tokenizer.json");

	put("m/case/model_info.json", "{\"chips\": [{\"kcore\": \"../../x\"}]}", 0644);
	check_right(-EINVAL, "\"../../x\" is not a file below it");
	put("m/case/model_info.json", "{\"chips\": [{\"kcore\": \"\"}]}", 0644);
	check_right(-EINVAL, "not a regular file");
	put("m/case/model_info.json", "{\"programs\": [\"prefill\", 5]}", 0644);
	check_right(-EINVAL, "has no program \"step\"");
	put("m/case/model_info.json", "[]", 0644);
	check_right(-EINVAL, "not a JSON object");
	put("m/case/model_info.json", "{", 0644);
	check_right(-EINVAL, "model_info.json");
	assert_int_equal(truncate("m/case/model_info.json", 2 << 20), 0);
	check_right(-EFBIG, "model_info.json");
	unlink("m/case/model_info.json");
	assert_int_equal(mkfifo("m/case/model_info.json", 0644), 0);
	check_right(-EINVAL, "model_info.json is not a regular file");
}

/* Who may name what; needs root to make files of two users. */
TEST(checks_owners)
{
	char config[256];

	if (geteuid())
		skip();
	/* Root names another's. */
	assert_int_equal(chown("m/case/chip1/param.bin", OTHER, OTHER), 0);
	check_right(-EPERM, "param.bin belongs to user 4321, neither to root nor to user 0");
	assert_int_equal(chown("m/case/chip1/param.bin", 0, 0), 0);
	check_right(1, "");
	assert_int_equal(chown("m/case", OTHER, OTHER), 0);
	check_right(-EPERM, "m/case belongs to user 4321");
	/* Their own. */
	assert_int_equal(chown("m", OTHER, OTHER), 0);
	check_right(1, "");
	/* Another names root's, which is for all or not. */
	assert_int_equal(chmod("m/case/chip0/param.bin", 0600), 0);
	check_right(-EPERM, "param.bin is root's and not for everybody to read (mode 0600)");
	assert_int_equal(chown("m/case/chip0/param.bin", OTHER, OTHER), 0);
	check_right(1, "");
	assert_int_equal(mkdir("private", 0700), 0);
	put_case("private/case");
	snprintf(config, sizeof(config), "{\"param_dir\": \"%s/private/case\"}", test_dir);
	check(config, -EPERM, "private is root's and not for everybody");
	/* Through a link, too, in the way or as a file. */
	assert_int_equal(symlink("../private/case", "m/link"), 0);
	check("{\"param_dir\": \"link\"}", -EPERM, "private is root's");
	unlink("m/case/chip1/param.bin");
	assert_int_equal(symlink("../../../private/case/chip1/param.bin", "m/case/chip1/param.bin"),
			 0);
	check_right(-EPERM, "private is root's");
	unlink("m/case/chip1/param.bin");
	put("m/case/chip1/param.bin", "tiles", 0644);
	check_right(1, "");
	put("secret", "{}", 0644);
	assert_int_equal(chmod("secret", 0600), 0);
	assert_int_equal(symlink("../../secret", "m/case/tokenizer.json"), 0);
	check_right(-EPERM, "secret is root's");
}

TEST(compares_wishes)
{
	static const struct case_facts f = {.tp = 2, .weights = "w8", .kv = "bf16"};
	static const struct {
		struct case_wishes w;
		const char *words;
	} cases[] = {
		{{0}, NULL},
		{{.tp = 2, .weights = "w8"}, NULL},
		{{.weights = "keep"}, NULL},
		{{.weights = ""}, NULL},
		{{.tp = 1}, "dir was compiled for 2 chips, not 1"},
		{{.weights = "bf16"}, "of the type w8, not bf16"},
		{{.kv_int8 = true}, "of the type bf16, not int8"},
		{{.whole_experts = true}, "not compiled with whole experts"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int r = case_facts_fit(&f, "dir", &cases[i].w, err, sizeof(err));

		assert_int_equal(r, cases[i].words ? -EINVAL : 0);
		if (cases[i].words)
			assert_says(err, cases[i].words);
	}
	assert_int_equal(
		case_facts_fit(&(struct case_facts){.kv = "int8", .experts = CASE_EXPERTS_WHOLE},
			       "dir", &(struct case_wishes){.kv_int8 = true, .whole_experts = true},
			       err, sizeof(err)),
		0);
	assert_int_equal(case_facts_read("m/none", &facts, err, sizeof(err)), -ENOENT);
	assert_int_equal(case_facts_read("m/case", &facts, err, sizeof(err)), 0);
	assert_int_equal(facts.tp, 2);
}

/* What another process says it has read. */
TEST(tames)
{
	struct config_facts f;

	put("m/config.json",
	    "{\"param_dir\": \"case\", \"model_type\": \"qwen3\", \"vocab_size\": true}", 0644);
	config_facts_read("m", &f);
	assert_string_equal(f.param_dir, "case");
	assert_string_equal(f.type, "qwen3");
	assert_true(f.vocab == 0 && isnan(f.hidden) && f.tp == CONFIG_TP_ABSENT);
	config_facts_tame(&f);
	assert_string_equal(f.param_dir, "case");
	memset(&f, 0xff, sizeof(f));
	config_facts_tame(&f);
	assert_int_equal(strlen(f.param_dir), sizeof(f.param_dir) - 1);
	assert_int_equal(strlen(f.type), sizeof(f.type) - 1);
	assert_int_equal(f.tp, CONFIG_TP_INVALID);
	assert_int_equal(
		param_dir_find("m", &f, case_dir, sizeof(case_dir), &facts, err, sizeof(err)), 0);
}

TEST_MAIN_EACH(set_up, tear_down)
