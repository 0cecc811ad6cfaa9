// SPDX-License-Identifier: GPL-2.0
// asks for: gpu_buddy
#include <linux/gpu_buddy.h>

int probe(struct gpu_buddy *mm)
{
	return gpu_buddy_init(mm, 1, 1);
}
