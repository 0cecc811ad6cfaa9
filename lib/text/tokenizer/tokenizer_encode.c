// SPDX-License-Identifier: MIT
/*
 * Text to ids: extracts added tokens from the original text, normalises the rest, extracts added
 * tokens from that, splits the rest into words and encodes the words. Each stage passes its pieces
 * directly to the next.
 */
#include "tokenizer_internal.h"
#include "utf8.h"

#include <errno.h>

#define TEXT_MAX (1u << 30)

struct encoder {
	const struct txda_tokenizer *tok;
	bool no_special;
	struct normalize_run normalize;
	struct pretok_run pretok;
	struct bpe_scratch bpe;
	struct id_vec ids;
};

static int emit_word(void *arg, const char *word, size_t len)
{
	struct encoder *enc = arg;

	return bpe_encode(&enc->tok->bpe, &enc->bpe, word, len, &enc->ids);
}

/* A piece of the input between added tokens of the first kind. @first: it starts the input. */
static int encode_piece(struct encoder *enc, const char *text, size_t len, bool first)
{
	const struct txda_tokenizer *tok = enc->tok;
	struct added_walk walk = {0};
	int ret;

	if (!len)
		return 0;
	ret = normalize(&tok->normalizer, &enc->normalize, text, len, &text, &len);
	if (ret)
		return ret;
	if (!tok->added_normalized.n_nodes)
		return pretok_run_piece(&enc->pretok, text, len, first);
	while (added_set_next(&tok->added_normalized, text, len, enc->no_special, &walk)) {
		ret = pretok_run_piece(&enc->pretok, text + walk.before, walk.start - walk.before,
				       first && !walk.before);
		if (ret)
			return ret;
		if (!id_vec_push(&enc->ids, walk.id))
			return -ENOMEM;
	}
	return pretok_run_piece(&enc->pretok, text + walk.done, len - walk.done,
				first && !walk.done);
}

static int encode_text(struct encoder *enc, const char *text, size_t len)
{
	const struct added_set *added = &enc->tok->added_raw;
	struct added_walk walk = {0};
	int ret;

	while (added_set_next(added, text, len, enc->no_special, &walk)) {
		ret = encode_piece(enc, text + walk.before, walk.start - walk.before, !walk.before);
		if (ret)
			return ret;
		if (!id_vec_push(&enc->ids, walk.id))
			return -ENOMEM;
	}
	return encode_piece(enc, text + walk.done, len - walk.done, !walk.done);
}

static int add_list(struct encoder *enc, const struct id_list *list)
{
	for (unsigned i = 0; i < list->n; i++)
		if (!id_vec_push(&enc->ids, list->ids[i]))
			return -ENOMEM;
	return 0;
}

int txda_tokenizer_encode(const struct txda_tokenizer *tok, const char *text, size_t len,
			  unsigned flags, uint32_t **ret_ids, size_t *ret_n)
{
	struct encoder enc = {
		.tok = tok,
		.no_special = flags & TXDA_ENCODE_NO_SPECIAL_PARSE,
		.pretok = {.pretok = &tok->pretok, .emit = emit_word, .arg = &enc},
	};
	bool add_special = flags & TXDA_ENCODE_ADD_SPECIAL;
	int ret = 0;

	if (flags & ~(unsigned)(TXDA_ENCODE_ADD_SPECIAL | TXDA_ENCODE_NO_SPECIAL_PARSE))
		return -EINVAL;
	if (!tok->bpe.words.slots)
		return -ENOTSUP;
	if (len > TEXT_MAX)
		return -E2BIG;
	if (utf8_valid_prefix((const uint8_t *)text, len) != len)
		return -EILSEQ;
	/* About four bytes per token; never an empty block, which could be NULL. */
	if (!id_vec_reserve(&enc.ids, len / 4 + 16))
		ret = -ENOMEM;
	if (!ret && add_special)
		ret = add_list(&enc, &tok->prefix);
	if (!ret)
		ret = encode_text(&enc, text, len);
	if (!ret && add_special)
		ret = add_list(&enc, &tok->suffix);
	normalize_run_free(&enc.normalize);
	pretok_run_free(&enc.pretok);
	bpe_scratch_free(&enc.bpe);
	if (ret) {
		free(enc.ids.data);
		return ret;
	}
	*ret_ids = enc.ids.data;
	*ret_n = enc.ids.len;
	return 0;
}
