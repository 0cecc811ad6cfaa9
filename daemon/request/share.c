// SPDX-License-Identifier: MIT
#include "share.h"

bool share_refused(const struct account *a, uint64_t bytes, const char *member, struct api_error *e)
{
	const struct budget *b = a->budget;

	if (bytes > budget_most(b))
		return api_error_set(e, 400, NULL, member,
				     "the request may need %llu bytes of memory; the limit is "
				     "%llu, three quarters of the total",
				     (unsigned long long)bytes, (unsigned long long)budget_most(b));
	return api_error_set(
		e, 429, "overloaded", NULL,
		"too much is queued: the request may need %llu bytes, %llu are held for "
		"the user and %llu for all; the limit is %llu in all, and for a user three times "
		"what is left",
		(unsigned long long)bytes, (unsigned long long)a->held, (unsigned long long)b->used,
		(unsigned long long)b->limit);
}
