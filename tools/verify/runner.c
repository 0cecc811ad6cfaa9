// SPDX-License-Identifier: MIT
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "compile.h"
#include "config.h"
#include "files.h"
#include "param_dir.h"
#include "vision.h"

#define STEP_SECONDS 600
/* The longest name below the temporary directory: of a file of a chip, or the compiler's own. */
#define MAX_BELOW 80

static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
#define N_ENDINGS (sizeof(endings) / sizeof(*endings))

/* The signal of the above that ends the process when its files are removed; 0: none. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

/*
 * A second signal changes nothing: timeout(1) sends two. What is ignored, as under nohup(1), stays
 * so.
 */
static void catch_signals(struct sigaction before[N_ENDINGS])
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	for (size_t i = 0; i < N_ENDINGS; i++)
		if (!sigaction(endings[i], NULL, &before[i]) && before[i].sa_handler != SIG_IGN)
			sigaction(endings[i], &action, NULL);
}

static void restore_signals(const struct sigaction before[N_ENDINGS])
{
	for (size_t i = 0; i < N_ENDINGS; i++)
		sigaction(endings[i], &before[i], NULL);
}

static int fail_library(struct runner *r, int code, const char *what, struct tool_error *error)
{
	const char *reason = txda_context_error(r->context);

	return tool_fail(error, code, "%s: %s", what, *reason ? reason : strerror(-code));
}

/* Compiles into @dir/case. */
static int compile_into(const struct runner_options *o, const char *dir, struct tool_error *error)
{
	char path[PATH_MAX + 8];
	struct compile_job job = {
		.case_path = path, .options = o->compile, .interrupted = &interrupted};
	struct compile_result result;
	struct model m;
	int ret;

	snprintf(path, sizeof(path), "%s/case", dir);
	ret = o->config ? model_open_text("test", o->config, &m, error)
			: model_open(o->path, &m, error);
	if (ret)
		return ret;
	job.model = &m;
	ret = model_resolve_options(&m, &job.options, error);
	if (!ret)
		ret = compile_run(&job, &result, error);
	model_close(&m);
	return ret;
}

/*
 * The case dir of a directory that needs no compiler: itself, or what its param_dir names. 0: it
 * has to be compiled.
 */
static int find_case(const struct runner_options *o, char *ret_case, size_t len,
		     struct tool_error *error)
{
	const struct case_wishes wishes = {
		.tp = o->compile.tp,
		.weights = weight_mode_name(o->compile.weights),
		.kv_int8 = o->compile.kv_int8,
		.whole_experts = o->compile.expert_parallel,
	};
	struct config_facts config;
	struct case_facts facts;
	char err[480];
	int r = 0;

	if (o->config)
		return 0;
	snprintf(ret_case, len, "%s/model_info.json", o->path);
	if (!access(ret_case, F_OK)) {
		snprintf(ret_case, len, "%s", o->path);
		r = case_facts_read(ret_case, &facts, err, sizeof(err));
		r = r ? r : 1;
	} else {
		config_facts_read(o->path, &config);
		r = param_dir_find(o->path, &config, ret_case, len, &facts, err, sizeof(err));
	}
	if (r > 0 && case_facts_fit(&facts, ret_case, &wishes, err, sizeof(err)))
		r = -EINVAL;
	return r < 0 ? tool_fail(error, r, "%s", err) : r;
}

/* Whether the model has experts or an indexer, by the config.json of its directory or of its case
 * dir. */
static bool is_routed(const char *path)
{
	struct model_config config;
	bool routed = false;
	size_t bytes;
	char *text;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return false;
	if (!tool_read_file(dir, "config.json", CONFIG_MAX_BYTES, &text, &bytes, NULL)) {
		routed = !config_parse(text, bytes, &config, NULL) &&
			 (config.moe.n_experts || config.mla.index_keys);
		free(text);
	}
	close(dir);
	return routed;
}

/* The case dir that compile_into() made: two levels, known names only. */
static void remove_case(const char *dir)
{
	static const char *const entries[] = {
		"case/%s",	 "case/chip0/%s", "case/chip1/%s", "case/chip2/%s", "case/chip3/%s",
		"case/chip4/%s", "case/chip5/%s", "case/chip6/%s", "case/chip7/%s",
	};
	unsigned i;

	for (i = sizeof(entries) / sizeof(entries[0]); i-- > 0;) {
		char sub[PATH_MAX + 16];
		struct dirent *entry;
		DIR *d;

		snprintf(sub, sizeof(sub), "%s/%.*s", dir, (int)strlen(entries[i]) - 3, entries[i]);
		d = opendir(sub);
		if (!d)
			continue;
		while ((entry = readdir(d)))
			unlinkat(dirfd(d), entry->d_name, 0);
		closedir(d);
		rmdir(sub);
	}
	rmdir(dir);
}

/* The device model gets as many chips as needed unless the environment sets their number. */
static int open_context(struct runner *r, unsigned tp, struct tool_error *error)
{
	struct txda_context_options o = TXDA_INIT(struct txda_context_options);
	const char *given = getenv("TXDA_CMODEL");
	char cmodel[512];
	int ret;

	if (!given || !strstr(given, "chips=")) {
		snprintf(cmodel, sizeof(cmodel), "chips=%u%s%s", tp, given && *given ? "," : "",
			 given ? given : "");
		o.cmodel = cmodel;
	}
	o.name = "txda-verify";
	ret = txda_context_new(&o, &r->context);
	return ret < 0 ? fail_library(r, ret, "opening the device", error) : 0;
}

/* Elements of a row of an input or output, or 0 if there is none of that name. */
static unsigned row_width(struct runner *r, const char *name)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	unsigned index;

	if (txda_model_find(r->model, name, &index) < 0 ||
	    txda_model_tensor(r->model, index, &info) < 0)
		return 0;
	return (unsigned)info.dim[1];
}

/* Puts the free blocks in an order in which neighbours lie apart. */
static void scatter(struct kv *kv)
{
	unsigned n = kv_blocks(kv), step = n / 3 | 1;
	uint32_t block;

	while (kv_alloc(kv, 0, &block))
		;
	for (block = 0; block < step; block++)
		for (uint32_t b = block; b < n; b += step)
			kv_release(kv, &b, 1, false);
}

static int load_model(struct runner *r, const char *path, const struct runner_options *o,
		      struct tool_error *error)
{
	struct txda_model_options m = TXDA_INIT(struct txda_model_options);
	struct txda_group_options g = TXDA_INIT(struct txda_group_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	struct kv_layout layout = {0};
	unsigned n = o->slots;
	int ret;

	ret = open_context(r, o->compile.tp ? o->compile.tp : 1, error);
	if (ret)
		return ret;
	ret = txda_model_plan(r->context, path, &plan);
	if (ret < 0)
		return fail_library(r, ret, path, error);
	if ((unsigned)txda_context_device_count(r->context) < plan.tp && !getenv("TXDA_CMODEL")) {
		txda_context_unref(r->context);
		r->context = NULL;
		ret = open_context(r, plan.tp, error);
		if (ret)
			return ret;
	}
	g.tp = plan.tp;
	ret = txda_group_new(r->context, &g, &r->group);
	if (ret < 0)
		return fail_library(r, ret, "a group of chips", error);
	m.path = path;
	m.precise = o->precise;
	m.verify_weights = true;
	/* Blocks hold 16 tokens or more. */
	m.kv_blocks = n * ((o->context / 16 + 1) * (plan.kv_groups ? plan.kv_groups : 1) +
			   3 * plan.state_blocks);
	ret = txda_model_load(r->group, &m, &r->model);
	if (ret < 0)
		return fail_library(r, ret, path, error);
	r->info.size = sizeof(r->info);
	ret = txda_model_info(r->model, &r->info);
	if (ret < 0)
		return fail_library(r, ret, path, error);
	if (o->context > r->info.max_context)
		return tool_fail(error, -ERANGE, "%s: %u positions are needed, its limit is %u",
				 path, o->context, r->info.max_context);
	r->states = row_width(r, "states");
	r->before = row_width(r, "hidden_before");
	r->slots = n;
	layout.block_size = layout.key_words = r->info.block_size;
	layout.max_blocks = (o->context + r->info.block_size - 1) / r->info.block_size;
	layout.n_groups = r->info.kv_groups;
	layout.ahead = r->info.max_tokens;
	layout.state_blocks = r->info.state_blocks;
	memcpy(layout.reach, r->info.kv_reach, sizeof(layout.reach));
	ret = kv_new(r->info.kv_blocks, &layout, &r->kv);
	if (ret)
		return tool_fail(error, ret, "no memory for block tables");
	scatter(r->kv);
	return 0;
}

static int alloc_inputs(struct runner *r)
{
	const struct txda_model_info *i = &r->info;
	const unsigned groups = kv_layout(r->kv)->n_groups;

	r->tokens = calloc(i->max_tokens, sizeof(*r->tokens));
	r->positions = calloc(i->max_tokens, r->axes * sizeof(*r->positions));
	r->kv_slots = calloc((size_t)i->max_tokens * groups, sizeof(*r->kv_slots));
	r->seqs = calloc(r->slots, sizeof(*r->seqs));
	r->entries = calloc(r->slots, kv_seq_entries(r->kv) * sizeof(*r->entries));
	r->rows = calloc(i->max_rows, sizeof(*r->rows));
	r->spans = calloc(i->max_seqs, 2 * sizeof(*r->spans));
	r->contexts = calloc(i->max_seqs, sizeof(*r->contexts));
	r->block_table = calloc((size_t)i->max_seqs * groups * kv_layout(r->kv)->max_blocks,
				sizeof(*r->block_table));
	r->state_table = calloc(i->max_seqs, (1 + 3ul * i->state_blocks) * sizeof(*r->state_table));
	r->hidden_before = calloc((size_t)i->max_tokens * r->before + 1, sizeof(float));
	return r->hidden_before && r->tokens && r->positions && r->kv_slots && r->rows &&
			       r->spans && r->contexts && r->block_table && r->state_table &&
			       r->seqs && r->entries
		       ? 0
		       : -ENOMEM;
}

/* The second dimension of an input, 1 without; 0: there is no such input. */
static unsigned input_columns(struct runner *r, const char *name)
{
	struct txda_tensor_info info = TXDA_INIT(struct txda_tensor_info);
	unsigned index;

	if (txda_model_find(r->model, name, &index) < 0 ||
	    txda_model_tensor(r->model, index, &info) < 0)
		return 0;
	return info.ndim > 1 ? (unsigned)info.dim[1] : 1;
}

/* The additional inputs of a vision model, and its other program. */
static int open_images(struct runner *r, const char *path, bool precise, struct tool_error *error)
{
	struct txda_model_options m = TXDA_INIT(struct txda_model_options);
	size_t tokens = r->info.max_tokens;
	int ret;

	r->axes = input_columns(r, "positions");
	if (!input_columns(r, "image_rows"))
		return 0;
	r->hidden = input_columns(r, "image_embeds");
	r->deep = input_columns(r, "image_deepstack");
	r->image_rows = calloc(tokens, sizeof(*r->image_rows));
	r->image_embeds = calloc(tokens * r->hidden + 1, sizeof(*r->image_embeds));
	r->image_deepstack = calloc(tokens * r->deep + 1, sizeof(*r->image_deepstack));
	if (!r->image_rows || !r->image_embeds || !r->image_deepstack)
		return tool_fail(error, -ENOMEM, "no memory for inputs");
	ret = vision_open(path, &r->tower, &r->processor, error);
	if (ret)
		return ret;
	m.path = path;
	m.program = "vision";
	m.precise = precise;
	m.verify_weights = true;
	ret = txda_model_load(r->group, &m, &r->vision);
	return ret < 0 ? fail_library(r, ret, path, error) : 0;
}

/* Loads the case dir @path. What is loaded is in device memory. */
static int open_case(struct runner *r, const char *path, const struct runner_options *o,
		     struct tool_error *error)
{
	int e;

	r->routed = is_routed(path) || (o->path && is_routed(o->path));
	e = load_model(r, path, o, error);
	if (!e)
		e = open_images(r, path, o->precise, error);
	return e;
}

/* Makes a directory for files that do not outlive this program; @dir has PATH_MAX bytes. */
static int make_directory(char *dir, struct tool_error *error)
{
	const char *temp = getenv("TMPDIR");

	temp = temp && *temp ? temp : "/tmp";
	if (snprintf(dir, PATH_MAX, "%s/txda-verify-XXXXXX", temp) >= PATH_MAX - MAX_BELOW)
		return tool_fail(error, -ENAMETOOLONG,
				 "TMPDIR has %zu bytes, too many for the path of a temporary file",
				 strlen(temp));
	if (mkdtemp(dir))
		return 0;
	return tool_fail(error, -errno, "%s: %s", dir, strerror(errno));
}

/* Compiles, loads and removes a case dir, also if a signal ends the program meanwhile. */
static int open_compiled(struct runner *r, const struct runner_options *o, struct tool_error *error)
{
	char dir[PATH_MAX], path[PATH_MAX + 8];
	struct sigaction before[N_ENDINGS];
	int e;

	catch_signals(before);
	e = make_directory(dir, error);
	if (!e) {
		r->compiled = true;
		e = compile_into(o, dir, error);
		snprintf(path, sizeof(path), "%s/case", dir);
		if (!e && !interrupted)
			e = open_case(r, path, o, error);
		remove_case(dir);
	}
	restore_signals(before);
	if (!interrupted)
		return e;
	runner_close(r);
	raise(interrupted);
	_exit(128 + interrupted);
}

int runner_open(const struct runner_options *o, struct runner **ret, struct tool_error *error)
{
	struct runner *r = calloc(1, sizeof(*r));
	char path[4096];
	int e;

	if (!r)
		return tool_fail(error, -ENOMEM, "no memory");
	sha256_init(&r->bits);
	e = find_case(o, path, sizeof(path), error);
	if (!e)
		e = open_compiled(r, o, error);
	else if (e > 0)
		e = open_case(r, path, o, error);
	if (!e && alloc_inputs(r))
		e = tool_fail(error, -ENOMEM, "no memory for inputs");
	if (e) {
		runner_close(r);
		return e;
	}
	*ret = r;
	return 0;
}

void runner_close(struct runner *r)
{
	if (!r)
		return;
	txda_model_unref(r->vision);
	txda_model_unref(r->model);
	txda_group_unref(r->group);
	txda_context_unref(r->context);
	free(r->tokens);
	free(r->positions);
	free(r->kv_slots);
	free(r->rows);
	free(r->spans);
	free(r->contexts);
	free(r->block_table);
	free(r->state_table);
	free(r->seqs);
	free(r->entries);
	kv_free(r->kv);
	free(r->hidden_before);
	free(r->image_rows);
	free(r->image_embeds);
	free(r->image_deepstack);
	free(r);
}

/* Position and image row of token @t of the step, which is at @position of its sequence. */
static void place_token(struct runner *r, unsigned t, unsigned position)
{
	const struct runner_images *images = r->images;
	bool inside = images && position < images->n;
	unsigned a;
	int32_t row;

	for (a = 0; a < r->axes; a++)
		r->positions[t * r->axes + a] =
			inside && r->axes > 1
				? images->positions[position][a]
				: (int32_t)position + (images && r->axes > 1 ? images->delta : 0);
	if (!r->image_rows)
		return;
	row = inside ? images->rows[position] : -1;
	r->image_rows[t] = row < 0 ? -1 : (int32_t)t;
	if (row < 0)
		return;
	memcpy(r->image_embeds + (size_t)t * r->hidden, images->embeds + (size_t)row * r->hidden,
	       r->hidden * sizeof(float));
	if (r->deep)
		memcpy(r->image_deepstack + (size_t)t * r->deep,
		       images->deepstack + (size_t)row * r->deep, r->deep * sizeof(float));
}

static void fill_part(struct runner *r, const struct runner_part *p, unsigned seq, unsigned at,
		      unsigned row)
{
	const struct kv_layout *l = kv_layout(r->kv);
	const struct kv_seq *cache = &r->seqs[p->slot];
	unsigned bs = r->info.block_size, i, g;

	for (i = 0; i < p->n; i++) {
		unsigned position = p->position + i;

		r->tokens[at + i] = p->tokens[i];
		place_token(r, at + i, position);
		for (g = 0; g < l->n_groups; g++)
			r->kv_slots[g * r->info.max_tokens + at + i] =
				(int32_t)(cache->blocks[g][position / bs] * bs + position % bs);
	}
	if (r->before && p->before)
		memcpy(r->hidden_before + (size_t)at * r->before, p->before,
		       (size_t)p->n * r->before * sizeof(float));
	for (i = 0; i < p->n_rows; i++)
		r->rows[row + i] = (int32_t)(at + p->rows[i]);
	r->spans[2 * seq] = (int32_t)at;
	r->spans[2 * seq + 1] = (int32_t)p->n;
	r->contexts[seq] = (int32_t)(p->position + p->n);
	kv_seq_states(r->kv, cache, r->state_table + seq * (1 + 3 * l->state_blocks));
	for (g = 0; g < l->n_groups; g++)
		memcpy(r->block_table + ((size_t)g * r->info.max_seqs + seq) * l->max_blocks,
		       cache->blocks[g], l->max_blocks * sizeof(*r->block_table));
}

static int set_groups(struct runner *r, const struct txda_step *s)
{
	const struct kv_layout *l = kv_layout(r->kv);
	char slots[24] = "slots", table[24] = "block_table";
	int ret = 0;

	for (unsigned g = 0; g < l->n_groups && ret >= 0; g++) {
		if (g) {
			snprintf(slots, sizeof(slots), "slots_%u", g);
			snprintf(table, sizeof(table), "block_table_%u", g);
		}
		ret = txda_model_set_input(r->model, slots, r->kv_slots + g * r->info.max_tokens,
					   s->tokens * sizeof(*r->kv_slots));
		if (ret >= 0)
			ret = txda_model_set_input(
				r->model, table,
				r->block_table + (size_t)g * r->info.max_seqs * l->max_blocks,
				(size_t)s->seqs * s->blocks * sizeof(*r->block_table));
	}
	if (ret >= 0 && l->state_blocks)
		ret = txda_model_set_input(r->model, "state_table", r->state_table,
					   s->seqs * (1 + 3ul * l->state_blocks) *
						   sizeof(*r->state_table));
	return ret;
}

static int set_inputs(struct runner *r, const struct txda_step *s)
{
	const struct {
		const char *name;
		const void *data;
		size_t n;
	} inputs[] = {
		{"tokens", r->tokens, s->tokens},
		{"positions", r->positions, (size_t)s->tokens * r->axes},
		{"spans", r->spans, 2 * (size_t)s->seqs},
		{"context", r->contexts, s->seqs},
		{"rows", r->rows, s->rows},
		{"hidden_before", r->hidden_before, (size_t)s->tokens * r->before},
		{"image_rows", r->image_rows, r->image_rows ? s->tokens : 0},
		{"image_embeds", r->image_embeds, (size_t)s->tokens * r->hidden},
		{"image_deepstack", r->image_deepstack, (size_t)s->tokens * r->deep},
	};
	unsigned i;
	int ret;

	for (i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		ret = inputs[i].n ? txda_model_set_input(r->model, inputs[i].name, inputs[i].data,
							 inputs[i].n * 4)
				  : 0;
		if (ret < 0)
			return ret;
	}
	return set_groups(r, s);
}

static int launch(struct runner *r, const struct txda_step *step, struct tool_error *error)
{
	uint64_t fence;
	int ret;

	ret = set_inputs(r, step);
	if (ret >= 0)
		ret = txda_model_run(r->model, step, &fence);
	if (ret < 0)
		return fail_library(r, ret, "launch", error);
	ret = txda_model_sync(r->model, fence, clock_ns() + STEP_SECONDS * 1000000000ull);
	return ret < 0 ? fail_library(r, ret, "step", error) : 0;
}

/* Rows come back in the order of the parts. */
static int get_outputs(struct runner *r, const struct runner_part *parts, unsigned n, unsigned rows,
		       struct tool_error *error)
{
	const size_t v = r->info.vocab;
	float *all = malloc((rows * v + rows) * sizeof(*all)), *lse = all ? all + rows * v : NULL;
	unsigned i, at = 0;
	int ret = -ENOMEM;

	if (all)
		ret = txda_model_get_output(r->model, "logits", all, rows * v * sizeof(*all));
	if (ret >= 0)
		ret = txda_model_get_output(r->model, "lse", lse, rows * sizeof(*lse));
	if (ret >= 0) {
		sha256_update(&r->bits, all, (rows * v + rows) * sizeof(*all));
		r->n_logits += rows * v;
	}
	for (i = 0; i < n && ret >= 0; i++) {
		memcpy(parts[i].logits, all + at * v, parts[i].n_rows * v * sizeof(*all));
		if (parts[i].lse)
			memcpy(parts[i].lse, lse + at, parts[i].n_rows * sizeof(*lse));
		at += parts[i].n_rows;
	}
	free(all);
	return ret < 0 ? fail_library(r, ret, "logits", error) : 0;
}

/* An output with a row of @width words for each token of the step: "keys" or "states". */
static int get_rows(struct runner *r, const char *name, unsigned width,
		    const struct runner_part *parts, unsigned n, unsigned tokens,
		    struct tool_error *error)
{
	const bool keys = !strcmp(name, "keys");
	uint32_t *all = malloc((size_t)tokens * width * sizeof(*all)), *at = all;
	int ret = -ENOMEM;
	unsigned i;

	if (all)
		ret = txda_model_get_output(r->model, name, all,
					    (uint64_t)tokens * width * sizeof(*all));
	for (i = 0; i < n && ret >= 0; i++) {
		void *to = keys ? (void *)parts[i].keys : (void *)parts[i].states;
		size_t count = (size_t)parts[i].n * width;

		if (to)
			memcpy(to, at, count * sizeof(*at));
		at += count;
	}
	free(all);
	return ret < 0 ? fail_library(r, ret, name, error) : 0;
}

/* Makes room for a part, anew if it is a sequence's first; false: there is none. */
static bool place_part(struct runner *r, const struct runner_part *p)
{
	struct kv_seq *seq = &r->seqs[p->slot];

	if (!p->position) {
		kv_seq_drop(r->kv, seq, false);
		kv_seq_init(r->kv, seq, r->entries + p->slot * kv_seq_entries(r->kv));
	}
	if (!seq->blocks[0] || !kv_seq_grow(r->kv, seq, p->position + p->n))
		return false;
	kv_seq_plan(r->kv, seq, p->position, p->position + p->n, 0);
	return true;
}

/* The part is in the cache. Nobody looks for it there: each block has an owner of its own. */
static void pass_part(struct runner *r, const struct runner_part *p)
{
	static const int32_t tokens[1024];
	struct kv_seq *seq = &r->seqs[p->slot];

	while ((seq->n_committed + 1) * r->info.block_size <= p->position + p->n)
		kv_seq_commit(r->kv, seq, ++r->n_committed, tokens, false);
	kv_seq_moved(seq);
}

int runner_step(struct runner *r, const struct runner_part *parts, unsigned n,
		struct tool_error *error)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	unsigned i;
	int ret;

	for (i = 0; i < n; i++) {
		const struct runner_part *p = &parts[i];

		if (i >= r->info.max_seqs || p->n > r->info.max_tokens - step.tokens ||
		    p->n_rows > r->info.max_rows - step.rows || p->slot >= r->slots ||
		    p->position + p->n > kv_layout(r->kv)->max_blocks * r->info.block_size ||
		    !place_part(r, p))
			return tool_fail(
				error, -E2BIG,
				"a step of %u tokens and %u rows for sequence %u is too much", p->n,
				p->n_rows, i);
		fill_part(r, p, i, step.tokens, step.rows);
		step.tokens += p->n;
		step.rows += p->n_rows;
	}
	step.seqs = n;
	step.blocks = kv_layout(r->kv)->max_blocks;
	step.flags = TXDA_SUBMIT_WAIT_SOON;
	ret = launch(r, &step, error);
	for (i = 0; i < n && !ret; i++)
		pass_part(r, &parts[i]);
	if (!ret && r->keys)
		ret = get_rows(r, "keys", r->keys, parts, n, step.tokens, error);
	if (!ret && r->states)
		ret = get_rows(r, "states", r->states, parts, n, step.tokens, error);
	return ret || !step.rows ? ret : get_outputs(r, parts, n, step.rows, error);
}

int runner_sequence(struct runner *r, const struct runner_part *part, unsigned chunk,
		    struct tool_error *error)
{
	unsigned done = 0, row = 0, i;
	unsigned *rows = calloc(part->n_rows + 1, sizeof(*rows));
	int ret = 0;

	if (!rows)
		return tool_fail(error, -ENOMEM, "no memory");
	if (!chunk || chunk > r->info.max_tokens)
		chunk = r->info.max_tokens;
	while (done < part->n && !ret) {
		struct runner_part p = *part;

		p.tokens = part->tokens + done;
		p.n = part->n - done < chunk ? part->n - done : chunk;
		p.position = part->position + done;
		/* Rows rise: those of this piece, as many as a step takes. */
		p.rows = rows;
		p.logits = part->logits ? part->logits + (size_t)row * r->info.vocab : NULL;
		p.lse = part->lse ? part->lse + row : NULL;
		p.states = part->states ? part->states + (size_t)done * r->states : NULL;
		p.before = part->before ? part->before + (size_t)done * r->before : NULL;
		p.keys = part->keys ? part->keys + (size_t)done * r->keys : NULL;
		for (i = 0; row + i < part->n_rows && part->rows[row + i] < done + p.n; i++) {
			if (i == r->info.max_rows) {
				p.n = part->rows[row + i] - done;
				break;
			}
			rows[i] = part->rows[row + i] - done;
		}
		p.n_rows = i;
		ret = runner_step(r, &p, 1, error);
		done += p.n;
		row += p.n_rows;
	}
	free(rows);
	return ret;
}

unsigned runner_argmax(const float *logits, unsigned n)
{
	unsigned best = 0, i;

	for (i = 1; i < n; i++) {
		if (logits[i] > logits[best])
			best = i;
	}
	return best;
}
