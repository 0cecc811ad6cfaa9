/* SPDX-License-Identifier: MIT */
/* Durations as text: "90", "90s", "5m", "2h"; "-1" means forever. */
#ifndef TXDA_BASE_DURATION_H
#define TXDA_BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

#define DURATION_MAX 315360000ll /* ten years, in seconds */

/* Seconds, or -1. False: not a duration. */
bool duration_parse(const char *text, int64_t *ret);

#endif
