// SPDX-License-Identifier: MIT
#include "number.h"
#include "show.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CELL  48
#define CHIPS 512 /* the longest list of chips: eight replicas on eight each */

const char *show_text(const cJSON *object, const char *name)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);

	return cJSON_IsString(value) ? value->valuestring : "";
}

double show_number(const cJSON *object, const char *name)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);

	return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static bool truth(const cJSON *object, const char *name)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const char *duration(double seconds, char *buf)
{
	if (seconds < 0)
		snprintf(buf, CELL, "for ever");
	else if (seconds < 120)
		snprintf(buf, CELL, "%.0f s", seconds);
	else if (seconds < 7200)
		snprintf(buf, CELL, "%.0f min", seconds / 60);
	else
		snprintf(buf, CELL, "%.0f h", seconds / 3600);
	return buf;
}

/* "0,1;2,3": the chips of each replica. */
static const char *chips(const cJSON *model, char *buf)
{
	const cJSON *replica, *chip;
	size_t at = 0;

	buf[0] = '\0';
	cJSON_ArrayForEach(replica, cJSON_GetObjectItemCaseSensitive(model, "replicas")) {
		bool first = true;

		cJSON_ArrayForEach(chip, cJSON_GetObjectItemCaseSensitive(replica, "chips")) {
			if (at < CHIPS)
				at += (size_t)snprintf(buf + at, CHIPS - at, "%s%.0f",
						       !first ? ","
						       : at   ? ";"
							      : "",
						       chip->valuedouble);
			first = false;
		}
	}
	return *buf ? buf : "-";
}

void show_models(const cJSON *answer)
{
	const cJSON *m;
	char weights[CELL], kv[CELL], idle[CELL], keep[CELL], where[CHIPS];

	printf("%-24s %-10s %-8s %-10s %-10s %-9s %-9s %s\n", "MODEL", "STATE", "CHIPS", "WEIGHTS",
	       "KV", "IDLE", "KEEP", "");
	cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(answer, "data")) {
		printf("%-24s %-10s %-8s %-10s %-10s %-9s %-9s %s", show_text(m, "id"),
		       show_text(m, "state"), chips(m, where),
		       number_format_size(show_number(m, "weight_bytes"), weights),
		       number_format_size(show_number(m, "kv_bytes"), kv),
		       duration(show_number(m, "idle_seconds"), idle),
		       duration(show_number(m, "keep_alive"), keep),
		       truth(m, "pinned") ? "pinned" : "");
		if (*show_text(m, "phase"))
			printf("%s %.0f%%", show_text(m, "phase"),
			       show_number(m, "progress") * 100);
		printf("%s\n", show_text(m, "error"));
	}
}

void show_health(const cJSON *answer)
{
	const cJSON *model;

	puts(show_text(answer, "status"));
	cJSON_ArrayForEach(model, cJSON_GetObjectItemCaseSensitive(answer, "models")) {
		const char *state = show_text(model, "state"), *error = show_text(model, "error");

		if (strcmp(state, "ready"))
			printf("%s: %s%s%s\n", model->string, state, *error ? ": " : "", error);
	}
}

void show_devices(const cJSON *answer)
{
	const cJSON *d, *model;
	char used[CELL], total[CELL];

	printf("%-5s %-28s %-16s %-22s %-6s %s\n", "CHIP", "NAME", "BUS", "MEMORY", "USED",
	       "MODELS");
	cJSON_ArrayForEach(d, cJSON_GetObjectItemCaseSensitive(answer, "data")) {
		double part = show_number(d, "mem_used_bytes"), all = show_number(d, "mem_bytes");
		char memory[2 * CELL + 8];

		snprintf(memory, sizeof(memory), "%s of %s", number_format_size(part, used),
			 number_format_size(all, total));
		printf("%-5.0f %-28s %-16s %-22s %3.0f %%  %s", show_number(d, "index"),
		       show_text(d, "name"), show_text(d, "bus"), memory,
		       all > 0 ? part * 100 / all : 0, truth(d, "lost") ? "lost " : "");
		cJSON_ArrayForEach(model, cJSON_GetObjectItemCaseSensitive(d, "models"))
			printf("%s ", cJSON_IsString(model) ? model->valuestring : "");
		putchar('\n');
	}
}

void show_requests(const cJSON *answer)
{
	const cJSON *r;
	char age[CELL];

	printf("%-38s %-10s %-16s %-7s %-8s %-21s %-8s %-7s %s\n", "ID", "KIND", "MODEL", "UID",
	       "PID", "STATE", "AGE", "PROMPT", "GENERATED");
	cJSON_ArrayForEach(r, cJSON_GetObjectItemCaseSensitive(answer, "data"))
		printf("%-38s %-10s %-16s %-7.0f %-8.0f %-21s %-8s %-7.0f %.0f\n",
		       show_text(r, "id"), show_text(r, "kind"), show_text(r, "model"),
		       show_number(r, "uid"), show_number(r, "pid"), show_text(r, "state"),
		       duration(show_number(r, "seconds"), age), show_number(r, "prompt_tokens"),
		       show_number(r, "generated_tokens"));
}

static void show_group(const cJSON *group)
{
	const cJSON *chip;
	char left[CELL], all[CELL], needed[CELL];

	printf("  chips");
	cJSON_ArrayForEach(chip, cJSON_GetObjectItemCaseSensitive(group, "chips"))
		printf(" %.0f", chip->valuedouble);
	if (truth(group, "lost")) {
		printf(": lost\n");
		return;
	}
	printf(": %s of %s free, %s needed%s\n",
	       number_format_size(show_number(group, "free_bytes"), left),
	       number_format_size(show_number(group, "total_bytes"), all),
	       number_format_size(show_number(group, "need_bytes"), needed),
	       truth(group, "has_replica") ? "; has a replica" : "");
}

void show_plan(const cJSON *answer)
{
	const cJSON *chip = cJSON_GetObjectItemCaseSensitive(answer, "per_chip"), *item;
	char a[CELL], b[CELL], c[CELL], d[CELL], e[CELL], f[CELL];

	show_state(answer);
	if (truth(answer, "resident"))
		printf("It has its memory already.\n");
	else if (truth(answer, "fits"))
		printf("It fits.\n");
	else if (truth(answer, "fits_after_eviction"))
		printf("It fits when these go:");
	else
		printf("It does not fit: %s\n", show_text(answer, "reason"));
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "evict"))
		printf(" %s", cJSON_IsString(item) ? item->valuestring : "");
	if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(answer, "evict")))
		putchar('\n');
	printf("A chip: weights %s%s, scratch %s, inputs and outputs %s, code and queues %s, "
	       "%.0f to %.0f KV blocks of %s; at least %s\n",
	       number_format_size(show_number(chip, "weight_bytes"), a),
	       truth(answer, "exact") ? "" : " (the checkpoint's size; it was not compiled yet)",
	       number_format_size(show_number(chip, "scratch_bytes"), b),
	       number_format_size(show_number(chip, "io_bytes"), c),
	       number_format_size(show_number(chip, "overhead_bytes"), d),
	       show_number(chip, "kv_blocks_min"), show_number(chip, "kv_blocks_max"),
	       number_format_size(show_number(chip, "kv_block_bytes"), e),
	       number_format_size(show_number(chip, "need_bytes"), f));
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(answer, "groups"))
		show_group(item);
}

void show_state(const cJSON *answer)
{
	if (*show_text(answer, "model"))
		printf("%s: %s\n", show_text(answer, "model"), show_text(answer, "state"));
}
