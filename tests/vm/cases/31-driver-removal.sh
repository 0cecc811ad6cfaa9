#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel timeout=1800 level=check
# 200 chips (a short run: 20) pulled out at work, with open files and live mappings, some announced and some not; each
# new one works, nothing stays behind, and the chip next to them goes on.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
other=$(chip_list | tail -n 1)
chip=$(chip_list | head -n 1)
for slot in /sys/bus/pci/slots/*; do
	[ "$(cat "$slot/address")" != "${chip%.*}" ] || break
done

open_files() {
	cut -f 1 /proc/sys/fs/file-nr
}

# The node of the chip that comes and goes.
node_of() {
	for device in $(chip_list); do
		[ "$device" = "$other" ] || ls "/sys/bus/pci/devices/$device/accel" 2>/dev/null
	done
}

is_node() {
	[ -n "$(node_of)" ]
}

# Asked for by the host, which takes five seconds; by the guest; or the chip is gone before anybody says so.
pull_out() {
	case $(($1 % 20)) in
	0)
		unplug 0
		;;
	[13579] | 1[13579])
		echo 0 >"$slot/power"
		;;
	*)
		vmhost disappear 0 && sleep 0.0$(($1 % 7)) && echo 0 >"$slot/power" && vmhost appear 0
		;;
	esac
}

cycle() {
	wait_for 30 is_node || fail "no chip in cycle $1"
	node=$(node_of)
	mkfifo /tmp/end
	node_load -p 20 -g -k -s 1000 "/dev/accel/$node" </tmp/end >/tmp/first 2>&1 &
	first=$!
	node_load -p 20 -g -s 1000 "/dev/accel/$node" >/tmp/second 2>&1 &
	second=$!
	exec 4>/tmp/end
	# Now at work, now at its beginning.
	[ $(($1 % 4)) -eq 0 ] || sleep 0.$(($1 % 5))
	pull_out "$1" || fail "the chip does not go in cycle $1"
	wait_for 30 chips_are 1 || fail "the chip stays in cycle $1"
	wait $second || { cat /tmp/second; fail "second client, cycle $1"; }
	wait_for 30 grep -q gone /tmp/first || { cat /tmp/first; fail "the first client does not see it, cycle $1"; }
	# A file of the old chip is still open when the new one comes.
	plug 0 || fail "device_add in cycle $1"
	exec 4>&-
	wait $first || { cat /tmp/first; fail "first client, cycle $1"; }
	grep -q 'gone 1' /tmp/first || { cat /tmp/first; fail "the first client saw no removal, cycle $1"; }
	rm /tmp/end
}

node_load -p 20 -s 2000 "/dev/accel/$(ls "/sys/bus/pci/devices/$other/accel")" >/tmp/other 2>&1 &
bystander=$!
i=0
while [ $i -lt "$(storm 100)" ]; do
	i=$((i + 1))
	cycle $i
done
memory=$(kernel_memory)
files=$(open_files)
while [ $i -lt "$(storm 200)" ]; do
	i=$((i + 1))
	cycle $i
done
echo "open files: $files, then $(open_files)"
kernel_memory_is "$memory" 4096 || fail "kernel memory grew"
[ "$(open_files)" -lt $((files + 50)) ] || fail "open files grew from $files to $(open_files)"
[ "$(node_count)" -eq 2 ] || fail "$(node_count) nodes"
[ "$(grep -c txda /proc/interrupts)" -le 2 ] || fail "interrupts are left"
kill -INT $bystander
wait $bystander || { cat /tmp/other; fail "the other chip's client"; }
cat /tmp/other
read -r word jobs word lost word gone </tmp/other
[ "$lost" -eq 0 ] && [ "$gone" -eq 0 ] || fail "the other chip lost work"
node_load -s 1 "/dev/accel/$(node_of)" || fail "no work after all"
