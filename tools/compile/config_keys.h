/* SPDX-License-Identifier: MIT */
/* Reads the keys of a JSON object of a config.json. Errors name the key, the value and the limit. */
#ifndef TXDA_COMPILE_CONFIG_KEYS_H
#define TXDA_COMPILE_CONFIG_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "error.h"

/* Values with limits. If the key is absent or null the result is @fallback, unless that is
 * CONFIG_REQUIRED. */
#define CONFIG_REQUIRED UINT32_MAX
int config_u32(const cJSON *json, const char *key, uint32_t min, uint32_t max, uint32_t fallback,
	       uint32_t *ret, struct tool_error *error);
int config_bool(const cJSON *json, const char *key, bool fallback, bool *ret,
		struct tool_error *error);
int config_double(const cJSON *json, const char *key, double min, double max,
		  const double *fallback, double *ret, struct tool_error *error);

/* The value of the key if it is present and not null. */
const cJSON *config_find(const cJSON *json, const char *key);
/* Whether there is one. */
bool config_has(const cJSON *json, const char *key);
/* Whether the key is present and null, which some families distinguish from its absence. */
bool config_is_null(const cJSON *json, const char *key);
/* Of two spellings of a key the one that is present; the first if neither is. */
const char *config_key(const cJSON *json, const char *a, const char *b);
/* A list of layer numbers: sets those in @ret. An absent key changes nothing. */
int config_layers(const cJSON *json, const char *key, uint32_t n_layers, bool value, bool *ret,
		  struct tool_error *error);

#endif /* TXDA_COMPILE_CONFIG_KEYS_H */
