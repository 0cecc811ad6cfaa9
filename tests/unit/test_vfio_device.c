// SPDX-License-Identifier: MIT
/* The function: configuration space, registers, firmware, interrupts, resets. */
#include "vfio_fixture.h"
#include "crc32c.h"
#include "txda_firmware.h"

#include <errno.h>
#include <linux/pci_regs.h>
#include <time.h>

#define PM   0x40
#define MSG  0x48
#define PCIE 0x60

static struct vf f;
static struct vf_chip *const c = &f.c[0];

/* A chip that is only attached. */
static int attach(void **state)
{
	vf_new(&f, 1, VU_IRQ_MODE_MSIX, 0);
	vf_attach(&f, c);
	return 0;
}

/* Chips that run. */
static void start(unsigned chips)
{
	vf_start(&f, chips, VU_IRQ_MODE_MSIX);
	vf_space(c, 0);
}

static int start_1(void **state)
{
	start(1);
	return 0;
}

static int start_2(void **state)
{
	start(2);
	return 0;
}

static int start_3(void **state)
{
	start(3);
	return 0;
}

static int teardown(void **state)
{
	vf_free(&f);
	return 0;
}

static void do_locked(void (*what)(struct vu_device *d))
{
	pthread_mutex_lock(&c->d->op_lock);
	what(c->d);
	pthread_mutex_unlock(&c->d->op_lock);
}

static void stick(unsigned what)
{
	pthread_mutex_lock(&c->d->op_lock);
	vu_device_stick(c->d, what);
	pthread_mutex_unlock(&c->d->op_lock);
}

static void nap_ms(unsigned ms)
{
	const struct timespec ts = {ms / 1000, ms % 1000 * 1000000l};

	nanosleep(&ts, NULL);
}

/* ---- configuration space --------------------------------------------------------------------- */

TEST_WITH(test_config, attach, teardown)
{
	assert_int_equal(vf_config32(c, PCI_VENDOR_ID), TXDA_PCI_DEVICE << 16 | TXDA_PCI_VENDOR);
	assert_int_equal(vf_config32(c, PCI_CLASS_REVISION) >> 8, TXDA_PCI_CLASS);
	assert_int_equal(vf_config16(c, PCI_STATUS), PCI_STATUS_CAP_LIST);
	assert_int_equal(vf_config16(c, PCI_COMMAND), 0);
	/* Sizes of the BARs: 64 KiB; 64 MiB, 64-bit, prefetchable; nothing else. */
	for (uint32_t i = 0; i < 6; i++)
		vf_set_config32(c, PCI_BASE_ADDRESS_0 + i * 4, UINT32_MAX);
	vf_set_config32(c, PCI_ROM_ADDRESS, UINT32_MAX);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_0), 0xffff0000);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_1), 0);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_2), 0xfc00000c);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_3), 0xffffffff);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_4), 0);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_5), 0);
	assert_int_equal(vf_config32(c, PCI_ROM_ADDRESS), 0);
	/* What cannot be written. */
	vf_set_config32(c, PCI_VENDOR_ID, 0);
	vf_set_config32(c, PCI_CLASS_REVISION, 0);
	assert_int_equal(vf_config32(c, PCI_VENDOR_ID), TXDA_PCI_DEVICE << 16 | TXDA_PCI_VENDOR);
	assert_int_equal(vf_config32(c, PCI_CLASS_REVISION) >> 8, TXDA_PCI_CLASS);
	vf_set_config16(c, PCI_COMMAND, 0xffff);
	assert_int_equal(vf_config16(c, PCI_COMMAND),
			 PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY |
				 PCI_COMMAND_SERR | PCI_COMMAND_INTX_DISABLE);
	/* The list of capabilities has an end, and these. */
	assert_int_equal(vf_config16(c, PCI_CAPABILITY_LIST) & 0xff, PM);
	assert_int_equal(vf_config16(c, PM), MSG << 8 | PCI_CAP_ID_PM);
	assert_int_equal(vf_config16(c, MSG), PCIE << 8 | PCI_CAP_ID_MSIX);
	assert_int_equal(vf_config16(c, PCIE), PCI_CAP_ID_EXP);
	assert_int_equal(vf_config16(c, MSG + PCI_MSIX_FLAGS), 16);
	assert_int_equal(vf_config32(c, MSG + PCI_MSIX_TABLE), TXDA_MSIX_TABLE);
	assert_int_equal(vf_config32(c, MSG + PCI_MSIX_PBA), TXDA_MSIX_PBA);
	assert_true(vf_config32(c, PCIE + PCI_EXP_DEVCAP) & PCI_EXP_DEVCAP_FLR);
	assert_int_equal(vf_config32(c, 0x100), 0x00010003);
	assert_int_not_equal(vf_config32(c, 0x104), 0);
	vf_free(&f);

	vf_new(&f, 1, VU_IRQ_MODE_MSI, 0);
	vf_attach(&f, c);
	assert_int_equal(vf_config16(c, MSG), PCIE << 8 | PCI_CAP_ID_MSI);
	assert_int_equal(vf_config16(c, MSG + PCI_MSI_FLAGS), PCI_MSI_FLAGS_64BIT);
	vf_set_config16(c, MSG + PCI_MSI_FLAGS, 0xffff);
	assert_int_equal(vf_config16(c, MSG + PCI_MSI_FLAGS),
			 PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_ENABLE | PCI_MSI_FLAGS_QSIZE);
	vf_enable(c);
	/* There is no table. */
	vf_write(c, TXDA_MSIX_TABLE, 5);
	assert_int_equal(vf_read(c, TXDA_MSIX_TABLE), 0);
}

/* Who answers when: memory enable, power states. */
TEST_WITH(test_enables, attach, teardown)
{
	uint32_t value = 0;

	assert_int_equal(vf_read(c, TXDA_REG_MAGIC), UINT32_MAX);
	assert_int_equal(vf_region_read(c, 2, 0, &value, 4), 0);
	assert_int_equal(value, UINT32_MAX);
	vf_write(c, TXDA_REG_POWER_LIMIT_MW, 55555);
	value = 0;
	assert_int_equal(vf_region_write(c, 2, 0, "\x11\x11\x11\x11", 4), 0);
	vf_enable(c);
	assert_int_equal(vf_read(c, TXDA_REG_MAGIC), TXDA_MAGIC);
	assert_int_not_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 55555);
	assert_int_equal(c->dram[0], 0);
	/* D3 and back: no state is lost. D1 and D2 do not exist. */
	vf_write(c, TXDA_REG_POWER_LIMIT_MW, 55555);
	vf_set_config16(c, PM + PCI_PM_CTRL, 3);
	assert_int_equal(vf_read(c, TXDA_REG_MAGIC), UINT32_MAX);
	vf_set_config16(c, PM + PCI_PM_CTRL, 2);
	assert_int_equal(vf_config16(c, PM + PCI_PM_CTRL), PCI_PM_CTRL_NO_SOFT_RESET | 3);
	vf_set_config16(c, PM + PCI_PM_CTRL, 0);
	assert_int_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 55555);
	vf_set_config16(c, PM + PCI_PM_CTRL, 1);
	assert_int_equal(vf_config16(c, PM + PCI_PM_CTRL), PCI_PM_CTRL_NO_SOFT_RESET);
}

/* ---- registers ------------------------------------------------------------------------------- */

TEST_WITH(test_identity, start_3, teardown)
{
	char serial[2][TXDA_SERIAL_BYTES + 1] = {"", ""}, name[TXDA_NAME_BYTES + 1] = "";

	for (unsigned i = 0; i < 3; i++) {
		struct vf_chip *chip = &f.c[i];
		uint32_t live;

		assert_int_equal(vf_read(chip, TXDA_REG_MAGIC), TXDA_MAGIC);
		assert_int_equal(vf_read(chip, TXDA_REG_VERSION),
				 TXDA_REGS_MAJOR << 16 | TXDA_REGS_MINOR);
		assert_int_equal(vf_read(chip, TXDA_REG_ISA),
				 TXDA_ISA_MAJOR << 16 | TXDA_ISA_MINOR);
		assert_int_equal(vf_read(chip, TXDA_REG_CHIP) >> 16, TXDA_CHIP_FAMILY_TX8);
		assert_int_equal(vf_read(chip, TXDA_REG_CAPS), 0x7f);
		assert_int_equal(1ull << vf_read(chip, TXDA_REG_VA_BITS), CM_VA_BYTES);
		assert_int_equal(vf_read(chip, TXDA_REG_QUEUES), 32 << 16 | 32);
		assert_int_equal(vf_read(chip, TXDA_REG_VMIDS), 64);
		assert_int_equal(vf_read64(chip, TXDA_REG_DRAM_LO), VF_MEM);
		assert_int_equal(vf_read64(chip, TXDA_REG_DRAM_RESERVED_LO), 16 << 20);
		assert_int_equal(vf_read64(chip, TXDA_REG_CARD_LO),
				 vf_read64(&f.c[0], TXDA_REG_CARD_LO));
		assert_int_not_equal(vf_read64(chip, TXDA_REG_CARD_LO), 0);
		assert_int_equal(vf_read(chip, TXDA_REG_CARD_POSITION), 3 << 16 | i);
		assert_int_equal(vf_read(chip, TXDA_REG_C2C_PORTS), 2);
		assert_int_equal(vf_read(chip, TXDA_REG_CORES), 2);
		/* All linked with each other, and both ends agree. */
		for (unsigned p = 0; p < 2; p++) {
			uint32_t at = TXDA_REG_PORT(p),
				 peer = vf_read(chip, at + TXDA_PORT_PEER_INDEX);
			uint32_t back = TXDA_REG_PORT(vf_read(chip, at + TXDA_PORT_PEER_PORT));

			assert_int_equal(vf_read(chip, at + TXDA_PORT_STATE), TXDA_PORT_UP);
			assert_int_equal(vf_read64(chip, at + TXDA_PORT_PEER_CARD_LO),
					 vf_read64(chip, TXDA_REG_CARD_LO));
			assert_int_not_equal(peer, i);
			assert_int_equal(vf_read(&f.c[peer], back + TXDA_PORT_PEER_INDEX), i);
			assert_int_equal(vf_read(&f.c[peer], back + TXDA_PORT_PEER_PORT), p);
		}
		assert_int_equal(vf_read(chip, TXDA_REG_PORT(2) + TXDA_PORT_STATE), TXDA_PORT_DOWN);
		live = vf_read(chip, TXDA_REG_LIVENESS);
		nap_ms(5);
		assert_true(vf_read(chip, TXDA_REG_LIVENESS) > live);
		assert_true(vf_read64(chip, TXDA_REG_TIME_LO) > 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned w = 0; w < TXDA_SERIAL_BYTES / 4; w++) {
			uint32_t word = vf_read(&f.c[i], TXDA_REG_SERIAL + w * 4);

			memcpy(serial[i] + w * 4, &word, 4);
		}
	}
	for (unsigned w = 0; w < TXDA_NAME_BYTES / 4; w++) {
		uint32_t word = vf_read(&f.c[0], TXDA_REG_NAME + w * 4);

		memcpy(name + w * 4, &word, 4);
	}
	assert_true(strlen(serial[0]) > 4);
	assert_string_not_equal(serial[0], serial[1]);
	assert_non_null(strstr(name, "cmodel"));
}

/* A chip alone has no links; nine make two cards. */
TEST_WITH(test_cards, start_1, teardown)
{
	const struct vu_machine_options opt = {.chips = 9, .mem_bytes = VF_MEM, .cores = 1};
	struct vu_machine *m;

	assert_int_equal(vf_read(&f.c[0], TXDA_REG_C2C_PORTS), 0);
	assert_false(vf_read(&f.c[0], TXDA_REG_CAPS) & (TXDA_CHIP_C2C | TXDA_CHIP_C2C_TRAFFIC));
	assert_int_equal(vu_machine_new(&opt, &m), 0);
	assert_int_equal(m->device[7].card_chips, 8);
	assert_int_equal(m->device[7].position, 7);
	assert_int_equal(m->device[8].card_chips, 1);
	assert_int_equal(m->device[8].position, 0);
	assert_true(m->device[8].card_serial != m->device[7].card_serial);
	vu_machine_free(m);
}

TEST_WITH(test_access_rules, start_1, teardown)
{
	uint8_t buf[16];
	uint32_t limit;
	uint64_t time;

	limit = vf_read(c, TXDA_REG_POWER_LIMIT_MW);
	/* Only aligned 32 bits. */
	for (unsigned offset = 0; offset < 4; offset++) {
		for (unsigned bytes = 1; bytes <= 8; bytes++) {
			if (offset == 0 && bytes == 4)
				continue;
			memset(buf, 0, sizeof(buf));
			assert_int_equal(vf_region_read(c, 0, offset, buf, bytes), 0);
			for (unsigned i = 0; i < bytes; i++)
				assert_int_equal(buf[i], 0xff);
			assert_int_equal(
				vf_region_write(c, 0, TXDA_REG_POWER_LIMIT_MW + offset, buf, bytes),
				0);
		}
	}
	assert_int_equal(vf_read(c, TXDA_REG_POWER_LIMIT_MW), limit);
	/* What has no name reads 0 and ignores writes. */
	for (uint32_t offset = 0x700; offset < 0x1000; offset += 4) {
		vf_write(c, offset, UINT32_MAX);
		assert_int_equal(vf_read(c, offset), 0);
	}
	vf_write(c, TXDA_REG_MAGIC, 0);
	assert_int_equal(vf_read(c, TXDA_REG_MAGIC), TXDA_MAGIC);
	/* _LO latches _HI. */
	time = vf_read64(c, TXDA_REG_TIME_LO);
	assert_int_equal(vf_read(c, TXDA_REG_TIME_HI), time >> 32);
	/* _LO alone changes nothing. */
	vf_write(c, TXDA_REG_FW_IMAGE_LO, 0x1234);
	assert_int_equal(vf_read64(c, TXDA_REG_FW_IMAGE_LO), 4096);
	vf_write(c, TXDA_REG_FW_IMAGE_HI, 7);
	assert_int_equal(vf_read64(c, TXDA_REG_FW_IMAGE_LO), 0x700001234);
	/* The table of MSI-X is memory, each vector masked at first. */
	for (uint32_t v = 0; v < 17; v++)
		assert_int_equal(vf_read(c, TXDA_MSIX_TABLE + v * 16 + 12), 1);
	vf_write(c, TXDA_MSIX_TABLE + 16 * 16, 0xfee00000);
	assert_int_equal(vf_read(c, TXDA_MSIX_TABLE + 16 * 16), 0xfee00000);
	vf_write(c, TXDA_MSIX_TABLE + 17 * 16, 0xfee00000);
	assert_int_equal(vf_read(c, TXDA_MSIX_TABLE + 17 * 16), 0);
}

TEST_WITH(test_sensors, start_1, teardown)
{
	assert_in_range(vf_read(c, TXDA_REG_POWER_MW), 1000, 100000);
	assert_in_range(vf_read(c, TXDA_REG_TEMP_MC), 10000, 90000);
	assert_true(vf_read(c, TXDA_REG_TEMP_LIMIT_MC) < vf_read(c, TXDA_REG_TEMP_TRIP_MC));
	assert_in_range(vf_read(c, TXDA_REG_CLOCK_KHZ), 1, vf_read(c, TXDA_REG_CLOCK_MAX_KHZ));
	assert_int_equal(vf_read(c, TXDA_REG_THROTTLE), 0);
	/* The limit holds itself within what the chip can do. */
	vf_write(c, TXDA_REG_POWER_LIMIT_MW, 1);
	assert_in_range(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 1000, 50000);
	vf_write(c, TXDA_REG_POWER_LIMIT_MW, UINT32_MAX);
	assert_in_range(vf_read(c, TXDA_REG_POWER_LIMIT_MW), 50000, 200000);
}

/* ---- firmware -------------------------------------------------------------------------------- */

static uint32_t boot(const struct txda_firmware *h, uint64_t at, uint32_t bytes)
{
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	if (at < VF_MEM - sizeof(*h))
		memcpy(c->dram + at, h, sizeof(*h));
	vf_write64(c, TXDA_REG_FW_IMAGE_LO, at);
	vf_write(c, TXDA_REG_FW_IMAGE_BYTES, bytes);
	vf_write(c, TXDA_REG_FW_CTRL, TXDA_FW_BOOT);
	assert_int_equal(vf_read(c, TXDA_REG_FW_STATE),
			 vf_read(c, TXDA_REG_FW_ERROR) ? TXDA_FW_FAILED : TXDA_FW_READY);
	return vf_read(c, TXDA_REG_FW_ERROR);
}

static uint32_t boot_sealed(struct txda_firmware h)
{
	h.crc32c = 0;
	h.crc32c = crc32c(0, &h, sizeof(h));
	return boot(&h, 0, sizeof(h));
}

#define TRY(member, value, want)                                                                   \
	do {                                                                                       \
		struct txda_firmware bad = good;                                                   \
		bad.member = (value);                                                              \
		assert_int_equal(boot_sealed(bad), (want));                                        \
	} while (0)

TEST_WITH(test_firmware, attach, teardown)
{
	struct txda_firmware good = {
		.magic = TXDA_FIRMWARE_MAGIC,
		.header_version = 1,
		.header_bytes = sizeof(good),
		.bytes = sizeof(good),
		.version = TXDA_FIRMWARE_VERSION(3, 4, 5),
		.chip_family = TXDA_CHIP_FAMILY_TX8,
		.regs_version = TXDA_REGS_MAJOR << 16 | TXDA_REGS_MINOR,
		.carveout_bytes = 16 << 20,
	};

	vf_enable(c);
	assert_int_equal(vf_read(c, TXDA_REG_FW_STATE), TXDA_FW_RESET);
	vf_write(c, TXDA_REG_IRQ_EVENTS_ENABLE, TXDA_IRQ_FIRMWARE);
	assert_int_equal(boot_sealed(good), 0);
	assert_int_equal(vf_read(c, TXDA_REG_FW_VERSION), 0x30405);
	assert_true(vf_is_interrupted(c, 0));
	assert_true(vf_read(c, TXDA_REG_IRQ_EVENTS) & TXDA_IRQ_FIRMWARE);
	/* Once is enough. */
	vf_write(c, TXDA_REG_FW_CTRL, TXDA_FW_BOOT);
	assert_int_equal(vf_read(c, TXDA_REG_FW_STATE), TXDA_FW_READY);
	assert_int_equal(vf_read(c, TXDA_REG_FW_ERROR), EBUSY);
	TRY(magic, 0, ENOEXEC);
	TRY(header_version, 2, EPROTO);
	TRY(header_bytes, 120, ENOEXEC);
	TRY(bytes, sizeof(good) + 8, ENOEXEC);
	TRY(payload_bytes, 8, ENOEXEC);
	TRY(flags, 1, ENOEXEC);
	TRY(reserved[5], 1, ENOEXEC);
	TRY(carveout_bytes, 4096, ENOEXEC);
	TRY(carveout_bytes, VF_MEM, ENOSPC);
	TRY(chip_family, 9, EPROTO);
	TRY(regs_version, (TXDA_REGS_MAJOR + 1) << 16, EPROTO);
	TRY(regs_version, TXDA_REGS_MAJOR << 16 | (TXDA_REGS_MINOR + 1), EPROTO);
	assert_int_equal(boot(&good, 0, sizeof(good)), EBADMSG);
	good.crc32c = crc32c(0, &good, sizeof(good));
	assert_int_equal(boot(&good, 0, sizeof(good)), 0);
	assert_int_equal(boot(&good, 0, sizeof(good) - 1), EINVAL);
	assert_int_equal(boot(&good, 0, UINT32_MAX), EINVAL);
	assert_int_equal(boot(&good, 1, sizeof(good)), EINVAL);
	/* The log takes up the end of the reserved part. */
	assert_int_equal(boot(&good, VU_FWLOG_AT, sizeof(good)), EINVAL);
	assert_int_equal(boot(&good, VU_FWLOG_AT - 4096, 8192), EINVAL);
	assert_int_equal(boot(&good, 16 << 20, sizeof(good)), EINVAL);
	assert_int_equal(boot(&good, UINT64_MAX - 4095, sizeof(good)), EINVAL);
	assert_int_equal(boot(&good, VU_FWLOG_AT - 4096, sizeof(good)), 0);
}

/* ---- log ------------------------------------------------------------------------------------- */

/* Message @number, where it has to be. */
static const struct txda_fw_log_entry *message(uint64_t number)
{
	const struct txda_fw_log_entry *ring = (const void *)(c->dram + VU_FWLOG_AT);

	return &ring[(number - 1) % VU_FWLOG_ENTRIES];
}

static uint64_t messages(void)
{
	return vf_read64(c, TXDA_REG_FW_LOG_COUNT_LO);
}

static void check_last(enum txda_fw_log_level level, const char *text)
{
	const struct txda_fw_log_entry *e = message(messages());

	assert_int_equal(e->number, messages());
	assert_int_equal(e->level, level);
	assert_in_range(e->time_ns, 1, vf_read64(c, TXDA_REG_TIME_LO));
	assert_string_equal((const char *)e->text, text);
}

TEST_WITH(test_log, attach, teardown)
{
	char longest[2 * sizeof(message(1)->text)];
	uint64_t count;

	vf_enable(c);
	assert_int_equal(vf_read(c, TXDA_REG_FW_LOG_ENTRIES), VU_FWLOG_ENTRIES);
	assert_int_equal(message(1)->number, 1);
	assert_non_null(strstr((const char *)message(1)->text, "power on: TX8 (cmodel"));
	vf_write(c, TXDA_REG_FW_CTRL, TXDA_FW_BOOT);
	check_last(TXDA_FW_LOG_INFO, "firmware: state 3, version 0x0, error 22");
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	check_last(TXDA_FW_LOG_INFO, "chip reset");

	/* The oldest go, and a text is cut. */
	count = messages();
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	pthread_mutex_lock(&c->d->lock);
	for (unsigned i = 0; i < 2 * VU_FWLOG_ENTRIES; i++)
		vu_device_log(c->d, VU_LOG_DEBUG, "%s %u", longest, i);
	vu_device_log(c->d, VU_LOG_ERROR, "%s", "short");
	pthread_mutex_unlock(&c->d->lock);
	assert_int_equal(messages(), count + 2 * VU_FWLOG_ENTRIES + 1);
	check_last(TXDA_FW_LOG_ERROR, "short");
	count = messages();
	assert_memory_equal(message(count - 1)->text, longest, sizeof(message(1)->text));
	assert_int_equal(message(count - VU_FWLOG_ENTRIES + 1)->number,
			 count - VU_FWLOG_ENTRIES + 1);

	/* A chip reset keeps it. A function reset clears it and counts on. A hung chip says nothing. */
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(message(count)->number, count);
	vf_set_config16(c, PCIE + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
	vf_enable(c);
	assert_true(messages() > count);
	assert_int_equal(message(count)->number, 0);
	check_last(TXDA_FW_LOG_INFO, "function reset");
	count = messages();
	do_locked(vu_device_hang);
	pthread_mutex_lock(&c->d->lock);
	vu_device_log(c->d, VU_LOG_INFO, "nothing");
	pthread_mutex_unlock(&c->d->lock);
	assert_int_equal(messages(), count);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

static void raise(unsigned queue)
{
	pthread_mutex_lock(&c->d->lock);
	vu_irq_raise_queue(&c->d->irq, queue);
	pthread_mutex_unlock(&c->d->lock);
}

TEST_WITH(test_sources, start_1, teardown)
{
	vf_write(c, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
	for (unsigned q = 0; q < 64; q++) {
		unsigned vector = 1 + q % 16;

		vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 1ull << q);
		assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO), 1ull << q);
		raise(q);
		assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_LO), 1ull << q);
		for (unsigned v = 0; v < VU_MSIX_VECTORS; v++)
			assert_int_equal(vf_is_interrupted(c, v), v == vector);
		/* Once while it is set; again when it is set after it was cleared. */
		raise(q);
		assert_false(vf_is_interrupted(c, vector));
		vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, ~(1ull << q));
		assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_LO), 1ull << q);
		vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, 1ull << q);
		assert_int_equal(vf_read64(c, TXDA_REG_IRQ_QUEUES_LO), 0);
		raise(q);
		assert_true(vf_is_interrupted(c, vector));
		vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, UINT64_MAX);
	}
	/* Enabled after it was set. */
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 0);
	raise(3);
	raise(20);
	assert_false(vf_is_interrupted(c, 4));
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, UINT64_MAX);
	assert_true(vf_is_interrupted(c, 4));
	assert_true(vf_is_interrupted(c, 5));
	vf_write64(c, TXDA_REG_IRQ_QUEUES_LO, UINT64_MAX);
	/* Bus mastering off: later. */
	vf_set_config16(c, PCI_COMMAND, PCI_COMMAND_MEMORY);
	raise(3);
	assert_false(vf_is_interrupted(c, 4));
	vf_enable(c);
	assert_true(vf_is_interrupted(c, 4));
	/* Another eventfd in place of the first is told what is set. */
	assert_int_equal(vf_set_irqs(c, VU_IRQ_MSIX, VU_IRQ_DATA_EVENTFD | VU_IRQ_ACTION_TRIGGER, 4,
				     1, &c->vector[4], 1),
			 0);
	assert_true(vf_is_interrupted(c, 4));
	vf_free(&f);

	/* One vector has it all. */
	vf_start(&f, 1, VU_IRQ_MODE_MSI);
	vf_write64(c, TXDA_REG_IRQ_QUEUES_ENABLE_LO, UINT64_MAX);
	raise(63);
	assert_true(vf_is_interrupted(c, 0));
}

/* ---- resets ---------------------------------------------------------------------------------- */

/* After a reset: firmware, page tables and queue 0 are there again. */
static void start_again(void)
{
	assert_int_equal(vf_boot(c), TXDA_FW_READY);
	c->next_table = VF_TABLES;
	memset(c->root, 0, sizeof(c->root));
	vf_space(c, 0);
	vf_queue_start(c, 0, 0);
}

TEST_WITH(test_chip_reset, start_1, teardown)
{
	uint32_t count;

	count = vf_read(c, TXDA_REG_RESET_COUNT);
	vf_space(c, 3);
	vf_queue_start(c, 0, 3);
	vf_queue_start(c, 40, 3);
	vf_write(c, TXDA_REG_IRQ_EVENTS_ENABLE, TXDA_IRQ_RESET);
	c->dram[VF_DATA] = 42;
	/* Only the right word resets. */
	vf_write(c, TXDA_REG_RESET, 1);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_read(c, TXDA_REG_RESET), 0);
	assert_true(vf_is_interrupted(c, 0));
	assert_int_equal(vf_read(c, TXDA_REG_IRQ_EVENTS), TXDA_IRQ_RESET);
	assert_int_equal(vf_read(c, TXDA_REG_RESET_COUNT), count + 1);
	assert_int_equal(vf_read(c, TXDA_REG_FW_STATE), TXDA_FW_RESET);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_LOST);
	assert_int_equal(vf_queue_state(c, 40), TXDA_QUEUE_LOST);
	assert_int_equal(vf_queue_state(c, 1), TXDA_QUEUE_OFF);
	assert_int_equal(vf_read64(c, TXDA_REG_QUEUE(0) + TXDA_QUEUE_RING_LO), 0);
	assert_int_equal(vf_read64(c, TXDA_REG_VM(0) + TXDA_VM_ROOT_LO), 0);
	assert_int_equal(vf_read64(c, TXDA_REG_VM(3) + TXDA_VM_ROOT_LO), 0);
	assert_int_equal(c->dram[VF_DATA], 42);
	/* Nothing starts without firmware. */
	vf_queue_set_up(c, 0, 3, 6);
	vf_write(c, TXDA_REG_QUEUE(0) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
	start_again();
	assert_true(vf_run(&f, c, 0, NULL));
}

static void check_fresh(void)
{
	assert_int_equal(vf_config16(c, PCI_COMMAND), 0);
	assert_int_equal(vf_config32(c, PCI_BASE_ADDRESS_0), 0);
	vf_enable(c);
	assert_int_equal(vf_read(c, TXDA_REG_FW_STATE), TXDA_FW_RESET);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
	assert_int_equal(vf_read(c, TXDA_REG_IRQ_EVENTS), 0);
	assert_int_equal(vf_read(c, TXDA_REG_IRQ_EVENTS_ENABLE), 0);
	assert_int_equal(c->dram[VF_DATA], 0);
	assert_int_equal(c->dram[VF_MEM - 1], 0);
}

TEST_WITH(test_flr, start_1, teardown)
{
	for (unsigned i = 0; i < 2; i++) {
		vf_set_config32(c, PCI_BASE_ADDRESS_0, 0xfe000000);
		vf_write(c, TXDA_REG_IRQ_EVENTS_ENABLE, TXDA_IRQ_ALL);
		start_again();
		assert_true(vf_run(&f, c, 0, NULL));
		memset(c->dram + VF_DATA, 1, VF_MEM - VF_DATA);
		if (i)
			assert_int_equal(
				vf_call(c, VU_DEVICE_RESET, NULL, 0, NULL, 0, NULL, 0, NULL), 0);
		else
			vf_set_config16(c, PCIE + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
		check_fresh();
	}
}

/* ---- what is done from outside --------------------------------------------------------------- */

static void look(void)
{
	uint64_t lost;

	vu_machine_poll(f.m, &lost);
}

static void inject(const char *spec)
{
	assert_int_equal(cm_inject(f.m->cm, spec), 0);
	look();
}

/* These events of the chip have come, and are taken. */
static void expect_events(uint32_t events)
{
	look();
	assert_int_equal(vf_read(c, TXDA_REG_IRQ_EVENTS), events);
	vf_write(c, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
}

TEST_WITH(test_events, start_2, teardown)
{
	vf_write(c, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
	vf_write(c, TXDA_REG_IRQ_EVENTS_ENABLE, TXDA_IRQ_ALL);
	expect_events(0);
	inject("ecc-corrected:chip=0");
	expect_events(TXDA_IRQ_ECC);
	assert_int_equal(vf_read(c, TXDA_REG_ECC_CORRECTED), 1);
	assert_true(vf_is_interrupted(c, 0));
	/* A reset of the chip ends the count, and is no error by itself. */
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	vf_write(c, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
	expect_events(0);
	assert_int_equal(vf_read(c, TXDA_REG_ECC_CORRECTED), 0);
	inject("ecc-corrected:chip=0");
	assert_int_equal(vf_read(c, TXDA_REG_ECC_CORRECTED), 1);
	expect_events(TXDA_IRQ_ECC);
	inject("thermal:chip=0");
	expect_events(TXDA_IRQ_THERMAL);
	assert_int_equal(vf_read(c, TXDA_REG_THROTTLE), TXDA_THROTTLE_THERMAL);
	assert_true(vf_read(c, TXDA_REG_TEMP_MC) > vf_read(c, TXDA_REG_TEMP_LIMIT_MC));
	assert_true(vf_read(c, TXDA_REG_TEMP_MC) < vf_read(c, TXDA_REG_TEMP_TRIP_MC));
	inject("clear:chip=0");
	expect_events(TXDA_IRQ_THERMAL);
	/* A link is down for both ends. */
	inject("link-down:chip=1");
	expect_events(TXDA_IRQ_LINK);
	assert_int_equal(vf_read(c, TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_DOWN);
	assert_int_equal(vf_read(c, TXDA_REG_PORT(0) + TXDA_PORT_ERRORS), 1);
	assert_int_equal(vf_read(&f.c[1], TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_DOWN);
	assert_true(vf_read(&f.c[1], TXDA_REG_IRQ_EVENTS) & TXDA_IRQ_LINK);
	inject("clear");
	expect_events(TXDA_IRQ_LINK);
	assert_int_equal(vf_read(c, TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_UP);
}

TEST_WITH(test_lost, start_2, teardown)
{
	vf_queue_start(c, 0, 0);
	inject("lost:chip=0");
	for (uint32_t offset = 0; offset < TXDA_BAR_REGS_BYTES; offset += 252)
		assert_int_equal(vf_read(c, offset), UINT32_MAX);
	assert_int_equal(vf_config32(c, PCI_VENDOR_ID), UINT32_MAX);
	vf_enable(c);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	vf_set_config16(c, PCIE + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
	assert_int_equal(vf_config32(c, PCI_VENDOR_ID), UINT32_MAX);
	assert_int_equal(vf_read(&f.c[1], TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_DOWN);
	/* A reset of the slot brings it back, as good as new. */
	assert_int_equal(vf_call(c, VU_DEVICE_RESET, NULL, 0, NULL, 0, NULL, 0, NULL), 0);
	check_fresh();
	look();
	assert_int_equal(vf_read(&f.c[1], TXDA_REG_PORT(0) + TXDA_PORT_STATE), TXDA_PORT_UP);
	start_again();
	assert_true(vf_run(&f, c, 0, NULL));
}

TEST_WITH(test_hung_and_tripped, start_1, teardown)
{
	struct vf_stream s;
	uint32_t live;
	uint64_t seqno;

	vf_queue_start(c, 0, 0);
	vf_queue_start(c, 1, 0);
	s = vf_stream(c);
	vf_put_fill(&s, VF_VA(VF_DATA), 4096, 1);
	do_locked(vu_device_hang);
	live = vf_read(c, TXDA_REG_LIVENESS);
	seqno = vf_submit(&f, c, 0, &s, 0);
	nap_ms(20);
	assert_int_equal(vf_read(c, TXDA_REG_LIVENESS), live);
	/* Deaf to all but a reset. An injection's end does not revive it either. */
	assert_int_equal(cm_inject(f.m->cm, "clear"), 0);
	vf_write(c, TXDA_REG_QUEUE(0) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	assert_true(*vf_completion(&f, c, 0) < seqno);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	/* It counts again, from anywhere. */
	live = vf_read(c, TXDA_REG_LIVENESS);
	for (unsigned i = 0; i < 1000 && vf_read(c, TXDA_REG_LIVENESS) == live; i++)
		nap_ms(1);
	assert_int_not_equal(vf_read(c, TXDA_REG_LIVENESS), live);
	start_again();
	assert_true(vf_run(&f, c, 0, &s));
	/* Too hot. */
	vf_write(c, TXDA_REG_IRQ_EVENTS, UINT32_MAX);
	do_locked(vu_device_trip);
	assert_true(vf_read(c, TXDA_REG_TEMP_MC) > vf_read(c, TXDA_REG_TEMP_TRIP_MC));
	assert_int_equal(vf_read(c, TXDA_REG_IRQ_EVENTS), TXDA_IRQ_THERMAL);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_LOST);
	assert_int_equal(vf_queue_state(c, 2), TXDA_QUEUE_OFF);
	vf_queue_set_up(c, 0, 0, 6);
	vf_write(c, TXDA_REG_QUEUE(0) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
	assert_int_not_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_true(vf_read(c, TXDA_REG_TEMP_MC) < vf_read(c, TXDA_REG_TEMP_LIMIT_MC));
}

/* What is stuck begins, reads as if it went on, and ends with a reset of the next depth. */
TEST_WITH(test_stuck, start_1, teardown)
{
	const uint32_t flush = TXDA_REG_VM(0) + TXDA_VM_FLUSH;

	vf_write(c, flush, 1);
	assert_int_equal(vf_read(c, flush), 0);
	stick(VU_STUCK_FLUSH);
	vf_write(c, flush, 1);
	assert_int_equal(vf_read(c, flush), 1);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_read(c, TXDA_REG_RESET), 0);
	assert_int_equal(vf_read(c, flush), 0);
	vf_write(c, flush, 1);
	assert_int_equal(vf_read(c, flush), 0);
	/* Now the reset itself. */
	start_again();
	stick(VU_STUCK_RESET);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_read(c, TXDA_REG_RESET), TXDA_RESET_CHIP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	vf_set_config16(c, PCIE + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
	vf_enable(c);
	assert_int_equal(vf_read(c, TXDA_REG_RESET), 0);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_read(c, TXDA_REG_RESET), 0);
	assert_int_equal(vf_boot(c), TXDA_FW_READY);
}

/* A stop that takes its time: the queue does nothing any more and looks as if it went on. */
TEST_WITH(test_slow_stop, start_1, teardown)
{
	const uint32_t progress_lo = TXDA_REG_QUEUE(0) + TXDA_QUEUE_PROGRESS_LO;
	uint64_t progress;

	vf_queue_start(c, 0, 0);
	vf_queue_start(c, 1, 0);
	stick(VU_SLOW_STOP);
	progress = vf_read64(c, progress_lo);
	vf_write(c, TXDA_REG_QUEUE(0) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	assert_true(vf_read64(c, progress_lo) > progress);
	/* Another one is off at once. */
	vf_write(c, TXDA_REG_QUEUE(1) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, 1), TXDA_QUEUE_OFF);
	assert_true(vf_becomes(c, 0, TXDA_QUEUE_OFF));
	vf_queue_start(c, 0, 0);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
}

/* A queue that goes on when it is stopped, until the chip is reset; another one stops. */
TEST_WITH(test_stuck_stop, start_1, teardown)
{
	const uint32_t control = TXDA_REG_QUEUE(0) + TXDA_QUEUE_CTRL;

	vf_queue_start(c, 0, 0);
	vf_queue_start(c, 1, 0);
	stick(VU_STUCK_STOP);
	vf_write(c, control, TXDA_QUEUE_CTRL_STOP);
	vf_write(c, TXDA_REG_QUEUE(1) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_STOP);
	vf_write(c, control, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_RUNNING);
	assert_int_equal(vf_queue_state(c, 1), TXDA_QUEUE_OFF);
	assert_true(vf_run(&f, c, 0, NULL));
	vf_write(c, TXDA_REG_RESET, TXDA_RESET_CHIP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_LOST);
	start_again();
	vf_write(c, control, TXDA_QUEUE_CTRL_STOP);
	assert_int_equal(vf_queue_state(c, 0), TXDA_QUEUE_OFF);
}

TEST_MAIN
