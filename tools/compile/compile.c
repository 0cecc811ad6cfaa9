// SPDX-License-Identifier: MIT
#include "compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_output.h"
#include "content.h"
#include "crc32c.h"
#include "files.h"
#include "floats.h"
#include "graph.h"
#include "info.h"
#include "io.h"
#include "owned.h"
#include "text_files.h"
#include "unused.h"

#define MAX_COPY_BYTES (256u << 20)

struct compile {
	const struct compile_job *job;
	const struct compile_options *options;
	struct compiled_chip chip[TXDA_MAX_GROUP];
	struct chip_info info[TXDA_MAX_GROUP];
	struct case_output *out;
	struct content *content; /* of the source, when it was first read */
	uint32_t *copied;	 /* checksums of the model's files that were copied */
	struct progress progress;
	struct tool_error *error;
};

static void note(const struct compile *c, const char *text)
{
	if (!c->job->quiet)
		fprintf(stderr, "note: %s\n", text);
}

static void say_waiting(const char *path)
{
	fprintf(stderr, "note: waiting for another compile of %s\n", path);
}

static const char *weights_name(const struct compile *c)
{
	return c->chip[0].weights ? c->chip[0].weights : "bf16";
}

/*
 * @again: only looks whether it is the same as when it was copied. The first one, config.json, was
 * read before.
 */
static int copy_file(struct compile *c, int dirfd, unsigned i, bool again)
{
	const struct model_file *f = &c->job->model->copied[i];
	struct file_identity now;
	struct stat st;
	char *text, err[400];
	uint32_t sum;
	size_t bytes;
	int r;

	r = owned_read(dirfd, f->name, MAX_COPY_BYTES, &text, &bytes, &st, err, sizeof(err));
	if (r)
		return tool_fail(c->error, r, "%s", err);
	now = tool_identity(&st);
	sum = crc32c(0, text, bytes);
	if (memcmp(&f->identity, &now, sizeof(now)) || ((again || !i) && sum != c->copied[i]))
		r = tool_fail(c->error, -ESTALE, "%s changed while it was compiled", f->name);
	else if (!again)
		r = case_write(c->out, f->name, text, bytes, c->error);
	c->copied[i] = sum;
	free(text);
	return r;
}

/* Of a GGUF file, or a synthetic model. */
static int write_made(struct compile *c)
{
	const struct model *m = c->job->model;
	int r = 0;

	for (unsigned i = 0; i < GGUF_FILES && !r; i++) {
		if (m->made[i].text)
			r = case_write(c->out, m->made[i].name, m->made[i].text, m->made[i].bytes,
				       c->error);
	}
	return r ? r : case_write(c->out, "config.json", m->config_text, m->config_bytes, c->error);
}

static int copy_files(struct compile *c, bool again)
{
	const struct model *m = c->job->model;
	int dirfd, r = 0;
	unsigned i;

	if (!m->source.checkpoint)
		return again ? 0 : write_made(c);
	if (!again) {
		c->copied = calloc(m->n_copied, sizeof(*c->copied));
		if (!c->copied)
			return tool_fail(c->error, -ENOMEM, "no memory");
		c->copied[0] = crc32c(0, m->config_text, m->config_bytes);
	}
	if (!again && !strncmp(m->copied[m->n_copied - 1].name, TEXT_FILES_FOLDER "/",
			       sizeof(TEXT_FILES_FOLDER)))
		r = case_mkdir(c->out, TEXT_FILES_FOLDER, c->error);
	if (r)
		return r;
	dirfd = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0) {
		r = -errno;
		return tool_fail(c->error, r, "%s: %s", m->path, strerror(-r));
	}
	for (i = 0; i < m->n_copied && !r; i++)
		r = copy_file(c, dirfd, i, again);
	close(dirfd);
	return r;
}

static int write_chip(struct compile *c, uint32_t rank)
{
	struct compiled_chip *chip = &c->chip[rank];
	char dir[32], name[48], shared[1024];
	int fd, r;

	snprintf(dir, sizeof(dir), "chip%u", rank);
	r = case_mkdir(c->out, dir, c->error);
	if (r)
		return r;
	snprintf(name, sizeof(name), "%s/kcore.bin", dir);
	r = case_write(c->out, name, chip->kcore, chip->kcore_bytes, c->error);
	if (r)
		return r;
	if (chip->vision.kcore) {
		snprintf(name, sizeof(name), "%s/vision.bin", dir);
		r = case_write(c->out, name, chip->vision.kcore, chip->vision.kcore_bytes,
			       c->error);
		if (r)
			return r;
		c->info[rank].vision = chip->vision;
	}
	snprintf(name, sizeof(name), "%s/param.bin", dir);
	fd = case_create(c->out, name, c->error);
	if (fd < 0)
		return fd;
	r = param_write(&chip->params, fd, c->options->jobs, &c->progress,
			&c->info[rank].param_crc32c, c->error);
	if (r) {
		close(fd);
		return tool_fail_within(c->error, r, "%s/%s", c->job->case_path, name);
	}
	c->info[rank].kcore_bytes = chip->kcore_bytes;
	c->info[rank].param_bytes = chip->params.bytes;
	c->info[rank].scratch_bytes = chip->scratch_bytes;
	c->info[rank].io_bytes = chip->io_bytes;
	c->info[rank].kv_block_bytes = chip->kv_block_bytes;
	r = case_close(c->out, fd, name, c->error);
	if (r || !c->job->share)
		return r;
	if (snprintf(shared, sizeof(shared), "%s/%s", c->job->share, name) >= (int)sizeof(shared))
		return tool_fail(c->error, -ENAMETOOLONG, "--share: too long a path");
	return case_link(c->out, name, shared, c->error);
}

/*
 * Writes the table by which the host converts tokens to embeddings, for programs with embeddings as
 * input: one row per token.
 */
static int write_table(struct compile *c)
{
	const struct model *m = c->job->model;
	const uint32_t hidden = m->config.hidden_size;
	struct source_tensor table;
	float *values, scale;
	bool narrow;
	size_t row = (size_t)hidden * 4;
	int fd, r;

	r = graph_find_embedding(&m->config, &m->source, &table, c->error);
	if (r)
		return r;
	r = graph_embed_scale(&m->config, &m->source, &scale, c->error);
	if (r)
		return r;
	/* Scaled values are not bf16 values any more. */
	narrow = table.dtype == TXDA_BF16 && scale == 1;
	values = malloc(row);
	if (!values)
		return tool_fail(c->error, -ENOMEM, "no memory");
	fd = case_create(c->out, "embed.bin", c->error);
	if (fd < 0) {
		free(values);
		return fd;
	}
	for (uint64_t i = 0; i < table.rows && !r; i++) {
		source_read(&table, i, 0, hidden, values);
		for (uint32_t k = 0; !narrow && k < hidden; k++)
			values[k] *= scale;
		/*
		 * In place: the converted element is written before all elements that are still to
		 * be read.
		 */
		for (uint32_t k = 0; narrow && k < hidden; k++) {
			uint16_t half = float_to_bf16(values[k]);

			memcpy((char *)values + 2 * (size_t)k, &half, 2);
		}
		r = io_write_all(fd, values, narrow ? row / 2 : row);
		if (!r && progress_interrupted(&c->progress))
			r = -EINTR;
	}
	free(values);
	if (r) {
		close(fd);
		return tool_fail(c->error, r, "%s/embed.bin: %s", c->job->case_path, strerror(-r));
	}
	return case_close(c->out, fd, "embed.bin", c->error);
}

static int write_case(struct compile *c)
{
	const struct compile_job *job = c->job;
	uint64_t total = 0;
	char *info;
	uint32_t i;
	int r = 0;

	for (i = 0; i < c->options->tp; i++)
		total += c->chip[i].params.bytes;
	progress_start(&c->progress, "packing", total);
	for (i = 0; i < c->options->tp && !r; i++)
		r = write_chip(c, i);
	if (!r)
		progress_add(&c->progress, total - c->progress.done);
	progress_end(&c->progress);
	if (!r && c->options->embeds)
		r = write_table(c);
	if (!r)
		r = copy_files(c, false);
	if (!r)
		r = content_unchanged(c->content, c->error);
	if (!r)
		r = copy_files(c, true);
	if (r)
		return r;
	info = info_make(job->model, c->options, weights_name(c), c->info, &c->chip[0]);
	if (!info)
		return tool_fail(c->error, -ENOMEM, "no memory for model_info.json");
	r = case_write(c->out, "model_info.json", info, strlen(info), c->error);
	free(info);
	if (!r && progress_interrupted(&c->progress))
		r = tool_fail(c->error, -EINTR, "interrupted");
	return r ? r : case_commit(c->out, c->error);
}

/* After the programs are built. */
static int check_used(const struct compile *c)
{
	const struct model *m = c->job->model;
	char names[2048], text[2200];
	struct source_tensor table;
	int r = 0;

	/* The host uses it. */
	if (c->options->embeds)
		r = graph_find_embedding(&m->config, &m->source, &table, c->error);
	if (!r)
		r = unused_check(m, c->options, names, sizeof(names), c->error);
	if (r)
		return tool_fail_within(c->error, r, "%s", m->path);
	snprintf(text, sizeof(text), "tensors that are not used: %s", names);
	if (*names)
		note(c, text);
	if (c->chip[0].untied)
		note(c, "config.json has tie_word_embeddings, but the stored head differs from the "
			"embedding and is used");
	return 0;
}

int compile_run(const struct compile_job *job, struct compile_result *ret, struct tool_error *error)
{
	struct compile c = {.job = job, .options = &job->options, .error = error};
	struct compile_result result = {0};
	uint32_t i;
	int r = 0;

	c.progress.style = job->progress;
	c.progress.interrupted = job->interrupted;
	/*
	 * All programs are built first, so that errors of the model are found before anything is
	 * written.
	 */
	r = content_read(&job->model->source, &c.progress, &c.content, error);
	for (i = 0; i < job->options.tp && !r; i++)
		r = graph_build(&job->model->config, &job->model->source, c.options, i, &c.chip[i],
				error);
	if (!r)
		r = check_used(&c);
	if (!r && c.chip[0].expanded)
		note(&c, "some quantised weights fit no tile format and are stored as float32");
	if (!r)
		r = case_begin(job->case_path, job->force, job->interrupted, say_waiting, &c.out,
			       error);
	if (!r)
		r = write_case(&c);
	case_end(c.out);
	content_free(c.content);
	free(c.copied);
	for (i = 0; i < job->options.tp; i++) {
		result.weight_bytes += c.chip[i].params.bytes;
		if (c.chip[i].scratch_bytes > result.scratch_bytes)
			result.scratch_bytes = c.chip[i].scratch_bytes;
	}
	result.kv_block_bytes = c.chip[0].kv_block_bytes;
	result.weights = weights_name(&c);
	for (i = 0; i < job->options.tp; i++)
		compiled_chip_free(&c.chip[i]);
	if (!r)
		*ret = result;
	return r;
}
