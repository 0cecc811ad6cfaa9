/* SPDX-License-Identifier: MIT */
/*
 * Measures another engine, a llama-bench binary, on the same machine, alternating with our own
 * runs.
 */
#ifndef TXDA_BENCH_BESIDE_H
#define TXDA_BENCH_BESIDE_H

/*
 * Runs `@command -p PROMPT -n GEN -r 1 -o json` in a shell and returns its tokens per second; one
 * of PROMPT and GEN is 0. 0, or -errno with a message on stderr.
 */
int beside_run(const char *command, unsigned prompt, unsigned gen, double *ret_tokens_per_s);

#endif
