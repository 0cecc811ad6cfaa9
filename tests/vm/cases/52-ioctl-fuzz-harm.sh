#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel timeout=1200 about=chip
# All ioctls at random for 600 seconds (a short run: 40), as a user without privileges, while chips are reset, hang, trip
# and come out of their slots: in the end all of them serve.
. /rig/guest/lib.sh
load job_timeout_ms=500 || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
share_nodes || fail "the nodes' group"
seconds=$(storm 400)
! asked long || seconds=600
devices=$(chip_list)

slot_of() {
	for slot in /sys/bus/pci/slots/*; do
		[ "$(cat "$slot/address")" != "${1%.*}" ] || echo "$slot"
	done
}

is_up() {
	[ "$(cat "/sys/bus/pci/devices/$1/state" 2>/dev/null)" = up ]
}

# Until what it did is undone, so that there are two chips when it ends.
harm() {
	device=$(echo "$devices" | sed -n "$(($1 % 2 + 1))p")
	# The order of chips on the host is that of their slots.
	index=$(($1 % 2))
	case $(($1 % 12)) in
	3 | 10) vmhost liveness-stop $index ;;
	5 | 8) vmhost trip $index ;;
	7)
		echo 0 >"$(slot_of "$device")/power" && wait_for 30 chips_are 1 && plug $index
		;;
	# Refused where one is under way already.
	*) echo 1 >"/sys/bus/pci/devices/$device/reset" 2>/dev/null || true ;;
	esac
	wait_for 60 is_up "$device" && share_nodes
}

# In the end it has all chips work: long after the last harm, of which one takes ten seconds and more.
setpriv --reuid=tester --regid=tester --groups=render ioctl_fuzz --seconds $((seconds + 25)) --processes 6 >/tmp/fuzz 2>&1 &
fuzzer=$!
begin=$(date +%s)
n=0
while [ $(($(date +%s) - begin)) -lt "$seconds" ]; do
	harm $n || fail "harm $n: $(vmhost status)"
	n=$((n + 1))
	kill -0 $fuzzer 2>/dev/null || break
done
wait $fuzzer || { cat /tmp/fuzz; fail "ioctl_fuzz, after $n harms"; }
cat /tmp/fuzz
echo "chips harmed $n times"
wait_for 60 rmmod txda || fail "the module is still used"
