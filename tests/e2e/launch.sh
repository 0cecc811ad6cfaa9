#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Launch lines that people have from other stacks of this chip and from vLLM, word for word but for paths and sockets.
set -eu
. "$(dirname "$0")/lib.sh"

TXDA_CMODEL=chips=4,mem=512M
export TXDA_CMODEL

# says WORDS...: the log does
says() {
	for words in "$@"; do
		grep -qF -- "$words" "$tmp/txdad.log" || fail "no '$words' in the log"
	done
}

# chips_of MODEL: the chips it is on, once it is loaded
is_ready() {
	http "http://localhost/v1/models/$1" | grep -q '"state":"ready"'
}
chips_of() {
	until_true 60 is_ready "$1" || fail "$1 is not loaded"
	http "http://localhost/v1/models/$1" | sed -n 's/.*"chips":\[\([0-9,]*\)\].*/\1/p'
}

# length MODEL: tokens of an answer whose request names none
length() {
	post /v1/completions "{\"model\":\"$1\",\"prompt\":\"Once upon a time\",\"ignore_eos\":true}" | member completion_tokens
}

# ---- this chip's own
start --hf_dir "$MODEL" --max_tokens 32 --tp_size 2 --device 2,3 --log_file "$tmp/tx8.log"
name=$(basename "$MODEL")
[ "$(chips_of "$name")" = 2,3 ] || fail "--device 2,3: on chips $(chips_of "$name")"
[ "$(length "$name")" = 32 ] || fail "--max_tokens 32: $(length "$name") tokens"
# A model from the cache is mapped, so SIGBUS (7) is handled.
[ $((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$daemon/status") & 0x40)) != 0 ] || fail "it was not mapped"
while IFS= read -r line; do
	grep -qF -- "Z txdad: $line" "$tmp/tx8.log" || fail "no '$line' in the log"
done <<END
Inference info:
| - hf_dir: $MODEL
| - case_dir: in the cache, compiled on first use
| - max_tokens: 32
| - tp_size: 2
| - ENV:TXDA_VISIBLE_DEVICES: Not specified
| - device: [2, 3]
| - log_file: $tmp/tx8.log
END
grep -q "Z txdad: model $name is ready" "$tmp/tx8.log" || fail "--log_file: $(cat "$tmp/tx8.log")"
# Rotated away: after SIGHUP lines go into a new one.
mv "$tmp/tx8.log" "$tmp/tx8.log.1"
kill -HUP "$daemon"
is_anew() {
	grep -qs 'the settings were reloaded' "$tmp/tx8.log"
}
until_true 60 is_anew || fail "no new log after SIGHUP: $(cat "$tmp/tx8.log.1")"
stop
grep -q 'stopped' "$tmp/tx8.log" || fail "the new log ends with $(tail -n 1 "$tmp/tx8.log")"

start --model "mapped=$MODEL" --map C4TP2B1 --model "turned=$MODEL" --tp-size 2 --device 1,0
case $(chips_of mapped) in
0,1 | 2,3) ;;
*) fail "--map C4TP2B1: on chips $(chips_of mapped)" ;;
esac
[ "$(chips_of turned)" = 1,0 ] || fail "--device 1,0: on chips $(chips_of turned)"
http http://localhost/v1/models/mapped >"$tmp/answer"
grep -q '"tp_size":2,"map":"C4TP2B1".*"max_num_seqs":1,' "$tmp/answer" || fail "--map: $(cat "$tmp/answer")"
stop

# ---- vLLM's
: >"$tmp/txdad.log"
start --model "$MODEL" --served-model-name assistant --tensor-parallel-size 2 --max-model-len 512 --max-num-seqs 8 \
	--max-num-batched-tokens 256 --enable-chunked-prefill --enforce-eager --enable-prefix-caching
says '--enable-chunked-prefill has no effect: prompts are always computed in chunks' \
	'--enforce-eager has no effect: programs are always compiled'
http http://localhost/v1/models/assistant >"$tmp/answer"
grep -q '"tp":2,' "$tmp/answer" || fail "--tensor-parallel-size 2: $(cat "$tmp/answer")"
[ "$(length assistant)" = 16 ] || fail "without --max-tokens: $(length assistant) tokens"
stop
"$TXDAD" serve "$MODEL" --served-model-name assistant --tensor-parallel-size 2 --enforce-eager --socket "$socket" 2>>"$tmp/txdad.log" &
daemon=$!
wait_healthy
[ "$(length assistant)" = 16 ] || fail "serve: no answer"
stop
# A case dir.
"$TXDA_COMPILE" "$MODEL" -o "$tmp/case" >"$tmp/answer" 2>&1
: >"$tmp/txdad.log"
start --model "compiled=$tmp/case"
says '| - model: compiled' '| - hf_dir: none' "| - case_dir: $tmp/case" '| - max_tokens: as each request says' '| - tp_size: as the model says' \
	'| - device: all that are visible'
stop

# ---- the environment
# DISABLE_CACHE: a directory of its own, which goes with the daemon, or with the next one when it was killed.
CACHE_DIRECTORY=$tmp/cache
in_cache() {
	find "$tmp/cache" -mindepth 1 -maxdepth 2 -printf '%y %m %P\n'
}
OMP_NUM_THREADS=1 DISABLE_CACHE=1 TXDA_VISIBLE_DEVICES=3,1 CHIP_MAP=1,0 start --model "m=$MODEL" --map C2TP2
[ "$(chips_of m)" = 1,0 ] || fail "CHIP_MAP=1,0: on chips $(chips_of m)"
says '| - ENV:TXDA_VISIBLE_DEVICES: 3,1' '| - chips: 2 (cmodel)' '| - device: map C2TP2' '| - tp_size: 2' '| - log_file: stderr'
in_cache >"$tmp/found"
[ "$(wc -l <"$tmp/found")" = 2 ] && [ "$(grep -c '^d 700 .txda-private-[^/]*$' "$tmp/found")" = 1 ] || fail "DISABLE_CACHE=1: $(cat "$tmp/found")"
stop
[ -z "$(in_cache)" ] || fail "DISABLE_CACHE=1 leaves $(in_cache)"
DISABLE_CACHE=true start --model "m=$MODEL"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
[ -n "$(in_cache)" ] || fail "DISABLE_CACHE=true: nothing is left of a killed daemon"
DISABLE_CACHE=0 start --model "m=$MODEL"
in_cache >"$tmp/found"
if grep -q private "$tmp/found" || ! grep -q '^d' "$tmp/found"; then
	fail "DISABLE_CACHE=0 after a killed daemon: $(cat "$tmp/found")"
fi
stop
for wrong in 'DISABLE_CACHE=maybe: must be 1 (yes, true, on) or 0' 'OMP_NUM_THREADS=0: must be a number of threads from 1'; do
	status=0
	env "${wrong%%:*}" "$TXDAD" --socket "$socket" --model "$MODEL" 2>"$tmp/err" || status=$?
	[ "$status" -ne 0 ] && grep -qF "$wrong" "$tmp/err" || fail "$wrong: status $status, $(cat "$tmp/err")"
done
# Cores that TXDA_CMODEL names are those that count.
OMP_NUM_THREADS=many TXDA_CMODEL=chips=1,mem=512M,cores=1 start --model "m=$MODEL"
stop

conclude
