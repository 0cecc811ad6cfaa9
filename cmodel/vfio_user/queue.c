// SPDX-License-Identifier: MIT
#include "queue.h"
#include "device.h"
#include "clock.h"

#include <errno.h>
#include <string.h>

/* Not 8-byte aligned, so that the model refuses it when it is its turn. */
#define STREAM_AT_NOWHERE 1

/* Longer than a driver waits for a queue that makes no progress. */
#define SLOW_STOP_NS 5000000000ull

static bool is_off(const struct vu_queue *q)
{
	return q->state == TXDA_QUEUE_OFF || q->state == TXDA_QUEUE_LOST;
}

static bool is_copy_queue(const struct vu_queue *q)
{
	return q->index >= VU_COMPUTE_QUEUES;
}

void vu_queue_init(struct vu_queue *q, struct vu_device *d, unsigned index)
{
	*q = (struct vu_queue){
		.device = d,
		.index = index,
		.priority = TXDA_PRIORITY_NORMAL,
		.state = TXDA_QUEUE_OFF,
	};
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Stops the queue and leaves a record. lock is held. */
static void fault_locked(struct vu_queue *q, const struct txda_fault *fault, uint32_t state)
{
	struct txda_fault record = *fault;

	record.queue = q->index;
	record.vmid = q->vmid;
	q->state = state;
	vu_faults_push(&q->device->faults, &record);
	vu_irq_raise_events(&q->device->irq, TXDA_IRQ_FAULT);
	vu_device_log(q->device, VU_LOG_INFO,
		      "queue %u: fault %u at 0x%llx, packet 0x%llx, detail %llu, entry %u",
		      q->index, record.code, (unsigned long long)record.va,
		      (unsigned long long)record.packet_va, (unsigned long long)record.detail,
		      q->head);
}

static void fault_with_locked(struct vu_queue *q, uint32_t code, uint64_t va, uint64_t detail)
{
	const struct txda_fault fault = {
		.code = code,
		.op = TXDA_NONE,
		.tensor = TXDA_NONE,
		.opcode = TXDA_NONE,
		.va = va,
		.detail = detail,
	};

	fault_locked(q, &fault, TXDA_QUEUE_FAULTED);
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t entry_addr(const struct vu_queue *q, uint32_t entry)
{
	uint32_t index = entry & ((1u << q->ring_log2) - 1);

	return q->ring + index * sizeof(struct txda_ring_entry);
}

/* Checks the frame of an entry; the model checks the stream. */
static uint32_t judge(const struct txda_ring_entry *e)
{
	if (e->reserved || (e->flags & ~TXDA_RING_IRQ))
		return TXDA_FAULT_PACKET;
	return TXDA_FAULT_NONE;
}

/* Passes entries to the model as long as it accepts them. lock is held, the queue runs. */
static void fetch(struct vu_queue *q)
{
	while (q->fetched != q->tail && q->fetched - q->head < CM_QUEUE_DEPTH) {
		struct vu_inflight *slot = &q->inflight[q->fetched % CM_QUEUE_DEPTH];
		struct txda_ring_entry e = {0};
		const void *src =
			vu_device_at(q->device, entry_addr(q, q->fetched), sizeof(e), false);

		*slot = (struct vu_inflight){.bad = TXDA_FAULT_PAGE};
		if (src) {
			memcpy(&e, src, sizeof(e));
			*slot = (struct vu_inflight){
				.seqno = e.seqno,
				.irq = e.flags & TXDA_RING_IRQ,
				.bad = judge(&e),
			};
		}
		if (slot->bad)
			e.stream_va = e.stream_bytes = STREAM_AT_NOWHERE;
		else if (!e.stream_bytes)
			e.stream_va = 0;
		/*
		 * A refused entry is retried at the next completion; a queue that has faulted
		 * reports that.
		 */
		if (cm_queue_submit(q->cm, e.stream_va, e.stream_bytes, false))
			return;
		q->fetched++;
	}
}

/* ---- callbacks of the model ------------------------------------------------------------------ */

static void on_signalled(void *arg, uint64_t va, uint64_t value)
{
	struct vu_queue *q = arg;
	struct vu_device *d = q->device;

	(void)va;
	(void)value;
	pthread_mutex_lock(&d->lock);
	if (q->state == TXDA_QUEUE_RUNNING)
		vu_irq_raise_queue(&d->irq, q->index);
	pthread_mutex_unlock(&d->lock);
}

static bool on_completed(void *arg, struct txda_fault *ret)
{
	struct vu_queue *q = arg;
	struct vu_device *d = q->device;
	uint64_t *word = NULL;
	bool running;

	pthread_mutex_lock(&d->lock);
	running = q->state == TXDA_QUEUE_RUNNING;
	if (running)
		word = vu_device_at(d, q->completion, sizeof(*word), true);
	if (word) {
		const struct vu_inflight done = q->inflight[q->head % CM_QUEUE_DEPTH];

		__atomic_store_n(word, done.seqno, __ATOMIC_RELEASE);
		q->head++;
		if (done.irq)
			vu_irq_raise_queue(&d->irq, q->index);
		fetch(q);
	} else if (running) {
		ret->code = TXDA_FAULT_PAGE;
		ret->va = q->completion;
	}
	pthread_mutex_unlock(&d->lock);
	/* Another queue may wait for the word. */
	if (word)
		cm_kick(d->cm);
	return word || !running;
}

static void on_faulted(void *arg, const struct txda_fault *fault)
{
	struct vu_queue *q = arg;
	struct vu_device *d = q->device;
	struct txda_fault record = *fault;

	pthread_mutex_lock(&d->lock);
	if (q->state == TXDA_QUEUE_RUNNING && q->cm) {
		uint32_t bad = q->inflight[q->head % CM_QUEUE_DEPTH].bad;
		bool lost = fault->code == TXDA_FAULT_LOST || cm_queue_is_innocent(q->cm);

		if (bad && q->head != q->fetched) {
			record.code = bad;
			record.va = entry_addr(q, q->head);
			record.packet_va = 0;
			record.detail = q->head;
		}
		fault_locked(q, &record, lost ? TXDA_QUEUE_LOST : TXDA_QUEUE_FAULTED);
	}
	pthread_mutex_unlock(&d->lock);
}

/* ---- start and stop -------------------------------------------------------------------------- */

void vu_queue_end(struct vu_queue *q, uint32_t state)
{
	struct vu_device *d = q->device;
	struct cm_queue *cm;

	pthread_mutex_lock(&d->lock);
	cm = q->cm;
	if (cm)
		q->progress_base += cm_queue_progress(cm);
	q->cm = NULL;
	q->state = state;
	pthread_mutex_unlock(&d->lock);
	if (!cm)
		return;
	cm_queue_free(cm);
	vu_vm_put(q->vm);
	q->vm = NULL;
}

/* Whether the chip can access ring and completion word; if not, leaves a record. lock is held. */
static bool set_up_is_sound(struct vu_queue *q)
{
	uint64_t ring_bytes = sizeof(struct txda_ring_entry) << q->ring_log2;

	if (q->ring_log2 < VU_RING_MIN_LOG2) {
		fault_with_locked(q, TXDA_FAULT_PACKET, 0, q->ring_log2);
		return false;
	}
	if (!vu_device_at(q->device, q->ring, ring_bytes, false)) {
		fault_with_locked(q, TXDA_FAULT_PAGE, q->ring, ring_bytes);
		return false;
	}
	if (!vu_device_at(q->device, q->completion, sizeof(uint64_t), true)) {
		fault_with_locked(q, TXDA_FAULT_PAGE, q->completion, sizeof(uint64_t));
		return false;
	}
	return true;
}

/* Creates the queue of the model that will run this one. */
static int make_cm_queue(struct vu_queue *q, struct cm_queue **ret)
{
	static const struct cm_queue_ops ops = {on_signalled, on_faulted, on_completed};
	struct vu_vm *vm = &q->device->vm[q->vmid];
	struct cm_queue *cm;
	struct cm_vm *cm_vm;
	int err;

	err = vu_vm_get(vm, &cm_vm);
	if (err)
		return err;
	err = cm_queue_new(cm_vm, is_copy_queue(q) ? CM_QUEUE_COPY : CM_QUEUE_COMPUTE, &ops, q,
			   &cm);
	if (err) {
		vu_vm_put(vm);
		return err;
	}
	if (q->priority != TXDA_PRIORITY_NORMAL)
		cm_queue_set_priority(cm, (enum cm_queue_priority)q->priority);
	q->vm = vm;
	*ret = cm;
	return 0;
}

static uint32_t state_of(struct vu_queue *q)
{
	uint32_t state;

	pthread_mutex_lock(&q->device->lock);
	state = q->state;
	pthread_mutex_unlock(&q->device->lock);
	return state;
}

static void start(struct vu_queue *q)
{
	struct vu_device *d = q->device;
	struct cm_queue *cm = NULL;
	bool sound = false;
	int err;

	if (state_of(q) == TXDA_QUEUE_LOST)
		vu_queue_end(q, TXDA_QUEUE_OFF);
	pthread_mutex_lock(&d->lock);
	if (q->state == TXDA_QUEUE_OFF && d->firmware.state == TXDA_FW_READY && !d->tripped) {
		q->tail = q->fetched = q->head = 0;
		sound = set_up_is_sound(q);
	}
	pthread_mutex_unlock(&d->lock);
	if (!sound)
		return;
	err = make_cm_queue(q, &cm);
	if (err) {
		pthread_mutex_lock(&d->lock);
		vu_device_log(d, VU_LOG_ERROR, "queue %u, VMID %u: cannot start: %s", q->index,
			      q->vmid, strerror(-err));
		pthread_mutex_unlock(&d->lock);
		return;
	}
	pthread_mutex_lock(&d->lock);
	q->cm = cm;
	q->state = TXDA_QUEUE_RUNNING;
	pthread_mutex_unlock(&d->lock);
}

static void stop(struct vu_queue *q)
{
	struct vu_device *d = q->device;
	bool runs = state_of(q) == TXDA_QUEUE_RUNNING, slow = d->stuck & VU_SLOW_STOP && runs;

	if (d->stuck & VU_STUCK_STOP && runs) {
		d->stuck &= ~VU_STUCK_STOP;
		q->stuck = true;
	}
	if (q->stuck)
		return;
	vu_queue_end(q, TXDA_QUEUE_OFF);
	if (!slow)
		return;
	d->stuck &= ~VU_SLOW_STOP;
	pthread_mutex_lock(&d->lock);
	q->slow_until_ns = clock_ns() + SLOW_STOP_NS;
	pthread_mutex_unlock(&d->lock);
}

void vu_queue_control(struct vu_queue *q, uint32_t value)
{
	/* A hung command processor reacts only to a reset. */
	if (atomic_load(&q->device->hung))
		return;
	if (value == TXDA_QUEUE_CTRL_START)
		start(q);
	else if (value == TXDA_QUEUE_CTRL_STOP)
		stop(q);
}

void vu_queue_doorbell(struct vu_queue *q, uint32_t tail)
{
	struct vu_device *d = q->device;
	bool nonsense = false;

	pthread_mutex_lock(&d->lock);
	if (q->state == TXDA_QUEUE_RUNNING) {
		uint32_t waiting = tail - q->head;

		/* More entries than the ring has, or a tail that moved backwards. */
		nonsense = waiting > 1u << q->ring_log2 || waiting < q->tail - q->head;
		if (nonsense) {
			fault_with_locked(q, TXDA_FAULT_PACKET, 0, tail);
		} else {
			q->tail = tail;
			fetch(q);
		}
	}
	pthread_mutex_unlock(&d->lock);
	if (nonsense)
		vu_queue_end(q, TXDA_QUEUE_FAULTED);
}

void vu_queue_lose(struct vu_queue *q)
{
	if (state_of(q) != TXDA_QUEUE_OFF)
		vu_queue_end(q, TXDA_QUEUE_LOST);
}

void vu_queue_reset(struct vu_queue *q)
{
	vu_queue_lose(q);
	q->stuck = false;
	pthread_mutex_lock(&q->device->lock);
	q->ring = q->completion = 0;
	q->ring_log2 = q->vmid = 0;
	q->priority = TXDA_PRIORITY_NORMAL;
	q->tail = q->fetched = q->head = 0;
	q->progress_base = q->slow_until_ns = 0;
	pthread_mutex_unlock(&q->device->lock);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* A valid TXDA_ADDR: local or system, and no bits between aperture and address. */
static bool addr_is_sound(uint64_t addr, uint64_t align)
{
	uint64_t aperture = addr >> TXDA_ADDR_APERTURE_SHIFT;

	return (aperture == TXDA_APERTURE_LOCAL || aperture == TXDA_APERTURE_SYSTEM) &&
	       !(addr & ~(TXDA_ADDR_MASK | 3ull << TXDA_ADDR_APERTURE_SHIFT)) && !(addr % align);
}

static void set32(struct vu_queue *q, uint32_t *at, uint32_t value, bool sound)
{
	pthread_mutex_lock(&q->device->lock);
	if (is_off(q) && sound)
		*at = value;
	pthread_mutex_unlock(&q->device->lock);
}

static void set64(struct vu_queue *q, uint64_t *at, uint64_t value, bool sound)
{
	pthread_mutex_lock(&q->device->lock);
	if (is_off(q) && sound)
		*at = value;
	pthread_mutex_unlock(&q->device->lock);
}

void vu_queue_set_ring(struct vu_queue *q, uint64_t addr)
{
	set64(q, &q->ring, addr, addr_is_sound(addr, 4096));
}

void vu_queue_set_ring_log2(struct vu_queue *q, uint32_t log2)
{
	set32(q, &q->ring_log2, log2, log2 >= VU_RING_MIN_LOG2 && log2 <= TXDA_RING_MAX_LOG2);
}

void vu_queue_set_vmid(struct vu_queue *q, uint32_t vmid)
{
	set32(q, &q->vmid, vmid, vmid < VU_VMIDS);
}

void vu_queue_set_priority(struct vu_queue *q, uint32_t priority)
{
	set32(q, &q->priority, priority, priority < TXDA_PRIORITY_COUNT);
}

void vu_queue_set_completion(struct vu_queue *q, uint64_t addr)
{
	set64(q, &q->completion, addr, addr_is_sound(addr, 8));
}

/* ---- for registers --------------------------------------------------------------------------- */

uint32_t vu_queue_state(struct vu_queue *q)
{
	if (!q->slow_until_ns)
		return q->state;
	q->progress_base++;
	if (clock_ns() >= q->slow_until_ns)
		q->slow_until_ns = 0;
	return TXDA_QUEUE_RUNNING;
}

uint64_t vu_queue_progress(const struct vu_queue *q)
{
	return q->progress_base + (q->cm ? cm_queue_progress(q->cm) : 0);
}

uint64_t vu_queue_packet(const struct vu_queue *q)
{
	return q->cm ? cm_queue_packet(q->cm) : 0;
}
