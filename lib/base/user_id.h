/* SPDX-License-Identifier: MIT */
/*
 * Who a request is from: any uid of the kernel or, beyond those, a number of the daemon's own for a
 * user without an account (daemon/access/identity.h).
 */
#ifndef TXDA_BASE_USER_ID_H
#define TXDA_BASE_USER_ID_H

#include <stdint.h>

typedef uint64_t user_id;

#define USER_UNKNOWN ((user_id)-1) /* printed as -1 */

#endif
