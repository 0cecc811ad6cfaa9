/* SPDX-License-Identifier: MIT */
/*
 * One token of a head of DELTA_RULE. Included by path.c; see simd.h. Lanes are elements of a value;
 * sums over a key add its elements in ascending order.
 */

static void delta_step(float *s, unsigned k_dim, unsigned v_dim, const float *q, const float *k,
		       const float *v, float decay, float beta, float *out, float *tmp)
{
	for (unsigned d = 0; d < v_dim; d += VL)
		v_store(tmp + d, (vf){0});
	for (unsigned i = 0; i < k_dim; i++)
		for (unsigned d = 0; d < v_dim; d += VL) {
			vf x = v_load(s + i * v_dim + d) * v_set1(decay);

			v_store(s + i * v_dim + d, x);
			v_store(tmp + d, v_fma(x, v_set1(k[i]), v_load(tmp + d)));
		}
	for (unsigned d = 0; d < v_dim; d += VL) {
		v_store(tmp + d, (v_load(v + d) - v_load(tmp + d)) * v_set1(beta));
		v_store(out + d, (vf){0});
	}
	for (unsigned i = 0; i < k_dim; i++)
		for (unsigned d = 0; d < v_dim; d += VL) {
			vf x = v_fma(v_load(tmp + d), v_set1(k[i]), v_load(s + i * v_dim + d));

			v_store(s + i * v_dim + d, x);
			v_store(out + d, v_fma(x, v_set1(q[i]), v_load(out + d)));
		}
}
