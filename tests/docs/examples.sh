#!/bin/sh
# SPDX-License-Identifier: MIT
#
# examples.sh BUILD TXDA-COMPILE MODEL - each page of the library has a section EXAMPLES, whose programs compile against the public
# header without a warning ($CC) and run with a case dir of MODEL as their argument. A program stands in .EX ... .EE, below the comment
#	.\" a program in C
set -eu
LC_ALL=C
export LC_ALL
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
programs=0 failures=0

export TXDA_BACKEND=cmodel TXDA_CMODEL=chips=2,mem=1G,cores=2 LD_LIBRARY_PATH="$build/libtxda"
"$2" "$3" -q -o "$tmp/case"

# As groff reads the escapes: what a reader copies from his terminal is what is compiled.
extract() {
	awk -v out="$2" '
	/^\.SH/ { examples = /EXAMPLES/ }
	/^\.\\" a program in C/ { if (examples) wanted = 1; next }
	/^\.EX/ { if (wanted) file = out "-" ++n ".c"; next }
	/^\.EE/ { if (file) close(file); file = ""; wanted = 0; next }
	file {
		gsub(/\\-/, "-")
		gsub(/\\\(aq/, "\047")
		gsub(/\\e/, "\\")
		print >file
	}' "$1"
}

for page in "$top"/docs/man/*.3; do
	name=${page##*/}
	extract "$page" "$tmp/$name"
	[ -e "$tmp/$name-1.c" ] || {
		echo "docs/man/$name: EXAMPLES has no program"
		failures=$((failures + 1))
	}
done
for source in "$tmp"/*.c; do
	name=${source##*/}
	name=${name%.c}
	programs=$((programs + 1))
	# shellcheck disable=SC2086 # a compiler may be two words
	if ! ${CC:-cc} -std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Werror -I "$top/libtxda/include" "$source" -o "$tmp/$name" \
		-L "$build/libtxda" -ltxda; then
		echo "docs/man/$name: does not compile"
		failures=$((failures + 1))
	elif ! timeout 60 "$tmp/$name" "$tmp/case" >"$tmp/out" 2>&1; then
		echo "docs/man/$name: does not run"
		failures=$((failures + 1))
		cat "$tmp/out"
	fi
done
echo "$programs programs, $failures failures"
[ "$failures" -eq 0 ]
