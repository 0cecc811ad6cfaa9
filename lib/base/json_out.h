/* SPDX-License-Identifier: MIT */
/*
 * Writes JSON into a growing buffer and inserts commas. Strings may be any bytes: invalid UTF-8 is
 * written as U+FFFD. If memory runs out, further calls have no effect and json_out_failed() returns
 * true.
 */
#ifndef TXDA_BASE_JSON_OUT_H
#define TXDA_BASE_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_out {
	char *data;
	size_t len, cap;
	bool comma; /* the next element needs a comma before it */
	bool failed;
	/*
	 * NULL, or called whenever JSON_SPILL bytes are buffered; takes o->data and sets o->len to
	 * 0.
	 */
	void (*spill)(struct json_out *o, void *arg);
	void *spill_arg;
};

#define JSON_SPILL ((size_t)64 << 10)

void json_out_init(struct json_out *o);
void json_out_free(struct json_out *o);
/* Resets the writer; keeps the allocation. */
void json_out_clear(struct json_out *o);
static inline void json_out_set_spill(struct json_out *o,
				      void (*spill)(struct json_out *o, void *arg), void *arg)
{
	o->spill = spill;
	o->spill_arg = arg;
}
static inline bool json_out_failed(const struct json_out *o)
{
	return o->failed;
}

/* Total bytes written by the calling thread, into all buffers. */
uint64_t json_out_written(void);

void json_raw(struct json_out *o, const void *bytes, size_t len); /* no comma, no escaping */
void json_raw_string(struct json_out *o, const char *text);

void json_begin(struct json_out *o, char bracket); /* '{' or '[' */
void json_end(struct json_out *o, char bracket);   /* '}' or ']' */
void json_key(struct json_out *o, const char *key);
void json_string(struct json_out *o, const char *text);
void json_string_len(struct json_out *o, const char *text, size_t len);
void json_int(struct json_out *o, int64_t value);
void json_uint(struct json_out *o, uint64_t value);
void json_number(struct json_out *o,
		 double value); /* shortest that reads back as the same float; null if not finite */
void json_bool(struct json_out *o, bool value);
void json_null(struct json_out *o);

/* A member of an object. */
static inline void json_put_string(struct json_out *o, const char *key, const char *text)
{
	json_key(o, key);
	json_string(o, text);
}
static inline void json_put_uint(struct json_out *o, const char *key, uint64_t value)
{
	json_key(o, key);
	json_uint(o, value);
}
static inline void json_put_int(struct json_out *o, const char *key, int64_t value)
{
	json_key(o, key);
	json_int(o, value);
}
static inline void json_put_null(struct json_out *o, const char *key)
{
	json_key(o, key);
	json_null(o);
}

#endif
