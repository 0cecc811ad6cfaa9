/* SPDX-License-Identifier: MIT */
/*
 * Parsers of TXDA_CMODEL and TXDA_VISIBLE_DEVICES.
 *
 * Parsers return 0 or -EINVAL with a message in @err that quotes the invalid word and states what
 * is allowed.
 * Threads: pure functions.
 */
#ifndef TXDA_SPEC_H
#define TXDA_SPEC_H

#include "internal.h"

/* "100us", "2ms", "1s", "100" (microseconds). */
int txda__parse_us(const char *word, unsigned *ret_us);

#define TXDA__MAX_CHIPS	      64
#define TXDA__MAX_FAULT_SPECS 8

struct txda__cmodel_spec {
	unsigned chips;
	uint64_t mem_bytes; /* of each chip; 0: not given */
	unsigned cores;	    /* 0: see cmodel.h */
	bool cores_given;
	bool pin, numa_local;
	unsigned spin_us; /* 0: not given */
	char isa[16];
	unsigned n_faults;
	char faults[TXDA__MAX_FAULT_SPECS][96];
};

/*
 * "chips=4,mem=8G,cores=2,pin=1,numa=interleave,isa=auto,spin=100us,faults=SPEC"; faults may be given
 * several times. NULL or "": defaults.
 */
int txda__parse_cmodel(const char *text, struct txda__cmodel_spec *ret_spec, char *err,
		       size_t errlen);

/* OMP_NUM_THREADS: "4", or "4,2", of which the first number counts. *@ret_cores 0: not set. */
int txda__parse_threads(const char *text, unsigned *ret_cores, char *err, size_t errlen);

/*
 * Selects chips from @info[0..count): by index ("0,2"), serial or PCI address.
 * @ret_chips[TXDA__MAX_CHIPS] gets physical numbers in list order. NULL: all of them. "": none.
 */
int txda__parse_visible(const char *text, const struct txda_device_info *info, unsigned count,
			unsigned *ret_chips, unsigned *ret_count, char *err, size_t errlen);

/*
 * Whether such a list names the chip by something other than its index, which was assigned
 * later.
 */
bool txda__names_chip(const char *text, const struct txda_device_info *info);

#endif /* TXDA_SPEC_H */
