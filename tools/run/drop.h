/* SPDX-License-Identifier: MIT */
/* Pictures dropped on a terminal, which pastes their paths, quoted as for a shell. */
#ifndef TXDA_RUN_DROP_H
#define TXDA_RUN_DROP_H

#include <stdbool.h>
#include <cjson/cJSON.h>

/*
 * Removes paths of picture files, beginning with "/", "./" or "../", from the beginning of a line:
 * *ret_parts are parts of a message, NULL without a picture, and *ret_rest is the text after them.
 * False after an error, which was reported on stderr.
 */
bool drop_take(const char *line, cJSON **ret_parts, const char **ret_rest);

#endif
