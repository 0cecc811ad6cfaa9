/* SPDX-License-Identifier: MIT */
/*
 * Parses numbers: decimal digits, no sign, no blanks, followed by nothing but what is stated below.
 * False: not a number, or above the limit; the result is untouched.
 */
#ifndef TXDA_BASE_NUMBER_H
#define TXDA_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the digits at *@pos and advances it behind them. */
bool number_read(const char **pos, uint64_t max, uint64_t *ret);
/* Parses the whole of @text. */
bool number_parse(const char *text, uint64_t max, uint64_t *ret);
/* Bytes: "4096", or with a factor of 1024 to 1024^4, "64K", "8M", "2G" or "1T"; also "2GiB", "2gb". */
bool number_parse_size(const char *text, uint64_t max, uint64_t *ret);

#define NUMBER_SIZE_TEXT 24
/* Formats bytes as "16.0 MiB"; returns @buf[NUMBER_SIZE_TEXT]. */
const char *number_format_size(double bytes, char *buf);

#endif /* TXDA_BASE_NUMBER_H */
