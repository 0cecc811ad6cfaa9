#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix about=user
# Forward calls through the kernel driver: what a client gets in a memfd and in a dma-buf is what the daemon says in text, on one chip and on two.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are "$(chip_count)" || fail "$(node_count) nodes of $(chip_count) chips"
udevadm settle
export TXDA_BACKEND=drm
question="Once upon a time, in a dark wood,"
# ask PATH BODY: into the file answer
ask() {
	curl -fsS --unix-socket /tmp/s -H 'Content-Type: application/json' -d "$2" "http://localhost$1" >answer || {
		cat log
		fail "$1"
	}
}
for tp in 1 2; do
	txdad --model "demo=/t/cases/demo-tp$tp" --max-num-seqs 4 --socket /tmp/s 2>log &
	daemon=$!
	answers() {
		curl -fsS --max-time 20 --unix-socket /tmp/s http://localhost/health >/dev/null
	}
	wait_for 200 answers 2>/dev/null || { cat log; fail "the daemon does not answer"; }
	ask /v1/completions "{\"prompt\": \"$question\", \"max_tokens\": 16, \"temperature\": 0, \"ignore_eos\": true}"
	wanted=$question$(sed 's/.*"text":"\(\([^"\\]\|\\.\)*\)".*/\1/' answer)
	ask /tokenize "{\"prompt\": \"$question\"}"
	prompt=$(sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/; s/,/ /g' answer)
	before=$(ls /proc/$daemon/fd | wc -l)
	for how in "" -d; do
		# shellcheck disable=SC2086 # words are tokens
		tokens=$(forward_client $how /tmp/s demo $prompt) || { cat log; fail "forward_client $how"; }
		ask /detokenize "{\"tokens\": [$(echo "$prompt" "$tokens" | tr ' ' ,)]}"
		got=$(sed 's/.*"prompt":"\(\([^"\\]\|\\.\)*\)".*/\1/' answer)
		echo "tp $tp $how: $tokens: $got"
		[ "$got" = "$wanted" ] || fail "forward calls $how on $tp chips say $got, the daemon $wanted"
	done
	closed() {
		[ "$(ls /proc/$daemon/fd | wc -l)" -le "$before" ]
	}
	wait_for 30 closed || fail "$(ls -l /proc/$daemon/fd)"
	kill $daemon
	wait $daemon || { cat log; fail "the daemon ends with $?"; }
done
