// SPDX-License-Identifier: MIT
/* Checks the programs of a case dir against model_info.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "set_error.h"

int txda__find_slot(const struct txda__program *program, unsigned kind)
{
	for (uint32_t i = 0; i < program->header->n_slots; i++)
		if (program->slot[i].kind == kind)
			return (int)i;
	return -1;
}

void txda__mark_doubled(struct txda__rank *rank)
{
	const struct txda__program *p = &rank->program;

	for (uint32_t i = 0; i < p->header->n_slots; i++)
		rank->doubled[i] =
			p->slot[i].kind == TXDA_SLOT_KV || p->slot[i].kind == TXDA_SLOT_SCRATCH;
	for (uint32_t i = 0; i < p->header->n_tensors; i++)
		if (p->tensor[i].flags & TXDA_TENSOR_ACTIVATION)
			rank->doubled[p->tensor[i].slot] = true;
}

bool txda__is_dummy(const char *name, const char *const *dummies)
{
	for (; dummies && *dummies; dummies++)
		if (!strcmp(*dummies, name))
			return true;
	return false;
}

uint64_t txda__io_bytes(const struct txda__rank *rank, const char *const *dummies)
{
	const struct txda__program *p = &rank->program;
	uint64_t sum = 0;

	/* At most 64 slots of 2^41 bytes: no overflow. */
	for (uint32_t i = 0; i < p->header->n_slots; i++)
		if (p->slot[i].kind >= TXDA_SLOT_INPUT &&
		    !txda__is_dummy(txda__program_string(p, p->slot[i].name), dummies))
			sum += txda__align(txda__slot_bytes(rank, i), 64);
	return sum;
}

/*
 * The symbols' limits must be those of the case, and all sizes within them must fit into 64
 * bits.
 */
static int check_limits(const struct txda__program *p, const struct case_info *info, char *err,
			size_t errlen)
{
	const uint32_t *max = p->header->sym_max;
	const struct {
		const char *name;
		unsigned symbol, limit;
	} limit[] = {
		{"tokens", TXDA_SYM_T, info->max_tokens},
		{"seqs", TXDA_SYM_S, info->max_seqs},
		{"rows", TXDA_SYM_R, info->max_rows},
		{"blocks", TXDA_SYM_B, info->max_blocks},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(limit); i++)
		if (max[limit[i].symbol] != limit[i].limit)
			return set_error(
				-EINVAL, err, errlen,
				"limits.%s is %u in model_info.json, but %u in the program",
				limit[i].name, limit[i].limit, max[limit[i].symbol]);
	return 0;
}

static int check_slots(const struct txda__program *p, const struct case_info *info, unsigned rank,
		       char *err, size_t errlen)
{
	const struct case_chip *chip = &info->chip[rank];
	const struct {
		const char *name;
		unsigned kind;
		uint64_t bytes;
	} wanted[] = {
		{"param_bytes", TXDA_SLOT_WEIGHTS, chip->param_bytes},
		{"scratch_bytes", TXDA_SLOT_SCRATCH, chip->scratch_bytes},
		{"kv.block_bytes", TXDA_SLOT_KV, info->kv_block_bytes},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++) {
		int slot = txda__find_slot(p, wanted[i].kind);
		uint64_t bytes = slot < 0 ? 0 : p->slot[slot].bytes;

		/*
		 * A program may leave the end of its weights unused, for another program that
		 * shares them.
		 */
		if (slot >= 0 && (wanted[i].kind == TXDA_SLOT_WEIGHTS ? bytes > wanted[i].bytes
								      : bytes != wanted[i].bytes))
			return set_error(-EINVAL, err, errlen,
					 "%s is %llu in model_info.json, but %llu in the program",
					 wanted[i].name, (unsigned long long)wanted[i].bytes,
					 (unsigned long long)bytes);
	}
	return 0;
}

/*
 * Each tensor listed in model_info.json must be in the program of rank 0 with the same type and
 * shape, and the list must be complete.
 */
static int check_tensors(const struct txda__program *p, const struct case_tensor *list, unsigned n,
			 unsigned kind, char *err, size_t errlen)
{
	unsigned found = 0;

	for (uint32_t s = 0; s < p->header->n_slots; s++) {
		const struct txda_slot *slot = &p->slot[s];
		const struct txda_tensor *t =
			&p->tensor[p->io_tensor[s] == TXDA_NONE ? 0 : p->io_tensor[s]];
		const char *name = txda__program_string(p, slot->name);
		unsigned i;

		if (slot->kind != kind)
			continue;
		for (i = 0; i < n && strcmp(list[i].name, name); i++)
			;
		if (i == n)
			return set_error(-EINVAL, err, errlen,
					 "tensor %s is in the program, but not in model_info.json",
					 name);
		if (list[i].dtype != t->dtype || list[i].ndim != t->ndim ||
		    memcmp(list[i].dim, t->dim, t->ndim * sizeof(t->dim[0])))
			return set_error(-EINVAL, err, errlen,
					 "type or shape of tensor %s differ between program and "
					 "model_info.json",
					 name);
		found++;
	}
	if (found != n)
		return set_error(-EINVAL, err, errlen,
				 "model_info.json lists %u %s, the program has %u", n,
				 kind == TXDA_SLOT_INPUT ? "inputs" : "outputs", found);
	return 0;
}

static int load_program(const struct case_info *info, int dir_fd, const char *wanted, unsigned r,
			struct txda__rank *rank, char *err, size_t errlen)
{
	const struct case_chip *chip = &info->chip[r];
	struct txda__program *p = &rank->program;
	const struct txda_program *h;
	const char *name;
	char why[256];
	int ret;

	ret = txda__case_read(dir_fd, chip->kcore, chip->kcore_bytes, TXDA_PROGRAM_MAX_BYTES,
			      &rank->kcore, err, errlen);
	if (ret < 0)
		return ret;
	ret = txda__program_check(rank->kcore, chip->kcore_bytes, p, why, sizeof(why));
	if (ret < 0)
		return set_error(ret, err, errlen, "%s: %s", chip->kcore, why);
	h = p->header;
	name = txda__program_string(p, h->name);
	if (strcmp(name, wanted))
		return set_error(-EINVAL, err, errlen,
				 "%s holds program \"%.40s\"; expected \"%.40s\"", chip->kcore,
				 name, wanted);
	/* A program for one chip does the same on each. */
	if (h->group_size != 1 && (h->group_size != info->tp || h->rank != r))
		return set_error(-EINVAL, err, errlen,
				 "%s is for rank %u of %u, not for rank %u of %u", chip->kcore,
				 h->rank, h->group_size, r, info->tp);
	ret = check_limits(p, info, why, sizeof(why));
	if (ret >= 0)
		ret = check_slots(p, info, r, why, sizeof(why));
	if (ret >= 0 && r == 0)
		ret = check_tensors(p, info->input, info->n_inputs, TXDA_SLOT_INPUT, why,
				    sizeof(why));
	if (ret >= 0 && r == 0)
		ret = check_tensors(p, info->output, info->n_outputs, TXDA_SLOT_OUTPUT, why,
				    sizeof(why));
	return ret < 0 ? set_error(ret, err, errlen, "%s: %s", chip->kcore, why) : 0;
}

int txda__load_programs(struct txda_context *context, const struct case_info *info, int dir_fd,
			const char *wanted, struct txda__rank *rank)
{
	bool known = !wanted;
	char err[400];

	for (unsigned i = 0; i < info->n_programs; i++)
		known |= wanted && !strcmp(wanted, info->program[i]);
	if (!known)
		return txda__fail(context, -ENOENT, "no program \"%.40s\" in model_info.json",
				  wanted);
	for (unsigned r = 0; r < info->tp; r++) {
		int ret = load_program(info, dir_fd, wanted ? wanted : info->program[0], r,
				       &rank[r], err, sizeof(err));

		if (ret < 0)
			return txda__fail(context, ret, "%s", err);
		if (memcmp(rank[r].program.header->sym_max, rank[0].program.header->sym_max,
			   sizeof(rank[0].program.header->sym_max)))
			return txda__fail(context, -EINVAL, "%s has other limits than %s",
					  info->chip[r].kcore, info->chip[0].kcore);
		if (rank[r].program.header->group_size != rank[0].program.header->group_size)
			return txda__fail(context, -EINVAL,
					  "%s is for %u chips together, %s for %u",
					  info->chip[r].kcore, rank[r].program.header->group_size,
					  info->chip[0].kcore, rank[0].program.header->group_size);
	}
	return 0;
}
