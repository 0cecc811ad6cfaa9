/* SPDX-License-Identifier: MIT */
/* The error for users who may not hold more memory. */
#ifndef TXDA_REQUEST_SHARE_H
#define TXDA_REQUEST_SHARE_H

#include "api_error.h"
#include "budget.h"

/* @bytes do not fit; @member of the request causes the size. Returns false. */
bool share_refused(const struct account *a, uint64_t bytes, const char *member,
		   struct api_error *e);

#endif
