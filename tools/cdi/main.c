// SPDX-License-Identifier: MIT
/* txda-cdi: describes the chips of this machine to container runtimes (CDI). */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spec.h"
#include "store.h"
#include "tool_line.h"
#include "tool_run.h"
#include "txda.h"

static const char usage[] =
	"Usage: txda-cdi generate [OPTIONS]   write the CDI specification of this machine's chips\n"
	"       txda-cdi list                 list the CDI names and their nodes\n"
	"\n"
	"      --output FILE    write to FILE, replaced atomically; removed if there is no chip.\n"
	"                       Runtimes read *.json in /etc/cdi and /run/cdi\n"
	"      --library FILE   mount FILE into each container at the same path (default:\n"
	"                       " TXDA_LIBRARY ", where that is installed)\n"
	"      --no-library     mount nothing\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 usage error, 3 no chip with a device node (not\n"
	"with --output).\n";

enum status { DONE, FAILURE, NO_CHIP = 3 };

enum { OPT_OUTPUT = 256, OPT_LIBRARY, OPT_NO_LIBRARY };

static const struct option options[] = {
	{"output", required_argument, NULL, OPT_OUTPUT},
	{"library", required_argument, NULL, OPT_LIBRARY},
	{"no-library", no_argument, NULL, OPT_NO_LIBRARY},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-cdi", usage, options, "");

struct settings {
	const char *output, *library; /* library: NULL: none */
	unsigned simulated;	      /* chips that processes simulate; they have no node */
};

/* Chips with a node; *ret is to be freed. -errno. */
static int take_chips(struct settings *settings, struct cdi_chip **ret, unsigned *ret_n,
		      struct tool_error *error)
{
	struct txda_survey *survey;
	struct cdi_chip *chips;
	unsigned n = 0;
	int total, r = txda_survey_new(&survey);

	if (r < 0)
		return tool_fail(error, r, "%s", txda_context_error(NULL));
	total = txda_survey_chips(survey);
	chips = calloc(total > 0 ? (size_t)total : 1, sizeof(*chips));
	if (!chips)
		r = tool_fail(error, -ENOMEM, "out of memory");
	settings->simulated = 0;
	for (int i = 0; chips && i < total; i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);

		if (txda_survey_chip(survey, (unsigned)i, &info, NULL) < 0)
			continue;
		if (!*info.node) {
			settings->simulated++;
			continue;
		}
		chips[n].index = info.index;
		memcpy(chips[n].node, info.node, sizeof(chips[n].node));
		memcpy(chips[n].bus, info.bus, sizeof(chips[n].bus));
		memcpy(chips[n].serial, info.serial, sizeof(chips[n].serial));
		n++;
	}
	txda_survey_unref(survey);
	if (r < 0)
		return r;
	*ret = chips;
	*ret_n = n;
	return 0;
}

static int take_spec(void *data, char **ret_text, struct tool_error *error)
{
	struct settings *settings = data;
	struct cdi_chip *chips;
	char *text = NULL;
	unsigned n;
	int r = take_chips(settings, &chips, &n, error);

	if (r < 0)
		return r;
	if (n)
		text = cdi_spec(chips, n, settings->library);
	free(chips);
	if (n && !text)
		return tool_fail(error, -ENOMEM, "out of memory");
	*ret_text = text;
	return 0;
}

static enum status report(const struct tool_error *error)
{
	fprintf(stderr, "txda-cdi: %s\n", error->text);
	return FAILURE;
}

static enum status complain_no_chip(const struct settings *settings)
{
	fputs("txda-cdi: no chip with a device node here, so there is nothing to hand to a "
	      "container",
	      stderr);
	if (settings->simulated)
		fprintf(stderr, "; %u simulated by processes", settings->simulated);
	fputs("\nThe device model needs no device: run txdad in the container as it is.\n", stderr);
	return NO_CHIP;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* No file at all: runtimes refuse a specification without devices. */
static enum status store(struct settings *settings)
{
	struct tool_error error;
	int r = cdi_store(settings->output, take_spec, settings, &error);

	if (r < 0)
		return report(&error);
	if (!r) {
		complain_no_chip(settings);
		fprintf(stderr, "There is no %s now.\n", settings->output);
	}
	return DONE;
}

static enum status print(struct settings *settings)
{
	struct tool_error error;
	char *text;

	if (take_spec(settings, &text, &error) < 0)
		return report(&error);
	if (!text)
		return complain_no_chip(settings);
	fputs(text, stdout);
	free(text);
	return DONE;
}

static enum status list(struct settings *settings)
{
	struct tool_error error;
	struct cdi_chip *chips;
	unsigned n;

	if (take_chips(settings, &chips, &n, &error) < 0)
		return report(&error);
	for (unsigned i = 0; i < n; i++) {
		const char *names[3];
		char number[16];
		unsigned count = cdi_names(chips, n, i, number, names);

		for (unsigned k = 0; k < count; k++)
			printf(CDI_KIND "=%s %s\n", names[k], chips[i].node);
	}
	if (n)
		puts(CDI_KIND "=all");
	free(chips);
	return n ? DONE : complain_no_chip(settings);
}

/* ---- command line ---------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len > n && !strcmp(text + len - n, end);
}

static int run_tool(int argc, char **argv)
{
	struct settings settings = {.library = access(TXDA_LIBRARY, F_OK) ? NULL : TXDA_LIBRARY};
	bool list_only, any = false;
	int c;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		switch (c) {
		case OPT_OUTPUT: settings.output = line.value; break;
		case OPT_LIBRARY: settings.library = line.value; break;
		default: settings.library = NULL; break;
		}
		any = true;
	}
	if (c < 0)
		return line.status;
	if (!line.n_words)
		return tool_refuse(&line, "no command is given: generate or list");
	list_only = !strcmp(line.words[0], "list");
	if (!list_only && strcmp(line.words[0], "generate"))
		return tool_refuse(&line, "unknown command '%s'; commands are generate and list",
				   line.words[0]);
	if (line.n_words > 1)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[1]);
	if (list_only && any)
		return tool_refuse(&line, "list has no options");
	if (settings.output && !ends_in(settings.output, ".json"))
		return tool_refuse(&line,
				   "--output %s: runtimes only read files whose names end in .json",
				   settings.output);
	if (settings.library && settings.library[0] != '/')
		return tool_refuse(&line, "--library %s: must be an absolute path",
				   settings.library);
	/* No container would start with a mount of it. */
	if (settings.library && access(settings.library, F_OK)) {
		fprintf(stderr, "txda-cdi: --library %s: %s\n", settings.library, strerror(errno));
		return FAILURE;
	}
	return list_only ? list(&settings) : settings.output ? store(&settings) : print(&settings);
}

int main(int argc, char **argv)
{
	return tool_run("txda-cdi", run_tool, argc, argv, FAILURE);
}
