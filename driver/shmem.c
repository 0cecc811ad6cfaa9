// SPDX-License-Identifier: GPL-2.0
#include "shmem.h"

#include <linux/highmem.h>
#include <linux/pagemap.h>

#include "compat/shmem.h"

struct file *txda_shmem_new(u64 bytes)
{
	return txda_shmem_file("txda", bytes);
}

int txda_shmem_write(struct file *file, u64 at, const void *from, size_t bytes)
{
	struct address_space *mapping = file->f_mapping;
	gfp_t gfp = mapping_gfp_mask(mapping);
	struct page *page;
	size_t done;

	for (done = 0; done < bytes; done += PAGE_SIZE) {
		page = shmem_read_mapping_page_gfp(mapping, (at + done) >> PAGE_SHIFT, gfp);
		if (IS_ERR(page))
			return PTR_ERR(page);
		memcpy_to_page(page, 0, from + done, PAGE_SIZE);
		set_page_dirty(page);
		put_page(page);
	}
	return 0;
}
