/* SPDX-License-Identifier: MIT */
/*
 * txda-bench model: the speed that a user of a model sees. Measures FTL, the time from a batch's
 * start to its first tokens, and TPS, the tokens per second after that, for each combination of
 * weights, chips, batch, input and output length, after a warm-up of the same shape.
 */
#ifndef TXDA_BENCH_MODEL_H
#define TXDA_BENCH_MODEL_H

int model_main(int argc, char **argv);

/*
 * main.c: moves the process to a scheduling group of its own with the best permitted priority, so
 * that load from other processes does not halve a result.
 */
void own_autogroup(void);

#endif
