/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * TX8 registers, page tables and queue rings: the contract between the kernel driver and the chip
 * (silicon, or the device model behind a PCI face). Nothing of it reaches user space, where
 * drm/txda_drm.h says the same in its own words, so it is not installed.
 *
 * Rules
 * - One PCI function is one chip: class 0x120000 (processing accelerator), PCI Express, FLR.
 * - BAR0 holds registers: 64 KiB, little endian, 32 bits wide. Only aligned 32-bit accesses are
 *   defined; others read all ones and write nothing. An offset that is not named here reads 0 and
 *   ignores writes. The MSI-X table and PBA have pages of their own in it.
 * - BAR2 is device DRAM: 64-bit, prefetchable, a power of two in size, byte 0 is DRAM offset 0. It
 *   may be smaller than the DRAM; what lies beyond is reached by copy queues only.
 * - A 64-bit value is a pair, _LO at the named offset and _HI four bytes above. Reading _LO latches
 *   _HI. Of a writable pair _LO is written first and _HI puts the pair into effect.
 * - A chip that is gone reads all ones everywhere. No register of a living chip whose name ends in
 *   MAGIC or LIVENESS does, so reading one of these tells whether others can be believed.
 * - Only bus-master-enabled chips reach system memory or send interrupts.
 * - Hostile input: streams, programs and all memory that clients can write. The chip checks them
 *   (see txda_isa.h) and never trusts a length. Rings, page tables and registers belong to the
 *   driver, but a chip checks these as well and answers nonsense with TXDA_QUEUE_FAULTED or a
 *   refused write, so that a driver bug stays on its chip. The driver in turn trusts no count or
 *   offset that it reads from the chip.
 *
 * Version history
 *  1.0  first
 *  1.1  firmware's log
 *  1.2  counters of C2C traffic
 */
#ifndef TXDA_REGS_H
#define TXDA_REGS_H

#include <linux/types.h>

/*
 * TX8 has no registered PCI id that is known here. This one lies in the range 1af4:10f0 to
 * 1af4:10ff, which QEMU sets aside for experiments without registration. Silicon with another id is
 * bound through the driver's new_id attribute; the identity registers decide whether it is a TX8.
 */
#define TXDA_PCI_VENDOR 0x1af4
#define TXDA_PCI_DEVICE 0x10f8
#define TXDA_PCI_CLASS	0x120000

#define TXDA_BAR_REGS	    0
#define TXDA_BAR_DRAM	    2
#define TXDA_BAR_REGS_BYTES 0x10000

/* ------------------------------------------------------------------------------------------- */
/* Identity and capabilities (read only)                                                         */
/* ------------------------------------------------------------------------------------------- */

#define TXDA_REG_MAGIC 0x0000
#define TXDA_MAGIC     0x38585454u /* "TTX8" */

/* Of this register map: major << 16 | minor. Another major is another map; minors only add. */
#define TXDA_REG_VERSION 0x0004
#define TXDA_REGS_MAJOR	 1
#define TXDA_REGS_MINOR	 2

#define TXDA_REG_ISA	     0x0008 /* TXDA_ISA_MAJOR << 16 | TXDA_ISA_MINOR */
#define TXDA_REG_CHIP	     0x000c /* family << 16 | revision; family 8 */
#define TXDA_CHIP_FAMILY_TX8 8

#define TXDA_REG_CAPS	      0x0010
#define TXDA_CHIP_CMODEL      (1u << 0) /* a model, no silicon */
#define TXDA_CHIP_PRECISE     (1u << 1) /* TXDA_EXEC_PRECISE works */
#define TXDA_CHIP_C2C	      (1u << 2) /* has chip-to-chip ports */
#define TXDA_CHIP_FIRMWARE    (1u << 3) /* needs firmware before queues work */
#define TXDA_CHIP_ECC	      (1u << 4) /* the ECC counters count */
#define TXDA_CHIP_POWER_LIMIT (1u << 5) /* TXDA_REG_POWER_LIMIT is writable */
#define TXDA_CHIP_C2C_TRAFFIC (1u << 6) /* since 1.2: the C2C counters count */

#define TXDA_REG_VA_BITS	  0x0014 /* usable bits of a virtual address, 32 to 48 */
#define TXDA_REG_QUEUES		  0x0018 /* copy queues << 16 | compute queues */
#define TXDA_REG_VMIDS		  0x001c /* address spaces; VMID 0 is one of them */
#define TXDA_REG_DRAM_LO	  0x0020 /* bytes of DRAM */
#define TXDA_REG_DRAM_HI	  0x0024
#define TXDA_REG_DRAM_RESERVED_LO 0x0028 /* bytes at the start that belong to firmware */
#define TXDA_REG_DRAM_RESERVED_HI 0x002c
#define TXDA_REG_CARD_LO	  0x0030 /* serial of the card, the same on all its chips */
#define TXDA_REG_CARD_HI	  0x0034
#define TXDA_REG_CARD_POSITION	  0x0038 /* chips on the card << 16 | index of this one */
#define TXDA_REG_C2C_PORTS	  0x003c /* number of ports, at most TXDA_MAX_PORTS */
#define TXDA_REG_SERIAL		  0x0040 /* 16 bytes of ASCII, zero padded */
#define TXDA_SERIAL_BYTES	  16
#define TXDA_REG_NAME		  0x0060 /* 32 bytes of ASCII, zero padded */
#define TXDA_NAME_BYTES		  32
#define TXDA_REG_CORES		  0x0080 /* compute cores */
#define TXDA_REG_CLOCK_MAX_KHZ	  0x0084

#define TXDA_MAX_QUEUES 64
#define TXDA_MAX_VMIDS	64
#define TXDA_MAX_PORTS	8

/*
 * Milliseconds since the chip started, bit 31 always 0. Stands still when the command processor
 * hangs.
 */
#define TXDA_REG_LIVENESS 0x00f0

/* The clock of TIMESTAMP packets and of txda_op_time, in nanoseconds. */
#define TXDA_REG_TIME_LO 0x00f8
#define TXDA_REG_TIME_HI 0x00fc

/* ------------------------------------------------------------------------------------------- */
/* Firmware                                                                                      */
/* ------------------------------------------------------------------------------------------- */

/*
 * With TXDA_CHIP_FIRMWARE the driver copies the image into the reserved part of DRAM, writes its
 * place and size, then TXDA_FW_BOOT, and waits for TXDA_FW_READY. Without it the state is READY
 * from reset on.
 */
#define TXDA_REG_FW_STATE 0x0100
#define TXDA_FW_RESET	  0
#define TXDA_FW_BOOTING	  1
#define TXDA_FW_READY	  2
#define TXDA_FW_FAILED	  3 /* TXDA_REG_FW_ERROR says why */

#define TXDA_REG_FW_VERSION	0x0104 /* major << 16 | minor << 8 | patch */
#define TXDA_REG_FW_CTRL	0x0108
#define TXDA_FW_BOOT		1u
#define TXDA_REG_FW_ERROR	0x010c /* errno-like, 0: none */
#define TXDA_REG_FW_IMAGE_LO	0x0110 /* DRAM offset, 4 KiB aligned */
#define TXDA_REG_FW_IMAGE_HI	0x0114
#define TXDA_REG_FW_IMAGE_BYTES 0x0118

/*
 * The log, since 1.1: messages about what the chip did and met, for people. They are in a ring of
 * ENTRIES (a power of two; 0: no log) that takes up the end of the reserved part of DRAM; images
 * end below it. Message n, counted from 1 since power-on, is entry (n - 1) mod ENTRIES, and COUNT
 * is the number of the newest one. An entry's number is written last, and is 0 while the rest of it
 * changes. A chip reset keeps the log. An FLR clears its entries with DRAM and goes on counting.
 */
#define TXDA_REG_FW_LOG_ENTRIES	 0x0120
#define TXDA_FW_LOG_MAX_ENTRIES	 65536
#define TXDA_REG_FW_LOG_COUNT_LO 0x0128
#define TXDA_REG_FW_LOG_COUNT_HI 0x012c

enum txda_fw_log_level {
	TXDA_FW_LOG_ERROR = 0,
	TXDA_FW_LOG_WARNING = 1,
	TXDA_FW_LOG_INFO = 2,
	TXDA_FW_LOG_DEBUG = 3,
	TXDA_FW_LOG_LEVEL_COUNT
};

struct txda_fw_log_entry {
	__u64 number;
	__u64 time_ns;	/* by TXDA_REG_TIME */
	__u8 level;	/* enum txda_fw_log_level */
	__u8 text[111]; /* ASCII, zero padded */
};

/* ------------------------------------------------------------------------------------------- */
/* Interrupts                                                                                    */
/* ------------------------------------------------------------------------------------------- */

/*
 * Sources are bits: one a queue in TXDA_REG_IRQ_QUEUES, and the events below. A source that is set
 * and enabled sends its message; the driver clears it by writing the bit back as 1 before it looks
 * at what the source is about. A source that is set again after that sends again: none is lost.
 * Vectors: with MSI-X, vector 0 carries the events and vector 1 + (q mod (vectors - 1)) queue q;
 * with one MSI (or a single MSI-X vector) vector 0 carries all.
 */
#define TXDA_REG_IRQ_QUEUES_LO	      0x0200 /* read, write 1 to clear */
#define TXDA_REG_IRQ_QUEUES_HI	      0x0204
#define TXDA_REG_IRQ_QUEUES_ENABLE_LO 0x0208
#define TXDA_REG_IRQ_QUEUES_ENABLE_HI 0x020c
#define TXDA_REG_IRQ_EVENTS	      0x0210 /* read, write 1 to clear */
#define TXDA_REG_IRQ_EVENTS_ENABLE    0x0214
#define TXDA_IRQ_FAULT		      (1u << 0) /* the fault record is valid */
#define TXDA_IRQ_FIRMWARE	      (1u << 1) /* FW_STATE changed */
#define TXDA_IRQ_THERMAL	      (1u << 2) /* throttling began or ended, or a trip */
#define TXDA_IRQ_ECC		      (1u << 3) /* an ECC counter rose */
#define TXDA_IRQ_LINK		      (1u << 4) /* a C2C port changed its state */
#define TXDA_IRQ_RESET		      (1u << 5) /* a reset is complete */
#define TXDA_IRQ_ALL		      0x3fu

#define TXDA_MSIX_TABLE	 0x4000 /* a page of its own */
#define TXDA_MSIX_PBA	 0x5000 /* a page of its own */
#define TXDA_MAX_VECTORS 64

/* ------------------------------------------------------------------------------------------- */
/* Fault record                                                                                  */
/* ------------------------------------------------------------------------------------------- */

/*
 * The oldest fault that was not yet acknowledged, as struct txda_fault of txda_isa.h. While the
 * count is not zero the record is valid and stable; writing 1 to ACK drops it and brings the next
 * one. Each queue keeps at most one (a faulted queue does not run), so at most TXDA_MAX_QUEUES
 * wait.
 */
#define TXDA_REG_FAULT_COUNT	0x0300
#define TXDA_REG_FAULT_ACK	0x0304
#define TXDA_REG_FAULT_RECORD	0x0308
#define TXDA_FAULT_RECORD_BYTES 48

/* ------------------------------------------------------------------------------------------- */
/* Sensors                                                                                       */
/* ------------------------------------------------------------------------------------------- */

#define TXDA_REG_POWER_MW	 0x0400
#define TXDA_REG_POWER_LIMIT_MW	 0x0404 /* writable with TXDA_CHIP_POWER_LIMIT */
#define TXDA_REG_TEMP_MC	 0x0408 /* signed millidegrees Celsius */
#define TXDA_REG_TEMP_LIMIT_MC	 0x040c /* throttles above */
#define TXDA_REG_TEMP_TRIP_MC	 0x0410 /* stops all queues above, TXDA_QUEUE_LOST */
#define TXDA_REG_CLOCK_KHZ	 0x0414
#define TXDA_REG_THROTTLE	 0x0418 /* 0: none, else a mask of reasons */
#define TXDA_THROTTLE_POWER	 (1u << 0)
#define TXDA_THROTTLE_THERMAL	 (1u << 1)
#define TXDA_REG_ECC_CORRECTED	 0x041c /* errors since reset */
#define TXDA_REG_ECC_UNCORRECTED 0x0420
/*
 * Nanoseconds of work since reset; utilisation is the rate. Compute counts ops, copy counts copies.
 */
#define TXDA_REG_BUSY_COMPUTE_LO 0x0428
#define TXDA_REG_BUSY_COMPUTE_HI 0x042c
#define TXDA_REG_BUSY_COPY_LO	 0x0430
#define TXDA_REG_BUSY_COPY_HI	 0x0434
#define TXDA_REG_DRAM_READ_LO	 0x0438 /* bytes since reset */
#define TXDA_REG_DRAM_READ_HI	 0x043c
#define TXDA_REG_DRAM_WRITTEN_LO 0x0440
#define TXDA_REG_DRAM_WRITTEN_HI 0x0444
/*
 * With TXDA_CHIP_C2C_TRAFFIC: payload that left and reached the chip through all its ports, bytes
 * since reset. Whoever asked for it: a chip that reads a peer's DRAM receives, and the peer sends.
 */
#define TXDA_REG_C2C_SENT_LO	 0x0448
#define TXDA_REG_C2C_SENT_HI	 0x044c
#define TXDA_REG_C2C_RECEIVED_LO 0x0450
#define TXDA_REG_C2C_RECEIVED_HI 0x0454

/* ------------------------------------------------------------------------------------------- */
/* Reset                                                                                         */
/* ------------------------------------------------------------------------------------------- */

/*
 * Writing TXDA_RESET_CHIP stops all queues and forgets rings, roots, groups, interrupt sources,
 * fault records and the firmware; DRAM and the enabled interrupts stay as they are. The register
 * reads TXDA_RESET_CHIP until that is done, then TXDA_IRQ_RESET is set. FLR does the same, clears
 * DRAM, and leaves all queues OFF and all interrupts disabled. Other values are ignored, so that a
 * stray write resets nothing. One queue is reset through its own control register.
 */
#define TXDA_REG_RESET	     0x0500
#define TXDA_RESET_CHIP	     0x54455352u /* "RSET" */
#define TXDA_REG_RESET_COUNT 0x0504	 /* of chip resets and FLRs since power-on */

/* ------------------------------------------------------------------------------------------- */
/* C2C ports                                                                                     */
/* ------------------------------------------------------------------------------------------- */

/*
 * Ports are wired: a link goes down and up, but the chip at its other end is the same
 * for as long as this one is powered. So page table entries and routes with a port stay right.
 */

#define TXDA_REG_PORT(p)       (0x0600 + 0x20 * (p))
#define TXDA_PORT_STATE	       0x00
#define TXDA_PORT_DOWN	       0
#define TXDA_PORT_TRAINING     1
#define TXDA_PORT_UP	       2
#define TXDA_PORT_SPEED_MBPS   0x04 /* megabytes per second, each direction */
#define TXDA_PORT_PEER_CARD_LO 0x08 /* card and position of the chip at the other end */
#define TXDA_PORT_PEER_CARD_HI 0x0c
#define TXDA_PORT_PEER_INDEX   0x10
#define TXDA_PORT_PEER_PORT    0x14
#define TXDA_PORT_ERRORS       0x18 /* since reset */

/* ------------------------------------------------------------------------------------------- */
/* Queues                                                                                        */
/* ------------------------------------------------------------------------------------------- */

/*
 * Queues [0, compute) are compute queues, [compute, compute + copy) copy queues.
 *
 * A queue is set up while TXDA_QUEUE_OFF or TXDA_QUEUE_LOST: ring address and size, VMID, priority,
 * completion word; then TXDA_QUEUE_CTRL_START, which starts head and tail at 0. Before
 * TXDA_FW_READY, and where the set-up is nonsense, a queue does not start. The driver appends by
 * filling ring entries and writing the new tail to the doorbell; the chip runs the entries in order
 * and raises the head. Head and tail are counts modulo 2^32, entry i is at i mod the ring's size; a
 * doorbell that would overtake the head by more than the size faults the queue.
 *
 * Pieces. A queue works at a packet piece by piece: a copy or fill in pieces of at most
 * TXDA_PIECE_BYTES and TXDA_PIECE_ROWS, an op in tiles of its result. After each it raises PROGRESS
 * and looks for STOP, so that no packet, however large, keeps a queue from its end, and one that
 * takes long is told from one that hangs. A queue whose packet does not run just now stops at once,
 * whatever other queues do. What a stopped packet has written by then stays; the queue writes
 * nothing once it is OFF.
 */
#define TXDA_REG_QUEUE(q)	 (0x2000 + 0x80 * (q))
#define TXDA_QUEUE_DOORBELL	 0x00 /* write: tail */
#define TXDA_QUEUE_HEAD		 0x04 /* read: entries done */
#define TXDA_QUEUE_STATE	 0x08
#define TXDA_QUEUE_OFF		 0
#define TXDA_QUEUE_RUNNING	 1 /* with or without work */
#define TXDA_QUEUE_FAULTED	 2 /* the entry at HEAD is guilty */
#define TXDA_QUEUE_LOST		 3 /* by a thermal trip, a chip reset or a lost peer */
#define TXDA_QUEUE_CTRL		 0x0c
#define TXDA_QUEUE_CTRL_START	 1u
#define TXDA_QUEUE_CTRL_STOP	 2u   /* finish the current piece, drop the rest, go OFF */
#define TXDA_QUEUE_RING_LO	 0x10 /* a TXDA_ADDR, 4 KiB aligned */
#define TXDA_QUEUE_RING_HI	 0x14
#define TXDA_QUEUE_RING_LOG2	 0x18 /* log2 of the entries, 4 to TXDA_RING_MAX_LOG2 */
#define TXDA_QUEUE_VMID		 0x1c
#define TXDA_QUEUE_PRIORITY	 0x20 /* enum txda_queue_priority */
#define TXDA_QUEUE_COMPLETION_LO 0x28 /* a TXDA_ADDR, 8-byte aligned, for seqno */
#define TXDA_QUEUE_COMPLETION_HI 0x2c
#define TXDA_QUEUE_PROGRESS_LO	 0x30 /* rises with each piece, op and packet done */
#define TXDA_QUEUE_PROGRESS_HI	 0x34
#define TXDA_QUEUE_PACKET_LO	 0x38 /* VA of the packet in execution, or 0 */
#define TXDA_QUEUE_PACKET_HI	 0x3c

#define TXDA_RING_MAX_LOG2 16
#define TXDA_PIECE_BYTES   (8u << 20)
#define TXDA_PIECE_ROWS	   (64u << 10)

enum txda_queue_priority {
	TXDA_PRIORITY_LOW = 0,
	TXDA_PRIORITY_NORMAL = 1,
	TXDA_PRIORITY_HIGH = 2,
	TXDA_PRIORITY_COUNT
};

/*
 * One job. When its stream is done the chip stores @seqno to the queue's completion word (64 bits,
 * after everything the job wrote), raises the head, and with TXDA_RING_IRQ sets the queue's
 * interrupt source.
 */
#define TXDA_RING_IRQ (1u << 0)

struct txda_ring_entry {
	__u64 stream_va;    /* 8-byte aligned, in the queue's address space */
	__u32 stream_bytes; /* a multiple of 8; 0: nothing but the completion */
	__u32 flags;	    /* TXDA_RING_* */
	__u64 seqno;
	__u64 reserved; /* 0 */
};

/* ------------------------------------------------------------------------------------------- */
/* Address spaces                                                                                */
/* ------------------------------------------------------------------------------------------- */

#define TXDA_REG_VM(vmid) (0x8000 + 0x200 * (vmid))
#define TXDA_VM_ROOT_LO	  0x00 /* DRAM offset | TXDA_PTE_VALID, 0: none */
#define TXDA_VM_ROOT_HI	  0x04
/*
 * Translations are cached. After a PTE that was valid has changed, the driver writes the range
 * (first page and number of pages, both of 4 KiB; a count of 0xffffffff is everything), then FLUSH
 * = 1, and waits until FLUSH reads 0: from then on no access of the chip uses the old PTE. A PTE
 * that was invalid before needs no flush.
 */
#define TXDA_VM_FLUSH_PAGE_LO 0x08
#define TXDA_VM_FLUSH_PAGE_HI 0x0c
#define TXDA_VM_FLUSH_COUNT   0x10
#define TXDA_VM_FLUSH	      0x14
/*
 * Group slots: in slot g this address space is rank RANK of the group ID, which has SIZE members.
 * Collectives meet by ID, which the driver makes unique on the machine. ROUTES: bits 4r to 4r+3 are
 * the C2C port towards rank r, 15 for this chip.
 */
#define TXDA_VM_GROUP(g)     (0x100 + 0x10 * (g))
#define TXDA_VM_GROUPS	     16
#define TXDA_GROUP_ID_LO     0x0 /* 0: no group */
#define TXDA_GROUP_ID_HI     0x4
#define TXDA_GROUP_RANK_SIZE 0x8 /* size << 8 | rank */
#define TXDA_GROUP_ROUTES    0xc

/*
 * Page tables live in the chip's own DRAM, 4 KiB each with 512 entries of 64 bits, four levels:
 *   level 3: VA[47:39]   level 2: VA[38:30]   level 1: VA[29:21]   level 0: VA[20:12]
 * Page sizes are 4 KiB (leaf at level 0) and 2 MiB (leaf at level 1). In a directory entry only
 * VALID and the address (in local DRAM) are set. In a leaf all fields count. Reserved bits must be
 * zero, else the walk faults.
 *
 *   bit  0      VALID
 *   bit  1      READ
 *   bit  2      WRITE
 *   bit  3      LEAF      level 1: a 2 MiB page; level 0: always set
 *   bit  4      COHERENT  system memory: snoop the CPU's caches
 *   bits 5-6    APERTURE
 *   bits 7-11   reserved
 *   bits 12-51  address >> 12
 *   bits 52-55  PORT      aperture C2C: the port towards the peer
 *   bits 56-63  reserved
 */
#define TXDA_PTE_VALID		(1ull << 0)
#define TXDA_PTE_READ		(1ull << 1)
#define TXDA_PTE_WRITE		(1ull << 2)
#define TXDA_PTE_LEAF		(1ull << 3)
#define TXDA_PTE_COHERENT	(1ull << 4)
#define TXDA_PTE_APERTURE_SHIFT 5
#define TXDA_PTE_APERTURE_MASK	(3ull << TXDA_PTE_APERTURE_SHIFT)
#define TXDA_PTE_ADDR_MASK	0x000ffffffffff000ull
#define TXDA_PTE_PORT_SHIFT	52
#define TXDA_PTE_PORT_MASK	(15ull << TXDA_PTE_PORT_SHIFT)
#define TXDA_PTE_RESERVED	0xff00000000000f80ull

enum txda_aperture {
	TXDA_APERTURE_LOCAL = 0,  /* the chip's DRAM, an offset */
	TXDA_APERTURE_SYSTEM = 1, /* a bus address */
	TXDA_APERTURE_C2C = 2,	  /* an offset in the DRAM of the chip behind PORT */
	TXDA_APERTURE_COUNT
};

#define TXDA_PAGE_SHIFT 12
#define TXDA_HUGE_SHIFT 21
#define TXDA_PT_LEVELS	4
#define TXDA_PT_SHIFT	9
#define TXDA_PT_ENTRIES 512
#define TXDA_PT_BYTES	4096

/*
 * TXDA_ADDR: where the driver gives the chip a place outside of any address space (rings,
 * completion words), it is the address with the aperture in bits 62 and 63; local or system only.
 */
#define TXDA_ADDR_APERTURE_SHIFT 62
#define TXDA_ADDR_MASK		 0x000fffffffffffffull

#endif /* TXDA_REGS_H */
