// SPDX-License-Identifier: MIT
/* JSON Schema as grammars: what is valid and what is not, and hostile schemas. */
#include "unit.h"
#include "case_file.h"
#include "grammar_test.h"
#include "text_buf.h"

#include <dirent.h>

static struct grammar_vocab *vocab;
static uint32_t n_tokens;

static struct grammar *schema_of(const char *text, bool strict)
{
	const struct grammar_json_options options = {.strict = strict};
	struct grammar *g = NULL;
	char err[256] = "";

	if (build_schema(text, &options, &g, err, sizeof(err)))
		fail_msg("%s: %s", text, err);
	return g;
}

/* The schema of the rows that follow. */
static struct grammar *current;
static char current_text[4096];

/* A schema, or "+" or "-" and a text that the one before it takes or does not take. */
static void check_row(char **field)
{
	const char *text = field[0] + (field[0][1] == ' ' ? 2 : 1);
	char mark = field[0][0];

	if (mark == '+' || mark == '-') {
		if ((matches(current, vocab, text, strlen(text)) == 1) != (mark == '+'))
			fail_msg("%s: %s", current_text, field[0]);
		return;
	}
	grammar_unref(current);
	snprintf(current_text, sizeof(current_text), "%s", field[0]);
	current = schema_of(mark == '~' ? text : field[0], mark != '~');
}

#define CASES(name, section)                                                                       \
	TEST(name)                                                                                 \
	{                                                                                          \
		each_case("schemas.txt", section, check_row);                                      \
	}
CASES(types, "types")
CASES(strings, "strings")
CASES(numbers, "numbers")
CASES(objects, "objects")
CASES(counts_of_several_schemas, "counts of several schemas")
CASES(unevaluated_properties, "unevaluated properties")
CASES(arrays, "arrays")
CASES(choices, "choices")
CASES(lists_are_filtered, "lists are filtered")
CASES(references, "references")

/* What is not enforced is recorded, also in a grammar of another process. */
TEST(names_what_is_not_enforced)
{
	static const struct {
		const char *schema, *skipped;
		bool strict;
	} cases[] = {
		{"{\"type\":\"integer\",\"minimum\":1,\"description\":\"d\",\"x-order\":1}", "",
		 false},
		{"{\"type\":\"string\",\"minLenght\":5}", "minLenght", true},
		{"{\"type\":\"string\",\"format\":\"color\"}", "format color", true},
		{"{\"type\":\"integer\",\"format\":\"int32\"}", "format int32", true},
		{"{\"not\":{\"const\":1},\"type\":\"array\",\"uniqueItems\":true}",
		 "not\nuniqueItems", false},
		{"{\"type\":\"array\",\"uniqueItems\":false}", "", true},
		{"{\"type\":\"array\",\"items\":{\"not\":{}},\"contains\":{}}", "contains\nnot",
		 false},
		{"{\"pattern\":\"a\",\"maxLength\":3}",
		 "minLength or maxLength together with a pattern or format", false},
		{"{\"oneOf\":[{\"type\":\"null\"},{\"const\":1}]}", "oneOf as anyOf", true},
		{"{\"oneOf\":[{\"type\":\"null\"}]}", "", true},
	};
	struct text_buf out = {0};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct grammar *g = schema_of(cases[i].schema, cases[i].strict), *copy;

		assert_string_equal(grammar_skipped(g), cases[i].skipped);
		out.len = 0;
		assert_int_equal(grammar_export(g, &out), 0);
		assert_int_equal(grammar_import(out.data, out.len, &copy), 0);
		assert_string_equal(grammar_skipped(copy), cases[i].skipped);
		grammar_unref(copy);
		grammar_unref(g);
	}
	free(out.data);
}

/* Their number has a limit, which is told. */
TEST(names_no_more_than_fits)
{
	char schema[4096];
	struct grammar *g;
	size_t n = (size_t)sprintf(schema, "{");

	for (unsigned i = 0; i < 60; i++)
		n += (size_t)sprintf(schema + n, "%s\"odd%u\":1", i ? "," : "", i);
	sprintf(schema + n, "}");
	g = schema_of(schema, true);
	assert_true(strlen(grammar_skipped(g)) < GRAMMAR_SKIPPED);
	assert_ptr_equal(strstr(grammar_skipped(g), "odd0\nodd1\n"), grammar_skipped(g));
	assert_string_equal(grammar_skipped(g) + strlen(grammar_skipped(g)) - 4, "\n...");
	grammar_unref(g);
}

/* RFC 3339, 5.7. */
TEST(dates_exist)
{
	static const unsigned years[] = {0,    1,    4,	   96,	 100,  400,  1600,
					 1900, 1904, 1996, 2000, 2008, 2023, 2024,
					 2028, 2096, 2100, 2400, 9996, 9999};
	static const unsigned days[] = {31, 0, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	struct grammar *g = schema_of("{\"format\":\"date\"}", true);

	for (size_t y = 0; y < ARRAY_SIZE(years); y++) {
		unsigned year = years[y];
		bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

		for (unsigned month = 0; month <= 13; month++) {
			unsigned most = month < 1 || month > 12 ? 0
					: month == 2		? 28u + leap
								: days[month - 1];

			for (unsigned day = 0; day <= 32; day++) {
				char text[40];

				snprintf(text, sizeof(text), "\"%04u-%02u-%02u\"", year, month,
					 day);
				if ((matches(g, vocab, text, strlen(text)) == 1) !=
				    (day >= 1 && day <= most))
					fail_msg("%s", text);
			}
		}
	}
	grammar_unref(g);
}

/* Against the definition, for many bounds and values. */
TEST(number_bounds_are_exact)
{
	static const double bounds[] = {-10, -2.5, -1, -0.75, 0, 0.1, 0.5, 1, 1.05, 9, 10.01, 100};
	static const char *const values[] = {
		"-11", "-10.5", "-10",	 "-9.99", "-2.51", "-2.5",   "-2.49", "-1.01",
		"-1",  "-0.9",	"-0.75", "-0.7",  "-0.01", "0",	     "0.0",   "0.05",
		"0.1", "0.100", "0.11",	 "0.49",  "0.5",   "0.51",   "0.99",  "1",
		"1.0", "1.01",	"1.05",	 "1.051", "1.06",  "8.9",    "9",     "9.5",
		"10",  "10.01", "10.02", "99.9",  "100",   "100.01", "101",
	};
	const size_t n = ARRAY_SIZE(bounds);

	for (size_t i = 0; i < n * n * 4; i++) {
		double least = bounds[i % n], most = bounds[i / n % n];
		bool open_least = i / n / n & 1, open_most = i / n / n & 2;
		struct grammar *g = NULL;
		char schema[200], err[256];

		snprintf(schema, sizeof(schema), "{\"type\":\"number\",\"%s\":%g,\"%s\":%g}",
			 open_least ? "exclusiveMinimum" : "minimum", least,
			 open_most ? "exclusiveMaximum" : "maximum", most);
		if (least > most || (least == most && (open_least || open_most))) {
			assert_int_equal(build_schema(schema, &(struct grammar_json_options){0}, &g,
						      err, sizeof(err)),
					 -EINVAL);
			continue;
		}
		g = schema_of(schema, true);
		for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
			double x = atof(values[k]);
			bool in = (open_least ? x > least : x >= least) &&
				  (open_most ? x < most : x <= most);

			if ((matches(g, vocab, values[k], strlen(values[k])) == 1) != in)
				fail_msg("%s and %s", schema, values[k]);
		}
		grammar_unref(g);
	}
}

TEST(integer_bounds_are_exact)
{
	for (int least = -130; least <= 130; least += 13) {
		for (int most = least; most <= 1200; most += 67) {
			struct grammar *g;
			char text[100];

			snprintf(text, sizeof(text),
				 "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", least,
				 most);
			g = schema_of(text, true);
			for (int x = -140; x < 1300; x += x < 130 ? 1 : 3) {
				snprintf(text, sizeof(text), "%d", x);
				if ((matches(g, vocab, text, strlen(text)) == 1) !=
				    (x >= least && x <= most))
					fail_msg("%d within %d and %d", x, least, most);
			}
			grammar_unref(g);
		}
	}
}

/* Values of two lists, of which only those in both remain. */
TEST(lists_are_compared)
{
	char schema[2000], *at = schema;

	each_case("schemas.txt", "lists are compared", check_row);
	/* Deep ones take no longer than wide ones. */
	at += sprintf(at, "{\"const\":");
	for (unsigned copy = 0; copy < 2; copy++) {
		for (unsigned i = 0; i < 90; i++)
			at += sprintf(at, "{\"a\":");
		at += sprintf(at, "1");
		for (unsigned i = 0; i < 90; i++)
			at += sprintf(at, "}");
		at += sprintf(at, copy ? "]}" : ",\"enum\":[");
	}
	grammar_unref(schema_of(schema, true));
}

/* The literal of a number, which is recorded of integers beyond 2^53. */
static void literal(cJSON *schema, const char *name, int index, const char *text)
{
	cJSON *item = cJSON_GetObjectItem(schema, name);

	item = cJSON_IsArray(item) ? cJSON_GetArrayItem(item, index) : item;
	item->valuestring = cJSON_malloc(strlen(text) + 1);
	strcpy(item->valuestring, text);
}

/* Listed integers and bounds whose doubles are equal. */
TEST(large_integers)
{
	static const char *const bounds[] = {"minimum", "exclusiveMinimum", "maximum",
					     "exclusiveMaximum"};
	static const char *const fits[] = {"-11", "--1", "11-", "1--"};
	static const char *const values[] = {"9007199254740992", "9007199254740993",
					     "9007199254740994"};

	/* Of three integers the middle one is the bound; then the same below 0. */
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned negative = 0; negative < 2; negative++) {
			const struct grammar_json_options options = {.strict = true};
			struct grammar_builder *b = grammar_builder_new();
			cJSON *schema = cJSON_CreateObject(), *list;
			struct grammar *g = NULL;
			struct grammar_json *j;
			char text[3][24], err[256];
			uint32_t root;

			list = cJSON_AddArrayToObject(schema, "enum");
			for (int k = 0; k < 3; k++) {
				snprintf(text[k], sizeof(text[k]), "%s%s", negative ? "-" : "",
					 values[k]);
				cJSON_AddItemToArray(list,
						     cJSON_CreateNumber(strtod(text[k], NULL)));
				literal(schema, "enum", k, text[k]);
			}
			cJSON_AddNumberToObject(schema, bounds[i], strtod(text[1], NULL));
			literal(schema, bounds[i], 0, text[1]);
			j = grammar_json_new(b, &options);
			root = grammar_json_schema(j, schema, schema);
			grammar_json_finish(j);
			assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), 0);
			for (int k = 0; k < 3; k++) {
				bool want = fits[i][negative ? 2 - k : k] == '1';

				if ((matches(g, vocab, text[k], strlen(text[k])) == 1) != want)
					fail_msg("%s %s, %s", bounds[i], text[1], text[k]);
			}
			grammar_unref(g);
			grammar_json_free(j);
			grammar_builder_free(b);
			cJSON_Delete(schema);
		}
	}
}

static void refuse(char **field, bool strict)
{
	const struct grammar_json_options options = {.strict = strict};
	struct grammar *g = NULL;
	char err[256] = "";
	int error = build_schema(field[0], &options, &g, err, sizeof(err));

	if (error != -EINVAL || !strstr(err, field[1]))
		fail_msg("%s: %d, '%s' does not say '%s'", field[0], error, err, field[1]);
}

static void refuse_always(char **field)
{
	refuse(field, true);
	refuse(field, false);
}

static void refuse_when_strict(char **field)
{
	refuse(field, true);
	grammar_unref(schema_of(field[0], false));
}

TEST(wrong_schemas)
{
	each_case("schemas.txt", "wrong", refuse_always);
	each_case("schemas.txt", "wrong when strict", refuse_when_strict);
}

TEST(white_space)
{
	const struct grammar_json_options compact = {.compact = true},
					  own = {.whitespace = "[ ]{0,2}"};
	const char *schema =
		"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":"
		"{\"type\":\"integer\"}}},\"required\":[\"a\"]}";
	const char *pretty = "{\n  \"a\": [\n    1,\n    2\n  ]\n}";
	struct grammar *g;
	char err[256];

	each_case("schemas.txt", "white space", check_row);
	assert_int_equal(build_schema(schema, &compact, &g, err, sizeof(err)), 0);
	assert_int_equal(matches(g, vocab, "{\"a\":[1,2]}", 11), 1);
	assert_int_equal(matches(g, vocab, "{\"a\": [1,2]}", 12), -1);
	grammar_unref(g);
	assert_int_equal(build_schema(schema, &own, &g, err, sizeof(err)), 0);
	assert_int_equal(matches(g, vocab, "{  \"a\": [1,2]  }", 16), 1);
	assert_int_equal(matches(g, vocab, "{   \"a\": [1,2]}", 15), -1);
	grammar_unref(g);
	g = schema_of(schema, true);
	assert_int_equal(matches(g, vocab, pretty, strlen(pretty)), 1);
	assert_int_equal(matches(g, vocab, "{\n\n\"a\":[]}", 10), -1);
	grammar_unref(g);
}

/* ---- hostile schemas ------------------------------------------------------------------------- */

/* A text made of n times a part; to be freed. */
static char *many(const char *before, const char *part, unsigned n, const char *after)
{
	size_t len = strlen(part);
	char *text = malloc(strlen(before) + (len + 12) * n + strlen(after) + 1), *at = text;

	assert_non_null(text);
	at += sprintf(at, "%s", before);
	for (unsigned i = 0; i < n; i++) {
		const char *mark = strchr(part, '@');

		if (i)
			*at++ = ',';
		if (mark)
			at += sprintf(at, "%.*s%u%s", (int)(mark - part), part, i, mark + 1);
		else
			at += sprintf(at, "%s", part);
	}
	sprintf(at, "%s", after);
	return text;
}

static int32_t last_allowed(const struct grammar_mask *mask)
{
	int32_t token = (int32_t)n_tokens - 1;

	if (mask->list)
		return mask->list[mask->n - 1];
	while (!(mask->bits[token / 32] >> (token % 32) & 1))
		token--;
	return token;
}

static int try_hostile(char *text, bool walk)
{
	const struct grammar_json_options options = {.strict = false};
	struct grammar *g = NULL;
	char err[256] = "";
	int error = build_schema(text, &options, &g, err, sizeof(err));

	if (!error && walk) {
		struct grammar_matcher *m;
		struct grammar_mask mask;

		assert_int_equal(grammar_matcher_new(g, vocab, &m), 0);
		for (unsigned i = 0; i < 50 && !error; i++) {
			error = grammar_matcher_mask(m, &mask);
			if (error || !mask.n)
				break;
			error = grammar_matcher_accept(m, last_allowed(&mask));
		}
		grammar_matcher_free(m);
	}
	if (g) {
		assert_true(grammar_memory(g) < (size_t)512 << 20);
		grammar_unref(g);
	}
	if (error && error != -E2BIG)
		print_message("%.60s: %s\n", text, err);
	free(text);
	assert_true(!error || error == -EINVAL || error == -E2BIG);
	return error;
}

static char *diamonds(void)
{
	char *text = malloc(8192);
	size_t n;

	assert_non_null(text);
	n = (size_t)sprintf(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
	for (unsigned i = 0; i < 40; i++)
		n += (size_t)sprintf(text + n,
				     "\"d%u\":{\"allOf\":[{\"$ref\":\"#/$defs/d%u\"},"
				     "{\"$ref\":\"#/$defs/d%u\"}]},",
				     i, i + 1, i + 1);
	sprintf(text + n, "\"d40\":{}}}");
	return text;
}

TEST(hostile_schemas)
{
	/* Long lists are no problem. */
	assert_int_equal(try_hostile(many("{\"enum\":[", "\"value number @\"", 20000, "]}"), true),
			 0);
	assert_int_equal(try_hostile(many("{\"properties\":{", "\"p@\":{\"type\":\"integer\"}",
					  1000, "},\"additionalProperties\":true}"),
				     true),
			 0);
	/* Products of alternatives. */
	try_hostile(many("{\"allOf\":[",
			 "{\"anyOf\":[{\"minLength\":@},{\"maxLength\":100},{\"pattern\":\"a\"}]}",
			 40, "]}"),
		    true);
	/* Chains and rings of references. */
	assert_int_equal(try_hostile(many("{\"$ref\":\"#\",\"x\":[", "@", 1, "]}"), true), -EINVAL);
	/* Each of 40 schemas leads twice to the next one. */
	assert_int_equal(try_hostile(diamonds(), true), -E2BIG);
	try_hostile(many("{\"allOf\":[", "{\"$ref\":\"#\"}", 3000, "]}"), true);
	try_hostile(many("{\"anyOf\":[", "{\"items\":{\"$ref\":\"#\"}}", 300, "]}"), true);
	try_hostile(many("{\"anyOf\":[{\"type\":\"null\"},",
			 "{\"properties\":{\"a\":{\"$ref\":\"#\"}}}", 100, "]}"),
		    true);
	/* Counts. */
	try_hostile(
		many("{\"type\":\"array\",\"minItems\":1000000000,\"items\":{\"type\":\"string\","
		     "\"minLength\":999999999",
		     "", 1, "}}"),
		true);
	try_hostile(many("{\"pattern\":\"", "((a*)*)*(a|a)*(aa|a){1000}", 1, "$\"}"), true);
	try_hostile(many("{\"pattern\":\"", "(x+x+)+y", 1, "$\"}"), true);
	try_hostile(many("{\"pattern\":\"", "[^a]*.{0,5000}a.{5000}", 1, "\"}"), true);
	try_hostile(many("{\"anyOf\":[", "{\"pattern\":\"^.*a.{@}$\"}", 300, "]}"), true);
	/* More nodes than there may be. */
	assert_int_equal(
		try_hostile(many("{\"enum\":[", "\"@ abcdefghijklmnopqrstuvwxyz0123456789\"", 30000,
				 "]}"),
			    false),
		-E2BIG);
}

/* ---- the conformance kit's texts ------------------------------------------------------------- */

TEST(no_wrong_json_is_taken)
{
	const char *kit = getenv("TXDA_CONFORMANCE");
	struct grammar *g = schema_of("true", true);
	unsigned good = 0, bad = 0;
	char path[1024], buf[65536];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/json", kit ? kit : "");
	dir = kit ? opendir(path) : NULL;
	if (!dir) {
		grammar_unref(g);
		skip();
	}
	while ((entry = readdir(dir))) {
		cJSON *json;
		FILE *file;
		char *text;
		size_t len;

		if (!strstr(entry->d_name, ".json"))
			continue;
		snprintf(path, sizeof(path), "%s/json/%.200s", kit, entry->d_name);
		file = fopen(path, "rb");
		assert_non_null(file);
		len = fread(buf, 1, sizeof(buf) - 1, file);
		fclose(file);
		buf[len] = 0;
		if (entry->d_name[0] == 'n') {
			if (matches(g, vocab, buf, len) == 1)
				fail_msg("%s is taken", entry->d_name);
			bad++;
			continue;
		}
		json = cJSON_ParseWithLength(buf, len);
		assert_non_null(json);
		text = cJSON_PrintUnformatted(json);
		if (matches(g, vocab, text, strlen(text)) != 1)
			fail_msg("%s is not taken: %s", entry->d_name, text);
		good++;
		free(text);
		cJSON_Delete(json);
	}
	closedir(dir);
	assert_true(good > 10 && bad > 10);
	grammar_unref(g);
}

static int set_up(void **state)
{
	(void)state;
	vocab = test_vocab(NULL, 0, &n_tokens);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	grammar_unref(current);
	grammar_vocab_unref(vocab);
	return 0;
}

TEST_MAIN_ALL(set_up, tear_down)
