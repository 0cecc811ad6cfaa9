/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), the checksum of programs. */
#ifndef CM_CRC32C_H
#define CM_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from @crc, the result for the bytes before; 0 to start. */
uint32_t cm_crc32c(uint32_t crc, const void *data, size_t bytes);

#endif /* CM_CRC32C_H */
