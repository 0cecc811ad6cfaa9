#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pages.sh DIRECTORY - each manual page in it is of the macros man(7), has a date, a version and a heading, is found by whatis,
# names the exit status if it is of a program, and is set without a warning of groff. Exit status 77: there is no groff here.
set -eu
command -v groff >/dev/null || {
	echo "groff is not installed"
	exit 77
}
pages=0 warnings=0
complain() {
	printf '%s: %s\n' "$page" "$1"
	warnings=$((warnings + 1))
}
for page in "$1"/*.[1-8]; do
	pages=$((pages + 1))
	name=${page##*/}
	section=${name##*.}
	name=${name%.*}
	said=$(groff -ww -z -t -mandoc -Tutf8 "$page" 2>&1)
	[ -z "$said" ] || complain "$said"
	title=$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')
	grep -Eq "^\.TH $title $section 20[0-9]{2}-[01][0-9]-[0-3][0-9] \"txda [0-9.]+\" \"[^\"]+\"\$" "$page" ||
		complain "no line such as: .TH $title $section 2026-11-20 \"txda 0.1.0\" \"TXDA\""
	case $section in
	1 | 8) grep -q '^\.SH EXIT STATUS$' "$page" || complain "a program's page without its exit status" ;;
	esac
	if command -v lexgrog >/dev/null; then
		lexgrog "$page" >/dev/null || complain "whatis finds no name and description in it"
	fi
done
echo "$pages pages, $warnings with warnings"
[ "$warnings" -eq 0 ] && [ "$pages" -gt 0 ]
