// SPDX-License-Identifier: MIT
#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "number.h"
#include "smi.h"

/* A larger number is a serial number. */
#define MAX_INDEX 9999

static const char *kind_name(enum txda_event_kind kind)
{
	switch (kind) {
	case TXDA_EVENT_DEVICE_ADDED: return "added";
	case TXDA_EVENT_DEVICE_REMOVED: return "removed";
	case TXDA_EVENT_FAULT: return "fault";
	case TXDA_EVENT_RESET: return "reset";
	case TXDA_EVENT_ECC: return "ecc";
	case TXDA_EVENT_THERMAL: return "thermal";
	case TXDA_EVENT_LINK: return "link";
	case TXDA_EVENT_FIRMWARE: return "firmware";
	}
	return "other";
}

static double unix_time(uint64_t monotonic_ns)
{
	struct timespec real, monotonic;

	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	return (double)(real.tv_sec - monotonic.tv_sec) + (double)monotonic_ns / 1e9 +
	       (double)(real.tv_nsec - monotonic.tv_nsec) / 1e9;
}

static void add_text(cJSON *object, const char *name, const char *text)
{
	if (*text)
		cJSON_AddStringToObject(object, name, text);
	else
		cJSON_AddNullToObject(object, name);
}

static int print_json(const struct txda_watch_event *event, FILE *out)
{
	cJSON *root = cJSON_CreateObject();

	cJSON_AddNumberToObject(root, "schema_version", SMI_SCHEMA_VERSION);
	cJSON_AddNumberToObject(root, "time_unix_s", unix_time(event->time_ns));
	add_text(root, "event", kind_name(event->kind));
	add_text(root, "bus", event->bus);
	add_text(root, "node", event->node);
	add_text(root, "serial", event->serial);
	if (event->pid > 0)
		cJSON_AddNumberToObject(root, "pid", event->pid);
	else
		cJSON_AddNullToObject(root, "pid");
	add_text(root, "text", event->text);
	return smi_print_document(root, out, true);
}

static int print_event(const struct txda_watch_event *event, bool json, FILE *out)
{
	double when = unix_time(event->time_ns);
	time_t seconds = (time_t)when;
	char text[32] = "";
	struct tm tm;

	if (json)
		return print_json(event, out);
	if (localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(out, "%s.%03d  %-12s  %-8s  %s\n", text,
		(int)((when - (double)seconds) * 1000) % 1000, event->bus, kind_name(event->kind),
		event->text);
	return 0;
}

/*
 * Finds the address of a chip, which may be given by its index. One that is not there now is
 * awaited if it may still come: an index and an empty name are not of it. 0, or an exit status.
 */
static int find_bus(const char *chip, char *bus, size_t size)
{
	const struct txda_device_info *info;
	struct smi_snapshot snapshot;
	int status = SMI_OK;
	uint64_t index;

	snprintf(bus, size, "%s", chip ? chip : "");
	if (!chip)
		return SMI_OK;
	if (smi_snapshot_take(chip, &snapshot) < 0) {
		fprintf(stderr, "txda-smi: %s\n", txda_context_error(NULL));
		return SMI_FAILURE;
	}
	info = snapshot.n_chips ? &snapshot.chip[0].info : NULL;
	if (info && *info->node) {
		snprintf(bus, size, "%s", info->bus);
	} else if (info) {
		fprintf(stderr, "txda-smi: %s is simulated by a process; it has no events\n",
			info->bus);
		status = SMI_FAILURE;
	} else if (!*chip || number_parse(chip, MAX_INDEX, &index)) {
		fprintf(stderr, "txda-smi: no such chip: %s\n", chip);
		status = SMI_NO_DEVICE;
	}
	smi_snapshot_free(&snapshot);
	return status;
}

static bool is_wanted(const struct txda_watch_event *event, const char *chip, const char *bus)
{
	/* An empty node or serial number names no chip. */
	return !chip || (*chip && (!strcasecmp(bus, event->bus) ||
				   !strcasecmp(chip, event->serial) || !strcmp(chip, event->node)));
}

int smi_events(const struct smi_events *wanted, FILE *out)
{
	/* The second: whether somebody still reads what is printed. */
	struct pollfd poll_fds[2] = {{.events = POLLIN}, {.fd = fileno(out)}};
	struct txda_watch *watch;
	unsigned long shown = 0;
	char bus[64];
	int r;

	r = find_bus(wanted->chip, bus, sizeof(bus));
	if (r)
		return r;
	r = txda_watch_new(&watch);
	if (r < 0) {
		fprintf(stderr, "txda-smi: %s\n", txda_context_error(NULL));
		return SMI_FAILURE;
	}
	poll_fds[0].fd = txda_watch_fd(watch);
	while (!wanted->count || shown < wanted->count) {
		struct txda_watch_event event = TXDA_INIT(struct txda_watch_event);

		r = txda_watch_event(watch, &event);
		if (r == -EAGAIN) {
			if ((poll(poll_fds, 2, -1) < 0 && errno != EINTR) || poll_fds[1].revents)
				break;
			continue;
		}
		if (r >= 0 && is_wanted(&event, wanted->chip, bus)) {
			r = print_event(&event, wanted->json, out);
			shown++;
		}
		if (r < 0 || fflush(out))
			break;
	}
	txda_watch_unref(watch);
	return wanted->count && shown == wanted->count ? SMI_OK : SMI_FAILURE;
}
