// SPDX-License-Identifier: GPL-2.0
#include "ras.h"

#include "device.h"

void txda_ras_init(struct txda_device *tdev)
{
	spin_lock_init(&tdev->ras.lock);
}

static u32 txda_ras_reg(enum txda_ras_kind kind)
{
	switch (kind) {
	case TXDA_RAS_ECC_CORRECTED:
		return TXDA_REG_ECC_CORRECTED;
	case TXDA_RAS_ECC_UNCORRECTED:
		return TXDA_REG_ECC_UNCORRECTED;
	default:
		return TXDA_REG_PORT(kind - TXDA_RAS_PORT) + TXDA_PORT_ERRORS;
	}
}

int txda_ras_get(struct txda_device *tdev, enum txda_ras_kind kind, u64 *ret_total)
{
	struct txda_ras *ras = &tdev->ras;
	int err = -ENODEV;
	u32 value;

	spin_lock(&ras->lock);
	value = txda_read(tdev, txda_ras_reg(kind));
	if (txda_device_alive(tdev)) {
		*ret_total = txda_total_add(&ras->count[kind], value);
		err = 0;
	}
	spin_unlock(&ras->lock);
	return err;
}

void txda_ras_save(struct txda_device *tdev)
{
	u64 total;
	u32 kind;

	for (kind = 0; kind < TXDA_RAS_PORT + tdev->n_ports; kind++)
		if (txda_ras_get(tdev, kind, &total))
			return;
}

void txda_ras_restart(struct txda_device *tdev)
{
	struct txda_ras *ras = &tdev->ras;
	u32 kind;

	spin_lock(&ras->lock);
	for (kind = 0; kind < TXDA_RAS_KINDS; kind++)
		txda_total_restart(&ras->count[kind]);
	spin_unlock(&ras->lock);
}
