// SPDX-License-Identifier: GPL-2.0
// asks for: dmem|incomplete type|storage size
#include <linux/cgroup_dmem.h>

struct dmem_cgroup_init probe = {.size = 1};
