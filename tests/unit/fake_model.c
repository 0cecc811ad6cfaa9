// SPDX-License-Identifier: MIT
#include "fake_model.h"
#include "clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <txda_isa.h>

enum {
	TOKENS,
	POSITIONS,
	SLOTS,
	SPANS,
	CONTEXT,
	BLOCK_TABLE,
	ROWS,
	HIDDEN_BEFORE,
	LOGITS,
	TOPK_IDS,
	TOPK_LOGITS,
	LSE,
	HIDDEN,
	STATES,
	N_TENSORS
};

#define NOT_WRITTEN (-2) /* a block table's entry since the last launch */

#define STATE_WORDS 4 /* a state as floats of 16 bits each */

static const char *const names[N_TENSORS] = {
	"tokens",	 "positions", "slots",	  "spans",	 "context", "block_table", "rows",
	"hidden_before", "logits",    "topk_ids", "topk_logits", "lse",	    "hidden",	   "states",
};

struct kv_entry {
	uint64_t value;
	int32_t position;
};

struct txda_model {
	struct fake_model_config config;
	struct txda_group *group;
	char path[1024];
	void *tensors[TXDA_MAX_CHIPS_PER_GROUP][N_TENSORS];
	uint64_t bytes[N_TENSORS];
	struct kv_entry *kv;
	bool *taken; /* [vocab] while the top-k list is made */
	bool mtp;
	uint64_t fence;
	struct txda_step step; /* that runs */
	bool runs, failed;
};

struct fake_model_config fake_model_config;
atomic_uint fake_model_violations, fake_model_loaded, fake_model_launches, fake_model_launch_tokens;
atomic_uint fake_model_fail_after;
struct txda_group *fake_model_fail_group;
atomic_bool fake_model_hang, fake_model_hang_mtp;
int fake_model_load_error;
int (*fake_model_weights)(struct txda_group *group, const char *path, unsigned rank,
			  struct txda_weights **ret);
struct txda_group *_Atomic fake_model_last_group;
_Atomic uint64_t fake_model_last_reserve;

struct fake_model_config fake_model_small(void)
{
	return (struct fake_model_config){
		.info =
			{
				.size = sizeof(struct txda_model_info),
				.name = "fake",
				.tp = 2,
				.max_tokens = 256,
				.max_seqs = 32,
				.max_rows = 32,
				.max_context = 128,
				.block_size = 4,
				.kv_blocks = 512,
				.kv_block_bytes = 64,
				.vocab = 97,
				.topk = 8,
				.n_layers = 1,
			},
		.spread = 4,
	};
}

struct txda_group *fake_group(unsigned index)
{
	static char groups[8];

	return (struct txda_group *)&groups[index];
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

static uint64_t kv_value(int32_t token, int32_t position)
{
	return mix((uint64_t)(uint32_t)token << 32 | (uint32_t)position);
}

static void logits_of(const struct fake_model_config *c, uint64_t state, float *logits)
{
	unsigned n = c->cheap ? c->info.topk : c->info.vocab;

	for (unsigned t = 0; t < n; t++)
		logits[t] = (float)(mix(state + t) >> 40) * 0x1p-24f * c->spread;
}

static uint64_t state_of(const int32_t *prefix, unsigned n)
{
	uint64_t state = 1;

	for (unsigned i = 0; i < n; i++)
		state = mix(state + kv_value(prefix[i], (int32_t)i));
	return state;
}

void fake_model_logits(const int32_t *prefix, unsigned n, float *logits)
{
	logits_of(&fake_model_config, state_of(prefix, n), logits);
}

static void hidden_of(const struct fake_model_config *c, uint64_t state, float *hidden)
{
	for (unsigned i = 0; i < c->hidden; i++)
		hidden[i] = (float)(mix(~state + i) >> 40) * 0x1p-23f - 1;
}

void fake_model_hidden(const int32_t *prefix, unsigned n, float *hidden)
{
	hidden_of(&fake_model_config, state_of(prefix, n), hidden);
}

static void forget_tables(struct txda_model *m)
{
	for (unsigned rank = 0; rank < m->config.info.tp; rank++) {
		int32_t *table = m->tensors[rank][BLOCK_TABLE];

		for (uint64_t i = 0; i < m->bytes[BLOCK_TABLE] / 4; i++)
			table[i] = NOT_WRITTEN;
	}
}

/* ---- loading --------------------------------------------------------------------------------- */

int txda_model_load(struct txda_group *group, const struct txda_model_options *options,
		    struct txda_model **ret_model)
{
	struct txda_model *m;
	const struct txda_model_info *i;
	unsigned blocks;

	fake_model_last_group = group;
	fake_model_last_reserve = options->kv_reserve_bytes;
	if (fake_model_load_error)
		return fake_model_load_error;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->config = fake_model_config;
	m->group = group;
	snprintf(m->path, sizeof(m->path), "%s", options->path ? options->path : "");
	if (options->kv_blocks_per_group)
		m->config.info.kv_blocks = options->kv_blocks_per_group;
	if (options->max_kv_blocks && options->max_kv_blocks < m->config.info.kv_blocks)
		m->config.info.kv_blocks = options->max_kv_blocks;
	i = &m->config.info;
	blocks = (i->max_context + i->block_size - 1) / i->block_size;
	m->bytes[TOKENS] = m->bytes[POSITIONS] = m->bytes[SLOTS] = 4ull * i->max_tokens;
	m->bytes[SPANS] = 8ull * i->max_seqs;
	m->bytes[CONTEXT] = 4ull * i->max_seqs;
	m->bytes[BLOCK_TABLE] = 4ull * i->max_seqs * blocks;
	m->bytes[ROWS] = m->bytes[LSE] = 4ull * i->max_rows;
	m->bytes[LOGITS] = 4ull * i->max_rows * i->vocab;
	m->mtp = options->path && strstr(options->path, "mtp");
	if (m->mtp)
		m->config.hidden = STATE_WORDS;
	m->bytes[HIDDEN_BEFORE] = m->mtp ? 4ull * i->max_tokens * STATE_WORDS : 0;
	m->bytes[STATES] = m->config.states && !m->mtp ? 4ull * i->max_tokens * STATE_WORDS : 0;
	m->bytes[HIDDEN] = 4ull * i->max_rows * m->config.hidden;
	m->bytes[TOPK_IDS] = m->bytes[TOPK_LOGITS] = 4ull * i->max_rows * i->topk;
	for (unsigned rank = 0; rank < i->tp; rank++)
		for (unsigned t = 0; t < N_TENSORS; t++)
			m->tensors[rank][t] = calloc(1, m->bytes[t] + 1);
	forget_tables(m);
	m->kv = calloc((size_t)i->kv_blocks * i->block_size, sizeof(*m->kv));
	m->taken = calloc(i->vocab, sizeof(*m->taken));
	if (options->progress)
		options->progress(options->progress_arg, 1, 1);
	atomic_fetch_add(&fake_model_loaded, 1);
	*ret_model = m;
	return 0;
}

int txda_model_weights(struct txda_model *m, unsigned rank, struct txda_weights **ret_weights)
{
	return fake_model_weights ? fake_model_weights(m->group, m->path, rank, ret_weights)
				  : -ENOENT;
}

struct txda_model *txda_model_unref(struct txda_model *m)
{
	if (!m)
		return NULL;
	for (unsigned rank = 0; rank < m->config.info.tp; rank++)
		for (unsigned t = 0; t < N_TENSORS; t++)
			free(m->tensors[rank][t]);
	free(m->kv);
	free(m->taken);
	free(m);
	atomic_fetch_sub(&fake_model_loaded, 1);
	return NULL;
}

const char *txda_context_error(struct txda_context *context)
{
	(void)context;
	return "chip 0 fell off the bus";
}

int txda_model_info(struct txda_model *m, struct txda_model_info *ret_info)
{
	*ret_info = m->config.info;
	return 0;
}

int txda_model_op_count(struct txda_model *m)
{
	(void)m;
	return 1;
}

int txda_model_find(struct txda_model *m, const char *name, unsigned *ret_index)
{
	for (unsigned t = 0; t < N_TENSORS; t++) {
		if (!strcmp(names[t], name) && m->bytes[t]) {
			*ret_index = t;
			return 0;
		}
	}
	return -ENOENT;
}

int txda_model_tensor(struct txda_model *m, unsigned index, struct txda_tensor_info *ret_info)
{
	bool f32 = index == LOGITS || index == TOPK_LOGITS || index == LSE || index == HIDDEN ||
		   index == STATES || index == HIDDEN_BEFORE;
	bool wide = index == STATES || index == HIDDEN_BEFORE;

	*ret_info = (struct txda_tensor_info){
		.size = sizeof(*ret_info),
		.kind = index >= LOGITS ? TXDA_TENSOR_OUTPUT : TXDA_TENSOR_INPUT,
		.dtype = f32 ? TXDA_F32 : TXDA_I32,
		.bytes = m->bytes[index],
		.ndim = index == HIDDEN || wide ? 2 : 1,
		.dim = {wide ? m->config.info.max_tokens : m->config.info.max_rows,
			wide ? STATE_WORDS : m->config.hidden},
	};
	return 0;
}

int txda_model_tensor_ptr(struct txda_model *m, unsigned rank, const char *name, void **ret_ptr)
{
	unsigned index;
	int error = txda_model_find(m, name, &index);

	if (!error)
		*ret_ptr = m->tensors[rank][index];
	return error;
}

int txda_model_set_input(struct txda_model *m, const char *name, const void *data, uint64_t bytes)
{
	unsigned index;
	int error = txda_model_find(m, name, &index);

	for (unsigned rank = 0; !error && rank < m->config.info.tp; rank++)
		memcpy(m->tensors[rank][index], data, bytes);
	return error;
}

int txda_model_get_output(struct txda_model *m, const char *name, void *data, uint64_t bytes)
{
	unsigned index;
	int error = txda_model_find(m, name, &index);

	if (!error)
		memcpy(data, m->tensors[0][index], bytes);
	return error;
}

/* ---- a launch -------------------------------------------------------------------------------- */

static bool violation(const char *what, long value, long limit)
{
	fprintf(stderr, "launch refused: %s: %ld, limit %ld\n", what, value, limit);
	atomic_fetch_add(&fake_model_violations, 1);
	return false;
}

#define DEMAND(condition, value, limit)                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return violation(#condition, (long)(value), (long)(limit));                \
	} while (0)

static bool store_sequence(struct txda_model *m, const struct txda_step *step, unsigned s,
			   int32_t *next)
{
	const struct txda_model_info *info = &m->config.info;
	int32_t *const *in = (int32_t *const *)m->tensors[0];
	int32_t first = in[SPANS][2 * s], n = in[SPANS][2 * s + 1], context = in[CONTEXT][s];
	int32_t bs = (int32_t)info->block_size;

	DEMAND(first == *next, first, *next);
	DEMAND(n >= 1 && first + n <= (int32_t)step->tokens, n, step->tokens);
	DEMAND(context >= n && context <= (int32_t)info->max_context, context, info->max_context);
	DEMAND(context <= (int32_t)step->blocks * bs, context, step->blocks);
	for (int32_t t = first; t < first + n; t++) {
		int32_t position = in[POSITIONS][t], block;

		DEMAND(position == context - n + (t - first), position, context);
		DEMAND(in[TOKENS][t] >= 0 && in[TOKENS][t] < (int32_t)info->vocab, in[TOKENS][t],
		       info->vocab);
		block = in[BLOCK_TABLE][s * step->blocks + (unsigned)(position / bs)];
		DEMAND(block >= 0 && block < (int32_t)info->kv_blocks, block, info->kv_blocks);
		DEMAND(in[SLOTS][t] == block * bs + position % bs, in[SLOTS][t], block);
		m->kv[in[SLOTS][t]] =
			(struct kv_entry){kv_value(in[TOKENS][t], position), position};
	}
	*next = first + n;
	return true;
}

static void put_state(float *to, uint64_t state)
{
	for (unsigned i = 0; i < STATE_WORDS; i++)
		to[i] = (float)(state >> 16 * i & 0xFFFF);
}

static uint64_t get_state(const float *from)
{
	uint64_t state = 0;

	for (unsigned i = 0; i < STATE_WORDS; i++)
		state |= (uint64_t)from[i] << 16 * i;
	return state;
}

static void put_row(struct txda_model *m, unsigned row, uint64_t state)
{
	const struct txda_model_info *info = &m->config.info;
	float *logits = (float *)m->tensors[0][LOGITS] + (size_t)row * info->vocab;
	double sum = 0;

	logits_of(&m->config, state, logits);
	if (m->mtp)
		put_state((float *)m->tensors[0][HIDDEN] + row * STATE_WORDS, state);
	else
		hidden_of(&m->config, state,
			  (float *)m->tensors[0][HIDDEN] + row * m->config.hidden);
	memset(m->taken, 0, info->vocab * sizeof(*m->taken));
	for (unsigned i = 0; i < info->topk; i++) {
		unsigned best = 0;

		while (m->taken[best])
			best++;
		for (unsigned t = best + 1; t < (m->config.cheap ? info->topk : info->vocab); t++)
			if (!m->taken[t] && logits[t] > logits[best])
				best = t;
		m->taken[best] = true;
		((int32_t *)m->tensors[0][TOPK_IDS])[row * info->topk + i] = (int32_t)best;
		((float *)m->tensors[0][TOPK_LOGITS])[row * info->topk + i] = logits[best];
	}
	for (unsigned t = 0; t < (m->config.cheap ? info->topk : info->vocab); t++)
		sum += exp((double)logits[t]);
	((float *)m->tensors[0][LSE])[row] = (float)log(sum);
}

/* The state behind a token of the step, through the cache. */
static bool compute_state(struct txda_model *m, const struct txda_step *step, int32_t token,
			  uint64_t *ret_state)
{
	const struct txda_model_info *info = &m->config.info;
	int32_t *const *in = (int32_t *const *)m->tensors[0];
	int32_t bs = (int32_t)info->block_size, position;
	uint64_t state = 1;
	unsigned s = 0;

	while (in[SPANS][2 * s] + in[SPANS][2 * s + 1] <= token)
		s++;
	position = in[POSITIONS][token];
	for (int32_t p = m->config.cheap ? position : 0; p <= position; p++) {
		int32_t block = in[BLOCK_TABLE][s * step->blocks + (unsigned)(p / bs)];

		DEMAND(block >= 0 && block < (int32_t)info->kv_blocks, block, info->kv_blocks);
		DEMAND(m->kv[block * bs + p % bs].position == p,
		       m->kv[block * bs + p % bs].position, p);
		state = mix(state + m->kv[block * bs + p % bs].value);
	}
	if (m->mtp) /* its positions are one less than the tokens' */
		state = mix(get_state((float *)m->tensors[0][HIDDEN_BEFORE] + token * STATE_WORDS) +
			    kv_value(in[TOKENS][token], position + 1));
	*ret_state = state;
	return true;
}

static bool compute_row(struct txda_model *m, const struct txda_step *step, unsigned row)
{
	int32_t token = ((int32_t *)m->tensors[0][ROWS])[row];
	uint64_t state;

	DEMAND(token >= 0 && token < (int32_t)step->tokens, token, step->tokens);
	if (!compute_state(m, step, token, &state))
		return false;
	put_row(m, row, state);
	return true;
}

static bool compute_states(struct txda_model *m, const struct txda_step *step)
{
	float *states = m->tensors[0][STATES];
	uint64_t state;

	for (unsigned t = 0; t < step->tokens && m->bytes[STATES]; t++) {
		if (!compute_state(m, step, (int32_t)t, &state))
			return false;
		put_state(states + t * STATE_WORDS, state);
	}
	return true;
}

/* Whether of the block tables no more was written than the sequences use. */
static bool check_tables(struct txda_model *m, const struct txda_step *step)
{
	const struct txda_model_info *info = &m->config.info;
	const int32_t *context = m->tensors[0][CONTEXT];
	uint64_t used = 0, written = 0;

	for (unsigned s = 0; s < step->seqs; s++)
		used += ((unsigned)context[s] + info->block_size - 1) / info->block_size;
	for (unsigned rank = 0; rank < info->tp; rank++) {
		const int32_t *table = m->tensors[rank][BLOCK_TABLE];

		for (uint64_t i = 0; i < m->bytes[BLOCK_TABLE] / 4; i++)
			written += table[i] != NOT_WRITTEN;
	}
	DEMAND(written == used * info->tp, written, used * info->tp);
	return true;
}

static bool launch(struct txda_model *m, const struct txda_step *step)
{
	const struct txda_model_info *info = &m->config.info;
	int32_t next = 0;

	DEMAND(step->tokens >= 1 && step->tokens <= info->max_tokens, step->tokens,
	       info->max_tokens);
	DEMAND(step->seqs >= 1 && step->seqs <= info->max_seqs, step->seqs, info->max_seqs);
	DEMAND(step->rows <= info->max_rows, step->rows, info->max_rows);
	for (unsigned rank = 1; rank < info->tp; rank++) {
		const uint64_t used[] = {
			[TOKENS] = step->tokens,
			[POSITIONS] = step->tokens,
			[SLOTS] = step->tokens,
			[SPANS] = 2 * step->seqs,
			[CONTEXT] = step->seqs,
			[BLOCK_TABLE] = (uint64_t)step->seqs * step->blocks,
			[ROWS] = step->rows,
			[HIDDEN_BEFORE] = m->mtp ? (uint64_t)step->tokens * STATE_WORDS : 0,
		};

		for (unsigned t = 0; t < LOGITS; t++)
			DEMAND(!memcmp(m->tensors[0][t], m->tensors[rank][t], used[t] * 4), t,
			       rank);
	}
	if (!check_tables(m, step))
		return false;
	for (unsigned s = 0; s < step->seqs; s++)
		if (!store_sequence(m, step, s, &next))
			return false;
	DEMAND(next == (int32_t)step->tokens, next, step->tokens);
	for (unsigned row = 0; row < step->rows; row++)
		if (!compute_row(m, step, row))
			return false;
	return compute_states(m, step);
}

int txda_model_run(struct txda_model *m, const struct txda_step *step, uint64_t *ret_fence)
{
	unsigned left;

	if (step->size != sizeof(*step))
		return -EINVAL;
	if (m->runs) {
		violation("a launch while another one runs", (long)m->fence, (long)m->fence);
		return -EINVAL;
	}
	atomic_fetch_add(&fake_model_launches, 1);
	atomic_fetch_add(&fake_model_launch_tokens, step->tokens);
	left = fake_model_fail_group == m->group ? atomic_load(&fake_model_fail_after) : 0;
	if (left) {
		atomic_store(&fake_model_fail_after, left - 1);
		m->failed = m->failed || left == 1;
	}
	m->step = *step;
	m->runs = true;
	*ret_fence = ++m->fence;
	return 0;
}

int txda_model_sync(struct txda_model *m, uint64_t fence, uint64_t deadline_ns)
{
	struct timespec t = {0, 1000 * (long)m->config.delay_us};

	if (fence != m->fence)
		violation("a fence", (long)fence, (long)m->fence);
	if (t.tv_nsec)
		nanosleep(&t, NULL);
	while (atomic_load(&fake_model_hang) || (m->mtp && atomic_load(&fake_model_hang_mtp))) {
		if (clock_ns() >= deadline_ns)
			return -ETIMEDOUT;
		t = (struct timespec){0, 1000000};
		nanosleep(&t, NULL);
	}
	if (m->runs && !m->failed)
		m->failed = !launch(m, &m->step);
	if (m->runs)
		forget_tables(m);
	m->runs = false;
	return m->failed ? -EIO : 0;
}
