// SPDX-License-Identifier: MIT
#include "case_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "case_reply.h"
#include "child.h"
#include "owned.h"
#include "program.h"
#include "set_error.h"
#include "utf8.h"

#define SECONDS 30 /* longest time of reading a file */
#define KEPT	16 /* results: a load asks several times for its model's and draft's */

/* Which file, in which version. */
struct version {
	dev_t device;
	ino_t inode;
	off_t bytes;
	struct timespec modified, changed;
};

struct kept {
	struct version version;
	struct case_reply *reply; /* NULL: free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept all[KEPT]; /* the last used one first */

static struct version version_of(const struct stat *st)
{
	struct version v;

	memset(&v, 0, sizeof(v)); /* compared with its padding */
	v.device = st->st_dev;
	v.inode = st->st_ino;
	v.bytes = st->st_size;
	v.modified = st->st_mtim;
	v.changed = st->st_ctim;
	return v;
}

static void put_first(struct kept k, unsigned instead)
{
	memmove(&all[1], &all[0], instead * sizeof(all[0]));
	all[0] = k;
}

static bool find_kept(const struct version *v, struct case_reply *ret)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < KEPT && all[i].reply && !found; i++) {
		found = !memcmp(&all[i].version, v, sizeof(*v));
		if (found)
			put_first(all[i], i);
	}
	if (found)
		*ret = *all[0].reply;
	pthread_mutex_unlock(&lock);
	return found;
}

static void keep(const struct version *v, const struct case_reply *reply)
{
	struct kept k = {*v, malloc(sizeof(*reply))};

	if (!k.reply)
		return;
	*k.reply = *reply;
	pthread_mutex_lock(&lock);
	free(all[KEPT - 1].reply);
	put_first(k, KEPT - 1);
	pthread_mutex_unlock(&lock);
}

static void end_text(char *text, size_t size)
{
	text[size - 1] = '\0';
	utf8_tame(text, ' ');
}

/* Its contents may be wrong, but must be harmless. */
static void tame(struct case_reply *reply)
{
	end_text(reply->message, sizeof(reply->message));
	end_text(reply->tower_message, sizeof(reply->tower_message));
	if (reply->error)
		reply->error = reply->error == -ENOMEM ? -ENOMEM : -EINVAL;
	case_said_tame(&reply->said);
	reply->sees = reply->sees != 0;
	if (reply->sees && reply->tower_error)
		reply->tower_error = -EINVAL;
	else if (reply->sees)
		reply->tower_error = image_tower_check(&reply->tower, reply->tower_message,
						       sizeof(reply->tower_message));
}

static int run_reader(int fd, struct case_reply *ret, char *err, size_t errlen)
{
	static const atomic_bool never;
	const struct child_options options = {.seconds = SECONDS, .stop = &never, .input = fd};
	char program[PATH_MAX], mode[] = "--case", why[256] = "";
	char *const argv[] = {program, mode, NULL};
	struct output {
		struct case_reply reply;
		char end[8]; /* shows output that is too long */
	} *out = malloc(sizeof(*out));
	size_t n = 0;
	int r = out ? program_find("txdad-text", program, sizeof(program)) : -ENOMEM;

	if (!r)
		r = child_run(&options, argv, (char *)out, sizeof(*out), &n, why, sizeof(why));
	else if (out)
		snprintf(why, sizeof(why), "cannot find the program txdad-text");
	if (!r && n != sizeof(out->reply))
		r = -EPROTO;
	if (r) {
		r = set_error(r, err, errlen, "%s cannot be read in a confined process: %s",
			      CASE_INFO_NAME, *why ? why : strerror(-r));
	} else {
		*ret = out->reply;
		tame(ret);
	}
	free(out);
	return r;
}

static int read_reply(int fd, struct case_reply *ret, char *err, size_t errlen)
{
	struct stat before, after;
	struct version v;
	int r;

	if (fstat(fd, &before))
		return set_error(-errno, err, errlen, "%s: %s", CASE_INFO_NAME, strerror(errno));
	v = version_of(&before);
	if (!find_kept(&v, ret)) {
		r = run_reader(fd, ret, err, errlen);
		if (r)
			return r;
		if (!fstat(fd, &after)) {
			struct version then = version_of(&after);

			if (!memcmp(&v, &then, sizeof(v)))
				keep(&v, ret);
		}
	}
	return ret->error ? set_error(ret->error, err, errlen, "%s", ret->message) : 0;
}

static int read_case(int fd, struct case_said *ret, char *err, size_t errlen)
{
	struct case_reply *reply = malloc(sizeof(*reply));
	int r = reply ? read_reply(fd, reply, err, errlen)
		      : set_error(-ENOMEM, err, errlen, "out of memory");

	if (!r)
		*ret = reply->said;
	free(reply);
	return r;
}

void case_reader_use(void)
{
	case_info_use(read_case);
}

static int find_tower(const char *case_dir, struct case_reply *reply, char *err, size_t errlen)
{
	int dir = open(case_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, r;
	struct stat st;

	if (dir < 0)
		return set_error(-errno, err, errlen, "%s", strerror(errno));
	fd = owned_open(dir, CASE_INFO_NAME, &st, err, errlen);
	close(dir);
	if (fd == -ENOENT) { /* the model's load reports it */
		reply->sees = 0;
		return 0;
	}
	if (fd < 0)
		return fd;
	r = read_reply(fd, reply, err, errlen);
	close(fd);
	if (!r && reply->sees && reply->tower_error)
		r = set_error(reply->tower_error, err, errlen, "%s: %s", CASE_INFO_NAME,
			      reply->tower_message);
	return r;
}

int case_reader_tower(const char *case_dir, struct image_tower *ret, bool *ret_sees, char *err,
		      size_t errlen)
{
	struct case_reply *reply = calloc(1, sizeof(*reply));
	char why[400] = "out of memory";
	int r = reply ? find_tower(case_dir, reply, why, sizeof(why)) : -ENOMEM;

	if (r) {
		snprintf(err, errlen, "%.400s: %s", case_dir, why);
	} else {
		*ret = reply->tower;
		*ret_sees = reply->sees;
	}
	free(reply);
	return r;
}
