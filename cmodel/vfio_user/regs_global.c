// SPDX-License-Identifier: MIT
/* Registers that exist once per chip: identity, firmware, interrupts, faults, sensors, reset. */
#include "device.h"
#include "regs.h"

#include <string.h>

#define CHIP_REVISION	1
#define CLOCK_MAX_KHZ	1400000u
#define TEMP_LIMIT_MC	100000
#define TEMP_TRIP_MC	115000
#define TEMP_TRIPPED_MC 118000
#define CAPS                                                                                       \
	(TXDA_CHIP_CMODEL | TXDA_CHIP_PRECISE | TXDA_CHIP_FIRMWARE | TXDA_CHIP_ECC |               \
	 TXDA_CHIP_POWER_LIMIT)

/* ---- identity -------------------------------------------------------------------------------- */

static uint32_t read_caps(struct vu_device *d, unsigned i)
{
	(void)i;
	return CAPS | (vu_device_ports(d) ? TXDA_CHIP_C2C | TXDA_CHIP_C2C_TRAFFIC : 0);
}

static uint32_t read_card_position(struct vu_device *d, unsigned i)
{
	(void)i;
	return d->card_chips << 16 | d->position;
}

static uint32_t read_ports(struct vu_device *d, unsigned i)
{
	(void)i;
	return vu_device_ports(d);
}

static uint32_t read_serial(struct vu_device *d, unsigned offset)
{
	uint32_t word;

	memcpy(&word, d->serial + (offset - TXDA_REG_SERIAL), sizeof(word));
	return word;
}

static uint32_t read_name(struct vu_device *d, unsigned offset)
{
	uint32_t word;

	memcpy(&word, d->name + (offset - TXDA_REG_NAME), sizeof(word));
	return word;
}

static uint32_t read_cores(struct vu_device *d, unsigned i)
{
	(void)i;
	return cm_machine_cores(d->cm);
}

static uint32_t read_liveness(struct vu_device *d, unsigned i)
{
	(void)i;
	return vu_device_liveness(d);
}

static uint64_t read_time(struct vu_device *d, unsigned i)
{
	(void)i;
	return cm_chip_time_ns(d->chip);
}

/* ---- firmware -------------------------------------------------------------------------------- */

static void write_fw_image(struct vu_device *d, unsigned i, uint64_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	d->firmware.image = value;
	pthread_mutex_unlock(&d->lock);
}

static void write_fw_bytes(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	d->firmware.image_bytes = value;
	pthread_mutex_unlock(&d->lock);
}

static void write_fw_ctrl(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	if (value != TXDA_FW_BOOT || atomic_load(&d->hung))
		return;
	pthread_mutex_lock(&d->lock);
	vu_firmware_boot(&d->firmware, d->dram, d->dram_bytes, VU_FWLOG_AT);
	vu_irq_raise_events(&d->irq, TXDA_IRQ_FIRMWARE);
	vu_device_log(d, VU_LOG_INFO, "firmware: state %u, version 0x%x, error %u",
		      d->firmware.state, d->firmware.version, d->firmware.error);
	pthread_mutex_unlock(&d->lock);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

static void write_irq_queues(struct vu_device *d, unsigned i, uint64_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	vu_irq_ack_queues(&d->irq, value);
	pthread_mutex_unlock(&d->lock);
}

static void write_irq_queues_enable(struct vu_device *d, unsigned i, uint64_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	vu_irq_enable_queues(&d->irq, value);
	pthread_mutex_unlock(&d->lock);
}

static void write_irq_events(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	vu_irq_ack_events(&d->irq, value);
	pthread_mutex_unlock(&d->lock);
}

static void write_irq_events_enable(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	pthread_mutex_lock(&d->lock);
	vu_irq_enable_events(&d->irq, value);
	pthread_mutex_unlock(&d->lock);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static uint32_t read_fault_record(struct vu_device *d, unsigned offset)
{
	return vu_faults_word(&d->faults, (offset - TXDA_REG_FAULT_RECORD) / 4);
}

static void write_fault_ack(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	if (value != 1)
		return;
	pthread_mutex_lock(&d->lock);
	vu_faults_ack(&d->faults);
	pthread_mutex_unlock(&d->lock);
}

/* ---- sensors --------------------------------------------------------------------------------- */

static struct cm_sensors sense(struct vu_device *d)
{
	struct cm_sensors s;

	cm_chip_sensors(d->chip, &s);
	return s;
}

static uint32_t read_power(struct vu_device *d, unsigned i)
{
	uint32_t power = sense(d).power_mw;

	(void)i;
	return power < d->power_limit_mw ? power : d->power_limit_mw;
}

static void write_power_limit(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	if (value < VU_POWER_LIMIT_MIN_MW)
		value = VU_POWER_LIMIT_MIN_MW;
	if (value > VU_POWER_LIMIT_MAX_MW)
		value = VU_POWER_LIMIT_MAX_MW;
	pthread_mutex_lock(&d->lock);
	d->power_limit_mw = value;
	pthread_mutex_unlock(&d->lock);
}

static uint32_t read_temp(struct vu_device *d, unsigned i)
{
	(void)i;
	return d->tripped ? TEMP_TRIPPED_MC : (uint32_t)sense(d).temp_mc;
}

static uint32_t read_clock(struct vu_device *d, unsigned i)
{
	struct cm_sensors s = sense(d);

	(void)i;
	if (d->tripped)
		return 0;
	/* At the power limit the clock is reduced in proportion. */
	if (s.power_mw > d->power_limit_mw)
		return (uint32_t)((uint64_t)s.clock_khz * d->power_limit_mw / s.power_mw);
	return s.clock_khz;
}

static uint32_t read_throttle(struct vu_device *d, unsigned i)
{
	struct cm_sensors s = sense(d);

	(void)i;
	return (s.power_mw > d->power_limit_mw ? TXDA_THROTTLE_POWER : 0) |
	       (s.hot || d->tripped ? TXDA_THROTTLE_THERMAL : 0);
}

static uint32_t read_ecc_corrected(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).ecc_corrected - d->base.ecc_corrected;
}

static uint32_t read_ecc_uncorrected(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).ecc_uncorrected - d->base.ecc_uncorrected;
}

static uint64_t read_busy_compute(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).busy_ns - d->base.busy_ns;
}

static uint64_t read_busy_copy(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).copy_busy_ns - d->base.copy_busy_ns;
}

static uint64_t read_dram_read(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).bytes_read - d->base.bytes_read;
}

static uint64_t read_dram_written(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).bytes_written - d->base.bytes_written;
}

static uint64_t read_c2c_sent(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).c2c_sent - d->base.c2c_sent;
}

static uint64_t read_c2c_received(struct vu_device *d, unsigned i)
{
	(void)i;
	return sense(d).c2c_received - d->base.c2c_received;
}

/* ---- reset ----------------------------------------------------------------------------------- */

static uint32_t read_reset(struct vu_device *d, unsigned i)
{
	(void)i;
	return d->resetting ? TXDA_RESET_CHIP : 0;
}

static void write_reset(struct vu_device *d, unsigned i, uint32_t value)
{
	(void)i;
	if (value == TXDA_RESET_CHIP)
		vu_device_request_reset(d);
}

const struct vu_reg vu_regs_global[VU_GLOBAL_WORDS] = {
	VU_CONST(TXDA_REG_MAGIC, TXDA_MAGIC),
	VU_CONST(TXDA_REG_VERSION, TXDA_REGS_MAJOR << 16 | TXDA_REGS_MINOR),
	VU_CONST(TXDA_REG_ISA, TXDA_ISA_MAJOR << 16 | TXDA_ISA_MINOR),
	VU_CONST(TXDA_REG_CHIP, TXDA_CHIP_FAMILY_TX8 << 16 | CHIP_REVISION),
	VU_RO(TXDA_REG_CAPS, read_caps),
	VU_CONST(TXDA_REG_VA_BITS, VU_VA_BITS),
	VU_CONST(TXDA_REG_QUEUES, VU_COPY_QUEUES << 16 | VU_COMPUTE_QUEUES),
	VU_CONST(TXDA_REG_VMIDS, VU_VMIDS),
	VU_FIELD_PAIR(TXDA_REG_DRAM_LO, dram_bytes, NULL),
	VU_CONST_PAIR(TXDA_REG_DRAM_RESERVED_LO, VU_RESERVED_BYTES),
	VU_FIELD_PAIR(TXDA_REG_CARD_LO, card_serial, NULL),
	VU_RO(TXDA_REG_CARD_POSITION, read_card_position),
	VU_RO(TXDA_REG_C2C_PORTS, read_ports),
	VU_RO_WORDS(TXDA_REG_SERIAL, TXDA_SERIAL_BYTES, read_serial),
	VU_RO_WORDS(TXDA_REG_NAME, TXDA_NAME_BYTES, read_name),
	VU_RO(TXDA_REG_CORES, read_cores),
	VU_CONST(TXDA_REG_CLOCK_MAX_KHZ, CLOCK_MAX_KHZ),
	VU_RO(TXDA_REG_LIVENESS, read_liveness),
	VU_PAIR(TXDA_REG_TIME_LO, read_time, NULL),
	VU_FIELD(TXDA_REG_FW_STATE, firmware.state, NULL),
	VU_FIELD(TXDA_REG_FW_VERSION, firmware.version, NULL),
	VU_RW(TXDA_REG_FW_CTRL, NULL, write_fw_ctrl),
	VU_FIELD(TXDA_REG_FW_ERROR, firmware.error, NULL),
	VU_FIELD_PAIR(TXDA_REG_FW_IMAGE_LO, firmware.image, write_fw_image),
	VU_FIELD(TXDA_REG_FW_IMAGE_BYTES, firmware.image_bytes, write_fw_bytes),
	VU_CONST(TXDA_REG_FW_LOG_ENTRIES, VU_FWLOG_ENTRIES),
	VU_FIELD_PAIR(TXDA_REG_FW_LOG_COUNT_LO, fwlog.count, NULL),
	VU_FIELD_PAIR(TXDA_REG_IRQ_QUEUES_LO, irq.queues, write_irq_queues),
	VU_FIELD_PAIR(TXDA_REG_IRQ_QUEUES_ENABLE_LO, irq.queues_enable, write_irq_queues_enable),
	VU_FIELD(TXDA_REG_IRQ_EVENTS, irq.events, write_irq_events),
	VU_FIELD(TXDA_REG_IRQ_EVENTS_ENABLE, irq.events_enable, write_irq_events_enable),
	VU_FIELD(TXDA_REG_FAULT_COUNT, faults.count, NULL),
	VU_RW(TXDA_REG_FAULT_ACK, NULL, write_fault_ack),
	VU_RO_WORDS(TXDA_REG_FAULT_RECORD, TXDA_FAULT_RECORD_BYTES, read_fault_record),
	VU_RO(TXDA_REG_POWER_MW, read_power),
	VU_FIELD(TXDA_REG_POWER_LIMIT_MW, power_limit_mw, write_power_limit),
	VU_RO(TXDA_REG_TEMP_MC, read_temp),
	VU_CONST(TXDA_REG_TEMP_LIMIT_MC, TEMP_LIMIT_MC),
	VU_CONST(TXDA_REG_TEMP_TRIP_MC, TEMP_TRIP_MC),
	VU_RO(TXDA_REG_CLOCK_KHZ, read_clock),
	VU_RO(TXDA_REG_THROTTLE, read_throttle),
	VU_RO(TXDA_REG_ECC_CORRECTED, read_ecc_corrected),
	VU_RO(TXDA_REG_ECC_UNCORRECTED, read_ecc_uncorrected),
	VU_PAIR(TXDA_REG_BUSY_COMPUTE_LO, read_busy_compute, NULL),
	VU_PAIR(TXDA_REG_BUSY_COPY_LO, read_busy_copy, NULL),
	VU_PAIR(TXDA_REG_DRAM_READ_LO, read_dram_read, NULL),
	VU_PAIR(TXDA_REG_DRAM_WRITTEN_LO, read_dram_written, NULL),
	VU_PAIR(TXDA_REG_C2C_SENT_LO, read_c2c_sent, NULL),
	VU_PAIR(TXDA_REG_C2C_RECEIVED_LO, read_c2c_received, NULL),
	/* Reads 0 unless stuck: the write that starts a reset returns when it is done. */
	VU_RW(TXDA_REG_RESET, read_reset, write_reset),
	VU_FIELD(TXDA_REG_RESET_COUNT, resets, NULL),
};
