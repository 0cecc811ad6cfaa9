#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# 50 times (a short run: 5) loaded with chips, at work, and unloaded: nothing stays behind.
. /rig/guest/lib.sh

cycle() {
	load || fail "insmod, cycle $1"
	wait_for 30 nodes_are 2 || fail "$(node_count) nodes, cycle $1"
	node_load -s 0 /dev/accel/accel0 >/dev/null || fail "no work, cycle $1"
	unload || fail "rmmod, cycle $1"
	nodes_are 0 || fail "$(node_count) nodes are left, cycle $1"
	! grep -q txda /proc/interrupts || fail "interrupts are left, cycle $1"
	! grep -q '^txda' /sys/class/hwmon/*/name 2>/dev/null || fail "sensors are left, cycle $1"
	! grep -q txda /proc/iomem || fail "BARs are left, cycle $1"
}

# The first ones fill caches of the kernel.
for i in 1 2 3; do
	cycle $i
done
before=$(kernel_memory)
while [ "$i" -lt "$(storm 50)" ]; do
	i=$((i + 1))
	cycle $i
done
kernel_memory_is "$before" 2048 || fail "kernel memory grew"
