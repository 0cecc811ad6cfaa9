#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What becomes of a model's text process: killed, stopped, given hostile templates, expressions and
# files. Only the request that was worked on gets an error, and other users' requests go on.
# UNCONFINED is set where the build does not confine itself (sanitizers).
set -eu
. "$(dirname "$0")/lib.sh"

chat=/v1/chat/completions
hello='{"messages":[{"role":"user","content":"Hello"}],"max_tokens":2}'
chmod 755 "$tmp"

# The children of a process, in order.
children() {
	grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status | sed 's/[^0-9]//g' | sort -n
}
# The text process of the only model, and its lanes.
text_process() {
	for child in $(children "$daemon"); do
		if tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | grep -q txdad-text; then
			echo "$child"
		fi
	done
}
gone() {
	for pid in "$@"; do
		# One that is dead and that its parent has not looked at yet counts as gone.
		if [ -e "/proc/$pid" ] && ! grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; then
			return 1
		fi
	done
}
# Whether there are lanes, and all that live wait for a job: one that has not begun to is replaced
# unnoticed when it is killed. Three are started with the model, more when a request finds none of
# its priority. Others than root may not see what a process waits for.
has_lanes() {
	pids=$(children "$(text_process)")
	[ "$(echo "$pids" | wc -w)" -ge 3 ] || return 1
	for pid in $pids; do
		gone "$pid" && continue
		grep -qs '^State:[[:space:]]*S' "/proc/$pid/status" || return 1
		call=$(cat "/proc/$pid/syscall" 2>/dev/null) || continue
		# read(2) of descriptor 0
		case $call in *" 0x0 "*) ;; *) return 1 ;; esac
	done
}
describe() {
	for pid in "$@"; do
		echo "$pid: $(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>&1), in call $(cat "/proc/$pid/syscall" 2>&1)"
	done
}
# Sets $lanes.
find_lanes() {
	# shellcheck disable=SC2046,SC2086 # pids are words
	until_true 120 has_lanes || fail "there are not 3 lanes, all waiting: $(describe $(text_process) $pids)"
	lanes=$(children "$(text_process)")
}
# send FILE [OPTION...]: a chat in the background, its status into FILE; its pid is $!
send() {
	file=$1
	shift
	printf '%s' "$hello" | curl -sS --max-time 100 --unix-socket "$socket" -o "$file.body" -w '%{http_code}' \
		-H 'Content-Type: application/json' --data-binary @- "$@" "http://localhost$chat" >"$file" 2>"$file.err" &
}
# ---- what it may ---------------------------------------------------------------------------------
start_daemon --text-timeout 600 --socket-mode 0666
expect 200 '"object":"chat.completion"' $chat "$hello"
find_lanes
[ "$(echo "$lanes" | wc -w)" = 3 ] || fail "not 3 lanes for one user's request: $lanes"
if [ -z "${UNCONFINED:-}" ]; then
	for pid in $(text_process) $lanes; do
		grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" || fail "no filter of system calls: $(grep Seccomp "/proc/$pid/status")"
		grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$pid/status" || fail "new privileges are possible"
	done
fi
if [ "$(id -u)" = 0 ]; then
	for pid in $lanes; do
		[ "$(ls "/proc/$pid/fd")" = "$(printf '0\n1\n2')" ] || fail "descriptors of a lane: $(ls -l "/proc/$pid/fd")"
	done
fi

# ---- killed --------------------------------------------------------------------------------------
# In the middle of a request: that one gets an error, the next one an answer.
is_reading() {
	http http://localhost/v1/requests | grep -q '"state":"reading"'
}
# All lanes are stopped, since the order in which they are used need not be that of their numbers. A
# request counts as being read from when it waits for a lane, and gets another one if they are
# killed before it has one: then once more.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	find_lanes
	# shellcheck disable=SC2086
	kill -STOP $lanes
	send "$tmp/killed"
	client=$!
	until_true 60 is_reading || fail "no request is being read"
	# shellcheck disable=SC2086
	kill -9 $lanes
	wait "$client" || true
	[ "$(cat "$tmp/killed")" = 200 ] || break
done
[ "$(cat "$tmp/killed")" = 500 ] || fail "killed in the middle: $(cat "$tmp/killed" "$tmp/killed.body")"
grep -q 'the process that read messages ended' "$tmp/killed.body" || fail "$(cat "$tmp/killed.body")"
expect 200 '"object":"chat.completion"' $chat "$hello"

# ---- ended while it is read --------------------------------------------------------------------------
# By an administrator who does not wait, and by the end of the daemon.
stop
start_daemon --text-timeout 600 --drain-seconds 1
for end in unload stop; do
	find_lanes
	# shellcheck disable=SC2086
	kill -STOP $lanes
	send "$tmp/ended"
	client=$!
	until_true 60 is_reading || fail "no request is being read"
	if [ "$end" = unload ]; then
		expect 200 '"state":"unloaded"' /v1/models/unload '{"model":"demo","force":true}'
		words='its model is being unloaded'
	else
		stop
		words='the daemon is shutting down'
	fi
	wait "$client" || true
	[ "$(cat "$tmp/ended")" = 503 ] || fail "$end: $(cat "$tmp/ended" "$tmp/ended.body")"
	grep -q "$words" "$tmp/ended.body" || fail "$end: $(cat "$tmp/ended.body")"
	# Those that are still stopped belong to the model's next load.
	# shellcheck disable=SC2086
	kill -9 $lanes 2>/dev/null || true
	# shellcheck disable=SC2086
	until_true 60 gone $lanes || fail "stopped lanes live on"
done

# ---- the daemon's ends -----------------------------------------------------------------------------
start_daemon
find_lanes
all="$(text_process) $lanes"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
# shellcheck disable=SC2086
until_true 60 gone $all || fail "the text process outlives a daemon that was killed"
rm -f "$socket"

# ---- hostile models --------------------------------------------------------------------------------
# hostile NAME: a copy of the model, to be spoilt
hostile() {
	mkdir "$tmp/$1"
	for file in config.json generation_config.json tokenizer.json tokenizer_config.json; do
		cp "$MODEL/$file" "$tmp/$1/$file"
	done
}
for name in loops grows deep cut repeats; do
	hostile $name
done
cat >"$tmp/loops/chat_template.jinja" <<'END'
{%- for a in range(1000) %}{%- for b in range(1000) %}{%- for c in range(1000) %}{{- messages[0].content[:1] }}{%- endfor %}{%- endfor %}{%- endfor %}
END
cat >"$tmp/grows/chat_template.jinja" <<'END'
{%- set ns = namespace(text='a long text ') %}{%- for a in range(60) %}{%- set ns.text = ns.text + ns.text %}{%- endfor %}{{- ns.text }}
END
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "[" }' >"$tmp/deep/tokenizer.json"
head -c 20000 "$MODEL/tokenizer.json" >"$tmp/cut/tokenizer.json"
# An expression that takes exponential time.
cat >"$tmp/repeats/tokenizer.json" <<'END'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}, "decoder": {"type": "ByteLevel"},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
  {"type": "Split", "pattern": {"Regex": "(?:(?:a|aa)+)+c"}, "behavior": "Isolated", "invert": false},
  {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}}
END
rm "$tmp/repeats/tokenizer_config.json"
start_daemon --text-timeout 50 --text-memory 128M --model "loops=$tmp/loops" --model "grows=$tmp/grows" --model "deep=$tmp/deep" --load demand --model "cut=$tmp/cut" --load demand \
	--model "repeats=$tmp/repeats"
# refused MODEL PATH BODY: whatever it says, it is an error; or, at the slowest, a request that took too long
refused() {
	got=$(post "$1" "$2" -o "$tmp/answer" -w '%{http_code}') || true
	case $got in
	400 | 500 | 504) grep -q '^{"error":{"message":"' "$tmp/answer" || fail "$2: $(cat "$tmp/answer")" ;;
	*) fail "$2: status $got: $(head -c 300 "$tmp/answer")" ;;
	esac
}
refused $chat '{"model":"loops","messages":[{"role":"user","content":"x"}],"max_tokens":1}'
# Of a request's own limit and the daemon's, the one that was exceeded is named.
expect 504 'the request was not answered within 0.1 s' $chat '{"model":"loops","messages":[{"role":"user","content":"x"}],"timeout":0.1}'
refused $chat '{"model":"grows","messages":[{"role":"user","content":"x"}],"max_tokens":1}'
long=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "a"; printf "bc" }')
refused /tokenize "{\"model\":\"repeats\",\"prompt\":\"$long\"}"
expect 503 'deep/tokenizer.json' $chat '{"model":"deep","messages":[{"role":"user","content":"x"}]}'
expect 503 'cut/tokenizer.json' $chat '{"model":"cut","messages":[{"role":"user","content":"x"}]}'
expect 200 '"object":"chat.completion"' $chat "$hello"
expect 200 '"count":' /tokenize '{"model":"loops","prompt":"fine"}'
expect 200 '"count":' /tokenize '{"model":"grows","prompt":"fine"}'
expect 200 '"count":3' /tokenize '{"model":"repeats","prompt":"abc"}'
stop

[ -z "$(text_process)" ] || fail "a text process is left over"
conclude
