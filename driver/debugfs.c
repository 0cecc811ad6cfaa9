// SPDX-License-Identifier: GPL-2.0
#include "debugfs.h"

#include <linux/seq_file.h>
#include <drm/drm_debugfs.h>
#include <drm/drm_gpuvm.h>
#include <drm/drm_print.h>

#include "device.h"
#include "gem.h"
#include "vm.h"

static struct txda_device *txda_debugfs_device(struct seq_file *m)
{
	struct drm_debugfs_entry *entry = m->private;

	return to_txda(entry->dev);
}

static int txda_debugfs_chip(struct seq_file *m, void *data)
{
	struct txda_device *tdev = txda_debugfs_device(m);
	int idx;

	seq_printf(m, "dram: %llu bytes for buffers, %llu mappable, %lld used, %llu reserved\n",
		   tdev->dram_bytes, tdev->dram_mappable, atomic64_read(&tdev->vram.used),
		   tdev->dram_reserved);
	seq_printf(m, "host: %lld bytes used\n", atomic64_read(&tdev->host_used));
	seq_printf(m, "idle buffers: %lld bytes moved to the host, %lld dropped since bind\n",
		   atomic64_read(&tdev->evict.moved), atomic64_read(&tdev->evict.dropped));
	seq_printf(m, "resets: %lld of the chip, %lld of queues\n",
		   atomic64_read(&tdev->reset.chip_resets), atomic64_read(&tdev->queues.resets));
	seq_printf(m, "down: %d, wedged: %d\n", READ_ONCE(tdev->reset.down),
		   READ_ONCE(tdev->reset.wedged));

	if (txda_bars_enter(tdev, &idx))
		return 0;
	seq_printf(m, "liveness: %u ms\n", txda_read(tdev, TXDA_REG_LIVENESS));
	seq_printf(m, "busy: compute %llu ns, copy %llu ns\n",
		   txda_read_pair(tdev, TXDA_REG_BUSY_COMPUTE_LO),
		   txda_read_pair(tdev, TXDA_REG_BUSY_COPY_LO));
	seq_printf(m, "traffic: %llu bytes read, %llu written\n",
		   txda_read_pair(tdev, TXDA_REG_DRAM_READ_LO),
		   txda_read_pair(tdev, TXDA_REG_DRAM_WRITTEN_LO));
	if (tdev->counts_c2c)
		seq_printf(m, "c2c: %llu bytes sent, %llu received\n",
			   txda_read_pair(tdev, TXDA_REG_C2C_SENT_LO),
			   txda_read_pair(tdev, TXDA_REG_C2C_RECEIVED_LO));
	txda_bars_exit(tdev, idx);
	return 0;
}

static int txda_debugfs_queues(struct seq_file *m, void *data)
{
	struct txda_device *tdev = txda_debugfs_device(m);
	struct txda_queue *queue;

	mutex_lock(&tdev->queues.lock);
	list_for_each_entry(queue, &tdev->queues.all, link) {
		seq_printf(m, "queue %u: %s%s, vm %u, state %#x, %lld submitted, %lld completed",
			   queue->id, queue->shared ? "shared " : "",
			   queue->class == TXDA_CLASS_COMPUTE ? "compute" : "copy", queue->vm->id,
			   READ_ONCE(queue->state), atomic64_read(&queue->submitted),
			   atomic64_read(&queue->completed));
		if (queue->fault.code)
			seq_printf(m, ", fault %u at %#llx", queue->fault.code, queue->fault.va);
		seq_puts(m, "\n");
	}
	mutex_unlock(&tdev->queues.lock);
	return 0;
}

static int txda_debugfs_vms(struct seq_file *m, void *data)
{
	struct txda_device *tdev = txda_debugfs_device(m);
	struct txda_vm *vm;
	int err = 0;

	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link) {
		seq_printf(m, "vm %u: vmid %u, %u tables, %d queues, %d jobs%s\n", vm->id,
			   vm->pt.vmid, vm->pt.tables, atomic_read(&vm->queues),
			   atomic_read(&vm->jobs), READ_ONCE(vm->lost) ? ", lost" : "");
		mutex_lock(&vm->op_lock);
		err = drm_debugfs_gpuva_info(m, &vm->base);
		mutex_unlock(&vm->op_lock);
		if (err)
			break;
	}
	mutex_unlock(&tdev->vms_lock);
	return err;
}

static int txda_debugfs_buffers(struct seq_file *m, void *data)
{
	txda_gem_show(txda_debugfs_device(m), m);
	return 0;
}

static int txda_debugfs_irqs(struct seq_file *m, void *data)
{
	struct txda_device *tdev = txda_debugfs_device(m);
	unsigned int i;

	seq_printf(m, "%s, %lld events\n", tdev->irq.msix ? "MSI-X" : "MSI",
		   atomic64_read(&tdev->irq.event_count));
	for (i = 0; i < tdev->irq.n_vectors; i++) {
		const struct txda_irq_vector *vector = &tdev->irq.vectors[i];

		seq_printf(m, "vector %u: irq %d, queues %#llx%s, %lld interrupts\n", i,
			   vector->irq, vector->queues, vector->events ? " and events" : "",
			   atomic64_read(&vector->count));
	}
	return 0;
}

/* What does not fit is read again, from the start, with more room. */
static bool txda_debugfs_put(void *arg, const char *line)
{
	struct seq_file *m = arg;

	seq_puts(m, line);
	return !seq_has_overflowed(m);
}

static int txda_debugfs_firmware(struct seq_file *m, void *data)
{
	struct txda_device *tdev = txda_debugfs_device(m);
	int idx;

	if (txda_bars_enter(tdev, &idx))
		return 0;
	txda_fwlog_show(tdev, U32_MAX, txda_debugfs_put, m);
	txda_bars_exit(tdev, idx);
	return 0;
}

static int txda_debugfs_users(struct seq_file *m, void *data)
{
	struct drm_printer p = drm_seq_file_printer(m);

	txda_users_show(txda_debugfs_device(m), &p);
	return 0;
}

static const struct drm_debugfs_info txda_debugfs_files[] = {
	{"chip", txda_debugfs_chip},
	{"queues", txda_debugfs_queues},
	{"vms", txda_debugfs_vms},
	{"buffers", txda_debugfs_buffers},
	{"irqs", txda_debugfs_irqs},
	{"users", txda_debugfs_users},
	{"firmware_log", txda_debugfs_firmware},
};

void txda_debugfs_init(struct txda_device *tdev)
{
	drm_debugfs_add_files(&tdev->drm, txda_debugfs_files, ARRAY_SIZE(txda_debugfs_files));
}
