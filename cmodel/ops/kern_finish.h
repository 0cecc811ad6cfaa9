/* SPDX-License-Identifier: MIT */
/*
 * The output of a product's sums: bias, activation, residual, rounding. Included by path.c; see
 * struct cm_put in simd.h.
 */

V_INLINE vf sigmoid_times(vf v, vf minus_x)
{
	return v / (v_set1(1.0f) + v_exp(minus_x));
}

/* -2 sqrt(2 / pi) (x + 0.044715 x^3) */
V_INLINE vf gelu_tanh_exponent(vf x)
{
	return x * v_fma(x * x, v_set1(-0.0713548163f), v_set1(-1.59576912f));
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

V_INLINE vf activate(const unsigned act, vf x, float limit)
{
	switch (act) {
	case TXDA_ACT_SOFTCAP: return v_set1(limit) * v_tanh(x / v_set1(limit));
	case TXDA_ACT_GELU: return gelu_erf(x);
	case TXDA_ACT_GELU_TANH: return sigmoid_times(x, gelu_tanh_exponent(x));
	case TXDA_ACT_GELU_QUICK: return sigmoid_times(x, x * v_set1(-1.702f));
	case TXDA_ACT_SILU: return sigmoid_times(x, -x);
	default: return x;
	}
}

V_INLINE vf gate(const unsigned act, vf g, vf u, float limit)
{
	const vf top = v_set1(limit), bottom = v_set1(-limit);

	if (act == TXDA_ACT_GELU_GATED)
		return sigmoid_times(g, gelu_tanh_exponent(g)) * u;
	if (act == TXDA_ACT_SILU_GATED)
		return sigmoid_times(g, -g) * u;
	g = v_select(g > top, top, g);
	u = v_select(u > top, top, u);
	u = v_select(u < bottom, bottom, u);
	return sigmoid_times(g, v_set1(-1.702f) * g) * (u + v_set1(1.0f));
}

V_INLINE void put_act(const unsigned act, const struct cm_put *p, const float *acc, unsigned rows)
{
	const struct cm_put to = *p;
	const bool gated = txda_is_gated(act);

	for (unsigned r = 0; r < rows; r++, acc += 32)
		for (unsigned i = 0; i < (gated ? 16 : 32); i += VL) {
			size_t at = r * to.stride + i;
			vf v = v_load(acc + i);

			if (to.bias)
				v += v_load(to.bias + i);
			if (gated) {
				vf u = v_load(acc + 16 + i);

				v = gate(act, v, to.bias ? u + v_load(to.bias_up + i) : u,
					 to.limit);
			} else {
				v = activate(act, v, to.limit);
			}
			if (!to.f32)
				v_store_bf16((uint16_t *)to.out + at, v);
			else
				v_store((float *)to.out + at, to.add ? v + v_load(to.add + at) : v);
		}
}

static void put(const struct cm_put *p, const float *acc, unsigned rows)
{
	switch (p->act) {
	case TXDA_ACT_SILU_GATED: put_act(TXDA_ACT_SILU_GATED, p, acc, rows); break;
	case TXDA_ACT_GELU_GATED: put_act(TXDA_ACT_GELU_GATED, p, acc, rows); break;
	case TXDA_ACT_SWIGLU_CLAMPED: put_act(TXDA_ACT_SWIGLU_CLAMPED, p, acc, rows); break;
	case TXDA_ACT_SOFTCAP: put_act(TXDA_ACT_SOFTCAP, p, acc, rows); break;
	case TXDA_ACT_GELU: put_act(TXDA_ACT_GELU, p, acc, rows); break;
	case TXDA_ACT_GELU_TANH: put_act(TXDA_ACT_GELU_TANH, p, acc, rows); break;
	case TXDA_ACT_GELU_QUICK: put_act(TXDA_ACT_GELU_QUICK, p, acc, rows); break;
	case TXDA_ACT_SILU: put_act(TXDA_ACT_SILU, p, acc, rows); break;
	default: put_act(TXDA_ACT_NONE, p, acc, rows);
	}
}
