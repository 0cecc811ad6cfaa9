/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arrays of clients (struct drm_txda_array) in kernel memory, and answers to clients (struct
 * drm_txda_answer).
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

/* -E2BIG: it wants more than DRM_TXDA_MAX_ANSWER_BYTES; -EINVAL: its padding is not zero. */
int txda_answer_check(const struct drm_txda_answer *answer);
/* Writes the @bytes at @from to where a checked @answer says, as much as it wants. -EFAULT. */
int txda_answer_put(struct drm_txda_answer *answer, const void *from, u32 bytes);

#endif /* TXDA_ARRAY_H */
