// SPDX-License-Identifier: MIT
/*
 * Filters of numbers, and `default`.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja_text.h"

static int float_to_int(struct jinja_render *r, double f, struct jinja_value *ret)
{
	if (isnan(f) || isinf(f))
		return jinja_fail(r, "cannot convert float %s to integer",
				  isnan(f) ? "NaN" : "infinity");
	f = trunc(f);
	if (f < -9223372036854775808.0 || f >= 9223372036854775808.0)
		return jinja_fail(r, "the number %g does not fit a 64-bit integer", f);
	*ret = jinja_int((int64_t)f);
	return 0;
}

static int filter_int(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	int64_t base = 10, i;
	double f;
	int rc = JINJA_BIND(r, args, "int", 0, arg, "default", "base");

	if (!rc)
		rc = jinja_arg_int(r, arg[1], "int", &base);
	if (rc)
		return rc;
	if (self.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, self);
	if (self.kind == JINJA_BIGINT) {
		*ret = self;
		return 0;
	}
	if (jinja_as_int(self, &i)) {
		*ret = jinja_int(i);
		return 0;
	}
	if (self.kind == JINJA_FLOAT)
		return float_to_int(r, self.real, ret);
	if (self.kind == JINJA_STRING) {
		unsigned int b = base >= 0 && base <= 36 ? (unsigned int)base : 1;

		if (!jinja_parse_int(self.string, b, &i)) {
			*ret = jinja_int(i);
			return 0;
		}
		if (!jinja_parse_float(self.string, &f) && !isnan(f) && !isinf(f))
			return float_to_int(r, f, ret);
	}
	*ret = arg[0].kind == JINJA_ABSENT ? jinja_int(0) : arg[0];
	return 0;
}

static int filter_float(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	double f;
	int rc = JINJA_BIND(r, args, "float", 0, arg, "default");

	if (rc)
		return rc;
	if (self.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, self);
	if (jinja_as_double(self, &f) ||
	    (self.kind == JINJA_STRING && !jinja_parse_float(self.string, &f)))
		*ret = jinja_float(f);
	else
		*ret = arg[0].kind == JINJA_ABSENT ? jinja_float(0) : arg[0];
	return 0;
}

static int filter_abs(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	int64_t i;
	double f;
	int rc = jinja_no_args(r, args, "abs");

	if (rc)
		return rc;
	if (jinja_as_int(self, &i)) {
		*ret = jinja_int(i);
		return i < 0 ? jinja_negate(r, *ret, ret) : 0;
	}
	if (jinja_as_double(self, &f)) {
		*ret = jinja_float(fabs(f));
		return 0;
	}
	if (self.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, self);
	return jinja_fail(r, "abs: a number is required, not '%s'", jinja_type_name(self));
}

/* Python's round(): to even, decided on the exact value, which printf does as well. */
static double round_common(double f, int64_t precision)
{
	char text[400];

	if (precision > 300 || isnan(f) || isinf(f))
		return f;
	if (precision >= 0) {
		snprintf(text, sizeof(text), "%.*f", (int)precision, f);
		return strtod(text, NULL);
	}
	if (precision < -308)
		return copysign(0.0, f);
	return rint(f / pow(10, (double)-precision)) * pow(10, (double)-precision);
}

static int filter_round(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	struct jinja_str *method = NULL;
	int64_t precision = 0;
	double f, scale;
	int rc = JINJA_BIND(r, args, "round", 0, arg, "precision", "method");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], "round", &precision);
	if (!rc)
		rc = jinja_arg_str(r, arg[1], "round", &method);
	if (rc)
		return rc;
	if (self.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, self);
	if (!jinja_as_double(self, &f))
		return jinja_fail(r, "round: a number is required, not '%s'",
				  jinja_type_name(self));
	if (!method || jinja_str_is(method, "common")) {
		/* an integer stays one, unless digits are cut off, as in Python */
		if (self.kind != JINJA_FLOAT && precision >= 0)
			*ret = self.kind == JINJA_BOOL ? jinja_int(self.boolean) : self;
		else if (self.kind != JINJA_FLOAT)
			return float_to_int(r, round_common(f, precision), ret);
		else
			*ret = jinja_float(round_common(f, precision));
		return 0;
	}
	if (!jinja_str_is(method, "ceil") && !jinja_str_is(method, "floor"))
		return jinja_fail(r, "round: method must be common, ceil or floor");
	scale = pow(10, (double)precision);
	f = f * scale;
	*ret = jinja_float((method->data[0] == 'c' ? ceil(f) : floor(f)) / scale);
	return 0;
}

static int filter_default(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	bool boolean = false;
	int rc = JINJA_BIND(r, args, "default", 0, arg, "default_value", "boolean");

	if (rc)
		return rc;
	jinja_arg_bool(arg[1], &boolean);
	if (self.kind != JINJA_UNDEFINED && (!boolean || jinja_truth(self)))
		*ret = self;
	else if (arg[0].kind == JINJA_ABSENT)
		return jinja_literal(r, "", ret);
	else
		*ret = arg[0];
	return 0;
}

const struct jinja_builtin jinja_number_filters[] = {
	{"int", filter_int},
	{"float", filter_float},
	{"abs", filter_abs},
	{"round", filter_round},
	{"default", filter_default},
	{"d", filter_default},
	{NULL, NULL},
};
