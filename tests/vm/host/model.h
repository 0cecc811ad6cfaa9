/* SPDX-License-Identifier: MIT */
/*
 * The device model server, txda-cmodel, as a child of the rig: started, killed, started again, and
 * spoken to over its control socket.
 *
 * One thread. Errors are -errno.
 */
#ifndef TXDA_VM_MODEL_H
#define TXDA_VM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/**
 * struct model - The server and where it listens.
 */
struct model {
	/** @argv: How it is started, NULL-terminated; NULL: there is none. */
	char *const *argv;

	/** @dir: Directory of its sockets. */
	const char *dir;

	/** @log: File for what it prints. */
	const char *log;

	/** @pid: Its process, 0 when it does not run. */
	pid_t pid;
};

/* Start the server and wait until chip 0 listens. */
int model_start(struct model *model, int timeout_ms);

/* Kill it without a word, as a chip that falls off the bus, and reap it. */
void model_kill(struct model *model);

/* The socket of @chip. */
void model_chip_path(const struct model *model, unsigned int chip, char *path, size_t bytes);

/*
 * Send @line to the control socket; what it answers lands in @answer, without the "ok" that ends
 * it. -EREMOTEIO: it refused, and @answer says why.
 */
int model_control(struct model *model, const char *line, int timeout_ms, char *answer,
		  size_t bytes);

/*
 * Start @argv as a child that dies with this process. Its standard input is /dev/null unless
 * @keep_stdin; what it prints goes to the file @log, if that is not NULL. Returns the pid.
 */
pid_t child_start(char *const *argv, bool keep_stdin, const char *log);

#endif
