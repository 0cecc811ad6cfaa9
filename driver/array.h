/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arrays passed in by clients (struct drm_txda_array), copied to kernel memory, and variable-size
 * answers to clients (struct drm_txda_answer).
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

/* -E2BIG: the client asks for more than DRM_TXDA_MAX_ANSWER_BYTES; -EINVAL: non-zero padding. */
int txda_answer_check(const struct drm_txda_answer *answer);
/*
 * Copies @bytes from @from to the user buffer described by @answer (already checked), truncated to
 * the size the client asked for. -EFAULT.
 */
int txda_answer_put(struct drm_txda_answer *answer, const void *from, u32 bytes);

#endif /* TXDA_ARRAY_H */
