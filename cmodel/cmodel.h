/* SPDX-License-Identifier: MIT */
/*
 * The TX8 device model: chips as a library.
 *
 * A machine owns N chips and one pool of cores (threads) that all its chips share. Each chip has
 * its DRAM (a memfd), address spaces (cm_vm), command queues and sensors. Whoever embeds the model
 * (libtxda's cmodel backend in process, the vfio-user server as a PCI device) gives it memory to
 * map and streams to run; the model reports completion by storing fences and calling back.
 *
 * How work runs. The pool executes one op at a time on all its cores, then takes the next op from
 * one of the runnable queues of all chips: that which has had least time (core/ready.h; a queue that
 * waits for a fence or a collective is not runnable). So cores are never oversubscribed, whatever
 * the number of chips, and a group's collective is simply the op that becomes runnable when its
 * last member arrives. One thread at a time leads (decodes packets, hands out parts); the others
 * help. A thread that waits for a fence with cm_wait() becomes the leader if there is none, so that
 * a synchronous caller pays no hand-over to another thread. Helpers spin for a short time between
 * ops (cm_options.spin_us), then sleep: an idle machine costs no CPU.
 *
 * Threads: every function may be called from any thread unless stated. A vm, queue or buffer must
 * not be freed while another thread uses that same object. Errors: 0 or -errno; ret_ arguments are
 * untouched on failure.
 */
#ifndef CMODEL_H
#define CMODEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "txda_isa.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cm_machine;
struct cm_chip;
struct cm_vm;
struct cm_queue;

#define CM_MAX_CHIPS 64

struct cm_options {
	unsigned chips;	    /* 1 to CM_MAX_CHIPS */
	uint64_t mem_bytes; /* DRAM of each chip, a multiple of 2 MiB; sparse until used */
	/* Threads of the pool, the leader included; 0: one per CPU that the process may use, one
	 * fewer with 8 to 15 and two fewer with more; if the path is amx, chosen or by default, at
	 * most one per physical core of these. */
	unsigned cores;
	bool pin;	  /* each thread of the pool on a CPU of its own (core/cpus.h) */
	bool numa_local;  /* memory on the node of who touches it first; else on all in turns */
	unsigned spin_us; /* how long an idle core spins before it sleeps; 0: 100 */
	/* SIMD path: NULL or "auto", "c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx", "neon",
	 * "neonbf16"; error if the CPU lacks it; -EBUSY: another machine of the process uses
	 * another one */
	const char *isa;
	const char *faults; /* fault injection, see cm_inject(); NULL: none */
	/*
	 * A signal whose handler is cm_interrupted(), installed with SA_RESTART | SA_NODEFER before:
	 * with it the model ends an op that is cancelled at once, however long it would run, but for
	 * what a thread in cm_wait() does of it. 0: what has begun on a core runs to its end, in
	 * milliseconds unless a program is hostile.
	 */
	int interrupt;
};

void cm_interrupted(int number);

int cm_machine_new(const struct cm_options *opt, struct cm_machine **ret);
/* Stops all work (running queues fail with TXDA_FAULT_LOST) and frees everything. */
void cm_machine_free(struct cm_machine *m);
unsigned cm_machine_chips(const struct cm_machine *m);
unsigned cm_machine_cores(const struct cm_machine *m);
const char *cm_machine_isa(const struct cm_machine *m); /* the SIMD path in use */
/* Before fresh memory that chips will use is touched: distributes it among the machine's nodes. */
void cm_machine_spread(const struct cm_machine *m, void *ptr, size_t bytes);
struct cm_chip *cm_machine_chip(struct cm_machine *m, unsigned index);
/*
 * Pauses the machine, as in a callback, until cm_machine_release(). Meanwhile calls of this thread
 * that would wait for an op to end do not wait. For changes to many objects with one pause.
 */
void cm_machine_hold(struct cm_machine *m);
void cm_machine_release(struct cm_machine *m);

/* DRAM: [0, bytes) of the memfd, sealed against shrinking. The caller places buffers in it; the
 * model only reads and writes it. */
int cm_chip_dram_fd(const struct cm_chip *c);
uint64_t cm_chip_dram_bytes(const struct cm_chip *c);
uint64_t cm_chip_time_ns(const struct cm_chip *c); /* the clock of TIMESTAMP: CLOCK_MONOTONIC */

/* ---- address spaces ------------------------------------------------------------------------ */

#define CM_MAP_READ  (1u << 0)
#define CM_MAP_WRITE (1u << 1)
/*
 * With CM_MAP_READ alone: the file is not sealed and may lose pages, by truncation or an error of
 * its disk. A stream that meets one faults, and so do all that use the mapping later; without this
 * flag the process ends with SIGBUS. Unmapped as a whole only. While such a mapping exists the model
 * handles SIGBUS, and passes on what is not its own.
 */
#define CM_MAP_LOSABLE (1u << 2)
/* For @fd: fresh zeroed memory that nobody else can map, in huge pages where the host has them. */
#define CM_MAP_PRIVATE INT_MIN

/*
 * An address space mirrors device VAs in a reserved range of host addresses: mapping [va, va +
 * bytes) maps that piece of @fd there, so that the host's MMU translates and ops use plain
 * pointers. VAs run from 0 to CM_VA_BYTES. va, offset and bytes are multiples of the page size
 * (4096). cm_vm_map() refuses ranges beyond the file's end (-ERANGE) and VAs that are mapped
 * (-EEXIST), and a file that shrank later would kill the process with SIGBUS: the embedder seals
 * the memfds that it maps (F_SEAL_SHRINK), as the chip's DRAM is.
 */
#if defined(__SANITIZE_THREAD__)
#define CM_VA_BYTES (1ull << 35) /* ThreadSanitizer leaves little of the host's address space */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CM_VA_BYTES (1ull << 35)
#endif
#endif
#ifndef CM_VA_BYTES
#define CM_VA_BYTES (1ull << 40)
#endif

int cm_vm_new(struct cm_chip *c, struct cm_vm **ret);
void cm_vm_free(struct cm_vm *vm); /* its queues must be gone */
int cm_vm_map(struct cm_vm *vm, uint64_t va, int fd, uint64_t offset, uint64_t bytes,
	      unsigned flags);
/*
 * Waits until no op that runs now can touch the range. Streams that use it later fault. What is
 * mapped only in part of the range is unmapped; -ENOENT when nothing is.
 */
int cm_vm_unmap(struct cm_vm *vm, uint64_t va, uint64_t bytes);
/*
 * Group slot @slot (0 to 15) of this address space: it is rank @rank of the group @id, which has
 * @size members. Collectives meet by @id, which the embedder must make unique on the machine. A
 * @size of 0 empties the slot. -EEXIST: the group has that rank already; -EINVAL: its members gave
 * another size. When a member faults or leaves, all that wait for it fault; the group works again
 * when its faulted queues are freed.
 */
int cm_vm_set_group(struct cm_vm *vm, unsigned slot, uint64_t id, unsigned rank, unsigned size);
/*
 * For a CM_MAP_LOSABLE mapping: moves the caller's mapping [ptr, ptr + bytes), which has the same
 * contents, to @va between two ops, in its place. -EFAULT: it is not mapped there, or lost pages.
 */
int cm_vm_replace(struct cm_vm *vm, uint64_t va, void *ptr, uint64_t bytes);
/* All of that mapping was replaced: it cannot lose pages any more. */
void cm_vm_replaced(struct cm_vm *vm, uint64_t va, uint64_t bytes);
/* Its contents are not what they were: from now on streams that use it fault. */
void cm_vm_lose(struct cm_vm *vm, uint64_t va, uint64_t bytes);
/*
 * The host address of [va, va + bytes) if it is mapped with @flags, else NULL. Valid until
 * unmapped. The calling thread may access losable mappings afterwards.
 */
void *cm_vm_resolve(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags);

/*
 * A translated address space is filled as streams touch it, instead of being mapped by the
 * embedder: @fn is called for an address that is not mapped, and its answer is mapped and kept
 * until it is forgotten. Failures are not cached. This is for memory that page tables describe;
 * cm_vm_map() and cm_vm_unmap() do not work on such a space.
 *
 * @fn is called by the leading thread with the space's lock held; it looks up @va, a multiple of
 * the page size, and returns 0 or why not. It is short and calls nothing of the model. The embedder
 * must not call cm_vm_forget() or cm_vm_resolve() with a lock held that @fn takes.
 *
 * The host limits the mappings of a process. Near that limit the model drops the cached answers of
 * all spaces and calls @fn again.
 */
struct cm_translation {
	uint64_t va, bytes; /* a range that @va is in; the longer the better */
	int fd;
	uint64_t offset;
	unsigned flags; /* CM_MAP_*; may lack the requested access, which then faults */
	/* The chip whose DRAM it is, if reached through C2C; NULL: another's, or system memory. */
	struct cm_chip *peer;
};

typedef int (*cm_translate_fn)(void *arg, uint64_t va, struct cm_translation *ret);

/* Right after cm_vm_new(). */
void cm_vm_set_translate(struct cm_vm *vm, cm_translate_fn fn, void *arg);
/*
 * Drops cached answers for [va, va + bytes), which may extend beyond the space. When it returns, no
 * op uses an answer that @fn gave before the call; copies of programs in the range are dropped too.
 */
void cm_vm_forget(struct cm_vm *vm, uint64_t va, uint64_t bytes);

/* ---- queues -------------------------------------------------------------------------------- */

enum cm_queue_class {
	CM_QUEUE_COMPUTE = 0,
	CM_QUEUE_COPY = 1, /* NOP, COPY, COPY_2D, FILL, SIGNAL, WAIT and TIMESTAMP only */
};

enum cm_queue_state {
	CM_QUEUE_OK = 0,
	/* cm_queue_fault() says why; later submissions are refused with -EIO */
	CM_QUEUE_FAULTED = 1,
};

/*
 * Called by the leading thread, with no lock held, for each SIGNAL with TXDA_SIGNAL_IRQ, at the end
 * of each stream and for a fault. The machine is stopped meanwhile: a callback must be short and
 * must not free, wait or reconfigure; it may submit, kick and read states. Each may be NULL.
 */
struct cm_queue_ops {
	void (*signalled)(void *arg, uint64_t va, uint64_t value);
	void (*faulted)(void *arg, const struct txda_fault *fault);
	/* After all that the stream has written. False: the queue faults with what is in *@ret. */
	bool (*completed)(void *arg, struct txda_fault *ret);
};

#define CM_QUEUE_DEPTH 256 /* streams in flight */

int cm_queue_new(struct cm_vm *vm, enum cm_queue_class queue_class, const struct cm_queue_ops *ops,
		 void *arg, struct cm_queue **ret);
/* Drops streams that have not started; cancels the running one and waits for it. */
void cm_queue_free(struct cm_queue *q);
/* Cancels as cm_queue_free() does, but does not wait: for a caller that frees many queues. */
void cm_queue_cancel(struct cm_queue *q);
/*
 * Appends the stream at [va, va + bytes). Returns at once: -EAGAIN when CM_QUEUE_DEPTH streams are
 * in flight, -EIO when faulted, -ENODEV when the chip is lost. @lazy: the caller will cm_wait()
 * right away, so sleeping cores are not woken. The stream's memory must stay unchanged until it has
 * run. A malformed stream faults when it runs.
 */
int cm_queue_submit(struct cm_queue *q, uint64_t va, uint64_t bytes, bool lazy);
enum cm_queue_state cm_queue_state(struct cm_queue *q);		/* for tests */
int cm_queue_fault(struct cm_queue *q, struct txda_fault *ret); /* -ENOENT: none */
/* A counter that rises with each op and packet done: the watchdog's progress check. */
uint64_t cm_queue_progress(struct cm_queue *q);
/* The address of the packet in execution; 0: none. */
uint64_t cm_queue_packet(struct cm_queue *q);
/* Whether a faulted queue failed only because another member of its collective did. */
bool cm_queue_is_innocent(struct cm_queue *q);

enum cm_queue_priority {
	CM_PRIORITY_LOW = 0,
	CM_PRIORITY_NORMAL = 1, /* initial */
	CM_PRIORITY_HIGH = 2,
	CM_PRIORITIES
};

/* Of queues that always have work one gets eight times as much time as one of the next lower priority. */
void cm_queue_set_priority(struct cm_queue *q, enum cm_queue_priority priority);

/*
 * Waits until *@word >= @value (acquire), @q faults (-EIO; NULL: no queue is watched) or
 * CLOCK_MONOTONIC passes @deadline_ns (-ETIMEDOUT; 0: poll, UINT64_MAX: never). The calling thread
 * leads the machine's work meanwhile if no other does. -EDEADLK within a callback.
 */
int cm_wait(struct cm_machine *m, struct cm_queue *q, const uint64_t *word, uint64_t value,
	    uint64_t deadline_ns);
/* The embedder changed a fence word that a WAIT packet or cm_wait() may be waiting for. */
void cm_kick(struct cm_machine *m);

/*
 * Describes a fault in one line of text; names come from the faulting program if it can be read.
 * Returns buf.
 */
char *cm_fault_text(struct cm_vm *vm, const struct txda_fault *fault, char *buf, size_t len);

/* ---- sensors and faults -------------------------------------------------------------------- */

struct cm_sensors {
	uint64_t busy_ns; /* compute time so far; utilisation is its rate */
	uint64_t copy_busy_ns;
	uint64_t bytes_read; /* by ops and copies from DRAM, as the activity model counts it */
	uint64_t bytes_written;
	/*
	 * To and from other chips: by copies and ops on memory of a cm_translation.peer (ops: all of
	 * a tensor), and by collectives, in which each rank sends its part to each that needs it.
	 */
	uint64_t c2c_sent, c2c_received;
	uint64_t ops;
	uint32_t power_mw; /* from a simple activity model */
	int32_t temp_mc;   /* millidegrees Celsius */
	uint32_t clock_khz;
	uint32_t ecc_corrected;
	uint32_t ecc_uncorrected;
	uint32_t faults;
	uint32_t lost; /* 1: the chip is gone */
	uint32_t hot;  /* 1: throttled by its temperature */
	uint32_t link_down;
	uint64_t change_ns; /* when the last two change by themselves; UINT64_MAX: not */
};

void cm_chip_sensors(struct cm_chip *c, struct cm_sensors *ret);

/*
 * Sets the callback for changes of cm_chip_sensors() that an injection makes. The thread that makes
 * the change calls it, with the machine paused; the rules for callbacks of queues apply.
 */
void cm_chip_set_notify(struct cm_chip *c, void (*fn)(void *arg), void *arg);
bool cm_chip_link_down(struct cm_chip *c); /* whether its links are down */
/* Makes all current queues of the chip hang, as with a dead command processor, or run again. */
void cm_chip_stall(struct cm_chip *c, bool on);
/* Brings a lost chip back as if it had just been plugged in; clears its injections. */
void cm_chip_revive(struct cm_chip *c);

/*
 * Injects faults: a comma-separated list of "KIND[:chip=N][:after=OPS][:ms=N]"; without a chip all
 * chips are meant. -EINVAL: malformed, -ENODEV: no such chip. An injection strikes once, after OPS
 * more ops (and slices of copies) of the chip:
 * - hang: the queue whose turn it is stops for ms, or until "clear"
 * - page, ecc: its op faults
 * - ecc-corrected: counts in the sensors
 * - link-down: collectives of the chip fault, for ms or until "clear"
 * - thermal: the chip is hot and throttled, for ms or until "clear"
 * - lost: the chip is gone: its queues fault, later submissions give -ENODEV, until
 *   cm_chip_revive()
 * - slow-dma: each slice of a copy takes ms longer (5), until "clear"
 * - clear: ends the others (but lost), strikes at once
 */
int cm_inject(struct cm_machine *m, const char *spec);

#ifdef __cplusplus
}
#endif
#endif /* CMODEL_H */
