#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-cdi: exit statuses, on a machine without chips and on one with them.
# test_cdi.sh TXDA_CDI
set -eu
cdi=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "FAIL: $1" >&2
	cat "$dir/out" "$dir/err" >&2
	exit 1
}
# expect STATUS WHAT ARGS...
expect() {
	want=$1 what=$2 got=0
	shift 2
	"$cdi" "$@" >"$dir/out" 2>"$dir/err" || got=$?
	[ "$got" -eq "$want" ] || fail "$what: exit status $got, not $want"
}
has() {
	grep -qF -- "$1" "$dir/$2" || fail "no \"$1\" in $2"
}

expect 0 "help" --help
has Usage: out
expect 0 "version" --version
expect 2 "no command"
expect 2 "unknown command" validate
has "'validate'" err
expect 2 "unknown option" --bogus
expect 2 "too much" generate 0
has "'0'" err
expect 2 "a name that runtimes do not read" generate --output "$dir/chip.yaml"
has "$dir/chip.yaml" err
expect 2 "a library from nowhere" generate --library libtxda.so
has "libtxda.so" err
expect 1 "a library that is not there" generate --library "$dir/libtxda.so"
has "--library $dir/libtxda.so: No such file" err
expect 2 "list with options" list --no-library

chips=0
for node in /sys/class/accel/accel*/device/driver; do
	[ "$(basename "$(readlink -f "$node")")" != txda ] || chips=$((chips + 1))
done
if [ $chips -eq 0 ]; then
	expect 3 "no chip" generate
	[ ! -s "$dir/out" ] || fail "a specification of nothing"
	has "no chip with a device node" err
	has "device model" err
	expect 3 "no chip to list" list
	echo '{}' >"$dir/old.json"
	expect 0 "the last chip is gone" generate --output "$dir/old.json"
	has "There is no $dir/old.json now" err
	[ ! -e "$dir/old.json" ] || fail "an old specification is left"
	expect 0 "there was none" generate --output "$dir/no/such/chip.json"
else
	expect 0 "chips" generate
	has '"txda.com/chip"' out
	expect 0 "chips to list" list
	has "txda.com/chip=all" out
	expect 0 "chips into a file" generate --output "$dir/cdi/chip.json"
	has '"all"' cdi/chip.json
fi
mkdir "$dir/taken.json"
expect 1 "a directory in its place" generate --output "$dir/taken.json"
has "$dir/taken.json" err
