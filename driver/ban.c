// SPDX-License-Identifier: GPL-2.0
#include "ban.h"

#include <linux/compiler.h>

bool txda_ban_count(struct txda_ban *ban, u64 client, u64 now, u64 ban_ns)
{
	bool banned = now < ban->until_ns;
	u64 first;

	ban->resets++;
	ban->reset_ns[ban->next] = now;
	ban->client[ban->next] = client;
	ban->next = (ban->next + 1) % TXDA_BAN_RESETS;
	first = ban->reset_ns[ban->next];
	if (!ban_ns)
		return false;
	if (banned) {
		ban->all = true;
	} else {
		if (!first || now - first > TXDA_BAN_WINDOW_NS)
			return false;
		ban->all = false;
		ban->since_ns = first;
	}
	WRITE_ONCE(ban->until_ns, now + ban_ns);
	return true;
}

/* Whether the file caused one of the resets that led to the ban. */
static bool txda_ban_is_guilty(const struct txda_ban *ban, u64 client)
{
	u32 i;

	for (i = 0; i < TXDA_BAN_RESETS; i++) {
		if (ban->client[i] == client && ban->reset_ns[i] >= ban->since_ns)
			return true;
	}
	return false;
}

u64 txda_ban_left(const struct txda_ban *ban, u64 client, u64 opened_ns, u64 now)
{
	if (now >= ban->until_ns)
		return 0;
	if (!ban->all && opened_ns < ban->since_ns && !txda_ban_is_guilty(ban, client))
		return 0;
	return ban->until_ns - now;
}

bool txda_ban_is_over(const struct txda_ban *ban, u64 now)
{
	u32 last = (ban->next + TXDA_BAN_RESETS - 1) % TXDA_BAN_RESETS;

	return now >= ban->until_ns &&
	       (!ban->reset_ns[last] || now - ban->reset_ns[last] > TXDA_BAN_WINDOW_NS);
}
