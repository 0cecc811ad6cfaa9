/* SPDX-License-Identifier: MIT */
/* Contexts of the DRM backend on the fake kernel of fake_drm.h. */
#ifndef DRM_CONTEXT_H
#define DRM_CONTEXT_H

#include "fake_drm.h"
#include "libtxda_test.h"

static inline int try_open(struct txda_context **ret_context)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);

	options.backend = "drm";
	options.name = "a test";
	return txda_context_new(&options, ret_context);
}

static inline struct txda_context *open_fake(void)
{
	struct txda_context *context;

	if (try_open(&context) < 0)
		fail_msg("%s", txda_context_error(NULL));
	return context;
}

#endif /* DRM_CONTEXT_H */
