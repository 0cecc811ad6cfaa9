/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * Ioctls of /dev/accel/accelN as the txda driver serves them.
 *
 * Rules
 *
 * Layout. Fixed-width types; natural alignment with explicit padding, so that 32-bit and 64-bit
 * processes see the same bytes; a struct's size is a multiple of 8. User pointers are __u64. No
 * unions, no bit fields, no physical addresses, no file offsets but those of BO_MMAP_OFFSET.
 *
 * Growth. Structs only grow at their end, flags and enums only gain values. DRM pads a shorter
 * argument of an older client with zeros and drops what an older kernel does not know; a zero in a
 * new member therefore means what the ioctl did before, and a client looks at the minor version
 * before it uses one. Each addition raises that version and is listed below. Numbers are never
 * reused.
 *
 * Arrays are struct drm_txda_array: the client says the size of its element, so elements grow in
 * the same way. Bytes of an element that the kernel does not know must be zero. What the kernel
 * tells in a struct that may grow goes where a struct drm_txda_answer says. No other struct is a
 * member of one that may grow.
 *
 * Meaning. Flags, states and enums here are the driver's; it translates what registers say. Only
 * what runs on the chip is the chip's own: streams, programs and fault codes are those of
 * txda_isa.h, in the version that DRM_TXDA_QUERY_DEVICE tells.
 *
 * Frozen. abi.txt lists every layout, number and value of this header, and a test holds the header
 * to it: lines are only ever added to it.
 *
 * Strictness. Every undefined flag bit, every padding and reserved member must be zero, else
 * -EINVAL. So a bit that is defined later cannot already mean something to an old client.
 *
 * Hostile input. Nothing that a client passes is trusted: handles and ids are looked up among those
 * of the same file; ranges are checked with overflow-safe arithmetic, counts against the limits
 * below, before anything is allocated for them; what is read from user memory is read once. Stream
 * contents are not parsed by the kernel: the chip checks them against the address space
 * (txda_isa.h). An ioctl that fails has no effect unless its description says how far it went.
 *
 * Reach. Next to these ioctls a node serves from core DRM only VERSION, GET_CAP, SET_CLIENT_NAME,
 * GEM_CLOSE, PRIME_* and SYNCOBJ_*; everything else is -ENOTTY.
 *
 * Common errors: -ENODEV the chip is gone or unplugged; -EFAULT bad user pointer (if the arguments
 * can be read but not written back, the call has already taken effect); -EINVAL bad value; -ENOENT
 * no such handle or id in this file; -E2BIG an array has more elements than its limit below, an
 * element has bytes set that this kernel does not know, or an answer's size is above
 * DRM_TXDA_MAX_ANSWER_BYTES; -ENOMEM; -EINTR a signal came and nothing was done (VM_BIND: or part
 * of it, see there), the same call may be made again. Never -EAGAIN: libdrm asks again at once.
 *
 * Version history
 *  1.0  first
 *  1.1  DRM_TXDA_QUEUE_SHARE, compute_shared and copy_shared of drm_txda_queues_info
 *  1.2  BO_ADVISE
 */
#ifndef TXDA_DRM_H
#define TXDA_DRM_H

#ifdef __KERNEL__
#include <drm/drm.h>
#else
#include "drm.h" /* libdrm's; its pkg-config file knows the directory */
#endif

#if defined(__cplusplus)
extern "C" {
#endif

#define DRM_TXDA_MAJOR 1
#define DRM_TXDA_MINOR 2

/* Ids of the ioctls; they only ever grow at the end. */
enum drm_txda_ioctl_id {
	DRM_TXDA_DEV_QUERY = 0,
	DRM_TXDA_VM_CREATE = 1,
	DRM_TXDA_VM_DESTROY = 2,
	DRM_TXDA_VM_GET_STATE = 3,
	DRM_TXDA_VM_BIND = 4,
	DRM_TXDA_VM_SET_GROUP = 5,
	DRM_TXDA_BO_CREATE = 6,
	DRM_TXDA_BO_MMAP_OFFSET = 7,
	DRM_TXDA_BO_QUERY_INFO = 8,
	DRM_TXDA_BO_SET_LABEL = 9,
	DRM_TXDA_BO_FROM_USERPTR = 10,
	DRM_TXDA_QUEUE_CREATE = 11,
	DRM_TXDA_QUEUE_DESTROY = 12,
	DRM_TXDA_QUEUE_GET_STATE = 13,
	DRM_TXDA_QUEUE_SUBMIT = 14,
	DRM_TXDA_BO_ADVISE = 15,
	DRM_TXDA_NUM_IOCTLS
};

/* The number of an ioctl: direction (R, W, WR), id, struct. */
#define DRM_TXDA_NR(dir, id, type)                                                                 \
	DRM_IO##dir(DRM_COMMAND_BASE + DRM_TXDA_##id, struct drm_txda_##type)

#define DRM_IOCTL_TXDA_DEV_QUERY       DRM_TXDA_NR(WR, DEV_QUERY, dev_query)
#define DRM_IOCTL_TXDA_VM_CREATE       DRM_TXDA_NR(WR, VM_CREATE, vm_create)
#define DRM_IOCTL_TXDA_VM_DESTROY      DRM_TXDA_NR(WR, VM_DESTROY, vm_destroy)
#define DRM_IOCTL_TXDA_VM_GET_STATE    DRM_TXDA_NR(WR, VM_GET_STATE, vm_get_state)
#define DRM_IOCTL_TXDA_VM_BIND	       DRM_TXDA_NR(WR, VM_BIND, vm_bind)
#define DRM_IOCTL_TXDA_VM_SET_GROUP    DRM_TXDA_NR(WR, VM_SET_GROUP, vm_set_group)
#define DRM_IOCTL_TXDA_BO_CREATE       DRM_TXDA_NR(WR, BO_CREATE, bo_create)
#define DRM_IOCTL_TXDA_BO_MMAP_OFFSET  DRM_TXDA_NR(WR, BO_MMAP_OFFSET, bo_mmap_offset)
#define DRM_IOCTL_TXDA_BO_QUERY_INFO   DRM_TXDA_NR(WR, BO_QUERY_INFO, bo_query_info)
#define DRM_IOCTL_TXDA_BO_SET_LABEL    DRM_TXDA_NR(WR, BO_SET_LABEL, bo_set_label)
#define DRM_IOCTL_TXDA_BO_FROM_USERPTR DRM_TXDA_NR(WR, BO_FROM_USERPTR, bo_from_userptr)
#define DRM_IOCTL_TXDA_QUEUE_CREATE    DRM_TXDA_NR(WR, QUEUE_CREATE, queue_create)
#define DRM_IOCTL_TXDA_QUEUE_DESTROY   DRM_TXDA_NR(WR, QUEUE_DESTROY, queue_destroy)
#define DRM_IOCTL_TXDA_QUEUE_GET_STATE DRM_TXDA_NR(WR, QUEUE_GET_STATE, queue_get_state)
#define DRM_IOCTL_TXDA_QUEUE_SUBMIT    DRM_TXDA_NR(WR, QUEUE_SUBMIT, queue_submit)
#define DRM_IOCTL_TXDA_BO_ADVISE       DRM_TXDA_NR(WR, BO_ADVISE, bo_advise)

/* Limits that every kernel with this major version holds to. */
#define DRM_TXDA_MAX_BIND_OPS	  4096 /* a VM_BIND */
#define DRM_TXDA_MAX_JOBS	  64   /* a QUEUE_SUBMIT */
#define DRM_TXDA_MAX_SYNCS	  64   /* a job or bind operation */
#define DRM_TXDA_MAX_GROUP	  8    /* members of a group */
#define DRM_TXDA_GROUP_SLOTS	  16   /* of an address space */
#define DRM_TXDA_MAX_LABEL	  64   /* bytes of a label, its NUL included */
#define DRM_TXDA_PAGE_SIZE	  4096 /* of virtual addresses and buffer sizes */
#define DRM_TXDA_MAX_ANSWER_BYTES 4096 /* of a struct drm_txda_answer */

/**
 * struct drm_txda_array - An array in user memory.
 */
struct drm_txda_array {
	/** @stride: Bytes of one element as the client knows it. */
	__u32 stride;

	/** @count: Number of elements; 0 with any @array is the empty array. */
	__u32 count;

	/** @array: User pointer to the first element. */
	__u64 array;
};

/**
 * struct drm_txda_answer - Where the kernel writes a struct that may grow.
 *
 * With a NULL @pointer only @size is written. Else the kernel writes the first @size bytes of its
 * struct, or all of it followed by zeros when the client's is larger, and sets @size to what the
 * kernel knows.
 */
struct drm_txda_answer {
	/** @size: Bytes at @pointer; out: bytes of the kernel's struct. */
	__u32 size;

	/** @pad: 0. */
	__u32 pad;

	/** @pointer: User pointer to the struct, or NULL. */
	__u64 pointer;
};

/* What a sync operation does: wait before the work, or signal after it. */
#define DRM_TXDA_SYNC_WAIT   0u
#define DRM_TXDA_SYNC_SIGNAL (1u << 31)
/* The syncobj is a timeline and @point counts; without it the syncobj is binary and @point is 0. */
#define DRM_TXDA_SYNC_TIMELINE (1u << 0)

/**
 * struct drm_txda_sync - One wait for, or one signal of, a syncobj.
 */
struct drm_txda_sync {
	/** @flags: DRM_TXDA_SYNC_*. */
	__u32 flags;

	/** @handle: Handle of the syncobj. */
	__u32 handle;

	/** @point: Timeline point, above 0 for timelines. */
	__u64 point;
};

/**
 * struct drm_txda_fault - What went wrong in an address space or queue.
 *
 * The chip's own record (struct txda_fault of txda_isa.h) as far as clients may see it. All zeros:
 * nothing did.
 */
struct drm_txda_fault {
	/** @code: enum txda_fault_code; 0: no fault. */
	__u32 code;

	/** @queue_id: The client's queue that faulted, 0: none. */
	__u32 queue_id;

	/** @op: Index of the op in its program, or 0xffffffff. */
	__u32 op;

	/** @tensor: Index of the tensor in its program, or 0xffffffff. */
	__u32 tensor;

	/** @va: The address at fault, or 0. */
	__u64 va;

	/** @packet_va: Address of the packet that was executed. */
	__u64 packet_va;

	/** @detail: See enum txda_fault_code. */
	__u64 detail;

	/** @time_ns: CLOCK_MONOTONIC when the driver saw it. */
	__u64 time_ns;
};

/* ---- DEV_QUERY ------------------------------------------------------------------------------ */

/** enum drm_txda_query - What DEV_QUERY can tell. */
enum drm_txda_query {
	/** @DRM_TXDA_QUERY_DEVICE: struct drm_txda_device_info. */
	DRM_TXDA_QUERY_DEVICE = 0,

	/** @DRM_TXDA_QUERY_MEMORY: struct drm_txda_memory_info. */
	DRM_TXDA_QUERY_MEMORY = 1,

	/** @DRM_TXDA_QUERY_QUEUES: struct drm_txda_queues_info. */
	DRM_TXDA_QUERY_QUEUES = 2,

	/** @DRM_TXDA_QUERY_FIRMWARE: struct drm_txda_firmware_info. */
	DRM_TXDA_QUERY_FIRMWARE = 3,

	/** @DRM_TXDA_QUERY_TOPOLOGY: struct drm_txda_topology_info. */
	DRM_TXDA_QUERY_TOPOLOGY = 4,

	/** @DRM_TXDA_QUERY_TIMESTAMP: struct drm_txda_timestamp_info. */
	DRM_TXDA_QUERY_TIMESTAMP = 5,

	/** @DRM_TXDA_QUERY_RESET: struct drm_txda_reset_info. */
	DRM_TXDA_QUERY_RESET = 6,

	/** @DRM_TXDA_QUERY_PORT: struct drm_txda_port_info of the port that the index names. */
	DRM_TXDA_QUERY_PORT = 7,
};

/**
 * struct drm_txda_dev_query - Argument of DEV_QUERY.
 *
 * -EINVAL: also for an unknown type. -ENOENT: the chip has no port with that index.
 */
struct drm_txda_dev_query {
	/** @type: enum drm_txda_query. */
	__u32 type;

	/** @index: DRM_TXDA_QUERY_PORT: below drm_txda_topology_info.n_ports; else 0. */
	__u32 index;

	/** @answer: For the struct of that type. */
	struct drm_txda_answer answer;
};

#define DRM_TXDA_NAME_BYTES   32
#define DRM_TXDA_SERIAL_BYTES 16

/* What a driver can do beyond version 1.0. */
#define DRM_TXDA_FEATURE_QUEUE_SHARE (1u << 0) /* DRM_TXDA_QUEUE_SHARE */
#define DRM_TXDA_FEATURE_BO_ADVISE   (1u << 1) /* BO_ADVISE */

/* Abilities of a chip. */
#define DRM_TXDA_CAP_CMODEL	 (1u << 0) /* a model of a chip, no silicon */
#define DRM_TXDA_CAP_PRECISE	 (1u << 1) /* TXDA_EXEC_PRECISE of txda_isa.h works */
#define DRM_TXDA_CAP_C2C	 (1u << 2) /* it has chip-to-chip ports */
#define DRM_TXDA_CAP_ECC	 (1u << 3) /* memory errors are counted */
#define DRM_TXDA_CAP_POWER_LIMIT (1u << 4) /* its power can be limited */

/**
 * struct drm_txda_device_info - What the chip is and what it can do. Never changes.
 */
struct drm_txda_device_info {
	/** @name: For people; NUL-terminated. */
	__u8 name[DRM_TXDA_NAME_BYTES];

	/** @serial: Of the chip; ASCII, zero padded, all 16 bytes may be used. */
	__u8 serial[DRM_TXDA_SERIAL_BYTES];

	/** @family: 8 for TX8. */
	__u16 family;

	/** @revision: Of the silicon. */
	__u16 revision;

	/** @isa_major: Version of the instruction set, see txda_isa.h. */
	__u16 isa_major;

	/** @isa_minor: Version of the instruction set. */
	__u16 isa_minor;

	/** @caps: DRM_TXDA_CAP_*. */
	__u64 caps;

	/** @va_bits: Usable bits of a virtual address. */
	__u32 va_bits;

	/** @page_sizes: Mask of page sizes: bit n is 2^n bytes. */
	__u32 page_sizes;

	/** @cores: Compute cores. */
	__u32 cores;

	/** @clock_max_khz: Their highest clock. */
	__u32 clock_max_khz;

	/** @max_vms: Address spaces on the chip, for all clients together. */
	__u32 max_vms;

	/** @max_stream_bytes: Of one job. */
	__u32 max_stream_bytes;

	/**
	 * @features: Of the driver: bits for what a later version of this header adds and a kernel
	 * may have without the rest of that version: DRM_TXDA_FEATURE_*.
	 */
	__u64 features;
};

/**
 * struct drm_txda_memory_info - Memory regions. @*_used changes all the time.
 */
struct drm_txda_memory_info {
	/** @device_bytes: DRAM that buffers can use, firmware's share taken off. */
	__u64 device_bytes;

	/** @device_used: Of that, taken now by all clients. */
	__u64 device_used;

	/** @device_mappable: Of @device_bytes, what mmap() can reach. */
	__u64 device_mappable;

	/** @host_used: Host memory in buffers of this chip, all clients. */
	__u64 host_used;

	/** @client_device_used: Device memory of this file. */
	__u64 client_device_used;

	/** @client_host_used: Host memory of this file. */
	__u64 client_host_used;
};

/**
 * struct drm_txda_queues_info - Queues of the chip.
 */
struct drm_txda_queues_info {
	/** @compute: Hardware compute queues, without those that are shared. */
	__u32 compute;

	/** @copy: Hardware copy queues, without those and the one that the kernel keeps. */
	__u32 copy;

	/** @max_per_client: Queues that one file can have. */
	__u32 max_per_client;

	/** @priorities: Mask of enum drm_txda_priority values that this client may use. */
	__u32 priorities;

	/** @default_timeout_ms: Without progress for so long a job counts as hung. */
	__u32 default_timeout_ms;

	/** @max_timeout_ms: The longest that QUEUE_CREATE accepts. */
	__u32 max_timeout_ms;

	/** @compute_shared: Compute queues for DRM_TXDA_QUEUE_SHARE, 0: there are none. */
	__u32 compute_shared;

	/** @copy_shared: The same of copy queues. */
	__u32 copy_shared;
};

enum drm_txda_firmware_state {
	/** @DRM_TXDA_FIRMWARE_OFF: Not started. */
	DRM_TXDA_FIRMWARE_OFF = 0,

	/** @DRM_TXDA_FIRMWARE_BOOTING: On its way. */
	DRM_TXDA_FIRMWARE_BOOTING = 1,

	/** @DRM_TXDA_FIRMWARE_READY: It runs, or the chip needs none. */
	DRM_TXDA_FIRMWARE_READY = 2,

	/** @DRM_TXDA_FIRMWARE_FAILED: It did not start, or stopped. */
	DRM_TXDA_FIRMWARE_FAILED = 3,
};

/**
 * struct drm_txda_firmware_info - The chip's firmware.
 */
struct drm_txda_firmware_info {
	/** @state: enum drm_txda_firmware_state. */
	__u32 state;

	/** @version: major << 16 | minor << 8 | patch. */
	__u32 version;
};

enum drm_txda_port_state {
	/** @DRM_TXDA_PORT_DOWN: No link. */
	DRM_TXDA_PORT_DOWN = 0,

	/** @DRM_TXDA_PORT_TRAINING: The link is being set up. */
	DRM_TXDA_PORT_TRAINING = 1,

	/** @DRM_TXDA_PORT_UP: The link works. */
	DRM_TXDA_PORT_UP = 2,
};

/**
 * struct drm_txda_port_info - One chip-to-chip port.
 */
struct drm_txda_port_info {
	/** @state: enum drm_txda_port_state. */
	__u32 state;

	/** @speed_mbps: Megabytes per second, each direction. */
	__u32 speed_mbps;

	/** @peer_card: Serial of the card at the other end. */
	__u64 peer_card;

	/** @peer_index: Index of that chip on its card. */
	__u32 peer_index;

	/** @peer_port: Its port. */
	__u32 peer_port;
};

/**
 * struct drm_txda_topology_info - Where the chip sits.
 */
struct drm_txda_topology_info {
	/** @card: Serial of the card. */
	__u64 card;

	/** @card_index: Index of the chip on it. */
	__u32 card_index;

	/** @card_chips: Chips on it. */
	__u32 card_chips;

	/** @numa_node: Of the PCI function, -1: none. */
	__s32 numa_node;

	/** @n_ports: Its ports, each behind DRM_TXDA_QUERY_PORT. */
	__u32 n_ports;
};

/**
 * struct drm_txda_timestamp_info - The chip's clock against the host's.
 *
 * The host times were taken right before and after the chip's.
 */
struct drm_txda_timestamp_info {
	/** @device_ns: The clock of TIMESTAMP packets. */
	__u64 device_ns;

	/** @host_before_ns: CLOCK_MONOTONIC. */
	__u64 host_before_ns;

	/** @host_after_ns: CLOCK_MONOTONIC. */
	__u64 host_after_ns;
};

/**
 * struct drm_txda_reset_info - How often work was lost.
 */
struct drm_txda_reset_info {
	/** @chip_resets: Of the whole chip, since the driver bound it. */
	__u64 chip_resets;

	/** @queue_resets: Of single queues. */
	__u64 queue_resets;
};

/* ---- Address spaces ------------------------------------------------------------------------- */

/**
 * struct drm_txda_vm_create - Argument of VM_CREATE: a new, empty address space of this file.
 *
 * -ENOSPC: the chip has no free address space. -EDQUOT: the user's files together have half of
 * them, which is as much as a user may have without CAP_SYS_RESOURCE; or as many page tables as in
 * VM_BIND.
 */
struct drm_txda_vm_create {
	/** @flags: 0. */
	__u32 flags;

	/** @id: Out: its id, above 0. */
	__u32 id;

	/**
	 * @va_range: Addresses wanted, 0: all that the chip has. Out: clients may use [0,
	 * @va_range), without the first page, which never maps, so that address 0 always faults.
	 */
	__u64 va_range;
};

/**
 * struct drm_txda_vm_destroy - Argument of VM_DESTROY.
 *
 * Its mappings go. -EBUSY while a queue of the file uses it.
 */
struct drm_txda_vm_destroy {
	/** @id: Of the address space. */
	__u32 id;

	/** @pad: 0. */
	__u32 pad;
};

enum drm_txda_vm_state {
	/** @DRM_TXDA_VM_USABLE: All is well. */
	DRM_TXDA_VM_USABLE = 0,

	/**
	 * @DRM_TXDA_VM_LOST: Its page tables are gone (chip reset) or do not say what the client
	 * asked for (an asynchronous bind failed). Only VM_DESTROY helps.
	 */
	DRM_TXDA_VM_LOST = 1,
};

/**
 * struct drm_txda_vm_get_state - Argument of VM_GET_STATE.
 */
struct drm_txda_vm_get_state {
	/** @id: Of the address space. */
	__u32 id;

	/** @state: Out: enum drm_txda_vm_state. */
	__u32 state;

	/** @fault: For struct drm_txda_fault: the last fault of any queue in it. */
	struct drm_txda_answer fault;
};

/* The kind of a bind operation, in the top bits of its flags. */
#define DRM_TXDA_BIND_MAP	(0u << 28)
#define DRM_TXDA_BIND_UNMAP	(1u << 28)
#define DRM_TXDA_BIND_SYNC_ONLY (2u << 28)
#define DRM_TXDA_BIND_KIND_MASK (15u << 28)
#define DRM_TXDA_BIND_READONLY	(1u << 0)

/**
 * struct drm_txda_bind_op - One change of an address space.
 *
 * MAP replaces whatever the range held. UNMAP of an unmapped range is fine. SYNC_ONLY is a point in
 * the order of asynchronous binds and refused elsewhere: only @syncs count. A buffer from another
 * TX8 (PRIME) is mapped through C2C when a port leads there, -EXDEV when none does. -EINVAL: also
 * for a buffer that is private to another address space; -EACCES: the buffer is read-only and the
 * mapping is not; -EBUSY: the buffer is idle, see BO_ADVISE; -ENODEV: also for a buffer that its
 * exporter, another driver, has revoked.
 */
struct drm_txda_bind_op {
	/** @flags: DRM_TXDA_BIND_*. */
	__u32 flags;

	/** @bo: MAP: handle of the buffer; else 0. */
	__u32 bo;

	/** @bo_offset: MAP: where in the buffer, a multiple of the page size; else 0. */
	__u64 bo_offset;

	/** @va: Start of the range, a multiple of the page size. */
	__u64 va;

	/** @size: Of the range, a multiple of the page size, above 0; SYNC_ONLY: 0. */
	__u64 size;

	/** @syncs: struct drm_txda_sync; must be empty unless the bind is asynchronous. */
	struct drm_txda_array syncs;
};

#define DRM_TXDA_VM_BIND_ASYNC (1u << 0)

/**
 * struct drm_txda_vm_bind - Argument of VM_BIND.
 *
 * Synchronous: the operations are done in order, from number @done on, before it returns; on an
 * error @done says how many are. -EINTR: a signal came between two of them; the same call, with
 * @done as it is now, goes on where it stopped. So it does when the kernel restarts it.
 *
 * Asynchronous: they happen in the order of the calls, each after its waits; all memory they need
 * is taken before the call returns, so that they fail only with the chip. An error of the call
 * means that none was queued.
 *
 * -EIO: the address space is lost. -EBUSY: asynchronous, and too many operations of the address
 * space are not done; wait for one. -ENOSPC: the chip has no memory for page tables. -EDQUOT: the
 * user's files have so many that half of the memory that the CPU can map is full of them, which is
 * as much as a user may have without CAP_SYS_RESOURCE. Also to unmap, unless the range starts and
 * ends at multiples of 2 MiB: it may take a table to split a huge page.
 */
struct drm_txda_vm_bind {
	/** @vm_id: Of the address space. */
	__u32 vm_id;

	/** @flags: DRM_TXDA_VM_BIND_*. */
	__u32 flags;

	/** @ops: struct drm_txda_bind_op, at most DRM_TXDA_MAX_BIND_OPS. */
	struct drm_txda_array ops;

	/** @done: In: operations to skip, 0 at first and if asynchronous; out: operations done. */
	__u32 done;

	/** @pad: 0. */
	__u32 pad;
};

/**
 * struct drm_txda_member - One member of a group: an address space behind another node's file.
 */
struct drm_txda_member {
	/** @fd: An open file of a txda node, each of another chip. */
	__s32 fd;

	/** @vm_id: Of the address space in that file. */
	__u32 vm_id;
};

/**
 * struct drm_txda_vm_set_group - Argument of VM_SET_GROUP.
 *
 * Makes the members a group in slot @slot of each of their address spaces, replacing what was
 * there; an empty array leaves the group that @vm_id is in. Ranks are positions in @members. The
 * caller proves its right to each address space by holding the file. The collectives of txda_isa.h
 * name the slot. -EXDEV: two members are not connected by C2C. -EBUSY: a job of a member of the
 * group that would be replaced or left is in flight, or a compute queue of a new member shares
 * (DRM_TXDA_QUEUE_SHARE).
 */
struct drm_txda_vm_set_group {
	/** @vm_id: An address space of this file; one of the members. */
	__u32 vm_id;

	/** @slot: Below DRM_TXDA_GROUP_SLOTS. */
	__u32 slot;

	/** @members: struct drm_txda_member, at most DRM_TXDA_MAX_GROUP. */
	struct drm_txda_array members;
};

/* ---- Buffers -------------------------------------------------------------------------------- */

/* Where a buffer may be; the kernel takes the first that has room, device before host. */
#define DRM_TXDA_PLACE_DEVICE (1u << 0)
#define DRM_TXDA_PLACE_HOST   (1u << 1)

/* Never mapped by the CPU: may lie in DRAM beyond the aperture; BO_MMAP_OFFSET says -EPERM. */
#define DRM_TXDA_BO_NO_MMAP (1u << 0)
/*
 * Host memory that the CPU maps write-combined and the chip does not snoop. Only x86 has that;
 * elsewhere it becomes ordinary memory, and BO_QUERY_INFO does not return the flag.
 */
#define DRM_TXDA_BO_WRITE_COMBINE (1u << 1)
/* Out only: made from user memory. */
#define DRM_TXDA_BO_USERPTR (1u << 2)
/* Out only: came through PRIME. */
#define DRM_TXDA_BO_IMPORTED (1u << 3)

/**
 * struct drm_txda_bo_create - Argument of BO_CREATE: a new buffer, filled with zeros.
 *
 * -ENOSPC: none of the places has room; device memory has none beyond dmem.max of the caller's
 * control group, either, once that has no idle buffers left in it. -EDQUOT: the user's files
 * together have made 32768 buffers, which is as much as a user may have without CAP_SYS_RESOURCE.
 * -EOPNOTSUPP: no host memory for the chip on this machine, since DMA goes through bounce buffers
 * (swiotlb).
 */
struct drm_txda_bo_create {
	/** @size: Bytes, above 0; out: rounded up to pages. */
	__u64 size;

	/** @places: Mask of DRM_TXDA_PLACE_*, not 0. */
	__u32 places;

	/** @flags: DRM_TXDA_BO_*. */
	__u32 flags;

	/**
	 * @vm_id: Above 0: private to this address space, cannot be exported, and costs nothing at
	 * submission. 0: shareable.
	 */
	__u32 vm_id;

	/** @handle: Out: GEM handle. */
	__u32 handle;
};

/**
 * struct drm_txda_bo_mmap_offset - Argument of BO_MMAP_OFFSET: the offset for mmap() on this file.
 *
 * The mapping is MAP_SHARED and begins at the buffer's start. Memory of a chip that goes away is a
 * SIGBUS from then on. -EPERM: the buffer is not for the CPU, or is user memory.
 */
struct drm_txda_bo_mmap_offset {
	/** @handle: GEM handle. */
	__u32 handle;

	/** @pad: 0. */
	__u32 pad;

	/** @offset: Out. */
	__u64 offset;
};

/**
 * struct drm_txda_bo_query_info - Argument of BO_QUERY_INFO.
 */
struct drm_txda_bo_query_info {
	/** @handle: GEM handle. */
	__u32 handle;

	/** @place: Out: the DRM_TXDA_PLACE_* it is in now. */
	__u32 place;

	/** @flags: Out: DRM_TXDA_BO_*. */
	__u32 flags;

	/** @vm_id: Out: the address space that it is private to, or 0. */
	__u32 vm_id;

	/** @size: Out: bytes. */
	__u64 size;
};

/**
 * struct drm_txda_bo_set_label - Argument of BO_SET_LABEL: a name for debugfs and dumps.
 */
struct drm_txda_bo_set_label {
	/** @handle: GEM handle. */
	__u32 handle;

	/** @pad: 0. */
	__u32 pad;

	/**
	 * @label: User pointer to a string of at most DRM_TXDA_MAX_LABEL bytes with its NUL (else
	 * -E2BIG); NULL: none.
	 */
	__u64 label;
};

#define DRM_TXDA_USERPTR_READONLY (1u << 0)

/**
 * struct drm_txda_bo_from_userptr - Argument of BO_FROM_USERPTR: the caller's own memory as a
 * buffer.
 *
 * The pages are pinned until the buffer goes (VmPin in /proc/PID/status). Together with what else
 * of the caller's user counts so, such as io_uring's buffers, they may be RLIMIT_MEMLOCK unless the
 * caller has CAP_IPC_LOCK. -EDQUOT: that limit is too low (the kernel log, at debug level, says how
 * much was wanted), or as in BO_CREATE. -EOPNOTSUPP: the range holds a file's pages that cannot be
 * pinned for long, or as in BO_CREATE.
 */
struct drm_txda_bo_from_userptr {
	/** @va: Start, a multiple of the page size. */
	__u64 va;

	/** @size: Bytes, a multiple of the page size, above 0. */
	__u64 size;

	/** @flags: DRM_TXDA_USERPTR_*. */
	__u32 flags;

	/** @vm_id: As in BO_CREATE. */
	__u32 vm_id;

	/** @handle: Out: GEM handle; cannot be exported. */
	__u32 handle;

	/** @pad: 0. */
	__u32 pad;
};

/** enum drm_txda_advice - What the kernel may do with a buffer. */
enum drm_txda_advice {
	/** @DRM_TXDA_WILLNEED: Nothing: it is in use. As created. */
	DRM_TXDA_WILLNEED = 0,

	/**
	 * @DRM_TXDA_COLD: Idle: when the chip's memory is short, its contents may move to host
	 * memory, from where the kernel may swap them out.
	 */
	DRM_TXDA_COLD = 1,

	/**
	 * @DRM_TXDA_DONTNEED: Idle, and its contents may be dropped: those in device memory when
	 * that is short, those in host memory when the machine's memory is.
	 */
	DRM_TXDA_DONTNEED = 2,
};

/**
 * struct drm_txda_bo_advise - Argument of BO_ADVISE: whether a buffer is in use or idle.
 *
 * Advice other than WILLNEED makes it idle. No address space may map it then (-EBUSY; an
 * asynchronous UNMAP counts as mapped until the driver has cleaned up after it, a little later than
 * its fence), MAP of it is -EBUSY, exporting it fails, and an access through the CPU's mappings
 * is a SIGBUS. The mappings stay. WILLNEED takes all of that back, after it has moved the contents
 * to where they were; contents that were dropped are zeros then.
 *
 * -EPERM: user memory, an imported buffer, or one that was exported. -EBUSY: also when another
 * thread advises on the same buffer. WILLNEED alone: -ENOSPC, -ENOMEM: no room to bring it back,
 * and it stays idle; -EIO: the chip failed, and so it does. Contents in host memory are charged to
 * the control group of the process that made the buffer idle.
 */
struct drm_txda_bo_advise {
	/** @handle: GEM handle. */
	__u32 handle;

	/** @advice: enum drm_txda_advice. */
	__u32 advice;

	/** @retained: Out: 1: its contents are what they were; 0: they were dropped. */
	__u32 retained;

	/** @pad: 0. */
	__u32 pad;
};

/* ---- Queues --------------------------------------------------------------------------------- */

enum drm_txda_queue_class {
	/** @DRM_TXDA_QUEUE_COMPUTE: Runs every packet. */
	DRM_TXDA_QUEUE_COMPUTE = 0,

	/** @DRM_TXDA_QUEUE_COPY: Copies, fills, fences and timestamps beside the compute queues. */
	DRM_TXDA_QUEUE_COPY = 1,
};

enum drm_txda_priority {
	DRM_TXDA_PRIORITY_LOW = 0,
	DRM_TXDA_PRIORITY_NORMAL = 1,

	/** @DRM_TXDA_PRIORITY_HIGH: Wants CAP_SYS_NICE, else -EACCES. */
	DRM_TXDA_PRIORITY_HIGH = 2,
};

/*
 * The queue takes turns with others on the chip's shared hardware queues (compute_shared and
 * copy_shared of DRM_TXDA_QUERY_QUEUES). A turn is one job, or some milliseconds of short ones.
 * Users get equal parts of the time, and so do each user's queues; priority and the nice value of
 * the process that creates the queue give it more or less, but none starves. The time limit runs
 * while a job has its turn; when others wait, it limits the whole job, with progress or without, so
 * timeout_ms may be at most default_timeout_ms. A packet that waits for another such queue's job
 * keeps its turn, and may time out: let the job wait by its syncs instead. The address space can be
 * in no group while it has such a compute queue: the other members would wait for its turn.
 */
#define DRM_TXDA_QUEUE_SHARE (1u << 0)

/**
 * struct drm_txda_queue_create - Argument of QUEUE_CREATE.
 *
 * Unless it shares, a queue has a hardware queue for itself until it is destroyed. -ENOSPC: the
 * chip has none of that class left, or none to share, or the file has
 * DRM_TXDA_QUERY_QUEUES.max_per_client queues. -EDQUOT: the user's files have as many as a user may
 * without CAP_SYS_RESOURCE: 64 that share, and half as many others as the chip has of that class,
 * shared ones counted. -EIO: the address space is lost. -EBUSY: a shared compute queue, in a group.
 */
struct drm_txda_queue_create {
	/** @vm_id: Its address space, for good. */
	__u32 vm_id;

	/** @class_: enum drm_txda_queue_class. */
	__u32 class_;

	/** @priority: enum drm_txda_priority. */
	__u32 priority;

	/** @flags: 0 or DRM_TXDA_QUEUE_SHARE. */
	__u32 flags;

	/**
	 * @timeout_ms: A job without progress for so long is hung; 0: the default. So is one that
	 * has run for 60 times as long, or for ten minutes, whatever its progress: others wait for
	 * its fence.
	 */
	__u32 timeout_ms;

	/** @id: Out: its id, above 0. */
	__u32 id;
};

/**
 * struct drm_txda_queue_destroy - Argument of QUEUE_DESTROY.
 *
 * Jobs that have not started are dropped, the one that runs is stopped, in the middle of a packet
 * if need be; their fences signal with -ECANCELED, those of jobs that still wait when their waits
 * are over.
 */
struct drm_txda_queue_destroy {
	/** @id: Of the queue. */
	__u32 id;

	/** @pad: 0. */
	__u32 pad;
};

/*
 * State of a queue: 0 means that it runs. Every other state is final: later submissions fail with
 * -EIO.
 */
#define DRM_TXDA_QUEUE_TIMEDOUT	   (1u << 0) /* a job hung */
#define DRM_TXDA_QUEUE_FATAL_FAULT (1u << 1) /* a job faulted; see @fault */
#define DRM_TXDA_QUEUE_INNOCENT	   (1u << 2) /* lost to another one's reset */

/**
 * struct drm_txda_queue_get_state - Argument of QUEUE_GET_STATE.
 */
struct drm_txda_queue_get_state {
	/** @id: Of the queue. */
	__u32 id;

	/** @state: Out: DRM_TXDA_QUEUE_TIMEDOUT, _FATAL_FAULT, _INNOCENT. */
	__u32 state;

	/** @submitted: Out: jobs so far. */
	__u64 submitted;

	/** @completed: Out: of these, done. */
	__u64 completed;

	/** @progress: Out: rises with each packet and op done, and within long ones. */
	__u64 progress;

	/** @fault: For struct drm_txda_fault: the fault that stopped it. */
	struct drm_txda_answer fault;
};

/**
 * struct drm_txda_job - One stream to run.
 */
struct drm_txda_job {
	/** @stream_va: Where the stream is, a multiple of 8; 0 when @stream_bytes is 0. */
	__u64 stream_va;

	/** @stream_bytes: Its size, a multiple of 8; 0: a pure point of synchronisation. */
	__u32 stream_bytes;

	/** @flags: 0. */
	__u32 flags;

	/** @syncs: struct drm_txda_sync. */
	struct drm_txda_array syncs;
};

/**
 * struct drm_txda_queue_submit - Argument of QUEUE_SUBMIT.
 *
 * All jobs are queued, in order, or none is. A job starts when those before it in the queue are
 * done and its waits are over; it may wait for what an earlier job of the same call signals. The
 * buffers that the address space maps stay alive until the job is done. -EIO: the queue is dead,
 * see QUEUE_GET_STATE, or its address space is lost. -ENOENT: a wait is for a point that nobody has
 * submitted yet. -EBUSY: too many jobs in flight, wait for one; or another driver has just revoked
 * a buffer that the address space maps, submit again. -EPERM: the user that opened the file is
 * banned for a while, because jobs of that user made three chip resets necessary within a minute:
 * one of them through this file, or the file is younger than the first of them. (Files that were
 * open before go on, until one of them causes a fourth.) Not with CAP_SYS_RESOURCE.
 */
struct drm_txda_queue_submit {
	/** @queue_id: Of the queue. */
	__u32 queue_id;

	/** @flags: 0. */
	__u32 flags;

	/** @jobs: struct drm_txda_job, 1 to DRM_TXDA_MAX_JOBS. */
	struct drm_txda_array jobs;
};

#if defined(__cplusplus)
}
#endif

#endif /* TXDA_DRM_H */
