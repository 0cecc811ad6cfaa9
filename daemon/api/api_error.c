// SPDX-License-Identifier: MIT
#include "api_error.h"

#include <stdarg.h>
#include <stdio.h>

static const char *type_of(int status)
{
	switch (status) {
	case 401: return "authentication_error";
	case 404: return "not_found_error";
	case 403: return "permission_error";
	case 429: return "rate_limit_error";
	case 500: return "server_error";
	case 503: return "service_unavailable_error";
	case 504: return "timeout_error";
	default: return "invalid_request_error";
	}
}

bool api_error_set(struct api_error *e, int status, const char *code, const char *param,
		   const char *format, ...)
{
	va_list args;

	*e = (struct api_error){.status = status, .type = type_of(status), .code = code};
	if (status == 429 || status == 503)
		e->retry_after = 1;
	snprintf(e->param, sizeof(e->param), "%s", param ? param : "");
	va_start(args, format);
	vsnprintf(e->message, sizeof(e->message), format, args);
	va_end(args);
	return false;
}

void api_error_write(const struct api_error *e, struct json_out *o)
{
	json_begin(o, '{');
	json_key(o, "error");
	json_begin(o, '{');
	json_key(o, "message");
	json_string(o, e->message);
	json_key(o, "type");
	json_string(o, e->type);
	json_key(o, "param");
	if (e->param[0])
		json_string(o, e->param);
	else
		json_null(o);
	json_key(o, "code");
	if (e->code)
		json_string(o, e->code);
	else
		json_null(o);
	json_end(o, '}');
	json_end(o, '}');
}
