// SPDX-License-Identifier: MIT
/*
 * Replies that consist of messages on channels (gpt-oss): each begins with a header with its
 * channel and recipient, up to <|message|>, and ends with <|end|>, <|call|> or <|return|>. The
 * channel "analysis" is reasoning, a message to functions.NAME is a call, everything else is
 * content.
 */
#include <errno.h>
#include <string.h>

#include "reply_internal.h"

#define MAX_HEADER 1024

/* The text after @word in the header, up to a space or a mark. */
static size_t word_behind(const char *header, size_t n, const char *word, const char **ret)
{
	const char *at = memmem(header, n, word, strlen(word));
	size_t len = 0;

	if (!at)
		return 0;
	at += strlen(word);
	while (at + len < header + n && !reply_is_space(at[len]) && at[len] != '<')
		len++;
	*ret = at;
	return len;
}

/* A reply that does not begin with a header is content. */
static bool is_header(const struct reply_parser *p)
{
	static const char *const beginnings[] = {"<|channel|>", "<|start|>", "<|message|>",
						 "<|constrain|>", "to="};
	size_t first = 0, left;

	while (first < p->pending.len && reply_is_space(p->pending.data[first]))
		first++;
	left = p->pending.len - first;
	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
		size_t len = strlen(beginnings[i]);

		if (!memcmp(p->pending.data + first, beginnings[i], left < len ? left : len))
			return true;
	}
	return false;
}

static int part_header(struct reply_parser *p, bool final)
{
	static const char mark[] = "<|message|>";
	const char *channel = "", *to = "";
	size_t n, n_channel, n_to;
	bool found;
	int error = 0;

	n = reply_find(p, mark, &found);
	if (final && !found && !p->messages && is_header(p) &&
	    reply_is_cut_mark(p, p->pending.len)) {
		p->pending.len = 0;
		return 0;
	}
	if (n > MAX_HEADER || (!p->messages && (!is_header(p) || (final && !found)))) {
		p->message = MESSAGE_CONTENT;
		p->messages = true;
		p->part = PART_MESSAGE;
		return 1;
	}
	if (!found) {
		if (final)
			p->pending.len = 0; /* cut off */
		return 0;
	}
	n_channel = word_behind(p->pending.data, n, "<|channel|>", &channel);
	n_to = word_behind(p->pending.data, n, "to=", &to);
	p->message = n_channel == 8 && !memcmp(channel, "analysis", 8) ? MESSAGE_REASONING
								       : MESSAGE_CONTENT;
	if (n_to > 10 && n_to <= REPLY_MAX_NAME && !memcmp(to, "functions.", 10) &&
	    p->options.tools == REPLY_HARMONY) {
		p->message = MESSAGE_CALL;
		p->index = p->calls;
		error = reply_on_call(p, &(struct reply_call){.index = p->index,
							      .name = to + 10,
							      .name_len = n_to - 10});
	} else if (n_to) {
		/* Addressed to a tool that the request does not have: not for the client. */
		p->message = MESSAGE_REASONING;
	}
	reply_drop(p, n + strlen(mark));
	p->messages = true;
	p->trim = true;
	p->part = PART_MESSAGE;
	return error ? error : 1;
}

static int give_message(struct reply_parser *p, size_t n)
{
	bool reasoning = p->message == MESSAGE_REASONING;
	int error = 0;

	if (p->message == MESSAGE_CALL) {
		error = reply_on_arguments(p, p->pending.data, n);
		reply_drop(p, n);
		return error;
	}
	/* Consecutive messages of one kind are paragraphs. */
	if (n && p->trim && p->had[reasoning])
		error = reasoning ? p->sink.reasoning(p->sink.arg, "\n", 1)
				  : p->sink.content(p->sink.arg, "\n", 1);
	if (n) {
		p->trim = false;
		p->had[reasoning] = true;
	}
	return error ? error : reply_emit(p, reasoning, n);
}

static int part_message(struct reply_parser *p, bool final)
{
	static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
					   "<|channel|>"};
	size_t n = p->pending.len, len = 0;
	bool any = false;
	int error;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		bool found;
		size_t at = reply_find(p, ends[i], &found);

		if (at < n) {
			n = at;
			any = found;
			/* These begin the next header. */
			len = i < 3 ? strlen(ends[i]) : 0;
		}
	}
	/*
	 * A mark that was cut off is not content, but a single bracket is. After arguments it is
	 * dropped.
	 */
	if (final && !any && n + 1 == p->pending.len && p->message != MESSAGE_CALL)
		n = p->pending.len;
	error = give_message(p, n);
	if (final && !any)
		p->pending.len = 0;
	if (error || !any)
		return error;
	reply_drop(p, len);
	p->part = PART_HEADER;
	return 1;
}

int reply_step_harmony(struct reply_parser *p, bool final)
{
	return p->part == PART_HEADER ? part_header(p, final) : part_message(p, final);
}
