// SPDX-License-Identifier: MIT
/*
 * ioctl_failnth [STEP...] - every ioctl of the driver, with each chance to fail in it taken, one
 * after the other. A call that fails says -ENOMEM or -EFAULT, has no effect that outlives its file,
 * and the chip serves afterwards.
 *
 * ioctl_failnth --write FILE TEXT UNDO-FILE [FROM [EVERY]] - the same for writing TEXT to FILE, as in
 * binding a driver to a chip; where it works all the same TEXT goes to UNDO-FILE. Begins with chance
 * FROM and takes one in EVERY.
 *
 * ioctl_failnth --module FILE [EVERY] - the same for loading a module, which is unloaded in the end.
 */
#include "failnth.h"

#include <sys/syscall.h>

/* No call has as many chances. */
#define MAX_CHANCES 5000

/* ---- Chances -------------------------------------------------------------------------------- */

static int control = -1;

static void open_control(void)
{
	/* Without fault injection in the kernel each call is made once, to see that it works. */
	control = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
}

/* Chance @nth of what this thread does next is taken; 0: none. */
static void arm(unsigned int nth)
{
	unsigned int tries = 0;
	char text[16];
	int n;

	if (control < 0)
		return;
	n = snprintf(text, sizeof(text), "%u", nth);
	/* A chance that is left may be that of copying this very text. */
	while (pwrite(control, text, n, 0) != n)
		if (errno != EFAULT || ++tries > 2)
			fail("fail-nth: %s", strerror_of(errno));
}

/* Whether the chance was taken. */
static bool disarm(void)
{
	char text[16] = "";
	/* Where one is left, copying the answer takes it. */
	bool taken = pread(control, text, sizeof(text) - 1, 0) > 0 && atoi(text) == 0;

	arm(0);
	return taken;
}

/* How often a call ended in which way. */
struct ends {
	unsigned int good, no_memory, fault, other;
};

static void count_end(struct ends *ends, int err)
{
	ends->good += !err;
	ends->no_memory += err == -ENOMEM;
	ends->fault += err == -EFAULT;
	ends->other += err && err != -ENOMEM && err != -EFAULT;
}

static void print_ends(const char *name, unsigned int chances, const struct ends *ends)
{
	printf("  %s: %u chances: %u went well, %u ENOMEM, %u EFAULT, %u other\n", name, chances,
	       ends->good, ends->no_memory, ends->fault, ends->other);
	fflush(stdout);
}

/* ---- Ioctls --------------------------------------------------------------------------------- */

static int first, second = -1;

/* Another open file of the same node. */
static int reopen(int fd)
{
	char path[64];
	int new;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	new = open(path, O_RDWR | O_CLOEXEC);
	if (new < 0)
		fail("cannot open a node again: %s", strerror_of(errno));
	return new;
}

/* Host memory that any address space can have. */
static struct mem must_shared(struct client *c, uint64_t bytes)
{
	struct mem mem = {.va = 1ull << 36, .bytes = bytes};

	must(bo_create(c->fd, bytes, DRM_TXDA_PLACE_HOST, 0, 0, &mem.handle));
	mem.cpu = must_map(c->fd, mem.handle, bytes);
	must(bind_one(c->fd, c->vm, DRM_TXDA_BIND_MAP, mem.handle, 0, mem.va, bytes));
	return mem;
}

static struct world must_world(void)
{
	struct world w = {
		.client.fd = reopen(first),
		.peer = second < 0 ? -1 : reopen(second),
		.buf = -1,
	};
	struct client *c = &w.client;

	c->vm = must_vm(c->fd);
	c->queue = must_queue(c->fd, c->vm);
	c->stream = must_stream(c->fd, c->vm);
	w.host = must_shared(c, 16 * PAGE);
	w.device = must_mem_in(c->fd, c->vm, 16 * PAGE, DRM_TXDA_PLACE_DEVICE);
	w.sync = must_syncobj(c->fd);
	return w;
}

static void end_world(struct world *w)
{
	munmap_mem(&w->client.stream.mem);
	munmap_mem(&w->host);
	munmap_mem(&w->device);
	if (w->buf >= 0)
		close(w->buf);
	if (w->client.fd >= 0)
		close(w->client.fd);
	if (w->peer >= 0)
		close(w->peer);
}

static void must_serve(void)
{
	struct world w = must_world();

	must(dev_fill(&w.client, w.device.va, PAGE, 0x600d600d));
	must(dev_copy(&w.client, w.host.va, w.device.va, PAGE));
	check(is_filled(w.host.cpu, PAGE, 0x600d600d));
	end_world(&w);
}

/* One try; false: there is no chance @nth. */
static bool try_step(const struct step *step, unsigned int nth, struct ends *ends)
{
	struct world w = must_world();
	bool taken;
	int err;

	if (step->prepare)
		step->prepare(&w);
	arm(nth);
	err = step->run(&w);
	taken = disarm();
	if (!taken && err)
		fail("%s: %s, though nothing was in its way", step->name, strerror_of(err));
	if (err && err != -ENOMEM && err != -EFAULT)
		fail("%s, chance %u: %s", step->name, nth, strerror_of(err));
	count_end(ends, err);
	if (step->after)
		step->after(&w, err);
	end_world(&w);
	return taken;
}

static void run_step(const struct step *step)
{
	struct drm_txda_memory_info before;
	struct ends ends = {0};
	unsigned int nth = 1;

	open_control();
	first = must_open(0);
	if (node_count() > 1)
		second = must_open(1);
	before = must_memory(first);
	while (try_step(step, nth, &ends)) {
		if (++nth > MAX_CHANCES)
			fail("%s has no end", step->name);
	}
	must_serve();
	must_settle(first, before.device_used);
	print_ends(step->name, nth - 1, &ends);
}

/* In a process of its own; its exit status. */
static int run_child(const struct step *step)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		run_step(step);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status))
		fprintf(stderr, "  killed by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* 0, 1, or 77 as soon as one cannot be done here. */
static int run_table(const struct step *steps, size_t n, int argc, char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < n; i++) {
		bool wanted = argc <= 1;
		int status;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], steps[i].name);
		if (!wanted)
			continue;
		status = run_child(&steps[i]);
		if (status == 77)
			return status;
		if (status)
			printf("FAIL %s\n", steps[i].name);
		failed |= status;
	}
	return failed ? 1 : 0;
}

static int run_steps(int argc, char **argv)
{
	int status = run_table(failnth_steps, failnth_n_steps, argc, argv), idle;

	if (status == 77)
		return status;
	idle = run_table(failnth_idle_steps, failnth_n_idle_steps, argc, argv);
	return status ? status : idle;
}

/* ---- Binding, and loading the module -------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = -errno;
	close(fd);
	return err;
}

static int try_writes(const char *path, const char *text, const char *undo, unsigned int from,
		      unsigned int every)
{
	struct ends ends = {0};
	unsigned int nth, tries = 0;
	bool taken = true;
	int err;

	open_control();
	for (nth = from; taken; nth += every, tries++) {
		arm(nth);
		err = write_file(path, text);
		taken = disarm();
		count_end(&ends, err);
		if (err && err != -ENOMEM && err != -EFAULT)
			printf("  chance %u: %s\n", nth, strerror_of(err));
		if (!taken && err)
			fail("%s: %s, though nothing was in its way", path, strerror_of(err));
		/* It may have come to pass, and the writer not have been told. */
		arm(0);
		err = write_file(undo, text);
		if (!taken && err)
			fail("%s: %s", undo, strerror_of(err));
	}
	printf("  the last chance is below %u\n", nth - every);
	print_ends(path, tries - 1, &ends);
	return 0;
}

static int try_loads(const char *path, unsigned int every)
{
	struct ends ends = {0};
	unsigned int nth, tries = 0;
	bool taken = true;
	int err, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", path, strerror_of(errno));
	open_control();
	for (nth = 1; taken; nth += every, tries++) {
		arm(nth);
		err = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
		taken = disarm();
		count_end(&ends, err);
		if (err && err != -ENOMEM && err != -EFAULT)
			printf("  chance %u: %s\n", nth, strerror_of(err));
		if (!taken && err)
			fail("%s: %s, though nothing was in its way", path, strerror_of(err));
		if (!err && syscall(SYS_delete_module, "txda", O_NONBLOCK))
			fail("the module cannot be unloaded: %s", strerror_of(errno));
	}
	print_ends(path, tries - 1, &ends);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 5 && !strcmp(argv[1], "--write"))
		return try_writes(argv[2], argv[3], argv[4],
				  argc > 5 ? (unsigned int)atoi(argv[5]) : 1,
				  argc > 6 ? (unsigned int)atoi(argv[6]) : 1);
	if (argc >= 3 && !strcmp(argv[1], "--module"))
		return try_loads(argv[2], argc > 3 ? (unsigned int)atoi(argv[3]) : 1);
	return run_steps(argc, argv);
}
