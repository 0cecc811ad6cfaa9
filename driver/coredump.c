// SPDX-License-Identifier: GPL-2.0
#include "coredump.h"

#include <linux/devcoredump.h>
#include <linux/ktime.h>
#include <linux/seq_buf.h>
#include <linux/slab.h>
#include <linux/string_choices.h>
#include <linux/user_namespace.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>

#include "device.h"
#include "fence.h"
#include "gem.h"
#include "txda_isa.h"
#include "vm.h"

/* Size limit of the text; the rest is cut off. */
#define TXDA_DUMP_BYTES SZ_32K
/*
 * Limits: the last entries of the guilty queue's ring, and the first mappings of its address
 * space.
 */
#define TXDA_DUMP_ENTRIES  16
#define TXDA_DUMP_MAPPINGS 128
/* And of the firmware's log the last messages. */
#define TXDA_DUMP_MESSAGES 32

/**
 * struct txda_coredump - A chip's dump, waiting to be published.
 */
struct txda_coredump {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @work: Publishes @text. */
	struct work_struct work;

	/** @taken: Bit 0: set by the thread that owns @text. */
	unsigned long taken;

	/** @text: A buffer of TXDA_DUMP_BYTES. */
	char *text;

	/** @bytes: Bytes of @text in use. */
	size_t bytes;
};

static void txda_dump_identity(struct txda_device *tdev, struct seq_buf *s, const char *reason)
{
	seq_buf_puts(s, "**** TX8 core dump ****\n");
	seq_buf_printf(s, "driver: txda " TXDA_VERSION ", kernel: %s\n", init_utsname()->release);
	seq_buf_printf(s, "reason: %s\n", reason);
	seq_buf_printf(s, "time-ns: %llu\n", ktime_get_ns());
	seq_buf_printf(s, "device: %s\n", pci_name(tdev->pdev));
	seq_buf_printf(s, "chip: %.*s, family %u, revision %u\n", DRM_TXDA_NAME_BYTES,
		       tdev->info.name, tdev->info.family, tdev->info.revision);
	seq_buf_printf(s, "serial: %.*s, card %016llx, chip %u of %u\n", DRM_TXDA_SERIAL_BYTES,
		       tdev->info.serial, tdev->card, tdev->card_index, tdev->card_chips);
	seq_buf_printf(s, "answers: %s\n", str_yes_no(txda_device_alive(tdev)));
}

static const struct {
	const char *name;
	u32 reg;
} txda_dump_regs[] = {
	{"REG_VERSION", TXDA_REG_VERSION},
	{"ISA", TXDA_REG_ISA},
	{"CAPS", TXDA_REG_CAPS},
	{"LIVENESS", TXDA_REG_LIVENESS},
	{"FW_STATE", TXDA_REG_FW_STATE},
	{"FW_VERSION", TXDA_REG_FW_VERSION},
	{"FW_ERROR", TXDA_REG_FW_ERROR},
	{"IRQ_QUEUES_LO", TXDA_REG_IRQ_QUEUES_LO},
	{"IRQ_QUEUES_HI", TXDA_REG_IRQ_QUEUES_HI},
	{"IRQ_EVENTS", TXDA_REG_IRQ_EVENTS},
	{"IRQ_EVENTS_ENABLE", TXDA_REG_IRQ_EVENTS_ENABLE},
	{"FAULT_COUNT", TXDA_REG_FAULT_COUNT},
	{"POWER_MW", TXDA_REG_POWER_MW},
	{"TEMP_MC", TXDA_REG_TEMP_MC},
	{"CLOCK_KHZ", TXDA_REG_CLOCK_KHZ},
	{"THROTTLE", TXDA_REG_THROTTLE},
	{"ECC_CORRECTED", TXDA_REG_ECC_CORRECTED},
	{"ECC_UNCORRECTED", TXDA_REG_ECC_UNCORRECTED},
	{"RESET", TXDA_REG_RESET},
	{"RESET_COUNT", TXDA_REG_RESET_COUNT},
};

static void txda_dump_registers(struct txda_device *tdev, struct seq_buf *s)
{
	u32 i;

	seq_buf_puts(s, "\n**** Registers ****\n");
	for (i = 0; i < ARRAY_SIZE(txda_dump_regs); i++)
		seq_buf_printf(s, "%s: %#x\n", txda_dump_regs[i].name,
			       txda_read(tdev, txda_dump_regs[i].reg));

	seq_buf_puts(s, "FAULT_RECORD:");
	for (i = 0; i < TXDA_FAULT_RECORD_BYTES; i += 4)
		seq_buf_printf(s, " %08x", txda_read(tdev, TXDA_REG_FAULT_RECORD + i));
	seq_buf_puts(s, "\n");

	for (i = 0; i < tdev->n_ports; i++)
		seq_buf_printf(s, "PORT%u: state %u, errors %u\n", i,
			       txda_read(tdev, TXDA_REG_PORT(i) + TXDA_PORT_STATE),
			       txda_read(tdev, TXDA_REG_PORT(i) + TXDA_PORT_ERRORS));
}

/*
 * Queues that have an owner. Registers are read outside of the lock, since each read is a round
 * trip to the chip.
 */
static void txda_dump_hwqs(struct txda_device *tdev, struct seq_buf *s)
{
	u64 owned = 0;
	u32 i;

	spin_lock_irq(&tdev->hwqs.lock);
	for (i = 0; i < TXDA_MAX_QUEUES; i++)
		if (tdev->hwqs.owner[i])
			owned |= BIT_ULL(i);
	spin_unlock_irq(&tdev->hwqs.lock);

	seq_buf_puts(s, "\n**** Hardware queues in use ****\n");
	for (i = 0; i < tdev->compute_queues + tdev->copy_queues; i++) {
		u32 reg = TXDA_REG_QUEUE(i);

		if (!(owned & BIT_ULL(i)))
			continue;
		seq_buf_printf(s, "hwq %u: state %u, head %u, vmid %u, priority %u", i,
			       txda_read(tdev, reg + TXDA_QUEUE_STATE),
			       txda_read(tdev, reg + TXDA_QUEUE_HEAD),
			       txda_read(tdev, reg + TXDA_QUEUE_VMID),
			       txda_read(tdev, reg + TXDA_QUEUE_PRIORITY));
		seq_buf_printf(s, ", progress %llu, packet %#llx\n",
			       txda_read_pair(tdev, reg + TXDA_QUEUE_PROGRESS_LO),
			       txda_read_pair(tdev, reg + TXDA_QUEUE_PACKET_LO));
	}
}

static bool txda_dump_put(void *arg, const char *line)
{
	struct seq_buf *s = arg;

	seq_buf_puts(s, line);
	return !seq_buf_has_overflowed(s);
}

static void txda_dump_ring(struct txda_hwq *hwq, struct seq_buf *s)
{
	u32 tail = READ_ONCE(hwq->tail);
	u32 n = min_t(u32, tail, TXDA_DUMP_ENTRIES), i;

	seq_buf_printf(s, "ring: hwq %d, tail %u, done up to %llu\n", (int)hwq->index, tail,
		       txda_hwq_done(hwq));
	for (i = tail - n; i != tail; i++) {
		const struct txda_ring_entry *entry = &hwq->ring[i % TXDA_HWQ_ENTRIES];

		seq_buf_printf(s, "  entry %u: seqno %llu, stream %#llx, %u bytes, flags %#x\n", i,
			       entry->seqno, entry->stream_va, entry->stream_bytes, entry->flags);
	}
}

static void txda_dump_vm(struct txda_vm *vm, struct seq_buf *s)
{
	struct drm_gpuva *va;
	u32 n = 0;

	seq_buf_printf(s, "\n**** Its address space: vm %u, vmid %u, %u tables%s ****\n", vm->id,
		       vm->pt.vmid, vm->pt.tables, READ_ONCE(vm->lost) ? ", lost" : "");
	if (!mutex_trylock(&vm->op_lock)) {
		seq_buf_puts(s, "(it is being changed just now)\n");
		return;
	}
	drm_gpuvm_for_each_va(va, &vm->base) {
		if (va == &vm->base.kernel_alloc_node)
			continue;
		if (n++ == TXDA_DUMP_MAPPINGS) {
			seq_buf_puts(s, "  and more\n");
			break;
		}
		seq_buf_printf(s, "  %#llx + %#llx: kind %u, offset %#llx\n", va->va.addr,
			       va->va.range, va->gem.obj ? to_txda_bo(va->gem.obj)->kind : 0,
			       va->gem.offset);
	}
	mutex_unlock(&vm->op_lock);
}

static void txda_dump_queue(struct txda_queue *queue, struct seq_buf *s)
{
	const struct drm_txda_fault *fault = &queue->fault;
	const struct txda_client *client = &queue->client;

	seq_buf_printf(s, "\n**** Guilty queue: %u of process %d, %s, state %#x ****\n", queue->id,
		       client->pid, queue->class == TXDA_CLASS_COMPUTE ? "compute" : "copy",
		       READ_ONCE(queue->state));
	seq_buf_printf(s, "client: %s, id %llu, user %u\n", client->comm, client->id,
		       from_kuid(&init_user_ns, client->uid));
	seq_buf_printf(s, "fault: code %u, op %u, tensor %u, va %#llx", fault->code, fault->op,
		       fault->tensor, fault->va);
	seq_buf_printf(s, ", packet %#llx, detail %#llx\n", fault->packet_va, fault->detail);
	seq_buf_printf(s, "jobs: %lld submitted, %lld completed\n",
		       atomic64_read(&queue->submitted), atomic64_read(&queue->completed));
	mutex_lock(&queue->hw_lock);
	if (queue->hwq)
		txda_dump_ring(queue->hwq, s);
	mutex_unlock(&queue->hw_lock);
	txda_dump_vm(queue->vm, s);
}

void txda_coredump_take(struct txda_device *tdev, const char *reason, struct txda_queue *guilty)
{
	struct txda_coredump *dump = tdev->coredump;
	struct seq_buf s;

	if (test_and_set_bit(0, &dump->taken))
		return;
	dump->text = kmalloc(TXDA_DUMP_BYTES, GFP_NOWAIT | __GFP_NOWARN);
	if (!dump->text) {
		clear_bit(0, &dump->taken);
		return;
	}
	seq_buf_init(&s, dump->text, TXDA_DUMP_BYTES);
	txda_dump_identity(tdev, &s, reason);
	txda_dump_registers(tdev, &s);
	txda_dump_hwqs(tdev, &s);
	seq_buf_puts(&s, "\n**** Firmware log ****\n");
	txda_fwlog_show(tdev, TXDA_DUMP_MESSAGES, txda_dump_put, &s);
	if (guilty)
		txda_dump_queue(guilty, &s);
	dump->bytes = seq_buf_used(&s);
	queue_work(txda_release_wq, &dump->work);
}

/*
 * devcoredump creates a device in sysfs, which allocates memory that fences may wait for, so it
 * runs in a worker and not where the dump was taken. devcoredump keeps one dump per device until it
 * is read, and drops later ones.
 */
static void txda_coredump_publish(struct work_struct *work)
{
	struct txda_coredump *dump = container_of(work, struct txda_coredump, work);
	void *copy;

	/*
	 * vmalloc'ed text is freed by devcoredump itself, so a dump does not keep this module
	 * loaded.
	 */
	copy = vmalloc(dump->bytes);
	if (copy) {
		memcpy(copy, dump->text, dump->bytes);
		dev_coredumpv(dump->tdev->drm.dev, copy, dump->bytes, GFP_KERNEL);
	}
	kfree(dump->text);
	dump->text = NULL;
	clear_bit_unlock(0, &dump->taken);
}

int txda_coredump_init(struct txda_device *tdev)
{
	struct txda_coredump *dump = drmm_kzalloc(&tdev->drm, sizeof(*dump), GFP_KERNEL);

	if (!dump)
		return -ENOMEM;
	dump->tdev = tdev;
	INIT_WORK(&dump->work, txda_coredump_publish);
	tdev->coredump = dump;
	return 0;
}

void txda_coredump_fini(struct txda_device *tdev)
{
	/* No new dump can be taken: that happens only inside drm_dev_enter(). */
	flush_work(&tdev->coredump->work);
}
