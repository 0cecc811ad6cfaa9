// SPDX-License-Identifier: MIT
/*
 * The pool and leadership under load: every part of every phase runs once, by the right launch,
 * whoever leads, helps or sleeps; nobody waits for ever.
 */
#include "cm_fixture.h"
#include "clock.h"
#include "core/cpus.h"
#include "core/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#define OPS	     16
#define MOST_THREADS 1024

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SCALE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SCALE 1
#endif
#endif
#ifndef SCALE
#define SCALE 8
#endif

static struct fix f;
static struct fix_program prog;
static struct txda_pkt_exec pkt;

static void nap_ns(long ns)
{
	nanosleep(&(struct timespec){0, ns}, NULL);
}

/* A program of OPS counting ops. */
static void start(unsigned chips, unsigned cores)
{
	uint32_t slot;

	fix_new(&f, chips, cores);
	fix_program_init(&prog, 1, 0);
	slot = fix_slot(&prog, "slot", TXDA_SLOT_SCRATCH, 4096);
	fix_tensor(&prog, "x", slot, TXDA_F32, 0, FIX_CONST(16), FIX_NO_DIM);
	for (unsigned i = 0; i < OPS; i++) {
		struct txda_op *op = fix_op(&prog, "count", TXDA_OP_LINEAR);

		op->in[0] = op->in[1] = op->out[0] = 0;
	}
	fix_seal(&prog);
	for (unsigned i = 0; i < chips; i++) {
		fix_place(&prog, &f.c[i], 0, &pkt);
		fix_bind(&f.c[i], &pkt, 0, FIX_VA + FIX_DATA, 4096);
	}
}

/* One launch and a signal of @value to word @word. Each thread has words and streams of its own. */
static void put_launch(struct fix_stream *s, unsigned word, uint64_t value)
{
	struct txda_pkt_exec p = pkt;

	fix_put(s, TXDA_PKT_EXEC, 0, &p, sizeof(p));
	fix_signal(s, fix_word_va(word), value);
}

static struct fix_stream stream_of(unsigned chip, unsigned thread, uint64_t n)
{
	return (struct fix_stream){&f.c[chip], FIX_STREAMS + thread * 65536 + n % 16 * 4096, 0};
}

/* Submits a launch and a signal of @value to word @thread of chip 0. */
static void launch(struct cm_queue *q, unsigned thread, uint64_t value, bool soon)
{
	struct fix_stream s = stream_of(0, thread, value);

	put_launch(&s, thread, value);
	assert_int_equal(cm_queue_submit(q, FIX_VA + s.off, s.bytes, soon), 0);
}

/* Another number of active cores, perhaps in the middle of a phase. */
static void change_active(unsigned cores, unsigned n)
{
	atomic_store(&f.m->pool.active.n, 1 + n * 7919 % cores);
}

/* Random phases and parts on pools of several sizes; the waiter leads. */
TEST(test_parts)
{
	static const unsigned cores[] = {1, 2, 3, 8, 9, 20, 100};
	unsigned launches = fake_linear_launches(), all = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(cores); i++) {
		/* Of more cores than CPUs each phase takes longer. */
		unsigned rounds = cores[i] > 9 ? 2 * SCALE : 40 * SCALE;
		unsigned before = fake_linear_errors();
		struct cm_queue *q;

		start(1, cores[i]);
		q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
		fake_linear_random(88172645463325252ull + i);
		for (unsigned n = 1; n <= rounds; n++) {
			launch(q, 0, n, n % 3 == 0);
			if (n % 4 == 0)
				change_active(cores[i], n);
			assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 0), n), 0);
			/* Now and then long enough for the helpers to sleep. */
			if (n % 16 == 0)
				nap_ns(300000);
		}
		assert_int_equal(fake_linear_errors(), before);
		fix_free(&f);
		all += rounds;
	}
	assert_int_equal(fake_linear_launches() - launches, all * OPS);
}

/* The word has the value within 20 seconds, without anybody who leads. */
static bool comes(const uint64_t *word, uint64_t value)
{
	uint64_t end = clock_ns() + 20000000000ull;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value && clock_ns() < end)
		nap_ns(50000);
	return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;
}

struct worker {
	pthread_t thread;
	unsigned index, chip;
	unsigned rounds;
	bool poll; /* never calls cm_wait() with a deadline: the workers must do it all */
	int ret;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct cm_queue *q;

	w->ret = cm_queue_new(f.c[w->chip].vm, CM_QUEUE_COMPUTE, NULL, NULL, &q);
	for (unsigned n = 1; n <= w->rounds && !w->ret; n++) {
		uint64_t *word = fix_word(&f.c[w->chip], w->index + 1);
		struct fix_stream s = stream_of(w->chip, w->index, n);

		put_launch(&s, w->index + 1, n);
		w->ret = cm_queue_submit(q, FIX_VA + s.off, s.bytes, !w->poll && n % 5 == 0);
		if (w->ret)
			break;
		/* Up to eight streams ahead; the stream's memory is used again after sixteen. */
		if (n % 8 && n != w->rounds)
			continue;
		if (w->poll) {
			w->ret = comes(word, n) ? 0 : -ETIMEDOUT;
		} else {
			w->ret = fix_wait(&f, q, word, n);
		}
	}
	cm_queue_free(q);
	return NULL;
}

static void start_worker(struct worker *w, void *(*work_of)(void *arg))
{
	assert_int_equal(pthread_create(&w->thread, NULL, work_of, w), 0);
}

static void join_workers(struct worker *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].ret, 0);
	}
}

/* Threads with queues of their own on two chips, some that wait and some that only submit. */
TEST(test_many_threads)
{
	static const unsigned cores[] = {1, 2, 3, 12};
	struct worker w[6];
	unsigned before = fake_linear_errors();

	for (unsigned k = 0; k < ARRAY_SIZE(cores); k++) {
		start(2, cores[k]);
		fake_linear_random(362436069 + k);
		for (unsigned i = 0; i < 6; i++) {
			w[i] = (struct worker){.index = i,
					       .chip = i % 2,
					       .rounds = 24 * SCALE,
					       .poll = i == 3 || i == 4};
			start_worker(&w[i], work);
		}
		for (unsigned i = 0; i < 20 * SCALE; i++) {
			change_active(cores[k], i);
			nap_ns(200000);
		}
		join_workers(w, 6);
		assert_int_equal(fake_linear_errors(), before);
		fix_free(&f);
	}
}

static _Atomic bool stop;

/* Maps, unmaps and pauses the machine all the time. */
static void *disturb(void *arg)
{
	int fd = cm_chip_dram_fd(f.c[0].chip);
	unsigned *rounds = arg;
	struct cm_sensors s;

	while (!stop) {
		struct cm_queue *q;
		struct cm_vm *vm;

		if (cm_vm_map(f.c[0].vm, 0x60000000, fd, 0, 1 << 20, CM_MAP_READ) ||
		    cm_vm_unmap(f.c[0].vm, 0x60000000, 1 << 20) || cm_vm_new(f.c[1].chip, &vm))
			return NULL;
		if (cm_queue_new(vm, CM_QUEUE_COPY, NULL, NULL, &q))
			return NULL;
		/* A stream that faults, and a kick for nothing. */
		cm_queue_submit(q, 64, 64, false);
		cm_kick(f.m);
		cm_queue_free(q);
		cm_vm_free(vm);
		cm_chip_sensors(f.c[0].chip, &s);
		++*rounds;
	}
	return NULL;
}

TEST(test_disturbed)
{
	unsigned before = fake_linear_errors(), rounds = 0;
	struct worker w[3];
	pthread_t thread;

	start(2, 2);
	fake_linear_random(521288629);
	stop = false;
	assert_int_equal(pthread_create(&thread, NULL, disturb, &rounds), 0);
	for (unsigned i = 0; i < 3; i++) {
		w[i] = (struct worker){
			.index = i, .chip = i % 2, .rounds = 24 * SCALE, .poll = i == 2};
		start_worker(&w[i], work);
	}
	join_workers(w, 3);
	stop = true;
	pthread_join(thread, NULL);
	assert_true(rounds > 0);
	assert_int_equal(fake_linear_errors(), before);
	fix_free(&f);
}

/* A queue is freed, and a machine, in the middle of long ops. */
TEST(test_free_under_way)
{
	static const uint64_t parts[] = {300};

	for (unsigned i = 0; i < 10; i++) {
		struct cm_queue *q;
		uint64_t from;

		start(1, 2);
		fake_linear_shape(1, parts);
		fake_linear_spin(2000000);
		q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
		launch(q, 0, 1, false);
		nap_ns(i * 1000000);
		from = clock_ns();
		if (i % 2)
			cm_queue_free(q);
		fix_free(&f);
		/* The launch would take seconds; what has not begun is skipped. */
		assert_true(clock_ns() - from < 3000000000ull);
	}
	fake_linear_spin(0);
}

/* Parts are numbered in 32 bits. */
TEST(test_too_many_parts)
{
	static const uint64_t parts[] = {1ull << 32};
	struct txda_fault fault;
	struct cm_queue *q;

	start(1, 2);
	fake_linear_shape(1, parts);
	q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	launch(q, 0, 1, false);
	assert_true(fix_wait(&f, q, fix_word(&f.c[0], 0), 1));
	assert_int_equal(cm_queue_fault(q, &fault), 0);
	assert_int_equal(fault.code, TXDA_FAULT_SHAPE);
	assert_int_equal(fault.detail, 1ull << 32);
	fix_free(&f);
}

/* Work that would never end is left at once when its queue goes, and the machine serves others. */
TEST(test_interrupted)
{
	static const uint64_t parts[] = {40};

	fix_interrupt();
	for (unsigned i = 0; i < 60; i++) {
		unsigned cores = 1 + i % 3, before;
		struct cm_queue *q;

		start(1, cores);
		fake_linear_shape(1, parts);
		fake_endless(FAKE_CHECK + i / 3 % 3);
		q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
		launch(q, 0, 1, false);
		while (!fake_stuck())
			nap_ns(10000);
		cm_queue_free(q);
		fake_endless(FAKE_NOWHERE);
		/* What stands behind it in the stream has not run. */
		assert_int_equal(*fix_word(&f.c[0], 0), 0);

		fake_linear_shape(1, parts);
		before = fake_linear_errors();
		q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
		launch(q, 1, 1, false);
		assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 1), 1), 0);
		assert_int_equal(fake_linear_errors(), before);
		cm_queue_free(q);
		fix_free(&f);
	}
}

/* A queue that a thread frees while another one, @waiter, runs its work; then @word becomes 1. */
struct leave {
	struct cm_queue *q;
	pthread_t waiter;
	uint64_t *word;
};

static void *leave_queue(void *arg)
{
	struct leave *l = arg;

	while (!fake_stuck())
		nap_ns(10000);
	cm_queue_free(l->q);
	__atomic_store_n(l->word, 1, __ATOMIC_RELEASE);
	cm_kick(f.m);
	return NULL;
}

/* The embedder may send the signal to its own threads, too. */
static void *signal_waiter(void *arg)
{
	struct leave *l = arg;

	while (!__atomic_load_n(l->word, __ATOMIC_ACQUIRE)) {
		pthread_kill(l->waiter, f.m->pool.interrupt);
		nap_ns(100000);
	}
	return NULL;
}

/* A thread of the embedder that runs ops, to their end or not, has its own mode of floats after it. */
TEST(test_float_mode)
{
	static const uint64_t parts[] = {40};
	unsigned before = fake_linear_errors();
	struct leave l = {.waiter = pthread_self()};
	pthread_t thread[2];
	uint32_t own, after;
	struct cm_queue *q;

	fix_interrupt();
	start(1, 1);
	fake_linear_shape(1, parts);
	l.q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	l.word = fix_word(&f.c[0], 1);
	fake_endless(FAKE_RUN);
	launch(l.q, 0, 1, true);
	assert_int_equal(pthread_create(&thread[0], NULL, leave_queue, &l), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, signal_waiter, &l), 0);
	fesetround(FE_UPWARD);
	own = cm_float_mode();
	fix_wait(&f, NULL, l.word, 1);
	after = cm_float_mode();
	fesetround(FE_TONEAREST);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	assert_int_equal(after & ~CM_FLOAT_FLAGS, own & ~CM_FLOAT_FLAGS);

	fake_endless(FAKE_NOWHERE);
	fake_linear_shape(1, parts);
	q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	launch(q, 2, 1, true);
	fesetround(FE_UPWARD);
	own = cm_float_mode();
	fix_wait(&f, q, fix_word(&f.c[0], 2), 1);
	after = cm_float_mode();
	fesetround(FE_TONEAREST);
	assert_int_equal(after & ~CM_FLOAT_FLAGS, own & ~CM_FLOAT_FLAGS);
	assert_int_equal(fake_linear_errors(), before);
	fix_free(&f);
}

/*
 * A thread leads no longer than it takes to see its own fence. What its SIGNAL has let go, a queue
 * that was parked in a WAIT, is for a worker then, though all of them sleep.
 */
TEST(test_leaves_work_behind)
{
	struct cm_queue *a, *b;

	for (unsigned cores = 1; cores <= 3; cores++) {
		start(1, cores);
		a = fix_queue(&f, 0, CM_QUEUE_COPY);
		b = fix_queue(&f, 0, CM_QUEUE_COPY);
		for (unsigned n = 1; n <= 5; n++) {
			struct fix_stream s = stream_of(0, 0, n), t = stream_of(0, 1, n);

			fix_wait_packet(&t, fix_word_va(1), n);
			fix_signal(&t, fix_word_va(2), n);
			assert_int_equal(fix_submit(b, &t), 0);
			/* The queue is parked and the workers sleep. */
			nap_ns(5000000);
			fix_signal(&s, fix_word_va(1), n);
			assert_int_equal(cm_queue_submit(a, FIX_VA + s.off, s.bytes, true), 0);
			assert_int_equal(fix_wait(&f, a, fix_word(&f.c[0], 1), n), 0);
			assert_true(comes(fix_word(&f.c[0], 2), n));
		}
		fix_free(&f);
	}
}

/* Two threads wait for each other's queues through WAIT packets. */
static void *ping(void *arg)
{
	struct worker *w = arg;
	struct cm_queue *q;
	unsigned me = w->index + 1, peer = !w->index + 1;

	w->ret = cm_queue_new(f.c[0].vm, CM_QUEUE_COPY, NULL, NULL, &q);
	for (unsigned n = 1; n <= w->rounds && !w->ret; n++) {
		struct fix_stream s = stream_of(0, w->index, n);

		if (w->index)
			fix_wait_packet(&s, fix_word_va(peer), n);
		else if (n > 1)
			fix_wait_packet(&s, fix_word_va(peer), n - 1);
		fix_signal(&s, fix_word_va(me), n);
		w->ret = cm_queue_submit(q, FIX_VA + s.off, s.bytes, false);
		if (!w->ret)
			w->ret = fix_wait(&f, q, fix_word(&f.c[0], me), n);
	}
	cm_queue_free(q);
	return NULL;
}

TEST(test_ping_pong)
{
	struct worker w[2];

	for (unsigned cores = 1; cores <= 2; cores++) {
		start(1, cores);
		for (unsigned i = 0; i < 2; i++) {
			w[i] = (struct worker){.index = i, .rounds = 200 * SCALE};
			start_worker(&w[i], ping);
		}
		join_workers(w, 2);
		fix_free(&f);
	}
}

/* The threads named txda-core, at @tid[max]; returns how many. */
static unsigned find_cores(pid_t *tid, unsigned max)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *d;
	unsigned n = 0;

	assert_non_null(tasks);
	while ((d = readdir(tasks))) {
		char path[300], name[32] = "";
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		comm = fopen(path, "re");
		if (comm && fgets(name, sizeof(name), comm) && !strcmp(name, "txda-core\n") &&
		    n < max)
			tid[n++] = atoi(d->d_name);
		if (comm)
			fclose(comm);
	}
	closedir(tasks);
	return n;
}

/* CPUs of the threads named txda-core that may run on one alone, as bits; *ret_more: others. */
static uint64_t pinned_to(unsigned *ret_more)
{
	pid_t tid[MOST_THREADS];
	unsigned n = find_cores(tid, MOST_THREADS);
	uint64_t cpus = 0;

	*ret_more = 0;
	for (unsigned i = 0; i < n; i++) {
		cpu_set_t set;
		unsigned cpu = 0;

		/* Of a machine before, whose thread has just ended. */
		if (sched_getaffinity(tid[i], sizeof(set), &set))
			continue;
		if (CPU_COUNT(&set) > 1) {
			++*ret_more;
			continue;
		}
		while (!CPU_ISSET(cpu, &set))
			cpu++;
		cpus |= 1ull << cpu % 64;
	}
	return cpus;
}

TEST(test_pinned)
{
	struct cm_options opt = {.chips = 1, .mem_bytes = 2 << 20, .pin = true};
	struct cm_machine *m;
	unsigned more, tries = 0, cores;

	assert_int_equal(cm_machine_new(&opt, &m), 0);
	cores = cm_machine_cores(m);
	/* Each pins itself when it starts. */
	while (((unsigned)__builtin_popcountll(pinned_to(&more)) < cores || more) &&
	       ++tries < 10000)
		nap_ns(1000000);
	assert_true(cores > 64 || tries < 10000);
	cm_machine_free(m);
	/* There are not enough CPUs. */
	opt.cores = cm_cpus(NULL, 0) + 1;
	assert_int_equal(cm_machine_new(&opt, &m), 0);
	nap_ns(20000000);
	assert_true(opt.cores == 2 || !pinned_to(&more));
	cm_machine_free(m);
}

/* How many of the threads may run on @cpu. */
static unsigned may_run_on(const pid_t *tid, unsigned n, unsigned cpu)
{
	unsigned may = 0;

	for (unsigned i = 0; i < n; i++) {
		cpu_set_t set;

		assert_int_equal(sched_getaffinity(tid[i], sizeof(set), &set), 0);
		may += CPU_ISSET(cpu, &set);
	}
	return may;
}

/* The CPU on which the thread runs, or did last. */
static unsigned last_cpu(pid_t tid)
{
	char path[64], line[1024] = "";
	const char *at;
	unsigned cpu;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	stat = fopen(path, "re");
	assert_non_null(stat);
	assert_non_null(fgets(line, sizeof(line), stat));
	fclose(stat);
	at = strrchr(line, ')');
	assert_non_null(at);
	/* The 39th field; the name in parentheses is the second. */
	for (unsigned field = 2; field < 39; field++) {
		at = strchr(at + 1, ' ');
		assert_non_null(at);
	}
	assert_int_equal(sscanf(at, " %u", &cpu), 1);
	return cpu;
}

static void run_on(const unsigned *cpu, unsigned n)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (unsigned i = 0; i < n; i++)
		CPU_SET(cpu[i], &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

/*
 * A machine of @cores that may use two CPUs. This thread leads on those where its cores slept, in turns.
 * Returns how many cores may still run on the CPU of the last launch, after @seconds or as soon as not
 * all of them may. @limit: all cores are limited to the first CPU, and it leads there.
 */
static unsigned lead_beside(unsigned cores, const unsigned cpu[2], bool limit, unsigned seconds)
{
	static const uint64_t parts[] = {2};
	uint64_t end = clock_ns() + seconds * 1000000000ull, value = 0;
	pid_t tid[MOST_THREADS];
	struct cm_queue *q;
	cpu_set_t all, one;
	unsigned n, may;

	CPU_ZERO(&one);
	CPU_SET(cpu[0], &one);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	run_on(cpu, 2);
	start(1, cores);
	q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	fake_linear_shape(1, parts);
	fake_linear_spin(0);
	/* Threads of the machine before may just be ending. */
	while ((n = find_cores(tid, MOST_THREADS)) != cores)
		assert_true(clock_ns() < end);
	for (unsigned i = 0; limit && i < n; i++)
		assert_int_equal(sched_setaffinity(tid[i], sizeof(one), &one), 0);
	do {
		unsigned here = limit ? cpu[0] : last_cpu(tid[value % n]);

		run_on(&here, 1);
		launch(q, 0, ++value, true);
		assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 0), value), 0);
		/* Long enough for the cores to sleep. */
		nap_ns(1000000);
		may = may_run_on(tid, n, here);
	} while (may == n && clock_ns() < end);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	fix_free(&f);
	return may;
}

/* Cores leave the CPU of the thread that leads, if there is a CPU for each and nobody has limited them. */
TEST(test_kept_apart)
{
	unsigned cpu[2] = {0}, cpus = cm_cpus(cpu, 2);

	if (cpus < 2) {
		print_message("one CPU: there is no other one\n");
		skip();
	}
	assert_true(lead_beside(2, cpu, false, 20) < 2);
	assert_int_equal(lead_beside(2, cpu, true, 1), 2);
	assert_int_equal(lead_beside(3, cpu, false, 1), 3);
}

/* In a directory of its own: two CPUs of one core, or of two. */
static void describe_cpus(const char *where, const unsigned cpu[2], bool one_core)
{
	for (unsigned i = 0; i < 2; i++) {
		char path[300];
		FILE *list;

		snprintf(path, sizeof(path), "%s/cpu%u", where, cpu[i]);
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		snprintf(path, sizeof(path), "%s/cpu%u/topology", where, cpu[i]);
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		snprintf(path, sizeof(path), "%s/cpu%u/topology/thread_siblings_list", where,
			 cpu[i]);
		list = fopen(path, "we");
		assert_non_null(list);
		if (one_core)
			fprintf(list, "%u,%u\n", cpu[0], cpu[1]);
		else
			fprintf(list, "%u\n", cpu[i]);
		fclose(list);
	}
}

/* Of many CPUs some are left to other threads, unless siblings are free anyway. */
TEST(test_cpus_left)
{
	static const struct {
		unsigned cpus, cores, compute;
	} cases[] = {
		{1, 1, 1},    {2, 2, 2},  {2, 1, 1},	{7, 7, 7},    {8, 8, 7},    {15, 15, 14},
		{16, 16, 14}, {16, 8, 8}, {16, 15, 14}, {64, 64, 62}, {64, 32, 32},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(cm_cpus_to_compute(cases[i].cpus, cases[i].cores),
				 cases[i].compute);
}

/* With tiles, a core for each physical one unless told; else for each of two CPUs. */
TEST(test_physical_cores)
{
	const char *directory = cm_cpus_directory;
	struct cm_options opt = {.chips = 1, .mem_bytes = 2 << 20};
	char where[] = "/tmp/txda-cpus-XXXXXX", remove[64];
	unsigned cpu[2] = {0}, cpus = cm_cpus(cpu, 2), cores[2], machine[3];
	cpu_set_t all;
	struct cm_machine *m;

	if (cpus < 2) {
		print_message("one CPU: it cannot have a sibling\n");
		skip();
	}
	assert_non_null(mkdtemp(where));
	cm_cpus_directory = where;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	run_on(cpu, 2);
	cpus = 2;
	for (unsigned one = 0; one < 2; one++) {
		describe_cpus(where, cpu, one);
		cores[one] = cm_physical_cores();
	}
	for (unsigned i = 0; i < 3; i++) {
		fix_use_tiles(i < 2);
		opt.cores = i == 1 ? cpus : 0;
		assert_int_equal(cm_machine_new(&opt, &m), 0);
		machine[i] = cm_machine_cores(m);
		cm_machine_free(m);
	}
	fix_use_tiles(false);
	cm_cpus_directory = directory;
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	snprintf(remove, sizeof(remove), "rm -rf %s", where);
	assert_int_equal(system(remove), 0);
	assert_int_equal(cores[0], cpus);
	assert_int_equal(cores[1], cpus - 1);
	assert_int_equal(machine[0], cpus - 1);
	assert_int_equal(machine[1], cpus);
	assert_int_equal(machine[2], cpus);
}

TEST_MAIN
