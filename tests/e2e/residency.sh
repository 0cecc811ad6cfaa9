#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Models that come and go: loads on demand, eviction, pins, sleep, keep-alive, replicas, a list of
# models that changes, and who may do that. One chip has room for one of the models at a time.
set -eu
. "$(dirname "$0")/lib.sh"

comp=/v1/completions
: "${FAKE_CHIP_MB:=256}" "${FAKE_WEIGHT_MB:=150}" "${TXDA_CMODEL:=chips=1,mem=64M}"
export FAKE_CHIP_MB FAKE_WEIGHT_MB TXDA_CMODEL
case $TXDAD in
*fake*)
	fake=true
	FAKE_TOKEN_US=1500
	export FAKE_TOKEN_US
	;;
*) fake=false ;;
esac

# The same checkpoint under other names: directories of their own, as weights of one directory are shared.
for name in a b c; do
	mkdir "$tmp/$name"
	for file in "$MODEL"/*; do
		ln -s "$file" "$tmp/$name/"
	done
	# No two have the same key in the cache.
	rm "$tmp/$name/generation_config.json"
	printf '{"_from": "%s"}' "$name" >"$tmp/$name/generation_config.json"
done

state_of() {
	http "http://localhost/v1/models/$1" | sed 's/"replicas".*//' | member state | tr -d '"'
}
is() {
	[ "$(state_of "$1")" = "$2" ]
}
counter() {
	metric "txda_model_$1"
}
# begin_stream MODEL TOKENS [CHOICES]: into $tmp/running, by process $pid
begin_stream() {
	rm -f "$tmp/running"
	post $comp "{\"model\":\"$1\",\"prompt\":\"Once upon a time\",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":$2,\"n\":${3:-1}}" -N >"$tmp/running" &
	pid=$!
	until_true 60 grep -qs '"text"' "$tmp/running" || fail "the stream does not begin"
}
# begin_long_stream MODEL: one that is ended long before it ends by itself, as many choices take
# their time on any machine
begin_long_stream() {
	begin_stream "$1" 1900 16
}

# ---- on demand, one in the place of the other --------------------------------------------------
start --load demand --model "a=$tmp/a" --model "b=$tmp/b"
is a unloaded && is b unloaded || fail "at the start: $(http http://localhost/health)"
expect 200 '"exact":false' /v1/models/plan '{"model":"b"}'
expect 200 '"exact":true' /v1/models/plan '{"model":"b","compile":true}'
grep -q '"state":"unloaded".*"fits":true' "$tmp/answer" || fail "a plan: $(cat "$tmp/answer")"
expect 400 compile /v1/models/plan '{"model":"b","compile":1}'
is b unloaded || fail "a plan loads"
expect 200 '"tokens"' /tokenize '{"model":"a","prompt":"Once"}'
first=$(ask a)
case $first in *'"text":"'*) ;; *) fail "on demand: $first" ;; esac
is a ready || fail "a is $(state_of a)"
other=$(ask b)
is a unloaded || fail "both are there: a is $(state_of a)"
[ "$(ask a)" = "$first" ] || fail "after an eviction it says something else"
[ "$(ask b)" = "$other" ] || fail "after an eviction b says something else"
[ "$(counter 'unloads_total{model_name="a",reason="evicted"}')" = 2 ] || fail "evictions of a"
[ "$(counter 'loads_total{model_name="b"}')" = 2 ] || fail "loads of b"
expect 200 '"evict":["b"]' /v1/models/plan '{"model":"a"}'
grep -q '"fits":false,"fits_after_eviction":true' "$tmp/answer" || fail "plan: $(cat "$tmp/answer")"
expect 200 '"resident":true,"fits":true' /v1/models/plan '{"model":"b"}'

stop

# One that is never idle has its turn, too, and comes back: nobody waits for ever.
# The turn comes after half of the timeout; requests are short, so that those that run end well within the other half.
start --load demand --load-timeout 12 --model "a=$tmp/a" --model "b=$tmp/b"
traffic() {
	while [ ! -e "$tmp/enough" ]; do
		post $comp '{"model":"a","prompt":"Once upon a time","ignore_eos":true,"max_tokens":60}' >>"$tmp/traffic"
		echo >>"$tmp/traffic"
	done
}
ask a >"$tmp/answer"
pids=
for _ in 1 2 3; do
	traffic &
	pids="$pids $!"
done
turn=$(ask b)
[ "$turn" = "$other" ] || fail "beside a model that is never idle: $turn"
: >"$tmp/enough"
for pid in $pids; do wait "$pid" || fail "the traffic"; done
grep -q '"error"' "$tmp/traffic" && fail "a request that waited for its turn: $(grep '"error"' "$tmp/traffic" | head -n 1)"
stop
start --load demand --model "a=$tmp/a" --model "b=$tmp/b"

# ---- told to go --------------------------------------------------------------------------------
begin_stream b 1500
expect 200 '"state":"unloading"' /v1/models/unload '{"model":"b"}'
wait "$pid" || fail "the running stream"
[ "$(grep -c '"finish_reason":"length"' "$tmp/running")" = 1 ] || fail "unloading cuts a stream short"
until_true 60 is b unloaded || fail "b is $(state_of b)"
ask b >/dev/null
begin_long_stream b
expect 200 '"state":"un' /v1/models/unload '{"model":"b","force":true}'
wait "$pid" || fail "the stream that was ended"
grep -q 'its model is being unloaded' "$tmp/running" || fail "an ended stream says $(tail -n 2 "$tmp/running")"
until_true 60 is b unloaded || fail "b is $(state_of b)"

# Asleep and awake again.
post /v1/models/load '{"model":"a","stream":true}' -N >"$tmp/load"
tail -n 1 "$tmp/load" | grep -q '"state":"ready"' || fail "the load ends with $(tail -n 1 "$tmp/load")"
head -n 1 "$tmp/load" | grep -q '"state":"loading","phase":"' || fail "the load begins with $(head -n 1 "$tmp/load")"
expect 200 '"state":"asleep"' /v1/models/sleep '{"model":"a"}'
expect 409 model_not_ready /v1/models/sleep '{"model":"b"}'
if ! $fake; then
	until_true 60 sh -c "curl -s --unix-socket '$socket' http://localhost/v1/models/a | grep -q '\"host_bytes\":[1-9]'" ||
		fail "asleep: $(http http://localhost/v1/models/a)"
fi
expect 200 '"state":"ready"' /v1/models/wake '{"model":"a"}'
[ "$(ask a)" = "$first" ] || fail "after a sleep it says something else"
expect 200 '"state":"asleep"' /v1/models/sleep '{"model":"a"}'
[ "$(ask a)" = "$first" ] || fail "woken by a request it says something else"

# ---- idling ------------------------------------------------------------------------------------
expect 400 'keep_alive must be seconds' $comp '{"model":"a","prompt":"Once","keep_alive":"soon"}'
expect 400 'keep_alive must be seconds' $comp '{"model":"a","prompt":"Once","keep_alive":-2}'
expect 200 text_completion $comp '{"model":"a","prompt":"Once","max_tokens":1,"keep_alive":"0s"}'
until_true 60 is a unloaded || fail "keep_alive 0: a is $(state_of a)"
[ "$(counter 'unloads_total{model_name="a",reason="idle"}')" = 1 ] || fail "idled out, and not counted"
# It is not unloaded before its load has been reported.
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	expect 200 '"state":"ready"' /v1/models/load '{"model":"a","keep_alive":0}'
	post /v1/models/unload '{"model":"a"}' >"$tmp/answer"
done

# A client that hardly reads what is there for it does not keep its model from being idle.
if $fake; then
	post $comp '{"model":"a","prompt":"Once","ignore_eos":true,"stream":true,"max_tokens":1900,"n":16,"keep_alive":0}' -N --limit-rate 2k >"$tmp/trickle" &
	pid=$!
	until_true 60 grep -qs '"text"' "$tmp/trickle" || fail "the stream does not begin"
	until_true 60 is a unloaded || fail "beside a client that hardly reads a is $(state_of a)"
	kill "$pid" || fail "the client that hardly reads is gone"
	wait "$pid" 2>/dev/null || true
fi

# ---- the same from a terminal ------------------------------------------------------------------
ctl() {
	"$TXDACTL" --socket "$socket" "$@"
}
[ "$(ctl health | head -n 1)" = ok ] || fail "txdactl health"
# The engine may be at the last step of the stream that was cancelled.
unloads_a() {
	ctl unload a | grep -q '^a: unloaded$'
}
until_true 60 unloads_a || fail "txdactl unload: $(ctl unload a)"
ctl load a --keep-alive 10m 2>"$tmp/err" | grep -q '^a: ready after ' || fail "txdactl load: $(cat "$tmp/err")"
ctl models >"$tmp/answer"
grep -q '^a  *ready  *0 .*10 min' "$tmp/answer" || fail "txdactl models: $(cat "$tmp/answer")"
ctl plan b >"$tmp/answer"
grep -q '^It fits when these go: a$' "$tmp/answer" || fail "txdactl plan: $(cat "$tmp/answer")"
ctl devices | grep -q '^0 .* MiB .* a *$' || fail "txdactl devices: $(ctl devices)"
ctl --json pin a | grep -q '"pinned":true' || fail "txdactl pin"
ctl load b >"$tmp/answer" 2>"$tmp/err" && fail "a load without room has status 0"
expect 503 insufficient_memory $comp '{"model":"b","prompt":"Once","max_tokens":1}'
grep -q 'the model needs [0-9.]* MiB of a chip at least; [0-9.]* [KM]iB are free' "$tmp/err" || fail "txdactl load without room: $(cat "$tmp/err")"
ctl unpin a >"$tmp/answer" || fail "txdactl unpin"
begin_long_stream a
id=$(ctl requests | sed -n '2s/ .*//p')
ctl cancel "$id" || fail "txdactl cancel"
wait "$pid" || fail "the stream that was cancelled"
ctl cancel "$id" 2>"$tmp/err" && fail "txdactl cancel of nothing"
for wrong in "" "bogus" "load" "load a b" "models a" "cancel" "health --force" "unload a --keep-alive 3" "plan a --no-wait" "load a --force"; do
	# shellcheck disable=SC2086 # words
	ctl $wrong 2>"$tmp/err" && status=0 || status=$?
	[ "$status" = 2 ] || fail "txdactl $wrong: exit status $status"
done
ctl load nothing 2>"$tmp/err" && fail "txdactl load of nothing"
grep -q 'does not exist' "$tmp/err" || fail "txdactl load of nothing: $(cat "$tmp/err")"

# ---- hostile and wrong -------------------------------------------------------------------------
for route in load unload sleep wake pin plan; do
	expect 400 'not valid JSON' "/v1/models/$route" '{"model":'
	expect 400 'must be a JSON object' "/v1/models/$route" '["a"]'
	expect 400 'there must be a string' "/v1/models/$route" '{}'
	expect 400 'model' "/v1/models/$route" '{"model":7}'
	expect 400 'model' "/v1/models/$route" '{"model":"a","model":"b"}'
	expect 404 model_not_found "/v1/models/$route" '{"model":"../../etc/passwd"}'
	request 405 method_not_allowed "/v1/models/$route" -X DELETE
done
expect 400 wait /v1/models/load '{"model":"a","wait":"yes"}'
expect 400 keep_alive /v1/models/load '{"model":"a","keep_alive":[]}'
expect 400 force /v1/models/unload '{"model":"a","force":1}'
expect 400 pinned /v1/models/pin '{"model":"a","pinned":"no"}'
expect 400 '"id\"' /v1/requests/cancel '{}'
request 405 method_not_allowed /v1/devices -X POST -d x
head -c 70000 /dev/zero | tr '\0' ' ' >"$tmp/body"
request 413 'the limit is 65536' /v1/models/load --data-binary "@$tmp/body"
is a ready || fail "wrong requests changed something: a is $(state_of a)"
stop

# ---- a model that fits nowhere, and one that does not fit beside another at the start -----------
start --model "a=$tmp/a" --model "b=$tmp/b"
is a ready && is b unloaded || fail "at the start: $(http http://localhost/health)"
ask b >/dev/null
is a unloaded || fail "what did not fit at the start does not come on demand"
stop

# ---- loads that take long ----------------------------------------------------------------------
if $fake; then
	FAKE_LOAD_MS=3000
	export FAKE_LOAD_MS
	start --load demand --model "a=$tmp/a" --model "b=$tmp/b"
	post /v1/models/load '{"model":"a","stream":true}' -N >"$tmp/load" &
	loading=$!
	ask a >"$tmp/waits" &
	waits=$!
	until_true 60 grep -qs '"phase":"loading","progress":0\.[1-9]' "$tmp/load" || fail "no progress: $(cat "$tmp/load")"
	expect 200 '"state":"unloaded"' /v1/models/unload '{"model":"a"}'
	wait "$loading" || fail "the load that was called off"
	tail -n 1 "$tmp/load" | grep -q '"state":"unloaded"' || fail "called off: $(tail -n 1 "$tmp/load")"
	wait "$waits" || fail "who waited for a load that was called off"
	# Who came too late for that began a load of his own.
	case $(cat "$tmp/waits") in *model_unloading* | "$first") ;; *) fail "who waited got $(cat "$tmp/waits")" ;; esac
	[ "$(ask a)" = "$first" ] || fail "after a load that was called off"
	# Killed while it loads: the next one begins as if nothing had been.
	post /v1/models/load '{"model":"b","wait":false}' | grep -q '"state":"loading"' || fail "a load without waiting"
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null || true
	FAKE_LOAD_MS=0
	start --load demand --model "a=$tmp/a" --model "b=$tmp/b"
	[ "$(ask b)" = "$other" ] || fail "after a kill in the middle of a load"
	stop
	# A client that leaves while it waits is forgotten.
	FAKE_LOAD_MS=2000
	start --load demand --model "a=$tmp/a"
	curl -sS --unix-socket "$socket" -d '{"model":"a","prompt":"Once"}' http://localhost$comp >/dev/null 2>&1 &
	pid=$!
	until_true 60 is a loading || fail "a is $(state_of a)"
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	until_true 60 is a ready || fail "a is $(state_of a)"
	http http://localhost/v1/requests | grep -q '"data":\[\]' || fail "left over: $(http http://localhost/v1/requests)"
	stop
	FAKE_LOAD_MS=4000
	start --load demand --model "a=$tmp/a" --load-timeout 1
	expect 503 'was not loaded within 1 s' $comp '{"model":"a","prompt":"Once"}'
	stop
	# The end, while a request waits for the load.
	start --load demand --model "a=$tmp/a"
	post /v1/models/load '{"model":"a"}' >"$tmp/load" &
	loading=$!
	until_true 60 is a loading || fail "a is $(state_of a)"
	stop
	wait "$loading" || fail "a load at the end"
	grep -q shutting_down "$tmp/load" || fail "a load at the end: $(cat "$tmp/load")"
	# No longer served while a request waits for the load.
	printf 'load = demand\nmodel = a=%s\nmodel = b=%s\n' "$tmp/a" "$tmp/b" >"$tmp/conf"
	start --config "$tmp/conf"
	ask a >"$tmp/waits" &
	waits=$!
	until_true 60 is a loading || fail "a is $(state_of a)"
	printf 'load = demand\nmodel = b=%s\n' "$tmp/b" >"$tmp/conf"
	kill -HUP "$daemon"
	wait "$waits" || true
	grep -q model_not_found "$tmp/waits" || fail "no longer served: $(cat "$tmp/waits")"
	[ "$(ask b)" = "$other" ] || fail "beside a model that is no longer served"
	stop
	# Replaced by a reload: who waits, and who comes while it loads anew, is told when to come again.
	printf 'load = demand\nmodel = a=%s\n' "$tmp/a" >"$tmp/conf"
	start --config "$tmp/conf"
	ask a >"$tmp/waits" &
	waits=$!
	until_true 60 is a loading || fail "a is $(state_of a)"
	printf 'max-model-len = 64\nmodel = a=%s\n' "$tmp/a" >"$tmp/conf"
	kill -HUP "$daemon"
	wait "$waits" || true
	grep -q 'is being replaced' "$tmp/waits" || fail "replaced: $(cat "$tmp/waits")"
	request 503 'is loading' $comp -d '{"model":"a","prompt":"Once"}' -D "$tmp/head"
	grep -qi '^retry-after: [1-9]' "$tmp/head" || fail "a model that loads anew: $(cat "$tmp/head")"
	until_true 60 is a ready || fail "a is $(state_of a)"
	expect 200 '"text"' $comp '{"model":"a","prompt":"Once","max_tokens":1}'
	stop
	unset FAKE_LOAD_MS
fi

# ---- a list of models that changes -------------------------------------------------------------
printf 'load = demand\nmodel = a=%s\nmodel = b=%s\n' "$tmp/a" "$tmp/b" >"$tmp/conf"
start --config "$tmp/conf"
ask b >/dev/null
begin_stream b 1500
printf 'load = demand\nkeep-alive = 90\nmodel = a=%s\nserved-model-name = alias\nmodel = c=%s\n' "$tmp/a" "$tmp/c" >"$tmp/conf"
kill -HUP "$daemon"
has_c() {
	http http://localhost/v1/models | grep -q '"id":"c"'
}
until_true 60 has_c || fail "a new model is not served: $(http http://localhost/v1/models)"
expect 404 model_not_found $comp '{"model":"b","prompt":"Once"}'
request 200 '"keep_alive":90' /v1/models/alias
wait "$pid" || fail "the running stream"
[ "$(grep -c '"finish_reason":"length"' "$tmp/running")" = 1 ] || fail "a model that is not served any more cuts its stream short"
ask c >"$tmp/answer"
grep -q '"text":"' "$tmp/answer" || fail "the new model: $(cat "$tmp/answer")"
printf 'model = a=%s\nbogus = 1\n' "$tmp/a" >"$tmp/conf"
kill -HUP "$daemon"
until_true 60 grep -q 'the settings are wrong; the previous ones stay in force' "$tmp/txdad.log" || fail "wrong settings are not told"
has_c || fail "wrong settings took effect"
stop

# A model of the start that has to be loaded anew while it works: it comes back, once what runs has ended.
printf 'model = a=%s\n' "$tmp/a" >"$tmp/conf"
start --config "$tmp/conf"
begin_stream a 1500
printf 'model = a=%s\nmax-num-seqs = 3\n' "$tmp/a" >"$tmp/conf"
kill -HUP "$daemon"
is_anew() {
	http http://localhost/v1/models/a | grep -q '"max_num_seqs":3'
}
until_true 60 is_anew || fail "the new setting: $(http http://localhost/v1/models/a)"
# The one from before goes on without its name: there is no series twice.
[ "$(http http://localhost/metrics | grep -c '^txda_model_replicas{model_name="a"}')" = 1 ] || fail "a name twice in the metrics"
wait "$pid" || fail "the running stream"
[ "$(grep -c '"finish_reason":"length"' "$tmp/running")" = 1 ] || fail "a reload cuts a stream short"
until_true 60 is a ready || fail "after a reload in the middle of a stream a is $(state_of a)"
[ "$(ask a)" = "$first" ] || fail "after a reload it says something else"
stop

# Requests that name no model get the first one of the settings, also if that is loaded anew or they have another order.
printf 'load = demand\nmodel = a=%s\nmodel = b=%s\n' "$tmp/a" "$tmp/b" >"$tmp/conf"
start --config "$tmp/conf"
# listed NAME...: the models, in that order
listed() {
	[ "$(http http://localhost/v1/models | grep -o '{"id":"[^"]*"' | cut -d'"' -f4 | xargs)" = "$*" ]
}
listed a b || fail "the order of the models: $(http http://localhost/v1/models)"
printf 'load = demand\nmodel = a=%s\nmax-num-seqs = 3\nmodel = b=%s\n' "$tmp/a" "$tmp/b" >"$tmp/conf"
kill -HUP "$daemon"
until_true 60 is_anew || fail "the new setting: $(http http://localhost/v1/models/a)"
listed a b || fail "the order after a reload: $(http http://localhost/v1/models)"
expect 200 '"model":"a"' $comp '{"prompt":"Once","max_tokens":1}'
printf 'load = demand\nmodel = c=%s\nmodel = b=%s\nmodel = a=%s\n' "$tmp/c" "$tmp/b" "$tmp/a" >"$tmp/conf"
kill -HUP "$daemon"
until_true 60 listed c b a || fail "the order after another one: $(http http://localhost/v1/models)"
stop

# ---- replicas ----------------------------------------------------------------------------------
FAKE_CHIPS=2
TXDA_CMODEL=chips=2,mem=64M
export FAKE_CHIPS
start --model "a=$tmp/a" --data-parallel-size 2
both() {
	http http://localhost/v1/models/a | grep -q '"chips":\[0\].*"chips":\[1\]'
}
until_true 60 both || fail "two replicas: $(http http://localhost/v1/models/a)"
[ "$(counter 'replicas{model_name="a"}')" = 2 ] || fail "replicas in the metrics"
[ "$(ask a)" = "$first" ] || fail "with replicas it says something else"
expect 200 '"state":"unloaded"' /v1/models/unload '{"model":"a"}'
[ "$(ask a)" = "$first" ] || fail "replicas that came back say something else"
stop

# All chips of a model are shown, however many it has.
if ! $fake; then
	TXDA_CMODEL=chips=32,mem=64M,cores=1 start --model "a=$tmp/a" --tp-size 4 --data-parallel-size 8
	all="0,1,2,3;4,5,6,7;8,9,10,11;12,13,14,15;16,17,18,19;20,21,22,23;24,25,26,27;28,29,30,31"
	has_all() {
		ctl models | grep -q "^a  *ready  *$all "
	}
	until_true 60 has_all || fail "txdactl models: $(ctl models)"
	stop
fi

# ---- who may -----------------------------------------------------------------------------------
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 711 "$tmp"
	as_nobody() {
		setpriv --reuid 65534 --regid 65534 --clear-groups curl -sS --max-time 60 --unix-socket "$socket" "$@"
	}
	start --load demand --model "a=$tmp/a" --socket-mode 0666
	as_nobody -d '{"model":"a"}' http://localhost/v1/models/load | grep -q 'user 65534 is not an administrator' || fail "anybody loads"
	for route in unload sleep wake pin plan; do
		[ "$(as_nobody -o /dev/null -w '%{http_code}' -d '{"model":"a"}' http://localhost/v1/models/$route)" = 403 ] || fail "anybody may $route"
	done
	[ "$(as_nobody -o /dev/null -w '%{http_code}' http://localhost/v1/devices)" = 403 ] || fail "anybody sees the devices"
	is a unloaded || fail "a refused request did something"
	begin_long_stream a
	as_nobody http://localhost/v1/requests | grep -q '"data":\[\]' || fail "anybody sees others' requests"
	id=$(http http://localhost/v1/requests | grep -o '"id":"cmpl-[^"]*"' | cut -d'"' -f4)
	as_nobody -d "{\"id\":\"$id\"}" http://localhost/v1/requests/cancel | grep -q request_not_found || fail "anybody cancels others' requests"
	expect 200 cancelled /v1/requests/cancel "{\"id\":\"$id\"}"
	wait "$pid" || fail "the stream that was cancelled"
	# His wish for the memory of all does not count.
	as_nobody -d '{"model":"a","prompt":"Once","max_tokens":1,"keep_alive":0}' http://localhost$comp | grep -q text_completion || fail "nobody asks"
	request 200 '"keep_alive":-1' /v1/models/a
	# Nor may he go before others, after them he may.
	as_nobody -d '{"model":"a","prompt":"Once","max_tokens":1,"priority":-1}' http://localhost$comp | grep -q priority_not_permitted || fail "nobody goes before others"
	as_nobody -d '{"model":"a","prompt":"Once","max_tokens":1,"priority":1}' http://localhost$comp | grep -q text_completion || fail "nobody may not go after others"
	stop
	start --load demand --model "a=$tmp/a" --socket-mode 0666 --admin-group 65534
	as_nobody -d '{"model":"a"}' http://localhost/v1/models/load | grep -q '"state":"ready"' || fail "--admin-group"
	stop
else
	echo "not tested: other users, as that takes root and setpriv"
fi
conclude
