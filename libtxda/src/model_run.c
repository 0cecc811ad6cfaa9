// SPDX-License-Identifier: MIT
/* Launches of a model. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "model.h"

static int check_step(struct txda_model *model, const struct txda_step *step)
{
	const uint32_t *max = model->rank[0].program.header->sym_max;
	const uint32_t n_ops = model->rank[0].program.header->n_ops;
	struct txda_context *context = txda__model_context(model);
	const struct {
		const char *name;
		unsigned value, max, min;
	} size[] = {
		{"tokens", step->tokens, max[TXDA_SYM_T], 1},
		{"seqs", step->seqs, max[TXDA_SYM_S], 1},
		{"rows", step->rows, max[TXDA_SYM_R], 0},
		{"blocks", step->blocks, max[TXDA_SYM_B], 0},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(size); i++) {
		if (size[i].value > size[i].max)
			return txda__fail(context, -E2BIG, "a step of %u %s; model %.60s takes %u",
					  size[i].value, size[i].name, model->info.name,
					  size[i].max);
		if (size[i].value < size[i].min)
			return txda__fail(context, -EINVAL, "a step of %u %s", size[i].value,
					  size[i].name);
	}
	if (step->first_op > n_ops || step->n_ops > n_ops - step->first_op)
		return txda__fail(context, -E2BIG, "%u ops from %u on; model %.60s has %u",
				  step->n_ops, step->first_op, model->info.name, n_ops);
	if (!step->n_ops ? step->first_op > 0 : step->timing != NULL)
		return txda__fail(context, -EINVAL, "%s",
				  step->n_ops ? "a timeline of some ops alone"
					      : "a first op without a number of ops");
	if (step->flags & ~TXDA_SUBMIT_WAIT_SOON)
		return txda__fail(context, -EINVAL, "unknown step flags 0x%x",
				  step->flags & ~TXDA_SUBMIT_WAIT_SOON);
	return 0;
}

/*
 * Chooses the message for a failed launch: a rank that was only waiting for another is less
 * informative than the one that failed.
 */
static int explain_fault(struct txda_model *model, int error)
{
	struct txda_queue *culprit = NULL;
	char text[384];

	for (unsigned r = 0; r < model->tp; r++) {
		struct txda_queue *queue = model->rank[r].queue;

		if (txda_queue_fault(queue, text, sizeof(text)) <= 0)
			continue;
		if (!culprit || culprit->fault_code == TXDA_FAULT_COLLECTIVE)
			culprit = queue;
	}
	if (!culprit)
		return error;
	return txda__fail(
		txda__model_context(model), culprit->fault_code == TXDA_FAULT_LOST ? -ENODEV : -EIO,
		"%s on chip %u: %s", culprit->purpose, culprit->device->index, culprit->fault);
}

int txda__model_check_idle(struct txda_model *model)
{
	for (unsigned r = 0; r < model->tp; r++) {
		struct txda_queue *queue = model->rank[r].queue;
		uint64_t last = atomic_load(&queue->progress.last),
			 passed = txda__queue_passed(queue);

		if (passed >= last)
			continue;
		/* Nobody may have waited for a launch that failed. */
		if (txda__queue_check(queue) < 0)
			return explain_fault(model, -EIO);
		return txda__fail(txda__model_context(model), -EBUSY,
				  "model %.60s: launch %llu is in flight on rank %u (%llu has "
				  "passed)",
				  model->info.name, (unsigned long long)last, r,
				  (unsigned long long)passed);
	}
	return 0;
}

/* Conditions checked before any rank gets the launch, so that either all get it or none. */
static int check_ready(struct txda_model *model)
{
	struct txda_context *context = txda__model_context(model);

	if (model->broken)
		return txda__fail(context, -EIO,
				  "model %.60s: a launch reached only some chips; reload the model",
				  model->info.name);
	for (unsigned r = 0; r < model->tp; r++) {
		const struct txda__rank *rank = &model->rank[r];

		for (uint32_t s = 0; s < rank->program.header->n_slots; s++)
			if (!rank->slot_buffer[s] || rank->slot_buffer[s]->idle)
				return txda__fail(context, rank->slot_buffer[s] ? -EBUSY : -ENXIO,
						  "tensor \"%.60s\" of rank %u is %s",
						  txda__program_string(&rank->program,
								       rank->program.slot[s].name),
						  r,
						  rank->slot_buffer[s] ? "in an idle buffer"
								       : "not bound yet");
		/* Reads one word per rank; only a failed queue is asked for the reason. */
		if (atomic_load(&rank->queue->faulted))
			return explain_fault(model, -EIO);
		if (atomic_load(&rank->queue->progress.last) - txda__queue_passed(rank->queue) >=
		    TXDA__MAX_STEPS)
			return txda__fail(context, -EAGAIN, "%d launches are in flight",
					  TXDA__MAX_STEPS);
	}
	return 0;
}

static int launch(struct txda_model *model, unsigned r, const struct txda_step *step, bool profile,
		  uint64_t *ret_fence)
{
	struct txda__rank *rank = &model->rank[r];
	struct txda_pkt_exec *exec = &rank->exec;

	exec->sym[TXDA_SYM_T] = step->tokens;
	exec->sym[TXDA_SYM_S] = step->seqs;
	exec->sym[TXDA_SYM_R] = step->rows;
	exec->sym[TXDA_SYM_B] = step->blocks;
	exec->sym[TXDA_SYM_N] = model->kv_blocks;
	exec->first_op = step->first_op;
	exec->n_ops = step->n_ops;
	exec->hdr.flags &= (uint16_t)~TXDA_EXEC_PART;
	if (step->n_ops)
		exec->hdr.flags |= TXDA_EXEC_PART;
	if (profile) {
		exec->hdr.flags |= TXDA_EXEC_PROFILE;
		exec->profile_va =
			txda_buffer_va(rank->control) +
			(uint64_t)((const char *)rank->timeline - (const char *)rank->binding);
	} else {
		exec->hdr.flags &= (uint16_t)~TXDA_EXEC_PROFILE;
		exec->profile_va = 0;
	}
	return txda_queue_submit(rank->queue, exec, sizeof(*exec),
				 step->flags & TXDA_SUBMIT_WAIT_SOON, ret_fence);
}

/* Ends the launch on the ranks that have it: they would wait for the others until the time limit. */
static void stop_ranks(struct txda_model *model, unsigned n)
{
	char why[96];

	snprintf(why, sizeof(why), "stopped, since rank %u did not get the launch", n);
	for (unsigned r = 0; r < n; r++)
		txda__queue_stop(model->rank[r].queue, why);
	model->broken = n > 0;
}

int txda_model_run(struct txda_model *model, const struct txda_step *step, uint64_t *ret_fence)
{
	struct txda_context *context = txda__model_context(model);
	struct txda_step s;
	uint64_t fence;
	int ret;

	if (txda__forked(context))
		return -EPERM;
	ret = txda__copy_in(context, &s, sizeof(s), step, "txda_step");
	if (ret >= 0)
		ret = check_step(model, &s);
	if (ret >= 0)
		ret = check_ready(model);
	if (ret >= 0 && s.timing)
		ret = txda__profile_start(model, s.timing,
					  atomic_load(&model->rank[0].queue->progress.last) + 1);
	if (ret < 0)
		return ret;
	for (unsigned r = 0; r < model->tp; r++) {
		ret = launch(model, r, &s, s.timing && !r, &fence);
		if (ret >= 0)
			continue;
		ret = explain_fault(model, ret);
		stop_ranks(model, r);
		if (s.timing)
			txda__profile_cancel(model);
		return ret;
	}
	if (ret_fence)
		*ret_fence = fence;
	return 0;
}

int txda_model_sync(struct txda_model *model, uint64_t fence, uint64_t deadline_ns)
{
	int ret;

	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	for (unsigned r = 0; r < model->tp; r++) {
		ret = txda_queue_wait(model->rank[r].queue, fence, deadline_ns);
		if (ret == -ETIMEDOUT || ret == -EINVAL)
			return ret;
		if (ret < 0) {
			txda__profile_cancel(model);
			return explain_fault(model, ret);
		}
	}
	txda__profile_collect(model, fence);
	return 0;
}

int txda_model_passed(struct txda_model *model, uint64_t *ret_fence)
{
	uint64_t fence = UINT64_MAX;

	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	for (unsigned r = 0; r < model->tp; r++) {
		uint64_t passed = txda__queue_passed(model->rank[r].queue);

		if (passed < fence)
			fence = passed;
	}
	*ret_fence = fence;
	return 0;
}

int txda_model_fd(struct txda_model *model)
{
	int fd;

	if (txda__forked(txda__model_context(model)))
		return -EPERM;
	pthread_mutex_lock(&model->lock);
	if (model->fd < 0) {
		/* Initially readable: a fence may have passed just before the fd was created. */
		fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		if (fd < 0) {
			fd = txda__fail(txda__model_context(model), -errno,
					"cannot make an eventfd");
			pthread_mutex_unlock(&model->lock);
			return fd;
		}
		model->fd = fd;
		for (unsigned r = 0; r < model->tp; r++)
			txda__queue_set_fd(model->rank[r].queue, fd);
	}
	fd = model->fd;
	pthread_mutex_unlock(&model->lock);
	return fd;
}
