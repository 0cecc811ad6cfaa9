/* SPDX-License-Identifier: MIT */
/* Unicode properties that the tokeniser needs. Pure. */
#ifndef TXDA_TEXT_UNICODE_H
#define TXDA_TEXT_UNICODE_H

#include "utf8.h"

#include <utf8proc.h>

/* White_Space. */
static inline bool unicode_is_space(uint32_t cp)
{
	if (cp < 0x80)
		return cp == ' ' || (cp >= 9 && cp <= 13);
	return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

/* Nd, Nl, No. */
static inline bool unicode_is_numeric(uint32_t cp)
{
	utf8proc_category_t category;

	if (cp < 0x80)
		return cp >= '0' && cp <= '9';
	category = utf8proc_category((utf8proc_int32_t)cp);
	return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
	       category == UTF8PROC_CATEGORY_NO;
}

/* ASCII punctuation and symbols, and the categories P. */
static inline bool unicode_is_punctuation(uint32_t cp)
{
	utf8proc_category_t category;

	if (cp < 0x80)
		return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') ||
		       (cp >= '[' && cp <= '`') || (cp >= '{' && cp <= '~');
	category = utf8proc_category((utf8proc_int32_t)cp);
	return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* \w of UTS 18: Alphabetic, marks, decimal numbers, connector punctuation, joiners. */
static inline bool unicode_is_word(uint32_t cp)
{
	if (cp < 0x80)
		return (cp >= '0' && cp <= '9') || cp == '_' ||
		       ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z');
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC: return true;
	default: break;
	}
	return cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
	       (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
	       (cp >= 0x1F170 && cp <= 0x1F189);
}

#endif
