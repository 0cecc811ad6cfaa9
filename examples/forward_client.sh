#!/bin/sh
# SPDX-License-Identifier: MIT
#
# forward_client.sh TXDA-COMPILE TWO_PROGRAMS TXDAD FORWARD_CLIENT TESTS - runs the example, and holds
# what it says against a program that has the model in its own process.
set -eu
compile=$1
alone=$2
txdad=$3
client=$4
tests=$5
dir=$(mktemp -d)
daemon=
finish() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM

export TXDA_CMODEL=chips=1,mem=1G,cores=2
prompt="17 4 250 33 8 91 5 12 77 140 6 2 19 301 44 23 10 9 57 81 3 64 99 150 35 7"
"$compile" "$tests/models/demo" -q -o "$dir/case" --max-seqs 16 --max-tokens 256
# shellcheck disable=SC2086 # words are tokens
wanted=$("$alone" "$dir/case" $prompt)
"$txdad" --model "demo=$dir/case" --socket "$dir/s" 2>"$dir/log" &
daemon=$!
tries=0
# shellcheck disable=SC2086
until got=$("$client" "$dir/s" demo $prompt 2>"$dir/words"); do
	tries=$((tries + 1))
	if [ $tries -gt 300 ] || ! kill -0 "$daemon"; then
		cat "$dir/words" "$dir/log"
		exit 1
	fi
	sleep 0.1
done
echo "$got"
if [ "$got" != "$wanted" ]; then
	echo "FAIL: in its own process the model says $wanted"
	exit 1
fi
echo "all checks passed"
