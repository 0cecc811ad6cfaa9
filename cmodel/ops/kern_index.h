/* SPDX-License-Identifier: MIT */
/*
 * Scores of an indexer's keys. Included by path.c; see simd.h. A key's score does not depend on
 * others: heads are added in ascending order, and a product is summed per lane and then over the
 * lanes.
 */

#define INDEX_HEADS 4 /* that share one reading of a key */

static void index_scores(float *scores, const float *q, const float *weights, unsigned heads,
			 unsigned dim, const uint16_t *keys, unsigned n)
{
	for (unsigned i = 0; i < n; i++, keys += dim) {
		float score = 0;

		for (unsigned h = 0; h < heads; h += INDEX_HEADS) {
			unsigned rows = heads - h < INDEX_HEADS ? heads - h : INDEX_HEADS;
			vf sum[INDEX_HEADS] = {{0}};

			for (unsigned d = 0; d < dim; d += VL) {
				vf k = v_load_bf16(keys + d);

				for (unsigned r = 0; r < rows; r++)
					sum[r] = v_fma(v_load(q + (h + r) * dim + d), k, sum[r]);
			}
			for (unsigned r = 0; r < rows; r++) {
				float x = v_sum(sum[r]);

				score += weights[h + r] * (x < 0 ? 0 : x);
			}
		}
		scores[i] = score;
	}
}
