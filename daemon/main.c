// SPDX-License-Identifier: MIT
/*
 * txdad: settings, socket, signals and systemd around the server (server.h) and the table of
 * models (models.h).
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>
#include <systemd/sd-daemon.h>

#include "banner.h"
#include "budget.h"
#include "case_reader.h"
#include "config.h"
#include "confine.h"
#include "log.h"
#include "keeper.h"
#include "models.h"
#include "priority.h"
#include "refuse.h"
#include "api_keys.h"
#include "server.h"
#include "sockets.h"
#include "tool_run.h"
#include "txda.h"

#define EXIT_CONFIG  78	 /* sysexits.h: errors that a restart does not fix */
#define POLL_MS	     100 /* while models load and while requests end */
#define CALM_MS	     1000
#define JOIN_SECONDS 1	/* how long shutdown waits for a reload in progress */
#define STOP_SECONDS 30 /* that the end may take after the running requests */
#define MMAP_BYTES   (256 << 10)
#define PAD_BYTES    (1 << 20)
#define TRIM_BYTES   (2 << 20)

/* Settings that are being reloaded, by a thread of its own, since files may block. */
struct reload {
	pthread_t thread;
	int fd; /* readable when it is done */
	struct event *event;
	bool runs, again; /* another reload was requested meanwhile */
	/* The result. */
	struct config fresh;
	struct model_found found[CONFIG_MAX_MODELS]; /* of the models of fresh */
	struct api_keys *keys;
	char err[1024];
	bool good;
};

struct daemon {
	int argc;
	char **argv;
	struct config config;
	struct event_base *base;
	struct txda_context *context;
	struct models *models;
	struct keeper *keeper;
	struct server *server;
	struct budget budget; /* of all requests */
	char **inherited;     /* [n_inherited] names of descriptors from SD_LISTEN_FDS_START on */
	unsigned n_inherited;
	struct sockets sockets;
	struct reload reload;
	struct event *signals[3], *poll_event, *watchdog_event, *chip_event;
	unsigned polls_left;			  /* while draining */
	bool draining, started, settled, aborted; /* the loads of the start have ended */
	char status[256];
	int exit_code;
};

/* Descriptors passed by systemd, or by a keeper process: names distinguish sockets from weights. */
static void take_inherited_fds(struct daemon *d)
{
	int n = sd_listen_fds_with_names(1, &d->inherited);

	d->n_inherited = n > 0 ? (unsigned)n : 0;
}

static bool is_kept(const struct daemon *d, unsigned i)
{
	return !strncmp(d->inherited[i], KEEPER_NAME, strlen(KEEPER_NAME));
}

/* The sockets among the inherited descriptors, allocated; NULL: no memory. */
static int *inherited_sockets(const struct daemon *d, unsigned *ret_n)
{
	int *fds = calloc(d->n_inherited + 1, sizeof(*fds));

	*ret_n = 0;
	for (unsigned i = 0; i < d->n_inherited && fds; i++)
		if (!is_kept(d, i))
			fds[(*ret_n)++] = SD_LISTEN_FDS_START + (int)i;
	return fds;
}

static int open_sockets(struct daemon *d)
{
	unsigned n;
	int *fds = inherited_sockets(d, &n), r;

	if (!fds)
		return -ENOMEM;
	r = sockets_open(&d->sockets, &d->config, fds, n);
	free(fds);
	return r;
}

/*
 * The settings are wrong: for the clients whom systemd started the daemon for, and the exit status.
 * Others that hand over a socket, as txda-run does, see the exit and want it soon.
 */
static int refuse(const struct daemon *d)
{
	unsigned n;
	int *fds = getenv("NOTIFY_SOCKET") ? inherited_sockets(d, &n) : NULL;

	if (fds)
		refuse_clients(fds, n);
	free(fds);
	return EXIT_CONFIG;
}

/* The API keys of the settings; NULL: no keys are configured. */
static int read_keys(const struct daemon *d, const struct config *c, struct api_keys **ret,
		     char *err, size_t errlen)
{
	const struct api_keys *before = d->server ? server_keys(d->server) : NULL;

	*ret = NULL;
	if (c->api_key_file && !c->api_key) {
		snprintf(err, errlen, "--api-key-file and --no-api-key contradict each other");
		return -EINVAL;
	}
	if (!c->api_key_file && before && d->sockets.tcp) {
		snprintf(err, errlen, "--api-key-file was removed; TCP needs keys");
		return -EINVAL;
	}
	return c->api_key_file ? api_keys_load(c->api_key_file, before, ret, err, errlen) : 0;
}

static void log_keys(const struct config *c, const struct api_keys *keys)
{
	if (keys)
		log_info("%u API key%s from %s", api_keys_count(keys),
			 api_keys_count(keys) == 1 ? "" : "s", c->api_key_file);
}

static void log_kept(bool bad, const char *text)
{
	if (bad)
		log_warning("%s", text);
	else
		log_info("%s", text);
}

/*
 * Adopts the weights kept for this daemon. Without a keeper setting they are dropped, as nothing
 * would use them.
 */
static int open_keeper(struct daemon *d)
{
	const struct keeper_options options = {.context = d->context, .log = log_kept};
	int r;

	if (!keeper_is_possible() || !d->config.keep_weights) {
		for (unsigned i = 0; i < d->n_inherited; i++) {
			if (!is_kept(d, i))
				continue;
			sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", d->inherited[i]);
			close(SD_LISTEN_FDS_START + (int)i);
		}
		return 0;
	}
	r = keeper_new(&options, &d->keeper);
	if (r) {
		log_error("%s", strerror(-r));
		return r;
	}
	for (unsigned i = 0; i < d->n_inherited; i++)
		if (is_kept(d, i))
			keeper_take(d->keeper, d->inherited[i], SD_LISTEN_FDS_START + (int)i);
	keeper_adopt(d->keeper);
	return 0;
}

static int open_chips(struct daemon *d)
{
	const struct config *c = &d->config;
	struct txda_context_options context_options = TXDA_INIT(struct txda_context_options);
	struct models_options options = {
		.base = d->base,
		.config = c,
		.text = &server_text_ops,
		.cache_dir = c->cache_dir,
		.cache_size = c->cache_size,
		.private_cache = c->disable_cache,
	};
	char err[512] = "";
	int r;

	case_reader_use();
	context_options.name = "txdad";
	r = txda_context_new(&context_options, &d->context);
	if (r) {
		const char *why = txda_context_error(NULL);

		log_error("no chips: %s", why && *why ? why : strerror(-r));
		return r;
	}
	r = open_keeper(d);
	if (r)
		return r;
	options.context = d->context;
	options.keeper = d->keeper;
	r = models_new(&options, &d->models, err, sizeof(err));
	if (r) {
		log_error("%s", *err ? err : strerror(-r));
		return r;
	}
	return 0;
}

static void poll_every(struct daemon *d, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(d->poll_event, &tv);
}

static void begin_drain(struct daemon *d)
{
	poll_every(d, POLL_MS);
	d->draining = true;
	d->polls_left = d->config.drain_seconds * 1000 / POLL_MS;
	/* Beyond the unit's TimeoutStopSec=, when the settings give requests more time. */
	sd_notifyf(0,
		   "STOPPING=1\nSTATUS=waiting for running requests\n"
		   "EXTEND_TIMEOUT_USEC=%llu",
		   (d->config.drain_seconds + STOP_SECONDS) * 1000000ull);
	log_info("stopping: running requests may end within %u s", d->config.drain_seconds);
	/* The sockets are closed at once, so that clients get an error instead of waiting. */
	server_drain(d->server);
	sockets_close(&d->sockets);
	models_shutdown(d->models);
}

static void on_stop(evutil_socket_t number, short what, void *arg)
{
	struct daemon *d = arg;

	(void)what;
	if (d->draining) {
		log_warning("stopping at once");
		event_base_loopbreak(d->base);
		return;
	}
	log_debug("signal %d", (int)number);
	begin_drain(d);
}

/* Each connection takes a descriptor. */
static void raise_descriptor_limit(struct config *c)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) || getrlimit(RLIMIT_NOFILE, &limit))
		return;
	if (limit.rlim_cur < 256 || c->max_connections > (limit.rlim_cur - 128) / 5 * 4) {
		unsigned fit =
			limit.rlim_cur < 256 ? 64 : (unsigned)((limit.rlim_cur - 128) / 5 * 4);

		if (fit < c->max_connections) {
			log_warning("%u connections at most, as the limit of open files is %llu",
				    fit, (unsigned long long)limit.rlim_cur);
			c->max_connections = fit;
		}
	}
}

/* Also after the file was rotated, without a change of settings. */
static void reopen_log(const struct config *c)
{
	char err[768];

	if (log_to_file(c->log_file, err, sizeof(err)))
		log_error("%s", err);
}

/* ---- reload of the settings ------------------------------------------------------------------ */

/* The reload's thread: reads and checks everything, changes nothing. */
static void *read_again(void *arg)
{
	struct daemon *d = arg;
	struct reload *r = &d->reload;
	const uint64_t one = 1;

	r->keys = NULL;
	r->err[0] = '\0';
	r->good = config_reload(d->argc, d->argv, &r->fresh, r->err, sizeof(r->err)) &&
		  !read_keys(d, &r->fresh, &r->keys, r->err, sizeof(r->err)) &&
		  models_validate(d->context, &r->fresh, r->found, r->err, sizeof(r->err));
	if (write(r->fd, &one, sizeof(one)) < 0)
		log_error("a reload cannot signal its completion: %s", strerror(errno));
	return NULL;
}

static void begin_reload(struct daemon *d)
{
	struct reload *r = &d->reload;
	sigset_t all, old;
	int error;

	r->again = r->runs;
	if (r->runs)
		return;
	sd_notify(0, "RELOADING=1");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&r->thread, NULL, read_again, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->runs = !error;
	if (error) {
		log_error("cannot reload the settings: %s", strerror(error));
		sd_notify(0, "READY=1");
	}
}

/* Everything is valid, so it is applied. False: it was not, and nothing has changed. */
static bool commit_reload(struct daemon *d)
{
	struct reload *r = &d->reload;

	if (!r->good || !server_reconfigure(d->server, &r->fresh, r->found, r->err, sizeof(r->err)))
		return false;
	raise_descriptor_limit(&r->fresh);
	server_set_keys(d->server, r->keys);
	config_take(&d->config, &r->fresh);
	log_set_level(d->config.log_level);
	return true;
}

static void on_reloaded(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	struct reload *r = &d->reload;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	pthread_join(r->thread, NULL);
	r->runs = false;
	if (!d->draining && commit_reload(d)) {
		reopen_log(&d->config);
		d->status[0] = '\0';
		log_info("the settings were reloaded");
		log_keys(&d->config, r->keys);
	} else {
		api_keys_free(r->keys);
		if (!d->draining) {
			reopen_log(&d->config);
			log_error("%s", r->err);
			log_error("the settings are wrong; the previous ones stay in force");
			sd_notifyf(0, "STATUS=a reload changed nothing: %s", r->err);
		}
	}
	config_free(&r->fresh);
	sd_notify(0, "READY=1");
	if (r->again && !d->draining)
		begin_reload(d);
}

/* Applies what can change while running; the rest needs a restart. */
static void on_hangup(evutil_socket_t number, short what, void *arg)
{
	struct daemon *d = arg;

	(void)number;
	(void)what;
	if (!d->draining)
		begin_reload(d);
}

/* False: the reload is blocked in a file read, so the memory it uses cannot be freed. */
static bool end_reload(struct daemon *d)
{
	struct reload *r = &d->reload;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_SECONDS;
	if (r->runs && pthread_timedjoin_np(r->thread, NULL, &until)) {
		log_warning("a reload is still in progress");
		return false;
	}
	if (r->runs) {
		api_keys_free(r->keys);
		config_free(&r->fresh);
	}
	if (r->event)
		event_free(r->event);
	if (r->fd >= 0)
		close(r->fd);
	return true;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void poll_drain(struct daemon *d)
{
	if (server_idle(d->server)) {
		event_base_loopbreak(d->base);
	} else if (d->polls_left) {
		d->polls_left--;
	} else if (!d->aborted) {
		log_warning("requests were still running after %u s", d->config.drain_seconds);
		server_abort(d->server);
		/* Time for clients to read the errors. */
		d->aborted = true;
		d->polls_left = 1000 / POLL_MS;
	} else {
		event_base_loopbreak(d->base);
	}
}

/* The Unix socket, for messages. */
static const char *own_socket(const struct daemon *d)
{
	for (unsigned i = 0; i < d->sockets.n; i++)
		if (d->sockets.all[i].path[0])
			return d->sockets.all[i].path;
	return "the socket of systemd";
}

/* Reports the state of the models to systemd, and exits when none can ever answer. */
static void on_poll(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	unsigned ready, failed;
	char status[sizeof(d->status)];

	(void)fd;
	(void)what;
	if (d->draining) {
		poll_drain(d);
		return;
	}
	server_status(d->server, &ready, &failed, status, sizeof(status));
	if (strcmp(status, d->status)) {
		strcpy(d->status, status);
		sd_notifyf(0, "STATUS=%s", status);
	}
	if (!d->settled && failed &&
	    (d->config.strict || (!ready && failed == d->config.n_models))) {
		log_error("%s", failed == d->config.n_models ? "no model could be loaded"
							     : "a model could not be loaded");
		d->exit_code = EXIT_FAILURE;
		event_base_loopbreak(d->base);
	}
	d->settled |= !server_is_starting(d->server);
	if (!d->started && ready) {
		d->started = true;
		poll_every(d, CALM_MS);
		log_info("serving on %s", own_socket(d));
	}
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	sd_notify(0, "WATCHDOG=1");
}

/*
 * Handles chip events. Handling them also adds hot-plugged chips: models without chips find them on
 * their next attempt.
 */
static void on_chips(evutil_socket_t fd, short what, void *arg)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct daemon *d = arg;

	(void)fd;
	(void)what;
	while (!txda_context_event(d->context, &event)) {
		switch (event.kind) {
		case TXDA_EVENT_DEVICE_ADDED:
		case TXDA_EVENT_FIRMWARE: log_info("%s", event.text); break;
		default: log_warning("%s", event.text); break;
		}
	}
}

/*
 * From the first resource that needs clean-up at exit, such as the chips' telemetry page, until the
 * loop handles signals, they are blocked. Threads created meanwhile inherit that: signals are
 * handled by the loop.
 */
static void hold_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(how, &set, NULL);
}

static int add_events(struct daemon *d)
{
	uint64_t usec = 0;

	d->signals[0] = evsignal_new(d->base, SIGTERM, on_stop, d);
	d->signals[1] = evsignal_new(d->base, SIGINT, on_stop, d);
	d->signals[2] = evsignal_new(d->base, SIGHUP, on_hangup, d);
	d->poll_event = event_new(d->base, -1, EV_PERSIST, on_poll, d);
	d->reload.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->reload.event = event_new(d->base, d->reload.fd, EV_READ | EV_PERSIST, on_reloaded, d);
	if (d->reload.fd < 0 || !d->reload.event || event_add(d->reload.event, NULL))
		return -ENOMEM;
	for (unsigned i = 0; i < 3; i++)
		if (!d->signals[i] || event_add(d->signals[i], NULL))
			return -ENOMEM;
	d->chip_event = event_new(d->base, txda_context_event_fd(d->context), EV_READ | EV_PERSIST,
				  on_chips, d);
	if (!d->poll_event || !d->chip_event || event_add(d->chip_event, NULL))
		return -ENOMEM;
	poll_every(d, POLL_MS);
	priority_shorten_slice();
	if (sd_watchdog_enabled(0, &usec) > 0 && usec) {
		struct timeval half = {.tv_sec = (time_t)(usec / 2000000),
				       .tv_usec = (suseconds_t)(usec / 2 % 1000000)};

		d->watchdog_event = event_new(d->base, -1, EV_PERSIST, on_watchdog, d);
		if (!d->watchdog_event || event_add(d->watchdog_event, &half))
			return -ENOMEM;
	}
	return 0;
}

static int start(struct daemon *d)
{
	struct api_keys *keys;
	bool keys_wrong;
	char err[512];
	bool told;
	int r;

	r = read_keys(d, &d->config, &keys, err, sizeof(err));
	keys_wrong = r;
	if (keys_wrong)
		log_error("%s", err);
	log_keys(&d->config, keys);
	if (!r)
		r = open_sockets(d);
	/* Errors about configured sockets are logged by sockets_open(). */
	if (keys_wrong || r == -EINVAL)
		d->exit_code = EXIT_CONFIG;
	d->base = event_base_new();
	if (!r)
		r = d->base ? open_chips(d) : -ENOMEM;
	if (r) {
		api_keys_free(keys);
		return r;
	}
	budget_init(&d->budget, d->config.max_memory);
	r = server_new(d->base, &d->config, &d->budget, d->models, &d->server);
	/* Models that can be served; errors are logged. */
	told = r == -EINVAL;
	if (told)
		d->exit_code = EXIT_CONFIG;
	if (!r)
		banner_log(&d->config, d->models, d->context);
	if (!r) {
		models_settle_kept(d->models);
		models_pump(d->models);
	}
	if (!r)
		r = add_events(d);
	if (!r)
		server_set_keys(d->server, keys);
	else
		api_keys_free(keys);
	for (unsigned i = 0; !r && i < d->sockets.n; i++)
		r = server_listen(d->server, d->sockets.all[i].fd);
	if (r && !told)
		log_error("cannot start: %s", strerror(-r));
	return r;
}

static void stop(struct daemon *d)
{
	bool frees = end_reload(d);

	sockets_close(&d->sockets);
	if (!frees) {
		models_end_loaders(d->models);
		return;
	}
	for (unsigned i = 0; i < 3; i++)
		if (d->signals[i])
			event_free(d->signals[i]);
	if (d->poll_event)
		event_free(d->poll_event);
	if (d->watchdog_event)
		event_free(d->watchdog_event);
	if (d->chip_event)
		event_free(d->chip_event);
	server_free(d->server);
	models_free(d->models);
	budget_clear(&d->budget);
	keeper_free(d->keeper);
	txda_context_unref(d->context);
	if (d->base)
		event_base_free(d->base);
	for (unsigned i = 0; i < d->n_inherited; i++)
		free(d->inherited[i]);
	free(d->inherited);
	config_free(&d->config);
	libevent_global_shutdown();
}

/*
 * Memory used for a burst of requests must not stay with the daemon. The C library raises these
 * limits by itself when large blocks are freed, up to 32 and 64 MiB, and then keeps that much at
 * the end of each thread's arena. Setting them here fixes them: a block of MMAP_BYTES or more is a
 * mapping of its own, which is unmapped when freed, and an arena keeps up to TRIM_BYTES at its end. Free
 * memory between allocated blocks is returned by the server, after a burst.
 *
 * The event loop's arena grows by PAD_BYTES at a time, and each keeps them when it shrinks: that takes
 * the lock of the address space, for which the loop would wait while models are loaded.
 */
static void bound_heap(void)
{
	mallopt(M_TOP_PAD, PAD_BYTES);
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

static int txdad(int argc, char **argv)
{
	static struct daemon d;
	char err[768];

	bound_heap();
	/*
	 * Other processes of this user must not read prompts, keys and weights from the daemon's
	 * memory.
	 */
	if (confine_hide())
		log_warning("the daemon's memory can be read by its user's processes");
	d.reload.fd = -1;
	d.argc = argc;
	d.argv = argv;
	take_inherited_fds(&d);
	switch (config_load(argc, argv, &d.config)) {
	case CONFIG_RUN: break;
	case CONFIG_EXIT: config_free(&d.config); return EXIT_SUCCESS;
	case CONFIG_ERROR: config_free(&d.config); return refuse(&d);
	}
	log_set_level(d.config.log_level);
	if (log_to_file(d.config.log_file, err, sizeof(err))) {
		log_error("%s", err);
		config_free(&d.config);
		return refuse(&d);
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file size limit leads to an error, not to termination */
	config_log_ignored(&d.config);
	raise_descriptor_limit(&d.config);
	hold_signals(SIG_BLOCK);
	if (start(&d)) {
		if (d.exit_code == EXIT_CONFIG)
			refuse(&d);
		stop(&d);
		return d.exit_code ? d.exit_code : EXIT_FAILURE;
	}
	hold_signals(SIG_UNBLOCK);
	sd_notify(0, "READY=1\nSTATUS=loading");
	event_base_dispatch(d.base);
	if (d.draining)
		log_info("stopped");
	stop(&d);
	return d.exit_code;
}

int main(int argc, char **argv)
{
	return tool_run("txdad", txdad, argc, argv, EXIT_FAILURE);
}
