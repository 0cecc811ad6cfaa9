/* SPDX-License-Identifier: MIT */
/*
 * Error messages. A function that reads input takes a struct tool_error (NULL: the message is not
 * needed), fills it on failure and returns -errno; the text names the invalid value and the limit.
 * It is unchanged on success.
 */
#ifndef TXDA_TOOLS_ERROR_H
#define TXDA_TOOLS_ERROR_H

struct tool_error {
	char text[512];
};

/* Fills @error and returns @code, so that a caller can write `return tool_fail(error, -EINVAL,
 * "…")`. */
int tool_fail(struct tool_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prepends "PREFIX: ", the context of the error, to the text. Returns @code. */
int tool_fail_within(struct tool_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* TXDA_TOOLS_ERROR_H */
