/* SPDX-License-Identifier: MIT */
/* The chips' part of the metrics. Threads: the event loop's. */
#ifndef TXDA_SERVER_CHIPS_H
#define TXDA_SERVER_CHIPS_H

#include <stdint.h>

#include "json_out.h"

struct txda_context;

/* What was written last. Zero it before first use; json_out_free(&text) at the end. */
struct chips_metrics {
	struct json_out text;
	uint64_t read_ns; /* when */
};

/*
 * Writes the metrics of @context's chips (NULL: none). The sensors are files of the driver and are read once
 * in a second at most, however often somebody asks.
 */
void chips_write_metrics(struct chips_metrics *last, struct txda_context *context, uint64_t now_ns,
			 struct json_out *o);

#endif
