// SPDX-License-Identifier: MIT
/* Errors for clients whose model does not answer. */
#include "server_internal.h"

void model_unavailable(const struct served_model *m, struct api_error *e)
{
	const char *name = m->config->names[0];

	/* A reload has replaced it by a model of the same name. */
	if (m->retired && models_find(m->table, name)) {
		api_error_set(e, 503, "model_loading", "model",
			      "the model \"%s\" is being replaced", name);
		e->retry_after = 2;
		return;
	}
	if (m->retired) {
		api_error_set(e, 404, "model_not_found", "model",
			      "the model \"%s\" is no longer served", name);
		return;
	}
	switch (m->state) {
	case MODEL_FAILED:
		api_error_set(e, 503, "model_failed", "model",
			      "the model \"%s\" could not be loaded: %s", name, m->error);
		break;
	case MODEL_LOST:
		api_error_set(e, 503, "model_lost", "model", "the model \"%s\" lost its chips: %s",
			      name, m->error);
		break;
	case MODEL_UNLOADED:
	case MODEL_ASLEEP:
		api_error_set(e, 503, "insufficient_memory", "model",
			      "the model \"%s\" is not loaded: %s", name,
			      m->error[0] ? m->error : "the load ended");
		e->retry_after = 10;
		break;
	case MODEL_DRAINING:
		api_error_set(e, 503, "model_unloading", "model",
			      "the model \"%s\" is being unloaded", name);
		e->retry_after = 2;
		break;
	default:
		api_error_set(e, 503, "model_loading", "model", "the model \"%s\" is loading",
			      name);
		e->retry_after = 2;
		break;
	}
}
