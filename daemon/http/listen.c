// SPDX-License-Identifier: MIT
#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 50 /* within a second */

static int fail(int error, char *err, size_t errlen, const char *what, const char *path)
{
	snprintf(err, errlen, "%s %s: %s", what, path, strerror(error));
	return -error;
}

/*
 * Creates the last directory of the path if its parent exists: without systemd nothing else creates
 * /run/txda.
 */
static void make_directory(const char *path)
{
	char dir[112];
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash && slash != dir) {
		*slash = 0;
		/* A failure shows when the lock file is created. */
		(void)!mkdir(dir, 0755);
	}
}

/*
 * A child has the lock, too, until it runs its own program, and may have to wait for a processor
 * before: it can keep the lock of a killed daemon for a moment.
 */
static bool lock(int fd)
{
	const struct timespec pause = {.tv_nsec = 1000000000 / LOCK_TRIES};
	unsigned tries = 0;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || ++tries == LOCK_TRIES)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static int take_lock(const char *path, int *ret_fd, char *err, size_t errlen)
{
	char lock_path[128];
	int fd;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail(errno, err, errlen, "cannot open", lock_path);
	if (!lock(fd)) {
		int error = errno;

		close(fd);
		if (error != EWOULDBLOCK)
			return fail(error, err, errlen, "cannot lock", lock_path);
		snprintf(err, errlen, "another txdad serves %s (it holds %s)", path, lock_path);
		return -EADDRINUSE;
	}
	*ret_fd = fd;
	return 0;
}

/* Removes a socket file on which nobody listens. */
static int remove_stale(const struct sockaddr_un *address, char *err, size_t errlen)
{
	const char *path = address->sun_path;
	struct stat st;
	int fd, error = 0;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : fail(errno, err, errlen, "cannot look at", path);
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(err, errlen, "%s exists and is not a socket", path);
		return -EEXIST;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(errno, err, errlen, "cannot make a socket for", path);
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		error = errno;
	close(fd);
	if (error != ECONNREFUSED && error != ENOENT) {
		snprintf(err, errlen, "another process listens on %s", path);
		return -EADDRINUSE;
	}
	if (unlink(path) && errno != ENOENT)
		return fail(errno, err, errlen, "cannot remove the stale socket", path);
	return 0;
}

static int set_group(const char *path, const char *name, char *err, size_t errlen)
{
	struct group *group = getgrnam(name);

	if (!group) {
		snprintf(err, errlen, "unknown group %s", name);
		return -EINVAL;
	}
	if (chown(path, (uid_t)-1, group->gr_gid))
		return fail(errno, err, errlen, "cannot change the group of", path);
	return 0;
}

static int make_socket(const struct sockaddr_un *address, mode_t mode, const char *group,
		       int *ret_fd, char *err, size_t errlen)
{
	const char *path = address->sun_path;
	mode_t mask;
	int fd, error;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(errno, err, errlen, "cannot make a socket for", path);
	/* Nobody else can connect until mode and group are set. */
	mask = umask(0777);
	error = bind(fd, (const struct sockaddr *)address, sizeof(*address)) ? errno : 0;
	umask(mask);
	if (error) {
		close(fd);
		return fail(error, err, errlen, "cannot make the socket", path);
	}
	error = group ? -set_group(path, group, err, errlen) : 0;
	if (!error && chmod(path, mode))
		error = -fail(errno, err, errlen, "cannot set the mode of", path);
	if (!error && listen(fd, LISTEN_BACKLOG))
		error = -fail(errno, err, errlen, "cannot listen on", path);
	if (error) {
		unlink(path);
		close(fd);
		return -error;
	}
	*ret_fd = fd;
	return 0;
}

int listen_socket_open(const char *path, mode_t mode, const char *group, struct listen_socket *ret,
		       char *err, size_t errlen)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct listen_socket s = {.fd = -1, .lock_fd = -1};
	int r;

	if (strlen(path) >= sizeof(address.sun_path)) {
		snprintf(err, errlen, "the socket's path has %zu bytes; the limit is %zu: %s",
			 strlen(path), sizeof(address.sun_path) - 1, path);
		return -ENAMETOOLONG;
	}
	strcpy(address.sun_path, path);
	make_directory(path);
	r = take_lock(path, &s.lock_fd, err, errlen);
	if (r)
		return r;
	r = remove_stale(&address, err, errlen);
	if (!r)
		r = make_socket(&address, mode, group, &s.fd, err, errlen);
	if (r) {
		close(s.lock_fd);
		return r;
	}
	strcpy(s.path, path);
	*ret = s;
	return 0;
}

static int socket_option(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

int listen_socket_adopt(int fd, struct listen_socket *ret, char *err, size_t errlen)
{
	if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
	    socket_option(fd, SO_ACCEPTCONN) != 1) {
		snprintf(err, errlen,
			 "the inherited descriptor %d is not a listening Unix stream socket", fd);
		return -EINVAL;
	}
	/* The daemon changes the backlog temporarily, so it sets its own to return to. */
	if (listen(fd, LISTEN_BACKLOG))
		return fail(errno, err, errlen, "cannot listen on", "an inherited socket");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*ret = (struct listen_socket){.fd = fd, .lock_fd = -1};
	return 0;
}

void listen_socket_close(struct listen_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->path[0])
		unlink(s->path);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	*s = (struct listen_socket){.fd = -1, .lock_fd = -1};
}
