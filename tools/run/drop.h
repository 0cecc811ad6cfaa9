/* SPDX-License-Identifier: MIT */
/* Pictures that are dropped on a terminal: it pastes their paths, quoted as for a shell. */
#ifndef TXDA_RUN_DROP_H
#define TXDA_RUN_DROP_H

#include <stdbool.h>
#include <cjson/cJSON.h>

/*
 * Takes paths of picture files, each with a '/' in front or with "./" or "../", off the beginning of
 * a line: *ret_parts are parts of a message, NULL without a picture, and *ret_rest is the text
 * behind them. False after an error, which was reported on stderr.
 */
bool drop_take(const char *line, cJSON **ret_parts, const char **ret_rest);

#endif
