// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "smi.h"
#include "terminal.h"
#include "tool_line.h"
#include "tool_run.h"

/* The time over which the first round averages. */
#define FIRST_LOOK_S 0.25

static const char usage[] =
	"Usage: txda-smi [OPTIONS]                 table of chips and the processes on them\n"
	"       txda-smi dmon [OPTIONS]            one line per chip, repeated\n"
	"       txda-smi query --fields=LIST       selected fields\n"
	"       txda-smi topo [OPTIONS]            links, and how a map groups this process's "
	"chips\n"
	"       txda-smi events [OPTIONS]          chip events, as they happen\n"
	"       txda-smi reset CHIP                reset a chip; its users lose their work (root)\n"
	"\n"
	"  -i, --chip CHIP      only this chip: index, serial, bus address or node\n"
	"  -l, --loop SECS      repeat every SECS seconds (dmon: 1)\n"
	"  -n, --count N        stop after N rounds or events\n"
	"      --json           one JSON document (JSON lines with --loop and events)\n"
	"      --fields LIST    query: field names, separated by commas; \"help\" lists them\n"
	"      --format FORMAT  query: csv (default) or json\n"
	"      --map MAP        topo: CxTPy or a map such as 0,1;2,3\n"
	"      --tp N           topo: chips per group\n"
	"      --explain        topo: explain the choice of chips\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 usage error, 3 no chip.\n"
	"Colours are used on terminals only; TERM=dumb or a NO_COLOR that is not empty disables "
	"them.\n";

enum command { SHOW, DMON, QUERY, TOPO, EVENTS, RESET };

struct request {
	enum command command;
	const char *chip, *fields, *format;
	unsigned given; /* bits: which of @options */
	double loop_s;	/* 0: once */
	unsigned count; /* 0: no end */
	bool json;
	struct smi_topo topo;
};

enum { OPT_JSON = 256, OPT_FIELDS, OPT_FORMAT, OPT_MAP, OPT_TP, OPT_EXPLAIN };

static const struct option options[] = {
	{"chip", TOOL_TEXT, NULL, 'i'},
	{"loop", required_argument, NULL, 'l'},
	{"count", required_argument, NULL, 'n'},
	{"json", no_argument, NULL, OPT_JSON},
	{"fields", TOOL_TEXT, NULL, OPT_FIELDS},
	{"format", required_argument, NULL, OPT_FORMAT},
	{"map", required_argument, NULL, OPT_MAP},
	{"tp", required_argument, NULL, OPT_TP},
	{"explain", no_argument, NULL, OPT_EXPLAIN},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-smi", usage, options, "iln");

static const char *const command_names[] = {
	[SHOW] = "without a command", [DMON] = "dmon",	[QUERY] = "query", [TOPO] = "topo",
	[EVENTS] = "events",	      [RESET] = "reset"};

/* The options that a command takes, by their values. */
static const int takes[][6] = {
	[SHOW] = {'i', 'l', 'n', OPT_JSON},
	[DMON] = {'i', 'l', 'n', OPT_JSON},
	[QUERY] = {'i', 'l', 'n', OPT_JSON, OPT_FIELDS, OPT_FORMAT},
	[TOPO] = {OPT_MAP, OPT_TP, OPT_EXPLAIN},
	[EVENTS] = {'i', 'n', OPT_JSON},
	[RESET] = {'i'},
};

static unsigned option_bit(int value)
{
	for (unsigned i = 0; options[i].name; i++)
		if (options[i].val == value)
			return 1u << i;
	return 0;
}

/* An option was given that the command would ignore: SMI_USAGE, else -1. */
static int check_options(const struct request *request)
{
	const char *command = command_names[request->command];
	unsigned taken = 0;
	char text[64];

	for (unsigned i = 0; i < sizeof(takes[0]) / sizeof(takes[0][0]); i++)
		taken |= option_bit(takes[request->command][i]);
	for (unsigned i = 0; options[i].name; i++) {
		if (!(request->given & ~taken & 1u << i))
			continue;
		snprintf(text, sizeof(text), "%s: there is no --%s", command, options[i].name);
		return tool_refuse(&line, "%s", text);
	}
	if (request->json && request->format && strcmp(request->format, "json"))
		return tool_refuse(&line, "--format %s contradicts --json", request->format);
	if (request->count > 1 && !request->loop_s && request->command != EVENTS)
		return tool_refuse(&line, "--count needs --loop");
	return -1;
}

/* Handles one option; -1: continue, else the exit status. */
static int read_option(int c, struct request *request)
{
	static const char *const formats[] = {"csv", "json", NULL};
	char *end;

	switch (c) {
	case 'i': request->chip = line.value; return -1;
	case 'l':
		request->loop_s = strtod(line.value, &end);
		if (*end || end == line.value ||
		    !(request->loop_s >= 0.05 && request->loop_s <= 86400))
			return tool_refuse(&line, "--loop %s: must be seconds from 0.05 to 86400",
					   line.value);
		return -1;
	case 'n': return tool_number(&line, 1, 1000000000, &request->count) ? -1 : SMI_USAGE;
	case OPT_JSON: request->json = true; return -1;
	case OPT_FIELDS: request->fields = line.value; return -1;
	case OPT_FORMAT:
		request->format = line.value;
		return tool_word(&line, formats) < 0 ? SMI_USAGE : -1;
	case OPT_MAP: request->topo.map = line.value; return -1;
	case OPT_TP:
		return tool_number(&line, 1, TXDA_MAX_CHIPS_PER_GROUP, &request->topo.tp)
			       ? -1
			       : SMI_USAGE;
	case OPT_EXPLAIN: request->topo.explain = true; return -1;
	default: return SMI_USAGE;
	}
}

static int read_command(int argc, char **argv, struct request *request)
{
	char unknown[64];
	int c, r;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		request->given |= option_bit(c);
		r = read_option(c, request);
		if (r >= 0)
			return r;
	}
	if (c < 0)
		return line.status;
	for (char **word = line.words; *word; word++) {
		if (request->command == RESET && !request->chip) {
			request->chip = *word;
			continue;
		}
		if (request->command != SHOW)
			return tool_refuse(&line, "unexpected argument '%s'", *word);
		for (unsigned i = DMON; i <= RESET; i++)
			if (!strcmp(*word, command_names[i]))
				request->command = i;
		if (request->command == SHOW)
			return tool_refuse(&line,
					   "unknown command '%s'; commands are dmon, query, topo, "
					   "events and reset",
					   *word);
	}
	if (request->command == QUERY) {
		if (!request->fields)
			return tool_refuse(&line, "query: --fields is missing");
		if (!strcmp(request->fields, "help")) {
			smi_list_fields(stdout);
			return SMI_OK;
		}
		if (smi_check_fields(request->fields, unknown, sizeof(unknown)) < 0)
			return tool_refuse(
				&line, "query: no field \"%s\"; --fields=help lists them", unknown);
	}
	if (request->command == RESET && !request->chip)
		return tool_refuse(&line, "reset: which chip?");
	if (request->command == DMON && !request->loop_s)
		request->loop_s = 1;
	return check_options(request);
}

static int take_snapshot(const char *chip, struct smi_snapshot *ret_snapshot)
{
	int r = smi_snapshot_take(chip, ret_snapshot);

	if (r < 0)
		fprintf(stderr, "txda-smi: %s\n", txda_context_error(NULL));
	return r;
}

static void pause_for(double seconds)
{
	struct timespec pause = {.tv_sec = (time_t)seconds};

	pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
	nanosleep(&pause, NULL);
}

/* Replaces the snapshot of the last round (before the first one: zeros) by that of this round. */
static int look(const char *chip, struct smi_snapshot *snapshot)
{
	struct smi_snapshot before = *snapshot;
	int r = take_snapshot(chip, snapshot);

	if (r >= 0 && !before.time_ns && smi_snapshot_needs_second(snapshot)) {
		before = *snapshot;
		pause_for(FIRST_LOOK_S);
		r = take_snapshot(chip, snapshot);
	}
	if (r >= 0)
		smi_snapshot_add_utilisation(snapshot, &before);
	else
		*snapshot = (struct smi_snapshot){0};
	smi_snapshot_free(&before);
	return r;
}

static enum smi_form query_form(const struct request *request)
{
	if (!request->json && (!request->format || !strcmp(request->format, "csv")))
		return SMI_CSV;
	return request->loop_s ? SMI_LINE : SMI_DOCUMENT;
}

/* One round. @snapshot: see look(). */
static int show(const struct request *request, unsigned long round, struct smi_snapshot *snapshot)
{
	bool colour = terminal_has_colors(stdout);
	int r = 0;

	if (look(request->chip, snapshot) < 0)
		return SMI_FAILURE;
	if (request->command == QUERY)
		r = smi_print_query(snapshot, request->fields, query_form(request), stdout);
	else if (request->json)
		r = smi_print_json(snapshot, stdout, request->loop_s);
	else if (request->command == DMON)
		smi_print_monitor(snapshot, stdout, round % 20 == 0);
	else if (snapshot->n_chips)
		smi_print_table(snapshot, stdout, colour);
	if (r < 0)
		fprintf(stderr, "txda-smi: %s\n", strerror(-r));
	else if (!snapshot->n_chips)
		fprintf(stderr,
			request->chip
				? "txda-smi: no such chip: %s\n"
				: "txda-smi: no TX8 chip here: no device node of the txda driver, "
				  "and no process with simulated chips\n",
			request->chip);
	return r < 0 ? SMI_FAILURE : snapshot->n_chips ? SMI_OK : SMI_NO_DEVICE;
}

static int run_tool(int argc, char **argv)
{
	struct request request = {.command = SHOW};
	struct smi_snapshot snapshot = {0};
	int r = read_command(argc, argv, &request);

	if (r < 0 && request.command == TOPO) {
		r = smi_topo(&request.topo, stdout);
	} else if (r < 0 && request.command == EVENTS) {
		r = smi_events(&(struct smi_events){request.chip, request.count, request.json},
			       stdout);
	} else if (r < 0 && request.command == RESET) {
		r = smi_reset(request.chip, stdout);
	} else if (r < 0) {
		for (unsigned long round = 0;;) {
			r = show(&request, round, &snapshot);
			if (fflush(stdout) || ++round == request.count || !request.loop_s ||
			    r == SMI_FAILURE)
				break;
			pause_for(request.loop_s);
		}
		smi_snapshot_free(&snapshot);
	}
	return r;
}

int main(int argc, char **argv)
{
	return tool_run("txda-smi", run_tool, argc, argv, SMI_FAILURE);
}
