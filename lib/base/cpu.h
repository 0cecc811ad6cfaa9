/* SPDX-License-Identifier: MIT */
/* CPU features that compiler builtins cannot query. Threads: any. */
#ifndef TXDA_BASE_CPU_H
#define TXDA_BASE_CPU_H

#include <stdbool.h>

/*
 * Whether this process can use AMX tiles with bf16 and int8. Linux saves their registers only for
 * processes that request it; this function does.
 */
bool cpu_use_tiles(void);

/* Whether the CPU has AVX-VNNI. Says nothing about the system, which must save the registers of AVX. */
bool cpu_has_avx_vnni(void);

#endif /* TXDA_BASE_CPU_H */
