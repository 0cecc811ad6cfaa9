// SPDX-License-Identifier: MIT
/* The options of txdad, in the order of --help. docs/man/txdad.8 says more about each. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config_internal.h"

/* ---- types used by this daemon only ---------------------------------------------------------- */

static const struct option_type config_group;

static bool parse_user(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	bool group = row->type == &config_group;
	int r = group ? access_add_group(member, text) : access_add_user(member, text);

	if (r == -ENOENT)
		snprintf(err, errlen, "--%s: unknown %s '%.200s'", row->name,
			 group ? "group" : "user", text);
	else if (r)
		snprintf(err, errlen, "--%s may be given at most %d times", row->name, ACCESS_MAX);
	return !r;
}

static bool parse_model(const struct option_row *row, const char *text, void *member, char *err,
			size_t errlen)
{
	(void)row;
	return config_add_model(member, text, err, errlen);
}

static bool parse_name(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	struct config *c = member;

	if (c->n_models)
		return config_add_name(c, text, err, errlen);
	snprintf(err, errlen, "--%s must follow the --model that it names", row->name);
	return false;
}

static const struct option_type config_user = {
	.takes_value = true,
	.size = sizeof(struct access_list),
	.parse = parse_user,
};
static const struct option_type config_group = {
	.takes_value = true,
	.size = sizeof(struct access_list),
	.parse = parse_user,
};
/* Models and their names are not members: config.c compares and copies them. */
static const struct option_type config_model = {.takes_value = true, .parse = parse_model};
static const struct option_type config_name = {.takes_value = true, .parse = parse_name};

static bool parse_host(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	struct config_hosts *hosts = member;

	if (hosts->n == CONFIG_MAX_HOSTS) {
		snprintf(err, errlen, "--%s may be given at most %d times", row->name,
			 CONFIG_MAX_HOSTS);
		return false;
	}
	hosts->names[hosts->n] = strdup(text);
	if (!hosts->names[hosts->n]) {
		snprintf(err, errlen, "out of memory");
		return false;
	}
	hosts->n++;
	return true;
}

static bool same_hosts(const void *a, const void *b)
{
	const struct config_hosts *x = a, *y = b;
	bool same = x->n == y->n;

	for (unsigned i = 0; same && i < x->n; i++)
		same = !strcmp(x->names[i], y->names[i]);
	return same;
}

static void clear_hosts(void *member)
{
	struct config_hosts *hosts = member;

	while (hosts->n)
		free(hosts->names[--hosts->n]);
}

static bool copy_hosts(const void *from, void *to)
{
	const struct config_hosts *hosts = from;
	struct config_hosts *copy = to;

	for (copy->n = 0; copy->n < hosts->n; copy->n++) {
		copy->names[copy->n] = strdup(hosts->names[copy->n]);
		if (!copy->names[copy->n])
			return false;
	}
	return true;
}

static bool parse_port(const struct option_row *row, const char *text, void *member, char *err,
		       size_t errlen)
{
	struct config_port *port = member;

	port->given = true;
	return option_unsigned.parse(row, text, &port->number, err, errlen);
}

static const struct option_type config_host = {
	.takes_value = true,
	.size = sizeof(struct config_hosts),
	.parse = parse_host,
	.same = same_hosts,
	.copy = copy_hosts,
	.clear = clear_hosts,
};
static bool parse_dir(const struct option_row *row, const char *text, void *member, char *err,
		      size_t errlen)
{
	if (text[0] == '/')
		return parse_host(row, text, member, err, errlen);
	snprintf(err, errlen, "--%s: \"%s\" is not an absolute path", row->name, text);
	return false;
}

static const struct option_type config_dir = {
	.takes_value = true,
	.size = sizeof(struct config_hosts),
	.parse = parse_dir,
	.same = same_hosts,
	.copy = copy_hosts,
	.clear = clear_hosts,
};
static const struct option_type config_port = {
	.takes_value = true,
	.size = sizeof(struct config_port),
	.parse = parse_port,
};

const char *const config_weights[] = {"keep", "bf16", "w8", "w4", NULL};
const char *const config_speculate[] = {"off", "ngram", NULL};
static const char *const kv_dtypes[] = {"auto|bf16", "int8", NULL};
static const char *const unused[] = {"refuse", "ignore", NULL};
static const char *const loads[] = {"start", "demand", NULL};
static const char *const idles[] = {"unload", "sleep", NULL};
static const char *const levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const tool_parsers[] = {
	"hermes",	"llama3_json", "pythonic", "deepseek_v3", "deepseek_v32", "mistral",
	"mistral_list", "glm45",       "glm4",	   "internlm",	  "kimi_k2",	  "qwen3_coder",
	"gpt_oss",	"none",	       "auto",	   NULL};
static const char *const reasoning_parsers[] = {
	"qwen3", "deepseek_r1", "glm45", "kimi_k2", "mistral", "gpt_oss", "none", "auto", NULL};

/* ---- the table ------------------------------------------------------------------------------- */

#define OF(type, member) offsetof(struct type, member), sizeof(((struct type *)0)->member)
/* Initialises scope and offset of a row. */
#define DAEMON(member)	   OPTION_DAEMON, OF(config, member)
#define WHOLE_CONFIG	   OPTION_DAEMON, 0, 0
#define EACH_MODEL(member) OPTION_EACH_MODEL, OF(config_model, member)
#define ONE_MODEL(member)  OPTION_ONE_MODEL, OF(config_model, member)
#define COMMAND		   OPTION_COMMAND, 0, 0
#define HEADING(text)                                                                              \
	{                                                                                          \
		.scope = OPTION_HEADING, .help = (text)                                            \
	}

#define RESTART	   OPTION_RESTART
#define AT_ONCE	   OPTION_AT_ONCE
#define LOADS_ANEW OPTION_LOADS_ANEW

#define DAY 86400

static const struct option_row rows[] = {
	HEADING("Models"),
	{"model", &config_model, WHOLE_CONFIG, AT_ONCE, "[NAME=]PATH",
	 "Hugging Face directory or case dir; NAME: what requests call it (default: the last part "
	 "of PATH). May be given several times.",
	 .aliases = "hf-dir"},
	{"served-model-name", &config_name, WHOLE_CONFIG, AT_ONCE, "NAME",
	 "a further name for the model before it"},
	{"cache-dir", &option_text, DAEMON(cache_dir), RESTART, "DIR",
	 "directory for compiled models (default: $CACHE_DIRECTORY, $XDG_CACHE_HOME/txda, "
	 "~/.cache/txda)"},
	{"cache-size", &option_bytes, DAEMON(cache_size), RESTART, "BYTES",
	 "limit for all compiled models together; the least recently used are evicted (default: no "
	 "limit)",
	 .max = 1ull << 60},
	{"tool-call-parser", &option_text, ONE_MODEL(tool_parser), LOADS_ANEW, "FORMAT",
	 "format of the preceding model's tool calls (default: auto):", .words = tool_parsers},
	{"reasoning-parser", &option_text, ONE_MODEL(reasoning_parser), LOADS_ANEW, "FORMAT",
	 "format of its reasoning (default: auto):", .words = reasoning_parsers},

	HEADING("How a model is compiled and run (for the preceding model; before the first one: "
		"for all)"),
	{"tp-size", &option_unsigned, EACH_MODEL(engine.tp_size), LOADS_ANEW, "N",
	 "chips that share the model (default: the model's)", .aliases = "tensor-parallel-size",
	 .max = 64},
	{"map", &config_map_type, EACH_MODEL(map), LOADS_ANEW, "MAP",
	 "which chips are its groups: C4TP2, C4TP2B1, 0,1;2,3, or auto (default)"},
	{"device", &config_devices_type, EACH_MODEL(devices), LOADS_ANEW, "LIST",
	 "chips that it may use, such as 0,1 (default: all that are visible)"},
	{"weights", &option_choice, EACH_MODEL(engine.weights), LOADS_ANEW, NULL,
	 "form of the weights on the chip", "keep", .words = config_weights},
	{"kv-cache-dtype", &option_choice, EACH_MODEL(engine.kv_int8), LOADS_ANEW, NULL,
	 "type of keys and values in the cache (default: auto, which is bf16)", .words = kv_dtypes},
	{"enable-expert-parallel", &option_flag, EACH_MODEL(engine.expert_parallel), LOADS_ANEW,
	 NULL, "place whole experts on chips rather than a part of each on every chip", "no"},
	{"unused-tensors", &option_choice, EACH_MODEL(engine.unused_tensors), LOADS_ANEW, NULL,
	 "tensors of a model that may change results but are not supported", "refuse",
	 .words = unused},
	{"max-model-len", &option_unsigned, EACH_MODEL(engine.max_model_len), LOADS_ANEW, "N",
	 "maximum tokens of a request, prompt and answer (default: the model's)", .max = 1u << 24},
	{"max-tokens", &option_unsigned, EACH_MODEL(max_tokens), AT_ONCE, "N",
	 "maximum tokens of an answer if the request sets none (default: for a chat the rest of "
	 "the context, for a completion 16)",
	 .max = 1u << 24},
	{"max-num-seqs", &option_unsigned, EACH_MODEL(engine.max_num_seqs), LOADS_ANEW, "N",
	 "maximum sequences in one step (default: 256)", .min = 1, .max = 65536},
	{"max-num-batched-tokens", &option_unsigned, EACH_MODEL(engine.max_num_batched_tokens),
	 LOADS_ANEW, "N", "maximum tokens in one step (default: 2048)", .min = 1, .max = 1u << 24},
	{"max-stall-ms", &option_unsigned, EACH_MODEL(engine.max_stall_ms), LOADS_ANEW, "N",
	 "approximate limit on how long prefill chunks and image encoding may delay streams; 0: no "
	 "limit",
	 "200", .max = 3600000},
	{"max-decode-ms", &option_unsigned, EACH_MODEL(engine.max_decode_ms), LOADS_ANEW, "N",
	 "approximate limit on the decode time of a step while several users have streams; 0: by "
	 "shares of the time",
	 "0", .max = 3600000},
	{"fair-time", &option_flag, EACH_MODEL(engine.fair_time), LOADS_ANEW, NULL,
	 "limit steps to their users' shares of the time, and keep them short while several users "
	 "are active",
	 "yes"},
	{"enable-prefix-caching", &option_flag, EACH_MODEL(engine.prefix_caching), LOADS_ANEW, NULL,
	 "reuse of cached KV blocks for equal prompt prefixes", "yes"},
	{"enable-chunked-prefill", &option_ignored, DAEMON(chunked_prefill), AT_ONCE, NULL,
	 "accepted, no effect: prompts are always computed in chunks",
	 .note = "prompts are always computed in chunks"},
	{"enforce-eager", &option_ignored, DAEMON(enforce_eager), AT_ONCE, NULL,
	 "accepted, no effect: programs are always compiled",
	 .note = "programs are always compiled, before a model is loaded"},

	HEADING("Speculative decoding (likewise; changes no result, only the time it takes)"),
	{"draft-model", &option_text, ONE_MODEL(draft), LOADS_ANEW, "PATH|mtp",
	 "draft model with the same vocabulary for the preceding model; "
	 "mtp: its own prediction layer (DeepSeek-V3)"},
	{"speculative", &option_choice, EACH_MODEL(engine.speculate_ngram), LOADS_ANEW, NULL,
	 "without a draft model: propose what followed the last tokens earlier in the text", "off",
	 .words = config_speculate},
	{"num-speculative-tokens", &option_unsigned, EACH_MODEL(engine.speculative_tokens),
	 LOADS_ANEW, "N", "draft tokens per step, at most 16 (default: 4)", .min = 1, .max = 16},
	{"speculative-max-seqs", &option_unsigned, EACH_MODEL(engine.speculative_max_seqs),
	 LOADS_ANEW, "N", "no proposals while more sequences run (default: 8)", .min = 1,
	 .max = 65536},

	HEADING("Which models are on the chips (likewise)"),
	{"load", &option_choice, EACH_MODEL(on_demand), AT_ONCE, NULL,
	 "load it at start, or on its first request", "start", .words = loads},
	{"keep-alive", &option_seconds, EACH_MODEL(keep_alive), AT_ONCE, "TIME",
	 "idle time until it is unloaded: 90, 5m, 2h, 0, or -1: never", "-1"},
	{"when-idle", &option_choice, EACH_MODEL(sleep_when_idle), AT_ONCE, NULL,
	 "when idle: unload it, or keep its weights in host memory", "unload", .words = idles},
	{"pin", &option_flag, EACH_MODEL(pin), AT_ONCE, NULL,
	 "never evict it or unload it when idle", "no"},
	{"kv-cache-memory", &option_bytes, EACH_MODEL(kv_memory), LOADS_ANEW, "BYTES",
	 "KV cache size per chip (default: its share of the free memory)", .max = 1ull << 50},
	{"data-parallel-size", &option_unsigned, EACH_MODEL(data_parallel), LOADS_ANEW, "N",
	 "replicas, each on a separate group of chips, at most 8", "1", .min = 1,
	 .max = CONFIG_MAX_REPLICAS},
	{"keep-weights", &option_flag, DAEMON(keep_weights), RESTART, NULL,
	 "keep weights on the chips while the daemon restarts, held by another process: "
	 "systemd, txda-holder",
	 "yes"},
	{"load-timeout", &option_unsigned, DAEMON(load_timeout), AT_ONCE, "SECONDS",
	 "how long requests wait for a model that is not loaded", "300", .min = 1, .max = DAY},
	{"strict", &option_flag, DAEMON(strict), AT_ONCE, NULL,
	 "exit if a model cannot be loaded at start; otherwise the others are served", "no"},
	{"step-timeout", &option_unsigned, EACH_MODEL(engine.step_timeout), LOADS_ANEW, "SECONDS",
	 "a chip whose step takes longer counts as lost, and the model is reloaded", "600",
	 .min = 1, .max = DAY},

	HEADING("Who may do what (users and groups by name or number; each may be given several "
		"times)"),
	{"allow-user", &config_user, DAEMON(access), AT_ONCE, "USER",
	 "use the daemon (default: everybody who can connect)"},
	{"allow-group", &config_group, DAEMON(access), AT_ONCE, "GROUP", "likewise"},
	{"model-user", &config_user, ONE_MODEL(access), AT_ONCE, "USER",
	 "use the preceding model (default: everybody)"},
	{"model-group", &config_group, ONE_MODEL(access), AT_ONCE, "GROUP", "likewise"},
	{"admin-user", &config_user, DAEMON(admin), AT_ONCE, "USER",
	 "load and unload models, see all requests (default: root and the daemon's user)"},
	{"admin-group", &config_group, DAEMON(admin), AT_ONCE, "GROUP", "likewise"},
	{"monitor-user", &config_user, DAEMON(monitor), AT_ONCE, "USER",
	 "see the models, their health and the metrics of all users (default: administrators)"},
	{"monitor-group", &config_group, DAEMON(monitor), AT_ONCE, "GROUP", "likewise"},

	HEADING("Socket"),
	{"socket", &option_text, DAEMON(socket), RESTART, "PATH",
	 "default: /run/txda/txda.sock for root, else $XDG_RUNTIME_DIR/txda.sock"},
	{"socket-mode", &option_octal, DAEMON(socket_mode), RESTART, "MODE",
	 "permissions of the socket file", "0660", .max = 0777},
	{"socket-group", &option_text, DAEMON(socket_group), RESTART, "GROUP",
	 "default: the daemon's group"},

	HEADING("TCP (off unless a host or a port is given)"),
	{"host", &config_host, DAEMON(hosts), RESTART, "HOST",
	 "address, or name with all its addresses, to listen on; may be given several times "
	 "(default: 127.0.0.1 and ::1)"},
	{"port", &config_port, DAEMON(port), RESTART, "PORT", "0: any free port (default: 8000)",
	 .max = 65535},
	{"api-key-file", &option_text, DAEMON(api_key_file), AT_ONCE, "FILE",
	 "file of client keys, one per line: USER:KEY or USER:KEY:admin"},
	{"api-key", &option_flag, DAEMON(api_key), RESTART, NULL,
	 "clients need a key; --no-api-key admits everybody on this machine, on loopback addresses "
	 "only",
	 "yes"},

	HEADING("Limits (suffixes K, M, G, T)"),
	{"request-timeout", &option_unsigned, DAEMON(request_timeout), AT_ONCE, "SECONDS",
	 "total time limit of a request; 0: no limit", "0", .max = DAY},
	{"max-queue", &option_unsigned, DAEMON(max_queue), RESTART, "N",
	 "waiting requests; further ones get 429 (default: 1024)", .min = 1, .max = 1u << 20},
	{"max-body", &option_bytes, DAEMON(max_body), RESTART, "BYTES", "largest body of a request",
	 "8M", .min = 1024, .max = 1ull << 30},
	{"max-images", &option_unsigned, DAEMON(max_images), RESTART, "N",
	 "images per request, for vision models", "16", .min = 1, .max = 1000},
	{"max-image-pixels", &option_bytes, DAEMON(max_image_pixels), RESTART, "N",
	 "pixels of an image, as sent", "64M", .min = 1, .max = 1ull << 30},
	{"max-image-tokens", &option_unsigned, DAEMON(max_image_tokens), RESTART, "N",
	 "tokens per image; 0: the model's maximum", "0", .max = 1u << 16},
	{"max-user-images", &option_unsigned, DAEMON(max_user_images), RESTART, "N",
	 "images in a user's open requests; 0: no limit", "256", .max = 1u << 20},
	{"max-user-pixels", &option_bytes, DAEMON(max_user_pixels), RESTART, "N",
	 "pixels of these images, as sent; 0: no limit", "1G", .max = 1ull << 50},
	{"image-dir", &config_dir, DAEMON(image_dirs), RESTART, "DIR",
	 "lets clients name image files below this directory that they may read themselves "
	 "(file:///DIR/...); may be given several times; default: none",
	 .aliases = "allowed-local-media-path"},
	{"max-memory", &option_bytes, DAEMON(max_memory), RESTART, "BYTES",
	 "memory held for the requests of all clients together, and kept for later ones", "1G",
	 .min = 1ull << 20, .max = 1ull << 50},
	{"text-timeout", &option_unsigned, DAEMON(text_timeout), RESTART, "SECONDS",
	 "time limit of a model's text process for reading the model, or for the text of a request",
	 "30", .min = 1, .max = DAY},
	{"text-memory", &option_bytes, DAEMON(text_memory), RESTART, "BYTES",
	 "address space of a model's text process, and of each of its children", "4G",
	 .min = 64ull << 20, .max = 1ull << 50},
	{"max-connections", &option_unsigned, DAEMON(max_connections), RESTART, "N",
	 "maximum simultaneous connections", "1024", .min = 1, .max = 1u << 20},
	{"stall-seconds", &option_unsigned, DAEMON(stall_seconds), RESTART, "N",
	 "a client that reads nothing of its answer for this long is disconnected", "300", .min = 1,
	 .max = DAY},
	{"drain-seconds", &option_unsigned, DAEMON(drain_seconds), AT_ONCE, "N",
	 "how long running requests may continue after SIGTERM", "30", .max = DAY},

	HEADING("Others"),
	{"access-log", &option_flag, DAEMON(access_log), AT_ONCE, NULL,
	 "log a line for each request", "yes"},
	{"status-seconds", &option_unsigned, DAEMON(status_seconds), AT_ONCE, "N",
	 "interval of status lines in the log; 0: none", "10", .max = DAY},
	{"log-level", &option_choice, DAEMON(log_level), AT_ONCE, NULL, "log level", "info",
	 .words = levels},
	{"log-file", &option_text, DAEMON(log_file), AT_ONCE, "FILE",
	 "log file, instead of stderr; reopened at SIGHUP"},
	{"config", &option_value, COMMAND, AT_ONCE, "FILE",
	 "read settings from FILE first, one per line: OPTION = VALUE"},
	{"help", &option_action, COMMAND, AT_ONCE, NULL, "print this help and exit; also -h"},
	{"version", &option_action, COMMAND, AT_ONCE, NULL, "print the version and exit; also -V"},
};

const struct option_table config_table = {
	.program = "txdad",
	.about = "--model [NAME=]PATH [OPTION...]\n"
		 "       txdad serve [NAME=]PATH [OPTION...]\n"
		 "Keeps models resident on TX8 chips and serves them through OpenAI's API, over a "
		 "Unix socket\n"
		 "and, if enabled, TCP.",
	.words = "; a model is given as --model PATH or serve PATH",
	.rows = rows,
	.n = sizeof(rows) / sizeof(rows[0]),
};
