// SPDX-License-Identifier: GPL-2.0
#include <linux/cgroup_dmem.h>
