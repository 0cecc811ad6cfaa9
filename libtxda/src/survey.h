/* SPDX-License-Identifier: MIT */
/*
 * The survey: chips of this machine and who uses them, as a snapshot.
 *
 * Real chips come from /sys/class/accel, their users from /proc/PID/fdinfo; simulated ones from
 * telemetry pages. All input comes from other processes: it is bounded, checked, and skipped when
 * invalid.
 * Threads: a survey is not used concurrently.
 */
#ifndef TXDA_SURVEY_H
#define TXDA_SURVEY_H

#include "internal.h"

struct txda__survey_process {
	struct txda_process_info info;
	unsigned chip;
};

struct txda__survey_chip {
	struct txda_device_info info;
	struct txda_device_status status;
};

struct txda_survey {
	unsigned n_chips;
	struct txda__survey_chip *chip; /* [n_chips] */
	unsigned n_processes;
	/* [n_processes], those of one chip need not be adjacent */
	struct txda__survey_process *process;
};

#define TXDA__SURVEY_MAX_CHIPS	   1024
#define TXDA__SURVEY_MAX_PROCESSES 4096
#define TXDA__SURVEY_MAX_ENTRIES   256 /* of a directory of pages */

/* Adds an entry; -ENOMEM, -ENOSPC. */
int txda__survey_add_chip(struct txda_survey *survey, const struct txda__survey_chip *chip,
			  unsigned *ret_index);
int txda__survey_add_process(struct txda_survey *survey, unsigned chip,
			     const struct txda_process_info *info);

/*
 * Real chips below @sysfs ("/sys") that have a node below @dev ("/dev"), with their users below
 * @procfs ("/proc").
 */
int txda__survey_nodes(struct txda_survey *survey, const char *sysfs, const char *dev,
		       const char *procfs);
/*
 * Simulated chips from the pages among the first TXDA__SURVEY_MAX_ENTRIES entries of @directory, if
 * that is @owner's ((uid_t)-1: anybody's).
 */
int txda__survey_pages(struct txda_survey *survey, const char *directory, uid_t owner);

#endif /* TXDA_SURVEY_H */
