// SPDX-License-Identifier: MIT
#include "metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"

/* Upper bounds of buckets; the rest of each array is 0. */
static const double first_token_seconds[METRICS_MAX_BUCKETS + 1] = {
	0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
	1,     2.5,   5,    7.5,  10,	20,   40,   80,	 160,  640, 2560,
};
static const double inter_token_seconds[METRICS_MAX_BUCKETS + 1] = {
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
	0.4,   0.5,    0.75,  1,    2.5,   5,	 7.5,	10,  20,   40,	80,
};
static const double request_seconds[METRICS_MAX_BUCKETS + 1] = {
	0.1, 0.3, 0.5, 0.8, 1,	1.5, 2,	  2.5, 5,   10,	  15,
	20,  30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680,
};
static const double phase_seconds[METRICS_MAX_BUCKETS + 1] = {
	0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
	10,    15,   20,  30,  40,  50,	 60, 120, 240, 480, 960,
};
static const double request_tokens[METRICS_MAX_BUCKETS + 1] = {
	1,    2,    5,	   10,	  20,	 50,	 100,	 200,	 500,	  1000,
	2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000,
};

static const struct {
	const char *name, *help;
	const double *bounds;
} histograms[METRICS_N_HISTOGRAMS] = {
	[METRICS_TIME_TO_FIRST_TOKEN] =
		{
			"time_to_first_token_seconds",
			"Time from the arrival of a request to its first token.",
			first_token_seconds,
		},
	[METRICS_INTER_TOKEN_LATENCY] =
		{
			"inter_token_latency_seconds",
			"Time between two tokens of a request.",
			inter_token_seconds,
		},
	[METRICS_E2E_LATENCY] =
		{
			"e2e_request_latency_seconds",
			"Time from the arrival of a request to its end.",
			request_seconds,
		},
	[METRICS_QUEUE_TIME] =
		{
			"request_queue_time_seconds",
			"Time that a request waited for its first step.",
			phase_seconds,
		},
	[METRICS_PREFILL_TIME] =
		{
			"request_prefill_time_seconds",
			"Time from a request's first step to its first token.",
			phase_seconds,
		},
	[METRICS_DECODE_TIME] =
		{
			"request_decode_time_seconds",
			"Time from a request's first token to its last.",
			request_seconds,
		},
	[METRICS_PROMPT_TOKENS] =
		{
			"request_prompt_tokens",
			"Tokens of the prompt of a request.",
			request_tokens,
		},
	[METRICS_GENERATION_TOKENS] =
		{
			"request_generation_tokens",
			"Tokens generated for a request.",
			request_tokens,
		},
};

static const char *const reasons[METRICS_N_REASONS] = {"stop", "length", "abort", "error",
						       "timeout"};

void metrics_observe(struct metrics_model *m, enum metrics_histogram which, double value,
		     uint64_t times)
{
	unsigned i = 0;

	while (i < METRICS_MAX_BUCKETS && histograms[which].bounds[i] > 0 &&
	       value > histograms[which].bounds[i])
		i++;
	m->histograms[which].buckets[i] += times;
	m->histograms[which].count += times;
	m->histograms[which].sum += value * (double)times;
}

__attribute__((format(printf, 2, 3))) static void put(struct json_out *o, const char *format, ...)
{
	char line[768];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	json_raw(o, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

static void put_head(struct json_out *o, const char *name, const char *type, const char *help)
{
	put(o, "# HELP txda_%s %s\n# TYPE txda_%s %s\n", name, help, name, type);
}

/* KEY="..." with the characters escaped that the format requires. */
static const char *label_of(const char *key, const char *name, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "%s=\"", key);

	for (; *name && at + 4 < len; name++) {
		if (*name == '\n') {
			buf[at++] = '\\';
			buf[at++] = 'n';
			continue;
		}
		if (*name == '"' || *name == '\\')
			buf[at++] = '\\';
		buf[at++] = *name;
	}
	buf[at++] = '"';
	buf[at] = 0;
	return buf;
}

static const char *label(const char *name, char *buf, size_t len)
{
	return label_of("model_name", name, buf, len);
}

/* A number that is a member of a struct: name, type, help and where it is. */
struct field {
	const char *name, *type, *help;
	size_t offset;
	enum { UNSIGNED, COUNT, REAL, FLAG } kind;
	double unit; /* seconds or bytes per unit; 0: 1 */
};

#define MEMBER(owner, member)                                                                      \
	offsetof(struct owner, member), _Generic(((struct owner *)NULL)->member, unsigned          \
						 : UNSIGNED, uint64_t                              \
						 : COUNT, double                                   \
						 : REAL, bool                                      \
						 : FLAG)

static double value_of(const void *owner, const struct field *f)
{
	const char *at = (const char *)owner + f->offset;
	double value = 0;
	uint64_t count;
	unsigned small;

	switch (f->kind) {
	case UNSIGNED:
		memcpy(&small, at, sizeof(small));
		value = small;
		break;
	case COUNT:
		memcpy(&count, at, sizeof(count));
		value = (double)count;
		break;
	case REAL: memcpy(&value, at, sizeof(value)); break;
	case FLAG: value = *(const bool *)at; break;
	}
	return f->unit ? value * f->unit : value;
}

static const struct field engine_fields[] = {
	{"num_requests_running", "gauge", "Requests that are running.",
	 MEMBER(engine_stats, running)},
	{"num_requests_waiting", "gauge", "Requests that wait for their first step.",
	 MEMBER(engine_stats, waiting)},
	{"kv_cache_usage_perc", "gauge", "Fraction of the KV blocks in use, 0 to 1.",
	 MEMBER(engine_stats, kv_usage)},
	{"kv_cache_keys_bytes", "gauge",
	 "Device memory in use by keys and values of layers that see all, per chip.",
	 MEMBER(engine_stats, kv_keys_bytes)},
	{"kv_cache_window_bytes", "gauge", "Likewise of layers with a sliding window.",
	 MEMBER(engine_stats, kv_window_bytes)},
	{"kv_cache_state_bytes", "gauge", "Likewise of layers that keep a state, and snapshots.",
	 MEMBER(engine_stats, kv_state_bytes)},
	{"prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
	 MEMBER(engine_stats, prefix_queries)},
	{"prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
	 MEMBER(engine_stats, prefix_hits)},
	{"num_preemptions_total", "counter", "Requests that were preempted.",
	 MEMBER(engine_stats, preemptions)},
	{"num_limited_steps_total", "counter",
	 "Steps that skipped sequences of heavy users, for another user's first token.",
	 MEMBER(engine_stats, limited_steps)},
	{"prompt_tokens_total", "counter", "Prompt tokens processed.",
	 MEMBER(engine_stats, prompt_tokens)},
	{"generation_tokens_total", "counter", "Tokens generated.",
	 MEMBER(engine_stats, generation_tokens)},
	{"images_encoded_total", "counter", "Images encoded.", MEMBER(engine_stats, images)},
	{"image_launches_total", "counter", "Launches that encoded an image or a part of one.",
	 MEMBER(engine_stats, encode_launches)},
	{"images_cached_total", "counter", "Images whose embeddings were in the cache.",
	 MEMBER(engine_stats, cached_images)},
	{"image_encode_seconds_total", "counter", "Time on the chips for encoding images.",
	 MEMBER(engine_stats, encode_ns), 1e-9},
	{"spec_decode_num_drafts_total", "counter", "Steps of sequences with proposed tokens.",
	 MEMBER(engine_stats, drafts)},
	{"spec_decode_num_draft_tokens_total", "counter", "Tokens proposed.",
	 MEMBER(engine_stats, draft_tokens)},
	{"spec_decode_num_accepted_tokens_total", "counter", "Proposed tokens that were accepted.",
	 MEMBER(engine_stats, accepted_tokens)},
	{"engine_steps_total", "counter", "Launches of the program.", MEMBER(engine_stats, steps)},
	{"engine_step_seconds_total", "counter", "Time on the chips.",
	 MEMBER(engine_stats, step_ns), 1e-9},
	{"engine_host_seconds_total", "counter", "Time between launches.",
	 MEMBER(engine_stats, host_ns), 1e-9},
	{"engine_written_bytes_total", "counter", "Launch arguments written to the chips.",
	 MEMBER(engine_stats, bytes_written)},
	{"engine_read_bytes_total", "counter", "Outputs read from the chips.",
	 MEMBER(engine_stats, bytes_read)},
};

/* Metrics of a model that the server keeps. */
static const struct field source_fields[] = {
	{"model_ready", "gauge", "1 when the model answers requests.",
	 MEMBER(metrics_source, ready)},
	{"model_weight_bytes", "gauge", "Device memory of the weights, per chip.",
	 MEMBER(metrics_source, weight_bytes)},
	{"model_kv_bytes", "gauge", "Device memory of the KV cache, per chip.",
	 MEMBER(metrics_source, kv_bytes)},
	{"model_replicas", "gauge", "Groups of chips on which the model is ready.",
	 MEMBER(metrics_source, replicas)},
	{"model_pinned", "gauge", "1 when the model is pinned: not evicted, no idle unload.",
	 MEMBER(metrics_source, pinned)},
	{"num_requests_awaiting_model", "gauge", "Requests that wait for the load.",
	 MEMBER(metrics_source, parked)},
};

static const struct field model_fields[] = {
	{"model_loads_total", "counter", "Successful loads.", MEMBER(metrics_model, loads)},
	{"model_loads_adopted_total", "counter",
	 "Loads that reused weights kept from an earlier daemon.",
	 MEMBER(metrics_model, adoptions)},
	{"model_load_failures_total", "counter", "Failed loads.",
	 MEMBER(metrics_model, load_failures)},
	{"model_load_seconds_total", "counter", "Total time of loads.",
	 MEMBER(metrics_model, load_seconds)},
};

static const struct field server_fields[] = {
	{"http_connections", "gauge", "Open connections.", MEMBER(metrics_server, connections)},
	{"http_unauthenticated_connections", "gauge",
	 "Open TCP connections without a valid API key so far.", MEMBER(metrics_server, unknown)},
	{"http_evicted_connections_total", "counter",
	 "Unauthenticated TCP connections closed to make room.", MEMBER(metrics_server, evicted)},
	{"http_auth_failures_total", "counter", "Requests over TCP without a valid API key.",
	 MEMBER(metrics_server, turned_away)},
	{"http_held_bytes", "gauge", "Bytes held for the requests of all clients.",
	 MEMBER(metrics_server, held_bytes)},
	{"http_kept_bytes", "gauge",
	 "Bytes of these that are only kept for later requests, until they are needed.",
	 MEMBER(metrics_server, kept_bytes)},
	{"http_held_descriptors", "gauge", "Descriptors that clients passed.",
	 MEMBER(metrics_server, descriptors)},
	{"event_loop_json_bytes_total", "counter",
	 "JSON written by the event loop; answers are written by text workers.",
	 MEMBER(metrics_server, loop_json_bytes)},
	{"process_start_time_seconds", "gauge",
	 "When the daemon started, in seconds since the epoch.",
	 MEMBER(metrics_server, start_time)},
};

static const struct field user_fields[] = {
	{"user_connections", "gauge", "Open connections of the user.",
	 MEMBER(metrics_user, connections)},
	{"user_requests", "gauge", "Requests of the user in progress.",
	 MEMBER(metrics_user, requests)},
	{"user_held_bytes", "gauge", "Bytes held for the user.", MEMBER(metrics_user, held_bytes)},
	{"user_images", "gauge", "Images in requests of the user in progress.",
	 MEMBER(metrics_user, images)},
	{"user_image_pixels", "gauge", "Pixels of these images, as sent.",
	 MEMBER(metrics_user, pixels)},
	{"user_prompt_tokens_total", "counter", "Prompt tokens of the user's requests.",
	 MEMBER(metrics_user, prompt_tokens)},
	{"user_generation_tokens_total", "counter", "Tokens generated for the user.",
	 MEMBER(metrics_user, generation_tokens)},
	{"user_images_total", "counter", "Images read for requests of the user that are over.",
	 MEMBER(metrics_user, images_read)},
	{"user_model_loads_total", "counter", "Loads started by the user's requests.",
	 MEMBER(metrics_user, loads)},
	{"user_waits_total", "counter",
	 "How often a connection of the user waited for its share of the event loop.",
	 MEMBER(metrics_user, waits)},
	{"user_surplus_connections_total", "counter",
	 "Connections of the user that were closed without an answer.",
	 MEMBER(metrics_user, surplus)},
	{"user_unlogged_total", "counter",
	 "Requests without a log line, because of its rate limit.", MEMBER(metrics_user, unlogged)},
};

static const struct field chip_fields[] = {
	{"chip_up", "gauge", "1 when the chip works, 0 when it is lost.", MEMBER(metrics_chip, up)},
	{"chip_utilisation_ratio", "gauge",
	 "Utilisation of the cores since the last scrape (simulated chips: in the last second).",
	 MEMBER(metrics_chip, utilisation)},
	{"chip_memory_bytes", "gauge", "Device memory.", MEMBER(metrics_chip, memory)},
	{"chip_memory_used_bytes", "gauge", "Device memory in use, by all processes.",
	 MEMBER(metrics_chip, memory_used)},
	{"chip_power_watts", "gauge", "Power.", MEMBER(metrics_chip, power_watts)},
	{"chip_temperature_celsius", "gauge", "Temperature of the die.",
	 MEMBER(metrics_chip, temperature_celsius)},
	{"chip_clock_hertz", "gauge", "Clock of the cores.", MEMBER(metrics_chip, clock_hertz)},
	{"chip_ecc_corrected_total", "counter", "Corrected memory errors since the chip's reset.",
	 MEMBER(metrics_chip, ecc_corrected)},
	{"chip_ecc_uncorrected_total", "counter",
	 "Uncorrected memory errors since the chip's reset.",
	 MEMBER(metrics_chip, ecc_uncorrected)},
	{"chip_faults_total", "counter", "Queues that faulted or hung.",
	 MEMBER(metrics_chip, faults)},
};

#define N(fields) (sizeof(fields) / sizeof(fields[0]))

static const void *stats_of(const struct metrics_source *s)
{
	return s->stats;
}

static const void *self_of(const struct metrics_source *s)
{
	return s;
}

static const void *model_of(const struct metrics_source *s)
{
	return s->model;
}

/* Writes members of the struct that owner() returns for each model; NULL: skipped. */
static void write_fields(struct json_out *o, const struct field *fields, size_t n_fields,
			 const struct metrics_source *sources, unsigned n,
			 const void *(*owner)(const struct metrics_source *source))
{
	char name[512];

	for (const struct field *f = fields; f < fields + n_fields; f++) {
		put_head(o, f->name, f->type, f->help);
		for (unsigned i = 0; i < n; i++)
			if (owner(&sources[i]))
				put(o, "txda_%s{%s} %.15g\n", f->name,
				    label(sources[i].name, name, sizeof(name)),
				    value_of(owner(&sources[i]), f));
	}
}

/* How often the i-th proposed token was accepted; for models with proposals. */
static void write_accepted_at(struct json_out *o, const struct metrics_source *sources, unsigned n)
{
	char name[512];

	put_head(o, "spec_decode_num_accepted_tokens_per_pos_total", "counter",
		 "Accepted proposed tokens, by position in the proposal.");
	for (unsigned i = 0; i < n; i++) {
		const struct engine_stats *s = sources[i].stats;

		for (unsigned at = 0; s && at < ENGINE_MAX_DRAFT && s->accepted_at[at]; at++)
			put(o,
			    "txda_spec_decode_num_accepted_tokens_per_pos_total{%s,position=\"%u\"}"
			    " "
			    "%" PRIu64 "\n",
			    label(sources[i].name, name, sizeof(name)), at, s->accepted_at[at]);
	}
}

static void write_histogram(struct json_out *o, enum metrics_histogram which,
			    const struct metrics_source *source)
{
	const double *bounds = histograms[which].bounds;
	uint64_t below = 0;
	char model[512];

	label(source->name, model, sizeof(model));
	for (unsigned i = 0; i < METRICS_MAX_BUCKETS && bounds[i] > 0; i++) {
		below += source->model->histograms[which].buckets[i];
		put(o, "txda_%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", histograms[which].name, model,
		    bounds[i], below);
	}
	put(o, "txda_%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", histograms[which].name, model,
	    source->model->histograms[which].count);
	put(o, "txda_%s_sum{%s} %.15g\n", histograms[which].name, model,
	    source->model->histograms[which].sum);
	put(o, "txda_%s_count{%s} %" PRIu64 "\n", histograms[which].name, model,
	    source->model->histograms[which].count);
}

static void write_server(struct json_out *o, const struct metrics_server *server)
{
	for (const struct field *f = server_fields; f < server_fields + N(server_fields); f++) {
		put_head(o, f->name, f->type, f->help);
		put(o, "txda_%s %.15g\n", f->name, value_of(server, f));
	}
	put_head(o, "http_responses_total", "counter", "Answers by class of status.");
	for (unsigned i = 2; i < 6; i++)
		put(o, "txda_http_responses_total{code=\"%uxx\"} %" PRIu64 "\n", i,
		    server->responses[i]);
}

static const char *const model_states[] = {"unloaded", "loading", "ready", "unloading",
					   "asleep",   "failed",  "lost"};
static const char *const unload_reasons[] = {"admin", "idle", "evicted"};

/* State of the models, and counts of loads and unloads. */
static void write_residency(struct json_out *o, const struct metrics_source *sources, unsigned n)
{
	char name[512];

	put_head(o, "model_state", "gauge", "1 for the current state of the model.");
	for (unsigned i = 0; i < n; i++)
		for (size_t k = 0; k < N(model_states); k++)
			put(o, "txda_model_state{%s,state=\"%s\"} %d\n",
			    label(sources[i].name, name, sizeof(name)), model_states[k],
			    !strcmp(sources[i].state, model_states[k]));
	put_head(o, "model_unloads_total", "counter", "Unloads, by reason.");
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < 3; k++)
			put(o, "txda_model_unloads_total{%s,reason=\"%s\"} %" PRIu64 "\n",
			    label(sources[i].name, name, sizeof(name)), unload_reasons[k],
			    sources[i].model->unloads[k]);
}

void metrics_write_users(struct json_out *o, const struct metrics_user *users, unsigned n)
{
	char user[160];

	for (const struct field *f = user_fields; f < user_fields + N(user_fields); f++) {
		put_head(o, f->name, f->type, f->help);
		for (unsigned i = 0; i < n; i++)
			put(o, "txda_%s{%s} %.15g\n", f->name,
			    label_of("user", users[i].user, user, sizeof(user)),
			    value_of(&users[i], f));
	}
	put_head(o, "user_responses_total", "counter", "Answers to the user by class of status.");
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 2; k < 6; k++)
			put(o, "txda_user_responses_total{%s,code=\"%uxx\"} %" PRIu64 "\n",
			    label_of("user", users[i].user, user, sizeof(user)), k,
			    users[i].responses[k]);
}

void metrics_write_chips(struct json_out *o, const struct metrics_chip *chips, unsigned n)
{
	char serial[100];

	for (const struct field *f = chip_fields; f < chip_fields + N(chip_fields); f++) {
		put_head(o, f->name, f->type, f->help);
		for (unsigned i = 0; i < n; i++) {
			double value = value_of(&chips[i], f);

			if (!isnan(value))
				put(o, "txda_%s{chip=\"%u\",%s} %.15g\n", f->name, chips[i].index,
				    label_of("serial", chips[i].serial, serial, sizeof(serial)),
				    value);
		}
	}
}

void metrics_write(struct json_out *o, const struct metrics_source *sources, unsigned n,
		   const struct metrics_server *server)
{
	char name[512];

	write_fields(o, engine_fields, N(engine_fields), sources, n, stats_of);
	write_accepted_at(o, sources, n);
	put_head(o, "request_success_total", "counter", "Requests that ended, by the reason.");
	for (unsigned i = 0; i < n; i++)
		for (unsigned r = 0; r < METRICS_N_REASONS; r++)
			put(o,
			    "txda_request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n",
			    label(sources[i].name, name, sizeof(name)), reasons[r],
			    sources[i].model->finished[r]);
	write_fields(o, source_fields, N(source_fields), sources, n, self_of);
	write_fields(o, model_fields, N(model_fields), sources, n, model_of);
	write_residency(o, sources, n);
	for (unsigned h = 0; h < METRICS_N_HISTOGRAMS; h++) {
		put_head(o, histograms[h].name, "histogram", histograms[h].help);
		for (unsigned i = 0; i < n; i++)
			write_histogram(o, (enum metrics_histogram)h, &sources[i]);
	}
	write_server(o, server);
}
