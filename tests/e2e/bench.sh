#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-bench serve against the daemon: the counts of its report; txda-bench model, and by the machine's
# ceilings. TXDA_BENCH is the program, DRAFT the directory of the model's draft, SEES one of a model that sees.
set -eu
. "$(dirname "$0")/lib.sh"

: "${TXDA_BENCH:?names the program txda-bench}" "${DRAFT:?names the directory of a draft model}" "${SEES:?names a model that sees}"
bench() {
	"$TXDA_BENCH" serve --socket "$socket" --model demo "$@"
}
# expect WHAT WANTED: a member of the report in $tmp/report
expect() {
	[ "$(member "$1" <"$tmp/report")" = "$2" ] || fail "$1 is $(member "$1" <"$tmp/report"), not $2: $(cat "$tmp/report")"
}

bench --requests 2 >"$tmp/report" 2>"$tmp/err" && fail "it succeeds without a daemon"
grep -q "cannot reach the server" "$tmp/err" || fail "without a daemon it says: $(cat "$tmp/err")"

# shellcheck disable=SC2119 # without options
start_daemon
bench --requests 12 --concurrency 5 --output 9 --json --csv "$tmp/csv" >"$tmp/report" || fail "closed loop: $(cat "$tmp/report")"
expect completed 12
expect output_tokens 108
[ "$(wc -l <"$tmp/csv")" = 13 ] || fail "the CSV has $(wc -l <"$tmp/csv") lines"
[ "$(awk -F, 'NR > 1 && $2 == 200 && $4 > 0 && $5 >= $4 && $8 == 9' "$tmp/csv" | wc -l)" = 12 ] || fail "$(cat "$tmp/csv")"
# One client, whose answer comes all the time between its first token and its last one.
bench --requests 1 --concurrency 1 --output 100 --json >"$tmp/report" || fail "one client"
awk -v full="$(member full_output_tokens_per_s <"$tmp/report")" -v all="$(member output_tokens_per_s <"$tmp/report")" 'BEGIN { exit !(full > all / 2 && all > 0) }' ||
	fail "one client: $(cat "$tmp/report")"
bench --requests 10 --rate 200 --output 3 --json >"$tmp/report" || fail "open loop"
expect completed 10
bench --workload shared-prefix --prefix 200 --prompt 4 --requests 4 --concurrency 1 --output 2 --json >"$tmp/report" || fail "shared prefix"
[ "$(member cached_tokens <"$tmp/report")" -gt 500 ] || fail "a shared prefix of 200 words: $(cat "$tmp/report")"
bench --workload multi-turn --turns 3 --requests 6 --concurrency 2 --output 20 --json >"$tmp/report" || fail "multi-turn"
[ "$(member cached_tokens <"$tmp/report")" -gt 100 ] || fail "conversations: $(cat "$tmp/report")"
bench --requests 3 --model nobody 2>"$tmp/err" && fail "an unknown model"
grep -q "status 404" "$tmp/err" || fail "an unknown model: $(cat "$tmp/err")"
bench --requests 3 --csv "$tmp/none/csv" >"$tmp/report" 2>"$tmp/err" && fail "a CSV that cannot be"
grep -qF "$tmp/none/csv: No such file" "$tmp/err" || fail "a CSV that cannot be: $(cat "$tmp/err")"
[ ! -s "$tmp/report" ] || fail "a CSV that cannot be is noticed after the run"
bench --requests 1 --output 2 --csv /dev/full >"$tmp/report" 2>"$tmp/err" && fail "a CSV that is lost"
grep -q "No space left" "$tmp/err" || fail "a CSV that is lost: $(cat "$tmp/err")"
for host in localhost localhost:99999 localhost:0 :80 "[::1]:http"; do
	"$TXDA_BENCH" serve --model demo --host "$host" 2>"$tmp/err" && status=0 || status=$?
	[ "$status" = 2 ] && grep -qF "not $host" "$tmp/err" || fail "--host $host: exit status $status, $(cat "$tmp/err")"
done
TXDA_BACKEND=cmodel TXDA_CMODEL=chips=0 "$TXDA_BENCH" device 2>"$tmp/err" && fail "no chips"
grep -q "chips=0" "$tmp/err" || fail "no chips: $(cat "$tmp/err")"
bench --workload odd 2>"$tmp/err" && fail "an unknown workload"
bench --rate -1 2>"$tmp/err" && fail "a negative rate"
grep -q -- "--rate -1: must be from 0" "$tmp/err" || fail "a negative rate: $(cat "$tmp/err")"

"$TXDAD" --draft-model "$DRAFT" 2>"$tmp/err" && fail "a draft model for no model"
grep -q "must follow the --model" "$tmp/err" || fail "a draft model for no model: $(cat "$tmp/err")"
"$TXDAD" --model "demo=$MODEL" --draft-model "$tmp/none" --socket "$tmp/other.sock" 2>"$tmp/err" && fail "a draft that is not there"
grep -q "$tmp/none" "$tmp/err" || fail "a draft that is not there: $(cat "$tmp/err")"

# Models by shape, without a server.
"$TXDA_BENCH" model --dir "$tmp/cases" --csv --batch 1,3 --input 20,70 --output 5 "$MODEL" >"$tmp/csv" 2>"$tmp/err" || fail "model: $(cat "$tmp/err")"
[ "$(awk -F, 'NR > 1 && $3 == 1 && $6 == 5 && $7 > 0 && $8 > 0' "$tmp/csv" | wc -l)" = 4 ] || fail "four shapes: $(cat "$tmp/csv")"
"$TXDA_BENCH" model --dir "$tmp/cases" --batch 300 "$MODEL" >"$tmp/csv" 2>"$tmp/err" || fail "too large a batch ends it"
grep -q "300 sequences" "$tmp/err" || fail "too large a batch: $(cat "$tmp/err")"
"$TXDA_BENCH" model --batch 0 2>"$tmp/err" && fail "a batch of 0"
grep -q '"0" is wrong' "$tmp/err" || fail "a batch of 0: $(cat "$tmp/err")"
"$TXDA_BENCH" model --dir "$tmp/cases" nothing 2>"$tmp/err" && fail "no such model"

# Beside the machine's ceilings: every shape that is asked for, an image, ratios to an earlier run
# and to another engine.
"$TXDA_BENCH" model --dir "$tmp/sees" --csv --batch 2 --input 20 --output 3 "$SEES" >"$tmp/csv" 2>"$tmp/err" || fail "a model that sees: $(cat "$tmp/err")"
roof() {
	"$TXDA_BENCH" --prompt 8 --gen 2 --batch 1,3 --context 5 --image 100x60 "$@" "$tmp"/sees/*
}
# Each path beside its own instructions.
for path in avx2:vfmadd231ps.ymm avxvnni:vfmadd231ps.ymm avx512:vfmadd231ps.zmm avx512bf16:vdpbf16ps.zmm amx:tdpbf16ps; do
	if ! TXDA_CMODEL=isa=${path%:*} "$TXDA_BENCH" --ceilings >"$tmp/report" 2>"$tmp/err"; then
		# A CPU without the path has no such device.
		grep -q "isa=${path%:*}) did not start: Operation not supported" "$tmp/err" || fail "--ceilings of ${path%:*}: $(cat "$tmp/err")"
		continue
	fi
	grep -q "device:  TX8 (cmodel, ${path%:*})" "$tmp/report" || fail "--ceilings of ${path%:*}: $(cat "$tmp/report")"
	grep -q "(${path#*:})" "$tmp/report" || fail "the ceiling of ${path%:*}: $(cat "$tmp/report")"
done
roof --json >"$tmp/earlier" 2>"$tmp/err" || fail "ceilings: $(cat "$tmp/err")"
for what in 'prefill","batch":1,"tokens":8,' 'decode","batch":1,"tokens":1,"context":5,' 'decode","batch":3,"tokens":1,"context":5,' \
	'image","batch":1,"tokens":24,' 'first token","batch":1,"tokens":56,'; do
	[ "$(grep -c "\"what\":\"$what" "$tmp/earlier")" = 1 ] || fail "no $what in $(cat "$tmp/earlier")"
done
[ "$(grep -o '"roofline":[0-9.]*' "$tmp/earlier" | grep -cv ':0.000')" = 4 ] || fail "shares of the roofline: $(cat "$tmp/earlier")"
roof --compare "$tmp/earlier" --ops >"$tmp/report" 2>"$tmp/err" || fail "--compare: $(cat "$tmp/err")"
[ "$(grep -c "times as fast as in the earlier run" "$tmp/report")" = 4 ] || fail "ratios: $(cat "$tmp/report")"
grep -q "SPAN_ATTENTION layers.attn" "$tmp/report" || fail "no ops of the image: $(cat "$tmp/report")"
roof --compare "$tmp/csv" 2>"$tmp/err" && fail "it compares with a file of something else"
grep -q "$tmp/csv" "$tmp/err" || fail "a file of something else: $(cat "$tmp/err")"
roof --image 5 2>"$tmp/err" && fail "an image of one side"
grep -q '"5" is not WIDTHxHEIGHT' "$tmp/err" || fail "an image of one side: $(cat "$tmp/err")"
TXDA_CMODEL=cores=2000 "$TXDA_BENCH" --ceilings --json >"$tmp/report" 2>"$tmp/err" && fail "ceilings of a device that cannot be opened"
grep -q "cores=2000: must be a number up to 1024" "$tmp/err" || fail "a device that cannot be opened: $(cat "$tmp/err")"
[ ! -s "$tmp/report" ] || fail "a device that cannot be opened is reported: $(cat "$tmp/report")"
cat >"$tmp/peer" <<'EOF'
#!/bin/sh
echo "$*" >>"${0%/*}/asked"
printf '[{"n_prompt": %s, "n_gen": %s, "avg_ts": %s}]\n' "$3" "$5" "$1"
EOF
chmod +x "$tmp/peer"
roof --peer "$tmp/peer 50" --compare "$tmp/earlier" --prompt 9,40 --batch 1 --image 32x32 >"$tmp/report" 2>"$tmp/err" || fail "--peer: $(cat "$tmp/err")"
[ "$(grep -c "the peer 50.0: .* times as fast" "$tmp/report")" = 3 ] || fail "beside another engine: $(cat "$tmp/report")"
[ "$(grep -c "^50 -p 40 -n 0 -r 1 -o json$" "$tmp/asked")" = 3 ] || fail "what another engine is asked: $(cat "$tmp/asked")"
grep -A 1 "image .* 4 tokens" "$tmp/report" | grep -q "not in the earlier run" || fail "another image: $(cat "$tmp/report")"
for command in "$tmp/peer 0" false; do
	roof --peer "$command" --batch 1 >"$tmp/report" 2>"$tmp/err" && fail "another engine that does nothing: $command"
	grep -q "peer: \"$command" "$tmp/err" || fail "another engine that does nothing: $(cat "$tmp/err")"
done

conclude
