// SPDX-License-Identifier: MIT
#include "loader.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "cache_private.h"
#include "cache_room.h"
#include "case_reader.h"
#include "clock.h"
#include "confine.h"
#include "hostcopy.h"
#include "keeper.h"
#include "log.h"
#include "param_dir.h"
#include "program.h"

/* systemd closes released descriptors in a thread, after it has answered. */
#define TAKE_LOOKS 50
#define TAKE_NS	   20000000

static const char *const phases[] = {"compiling", "loading", "tokenizer"};

struct loader {
	struct models_options options;
	char cache_dir[SOURCE_PATH], compiler[SOURCE_PATH];
	int private_lock; /* lock of a private cache directory; -1: not private */
	int fd;
	pthread_t thread;
	bool runs;
	bool busy; /* the loop's: a job was started and not taken yet */
	struct load_job job;
	/* State of the current job. */
	atomic_uint phase;
	_Atomic uint64_t done, total;

	pthread_mutex_t lock; /* held only to pass a job on */
	pthread_cond_t work;
	bool given, finished, ending;
};

static void set_phase(struct loader *l, unsigned phase)
{
	atomic_store(&l->done, 0);
	atomic_store(&l->total, 0);
	atomic_store(&l->phase, phase);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct loader *l = arg;

	atomic_store(&l->done, done);
	atomic_store(&l->total, total);
}

/* What the compiler does with a model that its owner may not expect. */
static void on_note(void *arg, const char *text)
{
	log_warning("%s: %s", (const char *)arg, text);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Whether the case dir's files have the sizes stated; a plan reads only programs. */
static int check_files(const char *case_dir, char *err, size_t errlen)
{
	struct case_facts facts;
	int r = case_facts_read(case_dir, &facts, err, errlen);

	if (r)
		return 0; /* the plan has judged that file */
	for (unsigned i = 0; i < facts.n_files; i++) {
		char path[PATH_MAX];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", case_dir, facts.file[i].name);
		if (lstat(path, &st)) {
			r = -errno;
			snprintf(err, errlen, "%.400s: %s", path, strerror(-r));
			return r;
		}
		if (S_ISREG(st.st_mode) &&
		    (!facts.file[i].bytes || (uint64_t)st.st_size == facts.file[i].bytes))
			continue;
		snprintf(err, errlen, "%.400s is not a file of %llu bytes, as model_info.json says",
			 path, (unsigned long long)facts.file[i].bytes);
		return -EINVAL;
	}
	return 0;
}

static int plan_case(struct loader *l, const char *case_dir, struct txda_model_plan *ret)
{
	struct load_job *job = &l->job;
	int error;

	*ret = TXDA_INIT(struct txda_model_plan);
	error = txda_model_plan(l->options.context, case_dir, ret);
	if (!error)
		return check_files(case_dir, job->err, sizeof(job->err));
	snprintf(job->err, sizeof(job->err), "%s", txda_context_error(l->options.context));
	return error;
}

/*
 * Compiles a checkpoint, unless it is cached, and plans it. A damaged cache entry is compiled
 * again.
 */
static int compile(struct loader *l, struct cache_source *source, char *case_dir, size_t len,
		   struct txda_model_plan *ret_plan, struct cache_use **ret_use)
{
	struct load_job *job = &l->job;
	const struct child_options child = {
		.seconds = l->options.compile_seconds ? l->options.compile_seconds : 3600,
		.stop = &job->cancel,
		.progress = on_progress,
		.progress_arg = l,
		.note = on_note,
		.note_arg = (void *)source->path,
	};
	int error = 0;

	source->compiler = l->compiler;
	source->cache_size = l->options.private_cache ? 0 : l->options.cache_size;
	for (unsigned attempt = job->again; attempt < 2; attempt++) {
		set_phase(l, 0);
		cache_release(*ret_use);
		*ret_use = NULL;
		error = cache_get(l->cache_dir, source, attempt > 0, &child, case_dir, len, ret_use,
				  job->err, sizeof(job->err));
		if (error)
			return error;
		error = plan_case(l, case_dir, ret_plan);
		if (!error)
			break;
	}
	return error;
}

static int compile_model(struct loader *l)
{
	const struct model_spec *spec = &l->job.spec;
	struct model_found *f = &l->job.found;
	struct cache_source source = {
		.path = f->path,
		.tp = spec->tp,
		.weights = *spec->weights ? spec->weights : NULL,
		.output = !strcmp(spec->draft, "mtp") ? "--states" : NULL,
		.kv_int8 = spec->kv_int8,
		.whole_experts = spec->whole_experts,
		.ignore_unused = spec->ignore_unused,
		.bytes = f->checkpoint_bytes * (spec->tp ? spec->tp : 1),
	};
	int error = compile(l, &source, f->case_dir, sizeof(f->case_dir), &f->plan, &l->job.use);

	if (!error)
		memcpy(f->text_dir, f->case_dir, sizeof(f->text_dir));
	return error;
}

/* A draft's KV cache is small anyway, so it is never int8. */
static int compile_draft(struct loader *l)
{
	const struct model_spec *spec = &l->job.spec;
	struct model_found *f = &l->job.found;
	bool mtp = !strcmp(spec->draft, "mtp");
	struct cache_source source = {
		.path = f->draft_path,
		.tp = f->plan.tp,
		.weights = mtp && *spec->weights ? spec->weights : NULL,
		.output = mtp ? "--mtp" : NULL,
		.whole_experts = spec->whole_experts,
		.ignore_unused = spec->ignore_unused,
		.bytes = f->draft_bytes,
	};

	return compile(l, &source, f->draft_case_dir, sizeof(f->draft_case_dir), &f->draft_plan,
		       &l->job.draft_use);
}

static void make_plan(struct loader *l)
{
	struct load_job *job = &l->job;
	struct model_found *f = &job->found;

	job->error = source_look(l->options.context, &job->spec, f, job->err, sizeof(job->err));
	if (!job->error && f->compiles)
		job->error = compile_model(l);
	if (!job->error && f->draft_compiles)
		job->error = compile_draft(l);
	if (!job->error)
		job->error = source_draft_fits(f, job->err, sizeof(job->err));
	f->planned = !job->error;
}

/* ---- weights that outlive the daemon --------------------------------------------------------- */

/* Keeps the weights of one rank; @ret_imported: they were kept before. */
static void keep_one(struct loader *l, bool draft, unsigned rank, bool *ret_imported)
{
	struct holding *h = &l->job.on_chip;
	const struct model_found *f = &l->job.found;
	struct txda_weights_info info = TXDA_INIT(struct txda_weights_info);
	struct keeper_weights w = {
		.source = draft ? f->draft_path : f->path,
		.case_dir = draft ? f->draft_case_dir : f->case_dir,
		.rank = rank,
		.tp = txda_group_size(h->group),
		.device = txda_group_device(h->group, rank),
	};

	if (engine_weights(h->engine, draft, rank, &w.weights))
		return;
	if (txda_weights_info(w.weights, &info) < 0 || !info.imported)
		*ret_imported = false;
	if (h->n_kept < sizeof(h->kept) / sizeof(h->kept[0]) &&
	    !keeper_keep(l->options.keeper, &w, &h->kept[h->n_kept]))
		h->n_kept++;
	txda_weights_unref(w.weights);
}

static void keep_weights(struct loader *l)
{
	struct holding *h = &l->job.on_chip;
	bool imported = true;

	for (unsigned r = 0; r < txda_group_size(h->group) && l->options.keeper; r++) {
		keep_one(l, false, r, &imported);
		if (*l->job.found.draft_path)
			keep_one(l, true, r, &imported);
	}
	h->adopted = imported && h->n_kept;
}

static bool has_free(struct txda_group *group, uint64_t bytes)
{
	for (unsigned i = 0; i < txda_group_size(group); i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);
		struct txda_device_status status = TXDA_INIT(struct txda_device_status);
		struct txda_device *device = txda_group_device(group, i);

		if (txda_device_info(device, &info) < 0 || txda_device_status(device, &status) < 0)
			return true; /* the load reports the error */
		if (info.mem_bytes < status.mem_used_bytes + bytes)
			return false;
	}
	return true;
}

/* Drops weights kept for others, and waits until the chips have the room. */
static void take_spare(struct loader *l)
{
	const struct timespec pause = {.tv_nsec = TAKE_NS};
	const struct load_job *job = &l->job;

	keeper_drop_spare(l->options.keeper, job->on_chip.group, job->found.case_dir,
			  job->found.draft_case_dir);
	keeper_await(l->options.keeper);
	for (unsigned i = 0; i < TAKE_LOOKS && !has_free(job->on_chip.group, job->spare_need); i++)
		nanosleep(&pause, NULL);
}

/* ---- loads and unloads ----------------------------------------------------------------------- */

/* Weights that leave the chips for good are not kept any longer. */
static void release(struct loader *l, bool forgets)
{
	struct holding *h = &l->job.on_chip;

	while (forgets && h->n_kept)
		keeper_drop(l->options.keeper, h->kept[--h->n_kept]);
	engine_free(h->engine);
	txda_group_unref(h->group);
	*h = (struct holding){0};
}

static int read_text(struct loader *l)
{
	struct load_job *job = &l->job;
	const struct model_found *f = &job->found;

	if (!job->wants_text)
		return 0;
	set_phase(l, 2);
	/* Errors that more memory on the chips does not fix. */
	return l->options.text->load(f->text_dir, &job->on_chip.limits, &job->spec,
				     strcmp(f->text_dir, f->case_dir), l->options.config,
				     &job->cancel, &job->text, job->err, sizeof(job->err))
		       ? -EINVAL
		       : 0;
}

/* Whether the case dir is the daemon's own, and not one that somebody made. */
static bool is_cached(const struct loader *l, const char *case_dir)
{
	size_t len = strlen(l->cache_dir);

	return !strncmp(case_dir, l->cache_dir, len) && case_dir[len] == '/';
}

static void load_engine(struct loader *l)
{
	struct load_job *job = &l->job;
	struct engine_options options = job->engine;
	struct holding *h = &job->on_chip;
	struct image_tower tower;
	bool sees = false;

	set_phase(l, 1);
	if (job->spare_need)
		take_spare(l);
	options.case_dir = job->found.case_dir;
	if (*job->found.draft_path) {
		options.speculation = ENGINE_SPECULATE_MODEL;
		options.draft_case_dir = job->found.draft_case_dir;
	}
	options.context = l->options.context;
	options.keep_weights = l->options.keeper;
	options.map_weights = is_cached(l, job->found.case_dir) &&
			      (!*job->found.draft_path || is_cached(l, job->found.draft_case_dir));
	options.load_progress = on_progress;
	options.load_progress_arg = l;
	job->error = case_reader_tower(options.case_dir, &tower, &sees, job->err, sizeof(job->err));
	options.tower = sees ? &tower : NULL;
	if (!job->error)
		job->error = engine_new(h->group, &options, &h->engine, job->err, sizeof(job->err));
	if (!job->error) {
		engine_limits(h->engine, &h->limits);
		job->error = read_text(l);
	}
	if (job->error) {
		release(l, false);
		return;
	}
	keep_weights(l);
	hostcopy_free(job->copy);
	job->copy = NULL;
}

static void free_engine(struct loader *l)
{
	struct load_job *job = &l->job;
	unsigned tp = job->on_chip.group ? txda_group_size(job->on_chip.group) : 0;

	hostcopy_free(job->copy);
	job->copy = NULL;
	/* Without a copy, waking the model up reads the files. */
	if (job->sleeps &&
	    hostcopy_new(job->found.case_dir, tp, job->found.plan.weight_bytes, &job->copy))
		job->copy = NULL;
	release(l, job->forgets);
	/* Other threads may be waiting for the room. */
	if (l->options.keeper && job->forgets)
		keeper_await(l->options.keeper);
}

static void run(struct loader *l)
{
	uint64_t start = clock_ns();

	switch (l->job.kind) {
	case LOAD_PLAN: make_plan(l); break;
	case LOAD_ENGINE: load_engine(l); break;
	case LOAD_FREE: free_engine(l); break;
	case LOAD_KEPT: keeper_drop_unwanted(l->options.keeper); break;
	case LOAD_LOOK: keeper_look(l->options.keeper); break;
	}
	l->job.ns = clock_ns() - start;
}

static void *work(void *arg)
{
	struct loader *l = arg;
	const uint64_t one = 1;

	pthread_setname_np(pthread_self(), "txda-loader");
	pthread_mutex_lock(&l->lock);
	while (!l->ending || l->given) {
		if (!l->given) {
			pthread_cond_wait(&l->work, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		run(l);
		pthread_mutex_lock(&l->lock);
		l->given = false;
		l->finished = true;
		/* If the counter is full the fd is readable, too. */
		if (write(l->fd, &one, sizeof(one)) < 0)
			continue;
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- the loop's side ------------------------------------------------------------------------- */

static int find_cache(struct loader *l, char *err, size_t errlen)
{
	const struct models_options *o = &l->options;
	int error = cache_find(o->cache_dir, l->cache_dir, sizeof(l->cache_dir), err, errlen);

	if (!error && o->private_cache)
		error = cache_private_new(l->cache_dir, sizeof(l->cache_dir), &l->private_lock, err,
					  errlen);
	if (!error && !confine_landlock())
		log_warning("this kernel has no landlock: the checkpoint compiler can read and "
			    "write "
			    "what the daemon can");
	return error;
}

static int set_up(struct loader *l, const struct loader *first, char *err, size_t errlen)
{
	const struct models_options *o = &l->options;
	int error = 0;

	if (first)
		memcpy(l->cache_dir, first->cache_dir, sizeof(l->cache_dir));
	else
		error = find_cache(l, err, errlen);
	if (error)
		return error;
	/* A missing compiler is reported by the load that needs it. */
	if (o->compiler)
		snprintf(l->compiler, sizeof(l->compiler), "%s", o->compiler);
	else if (program_find("txda-compile", l->compiler, sizeof(l->compiler)))
		snprintf(l->compiler, sizeof(l->compiler), "txda-compile");
	l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->fd < 0) {
		error = -errno;
		snprintf(err, errlen, "cannot make an eventfd: %s", strerror(-error));
	}
	return error;
}

int loader_new(const struct models_options *options, const struct loader *first,
	       struct loader **ret, char *err, size_t errlen)
{
	struct loader *l = calloc(1, sizeof(*l));
	sigset_t all, old;
	int error;

	if (!l) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	l->options = *options;
	l->fd = l->private_lock = -1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->work, NULL);
	error = set_up(l, first, err, errlen);
	if (!error) {
		/* Signals are handled by the daemon's own threads. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		error = -pthread_create(&l->thread, NULL, work, l);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		l->runs = !error;
		if (error)
			snprintf(err, errlen, "cannot start the loader thread: %s",
				 strerror(-error));
	}
	if (error) {
		loader_free(l);
		return error;
	}
	*ret = l;
	return 0;
}

void loader_stop(struct loader *l)
{
	if (!l->runs)
		return;
	atomic_store(&l->job.cancel, true);
	pthread_mutex_lock(&l->lock);
	l->ending = true;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	l->runs = false;
}

void loader_free(struct loader *l)
{
	if (!l)
		return;
	loader_stop(l);
	if (l->private_lock >= 0)
		cache_private_remove(l->cache_dir, l->private_lock);
	if (l->fd >= 0)
		close(l->fd);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->work);
	free(l);
}

struct load_job *loader_job(struct loader *l)
{
	if (l->busy)
		return NULL;
	memset(&l->job, 0, sizeof(l->job));
	return &l->job;
}

void loader_start(struct loader *l)
{
	l->busy = true;
	set_phase(l, l->job.kind == LOAD_PLAN ? 0 : 1);
	pthread_mutex_lock(&l->lock);
	l->given = true;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
}

struct load_job *loader_current(struct loader *l)
{
	return l->busy ? &l->job : NULL;
}

int loader_fd(const struct loader *l)
{
	return l->fd;
}

struct load_job *loader_take(struct loader *l)
{
	uint64_t count;
	bool finished;

	if (read(l->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return NULL;
	pthread_mutex_lock(&l->lock);
	finished = l->finished;
	l->finished = false;
	pthread_mutex_unlock(&l->lock);
	if (!finished)
		return NULL;
	l->busy = false;
	return &l->job;
}

const char *loader_phase(const struct loader *l, double *ret_progress)
{
	uint64_t done = atomic_load(&l->done), total = atomic_load(&l->total);

	*ret_progress = total ? (double)done / (double)total : 0;
	return phases[atomic_load(&l->phase)];
}
