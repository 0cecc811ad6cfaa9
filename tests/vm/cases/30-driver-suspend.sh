#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: append=pci=nommconf+pcie_ports=native kernels=6.12,7.2
# Suspend to memory with open files, queues and buffers: memory comes back as it was, and clients go on.
# not elsewhere: Debian's 7.3 does not come back from sleep in QEMU, with or without the module: user space hangs after "PM: suspend exit".
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
node_load -s 1000 /dev/accel/accel0 >/tmp/one 2>&1 &
one=$!
node_load -s 1000 /dev/accel/accel1 >/tmp/two 2>&1 &
two=$!
sleep 1

suspend() {
	sleep_and_wake || fail "suspend $1: $(dmesg | grep -i txda | tail -n 3)"
	for device in $(chip_list); do
		[ "$(cat "/sys/bus/pci/devices/$device/state")" = up ] || fail "$device is $(cat "/sys/bus/pci/devices/$device/state") after suspend $1"
		[ "$(cat "/sys/bus/pci/devices/$device/reset_count")" -eq 0 ] || fail "$device was reset"
	done
}

for i in 1 2 3 4 5; do
	suspend $i
	sleep 1
done
kill -INT $one $two
wait $one || { cat /tmp/one; fail "first client"; }
wait $two || { cat /tmp/two; fail "second client"; }
cat /tmp/one /tmp/two
for i in one two; do
	read -r word jobs word lost word gone <"/tmp/$i"
	[ "$jobs" -gt 0 ] && [ "$lost" -eq 0 ] && [ "$gone" -eq 0 ] || fail "client $i: $jobs jobs, $lost lost"
done

# A job that does not end loses its queue; it does not keep the machine awake.
ioctl_queue_fault --busy >/tmp/busy 2>&1 &
busy=$!
wait_for 30 grep -q busy /tmp/busy || fail "the client is not busy: $(cat /tmp/busy)"
suspend "with a job that does not end"
wait $busy || { cat /tmp/busy; fail "the client with a job that did not end"; }
dmesg | grep -q "queue 1 of process [0-9]* is lost, the machine sleeps" || fail "no word of the queue that was lost"
