#!/bin/sh
# SPDX-License-Identifier: MIT
#
# reference.sh LEVEL STAGE - what models compute on the device model in-process: with the programs of build/check
# compiles models into STAGE/cases/NAME, and writes to STAGE/bits/NAME how txda-verify was asked (the first line) and the
# checksum of all its logits; to STAGE/text/NAME what the daemon writes when it is asked STAGE/text/question. In a
# guest the same questions, asked of chips that this same machine models, must have the same answers.
# For LEVEL check that is one model on two chips, for full all of them. Nothing is done again for the same programs.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
level=$1 stage=$2 bin=$B/check/bin
now="$level $(cat "$bin/txda-compile" "$bin/txda-verify" "$bin/txdad" | sha256sum)"
case $(cat "$vm/reference" 2>/dev/null) in "$now" | "full ${now#* }") exit 0 ;; esac
rm -rf "$vm/reference" "$stage/cases" "$stage/bits" "$stage/text"
mkdir -p "$stage/cases" "$stage/bits" "$stage/text"
export TXDA_BACKEND=cmodel TXDA_CMODEL=chips=4,mem=512M

# reference NAME MODEL COMPILE-OPTIONS QUESTION
reference() {
	# shellcheck disable=SC2086 # options are words
	"$bin/txda-compile" -q "$top/tests/$2" -o "$stage/cases/$1" $3
	# The question names files as a guest sees them.
	# shellcheck disable=SC2046,SC2086
	"$bin/txda-verify" "$stage/cases/$1" $(echo "$4" | sed "s,/t/,$top/tests/,") --bits >"$stage/log" || { cat "$stage/log"; exit 1; }
	{
		echo "$4"
		grep '^bits ' "$stage/log"
	} >"$stage/bits/$1"
}

cat >"$stage/text/question" <<'END'
{"prompt": "Once upon a time, in a dark wood,", "max_tokens": 150, "temperature": 0, "ignore_eos": true}
END

# text NAME
text() {
	"$bin/txdad" --model demo="$stage/cases/$1" --max-num-seqs 4 --socket "$stage/socket" 2>"$stage/log" &
	daemon=$!
	until curl -fsS --unix-socket "$stage/socket" -H 'Content-Type: application/json' -d @"$stage/text/question" \
		http://localhost/v1/completions >"$stage/answer" 2>/dev/null; do
		kill -0 $daemon || { cat "$stage/log"; exit 1; }
		sleep 0.2
	done
	kill $daemon
	wait $daemon
	sed 's/.*"text":"\(.*\)","logprobs".*/\1/' "$stage/answer" >"$stage/text/$1"
}

demo="--ppl /t/models/heldout.txt --window 64"
reference demo-tp2 models/demo "--tp 2" "$demo"
text demo-tp2
if [ "$level" = full ]; then
	reference demo-tp1 models/demo "--tp 1" "$demo"
	text demo-tp1
	reference demo-tp4 models/demo "--tp 4" "$demo"
	reference demo-w4 models/demo "--weights w4" "$demo"
	for tp in 1 2; do
		reference qwen3-tp$tp fixtures/qwen3 "--tp $tp" "/t/fixtures/qwen3/golden.safetensors"
	done
fi
rm -f "$stage/log" "$stage/answer" "$stage/socket"
echo "$now" >"$vm/reference"
