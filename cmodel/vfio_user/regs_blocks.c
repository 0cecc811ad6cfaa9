// SPDX-License-Identifier: MIT
/* Registers of ports, queues and address spaces. */
#include "device.h"
#include "regs.h"

#define PORT_MBPS 64000 /* each direction */

/* ---- ports ----------------------------------------------------------------------------------- */

static uint32_t read_port_state(struct vu_device *d, unsigned p)
{
	if (p >= vu_device_ports(d))
		return 0;
	return vu_device_link_up(d, p) ? TXDA_PORT_UP : TXDA_PORT_DOWN;
}

static uint32_t read_port_speed(struct vu_device *d, unsigned p)
{
	return p < vu_device_ports(d) ? PORT_MBPS : 0;
}

static uint64_t read_peer_card(struct vu_device *d, unsigned p)
{
	return p < vu_device_ports(d) ? d->card_serial : 0;
}

static uint32_t read_peer_index(struct vu_device *d, unsigned p)
{
	return p < vu_device_ports(d) ? vu_device_peer(d, p)->position : 0;
}

static uint32_t read_peer_port(struct vu_device *d, unsigned p)
{
	return p < vu_device_ports(d) ? vu_device_peer_port(d, p) : 0;
}

static uint32_t read_port_errors(struct vu_device *d, unsigned p)
{
	return d->link_errors[p];
}

const struct vu_reg vu_regs_port[VU_PORT_WORDS] = {
	VU_RO(TXDA_PORT_STATE, read_port_state),
	VU_RO(TXDA_PORT_SPEED_MBPS, read_port_speed),
	VU_PAIR(TXDA_PORT_PEER_CARD_LO, read_peer_card, NULL),
	VU_RO(TXDA_PORT_PEER_INDEX, read_peer_index),
	VU_RO(TXDA_PORT_PEER_PORT, read_peer_port),
	VU_RO(TXDA_PORT_ERRORS, read_port_errors),
};

/* ---- queues ---------------------------------------------------------------------------------- */

static uint32_t read_head(struct vu_device *d, unsigned q)
{
	return d->queue[q].head;
}

static uint32_t read_tail(struct vu_device *d, unsigned q)
{
	return d->queue[q].tail;
}

static uint32_t read_state(struct vu_device *d, unsigned q)
{
	return vu_queue_state(&d->queue[q]);
}

static uint64_t read_ring(struct vu_device *d, unsigned q)
{
	return d->queue[q].ring;
}

static uint32_t read_ring_log2(struct vu_device *d, unsigned q)
{
	return d->queue[q].ring_log2;
}

static uint32_t read_vmid(struct vu_device *d, unsigned q)
{
	return d->queue[q].vmid;
}

static uint32_t read_priority(struct vu_device *d, unsigned q)
{
	return d->queue[q].priority;
}

static uint64_t read_completion(struct vu_device *d, unsigned q)
{
	return d->queue[q].completion;
}

static uint64_t read_progress(struct vu_device *d, unsigned q)
{
	return vu_queue_progress(&d->queue[q]);
}

static uint64_t read_packet(struct vu_device *d, unsigned q)
{
	return vu_queue_packet(&d->queue[q]);
}

static void write_doorbell(struct vu_device *d, unsigned q, uint32_t value)
{
	vu_queue_doorbell(&d->queue[q], value);
}

static void write_ctrl(struct vu_device *d, unsigned q, uint32_t value)
{
	vu_queue_control(&d->queue[q], value);
}

static void write_ring(struct vu_device *d, unsigned q, uint64_t value)
{
	vu_queue_set_ring(&d->queue[q], value);
}

static void write_ring_log2(struct vu_device *d, unsigned q, uint32_t value)
{
	vu_queue_set_ring_log2(&d->queue[q], value);
}

static void write_vmid(struct vu_device *d, unsigned q, uint32_t value)
{
	vu_queue_set_vmid(&d->queue[q], value);
}

static void write_priority(struct vu_device *d, unsigned q, uint32_t value)
{
	vu_queue_set_priority(&d->queue[q], value);
}

static void write_completion(struct vu_device *d, unsigned q, uint64_t value)
{
	vu_queue_set_completion(&d->queue[q], value);
}

const struct vu_reg vu_regs_queue[VU_QUEUE_WORDS] = {
	VU_RW(TXDA_QUEUE_DOORBELL, read_tail, write_doorbell),
	VU_RO(TXDA_QUEUE_HEAD, read_head),
	VU_RO(TXDA_QUEUE_STATE, read_state),
	VU_RW(TXDA_QUEUE_CTRL, NULL, write_ctrl),
	VU_PAIR(TXDA_QUEUE_RING_LO, read_ring, write_ring),
	VU_RW(TXDA_QUEUE_RING_LOG2, read_ring_log2, write_ring_log2),
	VU_RW(TXDA_QUEUE_VMID, read_vmid, write_vmid),
	VU_RW(TXDA_QUEUE_PRIORITY, read_priority, write_priority),
	VU_PAIR(TXDA_QUEUE_COMPLETION_LO, read_completion, write_completion),
	VU_PAIR(TXDA_QUEUE_PROGRESS_LO, read_progress, NULL),
	VU_PAIR(TXDA_QUEUE_PACKET_LO, read_packet, NULL),
};

/* ---- address spaces -------------------------------------------------------------------------- */

static uint64_t read_root(struct vu_device *d, unsigned v)
{
	return atomic_load(&d->vm[v].root);
}

static uint64_t read_flush_page(struct vu_device *d, unsigned v)
{
	return d->vm[v].flush_page;
}

static uint32_t read_flush_count(struct vu_device *d, unsigned v)
{
	return d->vm[v].flush_count;
}

static void write_root(struct vu_device *d, unsigned v, uint64_t value)
{
	vu_vm_set_root(&d->vm[v], value);
}

static void write_flush_page(struct vu_device *d, unsigned v, uint64_t value)
{
	d->vm[v].flush_page = value;
}

static void write_flush_count(struct vu_device *d, unsigned v, uint32_t value)
{
	d->vm[v].flush_count = value;
}

static uint32_t read_flush(struct vu_device *d, unsigned v)
{
	return d->vm[v].flushing;
}

static void write_flush(struct vu_device *d, unsigned v, uint32_t value)
{
	if (value != 1)
		return;
	if (d->stuck & VU_STUCK_FLUSH)
		d->vm[v].flushing = true;
	else
		vu_vm_flush(&d->vm[v]);
}

const struct vu_reg vu_regs_vm[VU_VM_WORDS] = {
	VU_PAIR(TXDA_VM_ROOT_LO, read_root, write_root),
	VU_PAIR(TXDA_VM_FLUSH_PAGE_LO, read_flush_page, write_flush_page),
	VU_RW(TXDA_VM_FLUSH_COUNT, read_flush_count, write_flush_count),
	/* Reads 0 unless stuck: the write that starts a flush returns when it is done. */
	VU_RW(TXDA_VM_FLUSH, read_flush, write_flush),
};

/* ---- groups ---------------------------------------------------------------------------------- */

static struct vu_group *group_of(struct vu_device *d, unsigned i)
{
	return &d->vm[i / TXDA_VM_GROUPS].group[i % TXDA_VM_GROUPS];
}

static uint64_t read_group_id(struct vu_device *d, unsigned i)
{
	return group_of(d, i)->id;
}

static uint32_t read_rank_size(struct vu_device *d, unsigned i)
{
	return group_of(d, i)->rank_size;
}

static uint32_t read_routes(struct vu_device *d, unsigned i)
{
	return group_of(d, i)->routes;
}

static void changed(struct vu_device *d, unsigned i)
{
	vu_vm_group_changed(&d->vm[i / TXDA_VM_GROUPS], i % TXDA_VM_GROUPS);
}

static void write_group_id(struct vu_device *d, unsigned i, uint64_t value)
{
	group_of(d, i)->id = value;
	changed(d, i);
}

static void write_rank_size(struct vu_device *d, unsigned i, uint32_t value)
{
	group_of(d, i)->rank_size = value;
	changed(d, i);
}

static void write_routes(struct vu_device *d, unsigned i, uint32_t value)
{
	group_of(d, i)->routes = value;
	changed(d, i);
}

const struct vu_reg vu_regs_group[VU_GROUP_WORDS] = {
	VU_PAIR(TXDA_GROUP_ID_LO, read_group_id, write_group_id),
	VU_RW(TXDA_GROUP_RANK_SIZE, read_rank_size, write_rank_size),
	VU_RW(TXDA_GROUP_ROUTES, read_routes, write_routes),
};
