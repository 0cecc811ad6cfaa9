/* SPDX-License-Identifier: MIT */
/*
 * Converts tiktoken.model of checkpoints without tokenizer.json (Kimi K2) to the equivalent
 * tokenizer.json. Each line has a token's bytes in base64 and its rank, which is its id. The split
 * expression is part of the code of the class that tokenizer_config.json names, so unknown classes
 * are refused. The last rank is followed by 256 special tokens; those without a name in
 * added_tokens_decoder are <|reserved_token_ID|>.
 *
 * The file is untrusted: base64, ranks, gaps, duplicates and sizes are checked here.
 */
#ifndef TXDA_TEXT_TIKTOKEN_H
#define TXDA_TEXT_TIKTOKEN_H

#include <stddef.h>
#include <cjson/cJSON.h>

/*
 * The result has no merges (bpe_join_words()). @config: tokenizer_config.json, or NULL. 0, or
 * -errno with the message in @err.
 */
int tiktoken_convert(const char *text, size_t size, const cJSON *config, cJSON **ret_json,
		     char *err, size_t errlen);

#endif
