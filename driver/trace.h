/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: the path of a job, changes of address spaces, interrupts, faults and resets.
 *
 * Devices are identified by their PCI name. trace.c instantiates the tracepoints.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM txda

#if !defined(TXDA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TXDA_TRACE_H

#include <linux/device.h>
#include <linux/tracepoint.h>

/* Tracepoints are laid out as everywhere in the kernel. */
/* clang-format off */

/* @queue_id: the client's. @hwq: number of the hardware queue, 4294967295: it is on none. */
DECLARE_EVENT_CLASS(txda_job,
		    TP_PROTO(struct device *dev, u32 queue_id, u32 hwq, u64 seqno,
			     u32 stream_bytes),
		    TP_ARGS(dev, queue_id, hwq, seqno, stream_bytes),
		    TP_STRUCT__entry(__string(dev, dev_name(dev))
				     __field(u32, queue_id)
				     __field(u32, hwq)
				     __field(u64, seqno)
				     __field(u32, stream_bytes)),
		    TP_fast_assign(__assign_str(dev);
				   __entry->queue_id = queue_id;
				   __entry->hwq = hwq;
				   __entry->seqno = seqno;
				   __entry->stream_bytes = stream_bytes;),
		    TP_printk("%s queue=%u hwq=%u seqno=%llu bytes=%u", __get_str(dev),
			      __entry->queue_id, __entry->hwq, __entry->seqno,
			      __entry->stream_bytes)
);

/* A job was submitted by a client. */
DEFINE_EVENT(txda_job, txda_job_queue,
	     TP_PROTO(struct device *dev, u32 queue_id, u32 hwq, u64 seqno, u32 stream_bytes),
	     TP_ARGS(dev, queue_id, hwq, seqno, stream_bytes));

/* The job was pushed to the ring. */
DEFINE_EVENT(txda_job, txda_job_run,
	     TP_PROTO(struct device *dev, u32 queue_id, u32 hwq, u64 seqno, u32 stream_bytes),
	     TP_ARGS(dev, queue_id, hwq, seqno, stream_bytes));

TRACE_EVENT(txda_job_done,
	    TP_PROTO(struct device *dev, u32 queue_id, u32 hwq, u64 seqno, int error),
	    TP_ARGS(dev, queue_id, hwq, seqno, error),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __field(u32, queue_id)
			     __field(u32, hwq)
			     __field(u64, seqno)
			     __field(int, error)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->queue_id = queue_id;
			   __entry->hwq = hwq;
			   __entry->seqno = seqno;
			   __entry->error = error;),
	    TP_printk("%s queue=%u hwq=%u seqno=%llu error=%d", __get_str(dev), __entry->queue_id,
		      __entry->hwq, __entry->seqno, __entry->error)
);

/* @op: 'm' map, 'u' unmap. */
TRACE_EVENT(txda_bind,
	    TP_PROTO(struct device *dev, u32 vm_id, char op, u64 va, u64 bytes),
	    TP_ARGS(dev, vm_id, op, va, bytes),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __field(u32, vm_id)
			     __field(char, op)
			     __field(u64, va)
			     __field(u64, bytes)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->vm_id = vm_id;
			   __entry->op = op;
			   __entry->va = va;
			   __entry->bytes = bytes;),
	    TP_printk("%s vm=%u %s va=%#llx bytes=%#llx", __get_str(dev), __entry->vm_id,
		      __entry->op == 'm' ? "map" : "unmap", __entry->va, __entry->bytes)
);

/* An idle buffer loses its memory. @place: 'd' device, 'h' host. @dropped: its contents, too. */
TRACE_EVENT(txda_evict,
	    TP_PROTO(struct device *dev, char place, bool dropped, u64 bytes),
	    TP_ARGS(dev, place, dropped, bytes),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __field(char, place)
			     __field(bool, dropped)
			     __field(u64, bytes)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->place = place;
			   __entry->dropped = dropped;
			   __entry->bytes = bytes;),
	    TP_printk("%s %s memory %s bytes=%#llx", __get_str(dev),
		      __entry->place == 'd' ? "device" : "host",
		      __entry->dropped ? "dropped" : "moved", __entry->bytes)
);

/* A fault record of the chip, before the driver interprets it. */
TRACE_EVENT(txda_fault,
	    TP_PROTO(struct device *dev, u32 code, u32 hwq, u32 vmid, u64 va),
	    TP_ARGS(dev, code, hwq, vmid, va),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __field(u32, code)
			     __field(u32, hwq)
			     __field(u32, vmid)
			     __field(u64, va)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->code = code;
			   __entry->hwq = hwq;
			   __entry->vmid = vmid;
			   __entry->va = va;),
	    TP_printk("%s code=%u hwq=%u vmid=%u va=%#llx", __get_str(dev), __entry->code,
		      __entry->hwq, __entry->vmid, __entry->va)
);

/* A reset of the whole chip starts. */
TRACE_EVENT(txda_reset,
	    TP_PROTO(struct device *dev, const char *reason),
	    TP_ARGS(dev, reason),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __string(reason, reason)),
	    TP_fast_assign(__assign_str(dev);
			   __assign_str(reason);),
	    TP_printk("%s %s", __get_str(dev), __get_str(reason))
);

/* @queues and @events: the pending sources of the vector. */
TRACE_EVENT(txda_irq,
	    TP_PROTO(struct device *dev, u64 queues, u32 events),
	    TP_ARGS(dev, queues, events),
	    TP_STRUCT__entry(__string(dev, dev_name(dev))
			     __field(u64, queues)
			     __field(u32, events)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->queues = queues;
			   __entry->events = events;),
	    TP_printk("%s queues=%#llx events=%#x", __get_str(dev), __entry->queues,
		      __entry->events)
);

/* clang-format on */

#endif /* TXDA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
