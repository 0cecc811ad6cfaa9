/* SPDX-License-Identifier: MIT */
/*
 * A model's text process (txdad-text), as the daemon sees it: it is started for a directory, tells
 * what it read, and does jobs. Whatever becomes of it is an error for the job that it was busy with;
 * the next one finds a new lane, and a new process if need be.
 *
 * A lane that takes too long, or whose client has gone, is killed. What a process or a lane says is
 * checked: sizes and parts here, what lies in them by those who know it.
 *
 * Threads: any, but for start and free. A call blocks.
 */
#ifndef TXDA_DAEMON_TEXT_PROCESS_H
#define TXDA_DAEMON_TEXT_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "text_message.h"

struct text_process;

struct text_process_options {
	const char *program;	 /* NULL: txdad-text beside this executable, or in PATH */
	unsigned seconds;	 /* longest time of a job, and of reading the model */
	uint64_t memory;	 /* address space of the process, and of each lane */
	const atomic_bool *stop; /* NULL, or ends the reading soon after it becomes true */
};

/* Who a job is for. */
struct text_caller {
	uid_t user;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
	atomic_bool gone;     /* nobody waits for it any more */
};

/*
 * Starts a process for the model in @dir. *ret_loaded is for the caller to free: a message that is
 * whole, with its parts in it, and all strings ended. 0, or -errno with @err.
 */
int text_process_start(const char *dir, const struct text_process_options *options,
		       struct text_process **ret, struct text_loaded **ret_loaded, char *err,
		       size_t errlen);
/* No call may be under way. NULL is accepted. */
void text_process_free(struct text_process *p);

/* Bytes that a job's part is made of. */
struct text_bytes {
	const void *data;
	size_t len;
};

/*
 * Has the job done, whose parts are to be @parts; size and parts of *job are set here. An answer of
 * more than @max_answer bytes is not taken. *ret is the caller's to free: a message that is whole,
 * as above. 0, or
 * -ETIMEDOUT	it took longer than a job, or its deadline, allows
 * -ECANCELED	the caller is gone
 * -EPIPE	the lane ended meanwhile
 * -EPROTO	what it said makes no sense
 * -EIO		there is no process, and none can be started; @err says why
 * -E2BIG	the parts are more than a message can hold
 * -ENOMEM
 */
int text_process_call(struct text_process *p, struct text_job *job,
		      const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		      const struct text_caller *caller, struct text_done **ret, char *err,
		      size_t errlen);

/* The longest time of a job. */
unsigned text_process_seconds(const struct text_process *p);

#endif
