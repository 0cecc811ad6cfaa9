/* SPDX-License-Identifier: MIT */
/*
 * Arguments of ioctls that must be refused.
 */
#ifndef TXDA_TEST_ARGS_H
#define TXDA_TEST_ARGS_H

#include "common.h"

#define HOST   DRM_TXDA_PLACE_HOST
#define DEVICE DRM_TXDA_PLACE_DEVICE
/* Within what any chip has, and huge-page aligned. */
#define VA (1ull << 31)

extern const uint32_t places[2];

/* One change of an argument that is good otherwise, and the error it leads to. */
struct bad {
	const char *what;
	size_t at;
	size_t bytes;
	uint64_t value;
	int error;
};

#define BAD(type, member, value, error)                                                            \
	{                                                                                          \
#member " = " #value, offsetof(type, member), sizeof(((type *)0)->member), value,  \
			error                                                                      \
	}

/* Makes each change alone. The ioctl must fail as it says and not change what was there. */
void must_refuse(int fd, unsigned long request, const void *good, size_t bytes,
		 const struct bad *bad, size_t n);
/* An unmapped page cuts the argument off at each multiple of 8 bytes: -EFAULT. */
void must_fault(int fd, unsigned long request, const void *good, size_t bytes);

/* The start of @bytes that end at an unmapped page. */
void *at_the_edge(size_t bytes);

/* A file of chip @i with an address space and a compute queue, and a stream for it. */
struct client {
	int fd;
	uint32_t vm;
	uint32_t queue;
	struct stream stream;
};

struct client must_client(unsigned int i);
/* Runs one packet; returns the status of its fence. After a fault, make a new queue. */
int dev_copy(struct client *c, uint64_t dst, uint64_t src, uint64_t bytes);
int dev_fill(struct client *c, uint64_t dst, uint64_t bytes, uint32_t value);
void must_new_queue(struct client *c);

int munmap_mem(struct mem *mem);
/* Whether reading the word is no SIGBUS. */
bool can_read(const volatile uint32_t *word);

struct drm_txda_bo_query_info must_info(int fd, uint32_t handle);
int advise(int fd, uint32_t handle, uint32_t advice);

/* A buffer as a dma-buf and back; @flags: DRM_RDWR or 0. */
int to_fd(int fd, uint32_t handle, uint32_t flags, int *ret_buf);
int from_fd(int fd, int buf, uint32_t *ret_handle);
int must_export(int fd, uint32_t handle);
uint32_t must_import(int fd, int buf);

/* Whether all 32-bit words in [at, at + bytes) are @value. */
bool is_filled(const void *at, size_t bytes, uint32_t value);

/* KiB that the process has pinned, as the kernel says. */
uint64_t pinned_kib(void);

/* The PCI function of a node, for root. */
struct chip {
	char pci[64];
};

struct chip must_chip(int fd);
void must_write(const char *path, const char *text);
/* The driver leaves the chip, and takes it again. */
void unbind_chip(const struct chip *chip);
void bind_chip(const struct chip *chip);
/* A function reset. */
void reset_chip(const struct chip *chip);
/* The state of a thread, as in /proc: 'D' when it waits for what no signal ends; 0: there is none. */
char state_of(pid_t pid, pid_t thread);

struct drm_txda_memory_info must_memory(int fd);
/* Waits until as much device memory is in use as @used; freeing may lag behind. */
void must_settle(int fd, uint64_t used);

#endif
