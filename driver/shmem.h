/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pageable kernel memory that keeps contents of DRAM: shmem files, which the system can swap out.
 *
 * Threads: any, may sleep; the caller keeps accesses to one file apart.
 */
#ifndef TXDA_SHMEM_H
#define TXDA_SHMEM_H

#include <linux/fs.h>

/* A file of @bytes, or an ERR_PTR. Ends with fput(). */
struct file *txda_shmem_new(u64 bytes);

/*
 * Writes to [at, at + bytes), both multiples of a page. Not as kernel_write() does: the caller is
 * whoever needs memory, and its file size limit, which may kill it, does not matter here. -ENOMEM.
 */
int txda_shmem_write(struct file *file, u64 at, const void *from, size_t bytes);

#endif /* TXDA_SHMEM_H */
