/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli, reflected, as in iSCSI and ext4): of kcore.bin and param.bin. */
#ifndef TXDA_TOOLS_CRC32C_H
#define TXDA_TOOLS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues @crc (0 to begin) over @bytes more. Uses the CPU's instruction where there is one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same without special instructions. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes);

#endif /* TXDA_TOOLS_CRC32C_H */
