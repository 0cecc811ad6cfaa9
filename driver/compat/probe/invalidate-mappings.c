// SPDX-License-Identifier: GPL-2.0
// asks for: invalidate_mappings
#include <linux/dma-buf.h>

void probe(struct dma_buf_attachment *attach)
{
	attach->importer_ops->invalidate_mappings(attach);
}
