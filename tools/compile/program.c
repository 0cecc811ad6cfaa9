// SPDX-License-Identifier: MIT
#include "program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "program_view.h"

#define LABELS	    4
#define LABEL_BYTES 128

/* A growing array of fixed-size records. */
struct table {
	char *data;
	uint32_t n, room;
	size_t size;
};

struct program {
	struct txda_program header;
	struct table slots, tensors, ops, strings;
	struct txda_op spare_op;
	char label[LABELS][LABEL_BYTES];
	unsigned next_label;
	int failed;
};

/* The live range of a scratch tensor, as op indices, and its offset. */
struct interval {
	uint32_t tensor, first, last;
	uint64_t bytes, offset;
};

static void *table_add(struct program *p, struct table *t, uint32_t n)
{
	if (t->n + n > t->room) {
		uint32_t room = (t->n + n) * 2;
		char *data = realloc(t->data, room * t->size);

		if (!data) {
			p->failed = -ENOMEM;
			return NULL;
		}
		t->data = data;
		t->room = room;
	}
	t->n += n;
	memset(t->data + (t->n - n) * t->size, 0, n * t->size);
	return t->data + (t->n - n) * t->size;
}

static struct txda_slot *slot_at(const struct program *p, uint32_t i)
{
	return (struct txda_slot *)p->slots.data + i;
}

static struct txda_tensor *tensor_at(const struct program *p, uint32_t i)
{
	return (struct txda_tensor *)p->tensors.data + i;
}

static struct txda_op *op_at(const struct program *p, uint32_t i)
{
	return (struct txda_op *)p->ops.data + i;
}

static uint32_t add_string(struct program *p, const char *text)
{
	uint32_t bytes = (uint32_t)strlen(text) + 1, at = p->strings.n;
	char *s = table_add(p, &p->strings, bytes);

	if (!s)
		return 0;
	memcpy(s, text, bytes);
	return at;
}

struct program *program_new(const char *name, uint32_t group_size, uint32_t rank,
			    const uint32_t sym_max[TXDA_SYM_COUNT])
{
	struct program *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->slots.size = sizeof(struct txda_slot);
	p->tensors.size = sizeof(struct txda_tensor);
	p->ops.size = sizeof(struct txda_op);
	p->strings.size = 1;
	p->header.magic = TXDA_PROGRAM_MAGIC;
	p->header.major = TXDA_ISA_MAJOR;
	p->header.minor = TXDA_ISA_MINOR;
	p->header.group_size = group_size;
	p->header.rank = rank;
	memcpy(p->header.sym_max, sym_max, sizeof(p->header.sym_max));
	p->header.name = add_string(p, name);
	return p;
}

void program_free(struct program *p)
{
	if (!p)
		return;
	free(p->slots.data);
	free(p->tensors.data);
	free(p->ops.data);
	free(p->strings.data);
	free(p);
}

uint32_t program_add_slot(struct program *p, const char *name, enum txda_slot_kind kind,
			  uint64_t bytes)
{
	uint32_t string = add_string(p, name);
	struct txda_slot *s = table_add(p, &p->slots, 1);

	if (!s)
		return 0;
	*s = (struct txda_slot){.name = string, .kind = kind, .bytes = bytes};
	return p->slots.n - 1;
}

void program_set_slot_bytes(struct program *p, uint32_t slot, uint64_t bytes)
{
	if (slot < p->slots.n)
		slot_at(p, slot)->bytes = bytes;
}

uint32_t program_add_tensor(struct program *p, const struct program_tensor *t)
{
	uint32_t string = add_string(p, t->name);
	struct txda_tensor *r = table_add(p, &p->tensors, 1);

	if (!r)
		return 0;
	*r = (struct txda_tensor){
		.name = string,
		.slot = (uint16_t)t->slot,
		.dtype = t->dtype,
		.layout = t->layout,
		.offset = t->offset,
		.ndim = t->ndim,
		.flags = t->flags,
		.group = t->group,
	};
	memcpy(r->dim, t->dim, sizeof(r->dim));
	return p->tensors.n - 1;
}

uint32_t program_add_scratch(struct program *p, uint32_t scratch, const char *name, uint8_t dtype,
			     struct txda_dim rows, uint32_t columns)
{
	return program_add_tensor(p, &(struct program_tensor){
					     .name = name,
					     .slot = scratch,
					     .dtype = dtype,
					     .layout = TXDA_ROWS,
					     .flags = TXDA_TENSOR_ACTIVATION,
					     .ndim = 2,
					     .dim = {rows, PROGRAM_DIM(columns)},
				     });
}

/* Until scratch is placed, reserved[0] of an alias is the index of its tensor + 1. */
uint32_t program_add_alias(struct program *p, uint32_t of, const char *name, struct txda_dim rows,
			   uint32_t columns)
{
	const struct txda_tensor *base = of < p->tensors.n ? tensor_at(p, of) : NULL;
	uint32_t index;

	if (!base)
		return 0;
	index = program_add_scratch(p, base->slot, name, base->dtype, rows, columns);
	if (!p->failed)
		tensor_at(p, index)->reserved[0] = of + 1;
	return index;
}

uint32_t program_add_ids(struct program *p, uint32_t scratch, const char *name,
			 struct txda_dim rows, uint32_t columns)
{
	return program_add_scratch(p, scratch, name, TXDA_I32, rows, columns);
}

static struct program_view view_of(const struct program *p)
{
	return (struct program_view){.header = &p->header};
}

uint32_t program_add_io(struct program *p, const char *name, enum txda_slot_kind kind,
			uint8_t dtype, uint8_t ndim, struct txda_dim a, struct txda_dim b)
{
	uint32_t slot = program_add_slot(p, name, kind, 0), tensor;
	struct program_view v = view_of(p);

	tensor = program_add_tensor(p, &(struct program_tensor){
					       .name = name,
					       .slot = slot,
					       .dtype = dtype,
					       .layout = TXDA_ROWS,
					       .ndim = ndim,
					       .dim = {a, ndim > 1 ? b : PROGRAM_DIM(0)},
				       });
	if (!p->failed)
		slot_at(p, slot)->bytes = program_tensor_bytes(&v, tensor_at(p, tensor));
	return tensor;
}

struct txda_op *program_add_op(struct program *p, enum txda_opcode opcode, const char *label)
{
	uint32_t string = add_string(p, label);
	struct txda_op *op = table_add(p, &p->ops, 1);

	if (!op)
		op = &p->spare_op;
	memset(op, 0, sizeof(*op));
	op->op = (uint16_t)opcode;
	op->label = string;
	memset(op->in, 0xff, sizeof(op->in));
	memset(op->out, 0xff, sizeof(op->out));
	return op;
}

const char *program_label(struct program *p, const char *format, ...)
{
	char *label = p->label[p->next_label++ % LABELS];
	va_list args;

	va_start(args, format);
	vsnprintf(label, LABEL_BYTES, format, args);
	va_end(args);
	return label;
}

static void touch(const struct program *p, struct interval *live, uint32_t tensor, uint32_t op)
{
	if (tensor >= p->tensors.n)
		return;
	if (tensor_at(p, tensor)->reserved[0])
		tensor = tensor_at(p, tensor)->reserved[0] - 1;
	if (live[tensor].first == TXDA_NONE)
		live[tensor].first = op;
	live[tensor].last = op;
}

static int by_start(const void *a, const void *b)
{
	const struct interval *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* The lowest gap among the tensors that are live at the same time; @placed is ordered by offset. */
static uint64_t first_fit(struct interval **placed, uint32_t *n, struct interval *t)
{
	uint64_t at = 0;
	uint32_t i, kept = 0, where;

	for (i = 0; i < *n; i++) {
		if (placed[i]->last >= t->first)
			placed[kept++] = placed[i];
	}
	for (where = 0; where < kept; where++) {
		if (placed[where]->offset >= at + t->bytes)
			break;
		at = placed[where]->offset + placed[where]->bytes;
	}
	memmove(placed + where + 1, placed + where, (kept - where) * sizeof(*placed));
	placed[where] = t;
	*n = kept + 1;
	t->offset = at;
	return at + t->bytes;
}

/* Assigns an offset to every scratch tensor, and sets the size of the scratch slots. */
static int place_scratch(struct program *p, struct tool_error *error)
{
	struct interval *live = calloc(p->tensors.n + 1, sizeof(*live)), **placed;
	struct program_view v = view_of(p);
	uint32_t i, j, n = 0, n_placed = 0;
	uint64_t end;

	placed = calloc(p->tensors.n + 2, sizeof(*placed));
	if (!live || !placed) {
		free(live);
		free(placed);
		return tool_fail(error, -ENOMEM, "no memory to place tensors");
	}
	for (i = 0; i < p->tensors.n; i++)
		live[i] = (struct interval){.tensor = i, .first = TXDA_NONE};
	for (i = 0; i < p->ops.n; i++) {
		for (j = 0; j < 6; j++)
			touch(p, live, op_at(p, i)->in[j], i);
		for (j = 0; j < 3; j++)
			touch(p, live, op_at(p, i)->out[j], i);
	}
	for (i = 0; i < p->tensors.n; i++) {
		const struct txda_tensor *t = tensor_at(p, i);

		if (t->slot >= p->slots.n || slot_at(p, t->slot)->kind != TXDA_SLOT_SCRATCH ||
		    live[i].first == TXDA_NONE)
			continue;
		live[n] = live[i];
		live[n++].bytes = (program_tensor_bytes(&v, t) + 63) / 64 * 64;
	}
	qsort(live, n, sizeof(*live), by_start);
	for (i = 0; i < n; i++) {
		struct txda_tensor *t = tensor_at(p, live[i].tensor);

		end = first_fit(placed, &n_placed, &live[i]);
		t->offset = live[i].offset;
		if (end > slot_at(p, t->slot)->bytes)
			slot_at(p, t->slot)->bytes = end;
	}
	for (i = 0; i < p->tensors.n; i++) {
		struct txda_tensor *t = tensor_at(p, i);

		if (t->reserved[0])
			t->offset = tensor_at(p, t->reserved[0] - 1)->offset;
		t->reserved[0] = 0;
	}
	free(live);
	free(placed);
	return 0;
}

static uint32_t place_table(uint64_t *at, const struct table *t)
{
	uint64_t offset = *at;

	*at = (*at + t->n * t->size + 63) / 64 * 64;
	return (uint32_t)offset;
}

int program_finish(struct program *p, void **ret, size_t *ret_bytes, struct tool_error *error)
{
	struct txda_program *h = &p->header;
	struct program_view view;
	uint64_t at = sizeof(*h);
	char *data;
	int r;

	if (p->failed)
		return tool_fail(error, p->failed, "no memory for the program");
	r = place_scratch(p, error);
	if (r)
		return r;
	h->n_slots = p->slots.n;
	h->n_tensors = p->tensors.n;
	h->n_ops = p->ops.n;
	h->strings_bytes = p->strings.n;
	h->slots_off = place_table(&at, &p->slots);
	h->tensors_off = place_table(&at, &p->tensors);
	h->ops_off = place_table(&at, &p->ops);
	h->strings_off = place_table(&at, &p->strings);
	h->bytes = at;
	h->crc32c = 0;
	if (at > TXDA_PROGRAM_MAX_BYTES)
		return tool_fail(error, -E2BIG, "a program of %llu bytes, the limit is %u",
				 (unsigned long long)at, TXDA_PROGRAM_MAX_BYTES);
	data = calloc(1, at);
	if (!data)
		return tool_fail(error, -ENOMEM, "no memory for the program");
	memcpy(data + h->slots_off, p->slots.data, p->slots.n * p->slots.size);
	memcpy(data + h->tensors_off, p->tensors.data, p->tensors.n * p->tensors.size);
	memcpy(data + h->ops_off, p->ops.data, p->ops.n * p->ops.size);
	memcpy(data + h->strings_off, p->strings.data, p->strings.n);
	memcpy(data, h, sizeof(*h));
	h->crc32c = crc32c(0, data, at);
	memcpy(data, h, sizeof(*h));
	r = program_view(data, at, &view, error);
	if (r) {
		free(data);
		return tool_fail_within(error, r, "the program that was built is wrong");
	}
	*ret = data;
	*ret_bytes = at;
	return 0;
}

uint64_t program_slot_bytes(const struct program *p, uint32_t slot)
{
	return slot < p->slots.n ? slot_at(p, slot)->bytes : 0;
}

uint64_t program_io_bytes(const struct program *p)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < p->slots.n; i++) {
		const struct txda_slot *s = slot_at(p, i);

		if (s->kind == TXDA_SLOT_INPUT || s->kind == TXDA_SLOT_OUTPUT)
			sum += (s->bytes + 63) / 64 * 64;
	}
	return sum;
}
