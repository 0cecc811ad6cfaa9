/* SPDX-License-Identifier: MIT */
/* Between the settings (config.c) and the table of options (config_table.c). */
#ifndef TXDA_DAEMON_CONFIG_INTERNAL_H
#define TXDA_DAEMON_CONFIG_INTERNAL_H

#include "config.h"
#include "options/options.h"

extern const struct option_table config_table;

/* "[NAME=]PATH" as a further model, with what is said for all. */
bool config_add_model(struct config *c, const char *value, char *err, size_t errlen);
/* A name of the last model. */
bool config_add_name(struct config *c, const char *name, char *err, size_t errlen);

#endif
