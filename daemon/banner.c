// SPDX-License-Identifier: MIT
#include "banner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "log.h"
#include "models.h"
#include "txda.h"

static void log_number(const char *name, unsigned value, const char *otherwise)
{
	if (value)
		log_info("| - %s: %u", name, value);
	else
		log_info("| - %s: %s", name, otherwise);
}

/* "[0, 1]", or the map that was given. */
static void log_chips(const struct config_model *m)
{
	char list[CONFIG_MAX_CHIPS * 4] = "all that are visible";
	size_t at = 0;

	for (unsigned i = 0; i < m->devices.n; i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%u", i ? ", " : "[",
				       m->devices.chips[i]);
	if (*m->map.text)
		log_info("| - device: map %s", m->map.text);
	else
		log_info("| - device: %s%s", list, at ? "]" : "");
}

static void log_model(const struct config_model *m, struct models *table)
{
	const struct served_model *served = models_find(table, m->names[0]);
	const char *case_dir = served ? served->found.case_dir : "";
	bool is_case = *case_dir && !strcmp(case_dir, served->found.path);

	log_info("| - model: %s", m->names[0]);
	log_info("| - hf_dir: %s", is_case ? "none" : m->path);
	log_info("| - case_dir: %s", *case_dir ? case_dir : "in the cache, compiled on first use");
	log_number("max_tokens", m->max_tokens, "as each request says");
	log_number("tp_size", m->engine.tp_size, "as the model says");
	log_chips(m);
}

void banner_log(const struct config *c, struct models *table, struct txda_context *context)
{
	const char *visible = getenv("TXDA_VISIBLE_DEVICES");

	log_info("Inference info:");
	for (unsigned i = 0; i < c->n_models; i++)
		log_model(&c->models[i], table);
	log_info("| - ENV:TXDA_VISIBLE_DEVICES: %s", visible ? visible : "Not specified");
	log_info("| - chips: %d (%s)", txda_context_device_count(context),
		 txda_context_backend(context));
	log_info("| - log_file: %s", c->log_file && *c->log_file ? c->log_file : "stderr");
}
