/* SPDX-License-Identifier: MIT */
/*
 * The protocol between the daemon and a model's text process (txdad-text), over sockets. A message
 * is one of these structs followed by parts, which are ranges of its bytes. The receiver copies a
 * message into its own memory before it interprets it (by read(2)), and checks its parts against
 * its size.
 *
 *	daemon               txdad-text            lanes (its children)
 *	  |---- control socket ----|                     |     a lane anew: struct text_lane, and
 *	  |                        |---- fork ---------->|     its socket as a descriptor
 *	  |<--- struct text_loaded |                     |     once, when the model is read
 *	  |                                              |
 *	  |<----------------------------------- a byte --|     when it is ready, by which the
 *	  |                                              |     kernel says which process it is
 *	  |---- the lane's socket: struct text_job ----->|
 *	  |<------------------------ struct text_done ---|     or the end, if it was killed
 *
 * The model is read once, so all lanes have the same data, and a new lane costs only a fork. A lane
 * does one job at a time.
 *
 * Why sockets: a thread that waits for a lane is told at once when the lane dies, the bytes of a
 * message cannot change after they were checked, and apart from waking the other process, which any
 * mechanism needs, a message of usual size costs a few microseconds (bench_text_process).
 */
#ifndef TXDA_TEXT_TEXT_MESSAGE_H
#define TXDA_TEXT_TEXT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#define TEXT_MESSAGE_MAX (1u << 30)
#define TEXT_STOP_TOKENS 24
#define TEXT_JOB_PARTS	 3
#define TEXT_LANES	 15 /* per process: one for each thread of the daemon that may have a job */
#define TEXT_LANES_READY 3  /* that are started before there are jobs for them */

/* A range of the message's bytes, starting at @offset. */
struct text_part {
	uint32_t offset, length;
};

/* Whether the part lies after the message's struct, which has @head bytes. */
static inline bool text_part_fits(const struct text_part *p, uint32_t head, uint32_t size)
{
	return p->offset >= head && p->offset <= size && p->length <= size - p->offset;
}

/* To the process: (re)start lane @index, with the socket that is passed along. */
struct text_lane {
	uint32_t index;
};

/* From the process, when it has read the model, or failed to. */
struct text_loaded {
	uint32_t size; /* of the whole message */
	int32_t error; /* -errno; then only message is valid */
	char message[512];
	uint32_t has_chat;
	char chat_error[256];	   /* reason why there is no template */
	uint32_t calls, reasoning; /* output formats for the model: reply_tools, reply_reasoning */
	/* generation_config.json; NaN: not given */
	double temperature, top_p, min_p, repetition_penalty, top_k;
	uint32_t n_stop_tokens;
	int32_t stop_tokens[TEXT_STOP_TOKENS];
	uint8_t files[32];	 /* SHA-256 of all that it read, templates included */
	char image_error[256];	 /* reason why there is no image processor */
	struct text_part tables; /* txda_tokenizer_export() */
	struct text_part images; /* image_processor_export(); empty: no images */
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
	uint32_t max_ids; /* return only their number, and the ids if they are no more than this */
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
	int32_t error; /* 0, or -errno; -EPROTO: message is the error of the template or grammar */
	uint32_t flags;
	uint32_t n; /* ids */
	/* Of a chat without error: variables that the template does not mention, one a line. */
	char message[1024];
	struct text_part part; /* the ids; a grammar, grammar_export() */
};

#endif
