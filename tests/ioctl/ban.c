// SPDX-License-Identifier: MIT
/*
 * A user whose jobs make chip resets necessary again and again is banned for a while, and nobody
 * else is. As root, in the rig, and in the group that may open the nodes.
 */
#include "args.h"

/* Users with no account; each test has its own, since what a user did is remembered. */
enum { USER_BANNED = 12345, USER_ALL, USER_IDLE, USER_OTHER };

#define SHORT_MS 400
#define LONG_MS	 600000
#define RESETS	 3

static struct client witness;

/* The limits of a user are for those without CAP_SYS_RESOURCE. */
static void become(uid_t uid)
{
	if (seteuid(0) || (uid && seteuid(uid)))
		fail("seteuid %u: %s", uid, strerror(errno));
}

static struct client must_client_of(uid_t uid)
{
	struct client c;

	become(uid);
	c = must_client(0);
	become(0);
	return c;
}

/* Whether a client of that user can work: a new queue's answer to a job. */
static int try_work(struct client *c, uid_t uid)
{
	uint32_t queue;
	int err;

	become(uid);
	queue = must_queue_for(c->fd, c->vm, LONG_MS);
	err = submit_wait(c->fd, queue, 0, 0);
	must(queue_destroy(c->fd, queue));
	become(0);
	return err;
}

/* A job that waits for what never comes; the syncobj that it signals. */
static uint32_t must_hang(struct client *c, uid_t uid, uint32_t queue)
{
	struct stream s;
	struct mem word;
	uint32_t done;

	become(uid);
	s = must_block(c->fd, c->vm, &word);
	done = must_submit(c->fd, queue, &s);
	become(0);
	return done;
}

static void must_reset(uint64_t before)
{
	must_become(chip_resets(witness.fd) != before);
	/* Ends with the reset. */
	must(try_work(&witness, 0));
}

/* One chip reset because of a job of the client: it hangs, and its queue does not stop. */
static void must_cause_reset(struct client *c, uid_t uid, const char *how)
{
	uint32_t queue = must_queue_for(c->fd, c->vm, SHORT_MS), done;
	uint64_t before = chip_resets(witness.fd);

	vmhost("%s 0", how);
	done = must_hang(c, uid, queue);
	must_fail(fence_status(c->fd, done), ETIME);
	must_reset(before);
	must(queue_destroy(c->fd, queue));
}

/* Whether fdinfo says that the file's user is banned. */
static bool is_told(const struct client *c)
{
	char path[64], line[128];
	bool told = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", c->fd);
	f = fopen(path, "re");
	check(f);
	while (fgets(line, sizeof(line), f))
		told |= !strncmp(line, "txda-banned:\t", 13) && atoi(line + 13) > 0;
	fclose(f);
	return told;
}

static void close_client(struct client *c)
{
	munmap_mem(&c->stream.mem);
	close(c->fd);
}

/* ---- Bans ----------------------------------------------------------------------------------- */

TEST(ban)
{
	struct client old, bad, fresh, other;

	witness = must_client(0);
	old = must_client_of(USER_BANNED);
	bad = must_client_of(USER_BANNED);
	other = must_client_of(USER_OTHER);
	for (int i = 0; i < RESETS; i++) {
		must(try_work(&bad, USER_BANNED));
		check(!is_told(&bad));
		must_cause_reset(&bad, USER_BANNED, "stick-stop");
	}
	must_fail(try_work(&bad, USER_BANNED), EPERM);
	check(is_told(&bad));
	/* A new file is no way out, also when there was no other for a moment. */
	fresh = must_client_of(USER_BANNED);
	must_fail(try_work(&fresh, USER_BANNED), EPERM);
	check(is_told(&fresh));
	/* What was there before and did nothing wrong goes on. */
	must(try_work(&old, USER_BANNED));
	check(!is_told(&old));
	must(try_work(&other, USER_OTHER));
	must(try_work(&witness, 0));
	/* Who may have more than a user's share may do this as well. */
	must(try_work(&bad, 0));
	close_client(&old);
	close_client(&bad);
	close_client(&fresh);
	fresh = must_client_of(USER_BANNED);
	must_fail(try_work(&fresh, USER_BANNED), EPERM);
}

/* Files that were opened in time are one chance more, not one each. */
TEST(ban_all)
{
	struct client old[3], bad;

	witness = must_client(0);
	for (size_t i = 0; i < ARRAY_SIZE(old); i++)
		old[i] = must_client_of(USER_ALL);
	bad = must_client_of(USER_ALL);
	for (int i = 0; i < RESETS; i++)
		must_cause_reset(&bad, USER_ALL, "stick-stop");
	must(try_work(&old[0], USER_ALL));
	must_cause_reset(&old[0], USER_ALL, "stick-stop");
	for (size_t i = 0; i < ARRAY_SIZE(old); i++)
		must_fail(try_work(&old[i], USER_ALL), EPERM);
}

/*
 * The chip as a whole stands still, and the queue with the shortest limit is the first to be
 * stopped: while another user's work is on the chip it is not to blame, else it is.
 */
TEST(ban_doubt)
{
	struct client bad, other;
	uint32_t queue;

	witness = must_client(0);
	bad = must_client_of(USER_IDLE);
	other = must_client_of(USER_OTHER);
	for (int i = 0; i < RESETS; i++) {
		queue = must_queue_for(other.fd, other.vm, LONG_MS);
		must_hang(&other, USER_OTHER, queue);
		must_cause_reset(&bad, USER_IDLE, "liveness-stop");
		must(queue_destroy(other.fd, queue));
	}
	must(try_work(&bad, USER_IDLE));
	must(try_work(&other, USER_OTHER));
	for (int i = 0; i < RESETS; i++)
		must_cause_reset(&bad, USER_IDLE, "liveness-stop");
	must_fail(try_work(&bad, USER_IDLE), EPERM);
	must(try_work(&other, USER_OTHER));
}

/* Waits until the bans of earlier tests are over. */
TEST(ban_ends)
{
	struct client c;

	witness = must_client(0);
	c = must_client_of(USER_BANNED);
	must_become(!try_work(&c, USER_BANNED));
	check(!is_told(&c));
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
