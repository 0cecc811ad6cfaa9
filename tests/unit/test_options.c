// SPDX-License-Identifier: MIT
/* The table of txdad's options, and what is read by it. */
#include "test_dir.h"
#include "config_internal.h"
#include "model_text.h"

static char err[OPTIONS_ERROR];

#define FOR_ROWS(row)                                                                              \
	for (const struct option_row *row = config_table.rows;                                     \
	     row < config_table.rows + config_table.n; row++)                                      \
		if (row->scope != OPTION_HEADING)

static const struct option_row *find(const char *name)
{
	const char *text;

	return options_find(&config_table, name, &text);
}

/* The rows themselves ------------------------------------------------------------------------- */

/* A row that names a member of another type would write over its neighbours. */
TEST(members_have_the_size_of_their_type)
{
	FOR_ROWS(row)
	{
		if (row->size != row->type->size)
			fail_msg("--%s: %zu bytes in the struct, %zu of its type", row->name,
				 row->size, row->type->size);
	}
}

TEST(names_are_plain_and_unique)
{
	FOR_ROWS(row)
	{
		assert_in_range(strlen(row->name), 2, OPTIONS_NAME_MAX - 4);
		assert_int_equal(strspn(row->name, "abcdefghijklmnopqrstuvwxyz-"),
				 strlen(row->name));
		assert_ptr_equal(find(row->name), row);
		assert_non_null(row->help);
		assert_true(row->type != &option_choice || row->words);
		assert_true(!row->type->takes_value || row->words || row->metavar);
	}
}

/* Every alias leads to its row: none is another one's name. */
TEST(aliases_lead_to_their_row)
{
	FOR_ROWS(row)
	{
		char all[256];

		snprintf(all, sizeof(all), "%s", row->aliases ? row->aliases : "");
		for (char *rest = all, *alias; (alias = strtok_r(rest, " ", &rest));) {
			assert_in_range(strlen(alias), 2, OPTIONS_NAME_MAX - 4);
			assert_ptr_equal(find(alias), row);
		}
	}
}

TEST(parsers_are_known_to_the_server)
{
	enum reply_reasoning reasoning;
	enum reply_tools tools;

	for (const char *const *w = find("tool-call-parser")->words; *w; w++)
		assert_true(model_text_tool_parser(*w, &tools));
	for (const char *const *w = find("reasoning-parser")->words; *w; w++)
		assert_true(model_text_reasoning_parser(*w, &reasoning));
}

TEST(help_shows_every_option)
{
	char *text = NULL, *line, *rest;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	options_help(&config_table, out);
	fclose(out);
	FOR_ROWS(row)
	{
		char name[OPTIONS_NAME_MAX + 8];

		snprintf(name, sizeof(name), "  --%s%s", row->type->negatable ? "[no-]" : "",
			 row->name);
		if (!strstr(text, name))
			fail_msg("--help says nothing about --%s", row->name);
	}
	if (!strstr(text, "  --kv-cache-dtype auto|bf16|int8\n"))
		fail_msg("%s", text);
	for (line = text; (rest = strchr(line, '\n')); line = rest + 1)
		if (rest - line > 100)
			fail_msg("%.*s", (int)(rest - line), line);
	free(text);
}

/* Names --------------------------------------------------------------------------------------- */

TEST(underscores_are_dashes)
{
	const char *text;

	assert_ptr_equal(find("tp_size"), find("tp-size"));
	assert_ptr_equal(find("max_num-batched_tokens"), find("max-num-batched-tokens"));
	assert_ptr_equal(options_find(&config_table, "no_enable_prefix_caching", &text),
			 find("enable-prefix-caching"));
	assert_string_equal(text, "no");
	assert_ptr_equal(options_find(&config_table, "pin", &text), find("pin"));
	assert_null(text);
	assert_null(find(""));
	assert_null(find("no-tp-size"));
	assert_null(find("-pin"));
	assert_null(find("no-no-pin"));
}

TEST(beginnings_will_do)
{
	char long_name[4096];
	const char *text;

	assert_ptr_equal(options_find_begun(&config_table, "max_q", &text, err, sizeof(err)),
			 find("max-queue"));
	assert_ptr_equal(options_find_begun(&config_table, "no-acc", &text, err, sizeof(err)),
			 find("access-log"));
	assert_string_equal(text, "no");
	assert_null(options_find_begun(&config_table, "max-num", &text, err, sizeof(err)));
	assert_string_equal(err,
			    "--max-num is ambiguous: --max-num-seqs or --max-num-batched-tokens");
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	assert_null(options_find_begun(&config_table, long_name, &text, err, sizeof(err)));
	assert_null(options_find_begun(&config_table, "", &text, err, sizeof(err)));
}

/* What was probably meant is said; what is like nothing is left alone. */
TEST(the_nearest_name_is_found)
{
	static const struct {
		const char *wrong, *meant;
	} names[] = {
		{"modle", "model"},
		{"tpsize", "tp-size"},
		{"wieghts", "weights"},
		{"max_num_batch_tokens", "max-num-batched-tokens"},
		{"enable-prefix-cache", "enable-prefix-caching"},
		{"no-enable-prefix-cache", "no-enable-prefix-caching"},
		{"kv-cache-type", "kv-cache-dtype"},
		{"pim", "pin"},
		{"gpu-memory-utilization", NULL},
		{"trust-remote-code", NULL},
		{"x", NULL},
		{"", NULL},
	};
	char nearest[OPTIONS_NAME_MAX], long_name[OPTIONS_NAME_MAX + 1];
	const char *text;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		bool found = options_nearest(&config_table, names[i].wrong, nearest);

		if (found != (names[i].meant != NULL) ||
		    (found && strcmp(nearest, names[i].meant) != 0))
			fail_msg("%s: %s, not %s", names[i].wrong, found ? nearest : "nothing",
				 names[i].meant ? names[i].meant : "nothing");
	}
	for (size_t len = OPTIONS_NAME_MAX - 1; len <= OPTIONS_NAME_MAX; len++) {
		memset(long_name, 'm', len);
		long_name[len] = 0;
		assert_false(options_nearest(&config_table, long_name, nearest));
	}
	assert_null(options_find_begun(&config_table, "modle", &text, err, sizeof(err)));
	assert_string_equal(err, "unknown option --modle; did you mean --model?");
	assert_null(options_find_begun(&config_table, "xyzzy", &text, err, sizeof(err)));
	assert_string_equal(err, "unknown option --xyzzy");
}

/* The command line ---------------------------------------------------------------------------- */

#define LOAD(c, ...)                                                                               \
	({                                                                                         \
		char *argv[] = {"txdad", __VA_ARGS__, NULL};                                       \
		config_load((int)(ARRAY_SIZE(argv)) - 1, argv, c);                                 \
	})

TEST(values_go_where_they_belong)
{
	struct config c;

	assert_int_equal(LOAD(&c, "--max_num_seqs=7", "--model", "a=/x", "--tp-size", "2",
			      "--max-queue", "2K", "--keep_alive", "5m", "--weights", "w8",
			      "--no-pin", "--model=/srv/b/", "--max-num-seqs", "9", "--when-idle",
			      "sleep", "--pin", "--kv-cache-dtype", "bf16", "--socket-mode", "600"),
			 CONFIG_RUN);
	assert_int_equal(c.n_models, 2);
	assert_string_equal(c.models[0].names[0], "a");
	assert_string_equal(c.models[0].path, "/x");
	assert_int_equal(c.models[0].engine.max_num_seqs, 7);
	assert_int_equal(c.models[0].engine.tp_size, 2);
	assert_int_equal(c.models[0].keep_alive, 300);
	assert_string_equal(config_weights[c.models[0].engine.weights], "w8");
	assert_false(c.models[0].pin);
	assert_string_equal(c.models[1].names[0], "b");
	assert_int_equal(c.models[1].engine.max_num_seqs, 9);
	assert_int_equal(c.models[1].engine.tp_size, 0);
	assert_int_equal(c.models[1].engine.kv_int8, 0);
	assert_int_equal(c.models[1].keep_alive, -1);
	assert_true(c.models[1].sleep_when_idle);
	assert_true(c.models[1].pin);
	assert_int_equal(c.max_queue, 2048);
	assert_int_equal(c.socket_mode, 0600);
	assert_int_equal(c.max_body, 8 << 20);
	assert_true(c.keep_weights);
	assert_non_null(c.socket);
	config_free(&c);
}

/* As people type them for other servers. */
TEST(other_spellings_are_understood)
{
	struct config c;

	assert_int_equal(LOAD(&c, "--hf_dir", "/models/m", "--max_tokens", "32", "--tp_size", "2",
			      "--enforce_eager"),
			 CONFIG_RUN);
	assert_string_equal(c.models[0].path, "/models/m");
	assert_int_equal(c.models[0].max_tokens, 32);
	assert_int_equal(c.models[0].engine.tp_size, 2);
	assert_true(c.enforce_eager);
	assert_false(c.chunked_prefill);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--tensor-parallel-size=4",
			      "--no-enable-chunked-prefill", "--max-tokens=8"),
			 CONFIG_RUN);
	assert_int_equal(c.models[0].engine.tp_size, 4);
	assert_int_equal(c.models[0].max_tokens, 8);
	assert_true(c.chunked_prefill);
	assert_false(c.enforce_eager);
	config_free(&c);
	/* A switch with true or false after it; the next word is an option again. */
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--enable-chunked-prefill", "true",
			      "--enforce-eager", "False", "--pin=true", "--strict=false",
			      "--no-fair-time"),
			 CONFIG_RUN);
	/* Given, that is: a note says why these have no effect. */
	assert_true(c.chunked_prefill && c.enforce_eager);
	assert_true(c.models[0].pin);
	assert_false(c.models[0].engine.fair_time);
	assert_false(c.strict);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--pin", "false", "--strict", "TRUE"),
			 CONFIG_RUN);
	assert_false(c.models[0].pin);
	assert_true(c.strict);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--pin", "yes"), CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--pin=yes"), CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "/models/m", "--no-pin", "true"), CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(
		LOAD(&c, "serve", "/models/m", "--served-model-name", "n", "--max-num-seqs", "3"),
		CONFIG_RUN);
	assert_int_equal(c.n_models, 1);
	assert_string_equal(c.models[0].path, "/models/m");
	assert_string_equal(c.models[0].names[1], "n");
	assert_int_equal(c.models[0].engine.max_num_seqs, 3);
	config_free(&c);
	assert_int_equal(LOAD(&c, "serve", "--model", "/models/m"), CONFIG_RUN);
	assert_int_equal(c.n_models, 1);
	config_free(&c);
	assert_int_equal(LOAD(&c, "serve"), CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(LOAD(&c, "serve", "a", "b"), CONFIG_ERROR);
	config_free(&c);
}

TEST(maps_and_chips_are_read)
{
	struct config c;

	assert_int_equal(LOAD(&c, "--map", "C4TP2B1", "--model", "a", "--model", "b", "--map",
			      "3,2,1,0;4,5,6,7", "--max-num-seqs", "4", "--model", "c", "--map",
			      "auto", "--device", "5,0,63", "--tp-size", "3"),
			 CONFIG_RUN);
	assert_string_equal(c.models[0].map.text, "C4TP2B1");
	assert_int_equal(c.models[0].engine.tp_size, 2);
	assert_int_equal(c.models[0].engine.max_num_seqs, 1);
	assert_int_equal(c.models[1].engine.tp_size, 4);
	assert_int_equal(c.models[1].engine.max_num_seqs, 4);
	assert_string_equal(c.models[2].map.text, "");
	assert_int_equal(c.models[2].engine.tp_size, 3);
	assert_int_equal(c.models[2].engine.max_num_seqs, 0);
	assert_int_equal(c.models[2].devices.n, 3);
	assert_int_equal(c.models[2].devices.chips[0], 5);
	assert_int_equal(c.models[2].devices.chips[2], 63);
	assert_int_equal(c.models[0].devices.n, 0);
	config_free(&c);
	/* What contradicts itself. */
	assert_int_equal(LOAD(&c, "--model", "a", "--map", "C4TP2", "--tp-size", "4"),
			 CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "a", "--map", "C4TP2", "--device", "0,1"),
			 CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(LOAD(&c, "--model", "a", "--tp-size", "2", "--device", "0,1,2"),
			 CONFIG_ERROR);
	config_free(&c);
}

TEST(wrong_values_are_refused)
{
	static const struct {
		const char *option, *value;
	} wrong[] = {
		{"--tp-size", "65"},
		{"--tp-size", "-1"},
		{"--tp-size", ""},
		{"--tp-size", "2x"},
		{"--tp-size", " 2"},
		{"--tp-size", "0x2"},
		{"--max-body", "18446744073709551615G"},
		{"--max-body", "99999999999999999999"},
		{"--max-body", "1023"},
		{"--max-body", "KK"},
		{"--socket-mode", "0888"},
		{"--socket-mode", "01000"},
		{"--weights", ""},
		{"--weights", "w"},
		{"--weights", "w8|w4"},
		{"--kv-cache-dtype", "auto|bf16"},
		{"--kv-cache-dtype", "fp8"},
		{"--keep-alive", "1y"},
		{"--log-level", "chatty"},
		{"--tool-call-parser", "other"},
		{"--served-model-name", ""},
		{"--served-model-name", "a\xff"},
		{"--served-model-name", "a\nb"},
		{"--served-model-name", "a\xc2\x85"},
		{"--model", "a\x1b=x"},
		{"--model", "/models/a\xff"},
		{"--model", "x="},
		{"--model", ""},
		{"--allow-user", "nobody of that name"},
		{"--device", ""},
		{"--device", "0,"},
		{"--device", ",0"},
		{"--device", "0 ,1"},
		{"--device", "0,0"},
		{"--device", "64"},
		{"--device", "-1"},
		{"--device", "99999999999999999999"},
		{"--map", ""},
		{"--map", "C4"},
		{"--map", "C4TP3"},
		{"--map", "C0TP2"},
		{"--map", "C4TP0"},
		{"--map", "C4TP"},
		{"--map", "C4TP2B"},
		{"--map", "C4TP2B0"},
		{"--map", "C4TP2B1x"},
		{"--map", "C9TP9"},
		{"--map", "C99999999999TP1"},
		{"--map", "0;1,2"},
		{"--map", "0,1;"},
		{"--map", "0,,1"},
		{"--map", "0,1,2,3,4,5,6,7,8"},
		{"--map", "0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23;24;25"},
		{"--help=yes", ""},
		{"--no-pin=yes", ""},
		{"-m", "x"},
		{"serve", "x"},
		{"--", "x"},
		{"--no-config", "x"},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct config c;

		if (LOAD(&c, "--model", "x", (char *)wrong[i].option, (char *)wrong[i].value) !=
		    CONFIG_ERROR)
			fail_msg("%s '%s' is accepted", wrong[i].option, wrong[i].value);
		config_free(&c);
	}
}

TEST(models_are_compared_and_copied_by_the_table)
{
	struct config a, b;
	struct config_model *copy;

	LOAD(&a, "--model", "m=/x", "--draft-model", "/d", "--keep-alive", "5m", "--pin",
	     "--served-model-name", "other");
	LOAD(&b, "--model", "m=/x", "--draft-model", "/d");
	assert_true(config_model_same(&a.models[0], &b.models[0]));
	copy = config_model_copy(&a.models[0]);
	assert_non_null(copy);
	assert_true(config_model_same(&a.models[0], copy));
	assert_int_equal(copy->n_names, 2);
	assert_int_equal(copy->keep_alive, 300);
	assert_true(copy->pin);
	assert_ptr_not_equal(copy->draft, a.models[0].draft);
	config_model_free(copy);
	config_free(&b);
	LOAD(&b, "--model", "m=/x", "--draft-model", "/e");
	assert_false(config_model_same(&a.models[0], &b.models[0]));
	config_free(&b);
	LOAD(&b, "--model", "m=/x");
	assert_false(config_model_same(&a.models[0], &b.models[0]));
	config_free(&b);
	LOAD(&b, "--model", "m=/x", "--draft-model", "/d", "--no-enable-prefix-caching");
	assert_false(config_model_same(&a.models[0], &b.models[0]));
	config_free(&b);
	config_free(&a);
}

TEST(a_reload_takes_what_it_can)
{
	struct config now, fresh;

	LOAD(&now, "--model", "m", "--max-queue", "5", "--allow-group", "1");
	LOAD(&fresh, "--model", "m", "--max-queue", "6", "--drain-seconds", "9", "--no-access-log",
	     "--allow-user", "77", "--log-level", "debug", "--socket", "/other");
	config_take(&now, &fresh);
	assert_int_equal(now.max_queue, 5);
	assert_string_not_equal(now.socket, "/other");
	assert_int_equal(now.drain_seconds, 9);
	assert_false(now.access_log);
	assert_int_equal(now.access.n_gids, 0);
	assert_int_equal(now.access.uids[0], 77);
	assert_int_equal(now.log_level, LOG_LEVEL_DEBUG);
	config_free(&fresh);
	config_free(&now);
}

/* Files --------------------------------------------------------------------------------------- */

static char path[80];

/* Writes the file and reads it by --config. */
static enum config_action load_file(const char *text, size_t len, struct config *ret)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	fclose(file);
	return LOAD(ret, "--config", path);
}

static bool take_nothing(void *arg, const struct option_given *given, char *why, size_t len)
{
	return true;
}

TEST(names_are_those_of_directories)
{
	static const char *const paths[] = {".",      "./",	   "../case/.",
					    "sub/..", "/tmp/../.", "..//case"};
	char dir[] = "/tmp/txda-test-XXXXXX", here[256];
	struct config c;

	assert_non_null(getcwd(here, sizeof(here)));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("case", 0700) | mkdir("case/sub", 0700) | chdir("case"), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
		if (!strcmp(paths[i], "/tmp/../.")) {
			/* The root has no name. */
			assert_int_equal(LOAD(&c, "--model", (char *)paths[i]), CONFIG_ERROR);
			config_free(&c);
			continue;
		}
		assert_int_equal(LOAD(&c, "--model", (char *)paths[i]), CONFIG_RUN);
		assert_string_equal(c.models[0].names[0], "case");
		assert_string_equal(c.models[0].path, paths[i]);
		config_free(&c);
	}
	assert_int_equal(rmdir("sub") | chdir("..") | rmdir("case") | rmdir(dir) | chdir(here), 0);
}

TEST(files_are_read)
{
	/* With the mark that some editors write. */
	static const char text[] =
		"\xEF\xBB\xBF# a comment\n\n  model = a = /x \r\n\ttp_size=2\nno-pin\n"
		"served_model_name = b";
	struct config c;

	assert_int_equal(load_file(text, strlen(text), &c), CONFIG_RUN);
	assert_string_equal(c.models[0].path, " /x");
	assert_string_equal(c.models[0].names[0], "a ");
	assert_string_equal(c.models[0].names[1], "b");
	assert_int_equal(c.models[0].engine.tp_size, 2);
	config_free(&c);
	assert_int_equal(load_file("\xEF\xBB\xBFmodel = /x", 13, &c), CONFIG_RUN);
	config_free(&c);
}

/* What the message says, and where. */
static void check_message(const char *text, size_t len, const char *words)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	fclose(file);
	*err = 0;
	assert_false(options_read_file(&config_table, path, take_nothing, NULL, err, sizeof(err)));
	if (!strstr(err, words) || !strstr(err, path))
		fail_msg("'%s' does not say '%s'", err, words);
}

TEST(switches_in_files)
{
	static const char text[] = "model = x\npin = true\nstrict = false\n";
	struct config c;

	assert_int_equal(load_file(text, strlen(text), &c), CONFIG_RUN);
	assert_true(c.models[0].pin);
	assert_false(c.strict);
	config_free(&c);
}

TEST(hostile_files_are_refused)
{
	struct config c;
	char *big = malloc(OPTIONS_FILE_MAX + 2);

	assert_non_null(big);
	memset(big, '#', OPTIONS_FILE_MAX + 2);
	check_message("pin\nbogus = 1\n", 14, ", line 2: unknown setting 'bogus'");
	check_message("max_quue = 1\n", 13, "'max_quue'; did you mean 'max-queue'?");
	check_message("model\n", 6, ", line 1: 'model' has no value");
	check_message("model =\n", 8, ", line 1: 'model' has no value");
	check_message("pin = yes\n", 10,
		      ", line 1: 'pin' takes no value but true or false, not 'yes'");
	check_message("= x\n", 4, ", line 1: unknown setting ''");
	check_message("pin\n\0\n", 6, ", line 2: the line contains a NUL byte");
	check_message("pin\0= x", 7, ", line 1: the line contains a NUL byte");
	check_message(big, OPTIONS_LINE_MAX + 1,
		      ", line 1: the line has 4097 bytes, the limit is 4096");
	check_message(big, OPTIONS_FILE_MAX + 1, "has more than 1048576 bytes");
	/* Exactly as much as can be: a comment of many lines. */
	for (unsigned i = 99; i < OPTIONS_FILE_MAX; i += 100)
		big[i] = '\n';
	big[OPTIONS_FILE_MAX - 1] = '\n';
	assert_int_equal(load_file(big, OPTIONS_FILE_MAX, &c), CONFIG_ERROR);
	config_free(&c);
	assert_true(options_read_file(&config_table, path, take_nothing, NULL, err, sizeof(err)));
	free(big);
	/* A file that names itself, and what belongs on the command line. */
	snprintf(err, sizeof(err), "model = x\nconfig = %s\n", path);
	assert_int_equal(load_file(err, strlen(err), &c), CONFIG_ERROR);
	config_free(&c);
	assert_int_equal(load_file("model = x\nhelp\n", 15, &c), CONFIG_ERROR);
	config_free(&c);
	assert_false(options_read_file(&config_table, "/", take_nothing, NULL, err, sizeof(err)));
	assert_string_equal(err, "cannot read /: Is a directory");
	assert_false(options_read_file(&config_table, "/nowhere/at/all", take_nothing, NULL, err,
				       sizeof(err)));
	assert_false(options_read_file(&config_table, "/dev/zero", take_nothing, NULL, err,
				       sizeof(err)));
}

static int make_directory(void **state)
{
	int r = test_dir_make(state);

	strcpy(path, at("file"));
	return r;
}

TEST_MAIN_ALL(make_directory, test_dir_remove)
