/* SPDX-License-Identifier: MIT */
/* What is going to be served, on which chips: lines of the log at the start. */
#ifndef TXDA_DAEMON_BANNER_H
#define TXDA_DAEMON_BANNER_H

struct config;
struct models;
struct txda_context;

/* After the models were added to @table. The words are those of the chip's vendor. */
void banner_log(const struct config *c, struct models *table, struct txda_context *context);

#endif
