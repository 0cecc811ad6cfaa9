// SPDX-License-Identifier: MIT
#include "keeper.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "manifest.h"

#define MAX_NAME  64
#define MAX_TAKEN 4096
#define PAGE	  4096ull
#define AWAIT_US  5000000ull /* timeout for an answer of the process that keeps them */

/* Weights in the descriptor store. */
struct keeper_entry {
	struct keeper_entry *next;
	char name[MAX_NAME];
	struct txda_weights *weights; /* a reference */
	struct txda_device *device;   /* borrowed: referenced by the weights */
	char source[MANIFEST_PATH], case_dir[MANIFEST_PATH];
	unsigned rank, tp, users; /* 0: adopted, and not used yet */
	uint64_t bytes;
	bool usable;	   /* as of the last keeper_look() */
	bool unwanted;	   /* as of the last keeper_retain() */
	bool found, spare; /* by the last search; belong to the holder of the lock */
};

/* A descriptor inherited at start. */
struct taken {
	char name[MAX_NAME];
	int fd; /* -1: handled */
};

struct keeper {
	struct keeper_options options;
	struct taken *taken;
	unsigned n_taken;
	pthread_mutex_t
		lock; /* protects the list; not held while a message is sent, which may block */
	struct keeper_entry *entries;
	atomic_bool gave_up; /* since the last keeper_await() */
};

static void report(const struct keeper *k, bool bad, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void report(const struct keeper *k, bool bad, const char *format, ...)
{
	char text[2 * MANIFEST_PATH];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	k->options.log(bad, text);
}

bool keeper_is_possible(void)
{
	const char *socket = getenv("NOTIFY_SOCKET"), *max = getenv("FDSTORE");

	return socket && *socket && (!max || strcmp(max, "0"));
}

int keeper_new(const struct keeper_options *options, struct keeper **ret)
{
	struct keeper *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->options = *options;
	txda_context_ref(options->context);
	pthread_mutex_init(&k->lock, NULL);
	*ret = k;
	return 0;
}

void keeper_free(struct keeper *k)
{
	struct keeper_entry *e, *next;

	if (!k)
		return;
	for (unsigned i = 0; i < k->n_taken; i++)
		if (k->taken[i].fd >= 0)
			close(k->taken[i].fd);
	for (e = k->entries; e; e = next) {
		next = e->next;
		txda_weights_unref(e->weights);
		free(e);
	}
	free(k->taken);
	pthread_mutex_destroy(&k->lock);
	txda_context_unref(k->options.context);
	free(k);
}

static void forget(struct keeper *k, const char *name)
{
	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
	atomic_store(&k->gave_up, true);
}

/* ---- identity of the machine and driver ------------------------------------------------------ */

/* Conditions that must be the same for the next daemon, apart from the weights themselves. */
static int describe_place(struct keeper *k, struct txda_device *device, struct manifest *m)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	int error = txda_device_info(device, &info);

	snprintf(m->backend, sizeof(m->backend), "%s", txda_context_backend(k->options.context));
	snprintf(m->driver, sizeof(m->driver), "%s", info.driver);
	/* A simulated chip's serial contains the process id, which is ignored. */
	if (strcmp(m->backend, "cmodel"))
		snprintf(m->chip, sizeof(m->chip), "%s", info.serial);
	else
		snprintf(m->chip, sizeof(m->chip), "%u", info.physical);
	if (file) {
		if (!fgets(m->boot_id, sizeof(m->boot_id), file))
			m->boot_id[0] = '\0';
		m->boot_id[strcspn(m->boot_id, "\n")] = '\0';
		fclose(file);
	}
	return error;
}

/* The chip that holds the manifest's weights, if all conditions are met. */
static int find_place(struct keeper *k, const struct manifest *m, struct txda_device **ret,
		      char *err, size_t errlen)
{
	int n = txda_context_device_count(k->options.context);

	for (int i = 0; i < n; i++) {
		struct manifest here = {0};
		struct txda_device *device;

		if (txda_device_get(k->options.context, (unsigned)i, &device) < 0)
			continue;
		if (describe_place(k, device, &here) < 0 || strcmp(here.chip, m->chip)) {
			txda_device_unref(device);
			continue;
		}
		if (!strcmp(here.backend, m->backend) && !strcmp(here.boot_id, m->boot_id) &&
		    !strcmp(here.driver, m->driver)) {
			*ret = device;
			return 0;
		}
		snprintf(err, errlen,
			 "they belong to backend %s, driver %s, boot %s; this is %s, %s, %s",
			 m->backend, *m->driver ? m->driver : "none", m->boot_id, here.backend,
			 *here.driver ? here.driver : "none", here.boot_id);
		txda_device_unref(device);
		return -ESTALE;
	}
	snprintf(err, errlen, "chip %s is not here", m->chip);
	return -ENODEV;
}

/* ---- the start ------------------------------------------------------------------------------- */

void keeper_take(struct keeper *k, const char *name, int fd)
{
	struct taken *more = k->n_taken < MAX_TAKEN && strlen(name) < MAX_NAME
				     ? realloc(k->taken, (k->n_taken + 1) * sizeof(*more))
				     : NULL;

	if (!more) {
		report(k, true, "unexpected descriptor %.80s", name);
		forget(k, name);
		close(fd);
		return;
	}
	k->taken = more;
	snprintf(more[k->n_taken].name, MAX_NAME, "%s", name);
	more[k->n_taken++].fd = fd;
}

static struct keeper_entry *new_entry(const char *name, const struct keeper_weights *w,
				      uint64_t bytes)
{
	struct keeper_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->source, sizeof(e->source), "%s", w->source);
	snprintf(e->case_dir, sizeof(e->case_dir), "%s", w->case_dir);
	e->usable = true;
	e->weights = w->weights;
	e->device = w->device;
	e->rank = w->rank;
	e->tp = w->tp;
	e->bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
	return e;
}

/* Imports the weights described by a manifest, and checks that a load would use them. */
static int import(struct keeper *k, const char *name, const struct manifest *m, int fd, char *err,
		  size_t errlen)
{
	struct keeper_weights w = {
		.source = m->source, .case_dir = m->case_dir, .rank = m->rank, .tp = m->tp};
	struct keeper_entry *e;
	struct stat st;
	int error;

	if (fstat(fd, &st) || st.st_ino != m->inode) {
		snprintf(err, errlen, "the manifest belongs to other memory");
		return -ESTALE;
	}
	error = find_place(k, m, &w.device, err, errlen);
	if (error)
		return error;
	error = txda_weights_import(w.device, fd, &m->info, &w.weights);
	if (!error)
		error = txda_weights_check(w.weights, m->case_dir, m->rank);
	if (error) {
		snprintf(err, errlen, "%s", txda_context_error(k->options.context));
		txda_weights_unref(w.weights);
		txda_device_unref(w.device);
		return error;
	}
	e = new_entry(name, &w, m->info.bytes);
	txda_device_unref(w.device);
	if (!e) {
		txda_weights_unref(w.weights);
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	e->next = k->entries;
	k->entries = e;
	return 0;
}

/* The descriptors with one name: a manifest and the memory, in any order. */
static void adopt_one(struct keeper *k, struct taken *first)
{
	char err[768] = "", name[MAX_NAME];
	struct manifest m = {0};
	int fds[2] = {-1, -1}, error;
	unsigned n = 0;

	memcpy(name, first->name, sizeof(name));
	for (struct taken *t = first; t < k->taken + k->n_taken; t++) {
		if (t->fd < 0 || strcmp(t->name, name))
			continue;
		if (n < 2)
			fds[n] = t->fd;
		else
			close(t->fd);
		t->fd = -1;
		n++;
	}
	if (n != 2) {
		snprintf(err, sizeof(err), "%u descriptors; expected a manifest and memory", n);
		error = -EINVAL;
	} else {
		error = manifest_read(fds[0], &m, err, sizeof(err));
		if (!error) {
			error = import(k, name, &m, fds[1], err, sizeof(err));
		} else if (!manifest_read(fds[1], &m, err, sizeof(err))) {
			error = import(k, name, &m, fds[0], err, sizeof(err));
		}
	}
	for (unsigned i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (error) {
		report(k, true, "kept weights %s%s%s dropped: %s", name, *m.case_dir ? " of " : "",
		       m.case_dir, err);
		forget(k, name);
	} else {
		report(k, false, "adopted the weights of %s, rank %u: %.1f MiB on chip %s",
		       m.case_dir, m.rank, (double)m.info.bytes / (1 << 20), m.chip);
	}
}

void keeper_adopt(struct keeper *k)
{
	for (unsigned i = 0; i < k->n_taken; i++)
		if (k->taken[i].fd >= 0)
			adopt_one(k, &k->taken[i]);
	free(k->taken);
	k->taken = NULL;
	k->n_taken = 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Moves an entry from the list to @gone. The lock is held. */
static void move(struct keeper_entry **link, struct keeper_entry **gone)
{
	struct keeper_entry *e = *link;

	*link = e->next;
	e->next = *gone;
	*gone = e;
}

/* The lock is not held: sending to the store may block. */
static void give_up(struct keeper *k, struct keeper_entry *gone)
{
	while (gone) {
		struct keeper_entry *e = gone;

		gone = e->next;
		forget(k, e->name);
		txda_weights_unref(e->weights);
		free(e);
	}
}

bool keeper_retain(struct keeper *k,
		   bool (*wanted)(void *arg, const char *source, const char *case_dir), void *arg)
{
	bool any = false;

	pthread_mutex_lock(&k->lock);
	for (struct keeper_entry *e = k->entries; e; e = e->next) {
		e->unwanted = !wanted(arg, e->source, e->case_dir);
		any |= e->unwanted && !e->users;
	}
	pthread_mutex_unlock(&k->lock);
	return any;
}

void keeper_drop_unwanted(struct keeper *k)
{
	struct keeper_entry **link = &k->entries, *gone = NULL;

	pthread_mutex_lock(&k->lock);
	while (*link) {
		struct keeper_entry *e = *link;

		if (e->users || !e->unwanted) {
			link = &e->next;
			continue;
		}
		report(k, false, "kept weights of %s, rank %u, dropped: %s is no longer served",
		       e->case_dir, e->rank, e->source);
		move(link, &gone);
	}
	pthread_mutex_unlock(&k->lock);
	give_up(k, gone);
}

void keeper_await(struct keeper *k)
{
	int error;

	if (!atomic_exchange(&k->gave_up, false))
		return;
	error = sd_notify_barrier(0, AWAIT_US);
	if (error < 0)
		report(k, true, "the weight keeper did not confirm the release: %s",
		       strerror(-error));
}

/* Exports weights and stores them with their manifest. */
static int store(struct keeper *k, const struct keeper_weights *w, const char *name,
		 struct txda_weights_info *info, char *err, size_t errlen)
{
	struct manifest m = {.rank = w->rank, .tp = w->tp};
	char state[MAX_NAME + 64];
	int fds[2] = {-1, -1}, error;
	struct stat st;

	*info = TXDA_INIT(struct txda_weights_info);
	error = txda_weights_info(w->weights, info);
	if (!error)
		error = txda_weights_export(w->weights, &fds[1]);
	if (!error)
		error = describe_place(k, w->device, &m);
	if (error) {
		snprintf(err, errlen, "%s", txda_context_error(k->options.context));
	} else if (fstat(fds[1], &st)) {
		error = -errno;
		snprintf(err, errlen, "%s", strerror(-error));
	} else {
		snprintf(m.source, sizeof(m.source), "%s", w->source);
		snprintf(m.case_dir, sizeof(m.case_dir), "%s", w->case_dir);
		m.inode = st.st_ino;
		m.info = *info;
		error = manifest_write(&m, &fds[0], err, errlen);
	}
	if (!error) {
		snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
		error = sd_pid_notify_with_fds(0, 0, state, fds, 2);
		if (error <= 0)
			snprintf(err, errlen, "no process holds them: %s",
				 error ? strerror(-error) : "$NOTIFY_SOCKET is not set");
		error = error > 0 ? 0 : error ? error : -ENOTCONN;
	}
	for (unsigned i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return error;
}

/* The entry of those weights, with its use count incremented, or NULL. */
static struct keeper_entry *find_kept(struct keeper *k, const struct txda_weights *weights)
{
	struct keeper_entry *e;

	pthread_mutex_lock(&k->lock);
	for (e = k->entries; e && e->weights != weights; e = e->next)
		;
	if (e)
		e->users++;
	pthread_mutex_unlock(&k->lock);
	return e;
}

int keeper_keep(struct keeper *k, const struct keeper_weights *w, struct keeper_entry **ret)
{
	struct keeper_entry *e = find_kept(k, w->weights);
	struct txda_weights_info info;
	char name[MAX_NAME], err[512] = "";
	uint64_t id = 0;
	int error;

	if (e) {
		*ret = e;
		return 0;
	}
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		id = (uintptr_t)w->weights;
	snprintf(name, sizeof(name), KEEPER_NAME "%016llx", (unsigned long long)id);
	error = store(k, w, name, &info, err, sizeof(err));
	e = error ? NULL : new_entry(name, w, info.bytes);
	if (!error && !e) {
		forget(k, name);
		snprintf(err, sizeof(err), "out of memory");
		error = -ENOMEM;
	}
	if (error) {
		report(k, true, "the weights of %s, rank %u, will not survive the daemon: %s",
		       w->case_dir, w->rank, err);
		return error;
	}
	txda_weights_ref(e->weights);
	e->users = 1;
	pthread_mutex_lock(&k->lock);
	e->next = k->entries;
	k->entries = e;
	pthread_mutex_unlock(&k->lock);
	*ret = e;
	return 0;
}

void keeper_drop(struct keeper *k, struct keeper_entry *entry)
{
	struct keeper_entry **link = &k->entries, *gone = NULL;

	pthread_mutex_lock(&k->lock);
	if (!--entry->users) {
		while (*link != entry)
			link = &(*link)->next;
		move(link, &gone);
	}
	pthread_mutex_unlock(&k->lock);
	give_up(k, gone);
}

void keeper_look(struct keeper *k)
{
	/* Only this thread changes the list. */
	for (struct keeper_entry *e = k->entries; e; e = e->next) {
		bool usable = !txda_weights_check(e->weights, e->case_dir, e->rank);

		pthread_mutex_lock(&k->lock);
		e->usable = usable;
		pthread_mutex_unlock(&k->lock);
	}
}

/* ---- room; the first three with the lock held ------------------------------------------------ */

/* Whether a load of @case_dir on @group would use it. */
static bool is_of(const struct keeper_entry *e, const char *case_dir, struct txda_group *group)
{
	return e->tp == txda_group_size(group) && e->device == txda_group_device(group, e->rank) &&
	       !strcmp(e->case_dir, case_dir) && e->usable;
}

/*
 * Finds the entries that a load of @case_dir on @group would use; @spare: only unused ones. Returns
 * whether they are all that it needs.
 */
static bool find_set(struct keeper *k, const char *case_dir, struct txda_group *group, bool spare)
{
	unsigned found = 0;

	for (struct keeper_entry *e = k->entries; e; e = e->next) {
		e->found = !(spare && e->users) && is_of(e, case_dir, group);
		found |= (unsigned)e->found << e->rank;
	}
	return found == (1u << txda_group_size(group)) - 1;
}

/*
 * Finds the entries on the chips of @group that may be dropped for a model with those case dirs,
 * including its own if they are of no use to it.
 */
static void find_spare(struct keeper *k, struct txda_group *group, const char *case_dir,
		       const char *draft_case_dir)
{
	const char *own[] = {case_dir, draft_case_dir};

	for (struct keeper_entry *e = k->entries; e; e = e->next) {
		e->spare = false;
		for (unsigned i = 0; i < txda_group_size(group) && !e->users; i++)
			e->spare |= txda_group_device(group, i) == e->device;
	}
	for (unsigned i = 0; i < 2; i++) {
		if (!find_set(k, own[i], group, false))
			continue;
		for (struct keeper_entry *e = k->entries; e; e = e->next)
			e->spare &= !e->found;
	}
}

bool keeper_has(struct keeper *k, const char *case_dir, struct txda_group *group, bool spare)
{
	bool has;

	pthread_mutex_lock(&k->lock);
	has = find_set(k, case_dir, group, spare);
	pthread_mutex_unlock(&k->lock);
	return has;
}

void keeper_spare_bytes(struct keeper *k, struct txda_group *group, const char *case_dir,
			const char *draft_case_dir, uint64_t *ret_bytes)
{
	unsigned n = txda_group_size(group);

	memset(ret_bytes, 0, n * sizeof(*ret_bytes));
	pthread_mutex_lock(&k->lock);
	find_spare(k, group, case_dir, draft_case_dir);
	for (const struct keeper_entry *e = k->entries; e; e = e->next)
		for (unsigned i = 0; i < n; i++)
			if (e->spare && e->device == txda_group_device(group, i))
				ret_bytes[i] += e->bytes;
	pthread_mutex_unlock(&k->lock);
}

void keeper_drop_spare(struct keeper *k, struct txda_group *group, const char *case_dir,
		       const char *draft_case_dir)
{
	struct keeper_entry **link = &k->entries, *gone = NULL;

	pthread_mutex_lock(&k->lock);
	find_spare(k, group, case_dir, draft_case_dir);
	while (*link) {
		struct keeper_entry *e = *link;

		if (!e->spare) {
			link = &e->next;
			continue;
		}
		report(k, false, "kept weights of %s, rank %u, make room", e->case_dir, e->rank);
		move(link, &gone);
	}
	pthread_mutex_unlock(&k->lock);
	give_up(k, gone);
}
