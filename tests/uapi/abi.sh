#!/bin/sh
# SPDX-License-Identifier: MIT
#
# abi.sh INCLUDE-DIRECTORY [-u] - every layout, ioctl number and value of drm/txda_drm.h is the one that
# drm/abi.txt beside it has; lines are only ever added there. With -u the file is written instead.
#
# A program prints them, made from the header itself, so nothing that the header defines is left out.
set -eu
cc=${CC:-cc}
uapi=$1
libdrm=$(pkg-config --variable=includedir libdrm)/libdrm
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
{
	printf '#include <stddef.h>\n#include <stdio.h>\n#include "drm/txda_drm.h"\n'
	printf '#define BYTES(type, member) sizeof(((struct type *)0)->member)\n'
	printf '#define VALUE(name) printf(#name " %%#llx\\n", (unsigned long long)(name))\n'
	printf 'int main(void)\n{\n'
	awk '
	/^struct [a-z_]* \{/ {
		type = $2
		printf "printf(\"struct %s, %%zu bytes\\n\", sizeof(struct %s));\n", type, type
	}
	type != "" && /^\t(__|struct )/ {
		line = $0
		sub(/\[.*/, "", line)
		sub(/;.*/, "", line)
		n = split(line, word, /[ \t]+/)
		member = word[n]
		kind = line
		sub(/^\t/, "", kind)
		sub(/[ \t]+[a-z_0-9]*$/, "", kind)
		printf "printf(\"  %%3zu %%3zu  %s %s\\n\", offsetof(struct %s, %s), BYTES(%s, %s));\n",
			kind, member, type, member, type, member
	}
	/^\}/ { type = "" }
	# Numbers of ioctls, flags, limits, and all that enums have.
	/^#define DRM_(IOCTL_)?TXDA_[A-Z0-9_]+[ \t]/ && $2 !~ /\(/ { printf "VALUE(%s);\n", $2 }
	/^enum / { enum = 1 }
	enum && /^\tDRM_TXDA_[A-Z0-9_]+/ {
		name = $1
		sub(/[,=].*/, "", name)
		# How many ioctls there are grows with them.
		if (name != "DRM_TXDA_NUM_IOCTLS")
			printf "VALUE(%s);\n", name
	}
	/^\};/ { enum = 0 }
	' "$uapi/drm/txda_drm.h"
	printf 'return 0;\n}\n'
} >"$tmp/abi.c"
$cc -std=gnu11 -Wall -Werror -isystem "$libdrm" -I"$uapi" -o "$tmp/abi" "$tmp/abi.c"
"$tmp/abi" >"$tmp/abi.txt"
# As many structs and values as a reader finds; else the awk above has lost some.
structs=$(grep -c '^struct .* {$' "$uapi/drm/txda_drm.h")
[ "$(grep -c '^struct' "$tmp/abi.txt")" -eq "$structs" ]
members=$(grep -c '^	[_s].*;' "$uapi/drm/txda_drm.h")
[ "$(grep -c '^  ' "$tmp/abi.txt")" -eq "$members" ]
if [ "${2:-}" = -u ]; then
	cp "$tmp/abi.txt" "$uapi/drm/abi.txt"
else
	diff -u "$uapi/drm/abi.txt" "$tmp/abi.txt"
fi
