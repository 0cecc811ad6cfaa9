// SPDX-License-Identifier: MIT
/*
 * Any bytes into the JSON checker and parser: they must agree, and what was parsed must print as
 * JSON that parses again.
 */
#include "fuzz.h"
#include "json_strict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	size_t off = 0;
	char err[128];
	int ret = txda_json_check(text, size, TXDA_JSON_MAX_DEPTH, &off);
	cJSON *json = txda_json_parse(text, size, err, sizeof(err));

	if (off > size || (ret == 0) != (json != NULL))
		abort();
	if (json) {
		char *printed = cJSON_PrintUnformatted(json);

		if (printed && txda_json_check(printed, strlen(printed), TXDA_JSON_MAX_DEPTH, NULL))
			abort();
		free(printed);
	}
	cJSON_Delete(json);
	return 0;
}
