/* SPDX-License-Identifier: MIT */
/*
 * The serving engine: generates tokens for token sequences on one group of chips.
 *
 * It is independent of sockets, text and JSON. One engine thread per model replica plans steps
 * (scheduler.c) over paged KV (kv.c), fills the launch arguments (step.c), runs them through
 * libtxda and samples (sampler.c).
 *
 * There are two step slots: while the chips run a step, the engine delivers the events of the
 * previous one, counts the step's tokens as computed and plans and fills the next step's decodes,
 * each with a placeholder for the token that it depends on. When the step has ended, the tokens are
 * sampled into the placeholders, ended sequences are removed, prefill chunks are added, and the
 * next step is launched. Chunks come last so that a request that arrived meanwhile does not have to
 * wait another step. With proposals (speculation) the result of a step cannot be predicted: then
 * all of the next one is prepared after it. The tokens are the same in either case.
 *
 * Requests are described in engine_request.h, options and counters in engine_options.h.
 *
 * Errors: 0 or -errno; messages in err.
 */
#ifndef TXDA_ENGINE_H
#define TXDA_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine_options.h"
#include "engine_request.h"

struct txda_group;
struct txda_weights;
struct engine;

/* Loads the model on @group and starts the engine thread. Returns when it is loaded. */
int engine_new(struct txda_group *group, const struct engine_options *options, struct engine **ret,
	       char *err, size_t errlen);
/*
 * Cancels remaining requests, stops the thread, unloads. Requests stay valid for holders of
 * references. NULL is accepted.
 */
void engine_free(struct engine *e);

/*
 * Queues a request and its forks, all or none; takes a reference to each. A request is submitted
 * once. -EAGAIN: the queue is full; requests with `continues` may use as many additional places as
 * sequences run at once. -E2BIG: prompt longer than the context (which never exceeds the whole KV
 * cache; err has value and limit). -EINVAL: an empty prompt, a token outside the vocabulary, a
 * sampling parameter out of range. -EIO: the group was lost. -ESHUTDOWN: it is being freed.
 * -EOPNOTSUPP: a vector is requested of a program without hidden states, or rows that it does not
 * have, or images were prepared for another vision tower than the model's.
 */
int engine_submit(struct engine *e, struct engine_request *r, char *err, size_t errlen);
/* Cancels the request; it ends at the next step boundary. Idempotent, from any thread. */
void engine_cancel(struct engine *e, struct engine_request *r);

/* Readable when the ready list is not empty. */
int engine_ready_fd(struct engine *e);
/*
 * Takes the requests with events since the last call, oldest first, linked by ready_next (read it
 * before dropping the reference); each carries a reference that the caller drops. A request is in
 * the list once, however many events it has. One client thread at a time; a list has to be walked
 * before the next one is taken.
 */
struct engine_request *engine_take_ready(struct engine *e);

void engine_limits(struct engine *e, struct engine_limits *ret);
/*
 * A reference to the weights of a rank, of the model or of the draft model. -ENOENT: there are
 * none.
 */
int engine_weights(struct engine *e, bool draft, unsigned rank, struct txda_weights **ret);

/* A consistent snapshot after the last step, without stopping the engine. */
void engine_stats(struct engine *e, struct engine_stats *ret);

#endif /* TXDA_ENGINE_H */
