// SPDX-License-Identifier: MIT
/* What a command line is taken for. tests/e2e/command_lines.sh has the messages of wrong ones. */
#include "tool_line.h"
#include "unit.h"

#define TXDA_VERSION "1.2.3"

static const struct option options[] = {
	{"keep-alive", required_argument, NULL, 256},
	{"count", required_argument, NULL, 'n'},
	{"quiet", no_argument, NULL, 'q'},
	{"text", TOOL_TEXT, NULL, 't'},
	{"quick", no_argument, NULL, 257},
	TOOL_OPTIONS_END,
};

/* Each option as its letter or name, with "=VALUE"; then the words, each after a blank. */
static void check(bool command, const char *expected, int argc, char **argv)
{
	struct tool_line line = TOOL_LINE("test", "", options, "nqt");
	char taken[512] = "";
	int id;

	line.command = command;
	while ((id = tool_option(&line, argc, argv)) > 0) {
		char letter[] = {(char)id, '\0'};

		strcat(taken, id < 256 ? letter : line.name);
		strcat(strcat(taken, line.value ? "=" : ""), line.value ? line.value : "");
	}
	if (id < 0)
		snprintf(taken, sizeof(taken), "refused %d", line.status);
	for (int i = 0; !id && i < line.n_words; i++)
		strcat(strcat(taken, " "), line.words[i]);
	if (!id)
		assert_null(line.words[line.n_words]);
	assert_string_equal(taken, expected);
}

#define CHECK(command, expected, ...)                                                              \
	do {                                                                                       \
		char *argv[] = {"test", ##__VA_ARGS__, NULL};                                      \
                                                                                                   \
		check(command, expected, (int)ARRAY_SIZE(argv) - 1, argv);                         \
	} while (0)

TEST(options_and_words_are_told_apart)
{
	CHECK(false, "");
	CHECK(false, "q a b", "a", "-q", "b");
	CHECK(false, "q a -q b", "a", "-q", "--", "-q", "b");
	CHECK(false, " - ", "-", "");
	CHECK(true, "q a -q b", "-q", "a", "-q", "b");
	CHECK(true, "q -q b", "-q", "--", "-q", "b");
	CHECK(true, " a -- b", "a", "--", "b");
}

TEST(values_are_found)
{
	CHECK(false, "n=1 2", "-n", "1", "2");
	CHECK(false, "qn=12q", "-qn12q");
	CHECK(false, "qn=-5", "-qn", "-5");
	CHECK(false, "t=t=t=-q", "--text=", "-t", "", "-t-q");
	CHECK(false, "refused 2", "--count=");
	CHECK(false, "refused 2", "-n", "");
	CHECK(false, "n=--quiet", "--count=--quiet");
	CHECK(false, "n=-q", "-n-q");
	CHECK(false, "n=---", "-n", "---");
	CHECK(false, "keep-alive=-1 -", "--keep-alive", "-1", "-");
	CHECK(false, "keep-alive=a=b", "--keep=a=b");
}

TEST(beginnings_are_unambiguous)
{
	CHECK(false, "qquick", "--quie", "--quic");
	CHECK(false, "refused 2", "--qui");
	CHECK(false, "refused 2", "--=1");
	CHECK(false, "refused 2", "--Quiet");
}

TEST(wrong_lines_are_refused)
{
	char name[4096];

	CHECK(false, "refused 2", "-x");
	CHECK(false, "refused 2", "-quiet");
	CHECK(false, "refused 2", "--quiet=yes");
	CHECK(false, "refused 2", "-n");
	CHECK(false, "refused 2", "--count");
	CHECK(false, "refused 2", "--count", "--quiet");
	CHECK(false, "refused 2", "--count", "--unknown");
	CHECK(false, "refused 2", "--count", "-q");
	CHECK(false, "refused 2", "--count", "-V");
	CHECK(false, "refused 0", "-qh", "--unknown");
	CHECK(false, "refused 0", "--version");
	memset(name, '-', sizeof(name));
	name[sizeof(name) - 1] = 0;
	CHECK(false, "refused 2", name);
	memset(name + 2, '%', 1000);
	CHECK(false, "refused 2", name);
}

TEST_MAIN
