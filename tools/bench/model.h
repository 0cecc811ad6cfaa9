/* SPDX-License-Identifier: MIT */
/*
 * txda-bench model: what a user feels of a model, by shape. FTL, the time from a batch's start to
 * its first tokens, and TPS, the tokens per second after that, for each combination of weights,
 * chips, batch, input and output length, after a warm-up of the same shape.
 */
#ifndef TXDA_BENCH_MODEL_H
#define TXDA_BENCH_MODEL_H

int model_main(int argc, char **argv);

/* main.c: a neighbour's build must not halve a result: a scheduling group of our own, at the best
 * priority that we may have. */
void own_autogroup(void);

#endif
