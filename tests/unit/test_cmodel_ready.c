// SPDX-License-Identifier: MIT
/* Which queue has the next turn. */
#include "core/ready.h"
#include "unit.h"

#define US 1000ull
#define MS 1000000ull

/* Slots far apart: in the first, a middle and the last word. */
static const unsigned slots[] = {3, 200, CM_MAX_QUEUES - 1};
static struct cm_ready ready;
static uint64_t had[3];

static int setup(void **state)
{
	memset(&ready, 0, sizeof(ready));
	memset(had, 0, sizeof(had));
	for (unsigned i = 0; i < 3; i++)
		cm_ready_rank(&ready, slots[i], CM_PRIORITY_NORMAL);
	return 0;
}

/* Who has the next turn, which takes @ns[3] of it; CM_NO_SLOT: nobody. */
static unsigned turn(const uint64_t *ns)
{
	bool shared;
	unsigned slot = cm_ready_next(&ready, &shared);

	for (unsigned i = 0; i < 3; i++) {
		if (slot != slots[i])
			continue;
		had[i] += ns[i];
		if (shared)
			cm_ready_charge(&ready, slot, ns[i]);
		return i;
	}
	assert_int_equal(slot, CM_NO_SLOT);
	return CM_NO_SLOT;
}

TEST(is_round_robin)
{
	const uint64_t ns[3] = {0};

	assert_int_equal(turn(ns), CM_NO_SLOT);
	for (unsigned i = 0; i < 3; i++)
		cm_ready_activate(&ready, slots[i]);
	for (unsigned i = 0; i < 30; i++)
		assert_int_equal(turn(ns), i % 3);
	cm_ready_deactivate(&ready, slots[1]);
	for (unsigned i = 0; i < 30; i++)
		assert_int_equal(turn(ns), i % 2 * 2);
}

/* Short ops get as much time as long ones, and not only as many turns. */
TEST(shares_time)
{
	const uint64_t ns[3] = {5 * US, 800 * US, 90 * US};

	for (unsigned i = 0; i < 3; i++)
		cm_ready_activate(&ready, slots[i]);
	while (had[0] < 1000 * MS)
		turn(ns);
	assert_in_range(had[1], 998 * MS, 1002 * MS);
	assert_in_range(had[2], 998 * MS, 1002 * MS);
}

/* Time that nobody else wanted is not held against it, and time that it did not want is not saved. */
TEST(forgets_time_alone)
{
	const uint64_t ns[3] = {MS, MS, MS};

	cm_ready_activate(&ready, slots[0]);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(turn(ns), 0);
	cm_ready_activate(&ready, slots[1]);
	for (unsigned i = 0; i < 1000; i++)
		turn(ns);
	assert_in_range(had[1], 499 * MS, 501 * MS);
	cm_ready_activate(&ready, slots[2]);
	for (unsigned i = 0; i < 999; i++)
		turn(ns);
	assert_in_range(had[2], 332 * MS, 334 * MS);
}

TEST(weighs_priorities)
{
	const uint64_t ns[3] = {100 * US, 100 * US, 100 * US};

	cm_ready_rank(&ready, slots[0], CM_PRIORITY_LOW);
	cm_ready_rank(&ready, slots[2], CM_PRIORITY_HIGH);
	for (unsigned i = 0; i < 3; i++)
		cm_ready_activate(&ready, slots[i]);
	while (had[0] < 100 * MS)
		turn(ns);
	assert_in_range(had[1], 790 * MS, 810 * MS);
	assert_in_range(had[2], 6350 * MS, 6450 * MS);
}

/* A turn that took very long delays the next one for a limited time only. */
TEST(limits_lead)
{
	uint64_t ns[3] = {10000 * MS, MS, 0};

	cm_ready_activate(&ready, slots[0]);
	cm_ready_activate(&ready, slots[1]);
	assert_int_equal(turn(ns), 0);
	ns[0] = MS;
	for (uint64_t i = 0; i < CM_READY_LEAD_NS / MS; i++)
		assert_int_equal(turn(ns), 1);
	assert_int_equal(turn(ns), 0);
}

TEST_MAIN_EACH(setup, NULL)
