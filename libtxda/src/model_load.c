// SPDX-License-Identifier: MIT
/* Loads a case dir into a runnable model, and computes its memory plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "model.h"
#include "space.h"
#include "weights.h"

/* State of a load in progress. */
struct loading {
	struct txda_model *model;
	struct txda_context *context;
	const struct txda_model_options *options;
	int dir_fd;
	uint64_t before, told,
		total; /* bytes of weights: of finished ranks, last reported, of all */
};

/* Whether the caller still wants the model. */
static int check_wanted(const struct loading *l)
{
	const struct txda_model_options *o = l->options;

	if (o->cancel && o->cancel(o->progress_arg))
		return txda__fail(l->context, -ECANCELED, "the load was cancelled");
	if (o->deadline_ns && clock_ns() >= o->deadline_ns)
		return txda__fail(l->context, -ETIMEDOUT, "the load's deadline has passed");
	return 0;
}

static int report_progress(void *arg, uint64_t done)
{
	struct loading *l = arg;

	if (l->options->progress && l->before + done > l->told) {
		l->told = l->before + done;
		l->options->progress(l->options->progress_arg, l->told, l->total);
	}
	return check_wanted(l);
}

static int load_weights(struct loading *l, unsigned r)
{
	const struct case_chip *chip = &l->model->info.chip[r];
	struct txda__rank *rank = &l->model->rank[r];
	int slot = txda__find_slot(&rank->program, TXDA_SLOT_WEIGHTS), fd, ret;
	struct txda__weights_wish wish;
	char err[300];

	if (slot < 0)
		return 0;
	ret = txda__case_file(l->dir_fd, chip->param, chip->param_bytes, &fd, err, sizeof(err));
	if (ret < 0)
		return txda__fail(l->context, ret, "%s", err);
	wish = (struct txda__weights_wish){
		.fd = fd,
		.name = chip->param,
		.bytes = chip->param_bytes,
		.crc32c = chip->param_crc32c,
		.verify = l->options->verify_weights,
		.keep = l->options->keep_weights,
		.map = l->options->map_weights,
		.progress = report_progress,
		.arg = l,
	};
	ret = txda__weights_get(rank->device, &wish, &rank->weights);
	close(fd);
	if (ret < 0)
		return ret;
	txda__bind_slot(rank, (unsigned)slot, rank->weights->buffer, 0,
			txda__slot_bytes(rank, (unsigned)slot));
	l->before += chip->param_bytes;
	return 0;
}

/* Copies the program to memory that the chip reads, with a page for bindings and the timeline. */
static int make_control(struct loading *l, struct txda__rank *rank)
{
	const struct txda_program *h = rank->program.header;
	uint64_t timeline = txda__align(h->n_slots * sizeof(struct txda_binding), 64);
	struct txda_pkt_exec *exec = &rank->exec;
	void *ptr;
	int ret;

	ret = txda__buffer_new(rank->device, h->bytes, TXDA_MEMORY_HOST, true, TXDA__MEM_PRIVATE,
			       &rank->code);
	if (ret >= 0)
		ret = txda_buffer_write(rank->code, 0, rank->kcore, h->bytes);
	if (ret >= 0)
		ret = txda__buffer_new(rank->device,
				       timeline + h->n_ops * sizeof(struct txda_op_time),
				       TXDA_MEMORY_HOST, false, TXDA__MEM_PRIVATE, &rank->control);
	if (ret >= 0)
		ret = txda_buffer_map(rank->control, &ptr);
	if (ret < 0)
		return ret;
	rank->binding = ptr;
	rank->timeline = (const void *)((const char *)ptr + timeline);
	*exec = (struct txda_pkt_exec){
		.hdr = {.op = TXDA_PKT_EXEC,
			.flags = l->options->precise ? TXDA_EXEC_PRECISE : 0,
			.bytes = sizeof(*exec)},
		.program_va = txda_buffer_va(rank->code),
		.bindings_va = txda_buffer_va(rank->control),
		.program_bytes = (uint32_t)h->bytes,
		.n_bindings = h->n_slots,
		.group = TXDA_NONE,
	};
	return 0;
}

static int make_scratch(struct txda__rank *rank)
{
	int slot = txda__find_slot(&rank->program, TXDA_SLOT_SCRATCH), ret;
	uint64_t bytes;

	if (slot < 0)
		return 0;
	bytes = txda__slot_bytes(rank, (unsigned)slot);
	/*
	 * No large pages: the first step would have to wait for the allocation of pages it hardly
	 * uses.
	 */
	ret = txda__buffer_new(rank->device, bytes, TXDA_MEMORY_DEVICE, false,
			       TXDA__MEM_PRIVATE | TXDA__MEM_UNMAPPED, &rank->scratch);
	if (ret >= 0)
		txda__bind_slot(rank, (unsigned)slot, rank->scratch, 0, bytes);
	return ret;
}

static int make_io(struct loading *l, struct txda__rank *rank)
{
	const struct txda__program *p = &rank->program;
	uint64_t bytes = txda__io_bytes(rank, l->options->dummies), at = 0;
	int ret;

	if (!bytes)
		return 0;
	ret = txda__buffer_new(rank->device, bytes, TXDA_MEMORY_DEVICE, false, TXDA__MEM_SHARED,
			       &rank->io);
	if (ret < 0)
		return ret;
	for (uint32_t i = 0; i < p->header->n_slots; i++) {
		if (p->slot[i].kind < TXDA_SLOT_INPUT ||
		    txda__is_dummy(txda__program_string(p, p->slot[i].name), l->options->dummies))
			continue;
		txda__bind_slot(rank, i, rank->io, at, txda__slot_bytes(rank, i));
		at += txda__align(txda__slot_bytes(rank, i), 64);
	}
	return 0;
}

/* Inputs and outputs of all ranks by name, inputs first. */
static int list_io(struct loading *l)
{
	struct txda_model *m = l->model;

	for (unsigned kind = TXDA_SLOT_INPUT; kind <= TXDA_SLOT_OUTPUT; kind++)
		for (unsigned r = 0; r < m->tp; r++) {
			const struct txda__program *p = &m->rank[r].program;

			for (uint32_t s = 0; s < p->header->n_slots; s++) {
				const char *name = txda__program_string(p, p->slot[s].name);
				unsigned i;

				if (p->slot[s].kind != kind)
					continue;
				for (i = 0; i < m->n_io && strcmp(m->io[i].name, name); i++)
					;
				if (i == TXDA__MAX_IO)
					return txda__fail(l->context, -EINVAL,
							  "more than %d inputs and outputs",
							  TXDA__MAX_IO);
				if (i == m->n_io) {
					m->io[i].name = name;
					m->io[i].kind = kind == TXDA_SLOT_INPUT
								? TXDA_TENSOR_INPUT
								: TXDA_TENSOR_OUTPUT;
					m->io[i].first_rank = r;
					memset(m->io[i].slot, 0xff, sizeof(m->io[i].slot));
					m->n_io++;
				}
				m->io[i].slot[r] = (int)s;
			}
		}
	for (const char *const *dummy = l->options->dummies; dummy && *dummy; dummy++) {
		bool found = false;

		for (unsigned i = 0; i < m->n_io; i++)
			found |= !strcmp(m->io[i].name, *dummy);
		if (!found)
			return txda__fail(l->context, -ENOENT,
					  "dummy \"%.60s\" is not an input or output", *dummy);
	}
	return 0;
}

/* ---- the KV cache ---------------------------------------------------------------------------- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Blocks that the program and its index type allow. */
static uint64_t kv_limit(const struct case_info *info, const struct txda__program *p)
{
	return min_u64(p->header->sym_max[TXDA_SYM_N], INT32_MAX / info->block_size);
}

/* Blocks that max_seqs sequences of max_context tokens use. */
static uint64_t kv_useful(const struct case_info *info, const struct txda__program *p)
{
	uint64_t all = ((uint64_t)info->max_context + info->block_size - 1) / info->block_size,
		 blocks = 0;
	unsigned reach[TXDA_MAX_KV_GROUPS], n = txda__kv_groups(p, reach);

	for (unsigned g = 0; g < n; g++)
		blocks += !reach[g] ? all
				    : min_u64(all, ((uint64_t)reach[g] + info->max_tokens) /
								   info->block_size +
							   3);
	/* The live state, the last snapshot, the next one. */
	return info->max_seqs * ((n ? blocks : all) + 3ull * txda__state_blocks(p));
}

static int free_bytes(struct txda_device *device, uint64_t *ret_bytes)
{
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	int ret;

	ret = txda_device_info(device, &info);
	if (ret >= 0)
		ret = txda_device_status(device, &status);
	if (ret >= 0)
		*ret_bytes = info.mem_bytes > status.mem_used_bytes
				     ? info.mem_bytes - status.mem_used_bytes
				     : 0;
	return ret;
}

static int choose_kv_blocks(struct loading *l, uint64_t *ret_blocks)
{
	const struct txda_model_options *o = l->options;
	struct txda_model *m = l->model;
	uint64_t limit = kv_limit(&m->info, &m->rank[0].program), blocks, unused;
	unsigned reach[TXDA_MAX_KV_GROUPS], groups;
	char wanted[24], left[24], kept[24];
	int ret;

	groups = txda__kv_groups(&m->rank[0].program, reach);
	blocks = o->kv_blocks_per_group ? (uint64_t)o->kv_blocks_per_group * (groups ? groups : 1)
					: o->kv_blocks;
	if (blocks) {
		if (blocks > limit)
			return txda__fail(l->context, -E2BIG,
					  "%llu KV blocks were requested; the program allows %llu",
					  (unsigned long long)blocks, (unsigned long long)limit);
		*ret_blocks = blocks;
		return 0;
	}
	blocks = min_u64(limit, kv_useful(&m->info, &m->rank[0].program));
	if (o->max_kv_blocks)
		blocks = min_u64(blocks, o->max_kv_blocks);
	for (unsigned r = 0; r < m->tp; r++) {
		ret = free_bytes(m->rank[r].device, &unused);
		if (ret < 0)
			return ret;
		unused = (unused > o->kv_reserve_bytes ? unused - o->kv_reserve_bytes : 0) &
			 ~(TXDA__PAGE - 1);
		blocks = min_u64(blocks, unused / m->kv_block_bytes[r]);
		if (!blocks)
			return txda__fail(
				l->context, -ENOMEM,
				"chip %u: %s wanted for a KV block, %s free (beside %s to be left)",
				m->rank[r].device->index, txda__bytes(m->kv_block_bytes[r], wanted),
				txda__bytes(unused, left), txda__bytes(o->kv_reserve_bytes, kept));
	}
	*ret_blocks = blocks;
	return 0;
}

static int share_kv(struct loading *l)
{
	struct txda_model *m = l->model, *from = l->options->share_kv;
	bool same = from->tp == m->tp && from->precise == m->precise &&
		    from->info.block_size == m->info.block_size && from->kv_blocks;

	for (unsigned r = 0; same && r < m->tp; r++)
		same = from->rank[r].device == m->rank[r].device &&
		       from->kv_block_bytes[r] == m->kv_block_bytes[r];
	if (!same)
		return txda__fail(l->context, -EINVAL,
				  "the KV cache of \"%.60s\" has another geometry or other chips",
				  from->info.name);
	if (from->kv_blocks > kv_limit(&m->info, &m->rank[0].program))
		return txda__fail(l->context, -E2BIG,
				  "the KV cache has %u blocks; the program allows %llu",
				  from->kv_blocks,
				  (unsigned long long)kv_limit(&m->info, &m->rank[0].program));
	for (unsigned r = 0; r < m->tp; r++)
		m->rank[r].kv = txda_buffer_ref(from->rank[r].kv);
	m->kv_blocks = from->kv_blocks;
	return 0;
}

static int make_kv(struct loading *l)
{
	struct txda_model *m = l->model;
	unsigned with = 0;
	uint64_t blocks;
	int ret = 0, slot;

	for (unsigned r = 0; r < m->tp; r++) {
		slot = txda__find_slot(&m->rank[r].program, TXDA_SLOT_KV);
		if (slot < 0)
			continue;
		m->kv_block_bytes[r] = txda__slot_bytes(&m->rank[r], (unsigned)slot);
		with++;
	}
	if (!with)
		return 0;
	if (with != m->tp)
		return txda__fail(l->context, -EINVAL, "only %u of %u ranks have a KV cache", with,
				  m->tp);
	if (l->options->share_kv) {
		ret = share_kv(l);
	} else {
		ret = choose_kv_blocks(l, &blocks);
		if (ret >= 0)
			m->kv_blocks = (unsigned)blocks;
		for (unsigned r = 0; r < m->tp && ret >= 0; r++)
			ret = txda__buffer_new(m->rank[r].device, blocks * m->kv_block_bytes[r],
					       TXDA_MEMORY_DEVICE, false,
					       TXDA__MEM_PRIVATE | TXDA__MEM_LARGE |
						       TXDA__MEM_UNMAPPED,
					       &m->rank[r].kv);
	}
	for (unsigned r = 0; r < m->tp && ret >= 0; r++)
		txda__bind_slot(&m->rank[r],
				(unsigned)txda__find_slot(&m->rank[r].program, TXDA_SLOT_KV),
				m->rank[r].kv, 0, m->kv_blocks * m->kv_block_bytes[r]);
	return ret;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Puts the address spaces that hold the ranks' memory into a group. */
static int join(struct txda_model *m)
{
	struct txda__space *space[TXDA_MAX_CHIPS_PER_GROUP];
	unsigned slot;
	int ret;

	for (unsigned r = 0; r < m->tp; r++)
		space[r] = m->rank[r].control->space;
	ret = txda__spaces_join(space, m->tp, &slot);
	for (unsigned r = 0; r < m->tp && ret >= 0; r++) {
		m->rank[r].joined = txda__space_ref(space[r]);
		m->rank[r].group_slot = slot;
		m->rank[r].exec.group = slot;
	}
	return ret;
}

/* Creates the queues, and a group for the collectives of this model alone. */
static int make_queues(struct loading *l)
{
	struct txda_model *m = l->model;
	int ret;

	if (m->rank[0].program.header->group_size > 1) {
		ret = join(m);
		if (ret < 0)
			return ret;
	}
	for (unsigned r = 0; r < m->tp; r++) {
		struct txda__rank *rank = &m->rank[r];

		ret = txda_queue_new(rank->device, TXDA_QUEUE_COMPUTE, &rank->queue);
		if (ret < 0)
			return ret;
		rank->queue->program = &rank->program;
		if (m->tp > 1)
			snprintf(rank->queue->purpose, sizeof(rank->queue->purpose),
				 "model %.60s, rank %u", m->info.name, r);
		else
			snprintf(rank->queue->purpose, sizeof(rank->queue->purpose), "model %.60s",
				 m->info.name);
	}
	return 0;
}

/* Each object is made in the space that the chip has at that time: a reset mixes them. */
static int check_space(struct txda__rank *rank)
{
	const struct txda__space *space = rank->control->space;
	int ret = txda__buffer_check_space(rank->code, space);

	if (ret >= 0)
		ret = txda__buffer_check_space(rank->queue->memory, space);
	for (uint32_t s = 0; s < rank->program.header->n_slots && ret >= 0; s++)
		if (rank->slot_buffer[s])
			ret = txda__buffer_check_space(rank->slot_buffer[s], space);
	return ret;
}

static int load_model(struct loading *l)
{
	struct txda_model *m = l->model;
	int ret;

	if (m->info.tp != m->tp)
		return txda__fail(l->context, -EINVAL,
				  "it is compiled for %u chip%s; the group has %u", m->info.tp,
				  m->info.tp == 1 ? "" : "s", m->tp);
	if (l->options->program && !strcmp(l->options->program, "vision") && m->info.vision.present)
		case_info_to_vision(&m->info);
	ret = txda__load_programs(l->context, &m->info, l->dir_fd, l->options->program, m->rank);
	if (ret >= 0)
		ret = list_io(l);
	for (unsigned r = 0; r < m->tp; r++)
		l->total += m->info.chip[r].param_bytes;
	for (unsigned r = 0; r < m->tp && ret >= 0; r++) {
		struct txda__rank *rank = &m->rank[r];

		if (m->precise)
			txda__mark_doubled(rank);
		ret = check_wanted(l);
		if (ret >= 0)
			ret = make_control(l, rank);
		if (ret >= 0)
			ret = load_weights(l, r);
		if (ret >= 0)
			ret = make_scratch(rank);
		if (ret >= 0)
			ret = make_io(l, rank);
	}
	if (ret >= 0)
		ret = make_queues(l);
	if (ret >= 0)
		ret = make_kv(l); /* last: it uses the remaining memory */
	for (unsigned r = 0; r < m->tp && ret >= 0; r++)
		ret = check_space(&m->rank[r]);
	return ret;
}

static int take_options(struct txda_context *context, const struct txda_model_options *options,
			struct txda_model_options *ret)
{
	static const char what[] = "txda_model_options";
	int r = txda__copy_in(context, ret, sizeof(*ret), options, what);

	if (r >= 0)
		r = txda__check_reserved(context, ret->reserved, sizeof(ret->reserved), what);
	if (r >= 0 && !ret->path)
		r = txda__fail(context, -EINVAL, "%s.path is NULL", what);
	return r;
}

int txda_model_load(struct txda_group *group, const struct txda_model_options *options,
		    struct txda_model **ret_model)
{
	struct txda_context *context = group->context;
	struct txda_model_options o;
	struct loading l = {.context = context, .options = &o, .dir_fd = -1};
	struct txda_model *model;
	char err[400];
	int ret;

	if (txda__forked(context))
		return -EPERM;
	ret = take_options(context, options, &o);
	if (ret < 0)
		return ret;
	model = calloc(1, sizeof(*model));
	if (!model)
		return txda__fail(context, -ENOMEM, "out of memory");
	atomic_init(&model->refs, 1);
	pthread_mutex_init(&model->lock, NULL);
	model->fd = -1;
	model->group = txda_group_ref(group);
	model->precise = o.precise;
	model->tp = group->size;
	for (unsigned r = 0; r < group->size; r++)
		model->rank[r].device = group->device[r];

	l.model = model;
	ret = txda__case_open(o.path, &l.dir_fd, &model->info, err, sizeof(err));
	if (ret < 0)
		txda__fail(context, ret, "%s", err);
	else
		ret = load_model(&l);
	if (l.dir_fd >= 0)
		close(l.dir_fd);
	if (ret < 0) {
		txda__fail_prefix(context, ret, "%s", o.path);
		txda__model_free(model);
		return ret;
	}
	*ret_model = model;
	return 0;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Adds the memory that a program of the case needs on the rank that needs most. */
static int plan_program(struct txda_context *context, const struct case_info *info, int dir_fd,
			const char *program, const struct txda_model_options *o,
			struct txda_model_plan *plan)
{
	struct txda__rank *rank = calloc(info->tp, sizeof(*rank));
	unsigned reach[TXDA_MAX_KV_GROUPS];
	uint64_t scratch_bytes = 0, io_bytes = 0;
	int ret;

	ret = rank ? txda__load_programs(context, info, dir_fd, program, rank)
		   : txda__fail(context, -ENOMEM, "out of memory");
	for (unsigned r = 0; r < info->tp && ret >= 0; r++) {
		const struct txda__program *p = &rank[r].program;
		int scratch = txda__find_slot(p, TXDA_SLOT_SCRATCH),
		    kv = txda__find_slot(p, TXDA_SLOT_KV);

		if (o->precise)
			txda__mark_doubled(&rank[r]);
		if (txda__find_slot(p, TXDA_SLOT_WEIGHTS) >= 0)
			plan->weight_bytes =
				max_u64(plan->weight_bytes,
					txda__align(info->chip[r].param_bytes, TXDA__PAGE));
		if (scratch >= 0)
			scratch_bytes =
				max_u64(scratch_bytes,
					txda__align(txda__slot_bytes(&rank[r], (unsigned)scratch),
						    TXDA__PAGE));
		io_bytes = max_u64(io_bytes,
				   txda__align(txda__io_bytes(&rank[r], o->dummies), TXDA__PAGE));
		if (kv >= 0) {
			plan->kv_block_bytes = max_u64(plan->kv_block_bytes,
						       txda__slot_bytes(&rank[r], (unsigned)kv));
			plan->kv_blocks_at_limit = min_u64(kv_limit(info, p), kv_useful(info, p));
			plan->kv_groups = txda__kv_groups(p, reach);
			plan->state_blocks = txda__state_blocks(p);
		}
	}
	plan->scratch_bytes += scratch_bytes;
	plan->io_bytes += io_bytes;
	for (unsigned r = 0; rank && r < info->tp; r++)
		free(rank[r].kcore);
	free(rank);
	return ret;
}

int txda_model_plan(struct txda_context *context, const char *path,
		    struct txda_model_plan *ret_plan)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);

	options.path = path;
	return txda_model_plan_load(context, &options, ret_plan);
}

int txda_model_plan_load(struct txda_context *context, const struct txda_model_options *options,
			 struct txda_model_plan *ret_plan)
{
	struct txda_model_plan plan = {0};
	struct txda_model_options o;
	struct case_info info;
	bool vision;
	char err[400];
	int dir_fd, ret;

	if (txda__forked(context))
		return -EPERM;
	ret = take_options(context, options, &o);
	if (ret < 0)
		return ret;
	ret = txda__case_open(o.path, &dir_fd, &info, err, sizeof(err));
	if (ret < 0)
		return txda__fail(context, ret, "%s: %s", o.path, err);
	plan.tp = info.tp;
	vision = info.vision.present && (!o.program || !strcmp(o.program, "vision"));
	if (!vision || !o.program)
		ret = plan_program(context, &info, dir_fd, o.program, &o, &plan);
	if (ret >= 0 && vision) {
		case_info_to_vision(&info);
		ret = plan_program(context, &info, dir_fd, "vision", &o, &plan);
	}
	close(dir_fd);
	if (ret < 0)
		return txda__fail_prefix(context, ret, "%s", o.path);
	return txda__copy_out(context, ret_plan, &plan, sizeof(plan), "txda_model_plan");
}

int txda_model_program(struct txda_context *context, const char *path, unsigned index, char *buf,
		       size_t len)
{
	struct case_info info;
	char err[400];
	int dir_fd, ret;

	if (txda__forked(context))
		return -EPERM;
	ret = txda__case_open(path, &dir_fd, &info, err, sizeof(err));
	if (ret < 0)
		return txda__fail(context, ret, "%s: %s", path, err);
	close(dir_fd);
	if (index >= info.n_programs)
		return txda__fail(context, -ENOENT, "%s: program %u does not exist; it has %u",
				  path, index, info.n_programs);
	return snprintf(buf, len, "%s", info.program[index]);
}
