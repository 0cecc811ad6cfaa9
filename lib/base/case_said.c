// SPDX-License-Identifier: MIT
/* What a model_info.json says, from the process that parses it to the one that uses it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case_info.h"
#include "io.h"
#include "json_strict.h"
#include "owned.h"
#include "set_error.h"
#include "utf8.h"

static case_info_reader *other_reader;

void case_info_use(case_info_reader *reader)
{
	other_reader = reader;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static const cJSON *find(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(value) ? NULL : value;
}

/* A whole number of at most @max, else 0. */
static uint64_t get_number(const cJSON *object, const char *key, uint64_t max)
{
	const cJSON *item = find(object, key);

	return cJSON_IsNumber(item) && item->valuedouble >= 1 && item->valuedouble <= (double)max
		       ? (uint64_t)item->valuedouble
		       : 0;
}

static void get_text(const cJSON *object, const char *key, char *ret, size_t len)
{
	const char *text = cJSON_GetStringValue(find(object, key));

	snprintf(ret, len, "%s", text ? text : "");
}

static bool lacks_step(const cJSON *programs)
{
	const cJSON *program;

	cJSON_ArrayForEach(program, programs) {
		const char *name = cJSON_GetStringValue(program);

		if (name && !strcmp(name, "step"))
			return false;
	}
	return programs != NULL;
}

/* Names that are too long, and more chips than there can be, are errors of the whole. */
static void get_files(const cJSON *chips, struct case_facts *f)
{
	static const char *const keys[][2] = {{"kcore", "kcore_bytes"}, {"param", "param_bytes"}};
	const size_t most = sizeof(f->file) / sizeof(f->file[0]);
	const cJSON *chip;

	cJSON_ArrayForEach(chip, chips) {
		for (unsigned i = 0; i < 2 && f->n_files < most; i++) {
			const char *name = cJSON_GetStringValue(find(chip, keys[i][0]));

			if (!name || strlen(name) >= sizeof(f->file[0].name))
				continue;
			strcpy(f->file[f->n_files].name, name);
			f->file[f->n_files++].bytes = get_number(chip, keys[i][1], 1ull << 53);
		}
	}
}

static void get_facts(const cJSON *info, struct case_facts *f)
{
	const cJSON *whole = find(info, "whole_experts");

	*f = (struct case_facts){
		.tp = (uint32_t)get_number(info, "tp", UINT32_MAX),
		.vocab = (uint32_t)get_number(info, "vocab", UINT32_MAX),
		.hidden = (uint32_t)get_number(info, "hidden_size", UINT32_MAX),
		.layers = (uint32_t)get_number(info, "layers", UINT32_MAX),
		.experts = cJSON_IsTrue(whole)	  ? CASE_EXPERTS_WHOLE
			   : cJSON_IsFalse(whole) ? CASE_EXPERTS_IN_PARTS
						  : CASE_EXPERTS_UNKNOWN,
		.lacks_step = lacks_step(find(info, "programs")),
	};
	get_text(info, "family", f->family, sizeof(f->family));
	get_text(info, "weights", f->weights, sizeof(f->weights));
	get_text(find(info, "kv"), "dtype", f->kv, sizeof(f->kv));
	get_files(find(info, "chips"), f);
}

/* ---- the whole ------------------------------------------------------------------------------- */

int case_said_take(const cJSON *root, struct case_said *ret, char *err, size_t errlen)
{
	if (!cJSON_IsObject(root))
		return set_error(-EINVAL, err, errlen, "%s is not a JSON object", CASE_INFO_NAME);
	memset(ret, 0, sizeof(*ret));
	get_facts(root, &ret->facts);
	ret->error = case_info_take(root, &ret->info, ret->message, sizeof(ret->message));
	return 0;
}

int case_said_json(const char *text, size_t bytes, cJSON **ret_root, char *err, size_t errlen)
{
	char why[200];

	if (bytes > CASE_INFO_BYTES)
		return set_error(-EFBIG, err, errlen, "%s has %zu bytes; the limit is %zu",
				 CASE_INFO_NAME, bytes, CASE_INFO_BYTES);
	*ret_root = txda_json_parse(text, bytes, why, sizeof(why));
	if (!*ret_root)
		return set_error(-EINVAL, err, errlen, "%s is not JSON: %s", CASE_INFO_NAME, why);
	return 0;
}

int case_said_parse(const char *text, size_t bytes, struct case_said *ret, char *err, size_t errlen)
{
	cJSON *root;
	int r = case_said_json(text, bytes, &root, err, errlen);

	if (r)
		return r;
	r = case_said_take(root, ret, err, errlen);
	cJSON_Delete(root);
	return r;
}

static void end_text(char *text, size_t size)
{
	text[size - 1] = '\0';
	utf8_tame(text, ' ');
}

static void tame_facts(struct case_facts *f)
{
	const size_t most = sizeof(f->file) / sizeof(f->file[0]);

	end_text(f->family, sizeof(f->family));
	end_text(f->weights, sizeof(f->weights));
	end_text(f->kv, sizeof(f->kv));
	if (f->experts > CASE_EXPERTS_WHOLE)
		f->experts = CASE_EXPERTS_UNKNOWN;
	f->lacks_step = f->lacks_step != 0;
	if (f->n_files > most)
		f->n_files = most;
	for (unsigned i = 0; i < f->n_files; i++)
		f->file[i].name[sizeof(f->file[i].name) - 1] = '\0';
}

/* The files of a valid one are those that will be opened. */
static void set_files(struct case_facts *f, const struct case_info *c)
{
	f->n_files = 0;
	for (unsigned i = 0; i < c->tp; i++) {
		strcpy(f->file[f->n_files].name, c->chip[i].kcore);
		f->file[f->n_files++].bytes = c->chip[i].kcore_bytes;
		strcpy(f->file[f->n_files].name, c->chip[i].param);
		f->file[f->n_files++].bytes = c->chip[i].param_bytes;
	}
}

void case_said_tame(struct case_said *said)
{
	tame_facts(&said->facts);
	end_text(said->message, sizeof(said->message));
	if (said->error)
		said->error = said->error == -ENOMEM ? -ENOMEM : -EINVAL;
	else
		said->error = case_info_check(&said->info, said->message, sizeof(said->message));
	if (said->error)
		memset(&said->info, 0, sizeof(said->info));
	else
		set_files(&said->facts, &said->info);
}

static int parse_file(int fd, size_t bytes, struct case_said *ret, char *err, size_t errlen)
{
	char *text = malloc(bytes + 1);
	int r = text ? io_read_all(fd, text, bytes) : -ENOMEM;

	if (r)
		r = set_error(r, err, errlen, "%s: %s", CASE_INFO_NAME,
			      r == -EPIPE ? "it became shorter" : strerror(-r));
	else
		r = case_said_parse(text, bytes, ret, err, errlen);
	free(text);
	return r;
}

int case_said_read(int dir_fd, struct case_said *ret, char *err, size_t errlen)
{
	char why[400];
	struct stat st;
	int fd = owned_open(dir_fd, CASE_INFO_NAME, &st, why, sizeof(why)), r;

	if (fd < 0)
		return set_error(fd, err, errlen, "%s", why);
	if ((uint64_t)st.st_size > CASE_INFO_BYTES)
		r = set_error(-EFBIG, err, errlen, "%s has %lld bytes; the limit is %zu",
			      CASE_INFO_NAME, (long long)st.st_size, CASE_INFO_BYTES);
	else if (other_reader)
		r = other_reader(fd, ret, err, errlen);
	else
		r = parse_file(fd, (size_t)st.st_size, ret, err, errlen);
	close(fd);
	return r;
}
