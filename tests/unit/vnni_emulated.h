/* SPDX-License-Identifier: MIT */
/* The instructions of kern_avx2_vnni.h as functions, so that its kernels run on any CPU with AVX2. */
#ifndef VNNI_EMULATED_H
#define VNNI_EMULATED_H

#include <immintrin.h>

static inline __m256i vpdpwssd(__m256i sum, __m256i w, __m256i x)
{
	return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}

/* Unsigned bytes of @w times signed ones of @x: the even ones and the odd ones. */
static inline __m256i vpdpbusd(__m256i sum, __m256i w, __m256i x)
{
	__m256i even = _mm256_and_si256(w, _mm256_set1_epi16(255));

	sum = vpdpwssd(sum, even, _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
	return vpdpwssd(sum, _mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
}

#define DOT_ROW(insn, nv, sum, w, word)                                                            \
	EACH(vector, nv)                                                                           \
	(sum)[vector] = (__typeof__((sum)[0]))insn((__m256i)(sum)[vector], (__m256i)(w)[vector],   \
						   _mm256_set1_epi32((int)(word)))

#endif /* VNNI_EMULATED_H */
