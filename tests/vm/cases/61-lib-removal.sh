#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: about=user
# A chip is pulled out while libtxda works on it: its clients are told, those of the other chip go on;
# plugged in again it is a chip of the contexts that are open, and works.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
udevadm settle
export TXDA_BACKEND=drm

lib_client work -p 0 >/tmp/pulled 2>&1 &
pulled=$!
lib_client work -p 1 >/tmp/other 2>&1 &
other=$!
lib_client follow 4 >/tmp/follow 2>&1 &
follow=$!
txda-smi events --json >/tmp/events 2>&1 &
events=$!
wait_for 30 grep -q working /tmp/pulled || fail "no work on chip 0: $(cat /tmp/pulled)"
wait_for 30 grep -q working /tmp/other || fail "no work on chip 1: $(cat /tmp/other)"
wait_for 30 grep -q '2 chips' /tmp/follow || fail "nobody listens: $(cat /tmp/follow)"

for round in 1 2; do
	unplug 0 || fail "device_del"
	if [ $round -eq 1 ]; then
		status=0
		wait $pulled || status=$?
		cat /tmp/pulled
		[ $status -eq 3 ] || fail "the client of the chip ended with $status"
		grep -q 'No such device' /tmp/pulled || fail "it does not say why"
	fi
	wait_for 30 chips_are 1 || fail "the chip stays"
	plug 0 || fail "device_add"
	wait_for 30 nodes_are 2 || fail "no node"
done
wait $follow || { cat /tmp/follow; fail "the listener"; }
cat /tmp/follow
[ "$(grep -c '^used chip 0' /tmp/follow)" -eq 2 ] || fail "the chip was not used again"
[ "$(tail -n 1 /tmp/follow)" = "2 chips" ] || fail "it is another chip"
kill $events
cat /tmp/events
[ "$(grep -c '"event":"removed"' /tmp/events)" -eq 2 ] && [ "$(grep -c '"event":"added"' /tmp/events)" -eq 2 ] ||
	fail "txda-smi missed something"
kill $other
wait $other || { cat /tmp/other; fail "the other chip's client"; }
cat /tmp/other
