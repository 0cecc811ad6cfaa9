/* SPDX-License-Identifier: MIT */
/*
 * Measures the limits of the machine, of which a benchmark's results are fractions. Each is the
 * best of several short passes on all cores. Shared machines change from minute to minute, so a
 * benchmark measures the limits before and after each timed run, and compares with the mean of both
 * bandwidths and the higher of both product rates.
 */
#ifndef TXDA_BENCH_CEILING_H
#define TXDA_BENCH_CEILING_H

struct ceiling {
	double read_gbs;     /* memory read bandwidth, GB/s */
	double bf16_gflops;  /* products of bf16 values summed in float32, 2 flops each */
	double int8_gops;    /* products of int8 values summed in int32 */
	const char *bf16_by; /* the instruction */
	const char *int8_by;
};

/*
 * Selects the products to measure: those of the device model's path @name ("avx512bf16"), so that a
 * path is compared with its own instructions even if the CPU has faster ones; for any other name
 * the CPU's best. Not during a measurement.
 */
void ceiling_for(const char *name);
/* @threads: cores to load, each with buffers of its own. 0 or -errno. */
int ceiling_measure(unsigned threads, struct ceiling *ret);
/*
 * GB/s of memcpy by @threads threads into freshly allocated memory, for comparison with loading
 * weights.
 */
int ceiling_fresh_copy(unsigned threads, double *ret_gbs);
void ceiling_free(void); /* the buffers kept between measurements */

#endif
