// SPDX-License-Identifier: MIT
/*
 * VM_CREATE, VM_DESTROY, VM_GET_STATE and synchronous VM_BIND: what they take and refuse, and that
 * the chip sees what was mapped. Asynchronous VM_BIND is in mem_async.c.
 */
#include "args.h"

#include <sys/time.h>

#define LAST_PAGE (-(uint64_t)PAGE)

/* ---- Address spaces ------------------------------------------------------------------------- */

TEST(create)
{
	struct drm_txda_device_info info = {0};
	struct drm_txda_vm_create arg = {0};
	int fd = must_open(0);
	uint64_t all;

	must(query(fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	all = 1ull << info.va_bits;
	must(call(fd, DRM_IOCTL_TXDA_VM_CREATE, &arg));
	check(arg.id);
	check_equal(arg.va_range, all);

	arg = (struct drm_txda_vm_create){.va_range = 64 * MIB};
	must(call(fd, DRM_IOCTL_TXDA_VM_CREATE, &arg));
	check_equal(arg.va_range, 64 * MIB);
	must_fail(bind_one(fd, arg.id, DRM_TXDA_BIND_UNMAP, 0, 0, 64 * MIB, PAGE), EINVAL);
	must(bind_one(fd, arg.id, DRM_TXDA_BIND_UNMAP, 0, 0, 64 * MIB - PAGE, PAGE));
	/* The smallest has one page besides the first. */
	arg = (struct drm_txda_vm_create){.va_range = 2 * PAGE};
	must(call(fd, DRM_IOCTL_TXDA_VM_CREATE, &arg));
	must(bind_one(fd, arg.id, DRM_TXDA_BIND_UNMAP, 0, 0, PAGE, PAGE));
	must_fail(bind_one(fd, arg.id, DRM_TXDA_BIND_UNMAP, 0, 0, 0, PAGE), EINVAL);
}

TEST(create_bad)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_vm_create, flags, 1, EINVAL),
		BAD(struct drm_txda_vm_create, flags, 1u << 31, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, PAGE, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, PAGE + 1, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, 64 * MIB + 8, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, (1ull << 48) + PAGE, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, UINT64_MAX, EINVAL),
		BAD(struct drm_txda_vm_create, va_range, UINT64_MAX - PAGE + 1, EINVAL),
	};
	const struct drm_txda_vm_create good = {0};
	int fd = must_open(0);

	must_refuse(fd, DRM_IOCTL_TXDA_VM_CREATE, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_VM_CREATE, &good, sizeof(good));
}

/* A client built before va_range existed. */
TEST(create_short)
{
	const unsigned long request =
		_IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, DRM_COMMAND_BASE + DRM_TXDA_VM_CREATE,
		     offsetof(struct drm_txda_vm_create, va_range));
	struct drm_txda_vm_create arg = {.va_range = 0x123};
	int fd = must_open(0);

	must(call(fd, request, &arg));
	check(arg.id);
	check_equal(arg.va_range, 0x123);
}

TEST(create_until_full)
{
	struct drm_txda_device_info info = {0};
	int fd = must_open(0);
	uint32_t vm, last = 0, n = 0;
	int err;

	must(query(fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	while (!(err = vm_create(fd, &vm))) {
		last = vm;
		n++;
	}
	/* A user may have half of them, root all. */
	must_fail(err, geteuid() ? EDQUOT : ENOSPC);
	/* The kernel keeps one for itself; others' files may have some. */
	check(n && n < info.max_vms);
	if (geteuid()) {
		int other = must_open(0);

		check(n <= (info.max_vms - 1) / 2);
		must_fail(vm_create(other, &vm), EDQUOT);
		close(other);
	}
	must(vm_destroy(fd, last));
	must(vm_create(fd, &vm));
	close(fd);
	fd = must_open(0);
	for (uint32_t i = 0; i < n; i++)
		must_vm(fd);
}

TEST(destroy)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_vm_destroy, pad, 1, EINVAL),
		BAD(struct drm_txda_vm_destroy, id, 0, ENOENT),
		BAD(struct drm_txda_vm_destroy, id, 12345, ENOENT),
		BAD(struct drm_txda_vm_destroy, id, UINT32_MAX, ENOENT),
	};
	struct drm_txda_vm_destroy arg = {0};
	struct client c = must_client(0);

	arg.id = c.vm;
	must_refuse(c.fd, DRM_IOCTL_TXDA_VM_DESTROY, &arg, sizeof(arg), bad, ARRAY_SIZE(bad));
	must_fault(c.fd, DRM_IOCTL_TXDA_VM_DESTROY, &arg, sizeof(arg));
	must_fail(vm_destroy(c.fd, c.vm), EBUSY);
	must(queue_destroy(c.fd, c.queue));
	must(vm_destroy(c.fd, c.vm));
	must_fail(vm_destroy(c.fd, c.vm), ENOENT);
	must_fail(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, PAGE), ENOENT);
}

TEST(state)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_vm_get_state, id, 0, ENOENT),
		BAD(struct drm_txda_vm_get_state, id, 77, ENOENT),
		BAD(struct drm_txda_vm_get_state, fault.pad, 1, EINVAL),
	};
	struct drm_txda_fault fault;
	struct drm_txda_vm_get_state arg = {.fault = answer_of(&fault, sizeof(fault))};
	struct client c = must_client(0);

	arg.id = c.vm;
	must_refuse(c.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg, sizeof(arg), bad, ARRAY_SIZE(bad));
	must_fault(c.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg, sizeof(arg));
	must_answer(c.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg, sizeof(arg),
		    offsetof(struct drm_txda_vm_get_state, fault), sizeof(fault));
	must(call(c.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg));
	check_equal(arg.state, DRM_TXDA_VM_USABLE);
	check_equal(fault.code, 0);

	check(dev_fill(&c, VA, PAGE, 1));
	must(call(c.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg));
	/* A fault is the queue's end, not the address space's. */
	check_equal(arg.state, DRM_TXDA_VM_USABLE);
	check(fault.code);
	check_equal(fault.queue_id, c.queue);
	check_equal(fault.va, VA);
	check(fault.time_ns);
}

TEST(ids_of_others)
{
	int a = must_open(0), b = must_open(0);
	struct drm_txda_vm_get_state get = {.id = must_vm(a)};
	uint32_t handle;

	must_fail(call(b, DRM_IOCTL_TXDA_VM_GET_STATE, &get), ENOENT);
	must_fail(vm_destroy(b, get.id), ENOENT);
	must_fail(bind_one(b, get.id, DRM_TXDA_BIND_UNMAP, 0, 0, VA, PAGE), ENOENT);
	must_fail(bo_create(b, PAGE, HOST, 0, get.id, &handle), ENOENT);
	must(bo_create(a, PAGE, HOST, 0, 0, &handle));
	must_fail(bind_one(b, must_vm(b), DRM_TXDA_BIND_MAP, handle + 100, 0, VA, PAGE), ENOENT);
}

/* ---- What VM_BIND refuses ------------------------------------------------------------------- */

static int bind_ops(int fd, uint32_t vm, struct drm_txda_array ops, uint32_t *ret_done)
{
	struct drm_txda_vm_bind arg = {.vm_id = vm, .ops = ops};
	int err = call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg);

	*ret_done = arg.done;
	return err;
}

TEST(bind_bad_argument)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_vm_bind, vm_id, 0, ENOENT),
		BAD(struct drm_txda_vm_bind, vm_id, UINT32_MAX, ENOENT),
		BAD(struct drm_txda_vm_bind, flags, 2, EINVAL),
		BAD(struct drm_txda_vm_bind, flags, 1u << 31, EINVAL),
		BAD(struct drm_txda_vm_bind, pad, 1, EINVAL),
		BAD(struct drm_txda_vm_bind, done, 2, EINVAL),
		BAD(struct drm_txda_vm_bind, done, UINT32_MAX, EINVAL),
		BAD(struct drm_txda_vm_bind, ops.count, DRM_TXDA_MAX_BIND_OPS + 1, E2BIG),
		BAD(struct drm_txda_vm_bind, ops.count, UINT32_MAX, E2BIG),
		BAD(struct drm_txda_vm_bind, ops.stride, 0, EINVAL),
		BAD(struct drm_txda_vm_bind, ops.stride, 40, EINVAL),
		BAD(struct drm_txda_vm_bind, ops.stride, PAGE + 8, EINVAL),
		BAD(struct drm_txda_vm_bind, ops.stride, UINT32_MAX, EINVAL),
		BAD(struct drm_txda_vm_bind, ops.array, 0, EFAULT),
		BAD(struct drm_txda_vm_bind, ops.array, UINT64_MAX - 7, EFAULT),
		BAD(struct drm_txda_vm_bind, ops.array, 1ull << 63, EFAULT),
	};
	const struct drm_txda_bind_op op = {.flags = DRM_TXDA_BIND_UNMAP, .va = VA, .size = PAGE};
	struct drm_txda_vm_bind arg = {.ops = array_of(&op, 1, sizeof(op))};
	int fd = must_open(0);

	arg.vm_id = must_vm(fd);
	must(call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg));
	check_equal(arg.done, 1);
	arg.done = 0;
	must_refuse(fd, DRM_IOCTL_TXDA_VM_BIND, &arg, sizeof(arg), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_VM_BIND, &arg, sizeof(arg));
	/* An empty list of operations succeeds. */
	arg.ops = array_of(NULL, 0, 0);
	must(call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg));
	check_equal(arg.done, 0);
}

static struct drm_txda_vm_bind interrupted;
static struct drm_txda_bind_op interrupted_ops[DRM_TXDA_MAX_BIND_OPS];
static unsigned int interruptions;

/* What is done is not looked at again. A slow machine gets on once it was interrupted a few times. */
static void on_alarm(int signal)
{
	const struct itimerval never = {0};

	(void)signal;
	if (!interrupted.done || interrupted.done == interrupted.ops.count)
		return;
	if (++interruptions == 4)
		setitimer(ITIMER_REAL, &never, NULL);
	for (uint32_t i = 0; i < interrupted.done; i++)
		interrupted_ops[i].flags = UINT32_MAX;
}

/* A bind that signals interrupt goes on where it stopped, whoever makes the call again. */
TEST(bind_interrupted)
{
	const struct itimerval often = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200};
	const struct itimerval never = {0};
	struct client c = must_client(0);
	uint32_t handle;

	must(bo_create(c.fd, PAGE, HOST, 0, c.vm, &handle));
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};

		must(sigaction(SIGALRM, &action, NULL));
		interruptions = 0;
		for (int round = 0; round < 1000 && !interruptions; round++) {
			for (uint32_t i = 0; i < ARRAY_SIZE(interrupted_ops); i++)
				interrupted_ops[i] = (struct drm_txda_bind_op){
					.flags = DRM_TXDA_BIND_MAP,
					.bo = handle,
					.va = VA + i * (uint64_t)PAGE,
					.size = PAGE,
				};
			interrupted = (struct drm_txda_vm_bind){
				.vm_id = c.vm,
				.ops = array_of(interrupted_ops, ARRAY_SIZE(interrupted_ops),
						sizeof(interrupted_ops[0])),
			};
			must(setitimer(ITIMER_REAL, &often, NULL));
			must(call(c.fd, DRM_IOCTL_TXDA_VM_BIND, &interrupted));
			must(setitimer(ITIMER_REAL, &never, NULL));
			check_equal(interrupted.done, ARRAY_SIZE(interrupted_ops));
		}
		check(interruptions);
	}
	/* The first and the last are there. */
	must(dev_fill(&c, VA, PAGE, 1));
	must(dev_fill(&c, VA + (ARRAY_SIZE(interrupted_ops) - 1) * (uint64_t)PAGE, PAGE, 1));
}

TEST(bind_array_growth)
{
	struct {
		struct drm_txda_bind_op op;
		uint64_t more;
	} ops[2] = {
		{{.flags = DRM_TXDA_BIND_UNMAP, .va = VA, .size = PAGE}, 0},
		{{.flags = DRM_TXDA_BIND_UNMAP, .va = VA + PAGE, .size = PAGE}, 0},
	};
	struct drm_txda_bind_op *edge = at_the_edge(2 * sizeof(*edge));
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), done;

	must(bind_ops(fd, vm, array_of(ops, 2, sizeof(ops[0])), &done));
	check_equal(done, 2);
	ops[1].more = 1;
	must_fail(bind_ops(fd, vm, array_of(ops, 2, sizeof(ops[0])), &done), E2BIG);
	check_equal(done, 0);

	/* All that is wanted is there, and nothing behind it is read. */
	edge[0] = ops[0].op;
	edge[1] = ops[1].op;
	must(bind_ops(fd, vm, array_of(edge, 2, sizeof(*edge)), &done));
	must_fail(bind_ops(fd, vm, array_of(edge, 3, sizeof(*edge)), &done), EFAULT);
	must_fail(bind_ops(fd, vm, array_of(&edge[1], 1, sizeof(*edge) + 8), &done), EFAULT);
	check_equal(done, 0);
}

TEST(bind_bad_operation)
{
#define OP(kind_, ...)                                                                             \
	{                                                                                          \
		.flags = DRM_TXDA_BIND_##kind_, __VA_ARGS__                                        \
	}
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), bo, done;
	struct drm_txda_sync sync = signals(must_syncobj(fd));
	struct drm_txda_array syncs = array_of(&sync, 1, sizeof(sync));
	struct drm_txda_device_info info = {0};
	uint64_t range;

	must(query(fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	range = 1ull << info.va_bits;
	must(bo_create(fd, 4 * PAGE, HOST, 0, 0, &bo));

	const struct {
		struct drm_txda_bind_op op;
		int error;
	} bad[] = {
		{OP(MAP, .bo = bo, .va = VA, .size = 0), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = 5 * PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = 4 * PAGE, .bo_offset = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = PAGE, .bo_offset = 4 * PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = PAGE, .bo_offset = LAST_PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = 2 * PAGE, .bo_offset = LAST_PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = LAST_PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA + 1, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA + 2048, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = PAGE + 8), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = PAGE, .bo_offset = 8), EINVAL},
		{OP(MAP, .bo = bo, .va = 0, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = 1ull << 48, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = range - PAGE, .size = 2 * PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = range, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = LAST_PAGE, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = LAST_PAGE, .size = 2 * PAGE), EINVAL},
		{OP(MAP, .bo = 0, .va = VA, .size = PAGE), ENOENT},
		{OP(MAP, .bo = bo + 1, .va = VA, .size = PAGE), ENOENT},
		{OP(MAP, .bo = UINT32_MAX, .va = VA, .size = PAGE), ENOENT},
		{OP(MAP | 2, .bo = bo, .va = VA, .size = PAGE), EINVAL},
		{OP(MAP | 1u << 27, .bo = bo, .va = VA, .size = PAGE), EINVAL},
		{OP(MAP, .bo = bo, .va = VA, .size = PAGE, .syncs = syncs), EINVAL},
		{{.flags = 3u << 28, .va = VA, .size = PAGE}, EINVAL},
		{{.flags = 15u << 28, .va = VA, .size = PAGE}, EINVAL},
		{OP(UNMAP, .va = VA, .size = 0), EINVAL},
		{OP(UNMAP, .va = VA, .size = PAGE, .bo = bo), EINVAL},
		{OP(UNMAP, .va = VA, .size = PAGE, .bo_offset = PAGE), EINVAL},
		{OP(UNMAP | DRM_TXDA_BIND_READONLY, .va = VA, .size = PAGE), EINVAL},
		{OP(UNMAP, .va = 0, .size = PAGE), EINVAL},
		{OP(UNMAP, .va = 0, .size = 1ull << 48), EINVAL},
		{OP(UNMAP, .va = VA, .size = 1ull << 48), EINVAL},
		{OP(UNMAP, .va = VA, .size = UINT64_MAX - PAGE + 1), EINVAL},
		{OP(UNMAP, .va = VA + 8, .size = PAGE), EINVAL},
		{OP(SYNC_ONLY), EINVAL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int err = bind_ops(fd, vm, array_of(&bad[i].op, 1, sizeof(bad[i].op)), &done);

		if (err != -bad[i].error)
			fail("operation %zu: %s, expected %s", i, strerror_of(err),
			     strerror_of(bad[i].error));
		check_equal(done, 0);
	}
#undef OP
}

TEST(bind_how_far)
{
	struct client c = must_client(0);
	struct mem host = must_mem(c.fd, c.vm, PAGE);
	struct drm_txda_bind_op ops[3] = {
		{.bo = host.handle, .va = VA, .size = PAGE},
		{.bo = 999, .va = VA + PAGE, .size = PAGE},
		{.bo = host.handle, .va = VA + 2 * PAGE, .size = PAGE},
	};
	uint32_t done;

	/* A handle is looked up when its turn has come. */
	must_fail(bind_ops(c.fd, c.vm, array_of(ops, 3, sizeof(ops[0])), &done), ENOENT);
	check_equal(done, 1);
	must(dev_fill(&c, VA, PAGE, 0x5a5a5a5a));
	check(is_filled(host.cpu, PAGE, 0x5a5a5a5a));
	check(dev_fill(&c, VA + 2 * PAGE, PAGE, 1));

	/* Nonsense is found before anything is done. */
	must_new_queue(&c);
	ops[0].va = VA + 8 * PAGE;
	ops[1].bo = host.handle;
	ops[2].size = 1;
	must_fail(bind_ops(c.fd, c.vm, array_of(ops, 3, sizeof(ops[0])), &done), EINVAL);
	check_equal(done, 0);
	check(dev_fill(&c, VA + 8 * PAGE, PAGE, 1));
}

/* ---- What the chip sees --------------------------------------------------------------------- */

TEST(see_places)
{
	struct client c = must_client(0);
	const uint64_t sizes[] = {
		PAGE, 3 * PAGE, 2 * MIB - PAGE, 2 * MIB, 2 * MIB + PAGE, 9 * MIB,
	};

	for (size_t i = 0; i < ARRAY_SIZE(places) * ARRAY_SIZE(sizes); i++) {
		uint64_t bytes = sizes[i / 2];
		struct mem m = must_mem_in(c.fd, c.vm, bytes, places[i % 2]);
		uint32_t value = 0x1000 + (uint32_t)i;

		must(dev_fill(&c, m.va, bytes, value));
		check(is_filled(m.cpu, bytes, value));
		((uint32_t *)m.cpu)[bytes / 4 - 1] = ~value;
		must(dev_copy(&c, m.va, m.va + bytes - 8, 8));
		check_equal(((uint32_t *)m.cpu)[1], ~value);
		/* Neither the page before nor the one behind. */
		check(dev_fill(&c, m.va + bytes, 4, 0));
		must_new_queue(&c);
		check(dev_fill(&c, m.va - 4, 4, 0));
		must_new_queue(&c);
	}
}

/* At addresses where huge pages are possible, and next to them. */
TEST(see_huge)
{
	struct client c = must_client(0);
	struct mem m = must_mem_in(c.fd, c.vm, 8 * MIB, DEVICE);
	uint32_t *word = m.cpu;

	for (uint64_t i = 0; i < 8 * MIB / PAGE; i++)
		word[i * PAGE / 4] = 0xabc00000 + (uint32_t)i;
	for (uint64_t shift = 0; shift <= 2 * PAGE; shift += PAGE) {
		uint64_t va = VA + shift;
		struct mem out = must_mem(c.fd, c.vm, 8 * MIB);

		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, 0, va, 8 * MIB));
		must(dev_copy(&c, out.va, va, 8 * MIB));
		check(!memcmp(out.cpu, m.cpu, 8 * MIB));
		/* Holes at the start, in the middle, across and at the end of huge pages. */
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, va, PAGE));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, va + 3 * MIB, PAGE));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, va + 4 * MIB - PAGE,
			      2 * PAGE));
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, va + 8 * MIB - PAGE, PAGE));
		memset(out.cpu, 0, 8 * MIB);
		must(dev_copy(&c, out.va + PAGE, va + PAGE, 3 * MIB - PAGE));
		must(dev_copy(&c, out.va + 3 * MIB + PAGE, va + 3 * MIB + PAGE, MIB - 2 * PAGE));
		must(dev_copy(&c, out.va + 4 * MIB + PAGE, va + 4 * MIB + PAGE,
			      4 * MIB - 2 * PAGE));
		check(!memcmp((char *)out.cpu + PAGE, (char *)m.cpu + PAGE, 3 * MIB - PAGE));
		check(!memcmp((char *)out.cpu + 4 * MIB + PAGE, (char *)m.cpu + 4 * MIB + PAGE,
			      4 * MIB - 2 * PAGE));
		const uint64_t holes[] = {0, 3 * MIB, 4 * MIB - PAGE, 4 * MIB, 8 * MIB - PAGE};

		for (size_t i = 0; i < ARRAY_SIZE(holes); i++) {
			check(dev_copy(&c, out.va, va + holes[i], 8));
			must_new_queue(&c);
		}
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 16 * MIB));
		check(dev_copy(&c, out.va, va + PAGE, 8));
		must_new_queue(&c);
		must(gem_close(c.fd, out.handle));
	}
}

TEST(see_replaced)
{
	struct client c = must_client(0);
	struct mem a = must_mem(c.fd, c.vm, 5 * PAGE), b = must_mem(c.fd, c.vm, 2 * PAGE);
	struct mem out = must_mem(c.fd, c.vm, 5 * PAGE);
	uint32_t *word = out.cpu;

	for (int i = 0; i < 5; i++)
		memset((char *)a.cpu + i * PAGE, 0xa0 + i, PAGE);
	for (int i = 0; i < 2; i++)
		memset((char *)b.cpu + i * PAGE, 0xb0 + i, PAGE);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, a.handle, 0, VA, 5 * PAGE));
	/* Middle pages, in the other order. */
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, b.handle, PAGE, VA + PAGE, PAGE));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, b.handle, 0, VA + 2 * PAGE, PAGE));
	must(dev_copy(&c, out.va, VA, 5 * PAGE));
	check_equal(word[0], 0xa0a0a0a0);
	check_equal(word[PAGE / 4], 0xb1b1b1b1);
	check_equal(word[2 * PAGE / 4], 0xb0b0b0b0);
	check_equal(word[3 * PAGE / 4], 0xa3a3a3a3);
	check_equal(word[4 * PAGE / 4], 0xa4a4a4a4);
	/* Across the borders of three mappings. */
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, a.handle, 2 * PAGE, VA, 3 * PAGE));
	must(dev_copy(&c, out.va, VA, 5 * PAGE));
	check_equal(word[0], 0xa2a2a2a2);
	check_equal(word[2 * PAGE / 4], 0xa4a4a4a4);
	check_equal(word[3 * PAGE / 4], 0xa3a3a3a3);
	/* Mapping the same again changes nothing. */
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, a.handle, 2 * PAGE, VA, 3 * PAGE));
	must(dev_copy(&c, out.va, VA, 5 * PAGE));
	check_equal(word[0], 0xa2a2a2a2);
	/* Handles may go, mappings stay. */
	must(gem_close(c.fd, a.handle));
	must(gem_close(c.fd, b.handle));
	must(munmap_mem(&a));
	must(munmap_mem(&b));
	must(dev_copy(&c, out.va, VA, 5 * PAGE));
	check_equal(word[4 * PAGE / 4], 0xa4a4a4a4);
}

TEST(see_read_only)
{
	struct client c = must_client(0);
	struct mem m = must_mem_in(c.fd, c.vm, 4 * MIB, DEVICE), out = must_mem(c.fd, c.vm, PAGE);

	memset(m.cpu, 0x77, 4 * MIB);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP | DRM_TXDA_BIND_READONLY, m.handle, 0, VA,
		      4 * MIB));
	must(dev_copy(&c, out.va, VA + 3 * MIB, PAGE));
	check(is_filled(out.cpu, PAGE, 0x77777777));
	check(dev_fill(&c, VA + 3 * MIB, PAGE, 0));
	must_new_queue(&c);
	check(is_filled(m.cpu, 4 * MIB, 0x77777777));
	/* A part of it becomes writable; the rest stays. */
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, PAGE, VA + PAGE, PAGE));
	must(dev_fill(&c, VA + PAGE, PAGE, 5));
	check(dev_fill(&c, VA, 4, 5));
	must_new_queue(&c);
	check(dev_fill(&c, VA + 2 * PAGE, 4, 5));
}

/* Page tables come and go with what they map. */
TEST(churn)
{
	struct client c = must_client(0);
	struct mem m = must_mem(c.fd, c.vm, 64 * PAGE), out = must_mem(c.fd, c.vm, PAGE);
	uint64_t used = must_memory(c.fd).device_used;
	struct drm_txda_device_info info = {0};
	uint64_t seed = 1;

	must(query(c.fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));

	memset(m.cpu, 0x31, 64 * PAGE);
	for (int i = 0; i < 300; i++) {
		uint64_t va, pages;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		va = VA + (seed >> 17) % (1ull << (info.va_bits - 1)) / PAGE * PAGE;
		pages = 1 + (seed >> 40) % 64;
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, 0, va, pages * PAGE));
		if (i % 50 == 0) {
			must(dev_copy(&c, out.va, va + (pages - 1) * PAGE, PAGE));
			check(is_filled(out.cpu, PAGE, 0x31313131));
		}
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, va, pages * PAGE));
	}
	check_equal(must_memory(c.fd).device_used, used);

	/* Many at once, and all of them away in one operation. */
	for (uint64_t i = 0; i < 100; i++)
		must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, m.handle, 0, VA + i * 2 * MIB, PAGE));
	check(must_memory(c.fd).device_used >= used + 100 * PAGE);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 200 * MIB));
	check_equal(must_memory(c.fd).device_used, used);
	check(dev_copy(&c, out.va, VA + 100 * MIB, 8));
}

/* Maps a page in each 2 MiB, so that each needs a page table, until that fails. Returns the error. */
static int map_sparsely(int fd, uint32_t vm, uint64_t *ret_mapped)
{
	enum { OPS = 4096 };
	static struct drm_txda_bind_op ops[OPS];
	struct drm_txda_vm_bind arg;
	uint32_t handle;
	int err;

	must(bo_create(fd, PAGE, HOST, 0, vm, &handle));
	*ret_mapped = 0;
	do {
		for (uint32_t i = 0; i < OPS; i++)
			ops[i] = (struct drm_txda_bind_op){
				.flags = DRM_TXDA_BIND_MAP,
				.bo = handle,
				.va = VA + (*ret_mapped + i) * 2 * MIB,
				.size = PAGE,
			};
		arg = (struct drm_txda_vm_bind){.vm_id = vm,
						.ops = array_of(ops, OPS, sizeof(ops[0]))};
		err = call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg);
		*ret_mapped += arg.done;
	} while (!err);
	return err;
}

static int open_as(uid_t uid)
{
	must(setresuid(uid, uid, uid) ? -errno : 0);
	return must_open(0);
}

/* One user's mappings leave page tables for others. For a small chip that everybody may open. */
TEST(tables_of_a_user)
{
	uint64_t limit = must_memory(must_open(0)).device_mappable / PAGE / 2, mapped;
	int fd, full[2], go[2], err;
	uint32_t vm;
	char byte;
	pid_t pid, other;

	if (geteuid())
		skip("only root can become another user");
	if (limit > 32768)
		skip("%llu page tables are too many", (unsigned long long)limit);
	check(!pipe(full) && !pipe(go));
	pid = must_fork();
	if (!pid) {
		fd = open_as(12345);
		vm = must_vm(fd);
		must_fail(map_sparsely(fd, vm, &mapped), EDQUOT);
		check(mapped > limit / 2 && mapped < limit);
		check(write(full[1], "", 1) == 1 && read(go[0], &byte, 1) == 1);
		/* What is unmapped can be mapped again. */
		must(bind_one(fd, vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, mapped * 2 * MIB));
		must(vm_destroy(fd, vm));
		vm = must_vm(fd);
		must_fail(map_sparsely(fd, vm, &mapped), EDQUOT);
		check(mapped > limit / 2);
		_exit(0);
	}
	close(full[1]);
	check(read(full[0], &byte, 1) == 1);
	other = must_fork();
	if (!other) {
		fd = open_as(12346);
		err = map_sparsely(fd, must_vm(fd), &mapped);
		check(err == -EDQUOT || err == -ENOSPC);
		check(mapped > limit / 2);
		_exit(0);
	}
	must_end(other);
	check(write(go[1], "", 1) == 1);
	must_end(pid);
}

/* Two address spaces of a file do not see each other's mappings. */
TEST(two_spaces)
{
	struct client c = must_client(0), d = c;
	struct mem m;
	uint32_t shared;
	void *cpu;

	d.vm = must_vm(c.fd);
	d.queue = 0;
	d.stream = must_stream(d.fd, d.vm);
	must_new_queue(&d);
	m = must_mem(c.fd, c.vm, PAGE);
	must(dev_fill(&c, m.va, PAGE, 1));
	check(dev_fill(&d, m.va, PAGE, 2));
	check(is_filled(m.cpu, PAGE, 1));
	must_new_queue(&d);

	/* What is private to one cannot be mapped in the other; what is not, can. */
	must_fail(bind_one(d.fd, d.vm, DRM_TXDA_BIND_MAP, m.handle, 0, VA, PAGE), EINVAL);
	must(bo_create(c.fd, PAGE, HOST, 0, 0, &shared));
	cpu = must_map(c.fd, shared, PAGE);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, shared, 0, VA, PAGE));
	must(bind_one(d.fd, d.vm, DRM_TXDA_BIND_MAP, shared, 0, VA + PAGE, PAGE));
	must(dev_fill(&d, VA + PAGE, PAGE, 3));
	check(is_filled(cpu, PAGE, 3));
	must(dev_fill(&c, VA, PAGE, 4));
	check(is_filled(cpu, PAGE, 4));
	/* Destroying one leaves the other. */
	must(queue_destroy(c.fd, c.queue));
	must(vm_destroy(c.fd, c.vm));
	must(dev_fill(&d, VA + PAGE, PAGE, 5));
	check(is_filled(cpu, PAGE, 5));
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
