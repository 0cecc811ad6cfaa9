// SPDX-License-Identifier: MIT
/*
 * /v1/forward for an exchange: tokens from a client's memory in, rows of logits and hidden states
 * in a client's memory out.
 *
 *	arrive	the loop: takes the descriptors that came with the request
 *	check	the loop: shapes against the model
 *	encode	a text worker: maps the tensors, copies the tokens, checks them
 *	start	the loop: one engine request, whose sink writes the rows
 *
 * The engine thread writes each row directly to the client's memory; the answer contains none of
 * the data. The descriptors and mappings belong to the exchange until the engine's request has a
 * sink, then to that, and are released with the last reference to the request.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_memory.h"
#include "descriptors.h"
#include "exchange.h"
#include "service.h"

#define OVERHEAD 4096 /* approximate bytes besides the tensors */

struct forward_sink {
	struct engine_sink base;
	struct client_memory logits, hidden;
	struct descriptor_set *set;
	const char *error;
	unsigned rows[]; /* [base.n_rows] */
};

/* x->own */
struct forward_call {
	struct sequence sequence; /* its request owns the sink */
	unsigned vocab, hidden;	  /* of the model */
	unsigned n_tokens, n_rows;
	struct forward_sink *sink; /* NULL, or no request has it yet */
};

/* ---- the engine's side ----------------------------------------------------------------------- */

static int write_row(struct forward_sink *s, const struct client_memory *m, unsigned i,
		     const float *row, unsigned columns, const char *error)
{
	size_t bytes = (size_t)columns * sizeof(*row);
	int r = client_memory_write(m, i * bytes, row, bytes);

	if (r)
		s->error = error;
	return r;
}

static int sink_row(struct engine_sink *base, unsigned i, const float *logits, const float *hidden)
{
	struct forward_sink *s = (struct forward_sink *)base;
	int r = 0;

	if (base->vocab)
		r = write_row(s, &s->logits, i, logits, base->vocab,
			      "the memory of logits was removed while it was written");
	if (!r && base->hidden)
		r = write_row(s, &s->hidden, i, hidden, base->hidden,
			      "the memory of hidden_states was removed while it was written");
	return r;
}

static const char *sink_error(struct engine_sink *base)
{
	return ((struct forward_sink *)base)->error;
}

static void sink_free(struct engine_sink *base)
{
	struct forward_sink *s = (struct forward_sink *)base;

	client_memory_end(&s->logits);
	client_memory_end(&s->hidden);
	descriptors_discard(s->set);
	free(s);
}

static const struct engine_sink_ops sink_ops = {sink_row, sink_error, sink_free};

/* ---- checks ---------------------------------------------------------------------------------- */

static bool arrive(struct exchange *x, struct api_error *e)
{
	if (http_conn_peer(x->conn)->tcp)
		return api_error_set(e, 400, "unix_socket_needed", NULL,
				     "tensors are passed as descriptors, which TCP does not carry: "
				     "/v1/forward is for the Unix socket");
	return exchange_take_fds(x, e);
}

static unsigned count_rows(const struct api_params *p)
{
	return p->rows == API_ROWS_ALL	  ? (unsigned)p->input_ids.shape[0]
	       : p->rows == API_ROWS_LIST ? p->n_row_list
					  : 1;
}

static bool check_fd(const struct exchange *x, const struct api_tensor *t, const char *name,
		     struct api_error *e)
{
	unsigned n = x->set ? x->set->n_fds : 0;
	char param[96];

	if (!t->given || t->fd < n)
		return true;
	snprintf(param, sizeof(param), "%s.fd", name);
	return api_error_set(e, 400, NULL, param, "%s is %u; %u descriptors came with the request",
			     param, t->fd, n);
}

static bool check_output(const struct forward_call *f, const struct api_tensor *t, const char *name,
			 unsigned columns, struct api_error *e)
{
	char param[96];

	if (!t->given || (t->shape[0] == f->n_rows && t->shape[1] == columns))
		return true;
	snprintf(param, sizeof(param), "%s.shape", name);
	return api_error_set(e, 400, NULL, param,
			     "%s is [%llu, %llu]; the requested rows and the model make it "
			     "[%u, %u]",
			     param, (unsigned long long)t->shape[0],
			     (unsigned long long)t->shape[1], f->n_rows, columns);
}

static bool check_shapes(struct exchange *x, struct api_error *e)
{
	const struct engine_limits *limits = &x->model->limits;
	const struct api_params *p = &x->params;
	struct forward_call *f = calloc(1, sizeof(*f));

	if (!f)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	x->own = f;
	if (p->input_ids.shape[0] > limits->max_context)
		return api_error_set(e, 400, "context_length_exceeded", "input_ids.shape",
				     "input_ids has %llu tokens; the model's context is %u",
				     (unsigned long long)p->input_ids.shape[0],
				     limits->max_context);
	f->vocab = limits->vocab;
	f->hidden = limits->hidden;
	f->n_rows = count_rows(p);
	/* Tokens after the last requested row do not affect the rows before them. */
	f->n_tokens = p->rows == API_ROWS_LIST ? p->row_list[p->n_row_list - 1] + 1
					       : (unsigned)p->input_ids.shape[0];
	if (p->hidden_states.given && !f->hidden)
		return api_error_set(e, 400, "unsupported_value", "hidden_states",
				     "the model \"%.80s\" has no hidden states output: it is not "
				     "an embedding model and was compiled without --hidden",
				     x->model->config->names[0]);
	return check_fd(x, &p->input_ids, "input_ids", e) && check_fd(x, &p->logits, "logits", e) &&
	       check_fd(x, &p->hidden_states, "hidden_states", e) &&
	       check_output(f, &p->logits, "logits", f->vocab, e) &&
	       check_output(f, &p->hidden_states, "hidden_states", f->hidden, e);
}

static bool check(struct exchange *x, struct api_error *e)
{
	const struct api_params *p = &x->params;
	const struct forward_call *f;
	uint64_t bytes = OVERHEAD;

	if (!check_shapes(x, e))
		return false;
	f = x->own;
	bytes += p->input_ids.shape[0] * 16 + f->n_rows * sizeof(unsigned);
	if (p->logits.given)
		bytes += (uint64_t)f->n_rows * f->vocab * sizeof(float);
	if (p->hidden_states.given)
		bytes += (uint64_t)f->n_rows * f->hidden * sizeof(float);
	return exchange_hold(x, bytes, "rows", e);
}

/* ---- in a text worker ------------------------------------------------------------------------ */

static uint64_t tensor_bytes(const struct api_tensor *t)
{
	uint64_t bytes = api_dtype_bytes(t->dtype);

	for (unsigned i = 0; i < t->n_dims; i++)
		bytes *= t->shape[i];
	return bytes;
}

static bool open_tensor(struct exchange *x, const struct api_tensor *t, const char *name,
			bool writable, struct client_memory *ret, struct api_error *e)
{
	struct descriptor_set *set = x->set;
	char err[256] = "";
	int error;

	if (!t->given)
		return true;
	error = client_memory_open(set->fds[t->fd], t->offset, tensor_bytes(t), writable, ret, err,
				   sizeof(err));
	if (error == -ENOMEM)
		return api_error_set(e, 500, NULL, name, "%s: %s", name, err);
	if (error == -ENOTSUP)
		return api_error_set(e, 501, "not_supported", name, "%s: %s", name, err);
	if (error)
		return api_error_set(e, 400, "invalid_memory", name, "%s: %s", name, err);
	set->maps[set->n_maps].ptr = ret->map;
	set->maps[set->n_maps++].len = ret->map_len;
	return true;
}

static bool check_apart(const struct client_memory *a, const char *a_name,
			const struct client_memory *b, const char *b_name, struct api_error *e)
{
	if (!a->map || !b->map || !client_memory_overlap(a, b))
		return true;
	return api_error_set(e, 400, "invalid_memory", a_name, "%s and %s overlap", a_name, b_name);
}

/* Copies the tokens once, and checks the copy. */
static bool read_tokens(struct exchange *x, const struct client_memory *m, struct api_error *e)
{
	const struct forward_call *f = x->own;
	bool wide = x->params.input_ids.dtype == API_INT64;
	size_t bytes = (size_t)f->n_tokens * (wide ? 8 : 4);
	int64_t *all = malloc(bytes);
	int32_t *narrow = (int32_t *)all;

	if (!all)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	x->prompts->ids = narrow;
	x->prompts->n = f->n_tokens;
	if (client_memory_read(m, 0, all, bytes))
		return api_error_set(e, 400, "invalid_memory", "input_ids",
				     "the memory of input_ids cannot be read");
	for (unsigned i = 0; i < f->n_tokens; i++) {
		int64_t id = narrow[i];

		if (wide)
			memcpy(&id, (char *)all + 8 * (size_t)i, sizeof(id));
		if (id < 0 || id >= f->vocab)
			return api_error_set(e, 400, NULL, "input_ids",
					     "input_ids has the token id %lld at position %u; the "
					     "vocabulary has %u",
					     (long long)id, i, f->vocab);
		narrow[i] = (int32_t)id;
	}
	return true;
}

static struct forward_sink *new_sink(const struct exchange *x)
{
	const struct forward_call *f = x->own;
	const struct api_params *p = &x->params;
	struct forward_sink *s = calloc(1, sizeof(*s) + f->n_rows * sizeof(s->rows[0]));

	if (!s)
		return NULL;
	for (unsigned i = 0; i < f->n_rows; i++)
		s->rows[i] =
			p->rows == API_ROWS_LIST ? p->row_list[i] : f->n_tokens - f->n_rows + i;
	s->base = (struct engine_sink){
		.ops = &sink_ops,
		.rows = s->rows,
		.n_rows = f->n_rows,
		.vocab = p->logits.given ? f->vocab : 0,
		.hidden = p->hidden_states.given ? f->hidden : 0,
	};
	return s;
}

static bool open_outputs(struct exchange *x, const struct client_memory *input, struct api_error *e)
{
	struct forward_sink *s = ((struct forward_call *)x->own)->sink;

	return open_tensor(x, &x->params.logits, "logits", true, &s->logits, e) &&
	       open_tensor(x, &x->params.hidden_states, "hidden_states", true, &s->hidden, e) &&
	       check_apart(&s->logits, "logits", input, "input_ids", e) &&
	       check_apart(&s->hidden, "hidden_states", input, "input_ids", e) &&
	       check_apart(&s->logits, "logits", &s->hidden, "hidden_states", e);
}

static bool encode(struct exchange *x, struct api_error *e)
{
	struct forward_call *f = x->own;
	struct client_memory input = {0};
	bool ok;

	x->prompts = calloc(1, sizeof(*x->prompts));
	x->n_prompts = x->prompts != NULL;
	f->sink = new_sink(x);
	if (!f->sink || !x->prompts)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	ok = open_tensor(x, &x->params.input_ids, "input_ids", false, &input, e) &&
	     read_tokens(x, &input, e) && open_outputs(x, &input, e);
	client_memory_end(&input);
	return ok;
}

static void put_output(struct json_out *o, const struct api_tensor *t, const char *name)
{
	if (!t->given)
		return;
	json_key(o, name);
	json_begin(o, '{');
	json_key(o, "shape");
	json_begin(o, '[');
	json_uint(o, t->shape[0]);
	json_uint(o, t->shape[1]);
	json_end(o, ']');
	json_put_string(o, "dtype", api_dtype_name(t->dtype));
	json_end(o, '}');
}

static void put_usage(struct json_out *o, const struct engine_request *r)
{
	json_key(o, "usage");
	json_begin(o, '{');
	json_put_uint(o, "prompt_tokens", r->n_prompt);
	json_put_uint(o, "total_tokens", r->n_prompt);
	json_key(o, "prompt_tokens_details");
	json_begin(o, '{');
	json_put_uint(o, "cached_tokens", r->cached_tokens);
	json_end(o, '}');
	json_end(o, '}');
}

static bool output(struct exchange *x)
{
	struct forward_call *f = x->own;
	struct json_out *o = &x->out;

	client_memory_end(&f->sink->logits);
	client_memory_end(&f->sink->hidden);
	json_begin(o, '{');
	json_put_string(o, "id", x->id);
	json_put_string(o, "object", "forward");
	json_put_int(o, "created", x->created);
	json_put_string(o, "model", x->model_name);
	json_put_uint(o, "rows", f->n_rows);
	put_output(o, &x->params.logits, "logits");
	put_output(o, &x->params.hidden_states, "hidden_states");
	put_usage(o, f->sequence.request);
	json_end(o, '}');
	x->complete = true;
	return true;
}

static void release(struct exchange *x)
{
	struct forward_call *f = x->own;

	if (f && f->sequence.request)
		engine_request_unref(f->sequence.request);
	else if (f && f->sink)
		sink_free(&f->sink->base);
	free(f);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static bool event(struct sequence *s, enum engine_finish how, struct api_error *e)
{
	struct exchange *x = s->exchange;

	if (how == ENGINE_RUNNING)
		return true;
	exchange_observe(x, s->request, how);
	if (!exchange_has_result(x, s->request, how, e))
		return false;
	exchange_output(x);
	return true;
}

static bool start(struct exchange *x, struct api_error *e)
{
	struct forward_call *f = x->own;
	char err[256] = "";
	int r = engine_forward_new(x->prompts->ids, x->prompts->n, &f->sink->base,
				   &f->sequence.request);

	if (!r) {
		f->sink->set = x->set;
		x->set = NULL;
		r = exchange_submit(x, &f->sequence, 1, err, sizeof(err));
	}
	return !r || exchange_engine_error(x, r, err, e);
}

static bool written(struct exchange *x, struct api_error *e)
{
	const struct forward_call *f = x->own;

	(void)e;
	http_conn_set_note(x->conn, "%s %u+0 tokens, %u rows", x->id, f->n_tokens, f->n_rows);
	return true;
}

const struct request_kind kind_forward = {
	.name = "forward",
	.id = "fwd",
	.prompt = "input_ids",
	.arrive = arrive,
	.check = check,
	.start = start,
	.event = event,
	.written = written,
	.encode = encode,
	.output = output,
	.release = release,
};
