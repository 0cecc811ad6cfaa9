/* SPDX-License-Identifier: MIT */
/* Times as people write them: "90", "90s", "5m", "2h"; "-1" is for ever. */
#ifndef TXDA_BASE_DURATION_H
#define TXDA_BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

#define DURATION_MAX 315360000ll /* ten years, in seconds */

/* Seconds, or -1. False: it is none. */
bool duration_parse(const char *text, int64_t *ret);

#endif
