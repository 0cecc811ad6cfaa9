/* SPDX-License-Identifier: MIT */
/* A chip by itself: what submission, completion and copies cost, beside what they are made of. */
#ifndef TXDA_BENCH_DEVICE_H
#define TXDA_BENCH_DEVICE_H

#include "txda.h"

/* Submit to fence of a stream with one NOP, by the thread that waits: median in microseconds, or
 * negative when that does not work. */
double device_round_trip_us(struct txda_context *context);

/* txda-bench device */
int device_main(int argc, char **argv);

#endif
