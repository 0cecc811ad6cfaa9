// SPDX-License-Identifier: MIT
#include "text_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const text_files[] = {
	"config.json",
	"generation_config.json",
	"tokenizer.json",
	"tokenizer_config.json",
	"tokenizer.model",
	"tiktoken.model",
	"special_tokens_map.json",
	"chat_template.jinja",
	"chat_template.json",
	"preprocessor_config.json",
	"processor_config.json",
	NULL,
};

static int is_template(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return dot && dot != entry->d_name && !strcmp(dot, ".jinja");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int text_files_templates(int dirfd, char ***ret, char *err, size_t errlen)
{
	struct dirent **entries = NULL;
	int n = scandirat(dirfd, TEXT_FILES_FOLDER, &entries, is_template, by_name), r = 0;
	char **names = NULL;

	*ret = NULL;
	if (n < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (n < 0)
		r = -errno;
	else if (n > TEXT_FILES_TEMPLATES)
		r = -E2BIG;
	else if (n)
		names = calloc((size_t)n, sizeof(*names));
	for (int i = 0; i < n; i++) {
		if (names && !r &&
		    asprintf(&names[i], "%s/%s", TEXT_FILES_FOLDER, entries[i]->d_name) < 0) {
			names[i] = NULL;
			r = -ENOMEM;
		}
		free(entries[i]);
	}
	free(entries);
	if (n > 0 && !names && !r)
		r = -ENOMEM;
	for (int i = 0; r && names && i < n; i++)
		free(names[i]);
	if (r == -E2BIG)
		snprintf(err, errlen, "%s: %d templates; the limit is %d", TEXT_FILES_FOLDER, n,
			 TEXT_FILES_TEMPLATES);
	else if (r)
		snprintf(err, errlen, "%s: %s", TEXT_FILES_FOLDER, strerror(-r));
	if (r)
		free(names);
	else
		*ret = names;
	return r ? r : n;
}
