/* SPDX-License-Identifier: MIT */
/*
 * Describes faults as text: "page fault in op 12 LINEAR "layers.0.mlp.down", tensor 40, address
 * 0x2000".
 *
 * Threads: pure functions.
 */
#ifndef TXDA_FAULT_H
#define TXDA_FAULT_H

#include "program.h"

/*
 * Writes one line into @buf, truncated to @len (above 0). @program is the one launched by the
 * faulting packet, for names, or NULL; the fault's numbers need not be valid for it.
 */
void txda__fault_text(const struct txda_fault *fault, const struct txda__program *program,
		      char *buf, size_t len);

#endif /* TXDA_FAULT_H */
