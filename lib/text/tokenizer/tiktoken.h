/* SPDX-License-Identifier: MIT */
/*
 * tiktoken.model, for checkpoints that ship no tokenizer.json (Kimi K2): lines of a token's bytes in
 * base64 and its rank, which is its id. The split expression is not in the file: the class that
 * tokenizer_config.json names has it in its code, so classes that are not known are refused. Behind
 * the last rank come 256 special tokens, those that added_tokens_decoder has no name for as
 * <|reserved_token_ID|>.
 *
 * The file is hostile input: base64, ranks, gaps, duplicates and sizes are checked here.
 */
#ifndef TXDA_TEXT_TIKTOKEN_H
#define TXDA_TEXT_TIKTOKEN_H

#include <stddef.h>
#include <cjson/cJSON.h>

/*
 * The same tokeniser in the words of a tokenizer.json, for the loader of those; it has no merges
 * (tokenizer_join_by_rank()). @config: tokenizer_config.json, or NULL. 0, or -errno with words in
 * @err.
 */
int tiktoken_convert(const char *text, size_t size, const cJSON *config, cJSON **ret_json,
		     char *err, size_t errlen);
/* From the file @path; -ENOENT when there is none. */
int tiktoken_load(const char *path, const cJSON *config, cJSON **ret_json, char *err,
		  size_t errlen);

#endif
