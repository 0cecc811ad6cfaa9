// SPDX-License-Identifier: MIT
/*
 * VM_SET_GROUP and collectives among chips.
 */
#include "common.h"

#include <pthread.h>
#include <sys/syscall.h>

#define MAX_CHIPS 4

/* One member: a file of a chip of its own. */
struct member {
	int fd;
	uint32_t vm, queue;
	struct mem data, out;
};

static struct member m[MAX_CHIPS];

static struct member must_member(unsigned int chip)
{
	struct member member = {.fd = must_open(chip)};

	member.vm = must_vm(member.fd);
	member.queue = must_queue_for(member.fd, member.vm, 60000);
	member.data = must_mem_in(member.fd, member.vm, MIB, DRM_TXDA_PLACE_DEVICE);
	member.out = must_mem(member.fd, member.vm, MAX_CHIPS * MIB);
	return member;
}

static void setup(unsigned int chips)
{
	if (node_count() < chips)
		skip("there are fewer than %u chips", chips);
	for (unsigned int i = 0; i < chips; i++)
		m[i] = must_member(i);
}

static int set_group(int fd, uint32_t vm, uint32_t slot, const struct drm_txda_member *members,
		     uint32_t count)
{
	struct drm_txda_vm_set_group arg = {
		.vm_id = vm,
		.slot = slot,
		.members = array_of(members, count, sizeof(*members)),
	};

	return call(fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &arg);
}

static struct drm_txda_member member_of(const struct member *member)
{
	return (struct drm_txda_member){.fd = member->fd, .vm_id = member->vm};
}

/* The first @chips members, in order, as seen from member @by. */
static int join(unsigned int chips, unsigned int by, uint32_t slot)
{
	struct drm_txda_member members[MAX_CHIPS];

	for (unsigned int i = 0; i < chips; i++)
		members[i] = member_of(&m[i]);
	return set_group(m[by].fd, m[by].vm, slot, members, chips);
}

/* Each member submits one collective; the fences. */
static void start(unsigned int chips, uint16_t op, uint32_t slot, uint64_t count,
		  uint32_t *ret_done)
{
	for (unsigned int i = 0; i < chips; i++) {
		struct stream s = must_stream(m[i].fd, m[i].vm);

		put_collective(&s, op, m[i].out.va, m[i].data.va, count, TXDA_F32, slot);
		ret_done[i] = must_submit(m[i].fd, m[i].queue, &s);
	}
}

/* All of the group's members meet, and each gets what it should. */
static void must_meet(unsigned int chips, uint32_t slot)
{
	const uint64_t count = 5000;
	uint32_t done[MAX_CHIPS];
	float sum = 0;

	for (unsigned int i = 0; i < chips; i++) {
		for (uint64_t k = 0; k < count; k++)
			((float *)m[i].data.cpu)[k] = (float)(i + 1);
		sum += (float)(i + 1);
	}
	start(chips, TXDA_PKT_ALL_REDUCE, slot, count, done);
	for (unsigned int i = 0; i < chips; i++) {
		must(fence_status(m[i].fd, done[i]));
		for (uint64_t k = 0; k < count; k++)
			check(((float *)m[i].out.cpu)[k] == sum);
	}
	start(chips, TXDA_PKT_ALL_GATHER, slot, count, done);
	for (unsigned int i = 0; i < chips; i++) {
		must(fence_status(m[i].fd, done[i]));
		for (uint64_t k = 0; k < count * chips; k++)
			check(((float *)m[i].out.cpu)[k] == (float)(k / count + 1));
	}
}

/* Collectives of the slot fault on member @i: it is in no group. */
static void must_be_alone(unsigned int i, uint32_t slot)
{
	uint32_t queue = must_queue(m[i].fd, m[i].vm);
	struct stream s = must_stream(m[i].fd, m[i].vm);

	put_collective(&s, TXDA_PKT_ALL_REDUCE, m[i].out.va, m[i].data.va, 1, TXDA_F32, slot);
	must_fail(submit_wait(m[i].fd, queue, s.mem.va, s.bytes), EIO);
	check_equal(must_fault_of(m[i].fd, queue).code, TXDA_FAULT_COLLECTIVE);
	must(queue_destroy(m[i].fd, queue));
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static void meet(unsigned int chips)
{
	setup(chips);
	must(join(chips, 0, 0));
	must_meet(chips, 0);
	must(join(chips, chips - 1, 15));
	must_meet(chips, 15);
	must_meet(chips, 0);
	/* Again in the same slot, which takes the place of what was there. */
	must(join(chips, 0, 0));
	must_meet(chips, 0);
}

TEST(meet_two)
{
	meet(2);
}

TEST(meet_four)
{
	meet(4);
}

/* Two groups of two among four, and one of all at once. */
TEST(meet_in_parts)
{
	struct drm_txda_member pair[2];

	setup(4);
	must(join(4, 0, 1));
	must(join(2, 0, 0));
	pair[0] = member_of(&m[2]);
	pair[1] = member_of(&m[3]);
	must(set_group(m[2].fd, m[2].vm, 0, pair, 2));
	must_meet(4, 1);
	must_meet(2, 0);
	must_meet(4, 1);
}

/* A group of one meets itself. */
TEST(meet_alone)
{
	setup(1);
	must(join(1, 0, 3));
	must_meet(1, 3);
}

/* One leaves a collective of 64 GiB: no chip is reset for that, and nobody gets half a sum. */
TEST(leave_long)
{
	for (unsigned int chips = 1; chips <= 2; chips++) {
		struct member *last = &m[chips - 1];
		uint64_t before[2];
		uint32_t done[2];

		setup(2);
		must(join(chips, 0, 3));
		for (unsigned int i = 0; i < chips; i++) {
			struct stream s = must_long_fill(m[i].fd, m[i].vm);
			const struct txda_pkt_fill fill = *(const struct txda_pkt_fill *)s.mem.cpu;

			s.bytes = 0;
			put_collective(&s, TXDA_PKT_ALL_REDUCE, fill.dst, fill.dst, fill.bytes / 4,
				       TXDA_F32, 3);
			before[i] = chip_resets(m[i].fd);
			done[i] = must_submit(m[i].fd, m[i].queue, &s);
		}
		/* It may have begun. */
		usleep(200000);
		must(queue_destroy(last->fd, last->queue));
		must_fail(fence_status(last->fd, done[chips - 1]), ECANCELED);
		if (chips == 2)
			must_fail(fence_status(m[0].fd, done[0]), EIO);
		for (unsigned int i = 0; i < chips; i++)
			check_equal(chip_resets(m[i].fd), before[i]);
	}
}

/* ---- What is refused ------------------------------------------------------------------------ */

TEST(bad)
{
	struct drm_txda_vm_set_group arg = {0};
	struct drm_txda_member members[DRM_TXDA_MAX_GROUP + 1], twice[2];
	int null, pipes[2];

	setup(2);
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		members[i] = member_of(&m[i % 2]);
	arg = (struct drm_txda_vm_set_group){.vm_id = m[0].vm,
					     .members = array_of(members, 2, sizeof(members[0]))};

#define BAD(error, field, value)                                                                   \
	do {                                                                                       \
		struct drm_txda_vm_set_group bad_arg = arg;                                        \
		bad_arg.field = value;                                                             \
		must_fail(call(m[0].fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &bad_arg), error);            \
	} while (0)
	BAD(ENOENT, vm_id, 0);
	BAD(ENOENT, vm_id, m[0].vm + 1);
	BAD(ENOENT, vm_id, UINT32_MAX);
	BAD(EINVAL, slot, DRM_TXDA_GROUP_SLOTS);
	BAD(EINVAL, slot, UINT32_MAX);
	BAD(E2BIG, members.count, DRM_TXDA_MAX_GROUP + 1);
	BAD(E2BIG, members.count, UINT32_MAX);
	BAD(EINVAL, members.stride, 0);
	BAD(EINVAL, members.stride, 4);
	BAD(EINVAL, members.stride, 8192);
	BAD(EFAULT, members.array, 0);
	BAD(EFAULT, members.array, UINT64_MAX - 7);
#undef BAD
	must_fail(call(m[0].fd, DRM_IOCTL_TXDA_VM_SET_GROUP, NULL), EFAULT);

	/* Descriptors that are none, or none of a node. */
	check(!pipe(pipes));
	null = open("/dev/null", O_RDWR);
	members[1].fd = -1;
	must_fail(set_group(m[0].fd, m[0].vm, 0, members, 2), EBADF);
	members[1].fd = 12345;
	must_fail(set_group(m[0].fd, m[0].vm, 0, members, 2), EBADF);
	members[1].fd = pipes[0];
	must_fail(set_group(m[0].fd, m[0].vm, 0, members, 2), EINVAL);
	members[1].fd = null;
	must_fail(set_group(m[0].fd, m[0].vm, 0, members, 2), EINVAL);
	members[1] = member_of(&m[1]);
	members[1].vm_id++;
	must_fail(set_group(m[0].fd, m[0].vm, 0, members, 2), ENOENT);

	/* The caller's own is missing; one chip twice. */
	members[1] = member_of(&m[1]);
	must_fail(set_group(m[0].fd, m[0].vm, 0, members + 1, 1), EINVAL);
	twice[0] = twice[1] = member_of(&m[0]);
	must_fail(set_group(m[0].fd, m[0].vm, 0, twice, 2), EINVAL);
	twice[1].vm_id = must_vm(m[0].fd);
	must_fail(set_group(m[0].fd, m[0].vm, 0, twice, 2), EINVAL);

	/* None of these calls made a group. */
	must_be_alone(0, 0);
	must_be_alone(1, 0);
	/* Leaving without being a member succeeds. */
	must(set_group(m[0].fd, m[0].vm, 0, NULL, 0));
}

/* A group does not change while a member works, but it may join another one. */
TEST(busy)
{
	struct gate gate;

	setup(2);
	must(join(2, 0, 0));
	gate = must_gate(m[1].fd, m[1].vm);
	must(join(2, 0, 1));
	for (uint32_t slot = 0; slot < 2; slot++) {
		must_fail(join(2, 0, slot), EBUSY);
		must_fail(set_group(m[0].fd, m[0].vm, slot, NULL, 0), EBUSY);
	}
	gate_open(&gate);
	must(fence_status(m[1].fd, gate.fence));
	must_meet(2, 0);
	must_meet(2, 1);
	/* At once, since a job counts no more when its fence signals. */
	must(join(2, 0, 1));
	must_meet(2, 0);
	must_meet(2, 1);
	must(set_group(m[0].fd, m[0].vm, 0, NULL, 0));
}

/* ---- Dissolving ----------------------------------------------------------------------------- */

struct joining {
	int go; /* a pipe's end */
	int err;
};

static void *join_at_once(void *arg)
{
	struct joining *joining = arg;

	check(read(joining->go, &(char){0}, 1) == 1);
	joining->err = join(2, 0, 0);
	return NULL;
}

/* A bind that waits for member 0's word keeps the address space, not its place on the chip. */
static void must_pend_bind(uint32_t handle)
{
	struct drm_txda_sync sync = wait_for(handle);
	struct drm_txda_bind_op op = {
		.flags = DRM_TXDA_BIND_SYNC_ONLY,
		.syncs = array_of(&sync, 1, sizeof(sync)),
	};

	must(bind_async(m[1].fd, m[1].vm, &op, 1));
}

/* Spaces with a bind that waits count for the user, who may have half of the chip's. */
#define ABANDONED 24

/*
 * A member that is destroyed while its group is made: the group comes before that and goes with it,
 * or does not come. Its place on the chip may be another client's already.
 */
TEST(member_destroyed_at_once)
{
	uint32_t waits, joined = 0, refused = 0;
	struct gate gate;

	setup(2);
	must(queue_destroy(m[1].fd, m[1].queue));
	/* Not member 0's own space, which is to have no work. */
	gate = must_gate(m[0].fd, must_vm(m[0].fd));
	waits = must_share_syncobj(m[0].fd, gate.fence, m[1].fd);
	for (unsigned int i = 0; i < ABANDONED; i++) {
		struct joining joining;
		pthread_t thread;
		int pipes[2];

		m[1].vm = must_vm(m[1].fd);
		must_pend_bind(waits);
		check(!pipe(pipes));
		joining = (struct joining){.go = pipes[0]};
		check(!pthread_create(&thread, NULL, join_at_once, &joining));
		check(write(pipes[1], "x", 1) == 1);
		/* Now earlier, now later in the other's way. */
		for (int64_t until = now_ns() + i % 20 * 50000; now_ns() < until;)
			;
		must(vm_destroy(m[1].fd, m[1].vm));
		check(!pthread_join(thread, NULL));
		close(pipes[0]);
		close(pipes[1]);
		if (joining.err) {
			must_fail(joining.err, ENOENT);
			refused++;
			continue;
		}
		joined++;
		must_be_alone(0, 0);
	}
	printf("  %u joined, %u refused\n", joined, refused);
	gate_open(&gate);
}

TEST(leave)
{
	setup(2);
	must(join(2, 0, 2));
	must(join(2, 0, 3));
	must_meet(2, 2);
	must(set_group(m[1].fd, m[1].vm, 2, NULL, 0));
	must_be_alone(0, 2);
	must_be_alone(1, 2);
	must_meet(2, 3);
}

/* Member 0 waits in a collective for one that does not come. */
static uint32_t must_wait_in_vain(void)
{
	struct stream s = must_stream(m[0].fd, m[0].vm);
	uint32_t done;

	put_collective(&s, TXDA_PKT_ALL_REDUCE, m[0].out.va, m[0].data.va, 64, TXDA_F32, 0);
	done = must_submit(m[0].fd, m[0].queue, &s);
	must_fail(syncobj_wait(m[0].fd, done, 0, SECOND / 10), ETIME);
	return done;
}

/* Destroying a member ends its groups; jobs that wait for it end with an error. */
TEST(member_destroyed)
{
	uint32_t done;

	setup(2);
	must(join(2, 0, 0));
	must_meet(2, 0);
	done = must_wait_in_vain();
	must(queue_destroy(m[1].fd, m[1].queue));
	must(vm_destroy(m[1].fd, m[1].vm));
	must_fail(fence_status(m[0].fd, done), EIO);
	must_be_alone(0, 0);
}

/* The same for a process that is killed. */
TEST(member_killed)
{
	int pipes[2], pidfd;
	uint32_t done;
	pid_t pid;

	setup(1);
	if (node_count() < 2)
		skip("there are fewer than 2 chips");
	check(!pipe(pipes));
	pid = must_fork();
	if (!pid) {
		m[1] = must_member(1);
		check(write(pipes[1], &m[1], sizeof(m[1])) == sizeof(m[1]));
		pause();
	}
	check(read(pipes[0], &m[1], sizeof(m[1])) == sizeof(m[1]));
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	check(pidfd >= 0);
	m[1].fd = (int)syscall(SYS_pidfd_getfd, pidfd, m[1].fd, 0);
	if (m[1].fd < 0)
		skip("pidfd_getfd: %s", strerror_of(errno));
	must(join(2, 0, 0));
	close(m[1].fd);
	done = must_wait_in_vain();
	must_kill(pid);
	must_fail(fence_status(m[0].fd, done), EIO);
	must_be_alone(0, 0);
}

/* The files of one process, the group's in another: what counts is who has the files open. */
TEST(member_of_another_process)
{
	pid_t pid;

	setup(2);
	pid = must_fork();
	if (!pid) {
		must(join(2, 1, 0));
		must_meet(2, 0);
		_exit(0);
	}
	must_end(pid);
	/* They still are. */
	must_meet(2, 0);
}

/* A chip that was reset comes back with its groups; a fault ends nobody's group. */
TEST(survives_fault_and_reset)
{
	uint32_t queue, done;
	struct stream s;
	struct mem word;

	setup(2);
	must(join(2, 0, 0));
	s = must_stream(m[1].fd, m[1].vm);
	put_fill(&s, 0x7000, 64, 0);
	queue = must_queue(m[1].fd, m[1].vm);
	must_fail(submit_wait(m[1].fd, queue, s.mem.va, s.bytes), EIO);
	must(queue_destroy(m[1].fd, queue));
	must_meet(2, 0);

	s = must_block(m[1].fd, m[1].vm, &word);
	queue = must_queue_for(m[1].fd, m[1].vm, 400);
	vmhost("liveness-stop 1");
	done = must_submit(m[1].fd, queue, &s);
	must_fail(fence_status(m[1].fd, done), ETIME);
	must(queue_destroy(m[1].fd, queue));
	must(queue_destroy(m[1].fd, m[1].queue));
	m[1].queue = must_queue_for(m[1].fd, m[1].vm, 60000);
	check_equal(must_state(m[0].fd, m[0].queue).state, 0);
	must_meet(2, 0);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
