// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "device.h"
#include "events.h"
#include "monitor.h"
#include "topology.h"
#include "weights.h"

#ifndef TXDA_VERSION
#error "the build gives TXDA_VERSION"
#endif

const char *txda_version(void)
{
	return TXDA_VERSION;
}

static int choose_backend(const char *name, const struct txda__backend_ops **ret_ops)
{
	int nodes;

	if (!name || !*name)
		name = getenv("TXDA_BACKEND");
	if (!name || !*name)
		name = "auto";
	if (strcmp(name, "auto") && strcmp(name, "drm") && strcmp(name, "cmodel"))
		return txda__fail(NULL, -EINVAL, "TXDA_BACKEND=%s: must be auto, drm or cmodel",
				  name);
	nodes = strcmp(name, "cmodel") ? txda__drm_count() : 0;
	if (nodes <= 0 && !strcmp(name, "drm"))
		return txda__fail(NULL, -ENODEV,
				  "TXDA_BACKEND=drm: no TX8 device nodes on this machine "
				  "(/dev/accel/accel* of the txda driver)");
	*ret_ops = nodes > 0 ? &txda__backend_drm : &txda__backend_cmodel;
	return 0;
}

static const char *option_or_env(const char *option, const char *first, const char *second)
{
	if (!option)
		option = getenv(first);
	if (!option && second)
		option = getenv(second);
	return option;
}

static int choose_devices(struct txda_context *context, const struct txda_context_options *options)
{
	const char *visible = option_or_env(options->visible_devices, "TXDA_VISIBLE_DEVICES", NULL);
	const char *map = option_or_env(options->chip_map, "TXDA_CHIP_MAP", "CHIP_MAP");
	const struct txda__backend_ops *ops = context->backend->ops;
	unsigned chips[TXDA__MAX_CHIPS], n_chips, n_logical, count = ops->chips(context->backend);
	struct txda_device_info *info;
	char err[256];
	int r = 0;

	if (count > TXDA__MAX_CHIPS)
		count = TXDA__MAX_CHIPS;
	info = calloc(count ? count : 1, sizeof(*info));
	if (!info)
		return txda__fail(NULL, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < count && r >= 0; i++)
		r = ops->info(context->backend, i, &info[i]);
	if (r < 0) {
		free(info);
		return txda__fail(NULL, r, "%s", txda_context_error(context));
	}
	r = txda__parse_visible(visible, info, count, chips, &n_chips, err, sizeof(err));
	free(info);
	if (r < 0)
		return txda__fail(NULL, r, "TXDA_VISIBLE_DEVICES=%s: %s", visible, err);
	for (unsigned i = 0; i < n_chips; i++)
		txda__device_init(&context->device[i], context, i, chips[i]);
	atomic_store(&context->n_devices, n_chips);
	context->visible = visible ? strdup(visible) : NULL;
	if (visible && !context->visible)
		return txda__fail(NULL, -ENOMEM, "out of memory");

	context->renamed = map && *map;
	r = txda__parse_chip_map(context->renamed ? map : NULL, n_chips, context->logical,
				 &n_logical, err, sizeof(err));
	if (r < 0)
		return txda__fail(NULL, r, "CHIP_MAP=%s: %s", map, err);
	atomic_store(&context->n_logical, n_logical);
	return 0;
}

unsigned txda__context_admit(struct txda_context *context, const struct txda_device_info *info)
{
	unsigned index = txda__context_find(context, info->physical);

	if (index != UINT32_MAX)
		return index;
	index = context->n_devices;
	if (index == TXDA__MAX_CHIPS ||
	    (context->visible && !txda__names_chip(context->visible, info)))
		return UINT32_MAX;
	txda__device_init(&context->device[index], context, index, info->physical);
	atomic_store(&context->n_devices, index + 1);
	if (!context->renamed) {
		context->logical[index] = index;
		atomic_store(&context->n_logical, index + 1);
	}
	return index;
}

static void free_context(struct txda_context *context)
{
	bool ours = !txda__inherited(context);

	if (ours)
		txda__monitor_stop(&context->monitor);
	for (unsigned i = 0; i < context->n_devices; i++)
		txda__device_fini(&context->device[i]);
	if (ours) {
		if (context->backend)
			context->backend->ops->close(context->backend);
		txda__weights_fini(&context->weights);
		txda__events_fini(&context->events);
	}
	free(context->visible);
	free(context);
}

int txda_context_new(const struct txda_context_options *options, struct txda_context **ret_context)
{
	static atomic_uint_fast64_t last_id;
	struct txda_context_options o;
	const struct txda__backend_ops *ops;
	struct txda_context *context;
	int r;

	r = txda__copy_in(NULL, &o, sizeof(o), options, "txda_context_options");
	if (r < 0)
		return r;
	if (!ret_context)
		return txda__fail(NULL, -EINVAL, "ret_context is NULL");
	r = choose_backend(o.backend, &ops);
	if (r < 0)
		return r;

	context = calloc(1, sizeof(*context));
	if (!context)
		return txda__fail(NULL, -ENOMEM, "out of memory");
	atomic_init(&context->refs, 1);
	atomic_init(&context->n_devices, 0);
	atomic_init(&context->n_logical, 0);
	context->id = atomic_fetch_add(&last_id, 1) + 1;
	context->pid = getpid();
	snprintf(context->name, sizeof(context->name), "%s",
		 o.name ? o.name : program_invocation_short_name);
	r = txda__events_init(&context->events);
	if (r < 0) {
		free(context);
		return txda__fail(NULL, r, "cannot make an eventfd: %s", strerror(-r));
	}
	txda__weights_init(&context->weights);
	txda__monitor_init(&context->monitor);

	r = ops->open(context, option_or_env(o.cmodel, "TXDA_CMODEL", NULL), &context->backend);
	if (r < 0)
		txda__fail(NULL, r, "%s", txda_context_error(context));
	else
		r = choose_devices(context, &o);
	if (r >= 0 && ops->simulated)
		r = txda__monitor_start(&context->monitor, context);
	if (r < 0) {
		free_context(context);
		return r;
	}
	*ret_context = context;
	return 0;
}

struct txda_context *txda_context_unref(struct txda_context *context)
{
	if (context && txda__unref(&context->refs))
		free_context(context);
	return NULL;
}
