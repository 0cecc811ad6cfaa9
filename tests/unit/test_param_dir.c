// SPDX-License-Identifier: MIT
/* Which case dir a checkpoint's config.json leads to, and which ones it must not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "param_dir.h"

#define OTHER 4321 /* a user who owns nothing else */

static char root[64];
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

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void put_case(const char *dir)
{
	char name[256];

	assert_int_equal(mkdir(dir, 0755), 0);
	snprintf(name, sizeof(name), "%s/model_info.json", dir);
	put(name, info);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s/chip%u", dir, i);
		assert_int_equal(mkdir(name, 0755), 0);
		snprintf(name, sizeof(name), "%s/chip%u/kcore.bin", dir, i);
		put(name, "code");
		snprintf(name, sizeof(name), "%s/chip%u/param.bin", dir, i);
		put(name, "tiles");
	}
}

/* In a directory of its own: the model "m" with the case dir "m/case". */
static int set_up(void **state)
{
	(void)state;
	umask(022);
	strcpy(root, "/tmp/test_param_dir_XXXXXX");
	assert_non_null(mkdtemp(root));
	assert_int_equal(chmod(root, 0755), 0);
	assert_int_equal(chdir(root), 0);
	assert_int_equal(mkdir("m", 0755), 0);
	put_case("m/case");
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return chdir("/") || system(command);
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
	put("m/config.json", config);
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

static void finds(void **state)
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

	(void)state;
	assert_int_equal(symlink("case", "m/link"), 0);
	snprintf(wanted, sizeof(wanted), "%s/m/case", root);
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
		check(configs[i], 1, "");
		assert_string_equal(case_dir, wanted);
	}
	put_case("elsewhere");
	snprintf(absolute, sizeof(absolute), "{\"param_dir\": \"%s/elsewhere\"}", root);
	check(absolute, 1, "");
	assert_true(facts.tp == 2 && facts.vocab == 512 && facts.hidden == 64 &&
		    facts.layers == 3 && facts.experts == CASE_EXPERTS_IN_PARTS);
	assert_string_equal(facts.family, "qwen3");
	assert_string_equal(facts.weights, "w8");
	assert_string_equal(facts.kv, "bf16");
	assert_int_equal(look(5), -ENAMETOOLONG);
}

/* Nothing of this is a case dir; the compiler has the last word. */
static void leaves_the_rest(void **state)
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

	(void)state;
	assert_int_equal(symlink("loop", "m/loop"), 0);
	assert_int_equal(mkfifo("m/fifo", 0644), 0);
	/* What it leads to leads on: that is not followed. */
	assert_int_equal(mkdir("m/other", 0755), 0);
	put("m/other/config.json", "{\"param_dir\": \"../case\"}");
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
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
	put("m/case/model.safetensors", "");
	check_right(0, "");
	assert_int_equal(unlink("m/config.json"), 0);
	assert_int_equal(mkfifo("m/config.json", 0644), 0);
	assert_int_equal(look(9), 0);
}

static void compares(void **state)
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

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(config, sizeof(config), "{\"param_dir\": \"case\", %s}", cases[i].config);
		check(config, -EINVAL, cases[i].words);
	}
}

static void checks_files(void **state)
{
	(void)state;
	put("m/case/chip1/param.bin", "tile");
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

	put("m/case/model_info.json", "{\"chips\": [{\"kcore\": \"../../x\"}]}");
	check_right(-EINVAL, "\"../../x\" is not a file below it");
	put("m/case/model_info.json", "{\"chips\": [{\"kcore\": \"\"}]}");
	check_right(-EINVAL, "not a regular file");
	put("m/case/model_info.json", "{\"programs\": [\"prefill\", 5]}");
	check_right(-EINVAL, "has no program \"step\"");
	put("m/case/model_info.json", "[]");
	check_right(-EINVAL, "not a JSON object");
	put("m/case/model_info.json", "{");
	check_right(-EINVAL, "model_info.json");
	assert_int_equal(truncate("m/case/model_info.json", 2 << 20), 0);
	check_right(-EFBIG, "model_info.json");
	unlink("m/case/model_info.json");
	assert_int_equal(mkfifo("m/case/model_info.json", 0644), 0);
	check_right(-EINVAL, "model_info.json is not a regular file");
}

/* Who may name what; needs root to make files of two users. */
static void checks_owners(void **state)
{
	char config[256];

	(void)state;
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
	snprintf(config, sizeof(config), "{\"param_dir\": \"%s/private/case\"}", root);
	check(config, -EPERM, "private is root's and not for everybody");
	/* Through a link, too, in the way or as a file. */
	assert_int_equal(symlink("../private/case", "m/link"), 0);
	check("{\"param_dir\": \"link\"}", -EPERM, "private is root's");
	unlink("m/case/chip1/param.bin");
	assert_int_equal(symlink("../../../private/case/chip1/param.bin", "m/case/chip1/param.bin"),
			 0);
	check_right(-EPERM, "private is root's");
	unlink("m/case/chip1/param.bin");
	put("m/case/chip1/param.bin", "tiles");
	check_right(1, "");
	put("secret", "{}");
	assert_int_equal(chmod("secret", 0600), 0);
	assert_int_equal(symlink("../../secret", "m/case/tokenizer.json"), 0);
	check_right(-EPERM, "secret is root's");
}

static void compares_wishes(void **state)
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

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int r = case_facts_fit(&f, "dir", &cases[i].w, err, sizeof(err));

		assert_int_equal(r, cases[i].words ? -EINVAL : 0);
		if (cases[i].words)
			assert_non_null(strstr(err, cases[i].words));
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
static void tames(void **state)
{
	struct config_facts f;

	(void)state;
	put("m/config.json",
	    "{\"param_dir\": \"case\", \"model_type\": \"qwen3\", \"vocab_size\": true}");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(finds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(leaves_the_rest, set_up, tear_down),
		cmocka_unit_test_setup_teardown(compares, set_up, tear_down),
		cmocka_unit_test_setup_teardown(checks_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(checks_owners, set_up, tear_down),
		cmocka_unit_test_setup_teardown(compares_wishes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(tames, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
