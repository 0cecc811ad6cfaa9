#!/bin/sh
# SPDX-License-Identifier: MIT
#
# install-settings.sh DIR FILE... - for `meson install`: put settings into DIR, unless they are there. An administrator has
# edited what an earlier installation brought.
set -eu
dir=${DESTDIR:-}$1
shift
mkdir -p "$dir"
for file in "$@"; do
	to=$dir/${file##*/}
	if [ -e "$to" ] || [ -L "$to" ]; then
		echo "Keeping $to"
	else
		install -m 644 "$file" "$to"
	fi
done
