// SPDX-License-Identifier: GPL-2.0
// asks for: vmf_insert_pfn_pmd|pfn_t
/* vmf_insert_pfn_pmd() takes a plain page frame number. */
#include <linux/mm.h>
#include <linux/huge_mm.h>

vm_fault_t txda_probe(struct vm_fault *vmf, unsigned long pfn)
{
	return vmf_insert_pfn_pmd(vmf, pfn, true);
}
