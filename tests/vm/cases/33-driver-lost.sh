#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# Chips that stop answering, as a card does that falls off the bus: no call waits for ever, reads fail, and the module
# unloads.
. /rig/guest/lib.sh
load job_timeout_ms=500 || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
for i in 0 1; do
	node_load -s 20 /dev/accel/accel$i >/tmp/load$i 2>&1 &
	eval "client$i=$!"
done
sleep 1
for i in 0 1; do
	vmhost disappear $i || fail "disappear $i"
done
for file in "$device/serial" "$device/npu_busy_time_us" "$device/ecc_corrected" "$device"/hwmon/hwmon*/temp1_input; do
	timeout 5 cat "$file" >/dev/null 2>&1
	[ $? -ne 124 ] || fail "$file waits"
done
! cat "$device"/hwmon/hwmon*/temp1_input 2>/dev/null || fail "a temperature of a chip that does not answer"

over() {
	! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status"
}
# Its jobs are given up; what is submitted then is refused.
wait_for 40 over "$client0" || fail "a client waits for ever: $(cat /tmp/load0)"
wait_for 40 over "$client1" || fail "a client waits for ever: $(cat /tmp/load1)"
cat /tmp/load0 /tmp/load1
timeout 60 node_load -s 1 /dev/accel/accel0 >/tmp/load 2>&1
grep -q '^jobs 0 ' /tmp/load || { cat /tmp/load; fail "work was done by a chip that is not there"; }
timeout 60 rmmod txda || fail "rmmod"

# Chips that work for whatever comes next.
for i in 0 1; do
	vmhost appear $i || fail "appear $i"
done
for i in 0 1; do
	unplug $i || fail "device_del $i"
done
wait_for 30 chips_are 0 || fail "chips stay"
for i in 0 1; do
	plug $i || fail "device_add $i"
done
