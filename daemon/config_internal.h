/* SPDX-License-Identifier: MIT */
/* Between the settings (config.c) and the table of options (config_table.c). */
#ifndef TXDA_DAEMON_CONFIG_INTERNAL_H
#define TXDA_DAEMON_CONFIG_INTERNAL_H

#include "config.h"
#include "options.h"

extern const struct option_table config_table;
extern const struct option_type config_devices_type, config_map_type;

/* "[NAME=]PATH" as a further model, with what is said for all. */
bool config_add_model(struct config *c, const char *value, char *err, size_t errlen);
/* A name of the last model. */
bool config_add_name(struct config *c, const char *name, char *err, size_t errlen);

/* Checks --map, --device and --tp-size against each other; the map says what else is not said. */
bool config_settle_chips(struct config_model *m, char *err, size_t errlen);

#endif
