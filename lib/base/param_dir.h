/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints that were compiled beforehand: param_dir in a model's config.json names a case dir
 * (docs/case-dir.md), which is then used as it is, without safetensors.
 *
 * The directories and their contents are untrusted. A config.json decides which files are read with
 * the rights of the reading process, so a case dir is accepted only if it, its files and the
 * directories on the path to them belong to the owner of the model's directory, or to root and are
 * readable by everybody; nobody else may have write access. The targets of links are checked, not
 * the links.
 *
 * Errors: 0 or more, or -errno with the reason in err. Threads: any.
 */
#ifndef TXDA_BASE_PARAM_DIR_H
#define TXDA_BASE_PARAM_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "case_info.h"

/*
 * Reads them from model_info.json (case_said_read()). -ENOENT, -EINVAL: there is none, or it is not
 * a JSON object. libtxda checks the rest.
 */
int case_facts_read(const char *case_dir, struct case_facts *ret, char *err, size_t errlen);

/* The requested form of a compiled model; 0, NULL and false: any. */
struct case_wishes {
	unsigned tp;
	const char *weights;
	bool kv_int8, whole_experts;
};

/*
 * -EINVAL: the case dir does not have the requested form; err names the requested and actual
 * values.
 */
int case_facts_fit(const struct case_facts *facts, const char *case_dir,
		   const struct case_wishes *wishes, char *err, size_t errlen);

enum config_tp {
	CONFIG_TP_ABSENT,
	CONFIG_TP_INVALID, /* tensor_parallel is not what it should be */
	CONFIG_TP_OPEN,	   /* use_tp is not given */
	CONFIG_TP_OFF,
	CONFIG_TP_ON,
};

/*
 * What a config.json says of its case dir. Plain numbers and texts, so that one process can read
 * the file for another one.
 */
struct config_facts {
	char param_dir[4096];			/* "": none that counts */
	char type[64];				/* model_type; "": not given */
	double vocab, hidden, layers, parallel; /* NaN: not given; 0: not a number */
	uint32_t tp;				/* of enum config_tp */
};

#define CONFIG_FACTS_BYTES ((size_t)1 << 20) /* a larger config.json is for the compiler alone */

/*
 * Reads the config.json of @dir in this process. Without one, or if it is not JSON, there is no
 * param_dir: what is wrong with it is the compiler's to report.
 */
void config_facts_read(const char *dir, struct config_facts *ret);
/* Sanitises what another process sent: texts get a NUL, unknown enum values become valid ones. */
void config_facts_tame(struct config_facts *f);

/*
 * Looks for the case dir of the checkpoint @dir, whose config.json says @config.
 *
 * 1: found; *ret_case is its absolute path without links, its files have the sizes stated in
 * model_info.json, and it matches the model and the number of chips in config.json. 0: there is
 * none: no param_dir, or one with safetensors or without model_info.json, whose errors the compiler
 * reports. -EPERM: the owner is not acceptable; -EINVAL: it does not match; -ENAMETOOLONG.
 */
int param_dir_find(const char *dir, const struct config_facts *config, char *ret_case, size_t len,
		   struct case_facts *ret_facts, char *err, size_t errlen);

#endif
