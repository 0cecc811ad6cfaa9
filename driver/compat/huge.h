/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CPU mappings with huge pages. The page frame number was a pfn_t until 6.18. Without
 * TXDA_HUGE_FAULTS the kernel's configuration or the processor has no such mappings of devices.
 */
#ifndef TXDA_COMPAT_HUGE_H
#define TXDA_COMPAT_HUGE_H

#include <linux/huge_mm.h>
#include <linux/mm.h>

#if defined(CONFIG_TRANSPARENT_HUGEPAGE) && defined(CONFIG_ARCH_SUPPORTS_PMD_PFNMAP)
#define TXDA_HUGE_FAULTS

#ifndef TXDA_HAVE_INSERT_PFN_PMD
#include <linux/pfn_t.h>
#endif

static inline vm_fault_t txda_insert_pfn_pmd(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;

#ifdef TXDA_HAVE_INSERT_PFN_PMD
	return vmf_insert_pfn_pmd(vmf, pfn, write);
#else
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), write);
#endif
}
#endif

#endif /* TXDA_COMPAT_HUGE_H */
