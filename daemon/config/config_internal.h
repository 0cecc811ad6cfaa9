/* SPDX-License-Identifier: MIT */
/* Shared by the settings (config.c) and the table of options (config_table.c). */
#ifndef TXDA_CONFIG_CONFIG_INTERNAL_H
#define TXDA_CONFIG_CONFIG_INTERNAL_H

#include "config.h"
#include "options.h"

extern const struct option_table config_table;
extern const struct option_type config_devices_type, config_map_type;

/* Adds a model from "[NAME=]PATH", with the settings for all. */
bool config_add_model(struct config *c, const char *value, char *err, size_t errlen);
/* Adds a name to the last model. */
bool config_add_name(struct config *c, const char *name, char *err, size_t errlen);

/* Checks --map, --device and --tp-size against each other; the map determines those not given. */
bool config_settle_chips(struct config_model *m, char *err, size_t errlen);

#endif
