#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What clients and accidents do to a running daemon: disconnects, slow readers, crowds, broken
# requests, kill -9, SIGTERM. TORTURE_REQUESTS is how many broken requests there are (10000).
set -eu
. "$(dirname "$0")/lib.sh"

here=$(dirname "$0")
: "${TORTURE_REQUESTS:=10000}"
comp=/v1/completions
pids=

aborted() {
	metric 'txda_request_success_total{model_name="demo",finished_reason="abort"}'
}

# forever: a stream that ends by itself only after very long.
forever='{"prompt":"Once upon a time there was a fox","max_tokens":1500,"ignore_eos":true,"stream":true,"logprobs":5}'

# The fake engine takes its time, so that no stream ends by itself before the next client is there.
FAKE_TOKEN_US=5000 start_daemon

# ---- clients that go away ----------------------------------------------------------------------
base_fds=$(fds)
# Not through a function: the pid must be that of curl itself.
i=0
pids=
printf '%s' "$forever" >"$tmp/body"
while [ $i -lt 6 ]; do
	curl -sS -N --unix-socket "$socket" --data-binary "@$tmp/body" http://localhost$comp >/dev/null 2>&1 &
	pids="$pids $!"
	i=$((i + 1))
done
until_true 60 running 6 || fail "six streams do not run: $(metric 'txda_num_requests_running{model_name="demo"}')"
for pid in $pids; do kill -9 "$pid"; wait "$pid" 2>/dev/null || true; done
until_true 60 running 0 || fail "streams without clients go on"
[ "$(aborted)" = 6 ] || fail "six clients left, $(aborted) were noticed"
# One that does not stream, and so writes nothing by which the daemon could notice. Its many choices take their time.
printf '{"prompt":"Once","max_tokens":1500,"ignore_eos":true,"n":8}' >"$tmp/body"
curl -sS --unix-socket "$socket" --data-binary "@$tmp/body" http://localhost$comp >/dev/null 2>&1 &
pid=$!
until_true 60 running 8 || fail "an answer that is not streamed does not run"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
until_true 60 running 0 || fail "an answer without a client goes on"
[ "$(aborted)" = 14 ] || fail "the client that waited and left was not noticed"
# One whose request is cancelled. OpenAI's clients would repeat it otherwise.
curl -sS -i --unix-socket "$socket" --data-binary "@$tmp/body" http://localhost$comp >"$tmp/answer" &
pid=$!
until_true 60 running 8 || fail "a request that is to be cancelled does not run"
id=$(http http://localhost/v1/requests | member id)
post /v1/requests/cancel "{\"id\":$id}" | grep -q '"cancelled":true' || fail "$id is not cancelled"
wait "$pid" || fail "a cancelled request has no answer"
tr -d '\r' <"$tmp/answer" | grep -qx 'X-Should-Retry: false' || fail "a cancelled request is answered $(cat "$tmp/answer")"
no_more_fds() {
	[ "$(fds)" -le $((base_fds + 1)) ]
}
until_true 60 no_more_fds || fail "clients are gone: $(fds) descriptors, $base_fds before"
stop
start_daemon
base_fds=$(fds)

# ---- slow readers ------------------------------------------------------------------------------
# A reader of 200 KB a second falls behind, and still gets every byte.
printf '%s' "$forever" | sed 's/}$/,"seed":1}/' >"$tmp/body"
http -N --data-binary "@$tmp/body" http://localhost$comp | sed 's/"id":"[^"]*","object":"[^"]*","created":[0-9]*//' | grep -o '"tokens":\[[^]]*\]' |
	sed 's/^"tokens":\[//; s/\]$//' | tr '\n' ',' >"$tmp/fast"
http -N --limit-rate 200K --data-binary "@$tmp/body" http://localhost$comp | grep -o '"tokens":\[[^]]*\]' |
	sed 's/^"tokens":\[//; s/\]$//' | tr '\n' ',' >"$tmp/slow"
cmp -s "$tmp/fast" "$tmp/slow" || fail "a slow reader got other tokens"
[ "$(tr ',' '\n' <"$tmp/fast" | wc -l)" -gt 1000 ] || fail "the stream was short"

# ---- broken requests ---------------------------------------------------------------------------
python3 "$here/torture.py" "$socket" 1000 1 >/dev/null || fail "torture (warming up)"
before=$(rss)
python3 "$here/torture.py" "$socket" "$TORTURE_REQUESTS" 2 || fail "torture"
until_true 60 running 0 || fail "requests are left over"
# It gives memory back a moment after a burst.
is_back() {
	after=$(rss)
	[ "$after" -lt $((before + before / 10 + ${RSS_MARGIN_KIB:-8192})) ]
}
until_true 60 is_back || fail "memory grew from $before to $after KiB"
echo "memory before $before KiB, after $after KiB; descriptors before $base_fds, after $(fds)"
until_true 60 no_more_fds || fail "$(fds) descriptors, $base_fds before"

# ---- the socket --------------------------------------------------------------------------------
[ "$(stat -c %a "$socket")" = 660 ] || fail "mode of the socket: $(stat -c %a "$socket")"
if "$TXDAD" --model "demo=$MODEL" --socket "$socket" 2>"$tmp/second"; then
	fail "a second daemon on the same socket"
fi
grep -q "another txdad serves $socket" "$tmp/second" || fail "a second daemon says: $(cat "$tmp/second")"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
[ -S "$socket" ] || fail "kill -9 should leave the socket file"
# A child of the killed one that does not yet run its own program has the lock for a moment.
flock "$socket.lock" sh -c "touch '$tmp/held'; sleep 0.3" &
until_true 10 test -e "$tmp/held"
start_daemon --socket-mode 0600
[ "$(stat -c %a "$socket")" = 600 ] || fail "--socket-mode: $(stat -c %a "$socket")"
stop
[ ! -e "$socket" ] || fail "the socket is left behind"
echo data >"$socket"
if "$TXDAD" --model "demo=$MODEL" --socket "$socket" 2>"$tmp/second"; then
	fail "a file was replaced by a socket"
fi
grep -q "exists and is not a socket" "$tmp/second" || fail "a file in the way: $(cat "$tmp/second")"
rm "$socket"

# ---- a soft end --------------------------------------------------------------------------------
start_daemon
printf '{"prompt":"Once","max_tokens":200,"ignore_eos":true,"stream":true}' >"$tmp/body"
http -N --data-binary "@$tmp/body" http://localhost$comp >"$tmp/last" &
client=$!
until_true 60 test -s "$tmp/last" || fail "no stream to end softly"
kill "$daemon"
wait "$client" || fail "the last stream was cut off"
tail -n 2 "$tmp/last" | grep -q DONE || fail "the last stream has no end: $(tail -n 2 "$tmp/last")"
wait "$daemon" || fail "exit status $?"
daemon=

conclude
