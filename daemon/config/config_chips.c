// SPDX-License-Identifier: MIT
/* --map and --device: which chips a model may use. */
#include <stdio.h>
#include <string.h>

#include "config_internal.h"
#include "number.h"

/* Reads an unsigned number up to @max; *@pos is advanced behind it. */
static bool read_number(const char **pos, unsigned max, unsigned *ret)
{
	uint64_t n;

	if (!number_read(pos, max, &n))
		return false;
	*ret = (unsigned)n;
	return true;
}

static bool parse_devices(const struct option_row *row, const char *text, void *member, char *err,
			  size_t errlen)
{
	struct config_devices devices = {0};

	for (const char *s = text;; s++) {
		unsigned chip;

		if (!read_number(&s, CONFIG_MAX_CHIPS - 1, &chip) || (*s && *s != ',')) {
			snprintf(err, errlen,
				 "--%s must be numbers of chips from 0 to %d, such as 0,1, not "
				 "%.200s",
				 row->name, CONFIG_MAX_CHIPS - 1, text);
			return false;
		}
		for (unsigned i = 0; i < devices.n; i++) {
			if (devices.chips[i] == chip) {
				snprintf(err, errlen, "--%s %.200s names chip %u twice", row->name,
					 text, chip);
				return false;
			}
		}
		devices.chips[devices.n++] = chip;
		if (!*s)
			break;
	}
	*(struct config_devices *)member = devices;
	return true;
}

/* "C4TP2", "C4TP2B1" */
static bool read_named(const char *s, struct config_map *map)
{
	unsigned chips;

	return *s++ == 'C' && read_number(&s, CONFIG_MAX_CHIPS, &chips) && *s++ == 'T' &&
	       *s++ == 'P' && read_number(&s, CONFIG_MAX_TP, &map->tp) &&
	       (*s != 'B' || (s++, read_number(&s, CONFIG_MAX_BATCH, &map->batch) && map->batch)) &&
	       !*s && map->tp && chips && chips % map->tp == 0;
}

/* "0,1;2,3": groups of equal size. */
static bool read_spelled(const char *s, struct config_map *map)
{
	unsigned chip, size = 0;

	while (read_number(&s, CONFIG_MAX_CHIPS - 1, &chip)) {
		size++;
		if (*s == ',') {
			s++;
			continue;
		}
		if ((map->tp && map->tp != size) || size > CONFIG_MAX_TP)
			return false;
		map->tp = size;
		size = 0;
		if (*s != ';')
			return !*s;
		s++;
	}
	return false;
}

static bool parse_map(const struct option_row *row, const char *text, void *member, char *err,
		      size_t errlen)
{
	struct config_map map = {0};

	if (strlen(text) < sizeof(map.text) &&
	    (!strcmp(text, "auto") || read_named(text, &map) || read_spelled(text, &map))) {
		if (strcmp(text, "auto") != 0)
			strcpy(map.text, text);
		*(struct config_map *)member = map;
		return true;
	}
	snprintf(
		err, errlen,
		"--%s must be auto, CxTPy such as C4TP2 (4 chips in groups of 2; C4TP2B1 for one "
		"sequence at a time), or groups of one size such as 0,1;2,3, with at most %d chips "
		"in a group, not %.200s",
		row->name, CONFIG_MAX_TP, text);
	return false;
}

static struct option_shown show_map(const struct option_row *row, const void *member)
{
	const struct config_map *map = member;

	(void)row;
	if (!*map->text)
		return (struct option_shown){0};
	return (struct option_shown){OPTION_SHOWS_TEXT, .text = map->text,
				     .len = strlen(map->text)};
}

const struct option_type config_devices_type = {
	.takes_value = true,
	.size = sizeof(struct config_devices),
	.parse = parse_devices,
};
const struct option_type config_map_type = {
	.takes_value = true,
	.size = sizeof(struct config_map),
	.parse = parse_map,
	.show = show_map,
};

bool config_settle_chips(struct config_model *m, char *err, size_t errlen)
{
	struct config_engine *e = &m->engine;

	if (m->map.tp && m->devices.n) {
		snprintf(err, errlen, "model %.200s: --map %s and --device exclude each other",
			 m->names[0], m->map.text);
	} else if (m->map.tp && e->tp_size && e->tp_size != m->map.tp) {
		snprintf(err, errlen,
			 "model %.200s: the groups of --map %s have %u chips, --tp-size is %u",
			 m->names[0], m->map.text, m->map.tp, e->tp_size);
	} else if (m->devices.n && e->tp_size && m->devices.n % e->tp_size) {
		snprintf(err, errlen,
			 "model %.200s: the %u chips of --device do not divide into groups of "
			 "--tp-size %u",
			 m->names[0], m->devices.n, e->tp_size);
	} else {
		if (m->map.tp)
			e->tp_size = m->map.tp;
		if (m->map.batch && !e->max_num_seqs)
			e->max_num_seqs = m->map.batch;
		return true;
	}
	return false;
}
