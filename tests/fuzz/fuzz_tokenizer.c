// SPDX-License-Identifier: MIT
/*
 * Any bytes as tokenizer.json or tiktoken.model. Whatever loads must encode, decode and stream
 * without harm; and the same bytes are text for the tokeniser that TXDA_FUZZ_MODEL names (a model
 * directory), where one is given.
 */
#include "fuzz.h"
#include "detok.h"

/* More text than this adds time and no paths. */
#define TEXT_MAX 4096

static void use(const struct txda_tokenizer *tok, const char *text, size_t len, unsigned flags)
{
	size_t n, decoded_len, piece_len;
	struct txda_detok *detok;
	const char *piece;
	char *decoded;
	uint32_t *ids;

	if (txda_tokenizer_encode(tok, text, len, flags, &ids, &n))
		return;
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= txda_tokenizer_vocab_size(tok) ||
		    !txda_tokenizer_piece(tok, ids[i], NULL))
			abort();
	if (!txda_tokenizer_decode(tok, ids, n, flags & 1, &decoded, &decoded_len))
		free(decoded);
	if (!txda_detok_new(tok, flags & 1, ids, n / 2, &detok)) {
		for (size_t i = n / 2; i < n; i++)
			txda_detok_feed(detok, ids[i], &piece, &piece_len);
		txda_detok_flush(detok, &piece, &piece_len);
		txda_detok_free(detok);
	}
	free(ids);
}

static const struct txda_tokenizer *given_model(void)
{
	static struct txda_tokenizer *tok;
	static int tried;
	const char *dir = getenv("TXDA_FUZZ_MODEL");

	if (!tried && dir)
		txda_tokenizer_load(dir, &tok, NULL, 0);
	tried = 1;
	return tok;
}

/* What a loader made of the input. */
static void try_out(int ret, struct txda_tokenizer *tok, const char *err)
{
	static const char sample[] = "Hello <s>w\xC3\xB6rld</s> 123\n\n  it's \xE2\x96\x81 "
				     "<x>\xF0\x9F\x98\x80 e\xCC\x81";

	if (ret && !*err)
		abort();
	for (unsigned flags = 0; !ret && flags < 4; flags++)
		use(tok, sample, sizeof(sample) - 1, flags);
	if (!ret)
		txda_tokenizer_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text_of_config[] =
		"{\"tokenizer_class\":\"TikTokenTokenizer\","
		"\"added_tokens_decoder\":{\"260\":{\"content\":\"<s>\"}}}";
	static cJSON *config;
	const char *text = (const char *)data;
	bool json = size && text[0] == '{';
	struct txda_tokenizer *tok = NULL;
	char err[512] = "";
	int ret;

	if (!config)
		config = cJSON_Parse(text_of_config);
	ret = txda_tokenizer_parse(json ? TXDA_TOKENIZER_JSON : TXDA_TOKENIZER_TIKTOKEN, text, size,
				   json ? NULL : config, &tok, err, sizeof(err));
	try_out(ret, tok, err);
	if (given_model())
		use(given_model(), text, size < TEXT_MAX ? size : TEXT_MAX, 0);
	return 0;
}
