// SPDX-License-Identifier: MIT
#include "decode_apart.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "confine.h"
#include "priority.h"
#include "program.h"
#include "set_error.h"

#define SECONDS	    20
#define LOOK_MS	    100		  /* how often to look whether the caller is gone */
#define BASE_MEMORY (96ull << 20) /* the program, its libraries, the decoders' tables */

/* Runs between vfork() and exec, in the caller's memory: system calls only. */
static int exec_decoder(const char *program, int socket, const struct confine_limits *limits)
{
	char *const argv[] = {(char *)(uintptr_t)program, NULL}, *const env[] = {NULL};
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(socket, 0) < 0 || dup2(socket, 1) < 0 || dup2(socket, 2) < 0 ||
	    close_range(3, ~0u, 0))
		return errno;
	confine_limit(limits);
	execve(program, argv, env);
	return errno;
}

static int start(const char *program, const struct confine_limits *limits, pid_t *ret_pid,
		 int *ret_fd)
{
	volatile int error = 0; /* set by the child, which shares this memory */
	sigset_t all, before;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	/* No signal handler may run in a child that shares this memory. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = vfork();
	if (!pid) {
		error = exec_decoder(program, pair[1], limits);
		_exit(127);
	}
	if (pid < 0)
		error = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close(pair[1]);
	if (error) {
		if (pid > 0)
			waitpid(pid, NULL, 0);
		close(pair[0]);
		return -error;
	}
	*ret_pid = pid;
	*ret_fd = pair[0];
	return 0;
}

/* A child that decodes. */
struct decoder {
	pid_t pid;
	int fd;
	uint64_t deadline_ns;
	uint64_t low_ns; /* UINT64_MAX: never, or its priority is low already */
	const atomic_bool *gone;
};

/* Lowers its priority when it is time; returns the milliseconds until there is something to do. */
static int wait_ms(struct decoder *d, uint64_t now)
{
	uint64_t next = d->deadline_ns, ms;

	if (now >= d->low_ns) {
		priority_lower(d->pid);
		d->low_ns = UINT64_MAX;
	}
	if (d->low_ns < next)
		next = d->low_ns;
	ms = (next - now) / 1000000 + 1;
	return d->gone && ms > LOOK_MS ? LOOK_MS : (int)ms;
}

/* Sends or receives all of @n bytes until the deadline. */
static int transfer(struct decoder *d, bool out, void *data, size_t n)
{
	while (n) {
		struct pollfd p = {.fd = d->fd, .events = out ? POLLOUT : POLLIN};
		uint64_t now = clock_ns();
		ssize_t done;

		if (d->gone && atomic_load(d->gone))
			return -ECANCELED;
		if (now >= d->deadline_ns)
			return -ETIMEDOUT;
		if (poll(&p, 1, wait_ms(d, now)) < 0 && errno != EINTR)
			return -errno;
		done = out ? send(d->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
			   : recv(d->fd, data, n, MSG_DONTWAIT);
		if (done < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (done <= 0)
			return -EPIPE;
		data = (char *)data + done;
		n -= (size_t)done;
	}
	return 0;
}

/* Reads and checks the header of the answer, which is untrusted. */
static int take_picture(struct decoder *d, struct image_answer *a, uint64_t max_pixels,
			const struct image_child_options *o, struct image_picture *ret, char *err,
			size_t errlen)
{
	struct image_picture p = {a->width, a->height, NULL};
	int r;

	a->text[sizeof(a->text) - 1] = '\0';
	for (char *s = a->text; *s; s++)
		*s = *s >= ' ' && *s <= '~' ? *s : '?';
	if (a->code)
		return set_error(a->code == -E2BIG || a->code == -ENOTSUP || a->code == -ENOMEM
					 ? a->code
					 : -EINVAL,
				 err, errlen, "%s", a->text);
	if (!p.width || !p.height || p.width > 65535 || p.height > 65535 ||
	    (uint64_t)p.width * p.height > max_pixels)
		return set_error(-EINVAL, err, errlen, "the decoder gives a picture of %u x %u",
				 p.width, p.height);
	if (o && o->may_take && !o->may_take(o->arg, p.width, p.height))
		return set_error(-EDQUOT, err, errlen, "a picture of %u x %u takes too much memory",
				 p.width, p.height);
	p.rgb = malloc(image_picture_bytes(p.width, p.height));
	if (!p.rgb)
		return set_error(-ENOMEM, err, errlen, "no memory for a picture of %u x %u",
				 p.width, p.height);
	r = transfer(d, false, p.rgb, image_picture_bytes(p.width, p.height));
	if (r) {
		free(p.rgb);
		return r;
	}
	*ret = p;
	return 0;
}

static int converse(struct decoder *d, const void *data, size_t bytes, uint64_t max_pixels,
		    const struct image_child_options *o, unsigned seconds,
		    struct image_picture *ret, char *err, size_t errlen)
{
	struct image_request request = {bytes, max_pixels};
	struct image_answer answer;
	int r;

	err[0] = '\0';
	d->deadline_ns = clock_ns() + seconds * 1000000000ull;
	if (o && o->end_ns && o->end_ns < d->deadline_ns)
		d->deadline_ns = o->end_ns;
	d->low_ns = o && o->low_ns ? o->low_ns : UINT64_MAX;
	d->gone = o ? o->gone : NULL;
	r = transfer(d, true, &request, sizeof(request));
	if (!r)
		r = transfer(d, true, (void *)(uintptr_t)data, bytes);
	/* A child that refuses the request early still answers. */
	if (!r || r == -EPIPE)
		r = transfer(d, false, &answer, sizeof(answer));
	if (!r)
		r = take_picture(d, &answer, max_pixels, o, ret, err, errlen);
	if (r == -ETIMEDOUT && !err[0])
		return set_error(r, err, errlen, "the picture was not decoded within %u seconds",
				 seconds);
	if (r && !err[0])
		return set_error(r, err, errlen,
				 "the decoder ended without a picture: it is broken, or "
				 "needs more memory than it may");
	return r;
}

int image_decode_apart(const void *data, size_t bytes, uint64_t max_pixels,
		       const struct image_child_options *options, struct image_picture *ret,
		       char *err, size_t errlen)
{
	unsigned seconds = options && options->seconds ? options->seconds : SECONDS;
	const struct confine_limits limits = {
		/*
		 * The file, two copies of the picture, a decoder's planes; a sanitizer's runtime
		 * needs unlimited address space.
		 */
		.memory = confine_works() ? BASE_MEMORY + bytes + 12 * max_pixels : 0,
		.file_size = 1,
		.cpu_seconds = seconds,
		.descriptors = 16,
	};
	struct decoder d;
	char path[4096];
	int r = 0, status = 0;

	if (bytes > IMAGE_MAX_BYTES)
		return set_error(-E2BIG, err, errlen, "a picture of %zu bytes; the limit is %u",
				 bytes, IMAGE_MAX_BYTES);
	if (options && options->program)
		snprintf(path, sizeof(path), "%s", options->program);
	else
		r = program_find("txda-decode", path, sizeof(path));
	if (!r)
		r = start(path, &limits, &d.pid, &d.fd);
	if (r)
		return set_error(r, err, errlen, "cannot start txda-decode: %s", strerror(-r));
	r = converse(&d, data, bytes, max_pixels, options, seconds, ret, err, errlen);
	close(d.fd);
	kill(d.pid, SIGKILL);
	while (waitpid(d.pid, &status, 0) < 0 && errno == EINTR)
		;
	/*
	 * Where vfork() is actually fork(), as under some sanitizers, start() does not see the
	 * error.
	 */
	if (r == -EPIPE && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return set_error(-ENOENT, err, errlen,
				 "cannot start txda-decode: %s is not executable", path);
	return r;
}
