#!/bin/sh
# SPDX-License-Identifier: MIT
#
# reference.sh BIN TREE STAGE - what models compute on the device model in-process: with the programs
# in BIN compiles models of the sources in TREE into STAGE/cases/NAME, and writes to STAGE/bits/NAME
# how txda-verify was asked (the first line) and the checksum of all its logits; to STAGE/text/NAME
# what the daemon writes when it is asked STAGE/text/question. In a guest the same questions, asked of
# chips that this same machine models, must have the same answers.
set -eu
bin=$1 tree=$2 stage=$3
rm -rf "$stage/cases" "$stage/bits" "$stage/text"
mkdir -p "$stage/cases" "$stage/bits" "$stage/text"
export TXDA_BACKEND=cmodel TXDA_CMODEL=chips=4,mem=512M

# reference NAME MODEL COMPILE-OPTIONS QUESTION
reference() {
	# shellcheck disable=SC2086 # options are words
	"$bin/txda-compile" "$tree/tests/$2" -o "$stage/cases/$1" $3 >"$stage/bits/log" 2>&1 ||
		{ cat "$stage/bits/log"; exit 1; }
	# The question names files as a guest sees them.
	# shellcheck disable=SC2046,SC2086
	"$bin/txda-verify" "$stage/cases/$1" $(echo "$4" | sed "s,/t/,$tree/tests/,") --bits >"$stage/bits/log" ||
		{ cat "$stage/bits/log"; exit 1; }
	{
		echo "$4"
		grep '^bits ' "$stage/bits/log"
	} >"$stage/bits/$1"
}

for tp in 1 2 4; do
	reference demo-tp$tp models/demo "--tp $tp" "--ppl /t/models/heldout.txt --window 64"
done
reference demo-w4 models/demo "--weights w4" "--ppl /t/models/heldout.txt --window 64"
for tp in 1 2; do
	reference qwen3-tp$tp fixtures/qwen3 "--tp $tp" "/t/fixtures/qwen3/golden.safetensors"
done
rm "$stage/bits/log"

cat >"$stage/text/question" <<'END'
{"prompt": "Once upon a time, in a dark wood,", "max_tokens": 150, "temperature": 0, "ignore_eos": true}
END
for tp in 1 2; do
	socket=$stage/text/socket
	"$bin/txdad" --model demo="$stage/cases/demo-tp$tp" --max-num-seqs 4 --socket "$socket" 2>"$stage/text/log" &
	daemon=$!
	tries=0
	until curl -fsS --unix-socket "$socket" -H 'Content-Type: application/json' -d @"$stage/text/question" \
		http://localhost/v1/completions >"$stage/text/answer" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { cat "$stage/text/log"; exit 1; }
		sleep 0.2
	done
	kill $daemon
	wait $daemon || true
	sed 's/.*"text":"\(.*\)","logprobs".*/\1/' "$stage/text/answer" >"$stage/text/demo-tp$tp"
done
rm -f "$stage/text/log" "$stage/text/answer" "$socket"
