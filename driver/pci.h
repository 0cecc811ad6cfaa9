/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI function: how a chip is brought up piece by piece at probe, and taken away at removal.
 *
 * Removal may come at any moment, with the chip gone already and with files, mappings and fences
 * alive. It goes from the outside to the inside: no new entry, nobody inside, the chip stands still
 * and reaches no memory, all work is lost, and only then is memory given back.
 */
#ifndef TXDA_PCI_H
#define TXDA_PCI_H

#include <linux/pci.h>

extern struct pci_driver txda_pci_driver;

#endif /* TXDA_PCI_H */
