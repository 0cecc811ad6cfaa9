// SPDX-License-Identifier: MIT
/*
 * QUEUE_CREATE, QUEUE_DESTROY, QUEUE_GET_STATE and QUEUE_SUBMIT: what they take and refuse, and that
 * jobs run. What goes wrong on the chip is in queue_fault.c.
 */
#include "args.h"

static int fd;
static uint32_t vm;

static void setup(void)
{
	fd = must_open(0);
	vm = must_vm(fd);
}

/* ---- DEV_QUERY ------------------------------------------------------------------------------ */

TEST(query_answers)
{
	static const uint32_t known[] = {
		[DRM_TXDA_QUERY_DEVICE] = sizeof(struct drm_txda_device_info),
		[DRM_TXDA_QUERY_MEMORY] = sizeof(struct drm_txda_memory_info),
		[DRM_TXDA_QUERY_QUEUES] = sizeof(struct drm_txda_queues_info),
		[DRM_TXDA_QUERY_FIRMWARE] = sizeof(struct drm_txda_firmware_info),
		[DRM_TXDA_QUERY_TOPOLOGY] = sizeof(struct drm_txda_topology_info),
		[DRM_TXDA_QUERY_TIMESTAMP] = sizeof(struct drm_txda_timestamp_info),
		[DRM_TXDA_QUERY_RESET] = sizeof(struct drm_txda_reset_info),
		[DRM_TXDA_QUERY_PORT] = sizeof(struct drm_txda_port_info),
	};
	struct drm_txda_topology_info topology;
	struct drm_txda_dev_query arg = {0};

	setup();
	must(query(fd, DRM_TXDA_QUERY_TOPOLOGY, &topology, sizeof(topology)));
	for (arg.type = 0; arg.type < ARRAY_SIZE(known); arg.type++) {
		arg.index = 0;
		if (arg.type == DRM_TXDA_QUERY_PORT && !topology.n_ports)
			break;
		must_answer(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg, sizeof(arg),
			    offsetof(struct drm_txda_dev_query, answer), known[arg.type]);
		arg.index = UINT32_MAX;
		must_fail(call(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg),
			  arg.type == DRM_TXDA_QUERY_PORT ? ENOENT : EINVAL);
	}
	arg = (struct drm_txda_dev_query){.type = ARRAY_SIZE(known)};
	must_fail(call(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg), EINVAL);
	arg.type = UINT32_MAX;
	must_fail(call(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg), EINVAL);
}

/* What the driver tells is what the header names, whatever the chip's registers say. */
TEST(query_values)
{
	struct drm_txda_firmware_info firmware;
	struct drm_txda_topology_info topology;
	struct drm_txda_device_info device;
	struct drm_txda_port_info port;

	setup();
	must(query(fd, DRM_TXDA_QUERY_DEVICE, &device, sizeof(device)));
	/* The model has these, which are other bits of its register. */
	check_equal(device.caps & ~(uint64_t)DRM_TXDA_CAP_PRECISE,
		    DRM_TXDA_CAP_CMODEL | DRM_TXDA_CAP_C2C | DRM_TXDA_CAP_ECC |
			    DRM_TXDA_CAP_POWER_LIMIT);
	check_equal(device.features, DRM_TXDA_FEATURE_QUEUE_SHARE | DRM_TXDA_FEATURE_BO_ADVISE);
	must(query(fd, DRM_TXDA_QUERY_FIRMWARE, &firmware, sizeof(firmware)));
	check_equal(firmware.state, DRM_TXDA_FIRMWARE_READY);
	must(query(fd, DRM_TXDA_QUERY_TOPOLOGY, &topology, sizeof(topology)));
	for (uint32_t i = 0; i < topology.n_ports; i++) {
		must(query_port(fd, i, &port));
		check(port.state <= DRM_TXDA_PORT_UP);
		if (port.state == DRM_TXDA_PORT_UP)
			check(port.speed_mbps);
	}
	must_fail(query_port(fd, topology.n_ports, &port), ENOENT);
}

/* ---- QUEUE_CREATE --------------------------------------------------------------------------- */

static int create(struct drm_txda_queue_create arg)
{
	return call(fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &arg);
}

TEST(create_kinds)
{
	struct drm_txda_queues_info info = {0};

	setup();
	must(query(fd, DRM_TXDA_QUERY_QUEUES, &info, sizeof(info)));
	check(info.compute && info.copy && info.max_per_client >= 6);
	for (uint32_t class = 0; class <= DRM_TXDA_QUEUE_COPY; class ++) {
		for (uint32_t priority = 0; priority <= DRM_TXDA_PRIORITY_HIGH; priority++) {
			uint32_t queue = 0;
			int err = queue_create_as(fd, vm, class, priority, 0, &queue);

			if (!(info.priorities >> priority & 1)) {
				must_fail(err, EACCES);
				continue;
			}
			must(err);
			check(queue);
			must(submit_wait(fd, queue, 0, 0));
		}
	}
}

TEST(create_timeouts)
{
	const uint32_t good[] = {0, 1, 2, 1000, 600000};
	struct drm_txda_queues_info info = {0};

	setup();
	must(query(fd, DRM_TXDA_QUERY_QUEUES, &info, sizeof(info)));
	check(info.default_timeout_ms && info.default_timeout_ms <= info.max_timeout_ms);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		uint32_t queue;
		int err;

		must(queue_create_as(fd, vm, 0, 0, good[i], &queue));
		err = submit_wait(fd, queue, 0, 0);
		/* On a busy machine a job may miss such short limits. */
		if (!good[i] || good[i] >= 1000 || err != -ETIME)
			must(err);
		must(queue_destroy(fd, queue));
	}
	must_fail(create((struct drm_txda_queue_create){.vm_id = vm,
							.timeout_ms = info.max_timeout_ms + 1}),
		  EINVAL);
	must_fail(create((struct drm_txda_queue_create){.vm_id = vm, .timeout_ms = UINT32_MAX}),
		  EINVAL);
}

TEST(create_bad)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_queue_create, class_, 2, EINVAL),
		BAD(struct drm_txda_queue_create, class_, UINT32_MAX, EINVAL),
		BAD(struct drm_txda_queue_create, priority, 3, EINVAL),
		BAD(struct drm_txda_queue_create, priority, UINT32_MAX, EINVAL),
		BAD(struct drm_txda_queue_create, vm_id, 0, ENOENT),
		BAD(struct drm_txda_queue_create, vm_id, 1000, ENOENT),
		BAD(struct drm_txda_queue_create, vm_id, UINT32_MAX, ENOENT),
	};
	struct drm_txda_queue_create good = {0};

	setup();
	good.vm_id = vm;
	must_refuse(fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &good, sizeof(good));
	for (int bit = 1; bit < 32; bit++)
		must_fail(create((struct drm_txda_queue_create){.vm_id = vm, .flags = 1u << bit}),
			  EINVAL);
	/* Ids are those of the file. */
	must_fail(call(must_open(0), DRM_IOCTL_TXDA_QUEUE_CREATE, &good), ENOENT);
}

TEST(create_limit_of_file)
{
	struct drm_txda_queues_info info = {0};
	uint32_t queue, last = 0;

	setup();
	must(query(fd, DRM_TXDA_QUERY_QUEUES, &info, sizeof(info)));
	for (uint32_t i = 0; i < info.max_per_client; i++)
		must(queue_create_as(fd, vm, 0, 0, 0, &last));
	must_fail(queue_create_as(fd, vm, 0, 0, 0, &queue), ENOSPC);
	must(queue_destroy(fd, last));
	must(queue_create_as(fd, vm, 0, 0, 0, &queue));
	must(submit_wait(fd, queue, 0, 0));
}

TEST(create_limit_of_chip)
{
	struct drm_txda_queues_info info = {0};
	uint32_t made = 0, queue, vms[64];
	int files[64], n = 0, err = 0;

	setup();
	must(query(fd, DRM_TXDA_QUERY_QUEUES, &info, sizeof(info)));
	for (; !err && n < 64; n++) {
		files[n] = must_open(0);
		vms[n] = must_vm(files[n]);
		for (uint32_t i = 0; !err && i < info.max_per_client; i++) {
			err = queue_create_as(files[n], vms[n], DRM_TXDA_QUEUE_COPY, 0, 0, &queue);
			made += !err;
		}
	}
	/* A user may have half of them, root all. */
	must_fail(err, geteuid() ? EDQUOT : ENOSPC);
	check_equal(made, geteuid() ? (info.copy + info.copy_shared) / 2 : info.copy);
	/* The other class has room. */
	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COMPUTE, 0, 0, &queue));
	/* Closing a file gives back what it has. */
	close(files[0]);
	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COPY, 0, 0, &queue));
	must(submit_wait(fd, queue, 0, 0));
}

TEST(create_high_unprivileged)
{
	uint32_t queue;

	setup();
	if (geteuid())
		must_fail(queue_create_as(fd, vm, 0, DRM_TXDA_PRIORITY_HIGH, 0, &queue), EACCES);
	else
		must(queue_create_as(fd, vm, 0, DRM_TXDA_PRIORITY_HIGH, 0, &queue));
	if (!geteuid() && !setresuid(1, 1, 1))
		must_fail(queue_create_as(fd, vm, 0, DRM_TXDA_PRIORITY_HIGH, 0, &queue), EACCES);
	must(queue_create_as(fd, vm, 0, DRM_TXDA_PRIORITY_NORMAL, 0, &queue));
}

/* ---- QUEUE_DESTROY, QUEUE_GET_STATE --------------------------------------------------------- */

TEST(destroy)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_queue_destroy, pad, 1, EINVAL),
		BAD(struct drm_txda_queue_destroy, id, 0, ENOENT),
		BAD(struct drm_txda_queue_destroy, id, 1000, ENOENT),
		BAD(struct drm_txda_queue_destroy, id, UINT32_MAX, ENOENT),
	};
	struct drm_txda_queue_destroy arg = {0};

	setup();
	arg.id = must_queue(fd, vm);
	must_fail(vm_destroy(fd, vm), EBUSY);
	must_refuse(fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &arg, sizeof(arg), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &arg, sizeof(arg));
	must_fail(queue_destroy(must_open(0), arg.id), ENOENT);
	must(queue_destroy(fd, arg.id));
	must_fail(queue_destroy(fd, arg.id), ENOENT);
	must_fail(submit(fd, arg.id, 0, 0, NULL, 0), ENOENT);
	must(vm_destroy(fd, vm));
}

TEST(state)
{
	static const struct bad bad[] = {
		BAD(struct drm_txda_queue_get_state, id, 0, ENOENT),
		BAD(struct drm_txda_queue_get_state, id, 1000, ENOENT),
	};
	struct drm_txda_queue_get_state *arg = at_the_edge(sizeof(*arg));
	struct drm_txda_fault *fault = at_the_edge(sizeof(*fault));
	struct stream s;
	uint32_t queue;

	setup();
	queue = must_queue(fd, vm);
	memset(arg, 0xa5, sizeof(*arg));
	arg->id = queue;
	arg->fault = answer_of(fault, sizeof(*fault));
	memset(fault, 0xa5, sizeof(*fault));
	must(call(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, arg));
	check_equal(arg->state, 0);
	check_equal(arg->submitted, 0);
	check_equal(arg->completed, 0);
	check_equal(arg->progress, 0);
	check_equal(arg->fault.size, sizeof(*fault));
	for (size_t i = 0; i < sizeof(*fault); i++)
		check_equal(((uint8_t *)fault)[i], 0);
	must_answer(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, arg, sizeof(*arg),
		    offsetof(struct drm_txda_queue_get_state, fault), sizeof(*fault));

	s = must_stream(fd, vm);
	put_nop(&s);
	put_nop(&s);
	must(submit_wait(fd, queue, s.mem.va, s.bytes));
	must(submit_wait(fd, queue, 0, 0));
	*arg = must_state(fd, queue);
	check_equal(arg->submitted, 2);
	check_equal(arg->completed, 2);
	check(arg->progress >= 2);

	*arg = (struct drm_txda_queue_get_state){.id = queue};
	must_refuse(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, arg, sizeof(*arg), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, arg, sizeof(*arg));
	must_fail(call(must_open(0), DRM_IOCTL_TXDA_QUEUE_GET_STATE, arg), ENOENT);
}

/* ---- QUEUE_SUBMIT --------------------------------------------------------------------------- */

static uint32_t queue;
static struct stream nop;

static void setup_queue(void)
{
	setup();
	queue = must_queue(fd, vm);
	nop = must_stream(fd, vm);
	put_nop(&nop);
}

static int submit_raw(struct drm_txda_queue_submit arg)
{
	return call(fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &arg);
}

static int submit_job(struct drm_txda_job job)
{
	return submit_jobs(fd, queue, &job, 1);
}

/* Nothing of what was refused may have come through. */
static void check_untouched(uint64_t submitted)
{
	struct drm_txda_queue_get_state now = must_state(fd, queue);

	check_equal(now.submitted, submitted);
	check_equal(now.state, 0);
}

TEST(submit_bad_call)
{
#define BAD_JOBS(member, value, error) BAD(struct drm_txda_queue_submit, member, value, error)
	static const struct bad bad[] = {
		BAD_JOBS(queue_id, 0, ENOENT),
		BAD_JOBS(queue_id, 1000, ENOENT),
		BAD_JOBS(queue_id, UINT32_MAX, ENOENT),
		BAD_JOBS(jobs.count, 0, EINVAL),
		BAD_JOBS(jobs.count, DRM_TXDA_MAX_JOBS + 1, E2BIG),
		BAD_JOBS(jobs.count, UINT32_MAX, E2BIG),
		BAD_JOBS(jobs.array, 0, EFAULT),
		BAD_JOBS(jobs.array, -(uint64_t)PAGE, EFAULT),
		BAD_JOBS(jobs.array, UINT64_MAX - 7, EFAULT),
		BAD_JOBS(jobs.stride, 4097, EINVAL),
		BAD_JOBS(jobs.stride, UINT32_MAX, EINVAL),
	};
	/* Of a newer client: what this kernel does not know must be zero. */
	struct {
		struct drm_txda_job job;
		uint64_t more[2];
	} newer[3] = {0};
	struct drm_txda_job job = {0};
	struct drm_txda_queue_submit good = {.jobs = array_of(&job, 1, sizeof(job))};

	setup_queue();
	good.queue_id = queue;
	must_refuse(fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &good, sizeof(good), bad, ARRAY_SIZE(bad));
	must_fault(fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &good, sizeof(good));
	for (int bit = 0; bit < 32; bit++) {
		good.flags = 1u << bit;
		must_fail(submit_raw(good), EINVAL);
	}
	good.flags = 0;
	for (good.jobs.stride = 0; good.jobs.stride < sizeof(job); good.jobs.stride += 4)
		must_fail(submit_raw(good), EINVAL);
	must_fail(submit_jobs(fd, queue, at_the_edge(sizeof(job)), 2), EFAULT);
	must_fail(submit_jobs(must_open(0), queue, &job, 1), ENOENT);
	good.jobs = array_of(newer, 3, sizeof(newer[0]));
	for (int i = 0; i < 6; i++) {
		newer[i / 2].more[i % 2] = 1ull << (i * 11);
		must_fail(submit_raw(good), E2BIG);
		newer[i / 2].more[i % 2] = 0;
	}
	check_untouched(0);
	must(submit_raw(good));
	check_untouched(3);
}

TEST(submit_bad_job)
{
	struct drm_txda_device_info info = {0};
	const uint64_t va = 1ull << 32;
	uint64_t va_end;

	setup_queue();
	must(query(fd, DRM_TXDA_QUERY_DEVICE, &info, sizeof(info)));
	va_end = 1ull << info.va_bits;
	for (int bit = 0; bit < 32; bit++)
		must_fail(submit_job((struct drm_txda_job){.flags = 1u << bit}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){.stream_va = va}), EINVAL);
	for (uint32_t odd = 1; odd < 8; odd++) {
		must_fail(submit_job((struct drm_txda_job){va + odd, 8, 0, {0}}), EINVAL);
		must_fail(submit_job((struct drm_txda_job){va, 8 + odd, 0, {0}}), EINVAL);
	}
	must_fail(submit_job((struct drm_txda_job){va, info.max_stream_bytes + 8, 0, {0}}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){va, UINT32_MAX - 7, 0, {0}}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){va_end, 8, 0, {0}}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){va_end - 8, 16, 0, {0}}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){UINT64_MAX - 7, 8, 0, {0}}), EINVAL);
	must_fail(submit_job((struct drm_txda_job){UINT64_MAX - 7, 16, 0, {0}}), EINVAL);
	check_untouched(0);
}

TEST(submit_bad_syncs)
{
	struct drm_txda_sync syncs[DRM_TXDA_MAX_SYNCS + 1] = {0};
	uint32_t obj, other_obj;
	int other;

	setup_queue();
	obj = must_syncobj(fd);
	for (size_t i = 0; i < ARRAY_SIZE(syncs); i++)
		syncs[i] = signals(obj);

#define BAD_SYNC(error, ...)                                                                       \
	do {                                                                                       \
		struct drm_txda_sync sync = {__VA_ARGS__};                                         \
		must_fail(submit(fd, queue, 0, 0, &sync, 1), error);                               \
	} while (0)
	for (int bit = 1; bit < 31; bit++)
		BAD_SYNC(EINVAL, .flags = 1u << bit, .handle = obj);
	BAD_SYNC(EINVAL, .flags = DRM_TXDA_SYNC_SIGNAL, .handle = obj, .point = 1);
	BAD_SYNC(EINVAL, .flags = DRM_TXDA_SYNC_WAIT, .handle = obj, .point = 1);
	BAD_SYNC(EINVAL, .flags = DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE, .handle = obj);
	BAD_SYNC(EINVAL, .flags = DRM_TXDA_SYNC_TIMELINE, .handle = obj);
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_SIGNAL, .handle = 0);
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_SIGNAL, .handle = obj + 1);
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_WAIT, .handle = UINT32_MAX);
	/* Nobody has submitted what these wait for. */
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_WAIT, .handle = obj);
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_TIMELINE, .handle = obj, .point = 1);
	other = must_open(0);
	other_obj = must_syncobj(other);
	other_obj = must_syncobj(other);
	BAD_SYNC(ENOENT, .flags = DRM_TXDA_SYNC_SIGNAL, .handle = other_obj);
#undef BAD_SYNC

	must_fail(submit(fd, queue, 0, 0, syncs, DRM_TXDA_MAX_SYNCS + 1), E2BIG);
	must_fail(submit(fd, queue, 0, 0, syncs, UINT32_MAX), E2BIG);
	must_fail(submit(fd, queue, 0, 0, at_the_edge(0), 1), EFAULT);
	for (uint32_t stride = 0; stride < sizeof(syncs[0]); stride += 4)
		must_fail(submit_job((struct drm_txda_job){.syncs = array_of(syncs, 1, stride)}),
			  EINVAL);
	must_fail(submit_job((struct drm_txda_job){.syncs = array_of(syncs, 1, 8192)}), EINVAL);
	check_untouched(0);
	/* The syncobj has no fence: nothing of that was installed. */
	must_fail(syncobj_wait(fd, obj, 0, 0), ETIME);
	must(submit(fd, queue, 0, 0, syncs, DRM_TXDA_MAX_SYNCS));
	must(fence_status(fd, obj));
}

TEST(submit_all_or_none)
{
	struct drm_txda_job jobs[8] = {0};
	struct drm_txda_sync sync;
	struct mem word;
	struct stream s;

	setup_queue();
	word = must_mem(fd, vm, 8);
	s = must_stream(fd, vm);
	put_signal(&s, word.va, 1);
	sync = signals(must_syncobj(fd));
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		jobs[i].stream_va = s.mem.va;
		jobs[i].stream_bytes = s.bytes;
	}
	jobs[0].syncs = array_of(&sync, 1, sizeof(sync));
	for (size_t bad = 1; bad < ARRAY_SIZE(jobs); bad++) {
		struct drm_txda_job good = jobs[bad];
		struct drm_txda_sync never = wait_for(must_syncobj(fd));

		jobs[bad].flags = 1;
		must_fail(submit_jobs(fd, queue, jobs, ARRAY_SIZE(jobs)), EINVAL);
		jobs[bad] = good;
		jobs[bad].syncs = array_of(&never, 1, sizeof(never));
		must_fail(submit_jobs(fd, queue, jobs, ARRAY_SIZE(jobs)), ENOENT);
		jobs[bad] = good;
	}
	check_untouched(0);
	must_fail(syncobj_wait(fd, sync.handle, 0, 0), ETIME);
	must(submit_wait(fd, queue, 0, 0));
	check_equal(*(volatile uint64_t *)word.cpu, 0);
	must(submit_jobs(fd, queue, jobs, ARRAY_SIZE(jobs)));
	must(fence_status(fd, sync.handle));
	check_equal(*(volatile uint64_t *)word.cpu, 1);
}

/* ---- Running -------------------------------------------------------------------------------- */

static void run_packets_on(uint32_t class)
{
	struct mem a, b, stamp;
	struct txda_pkt_timestamp pkt;
	struct stream s;
	uint32_t q;

	must(queue_create_as(fd, vm, class, DRM_TXDA_PRIORITY_NORMAL, 0, &q));
	a = must_mem_in(fd, vm, 3 * MIB, DRM_TXDA_PLACE_DEVICE);
	b = must_mem(fd, vm, 3 * MIB);
	stamp = must_mem(fd, vm, 16);
	s = must_stream(fd, vm);
	put_fill(&s, a.va, a.bytes, 0x12345678);
	put_copy(&s, b.va, a.va, b.bytes);
	pkt = (struct txda_pkt_timestamp){{TXDA_PKT_TIMESTAMP, 0, sizeof(pkt)}, stamp.va + 8};
	put_bytes(&s, &pkt, sizeof(pkt));
	put_signal(&s, stamp.va, 42);
	must(submit_wait(fd, q, s.mem.va, s.bytes));
	for (size_t i = 0; i < b.bytes / 4; i++)
		check_equal(((uint32_t *)b.cpu)[i], 0x12345678);
	check_equal(((uint64_t *)stamp.cpu)[0], 42);
	check(((uint64_t *)stamp.cpu)[1]);
}

TEST(run_packets)
{
	setup();
	run_packets_on(DRM_TXDA_QUEUE_COMPUTE);
	run_packets_on(DRM_TXDA_QUEUE_COPY);
}

/* Far more than the ring holds, each job checks that the one before it is done. */
TEST(run_in_order)
{
	struct drm_txda_job jobs[DRM_TXDA_MAX_JOBS];
	struct drm_txda_queue_get_state now;
	struct mem words, log;
	struct stream s[ARRAY_SIZE(jobs)];
	uint32_t done;
	struct drm_txda_sync sync;
	uint64_t total = 0;

	setup_queue();
	words = must_mem(fd, vm, PAGE);
	log = must_mem(fd, vm, ARRAY_SIZE(jobs) * 8);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		s[i] = must_stream(fd, vm);
		/* Word 0 must still be what the last job made it. */
		put_copy(&s[i], log.va + i * 8, words.va, 8);
		put_signal(&s[i], words.va, i + 1);
		jobs[i] =
			(struct drm_txda_job){.stream_va = s[i].mem.va, .stream_bytes = s[i].bytes};
	}
	done = must_syncobj(fd);
	sync = signals(done);
	jobs[ARRAY_SIZE(jobs) - 1].syncs = array_of(&sync, 1, sizeof(sync));
	for (int round = 0; round < 40; round++) {
		int err;

		while ((err = submit_jobs(fd, queue, jobs, ARRAY_SIZE(jobs))) == -EBUSY)
			must(syncobj_wait(fd, done, 0, PATIENCE));
		must(err);
		total += ARRAY_SIZE(jobs);
	}
	must(fence_status(fd, done));
	for (size_t i = 1; i < ARRAY_SIZE(jobs); i++)
		check_equal(((uint64_t *)log.cpu)[i], i);
	now = must_state(fd, queue);
	check_equal(now.state, 0);
	check_equal(now.submitted, total);
	check_equal(now.completed, total);
}

/* Jobs that were taken and are not done are limited; all of them run in the end. */
TEST(run_to_the_limit)
{
	struct drm_txda_job jobs[DRM_TXDA_MAX_JOBS] = {0};
	struct drm_txda_sync sync;
	uint64_t taken = 0;
	struct gate gate;
	int err = 0;

	setup_queue();
	gate = must_gate(fd, vm);
	sync = wait_for(gate.fence);
	must(submit(fd, queue, 0, 0, &sync, 1));
	for (int i = 0; !err && i < 1000; i++) {
		err = submit_jobs(fd, queue, jobs, ARRAY_SIZE(jobs));
		if (!err)
			taken += ARRAY_SIZE(jobs);
	}
	must_fail(err, EBUSY);
	check(taken >= 2 * ARRAY_SIZE(jobs));
	check_untouched(taken + 1);
	check_equal(must_state(fd, queue).completed, 0);

	gate_open(&gate);
	sync = signals(must_syncobj(fd));
	must(fence_status(fd, gate.fence));
	while ((err = submit(fd, queue, 0, 0, &sync, 1)) == -EBUSY)
		;
	must(err);
	must(fence_status(fd, sync.handle));
	check_equal(must_state(fd, queue).completed, taken + 2);
}

/* When a fence signals, what its job wrote is visible; on many queues at once. */
TEST(run_many_queues)
{
	uint32_t queues[12], done[12];
	struct mem out[12];

	setup();
	for (uint32_t i = 0; i < 12; i++) {
		must(queue_create_as(fd, vm, i & 1, i % 2, 0, &queues[i]));
		out[i] = must_mem(fd, vm, 64 * PAGE);
	}
	for (uint32_t round = 1; round <= 20; round++) {
		for (uint32_t i = 0; i < 12; i++) {
			struct stream s = must_stream(fd, vm);

			put_fill(&s, out[i].va, out[i].bytes, round << 8 | i);
			done[i] = must_submit(fd, queues[i], &s);
		}
		for (uint32_t i = 0; i < 12; i++) {
			must(fence_status(fd, done[i]));
			check(is_filled(out[i].cpu, out[i].bytes, round << 8 | i));
		}
	}
}

/* The parent's queue is the child's too: one file, two processes at once. */
TEST(run_two_processes)
{
	pid_t pid;

	setup_queue();
	pid = must_fork();
	for (int i = 0; i < 50; i++)
		must(submit_wait(fd, queue, nop.mem.va, nop.bytes));
	if (!pid)
		_exit(0);
	must_end(pid);
	check_untouched(100);
	check_equal(must_state(fd, queue).completed, 100);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
