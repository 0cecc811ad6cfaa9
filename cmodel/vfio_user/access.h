/* SPDX-License-Identifier: MIT */
/*
 * Accesses of the client to BARs and configuration space.
 *
 * Out of bounds, on a removed chip, with memory decoding off, or of registers that are stuck, reads
 * return all ones and writes are ignored.
 * Threads: op_lock of the device is held.
 */
#ifndef VU_ACCESS_H
#define VU_ACCESS_H

#include <stdint.h>

struct vu_device;

void vu_device_bar_read(struct vu_device *d, unsigned region, uint64_t offset, void *buf,
			uint32_t bytes);
void vu_device_bar_write(struct vu_device *d, unsigned region, uint64_t offset, const void *buf,
			 uint32_t bytes);
void vu_device_config_read(struct vu_device *d, uint64_t offset, void *buf, uint32_t bytes);
void vu_device_config_write(struct vu_device *d, uint64_t offset, const void *buf, uint32_t bytes);

#endif /* VU_ACCESS_H */
