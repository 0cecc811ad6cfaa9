// SPDX-License-Identifier: MIT
/*
 * Asynchronous VM_BIND: order, syncs, and what happens to binds that nobody waits for.
 */
#include "args.h"

static struct drm_txda_bind_op op_map(uint32_t bo, uint64_t va, uint64_t bytes,
				      const struct drm_txda_sync *syncs, uint32_t n)
{
	return (struct drm_txda_bind_op){
		.flags = DRM_TXDA_BIND_MAP,
		.bo = bo,
		.va = va,
		.size = bytes,
		.syncs = array_of(syncs, n, sizeof(*syncs)),
	};
}

static struct drm_txda_bind_op op_unmap(uint64_t va, uint64_t bytes,
					const struct drm_txda_sync *syncs, uint32_t n)
{
	return (struct drm_txda_bind_op){
		.flags = DRM_TXDA_BIND_UNMAP,
		.va = va,
		.size = bytes,
		.syncs = array_of(syncs, n, sizeof(*syncs)),
	};
}

static struct drm_txda_bind_op op_sync(const struct drm_txda_sync *syncs, uint32_t n)
{
	return (struct drm_txda_bind_op){
		.flags = DRM_TXDA_BIND_SYNC_ONLY,
		.syncs = array_of(syncs, n, sizeof(*syncs)),
	};
}

/* Nothing happens before the wait is over; a job waits for the bind in turn. */
TEST(waits)
{
	struct client c = must_client(0), d = must_client(0);
	uint32_t gate = must_syncobj(c.fd), mapped = must_syncobj(c.fd), ran = must_syncobj(c.fd);
	struct drm_txda_sync bind_syncs[] = {wait_for_point(gate, 3), signals(mapped)};
	struct drm_txda_sync job_syncs[] = {wait_for(mapped), signals(ran)}, gate_syncs[2];
	struct mem m = must_mem_in(c.fd, c.vm, PAGE, DEVICE);
	struct gate held;
	struct drm_txda_bind_op op = op_map(m.handle, VA, PAGE, bind_syncs, 2), opens;

	/* A point that nobody has promised. */
	must_fail(bind_async(c.fd, c.vm, &op, 1), ENOENT);

	/* Another address space promises it for when a job of another file has ended. */
	held = must_gate(d.fd, d.vm);
	gate_syncs[0] = wait_for(must_share_syncobj(d.fd, held.fence, c.fd));
	gate_syncs[1] = signals_point(gate, 3);
	opens = op_sync(gate_syncs, 2);
	must(bind_async(c.fd, must_vm(c.fd), &opens, 1));

	must(bind_async(c.fd, c.vm, &op, 1));
	put_fill(&c.stream, VA, PAGE, 0x99);
	must(submit(c.fd, c.queue, c.stream.mem.va, c.stream.bytes, job_syncs, 2));
	must_fail(syncobj_wait(c.fd, mapped, 0, SECOND / 20), ETIME);
	must_fail(syncobj_wait(c.fd, ran, 0, SECOND / 20), ETIME);
	check(is_filled(m.cpu, PAGE, 0));
	gate_open(&held);
	must(fence_status(c.fd, ran));
	check(is_filled(m.cpu, PAGE, 0x99));
	check_equal(must_last_point(c.fd, gate), 3);
}

/* Binds of one address space are done in the order of the calls, also when a later one could go. */
TEST(order)
{
	struct client c = must_client(0), d = must_client(0);
	struct mem m[2], out = must_mem(c.fd, c.vm, PAGE);
	struct gate gate = must_gate(d.fd, d.vm);
	struct drm_txda_sync first, last;
	struct drm_txda_bind_op op;

	for (int i = 0; i < 2; i++) {
		m[i] = must_mem(c.fd, c.vm, PAGE);
		memset(m[i].cpu, 0x41 + i, PAGE);
	}
	first = wait_for(must_share_syncobj(d.fd, gate.fence, c.fd));
	last = signals(must_syncobj(c.fd));

	op = op_map(m[0].handle, VA, PAGE, &first, 1);
	must(bind_async(c.fd, c.vm, &op, 1));
	op = op_map(m[1].handle, VA, PAGE, &last, 1);
	must(bind_async(c.fd, c.vm, &op, 1));
	must_fail(syncobj_wait(c.fd, last.handle, 0, SECOND / 20), ETIME);
	gate_open(&gate);
	must(fence_status(c.fd, last.handle));
	must(dev_copy(&c, out.va, VA, PAGE));
	check(is_filled(out.cpu, PAGE, 0x42424242));
}

/* An element may wait for what an earlier one of its call signals. */
TEST(chain_in_a_call)
{
	struct client c = must_client(0);
	uint32_t timeline = must_syncobj(c.fd), binary = must_syncobj(c.fd);
	struct mem m = must_mem(c.fd, c.vm, PAGE);
	struct drm_txda_sync a = signals_point(timeline, 1);
	struct drm_txda_sync b[] = {wait_for_point(timeline, 1), signals(binary)};
	struct drm_txda_sync d[] = {wait_for(binary), signals_point(timeline, 2)};
	const struct drm_txda_bind_op ops[] = {
		op_map(m.handle, VA, PAGE, &a, 1),
		op_map(m.handle, VA + PAGE, PAGE, b, 2),
		op_unmap(VA, PAGE, d, 2),
	};

	must(bind_async(c.fd, c.vm, ops, 3));
	must(syncobj_wait(c.fd, timeline, 2, PATIENCE));
	must(dev_fill(&c, VA + PAGE, PAGE, 1));
	check(dev_fill(&c, VA, PAGE, 1));

	/* Not the other way round. */
	const struct drm_txda_sync late[] = {
		wait_for_point(timeline, 9),
		signals_point(timeline, 9),
	};
	const struct drm_txda_bind_op wrong[] = {op_sync(&late[0], 1), op_sync(&late[1], 1)};

	must_fail(bind_async(c.fd, c.vm, wrong, 2), ENOENT);
	check_equal(must_last_point(c.fd, timeline), 2);
}

TEST(bad)
{
	struct client c = must_client(0);
	uint32_t binary = must_syncobj(c.fd), bo;
	struct drm_txda_sync good = signals(binary), sync;
	struct drm_txda_bind_op ops[2], op;
	uint64_t used;

	must(bo_create(c.fd, PAGE, HOST, 0, 0, &bo));
	used = must_memory(c.fd).device_used;

	/* One that cannot be queued, and none is. */
	ops[0] = op_map(bo, VA, PAGE, &good, 1);
	ops[1] = op_map(bo + 9, VA + PAGE, PAGE, NULL, 0);
	must_fail(bind_async(c.fd, c.vm, ops, 2), ENOENT);
	must_fail(syncobj_wait(c.fd, binary, 0, 0), ETIME);
	ops[1] = op_map(bo, VA + PAGE, 2 * PAGE, NULL, 0);
	must_fail(bind_async(c.fd, c.vm, ops, 2), EINVAL);
	check(dev_fill(&c, VA, PAGE, 0));
	must_new_queue(&c);

	static const struct {
		struct drm_txda_sync sync;
		int error;
	} wrong[] = {
		{{.flags = 2, .handle = 1}, EINVAL},
		{{.flags = 1u << 30, .handle = 1}, EINVAL},
		{{.flags = DRM_TXDA_SYNC_SIGNAL, .handle = 1, .point = 1}, EINVAL},
		{{.flags = DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE, .handle = 1}, EINVAL},
		{{.flags = DRM_TXDA_SYNC_SIGNAL, .handle = 0}, ENOENT},
		{{.flags = DRM_TXDA_SYNC_SIGNAL, .handle = 777}, ENOENT},
		{{.flags = DRM_TXDA_SYNC_WAIT, .handle = 1}, ENOENT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		sync = wrong[i].sync;
		if (sync.handle == 1)
			sync.handle = binary;
		op = op_map(bo, VA, PAGE, &sync, 1);
		must_fail(bind_async(c.fd, c.vm, &op, 1), wrong[i].error);
	}
	op = op_map(bo, VA, PAGE, &good, DRM_TXDA_MAX_SYNCS + 1);
	must_fail(bind_async(c.fd, c.vm, &op, 1), E2BIG);
	op = op_map(bo, VA, PAGE, NULL, 1);
	must_fail(bind_async(c.fd, c.vm, &op, 1), EFAULT);
	op = op_sync(&good, 1);
	op.size = PAGE;
	must_fail(bind_async(c.fd, c.vm, &op, 1), EINVAL);
	op = op_sync(&good, 1);
	op.va = PAGE;
	must_fail(bind_async(c.fd, c.vm, &op, 1), EINVAL);
	op = op_sync(&good, 1);
	op.bo = bo;
	must_fail(bind_async(c.fd, c.vm, &op, 1), EINVAL);
	op = op_sync(&good, 1);
	op.flags |= DRM_TXDA_BIND_READONLY;
	must_fail(bind_async(c.fd, c.vm, &op, 1), EINVAL);

	/* Whatever failed has given back what it had taken. */
	must_settle(c.fd, used);
	check_equal(vm_state(c.fd, c.vm), DRM_TXDA_VM_USABLE);
	must(bind_async(c.fd, c.vm, NULL, 0));
}

/* As many as one call takes; what they took is given back. */
TEST(many)
{
	static struct drm_txda_bind_op ops[DRM_TXDA_MAX_BIND_OPS];
	struct client c = must_client(0);
	struct drm_txda_sync done = signals(must_syncobj(c.fd));
	struct mem m = must_mem(c.fd, c.vm, PAGE);
	uint64_t used = must_memory(c.fd).device_used;

	for (uint64_t i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = op_map(m.handle, VA + i * PAGE, PAGE, NULL, 0);
	ops[ARRAY_SIZE(ops) - 1].syncs = array_of(&done, 1, sizeof(done));
	must(bind_async(c.fd, c.vm, ops, ARRAY_SIZE(ops)));
	must(fence_status(c.fd, done.handle));
	must(dev_fill(&c, VA, PAGE * ARRAY_SIZE(ops), 0x17));
	check(is_filled(m.cpu, PAGE, 0x17));
	ops[0] = op_unmap(VA, PAGE * ARRAY_SIZE(ops), &done, 1);
	must(bind_async(c.fd, c.vm, ops, 1));
	must(fence_status(c.fd, done.handle));
	must_settle(c.fd, used);
}

/* Handle, address space or file go while a bind waits. */
TEST(abandoned)
{
	enum { HANDLE, SPACE, WHOLE_FILE, WAYS };
	struct client d = must_client(0);

	for (int way = 0; way < WAYS; way++) {
		struct gate gate = must_gate(d.fd, d.vm);
		uint64_t used = must_memory(d.fd).device_used;
		struct drm_txda_sync syncs[2];
		int fd = must_open(0);
		uint32_t vm = must_vm(fd), bo;
		struct drm_txda_bind_op op;

		syncs[0] = wait_for(must_share_syncobj(d.fd, gate.fence, fd));
		syncs[1] = signals(must_syncobj(fd));
		must(bo_create(fd, 5 * MIB, DEVICE, 0, 0, &bo));
		op = op_map(bo, VA + PAGE, 5 * MIB, syncs, 2);
		must(bind_async(fd, vm, &op, 1));
		must(gem_close(fd, bo));
		if (way == SPACE)
			must(vm_destroy(fd, vm));
		if (way == WHOLE_FILE)
			close(fd);
		else
			must_fail(syncobj_wait(fd, syncs[1].handle, 0, SECOND / 50), ETIME);
		gate_open(&gate);
		/* The fence comes in any case, with an error when the address space is gone. */
		if (way == HANDLE)
			must(fence_status(fd, syncs[1].handle));
		if (way == SPACE)
			check(fence_status(fd, syncs[1].handle) < 0);
		if (way != WHOLE_FILE)
			close(fd);
		must_settle(d.fd, used);
		must(fence_status(d.fd, gate.fence));
		must(queue_destroy(d.fd, gate.queue));
	}
}

/* A synchronous bind does not wait for asynchronous ones. */
TEST(sync_beside_async)
{
	struct client c = must_client(0), d = must_client(0);
	struct gate gate = must_gate(d.fd, d.vm);
	struct mem m = must_mem(c.fd, c.vm, PAGE);
	struct drm_txda_sync wait;
	struct drm_txda_bind_op op;

	wait = wait_for(must_share_syncobj(d.fd, gate.fence, c.fd));
	op = op_map(m.handle, VA, PAGE, &wait, 1);
	must(bind_async(c.fd, c.vm, &op, 1));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, 0, VA + PAGE, PAGE));
	must(dev_fill(&c, VA + PAGE, PAGE, 8));
	check(is_filled(m.cpu, PAGE, 8));
	gate_open(&gate);
}

/* What waits keeps memory of its address space, so that counts for the user when the id has gone. */
TEST(abandoned_counts)
{
	struct client c = must_client(0);
	struct drm_txda_device_info info = {0};
	struct drm_txda_sync end;
	struct gate gate;
	struct drm_txda_bind_op op;
	uint32_t vm, n = 0;
	int err;

	/* Root has no limit, so it would go on for ever. */
	if (!geteuid())
		return;
	must(query(c.fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	gate = must_gate(c.fd, c.vm);
	end = wait_for(gate.fence);
	op = op_sync(&end, 1);
	while (!(err = vm_create(c.fd, &vm)) && n++ < info.max_vms) {
		must(bind_async(c.fd, vm, &op, 1));
		must(vm_destroy(c.fd, vm));
	}
	must_fail(err, EDQUOT);
	gate_open(&gate);
	/* They go one after the other, when their binds have. */
	must_become((err = vm_create(c.fd, &vm)) != -EDQUOT);
	must(err);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
