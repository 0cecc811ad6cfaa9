/* SPDX-License-Identifier: MIT */
/*
 * The daemon's settings, from the command line and a file (`--config`). A new setting needs a
 * member here, a row in config_table.c and a paragraph in docs/man/txdad.8.
 *
 * The file has one setting per line, named like the long option: "model = qwen=/srv/models/qwen".
 * '#' starts a comment line. The command line is read later and overrides it; lists are extended.
 *
 * Per-model settings (struct config_model) follow their --model. Before the first --model of a file
 * or of the command line they apply to all models: those that follow, and those of files read
 * before.
 */
#ifndef TXDA_CONFIG_CONFIG_H
#define TXDA_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "access.h"
#include "log.h"

#define CONFIG_MAX_MODELS   64
#define CONFIG_MAX_NAMES    8 /* of one model */
#define CONFIG_MAX_REPLICAS 8
#define CONFIG_MAX_CHIPS    64
#define CONFIG_MAX_TP	    8 /* chips of a group */
#define CONFIG_MAX_BATCH    65536
#define CONFIG_MAX_HOSTS    8

/* How a model is compiled and run. */
struct config_engine {
	unsigned tp_size; /* 0: the model's default */
	unsigned weights; /* index into config_weights */
	unsigned kv_int8; /* 0: bf16 */
	bool expert_parallel;
	unsigned unused_tensors;		       /* 0: refused, 1: ignored */
	unsigned max_model_len;			       /* 0: the model's */
	unsigned max_num_seqs, max_num_batched_tokens; /* 0: the engine's default */
	unsigned max_stall_ms, max_decode_ms;	       /* 0: unlimited */
	bool fair_time;
	unsigned step_timeout; /* until a hung chip is lost */
	bool prefix_caching;
	unsigned speculate_ngram;
	unsigned speculative_tokens, speculative_max_seqs; /* 0: the engine's default */
};

/* Chips by number; each group takes tp_size of them. */
struct config_devices {
	unsigned chips[CONFIG_MAX_CHIPS], n;
};

/* A topology map; empty: group neighbours. */
struct config_map {
	char text[64];
	unsigned tp, batch; /* as given in the name; 0: not given */
};

struct config_model {
	char *names[CONFIG_MAX_NAMES]; /* [0] is the name in the table of models */
	unsigned n_names;
	char *path;
	char where[280]; /* "FILE, line N: " where it was given; "": command line */
	unsigned place;	 /* among all models, from 0 */
	char *draft;	 /* directory of its draft model; NULL: none */
	char *tool_parser, *reasoning_parser; /* format of its replies; NULL: by its vocabulary */
	struct access_list access;	      /* who may use it; empty: everybody */
	bool pin;			      /* never evicted, no idle unload */
	unsigned on_demand;		      /* loaded by the first request, not at start */
	unsigned sleep_when_idle;	      /* on idle, to host memory instead of unloading */
	int64_t keep_alive;		      /* idle seconds until it is unloaded; -1: never */
	uint64_t kv_memory;		      /* bytes per chip at most; 0: what is left */
	unsigned data_parallel;		      /* replicas, each on a group of its own */
	unsigned max_tokens;		      /* default answer length; 0: OpenAI's default */
	struct config_devices devices;	      /* chips that it may use; none: all */
	struct config_map map;
	struct config_engine engine;
};

/* Values of an option that may be given several times: hosts, directories. */
struct config_hosts {
	char *names[CONFIG_MAX_HOSTS];
	unsigned n;
};

struct config_port {
	bool given;
	unsigned number; /* 0: the kernel chooses */
};

struct config {
	struct config_model models[CONFIG_MAX_MODELS];
	unsigned n_models;
	struct config_model defaults; /* settings for all models, before the first one */
	unsigned n_before; /* number of models read before the current file or command line */
	char *socket;	   /* never NULL after config_load() */
	mode_t socket_mode;
	char *socket_group; /* NULL: unchanged */
	struct config_hosts hosts;
	struct config_port port; /* TCP is enabled if this or a host is given */
	char *api_key_file;	 /* of clients over TCP; NULL: none */
	bool api_key;		 /* whether TCP clients need a key */
	unsigned max_queue;	 /* 0: the engine's default */
	bool keep_weights;	 /* kept after the daemon ends, if a process holds them */
	char *cache_dir;	 /* NULL: as cache_find() */
	uint64_t cache_size;	 /* bytes of compiled models; 0: no limit */
	bool disable_cache;	 /* $DISABLE_CACHE: compiled models are removed with the process */
	uint64_t max_body;	 /* bytes */
	unsigned max_images;	 /* of a request */
	uint64_t max_image_pixels;
	unsigned max_image_tokens; /* 0: the model's maximum */
	unsigned max_user_images;  /* in a user's open requests; 0: no limit */
	uint64_t max_user_pixels;  /* likewise */
	struct config_hosts image_dirs;
	uint64_t max_memory; /* bytes held for all clients */
	unsigned max_connections;
	unsigned drain_seconds;
	unsigned stall_seconds;	    /* a client that reads nothing for this long is disconnected */
	struct access_list access;  /* users of the daemon; empty: everybody who can connect */
	struct access_list admin;   /* administrators besides root and the daemon's user */
	struct access_list monitor; /* may see all metrics, besides administrators */
	unsigned text_timeout;	    /* seconds per job of a model's text process */
	uint64_t text_memory;	    /* bytes of its address space */
	unsigned load_timeout;	    /* seconds that a request waits for its model */
	unsigned request_timeout;   /* seconds that a request may take; 0: no limit */
	bool chunked_prefill, enforce_eager; /* accepted, without effect */
	bool strict; /* the daemon exits if a model cannot be served at start */
	bool access_log;
	unsigned status_seconds; /* seconds between status lines; 0: none */
	enum log_level log_level;
	char *log_file; /* NULL or "": stderr */
	char *file;	/* of --config, for a reload */
};

enum config_action {
	CONFIG_RUN,
	CONFIG_EXIT,  /* --help or --version was printed */
	CONFIG_ERROR, /* an error was printed on stderr */
};

/* Words of options, NULL-terminated. */
extern const char *const config_weights[], *const config_speculate[];

/* Fills in @ret; config_free() must be called in any case. */
enum config_action config_load(int argc, char **argv, struct config *ret);
void config_free(struct config *c);

/*
 * Reads all settings again, for a running daemon: the file, then the command line. False: invalid,
 * see @err, and *ret is empty.
 */
bool config_reload(int argc, char **argv, struct config *ret, char *err, size_t errlen);
/*
 * Applies to @now what a running daemon can change from @fresh, and logs what takes a restart;
 * models are handled by the server.
 */
void config_take(struct config *now, const struct config *fresh);

/* Logs the given options that have no effect. */
void config_log_ignored(const struct config *c);

/* Whether a model loaded with settings @a can switch to @b without a reload. */
bool config_model_same(const struct config_model *a, const struct config_model *b);
/* NULL: out of memory. */
struct config_model *config_model_copy(const struct config_model *m);
void config_model_free(struct config_model *m);

#endif
