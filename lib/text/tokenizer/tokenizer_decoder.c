// SPDX-License-Identifier: MIT
/*
 * The decoder of tokenizer.json. Nearly all of it acts on single tokens, so it runs once per token
 * when the model is loaded: tok->bytes has the result. The parts that depend on neighbouring tokens
 * are in struct decoder.
 */
#include "tokenizer_internal.h"
#include "utf8.h"

#include <errno.h>
#include <stdio.h>

#define MAX_STEPS 16

enum step_kind {
	STEP_REPLACE,
	STEP_STRIP,
	STEP_BYTE_FALLBACK,
	STEP_BYTE_LEVEL,
	STEP_METASPACE,
	STEP_FUSE,
};

struct step {
	enum step_kind kind;
	const char *from; /* REPLACE: pattern; STRIP, METASPACE: the character */
	const char *to;
	uint32_t start, stop;
};

/* The steps point into the JSON tree. */
struct loader {
	struct txda_tokenizer *tok;
	struct step steps[MAX_STEPS];
	unsigned n_steps;
	bool fused; /* from here on the text is a single string */
};

/* The single character under @key. */
static const char *load_char(const struct json_at *at, const char *key)
{
	const char *text = json_get_string(at, key);

	if (!text[0] || utf8_lead_len((uint8_t)text[0]) != strlen(text))
		json_unsupported(at, key, json_get(at->json, key));
	return text;
}

static void load_strip(struct loader *ld, struct step *step, const struct json_at *at)
{
	struct decoder *decoder = &ld->tok->decoder;

	step->from = load_char(at, "content");
	step->start = json_get_number(at, "start", UINT32_MAX);
	step->stop = json_get_number(at, "stop", UINT32_MAX);
	if (!ld->fused)
		return;
	step->kind = STEP_FUSE;
	/* At the end of the whole text: a stream could output nothing before it. */
	if (step->stop)
		json_unsupported(at, "stop", json_get(at->json, "stop"));
	if (decoder->strip_start)
		json_fail(at->errors, "%s: a second Strip behind Fuse is not supported", at->path);
	snprintf(decoder->strip, sizeof(decoder->strip), "%s", step->from);
	decoder->strip_start = step->start;
}

static void load_metaspace(struct loader *ld, struct step *step, const struct json_at *at)
{
	struct decoder *decoder = &ld->tok->decoder;
	const cJSON *scheme = json_get(at->json, "prepend_scheme");
	bool prefix = json_get_bool(at, "add_prefix_space", true);

	step->from = load_char(at, "replacement");
	step->to = " ";
	if (scheme)
		prefix = !cJSON_IsString(scheme) || strcmp(scheme->valuestring, "never");
	if (prefix)
		snprintf(decoder->first_drop, sizeof(decoder->first_drop), "%s", step->from);
}

static void load_step(void *arg, const struct json_at *at, const char *type)
{
	static const struct {
		const char *type;
		enum step_kind kind;
	} kinds[] = {
		{"Replace", STEP_REPLACE},	{"Strip", STEP_STRIP},
		{"Metaspace", STEP_METASPACE},	{"ByteFallback", STEP_BYTE_FALLBACK},
		{"ByteLevel", STEP_BYTE_LEVEL}, {"Fuse", STEP_FUSE},
	};
	struct loader *ld = arg;
	struct decoder *decoder = &ld->tok->decoder;
	bool is_fuse = !strcmp(type, "Fuse"), is_regex = false;
	struct step *step;
	unsigned i = 0;

	if (ld->n_steps == MAX_STEPS) {
		json_fail(at->errors, "%s: more than %d steps", at->path, MAX_STEPS);
		return;
	}
	if ((ld->fused && strcmp(type, "Strip") && !is_fuse) || (decoder->byte_level && !is_fuse))
		json_fail(at->errors, "%s: %s behind Fuse or ByteLevel is not supported", at->path,
			  type);
	while (i < sizeof(kinds) / sizeof(kinds[0]) && strcmp(type, kinds[i].type))
		i++;
	if (i == sizeof(kinds) / sizeof(kinds[0])) {
		json_unsupported(at, "type", json_get(at->json, "type"));
		return;
	}
	step = &ld->steps[ld->n_steps++];
	step->kind = kinds[i].kind;
	switch (step->kind) {
	case STEP_REPLACE:
		step->from = json_get_pattern(at, &is_regex);
		step->to = json_get_string(at, "content");
		if (is_regex)
			json_unsupported(at, "pattern", json_get(at->json, "pattern"));
		break;
	case STEP_STRIP: load_strip(ld, step, at); break;
	case STEP_METASPACE: load_metaspace(ld, step, at); break;
	case STEP_BYTE_FALLBACK: decoder->byte_fallback = true; break;
	case STEP_BYTE_LEVEL: decoder->byte_level = true; break;
	case STEP_FUSE: ld->fused = true; break;
	}
}

static bool replace_all(struct text_buf *text, struct text_buf *room, const char *from,
			const char *to)
{
	size_t from_len = strlen(from), at = 0;
	struct text_buf swap;

	room->len = 0;
	while (at < text->len) {
		const char *hit = memmem(text->data + at, text->len - at, from, from_len);
		size_t end = hit ? (size_t)(hit - text->data) : text->len;

		if (!text_buf_add(room, text->data + at, end - at) ||
		    (hit && !text_buf_add_string(room, to)))
			return false;
		at = hit ? end + from_len : end;
	}
	swap = *text;
	*text = *room;
	*room = swap;
	return true;
}

static void strip(struct text_buf *text, const struct step *step)
{
	size_t len = strlen(step->from), start = 0, end = text->len;

	for (uint32_t i = 0; i < step->start && end - start >= len; i++, start += len)
		if (memcmp(text->data + start, step->from, len))
			break;
	for (uint32_t i = 0; i < step->stop && end - start >= len; i++, end -= len)
		if (memcmp(text->data + end - len, step->from, len))
			break;
	memmove(text->data, text->data + start, end - start);
	text->len = end - start;
}

/* <0x0A>: six characters. Returns the byte, or -1. */
static int fallback_byte(const struct text_buf *text)
{
	unsigned value = 0;

	if (text->len != 6 || memcmp(text->data, "<0x", 3) || text->data[5] != '>')
		return -1;
	for (int i = 3; i < 5; i++) {
		char c = text->data[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (unsigned)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | (unsigned)((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return (int)value;
}

/* Runs the steps on the spelling of @id, in @text. */
static int run_steps(const struct loader *ld, uint32_t id, struct text_buf *text,
		     struct text_buf *room)
{
	for (unsigned i = 0; i < ld->n_steps; i++) {
		const struct step *step = &ld->steps[i];
		size_t len;
		int byte;

		switch (step->kind) {
		case STEP_REPLACE:
		case STEP_METASPACE:
			if (!replace_all(text, room, step->from, step->to))
				return -ENOMEM;
			break;
		case STEP_STRIP: strip(text, step); break;
		case STEP_BYTE_FALLBACK:
			byte = fallback_byte(text);
			if (byte >= 0) {
				text->data[0] = (char)byte;
				text->len = 1;
				ld->tok->flags[id] |= TOKEN_BYTE;
				return 0;
			}
			break;
		case STEP_BYTE_LEVEL:
			room->len = 0;
			if (!text_buf_reserve(room, text->len))
				return -ENOMEM;
			len = tokenizer_unspell(text->data, text->len, room->data);
			/* A token that does not spell bytes stands for its own text. */
			if (len != SIZE_MAX) {
				memcpy(text->data, room->data, len);
				text->len = len;
			}
			break;
		case STEP_FUSE: break;
		}
	}
	return 0;
}

int tokenizer_load_decoder(struct txda_tokenizer *tok, const cJSON *decoder,
			   struct json_errors *errors)
{
	struct loader ld = {.tok = tok};
	struct text_buf text = {0}, room = {0};
	int ret;

	tok->decoder.join_by_spaces = !decoder;
	ret = json_each_step(decoder, "decoder", "decoders", load_step, &ld, errors);
	if (!ret)
		ret = string_table_init(&tok->bytes, tok->pieces.n, 0);
	for (uint32_t id = 0; !ret && id < tok->pieces.n; id++) {
		if (!string_table_has(&tok->pieces, id))
			continue;
		text.len = 0;
		if (!text_buf_add(&text, tok->pieces.text.data + tok->pieces.off[id],
				  tok->pieces.len[id]))
			ret = -ENOMEM;
		if (!ret)
			ret = run_steps(&ld, id, &text, &room);
		if (!ret)
			ret = string_table_set(&tok->bytes, id, text.data, text.len);
	}
	free(text.data);
	free(room.data);
	return ret;
}
