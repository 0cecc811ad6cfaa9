/* SPDX-License-Identifier: MIT */
/*
 * txda-smi: shows the chips of this machine, their state and their users.
 *
 * main.c reads the command line and loops; a snapshot is taken (snapshot.c) and shown as a table
 * (table.c), as JSON, CSV or chosen fields (fields.c). topo.c shows links and how maps place
 * groups, events.c shows events, reset.c resets chips. Only topo opens chips. One thread.
 */
#ifndef TXDA_SMI_H
#define TXDA_SMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cjson/cJSON.h>

#include "txda.h"

#define SMI_SCHEMA_VERSION 1 /* of JSON; rises when a name or meaning changes */

enum smi_exit {
	SMI_OK = 0,
	SMI_FAILURE = 1,
	SMI_USAGE = 2,
	SMI_NO_DEVICE = 3,
};

struct smi_process {
	struct txda_process_info info;
	char user[33];
};

struct smi_chip {
	struct txda_device_info info;
	struct txda_device_status status;
	unsigned n_processes;
	struct smi_process *process; /* [n_processes] */
};

struct smi_snapshot {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	unsigned n_chips;
	struct smi_chip *chip; /* [n_chips] */
};

/* @chip: index, serial, bus address or node of one chip, or NULL for all. 0 or -errno. */
int smi_snapshot_take(const char *chip, struct smi_snapshot *ret_snapshot);
void smi_snapshot_free(struct smi_snapshot *snapshot);
/* Whether utilisation is unknown for a chip: that of real chips takes two snapshots. */
bool smi_snapshot_needs_second(const struct smi_snapshot *snapshot);
/* Sets the utilisation that is unknown to that of the time between the two snapshots. */
void smi_snapshot_add_utilisation(struct smi_snapshot *snapshot, const struct smi_snapshot *before);

/* The two boxes, 80 columns. */
void smi_print_table(const struct smi_snapshot *snapshot, FILE *out, bool colour);
/* One line per chip; @header: preceded by column titles. */
void smi_print_monitor(const struct smi_snapshot *snapshot, FILE *out, bool header);
/* One JSON document, on one line when @compact. -ENOMEM. */
int smi_print_json(const struct smi_snapshot *snapshot, FILE *out, bool compact);

/* Prints @root, which it frees, and a line break; on one line when @compact. -ENOMEM. */
int smi_print_document(cJSON *root, FILE *out, bool compact);

/* 0, or -EINVAL with the name of the field that is not known in @unknown. */
int smi_check_fields(const char *fields, char *unknown, size_t size);
enum smi_form {
	SMI_CSV,
	SMI_DOCUMENT, /* JSON */
	SMI_LINE,     /* JSON on one line */
};
/* @fields: names separated by commas. */
int smi_print_query(const struct smi_snapshot *snapshot, const char *fields, enum smi_form form,
		    FILE *out);
/* Names of all fields, one per line. */
void smi_list_fields(FILE *out);

struct smi_topo {
	const char *map; /* NULL: automatic */
	unsigned tp;	 /* 0: the map's */
	bool explain;
};
/* Prints distances, links and groups; returns an exit status. */
int smi_topo(const struct smi_topo *topo, FILE *out);

struct smi_events {
	const char *chip;    /* only of this one: serial, bus address or node; NULL: of all */
	unsigned long count; /* ends after so many; 0: never */
	bool json;	     /* JSON lines */
};
/* Prints events as they come; returns an exit status. */
int smi_events(const struct smi_events *events, FILE *out);

/* Resets a chip; returns an exit status. */
int smi_reset(const char *chip, FILE *out);

#endif /* TXDA_SMI_H */
