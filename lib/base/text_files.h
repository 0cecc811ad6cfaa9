/* SPDX-License-Identifier: MIT */
/*
 * The files of a model's directory from which its texts come: tokeniser, templates, settings of
 * generation, image processor. One list for the compiler, which copies them to a case dir, for the
 * process that reads them, and for who checks whose they are.
 */
#ifndef TXDA_BASE_TEXT_FILES_H
#define TXDA_BASE_TEXT_FILES_H

#include <stddef.h>

/* Those in the directory itself, config.json first, up to a NULL. */
extern const char *const text_files[];

/* The directory of further templates, NAME.jinja. */
#define TEXT_FILES_FOLDER    "additional_chat_templates"
#define TEXT_FILES_TEMPLATES 64 /* at most */

/*
 * The templates in that folder of @dirfd, in order of their names, as names below @dirfd: to be
 * freed, one by one and the list. Returns how many, or -errno with @err.
 */
int text_files_templates(int dirfd, char ***ret, char *err, size_t errlen);

#endif
