// SPDX-License-Identifier: MIT
/*
 * Resolves a model's path: a checkpoint to be compiled, a case dir, or a checkpoint that names one.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "child.h"
#include "gguf_name.h"
#include "owned.h"
#include "program.h"
#include "source.h"

#define CONFIG_SECONDS 30 /* longest time of reading a config.json */

/* A directory, or a GGUF file. */
struct place {
	char path[SOURCE_PATH], case_dir[SOURCE_PATH], text_dir[SOURCE_PATH];
	struct case_facts facts;
	uid_t owner;
	bool is_checkpoint;
};

static bool ends_with(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

/* Total size of the files in a directory with that suffix. */
static uint64_t bytes_of(const char *dir, const char *suffix)
{
	const struct dirent *entry;
	DIR *d = opendir(dir);
	uint64_t bytes = 0;
	struct stat st;

	while (d && (entry = readdir(d)))
		if (ends_with(entry->d_name, suffix) && !fstatat(dirfd(d), entry->d_name, &st, 0) &&
		    S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_size;
	if (d)
		closedir(d);
	return bytes;
}

/* Whether config.json has these letters; others are not parsed, as most have no param_dir. */
static bool may_name_case(const char *dir)
{
	static const char letters[] = "param_dir";
	char path[PATH_MAX], err[400], *text;
	size_t bytes;
	bool found;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", dir) >= sizeof(path) ||
	    owned_read_path(path, CONFIG_FACTS_BYTES, &text, &bytes, err, sizeof(err)))
		return false;
	found = memmem(text, bytes, letters, sizeof(letters) - 1);
	free(text);
	return found;
}

/* What config.json says of its case dir: a confined process reads it. */
static int read_config(const char *dir, struct config_facts *ret, char *err, size_t errlen)
{
	static const atomic_bool never;
	const struct child_options options = {.seconds = CONFIG_SECONDS, .stop = &never};
	char program[PATH_MAX], mode[] = "--config", *where = strdup(dir), why[256] = "";
	char *const argv[] = {program, mode, where, NULL};
	struct {
		struct config_facts facts;
		char end; /* the NUL behind the output */
	} out;
	size_t n = 0;
	int r = where ? program_find("txdad-text", program, sizeof(program)) : -ENOMEM;

	if (!r)
		r = child_run(&options, argv, (char *)&out, sizeof(out), &n, why, sizeof(why));
	free(where);
	if (!r && n != sizeof(out.facts))
		r = -EPROTO;
	if (r) {
		snprintf(err, errlen, "%.400s/config.json cannot be read in a confined process: %s",
			 dir, *why ? why : strerror(-r));
		return r;
	}
	config_facts_tame(&out.facts);
	*ret = out.facts;
	return 0;
}

/* A directory without JSON files: 0 if it has GGUF files that can be read. */
static int find_gguf(const char *path, char *err, size_t errlen)
{
	DIR *d = opendir(path);
	const struct dirent *entry;
	int r = d ? 0 : -errno;

	while (d && !r && (entry = readdir(d)))
		if (ends_with(entry->d_name, ".gguf"))
			r = owned_find(path, entry->d_name, err, errlen);
	if (!d)
		snprintf(err, errlen, "%s: %s", path, strerror(-r));
	else if (!r)
		snprintf(err, errlen,
			 "%s has neither a model_info.json nor a config.json nor a GGUF file%s",
			 path,
			 faccessat(dirfd(d), "snapshots", F_OK, 0)
				 ? ""
				 : "; a Hugging Face cache has its models in snapshots/REVISION");
	if (d)
		closedir(d);
	return r > 0 ? 0 : r ? r : -EINVAL;
}

/* All from one place: a tokeniser and a template of different models do not match. */
static int find_text(struct place *s, char *err, size_t errlen)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tiktoken.model"};
	int r = 0;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && !r; i++)
		r = owned_find(s->path, names[i], err, errlen);
	snprintf(s->text_dir, sizeof(s->text_dir), "%s", r ? s->path : s->case_dir);
	return r < 0 ? r : 0;
}

static int classify_model(struct place *s, char *err, size_t errlen)
{
	int r = owned_find(s->path, "model_info.json", err, errlen);
	struct config_facts config;

	if (r > 0) {
		s->is_checkpoint = false;
		snprintf(s->case_dir, sizeof(s->case_dir), "%s", s->path);
		snprintf(s->text_dir, sizeof(s->text_dir), "%s", s->path);
		return case_facts_read(s->path, &s->facts, err, errlen);
	}
	if (!r)
		r = owned_find(s->path, "config.json", err, errlen);
	if (!r)
		return find_gguf(s->path, err, errlen);
	if (r < 0 || !may_name_case(s->path))
		return r < 0 ? r : 0;
	r = read_config(s->path, &config, err, errlen);
	if (!r)
		r = param_dir_find(s->path, &config, s->case_dir, sizeof(s->case_dir), &s->facts,
				   err, errlen);
	if (r <= 0)
		return r;
	s->is_checkpoint = false;
	return find_text(s, err, errlen);
}

/*
 * Resolves the links in @path, except that a part of a GGUF model keeps its name, since the other
 * parts are beside it.
 */
static int resolve(const char *path, char *full)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int n = slash ? (int)(slash - path) + 1 : 0;
	struct stat st;

	if (!gguf_name_parts(path) || stat(path, &st) || !S_ISREG(st.st_mode))
		return realpath(path, full) ? 0 : -errno;
	if ((size_t)snprintf(dir, sizeof(dir), "./%.*s", n, path) >= sizeof(dir))
		return -ENAMETOOLONG;
	if (!realpath(slash ? dir + 2 : dir, full))
		return -errno;
	if (strlen(full) + 1 + strlen(path + n) >= PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(full + strlen(full), PATH_MAX - strlen(full), "/%s", path + n);
	return 0;
}

/* Checks links to parts of a GGUF model; the compiler checks the files. */
static int check_parts(const char *path, uid_t owner, char *err, size_t errlen)
{
	unsigned n = gguf_name_parts(path);
	char part[PATH_MAX];
	int r = 0;

	snprintf(part, sizeof(part), "%s", path);
	for (unsigned i = 1; i <= n && !r; i++) {
		gguf_name_set_part(part, i);
		r = owned_links(part, owner, err, errlen);
	}
	return r;
}

static int find(const char *path, struct place *ret, char *err, size_t errlen)
{
	char full[PATH_MAX];
	struct stat st;
	bool file;
	int error;

	error = resolve(path, full);
	if (!error && stat(full, &st))
		error = -errno;
	if (error) {
		snprintf(err, errlen, "%s: %s", path, strerror(-error));
		return error;
	}
	file = S_ISREG(st.st_mode) && ends_with(path, ".gguf");
	if (!S_ISDIR(st.st_mode) && !file) {
		snprintf(err, errlen, "%s is neither a directory nor a GGUF file", path);
		return -ENOTDIR;
	}
	if (strlen(full) >= sizeof(ret->path)) {
		snprintf(err, errlen, "%s is too long a path", path);
		return -ENAMETOOLONG;
	}
	error = owned_links(path, st.st_uid, err, errlen);
	if (!error && file)
		error = check_parts(full, st.st_uid, err, errlen);
	if (error)
		return error;
	*ret = (struct place){.is_checkpoint = true, .owner = st.st_uid};
	memcpy(ret->path, full, strlen(full) + 1);
	return file ? 0 : classify_model(ret, err, errlen);
}

static uint64_t bytes_of_parts(const char *path)
{
	unsigned n = gguf_name_parts(path);
	uint64_t bytes = 0;
	char part[PATH_MAX];
	struct stat st;

	snprintf(part, sizeof(part), "%s", path);
	for (unsigned i = 1; i <= n; i++) {
		gguf_name_set_part(part, i);
		if (!stat(part, &st))
			bytes += (uint64_t)st.st_size;
	}
	return bytes;
}

/*
 * An upper bound, except for checkpoints in float32 and GGUF types that are converted to float32.
 */
static uint64_t checkpoint_bytes(const char *path, unsigned tp)
{
	uint64_t bytes = bytes_of(path, ".safetensors");
	struct stat st;

	if (!bytes)
		bytes = bytes_of(path, ".gguf");
	if (!stat(path, &st) && S_ISREG(st.st_mode))
		bytes = gguf_name_parts(path) ? bytes_of_parts(path) : (uint64_t)st.st_size;
	return bytes / (tp ? tp : 1);
}

static int plan(struct txda_context *context, const char *case_dir, struct txda_model_plan *ret,
		char *err, size_t errlen)
{
	int error;

	*ret = TXDA_INIT(struct txda_model_plan);
	error = txda_model_plan(context, case_dir, ret);
	if (error)
		snprintf(err, errlen, "%s", txda_context_error(context));
	return error;
}

/* A draft: a model's directory, or a layer of the model itself, which requires a checkpoint. */
static int resolve_draft(struct txda_context *context, const struct model_spec *spec,
			 struct model_found *f, char *err, size_t errlen)
{
	struct place draft;
	int error;

	if (!strcmp(spec->draft, "mtp")) {
		memcpy(f->draft_path, f->path, sizeof(f->draft_path));
		f->draft_compiles = true;
		if (f->compiles)
			return 0;
		snprintf(err, errlen,
			 "%.400s is compiled: of its layer that predicts further tokens the case "
			 "dir has to be named, too",
			 spec->path);
		return -EINVAL;
	}
	error = find(spec->draft, &draft, err, errlen);
	if (error)
		return error;
	memcpy(f->draft_path, draft.path, sizeof(f->draft_path));
	memcpy(f->draft_case_dir, draft.case_dir, sizeof(f->draft_case_dir));
	f->draft_compiles = draft.is_checkpoint;
	f->draft_bytes = draft.is_checkpoint ? checkpoint_bytes(draft.path, 1) : 0;
	return draft.is_checkpoint ? 0 : plan(context, draft.case_dir, &f->draft_plan, err, errlen);
}

int source_draft_fits(const struct model_found *f, char *err, size_t errlen)
{
	if (!*f->draft_path || f->draft_plan.tp == f->plan.tp)
		return 0;
	snprintf(err, errlen, "the draft model %.400s is for %u chips, the model for %u",
		 f->draft_path, f->draft_plan.tp, f->plan.tp);
	return -EINVAL;
}

int source_look(struct txda_context *context, const struct model_spec *spec,
		struct model_found *ret, char *err, size_t errlen)
{
	const struct case_wishes wishes = {
		.tp = spec->tp,
		.weights = spec->weights,
		.kv_int8 = spec->kv_int8,
		.whole_experts = spec->whole_experts,
	};
	struct case_facts facts;
	struct place place;
	int error = find(spec->path, &place, err, errlen);

	if (error)
		return error;
	*ret = (struct model_found){
		.facts = place.facts,
		.owner = place.owner,
		.compiles = place.is_checkpoint,
	};
	memcpy(ret->path, place.path, sizeof(ret->path));
	memcpy(ret->case_dir, place.case_dir, sizeof(ret->case_dir));
	memcpy(ret->text_dir, place.text_dir, sizeof(ret->text_dir));
	if (ret->compiles) {
		ret->checkpoint_bytes = checkpoint_bytes(place.path, spec->tp);
	} else {
		error = plan(context, ret->case_dir, &ret->plan, err, errlen);
		facts = ret->facts;
		facts.tp = ret->plan.tp;
		if (!error)
			error = case_facts_fit(&facts, ret->case_dir, &wishes, err, errlen);
	}
	if (!error && *spec->draft)
		error = resolve_draft(context, spec, ret, err, errlen);
	ret->planned = !error && !ret->compiles && !ret->draft_compiles;
	return error || !ret->planned ? error : source_draft_fits(ret, err, errlen);
}
