/* SPDX-License-Identifier: MIT */
/*
 * The work of a model's text process: reads the model's files, then does jobs (text_message.h).
 * Sockets and confinement are in main.c.
 *
 * One thread.
 */
#ifndef TXDA_TEXT_WORK_H
#define TXDA_TEXT_WORK_H

#include "api_params.h"
#include "grammar_build.h"
#include "reply_parser.h"
#include "text_buf.h"
#include "text_message.h"

struct image_tower;
struct txda_chat_template;
struct txda_tokenizer;

struct text_model {
	struct txda_tokenizer *tokenizer;
	struct txda_chat_template *chat; /* NULL: there is none */
};

/*
 * Reads the model in @dir; @tower: its image encoder, NULL: none. *out is the message for the
 * daemon, also on errors. 0, -ENOMEM.
 */
int text_model_read(struct text_model *m, const char *dir, const struct image_tower *tower,
		    struct text_buf *out);

/*
 * Does one job: *out is the answer. -EINVAL: the message is invalid. -ENOMEM: there was not even
 * memory for the answer.
 */
int text_work(const struct text_model *m, const char *job, size_t size, struct text_buf *out);

/*
 * form_grammar.c: defines rules for the format that @p requests, or for calls of its tools, with
 * channels if the model reasons on one; *ret_root is the root rule. Errors are the builder's.
 */
void form_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  enum reply_reasoning reasoning, const struct txda_tokenizer *tokenizer,
		  uint32_t *ret_root);
/* tool_grammar.c: only the calls. */
void tool_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  const struct txda_tokenizer *tokenizer, uint32_t *ret_root);
/* A text in which the marks of @format are control tokens if the vocabulary has them. NULL: "". */
struct grammar_piece marked_text(struct grammar_builder *b, const struct txda_tokenizer *tokenizer,
				 const struct reply_format *format, const char *text);

#endif
