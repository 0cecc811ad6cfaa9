/* SPDX-License-Identifier: MIT */
/* Formats answers of txdad as tables and plans. Missing members are left out. */
#ifndef TXDA_CTL_SHOW_H
#define TXDA_CTL_SHOW_H

#include <cjson/cJSON.h>

void show_models(const cJSON *answer);
/* "ok", and the models that are not ready, with the reason. */
void show_health(const cJSON *answer);
void show_devices(const cJSON *answer);
void show_requests(const cJSON *answer);
void show_plan(const cJSON *answer);
/* "demo: ready" */
void show_state(const cJSON *answer);

/* The member's text, or "". */
const char *show_text(const cJSON *object, const char *name);
double show_number(const cJSON *object, const char *name);

#endif
