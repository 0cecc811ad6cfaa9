/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rules for banning a user whose jobs reset the chip repeatedly from submitting more; user.h
 * applies them.
 *
 * A reset that a client's job causes costs all clients their queues. After TXDA_BAN_RESETS within
 * TXDA_BAN_WINDOW_NS the user is banned for a while: those of its files that caused one of these
 * resets, and those opened after the first of them, so that opening a new file does not evade the
 * ban. Files opened earlier that caused none continue. If one of them causes a reset while the user
 * is banned, the ban extends to all of the user's files.
 *
 * Times are in nanoseconds of one clock. The caller serialises.
 */
#ifndef TXDA_BAN_H
#define TXDA_BAN_H

#include <linux/types.h>

#define TXDA_BAN_RESETS	   3
#define TXDA_BAN_WINDOW_NS 60000000000ull

/**
 * struct txda_ban - Resets that a user's jobs have caused, and what follows from them.
 */
struct txda_ban {
	/** @reset_ns: Times of the last resets, 0: none; the oldest at @next. */
	u64 reset_ns[TXDA_BAN_RESETS];

	/** @client: The files that caused them. */
	u64 client[TXDA_BAN_RESETS];

	/** @next: Index of the oldest. */
	u32 next;

	/** @resets: How many there were. */
	u32 resets;

	/** @all: The ban is for all files. */
	bool all;

	/** @since_ns: Time of the first reset that led to the ban. */
	u64 since_ns;

	/** @until_ns: End of the ban, 0: there was none. */
	u64 until_ns;
};

/*
 * A reset at @now (above 0) caused by file @client. Returns true if the user is banned from now on,
 * or for longer than before: for @ban_ns. With @ban_ns 0 the reset is only counted.
 */
bool txda_ban_count(struct txda_ban *ban, u64 client, u64 now, u64 ban_ns);

/* For how much longer file @client, opened at @opened_ns, is banned; 0: it is not. */
u64 txda_ban_left(const struct txda_ban *ban, u64 client, u64 opened_ns, u64 now);

/* Whether it has no further effect, so that it need not be kept. */
bool txda_ban_is_over(const struct txda_ban *ban, u64 now);

#endif /* TXDA_BAN_H */
