// SPDX-License-Identifier: MIT
#include "gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ggml.h"
#include "io.h"
#include "utf8.h"

#define MAGIC	    0x46554747u /* "GGUF" */
#define ALIGNMENT   32
#define MIN_KEY	    (8 + 4 + 1)		/* bytes of a key, its type and a value */
#define MIN_TENSOR  (8 + 4 + 8 + 4 + 8) /* of a name, dimensions, a type, an offset */
#define FIRST_PIECE (1u << 20)

struct entry {
	char *key;
	struct gguf_value value;
	size_t at; /* offset of the value in the header, which may still be reallocated */
};

struct gguf {
	char *name;
	struct entry *entries; /* by key */
	size_t n_entries;
	struct gguf_tensor *tensors;
	size_t n_tensors;
	uint8_t *header;
	size_t header_bytes;
	uint64_t bytes; /* of the file */
	struct file_identity identity;
	void *map; /* the file */
	int fd;
};

/* Reads the header, copying it as far as it has been read. */
struct cursor {
	struct gguf *g;
	size_t at, have;
	struct tool_error *error;
};

static unsigned size_of(uint32_t type)
{
	static const uint8_t sizes[GGUF_TYPES] = {
		[GGUF_U8] = 1,	[GGUF_I8] = 1,	[GGUF_U16] = 2, [GGUF_I16] = 2,
		[GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
		[GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
	};

	return type < GGUF_TYPES ? sizes[type] : 0;
}

/* ---- the private copy ---- */

static int copy_to(struct cursor *c, size_t end)
{
	struct gguf *g = c->g;
	int64_t n = io_pread(g->fd, g->header + c->have, end - c->have, c->have);

	if (n != (int64_t)(end - c->have))
		return tool_fail(c->error, n < 0 ? (int)n : -EIO, "%zu bytes at %zu: %s",
				 end - c->have, c->have,
				 n < 0 ? strerror((int)-n) : "the file was truncated");
	c->have = end;
	return 0;
}

/* Ensures that the next @n bytes are copied. */
static int need(struct cursor *c, uint64_t n, const char *what)
{
	struct gguf *g = c->g;
	uint64_t end;
	uint8_t *grown;

	if (n > g->bytes - c->at)
		return tool_fail(c->error, -EINVAL,
				 "%s: %llu bytes at %zu in a file of %llu (truncated?)", what,
				 (unsigned long long)n, c->at, (unsigned long long)g->bytes);
	end = c->at + n;
	if (end > GGUF_MAX_HEADER)
		return tool_fail(c->error, -EFBIG, "%s: a header of %llu bytes, the limit is %u",
				 what, (unsigned long long)end, GGUF_MAX_HEADER);
	if (end <= c->have)
		return 0;
	end = end < 2 * c->have ? 2 * c->have : end;
	end = end < FIRST_PIECE ? FIRST_PIECE : end;
	end = end < g->bytes ? end : g->bytes;
	grown = realloc(g->header, end);
	if (!grown)
		return tool_fail(c->error, -ENOMEM, "no memory for a header of %llu bytes",
				 (unsigned long long)end);
	g->header = grown;
	return copy_to(c, end);
}

static int take(struct cursor *c, void *to, size_t n, const char *what)
{
	int r = need(c, n, what);

	if (r)
		return r;
	memcpy(to, c->g->header + c->at, n);
	c->at += n;
	return 0;
}

static int take_u32(struct cursor *c, uint32_t *ret, const char *what)
{
	return take(c, ret, 4, what);
}

static int take_u64(struct cursor *c, uint64_t *ret, const char *what)
{
	return take(c, ret, 8, what);
}

/* Reads a name; all kinds of names are short text. */
static int take_name(struct cursor *c, char **ret, const char *what)
{
	uint64_t n;
	char *name;
	int r = take_u64(c, &n, what);

	if (!r && (!n || n > GGUF_MAX_NAME))
		r = tool_fail(c->error, -EINVAL, "%s at %zu: %llu bytes, not 1 to %u", what,
			      c->at - 8, (unsigned long long)n, GGUF_MAX_NAME);
	if (!r)
		r = need(c, n, what);
	if (r)
		return r;
	if (!gguf_is_text((struct gguf_text){(char *)c->g->header + c->at, n}))
		return tool_fail(c->error, -EINVAL, "%s at %zu: not UTF-8, or contains a NUL", what,
				 c->at);
	name = strndup((char *)c->g->header + c->at, n);
	if (!name)
		return tool_fail(c->error, -ENOMEM, "no memory");
	c->at += n;
	*ret = name;
	return 0;
}

/* ---- metadata ---- */

static int skip_text(struct cursor *c)
{
	uint64_t n;
	int r = take_u64(c, &n, "a string's length");

	if (!r)
		r = need(c, n, "a string");
	if (!r)
		c->at += n;
	return r;
}

static int read_value(struct cursor *c, struct entry *e)
{
	struct gguf_value *v = &e->value;
	uint32_t type;
	int r = take_u32(c, &type, "a type");

	v->n = 1;
	if (!r && type == GGUF_ARRAY) {
		v->array = true;
		r = take_u32(c, &type, "an array's type");
		if (!r)
			r = take_u64(c, &v->n, "an array's length");
	}
	if (r)
		return r;
	if (type >= GGUF_TYPES || type == GGUF_ARRAY)
		return tool_fail(c->error, -EINVAL, "values of type %u are not known%s", type,
				 v->array ? " in arrays" : "");
	v->type = (enum gguf_type)type;
	e->at = c->at;
	if (type == GGUF_STRING) {
		/*
		 * A wrong count ends the loop soon: each item takes at least the bytes of its
		 * length.
		 */
		for (uint64_t i = 0; i < v->n && !r; i++)
			r = skip_text(c);
	} else if (v->n > c->g->bytes / size_of(type)) {
		r = tool_fail(c->error, -EINVAL, "%llu elements of %u bytes in a file of %llu",
			      (unsigned long long)v->n, size_of(type),
			      (unsigned long long)c->g->bytes);
	} else {
		r = need(c, v->n * size_of(type), "a value");
		if (!r)
			c->at += v->n * size_of(type);
	}
	return r;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static int read_metadata(struct cursor *c, uint64_t n)
{
	struct gguf *g = c->g;
	int r = 0;

	g->entries = calloc(n + 1, sizeof(*g->entries));
	if (!g->entries)
		return tool_fail(c->error, -ENOMEM, "no memory for %llu keys",
				 (unsigned long long)n);
	while (g->n_entries < n && !r) {
		struct entry *e = &g->entries[g->n_entries];

		r = take_name(c, &e->key, "a key");
		if (r)
			break;
		g->n_entries++;
		r = read_value(c, e);
		if (r)
			tool_fail_within(c->error, r, "%.128s", e->key);
	}
	if (r)
		return r;
	qsort(g->entries, g->n_entries, sizeof(*g->entries), by_key);
	for (size_t i = 1; i < g->n_entries; i++) {
		if (!by_key(&g->entries[i - 1], &g->entries[i]))
			return tool_fail(c->error, -EINVAL, "%.128s: there twice",
					 g->entries[i].key);
	}
	return 0;
}

const struct gguf_value *gguf_get(const struct gguf *g, const char *key)
{
	const struct entry want = {.key = (char *)key};
	const struct entry *e =
		g->n_entries ? bsearch(&want, g->entries, g->n_entries, sizeof(*g->entries), by_key)
			     : NULL;

	return e ? &e->value : NULL;
}

double gguf_number(const struct gguf_value *v, uint64_t index)
{
	const uint8_t *p = v->at + index * size_of(v->type);
	uint64_t u = 0;
	double d;
	float f;

	memcpy(&u, p, size_of(v->type));
	switch (v->type) {
	case GGUF_I8: return (int8_t)u;
	case GGUF_I16: return (int16_t)u;
	case GGUF_I32: return (int32_t)u;
	case GGUF_I64: return (double)(int64_t)u;
	case GGUF_F32: memcpy(&f, p, 4); return (double)f;
	case GGUF_F64: memcpy(&d, p, 8); return d;
	default: return (double)u;
	}
}

struct gguf_text gguf_next_text(struct gguf_value *v)
{
	struct gguf_text text;

	memcpy(&text.bytes, v->at, 8);
	text.text = (const char *)v->at + 8;
	v->at += 8 + text.bytes;
	return text;
}

bool gguf_is_text(struct gguf_text t)
{
	return !memchr(t.text, 0, t.bytes) &&
	       utf8_valid_prefix((const uint8_t *)t.text, t.bytes) == t.bytes;
}

int gguf_string(const struct gguf *g, const char *key, char **ret, struct tool_error *error)
{
	const struct gguf_value *v = gguf_get(g, key);
	struct gguf_value first;
	struct gguf_text text;

	*ret = NULL;
	if (!v)
		return 0;
	if (v->type != GGUF_STRING || v->array)
		return tool_fail(error, -EINVAL, "%s: not a string", key);
	first = *v;
	text = gguf_next_text(&first);
	if (!gguf_is_text(text))
		return tool_fail(error, -EINVAL, "%s: not UTF-8, or contains a NUL", key);
	*ret = strndup(text.text, text.bytes);
	return *ret ? 0 : tool_fail(error, -ENOMEM, "no memory");
}

/* ---- tensors ---- */

static int read_shape(struct cursor *c, struct gguf_tensor *t)
{
	uint64_t n = 1;
	uint32_t ndim;
	int r = take_u32(c, &ndim, "a number of dimensions");

	if (!r && (!ndim || ndim > GGUF_MAX_DIMS))
		r = tool_fail(c->error, -EINVAL, "%u dimensions, not 1 to %d", ndim, GGUF_MAX_DIMS);
	for (uint32_t i = 0; i < GGUF_MAX_DIMS && !r; i++) {
		t->dim[i] = 1;
		if (i < ndim)
			r = take_u64(c, &t->dim[i], "a dimension");
		if (!r && (!t->dim[i] || __builtin_mul_overflow(n, t->dim[i], &n) || n >> 48))
			r = tool_fail(c->error, -EOVERFLOW,
				      "dimension %u of %llu: not 1 to 2^48 elements", i,
				      (unsigned long long)t->dim[i]);
	}
	return r;
}

/* Everything except the location of its data. */
static int read_tensor(struct cursor *c, struct gguf_tensor *t)
{
	const struct ggml_format *f;
	char known[128];
	int r = read_shape(c, t);

	if (!r)
		r = take_u32(c, &t->type, "a type");
	if (!r)
		r = take_u64(c, &t->offset, "an offset");
	if (r)
		return r;
	f = ggml_format(t->type);
	if (!f)
		return tool_fail(c->error, -ENOTSUP, "type %u is not supported (%s are)", t->type,
				 ggml_list(known, sizeof(known)));
	if (t->dim[0] % f->elements)
		return tool_fail(c->error, -EINVAL,
				 "rows of %llu elements are not a multiple of %u, the block of %s",
				 (unsigned long long)t->dim[0], f->elements, f->name);
	t->bytes = t->dim[0] / f->elements * t->dim[1] * t->dim[2] * t->dim[3] * f->bytes;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_names(const struct gguf *g, struct tool_error *error)
{
	const char **names = calloc(g->n_tensors + 1, sizeof(*names));
	int r = 0;

	if (!names)
		return tool_fail(error, -ENOMEM, "no memory for %zu tensors", g->n_tensors);
	for (size_t i = 0; i < g->n_tensors; i++)
		names[i] = g->tensors[i].name;
	qsort(names, g->n_tensors, sizeof(*names), compare_names);
	for (size_t i = 1; i < g->n_tensors && !r; i++) {
		if (!strcmp(names[i - 1], names[i]))
			r = tool_fail(error, -EINVAL, "tensor \"%.128s\" occurs twice", names[i]);
	}
	free(names);
	return r;
}

static int find_alignment(const struct gguf *g, uint64_t *ret, struct tool_error *error)
{
	const struct gguf_value *v = gguf_get(g, "general.alignment");
	double d = ALIGNMENT;

	if (v && (v->array || v->type != GGUF_U32))
		return tool_fail(error, -EINVAL, "general.alignment: not a number of 32 bits");
	if (v)
		d = gguf_number(v, 0);
	if (d < 1 || d > 1 << 20 || ((uint64_t)d & ((uint64_t)d - 1)))
		return tool_fail(error, -EINVAL,
				 "general.alignment: %.0f is not a power of two up to 2^20", d);
	*ret = (uint64_t)d;
	return 0;
}

/* A tensor begins at the first aligned offset after the previous one. */
static int place_tensors(struct cursor *c)
{
	struct gguf *g = c->g;
	uint64_t align = ALIGNMENT, start, at = 0;
	int r = find_alignment(g, &align, c->error);

	if (r)
		return r;
	start = (c->at + align - 1) / align * align;
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &g->tensors[i];

		at = (at + align - 1) / align * align;
		if (t->offset != at)
			return tool_fail(c->error, -EINVAL,
					 "tensor \"%.128s\" begins at %llu, not at %llu where the "
					 "one before it ends",
					 t->name, (unsigned long long)t->offset,
					 (unsigned long long)at);
		if (start + at > g->bytes || t->bytes > g->bytes - start - at)
			return tool_fail(c->error, -EINVAL,
					 "tensor \"%.128s\": %llu bytes at %llu in a file of %llu "
					 "(truncated?)",
					 t->name, (unsigned long long)t->bytes,
					 (unsigned long long)(start + at),
					 (unsigned long long)g->bytes);
		t->data = (const uint8_t *)g->map + start + at;
		at += t->bytes;
	}
	return 0;
}

static int read_tensors(struct cursor *c, uint64_t n)
{
	struct gguf *g = c->g;
	int r = 0;

	g->tensors = calloc(n + 1, sizeof(*g->tensors));
	if (!g->tensors)
		return tool_fail(c->error, -ENOMEM, "no memory for %llu tensors",
				 (unsigned long long)n);
	while (!r && g->n_tensors < n) {
		struct gguf_tensor *t = &g->tensors[g->n_tensors];

		r = take_name(c, &t->name, "a tensor's name");
		if (r)
			break;
		g->n_tensors++;
		r = read_tensor(c, t);
		if (r)
			tool_fail_within(c->error, r, "tensor \"%.128s\"", t->name);
	}
	return r;
}

/* ---- the file ---- */

static int check_count(const struct cursor *c, const char *what, uint64_t n, uint64_t max,
		       unsigned least)
{
	max = max < c->g->bytes / least ? max : c->g->bytes / least;
	if (n > max)
		return tool_fail(c->error, -EINVAL,
				 "%llu %s in a file of %llu bytes, the limit is %llu",
				 (unsigned long long)n, what, (unsigned long long)c->g->bytes,
				 (unsigned long long)max);
	return 0;
}

static int parse(struct gguf *g, struct tool_error *error)
{
	struct cursor c = {.g = g, .error = error};
	uint64_t n_tensors, n_keys;
	uint32_t magic, version;
	int r = take_u32(&c, &magic, "the header");

	if (!r)
		r = take_u32(&c, &version, "the header");
	if (!r && magic != MAGIC)
		r = tool_fail(error, -EINVAL, "not a GGUF file: it begins with %08x", magic);
	if (!r && version != 2 && version != 3)
		r = tool_fail(error, -ENOTSUP,
			      "version %u%s is not supported (2 and 3 are, little-endian)", version,
			      version > 0xffff ? ", of a big-endian file," : "");
	if (!r)
		r = take_u64(&c, &n_tensors, "the header");
	if (!r)
		r = take_u64(&c, &n_keys, "the header");
	if (!r)
		r = check_count(&c, "tensors", n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR);
	if (!r)
		r = check_count(&c, "keys", n_keys, GGUF_MAX_KEYS, MIN_KEY);
	if (!r)
		r = read_metadata(&c, n_keys);
	if (!r)
		r = read_tensors(&c, n_tensors);
	if (r)
		return r;
	/* From here on the copy is not reallocated. */
	for (size_t i = 0; i < g->n_entries; i++)
		g->entries[i].value.at = g->header + g->entries[i].at;
	g->header_bytes = c.at;
	r = check_names(g, error);
	return r ? r : place_tensors(&c);
}

static int map_file(struct gguf *g, struct tool_error *error)
{
	void *map;

	if (g->bytes < 24)
		return tool_fail(error, -EINVAL, "%llu bytes are too short for a GGUF file",
				 (unsigned long long)g->bytes);
	map = mmap(NULL, g->bytes, PROT_READ, MAP_PRIVATE, g->fd, 0);
	if (map == MAP_FAILED) {
		int r = -errno;

		return tool_fail(error, r, "mmap of %llu bytes: %s", (unsigned long long)g->bytes,
				 strerror(-r));
	}
	g->map = map;
	return parse(g, error);
}

int gguf_open_fd(int fd, const char *name, struct gguf **ret, struct tool_error *error)
{
	struct gguf *g = calloc(1, sizeof(*g));
	struct stat s;
	int r = 0;

	if (!g) {
		close(fd);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	g->fd = fd;
	g->name = strdup(name);
	if (!g->name)
		r = tool_fail(error, -ENOMEM, "no memory");
	else if (fstat(fd, &s))
		r = tool_fail(error, -errno, "%s", strerror(errno));
	if (!r) {
		g->bytes = (uint64_t)s.st_size;
		g->identity = tool_identity(&s);
		r = map_file(g, error);
	}
	if (r)
		gguf_close(g);
	else
		*ret = g;
	return r;
}

int gguf_open(int dirfd, const char *name, struct gguf **ret, struct tool_error *error)
{
	struct stat s;
	int fd = tool_open_file(dirfd, name, &s, error), r;

	if (fd < 0)
		return fd;
	r = gguf_open_fd(fd, name, ret, error);
	return r ? tool_fail_within(error, r, "%s", name) : 0;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n_entries; i++)
		free(g->entries[i].key);
	for (size_t i = 0; i < g->n_tensors; i++)
		free(g->tensors[i].name);
	free(g->name);
	free(g->entries);
	free(g->tensors);
	free(g->header);
	if (g->map)
		munmap(g->map, g->bytes);
	close(g->fd);
	free(g);
}

const struct gguf_tensor *gguf_at(const struct gguf *g, size_t index)
{
	return index < g->n_tensors ? &g->tensors[index] : NULL;
}

const char *gguf_name(const struct gguf *g)
{
	return g->name;
}

const struct file_identity *gguf_identity(const struct gguf *g)
{
	return &g->identity;
}

const void *gguf_header(const struct gguf *g, size_t *ret_bytes)
{
	*ret_bytes = g->header_bytes;
	return g->header;
}

const void *gguf_map(const struct gguf *g, uint64_t *ret_bytes)
{
	*ret_bytes = g->bytes;
	return g->map;
}

int gguf_unchanged(const struct gguf *g, struct tool_error *error)
{
	struct file_identity now;
	struct stat s;

	if (fstat(g->fd, &s))
		return tool_fail(error, -errno, "%s", strerror(errno));
	now = tool_identity(&s);
	return memcmp(&now, &g->identity, sizeof(now))
		       ? tool_fail(error, -ESTALE, "the model's file changed while it was compiled")
		       : 0;
}
