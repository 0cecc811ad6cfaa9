// SPDX-License-Identifier: MIT
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool terminal_is(FILE *file)
{
	const char *term = getenv("TERM");

	return isatty(fileno(file)) && term && *term && strcmp(term, "dumb") != 0;
}

bool terminal_has_colors(FILE *file)
{
	const char *no = getenv("NO_COLOR");

	return terminal_is(file) && !(no && *no);
}
