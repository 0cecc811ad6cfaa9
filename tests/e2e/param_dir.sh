#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checkpoints whose config.json names a case dir: without safetensors they answer what the ones compiled by the daemon do, bit by bit.
# What does not fit is refused with both values. TXDA_COMPILE, TXDA_VERIFY and TXDA_RUN name the tools.
set -eu
. "$(dirname "$0")/lib.sh"

TXDA_CMODEL=chips=2,mem=512M
export TXDA_CMODEL

# config NAME PARAM_DIR MEMBERS: the model's config.json with param_dir and more
config() {
	mkdir -p "$tmp/$1"
	sed "1s|{|{ \"param_dir\": \"$2\", $3|" "$MODEL/config.json" >"$tmp/$1/config.json"
}

# As the vendors' tools lay it out: the tokeniser beside config.json, the case dir below. And the rest elsewhere altogether.
tp2='"tensor_parallel": {"use_tp": true, "parallel_size": 2},'
config one case '"tensor_parallel": {"use_tp": true, "parallel_size": 1},'
config two "$tmp/store" "$tp2"
cp "$MODEL/generation_config.json" "$MODEL/tokenizer.json" "$MODEL/tokenizer_config.json" "$tmp/one"
"$TXDA_COMPILE" "$MODEL" -q --tp 1 -o "$tmp/one/case"
"$TXDA_COMPILE" "$MODEL" -q --tp 2 -o "$tmp/store"
[ -z "$(find "$tmp/one" "$tmp/two" "$tmp/store" -name '*.safetensors')" ] || fail "there are safetensors"

# A cache that nothing can be compiled into.
mkdir "$tmp/no-cache"
same_cache=$CACHE_DIRECTORY
CACHE_DIRECTORY=$tmp/no-cache
start --kv-cache-memory 64M --model "one=$tmp/one" --max-model-len 99999 --model "two=$tmp/two" --tp-size 2
for name in one two; do
	ask "$name" >"$tmp/$name.answer"
	post /v1/chat/completions "{\"model\":\"$name\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a fox.\"}],\"max_tokens\":16,\"seed\":3}" |
		sed 's/.*"choices"/"choices"/; s/"usage".*//' >"$tmp/$name.chat"
done
http http://localhost/v1/models/one >"$tmp/answer"
grep -q '"max_model_len":2048.*"tp":1' "$tmp/answer" || fail "tp 1: $(cat "$tmp/answer")"
grep -q -- '--max-model-len is 99999, more than its maximum of 2048' "$tmp/txdad.log" || fail "nothing is said of --max-model-len"
http http://localhost/v1/models/two | grep -q '"tp":2' || fail "tp 2"
"$TXDACTL" --socket "$socket" --json plan two | grep -q '"exact":true' || fail "a plan that is not exact"
"$TXDA_RUN" --socket "$socket" --model two "Tell me of a fox." >"$tmp/tale" || fail "txda-run: exit status $?"
[ -s "$tmp/tale" ] || fail "txda-run says nothing"
[ -z "$(ls -A "$tmp/no-cache")" ] || fail "something was compiled: $(ls -A "$tmp/no-cache")"
stop

CACHE_DIRECTORY=$same_cache
start --kv-cache-memory 64M --model "one=$MODEL" --tp-size 1 --model "two=$MODEL" --tp-size 2
for name in one two; do
	ask "$name" | cmp - "$tmp/$name.answer" || fail "$name: other bits than from safetensors"
	post /v1/chat/completions "{\"model\":\"$name\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a fox.\"}],\"max_tokens\":16,\"seed\":3}" |
		sed 's/.*"choices"/"choices"/; s/"usage".*//' | cmp - "$tmp/$name.chat" || fail "$name: another chat than from safetensors"
done
for name in one two; do
	grep -q logprobs "$tmp/$name.answer" || fail "no answer: $(cat "$tmp/$name.answer")"
	grep -q content "$tmp/$name.chat" || fail "no answer: $(cat "$tmp/$name.chat")"
done
stop

# ---- what does not fit (more of it: test_param_dir) ---------------------------------------------------------------------------

# refuses WORDS OPTION...: the daemon does not start, and says why
refuses() {
	words=$1
	shift
	if timeout 60 "$TXDAD" --socket "$socket" "$@" >"$tmp/refused" 2>&1; then
		fail "$*: it ran"
	elif ! grep -qF -- "$words" "$tmp/refused"; then
		fail "$*: no '$words' in $(cat "$tmp/refused")"
	fi
}
refuses "one/case was compiled for 1 chip, not 2" --model "$tmp/one" --tp-size 2
config wrong "$tmp/one/case" "$tp2"
refuses "tensor_parallel.parallel_size is 2, but its param_dir $tmp/one/case was compiled for 1 chip" --model "$tmp/wrong"
# What fails when it is loaded: a tokeniser of another model, and what is not a case dir, of which the compiler speaks.
sed 's/"added_tokens": \[/&{"id": 200000, "content": "<|other|>", "special": true},/' "$MODEL/tokenizer.json" >"$tmp/wide.json"
config wide "$tmp/one/case" ''
cp "$tmp/wide.json" "$tmp/wide/tokenizer.json"
config missing nowhere ''
config number x ''
sed -i 's/"param_dir": "x"/"param_dir": 7/' "$tmp/number/config.json"
mkfifo "$tmp/fifo"
config pipe "$tmp/fifo" ''
"$TXDAD" --socket "$socket" --kv-cache-memory 64M --model "demo=$tmp/one" --model "wide=$tmp/wide" --load demand --model "missing=$tmp/missing" --load demand \
	--model "number=$tmp/number" --load demand --model "pipe=$tmp/pipe" --load demand 2>>"$tmp/txdad.log" &
daemon=$!
wait_healthy
for what in 'wide|200001 tokens' 'missing|nowhere' 'number|param_dir: not a string' 'pipe|fifo'; do
	expect 503 "${what#*|}" /v1/completions "{\"model\":\"${what%%|*}\",\"prompt\":\"Once\",\"max_tokens\":1}"
done
ask demo | grep -q logprobs || fail "the model beside them"
stop

# ---- the tools -----------------------------------------------------------------------------------

if "$TXDA_COMPILE" "$tmp/one" -o "$tmp/out" 2>"$tmp/said"; then
	fail "txda-compile compiled nothing"
fi
grep -qF "param_dir $tmp/one/case is a case dir for 1 chip" "$tmp/said" || fail "txda-compile: $(cat "$tmp/said")"
[ ! -e "$tmp/out" ] || fail "txda-compile wrote something"
ln -s "$MODEL/model.safetensors" "$tmp/one/model.safetensors"
"$TXDA_COMPILE" "$tmp/one" -o "$tmp/out" 2>"$tmp/said" || fail "txda-compile: $(cat "$tmp/said")"
grep -qF "the safetensors beside config.json are compiled" "$tmp/said" || fail "txda-compile says nothing: $(cat "$tmp/said")"
cmp "$tmp/out/chip0/param.bin" "$tmp/one/case/chip0/param.bin" || fail "compiled anew it is another"
rm "$tmp/one/model.safetensors"
odd="$tmp/$(printf 'a\377\302\205\033b')"
cp -r "$MODEL" "$odd"
"$TXDA_COMPILE" "$odd" -q -o "$tmp/named"
grep -qF '"a____b"' "$tmp/named/model_info.json" || fail "the name of a directory: $(grep name "$tmp/named/model_info.json")"
"$TXDA_VERIFY" "$tmp/two" --determinism >"$tmp/said" 2>&1 || fail "txda-verify: $(cat "$tmp/said")"
grep -q "the same bits" "$tmp/said" || fail "txda-verify: $(cat "$tmp/said")"
if "$TXDA_VERIFY" "$tmp/two" --determinism --weights w4 >"$tmp/said" 2>&1; then
	fail "txda-verify took other weights for w4"
fi
grep -qF "of the type bf16, not w4" "$tmp/said" || fail "txda-verify: $(cat "$tmp/said")"
# Nothing is left of what it compiles, when it ends and when it is ended.
mkdir "$tmp/temporary"
for signal in INT TERM HUP TERM HUP; do
	# Not in this shell's background, which ignores INT.
	TMPDIR=$tmp/temporary timeout -k 60 -s $signal 0.05 "$TXDA_VERIFY" "$MODEL" --determinism >/dev/null 2>&1 || true
	[ -z "$(ls -A "$tmp/temporary")" ] || fail "txda-verify leaves after $signal: $(ls -AR "$tmp/temporary")"
done
if TMPDIR=$(head -c 5000 /dev/zero | tr '\0' x) "$TXDA_VERIFY" "$MODEL" --determinism >"$tmp/said" 2>&1; then
	fail "txda-verify takes any TMPDIR"
fi
grep -qF "TMPDIR has 5000 bytes" "$tmp/said" || fail "txda-verify: $(cat "$tmp/said")"
conclude
