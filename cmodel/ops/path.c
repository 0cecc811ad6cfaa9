// SPDX-License-Identifier: MIT
/*
 * One SIMD path: compiled once per target, with its name in CM_PATH; CM_BF16_DOT, CM_TILES and
 * CM_NEON and CM_VNNI say what the target has beyond its flags. With CM_TILES it is only what tiles
 * change of the path avx512bf16, with CM_VNNI what AVX-VNNI changes of avx2. See simd.h.
 */
#include "simd.h"
#include "txda_isa.h"
#include "vec.h"

/* Weights in groups are expanded to bf16 rather than float32. */
#if defined(CM_BF16_DOT) && VL == 16
#define CM_GROUP_DOT
#endif

#if defined(__AVX2__) /* and AVX-512 */
#define CM_GROUPS_I16
#endif

#if defined(CM_TILES) || defined(CM_VNNI)
/* The headers define the functions of that path, too, which are called there. */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "kern_cases.h"
#include "kern_rows.h"
#include "kern_finish.h"
#if VL == 8
#include "kern_avx2.h"
#else
#include "kern_linear.h"
#endif
#include "kern_two_level.h"
#include "kern_group.h"
#include "kern_tiles.h"
#include "kern_attention.h"
#include "kern_index.h"
#include "kern_delta.h"
#include "kern_vision.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)
#define STRING2(a)   #a
#define STRING(a)    STRING2(a)

#if defined(CM_TILES) || defined(CM_VNNI)
void PASTE(cm_simd_put_, CM_PATH)(struct cm_simd *s); /* simd.h, or that of a test */

void PASTE(cm_simd_put_, CM_PATH)(struct cm_simd *s)
{
#if defined(CM_TILES)
	*s = cm_simd_avx512bf16;
	s->tiles = true;
	s->rest = rest;
	s->mr = s->mr_i8 = 32;
	s->pack_bf16 = tile_pack_bf16;
	s->pack_i8 = tile_pack_i8;
	s->panel_bf16 = tile_panel_bf16;
	s->panel_w8 = tile_panel_w8;
	s->panel_w4 = tile_panel_w4;
	s->attend = tile_attend;
#else
	*s = cm_simd_avx2;
	s->w8_words = false;
	s->pack_i8 = pack_i8;
	s->panel_w8 = panel_w8;
	s->panel_w4 = panel_w4;
	s->panel_i16 = panel_i16;
#endif
	s->name = STRING(CM_PATH);
}
#else
const struct cm_simd PASTE(cm_simd_, CM_PATH) = {
	.name = STRING(CM_PATH),
#if !defined(CM_BF16_DOT)
	.bf16_floats = true,
#endif
#if !defined(CM_GROUP_DOT)
	.group_floats = true,
#endif
#if defined(UNPACK_ROWS)
	.unpack_group = unpack_group,
	.unpack_rows = UNPACK_ROWS,
#endif
#if defined(CM_GROUPS_I16)
	.groups_i16 = true,
#endif
#if VL == 8
	.mr_i16 = AVX2_ROWS,
	.w8_words = true,
#else
	.mr_i16 = CM_MR_I16,
#endif
	.mr_group = GROUP_MR,
	.mr = 12,
	.mr_i8 = CM_MR_I8,
	.pack_bf16 = pack_bf16,
	.pack_i8 = pack_i8,
	.panel_bf16 = panel_bf16,
	.panel_w8 = panel_w8,
	.panel_w4 = panel_w4,
	.rmsnorm = rmsnorm,
	.from_bf16 = from_bf16,
	.to_bf16 = to_bf16,
#if VL == 16 || !(defined(__AVX2__) || defined(CM_NEON))
	.from_f16 = from_f16,
#endif
	.pack_f32 = pack_f32,
	.interleave = interleave,
	.panel_f16 = panel_f16,
	.panel_f32 = panel_f32,
	.pack_i16 = pack_i16,
	.panel_i16 = panel_i16,
	.pack_group = pack_group,
	.panel_group = panel_group,
	.rotate = rotate,
	.put_every_other = put_every_other,
	.put = put,
	.attend = attend,
	.index_scores = index_scores,
	.delta_step = delta_step,
	.row_max = row_max,
	.sum_exp = sum_exp,
	.add = add_rows,
	.blend = blend,
	.next_above = next_above,
	.layernorm = layernorm,
};
#endif
