/* SPDX-License-Identifier: MIT */
/*
 * The specification of chips for container runtimes: CDI, the Container Device Interface. A chip is
 * a device of kind txda.com/chip under up to three names: its index in txda-smi, its PCI address
 * and its serial number; "all" is every chip.
 *
 * A chip is described by its node alone, whose device numbers the runtime looks up when it creates
 * a container: so an outdated specification cannot give access to another chip.
 *
 * Pure: opens nothing. Threads: any.
 */
#ifndef TXDA_CDI_SPEC_H
#define TXDA_CDI_SPEC_H

#include <stdbool.h>

#define CDI_KIND "txda.com/chip"
/*
 * The lowest version that allows names beginning with a digit: more runtimes support it than later
 * ones.
 */
#define CDI_VERSION  "0.5.0"
#define CDI_MAX_NAME 63

struct cdi_chip {
	unsigned index;
	char node[64];	 /* "/dev/accel/accel0" */
	char bus[32];	 /* "0000:01:00.0", or "" */
	char serial[32]; /* or "" */
};

/* Letters and digits, with "_", "-", "." and ":" between them, at most CDI_MAX_NAME. */
bool cdi_name_is_valid(const char *name);

/*
 * The names of chip @at of @chips [n], at most 3, in *ret_names: pointers into the chip, and
 * @number for its index. A name that is invalid or ambiguous is left out. Returns their number.
 */
unsigned cdi_names(const struct cdi_chip *chips, unsigned n, unsigned at, char number[16],
		   const char *ret_names[3]);

/*
 * The specification of @chips [n], n > 0, as JSON, freed by the caller. @library: mounted into each
 * container at the same path, or NULL. NULL: out of memory.
 */
char *cdi_spec(const struct cdi_chip *chips, unsigned n, const char *library);

#endif /* TXDA_CDI_SPEC_H */
