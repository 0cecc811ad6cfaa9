#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench-serve.sh - what the server costs: tokens a second of STREAMS (16 64) clients of the daemon with the demo model, against the
# same batch in txda-bench model, which has no server. Runs are in PAIRS (5), one right after the other, and the median of the
# pairs' ratios is given, since machines are shared. OUTPUT (512) tokens for each client.
# MODEL=qwen3-0.6b OUTPUT=64: a made-up model of that shape, its weights WEIGHTS (w8).
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
: "${PAIRS:=5}" "${STREAMS:=16 64}" "${OUTPUT:=512}" "${INPUT:=16}" "${MODEL:=tests/models/demo}"
tmp=$(mktemp -d)
daemon=
finish() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	wait
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 1' INT TERM

# A made-up model has no tokenizer: it gets the demo's, and a word for each of the many ids that this one does not have.
if [ ! -d "$MODEL" ]; then
	"$B/bin/txda-compile" --synthetic "$MODEL" --weights "${WEIGHTS:-w8}" -q -o "$tmp/model"
	python3 - tests/models/demo/tokenizer.json "$tmp/model" <<-'EOF'
		import json, sys
		tokenizer = json.load(open(sys.argv[1]))
		vocab = tokenizer["model"]["vocab"]
		known = set(vocab.values()) | {t["id"] for t in tokenizer["added_tokens"]}
		size = json.load(open(sys.argv[2] + "/config.json"))["vocab_size"]
		vocab.update({f"word{i}": i for i in range(size) if i not in known})
		json.dump(tokenizer, open(sys.argv[2] + "/tokenizer.json", "w"))
	EOF
	MODEL=$tmp/model
fi

"$B/bin/txdad" --model "demo=$MODEL" --socket "$tmp/s" --no-access-log --cache-dir "$tmp/cache" 2>"$tmp/log" &
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

# Only the time counts in which all clients have an answer coming: the batch is full then, as it is in txda-bench model.
# On a busy machine a client may find its whole answer when it gets to read: then all are asked again.
serve() {
	tries=3
	until
		"$B/bin/txda-bench" serve --socket "$tmp/s" --model demo --requests "$1" --concurrency "$1" --prompt "$INPUT" \
			--output "$OUTPUT" --json >"$tmp/report" && grep -q full_output_tokens_per_s "$tmp/report"
	do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || {
			echo "$1 clients never had an answer coming all at once: OUTPUT=$OUTPUT is too little" >&2
			return 1
		}
	done
	sed -n 's/.*"full_output_tokens_per_s":\([0-9.]*\).*/\1/p' "$tmp/report"
}
model() {
	"$B/bin/txda-bench" model --dir "$tmp/cases" --csv --batch "$1" --input "$INPUT" --output "$OUTPUT" "$MODEL" 2>/dev/null |
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
