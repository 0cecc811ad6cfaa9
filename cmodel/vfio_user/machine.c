// SPDX-License-Identifier: MIT
#include "machine.h"
#include "crc32c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAR_DEFAULT_MAX (4ull << 30)

static uint64_t default_bar(uint64_t mem_bytes)
{
	uint64_t bar = VU_MEM_MIN;

	while (bar < mem_bytes && bar < BAR_DEFAULT_MAX)
		bar <<= 1;
	return bar;
}

static int init_device(struct vu_machine *m, unsigned index, const struct vu_machine_options *opt)
{
	const char *identity = opt->identity ? opt->identity : "";
	uint32_t hash = crc32c(0, identity, strlen(identity));
	unsigned card = index / VU_CARD_CHIPS, left = opt->chips - card * VU_CARD_CHIPS;
	char serial[TXDA_SERIAL_BYTES + 1];
	struct vu_device_setup setup = {
		.position = index % VU_CARD_CHIPS,
		.card_chips = left < VU_CARD_CHIPS ? left : VU_CARD_CHIPS,
		/* Never 0, and unique on the machine. */
		.card_serial = 0x8000000000ull | (uint64_t)hash << 4 | card,
		.serial = serial,
		.bar_bytes = opt->bar_bytes ? opt->bar_bytes : default_bar(opt->mem_bytes),
		.irq = opt->irq,
	};

	snprintf(serial, sizeof(serial), "CM%08X-%03u", hash, index % 1000);
	return vu_device_init(&m->device[index], m, m->cm, index, &setup);
}

static void notify(void *arg)
{
	struct vu_machine *m = arg;

	if (m->changed)
		m->changed(m->arg);
}

static int machine_init(struct vu_machine *m, const struct vu_machine_options *opt)
{
	const struct cm_options model = {
		.chips = opt->chips,
		.mem_bytes = opt->mem_bytes,
		.cores = opt->cores,
		.interrupt = opt->interrupt,
	};
	uint64_t lost;
	int err;

	m->changed = opt->changed;
	m->arg = opt->arg;
	err = cm_machine_new(&model, &m->cm);
	if (err)
		return err;
	m->device = calloc(opt->chips, sizeof(*m->device));
	if (!m->device)
		return -ENOMEM;
	for (unsigned i = 0; i < opt->chips; i++) {
		err = init_device(m, i, opt);
		if (err)
			return err;
		m->n_devices = i + 1;
	}
	/* The initial state raises no events. */
	vu_machine_poll(m, &lost);
	for (unsigned i = 0; i < opt->chips; i++) {
		vu_irq_ack_events(&m->device[i].irq, TXDA_IRQ_ALL);
		cm_chip_set_notify(m->device[i].chip, notify, m);
	}
	return 0;
}

int vu_machine_new(const struct vu_machine_options *opt, struct vu_machine **ret)
{
	struct vu_machine *m;
	int err;

	if (opt->mem_bytes < VU_MEM_MIN || (opt->bar_bytes & (opt->bar_bytes - 1)) ||
	    (opt->bar_bytes && opt->bar_bytes < VU_MEM_MIN))
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	err = machine_init(m, opt);
	if (err) {
		vu_machine_free(m);
		return err;
	}
	*ret = m;
	return 0;
}

void vu_machine_free(struct vu_machine *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n_devices; i++)
		cm_chip_set_notify(m->device[i].chip, NULL, NULL);
	for (unsigned i = 0; i < m->n_devices; i++)
		vu_device_fini(&m->device[i]);
	cm_machine_free(m->cm);
	free(m->device);
	free(m);
}

uint64_t vu_machine_poll(struct vu_machine *m, uint64_t *ret_lost)
{
	uint64_t next = UINT64_MAX;

	*ret_lost = 0;
	/* Two passes: a link is down for both ends if either chip is gone. */
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < m->n_devices; i++) {
			struct vu_device *d = &m->device[i];
			uint64_t change_ns;

			pthread_mutex_lock(&d->op_lock);
			if (vu_device_poll(d, &change_ns))
				*ret_lost |= 1ull << i;
			pthread_mutex_unlock(&d->op_lock);
			if (change_ns < next)
				next = change_ns;
		}
	}
	return next;
}

struct vu_device *vu_device_peer(struct vu_device *d, unsigned port)
{
	unsigned position = port < d->position ? port : port + 1;

	return d->machine->device + (d->index - d->position + position);
}

unsigned vu_device_peer_port(const struct vu_device *d, unsigned port)
{
	/* A chip's ports lead to the others in order. */
	return port < d->position ? d->position - 1 : d->position;
}

bool vu_device_link_up(struct vu_device *d, unsigned port)
{
	const struct vu_device *peer = vu_device_peer(d, port);

	return !atomic_load(&d->gone) && !atomic_load(&peer->gone) && !cm_chip_link_down(d->chip) &&
	       !cm_chip_link_down(peer->chip);
}
