// SPDX-License-Identifier: MIT
/*
 * txdad-text: reads a model's tokeniser and templates in confinement and does the text work of its
 * requests in lanes: child processes that do one job at a time. text_message.h describes the
 * protocol.
 *
 * The process that txdad starts reads the model and then only starts and ends lanes. It can open
 * the model's files while it reads them; a lane cannot open anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "case_reply.h"
#include "confine.h"
#include "io.h"
#include "param_dir.h"
#include "text_confine.h"
#include "tool_line.h"
#include "tool_run.h"
#include "work.h"

#define CONTROL	      0			    /* the socket that txdad passes */
#define KEEP_BYTES    ((size_t)1 << 20)	    /* message buffer size that is kept between messages */
#define DESCRIPTORS   128		    /* more than files of a model */
#define CONFIG_MEMORY ((uint64_t)256 << 20) /* a tree of 1 MiB takes some forty times as much */
#define PROCESSES     4096 /* RLIMIT_NPROC: limits how far a faulty one can multiply */
#define SIGNAL_BY_FD  424  /* pidfd_send_signal(2), the same number on every architecture */

struct lane {
	pid_t pid; /* 0: never started */
	int pidfd;
};

/* ---- messages -------------------------------------------------------------------------------- */

/* ---- a lane ---------------------------------------------------------------------------------- */

/* Reads a message, preceded by its size. False: end of file, or out of memory. */
static bool read_job(int fd, struct text_buf *in)
{
	uint32_t size;

	in->len = 0;
	if (io_read_all(fd, &size, sizeof(size)) || size < sizeof(struct text_job) ||
	    size > TEXT_MESSAGE_MAX || !text_buf_add(in, &size, sizeof(size)) ||
	    !text_buf_reserve(in, size - sizeof(size)) ||
	    io_read_all(fd, in->data + in->len, size - sizeof(size)))
		return false;
	in->len = size;
	return true;
}

static void drop_if_large(struct text_buf *b)
{
	if (b->cap <= KEEP_BYTES)
		return;
	free(b->data);
	*b = (struct text_buf){0};
	malloc_trim(0);
}

static void work(const struct text_model *m, int fd)
{
	struct text_buf in = {0}, out = {0};
	const char ready = 0;

	if (io_write_all(fd, &ready, sizeof(ready)))
		return;
	while (read_job(fd, &in) && !text_work(m, in.data, in.len, &out) &&
	       !io_write_all(fd, out.data, out.len)) {
		drop_if_large(&in);
		drop_if_large(&out);
	}
}

static void run_lane(const struct text_model *m, int fd, pid_t parent)
{
	char err[256];

	if (dup2(fd, CONTROL) < 0 || close_range(3, ~0u, 0) ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent ||
	    text_confine_lane(err, sizeof(err)))
		_exit(1);
	work(m, CONTROL);
	_exit(0);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void end_lane(struct lane *lane)
{
	if (!lane->pid)
		return;
	syscall(SIGNAL_BY_FD, lane->pidfd, SIGKILL, NULL, 0);
	while (waitpid(lane->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(lane->pidfd);
	lane->pid = 0;
}

/* If fork fails there is no lane: txdad sees the end of its socket. */
static void begin_lane(struct lane *lane, const struct text_model *m, int fd, pid_t self)
{
	int pidfd = -1;
	long pid;

	end_lane(lane);
	/* By system call: the descriptor is the only way for this process to send a signal. */
	pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &pidfd, NULL, 0);
	if (!pid)
		run_lane(m, fd, self);
	if (pid > 0)
		*lane = (struct lane){(pid_t)pid, pidfd};
}

/* The next requested lane, and its socket. False: txdad has ended, or sent an invalid message. */
static bool next_lane(struct text_lane *ret, int *ret_fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = {ret, sizeof(*ret)};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	const struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(CONTROL, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = n == sizeof(*ret) ? CMSG_FIRSTHDR(&message) : NULL;
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
		return false;
	memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return ret->index < TEXT_LANES;
}

static void serve(const struct text_model *m)
{
	struct lane lanes[TEXT_LANES] = {{0}};
	struct text_lane wanted;
	pid_t self = getpid();
	int fd;

	while (next_lane(&wanted, &fd)) {
		begin_lane(&lanes[wanted.index], m, fd, self);
		close(fd);
	}
	for (unsigned i = 0; i < TEXT_LANES; i++)
		end_lane(&lanes[i]);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int fail(const char *why)
{
	struct text_loaded l = {.size = sizeof(l), .error = -EIO};

	snprintf(l.message, sizeof(l.message), "txdad-text: %s", why);
	return io_write_all(CONTROL, &l, sizeof(l)) ? 2 : 1;
}

static int run(const char *dir, uint64_t memory, unsigned seconds, const struct image_tower *tower)
{
	/* Sanitizers need unlimited address space. */
	const struct confine_limits limits = {
		.memory = confine_works() ? memory : 0,
		.file_size = 1,
		.processes = PROCESSES,
		.descriptors = DESCRIPTORS,
	};
	struct text_buf loaded = {0};
	struct text_model m = {0};
	char err[400];
	int r;

	/*
	 * It ends when txdad closes its socket, and not before the requests that txdad still
	 * finishes.
	 */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	confine_limit(&limits);
	/* Loads the time zone now: files cannot be opened later. */
	setenv("TZ", ":/etc/localtime", 0);
	tzset();
	alarm(seconds);
	if (text_confine_reader(dir, err, sizeof(err)))
		return fail(err);
	r = text_model_read(&m, dir, tower, &loaded);
	if (r)
		return fail(strerror(-r));
	alarm(0);
	if (text_confine_server(err, sizeof(err)))
		return fail(err);
	if (io_write_all(CONTROL, loaded.data, loaded.len))
		return 1;
	free(loaded.data);
	malloc_trim(0);
	if (m.tokenizer)
		serve(&m);
	return 0;
}

/* For a process that parses one file. */
static void limit_parser(void)
{
	const struct confine_limits limits = {
		.memory = confine_works() ? CONFIG_MEMORY : 0,
		.file_size = 1,
		.processes = PROCESSES,
		.descriptors = DESCRIPTORS,
	};

	confine_limit(&limits);
}

/* What config.json says of its case dir, on standard output. */
static int read_config(const char *dir)
{
	struct config_facts facts;
	char err[400];

	limit_parser();
	if (text_confine_reader(dir, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	config_facts_read(dir, &facts);
	return io_write_all(STDOUT_FILENO, &facts, sizeof(facts)) ? 1 : 0;
}

/* The model_info.json on standard input; reads one byte more than it may have. */
static int read_info(struct case_reply *reply)
{
	char *text = malloc(CASE_INFO_BYTES + 1);
	size_t bytes = 0;
	cJSON *root;
	ssize_t n = text ? 1 : 0;
	int r;

	while (n > 0 && bytes <= CASE_INFO_BYTES) {
		n = read(STDIN_FILENO, text + bytes, CASE_INFO_BYTES + 1 - bytes);
		bytes += n > 0 ? (size_t)n : 0;
	}
	if (!text || n < 0) {
		snprintf(reply->message, sizeof(reply->message), "%s: %s", CASE_INFO_NAME,
			 strerror(text ? errno : ENOMEM));
		r = text ? -errno : -ENOMEM;
	} else {
		r = case_said_json(text, bytes, &root, reply->message, sizeof(reply->message));
	}
	free(text);
	if (r)
		return r;
	r = case_said_take(root, &reply->said, reply->message, sizeof(reply->message));
	if (!r && cJSON_GetObjectItemCaseSensitive(root, "vision")) {
		reply->sees = 1;
		reply->tower_error = image_tower_parse(
			cJSON_GetObjectItemCaseSensitive(root, "vision"), &reply->tower,
			reply->tower_message, sizeof(reply->tower_message));
	}
	cJSON_Delete(root);
	return r;
}

/* What the model_info.json on standard input says, on standard output. */
static int read_case(void)
{
	static struct case_reply reply;
	char err[400];

	limit_parser();
	/* As in a lane: it can open nothing. */
	if (text_confine_lane(err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	reply.error = read_info(&reply);
	return io_write_all(STDOUT_FILENO, &reply, sizeof(reply)) ? 1 : 0;
}

/* From the hexadecimal digits of txdad, which is of the same build. */
static bool read_tower(const char *digits, struct image_tower *ret)
{
	uint8_t *bytes = (uint8_t *)ret;

	if (strlen(digits) != 2 * sizeof(*ret))
		return false;
	for (size_t i = 0; i < sizeof(*ret); i++) {
		unsigned byte;

		if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
			return false;
		bytes[i] = (uint8_t)byte;
	}
	return true;
}

static const char usage[] =
	"Usage: txdad-text DIRECTORY BYTES SECONDS [TOWER]\n"
	"       txdad-text --config DIRECTORY\n"
	"       txdad-text --case <model_info.json\n\n"
	"Does the text work of the model in DIRECTORY for txdad, which starts it with a\n"
	"socket as standard input. BYTES limits its memory, SECONDS its time for reading.\n"
	"TOWER describes the model's image encoder.\n\n"
	"      --config DIR  write what config.json says of its param_dir, for txdad, and exit\n"
	"      --case        write what a model_info.json says, for txdad, and exit\n"
	"  -h, --help        print this help and exit\n"
	"  -V, --version     print the version and exit\n";

static const struct option options[] = {
	{"config", required_argument, NULL, 'c'},
	{"case", no_argument, NULL, 's'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txdad-text", usage, options, "");

static int text_main(int argc, char **argv)
{
	unsigned long long memory, seconds;
	int id = tool_option(&line, argc, argv);
	struct image_tower tower;
	struct stat st;

	if (id < 0)
		return line.status;
	if (id)
		_exit(id == 'c' ? read_config(line.value) : read_case());
	if (line.n_words < 3 || line.n_words > 4 ||
	    (line.n_words == 4 && !read_tower(line.words[3], &tower)) || fstat(CONTROL, &st) ||
	    !S_ISSOCK(st.st_mode))
		return tool_refuse(&line, "txdad starts it with DIRECTORY BYTES SECONDS [TOWER] "
					  "and a socket");
	memory = strtoull(line.words[1], NULL, 10);
	seconds = strtoull(line.words[2], NULL, 10);
	_exit(run(line.words[0], memory, (unsigned)seconds, line.n_words == 4 ? &tower : NULL));
}

int main(int argc, char **argv)
{
	return tool_run("txdad-text", text_main, argc, argv, EXIT_FAILURE);
}
