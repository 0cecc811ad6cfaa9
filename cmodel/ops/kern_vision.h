/* SPDX-License-Identifier: MIT */
/* Row kernels of vision towers. Included by path.c; see simd.h. */

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
