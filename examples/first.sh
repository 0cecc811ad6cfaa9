#!/bin/sh
# SPDX-License-Identifier: MIT
#
# first.sh TXDA-COMPILE FIRST TWO_PROGRAMS TESTS - runs the example on two chips, and holds the token that it names against
# that of two_programs; what is wrong with its arguments it says.
set -eu
compile=$1
first=$2
two_programs=$3
model=$4/models/demo
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

fail() {
	echo "FAIL: $*"
	exit 1
}

export TXDA_CMODEL=chips=2,mem=1G,cores=2
"$compile" "$model" -q -o "$dir/case"
for token in 11 7 1205; do
	said=$("$first" "$dir/case" $token)
	tokens=$("$two_programs" "$dir/case" $token)
	printf '%s\n' "$said"
	[ "$(printf '%s\n' "$said" | grep -c '^chip [01]: .*, 1024 MiB$')" -eq 2 ] || fail "not two chips of 1 GiB"
	[ "${said##*[!0-9]}" = "${tokens%% *}" ] || fail "two_programs says ${tokens%% *} after $token"
done

# refused WORDS ARGUMENT...
refused() {
	words=$1
	shift
	if "$first" "$@" >"$dir/out" 2>&1; then
		fail "first $* is no error"
	fi
	grep -q "^first: .*$words" "$dir/out" || fail "first $*: $(cat "$dir/out")"
}
refused "$dir/none" "$dir/none"
refused 999999999 "$dir/case" 999999999
refused . ''
echo "all checks passed"
