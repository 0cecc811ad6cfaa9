// SPDX-License-Identifier: MIT
#include "c2c.h"

#include <errno.h>
#include <stdlib.h>

/* ---- lines ----------------------------------------------------------------------------------- */

static void line_append(struct cm_group *g, unsigned rank, struct cm_member *m)
{
	struct cm_member **link = &g->line[rank];

	while (*link)
		link = &(*link)->behind;
	*link = m;
	m->behind = NULL;
	m->waits_in = g;
}

static void line_remove(struct cm_member *m)
{
	struct cm_group *g = m->waits_in;

	for (unsigned rank = 0; g && rank < g->size; rank++) {
		struct cm_member **link = &g->line[rank];

		while (*link && *link != m)
			link = &(*link)->behind;
		if (*link)
			*link = m->behind;
	}
	m->waits_in = NULL;
	m->behind = NULL;
}

static struct cm_member *line_pop(struct cm_group *g, unsigned rank)
{
	struct cm_member *m = g->line[rank];

	g->line[rank] = m->behind;
	m->behind = NULL;
	m->waits_in = NULL;
	return m;
}

/* Fails all members that wait in the group: one of them will not arrive. */
static void fail_waiting(struct cm_group *g)
{
	struct cm_member *all = NULL;

	/* Removed from their lines first, since the fault of one poisons this group again. */
	for (unsigned rank = 0; rank < g->size; rank++) {
		while (g->line[rank]) {
			struct cm_member *m = line_pop(g, rank);

			m->behind = all;
			all = m;
		}
	}
	while (all) {
		struct cm_member *m = all;

		all = m->behind;
		m->behind = NULL;
		g->c2c->fail(m, g->id);
	}
}

/* ---- members --------------------------------------------------------------------------------- */

void cm_c2c_join(struct cm_c2c *c2c, struct cm_member *m, struct cm_vm *vm)
{
	m->c2c = c2c;
	m->vm = vm;
	m->next = vm->members;
	vm->members = m;
}

static bool uses(const struct cm_member *m, unsigned slot)
{
	return m->used >> slot & 1 && m->vm->group[slot].group;
}

void cm_c2c_poison(struct cm_member *m)
{
	line_remove(m);
	m->met = false;
	if (!m->used || m->poisoned)
		return;
	m->poisoned = true;
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (uses(m, i))
			m->vm->group[i].group->poisoned++;
	}
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (uses(m, i))
			fail_waiting(m->vm->group[i].group);
	}
}

void cm_c2c_leave(struct cm_member *m, bool unfinished)
{
	struct cm_member **link = &m->vm->members;

	line_remove(m);
	for (unsigned i = 0; i < CM_GROUP_SLOTS; i++) {
		if (!uses(m, i))
			continue;
		if (m->poisoned)
			m->vm->group[i].group->poisoned--;
		else if (unfinished)
			fail_waiting(m->vm->group[i].group);
	}
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
}

void cm_c2c_lose(struct cm_c2c *c2c, const struct cm_chip *c)
{
	for (struct cm_group *g = c2c->groups; g; g = g->next) {
		bool member = false;

		for (unsigned i = 0; i < g->size; i++)
			member |= g->rank[i] && g->rank[i]->chip == c;
		if (member)
			fail_waiting(g);
	}
}

/* ---- groups ---------------------------------------------------------------------------------- */

void cm_c2c_unset(struct cm_vm *vm, unsigned slot)
{
	struct cm_group *g = vm->group[slot].group;

	if (!g)
		return;
	fail_waiting(g);
	for (struct cm_member *m = vm->members; m; m = m->next) {
		if (!uses(m, slot))
			continue;
		if (m->poisoned)
			g->poisoned--;
		m->used &= ~(1u << slot);
	}
	g->rank[vm->group[slot].rank] = NULL;
	vm->group[slot] = (struct cm_group_slot){0};
	if (!--g->ranks) {
		struct cm_group **link = &g->c2c->groups;

		while (*link != g)
			link = &(*link)->next;
		*link = g->next;
		free(g);
	}
}

/* Makes @vm the rank @rank of group @id in @slot, which is free. */
static int set_group(struct cm_c2c *c2c, struct cm_vm *vm, unsigned slot, uint64_t id,
		     unsigned rank, unsigned size)
{
	struct cm_group *g = c2c->groups;

	while (g && g->id != id)
		g = g->next;
	if (g && g->size != size)
		return -EINVAL;
	if (g && g->rank[rank])
		return -EEXIST;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		g->c2c = c2c;
		g->id = id;
		g->size = size;
		g->next = c2c->groups;
		c2c->groups = g;
	}
	g->rank[rank] = vm;
	g->ranks++;
	vm->group[slot] = (struct cm_group_slot){g, rank};
	return 0;
}

int cm_c2c_set_group(struct cm_c2c *c2c, struct cm_vm *vm, unsigned slot, uint64_t id,
		     unsigned rank, unsigned size)
{
	int ret = 0;

	if (slot >= CM_GROUP_SLOTS || size > TXDA_MAX_GROUP || (size && rank >= size))
		return -EINVAL;
	cm_pause(vm->mmu->lead);
	cm_c2c_unset(vm, slot);
	if (size)
		ret = set_group(c2c, vm, slot, id, rank, size);
	cm_resume(vm->mmu->lead);
	return ret;
}

const struct cm_group_slot *cm_c2c_group(struct cm_member *m, uint32_t slot)
{
	if (slot >= CM_GROUP_SLOTS || !m->vm->group[slot].group)
		return NULL;
	m->used |= 1u << slot;
	return &m->vm->group[slot];
}

/* ---- meetings -------------------------------------------------------------------------------- */

bool cm_c2c_arrive(struct cm_member *m, const struct cm_group_slot *slot)
{
	struct cm_group *g = slot->group;

	if (g->poisoned || cm_chip_link_down(m->vm->chip))
		return false;
	for (unsigned i = 0; i < g->size; i++) {
		if (g->rank[i] && atomic_load(&g->rank[i]->chip->lost))
			return false;
	}
	line_append(g, slot->rank, m);
	return true;
}

bool cm_c2c_meeting(struct cm_group *g, struct cm_member **ret)
{
	for (unsigned i = 0; i < g->size; i++) {
		if (!g->line[i])
			return false;
	}
	for (unsigned i = 0; i < g->size; i++)
		ret[i] = line_pop(g, i);
	return true;
}
