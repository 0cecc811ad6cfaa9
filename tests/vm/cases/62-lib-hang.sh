#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix about=user
# One of two clients of a chip hangs: it gets its error and may begin anew, the other notices nothing,
# txda-smi shows all of it. Then the chip is reset under both, and both begin anew.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load job_timeout_ms=1000 || fail "insmod"
wait_for 30 nodes_are "$(chip_count)" || fail "nodes"
udevadm settle
export TXDA_BACKEND=drm

lib_client work -rp 0 >/tmp/a 2>&1 &
a=$!
lib_client work -rp 0 >/tmp/b 2>&1 &
b=$!
lib_client work -p 1 >/tmp/c 2>&1 &
c=$!
txda-smi events >/tmp/events 2>&1 &
events=$!
for client in a b c; do
	wait_for 30 grep -q working /tmp/$client || fail "client $client does not work: $(cat /tmp/$client)"
done
vmhost inject hang:chip=0 || fail "inject"
hung() {
	grep -q 'Input/output error.*hang' /tmp/a /tmp/b
}
wait_for 30 hung || fail "no client was told of the hang: $(cat /tmp/a /tmp/b)"
# It answers while a queue hangs, and shows who uses the chip.
timeout $((30 * slow)) txda-smi >out || fail "txda-smi"
cat out
[ "$(grep -c lib_client out)" -ge 3 ] || fail "txda-smi does not show the clients"
wait_for 30 grep -q ' fault .* hang' /tmp/events || fail "txda-smi events does not tell: $(cat /tmp/events)"
[ "$(grep -h 'after .* rounds' /tmp/a /tmp/b | wc -l)" -eq 1 ] || fail "both were hit: $(cat /tmp/a /tmp/b)"
vmhost inject clear:chip=0

timeout $((30 * slow)) txda-smi reset 0 || fail "txda-smi reset"
lost() {
	[ "$(grep -h 'after .* rounds' /tmp/a /tmp/b | wc -l)" -ge 3 ]
}
wait_for 30 lost || fail "nobody noticed the reset: $(cat /tmp/a /tmp/b)"
wait_for 30 grep -q ' reset  ' /tmp/events || fail "txda-smi events does not tell: $(cat /tmp/events)"
setpriv --reuid=tester --regid=tester --groups=render txda-smi reset 0 2>out && fail "anybody may reset"
grep -q 'only root' out || fail "$(cat out)"
sleep 2
kill $a $b $c $events
for pid in $a $b $c; do
	wait "$pid" || fail "a client: $(cat /tmp/a /tmp/b /tmp/c)"
done
cat /tmp/a /tmp/b /tmp/c /tmp/events
for client in a b; do
	before=$(sed -n 's/^chip 0 after \([0-9]*\) rounds.*/\1/p' /tmp/$client | tail -n 1)
	all=$(sed -n 's/^chip 0: \([0-9]*\) rounds.*/\1/p' /tmp/$client)
	[ "$all" -gt "$before" ] || fail "client $client did no work after the reset"
done
grep -q '^chip 1: [0-9]* rounds, 0 errors' /tmp/c || fail "the other chip's client was hit"
