#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel timeout=1800 level=check
# 200 resets (a short run: 20) of function and chip under load: the node stays, work begins anew on open files, and the other chip goes on.
. /rig/guest/lib.sh
load job_timeout_ms=500 || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
node=$(ls "$device/accel")
other=$(ls "/sys/bus/pci/devices/$(chip_list | tail -n 1)/accel")

clients=
for i in 1 2 3; do
	node_load -p 20 -s 1000 "/dev/accel/$node" >"/tmp/load$i" 2>&1 &
	clients="$clients $!"
done
node_load -p 20 -s 1000 "/dev/accel/$other" >/tmp/other 2>&1 &
bystander=$!

alive() {
	for pid in $clients $bystander; do
		[ -d "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" || return 1
	done
}

count_is() {
	[ "$(cat "$device/reset_count")" -ge "$1" ] && [ "$(cat "$device/state")" = up ]
}

# Some time for work between two resets.
n=0
while [ $n -lt "$(storm 200)" ]; do
	n=$((n + 1))
	case $((n % 10)) in
	0) vmhost liveness-stop 0 || fail "liveness-stop, $n" ;;
	5) vmhost trip 0 || fail "trip, $n" ;;
	*) echo 1 >"$device/reset" || fail "reset $n" ;;
	esac
	wait_for 30 count_is $n || fail "reset $n did not come: $(cat "$device/reset_count"), $(cat "$device/state")"
	alive || { cat /tmp/load? /tmp/other; fail "a client died in reset $n"; }
done
[ -e "/dev/accel/$node" ] || fail "the node is gone"
# All of them work again.
sleep 1
kill -INT $clients $bystander
for pid in $clients; do
	wait "$pid" || { cat /tmp/load?; fail "a client failed"; }
done
wait $bystander || { cat /tmp/other; fail "the other chip's client failed"; }
cat /tmp/load? /tmp/other
for i in 1 2 3; do
	read -r word jobs word lost word gone <"/tmp/load$i"
	[ "$jobs" -gt 0 ] && [ "$lost" -ge "$(storm 20)" ] && [ "$gone" -eq 0 ] || fail "client $i: $jobs jobs, $lost lost, gone $gone"
done
read -r word jobs word lost word gone </tmp/other
[ "$jobs" -gt 0 ] && [ "$lost" -eq 0 ] || fail "the other chip: $jobs jobs, $lost lost"
node_load -s 1 "/dev/accel/$node" || fail "no work after all"
