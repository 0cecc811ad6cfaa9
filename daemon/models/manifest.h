/* SPDX-License-Identifier: MIT */
/*
 * What is known of weights whose memory somebody keeps while no daemon runs: which file they were
 * loaded from, which chip they are on, and what must still be so for them to be of use.
 *
 * A manifest is a sealed memfd of its own, made when the load has ended. It comes back from whoever
 * kept it, so it is checked like anything from outside: size, seals, magic, version, hash, every
 * string and number. Files of another version are refused, not converted: weights can be loaded.
 *
 * Errors: 0 or -errno with the reason in err. Threads: any.
 */
#ifndef TXDA_RESIDENCY_MANIFEST_H
#define TXDA_RESIDENCY_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <txda.h>

#define MANIFEST_PATH 1024

struct manifest {
	char backend[16];	    /* "cmodel", "drm" */
	char boot_id[40];	    /* of the kernel */
	char driver[24];	    /* version of the kernel driver, or "" */
	char chip[40];		    /* serial; of a simulated chip its number */
	char source[MANIFEST_PATH]; /* the model's directory, as it was configured */
	char case_dir[MANIFEST_PATH];
	unsigned rank, tp;
	uint64_t inode; /* of the memory's fd */
	struct txda_weights_info info;
};

/* *ret_fd: the sealed memfd; the caller closes it. -EINVAL: the manifest would not pass a check. */
int manifest_write(const struct manifest *m, int *ret_fd, char *err, size_t errlen);
/* -EINVAL: it is none, or of another version; -EBADMSG: its hash is wrong; -EPERM: not sealed. */
int manifest_read(int fd, struct manifest *ret, char *err, size_t errlen);

#endif
