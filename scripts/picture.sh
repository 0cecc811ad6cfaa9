#!/bin/sh
# SPDX-License-Identifier: MIT
#
# picture.sh [FILE] - README's picture of a terminal, an SVG in FILE (docs/pictures/terminal.svg): the programs in build/bin run in a
# terminal of 80 columns, and what they wrote is drawn. The tale is the same each time on processors of one kind.
set -eu
cd "$(dirname "$0")/.."
picture=${1:-docs/pictures/terminal.svg}
PATH=$(cd "${B:=build}" && pwd)/bin:$PATH
tmp=$(mktemp -d)
TXDA_SOCKET=$tmp/txda.sock
TXDA_BACKEND=cmodel
# Its chip is the first one, whoever else simulates some.
XDG_RUNTIME_DIR=$tmp
export PATH TXDA_SOCKET TXDA_BACKEND XDG_RUNTIME_DIR
jobs=
cleanup() {
	for pid in $jobs; do
		kill "$pid" 2>/dev/null || true
	done
	# shellcheck disable=SC2086 # numbers
	[ -z "$jobs" ] || wait $jobs || true
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# show COMMAND - adds it, and what it writes in a terminal, to the picture.
show() {
	printf '\033[32m$\033[0m \033[1m%s\033[0m\n' "$1" >>"$tmp/screen"
	script -qec "stty cols 80; $1" /dev/null </dev/null >"$tmp/out"
	tr -d '\r' <"$tmp/out" >>"$tmp/screen"
}

CACHE_DIRECTORY=$tmp/cache txdad --model demo=tests/models/demo --socket "$TXDA_SOCKET" >"$tmp/log" 2>&1 &
jobs=$!
until [ -S "$TXDA_SOCKET" ]; do
	kill -0 $jobs || { cat "$tmp/log"; exit 1; }
	sleep 0.1
done
prompt='Once upon a time there was a fox'
txda-run -n 1 "$prompt" >/dev/null 2>&1 # the model is there
show "txda-run --raw -n 200 --seed 4 '$prompt'"

# Until the chip is busy: the table shows the mean of the last second.
for i in 1 2 3 4 5 6 7 8; do
	(while txda-run --raw -n 400 --seed "$i" "$prompt" >/dev/null 2>&1; do :; done) &
	jobs="$jobs $!"
done
tries=0
until txda-smi query -i 0 --fields=utilisation_percent | awk 'END { exit $1 < 80 }' || [ $tries -gt 100 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
show 'txda-smi -i 0'

awk -f scripts/terminal-svg.awk "$tmp/screen" >"$tmp/svg"
mkdir -p "$(dirname "$picture")"
cp "$tmp/svg" "$picture"
echo "$picture"
