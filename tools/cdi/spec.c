// SPDX-License-Identifier: MIT
#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

static bool is_alphanumeric(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool cdi_name_is_valid(const char *name)
{
	size_t len = strnlen(name, CDI_MAX_NAME + 1);

	if (!len || len > CDI_MAX_NAME || !is_alphanumeric(name[0]) ||
	    !is_alphanumeric(name[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alphanumeric(name[i]) && !strchr("_-.:", name[i]))
			return false;
	return true;
}

/*
 * Whether the name also belongs to another chip, or could be an index, so that it would be
 * ambiguous.
 */
static bool is_ambiguous(const char *name, const struct cdi_chip *chips, unsigned n, unsigned at)
{
	char number[16];

	if (!strcmp(name, "all"))
		return true;
	for (unsigned i = 0; i < n; i++) {
		snprintf(number, sizeof(number), "%u", chips[i].index);
		if (!strcmp(name, number) ||
		    (i != at && (!strcmp(name, chips[i].bus) || !strcmp(name, chips[i].serial))))
			return true;
	}
	return false;
}

unsigned cdi_names(const struct cdi_chip *chips, unsigned n, unsigned at, char number[16],
		   const char *ret_names[3])
{
	const struct cdi_chip *chip = &chips[at];
	unsigned count = 0;

	snprintf(number, 16, "%u", chip->index);
	ret_names[count++] = number;
	if (cdi_name_is_valid(chip->bus) && !is_ambiguous(chip->bus, chips, n, at))
		ret_names[count++] = chip->bus;
	if (cdi_name_is_valid(chip->serial) && strcmp(chip->serial, chip->bus) &&
	    !is_ambiguous(chip->serial, chips, n, at))
		ret_names[count++] = chip->serial;
	return count;
}

/* Adds @item and returns it; NULL if there is no memory for it. */
static cJSON *add(cJSON *parent, const char *key, cJSON *item)
{
	bool added = parent && item &&
		     (key ? cJSON_AddItemToObject(parent, key, item)
			  : cJSON_AddItemToArray(parent, item));

	if (added)
		return item;
	cJSON_Delete(item);
	return NULL;
}

static bool add_text(cJSON *object, const char *key, const char *text)
{
	return add(object, key, cJSON_CreateString(text));
}

static bool add_node(cJSON *nodes, const struct cdi_chip *chip)
{
	cJSON *node = add(nodes, NULL, cJSON_CreateObject());

	return add_text(node, "path", chip->node) && add_text(node, "type", "c") &&
	       add_text(node, "permissions", "rw");
}

static bool add_device(cJSON *devices, const char *name, const struct cdi_chip *chips, unsigned n)
{
	cJSON *device = add(devices, NULL, cJSON_CreateObject());
	bool ok = add_text(device, "name", name);
	cJSON *edits = add(device, "containerEdits", cJSON_CreateObject());
	cJSON *nodes = add(edits, "deviceNodes", cJSON_CreateArray());

	for (unsigned i = 0; i < n; i++)
		ok = ok && add_node(nodes, &chips[i]);
	return ok;
}

static bool add_library(cJSON *spec, const char *library)
{
	static const char *const options[] = {"ro", "nosuid", "nodev", "bind"};
	cJSON *edits = add(spec, "containerEdits", cJSON_CreateObject());
	cJSON *mounts = add(edits, "mounts", cJSON_CreateArray());
	cJSON *mount = add(mounts, NULL, cJSON_CreateObject());
	bool ok = add_text(mount, "hostPath", library) && add_text(mount, "containerPath", library);
	cJSON *list = add(mount, "options", cJSON_CreateArray());

	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		ok = ok && add(list, NULL, cJSON_CreateString(options[i]));
	return ok;
}

char *cdi_spec(const struct cdi_chip *chips, unsigned n, const char *library)
{
	cJSON *spec = cJSON_CreateObject();
	bool ok = add_text(spec, "cdiVersion", CDI_VERSION) && add_text(spec, "kind", CDI_KIND);
	cJSON *devices = add(spec, "devices", cJSON_CreateArray());
	char *text = NULL, *lines = NULL;

	for (unsigned i = 0; i < n; i++) {
		const char *names[3];
		char number[16];
		unsigned count = cdi_names(chips, n, i, number, names);

		for (unsigned k = 0; k < count; k++)
			ok = ok && add_device(devices, names[k], &chips[i], 1);
	}
	ok = ok && add_device(devices, "all", chips, n);
	if (library)
		ok = ok && add_library(spec, library);
	if (ok)
		text = cJSON_Print(spec);
	cJSON_Delete(spec);
	if (text && asprintf(&lines, "%s\n", text) < 0)
		lines = NULL;
	cJSON_free(text);
	return lines;
}
