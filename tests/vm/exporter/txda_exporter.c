// SPDX-License-Identifier: MIT
/*
 * An exporter of PCI memory for tests: see txda_exporter.h.
 */
#include <linux/completion.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "txda_exporter.h"

/* What it takes to export memory of a device. */
#if defined(CONFIG_PCI_P2PDMA) && LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define EXPORTER_P2P
#include <linux/dma-buf-mapping.h>
#endif

#define EXPORTER_BAR 2
/* Longer than importers take in an emulated machine. */
#define EXPORTER_PATIENCE (60 * HZ)

/* Protects the list of all buffers and the only device. Outside of reservation objects. */
static DEFINE_MUTEX(exporter_lock);
static LIST_HEAD(exporter_buffers);
static struct pci_dev *exporter_pdev;

static atomic_t exporter_buffers_live, exporter_attached, exporter_pinned, exporter_mapped;

struct exporter_buffer {
	struct list_head link;
	struct dma_buf *dma_buf;
	enum txda_exporter_kind kind;
	size_t size;

	/* The BAR. Under the reservation object's lock: @revoked, it must not be accessed. */
	phys_addr_t start;
	struct p2pdma_provider *provider;
	bool revoked;

	/* SYSTEM: the memory it has moved to. */
	void *pages;

	/* One for each mapping, and one until it is revoked: then @idle. */
	struct kref users;
	struct completion idle;
};

static void exporter_idle(struct kref *ref)
{
	complete(&container_of(ref, struct exporter_buffer, users)->idle);
}

static int exporter_attach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	struct exporter_buffer *buffer = dma_buf->priv;

	if (buffer->kind == TXDA_EXPORTER_SYSTEM)
		attach->peer2peer = false;
	else if (!attach->peer2peer)
		return -EOPNOTSUPP;
#ifdef EXPORTER_P2P
	if (!dma_buf_attach_revocable(attach) && buffer->kind != TXDA_EXPORTER_SYSTEM)
		return -EOPNOTSUPP;
#endif
	atomic_inc(&exporter_attached);
	return 0;
}

static void exporter_detach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	atomic_dec(&exporter_attached);
}

static int exporter_pin(struct dma_buf_attachment *attach)
{
	struct exporter_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (buffer->revoked)
		return -ENODEV;
	atomic_inc(&exporter_pinned);
	return 0;
}

static void exporter_unpin(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	atomic_dec(&exporter_pinned);
}

static struct sg_table *exporter_map_system(struct exporter_buffer *buffer, struct device *dev,
					    enum dma_data_direction dir)
{
	unsigned int i, n = buffer->size >> PAGE_SHIFT;
	struct scatterlist *sg;
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	int err = -ENOMEM;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(sgt, n, GFP_KERNEL))
		goto err_free;
	for_each_sgtable_sg(sgt, sg, i)
		sg_set_page(sg, vmalloc_to_page(buffer->pages + i * PAGE_SIZE), PAGE_SIZE, 0);
	err = dma_map_sgtable(dev, sgt, dir, 0);
	if (!err)
		return sgt;
	sg_free_table(sgt);
err_free:
	kfree(sgt);
	return ERR_PTR(err);
}

static struct sg_table *exporter_map_bar(struct exporter_buffer *buffer,
					 struct dma_buf_attachment *attach,
					 enum dma_data_direction dir)
{
#ifdef EXPORTER_P2P
	struct phys_vec vec = {.paddr = buffer->start, .len = buffer->size};

	return dma_buf_phys_vec_to_sgt(attach, buffer->provider, &vec, 1, buffer->size, dir);
#else
	return ERR_PTR(-EOPNOTSUPP);
#endif
}

static struct sg_table *exporter_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct exporter_buffer *buffer = attach->dmabuf->priv;
	struct sg_table *sgt;

	if (buffer->revoked)
		return ERR_PTR(-ENODEV);
	if (buffer->kind == TXDA_EXPORTER_STUBBORN)
		return ERR_PTR(-EREMOTEIO);
	if (buffer->kind == TXDA_EXPORTER_SYSTEM)
		sgt = exporter_map_system(buffer, attach->dev, dir);
	else
		sgt = exporter_map_bar(buffer, attach, dir);
	if (!IS_ERR(sgt)) {
		kref_get(&buffer->users);
		atomic_inc(&exporter_mapped);
	}
	return sgt;
}

static void exporter_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			   enum dma_data_direction dir)
{
	struct exporter_buffer *buffer = attach->dmabuf->priv;

	if (buffer->kind == TXDA_EXPORTER_SYSTEM) {
		dma_unmap_sgtable(attach->dev, sgt, dir, 0);
		sg_free_table(sgt);
		kfree(sgt);
	} else {
#ifdef EXPORTER_P2P
		/* Made 0 by dma_buf_phys_vec_to_sgt(), for which dma_buf_free_sgt() would leave the list behind. */
		sgt->orig_nents = sgt->nents;
		dma_buf_free_sgt(attach, sgt, dir);
#endif
	}
	atomic_dec(&exporter_mapped);
	kref_put(&buffer->users, exporter_idle);
}

static int exporter_mmap(struct dma_buf *dma_buf, struct vm_area_struct *vma)
{
	struct exporter_buffer *buffer = dma_buf->priv;

	if (buffer->kind == TXDA_EXPORTER_SYSTEM)
		return remap_vmalloc_range(vma, buffer->pages, vma->vm_pgoff);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	return vm_iomap_memory(vma, buffer->start, buffer->size);
}

static void exporter_release(struct dma_buf *dma_buf)
{
	struct exporter_buffer *buffer = dma_buf->priv;

	mutex_lock(&exporter_lock);
	list_del(&buffer->link);
	mutex_unlock(&exporter_lock);
	vfree(buffer->pages);
	kfree(buffer);
	atomic_dec(&exporter_buffers_live);
}

static const struct dma_buf_ops exporter_pinned_ops = {
	.attach = exporter_attach,
	.detach = exporter_detach,
	.pin = exporter_pin,
	.unpin = exporter_unpin,
	.map_dma_buf = exporter_map,
	.unmap_dma_buf = exporter_unmap,
	.mmap = exporter_mmap,
	.release = exporter_release,
};

static const struct dma_buf_ops exporter_plain_ops = {
	.attach = exporter_attach,
	.detach = exporter_detach,
	.map_dma_buf = exporter_map,
	.unmap_dma_buf = exporter_unmap,
	.mmap = exporter_mmap,
	.release = exporter_release,
};

/* In exporter_lock. */
static int exporter_get(enum txda_exporter_kind kind)
{
	struct dma_buf_export_info info = {
		.exp_name = "txda_exporter",
		.owner = THIS_MODULE,
		.flags = O_RDWR | O_CLOEXEC,
	};
	struct exporter_buffer *buffer;
	int err;

	if (!exporter_pdev)
		return -ENODEV;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	buffer->kind = kind;
	buffer->start = pci_resource_start(exporter_pdev, EXPORTER_BAR);
	buffer->size = pci_resource_len(exporter_pdev, EXPORTER_BAR);
	kref_init(&buffer->users);
	init_completion(&buffer->idle);
	err = -ENOMEM;
	if (kind == TXDA_EXPORTER_SYSTEM) {
		buffer->pages = vmalloc_user(buffer->size);
		if (!buffer->pages)
			goto err_free;
	}
#ifdef EXPORTER_P2P
	buffer->provider = pcim_p2pdma_provider(exporter_pdev, EXPORTER_BAR);
#endif
	info.ops = kind == TXDA_EXPORTER_PLAIN ? &exporter_plain_ops : &exporter_pinned_ops;
	info.size = buffer->size;
	info.priv = buffer;
	buffer->dma_buf = dma_buf_export(&info);
	if (IS_ERR(buffer->dma_buf)) {
		err = PTR_ERR(buffer->dma_buf);
		goto err_free;
	}
	atomic_inc(&exporter_buffers_live);
	list_add_tail(&buffer->link, &exporter_buffers);
	err = dma_buf_fd(buffer->dma_buf, O_CLOEXEC);
	/* As below. */
	if (err < 0)
		dma_buf_put(buffer->dma_buf);
	return err;

err_free:
	vfree(buffer->pages);
	kfree(buffer);
	return err;
}

/* In exporter_lock: takes back all memory that importers use. */
static int exporter_revoke(void)
{
	struct exporter_buffer *buffer;
	int err = 0;

	list_for_each_entry(buffer, &exporter_buffers, link) {
		/* Who releases it waits for the lock. */
		if (buffer->revoked || !get_file_active(&buffer->dma_buf->file))
			continue;
		dma_resv_lock(buffer->dma_buf->resv, NULL);
		buffer->revoked = true;
#ifdef EXPORTER_P2P
		dma_buf_invalidate_mappings(buffer->dma_buf);
#endif
		dma_resv_wait_timeout(buffer->dma_buf->resv, DMA_RESV_USAGE_BOOKKEEP, false,
				      MAX_SCHEDULE_TIMEOUT);
		dma_resv_unlock(buffer->dma_buf->resv);
		kref_put(&buffer->users, exporter_idle);
		if (!wait_for_completion_timeout(&buffer->idle, EXPORTER_PATIENCE))
			err = -ETIMEDOUT;
		/* Not now, but when the caller returns to user space. */
		fput(buffer->dma_buf->file);
	}
	return err;
}

static long exporter_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct txda_exporter_state state = {
		.buffers = atomic_read(&exporter_buffers_live),
		.attached = atomic_read(&exporter_attached),
		.pinned = atomic_read(&exporter_pinned),
		.mapped = atomic_read(&exporter_mapped),
	};
	long ret;

	switch (cmd) {
	case TXDA_EXPORTER_GET:
		if (arg >= TXDA_EXPORTER_KINDS)
			return -EINVAL;
		mutex_lock(&exporter_lock);
		ret = exporter_get(arg);
		mutex_unlock(&exporter_lock);
		return ret;
	case TXDA_EXPORTER_REVOKE:
		mutex_lock(&exporter_lock);
		ret = exporter_revoke();
		mutex_unlock(&exporter_lock);
		return ret;
	case TXDA_EXPORTER_STATE:
#ifdef EXPORTER_P2P
		state.p2p = 1;
#endif
		return copy_to_user((void __user *)arg, &state, sizeof(state)) ? -EFAULT : 0;
	}
	return -ENOTTY;
}

static const struct file_operations exporter_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = exporter_ioctl,
};

static struct miscdevice exporter_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "txda_exporter",
	.fops = &exporter_fops,
};

static int exporter_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
#ifdef EXPORTER_P2P
	err = pcim_p2pdma_init(pdev);
	if (err)
		return err;
#endif
	mutex_lock(&exporter_lock);
	if (exporter_pdev)
		err = -EBUSY;
	else
		exporter_pdev = pdev;
	mutex_unlock(&exporter_lock);
	return err;
}

static void exporter_remove(struct pci_dev *pdev)
{
	mutex_lock(&exporter_lock);
	exporter_pdev = NULL;
	if (exporter_revoke())
		pci_err(pdev, "WARNING: an importer keeps memory that is not there any more\n");
	mutex_unlock(&exporter_lock);
}

static const struct pci_device_id exporter_ids[] = {
	{PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110)}, {}};
MODULE_DEVICE_TABLE(pci, exporter_ids);

static struct pci_driver exporter_driver = {
	.name = "txda_exporter",
	.id_table = exporter_ids,
	.probe = exporter_probe,
	.remove = exporter_remove,
};

static int __init exporter_init(void)
{
	int err = misc_register(&exporter_misc);

	if (err)
		return err;
	err = pci_register_driver(&exporter_driver);
	if (err)
		misc_deregister(&exporter_misc);
	return err;
}

static void __exit exporter_exit(void)
{
	pci_unregister_driver(&exporter_driver);
	misc_deregister(&exporter_misc);
}

module_init(exporter_init);
module_exit(exporter_exit);

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS(DMA_BUF);
#else
MODULE_IMPORT_NS("DMA_BUF");
#endif
MODULE_DESCRIPTION("Exporter of PCI memory for tests");
MODULE_LICENSE("Dual MIT/GPL");
