// SPDX-License-Identifier: MIT
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files.h"
#include "io.h"
#include "json.h"

#define INDEX_NAME	"model.safetensors.index.json"
#define SINGLE_NAME	"model.safetensors"
#define MAX_INDEX_BYTES (64u << 20)

struct safetensors {
	struct safetensors_tensor *tensors; /* by name */
	size_t n_tensors;
	size_t room;
	struct safetensors_file *files;
	unsigned n_files;
	cJSON *metadata;
};

static const struct {
	const char *name;
	unsigned bytes;
} dtypes[SAFETENSORS_DTYPE_COUNT] = {
	[SAFETENSORS_BOOL] = {"BOOL", 1},	[SAFETENSORS_U8] = {"U8", 1},
	[SAFETENSORS_I8] = {"I8", 1},		[SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1},
	[SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1}, [SAFETENSORS_F8_E8M0] = {"F8_E8M0", 1},
	[SAFETENSORS_I16] = {"I16", 2},		[SAFETENSORS_U16] = {"U16", 2},
	[SAFETENSORS_F16] = {"F16", 2},		[SAFETENSORS_BF16] = {"BF16", 2},
	[SAFETENSORS_I32] = {"I32", 4},		[SAFETENSORS_U32] = {"U32", 4},
	[SAFETENSORS_F32] = {"F32", 4},		[SAFETENSORS_I64] = {"I64", 8},
	[SAFETENSORS_U64] = {"U64", 8},		[SAFETENSORS_F64] = {"F64", 8},
	[SAFETENSORS_C64] = {"C64", 8},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
	return (unsigned)dtype < SAFETENSORS_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

unsigned safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
	return (unsigned)dtype < SAFETENSORS_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

char *safetensors_shape(unsigned ndim, const uint64_t *dim, char *buf, size_t len)
{
	size_t at;
	unsigned i;

	at = (size_t)snprintf(buf, len, "[");
	for (i = 0; i < ndim && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%llu", i ? ", " : "",
				       (unsigned long long)dim[i]);
	if (at < len)
		snprintf(buf + at, len - at, "]");
	return buf;
}

/* A JSON number that is a whole number in [0, 2^53]. */
static bool json_u64(const cJSON *item, uint64_t *ret)
{
	double d;

	if (!cJSON_IsNumber(item))
		return false;
	d = item->valuedouble;
	if (!(d >= 0 && d <= 9007199254740992.0) || d != floor(d))
		return false;
	*ret = (uint64_t)d;
	return true;
}

static int parse_shape(const cJSON *shape, struct safetensors_tensor *t, struct tool_error *error)
{
	uint64_t bytes = safetensors_dtype_bytes(t->dtype);
	const cJSON *item;

	if (!cJSON_IsArray(shape))
		return tool_fail(error, -EINVAL, "\"shape\" is missing or not an array");
	cJSON_ArrayForEach(item, shape) {
		uint64_t d;

		if (t->ndim == SAFETENSORS_MAX_DIMS)
			return tool_fail(error, -EINVAL, "more than %d dimensions",
					 SAFETENSORS_MAX_DIMS);
		if (!json_u64(item, &d))
			return tool_fail(error, -EINVAL, "dimension %u is not a whole number",
					 t->ndim);
		if (__builtin_mul_overflow(bytes, d, &bytes))
			return tool_fail(error, -EOVERFLOW, "the shape's product overflows");
		t->dim[t->ndim++] = d;
	}
	t->bytes = bytes;
	return 0;
}

/* One header entry. The name is taken by the caller, data is checked against [0, data_bytes). */
static int parse_tensor(const cJSON *entry, const uint8_t *data, uint64_t data_bytes,
			struct safetensors_tensor *t, struct tool_error *error)
{
	const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
	uint64_t begin, end;
	unsigned i;
	int r;

	if (!cJSON_IsObject(entry))
		return tool_fail(error, -EINVAL, "not an object");
	if (!cJSON_IsString(dtype))
		return tool_fail(error, -EINVAL, "\"dtype\" is missing or not a string");
	for (i = 0; i < SAFETENSORS_DTYPE_COUNT; i++) {
		if (!strcmp(dtypes[i].name, dtype->valuestring))
			break;
	}
	if (i == SAFETENSORS_DTYPE_COUNT)
		return tool_fail(error, -EINVAL, "unknown dtype \"%.32s\"", dtype->valuestring);
	t->dtype = i;
	r = parse_shape(cJSON_GetObjectItemCaseSensitive(entry, "shape"), t, error);
	if (r)
		return r;
	if (cJSON_GetArraySize(offsets) != 2 || !cJSON_IsArray(offsets) ||
	    !json_u64(offsets->child, &begin) || !json_u64(offsets->child->next, &end))
		return tool_fail(error, -EINVAL, "\"data_offsets\" is not a pair of whole numbers");
	if (begin > end || end > data_bytes)
		return tool_fail(error, -EINVAL,
				 "data_offsets [%llu, %llu] outside of the file's %llu data bytes",
				 (unsigned long long)begin, (unsigned long long)end,
				 (unsigned long long)data_bytes);
	if (end - begin != t->bytes)
		return tool_fail(error, -EINVAL,
				 "data_offsets span %llu bytes, dtype and shape need %llu",
				 (unsigned long long)(end - begin), (unsigned long long)t->bytes);
	t->data = data + begin;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int compare_data(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->data != y->data)
		return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The tensors of one file, from @first on, must follow each other without holes or overlaps, to its
 * end. */
static int check_cover(struct safetensors *st, size_t first, const uint8_t *data, uint64_t bytes,
		       struct tool_error *error)
{
	const uint8_t *at = data;
	size_t i;

	if (st->n_tensors > first)
		qsort(&st->tensors[first], st->n_tensors - first, sizeof(*st->tensors),
		      compare_data);
	for (i = first; i < st->n_tensors; i++) {
		const struct safetensors_tensor *t = &st->tensors[i];

		if (t->data != at)
			return tool_fail(error, -EINVAL, "tensor \"%.128s\" %s", t->name,
					 (const uint8_t *)t->data < at ? "overlaps another one"
								       : "leaves a hole before it");
		at += t->bytes;
	}
	if (at != data + bytes)
		return tool_fail(error, -EINVAL, "%llu bytes behind the last tensor",
				 (unsigned long long)(data + bytes - at));
	return 0;
}

static int reserve(struct safetensors *st, size_t more)
{
	struct safetensors_tensor *p;

	if (st->n_tensors + more <= st->room)
		return 0;
	p = realloc(st->tensors, (st->n_tensors + more) * sizeof(*p));
	if (!p)
		return -ENOMEM;
	st->tensors = p;
	st->room = st->n_tensors + more;
	return 0;
}

static int parse_entries(struct safetensors *st, unsigned file, cJSON *root, const uint8_t *data,
			 uint64_t data_bytes, struct tool_error *error)
{
	size_t first = st->n_tensors;
	cJSON *entry;
	int r;

	if (!cJSON_IsObject(root))
		return tool_fail(error, -EINVAL, "the header is not a JSON object");
	if (reserve(st, (size_t)cJSON_GetArraySize(root)))
		return tool_fail(error, -ENOMEM, "no memory for the tensor table");
	cJSON_ArrayForEach(entry, root) {
		struct safetensors_tensor t = {.file = file};

		if (!strcmp(entry->string, "__metadata__"))
			continue;
		r = parse_tensor(entry, data, data_bytes, &t, error);
		if (r)
			return tool_fail_within(error, r, "tensor \"%.128s\"", entry->string);
		t.name = strdup(entry->string);
		if (!t.name)
			return tool_fail(error, -ENOMEM, "no memory for the tensor table");
		st->tensors[st->n_tensors++] = t;
	}
	if (!file)
		st->metadata = cJSON_DetachItemFromObjectCaseSensitive(root, "__metadata__");
	return check_cover(st, first, data, data_bytes, error);
}

static int read_at(const struct safetensors_file *f, uint64_t at, void *buf, uint64_t bytes,
		   struct tool_error *error)
{
	int64_t n = io_pread(f->fd, buf, bytes, at);

	if (n == (int64_t)bytes)
		return 0;
	return tool_fail(error, n < 0 ? (int)n : -EIO, "%llu bytes at %llu: %s",
			 (unsigned long long)bytes, (unsigned long long)at,
			 n < 0 ? strerror((int)-n) : "the file was truncated");
}

static int parse_header(struct safetensors *st, unsigned file, struct tool_error *error)
{
	struct safetensors_file *f = &st->files[file];
	uint64_t bytes = f->bytes;
	uint8_t length[8];
	uint64_t header = 0;
	cJSON *root = NULL;
	unsigned i;
	int r;

	r = read_at(f, 0, length, 8, error);
	if (r)
		return r;
	for (i = 0; i < 8; i++)
		header |= (uint64_t)length[i] << (8 * i);
	if (header > SAFETENSORS_MAX_HEADER)
		return tool_fail(error, -EFBIG, "a header of %llu bytes, the limit is %u",
				 (unsigned long long)header, SAFETENSORS_MAX_HEADER);
	if (header > bytes - 8)
		return tool_fail(error, -EINVAL,
				 "a header of %llu bytes in a file of %llu (truncated?)",
				 (unsigned long long)header, (unsigned long long)bytes);
	f->header = malloc(header + 1);
	if (!f->header)
		return tool_fail(error, -ENOMEM, "no memory for a header of %llu bytes",
				 (unsigned long long)header);
	f->header_bytes = header;
	r = read_at(f, 8, f->header, header, error);
	if (!r)
		r = tool_json_parse(f->header, header, &root, error);
	if (r)
		return tool_fail_within(error, r, "header");
	r = parse_entries(st, file, root, (const uint8_t *)f->map + 8 + header, bytes - 8 - header,
			  error);
	cJSON_Delete(root);
	return r;
}

/* Adds the file @fd, which belongs to @st from then on, and is closed on errors. */
static int add_fd(struct safetensors *st, int fd, const char *name, struct tool_error *error)
{
	struct safetensors_file *file = realloc(st->files, (st->n_files + 1) * sizeof(*file));
	struct stat s;

	if (!file) {
		close(fd);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	st->files = file;
	file += st->n_files++;
	memset(file, 0, sizeof(*file));
	file->fd = fd;
	file->name = strdup(name);
	if (!file->name)
		return tool_fail(error, -ENOMEM, "no memory");
	if (fstat(fd, &s))
		return tool_fail(error, -errno, "%s", strerror(errno));
	file->bytes = (uint64_t)s.st_size;
	file->identity = tool_identity(&s);
	if (file->bytes < 8)
		return tool_fail(error, -EINVAL, "%llu bytes are too short for a safetensors file",
				 (unsigned long long)file->bytes);
	file->map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file->map == MAP_FAILED) {
		int r = -errno;

		file->map = NULL;
		return tool_fail(error, r, "mmap of %llu bytes: %s",
				 (unsigned long long)file->bytes, strerror(-r));
	}
	return parse_header(st, st->n_files - 1, error);
}

static int add_file(struct safetensors *st, int dirfd, const char *name, struct tool_error *error)
{
	struct stat s;
	int fd = tool_open_file(dirfd, name, &s, error), r;

	if (fd < 0)
		return fd;
	r = add_fd(st, fd, name, error);
	return r ? tool_fail_within(error, r, "%s", name) : 0;
}

static int finish(struct safetensors *st, struct tool_error *error)
{
	size_t i;

	if (st->n_tensors)
		qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), compare_names);
	for (i = 1; i < st->n_tensors; i++) {
		if (!strcmp(st->tensors[i - 1].name, st->tensors[i].name))
			return tool_fail(error, -EINVAL, "tensor \"%.128s\" occurs twice",
					 st->tensors[i].name);
	}
	return 0;
}

static int file_index(const struct safetensors *st, const char *name)
{
	unsigned i;

	for (i = 0; i < st->n_files; i++) {
		if (!strcmp(st->files[i].name, name))
			return (int)i;
	}
	return -1;
}

static int open_shards(struct safetensors *st, int dirfd, const cJSON *index,
		       struct tool_error *error)
{
	const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *item;
	const char *duplicate = tool_json_duplicate(map);
	int r;

	if (!cJSON_IsObject(map))
		return tool_fail(error, -EINVAL, "%s: \"weight_map\" is missing or not an object",
				 INDEX_NAME);
	if (duplicate)
		return tool_fail(error, -EINVAL, "%s: tensor \"%.128s\" occurs twice", INDEX_NAME,
				 duplicate);
	cJSON_ArrayForEach(item, map) {
		if (!cJSON_IsString(item) || !tool_plain_name(item->valuestring))
			return tool_fail(
				error, -EINVAL,
				"%s: tensor \"%.128s\": \"%.128s\" is not a plain file name",
				INDEX_NAME, item->string,
				cJSON_IsString(item) ? item->valuestring : "?");
		if (file_index(st, item->valuestring) >= 0)
			continue;
		if (st->n_files == SAFETENSORS_MAX_FILES)
			return tool_fail(error, -E2BIG, "%s: more than %d shards", INDEX_NAME,
					 SAFETENSORS_MAX_FILES);
		r = add_file(st, dirfd, item->valuestring, error);
		if (r)
			return tool_fail_within(error, r, "%s", INDEX_NAME);
	}
	r = finish(st, error);
	if (r)
		return r;
	cJSON_ArrayForEach(item, map) {
		const struct safetensors_tensor *t = safetensors_find(st, item->string);

		if (!t || strcmp(st->files[t->file].name, item->valuestring))
			return tool_fail(error, -EINVAL, "%s: shard %s has no tensor \"%.128s\"",
					 INDEX_NAME, item->valuestring, item->string);
	}
	return 0;
}

/* Says what is there instead. */
static int fail_missing(int dirfd, struct tool_error *error)
{
	static const char *const others[] = {
		"pytorch_model.bin",	    "pytorch_model.bin.index.json",
		"consolidated.safetensors", "consolidated.safetensors.index.json",
		"consolidated.00.pth",	    "adapter_model.safetensors",
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (faccessat(dirfd, others[i], F_OK, 0) >= 0)
			return tool_fail(error, -ENOTSUP,
					 "no " SINGLE_NAME ", but %s, which is not supported",
					 others[i]);
	}
	return tool_fail(error, -ENOENT, SINGLE_NAME ": %s", strerror(ENOENT));
}

static int open_at(struct safetensors *st, int dirfd, struct tool_error *error)
{
	cJSON *index = NULL;
	size_t bytes;
	char *text;
	int r;

	if (faccessat(dirfd, INDEX_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    faccessat(dirfd, SINGLE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return fail_missing(dirfd, error);
	/* An index beside it is left from before the shards were merged. */
	if (faccessat(dirfd, SINGLE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) >= 0) {
		r = add_file(st, dirfd, SINGLE_NAME, error);
		return r ? r : finish(st, error);
	}
	r = tool_read_file(dirfd, INDEX_NAME, MAX_INDEX_BYTES, &text, &bytes, error);
	if (r)
		return r;
	r = tool_json_parse(text, bytes, &index, error);
	free(text);
	if (r)
		return tool_fail_within(error, r, INDEX_NAME);
	r = open_shards(st, dirfd, index, error);
	cJSON_Delete(index);
	return r;
}

int safetensors_open_dir(const char *path, struct safetensors **ret, struct tool_error *error)
{
	struct safetensors *st = calloc(1, sizeof(*st));
	int dirfd, r;

	if (!st)
		return tool_fail(error, -ENOMEM, "%s: no memory", path);
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0) {
		r = tool_fail(error, -errno, "%s: %s", path, strerror(errno));
	} else {
		r = open_at(st, dirfd, error);
		close(dirfd);
		if (r)
			tool_fail_within(error, r, "%s", path);
	}
	if (r) {
		safetensors_close(st);
		return r;
	}
	*ret = st;
	return 0;
}

int safetensors_open_fd(int fd, const char *name, struct safetensors **ret,
			struct tool_error *error)
{
	struct safetensors *st = calloc(1, sizeof(*st));
	int r;

	if (!st) {
		close(fd);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	r = add_fd(st, fd, name, error);
	if (!r)
		r = finish(st, error);
	if (r)
		safetensors_close(st);
	else
		*ret = st;
	return r;
}

int safetensors_open_file(const char *path, struct safetensors **ret, struct tool_error *error)
{
	struct stat s;
	int fd = tool_open_file(AT_FDCWD, path, &s, error), r;

	if (fd < 0)
		return fd;
	r = safetensors_open_fd(fd, path, ret, error);
	return r ? tool_fail_within(error, r, "%s", path) : 0;
}

void safetensors_close(struct safetensors *st)
{
	size_t i;

	if (!st)
		return;
	for (i = 0; i < st->n_tensors; i++) {
		free(st->tensors[i].name);
		free(st->tensors[i].copy);
	}
	for (i = 0; i < st->n_files; i++) {
		if (st->files[i].map)
			munmap(st->files[i].map, st->files[i].bytes);
		close(st->files[i].fd);
		free(st->files[i].header);
		free(st->files[i].name);
	}
	free(st->tensors);
	free(st->files);
	cJSON_Delete(st->metadata);
	free(st);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
	size_t low = 0, high = st->n_tensors;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int c = strcmp(name, st->tensors[middle].name);

		if (!c)
			return &st->tensors[middle];
		if (c < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const struct safetensors_tensor *safetensors_tensor(const struct safetensors *st, size_t index)
{
	return index < st->n_tensors ? &st->tensors[index] : NULL;
}

const void *safetensors_use(struct safetensors *st, const struct safetensors_tensor *t)
{
	st->tensors[t - st->tensors].used = true;
	return t->data;
}

int safetensors_copy(struct safetensors *st, const struct safetensors_tensor *t, const void **ret,
		     struct tool_error *error)
{
	struct safetensors_tensor *mine = &st->tensors[t - st->tensors];
	const struct safetensors_file *f = &st->files[t->file];
	uint64_t at = (uint64_t)((const char *)t->data - (const char *)f->map);
	void *copy;
	int r;

	if (!mine->copy) {
		copy = malloc(t->bytes + 1);
		if (!copy)
			return tool_fail(error, -ENOMEM, "tensor \"%.128s\": no memory", t->name);
		r = read_at(f, at, copy, t->bytes, error);
		if (r) {
			free(copy);
			return tool_fail_within(error, r, "%s: tensor \"%.128s\"", f->name,
						t->name);
		}
		mine->copy = copy;
	}
	mine->used = true;
	*ret = mine->copy;
	return 0;
}

int safetensors_unchanged(const struct safetensors *st, struct tool_error *error)
{
	for (unsigned i = 0; i < st->n_files; i++) {
		const struct safetensors_file *f = &st->files[i];
		struct file_identity now;
		struct stat s;

		if (fstat(f->fd, &s))
			return tool_fail(error, -errno, "%s: %s", f->name, strerror(errno));
		now = tool_identity(&s);
		if (memcmp(&now, &f->identity, sizeof(now)))
			return tool_fail(error, -ESTALE, "%s changed while it was compiled",
					 f->name);
	}
	return 0;
}

unsigned safetensors_files(const struct safetensors *st)
{
	return st->n_files;
}

const struct safetensors_file *safetensors_file(const struct safetensors *st, unsigned index)
{
	return index < st->n_files ? &st->files[index] : NULL;
}

const char *safetensors_metadata(const struct safetensors *st, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(st->metadata, key));
}
