/* SPDX-License-Identifier: MIT */
/*
 * The server: a socket per chip, a control socket, and the loop that serves them.
 *
 * The thread in vu_server_run() accepts clients, executes commands of the control socket and checks
 * injected faults; each client is served by a separate thread. A chip has one client at a time:
 * another one is refused at once, unless the first is just disconnecting.
 *
 * Threads: vu_server_stop() from any thread and from signal handlers; the rest from one.
 */
#ifndef VU_SERVER_H
#define VU_SERVER_H

#include <stdio.h>

#include "machine.h"

struct vu_server;

struct vu_server_options {
	struct vu_machine_options machine; /* its changed() is set by the server */
	const char *socket_dir;		   /* chipN.sock are made here; it exists */
	const char *control; /* path of the control socket; NULL: socket_dir/control.sock */
};

/*
 * Creates the chips and listens. -EADDRINUSE: another server serves that directory; -ENAMETOOLONG.
 */
int vu_server_new(const struct vu_server_options *opt, struct vu_server **ret);
/* Serves until vu_server_stop(). */
int vu_server_run(struct vu_server *s);
void vu_server_stop(struct vu_server *s);
/* Ends all sessions, removes the sockets. */
void vu_server_free(struct vu_server *s);

/* ---- commands of the control socket (control.c), in the thread of vu_server_run() -------------
 */

/*
 * Executes one line of control input; the reply is written to @out, its last line is "ok" or
 * "error: WHY".
 */
void vu_control_run(struct vu_server *s, const char *line, FILE *out);

struct vu_machine *vu_server_machine(struct vu_server *s);
/* Simulates removal of the chip: its client is disconnected, its socket removed. */
int vu_server_disappear(struct vu_server *s, unsigned chip);
/* A new chip replaces one that was removed or lost. */
int vu_server_appear(struct vu_server *s, unsigned chip);
/* Applies injections to links and events now. */
void vu_server_poll(struct vu_server *s);

#endif /* VU_SERVER_H */
