/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the PCI face share: chips with a client each that speaks vfio-user as QEMU
 * does, a guest's memory, and what a driver would do with registers, page tables and rings.
 *
 * The client and its chip talk over a socket pair; the chip's side runs in a thread. Everything
 * that must be so is asserted here.
 */
#ifndef VFIO_FIXTURE_H
#define VFIO_FIXTURE_H

#include <pthread.h>

#include "machine.h"
#include "unit.h"
#include "wire.h"

#define VF_CHIPS       4
#define VF_MEM	       (64ull << 20)
#define VF_GUEST_BYTES (16ull << 20)
#define VF_GUEST       0x40000000ull /* bus address of the guest's memory */

/* Places in DRAM. */
#define VF_TABLES  (16ull << 20) /* page tables, one after another */
#define VF_STREAMS (24ull << 20)
#define VF_DATA	   (32ull << 20)

/* Places in the guest's memory. */
#define VF_RINGS       0x000000ull /* 64 KiB a queue */
#define VF_COMPLETIONS 0x400000ull /* a word each 64 bytes */
#define VF_GUEST_DATA  0x800000ull

#define VF_SYSTEM(offset)                                                                          \
	((uint64_t)TXDA_APERTURE_SYSTEM << TXDA_ADDR_APERTURE_SHIFT | (VF_GUEST + (offset)))
/* VF_STREAMS and VF_DATA are mapped here by vf_space(). */
#define VF_VA(offset) (0x100000000ull + (offset))

struct vf_queue {
	uint32_t tail, log2;
	uint64_t seqno;
};

struct vf_chip {
	struct vu_device *d;
	int sock, server_sock;
	pthread_t thread;
	uint16_t id;
	int dram_fd;
	uint8_t *dram;
	int vector[VU_MSIX_VECTORS]; /* eventfds */
	uint64_t next_table, next_stream;
	uint64_t root[VU_VMIDS];
	struct vf_queue queue[VU_QUEUES];
};

struct vf {
	struct vu_machine *m;
	unsigned n;
	struct vf_chip c[VF_CHIPS];
	int guest_fd;
	uint8_t *guest;
};

/* ---- a machine and its clients -------------------------------------------------------------- */

/* Chips and nothing else: no client is connected. @bar_bytes 0: the default. */
void vf_new(struct vf *f, unsigned chips, enum vu_irq_mode irq, uint64_t bar_bytes);
void vf_free(struct vf *f);
/* Connects a client that has not said anything yet; and lets it go. */
void vf_connect(struct vf_chip *c);
void vf_disconnect(struct vf_chip *c);
/* All that comes before a driver is loaded: greeting, BAR2, guest memory, vectors. */
void vf_attach(struct vf *f, struct vf_chip *c);
/* vf_new() with all chips attached, enabled and booted. */
void vf_start(struct vf *f, unsigned chips, enum vu_irq_mode irq);

/* ---- messages ------------------------------------------------------------------------------- */

/*
 * Sends a request and waits for its reply, whose body (up to @reply_bytes) goes to @reply. Returns
 * 0, or the error of the reply. @ret_fd: a descriptor that came along, -1 if none did.
 */
int vf_call(struct vf_chip *c, uint16_t command, const void *body, size_t bytes, const int *fds,
	    unsigned n_fds, void *reply, size_t reply_bytes, int *ret_fd);
int vf_dma_map(struct vf_chip *c, uint64_t address, uint64_t bytes, int fd, uint64_t offset,
	       uint32_t flags);
int vf_dma_unmap(struct vf_chip *c, uint64_t address, uint64_t bytes);
int vf_set_irqs(struct vf_chip *c, uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
		const int *fds, unsigned n_fds);
int vf_region_read(struct vf_chip *c, uint32_t region, uint64_t offset, void *buf, uint32_t bytes);
int vf_region_write(struct vf_chip *c, uint32_t region, uint64_t offset, const void *buf,
		    uint32_t bytes);

/* ---- registers ------------------------------------------------------------------------------ */

uint32_t vf_read(struct vf_chip *c, uint32_t reg);
void vf_write(struct vf_chip *c, uint32_t reg, uint32_t value);
uint64_t vf_read64(struct vf_chip *c, uint32_t reg); /* _LO, then _HI */
void vf_write64(struct vf_chip *c, uint32_t reg, uint64_t value);
uint16_t vf_config16(struct vf_chip *c, uint32_t offset);
uint32_t vf_config32(struct vf_chip *c, uint32_t offset);
void vf_set_config16(struct vf_chip *c, uint32_t offset, uint16_t value);
void vf_set_config32(struct vf_chip *c, uint32_t offset, uint32_t value);
/* Memory space and bus mastering on. */
void vf_enable(struct vf_chip *c);
/* Puts an image into DRAM and boots it; the state afterwards. */
uint32_t vf_boot(struct vf_chip *c);

/* Waits up to 10 seconds for a message on a vector, and takes it. */
bool vf_interrupted(struct vf_chip *c, unsigned vector);
/* Whether there is one now. */
bool vf_is_interrupted(struct vf_chip *c, unsigned vector);

/* ---- page tables ---------------------------------------------------------------------------- */

#define VF_RW (TXDA_PTE_READ | TXDA_PTE_WRITE)

uint64_t vf_pte(unsigned aperture, uint64_t address, uint64_t rights);
/* The entry of level @level for @va in the tables of a VMID; tables above it are made. */
uint64_t *vf_entry(struct vf_chip *c, unsigned vmid, uint64_t va, unsigned level);
/* Maps pages of 4 KiB; @pte is the first page's, without VALID and LEAF. */
void vf_map(struct vf_chip *c, unsigned vmid, uint64_t va, uint64_t bytes, uint64_t pte);
/* Flushes a range and asserts that it is done. */
void vf_flush(struct vf_chip *c, unsigned vmid, uint64_t va, uint64_t bytes);
/* Makes the root of a VMID known and maps VF_STREAMS and VF_DATA at VF_VA(). */
void vf_space(struct vf_chip *c, unsigned vmid);

/* ---- rings ---------------------------------------------------------------------------------- */

/* Sets a queue up with a ring and a completion word in the guest's memory and starts it. */
void vf_queue_set_up(struct vf_chip *c, unsigned q, unsigned vmid, unsigned log2);
void vf_queue_start(struct vf_chip *c, unsigned q, unsigned vmid);
/* Starts a queue of VMID 1 with a ring of 16 entries and a completion word anywhere. */
void vf_queue_start_at(struct vf_chip *c, unsigned q, uint64_t ring, uint64_t completion);
void vf_queue_stop(struct vf_chip *c, unsigned q);
uint32_t vf_queue_state(struct vf_chip *c, unsigned q);
volatile uint64_t *vf_completion(struct vf *f, struct vf_chip *c, unsigned q);

struct vf_stream {
	struct vf_chip *c;
	uint64_t off, bytes; /* in DRAM */
};

struct vf_stream vf_stream(struct vf_chip *c);
void vf_put(struct vf_stream *s, uint16_t op, uint16_t flags, void *packet, size_t bytes);
void vf_put_copy(struct vf_stream *s, uint64_t dst, uint64_t src, uint64_t bytes);
void vf_put_fill(struct vf_stream *s, uint64_t dst, uint64_t bytes, uint32_t value);
void vf_put_fence(struct vf_stream *s, uint16_t op, uint16_t flags, uint64_t va, uint64_t value);

/* Writes the next entry of the ring, without the doorbell. */
void vf_enter(struct vf *f, struct vf_chip *c, unsigned q, const struct txda_ring_entry *e);
void vf_ring(struct vf_chip *c, unsigned q);
/* Both, for a stream that may be NULL; the seqno that it completes with. */
uint64_t vf_submit(struct vf *f, struct vf_chip *c, unsigned q, const struct vf_stream *s,
		   uint32_t flags);
/* Waits up to 10 seconds for a seqno. */
bool vf_done(struct vf *f, struct vf_chip *c, unsigned q, uint64_t seqno);
/* Submits and waits; false when it does not complete since the queue has stopped. */
bool vf_run(struct vf *f, struct vf_chip *c, unsigned q, const struct vf_stream *s);
/* Waits until the queue is in @state. */
bool vf_becomes(struct vf_chip *c, unsigned q, uint32_t state);
/* Waits until the queue has begun with the stream's first packet. */
bool vf_begins(struct vf_chip *c, unsigned q, const struct vf_stream *s);
/* Takes the oldest fault record; asserts that there is one. */
struct txda_fault vf_fault(struct vf_chip *c);

#endif /* VFIO_FIXTURE_H */
