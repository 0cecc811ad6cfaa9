// SPDX-License-Identifier: MIT
/*
 * A client and its driver that do anything, to a chip as a PCI device: messages with any contents,
 * registers in any order, page tables, rings and streams with anything in them, and faults in
 * between. The chip may fault its queues and refuse messages, no more.
 */
#include "fuzz.h"
#include "fuzz_vfio.h"
#include "machine.h"
#include "session.h"
#include "log.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

struct input {
	const uint8_t *at;
	size_t left;
};

static struct vu_machine *machine;
static struct vu_device *device;
static struct vu_session session;
static struct vu_message message;
static struct vu_reply reply;
static int guest_fd, event_fd, pipe_fd;
static uint8_t *guest;

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "fuzz_vfio: %s\n", what);
		abort();
	}
}

static void start(void)
{
	const struct vu_machine_options opt = {.chips = 2, .mem_bytes = FUZZ_MEM, .cores = 2};
	int pair[2];

	vu_log_set_level(VU_LOG_ERROR);
	check(!vu_machine_new(&opt, &machine), "no machine");
	device = &machine->device[0];
	check(!vu_message_init(&message, &reply), "no memory");
	guest_fd = memfd_create("guest", MFD_CLOEXEC);
	check(guest_fd >= 0 && !ftruncate(guest_fd, FUZZ_GUEST_BYTES), "no guest");
	guest = mmap(NULL, FUZZ_GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, guest_fd, 0);
	check(guest != MAP_FAILED, "no guest");
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	check(event_fd >= 0 && !pipe2(pair, O_CLOEXEC | O_NONBLOCK), "no descriptors");
	pipe_fd = pair[1];
}

static const uint8_t *take(struct input *in, size_t bytes)
{
	const uint8_t *at = in->at;

	if (bytes > in->left)
		return NULL;
	in->at += bytes;
	in->left -= bytes;
	return at;
}

/* 0 when the input ends. */
static uint32_t number(struct input *in, size_t bytes)
{
	const uint8_t *at = take(in, bytes);
	uint32_t value = 0;

	if (at)
		memcpy(&value, at, bytes);
	else
		in->left = 0;
	return value;
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16) % n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void add_fds(uint32_t kinds)
{
	for (; kinds && message.n_fds < VU_MAX_FDS; kinds >>= 4) {
		const int fds[4] = {-1, guest_fd, event_fd, pipe_fd};
		int fd = fds[kinds & 3];

		if (fd >= 0)
			message.fd[message.n_fds++] = dup(fd);
	}
}

static void send_message(uint16_t command, const void *body, uint32_t bytes, uint32_t fds)
{
	message.header = (struct vu_header){
		.id = 1, .command = command, .bytes = (uint32_t)sizeof(struct vu_header) + bytes};
	message.body_bytes = bytes;
	message.n_fds = 0;
	add_fds(fds);
	if (bytes)
		memcpy(message.body, body, bytes);
	vu_session_handle(&session, &message, &reply);
	vu_message_close_fds(&message);
	check(reply.error >= 0 && reply.body_bytes <= VU_MAX_MESSAGE, "a bad reply");
}

static void access_register(bool write, uint32_t offset, uint32_t value)
{
	struct {
		struct vu_region_rw rw;
	} ask = {.rw = {offset, VU_REGION_BAR0, 4}};
	uint8_t body[sizeof(ask) + 4];

	memcpy(body, &ask, sizeof(ask));
	memcpy(body + sizeof(ask), &value, 4);
	send_message(write ? VU_REGION_WRITE : VU_REGION_READ, body, sizeof(body), 0);
}

static void write_pair(uint32_t offset, uint64_t value)
{
	access_register(true, offset, (uint32_t)value);
	access_register(true, offset + 4, (uint32_t)(value >> 32));
}

static void write_config(uint32_t offset, uint32_t value)
{
	uint8_t body[sizeof(struct vu_region_rw) + 4];
	const struct vu_region_rw rw = {offset, VU_REGION_CONFIG, 4};

	memcpy(body, &rw, sizeof(rw));
	memcpy(body + sizeof(rw), &value, 4);
	send_message(VU_REGION_WRITE, body, sizeof(body), 0);
}

static uint64_t some_address(uint64_t *state)
{
	switch (below(state, 8)) {
	case 0: return FUZZ_RING + below(state, 4) * 4096;
	case 1: return FUZZ_STREAMS + below(state, 512) * 8;
	case 2:
		return (uint64_t)below(state, 4) << 62 |
		       (FUZZ_GUEST_AT + below(state, 1024) * 4096);
	case 3: return FUZZ_MEM - below(state, 3) * 4096;
	case 4: return (uint64_t)below(state, UINT32_MAX) << 32 | below(state, UINT32_MAX);
	default: return 1ull << 62 | (FUZZ_GUEST_AT + below(state, 16) * 4096);
	}
}

/* One register by chance: mostly of queues and address spaces, with values that may be right. */
static void any_register(uint64_t *state)
{
	uint32_t q = below(state, 8) ? below(state, 3) : below(state, 64), at = TXDA_REG_QUEUE(q);
	uint32_t v = below(state, 4), vm = TXDA_REG_VM(v), any = below(state, UINT32_MAX);

	switch (below(state, 20)) {
	case 0: write_pair(at + TXDA_QUEUE_RING_LO, some_address(state)); break;
	case 1: write_pair(at + TXDA_QUEUE_COMPLETION_LO, some_address(state)); break;
	case 2: access_register(true, at + TXDA_QUEUE_RING_LOG2, 3 + below(state, 15)); break;
	case 3: access_register(true, at + TXDA_QUEUE_VMID, below(state, 4)); break;
	case 4: access_register(true, at + TXDA_QUEUE_PRIORITY, below(state, 4)); break;
	case 5:
	case 6: access_register(true, at + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START); break;
	case 7: access_register(true, at + TXDA_QUEUE_CTRL, below(state, 4)); break;
	case 8:
	case 9:
	case 10: access_register(true, at + TXDA_QUEUE_DOORBELL, below(state, 40)); break;
	case 11: write_pair(vm + TXDA_VM_ROOT_LO, FUZZ_TABLES | TXDA_PTE_VALID); break;
	case 12:
		write_pair(vm + TXDA_VM_ROOT_LO,
			   FUZZ_TABLES + below(state, 17) * 4096 + below(state, 4));
		break;
	case 13:
		write_pair(vm + TXDA_VM_FLUSH_PAGE_LO, any & 0xfffff);
		access_register(true, vm + TXDA_VM_FLUSH_COUNT,
				below(state, 3) ? below(state, 1000) : UINT32_MAX);
		access_register(true, vm + TXDA_VM_FLUSH, 1);
		break;
	case 14:
		vm += TXDA_VM_GROUP(below(state, 16));
		access_register(true, vm + TXDA_GROUP_RANK_SIZE,
				below(state, 3) << 8 | below(state, 3));
		access_register(true, vm + TXDA_GROUP_ROUTES, below(state, 2) ? 0x0f : any);
		write_pair(vm + TXDA_GROUP_ID_LO, below(state, 3));
		break;
	case 15: access_register(true, TXDA_REG_IRQ_QUEUES_LO + below(state, 8) * 4, any); break;
	case 16: access_register(true, TXDA_REG_FAULT_ACK, 1); break;
	case 17:
		access_register(true, any % TXDA_BAR_REGS_BYTES & ~3u, below(state, UINT32_MAX));
		break;
	case 18:
		if (!below(state, 16))
			access_register(true, TXDA_REG_RESET, TXDA_RESET_CHIP);
		break;
	default: access_register(false, any % TXDA_BAR_REGS_BYTES & ~3u, 0); break;
	}
}

/* A word of a page table: down to another table, a leaf of some aperture, or nonsense. */
static uint64_t any_entry(uint64_t *state)
{
	uint64_t table = FUZZ_TABLES + below(state, 16) * 4096;

	switch (below(state, 6)) {
	case 0: return some_address(state);
	case 1: return 0x0f | (uint64_t)below(state, 20000) << 12;
	case 2:
		return 0x0f | (FUZZ_GUEST_AT + below(state, 1024) * 4096) |
		       1 << TXDA_PTE_APERTURE_SHIFT;
	case 3:
		return 0x0f | (uint64_t)below(state, 20000) << 12 | 2 << TXDA_PTE_APERTURE_SHIFT |
		       (uint64_t)below(state, 2) << TXDA_PTE_PORT_SHIFT;
	default: return table | TXDA_PTE_VALID;
	}
}

/* A packet that touches addresses which the tables may have. */
static void any_packet(uint64_t *state, uint64_t offset)
{
	uint64_t word[8];
	static const uint16_t bytes[TXDA_PKT_COUNT] = {8, 32, 56, 32, 80, 24, 24, 16, 40, 40};
	uint16_t op = (uint16_t)below(state, TXDA_PKT_COUNT);
	const struct txda_pkt hdr = {op, (uint16_t)(below(state, 8) ? 0 : below(state, 4)),
				     bytes[op]};

	for (unsigned i = 1; i < 8; i++)
		word[i] = below(state, 4) ? (uint64_t)below(state, 8) << (12 + 9 * below(state, 3))
					  : below(state, 1 << 20) & ~3u;
	memcpy(word, &hdr, sizeof(hdr));
	memcpy(device->dram + offset, word, sizeof(word));
}

static void any_memory(uint64_t *state)
{
	struct txda_ring_entry e = {
		.stream_va = (uint64_t)below(state, 8) << 12,
		.stream_bytes = below(state, 16) * 8,
		.flags = below(state, 8) ? below(state, 2) : below(state, 4),
		.seqno = below(state, 100),
		.reserved = !below(state, 50),
	};
	uint64_t entry = any_entry(state);

	switch (below(state, 4)) {
	case 0:
		memcpy(device->dram + FUZZ_RING + below(state, 32) * sizeof(e), &e, sizeof(e));
		break;
	case 1: memcpy(guest + below(state, 32) * sizeof(e), &e, sizeof(e)); break;
	case 2: any_packet(state, FUZZ_STREAMS + below(state, 64) * 64); break;
	default:
		memcpy(device->dram + FUZZ_TABLES + below(state, 16) * 4096 + below(state, 16) * 8,
		       &entry, sizeof(entry));
		break;
	}
}

static void something_happens(unsigned which)
{
	static const char *const specs[] = {"hang:ms=1",     "page",	       "ecc",
					    "ecc-corrected", "link-down:ms=1", "thermal:ms=1",
					    "slow-dma:ms=1", "clear",	       "lost:chip=0"};
	uint64_t lost;

	switch (which % 12) {
	case 9: vu_device_hang(device); break;
	case 10: vu_device_trip(device); break;
	case 11: vu_device_vanish(device); break;
	default:
		check(!cm_inject(machine->cm, specs[which % 12]), "an injection is refused");
		break;
	}
	pthread_mutex_unlock(&device->op_lock);
	vu_machine_poll(machine, &lost);
	pthread_mutex_lock(&device->op_lock);
}

/* Copies to @base + some offset of @room bytes. */
static void fill_memory(struct input *in, uint8_t *base, uint64_t room)
{
	uint64_t offset = number(in, 4) % room;
	uint32_t bytes = number(in, 2);
	const uint8_t *src = take(in, bytes);

	if (src)
		memcpy(base + offset, src, bytes < room - offset ? bytes : room - offset);
	else
		in->left = 0;
}

static void step(struct input *in)
{
	uint32_t kind = number(in, 1) % FUZZ_STEPS, a, b, n;
	const uint8_t *body;
	uint64_t state;

	switch (kind) {
	case FUZZ_MESSAGE:
		a = number(in, 2);
		b = number(in, 2);
		n = number(in, 2);
		body = take(in, n);
		if (body)
			send_message((uint16_t)a, body, n, b);
		else
			in->left = 0;
		break;
	case FUZZ_WRITE:
		a = number(in, 2);
		access_register(true, a, number(in, 4));
		break;
	case FUZZ_READ: access_register(false, number(in, 2), 0); break;
	case FUZZ_CONFIG:
		a = number(in, 2);
		write_config(a % VU_CONFIG_BYTES, number(in, 4));
		break;
	case FUZZ_DRAM: fill_memory(in, device->dram, FUZZ_MEM); break;
	case FUZZ_GUEST: fill_memory(in, guest, FUZZ_GUEST_BYTES); break;
	case FUZZ_REGISTERS:
	case FUZZ_MEMORY:
		n = number(in, 2) % 512;
		state = 0x9e3779b97f4a7c15ull ^ number(in, 4);
		for (; n; n--)
			kind == FUZZ_MEMORY ? any_memory(&state) : any_register(&state);
		break;
	default: something_happens(number(in, 1)); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!machine)
		start();
	session = (struct vu_session){.device = device};
	vu_device_attach(device);
	pthread_mutex_lock(&device->op_lock);
	for (unsigned steps = 0; in.left && steps < 128; steps++)
		step(&in);
	vu_device_detach(device);
	/* The next input finds it as the first did. */
	vu_device_appear(device);
	pthread_mutex_unlock(&device->op_lock);
	memset(guest, 0, 65536);
	return 0;
}
