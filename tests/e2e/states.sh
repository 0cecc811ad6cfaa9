#!/bin/sh
# SPDX-License-Identifier: MIT
#
# States of the daemon that need a fake engine: loading, failing to load, losing the chips, ending with requests that do not.
set -eu
. "$(dirname "$0")/lib.sh"

comp=/v1/completions
listening() {
	http -o /dev/null http://localhost/version 2>/dev/null
}

# Loading: it listens, says so, and refuses with a word on when to come back.
FAKE_LOAD_MS=5000 "$TXDAD" --model "demo=$MODEL" --socket "$socket" 2>>"$tmp/txdad.log" &
daemon=$!
until_true 60 listening || fail "it does not listen while it loads"
[ "$(http -o "$tmp/answer" -w '%{http_code}' http://localhost/health)" = 503 ] || fail "healthy while loading"
grep -q '"demo":{"state":"loading"}' "$tmp/answer" || fail "loading: $(cat "$tmp/answer")"
"$TXDACTL" --socket "$socket" health >"$tmp/out" && fail "txdactl: healthy while loading"
grep -q '^demo: loading$' "$tmp/out" || fail "txdactl health: $(cat "$tmp/out")"
request 503 model_loading $comp -d '{"prompt":"a"}' -D "$tmp/head"
grep -qi '^Retry-After: ' "$tmp/head" || fail "no Retry-After"
"$TXDA_RUN" --socket "$socket" --raw -n 3 Once >"$tmp/out" 2>"$tmp/err" || fail "txda-run does not wait: $(cat "$tmp/err")"
grep -q 'waiting for the model to load' "$tmp/err" || fail "txda-run waits without a word"
wait_healthy

# One that does not answer keeps only those waiting whose requests take time.
ask_silent() {
	program=$TXDACTL
	[ "$1" != --list ] || program=$TXDA_RUN
	# shellcheck disable=SC2086 # words
	timeout 60 "$program" --socket "$socket" $1 >"$tmp/silent.$1" 2>&1 && status=0 || status=$?
	echo "status $status" >>"$tmp/silent.$1"
}
silent=
kill -STOP "$daemon"
for command in health models devices requests 'pin none' 'unload none' 'cancel none' --list; do
	ask_silent "$command" &
	silent="$silent $!"
done
# shellcheck disable=SC2086 # words
wait $silent
kill -CONT "$daemon"
for answer in "$tmp"/silent.*; do
	[ "$(cat "$answer")" = "txdactl: the daemon on $socket does not answer
status 1" ] || [ "$(cat "$answer")" = "txda-run: the daemon on $socket does not answer
status 1" ] || fail "${answer##*/}: $(cat "$answer")"
done
stop

# A model that cannot be loaded ends it.
if FAKE_LOAD_ERROR='the fake file is torn' "$TXDAD" --model "demo=$MODEL" --socket "$socket" 2>"$tmp/err"; then
	fail "no model, and exit status 0"
fi
grep -q 'model demo: the fake file is torn' "$tmp/err" || fail "a model that does not load: $(cat "$tmp/err")"

FAKE_LOAD_ERROR='the fake file is torn' "$TXDAD" --model "demo=$MODEL" --load demand --socket "$socket" 2>>"$tmp/txdad.log" &
daemon=$!
until_true 60 listening || fail "it does not listen"
"$TXDA_RUN" --socket "$socket" "$MODEL" -n 2 Hello >"$tmp/out" 2>"$tmp/err" && fail "txda-run answers without a model"
grep -q 'the fake file is torn' "$tmp/err" || fail "txda-run without a model: $(cat "$tmp/err")"
stop

# Wrong settings are told apart by the exit status.
for wrong in "--model" "--model demo=x --weights w9" "--bogus" "" "--model a=x --model a=y" "--model x --max-body 1"; do
	# shellcheck disable=SC2086 # words
	"$TXDAD" $wrong 2>"$tmp/err" && status=0 || status=$?
	[ "$status" = 78 ] || fail "txdad $wrong: exit status $status, $(cat "$tmp/err")"
	[ -s "$tmp/err" ] || fail "txdad $wrong: no words"
done
# The reason, and no other line about it.
"$TXDAD" --model "gone=$tmp/gone" --socket "$socket" 2>"$tmp/err" && status=0 || status=$?
[ "$status" = 78 ] || fail "a model that is not there: exit status $status"
grep -q 'model gone: .*No such file or directory$' "$tmp/err" || fail "a model that is not there: $(cat "$tmp/err")"
! grep -q 'cannot start' "$tmp/err" || fail "a second reason: $(cat "$tmp/err")"
# A user without a directory for sockets, unless only root gets at the program.
as=
[ "$(id -u)" -ne 0 ] || as='setpriv --reuid=4321 --regid=4321 --clear-groups'
chmod 755 "$tmp"
if $as test -x "$TXDAD"; then
	# shellcheck disable=SC2086 # words or none
	$as env -u XDG_RUNTIME_DIR "$TXDAD" --model "demo=$MODEL" 2>"$tmp/err" && status=0 || status=$?
	[ "$status" = 78 ] || fail "no default socket: exit status $status"
	grep -q 'this user has no default socket, .*: --socket PATH$' "$tmp/err" || fail "no default socket: $(cat "$tmp/err")"
fi
# Of two models one is broken: the other one is served, and the broken one when it is mended and asked for.
"$TXDAD" --socket "$socket" --model "demo=$MODEL" --model "broken=$tmp/later" 2>>"$tmp/txdad.log" &
daemon=$!
answers() {
	post $comp '{"model":"demo","prompt":"Once","max_tokens":2}' 2>/dev/null | grep -q text_completion
}
until_true 60 answers || fail "a broken model takes the other one with it"
expect 503 model_failed $comp '{"model":"broken","prompt":"Once","max_tokens":2}'
grep -q 'No such file or directory' "$tmp/answer" || fail "a broken model: $(cat "$tmp/answer")"
expect 503 model_failed /v1/models/load '{"model":"broken"}'
http http://localhost/health | grep -q '"broken":{"state":"failed","error":' || fail "a broken model: $(http http://localhost/health)"
ln -s "$MODEL" "$tmp/later"
expect 200 '"state":"ready"' /v1/models/load '{"model":"broken"}'
expect 200 text_completion $comp '{"model":"broken","prompt":"Once","max_tokens":2}'
stop

printf 'model = demo=%s\n# a comment\nlog-level = debug\nno-enable-prefix-caching\n' "$MODEL" >"$tmp/conf"
start --config "$tmp/conf"
# Only what does not concern the model, which would be loaded anew.
printf 'model = demo=%s\nlog-level = error\nno-enable-prefix-caching\n' "$MODEL" >"$tmp/conf"
kill -HUP "$daemon"
http http://localhost/health | grep -q ok || fail "SIGHUP ends it"
# Settings that do not come, as from a mount that hangs, keep nobody waiting.
rm "$tmp/conf"
mkfifo "$tmp/conf"
kill -HUP "$daemon"
post $comp '{"prompt":"Once","max_tokens":2}' | grep -q text_completion || fail "no answers beside a reload that hangs"
printf 'model = demo=%s\nlog-level = error\nno-enable-prefix-caching\nkeep-alive = 90\n' "$MODEL" >"$tmp/conf"
keeps() {
	http http://localhost/v1/models/demo | grep -q '"keep_alive":90'
}
until_true 60 keeps || fail "a reload that took its time: $(http http://localhost/v1/models/demo)"
rm "$tmp/conf"
stop
# Nor do they keep the daemon from its end, which leaves nothing that was its own.
printf 'model = demo=%s\ncache-dir = %s/cache\n' "$MODEL" "$tmp" >"$tmp/conf"
mkdir "$tmp/cache"
export DISABLE_CACHE=1
start --config "$tmp/conf"
unset DISABLE_CACHE
ls -d "$tmp/cache/.txda-private-"* >"$tmp/out" || fail "no cache of its own"
rm "$tmp/conf"
mkfifo "$tmp/conf"
kill -HUP "$daemon"
request 200 '"demo"' /v1/models
stop
grep -qF 'a reload is still in progress' "$tmp/txdad.log" || fail "the reload ended"
[ ! -d "$(cat "$tmp/out")" ] || fail "left over: $(cat "$tmp/out")"
rm "$tmp/conf"
printf 'model = demo=%s\nbogus = 1\n' "$MODEL" >"$tmp/conf"
"$TXDAD" --config "$tmp/conf" 2>"$tmp/err" && fail "a bogus setting"
grep -q "conf, line 2: unknown setting 'bogus'" "$tmp/err" || fail "a bogus setting: $(cat "$tmp/err")"

# Lost chips: what runs fails with words, health tells, and the model comes back.
FAKE_LOST_AFTER=200 start_daemon
printf '{"prompt":"Once upon a time","max_tokens":1000,"ignore_eos":true,"stream":true}' >"$tmp/body"
http -N --data-binary "@$tmp/body" http://localhost$comp >"$tmp/stream" || fail "the stream was cut off without an end"
grep -q '^data: {"error":{"message":"the chips of the model failed: the fake chip was pulled out"' "$tmp/stream" ||
	fail "a stream on lost chips ends so: $(tail -n 3 "$tmp/stream")"
tail -n 2 "$tmp/stream" | grep -q DONE || fail "no [DONE] after an error"
[ "$(http -o "$tmp/answer" -w '%{http_code}' http://localhost/health)" = 503 ] || fail "healthy without chips"
grep -q '"state":"lost","error":"the fake chip was pulled out"' "$tmp/answer" || fail "lost: $(cat "$tmp/answer")"
request 503 model_lost $comp -d '{"prompt":"a"}'
wait_healthy
post $comp '{"prompt":"Once","max_tokens":2}' | grep -q text_completion || fail "the model did not come back"

# Deadlines: of those who wait, of those who are answered, and of all.
stop
FAKE_LOAD_MS=4000 start_daemon --load demand
expect 504 '"code":"timeout"' $comp '{"prompt":"Once","timeout":0.5}'
post $comp '{"prompt":"Once","timeout":0.5}' -i | tr -d '\r' | grep -qx 'X-Should-Retry: false' || fail "a client is to repeat what came too late"
expect 504 'within 0.5 s' /v1/embeddings '{"input":"Once","timeout":0.5}'
stop
FAKE_TOKEN_US=5000 start_daemon --request-timeout 2
long='"prompt":"Once","max_tokens":2000,"ignore_eos":true'
expect 200 '"finish_reason":"length","stop_reason":"timeout"' $comp "{$long,\"timeout\":1}"
member completion_tokens <"$tmp/answer" >"$tmp/tokens"
[ "$(cat "$tmp/tokens")" -ge 1 ] || fail "no tokens until the deadline: $(cat "$tmp/answer")"
expect 200 '"finish_reason":"length","stop_reason":"timeout"' $comp "{$long,\"stream\":true,\"timeout\":1}"
grep -q '^data: \[DONE\]' "$tmp/answer" || fail "the stream of a late request has no end: $(tail -c 300 "$tmp/answer")"
expect 200 '"finish_reason":"length","stop_reason":"timeout"' $comp "{$long}"
expect 400 'timeout' $comp '{"prompt":"Once","timeout":0}'
expect 200 '"finish_reason":"length"' $comp '{"prompt":"Once","max_tokens":2,"priority":32}'
grep -q stop_reason "$tmp/answer" && fail "an answer in time has a stop_reason: $(cat "$tmp/answer")"
[ "$(metric 'txda_request_success_total{model_name="demo",finished_reason="timeout"}')" -ge 3 ] || fail "late requests are not counted"

# A full queue.
stop
FAKE_TOKEN_US=5000 start_daemon --max-queue 2 --drain-seconds 1
for i in 1 2; do
	printf '{"prompt":"Once","max_tokens":1000,"ignore_eos":true}' | http --data-binary @- http://localhost$comp >"$tmp/long.$i" &
done
until_true 60 running 2 || fail "two requests do not run"
request 429 "the queue is full: 2 requests wait; the limit is 2" $comp -d '{"prompt":"a"}' -D "$tmp/head"
grep -qi '^Retry-After: ' "$tmp/head" || fail "no Retry-After"

# An end that does not wait for ever.
stop
wait
grep -q 'the daemon is shutting down' "$tmp/long.1" "$tmp/long.2" || fail "at the end: $(cat "$tmp/long.1")"

conclude
