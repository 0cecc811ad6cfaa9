// SPDX-License-Identifier: MIT
/*
 *   lib_client share            two processes and two chips share buffers
 *   lib_client fault            a bad stream ends its queue and no other
 *   lib_client work DEVICE...   copies and checks on these chips, a thread each, until SIGTERM
 *          -r                   begins anew after an error; without it the first error ends
 *          -p                   prints "working" when all have done something
 *   lib_client follow N         prints events until N chips came or went, uses each that came
 *   lib_client load MIB         how fast a file gets into device memory
 *
 * On whatever backend libtxda opens. Exit status 0: all is well, 1: not, 3: -ENODEV, 4: -EIO.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "txda.h"
#include "txda_isa.h"

#define BYTES ((3u << 20) + 4096)

static struct txda_context *context;

#define must(call)                                                                                 \
	do {                                                                                       \
		int must_result = (call);                                                          \
		if (must_result < 0) {                                                             \
			printf("%d: %s: %s: %s\n", (int)getpid(), #call, strerror(-must_result),   \
			       txda_context_error(context));                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%d: line %d: %s\n", (int)getpid(), __LINE__, #condition);          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void open_context(void)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);

	options.name = "lib_client";
	must(txda_context_new(&options, &context));
}

static struct txda_device *device_of(unsigned index)
{
	struct txda_device *device;

	must(txda_device_get(context, index, &device));
	return device;
}

static void fill(uint32_t *words, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		words[i] = seed = seed * 1664525 + 1013904223;
}

static void expect(const uint32_t *words, size_t n, uint32_t seed, const char *what)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		if (words[i] != seed) {
			printf("%d: %s: word %zu is 0x%08x, not 0x%08x\n", (int)getpid(), what, i,
			       words[i], seed);
			exit(1);
		}
	}
}

/* ---- share ----------------------------------------------------------------------------------- */

static void send_fd(int socket, int fd)
{
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	check(sendmsg(socket, &msg, 0) == 1);
	close(fd);
}

static int receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	int fd;

	check(recvmsg(socket, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static void meet(int socket)
{
	char byte = 'm';

	check(write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1);
}

static void share_owner(int socket, uint32_t *data)
{
	struct txda_buffer *device, *host;
	void *view;
	int fd;

	open_context();
	must(txda_buffer_new(device_of(0), BYTES, TXDA_MEMORY_DEVICE, 0, &device));
	fill(data, BYTES / 4, 1);
	must(txda_buffer_write(device, 0, data, BYTES));
	must(txda_buffer_export(device, &fd));
	send_fd(socket, fd);
	meet(socket); /* the other has written to its second half */
	must(txda_buffer_read(device, 0, data, BYTES));
	expect(data, BYTES / 8, 1, "our half");
	expect(data + BYTES / 8, BYTES / 8, 2, "the other's half");

	must(txda_buffer_new(device_of(0), BYTES, TXDA_MEMORY_HOST, 0, &host));
	must(txda_buffer_map(host, &view));
	fill(view, BYTES / 4, 3);
	must(txda_buffer_export(host, &fd));
	send_fd(socket, fd);
	txda_buffer_unref(host); /* the other keeps it */
	txda_buffer_unref(device);
	meet(socket);
	txda_context_unref(context);
}

static void copy_on(unsigned index, struct txda_buffer *dst, struct txda_buffer *src)
{
	struct txda_queue *queue;
	uint64_t fence;

	must(txda_queue_new(device_of(index), TXDA_QUEUE_COPY, &queue));
	must(txda_queue_copy(queue, dst, 0, src, 0, BYTES, &fence));
	must(txda_queue_wait(queue, fence, TXDA_FOREVER));
	txda_queue_unref(queue);
}

static void share_guest(int socket, uint32_t *data)
{
	int fd = receive_fd(socket), chips;
	struct txda_buffer *here, *peer, *own, *host;
	void *view;

	open_context();
	chips = txda_context_device_count(context);
	must(txda_buffer_import(device_of(0), fd, 0, &here));
	check(txda_buffer_bytes(here) == BYTES);
	must(txda_buffer_read(here, 0, data, BYTES));
	expect(data, BYTES / 4, 1, "imported");
	fill(data, BYTES / 8, 2);
	must(txda_buffer_write(here, BYTES / 2, data, BYTES / 2));
	if (chips > 1) {
		/* The same bytes, as the other chip reaches them through its link. */
		must(txda_buffer_import(device_of(1), fd, TXDA_BUFFER_READ_ONLY, &peer));
		must(txda_buffer_new(device_of(1), BYTES, TXDA_MEMORY_DEVICE, 0, &own));
		copy_on(1, own, peer);
		memset(data, 0, BYTES);
		must(txda_buffer_read(own, 0, data, BYTES));
		expect(data, BYTES / 8, 1, "through the link");
		expect(data + BYTES / 8, BYTES / 8, 2, "through the link");
		txda_buffer_unref(peer);
		txda_buffer_unref(own);
	}
	close(fd);
	meet(socket);

	fd = receive_fd(socket);
	meet(socket); /* the owner has let go */
	must(txda_buffer_import(device_of(chips - 1), fd, 0, &host));
	must(txda_buffer_map(host, &view));
	expect(view, BYTES / 4, 3, "host memory");
	must(txda_buffer_new(device_of(chips - 1), BYTES, TXDA_MEMORY_DEVICE, 0, &own));
	copy_on(chips - 1, own, host);
	must(txda_buffer_read(own, 0, data, BYTES));
	expect(data, BYTES / 4, 3, "host memory, copied by the chip");
	close(fd);
	txda_buffer_unref(own);
	txda_buffer_unref(host);
	txda_buffer_unref(here);

	/* Pages of our own. */
	fd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	check(fd >= 0 && !ftruncate(fd, BYTES) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	must(txda_buffer_import(device_of(0), fd, 0, &host));
	fill(data, BYTES / 4, 4);
	check(pwrite(fd, data, BYTES, 0) == BYTES);
	must(txda_buffer_new(device_of(0), BYTES, TXDA_MEMORY_DEVICE, 0, &own));
	copy_on(0, own, host);
	memset(data, 0, BYTES);
	must(txda_buffer_read(own, 0, data, BYTES));
	expect(data, BYTES / 4, 4, "a memfd's pages");
	fill(data, BYTES / 4, 5);
	must(txda_buffer_write(own, 0, data, BYTES));
	copy_on(0, host, own);
	check(pread(fd, data, BYTES, 0) == BYTES);
	expect(data, BYTES / 4, 5, "into a memfd's pages");
	txda_buffer_unref(own);
	txda_buffer_unref(host);
	close(fd);
	txda_context_unref(context);
}

static int share(void)
{
	uint32_t *data = malloc(BYTES);
	int pair[2], status;
	pid_t pid;

	check(data && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = fork();
	if (!pid) {
		close(pair[0]);
		share_guest(pair[1], data);
		exit(0);
	}
	close(pair[1]);
	share_owner(pair[0], data);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	free(data);
	return 0;
}

/* ---- fault ----------------------------------------------------------------------------------- */

static int fault(void)
{
	struct txda_pkt_copy copy = {.hdr = {.op = TXDA_PKT_COPY, .bytes = sizeof(copy)},
				     .dst = 0x1000,
				     .src = 0x2000,
				     .bytes = 64};
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_queue *bad, *good;
	struct pollfd poll_fd;
	uint64_t fence;
	char text[300];
	int r;

	open_context();
	check(txda_context_event_fd(context) >= 0);
	must(txda_queue_new(device_of(0), TXDA_QUEUE_COMPUTE, &bad));
	must(txda_queue_new(device_of(0), TXDA_QUEUE_COMPUTE, &good));
	must(txda_queue_submit(bad, &copy, sizeof(copy), 0, &fence));
	r = txda_queue_wait(bad, fence, TXDA_FOREVER);
	printf("%s: %s\n", strerror(-r), txda_context_error(context));
	check(r == -EIO && strstr(txda_context_error(context), "page fault"));
	check(txda_queue_fault(bad, text, sizeof(text)) > 0 && strstr(text, "address 0x"));
	check(txda_queue_submit(bad, NULL, 0, 0, &fence) == -EIO);
	must(txda_queue_submit(good, NULL, 0, 0, &fence));
	must(txda_queue_wait(good, fence, TXDA_FOREVER));
	must(txda_context_event(context, &event));
	check(event.kind == TXDA_EVENT_FAULT && event.device == 0);
	txda_queue_unref(bad);

	/* One that nobody waits for is told as well, by the driver. */
	must(txda_queue_new(device_of(0), TXDA_QUEUE_COMPUTE, &bad));
	must(txda_queue_submit(bad, &copy, sizeof(copy), 0, &fence));
	poll_fd = (struct pollfd){.fd = txda_context_event_fd(context), .events = POLLIN};
	do {
		check(poll(&poll_fd, 1, 20000) == 1);
		r = txda_context_event(context, &event);
	} while (r == -EAGAIN);
	must(r);
	printf("event: %s\n", event.text);
	/* Details of a fault, which may be another user's, are for administrators. */
	check(event.kind == TXDA_EVENT_FAULT &&
	      strstr(event.text, geteuid() ? "a queue faulted or hung" : "page fault"));
	txda_queue_unref(bad);
	txda_queue_unref(good);
	txda_context_unref(context);
	return 0;
}

/* ---- work ------------------------------------------------------------------------------------ */

struct worker {
	unsigned index;
	bool again;
	pthread_t thread;
	atomic_uint rounds, errors;
	int result;
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

/* Rounds on one chip until the first error or the end. */
static int work_on(struct worker *w)
{
	struct txda_buffer *a = NULL, *b = NULL;
	struct txda_queue *queue = NULL;
	uint32_t data[2048], back[2048];
	uint64_t fence;
	int r;

	r = txda_queue_new(device_of(w->index), TXDA_QUEUE_COMPUTE, &queue);
	if (r >= 0)
		r = txda_buffer_new(device_of(w->index), BYTES, TXDA_MEMORY_DEVICE, 0, &a);
	if (r >= 0)
		r = txda_buffer_new(device_of(w->index), BYTES, TXDA_MEMORY_DEVICE, 0, &b);
	for (uint32_t round = 0; r >= 0 && !stop; round++) {
		uint64_t at = round % 256 * 8192;

		fill(data, 2048, round);
		r = txda_buffer_write(a, at, data, sizeof(data));
		if (r >= 0)
			r = txda_queue_copy(queue, b, 0, a, 0, BYTES, &fence);
		if (r >= 0)
			r = txda_queue_wait(queue, fence, clock_ns() + 60000000000u);
		if (r >= 0)
			r = txda_buffer_read(b, at, back, sizeof(back));
		if (r >= 0) {
			expect(back, 2048, round, "copied");
			atomic_fetch_add(&w->rounds, 1);
		}
	}
	if (r < 0) {
		printf("chip %u after %u rounds: %s: %s\n", w->index, atomic_load(&w->rounds),
		       strerror(-r), txda_context_error(context));
		fflush(stdout);
		atomic_fetch_add(&w->errors, 1);
	}
	txda_queue_unref(queue);
	txda_buffer_unref(a);
	txda_buffer_unref(b);
	return r;
}

static void *work_thread(void *arg)
{
	struct worker *w = arg;

	do {
		w->result = work_on(w);
		if (w->result < 0 && w->again)
			usleep(20000);
	} while (w->again && !stop);
	return NULL;
}

static int work(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct worker worker[16] = {0};
	bool again = false, tell = false;
	unsigned n = 0, working = 0;
	int c, status = 0;

	while ((c = getopt(argc, argv, "rp")) >= 0) {
		again |= c == 'r';
		tell |= c == 'p';
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	open_context();
	for (; optind < argc && n < 16; optind++, n++) {
		worker[n].index = (unsigned)atoi(argv[optind]);
		worker[n].again = again;
		check(!pthread_create(&worker[n].thread, NULL, work_thread, &worker[n]));
	}
	while (tell && working < n && !stop) {
		usleep(10000);
		for (working = 0; working < n && atomic_load(&worker[working].rounds); working++)
			;
	}
	if (tell) {
		printf("working\n");
		fflush(stdout);
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(worker[i].thread, NULL);
		printf("chip %u: %u rounds, %u errors\n", worker[i].index,
		       atomic_load(&worker[i].rounds), atomic_load(&worker[i].errors));
		if (!again && worker[i].result < 0)
			status = worker[i].result == -ENODEV ? 3 : worker[i].result == -EIO ? 4 : 1;
	}
	txda_context_unref(context);
	return status;
}

/* ---- follow ---------------------------------------------------------------------------------- */

static void use(unsigned index)
{
	uint32_t data[1024], back[1024];
	struct txda_buffer *buffer;

	fill(data, 1024, index);
	must(txda_buffer_new(device_of(index), sizeof(data), TXDA_MEMORY_DEVICE, 0, &buffer));
	must(txda_buffer_write(buffer, 0, data, sizeof(data)));
	must(txda_buffer_read(buffer, 0, back, sizeof(back)));
	expect(back, 1024, index, "a chip that was added");
	txda_buffer_unref(buffer);
	printf("used chip %u\n", index);
}

static int follow(int n)
{
	struct pollfd poll_fd = {.events = POLLIN};

	open_context();
	poll_fd.fd = txda_context_event_fd(context);
	printf("%d chips\n", txda_context_device_count(context));
	fflush(stdout);
	for (int i = 0; i < n;) {
		struct txda_event event = TXDA_INIT(struct txda_event);

		if (txda_context_event(context, &event) < 0) {
			check(poll(&poll_fd, 1, -1) == 1);
			continue;
		}
		printf("event %d chip %d: %s\n", (int)event.kind,
		       event.device == UINT_MAX ? -1 : (int)event.device, event.text);
		if (event.kind == TXDA_EVENT_DEVICE_ADDED && event.device != UINT_MAX)
			use(event.device);
		fflush(stdout);
		i += event.kind == TXDA_EVENT_DEVICE_ADDED ||
		     event.kind == TXDA_EVENT_DEVICE_REMOVED;
	}
	printf("%d chips\n", txda_context_device_count(context));
	txda_context_unref(context);
	return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

static int load(uint64_t mib)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct txda_buffer *buffer;
	uint32_t *part = malloc(1 << 20);
	uint64_t start;

	open_context();
	check(part && fd >= 0);
	for (uint64_t i = 0; i < mib; i++) {
		fill(part, 1 << 18, (uint32_t)i);
		check(write(fd, part, 1 << 20) == 1 << 20);
	}
	must(txda_buffer_new(device_of(0), mib << 20, TXDA_MEMORY_DEVICE,
			     TXDA_BUFFER_PRIVATE | TXDA_BUFFER_READ_ONLY, &buffer));
	for (unsigned i = 0; i < 3; i++) {
		start = clock_ns();
		must(txda_buffer_load(buffer, 0, fd, 0, mib << 20));
		printf("%.0f MiB/s\n", (double)mib / ((double)(clock_ns() - start) / 1e9));
	}
	for (uint64_t i = 0; i < mib; i++) {
		must(txda_buffer_read(buffer, i << 20, part, 1 << 20));
		expect(part, 1 << 18, (uint32_t)i, "loaded");
	}
	txda_buffer_unref(buffer);
	txda_context_unref(context);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "share"))
		return share();
	if (argc == 2 && !strcmp(argv[1], "fault"))
		return fault();
	if (argc > 2 && !strcmp(argv[1], "work"))
		return work(argc - 1, argv + 1);
	if (argc == 3 && !strcmp(argv[1], "follow"))
		return follow(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "load"))
		return load((uint64_t)atoi(argv[2]));
	fprintf(stderr,
		"usage: lib_client share | fault | work [-rp] DEVICE... | follow N | load MIB\n");
	return 2;
}
