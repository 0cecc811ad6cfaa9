// SPDX-License-Identifier: MIT
#include "unused.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "family.h"

#define MAX_KINDS 64

/* Names that differ only in their numbers, or after @part, are of one kind; its first is shown. */
struct unused_names {
	struct unused_kind {
		const char *first;
		size_t part; /* bytes; 0: all */
		size_t n;
	} kind[MAX_KINDS];
	size_t kinds, total;
};

/* ---- names ----------------------------------------------------------------------------------- */

static size_t digits(const char *at, const char *name)
{
	return at == name || at[-1] == '.' ? strspn(at, "0123456789") : 0;
}

static bool alike(const char *a, const char *b)
{
	const char *x = a, *y = b;

	for (;;) {
		x += digits(x, a);
		y += digits(y, b);
		if (*x != *y || !*x)
			return *x == *y;
		x++;
		y++;
	}
}

static bool is_of(const struct unused_kind *kind, const char *name)
{
	return kind->part ? !strncmp(kind->first, name, kind->part) : alike(kind->first, name);
}

static void add(struct unused_names *names, const char *name, size_t part)
{
	size_t i = 0;

	names->total++;
	while (i < names->kinds && !is_of(&names->kind[i], name))
		i++;
	if (i == MAX_KINDS)
		return; /* counted in total */
	if (i == names->kinds)
		names->kind[names->kinds++] = (struct unused_kind){name, part, 0};
	names->kind[i].n++;
}

/* "a, b.0 and 3 like it, c.* (5), and 7 more", within @len. */
static void list(const struct unused_names *names, char *buf, size_t len)
{
	size_t at = 0, shown = 0;

	*buf = '\0';
	for (size_t i = 0; i < names->kinds; i++) {
		const struct unused_kind *k = &names->kind[i];
		char text[256];
		size_t need;

		if (k->part)
			snprintf(text, sizeof(text), "%.*s* (%zu)",
				 (int)(k->part < 128 ? k->part : 128), k->first, k->n);
		else if (k->n > 1)
			snprintf(text, sizeof(text), "%.128s and %zu like it", k->first, k->n - 1);
		else
			snprintf(text, sizeof(text), "%.128s", k->first);
		need = strlen(text) + 2;
		if (i && at + need + 32 > len)
			break;
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "", text);
		shown += k->n;
	}
	if (shown < names->total)
		snprintf(buf + at, len - at, ", and %zu more", names->total - shown);
}

/* ---- kinds that change no result ------------------------------------------------------------- */

/*
 * What is computed from the config, and scales for rounding activations or the cache to fewer bits,
 * which keep theirs here.
 */
static const char *const harmless_ends[] = {
	".inv_freq",	 ".cos_cached",	 ".sin_cached",	  ".position_ids",
	".weight_shape", ".input_scale", ".output_scale", ".input_zero_point",
	".q_scale",	 ".k_scale",	 ".v_scale",	  ".kv_scale",
};

/* The image side of models of which only the text is supported. */
static const char *const tower_starts[] = {"vision_tower.", "multi_modal_projector.",
					   "vision_model.", "patch_merger."};

static bool starts(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static bool ends(const char *name, const char *with)
{
	size_t n = strlen(name), w = strlen(with);

	return n >= w && !strcmp(name + n - w, with);
}

/* The layer in "model.layers.5.…" with any prefix, or -1. */
static long layer_of(const char *name)
{
	const char *at = strstr(name, "layers.");
	unsigned layer;

	if (!at || !(at == name || at[-1] == '.') || sscanf(at, "layers.%7u.", &layer) != 1)
		return -1;
	return layer;
}

/* Bytes up to the end of the first number: "model.layers.5."; 0: there is none. */
static size_t layer_part(const char *name)
{
	for (const char *at = name; *at; at++) {
		size_t n = digits(at, name);

		if (n && at[n] == '.')
			return (size_t)(at - name) + n + 1;
	}
	return 0;
}

/* A layer that predicts a further token has a matrix that joins its two inputs. */
static bool predicts(const struct model *m, const char *name)
{
	const char *join = m->config.family->names->mtp_join;
	const long layer = layer_of(name);
	char full[128];

	if (starts(name, "mtp.") || strstr(name, ".mtp."))
		return true;
	if (!join || layer < (long)m->config.n_layers)
		return false;
	snprintf(full, sizeof(full), "model.layers.%ld%s.weight", layer, strrchr(join, '.'));
	return source_has(&m->source, full);
}

/* Layers of a tower behind the one whose states are used, and the norm behind the last. */
static bool is_behind_tower(const struct model *m, const char *name)
{
	const struct vision_config *v = &m->config.vision;

	if (!v->family || !v->family->tiles || !strstr(name, "vision_model."))
		return false;
	return strstr(name, ".post_layernorm.") || layer_of(name) >= (long)v->depth;
}

/* Exporters of GPTQ and AWQ give a bias to each matrix, with zeros where the model has none. */
static bool is_zero_bias(const struct model *m, const char *name)
{
	const enum quant_method method = m->config.quant.method;
	const struct safetensors_tensor *t;
	const char *data;

	if ((method != QUANT_GPTQ && method != QUANT_AWQ) || !m->source.checkpoint ||
	    !ends(name, ".bias"))
		return false;
	t = safetensors_find(m->source.checkpoint, name);
	data = t->data;
	return !t->bytes || (!*data && !memcmp(data, data + 1, t->bytes - 1));
}

/* *ret_part: bytes of the stored name that say it all; 0: all of them. */
static bool is_harmless(const struct model *m, const struct compile_options *o,
			const struct source_unused *t, size_t *ret_part)
{
	const char *name = t->name;

	*ret_part = 0;
	for (size_t i = 0; i < sizeof(harmless_ends) / sizeof(harmless_ends[0]); i++) {
		if (ends(name, harmless_ends[i]))
			return true;
	}
	if (family_text_only(m->config.model_type)) {
		const char *part = starts(name, "model.") ? name + 6 : name;

		for (size_t i = 0; i < sizeof(tower_starts) / sizeof(tower_starts[0]); i++) {
			if (starts(part, tower_starts[i])) {
				*ret_part = (size_t)(part - name) + strlen(tower_starts[i]);
				return true;
			}
		}
	}
	if (is_zero_bias(m, name))
		return true;
	if ((!o->mtp && predicts(m, name)) || is_behind_tower(m, name)) {
		*ret_part = layer_part(t->stored);
		return true;
	}
	return false;
}

/* ---- the check ------------------------------------------------------------------------------- */

int unused_check(const struct model *m, const struct compile_options *o, char *note, size_t len,
		 struct tool_error *error)
{
	const uint32_t n_layers = m->config.n_layers;
	struct unused_names all = {.total = 0}, wrong = {.total = 0};
	struct source_unused t;
	size_t at = 0, part;
	char names[320];

	while (source_next_unused(&m->source, &at, &t)) {
		if (o->mtp && layer_of(t.name) != (long)n_layers)
			continue;
		if (!is_harmless(m, o, &t, &part))
			add(&wrong, t.stored, 0);
		add(&all, t.stored, part);
	}
	*note = '\0';
	if (wrong.total && !o->ignore_unused) {
		list(&wrong, names, sizeof(names));
		return tool_fail(error, -ENOTSUP,
				 "not used by %s with a %s of %u, but may change results: %s "
				 "(--unused-tensors ignore leaves them out)",
				 m->config.model_type,
				 m->source.gguf ? "block_count" : "num_hidden_layers", n_layers,
				 names);
	}
	if (all.total)
		list(&all, note, len);
	return 0;
}
