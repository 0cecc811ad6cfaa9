/* SPDX-License-Identifier: MIT */
/*
 * The table of models over chips and models without a chip (fake_context.h, fake_model.h) and a
 * compiler that is a shell script: it does as the file "behave" in the model's directory says. A
 * model whose directory has "speechless" in its name has no text side.
 */
#ifndef MODELS_FIXTURE_H
#define MODELS_FIXTURE_H

#include <errno.h>
#include <sys/stat.h>

#include "unit.h"
#include "fake_context.h"
#include "fake_model.h"
#include "loader.h"
#include "models.h"
#include "models_internal.h"

extern struct config test_config;
extern uint64_t test_cache_size; /* of tables to be opened; 0: no limit */

/* Of each test: a directory of its own; in the end its table goes, and nothing is loaded. */
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
/* Makes another user the owner of the model's directory. */
void give_to(const char *name, uid_t uid);

struct models *open_table(unsigned compile_seconds);
void close_table(void); /* before the test's end */
/* Of the directory @path; loaded on demand. */
struct config_model *new_config(const char *name, const char *path);
/* Adds it, which takes it over; MODEL_FAILED if it cannot be served. */
struct served_model *add_config(struct models *t, struct config_model *c);
/* The model of the test's directory @name. */
struct served_model *add(struct models *t, const char *name);
/* The same, with the directory made before. */
struct served_model *add_case(struct models *t, const char *name);
struct served_model *add_hf(struct models *t, const char *name, const char *behave);

/* The event loop, once. */
void turn_loop(void);
void wait_state(struct served_model *m, enum model_state state);
/* Until the loader has nothing to do. */
void wait_loader(struct models *t);
/* Asks for the model, waits for the end of the load; its state then. */
enum model_state load(struct served_model *m);

/* Who waits for a model. */
struct outcome {
	struct model_waiter waiter; /* first */
	unsigned calls;
	enum model_wake why;
};
void begin_wait(struct served_model *m, struct outcome *o);
enum model_wake end_wait(struct outcome *o);

struct test_request {
	struct client client; /* first */
	struct engine_request *request;
	bool ended;
};
int begin_request(struct served_model *m, struct test_request *r, unsigned max_tokens);
enum engine_finish end_request(struct test_request *r);
/* A short one, to its end. */
void run_request(struct served_model *m);

#endif
