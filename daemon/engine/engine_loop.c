// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "beam_run.h"
#include "choose.h"
#include "clock.h"
#include "engine_internal.h"
#include "forward.h"
#include "pool.h"
#include "priority.h"

/* ---- results --------------------------------------------------------------------------------- */

static void mark_ready(struct engine *e, struct engine_request *r)
{
	if (ready_push(&e->ready, r))
		e->wake_client = true;
}

static void wake_client(struct engine *e)
{
	uint64_t one = 1;

	/* The counter cannot overflow: the client reads it, and 2^64 wakes take too long. */
	if (e->wake_client && write(e->ready_fd, &one, sizeof(one)) == sizeof(one))
		e->wake_client = false;
}

/* Ends a request that is not in the scheduler (any more); drops the engine's reference. */
static void end_request(struct engine *e, struct engine_request *r, enum engine_finish finish,
			int error, const char *text)
{
	if (error) {
		r->error = error;
		snprintf(r->error_text, sizeof(r->error_text), "%s", text);
	}
	e->stats.finished[finish]++;
	atomic_store_explicit(&r->finish, finish, memory_order_release);
	mark_ready(e, r);
	if (r->constraint)
		mask_workers_end(e->masks, &r->seq->job);
	engine_request_unref(r);
}

static uint64_t owner_of(const struct engine_seq *seq)
{
	return engine_owner(seq->sched.uid, seq->sched.salt);
}

/* Adds a request without leader to the scheduler, once its images are encoded. */
static void schedule(struct engine *e, struct engine_seq *seq)
{
	struct engine_images *images = seq->request->images;

	if (images)
		e->stats.cached_images += encoder_recall(e->encoder, owner_of(seq), images);
	seq->encodes = images && encoder_wants(images);
	if (seq->encodes)
		TAILQ_INSERT_TAIL(&e->encodes, seq, encode_link);
	else if (seq->request->beams)
		beam_run_start(e, seq->request);
	else
		scheduler_add(e->scheduler, &seq->sched);
}

/* Removes a request from its leader's waiters. */
static void leave_leader(struct engine_seq *seq)
{
	struct engine_request **at = &seq->leader->forks;

	while (*at != seq->request)
		at = &(*at)->fork_next;
	*at = seq->request->fork_next;
	seq->leader = NULL;
}

/* Waiters for the prompt of a request that ends: the first of them computes it for the others. */
static void lead_on(struct engine *e, struct engine_request *r)
{
	struct engine_request *first = r->forks;

	if (!first)
		return;
	leave_leader(first->seq);
	first->forks = r->forks;
	r->forks = NULL;
	for (struct engine_request *f = first->forks; f; f = f->fork_next)
		f->seq->leader = first;
	schedule(e, first->seq);
}

static void finish(struct engine *e, struct engine_seq *seq, enum engine_finish how, int error,
		   const char *text)
{
	struct engine_request *r = seq->request;

	if (seq->leader)
		leave_leader(seq);
	else if (seq->encodes)
		TAILQ_REMOVE(&e->encodes, seq, encode_link);
	else if (r->beams)
		beam_run_stop(e, r);
	else
		scheduler_remove(e->scheduler, &seq->sched);
	e->n_live--;
	e->n_searches -= r->beams != NULL;
	lead_on(e, r);
	choose_drop_row(seq);
	*(seq->live_prev ? &seq->live_prev->live_next : &e->live) = seq->live_next;
	if (seq->live_next)
		seq->live_next->live_prev = seq->live_prev;
	end_request(e, r, how, error, text);
}

/* Stores the logprobs of the prompt tokens, and of the best ones, from the item's rows. */
static void store_prompt_rows(struct engine *e, const struct sched_item *item, unsigned row_index)
{
	struct engine_seq *seq = (struct engine_seq *)item->seq;
	struct engine_request *r = seq->request;
	unsigned n_top = r->prompt_top ? (unsigned)r->sampling.logprobs : 0;
	struct sampler_row row;

	for (unsigned i = 0; i < item->rows; i++) {
		unsigned next = item->first_row + i + 1;

		step_row(&e->slots[e->turn], row_index + i, &row);
		r->prompt_lp[next] = sampler_logprob(e->sampler, &row, r->prompt[next]);
		if (n_top)
			sampler_top(e->sampler, &row, n_top, r->prompt_top + (size_t)next * n_top);
	}
	if (item->rows)
		item->seq->prompt_row = item->first_row + item->rows;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void lose(struct engine *e, const char *text)
{
	snprintf(e->lost_text, sizeof(e->lost_text), "%s", text);
	atomic_store(&e->lost, true);
	e->stats.lost = true;
	snprintf(e->stats.error, sizeof(e->stats.error), "%s", text);
}

/* Number of waiting requests. Beams of a search that wait for each other do not count. */
static unsigned waiting(const struct engine *e)
{
	unsigned running = scheduler_running(e->scheduler);

	return e->n_live > running ? e->n_live - running : 0;
}

/* Counts what the blocks in use hold, by kind. */
static void count_kinds(struct engine *e)
{
	const struct kv_layout *l = kv_layout(e->kv);

	e->stats.kv_keys_bytes = e->stats.kv_window_bytes = 0;
	for (unsigned g = 0; g < l->n_groups; g++)
		*(l->reach[g] ? &e->stats.kv_window_bytes : &e->stats.kv_keys_bytes) +=
			kv_used_blocks(e->kv, g) * e->limits.kv_block_bytes;
	e->stats.kv_state_bytes = kv_used_blocks(e->kv, l->n_groups) * e->limits.kv_block_bytes;
}

/* Publishes the counters; without @wait only if nobody is reading them. */
static void publish(struct engine *e, bool wait)
{
	e->stats.running = scheduler_running(e->scheduler);
	e->stats.waiting = waiting(e);
	e->stats.kv_usage = 1 - (double)kv_free_blocks(e->kv) / kv_blocks(e->kv);
	count_kinds(e);
	e->stats.preemptions = scheduler_preemptions(e->scheduler);
	e->stats.bytes_written = e->slots[0].bytes_written + e->slots[1].bytes_written;
	e->stats.bytes_read =
		e->slots[0].bytes_read + e->slots[1].bytes_read + sampler_bytes_read(e->sampler);
	atomic_store(&e->n_waiting, e->stats.waiting);
	if (wait)
		pthread_mutex_lock(&e->stats_lock);
	else if (pthread_mutex_trylock(&e->stats_lock))
		return;
	e->published = e->stats;
	pthread_mutex_unlock(&e->stats_lock);
}

/* Timestamps of a request's first step. */
static void note_start(struct engine *e, struct engine_seq *seq, uint64_t now)
{
	struct engine_request *r = seq->request;

	if (r->started_ns)
		return;
	r->started_ns = now;
	r->cached_tokens = seq->sched.n_matched;
	e->stats.prompt_tokens += r->n_prompt;
	if (e->prefix_caching) {
		e->stats.prefix_queries += r->n_prompt;
		e->stats.prefix_hits += r->cached_tokens;
	}
}

/* Whether the step has no proposals, and the next one will have none. */
static bool can_begin_next(const struct engine *e, const struct step_slot *slot)
{
	if (!e->draft)
		return true;
	for (unsigned i = 0; i < slot->n_items; i++) {
		if (slot->items[i].drafts)
			return false;
	}
	return !draft_wanted(e->draft, e->scheduler);
}

/*
 * While @slot's step runs: plans the known part of the next one, with placeholders for the tokens
 * to come.
 */
static void begin_next(struct engine *e, const struct step_slot *slot, struct step_slot *next)
{
	if (e->draft)
		draft_forget(e->draft, e->scheduler);
	for (unsigned i = 0; i < slot->n_items; i++) {
		struct engine_seq *seq = (struct engine_seq *)slot->items[i].seq;

		if (slot->items[i].sample && choose_goes_on(e, seq))
			seq->sched.n_total++;
	}
	scheduler_done(e->scheduler, slot->items, slot->n_items);
	next->n_items = scheduler_begin(e->scheduler, next->items);
	step_fill(next);
}

/*
 * Launches the planned step, prepares the next one and waits. *ret_begun: the next one has been
 * begun.
 */
static int compute(struct engine *e, struct step_slot *slot, bool *ret_begun, char *err,
		   size_t errlen)
{
	struct step_slot *next = &e->slots[!e->turn];
	uint64_t start = clock_ns(), end;
	int error;

	for (unsigned i = 0; i < slot->n_items; i++)
		note_start(e, (struct engine_seq *)slot->items[i].seq, start);
	if (slot->n_filled && scheduler_kept(e->scheduler))
		step_patch(slot);
	else
		slot->n_filled = 0;
	step_fill(slot);
	start = clock_ns();
	error = step_run(slot, err, errlen);
	if (error)
		return error;
	/*
	 * Deliver the previous step's events now: waking the client takes time, and the chip is
	 * busy meanwhile.
	 */
	publish(e, false);
	wake_client(e);
	next->n_filled = 0;
	*ret_begun = can_begin_next(e, slot);
	if (*ret_begun)
		begin_next(e, slot, next);
	error = step_wait(slot, start, &e->launch, err, errlen);
	if (error)
		return error;
	end = clock_ns();
	e->stats.steps++;
	e->stats.step_ns += end - start;
	if (e->boundary_ns)
		e->stats.host_ns += start - e->boundary_ns;
	e->boundary_ns = end;
	return 0;
}

/* Samples first tokens of requests that waited for the prompt, from its last row. */
static void choose_forks(struct engine *e, struct engine_request *r, unsigned row, uint64_t now)
{
	for (struct engine_request *f = r->forks; f; f = f->fork_next) {
		f->started_ns = r->started_ns;
		f->cached_tokens = r->cached_tokens;
		if (f->prompt_lp && r->prompt_lp)
			memcpy(f->prompt_lp, r->prompt_lp, r->n_prompt * sizeof(*f->prompt_lp));
		if (f->prompt_top && r->prompt_top && f->sampling.logprobs == r->sampling.logprobs)
			memcpy(f->prompt_top, r->prompt_top,
			       (size_t)r->n_prompt * (unsigned)r->sampling.logprobs *
				       sizeof(*f->prompt_top));
		f->seq->sched.prompt_row = r->n_prompt;
		choose_first(e, f->seq, row, now);
	}
}

/* Reads the step's results from the chips. */
static void take_results(struct engine *e, struct step_slot *slot)
{
	unsigned row = 0;

	for (unsigned i = 0; i < slot->n_items; i++) {
		struct sched_item *item = &slot->items[i];
		struct engine_seq *seq = (struct engine_seq *)item->seq;
		struct engine_request *r = seq->request;

		if (r->pooling.how) {
			pool_rows(slot, item, row, e->boundary_ns);
		} else if (r->sink) {
			forward_rows(slot, item, row, e->boundary_ns);
		} else if (r->beams && item->sample) {
			beam_run_row(e, item, row);
		} else {
			store_prompt_rows(e, item, row);
			if (item->sample) {
				choose_tokens(e, item, row + item->rows, e->boundary_ns);
				choose_forks(e, r, row + item->rows, e->boundary_ns);
			}
		}
		row += item->rows + (item->sample ? 1 + item->drafts : 0);
	}
}

/* Ends the request if its end is final. */
static bool finish_if_over(struct engine *e, struct engine_seq *seq)
{
	if (!choose_ended(seq))
		return false;
	finish(e, seq, seq->error ? ENGINE_FINISH_ERROR : seq->ending, seq->error,
	       seq->error ? seq->error_words : "");
	return true;
}

/* Forks requests that waited for the prompt. */
static void fork_all(struct engine *e, struct engine_seq *parent)
{
	struct engine_request *f;

	while ((f = parent->request->forks)) {
		struct engine_seq *seq = f->seq;

		leave_leader(seq);
		/*
		 * Its mask is late, so it has no token: it waits in the scheduler and finds the
		 * prompt's blocks in the cache.
		 */
		scheduler_fork(e->scheduler, &parent->sched, &seq->sched);
		mark_ready(e, f);
		finish_if_over(e, seq);
	}
}

/* Starts the next round of a beam search that has all candidates. */
static void next_round(struct engine *e, struct engine_request *r)
{
	int over = r->seq->error ? 0 : beam_run_next(e, r);

	if (over > 0) {
		r->seq->ending = ENGINE_FINISH_COMPLETE;
		r->last_token_ns = e->boundary_ns;
	} else if (over < 0) {
		r->seq->error = over;
		r->seq->error_words = "no memory for the beams";
	}
}

/* Ends the requests that ended with the step, and reports the others' events. */
static void deliver_results(struct engine *e, struct step_slot *slot)
{
	for (unsigned i = 0; i < slot->n_items; i++) {
		struct sched_item *item = &slot->items[i];
		struct engine_seq *seq = (struct engine_seq *)item->seq;
		struct engine_request *r = seq ? seq->request : NULL;

		if (!r)
			continue;
		if (r->beams)
			next_round(e, r);
		else if (item->sample)
			fork_all(e, seq);
		if (choose_ended(r->seq)) {
			/* A beam search may have further items. */
			for (unsigned k = i; k < slot->n_items; k++) {
				struct engine_seq *other = (struct engine_seq *)slot->items[k].seq;

				if (other && other->request == r)
					slot->items[k].seq = NULL;
			}
			finish_if_over(e, r->seq);
		} else if (item->sample && !r->beams && (!seq->kept || item->drafts)) {
			mark_ready(e, r);
		}
	}
}

static void run_step(struct engine *e)
{
	struct step_slot *slot = &e->slots[e->turn];
	uint64_t step_ns = e->stats.step_ns;
	char err[256] = "";
	bool begun = false;

	e->stats.limited_steps += scheduler_stalls(e->scheduler);
	if (compute(e, slot, &begun, err, sizeof(err))) {
		lose(e, err);
		return;
	}
	take_results(e, slot);
	step_ns = e->stats.step_ns - step_ns;
	e->encode_debt_ns -= step_ns < e->encode_debt_ns ? step_ns : e->encode_debt_ns;
	/* Delivering rows delays everyone, too, so it is part of the measured time. */
	scheduler_measured(e->scheduler, slot->items, slot->n_items,
			   step_ns + (clock_ns() - e->boundary_ns));
	if (!begun)
		scheduler_done(e->scheduler, slot->items, slot->n_items);
	deliver_results(e, slot);
	if (!begun && e->draft && draft_propose(e->draft, e->scheduler, slot, err, sizeof(err)))
		lose(e, err);
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Moves the user's requests behind those of others. */
static void take_turns(struct engine *e, user_id uid)
{
	struct engine_seq *last = TAILQ_LAST(&e->encodes, encode_list), *seq, *next;
	bool more = last;

	for (seq = TAILQ_FIRST(&e->encodes); more; seq = next) {
		next = TAILQ_NEXT(seq, encode_link);
		more = seq != last;
		if (seq->sched.uid != uid)
			continue;
		TAILQ_REMOVE(&e->encodes, seq, encode_link);
		TAILQ_INSERT_TAIL(&e->encodes, seq, encode_link);
	}
}

/* Continues requests whose images are all encoded, and those of others with the same images. */
static void end_encoding(struct engine *e)
{
	struct engine_seq *seq, *next;

	for (seq = TAILQ_FIRST(&e->encodes); seq; seq = next) {
		next = TAILQ_NEXT(seq, encode_link);
		e->stats.cached_images +=
			encoder_recall(e->encoder, owner_of(seq), seq->request->images);
		if (encoder_wants(seq->request->images))
			continue;
		TAILQ_REMOVE(&e->encodes, seq, encode_link);
		schedule(e, seq);
	}
}

/*
 * Encodes an image, with users taking turns. While sequences are running, it is done in launches that
 * keep --max-stall-ms, and the next one waits until steps have had as much time as this one took.
 */
static void encode_image(struct engine *e)
{
	struct engine_seq *seq = TAILQ_FIRST(&e->encodes);
	uint64_t start = clock_ns(), ns;
	bool runs = scheduler_running(e->scheduler), encoded = false;
	char err[256] = "";
	int error;

	if (!seq || (e->encode_debt_ns && runs) || atomic_load(&e->lost))
		return;
	/* Deliver the previous step's events now, while the chips are busy. */
	if (encoder_begin(e->encoder, seq->request->images, runs ? e->max_stall_ns : 0, err,
			  sizeof(err))) {
		lose(e, err);
		return;
	}
	publish(e, false);
	wake_client(e);
	error = encoder_wait(e->encoder, owner_of(seq), start, &e->launch, &encoded, err,
			     sizeof(err));
	if (error == -ENOMEM) {
		finish(e, seq, ENGINE_FINISH_ERROR, error, err);
		return;
	}
	if (error) {
		lose(e, err);
		return;
	}
	ns = clock_ns() - start;
	e->stats.encode_launches++;
	e->stats.encode_ns += ns;
	e->encode_debt_ns = ns;
	if (e->boundary_ns)
		e->boundary_ns += ns; /* the chips were not idle */
	if (!encoded)
		return;
	e->stats.images++;
	take_turns(e, seq->sched.uid);
	end_encoding(e);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Adds a request; @leader: the request whose prompt it waits for, or NULL. */
static void take_request(struct engine *e, struct engine_request *r, struct engine_request *leader)
{
	struct engine_seq *seq = r->seq;

	seq->sched.uid = r->uid;
	seq->sched.salt = r->salt;
	seq->sched.priority = r->priority;
	seq->sched.prompt = r->prompt;
	seq->sched.images = r->images;
	seq->sched.generated = r->tokens;
	seq->sched.n_prompt = seq->sched.n_total = r->n_prompt;
	seq->sched.prompt_row = r->sink		 ? forward_first(r)
				: r->pooling.how ? pool_first(r)
				: r->prompt_lp	 ? 0
						 : r->n_prompt;
	seq->sched.draft = seq->draft.tokens;
	seq->draft.sampling = &r->sampling;
	seq->leader = leader;
	seq->live_next = e->live;
	if (seq->live_next)
		seq->live_next->live_prev = seq;
	e->live = seq;
	e->n_live++;
	e->n_searches += r->beams != NULL;
	if (!leader)
		schedule(e, seq);
	if (r->constraint)
		choose_begin(e, seq);
	if (r->deadline_ns && r->deadline_ns < e->deadline_ns)
		e->deadline_ns = r->deadline_ns;
}

static void end_cancelled(struct engine *e, struct engine_seq *seq)
{
	if (atomic_load(&seq->request->cancelled))
		finish(e, seq, ENGINE_FINISH_CANCELLED, 0, "");
}

/* Adds submitted requests, oldest first. */
static void take_submitted(struct engine *e)
{
	struct engine_seq *seq = atomic_exchange(&e->submitted, NULL), *oldest = NULL, *next;
	struct engine_request *f, *fork_next;
	unsigned n = 0;

	for (; seq; seq = next) {
		next = seq->submit_next;
		seq->submit_next = oldest;
		oldest = seq;
	}
	for (seq = oldest; seq; seq = next) {
		struct engine_request *r = seq->request;

		next = seq->submit_next;
		take_request(e, r, NULL);
		n++;
		for (f = r->forks; f; f = f->fork_next, n++)
			take_request(e, f, r);
		for (f = r->forks; f; f = fork_next) {
			fork_next = f->fork_next;
			end_cancelled(e, f->seq);
		}
		end_cancelled(e, seq);
	}
	/*
	 * Counted as waiting before it is uncounted as submitted, so that the queue never appears
	 * shorter than it is.
	 */
	atomic_store(&e->n_waiting, waiting(e));
	atomic_fetch_sub(&e->n_submitted, n);
}

/* Calls @visit for each request; it may end that request. */
static void visit_requests(struct engine *e,
			   void (*visit)(struct engine *e, struct engine_seq *seq))
{
	struct engine_seq *next;

	for (struct engine_seq *seq = e->live; seq; seq = next) {
		next = seq->live_next;
		visit(e, seq);
	}
}

static void end_stopped(struct engine *e, struct engine_seq *seq)
{
	finish(e, seq, ENGINE_FINISH_CANCELLED, 0, "");
}

static void end_lost(struct engine *e, struct engine_seq *seq)
{
	finish(e, seq, ENGINE_FINISH_ERROR, -EIO, e->lost_text);
}

/* Continues a sequence whose mask has become known. */
static void settle(struct engine *e, struct engine_seq *seq)
{
	if (choose_late(e, seq, clock_ns()))
		mark_ready(e, seq->request);
	finish_if_over(e, seq);
}

static void make_room(struct engine *e, struct engine_seq *seq)
{
	if (seq->request->beams && !seq->encodes)
		beam_run_make_room(e, seq->request);
}

/* Ends it if its deadline has passed; otherwise the deadline may be the next one. */
static void end_late(struct engine *e, struct engine_seq *seq)
{
	uint64_t deadline = seq->request->deadline_ns;

	if (!deadline)
		return;
	if (clock_ns() >= deadline)
		finish(e, seq, ENGINE_FINISH_TIMEOUT, -ETIMEDOUT, "its deadline has passed");
	else if (deadline < e->deadline_ns)
		e->deadline_ns = deadline;
}

/* Between two steps: adds new requests, ends cancelled and late ones. */
static void sync_requests(struct engine *e)
{
	unsigned cancels = atomic_load(&e->cancels), masks = atomic_load(&e->masks_done);

	take_submitted(e);
	if (cancels != e->cancels_seen) {
		visit_requests(e, end_cancelled);
		e->cancels_seen = cancels;
	}
	if (masks != e->masks_seen) {
		visit_requests(e, settle);
		e->masks_seen = masks;
	}
	if (e->n_searches)
		visit_requests(e, make_room);
	if (atomic_load(&e->lost))
		visit_requests(e, end_lost);
	if (e->deadline_ns != UINT64_MAX && clock_ns() >= e->deadline_ns) {
		e->deadline_ns = UINT64_MAX;
		visit_requests(e, end_late);
	}
}

/* Sleeps until there is work; a request that waits for its mask may have a deadline. */
static void sleep_until_woken(struct engine *e)
{
	const struct timespec deadline = {(time_t)(e->deadline_ns / NS_PER_S),
					  (long)(e->deadline_ns % NS_PER_S)};
	int error = 0;

	pthread_mutex_lock(&e->sleep_lock);
	atomic_store(&e->asleep, true);
	while (!atomic_load(&e->submitted) && !atomic_load(&e->stopping) &&
	       atomic_load(&e->cancels) == e->cancels_seen &&
	       atomic_load(&e->masks_done) == e->masks_seen && !error)
		error = pthread_cond_timedwait(&e->wake, &e->sleep_lock, &deadline);
	atomic_store(&e->asleep, false);
	pthread_mutex_unlock(&e->sleep_lock);
	e->boundary_ns = 0;
}

void *engine_main(void *arg)
{
	struct engine *e = arg;

	pthread_setname_np(pthread_self(), "txda-engine");
	priority_shorten_slice();
	while (!atomic_load(&e->stopping)) {
		struct step_slot *slot = &e->slots[e->turn];

		sync_requests(e);
		encode_image(e);
		slot->n_items = scheduler_plan(e->scheduler, slot->items);
		atomic_store(&e->n_waiting, waiting(e));
		if (slot->n_items) {
			run_step(e);
			e->turn = !e->turn;
		} else {
			slot->n_filled = 0;
			publish(e, true);
			wake_client(e);
			e->encode_debt_ns = 0; /* nothing can continue meanwhile */
			if (TAILQ_EMPTY(&e->encodes))
				sleep_until_woken(e);
		}
	}
	take_submitted(e);
	visit_requests(e, end_stopped);
	publish(e, true);
	wake_client(e);
	return NULL;
}
