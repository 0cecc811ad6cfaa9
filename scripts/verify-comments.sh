#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-comments.sh [FILE...] - no list, table or diagram in a comment of a C file has been filled into
# paragraphs, as formatters and editors do. All C files that git knows; exit status 77: there is no git.
#
# What is laid out by hand is indented, and this holds each block comment to three rules:
#
#   gap       a line with a gap of three columns or a tab behind its first word is a row of something, so it
#             is indented, unless that word is all that stands before the gap
#   indent    behind an indented line or an item comes another one, an empty line or the beginning of a
#             sentence; what begins with a small letter is the rest of a row that has lost its indentation
#   star      there is a blank between the star and the text
set -eu
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	git rev-parse --git-dir >/dev/null 2>&1 || {
		echo "outside of git there is no list of files"
		exit 77
	}
	# shellcheck disable=SC2046 # no name of a source file has a space
	set -- $(git ls-files '*.c' '*.h')
fi

awk '
FNR == 1 { inside = 0 }
{
	text = $0
	if (!inside) {
		if (text !~ /^[ \t]*\/\*/ || text ~ /\*\//)
			next
		inside = 1
		laid = 0
		sub(/^[ \t]*\/\*+/, "", text)
	} else if (!sub(/^[ \t]*\*/, "", text)) {
		inside = text !~ /\*\//
		laid = 0
		next
	}
	if ($0 ~ /\*\//)
		inside = 0
	if (!inside && !sub(/\*\/.*/, "", text))
		next
	rule = ""
	indented = text ~ /^( ?\t|  )/
	if (text ~ /^[^ \t\/]/)
		rule = "star"
	else if (laid && text ~ /^ [a-z]/)
		rule = "indent"
	else if (!indented && text ~ /^ [^ \t]+ .*[^ \t](   |\t)[ \t]*[^ \t]/ && text !~ /^ [^ \t]+(   |\t)/)
		rule = "gap"
	if (rule != "") {
		print FILENAME ":" FNR ": " rule ": " $0
		bad = 1
	}
	laid = indented || text ~ /^ (-|[0-9]+[.)]) /
}
END { exit bad }' "$@"
