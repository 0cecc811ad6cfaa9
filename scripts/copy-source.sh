#!/bin/sh
# SPDX-License-Identifier: MIT
#
# copy-source.sh DIR - copy the sources to DIR, which must not exist: the files that git tracks, as they are
# now. Without git, or in an unpacked archive: everything but build directories.
set -eu
to=$1
mkdir -p "$to"
to=$(cd "$to" && pwd)
cd "$(dirname "$0")/.."
# Root may build in a user's clone, which git refuses by default.
if [ -e .git ] && git -c safe.directory='*' ls-files >"$to.files" 2>/dev/null; then
	:
else
	find . \( -name .git -o -type d -path './build*' \) -prune -o ! -type d -print >"$to.files"
fi
# A file that git tracks may be gone from the tree.
while read -r file; do
	[ ! -e "$file" ] && [ ! -L "$file" ] || printf '%s\n' "$file"
done <"$to.files" | tar -c -T - | tar -C "$to" -x
rm -f "$to.files"
