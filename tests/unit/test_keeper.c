// SPDX-License-Identifier: MIT
/* Weights that outlive the daemon: manifests with hostile bytes, what a keeper says to the store
 * and what it takes from it, and the store of txda-holder itself. Weights and chips are fakes. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test_dir.h"
#include "fake_context.h"
#include "fake_weights.h"
#include "keeper.h"
#include "manifest.h"
#include "store.h"

#define BYTES 8192

static char said[4096]; /* what the keeper logged last */

static void take_log(bool bad, const char *text)
{
	snprintf(said, sizeof(said), "%s %s", bad ? "bad" : "good", text);
}

const char *txda_context_error(struct txda_context *context)
{
	return "the library's words";
}

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 512; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* ---- manifests ------------------------------------------------------------------------------- */

static struct manifest some_manifest(void)
{
	struct manifest m = {.backend = "fake",
			     .boot_id = "0-1-2",
			     .driver = "1.0.7",
			     .chip = "FAKE0",
			     .source = "/srv/model",
			     .case_dir = "/cache/case",
			     .rank = 1,
			     .tp = 2,
			     .inode = UINT64_MAX - 3};

	m.info = (struct txda_weights_info){.size = sizeof(m.info),
					    .bytes = 1ull << 40,
					    .crc32c = 0xdeadbeef,
					    .file_device = UINT64_MAX,
					    .file_inode = 7,
					    .file_mtime_ns = UINT64_MAX - 1,
					    .file_ctime_ns = 1ull << 60,
					    .memory_id = 1ull << 63};
	return m;
}

TEST(keeps_what_was_written)
{
	struct manifest m = some_manifest(), back;
	unsigned before = open_fds();
	char err[256];
	int fd;

	memset(m.source, 'x', sizeof(m.source) - 1);
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), 0);
	memset(&back, 0x55, sizeof(back));
	assert_int_equal(manifest_read(fd, &back, err, sizeof(err)), 0);
	assert_memory_equal(&back.info, &m.info, sizeof(m.info));
	assert_string_equal(back.source, m.source);
	assert_string_equal(back.case_dir, m.case_dir);
	assert_string_equal(back.boot_id, m.boot_id);
	assert_string_equal(back.chip, m.chip);
	assert_int_equal(back.rank, 1);
	assert_int_equal(back.tp, 2);
	assert_true(back.inode == m.inode);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1); /* it is sealed */
	close(fd);
	assert_int_equal(open_fds(), before);
}

TEST(refuses_to_write_nonsense)
{
	struct manifest m;
	char err[256];
	int fd = -7;

	m = some_manifest();
	m.rank = 2;
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), -EINVAL);
	assert_says(err, "rank 2 of 2");
	m = some_manifest();
	m.tp = 9;
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), -EINVAL);
	m = some_manifest();
	m.info.bytes = 0;
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), -EINVAL);
	m = some_manifest();
	memset(m.case_dir, 'x', sizeof(m.case_dir));
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), -EINVAL);
	m = some_manifest();
	m.source[3] = '\n';
	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), -EINVAL);
	assert_int_equal(fd, -7);
}

/* A memfd with those bytes and seals. */
static int file_of(const void *data, size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

TEST(refuses_hostile_bytes)
{
	struct manifest m = some_manifest(), back;
	unsigned char bytes[8192];
	struct stat st;
	char err[256];
	size_t n;
	int fd, r;

	assert_int_equal(manifest_write(&m, &fd, err, sizeof(err)), 0);
	assert_int_equal(fstat(fd, &st), 0);
	n = (size_t)st.st_size;
	assert_true(n < sizeof(bytes) - 1);
	assert_int_equal(pread(fd, bytes, n, 0), n);
	close(fd);
	/* Each byte changed: the hash, if nothing else, tells. */
	for (size_t i = 0; i < n; i++) {
		bytes[i] ^= (unsigned char)(1u << i % 8);
		fd = file_of(bytes, n, ALL_SEALS);
		r = manifest_read(fd, &back, err, sizeof(err));
		assert_true(r == -EINVAL || r == -EBADMSG);
		close(fd);
		bytes[i] ^= (unsigned char)(1u << i % 8);
	}
	/* Too short, too long, nothing. */
	for (size_t cut = 0; cut < 3; cut++) {
		fd = file_of(bytes, cut == 0 ? n - 1 : cut == 1 ? n + 1 : 0, ALL_SEALS);
		assert_int_equal(manifest_read(fd, &back, err, sizeof(err)), -EINVAL);
		close(fd);
	}
	/* The right bytes, but somebody could still write; or no memfd at all. */
	fd = file_of(bytes, n, F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(manifest_read(fd, &back, err, sizeof(err)), -EPERM);
	close(fd);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(manifest_read(fd, &back, err, sizeof(err)), -EINVAL);
	close(fd);
	assert_int_equal(manifest_read(-1, &back, err, sizeof(err)), -EINVAL);
	fd = file_of(bytes, n, ALL_SEALS);
	assert_int_equal(manifest_read(fd, &back, err, sizeof(err)), 0);
	close(fd);
}

/* ---- the keeper and a store ------------------------------------------------------------------ */

/* The service manager's side. */
static struct {
	int socket;
	struct store store;
	unsigned open_before;
} manager;

static int start_manager(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	manager.open_before = open_fds();
	assert_int_equal(test_dir_make(state), 0);
	strcpy(address.sun_path, at("notify"));
	manager.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(manager.socket, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(store_init(&manager.store, 100), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	return 0;
}

/* No descriptor has been left open. */
static int end_manager(void **state)
{
	store_fini(&manager.store);
	close(manager.socket);
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(open_fds(), manager.open_before);
	return test_dir_remove(state);
}

#define TEST_STORED(test) TEST_WITH(test, start_manager, end_manager)

/* Takes all messages. */
static void serve(void)
{
	char text[1024], control[CMSG_SPACE(sizeof(int) * 16)];

	for (;;) {
		struct iovec iov = {text, sizeof(text)};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control,
				     .msg_controllen = sizeof(control)};
		ssize_t len = recvmsg(manager.socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *c = len < 0 ? NULL : CMSG_FIRSTHDR(&msg);
		int fds[16];
		unsigned n = 0;

		if (len < 0)
			return;
		if (c && c->cmsg_type == SCM_RIGHTS) {
			n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		}
		store_message(&manager.store, text, (size_t)len, fds, n);
	}
}

static struct keeper *new_keeper(void)
{
	const struct keeper_options options = {.context = fake_context, .log = take_log};
	struct keeper *k;

	said[0] = '\0';
	assert_int_equal(keeper_new(&options, &k), 0);
	return k;
}

/* So many descriptors are stored when all messages have been taken. */
static void expect_stored(unsigned n)
{
	serve();
	assert_int_equal(manager.store.n, n);
}

/* What the next process is started with. */
static void hand_over(struct keeper *k)
{
	for (unsigned i = 0; i < manager.store.n; i++)
		keeper_take(k, manager.store.fds[i].name,
			    fcntl(manager.store.fds[i].fd, F_DUPFD_CLOEXEC, 3));
}

static struct txda_device *device(unsigned index)
{
	struct txda_device *d;

	assert_int_equal(txda_device_get(fake_context, index, &d), 0);
	return d;
}

static struct keeper_entry *keep_on(struct keeper *k, const char *case_dir, unsigned rank,
				    unsigned tp, unsigned chip)
{
	struct keeper_weights w = {.source = "/srv/model",
				   .case_dir = case_dir,
				   .rank = rank,
				   .tp = tp,
				   .device = device(chip)};
	struct keeper_entry *e;

	assert_int_equal(fake_weights_of(case_dir, w.device, rank, BYTES, &w.weights), 0);
	assert_int_equal(keeper_keep(k, &w, &e), 0);
	txda_weights_unref(w.weights);
	return e;
}

static struct keeper_entry *keep(struct keeper *k, const char *case_dir, unsigned rank, unsigned tp)
{
	return keep_on(k, case_dir, rank, tp, rank);
}

/* Spare bytes of a chip of the group, for a model of those case dirs. */
static uint64_t spare_bytes(struct keeper *k, struct txda_group *group, unsigned rank,
			    const char *case_dir, const char *draft_case_dir)
{
	uint64_t bytes[FAKE_CHIPS];

	keeper_spare_bytes(k, group, case_dir, draft_case_dir, bytes);
	return bytes[rank];
}

static struct txda_group *pair(void)
{
	struct txda_group_options options = TXDA_INIT(struct txda_group_options);
	struct txda_group *group;

	options.tp = 2;
	assert_int_equal(txda_group_new(fake_context, &options, &group), 0);
	return group;
}

static bool yes(void *arg, const char *source, const char *case_dir)
{
	return !strcmp(source, "/srv/model");
}

static bool no(void *arg, const char *source, const char *case_dir)
{
	return false;
}

TEST_STORED(passes_weights_on)
{
	struct txda_group *group = pair();
	struct keeper_entry *e[3];
	struct keeper *k;

	assert_true(keeper_is_possible());
	setenv("FDSTORE", "0", 1);
	assert_false(keeper_is_possible());
	unsetenv("FDSTORE");
	k = new_keeper();
	e[0] = keep(k, "/case", 0, 2);
	e[1] = keep(k, "/case", 1, 2);
	e[2] = keep(k, "/case", 1, 2); /* of another model */
	assert_ptr_equal(e[1], e[2]);
	expect_stored(4);
	assert_true(keeper_has(k, "/case", group, false));
	assert_int_equal(spare_bytes(k, group, 0, "", ""), 0);
	/* The process ends. */
	keeper_free(k);
	expect_stored(4);
	assert_int_equal(fake_weights_live(), 0);

	k = new_keeper();
	hand_over(k);
	assert_false(keeper_has(k, "/case", group, false));
	keeper_adopt(k);
	assert_says(said, "good adopted the weights of /case, rank");
	assert_int_equal(fake_weights_live(), 2);
	assert_true(keeper_has(k, "/case", group, false));
	assert_true(keeper_has(k, "/case", group, true));
	assert_false(keeper_has(k, "/other", group, false));
	assert_int_equal(spare_bytes(k, group, 0, "/other", ""), BYTES);
	assert_int_equal(spare_bytes(k, group, 0, "/other", "/case"), 0);
	assert_false(keeper_retain(k, yes, NULL));
	/* The one that is loaded is the same, and is not stored again. */
	e[0] = keep(k, "/case", 0, 2);
	expect_stored(4);
	assert_int_equal(spare_bytes(k, group, 0, "/other", ""), 0);
	assert_false(keeper_has(k, "/case", group, true));
	/* Others need the room. */
	keeper_drop_spare(k, group, "/case", "");
	assert_true(keeper_has(k, "/case", group, false));
	keeper_drop_spare(k, group, "/other", "");
	assert_false(keeper_has(k, "/case", group, false));
	expect_stored(2);
	keeper_drop(k, e[0]);
	expect_stored(0);
	assert_int_equal(fake_weights_live(), 0);
	keeper_free(k);
	txda_group_unref(group);
}

/* What is used stays, whatever directory it is of. */
TEST_STORED(retains_what_is_used)
{
	struct keeper_entry *e;
	struct keeper *k;

	k = new_keeper();
	keep(k, "/case", 0, 2);
	keep(k, "/case", 1, 2);
	keeper_free(k);
	serve();
	k = new_keeper();
	hand_over(k);
	keeper_adopt(k);
	e = keep(k, "/case", 1, 2);
	assert_true(keeper_retain(k, no, NULL));
	keeper_drop_unwanted(k);
	assert_says(said, "rank 0, dropped: /srv/model is no longer served");
	expect_stored(2);
	assert_int_equal(fake_weights_live(), 1);
	keeper_drop(k, e);
	expect_stored(0);
	assert_int_equal(fake_weights_live(), 0);
	keeper_free(k);
}

/* A model's own weights of which a load would not take all ranks: they are not there, and make
 * room for that load, all but those in use. */
TEST_STORED(gives_up_what_is_not_whole)
{
	struct txda_group *group = pair();

	for (unsigned i = 0; i < 4; i++) {
		struct keeper *k;

		k = new_keeper();
		keep_on(k, test_dir, 0, 2, i == 1 ? 1 : 0);
		if (i)
			keep_on(k, test_dir, 1, 2, i == 1 ? 0 : 1);
		keeper_free(k);
		expect_stored(i ? 4 : 2);
		k = new_keeper();
		hand_over(k);
		keeper_adopt(k);
		if (i == 2) /* compiled again since */
			put("changed", "", 0600);
		keeper_look(k);
		if (i == 3) { /* as it should be */
			assert_true(keeper_has(k, test_dir, group, true));
			assert_int_equal(spare_bytes(k, group, 0, test_dir, ""), 0);
			assert_int_equal(spare_bytes(k, group, 1, "/target", test_dir), 0);
			keeper_drop_spare(k, group, "/target", test_dir);
			expect_stored(4);
		} else {
			assert_false(keeper_has(k, test_dir, group, false));
			assert_int_equal(spare_bytes(k, group, 0, test_dir, ""), BYTES);
			assert_int_equal(spare_bytes(k, group, 1, "/target", test_dir),
					 i ? BYTES : 0);
			keeper_drop_spare(k, group, test_dir, "");
			expect_stored(0);
			assert_int_equal(fake_weights_live(), 0);
		}
		unlink(at("changed"));
		keeper_free(k);
	}
	txda_group_unref(group);
}

/* A chip was reset: one rank is of the memory before. */
TEST_STORED(looks_at_each_rank)
{
	struct txda_group *group = pair();
	struct keeper_entry *e;
	struct keeper *k;

	k = new_keeper();
	e = keep(k, "/case", 0, 2);
	fake_weights_memory_id++;
	keep(k, "/case", 1, 2);
	keeper_look(k);
	assert_false(keeper_has(k, "/case", group, false));
	/* Both are in use still. */
	assert_int_equal(spare_bytes(k, group, 0, "/case", ""), 0);
	keeper_drop_spare(k, group, "/case", "");
	expect_stored(4);
	keeper_drop(k, e);
	expect_stored(2);
	keeper_free(k);
	txda_group_unref(group);
}

/* Answers until the keeper's side has closed its end of the pipe. */
static void *serve_until_told(void *arg)
{
	struct pollfd p[2] = {{.fd = manager.socket, .events = POLLIN}, {.fd = *(int *)arg}};

	while (!p[1].revents) {
		poll(p, 2, -1);
		serve();
	}
	return NULL;
}

/* What was given up is closed in the store before the room is counted on. */
TEST_STORED(waits_for_the_store)
{
	struct keeper_entry *e;
	pthread_t thread;
	struct keeper *k;
	int pipe_fd[2], fd;

	k = new_keeper();
	e = keep(k, "/case", 0, 1);
	expect_stored(2);
	keeper_await(k); /* nothing was given up: nobody need answer */
	keeper_drop(k, e);
	assert_int_equal(manager.store.n, 2);
	fd = manager.store.fds[1].fd;
	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve_until_told, &pipe_fd[0]), 0);
	said[0] = '\0';
	keeper_await(k);
	assert_string_equal(said, "");
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	close(pipe_fd[1]);
	pthread_join(thread, NULL);
	close(pipe_fd[0]);
	assert_int_equal(manager.store.n, 0);
	keeper_await(k);
	keeper_free(k);
}

/* Lets a new process take what is stored: all of it is refused, with those words, and given up. */
static void expect_refusal(const char *words)
{
	struct keeper *k = new_keeper();

	hand_over(k);
	keeper_adopt(k);
	if (!strstr(said, words) || strncmp(said, "bad kept weights txda-weights-", 30))
		fail_msg("no \"%s\" in \"%s\"", words, said);
	assert_int_equal(fake_weights_live(), 0);
	expect_stored(0);
	keeper_free(k);
}

/* Stores weights of /tmp/.../case and ends. */
static void leave(const char *case_dir)
{
	struct keeper *k = new_keeper();

	keep(k, case_dir, 0, 1);
	keeper_free(k);
	expect_stored(2);
}

TEST_STORED(drops_what_is_not_right)
{
	struct keeper *k;
	char path[128];
	int fd, pipe_fd[2];

	/* A store that was cut short, in either half; or has too much. */
	for (unsigned i = 0; i < 2; i++) {
		leave("/case");
		close(manager.store.fds[i].fd);
		manager.store.fds[i] = manager.store.fds[1];
		manager.store.n = 1;
		expect_refusal("1 descriptors; expected a manifest and memory");
	}
	leave("/case");
	manager.store.fds[2] = manager.store.fds[1];
	manager.store.fds[2].fd = fcntl(manager.store.fds[1].fd, F_DUPFD_CLOEXEC, 3);
	manager.store.n = 3;
	expect_refusal("3 descriptors; expected a manifest and memory");
	/* Other memory than the manifest's. */
	leave("/case");
	fd = memfd_create("other", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_true(dup3(fd, manager.store.fds[1].fd, O_CLOEXEC) >= 0);
	close(fd);
	expect_refusal("of /case dropped: the manifest belongs to other memory");
	/* Two that are no manifest. */
	leave("/case");
	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	assert_true(dup3(pipe_fd[0], manager.store.fds[0].fd, O_CLOEXEC) >= 0);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	expect_refusal("the manifest is malformed, or has another version");
	/* The chip was reset; the file is another one. */
	leave("/case");
	fake_weights_memory_id++;
	expect_refusal("of /case dropped: the library's words");
	leave(test_dir);
	put("changed", "", 0600);
	expect_refusal("dropped");
	unlink(at("changed"));
	/* Of a model that is not served; a name that is too long. */
	leave("/case");
	k = new_keeper();
	hand_over(k);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	keeper_take(k, path, open("/dev/null", O_RDONLY | O_CLOEXEC));
	assert_says(said, "unexpected descriptor");
	keeper_adopt(k);
	assert_true(keeper_retain(k, no, NULL));
	keeper_drop_unwanted(k);
	assert_says(said, "/srv/model is no longer served");
	assert_int_equal(fake_weights_live(), 0);
	expect_stored(0);
	keeper_free(k);
	/* Descriptors that nobody looked at are closed. */
	leave("/case");
	k = new_keeper();
	hand_over(k);
	keeper_free(k);
}

/* Nobody keeps them: that is said, and nothing else happens. */
TEST(does_without_a_store)
{
	struct keeper_weights w = {
		.source = "/srv/model", .case_dir = "/case", .tp = 1, .device = device(0)};
	struct keeper *k = new_keeper();
	struct keeper_entry *e = NULL;

	assert_false(keeper_is_possible());
	assert_int_equal(fake_weights_of("/case", w.device, 0, BYTES, &w.weights), 0);
	assert_int_equal(keeper_keep(k, &w, &e), -ENOTCONN);
	assert_says(said, "bad the weights of /case, rank 0, will not survive the daemon");
	assert_null(e);
	txda_weights_unref(w.weights);
	assert_int_equal(fake_weights_live(), 0);
	keeper_free(k);
}

/* ---- the holder's store ---------------------------------------------------------------------- */

static bool message(struct store *s, const char *text, unsigned n)
{
	int fds[8];

	for (unsigned i = 0; i < n; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return store_message(s, text, strlen(text), fds, n);
}

TEST(holds_what_it_is_told_to)
{
	unsigned before = open_fds();
	char text[600];
	struct store s;

	assert_int_equal(store_init(&s, 4), 0);
	assert_false(message(&s, "FDSTORE=1\nFDNAME=a", 2));
	assert_false(message(&s, "FDNAME=b\nFDSTORE=1\n", 1));
	assert_int_equal(s.n, 3);
	assert_string_equal(s.fds[1].name, "a");
	assert_string_equal(s.fds[2].name, "b");
	/* All or none. */
	assert_false(message(&s, "FDSTORE=1\nFDNAME=c", 2));
	assert_int_equal(s.n, 3);
	assert_false(message(&s, "FDSTORE=1", 1));
	assert_string_equal(s.fds[3].name, "stored");
	assert_false(message(&s, "FDSTOREREMOVE=1\nFDNAME=a", 1));
	assert_int_equal(s.n, 2);
	assert_string_equal(s.fds[0].name, "b");
	/* Names that would break the list of names, and what is none of its business. */
	assert_false(message(&s, "FDSTORE=1\nFDNAME=x:y", 1));
	assert_false(message(&s, "FDSTORE=1\nFDNAME=x y", 1));
	assert_false(message(&s, "FDSTORE=1\nFDNAME=x\x7f", 1));
	snprintf(text, sizeof(text), "FDSTORE=0\nFDNAME=%0300d\nSTATUS=FDSTORE=1\n\n\n=", 7);
	assert_false(message(&s, text, 3));
	assert_false(message(&s, "", 2));
	assert_false(message(&s, "FDSTOREREMOVE=1\nFDNAME=nobody", 0));
	assert_int_equal(s.n, 2);
	assert_true(message(&s, "READY=1\nSTATUS=ok", 0));
	assert_false(store_message(&s, "READY=1\0x", 9, NULL, 0));
	assert_int_equal(open_fds(), before + 2);
	store_fini(&s);
	assert_int_equal(open_fds(), before);
}

int main(int argc, char **argv)
{
	unsetenv("NOTIFY_SOCKET");
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_tests(argv[0], NULL, NULL);
}
