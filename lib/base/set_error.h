/* SPDX-License-Identifier: MIT */
/* Error messages of functions that return -errno and take a buffer for the reason. */
#ifndef TXDA_BASE_SET_ERROR_H
#define TXDA_BASE_SET_ERROR_H

#include <stdio.h>

/*
 * Formats the message into @err [@errlen], cut to fit; the value is @code, so that a failing path
 * is one statement. A macro, so that the compiler sees which error it is. An argument must not
 * point into @err. Leaves errno undefined: @code is evaluated first.
 */
#define set_error(code, err, errlen, ...)                                                          \
	__extension__({                                                                            \
		int set_error_code = (code);                                                       \
		snprintf(err, errlen, __VA_ARGS__);                                                \
		set_error_code;                                                                    \
	})

#endif
