// SPDX-License-Identifier: MIT
/* The strict JSON checker and parser: cases of its own, and JSONTestSuite's when the conformance
 * data is at hand. */
#include "unit.h"
#include "case_file.h"
#include "json_strict.h"
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>

static int check(const char *text)
{
	return txda_json_check(text, strlen(text), TXDA_JSON_MAX_DEPTH, NULL);
}

static void accept(char **field)
{
	cJSON *json = txda_json_parse(field[0], strlen(field[0]), NULL, 0);

	if (check(field[0]) || !json)
		fail_msg("refused: %s", field[0]);
	cJSON_Delete(json);
}

static void refuse(char **field)
{
	cJSON *json = txda_json_parse(field[0], strlen(field[0]), NULL, 0);

	if (check(field[0]) != -EINVAL || json)
		fail_msg("accepted: %s", field[0]);
}

TEST(test_accepts)
{
	each_case("json.txt", "accepts", accept);
	accept((char *[]){"\"\x7f\xc3\xa9\xf4\x8f\xbf\xbf\""});
}

/* Also bytes that are not UTF-8, none at all, and NUL. */
TEST(test_refuses)
{
	static const char *const bytes[] = {"",
					    "\"\xff\"",
					    "\"\xc0\x80\"",
					    "\"\xed\xa0\x80\"",
					    "\"\xf4\x90\x80\x80\"",
					    "\"\xe2\x82\"",
					    "\xef\xbb\xbf[]"};

	each_case("json.txt", "refuses", refuse);
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++)
		refuse((char *[]){(char *)(uintptr_t)bytes[i]});
	assert_int_equal(txda_json_check("1\0", 2, 8, NULL), -EINVAL);
	assert_int_equal(txda_json_check("\"a\0b\"", 5, 8, NULL), -EINVAL);
}

TEST(test_depth)
{
	static char text[2000000];
	size_t off = 0;

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

TEST(test_messages)
{
	static const char text[] = "{\n  \"a\": 1,\n  \"b\": tru\n}";
	char err[128];
	size_t off = 77;

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
TEST(test_representation)
{
	char text[600];
	cJSON *json;

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

TEST(test_suite_files)
{
	char dir[512], path[1024];
	size_t yes = 0, no = 0, wrong = 0;
	struct dirent *entry;
	DIR *files;

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

TEST_MAIN
