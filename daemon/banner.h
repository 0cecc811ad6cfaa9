/* SPDX-License-Identifier: MIT */
/* What is going to be served, on which chips: lines of the log at the start. */
#ifndef TXDA_DAEMON_BANNER_H
#define TXDA_DAEMON_BANNER_H

struct config;
struct residency;
struct txda_context;

/* After the models were added to @residency. The words are those of the chip's vendor. */
void banner_log(const struct config *c, struct residency *residency, struct txda_context *context);

#endif
