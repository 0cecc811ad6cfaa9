// SPDX-License-Identifier: MIT
#include "conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "show.h"
#include "utf8.h"

#define MAX_FILE ((size_t)16 << 20)

static cJSON *new_message(const char *role, const char *content)
{
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "role", role);
	cJSON_AddStringToObject(message, "content", content);
	return message;
}

cJSON *conversation_new(const char *system)
{
	cJSON *messages = cJSON_CreateArray();

	if (system)
		conversation_add(messages, "system", system);
	return messages;
}

void conversation_add(cJSON *messages, const char *role, const char *content)
{
	cJSON_AddItemToArray(messages, new_message(role, content));
}

void conversation_drop_last(cJSON *messages)
{
	cJSON_DeleteItemFromArray(messages, cJSON_GetArraySize(messages) - 1);
}

static const char *text_of(const cJSON *message, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, name));
}

const char *conversation_system(const cJSON *messages)
{
	const cJSON *first = cJSON_GetArrayItem(messages, 0);
	const char *role = text_of(first, "role");

	return role && !strcmp(role, "system") ? text_of(first, "content") : NULL;
}

void conversation_set_system(cJSON *messages, const char *system)
{
	if (conversation_system(messages))
		cJSON_DeleteItemFromArray(messages, 0);
	if (system)
		cJSON_InsertItemInArray(messages, 0, new_message("system", system));
}

/* ---- files ----------------------------------------------------------------------------------- */

/* File names are untrusted text; @rest is not. */
static void __attribute__((format(printf, 3, 4)))
report(const char *what, const char *path, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "txda-run: %s", what);
	show_text(stderr, path);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

bool conversation_save(const cJSON *messages, const char *path)
{
	char *text = cJSON_Print(messages);
	int fd = text ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	bool ok = file && fprintf(file, "%s\n", text) > 0;

	if (file && fclose(file))
		ok = false;
	if (!ok)
		report("cannot write ", path, ": %s", text ? strerror(errno) : "out of memory");
	cJSON_free(text);
	return ok;
}

static char *read_file(const char *path, size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	char *text = NULL;
	struct stat st;
	size_t n;

	if (!file || fstat(fd, &st)) {
		report("cannot read ", path, ": %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode) || (size_t)st.st_size > MAX_FILE) {
		report("", path, " is not a file of at most %zu bytes", MAX_FILE);
	} else if ((text = malloc((size_t)st.st_size + 1))) {
		n = fread(text, 1, (size_t)st.st_size, file);
		text[n] = 0;
		*ret_len = n;
	}
	if (file)
		fclose(file);
	return text;
}

/* Whether the content consists of texts and pictures. */
static bool has_parts(const cJSON *message)
{
	const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content"), *part;

	cJSON_ArrayForEach(part, content) {
		const char *type = text_of(part, "type");

		if (!type ||
		    !(strcmp(type, "text")
			      ? !strcmp(type, "image_url") &&
					text_of(cJSON_GetObjectItemCaseSensitive(part, "image_url"),
						"url")
			      : text_of(part, "text") != NULL))
			return false;
	}
	return cJSON_GetArraySize(content) > 0;
}

/* What is wrong with a message; NULL: nothing. */
static const char *check(const cJSON *message, int index)
{
	const char *role = text_of(message, "role");

	if (!role || (!text_of(message, "content") && !has_parts(message)))
		return "has no text \"role\" and \"content\"";
	if (!strcmp(role, "system"))
		return index ? "is from the system, which may only come first" : NULL;
	return strcmp(role, "user") && strcmp(role, "assistant")
		       ? "has a role other than system, user and assistant"
		       : NULL;
}

cJSON *conversation_load(const char *path)
{
	size_t len = 0;
	char *text = read_file(path, &len);
	size_t good = text ? utf8_valid_prefix((const uint8_t *)text, len) : 0;
	cJSON *messages = text && good == len ? cJSON_Parse(text) : NULL;
	const cJSON *message;
	int index = 0;

	if (text && good < len) {
		report("", path, " is not UTF-8 (byte 0x%02x at offset %zu)",
		       (unsigned char)text[good], good);
	} else if (text && !cJSON_IsArray(messages)) {
		report("", path, " is not a JSON array of messages");
		cJSON_Delete(messages);
		messages = NULL;
	}
	free(text);
	cJSON_ArrayForEach(message, messages) {
		const char *wrong = check(message, index++);

		if (wrong) {
			report("", path, ": message %d %s", index, wrong);
			cJSON_Delete(messages);
			return NULL;
		}
	}
	return messages;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* A data: URI of the bytes; the decoder detects their type. */
static char *make_uri(const unsigned char *data, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	static const char head[] = "data:application/octet-stream;base64,";
	char *uri = malloc(sizeof(head) + n / 3 * 4 + 4), *to = uri;

	if (!uri)
		return NULL;
	to = stpcpy(to, head);
	for (size_t i = 0; i < n; i += 3) {
		uint32_t bits = (uint32_t)data[i] << 16;

		bits |= i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0;
		bits |= i + 2 < n ? data[i + 2] : 0;
		*to++ = digits[bits >> 18];
		*to++ = digits[bits >> 12 & 63];
		*to++ = i + 1 < n ? digits[bits >> 6 & 63] : '=';
		*to++ = i + 2 < n ? digits[bits & 63] : '=';
	}
	*to = 0;
	return uri;
}

cJSON *conversation_picture(const char *path)
{
	size_t len = 0;
	char *data = read_file(path, &len), *uri;
	cJSON *part, *image;

	if (!data)
		return NULL;
	uri = make_uri((const unsigned char *)data, len);
	free(data);
	if (!uri) {
		fprintf(stderr, "txda-run: out of memory\n");
		return NULL;
	}
	part = cJSON_CreateObject();
	cJSON_AddStringToObject(part, "type", "image_url");
	image = cJSON_AddObjectToObject(part, "image_url");
	cJSON_AddStringToObject(image, "url", uri);
	free(uri);
	return part;
}

void conversation_show(cJSON *messages, cJSON *parts)
{
	cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
	const char *text = text_of(last, "content");

	if (text && *text) {
		cJSON *part = cJSON_CreateObject();

		cJSON_AddStringToObject(part, "type", "text");
		cJSON_AddStringToObject(part, "text", text);
		cJSON_AddItemToArray(parts, part);
	}
	cJSON_ReplaceItemInObjectCaseSensitive(last, "content", parts);
}
