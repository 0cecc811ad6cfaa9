#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: about=user level=check
# The daemon on the driver gives the same answers as on the device model in-process, with one chip and
# with two. When a chip is pulled out, the answers it works on end with an error, and no others; the
# model comes back on the chip that is left, and on one that is plugged in again.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
udevadm settle
export TXDA_BACKEND=drm
s=/tmp/txda.sock

ask() {
	curl -sS --max-time "$1" --unix-socket $s -H 'Content-Type: application/json' "http://localhost/$2" -d "$3"
}

healthy() {
	curl -fsS --max-time 5 --unix-socket $s http://localhost/health >/tmp/health 2>/dev/null
}

start() {
	txdad "$@" --max-num-seqs 4 --socket $s 2>/tmp/log &
	daemon=$!
	wait_for 60 healthy || { cat /tmp/log; fail "the daemon is not healthy"; }
}

end() {
	kill $daemon
	wait $daemon || { cat /tmp/log; fail "the daemon did not end well"; }
}

# same MODEL REFERENCE
same() {
	ask 120 v1/completions "$(sed "s/{/{\"model\": \"$1\", /" /t/text/question)" >/tmp/answer || fail "no answer of $1"
	sed 's/.*"text":"\(.*\)","logprobs".*/\1/' /tmp/answer | cmp -s - "/t/text/$2" || {
		cat /tmp/answer /tmp/log
		fail "$1 does not write what it should"
	}
}

start --model demo=/t/cases/demo-tp2
same demo demo-tp2
end
! asked check || exit 0

start --model a=/t/cases/demo-tp1 --model b=/t/cases/demo-tp1
same a demo-tp1
same b demo-tp1
timeout 30 txda-smi || fail "txda-smi"

# One answer after the other, until one ends with an error or nobody wants more.
streams() {
	: >/tmp/ended-$1
	until [ -e /tmp/enough ] || grep -q '"error"' /tmp/ended-$1; do
		ask 200 v1/completions "{\"model\": \"$1\", \"prompt\": \"Once\", \"max_tokens\": 1200, \"temperature\": 0, \"ignore_eos\": true, \"stream\": true}" >/tmp/stream-$1
		tail -n 4 /tmp/stream-$1 >>/tmp/ended-$1
	done
}
for m in a b; do
	streams $m &
	eval "stream_$m=$!"
done
run() {
	[ "$(wc -l </tmp/stream-a)" -gt 40 ] && [ "$(wc -l </tmp/stream-b)" -gt 40 ]
}
told() {
	grep -q '"error"' /tmp/ended-a /tmp/ended-b
}
wait_for 60 run || fail "the streams do not run"
! told || { cat /tmp/ended-*; fail "an error, and all is well"; }
unplug 0 || fail "device_del"
wait_for 60 told || { cat /tmp/log; fail "nobody was told of an error"; }
touch /tmp/enough
wait $stream_a $stream_b
cat /tmp/ended-a /tmp/ended-b
[ "$(grep -l '"error"' /tmp/ended-a /tmp/ended-b | wc -l)" -eq 1 ] || fail "not just one was told of an error"
tail -qn 4 /tmp/ended-a /tmp/ended-b | grep -q '"finish_reason":"length"' || fail "the other did not go on to its end"
grep -h '"error"' /tmp/ended-a /tmp/ended-b | grep -q 'lost' || fail "the error does not say why"

wait_for 60 healthy || { cat /tmp/log; fail "the lost model does not come back"; }
same a demo-tp1
same b demo-tp1

wait_for 30 chips_are 1 || fail "the chip stays"
plug 0 || fail "device_add"
wait_for 30 nodes_are 2 || fail "no node"
wait_for 30 grep -q 'was added' /tmp/log || { cat /tmp/log; fail "the daemon did not notice the chip"; }
unplug 1 || fail "device_del"
# Idle models learn of it with their next request.
ask 60 v1/completions '{"model": "a", "prompt": "x", "max_tokens": 1}'
ask 60 v1/completions '{"model": "b", "prompt": "x", "max_tokens": 1}'
wait_for 60 healthy || { cat /tmp/log; fail "the models do not move to the new chip"; }
same a demo-tp1
same b demo-tp1
txda-smi
end
cat /tmp/log
plug 1 || fail "device_add"
