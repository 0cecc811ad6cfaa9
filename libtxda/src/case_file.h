/* SPDX-License-Identifier: MIT */
/*
 * Files of a case dir. They are untrusted (case_info.h); owned.h says which are opened.
 * Errors: as in case_info.h. Threads: any.
 */
#ifndef TXDA_CASE_FILE_H
#define TXDA_CASE_FILE_H

#include "case_info.h"

/* Reads DIR/model_info.json. *ret_dir_fd is the case dir; the caller closes it. */
int txda__case_open(const char *path, int *ret_dir_fd, struct case_info *ret_case, char *err,
		    size_t errlen);
/* Opens a regular file below the case dir, which must have @bytes. */
int txda__case_file(int dir_fd, const char *name, uint64_t bytes, int *ret_fd, char *err,
		    size_t errlen);
/*
 * Reads a whole file of @bytes, at most @max. The caller frees *ret_data, which is 64-byte aligned.
 */
int txda__case_read(int dir_fd, const char *name, uint64_t bytes, uint64_t max, void **ret_data,
		    char *err, size_t errlen);

#endif /* TXDA_CASE_FILE_H */
