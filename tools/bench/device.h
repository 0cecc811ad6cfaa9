/* SPDX-License-Identifier: MIT */
/* Measures the costs of submission, completion and copies on a chip, and of their components. */
#ifndef TXDA_BENCH_DEVICE_H
#define TXDA_BENCH_DEVICE_H

#include "txda.h"

/*
 * Median time in microseconds from submitting a stream with one NOP to its fence, as seen by the
 * waiting thread; negative: it failed.
 */
double device_round_trip_us(struct txda_context *context);

/* txda-bench device */
int device_main(int argc, char **argv);

#endif
