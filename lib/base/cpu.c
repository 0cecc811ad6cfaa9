// SPDX-License-Identifier: MIT
#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cpu_use_tiles(void)
{
	const int req_xcomp_perm = 0x1023, xtiledata = 18;
	const unsigned want = 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE, AMX-INT8 */
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & want) == want &&
	       !syscall(SYS_arch_prctl, req_xcomp_perm, xtiledata);
}

bool cpu_has_avx_vnni(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}
#else
bool cpu_has_avx_vnni(void)
{
	return false;
}

bool cpu_use_tiles(void)
{
	return false;
}
#endif
