// SPDX-License-Identifier: MIT
#include "internal.h"
#include "lead.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_SPIN_US	   100
#define MAX_SHARED_SCRATCH (4ull << 30)
#define MAX_CORE_SCRATCH   (256ull << 20)

static unsigned online_cpus(void)
{
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 0)
		return (unsigned)CPU_COUNT(&set);
	return 1;
}

static int scratch_grow(struct cm_scratch *s, size_t bytes)
{
	size_t usable = (bytes + CM_PAGE - 1) & ~(CM_PAGE - 1), mapped = usable + CM_PAGE;
	void *ptr;

	if (bytes <= s->bytes)
		return 0;
	/* Page aligned and sparse: only what ops touch takes memory. */
	ptr = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ptr == MAP_FAILED)
		return -ENOMEM;
	/* A kernel that runs over its end stops here, not in somebody's data. */
	mprotect((uint8_t *)ptr + usable, CM_PAGE, PROT_NONE);
	if (usable >= CM_HUGE_PAGE)
		madvise(ptr, usable, MADV_HUGEPAGE);
	if (s->ptr)
		munmap(s->ptr, s->mapped);
	*s = (struct cm_scratch){ptr, bytes, mapped};
	return 1;
}

int cm_scratch_grow(struct cm_machine *m, size_t shared_bytes, size_t core_bytes)
{
	int ret;

	if (shared_bytes > MAX_SHARED_SCRATCH || core_bytes > MAX_CORE_SCRATCH)
		return -ENOMEM;
	ret = scratch_grow(&m->shared, shared_bytes);
	m->scratch_generation += ret > 0;
	for (unsigned i = 0; i < m->cores && ret >= 0; i++) {
		ret = scratch_grow(&m->core[i], core_bytes);
		m->scratch_generation += ret > 0;
	}
	return ret < 0 ? ret : 0;
}

static int chip_init(struct cm_machine *m, unsigned index, uint64_t mem_bytes)
{
	struct cm_chip *c = &m->chip[index];
	char name[32];

	c->machine = m;
	c->index = index;
	c->dram_bytes = mem_bytes;
	pthread_mutex_init(&c->sensor_lock, NULL);
	cm_sensors_init(c);
	snprintf(name, sizeof(name), "txda-dram%u", index);
	c->dram_fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (c->dram_fd < 0)
		return -errno;
	/* Nobody who is given the fd may take away memory that the chip works on. */
	if (ftruncate(c->dram_fd, (off_t)mem_bytes) ||
	    fcntl(c->dram_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return 0;
}

static int machine_init(struct cm_machine *m, const struct cm_options *opt)
{
	unsigned cpus = online_cpus();
	const char *isa = "";
	int ret;

	m->cores = opt->cores ? opt->cores : cpus > CM_MAX_CORES ? CM_MAX_CORES : cpus;
	m->yield = m->cores > cpus;
	m->spin_ns = (opt->spin_us ? opt->spin_us : DEFAULT_SPIN_US) * 1000ull;
	ret = cm_ops_init(opt->isa ? opt->isa : "auto", &isa);
	if (ret)
		return ret;
	m->isa = isa;
	m->chip = calloc(opt->chips, sizeof(*m->chip));
	m->worker = aligned_alloc(CM_CACHE_LINE, m->cores * sizeof(*m->worker));
	if (!m->chip || !m->worker)
		return -ENOMEM;
	for (unsigned i = 0; i < m->cores; i++)
		m->worker[i] = (struct cm_worker){.machine = m};
	for (unsigned i = 0; i < opt->chips; i++)
		m->chip[i].dram_fd = -1;
	for (unsigned i = 0; i < opt->chips; i++) {
		m->n_chips = i + 1;
		ret = chip_init(m, i, opt->mem_bytes);
		if (ret)
			return ret;
	}
	return cm_lead_start(m);
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

void cm_machine_free(struct cm_machine *m)
{
	if (!m)
		return;
	/* Nobody pauses here: calls on queues and other threads are over, the workers end after
	 * their op. */
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		if (m->queue[i])
			atomic_store(&m->queue[i]->cancel, true);
	}
	if (m->worker)
		cm_lead_stop(m);
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		struct cm_queue *q = m->queue[i];

		if (q)
			cm_queue_fail_with(q, TXDA_FAULT_LOST, 0, 0);
	}
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++)
		cm_queue_free(m->queue[i]);
	while (m->vms)
		cm_vm_free(m->vms);
	for (unsigned i = 0; m->chip && i < m->n_chips; i++) {
		if (m->chip[i].dram_fd >= 0)
			close(m->chip[i].dram_fd);
		pthread_mutex_destroy(&m->chip[i].sensor_lock);
	}
	if (m->shared.ptr)
		munmap(m->shared.ptr, m->shared.mapped);
	for (unsigned i = 0; i < CM_MAX_CORES; i++) {
		if (m->core[i].ptr)
			munmap(m->core[i].ptr, m->core[i].mapped);
	}
	free(m->worker);
	free(m->chip);
	free(m);
}

unsigned cm_machine_chips(const struct cm_machine *m)
{
	return m->n_chips;
}

unsigned cm_machine_cores(const struct cm_machine *m)
{
	return m->cores;
}

const char *cm_machine_isa(const struct cm_machine *m)
{
	return m->isa;
}

struct cm_chip *cm_machine_chip(struct cm_machine *m, unsigned index)
{
	return index < m->n_chips ? &m->chip[index] : NULL;
}

int cm_chip_dram_fd(const struct cm_chip *c)
{
	return c->dram_fd;
}

uint64_t cm_chip_dram_bytes(const struct cm_chip *c)
{
	return c->dram_bytes;
}

uint64_t cm_chip_time_ns(const struct cm_chip *c)
{
	(void)c;
	return cm_now_ns();
}
