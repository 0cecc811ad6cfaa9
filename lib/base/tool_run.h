/* SPDX-License-Identifier: MIT */
/*
 * The beginning and the end of every command-line tool: its standard descriptors are its own, and
 * output that is lost is an error. For single-threaded main programs; messages go to stderr.
 */
#ifndef TXDA_BASE_TOOL_RUN_H
#define TXDA_BASE_TOOL_RUN_H

/*
 * Runs @tool, the program @name, and returns its exit status; see tool_end(). A standard descriptor
 * that is closed is opened on /dev/null in the wrong direction before: its use still fails with
 * EBADF, but no file or socket of the tool gets its number, which would receive the output.
 */
int tool_run(const char *name, int (*tool)(int argc, char **argv), int argc, char **argv,
	     int failure);

/*
 * Writes out standard output. If some of it was lost and @status is 0, says so, unless the reader
 * of a pipe has gone, and returns @failure; else @status.
 */
int tool_end(const char *name, int status, int failure);

#endif
