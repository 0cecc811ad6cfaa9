// SPDX-License-Identifier: GPL-2.0
#include "array.h"

#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

void *txda_array_get(const struct drm_txda_array *array, u32 min_stride, u32 element_bytes, u32 max)
{
	const u8 __user *from = u64_to_user_ptr(array->array);
	u32 i;
	u8 *to;
	int err;

	if (!array->count)
		return NULL;
	if (array->count > max)
		return ERR_PTR(-E2BIG);
	if (array->stride < min_stride || array->stride > PAGE_SIZE)
		return ERR_PTR(-EINVAL);

	/*
	 * GFP_KERNEL_ACCOUNT: memory that a client makes the kernel keep is charged to the client's
	 * cgroup.
	 */
	to = kvcalloc(array->count, element_bytes, GFP_KERNEL_ACCOUNT);
	if (!to)
		return ERR_PTR(-ENOMEM);

	for (i = 0; i < array->count; i++) {
		err = copy_struct_from_user(to + (size_t)i * element_bytes, element_bytes,
					    from + (size_t)i * array->stride, array->stride);
		if (err)
			goto err_free;
	}
	return to;

err_free:
	kvfree(to);
	return ERR_PTR(err);
}

int txda_answer_check(const struct drm_txda_answer *answer)
{
	if (answer->pad)
		return -EINVAL;
	return answer->pointer && answer->size > DRM_TXDA_MAX_ANSWER_BYTES ? -E2BIG : 0;
}

int txda_answer_put(struct drm_txda_answer *answer, const void *from, u32 bytes)
{
	u8 __user *to = u64_to_user_ptr(answer->pointer);
	u32 copy = min(answer->size, bytes);

	if (to && (copy_to_user(to, from, copy) || clear_user(to + copy, answer->size - copy)))
		return -EFAULT;
	answer->size = bytes;
	return 0;
}
