/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints that were compiled beforehand: the param_dir of a model's config.json leads to a case
 * dir (docs/case-dir.md), which is then used as it is, and no safetensors are needed.
 *
 * The directories and what is in them are hostile. A config.json decides which files are read with
 * the rights of whoever asks, so a case dir counts only if it is the model's owner's own: it, its
 * files and the directories on the way to them belong to the owner of the model's directory or to
 * root, who lets others read them; nobody else may write there. What links lead to is checked, not
 * the links.
 *
 * Errors: 0 or more, or -errno with the reason in err. Threads: any.
 */
#ifndef TXDA_BASE_PARAM_DIR_H
#define TXDA_BASE_PARAM_DIR_H

#include <stdbool.h>
#include <stddef.h>

enum case_experts {
	CASE_EXPERTS_UNKNOWN,
	CASE_EXPERTS_IN_PARTS, /* each chip has a part of each */
	CASE_EXPERTS_WHOLE,    /* each chip has some of them */
};

/* What model_info.json says of how a case dir was compiled; 0 and "": it does not say. */
struct case_facts {
	unsigned tp, vocab, hidden, layers;
	char family[64], weights[16], kv[16];
	enum case_experts experts;
};

/* -ENOENT, -EINVAL: no model_info.json, or not a JSON object. libtxda checks the rest. */
int case_facts_read(const char *case_dir, struct case_facts *ret, char *err, size_t errlen);

/* What somebody asks a compiled model to be; 0, NULL and false: as it is. */
struct case_wishes {
	unsigned tp;
	const char *weights;
	bool kv_int8, whole_experts;
};

/* -EINVAL: only a compiler could grant the wishes; err has what was asked for and what is there. */
int case_facts_fit(const struct case_facts *facts, const char *case_dir,
		   const struct case_wishes *wishes, char *err, size_t errlen);

/*
 * Looks for the case dir of the checkpoint @dir.
 *
 * 1: here it is, by its absolute path without links; its files have the sizes that model_info.json
 * says, and it is of the model that config.json describes, for as many chips. 0: there is none: no
 * param_dir, or one with safetensors or without model_info.json. Whatever is wrong with that is the
 * compiler's to report. -EPERM: it is not the owner's; -EINVAL: it does not fit; -ENAMETOOLONG.
 */
int param_dir_find(const char *dir, char *ret_case, size_t len, struct case_facts *ret_facts,
		   char *err, size_t errlen);

#endif
