// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "crc32c.h"
#include "telemetry.h"

/* The directories, in order of preference. */
enum { SESSION_DIRECTORY, SYSTEM_DIRECTORY, DAEMON_DIRECTORY, USER_DIRECTORY, N_DIRECTORIES };

size_t txda__page_bytes(unsigned n)
{
	return offsetof(struct txda__page, chip) + n * sizeof(struct txda__page_chip);
}

/* Reads a file of /proc into @text; false when it cannot. */
static bool read_proc(int pid, const char *name, char *text, size_t size)
{
	char path[40];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

int txda__process_start(int pid, uint64_t *ret_start_time)
{
	char text[1024], *s;

	if (!read_proc(pid, "stat", text, sizeof(text)))
		return -ESRCH;
	/*
	 * The command, field 2, is in parentheses and may contain any character: count fields after
	 * the last parenthesis.
	 */
	s = strrchr(text, ')');
	if (!s || s[1] != ' ' || s[2] == 'Z' || s[2] == 'X')
		return -ESRCH; /* or dead but not reaped by its parent yet */
	for (unsigned field = 2; s && field < 22; field++)
		s = strchr(s + 1, ' ');
	if (!s)
		return -ESRCH;
	*ret_start_time = strtoull(s, NULL, 10);
	return 0;
}

int txda__process_user(int pid, unsigned *ret_uid)
{
	char text[2048], *s;

	if (!read_proc(pid, "status", text, sizeof(text)))
		return -ESRCH;
	s = strstr(text, "\nUid:\t");
	s = s ? strchr(s + 6, '\t')
	      : NULL; /* the second number: the effective user id, which owns the process's files */
	if (!s)
		return -ESRCH;
	*ret_uid = (unsigned)strtoul(s, NULL, 10);
	return 0;
}

bool txda__telemetry_directory(unsigned index, char *path, size_t len)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	*path = '\0';
	switch (index) {
	case SESSION_DIRECTORY:
		if (xdg && *xdg == '/' && snprintf(path, len, "%s/txda", xdg) >= (int)len)
			*path = '\0';
		break;
	case SYSTEM_DIRECTORY: snprintf(path, len, "/run/txda"); break;
	case DAEMON_DIRECTORY: snprintf(path, len, "/run/txdad"); break;
	case USER_DIRECTORY: snprintf(path, len, "/tmp/txda-%u", (unsigned)geteuid()); break;
	}
	return index < N_DIRECTORIES;
}

/* Opens a directory to publish in; creates it if it is one of the user's own. */
static int open_directory(unsigned index, const char *path)
{
	bool own = index != SYSTEM_DIRECTORY;
	struct stat st;
	int fd, r = 0;

	if (!*path)
		return -ENOENT;
	if ((index == SESSION_DIRECTORY || index == USER_DIRECTORY) && mkdir(path, 0755) < 0 &&
	    errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* In /tmp another user may have created it first. */
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (own ? st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH)
		     : st.st_mode & S_IWOTH)
		r = -EPERM;
	else if (faccessat(fd, ".", W_OK, AT_EACCESS) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* Removes pages of dead processes of this user. */
static void sweep(int dir_fd)
{
	int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint64_t start;
	struct stat st;
	int pid, number;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		if (sscanf(entry->d_name, "chips-%d-%d", &pid, &number) != 2 || pid == getpid())
			continue;
		if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    st.st_uid != geteuid())
			continue;
		if (txda__process_start(pid, &start) < 0)
			unlinkat(dir_fd, entry->d_name, 0);
	}
	closedir(dir);
}

int txda__telemetry_open(struct txda__telemetry *telemetry)
{
	static atomic_uint number;
	char path[200], name[48];
	int dir_fd, fd, r = -ENOENT;

	telemetry->fd = -1;
	for (unsigned i = 0; txda__telemetry_directory(i, path, sizeof(path)); i++) {
		dir_fd = open_directory(i, path);
		if (dir_fd < 0) {
			r = dir_fd;
			continue;
		}
		sweep(dir_fd);
		snprintf(name, sizeof(name), "chips-%d-%u", (int)getpid(),
			 atomic_fetch_add(&number, 1));
		unlinkat(dir_fd, name, 0);
		fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		r = fd < 0 ? -errno : 0;
		close(dir_fd);
		if (r < 0)
			continue;
		fchmod(fd, 0644); /* regardless of the umask: all users may read it */
		snprintf(telemetry->path, sizeof(telemetry->path), "%s/%s", path, name);
		telemetry->fd = fd;
		return 0;
	}
	return r;
}

int txda__telemetry_publish(struct txda__telemetry *telemetry, struct txda__page *page)
{
	size_t bytes = txda__page_bytes(page->n_chips);
	ssize_t n;

	if (telemetry->fd < 0)
		return -EBADF;
	page->magic = TXDA__PAGE_MAGIC;
	page->version = TXDA__PAGE_VERSION;
	page->bytes = (uint32_t)bytes;
	page->pid = getpid();
	if (!page->start_time)
		txda__process_start(page->pid, &page->start_time);
	page->updated_ns = clock_ns();
	page->crc32c = 0;
	page->crc32c = crc32c(0, page, bytes);
	n = pwrite(telemetry->fd, page, bytes, 0);
	return n == (ssize_t)bytes ? 0 : n < 0 ? -errno : -EIO;
}

void txda__telemetry_close(struct txda__telemetry *telemetry)
{
	if (telemetry->fd < 0)
		return;
	unlink(telemetry->path);
	close(telemetry->fd);
	telemetry->fd = -1;
}

/* Reads a consistent page, or fails if the file is not a page. */
static int read_page(int fd, struct txda__page *page)
{
	for (int tries = 0; tries < 8; tries++) {
		ssize_t n = pread(fd, page, sizeof(*page), 0);
		uint32_t crc;

		if (n < 0)
			return -errno;
		if ((size_t)n >= offsetof(struct txda__page, chip) &&
		    page->magic == TXDA__PAGE_MAGIC && page->version == TXDA__PAGE_VERSION &&
		    page->n_chips <= TXDA__MAX_CHIPS &&
		    page->bytes == txda__page_bytes(page->n_chips) && (size_t)n >= page->bytes) {
			crc = page->crc32c;
			page->crc32c = 0;
			if (crc32c(0, page, page->bytes) == crc)
				return 0;
		}
		usleep(200); /* it may be in the middle of an update */
	}
	return -EBADMSG;
}

/* Text from another process: NUL-terminated, and without control characters. */
static void clean_text(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (char *s = text; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			*s = '?';
}

int txda__telemetry_read(int dir_fd, const char *name, struct txda__page *ret_page)
{
	struct stat st;
	uint64_t start;
	unsigned uid;
	int fd, r;

	/* Non-blocking, since the name might be a FIFO. */
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EBADMSG;
	}
	r = read_page(fd, ret_page);
	close(fd);
	if (r < 0)
		return r;
	if (ret_page->pid <= 0 || txda__process_start(ret_page->pid, &start) < 0 ||
	    start != ret_page->start_time)
		return -ESRCH;
	if (txda__process_user(ret_page->pid, &uid) < 0)
		return -ESRCH;
	if (uid != st.st_uid)
		return -EPERM;
	clean_text(ret_page->command, sizeof(ret_page->command));
	clean_text(ret_page->purpose, sizeof(ret_page->purpose));
	for (unsigned i = 0; i < ret_page->n_chips; i++) {
		struct txda__page_chip *chip = &ret_page->chip[i];

		clean_text(chip->name, sizeof(chip->name));
		clean_text(chip->serial, sizeof(chip->serial));
		clean_text(chip->bus, sizeof(chip->bus));
		if (chip->mem_used_bytes > chip->mem_bytes)
			chip->mem_used_bytes = chip->mem_bytes;
		if (chip->utilisation_permille != UINT32_MAX && chip->utilisation_permille > 1000)
			chip->utilisation_permille = 1000;
	}
	return 0;
}
