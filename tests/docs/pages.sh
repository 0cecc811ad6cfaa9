#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pages.sh DIRECTORY - each manual page in it is set without a warning of groff. Exit status 77: there is no groff here.
set -eu
command -v groff >/dev/null || {
	echo "groff is not installed"
	exit 77
}
pages=0 warnings=0
for page in "$1"/*.[1-8]; do
	pages=$((pages + 1))
	said=$(groff -ww -z -t -mandoc -Tutf8 "$page" 2>&1)
	[ -z "$said" ] || {
		printf '%s\n' "$said"
		warnings=$((warnings + 1))
	}
done
echo "$pages pages, $warnings with warnings"
[ "$warnings" -eq 0 ] && [ "$pages" -gt 0 ]
