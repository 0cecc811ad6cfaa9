#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: append=pci=nommconf+pcie_ports=native kernels=6.12,7.2
# Chips lose their power while the machine sleeps, and serve again after it, time and again.
# not elsewhere: Debian's 7.3 does not come back from sleep in QEMU, with or without the module: user space hangs after "PM: suspend exit".
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
for _ in 1 2 3; do
	sleep_and_wake || fail "no sleep"
	chips_are 2 || fail "$(chip_count) chips of 2 after the sleep"
	nodes_are 2 || fail "$(node_count) nodes of 2 chips after the sleep"
	for node in /dev/accel/accel*; do
		node_info "$node" || fail "$node does not answer after the sleep"
	done
done
# Without the driver a chip sleeps as well.
unload || fail "rmmod"
sleep_and_wake || fail "no sleep without the driver"
load || fail "insmod after a sleep"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips after a sleep without the driver"
