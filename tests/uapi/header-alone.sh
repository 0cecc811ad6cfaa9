#!/bin/sh
# SPDX-License-Identifier: MIT
#
# header-alone.sh STANDARD LANGUAGE INCLUDE-DIRECTORIES HEADER... - the headers compile when nothing else was
# included before them, and twice in a row, as C or C++, without a warning. INCLUDE-DIRECTORIES is
# one argument, with colons between.
set -eu
cc=${CC:-cc}
libdrm=$(pkg-config --variable=includedir libdrm)/libdrm
standard=$1
language=$2
includes=$3
shift 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf '' >"$tmp/empty.c"
if ! $cc -x "$language" -std="$standard" -fsyntax-only "$tmp/empty.c" 2>/dev/null; then
	echo "$cc has no front end for $language"
	exit 77
fi
for header in "$@" "$@"; do
	printf '#include "%s"\n' "$header"
done >"$tmp/alone.c"
set -- -isystem "$libdrm"
IFS=:
for directory in $includes; do
	set -- "$@" -I"$directory"
done
unset IFS
$cc -x "$language" -std="$standard" -Wall -Wextra -Werror -fsyntax-only "$@" "$tmp/alone.c"
