/* SPDX-License-Identifier: MIT */
/*
 * Converts tokenizer.model (SentencePiece's protocol buffer) of checkpoints without tokenizer.json
 * to the equivalent tokenizer.json. BPE models with or without byte fallback are supported, whose
 * normalisation rule is identity and that mark spaces at the start of words; others give an error
 * that names the setting.
 *
 * The file is untrusted: lengths, types, UTF-8 and duplicate pieces are checked here, the rest by
 * the loader of tokenizer.json.
 */
#ifndef TXDA_TEXT_SENTENCEPIECE_H
#define TXDA_TEXT_SENTENCEPIECE_H

#include <stddef.h>
#include <cjson/cJSON.h>

/*
 * @config: tokenizer_config.json (add_bos_token, add_eos_token) or NULL. 0, or -errno with the
 * message in @err.
 */
int sentencepiece_convert(const char *text, size_t size, const cJSON *config, cJSON **ret_json,
			  char *err, size_t errlen);

#endif
