// SPDX-License-Identifier: MIT
#include <limits.h>
#include <string.h>
#include <time.h>

#include "smi.h"

#define RULE "+------+------------------------------+---------------------------+------------+\n"
#define HEAVY_RULE                                                                                 \
	"+======+==============================+===========================+============+\n"
#define WIDE_RULE                                                                                  \
	"+------------------------------------------------------------------------------+\n"
#define HEAVY_WIDE_RULE                                                                            \
	"+==============================================================================+\n"

static const char *size_text(uint64_t bytes, char text[16])
{
	static const char unit[][4] = {"KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes / 1024;
	unsigned i = 0;

	while (value >= 999.5 && i < 3) {
		value /= 1024;
		i++;
	}
	snprintf(text, 16, value < 9.95 ? "%.1f %s" : "%.0f %s", value < 1e6 ? value : 1e6,
		 unit[i]);
	return text;
}

static const char *number_text(char text[16], bool known, const char *format, double value)
{
	if (known) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(text, 16, format, value);
#pragma GCC diagnostic pop
	} else {
		snprintf(text, 16, "-");
	}
	return text;
}

static void print_chip(const struct smi_chip *chip, FILE *out, bool colour)
{
	const struct txda_device_status *s = &chip->status;
	char temp[16], power[16], clock[16], used[16], total[16], util[16], memory[40], state[24];
	char bus[64];

	number_text(temp, s->temp_mc != INT32_MIN, "%.0f C", s->temp_mc / 1000.0);
	number_text(power, s->power_mw != UINT32_MAX, "%.1f W", s->power_mw / 1000.0);
	number_text(clock, s->clock_khz != UINT32_MAX, "%.0f MHz", s->clock_khz / 1000.0);
	number_text(util, s->utilisation_permille != UINT32_MAX, "%.0f %%",
		    s->utilisation_permille / 10.0);
	snprintf(memory, sizeof(memory), "%s / %s", size_text(s->mem_used_bytes, used),
		 size_text(chip->info.mem_bytes, total));
	if (s->lost)
		snprintf(state, sizeof(state), "LOST");
	else if (s->faults)
		snprintf(state, sizeof(state), "%u fault%s", s->faults, s->faults == 1 ? "" : "s");
	else
		snprintf(state, sizeof(state), "ok");

	snprintf(bus, sizeof(bus), "%s%s%s", chip->info.bus, *chip->info.firmware ? "  fw " : "",
		 chip->info.firmware);
	fprintf(out, "| %4u | %-28.28s | %6s %8s %9s | %10s |\n", chip->info.index, chip->info.name,
		temp, power, clock, util);
	fprintf(out, "|      | %-28.28s | %25s | %s%10.10s%s |\n", bus, memory,
		colour && s->lost ? "\033[31m" : "", state, colour && s->lost ? "\033[0m" : "");
	fputs(RULE, out);
}

static void print_processes(const struct smi_snapshot *snapshot, FILE *out)
{
	unsigned shown = 0;
	char memory[16];

	fputs("| Processes                                                                    |\n"
	      "| Chip      PID  User          Command          Purpose                Memory  "
	      "|\n" HEAVY_WIDE_RULE,
	      out);
	for (unsigned i = 0; i < snapshot->n_chips; i++)
		for (unsigned j = 0; j < snapshot->chip[i].n_processes; j++) {
			const struct smi_process *p = &snapshot->chip[i].process[j];

			fprintf(out, "| %4u %8d  %-12.12s  %-15.15s  %-19.19s %9s  |\n",
				snapshot->chip[i].info.index, p->info.pid, p->user, p->info.command,
				p->info.purpose, size_text(p->info.mem_bytes, memory));
			shown++;
		}
	if (!shown)
		fprintf(out, "| %-76s |\n", "none");
	fputs(WIDE_RULE, out);
}

void smi_print_table(const struct smi_snapshot *snapshot, FILE *out, bool colour)
{
	char now[32] = "", title[40];
	time_t seconds = time(NULL);
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(now, sizeof(now), "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(title, sizeof(title), "txda-smi %s", txda_version());
	for (unsigned i = 0; i < snapshot->n_chips; i++)
		if (*snapshot->chip[i].info.driver) {
			snprintf(title, sizeof(title), "txda-smi %s, driver %s", txda_version(),
				 snapshot->chip[i].info.driver);
			break;
		}
	fputs(WIDE_RULE, out);
	fprintf(out, "| %s%-38.38s%s%38.38s |\n", colour ? "\033[1m" : "", title,
		colour ? "\033[0m" : "", now);
	fputs(RULE
	      "| Chip | Name                         |   Temp    Power     Clock |       Util |\n"
	      "|      | Bus, firmware                |             Memory in use |      State "
	      "|\n" HEAVY_RULE,
	      out);
	for (unsigned i = 0; i < snapshot->n_chips; i++)
		print_chip(&snapshot->chip[i], out, colour);
	fputs("\n" WIDE_RULE, out);
	print_processes(snapshot, out);
}

void smi_print_monitor(const struct smi_snapshot *snapshot, FILE *out, bool header)
{
	char temp[16], power[16], clock[16], util[16], used[16];

	if (header)
		fputs("# chip    util       memory   temp     power      clock  faults\n", out);
	for (unsigned i = 0; i < snapshot->n_chips; i++) {
		const struct smi_chip *chip = &snapshot->chip[i];
		const struct txda_device_status *s = &chip->status;

		fprintf(out, "%6u %7s %12s %6s %9s %10s %7u%s\n", chip->info.index,
			number_text(util, s->utilisation_permille != UINT32_MAX, "%.1f %%",
				    s->utilisation_permille / 10.0),
			size_text(s->mem_used_bytes, used),
			number_text(temp, s->temp_mc != INT32_MIN, "%.0f C", s->temp_mc / 1000.0),
			number_text(power, s->power_mw != UINT32_MAX, "%.1f W",
				    s->power_mw / 1000.0),
			number_text(clock, s->clock_khz != UINT32_MAX, "%.0f MHz",
				    s->clock_khz / 1000.0),
			s->faults, s->lost ? "  LOST" : "");
	}
}
