/* SPDX-License-Identifier: MIT */
/*
 * In place of driver/gem.h: of struct txda_bo what idle buffers need.
 */
#ifndef KUNIT_GEM_H
#define KUNIT_GEM_H

#include "drm/txda_drm.h"

struct txda_runs;
struct txda_vram_block;

enum txda_bo_kind {
	TXDA_BO_DEVICE,
	TXDA_BO_HOST,
};

struct txda_bo {
	struct {
		size_t size;
	} base;
	enum txda_bo_kind kind;
	atomic_t pins;
	u32 advice;
	struct list_head idle_link;
	struct txda_runs *runs;
	struct txda_vram_block *vram;
};

#endif
