#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench-serve.sh - what the server costs: tokens a second of STREAMS (16 64) clients of the daemon with the demo model, against the
# same batch in txda-bench model, which has no server. Runs are in PAIRS (5), one right after the other, and the median of the
# pairs' ratios is given, since machines are shared. OUTPUT (128) tokens for each client.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
: "${PAIRS:=5}" "${STREAMS:=16 64}" "${OUTPUT:=128}" "${INPUT:=16}" "${MODEL:=tests/models/demo}"
tmp=$(mktemp -d)
daemon=
finish() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	wait
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 1' INT TERM

"$B/daemon/txdad" --model "demo=$MODEL" --socket "$tmp/s" --no-access-log --cache-dir "$tmp/cache" 2>"$tmp/log" &
daemon=$!
tries=0
until curl -sf -o /dev/null --unix-socket "$tmp/s" http://localhost/health; do
	tries=$((tries + 1))
	if [ $tries -gt 600 ] || ! kill -0 "$daemon"; then
		cat "$tmp/log"
		exit 1
	fi
	sleep 0.1
done

# All requests begin at once and are of one length: the batch is full until the end. What decodes is compared, from the first
# token to the last one, as both programs report it.
serve() {
	"$B/tools/bench/txda-bench" serve --socket "$tmp/s" --model demo --requests "$1" --concurrency "$1" --prompt "$INPUT" \
		--output "$OUTPUT" --csv "$tmp/csv" --json >"$tmp/report"
	awk -F, 'NR > 1 { tokens += $8 - 1; a = $3 * 1000; if (!first || a + $4 < first) first = a + $4; if (a + $5 > last) last = a + $5 }
		END { printf "%.1f\n", tokens * 1000 / (last - first) }' "$tmp/csv"
}
model() {
	"$B/tools/bench/txda-bench" model --dir "$tmp/cases" --csv --batch "$1" --input "$INPUT" --output "$OUTPUT" "$MODEL" 2>/dev/null |
		awk -F, 'NR == 2 { print $8 }'
}

for streams in $STREAMS; do
	serve "$streams" >/dev/null
	i=0
	: >"$tmp/ratios"
	while [ $i -lt "$PAIRS" ]; do
		a=$(model "$streams")
		b=$(serve "$streams")
		echo "$a $b" | awk -v n="$streams" '{ printf "%d streams: %.0f tok/s without the server, %.0f through it, ratio %.3f\n", n, $1, $2, $2 / $1 }'
		echo "$a $b" | awk '{ printf "%.4f\n", $2 / $1 }' >>"$tmp/ratios"
		i=$((i + 1))
	done
	sort -n "$tmp/ratios" | awk -v n="$streams" '{ r[NR] = $1 } END { printf "%d streams: median ratio %.3f of %d pairs\n", n, r[int((NR + 1) / 2)], NR }'
done
