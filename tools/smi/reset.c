// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "smi.h"

/*
 * The kernel's generic reset of a PCI function; the driver saves what it can and notifies its
 * users.
 */
static int reset_function(const char *bus)
{
	char path[100];
	int fd, r = 0;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", bus);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, "1\n", 2) < 0)
		r = -errno;
	close(fd);
	return r;
}

int smi_reset(const char *wanted, FILE *out)
{
	const struct txda_device_info *info;
	struct smi_snapshot snapshot;
	int status = SMI_FAILURE, r;

	r = smi_snapshot_take(wanted, &snapshot);
	if (r < 0) {
		fprintf(stderr, "txda-smi: %s\n", txda_context_error(NULL));
		return SMI_FAILURE;
	}
	info = snapshot.n_chips ? &snapshot.chip[0].info : NULL;
	if (!info) {
		fprintf(stderr, "txda-smi: no such chip: %s\n", wanted);
		status = SMI_NO_DEVICE;
	} else if (!*info->node) {
		fprintf(stderr, "txda-smi: %s is simulated by a process; it has no reset\n",
			info->bus);
	} else if (!*info->bus || strspn(info->bus, "0123456789abcdef:.") != strlen(info->bus)) {
		fprintf(stderr, "txda-smi: %s has no PCI address\n", info->node);
	} else {
		r = reset_function(info->bus);
		if (r < 0)
			fprintf(stderr, "txda-smi: resetting %s: %s%s\n", info->bus, strerror(-r),
				r == -EACCES ? " (only root may)" : "");
		else
			fprintf(out, "%s was reset\n", info->bus);
		status = r < 0 ? SMI_FAILURE : SMI_OK;
	}
	smi_snapshot_free(&snapshot);
	return status;
}
