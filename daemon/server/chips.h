/* SPDX-License-Identifier: MIT */
/* Metrics of the chips. Threads: the event loop's. */
#ifndef TXDA_SERVER_CHIPS_H
#define TXDA_SERVER_CHIPS_H

#include <stdint.h>

#include "json_out.h"

struct txda_context;

/* Cached output. Zero it before first use; json_out_free(&text) at the end. */
struct chips_metrics {
	struct json_out text;
	uint64_t read_ns; /* time of the output */
};

/*
 * Writes the metrics of @context's chips (NULL: none). The sensors are files of the driver and are
 * read at most once per second, however often metrics are requested.
 */
void chips_write_metrics(struct chips_metrics *last, struct txda_context *context, uint64_t now_ns,
			 struct json_out *o);

#endif
