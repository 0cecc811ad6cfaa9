// SPDX-License-Identifier: MIT
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/duration.h"
#include "server/model_text.h"

#define MAX_LINE 4096

enum option_id {
	OPT_MODEL = 256,
	OPT_SERVED_NAME,
	OPT_DRAFT,
	OPT_SPECULATIVE,
	OPT_SPECULATIVE_TOKENS,
	OPT_SPECULATIVE_SEQS,
	OPT_SOCKET,
	OPT_SOCKET_MODE,
	OPT_SOCKET_GROUP,
	OPT_TP,
	OPT_WEIGHTS,
	OPT_KV_DTYPE,
	OPT_EXPERT_PARALLEL,
	OPT_NO_EXPERT_PARALLEL,
	OPT_MAX_LEN,
	OPT_MAX_SEQS,
	OPT_MAX_TOKENS,
	OPT_PREFIX_CACHING,
	OPT_NO_PREFIX_CACHING,
	OPT_KEEP_WEIGHTS,
	OPT_NO_KEEP_WEIGHTS,
	OPT_CACHE_DIR,
	OPT_MAX_BODY,
	OPT_MAX_MEMORY,
	OPT_MAX_CONNECTIONS,
	OPT_MAX_QUEUE,
	OPT_DRAIN,
	OPT_STALL,
	OPT_TOOL_PARSER,
	OPT_REASONING_PARSER,
	OPT_MODEL_USER,
	OPT_MODEL_GROUP,
	OPT_ALLOW_USER,
	OPT_ALLOW_GROUP,
	OPT_ADMIN_USER,
	OPT_ADMIN_GROUP,
	OPT_KEEP_ALIVE,
	OPT_WHEN_IDLE,
	OPT_LOAD,
	OPT_PIN,
	OPT_NO_PIN,
	OPT_KV_MEMORY,
	OPT_DATA_PARALLEL,
	OPT_LOAD_TIMEOUT,
	OPT_REQUEST_TIMEOUT,
	OPT_MAX_STALL,
	OPT_CROWD,
	OPT_ACCESS_LOG,
	OPT_NO_ACCESS_LOG,
	OPT_STATUS,
	OPT_LOG_LEVEL,
	OPT_CONFIG,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option options[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"served-model-name", required_argument, NULL, OPT_SERVED_NAME},
	{"draft-model", required_argument, NULL, OPT_DRAFT},
	{"speculative", required_argument, NULL, OPT_SPECULATIVE},
	{"num-speculative-tokens", required_argument, NULL, OPT_SPECULATIVE_TOKENS},
	{"speculative-max-seqs", required_argument, NULL, OPT_SPECULATIVE_SEQS},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"socket-mode", required_argument, NULL, OPT_SOCKET_MODE},
	{"socket-group", required_argument, NULL, OPT_SOCKET_GROUP},
	{"tp-size", required_argument, NULL, OPT_TP},
	{"weights", required_argument, NULL, OPT_WEIGHTS},
	{"kv-cache-dtype", required_argument, NULL, OPT_KV_DTYPE},
	{"enable-expert-parallel", no_argument, NULL, OPT_EXPERT_PARALLEL},
	{"no-enable-expert-parallel", no_argument, NULL, OPT_NO_EXPERT_PARALLEL},
	{"max-model-len", required_argument, NULL, OPT_MAX_LEN},
	{"max-num-seqs", required_argument, NULL, OPT_MAX_SEQS},
	{"max-num-batched-tokens", required_argument, NULL, OPT_MAX_TOKENS},
	{"enable-prefix-caching", no_argument, NULL, OPT_PREFIX_CACHING},
	{"no-enable-prefix-caching", no_argument, NULL, OPT_NO_PREFIX_CACHING},
	{"keep-weights", no_argument, NULL, OPT_KEEP_WEIGHTS},
	{"no-keep-weights", no_argument, NULL, OPT_NO_KEEP_WEIGHTS},
	{"cache-dir", required_argument, NULL, OPT_CACHE_DIR},
	{"max-body", required_argument, NULL, OPT_MAX_BODY},
	{"max-memory", required_argument, NULL, OPT_MAX_MEMORY},
	{"max-connections", required_argument, NULL, OPT_MAX_CONNECTIONS},
	{"max-queue", required_argument, NULL, OPT_MAX_QUEUE},
	{"drain-seconds", required_argument, NULL, OPT_DRAIN},
	{"stall-seconds", required_argument, NULL, OPT_STALL},
	{"tool-call-parser", required_argument, NULL, OPT_TOOL_PARSER},
	{"reasoning-parser", required_argument, NULL, OPT_REASONING_PARSER},
	{"model-user", required_argument, NULL, OPT_MODEL_USER},
	{"model-group", required_argument, NULL, OPT_MODEL_GROUP},
	{"allow-user", required_argument, NULL, OPT_ALLOW_USER},
	{"allow-group", required_argument, NULL, OPT_ALLOW_GROUP},
	{"admin-user", required_argument, NULL, OPT_ADMIN_USER},
	{"admin-group", required_argument, NULL, OPT_ADMIN_GROUP},
	{"keep-alive", required_argument, NULL, OPT_KEEP_ALIVE},
	{"when-idle", required_argument, NULL, OPT_WHEN_IDLE},
	{"load", required_argument, NULL, OPT_LOAD},
	{"pin", no_argument, NULL, OPT_PIN},
	{"no-pin", no_argument, NULL, OPT_NO_PIN},
	{"kv-cache-memory", required_argument, NULL, OPT_KV_MEMORY},
	{"data-parallel-size", required_argument, NULL, OPT_DATA_PARALLEL},
	{"load-timeout", required_argument, NULL, OPT_LOAD_TIMEOUT},
	{"request-timeout", required_argument, NULL, OPT_REQUEST_TIMEOUT},
	{"max-stall-ms", required_argument, NULL, OPT_MAX_STALL},
	{"crowd-percent", required_argument, NULL, OPT_CROWD},
	{"access-log", no_argument, NULL, OPT_ACCESS_LOG},
	{"no-access-log", no_argument, NULL, OPT_NO_ACCESS_LOG},
	{"status-seconds", required_argument, NULL, OPT_STATUS},
	{"log-level", required_argument, NULL, OPT_LOG_LEVEL},
	{"config", required_argument, NULL, OPT_CONFIG},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{0},
};

static const char help[] =
	"Usage: txdad --model [NAME=]PATH [OPTION...]\n"
	"Keeps models resident on TX8 chips and serves them over a Unix socket, in OpenAI's "
	"terms.\n"
	"\n"
	"Models\n"
	"  --model [NAME=]PATH         Hugging Face directory or case dir; NAME: what requests "
	"call it (default: the last part of PATH).\n"
	"                              May be given several times.\n"
	"  --served-model-name NAME    a further name for the model before it\n"
	"  --cache-dir DIR             where compiled models go (default: $CACHE_DIRECTORY, "
	"$XDG_CACHE_HOME/txda, ~/.cache/txda)\n"
	"  --tool-call-parser NAME     how the model before it writes tool calls: hermes, "
	"llama3_json, "
	"pythonic,\n"
	"                              deepseek_v3, none, or auto (default)\n"
	"  --reasoning-parser NAME     qwen3, deepseek_r1, none, or auto (default)\n"
	"\n"
	"How a model is compiled and run (for the model before it; before the first one: for all)\n"
	"  --tp-size N                 chips that share the model (default: as it says)\n"
	"  --weights keep|bf16|w8|w4   form of the weights on the chip (default: keep)\n"
	"  --kv-cache-dtype auto|int8  of keys and values in the cache (default: auto, which is "
	"bf16)\n"
	"  --[no-]enable-expert-parallel  chips have whole experts rather than a part of each "
	"(default: no)\n"
	"  --max-model-len N           tokens of a request, prompt and answer (default: the "
	"model's)\n"
	"  --max-num-seqs N            sequences in one step (default: 256)\n"
	"  --max-num-batched-tokens N  tokens in one step (default: 2048)\n"
	"  --max-stall-ms N            how long a step may keep streams waiting for parts of new "
	"prompts, about\n"
	"                              (default: 200; 0: as long as it takes)\n"
	"  --crowd-percent N           while other users come and go, how long a step is of one "
	"with "
	"many requests, in percent\n"
	"                              of a step for the others' first tokens (default: 100; 0: as "
	"long as it takes)\n"
	"  --[no-]enable-prefix-caching  reuse of the work on equal beginnings (default: on)\n"
	"\n"
	"Speculative decoding (likewise; changes no result, only the time it takes)\n"
	"  --draft-model PATH|mtp      a small model with the same vocabulary that proposes tokens "
	"for the model before it;\n"
	"                              mtp: its own layer for that (DeepSeek-V3)\n"
	"  --speculative ngram|off     for models without one: propose what followed the last "
	"tokens "
	"before (default: off)\n"
	"  --num-speculative-tokens N  proposed at a time, at most 16 (default: 4)\n"
	"  --speculative-max-seqs N    no proposals while more sequences run (default: 8)\n"
	"\n"
	"Which models are on the chips (likewise)\n"
	"  --load start|demand         loaded at the start, or by the first request (default: "
	"start)\n"
	"  --keep-alive TIME           how long without a request until it goes: 90, 5m, 2h, 0, or "
	"-1: for ever (default)\n"
	"  --when-idle unload|sleep    what then: off the chips, or into host memory (default: "
	"unload)\n"
	"  --[no-]pin                  never goes for others, nor for idling (default: no)\n"
	"  --kv-cache-memory BYTES     of a chip, for its KV cache (default: its share of what is "
	"left)\n"
	"  --data-parallel-size N      copies on as many groups of chips, at most 8 (default: 1)\n"
	"  --[no-]keep-weights         they stay on the chips while the daemon restarts, where "
	"somebody "
	"holds them\n"
	"                              for it: systemd, txda-holder (default: yes)\n"
	"  --load-timeout SECONDS      how long requests wait for a model that is not loaded "
	"(default: 300)\n"
	"\n"
	"Who may do what (users and groups by name or number; each may be given several times)\n"
	"  --allow-user, --allow-group   use the daemon (default: everybody who can connect)\n"
	"  --model-user, --model-group   use the model before it (default: everybody)\n"
	"  --admin-user, --admin-group   load and unload models, see all requests (default: root "
	"and "
	"the daemon's user)\n"
	"\n"
	"Socket\n"
	"  --socket PATH               default: /run/txda/txda.sock for root, else "
	"$XDG_RUNTIME_DIR/txda.sock\n"
	"  --socket-mode MODE          default: 0660\n"
	"  --socket-group GROUP        default: the daemon's\n"
	"\n"
	"Limits\n"
	"  --request-timeout SECONDS   how long a request may take in all (default: 0: no limit)\n"
	"  --max-queue N               requests that may wait; more get 429 (default: 1024)\n"
	"  --max-body BYTES            largest body of a request (default: 8M; K, M, G are "
	"understood)\n"
	"  --max-memory BYTES          held for the requests of all clients together (default: "
	"1G)\n"
	"  --max-connections N         default: 1024\n"
	"  --stall-seconds N           a client that reads nothing of its answer for so long is "
	"disconnected\n"
	"                              (default: 300)\n"
	"  --drain-seconds N           how long running requests may go on after SIGTERM (default: "
	"30)\n"
	"\n"
	"  --[no-]access-log           a line in the log for each request (default: on)\n"
	"  --status-seconds N          between lines on what goes on (default: 10; 0: none)\n"
	"  --log-level LEVEL           error, warning, info or debug (default: info)\n"
	"  --config FILE               read settings from FILE first, a line each: OPTION = VALUE\n"
	"  --help, --version\n";

__attribute__((format(printf, 1, 2))) static bool complain(const char *format, ...)
{
	va_list args;

	fputs("txdad: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\nTry 'txdad --help'.\n", stderr);
	return false;
}

static bool set_string(char **where, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return complain("out of memory");
	free(*where);
	*where = copy;
	return true;
}

static bool set_number(const char *name, const char *value, uint64_t min, uint64_t max,
		       uint64_t *ret)
{
	uint64_t n, factor = 1;
	char *end;

	errno = 0;
	n = strtoull(value, &end, 10);
	switch (*end) {
	case 'K':
		factor = 1ull << 10;
		end++;
		break;
	case 'M':
		factor = 1ull << 20;
		end++;
		break;
	case 'G':
		factor = 1ull << 30;
		end++;
		break;
	default: break;
	}
	if (errno || end == value || *end || *value == '-' || n > UINT64_MAX / factor ||
	    n * factor < min || n * factor > max)
		return complain("--%s must be a number between %llu and %llu, not %s", name,
				(unsigned long long)min, (unsigned long long)max, value);
	*ret = n * factor;
	return true;
}

static bool set_unsigned(const char *name, const char *value, unsigned min, unsigned max,
			 unsigned *ret)
{
	uint64_t n;

	if (!set_number(name, value, min, max, &n))
		return false;
	*ret = (unsigned)n;
	return true;
}

static bool name_taken(const struct config *c, const char *name)
{
	for (unsigned i = 0; i < c->n_models; i++)
		for (unsigned k = 0; k < c->models[i].n_names; k++)
			if (!strcmp(c->models[i].names[k], name))
				return true;
	return false;
}

static bool add_name(struct config *c, const char *name)
{
	struct config_model *m = &c->models[c->n_models - 1];

	if (!*name || strlen(name) > 200)
		return complain("a model's name must have 1 to 200 characters: '%s'", name);
	if (name_taken(c, name))
		return complain("two models are called '%s'", name);
	if (m->n_names == CONFIG_MAX_NAMES)
		return complain("more than %d names for one model", CONFIG_MAX_NAMES);
	if (!set_string(&m->names[m->n_names], name))
		return false;
	m->n_names++;
	return true;
}

/* NAME=PATH, or PATH alone, which is then named after its last part. */
static bool add_model(struct config *c, const char *value)
{
	const char *equals = strchr(value, '='), *slash = strchr(value, '/');
	const char *path = value;
	char name[256];

	if (c->n_models == CONFIG_MAX_MODELS)
		return complain("more than %d models", CONFIG_MAX_MODELS);
	if (equals && (!slash || equals < slash)) {
		path = equals + 1;
		snprintf(name, sizeof(name), "%.*s", (int)(equals - value), value);
	} else {
		size_t len = strlen(value), start;

		while (len > 1 && value[len - 1] == '/')
			len--;
		for (start = len; start && value[start - 1] != '/'; start--)
			;
		snprintf(name, sizeof(name), "%.*s", (int)(len - start), value + start);
	}
	if (!*path)
		return complain("--model %s has no path", value);
	c->models[c->n_models++] = c->defaults;
	return set_string(&c->models[c->n_models - 1].path, path) && add_name(c, name);
}

static bool set_draft(struct config *c, const char *value)
{
	if (!c->n_models)
		return complain("--draft-model comes after the --model that it proposes for");
	return set_string(&c->models[c->n_models - 1].draft, value);
}

static bool set_mode(const char *value, mode_t *ret)
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);

	if (end == value || *end || *value == '-' || mode > 0777)
		return complain("--socket-mode must be an octal number up to 0777, not %s", value);
	*ret = (mode_t)mode;
	return true;
}

static bool set_log_level(struct config *c, const char *value)
{
	if (!log_level_parse(value, &c->log_level))
		return complain("--log-level must be error, warning, info or debug, not %s", value);
	return true;
}

static bool set_parser(struct config *c, const char *name, const char *value, bool tools)
{
	enum reply_tools format;
	bool reasoning;

	if (!c->n_models)
		return complain("--%s comes after the --model that it is for", name);
	if (tools ? !model_text_tool_parser(value, &format)
		  : !model_text_reasoning_parser(value, &reasoning))
		return complain("--%s must be %s, none or auto, not %s", name,
				tools ? "hermes, llama3_json, pythonic, deepseek_v3"
				      : "qwen3, deepseek_r1",
				value);
	return set_string(tools ? &c->models[c->n_models - 1].tool_parser
				: &c->models[c->n_models - 1].reasoning_parser,
			  value);
}

/* A user or a group of one of the lists. */
static bool add_access(struct config *c, int id, const char *name, const char *value)
{
	bool group = id == OPT_MODEL_GROUP || id == OPT_ALLOW_GROUP || id == OPT_ADMIN_GROUP;
	bool admin = id == OPT_ADMIN_USER || id == OPT_ADMIN_GROUP;
	struct access_list *list = admin ? &c->admin : &c->access;
	int r;

	if (id == OPT_MODEL_USER || id == OPT_MODEL_GROUP) {
		if (!c->n_models)
			return complain("--%s comes after the --model that it is for", name);
		list = &c->models[c->n_models - 1].access;
	}
	r = group ? access_add_group(list, value) : access_add_user(list, value);
	if (r == -ENOENT)
		return complain("--%s: there is no %s '%s'", name, group ? "group" : "user", value);
	return !r || complain("--%s is given more than %d times", name, ACCESS_MAX);
}

static bool set_weights(struct config_engine *e, const char *value)
{
	bool keep = !strcmp(value, "keep");

	if (!keep && strcmp(value, "bf16") && strcmp(value, "w8") && strcmp(value, "w4"))
		return complain("--weights must be keep, bf16, w8 or w4, not %s", value);
	snprintf(e->weights, sizeof(e->weights), "%s", keep ? "" : value);
	return true;
}

/* How a model is compiled and run. */
static bool apply_engine(struct config_engine *e, int id, const char *name, const char *value)
{
	switch (id) {
	case OPT_TP: return set_unsigned(name, value, 0, 64, &e->tp_size);
	case OPT_WEIGHTS: return set_weights(e, value);
	case OPT_KV_DTYPE:
		e->kv_int8 = !strcmp(value, "int8");
		return e->kv_int8 || !strcmp(value, "auto") || !strcmp(value, "bf16") ||
		       complain("--%s must be auto, bf16 or int8, not %s", name, value);
	case OPT_EXPERT_PARALLEL:
	case OPT_NO_EXPERT_PARALLEL: e->expert_parallel = id == OPT_EXPERT_PARALLEL; return true;
	case OPT_MAX_LEN: return set_unsigned(name, value, 0, 1u << 24, &e->max_model_len);
	case OPT_MAX_SEQS: return set_unsigned(name, value, 1, 65536, &e->max_num_seqs);
	case OPT_MAX_TOKENS:
		return set_unsigned(name, value, 1, 1u << 24, &e->max_num_batched_tokens);
	case OPT_MAX_STALL: return set_unsigned(name, value, 0, 3600000, &e->max_stall_ms);
	case OPT_CROWD: return set_unsigned(name, value, 0, 100000, &e->crowd_percent);
	case OPT_PREFIX_CACHING:
	case OPT_NO_PREFIX_CACHING: e->prefix_caching = id == OPT_PREFIX_CACHING; return true;
	case OPT_SPECULATIVE:
		e->speculate_ngram = !strcmp(value, "ngram");
		return e->speculate_ngram || !strcmp(value, "off") ||
		       complain("--%s must be ngram or off, not %s", name, value);
	case OPT_SPECULATIVE_TOKENS:
		return set_unsigned(name, value, 1, 16, &e->speculative_tokens);
	default: return set_unsigned(name, value, 1, 65536, &e->speculative_max_seqs);
	}
}

/* Which models are on the chips, and how. */
static bool apply_to(struct config_model *m, int id, const char *name, const char *value)
{
	switch (id) {
	case OPT_KEEP_ALIVE:
		return duration_parse(value, &m->keep_alive) ||
		       complain("--%s must be seconds, a time like 5m or 2h, or -1, not %s", name,
				value);
	case OPT_WHEN_IDLE:
		m->sleep_when_idle = !strcmp(value, "sleep");
		return m->sleep_when_idle || !strcmp(value, "unload") ||
		       complain("--%s must be unload or sleep, not %s", name, value);
	case OPT_LOAD:
		m->on_demand = !strcmp(value, "demand");
		return m->on_demand || !strcmp(value, "start") ||
		       complain("--%s must be start or demand, not %s", name, value);
	case OPT_PIN:
	case OPT_NO_PIN: m->pin = id == OPT_PIN; return true;
	case OPT_KV_MEMORY: return set_number(name, value, 0, 1ull << 50, &m->kv_memory);
	case OPT_DATA_PARALLEL:
		return set_unsigned(name, value, 1, CONFIG_MAX_REPLICAS, &m->data_parallel);
	default: return apply_engine(&m->engine, id, name, value);
	}
}

/* What is a model's own: of the one before it, or of all. */
static bool apply_model(struct config *c, int id, const char *name, const char *value)
{
	bool ok;

	if (c->n_models > c->n_before)
		return apply_to(&c->models[c->n_models - 1], id, name, value);
	ok = apply_to(&c->defaults, id, name, value);
	for (unsigned i = 0; i < c->n_models && ok; i++)
		ok = apply_to(&c->models[i], id, name, value);
	return ok;
}

static bool apply(struct config *c, int id, const char *name, const char *value)
{
	switch (id) {
	case OPT_MODEL: return add_model(c, value);
	case OPT_SERVED_NAME:
		if (!c->n_models)
			return complain(
				"--served-model-name comes after the --model that it names");
		return add_name(c, value);
	case OPT_DRAFT: return set_draft(c, value);
	case OPT_SOCKET: return set_string(&c->socket, value);
	case OPT_SOCKET_MODE: return set_mode(value, &c->socket_mode);
	case OPT_SOCKET_GROUP: return set_string(&c->socket_group, value);
	case OPT_KEEP_WEIGHTS: c->keep_weights = true; return true;
	case OPT_NO_KEEP_WEIGHTS: c->keep_weights = false; return true;
	case OPT_CACHE_DIR: return set_string(&c->cache_dir, value);
	case OPT_MAX_BODY: return set_number(name, value, 1024, 1ull << 30, &c->max_body);
	case OPT_MAX_MEMORY: return set_number(name, value, 1ull << 20, 1ull << 50, &c->max_memory);
	case OPT_MAX_CONNECTIONS:
		return set_unsigned(name, value, 1, 1u << 20, &c->max_connections);
	case OPT_MAX_QUEUE: return set_unsigned(name, value, 1, 1u << 20, &c->max_queue);
	case OPT_DRAIN: return set_unsigned(name, value, 0, 86400, &c->drain_seconds);
	case OPT_STALL: return set_unsigned(name, value, 1, 86400, &c->stall_seconds);
	case OPT_TOOL_PARSER: return set_parser(c, name, value, true);
	case OPT_REASONING_PARSER: return set_parser(c, name, value, false);
	case OPT_MODEL_USER:
	case OPT_MODEL_GROUP:
	case OPT_ALLOW_USER:
	case OPT_ALLOW_GROUP:
	case OPT_ADMIN_USER:
	case OPT_ADMIN_GROUP: return add_access(c, id, name, value);
	case OPT_KEEP_ALIVE:
	case OPT_WHEN_IDLE:
	case OPT_LOAD:
	case OPT_PIN:
	case OPT_NO_PIN:
	case OPT_KV_MEMORY:
	case OPT_DATA_PARALLEL:
	case OPT_TP:
	case OPT_WEIGHTS:
	case OPT_KV_DTYPE:
	case OPT_EXPERT_PARALLEL:
	case OPT_NO_EXPERT_PARALLEL:
	case OPT_MAX_LEN:
	case OPT_MAX_SEQS:
	case OPT_MAX_TOKENS:
	case OPT_MAX_STALL:
	case OPT_CROWD:
	case OPT_PREFIX_CACHING:
	case OPT_NO_PREFIX_CACHING:
	case OPT_SPECULATIVE:
	case OPT_SPECULATIVE_TOKENS:
	case OPT_SPECULATIVE_SEQS: return apply_model(c, id, name, value);
	case OPT_REQUEST_TIMEOUT: return set_unsigned(name, value, 0, 86400, &c->request_timeout);
	case OPT_LOAD_TIMEOUT: return set_unsigned(name, value, 1, 86400, &c->load_timeout);
	case OPT_ACCESS_LOG: c->access_log = true; return true;
	case OPT_NO_ACCESS_LOG: c->access_log = false; return true;
	case OPT_STATUS: return set_unsigned(name, value, 0, 86400, &c->status_seconds);
	case OPT_LOG_LEVEL: return set_log_level(c, value);
	default: return complain("--%s cannot stand in a file", name);
	}
}

static char *trim(char *s)
{
	size_t len;

	s += strspn(s, " \t\r\n");
	for (len = strlen(s); len && strchr(" \t\r\n", s[len - 1]); len--)
		;
	s[len] = 0;
	return s;
}

static const struct option *find_option(const char *name)
{
	for (const struct option *o = options; o->name; o++)
		if (!strcmp(o->name, name))
			return o;
	return NULL;
}

static bool apply_line(struct config *c, char *line, const char *path, unsigned number)
{
	char *name = trim(line), *value;
	const struct option *o;

	if (!*name || *name == '#')
		return true;
	value = strchr(name, '=');
	if (value)
		*value++ = 0;
	name = trim(name);
	value = value ? trim(value) : NULL;
	o = find_option(name);
	if (!o)
		return complain("%s, line %u: there is no setting '%s'", path, number, name);
	if (o->has_arg == required_argument && (!value || !*value))
		return complain("%s, line %u: '%s' has no value", path, number, name);
	if (o->has_arg == no_argument && value)
		return complain("%s, line %u: '%s' takes no value", path, number, name);
	return apply(c, o->val, o->name, value) ||
	       complain("(that was line %u of %s)", number, path);
}

static bool read_file(struct config *c, const char *path)
{
	FILE *file = fopen(path, "re");
	char line[MAX_LINE];
	bool ok = true;

	if (!file)
		return complain("cannot read %s: %s", path, strerror(errno));
	c->n_before = c->n_models;
	for (unsigned number = 1; ok && fgets(line, sizeof(line), file); number++) {
		if (strlen(line) == sizeof(line) - 1)
			ok = complain("%s, line %u is longer than %zu bytes", path, number,
				      sizeof(line) - 2);
		else
			ok = apply_line(c, line, path, number);
	}
	if (ok && ferror(file))
		ok = complain("cannot read %s: %s", path, strerror(errno));
	fclose(file);
	return ok;
}

/* The file comes first wherever --config stands, so that the command line has the last word. */
static bool read_config_files(struct config *c, int argc, char **argv)
{
	int id;

	optind = 1;
	opterr = 0;
	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (id == OPT_CONFIG && (!set_string(&c->file, optarg) || !read_file(c, optarg)))
			return false;
	return true;
}

static bool default_socket(struct config *c)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char path[512];

	if (c->socket)
		return true;
	if (geteuid() && dir && *dir == '/')
		snprintf(path, sizeof(path), "%s/txda.sock", dir);
	else
		snprintf(path, sizeof(path), "/run/txda/txda.sock");
	return set_string(&c->socket, path);
}

enum config_action config_load(int argc, char **argv, struct config *ret)
{
	int id, index;

	*ret = (struct config){
		.socket_mode = 0660,
		.keep_weights = true,
		.max_body = 8u << 20,
		.max_memory = 1ull << 30,
		.max_connections = 1024,
		.drain_seconds = 30,
		.stall_seconds = 300,
		.defaults = {.keep_alive = -1,
			     .data_parallel = 1,
			     .engine = {.prefix_caching = true,
					.max_stall_ms = 200,
					.crowd_percent = 100}},
		.load_timeout = 300,
		.access_log = true,
		.status_seconds = 10,
		.log_level = LOG_LEVEL_INFO,
	};
	if (!read_config_files(ret, argc, argv))
		return CONFIG_ERROR;
	ret->n_before = ret->n_models;
	optind = 1;
	opterr = 1;
	while ((id = getopt_long(argc, argv, "", options, &index)) != -1) {
		switch (id) {
		case OPT_HELP: fputs(help, stdout); return CONFIG_EXIT;
		case OPT_VERSION: puts("txdad " TXDA_VERSION); return CONFIG_EXIT;
		case OPT_CONFIG: break;
		case '?': fputs("Try 'txdad --help'.\n", stderr); return CONFIG_ERROR;
		default:
			if (!apply(ret, id, options[index].name, optarg))
				return CONFIG_ERROR;
		}
	}
	if (optind < argc) {
		complain("unexpected argument '%s'", argv[optind]);
		return CONFIG_ERROR;
	}
	if (!ret->n_models) {
		complain("no model is given: use --model [NAME=]PATH%s",
			 ret->file ? " or put 'model = [NAME=]PATH' into the file" : "");
		return CONFIG_ERROR;
	}
	return default_socket(ret) ? CONFIG_RUN : CONFIG_ERROR;
}

bool config_reload(int argc, char **argv, struct config *ret)
{
	struct config fresh;

	if (config_load(argc, argv, &fresh) != CONFIG_RUN) {
		config_free(&fresh);
		*ret = (struct config){0};
		return false;
	}
	*ret = fresh;
	return true;
}

const struct config_model *config_find_model(const struct config *c, const char *name)
{
	for (unsigned i = 0; i < c->n_models; i++)
		if (!strcmp(c->models[i].names[0], name))
			return &c->models[i];
	return NULL;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_engine(const struct config_engine *a, const struct config_engine *b)
{
	return a->tp_size == b->tp_size && !strcmp(a->weights, b->weights) &&
	       a->kv_int8 == b->kv_int8 && a->expert_parallel == b->expert_parallel &&
	       a->max_model_len == b->max_model_len && a->max_num_seqs == b->max_num_seqs &&
	       a->max_num_batched_tokens == b->max_num_batched_tokens &&
	       a->max_stall_ms == b->max_stall_ms && a->crowd_percent == b->crowd_percent &&
	       a->prefix_caching == b->prefix_caching && a->speculate_ngram == b->speculate_ngram &&
	       a->speculative_tokens == b->speculative_tokens &&
	       a->speculative_max_seqs == b->speculative_max_seqs;
}

bool config_model_same(const struct config_model *a, const struct config_model *b)
{
	return same_text(a->names[0], b->names[0]) && same_text(a->path, b->path) &&
	       same_text(a->draft, b->draft) && same_text(a->tool_parser, b->tool_parser) &&
	       same_text(a->reasoning_parser, b->reasoning_parser) &&
	       a->kv_memory == b->kv_memory && a->data_parallel == b->data_parallel &&
	       same_engine(&a->engine, &b->engine);
}

static void clear_model(struct config_model *m)
{
	for (unsigned i = 0; i < m->n_names; i++)
		free(m->names[i]);
	free(m->path);
	free(m->draft);
	free(m->tool_parser);
	free(m->reasoning_parser);
}

static bool copy_text(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return !text || *ret;
}

struct config_model *config_model_copy(const struct config_model *m)
{
	struct config_model *copy = malloc(sizeof(*copy));
	bool ok;

	if (!copy)
		return NULL;
	*copy = *m;
	ok = copy_text(m->path, &copy->path);
	ok &= copy_text(m->draft, &copy->draft);
	ok &= copy_text(m->tool_parser, &copy->tool_parser);
	ok &= copy_text(m->reasoning_parser, &copy->reasoning_parser);
	for (unsigned i = 0; i < m->n_names; i++)
		ok &= copy_text(m->names[i], &copy->names[i]);
	if (ok)
		return copy;
	config_model_free(copy);
	return NULL;
}

void config_model_free(struct config_model *m)
{
	if (m)
		clear_model(m);
	free(m);
}

void config_free(struct config *c)
{
	for (unsigned i = 0; i < c->n_models; i++)
		clear_model(&c->models[i]);
	free(c->socket);
	free(c->socket_group);
	free(c->cache_dir);
	free(c->file);
	*c = (struct config){0};
}
