/* SPDX-License-Identifier: MIT */
/*
 * What the guest may ask of the host: the far end of guest/vmhost.
 *
 * A request is a line of words, an answer is "STATUS BYTES\n" and that many bytes of text; STATUS 0
 * is success. Requests are served one at a time, in the supervisor's only thread.
 *
 *   add N, add all       hot-plug chip N, or every chip, as chipN behind root port rpN
 *   add N F              plug chip N in as function F of its slot, before the slot's function 0
 *   del N                ask the guest to release chip N, wait until QEMU has let go of it
 *   model-kill           kill the model server: every chip falls off the bus
 *   model-start          start it again
 *   wake-on-suspend      the next suspend to memory ends with a wake-up
 *   qmp JSON             a monitor command as it is
 *   limit SECONDS        the machine is up, and killed after SECONDS
 *   begin SECONDS NAME   a test begins; the machine is killed when it says nothing for SECONDS
 *   end RESULT SECONDS NAME REASON   how it ended; written to the file "events", with the processor time that the
 *                        host's processes have used since "begin", and answered with that: seconds on a clock
 *                        depend on what else runs
 *   exit STATUS          all is done; ends the machine
 *   anything else        goes to the model's control socket (inject, disappear, appear, status, …)
 */
#ifndef TXDA_VM_CONTROL_H
#define TXDA_VM_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model.h"
#include "qmp.h"

#define CONTROL_TEXT_BYTES 16384

/**
 * struct control - The machine as far as requests reach.
 */
struct control {
	/** @fd: The guest's port. */
	int fd;

	/** @qmp: The monitor. */
	struct qmp *qmp;

	/** @model: The model server. */
	struct model *model;

	/** @machine: QEMU's process; 0 when it is gone. */
	const pid_t *machine;

	/** @used_before: What both had used when the test began, in seconds of processors. */
	double used_before;

	/** @chips: How many chips "add all" plugs in. */
	unsigned int chips;

	/** @events: File that "begin" and "end" are appended to. */
	int events;

	/** @limit_s: Seconds that the machine has from now on; the supervisor takes it and sets -1.
	 */
	int limit_s;

	/** @exited: "exit" came; @status is what it said. */
	bool exited;
	int status;

	/** @line: A request that is not whole yet, @fill bytes. */
	char line[4096];
	size_t fill;
};

/* Read what the guest sent, serve whole requests. -ECONNRESET when the port is gone. */
int control_serve(struct control *control);

#endif
