/* SPDX-License-Identifier: MIT */
/*
 * Cases that are text, for which C would need more backslashes than text: files in tests/unit/cases
 * (TXDA_CASES), a row a line, fields between tabs, in sections that begin with "# NAME". Nothing is
 * escaped; ␤, ␉, ␍ and ␠ stand for a line break, a tab, a carriage return and, at the end of a
 * line, a space. Lines that begin with "##" are comments.
 */
#ifndef TXDA_TESTS_CASE_FILE_H
#define TXDA_TESTS_CASE_FILE_H

#include "unit.h"

#define CASE_FIELDS 4

/* Puts the characters in that the signs stand for. */
static inline void case_plain(char *field)
{
	static const char signs[] = "\xA4\x89\x8D\xA0", plain[] = "\n\t\r ";
	char *to = field;

	for (const char *at = field; *at; at++) {
		const char *sign =
			!strncmp(at, "\xE2\x90", 2) && at[2] ? strchr(signs, at[2]) : NULL;

		*to++ = sign ? plain[sign - signs] : *at;
		at += sign ? 2 : 0;
	}
	*to = '\0';
}

/* Calls @run for each row of a section; fields that are not there are NULL. */
static inline void each_case(const char *file, const char *section, void (*run)(char **field))
{
	const char *dir = getenv("TXDA_CASES");
	char path[1024], *line = NULL;
	unsigned rows = 0;
	bool wanted = false;
	size_t room = 0;
	FILE *f;

	assert_non_null(dir);
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &room, f) > 0) {
		char *field[CASE_FIELDS] = {NULL}, *rest = line;

		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "# ", 2)) {
			wanted = !strcmp(line + 2, section);
		} else if (wanted && strncmp(line, "##", 2) != 0) {
			for (unsigned i = 0; i < CASE_FIELDS && rest; i++)
				case_plain(field[i] = strsep(&rest, "\t"));
			run(field);
			rows++;
		}
	}
	if (!rows)
		fail_msg("%s has no section \"%s\"", file, section);
	free(line);
	fclose(f);
}

#endif
