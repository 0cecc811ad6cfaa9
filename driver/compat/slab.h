/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Allocations that know the type they are for, as of 7.0; Debian's 6.12 has them too. Always with
 * the flags, which the real ones can do without.
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
