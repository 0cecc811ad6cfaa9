// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "topology.h"

static void explain(struct txda_group *group, const char *format, ...) TXDA__PRINTF(2, 3);

/* Adds a line to the explanation. */
static void explain(struct txda_group *group, const char *format, ...)
{
	size_t len = strlen(group->explanation), room = sizeof(group->explanation);
	va_list ap;

	if (len && len + 1 < room)
		group->explanation[len++] = '\n';
	va_start(ap, format);
	vsnprintf(group->explanation + len, room - len, format, ap);
	va_end(ap);
}

static unsigned logical_distance(void *arg, unsigned a, unsigned b)
{
	struct txda_context *context = arg;

	return context->backend->ops->distance(context->backend,
					       context->device[context->logical[a]].physical,
					       context->device[context->logical[b]].physical);
}

/* The caller specified the devices. */
static int take_named(struct txda_group *group, const struct txda_group_options *o)
{
	struct txda_context *context = group->context;
	unsigned tp = o->tp ? o->tp : 1;

	if (o->map && strcmp(o->map, "auto"))
		return txda__fail(context, -EINVAL, "devices and the map %.40s exclude each other",
				  o->map);
	for (unsigned i = 0; i < tp; i++) {
		if (o->devices[i] >= context->n_devices)
			return txda__fail(
				context, -ENODEV,
				"chip %u for rank %u does not exist; this process sees %u",
				o->devices[i], i, context->n_devices);
		for (unsigned j = 0; j < i; j++)
			if (o->devices[j] == o->devices[i])
				return txda__fail(context, -EINVAL,
						  "chip %u is both rank %u and rank %u",
						  o->devices[i], j, i);
		group->device[i] = &context->device[o->devices[i]];
	}
	group->size = tp;
	explain(group, "The caller named the chips.");
	return 0;
}

static int take_mapped(struct txda_group *group, const struct txda_group_options *o)
{
	struct txda_context *context = group->context;
	bool automatic = !o->map || !*o->map || !strcmp(o->map, "auto");
	struct txda__topology t;
	unsigned tp = o->tp ? o->tp : 1;
	char err[256];
	int r;

	if (automatic) {
		txda__auto_map(context->n_logical, tp, logical_distance, context, &t);
		if (!t.n_groups)
			return txda__fail(context, -ENODEV,
					  "a group of %u chips was requested; this process sees %u",
					  tp, context->n_logical);
		explain(group,
			"Automatic map: %u chip%s in %u group%s of %u, nearest chips together, "
			"lowest first.",
			context->n_logical, context->n_logical == 1 ? "" : "s", t.n_groups,
			t.n_groups == 1 ? "" : "s", tp);
	} else {
		r = txda__parse_map(o->map, context->n_logical, &t, err, sizeof(err));
		if (r < 0)
			return txda__fail(context, r, "map %s", err);
		explain(group, "Map %.64s: %u group%s.", o->map, t.n_groups,
			t.n_groups == 1 ? "" : "s");
	}
	if (o->replica >= t.n_groups)
		return txda__fail(context, -ENODEV, "group %u was requested; the map has %u",
				  o->replica, t.n_groups);
	if (o->tp && t.size[o->replica] != o->tp)
		return txda__fail(context, -EINVAL,
				  "group %u of map %.64s has %u chips; %u were requested",
				  o->replica, o->map, t.size[o->replica], o->tp);

	group->size = t.size[o->replica];
	explain(group, "This is group %u of it.", o->replica);
	for (unsigned i = 0; i < group->size; i++) {
		unsigned logical = t.chip[o->replica][i];

		group->device[i] = &context->device[context->logical[logical]];
		if (context->renamed)
			explain(group, "CHIP_MAP makes logical chip %u chip %u.", logical,
				context->logical[logical]);
	}
	return 0;
}

static void explain_ranks(struct txda_group *group)
{
	static const char *const how[] = {"the same chip", "a direct link", "through the host"};
	struct txda__backend *backend = group->context->backend;

	for (unsigned i = 0; i < group->size; i++) {
		struct txda_device_info info = {0};
		unsigned hops;

		if (backend->ops->info(backend, group->device[i]->physical, &info) < 0)
			continue;
		if (!i) {
			explain(group, "Rank 0 is chip %u, %s at %s.", group->device[0]->index,
				info.name, info.bus);
			continue;
		}
		hops = backend->ops->distance(backend, group->device[i - 1]->physical,
					      group->device[i]->physical);
		explain(group, "Rank %u is chip %u, %s at %s, %s from rank %u.", i,
			group->device[i]->index, info.name, info.bus,
			how[hops < ARRAY_SIZE(how) ? hops : 2], i - 1);
	}
}

int txda_group_new(struct txda_context *context, const struct txda_group_options *options,
		   struct txda_group **ret_group)
{
	struct txda_group_options o;
	struct txda_group *group;
	int r;

	if (txda__forked(context))
		return -EPERM;
	r = txda__copy_in(context, &o, offsetof(struct txda_group_options, reserved), options,
			  "txda_group_options");
	if (r < 0)
		return r;
	if (o.tp > TXDA_MAX_CHIPS_PER_GROUP)
		return txda__fail(context, -EINVAL,
				  "a group of %u chips was requested; the limit is %d", o.tp,
				  TXDA_MAX_CHIPS_PER_GROUP);
	group = calloc(1, sizeof(*group));
	if (!group)
		return txda__fail(context, -ENOMEM, "out of memory");
	atomic_init(&group->refs, 1);
	group->context = context;
	r = o.devices ? take_named(group, &o) : take_mapped(group, &o);
	if (r < 0) {
		free(group);
		return r;
	}
	explain_ranks(group);
	txda_context_ref(context);
	*ret_group = group;
	return 0;
}

struct txda_group *txda_group_ref(struct txda_group *group)
{
	if (group)
		txda__ref(&group->refs);
	return group;
}

struct txda_group *txda_group_unref(struct txda_group *group)
{
	if (group && txda__unref(&group->refs)) {
		txda_context_unref(group->context);
		free(group);
	}
	return NULL;
}

unsigned txda_group_size(struct txda_group *group)
{
	return group->size;
}

struct txda_device *txda_group_device(struct txda_group *group, unsigned rank)
{
	return rank < group->size ? group->device[rank] : NULL;
}

int txda_group_explain(struct txda_group *group, char *buf, size_t len)
{
	return txda__forked(group->context) ? -EPERM : snprintf(buf, len, "%s", group->explanation);
}
