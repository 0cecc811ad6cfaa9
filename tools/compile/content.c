// SPDX-License-Identifier: MIT
#include "content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "gguf_model.h"

#define PIECE (64u << 20) /* bytes between looks whether to stop */

struct content {
	const struct source *source;
	const struct progress *progress;
	unsigned n;
	uint32_t sums[];
};

/* A file of weights as it is mapped, and the copy of its header that was parsed. */
struct file {
	const char *name;
	const uint8_t *map;
	uint64_t bytes;
	const void *header;
	size_t header_at, header_bytes;
};

/* False: there is no such file. */
static bool find_file(const struct source *s, unsigned index, struct file *ret)
{
	const struct safetensors_file *st;
	const struct gguf *g;

	if (s->checkpoint && (st = safetensors_file(s->checkpoint, index))) {
		*ret = (struct file){st->name, st->map, st->bytes, st->header, 8, st->header_bytes};
		return true;
	}
	if (s->gguf && (g = gguf_model_file(s->gguf, index))) {
		*ret = (struct file){.name = gguf_name(g)};
		ret->map = gguf_map(g, &ret->bytes);
		ret->header = gguf_header(g, &ret->header_bytes);
		return true;
	}
	return false;
}

static int fail_changed(const struct file *f, struct tool_error *error)
{
	return tool_fail(error, -ESTALE, "%s changed while it was compiled", f->name);
}

/* Of what is in the file now, whose header must still be the one that was parsed. */
static int sum_file(const struct file *f, const struct progress *p, uint32_t *ret,
		    struct tool_error *error)
{
	uint32_t sum = 0;

	for (uint64_t at = 0; at < f->bytes; at += PIECE) {
		if (progress_interrupted(p))
			return tool_fail(error, -EINTR, "interrupted");
		sum = crc32c(sum, f->map + at, f->bytes - at < PIECE ? f->bytes - at : PIECE);
	}
	*ret = sum;
	return memcmp(f->map + f->header_at, f->header, f->header_bytes) ? fail_changed(f, error)
									 : 0;
}

int content_read(const struct source *s, const struct progress *p, struct content **ret,
		 struct tool_error *error)
{
	struct content *c;
	unsigned n = 0;
	struct file f;
	int r = 0;

	while (find_file(s, n, &f))
		n++;
	c = calloc(1, sizeof(*c) + n * sizeof(*c->sums));
	if (!c)
		return tool_fail(error, -ENOMEM, "no memory");
	*c = (struct content){s, p, n};
	for (unsigned i = 0; i < n && !r && find_file(s, i, &f); i++)
		r = sum_file(&f, p, &c->sums[i], error);
	if (r)
		content_free(c);
	else
		*ret = c;
	return r;
}

int content_unchanged(const struct content *c, struct tool_error *error)
{
	const struct source *s = c->source;
	struct file f;
	int r = 0;

	if (s->checkpoint)
		r = safetensors_unchanged(s->checkpoint, error);
	if (s->gguf)
		r = gguf_model_unchanged(s->gguf, error);
	for (unsigned i = 0; i < c->n && !r && find_file(s, i, &f); i++) {
		uint32_t sum = 0;

		r = sum_file(&f, c->progress, &sum, error);
		if (!r && sum != c->sums[i])
			r = fail_changed(&f, error);
	}
	return r;
}

void content_free(struct content *c)
{
	free(c);
}
