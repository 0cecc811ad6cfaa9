/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The order of locks, outermost first. A lock is taken only inside those above it on its branch;
 * locks on different branches are never held together unless noted.
 *
 *	mmap_lock (of the memory management)
 *	  reset.bars_lock, for reading, by page faults
 *	    gem.fault_lock, also without bars_lock
 *	drm_dev_enter() (SRCU; removal waits for all inside)
 *	  reset.lock			readers allocate memory; writers do not wait for fences
 *	    queue.submit_lock, vm.bind_lock
 *	      vm.ext_lock
 *	        reservation objects
 *	    reset.bars_lock
 *	      reset.cut_lock	+
 *	    scrub.lock			around an allocation or clearing of freed memory
 *	      vram.lock, copy.lock
 *	    evict.lock			also without reset.lock; allocates memory
 *	      gem.lock, vram.lock, copy.lock
 *	    vram.lock			allocates memory
 *	      copy.lock		+
 *	        mmu.lock	+
 *	          pt.lock	+
 *	    gem.lock
 *	      reservation objects	of imported buffers; their exporters revoke buffers inside
 *	    txda_groups_lock	+	also without reset.lock, and over several chips
 *	      vms_lock		+
 *	        vm.op_lock	+
 *	          mmu.lock, pt.lock
 *	      reset.cut_lock		of any chip
 *	    reset.cut_lock		by a reset that does not wait for reset.lock
 *	      queues.lock	+
 *	        queue.hw_lock	+
 *	          hwqs.lock
 *	            queue.lock
 *	              share.lock
 *	          users.lock	+	also without hw_lock
 *	            share.lock
 *	    queues.fault_lock	+	also inside reset.cut_lock
 *	      queue.hw_lock
 *	    txda_peers_lock	+	nothing inside
 *
 * The shrinker only tries evict.lock and gem.lock, since it may run under any lock under which
 * memory is allocated.
 *
 * perf holds raw locks: pmu.lock, and inside of it pair_lock.
 *
 * Locks with a plus are taken in code that fences wait for: under them no memory is allocated in a
 * way that could wait for fences, and no lock without a plus is taken. Such code is marked with
 * dma_fence_begin_signalling(): jobs and binds on their way to the chip, their timeouts, the
 * interrupt thread, and a chip reset until binds resume.
 *
 * With CONFIG_LOCKDEP lockdep is primed with the order when a chip is bound and when a client's
 * object is created, so that a violation is reported without a real deadlock.
 */
#ifndef TXDA_LOCKS_H
#define TXDA_LOCKS_H

struct txda_device;
struct txda_queue;
struct txda_vm;

#ifdef CONFIG_LOCKDEP
/* Call while no other thread knows the object yet. */
void txda_locks_show_device(struct txda_device *tdev);
void txda_locks_show_queue(struct txda_queue *queue);
void txda_locks_show_vm(struct txda_vm *vm);
#else
static inline void txda_locks_show_device(struct txda_device *tdev)
{
}

static inline void txda_locks_show_queue(struct txda_queue *queue)
{
}

static inline void txda_locks_show_vm(struct txda_vm *vm)
{
}
#endif

#endif /* TXDA_LOCKS_H */
