// SPDX-License-Identifier: MIT
#include "text_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "io.h"
#include "log.h"
#include "priority.h"
#include "program.h"
#include "sha256.h"

#define LOOK_MS 100 /* interval of checks whether the caller has gone */
/* Minimum time between log lines on jobs, since users can provoke them. */
#define LOG_EVERY_NS 1000000000ull

extern char **environ;

struct lane {
	int fd;	     /* -1: there is none */
	pid_t pid;   /* 0: it is not known yet */
	pid_t group; /* of the text process, which its children cannot leave */
	bool low;    /* has a low priority, for good */
	bool busy;
};

/* A message of which a part may have been read. */
struct reading {
	uint32_t size;
	size_t got;
	char *data; /* [size], once that is known */
};

struct text_process {
	struct text_process_options options;
	char dir[PATH_MAX], program[PATH_MAX];
	char *tower;	    /* NULL, or in hexadecimal digits */
	uint8_t digest[32]; /* hash of what it read; a restarted process must have read the same */
	pthread_mutex_t lock;
	pthread_cond_t started; /* a start has ended, or needs another caller to drive it */
	/*
	 * Under lock. While a process is being started, one of the callers that wait for it drives
	 * the start, without the lock; pid, control and the next two members are that caller's.
	 */
	bool starting, driven;
	pid_t pid;		/* 0: there is none */
	int control;		/* -1: likewise */
	uint64_t start_left_ns; /* what its start may still take while it is read */
	struct reading loaded;	/* what the new process has read */
	unsigned n_waiting;	/* callers that wait for the start, besides its driver */
	unsigned failures;	/* of starts */
	char failure[512];	/* the last one's words */
	struct lane lanes[TEXT_LANES];
	uint64_t logged_ns; /* time of the last log line on an aborted job */
	unsigned unlogged;  /* jobs aborted since then */
};

/* ---- reading and writing --------------------------------------------------------------------- */

/* Time limit of an operation, and its caller. */
struct patience {
	uint64_t end_ns;
	const atomic_bool *gone; /* NULL: the caller never goes away */
	uint64_t low_ns;	 /* as in text_caller */
	struct lane *lane;	 /* NULL: low_ns does not matter */
};

/* Lowers the priority of the lane once its caller's time for that has come. */
static void lower_in_time(const struct patience *p, uint64_t now)
{
	if (!p->lane || p->lane->low || !p->lane->pid || !p->low_ns || now < p->low_ns)
		return;
	/* Otherwise it has ended, and the id may be that of another process or thread by now. */
	if (getpgid(p->lane->pid) == p->lane->group)
		priority_lower(p->lane->pid);
	p->lane->low = true;
}

/* Waits until the socket is ready for @events. */
static int await(int fd, short events, const struct patience *p)
{
	struct pollfd ready = {.fd = fd, .events = events};

	for (;;) {
		uint64_t now = clock_ns();
		uint64_t left = p->end_ns > now ? (p->end_ns - now + 999999) / 1000000 : 0;
		int n;

		lower_in_time(p, now);
		if (p->gone && atomic_load(p->gone))
			return -ECANCELED;
		if (!left)
			return -ETIMEDOUT;
		n = poll(&ready, 1, left < LOOK_MS ? (int)left : LOOK_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* Reads on from *at up to @end. -EPIPE: the other end was closed. */
static int read_up_to(int fd, char *to, size_t *at, size_t end, const struct patience *p)
{
	while (*at < end) {
		ssize_t got = recv(fd, to + *at, end - *at, MSG_DONTWAIT);
		int r;

		if (got > 0) {
			*at += (size_t)got;
			continue;
		}
		if (!got || (errno != EAGAIN && errno != EINTR))
			return -EPIPE;
		r = await(fd, POLLIN, p);
		if (r)
			return r;
	}
	return 0;
}

static int write_all(int fd, struct iovec *parts, unsigned n_parts, const struct patience *p)
{
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};

	while (message.msg_iovlen) {
		ssize_t put = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		int r;

		if (put < 0 && errno != EAGAIN && errno != EINTR)
			return -EPIPE;
		if (put < 0) {
			r = await(fd, POLLOUT, p);
			if (r)
				return r;
			continue;
		}
		io_advance(&message, (size_t)put);
	}
	return 0;
}

/*
 * A message of at least @head and at most @most bytes, preceded by its size. After an error @in has
 * what was read so far: to read on, or for drop_reading().
 */
static int read_message(int fd, struct reading *in, size_t head, size_t most,
			const struct patience *p, void **ret)
{
	int r = 0;

	if (!in->data)
		r = read_up_to(fd, (char *)&in->size, &in->got, sizeof(in->size), p);
	if (r)
		return r;
	if (in->size < head || in->size > most)
		return -EPROTO;
	if (!in->data) {
		in->data = malloc(in->size);
		if (!in->data)
			return -ENOMEM;
		memcpy(in->data, &in->size, sizeof(in->size));
	}
	r = read_up_to(fd, in->data, &in->got, in->size, p);
	if (r)
		return r;
	*ret = in->data;
	*in = (struct reading){0};
	return 0;
}

static void drop_reading(struct reading *in)
{
	free(in->data);
	*in = (struct reading){0};
}

static uint64_t end_of(const struct text_process *p)
{
	return clock_ns() + p->options.seconds * (uint64_t)1000000000;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void *reap(void *arg)
{
	while (waitpid((pid_t)(intptr_t)arg, NULL, 0) < 0 && errno == EINTR)
		;
	return NULL;
}

/*
 * Kills the process, if there is one, and everything it started: its children cannot leave its
 * process group. A thread waits for its end, as the kernel may take long to free a large process.
 */
static void end_process(struct text_process *p)
{
	void *pid = (void *)(intptr_t)p->pid;
	pthread_t thread;

	close_fd(&p->control);
	drop_reading(&p->loaded);
	if (p->pid)
		kill(-p->pid, SIGKILL);
	if (p->pid && !waitpid(p->pid, NULL, WNOHANG)) {
		if (pthread_create(&thread, NULL, reap, pid))
			reap(pid);
		else
			pthread_detach(thread);
	}
	p->pid = 0;
}

/*
 * Its environment consists of the time zone, for templates that format times, and the sanitizers'
 * options.
 */
static void choose_environment(char *env[8])
{
	static const char *const names[] = {
		"TZ=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS="};
	static char locale[] = "LC_ALL=C.UTF-8";
	unsigned n = 0;

	env[n++] = locale;
	for (char **e = environ; *e; e++)
		for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && n < 7; i++)
			if (!strncmp(*e, names[i], strlen(names[i])))
				env[n++] = *e;
	env[n] = NULL;
}

/* Starts the program with the socket as its standard input, and no other open descriptors. */
static int spawn(struct text_process *p, int fd)
{
	char memory[24], seconds[16], *env[8];
	char *argv[] = {p->program, p->dir, memory, seconds, p->tower, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none, all;
	int r;

	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)p->options.memory);
	snprintf(seconds, sizeof(seconds), "%u", p->options.seconds);
	choose_environment(env);
	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&files))
		return -ENOMEM;
	if (posix_spawnattr_init(&how)) {
		posix_spawn_file_actions_destroy(&files);
		return -ENOMEM;
	}
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setsigdefault(&how, &all);
	posix_spawnattr_setpgroup(&how, 0);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
					       POSIX_SPAWN_SETPGROUP);
	r = posix_spawn_file_actions_adddup2(&files, fd, 0);
	if (!r)
		r = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&files, 1, 2);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(&files, 3);
	if (!r)
		r = posix_spawn(&p->pid, p->program, &files, &how, argv, env);
	if (r)
		p->pid = 0;
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* Checks a message of the process and terminates its strings. */
static int check_loaded(struct text_loaded *l)
{
	l->message[sizeof(l->message) - 1] = '\0';
	l->chat_error[sizeof(l->chat_error) - 1] = '\0';
	l->image_error[sizeof(l->image_error) - 1] = '\0';
	if (l->error > 0 || l->n_stop_tokens > TEXT_STOP_TOKENS ||
	    (!l->error && (!text_part_fits(&l->tables, sizeof(*l), l->size) ||
			   !text_part_fits(&l->images, sizeof(*l), l->size))))
		return -EPROTO;
	return 0;
}

static void explain_failure(const struct text_process *p, int r, const struct text_loaded *l,
			    char *err, size_t errlen)
{
	if (l && l->error && !r)
		snprintf(err, errlen, "%s", *l->message ? l->message : strerror(-l->error));
	else if (r == -ETIMEDOUT)
		snprintf(err, errlen,
			 "the tokeniser in %.300s was not read within %u s (--text-timeout)",
			 p->dir, p->options.seconds);
	else if (r == -EPIPE || r == -EPROTO)
		snprintf(err, errlen,
			 "the process that reads the tokeniser in %.300s %s; its memory is limited "
			 "to %llu bytes (--text-memory)",
			 p->dir, r == -EPIPE ? "ended" : "sent an invalid reply",
			 (unsigned long long)p->options.memory);
	else
		snprintf(err, errlen, "cannot run %.200s: %s", p->program, strerror(-r));
}

#define START_UNFINISHED 1

/*
 * Starts the process, unless that was begun, and receives what it has read. START_UNFINISHED: @gone,
 * or @end_ns has come before the start's own time was over; it may be continued.
 */
static int start(struct text_process *p, uint64_t end_ns, const atomic_bool *gone,
		 struct text_loaded **ret, char *err, size_t errlen)
{
	uint64_t begun = clock_ns(), its_end;
	struct patience patience = {.gone = gone};
	struct text_loaded *l = NULL;
	int pair[2] = {-1, -1}, r = 0;

	if (!p->pid) {
		p->start_left_ns = p->options.seconds * 1000000000ull;
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			r = -errno;
		p->control = pair[0];
		if (!r)
			r = spawn(p, pair[1]);
		close_fd(&pair[1]);
	}
	/* The time in which nobody reads what it sends is not the process's. */
	its_end = begun + p->start_left_ns;
	patience.end_ns = end_ns < its_end ? end_ns : its_end;
	if (!r)
		r = read_message(p->control, &p->loaded, sizeof(*l), TEXT_MESSAGE_MAX, &patience,
				 (void **)&l);
	if (r == -ECANCELED || (r == -ETIMEDOUT && end_ns < its_end)) {
		its_end -= clock_ns() - begun;
		p->start_left_ns = its_end > begun ? its_end - begun : 0;
		return START_UNFINISHED;
	}
	if (!r)
		r = check_loaded(l);
	if (r || l->error) {
		explain_failure(p, r, l, err, errlen);
		r = r ? r : l->error;
		end_process(p);
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void digest_of(const struct text_loaded *l, uint8_t digest[32])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_update(&h, l, l->size);
	sha256_final(&h, digest);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/*
 * Makes the process start lane @index, with @fd. -EPIPE: the process has ended; other errors, as of
 * one that is behind with its orders, concern only this lane.
 */
static int order_lane(const struct text_process *p, unsigned index, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct text_lane wanted = {.index = index};
	struct iovec data = {&wanted, sizeof(wanted)};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(p->control, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == ECONNRESET ? -EPIPE : -errno;
}

/* The lock is held. Starts a fresh lane; the previous one is killed. */
static int begin_lane(struct text_process *p, unsigned index)
{
	struct lane *lane = &p->lanes[index];
	int pair[2], on = 1, r = -EPIPE;

	close_fd(&lane->fd);
	lane->pid = 0;
	lane->group = p->starting ? 0 : p->pid;
	lane->low = false;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	/* Before the lane can send anything. */
	if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		r = -errno;
	else if (!p->starting && p->pid)
		r = order_lane(p, index, pair[1]);
	close(pair[1]);
	if (r)
		close(pair[0]);
	else
		lane->fd = pair[0];
	return r;
}

/*
 * Takes a lane's first byte, and from the kernel which process has sent it: neither the lane nor the
 * text process can name another one, whose priority would be lowered then. -EAGAIN: it has not
 * started yet.
 */
static int meet(struct lane *lane)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	char ready;
	struct iovec data = {&ready, sizeof(ready)};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	const struct cmsghdr *c;
	struct ucred sender;
	ssize_t n;
	int off = 0;

	do
		n = recvmsg(lane->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	c = n == sizeof(ready) ? CMSG_FIRSTHDR(&message) : NULL;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
		return -EPIPE;
	memcpy(&sender, CMSG_DATA(c), sizeof(sender));
	/* Nor itself: all children that it starts later would inherit the priority. */
	if (sender.pid <= 0 || sender.pid == lane->group)
		return -EPIPE;
	lane->pid = sender.pid;
	setsockopt(lane->fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
	return 0;
}

static int await_start(struct lane *lane, const struct patience *p)
{
	int r = lane->pid ? 0 : meet(lane);

	while (r == -EAGAIN) {
		r = await(lane->fd, POLLIN, p);
		if (!r)
			r = meet(lane);
	}
	return r;
}

/*
 * The process has ended, or is being started: starts another one, which must have read the same
 * files. START_UNFINISHED as of start().
 */
static int drive(struct text_process *p, const struct text_caller *caller, char *err, size_t errlen)
{
	uint64_t end_ns = caller->deadline_ns ? caller->deadline_ns : UINT64_MAX;
	struct text_loaded *l;
	uint8_t digest[32];
	int r = start(p, end_ns, &caller->gone, &l, err, errlen);

	if (r)
		return r;
	digest_of(l, digest);
	free(l);
	if (!memcmp(digest, p->digest, sizeof(digest)))
		return 0;
	end_process(p);
	snprintf(err, errlen, "the tokeniser in %.300s has changed since the model was loaded",
		 p->dir);
	return -ESTALE;
}

/* Waits a moment for a start that another caller drives. */
static void wait_for_start(struct text_process *p, const struct text_caller *caller)
{
	uint64_t until = clock_ns() + LOOK_MS * 1000000ull;
	struct timespec time;

	if (caller->deadline_ns && caller->deadline_ns < until)
		until = caller->deadline_ns;
	time = (struct timespec){(time_t)(until / 1000000000), (long)(until % 1000000000)};
	p->n_waiting++;
	pthread_cond_timedwait(&p->started, &p->lock, &time);
	p->n_waiting--;
}

/*
 * The lock is held, but not meanwhile. Waits until a start has ended, and begins or drives it
 * unless another caller does. -ECANCELED, -ETIMEDOUT: this caller waits no longer; a start that
 * others still wait for, or will soon, goes on. -EIO: it has failed, for all who waited for it.
 */
static int start_again(struct text_process *p, const struct text_caller *caller, char *err,
		       size_t errlen)
{
	unsigned failures = p->failures;
	char words[sizeof(p->failure)];
	int r;

	if (!p->starting) {
		p->starting = true;
		log_warning("the text process of %s exited; starting another one", p->dir);
		end_process(p);
	}
	while (p->starting && p->failures == failures && !atomic_load(&caller->gone) &&
	       !(caller->deadline_ns && clock_ns() >= caller->deadline_ns)) {
		if (p->driven) {
			wait_for_start(p, caller);
			continue;
		}
		p->driven = true;
		pthread_mutex_unlock(&p->lock);
		r = drive(p, caller, words, sizeof(words));
		pthread_mutex_lock(&p->lock);
		p->driven = false;
		p->starting = r == START_UNFINISHED;
		if (r < 0) {
			p->failures++;
			memcpy(p->failure, words, sizeof(p->failure));
		}
		/* Who has gone may be the reason why it takes so long. */
		if (p->starting && !p->n_waiting && atomic_load(&caller->gone)) {
			end_process(p);
			p->starting = false;
		}
		for (unsigned i = 0; !r && i < TEXT_LANES_READY; i++)
			if (!p->lanes[i].busy)
				begin_lane(p, i);
		pthread_cond_broadcast(&p->started);
	}
	if (p->failures != failures) {
		snprintf(err, errlen, "%s", p->failure);
		return -EIO;
	}
	return atomic_load(&caller->gone) ? -ECANCELED : p->starting ? -ETIMEDOUT : 0;
}

/* An idle lane must not send anything, apart from its first byte. */
static bool is_sound(struct lane *lane)
{
	struct pollfd ready = {.fd = lane->fd, .events = POLLIN};

	if (lane->fd < 0)
		return false;
	if (!lane->pid) {
		int r = meet(lane);

		if (r)
			return r == -EAGAIN;
	}
	return !poll(&ready, 1, 0);
}

/*
 * The idle lane to use, TEXT_LANES: there is none. Rather one of the right priority, since one that
 * was lowered has to be started again for other users.
 */
static unsigned choose_lane(const struct text_process *p, bool low)
{
	unsigned found = TEXT_LANES;

	for (unsigned i = 0; i < TEXT_LANES; i++) {
		const struct lane *lane = &p->lanes[i];

		if (lane->busy)
			continue;
		if (lane->fd >= 0 && lane->low == low)
			return i;
		if (found == TEXT_LANES || (p->lanes[found].fd >= 0 && lane->fd < 0))
			found = i;
	}
	return found;
}

/* Whether it is still running; its pid stays reserved until end_process(). */
static bool is_alive(const struct text_process *p)
{
	siginfo_t ended = {0};

	return p->pid && !waitid(P_PID, (id_t)p->pid, &ended, WEXITED | WNOHANG | WNOWAIT) &&
	       !ended.si_pid;
}

/* The lock is held. Makes lane @i ready for use. -EPIPE: there is no process. */
static int prepare_lane(struct text_process *p, unsigned i, bool low)
{
	if (p->starting)
		return -EPIPE;
	if (is_sound(&p->lanes[i]) && p->lanes[i].low <= low)
		return 0;
	/* A dead process is detected when it is used, and by the end of its lanes. */
	return is_alive(p) ? begin_lane(p, i) : -EPIPE;
}

/* There are as many lanes as threads that may call. */
static int take_lane(struct text_process *p, const struct text_caller *caller, unsigned *ret,
		     char *err, size_t errlen)
{
	bool low = caller->low_ns && caller->low_ns <= clock_ns();
	unsigned i;
	int r;

	pthread_mutex_lock(&p->lock);
	i = choose_lane(p, low);
	r = i == TEXT_LANES ? -EBUSY : prepare_lane(p, i, low);
	if (r == -EPIPE) {
		r = start_again(p, caller, err, errlen);
		i = choose_lane(p, low);
		if (!r)
			r = i == TEXT_LANES ? -EBUSY : prepare_lane(p, i, low);
	}
	if (r == -EBUSY)
		snprintf(err, errlen, "all of %d lanes of the text process are busy", TEXT_LANES);
	else if (r && r != -ECANCELED && r != -ETIMEDOUT && r != -EIO)
		snprintf(err, errlen, "a lane of the text process: %s", strerror(-r));
	if (r && r != -ECANCELED && r != -ETIMEDOUT)
		r = -EIO;
	if (!r)
		p->lanes[i].busy = true;
	pthread_mutex_unlock(&p->lock);
	*ret = i;
	return r;
}

static void give_lane_back(struct text_process *p, unsigned index, bool sound)
{
	pthread_mutex_lock(&p->lock);
	p->lanes[index].busy = false;
	/* A new lane is started when the next job needs it. */
	if (!sound)
		begin_lane(p, index);
	pthread_mutex_unlock(&p->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int write_tower(struct text_process *p)
{
	const uint8_t *bytes = p->options.tower;
	size_t n = p->options.tower_bytes;

	p->options.tower = NULL;
	if (!bytes)
		return 0;
	p->tower = malloc(2 * n + 1);
	for (size_t i = 0; i < n && p->tower; i++)
		snprintf(p->tower + 2 * i, 3, "%02x", bytes[i]);
	return p->tower ? 0 : -ENOMEM;
}

int text_process_start(const char *dir, const struct text_process_options *options,
		       struct text_process **ret, struct text_loaded **ret_loaded, char *err,
		       size_t errlen)
{
	struct text_process *p = calloc(1, sizeof(*p));
	pthread_condattr_t monotonic;
	int r = 0;

	if (!p) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	p->options = *options;
	p->control = -1;
	for (unsigned i = 0; i < TEXT_LANES; i++)
		p->lanes[i].fd = -1;
	snprintf(p->dir, sizeof(p->dir), "%s", dir);
	if (options->program)
		snprintf(p->program, sizeof(p->program), "%s", options->program);
	else
		r = program_find("txdad-text", p->program, sizeof(p->program));
	if (r)
		snprintf(err, errlen,
			 "txdad-text was found neither beside this program nor in PATH");
	else if ((r = write_tower(p)))
		snprintf(err, errlen, "out of memory");
	else
		r = start(p, UINT64_MAX, options->stop, ret_loaded, err, errlen);
	if (r == START_UNFINISHED) {
		explain_failure(p, -ECANCELED, NULL, err, errlen);
		end_process(p);
		r = -ECANCELED;
	}
	if (r) {
		free(p->tower);
		free(p);
		return r;
	}
	/* Only needed at the start. */
	p->options.stop = NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->started, &monotonic);
	pthread_condattr_destroy(&monotonic);
	digest_of(*ret_loaded, p->digest);
	/* If this fails, the first job tries again. */
	for (unsigned i = 0; i < TEXT_LANES_READY; i++)
		begin_lane(p, i);
	*ret = p;
	return 0;
}

void text_process_free(struct text_process *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < TEXT_LANES; i++)
		close_fd(&p->lanes[i].fd);
	end_process(p);
	pthread_cond_destroy(&p->started);
	pthread_mutex_destroy(&p->lock);
	free(p->tower);
	free(p);
}

unsigned text_process_seconds(const struct text_process *p)
{
	return p->options.seconds;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int lay_out(struct text_job *job, const struct text_bytes *parts, struct iovec *ret)
{
	uint64_t size = sizeof(*job);

	ret[0] = (struct iovec){job, sizeof(*job)};
	for (unsigned i = 0; i < TEXT_JOB_PARTS; i++) {
		ret[i + 1] = (struct iovec){(void *)parts[i].data, parts[i].len};
		if (parts[i].len > TEXT_MESSAGE_MAX - size)
			return -E2BIG;
		job->parts[i] = (struct text_part){(uint32_t)size, (uint32_t)parts[i].len};
		size += parts[i].len;
	}
	job->size = (uint32_t)size;
	return 0;
}

static int check_done(struct text_done *done)
{
	done->message[sizeof(done->message) - 1] = '\0';
	if (done->error > 0 || !text_part_fits(&done->part, sizeof(*done), done->size))
		return -EPROTO;
	return 0;
}

static void log_failure(struct text_process *p, int r)
{
	uint64_t now = clock_ns();

	if (r == -ECANCELED)
		return;
	pthread_mutex_lock(&p->lock);
	if (p->logged_ns && now - p->logged_ns < LOG_EVERY_NS) {
		p->unlogged++;
	} else {
		log_warning("text work of %s failed: %s", p->dir,
			    r == -EPIPE ? "its process exited" : strerror(-r));
		if (p->unlogged)
			log_warning("text work of %s: %u more failed jobs since the last line",
				    p->dir, p->unlogged);
		p->logged_ns = now;
		p->unlogged = 0;
	}
	pthread_mutex_unlock(&p->lock);
}

int text_process_call(struct text_process *p, struct text_job *job,
		      const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		      const struct text_caller *caller, struct text_done **ret, char *err,
		      size_t errlen)
{
	struct patience patience = {.gone = &caller->gone, .low_ns = caller->low_ns};
	struct iovec message[TEXT_JOB_PARTS + 1];
	struct text_done *done = NULL;
	struct reading in = {0};
	unsigned lane;
	int r = lay_out(job, parts, message), fd;

	if (!r)
		r = take_lane(p, caller, &lane, err, errlen);
	if (r)
		return r;
	/* Starting another process does not count as time of the job. */
	patience.end_ns = end_of(p);
	if (caller->deadline_ns && caller->deadline_ns < patience.end_ns)
		patience.end_ns = caller->deadline_ns;
	patience.lane = &p->lanes[lane];
	fd = patience.lane->fd;
	r = await_start(patience.lane, &patience);
	lower_in_time(&patience, clock_ns());
	if (!r)
		r = write_all(fd, message, TEXT_JOB_PARTS + 1, &patience);
	if (!r)
		r = read_message(fd, &in, sizeof(*done), sizeof(*done) + max_answer, &patience,
				 (void **)&done);
	drop_reading(&in);
	if (!r)
		r = check_done(done);
	give_lane_back(p, lane, !r);
	if (!r) {
		*ret = done;
		return 0;
	}
	/* How long the caller waits at most says nothing about the process. */
	if (r != -ETIMEDOUT || patience.end_ns != caller->deadline_ns)
		log_failure(p, r);
	free(done);
	return r;
}
