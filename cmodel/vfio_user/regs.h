/* SPDX-License-Identifier: MIT */
/*
 * BAR0: the registers, described by tables with the read and write functions for each offset.
 *
 * A pair of 64 bits is one entry at its _LO: reading that latches the upper half for _HI, writing
 * _LO only stores it until _HI is written.
 *
 * Threads: op_lock is held.
 */
#ifndef VU_REGS_H
#define VU_REGS_H

#include <stddef.h>
#include <stdint.h>

struct vu_device;

/* @offset is a multiple of 4 below TXDA_BAR_REGS_BYTES. */
uint32_t vu_regs_read(struct vu_device *d, uint32_t offset);
void vu_regs_write(struct vu_device *d, uint32_t offset, uint32_t value);

/* ---- for the files that have tables ---------------------------------------------------------- */

/*
 * One register, or a pair at its _LO. The value read is a function's result, a member of struct
 * vu_device, or a constant. @i is the index of the queue, VMID, port and so on; for other registers
 * it is the offset. Reads are made with the device's lock held, writes without.
 */
struct vu_reg {
	uint32_t (*read)(struct vu_device *d, unsigned i);
	uint64_t (*read_pair)(struct vu_device *d, unsigned i);
	void (*write)(struct vu_device *d, unsigned i, uint32_t value);
	void (*write_pair)(struct vu_device *d, unsigned i, uint64_t value);
	size_t field;	   /* 0: none */
	uint64_t constant; /* used if there is nothing else */
	uint8_t pair;	   /* VU_LO, VU_HI; 0: not a pair */
};

#define VU_LO 1
#define VU_HI 2

/* Entries of a table, by the register's offset in its block. A NULL function: none. */
#define VU_RW(offset, rd, wr)	[(offset) / 4] = {.read = (rd), .write = (wr)}
#define VU_RO(offset, rd)	VU_RW(offset, rd, NULL)
#define VU_CONST(offset, value) [(offset) / 4] = {.constant = (value)}
#define VU_FIELD(offset, member, wr)                                                               \
	[(offset) / 4] = {.field = offsetof(struct vu_device, member), .write = (wr)}
#define VU_RO_WORDS(offset, bytes, rd)                                                             \
	[(offset) / 4 ...((offset) + (bytes)) / 4 - 1] = {.read = (rd)}
#define VU_HALVES(offset, ...)                                                                     \
	[(offset) / 4] = {.pair = VU_LO, __VA_ARGS__}, [(offset) / 4 + 1] = {.pair = VU_HI}
#define VU_PAIR(offset, rd, wr)	     VU_HALVES(offset, .read_pair = (rd), .write_pair = (wr))
#define VU_CONST_PAIR(offset, value) VU_HALVES(offset, .constant = (value))
#define VU_FIELD_PAIR(offset, member, wr)                                                          \
	VU_HALVES(offset, .field = offsetof(struct vu_device, member), .write_pair = (wr))

#define VU_GLOBAL_WORDS (0x600 / 4)
#define VU_PORT_WORDS	(0x20 / 4)
#define VU_QUEUE_WORDS	(0x80 / 4)
#define VU_VM_WORDS	(0x20 / 4)
#define VU_GROUP_WORDS	(0x10 / 4)

extern const struct vu_reg vu_regs_global[VU_GLOBAL_WORDS]; /* regs_global.c */
extern const struct vu_reg vu_regs_port[VU_PORT_WORDS];	    /* regs_blocks.c, as the rest */
extern const struct vu_reg vu_regs_queue[VU_QUEUE_WORDS];
extern const struct vu_reg vu_regs_vm[VU_VM_WORDS];
extern const struct vu_reg vu_regs_group[VU_GROUP_WORDS]; /* i: VMID * TXDA_VM_GROUPS + slot */

#endif /* VU_REGS_H */
