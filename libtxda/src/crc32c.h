/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C (Castagnoli), as param.bin, kcore.bin and telemetry pages carry it.
 *
 * Continues @crc (0 to start). Threads: any.
 */
#ifndef TXDA_CRC32C_H
#define TXDA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t txda__crc32c(uint32_t crc, const void *data, size_t bytes);
/* The portable path, for tests. */
uint32_t txda__crc32c_portable(uint32_t crc, const void *data, size_t bytes);

#endif /* TXDA_CRC32C_H */
