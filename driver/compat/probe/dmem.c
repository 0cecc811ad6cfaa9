// SPDX-License-Identifier: GPL-2.0
// asks for: cgroup_dmem
#include <linux/cgroup_dmem.h>
