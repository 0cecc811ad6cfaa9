/* SPDX-License-Identifier: MIT */
/* What the tests of libtxda share. */
#ifndef LIBTXDA_TEST_H
#define LIBTXDA_TEST_H

#include <errno.h>

#include "txda.h"
#include "txda_isa.h"
#include "unit.h"

/* A context on the device model, with @spec. */
static inline struct txda_context *open_context(const char *spec)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;

	options.backend = "cmodel";
	options.cmodel = spec;
	if (txda_context_new(&options, &context) < 0)
		fail_msg("%s", txda_context_error(NULL));
	return context;
}

#define ok(context, call)                                                                          \
	do {                                                                                       \
		int ok_result = (call);                                                            \
		if (ok_result < 0)                                                                 \
			fail_msg("%s: %d, %s", #call, ok_result, txda_context_error(context));     \
	} while (0)

/* @call fails with @error, and @words are why. */
#define fails(context, call, error, words)                                                         \
	do {                                                                                       \
		assert_int_equal(call, error);                                                     \
		assert_says(txda_context_error(context), words);                                   \
	} while (0)

static inline struct txda_device *device_of(struct txda_context *context, unsigned index)
{
	struct txda_device *device;

	ok(context, txda_device_get(context, index, &device));
	txda_device_unref(device); /* the context lives longer */
	return device;
}

static inline uint64_t used_bytes(struct txda_context *context, unsigned device)
{
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);

	ok(context, txda_device_status(device_of(context, device), &status));
	return status.mem_used_bytes;
}

#endif /* LIBTXDA_TEST_H */
