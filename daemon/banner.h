/* SPDX-License-Identifier: MIT */
/* The log lines at start: which models will be served on which chips. */
#ifndef TXDA_DAEMON_BANNER_H
#define TXDA_DAEMON_BANNER_H

struct config;
struct models;
struct txda_context;

/* Call after the models were added to @table. The wording is that of the chip vendor's software. */
void banner_log(const struct config *c, struct models *table, struct txda_context *context);

#endif
