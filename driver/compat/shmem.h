/* SPDX-License-Identifier: GPL-2.0 */
/* Pageable kernel memory. The flags of shmem_file_setup() became a type of their own in 7.0. */
#ifndef TXDA_COMPAT_SHMEM_H
#define TXDA_COMPAT_SHMEM_H

#include <linux/mm.h>
#include <linux/shmem_fs.h>

static inline struct file *txda_shmem_file(const char *name, loff_t bytes)
{
#ifdef TXDA_HAVE_VMA_FLAGS
	return shmem_file_setup(name, bytes, EMPTY_VMA_FLAGS);
#else
	return shmem_file_setup(name, bytes, 0);
#endif
}

#endif /* TXDA_COMPAT_SHMEM_H */
