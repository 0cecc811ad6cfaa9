/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint of DeepSeek-V3's or GLM-4.5's shape, scaled down, whose layer that predicts further tokens is
 * mostly right: a model of one layer with embeddings of length one, and behind it that layer once
 * more, which joins a token's embedding with nothing of the hidden state before it. All that it
 * lacks of the model is the first token.
 */
#ifndef TXDA_TESTS_V3_CHECKPOINT_H
#define TXDA_TESTS_V3_CHECKPOINT_H

/* Makes directory @dir from the golden fixture @fixture (deepseek3, glm4moe-mtp); exits on errors. */
void v3_checkpoint_make(const char *fixture, const char *dir);

#endif
