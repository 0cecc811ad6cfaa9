// SPDX-License-Identifier: MIT
#include "firmware.h"
#include "crc32c.h"
#include "txda_regs.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_ALIGN    4096u
#define CARVEOUT_ALIGN (2ull << 20)

/* The image is a private copy: the host may write to DRAM meanwhile. */
static int check_image(struct txda_firmware *h, uint32_t bytes, uint64_t dram_bytes)
{
	static const uint64_t no_reserved[6];
	uint32_t crc = h->crc32c;

	if (h->magic != TXDA_FIRMWARE_MAGIC)
		return ENOEXEC;
	if (h->header_version != TXDA_FIRMWARE_HEADER_VERSION)
		return EPROTO;
	if (h->header_bytes != sizeof(*h) || h->bytes != bytes || h->payload_bytes % 8 ||
	    h->payload_bytes != bytes - sizeof(*h) || h->flags ||
	    h->carveout_bytes % CARVEOUT_ALIGN ||
	    memcmp(h->reserved, no_reserved, sizeof(no_reserved)))
		return ENOEXEC;
	h->crc32c = 0;
	if (crc32c(0, h, bytes) != crc)
		return EBADMSG;
	if (h->chip_family != TXDA_CHIP_FAMILY_TX8 || h->regs_version >> 16 != TXDA_REGS_MAJOR ||
	    (h->regs_version & 0xffff) > TXDA_REGS_MINOR)
		return EPROTO;
	if (h->carveout_bytes > dram_bytes / 2)
		return ENOSPC;
	return 0;
}

int vu_firmware_check(const uint8_t *dram, uint64_t dram_bytes, uint64_t reserved, uint64_t at,
		      uint32_t bytes, uint32_t *ret_version)
{
	struct txda_firmware *copy;
	int err;

	if (at % IMAGE_ALIGN || bytes < sizeof(*copy) || bytes > TXDA_FIRMWARE_MAX_BYTES ||
	    at > reserved || bytes > reserved - at)
		return EINVAL;
	copy = malloc(bytes);
	if (!copy)
		return ENOMEM;
	memcpy(copy, dram + at, bytes);
	err = check_image(copy, bytes, dram_bytes);
	if (!err)
		*ret_version = copy->version;
	free(copy);
	return err;
}

void vu_firmware_boot(struct vu_firmware *fw, const uint8_t *dram, uint64_t dram_bytes,
		      uint64_t reserved)
{
	if (fw->state == TXDA_FW_READY) {
		fw->error = EBUSY;
		return;
	}
	fw->error = (uint32_t)vu_firmware_check(dram, dram_bytes, reserved, fw->image,
						fw->image_bytes, &fw->version);
	fw->state = fw->error ? TXDA_FW_FAILED : TXDA_FW_READY;
}
