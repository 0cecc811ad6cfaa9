// SPDX-License-Identifier: MIT
#include <string.h>
#include <strings.h>

#include "number.h"
#include "set_error.h"
#include "spec.h"

int txda__parse_us(const char *word, unsigned *ret_us)
{
	uint64_t value, factor;

	if (!number_read(&word, UINT64_MAX, &value))
		return -EINVAL;
	if (!*word || !strcmp(word, "us"))
		factor = 1;
	else if (!strcmp(word, "ms"))
		factor = 1000;
	else if (!strcmp(word, "s"))
		factor = 1000000;
	else
		return -EINVAL;
	if (!txda__mul(value, factor, &value) || value > 60000000)
		return -EINVAL;
	*ret_us = (unsigned)value;
	return 0;
}

#define MAX_CORES 1024

static int parse_key(const char *key, const char *value, struct txda__cmodel_spec *spec, char *err,
		     size_t errlen)
{
	uint64_t number;

	if (!strcmp(key, "chips")) {
		if (!number_parse(value, TXDA__MAX_CHIPS, &number) || !number)
			return set_error(-EINVAL, err, errlen,
					 "chips=%s: must be a number from 1 to %d", value,
					 TXDA__MAX_CHIPS);
		spec->chips = (unsigned)number;
	} else if (!strcmp(key, "mem")) {
		if (!number_parse_size(value, 1ull << 40, &number) || number < (2ull << 20) ||
		    number % (2ull << 20))
			return set_error(-EINVAL, err, errlen,
					 "mem=%s: must be a multiple of 2M up to 1T, such as 512M",
					 value);
		spec->mem_bytes = number;
	} else if (!strcmp(key, "cores")) {
		if (!number_parse(value, MAX_CORES, &number))
			return set_error(-EINVAL, err, errlen,
					 "cores=%s: must be a number up to %d (0: the default)",
					 value, MAX_CORES);
		spec->cores = (unsigned)number;
		spec->cores_given = true;
	} else if (!strcmp(key, "pin")) {
		if (!number_parse(value, 1, &number))
			return set_error(-EINVAL, err, errlen, "pin=%s: must be 0 or 1", value);
		spec->pin = number;
	} else if (!strcmp(key, "numa")) {
		if (strcmp(value, "interleave") && strcmp(value, "local"))
			return set_error(-EINVAL, err, errlen,
					 "numa=%s: must be interleave or local", value);
		spec->numa_local = !strcmp(value, "local");
	} else if (!strcmp(key, "spin")) {
		if (txda__parse_us(value, &spec->spin_us))
			return set_error(-EINVAL, err, errlen,
					 "spin=%s: must be a time such as 100us or 1ms", value);
	} else if (!strcmp(key, "isa")) {
		if (!*value || strlen(value) >= sizeof(spec->isa))
			return set_error(
				-EINVAL, err, errlen,
				"isa=%s: must be auto, c, avx2, avxvnni, avx512, avx512bf16, amx, "
				"neon or neonbf16",
				value);
		strcpy(spec->isa, value);
	} else if (!strcmp(key, "faults")) {
		if (!*value || strlen(value) >= sizeof(spec->faults[0]))
			return set_error(-EINVAL, err, errlen,
					 "faults=%s: must be KIND[:chip=N][:after=OPS]", value);
		if (spec->n_faults == TXDA__MAX_FAULT_SPECS)
			return set_error(-EINVAL, err, errlen, "faults=%s: more than %d faults",
					 value, TXDA__MAX_FAULT_SPECS);
		strcpy(spec->faults[spec->n_faults++], value);
	} else {
		return set_error(-EINVAL, err, errlen,
				 "unknown key \"%s\"; known are chips, mem, cores, pin, numa, isa, "
				 "spin, faults",
				 key);
	}
	return 0;
}

/*
 * Copies the next word of a comma-separated list at *@pos to @word, truncated if too long, and
 * advances. False at the end.
 */
static bool next_word(const char **pos, char *word, size_t size)
{
	const char *s = *pos;
	size_t len, n;

	if (!s)
		return false;
	len = strcspn(s, ",");
	n = len < size ? len : size - 1;
	memcpy(word, s, n);
	word[n] = '\0';
	*pos = s[len] ? s + len + 1 : NULL;
	return true;
}

int txda__parse_cmodel(const char *text, struct txda__cmodel_spec *ret_spec, char *err,
		       size_t errlen)
{
	struct txda__cmodel_spec spec = {.chips = 1, .isa = "auto"};
	const char *pos = text && *text ? text : NULL;
	char word[160], *value;
	int r;

	while (next_word(&pos, word, sizeof(word))) {
		value = strchr(word, '=');
		if (!value)
			return set_error(-EINVAL, err, errlen,
					 "\"%s\" is not of the form key=value", word);
		*value++ = '\0';
		r = parse_key(word, value, &spec, err, errlen);
		if (r < 0)
			return r;
	}
	*ret_spec = spec;
	return 0;
}

int txda__parse_threads(const char *text, unsigned *ret_cores, char *err, size_t errlen)
{
	const char *pos = text && *text ? text : NULL;
	uint64_t number, first = 0;
	char word[32];

	while (next_word(&pos, word, sizeof(word))) {
		if (!number_parse(word, UINT32_MAX, &number) || !number)
			return set_error(
				-EINVAL, err, errlen,
				"OMP_NUM_THREADS=%.100s: must be a number of threads from 1", text);
		first = first ? first : number;
	}
	*ret_cores = first < MAX_CORES ? (unsigned)first : MAX_CORES;
	return 0;
}

static int find_chip(const char *word, const struct txda_device_info *info, unsigned count)
{
	uint64_t number;

	if (count && number_parse(word, count - 1, &number))
		return (int)number;
	for (unsigned i = 0; i < count; i++)
		if (*word && (!strcasecmp(word, info[i].serial) || !strcasecmp(word, info[i].bus) ||
			      !strcmp(word, info[i].node)))
			return (int)i;
	return -ENODEV;
}

bool txda__names_chip(const char *text, const struct txda_device_info *info)
{
	const char *pos = text && *text ? text : NULL;
	char word[80];

	while (next_word(&pos, word, sizeof(word)))
		if (find_chip(word, info, 1) == 0 && strcmp(word, "0"))
			return true;
	return false;
}

int txda__parse_visible(const char *text, const struct txda_device_info *info, unsigned count,
			unsigned *ret_chips, unsigned *ret_count, char *err, size_t errlen)
{
	unsigned chips[TXDA__MAX_CHIPS], n = 0;
	const char *pos = text && *text ? text : NULL;
	char word[80];
	int chip;

	if (count > TXDA__MAX_CHIPS)
		count = TXDA__MAX_CHIPS;
	if (!text)
		for (; n < count; n++)
			chips[n] = n;
	while (next_word(&pos, word, sizeof(word))) {
		chip = find_chip(word, info, count);
		if (chip < 0)
			return set_error(
				-EINVAL, err, errlen,
				"\"%s\" is not a chip; there are %u, by index from 0, serial, "
				"bus address or node",
				word, count);
		for (unsigned i = 0; i < n; i++)
			if (chips[i] == (unsigned)chip)
				return set_error(-EINVAL, err, errlen, "chip \"%s\" is named twice",
						 word);
		chips[n++] = (unsigned)chip;
	}
	memcpy(ret_chips, chips, n * sizeof(chips[0]));
	*ret_count = n;
	return 0;
}
