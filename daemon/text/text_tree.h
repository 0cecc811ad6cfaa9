/* SPDX-License-Identifier: MIT */
/*
 * Serialised JSON trees. Unlike JSON text they preserve how numbers were written (jinja.h's
 * txda_template_mark_numbers()), and they are four times as fast to read.
 */
#ifndef TXDA_TEXT_TEXT_TREE_H
#define TXDA_TEXT_TEXT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

struct text_buf;

/* Appends the tree to @out; NULL is a valid tree. False: out of memory. */
bool text_tree_write(const cJSON *tree, struct text_buf *out);
/* Parses a tree, which may be NULL, that takes up all of the bytes. 0, -EINVAL, -ENOMEM. */
int text_tree_read(const char *data, size_t len, cJSON **ret);

#endif
