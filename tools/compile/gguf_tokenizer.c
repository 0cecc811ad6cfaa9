// SPDX-License-Identifier: MIT
/*
 * Converts the tokeniser of a GGUF file to the files of checkpoints: byte-level BPE to a
 * tokenizer.json, SentencePiece's BPE to a tokenizer.model, special tokens and the chat template to
 * tokenizer_config.json. The readers of these files check their contents.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cjson/cJSON.h>

#include "gguf_model.h"

#define MAX_TOKENS    (1u << 20)
#define MAX_MERGES    (4u << 20)
#define PREFIX	      "tokenizer.ggml."
#define TEMPLATE      "tokenizer.chat_template"
#define MAX_TEMPLATES 32
#define CONTRACTIONS  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define REST	      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SLASHES	      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER	      "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER	      "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define ENDING	      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"

/* tokenizer.ggml.token_type, and SentencePiece's types. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

/* tokenizer.ggml.pre: how text is split before pairs are merged. */
static const struct splitter {
	const char *names;     /* each with a space on both sides */
	const char *pattern;   /* NULL: GPT-2's own */
	const char *before[2]; /* patterns that split first, or NULL */
	bool nfc, whole_first, digits, adds_bos;
} splitters[] = {
	{.names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 ",
	 .pattern = CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST,
	 .whole_first = true,
	 .adds_bos = true},
	{.names = " glm4 chatglm-bpe ",
	 .pattern = CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST},
	{.names = " qwen2 deepseek-r1-qwen kormo f2llmv2 megrez ",
	 .pattern = CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST,
	 .nfc = true},
	{.names = " tekken ",
	 .pattern = "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+|"
		    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*|\\p{N}|" SLASHES,
	 .whole_first = true,
	 .adds_bos = true},
	{.names = " gpt-4o llama4 ",
	 .pattern = "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" ENDING
		    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*" ENDING "\\p{N}{1,3}|" SLASHES,
	 .whole_first = true},
	{.names = " deepseek-v3 ",
	 .before = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"},
	 .pattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
		    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
		    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
	{.names = " gpt-2 gpt2 phi-2 jina-es jina-de "},
	{.names = " smollm codeshell exaone minerva-7b refact command-r starcoder ",
	 .digits = true},
};
#define N_SPLITTERS (sizeof(splitters) / sizeof(splitters[0]))

struct reader {
	const struct gguf *g;
	const struct gguf_value *tokens, *types; /* types: may be NULL */
	char **text;				 /* of the tokens */
	struct tool_error *error;
};

static int find_list(const struct reader *r, const char *key, bool strings, uint64_t min,
		     uint64_t max, const struct gguf_value **ret)
{
	const struct gguf_value *v = gguf_get(r->g, key);

	if (v && (!v->array || (v->type == GGUF_STRING) != strings))
		return tool_fail(r->error, -EINVAL, "%s: not an array of %s", key,
				 strings ? "strings" : "numbers");
	if (v && (v->n < min || v->n > max))
		return tool_fail(r->error, -EINVAL, "%s: %llu elements, not %llu to %llu", key,
				 (unsigned long long)v->n, (unsigned long long)min,
				 (unsigned long long)max);
	*ret = v;
	return 0;
}

static int take_text(const struct reader *r, struct gguf_value *v, const char *key, uint64_t i,
		     char **ret)
{
	struct gguf_text t = gguf_next_text(v);

	if (!gguf_is_text(t))
		return tool_fail(r->error, -EINVAL, "%s: element %llu is not UTF-8, or has a NUL",
				 key, (unsigned long long)i);
	*ret = strndup(t.text, t.bytes);
	return *ret ? 0 : tool_fail(r->error, -ENOMEM, "no memory");
}

static int read_tokens(struct reader *r)
{
	static const char key[] = PREFIX "tokens";
	struct gguf_value at;
	int e = find_list(r, key, true, 1, MAX_TOKENS, &r->tokens);

	if (!e && !r->tokens)
		e = tool_fail(r->error, -EINVAL, "%s: missing", key);
	if (!e)
		e = find_list(r, PREFIX "token_type", false, r->tokens->n, r->tokens->n, &r->types);
	if (e)
		return e;
	r->text = calloc(r->tokens->n, sizeof(*r->text));
	if (!r->text)
		return tool_fail(r->error, -ENOMEM, "no memory");
	at = *r->tokens;
	for (uint64_t i = 0; i < r->tokens->n && !e; i++)
		e = take_text(r, &at, key, i, &r->text[i]);
	return e;
}

static void free_tokens(struct reader *r)
{
	for (uint64_t i = 0; r->text && i < r->tokens->n; i++)
		free(r->text[i]);
	free(r->text);
}

static int type_of(const struct reader *r, uint64_t i)
{
	double type = r->types ? gguf_number(r->types, i) : TOKEN_NORMAL;

	return type >= TOKEN_NORMAL && type <= TOKEN_BYTE ? (int)type : TOKEN_NORMAL;
}

/* A boolean, if present. */
static bool flag(const struct gguf *g, const char *key, bool otherwise)
{
	const struct gguf_value *v = gguf_get(g, key);

	return v && !v->array && v->type == GGUF_BOOL ? gguf_number(v, 0) != 0 : otherwise;
}

static cJSON *typed(const char *type)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "type", type);
	return json;
}

/* ---- byte-level BPE: tokenizer.json ---- */

static cJSON *byte_level(bool own_pattern)
{
	cJSON *json = typed("ByteLevel");

	cJSON_AddBoolToObject(json, "add_prefix_space", false);
	cJSON_AddBoolToObject(json, "trim_offsets", true);
	cJSON_AddBoolToObject(json, "use_regex", own_pattern);
	return json;
}

static void add_split(cJSON *list, const char *pattern)
{
	cJSON *step = typed("Split");

	cJSON_AddStringToObject(cJSON_AddObjectToObject(step, "pattern"), "Regex", pattern);
	cJSON_AddStringToObject(step, "behavior", "Isolated");
	cJSON_AddBoolToObject(step, "invert", false);
	cJSON_AddItemToArray(list, step);
}

static cJSON *make_pre_tokenizer(const struct splitter *s)
{
	cJSON *json = typed("Sequence"), *list = cJSON_AddArrayToObject(json, "pretokenizers"),
	      *step;

	for (unsigned i = 0; i < 2 && s->before[i]; i++)
		add_split(list, s->before[i]);
	if (s->pattern)
		add_split(list, s->pattern);
	if (s->digits) {
		step = typed("Digits");
		cJSON_AddBoolToObject(step, "individual_digits", true);
		cJSON_AddItemToArray(list, step);
	}
	cJSON_AddItemToArray(list, byte_level(!s->pattern));
	return json;
}

static void add_added(cJSON *list, uint64_t id, const char *text, bool special)
{
	cJSON *token = cJSON_CreateObject();

	cJSON_AddNumberToObject(token, "id", (double)id);
	cJSON_AddStringToObject(token, "content", text);
	cJSON_AddBoolToObject(token, "single_word", false);
	cJSON_AddBoolToObject(token, "lstrip", false);
	cJSON_AddBoolToObject(token, "rstrip", false);
	cJSON_AddBoolToObject(token, "normalized", false);
	cJSON_AddBoolToObject(token, "special", special);
	cJSON_AddItemToArray(list, token);
}

static int add_merges(const struct reader *r, cJSON *model)
{
	static const char key[] = PREFIX "merges";
	cJSON *list = cJSON_AddArrayToObject(model, "merges");
	const struct gguf_value *v = NULL;
	struct gguf_value at;
	int e = find_list(r, key, true, 0, MAX_MERGES, &v);

	if (!e && !v)
		e = tool_fail(r->error, -EINVAL, "%s: missing", key);
	if (e)
		return e;
	at = *v;
	for (uint64_t i = 0; i < v->n && !e; i++) {
		char *pair = NULL;

		e = take_text(r, &at, key, i, &pair);
		if (!e)
			cJSON_AddItemToArray(list, cJSON_CreateString(pair));
		free(pair);
	}
	return e;
}

static int find_splitter(const struct reader *r, const struct splitter **ret)
{
	char *name = NULL, padded[80];
	int e = gguf_string(r->g, PREFIX "pre", &name, r->error);

	*ret = NULL;
	if (e)
		return e;
	snprintf(padded, sizeof(padded), " %s ", name ? name : "");
	for (size_t i = 0; i < N_SPLITTERS && name && *name && !strchr(name, ' '); i++) {
		if (strstr(splitters[i].names, padded))
			*ret = &splitters[i];
	}
	if (!*ret)
		e = tool_fail(r->error, -ENOTSUP,
			      PREFIX "pre: \"%.64s\" is not supported (llama-bpe, qwen2, tekken, "
				     "gpt-4o, deepseek-v3, glm4, gpt-2, smollm and others that "
				     "split as one of them are)",
			      name ? name : "");
	free(name);
	return e;
}

static int make_bpe(const struct reader *r, const struct splitter *s, cJSON *root)
{
	cJSON *added = cJSON_AddArrayToObject(root, "added_tokens"), *model, *vocab;
	int e;

	if (s->nfc)
		cJSON_AddItemToObject(root, "normalizer", typed("NFC"));
	cJSON_AddItemToObject(root, "pre_tokenizer", make_pre_tokenizer(s));
	cJSON_AddItemToObject(root, "decoder", byte_level(true));
	model = typed("BPE");
	cJSON_AddItemToObject(root, "model", model);
	vocab = cJSON_AddObjectToObject(model, "vocab");
	for (uint64_t i = 0; i < r->tokens->n; i++) {
		switch (type_of(r, i)) {
		case TOKEN_UNKNOWN:
		case TOKEN_CONTROL: add_added(added, i, r->text[i], true); break;
		case TOKEN_USER: add_added(added, i, r->text[i], false); break;
		case TOKEN_UNUSED: break; /* padding of the vocabulary */
		default: cJSON_AddNumberToObject(vocab, r->text[i], (double)i); break;
		}
	}
	e = add_merges(r, model);
	cJSON_AddBoolToObject(model, "ignore_merges", s->whole_first);
	return e;
}

static int print_json(const cJSON *json, const char *name, struct gguf_file *ret,
		      struct tool_error *error)
{
	ret->text = cJSON_PrintUnformatted(json);
	if (!ret->text)
		return tool_fail(error, -ENOMEM, "no memory for %s", name);
	ret->name = name;
	ret->bytes = strlen(ret->text);
	return 0;
}

static int write_bpe(const struct reader *r, const struct splitter *s, struct gguf_file *ret)
{
	cJSON *root = cJSON_CreateObject();
	int e = make_bpe(r, s, root);

	if (!e)
		e = print_json(root, "tokenizer.json", ret, r->error);
	cJSON_Delete(root);
	return e;
}

/* ---- SentencePiece: tokenizer.model, a protocol buffer ---- */

static void put_varint(FILE *f, uint64_t v)
{
	for (; v > 127; v >>= 7)
		fputc((int)(v & 127) | 128, f);
	fputc((int)v, f);
}

static unsigned varint_bytes(uint64_t v)
{
	unsigned n = 1;

	while (v >>= 7)
		n++;
	return n;
}

static void put_piece(FILE *f, const char *text, float score, int type)
{
	size_t n = strlen(text);

	fputc(1 << 3 | 2, f); /* ModelProto.pieces */
	put_varint(f, 1 + varint_bytes(n) + n + 5 + 2);
	fputc(1 << 3 | 2, f);
	put_varint(f, n);
	fwrite(text, 1, n, f);
	fputc(2 << 3 | 5, f);
	fwrite(&score, 4, 1, f);
	fputc(3 << 3, f);
	fputc(type, f);
}

static int write_sentencepiece(const struct reader *r, struct gguf_file *ret)
{
	const struct gguf_value *scores = NULL;
	FILE *f;
	int e = find_list(r, PREFIX "scores", false, r->tokens->n, r->tokens->n, &scores);

	if (!e && !scores)
		e = tool_fail(r->error, -EINVAL, PREFIX "scores: missing");
	if (e)
		return e;
	f = open_memstream(&ret->text, &ret->bytes);
	if (!f)
		return tool_fail(r->error, -ENOMEM, "no memory");
	for (uint64_t i = 0; i < r->tokens->n; i++)
		put_piece(f, r->text[i], (float)gguf_number(scores, i), type_of(r, i));
	/* TrainerSpec: BPE. NormalizerSpec: whether a space is added before the text. */
	fwrite((const char[]){2 << 3 | 2, 2, 3 << 3, 2}, 1, 4, f);
	fwrite((const char[]){3 << 3 | 2, 2, 3 << 3, flag(r->g, PREFIX "add_space_prefix", true)},
	       1, 4, f);
	ret->name = "tokenizer.model";
	e = ferror(f);
	return fclose(f) || e ? tool_fail(r->error, -ENOMEM, "no memory for tokenizer.model") : 0;
}

/* ---- tokenizer_config.json ---- */

static int add_token(const struct reader *r, cJSON *to, const char *key, const char *ours)
{
	const struct gguf_value *v = gguf_get(r->g, key);
	double id;

	if (!v)
		return 0;
	id = v->type == GGUF_STRING || v->array ? -1 : gguf_number(v, 0);
	if (!(id >= 0 && id < (double)r->tokens->n))
		return tool_fail(r->error, -EINVAL, "%s: %g is not one of %llu tokens", key, id,
				 (unsigned long long)r->tokens->n);
	cJSON_AddStringToObject(to, ours, r->text[(uint64_t)id]);
	return 0;
}

/* The text of tokenizer.chat_template, or of .NAME; no such key adds nothing. */
static int add_template(const struct reader *r, const char *key, cJSON *to, const char *name)
{
	char *text = NULL;
	int e = gguf_string(r->g, key, &text, r->error);

	if (!e && text && !cJSON_AddStringToObject(to, name, text))
		e = tool_fail(r->error, -ENOMEM, "no memory");
	free(text);
	return e;
}

/* One template is a text, several are an object of texts by name. */
static int add_templates(const struct reader *r, cJSON *root)
{
	static const char list[] = TEMPLATE "s";
	const struct gguf_value *names = NULL;
	struct gguf_value at;
	cJSON *all;
	int e = find_list(r, list, true, 0, MAX_TEMPLATES, &names);

	if (e || !names || !names->n)
		return e ? e : add_template(r, TEMPLATE, root, "chat_template");
	at = *names;
	all = cJSON_AddObjectToObject(root, "chat_template");
	e = add_template(r, TEMPLATE, all, "default");
	for (uint64_t i = 0; i < names->n && !e; i++) {
		char key[GGUF_MAX_NAME + sizeof(TEMPLATE)], *name = NULL;

		e = take_text(r, &at, list, i, &name);
		if (!e && strlen(name) > GGUF_MAX_NAME)
			e = tool_fail(r->error, -EINVAL, "%s: a name of %zu bytes, the limit is %u",
				      list, strlen(name), GGUF_MAX_NAME);
		if (!e && !cJSON_GetObjectItemCaseSensitive(all, name)) {
			snprintf(key, sizeof(key), TEMPLATE ".%s", name);
			e = add_template(r, key, all, name);
		}
		free(name);
	}
	return e;
}

static int write_config(const struct reader *r, bool adds_bos, struct gguf_file *ret)
{
	static const char *const tokens[][2] = {
		{PREFIX "bos_token_id", "bos_token"},
		{PREFIX "eos_token_id", "eos_token"},
		{PREFIX "unknown_token_id", "unk_token"},
		{PREFIX "padding_token_id", "pad_token"},
	};
	cJSON *root = cJSON_CreateObject();
	int e = 0;

	for (unsigned i = 0; i < sizeof(tokens) / sizeof(tokens[0]) && !e; i++)
		e = add_token(r, root, tokens[i][0], tokens[i][1]);
	cJSON_AddBoolToObject(root, "add_bos_token", flag(r->g, PREFIX "add_bos_token", adds_bos));
	cJSON_AddBoolToObject(root, "add_eos_token", flag(r->g, PREFIX "add_eos_token", false));
	if (!e)
		e = add_templates(r, root);
	if (!e)
		e = print_json(root, "tokenizer_config.json", ret, r->error);
	cJSON_Delete(root);
	return e;
}

int gguf_tokenizer(const struct gguf *g, struct gguf_file *ret, struct tool_error *error)
{
	struct reader r = {.g = g, .error = error};
	const struct splitter *s = NULL;
	bool pieces = false;
	char *model = NULL;
	int e = gguf_string(g, PREFIX "model", &model, error);

	if (e || !model || !strcmp(model, "none"))
		goto out;
	pieces = !strcmp(model, "llama");
	if (!pieces && strcmp(model, "gpt2"))
		e = tool_fail(error, -ENOTSUP,
			      PREFIX "model: \"%.64s\" is not supported (gpt2 and llama are)",
			      model);
	if (!e)
		e = read_tokens(&r);
	if (!e && !pieces)
		e = find_splitter(&r, &s);
	if (!e)
		e = pieces ? write_sentencepiece(&r, &ret[0]) : write_bpe(&r, s, &ret[0]);
	if (!e)
		e = write_config(&r, pieces || s->adds_bos, &ret[1]);
	free_tokens(&r);
out:
	free(model);
	return e;
}
