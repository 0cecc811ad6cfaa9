/* SPDX-License-Identifier: MIT */
/*
 * How txdad-text shuts itself in, further each time: while it reads the model it can open the files
 * of its directory; then it can begin lanes and end them; a lane can read and write what is open and
 * get memory. 0, or -errno and @err: then the process must end.
 */
#ifndef TXDA_DAEMON_TEXT_CONFINE_H
#define TXDA_DAEMON_TEXT_CONFINE_H

#include <stddef.h>

int text_confine_reader(const char *dir, char *err, size_t errlen);
int text_confine_server(char *err, size_t errlen);
int text_confine_lane(char *err, size_t errlen);

#endif
