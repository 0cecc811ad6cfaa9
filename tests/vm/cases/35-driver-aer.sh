#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# PCI errors on the chips' ports, reported by AER: what is not fatal disturbs nobody who works; what is fatal, or finds the
# chip gone, resets the bus under the chip, and the node is back with new work done.
. /rig/guest/lib.sh
dmesg | grep -q 'AER: enabled' || skip "this kernel leaves AER to the firmware"
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
node=/dev/accel/$(ls "$device/accel")

# aer ERROR - by the port of chip 0, as QEMU names it.
aer() {
	vmhost qmp '{"execute": "human-monitor-command", "arguments": {"command-line": "pcie_aer_inject_error rp0 '"$1"'"}}' ||
		fail "the monitor does not inject $1"
}

said() {
	[ "$(dmesg | grep -c "$1")" -ge "$2" ]
}

up() {
	[ "$(cat "$device/state")" = up ]
}

# Each chip has one client that works all the time and says how often it lost its queue.
node_load -s 1000 "$node" >/tmp/load &
client=$!
sleep 1

echo "== not fatal"
aer POISON_TLP
wait_for 30 said 'PCI error, channel state 1' 1 || fail "the driver was not told"
wait_for 30 said 'device recovery successful' 1 || fail "no recovery"
up || fail "the chip is $(cat "$device/state")"
kill -INT $client
wait $client || fail "the client failed: $(cat /tmp/load)"
cat /tmp/load
grep -q ' lost 0 ' /tmp/load || fail "work was lost for nothing"

echo "== fatal"
resets=$(cat "$device/reset_count")
node_load -s 1000 "$node" >/tmp/load &
client=$!
sleep 1
aer MALF_TLP
wait_for 30 said 'PCI error, channel state 2' 1 || fail "the driver was not told"
wait_for 30 said 'device recovery successful' 2 || fail "no recovery"
wait_for 30 up || fail "the chip is $(cat "$device/state")"
[ "$(cat "$device/reset_count")" -gt "$resets" ] || fail "nothing was reset"
[ -e "$node" ] || fail "the node is gone"
node_load -s 1 "$node" || fail "no work after a fatal error"
kill -INT $client
wait $client || fail "the client failed: $(cat /tmp/load)"
cat /tmp/load
! grep -q ' lost 0 ' /tmp/load || fail "a client did not notice that its chip was reset"
node_load -s 1 /dev/accel/accel1 || fail "the other chip"
