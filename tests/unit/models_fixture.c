// SPDX-License-Identifier: MIT
#include "models_fixture.h"

#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <unistd.h>

#include "case_reader.h"

static char root[64];
static struct event_base *base;
static struct models *table;
struct config test_config;
uint64_t test_cache_size;

static const char script[] =
	"#!/bin/sh\n"
	"if [ \"$1\" = --key ]; then\n"
	"	[ -f \"$2/no_key\" ] && { echo 'txda-compile: no such family' >&2; exit 1; }\n"
	"	{ cat \"$2/config.json\"; echo \"$2$3$4\"; } | md5sum | cut -d' ' -f1\n"
	"	exit 0\n"
	"fi\n"
	"echo run >> \"$1/runs\"\n"
	"echo \"$@\" > \"$1/arguments\"\n"
	"env > \"$1/environment\"\n"
	"ls /proc/$$/fd > \"$1/fds\"\n"
	"ulimit -c > \"$1/core\"\n"
	"echo 'progress 50 100' >&2\n"
	"case \"$(cat \"$1/behave\" 2>/dev/null)\" in\n"
	"fail) echo 'note: first' >&2; echo 'txda-compile: tensor a.b is missing' >&2; exit 1;;\n"
	"silent) exit 3;;\n"
	"crash) kill -SEGV $$;;\n"
	"hang) sleep 1000;;\n"
	"nothing) exit 0;;\n"
	"floods) mkdir \"$3\"; while :; do n=$((n + 1)); head -c 1000000 /dev/zero >\"$3/$n\"; "
	"sleep 0.02; done;;\n"
	"hides) mkdir \"$3\"; head -c 11000000 /dev/zero >\"$3/.x\"; echo '{}' "
	">\"$3/model_info.json\"; exit 0;;\n"
	"buries) mkdir -p \"$3/$(seq -s / 40)\"; echo x >\"$3/$(seq -s / 40)/x\"; mkdir "
	"\"$3/moved-0\";\n"
	"	echo '{}' >\"$3/model_info.json\"; exit 0;;\n"
	"crowds) mkdir \"$3\"; cd \"$3\"; seq 3000 | xargs touch model_info.json; exit 0;;\n"
	"large) mkdir \"$3\"; head -c 6000000 /dev/zero >\"$3/x\" && echo '{}' "
	">\"$3/model_info.json\"; "
	"exit;;\n"
	"slow) sleep 0.3;;\n"
	"esac\n"
	"rm -rf \"$3\"; mkdir \"$3\" && echo '{}' > \"$3/model_info.json\"\n";

/* ---- directories ----------------------------------------------------------------------------- */

char *at(const char *name)
{
	static char paths[8][256];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
	return path;
}

void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

void get(const char *name, char *text, size_t len)
{
	int fd = open(at(name), O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, text, len - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
}

void make_hf(const char *name, const char *behave)
{
	char path[128];

	assert_int_equal(mkdir(at(name), 0755), 0);
	snprintf(path, sizeof(path), "%s/config.json", name);
	put(path, "{}", 0644);
	snprintf(path, sizeof(path), "%s/behave", name);
	put(path, behave, 0644);
}

void make_case(const char *name)
{
	char path[128];

	assert_int_equal(mkdir(at(name), 0755), 0);
	snprintf(path, sizeof(path), "%s/model_info.json", name);
	put(path, "{}", 0644);
}

static void remove_all(const char *path)
{
	char inner[512];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (unlink(inner))
			remove_all(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

unsigned runs(const char *name)
{
	char path[128], text[512];

	snprintf(path, sizeof(path), "%s/runs", name);
	if (access(at(path), F_OK))
		return 0;
	get(path, text, sizeof(text));
	return (unsigned)strlen(text) / 4;
}

/* It reads what case dirs and checkpoints bring. */
static void find_text_program(void)
{
	const char *program = getenv("TXDAD_TEXT"), *path = getenv("PATH");
	static bool found;
	char text[8192];

	assert_non_null(program);
	if (found)
		return;
	found = true;
	snprintf(text, sizeof(text), "%.*s:%s", (int)(strrchr(program, '/') - program), program,
		 path ? path : "");
	setenv("PATH", text, 1);
	case_reader_use();
}

int set_up(void **state)
{
	find_text_program();
	snprintf(root, sizeof(root), "/tmp/test_models.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("compiler", script, 0755);
	fake_model_config = fake_model_small();
	fake_model_config.info.tp = 1;
	fake_plan.tp = 1;
	fake_model_load_error = 0;
	fake_model_fail_group = NULL;
	memset(fake_chip_lost, 0, sizeof(fake_chip_lost));
	memset(fake_chip_used, 0, sizeof(fake_chip_used));
	test_config = (struct config){.load_timeout = 300};
	test_cache_size = 0;
	base = event_base_new();
	return !base;
}

int tear_down(void **state)
{
	close_table();
	remove_all(root);
	event_base_free(base);
	return atomic_load(&fake_groups) || atomic_load(&fake_model_loaded) ||
	       atomic_load(&fake_model_violations);
}

/* ---- the table ------------------------------------------------------------------------------- */

static int load_text(const char *dir, const struct engine_limits *limits,
		     const struct model_spec *spec, bool must_fit, const struct config *config,
		     const atomic_bool *stop, struct model_text **ret, char *err, size_t errlen)
{
	if (strstr(dir, "speechless")) {
		snprintf(err, errlen, "there is no tokeniser");
		return -ENOENT;
	}
	*ret = (struct model_text *)strdup(dir);
	return *ret ? 0 : -ENOMEM;
}

static void free_text(struct model_text *text)
{
	free(text);
}

static void set_context(struct model_text *text, unsigned max_context)
{
	assert_true(max_context > 0);
}

void give_to(const char *name, uid_t uid)
{
	assert_int_equal(chown(at(name), uid, (gid_t)-1), 0);
}

struct models *open_table(unsigned compile_seconds)
{
	static const struct model_text_ops text = {load_text, free_text, set_context};
	const struct models_options options = {
		.base = base,
		.context = fake_context,
		.config = &test_config,
		.text = &text,
		.cache_dir = at("cache"),
		.cache_size = test_cache_size,
		.compiler = at("compiler"),
		.compile_seconds = compile_seconds,
	};
	struct models *t = NULL;
	char err[256] = "";

	assert_null(table);
	assert_int_equal(models_new(&options, &t, err, sizeof(err)), 0);
	return table = t;
}

void close_table(void)
{
	models_free(table);
	table = NULL;
}

struct config_model *new_config(const char *name, const char *path)
{
	struct config_model *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->names[0] = strdup(name);
	c->n_names = 1;
	c->path = strdup(path);
	c->on_demand = 1;
	c->data_parallel = 1;
	c->keep_alive = -1;
	assert_true(c->names[0] && c->path);
	return c;
}

struct served_model *add_config(struct models *t, struct config_model *c)
{
	struct model_found found;
	struct model_spec spec;
	char err[512] = "";
	int error;

	models_spec(c, &spec);
	error = source_look(fake_context, &spec, &found, err, sizeof(err));
	assert_int_equal(model_add(t, c, error ? NULL : &found, err), 0);
	models_pump(t);
	return t->all[t->n - 1];
}

struct served_model *add(struct models *t, const char *name)
{
	return add_config(t, new_config(name, at(name)));
}

struct served_model *add_case(struct models *t, const char *name)
{
	make_case(name);
	return add(t, name);
}

struct served_model *add_hf(struct models *t, const char *name, const char *behave)
{
	make_hf(name, behave);
	return add(t, name);
}

/* ---- waiting --------------------------------------------------------------------------------- */

void turn_loop(void)
{
	assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	usleep(500);
}

void wait_state(struct served_model *m, enum model_state state)
{
	for (unsigned i = 0; i < 40000 && m->state != state; i++)
		turn_loop();
	assert_int_equal(m->state, state);
}

static bool is_busy(const struct models *t)
{
	bool busy = t->departures;

	for (unsigned i = 0; i < MODELS_LOADERS; i++)
		busy = busy || loader_current(t->loaders[i]);
	return busy;
}

void wait_loader(struct models *t)
{
	for (unsigned i = 0; i < 40000 && is_busy(t); i++)
		turn_loop();
	assert_false(is_busy(t));
}

enum model_state load(struct served_model *m)
{
	model_demand(m);
	while (m->state == MODEL_COMPILING || m->state == MODEL_LOADING) {
		turn_loop();
		/* What is due once a second, sooner. */
		m->replicas[0].retry_ns = 0;
		models_pump(m->table);
	}
	return m->state;
}

static void on_woken(struct model_waiter *w, enum model_wake why)
{
	struct outcome *o = (struct outcome *)w;

	o->calls++;
	o->why = why;
}

void begin_wait(struct served_model *m, struct outcome *o)
{
	*o = (struct outcome){.waiter.wake = on_woken};
	assert_int_equal(model_park(m, &o->waiter), 0);
	model_demand(m);
}

enum model_wake end_wait(struct outcome *o)
{
	for (unsigned i = 0; i < 40000 && !o->calls; i++)
		turn_loop();
	assert_int_equal(o->calls, 1);
	return o->why;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void on_news(struct client *client)
{
	struct test_request *r = (struct test_request *)client;

	if (!r->ended && atomic_load(&r->request->finish)) {
		r->ended = true;
		replica_request_ended(client->replica);
	}
}

int begin_request(struct served_model *m, struct test_request *r, unsigned max_tokens)
{
	const struct engine_sampling s = {.top_p = 1, .logprobs = -1, .max_tokens = max_tokens};
	int32_t prompt[] = {1, 2, 3};
	char err[128] = "";

	*r = (struct test_request){.client.news = on_news};
	assert_int_equal(engine_request_new(prompt, 3, &s, false, &r->request), 0);
	return model_submit(m, r->request, &r->client, err, sizeof(err));
}

enum engine_finish end_request(struct test_request *r)
{
	enum engine_finish how;

	for (unsigned i = 0; i < 40000 && !r->ended; i++)
		turn_loop();
	assert_true(r->ended);
	how = (enum engine_finish)atomic_load(&r->request->finish);
	engine_request_unref(r->request);
	return how;
}

void run_request(struct served_model *m)
{
	struct test_request r;

	assert_int_equal(begin_request(m, &r, 5), 0);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
}
