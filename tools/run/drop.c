// SPDX-License-Identifier: MIT
#include "drop.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conversation.h"
#include "show.h"

static const char white[] = " \t\n";

/* Whether it is written as a path, exists, and begins like a picture file. */
static bool is_picture(const char *path)
{
	static const struct {
		const char *bytes;
		size_t at, n;
	} known[] = {{"\xff\xd8\xff", 0, 3},
		     {"\x89PNG\r\n\x1a\n", 0, 8},
		     {"WEBP", 8, 4},
		     {"GIF8", 0, 4}};
	char head[12] = "";
	struct stat st;
	bool is = false;
	int fd;

	if (*path != '/' && strncmp(path, "./", 2) && strncmp(path, "../", 3))
		return false;
	/* A device or a FIFO is not opened. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	if (read(fd, head, sizeof(head)) == sizeof(head))
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			is |= !memcmp(head + known[i].at, known[i].bytes, known[i].n);
	close(fd);
	return is;
}

/*
 * Copies the first word, unquoted as by a shell, to @to, which is as large as the line; returns the
 * rest of the line.
 */
static const char *take_word(const char *line, char *to)
{
	char quote = 0;

	for (; *line && (quote || !strchr(white, *line)); line++) {
		if (!quote && (*line == '\'' || *line == '"'))
			quote = *line;
		else if (*line == quote)
			quote = 0;
		else if (*line == '\\' && line[1] && quote != '\'')
			*to++ = *++line;
		else
			*to++ = *line;
	}
	*to = 0;
	return line;
}

static bool add_picture(cJSON **parts, const char *path)
{
	cJSON *picture = conversation_picture(path);

	if (!picture)
		return false;
	fputs("Shown: ", stderr);
	show_text(stderr, path);
	fputc('\n', stderr);
	if (!*parts)
		*parts = cJSON_CreateArray();
	cJSON_AddItemToArray(*parts, picture);
	return true;
}

bool drop_take(const char *line, cJSON **ret_parts, const char **ret_rest)
{
	const char *at = line + strspn(line, white);
	char *word = strdup(at);
	size_t n = word ? strlen(word) : 0;
	cJSON *parts = NULL;
	bool ok = word != NULL;

	while (n && strchr(white, word[n - 1]))
		word[--n] = 0;
	/* Some terminals do not quote. */
	if (ok && is_picture(word)) {
		ok = add_picture(&parts, word);
		at += strlen(at);
	}
	while (ok && *at) {
		const char *behind = take_word(at, word);

		if (!is_picture(word))
			break;
		ok = add_picture(&parts, word);
		at = behind + strspn(behind, white);
	}
	free(word);
	if (!ok)
		cJSON_Delete(parts);
	*ret_parts = ok ? parts : NULL;
	*ret_rest = parts ? at : line;
	return ok;
}
