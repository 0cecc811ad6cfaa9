/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The typed allocators of 7.0 (also in Debian's 6.12). Flags are always passed here, although the
 * kernel's macros allow leaving them out.
 */
#ifndef TXDA_COMPAT_SLAB_H
#define TXDA_COMPAT_SLAB_H

#include <linux/overflow.h>
#include <linux/slab.h>

#ifndef kzalloc_obj
#define kzalloc_obj(obj, gfp)		       kzalloc(sizeof(obj), gfp)
#define kvzalloc_flex(obj, member, count, gfp) kvzalloc(struct_size(&(obj), member, count), gfp)
#endif

#endif /* TXDA_COMPAT_SLAB_H */
