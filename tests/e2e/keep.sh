#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Weights that outlive the daemon, kept by HOLDER (txda-holder): kill -9 at any time, a case dir
# that changed, models that came or went, room that others need. What is adopted gives the same
# tokens; nothing leaks.
set -eu
. "$(dirname "$0")/lib.sh"

: "${HOLDER:?names the program txda-holder}" "${KEEP_RESTARTS:=5}"
comp=/v1/completions
# A cache of its own: case dirs are changed here.
CACHE_DIRECTORY=$tmp/cache
export CACHE_DIRECTORY
log=$tmp/txdad.log

# hold [OPTION...]: the daemon of the holder, whose pid is $daemon; $served is the daemon's own
hold() {
	"$HOLDER" --restart-delay 0 -- "$TXDAD" --socket "$socket" "$@" 2>>"$log" &
	daemon=$!
	wait_served none
}
served_pid() {
	ps -o pid= --ppid "$daemon" | tr -d ' '
}
# wait_served PID: until another daemon than that one is healthy
is_new() {
	served=$(served_pid)
	[ -n "$served" ] && [ "$served" != "$1" ]
}
wait_served() {
	until_true 60 is_new "$1" || fail "no other daemon than $1 is started"
	wait_healthy
}
kill_served() {
	kill -9 "$served"
	wait_served "$served"
}
release() {
	kill "$daemon"
	wait "$daemon" || fail "the holder's exit status is $?"
	daemon=
}
# adopted MODEL true|false
adopted() {
	http "http://localhost/v1/models/$1" | grep -q "\"adopted\":$2"
}
# Descriptors that the holder keeps, and those of the daemon.
kept() {
	echo $(($(ls "/proc/$daemon/fd" | wc -l) - holder_base))
}
kept_are() {
	[ "$(kept)" = "$1" ]
}
served_fds() {
	ls "/proc/$served/fd" 2>/dev/null | wc -l
}
logged() {
	grep -q "$1" "$log"
}

# ---- killed while it works ---------------------------------------------------------------------
TXDA_CMODEL=chips=2,mem=256M
export TXDA_CMODEL
hold --model "demo=$MODEL"
wanted=$(ask demo)
case $wanted in *'"text":"'*) ;; *) fail "an answer: $wanted" ;; esac
adopted demo false || fail "at the first start: $(http http://localhost/v1/models/demo)"
holder_base=$(($(ls "/proc/$daemon/fd" | wc -l) - 2))
begin() {
	rm -f "$tmp/running"
	post $comp '{"prompt":"Once upon a time","ignore_eos":true,"stream":true,"max_tokens":1500,"n":8}' -N >"$tmp/running" 2>/dev/null &
	client=$!
	until_true 60 grep -qs '"text"' "$tmp/running" || fail "the stream does not begin"
}
begin
kill_served
wait "$client" && fail "the stream of a killed daemon ends well"
adopted demo true || fail "after kill -9: $(http http://localhost/v1/models/demo)"
[ "$(ask demo)" = "$wanted" ] || fail "with adopted weights it says $(ask demo), not $wanted"
[ "$(metric 'txda_model_loads_adopted_total{model_name="demo"}')" = 1 ] || fail "the metric of adoptions"
logged 'adopted the weights of .*, rank 0: .* MiB on chip 0' || fail "no line in the log tells of the adoption"
kept_are 2 || fail "the holder keeps $(kept) descriptors, not 2"

# ---- again and again ---------------------------------------------------------------------------
# From here on the log is for what follows.
base=$(served_fds)
i=0
while [ "$i" -lt "$KEEP_RESTARTS" ]; do
	kill_served
	i=$((i + 1))
done
adopted demo true || fail "after $i restarts: $(http http://localhost/v1/models/demo)"
[ "$(ask demo)" = "$wanted" ] || fail "after $i restarts it says something else"
kept_are 2 || fail "after $i restarts the holder keeps $(kept) descriptors"
no_more_fds() {
	[ "$(served_fds)" -le $((base + 1)) ]
}
until_true 60 no_more_fds || fail "after $i restarts the daemon has $(served_fds) descriptors, $base before"
# A restart without a kill: what runs may end, and nothing is given up.
kill -USR1 "$daemon"
wait_served "$served"
adopted demo true || fail "after SIGUSR1: $(http http://localhost/v1/models/demo)"

# ---- what is given up --------------------------------------------------------------------------
expect 200 '"state":"un' /v1/models/unload '{"model":"demo"}'
until_true 60 kept_are 0 || fail "unloaded, and $(kept) descriptors are kept"
[ "$(ask demo)" = "$wanted" ] || fail "loaded again it says something else"
kept_are 2 || fail "loaded again, and $(kept) descriptors are kept"
expect 200 '"state":"asleep"' /v1/models/sleep '{"model":"demo"}'
until_true 60 kept_are 0 || fail "asleep, and $(kept) descriptors are kept"
[ "$(ask demo)" = "$wanted" ] || fail "woken up it says something else"

# ---- a case dir that changed, and kills in the middle of a load --------------------------------
param=$(ls "$CACHE_DIRECTORY"/*/chip0/param.bin)
: >"$log"
touch "$param"
kill_served
logged 'dropped: .*is another file, or was changed' || fail "a changed file: $(cat "$log")"
adopted demo false || fail "weights of a changed file are adopted"
[ "$(ask demo)" = "$wanted" ] || fail "with another file of the same content it says something else"
kept_are 2 || fail "of a changed file $(kept) descriptors are kept"
# Compiled again: nothing of the old case dir is used.
: >"$log"
rm -rf "$CACHE_DIRECTORY"
kill_served
logged 'dropped: .*No such file' || fail "without the case dir: $(cat "$log")"
[ "$(ask demo)" = "$wanted" ] || fail "compiled again it says something else"
release

# ---- several models ----------------------------------------------------------------------------
# No two have the same key in the cache.
for name in a b; do
	mkdir "$tmp/$name"
	for file in "$MODEL"/*; do
		ln -s "$file" "$tmp/$name/"
	done
	rm "$tmp/$name/generation_config.json"
	printf '{"_from": "%s"}' "$name" >"$tmp/$name/generation_config.json"
done
# One chip with room for one of them: what is kept of the other goes.
TXDA_CMODEL=chips=1,mem=52M
printf 'load = demand\nmodel = a=%s\nmodel = b=%s\n' "$tmp/a" "$tmp/b" >"$tmp/conf"
hold --config "$tmp/conf"
first=$(ask a)
kill_served
expect 200 '"fits":true' /v1/models/plan '{"model":"a"}'
[ "$(ask a)" = "$first" ] || fail "a model on demand says something else"
adopted a true || fail "on demand: $(http http://localhost/v1/models/a)"
kill_served
: >"$log"
case $(ask b) in *'"text":"'*) ;; *) fail "no room beside kept weights: $(ask b)" ;; esac
logged 'kept weights of .* make room' || fail "kept weights make no room: $(cat "$log")"
kept_are 2 || fail "of two models $(kept) descriptors are kept"
# A model that is not served any more: from the next start on, or from a reload.
dropped() {
	kept_are 0 && logged 'dropped: .*/b is no longer served'
}
printf 'load = demand\nmodel = a=%s\n' "$tmp/a" >"$tmp/conf"
: >"$log"
kill_served
until_true 60 dropped || fail "not served any more, and $(kept) descriptors are kept: $(cat "$log")"
release

# Two chips; a draft; the same weights under two names.
TXDA_CMODEL=chips=2,mem=256M
hold --tp-size 2 --model "x=$tmp/a" --draft-model "$DRAFT" --model "y=$tmp/a" --data-parallel-size 1
two=$(ask x)
[ "$(ask y)" = "$two" ] || fail "the same weights under another name say something else"
kept_are 8 || fail "two ranks of a model and its draft: $(kept) descriptors are kept"
kill_served
adopted x true && adopted y true || fail "two names: $(http http://localhost/v1/models)"
[ "$(ask x)" = "$two" ] && [ "$(ask y)" = "$two" ] || fail "two ranks with adopted weights say something else"
kept_are 8 || fail "after a restart: $(kept) descriptors are kept"
expect 200 '"state":"un' /v1/models/unload '{"model":"x"}'
until_true 60 kept_are 4 || fail "y has its weights still, and $(kept) descriptors are kept"
# Who wants nothing kept leaves nothing.
release
hold --no-keep-weights --model "x=$tmp/a"
ask x >"$tmp/answer"
kept_are 0 || fail "--no-keep-weights, and $(kept) descriptors are kept"
release

# ---- the holder itself -------------------------------------------------------------------------
"$HOLDER" -- sh -c 'exit 78' && status=0 || status=$?
[ "$status" = 78 ] || fail "a command that a restart does not cure: exit status $status"
"$HOLDER" -- sh -c 'exit 0' || fail "a command that ends well: exit status $?"
"$HOLDER" -- "$tmp/nothing" 2>"$tmp/err" && status=0 || status=$?
[ "$status" = 127 ] || fail "no command: exit status $status"
for wrong in "" "--max-fds -1 true" "--max-fds x true" "--bogus true"; do
	# shellcheck disable=SC2086 # words
	"$HOLDER" $wrong 2>"$tmp/err" && status=0 || status=$?
	[ "$status" = 2 ] || fail "txda-holder $wrong: exit status $status"
done
# Nobody else gets at its socket, of which nothing is left.
XDG_RUNTIME_DIR=$tmp "$HOLDER" -- sh -c 'test -S "$NOTIFY_SOCKET" && stat -c "%a %n" "${NOTIFY_SOCKET%/*}"' >"$tmp/dir" || fail "no socket: exit status $?"
grep -q "^700 $tmp/txda-holder[.]" "$tmp/dir" || fail "the socket's directory: $(cat "$tmp/dir")"
[ ! -e "$(cut -d' ' -f2 "$tmp/dir")" ] || fail "the socket's directory is left"
XDG_RUNTIME_DIR=$tmp/nothing "$HOLDER" -- sh -c 'test -S "$NOTIFY_SOCKET"' || fail "no socket without \$XDG_RUNTIME_DIR: exit status $?"
# It is started again, with what there is, until it ends well.
printf 'echo again >>%s\n[ "$(wc -l <%s)" -lt 4 ] && exit 1\nexit 0\n' "$tmp/runs" "$tmp/runs" >"$tmp/flaky"
"$HOLDER" --restart-delay 0 -- sh "$tmp/flaky" 2>"$tmp/err" || fail "a command that ends well at last: $?"
[ "$(wc -l <"$tmp/runs")" = 4 ] || fail "it was started $(wc -l <"$tmp/runs") times"
# Also when nobody reads the holder's messages any more; the command handles signals as without it.
rm "$tmp/runs"
{
	while env echo 2>/dev/null; do sleep 0.01; done
	"$HOLDER" --restart-delay 0 -- sh "$tmp/flaky" 2>&1 && status=0 || status=$?
	echo $status >"$tmp/status"
} | :
[ "$(cat "$tmp/status")" = 0 ] || fail "a holder without a reader: exit status $(cat "$tmp/status")"
[ "$(wc -l <"$tmp/runs")" = 4 ] || fail "without a reader it was started $(wc -l <"$tmp/runs") times"
[ "$("$HOLDER" -- grep SigIgn /proc/self/status)" = "$(grep SigIgn /proc/self/status)" ] || fail "the command ignores other signals"

conclude
