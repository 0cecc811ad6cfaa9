/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.model (SentencePiece's protocol buffer) for checkpoints that ship no tokenizer.json:
 * the same tokeniser in the words of a tokenizer.json, for the loader of those. BPE models with or
 * without byte fallback are known; others give an error that names the type.
 *
 * The file is hostile input: lengths, types, UTF-8 and duplicate pieces are checked here, the rest
 * by the loader.
 */
#ifndef TXDA_TEXT_SENTENCEPIECE_H
#define TXDA_TEXT_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

/* @config: tokenizer_config.json (add_bos_token, add_eos_token) or NULL. 0, or -errno with words in
 * @err. */
int sentencepiece_convert(const uint8_t *data, size_t size, const cJSON *config, cJSON **ret_json,
			  char *err, size_t errlen);
/* From the file @path; -ENOENT when there is none. */
int sentencepiece_load(const char *path, const cJSON *config, cJSON **ret_json, char *err,
		       size_t errlen);

#endif
