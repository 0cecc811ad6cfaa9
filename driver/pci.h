/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI function: bringing a chip up step by step at probe, and shutting it down at removal.
 *
 * Removal may happen at any time, with the chip already gone and with files, mappings and fences
 * still alive. The order is: no new entry, wait for those inside, stop the chip and its memory
 * accesses, drop all work, and only then free memory.
 */
#ifndef TXDA_PCI_H
#define TXDA_PCI_H

#include <linux/pci.h>

extern struct pci_driver txda_pci_driver;

#endif /* TXDA_PCI_H */
