// SPDX-License-Identifier: MIT
#include "stop.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
	char *text;
	uint16_t *border;    /* [len]: longest proper border of the prefix */
	unsigned len, state; /* state: pattern bytes that the text ends in */
};

struct stop_matcher {
	unsigned n;
	struct pattern patterns[STOP_MAX_STRINGS];
	char *buf;		 /* text held back, then new text */
	size_t held, given, cap; /* buf[0, given): released; then held: held back */
	unsigned match_len;	 /* 0: no match yet */
};

static int pattern_init(struct pattern *p, const char *text)
{
	unsigned k = 0;

	p->len = (unsigned)strlen(text);
	p->text = malloc(p->len + 1);
	p->border = calloc(p->len, sizeof(*p->border));
	if (!p->text || !p->border)
		return -ENOMEM;
	memcpy(p->text, text, p->len + 1);
	for (unsigned i = 1; i < p->len; i++) {
		while (k && text[i] != text[k])
			k = p->border[k - 1];
		if (text[i] == text[k])
			k++;
		p->border[i] = (uint16_t)k;
	}
	return 0;
}

struct stop_matcher *stop_new(const char *const *strings, unsigned n)
{
	struct stop_matcher *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	for (; m->n < n && m->n < STOP_MAX_STRINGS; m->n++) {
		if (pattern_init(&m->patterns[m->n], strings[m->n])) {
			m->n++;
			stop_free(m);
			return NULL;
		}
	}
	return m;
}

void stop_free(struct stop_matcher *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n; i++) {
		free(m->patterns[i].text);
		free(m->patterns[i].border);
	}
	free(m->buf);
	free(m);
}

/* Advances by one byte; returns the length of the longest pattern completed, or 0. */
static unsigned advance(struct stop_matcher *m, char c)
{
	unsigned complete = 0;

	for (unsigned i = 0; i < m->n; i++) {
		struct pattern *p = &m->patterns[i];

		while (p->state && p->text[p->state] != c)
			p->state = p->border[p->state - 1];
		if (p->text[p->state] == c)
			p->state++;
		if (p->state == p->len) {
			if (p->len > complete)
				complete = p->len;
			p->state = p->border[p->state - 1];
		}
	}
	return complete;
}

int stop_feed(struct stop_matcher *m, const char *text, size_t len, const char **ret_text,
	      size_t *ret_len)
{
	size_t total = m->held + len, end = 0, hold = 0;

	*ret_text = "";
	*ret_len = 0;
	if (m->match_len)
		return 1;
	if (!m->n) {
		*ret_text = text;
		*ret_len = len;
		return 0;
	}
	if (total < len || total > m->cap) {
		char *buf = total < len ? NULL : malloc(total * 2);

		if (!buf)
			return -ENOMEM;
		if (m->held)
			memcpy(buf, m->buf + m->given, m->held);
		free(m->buf);
		m->buf = buf;
		m->cap = total * 2;
	} else if (m->held) {
		memmove(m->buf, m->buf + m->given, m->held);
	}
	if (len)
		memcpy(m->buf + m->held, text, len);
	for (size_t i = m->held; i < total && !m->match_len; i++) {
		m->match_len = advance(m, m->buf[i]);
		end = i + 1 - m->match_len;
	}
	if (!m->match_len) {
		for (unsigned i = 0; i < m->n; i++)
			if (m->patterns[i].state > hold)
				hold = m->patterns[i].state;
		end = total - hold;
	}
	m->given = end;
	m->held = m->match_len ? 0 : hold;
	*ret_text = m->buf ? m->buf : "";
	*ret_len = end;
	return m->match_len > 0;
}

void stop_flush(struct stop_matcher *m, const char **ret_text, size_t *ret_len)
{
	*ret_text = m->held ? m->buf + m->given : "";
	*ret_len = m->held;
	m->given += m->held;
	m->held = 0;
	for (unsigned i = 0; i < m->n; i++)
		m->patterns[i].state = 0;
}

bool stop_matched(const struct stop_matcher *m)
{
	return m->match_len > 0;
}

void stop_match_text(const struct stop_matcher *m, const char **ret_text, size_t *ret_len)
{
	*ret_text = m->match_len ? m->buf + m->given : "";
	*ret_len = m->match_len;
}
