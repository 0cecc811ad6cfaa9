// SPDX-License-Identifier: MIT
/*
 * txda-mkfw: writes a firmware image (uapi/txda_firmware.h). The device model needs no code to run,
 * so the payload is a page of text that says what the image is.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "number.h"
#include "tool_line.h"
#include "tool_run.h"
#include "txda_firmware.h"
#include "txda_regs.h"

#define CARVEOUT_ALIGN (2ull << 20)

static const char usage[] =
	"Usage: txda-mkfw [OPTIONS] FILE\n"
	"\n"
	"      --firmware X.Y.Z   firmware version (1.0.0)\n"
	"      --carveout MIB     DRAM reserved for the firmware, a multiple of 2 (16)\n"
	"      --regs X.Y         oldest supported register map (1.0)\n"
	"      --driver X.Y       oldest supported driver (1.0)\n"
	"      --build TEXT       build string of up to 31 characters\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option options[] = {
	{"firmware", required_argument, NULL, 'f'},
	{"carveout", required_argument, NULL, 'c'},
	{"regs", required_argument, NULL, 'r'},
	{"driver", required_argument, NULL, 'd'},
	{"build", TOOL_TEXT, NULL, 'b'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-mkfw", usage, options, "");

static const char payload_text[] =
	"Firmware of the TX8 device model. It holds no code: the model reads this header,\n"
	"keeps to its carve-out and is ready.\n";

struct image {
	struct txda_firmware header;
	char payload[(sizeof(payload_text) + 7) / 8 * 8];
};

static bool read_two(const char *text, __u32 *ret)
{
	unsigned major, minor;
	char end;

	if (sscanf(text, "%u.%u%c", &major, &minor, &end) != 2 || major > 0xffff || minor > 0xffff)
		return false;
	*ret = major << 16 | minor;
	return true;
}

static bool read_three(const char *text, __u32 *ret)
{
	unsigned major, minor, patch;
	char end;

	if (sscanf(text, "%u.%u.%u%c", &major, &minor, &patch, &end) != 3 || major > 0xffff ||
	    minor > 0xff || patch > 0xff)
		return false;
	*ret = TXDA_FIRMWARE_VERSION(major, minor, patch);
	return true;
}

static bool read_mib(const char *text, __u64 *ret)
{
	uint64_t mib;

	if (!number_parse(text, 1ul << 20, &mib))
		return false;
	*ret = (__u64)mib << 20;
	return !(*ret % CARVEOUT_ALIGN);
}

static bool read_build(const char *text, __u8 *ret, size_t room)
{
	if (strlen(text) >= room)
		return false;
	memcpy(ret, text, strlen(text));
	return true;
}

/* NULL, or what the value must be. */
static const char *read_option(int c, struct txda_firmware *h)
{
	switch (c) {
	case 'f':
		return read_three(line.value, &h->version) ? NULL : "X.Y.Z, up to 65535.255.65535";
	case 'c':
		return read_mib(line.value, &h->carveout_bytes) ? NULL
								: "a multiple of 2 up to 1048576";
	case 'r': return read_two(line.value, &h->regs_version) ? NULL : "X.Y, up to 65535.65535";
	case 'd': return read_two(line.value, &h->driver_version) ? NULL : "X.Y, up to 65535.65535";
	default:
		return read_build(line.value, h->build, sizeof(h->build)) ? NULL
									  : "at most 31 characters";
	}
}

static int write_image(const char *path, const struct image *image)
{
	FILE *file = fopen(path, "wb");
	bool ok = file && fwrite(image, sizeof(*image), 1, file) == 1;

	if (file && fclose(file))
		ok = false;
	if (!ok)
		fprintf(stderr, "txda-mkfw: %s: %s\n", path, strerror(errno));
	return ok ? 0 : 1;
}

static int run_tool(int argc, char **argv)
{
	struct image image = {
		.header =
			{
				.magic = TXDA_FIRMWARE_MAGIC,
				.header_version = TXDA_FIRMWARE_HEADER_VERSION,
				.header_bytes = sizeof(image.header),
				.bytes = sizeof(image),
				.payload_bytes = sizeof(image.payload),
				.version = TXDA_FIRMWARE_VERSION(1, 0, 0),
				.chip_family = TXDA_CHIP_FAMILY_TX8,
				.regs_version = 1 << 16,
				.driver_version = 1 << 16,
				.carveout_bytes = 16ull << 20,
				.build = "cmodel",
			},
	};
	const char *wanted;
	int c;

	while ((c = tool_option(&line, argc, argv)) > 0)
		if ((wanted = read_option(c, &image.header)))
			return tool_refuse(&line, "--%s %s: must be %s", line.name, line.value,
					   wanted);
	if (c < 0)
		return line.status;
	if (!line.n_words)
		return tool_refuse(&line, "FILE is missing");
	if (line.n_words > 1)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[1]);
	memcpy(image.payload, payload_text, sizeof(payload_text));
	image.header.crc32c = crc32c(0, &image, sizeof(image));
	return write_image(line.words[0], &image);
}

int main(int argc, char **argv)
{
	return tool_run("txda-mkfw", run_tool, argc, argv, 1);
}
