/* SPDX-License-Identifier: MIT */
/*
 * What AVX-VNNI changes of the path avx2: products of integers and their sums are one instruction, of
 * four pairs of bytes or two of int16. Int8 activations are packed as bytes for W8, too. Included by
 * kern_avx2.h.
 */

/*
 * sum[nv] += w[nv] * the word of a row by VPDPBUSD, codes times signed bytes, or VPDPWSSD, int16. Tests
 * put functions in place of them.
 */
#ifndef DOT_ROW
#define DOT_1(insn, sum, w, x) __asm__("%{vex%} " #insn " %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x))
/* For two vectors in one piece, as MADD_2(). */
#define DOT_2(insn, sum, w, word)                                                                  \
	do {                                                                                       \
		__m256i row_word;                                                                  \
                                                                                                   \
		__asm__("vpbroadcastd %5, %2\n\t%{vex%} " #insn " %2, %3, %0\n\t%{vex%} " #insn    \
			" %2, %4, %1"                                                              \
			: "+x"((sum)[0]), "+x"((sum)[1]), "=&x"(row_word)                          \
			: "x"((w)[0]), "x"((w)[1]), "m"(word));                                    \
	} while (0)
#define DOT_ROW(insn, nv, sum, w, word)                                                            \
	do {                                                                                       \
		__m256i broadcast;                                                                 \
                                                                                                   \
		if (nv == 2) {                                                                     \
			DOT_2(insn, sum, w, word);                                                 \
		} else {                                                                           \
			BROADCAST(broadcast, word);                                                \
			EACH(vector, nv)                                                           \
				DOT_1(insn, (sum)[vector], (w)[vector], broadcast);                \
		}                                                                                  \
	} while (0)
#endif

#define MADD_WORDS(nv, sum, w, word) DOT_ROW(vpdpwssd, nv, sum, w, word)

/* d += a block of codes times the rows' bytes. */
V_INLINE void byte_dots(const unsigned rows, const unsigned nv, const unsigned type, vi d[][4],
			const uint8_t *q, const uint32_t *a, unsigned mr)
{
	const unsigned parts = type == TXDA_W4 ? 2 : 1; /* quads that share a load */

	ROLLED
	for (unsigned j = 0; j < 8; j += parts, q += 128)
		EACH(part, parts) {
			__m256i u[4];

			AGAIN(q);
			EACH(v, nv) {
				u[v] = load_codes(q + v * 32);
				if (type == TXDA_W4)
					u[v] = masked(part ? _mm256_srli_epi16(u[v], 4) : u[v],
						      low_nibbles);
			}
			EACH(m, rows)
				DOT_ROW(vpdpbusd, nv, d[m], u, a[m]);
			a += mr;
		}
}
