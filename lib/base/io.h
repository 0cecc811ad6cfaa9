/* SPDX-License-Identifier: MIT */
/*
 * Complete reads and writes on blocking descriptors. Threads: any.
 */
#ifndef TXDA_BASE_IO_H
#define TXDA_BASE_IO_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Reads exactly @bytes. 0, -errno, or -EPIPE if the input ends before. */
static inline int io_read_all(int fd, void *to, size_t bytes)
{
	while (bytes) {
		ssize_t n = read(fd, to, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		to = (char *)to + n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Reads a file from @offset on until @bytes or its end. Returns the bytes read, or -errno. */
static inline int64_t io_pread(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

/* Writes exactly @bytes. 0 or -errno. */
static inline int io_write_all(int fd, const void *from, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, from, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		from = (const char *)from + n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Removes the @bytes that sendmsg(2) has sent from the front of a message's vector. */
static inline void io_advance(struct msghdr *message, size_t bytes)
{
	while (message->msg_iovlen && bytes >= message->msg_iov->iov_len) {
		bytes -= message->msg_iov->iov_len;
		message->msg_iov++;
		message->msg_iovlen--;
	}
	if (message->msg_iovlen) {
		message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + bytes;
		message->msg_iov->iov_len -= bytes;
	}
}

#endif /* TXDA_BASE_IO_H */
