// SPDX-License-Identifier: MIT
#include "inject.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SLOW_MS 5

static const char *const kind_names[CM_INJECT_KINDS] = {
	[CM_INJECT_HANG] = "hang",
	[CM_INJECT_PAGE] = "page",
	[CM_INJECT_ECC] = "ecc",
	[CM_INJECT_ECC_CORRECTED] = "ecc-corrected",
	[CM_INJECT_LINK_DOWN] = "link-down",
	[CM_INJECT_THERMAL] = "thermal",
	[CM_INJECT_LOST] = "lost",
	[CM_INJECT_SLOW_DMA] = "slow-dma",
	[CM_INJECT_CLEAR] = "clear",
};

struct command {
	enum cm_inject_kind kind;
	bool one_chip;
	uint64_t chip, after, ms;
};

/* ---- the specification ----------------------------------------------------------------------- */

static bool word_is(const char *word, size_t len, const char *name)
{
	return strlen(name) == len && !memcmp(word, name, len);
}

/* "name=N" with a decimal N of up to 18 digits. */
static bool read_number(const char *word, size_t len, const char *name, uint64_t *ret)
{
	size_t skip = strlen(name) + 1;
	uint64_t value = 0;

	if (len <= skip || len - skip > 18 || memcmp(word, name, skip - 1) || word[skip - 1] != '=')
		return false;
	for (size_t i = skip; i < len; i++) {
		if (word[i] < '0' || word[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(word[i] - '0');
	}
	*ret = value;
	return true;
}

/* Reads one command up to a comma or the end; returns where it ended, or NULL. */
static const char *read_command(const char *spec, struct command *ret)
{
	struct command o = {.kind = CM_INJECT_KINDS};
	size_t len = strcspn(spec, ":,");

	for (unsigned i = 0; i < CM_INJECT_KINDS; i++) {
		if (word_is(spec, len, kind_names[i]))
			o.kind = i;
	}
	if (o.kind == CM_INJECT_KINDS)
		return NULL;
	for (spec += len; *spec == ':'; spec += len) {
		spec++;
		len = strcspn(spec, ":,");
		if (read_number(spec, len, "chip", &o.chip))
			o.one_chip = true;
		else if (!read_number(spec, len, "after", &o.after) &&
			 !read_number(spec, len, "ms", &o.ms))
			return NULL;
	}
	*ret = o;
	return spec;
}

/* ---- strikes --------------------------------------------------------------------------------- */

static uint64_t until(uint64_t ms)
{
	uint64_t ns;

	if (!ms || __builtin_mul_overflow(ms, 1000000ull, &ns) ||
	    __builtin_add_overflow(ns, clock_ns(), &ns))
		return UINT64_MAX;
	return ns;
}

static bool in_force(struct cm_injection *i)
{
	if (i->until_ns && i->until_ns != UINT64_MAX && clock_ns() >= i->until_ns)
		i->until_ns = 0;
	return i->until_ns != 0;
}

static void set_injected(struct cm_chip *c)
{
	c->injected = false;
	for (unsigned i = 0; i < CM_INJECT_KINDS; i++)
		c->injected |= c->inject[i].armed || c->inject[i].until_ns;
}

/* Tells the embedder that cm_chip_sensors() has changed. */
static void notify(struct cm_chip *c)
{
	if (c->notify)
		c->notify(c->notify_arg);
}

/* Injections that affect the chip as a whole; the others hit a queue, see cm_inject_before(). */
static void strike_chip(struct cm_queues *qs, struct cm_chip *c, enum cm_inject_kind kind)
{
	struct cm_injection *i = &c->inject[kind];

	i->armed = false;
	switch (kind) {
	case CM_INJECT_ECC_CORRECTED: cm_count32(&c->activity.ecc_corrected); break;
	case CM_INJECT_LINK_DOWN: atomic_store(&c->link_down_until_ns, until(i->ms)); break;
	case CM_INJECT_THERMAL: atomic_store(&c->hot_until_ns, until(i->ms)); break;
	case CM_INJECT_LOST:
		atomic_store(&c->lost, true);
		cm_queues_lose(qs, c);
		break;
	case CM_INJECT_SLOW_DMA: i->until_ns = UINT64_MAX; break;
	default: break;
	}
	notify(c);
}

/* Sets when the chip's queues run again; 0: now. */
static void resume_at(struct cm_queues *qs, const struct cm_chip *c, uint64_t ns)
{
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		struct cm_queue *q = qs->queue[i];

		if (!q || q->chip != c || q->resume_ns == ns)
			continue;
		q->resume_ns = ns;
		cm_ready_activate(qs->ready, q->slot);
	}
}

void cm_inject_clear(struct cm_queues *qs, struct cm_chip *c)
{
	memset(c->inject, 0, sizeof(c->inject));
	c->injected = false;
	atomic_store(&c->hot_until_ns, 0);
	atomic_store(&c->link_down_until_ns, 0);
	if (!c->stalled)
		resume_at(qs, c, 0);
	notify(c);
}

void cm_inject_stall(struct cm_queues *qs, struct cm_chip *c, bool on)
{
	c->stalled = on;
	resume_at(qs, c, on ? UINT64_MAX : 0);
}

static void apply(struct cm_queues *qs, struct cm_chip *c, const struct command *o)
{
	struct cm_injection *i = &c->inject[o->kind];

	if (o->kind == CM_INJECT_CLEAR) {
		cm_inject_clear(qs, c);
	} else {
		*i = (struct cm_injection){.armed = true, .after = o->after, .ms = o->ms};
		switch (o->kind) {
		case CM_INJECT_HANG:
		case CM_INJECT_PAGE:
		case CM_INJECT_ECC: break;
		default:
			if (!o->after)
				strike_chip(qs, c, o->kind);
		}
	}
	set_injected(c);
}

int cm_inject_apply(struct cm_queues *qs, struct cm_chip *chip, unsigned n, const char *spec)
{
	struct command o;

	/* All or nothing: read everything before the first command takes effect. */
	for (const char *at = spec;; at++) {
		at = read_command(at, &o);
		if (!at)
			return -EINVAL;
		if (o.one_chip && o.chip >= n)
			return -ENODEV;
		if (!*at)
			break;
	}
	cm_pause(qs->lead);
	for (const char *at = spec;; at++) {
		at = read_command(at, &o);
		for (unsigned i = 0; i < n; i++) {
			if (!o.one_chip || o.chip == i)
				apply(qs, &chip[i], &o);
		}
		if (!*at)
			break;
	}
	cm_resume(qs->lead);
	return 0;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* Fails the op or slice that was about to run, with an address that it uses. */
static enum cm_result fail_next(struct cm_queue *q, uint32_t code)
{
	struct cm_context *ctx = q->exec.context;
	uint32_t tensor;

	if (q->busy == CM_BUSY_TRANSFER)
		return cm_fail(&q->why, code, q->transfer.dst + q->transfer.done, q->pkt.hdr.op);
	tensor = ctx->launch.op->in[0];
	ctx->fault.code = code;
	ctx->fault.tensor = tensor;
	ctx->fault.va = tensor == TXDA_NONE ? 0 : ctx->tensor[tensor].va;
	return cm_exec_fail(&q->exec);
}

/* An injection of this kind hits the op that is about to run. */
static enum cm_result strike(struct cm_queue *q, enum cm_inject_kind kind)
{
	struct cm_injection *i = &q->chip->inject[kind];

	i->armed = false;
	switch (kind) {
	case CM_INJECT_HANG: q->resume_ns = until(i->ms); return CM_PARK;
	case CM_INJECT_PAGE: return fail_next(q, TXDA_FAULT_PAGE);
	case CM_INJECT_ECC:
		cm_count32(&q->chip->activity.ecc_uncorrected);
		notify(q->chip);
		return fail_next(q, TXDA_FAULT_ECC);
	default:
		strike_chip(q->queues, q->chip, kind);
		return atomic_load(&q->chip->lost) ? CM_FAULT : CM_DONE;
	}
}

enum cm_result cm_inject_before(struct cm_queue *q)
{
	enum cm_result result = CM_DONE;

	for (unsigned kind = 0; kind < CM_INJECT_KINDS && result == CM_DONE; kind++) {
		struct cm_injection *i = &q->chip->inject[kind];

		if (i->armed && i->after)
			i->after--;
		else if (i->armed)
			result = strike(q, kind);
		in_force(i);
	}
	set_injected(q->chip);
	return result;
}

enum cm_result cm_inject_after_transfer(struct cm_queue *q)
{
	struct cm_injection *i = &q->chip->inject[CM_INJECT_SLOW_DMA];

	if (!in_force(i))
		return CM_DONE;
	q->resume_ns = until(i->ms ? i->ms : DEFAULT_SLOW_MS);
	return CM_PARK;
}
