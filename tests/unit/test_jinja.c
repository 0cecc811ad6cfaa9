// SPDX-License-Identifier: MIT
/*
 * The template interpreter: each feature, each kind of error, each limit, many threads at once, and
 * all cases of the conformance data where it is present.
 */
#include "unit.h"
#include "case_file.h"
#include "jinja.h"
#include "json_strict.h"
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>

/* What most cases see. */
static const char variables[] =
	"{\"l\": [3, 1, 2], \"s\": \"Hello w\\u00f6rld\", "
	"\"d\": {\"b\": 1, \"a\": {\"x\": [1, 2]}}, \"f\": 2.5, \"one\": 1.0, \"n\": null, "
	"\"t\": true, \"e\": [], \"i\": 7, \"big\": 12345678901234567890, \"m\": ["
	"{\"role\": \"user\", \"content\": \"Hi\"},"
	" {\"role\": \"assistant\", \"content\": null, \"k\": 2},"
	" {\"role\": \"User\", \"content\": \"Ho\", \"k\": 1}]}";

static const struct tm noon = {
	.tm_year = 125, .tm_mon = 6, .tm_mday = 10, .tm_hour = 12, .tm_wday = 4, .tm_yday = 190};

static cJSON *parse_context(const char *text)
{
	char err[200];
	cJSON *json = txda_json_parse(text, strlen(text), err, sizeof(err));

	if (!json)
		fail_msg("%s: %s", text, err);
	assert_int_equal(txda_template_mark_numbers(json, text, strlen(text)), 0);
	return json;
}

static int render(const char *source, size_t length, const struct txda_template_limits *limits,
		  struct txda_template_error *error, char **ret)
{
	struct txda_template_options options = {.now = &noon, .limits = limits};
	struct txda_template *template;
	cJSON *context;
	int rc = txda_template_parse(source, length, error, &template);

	if (rc)
		return rc;
	context = parse_context(variables);
	rc = txda_template_render(template, context, &options, error, ret, NULL);
	cJSON_Delete(context);
	txda_template_free(template);
	return rc;
}

static void expect(const char *source, const char *expected)
{
	struct txda_template_error error;
	char *text;

	if (render(source, strlen(source), NULL, &error, &text))
		fail_msg("%s: line %u: %s", source, error.line, error.message);
	if (strcmp(text, expected))
		fail_msg("%s\n  gives    %s\n  expected %s", source, text, expected);
	free(text);
}

/* @what: the kind of error, its line, and perhaps words of its message. */
static void expect_error(const char *source, const char *what)
{
	static const struct {
		const char *name;
		enum txda_template_error_kind kind;
		int rc;
	} kinds[] = {
		{"syntax", TXDA_TEMPLATE_SYNTAX, -EINVAL},
		{"runtime", TXDA_TEMPLATE_RUNTIME, -EINVAL},
		{"raised", TXDA_TEMPLATE_RAISED, -EPROTO},
		{"limit", TXDA_TEMPLATE_LIMIT, -E2BIG},
	};
	struct txda_template_error error;
	char *text, name[16] = "", words[100] = "";
	unsigned int line = 0, k = 0;
	int rc = render(source, strlen(source), NULL, &error, &text);

	assert_true(sscanf(what, "%15s %u %99[^\n]", name, &line, words) >= 2);
	while (strcmp(kinds[k].name, name))
		assert_true(++k < ARRAY_SIZE(kinds));
	if (!rc)
		fail_msg("%s: rendered to %s", source, text);
	if (error.kind != kinds[k].kind || !strstr(error.message, words) || error.line != line)
		fail_msg("%s: kind %d, line %u: %s", source, error.kind, error.line, error.message);
	assert_int_equal(rc, kinds[k].rc);
}

static void run_row(char **field)
{
	if (field[1][0] == '!')
		expect_error(field[0], field[1] + 1);
	else
		expect(field[0], field[1]);
}

#define CASES(name, section)                                                                       \
	TEST(test_##name)                                                                          \
	{                                                                                          \
		each_case("templates.txt", section, run_row);                                      \
	}
CASES(whitespace, "whitespace")
CASES(expressions, "expressions")
CASES(printing, "printing")
CASES(formats, "formats")
CASES(statements, "statements")
CASES(filters, "filters")
CASES(methods, "methods")
CASES(tests, "tests")
CASES(syntax_errors, "syntax errors")
CASES(runtime_errors, "runtime errors")

/* A template, words of the error, and perhaps a limit. */
static void check_limit(char **field)
{
	struct txda_template_limits limits = txda_template_default_limits;
	struct txda_template_error error;
	unsigned long long limit = 0;
	char *text, name[16] = "";
	int rc;

	if (field[2])
		assert_int_equal(sscanf(field[2], "%15[^=]=%llu", name, &limit), 2);
	if (!strcmp(name, "output"))
		limits.output = limit;
	else if (!strcmp(name, "steps"))
		limits.steps = limit;
	else if (!strcmp(name, "memory"))
		limits.memory = limit;
	else if (!strcmp(name, "depth"))
		limits.depth = (unsigned int)limit;
	else
		assert_string_equal(name, "");
	rc = render(field[0], strlen(field[0]), &limits, &error, &text);
	if (!rc)
		fail_msg("%s: rendered", field[0]);
	if (rc != -E2BIG || error.kind != TXDA_TEMPLATE_LIMIT || !strstr(error.message, field[1]))
		fail_msg("%s: %d, kind %d: %s", field[0], rc, error.kind, error.message);
}

TEST(test_limits)
{
	each_case("templates.txt", "limits", check_limit);
}

/* Nesting of the source itself. */
TEST(test_parse_limits)
{
	static const char *const units[][2] = {{"{{ ", "("},
					       {"{{ ", "["},
					       {"{{ ", "-"},
					       {"{{ ", "not "},
					       {"{{ ", "1 if 1 else "},
					       {"", "{% if 1 %}"},
					       {"{% set ", "("}};
	struct txda_template_error error;
	struct txda_template *template;
	char *source = malloc(TXDA_TEMPLATE_MAX_SOURCE + 1);
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i][0]), unit = strlen(units[i][1]);

		memcpy(source, units[i][0], n);
		for (k = 0; k < 20000; k++, n += unit)
			memcpy(source + n, units[i][1], unit);
		assert_int_not_equal(txda_template_parse(source, n, &error, &template), 0);
		assert_int_not_equal(txda_template_parse(source, n, NULL, &template), 0);
	}
	/* what does not nest may be long */
	for (k = 0; k < TXDA_TEMPLATE_MAX_SOURCE; k++)
		source[k] = 'a';
	assert_int_equal(txda_template_parse(source, k, &error, &template), 0);
	txda_template_free(template);
	source[k] = 'a';
	assert_int_equal(txda_template_parse(source, k + 1, &error, &template), -E2BIG);
	free(source);
}

TEST(test_arguments)
{
	static const char source[] = "a{{ x }}\0b";
	struct txda_template_error error;
	struct txda_template *template;
	cJSON *context = cJSON_CreateObject(), *array = cJSON_CreateArray();
	size_t length;
	char *text;

	assert_int_equal(txda_template_parse(source, sizeof(source) - 1, NULL, &template), 0);
	assert_true(txda_template_mentions(template, "x"));
	assert_false(txda_template_mentions(template, "a"));
	assert_int_equal(txda_template_render(template, context, NULL, NULL, &text, &length), 0);
	assert_int_equal(length, 3);
	assert_memory_equal(text, "a\0b", 4);
	free(text);
	assert_int_equal(txda_template_render(template, array, NULL, &error, &text, NULL), -EINVAL);
	assert_int_equal(txda_template_render(template, NULL, NULL, &error, &text, NULL), -EINVAL);
	txda_template_free(template);
	txda_template_free(NULL);
	cJSON_Delete(array);
	/* marks need the text that the tree came from */
	assert_int_equal(txda_template_mark_numbers(context, "{}", 2), 0);
	assert_int_equal(txda_template_mark_numbers(context, "{\"a\": 1}", 8), -EINVAL);
	cJSON_AddNumberToObject(context, "a", 1);
	assert_int_equal(txda_template_mark_numbers(context, "{}", 2), -EINVAL);
	cJSON_Delete(context);
}

static struct txda_template *shared_template;
static cJSON *shared_context;
static char *shared_text;

static void *render_often(void *unused)
{
	char *text;
	int i;

	(void)unused;
	for (i = 0; i < 200; i++) {
		if (txda_template_render(shared_template, shared_context, NULL, NULL, &text, NULL))
			return (void *)1;
		if (strcmp(text, shared_text)) {
			free(text);
			return (void *)1;
		}
		free(text);
	}
	return NULL;
}

TEST(test_threads)
{
	static const char source[] =
		"{% macro f(x) %}[{{ x|upper }}]{% endmacro %}{% for x in m %}{{ f(x.role) }}"
		"{{ 'w\u00f6rld'[1:]|length }}{{ x|tojson }}{% endfor %}{{ d }}";
	pthread_t threads[4];
	void *failed;
	size_t i;

	assert_int_equal(txda_template_parse(source, strlen(source), NULL, &shared_template), 0);
	shared_context = parse_context(variables);
	assert_int_equal(txda_template_render(shared_template, shared_context, NULL, NULL,
					      &shared_text, NULL),
			 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, render_often, NULL), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	free(shared_text);
	cJSON_Delete(shared_context);
	txda_template_free(shared_template);
}

/* Does the case give what it should? Says so if not. */
static bool run_case(const char *file, const cJSON *root, const cJSON *test)
{
	const cJSON *key = cJSON_GetObjectItemCaseSensitive(test, "template");
	const cJSON *source = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(root, "templates"), key->valuestring);
	const cJSON *expected = cJSON_GetObjectItemCaseSensitive(test, "expected");
	const cJSON *refused = cJSON_GetObjectItemCaseSensitive(test, "error");
	const cJSON *now = cJSON_GetObjectItemCaseSensitive(test, "now");
	struct txda_template_options options = {0};
	struct txda_template_error error;
	struct txda_template *template;
	struct tm tm = {0};
	char *text = NULL;
	bool good;
	int rc = txda_template_parse(source->valuestring, strlen(source->valuestring), &error,
				     &template);

	if (now && strptime(now->valuestring, "%Y-%m-%dT%H:%M:%S", &tm))
		options.now = &tm;
	if (!rc) {
		rc = txda_template_render(template,
					  cJSON_GetObjectItemCaseSensitive(test, "context"),
					  &options, &error, &text, NULL);
		txda_template_free(template);
	}
	if (expected)
		good = !rc && !strcmp(text, expected->valuestring);
	else if (cJSON_IsString(refused))
		good = rc == -EPROTO && !strcmp(error.message, refused->valuestring);
	else
		good = rc == -EINVAL;
	if (!good)
		print_error("%s: %s: %s\n", file,
			    cJSON_GetObjectItemCaseSensitive(test, "name")->valuestring,
			    rc ? error.message : text);
	free(text);
	return good;
}

static void run_file(const char *directory, const char *name, unsigned int *passed,
		     unsigned int *total)
{
	char path[2048], err[256];
	unsigned int good = 0, n = 0;
	size_t length;
	char *text;
	cJSON *root;
	const cJSON *test;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	text = conformance_read(path, &length);
	assert_non_null(text);
	root = txda_json_parse(text, length, err, sizeof(err));
	if (!root)
		fail_msg("%s: %s", path, err);
	assert_int_equal(txda_template_mark_numbers(root, text, length), 0);
	cJSON_ArrayForEach(test, cJSON_GetObjectItemCaseSensitive(root, "cases")) {
		good += run_case(name, root, test);
		n++;
	}
	print_message("%-28s %3u of %3u\n", name, good, n);
	cJSON_Delete(root);
	free(text);
	*passed += good;
	*total += n;
}

TEST(test_conformance)
{
	unsigned int passed = 0, total = 0;
	struct dirent *entry;
	char directory[1024];
	DIR *dir;

	if (!conformance_path(directory, sizeof(directory), "chat"))
		skip();
	dir = opendir(directory);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (dot && !strcmp(dot, ".json"))
			run_file(directory, entry->d_name, &passed, &total);
	}
	closedir(dir);
	print_message("all: %u of %u\n", passed, total);
	assert_int_equal(passed, total);
}

TEST_MAIN
