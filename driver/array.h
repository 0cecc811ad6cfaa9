/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arrays of clients (struct drm_txda_array) in kernel memory.
 */
#ifndef TXDA_ARRAY_H
#define TXDA_ARRAY_H

#include <linux/types.h>

#include "drm/txda_drm.h"

/*
 * Copies the array to new kernel memory (kvfree()), each element extended with zeros or cut to
 * @element_bytes. NULL for an empty one. -E2BIG: more than @max elements, or unknown bytes that are
 * not zero; -EINVAL: a stride below @min_stride or above a page; -EFAULT; -ENOMEM.
 */
void *txda_array_get(const struct drm_txda_array *array, u32 min_stride, u32 element_bytes,
		     u32 max);

#endif /* TXDA_ARRAY_H */
