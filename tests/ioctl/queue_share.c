// SPDX-License-Identifier: MIT
/*
 * Queues that take turns on the hardware queues that are shared (DRM_TXDA_QUEUE_SHARE).
 *
 * A gate is a job that waits for a word of memory: with one on each shared hardware queue, all other
 * jobs of the class wait for their turn until the gates are opened. Gates need a job_timeout_ms that
 * is longer than the tests take; the tests marked with GATES do.
 */
#include "common.h"

#include <poll.h>

/* More than the chip has queues of a class. */
#define MANY	     40
#define JOBS	     8
#define SHORT_MS     400
#define MAX_SLOTS    8
#define WANT_GATE_MS 600000

static const uint32_t SHARE = DRM_TXDA_QUEUE_SHARE;
static struct drm_txda_queues_info info;

/* A file with an address space, a queue that shares, and a stream. */
struct sharer {
	int fd;
	uint32_t vm, queue;
	struct mem data;
	struct stream stream;
};

static int create(int fd, uint32_t vm, uint32_t class, uint32_t timeout_ms, uint32_t flags,
		  uint32_t *ret_queue)
{
	struct drm_txda_queue_create arg = {
		.vm_id = vm,
		.class_ = class,
		.priority = DRM_TXDA_PRIORITY_NORMAL,
		.flags = flags,
		.timeout_ms = timeout_ms,
	};
	int err = call(fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &arg);

	if (!err)
		*ret_queue = arg.id;
	return err;
}

static uint32_t must_queue_too(const struct sharer *s)
{
	uint32_t queue;

	must(create(s->fd, s->vm, DRM_TXDA_QUEUE_COMPUTE, 0, SHARE, &queue));
	return queue;
}

static struct sharer must_sharer_with(uint32_t class, uint32_t timeout_ms)
{
	struct sharer s = {.fd = must_open(0)};

	s.vm = must_vm(s.fd);
	must(create(s.fd, s.vm, class, timeout_ms, SHARE, &s.queue));
	s.data = must_mem(s.fd, s.vm, 16 * PAGE);
	s.stream = must_stream(s.fd, s.vm);
	return s;
}

static struct sharer must_sharer(void)
{
	return must_sharer_with(DRM_TXDA_QUEUE_COMPUTE, 0);
}

static void setup(void)
{
	int fd = must_open(0);

	must(query(fd, DRM_TXDA_QUERY_QUEUES, &info, sizeof(info)));
	check(info.compute_shared && info.compute_shared <= MAX_SLOTS && info.copy_shared);
	close(fd);
}

static void must_work(struct sharer *s)
{
	s->stream.bytes = 0;
	put_fill(&s->stream, s->data.va, PAGE, 0x5eed);
	must(submit_wait(s->fd, s->queue, s->stream.mem.va, s->stream.bytes));
	check_equal(*(volatile uint32_t *)s->data.cpu, 0x5eed);
}

/* ---- Gates ---------------------------------------------------------------------------------- */

static struct sharer gate[MAX_SLOTS];
static uint32_t gate_done[MAX_SLOTS];

static bool is_running(const struct sharer *s)
{
	return must_state(s->fd, s->queue).progress > 0;
}

/* Holds all shared compute queues. */
static void must_close_gates(void)
{
	if (info.default_timeout_ms < WANT_GATE_MS)
		skip("job_timeout_ms is below %u", WANT_GATE_MS);
	for (uint32_t i = 0; i < info.compute_shared; i++) {
		gate[i] = must_sharer();
		put_nop(&gate[i].stream);
		put_wait(&gate[i].stream, gate[i].data.va, 1);
		gate_done[i] = must_submit(gate[i].fd, gate[i].queue, &gate[i].stream);
	}
	for (uint32_t i = 0; i < info.compute_shared; i++)
		must_become(is_running(&gate[i]));
}

static void open_gates(void)
{
	for (uint32_t i = 0; i < info.compute_shared; i++)
		*(volatile uint64_t *)gate[i].data.cpu = 1;
	for (uint32_t i = 0; i < info.compute_shared; i++)
		must(fence_status(gate[i].fd, gate_done[i]));
}

/* Submits a job that waits for its turn. */
static uint32_t must_park(struct sharer *s)
{
	uint32_t done;

	s->stream.bytes = 0;
	put_fill(&s->stream, s->data.va, PAGE, 0x5eed);
	done = must_submit(s->fd, s->queue, &s->stream);
	must_fail(syncobj_wait(s->fd, done, 0, SECOND / 10), ETIME);
	check(!is_running(s));
	return done;
}

/* ---- QUEUE_CREATE --------------------------------------------------------------------------- */

TEST(create_flag)
{
	struct drm_txda_device_info device;
	struct drm_txda_member member = {0};
	struct drm_txda_vm_set_group group = {.members = array_of(&member, 1, sizeof(member))};
	struct sharer s;
	uint32_t queue;

	setup();
	s = must_sharer();
	must(query(s.fd, DRM_TXDA_QUERY_DEVICE, &device, sizeof(device)));
	check(device.features & DRM_TXDA_FEATURE_QUEUE_SHARE);
	for (int bit = 1; bit < 32; bit++)
		must_fail(create(s.fd, s.vm, 0, 0, SHARE | 1u << bit, &queue), EINVAL);
	must(create(s.fd, s.vm, DRM_TXDA_QUEUE_COPY, 1, SHARE, &queue));
	must(create(s.fd, s.vm, 0, info.default_timeout_ms, SHARE, &queue));
	/* One that has its queue for itself may wait for longer. */
	if (info.default_timeout_ms < info.max_timeout_ms) {
		must_fail(create(s.fd, s.vm, 0, info.default_timeout_ms + 1, SHARE, &queue),
			  EINVAL);
		must(create(s.fd, s.vm, 0, info.default_timeout_ms + 1, 0, &queue));
	}
	must_work(&s);

	/* A group's members would wait for its turn. */
	member = (struct drm_txda_member){.fd = s.fd, .vm_id = s.vm};
	group.vm_id = s.vm;
	must_fail(call(s.fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &group), EBUSY);
	member.vm_id = group.vm_id = must_vm(s.fd);
	must(create(s.fd, group.vm_id, 0, 0, SHARE, &queue));
	must_fail(call(s.fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &group), EBUSY);
	must(queue_destroy(s.fd, queue));
	must(call(s.fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &group));
	must_fail(create(s.fd, group.vm_id, 0, 0, SHARE, &queue), EBUSY);
	must(create(s.fd, group.vm_id, DRM_TXDA_QUEUE_COPY, 0, SHARE, &queue));
	must(create(s.fd, group.vm_id, 0, 0, 0, &queue));
}

/* A user may have many, but not without end; those of root have no such limit. */
TEST(create_limit)
{
	uint32_t made = 0, queue;
	int err = 0;

	setup();
	for (int file = 0; !err && file < 10; file++) {
		int fd = must_open(0);
		uint32_t vm = must_vm(fd);

		for (uint32_t i = 0; !err && i < info.max_per_client; i++) {
			err = create(fd, vm, DRM_TXDA_QUEUE_COPY, 0, SHARE, &queue);
			made += !err;
		}
		if (!err)
			must_fail(create(fd, vm, DRM_TXDA_QUEUE_COPY, 0, SHARE, &queue), ENOSPC);
	}
	if (geteuid()) {
		must_fail(err, EDQUOT);
		check_equal(made, 64);
	} else {
		must(err);
	}
}

/* ---- Turns ---------------------------------------------------------------------------------- */

/* More clients than the chip has queues, all at once: each job runs once, in its address space. */
TEST(many)
{
	static struct sharer s[MANY];
	static uint32_t done[MANY][JOBS];

	setup();
	check(info.compute + info.compute_shared < MANY);
	for (int i = 0; i < MANY; i++)
		s[i] = must_sharer_with(i % 2, 0);
	for (int job = 0; job < JOBS; job++) {
		for (int i = 0; i < MANY; i++) {
			s[i].stream.bytes = 0;
			s[i].stream.mem.va += job ? PAGE / JOBS : 0;
			s[i].stream.mem.cpu = (char *)s[i].stream.mem.cpu + (job ? PAGE / JOBS : 0);
			/* Each job has what the one before it left. */
			if (job)
				put_copy(&s[i].stream, s[i].data.va + job * PAGE,
					 s[i].data.va + (job - 1) * PAGE, PAGE);
			else
				put_fill(&s[i].stream, s[i].data.va, PAGE, 1000 + i);
			done[i][job] = must_submit(s[i].fd, s[i].queue, &s[i].stream);
		}
	}
	for (int i = 0; i < MANY; i++) {
		const uint32_t *word = s[i].data.cpu;

		for (int job = 0; job < JOBS; job++)
			must(fence_status(s[i].fd, done[i][job]));
		for (uint32_t at = 0; at < JOBS * PAGE / 4; at++)
			check_equal(word[at], 1000 + i);
		check_equal(must_state(s[i].fd, s[i].queue).completed, JOBS);
		check(must_state(s[i].fd, s[i].queue).progress >= JOBS);
		check_equal(must_state(s[i].fd, s[i].queue).state, 0);
	}
}

/*
 * GATES. A user with many queues full of jobs, and another with one: the other's jobs are done when
 * no more than a part of the first one's are. Its queues alone would be a part of eight to one.
 */
TEST(heavy)
{
	enum { QUEUES = 8, HEAVY_JOBS = 64, LIGHT_JOBS = 16, BYTES = 16 << 20 };
	struct sharer heavy, light;
	uint32_t queues[QUEUES], last = 0;
	uint64_t completed = 0;
	struct mem big;

	setup();
	must_close_gates();
	if (seteuid(20001))
		fail("seteuid: %s", strerror(errno));
	heavy = must_sharer();
	big = must_mem(heavy.fd, heavy.vm, BYTES);
	put_fill(&heavy.stream, big.va, BYTES, 1);
	for (int i = 0; i < QUEUES; i++) {
		queues[i] = must_queue_too(&heavy);
		for (int job = 0; job < HEAVY_JOBS; job++)
			must(submit(heavy.fd, queues[i], heavy.stream.mem.va, heavy.stream.bytes,
				    NULL, 0));
	}
	if (seteuid(0) || seteuid(20002))
		fail("seteuid: %s", strerror(errno));
	light = must_sharer();
	big = must_mem(light.fd, light.vm, BYTES);
	put_fill(&light.stream, big.va, BYTES, 1);
	for (int job = 0; job < LIGHT_JOBS; job++)
		last = must_submit(light.fd, light.queue, &light.stream);
	open_gates();
	must(fence_status(light.fd, last));
	for (int i = 0; i < QUEUES; i++)
		completed += must_state(heavy.fd, queues[i]).completed;
	printf("  %llu jobs of the heavy user beside %d\n", (unsigned long long)completed,
	       LIGHT_JOBS);
	fflush(stdout);
	check(completed < (uint64_t)QUEUES * LIGHT_JOBS);
}

/* GATES. What waits for its turn costs nothing, and can be destroyed and counted at any time. */
TEST(parked)
{
	struct sharer s[3], alone;
	uint32_t done[3];
	uint64_t ns = 1;
	char line[128];
	FILE *f;

	setup();
	must_close_gates();
	s[0] = must_sharer_with(DRM_TXDA_QUEUE_COMPUTE, 1);
	s[1] = must_sharer();
	s[2] = must_sharer();
	for (int i = 0; i < 3; i++)
		done[i] = must_park(&s[i]);
	snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", s[1].fd);
	f = fopen(line, "re");
	check(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "drm-engine-compute: %llu", (unsigned long long *)&ns);
	fclose(f);
	check_equal(ns, 0);

	must(queue_destroy(s[1].fd, s[1].queue));
	must_fail(fence_status(s[1].fd, done[1]), ECANCELED);
	/* A queue of its own does not wait. */
	alone = s[1];
	alone.queue = must_queue(alone.fd, alone.vm);
	must_work(&alone);

	/* The limit of the first was over long ago, had it run meanwhile. */
	must_fail(syncobj_wait(s[0].fd, done[0], 0, SECOND / 10), ETIME);
	check_equal(must_state(s[0].fd, s[0].queue).state, 0);
	open_gates();
	must(fence_status(s[2].fd, done[2]));
	must_work(&s[2]);
	check_equal(*(volatile uint32_t *)s[2].data.cpu, 0x5eed);
	/* One millisecond is little on a machine that is emulated. */
	if (fence_status(s[0].fd, done[0]))
		check_equal(must_state(s[0].fd, s[0].queue).state, DRM_TXDA_QUEUE_TIMEDOUT);
}

/* ---- Harm ----------------------------------------------------------------------------------- */

/* Jobs that hang and jobs that fault, on all shared queues at once, end nobody else's. */
TEST(harm)
{
	struct sharer bad[6], good[6];
	struct drm_txda_fault fault;
	uint32_t bad_done[6], good_done[6];

	setup();
	for (int i = 0; i < 6; i++) {
		bad[i] = must_sharer_with(DRM_TXDA_QUEUE_COMPUTE, i % 2 ? 0 : SHORT_MS);
		good[i] = must_sharer();
		if (i % 2)
			put_fill(&bad[i].stream, 0x10000 * (i + 1), PAGE, 1);
		else
			put_wait(&bad[i].stream, bad[i].data.va, 1);
		put_fill(&good[i].stream, good[i].data.va, PAGE, i);
		bad_done[i] = must_submit(bad[i].fd, bad[i].queue, &bad[i].stream);
		good_done[i] = must_submit(good[i].fd, good[i].queue, &good[i].stream);
	}
	for (int i = 0; i < 6; i++) {
		must(fence_status(good[i].fd, good_done[i]));
		check_equal(*(volatile uint32_t *)good[i].data.cpu, i);
		check_equal(must_state(good[i].fd, good[i].queue).state, 0);
		must_fail(fence_status(bad[i].fd, bad_done[i]), i % 2 ? EIO : ETIME);
		check_equal(must_state(bad[i].fd, bad[i].queue).state,
			    i % 2 ? DRM_TXDA_QUEUE_FATAL_FAULT : DRM_TXDA_QUEUE_TIMEDOUT);
		fault = must_fault_of(bad[i].fd, bad[i].queue);
		check_equal(fault.queue_id, bad[i].queue);
		check(i % 2 == 0 || fault.va == 0x10000u * (i + 1));
	}
	for (int i = 0; i < 6; i++)
		must_work(&good[i]);
}

/* Jobs that go on for many seconds, with progress, while somebody waits: their limit ends them. */
TEST(too_long)
{
	enum { PACKETS = 4096 };
	struct sharer busy[MAX_SLOTS], waits;
	uint32_t done[MAX_SLOTS], last, over = 0;
	struct mem to;

	setup();
	for (uint32_t i = 0; i < info.compute_shared; i++) {
		struct sharer *s = &busy[i];

		*s = must_sharer_with(DRM_TXDA_QUEUE_COMPUTE, SHORT_MS);
		to = must_mem_in(s->fd, s->vm, 32 * MIB, DRM_TXDA_PLACE_DEVICE);
		s->stream.mem = must_mem(s->fd, s->vm, PACKETS * sizeof(struct txda_pkt_fill));
		for (uint32_t packet = 0; packet < PACKETS; packet++)
			put_fill(&s->stream, to.va, to.bytes, packet);
		done[i] = must_submit(s->fd, s->queue, &s->stream);
	}
	for (uint32_t i = 0; i < info.compute_shared; i++) {
		while (!is_running(&busy[i]))
			usleep(1000);
		must_fail(syncobj_wait(busy[i].fd, done[i], 0, SECOND / 10), ETIME);
	}
	waits = must_sharer();
	put_nop(&waits.stream);
	last = must_submit(waits.fd, waits.queue, &waits.stream);
	must(fence_status(waits.fd, last));
	for (uint32_t i = 0; i < info.compute_shared; i++)
		over += must_state(busy[i].fd, busy[i].queue).state == DRM_TXDA_QUEUE_TIMEDOUT;
	check(over);
	must_work(&waits);
}

/* GATES, root. The chip as a whole is reset: everybody is innocent, and can begin anew. */
TEST(reset)
{
	struct sharer s[4];
	uint32_t done[4];

	setup();
	must_close_gates();
	for (int i = 0; i < 4; i++) {
		s[i] = must_sharer();
		done[i] = must_park(&s[i]);
	}
	vmhost("trip 0");
	for (int i = 0; i < 4; i++) {
		must_fail(fence_status(s[i].fd, done[i]), EIO);
		check_equal(must_state(s[i].fd, s[i].queue).state, DRM_TXDA_QUEUE_INNOCENT);
		check_equal(must_state(s[i].fd, s[i].queue).completed, 0);
	}
	for (uint32_t i = 0; i < info.compute_shared; i++)
		must_fail(fence_status(gate[i].fd, gate_done[i]), EIO);
	for (int i = 0; i < 4; i++) {
		s[i].queue = must_queue_too(&s[i]);
		must_work(&s[i]);
	}
}

/* GATES. A client is killed while it waits for its turn, another while it has it. */
TEST(killed)
{
	struct sharer good;
	uint32_t done;
	int ready[2];
	pid_t pid;
	char c;

	setup();
	must_close_gates();
	check(!pipe(ready));
	pid = must_fork();
	if (!pid) {
		struct sharer s = must_sharer();

		must_park(&s);
		check(write(ready[1], "p", 1) == 1);
		pause();
	}
	check(read(ready[0], &c, 1) == 1);
	good = must_sharer();
	done = must_park(&good);
	must_kill(pid);
	open_gates();
	must(fence_status(good.fd, done));

	pid = must_fork();
	if (!pid) {
		must_close_gates();
		check(write(ready[1], "g", 1) == 1);
		pause();
	}
	check(read(ready[0], &c, 1) == 1);
	good = must_sharer();
	done = must_park(&good);
	must_kill(pid);
	must(fence_status(good.fd, done));
	must_work(&good);
}

/* Queues are stopped while others get turns where they were: nobody else's job stops with them. */
TEST(stopped)
{
	enum { ROUNDS = 10, QUEUES = 4, BYTES = 2 << 20 };
	struct sharer bad[QUEUES], good[QUEUES];
	uint32_t done[QUEUES][JOBS];

	setup();
	for (int i = 0; i < QUEUES; i++) {
		struct mem big;

		/* It is over its limit as soon as it has a turn. */
		bad[i] = must_sharer_with(DRM_TXDA_QUEUE_COMPUTE, 1);
		good[i] = must_sharer();
		big = must_mem(bad[i].fd, bad[i].vm, BYTES);
		put_fill(&bad[i].stream, big.va, BYTES, 1);
		big = must_mem(good[i].fd, good[i].vm, BYTES);
		put_fill(&good[i].stream, big.va, BYTES, 1);
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int job = 0; job < JOBS; job++) {
			for (int i = 0; i < QUEUES; i++) {
				done[i][job] =
					must_submit(good[i].fd, good[i].queue, &good[i].stream);
				/* It may be dead by now. */
				submit(bad[i].fd, bad[i].queue, bad[i].stream.mem.va,
				       bad[i].stream.bytes, NULL, 0);
			}
		}
		for (int i = 0; i < QUEUES; i++) {
			must(queue_destroy(bad[i].fd, bad[i].queue));
			must(create(bad[i].fd, bad[i].vm, DRM_TXDA_QUEUE_COMPUTE, 1, SHARE,
				    &bad[i].queue));
		}
		for (int i = 0; i < QUEUES; i++) {
			for (int job = 0; job < JOBS; job++)
				must(fence_status(good[i].fd, done[i][job]));
			check_equal(must_state(good[i].fd, good[i].queue).state, 0);
		}
	}
}

/*
 * GATES, root. A user that had more than its part is remembered without any file, as long as others
 * want theirs.
 */
TEST(remembered)
{
	struct sharer s, after;
	uint32_t done, after_done;

	setup();
	must_close_gates();
	if (seteuid(20003))
		fail("seteuid: %s", strerror(errno));
	s = must_sharer();
	put_nop(&s.stream);
	put_wait(&s.stream, s.data.va, 1);
	done = must_submit(s.fd, s.queue, &s.stream);
	*(volatile uint64_t *)gate[0].data.cpu = 1;
	must_become(is_running(&s));
	if (seteuid(0) || seteuid(20004))
		fail("seteuid: %s", strerror(errno));
	after = must_sharer();
	put_nop(&after.stream);
	put_wait(&after.stream, after.data.va, 1);
	after_done = must_submit(after.fd, after.queue, &after.stream);
	must_fail(syncobj_wait(after.fd, after_done, 0, SECOND / 10), ETIME);
	check(!is_running(&after));
	if (seteuid(0))
		fail("seteuid: %s", strerror(errno));

	/* Its job ends while the other one waits, which has work for long. */
	*(volatile uint64_t *)s.data.cpu = 1;
	must(fence_status(s.fd, done));
	must_become(is_running(&after));
	munmap(s.data.cpu, s.data.bytes);
	munmap(s.stream.mem.cpu, s.stream.mem.bytes);
	close(s.fd);
	/* It is released in the background. */
	for (int i = 0; i < 50; i++) {
		usleep(10000);
		close(must_open(0));
		check(is_in_debugfs("users", "user 20003:"));
	}

	*(volatile uint64_t *)after.data.cpu = 1;
	must(fence_status(after.fd, after_done));
	open_gates();
	/* Not for good. */
	must_become(!close(must_open(0)) && !is_in_debugfs("users", "user 20003:"));
}

/* For a case that takes the chip away: jobs that wait for their turn end with its errors. */
static int stay_parked(void)
{
	struct pollfd files[4];
	struct sharer s[4];

	setup();
	must_close_gates();
	for (int i = 0; i < 4; i++) {
		s[i] = must_sharer();
		files[i] = (struct pollfd){
			.fd = must_sync_file(s[i].fd, must_park(&s[i])),
			.events = POLLIN,
		};
	}
	puts("parked");
	fflush(stdout);
	for (int i = 0; i < 4; i++) {
		int err;

		check(poll(&files[i], 1, PATIENCE / 1000000) == 1);
		err = sync_file_status(files[i].fd);
		if (err != -EIO && err != -ENODEV)
			fail("a parked job ended with %s", strerror_of(err));
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--park"))
		return stay_parked();
	return run_tests(argc, argv);
}
