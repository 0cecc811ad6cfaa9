// SPDX-License-Identifier: MIT
/* JSON Schema as grammars: what is valid and what is not, and hostile schemas. */
#include "grammar_test.h"

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

/* @good and @bad: texts, each followed by a line break. */
static void check(const char *schema, bool strict, const char *good, const char *bad)
{
	struct grammar *g = schema_of(schema, strict);

	for (const char *list = good, *end; (end = strchr(list, '\n')); list = end + 1) {
		if (matches(g, vocab, list, (size_t)(end - list)) != 1)
			fail_msg("%s does not take %.*s", schema, (int)(end - list), list);
	}
	for (const char *list = bad, *end; (end = strchr(list, '\n')); list = end + 1) {
		if (matches(g, vocab, list, (size_t)(end - list)) == 1)
			fail_msg("%s takes %.*s", schema, (int)(end - list), list);
	}
	grammar_unref(g);
}

static void types(void **state)
{
	(void)state;
	check("{\"type\":\"null\"}", true, "null\n", "nul\n0\n\n");
	check("{\"type\":\"boolean\"}", true, "true\nfalse\n", "True\n");
	check("{\"type\":[\"integer\",\"string\"]}", true, "1\n\"x\"\n", "1.5\nnull\n");
	check("{\"type\":\"string\",\"nullable\":true}", true, "null\n\"\"\n", "1\n");
	check("true", true, "1\n[]\n{}\n[1, {\"a\": [null]}]\n\"\\u00e9\\ud83d\\ude00\"\n",
	      "[1,]\n{1:2}\n{\"a\":1,}\n'a'\n01\n1.\n.5\n\"\\ud800\"\n\"\\x\"\nnan\n");
	check("{\"type\":\"number\"}", true, "0\n-1\n12.50\n1e5\n-3.25E-10\n",
	      "01\n1.\n+1\n1e\n--1\n");
	check("{\"type\":\"integer\"}", true, "0\n-12\n999999999999999999\n",
	      "1.0\n01\n-0\n-\n1000000000000000000\n");
}

static void strings(void **state)
{
	(void)state;
	check("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", true,
	      "\"ab\"\n\"éé\"\n\"a\\n\\\"\"\n\"\\u00e9\\ud83d\\ude00\"\n",
	      "\"a\"\n\"abcd\"\n\"\"\n");
	check("{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[0-9]{2})?$\"}", true,
	      "\"abc\"\n\"a-12\"\n", "\"A\"\n\"a-1\"\n\"\"\n");
	check("{\"pattern\":\"b\"}", true, "\"b\"\n\"a\\nb\\\"c\"\n", "\"a\"\n1\n");
	check("{\"pattern\":\"^[^x]\\\"?$\"}", true, "\"a\"\n\"\\n\\\"\"\n\"\\\\\"\n",
	      "\"x\"\n\"\n\"\n");
	check("{\"format\":\"date-time\"}", true,
	      "\"2024-02-29T23:59:59Z\"\n\"2024-12-01T00:00:00.123+05:30\"\n",
	      "\"2024-13-01T00:00:00Z\"\n\"2024-12-01\"\n");
	check("{\"format\":\"date\"}", true, "\"2024-02-29\"\n", "\"2024-2-29\"\n\"2024-02-32\"\n");
	check("{\"format\":\"time\"}", true, "\"01:02:03Z\"\n", "\"24:00:00Z\"\n\"01:02:03\"\n");
	check("{\"format\":\"duration\"}", true, "\"P1DT2H\"\n\"P3W\"\n\"PT5M\"\n\"P1Y2M3D\"\n",
	      "\"P\"\n\"PT\"\n\"P1H\"\n");
	check("{\"format\":\"uuid\"}", true, "\"123e4567-e89b-12d3-a456-426614174000\"\n",
	      "\"123e4567e89b12d3a456426614174000\"\n");
	check("{\"format\":\"ipv4\"}", true, "\"192.168.0.255\"\n", "\"256.1.1.1\"\n\"1.2.3\"\n");
	check("{\"format\":\"ipv6\"}", true,
	      "\"::1\"\n\"fe80::1:2\"\n\"1:2:3:4:5:6:7:8\"\n\"::\"\n",
	      "\"1:2\"\n\":::\"\n\"1:2:3:4:5:6:7:8:9\"\n");
	check("{\"format\":\"email\"}", true, "\"a.b+c@example.org\"\n",
	      "\"a@\"\n\"@b\"\n\"a b@c\"\n");
	check("{\"format\":\"hostname\"}", true, "\"a-b.example\"\n", "\"-a\"\n\"a..b\"\n");
	check("{\"format\":\"uri\"}", true, "\"https://example.org/a?b=c#d\"\n", "\"no uri\"\n");
	check("{\"type\":\"string\",\"format\":\"unheard-of\"}", true, "\"x y\"\n", "1\n");
}

static void numbers(void **state)
{
	(void)state;
	check("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}", true,
	      "-12\n-9\n-1\n0\n7\n10\n99\n100\n299\n305\n", "-13\n306\n400\n1000\n-0\n05\n-120\n");
	check("{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}", true,
	      "1\n9\n", "0\n10\n-1\n");
	check("{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true}", true, "1\n", "0\n");
	check("{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", true, "2\n3\n", "1\n4\n");
	check("{\"type\":\"integer\",\"minimum\":10}", true, "10\n11\n99999\n", "9\n-11\n");
	check("{\"type\":\"integer\",\"maximum\":-5}", true, "-5\n-6\n-50\n", "-4\n5\n0\n");
	check("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.25}", true,
	      "-1.5\n-1.50\n-1.4999\n-1\n-0.5\n0\n0.0\n1\n1.999\n2\n2.0\n2.25\n2.250\n2.2\n",
	      "-1.51\n-2\n2.26\n2.2501\n3\n1.\n2.\n-1.\n-0\n1e0\n");
	check("{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", true,
	      "0.5\n0.001\n0.999\n", "0\n0.0\n1\n1.0\n-0.5\n0.\n");
	check("{\"type\":\"number\",\"minimum\":0.25,\"maximum\":0.35}", true,
	      "0.25\n0.250\n0.3\n0.35\n0.3499\n0.350\n", "0.2\n0.24\n0.36\n0.351\n0\n1\n");
	check("{\"type\":\"number\",\"minimum\":3,\"maximum\":3}", true, "3\n3.0\n", "3.1\n2\n4\n");
	check("{\"type\":\"number\",\"minimum\":1000000}", true, "1000000\n1000000.5\n99999999\n",
	      "999999\n999999.9\n");
	check("{\"type\":\"integer\",\"multipleOf\":7}", true, "0\n7\n-14\n700\n",
	      "1\n8\n-0\n00\n");
	check("{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":-7,\"maximum\":12}", true,
	      "-5\n0\n5\n10\n", "-10\n12\n15\n-7\n1\n");
	check("{\"minimum\":9007199254740993,\"type\":\"integer\"}", true, "9007199254740994\n",
	      "9007199254740991\n");
}

/* Against the definition, for many bounds and values. */
static void number_bounds_are_exact(void **state)
{
	static const double bounds[] = {-10, -2.5, -1, -0.75, 0, 0.1, 0.5, 1, 1.05, 9, 10.01, 100};
	static const char *const values[] = {
		"-11", "-10.5", "-10",	 "-9.99", "-2.51", "-2.5",   "-2.49", "-1.01",
		"-1",  "-0.9",	"-0.75", "-0.7",  "-0.01", "0",	     "0.0",   "0.05",
		"0.1", "0.100", "0.11",	 "0.49",  "0.5",   "0.51",   "0.99",  "1",
		"1.0", "1.01",	"1.05",	 "1.051", "1.06",  "8.9",    "9",     "9.5",
		"10",  "10.01", "10.02", "99.9",  "100",   "100.01", "101",
	};
	const size_t n = sizeof(bounds) / sizeof(bounds[0]);

	(void)state;
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
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			double x = atof(values[k]);
			bool in = (open_least ? x > least : x >= least) &&
				  (open_most ? x < most : x <= most);

			if ((matches(g, vocab, values[k], strlen(values[k])) == 1) != in)
				fail_msg("%s and %s", schema, values[k]);
		}
		grammar_unref(g);
	}
}

static void integer_bounds_are_exact(void **state)
{
	(void)state;
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

static void objects(void **state)
{
	(void)state;
	check("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
	      "\"string\"},"
	      "\"c\":{\"type\":\"null\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
	      true,
	      "{\"a\":1,\"b\":\"x\",\"c\":null}\n{\"b\":\"\"}\n{ \"b\": \"\" }\n{\"a\": 1, \"b\": "
	      "\"\"}\n"
	      "{\"b\":\"\", \"c\":null}\n",
	      "{}\n{\"a\":1}\n{\"b\":1}\n{\"b\":\"\",\"a\":1}\n{\"b\":\"\",}\n{,\"b\":\"\"}\n"
	      "{\"b\":\"\",\"d\":1}\n{\"b\":\"\" \"c\":null}\n");
	/* Nothing said: no others. */
	check("{\"properties\":{\"a\":{}}}", true, "{}\n{\"a\":[1]}\n", "{\"b\":1}\n[]\n");
	check("{\"type\":\"object\"}", true, "{}\n{\"x\":{\"y\":[]}, \"z\":1}\n{ }\n",
	      "[]\n{\"x\"}\n");
	check("{\"properties\":{\"name\":{\"type\":\"string\"},\"né\":{}},\"required\":[\"name\"],"
	      "\"additionalProperties\":{\"type\":\"integer\"}}",
	      true,
	      "{\"name\":\"x\"}\n{\"name\":\"x\",\"nam\":1}\n{\"name\":\"x\",\"names\":1, "
	      "\"q\":2}\n"
	      "{\"name\":\"x\",\"\":1}\n{\"name\":\"x\",\"ü\":1}\n",
	      "{\"name\":\"x\",\"name\":1}\n{\"name\":\"x\",\"q\":\"\"}\n{\"q\":1}\n"
	      "{\"name\":\"x\",\"n\\u0061me\":1}\n");
	check("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":"
	      "1,"
	      "\"maxProperties\":2}",
	      true, "{\"a\":null}\n{\"a\":null,\"b\":null}\n",
	      "{}\n{\"a\":null,\"b\":null,\"c\":null}\n{\"a\":1}\n");
	check("{\"type\":\"object\",\"patternProperties\":{\"^x-[a-z]+$\":{\"type\":\"integer\"}},"
	      "\"additionalProperties\":false}",
	      true, "{}\n{\"x-a\":1}\n{\"x-a\":1,\"x-b\":2}\n", "{\"y\":1}\n{\"x-a\":\"\"}\n");
	/* No key matches both, or their values are alike. */
	check("{\"patternProperties\":{\"^xa+\":{\"type\":\"integer\"},\"^xb?\":{\"type\":"
	      "\"integer\"}}}",
	      true, "{\"xa\":1,\"x\":2}\n", "{\"xa\":null}\n{\"y\":1}\n");
	check("{\"patternProperties\":{\"^s-\":{\"type\":\"string\"},\"^n-\":{\"type\":\"null\"},"
	      "\"^s_+\":{\"type\":\"integer\"}}}",
	      true, "{\"s-a\":\"\",\"n-\":null,\"s__\":1}\n", "{\"s-a\":1}\n{\"n-b\":\"\"}\n");
	check("{\"type\":\"string\",\"pattern\":\"^a\",\"allOf\":[{\"pattern\":\"^a\"}]}", true,
	      "\"ab\"\n", "\"b\"\n");
	/* Nothing said: no others, whose keys could match the pattern. */
	check("{\"patternProperties\":{\"^x-[a-z]+$\":{\"type\":\"integer\"}}}", true,
	      "{}\n{\"x-a\":1}\n", "{\"y\":1}\n{\"x-a\":\"\"}\n");
	check("{\"properties\":{\"a\":{\"type\":\"null\"}},\"patternProperties\":{\"^x\":{\"type\":"
	      "\"integer\"}},\"required\":[\"a\"]}",
	      false, "{\"a\":null,\"xa\":1}\n", "{\"a\":null,\"b\":1}\n{\"xa\":1}\n");
	check("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]$\"}}", true,
	      "{\"a\":1}\n", "{\"ab\":1}\n");
	check("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"on\",\"off\",3]}}", true,
	      "{\"on\":1}\n", "{\"of\":1}\n{3:1}\n");
	/* Names of the schema are names, too. */
	check("{\"properties\":{\"a\":{},\"bb\":{},\"c\":{}},\"propertyNames\":{\"maxLength\":1,"
	      "\"enum\":[\"a\",\"bb\"]}}",
	      true, "{\"a\":1}\n{}\n", "{\"bb\":1}\n{\"c\":1}\n");
	check("{\"required\":[\"a\"],\"propertyNames\":{\"type\":\"string\",\"maxLength\":1}}",
	      true, "{\"a\":1}\n{\"a\":1,\"b\":2}\n", "{}\n{\"a\":1,\"bb\":2}\n");
	check("{\"type\":\"object\",\"propertyNames\":false}", true, "{}\n", "{\"a\":1}\n");
	check("{\"type\":\"object\",\"propertyNames\":{\"type\":\"integer\"}}", true, "{}\n",
	      "{\"a\":1}\n{1:1}\n");
	check("{\"type\":\"object\",\"propertyNames\":{\"minimum\":1}}", true, "{\"a\":1}\n",
	      "{1:1}\n");
	check("{\"properties\":{\"a\":{}},\"required\":[\"a\",\"z\"]}", true, "{\"a\":1,\"z\":2}\n",
	      "{\"a\":1}\n");
	check("{\"type\":\"object\",\"properties\":{\"q\\\"\\n\":{\"type\":\"null\"}}}", true,
	      "{\"q\\\"\\n\":null}\n", "{\"q\":null}\n");
}

static void counts_of_several_schemas(void **state)
{
	(void)state;
	check("{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":2,\"allOf\":[{"
	      "\"minProperties\":1,"
	      "\"maxProperties\":3}]}",
	      true, "{\"a\":1,\"b\":1}\n", "{\"a\":1}\n{\"a\":1,\"b\":1,\"c\":1}\n");
	check("{\"anyOf\":[{\"type\":\"array\",\"minItems\":3,\"maxItems\":2},{\"type\":\"null\"}]"
	      "}",
	      true, "null\n", "[]\n[1,1]\n[1,1,1]\n");
	check("{\"type\":[\"array\",\"null\"],\"minItems\":3,\"allOf\":[{\"maxItems\":2,"
	      "\"prefixItems\":"
	      "[{}]}]}",
	      true, "null\n", "[1,1]\n[1,1,1]\n");
}

static void unevaluated_properties(void **state)
{
	(void)state;
	check("{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{\"type\":\"boolean\"}}}],"
	      "\"unevaluatedProperties\":false}",
	      true, "{}\n{\"a\":true}\n", "{\"a\":1}\n{\"b\":1}\n");
	check("{\"$ref\":\"#/$defs/"
	      "x\",\"required\":[\"a\"],\"properties\":{\"b\":{\"type\":\"null\"}},"
	      "\"unevaluatedProperties\":false,\"$defs\":{\"x\":{\"properties\":{\"a\":"
	      "{\"type\":\"boolean\"}}}}}",
	      true, "{\"b\":null,\"a\":true}\n", "{}\n{\"b\":null}\n{\"a\":true,\"c\":1}\n");
	/* Only additionalProperties is about its own schema alone. */
	check("{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{\"type\":\"boolean\"}}}],"
	      "\"additionalProperties\":false}",
	      true, "{}\n", "{\"a\":true}\n");
	/* Nobody names it. */
	check("{\"anyOf\":[{\"required\":[\"z\"],\"unevaluatedProperties\":false},{\"type\":"
	      "\"null\"}]}",
	      true, "null\n", "{\"z\":1}\n");
}

static void arrays(void **state)
{
	(void)state;
	check("{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", true,
	      "[]\n[ ]\n[1]\n[1, 2,3]\n", "[1,]\n[\"a\"]\n[1 2]\n");
	check("{\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}", true,
	      "[null,null]\n[null, null, null]\n", "[]\n[null]\n[null,null,null,null]\n");
	check("{\"type\":\"array\",\"maxItems\":0}", true, "[]\n", "[1]\n");
	check("{\"type\":\"array\",\"maxItems\":1}", true, "[]\n[1]\n", "[1,2]\n");
	check("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", true,
	      "[]\n[1]\n[1,\"a\"]\n[1,\"a\",null]\n", "[\"a\"]\n[1,2]\n");
	check("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false,"
	      "\"minItems\":2}",
	      true, "[1,\"a\"]\n", "[]\n[1]\n[1,\"a\",null]\n");
	check("{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{"
	      "\"type\":\"null\"},"
	      "\"maxItems\":3}",
	      true, "[1]\n[1,null,null]\n", "[1,2]\n[1,null,null,null]\n");
	check("{\"type\":\"array\",\"minItems\":3,\"maxItems\":3,\"items\":{\"type\":\"array\","
	      "\"items\":"
	      "{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}}",
	      true, "[[true],[false,true],[true]]\n", "[[true],[true]]\n[[],[true],[true]]\n");
}

static void choices(void **state)
{
	(void)state;
	check("{\"enum\":[\"red\",\"green\",\"reddish\",3,null,true,{\"a\":[1,\"x\"]}]}", true,
	      "\"red\"\n\"green\"\n\"reddish\"\n3\nnull\ntrue\n{\"a\": [1, \"x\"]}\n",
	      "\"re\"\n\"blue\"\n4\n{}\n");
	check("{\"enum\":[1,\"a\",null],\"type\":\"string\"}", true, "\"a\"\n", "1\nnull\n");
	check("{\"const\":\"a\\\"b\\u0007\"}", true, "\"a\\\"b\\u0007\"\n", "\"a\"\n");
	check("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]"
	      "}",
	      true, "1\n[]\n[[1],2]\n", "\"a\"\n[null]\n");
	check("{\"oneOf\":[{\"properties\":{\"kind\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}"
	      "},"
	      "\"required\":[\"kind\",\"x\"]},{\"properties\":{\"kind\":{\"const\":\"b\"},\"y\":"
	      "{\"type\":\"string\"}},\"required\":[\"kind\",\"y\"]}]}",
	      true, "{\"kind\":\"a\",\"x\":1}\n{\"kind\":\"b\",\"y\":\"\"}\n",
	      "{\"kind\":\"a\",\"y\":\"\"}\n{\"kind\":\"c\"}\n");
	check("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
	      "{\"properties\":{\"b\":{\"type\":\"null\"},\"a\":{\"minimum\":5}}}],\"type\":"
	      "\"object\"}",
	      true, "{\"a\":5}\n{\"a\":7,\"b\":null}\n", "{\"a\":4}\n{\"b\":null}\n");
	check("{\"type\":\"string\",\"anyOf\":[{\"minLength\":3},{\"const\":\"x\"}]}", true,
	      "\"abc\"\n\"x\"\n", "\"ab\"\n1\n");
	check("{\"properties\":{\"v\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}},"
	      "\"required\":[\"v\"],\"additionalProperties\":false}",
	      true, "{\"v\":null}\n{\"v\":\"a\"}\n", "{}\n{\"v\":1}\n");
	check("{\"anyOf\":[{\"type\":\"integer\"},false]}", true, "1\n", "\"a\"\n");
}

static void lists_are_filtered(void **state)
{
	(void)state;
	check("{\"enum\":[0,1,14,-21,7.5,700,\"a\"],\"multipleOf\":7}", true,
	      "0\n14\n-21\n700\n\"a\"\n", "1\n7.5\n");
	/* Not by doubles, of which none of these is a multiple. */
	check("{\"enum\":[0.3,0.7,0.25,1e22,1],\"multipleOf\":0.1}", true, "0.3\n0.7\n1e+22\n1\n",
	      "0.25\n");
	check("{\"enum\":[1e-7,2.5e-7,3e300],\"multipleOf\":1e-7}", true, "1e-07\n3e+300\n",
	      "2.5e-07\n");
	check("{\"enum\":[[],[1],[1,2],[1,2,3]],\"minItems\":1,\"maxItems\":2}", true,
	      "[1]\n[1, 2]\n", "[]\n[1, 2, 3]\n");
	check("{\"enum\":[{},{\"a\":1},{\"a\":1,\"b\":2}],\"minProperties\":1,\"allOf\":[{"
	      "\"maxProperties\":1}]}",
	      true, "{\"a\": 1}\n", "{}\n{\"a\": 1, \"b\": 2}\n");
	check("{\"enum\":[{\"b\":1},{\"a\":1,\"b\":2},null],\"required\":[\"b\",\"a\"]}", true,
	      "{\"a\": 1, \"b\": 2}\nnull\n", "{\"b\": 1}\n");
	/* Keywords of other types, of no effect or of values that are excluded anyway. */
	check("{\"enum\":[1,\"a\",[],{}],\"type\":[\"integer\",\"array\",\"object\"],\"pattern\":"
	      "\"b\","
	      "\"items\":{\"type\":\"null\"},\"properties\":{\"a\":{}}}",
	      true, "1\n[]\n{}\n", "\"a\"\n");
	check("{\"enum\":[\"a\",[1]],\"format\":\"unheard-of\",\"items\":true}", true,
	      "\"a\"\n[1]\n", "1\n");
	check("{\"enum\":[\"a\",\"b\"],\"pattern\":\"b\"}", false, "\"a\"\n\"b\"\n", "1\n");
}

/* Values of two lists, of which only those in both remain. */
static void lists_are_compared(void **state)
{
	char schema[2000], *at = schema;

	(void)state;
	check("{\"enum\":[1,[1,2],{\"a\":1,\"b\":[]},{\"a\":1},\"x\",null,true,{\"b\":1,\"c\":2}],"
	      "\"allOf\":[{"
	      "\"enum\":[1.0,[2,1],{\"b\":[],\"a\":1},{\"b\":1},\"y\",false,null,{\"b\":1,\"c\":3},"
	      "[1]]}]}",
	      true, "1\n{\"a\": 1, \"b\": []}\nnull\n",
	      "[1, 2]\n{\"a\": 1}\n{\"b\": 1, \"c\": 2}\n\"x\"\ntrue\n[1]\n");
	check("{\"enum\":[0.3,0.5],\"allOf\":[{\"enum\":[0.30000000000000004,5e-1]}]}", true,
	      "0.5\n", "0.3\n");
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

static void references(void **state)
{
	(void)state;
	check("{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{"
	      "\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},"
	      "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}"
	      "}}",
	      true,
	      "{\"v\":1,\"next\":null}\n{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}"
	      "}}\n",
	      "{\"v\":1}\n{\"v\":1,\"next\":{}}\n");
	check("{\"items\":{\"$ref\":\"#/definitions/a~1b%20c/x/1\"},\"definitions\":{\"a/b "
	      "c\":{\"x\":"
	      "[{},{\"type\":\"null\"}]}}}",
	      true, "[null]\n", "[1]\n");
	check("{\"$ref\":\"#/$defs/"
	      "a\",\"maximum\":3,\"$defs\":{\"a\":{\"type\":\"integer\",\"minimum\":2}}}",
	      true, "2\n3\n", "1\n4\n");
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
static void large_integers(void **state)
{
	static const char *const bounds[] = {"minimum", "exclusiveMinimum", "maximum",
					     "exclusiveMaximum"};
	static const char *const fits[] = {"-11", "--1", "11-", "1--"};
	static const char *const values[] = {"9007199254740992", "9007199254740993",
					     "9007199254740994"};

	(void)state;
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

static void wrong_schemas(void **state)
{
	static const struct {
		const char *schema, *words;
		bool strict_only;
	} cases[] = {
		{"3", "must be an object, true or false", false},
		{"false", "matches nothing", false},
		{"{\"type\":\"strin\"}", "\"type\" must be", false},
		{"{\"type\":3}", "\"type\" must be", false},
		{"{\"enum\":[]}", "\"enum\" must be", false},
		{"{\"enum\":3}", "\"enum\" must be", false},
		{"{\"enum\":[1],\"type\":\"string\"}", "matches nothing", false},
		{"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "matches nothing", false},
		{"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "matches nothing", false},
		{"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "matches nothing", false},
		{"{\"properties\":[]}", "\"properties\" must be", false},
		{"{\"properties\":{\"a\":3}}", "must be an object, true or false", false},
		{"{\"required\":[1]}", "\"required\" must be", false},
		{"{\"minLength\":-1}", "\"minLength\" must be", false},
		{"{\"minItems\":1.5}", "\"minItems\" must be", false},
		{"{\"minimum\":\"x\"}", "\"minimum\" must be", false},
		{"{\"multipleOf\":0,\"type\":\"integer\"}", "\"multipleOf\" must be", false},
		{"{\"pattern\":\"(\"}", "regular expression, offset", false},
		{"{\"pattern\":3}", "\"pattern\" must be", false},
		{"{\"anyOf\":[]}", "\"anyOf\" must be", false},
		{"{\"allOf\":3}", "\"allOf\" must be", false},
		{"{\"$ref\":\"#/nowhere\"}", "does not resolve", false},
		{"{\"$ref\":\"http://x/y\"}", "only references within it", false},
		{"{\"$ref\":3}", "only references within it", false},
		{"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
		 "matches nothing", false},
		{"{\"not\":{}}", "\"not\", which cannot be enforced", true},
		{"{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\"", true},
		{"{\"type\":\"array\",\"contains\":{}}", "\"contains\"", true},
		{"{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":2}", "minLength", true},
		{"{\"type\":\"number\",\"multipleOf\":0.1}", "multipleOf", true},
		{"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":1}",
		 "minProperties", true},
		{"{\"type\":\"object\",\"unevaluatedProperties\":{\"type\":\"null\"}}",
		 "unevaluatedProperties with a schema", true},
		{"{\"properties\":{\"xa\":{}},\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}",
		 "patternProperties together with properties", true},
		{"{\"patternProperties\":{\"^x\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
		 "patternProperties together with additionalProperties", true},
		{"{\"patternProperties\":{\"^x\":{}},\"propertyNames\":{\"maxLength\":2}}",
		 "patternProperties together with propertyNames", true},
		{"{\"patternProperties\":{\"^a\":{\"type\":\"null\"},\"b$\":{\"type\":\"string\"}}"
		 "}",
		 "patternProperties whose patterns match the same key", true},
		{"{\"patternProperties\":{\"^xy*z\":{\"type\":\"null\"}},\"allOf\":[{"
		 "\"patternProperties\":{\"^xz\":{\"type\":\"string\"}}}]}",
		 "patternProperties whose patterns match the same key", true},
		{"{\"patternProperties\":{\"^\u00e9?x\":{\"type\":\"null\"},\"^x\":{\"type\":"
		 "\"string\"}}}",
		 "patternProperties whose patterns match the same key", true},
		{"{\"type\":\"string\",\"pattern\":\"^ab\",\"allOf\":[{\"format\":\"date\"}]}",
		 "pattern or format together with another one", true},
		{"{\"type\":\"string\",\"format\":\"date\",\"allOf\":[{\"format\":\"ipv4\"}]}",
		 "pattern or format together with another one", true},
		{"{\"properties\":{\"a\":{}},\"propertyNames\":{\"pattern\":\"b\"}}",
		 "pattern or format in propertyNames beside named properties", true},
		{"{\"properties\":{\"a\":{}},\"additionalProperties\":{},"
		 "\"propertyNames\":{\"maxLength\":2}}",
		 "propertyNames with properties and additionalProperties", true},
		{"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"}]}}",
		 "anyOf or oneOf in propertyNames", true},
		{"{\"required\":[\"ab\"],\"propertyNames\":{\"maxLength\":1}}", "matches nothing",
		 false},
		{"{\"enum\":[\"a\",\"b\"],\"pattern\":\"b\"}", "\"pattern beside enum or const\"",
		 true},
		{"{\"const\":\"a\",\"format\":\"date\"}", "\"format beside enum or const\"", true},
		{"{\"enum\":[[1]],\"items\":{\"type\":\"null\"}}", "\"items beside", true},
		{"{\"enum\":[{\"a\":1}],\"properties\":{\"a\":{\"type\":\"null\"}}}",
		 "\"properties beside", true},
		{"{\"enum\":[3],\"multipleOf\":2}", "matches nothing", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int strict = 0; strict < 2; strict++) {
			const struct grammar_json_options options = {.strict = strict};
			struct grammar *g = NULL;
			char err[256] = "";
			int error = build_schema(cases[i].schema, &options, &g, err, sizeof(err));

			if (cases[i].strict_only && !strict) {
				if (error)
					fail_msg("%s: %s", cases[i].schema, err);
				grammar_unref(g);
				continue;
			}
			if (error != -EINVAL || !strstr(err, cases[i].words))
				fail_msg("%s: %d, '%s' does not say '%s'", cases[i].schema, error,
					 err, cases[i].words);
		}
	}
}

static void white_space(void **state)
{
	const struct grammar_json_options compact = {.compact = true},
					  own = {.whitespace = "[ ]{0,2}"};
	const char *schema =
		"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":"
		"{\"type\":\"integer\"}}},\"required\":[\"a\"]}";
	const char *pretty = "{\n  \"a\": [\n    1,\n    2\n  ]\n}";
	struct grammar *g;
	char err[256];

	(void)state;
	check(schema, true, "{\"a\":[1,2]}\n{ \"a\": [ 1, 2 ] }\n", "{ \"a\" : []}\n");
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

static void hostile_schemas(void **state)
{
	(void)state;
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
	assert_int_equal(try_hostile(many("{\"$ref\":\"#\",\"x\":[", "@", 1, "]}"), true), 0);
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

static void no_wrong_json_is_taken(void **state)
{
	const char *kit = getenv("TXDA_CONFORMANCE");
	struct grammar *g = schema_of("true", true);
	unsigned good = 0, bad = 0;
	char path[1024], buf[65536];
	struct dirent *entry;
	DIR *dir;

	(void)state;
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
	grammar_vocab_unref(vocab);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types),
		cmocka_unit_test(strings),
		cmocka_unit_test(numbers),
		cmocka_unit_test(number_bounds_are_exact),
		cmocka_unit_test(integer_bounds_are_exact),
		cmocka_unit_test(objects),
		cmocka_unit_test(counts_of_several_schemas),
		cmocka_unit_test(unevaluated_properties),
		cmocka_unit_test(arrays),
		cmocka_unit_test(choices),
		cmocka_unit_test(lists_are_filtered),
		cmocka_unit_test(lists_are_compared),
		cmocka_unit_test(references),
		cmocka_unit_test(large_integers),
		cmocka_unit_test(wrong_schemas),
		cmocka_unit_test(white_space),
		cmocka_unit_test(hostile_schemas),
		cmocka_unit_test(no_wrong_json_is_taken),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
