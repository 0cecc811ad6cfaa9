// SPDX-License-Identifier: MIT
/*
 * Pictures that a process of its own decodes: the same pixels, the same errors, and what is left when
 * the process is none of ours, says nothing, or has less memory than its picture needs.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "clock.h"
#include "confine.h"
#include "decode_apart.h"
#include "priority.h"

static uint8_t file[1 << 20];
static char err[300];

static size_t read_picture(const char *name)
{
	char path[1024];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/qwen2_vl/images/%s", getenv("TXDA_FIXTURES"), name);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(file, 1, sizeof(file), f);
	fclose(f);
	return n;
}

static int decode(size_t n, uint64_t max, struct image_picture *p)
{
	const struct image_child_options o = {.program = getenv("TXDA_DECODE")};

	assert_non_null(o.program);
	return image_decode_apart(file, n, max, &o, p, err, sizeof(err));
}

TEST(test_decodes)
{
	static const struct {
		const char *name;
		uint32_t width, height;
	} pictures[] = {{"b.jpg", 120, 88}, {"c.png", 61, 33}, {"e.png", 211, 37}, {"f.png", 5, 7}};

	for (int i = 0; i < 4; i++) {
		struct image_picture p;

		if (decode(read_picture(pictures[i].name), 1 << 20, &p))
			fail_msg("%s: %s", pictures[i].name, err);
		assert_int_equal(p.width, pictures[i].width);
		assert_int_equal(p.height, pictures[i].height);
		free(p.rgb);
	}
	/* No process is left behind. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

TEST(test_errors)
{
	struct image_picture p;
	size_t n = read_picture("c.png");

	assert_int_equal(decode(n, 100, &p), -E2BIG);
	assert_non_null(strstr(err, "61 x 33"));
	assert_int_equal(decode(n / 2, 1 << 20, &p), -EINVAL);
	assert_int_equal(decode(0, 1 << 20, &p), -ENOTSUP);
	assert_int_equal(decode((size_t)IMAGE_MAX_BYTES + 1, 1 << 20, &p), -E2BIG);
}

/* Other programs in its place: one that is not there, ends at once, or never says a word. */
TEST(test_other_programs)
{
	const struct image_child_options none = {.program = "/nowhere/txda-decode"},
					 ends = {.program = "/bin/true"},
					 silent = {.program = "/usr/bin/yes", .seconds = 1};
	struct image_picture p;
	size_t n = read_picture("f.png");

	assert_int_equal(image_decode_apart(file, n, 100, &none, &p, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "txda-decode"));
	assert_int_equal(image_decode_apart(file, n, 100, &ends, &p, err, sizeof(err)), -EPIPE);
	/* "y" again and again is an error whose words are cleaned. */
	assert_int_equal(image_decode_apart(file, n, 100, &silent, &p, err, sizeof(err)), -EINVAL);
	for (const char *s = err; *s; s++)
		assert_true(*s >= ' ' && *s <= '~');
}

/* With a low priority, if its time has come. */
TEST(test_priority)
{
	char path[] = "/tmp/txda-decode-XXXXXX", text[400];
	int own = getpriority(PRIO_PROCESS, 0), nice, fd = mkstemp(path);
	struct image_child_options o = {.program = path};
	size_t n = read_picture("f.png");
	struct image_picture p;

	if (own >= PRIORITY_LOW || !priority_works())
		skip();
	/* An answer whose text is the nice value that it has after a moment. */
	snprintf(text, sizeof(text),
		 "#!/bin/sh\nsleep 0.2\nprintf '\\377\\377\\377\\377%%8s%%-236s' '' \"$(nice)\"\n");
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, 0700);
	close(fd);
	for (unsigned low = 0; low < 2; low++) {
		o.low_ns = low;
		assert_int_not_equal(image_decode_apart(file, n, 100, &o, &p, err, sizeof(err)), 0);
		assert_int_equal(sscanf(err, "%d", &nice), 1);
		assert_int_equal(nice, low ? PRIORITY_LOW : own);
	}
	unlink(path);
}

static void *leave(void *gone)
{
	atomic_store((atomic_bool *)gone, true);
	return NULL;
}

/* It does not go on for a caller who has no more time, or has left. */
TEST(test_nobody_waits)
{
	static const char text[] = "#!/bin/sh\nexec sleep 3600\n";
	char path[] = "/tmp/txda-decode-XXXXXX";
	int fd = mkstemp(path);
	atomic_bool gone = false;
	struct image_child_options o = {.program = path, .seconds = 3600, .gone = &gone};
	size_t n = read_picture("f.png");
	struct image_picture p;
	pthread_t thread;

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, 0700);
	close(fd);
	o.end_ns = clock_ns() + 1000000;
	assert_int_equal(image_decode_apart(file, n, 100, &o, &p, err, sizeof(err)), -ETIMEDOUT);
	o.end_ns = 0;
	assert_int_equal(pthread_create(&thread, NULL, leave, &gone), 0);
	assert_int_equal(image_decode_apart(file, n, 100, &o, &p, err, sizeof(err)), -ECANCELED);
	pthread_join(thread, NULL);
	/* No process is left behind. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	unlink(path);
}

struct asked {
	unsigned times;
	uint32_t width, height;
	const struct image_picture *picture;
	bool answer;
};

static bool may_take(void *arg, uint32_t width, uint32_t height)
{
	struct asked *a = arg;

	/* Nothing has been allocated yet. */
	assert_null(a->picture->rgb);
	a->times++;
	a->width = width;
	a->height = height;
	return a->answer;
}

/* The caller may refuse a picture's size before it takes memory for it. */
TEST(test_memory_is_asked_for)
{
	struct image_picture p = {0};
	struct asked asked = {.picture = &p};
	const struct image_child_options o = {
		.program = getenv("TXDA_DECODE"), .may_take = may_take, .arg = &asked};
	size_t n = read_picture("c.png");

	assert_int_equal(image_decode_apart(file, n, 1 << 20, &o, &p, err, sizeof(err)), -EDQUOT);
	assert_int_equal(asked.times, 1);
	assert_int_equal(asked.width, 61);
	assert_int_equal(asked.height, 33);
	assert_null(p.rgb);
	asked.answer = true;
	assert_int_equal(image_decode_apart(file, n, 1 << 20, &o, &p, err, sizeof(err)), 0);
	assert_int_equal(asked.times, 2);
	free(p.rgb);
}

static void *decode_many(void *arg)
{
	const struct image_child_options o = {.program = getenv("TXDA_DECODE")};
	size_t n = *(size_t *)arg;
	char text[200];

	for (int i = 0; i < 8; i++) {
		struct image_picture p;

		if (image_decode_apart(file, n, 1 << 20, &o, &p, text, sizeof(text)))
			return arg;
		free(p.rgb);
	}
	return NULL;
}

TEST(test_threads)
{
	size_t n = read_picture("b.jpg");
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, decode_many, &n), 0);
	for (int i = 0; i < 4; i++) {
		void *failed;

		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
}

/* Whether what the kernel says of a process has the line. */
static bool has_line(pid_t pid, const char *line)
{
	char path[64], text[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return strstr(text, line);
}

/* The program itself, before it has read the first byte of a picture. */
TEST(test_confined)
{
	const char *program = getenv("TXDA_DECODE");
	int sockets[2], status;
	pid_t pid;

	if (!confine_works())
		skip();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(sockets[1], 0);
		dup2(sockets[1], 1);
		execl(program, program, (char *)NULL);
		_exit(127);
	}
	close(sockets[1]);
	while (!has_line(pid, "\nSeccomp:\t2\n")) {
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		usleep(1000);
	}
	assert_true(has_line(pid, "\nNoNewPrivs:\t1\n"));
	close(sockets[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
}

TEST_MAIN
