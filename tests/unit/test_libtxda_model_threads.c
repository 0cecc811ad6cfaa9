// SPDX-License-Identifier: MIT
/* Models: loads of several threads, cancelled ones, tensors of launches in flight, forks. */
#include <pthread.h>
#include <sys/wait.h>

#include "clock.h"
#include "model_rig.h"

struct loader {
	struct txda_group *group;
	const char *path;
	struct txda_model *model;
	int result;
	uint64_t progress, total;
};

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct loader *loader = arg;

	assert_true(done >= loader->progress && done <= total);
	loader->progress = done;
	loader->total = total;
}

static void *load_in_thread(void *arg)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct loader *loader = arg;

	options.path = loader->path;
	options.kv_blocks = 1;
	options.verify_weights = true;
	options.progress = on_progress;
	options.progress_arg = loader;
	loader->result = txda_model_load(loader->group, &options, &loader->model);
	return NULL;
}

/*
 * Many threads load and free the same model: one copy of the weights at any time, none at the end.
 */
TEST_WITH(test_load_threads, NULL, end)
{
	enum { THREADS = 6 };
	struct loader loader[THREADS];
	pthread_t thread[THREADS];

	begin("mem=64M,cores=2", 1);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < THREADS; i++) {
			loader[i] = (struct loader){.group = group, .path = path};
			assert_int_equal(
				pthread_create(&thread[i], NULL, load_in_thread, &loader[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(loader[i].result, 0);
			assert_int_equal(loader[i].progress, CASE_PARAM);
			assert_int_equal(loader[i].total, CASE_PARAM);
		}
		assert_int_equal(used_bytes(context, 0),
				 PAGES(CASE_PARAM) +
					 THREADS * (FIXED - PAGES(CASE_PARAM) + CASE_KV_BYTES));
		for (unsigned i = 0; i < THREADS; i++)
			txda_model_unref(loader[i].model);
		assert_int_equal(used_bytes(context, 0), 0);
	}
}

struct canceller {
	unsigned calls, at;	     /* at 0: never */
	pthread_barrier_t *in, *out; /* which that call passes, if there are any */
};

static int cancel_at(void *arg)
{
	struct canceller *c = arg;

	if (++c->calls != c->at)
		return 0;
	if (c->in) {
		pthread_barrier_wait(c->in);
		pthread_barrier_wait(c->out);
	}
	return 1;
}

static void *load_cancelled(void *arg)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model = NULL;

	options.path = path;
	options.kv_blocks = 1;
	options.cancel = cancel_at;
	options.progress_arg = arg;
	fails(context, txda_model_load(group, &options, &model), -ECANCELED,
	      "the load was cancelled");
	assert_null(model);
	return NULL;
}

/* A load ends when its caller does not want it any more, and leaves nothing; others go on. */
TEST_WITH(test_cancel, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct canceller canceller = {.at = 0}, loading = {.at = 2};
	struct loader loader = {.path = NULL};
	pthread_barrier_t in, out;
	pthread_t first, second;
	struct txda_model *model;
	unsigned calls;

	begin("mem=64M,cores=2", 1);
	options.path = path;
	options.kv_blocks = 1;
	options.deadline_ns = 1;
	fails(context, txda_model_load(group, &options, &model), -ETIMEDOUT,
	      "the load's deadline has passed");
	options.deadline_ns = TXDA_FOREVER;
	options.verify_weights = true;
	options.cancel = cancel_at;
	options.progress_arg = &canceller;
	ok(context, txda_model_load(group, &options, &model));
	calls = canceller.calls;
	assert_true(calls >= 2);
	txda_model_unref(model);
	for (canceller.at = 1; canceller.at <= calls; canceller.at++) {
		canceller.calls = 0;
		fails(context, txda_model_load(group, &options, &model), -ECANCELED,
		      "the load was cancelled");
		assert_int_equal(used_bytes(context, 0), 0);
	}

	/* One thread loads weights, a second one waits for it, a third one not any longer. */
	pthread_barrier_init(&in, NULL, 2);
	pthread_barrier_init(&out, NULL, 2);
	loading.in = &in;
	loading.out = &out;
	assert_int_equal(pthread_create(&first, NULL, load_cancelled, &loading), 0);
	pthread_barrier_wait(&in);
	loader = (struct loader){.group = group, .path = path};
	assert_int_equal(pthread_create(&second, NULL, load_in_thread, &loader), 0);
	options.deadline_ns = clock_ns() + 30000000;
	options.cancel = NULL;
	assert_int_equal(txda_model_load(group, &options, &model), -ETIMEDOUT);
	options.deadline_ns = 0;
	options.cancel = cancel_at;
	canceller.calls = 0;
	canceller.at = 3;
	assert_int_equal(txda_model_load(group, &options, &model), -ECANCELED);
	pthread_barrier_wait(&out);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	assert_int_equal(loader.result, 0);
	run_and_check(loader.model, 3, 2, 1);
	txda_model_unref(loader.model);
	assert_int_equal(used_bytes(context, 0), 0);
	pthread_barrier_destroy(&in);
	pthread_barrier_destroy(&out);
}

/* What a launch in flight may use does not change, whichever rank is still working. */
TEST(test_in_flight)
{
	for (unsigned tp = 1; tp <= 2; tp++) {
		struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
					      .value = 1},
				      signal = {.hdr = {.op = TXDA_PKT_SIGNAL,
							.bytes = sizeof(signal)},
						.value = 1};
		struct txda_step step = TXDA_INIT(struct txda_step);
		struct txda_buffer *word, *other;
		struct txda_model *model;
		struct txda_queue *queue;
		const int32_t bad = 1000;
		uint64_t fence, passed;
		float x[CASE_H] = {1};

		begin("chips=2,mem=64M,cores=2", tp);
		model = load(group, 1);
		ok(context, txda_buffer_new(device_of(context, tp - 1), 65536, TXDA_MEMORY_DEVICE,
					    0, &word));
		ok(context,
		   txda_buffer_new(device_of(context, 0), 65536, TXDA_MEMORY_DEVICE, 0, &other));
		ok(context, txda_model_set_input(model, "x", x, sizeof(x)));
		wait.va = txda_buffer_va(word);
		for (unsigned r = 0; r < tp; r++) /* the same fences on all */
			ok(context, txda_queue_submit(model->rank[r].queue, &wait,
						      r == tp - 1 ? sizeof(wait) : 0, 0, NULL));
		step.tokens = step.seqs = 1;
		ok(context, txda_model_run(model, &step, &fence));
		ok(context, txda_model_passed(model, &passed));
		assert_true(passed < fence);
		fails(context, txda_model_set_input(model, "x", x, sizeof(x)), -EBUSY,
		      "model tiny: launch 2 is in flight on rank");
		fails(context, txda_model_get_output(model, "y", x, sizeof(x)), -EBUSY,
		      "launch 2 is in flight");
		fails(context, txda_model_bind(model, 0, "x", other, 0), -EBUSY,
		      "launch 2 is in flight");
		fails(context, txda_model_bind(model, tp - 1, "x", other, 0), -EBUSY,
		      "launch 2 is in flight");
		ok(context, txda_queue_new(device_of(context, tp - 1), TXDA_QUEUE_COPY, &queue));
		signal.va = wait.va;
		ok(context, txda_queue_submit(queue, &signal, sizeof(signal), 0, NULL));
		ok(context, txda_model_sync(model, fence, TXDA_FOREVER));
		ok(context, txda_model_passed(model, &passed));
		assert_int_equal(passed, fence);
		ok(context, txda_model_bind(model, 0, "x", other, 0));
		run_and_check(model, 3, 2, (float)tp);

		/* After a launch that failed it is told why. */
		ok(context, txda_model_set_input(model, "rows", &bad, sizeof(bad)));
		step.rows = 1;
		ok(context, txda_model_run(model, &step, &fence));
		assert_int_equal(txda_model_sync(model, fence, TXDA_FOREVER), -EIO);
		fails(context, txda_model_set_input(model, "rows", &bad, sizeof(bad)), -EIO,
		      "1000");
		txda_queue_unref(queue);
		txda_buffer_unref(word);
		txda_buffer_unref(other);
		txda_model_unref(model);
		end(state);
	}
}

/* One of everything, and a stream that waits until @word is set. */
struct family {
	struct txda_device *device;
	struct txda_model *model;
	struct txda_weights *weights;
	struct txda_queue *queue;
	struct txda_buffer *word, *data;
	uint64_t fence;
};

/* The first call that does not give -EPERM; 0: all do. */
static int first_that_works(struct family *f)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_weights_info weights = TXDA_INIT(struct txda_weights_info);
	struct txda_device_info device = TXDA_INIT(struct txda_device_info);
	struct txda_tensor_info tensor = TXDA_INIT(struct txda_tensor_info);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	struct txda_model_info info = TXDA_INIT(struct txda_model_info);
	struct txda_link_info link = TXDA_INIT(struct txda_link_info);
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_step step = TXDA_INIT(struct txda_step);
	char text[8] = "";
	const char *words;
	struct txda_weights *w;
	struct txda_buffer *b;
	struct txda_device *d;
	struct txda_group *g;
	struct txda_queue *q;
	struct txda_model *m;
	unsigned index;
	uint64_t number;
	bool kept;
	void *ptr;
	int fd;

	options.path = path;
	step.tokens = step.seqs = 1;
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		if ((call) != -EPERM)                                                              \
			return __LINE__;                                                           \
	} while (0)
	REFUSED(txda_context_device_count(context));
	REFUSED(txda_context_event_fd(context));
	REFUSED(txda_context_event(context, &event));
	REFUSED(txda_device_get(context, 0, &d));
	REFUSED(txda_device_info(f->device, &device));
	REFUSED(txda_device_status(f->device, &status));
	REFUSED(txda_device_distance(f->device, f->device));
	REFUSED(txda_device_link(f->device, 0, &link));
	REFUSED(txda_group_new(context, &group_options, &g));
	REFUSED(txda_group_explain(group, text, sizeof(text)));
	REFUSED(txda_buffer_new(f->device, 4096, TXDA_MEMORY_DEVICE, 0, &b));
	REFUSED(txda_buffer_map(f->data, &ptr));
	REFUSED(txda_buffer_write(f->data, 0, text, 1));
	REFUSED(txda_buffer_read(f->data, 0, text, 1));
	REFUSED(txda_buffer_load(f->data, 0, 0, 0, 0));
	REFUSED(txda_buffer_export(f->data, &fd));
	REFUSED(txda_buffer_share(f->data, TXDA_SHARE_READ_ONLY, &fd));
	REFUSED(txda_buffer_import(f->device, 0, 0, &b));
	REFUSED(txda_buffer_advise(f->data, TXDA_ADVICE_COLD, &kept));
	REFUSED(txda_queue_new(f->device, TXDA_QUEUE_COPY, &q));
	REFUSED(txda_queue_submit(f->queue, NULL, 0, 0, &number));
	REFUSED(txda_queue_wait(f->queue, f->fence, TXDA_FOREVER));
	REFUSED(txda_queue_passed(f->queue, &number));
	REFUSED(txda_queue_fd(f->queue));
	REFUSED(txda_queue_fault(f->queue, text, sizeof(text)));
	REFUSED(txda_queue_copy(f->queue, f->data, 0, f->data, 64, 8, &number));
	REFUSED(txda_model_load(group, &options, &m));
	REFUSED(txda_model_plan(context, path, &plan));
	REFUSED(txda_model_plan_load(context, &options, &plan));
	REFUSED(txda_model_program(context, path, 0, text, sizeof(text)));
	REFUSED(txda_model_info(f->model, &info));
	REFUSED(txda_model_tensor_count(f->model));
	REFUSED(txda_model_tensor(f->model, 0, &tensor));
	REFUSED(txda_model_find(f->model, "x", &index));
	REFUSED(txda_model_set_input(f->model, "x", text, 4));
	REFUSED(txda_model_get_output(f->model, "y", text, 4));
	REFUSED(txda_model_tensor_ptr(f->model, 0, "x", &ptr));
	REFUSED(txda_model_tensor_buffer(f->model, 0, "x", &b, &number));
	REFUSED(txda_model_bind(f->model, 0, "x", f->data, 0));
	REFUSED(txda_model_run(f->model, &step, &number));
	REFUSED(txda_model_sync(f->model, 1, TXDA_FOREVER));
	REFUSED(txda_model_passed(f->model, &number));
	REFUSED(txda_model_fd(f->model));
	REFUSED(txda_model_op_count(f->model));
	REFUSED(txda_model_op(f->model, 0, &words, &words));
	REFUSED(txda_model_weights(f->model, 0, &w));
	REFUSED(txda_weights_info(f->weights, &weights));
	REFUSED(txda_weights_export(f->weights, &fd));
	REFUSED(txda_weights_import(f->device, 0, &weights, &w));
	REFUSED(txda_weights_check(f->weights, path, 0));
#undef REFUSED
	return strstr(txda_context_error(context), "before fork()") ? 0 : __LINE__;
}

static void drop_family(struct family *f)
{
	txda_weights_unref(f->weights);
	txda_model_unref(f->model);
	txda_queue_unref(f->queue);
	txda_buffer_unref(f->word);
	txda_buffer_unref(f->data);
	txda_device_unref(f->device);
}

static int in_child(struct family *f)
{
	int line = first_that_works(f);

	if (line)
		return line % 250 + 1;
	txda_weights_unref(txda_weights_ref(f->weights));
	drop_family(f);
	group = txda_group_unref(group);
	txda_context_unref(context);
	/* It may have a context of its own. */
	context = open_context("mem=64M,cores=2");
	group = new_group(0, 1);
	f->model = load(group, 1);
	run_and_check(f->model, 3, 2, 1);
	txda_model_unref(f->model);
	txda_group_unref(group);
	txda_context_unref(context);
	return 0;
}

/* A child has what it inherited in name only, and its parent does not notice what it does. */
TEST_WITH(test_fork, NULL, end)
{
	struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
				      .value = 1};
	struct family f = {0};
	struct txda_queue *other;
	uint64_t fence, value = 1;
	int status;
	pid_t pid;

	begin("mem=64M,cores=2", 1);
	ok(context, txda_device_get(context, 0, &f.device));
	f.model = load(group, 1);
	ok(context, txda_model_weights(f.model, 0, &f.weights));
	ok(context, txda_queue_new(f.device, TXDA_QUEUE_COMPUTE, &f.queue));
	ok(context, txda_buffer_new(f.device, 4096, TXDA_MEMORY_DEVICE, 0, &f.word));
	ok(context, txda_buffer_new(f.device, 8192, TXDA_MEMORY_DEVICE, 0, &f.data));
	ok(context, txda_buffer_write(f.data, 0, "payload", 8));
	wait.va = txda_buffer_va(f.word);
	ok(context, txda_queue_submit(f.queue, &wait, sizeof(wait), 0, &f.fence));
	ok(context, txda_queue_copy(f.queue, f.data, 4096, f.data, 0, 4096, &f.fence));
	pid = fork();
	if (!pid) {
		alarm(120); /* instead of a hang */
		_exit(in_child(&f));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);

	assert_int_equal(txda_queue_wait(f.queue, f.fence, 0), -ETIMEDOUT);
	ok(context, txda_buffer_write(f.word, 0, &value, sizeof(value)));
	ok(context, txda_queue_new(f.device, TXDA_QUEUE_COPY, &other));
	ok(context, txda_queue_submit(other, NULL, 0, 0, &fence));
	ok(context, txda_queue_wait(f.queue, f.fence, TXDA_FOREVER));
	ok(context, txda_buffer_read(f.data, 4096, &value, sizeof(value)));
	assert_memory_equal(&value, "payload", 8);
	run_and_check(f.model, 3, 2, 1);
	txda_queue_unref(other);
	drop_family(&f);
	assert_int_equal(used_bytes(context, 0), 0);
}

TEST_MAIN
