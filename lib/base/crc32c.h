/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C (Castagnoli, reflected, as in iSCSI and ext4), as programs, parameters, firmware and
 * telemetry pages carry it.
 *
 * Continues @crc (0 to start). Threads: any.
 */
#ifndef TXDA_BASE_CRC32C_H
#define TXDA_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Uses the CPU's instruction where there is one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* The same without special instructions: what other CPUs use, and tests. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes);

/* The CRC of what has the CRC @first, followed by @bytes that have the CRC @second. */
uint32_t crc32c_join(uint32_t first, uint32_t second, size_t bytes);

#endif /* TXDA_BASE_CRC32C_H */
