/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Attachments to dma-bufs of other drivers. Older kernels name the notification of importers
 * move_notify.
 */
#ifndef TXDA_COMPAT_DMA_BUF_H
#define TXDA_COMPAT_DMA_BUF_H

#include <linux/dma-buf.h>

#ifndef TXDA_HAVE_INVALIDATE_MAPPINGS
#define invalidate_mappings move_notify
#endif

/*
 * Dynamic (with importer_ops) if the kernel has peer-to-peer DMA, which requires that; static
 * otherwise. Older kernels keep the DMA mapping of a dynamic attachment to an exporter that is not
 * dynamic until it is detached; but a mapping must not outlive the chip.
 */
static inline struct dma_buf_attachment *txda_dma_buf_attach(struct dma_buf *dma_buf,
							     struct device *dev,
							     const struct dma_buf_attach_ops *ops,
							     void *priv)
{
	bool dynamic = IS_ENABLED(CONFIG_PCI_P2PDMA);

#ifdef TXDA_HAVE_ATTACHMENT_SGT
	dynamic = dynamic && dma_buf_is_dynamic(dma_buf);
#endif
	return dynamic ? dma_buf_dynamic_attach(dma_buf, dev, ops, priv)
		       : dma_buf_attach(dma_buf, dev);
}

#endif /* TXDA_COMPAT_DMA_BUF_H */
