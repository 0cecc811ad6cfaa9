/* SPDX-License-Identifier: MIT */
/*
 * Finds the text conformance data: the directory that TXDA_CONFORMANCE names. Tests that need it
 * skip, with a message, where it is absent.
 */
#ifndef TXDA_TESTS_CONFORMANCE_H
#define TXDA_TESTS_CONFORMANCE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Puts the path of @name inside the data into @path; false, with a message, when it is not there.
 */
static inline bool conformance_path(char *path, size_t size, const char *name)
{
	const char *root = getenv("TXDA_CONFORMANCE");

	if (!root) {
		printf("skipped %s: TXDA_CONFORMANCE is not set\n", name);
		return false;
	}
	snprintf(path, size, "%s/%s", root, name);
	if (access(path, R_OK)) {
		printf("skipped %s: no %s\n", name, path);
		return false;
	}
	return true;
}

/* Reads a whole file into a block that ends where the file ends; the caller frees it. */
static inline char *conformance_read(const char *path, size_t *ret_len)
{
	FILE *file = fopen(path, "rb");
	char *text = NULL;
	long size = -1;

	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	if (size >= 0 && !fseek(file, 0, SEEK_SET))
		text = malloc(size ? (size_t)size : 1);
	if (text && fread(text, 1, (size_t)size, file) != (size_t)size) {
		free(text);
		text = NULL;
	}
	if (file)
		fclose(file);
	*ret_len = (size_t)size;
	return text;
}

#endif
