// SPDX-License-Identifier: MIT
/*
 * ioctl_fuzz [--seconds N] [--seed S] [--processes P] [--threads T] - sequences of all ioctls of all
 * nodes, by a grammar that mostly gets them right, with live handles, changed bytes, threads that
 * close what others use, signals, and processes that are killed. In the end each chip still has to
 * serve. What the kernel has to say is for whoever started this to look at.
 *
 * The same seed gives the same sequence in each thread; what comes of it is a matter of timing.
 */
#include "fuzz.h"

#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>

#define PROCESSES_MAX 16
#define THREADS_MAX   8
/* Limit for a killed process to exit, whatever its queues were doing. */
#define DEATH_LIMIT (120 * SECOND)

static unsigned int processes = 4, threads = 2;
struct tally *tally;

/* ---- One process ---------------------------------------------------------------------------- */

static struct world world;

static void *run_thread(void *arg)
{
	struct rng *r = arg;

	for (;;) {
		step(&world, r);
		__atomic_add_fetch(&tally->steps, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* System calls are interrupted now and then. */
static void start_alarms(struct rng *r)
{
	struct sigaction action = {.sa_handler = on_alarm};
	suseconds_t us = 1000 + below(r, 20000);
	struct itimerval timer = {.it_interval = {0, us}, .it_value = {0, us}};

	sigaction(SIGALRM, &action, NULL);
	if (one_in(r, 2))
		setitimer(ITIMER_REAL, &timer, NULL);
}

__attribute__((noreturn)) static void run_process(uint64_t seed, unsigned int nodes)
{
	static struct rng rngs[THREADS_MAX];
	struct rng r = {seed};
	pthread_t thread;

	world_init(&world, nodes);
	start_alarms(&r);
	for (unsigned int i = 0; i < threads; i++)
		rngs[i].state = rnd(&r);
	for (unsigned int i = 1; i < threads; i++)
		pthread_create(&thread, NULL, run_thread, &rngs[i]);
	run_thread(&rngs[0]);
	_exit(1);
}

/* ---- All processes -------------------------------------------------------------------------- */

static pid_t start(uint64_t seed, unsigned int nodes)
{
	pid_t pid = fork();

	if (!pid)
		run_process(seed, nodes);
	if (pid < 0)
		fail("fork: %s", strerror_of(errno));
	return pid;
}

static void print_stack(pid_t pid)
{
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		fputs(line, stderr);
	if (f)
		fclose(f);
}

/* A killed process ends; unless it had ended by what it did to its own memory. */
static void bury(pid_t pid, uint64_t seed)
{
	int64_t deadline = now_ns() + DEATH_LIMIT;
	int status;

	kill(pid, SIGKILL);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (now_ns() > deadline) {
			print_stack(pid);
			fail("process %d (seed %llu) does not die", pid, (unsigned long long)seed);
		}
		poll(NULL, 0, 5);
	}
	if (!WIFSIGNALED(status))
		fail("process %d (seed %llu) ended by itself: %#x", pid, (unsigned long long)seed,
		     status);
}

static void fuzz(int64_t seconds, uint64_t seed, unsigned int nodes)
{
	struct rng r = {seed};
	int64_t deadline = now_ns() + seconds * SECOND;
	uint64_t seeds[PROCESSES_MAX];
	pid_t pids[PROCESSES_MAX];
	unsigned int killed = 0;

	for (unsigned int i = 0; i < processes; i++) {
		seeds[i] = rnd(&r);
		pids[i] = start(seeds[i], nodes);
	}
	while (now_ns() < deadline) {
		unsigned int i = below(&r, processes);

		poll(NULL, 0, (int)below(&r, 1500));
		bury(pids[i], seeds[i]);
		seeds[i] = rnd(&r);
		pids[i] = start(seeds[i], nodes);
		killed++;
	}
	for (unsigned int i = 0; i < processes; i++)
		bury(pids[i], seeds[i]);
	printf("%llu steps, %u processes killed\n", (unsigned long long)tally->steps,
	       killed + processes);
}

/* A fuzzer that never gets anywhere finds nothing. */
static void print_tally(void)
{
	static const char *const names[DRM_TXDA_NUM_IOCTLS] = {
		"DEV_QUERY",	 "VM_CREATE",	    "VM_DESTROY",      "VM_GET_STATE",
		"VM_BIND",	 "VM_SET_GROUP",    "BO_CREATE",       "BO_MMAP_OFFSET",
		"BO_QUERY_INFO", "BO_SET_LABEL",    "BO_FROM_USERPTR", "QUEUE_CREATE",
		"QUEUE_DESTROY", "QUEUE_GET_STATE", "QUEUE_SUBMIT",    "BO_ADVISE",
	};

	for (unsigned int i = 0; i < DRM_TXDA_NUM_IOCTLS; i++)
		printf("%-16s %8llu calls, %8llu good\n", names[i],
		       (unsigned long long)tally->calls[i], (unsigned long long)tally->good[i]);
	for (unsigned int i = 0; i < DRM_TXDA_NUM_IOCTLS; i++) {
		if (tally->steps > 20000 && !tally->good[i])
			fail("%s never did anything", names[i]);
	}
}

/* ---- Afterwards ----------------------------------------------------------------------------- */

/* What waits for a fence goes when the fence has signalled. */
static void must_settle(int fd)
{
	struct drm_txda_memory_info memory = {0};
	int64_t deadline = now_ns() + DEATH_LIMIT;

	for (;;) {
		must(query(fd, DRM_TXDA_QUERY_MEMORY, &memory, sizeof(memory)));
		if (memory.host_used == memory.client_host_used)
			return;
		if (now_ns() > deadline)
			fail("%llu bytes of host memory are left, %llu of them ours",
			     (unsigned long long)memory.host_used,
			     (unsigned long long)memory.client_host_used);
		poll(NULL, 0, 50);
	}
}

/* All that was taken is given back, and the chip works. */
static void check_chip(unsigned int chip)
{
	struct drm_txda_queues_info queues = {0};
	uint32_t vm, queue, made = 0, share;
	int fd = must_open(chip);
	struct stream s;
	struct mem word;
	int err = 0;

	vm = must_vm(fd);
	queue = must_queue(fd, vm);
	word = must_mem(fd, vm, 8);
	s = must_stream(fd, vm);
	put_signal(&s, word.va, 99);
	must(submit_wait(fd, queue, s.mem.va, s.bytes));
	check_equal(*(volatile uint64_t *)word.cpu, 99);

	must_settle(fd);
	must(query(fd, DRM_TXDA_QUERY_QUEUES, &queues, sizeof(queues)));
	/* A user without privileges may have half of a chip's queues, in any number of files. */
	share = geteuid() ? (queues.compute + queues.compute_shared) / 2 : queues.compute;
	for (int file; !err && made < queues.compute;) {
		file = must_open(chip);
		vm = must_vm(file);
		for (uint32_t i = 0; !err && i < queues.max_per_client; i++) {
			err = queue_create_as(file, vm, DRM_TXDA_QUEUE_COMPUTE, 0, 0, &queue);
			made += !err;
		}
	}
	check_equal(made, share - 1);
}

/*
 * In a process of its own: it may be the first to notice that somebody has hung the chip, and what
 * the reset ends then is done again.
 */
static bool serves(unsigned int chip)
{
	pid_t pid = must_fork();
	int status;

	if (!pid) {
		check_chip(chip);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	return !status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seconds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'S'},
		{"processes", required_argument, NULL, 'p'},
		{"threads", required_argument, NULL, 't'},
		{0},
	};
	uint64_t seed = (uint64_t)now_ns();
	unsigned int nodes = node_count();
	int64_t seconds = 10;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's': seconds = atoll(optarg); break;
		case 'S': seed = strtoull(optarg, NULL, 0); break;
		case 'p': processes = (unsigned int)atoi(optarg); break;
		case 't': threads = (unsigned int)atoi(optarg); break;
		default: return 2;
		}
	}
	if (!processes || processes > PROCESSES_MAX || !threads || threads > THREADS_MAX) {
		fprintf(stderr, "1 to %d processes, 1 to %d threads\n", PROCESSES_MAX, THREADS_MAX);
		return 2;
	}
	if (!nodes) {
		fprintf(stderr, "no node of txda\n");
		return 77;
	}
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	check(tally != MAP_FAILED);
	printf("%u nodes, %u processes of %u threads, --seed %llu\n", nodes, processes, threads,
	       (unsigned long long)seed);
	fflush(stdout);

	fuzz(seconds, seed, nodes);
	print_tally();
	for (unsigned int i = 0; i < nodes; i++)
		must_become(serves(i));
	printf("all chips serve\n");
	return 0;
}
