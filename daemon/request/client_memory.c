// SPDX-License-Identifier: MIT
#include "client_memory.h"

#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <linux/userfaultfd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define POPULATE_BYTES ((size_t)4 << 20) /* mapped at a time: others need the mmap lock, too */
#define BOUNCE_BYTES   ((size_t)32 << 10)

/* Whether it is a dma-buf, according to the kernel itself: calls on the file may block. */
static bool is_dma_buf(int fd)
{
	char path[64], text[1024];
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return false;
	n = read(info, text, sizeof(text) - 1);
	close(info);
	text[n > 0 ? n : 0] = 0;
	return strstr(text, "\nexp_name:") && strstr(text, "\nsize:");
}

/* Determines the kind of memory, and whether it may be used. */
static int check_kind(int fd, struct client_memory *m, char *err, size_t errlen)
{
	int flags = fcntl(fd, F_GETFL), seals;
	struct statfs fs;

	if (flags < 0 || flags & O_PATH) {
		snprintf(err, errlen, "the descriptor allows no access (O_PATH)");
		return -EINVAL;
	}
	if ((flags & O_ACCMODE) == O_WRONLY || (m->writable && (flags & O_ACCMODE) != O_RDWR)) {
		snprintf(err, errlen, "the descriptor is open for %s; it must be for %s",
			 (flags & O_ACCMODE) == O_WRONLY ? "writing only" : "reading only",
			 m->writable ? "reading and writing" : "reading");
		return -EINVAL;
	}
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 && is_dma_buf(fd)) {
		m->dma_buf = true;
		return 0;
	}
	/* Huge pages may run out even after they were mapped. */
	if (seals < 0 || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC) {
		snprintf(err, errlen,
			 "the descriptor is not memory that can be used: it must be a memfd "
			 "(without huge pages), a "
			 "file of a tmpfs or a dma-buf");
		return -EINVAL;
	}
	if (m->writable && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) {
		snprintf(err, errlen, "the memfd is sealed against writing (seals 0x%x)",
			 (unsigned)seals);
		return -EINVAL;
	}
	return 0;
}

static int check_size(struct client_memory *m, uint64_t offset, uint64_t len, char *err,
		      size_t errlen)
{
	struct stat st;
	off_t size = -1;

	if (!fstat(m->fd, &st)) {
		m->dev = st.st_dev;
		m->ino = st.st_ino;
		m->offset = offset;
		size = m->dma_buf ? lseek(m->fd, 0, SEEK_END) : st.st_size;
	}
	if (size >= 0 && len <= (uint64_t)size && offset <= (uint64_t)size - len)
		return 0;
	snprintf(err, errlen,
		 "offset %llu and %llu bytes of data go beyond the end of the descriptor's memory "
		 "of "
		 "%lld bytes",
		 (unsigned long long)offset, (unsigned long long)len, (long long)size);
	return -EINVAL;
}

/*
 * Pages are charged to the process that allocates them, as long as they exist: the client must do
 * that.
 */
static int check_made(const struct client_memory *m, char *err, size_t errlen)
{
	uint64_t end = m->offset + m->len, made;
	struct stat st;

	if (m->dma_buf || fstat(m->fd, &st))
		return 0;
	made = (uint64_t)st.st_blocks * 512;
	if (made >= end)
		return 0;
	snprintf(err, errlen,
		 "only %llu bytes of the memory are allocated, and those up to %llu are to be "
		 "written: fallocate() or touch them first",
		 (unsigned long long)made, (unsigned long long)end);
	return -EINVAL;
}

/* Begins CPU access to a dma-buf. The client must wait for devices that are still using it. */
static int begin(struct client_memory *m, char *err, size_t errlen)
{
	struct dma_buf_sync sync = {.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ};
	struct pollfd p = {.fd = m->fd, .events = m->writable ? POLLOUT : POLLIN};
	int r;

	if (m->writable)
		sync.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW;
	if (poll(&p, 1, 0) == 0) {
		snprintf(err, errlen,
			 "a device is still using the dma-buf; wait for it with poll() first");
		return -EINVAL;
	}
	do
		r = ioctl(m->fd, DMA_BUF_IOCTL_SYNC, &sync);
	while (r && (errno == EINTR || errno == EAGAIN));
	if (r) {
		snprintf(err, errlen, "the dma-buf cannot be opened for the CPU: %s",
			 strerror(errno));
		return -EINVAL;
	}
	m->begun = true;
	return 0;
}

static int holes_fd = -1;
static int copy_errno; /* of process_vm_readv(2) on ourselves; 0: it works */

/* Kernels are built without it, and filters of system calls forbid it. */
static void try_copy(void)
{
	char from = 1, to = 0;
	struct iovec local = {.iov_base = &to, .iov_len = 1};
	struct iovec remote = {.iov_base = &from, .iov_len = 1};

	copy_errno = process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

static int check_copy(const struct client_memory *m, char *err, size_t errlen)
{
	if (!copy_errno || !(m->writable || m->dma_buf))
		return 0;
	snprintf(err, errlen,
		 "the daemon may not use process_vm_readv(2) here (%s), which memory to be written "
		 "and dma-bufs need",
		 strerror(copy_errno));
	return -ENOTSUP;
}

void client_memory_start(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM,
	};
	int fd;

	try_copy();
	if (holes_fd >= 0)
		return;
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	holes_fd = fd;
}

/*
 * Makes writes to a hole fail instead of allocating a page, which would be charged to the daemon
 * for as long as the client keeps the file. Lasts as long as the mapping. Some containers forbid
 * it: then check_made() alone catches mistakes of well-behaved clients.
 */
static void refuse_holes(const struct client_memory *m)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)m->map, .len = (m->map_len + page - 1) / page * page},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (holes_fd >= 0)
		ioctl(holes_fd, UFFDIO_REGISTER, &range);
}

/* Faults in the pages now, so that the engine does not have to. */
static int populate(const struct client_memory *m, char *err, size_t errlen)
{
	for (size_t at = 0; at < m->map_len; at += POPULATE_BYTES) {
		size_t n = m->map_len - at < POPULATE_BYTES ? m->map_len - at : POPULATE_BYTES;

		if (!madvise(m->map + at, n, MADV_POPULATE_WRITE))
			continue;
		/* An old kernel, or device memory, which has no pages to fault in. */
		if (errno == EINVAL)
			return 0;
		snprintf(err, errlen,
			 "the memory between bytes %llu and %llu has holes or cannot be written "
			 "(%s): fallocate() or touch it first",
			 (unsigned long long)(m->offset + at),
			 (unsigned long long)(m->offset + at + n), strerror(errno));
		return -EINVAL;
	}
	return 0;
}

int client_memory_open(int fd, uint64_t offset, uint64_t len, bool writable,
		       struct client_memory *ret, char *err, size_t errlen)
{
	struct client_memory m = {.fd = fd, .writable = writable};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset % page;
	void *map;
	int error = check_kind(fd, &m, err, errlen);

	if (!error)
		error = check_copy(&m, err, errlen);
	if (!error)
		error = check_size(&m, offset, len, err, errlen);
	if (error)
		return error;
	m.len = (size_t)len;
	if (writable)
		error = check_made(&m, err, errlen);
	if (error)
		return error;
	m.map_len = (size_t)(len + skip);
	/* Older kernels refuse shared mappings of memfds that are sealed against writing. */
	map = mmap(NULL, m.map_len, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		   writable || m.dma_buf ? MAP_SHARED : MAP_PRIVATE, fd, (off_t)(offset - skip));
	if (map == MAP_FAILED) {
		error = errno == ENOMEM ? -ENOMEM : -EINVAL;
		snprintf(err, errlen, "%llu bytes at offset %llu cannot be mapped: %s",
			 (unsigned long long)len, (unsigned long long)offset, strerror(errno));
		return error;
	}
	m.map = map;
	m.data = m.map + skip;
	if (m.dma_buf)
		error = begin(&m, err, errlen);
	else if (writable)
		refuse_holes(&m);
	if (!error && writable)
		error = populate(&m, err, errlen);
	if (error) {
		client_memory_end(&m);
		munmap(map, m.map_len);
		return error;
	}
	*ret = m;
	return 0;
}

/*
 * Lets the kernel copy to or from the client's memory as the local side, which may be of any kind.
 * The remote side must be ordinary memory. Returns the number of bytes copied.
 */
static size_t copy(char *client, char *own, size_t len, bool to_client)
{
	size_t done = 0;

	while (done < len) {
		struct iovec local = {.iov_base = client + done, .iov_len = len - done};
		struct iovec remote = {.iov_base = own + done, .iov_len = len - done};
		ssize_t n = to_client ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0)
				      : process_vm_writev(getpid(), &local, 1, &remote, 1, 0);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

/* A mapping would allocate pages for holes on behalf of the daemon, so read instead. */
static int read_file(const struct client_memory *m, size_t at, char *to, size_t len)
{
	return io_pread(m->fd, to, len, m->offset + at) == (int64_t)len ? 0 : -EFAULT;
}

int client_memory_read(const struct client_memory *m, size_t at, void *to, size_t len)
{
	if (!m->dma_buf)
		return read_file(m, at, to, len);
	return copy(m->data + at, to, len, false) == len ? 0 : -EFAULT;
}

int client_memory_write(const struct client_memory *m, size_t at, const void *from, size_t len)
{
	size_t done = copy(m->data + at, (char *)from, len, true);
	char bounce[BOUNCE_BYTES];

	/* The fault may be on our side: device memory. */
	while (done < len) {
		size_t n = len - done < sizeof(bounce) ? len - done : sizeof(bounce);

		memcpy(bounce, (const char *)from + done, n);
		if (copy(m->data + at + done, bounce, n, true) != n)
			return -EFAULT;
		done += n;
	}
	return 0;
}

bool client_memory_overlap(const struct client_memory *a, const struct client_memory *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->offset < b->offset + b->len &&
	       b->offset < a->offset + a->len;
}

void client_memory_end(struct client_memory *m)
{
	struct dma_buf_sync sync = {.flags = DMA_BUF_SYNC_END |
					     (m->writable ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ)};
	int r;

	if (!m->begun)
		return;
	do
		r = ioctl(m->fd, DMA_BUF_IOCTL_SYNC, &sync);
	while (r && (errno == EINTR || errno == EAGAIN));
	m->begun = false;
}
