// SPDX-License-Identifier: MIT
/*
 * What the border to a model's text process costs a request: bench_text_process MODEL_DIR does the
 * same work here and there, a text and a chat of each size, and prints both times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_template.h"
#include "clock.h"
#include "text_process.h"
#include "text_tree.h"
#include "tokenizer.h"
#include "work.h"

#define TIMES 400

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *times)
{
	qsort(times, TIMES, sizeof(*times), by_time);
	return times[TIMES / 2];
}

static void *must(void *p)
{
	if (!p)
		exit(1);
	return p;
}

/* The job as a message, for text_work(). */
static void lay_out(struct text_job *job, const struct text_bytes *part, struct text_buf *out)
{
	job->size = (uint32_t)(sizeof(*job) + part->len);
	job->parts[0] = (struct text_part){sizeof(*job), (uint32_t)part->len};
	out->len = 0;
	if (!text_buf_add(out, job, sizeof(*job)) || !text_buf_add(out, part->data, part->len))
		exit(1);
}

static void measure(const char *what, size_t size, const struct text_model *m,
		    struct text_process *p, struct text_job job, const struct text_bytes *part)
{
	const struct text_bytes parts[TEXT_JOB_PARTS] = {*part};
	const struct text_caller caller = {0};
	static double here[TIMES], there[TIMES];
	struct text_buf message = {0}, answer = {0};
	struct text_done *done;
	char err[256];

	job.max_ids = 1u << 24;
	for (unsigned i = 0; i < TIMES; i++) {
		double start = clock_s();

		lay_out(&job, part, &message);
		if (text_work(m, message.data, message.len, &answer))
			exit(1);
		here[i] = clock_s() - start;
		start = clock_s();
		if (text_process_call(p, &job, parts, 1u << 28, &caller, &done, err, sizeof(err)) ||
		    done->error)
			exit(1);
		there[i] = clock_s() - start;
		free(done);
	}
	printf("%-5s %7zu bytes: %8.1f us here, %8.1f us there\n", what, size, median(here) * 1e6,
	       median(there) * 1e6);
	free(message.data);
	free(answer.data);
}

static void measure_size(size_t size, const struct text_model *m, struct text_process *p)
{
	static const char words[] = "Once upon a time there was a little fox. ";
	struct text_buf tree = {0};
	cJSON *messages = must(cJSON_CreateArray()), *message = must(cJSON_CreateObject());
	char *text = must(malloc(size + 1));

	for (size_t i = 0; i < size; i++)
		text[i] = words[i % (sizeof(words) - 1)];
	text[size] = '\0';
	measure("text", size, m, p, (struct text_job){.kind = TEXT_JOB_ENCODE},
		&(struct text_bytes){text, size});
	cJSON_AddStringToObject(message, "role", "user");
	cJSON_AddStringToObject(message, "content", text);
	cJSON_AddItemToArray(messages, message);
	if (!text_tree_write(messages, &tree))
		exit(1);
	measure("chat", size, m, p,
		(struct text_job){.kind = TEXT_JOB_CHAT, .flags = TEXT_ADD_GENERATION_PROMPT},
		&(struct text_bytes){tree.data, tree.len});
	cJSON_Delete(messages);
	free(tree.data);
	free(text);
}

int main(int argc, char **argv)
{
	const struct text_process_options options = {.seconds = 60, .memory = 4ull << 30};
	struct text_loaded *loaded;
	struct text_process *p;
	struct text_model m = {0};
	struct text_buf read = {0};
	char err[512];

	if (argc != 2 || text_model_read(&m, argv[1], NULL, &read) || !m.tokenizer) {
		fprintf(stderr, "usage: bench_text_process MODEL_DIR\n");
		return 64;
	}
	if (text_process_start(argv[1], &options, &p, &loaded, err, sizeof(err))) {
		fprintf(stderr, "bench_text_process: %s\n", err);
		return 1;
	}
	for (size_t size = 64; size <= 64 << 10; size *= 8)
		measure_size(size, &m, p);
	text_process_free(p);
	txda_chat_template_free(m.chat);
	txda_tokenizer_free(m.tokenizer);
	free(loaded);
	free(read.data);
	return 0;
}
