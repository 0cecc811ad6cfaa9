// SPDX-License-Identifier: MIT
/* What a model's directory is: a checkpoint to be compiled, a case dir, or one that names one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "residency_internal.h"

static bool can_read(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !access(path, R_OK);
}

static int look_inside(struct source *s, char *err, size_t errlen)
{
	char ignored[256];
	int r;

	if (cache_is_case(s->path)) {
		s->kind = SOURCE_CASE;
		snprintf(s->case_dir, sizeof(s->case_dir), "%s", s->path);
		/* libtxda says what is wrong with it. */
		case_facts_read(s->path, &s->facts, ignored, sizeof(ignored));
		return 0;
	}
	if (!can_read(s->path, "config.json")) {
		snprintf(err, errlen, "%s has neither a model_info.json nor a config.json",
			 s->path);
		return -EINVAL;
	}
	r = param_dir_find(s->path, s->case_dir, sizeof(s->case_dir), &s->facts, err, errlen);
	if (r <= 0)
		return r;
	s->kind = SOURCE_PARAM_DIR;
	/* All from one place: a tokeniser and a template of two models do not go together. */
	if (can_read(s->path, "tokenizer.json") || can_read(s->path, "tokenizer.model"))
		snprintf(s->text_dir, sizeof(s->text_dir), "%s", s->path);
	return 0;
}

int source_find(const char *path, struct source *ret, char *err, size_t errlen)
{
	char full[PATH_MAX];
	struct stat st;
	int error;

	if (!realpath(path, full) || stat(full, &st)) {
		error = -errno;
		snprintf(err, errlen, "%s: %s", path, strerror(-error));
		return error;
	}
	if (!S_ISDIR(st.st_mode) || strlen(full) >= sizeof(ret->path)) {
		snprintf(err, errlen, "%s is %s", path,
			 S_ISDIR(st.st_mode) ? "too long a path" : "not a directory");
		return S_ISDIR(st.st_mode) ? -ENAMETOOLONG : -ENOTDIR;
	}
	*ret = (struct source){.kind = SOURCE_CHECKPOINT};
	memcpy(ret->path, full, strlen(full) + 1);
	return look_inside(ret, err, errlen);
}

/* A draft: a model's directory, or a layer of the model itself, which takes a checkpoint. */
static int check_draft(const struct residency_wish *wish, const struct source *model, char *err,
		       size_t errlen)
{
	struct source draft;

	if (strcmp(wish->draft, "mtp") != 0)
		return source_find(wish->draft, &draft, err, errlen);
	if (model->kind == SOURCE_CHECKPOINT)
		return 0;
	snprintf(err, errlen,
		 "%.400s is compiled: of its layer that predicts further tokens the case dir has "
		 "to be named, too",
		 wish->path);
	return -EINVAL;
}

int residency_check(struct txda_context *context, const struct residency_wish *wish, char *err,
		    size_t errlen)
{
	const struct case_wishes wishes = {
		.tp = wish->tp,
		.weights = wish->weights,
		.kv_int8 = wish->kv_int8,
		.whole_experts = wish->whole_experts,
	};
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	struct source source;
	int error = source_find(wish->path, &source, err, errlen);

	if (!error && source.kind != SOURCE_CHECKPOINT) {
		error = txda_model_plan(context, source.case_dir, &plan);
		if (error)
			snprintf(err, errlen, "%s", txda_context_error(context));
		source.facts.tp = plan.tp;
		if (!error)
			error = case_facts_fit(&source.facts, source.case_dir, &wishes, err,
					       errlen);
	}
	if (!error && wish->draft)
		error = check_draft(wish, &source, err, errlen);
	return error;
}

int source_fits(const struct residency_model *m, const struct source *s,
		const struct txda_model_plan *plan, char *err, size_t errlen)
{
	struct case_facts facts = s->facts;
	const struct case_wishes wishes = {
		.tp = m->wanted_tp,
		.weights = m->weights,
		.kv_int8 = m->options.kv_int8,
		.whole_experts = m->options.whole_experts,
	};

	facts.tp = plan->tp;
	return case_facts_fit(&facts, s->case_dir, &wishes, err, errlen);
}
