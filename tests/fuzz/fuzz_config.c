// SPDX-License-Identifier: MIT
/* Any bytes as config.json: what is accepted and small builds a program that the checker accepts,
 * for one chip and for two. */
#include "fuzz.h"
#include "graph.h"
#include "model.h"

static void build(struct model *m, uint32_t tp)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	struct tool_error error = {{0}};
	struct compiled_chip chip;

	o.tp = tp;
	o.name = "fuzz";
	if (model_resolve_options(m, &o, &error) ||
	    graph_build(&m->config, &m->source, &o, tp - 1, &chip, &error)) {
		if (!error.text[0])
			abort();
		return;
	}
	compiled_chip_free(&chip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tool_error error = {{0}};
	struct model m = {0};

	if (config_parse((const char *)data, size, &m.config, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	/* Norms and biases are made up in memory: time, not paths. */
	if (m.config.n_layers > 8 || m.config.hidden_size > 4096 ||
	    m.config.intermediate_size > 16384)
		return 0;
	build(&m, 1);
	build(&m, 2);
	return 0;
}
