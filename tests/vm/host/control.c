// SPDX-License-Identifier: MIT
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define QMP_TIMEOUT_MS 20000
/* The guest is given five seconds in which a person could press the button again. */
#define DELETE_TIMEOUT_MS 60000
#define MODEL_TIMEOUT_MS  20000

/* What follows @word and a space in @line, "" when nothing does, NULL when the word is another. */
static const char *after(const char *line, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(line, word, len))
		return NULL;
	if (line[len] == '\0')
		return line + len;
	return line[len] == ' ' ? line + len + 1 : NULL;
}

/* A command whose success needs no words. */
static int monitor(struct control *control, const char *command, char *text)
{
	int err = qmp_command(control->qmp, command, QMP_TIMEOUT_MS, text, CONTROL_TEXT_BYTES);

	if (!err)
		text[0] = '\0';
	return err;
}

static int add_chip(struct control *control, unsigned int chip, unsigned int function, char *text)
{
	char path[256], command[512];

	model_chip_path(control->model, chip, path, sizeof(path));
	snprintf(command, sizeof(command),
		 "{\"execute\": \"device_add\", \"arguments\": {\"driver\": \"vfio-user-pci\", "
		 "\"id\": \"chip%u\","
		 " \"bus\": \"rp%u\", \"addr\": \"0.%u\","
		 " \"socket\": {\"type\": \"unix\", \"path\": \"%s\"}}}",
		 chip, chip, function, path);
	return monitor(control, command, text);
}

static int add(struct control *control, const char *which, char *text)
{
	unsigned int chip, function = 0;
	int err = 0;

	if (sscanf(which, "%u %u", &chip, &function) > 0)
		return add_chip(control, chip, function, text);
	for (chip = 0; chip < control->chips && !err; chip++)
		err = add_chip(control, chip, 0, text);
	return err;
}

static int del(struct control *control, const char *which, char *text)
{
	unsigned int since = control->qmp->deletions;
	char id[QMP_ID_BYTES], command[256];
	int err;

	snprintf(id, sizeof(id), "chip%lu", strtoul(which, NULL, 10));
	snprintf(command, sizeof(command),
		 "{\"execute\": \"device_del\", \"arguments\": {\"id\": \"%s\"}}", id);
	err = monitor(control, command, text);
	return err ? err : qmp_wait_deleted(control->qmp, id, since, DELETE_TIMEOUT_MS);
}

/* Processor time of @pid so far in seconds, its threads' included; 0 when it is gone. */
static double process_seconds(pid_t pid)
{
	unsigned long user = 0, system = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = pid > 0 ? fopen(path, "re") : NULL;
	if (!file)
		return 0;
	/* The second field is the name in parentheses; those of our processes have no spaces. */
	if (fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
		   &system) != 2)
		user = system = 0;
	fclose(file);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* What the machine and its model server have used, those that are gone included. */
static double used_seconds(const struct control *control)
{
	struct rusage gone;

	getrusage(RUSAGE_CHILDREN, &gone);
	return (double)(gone.ru_utime.tv_sec + gone.ru_stime.tv_sec) +
	       process_seconds(*control->machine) + process_seconds(control->model->pid);
}

static void begin(struct control *control, const char *line)
{
	control->used_before = used_seconds(control);
	dprintf(control->events, "%s\n", line);
}

static void end(struct control *control, const char *line, char *text)
{
	snprintf(text, CONTROL_TEXT_BYTES, "%.0f s of processors",
		 used_seconds(control) - control->used_before);
	dprintf(control->events, "%s (%s)\n", line, text);
}

static int serve(struct control *control, const char *line, char *text)
{
	const char *rest;

	if ((rest = after(line, "add")))
		return add(control, rest, text);
	if ((rest = after(line, "del")))
		return del(control, rest, text);
	if ((rest = after(line, "qmp")))
		return qmp_command(control->qmp, rest, QMP_TIMEOUT_MS, text, CONTROL_TEXT_BYTES);
	if (after(line, "model-kill")) {
		model_kill(control->model);
		return 0;
	}
	if (after(line, "model-start"))
		return model_start(control->model, MODEL_TIMEOUT_MS);
	if (after(line, "wake-on-suspend")) {
		control->qmp->wake_on_suspend = true;
		return 0;
	}
	if ((rest = after(line, "limit"))) {
		control->limit_s = atoi(rest);
		return 0;
	}
	if ((rest = after(line, "begin"))) {
		control->limit_s = atoi(rest);
		begin(control, line);
		return 0;
	}
	if (after(line, "end")) {
		end(control, line, text);
		return 0;
	}
	if ((rest = after(line, "exit"))) {
		control->exited = true;
		control->status = atoi(rest);
		return 0;
	}
	return model_control(control->model, line, MODEL_TIMEOUT_MS, text, CONTROL_TEXT_BYTES);
}

static int answer(struct control *control, int err, const char *text)
{
	char head[32];
	size_t bytes = strlen(text);
	int len = snprintf(head, sizeof(head), "%d %zu\n", err ? 1 : 0, bytes);

	if (write(control->fd, head, (size_t)len) != len ||
	    write(control->fd, text, bytes) != (ssize_t)bytes)
		return -EPIPE;
	return 0;
}

static int serve_line(struct control *control, const char *line)
{
	static char text[CONTROL_TEXT_BYTES];
	int err;

	text[0] = '\0';
	err = serve(control, line, text);
	if (err && !text[0])
		snprintf(text, sizeof(text), "%s: %s", line, strerror(-err));
	return answer(control, err, text);
}

int control_serve(struct control *control)
{
	ssize_t n = read(control->fd, control->line + control->fill,
			 sizeof(control->line) - control->fill);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	control->fill += (size_t)n;
	for (;;) {
		char *end = memchr(control->line, '\n', control->fill);
		size_t bytes;
		int err;

		if (!end)
			break;
		*end = '\0';
		bytes = (size_t)(end - control->line) + 1;
		err = serve_line(control, control->line);
		if (err)
			return err;
		memmove(control->line, control->line + bytes, control->fill - bytes);
		control->fill -= bytes;
	}
	return control->fill == sizeof(control->line) ? -EMSGSIZE : 0;
}
