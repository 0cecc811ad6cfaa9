// SPDX-License-Identifier: MIT
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD 3

int store_init(struct store *s, unsigned max)
{
	*s = (struct store){.max = max};
	s->fds = calloc(max ? max : 1, sizeof(*s->fds));
	return s->fds ? 0 : -ENOMEM;
}

void store_clear(struct store *s)
{
	while (s->n)
		close(s->fds[--s->n].fd);
}

void store_fini(struct store *s)
{
	store_clear(s);
	free(s->fds);
	s->fds = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A parsed message. */
struct wish {
	bool store, remove, ready;
	char name[STORE_MAX_NAME + 1];
};

static bool is_line(const char *line, size_t len, const char *wanted)
{
	return len == strlen(wanted) && !memcmp(line, wanted, len);
}

static void read_line(struct wish *w, const char *line, size_t len)
{
	static const char name[] = "FDNAME=";
	size_t skip = sizeof(name) - 1;

	if (is_line(line, len, "FDSTORE=1"))
		w->store = true;
	else if (is_line(line, len, "FDSTOREREMOVE=1"))
		w->remove = true;
	else if (is_line(line, len, "READY=1"))
		w->ready = true;
	else if (len > skip && len - skip <= STORE_MAX_NAME && !memcmp(line, name, skip))
		snprintf(w->name, sizeof(w->name), "%.*s", (int)(len - skip), line + skip);
}

/* Names are separated by colons when they are passed on. */
static bool is_name(const char *name)
{
	for (const char *p = name; *p; p++)
		if (*p <= ' ' || *p > '~' || *p == ':')
			return false;
	return *name;
}

static void remove_named(struct store *s, const char *name)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < s->n; i++) {
		if (!strcmp(s->fds[i].name, name))
			close(s->fds[i].fd);
		else
			s->fds[kept++] = s->fds[i];
	}
	s->n = kept;
}

/* Stores them and returns true, or prints the reason. */
static bool keep(struct store *s, const struct wish *w, const int *fds, unsigned n)
{
	if (n > s->max - s->n) {
		fprintf(stderr,
			"txda-holder: cannot add %u descriptors '%s' to %u; the limit is %u\n", n,
			w->name, s->n, s->max);
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		s->fds[s->n].fd = fds[i];
		memcpy(s->fds[s->n++].name, w->name, sizeof(w->name));
	}
	return true;
}

bool store_message(struct store *s, const char *text, size_t len, const int *fds, unsigned n_fds)
{
	struct wish w = {.name = "stored"};
	bool kept = false;

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		read_line(&w, text, n);
		text += n + (end ? 1 : 0);
		len -= n + (end ? 1 : 0);
	}
	if ((w.store || w.remove) && !is_name(w.name))
		fprintf(stderr, "txda-holder: a name of descriptors with a space, a colon or a "
				"control character\n");
	else if (w.remove)
		remove_named(s, w.name);
	else if (w.store)
		kept = keep(s, &w, fds, n_fds);
	for (unsigned i = 0; i < n_fds && !kept; i++)
		close(fds[i]);
	return w.ready;
}

/* ---- passing them on ------------------------------------------------------------------------- */

static int put_number(const char *name, long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", value);
	return setenv(name, text, 1) ? -errno : 0;
}

/* The names, a colon between two. */
static int put_names(const struct store *s)
{
	char *names = malloc((size_t)s->n * (STORE_MAX_NAME + 1) + 1), *at = names;
	int error;

	if (!names)
		return -ENOMEM;
	*at = '\0';
	for (unsigned i = 0; i < s->n; i++)
		at += sprintf(at, "%s%s", i ? ":" : "", s->fds[i].name);
	error = setenv("LISTEN_FDNAMES", names, 1) ? -errno : 0;
	free(names);
	return error;
}

int store_export(const struct store *s, pid_t pid)
{
	int *fds, error = 0;

	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	error = put_number("FDSTORE", (long)s->max);
	if (!s->n || error)
		return error;
	/* First moves them above the numbers that they get. */
	fds = calloc(s->n, sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	for (unsigned i = 0; i < s->n && !error; i++) {
		fds[i] = fcntl(s->fds[i].fd, F_DUPFD_CLOEXEC, FIRST_FD + (int)s->n);
		error = fds[i] < 0 ? -errno : 0;
	}
	for (unsigned i = 0; i < s->n && !error; i++)
		error = dup2(fds[i], FIRST_FD + (int)i) < 0 ? -errno : 0;
	free(fds);
	if (!error)
		error = put_number("LISTEN_FDS", s->n);
	if (!error)
		error = put_number("LISTEN_PID", pid);
	return error ? error : put_names(s);
}
