// SPDX-License-Identifier: MIT
#include "param.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "array.h"
#include "crc32c.h"
#include "ggml.h"
#include "io.h"
#include "pack.h"
#include "quant.h"

#define CHUNK_BYTES (4u << 20)	/* of tiles that one worker packs at a time */
#define LARGE_BYTES (64u << 10) /* from this size on entries begin on a page */
#define PAGE	    4096
#define MAX_THREADS 32

struct param_entry {
	struct param_tiles tiles; /* n = 0: bytes */
	char *name;
	void *data;
	struct param_part *part;
	uint32_t *columns;
	uint64_t offset, bytes;
};

static struct param_entry *add_entry(struct param_list *list, const char *name, uint64_t bytes)
{
	uint64_t align = bytes >= LARGE_BYTES ? PAGE : 64;
	struct param_entry *e;

	if (!array_grow(&list->entries, &list->room, (size_t)list->n + 1, sizeof(*e)))
		goto lost;
	e = &list->entries[list->n];
	memset(e, 0, sizeof(*e));
	e->name = strdup(name);
	if (!e->name)
		goto lost;
	e->offset = (list->bytes + align - 1) / align * align;
	e->bytes = bytes;
	list->bytes = e->offset + bytes;
	list->n++;
	return e;
lost:
	list->failed = -ENOMEM;
	return NULL;
}

static uint32_t matrices_of(const struct param_tiles *t)
{
	return t->matrices ? t->matrices : 1;
}

static uint64_t panels_of(const struct param_tiles *t)
{
	return txda_tile_panels(t->layout, t->n) * matrices_of(t);
}

static void *copy_of(const void *data, uint64_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);

	if (copy)
		memcpy(copy, data, bytes);
	return copy;
}

uint64_t param_add_tiles(struct param_list *list, const struct param_tiles *tiles)
{
	uint64_t bytes =
		panels_of(tiles) * txda_tile_panel_bytes(tiles->dtype, tiles->k, tiles->group);
	struct param_entry *e = add_entry(list, tiles->name, bytes);

	if (!e)
		return 0;
	e->tiles = *tiles;
	e->tiles.name = e->name;
	e->tiles.part = e->part = copy_of(tiles->part, (uint64_t)matrices_of(tiles) *
							       tiles->n_parts * sizeof(*e->part));
	if (tiles->columns)
		e->tiles.columns = e->columns =
			copy_of(tiles->columns,
				(uint64_t)matrices_of(tiles) * tiles->k * sizeof(*e->columns));
	if (!e->part || (tiles->columns && !e->columns))
		list->failed = -ENOMEM;
	return e->offset;
}

uint64_t param_add_bytes(struct param_list *list, const char *name, const void *data,
			 uint64_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);
	struct param_entry *e = copy ? add_entry(list, name, bytes) : NULL;

	if (!e) {
		free(copy);
		list->failed = -ENOMEM;
		return 0;
	}
	memcpy(copy, data, bytes);
	e->data = copy;
	return e->offset;
}

uint64_t param_finish(struct param_list *list)
{
	list->bytes = (list->bytes + PAGE - 1) / PAGE * PAGE;
	return list->bytes;
}

void param_free(struct param_list *list)
{
	uint32_t i;

	for (i = 0; i < list->n; i++) {
		free(list->entries[i].name);
		free(list->entries[i].data);
		free(list->entries[i].part);
		free(list->entries[i].columns);
	}
	free(list->entries);
	*list = (struct param_list){0};
}

static uint64_t part_row(const struct param_part *p, uint64_t row)
{
	return p->row + row * (p->row_by ? p->row_by : 1);
}

/*
 * The part, and its row, for lane @c of @panel of a matrix with these parts, or NULL for a row of
 * zeros.
 */
static const struct param_part *lane_row(const struct param_tiles *t, const struct param_part *part,
					 uint64_t panel, unsigned c, uint64_t *ret_row)
{
	uint64_t row = panel * TXDA_TILE_N + c;
	unsigned i;

	if (t->layout == TXDA_TILE32_GATED) {
		row = panel * (TXDA_TILE_N / 2) + c % (TXDA_TILE_N / 2);
		i = c / (TXDA_TILE_N / 2);
		*ret_row = part_row(&part[i], row);
		return row < part[i].rows ? &part[i] : NULL;
	}
	for (i = 0; i < t->n_parts; i++) {
		if (row < part[i].rows) {
			*ret_row = part_row(&part[i], row);
			return &part[i];
		}
		row -= part[i].rows;
	}
	return NULL;
}

struct lanes {
	const struct param_part *part[TXDA_TILE_N]; /* NULL: zeros */
	uint64_t row[TXDA_TILE_N];
	const uint32_t *columns; /* of the matrix; NULL: in order */
};

static void find_lanes(const struct param_tiles *t, uint64_t panel, struct lanes *l)
{
	uint64_t panels = txda_tile_panels(t->layout, t->n), matrix = panel / panels;
	unsigned c;

	memset(l, 0, sizeof(*l));
	for (c = 0; c < TXDA_TILE_N; c++)
		l->part[c] =
			lane_row(t, t->part + matrix * t->n_parts, panel % panels, c, &l->row[c]);
	l->columns = t->columns ? t->columns + matrix * t->k : NULL;
}

/* The codes of one lane in @n elements from @k on; returns their group, or TXDA_NONE. */
static uint32_t keep_codes(const struct param_part *p, const struct lanes *l, unsigned c,
			   uint64_t k, unsigned n, uint8_t *codes)
{
	const uint32_t *columns = l->columns ? l->columns + k : NULL;
	uint32_t group = TXDA_NONE;
	unsigned i;

	if (!columns) {
		quant_codes(&p->source, l->row[c], p->col + k, n, codes);
		return quant_group(&p->source, p->col + k);
	}
	for (i = 0; i < n; i++) {
		if (columns[i] == TXDA_NONE)
			continue;
		quant_codes(&p->source, l->row[c], p->col + columns[i], 1, codes + i);
		group = quant_group(&p->source, p->col + columns[i]);
	}
	return group;
}

/* The codes and the scale of one lane in a group of @n elements (and padding) from @k on. */
static void keep_lane(const struct param_tiles *t, const struct lanes *l, unsigned c, uint64_t k,
		      unsigned n, uint8_t *codes, struct pack_scale *scale)
{
	const struct param_part *p = l->part[c];
	uint32_t group;

	memset(codes, pack_middle(t->dtype), t->group);
	*scale = (struct pack_scale){0};
	if (!p)
		return;
	group = keep_codes(p, l, c, k, n, codes);
	if (group == TXDA_NONE)
		return;
	scale->scale = quant_scale(&p->source, l->row[c], group);
	scale->zero = (int16_t)(quant_zero(&p->source, l->row[c], group) - pack_middle(t->dtype));
}

/* The same with two levels. */
static void keep_levels(const struct param_tiles *t, const struct lanes *l, unsigned c, uint64_t k,
			unsigned n, uint8_t *codes, struct pack_levels *levels)
{
	const struct param_part *p = l->part[c];
	const unsigned size = t->dtype == TXDA_W6S ? 16 : 32;
	unsigned i;

	memset(codes, 0, t->group);
	*levels = (struct pack_levels){0};
	for (i = 0; p && i < n; i += size) {
		uint32_t group = keep_codes(p, l, c, k + i, n - i < size ? n - i : size, codes + i);
		struct ggml_levels found;

		if (group == TXDA_NONE)
			continue;
		found = ggml_levels(&p->source, l->row[c], group);
		levels->d = found.d;
		levels->dmin = found.dmin;
		levels->part[i / size].s = found.s;
		levels->part[i / size].m = found.m;
	}
}

static bool half_finite(uint16_t h)
{
	return (h & 0x7c00) != 0x7c00;
}

/*
 * Formats with scales among the codes were not checked before, and scales of half precision may
 * have more in the checkpoint.
 */
static bool scale_fits(uint8_t dtype, float scale)
{
	return isfinite(scale) && (dtype == TXDA_F8 || dtype == TXDA_MX4 || pack_half_fits(scale));
}

static int keep_panel(const struct param_tiles *t, const struct lanes *l, uint8_t *out,
		      struct tool_error *error)
{
	const bool two_level = txda_is_two_level(t->dtype);
	uint8_t codes[TXDA_TILE_N][256];
	struct pack_scale scale[TXDA_TILE_N];
	struct pack_levels levels[TXDA_TILE_N];
	bool fits;
	uint64_t k;
	unsigned c;

	for (k = 0; k < t->k; k += t->group) {
		unsigned n = t->k - k < t->group ? (unsigned)(t->k - k) : t->group;

		for (c = 0; c < TXDA_TILE_N; c++) {
			if (two_level) {
				keep_levels(t, l, c, k, n, codes[c], &levels[c]);
				fits = half_finite(levels[c].d) && half_finite(levels[c].dmin);
			} else {
				keep_lane(t, l, c, k, n, codes[c], &scale[c]);
				fits = scale_fits(t->dtype, scale[c].scale);
			}
			if (!fits)
				return tool_fail(error, -ERANGE,
						 "%s: the scale of row %llu, column %llu is not "
						 "finite%s",
						 t->name, (unsigned long long)l->row[c],
						 (unsigned long long)k,
						 two_level || t->dtype == TXDA_F8
							 ? ""
							 : " in float16, up to 65504");
		}
		out = two_level ? pack_levels(t->dtype, t->group, codes, levels, out)
				: pack_codes(t->dtype, t->group, codes, scale, out);
	}
	return 0;
}

int param_make_panel(const struct param_tiles *t, uint64_t panel, float (*block)[TXDA_TILE_N],
		     uint8_t *out, struct tool_error *error)
{
	float line[PACK_K];
	struct lanes l;
	unsigned c, i, n;
	uint64_t k;

	find_lanes(t, panel, &l);
	if (t->keep)
		return keep_panel(t, &l, out, error);
	for (k = 0; k < t->k; k += n) {
		n = t->k - k < PACK_K ? (unsigned)(t->k - k) : PACK_K;
		for (c = 0; c < TXDA_TILE_N; c++) {
			if (l.part[c])
				source_read(&l.part[c]->source, l.row[c], l.part[c]->col + k, n,
					    line);
			else
				memset(line, 0, n * sizeof(*line));
			for (i = 0; i < n; i++)
				block[i][c] = line[i];
		}
		if (txda_is_grouped(t->dtype) && !pack_quantisable(block, n))
			return tool_fail(
				error, -ERANGE,
				"%s: a weight is not finite or beyond %g and cannot be quantised",
				t->name, (double)PACK_MAX_VALUE);
		if (t->dtype == TXDA_F16 && !pack_halvable(block, n))
			return tool_fail(error, -ERANGE,
					 "%s: a weight is beyond 65504, the limit of float16",
					 t->name);
		out = pack_block(t->dtype, t->group, block, n, out);
	}
	return 0;
}

/* A run of whole panels, or an entry of bytes. */
struct chunk {
	const struct param_entry *entry;
	uint64_t first, panels, bytes;
};

struct writer {
	const struct param_list *list;
	struct chunk *chunks;
	uint32_t n_chunks;
	uint8_t **buffers; /* chunk i is packed in buffer i % n_buffers */
	unsigned n_buffers;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t next, written; /* chunks taken by workers, chunks written */
	uint8_t *ready;		/* by chunk */
	int failed;
	struct tool_error error;
	uint64_t at; /* bytes written */
	uint32_t crc;
};

static uint32_t list_chunks(const struct param_list *list, struct chunk *chunks,
			    uint64_t *ret_largest)
{
	uint64_t largest = 0;
	uint32_t n = 0, i;

	for (i = 0; i < list->n; i++) {
		const struct param_entry *e = &list->entries[i];
		struct chunk c = {.entry = e, .bytes = e->bytes};
		uint64_t panel_bytes, panels, step;

		if (!e->tiles.n) {
			if (chunks)
				chunks[n] = c;
			n++;
			continue;
		}
		panels = panels_of(&e->tiles);
		panel_bytes = e->bytes / panels;
		step = CHUNK_BYTES / panel_bytes ? CHUNK_BYTES / panel_bytes : 1;
		for (c.first = 0; c.first < panels; c.first += step) {
			c.panels = panels - c.first < step ? panels - c.first : step;
			c.bytes = c.panels * panel_bytes;
			largest = c.bytes > largest ? c.bytes : largest;
			if (chunks)
				chunks[n] = c;
			n++;
		}
	}
	*ret_largest = largest;
	return n;
}

static int make_chunk(const struct chunk *c, float (*block)[TXDA_TILE_N], uint8_t *out,
		      struct tool_error *error)
{
	uint64_t i;
	int r;

	for (i = 0; i < c->panels; i++) {
		r = param_make_panel(&c->entry->tiles, c->first + i, block,
				     out + i * (c->bytes / c->panels), error);
		if (r)
			return r;
	}
	return 0;
}

static void *worker(void *arg)
{
	float(*block)[TXDA_TILE_N] = malloc(PACK_K * sizeof(*block));
	struct writer *w = arg;
	struct tool_error error = {{0}};
	uint32_t i;
	int r;

	pthread_mutex_lock(&w->lock);
	if (!block)
		w->failed = tool_fail(&w->error, -ENOMEM, "no memory for a worker");
	while (!w->failed && w->next < w->n_chunks) {
		i = w->next++;
		while (!w->failed && i >= w->written + w->n_buffers)
			pthread_cond_wait(&w->changed, &w->lock);
		if (w->failed)
			break;
		pthread_mutex_unlock(&w->lock);
		r = make_chunk(&w->chunks[i], block, w->buffers[i % w->n_buffers], &error);
		pthread_mutex_lock(&w->lock);
		w->ready[i] = 1;
		if (r && !w->failed) {
			w->failed = r;
			w->error = error;
		}
		pthread_cond_broadcast(&w->changed);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	free(block);
	return NULL;
}

static int put(struct writer *w, int fd, const void *data, uint64_t bytes, struct tool_error *error)
{
	int r = io_write_all(fd, data, bytes);

	if (r)
		return tool_fail(error, r, "writing weights at byte %llu: %s",
				 (unsigned long long)w->at, strerror(-r));
	w->crc = crc32c(w->crc, data, bytes);
	w->at += bytes;
	return 0;
}

static int put_zeros_to(struct writer *w, int fd, uint64_t end, struct tool_error *error)
{
	static const uint8_t zeros[PAGE];
	int r;

	while (w->at < end) {
		r = put(w, fd, zeros, end - w->at < PAGE ? end - w->at : PAGE, error);
		if (r)
			return r;
	}
	return 0;
}

/* Writes the chunks in order as they become ready. */
static int write_chunks(struct writer *w, int fd, struct progress *progress,
			struct tool_error *error)
{
	uint32_t i;
	int r = 0;

	for (i = 0; i < w->n_chunks && !r; i++) {
		const struct chunk *c = &w->chunks[i];

		pthread_mutex_lock(&w->lock);
		while (!w->failed && !w->ready[i])
			pthread_cond_wait(&w->changed, &w->lock);
		r = w->failed;
		pthread_mutex_unlock(&w->lock);
		if (r) {
			if (error)
				*error = w->error;
			break;
		}
		if (progress_interrupted(progress))
			r = tool_fail(error, -EINTR, "interrupted");
		if (!r)
			r = put_zeros_to(
				w, fd,
				c->entry->offset +
					(c->panels ? c->first * (c->bytes / c->panels) : 0),
				error);
		if (!r)
			r = put(w, fd, c->panels ? w->buffers[i % w->n_buffers] : c->entry->data,
				c->bytes, error);
		pthread_mutex_lock(&w->lock);
		w->written = i + 1;
		if (r)
			w->failed = r;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		progress_add(progress, c->bytes);
	}
	return r ? r : put_zeros_to(w, fd, w->list->bytes, error);
}

static unsigned cpu_count(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

static int alloc_writer(struct writer *w, unsigned threads)
{
	uint64_t largest;
	unsigned i;

	w->n_chunks = list_chunks(w->list, NULL, &largest);
	w->chunks = calloc(w->n_chunks + 1, sizeof(*w->chunks));
	w->ready = calloc(w->n_chunks + 1, 1);
	w->buffers = calloc(threads + 2, sizeof(*w->buffers));
	if (!w->chunks || !w->ready || !w->buffers)
		return -ENOMEM;
	list_chunks(w->list, w->chunks, &largest);
	for (i = 0; i < threads + 2; i++) {
		w->buffers[i] = malloc(largest + 1);
		if (!w->buffers[i])
			return -ENOMEM;
		w->n_buffers++;
	}
	return 0;
}

static void free_writer(struct writer *w)
{
	unsigned i;

	for (i = 0; i < w->n_buffers; i++)
		free(w->buffers[i]);
	free(w->buffers);
	free(w->ready);
	free(w->chunks);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

int param_write(const struct param_list *list, int fd, unsigned threads, struct progress *progress,
		uint32_t *ret_crc, struct tool_error *error)
{
	struct writer w = {.list = list};
	pthread_t thread[MAX_THREADS];
	unsigned started = 0, i;
	int r;

	if (list->failed)
		return tool_fail(error, list->failed, "no memory for the weight list");
	if (!threads)
		threads = cpu_count();
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	/* Detects a full disk before the work is done; not supported by all file systems. */
	if (list->bytes && fallocate(fd, 0, 0, (off_t)list->bytes) < 0 && errno == ENOSPC)
		return tool_fail(error, -ENOSPC, "no space for %llu bytes of weights: %s",
				 (unsigned long long)list->bytes, strerror(ENOSPC));
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.changed, NULL);
	r = alloc_writer(&w, threads);
	if (r) {
		free_writer(&w);
		return tool_fail(error, r, "no memory for the weight buffers");
	}
	/* Bytes need no packing. */
	for (i = 0; i < w.n_chunks; i++)
		w.ready[i] = !w.chunks[i].panels;
	for (; started < threads; started++) {
		r = -pthread_create(&thread[started], NULL, worker, &w);
		if (r)
			break;
	}
	if (started)
		r = write_chunks(&w, fd, progress, error);
	else
		tool_fail(error, r, "no thread: %s", strerror(-r));
	for (i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	free_writer(&w);
	if (!r)
		*ret_crc = w.crc;
	return r;
}
