// SPDX-License-Identifier: MIT
#include "clock.h"
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- log ------------------------------------------------------------------------------------- */

_Static_assert((unsigned)VU_LOG_ERROR == TXDA_FW_LOG_ERROR &&
		       (unsigned)VU_LOG_LEVELS == TXDA_FW_LOG_LEVEL_COUNT,
	       "the same levels");

void vu_device_log(struct vu_device *d, enum vu_log_level level, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	vu_log(level, (int)d->index, "%s", text);
	if (!atomic_load(&d->gone) && !atomic_load(&d->hung))
		vu_fwlog_add(&d->fwlog, (struct txda_fw_log_entry *)(d->dram + VU_FWLOG_AT),
			     (uint8_t)level, cm_chip_time_ns(d->chip), text);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void log_power_on(struct vu_device *d)
{
	vu_device_log(d, VU_LOG_INFO, "power on: %s, %s, %llu MiB", d->name, d->serial,
		      (unsigned long long)(d->dram_bytes >> 20));
}

/* Restarts counters. lock is held. */
static void start_counting(struct vu_device *d)
{
	struct cm_sensors s;

	cm_chip_sensors(d->chip, &s);
	d->base = (struct vu_sensor_base){
		.busy_ns = s.busy_ns,
		.copy_busy_ns = s.copy_busy_ns,
		.bytes_read = s.bytes_read,
		.bytes_written = s.bytes_written,
		.c2c_sent = s.c2c_sent,
		.c2c_received = s.c2c_received,
		.ecc_corrected = s.ecc_corrected,
		.ecc_uncorrected = s.ecc_uncorrected,
	};
	memset(d->link_errors, 0, sizeof(d->link_errors));
	d->start_ns = clock_ns();
}

/* The effect of a chip reset on registers that belong to no queue or VMID. lock is held. */
static void reset_registers(struct vu_device *d)
{
	d->power_limit_mw = VU_POWER_LIMIT_DEFAULT_MW;
	memset(d->latched, 0, sizeof(d->latched));
	memset(d->staged, 0, sizeof(d->staged));
	for (unsigned i = 0; i < VU_MSIX_VECTORS * 4; i++)
		d->msix_table[i] = i % 4 == 3; /* each vector masked */
}

int vu_device_init(struct vu_device *d, struct vu_machine *machine, struct cm_machine *cm,
		   unsigned index, const struct vu_device_setup *setup)
{
	memset(d, 0, sizeof(*d));
	d->machine = machine;
	d->cm = cm;
	d->index = index;
	d->chip = cm_machine_chip(cm, index);
	d->position = setup->position;
	d->card_chips = setup->card_chips;
	d->card_serial = setup->card_serial;
	snprintf(d->serial, sizeof(d->serial), "%s", setup->serial);
	snprintf(d->name, sizeof(d->name), "TX8 (cmodel, %.16s)", cm_machine_isa(cm));
	d->bar_bytes = setup->bar_bytes;
	d->dram_fd = cm_chip_dram_fd(d->chip);
	d->dram_bytes = cm_chip_dram_bytes(d->chip);
	d->dram = mmap(NULL, d->dram_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->dram_fd, 0);
	if (d->dram == MAP_FAILED)
		return -errno;
	pthread_mutex_init(&d->op_lock, NULL);
	pthread_mutex_init(&d->lock, NULL);
	vu_config_init(&d->config, setup->irq, VU_MSIX_VECTORS, d->bar_bytes,
		       d->card_serial << 8 | d->position);
	vu_irq_init(&d->irq, setup->irq);
	for (unsigned i = 0; i < VU_QUEUES; i++)
		vu_queue_init(&d->queue[i], d, i);
	for (unsigned i = 0; i < VU_VMIDS; i++)
		vu_vm_init(&d->vm[i], d, i);
	reset_registers(d);
	start_counting(d);
	log_power_on(d);
	return 0;
}

void vu_device_fini(struct vu_device *d)
{
	vu_device_detach(d);
	vu_device_reset(d);
	munmap(d->dram, d->dram_bytes);
	pthread_mutex_destroy(&d->op_lock);
	pthread_mutex_destroy(&d->lock);
}

void vu_device_reset(struct vu_device *d)
{
	/* Pauses the model once, instead of for each queue and address space. */
	for (unsigned i = 0; i < VU_QUEUES; i++) {
		if (d->queue[i].cm)
			cm_queue_cancel(d->queue[i].cm);
	}
	cm_machine_hold(d->cm);
	for (unsigned i = 0; i < VU_QUEUES; i++)
		vu_queue_reset(&d->queue[i]);
	for (unsigned i = 0; i < VU_VMIDS; i++)
		vu_vm_reset(&d->vm[i]);
	if (atomic_load(&d->hung))
		cm_chip_stall(d->chip, false);
	cm_machine_release(d->cm);

	pthread_mutex_lock(&d->lock);
	atomic_store(&d->hung, false);
	d->tripped = false;
	d->resets++;
	d->stuck &= ~VU_STUCK_FLUSH;
	memset(&d->faults, 0, sizeof(d->faults));
	d->firmware = (struct vu_firmware){.state = TXDA_FW_RESET};
	reset_registers(d);
	start_counting(d);
	/* The causes of the other sources are gone; the driver waits for this one. */
	vu_irq_ack_queues(&d->irq, UINT64_MAX);
	vu_irq_ack_events(&d->irq, TXDA_IRQ_ALL);
	vu_irq_raise_events(&d->irq, TXDA_IRQ_RESET);
	vu_device_log(d, VU_LOG_INFO, "chip reset");
	pthread_mutex_unlock(&d->lock);
}

void vu_device_request_reset(struct vu_device *d)
{
	if (d->stuck & VU_STUCK_RESET)
		d->resetting = true;
	else
		vu_device_reset(d);
}

/* Releases the pages instead of writing zeros: a reset has to be fast. */
static void clear_dram(struct vu_device *d)
{
	if (fallocate(d->dram_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)d->dram_bytes))
		vu_log(VU_LOG_ERROR, (int)d->index, "cannot clear the DRAM: %s", strerror(errno));
}

void vu_device_flr(struct vu_device *d)
{
	d->stuck = 0;
	d->resetting = false;
	vu_device_reset(d);
	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < VU_QUEUES; i++)
		d->queue[i].state = TXDA_QUEUE_OFF;
	vu_config_reset(&d->config);
	vu_irq_reset(&d->irq);
	vu_irq_set_bus_master(&d->irq, false);
	pthread_mutex_unlock(&d->lock);
	clear_dram(d);
	pthread_mutex_lock(&d->lock);
	vu_device_log(d, VU_LOG_INFO, "function reset");
	pthread_mutex_unlock(&d->lock);
}

void vu_device_power_cycle(struct vu_device *d)
{
	struct cm_sensors s;

	cm_chip_sensors(d->chip, &s);
	if (s.lost)
		vu_device_appear(d);
	else
		vu_device_flr(d);
}

/* ---- the client ------------------------------------------------------------------------------ */

void vu_device_attach(struct vu_device *d)
{
	pthread_mutex_lock(&d->lock);
	d->connected = true;
	pthread_mutex_unlock(&d->lock);
}

void vu_device_detach(struct vu_device *d)
{
	struct vu_guest_removed removed;

	pthread_mutex_lock(&d->lock);
	d->connected = false;
	vu_irq_release(&d->irq);
	vu_irq_set_error_fd(&d->irq, -1);
	vu_guest_remove_all(&d->guest, &removed);
	pthread_mutex_unlock(&d->lock);
	vu_device_forget_translations(d);
	vu_guest_release(&removed);
}

void vu_device_forget_translations(struct vu_device *d)
{
	/* Pauses the model once, instead of for each address space. */
	cm_machine_hold(d->cm);
	for (unsigned i = 0; i < VU_VMIDS; i++)
		vu_vm_forget(&d->vm[i]);
	cm_machine_release(d->cm);
}

void vu_device_power_changed(struct vu_device *d)
{
	bool on;

	pthread_mutex_lock(&d->lock);
	on = vu_device_bus_master(d);
	vu_irq_set_bus_master(&d->irq, on);
	pthread_mutex_unlock(&d->lock);
	if (!on)
		vu_device_forget_translations(d);
}

/* ---- what can be done to a chip from outside --------------------------------------------------
 */

void vu_device_vanish(struct vu_device *d)
{
	pthread_mutex_lock(&d->lock);
	atomic_store(&d->gone, true);
	pthread_mutex_unlock(&d->lock);
	vu_device_reset(d);
}

void vu_device_appear(struct vu_device *d)
{
	/* First the queues, which still belong to the lost chip. */
	vu_device_flr(d);
	cm_chip_revive(d->chip);
	pthread_mutex_lock(&d->lock);
	d->resets = 0;
	d->fwlog.count = 0;
	start_counting(d);
	atomic_store(&d->gone, false);
	log_power_on(d);
	pthread_mutex_unlock(&d->lock);
}

uint32_t vu_device_liveness(struct vu_device *d)
{
	uint64_t ms = atomic_load(&d->hung) ? d->hung_ms : (clock_ns() - d->start_ns) / 1000000;

	return (uint32_t)ms & 0x7fffffff;
}

void vu_device_hang(struct vu_device *d)
{
	if (atomic_load(&d->hung))
		return;
	pthread_mutex_lock(&d->lock);
	d->hung_ms = vu_device_liveness(d);
	atomic_store(&d->hung, true);
	pthread_mutex_unlock(&d->lock);
	cm_chip_stall(d->chip, true);
}

void vu_device_stick(struct vu_device *d, unsigned what)
{
	d->stuck |= what;
}

void vu_device_trip(struct vu_device *d)
{
	pthread_mutex_lock(&d->lock);
	d->tripped = true;
	vu_device_log(d, VU_LOG_ERROR, "too hot: all queues are stopped until a chip reset");
	vu_irq_raise_events(&d->irq, TXDA_IRQ_THERMAL);
	pthread_mutex_unlock(&d->lock);
	for (unsigned i = 0; i < VU_QUEUES; i++)
		vu_queue_lose(&d->queue[i]);
}

bool vu_device_poll(struct vu_device *d, uint64_t *ret_change_ns)
{
	struct cm_sensors s;
	uint32_t events = 0, up = 0;
	bool went_down;

	for (unsigned p = 0; p < vu_device_ports(d); p++)
		up |= (uint32_t)vu_device_link_up(d, p) << p;
	cm_chip_sensors(d->chip, &s);
	*ret_change_ns = s.change_ns;
	pthread_mutex_lock(&d->lock);
	if (s.ecc_corrected != d->seen_corrected || s.ecc_uncorrected != d->seen_uncorrected) {
		events |= TXDA_IRQ_ECC;
		vu_device_log(d, VU_LOG_WARNING, "memory errors: %u corrected, %u uncorrected",
			      s.ecc_corrected - d->base.ecc_corrected,
			      s.ecc_uncorrected - d->base.ecc_uncorrected);
	}
	if (s.hot != d->seen_hot) {
		events |= TXDA_IRQ_THERMAL;
		vu_device_log(d, VU_LOG_WARNING, "throttling by heat %s",
			      s.hot ? "begins" : "ends");
	}
	if (up != d->seen_up)
		events |= TXDA_IRQ_LINK;
	went_down = d->seen_up & ~up;
	for (unsigned p = 0; p < vu_device_ports(d); p++) {
		d->link_errors[p] += (d->seen_up & ~up) >> p & 1;
		if ((d->seen_up ^ up) >> p & 1)
			vu_device_log(d, up >> p & 1 ? VU_LOG_INFO : VU_LOG_WARNING,
				      "port %u: link %s", p, up >> p & 1 ? "up" : "down");
	}
	d->seen_corrected = s.ecc_corrected;
	d->seen_uncorrected = s.ecc_uncorrected;
	d->seen_hot = s.hot;
	d->seen_up = up;
	if (s.lost)
		atomic_store(&d->gone, true);
	vu_irq_raise_events(&d->irq, events);
	pthread_mutex_unlock(&d->lock);
	if (went_down)
		vu_device_forget_translations(d);
	return s.lost;
}

/* ---- places ---------------------------------------------------------------------------------- */

void *vu_device_at(struct vu_device *d, uint64_t addr, uint64_t bytes, bool write)
{
	uint64_t at = addr & TXDA_ADDR_MASK;

	switch (addr >> TXDA_ADDR_APERTURE_SHIFT) {
	case TXDA_APERTURE_LOCAL:
		return at < d->dram_bytes && bytes <= d->dram_bytes - at ? d->dram + at : NULL;
	case TXDA_APERTURE_SYSTEM:
		return vu_device_bus_master(d) ? vu_guest_at(&d->guest, at, bytes, write) : NULL;
	default: return NULL;
	}
}
