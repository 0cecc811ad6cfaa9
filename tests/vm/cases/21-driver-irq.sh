#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix
# MSI-X: a vector for events, the others shared by the queues; work makes them fire.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 4 || fail "nodes"
pci=$(chip_list | head -n 1)

vectors() {
	grep -c "$pci" /proc/interrupts
}

fired() {
	awk -v pci="$pci" 'index($0, pci) { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

[ "$(vectors)" -eq 17 ] || fail "$(vectors) vectors, the chip has 17"
grep "$pci" /proc/interrupts | grep -qi 'MSI-\?X' || fail "no MSI-X: $(grep "$pci" /proc/interrupts)"
grep -q '^MSI-X' "/sys/kernel/debug/accel/$pci/irqs" || fail "debugfs says $(head -n 1 "/sys/kernel/debug/accel/$pci/irqs")"
before=$(fired)
node_load -s 1 /dev/accel/accel0 || fail "no work"
after=$(fired)
[ "$after" -gt "$before" ] || fail "work was done without an interrupt"
