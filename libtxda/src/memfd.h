/* SPDX-License-Identifier: MIT */
/*
 * Checks of memory that was imported as a memfd.
 *
 * Threads: any.
 */
#ifndef TXDA_MEMFD_H
#define TXDA_MEMFD_H

#include "internal.h"

/*
 * Checks that @fd, from an untrusted source, is memory that can stay mapped: a memfd that is sealed
 * against shrinking (a mapping of it cannot fault), of whole pages, open for the requested access.
 * -EINVAL: no memfd or a bad size; -EPERM: not sealed; -EACCES: not open for writing.
 */
int txda__memfd_check(struct txda_context *context, int fd, bool read_only, uint64_t *ret_bytes);
/* Whether a checked memfd is frozen, so that nobody can change it any more. -EPERM. */
int txda__memfd_check_frozen(struct txda_context *context, int fd);

#endif /* TXDA_MEMFD_H */
