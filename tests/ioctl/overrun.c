// SPDX-License-Identifier: MIT
/*
 * An ioctl writes as many bytes as the size in its number says, whatever it knows of itself: a
 * client with a smaller struct has nothing behind it overwritten. All numbers, directions and sizes.
 */
#include "common.h"

#include <sys/ioctl.h>

#define AREA  1024u
#define SIZES 320u
#define MARK  0xa5

/* All zeros: no handle, no pointer, no count, so nothing to wait for either. */
static void try_number(int fd, uint32_t dir, uint32_t nr, uint32_t bytes)
{
	uint8_t area[AREA];

	memset(area, 0, bytes);
	memset(area + bytes, MARK, sizeof(area) - bytes);
	ioctl(fd, _IOC(dir, DRM_IOCTL_BASE, nr, bytes), area);
	for (uint32_t i = bytes; i < sizeof(area); i++) {
		if (area[i] != MARK)
			fail("ioctl %#x, direction %u, of %u bytes has changed byte %u", nr, dir,
			     bytes, i);
	}
}

TEST(no_overrun)
{
	for (uint32_t nr = 0; nr < 256; nr++) {
		for (uint32_t dir = 0; dir < 4; dir++) {
			int fd = must_open(0);

			for (uint32_t bytes = 0; bytes <= SIZES; bytes += 1 + (bytes > 80) * 7)
				try_number(fd, dir, nr, bytes);
			close(fd);
		}
	}
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
