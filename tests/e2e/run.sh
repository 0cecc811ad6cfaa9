#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-run against a daemon. TXDA_RUN is the program.
set -eu
. "$(dirname "$0")/lib.sh"

: "${TXDA_RUN:?names the program txda-run}"
run() {
	"$TXDA_RUN" --socket "$socket" "$@"
}

if run Hello 2>"$tmp/err"; then
	fail "it answers without a daemon"
fi
grep -q "no daemon listens on $socket" "$tmp/err" || fail "without a daemon it says: $(cat "$tmp/err")"
grep -q "txdad --model" "$tmp/err" || fail "it does not say how to start one"

start_daemon
[ "$(run --list)" = demo ] || fail "--list: $(run --list)"

run --stats -n 12 --seed 5 Tell me of a fox. >"$tmp/out" 2>"$tmp/err" || fail "one question: $(cat "$tmp/err")"
[ -s "$tmp/out" ] || fail "no answer"
# There is no TPS where a busy machine hands all tokens over in one piece.
grep -Eq '^FTL [0-9.]+ ms(, TPS [0-9.]+ tokens/s)? \([0-9]+ prompt tokens, [0-9]+ generated' "$tmp/err" || fail "--stats: $(cat "$tmp/err")"
run --stats -n 200 --seed 5 Tell me of a fox. 2>"$tmp/err" >/dev/null || fail "a long answer: $(cat "$tmp/err")"
grep -q ', TPS [0-9.]* tokens/s (' "$tmp/err" || fail "--stats of a long answer: $(cat "$tmp/err")"
# The same from standard input, and by another socket's name.
echo "Tell me of a fox." | TXDA_SOCKET=$socket "$TXDA_RUN" -n 12 --seed 5 >"$tmp/again" || fail "from standard input"
printf 'Tell me of a fox.' | run -n 12 --seed 5 >"$tmp/exact"
cmp -s "$tmp/out" "$tmp/exact" || fail "the same question, another answer: $(cat "$tmp/out" "$tmp/exact")"
[ -s "$tmp/again" ] || fail "no answer to a line"
run --raw -n 5 --temperature 0 "Once upon a time" >"$tmp/raw" || fail "--raw"
post /v1/completions '{"prompt":"Once upon a time","max_tokens":5,"temperature":0}' | member text | sed 's/^"//; s/"$//' >"$tmp/text"
[ "$(cat "$tmp/raw")" = "$(cat "$tmp/text")" ] || fail "--raw says $(cat "$tmp/raw"), the API $(cat "$tmp/text")"

# A word like a path that is none is a prompt, and told to be one; what is a model and cannot be read is no prompt.
run -n 2 models/dmeo >"$tmp/out" 2>"$tmp/err" || fail "a prompt like a path: $(cat "$tmp/err")"
grep -qx 'txda-run: note: there is no model in models/dmeo; it is sent as the prompt' "$tmp/err" || fail "no note: $(cat "$tmp/err")"
run -n 2 'and/or is a word' >"$tmp/out" 2>"$tmp/err" || fail "a prompt with a slash: $(cat "$tmp/err")"
[ ! -s "$tmp/err" ] || fail "a note: $(cat "$tmp/err")"
mkdir "$tmp/models"
ln -s gone "$tmp/models/config.json"
(cd "$tmp" && run models Hello) >"$tmp/out" 2>"$tmp/err" && fail "a model that cannot be read"
grep -q '/models/config.json is a link to a file that does not exist$' "$tmp/err" || fail "a dangling config.json: $(cat "$tmp/err")"

run --model nobody Hello 2>"$tmp/err" && fail "an unknown model"
grep -q 'served are: demo' "$tmp/err" || fail "an unknown model: $(cat "$tmp/err")"
run --temperature 9 Hello 2>"$tmp/err" && fail "--temperature 9"
grep -q 'between 0 and 2, not 9' "$tmp/err" || fail "--temperature 9: $(cat "$tmp/err")"
run --seed abc Hello 2>"$tmp/err" && fail "--seed abc"
grep -q -- "--seed must be a number, not 'abc'" "$tmp/err" || fail "--seed abc: $(cat "$tmp/err")"
printf '' | run 2>"$tmp/err" && fail "an empty prompt"
run <"$tmp" 2>"$tmp/err" && fail "a directory as a prompt"
grep -q "cannot read standard input: Is a directory" "$tmp/err" || fail "a directory as a prompt: $(cat "$tmp/err")"
latin=$(printf 'caf\351')
printf '%s' "$latin" | run 2>"$tmp/err" && fail "a prompt in Latin-1"
grep -qF "the prompt is not UTF-8 (byte 0xe9 at offset 3)" "$tmp/err" || fail "a prompt in Latin-1: $(cat "$tmp/err")"
for option in --prompt --system; do
	echo Hello | run $option "$latin" 2>"$tmp/err" && status=0 || status=$?
	[ $status -eq 2 ] || fail "$option in Latin-1: status $status"
done
run --help | grep -q Usage || fail "--help"

# What nobody receives is no success; and a closed standard output is not the socket.
lost() {
	words=$1
	shift
	"$@" 2>"$tmp/err" && fail "$*: lost output is a success"
	grep -qF "cannot write to standard output: $words" "$tmp/err" || fail "$*: $(cat "$tmp/err")"
}
lost "No space left on device" run --list >/dev/full
for command in models "--json models" devices requests health; do
	# shellcheck disable=SC2086 # words
	lost "No space left on device" "$TXDACTL" --socket "$socket" $command >/dev/full
done
lost "Bad file descriptor" "$TXDACTL" --socket "$socket" models >&-
run -n 3 Hello >&- 2>"$tmp/err" && fail "an answer without standard output"
run -n 3 Hello >/dev/full 2>"$tmp/err" && fail "an answer on a full disk"

# Ctrl-C stops an answer and ends a single question; the daemon sees it.
run --raw -n 1500 "Once upon a time" >"$tmp/out" 2>&1 &
client=$!
until_true 60 test -s "$tmp/out" || fail "no stream"
kill -INT "$client" 2>/dev/null || true
wait "$client" && status=0 || status=$?
case $status in 0 | 130) ;; *) fail "exit status $status after Ctrl-C" ;; esac
conclude
