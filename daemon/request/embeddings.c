// SPDX-License-Identifier: MIT
#include "embeddings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "server_internal.h"

#define AT_ONCE	       64 /* inputs of one exchange in the engine, so that others come in between */
#define INPUT_OVERHEAD 1024 /* bytes apart from tokens and vector, about */
#define NUMBER_BYTES   28   /* of an element: sum, value and text */

struct embedding {
	struct client client; /* first: the engine's news are for it */
	struct embeddings *all;
	struct engine_request *request;
	bool done;
};

struct embeddings {
	struct exchange *exchange;
	struct engine_pooling pooling;
	struct embedding *inputs; /* [n] */
	unsigned n, submitted, done;
};

uint64_t embeddings_bytes(const struct exchange *x)
{
	const struct engine_limits *limits = &x->model->limits;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		bytes += INPUT_OVERHEAD + 8 * (uint64_t)x->prompts[i].n +
			 (uint64_t)NUMBER_BYTES * limits->hidden;
	return bytes;
}

void embeddings_free(struct embeddings *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n; i++) {
		if (m->inputs[i].request)
			engine_request_unref(m->inputs[i].request);
	}
	free(m->inputs);
	free(m);
}

void embeddings_cancel(struct embeddings *m)
{
	for (unsigned i = 0; i < m->submitted; i++) {
		struct embedding *input = &m->inputs[i];

		if (input->request && !input->done)
			model_cancel(input->request);
	}
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void put_base64(struct json_out *o, const float *vector, unsigned n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t bytes = (size_t)n * sizeof(*vector), at = 0;
	const unsigned char *in = (const unsigned char *)vector;
	char *text = malloc(4 * (bytes + 2) / 3 + 4);

	if (!text) {
		o->failed = true;
		return;
	}
	/* The elements are little-endian, as all that this runs on. */
	for (size_t i = 0; i < bytes; i += 3) {
		size_t left = bytes - i;
		unsigned group = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
				 (left > 2 ? in[i + 2] : 0);

		text[at++] = digits[group >> 18];
		text[at++] = digits[group >> 12 & 63];
		text[at++] = left > 1 ? digits[group >> 6 & 63] : '=';
		text[at++] = left > 2 ? digits[group & 63] : '=';
	}
	json_string_len(o, text, at);
	free(text);
}

static void put_vector(struct json_out *o, const struct exchange *x, const struct embedding *input,
		       unsigned index)
{
	const float *vector = input->request->embedding;
	unsigned n = input->request->pooling.dimensions;

	json_begin(o, '{');
	json_key(o, "object");
	json_string(o, "embedding");
	json_key(o, "index");
	json_uint(o, index);
	json_key(o, "embedding");
	if (x->params.base64) {
		put_base64(o, vector, n);
	} else {
		json_begin(o, '[');
		for (unsigned i = 0; i < n; i++)
			json_number(o, (double)vector[i]);
		json_end(o, ']');
	}
	json_end(o, '}');
}

static void answer(struct exchange *x)
{
	struct embeddings *m = x->embeddings;
	struct json_out *o = &x->server->out;
	uint64_t prompt = 0;
	char header[EXCHANGE_HEADERS_MAX];

	json_out_clear(o);
	json_begin(o, '{');
	json_key(o, "object");
	json_string(o, "list");
	json_key(o, "data");
	json_begin(o, '[');
	for (unsigned i = 0; i < m->n; i++) {
		put_vector(o, x, &m->inputs[i], i);
		prompt += x->prompts[i].n;
	}
	json_end(o, ']');
	json_key(o, "model");
	json_string(o, x->model_name);
	json_key(o, "usage");
	json_begin(o, '{');
	json_key(o, "prompt_tokens");
	json_uint(o, prompt);
	json_key(o, "total_tokens");
	json_uint(o, prompt);
	json_end(o, '}');
	json_end(o, '}');
	http_conn_set_note(x->conn, "%s %llu+0 tokens", x->id, (unsigned long long)prompt);
	server_reply_out(x->server, x->conn, 200, exchange_headers(x, header, sizeof(header)));
	x->answered = true;
	x->conn = NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void on_news(struct client *client);

static int submit_one(struct embeddings *m, char *err, size_t errlen)
{
	struct exchange *x = m->exchange;
	const struct prompt_tokens *prompt = &x->prompts[m->submitted];
	struct embedding *input = &m->inputs[m->submitted];
	int r = 0;

	*input = (struct embedding){.client.news = on_news, .all = m, .request = input->request};
	if (!input->request)
		r = engine_embedding_new(prompt->ids, prompt->n, &m->pooling, &input->request);
	if (r)
		return r;
	r = exchange_submit(x, input->request, &input->client, err, errlen);
	m->submitted += !r;
	return r;
}

/* Keeps some of the inputs in the engine. When its queue is full, those that are there go first. */
static bool submit_more(struct embeddings *m, struct api_error *e)
{
	char err[256] = "";

	while (m->submitted < m->n && m->submitted - m->done < AT_ONCE) {
		int r = submit_one(m, err, sizeof(err));

		if (r == -EAGAIN && m->submitted > m->done)
			return true;
		if (r)
			return exchange_submit_error(m->exchange, r, err, e);
	}
	return true;
}

static void on_news(struct client *client)
{
	struct embedding *input = (struct embedding *)client;
	struct embeddings *m = input->all;
	struct exchange *x = m->exchange;
	struct served_model *model = x->model;
	struct replica *replica = client->replica;
	struct engine_request *r = input->request;
	enum engine_finish how =
		(enum engine_finish)atomic_load_explicit(&r->finish, memory_order_acquire);
	struct api_error e;

	if (how == ENGINE_RUNNING || input->done)
		return;
	input->done = true;
	m->done++;
	exchange_end_request(x, r);
	if (how == ENGINE_FINISH_ERROR || how == ENGINE_FINISH_CANCELLED ||
	    how == ENGINE_FINISH_TIMEOUT) {
		model->metrics.finished[how == ENGINE_FINISH_ERROR     ? METRICS_ERROR
					: how == ENGINE_FINISH_TIMEOUT ? METRICS_TIMEOUT
								       : METRICS_ABORT]++;
		exchange_submit_error(x, how == ENGINE_FINISH_CANCELLED ? -ESHUTDOWN : r->error,
				      r->error_text, &e);
		exchange_fail(x, &e);
	} else {
		exchange_observe(x, r);
		if (m->done == m->n && x->conn && !x->answered)
			answer(x);
		else if (x->conn && !x->answered && !submit_more(m, &e))
			exchange_fail(x, &e);
	}
	exchange_free_if_over(x);
	replica_request_ended(replica);
}

/* The model's way, or the request's own. */
static bool choose_pooling(const struct exchange *x, struct engine_pooling *ret,
			   struct api_error *e)
{
	static const enum engine_pooling_how hows[] = {
		[API_POOL_LAST] = ENGINE_POOL_LAST,
		[API_POOL_MEAN] = ENGINE_POOL_MEAN,
		[API_POOL_CLS] = ENGINE_POOL_CLS,
	};
	const struct api_params *p = &x->params;
	const struct engine_limits *limits = &x->model->limits;

	if (!limits->hidden)
		return api_error_set(e, 400, "unsupported_value", "model",
				     "the model \"%.80s\" gives no embeddings: it is no embedding "
				     "model and was compiled without --hidden",
				     x->model->config->names[0]);
	if (p->dimensions > limits->hidden)
		return api_error_set(e, 400, NULL, "dimensions",
				     "dimensions is %u; the model's vectors have %u", p->dimensions,
				     limits->hidden);
	*ret = limits->pooling;
	if (p->pooling)
		ret->how = hows[p->pooling];
	if (p->normalize_given)
		ret->normalize = p->normalize;
	if (p->dimensions)
		ret->dimensions = p->dimensions;
	return true;
}

bool embeddings_start(struct exchange *x, struct api_error *e)
{
	struct embeddings *m = calloc(1, sizeof(*m));

	x->embeddings = m;
	if (m)
		m->inputs = calloc(x->n_prompts, sizeof(*m->inputs));
	if (!m || !m->inputs)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	m->exchange = x;
	m->n = x->n_prompts;
	return choose_pooling(x, &m->pooling, e) && submit_more(m, e);
}
