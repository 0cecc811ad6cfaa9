#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-smi: exit statuses, forms of output, with no chip and with those of another process.
# test_smi.sh TXDA_SMI
set -eu
smi=$1
dir=$(mktemp -d)
pid=
cleanup() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
export XDG_RUNTIME_DIR="$dir" NO_COLOR=1
unset TXDA_CHIP_MAP CHIP_MAP TXDA_VISIBLE_DEVICES || true

n=0
fail() {
	echo "FAIL: $1" >&2
	[ ! -f "$dir/out" ] || sed 's/^/  out: /' "$dir/out" >&2
	[ ! -f "$dir/err" ] || sed 's/^/  err: /' "$dir/err" >&2
	exit 1
}
# expect STATUS WHAT ARGS...: runs txda-smi and looks at its exit status. It may not wait for events.
expect() {
	want=$1
	what=$2
	shift 2
	got=0
	timeout 60 "$smi" "$@" >"$dir/out" 2>"$dir/err" || got=$?
	[ "$got" -eq "$want" ] || fail "$what: exit status $got, not $want"
	n=$((n + 1))
}
# holds_a_page CHIP: the holder's page says that it has memory there
holds_a_page() {
	"$smi" query --fields=memory_used_bytes -i "cmodel:$pid:$1" 2>"$dir/err" | grep -qx 4096
}
has() {
	grep -qF -- "$1" "$dir/$2" || fail "no \"$1\" in $2"
}

expect 0 "help" --help
has Usage: out
expect 0 "version" --version
expect 2 "unknown option" --bogus
expect 2 "unknown command" bogus
has "unknown command 'bogus'" err
expect 2 "unknown field" query --fields=index,bogus
has '"bogus"' err
expect 2 "no field" query --fields=
has 'no field ""' err
expect 2 "no field after a comma" query --fields=index,
has 'no field ""' err
expect 2 "topo as JSON" topo --json
has "topo: there is no --json" err
# What would be ignored is refused.
expect 2 "fields of the table" --fields=index
has "without a command: there is no --fields" err
expect 2 "topo of a chip" topo -i 0
has "topo: there is no --chip" err
expect 2 "events by the clock" events --loop 1
has "events: there is no --loop" err
expect 2 "a map of the table" dmon --map C2TP1
has "dmon: there is no --map" err
expect 2 "reset as JSON" reset 0 --json
has "reset: there is no --json" err
expect 2 "rounds without a loop" --count 3
has "--count needs --loop" err
expect 2 "two formats" query --fields=index --format=csv --json
has "--format csv contradicts --json" err
expect 3 "events of an index without a chip" events -i 9999
has "no such chip: 9999" err
expect 3 "events of no name" events -i ""
has "no such chip" err
expect 3 "a chip without a name" -i ""
has "no such chip" err
expect 2 "bad loop" --loop nothing
expect 2 "bad format" query --fields=index --format=xml
expect 0 "field list" query --fields=help
has temperature_c out

expect 2 "reset of nothing" reset
has "which chip" err
expect 3 "reset of a chip that is not there" reset 0000:ff:1f.7
has "no such chip: 0000:ff:1f.7" err
expect 2 "too much" reset 0 1
expect 2 "bad count" events --count 0

# topo opens the backend of its own process.
TXDA_BACKEND=cmodel TXDA_CMODEL=chips=4,mem=64M expect 0 "topo" topo --tp 2 --explain
has "Group 0: chip 0, chip 1" out
has "Group 1: chip 2, chip 3" out
has "Rank 1 is chip 1" out
TXDA_BACKEND=cmodel TXDA_CMODEL=chips=4,mem=64M CHIP_MAP=3,2,1,0 expect 0 "renamed" topo --map C4TP2
has "Group 0: chip 3, chip 2" out
TXDA_BACKEND=cmodel TXDA_CMODEL=chips=2,mem=64M expect 1 "map too large" topo --map C4TP2
has "C4TP2 needs 4 chips" err
TXDA_BACKEND=drm expect 3 "no node" topo
TXDA_BACKEND=cmodel TXDA_CMODEL=chips=two expect 1 "bad spec" topo
has "chips=two" err

# Nobody reads the events any more.
{
	timeout 60 "$smi" events 2>"$dir/err" && got=0 || got=$?
	echo $got >"$dir/got"
} | :
[ "$(cat "$dir/got")" -ne 124 ] || fail "events: waits without a reader"

# Other processes of the machine may have chips of their own; none is named like this.
expect 3 "chip that is not there" -i cmodel:0:0
has "no such chip: cmodel:0:0" err
[ ! -s "$dir/out" ] || fail "output without a chip"
expect 3 "JSON without chips" -i cmodel:0:0 --json
has '"chips":' out
has '[]' out

# A page of another process is shown; the process is this shell's child.
if [ -n "${TXDA_HOLD:-}" ]; then
	"$TXDA_HOLD" >/dev/null &
	pid=$!
	# Its page is written a few times a second.
	i=0
	until holds_a_page 0 && holds_a_page 1; do
		i=$((i + 1))
		[ $i -lt 600 ] || fail "the holder's chips are not seen"
		kill -0 "$pid" || fail "the holder ended"
		sleep 0.1
	done
	expect 0 "table" -i "cmodel:$pid:1"
	has "cmodel:$pid:1" out
	has "holds chips" out
	awk 'length($0) > 80 { exit 1 }' "$dir/out" || fail "a line is longer than 80 columns"
	# Colours: on a terminal that has them, unless somebody wants none.
	for case in "1 TERM=xterm" "1 TERM=xterm NO_COLOR=" "0 TERM=xterm NO_COLOR=1" "0 TERM=dumb" "0 TERM=" "0 -u TERM"; do
		script -qec "env -u NO_COLOR ${case#* } $smi -i cmodel:$pid:1" /dev/null >"$dir/out" 2>"$dir/err" </dev/null
		has "cmodel:$pid:1" out
		[ "$(grep -c "$(printf '\033')" "$dir/out" | sed 's/[1-9].*/1/')" = "${case%% *}" ] || fail "colours with ${case#* }"
	done
	expect 0 "JSON" -i "cmodel:$pid:0" --json
	has '"schema_version":' out
	has '"purpose":' out
	has '"memory_used_bytes":' out
	expect 0 "CSV" query --fields=bus,memory_used_bytes,node -i "cmodel:$pid:0"
	has "cmodel:$pid:0,4096," out
	expect 1 "reset of a simulated chip" reset "cmodel:$pid:0"
	has "simulated" err
	expect 1 "events of a simulated chip" events -i "cmodel:$pid:0"
	has "simulated" err
	expect 0 "versions" query --fields=driver_version,firmware_version -i "cmodel:$pid:0"
	expect 0 "JSON query" query --fields=bus,node --format=json -i "cmodel:$pid:0"
	has '"node":	null' out
	expect 0 "JSON lines" --json --loop 0.05 --count 3 -i "cmodel:$pid:0"
	[ "$(wc -l <"$dir/out")" -eq 3 ] || fail "three lines are wanted"
	expect 0 "JSON lines of a query" query --fields=bus --json --loop 0.05 --count 3 -i "cmodel:$pid:0"
	[ "$(wc -l <"$dir/out")" -eq 3 ] || fail "three lines of a query are wanted"
	expect 0 "dmon" dmon --loop 0.05 --count 2 -i "cmodel:$pid:0"
	[ "$(wc -l <"$dir/out")" -eq 3 ] || fail "a title and two lines are wanted"
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	expect 3 "killed" -i "cmodel:$pid:0"
	pid=
fi
echo "ok: $n runs of txda-smi"
