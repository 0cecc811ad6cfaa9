// SPDX-License-Identifier: MIT
/*
 * A model's text process from the daemon's side: the real one (TXDAD_TEXT), whatever happens to it,
 * and one that lies (FAKE_TEXT).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "test_dir.h"
#include "clock.h"
#include "log.h"
#include "priority.h"
#include "text_process.h"
#include "tokenizer.h"

static char demo[512];
static struct text_caller anybody; /* never gone, no deadline */

static struct text_process *begin(const char *program, const char *dir, unsigned seconds)
{
	const struct text_process_options options = {
		.program = program, .seconds = seconds, .memory = 4ull << 30};
	struct text_process *p = NULL;
	struct text_loaded *l;
	char err[512];

	if (text_process_start(dir, &options, &p, &l, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(l->error, 0);
	free(l);
	return p;
}

static int encode(struct text_process *p, const char *text, const struct text_caller *caller,
		  struct text_done **ret)
{
	const struct text_bytes parts[TEXT_JOB_PARTS] = {{text, strlen(text)}};
	struct text_job job = {.kind = TEXT_JOB_ENCODE, .max_ids = 64};
	char err[512] = "";

	*ret = NULL;
	return text_process_call(p, &job, parts, 64 * sizeof(int32_t), caller, ret, err,
				 sizeof(err));
}

static void works(struct text_process *p)
{
	struct text_done *done;

	assert_int_equal(encode(p, "Once upon a time", &anybody, &done), 0);
	assert_int_equal(done->error, 0);
	free(done);
}

/* ---- children -------------------------------------------------------------------------------- */

/* The children of @parent, up to @max. */
static unsigned children(pid_t parent, pid_t *ret, unsigned max)
{
	char path[64], line[4096];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f))
		for (char *at = strtok(line, " \n"); at && n < max; at = strtok(NULL, " \n"))
			ret[n++] = (pid_t)strtol(at, NULL, 10);
	if (f)
		fclose(f);
	return n;
}

/* The process itself, this one's only child when those of earlier tests are reaped. */
static pid_t process_of(void)
{
	pid_t pids[8];

	AWAIT(children(getpid(), pids, 8) == 1);
	return pids[0];
}

static void await_lanes(pid_t process, pid_t *lanes)
{
	AWAIT(children(process, lanes, TEXT_LANES_READY + 1) == TEXT_LANES_READY);
}

static void signal_lanes(const pid_t *lanes, int signal)
{
	for (unsigned i = 0; i < TEXT_LANES_READY; i++)
		kill(lanes[i], signal);
}

static void await_end(pid_t pid)
{
	AWAIT(kill(pid, 0) && errno == ESRCH);
}

/* Whether no thread of it runs, which may be so before its parent has heard of that. */
static bool has_ended(pid_t pid)
{
	char path[64], line[512], state;
	const char *at;
	long threads;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	at = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	if (!at)
		return true;
	/* The first thread waits as a zombie for the others, which hold the descriptors until then. */
	assert_int_equal(sscanf(at,
				") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
				"%*s %ld",
				&state, &threads),
			 2);
	return state == 'Z' && threads <= 1;
}

/* ---- the real one ---------------------------------------------------------------------------- */

/* It gives the tokens that the tokeniser gives here. */
TEST(test_same)
{
	static const char text[] = "Once upon a time there was a \xC3\xA9 fox.";
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 60);
	struct txda_tokenizer *tok;
	struct text_done *done;
	char err[256];
	uint32_t *ids;
	size_t n;

	assert_int_equal(txda_tokenizer_load(demo, &tok, err, sizeof(err)), 0);
	assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n), 0);
	assert_int_equal(encode(p, text, &anybody, &done), 0);
	assert_int_equal(done->error, 0);
	assert_int_equal(done->n, n);
	assert_int_equal(done->part.length, n * sizeof(*ids));
	assert_memory_equal((char *)done + done->part.offset, ids, n * sizeof(*ids));
	free(done);
	free(ids);
	txda_tokenizer_free(tok);
	/* What does not fit the answer is counted. */
	{
		char *many = malloc(100001);

		memset(many, 'a', 100000);
		many[100000] = '\0';
		assert_int_equal(encode(p, many, &anybody, &done), 0);
		assert_true(done->n > 64);
		assert_int_equal(done->part.length, 0);
		free(done);
		free(many);
	}
	assert_int_equal(encode(p, "\xFF", &anybody, &done), 0);
	assert_int_equal(done->error, -EILSEQ);
	free(done);
	text_process_free(p);
}

struct call {
	struct text_process *p;
	struct text_caller caller;
	int result;
};

static _Thread_local bool called; /* this thread waits for its job at most */
static atomic_uint n_waiting;

/* The build lets the text process call this for poll(): a job that waits has its lane. */
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (called && ms) {
		called = false;
		atomic_fetch_add(&n_waiting, 1);
	}
	return __real_poll(fds, n, ms);
}

static void *call(void *arg)
{
	struct call *c = arg;
	struct text_done *done;

	called = true;
	c->result = encode(c->p, "Once", &c->caller, &done);
	free(done);
	return NULL;
}

/* Lanes that were stopped, so that their jobs never end. */
TEST(test_given_up)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	pid_t process = process_of(), lanes[TEXT_LANES_READY + 1];
	struct call gone = {.p = p}, killed = {.p = p}, late = {.p = p};
	pthread_t thread;

	await_lanes(process, lanes);
	works(p);
	/* A deadline. */
	signal_lanes(lanes, SIGSTOP);
	late.caller.deadline_ns = clock_ns() + 50000000;
	call(&late);
	assert_int_equal(late.result, -ETIMEDOUT);
	/* The lane that had the job is another one now, and it works. */
	works(p);
	await_lanes(process, lanes);
	/* Who waited has gone. */
	signal_lanes(lanes, SIGSTOP);
	assert_int_equal(pthread_create(&thread, NULL, call, &gone), 0);
	atomic_store(&gone.caller.gone, true);
	pthread_join(thread, NULL);
	assert_int_equal(gone.result, -ECANCELED);
	works(p);
	/* Somebody kills the lanes. */
	await_lanes(process, lanes);
	signal_lanes(lanes, SIGSTOP);
	assert_int_equal(pthread_create(&thread, NULL, call, &killed), 0);
	signal_lanes(lanes, SIGKILL);
	pthread_join(thread, NULL);
	/* The job came before or after that. */
	assert_true(killed.result == -EPIPE || !killed.result);
	works(p);
	text_process_free(p);
	await_end(process);
}

/* The process itself ends: another one is started, and the lanes of the first end with it. */
TEST(test_process_ends)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	pid_t process = process_of(), lanes[TEXT_LANES_READY + 1];

	await_lanes(process, lanes);
	works(p);
	kill(process, SIGKILL);
	for (unsigned i = 0; i < TEXT_LANES_READY; i++)
		await_end(lanes[i]);
	works(p);
	assert_int_not_equal(process_of(), process);
	process = process_of();
	/* SIGTERM is nothing to it. */
	kill(process, SIGTERM);
	works(p);
	assert_int_equal(process_of(), process);
	text_process_free(p);
	await_end(process);
}

static int oom_score(pid_t pid)
{
	char path[64];
	int score = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &score), 1);
	fclose(f);
	return score;
}

/* Without memory they go first, not the daemon. */
TEST(test_expendable)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	pid_t process = process_of(), lanes[TEXT_LANES_READY + 1];

	await_lanes(process, lanes);
	assert_true(oom_score(process) > oom_score(getpid()));
	assert_true(oom_score(lanes[0]) > oom_score(getpid()));
	text_process_free(p);
}

/* One that does not keep up with orders of lanes is not replaced: jobs run in its lanes. */
TEST(test_behind)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	struct text_caller gone = {.gone = true};
	pid_t process = process_of();
	struct text_done *done;
	unsigned refused = 0;

	works(p);
	kill(process, SIGSTOP);
	/* Each of them costs a lane; the next one has to be ordered. */
	for (unsigned i = 0; i < 5000 && !refused; i++) {
		refused += encode(p, "Once", &gone, &done) == -EIO;
		/* A lane may answer before the caller is found to be gone. */
		free(done);
	}
	assert_int_equal(refused, 1);
	kill(process, SIGCONT);
	while (encode(p, "Once", &anybody, &done))
		;
	free(done);
	works(p);
	assert_int_equal(process_of(), process);
	text_process_free(p);
}

/* Lanes whose priority is not the test's own; it may itself have a low one. */
static unsigned lowered(pid_t process)
{
	pid_t lanes[TEXT_LANES];
	unsigned n = 0, n_lanes = children(process, lanes, TEXT_LANES);

	for (unsigned i = 0; i < n_lanes; i++)
		n += getpriority(PRIO_PROCESS, (id_t)lanes[i]) != getpriority(PRIO_PROCESS, 0);
	return n;
}

/* Jobs of a user who has used much have a low priority, from their begin or later; others' do not. */
TEST(test_low)
{
	struct text_caller always = {.low_ns = 1};
	struct text_process *p;
	pid_t process, lanes[TEXT_LANES];
	struct call later = {.caller = {.low_ns = 1}};
	struct text_done *done;
	pthread_t thread;

	if (getpriority(PRIO_PROCESS, 0) >= PRIORITY_LOW || !priority_works())
		skip();
	p = later.p = begin(getenv("TXDAD_TEXT"), demo, 600);
	process = process_of();
	works(p);
	assert_int_equal(lowered(process), 0);
	assert_int_equal(encode(p, "Once", &always, &done), 0);
	free(done);
	assert_int_equal(lowered(process), 1);
	/* A further lane, which serves such jobs again, and only those. */
	assert_int_equal(children(process, lanes, TEXT_LANES), TEXT_LANES_READY + 1);
	assert_int_equal(encode(p, "Once", &always, &done), 0);
	free(done);
	works(p);
	assert_int_equal(lowered(process), 1);
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)process), getpriority(PRIO_PROCESS, 0));
	text_process_free(p);
	await_end(process);
	/* A job whose time comes while it runs: here it is held until then. */
	p = later.p = begin(getenv("TXDAD_TEXT"), demo, 600);
	process = process_of();
	works(p);
	await_lanes(process, lanes);
	signal_lanes(lanes, SIGSTOP);
	later.caller.low_ns = clock_ns() + 50000000;
	assert_int_equal(pthread_create(&thread, NULL, call, &later), 0);
	AWAIT(lowered(process) == 1);
	signal_lanes(lanes, SIGCONT);
	pthread_join(thread, NULL);
	assert_int_equal(later.result, 0);
	text_process_free(p);
	await_end(process);
}

/* With all lanes low, other users get one that is started anew. */
TEST(test_low_is_not_shared)
{
	struct call held[TEXT_LANES];
	pid_t process, lanes[TEXT_LANES + 1];
	struct text_done *done;
	struct text_process *p;
	pthread_t threads[TEXT_LANES];
	unsigned n = 0;

	if (getpriority(PRIO_PROCESS, 0) >= PRIORITY_LOW || !priority_works())
		skip();
	p = begin(getenv("TXDAD_TEXT"), demo, 600);
	process = process_of();
	works(p);
	/* While the process is stopped no lane starts, so that each job has one of its own. */
	await_lanes(process, lanes);
	signal_lanes(lanes, SIGSTOP);
	kill(process, SIGSTOP);
	atomic_store(&n_waiting, 0);
	for (unsigned i = 0; i < TEXT_LANES; i++) {
		held[i] = (struct call){.p = p, .caller = {.low_ns = 1}};
		assert_int_equal(pthread_create(&threads[i], NULL, call, &held[i]), 0);
	}
	/* There is none for another caller, who would take that of a job that comes late. */
	AWAIT(atomic_load(&n_waiting) == TEXT_LANES);
	assert_int_equal(encode(p, "Once", &anybody, &done), -EIO);
	kill(process, SIGCONT);
	signal_lanes(lanes, SIGCONT);
	for (unsigned i = 0; i < TEXT_LANES; i++) {
		pthread_join(threads[i], NULL);
		n += !held[i].result;
	}
	assert_int_equal(n, TEXT_LANES);
	assert_int_equal(children(process, lanes, TEXT_LANES + 1), TEXT_LANES);
	for (unsigned i = 0; i < TEXT_LANES; i++)
		assert_int_equal(getpriority(PRIO_PROCESS, (id_t)lanes[i]), PRIORITY_LOW);
	works(p);
	assert_int_equal(children(process, lanes, TEXT_LANES + 1), TEXT_LANES);
	n = 0;
	for (unsigned i = 0; i < TEXT_LANES; i++)
		n += getpriority(PRIO_PROCESS, (id_t)lanes[i]) == PRIORITY_LOW;
	assert_int_equal(n, TEXT_LANES - 1);
	text_process_free(p);
	await_end(process);
}

/* Another process must have read the same, templates too. */
TEST_WITH(test_changed, test_dir_make, test_dir_remove)
{
	const char *template = "chat_template.jinja";
	char target[600];
	pid_t process, lanes[TEXT_LANES_READY + 1];
	struct text_process *p;
	struct text_done *done;

	snprintf(target, sizeof(target), "%s/tokenizer.json", demo);
	assert_int_equal(symlink(target, at("tokenizer.json")), 0);
	put(template, "{{ 'one' }}", 0644);
	p = begin(getenv("TXDAD_TEXT"), test_dir, 600);
	for (unsigned i = 0; i < 2; i++) {
		process = process_of();
		await_lanes(process, lanes);
		put(template, i ? "{{ 'two' }}" : "{{ 'one' }}", 0644);
		kill(process, SIGKILL);
		for (unsigned k = 0; k < TEXT_LANES_READY; k++)
			await_end(lanes[k]);
		if (!i)
			works(p);
	}
	assert_int_equal(encode(p, "Once", &anybody, &done), -EIO);
	/* As it was. */
	put(template, "{{ 'one' }}", 0644);
	works(p);
	text_process_free(p);
}

struct crowd {
	struct text_process *p;
	unsigned done;
};

static void *many_calls(void *arg)
{
	struct crowd *c = arg;
	struct text_done *done;

	for (unsigned i = 0; i < 200; i++) {
		c->done += !encode(c->p, "Once upon a time", &anybody, &done) && done->n;
		free(done);
	}
	return NULL;
}

/* As many as may call: lanes beyond the first ones are started for them. */
TEST(test_crowd)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	struct crowd crowds[TEXT_LANES];
	pthread_t threads[TEXT_LANES];

	for (unsigned i = 0; i < TEXT_LANES; i++) {
		crowds[i] = (struct crowd){.p = p};
		assert_int_equal(pthread_create(&threads[i], NULL, many_calls, &crowds[i]), 0);
	}
	for (unsigned i = 0; i < TEXT_LANES; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(crowds[i].done, 200);
	}
	text_process_free(p);
}

TEST(test_no_model)
{
	const struct text_process_options options = {
		.program = getenv("TXDAD_TEXT"), .seconds = 60, .memory = 4ull << 30};
	struct text_process_options none = {.program = "/nowhere/txdad-text", .seconds = 1};
	struct text_process *p;
	struct text_loaded *l;
	char err[512];

	assert_int_equal(text_process_start("/proc/self", &options, &p, &l, err, sizeof(err)),
			 -ENOENT);
	assert_says(err, "tokenizer.json");
	assert_int_equal(text_process_start(demo, &none, &p, &l, err, sizeof(err)), -ENOENT);
	assert_says(err, "/nowhere/txdad-text");
}

/* ---- one that lies --------------------------------------------------------------------------- */

TEST(test_hostile_start)
{
	static const char *const how[] = {"dies",  "small", "huge",    "beyond", "images",
					  "wraps", "stops", "endless", "silent"};
	struct text_process_options options = {
		.program = getenv("FAKE_TEXT"), .seconds = 1, .memory = 1ull << 30};
	struct text_process *p;
	struct text_loaded *l;
	char err[512];

	for (unsigned i = 0; i < ARRAY_SIZE(how); i++) {
		assert_true(text_process_start(how[i], &options, &p, &l, err, sizeof(err)) < 0);
		assert_true(strlen(err) > 0);
	}
}

TEST(test_hostile_lane)
{
	static const struct {
		const char *text;
		int result;
	} cases[] = {{"huge", -EPROTO},	    {"small", -EPROTO}, {"beyond", -EPROTO},
		     {"positive", -EPROTO}, {"dies", -EPIPE},	{"endless", 0},
		     {"silent", -ETIMEDOUT}};
	struct text_process *p = begin(getenv("FAKE_TEXT"), "good", 60);
	struct text_caller caller = {0};
	struct text_done *done;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i].result == -ETIMEDOUT)
			caller.deadline_ns = clock_ns() + 50000000;
		assert_int_equal(encode(p, cases[i].text, &caller, &done), cases[i].result);
		if (done)
			assert_true(strlen(done->message) < sizeof(done->message));
		free(done);
		/* The next job gets its own answer. */
		works(p);
	}
	text_process_free(p);
}

/* Whose jobs fail fills no log. */
TEST_WITH(test_log, test_dir_make, test_dir_remove)
{
	struct text_process *p = begin(getenv("FAKE_TEXT"), "good", 60);
	char line[1024];
	unsigned lines = 0, jobs = 200;
	struct text_done *done;
	FILE *f;

	assert_int_equal(log_to_file(at("log"), line, sizeof(line)), 0);
	for (unsigned i = 0; i < jobs; i++)
		assert_int_equal(encode(p, "small", &anybody, &done), -EPROTO);
	text_process_free(p);
	f = fopen(at("log"), "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		lines++;
	assert_in_range(lines, 1, jobs - 1);
	fclose(f);
	assert_int_equal(log_to_file(NULL, line, sizeof(line)), 0);
}

/* Whatever the process started ends with it. */
TEST(test_hostile_children)
{
	struct text_process *p = begin(getenv("FAKE_TEXT"), "forks", 60);
	pid_t process = process_of(), pids[TEXT_LANES_READY + 2];
	unsigned n = 0;

	/* The process has begun its lanes when they answer. */
	works(p);
	n = children(process, pids, TEXT_LANES_READY + 2);
	assert_true(n >= 2);
	text_process_free(p);
	while (n)
		await_end(pids[--n]);
}

/* A new process that is not ready soon holds up nobody who has gone. */
TEST_WITH(test_silent_again, test_dir_make, test_dir_remove)
{
	const char *path = at("begun");
	struct text_process *p;
	struct call gone = {0};
	pthread_t thread;
	pid_t first, lanes[TEXT_LANES_READY + 1];

	p = begin(getenv("FAKE_TEXT"), path, 600);
	gone.p = p;
	first = process_of();
	await_lanes(first, lanes);
	kill(-first, SIGKILL);
	AWAIT(has_ended(first));
	for (unsigned i = 0; i < TEXT_LANES_READY; i++)
		AWAIT(has_ended(lanes[i]));
	assert_int_equal(pthread_create(&thread, NULL, call, &gone), 0);
	AWAIT(access(path, F_OK));
	atomic_store(&gone.caller.gone, true);
	pthread_join(thread, NULL);
	assert_int_equal(gone.result, -ECANCELED);
	works(p);
	text_process_free(p);
}

/*
 * A new process that takes its time holds up nobody beyond their own deadline: not who waits for
 * it, nor who waits for somebody else's start; and it is the one that others use when it is ready.
 */
TEST_WITH(test_slow_again, test_dir_make, test_dir_remove)
{
	const char *path = at("begun");
	struct text_process *p;
	struct call late[2] = {{0}}, patient = {0};
	pthread_t threads[2], thread;
	pid_t first, second, lanes[TEXT_LANES_READY + 1];

	p = begin(getenv("FAKE_TEXT"), path, 600);
	first = process_of();
	await_lanes(first, lanes);
	kill(-first, SIGKILL);
	AWAIT(has_ended(first));
	for (unsigned i = 0; i < TEXT_LANES_READY; i++)
		AWAIT(has_ended(lanes[i]));
	for (unsigned i = 0; i < 2; i++) {
		late[i].p = p;
		late[i].caller.deadline_ns = clock_ns() + 100000000;
		assert_int_equal(pthread_create(&threads[i], NULL, call, &late[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(late[i].result, -ETIMEDOUT);
	}
	AWAIT(access(path, F_OK));
	second = process_of();
	patient.p = p;
	assert_int_equal(pthread_create(&thread, NULL, call, &patient), 0);
	/* As soon as it is ready it serves who still waits. */
	put("begun", "", 0600);
	pthread_join(thread, NULL);
	assert_int_equal(patient.result, 0);
	assert_int_equal(process_of(), second);
	works(p);
	text_process_free(p);
}

/* Without descriptors for another lane the process, and who has a lane, go on. */
TEST(test_no_descriptors)
{
	struct text_process *p = begin(getenv("TXDAD_TEXT"), demo, 600);
	pid_t process = process_of(), lanes[TEXT_LANES_READY + 1];
	struct rlimit before, none;
	struct text_done *done;

	await_lanes(process, lanes);
	for (unsigned i = 0; i < TEXT_LANES_READY; i++) {
		kill(lanes[i], SIGKILL);
		AWAIT(has_ended(lanes[i]));
	}
	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &none);
	assert_int_equal(encode(p, "Once", &anybody, &done), -EIO);
	setrlimit(RLIMIT_NOFILE, &before);
	works(p);
	assert_int_equal(process_of(), process);
	text_process_free(p);
}

int main(int argc, char **argv)
{
	snprintf(demo, sizeof(demo), "%s/demo", getenv("TXDA_MODELS"));
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_tests(argv[0], NULL, NULL);
}
