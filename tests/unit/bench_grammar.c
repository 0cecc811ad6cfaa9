// SPDX-License-Identifier: MIT
/*
 * What masks cost: bench_grammar MODEL_DIR walks through JSON documents by schemas, as a model
 * would write them, with the vocabulary of the model's tokeniser, and tells the time per token: of
 * the first walk, when nothing is remembered, and of the next ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar.h"
#include "grammar_build.h"
#include "grammar_gbnf.h"
#include "grammar_schema.h"
#include "tokenizer.h"

/* Of this thread: others on the machine do not count. */
static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static struct grammar_vocab *load_vocab(const struct txda_tokenizer *tok)
{
	uint32_t n = (uint32_t)txda_tokenizer_vocab_size(tok);
	struct grammar_token *tokens = calloc(n, sizeof(*tokens));
	struct grammar_vocab *v = NULL;
	double start = now_us();

	for (uint32_t i = 0; tokens && i < n; i++) {
		tokens[i].bytes = txda_tokenizer_bytes(tok, i, &tokens[i].len);
		tokens[i].special = txda_tokenizer_is_special(tok, i);
	}
	if (!tokens || grammar_vocab_new(tokens, n, n, &v))
		exit(1);
	free(tokens);
	printf("vocabulary of %u tokens: %.1f ms\n", n, (now_us() - start) / 1e3);
	return v;
}

static struct grammar *compile(const char *schema)
{
	const struct grammar_json_options options = {0};
	struct grammar_builder *b = grammar_builder_new();
	struct grammar_json *j = grammar_json_new(b, &options);
	cJSON *json = cJSON_Parse(schema);
	struct grammar *g = NULL;
	uint32_t root;
	char err[256] = "";

	root = grammar_json_schema(j, json, json);
	grammar_json_finish(j);
	if (grammar_build(b, root, &g, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	grammar_json_free(j);
	grammar_builder_free(b);
	cJSON_Delete(json);
	return g;
}

static void walk(struct grammar *g, struct grammar_vocab *v, const uint32_t *ids, size_t n,
		 const char *name)
{
	struct grammar_matcher *m;
	double worst = 0, start = now_us(), total;

	if (grammar_matcher_new(g, v, &m))
		exit(1);
	for (size_t i = 0; i < n; i++) {
		struct grammar_mask mask;
		double before = now_us(), took;

		if (grammar_matcher_mask(m, &mask) || grammar_matcher_accept(m, (int32_t)ids[i])) {
			fprintf(stderr, "token %zu of the document does not fit\n", i);
			exit(1);
		}
		took = now_us() - before;
		worst = took > worst ? took : worst;
	}
	total = now_us() - start;
	printf("  %-6s %4zu tokens: %8.2f us a token, the longest %8.1f us\n", name, n,
	       total / (double)n, worst);
	grammar_matcher_free(m);
}

static void bench(struct txda_tokenizer *tok, struct grammar_vocab *v, const char *name,
		  const char *schema, const char *text)
{
	double start = now_us();
	struct grammar *g = compile(schema);
	uint32_t *ids;
	size_t n;

	printf("%s: compiled in %.2f ms\n", name, (now_us() - start) / 1e3);
	if (txda_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n))
		exit(1);
	walk(g, v, ids, n, "first");
	walk(g, v, ids, n, "second");
	walk(g, v, ids, n, "third");
	printf("  %.1f MB remembered\n", (double)grammar_memory(g) / 1e6);
	free(ids);
	grammar_unref(g);
}

int main(int argc, char **argv)
{
	struct txda_tokenizer *tok;
	struct grammar_vocab *v;
	char err[256];

	if (argc != 2 || txda_tokenizer_load(argv[1], &tok, err, sizeof(err))) {
		fprintf(stderr, "usage: %s MODEL_DIR\n%s\n", argv[0], argc == 2 ? err : "");
		return 1;
	}
	v = load_vocab(tok);
	bench(tok, v, "any JSON", "{\"type\":\"object\"}",
	      "{\"name\": \"A fox of the woods\", \"age\": 7, \"tags\": [\"red\", \"swift\", "
	      "\"sly\"], "
	      "\"home\": {\"place\": \"under the old oak by the river\", \"since\": 2019.5}, "
	      "\"ok\": true}");
	bench(tok, v, "a record",
	      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{"
	      "\"type\":\"integer\","
	      "\"minimum\":0,\"maximum\":120},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"
	      "\"string\"}},"
	      "\"home\":{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\"},"
	      "\"since\":"
	      "{\"type\":\"number\"}},\"required\":[\"place\",\"since\"],\"additionalProperties\":"
	      "false},"
	      "\"ok\":{\"type\":\"boolean\"}},\"required\":[\"name\",\"age\",\"tags\",\"home\","
	      "\"ok\"],"
	      "\"additionalProperties\":false}",
	      "{\"name\": \"A fox of the woods\", \"age\": 7, \"tags\": [\"red\", \"swift\", "
	      "\"sly\"], "
	      "\"home\": {\"place\": \"under the old oak by the river\", \"since\": 2019.5}, "
	      "\"ok\": true}");
	bench(tok, v, "bounded strings",
	      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":200},"
	      "\"b\":"
	      "{\"type\":\"string\",\"pattern\":\"^[A-Za-z "
	      "]+$\"},\"c\":{\"type\":\"string\",\"minLength\":3,"
	      "\"maxLength\":5000}},\"required\":[\"a\",\"b\",\"c\"]}",
	      "{\"a\": \"There was once a fox who lived in the woods, and he was hungry.\", \"b\": "
	      "\"There was once a fox who lived in the woods\", \"c\": \"Once upon a time there "
	      "were three "
	      "little pigs who went out into the world.\"}");
	grammar_vocab_unref(v);
	txda_tokenizer_free(tok);
	return 0;
}
