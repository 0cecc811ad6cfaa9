// SPDX-License-Identifier: MIT
/* Bodies of requests as both endpoints read them. */
#include "fuzz.h"
#include "api_params.h"
#include "json_strict.h"

static void try(enum api_kind kind, const uint8_t *data, size_t size)
{
	struct api_params p;
	struct api_error e = {0};
	struct json_out o;

	if (api_params_parse(kind, (const char *)data, size, &p, &e)) {
		if (!p.n || p.n > API_MAX_N || p.n_stop > STOP_MAX_STRINGS || p.best_of < p.n ||
		    p.beam_width > API_MAX_BEAMS || p.n_biases > API_MAX_BIASES ||
		    (!p.messages && !p.n_prompts && kind != API_FORWARD))
			abort();
		if (kind == API_FORWARD &&
		    (!p.input_ids.given || p.input_ids.fd > 15 || !p.input_ids.shape[0] ||
		     (p.n_row_list && p.row_list[p.n_row_list - 1] >= p.input_ids.shape[0])))
			abort();
		api_params_free(&p);
		return;
	}
	/* An error must make an answer that is JSON, whatever the request held. */
	json_out_init(&o);
	api_error_write(&e, &o);
	if (!e.status || !e.message[0] || txda_json_check(o.data, o.len, 8, NULL))
		abort();
	json_out_free(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try(API_CHAT, data, size);
	try(API_COMPLETION, data, size);
	try(API_EMBEDDING, data, size);
	try(API_TOKENIZE, data, size);
	try(API_DETOKENIZE, data, size);
	try(API_FORWARD, data, size);
	return 0;
}
