// SPDX-License-Identifier: MIT
/* Which replica a request goes to. */

#include "unit.h"
#include "balance.h"

#define BLOCK  4
#define TOKENS 400

static int32_t prompt[TOKENS], other[TOKENS];

static int set_up(void **state)
{
	struct balance *b = NULL;

	for (int i = 0; i < TOKENS; i++) {
		prompt[i] = i;
		other[i] = 1000 + i;
	}
	if (balance_new(3, &b))
		return -1;
	*state = b;
	return 0;
}

static int tear_down(void **state)
{
	balance_free(*state);
	return 0;
}

/* Nobody knows anything: the least busy one, the first of equals. */
TEST(goes_to_the_least_busy)
{
	const uint32_t idle[3] = {0, 0, 0}, some[3] = {5, 3, 4};
	const uint32_t gone[3] = {BALANCE_BUSY, 9, BALANCE_BUSY},
		       all[3] = {BALANCE_BUSY, BALANCE_BUSY, BALANCE_BUSY};

	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 0);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, some), 1);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, gone), 1);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, all), -1);
	/* Less than a block, and nothing. */
	assert_int_equal(balance_choose(*state, prompt, BLOCK - 1, BLOCK, 1, some), 1);
	assert_int_equal(balance_choose(*state, prompt, 0, BLOCK, 1, some), 1);
	balance_free(NULL);
}

TEST(goes_where_the_beginning_is_known)
{
	const uint32_t idle[3] = {0, 0, 0};
	uint32_t loads[3] = {0, 0, 1};

	balance_note(*state, prompt, 40, BLOCK, 1, 2);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 2);
	assert_int_equal(balance_choose(*state, prompt, BLOCK, BLOCK, 1, idle), 2);
	assert_int_equal(balance_choose(*state, other, TOKENS, BLOCK, 1, idle), 0);
	/* Another user's prompt is another prompt. */
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 2, idle), 0);
	/* The longer beginning wins. */
	balance_note(*state, prompt, 200, BLOCK, 1, 1);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 1);
	/* What begins differently is unknown, however equal the rest is. */
	prompt[0] = 77;
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 0);
	prompt[0] = 0;
	/* One that knows it may be busier, but not by any number of requests. */
	loads[1] = 10;
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, loads), 1);
	loads[1] = 40;
	assert_int_not_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, loads), 1);
	loads[1] = BALANCE_BUSY;
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, loads), 2);
}

/* A replica that was loaded anew knows nothing. */
TEST(forgets)
{
	const uint32_t idle[3] = {0, 0, 0};

	balance_note(*state, prompt, TOKENS, BLOCK, 1, 1);
	balance_note(*state, prompt, TOKENS, BLOCK, 1, 2);
	balance_forget(*state, 1);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 2);
	balance_forget(*state, 2);
	assert_int_equal(balance_choose(*state, prompt, TOKENS, BLOCK, 1, idle), 0);
}

/* More is noted than can be remembered: the latest is known. */
TEST(forgets_the_oldest)
{
	const uint32_t idle[3] = {0, 0, 0};
	int32_t many[TOKENS];

	for (int k = 0; k < 3000; k++) {
		for (int i = 0; i < TOKENS; i++)
			many[i] = k * TOKENS + i;
		balance_note(*state, many, TOKENS, BLOCK, 1, 1);
	}
	assert_int_equal(balance_choose(*state, many, TOKENS, BLOCK, 1, idle), 1);
}

TEST_MAIN_EACH(set_up, tear_down)
