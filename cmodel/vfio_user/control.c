// SPDX-License-Identifier: MIT
#include "server.h"
#include "number.h"

#include <errno.h>
#include <string.h>

static const char *const state_names[] = {
	[TXDA_QUEUE_OFF] = "off",
	[TXDA_QUEUE_RUNNING] = "running",
	[TXDA_QUEUE_FAULTED] = "faulted",
	[TXDA_QUEUE_LOST] = "lost",
};

static const char *const firmware_names[] = {
	[TXDA_FW_RESET] = "reset",
	[TXDA_FW_BOOTING] = "booting",
	[TXDA_FW_READY] = "ready",
	[TXDA_FW_FAILED] = "failed",
};

/* The chip named by @words; NULL: none. */
static struct vu_device *chip_of(struct vu_server *s, const char *words)
{
	struct vu_machine *m = vu_server_machine(s);
	uint64_t chip;

	return number_parse(words, m->n_devices - 1, &chip) ? &m->device[chip] : NULL;
}

/* ---- commands -------------------------------------------------------------------------------- */

static int command_inject(struct vu_server *s, const char *words, FILE *out)
{
	int err = cm_inject(vu_server_machine(s)->cm, words);

	(void)out;
	/* After the reply the client can rely on events and registers. */
	if (!err)
		vu_server_poll(s);
	return err;
}

/* One line of JSON. op_lock and lock are held. */
static void print_status(struct vu_device *d, FILE *out)
{
	const char *comma = "";

	fprintf(out,
		"{\"chip\": %u, \"connected\": %s, \"gone\": %s, \"hung\": %s, \"tripped\": %s, "
		"\"bus_master\": %s, \"firmware\": \"%s\", \"resets\": %u, \"regions\": %zu, "
		"\"faults\": %u, \"irq_queues\": \"0x%llx\", \"irq_events\": \"0x%x\", \"queues\": "
		"[",
		d->index, d->connected ? "true" : "false", atomic_load(&d->gone) ? "true" : "false",
		atomic_load(&d->hung) ? "true" : "false", d->tripped ? "true" : "false",
		vu_device_bus_master(d) ? "true" : "false", firmware_names[d->firmware.state],
		d->resets, d->guest.n, d->faults.count, (unsigned long long)d->irq.queues,
		d->irq.events);
	for (unsigned i = 0; i < VU_QUEUES; i++) {
		const struct vu_queue *q = &d->queue[i];

		if (q->state == TXDA_QUEUE_OFF)
			continue;
		fprintf(out,
			"%s{\"queue\": %u, \"state\": \"%s\", \"vmid\": %u, \"head\": %u, "
			"\"tail\": %u, \"progress\": %llu, \"packet\": \"0x%llx\"}",
			comma, i, state_names[q->state], q->vmid, q->head, q->tail,
			(unsigned long long)vu_queue_progress(q),
			(unsigned long long)vu_queue_packet(q));
		comma = ", ";
	}
	fprintf(out, "]}\n");
}

static int command_status(struct vu_server *s, const char *words, FILE *out)
{
	struct vu_machine *m = vu_server_machine(s);
	struct vu_device *only = chip_of(s, words);

	if (*words && !only)
		return -ENODEV;
	for (unsigned i = 0; i < m->n_devices; i++) {
		struct vu_device *d = &m->device[i];

		if (only && d != only)
			continue;
		pthread_mutex_lock(&d->op_lock);
		pthread_mutex_lock(&d->lock);
		print_status(d, out);
		pthread_mutex_unlock(&d->lock);
		pthread_mutex_unlock(&d->op_lock);
	}
	return 0;
}

static int command_disappear(struct vu_server *s, const char *words, FILE *out)
{
	struct vu_device *d = chip_of(s, words);

	(void)out;
	return d ? vu_server_disappear(s, d->index) : -ENODEV;
}

static int command_appear(struct vu_server *s, const char *words, FILE *out)
{
	struct vu_device *d = chip_of(s, words);

	(void)out;
	return d ? vu_server_appear(s, d->index) : -ENODEV;
}

static int on_device(struct vu_server *s, const char *words, void (*fn)(struct vu_device *d))
{
	struct vu_device *d = chip_of(s, words);

	if (!d)
		return -ENODEV;
	pthread_mutex_lock(&d->op_lock);
	fn(d);
	pthread_mutex_unlock(&d->op_lock);
	return 0;
}

static int command_liveness_stop(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, vu_device_hang);
}

static int command_trip(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, vu_device_trip);
}

static void stick_flushes(struct vu_device *d)
{
	vu_device_stick(d, VU_STUCK_FLUSH);
}

static int command_stick_flush(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, stick_flushes);
}

static void stick_resets(struct vu_device *d)
{
	vu_device_stick(d, VU_STUCK_RESET);
}

static int command_stick_reset(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, stick_resets);
}

static void stick_stop(struct vu_device *d)
{
	vu_device_stick(d, VU_STUCK_STOP);
}

static int command_stick_stop(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, stick_stop);
}

static void stick_registers(struct vu_device *d)
{
	vu_device_stick(d, VU_STUCK_REGS);
}

static int command_stick_registers(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, stick_registers);
}

static void slow_stop(struct vu_device *d)
{
	vu_device_stick(d, VU_SLOW_STOP);
}

static int command_slow_stop(struct vu_server *s, const char *words, FILE *out)
{
	(void)out;
	return on_device(s, words, slow_stop);
}

static int command_help(struct vu_server *s, const char *words, FILE *out);

static const struct command {
	const char *name, *words;
	int (*run)(struct vu_server *s, const char *words, FILE *out);
} commands[] = {
	{"inject",
	 "SPEC: hang, page, ecc, ecc-corrected, link-down, thermal, slow-dma, lost, clear",
	 command_inject},
	{"status", "[CHIP]", command_status},
	{"disappear", "CHIP", command_disappear},
	{"appear", "CHIP", command_appear},
	{"liveness-stop", "CHIP", command_liveness_stop},
	{"trip", "CHIP", command_trip},
	{"stick-flush", "CHIP", command_stick_flush},
	{"stick-registers", "CHIP", command_stick_registers},
	{"stick-reset", "CHIP", command_stick_reset},
	{"stick-stop", "CHIP", command_stick_stop},
	{"slow-stop", "CHIP", command_slow_stop},
	{"help", "", command_help},
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int command_help(struct vu_server *s, const char *words, FILE *out)
{
	(void)s;
	(void)words;
	for (unsigned i = 0; i < N_COMMANDS; i++)
		fprintf(out, "%s%s%s\n", commands[i].name, *commands[i].words ? " " : "",
			commands[i].words);
	return 0;
}

void vu_control_run(struct vu_server *s, const char *line, FILE *out)
{
	size_t len = strcspn(line, " ");
	const char *words = line + len + strspn(line + len, " ");

	for (unsigned i = 0; i < N_COMMANDS; i++) {
		int err;

		if (strlen(commands[i].name) != len || memcmp(commands[i].name, line, len))
			continue;
		err = commands[i].run(s, words, out);
		if (err)
			fprintf(out, "error: %s: %s\n", commands[i].name, strerror(-err));
		else
			fprintf(out, "ok\n");
		return;
	}
	fprintf(out, "error: \"%.32s\" is not a command; help lists them\n", line);
}
