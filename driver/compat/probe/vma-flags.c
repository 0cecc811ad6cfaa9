// SPDX-License-Identifier: GPL-2.0
// asks for: EMPTY_VMA_FLAGS|vma_flags
#include <linux/mm.h>
#include <linux/shmem_fs.h>

struct file *probe(void)
{
	return shmem_file_setup("", 0, EMPTY_VMA_FLAGS);
}
