// SPDX-License-Identifier: MIT
/*
 * What comes after a chip that does not do as it is told: flushes that do not end are ended by a
 * chip reset, and a chip reset that does not end by one of the function. As root, in the rig.
 */
#include "args.h"

#define BYTES (4 * MIB)

/* Everybody's: it sees what the others leave behind. */
static struct client witness;
static uint64_t used_before;
static uint64_t resets_before;

static void setup(void)
{
	witness = must_client(0);
	resets_before = chip_resets(witness.fd);
	used_before = must_memory(witness.fd).device_used;
}

static void must_reset(void)
{
	must_become(chip_resets(witness.fd) != resets_before);
}

/* A mapping would keep the file open. */
static void end_client(struct client *c)
{
	munmap_mem(&c->stream.mem);
	close(c->fd);
}

/* The chip serves who comes, and what was set aside is free again. */
static void must_recover(void)
{
	struct client c;
	struct mem mem;

	must_reset();
	must_settle(witness.fd, used_before);
	c = must_client(0);
	mem = must_mem_in(c.fd, c.vm, MIB, DRM_TXDA_PLACE_DEVICE);
	must(dev_fill(&c, mem.va, mem.bytes, 0x0badf00d));
	check(is_filled(mem.cpu, mem.bytes, 0x0badf00d));
	munmap_mem(&mem);
	end_client(&c);
}

/* A client whose address space has a buffer at VA that the chip knows. */
static struct client must_victim(void)
{
	struct client c = must_client(0);
	uint32_t handle;

	must(bo_create(c.fd, BYTES, DRM_TXDA_PLACE_DEVICE, 0, 0, &handle));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES));
	must(dev_fill(&c, VA, BYTES, 1));
	must(gem_close(c.fd, handle));
	return c;
}

/* ---- Flushes -------------------------------------------------------------------------------- */

TEST(flush_of_unmap)
{
	struct client c;

	setup();
	c = must_victim();
	vmhost("stick-flush 0");
	must_fail(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, BYTES), EIO);
	must_reset();
	/* What its tables say is not what the client asked for; others are none the worse. */
	check_equal(vm_state(c.fd, c.vm), DRM_TXDA_VM_LOST);
	check_equal(vm_state(witness.fd, witness.vm), DRM_TXDA_VM_USABLE);
	must_fail(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, BYTES), EIO);
	check_equal(must_state(c.fd, c.queue).state, DRM_TXDA_QUEUE_INNOCENT);
	end_client(&c);
	must_recover();
}

TEST(flush_of_async_unmap)
{
	struct client c;
	uint32_t done;
	struct drm_txda_sync sync;
	struct drm_txda_bind_op op = {.flags = DRM_TXDA_BIND_UNMAP, .va = VA, .size = BYTES};

	setup();
	c = must_victim();
	done = must_syncobj(c.fd);
	sync = signals(done);
	op.syncs = array_of(&sync, 1, sizeof(sync));
	vmhost("stick-flush 0");
	must(bind_async(c.fd, c.vm, &op, 1));
	must_fail(fence_status(c.fd, done), EIO);
	must_reset();
	check_equal(vm_state(c.fd, c.vm), DRM_TXDA_VM_LOST);
	end_client(&c);
	must_recover();
}

TEST(flush_of_destroy)
{
	struct client c;

	setup();
	c = must_victim();
	must(queue_destroy(c.fd, c.queue));
	vmhost("stick-flush 0");
	must(vm_destroy(c.fd, c.vm));
	end_client(&c);
	must_recover();
}

TEST(flush_of_close)
{
	struct client c;

	setup();
	c = must_victim();
	vmhost("stick-flush 0");
	end_client(&c);
	must_recover();
}

/* ---- Resets --------------------------------------------------------------------------------- */

/* The command processor hangs, its reset does too; the function's reset takes DRAM with it. */
TEST(reset_of_chip)
{
	uint32_t hung, done;
	struct client c;

	setup();
	c = must_victim();
	hung = must_queue_for(c.fd, c.vm, 500);
	vmhost("stick-reset 0");
	vmhost("liveness-stop 0");
	put_fill(&c.stream, VA, PAGE, 1);
	done = must_submit(c.fd, hung, &c.stream);
	must_fail(fence_status(c.fd, done), ETIME);
	must_reset();
	check_equal(vm_state(c.fd, c.vm), DRM_TXDA_VM_LOST);
	check_equal(vm_state(witness.fd, witness.vm), DRM_TXDA_VM_LOST);
	check_equal(must_state(witness.fd, witness.queue).state, DRM_TXDA_QUEUE_INNOCENT);
	must_fail(submit_wait(c.fd, hung, c.stream.mem.va, c.stream.bytes), EIO);
	end_client(&c);
	must_recover();
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
