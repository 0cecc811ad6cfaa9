/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C (Castagnoli, reflected, as in iSCSI and ext4), used by programs, parameters, firmware and
 * telemetry pages.
 *
 * Continues @crc (0 to start). Threads: any.
 */
#ifndef TXDA_BASE_CRC32C_H
#define TXDA_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Uses the CPU's instruction if it has one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* The same without special instructions: for other CPUs, and for tests. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes);

/* The CRC of the concatenation of data with CRC @first and of @bytes with CRC @second. */
uint32_t crc32c_join(uint32_t first, uint32_t second, size_t bytes);

#endif /* TXDA_BASE_CRC32C_H */
