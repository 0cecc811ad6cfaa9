// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "survey.h"
#include "telemetry.h"

int txda__survey_add_chip(struct txda_survey *survey, const struct txda__survey_chip *chip,
			  unsigned *ret_index)
{
	struct txda__survey_chip *table;

	if (survey->n_chips == TXDA__SURVEY_MAX_CHIPS)
		return -ENOSPC;
	table = realloc(survey->chip, (survey->n_chips + 1) * sizeof(*table));
	if (!table)
		return -ENOMEM;
	survey->chip = table;
	table[survey->n_chips] = *chip;
	table[survey->n_chips].info.index = survey->n_chips;
	*ret_index = survey->n_chips++;
	return 0;
}

int txda__survey_add_process(struct txda_survey *survey, unsigned chip,
			     const struct txda_process_info *info)
{
	struct txda__survey_process *table;

	if (survey->n_processes == TXDA__SURVEY_MAX_PROCESSES)
		return -ENOSPC;
	table = realloc(survey->process, (survey->n_processes + 1) * sizeof(*table));
	if (!table)
		return -ENOMEM;
	survey->process = table;
	table[survey->n_processes++] = (struct txda__survey_process){*info, chip};
	return 0;
}

static int add_page(struct txda_survey *survey, const struct txda__page *page)
{
	int r = 0;

	for (unsigned i = 0; i < page->n_chips && r >= 0; i++) {
		const struct txda__page_chip *from = &page->chip[i];
		struct txda_process_info process = {.size = sizeof(process)};
		struct txda__survey_chip chip = {0};
		unsigned index;

		memcpy(chip.info.name, from->name, sizeof(chip.info.name));
		memcpy(chip.info.serial, from->serial, sizeof(chip.info.serial));
		memcpy(chip.info.bus, from->bus, sizeof(chip.info.bus));
		chip.info.physical = from->physical;
		chip.info.caps = from->caps;
		chip.info.mem_bytes = from->mem_bytes;
		chip.info.cores = from->cores;
		chip.status = (struct txda_device_status){
			.mem_used_bytes = from->mem_used_bytes,
			.busy_ns = from->busy_ns,
			.copy_busy_ns = from->copy_busy_ns,
			.bytes_read = from->bytes_read,
			.bytes_written = from->bytes_written,
			.power_mw = from->power_mw,
			.temp_mc = from->temp_mc,
			.clock_khz = from->clock_khz,
			.ecc_corrected = from->ecc_corrected,
			.ecc_uncorrected = from->ecc_uncorrected,
			.faults = from->faults,
			.lost = from->lost,
			.utilisation_permille = from->utilisation_permille,
		};
		r = txda__survey_add_chip(survey, &chip, &index);
		if (r < 0)
			break;
		process.pid = page->pid;
		memcpy(process.command, page->command, sizeof(process.command));
		memcpy(process.purpose, page->purpose, sizeof(process.purpose));
		process.mem_bytes = from->mem_used_bytes;
		process.busy_ns = from->busy_ns;
		r = txda__survey_add_process(survey, index, &process);
	}
	return r;
}

struct page_name {
	char name[64];
};

static int compare_names(const void *a, const void *b)
{
	const struct page_name *x = a, *y = b;

	return strverscmp(x->name, y->name);
}

/*
 * The pages of a directory. The number of entries is limited, not only that of pages: a directory
 * of a user who fills it must not delay everybody's survey. Returns how many.
 */
static unsigned list_pages(DIR *dir, struct page_name names[TXDA__SURVEY_MAX_ENTRIES])
{
	struct dirent *entry;
	unsigned n = 0;

	for (unsigned i = 0; i < TXDA__SURVEY_MAX_ENTRIES && (entry = readdir(dir)); i++) {
		int pid, number, end = 0;

		if (sscanf(entry->d_name, "chips-%9d-%9d%n", &pid, &number, &end) == 2 &&
		    !entry->d_name[end])
			snprintf(names[n++].name, sizeof(names[0].name), "%.60s", entry->d_name);
	}
	qsort(names, n, sizeof(*names), compare_names);
	return n;
}

static int add_pages(struct txda_survey *survey, DIR *dir)
{
	struct page_name *names = malloc(TXDA__SURVEY_MAX_ENTRIES * sizeof(*names));
	struct txda__page *page = malloc(sizeof(*page));
	unsigned n = names ? list_pages(dir, names) : 0;
	int r = names && page ? 0 : -ENOMEM;

	for (unsigned i = 0; i < n && r >= 0; i++)
		if (txda__telemetry_read(dirfd(dir), names[i].name, page) >= 0)
			r = add_page(survey, page);
	free(page);
	free(names);
	return r;
}

int txda__survey_pages(struct txda_survey *survey, const char *directory, uid_t owner)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	bool owned = owner != (uid_t)-1;
	struct stat st;
	DIR *dir;
	int fd, r = 0;

	fd = open(directory, owned ? flags | O_NOFOLLOW : flags);
	if (fd < 0)
		return errno == ENOMEM || errno == EMFILE || errno == ENFILE ? -errno : 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	if (!owned || (fstat(fd, &st) >= 0 && st.st_uid == owner))
		r = add_pages(survey, dir);
	closedir(dir);
	return r;
}

/*
 * Directories of other users that may be readable: their runtime directories and those in /tmp.
 * Whoever may write to /tmp can make a directory for any number, so each must be its user's.
 */
static int survey_other_users(struct txda_survey *survey)
{
	static const char *const parent[] = {"/run/user", "/tmp"};
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	char path[300];
	int r = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(parent) && r >= 0; i++) {
		DIR *dir = opendir(parent[i]);
		struct dirent *entry;

		while (dir && r >= 0 && (entry = readdir(dir))) {
			unsigned uid;
			int end = 0;

			if (sscanf(entry->d_name, i ? "txda-%9u%n" : "%9u%n", &uid, &end) != 1 ||
			    entry->d_name[end] || (i && uid == geteuid()))
				continue;
			snprintf(path, sizeof(path), "%s/%s", parent[i], entry->d_name);
			if (!i && xdg && !strcmp(path, xdg))
				continue;
			if (!i)
				snprintf(path, sizeof(path), "%s/%s/txda", parent[i],
					 entry->d_name);
			r = txda__survey_pages(survey, path, uid);
		}
		if (dir)
			closedir(dir);
	}
	return r;
}

int txda_survey_new(struct txda_survey **ret_survey)
{
	struct txda_survey *survey = calloc(1, sizeof(*survey));
	char path[200];
	int r;

	if (!survey)
		return txda__fail(NULL, -ENOMEM, "out of memory");
	r = txda__survey_nodes(survey, "/sys", "/dev", "/proc");
	for (unsigned i = 0; r >= 0 && txda__telemetry_directory(i, path, sizeof(path)); i++)
		if (*path)
			r = txda__survey_pages(survey, path, (uid_t)-1);
	if (r >= 0)
		r = survey_other_users(survey);
	if (r < 0 && r != -ENOSPC) {
		txda_survey_unref(survey);
		return txda__fail(NULL, r, "surveying the chips: %s", strerror(-r));
	}
	*ret_survey = survey;
	return 0;
}

struct txda_survey *txda_survey_unref(struct txda_survey *survey)
{
	if (survey) {
		free(survey->chip);
		free(survey->process);
		free(survey);
	}
	return NULL;
}

int txda_survey_chips(struct txda_survey *survey)
{
	return (int)survey->n_chips;
}

int txda_survey_chip(struct txda_survey *survey, unsigned index, struct txda_device_info *ret_info,
		     struct txda_device_status *ret_status)
{
	const struct txda__survey_chip *chip;
	int r = 0;

	if (index >= survey->n_chips)
		return txda__fail(NULL, -ENODEV, "chip %u does not exist; there are %u", index,
				  survey->n_chips);
	chip = &survey->chip[index];
	if (ret_info)
		r = txda__copy_out(NULL, ret_info, &chip->info, sizeof(chip->info),
				   "txda_device_info");
	if (ret_status && r >= 0)
		r = txda__copy_out(NULL, ret_status, &chip->status, sizeof(chip->status),
				   "txda_device_status");
	return r;
}

int txda_survey_processes(struct txda_survey *survey, unsigned chip)
{
	int n = 0;

	for (unsigned i = 0; i < survey->n_processes; i++)
		n += survey->process[i].chip == chip;
	return n;
}

int txda_survey_process(struct txda_survey *survey, unsigned chip, unsigned index,
			struct txda_process_info *ret_info)
{
	for (unsigned i = 0; i < survey->n_processes; i++)
		if (survey->process[i].chip == chip && index-- == 0)
			return txda__copy_out(NULL, ret_info, &survey->process[i].info,
					      sizeof(survey->process[i].info), "txda_process_info");
	return txda__fail(NULL, -ESRCH, "no such process on chip %u", chip);
}
