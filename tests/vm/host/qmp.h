/* SPDX-License-Identifier: MIT */
/*
 * QEMU's monitor: commands, their answers, and the few events that the rig waits for.
 *
 * One connection, one thread. QEMU connects to a socket that the rig listens on, so that nothing
 * is lost between its start and the first command.
 *
 * Errors: -errno; where QEMU refused a command, -EREMOTEIO and its words in the caller's buffer.
 */
#ifndef TXDA_VM_QMP_H
#define TXDA_VM_QMP_H

#include <stdbool.h>
#include <stddef.h>

#define QMP_LINE_BYTES 65536
#define QMP_IDS	       16
#define QMP_ID_BYTES   32

/**
 * struct qmp - A connection, zeroed but for @fd before use.
 */
struct qmp {
	/** @fd: The socket, or -1. */
	int fd;

	/** @fill: Bytes in @line that are no whole line yet. */
	size_t fill;

	/** @wake_on_suspend: Answer the next SUSPEND event with system_wakeup. */
	bool wake_on_suspend;

	/** @deleted: Ids of devices whose DEVICE_DELETED came, a ring. */
	char deleted[QMP_IDS][QMP_ID_BYTES];

	/** @deletions: How many there were so far. */
	unsigned int deletions;

	/** @line: What was read. */
	char line[QMP_LINE_BYTES];
};

/* Greeting and capabilities; @timeout_ms bounds each answer. */
int qmp_start(struct qmp *qmp, int fd, int timeout_ms);

/*
 * Send the JSON @command and wait for its answer. What QEMU returned, as JSON, or its words of
 * refusal land in @text, cut where it is too small.
 */
int qmp_command(struct qmp *qmp, const char *command, int timeout_ms, char *text,
		size_t text_bytes);

/* Read what has come without a command: events. -ECONNRESET when QEMU is gone. */
int qmp_pump(struct qmp *qmp);

/* Wait until the device @id is gone for good; @since is what @deletions was before. */
int qmp_wait_deleted(struct qmp *qmp, const char *id, unsigned int since, int timeout_ms);

#endif
