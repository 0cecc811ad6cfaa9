/* SPDX-License-Identifier: MIT */
/*
 * The border between the daemon and a model's text process (txdad-text): what goes over the sockets
 * between them. A message is one of these structs and, behind it, parts: ranges of its bytes. Both
 * sides copy a message into memory of their own before they look at it (it comes by read(2)), and
 * check its parts against its size.
 *
 *	daemon               txdad-text            lanes (its children)
 *	  |---- control socket ----|                     |     a lane anew: struct text_lane, and
 *	  |                        |---- fork ---------->|     its socket as a descriptor
 *	  |<--- struct text_loaded |                     |     once, when the model is read
 *	  |                                              |
 *	  |---- the lane's socket: struct text_job ----->|
 *	  |<------------------------ struct text_done ---|     or the end, if it was killed
 *
 * The model is read once, so all lanes know the same, and a new lane costs a fork. A lane does one
 * job at a time.
 *
 * Why sockets: who waits for a lane learns at once that it died, a message's bytes cannot change
 * after they were checked, and beside the wake of the other process, which any way of waiting costs,
 * a message of usual size costs a few microseconds (bench_text_process).
 */
#ifndef TXDA_DAEMON_TEXT_MESSAGE_H
#define TXDA_DAEMON_TEXT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#define TEXT_MESSAGE_MAX (1u << 30)
#define TEXT_STOP_TOKENS 24
#define TEXT_JOB_PARTS	 3
#define TEXT_LANES	 3 /* of a process: as many as threads of the daemon that may have a job */

/* Bytes of the message from @offset on. */
struct text_part {
	uint32_t offset, length;
};

/* Whether the part lies behind the message's struct, which has @head bytes. */
static inline bool text_part_fits(const struct text_part *p, uint32_t head, uint32_t size)
{
	return p->offset >= head && p->offset <= size && p->length <= size - p->offset;
}

/* To the process: begin lane @index anew, with the socket that comes along. */
struct text_lane {
	uint32_t index;
};

/* From the process, when it has read the model, or failed to. */
struct text_loaded {
	uint32_t size; /* of the message */
	int32_t error; /* -errno; then message says why, and nothing else counts */
	char message[512];
	uint32_t has_chat;
	char chat_error[256];	   /* why it has none */
	uint32_t calls, reasoning; /* what it makes the model write: reply_tools, reply_reasoning */
	/* generation_config.json; a NaN: it does not say */
	double temperature, top_p, min_p, repetition_penalty, top_k;
	uint32_t n_stop_tokens;
	int32_t stop_tokens[TEXT_STOP_TOKENS];
	uint8_t files[32];	 /* SHA-256 of all that it read: templates show in nothing else */
	struct text_part tables; /* txda_tokenizer_export() */
};

enum text_job_kind {
	TEXT_JOB_ENCODE,  /* part 0: a text */
	TEXT_JOB_CHAT,	  /* parts 0 to 2: trees of the messages, the tools, the variables */
	TEXT_JOB_GRAMMAR, /* part 0: a tree, of a form or of tools; 1: the white space; 2: a name */
};

enum { /* of jobs */
       TEXT_ADD_SPECIAL = 1,
       TEXT_ADD_GENERATION_PROMPT = 2,
       TEXT_CONTINUE_FINAL = 4,
       TEXT_STRICT = 8,
       TEXT_COMPACT = 16,
       TEXT_PARALLEL_TOOLS = 32,
       TEXT_HAS_WHITESPACE = 64,
};

struct text_job {
	uint32_t size;
	uint32_t kind;
	uint32_t flags;
	uint32_t
		max_ids; /* the answer tells how many there are, and has them if they are no more */
	uint32_t reasoning; /* of enum reply_reasoning */
	/* TEXT_JOB_GRAMMAR: of enum api_form, api_tool_choice, reply_tools */
	uint32_t form, tool_choice, tools;
	struct text_part parts[TEXT_JOB_PARTS];
};

enum { /* of answers */
       TEXT_ENDS_IN_THINK = 1,
       TEXT_ENDS_BEHIND_THINK = 2,
};

struct text_done {
	uint32_t size;
	int32_t error; /* 0, or -errno; -EPROTO: message is the template's or grammar's refusal */
	uint32_t flags;
	uint32_t n; /* ids */
	char message[1024];
	struct text_part part; /* the ids; a grammar, grammar_export() */
};

#endif
