/* SPDX-License-Identifier: MIT */
/*
 * Inputs of fuzz_vfio: one step after another, each a byte that says what it is and its arguments,
 * little endian. A step that is cut off ends the input.
 */
#ifndef FUZZ_VFIO_H
#define FUZZ_VFIO_H

enum fuzz_step {
	/* u16 command, u16 flags of descriptors (FUZZ_FD_* by 4 bits, 0: no more), u16 bytes, body
	 */
	FUZZ_MESSAGE = 0,
	/* u16 register, u32 value */
	FUZZ_WRITE = 1,
	/* u16 register */
	FUZZ_READ = 2,
	/* u16 offset, u32 value: configuration space */
	FUZZ_CONFIG = 3,
	/* u32 offset, u16 bytes, contents: device memory */
	FUZZ_DRAM = 4,
	/* likewise: the guest's memory */
	FUZZ_GUEST = 5,
	/* u16 n, u32 seed: n accesses of registers by chance */
	FUZZ_REGISTERS = 6,
	/* u16 n, u32 seed: n words of page tables, rings or streams by chance, as they might be */
	FUZZ_MEMORY = 7,
	/* u8 which: something happens to the chip */
	FUZZ_EVENT = 8,
	FUZZ_STEPS
};

enum fuzz_fd { FUZZ_FD_NONE = 0, FUZZ_FD_GUEST = 1, FUZZ_FD_EVENT = 2, FUZZ_FD_PIPE = 3 };

#define FUZZ_MEM	 (64ull << 20)
#define FUZZ_GUEST_BYTES (4ull << 20)
#define FUZZ_GUEST_AT	 0x40000000ull
/* Where the steps by chance put things. */
#define FUZZ_TABLES  0x1000000ull /* 16 tables in DRAM, the first is a root */
#define FUZZ_STREAMS 0x1100000ull
#define FUZZ_RING    0x1200000ull

#endif /* FUZZ_VFIO_H */
