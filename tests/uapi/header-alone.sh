#!/bin/sh
# SPDX-License-Identifier: MIT
#
# header-alone.sh HEADER STANDARD LANGUAGE INCLUDE-DIRECTORY - the header compiles when nothing else was
# included before it, twice in a row, as C or C++, without a warning.
set -eu
cc=${CC:-cc}
libdrm=$(pkg-config --variable=includedir libdrm)/libdrm
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf '' >"$tmp/empty.c"
if ! $cc -x "$3" -std="$2" -fsyntax-only "$tmp/empty.c" 2>/dev/null; then
	echo "$cc has no front end for $3"
	exit 77
fi
printf '#include "%s"\n#include "%s"\n' "$1" "$1" >"$tmp/alone.c"
$cc -x "$3" -std="$2" -Wall -Wextra -Werror -fsyntax-only -isystem "$libdrm" -I"$4" "$tmp/alone.c"
