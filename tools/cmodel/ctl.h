/* SPDX-License-Identifier: MIT */
/* The client of a server's control socket; scripts need no other program. */
#ifndef TXDA_CMODEL_CTL_H
#define TXDA_CMODEL_CTL_H

/*
 * Sends the @n words as one line to the server at @where (its socket or its directory) and prints
 * the answer. Returns an exit status: 0 when the answer is "ok", else 1 with the reason on standard
 * error.
 */
int ctl_send_command(const char *where, char **words, int n);

#endif /* TXDA_CMODEL_CTL_H */
