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

/* AVX-VNNI: products of bytes in registers of AVX2; that the system saves those is another question. */
bool cpu_has_avx_vnni(void);

#endif /* TXDA_BASE_CPU_H */
