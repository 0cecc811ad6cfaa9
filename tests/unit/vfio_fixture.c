// SPDX-License-Identifier: MIT
#include "vfio_fixture.h"
#include "crc32c.h"
#include "session.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 10000

/* ---- a machine and its clients --------------------------------------------------------------- */

void vf_new(struct vf *f, unsigned chips, enum vu_irq_mode irq, uint64_t bar_bytes)
{
	const struct vu_machine_options opt = {
		.chips = chips,
		.mem_bytes = VF_MEM,
		.bar_bytes = bar_bytes,
		.cores = 2,
		.irq = irq,
		.identity = "test",
	};

	memset(f, 0, sizeof(*f));
	assert_int_equal(vu_machine_new(&opt, &f->m), 0);
	f->n = chips;
	for (unsigned i = 0; i < VF_CHIPS; i++) {
		struct vf_chip *c = &f->c[i];

		c->d = i < chips ? &f->m->device[i] : NULL;
		c->sock = c->dram_fd = -1;
		for (unsigned v = 0; v < VU_MSIX_VECTORS; v++)
			c->vector[v] = -1;
	}
	f->guest_fd = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(f->guest_fd >= 0);
	assert_int_equal(ftruncate(f->guest_fd, VF_GUEST_BYTES), 0);
	f->guest = mmap(NULL, VF_GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->guest_fd, 0);
	assert_ptr_not_equal(f->guest, MAP_FAILED);
}

static void *serve(void *arg)
{
	struct vf_chip *c = arg;

	vu_session_run(c->d, c->server_sock);
	shutdown(c->server_sock, SHUT_RDWR);
	return NULL;
}

void vf_connect(struct vf_chip *c)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	c->sock = pair[0];
	c->server_sock = pair[1];
	assert_int_equal(pthread_create(&c->thread, NULL, serve, c), 0);
}

void vf_disconnect(struct vf_chip *c)
{
	if (c->sock < 0)
		return;
	close(c->sock);
	pthread_join(c->thread, NULL);
	close(c->server_sock);
	c->sock = -1;
	if (c->dram)
		munmap(c->dram, VF_MEM);
	if (c->dram_fd >= 0)
		close(c->dram_fd);
	c->dram = NULL;
	c->dram_fd = -1;
	for (unsigned v = 0; v < VU_MSIX_VECTORS; v++) {
		if (c->vector[v] >= 0)
			close(c->vector[v]);
		c->vector[v] = -1;
	}
}

void vf_free(struct vf *f)
{
	for (unsigned i = 0; i < f->n; i++)
		vf_disconnect(&f->c[i]);
	vu_machine_free(f->m);
	munmap(f->guest, VF_GUEST_BYTES);
	close(f->guest_fd);
}

static void greet(struct vf_chip *c)
{
	static const char json[] = "{\"capabilities\": {\"max_msg_fds\": 16, \"pgsizes\": 4096, "
				   "\"max_data_xfer_size\": 1048576}}";
	uint8_t ask[sizeof(struct vu_version) + sizeof(json)] = {0}, say[256];

	memcpy(ask + sizeof(struct vu_version), json, sizeof(json));
	assert_int_equal(vf_call(c, VU_VERSION, ask, sizeof(ask), NULL, 0, say, sizeof(say), NULL),
			 0);
}

static void bind_vectors(struct vf_chip *c)
{
	bool msix = c->d->irq.mode == VU_IRQ_MODE_MSIX;
	unsigned n = msix ? VU_MSIX_VECTORS : 1;
	uint32_t index = msix ? VU_IRQ_MSIX : VU_IRQ_MSI;

	for (unsigned v = 0; v < n; v++) {
		c->vector[v] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_true(c->vector[v] >= 0);
	}
	for (unsigned v = 0; v < n; v += 16) {
		unsigned part = n - v < 16 ? n - v : 16;

		assert_int_equal(vf_set_irqs(c, index, VU_IRQ_DATA_EVENTFD | VU_IRQ_ACTION_TRIGGER,
					     v, part, c->vector + v, part),
				 0);
	}
}

void vf_attach(struct vf *f, struct vf_chip *c)
{
	struct vu_region_info info = {.argsz = sizeof(info), .index = VU_REGION_BAR2};

	vf_connect(c);
	greet(c);
	assert_int_equal(vf_call(c, VU_DEVICE_GET_REGION_INFO, &info, sizeof(info), NULL, 0, &info,
				 sizeof(info), &c->dram_fd),
			 0);
	assert_true(c->dram_fd >= 0);
	c->dram = mmap(NULL, VF_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, c->dram_fd, 0);
	assert_ptr_not_equal(c->dram, MAP_FAILED);
	assert_int_equal(vf_dma_map(c, VF_GUEST, VF_GUEST_BYTES, f->guest_fd, 0,
				    VU_DMA_READABLE | VU_DMA_WRITEABLE),
			 0);
	bind_vectors(c);
	c->next_table = VF_TABLES;
	c->next_stream = VF_STREAMS;
	memset(c->root, 0, sizeof(c->root));
	memset(c->queue, 0, sizeof(c->queue));
}

void vf_start(struct vf *f, unsigned chips, enum vu_irq_mode irq)
{
	vf_new(f, chips, irq, 0);
	for (unsigned i = 0; i < chips; i++) {
		vf_attach(f, &f->c[i]);
		vf_enable(&f->c[i]);
		assert_int_equal(vf_boot(&f->c[i]), TXDA_FW_READY);
	}
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_request(struct vf_chip *c, uint16_t command, const void *body, size_t bytes,
			 const int *fds, unsigned n_fds)
{
	struct vu_header h = {
		.id = ++c->id, .command = command, .bytes = (uint32_t)(sizeof(h) + bytes)};
	struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)body, bytes}};
	char control[CMSG_SPACE(32 * sizeof(int))] __attribute__((aligned(8))) = {0};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = bytes ? 2 : 1};

	if (n_fds) {
		struct cmsghdr *cm;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n_fds * sizeof(int));
	}
	assert_int_equal(sendmsg(c->sock, &msg, MSG_NOSIGNAL), sizeof(h) + bytes);
}

static void receive(struct vf_chip *c, void *buf, size_t bytes, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));

	for (size_t at = 0; at < bytes;) {
		struct iovec iov = {(uint8_t *)buf + at, bytes - at};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control,
				     .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(c->sock, &msg, MSG_CMSG_CLOEXEC);

		assert_true(n > 0);
		for (struct cmsghdr *cm = CMSG_FIRSTHDR(&msg); cm; cm = CMSG_NXTHDR(&msg, cm))
			memcpy(ret_fd, CMSG_DATA(cm), sizeof(*ret_fd));
		at += (size_t)n;
	}
}

int vf_call(struct vf_chip *c, uint16_t command, const void *body, size_t bytes, const int *fds,
	    unsigned n_fds, void *reply, size_t reply_bytes, int *ret_fd)
{
	static uint8_t rest[VU_MAX_MESSAGE];
	struct vu_header h;
	size_t have;
	int fd = -1;

	send_request(c, command, body, bytes, fds, n_fds);
	receive(c, &h, sizeof(h), &fd);
	assert_int_equal(h.id, c->id);
	assert_int_equal(h.command, command);
	assert_int_equal(h.flags & VU_TYPE_MASK, VU_TYPE_REPLY);
	assert_true(h.bytes >= sizeof(h) && h.bytes <= VU_MAX_MESSAGE);
	have = h.bytes - sizeof(h);
	receive(c, rest, have, &fd);
	if (h.flags & VU_ERROR) {
		assert_int_equal(have, 0);
		assert_int_equal(fd, -1);
		assert_int_not_equal(h.error, 0);
		return (int)h.error;
	}
	if (reply)
		memcpy(reply, rest, have < reply_bytes ? have : reply_bytes);
	if (ret_fd)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return 0;
}

int vf_dma_map(struct vf_chip *c, uint64_t address, uint64_t bytes, int fd, uint64_t offset,
	       uint32_t flags)
{
	const struct vu_dma_map ask = {sizeof(ask), flags, offset, address, bytes};

	return vf_call(c, VU_DMA_MAP, &ask, sizeof(ask), &fd, fd >= 0, NULL, 0, NULL);
}

int vf_dma_unmap(struct vf_chip *c, uint64_t address, uint64_t bytes)
{
	const struct vu_dma_unmap ask = {sizeof(ask), 0, address, bytes};
	struct vu_dma_unmap say = {0};
	int err = vf_call(c, VU_DMA_UNMAP, &ask, sizeof(ask), NULL, 0, &say, sizeof(say), NULL);

	if (!err)
		assert_int_equal(say.bytes, bytes);
	return err;
}

int vf_set_irqs(struct vf_chip *c, uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
		const int *fds, unsigned n_fds)
{
	const struct vu_irq_set ask = {sizeof(ask), flags, index, start, count};

	return vf_call(c, VU_DEVICE_SET_IRQS, &ask, sizeof(ask), fds, n_fds, NULL, 0, NULL);
}

int vf_region_read(struct vf_chip *c, uint32_t region, uint64_t offset, void *buf, uint32_t bytes)
{
	const struct vu_region_rw ask = {offset, region, bytes};
	uint8_t *say = malloc(sizeof(ask) + bytes);
	int err;

	assert_non_null(say);
	err = vf_call(c, VU_REGION_READ, &ask, sizeof(ask), NULL, 0, say, sizeof(ask) + bytes,
		      NULL);
	if (!err)
		memcpy(buf, say + sizeof(ask), bytes);
	free(say);
	return err;
}

int vf_region_write(struct vf_chip *c, uint32_t region, uint64_t offset, const void *buf,
		    uint32_t bytes)
{
	struct vu_region_rw *ask = malloc(sizeof(*ask) + bytes);
	int err;

	assert_non_null(ask);
	*ask = (struct vu_region_rw){offset, region, bytes};
	memcpy(ask->data, buf, bytes);
	err = vf_call(c, VU_REGION_WRITE, ask, sizeof(*ask) + bytes, NULL, 0, NULL, 0, NULL);
	free(ask);
	return err;
}

/* ---- registers ------------------------------------------------------------------------------- */

uint32_t vf_read(struct vf_chip *c, uint32_t reg)
{
	uint32_t value = 0;

	assert_int_equal(vf_region_read(c, VU_REGION_BAR0, reg, &value, 4), 0);
	return value;
}

void vf_write(struct vf_chip *c, uint32_t reg, uint32_t value)
{
	assert_int_equal(vf_region_write(c, VU_REGION_BAR0, reg, &value, 4), 0);
}

uint64_t vf_read64(struct vf_chip *c, uint32_t reg)
{
	uint32_t lo = vf_read(c, reg);

	return (uint64_t)vf_read(c, reg + 4) << 32 | lo;
}

void vf_write64(struct vf_chip *c, uint32_t reg, uint64_t value)
{
	vf_write(c, reg, (uint32_t)value);
	vf_write(c, reg + 4, (uint32_t)(value >> 32));
}

uint16_t vf_config16(struct vf_chip *c, uint32_t offset)
{
	uint16_t value = 0;

	assert_int_equal(vf_region_read(c, VU_REGION_CONFIG, offset, &value, 2), 0);
	return value;
}

uint32_t vf_config32(struct vf_chip *c, uint32_t offset)
{
	uint32_t value = 0;

	assert_int_equal(vf_region_read(c, VU_REGION_CONFIG, offset, &value, 4), 0);
	return value;
}

void vf_set_config16(struct vf_chip *c, uint32_t offset, uint16_t value)
{
	assert_int_equal(vf_region_write(c, VU_REGION_CONFIG, offset, &value, 2), 0);
}

void vf_set_config32(struct vf_chip *c, uint32_t offset, uint32_t value)
{
	assert_int_equal(vf_region_write(c, VU_REGION_CONFIG, offset, &value, 4), 0);
}

void vf_enable(struct vf_chip *c)
{
	vf_set_config16(c, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
}

uint32_t vf_boot(struct vf_chip *c)
{
	struct txda_firmware h = {
		.magic = TXDA_FIRMWARE_MAGIC,
		.header_version = TXDA_FIRMWARE_HEADER_VERSION,
		.header_bytes = sizeof(h),
		.bytes = sizeof(h),
		.version = TXDA_FIRMWARE_VERSION(1, 2, 3),
		.chip_family = TXDA_CHIP_FAMILY_TX8,
		.regs_version = TXDA_REGS_MAJOR << 16 | TXDA_REGS_MINOR,
		.carveout_bytes = 16ull << 20,
	};

	h.crc32c = crc32c(0, &h, sizeof(h));
	memcpy(c->dram + 4096, &h, sizeof(h));
	vf_write64(c, TXDA_REG_FW_IMAGE_LO, 4096);
	vf_write(c, TXDA_REG_FW_IMAGE_BYTES, sizeof(h));
	vf_write(c, TXDA_REG_FW_CTRL, TXDA_FW_BOOT);
	return vf_read(c, TXDA_REG_FW_STATE);
}

static bool take_message(struct vf_chip *c, unsigned vector, int timeout_ms)
{
	struct pollfd p = {.fd = c->vector[vector], .events = POLLIN};
	uint64_t count;

	if (poll(&p, 1, timeout_ms) != 1)
		return false;
	return read(p.fd, &count, sizeof(count)) == sizeof(count);
}

bool vf_interrupted(struct vf_chip *c, unsigned vector)
{
	return take_message(c, vector, WAIT_MS);
}

bool vf_is_interrupted(struct vf_chip *c, unsigned vector)
{
	return take_message(c, vector, 0);
}

/* ---- page tables ----------------------------------------------------------------------------- */

uint64_t vf_pte(unsigned aperture, uint64_t address, uint64_t rights)
{
	return address | (uint64_t)aperture << TXDA_PTE_APERTURE_SHIFT | rights;
}

static uint64_t new_table(struct vf_chip *c)
{
	uint64_t at = c->next_table;

	c->next_table += TXDA_PT_BYTES;
	assert_true(c->next_table <= VF_STREAMS);
	memset(c->dram + at, 0, TXDA_PT_BYTES);
	return at;
}

uint64_t *vf_entry(struct vf_chip *c, unsigned vmid, uint64_t va, unsigned level)
{
	uint64_t table, *entry = NULL;

	if (!c->root[vmid])
		c->root[vmid] = new_table(c);
	table = c->root[vmid];
	for (unsigned l = TXDA_PT_LEVELS; l-- > level;) {
		if (entry && !(*entry & TXDA_PTE_VALID))
			*entry = new_table(c) | TXDA_PTE_VALID;
		if (entry)
			table = *entry & TXDA_PTE_ADDR_MASK;
		entry = (uint64_t *)(c->dram + table) +
			(va >> (TXDA_PAGE_SHIFT + TXDA_PT_SHIFT * l) & (TXDA_PT_ENTRIES - 1));
	}
	return entry;
}

void vf_map(struct vf_chip *c, unsigned vmid, uint64_t va, uint64_t bytes, uint64_t pte)
{
	for (uint64_t at = 0; at < bytes; at += 4096)
		*vf_entry(c, vmid, va + at, 0) = (pte + at) | TXDA_PTE_VALID | TXDA_PTE_LEAF;
}

void vf_flush(struct vf_chip *c, unsigned vmid, uint64_t va, uint64_t bytes)
{
	vf_write64(c, TXDA_REG_VM(vmid) + TXDA_VM_FLUSH_PAGE_LO, va >> TXDA_PAGE_SHIFT);
	vf_write(c, TXDA_REG_VM(vmid) + TXDA_VM_FLUSH_COUNT, (uint32_t)(bytes >> TXDA_PAGE_SHIFT));
	vf_write(c, TXDA_REG_VM(vmid) + TXDA_VM_FLUSH, 1);
	assert_int_equal(vf_read(c, TXDA_REG_VM(vmid) + TXDA_VM_FLUSH), 0);
}

void vf_space(struct vf_chip *c, unsigned vmid)
{
	vf_map(c, vmid, VF_VA(VF_STREAMS), VF_MEM - VF_STREAMS,
	       vf_pte(TXDA_APERTURE_LOCAL, VF_STREAMS, VF_RW));
	vf_write64(c, TXDA_REG_VM(vmid) + TXDA_VM_ROOT_LO, c->root[vmid] | TXDA_PTE_VALID);
}

/* ---- rings ----------------------------------------------------------------------------------- */

static void set_up(struct vf_chip *c, unsigned q, unsigned vmid, unsigned log2, uint64_t ring,
		   uint64_t completion)
{
	uint32_t at = TXDA_REG_QUEUE(q);

	vf_write64(c, at + TXDA_QUEUE_RING_LO, ring);
	vf_write(c, at + TXDA_QUEUE_RING_LOG2, log2);
	vf_write(c, at + TXDA_QUEUE_VMID, vmid);
	vf_write64(c, at + TXDA_QUEUE_COMPLETION_LO, completion);
}

void vf_queue_start_at(struct vf_chip *c, unsigned q, uint64_t ring, uint64_t completion)
{
	set_up(c, q, 1, 4, ring, completion);
	vf_write(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_equal(vf_queue_state(c, q), TXDA_QUEUE_RUNNING);
}

void vf_queue_set_up(struct vf_chip *c, unsigned q, unsigned vmid, unsigned log2)
{
	set_up(c, q, vmid, log2, VF_SYSTEM(VF_RINGS + q * 0x10000ull),
	       VF_SYSTEM(VF_COMPLETIONS + (c->d->index * VU_QUEUES + q) * 64ull));
	c->queue[q] = (struct vf_queue){.log2 = log2, .seqno = c->queue[q].seqno};
}

void vf_queue_start(struct vf_chip *c, unsigned q, unsigned vmid)
{
	vf_queue_set_up(c, q, vmid, 6);
	vf_write(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_equal(vf_queue_state(c, q), TXDA_QUEUE_RUNNING);
}

void vf_queue_stop(struct vf_chip *c, unsigned q)
{
	vf_write(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, q), TXDA_QUEUE_OFF);
}

uint32_t vf_queue_state(struct vf_chip *c, unsigned q)
{
	return vf_read(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_STATE);
}

volatile uint64_t *vf_completion(struct vf *f, struct vf_chip *c, unsigned q)
{
	return (volatile uint64_t *)(f->guest + VF_COMPLETIONS +
				     (c->d->index * VU_QUEUES + q) * 64ull);
}

struct vf_stream vf_stream(struct vf_chip *c)
{
	uint64_t off = c->next_stream;

	c->next_stream += 4096;
	if (c->next_stream == VF_DATA)
		c->next_stream = VF_STREAMS;
	return (struct vf_stream){c, off, 0};
}

void vf_put(struct vf_stream *s, uint16_t op, uint16_t flags, void *packet, size_t bytes)
{
	*(struct txda_pkt *)packet = (struct txda_pkt){op, flags, (uint32_t)bytes};
	memcpy(s->c->dram + s->off + s->bytes, packet, bytes);
	s->bytes += bytes;
}

void vf_put_copy(struct vf_stream *s, uint64_t dst, uint64_t src, uint64_t bytes)
{
	struct txda_pkt_copy p = {.dst = dst, .src = src, .bytes = bytes};

	vf_put(s, TXDA_PKT_COPY, 0, &p, sizeof(p));
}

void vf_put_fill(struct vf_stream *s, uint64_t dst, uint64_t bytes, uint32_t value)
{
	struct txda_pkt_fill p = {.dst = dst, .bytes = bytes, .value = value};

	vf_put(s, TXDA_PKT_FILL, 0, &p, sizeof(p));
}

void vf_put_fence(struct vf_stream *s, uint16_t op, uint16_t flags, uint64_t va, uint64_t value)
{
	struct txda_pkt_fence p = {.va = va, .value = value};

	vf_put(s, op, flags, &p, sizeof(p));
}

void vf_enter(struct vf *f, struct vf_chip *c, unsigned q, const struct txda_ring_entry *e)
{
	struct vf_queue *vq = &c->queue[q];
	uint64_t index = vq->tail & ((1u << vq->log2) - 1);

	memcpy(f->guest + VF_RINGS + q * 0x10000ull + index * sizeof(*e), e, sizeof(*e));
	vq->tail++;
}

void vf_ring(struct vf_chip *c, unsigned q)
{
	vf_write(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_DOORBELL, c->queue[q].tail);
}

uint64_t vf_submit(struct vf *f, struct vf_chip *c, unsigned q, const struct vf_stream *s,
		   uint32_t flags)
{
	struct txda_ring_entry e = {.flags = flags, .seqno = ++c->queue[q].seqno};

	if (s) {
		e.stream_va = VF_VA(s->off);
		e.stream_bytes = (uint32_t)s->bytes;
	}
	vf_enter(f, c, q, &e);
	vf_ring(c, q);
	return e.seqno;
}

static void nap(void)
{
	const struct timespec ts = {.tv_nsec = 200000};

	nanosleep(&ts, NULL);
}

bool vf_done(struct vf *f, struct vf_chip *c, unsigned q, uint64_t seqno)
{
	for (unsigned i = 0; i < WAIT_MS * 5; i++) {
		if (__atomic_load_n(vf_completion(f, c, q), __ATOMIC_ACQUIRE) >= seqno)
			return true;
		if (i % 64 == 63 && vf_queue_state(c, q) != TXDA_QUEUE_RUNNING)
			return false;
		nap();
	}
	return false;
}

bool vf_run(struct vf *f, struct vf_chip *c, unsigned q, const struct vf_stream *s)
{
	return vf_done(f, c, q, vf_submit(f, c, q, s, 0));
}

bool vf_becomes(struct vf_chip *c, unsigned q, uint32_t state)
{
	for (unsigned i = 0; i < WAIT_MS * 5; i++) {
		if (vf_queue_state(c, q) == state)
			return true;
		nap();
	}
	return false;
}

bool vf_begins(struct vf_chip *c, unsigned q, const struct vf_stream *s)
{
	for (unsigned i = 0; i < WAIT_MS * 5; i++) {
		if (vf_read64(c, TXDA_REG_QUEUE(q) + TXDA_QUEUE_PACKET_LO) == VF_VA(s->off))
			return true;
		nap();
	}
	return false;
}

struct txda_fault vf_fault(struct vf_chip *c)
{
	struct txda_fault fault;
	uint32_t word[sizeof(fault) / 4];

	assert_int_not_equal(vf_read(c, TXDA_REG_FAULT_COUNT), 0);
	for (unsigned i = 0; i < sizeof(fault) / 4; i++)
		word[i] = vf_read(c, TXDA_REG_FAULT_RECORD + i * 4);
	memcpy(&fault, word, sizeof(fault));
	vf_write(c, TXDA_REG_FAULT_ACK, 1);
	return fault;
}
