// SPDX-License-Identifier: MIT
#include "fwlog.h"

#include <string.h>

_Static_assert(sizeof(struct txda_fw_log_entry) == 128, "entries do not cross pages");

void vu_fwlog_add(struct vu_fwlog *log, struct txda_fw_log_entry *ring, uint8_t level,
		  uint64_t time_ns, const char *text)
{
	uint64_t number = log->count + 1;
	struct txda_fw_log_entry *entry = &ring[log->count % VU_FWLOG_ENTRIES];
	size_t length = strnlen(text, sizeof(entry->text));

	__atomic_store_n(&entry->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	entry->time_ns = time_ns;
	entry->level = level;
	memcpy(entry->text, text, length);
	memset(entry->text + length, 0, sizeof(entry->text) - length);
	__atomic_store_n(&entry->number, number, __ATOMIC_RELEASE);
	log->count = number;
}
