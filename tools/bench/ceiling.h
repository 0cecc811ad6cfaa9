/* SPDX-License-Identifier: MIT */
/*
 * What this machine can do at most, measured now: the figures that a benchmark's results are
 * fractions of.
 *
 * Each is the best of several short passes with all cores at once. Shared machines change their
 * state from minute to minute, so a benchmark measures before and after each timed run and compares
 * with the mean of both bandwidths and the higher of both product rates.
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
 * Whose products are measured from now on: those of the device model's path @name ("avx512bf16"), which
 * a path is to be compared with even where the CPU has faster ones; of another name the CPU's best.
 * Not while anything is measured.
 */
void ceiling_for(const char *name);
/* @threads: cores to load, each with buffers of its own. 0 or -errno. */
int ceiling_measure(unsigned threads, struct ceiling *ret);
/* GB/s of memcpy with @threads into memory that was just made: what loading weights is
 * compared with. */
int ceiling_fresh_copy(unsigned threads, double *ret_gbs);
void ceiling_free(void); /* the buffers kept between measurements */

#endif
