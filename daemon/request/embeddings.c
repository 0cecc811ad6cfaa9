// SPDX-License-Identifier: MIT
/*
 * /v1/embeddings: one engine sequence per input, a few of them at a time, and one answer when all
 * vectors are complete.
 */
#include <errno.h>
#include <stdlib.h>

#include <event2/buffer.h>

#include "exchange.h"
#include "pictures.h"
#include "service.h"

#define AT_ONCE	       64   /* inputs of one exchange in the engine */
#define TURN	       64   /* vectors that a text worker formats per job */
#define INPUT_OVERHEAD 1024 /* approximate bytes besides tokens and vector */
#define NUMBER_BYTES   28   /* per element: sum, value and text */

/* x->own */
struct embeddings {
	struct engine_pooling pooling;
	unsigned n, submitted;
	struct sequence inputs[]; /* [n] */
};

/* ---- the answer, in a text worker ------------------------------------------------------------ */

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
	/* Elements are little-endian, like all supported machines. */
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

static void put_vector(struct json_out *o, const struct exchange *x, unsigned index)
{
	const struct embeddings *m = x->own;
	const struct engine_request *r = m->inputs[index].request;

	json_begin(o, '{');
	json_put_string(o, "object", "embedding");
	json_put_uint(o, "index", index);
	json_key(o, "embedding");
	if (x->params.base64) {
		put_base64(o, r->embedding, r->pooling.dimensions);
	} else {
		json_begin(o, '[');
		for (unsigned i = 0; i < r->pooling.dimensions; i++)
			json_number(o, (double)r->embedding[i]);
		json_end(o, ']');
	}
	json_end(o, '}');
}

static uint64_t prompt_tokens(const struct exchange *x)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		n += x->prompts[i].n;
	return n;
}

static bool output(struct exchange *x)
{
	struct embeddings *m = x->own;
	struct json_out *o = &x->out;

	if (!x->cursor) {
		json_begin(o, '{');
		json_put_string(o, "object", "list");
		json_key(o, "data");
		json_begin(o, '[');
	}
	while (x->cursor < m->n) {
		put_vector(o, x, x->cursor++);
		x->more = x->cursor < m->n && x->cursor % TURN == 0;
		if (x->more)
			return true;
	}
	json_end(o, ']');
	json_put_string(o, "model", x->model_name);
	json_key(o, "usage");
	json_begin(o, '{');
	json_put_uint(o, "prompt_tokens", prompt_tokens(x));
	json_put_uint(o, "total_tokens", prompt_tokens(x));
	json_end(o, '}');
	json_end(o, '}');
	x->complete = true;
	return true;
}

static bool written(struct exchange *x, struct api_error *e)
{
	(void)e;
	if (x->complete)
		http_conn_set_note(x->conn, "%s %llu+0 tokens", x->id,
				   (unsigned long long)prompt_tokens(x));
	return true;
}

/* ---- the engine ------------------------------------------------------------------------------ */

static int submit_one(struct exchange *x, char *err, size_t errlen)
{
	struct embeddings *m = x->own;
	const struct prompt_tokens *prompt = &x->prompts[m->submitted];
	struct sequence *s = &m->inputs[m->submitted];
	int r = s->request ? 0
			   : engine_embedding_new(prompt->ids, prompt->n, &m->pooling, &s->request);

	if (!r && !s->request->images)
		s->request->images = engine_images_ref(prompt->images);
	/* Vectors computed so far must not be lost because other requests have filled the queue. */
	if (!r) {
		s->request->continues = m->submitted;
		s->request->beyond_queue = m->submitted && !x->live;
		r = exchange_submit(x, s, 1, err, errlen);
	}
	m->submitted += !r;
	return r;
}

/*
 * Keeps some of the inputs in the engine. If its queue is full, continues when earlier ones are
 * done.
 */
static bool submit_more(struct exchange *x, struct api_error *e)
{
	const struct embeddings *m = x->own;
	char err[256] = "";

	while (m->submitted < m->n && x->n_live < AT_ONCE) {
		int r = submit_one(x, err, sizeof(err));

		if (r == -EAGAIN && x->live)
			return true;
		if (r)
			return exchange_engine_error(x, r, err, e);
	}
	return true;
}

static bool event(struct sequence *s, enum engine_finish how, struct api_error *e)
{
	struct exchange *x = s->exchange;
	const struct embeddings *m = x->own;

	if (how == ENGINE_RUNNING)
		return true;
	exchange_observe(x, s->request, how);
	if (!exchange_has_result(x, s->request, how, e))
		return false;
	if (!x->conn)
		return true;
	if (m->submitted < m->n)
		return submit_more(x, e);
	if (!x->live)
		exchange_output(x);
	return true;
}

/* The model's pooling, or the one requested. */
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
		return api_error_set(
			e, 400, "unsupported_value", "model",
			"the model \"%.80s\" produces no embeddings: it is not an embedding "
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

static bool start(struct exchange *x, struct api_error *e)
{
	struct embeddings *m = calloc(1, sizeof(*m) + x->n_prompts * sizeof(m->inputs[0]));
	uint64_t bytes = 0;

	if (!m)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	x->own = m;
	m->n = x->n_prompts;
	/* All of it will be used: this is the exact amount, not an upper bound. */
	for (unsigned i = 0; i < m->n; i++)
		bytes += INPUT_OVERHEAD + 8 * (uint64_t)x->prompts[i].n +
			 (uint64_t)NUMBER_BYTES * x->model->limits.hidden;
	return exchange_hold(x, bytes, "input", e) && choose_pooling(x, &m->pooling, e) &&
	       submit_more(x, e);
}

static void release(struct exchange *x)
{
	struct embeddings *m = x->own;

	for (unsigned i = 0; m && i < m->n; i++)
		engine_request_unref(m->inputs[i].request);
	free(m);
}

static bool encode(struct exchange *x, struct api_error *e)
{
	return pictures_read(x, e) && exchange_encode_prompts(x, e);
}

const struct request_kind kind_embedding = {
	.name = "embedding",
	.id = "embd",
	.prompt = "input",
	.arrive = pictures_arrive,
	.start = start,
	.event = event,
	.written = written,
	.encode = encode,
	.output = output,
	.release = release,
};
