// SPDX-License-Identifier: MIT
#include "line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line with its end; NULL at the end of the input, an empty one after Ctrl-C. */
static char *read_one(const char *prompt)
{
	char *line = NULL;
	size_t cap = 0;

	fputs(prompt, stderr);
	errno = 0;
	if (getline(&line, &cap, stdin) < 0) {
		int error = errno;

		clearerr(stdin);
		free(line);
		fputc('\n', stderr);
		return error == EINTR ? strdup("\n") : NULL;
	}
	return line;
}

char *line_read(const char *prompt)
{
	char *all = NULL;
	size_t len = 0;

	for (;;) {
		char *line = read_one(all ? ". " : prompt), *joined;
		size_t n;

		if (!line)
			break;
		n = strcspn(line, "\r\n");
		joined = realloc(all, len + n + 2);
		if (!joined) {
			free(line);
			break;
		}
		all = joined;
		memcpy(all + len, line, n);
		len += n;
		all[len] = 0;
		free(line);
		if (!n || all[len - 1] != '\\')
			return all;
		all[len - 1] = '\n';
	}
	free(all);
	return NULL;
}
