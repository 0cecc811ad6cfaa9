// SPDX-License-Identifier: MIT
/*
 * Serialised tables for decoding tokens: bytes without pointers, written by one process and checked
 * by another.
 */
#include "tokenizer_internal.h"
#include "utf8.h"

#include <errno.h>
#include <stdio.h>

#define TABLES_MAX ((size_t)128 << 20)
#define HOLE	   UINT32_MAX /* length of an absent string */

/*
 * Followed by the lengths of each id's piece and bytes, and its flags; then by all pieces, and all
 * bytes.
 */
struct tables_head {
	uint32_t n;
	uint32_t eos;
	uint32_t strip_start;
	uint8_t byte_level, byte_fallback, join_by_spaces, unused;
	char first_drop[8], strip[8];
};

struct tables_id {
	uint32_t piece_len, bytes_len, flags;
};

static bool add_texts(const struct string_table *table, struct text_buf *out)
{
	bool ok = true;

	for (uint32_t id = 0; ok && id < table->n; id++) {
		if (string_table_has(table, id))
			ok = text_buf_add(out, table->text.data + table->off[id], table->len[id]);
	}
	return ok;
}

int txda_tokenizer_export(const struct txda_tokenizer *tok, struct text_buf *out)
{
	const struct decoder *decoder = &tok->decoder;
	struct tables_head head = {
		.n = tok->pieces.n,
		.eos = tok->eos,
		.strip_start = decoder->strip_start,
		.byte_level = decoder->byte_level,
		.byte_fallback = decoder->byte_fallback,
		.join_by_spaces = decoder->join_by_spaces,
	};
	bool ok;

	memcpy(head.first_drop, decoder->first_drop, sizeof(head.first_drop));
	memcpy(head.strip, decoder->strip, sizeof(head.strip));
	ok = text_buf_add(out, &head, sizeof(head));
	for (uint32_t id = 0; ok && id < head.n; id++) {
		bool has = string_table_has(&tok->pieces, id);
		const struct tables_id one = {
			.piece_len = has ? tok->pieces.len[id] : HOLE,
			.bytes_len = has ? tok->bytes.len[id] : HOLE,
			.flags = tok->flags[id],
		};

		ok = text_buf_add(out, &one, sizeof(one));
	}
	return ok && add_texts(&tok->pieces, out) && add_texts(&tok->bytes, out) ? 0 : -ENOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Empty, or one character and the NUL. */
static bool is_character(const char text[8])
{
	const char *end = memchr(text, 0, 8);
	size_t len;

	if (!end)
		return false;
	len = (size_t)(end - text);
	return utf8_valid_prefix((const uint8_t *)text, len) == len &&
	       (!len || utf8_lead_len((uint8_t)text[0]) == len);
}

static bool is_text(const char *text, size_t len)
{
	return utf8_valid_prefix((const uint8_t *)text, len) == len;
}

static bool read_decoder(const struct tables_head *head, struct decoder *decoder)
{
	if (!is_character(head->first_drop) || !is_character(head->strip) ||
	    (head->strip_start && !head->strip[0]))
		return false;
	*decoder = (struct decoder){
		.byte_level = head->byte_level,
		.byte_fallback = head->byte_fallback,
		.join_by_spaces = head->join_by_spaces,
		.strip_start = head->strip_start,
	};
	memcpy(decoder->first_drop, head->first_drop, sizeof(decoder->first_drop));
	memcpy(decoder->strip, head->strip, sizeof(decoder->strip));
	return true;
}

/* Reads the texts of one id; text that is output unchanged must be valid UTF-8. */
static int read_id(struct txda_tokenizer *tok, uint32_t id, const struct tables_id *one,
		   const char *piece, const char *bytes)
{
	int r;

	if (one->flags & ~(uint32_t)(TOKEN_IN_VOCAB | TOKEN_ADDED | TOKEN_SPECIAL | TOKEN_BYTE) ||
	    !is_text(piece, one->piece_len) || memchr(piece, 0, one->piece_len) ||
	    ((one->flags & TOKEN_BYTE) && one->bytes_len != 1) ||
	    (!(one->flags & TOKEN_BYTE) && !tok->decoder.byte_level &&
	     !is_text(bytes, one->bytes_len)))
		return -EINVAL;
	tok->flags[id] = (uint8_t)one->flags;
	r = string_table_set(&tok->pieces, id, piece, one->piece_len);
	if (!r)
		r = string_table_set(&tok->bytes, id, bytes, one->bytes_len);
	if (!r && !string_index_add(&tok->piece_index, id))
		r = -EINVAL;
	return r;
}

static int read_ids(struct txda_tokenizer *tok, const struct tables_id *ids, const char *text,
		    size_t len)
{
	uint64_t pieces = 0, all = 0;
	const char *piece = text, *bytes;
	int r = 0;

	for (uint32_t id = 0; id < tok->pieces.n; id++) {
		if ((ids[id].piece_len == HOLE) != (ids[id].bytes_len == HOLE))
			return -EINVAL;
		if (ids[id].piece_len == HOLE)
			continue;
		pieces += ids[id].piece_len;
		all += (uint64_t)ids[id].piece_len + ids[id].bytes_len;
	}
	if (all != len)
		return -EINVAL;
	bytes = text + pieces;
	for (uint32_t id = 0; !r && id < tok->pieces.n; id++) {
		if (ids[id].piece_len == HOLE)
			continue;
		r = read_id(tok, id, &ids[id], piece, bytes);
		piece += ids[id].piece_len;
		bytes += ids[id].bytes_len;
	}
	return r;
}

static int read_tables(struct txda_tokenizer *tok, const char *data, size_t len)
{
	struct tables_head head;
	struct tables_id *ids;
	size_t size;
	int r;

	if (len < sizeof(head) || len > TABLES_MAX)
		return -EINVAL;
	memcpy(&head, data, sizeof(head));
	data += sizeof(head);
	len -= sizeof(head);
	size = (size_t)head.n * sizeof(*ids);
	if (head.n > BPE_ID_LIMIT || len < size || !read_decoder(&head, &tok->decoder) ||
	    (head.eos != TXDA_TOKEN_NONE && head.eos >= head.n))
		return -EINVAL;
	tok->eos = head.eos;
	tok->bos = TXDA_TOKEN_NONE;
	ids = malloc(size + 1);
	tok->flags = calloc((size_t)head.n + 1, 1);
	if (!ids || !tok->flags) {
		free(ids);
		return -ENOMEM;
	}
	memcpy(ids, data, size);
	r = string_table_init(&tok->pieces, head.n, 0);
	if (!r)
		r = string_table_init(&tok->bytes, head.n, 0);
	if (!r)
		r = string_index_init(&tok->piece_index, &tok->pieces, head.n);
	if (!r)
		r = read_ids(tok, ids, data + size, len - size);
	free(ids);
	return r;
}

int txda_tokenizer_import(const char *data, size_t len, struct txda_tokenizer **ret_tok)
{
	struct txda_tokenizer *tok = calloc(1, sizeof(*tok));
	int r = tok ? read_tables(tok, data, len) : -ENOMEM;

	if (r)
		txda_tokenizer_free(tok);
	else
		*ret_tok = tok;
	return r;
}
