// SPDX-License-Identifier: MIT
/*
 * A forward call of the daemon: tokens go in and logits come out through memory that both map, and
 * neither of them through the socket.
 *
 *	txdad --model demo=tests/models/demo &
 *	forward_client SOCKET demo 11 7 1205
 *
 * Prints the token ids that the model says after these, the likeliest each time. It knows nothing
 * but the C library: one memfd holds the tokens, behind them the row of logits, and goes along with
 * the request (SCM_RIGHTS). What was computed before comes from the daemon's prefix cache.
 *
 * With -d the memory is passed as a dma-buf, which a device could work on, too (/dev/udmabuf makes
 * one of the memfd).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/udmabuf.h>

#define GENERATE   16
#define MAX_PROMPT 256
#define MAX_TOKENS (MAX_PROMPT + GENERATE)

__attribute__((noreturn)) static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Sends @len bytes, and with the first of them the descriptor (-1: none). */
static void send_all(int socket, const char *data, size_t len, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct cmsghdr *c = &control.align;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	while (len) {
		struct iovec iov = {.iov_base = (char *)data, .iov_len = len};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		if (fd >= 0) {
			msg.msg_control = control.bytes;
			msg.msg_controllen = sizeof(control.bytes);
		}
		n = sendmsg(socket, &msg, MSG_NOSIGNAL);
		if (n < 0)
			fail("sendmsg");
		data += n;
		len -= (size_t)n;
		fd = -1;
	}
}

/* One request on a connection of its own; @answer [size] gets head and body. */
static void ask(const char *path, const char *request, int fd, char *answer, size_t size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = 0;
	ssize_t n;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (s < 0 || connect(s, (struct sockaddr *)&address, sizeof(address)))
		fail(path);
	send_all(s, request, strlen(request), fd);
	while (len < size - 1 && (n = read(s, answer + len, size - 1 - len)) > 0)
		len += (size_t)n;
	answer[len] = 0;
	close(s);
	if (strncmp(answer, "HTTP/1.1 200 ", 13)) {
		fprintf(stderr, "forward_client: %s\n", answer);
		exit(1);
	}
}

/* The columns of a row: `vocab_size` of the model, once it is loaded. */
static size_t ask_vocab(const char *socket, const char *model)
{
	static char request[512], answer[8192];
	const char *found;

	snprintf(request, sizeof(request),
		 "GET /v1/models/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		 model);
	ask(socket, request, -1, answer, sizeof(answer));
	found = strstr(answer, "\"vocab_size\":");
	if (!found) {
		fprintf(stderr, "forward_client: the model %s is not loaded\n", model);
		exit(1);
	}
	return strtoul(found + 13, NULL, 10);
}

static void forward(const char *socket, const char *model, int fd, unsigned n, size_t vocab)
{
	static char body[512], request[1024], answer[8192];

	snprintf(body, sizeof(body),
		 "{\"model\": \"%s\", \"rows\": \"last\",\n"
		 " \"input_ids\": {\"fd\": 0, \"shape\": [%u], \"dtype\": \"int32\"},\n"
		 " \"logits\": {\"fd\": 0, \"offset\": %zu, \"shape\": [1, %zu], \"dtype\": "
		 "\"float32\"}}",
		 model, n, MAX_TOKENS * sizeof(int32_t), vocab);
	snprintf(request, sizeof(request),
		 "POST /v1/forward HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
		 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		 strlen(body), body);
	ask(socket, request, fd, answer, sizeof(answer));
}

/* @bytes, whole pages, as a memfd or a dma-buf. */
static int make_memory(size_t bytes, int dma_buf)
{
	int memory = memfd_create("forward", MFD_CLOEXEC | MFD_ALLOW_SEALING), maker, fd;
	struct udmabuf_create create = {
		.memfd = (uint32_t)memory, .flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};

	/* The daemon writes only where there are pages. */
	if (memory < 0 || fallocate(memory, 0, 0, (off_t)bytes))
		fail("memfd");
	if (!dma_buf)
		return memory;
	maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (maker < 0 || fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK))
		fail("/dev/udmabuf");
	fd = ioctl(maker, UDMABUF_CREATE, &create);
	if (fd < 0)
		fail("UDMABUF_CREATE");
	close(maker);
	close(memory);
	return fd;
}

/* Opens the memory for this processor, or closes it. */
static void use(int fd, int dma_buf, uint64_t flags)
{
	struct dma_buf_sync sync = {.flags = flags | DMA_BUF_SYNC_RW};

	while (dma_buf && ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync)) {
		if (errno != EINTR && errno != EAGAIN)
			fail("DMA_BUF_IOCTL_SYNC");
	}
}

int main(int argc, char **argv)
{
	int dma_buf = argc > 1 && !strcmp(argv[1], "-d");
	size_t vocab, bytes, page = (size_t)sysconf(_SC_PAGESIZE);
	int32_t *tokens;
	float *logits;
	unsigned n;
	int fd;

	argc -= dma_buf;
	argv += dma_buf;
	n = argc > 3 ? (unsigned)argc - 3 : 0;
	if (!n || n > MAX_PROMPT) {
		fprintf(stderr, "usage: forward_client [-d] SOCKET MODEL TOKEN... (%d)\n",
			MAX_PROMPT);
		return 2;
	}
	vocab = ask_vocab(argv[1], argv[2]);
	bytes = MAX_TOKENS * sizeof(*tokens) + vocab * sizeof(*logits);
	bytes = (bytes + page - 1) / page * page;
	fd = make_memory(bytes, dma_buf);
	tokens = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (tokens == MAP_FAILED)
		fail("mmap");
	logits = (float *)(tokens + MAX_TOKENS);
	use(fd, dma_buf, DMA_BUF_SYNC_START);
	for (unsigned i = 0; i < n; i++)
		tokens[i] = (int32_t)strtol(argv[3 + i], NULL, 10);
	for (unsigned i = 0; i < GENERATE; i++, n++) {
		size_t best = 0;

		use(fd, dma_buf, DMA_BUF_SYNC_END);
		forward(argv[1], argv[2], fd, n, vocab);
		use(fd, dma_buf, DMA_BUF_SYNC_START);
		for (size_t t = 1; t < vocab; t++)
			best = logits[t] > logits[best] ? t : best;
		tokens[n] = (int32_t)best;
		printf("%zu%c", best, i + 1 < GENERATE ? ' ' : '\n');
	}
	use(fd, dma_buf, DMA_BUF_SYNC_END);
	munmap(tokens, bytes);
	close(fd);
	return 0;
}
