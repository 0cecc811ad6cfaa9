/* SPDX-License-Identifier: MIT */
/*
 * Confinement of txdad-text, in three steps: while it reads the model it can open the files of its
 * directory; after that it can start and end lanes; a lane can only use open descriptors and
 * allocate memory. 0, or -errno and @err: then the process must exit.
 */
#ifndef TXDA_TEXT_TEXT_CONFINE_H
#define TXDA_TEXT_TEXT_CONFINE_H

#include <stddef.h>

int text_confine_reader(const char *dir, char *err, size_t errlen);
int text_confine_server(char *err, size_t errlen);
int text_confine_lane(char *err, size_t errlen);

#endif
