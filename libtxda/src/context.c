// SPDX-License-Identifier: MIT
#include <unistd.h>

#include "context.h"

bool txda__inherited(const struct txda_context *context)
{
	return context->pid != getpid();
}

bool txda__forked(struct txda_context *context)
{
	/* Files are planned without one, too. */
	if (!context || !txda__inherited(context))
		return false;
	txda__note(context, "the context is of process %d, before fork(): make a new one",
		   (int)context->pid);
	return true;
}

unsigned txda__context_find(struct txda_context *context, unsigned physical)
{
	for (unsigned i = 0; i < context->n_devices; i++)
		if (context->device[i].physical == physical)
			return i;
	return UINT32_MAX;
}

struct txda_context *txda_context_ref(struct txda_context *context)
{
	if (context)
		txda__ref(&context->refs);
	return context;
}

const char *txda_context_backend(struct txda_context *context)
{
	return context->backend->ops->name;
}
