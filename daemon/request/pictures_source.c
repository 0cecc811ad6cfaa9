// SPDX-License-Identifier: MIT
#include "pictures_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client_file.h"
#include "decode_apart.h"
#include "descriptors.h"
#include "exchange.h"
#include "service.h"

#define PARAM "messages"

/* Destination of a picture's bytes. */
struct sink {
	struct exchange *x;
	unsigned index; /* of the picture */
	uint8_t *bytes;
	uint64_t n, *taken;
};

/* Takes memory for @n more bytes. */
static bool make_room(struct sink *s, uint64_t n, struct api_error *e)
{
	if (!exchange_take(s->x, n, PARAM, e))
		return false;
	*s->taken += n;
	s->bytes = malloc(n + 1);
	s->n = n;
	return s->bytes || api_error_set(e, 500, NULL, NULL, "out of memory");
}

/* ---- data: URIs ------------------------------------------------------------------------------ */

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/*
 * Decodes all of @text, with or without padding. @out has 3 bytes for each 4. False: it is not
 * base64 from byte *ret_bytes on.
 */
static bool decode_base64(const char *text, size_t len, uint8_t *out, uint64_t *ret_bytes)
{
	uint32_t bits = 0;
	size_t n = 0;

	for (unsigned i = 0; i < 2 && len && text[len - 1] == '='; i++)
		len--;
	for (size_t i = 0; i < len; i++) {
		int value = base64_value(text[i]);

		*ret_bytes = i;
		if (value < 0 || (len % 4 == 1 && i == len - 1))
			return false;
		bits = bits << 6 | (uint32_t)value;
		if (i % 4)
			out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
	*ret_bytes = n;
	return true;
}

static bool read_data(struct sink *s, const char *url, struct api_error *e)
{
	const char *comma = strchr(url, ','), mark[] = ";base64";
	size_t len;

	if (!comma || (size_t)(comma - url) < 5 + strlen(mark) ||
	    strncasecmp(comma - strlen(mark), mark, strlen(mark)) != 0)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the URL must be data:TYPE;base64,DATA", s->index);
	len = strlen(++comma);
	if (!make_room(s, len, e))
		return false;
	if (!decode_base64(comma, len, s->bytes, &s->n))
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the data of the URL is not base64: byte %llu of "
				     "%zu is 0x%02x",
				     s->index, (unsigned long long)s->n, len,
				     (unsigned char)comma[s->n]);
	if (!s->n)
		return api_error_set(e, 400, NULL, PARAM, "picture %u is empty", s->index);
	return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool refuse_file(const struct sink *s, const char *url, int error, const char *why,
			struct api_error *e)
{
	bool denied = error == -EACCES || error == -EPERM;

	return api_error_set(e, denied ? 403 : 400, denied ? "permission_denied" : "invalid_image",
			     PARAM, "picture %u: %.200s: %s", s->index, url, why);
}

/* Reads all @bytes of an open file. */
static bool read_open(struct sink *s, const char *url, int fd, uint64_t bytes, struct api_error *e)
{
	char err[160] = "";
	int error;

	if (!make_room(s, bytes, e))
		return false;
	error = client_file_read(fd, s->bytes, bytes, err, sizeof(err));
	return !error || refuse_file(s, url, error, err, e);
}

static int hex_value(char c)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* The path of a file: URL whose authority is empty or this machine; @ret is as long as @url. */
static bool decode_path(const char *url, char *ret)
{
	const char *at = url + strlen("file:");

	if (!strncmp(at, "//", 2)) {
		at += 2;
		if (!strncasecmp(at, "localhost/", 10))
			at += 9;
	}
	if (*at != '/')
		return false;
	while (*at) {
		int high = *at == '%' ? hex_value(at[1]) : 0, low = 0;

		if (*at == '%' && high >= 0)
			low = hex_value(at[2]);
		/* Refuses broken escapes and NULs. */
		if (high < 0 || low < 0 || (*at == '%' && !high && !low))
			return false;
		*ret++ = *at == '%' ? (char)(high << 4 | low) : *at;
		at += *at == '%' ? 3 : 1;
	}
	*ret = 0;
	return true;
}

static bool read_file(struct sink *s, const char *url, struct api_error *e)
{
	const struct config_hosts *dirs = &s->x->service->config->image_dirs;
	const struct identity *who = s->x->pictures.who;
	uint64_t bytes = 0;
	char err[200] = "", *path;
	int fd = -1, error;
	bool ok;

	if (!dirs->n)
		return api_error_set(e, 400, "unsupported_value", PARAM,
				     "picture %u: files are not enabled (--image-dir)", s->index);
	if (!who)
		return api_error_set(e, 400, "unix_socket_needed", PARAM,
				     "picture %u: files are only available on the Unix socket, "
				     "where the kernel identifies the user",
				     s->index);
	path = malloc(strlen(url) + 1);
	if (!path)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	if (!decode_path(url, path)) {
		free(path);
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the URL must be file:///PATH, with %%XX for "
				     "special bytes",
				     s->index);
	}
	error = client_file_open(dirs->names, dirs->n, path, who, IMAGE_MAX_BYTES, &fd, &bytes, err,
				 sizeof(err));
	free(path);
	if (error)
		return refuse_file(s, url, error, err, e);
	ok = read_open(s, url, fd, bytes, e);
	close(fd);
	return ok;
}

static bool read_descriptor(struct sink *s, const char *url, struct api_error *e)
{
	unsigned n = s->x->set ? s->x->set->n_fds : 0;
	unsigned long number;
	uint64_t bytes = 0;
	char err[200], *end;
	int error;

	number = strtoul(url + 3, &end, 10);
	if (url[3] < '0' || url[3] > '9' || *end)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: the URL must be fd:N, not \"%.40s\"", s->index,
				     url);
	if (number >= n)
		return api_error_set(e, 400, NULL, PARAM,
				     "picture %u: %.40s; %u descriptors came with the request",
				     s->index, url, n);
	error = client_file_check(s->x->set->fds[number], IMAGE_MAX_BYTES, &bytes, err,
				  sizeof(err));
	if (error)
		return refuse_file(s, url, error, err, e);
	return read_open(s, url, s->x->set->fds[number], bytes, e);
}

bool picture_source_read(struct exchange *x, unsigned index, const char *url, uint8_t **ret,
			 uint64_t *ret_bytes, uint64_t *taken, struct api_error *e)
{
	struct sink s = {.x = x, .index = index, .taken = taken};
	bool ok;

	if (!strncasecmp(url, "data:", 5))
		ok = read_data(&s, url, e);
	else if (!strncasecmp(url, "file:", 5))
		ok = read_file(&s, url, e);
	else if (!strncasecmp(url, "fd:", 3))
		ok = read_descriptor(&s, url, e);
	else
		ok = api_error_set(
			e, 400, "unsupported_value", PARAM,
			"picture %u: the URL is \"%.40s\"; data:, file: and fd: are supported",
			index, url);
	*ret = s.bytes;
	*ret_bytes = s.n;
	return ok;
}
