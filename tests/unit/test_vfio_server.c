// SPDX-License-Identifier: MIT
/* The server: sockets, one client a chip, coming and going, and the orders of the control socket.
 */
#include "vfio_fixture.h"
#include "clock.h"
#include "server.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

static char dir[] = "/tmp/txda-vfio.XXXXXX";
static struct vu_server *server;
static pthread_t thread;

/* The call that the server makes; for a moment there are no descriptors. */
static _Atomic unsigned refusals;
static _Atomic uint64_t refuse_from_ns;

int accept4(int sock, struct sockaddr *address, socklen_t *bytes, int flags)
{
	if (refuse_from_ns && clock_ns() < refuse_from_ns + 20000000) {
		refusals++;
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_accept4, sock, address, bytes, flags);
}

static void *run(void *arg)
{
	return vu_server_run(arg) ? arg : NULL;
}

static int setup(void **state)
{
	const struct vu_server_options opt = {
		.machine = {.chips = 3, .mem_bytes = VF_MEM, .cores = 1, .identity = "server"},
		.socket_dir = dir,
	};

	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(vu_server_new(&opt, &server), 0);
	assert_int_equal(pthread_create(&thread, NULL, run, server), 0);
	return 0;
}

static int teardown(void **state)
{
	void *failed;

	vu_server_stop(server);
	pthread_join(thread, &failed);
	assert_null(failed);
	vu_server_free(server);
	/* Nothing is left in it. */
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

static int try_connect(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/%.20s", dir, name);
	if (!connect(sock, (struct sockaddr *)&address, sizeof(address)))
		return sock;
	close(sock);
	return -1;
}

/* Gives an order; its answer without the last line, which must begin with @want. */
static char *order(const char *line, const char *want)
{
	static char answer[65536];
	size_t have = 0, len = strlen(want);
	int sock = try_connect("control.sock");
	char *last;

	assert_true(sock >= 0);
	assert_int_equal(send(sock, line, strlen(line), MSG_NOSIGNAL), strlen(line));
	assert_int_equal(send(sock, "\n", 1, MSG_NOSIGNAL), 1);
	for (;;) {
		ssize_t n = recv(sock, answer + have, sizeof(answer) - 1 - have, 0);

		assert_true(n > 0);
		have += (size_t)n;
		answer[have] = '\0';
		if (answer[have - 1] != '\n')
			continue;
		answer[have - 1] = '\0';
		last = strrchr(answer, '\n');
		last = last ? last + 1 : answer;
		if (!strcmp(last, "ok") || !strncmp(last, "error: ", 7))
			break;
		answer[have - 1] = '\n';
	}
	close(sock);
	if (strncmp(last, want, len))
		fail_msg("%s: %s", line, last);
	*last = '\0';
	return answer;
}

/* What the status of a chip says of @key. */
static const cJSON *status(unsigned chip, const char *key)
{
	static cJSON *json;
	char line[32];

	snprintf(line, sizeof(line), "status %u", chip);
	cJSON_Delete(json);
	json = cJSON_Parse(order(line, "ok"));
	assert_non_null(json);
	assert_int_equal((int)cJSON_GetObjectItem(json, "chip")->valuedouble, chip);
	assert_non_null(cJSON_GetObjectItem(json, key));
	return cJSON_GetObjectItem(json, key);
}

static bool is(unsigned chip, const char *key)
{
	return cJSON_IsTrue(status(chip, key));
}

/* Connects to a chip as a client that has been greeted. */
static void join(struct vf_chip *c, unsigned chip)
{
	struct vu_version hello = {0, 0};
	char name[32];

	*c = (struct vf_chip){0};
	snprintf(name, sizeof(name), "chip%u.sock", chip);
	c->sock = try_connect(name);
	assert_true(c->sock >= 0);
	assert_int_equal(vf_call(c, VU_VERSION, &hello, sizeof(hello), NULL, 0, NULL, 0, NULL), 0);
}

static bool hung_up(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	char byte;

	return poll(&p, 1, 10000) == 1 && recv(sock, &byte, 1, 0) <= 0;
}

/* ---- clients --------------------------------------------------------------------------------- */

TEST(test_clients)
{
	struct vf_chip a, b;
	char serial[3][16];
	int sock;

	for (unsigned i = 0; i < 3; i++) {
		join(&a, i);
		vf_enable(&a);
		for (unsigned w = 0; w < 4; w++) {
			uint32_t word = vf_read(&a, TXDA_REG_SERIAL + w * 4);

			memcpy(serial[i] + w * 4, &word, 4);
		}
		assert_true(is(i, "connected"));
		close(a.sock);
	}
	assert_memory_not_equal(serial[0], serial[1], 16);
	assert_memory_not_equal(serial[1], serial[2], 16);
	/* A second client is turned away; the first does not notice. */
	join(&a, 1);
	sock = try_connect("chip1.sock");
	assert_true(sock >= 0);
	assert_true(hung_up(sock));
	close(sock);
	assert_int_equal(vf_config16(&a, 0), TXDA_PCI_VENDOR);
	/* When it has left the next one comes in at once. */
	for (unsigned i = 0; i < 50; i++) {
		close(a.sock);
		join(&b, 1);
		assert_int_equal(vf_config16(&b, 0), TXDA_PCI_VENDOR);
		a = b;
	}
	close(a.sock);
	/* One that breaks the protocol is thrown out and can come again. */
	sock = try_connect("chip2.sock");
	assert_int_equal(send(sock, "0123456789abcdef", 16, MSG_NOSIGNAL), 16);
	assert_true(hung_up(sock));
	close(sock);
	join(&a, 2);
	close(a.sock);
}

/* A connection that cannot be accepted just now waits, and the server sleeps meanwhile. */
TEST(test_no_descriptors)
{
	refuse_from_ns = clock_ns();
	order("status 0", "ok");
	refuse_from_ns = 0;
	/* None, if the order came late. */
	assert_true(refusals <= 1);
}

TEST(test_second_server)
{
	const struct vu_server_options opt = {
		.machine = {.chips = 1, .mem_bytes = VF_MEM, .cores = 1}, .socket_dir = dir};
	struct vu_server_options elsewhere = opt;
	char dead[128], long_dir[200];
	struct vu_server *other = NULL;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct vf_chip a;
	int sock;

	assert_int_equal(vu_server_new(&opt, &other), -EADDRINUSE);
	assert_null(other);
	join(&a, 0);
	close(a.sock);
	/* A socket that a dead server has left is replaced, another file is not. */
	snprintf(dead, sizeof(dead), "%s/dead", dir);
	assert_int_equal(mkdir(dead, 0700), 0);
	elsewhere.socket_dir = dead;
	snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/chip0.sock", dead);
	sock = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	close(sock);
	assert_int_equal(vu_server_new(&elsewhere, &other), 0);
	vu_server_free(other);
	assert_int_equal(access(address.sun_path, F_OK), -1);
	assert_int_equal(mkdir(address.sun_path, 0700), 0);
	assert_int_equal(vu_server_new(&elsewhere, &other), -EADDRINUSE);
	assert_int_equal(rmdir(address.sun_path), 0);
	assert_int_equal(rmdir(dead), 0);
	memset(long_dir, 'x', sizeof(long_dir) - 1);
	long_dir[sizeof(long_dir) - 1] = '\0';
	elsewhere.socket_dir = long_dir;
	assert_int_equal(vu_server_new(&elsewhere, &other), -ENAMETOOLONG);
}

/* ---- orders ---------------------------------------------------------------------------------- */

TEST(test_orders)
{
	char big[2000];
	int sock;

	assert_non_null(strstr(order("help", "ok"), "disappear"));
	order("status", "ok");
	order("status 3", "error: ");
	order("status x", "error: ");
	order("", "error: ");
	order("helpx", "error: ");
	order("inject", "error: ");
	order("inject nonsense", "error: ");
	order("inject hang:chip=3", "error: ");
	order("inject hang:chip=0:ms=1", "ok");
	order("appear 0", "error: ");
	order("disappear 4294967296", "error: ");
	order("disappear -1", "error: ");
	order("liveness-stop", "error: ");
	order("stick-flush 9", "error: ");
	order("stick-reset", "error: ");
	order("stick-registers 9", "error: ");
	order("stick-flush 0", "ok");
	order("stick-reset 0", "ok");
	order("stick-stop 64", "error: ");
	order("stick-stop 0", "ok");
	order("slow-stop 64", "error: ");
	order("slow-stop 0", "ok");
	/* A line without an end. */
	memset(big, 'x', sizeof(big));
	sock = try_connect("control.sock");
	assert_true(send(sock, big, sizeof(big), MSG_NOSIGNAL) > 0);
	assert_true(hung_up(sock));
	close(sock);
	/* Several in one piece, and one in several. */
	sock = try_connect("control.sock");
	assert_int_equal(send(sock, "help\nhelp\nst", 12, MSG_NOSIGNAL), 12);
	assert_int_equal(send(sock, "atus 0\n", 7, MSG_NOSIGNAL), 7);
	for (unsigned oks = 0; oks < 3;) {
		char byte, last[3] = "";

		assert_int_equal(recv(sock, &byte, 1, 0), 1);
		memmove(big, big + 1, 3);
		big[3] = byte;
		memcpy(last, big + 1, 3);
		oks += !memcmp(last, "ok\n", 3);
	}
	close(sock);
}

TEST(test_disappear)
{
	struct vf_chip a, b;

	join(&a, 0);
	join(&b, 1);
	vf_enable(&a);
	vf_enable(&b);
	vf_write(&b, TXDA_REG_POWER_LIMIT_MW, 50000);
	assert_int_equal(vf_read(&a, TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_UP);
	order("disappear 1", "ok");
	assert_true(hung_up(b.sock));
	close(b.sock);
	assert_int_equal(try_connect("chip1.sock"), -1);
	assert_true(is(1, "gone"));
	assert_false(is(1, "connected"));
	assert_int_equal(vf_read(&a, TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_DOWN);
	assert_true(vf_read(&a, TXDA_REG_IRQ_EVENTS) & TXDA_IRQ_LINK);
	order("disappear 1", "ok");
	/* As good as new. */
	order("appear 1", "ok");
	order("appear 1", "error: ");
	assert_false(is(1, "gone"));
	join(&b, 1);
	assert_int_equal(vf_config16(&b, 4), 0);
	vf_enable(&b);
	assert_int_not_equal(vf_read(&b, TXDA_REG_POWER_LIMIT_MW), 50000);
	assert_int_equal(vf_read(&a, TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_UP);
	/* Lost while its client stays. */
	order("inject lost:chip=1", "ok");
	assert_int_equal(vf_config16(&b, 0), 0xffff);
	assert_true(is(1, "connected"));
	order("appear 1", "ok");
	assert_int_equal(vf_config16(&b, 0), TXDA_PCI_VENDOR);
	close(a.sock);
	close(b.sock);
}

/* What ends by itself is noticed without anybody who asks. */
TEST(test_timed_faults)
{
	const struct timespec ts = {.tv_nsec = 5000000};
	struct vf_chip a;
	uint32_t events = 0;

	join(&a, 0);
	vf_enable(&a);
	vf_write(&a, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
	order("inject thermal:chip=0:ms=30", "ok");
	assert_int_equal(vf_read(&a, TXDA_REG_IRQ_EVENTS), TXDA_IRQ_THERMAL);
	vf_write(&a, TXDA_REG_IRQ_EVENTS, TXDA_IRQ_THERMAL);
	for (unsigned i = 0; i < 2000 && !events; i++) {
		nanosleep(&ts, NULL);
		events = vf_read(&a, TXDA_REG_IRQ_EVENTS);
	}
	assert_int_equal(events, TXDA_IRQ_THERMAL);
	assert_int_equal(vf_read(&a, TXDA_REG_THROTTLE), 0);
	order("liveness-stop 0", "ok");
	assert_true(is(0, "hung"));
	order("trip 0", "ok");
	assert_true(is(0, "tripped"));
	vf_write(&a, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_false(is(0, "hung"));
	assert_false(is(0, "tripped"));
	close(a.sock);
}

TEST_MAIN_EACH(setup, teardown)
