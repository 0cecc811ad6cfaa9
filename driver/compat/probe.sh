#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# probe.sh DIR CC... - compile each of DIR/*.c with CC. Those that compile print -DTXDA_HAVE_ and
# their name. In the others the first error must be about what the file's "asks for" line matches:
# any other one tells nothing of the kernel; it goes to stderr, and "fails" to stdout.
dir=$1
shift
for file in "$dir"/*.c; do
	name=$(basename "$file" .c)
	if errors=$(LC_ALL=C "$@" "$file" 2>&1); then
		echo "-DTXDA_HAVE_$(echo "$name" | tr a-z- A-Z_)"
		continue
	fi
	asked=$(sed -n 's|^// asks for: ||p' "$file")
	# Without the file's name; further ones are its consequences.
	reason=$(echo "$errors" | sed -n 's/.*error: //p' | head -n 1)
	if [ -z "$asked" ] || ! echo "$reason" | grep -Eq "$asked"; then
		echo "txda: the probe $name does not compile, and not for lack of what it asks for:" >&2
		echo "$errors" >&2
		echo fails
	fi
done
