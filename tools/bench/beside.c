// SPDX-License-Identifier: MIT
#include "beside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "json_strict.h"

#define MAX_OUTPUT (1u << 20)

/* The command's whole output; the caller frees it. */
static int read_output(const char *command, char **ret, size_t *ret_len)
{
	char *text = malloc(MAX_OUTPUT);
	FILE *f = text ? popen(command, "re") : NULL;
	size_t n;
	int status;

	if (!f) {
		free(text);
		return -ENOMEM;
	}
	n = fread(text, 1, MAX_OUTPUT, f);
	status = pclose(f);
	if (n == MAX_OUTPUT || status == -1 || !WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "txda-bench: --peer: \"%s\" %s\n", command,
			n == MAX_OUTPUT ? "prints more than a megabyte" : "failed");
		free(text);
		return -EIO;
	}
	*ret = text;
	*ret_len = n;
	return 0;
}

/* The result of the test with @prompt and @gen. */
static double find_rate(const cJSON *list, unsigned prompt, unsigned gen)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list) {
		const cJSON *p = cJSON_GetObjectItemCaseSensitive(item, "n_prompt"),
			    *g = cJSON_GetObjectItemCaseSensitive(item, "n_gen"),
			    *rate = cJSON_GetObjectItemCaseSensitive(item, "avg_ts");

		if (cJSON_IsNumber(p) && p->valuedouble == prompt && cJSON_IsNumber(g) &&
		    g->valuedouble == gen && cJSON_IsNumber(rate) && rate->valuedouble > 0)
			return rate->valuedouble;
	}
	return 0;
}

int beside_run(const char *command, unsigned prompt, unsigned gen, double *ret_tokens_per_s)
{
	char *line, *text, why[200];
	size_t len;
	double rate = 0;
	cJSON *list;
	int err;

	if (asprintf(&line, "%s -p %u -n %u -r 1 -o json", command, prompt, gen) < 0)
		return -ENOMEM;
	err = read_output(line, &text, &len);
	if (!err) {
		list = txda_json_parse(text, len, why, sizeof(why));
		if (list)
			rate = find_rate(list, prompt, gen);
		if (!(rate > 0)) {
			fprintf(stderr,
				"txda-bench: --peer: \"%s\" does not print what llama-bench "
				"does: %s\n",
				line, list ? "no test with these n_prompt, n_gen and avg_ts" : why);
			err = -EINVAL;
		}
		cJSON_Delete(list);
		free(text);
	}
	free(line);
	if (!err)
		*ret_tokens_per_s = rate;
	return err;
}
