/* SPDX-License-Identifier: MIT */
/*
 * What txdad-text --case writes for the daemon: what a model_info.json says, without pointers. The
 * daemon checks all of it.
 */
#ifndef TXDA_TEXT_CASE_REPLY_H
#define TXDA_TEXT_CASE_REPLY_H

#include "case_info.h"
#include "tower.h"

struct case_reply {
	int32_t error; /* -errno: it is no JSON object and the like; then only message is valid */
	char message[300];
	struct case_said said;
	uint32_t sees;		 /* it has a program `vision` */
	int32_t tower_error;	 /* -EINVAL: tower is not valid */
	char tower_message[200]; /* why */
	struct image_tower tower;
};

#endif /* TXDA_TEXT_CASE_REPLY_H */
