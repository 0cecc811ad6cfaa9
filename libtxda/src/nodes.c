// SPDX-License-Identifier: MIT
#include <libudev.h>
#include <string.h>

#include "backend.h"

int txda__count_nodes(void)
{
	struct udev_list_entry *entry;
	struct udev_enumerate *list = NULL;
	struct udev *udev = udev_new();
	int count = 0;

	if (!udev)
		return -ENOMEM;
	list = udev_enumerate_new(udev);
	if (!list || udev_enumerate_add_match_subsystem(list, "accel") < 0 ||
	    udev_enumerate_scan_devices(list) < 0)
		count = -ENODEV;
	for (entry = count < 0 ? NULL : udev_enumerate_get_list_entry(list); entry;
	     entry = udev_list_entry_get_next(entry)) {
		struct udev_device *node =
			udev_device_new_from_syspath(udev, udev_list_entry_get_name(entry));
		struct udev_device *parent = node ? udev_device_get_parent(node) : NULL;
		const char *driver = parent ? udev_device_get_driver(parent) : NULL;

		if (driver && !strcmp(driver, "txda") && udev_device_get_devnode(node))
			count++;
		udev_device_unref(node);
	}
	udev_enumerate_unref(list);
	udev_unref(udev);
	return count;
}
