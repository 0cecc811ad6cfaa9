// SPDX-License-Identifier: MIT
/*
 * Tests (`x is …`), and the tables of filters and tests by name.
 */
#include <string.h>

#include "jinja_render.h"

static int kind_test(struct jinja_render *r, const struct jinja_args *args, const char *what,
		     bool result, struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, what);

	if (!rc)
		*ret = jinja_bool(result);
	return rc;
}

#define KIND_TEST(name, condition)                                                                 \
	static int test_##name(struct jinja_render *r, struct jinja_value self,                    \
			       const struct jinja_args *args, struct jinja_value *ret)             \
	{                                                                                          \
		return kind_test(r, args, #name, condition, ret);                                  \
	}

KIND_TEST(defined, self.kind != JINJA_UNDEFINED)
KIND_TEST(undefined, self.kind == JINJA_UNDEFINED)
KIND_TEST(none, self.kind == JINJA_NONE)
KIND_TEST(boolean, self.kind == JINJA_BOOL)
KIND_TEST(true, self.kind == JINJA_BOOL && self.boolean)
KIND_TEST(false, self.kind == JINJA_BOOL && !self.boolean)
KIND_TEST(integer, self.kind == JINJA_INT || self.kind == JINJA_BIGINT)
KIND_TEST(float, self.kind == JINJA_FLOAT)
KIND_TEST(number, jinja_is_number(self))
KIND_TEST(string, self.kind == JINJA_STRING)
KIND_TEST(mapping, self.kind == JINJA_DICT)
KIND_TEST(callable, self.kind == JINJA_UNDEFINED || self.kind == JINJA_CALLABLE ||
			    self.kind == JINJA_MACRO || self.kind == JINJA_LOOP ||
			    self.kind == JINJA_JOINER)
KIND_TEST(escaped, self.kind == JINJA_STRING && self.safe)
KIND_TEST(iterable, self.kind == JINJA_STRING || self.kind == JINJA_SEQ ||
			    self.kind == JINJA_DICT || self.kind == JINJA_UNDEFINED ||
			    self.kind == JINJA_LOOP)

/* Has a length and items: not generators nor the views of a dict. */
KIND_TEST(sequence, self.kind == JINJA_STRING || self.kind == JINJA_DICT ||
			    self.kind == JINJA_UNDEFINED ||
			    (self.kind == JINJA_SEQ &&
			     (self.seq->flavor <= JINJA_RANGE || self.seq->flavor == JINJA_GROUP)))

static int remainder_is(struct jinja_render *r, struct jinja_value self, struct jinja_value divisor,
			int64_t wanted, struct jinja_value *ret)
{
	struct jinja_value rest;
	bool equal;
	int rc = jinja_binary(r, TOKEN_MOD, self, divisor, &rest);

	if (!rc)
		rc = jinja_equal(r, rest, jinja_int(wanted), &equal);
	if (!rc)
		*ret = jinja_bool(equal);
	return rc;
}

static int test_odd(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		    struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "odd");

	return rc ? rc : remainder_is(r, self, jinja_int(2), 1, ret);
}

static int test_even(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "even");

	return rc ? rc : remainder_is(r, self, jinja_int(2), 0, ret);
}

static int test_divisibleby(struct jinja_render *r, struct jinja_value self,
			    const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	int rc = JINJA_BIND(r, args, "divisibleby", 1, arg, "num");

	return rc ? rc : remainder_is(r, self, arg[0], 0, ret);
}

static int case_test(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     const char *method, struct jinja_value *ret)
{
	struct jinja_value text = {.kind = JINJA_STRING};
	int rc = jinja_to_str(r, self, &text.string);

	if (rc)
		return rc;
	return jinja_find_builtin(jinja_string_tests, method, strlen(method))
		->call(r, text, args, ret);
}

static int test_lower(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	return case_test(r, self, args, "islower", ret);
}

static int test_upper(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	return case_test(r, self, args, "isupper", ret);
}

static int test_sameas(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	bool same;
	int rc = JINJA_BIND(r, args, "sameas", 1, arg, "other");

	if (rc)
		return rc;
	same = self.kind == arg[0].kind;
	if (same &&
	    (self.kind == JINJA_SEQ || self.kind == JINJA_DICT || self.kind == JINJA_NAMESPACE))
		same = self.dict == arg[0].dict; /* the same object */
	else if (same)
		rc = jinja_equal(r, self, arg[0], &same);
	if (!rc)
		*ret = jinja_bool(same);
	return rc;
}

static int compare_test(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, const char *what, enum jinja_compare_op op,
			struct jinja_value *ret)
{
	struct jinja_value arg[1];
	bool result;
	int rc = JINJA_BIND(r, args, what, 1, arg, "other");

	if (!rc)
		rc = jinja_compare(r, op, self, arg[0], &result);
	if (!rc)
		*ret = jinja_bool(result);
	return rc;
}

#define COMPARE_TEST(name, op)                                                                     \
	static int test_##name(struct jinja_render *r, struct jinja_value self,                    \
			       const struct jinja_args *args, struct jinja_value *ret)             \
	{                                                                                          \
		return compare_test(r, self, args, #name, op, ret);                                \
	}

COMPARE_TEST(eq, COMPARE_EQ)
COMPARE_TEST(ne, COMPARE_NE)
COMPARE_TEST(lt, COMPARE_LT)
COMPARE_TEST(le, COMPARE_LE)
COMPARE_TEST(gt, COMPARE_GT)
COMPARE_TEST(ge, COMPARE_GE)
COMPARE_TEST(in, COMPARE_IN)

static int name_test(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     const char *what,
		     const struct jinja_builtin *(*find)(const char *name, size_t length),
		     struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, what);

	if (!rc)
		*ret = jinja_bool(self.kind == JINJA_STRING &&
				  find(self.string->data, self.string->length));
	return rc;
}

static int test_filter(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	return name_test(r, self, args, "filter", jinja_find_filter, ret);
}

static int test_test(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     struct jinja_value *ret)
{
	return name_test(r, self, args, "test", jinja_find_test, ret);
}

const struct jinja_builtin jinja_tests[] = {
	{"defined", test_defined},
	{"undefined", test_undefined},
	{"none", test_none},
	{"boolean", test_boolean},
	{"true", test_true},
	{"false", test_false},
	{"integer", test_integer},
	{"float", test_float},
	{"number", test_number},
	{"string", test_string},
	{"mapping", test_mapping},
	{"sequence", test_sequence},
	{"iterable", test_iterable},
	{"callable", test_callable},
	{"escaped", test_escaped},
	{"sameas", test_sameas},
	{"odd", test_odd},
	{"even", test_even},
	{"divisibleby", test_divisibleby},
	{"lower", test_lower},
	{"upper", test_upper},
	{"filter", test_filter},
	{"test", test_test},
	{"in", test_in},
	{"eq", test_eq},
	{"equalto", test_eq},
	{"==", test_eq},
	{"ne", test_ne},
	{"!=", test_ne},
	{"lt", test_lt},
	{"lessthan", test_lt},
	{"<", test_lt},
	{"le", test_le},
	{"<=", test_le},
	{"gt", test_gt},
	{"greaterthan", test_gt},
	{">", test_gt},
	{"ge", test_ge},
	{">=", test_ge},
	{NULL, NULL},
};

const struct jinja_builtin *jinja_find_builtin(const struct jinja_builtin *table, const char *name,
					       size_t length)
{
	for (; table->name; table++)
		if (strlen(table->name) == length && !memcmp(table->name, name, length))
			return table;
	return NULL;
}

const struct jinja_builtin *jinja_find_filter(const char *name, size_t length)
{
	static const struct jinja_builtin *const tables[] = {
		jinja_string_filters,
		jinja_number_filters,
		jinja_sequence_filters,
		jinja_select_filters,
	};
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		const struct jinja_builtin *found = jinja_find_builtin(tables[i], name, length);

		if (found)
			return found;
	}
	return NULL;
}

const struct jinja_builtin *jinja_find_test(const char *name, size_t length)
{
	return jinja_find_builtin(jinja_tests, name, length);
}
