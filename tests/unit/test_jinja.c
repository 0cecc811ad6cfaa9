// SPDX-License-Identifier: MIT
/*
 * The template interpreter: each feature, each kind of error, each limit, many threads at once, and
 * all cases of the conformance data where it is present.
 */
#include "jinja.h"
#include "json_strict.h"
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What most cases see. */
static const char variables[] =
	"{\"l\": [3, 1, 2], \"s\": \"Hello w\\u00f6rld\", "
	"\"d\": {\"b\": 1, \"a\": {\"x\": [1, 2]}}, \"f\": 2.5, \"one\": 1.0, \"n\": null, "
	"\"t\": true, \"e\": [], \"i\": 7, \"big\": 12345678901234567890, \"m\": ["
	"{\"role\": \"user\", \"content\": \"Hi\"},"
	" {\"role\": \"assistant\", \"content\": null, \"k\": 2},"
	" {\"role\": \"User\", \"content\": \"Ho\", \"k\": 1}]}";

static const struct tm noon = {
	.tm_year = 125, .tm_mon = 6, .tm_mday = 10, .tm_hour = 12, .tm_wday = 4, .tm_yday = 190};

static cJSON *parse_context(const char *text)
{
	char err[200];
	cJSON *json = txda_json_parse(text, strlen(text), err, sizeof(err));

	if (!json)
		fail_msg("%s: %s", text, err);
	assert_int_equal(txda_template_mark_numbers(json, text, strlen(text)), 0);
	return json;
}

static int render(const char *source, size_t length, const struct txda_template_limits *limits,
		  struct txda_template_error *error, char **ret)
{
	struct txda_template_options options = {.now = &noon, .limits = limits};
	struct txda_template *template;
	cJSON *context;
	int rc = txda_template_parse(source, length, error, &template);

	if (rc)
		return rc;
	context = parse_context(variables);
	rc = txda_template_render(template, context, &options, error, ret, NULL);
	cJSON_Delete(context);
	txda_template_free(template);
	return rc;
}

static void expect(const char *source, const char *expected)
{
	struct txda_template_error error;
	char *text;

	if (render(source, strlen(source), NULL, &error, &text))
		fail_msg("%s: line %u: %s", source, error.line, error.message);
	if (strcmp(text, expected))
		fail_msg("%s\n  gives    %s\n  expected %s", source, text, expected);
	free(text);
}

static void expect_error(const char *source, enum txda_template_error_kind kind, unsigned int line,
			 const char *part)
{
	struct txda_template_error error;
	char *text;
	int rc = render(source, strlen(source), NULL, &error, &text);

	if (!rc)
		fail_msg("%s: rendered to %s", source, text);
	if (error.kind != kind || !strstr(error.message, part) || (line && error.line != line))
		fail_msg("%s: kind %d, line %u: %s", source, error.kind, error.line, error.message);
	assert_int_equal(rc, kind == TXDA_TEMPLATE_RAISED  ? -EPROTO
			     : kind == TXDA_TEMPLATE_LIMIT ? -E2BIG
							   : -EINVAL);
}

struct expectation {
	const char *source;
	const char *expected;
};

static void expect_all(const struct expectation *e)
{
	for (; e->source; e++)
		expect(e->source, e->expected);
}

static void test_whitespace(void **state)
{
	static const struct expectation cases[] = {
		{"a\n", "a"},
		{"a\n\n", "a\n"},
		{"a\r\nb\rc", "a\nb\nc"},
		{"{% if t %}\n  x\n{% endif %}\ny", "  x\ny"},
		{"a\n   {% if t %}b{% endif %}\n", "a\nb"},
		{"a\n  {{ 1 }}\n  {# c #}\nb", "a\n  1\nb"},
		{"a \n {{- 1 -}} \n b", "a1b"},
		{"a\n  {%+ if t %}b{% endif +%}\nc", "a\n  b\nc"},
		{"a  {#- c -#}  b", "ab"},
		{"{% raw %}{{ a }}{% if %}{% endraw %}", "{{ a }}{% if %}"},
		{" {%- raw -%} x {%- endraw -%} y", "xy"},
		{"{{ '%}' }}{{ \"}}\" }}{{ {'a': {'b': 1}}}}", "%}}}{'a': {'b': 1}}"},
		{"{{-1}}{{- -1 }}", "1-1"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
}

static void test_expressions(void **state)
{
	static const struct expectation cases[] = {
		{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }}",
		 "3 -4 2 -2 3.5 2.0"},
		{"{{ -2.5 // -3.5 }} {{ 2.5 // 3.5 }} {{ 0.0 // -3.5 }} {{ 1e16 // 3 }} {{ 1e16 // "
		 "-3.5 }}",
		 "0.0 0.0 -0.0 3333333333333333.0 -2857142857142858.0"},
		{"{{ 2 ** 3 ** 2 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 7.5 // -2 }} {{ -7.5 % 2 }}",
		 "64 0.5 4 -4.0 0.5"},
		/* As many bits as it takes. */
		{"{{ 2 ** 64 }} {{ -9223372036854775807 - 2 }} {{ -9223372036854775808 // -1 }}",
		 "18446744073709551616 -9223372036854775809 9223372036854775808"},
		{"{{ 18446744073709551616 - 2 ** 64 }} {{ -(2 ** 64) }} {{ (-(2 ** 64))|abs }} {{ "
		 "1e20|int }}",
		 "0 -18446744073709551616 18446744073709551616 100000000000000000000"},
		{"{{ 10 ** 30 // 7 }} {{ 10 ** 30 % 7 }} {{ -(10 ** 30) // 7 }} {{ -(10 ** 30) % 7 "
		 "}}",
		 "142857142857142857142857142857 1 -142857142857142857142857142858 6"},
		{"{{ 7 ** 60 % 10 ** 20 }} {{ 10 ** 40 // 10 ** 20 }} {{ 10 ** 30 / 10 ** 10 }}",
		 "16501772434524836001 100000000000000000000 1e+20"},
		{"{{ 10 ** 20 < 10 ** 20 + 1 }} {{ -(10 ** 20) < 1 }} {{ 10 ** 20 == "
		 "100000000000000000000 }}",
		 "True True True"},
		{"{{ (-1) ** (2 ** 70 + 1) }} {{ 1 ** 2 ** 70 }} {{ 0 ** 2 ** 70 }} {{ true + 2 ** "
		 "64 }}",
		 "-1 1 0 18446744073709551617"},
		{"{{ (2 ** 64)|tojson }} {{ [2 ** 64] }} {{ {2 ** 64: 1}[18446744073709551616] }}",
		 "18446744073709551616 [18446744073709551616] 1"},
		{"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }}", "True False True"},
		{"{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }}{{ 1 ~ 2 * 3 }}", "a1NoneTrue1.516"},
		{"{{ 'b' in 'abc' }}{{ 'k' not in d }}{{ 3 in l }}{{ 'b' in d }}{{ nope in l }}",
		 "TrueTrueTrueTrueFalse"},
		{"{{ '' or 'x' }}{{ 0 and 1 }}{{ not e }}{{ none or false }}", "x0TrueFalse"},
		{"{{ 'a' if n else 'b' if not t else 'c' }}{{ 'd' if n }}", "c"},
		{"{{ l[::-1] }}{{ l[5:1:-2] }}{{ l[-100:100] }}{{ s[-3:] }}{{ s[7] }}{{ s[::-4] "
		 "}}",
		 "[2, 1, 3][2][3, 1, 2]rld\u00f6dwl"},
		{"{{ d.a.x.0 }}{{ d['a']['x'][-1] }}{{ l.1 }}{{ s.0 }}", "121H"},
		{"{{ {'a': [1, {'b': 'c'}], 2: (1,), none: 1.0} }}{{ () }}{{ (1, 2) }}",
		 "{'a': [1, {'b': 'c'}], 2: (1,), None: 1.0}()(1, 2)"},
		{"{{ {1: 'a', 1.0: 'b', true: 'c'} }}", "{1: 'c'}"},
		{"{{ 'a' 'b' }}{{ \"\\x41\\u00e9\\n\\103\\q\\ud83d\\ude00\" }}",
		 "abA\u00e9\nC\\q\U0001f600"},
		{"{{ 0x1F }} {{ 0b101 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 0.1 + "
		 "0.2 }}",
		 "31 5 1000 1000.0 1.5e-07 1e+16 0.30000000000000004"},
		{"{{ [1] * 2 + [3] }}{{ 3 * 'ab' }}{{ (1,) + (2,) }}", "[1, 1, 3]ababab(1, 2)"},
		{"{{ [1, 2] < [1, 3] }}{{ 'a' < 'b' }}{{ [1] == (1,) }}{{ {'a': 1} == {'a': "
		 "1.0} }}",
		 "TrueTrueFalseTrue"},
		{"{{ range(*[1, 4])|list }}{{ dict(**{'a': 1}) }}", "[1, 2, 3]{'a': 1}"},
		{"{{ 1 ~ 2 == '12' }}{{ 1 ~ 2 in ['12'] ~ '' }}{{ not 1 == 2 and not 2 < 1 }}",
		 "TrueTrueTrue"},
		{"{{ l[2::-1] }}{{ l[::-5] }}{{ s[:-7:-3] }}{{ range(9)[7:1:-3] }}",
		 "[2, 1, 3][2]d\u00f6range(7, 1, -3)"},
		{"{{ -1|abs }}{{ -l|first }}", NULL},
		{"{{ 1, 2 }}", "(1, 2)"},
		{"{% set if = 'a' %}{% set in = 'abc' %}{% if if in in %}b{% endif %}", "b"},
		{NULL, NULL},
	};
	const struct expectation *e;

	(void)state;
	for (e = cases; e->source; e++)
		if (e->expected)
			expect(e->source, e->expected);
		else
			expect_error(e->source, TXDA_TEMPLATE_RUNTIME, 1, "unary -");
}

static void test_printing(void **state)
{
	static const struct expectation cases[] = {
		{"{{ t }} {{ n }} {{ one }} {{ f }} {{ big }} {{ [t, n, 'a', \"it's\"] }}",
		 "True None 1.0 2.5 12345678901234567890 [True, None, 'a', \"it's\"]"},
		{"{{ ['\\u200b\\xa0\\u00e9\\t\\\\', '\\x00'] }}",
		 "['\\u200b\\xa0\u00e9\\t\\\\', '\\x00']"},
		{"{{ d.keys() }}{{ d.items()|list|length }}{{ range(3) }}{{ range(1, 9, 2) }}",
		 "dict_keys(['b', 'a'])2range(0, 3)range(1, 9, 2)"},
		{"[{{ nope }}][{{ d.nope }}][{{ [nope] }}]", "[][][[Undefined]]"},
		{"{{ namespace(a=1) }}", "<Namespace {'a': 1}>"},
		{"{{ d|tojson }}{{ [1.0, 1e20, none, big]|tojson }}",
		 "{\"b\": 1, \"a\": {\"x\": [1, 2]}}[1.0, 1e+20, null, 12345678901234567890]"},
		{"{{ d|tojson(indent=2, sort_keys=true) }}",
		 "{\n  \"a\": {\n    \"x\": [\n      1,\n      2\n    ]\n  },\n  \"b\": 1\n}"},
		{"{{ {'a': [], 'b': {}}|tojson(separators=(',', ':'), indent='\\t') }}",
		 "{\n\t\"a\":[],\n\t\"b\":{}\n}"},
		{"{{ '\\u00e9\\U0001f600<\\x7f'|tojson(ensure_ascii=true) }}{{ "
		 "'\\u00e9<'|tojson }}",
		 "\"\\u00e9\\ud83d\\ude00<\\u007f\"\"\u00e9<\""},
		{"{{ {1: 2, none: 3, true: 4}|tojson }}", "{\"1\": 4, \"null\": 3}"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
}

/* % and str.format() beyond the usual: values are Python's. */
static void test_formats(void **state)
{
	static const struct expectation cases[] = {
		{"{{ '%c%c|%3c|' % (65, '\\u00e9', 'x') }}{{ '{:c}|{:5c}|'.format(8364, 65) }}",
		 "A\u00e9|  x|\u20ac|A    |"},
		{"{{ '%*d|%-*d|%.*f' % (5, 3, 4, 2, 1, 2.55) }}{{ '%*d|' % (-4, 7) }}",
		 "    3|2   |2.57   |"},
		{"{{ '{:b} {:08b} {:#b} {:#x} {:#X} {:#o} {:#06x}'.format(10, 10, 5, 255, 255, 8, "
		 "255) }}",
		 "1010 00001010 0b101 0xff 0XFF 0o10 0x00ff"},
		{"{{ '{:_} {:_x} {:,} {:n}'.format(1234567, 1234567, -1234567.5, 7) }}",
		 "1_234_567 12_d687 -1,234,567.5 7"},
		{"{{ '{:>{w}}|{:{f}^{w}}|{:.{p}f}'.format('x', 'y', 2.5, w=5, f='*', p=3) }}",
		 "    x|**y**|2.500"},
		{"{{ '{:>{}}|'.format('x', 4) }}{{ '{:#x}'.format(-255) }}{{ '%#x' % 16 }}",
		 "   x|-0xff0x10"},
		{"{{ '%d %i %s' % (2 ** 70, -(2 ** 65), 2 ** 64) }} {{ '{:,} {:d}'.format(2 ** 70, "
		 "2 ** 64) }}",
		 "1180591620717411303424 -36893488147419103232 18446744073709551616 "
		 "1,180,591,620,717,411,303,424 18446744073709551616"},
		{"{{ '%.4d|%-6.3x|' % (7, 10) }}{{ '{:06}|{:<06}|{:^06}|'.format('12', 5, -1) }}",
		 "0007|00a   |120000|500000|00-100|"},
		{"{{ '{:08,} {:07,} {:+010,} {:06_} {:010_x} {:09,.1f}'"
		 ".format(1234, 1234, 1234, -1, 48879, 1234.5) }}",
		 "0,001,234 001,234 +0,001,234 -0_001 0_0000_beef 001,234.5"},
		{"{{ '{:.2} {:.2} {:.3} {:.1} {:.0} {:.3} {:.4} {:.2}'"
		 ".format(1.0, 12.0, 12.0, 0.5, 5.0, 123.0, 0.00001, 100.0) }}",
		 "1.0 1.2e+01 12.0 0.5 5e+00 1.23e+02 1e-05 1e+02"},
		{"{{ '%d %i' % (1e19, -1e20) }} {{ '99999999999999999999'|int + 1 }} "
		 "{{ ' -0099_999_999_999_999_999_999 '|int }} {{ '9223372036854775808'|int }}",
		 "10000000000000000000 -100000000000000000000 100000000000000000000 "
		 "-99999999999999999999 9223372036854775808"},
		{"{{ '{:+} {:,} {} {:}'.format(t, t, t, n) }} {{ '{!a:>8}|{!a}'.format('\u00e9', "
		 "['\u20ac\U0001f600x']) }}",
		 "+1 1 True None   '\\xe9'|['\\u20ac\\U0001f600x']"},
		{"{{ ('0' * 100)|int }} {{ ('-' ~ '0' * 100 ~ '5')|int - 1 }}", "0 -6"},
		{"{{ '{:,}'.format(10 ** 1500)|length }} {{ ('%d' % 10 ** 2)|length }}", "2001 3"},
		{"{{ 'a\\tbc\\td\\n\\te'.expandtabs(4) }}|{{ '\\t'.expandtabs() }}|",
		 "a   bc  d\n    e|        |"},
		{"{{ 'Ab Cd'.istitle() }}{{ 'AB'.istitle() }}{{ '1'.istitle() }}{{ "
		 "'a1_\\u00e9'.isidentifier() }}{{ '1a'.isidentifier() }}{{ ''.isidentifier() }}",
		 "TrueFalseFalseTrueFalseFalse"},
		{"{{ 'Stra\\u00dfe \\u03a3'.casefold() }}", "strasse \u03c3"},
		{"{{ {'a b': 'c/d', 'e': 1}|urlencode }} {{ [('x', '\\u00e4')]|urlencode }}",
		 "a+b=c%2Fd&e=1 x=%C3%A4"},
		{"{{ 1|filesizeformat }} {{ 999.9|filesizeformat }} {{ 1234567|filesizeformat }} "
		 "{{ '2048'|filesizeformat(true) }} {{ 1e30|filesizeformat }}",
		 "1 Byte 999 Bytes 1.2 MB 2.0 KiB 1000000.0 YB"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
	expect_error("{{ '%c' % 'ab' }}", TXDA_TEMPLATE_RUNTIME, 1, "one character");
	expect_error("{{ '{:c}'.format(-1) }}", TXDA_TEMPLATE_RUNTIME, 1, "no character");
	expect_error("{{ '{:.2d}'.format(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "precision");
	expect_error("{{ '{:0100000000,}'.format(1) }}", TXDA_TEMPLATE_LIMIT, 1, "");
	expect_error("{{ '{:5}'.format(n) }}", TXDA_TEMPLATE_RUNTIME, 1, "for 'NoneType'");
	expect_error("{{ '{:,}'.format(l) }}", TXDA_TEMPLATE_RUNTIME, 1, "for 'list'");
	expect_error("{{ '{:>3}'.format(nope) }}", TXDA_TEMPLATE_RUNTIME, 1, "for 'Undefined'");
	expect_error("{{ '{:,}'.format('5') }}", TXDA_TEMPLATE_RUNTIME, 1, "for 'str'");
	expect_error("{{ '{:=5}'.format('5') }}", TXDA_TEMPLATE_RUNTIME, 1, "for 'str'");
	expect_error("{{ '{:.1}'.format(t) }}", TXDA_TEMPLATE_RUNTIME, 1, "precision");
	expect_error("{{ '{:,x}'.format(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "',' not allowed");
	expect_error("{{ '%*d' % 3 }}", TXDA_TEMPLATE_RUNTIME, 1, "not enough arguments");
	expect_error("{{ '%*d' % (10 ** 12, 3) }}", TXDA_TEMPLATE_RUNTIME, 1, "larger than");
	expect_error("{{ '{:{a:{b}}}'.format(1, a=1, b=2) }}", TXDA_TEMPLATE_RUNTIME, 1,
		     "nested too deeply");
	expect_error("{{ '{:{'.format(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "expected '}'");
	expect_error("{{ 'ab'|filesizeformat }}", TXDA_TEMPLATE_RUNTIME, 1, "not a number");
	expect_error("{{ [(1, 2, 3)]|urlencode }}", TXDA_TEMPLATE_RUNTIME, 1, "not a pair");
	expect_error("{{ 017 }}", TXDA_TEMPLATE_SYNTAX, 1, "leading zero");
}

static void test_statements(void **state)
{
	static const struct expectation cases[] = {
		{"{% for x in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ "
		 "loop.last }}"
		 "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}",
		 "12TrueFalse1a;21FalseFalse32b;30FalseTrue1a;"},
		{"{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}"
		 "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
		 "2322none"},
		{"{% set x = 1 %}{% for i in [] %}{% else %}{% set x = 2 %}{{ x }}{% endfor %}{{ x "
		 "}}",
		 "21"},
		{"{% for x in [1, 2] %}{% break %}{% else %}a{% endfor %}"
		 "{% for x in [1, 2] if x %}{% continue %}{% else %}b{% endfor %}"
		 "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}c{% endfor "
		 "%}",
		 "ab"},
		{"{% for k, v in d.items() %}{{ k }}{% endfor %}{% for a, (b, c) in [[1, [2, "
		 "3]]] %}"
		 "{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in 'a\u00e9' %}{{ c }}.{% endfor %}",
		 "ba123a.\u00e9."},
		{"{% for x in [[1, [2]]] recursive %}{% if x is iterable %}<{{ loop(x) }}>{% "
		 "else %}"
		 "{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
		 "<1@2<2@3>>"},
		{"{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}"
		 "{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
		 "13"},
		{"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}"
		 "{{ x }}",
		 "15151"},
		{"{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% "
		 "endfor %}"
		 "{{ ns.n }}{% set ns.a, (b, c) = 1, [2, 3] %}{{ ns.a }}{{ b }}{{ c }}",
		 "6123"},
		{"{% set x | upper %}a{{ 1 }}\nb{% endset %}{{ x }}{% filter replace('a', 'b') "
		 "| upper %}"
		 "aa{% endfilter %}",
		 "A1\nBBB"},
		{"{% macro f(a, b=a, c='z') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ f(1) }}"
		 "{{ f(1, 2) }}{{ f(c=3, a=4) }}",
		 "<11z><12z><443>"},
		{"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, x=2) }}",
		 "(1,){'x': 2}"},
		{"{% macro f() %}[{{ caller(1) }}]{% endmacro %}{% call(x) f() %}{{ x }}{{ s }}"
		 "{% endcall %}",
		 "[1Hello w\u00f6rld]"},
		{"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ "
		 "f(3) }}",
		 "321"},
		{"{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "2"},
		{"{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}", "17"},
		{"{% generation %}a{% set z = 1 %}{% endgeneration %}{{ z }}", "a"},
		{"{% if n %}a{% elif e %}b{% elif t %}c{% else %}d{% endif %}", "c"},
		{"{% set j = joiner('|') %}{% set c = cycler(1, 2) %}"
		 "{% for x in l %}{{ j() }}{{ c.next() }}{% endfor %}{{ c.current }}",
		 "1|2|12"},
		{"{% set g = l|map('string') %}{{ g|first }}{{ g|list }}{{ g|list }}",
		 "3['1', '2'][]"},
		{"{{ strftime_now('%d %b %Y %H:%M %j %%') }}", "10 Jul 2025 12:00 191 %"},
		{"{{ strftime_now('%-m %_m %^a %#p %5d %^10B %Ey %Od %e') }}",
		 "7  7 THU pm 00010       JULY 25 10 10"},
		{"{{ strftime_now('%Q %-Q %-') }}{{ strftime_now('%f%z|%5') }}{{ "
		 "strftime_now('%-') }}",
		 "%Q %-Q %-000000|%5%-"},
		{"{% print 1, 'a' %}", "1a"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
}

static void test_filters(void **state)
{
	static const struct expectation cases[] = {
		{"{{ l|sort }}{{ ['b', 'A']|sort }}{{ ['b', 'A']|sort(true, true) }}{{ l|max }}"
		 "{{ l|min }}",
		 "[1, 2, 3]['A', 'b']['b', 'A']31"},
		{"{{ m|map(attribute='role')|join(',') }}{{ "
		 "m|selectattr('k')|map(attribute='k')|sum }}",
		 "user,assistant,User3"},
		{"{{ m|rejectattr('role', 'in', ['user'])|list|length }}{{ [0, 1, "
		 "2]|select('odd')|list }}",
		 "2[1]"},
		{"{{ n|map(attribute='k')|list }}{{ nope|map('upper')|join }}{{ n|select|list }}",
		 "[][]"},
		{"{{ m|map(attribute='k', default=9)|list }}{{ m|sort(attribute='role')|length }}",
		 "[9, 2, 1]3"},
		{"{% for g in m|groupby('role') %}{{ g.grouper }}{{ g.list|length }};{% endfor %}",
		 "assistant1;user2;"},
		{"{{ ['a', 'A', 'b']|unique|list }}{{ {'b': 1, 'A': 2}|dictsort }}",
		 "['a', 'b'][('A', 2), ('b', 1)]"},
		{"{{ [1, 2, 3]|batch(2, 0)|list }}{{ [1, 2, 3]|slice(2)|list }}{{ 'abc'|reverse "
		 "}}",
		 "[[1, 2], [3, 0]][[1, 2], [3]]cba"},
		{"{{ ' x '|trim }}{{ 'xax'|trim('x') }}{{ s|upper }}{{ 'hELLO w'|capitalize }}",
		 "xaHELLO W\u00d6RLDHello w"},
		{"{{ \"they're a-b (c\"|title }}|{{ \"they're a-b\".title() }}|{{ "
		 "'\u00df'.upper() }}",
		 "They're A-B (C|They'Re A-B|SS"},
		{"{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent('>', true) }}", "a\n  b\n\n  "
									       "c|>a\n>b"},
		{"{{ '3.7'|int }}{{ 'x'|int(-1) }}{{ '1f'|int(base=16) }}{{ 'x'|float }}{{ "
		 "2.5|round }}"
		 "{{ 2.675|round(2) }}{{ 2.1|round(method='ceil') }}{{ true|int }}",
		 "3-1310.02.02.673.01"},
		{"{{ nope|default('a') }}{{ n|default('b') }}{{ n|default('c', true) }}{{ "
		 "nope|length }}",
		 "aNonec0"},
		{"{{ 'aXbX'|replace('X', '-', 1) }}{{ 'foo bar baz qux'|truncate(9) }}{{ 'a "
		 "b'|wordcount }}",
		 "a-bXfoo...2"},
		{"{{ '<a>'|e }}{{ '<a>'|safe + '<' }}{{ 'a b/\u00fc'|urlencode }}",
		 "&lt;a&gt;<a>&lt;a%20b/%C3%BC"},
		{"{{ '%s-%05.1f|%-3d|%x' % ('a', 2.25, 5, 255) }}{{ '%(a)s' % {'a': 1} }}",
		 "a-002.2|5  |ff1"},
		{"{{ '{} {x!r} {0:>4}|{1:,}'.format(1, 1234567, x='a') }}", "1 'a'    "
									    "1|1,234,567"},
		{"{{ 'ab'|center(6) }}|{{ 'x'|first }}{{ l|last }}{{ l|count }}{{ 5|string }}",
		 "  ab  |x235"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
}

static void test_methods(void **state)
{
	static const struct expectation cases[] = {
		{"{{ 'a,b,,c'.split(',', 1) }}{{ 'a,b'.rsplit(',') }}{{ ' a  b '.split() }}",
		 "['a', 'b,,c']['a', 'b']['a', 'b']"},
		{"{{ ' a b c'.rsplit(none, 1) }}{{ 'a\nb\r\n'.splitlines() }}{{ "
		 "'a-b-c'.rpartition('-') }}",
		 "[' a b', 'c']['a', 'b']('a-b', '-', 'c')"},
		{"{{ 'xxaxx'.strip('x') }}{{ ' a'.lstrip() }}{{ 'aXX'.rstrip('X') }}", "aaa"},
		{"{{ s.startswith('He') }}{{ s.endswith(('x', 'ld')) }}{{ s.find('r') }}{{ "
		 "s.rfind('l') }}"
		 "{{ s.count('l') }}{{ s.index('\u00f6') }}",
		 "TrueTrue8937"},
		{"{{ 'abc'.removeprefix('a') }}{{ 'a-b'.replace('-', '+') }}{{ ','.join(['a', "
		 "'b']) }}",
		 "bca+ba,b"},
		{"{{ '12'.isdigit() }}{{ 'aB'.swapcase() }}{{ '-4'.zfill(4) }}{{ 'a'.ljust(3, "
		 "'.') }}",
		 "TrueAb-004a.."},
		{"{{ d.get('b') }}{{ d.get('z') }}{{ d.get('z', 5) }}{{ d.keys()|list }}{{ "
		 "d.values()|list }}",
		 "1None5['b', 'a'][1, {'x': [1, 2]}]"},
		{"{{ l.index(1) }}{{ l.count(9) }}{{ {'items': 1}['items'] }}", "101"},
		{NULL, NULL},
	};

	(void)state;
	expect_all(cases);
}

static void test_tests(void **state)
{
	(void)state;
	expect("{{ 1 is number }}{{ t is number }}{{ t is integer }}{{ 1.0 is float }}{{ s is "
	       "string }}",
	       "TrueTrueFalseTrueTrue");
	expect("{{ s is sequence }}{{ d is sequence }}{{ d.keys() is sequence }}{{ n is iterable "
	       "}}",
	       "TrueTrueFalseFalse");
	expect("{{ d is mapping }}{{ nope is defined }}{{ n is none }}{{ n is not none }}{{ 4 is "
	       "even }}",
	       "TrueFalseTrueFalseTrue");
	expect("{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ 'a' is lower }}{{ 2 "
	       "is gt(1) }}",
	       "TrueTrueTrueTrueTrue");
	expect("{{ 'trim' is filter }}{{ 'nix' is filter }}{{ 'odd' is test }}{{ range is "
	       "callable }}",
	       "TrueFalseTrueTrue");
	expect("{{ true is true }}{{ 1 is true }}{{ [] is sameas [] }}{{ 'a' is string and t or "
	       "n }}",
	       "TrueFalseFalseTrue");
}

static void test_syntax_errors(void **state)
{
	static const char *const wrong[] = {
		"{% if t %}a",
		"{% nope %}",
		"{% endif %}",
		"{{ 1 +",
		"{{ (1 }}",
		"{{ }}",
		"{{ 1 2 }}",
		"{{ 'a }}",
		"{# a",
		"{% raw %} a",
		"{% for x l %}{% endfor %}",
		"{% set 5 = 1 %}",
		"{% set true = 1 %}",
		"{{ a..b }}",
		"{{ f(a=1, 2) }}",
		"{{ f(a=1, a=2) }}",
		"{% break %}",
		"{% include 'x' %}",
		"{% extends 'x' %}",
		"{% import 'x' as y %}",
		"{{ @ }}",
		"{{ 1 = 2 }}",
		"{{ {'a' 1} }}",
		"{{ [1, }}",
		"{% if %}{% endif %}",
		"{{ 0xFFFFFFFFFFFFFFFFF }}",
		"{{ 99999999999999999999 'a' }}",
		"{{ '\\N{BULLET}' }}",
		"{{ '\\ud800' }}",
		"{{ x is odd is even }}",
		"{{ 'x' }",
		"{% macro f(a=1, b) %}{% endmacro %}",
		"{% call 5 %}{% endcall %}",
		"{{ l[] }}",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		expect_error(wrong[i], TXDA_TEMPLATE_SYNTAX, 1, "");
	expect_error("a\n{# x\n #}\n{{ 'b' }}\n{% nope %}", TXDA_TEMPLATE_SYNTAX, 5, "unknown tag");
}

static void test_runtime_errors(void **state)
{
	(void)state;
	expect_error("a\n{{ nope.x }}", TXDA_TEMPLATE_RUNTIME, 2, "'nope' is undefined");
	expect_error("{{ d.nope.x }}", TXDA_TEMPLATE_RUNTIME, 1, "no attribute 'nope'");
	expect_error("{{ nope() }}", TXDA_TEMPLATE_RUNTIME, 1, "'nope' is undefined");
	expect_error("{{ 'a' + none }}", TXDA_TEMPLATE_RUNTIME, 1, "can only concatenate str");
	expect_error("{{ 'a' < 1 }}", TXDA_TEMPLATE_RUNTIME, 1, "'<' not supported");
	expect_error("{{ 1 // 0 }}", TXDA_TEMPLATE_RUNTIME, 1, "division by zero");
	expect_error("{{ 10 ** 4300 }}", TXDA_TEMPLATE_RUNTIME, 1, "more than 4300 digits");
	expect_error("{{ 2 ** (2 ** 70) }}", TXDA_TEMPLATE_RUNTIME, 1, "more than 4300 digits");
	expect_error("{{ 2 ** 70 // 0 }}", TXDA_TEMPLATE_RUNTIME, 1, "division by zero");
	expect_error("{{ 0 ** -(2 ** 70) }}", TXDA_TEMPLATE_RUNTIME, 1, "negative power");
	expect_error("{{ 10 ** 400 / 3 }}", TXDA_TEMPLATE_RUNTIME, 1, "too large for a float");
	expect_error("{{ 'a' * 2 ** 70 }}", TXDA_TEMPLATE_RUNTIME, 1, "unsupported operand");
	expect_error("{{ l.append(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "unsafe");
	expect_error("{{ d.update({}) }}", TXDA_TEMPLATE_RUNTIME, 1, "unsafe");
	expect_error("{{ s.__class__.x }}", TXDA_TEMPLATE_RUNTIME, 1, "unsafe");
	expect_error("{% set d.x = 1 %}", TXDA_TEMPLATE_RUNTIME, 1, "non-namespace");
	expect_error("{% for a, b in [[1]] %}{% endfor %}", TXDA_TEMPLATE_RUNTIME, 1, "unpack");
	expect_error("{% for a in 5 %}{% endfor %}", TXDA_TEMPLATE_RUNTIME, 1, "not iterable");
	expect_error("{{ 1|nofilter }}", TXDA_TEMPLATE_RUNTIME, 1, "no filter named 'nofilter'");
	expect_error("{{ 1 is notest }}", TXDA_TEMPLATE_RUNTIME, 1, "no test named");
	expect_error("{{ s|upper(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "no arguments");
	expect_error("{{ s.replace('a') }}", TXDA_TEMPLATE_RUNTIME, 1, "needs argument 'new'");
	expect_error("{{ {[1]: 2} }}", TXDA_TEMPLATE_RUNTIME, 1, "unhashable");
	expect_error("{{ '%y' % 1 }}", TXDA_TEMPLATE_RUNTIME, 1, "unsupported character 'y'");
	expect_error("{{ '{:s}'.format(1) }}", TXDA_TEMPLATE_RUNTIME, 1, "code 's' for 'int'");
	expect_error("{{ l|map('nix')|list }}", TXDA_TEMPLATE_RUNTIME, 1, "no filter named 'nix'");
	expect_error("{{ s.split(sep=1) }}", TXDA_TEMPLATE_RUNTIME, 1,
		     "string is required, not 'int'");
	expect_error("{{ d|dictsort(up=1) }}", TXDA_TEMPLATE_RUNTIME, 1, "has no argument 'up'");
	expect_error("{{ s.find('a', sub=2) }}", TXDA_TEMPLATE_RUNTIME, 1, "two values");
	expect_error("{{ nope|tojson }}", TXDA_TEMPLATE_RUNTIME, 1, "not JSON serializable");
	expect_error("{{ l|map('upper')|length }}", TXDA_TEMPLATE_RUNTIME, 1, "no len()");
	expect_error("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", TXDA_TEMPLATE_RUNTIME, 1,
		     "at most");
	expect_error("\n{{ raise_exception('no ' ~ i) }}", TXDA_TEMPLATE_RAISED, 2, "no 7");
	expect("{% if n %}{{ raise_exception('x') }}{{ 1|nofilter }}{% endif %}ok", "ok");
}

static void expect_limit(const char *source, struct txda_template_limits limits, const char *part)
{
	struct txda_template_error error;
	char *text;
	int rc = render(source, strlen(source), &limits, &error, &text);

	if (!rc)
		fail_msg("%s: rendered", source);
	if (rc != -E2BIG || error.kind != TXDA_TEMPLATE_LIMIT || !strstr(error.message, part))
		fail_msg("%s: %d, kind %d: %s", source, rc, error.kind, error.message);
}

static void test_limits(void **state)
{
	const struct txda_template_limits standard = txda_template_default_limits;
	struct txda_template_limits limits = standard;

	(void)state;
	expect_limit("{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% "
		     "endfor %}",
		     standard, "steps");
	expect_limit("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x "
		     "* 2 %}"
		     "{% endfor %}",
		     standard, "memory");
	expect_limit("{{ 'a' * 9223372036854775807 }}", standard, "");
	expect_limit("{{ l * 9223372036854775807 }}", standard, "");
	expect_limit("{{ 'a'.center(99999999999) }}", standard, "output");
	expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", standard, "nested");
	expect_limit("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", standard, "nested");
	expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = "
		     "[ns.x] %}"
		     "{% endfor %}{{ ns.x }}",
		     standard, "nested");
	expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = "
		     "[ns.x] %}"
		     "{% endfor %}{{ ns.x|tojson }}",
		     standard, "nested");
	expect_limit("{% set ns = namespace(x=[], y=[]) %}{% for i in range(2000) %}{% set ns.x "
		     "= [ns.x] %}"
		     "{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		     standard, "nested");
	limits.output = 100;
	expect_limit("{% for x in range(50) %}abc{% endfor %}", limits, "100 bytes of output");
	limits = standard;
	limits.steps = 1000;
	expect_limit("{% for x in range(1000) %}{% endfor %}", limits, "1000 steps");
	/* One expression, 10^15 items. */
	expect_limit("{% set t = (1,) * 1000 %}{% set t = (t,) * 1000 %}{% set t = (t,) * 1000 %}"
		     "{% set t = (t,) * 1000 %}{% set t = (t,) * 1000 %}{{ d[t] }}",
		     standard, "steps");
	/* As many bytes as the limit allows, compared or hashed again and again. */
	limits.steps = 50000;
	expect_limit("{% set a = 'a' * 1000000 %}{% set b = a ~ 'b' %}{{ b.startswith((a ~ 'c',) "
		     "* 10000) }}",
		     limits, "steps");
	expect_limit("{% set a = 'a' * 1000000 %}{% set b = a ~ 'b' %}{% for i in range(999) %}"
		     "{{ a < b }}{% endfor %}",
		     limits, "steps");
	expect_limit("{% set a = 'a' * 1000000 %}{% set b = {a: 1} %}{% for i in range(999) %}"
		     "{{ b[a] }}{% endfor %}",
		     limits, "steps");
	expect_limit("{% set a = 'a' * 1000000 %}{% for i in range(999) %}{{ a.removeprefix(a) }}"
		     "{% endfor %}",
		     limits, "steps");
	limits = standard;
	limits.memory = 64 << 10;
	expect_limit("{{ range(10000)|list }}", limits, "bytes of memory");
	limits = standard;
	limits.depth = 10;
	expect_limit("{{ ((((((1 + 1) + 1) + 1) + 1) + 1) + 1) + 1 + 1 + 1 + 1 }}", limits,
		     "nested");
}

/* Nesting of the source itself. */
static void test_parse_limits(void **state)
{
	static const char *const units[][2] = {{"{{ ", "("},
					       {"{{ ", "["},
					       {"{{ ", "-"},
					       {"{{ ", "not "},
					       {"{{ ", "1 if 1 else "},
					       {"", "{% if 1 %}"},
					       {"{% set ", "("}};
	struct txda_template_error error;
	struct txda_template *template;
	char *source = malloc(TXDA_TEMPLATE_MAX_SOURCE + 1);
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t n = strlen(units[i][0]), unit = strlen(units[i][1]);

		memcpy(source, units[i][0], n);
		for (k = 0; k < 20000; k++, n += unit)
			memcpy(source + n, units[i][1], unit);
		assert_int_not_equal(txda_template_parse(source, n, &error, &template), 0);
		assert_int_not_equal(txda_template_parse(source, n, NULL, &template), 0);
	}
	/* what does not nest may be long */
	for (k = 0; k < TXDA_TEMPLATE_MAX_SOURCE; k++)
		source[k] = 'a';
	assert_int_equal(txda_template_parse(source, k, &error, &template), 0);
	txda_template_free(template);
	source[k] = 'a';
	assert_int_equal(txda_template_parse(source, k + 1, &error, &template), -E2BIG);
	free(source);
}

static void test_arguments(void **state)
{
	static const char source[] = "a{{ x }}\0b";
	struct txda_template_error error;
	struct txda_template *template;
	cJSON *context = cJSON_CreateObject(), *array = cJSON_CreateArray();
	size_t length;
	char *text;

	(void)state;
	assert_int_equal(txda_template_parse(source, sizeof(source) - 1, NULL, &template), 0);
	assert_true(txda_template_mentions(template, "x"));
	assert_false(txda_template_mentions(template, "a"));
	assert_int_equal(txda_template_render(template, context, NULL, NULL, &text, &length), 0);
	assert_int_equal(length, 3);
	assert_memory_equal(text, "a\0b", 4);
	free(text);
	assert_int_equal(txda_template_render(template, array, NULL, &error, &text, NULL), -EINVAL);
	assert_int_equal(txda_template_render(template, NULL, NULL, &error, &text, NULL), -EINVAL);
	txda_template_free(template);
	txda_template_free(NULL);
	cJSON_Delete(array);
	/* marks need the text that the tree came from */
	assert_int_equal(txda_template_mark_numbers(context, "{}", 2), 0);
	assert_int_equal(txda_template_mark_numbers(context, "{\"a\": 1}", 8), -EINVAL);
	cJSON_AddNumberToObject(context, "a", 1);
	assert_int_equal(txda_template_mark_numbers(context, "{}", 2), -EINVAL);
	cJSON_Delete(context);
}

static struct txda_template *shared_template;
static cJSON *shared_context;
static char *shared_text;

static void *render_often(void *unused)
{
	char *text;
	int i;

	(void)unused;
	for (i = 0; i < 200; i++) {
		if (txda_template_render(shared_template, shared_context, NULL, NULL, &text, NULL))
			return (void *)1;
		if (strcmp(text, shared_text)) {
			free(text);
			return (void *)1;
		}
		free(text);
	}
	return NULL;
}

static void test_threads(void **state)
{
	static const char source[] =
		"{% macro f(x) %}[{{ x|upper }}]{% endmacro %}{% for x in m %}{{ f(x.role) }}"
		"{{ 'w\u00f6rld'[1:]|length }}{{ x|tojson }}{% endfor %}{{ d }}";
	pthread_t threads[4];
	void *failed;
	size_t i;

	(void)state;
	assert_int_equal(txda_template_parse(source, strlen(source), NULL, &shared_template), 0);
	shared_context = parse_context(variables);
	assert_int_equal(txda_template_render(shared_template, shared_context, NULL, NULL,
					      &shared_text, NULL),
			 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, render_often, NULL), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	free(shared_text);
	cJSON_Delete(shared_context);
	txda_template_free(shared_template);
}

/* Does the case give what it should? Says so if not. */
static bool run_case(const char *file, const cJSON *root, const cJSON *test)
{
	const cJSON *key = cJSON_GetObjectItemCaseSensitive(test, "template");
	const cJSON *source = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(root, "templates"), key->valuestring);
	const cJSON *expected = cJSON_GetObjectItemCaseSensitive(test, "expected");
	const cJSON *refused = cJSON_GetObjectItemCaseSensitive(test, "error");
	const cJSON *now = cJSON_GetObjectItemCaseSensitive(test, "now");
	struct txda_template_options options = {0};
	struct txda_template_error error;
	struct txda_template *template;
	struct tm tm = {0};
	char *text = NULL;
	bool good;
	int rc = txda_template_parse(source->valuestring, strlen(source->valuestring), &error,
				     &template);

	if (now && strptime(now->valuestring, "%Y-%m-%dT%H:%M:%S", &tm))
		options.now = &tm;
	if (!rc) {
		rc = txda_template_render(template,
					  cJSON_GetObjectItemCaseSensitive(test, "context"),
					  &options, &error, &text, NULL);
		txda_template_free(template);
	}
	if (expected)
		good = !rc && !strcmp(text, expected->valuestring);
	else if (cJSON_IsString(refused))
		good = rc == -EPROTO && !strcmp(error.message, refused->valuestring);
	else
		good = rc == -EINVAL;
	if (!good)
		print_error("%s: %s: %s\n", file,
			    cJSON_GetObjectItemCaseSensitive(test, "name")->valuestring,
			    rc ? error.message : text);
	free(text);
	return good;
}

static void run_file(const char *directory, const char *name, unsigned int *passed,
		     unsigned int *total)
{
	char path[2048], err[256];
	unsigned int good = 0, n = 0;
	size_t length;
	char *text;
	cJSON *root;
	const cJSON *test;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	text = conformance_read(path, &length);
	assert_non_null(text);
	root = txda_json_parse(text, length, err, sizeof(err));
	if (!root)
		fail_msg("%s: %s", path, err);
	assert_int_equal(txda_template_mark_numbers(root, text, length), 0);
	cJSON_ArrayForEach(test, cJSON_GetObjectItemCaseSensitive(root, "cases")) {
		good += run_case(name, root, test);
		n++;
	}
	print_message("%-28s %3u of %3u\n", name, good, n);
	cJSON_Delete(root);
	free(text);
	*passed += good;
	*total += n;
}

static void test_conformance(void **state)
{
	unsigned int passed = 0, total = 0;
	struct dirent *entry;
	char directory[1024];
	DIR *dir;

	(void)state;
	if (!conformance_path(directory, sizeof(directory), "chat"))
		skip();
	dir = opendir(directory);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (dot && !strcmp(dot, ".json"))
			run_file(directory, entry->d_name, &passed, &total);
	}
	closedir(dir);
	print_message("all: %u of %u\n", passed, total);
	assert_int_equal(passed, total);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whitespace),    cmocka_unit_test(test_expressions),
		cmocka_unit_test(test_printing),      cmocka_unit_test(test_formats),
		cmocka_unit_test(test_statements),    cmocka_unit_test(test_filters),
		cmocka_unit_test(test_methods),	      cmocka_unit_test(test_tests),
		cmocka_unit_test(test_syntax_errors), cmocka_unit_test(test_runtime_errors),
		cmocka_unit_test(test_limits),	      cmocka_unit_test(test_parse_limits),
		cmocka_unit_test(test_arguments),     cmocka_unit_test(test_threads),
		cmocka_unit_test(test_conformance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
