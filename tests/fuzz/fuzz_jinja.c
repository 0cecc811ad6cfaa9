// SPDX-License-Identifier: MIT
/*
 * Fuzz target: any bytes as a chat template. What parses is rendered twice with small limits: both
 * renders must agree, whatever they give.
 */
#include "fuzz.h"
#include "jinja.h"

static const char variables[] =
	"{\"l\": [3, 1, 2, 1.5, null, \"x\"], \"s\": \"Hello \\u00f6 <b>\\n\", \"n\": null,"
	" \"t\": true, \"d\": {\"b\": 1, \"a\": {\"x\": [1, 2]}}, \"bos_token\": \"<s>\","
	" \"tools\": [{\"type\": \"function\","
	" \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
	" \"add_generation_prompt\": true, \"messages\": ["
	"{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Hi\"},"
	" {\"role\": \"assistant\", \"content\": null, \"k\": 2}]}";

static const struct txda_template_limits limits = {
	.steps = 50 * 1000,
	.memory = 4 << 20,
	.output = 1 << 20,
	.depth = 200,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct tm now = {.tm_year = 125, .tm_mday = 1};
	struct txda_template_options options = {.now = &now, .limits = &limits};
	struct txda_template_error error;
	struct txda_template *template;
	char *text[2] = {NULL, NULL};
	size_t length[2] = {0, 0};
	cJSON *context;
	int rc[2], i;

	if (txda_template_parse((const char *)data, size, &error, &template)) {
		if (error.kind == TXDA_TEMPLATE_OK ||
		    !memchr(error.message, 0, sizeof(error.message)))
			abort();
		return 0;
	}
	context = cJSON_Parse(variables);
	for (i = 0; i < 2; i++) {
		rc[i] = txda_template_render(template, context, &options, &error, &text[i],
					     &length[i]);
		if (rc[i] && error.kind == TXDA_TEMPLATE_OK)
			abort();
	}
	/* tables are seeded anew each time, so the same text shows that no order depends on it */
	if (rc[0] != rc[1] || length[0] != length[1] ||
	    (!rc[0] && memcmp(text[0], text[1], length[0])))
		abort();
	free(text[0]);
	free(text[1]);
	cJSON_Delete(context);
	txda_template_free(template);
	return 0;
}
