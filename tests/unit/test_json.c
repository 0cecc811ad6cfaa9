// SPDX-License-Identifier: MIT
/* The strict JSON checker and parser: cases of its own, and JSONTestSuite's when the conformance
 * data is at hand. */
#include "json_strict.h"
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int check(const char *text)
{
	return txda_json_check(text, strlen(text), TXDA_JSON_MAX_DEPTH, NULL);
}

static void test_accepts(void **state)
{
	static const char *const good[] = {
		"0",
		"-0",
		"-1.5e+10",
		"1E5",
		"\"\"",
		"null",
		" true ",
		"[]",
		"{}",
		"[ ]",
		"{ }",
		"[[],{},[{}]]",
		"{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":\"\\u00e9\\ud83d\\ude00\"}",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"\"\x7f\xc3\xa9\xf4\x8f\xbf\xbf\"",
		"\"\\u0000\"",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cJSON *json = txda_json_parse(good[i], strlen(good[i]), NULL, 0);

		if (check(good[i]) || !json)
			fail_msg("refused: %s", good[i]);
		cJSON_Delete(json);
	}
}

static void test_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"01",
		"1.",
		".5",
		"+1",
		"-",
		"1e",
		"1e+",
		"0x1",
		"NaN",
		"Infinity",
		"nul",
		"nulll",
		"True",
		"[",
		"]",
		"[1,]",
		"[,1]",
		"[1 2]",
		"[1",
		"{",
		"}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{a:1}",
		"{'a':1}",
		"{1:1}",
		"{\"a\":1 \"b\":2}",
		"[}",
		"{]",
		"[1}",
		"\"",
		"\"\\\"",
		"\"\\x41\"",
		"\"\\u12g4\"",
		"\"\\u123\"",
		"\"\n\"",
		"\"\t\"",
		"1 2",
		"[]x",
		"\"\\ud800\"",
		"\"\\ud800\\u0041\"",
		"\"\\udc00\"",
		"\"\xff\"",
		"\"\xc0\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xe2\x82\"",
		"\xef\xbb\xbf[]",
		"// c\n1",
		"[1]//",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cJSON *json = txda_json_parse(bad[i], strlen(bad[i]), NULL, 0);

		if (check(bad[i]) != -EINVAL || json)
			fail_msg("accepted: %s", bad[i]);
	}
	assert_int_equal(txda_json_check("1\0", 2, 8, NULL), -EINVAL);
	assert_int_equal(txda_json_check("\"a\0b\"", 5, 8, NULL), -EINVAL);
}

static void test_depth(void **state)
{
	static char text[2000000];
	size_t off = 0;

	(void)state;
	memset(text, '[', sizeof(text));
	assert_int_equal(txda_json_check(text, sizeof(text), 1u << 30, &off), -E2BIG);
	assert_int_equal(off, TXDA_JSON_DEPTH_LIMIT);
	assert_null(txda_json_parse(text, sizeof(text), NULL, 0));
	memset(text + TXDA_JSON_MAX_DEPTH, ']', TXDA_JSON_MAX_DEPTH);
	cJSON *json = txda_json_parse(text, 2 * TXDA_JSON_MAX_DEPTH, NULL, 0);
	assert_non_null(json);
	cJSON_Delete(json);
	assert_int_equal(txda_json_check("[[1]]", 5, 2, NULL), 0);
	assert_int_equal(txda_json_check("[[1]]", 5, 1, &off), -E2BIG);
	assert_int_equal(off, 1);
	assert_int_equal(txda_json_check("1", 1, 0, NULL), 0);
}

static void test_messages(void **state)
{
	static const char text[] = "{\n  \"a\": 1,\n  \"b\": tru\n}";
	char err[128];
	size_t off = 77;

	(void)state;
	assert_null(txda_json_parse(text, sizeof(text) - 1, err, sizeof(err)));
	assert_string_equal(err, "line 3, column 11: byte 0x0a cannot stand here");
	assert_null(txda_json_parse("[1,]", 4, err, sizeof(err)));
	assert_string_equal(err, "line 1, column 4: ']' cannot stand here");
	assert_null(txda_json_parse("[1", 2, err, sizeof(err)));
	assert_string_equal(err, "line 1, column 3: unexpected end of text");
	assert_int_equal(txda_json_check("[1", 2, 8, &off), -EINVAL);
	assert_int_equal(off, 2);
	off = 77;
	assert_int_equal(txda_json_check("[1]", 3, 8, &off), 0);
	assert_int_equal(off, 77);
	assert_int_equal(txda_json_load("/nonexistent/x.json", 10, NULL, err, sizeof(err)),
			 -ENOENT);
	assert_non_null(strstr(err, "/nonexistent/x.json"));
	assert_int_equal(txda_json_load("/", 10, NULL, err, sizeof(err)), -EINVAL);
}

/* What cJSON alone would cut short or refuse. */
static void test_representation(void **state)
{
	char text[600];
	cJSON *json;

	(void)state;
	snprintf(text, sizeof(text), "[\"a\\u0000b\\\\u0000\"]");
	json = txda_json_parse(text, strlen(text), NULL, 0);
	assert_non_null(json);
	assert_string_equal(json->child->valuestring, "a\xef\xbf\xbd"
						      "b\\u0000");
	cJSON_Delete(json);

	snprintf(text, sizeof(text), "[-0.%0100d5, 1%0200d, -1%0100de300, 3]", 0, 0, 0);
	json = txda_json_parse(text, strlen(text), NULL, 0);
	assert_non_null(json);
	assert_int_equal(cJSON_GetArraySize(json), 4);
	assert_true(fabs(json->child->valuedouble + 5e-101) < 1e-110);
	assert_true(json->child->next->valuedouble == 1e200);
	assert_true(isinf(json->child->next->next->valuedouble));
	assert_true(json->child->next->next->valuedouble < 0);
	assert_true(json->child->prev->valuedouble == 3);
	cJSON_Delete(json);
}

static void test_suite_files(void **state)
{
	char dir[512], path[1024];
	size_t yes = 0, no = 0, wrong = 0;
	struct dirent *entry;
	DIR *files;

	(void)state;
	if (!conformance_path(dir, sizeof(dir), "json")) {
		skip();
		return;
	}
	files = opendir(dir);
	assert_non_null(files);
	while ((entry = readdir(files))) {
		char *text;
		size_t len;
		cJSON *json;

		if (strncmp(entry->d_name, "y_", 2) && strncmp(entry->d_name, "n_", 2))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		text = conformance_read(path, &len);
		assert_non_null(text);
		json = txda_json_parse(text, len, NULL, 0);
		if ((json != NULL) != (entry->d_name[0] == 'y') ||
		    (txda_json_check(text, len, TXDA_JSON_MAX_DEPTH, NULL) == 0) !=
			    (json != NULL)) {
			print_message("wrong: %s\n", entry->d_name);
			wrong++;
		} else if (json) {
			yes++;
		} else {
			no++;
		}
		cJSON_Delete(json);
		free(text);
	}
	closedir(files);
	print_message("json: %zu y_ accepted, %zu n_ refused, %zu wrong\n", yes, no, wrong);
	assert_int_equal(wrong, 0);
	assert_true(yes && no);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepts),	       cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_depth),	       cmocka_unit_test(test_messages),
		cmocka_unit_test(test_representation), cmocka_unit_test(test_suite_files),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
