#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-bench serve against the daemon: the counts of its report, with and without speculation; txda-bench model. TXDA_BENCH is the program, DRAFT the
# directory of the model's draft.
set -eu
. "$(dirname "$0")/lib.sh"

: "${TXDA_BENCH:?names the program txda-bench}" "${DRAFT:?names the directory of a draft model}"
bench() {
	"$TXDA_BENCH" serve --socket "$socket" --model demo "$@"
}
metric() {
	http http://localhost/metrics | sed -n "s/^txda_$1{[^}]*} //p"
}
# expect WHAT WANTED: a member of the report in $tmp/report
expect() {
	[ "$(member "$1" <"$tmp/report")" = "$2" ] || fail "$1 is $(member "$1" <"$tmp/report"), not $2: $(cat "$tmp/report")"
}

bench --requests 2 >"$tmp/report" 2>"$tmp/err" && fail "it succeeds without a daemon"
grep -q "cannot reach the server" "$tmp/err" || fail "without a daemon it says: $(cat "$tmp/err")"

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
bench --workload odd 2>"$tmp/err" && fail "an unknown workload"
bench --rate -1 2>"$tmp/err" && fail "a negative rate"
grep -q -- "--rate must be from 0" "$tmp/err" || fail "a negative rate: $(cat "$tmp/err")"

# The same answers whoever proposes tokens.
ask() {
	post /v1/completions '{"prompt":"Once upon a time","max_tokens":200,"temperature":'"$1"',"seed":3,"ignore_eos":true}' | member text
}
again() {
	stop
	start_daemon "$@"
}
ask 0 >"$tmp/greedy"
ask 0.7 >"$tmp/sampled"
[ "$(metric spec_decode_num_drafts_total)" = 0 ] || fail "proposals without speculation"
for how in "--speculative ngram" "--draft-model $DRAFT --num-speculative-tokens 3"; do
	# shellcheck disable=SC2086 # words
	again $how
	ask 0 | cmp -s - "$tmp/greedy" || fail "$how changes a greedy answer"
	ask 0.7 | cmp -s - "$tmp/sampled" || fail "$how changes a sampled answer"
	[ "$(metric spec_decode_num_accepted_tokens_total)" -gt 10 ] || fail "$how: $(http http://localhost/metrics | grep spec_decode)"
done
"$TXDAD" --draft-model "$DRAFT" 2>"$tmp/err" && fail "a draft model for no model"
grep -q "comes after the --model" "$tmp/err" || fail "a draft model for no model: $(cat "$tmp/err")"
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

conclude
