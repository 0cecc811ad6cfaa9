/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the DRM backend share: a context on the fake kernel with a queue of its first
 * chip, streams that wait for the host, and runs of the tiny model.
 */
#ifndef DRM_RIG_H
#define DRM_RIG_H

#include <poll.h>

#include "drm_context.h"
#include "libtxda_case.h"
#include "model.h"

static struct txda_context *context;
static struct txda_queue *queue;
static struct txda_buffer *word; /* host memory that streams wait for */
static uint64_t *value;

/* A context with a queue of its first chip. */
static inline void open_rig(void)
{
	void *view;

	context = open_fake();
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COMPUTE, &queue));
	ok(context, txda_buffer_new(device_of(context, 0), 4096, TXDA_MEMORY_HOST, 0, &word));
	ok(context, txda_buffer_map(word, &view));
	value = view;
}

static inline void begin(unsigned chips)
{
	fake_drm_start(chips);
	open_rig();
}

static inline void close_rig(void)
{
	txda_queue_unref(queue);
	txda_buffer_unref(word);
	txda_context_unref(context);
}

static inline void end(void)
{
	close_rig();
	fake_drm_end();
}

/* A stream that waits until the host has stored @value. */
static inline uint64_t submit_wait(uint64_t until)
{
	struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
				      .va = txda_buffer_va(word),
				      .value = until};
	uint64_t fence;

	ok(context, txda_queue_submit(queue, &wait, sizeof(wait), 0, &fence));
	return fence;
}

/* An empty stream passes. */
static inline void pass(struct txda_queue *of)
{
	uint64_t fence;

	ok(context, txda_queue_submit(of, NULL, 0, 0, &fence));
	ok(context, txda_queue_wait(of, fence, TXDA_FOREVER));
}

/* Lets go of those that wait for up to @value: something must look at the word again. */
static inline void release(uint64_t until)
{
	struct txda_queue *other;

	__atomic_store_n(value, until, __ATOMIC_RELEASE);
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COPY, &other));
	pass(other);
	txda_queue_unref(other);
}

static inline bool readable(int fd, int ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint64_t drained;
	bool is = poll(&poll_fd, 1, ms) == 1;

	if (is)
		assert_int_equal(read(fd, &drained, sizeof(drained)), sizeof(drained));
	return is;
}

/* Everything that can be asked of the tiny model, once; 0 or the first error. */
static inline int run_tiny(unsigned tp, const char *path, float y[CASE_R][CASE_H])
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model = NULL;
	struct txda_group *group = NULL;
	int r;

	group_options.tp = tp;
	options.path = path;
	options.verify_weights = true;
	r = txda_group_new(context, &group_options, &group);
	if (r >= 0)
		r = txda_model_load(group, &options, &model);
	if (r >= 0)
		r = case_run(model, y);
	txda_model_unref(model);
	txda_group_unref(group);
	return r;
}

#endif /* DRM_RIG_H */
