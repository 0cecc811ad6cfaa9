// SPDX-License-Identifier: MIT
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "set_error.h"
#include "topology.h"

/* Reads a number up to 9999; false if there is none. */
static bool read_number(const char **pos, unsigned *ret_value)
{
	uint64_t value;

	if (!number_read(pos, 9999, &value))
		return false;
	*ret_value = (unsigned)value;
	return true;
}

int txda__parse_chip_map(const char *text, unsigned n_devices, unsigned *ret_logical,
			 unsigned *ret_count, char *err, size_t errlen)
{
	unsigned logical[TXDA__MAX_CHIPS], n = 0, device;
	bool taken[TXDA__MAX_CHIPS] = {false};
	const char *s = text;

	if (!text)
		for (; n < n_devices && n < TXDA__MAX_CHIPS; n++)
			logical[n] = n;
	while (s) {
		const char *word = s;

		if (!read_number(&s, &device) || (*s && *s != ','))
			return set_error(-EINVAL, err, errlen,
					 "\"%.20s\" is not a list of chips such as 1,0", word);
		if (device >= n_devices || device >= TXDA__MAX_CHIPS)
			return set_error(-EINVAL, err, errlen,
					 "chip %u does not exist; this process sees %u", device,
					 n_devices);
		if (taken[device])
			return set_error(-EINVAL, err, errlen, "chip %u is named twice", device);
		taken[device] = true;
		logical[n++] = device;
		s = *s ? s + 1 : NULL;
	}
	memcpy(ret_logical, logical, n * sizeof(logical[0]));
	*ret_count = n;
	return 0;
}

static int parse_named(const char *map, unsigned n_chips, struct txda__topology *t, char *err,
		       size_t errlen)
{
	const char *s = map + 1;
	unsigned chips, tp, batch = 1;

	if (!read_number(&s, &chips) || strncmp(s, "TP", 2) || (s += 2, !read_number(&s, &tp)) ||
	    (*s == 'B' && (s++, !read_number(&s, &batch) || !batch)) || *s)
		return set_error(-EINVAL, err, errlen,
				 "\"%.40s\" is not a map of the form CxTPy, such as C4TP2", map);
	if (!tp || tp > TXDA_MAX_CHIPS_PER_GROUP)
		return set_error(-EINVAL, err, errlen, "%s: groups of %u chips; it must be 1 to %d",
				 map, tp, TXDA_MAX_CHIPS_PER_GROUP);
	if (!chips || chips % tp)
		return set_error(-EINVAL, err, errlen,
				 "%s: %u chips do not divide into groups of %u", map, chips, tp);
	if (chips > n_chips || chips > TXDA__MAX_CHIPS)
		return set_error(-EINVAL, err, errlen, "%s needs %u chips; there are %u", map,
				 chips, n_chips);
	for (unsigned i = 0; i < chips; i++)
		t->chip[i / tp][i % tp] = i;
	t->n_groups = chips / tp;
	for (unsigned g = 0; g < t->n_groups; g++)
		t->size[g] = tp;
	return 0;
}

static int parse_spelled(const char *map, unsigned n_chips, struct txda__topology *t, char *err,
			 size_t errlen)
{
	bool taken[TXDA__MAX_CHIPS] = {false};
	const char *s = map;
	unsigned chip, group = 0;

	for (;;) {
		const char *word = s;

		if (!read_number(&s, &chip) || (*s && *s != ',' && *s != ';'))
			return set_error(-EINVAL, err, errlen,
					 "\"%.40s\" is not a map; examples: C4TP2 or 0,1;2,3",
					 word);
		if (chip >= n_chips || chip >= TXDA__MAX_CHIPS)
			return set_error(-EINVAL, err, errlen,
					 "%.40s: chip %u does not exist; there are %u", map, chip,
					 n_chips);
		if (taken[chip])
			return set_error(-EINVAL, err, errlen, "%.40s: chip %u is named twice", map,
					 chip);
		if (t->size[group] == TXDA_MAX_CHIPS_PER_GROUP)
			return set_error(-EINVAL, err, errlen,
					 "%.40s: group %u has more than %d chips", map, group,
					 TXDA_MAX_CHIPS_PER_GROUP);
		taken[chip] = true;
		t->chip[group][t->size[group]++] = chip;
		if (!*s)
			break;
		if (*s++ == ';')
			group++; /* less than the number of chips, since none is listed twice */
	}
	t->n_groups = group + 1;
	return 0;
}

int txda__parse_map(const char *map, unsigned n_chips, struct txda__topology *ret_topology,
		    char *err, size_t errlen)
{
	struct txda__topology t = {0};
	int r;

	if (*map == 'C')
		r = parse_named(map, n_chips, &t, err, errlen);
	else
		r = parse_spelled(map, n_chips, &t, err, errlen);
	if (r >= 0)
		*ret_topology = t;
	return r;
}

void txda__auto_map(unsigned n_chips, unsigned tp,
		    unsigned (*distance)(void *arg, unsigned a, unsigned b), void *arg,
		    struct txda__topology *ret_topology)
{
	bool taken[TXDA__MAX_CHIPS] = {false};
	struct txda__topology t = {0};

	if (n_chips > TXDA__MAX_CHIPS)
		n_chips = TXDA__MAX_CHIPS;
	for (t.n_groups = 0; (t.n_groups + 1) * tp <= n_chips; t.n_groups++) {
		unsigned *chip = t.chip[t.n_groups];

		for (unsigned rank = 0; rank < tp; rank++) {
			unsigned best = UINT_MAX, best_hops = UINT_MAX;

			for (unsigned c = 0; c < n_chips; c++) {
				unsigned hops = 0;

				if (taken[c])
					continue;
				for (unsigned i = 0; i < rank; i++)
					hops += distance(arg, chip[i], c);
				if (hops < best_hops) {
					best = c;
					best_hops = hops;
				}
			}
			chip[rank] = best;
			taken[best] = true;
		}
		t.size[t.n_groups] = tp;
	}
	*ret_topology = t;
}
