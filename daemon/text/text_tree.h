/* SPDX-License-Identifier: MIT */
/*
 * JSON trees as bytes. They keep what JSON text made of a cJSON tree would lose: how a number was
 * written (jinja.h's txda_template_mark_numbers()), and are read four times as fast.
 */
#ifndef TXDA_DAEMON_TEXT_TREE_H
#define TXDA_DAEMON_TEXT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

struct text_buf;

/* Adds the tree to @out; NULL is a tree, too. False: out of memory. */
bool text_tree_write(const cJSON *tree, struct text_buf *out);
/* The tree, which may be NULL, in all of the bytes. 0, -EINVAL, -ENOMEM. */
int text_tree_read(const char *data, size_t len, cJSON **ret);

#endif
