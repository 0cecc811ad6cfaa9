// SPDX-License-Identifier: MIT
#include "detok.h"
#include "tokenizer_internal.h"
#include "utf8.h"

#include <errno.h>

struct txda_detok {
	const struct txda_tokenizer *tok;
	bool skip_special;
	bool begun;	     /* a token has been taken */
	unsigned strip_left; /* number of characters at the start that may still be dropped */
	uint8_t waiting[4];  /* the start of an incomplete character */
	unsigned n_waiting;
	struct text_buf work; /* bytes that are not complete characters yet */
	struct text_buf out;
};

/* Emits @len bytes of whole characters, without what Strip takes from the start of the text. */
static bool give(struct txda_detok *d, const char *text, size_t len)
{
	const char *strip = d->tok->decoder.strip;
	size_t strip_len = d->strip_left ? strlen(strip) : 0;

	while (d->strip_left && len) {
		if (len < strip_len || memcmp(text, strip, strip_len)) {
			d->strip_left = 0;
			break;
		}
		text += strip_len;
		len -= strip_len;
		d->strip_left--;
	}
	return text_buf_add(&d->out, text, len);
}

/*
 * The incomplete character cannot be completed: emits U+FFFD, in byte-fallback models one for each
 * byte.
 */
static bool give_up_waiting(struct txda_detok *d)
{
	unsigned n = d->tok->decoder.byte_level ? d->n_waiting != 0 : d->n_waiting;

	d->n_waiting = 0;
	while (n--)
		if (!give(d, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN))
			return false;
	return true;
}

/* Takes bytes that need not end at a character boundary. */
static bool take_bytes(struct txda_detok *d, const char *bytes, size_t len)
{
	const uint8_t *s;
	size_t at = 0, done = 0;

	d->work.len = 0;
	if (!text_buf_add(&d->work, d->waiting, d->n_waiting) ||
	    !text_buf_add(&d->work, bytes, len))
		return false;
	s = (const uint8_t *)d->work.data;
	len = d->work.len;
	d->n_waiting = 0;
	while (at < len) {
		bool whole;
		unsigned n = utf8_scan(s + at, len - at, &whole);

		if (whole) {
			at += n;
			continue;
		}
		if (!give(d, d->work.data + done, at - done))
			return false;
		if (at + n == len && utf8_lead_len(s[at]) > n) {
			memcpy(d->waiting, s + at, n);
			d->n_waiting = n;
			return true;
		}
		if (!give(d, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN))
			return false;
		at += n;
		done = at;
	}
	return give(d, d->work.data + done, at - done);
}

/* The first token with a Metaspace decoder: its marks are dropped instead of becoming spaces. */
static bool take_first(struct txda_detok *d, uint32_t id)
{
	const char *drop = d->tok->decoder.first_drop;
	size_t drop_len = strlen(drop), len;
	const char *piece = txda_tokenizer_piece(d->tok, id, &len);

	while (len) {
		size_t n = len >= drop_len && !memcmp(piece, drop, drop_len) ? drop_len : 0;

		if (!n) {
			n = utf8_lead_len((uint8_t)*piece);
			if (!give(d, piece, n))
				return false;
		}
		piece += n;
		len -= n;
	}
	return true;
}

static bool ignored(const struct txda_detok *d, uint32_t id)
{
	return !string_table_has(&d->tok->bytes, id) ||
	       (d->skip_special && txda_tokenizer_is_special(d->tok, id));
}

static bool take(struct txda_detok *d, uint32_t id)
{
	const struct decoder *decoder = &d->tok->decoder;
	bool first = !d->begun, ok;
	const char *bytes;
	size_t len;

	if (ignored(d, id))
		return true;
	bytes = txda_tokenizer_bytes(d->tok, id, &len);
	d->begun = true;
	if (decoder->byte_level || (d->tok->flags[id] & TOKEN_BYTE))
		return take_bytes(d, bytes, len);
	ok = give_up_waiting(d);
	if (decoder->join_by_spaces && !first)
		ok = ok && give(d, " ", 1);
	if (first && decoder->first_drop[0])
		return ok && take_first(d, id);
	return ok && give(d, bytes, len);
}

int txda_detok_new(const struct txda_tokenizer *tok, bool skip_special, const uint32_t *prompt,
		   size_t n_prompt, struct txda_detok **ret_detok)
{
	struct txda_detok *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->tok = tok;
	d->skip_special = skip_special;
	d->strip_left = tok->decoder.strip_start;
	for (size_t i = 0; i < n_prompt; i++) {
		d->out.len = 0;
		if (!take(d, prompt[i])) {
			txda_detok_free(d);
			return -ENOMEM;
		}
	}
	*ret_detok = d;
	return 0;
}

int txda_detok_copy(const struct txda_detok *detok, struct txda_detok **ret_detok)
{
	struct txda_detok *d = malloc(sizeof(*d));

	if (!d)
		return -ENOMEM;
	*d = *detok;
	d->work = d->out = (struct text_buf){0};
	*ret_detok = d;
	return 0;
}

void txda_detok_free(struct txda_detok *detok)
{
	if (!detok)
		return;
	free(detok->work.data);
	free(detok->out.data);
	free(detok);
}

int txda_detok_feed(struct txda_detok *detok, uint32_t id, const char **ret_text, size_t *ret_len)
{
	detok->out.len = 0;
	if (!take(detok, id) || !text_buf_end(&detok->out))
		return -ENOMEM;
	*ret_text = detok->out.data;
	*ret_len = detok->out.len;
	return 0;
}

int txda_detok_flush(struct txda_detok *detok, const char **ret_text, size_t *ret_len)
{
	detok->out.len = 0;
	if (!give_up_waiting(detok) || !text_buf_end(&detok->out))
		return -ENOMEM;
	*ret_text = detok->out.data;
	*ret_len = detok->out.len;
	return 0;
}

/*
 * Ends a run of byte tokens: it is decoded if it is valid as a whole, else each byte is replaced.
 */
static bool end_run(struct txda_detok *d, struct text_buf *run)
{
	bool ok = true;

	if (utf8_valid_prefix((const uint8_t *)run->data, run->len) == run->len)
		ok = give(d, run->data, run->len);
	else
		for (size_t i = 0; ok && i < run->len; i++)
			ok = give(d, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN);
	run->len = 0;
	return ok;
}

/*
 * Decodes all ids at once. For runs of byte tokens that are not valid text the result differs from
 * that of a stream, which cannot know the rest of the run in time: here it is that of the reference
 * library.
 */
int txda_tokenizer_decode(const struct txda_tokenizer *tok, const uint32_t *ids, size_t n,
			  bool skip_special, char **ret_text, size_t *ret_len)
{
	struct txda_detok d = {
		.tok = tok,
		.skip_special = skip_special,
		.strip_left = tok->decoder.strip_start,
	};
	struct text_buf run = {0};
	bool ok = true;

	for (size_t i = 0; ok && i < n; i++) {
		if (ignored(&d, ids[i]))
			continue;
		if (tok->flags[ids[i]] & TOKEN_BYTE) {
			d.begun = true;
			ok = text_buf_add(&run, txda_tokenizer_bytes(tok, ids[i], NULL), 1);
		} else {
			ok = (!run.len || end_run(&d, &run)) && take(&d, ids[i]);
		}
	}
	ok = ok && (!run.len || end_run(&d, &run)) && give_up_waiting(&d) && text_buf_end(&d.out);
	free(run.data);
	free(d.work.data);
	if (!ok) {
		free(d.out.data);
		return -ENOMEM;
	}
	*ret_text = d.out.data;
	*ret_len = d.out.len;
	return 0;
}
