/* SPDX-License-Identifier: MIT */
/* The conversation: an array of messages as in the API, and its file. */
#ifndef TXDA_RUN_CONVERSATION_H
#define TXDA_RUN_CONVERSATION_H

#include <stdbool.h>
#include <cjson/cJSON.h>

/* @system: instructions that come first; NULL: none. */
cJSON *conversation_new(const char *system);
void conversation_add(cJSON *messages, const char *role, const char *content);
/*
 * The picture in a file as a part of a message's content. NULL after an error, which was reported.
 */
cJSON *conversation_picture(const char *path);
/* The content of the last message becomes @parts, followed by its text, if any. */
void conversation_show(cJSON *messages, cJSON *parts);
void conversation_drop_last(cJSON *messages);
/* The instructions; NULL: none. */
const char *conversation_system(const cJSON *messages);
void conversation_set_system(cJSON *messages, const char *system);

/* Writes a file for its owner only; false after an error, which was reported on stderr. */
bool conversation_save(const cJSON *messages, const char *path);
/* Reads one; NULL after an error, which was reported on stderr. */
cJSON *conversation_load(const char *path);

#endif
