// SPDX-License-Identifier: MIT
#include "serve.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <txda.h>
#include <unistd.h>

#include "array.h"
#include "clock.h"
#include "json_out.h"
#include "number.h"
#include "peer.h"
#include "serve_stream.h"
#include "tool_line.h"

#define MAX_HOST 255
#define MAX_KEY	 256

static const char usage[] =
	"Usage: txda-bench serve --model NAME [options]\n"
	"\n"
	"Puts load on a server of OpenAI's API and reports what its clients see.\n"
	"\n"
	"  --socket PATH       the server's Unix socket ($TXDA_SOCKET, the daemon's default)\n"
	"  --host ADDR:PORT    use TCP instead; $TXDA_API_KEY is the API key\n"
	"  --requests N        total requests (64)\n"
	"  --concurrency N     clients of the closed loop (8)\n"
	"  --rate R            open loop: R requests per second on average, as a Poisson process\n"
	"  --workload NAME     random, shared-prefix or multi-turn (random)\n"
	"  --prompt N          words of a prompt, about a token each (64)\n"
	"  --prefix N          words shared by all prompts, for shared-prefix (512)\n"
	"  --turns N           requests of a conversation, for multi-turn (4)\n"
	"  --output N          tokens of an answer (64)\n"
	"  --temperature T     (0)\n"
	"  --seed N            (1)\n"
	"  --csv FILE          one line per request\n"
	"  --json              one JSON document on standard output\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option options[] = {
	{"socket", required_argument, NULL, 's'},
	{"host", required_argument, NULL, 'a'},
	{"model", required_argument, NULL, 'm'},
	{"requests", required_argument, NULL, 'n'},
	{"concurrency", required_argument, NULL, 'c'},
	{"rate", required_argument, NULL, 'r'},
	{"workload", required_argument, NULL, 'w'},
	{"prompt", required_argument, NULL, 'p'},
	{"prefix", required_argument, NULL, 'x'},
	{"turns", required_argument, NULL, 't'},
	{"output", required_argument, NULL, 'o'},
	{"temperature", required_argument, NULL, 'T'},
	{"seed", required_argument, NULL, 'S'},
	{"csv", required_argument, NULL, 'f'},
	{"json", no_argument, NULL, 'j'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-bench serve", usage, options, "");

struct client {
	struct stream stream;
	unsigned request; /* that it is busy with */
	unsigned turn;	  /* of its conversation */
	char *history;	  /* multi-turn: the conversation, escaped as in JSON */
	char *prompt;	  /* of the request that runs; multi-turn only */
	bool busy;
};

struct load {
	const struct serve_options *o;
	struct serve_record *records;
	struct serve_gaps gaps;
	FILE *csv; /* opened before anything is measured; NULL: none */
	struct client *clients;
	unsigned n_clients, started, ended, failed;
	int epoll;
	uint64_t random;
	double next_arrival;
	unsigned streaming; /* clients that are receiving an answer */
	double full_since;  /* since when all of them have been; 0: not all */
	struct serve_full full;
};

/* ---- connections ----------------------------------------------------------------------------- */

static int connect_unix(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, error;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	error = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : peer_check(fd, path);
	if (error) {
		close(fd);
		return error;
	}
	return fd;
}

/* "ADDRESS:PORT"; the address may be a name, or an IPv6 address in brackets. */
static int connect_tcp(const char *host)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(host, ':');
	size_t len = colon ? (size_t)(colon - host) : 0;
	bool brackets = len > 2 && *host == '[' && host[len - 1] == ']';
	struct addrinfo *list;
	int fd = -EHOSTUNREACH, one = 1, error;
	char name[256];

	if (!len || len >= sizeof(name))
		return -EINVAL;
	snprintf(name, sizeof(name), "%.*s", (int)(len - (brackets ? 2 : 0)), host + brackets);
	if (getaddrinfo(name, colon + 1, &hints, &list))
		return -EHOSTUNREACH;
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && !connect(fd, at->ai_addr, at->ai_addrlen))
			break;
		error = errno;
		if (fd >= 0)
			close(fd);
		fd = -error;
	}
	freeaddrinfo(list);
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Requests are small: they are written at once, before the socket is made non-blocking. */
static int send_request(struct load *l, struct client *c, const char *prompt)
{
	const struct serve_options *o = l->o;
	size_t room = strlen(prompt) + strlen(o->model) + 512, len, at = 0;
	int fd = o->socket ? connect_unix(o->socket) : connect_tcp(o->host);
	char head[768], *body;
	int n;

	if (fd < 0)
		return fd;
	body = malloc(room + sizeof(head));
	if (!body) {
		close(fd);
		return -ENOMEM;
	}
	n = snprintf(body + sizeof(head), room,
		     "{\"model\":%s,\"prompt\":\"%s\",\"max_tokens\":%u,\"temperature\":%g,"
		     "\"seed\":%u,\"ignore_eos\":true,\"stream\":true,"
		     "\"stream_options\":{\"include_usage\":true}}",
		     o->model, prompt, o->output_tokens, o->temperature, c->request);
	len = (size_t)snprintf(head, sizeof(head),
			       "POST /v1/completions HTTP/1.1\r\nHost: %s\r\n"
			       "Content-Type: application/json\r\nContent-Length: %d\r\n"
			       "%s%s%sConnection: close\r\n\r\n",
			       o->host ? o->host : "localhost", n,
			       o->key ? "Authorization: Bearer " : "", o->key ? o->key : "",
			       o->key ? "\r\n" : "");
	memcpy(body + sizeof(head) - len, head, len);
	len += (size_t)n;
	while (at < len) {
		ssize_t put = send(fd, body + sizeof(head) + n - len + at, len - at, MSG_NOSIGNAL);

		if (put <= 0)
			break;
		at += (size_t)put;
	}
	free(body);
	if (at < len) {
		close(fd);
		return -EPIPE;
	}
	return fd;
}

/* Counts one more client that receives an answer, or one less. */
static void count_streaming(struct load *l, int more, double now)
{
	if (l->full_since > 0)
		l->full.seconds += now - l->full_since;
	l->streaming += (unsigned)more;
	l->full_since = l->streaming == l->n_clients && l->o->rate <= 0 ? now : 0;
}

static void end_request(struct load *l, struct client *c)
{
	struct serve_record *r = &l->records[c->request];

	r->end = clock_s();
	if (r->first > 0)
		count_streaming(l, -1, r->end);
	r->status = c->stream.status;
	r->done = c->stream.done && c->stream.status == 200;
	if (!r->done && l->failed++ < 3)
		fprintf(stderr, "txda-bench: request %u failed with status %d: %.200s\n",
			c->request, c->stream.status, stream_body(&c->stream));
	if (r->done && l->o->workload == SERVE_MULTI_TURN) {
		const char *answer = stream_answer(&c->stream);
		size_t room = strlen(c->prompt) + strlen(answer) + 2;

		free(c->history);
		c->history = malloc(room);
		if (c->history)
			snprintf(c->history, room, "%s%s ", c->prompt, answer);
		c->turn++;
	}
	free(c->prompt);
	c->prompt = NULL;
	stream_close(&c->stream);
	c->busy = false;
	l->ended++;
}

static void start_request(struct load *l, struct client *c)
{
	struct serve_record *r = &l->records[l->started];
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
	int fd;

	if (c->turn == l->o->turns) {
		free(c->history);
		c->history = NULL;
		c->turn = 0;
	}
	c->request = l->started++;
	c->busy = true;
	c->prompt = serve_prompt(l->o, c->request, c->history);
	r->start = clock_s();
	fd = c->prompt ? send_request(l, c, c->prompt) : -ENOMEM;
	stream_open(&c->stream, fd, l->o->workload == SERVE_MULTI_TURN);
	if (fd >= 0 && !epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event))
		return;
	if (fd < 0 && !l->failed)
		fprintf(stderr, "txda-bench: cannot reach the server: %s\n", strerror(-fd));
	end_request(l, c);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void add_gap(struct serve_gaps *g, double s)
{
	if (array_grow(&g->s, &g->cap, g->n + 1, sizeof(*g->s)))
		g->s[g->n++] = (float)s;
}

static void read_answer(struct load *l, struct client *c)
{
	struct serve_record *r = &l->records[c->request];
	unsigned events = 0;
	bool open = stream_read(&c->stream, &events);
	double now = clock_s();

	if (events && l->full_since > 0)
		l->full.chunks += events;
	/* Events that arrived together have no gap between them. */
	for (unsigned i = 0; i < events; i++) {
		if (r->first <= 0) {
			r->first = now;
			count_streaming(l, 1, now);
		} else {
			add_gap(&l->gaps, i ? 0 : now - r->end);
		}
	}
	if (events)
		r->end = now; /* of the last one so far */
	r->chunks += events;
	r->prompt_tokens = c->stream.prompt_tokens;
	r->cached_tokens = c->stream.cached_tokens;
	r->output_tokens = c->stream.output_tokens ? c->stream.output_tokens : r->chunks;
	if (!open)
		end_request(l, c);
}

/* Starts due requests; returns the time until the next one, -1: none is scheduled. */
static int start_due(struct load *l)
{
	const struct serve_options *o = l->o;

	for (unsigned i = 0; i < l->n_clients && l->started < o->requests; i++) {
		if (l->clients[i].busy)
			continue;
		if (o->rate > 0) {
			double now = clock_s();

			if (l->next_arrival > now)
				return (int)((l->next_arrival - now) * 1e3) + 1;
			l->next_arrival += -log(1 - serve_random(&l->random)) / o->rate;
		}
		start_request(l, &l->clients[i]);
	}
	return -1;
}

static int run(struct load *l)
{
	struct epoll_event events[64];
	double begin = clock_s(), seconds;
	int error = 0;

	l->next_arrival = begin;
	while (l->ended < l->o->requests) {
		int wait = start_due(l), n;

		if (l->failed > 16 && l->failed == l->ended) {
			fprintf(stderr, "txda-bench: every request fails; giving up\n");
			return 1;
		}
		if (l->ended == l->started && wait < 0)
			continue;
		n = epoll_wait(l->epoll, events, 64, wait);
		for (int i = 0; i < n; i++)
			read_answer(l, events[i].data.ptr);
	}
	seconds = clock_s() - begin;
	serve_report(l->o, l->records, l->o->requests, &l->gaps, &l->full, seconds);
	if (l->csv)
		error = serve_write_csv(l->csv, l->records, l->o->requests);
	if (error)
		fprintf(stderr, "txda-bench: %s: %s\n", l->o->csv, strerror(-error));
	return error || l->failed ? 1 : 0;
}

/* ---- options --------------------------------------------------------------------------------- */

static bool number(const char *text, double min, double max, double *ret)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= min && v <= max)) {
		tool_refuse(&line, "--%s %s: must be from %g to %g", line.name, text, min, max);
		return false;
	}
	*ret = v;
	return true;
}

static bool set_workload(enum serve_workload *ret)
{
	static const char *const names[] = {"random", "shared-prefix", "multi-turn", NULL};
	int word = tool_word(&line, names);

	*ret = (enum serve_workload)(word < 0 ? 0 : word);
	return word >= 0;
}

static bool check_host(const char *host)
{
	const char *colon = strrchr(host, ':');
	uint64_t port;

	if (strlen(host) > MAX_HOST)
		tool_refuse(&line, "--host has %zu characters; the limit is %d", strlen(host),
			    MAX_HOST);
	else if (!colon || colon == host || !number_parse(colon + 1, 65535, &port) || !port)
		tool_refuse(&line,
			    "--host must be ADDRESS:PORT with a port from 1 to 65535, not %s",
			    host);
	else
		return true;
	return false;
}

static bool apply(struct serve_options *o, int id)
{
	const char *value = line.value;
	double v;

	switch (id) {
	case 's': o->socket = value; return true;
	case 'a': o->host = value; return check_host(value);
	case 'm': o->model = value; return true;
	case 'n': return tool_number(&line, 1, 1000000, &o->requests);
	case 'c': return tool_number(&line, 1, 4096, &o->concurrency);
	case 'r': return number(value, 0, 1e6, &o->rate);
	case 'w': return set_workload(&o->workload);
	case 'p': return tool_number(&line, 1, 1000000, &o->prompt_words);
	case 'x': return tool_number(&line, 0, 1000000, &o->prefix_words);
	case 't': return tool_number(&line, 1, 10000, &o->turns);
	case 'o': return tool_number(&line, 1, 1000000, &o->output_tokens);
	case 'T': return number(value, 0, 2, &o->temperature);
	case 'S':
		if (!number(value, 0, 4294967295.0, &v))
			return false;
		o->seed = (uint64_t)v;
		return true;
	case 'f': o->csv = value; return true;
	default: o->json = true; return true;
	}
}

/* The key is sent in a header unchanged. */
static bool find_key(struct serve_options *o)
{
	const char *key = getenv("TXDA_API_KEY");

	if (!o->host || !key || !*key)
		return true;
	for (const char *c = key; *c; c++) {
		if (*c <= ' ' || *c > '~' || c - key == MAX_KEY) {
			fprintf(stderr,
				"txda-bench: TXDA_API_KEY is not a valid key: keys have up to %d "
				"characters, "
				"and no blanks\n",
				MAX_KEY);
			return false;
		}
	}
	o->key = key;
	return true;
}

static void find_server(struct serve_options *o, char *path, size_t len)
{
	const char *env = getenv("TXDA_SOCKET"), *dir = getenv("XDG_RUNTIME_DIR");

	if (o->host || o->socket)
		return;
	if (env && *env)
		snprintf(path, len, "%s", env);
	else if (geteuid() && dir && *dir == '/')
		snprintf(path, len, "%s/txda.sock", dir);
	else
		snprintf(path, len, "/run/txda/txda.sock");
	o->socket = path;
}

int serve_main(int argc, char **argv)
{
	struct serve_options o = {.requests = 64,
				  .concurrency = 8,
				  .prompt_words = 64,
				  .prefix_words = 512,
				  .turns = 4,
				  .output_tokens = 64,
				  .seed = 1};
	struct load l = {.o = &o};
	struct json_out model = {0};
	char path[512];
	int id, ret = 1;

	while ((id = tool_option(&line, argc, argv)) > 0) {
		if (!apply(&o, id))
			return line.status;
	}
	if (id < 0)
		return line.status;
	if (line.n_words)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[0]);
	if (!o.model)
		return tool_refuse(&line, "--model NAME is missing");
	find_server(&o, path, sizeof(path));
	if (!find_key(&o))
		return 2;
	l.csv = o.csv ? fopen(o.csv, "we") : NULL;
	if (o.csv && !l.csv) {
		fprintf(stderr, "txda-bench: %s: %s\n", o.csv, strerror(errno));
		return 1;
	}
	json_string(&model, o.model);
	json_raw(&model, "", 1);
	o.model = model.data;
	l.n_clients = o.rate > 0 ? (o.requests < 4096 ? o.requests : 4096) : o.concurrency;
	l.random = o.seed;
	l.records = calloc(o.requests, sizeof(*l.records));
	l.clients = calloc(l.n_clients, sizeof(*l.clients));
	l.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l.records && l.clients && l.epoll >= 0 && !json_out_failed(&model))
		ret = run(&l);
	else
		fprintf(stderr, "txda-bench: %s\n", strerror(errno));
	for (unsigned i = 0; l.clients && i < l.n_clients; i++) {
		free(l.clients[i].history);
		stream_free(&l.clients[i].stream);
	}
	close(l.epoll);
	free(l.clients);
	free(l.records);
	free(l.gaps.s);
	json_out_free(&model);
	if (l.csv)
		fclose(l.csv);
	return ret;
}
