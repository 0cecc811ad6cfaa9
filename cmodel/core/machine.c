// SPDX-License-Identifier: MIT
#include "machine.h"
#include "cp.h"
#include "cpus.h"
#include "inject.h"
#include "program.h"

#include <errno.h>
#include <stdlib.h>

#define DEFAULT_SPIN_US 100

/* ---- callbacks of the layers ----------------------------------------------------------------- */

static void vm_unmapped(struct cm_vm *vm, uint64_t va, uint64_t end)
{
	cm_program_drop(vm, va, end);
}

static void vm_freeing(struct cm_vm *vm)
{
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++)
		cm_c2c_unset(vm, i);
	cm_program_drop(vm, 0, UINT64_MAX);
}

static void member_fail(struct cm_member *member, uint64_t id)
{
	cm_queue_fail_innocent(cm_queue_of(member), id);
}

/* ---- life ------------------------------------------------------------------------------------ */

/*
 * By default as many as cm_cpus_to_compute() allows, with tiles at most one for each physical core.
 * The threads of a physical core share what executes tile instructions: beside another virtual
 * machine's thread these took up to four times as long (docs/performance.md).
 */
static unsigned cores_of(const struct cm_options *opt)
{
	unsigned cpus, cores;

	if (opt->cores)
		return opt->cores;
	cpus = cm_cpus(NULL, 0);
	cores = cm_cpus_to_compute(cpus, cm_ops_use_tiles() ? cm_physical_cores() : cpus);
	return cores < CM_MAX_CORES ? cores : CM_MAX_CORES;
}

static int machine_init(struct cm_machine *m, const struct cm_options *opt)
{
	int ret = cm_ops_init(opt->isa ? opt->isa : "auto", &m->isa);

	if (!ret)
		ret = cm_pool_init(&m->pool, cores_of(opt),
				   (opt->spin_us ? opt->spin_us : DEFAULT_SPIN_US) * 1000ull,
				   opt->pin);
	if (ret)
		return ret;
	m->pool.interrupt = opt->interrupt;
	m->spread = !opt->numa_local && cm_memory_nodes() > 1;
	m->mmu = (struct cm_mmu){
		.lead = &m->lead,
		.spread = m->spread,
		.unmapped = vm_unmapped,
		.freeing = vm_freeing,
	};
	m->c2c.fail = member_fail;
	m->queues = (struct cm_queues){
		.pool = &m->pool,
		.ready = &m->ready,
		.lead = &m->lead,
		.c2c = &m->c2c,
	};
	m->chip = calloc(opt->chips, sizeof(*m->chip));
	if (!m->chip)
		return -ENOMEM;
	while (m->n_chips < opt->chips) {
		unsigned i = m->n_chips++;

		ret = cm_chip_init(&m->chip[i], m, i, opt->mem_bytes);
		if (ret)
			return ret;
	}
	return cm_lead_start(&m->lead, &m->pool, &m->ready, cm_cp_turn, &m->queues);
}

int cm_machine_new(const struct cm_options *opt, struct cm_machine **ret)
{
	struct cm_machine *m;
	int err;

	if (!opt->chips || opt->chips > CM_MAX_CHIPS || opt->cores > CM_MAX_CORES ||
	    !opt->mem_bytes || opt->mem_bytes % CM_HUGE_PAGE || opt->mem_bytes > INT64_MAX)
		return -EINVAL;
	m = aligned_alloc(CM_CACHE_LINE, sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = (struct cm_machine){0};
	err = machine_init(m, opt);
	if (!err && opt->faults)
		err = cm_inject(m, opt->faults);
	if (err) {
		cm_machine_free(m);
		return err;
	}
	*ret = m;
	return 0;
}

void cm_interrupted(int number)
{
	(void)number;
	cm_pool_on_interrupt();
}

void cm_machine_free(struct cm_machine *m)
{
	if (!m)
		return;
	/* Without a pause: no other thread calls any more, and the workers end after their op. */
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		if (m->queues.queue[i])
			cm_queue_cancel(m->queues.queue[i]);
	}
	cm_lead_stop(&m->lead);
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		if (m->queues.queue[i])
			cm_queue_fail_with(m->queues.queue[i], TXDA_FAULT_LOST, 0, 0);
	}
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++)
		cm_queue_free(m->queues.queue[i]);
	while (m->mmu.vms)
		cm_vm_free(m->mmu.vms);
	for (unsigned i = 0; i < m->n_chips; i++)
		cm_chip_fini(&m->chip[i]);
	cm_pool_fini(&m->pool);
	if (m->isa)
		cm_ops_exit();
	free(m->chip);
	free(m);
}

unsigned cm_machine_chips(const struct cm_machine *m)
{
	return m->n_chips;
}

unsigned cm_machine_cores(const struct cm_machine *m)
{
	return m->pool.cores;
}

const char *cm_machine_isa(const struct cm_machine *m)
{
	return m->isa;
}

void cm_machine_spread(const struct cm_machine *m, void *ptr, size_t bytes)
{
	if (m->spread)
		cm_interleave(ptr, bytes);
}

struct cm_chip *cm_machine_chip(struct cm_machine *m, unsigned index)
{
	return index < m->n_chips ? &m->chip[index] : NULL;
}

void cm_machine_hold(struct cm_machine *m)
{
	cm_pause(&m->lead);
}

void cm_machine_release(struct cm_machine *m)
{
	cm_resume(&m->lead);
}

/* ---- objects and orders ---------------------------------------------------------------------- */

int cm_vm_new(struct cm_chip *c, struct cm_vm **ret)
{
	return cm_mmu_vm_new(&c->machine->mmu, c, ret);
}

int cm_vm_set_group(struct cm_vm *vm, unsigned slot, uint64_t id, unsigned rank, unsigned size)
{
	return cm_c2c_set_group(&vm->chip->machine->c2c, vm, slot, id, rank, size);
}

int cm_queue_new(struct cm_vm *vm, enum cm_queue_class class, const struct cm_queue_ops *ops,
		 void *arg, struct cm_queue **ret)
{
	return cm_queues_add(&vm->chip->machine->queues, vm, class, ops, arg, ret);
}

int cm_wait(struct cm_machine *m, struct cm_queue *q, const uint64_t *word, uint64_t value,
	    uint64_t deadline_ns)
{
	return cm_lead_wait(&m->lead, q ? &q->state : NULL, word, value, deadline_ns);
}

void cm_kick(struct cm_machine *m)
{
	cm_lead_kick(&m->lead);
}

int cm_inject(struct cm_machine *m, const char *spec)
{
	return cm_inject_apply(&m->queues, m->chip, m->n_chips, spec);
}

void cm_chip_set_notify(struct cm_chip *c, void (*fn)(void *arg), void *arg)
{
	cm_pause(&c->machine->lead);
	c->notify = fn;
	c->notify_arg = arg;
	cm_resume(&c->machine->lead);
}

void cm_chip_stall(struct cm_chip *c, bool on)
{
	cm_pause(&c->machine->lead);
	cm_inject_stall(&c->machine->queues, c, on);
	cm_resume(&c->machine->lead);
}

void cm_chip_revive(struct cm_chip *c)
{
	cm_pause(&c->machine->lead);
	c->stalled = false;
	cm_inject_clear(&c->machine->queues, c);
	atomic_store(&c->lost, false);
	cm_resume(&c->machine->lead);
}
