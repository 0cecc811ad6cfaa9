// SPDX-License-Identifier: MIT
/* Lists of chips and requests. */
#include <limits.h>
#include <string.h>

#include <txda.h>

#include "admin.h"
#include "clock.h"
#include "exchange.h"
#include "server_internal.h"

/* ---- devices --------------------------------------------------------------------------------- */

static void put_text(struct json_out *o, const char *key, const char *text)
{
	json_key(o, key);
	json_string(o, text);
}

static void put_number(struct json_out *o, const char *key, uint64_t value)
{
	json_key(o, key);
	json_uint(o, value);
}

/* Writes a sensor value, null if unknown. */
static void put_sensor(struct json_out *o, const char *key, bool known, double value)
{
	json_key(o, key);
	if (known)
		json_number(o, value);
	else
		json_null(o);
}

static void put_status(struct json_out *o, const struct txda_device_status *t)
{
	put_number(o, "mem_used_bytes", t->mem_used_bytes);
	json_key(o, "lost");
	json_bool(o, t->lost);
	put_sensor(o, "utilisation", t->utilisation_permille != UINT32_MAX,
		   t->utilisation_permille / 1000.0);
	put_sensor(o, "power_watts", t->power_mw != UINT32_MAX, t->power_mw / 1000.0);
	put_sensor(o, "temperature_celsius", t->temp_mc != INT32_MIN, t->temp_mc / 1000.0);
	put_sensor(o, "clock_mhz", t->clock_khz != UINT32_MAX, t->clock_khz / 1000.0);
	put_number(o, "ecc_corrected", t->ecc_corrected);
	put_number(o, "ecc_uncorrected", t->ecc_uncorrected);
	put_number(o, "faults", t->faults);
}

/* Lists the models that are on chip @index. */
static void put_models(struct json_out *o, const struct server *s, unsigned index)
{
	json_key(o, "models");
	json_begin(o, '[');
	for (unsigned i = 0; i < s->service.table->n; i++) {
		const struct served_model *m = s->service.table->all[i];
		bool here = false;

		for (unsigned k = 0; k < m->n_replicas; k++) {
			const struct replica *r = &m->replicas[k];
			unsigned n = r->on_chip.group ? txda_group_size(r->on_chip.group) : 0;

			for (unsigned rank = 0; rank < n; rank++)
				here |= replica_chip(r, rank) == index;
		}
		if (here)
			json_string(o, m->config->names[0]);
	}
	json_end(o, ']');
}

static void put_device(struct json_out *o, const struct server *s, struct txda_device *device)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);

	if (txda_device_info(device, &info) < 0)
		return;
	json_begin(o, '{');
	put_number(o, "index", info.index);
	put_number(o, "physical", info.physical);
	put_text(o, "name", info.name);
	put_text(o, "serial", info.serial);
	put_text(o, "bus", info.bus);
	put_text(o, "node", info.node);
	put_number(o, "cores", info.cores);
	put_number(o, "mem_bytes", info.mem_bytes);
	json_key(o, "simulated");
	json_bool(o, info.caps & TXDA_CAP_CMODEL);
	if (txda_device_status(device, &status) >= 0)
		put_status(o, &status);
	put_models(o, s, info.index);
	json_end(o, '}');
}

void admin_devices(struct server *s, struct http_conn *c, const struct http_request *r)
{
	struct txda_context *context = s->service.table->options.context;
	struct json_out *o = &s->service.out;
	int n;

	(void)r;
	if (!admin_check(s, c))
		return;
	n = txda_context_device_count(context);
	json_out_clear(o);
	json_begin(o, '{');
	put_text(o, "object", "list");
	json_key(o, "data");
	json_begin(o, '[');
	for (int i = 0; i < n; i++) {
		struct txda_device *device;

		if (txda_device_get(context, (unsigned)i, &device) < 0)
			continue;
		put_device(o, s, device);
		txda_device_unref(device);
	}
	json_end(o, ']');
	json_end(o, '}');
	service_reply_out(&s->service, c, 200, NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_request(struct json_out *o, const struct exchange *x, uint64_t now)
{
	uint64_t prompt = 0;

	/* Until then a text worker may be using them. */
	for (unsigned i = 0; x->phase >= PHASE_QUEUED && i < x->n_prompts; i++)
		prompt += x->prompts[i].n;
	json_begin(o, '{');
	put_text(o, "id", x->id);
	put_text(o, "kind", exchange_name(x));
	json_key(o, "model");
	if (x->model)
		json_string(o, x->model->config->names[0]);
	else
		json_null(o);
	put_number(o, "uid", x->uid);
	json_key(o, "user");
	if (x->user_name[0])
		json_string(o, x->user_name);
	else
		json_null(o);
	json_key(o, "pid");
	json_int(o, x->pid);
	put_text(o, "state", exchange_state(x));
	json_key(o, "seconds");
	json_number(o, (double)(now - x->arrived_ns) / 1e9);
	put_number(o, "prompt_tokens", prompt);
	put_number(o, "generated_tokens", x->generated);
	put_number(o, "running", x->n_live);
	json_end(o, '}');
}

void admin_requests(struct server *s, struct http_conn *c, const struct http_request *r)
{
	bool all = service_is_admin(&s->service, c);
	user_id uid = http_conn_peer(c)->uid;
	struct json_out *o = &s->service.out;
	uint64_t now = clock_ns();

	(void)r;
	json_out_clear(o);
	json_begin(o, '{');
	put_text(o, "object", "list");
	json_key(o, "data");
	json_begin(o, '[');
	for (const struct exchange *x = s->service.exchanges; x; x = x->next)
		if (exchange_is_open(x) && (all || x->uid == uid))
			put_request(o, x, now);
	json_end(o, ']');
	json_end(o, '}');
	service_reply_out(&s->service, c, 200, NULL);
}
