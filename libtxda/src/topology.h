/* SPDX-License-Identifier: MIT */
/*
 * Topology maps: how the chips of a machine are divided into groups.
 *
 * A map is "CxTPy" (x chips, groups of y neighbours: "C4TP2" is 0,1;2,3; "C4TP2B1" also gives the
 * batch of the programs, which is ignored here), or a list ("0,1;2,3"), or automatic (groups of @tp
 * chips as close to each other as possible). Numbers in a map are logical chips; CHIP_MAP assigns a
 * device to each. Parsers return 0 or -EINVAL with a message that quotes the invalid word. Threads:
 * pure functions.
 */
#ifndef TXDA_TOPOLOGY_H
#define TXDA_TOPOLOGY_H

#include "internal.h"
#include "spec.h"

struct txda__topology {
	unsigned n_groups;
	unsigned size[TXDA__MAX_CHIPS];
	unsigned chip[TXDA__MAX_CHIPS][TXDA_MAX_CHIPS_PER_GROUP]; /* logical chips, by rank */
};

/* "1,0": logical chip i is device list[i]; NULL: the identity. @ret_logical[TXDA__MAX_CHIPS]. */
int txda__parse_chip_map(const char *text, unsigned n_devices, unsigned *ret_logical,
			 unsigned *ret_count, char *err, size_t errlen);

/* @map is a named map or a list, for @n_chips logical chips. */
int txda__parse_map(const char *map, unsigned n_chips, struct txda__topology *ret_topology,
		    char *err, size_t errlen);

/*
 * Groups of @tp chips: each starts with the lowest free chip and repeatedly adds the one nearest to
 * its members.
 */
void txda__auto_map(unsigned n_chips, unsigned tp,
		    unsigned (*distance)(void *arg, unsigned a, unsigned b), void *arg,
		    struct txda__topology *ret_topology);

#endif /* TXDA_TOPOLOGY_H */
