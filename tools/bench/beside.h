/* SPDX-License-Identifier: MIT */
/*
 * Another engine on the same machine in the same minutes: a llama-bench binary, run in turns with
 * ours.
 */
#ifndef TXDA_BENCH_BESIDE_H
#define TXDA_BENCH_BESIDE_H

/*
 * Tokens per second of `@command -p PROMPT -n GEN -r 1 -o json`, run by the shell: of the prompt,
 * or of what is generated. One of the two numbers is 0. Says on stderr what failed; 0 or -errno.
 */
int beside_run(const char *command, unsigned prompt, unsigned gen, double *ret_tokens_per_s);

#endif
