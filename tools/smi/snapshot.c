// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "clock.h"
#include "smi.h"

static void find_user(int pid, char *user, size_t size)
{
	const struct passwd *entry;
	struct stat st;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st) < 0) {
		snprintf(user, size, "?");
		return;
	}
	entry = getpwuid(st.st_uid);
	if (entry)
		snprintf(user, size, "%.32s", entry->pw_name);
	else
		snprintf(user, size, "%u", (unsigned)st.st_uid);
}

static int add_processes(struct txda_survey *survey, unsigned index, struct smi_chip *chip)
{
	int n = txda_survey_processes(survey, index);

	if (n <= 0)
		return n;
	chip->process = calloc((size_t)n, sizeof(*chip->process));
	if (!chip->process)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		struct smi_process *process = &chip->process[chip->n_processes];

		process->info = TXDA_INIT(struct txda_process_info);
		if (txda_survey_process(survey, index, (unsigned)i, &process->info) < 0)
			continue;
		find_user(process->info.pid, process->user, sizeof(process->user));
		chip->n_processes++;
	}
	return 0;
}

static bool is_wanted(const struct txda_device_info *info, const char *wanted)
{
	char number[16];

	/* Simulated chips have an empty node, which names none of them. */
	if (wanted && !*wanted)
		return false;
	snprintf(number, sizeof(number), "%u", info->index);
	return !wanted || !strcmp(wanted, number) || !strcasecmp(wanted, info->serial) ||
	       !strcasecmp(wanted, info->bus) || !strcmp(wanted, info->node);
}

static const struct smi_chip *find_chip(const struct smi_snapshot *snapshot,
					const struct txda_device_info *info)
{
	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		if (!strcmp(snapshot->chip[i].info.bus, info->bus))
			return &snapshot->chip[i];
	}
	return NULL;
}

static bool needs_second(const struct smi_chip *chip)
{
	return chip->status.utilisation_permille == UINT32_MAX && !chip->status.lost;
}

bool smi_snapshot_needs_second(const struct smi_snapshot *snapshot)
{
	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		if (needs_second(&snapshot->chip[i]))
			return true;
	}
	return false;
}

void smi_snapshot_add_utilisation(struct smi_snapshot *snapshot, const struct smi_snapshot *before)
{
	uint64_t since = snapshot->time_ns - before->time_ns, worked;

	for (unsigned i = 0; since && i < snapshot->n_chips; i++) {
		struct smi_chip *chip = &snapshot->chip[i];
		const struct smi_chip *old = find_chip(before, &chip->info);

		if (!needs_second(chip) || !old || chip->status.busy_ns < old->status.busy_ns)
			continue;
		worked = (chip->status.busy_ns - old->status.busy_ns) * 1000 / since;
		chip->status.utilisation_permille = worked > 1000 ? 1000 : (uint32_t)worked;
	}
}

int smi_snapshot_take(const char *wanted, struct smi_snapshot *ret_snapshot)
{
	struct smi_snapshot snapshot = {.time_ns = clock_ns()};
	struct txda_survey *survey;
	int n, r;

	r = txda_survey_new(&survey);
	if (r < 0)
		return r;
	n = txda_survey_chips(survey);
	snapshot.chip = calloc(n > 0 ? (size_t)n : 1, sizeof(*snapshot.chip));
	if (!snapshot.chip)
		r = -ENOMEM;
	for (int i = 0; i < n && r >= 0; i++) {
		struct smi_chip *chip = &snapshot.chip[snapshot.n_chips];

		chip->info = TXDA_INIT(struct txda_device_info);
		chip->status = TXDA_INIT(struct txda_device_status);
		r = txda_survey_chip(survey, (unsigned)i, &chip->info, &chip->status);
		if (r < 0 || !is_wanted(&chip->info, wanted))
			continue;
		snapshot.n_chips++;
		r = add_processes(survey, (unsigned)i, chip);
	}
	txda_survey_unref(survey);
	if (r < 0) {
		smi_snapshot_free(&snapshot);
		return r;
	}
	*ret_snapshot = snapshot;
	return 0;
}

void smi_snapshot_free(struct smi_snapshot *snapshot)
{
	for (unsigned i = 0; i < snapshot->n_chips; i++)
		free(snapshot->chip[i].process);
	free(snapshot->chip);
}
