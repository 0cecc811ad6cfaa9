/* SPDX-License-Identifier: MIT */
/*
 * The last words of a daemon that systemd started for a client and that cannot start, as its
 * settings are wrong.
 *
 * A connection that nobody accepts makes systemd start the daemon again at once, and after 20
 * starts in two seconds systemd gives the socket up: it is gone until somebody starts it, even if
 * the settings are right by then.
 */
#ifndef TXDA_DAEMON_REFUSE_H
#define TXDA_DAEMON_REFUSE_H

/*
 * If clients wait at the sockets @listeners [n], answers them and those who come within a second
 * with status 503; that second keeps the starts rare. Else returns at once. The sockets stay open.
 */
void refuse_clients(const int *listeners, unsigned n);

#endif
