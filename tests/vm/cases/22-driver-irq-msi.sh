#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: level=check
# MSI: one vector carries completions and events.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"

fired() {
	awk -v pci="$1" 'index($0, pci) { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

for pci in $(chip_list); do
	[ "$(grep -c "$pci" /proc/interrupts)" -eq 1 ] || fail "$pci has not one vector"
	grep -q '^MSI,' "/sys/kernel/debug/accel/$pci/irqs" || fail "debugfs says $(head -n 1 "/sys/kernel/debug/accel/$pci/irqs")"
	node=$(ls "/sys/bus/pci/devices/$pci/accel")
	before=$(fired "$pci")
	node_load -s 1 "/dev/accel/$node" || fail "no work"
	after=$(fired "$pci")
	[ "$after" -gt "$before" ] || fail "work was done without an interrupt"
	# An event comes the same way.
	before=$(cat "/sys/bus/pci/devices/$pci/ecc_corrected")
	vmhost inject "ecc-corrected:chip=0" || fail "inject"
done
pci=$(chip_list | head -n 1)
wait_for 30 grep -q 'MSI, [1-9][0-9]* events' "/sys/kernel/debug/accel/$pci/irqs" || fail "no event: $(head -n 1 "/sys/kernel/debug/accel/$pci/irqs")"
