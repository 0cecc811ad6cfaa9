// SPDX-License-Identifier: MIT
#include <libudev.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nodes.h"

static uint64_t read_number(struct udev_device *device, const char *attribute, int base)
{
	const char *text = udev_device_get_sysattr_value(device, attribute);

	return text ? strtoull(text, NULL, base) : 0;
}

bool txda__node_read(struct udev_device *device, struct txda__node *ret_node)
{
	struct udev_device *parent = udev_device_get_parent(device);
	const char *driver = parent ? udev_device_get_driver(parent) : NULL;
	const char *node = udev_device_get_devnode(device), *serial;
	struct stat st;

	if (!driver || strcmp(driver, "txda") || !node)
		return false;
	memset(ret_node, 0, sizeof(*ret_node));
	snprintf(ret_node->node, sizeof(ret_node->node), "%s", node);
	snprintf(ret_node->bus, sizeof(ret_node->bus), "%s", udev_device_get_sysname(parent));
	snprintf(ret_node->device, sizeof(ret_node->device), "%s", udev_device_get_syspath(parent));
	serial = udev_device_get_sysattr_value(parent, "serial");
	if (serial)
		snprintf(ret_node->serial, sizeof(ret_node->serial), "%s", serial);
	if (!stat(udev_device_get_syspath(device), &st))
		ret_node->incarnation = st.st_ino;
	ret_node->card = read_number(parent, "card", 16);
	ret_node->card_index = (unsigned)read_number(parent, "card_index", 10);
	return true;
}

static int compare(const void *a, const void *b)
{
	const struct txda__node *x = a, *y = b;

	if (x->card != y->card)
		return x->card < y->card ? -1 : 1;
	if (x->card_index != y->card_index)
		return x->card_index < y->card_index ? -1 : 1;
	return strcmp(x->bus, y->bus);
}

int txda__nodes(struct txda__node *ret, unsigned max)
{
	struct udev_enumerate *list = NULL;
	struct udev *udev = udev_new();
	struct udev_list_entry *entry;
	unsigned n = 0;
	int r = 0;

	if (!udev)
		return -ENOMEM;
	list = udev_enumerate_new(udev);
	if (!list || udev_enumerate_add_match_subsystem(list, "accel") < 0 ||
	    udev_enumerate_scan_devices(list) < 0)
		r = -ENODEV;
	for (entry = r < 0 ? NULL : udev_enumerate_get_list_entry(list); entry && n < max;
	     entry = udev_list_entry_get_next(entry)) {
		struct udev_device *device =
			udev_device_new_from_syspath(udev, udev_list_entry_get_name(entry));

		if (device && txda__node_read(device, &ret[n]))
			n++;
		udev_device_unref(device);
	}
	udev_enumerate_unref(list);
	udev_unref(udev);
	if (r < 0)
		return r;
	qsort(ret, n, sizeof(*ret), compare);
	return (int)n;
}
