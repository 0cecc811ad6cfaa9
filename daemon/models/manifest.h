/* SPDX-License-Identifier: MIT */
/*
 * Description of weights whose memory is kept while no daemon runs: the file they were loaded from,
 * the chip they are on, and the conditions for using them.
 *
 * A manifest is a sealed memfd of its own, created after the load. The process that kept it is not
 * trusted, so everything is checked: size, seals, magic, version, hash, every string and number.
 * Other versions are refused, not converted: weights can always be loaded.
 *
 * Errors: 0 or -errno with the reason in err.
 * Threads: any.
 */
#ifndef TXDA_MODELS_MANIFEST_H
#define TXDA_MODELS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <txda.h>

#define MANIFEST_PATH 1024

struct manifest {
	char backend[16];	    /* "cmodel", "drm" */
	char boot_id[40];	    /* of the kernel */
	char driver[24];	    /* version of the kernel driver, or "" */
	char chip[40];		    /* serial; for a simulated chip its number */
	char source[MANIFEST_PATH]; /* the model's directory, as configured */
	char case_dir[MANIFEST_PATH];
	unsigned rank, tp;
	uint64_t inode; /* of the memory's fd */
	struct txda_weights_info info;
};

/*
 * *ret_fd: the sealed memfd; the caller closes it. -EINVAL: the manifest would not pass the checks.
 */
int manifest_write(const struct manifest *m, int *ret_fd, char *err, size_t errlen);
/* -EINVAL: not a manifest, or another version; -EBADMSG: wrong hash; -EPERM: not sealed. */
int manifest_read(int fd, struct manifest *ret, char *err, size_t errlen);

#endif
