#!/bin/sh
# SPDX-License-Identifier: MIT
#
# txda-run with a model's directory: a private daemon, a chat at a terminal, and nothing left behind whatever happens.
# TXDA_RUN, TXDAD and TXDA_COMPILE are under test; FAKE is the daemon with a fake engine.
set -eu
. "$(dirname "$0")/lib.sh"

: "${TXDA_RUN:?names the program txda-run}" "${TXDA_COMPILE:?names the program txda-compile}"
: "${FAKE:?names the daemon with a fake engine}"
here=$(cd "$(dirname "$0")" && pwd)
# Everything that a user has is below $tmp, the programs too, to distinguish what this test leaves
# behind from others' files.
mkdir -m 700 "$tmp/bin" "$tmp/runtime" "$tmp/tmp" "$tmp/state" "$tmp/held" "$tmp/empty" "$tmp/it's a model"
cp "$TXDA_RUN" "$tmp/bin/txda-run"
cp "$TXDAD" "$tmp/bin/txdad"
cp "${TXDAD%/*}/txdad-text" "$tmp/bin/txdad-text"
cp "$TXDA_COMPILE" "$tmp/bin/txda-compile"
model="$tmp/it's a model"
cp "$MODEL"/* "$model/"
export XDG_RUNTIME_DIR="$tmp/runtime" TMPDIR="$tmp/tmp" XDG_STATE_HOME="$tmp/state" HOME="$tmp" TERM=xterm LC_ALL=C.UTF-8
# The other tests' cache has what they are compiling at this moment.
CACHE_DIRECTORY="$tmp/cache"
unset TXDA_SOCKET NO_COLOR EDITRC || true
run="$tmp/bin/txda-run"
export model run tmp
cd "$tmp"

# Processes with a path of this test's among their arguments, other than the shell that asks.
ours() {
	pgrep -f "^([^ ]*/)?(txdad|txda-run|txda-compile|tail) .*$tmp" || true
}
# shellcheck disable=SC2317 # until_true calls it
nobody() {
	[ -z "$(ours)" ]
}
# Nothing is left: no process, and no file but the library's own directory, which is empty.
nothing() {
	until_true 60 nobody || fail "$1: left running: $(ps -o pid=,args= -p "$(ours | paste -s -d ,)")"
	left=$(find "$tmp/runtime" "$tmp/tmp" -mindepth 1 ! -path "$tmp/runtime/txda")
	[ -z "$left" ] || fail "$1: left in the file system: $left"
	left=$(find "$CACHE_DIRECTORY" "$tmp/held" -mindepth 1 -maxdepth 1 -name '.*' 2>/dev/null || true)
	[ -z "$left" ] || fail "$1: left in the cache: $left"
}
# terminal COMMAND... <SCRIPT
terminal() {
	python3 "$here/terminal.py" "$@" >"$tmp/terminal" || fail "at the terminal: $(cat "$tmp/terminal")"
}
chat() {
	terminal "$run" "$model" --seed 5 "$@"
}

# ---- one question, no terminal

"$run" "$model" --seed 5 -n 12 --stats Tell me of a fox. >"$tmp/out" 2>"$tmp/err" || fail "one question: $(cat "$tmp/err")"
[ -s "$tmp/out" ] || fail "no answer"
grep -q '^FTL ' "$tmp/err" || fail "no figures: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "more than the figures on standard error: $(cat "$tmp/err")"
printf 'Tell me of a fox.' | "$run" "$model" --seed 5 -n 12 >"$tmp/again" 2>"$tmp/err" || fail "from standard input: $(cat "$tmp/err")"
cmp -s "$tmp/out" "$tmp/again" || fail "the same question, another answer: $(cat "$tmp/out" "$tmp/again")"
(cd "$model" && "$run" --private --max-model-len 512 -n 3 -p Hello . >/dev/null) || fail "--prompt, with options for the daemon"
if grep -q '[[:cntrl:]]' "$tmp/out"; then fail "control characters where there is no terminal"; fi
nothing "questions"
[ ! -e "$tmp/state/txda" ] || fail "questions are in the history"

# refused STATUS WORDS ARGUMENT...: what cannot be, in words; nothing is left
refused() {
	wanted=$1
	words=$2
	shift 2
	if "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; then status=0; else status=$?; fi
	[ "$status" -eq "$wanted" ] || fail "$*: status $status, not $wanted: $(cat "$tmp/err")"
	grep -qF -- "$words" "$tmp/err" || fail "$*: no '$words' in: $(cat "$tmp/err")"
	nothing "$*"
}
refused 1 "is not a model: it has neither a config.json" "$run" "$tmp/empty" Hello
refused 1 "$tmp/none: No such file" "$run" "$tmp/none" Hello
refused 1 "is not a directory" "$run" "$model/config.json" Hello
refused 2 "needs a model's directory" "$run" --private Hello
refused 2 "the directory says which" "$run" --model demo "$model" Hello
refused 2 "cannot be combined with a private one" "$run" --socket "$socket" --weights w8 "$model" Hello
refused 1 "no daemon listens on $socket" "$run" --socket "$socket" "$model" Hello
refused 1 "--weights must be keep, bf16, w8 or w4, not w5" "$run" "$model" --weights w5 Hello
refused 1 "between 0 and 2, not 9" "$run" "$model" --temperature 9 Hello
# A path that is none is no prompt for whatever daemon runs.
refused 1 "./none: No such file" "$run" ./none Hello
mkdir "$tmp/broken"
echo '{"model_type": ["\u001b[31m"]}' >"$tmp/broken/config.json"
refused 1 "model_type" "$run" "$tmp/broken" Hello
if grep -q "$(printf '\033')" "$tmp/err"; then fail "control characters of a model reach the terminal"; fi
mkdir "$tmp/alone"
cp "$TXDA_RUN" "$tmp/alone/txda-run"
refused 1 "txdad was found neither beside txda-run nor in \$PATH" env PATH="$tmp/empty" "$tmp/alone/txda-run" "$model" Hello
PATH="$tmp/bin:$PATH" "$tmp/alone/txda-run" "$model" -n 2 Hello >/dev/null || fail "txdad in \$PATH"

# Two at once, both of which compile.
for i in 1 2; do
	CACHE_DIRECTORY="$tmp/two" "$run" "$model" --seed 5 -n 12 Tell me of a fox. >"$tmp/two.$i" 2>"$tmp/two.$i.err" &
	eval "pid$i=$!"
done
# shellcheck disable=SC2154 # set by eval
wait "$pid1" || fail "the first of two: $(cat "$tmp/two.1.err")"
# shellcheck disable=SC2154
wait "$pid2" || fail "the second of two: $(cat "$tmp/two.2.err")"
for i in 1 2; do
	cmp -s "$tmp/two.$i" "$tmp/again" || fail "of two at once number $i answers: $(cat "$tmp/two.$i")"
done
nothing "two at once"

# ---- at a terminal, with an engine that repeats the prompt at its own pace

mkdir "$tmp/fake"
cp "$TXDA_RUN" "$tmp/fake/txda-run"
cp "$FAKE" "$tmp/fake/txdad"
cp "${FAKE%/*}/txdad-text" "$tmp/fake/txdad-text"
run="$tmp/fake/txda-run"

# What erases the line of progress is for the terminal, not for the file of the result.
real=$TXDAD
TXDAD=$tmp/fake/txdad
start_daemon --load demand
TXDAD=$real
export socket TXDACTL
# shellcheck disable=SC2016 # the inner shell's
echo "status 0" | terminal sh -c '"$TXDACTL" --socket "$socket" load demo >"$tmp/loaded"'
grep -q '^demo: ready after ' "$tmp/loaded" || fail "txdactl load: $(cat "$tmp/loaded")"
stop

chat -n 40 <<'END'
see is ready. /help lists the commands
see > 
type /hlep\r
see Unknown command /hlep; did you mean /help?
see > 
type /nonsense\r
see Unknown command /nonsense; /help lists them.
see > 
type /hel\t\r
see /exit
see > 
type /set temperature hot\r
see must be a number, not 'hot'
see > 
type /set top_k 1\r
see > 
type /set nothing 1\r
see Unknown setting
see > 
type /set stats on\r
see > 
type /system Speak of foxes.\r
see These instructions apply
see > 
type Once x\x7fupon a time: ä€😀x\x7f\r
see FTL 
see > 
type thrown away\x03
see > 
type \x03
see (Ctrl-D or /exit ends)
see > 
type \e[200~pasted\rlines\e[201~
see lines
type  and typed\r
see FTL 
see > 
type """first\r
see ... 
type second"""\r
see FTL 
see > 
type third\\\r
see ... 
type fourth\r
see FTL 
see > 
type dropped\\\r
see ... 
type \x03
see > 
resize 50
type /show\r
see model         it's a model
see daemon        a private one
see temperature   (the model's)
see top-k         1
see messages      8
see system        Speak of foxes.
see > 
type /save conversation.json\r
see Saved 9 messages.
see > 
type \x04
status 0
END
nothing "a chat"
for text in "Speak of foxes." "Once upon a time: ä€😀" 'pasted\\nlines and typed' 'first\\nsecond' 'third\\nfourth'; do
	grep -q "\"content\":	\"$text\"" conversation.json || fail "no '$text' in the conversation: $(cat conversation.json)"
done
if grep -qE 'thrown|dropped' conversation.json; then fail "what Ctrl-C has cleared was sent"; fi
history="$tmp/state/txda/history"
[ "$(stat -c %a "$history")" = 600 ] || fail "the history may be read by others: $(ls -l "$history")"

# What was typed before is there again; a conversation goes on.
printf '[{"role": "user", "content": "caf\351"}]' >latin.json
chat -n 40 <<'END'
see > 
type /load conversation.json\r
see Loaded 9 messages.
see > 
type \x12pasted
see lines and typed
type \x05!\r
see > 
type /reset\r
see the instructions of /system stay
see > 
type \e[A\e[A
see typed!
type !!\r
see > 
type /save conversation.json\r
see Saved 3 messages.
see > 
type /load latin.json\r
see latin.json is not UTF-8 (byte 0xe9 at offset 
see > 
type /load none.json\r
see cannot read none.json
see > 
type /load broken/config.json\r
see is not a JSON array of messages
see > 
type /system\r
see The instructions are removed
see > 
type /exit\r
status 0
END
grep -q 'pasted\\nlines and typed!!!' conversation.json || fail "the history gives back: $(cat conversation.json)"
# A terminal that cannot do more than print gets a plain prompt and no control characters, and makes no history.
cp "$history" before
TERM=dumb NO_COLOR=1 chat -n 5 <<'END'
see is ready
see > 
type a plain line\r
see > 
type \x03
see > 
type \x04
status 0
END
cmp -s "$history" before || fail "the plain prompt has changed the history"
# A history that is too long is cut, one that is none is none, and a link is not followed.
awk 'BEGIN { print "_HiStOrY_V2_"; for (i = 0; i < 60000; i++) print "a\\040line\\040of\\040history\\040" i }' >"$history"
chat -n 5 <<'END'
see > 
type \e[A
see a line of history 59999
type \r
see > 
type \x04
status 0
END
[ "$(stat -c %s "$history")" -lt 1000000 ] || fail "the history grows without end"
grep -q '59999' "$history" || fail "the newest of the history is lost"
head -c 100000 /dev/urandom >"$history"
chat -n 5 <<'END'
see > 
type \x04
status 0
END
rm "$history"
ln -s "$tmp/target" "$history"
chat -n 5 <<'END'
see the history is not saved
see > 
type Hello\r
see > 
type \x04
status 0
END
[ ! -e "$tmp/target" ] || fail "the history follows a link"
rm "$history"

# ---- Ctrl-C, and the end by force

export FAKE_TOKEN_US=20000
# An answer is stopped, and what came of it stays.
chat -n 1500 <<'END'
see > 
type one two three four five six seven eight nine ten\r
see user
see one
type \x03
see > 
type /show\r
see messages      2
see > 
type /save conversation.json\r
see Saved 2
see > 
type \x04
status 0
END
grep -q '"assistant"' conversation.json || fail "the part of the answer is lost: $(cat conversation.json)"
nothing "Ctrl-C"
# At the prompt, and in an answer: kill -9, kill, a closed terminal.
for act in 'signal 9 137' 'signal 15 143' 'hangup 129'; do
	for at in 'see > ' 'see > |type one two three four five six\r|see user'; do
		{
			echo "$at" | tr '|' '\n'
			echo "${act% *}"
			echo "status ${act##* }"
		} >script
		chat -n 1500 <script
		nothing "$act after $at"
	done
done
# The daemon is killed instead: it is told, with its log, and this ends.
chat <<'END'
see > 
run pkill -9 -P $pid
type Hello\r
see was killed by signal 9
status 1
END
nothing "kill -9 of the daemon"
unset FAKE_TOKEN_US

# ---- while it compiles

# A compiler that does not end, and leaves what a killed one does.
run="$tmp/slow/txda-run"
mkdir "$tmp/slow"
cp "$TXDA_RUN" "$tmp/slow/txda-run"
cp "$TXDAD" "$tmp/slow/txdad"
cp "${TXDAD%/*}/txdad-text" "$tmp/slow/txdad-text"
cat >"$tmp/slow/txda-compile" <<'END'
#!/bin/sh
[ "$1" != --key ] || { echo blocked1 && exit; }
mkdir "${3%/*}/.blocked1.txda-new"
echo "progress 40 100" >&2
exec tail -f "$1/config.json"
END
chmod +x "$tmp/slow/txda-compile"
for act in 'type \x03 130' 'signal 9 137' 'signal 15 143' 'hangup 129'; do
	printf 'see compiling [\nsee 40%%\n%s\nstatus %s\n' "${act% *}" "${act##* }" >script
	CACHE_DIRECTORY="$tmp/held" chat <script
	nothing "$act while it compiles"
done

# ---- with a daemon that runs

run="$tmp/fake/txda-run"
export FAKE_TOKEN_US=20000
cd "$model"
TXDAD=$FAKE
start --model "tales=../it's a model" --load demand
cd "$tmp"
chat --socket "$socket" -n 1500 <<'END'
see it's a model is ready.
see > 
type /show\r
see txda.sock
see > 
type \x04
status 0
END
http http://localhost/v1/models | grep -q '"id":"tales".*"state":"ready"' || fail "the daemon has not loaded the model"
mkdir "$tmp/not served"
cp "$model/config.json" "$model/tokenizer.json" "$model/tokenizer_config.json" "$tmp/not served/"
TXDA_SOCKET="$socket" "$run" "$tmp/not served" -n 3 Hello >"$tmp/out" 2>"$tmp/err" || fail "another model: $(cat "$tmp/err")"
grep -q "does not serve $tmp/not served: this starts a private one" "$tmp/err" || fail "another model: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "another model: $(cat "$tmp/err")"
stop
nothing "a daemon that runs"
conclude
