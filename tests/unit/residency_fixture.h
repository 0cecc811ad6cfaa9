/* SPDX-License-Identifier: MIT */
/*
 * The model table over chips and models without a chip (fake_context.h, fake_model.h) and a
 * compiler that is a shell script: it does as the file "behave" in the model's directory says.
 */
#ifndef RESIDENCY_FIXTURE_H
#define RESIDENCY_FIXTURE_H

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fake_context.h"
#include "fake_model.h"
#include "residency.h"

/* Of each test: a directory of its own; in the end nothing is loaded. */
int set_up(void **state);
int tear_down(void **state);

/* The path of a file in the test's directory. */
char *at(const char *name);
void put(const char *name, const char *text, mode_t mode);
void get(const char *name, char *text, size_t len);
/* A checkpoint, with what the compiler is to do with it, and a compiled model. */
void make_hf(const char *name, const char *behave);
void make_case(const char *name);
/* How often the compiler has run for it. */
unsigned runs(const char *name);

struct residency *open_residency(unsigned compile_seconds);
void add(struct residency *r, const char *name);

/* What became of a call. */
struct outcome {
	unsigned calls;
	int error;
	char text[512];
	struct residency_model *model;
};

void on_ready(void *arg, int error, const char *text, struct residency_model *model);
void wait_call(struct residency *r, struct outcome *o);
/* Acquires, waiting for the load if need be. */
int acquire(struct residency *r, const char *name, struct outcome *o);
enum residency_state state_of(struct residency *r, const char *name);
void wait_state(struct residency *r, const char *name, enum residency_state state);

struct engine_request *new_request(unsigned max_tokens);
/* A short one, to its end. */
void run_request(struct engine *e);

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
