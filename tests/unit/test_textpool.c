// SPDX-License-Identifier: MIT
/* The text pool: users take turns, nobody takes all threads, what is dropped does not run. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <seccomp.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"
#include "clock.h"
#include "priority.h"
#include "textpool.h"

#define MAX_LOG 1024

struct work {
	struct textpool_job job; /* first */
	unsigned number;
	sem_t *gate; /* it waits for that; NULL: it does not */
	bool came_back;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned begun[MAX_LOG], n_begun, n_back, n_ran;

static void run(struct textpool_job *job)
{
	struct work *w = (struct work *)job;

	pthread_mutex_lock(&lock);
	begun[n_begun++] = w->number;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (w->gate)
		sem_wait(w->gate);
}

static void done(struct textpool_job *job)
{
	struct work *w = (struct work *)job;

	assert_false(w->came_back);
	w->came_back = true;
	n_back++;
	n_ran += job->ran;
}

static void wait_begun(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (n_begun < n)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_back(struct textpool *pool, unsigned n)
{
	struct pollfd p = {.fd = textpool_fd(pool), .events = POLLIN};

	while (n_back < n) {
		assert_int_equal(poll(&p, 1, 30000), 1);
		textpool_dispatch(pool);
	}
}

static struct work make(uid_t user, bool brief, unsigned number, sem_t *gate)
{
	return (struct work){
		.job = {.user = user, .brief = brief, .run = run, .done = done},
		.number = number,
		.gate = gate,
	};
}

static int setup(void **state)
{
	n_begun = n_back = n_ran = 0;
	return 0;
}

/* With one thread held, what waits begins in turns: one user's many do not come before another's. */
TEST(test_turns)
{
	static const unsigned expected[] = {0, 1, 11, 21, 2, 12, 3, 4};
	struct textpool *pool;
	struct work w[8];
	sem_t gate;

	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(1, 1, 100, &pool), 0);
	w[0] = make(9, false, 0, &gate);
	assert_int_equal(textpool_add(pool, &w[0].job), 0);
	wait_begun(1);
	for (unsigned i = 0; i < 4; i++)
		w[1 + i] = make(1, false, 1 + i, NULL);
	w[5] = make(2, false, 11, NULL);
	w[6] = make(2, false, 12, NULL);
	w[7] = make(3, false, 21, NULL);
	for (unsigned i = 1; i < 8; i++)
		assert_int_equal(textpool_add(pool, &w[i].job), 0);
	sem_post(&gate);
	wait_back(pool, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(begun[i], expected[i]);
	assert_int_equal(n_ran, 8);
	textpool_free(pool);
}

/* The only thread, which has nothing to do, is woken for a brief job. */
TEST(test_kick)
{
	struct textpool *pool;

	assert_int_equal(textpool_new(1, 1, 100, &pool), 0);
	for (unsigned i = 1; i <= 50; i++) {
		struct work w = make(1, true, i, NULL);

		/* Time to fall asleep. */
		usleep(1000);
		textpool_again(pool, &w.job);
		textpool_kick(pool);
		wait_back(pool, i);
	}
	textpool_free(pool);
}

/* A user whose jobs never end leaves a thread to the others, and all of them the one for brief jobs. */
TEST(test_hostile)
{
	struct textpool *pool;
	struct work bad[10], worse[10], good, brief[40];
	sem_t gate;

	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(4, 4, 100, &pool), 0);
	for (unsigned i = 0; i < 10; i++) {
		bad[i] = make(1, false, 100 + i, &gate);
		assert_int_equal(textpool_add(pool, &bad[i].job), 0);
	}
	wait_begun(2);
	good = make(2, false, 7, NULL);
	assert_int_equal(textpool_add(pool, &good.job), 0);
	wait_back(pool, 1);
	assert_true(good.came_back);
	assert_int_equal(n_begun, 3);
	for (unsigned i = 0; i < 10; i++) {
		worse[i] = make(3, false, 200 + i, &gate);
		assert_int_equal(textpool_add(pool, &worse[i].job), 0);
	}
	wait_begun(4);
	for (unsigned i = 0; i < 40; i++) {
		brief[i] = make(i % 3, true, i, NULL);
		textpool_again(pool, &brief[i].job);
	}
	textpool_kick(pool);
	wait_back(pool, 41);
	assert_int_equal(n_begun, 44);
	for (unsigned i = 0; i < 20; i++)
		sem_post(&gate);
	wait_back(pool, 61);
	textpool_free(pool);
}

/* Several users whose jobs never end: each further one gets a thread, up to the limit, and no second. */
TEST(test_many_hostile)
{
	enum { USERS = 7 };
	struct textpool *pool;
	struct work bad[USERS][3], good;
	sem_t gate;

	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(4, 10, 100, &pool), 0);
	for (unsigned u = 0; u < USERS; u++) {
		for (unsigned i = 0; i < 3; i++) {
			bad[u][i] = make(u, false, 10 * u + i, &gate);
			assert_int_equal(textpool_add(pool, &bad[u][i].job), 0);
		}
		/* Two of the first one, one of each other. */
		wait_begun(u + 2);
	}
	good = make(100, false, 1000, NULL);
	assert_int_equal(textpool_add(pool, &good.job), 0);
	wait_back(pool, 1);
	assert_true(good.came_back);
	assert_int_equal(n_begun, USERS + 2);
	for (unsigned i = 0; i < 3 * USERS; i++)
		sem_post(&gate);
	wait_back(pool, 3 * USERS + 1);
	assert_int_equal(n_ran, 3 * USERS + 1);
	textpool_free(pool);
}

TEST(test_dropped_and_late)
{
	struct textpool *pool;
	struct work w[4];
	sem_t gate;

	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(1, 1, 100, &pool), 0);
	for (unsigned i = 0; i < 4; i++)
		w[i] = make(i, false, i, i ? NULL : &gate);
	w[2].job.deadline_ns = 1;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(textpool_add(pool, &w[i].job), 0);
	wait_begun(1);
	assert_false(textpool_drop(pool, &w[0].job));
	assert_true(textpool_drop(pool, &w[1].job));
	assert_false(textpool_drop(pool, &w[1].job));
	sem_post(&gate);
	wait_back(pool, 3);
	assert_false(textpool_drop(pool, &w[3].job));
	assert_int_equal(n_ran, 2);
	assert_int_equal(n_begun, 2);
	assert_false(w[1].came_back);
	assert_true(w[2].came_back);
	textpool_free(pool);
}

/* How much may wait: three times what is left for others; what was let in goes on whatever happens. */
TEST(test_limit)
{
	struct textpool *pool;
	struct work w[17], more;
	sem_t gate;
	unsigned n = 0;

	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(2, 2, 16, &pool), 0);
	for (unsigned i = 0; i < 17; i++)
		w[i] = make(1, false, i, &gate);
	while (n < 17 && !textpool_add(pool, &w[n].job))
		n++;
	assert_int_equal(n, 12);
	w[12].job.user = 2;
	assert_int_equal(textpool_add(pool, &w[12].job), 0);
	assert_int_equal(textpool_add(pool, &w[13].job), -EAGAIN);
	more = make(1, false, 99, &gate);
	textpool_again(pool, &more.job);
	for (unsigned i = 0; i < 3; i++)
		sem_post(&gate);
	wait_back(pool, 3);
	assert_int_equal(textpool_add(pool, &w[13].job), 0);
	for (unsigned i = 0; i < 20; i++)
		sem_post(&gate);
	/* The rest comes back at the end, whether it ran or not. */
	textpool_free(pool);
	assert_int_equal(n_back, 15);
}

/* ---- shares of the time ---------------------------------------------------------------------- */

struct spender {
	struct textpool_job job; /* first */
	uint64_t spends_ns;
	uint64_t began_ns, ended_ns; /* of its work */
};

static void spend(struct textpool_job *job)
{
	struct spender *s = (struct spender *)job;
	struct timespec rest = {.tv_sec = (time_t)(s->spends_ns / 1000000000),
				.tv_nsec = (long)(s->spends_ns % 1000000000)};

	s->began_ns = clock_ns();
	while (nanosleep(&rest, &rest))
		;
	s->ended_ns = clock_ns();
}

static void count_back(struct textpool_job *job)
{
	n_back++;
}

/* A job of the user, when it has ended. */
static struct spender spent_by(struct textpool *pool, uid_t user, uint64_t spends_ns)
{
	struct spender s = {.job = {.user = user, .run = spend, .done = count_back},
			    .spends_ns = spends_ns};

	assert_int_equal(textpool_add(pool, &s.job), 0);
	wait_back(pool, n_back + 1);
	return s;
}

/* The most of its share that a user has when @next begins, who ended @last at first; at least @used. */
static int64_t left_at_most(const struct spender *last, const struct spender *next, uint64_t used)
{
	uint64_t earned = (next->began_ns - last->ended_ns) / TEXTPOOL_PART;

	return (int64_t)(TEXTPOOL_BURST_NS + earned) - (int64_t)used;
}

/* Who uses more than a share beside others is told so at once, and nobody else. */
TEST(test_low)
{
	struct work company;
	struct spender first, next;
	struct textpool *pool;
	uint64_t before;
	int64_t left;
	sem_t gate;

	if (!priority_works())
		skip();
	sem_init(&gate, 0, 0);
	assert_int_equal(textpool_new(4, 8, 100, &pool), 0);
	/* Alone. */
	assert_int_equal(spent_by(pool, 1, TEXTPOOL_BURST_NS * 2).job.low_ns, 0);
	first = spent_by(pool, 1, TEXTPOOL_BURST_NS * 2);
	assert_int_equal(first.job.low_ns, 0);
	company = make(9, false, 0, &gate);
	assert_int_equal(textpool_add(pool, &company.job), 0);
	next = spent_by(pool, 1, 0);
	left = left_at_most(&first, &next, TEXTPOOL_BURST_NS * 2);
	assert_true(next.job.low_ns);
	assert_true((int64_t)(next.job.low_ns - next.began_ns) <= (left > 0 ? left : 0));
	/* Another user has all of its burst, then half of it. */
	before = clock_ns();
	first = spent_by(pool, 2, TEXTPOOL_BURST_NS / 2);
	assert_true(first.job.low_ns >= before + TEXTPOOL_BURST_NS);
	next = spent_by(pool, 2, 0);
	left = left_at_most(&first, &next, TEXTPOOL_BURST_NS / 2);
	assert_true((int64_t)(next.job.low_ns - next.began_ns) <= left);
	/* Brief jobs belong to steps of the engine. */
	next = (struct spender){
		.job = {.user = 1, .brief = true, .run = spend, .done = count_back, .low_ns = 1}};
	textpool_again(pool, &next.job);
	textpool_kick(pool);
	wait_back(pool, n_back + 1);
	assert_int_equal(next.job.low_ns, 0);
	sem_post(&gate);
	wait_back(pool, n_back + 1);
	textpool_free(pool);
}

/* Where priorities cannot be set: beside others such a user has one thread. */
static bool has_one_thread(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	struct work bad[3], company;
	struct spender debt;
	struct textpool *pool;
	sem_t gate;
	bool one;

	if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setpriority), 0) ||
	    seccomp_load(filter))
		return false;
	seccomp_release(filter);
	sem_init(&gate, 0, 0);
	if (textpool_new(4, 8, 100, &pool))
		return false;
	company = make(9, false, 0, &gate);
	if (textpool_add(pool, &company.job))
		return false;
	wait_begun(1);
	debt = spent_by(pool, 1, TEXTPOOL_BURST_NS * 5);
	for (unsigned i = 0; i < 3; i++) {
		bad[i] = make(1, false, i, &gate);
		if (textpool_add(pool, &bad[i].job))
			return false;
	}
	wait_begun(2);
	/* By the time that another user's job is back, a second one would have begun. */
	spent_by(pool, 2, 0);
	pthread_mutex_lock(&lock);
	one = n_begun == 2;
	pthread_mutex_unlock(&lock);
	/* A machine so slow that the debt is paid. */
	if (clock_ns() - debt.ended_ns > TEXTPOOL_PART * TEXTPOOL_BURST_NS * 4)
		one = true;
	for (unsigned i = 0; i < 4; i++)
		sem_post(&gate);
	wait_back(pool, n_back + 4);
	textpool_free(pool);
	return one && n_begun == 4;
}

TEST(test_one_thread)
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(!has_one_thread());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST_MAIN_EACH(setup, NULL)
