// SPDX-License-Identifier: MIT
#include "param_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_strict.h"
#include "owned.h"
#include "text_files.h"

static const cJSON *find(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(value) ? NULL : value;
}

static void get_text(const cJSON *object, const char *key, char *ret, size_t len)
{
	const char *text = cJSON_GetStringValue(find(object, key));

	snprintf(ret, len, "%s", text ? text : "");
}

/* ---- what a case dir says -------------------------------------------------------------------- */

int case_facts_read(const char *case_dir, struct case_facts *ret, char *err, size_t errlen)
{
	int dir = open(case_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), r;
	struct case_said *said = malloc(sizeof(*said));
	char why[400];

	r = dir < 0 ? -errno : said ? 0 : -ENOMEM;
	if (r)
		snprintf(why, sizeof(why), "%s", strerror(-r));
	else
		r = case_said_read(dir, said, why, sizeof(why));
	if (r)
		snprintf(err, errlen, "%.400s: %s", case_dir, why);
	else
		*ret = said->facts;
	free(said);
	if (dir >= 0)
		close(dir);
	return r;
}

int case_facts_fit(const struct case_facts *f, const char *case_dir, const struct case_wishes *w,
		   char *err, size_t errlen)
{
	static const char unknown[] = "(unknown)";

	if (w->tp && f->tp && w->tp != f->tp)
		snprintf(err, errlen, "%.300s was compiled for %u chip%s, not %u", case_dir, f->tp,
			 f->tp > 1 ? "s" : "", w->tp);
	else if (w->weights && *w->weights && strcmp(w->weights, "keep") &&
		 strcmp(w->weights, f->weights))
		snprintf(err, errlen, "%.300s was compiled with weights of the type %s, not %.15s",
			 case_dir, *f->weights ? f->weights : unknown, w->weights);
	else if (w->kv_int8 && strcmp(f->kv, "int8"))
		snprintf(err, errlen,
			 "%.300s was compiled with a KV cache of the type %s, not int8", case_dir,
			 *f->kv ? f->kv : unknown);
	else if (w->whole_experts && f->experts != CASE_EXPERTS_WHOLE)
		snprintf(err, errlen, "%.300s was not compiled with whole experts on the chips",
			 case_dir);
	else
		return 0;
	return -EINVAL;
}

/* ---- what a config.json says ----------------------------------------------------------------- */

static double get_value(const cJSON *object, const char *key)
{
	const cJSON *item = find(object, key);

	return !item ? NAN : cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static enum config_tp get_tp(const cJSON *tp)
{
	const cJSON *use = find(tp, "use_tp");

	if (!tp)
		return CONFIG_TP_ABSENT;
	if (!cJSON_IsObject(tp) || (use && !cJSON_IsBool(use)))
		return CONFIG_TP_INVALID;
	return !use ? CONFIG_TP_OPEN : cJSON_IsTrue(use) ? CONFIG_TP_ON : CONFIG_TP_OFF;
}

/* A key that occurs twice is the compiler's to refuse. */
static void get_param_dir(const cJSON *config, struct config_facts *f)
{
	const char *name = cJSON_GetStringValue(find(config, "param_dir"));
	const cJSON *item;
	unsigned n = 0;

	cJSON_ArrayForEach(item, config)
		n += item->string && !strcmp(item->string, "param_dir");
	if (name && n == 1 && strlen(name) < sizeof(f->param_dir))
		snprintf(f->param_dir, sizeof(f->param_dir), "%s", name);
}

void config_facts_read(const char *dir, struct config_facts *ret)
{
	char path[PATH_MAX];
	cJSON *config = NULL;

	*ret = (struct config_facts){.vocab = NAN, .hidden = NAN, .layers = NAN, .parallel = NAN};
	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", dir) >= sizeof(path) ||
	    txda_json_load(path, CONFIG_FACTS_BYTES, &config, NULL, 0))
		return;
	get_param_dir(config, ret);
	get_text(config, "model_type", ret->type, sizeof(ret->type));
	ret->vocab = get_value(config, "vocab_size");
	ret->hidden = get_value(config, "hidden_size");
	ret->layers = get_value(config, "num_hidden_layers");
	ret->parallel = get_value(find(config, "tensor_parallel"), "parallel_size");
	ret->tp = get_tp(find(config, "tensor_parallel"));
	cJSON_Delete(config);
}

void config_facts_tame(struct config_facts *f)
{
	f->param_dir[sizeof(f->param_dir) - 1] = '\0';
	f->type[sizeof(f->type) - 1] = '\0';
	if (f->tp > CONFIG_TP_ON)
		f->tp = CONFIG_TP_INVALID;
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* Whether it belongs to the owner, or to root and is readable by everybody. */
static int check_owner(const char *path, uid_t owner, char *err, size_t errlen)
{
	struct stat st;
	bool is_dir;

	if (stat(path, &st)) {
		int error = -errno;

		snprintf(err, errlen, "%.400s: %s", path, strerror(-error));
		return error;
	}
	if (owned_check(&st, owner, path, err, errlen))
		return -EPERM;
	is_dir = S_ISDIR(st.st_mode);
	/* In a sticky directory nobody can replace files of others. */
	if ((st.st_mode & S_IWOTH) && !(is_dir && (st.st_mode & S_ISVTX))) {
		snprintf(err, errlen,
			 "%.300s can be written by everybody (mode %04o); param_dir of config.json "
			 "must not lead there",
			 path, st.st_mode & 07777u);
		return -EPERM;
	}
	return 0;
}

/* Whether @path is @below or above it; both are absolute, without links. */
static bool is_above(const char *path, const char *below)
{
	size_t n = strlen(path);

	return !path[1] || (!strncmp(path, below, n) && (!below[n] || below[n] == '/'));
}

/* Checks @path and the directories above it, except those that are also above @from. */
static int check_way(const char *from, const char *path, uid_t owner, char *err, size_t errlen)
{
	char part[PATH_MAX];
	int r;

	snprintf(part, sizeof(part), "%s", path);
	do {
		char *slash = strrchr(part, '/');

		r = check_owner(part, owner, err, errlen);
		slash[slash == part] = '\0';
	} while (!r && !is_above(part, from));
	return r;
}

/* ---- its files ------------------------------------------------------------------------------- */

/* Whether a path contains "..". */
static bool has_parent_part(const char *path)
{
	for (;; path++) {
		size_t n = strcspn(path, "/");

		if (n == 2 && !memcmp(path, "..", 2))
			return true;
		path += n;
		if (!*path)
			return false;
	}
}

/* @bytes 0: any size. *ret_there, if given: the file may be missing. */
static int check_file(const char *dir, const char *name, uint64_t bytes, uid_t owner,
		      bool *ret_there, char *err, size_t errlen)
{
	char path[PATH_MAX], real[PATH_MAX];
	struct stat st;
	int error = 0;

	if (has_parent_part(name) ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path)) {
		snprintf(err, errlen, "%.300s: \"%.100s\" is not a file below it", dir, name);
		return -EINVAL;
	}
	if (!realpath(path, real) || stat(real, &st))
		error = -errno;
	if (ret_there)
		*ret_there = error != -ENOENT;
	if (error == -ENOENT && ret_there)
		return 0;
	if (error) {
		snprintf(err, errlen, "%.400s: %s", path, strerror(-error));
		return error;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(err, errlen, "%.400s is not a regular file", path);
		return -EINVAL;
	}
	if (bytes && (uint64_t)st.st_size != bytes) {
		snprintf(err, errlen, "%.300s has %lld bytes; model_info.json says %llu", path,
			 (long long)st.st_size, (unsigned long long)bytes);
		return -EINVAL;
	}
	return check_way(dir, real, owner, err, errlen);
}

/* Checks the files that a server reads for the text side. */
static int check_texts(const char *dir, uid_t owner, char *err, size_t errlen)
{
	char **more;
	int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), n, r = 0;
	bool there;

	if (dirfd < 0) {
		r = -errno;
		snprintf(err, errlen, "%.400s: %s", dir, strerror(-r));
		return r;
	}
	n = text_files_templates(dirfd, &more, err, errlen);
	close(dirfd);
	for (const char *const *name = text_files; *name && n >= 0 && !r; name++)
		r = check_file(dir, *name, 0, owner, &there, err, errlen);
	for (int i = 0; i < n; i++) {
		if (!r)
			r = check_file(dir, more[i], 0, owner, &there, err, errlen);
		free(more[i]);
	}
	free(more);
	return n < 0 ? n : r;
}

static int check_files(const char *case_dir, const struct case_facts *f, uid_t owner, char *err,
		       size_t errlen)
{
	int r = 0;

	/* libtxda reports what is wrong with a model_info.json that does not name them. */
	for (unsigned i = 0; i < f->n_files && !r; i++)
		r = check_file(case_dir, f->file[i].name, f->file[i].bytes, owner, NULL, err,
			       errlen);
	return r ? r : check_texts(case_dir, owner, err, errlen);
}

/* ---- whether it is of this model ------------------------------------------------------------- */

static int check_tp(const struct config_facts *config, const struct case_facts *f,
		    const char *case_dir, char *err, size_t errlen)
{
	switch (config->tp) {
	case CONFIG_TP_INVALID:
		snprintf(err, errlen,
			 "config.json: tensor_parallel is not an object with use_tp "
			 "true or false");
		return -EINVAL;
	case CONFIG_TP_OFF:
		if (f->tp < 2)
			return 0;
		snprintf(err, errlen,
			 "config.json: tensor_parallel.use_tp is false, but its param_dir %.300s "
			 "was compiled for %u chips",
			 case_dir, f->tp);
		return -EINVAL;
	case CONFIG_TP_ON:
		if (config->parallel == (double)f->tp)
			return 0;
		snprintf(err, errlen,
			 "config.json: tensor_parallel.parallel_size is %.10g, but its param_dir "
			 "%.300s was compiled for %u chip%s",
			 isnan(config->parallel) ? 0 : config->parallel, case_dir, f->tp,
			 f->tp == 1 ? "" : "s");
		return -EINVAL;
	default: return 0;
	}
}

static int check_fit(const struct config_facts *config, const struct case_facts *f,
		     const char *case_dir, char *err, size_t errlen)
{
	const struct {
		const char *key;
		double config;
		unsigned value;
	} sizes[] = {
		{"vocab_size", config->vocab, f->vocab},
		{"hidden_size", config->hidden, f->hidden},
		{"num_hidden_layers", config->layers, f->layers},
	};

	if (f->lacks_step) {
		snprintf(err, errlen, "config.json: its param_dir %.300s has no program \"step\"",
			 case_dir);
		return -EINVAL;
	}
	if (*config->type && *f->family && strcmp(config->type, f->family)) {
		snprintf(err, errlen,
			 "config.json: model_type is \"%.60s\", but its param_dir %.300s is of the "
			 "family %s",
			 config->type, case_dir, f->family);
		return -EINVAL;
	}
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (isnan(sizes[i].config) || !sizes[i].value ||
		    sizes[i].config == (double)sizes[i].value)
			continue;
		snprintf(err, errlen,
			 "config.json: %s is %.17g, but in its param_dir %.300s it is %u",
			 sizes[i].key, sizes[i].config, case_dir, sizes[i].value);
		return -EINVAL;
	}
	return check_tp(config, f, case_dir, err, errlen);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool has(const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !lstat(path, &st);
}

/* The target of param_dir, if that is a case dir. */
static bool find_case(const char *dir, const char *name, char *real)
{
	char path[PATH_MAX];

	if (!*name || has_parent_part(name))
		return false;
	if ((size_t)snprintf(path, sizeof(path), "%s%s%s", *name == '/' ? "" : dir,
			     *name == '/' ? "" : "/", name) >= sizeof(path) ||
	    !realpath(path, real))
		return false;
	return has(real, "model_info.json") && !has(real, "model.safetensors") &&
	       !has(real, "model.safetensors.index.json");
}

static int check_case(const char *dir, const struct config_facts *config, const char *case_dir,
		      struct case_facts *ret_facts, char *err, size_t errlen)
{
	struct stat st;
	int r;

	if (stat(dir, &st)) {
		r = -errno;
		snprintf(err, errlen, "%.400s: %s", dir, strerror(-r));
		return r;
	}
	r = check_way(dir, case_dir, st.st_uid, err, errlen);
	if (!r)
		r = check_texts(dir, st.st_uid, err, errlen);
	if (!r)
		r = check_file(case_dir, "model_info.json", 0, st.st_uid, NULL, err, errlen);
	if (!r)
		r = case_facts_read(case_dir, ret_facts, err, errlen);
	if (!r)
		r = check_fit(config, ret_facts, case_dir, err, errlen);
	return r ? r : check_files(case_dir, ret_facts, st.st_uid, err, errlen);
}

int param_dir_find(const char *dir, const struct config_facts *config, char *ret_case, size_t len,
		   struct case_facts *ret_facts, char *err, size_t errlen)
{
	char full[PATH_MAX], real[PATH_MAX];
	int r;

	if (!realpath(dir, full) || !find_case(full, config->param_dir, real))
		return 0;
	r = check_case(full, config, real, ret_facts, err, errlen);
	if (!r && strlen(real) >= len) {
		snprintf(err, errlen, "%.400s: %zu bytes; the limit is %zu", real, strlen(real),
			 len - 1);
		r = -ENAMETOOLONG;
	}
	if (r)
		return r;
	memcpy(ret_case, real, strlen(real) + 1);
	return 1;
}
