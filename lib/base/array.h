/* SPDX-License-Identifier: MIT */
/* Growing arrays: a pointer, the number of elements in use, and the room for elements. */
#ifndef TXDA_BASE_ARRAY_H
#define TXDA_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_LEAST 64 /* elements, of an array that was empty */

/*
 * Makes room for @n elements of @size bytes in the array whose pointer is at @array (of any pointer
 * type) and which has room for *room; doubles it as needed. False: out of memory, and nothing has
 * changed. New elements are not initialised.
 */
static inline bool array_grow(void *array, size_t *room, size_t n, size_t size)
{
	size_t more = *room ? *room : ARRAY_LEAST;
	void *old, *grown;

	if (n <= *room)
		return true;
	while (more < n) {
		if (more > SIZE_MAX / 2)
			return false;
		more *= 2;
	}
	memcpy(&old, array, sizeof(old));
	grown = reallocarray(old, more, size);
	if (!grown)
		return false;
	memcpy(array, &grown, sizeof(grown));
	*room = more;
	return true;
}

#endif
