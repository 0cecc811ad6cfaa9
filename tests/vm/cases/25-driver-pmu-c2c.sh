#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: root=full
# Traffic between chips as perf counts it: exactly what was copied, at both ends, and over a reset of the chip.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
for n in 0 1; do
	wait_for 30 test -d /sys/bus/event_source/devices/txda_$n || fail "no PMU of accel$n"
	[ "$(cat /sys/bus/event_source/devices/txda_$n/events/c2c_sent.unit)" = MiB ] || fail "the unit of c2c_sent"
done

# traffic FIRST SECOND - peer_traffic's first chip is accelFIRST.
traffic() {
	LC_ALL=C perf stat -x , -o /tmp/stat -e txda_0/c2c_sent/,txda_0/c2c_received/,txda_1/c2c_sent/,txda_1/c2c_received/ \
		-- ioctl_mem_share peer_traffic || fail "perf stat: $(cat /tmp/stat)"
	cat /tmp/stat
	awk -F , -v a="txda_$1" -v b="txda_$2" '
		{ count[$3 " " $2] = $1 }
		END {
			exit !(count[a "/c2c_sent/ MiB"] == 4 && count[a "/c2c_received/ MiB"] == 1 &&
				count[b "/c2c_sent/ MiB"] == 1 && count[b "/c2c_received/ MiB"] == 4)
		}' /tmp/stat || fail "4 MiB there and 1 MiB back are counted otherwise"
}

first=$(for n in 0 1; do echo "$(cat /sys/class/accel/accel$n/device/card_index) $n"; done | sort | sed -n '1s/.* //p')
traffic "$first" $((1 - first))

# The counters of a chip that was reset begin anew, the events do not.
device=/sys/class/accel/accel$first/device
vmhost trip 0 || fail "trip"
reset_again() {
	[ "$(cat "$device/reset_count")" -gt 0 ]
}
wait_for 30 reset_again || fail "no reset after a trip"
vmhost inject clear || fail "inject"
traffic "$first" $((1 - first))
grep -qx 'c2c: 4194304 bytes sent, 1048576 received' /sys/kernel/debug/accel/"$(basename "$(readlink -f "$device")")"/chip ||
	fail "the chip's own counters: $(grep c2c /sys/kernel/debug/accel/*/chip)"
