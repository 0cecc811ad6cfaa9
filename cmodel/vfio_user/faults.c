// SPDX-License-Identifier: MIT
#include "faults.h"

#include <string.h>

void vu_faults_push(struct vu_faults *f, const struct txda_fault *record)
{
	uint64_t bit = 1ull << record->queue % TXDA_MAX_QUEUES;

	if (f->waiting & bit)
		return;
	f->waiting |= bit;
	f->record[(f->first + f->count) % TXDA_MAX_QUEUES] = *record;
	f->count++;
}

void vu_faults_ack(struct vu_faults *f)
{
	if (!f->count)
		return;
	f->waiting &= ~(1ull << f->record[f->first].queue % TXDA_MAX_QUEUES);
	f->first = (f->first + 1) % TXDA_MAX_QUEUES;
	f->count--;
}

uint32_t vu_faults_word(const struct vu_faults *f, unsigned i)
{
	uint32_t word;

	if (!f->count || i >= TXDA_FAULT_RECORD_BYTES / 4)
		return 0;
	memcpy(&word, (const uint8_t *)&f->record[f->first] + i * 4, sizeof(word));
	return word;
}
