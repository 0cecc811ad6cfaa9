// SPDX-License-Identifier: MIT
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "smi.h"

/*
 * Text fields return @text; number fields a value, NaN if it is unknown. Names include the units.
 */
struct field {
	const char *name;
	const char *(*text)(const struct smi_chip *chip);
	double (*number)(const struct smi_chip *chip);
};

static double known(bool is_known, double value)
{
	return is_known ? value : NAN;
}

#define TEXT(name, expression)                                                                     \
	static const char *get_##name(const struct smi_chip *c)                                    \
	{                                                                                          \
		return expression;                                                                 \
	}
#define NUMBER(name, expression)                                                                   \
	static double get_##name(const struct smi_chip *c)                                         \
	{                                                                                          \
		return expression;                                                                 \
	}

NUMBER(index, c->info.index)
TEXT(name, c->info.name)
TEXT(serial, c->info.serial)
TEXT(bus, c->info.bus)
TEXT(node, c->info.node)
TEXT(driver_version, c->info.driver)
TEXT(firmware_version, c->info.firmware)
NUMBER(cores, known(c->info.cores, c->info.cores))
NUMBER(memory_total_bytes, (double)c->info.mem_bytes)
NUMBER(memory_used_bytes, (double)c->status.mem_used_bytes)
NUMBER(utilisation_percent,
       known(c->status.utilisation_permille != UINT32_MAX, c->status.utilisation_permille / 10.0))
NUMBER(temperature_c, known(c->status.temp_mc != INT32_MIN, c->status.temp_mc / 1000.0))
NUMBER(power_w, known(c->status.power_mw != UINT32_MAX, c->status.power_mw / 1000.0))
NUMBER(clock_mhz, known(c->status.clock_khz != UINT32_MAX, c->status.clock_khz / 1000.0))
NUMBER(busy_s, (double)c->status.busy_ns / 1e9)
/* For real chips the driver gives these only to users with the rights for perf. */
NUMBER(copy_busy_s, known(!*c->info.node, (double)c->status.copy_busy_ns / 1e9))
NUMBER(read_bytes, known(!*c->info.node, (double)c->status.bytes_read))
NUMBER(written_bytes, known(!*c->info.node, (double)c->status.bytes_written))
NUMBER(ecc_corrected, c->status.ecc_corrected)
NUMBER(ecc_uncorrected, c->status.ecc_uncorrected)
NUMBER(faults, c->status.faults)
TEXT(state, c->status.lost ? "lost" : "ok")

static const struct field fields[] = {
	{"index", NULL, get_index},
	{"name", get_name, NULL},
	{"serial", get_serial, NULL},
	{"bus", get_bus, NULL},
	{"node", get_node, NULL},
	{"state", get_state, NULL},
	{"driver_version", get_driver_version, NULL},
	{"firmware_version", get_firmware_version, NULL},
	{"cores", NULL, get_cores},
	{"utilisation_percent", NULL, get_utilisation_percent},
	{"memory_used_bytes", NULL, get_memory_used_bytes},
	{"memory_total_bytes", NULL, get_memory_total_bytes},
	{"temperature_c", NULL, get_temperature_c},
	{"power_w", NULL, get_power_w},
	{"clock_mhz", NULL, get_clock_mhz},
	{"busy_s", NULL, get_busy_s},
	{"copy_busy_s", NULL, get_copy_busy_s},
	{"read_bytes", NULL, get_read_bytes},
	{"written_bytes", NULL, get_written_bytes},
	{"ecc_corrected", NULL, get_ecc_corrected},
	{"ecc_uncorrected", NULL, get_ecc_uncorrected},
	{"faults", NULL, get_faults},
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static void add_field(cJSON *object, const struct field *field, const struct smi_chip *chip)
{
	if (field->text) {
		const char *text = field->text(chip);

		/* An empty text means unknown. */
		if (*text)
			cJSON_AddStringToObject(object, field->name, text);
		else
			cJSON_AddNullToObject(object, field->name);
	} else {
		double value = field->number(chip);

		if (isnan(value))
			cJSON_AddNullToObject(object, field->name);
		else
			cJSON_AddNumberToObject(object, field->name, value);
	}
}

int smi_print_document(cJSON *root, FILE *out, bool compact)
{
	char *text = compact ? cJSON_PrintUnformatted(root) : cJSON_Print(root);

	cJSON_Delete(root);
	if (!text)
		return -ENOMEM;
	fprintf(out, "%s\n", text);
	cJSON_free(text);
	return 0;
}

static cJSON *new_document(void)
{
	cJSON *root = cJSON_CreateObject();
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	cJSON_AddNumberToObject(root, "schema_version", SMI_SCHEMA_VERSION);
	cJSON_AddStringToObject(root, "version", txda_version());
	cJSON_AddNumberToObject(root, "time_unix_s",
				(double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1000);
	return root;
}

int smi_print_json(const struct smi_snapshot *snapshot, FILE *out, bool compact)
{
	cJSON *root = new_document(), *chips = cJSON_AddArrayToObject(root, "chips");

	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		const struct smi_chip *chip = &snapshot->chip[i];
		cJSON *object = cJSON_CreateObject(), *processes;

		cJSON_AddItemToArray(chips, object);
		for (size_t f = 0; f < N_FIELDS; f++)
			add_field(object, &fields[f], chip);
		cJSON_AddBoolToObject(object, "simulated", chip->info.caps & TXDA_CAP_CMODEL);
		processes = cJSON_AddArrayToObject(object, "processes");
		for (unsigned j = 0; j < chip->n_processes; j++) {
			const struct smi_process *p = &chip->process[j];
			cJSON *process = cJSON_CreateObject();

			cJSON_AddItemToArray(processes, process);
			cJSON_AddNumberToObject(process, "pid", p->info.pid);
			cJSON_AddStringToObject(process, "user", p->user);
			cJSON_AddStringToObject(process, "command", p->info.command);
			if (p->info.purpose[0])
				cJSON_AddStringToObject(process, "purpose", p->info.purpose);
			else
				cJSON_AddNullToObject(process, "purpose");
			cJSON_AddNumberToObject(process, "memory_used_bytes",
						(double)p->info.mem_bytes);
			cJSON_AddNumberToObject(process, "busy_s", (double)p->info.busy_ns / 1e9);
		}
	}
	return smi_print_document(root, out, compact);
}

/* ---- chosen fields --------------------------------------------------------------------------- */

/* The next name of a list; NULL at the end. Sets *ret_field, NULL if it is not known. */
static const char *next_field(const char *list, const struct field **ret_field, size_t *ret_len)
{
	if (!list || !*list)
		return NULL;
	*ret_len = strcspn(list, ",");
	*ret_field = NULL;
	for (size_t f = 0; f < N_FIELDS; f++)
		if (strlen(fields[f].name) == *ret_len && !memcmp(fields[f].name, list, *ret_len))
			*ret_field = &fields[f];
	return list[*ret_len] ? list + *ret_len + 1 : list + *ret_len;
}

int smi_check_fields(const char *list, char *unknown, size_t size)
{
	const struct field *field;
	const char *next;
	size_t len;

	/* No name, or none after the last comma. */
	if (!*list || list[strlen(list) - 1] == ',') {
		*unknown = '\0';
		return -EINVAL;
	}
	for (; (next = next_field(list, &field, &len)); list = next)
		if (!field) {
			snprintf(unknown, size, "%.*s", (int)(len < size ? len : size), list);
			return -EINVAL;
		}
	return 0;
}

static void print_csv_text(const char *text, FILE *out)
{
	if (!strpbrk(text, ",\"\n")) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void print_csv(const struct smi_snapshot *snapshot, const char *list, FILE *out)
{
	const struct field *field;
	const char *pos = list, *next;
	size_t len;

	fprintf(out, "%s\n", list);
	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		for (pos = list; (next = next_field(pos, &field, &len)); pos = next) {
			double value = field->number ? field->number(&snapshot->chip[i]) : NAN;

			if (pos != list)
				fputc(',', out);
			if (field->text)
				print_csv_text(field->text(&snapshot->chip[i]), out);
			else if (!isnan(value))
				fprintf(out, "%.15g", value);
		}
		fputc('\n', out);
	}
}

int smi_print_query(const struct smi_snapshot *snapshot, const char *list, enum smi_form form,
		    FILE *out)
{
	const struct field *field;
	const char *pos, *next;
	cJSON *root, *chips;
	size_t len;

	if (form == SMI_CSV) {
		print_csv(snapshot, list, out);
		return 0;
	}
	root = new_document();
	chips = cJSON_AddArrayToObject(root, "chips");
	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		cJSON *object = cJSON_CreateObject();

		cJSON_AddItemToArray(chips, object);
		for (pos = list; (next = next_field(pos, &field, &len)); pos = next)
			if (!cJSON_HasObjectItem(object, field->name))
				add_field(object, field, &snapshot->chip[i]);
	}
	return smi_print_document(root, out, form == SMI_LINE);
}

void smi_list_fields(FILE *out)
{
	for (size_t f = 0; f < N_FIELDS; f++)
		fprintf(out, "%s\n", fields[f].name);
}
