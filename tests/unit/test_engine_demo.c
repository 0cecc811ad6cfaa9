// SPDX-License-Identifier: MIT
/*
 * The engine on the demo model, through all real layers: compiled by txda-compile ($TXDA_COMPILE),
 * run by the device model. argv[1], argv[2]: the model's and its draft's directories; argv[3]: the
 * golden fixtures; argv[4], argv[5]: a Python interpreter and v3_checkpoint.py for it.
 */
#include <errno.h>
#include <poll.h>

#include <txda.h>

#include "test_dir.h"
#include "cache.h"
#include "cache_room.h"
#include "engine.h"

#define REQUESTS 24

/* One core: two would wait for each other while other tests have the processors. */
#define CHIPS "chips=2,mem=2G,cores=1"

static const char *model_dir, *draft_dir, *fixtures_dir, *python, *v3_checkpoint;
static int vocab = 4096;

struct daemon {
	struct txda_context *context;
	struct txda_group *group;
	struct engine *engine;
};

/* Compiles into the test's cache, unless it is there. */
static void compile(const char *path, unsigned tp, const char *output, char *case_dir, size_t len)
{
	const struct cache_source source = {
		.compiler = getenv("TXDA_COMPILE"), .path = path, .tp = tp, .output = output};
	static const atomic_bool never;
	const struct child_options child = {.seconds = 600, .stop = &never};
	char cache[256], err[512] = "";
	struct cache_use *use = NULL;

	assert_int_equal(cache_find(at("cache"), cache, sizeof(cache), err, sizeof(err)), 0);
	if (cache_get(cache, &source, false, &child, case_dir, len, &use, err, sizeof(err)))
		fail_msg("%s", err);
	cache_release(use);
}

static struct txda_context *open_context(const char *cmodel)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;

	options.backend = "cmodel";
	options.cmodel = cmodel;
	assert_int_equal(txda_context_new(&options, &context), 0);
	return context;
}

/* Loads the model onto the chips from @first on; what engine_new() says. */
static int try_engine(struct daemon *d, unsigned first, unsigned tp,
		      const struct engine_options *options, char *err, size_t errlen)
{
	bool mtp = !strcmp(draft_dir, "mtp"),
	     drafts = options->speculation == ENGINE_SPECULATE_MODEL;
	struct txda_group_options group = TXDA_INIT(struct txda_group_options);
	const unsigned devices[] = {first, first + 1};
	struct engine_options o = *options;
	char case_dir[512], draft[512];

	group.tp = tp;
	group.devices = devices;
	assert_int_equal(txda_group_new(d->context, &group, &d->group), 0);
	compile(model_dir, tp, mtp && drafts ? "--states" : NULL, case_dir, sizeof(case_dir));
	o.case_dir = case_dir;
	o.context = d->context;
	if (drafts) {
		compile(mtp ? model_dir : draft_dir, tp, mtp ? "--mtp" : NULL, draft,
			sizeof(draft));
		o.draft_case_dir = draft;
	}
	if (!o.max_kv_blocks)
		o.max_kv_blocks = 2000;
	return engine_new(d->group, &o, &d->engine, err, errlen);
}

static void open_engine(struct daemon *d, unsigned first, unsigned tp,
			const struct engine_options *options)
{
	char err[512] = "";

	if (try_engine(d, first, tp, options, err, sizeof(err)))
		fail_msg("%s", err);
}

static void open_daemon(struct daemon *d, unsigned tp, const struct engine_options *options)
{
	d->context = open_context(CHIPS);
	open_engine(d, 0, tp, options);
}

static void close_engine(struct daemon *d)
{
	engine_free(d->engine);
	txda_group_unref(d->group);
}

static void close_daemon(struct daemon *d)
{
	struct engine_stats stats;

	for (unsigned i = 0; i < 1000; i++) {
		engine_stats(d->engine, &stats);
		if (stats.kv_usage == 0)
			break;
		usleep(1000);
	}
	assert_true(stats.kv_usage == 0);
	if (stats.draft_tokens)
		printf("%llu of %llu proposals stood\n", (unsigned long long)stats.accepted_tokens,
		       (unsigned long long)stats.draft_tokens);
	printf("%llu steps, %.1f us on the chip and %.1f us between them, %llu preemptions, %llu "
	       "cached tokens\n",
	       (unsigned long long)stats.steps, (double)stats.step_ns / 1e3 / (double)stats.steps,
	       (double)stats.host_ns / 1e3 / (double)stats.steps,
	       (unsigned long long)stats.preemptions, (unsigned long long)stats.prefix_hits);
	close_engine(d);
	txda_context_unref(d->context);
}

static struct engine_request *requests[REQUESTS], *reference[REQUESTS];

/* The same requests each time: shared beginnings, greedy and sampled, some with the prompt's
 * logprobs. */
static void make_requests(struct engine_request **r)
{
	int32_t prompt[200];
	unsigned n = 0;

	srand(17);
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct engine_sampling s = {
			.temperature = i % 3 ? 0 : 0.8f,
			.top_p = i % 2 ? 1 : 0.95f,
			.seed = i,
			.logprobs = 3,
			.max_tokens = 40,
			.ignore_eos = true,
		};
		unsigned shared = i % 4 ? 70 : 0;

		/* Every second one asks for what the one before it does. */
		if (i % 2 == 0)
			n = 1 + (unsigned)rand() % 150;
		for (unsigned j = 0; i % 2 == 0 && j < n; j++)
			prompt[j] = j < shared ? (int32_t)j * 37 % vocab : rand() % vocab;
		assert_int_equal(engine_request_new(prompt, n, &s, i % 6 == 0, &r[i]), 0);
	}
}

static void wait_all(struct engine *e, struct engine_request **r, unsigned n)
{
	struct pollfd fd = {.fd = engine_ready_fd(e), .events = POLLIN};
	unsigned done = 0;

	while (done < n) {
		assert_int_equal(poll(&fd, 1, 60000), 1);
		for (struct engine_request *news = engine_take_ready(e), *next; news; news = next) {
			next = news->ready_next;
			engine_request_unref(news);
		}
		for (done = 0; done < n && atomic_load(&r[done]->finish); done++)
			;
	}
}

static void submit(struct engine *e, struct engine_request *r)
{
	char err[256] = "";

	if (engine_submit(e, r, err, sizeof(err)))
		fail_msg("%s", err);
}

static void submit_all(struct engine *e, struct engine_request **r)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		submit(e, r[i]);
}

static void unref_all(struct engine_request **r)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		engine_request_unref(r[i]);
}

static void compare(const char *what)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		const struct engine_request *a = requests[i], *b = reference[i];

		if (atomic_load(&a->finish) == ENGINE_FINISH_ERROR)
			fail_msg("%s: request %u: %s", what, i, a->error_text);
		assert_int_equal(atomic_load(&a->finish), ENGINE_FINISH_LENGTH);
		assert_memory_equal(a->tokens, b->tokens, 40 * sizeof(int32_t));
		assert_memory_equal(a->logprobs, b->logprobs, 40 * sizeof(*a->logprobs));
		assert_memory_equal(a->top, b->top, 120 * sizeof(*a->top));
		if (a->prompt_lp)
			assert_memory_equal(a->prompt_lp + 1, b->prompt_lp + 1,
					    (a->n_prompt - 1) * sizeof(float));
	}
}

/* Bit for bit the same alone, in a crowd, in chunks of any size, from the prefix cache and after
 * preemptions, when there are @few blocks. */
static void same_bits(unsigned tp, unsigned few)
{
	static const unsigned chunks[] = {1, 7, 64, 0, 64};
	struct engine_stats stats;
	struct daemon d;

	open_daemon(&d, tp, &(struct engine_options){.max_num_seqs = 1});
	make_requests(reference);
	for (unsigned i = 0; i < REQUESTS; i++) {
		submit(d.engine, reference[i]);
		wait_all(d.engine, &reference[i], 1);
		if (atomic_load(&reference[i]->finish) != ENGINE_FINISH_LENGTH)
			fail_msg("request %u: %s", i, reference[i]->error_text);
	}
	close_daemon(&d);
	for (unsigned run = 0; run < 5; run++) {
		struct engine_options options = {
			.max_num_batched_tokens = chunks[run],
			.prefix_caching = run > 1,
			.max_kv_blocks = run == 4 ? few : 0,
			.max_num_seqs = 16,
		};

		open_daemon(&d, tp, &options);
		make_requests(requests);
		/* In half of the pairs one goes on from the other's prompt. */
		for (unsigned i = 0; i < REQUESTS; i += 4)
			requests[i]->forks = requests[i + 1];
		for (unsigned i = 0; i < REQUESTS; i++)
			if (i % 4 != 1)
				submit(d.engine, requests[i]);
		wait_all(d.engine, requests, REQUESTS);
		compare("crowd");
		engine_stats(d.engine, &stats);
		/* One step may have all that begin alike, but for small ones. */
		assert_true((run != 2 && run != 4) || stats.prefix_hits > 0);
		assert_true(run < 4 || stats.preemptions > 0);
		unref_all(requests);
		close_daemon(&d);
	}
	unref_all(reference);
}

TEST(same_bits_on_one_chip)
{
	same_bits(1, 20);
}

TEST(same_bits_on_two_chips)
{
	same_bits(2, 20);
}

/* The other families, of which some keep more than keys and values: states, an indexer's keys, windows
 * in groups of their own. */
TEST(same_bits_of_families)
{
	static const struct {
		const char *name;
		unsigned few; /* blocks, of which the longest request needs nearly all */
	} families[] = {
		{"deepseek3", 20}, {"deepseek32", 20},	{"gemma2", 24},
		{"gemma3", 60},	   {"gptoss", 24},	{"qwen35", 28},
		{"qwen3next", 28}, {"glm4moe-mtp", 20}, {"qwen3moe", 20},
	};
	const char *model = model_dir;
	char dir[512];

	vocab = 500;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		printf("%s\n", families[i].name);
		snprintf(dir, sizeof(dir), "%s/%s", fixtures_dir, families[i].name);
		model_dir = dir;
		same_bits(1, families[i].few);
	}
	model_dir = model;
	vocab = 4096;
}

/* A proposal that is not kept would stay in a state. */
TEST(no_speculation_with_states)
{
	const struct engine_options options = {.speculation = ENGINE_SPECULATE_NGRAM};
	const char *model = model_dir;
	struct daemon d = {.context = open_context(CHIPS)};
	char dir[512], err[512] = "";

	snprintf(dir, sizeof(dir), "%s/qwen3next", fixtures_dir);
	model_dir = dir;
	assert_int_equal(try_engine(&d, 0, 1, &options, err, sizeof(err)), -EINVAL);
	assert_says(err, "state");
	txda_group_unref(d.group);
	txda_context_unref(d.context);
	model_dir = model;
}

/*
 * Speculation changes no bit of any result, whatever proposes, in a crowd, in small chunks and when
 * KV blocks run out; and proposals do stand.
 */
static void speculate(unsigned tp, size_t n_runs)
{
	static const struct engine_options runs[] = {
		{.speculation = ENGINE_SPECULATE_NGRAM, .ngram_min = 1, .speculative_max_seqs = 64},
		{.speculation = ENGINE_SPECULATE_MODEL,
		 .speculative_tokens = 16,
		 .speculative_max_seqs = 64,
		 .max_num_batched_tokens = 64,
		 .prefix_caching = true},
		{.speculation = ENGINE_SPECULATE_MODEL, .max_num_seqs = 1, .prefix_caching = true},
		{.speculation = ENGINE_SPECULATE_MODEL,
		 .speculative_tokens = 3,
		 .speculative_max_seqs = 5,
		 .max_num_seqs = 7},
		{.speculation = ENGINE_SPECULATE_MODEL,
		 .speculative_max_seqs = 64,
		 .max_kv_blocks = 20,
		 .prefix_caching = true},
	};
	struct engine_stats stats;
	struct daemon d;

	open_daemon(&d, tp, &(struct engine_options){.max_num_seqs = 1});
	make_requests(reference);
	submit_all(d.engine, reference);
	wait_all(d.engine, reference, REQUESTS);
	close_daemon(&d);
	for (size_t run = 0; run < n_runs; run++) {
		open_daemon(&d, tp, &runs[run]);
		make_requests(requests);
		submit_all(d.engine, requests);
		wait_all(d.engine, requests, REQUESTS);
		compare("speculation");
		engine_stats(d.engine, &stats);
		assert_true(stats.accepted_tokens > 0);
		assert_true(stats.accepted_tokens <= stats.draft_tokens);
		assert_int_equal(stats.generation_tokens, 40 * REQUESTS);
		unref_all(requests);
		close_daemon(&d);
	}
	unref_all(reference);
}

TEST(speculation_changes_no_bit)
{
	speculate(1, 5);
}

TEST(speculation_on_two_chips)
{
	speculate(2, 2);
}

/* The same with a model that has a layer for it, made from the fixture @name. */
static void own_layer(const char *name)
{
	const char *model = model_dir, *draft = draft_dir;
	char dir[128], command[1024];

	strcpy(dir, at(name));
	snprintf(command, sizeof(command), "'%s' '%s' '%s/%s' %s", python, v3_checkpoint,
		 fixtures_dir, name, dir);
	assert_int_equal(system(command), 0);
	model_dir = dir;
	draft_dir = "mtp";
	vocab = 512;
	speculate(1, 5);
	speculate(2, 2);
	model_dir = model;
	draft_dir = draft;
	vocab = 4096;
}

TEST(the_own_layer_speculates)
{
	own_layer("deepseek3");
}

TEST(the_layer_of_glm_speculates)
{
	own_layer("glm4moe-mtp");
}

/*
 * A chip that fails ends the requests on it with its words; those on the other chip do not notice,
 * and the model runs on the chip that is left, beside the other.
 */
static void fails_alone(const char *cmodel, const char *words)
{
	/* small steps: under a sanitizer a full one takes longer */
	const struct engine_options options = {.step_seconds = 4, .max_num_batched_tokens = 64};
	struct txda_context *context = open_context(cmodel);
	struct daemon bad = {.context = context}, good = bad, again = bad;
	struct engine_stats stats;

	open_engine(&bad, 0, 1, &options);
	open_engine(&good, 1, 1, &options);
	make_requests(requests);
	make_requests(reference);
	submit_all(bad.engine, requests);
	submit_all(good.engine, reference);
	wait_all(bad.engine, requests, REQUESTS);
	wait_all(good.engine, reference, REQUESTS);
	for (unsigned i = 0; i < REQUESTS; i++) {
		assert_int_equal(atomic_load(&reference[i]->finish), ENGINE_FINISH_LENGTH);
		assert_int_equal(atomic_load(&requests[i]->finish), ENGINE_FINISH_ERROR);
		assert_says(requests[i]->error_text, words);
		engine_request_unref(requests[i]);
	}
	engine_stats(bad.engine, &stats);
	assert_true(stats.lost);
	close_engine(&bad);
	open_engine(&again, 1, 1, &options);
	make_requests(requests);
	submit_all(again.engine, requests);
	wait_all(again.engine, requests, REQUESTS);
	compare("after the loss");
	unref_all(requests);
	unref_all(reference);
	close_engine(&again);
	close_engine(&good);
	txda_context_unref(context);
}

TEST(a_lost_chip)
{
	fails_alone(CHIPS ",faults=lost:chip=0:after=500", "lost");
}

TEST(a_faulting_op)
{
	fails_alone(CHIPS ",faults=page:chip=0:after=500", "page");
}

TEST(a_hung_chip)
{
	fails_alone(CHIPS ",faults=hang:chip=0:after=500", "did not end");
}

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr,
			"usage: %s MODEL_DIR DRAFT_DIR FIXTURES_DIR PYTHON V3_CHECKPOINT [TEST]\n",
			argv[0]);
		return 2;
	}
	model_dir = argv[1];
	draft_dir = argv[2];
	fixtures_dir = argv[3];
	python = argv[4];
	v3_checkpoint = argv[5];
	choose_unit_tests(argc > 6 ? argv[6] : NULL);
	return run_unit_group(argv[0], test_dir_make, test_dir_remove);
}
