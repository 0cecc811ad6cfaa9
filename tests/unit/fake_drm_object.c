// SPDX-License-Identifier: MIT
#include "fake_drm_internal.h"

pthread_mutex_t fake_word_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_word_changed;

static struct watcher {
	struct object *syncobj;
	uint64_t point;
	int fd;
} watcher[MAX_FENCES];
static unsigned n_watchers;

struct buffer *fake_buffer(uint64_t bytes)
{
	struct buffer *b = calloc(1, sizeof(*b));

	check(b);
	b->refs = 1;
	b->bytes = bytes;
	b->offset = fake.memory_end;
	b->user_fd = -1;
	fake.memory_end += bytes + (2 << 20);
	return b;
}

static void put_buffer(struct buffer *b, unsigned chip)
{
	if (!b || --b->refs)
		return;
	if (b->device)
		fake.used[chip] -= b->bytes;
	check(!fallocate(fake.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->offset,
			 (off_t)b->bytes));
	if (b->user_fd >= 0)
		close(b->user_fd);
	free(b);
}

/* One more descriptor of it; a pipe may be opened for both directions. */
static int open_dmabuf(const struct dmabuf *d)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", d->end);
	fd = open(path, (d->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	check(fd >= 0);
	return fd;
}

int fake_dmabuf(struct buffer *buffer, bool writable)
{
	struct dmabuf *d = fake.dmabuf;
	struct stat st;
	int fds[2], fd;

	fake_reap();
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (fake.dmabuf[i].buffer == buffer)
			return open_dmabuf(&fake.dmabuf[i]);
	while (d < fake.dmabuf + MAX_FILES && d->buffer)
		d++;
	check(d < fake.dmabuf + MAX_FILES);
	check(!pipe2(fds, O_CLOEXEC));
	check(!fstat(fds[0], &st));
	*d = (struct dmabuf){
		.buffer = buffer, .writable = writable, .inode = st.st_ino, .end = fds[1]};
	buffer->refs++;
	fd = open_dmabuf(d);
	close(fds[0]);
	return fd;
}

struct buffer *fake_dmabuf_find(int fd)
{
	struct stat st;

	check(!fstat(fd, &st));
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (fake.dmabuf[i].buffer && fake.dmabuf[i].inode == st.st_ino)
			return fake.dmabuf[i].buffer;
	return NULL;
}

void fake_reap(void)
{
	for (unsigned i = 0; i < MAX_FILES; i++) {
		struct dmabuf *d = &fake.dmabuf[i];
		struct pollfd end = {.fd = d->end};

		if (!d->buffer || poll(&end, 1, 0) != 1 || !(end.revents & POLLERR))
			continue;
		close(d->end);
		put_buffer(d->buffer, d->buffer->chip);
		d->buffer = NULL;
	}
}

struct file *fake_file(int fd)
{
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (fake.file[i].fd == fd)
			return &fake.file[i];
	return NULL;
}

struct object *fake_find(struct file *file, enum kind kind, uint32_t id)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->file == file &&
		    fake.object[i]->kind == kind && fake.object[i]->id == id)
			return fake.object[i];
	return NULL;
}

struct object *fake_make(struct file *file, enum kind kind)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (!fake.object[i]) {
			struct object *o = calloc(1, sizeof(*o));

			check(o);
			o->kind = kind;
			o->file = file;
			o->id = ++file->last_id;
			fake.object[i] = o;
			return o;
		}
	check(!"too many objects");
	return NULL;
}

uint64_t fake_jobs_done(const struct object *queue)
{
	return __atomic_load_n(queue->word, __ATOMIC_ACQUIRE);
}

bool fake_is_signalled(struct object *syncobj, uint64_t point)
{
	struct object *queue = syncobj->by;
	struct txda_fault fault;

	return !queue || fake.gone[syncobj->file->chip] ||
	       cm_queue_fault(queue->queue, &fault) == 0 ||
	       fake_jobs_done(queue) >= syncobj->job_of[point % MAX_FENCES];
}

void fake_wake(void)
{
	for (unsigned i = 0; i < n_watchers;) {
		uint64_t one = 1;

		if (!fake_is_signalled(watcher[i].syncobj, watcher[i].point)) {
			i++;
			continue;
		}
		if (write(watcher[i].fd, &one, sizeof(one)) < 0)
			one = 0;
		close(watcher[i].fd);
		watcher[i] = watcher[--n_watchers];
	}
	pthread_cond_broadcast(&fake_word_changed);
}

void fake_drop(struct object *o)
{
	struct cm_queue *queue = NULL;

	pthread_mutex_lock(&fake_word_lock);
	if (o->kind == QUEUE) {
		queue = o->queue;
		for (unsigned i = 0; i < MAX_OBJECTS; i++)
			if (fake.object[i] && fake.object[i]->by == o)
				fake.object[i]->by = NULL;
		fake_wake();
	}
	for (unsigned i = 0; i < n_watchers;)
		if (watcher[i].syncobj == o) {
			close(watcher[i].fd);
			watcher[i] = watcher[--n_watchers];
		} else {
			i++;
		}
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] == o)
			fake.object[i] = NULL;
	pthread_mutex_unlock(&fake_word_lock);
	if (queue)
		cm_queue_free(queue);
	if (o->kind == VM) {
		cm_vm_free(o->vm);
		munmap(o->page, PAGE_BYTES);
		put_buffer(o->page_buffer, o->file->chip);
	}
	put_buffer(o->buffer, o->file->chip);
	free(o);
}

void fake_watch(struct object *syncobj, uint64_t point, int fd)
{
	check(n_watchers < MAX_FENCES);
	watcher[n_watchers++] = (struct watcher){syncobj, point, fcntl(fd, F_DUPFD_CLOEXEC, 3)};
	fake_wake();
}
