// SPDX-License-Identifier: MIT
/*
 * Methods of dictionaries and lists, and the is…() methods of strings.
 */
#include <string.h>

#include "jinja_render.h"

static int dict_seq(struct jinja_render *r, const struct jinja_dict *dict, enum jinja_flavor flavor,
		    struct jinja_value *ret)
{
	struct jinja_seq *seq;
	size_t i;
	int rc = jinja_new_seq(r, flavor, dict->n, &seq);

	for (i = 0; !rc && i < dict->n; i++) {
		const struct jinja_entry *entry = &dict->entries[i];

		if (flavor == JINJA_ITEMS)
			rc = jinja_pair(r, entry->key, entry->value, &seq->items[i]);
		else
			seq->items[i] = flavor == JINJA_KEYS ? entry->key : entry->value;
	}
	if (rc)
		return rc;
	seq->n = dict->n;
	*ret = jinja_seq_value(seq);
	return jinja_charge(r, dict->n / 4);
}

#define VIEW(name, flavor)                                                                         \
	static int dict_##name(struct jinja_render *r, struct jinja_value self,                    \
			       const struct jinja_args *args, struct jinja_value *ret)             \
	{                                                                                          \
		int rc = jinja_no_args(r, args, #name);                                            \
                                                                                                   \
		return rc ? rc : dict_seq(r, self.dict, flavor, ret);                              \
	}

VIEW(items, JINJA_ITEMS)
VIEW(keys, JINJA_KEYS)
VIEW(values, JINJA_VALUES)

static int dict_get(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		    struct jinja_value *ret)
{
	struct jinja_value arg[2], *found;
	int rc = JINJA_BIND(r, args, "get", 1, arg, "key", "default");

	if (!rc)
		rc = jinja_dict_get(r, self.dict, arg[0], &found);
	if (rc)
		return rc;
	*ret = found ? *found : arg[1].kind == JINJA_ABSENT ? jinja_none() : arg[1];
	return 0;
}

/* Nothing can be changed, so a copy is the same object. */
static int copy(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "copy");

	if (!rc)
		*ret = self;
	return rc;
}

const struct jinja_builtin jinja_dict_methods[] = {
	{"items", dict_items}, {"keys", dict_keys}, {"values", dict_values},
	{"get", dict_get},     {"copy", copy},	    {NULL, NULL},
};

static int list_search(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, const char *what, int64_t *ret_first,
		       int64_t *ret_count)
{
	struct jinja_value arg[1];
	size_t i;
	int rc = JINJA_BIND(r, args, what, 1, arg, "value");

	*ret_first = -1;
	*ret_count = 0;
	for (i = 0; !rc && i < self.seq->n; i++) {
		bool equal;

		rc = jinja_equal(r, self.seq->items[i], arg[0], &equal);
		if (rc || !equal)
			continue;
		if (!(*ret_count)++)
			*ret_first = (int64_t)i;
	}
	return rc ? rc : jinja_charge(r, i / 4);
}

static int list_index(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	int64_t first, count;
	int rc = list_search(r, self, args, "index", &first, &count);

	if (!rc && first < 0)
		return jinja_fail(r, "index: the value is not in the list");
	if (!rc)
		*ret = jinja_int(first);
	return rc;
}

static int list_count(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	int64_t first, count;
	int rc = list_search(r, self, args, "count", &first, &count);

	if (!rc)
		*ret = jinja_int(count);
	return rc;
}

const struct jinja_builtin jinja_list_methods[] = {
	{"index", list_index},
	{"count", list_count},
	{"copy", copy},
	{NULL, NULL},
};

static bool is_alpha(enum jinja_char_class class)
{
	return class <= JINJA_CHAR_LETTER;
}

static bool alpha_char(uint32_t c)
{
	return is_alpha(jinja_classify(c));
}

static bool alnum_char(uint32_t c)
{
	enum jinja_char_class class = jinja_classify(c);

	return is_alpha(class) || class == JINJA_CHAR_DIGIT || class == JINJA_CHAR_NUMERIC;
}

static bool decimal_char(uint32_t c)
{
	return jinja_classify(c) == JINJA_CHAR_DIGIT;
}

/* besides decimals, superscripts and circled digits */
static bool digit_char(uint32_t c)
{
	return decimal_char(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
	       (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
	       (c >= 0x2460 && c <= 0x2468);
}

static bool numeric_char(uint32_t c)
{
	return decimal_char(c) || jinja_classify(c) == JINJA_CHAR_NUMERIC;
}

static bool ascii_char(uint32_t c)
{
	return c < 0x80;
}

/* Do all characters pass, and is there one unless @empty? */
static int all_chars(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     const char *what, bool (*passes)(uint32_t c), bool empty,
		     struct jinja_value *ret)
{
	const struct jinja_str *s = self.string;
	bool all = empty || s->length;
	size_t at = 0;
	int rc = jinja_no_args(r, args, what);

	while (!rc && all && at < s->length) {
		uint32_t c;

		at += jinja_utf8_decode(s->data + at, s->length - at, &c);
		all = passes(c);
	}
	if (!rc)
		*ret = jinja_bool(all);
	return rc ? rc : jinja_charge_bytes(r, at * 4);
}

#define ALL(name, passes, empty)                                                                   \
	static int name(struct jinja_render *r, struct jinja_value self,                           \
			const struct jinja_args *args, struct jinja_value *ret)                    \
	{                                                                                          \
		return all_chars(r, self, args, &#name[7], passes, empty, ret);                    \
	}

ALL(string_isalpha, alpha_char, false)
ALL(string_isalnum, alnum_char, false)
ALL(string_isdecimal, decimal_char, false)
ALL(string_isdigit, digit_char, false)
ALL(string_isnumeric, numeric_char, false)
ALL(string_isspace, jinja_is_space, false)
ALL(string_isascii, ascii_char, true)
ALL(string_isprintable, jinja_is_printable, true)

/* Is there a cased character, and none of the other case? */
static int is_case(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		   const char *what, bool upper, struct jinja_value *ret)
{
	const struct jinja_str *s = self.string;
	bool some = false, other = false;
	size_t at = 0;
	int rc = jinja_no_args(r, args, what);

	while (!rc && !other && at < s->length) {
		uint32_t c;

		at += jinja_utf8_decode(s->data + at, s->length - at, &c);
		if (!jinja_is_cased(c))
			continue;
		some = true;
		other = (upper ? jinja_to_upper(c) : jinja_to_lower(c)) != c;
	}
	if (!rc)
		*ret = jinja_bool(some && !other);
	return rc ? rc : jinja_charge_bytes(r, at * 4);
}

static int isupper_method(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	return is_case(r, self, args, "isupper", true, ret);
}

static int islower_method(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	return is_case(r, self, args, "islower", false, ret);
}

const struct jinja_builtin jinja_string_tests[] = {
	{"isalpha", string_isalpha},
	{"isalnum", string_isalnum},
	{"isdecimal", string_isdecimal},
	{"isdigit", string_isdigit},
	{"isnumeric", string_isnumeric},
	{"isspace", string_isspace},
	{"isascii", string_isascii},
	{"isprintable", string_isprintable},
	{"isupper", isupper_method},
	{"islower", islower_method},
	{NULL, NULL},
};
