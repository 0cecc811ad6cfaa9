// SPDX-License-Identifier: MIT
#include "qmp.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int send_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* The next whole line, NUL in place of its end; it stays valid until the next call. */
static int read_line(struct qmp *qmp, int64_t deadline, char **ret_line)
{
	static char line[QMP_LINE_BYTES];

	for (;;) {
		char *end = memchr(qmp->line, '\n', qmp->fill);
		struct pollfd pfd = {.fd = qmp->fd, .events = POLLIN};
		int64_t left = deadline - now_ms();
		ssize_t n;

		if (end) {
			size_t bytes = (size_t)(end - qmp->line) + 1;

			memcpy(line, qmp->line, bytes);
			line[bytes - 1] = '\0';
			memmove(qmp->line, qmp->line + bytes, qmp->fill - bytes);
			qmp->fill -= bytes;
			*ret_line = line;
			return 0;
		}
		if (qmp->fill == sizeof(qmp->line))
			return -EMSGSIZE;
		n = poll(&pfd, 1, left > 0 ? (int)left : 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
		n = read(qmp->fd, qmp->line + qmp->fill, sizeof(qmp->line) - qmp->fill);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		qmp->fill += (size_t)n;
	}
}

static int send_line(struct qmp *qmp, const char *command)
{
	int err = send_all(qmp->fd, command, strlen(command));

	return err ? err : send_all(qmp->fd, "\n", 1);
}

static int take_event(struct qmp *qmp, const cJSON *message, const char *event)
{
	const cJSON *data = cJSON_GetObjectItem(message, "data");
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(data, "device"));

	if (!strcmp(event, "DEVICE_DELETED") && id) {
		snprintf(qmp->deleted[qmp->deletions % QMP_IDS], QMP_ID_BYTES, "%s", id);
		qmp->deletions++;
	}
	if (!strcmp(event, "SUSPEND") && qmp->wake_on_suspend) {
		qmp->wake_on_suspend = false;
		return send_line(qmp, "{\"execute\": \"system_wakeup\", \"id\": \"event\"}");
	}
	return 0;
}

/* One message; *ret_answer is set when it answers a command, and belongs to the caller. */
static int take_message(struct qmp *qmp, int64_t deadline, cJSON **ret_answer)
{
	const char *event, *id;
	cJSON *message;
	char *line;
	int err = read_line(qmp, deadline, &line);

	if (err)
		return err;
	message = cJSON_Parse(line);
	if (!message)
		return -EPROTO;
	event = cJSON_GetStringValue(cJSON_GetObjectItem(message, "event"));
	id = cJSON_GetStringValue(cJSON_GetObjectItem(message, "id"));
	*ret_answer = NULL;
	if (event)
		err = take_event(qmp, message, event);
	else if (!id || strcmp(id, "event"))
		*ret_answer = message;
	if (!*ret_answer)
		cJSON_Delete(message);
	return err;
}

static int take_answer(struct qmp *qmp, int timeout_ms, cJSON **ret_answer)
{
	int64_t deadline = now_ms() + timeout_ms;
	int err;

	do {
		err = take_message(qmp, deadline, ret_answer);
	} while (!err && !*ret_answer);
	return err;
}

int qmp_start(struct qmp *qmp, int fd, int timeout_ms)
{
	cJSON *greeting = NULL;
	char text[256];
	int err;

	qmp->fd = fd;
	err = take_answer(qmp, timeout_ms, &greeting);
	cJSON_Delete(greeting);
	return err ? err
		   : qmp_command(qmp, "{\"execute\": \"qmp_capabilities\"}", timeout_ms, text,
				 sizeof(text));
}

int qmp_command(struct qmp *qmp, const char *command, int timeout_ms, char *text, size_t text_bytes)
{
	const cJSON *error, *value;
	cJSON *answer = NULL;
	char *printed = NULL;
	int err;

	text[0] = '\0';
	err = send_line(qmp, command);
	if (!err)
		err = take_answer(qmp, timeout_ms, &answer);
	if (err)
		return err;
	error = cJSON_GetObjectItem(answer, "error");
	value = cJSON_GetObjectItem(answer, "return");
	if (error) {
		const char *words = cJSON_GetStringValue(cJSON_GetObjectItem(error, "desc"));

		snprintf(text, text_bytes, "%s", words ? words : "refused");
		err = -EREMOTEIO;
	} else if (value) {
		printed = cJSON_PrintUnformatted(value);
		snprintf(text, text_bytes, "%s", printed ? printed : "");
		cJSON_free(printed);
	}
	cJSON_Delete(answer);
	return err;
}

int qmp_pump(struct qmp *qmp)
{
	for (;;) {
		cJSON *answer = NULL;
		int err = take_message(qmp, now_ms(), &answer);

		cJSON_Delete(answer);
		if (err)
			return err == -ETIMEDOUT ? 0 : err;
	}
}

static bool was_deleted(const struct qmp *qmp, const char *id, unsigned int since)
{
	for (; since != qmp->deletions; since++)
		if (!strcmp(qmp->deleted[since % QMP_IDS], id))
			return true;
	return false;
}

int qmp_wait_deleted(struct qmp *qmp, const char *id, unsigned int since, int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;

	while (!was_deleted(qmp, id, since)) {
		cJSON *answer = NULL;
		int err = take_message(qmp, deadline, &answer);

		cJSON_Delete(answer);
		if (err)
			return err;
	}
	return 0;
}
