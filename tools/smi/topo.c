// SPDX-License-Identifier: MIT
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "smi.h"

static int fail(struct txda_context *context, int error)
{
	fprintf(stderr, "txda-smi: %s\n", txda_context_error(context));
	return error == -ENODEV ? SMI_NO_DEVICE : SMI_FAILURE;
}

static void print_distances(struct txda_context *context, FILE *out)
{
	int n = txda_context_device_count(context);

	fputs("Hops between chips: 0 the same, 1 a direct link or the same card, 2 through the "
	      "host\n      ",
	      out);
	for (int i = 0; i < n; i++)
		fprintf(out, " %3d", i);
	fputc('\n', out);
	for (int i = 0; i < n; i++) {
		struct txda_device *a, *b;

		fprintf(out, "  %4d", i);
		if (txda_device_get(context, (unsigned)i, &a) < 0)
			continue;
		for (int j = 0; j < n; j++) {
			if (txda_device_get(context, (unsigned)j, &b) < 0)
				continue;
			fprintf(out, " %3d", txda_device_distance(a, b));
			txda_device_unref(b);
		}
		txda_device_unref(a);
		fputc('\n', out);
	}
}

static void print_links(struct txda_context *context, FILE *out)
{
	static const char *const state[] = {"down", "training", "up"};
	int n = txda_context_device_count(context);
	bool title = false;

	for (int i = 0; i < n; i++) {
		struct txda_link_info link = TXDA_INIT(struct txda_link_info);
		struct txda_device *device;

		if (txda_device_get(context, (unsigned)i, &device) < 0)
			continue;
		for (unsigned port = 0; txda_device_link(device, port, &link) >= 0; port++) {
			if (!title)
				fputs("Links\n", out);
			title = true;
			fprintf(out, "  chip %d port %u: %s, %u MB/s", i, port,
				(unsigned)link.state < 3 ? state[link.state] : "?",
				link.speed_mbps);
			if (link.device != UINT_MAX)
				fprintf(out, ", to chip %u port %u", link.device, link.port);
			fputc('\n', out);
		}
		txda_device_unref(device);
	}
}

static void print_group(struct txda_group *group, unsigned replica, bool explain, FILE *out)
{
	char text[2048];

	fprintf(out, "Group %u:", replica);
	for (unsigned rank = 0; rank < txda_group_size(group); rank++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);

		if (txda_device_info(txda_group_device(group, rank), &info) >= 0)
			fprintf(out, "%s chip %u", rank ? "," : "", info.index);
	}
	fputc('\n', out);
	if (!explain)
		return;
	txda_group_explain(group, text, sizeof(text));
	fputs("  ", out);
	for (const char *s = text; *s; s++) {
		fputc(*s, out);
		if (*s == '\n')
			fputs("  ", out);
	}
	fputc('\n', out);
}

int smi_topo(const struct smi_topo *topo, FILE *out)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_context *context;
	struct txda_group *group;
	int r;

	options.name = "txda-smi topo";
	r = txda_context_new(&options, &context);
	if (r < 0)
		return fail(NULL, r);
	if (!txda_context_device_count(context)) {
		fputs("txda-smi: no chip is visible\n", stderr);
		txda_context_unref(context);
		return SMI_NO_DEVICE;
	}
	print_distances(context, out);
	print_links(context, out);
	group_options.map = topo->map;
	group_options.tp = topo->tp;
	for (;; group_options.replica++) {
		r = txda_group_new(context, &group_options, &group);
		if (r < 0)
			break;
		print_group(group, group_options.replica, topo->explain, out);
		txda_group_unref(group);
	}
	/* The group after the last is the end, the first must exist. */
	r = r == -ENODEV && group_options.replica ? SMI_OK : fail(context, r);
	txda_context_unref(context);
	return r;
}
