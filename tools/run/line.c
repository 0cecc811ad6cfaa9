// SPDX-License-Identifier: MIT
#include "line.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include <histedit.h>

#include "history.h"
#include "interrupt.h"
#include "show.h"
#include "terminal.h"

#define MAX_MESSAGE ((size_t)16 << 20)
#define MAX_PASTE   ((size_t)1 << 20) /* characters at a time */
#define CTRL_D	    4
#define PASTE_END   L"\033[201~"

/* Terminals that support it mark pasted text with brackets; others ignore this. */
static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";

static EditLine *editor; /* NULL: a plain prompt */
static struct past past;
static const char *const *completions;
static FILE *screen;
static const char *prompt;
static bool dropped; /* what was typed: by Ctrl-C, or as too long */
static volatile sig_atomic_t resized, suspended;

static void on_screen(int number)
{
	if (number == SIGWINCH)
		resized = 1;
	else
		suspended = 1;
}

static void set_paste(bool on)
{
	fputs(on ? paste_on : paste_off, screen);
	fflush(screen);
}

/* Ctrl-Z: restores the terminal for the shell. */
static void suspend(EditLine *el)
{
	set_paste(false);
	el_set(el, EL_PREP_TERM, 0);
	raise(SIGSTOP);
	el_set(el, EL_PREP_TERM, 1);
	set_paste(true);
	el_set(el, EL_REFRESH);
}

/* Reads a byte: 1, 0 at the end, -1 if a signal ends the line. */
static int read_byte(EditLine *el, char *ret)
{
	for (;;) {
		int r = interrupt_poll(STDIN_FILENO, POLLIN, -1);
		ssize_t n;

		if (resized && el) {
			resized = 0;
			el_resize(el);
			el_set(el, EL_REFRESH);
		}
		if (suspended && el) {
			suspended = 0;
			suspend(el);
		}
		if (r < 0)
			return -1;
		if (!r)
			continue;
		n = read(STDIN_FILENO, ret, 1);
		if (n >= 0)
			return (int)n;
		if (errno != EINTR && errno != EAGAIN)
			return -1;
	}
}

static int read_character(EditLine *el, wchar_t *ret)
{
	mbstate_t state = {0};
	char byte;

	for (unsigned n = 0;; n++) {
		int r = read_byte(el, &byte);
		size_t got;

		if (r <= 0) {
			const LineInfo *line = el_line(el);

			dropped = r < 0 && interrupt_stop;
			if (dropped && line->lastchar == line->buffer)
				fputs("\r\n(Ctrl-D or /exit ends)", screen);
			return r;
		}
		/*
		 * Ctrl-D that was typed while the terminal was still in line mode arrives as NUL.
		 */
		if (!byte)
			byte = CTRL_D;
		got = mbrtowc(ret, &byte, 1, &state);
		if (got == (size_t)-2)
			continue;
		if (got == (size_t)-1)
			*ret = L'\xfffd';
		return 1;
	}
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Inserts pasted text up to its closing bracket, including line breaks. */
static unsigned char on_paste(EditLine *el, int ch)
{
	const size_t end = wcslen(PASTE_END);
	size_t len = 0, cap = 0;
	wchar_t *text = NULL, c;
	bool ended = false;

	(void)ch;
	while (!ended && el_wgetc(el, &c) == 1) {
		if (len + 1 >= cap) {
			wchar_t *bigger = cap >= MAX_PASTE
						  ? NULL
						  : realloc(text, (cap * 2 + 256) * sizeof(*text));

			/* Excess text is dropped; its end is still recognised. */
			if (!bigger && len > end) {
				memmove(text + len - end, text + len - end + 1,
					(end - 1) * sizeof(*text));
				len--;
			} else if (!bigger) {
				break;
			} else {
				text = bigger;
				cap = cap * 2 + 256;
			}
		}
		text[len++] = c;
		ended = len >= end && !wmemcmp(text + len - end, PASTE_END, end);
	}
	if (ended)
		len -= end;
	for (size_t i = 0; i < len; i++)
		text[i] = text[i] == L'\r'		       ? L'\n'
			  : text[i] < L' ' && text[i] != L'\n' ? L' '
							       : text[i];
	if (len) {
		text[len] = 0;
		el_winsertstr(el, text);
	}
	free(text);
	return CC_REFRESH;
}

/* Completes a command at the beginning of the line. */
static unsigned char on_tab(EditLine *el, int ch)
{
	const LineInfo *line = el_line(el);
	size_t n = (size_t)(line->cursor - line->buffer), common = 0;
	const char *found = NULL;
	char rest[64];

	(void)ch;
	if (!n || *line->buffer != '/' || line->cursor != line->lastchar)
		return CC_ERROR;
	for (const char *const *w = completions; *w; w++) {
		if (strncmp(*w, line->buffer, n) != 0)
			continue;
		if (!found)
			common = strlen(*w);
		for (size_t i = n; found && i < common; i++)
			if (found[i] != (*w)[i])
				common = i;
		found = *w;
	}
	if (!found || common <= n)
		return CC_ERROR;
	snprintf(rest, sizeof(rest), "%.*s", (int)(common - n), found + n);
	el_insertstr(el, rest);
	return CC_REFRESH;
}

static void bind_keys(EditLine *el)
{
	static const char *const keys[][2] = {
		{"\\e[200~", "txda-paste"},	   {"^I", "txda-complete"},
		{"^R", "em-inc-search-prev"},	   {"^W", "ed-delete-prev-word"},
		{"\\e[3~", "ed-delete-next-char"}, {"\\e[H", "ed-move-to-beg"},
		{"\\e[F", "ed-move-to-end"},	   {"\\e[1~", "ed-move-to-beg"},
		{"\\e[4~", "ed-move-to-end"},	   {"\\e[1;5C", "em-next-word"},
		{"\\e[1;5D", "ed-prev-word"},
	};

	/* el_set() would make wide copies that it never frees. */
	el_wset(el, EL_ADDFN, L"txda-paste", L"Insert pasted text", on_paste);
	el_wset(el, EL_ADDFN, L"txda-complete", L"Complete a command", on_tab);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static char *get_prompt(EditLine *el)
{
	(void)el;
	return (char *)prompt;
}

static char *read_edited(void)
{
	struct sigaction action = {.sa_handler = on_screen}, old_size, old_stop;
	const char *text;
	int n = 0;
	char *line;

	sigaction(SIGWINCH, &action, &old_size);
	sigaction(SIGTSTP, &action, &old_stop);
	/* Before the prompt, which invites input. */
	el_set(editor, EL_PREP_TERM, 1);
	set_paste(true);
	text = el_gets(editor, &n);
	set_paste(false);
	sigaction(SIGWINCH, &old_size, NULL);
	sigaction(SIGTSTP, &old_stop, NULL);
	line = text && n > 0 ? strndup(text, (size_t)n) : NULL;
	if (!line || line[n - 1] != '\n')
		fputc('\n', screen);
	else
		line[n - 1] = 0;
	return line;
}

static char *read_plain(void)
{
	size_t len = 0, cap = 256;
	char *line = malloc(cap), c;
	int r = -1;

	fputs(prompt, stderr);
	while (line && (r = read_byte(NULL, &c)) > 0 && c != '\n') {
		if (len + 1 == cap) {
			char *bigger = cap < MAX_MESSAGE ? realloc(line, cap * 2) : NULL;

			if (!bigger)
				break;
			line = bigger;
			cap *= 2;
		}
		line[len++] = c;
	}
	dropped = r < 0 && interrupt_stop;
	if (line && (r > 0 || (!r && len))) {
		line[len] = 0;
		return line;
	}
	fputc('\n', stderr);
	free(line);
	return NULL;
}

/* One line without its end; NULL at the end of the input and after a signal. */
static char *read_one(const char *text)
{
	prompt = text;
	dropped = false;
	return editor ? read_edited() : read_plain();
}

static bool append(char **all, const char *line, size_t n)
{
	size_t len = *all ? strlen(*all) : 0;
	char *joined = len + n < MAX_MESSAGE ? realloc(*all, len + n + 2) : NULL;

	if (!joined) {
		fprintf(stderr, "txda-run: the message is longer than %zu bytes\n", MAX_MESSAGE);
		dropped = true;
		return false;
	}
	memcpy(joined + len, line, n);
	joined[len + n] = 0;
	*all = joined;
	return true;
}

static bool ends_with(const char *line, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n >= m && !memcmp(line + n - m, end, m);
}

/* Reads lines up to the one that ends the message; false if there is none. */
static bool read_message(char **all)
{
	bool quoted = false, goes_on = true;
	const char *lead = "";

	for (bool first = true; goes_on; first = false) {
		char *line = read_one(first ? "> " : "... "), *begin = line;
		size_t n;
		bool ok;

		if (!line)
			return false;
		if (first && !strncmp(line, "\"\"\"", 3)) {
			quoted = true;
			begin += 3;
		}
		n = strlen(begin);
		if (quoted) {
			goes_on = !ends_with(begin, n, "\"\"\"");
			n -= goes_on ? 0 : 3;
		} else {
			goes_on = ends_with(begin, n, "\\");
			n -= goes_on;
		}
		/* The line that opens or closes a quotation may hold nothing else. */
		ok = (!first && quoted && !goes_on && !n) || append(all, lead, strlen(lead));
		ok = ok && append(all, begin, n);
		lead = quoted && first && !n ? "" : "\n";
		free(line);
		if (!ok)
			return false;
	}
	return true;
}

char *line_read(void)
{
	char *all = NULL;

	if (!read_message(&all)) {
		free(all);
		return dropped && !interrupt_end ? strdup("") : NULL;
	}
	if (editor && *all)
		past_add(&past, all);
	return all;
}

/* ---- the terminal ---------------------------------------------------------------------------- */

void line_open(const char *const *words)
{
	completions = words;
	screen = isatty(STDERR_FILENO) ? stderr : stdout;
	if (!terminal_is(screen))
		return;
	/* Messages are UTF-8, as the API's JSON is, whatever the locale. */
	setlocale(LC_CTYPE, "");
	if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
		setlocale(LC_CTYPE, "C.UTF-8");
	editor = el_init("txda-run", stdin, screen, stderr);
	if (!editor)
		return;
	el_set(editor, EL_SIGNAL, 0);
	el_set(editor, EL_EDITOR, "emacs");
	el_set(editor, EL_PROMPT, get_prompt);
	el_set(editor, EL_GETCFN, read_character);
	past_open(&past);
	if (past.list)
		el_set(editor, EL_HIST, history, past.list);
	el_source(editor, NULL);
	bind_keys(editor);
}

void line_close(void)
{
	if (editor)
		el_end(editor);
	editor = NULL;
	past_close(&past);
}
