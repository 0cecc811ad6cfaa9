// SPDX-License-Identifier: MIT
/* txda-decode: decodes one picture from standard input, confined (lib/image/decode_apart.h). */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode_apart.h"
#include "confine.h"
#include "decode.h"
#include "io.h"
#include "tool_line.h"
#include "tool_run.h"

static const char usage[] = "Usage: txda-decode\n"
			    "\n"
			    "Started by other TXDA programs with a socket as standard input and "
			    "output. Decodes one picture in a\n"
			    "confined process.\n"
			    "\n"
			    "  -h, --help\n"
			    "  -V, --version\n";

static const struct option options[] = {TOOL_OPTIONS_END};

static struct tool_line line = TOOL_LINE("txda-decode", usage, options, "");

static int answer(const struct image_answer *a, const struct image_picture *p)
{
	bool sent = !io_write_all(STDOUT_FILENO, a, sizeof(*a));

	if (sent && !a->code)
		sent = !io_write_all(STDOUT_FILENO, p->rgb,
				     image_picture_bytes(p->width, p->height));
	return sent ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_tool(int argc, char **argv)
{
	const struct confinement nothing = {0};
	struct image_picture p = {0};
	struct image_answer a = {0};
	struct image_request r;
	void *data;

	if (tool_option(&line, argc, argv) < 0)
		return line.status;
	if (line.n_words)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[0]);
	a.code = confine_self(&nothing, a.text, sizeof(a.text));
	if (a.code)
		return answer(&a, NULL);
	if (io_read_all(STDIN_FILENO, &r, sizeof(r)) || r.bytes > IMAGE_MAX_BYTES)
		return EXIT_FAILURE;
	data = malloc(r.bytes + 1);
	if (!data) {
		a.code = -ENOMEM;
		snprintf(a.text, sizeof(a.text), "no memory for a file of %llu bytes",
			 (unsigned long long)r.bytes);
		return answer(&a, NULL);
	}
	if (io_read_all(STDIN_FILENO, data, r.bytes))
		return EXIT_FAILURE;
	a.code = image_decode(data, r.bytes, r.max_pixels, &p, a.text, sizeof(a.text));
	a.width = p.width;
	a.height = p.height;
	return answer(&a, &p);
}

int main(int argc, char **argv)
{
	return tool_run("txda-decode", run_tool, argc, argv, EXIT_FAILURE);
}
