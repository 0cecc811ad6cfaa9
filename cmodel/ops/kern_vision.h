/* SPDX-License-Identifier: MIT */
/* Row kernels of vision towers: LayerNorm and the activations of one element. Included by path.c;
 * see simd.h. */

static void layernorm(float *out, const float *x, const float *w, const float *b, size_t n,
		      float eps)
{
	vf s[4] = {{0}, {0}, {0}, {0}};
	float mean, sum = 0, scale;
	size_t i = 0;

	for (; i + 4 * VL <= n; i += 4 * VL)
		for (int j = 0; j < 4; j++)
			s[j] += v_load(x + i + j * VL);
	for (; i < n; i++)
		sum += x[i];
	mean = (v_sum((s[0] + s[1]) + (s[2] + s[3])) + sum) / (float)n;
	memset(s, 0, sizeof(s));
	for (sum = 0, i = 0; i + 4 * VL <= n; i += 4 * VL)
		for (int j = 0; j < 4; j++) {
			vf v = v_load(x + i + j * VL) - v_set1(mean);

			s[j] = v_fma(v, v, s[j]);
		}
	for (; i < n; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	scale = 1.0f / sqrtf((v_sum((s[0] + s[1]) + (s[2] + s[3])) + sum) / (float)n + eps);
	for (i = 0; i + VL <= n; i += VL)
		v_store(out + i, (v_load(x + i) - v_set1(mean)) * v_set1(scale) * v_load(w + i) +
					 (b ? v_load(b + i) : v_set1(0)));
	for (; i < n; i++)
		out[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0);
}

/* x times the normal distribution up to x: formula 7.1.26 of Abramowitz and Stegun, within 1e-7. */
V_INLINE vf gelu_erf(vf x)
{
	vf a = v_max(x, -x) * v_set1(0.70710678f), t, p;

	t = v_set1(1.0f) / v_fma(a, v_set1(0.3275911f), v_set1(1.0f));
	p = v_fma(t, v_set1(1.061405429f), v_set1(-1.453152027f));
	p = v_fma(p, t, v_set1(1.421413741f));
	p = v_fma(p, t, v_set1(-0.284496736f));
	p = v_fma(p, t, v_set1(0.254829592f));
	p = p * t * v_exp(-(a * a)) * v_set1(0.5f);
	return x * v_select(x < v_set1(0.0f), p, v_set1(1.0f) - p);
}

/* x[32] = act(x) */
static void activate(float *x, unsigned act)
{
	for (int i = 0; i < 32; i += VL) {
		vf v = v_load(x + i), e;

		switch (act) {
		case TXDA_ACT_GELU: v_store(x + i, gelu_erf(v)); continue;
		case TXDA_ACT_GELU_TANH:
			e = v * v_fma(v * v, v_set1(-0.0713548163f), v_set1(-1.59576912f));
			break;
		case TXDA_ACT_GELU_QUICK: e = v * v_set1(-1.702f); break;
		default: e = -v;
		}
		v_store(x + i, v / (v_set1(1.0f) + v_exp(e)));
	}
}
