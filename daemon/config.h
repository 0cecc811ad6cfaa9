/* SPDX-License-Identifier: MIT */
/*
 * The daemon's settings, from the command line and a file (`--config`). A further one is a member
 * here, a row in config_table.c and a paragraph in docs/man/txdad.8.
 *
 * The file holds a setting a line, named as the long option: "model = qwen=/srv/models/qwen". '#'
 * starts a comment line. What the command line says comes on top: it is read later, and lists grow.
 *
 * What is a model's own (struct config_model) is said behind its --model. Before the first --model
 * of a file or of the command line it is for all: those that come, and those of files read before.
 */
#ifndef TXDA_DAEMON_CONFIG_H
#define TXDA_DAEMON_CONFIG_H

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
	unsigned tp_size; /* 0: as the model says */
	unsigned weights; /* which of config_weights */
	unsigned kv_int8; /* 0: bf16 */
	bool expert_parallel;
	unsigned max_model_len;			       /* 0: the model's */
	unsigned max_num_seqs, max_num_batched_tokens; /* 0: the engine's default */
	unsigned max_stall_ms, max_decode_ms;	       /* 0: no limit */
	unsigned step_timeout;			       /* seconds until a hung chip is lost */
	bool prefix_caching;
	unsigned speculate_ngram;
	unsigned speculative_tokens, speculative_max_seqs; /* 0: the engine's default */
};

/* Chips by number; groups are tp_size of them at a time. */
struct config_devices {
	unsigned chips[CONFIG_MAX_CHIPS], n;
};

/* A topology map; empty: neighbours. */
struct config_map {
	char text[64];
	unsigned tp, batch; /* as the name says; 0: it does not */
};

struct config_model {
	char *names[CONFIG_MAX_NAMES]; /* [0] is the one in the table of models */
	unsigned n_names;
	char *path;
	char where[280]; /* "FILE, line N: " where it was said; "": on the command line */
	char *draft;	 /* directory of the model that proposes tokens for it; NULL: none */
	char *tool_parser,
		*reasoning_parser; /* how its replies are read; NULL: by its vocabulary */
	struct access_list access; /* who may use it; empty: everybody */
	bool pin;		   /* never evicted, never idles out */
	unsigned on_demand;	   /* loaded by the first request, not at the start */
	unsigned sleep_when_idle;  /* into host memory, not off it */
	int64_t keep_alive;	   /* seconds without a request until it goes; -1: for ever */
	uint64_t kv_memory;	   /* bytes of a chip at most; 0: what is left */
	unsigned data_parallel;	   /* copies, each on a group of its own */
	unsigned max_tokens;	   /* of an answer, when its request does not say; 0: as OpenAI */
	struct config_devices devices; /* that it may use; none: all */
	struct config_map map;
	struct config_engine engine;
};

/* Hosts whose addresses TCP is opened on. */
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
	struct config_model defaults; /* what is said for all models, before the first one */
	unsigned n_before; /* models of what was read before the present file or command line */
	char *socket;	   /* never NULL after config_load() */
	mode_t socket_mode;
	char *socket_group; /* NULL: leave it */
	struct config_hosts hosts;
	struct config_port port; /* TCP is opened if this or a host is given */
	char *api_key_file;	 /* of clients over TCP; NULL: none */
	bool api_key;		 /* whether they need a key */
	unsigned max_queue;	 /* 0: the engine's default */
	bool keep_weights;	 /* beyond the daemon's life, where somebody holds them */
	char *cache_dir;	 /* NULL: as cache_find() */
	uint64_t cache_size;	 /* bytes of compiled models; 0: no limit */
	bool disable_cache;	 /* $DISABLE_CACHE: what is compiled goes with the process */
	uint64_t max_body;	 /* bytes */
	unsigned max_images;	 /* of a request */
	uint64_t max_image_pixels;
	unsigned max_image_tokens; /* 0: as many as the model takes */
	uint64_t max_memory;	   /* bytes held for all clients */
	unsigned max_connections;
	unsigned drain_seconds;
	unsigned stall_seconds;	    /* a client that reads nothing for so long is disconnected */
	struct access_list access;  /* who may use the daemon; empty: everybody who can connect */
	struct access_list admin;   /* administrators besides root and the daemon's user */
	struct access_list monitor; /* who sees all metrics, besides administrators */
	unsigned text_timeout;	    /* seconds of a model's text process for a job */
	uint64_t text_memory;	    /* bytes of its address space */
	unsigned load_timeout;	    /* seconds that a request waits for its model */
	unsigned request_timeout;   /* seconds that a request may take; 0: no limit */
	bool chunked_prefill, enforce_eager; /* given; moot */
	bool strict; /* a model that cannot be served at the start ends the daemon */
	bool access_log;
	unsigned status_seconds; /* between lines on what goes on; 0: none */
	enum log_level log_level;
	char *log_file; /* NULL or "": stderr */
	char *file;	/* of --config, for a reload */
};

enum config_action {
	CONFIG_RUN,
	CONFIG_EXIT,  /* --help or --version was printed */
	CONFIG_ERROR, /* said on stderr */
};

/* Words of options, up to NULL. */
extern const char *const config_weights[], *const config_speculate[];

/* Fills @ret; config_free() is due whatever is returned. */
enum config_action config_load(int argc, char **argv, struct config *ret);
void config_free(struct config *c);

/*
 * Reads everything again, for a running daemon: the file anew, the command line on top. False: it
 * is wrong, as @err says, and *ret is empty.
 */
bool config_reload(int argc, char **argv, struct config *ret, char *err, size_t errlen);
/*
 * Makes @now what @fresh says, as far as a running daemon can, and logs what takes a restart; models
 * are the server's part.
 */
void config_take(struct config *now, const struct config *fresh);

/* Says in the log which of the options that were given are moot. */
void config_log_moot(const struct config *c);

/* Whether a model that is loaded as @a needs nothing anew to be as @b. */
bool config_model_same(const struct config_model *a, const struct config_model *b);
/* NULL: out of memory. */
struct config_model *config_model_copy(const struct config_model *m);
void config_model_free(struct config_model *m);

#endif
