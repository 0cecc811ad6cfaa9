#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_hardening.sh FILE... - each program and library was built with the hardening that meson.build asks for, as readelf sees
# it: position-independent, relocations read-only and bound at the start, no executable stack, stack protector and checked
# string functions, and control-flow protection where the compiler marks it. CC is the compiler.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() {
	echo "FAIL: $1: $2"
	failures=$((failures + 1))
}

# Whether this compiler and C library mark code for control-flow protection at all.
echo 'int main(void) { return 0; }' >"$tmp/empty.c"
marks=
if ${CC:-cc} -fcf-protection=full "$tmp/empty.c" -o "$tmp/empty" 2>/dev/null &&
	readelf -nW "$tmp/empty" | grep -q 'IBT.*SHSTK'; then
	marks=yes
fi

guarded=0 checked=0 files=0
for file in "$@"; do
	files=$((files + 1))
	readelf -hldsnW "$file" >"$tmp/elf" 2>/dev/null || fail "$file" "readelf does not read it"
	grep -q '^ *Type: *DYN' "$tmp/elf" || fail "$file" "is not position-independent"
	grep -q 'GNU_RELRO' "$tmp/elf" || fail "$file" "relocations can be written"
	grep -Eq '\(FLAGS(_1)?\).*(BIND_)?NOW' "$tmp/elf" || fail "$file" "is bound lazily"
	grep -Eq 'GNU_STACK.*RWE' "$tmp/elf" && fail "$file" "has an executable stack"
	grep -q 'TEXTREL' "$tmp/elf" && fail "$file" "has relocations in its code"
	[ -z "$marks" ] || grep -q 'IBT.*SHSTK' "$tmp/elf" || fail "$file" "has no control-flow protection"
	# A small program may have no array, and none of the functions that there are checked ones of.
	if grep -q '__stack_chk_fail' "$tmp/elf"; then guarded=$((guarded + 1)); else echo "$file: no stack protector"; fi
	if grep -Eq ' __[a-z]+_chk(@| |$)' "$tmp/elf"; then checked=$((checked + 1)); else echo "$file: no checked functions"; fi
done
echo "$files files: $guarded with stack protectors, $checked with checked functions${marks:+, all with control-flow protection}"
[ "$files" -gt 0 ] || fail "no file" "nothing was looked at"
[ "$guarded" -eq "$files" ] || fail "some" "no stack protector"
[ "$checked" -eq "$files" ] || fail "some" "no checked functions"
[ "$failures" -eq 0 ]
