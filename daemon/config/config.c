// SPDX-License-Identifier: MIT
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config_internal.h"
#include "tool_line.h"
#include "utf8.h"

/* ---- models ---------------------------------------------------------------------------------- */

static bool name_taken(const struct config *c, const char *name)
{
	for (unsigned i = 0; i < c->n_models; i++)
		for (unsigned k = 0; k < c->models[i].n_names; k++)
			if (!strcmp(c->models[i].names[k], name))
				return true;
	return false;
}

/* Names are written to JSON, metrics, logs and terminals; requests can name nothing else. */
static bool is_plain(const char *name)
{
	size_t len = strlen(name);

	if (utf8_valid_prefix((const uint8_t *)name, len) != len)
		return false;
	while (*name && !utf8_control(name))
		name++;
	return !*name;
}

bool config_add_name(struct config *c, const char *name, char *err, size_t errlen)
{
	struct config_model *m = &c->models[c->n_models - 1];

	if (!*name || strlen(name) > 200) {
		snprintf(err, errlen, "a model's name must have 1 to 200 characters: '%.200s'",
			 name);
	} else if (!is_plain(name)) {
		snprintf(err, errlen,
			 "a model's name must be UTF-8 without control characters: '%.200s'", name);
	} else if (name_taken(c, name)) {
		snprintf(err, errlen, "two models are called '%s'", name);
	} else if (m->n_names == CONFIG_MAX_NAMES) {
		snprintf(err, errlen, "more than %d names for one model", CONFIG_MAX_NAMES);
	} else if (!(m->names[m->n_names] = strdup(name))) {
		snprintf(err, errlen, "out of memory");
	} else {
		m->n_names++;
		return true;
	}
	return false;
}

/* The last part of @path, or of where it leads to, if that is "." or "..". */
static void name_of(const char *path, char *ret, size_t len)
{
	size_t end = strlen(path), start;
	char *real;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	snprintf(ret, len, "%.*s", (int)(end - start), path + start);
	if (strcmp(ret, ".") && strcmp(ret, ".."))
		return;
	real = realpath(path, NULL);
	if (real)
		snprintf(ret, len, "%s", strrchr(real, '/') + 1);
	free(real);
}

/* NAME=PATH, or PATH alone, which takes its name from the last component. */
bool config_add_model(struct config *c, const char *value, char *err, size_t errlen)
{
	const char *equals = strchr(value, '='), *slash = strchr(value, '/');
	const char *path = value;
	struct config_model *m;
	char name[256];

	if (c->n_models == CONFIG_MAX_MODELS) {
		snprintf(err, errlen, "more than %d models", CONFIG_MAX_MODELS);
		return false;
	}
	if (equals && (!slash || equals < slash)) {
		path = equals + 1;
		snprintf(name, sizeof(name), "%.*s", (int)(equals - value), value);
	} else {
		name_of(path, name, sizeof(name));
	}
	if (!*path) {
		snprintf(err, errlen, "--model %.200s has no path", value);
		return false;
	}
	m = &c->models[c->n_models];
	*m = (struct config_model){.path = strdup(path), .place = c->n_models++};
	if (!options_copy(&config_table, OPTION_EACH_MODEL, &c->defaults, m) || !m->path) {
		snprintf(err, errlen, "out of memory");
		return false;
	}
	return config_add_name(c, name, err, errlen);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The struct for a per-model option: that of the preceding model, or the defaults for all. */
static bool apply_to_models(struct config *c, const struct option_given *given, char *err,
			    size_t errlen)
{
	bool ok;

	if (c->n_models > c->n_before)
		return option_set(given->row, &c->models[c->n_models - 1], given->text, err,
				  errlen);
	ok = option_set(given->row, &c->defaults, given->text, err, errlen);
	for (unsigned i = 0; i < c->n_models && ok; i++)
		ok = option_set(given->row, &c->models[i], given->text, err, errlen);
	return ok;
}

static bool apply(void *arg, const struct option_given *given, char *err, size_t errlen)
{
	const struct option_row *row = given->row;
	struct config *c = arg;
	unsigned before;

	switch (row->scope) {
	case OPTION_DAEMON:
		before = c->n_models;
		if (!option_set(row, c, given->text, err, errlen))
			return false;
		if (given->file && c->n_models > before)
			snprintf(c->models[before].where, sizeof(c->models[before].where),
				 "%.250s, line %u: ", given->file, given->line);
		return true;
	case OPTION_EACH_MODEL: return apply_to_models(c, given, err, errlen);
	case OPTION_ONE_MODEL:
		if (c->n_models)
			return option_set(row, &c->models[c->n_models - 1], given->text, err,
					  errlen);
		snprintf(err, errlen, "--%s must follow the --model that it applies to", row->name);
		return false;
	default: snprintf(err, errlen, "--%s is not allowed in a file", row->name); return false;
	}
}

/*
 * "serve PATH", as in vLLM, is --model PATH; elsewhere an argument that is not an option is an
 * error. Returns the index of the first option.
 */
static int first_option(int argc, char **argv, const char **ret_path)
{
	*ret_path = NULL;
	if (argc < 2 || strcmp(argv[1], "serve") != 0)
		return 1;
	if (argc < 3 || *argv[2] == '-')
		return 2;
	*ret_path = argv[2];
	return 3;
}

/*
 * The file is read first wherever --config is on the command line, so that the command line
 * overrides it.
 */
static bool read_config_files(struct config *c, int argc, char **argv, char *err, size_t errlen)
{
	const char *path;
	struct option_given given;
	int at = first_option(argc, argv, &path), r;

	while ((r = options_next(&config_table, argc, argv, &at, &given, err, errlen)) != 0) {
		if (r < 0 || strcmp(given.row->name, "config") != 0)
			continue;
		free(c->file);
		c->file = strdup(given.text);
		c->n_before = c->n_models;
		if (!c->file ||
		    !options_read_file(&config_table, given.text, apply, c, err, errlen))
			return false;
	}
	return true;
}

/* $DISABLE_CACHE, as used by other serving software. */
static bool read_environment(struct config *c, char *err, size_t errlen)
{
	static const char *const words[] = {"0", "no", "false", "off", "1", "yes", "true", "on"};
	const char *value = getenv("DISABLE_CACHE");
	unsigned i = 0;

	if (!value || !*value)
		return true;
	while (i < 8 && strcasecmp(value, words[i]) != 0)
		i++;
	c->disable_cache = i >= 4;
	if (i == 8)
		snprintf(err, errlen, "DISABLE_CACHE=%.200s: must be 1 (yes, true, on) or 0",
			 value);
	return i < 8;
}

static bool default_socket(struct config *c)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char path[512];

	if (c->socket)
		return true;
	if (geteuid() && dir && *dir == '/')
		snprintf(path, sizeof(path), "%s/txda.sock", dir);
	else if (geteuid() && access("/run/txda", W_OK))
		return true;
	else
		snprintf(path, sizeof(path), "/run/txda/txda.sock");
	c->socket = strdup(path);
	return c->socket != NULL;
}

static enum config_action read_command_line(struct config *c, int argc, char **argv, char *err,
					    size_t errlen)
{
	const char *path;
	struct option_given given;
	int at = first_option(argc, argv, &path), r;

	c->n_before = c->n_models;
	if (path && !config_add_model(c, path, err, errlen))
		return CONFIG_ERROR;
	while ((r = options_next(&config_table, argc, argv, &at, &given, err, errlen)) > 0) {
		if (given.row->scope != OPTION_COMMAND) {
			if (!apply(c, &given, err, errlen))
				return CONFIG_ERROR;
		} else if (!strcmp(given.row->name, "help")) {
			options_help(&config_table, stdout);
			return CONFIG_EXIT;
		} else if (!strcmp(given.row->name, "version")) {
			puts("txdad " TXDA_VERSION);
			return CONFIG_EXIT;
		}
	}
	return r ? CONFIG_ERROR : CONFIG_RUN;
}

static enum config_action load(int argc, char **argv, struct config *ret, char *err, size_t errlen)
{
	enum config_action action = CONFIG_ERROR;

	*ret = (struct config){0};
	snprintf(err, errlen, "out of memory");
	if (read_environment(ret, err, errlen) &&
	    options_initial(&config_table, OPTION_DAEMON, ret, err, errlen) &&
	    options_initial(&config_table, OPTION_EACH_MODEL, &ret->defaults, err, errlen) &&
	    read_config_files(ret, argc, argv, err, errlen))
		action = read_command_line(ret, argc, argv, err, errlen);
	if (action == CONFIG_RUN && !ret->n_models) {
		snprintf(err, errlen, "no model is given: use --model [NAME=]PATH%s",
			 ret->file ? " or put 'model = [NAME=]PATH' into the file" : "");
		action = CONFIG_ERROR;
	}
	for (unsigned i = 0; i < ret->n_models && action == CONFIG_RUN; i++)
		if (!config_settle_chips(&ret->models[i], err, errlen))
			action = CONFIG_ERROR;
	if (action == CONFIG_RUN && !default_socket(ret))
		action = CONFIG_ERROR;
	return action;
}

enum config_action config_load(int argc, char **argv, struct config *ret)
{
	char err[OPTIONS_ERROR];
	enum config_action action = load(argc, argv, ret, err, sizeof(err));

	if (action == CONFIG_ERROR)
		tool_refuse(&(struct tool_line){.program = "txdad"}, "%s", err);
	return action;
}

/* ---- a reload -------------------------------------------------------------------------------- */

bool config_reload(int argc, char **argv, struct config *ret, char *err, size_t errlen)
{
	struct config fresh;

	if (load(argc, argv, &fresh, err, errlen) != CONFIG_RUN) {
		config_free(&fresh);
		*ret = (struct config){0};
		return false;
	}
	*ret = fresh;
	return true;
}

void config_take(struct config *now, const struct config *fresh)
{
	for (unsigned i = 0; i < config_table.n; i++) {
		const struct option_row *row = &config_table.rows[i];

		if (row->scope != OPTION_DAEMON || option_same(row, now, fresh))
			continue;
		if (row->reload == OPTION_RESTART) {
			log_warning("--%s has changed; restart to apply it", row->name);
			continue;
		}
		option_clear(row, now);
		if (!option_copy(row, fresh, now))
			log_error("--%s: out of memory", row->name);
	}
}

void config_log_ignored(const struct config *c)
{
	for (unsigned i = 0; i < config_table.n; i++) {
		const struct option_row *row = &config_table.rows[i];

		if (row->type == &option_ignored && *(const bool *)((const char *)c + row->offset))
			log_info("--%s has no effect: %s", row->name, row->note);
	}
}

static bool is_of_a_model(const struct option_row *row)
{
	return row->scope == OPTION_EACH_MODEL || row->scope == OPTION_ONE_MODEL;
}

bool config_model_same(const struct config_model *a, const struct config_model *b)
{
	for (unsigned i = 0; i < config_table.n; i++) {
		const struct option_row *row = &config_table.rows[i];

		if (is_of_a_model(row) && row->reload == OPTION_LOADS_ANEW &&
		    !option_same(row, a, b))
			return false;
	}
	return !strcmp(a->names[0], b->names[0]) && !strcmp(a->path, b->path);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void clear_model(struct config_model *m)
{
	for (unsigned i = 0; i < m->n_names; i++)
		free(m->names[i]);
	free(m->path);
	options_clear(&config_table, OPTION_EACH_MODEL, m);
	options_clear(&config_table, OPTION_ONE_MODEL, m);
}

struct config_model *config_model_copy(const struct config_model *m)
{
	struct config_model *copy = calloc(1, sizeof(*copy));
	bool ok;

	if (!copy)
		return NULL;
	ok = options_copy(&config_table, OPTION_EACH_MODEL, m, copy);
	ok &= options_copy(&config_table, OPTION_ONE_MODEL, m, copy);
	memcpy(copy->where, m->where, sizeof(copy->where));
	copy->place = m->place;
	copy->path = strdup(m->path);
	ok &= copy->path != NULL;
	for (; ok && copy->n_names < m->n_names; copy->n_names++) {
		copy->names[copy->n_names] = strdup(m->names[copy->n_names]);
		ok = copy->names[copy->n_names] != NULL;
	}
	if (ok)
		return copy;
	config_model_free(copy);
	return NULL;
}

void config_model_free(struct config_model *m)
{
	if (m)
		clear_model(m);
	free(m);
}

void config_free(struct config *c)
{
	for (unsigned i = 0; i < c->n_models; i++)
		clear_model(&c->models[i]);
	options_clear(&config_table, OPTION_EACH_MODEL, &c->defaults);
	options_clear(&config_table, OPTION_DAEMON, c);
	free(c->file);
	*c = (struct config){0};
}
