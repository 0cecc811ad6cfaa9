/* SPDX-License-Identifier: MIT */
/*
 * The daemon's interface to a model's text process (txdad-text): starts it for a directory,
 * receives what it read, and runs jobs. A failure of the process affects only the job it was
 * working on; the next job gets a new lane, and a new process if necessary.
 *
 * A lane that takes too long, or whose client has gone, is killed. Data from a process or a lane is
 * checked: sizes and parts here, their contents by the code that uses them.
 *
 * A new process is started without the lock: one of the callers that need it drives the start, the
 * others wait for it, each no longer than its own deadline. When the driver's has come another one
 * drives on, or else the next caller.
 *
 * Threads: any, except for start and free. A call blocks.
 */
#ifndef TXDA_TEXT_TEXT_PROCESS_H
#define TXDA_TEXT_TEXT_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "text_message.h"
#include "user_id.h"

struct text_process;

struct text_process_options {
	const char *program;	 /* NULL: txdad-text beside this executable, or in PATH */
	unsigned seconds;	 /* longest time of a job, and of reading the model */
	uint64_t memory;	 /* address space of the process, and of each lane */
	const atomic_bool *stop; /* NULL, or ends the reading soon after it becomes true */
	/*
	 * NULL, or the model's image encoder: bytes that the process takes as a struct of this
	 * build, to read the image processor by. Only needed by text_process_start().
	 */
	const void *tower;
	size_t tower_bytes;
};

/* The caller of a job. */
struct text_caller {
	user_id user;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
	uint64_t low_ns;      /* from when on the job has a low priority (priority.h); 0: never */
	atomic_bool gone;     /* nobody waits for it any more */
};

/*
 * Starts a process for the model in @dir. *ret_loaded is freed by the caller: a complete message,
 * with its parts in bounds and all strings terminated. 0, or -errno with @err.
 */
int text_process_start(const char *dir, const struct text_process_options *options,
		       struct text_process **ret, struct text_loaded **ret_loaded, char *err,
		       size_t errlen);
/* No call may be in progress. NULL is accepted. */
void text_process_free(struct text_process *p);

/* The contents of a job's part. */
struct text_bytes {
	const void *data;
	size_t len;
};

/*
 * Runs a job with the given @parts; size and parts of *job are set here. An answer of more than
 * @max_answer bytes is refused. The caller frees *ret, a complete message as above. 0, or
 * -ETIMEDOUT	the time limit of a job, or the caller's deadline, has passed
 * -ECANCELED	the caller is gone
 * -EPIPE	the lane ended meanwhile
 * -EPROTO	its answer is invalid
 * -EIO		there is no process, and none can be started; see @err
 * -E2BIG	the parts are larger than a message may be
 * -ENOMEM
 */
int text_process_call(struct text_process *p, struct text_job *job,
		      const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		      const struct text_caller *caller, struct text_done **ret, char *err,
		      size_t errlen);

/* The time limit of a job. */
unsigned text_process_seconds(const struct text_process *p);

#endif
